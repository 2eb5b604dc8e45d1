"""Every recorded file that tests compare with has a reason to hold on another processor.

The last bits of floating-point numbers belong to a processor. What is compared bit for bit is computed by PyTorch in
the same run; a file in the repository has what no processor changes, or is compared by a bound.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from pytorch_bridge.native.toolchain import ROOT

EXACT = "integers, text, or numbers that are written as they are read"
INPUT = "what a test reads; results are computed in the same run"
BOUND = "results that a library computed elsewhere; compared by a bound"

REASONS = {
    "gotorch/testdata/api.txt": EXACT,
    "gotorch/testdata/first_version.gob": EXACT,
    "gotorch/testdata/index.json": EXACT,  # tests/test_indexing.py makes it anew
    "gotorch/testdata/print.json": EXACT,  # tests/test_print.py makes it anew
    "gotorch/testdata/throws.cc": INPUT,
    "gotorch/data/npy/testdata/*": EXACT,
    "gotorch/data/parquet/testdata/*": EXACT,
    "gotorch/distributed/checkpoint/testdata/*": EXACT,
    "gotorch/hub/transformers/testdata/*/config.json": INPUT,
    "gotorch/hub/transformers/testdata/*/model*": INPUT,
    # Also tokens, which are the same where the best one is far enough ahead: tests/conformance/test_hub_models.py.
    "gotorch/hub/transformers/testdata/*/expected.safetensors": BOUND,
    "gotorch/jit/testdata/*": INPUT,
    "gotorch/vision/imageio/testdata/*": EXACT,  # decoders compute with integers
    "gotorch/vision/imageio/internal/jpeg/testdata/pillow.zip": EXACT,
    "gotorch/vision/models/testdata/torchvision.json": BOUND,
    "gotorch/vision/models/detection/testdata/torchvision.json": BOUND,
    "gotorch/vision/ops/testdata/torchvision.json": BOUND,
    "gotorch/vision/transforms/testdata/torchvision.json": BOUND,
    "tests/graph/saved/*": INPUT,
    "tests/released/*": EXACT,
    "*/testdata/fuzz/*": INPUT,
}


FOLDERS = (
    "bench",
    "cgotorch",
    "cmd",
    "deploy",
    "docs",
    "examples",
    "gotorch",
    "pytorch_bridge",
    "tests",
)
SUFFIXES = {".safetensors", ".npy", ".npz", ".pt", ".pt2", ".xz", ".gz"}


def recorded() -> list[str]:
    files = (p.relative_to(ROOT) for folder in FOLDERS for p in (ROOT / folder).rglob("*"))
    return [
        str(p)
        for p in files
        if ("testdata" in p.parts or p.suffix in SUFFIXES) and (ROOT / p).is_file()
    ]


def test_every_recorded_file_has_a_reason() -> None:
    missing = [n for n in recorded() if not any(fnmatchcase(n, p) for p in REASONS)]
    assert missing == [], "how does a test compare with these, and why does that hold elsewhere?"


def test_every_reason_has_a_file() -> None:
    unused = {p for p in REASONS if not any(fnmatchcase(n, p) for n in recorded())}
    assert unused == set()
