"""Compiled graphs, from Python and from Go, against eager PyTorch and PyTorch's own compilers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from ..native.toolchain import ROOT
from .measuring import OUT, Family, Target, Way, compile_cpp, compile_go

FOLDER = OUT / "graphs"
MODELS = ROOT / "bench" / "graph_models.py"

CASES = {
    "mlp_1": "MLP 784-128-10, batch 1",
    "mlp_64": "MLP 784-128-10, batch 64",
    "products": "a hundred products, 2×2",
    "exact_small": "ten exact elementwise ops, 64×128",
    "exact_large": "ten exact elementwise ops, 10⁶",
    "gelu_small": "bias and tanh-GELU in ten ops, 64×128",
    "gelu_large": "bias and tanh-GELU in ten ops, 10⁶",
    "gelu_bfloat16": "the same in bfloat16, 10⁶",
    "gelu_float16": "the same in float16, 10⁶",
}


def family() -> Family:
    """Compiles the models and the workers; the first time takes minutes, PyTorch's compilers' most
    of them."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [sys.executable, str(ROOT / "bench" / "graph_prepare.py"), str(FOLDER)], check=True
    )
    python = [sys.executable, str(ROOT / "bench" / "graph_worker.py")]
    cpp = compile_cpp("graph_worker")
    go = compile_go(".", "graph_go_worker", FOLDER / "go")
    return Family(
        title="Graphs",
        text=(
            "Whole models, compiled. Ratios to Python eager in inference mode. `function` is this "
            "project's from Python, the Go package that of `export_go`. In bfloat16 and float16 "
            "AOTInductor rounds once for all ops that it fuses; the others round after each op, as "
            "eager mode does."
        ),
        base="eager",
        cases=CASES,
        ways=[
            Way("eager", "Python eager", [*python, "eager", str(FOLDER)]),
            Way("cpp", "C++, calls by hand", [*cpp, "calls"]),
            Way("script", "TorchScript, frozen", [*python, "script", str(FOLDER)]),
            Way("compile", "torch.compile", [*python, "compile", str(FOLDER)]),
            Way("aoti", "AOTInductor, Python", [*python, "aoti", str(FOLDER)]),
            Way("aoti_cpp", "AOTInductor, C++", [*cpp, str(FOLDER)]),
            Way("bridge", "`function`", [*python, "bridge", str(FOLDER)]),
            Way("go", "Go package", go),
        ],
        targets=[
            Target("mlp_1", "bridge", 0.60),
            Target("mlp_1", "go", 0.55),
            Target("mlp_1", "bridge", 0.85, to="script"),
            *(Target("products", way, 1.10, to="cpp") for way in ("bridge", "go")),
            *(Target(case, "bridge", 0.35) for case in ("exact_large", "gelu_large")),
            *(Target("exact_small", way, 1.10, to="aoti_cpp") for way in ("bridge", "go")),
            *(Target("gelu_small", way, 1.10, to="aoti_cpp") for way in ("bridge", "go")),
        ],
        sittings=2,
    )


def facts() -> dict[str, str]:
    """Compile times, memory, and what a jitted call costs."""
    found: dict[str, str] = {}
    for part in ("mlp", "resnet50", "memory", "jit"):
        done = subprocess.run(
            [sys.executable, str(Path(ROOT, "bench", "graph_facts.py")), part],
            check=True,
            capture_output=True,
            text=True,
        )
        found.update(json.loads(done.stdout.splitlines()[-1]))
    return found
