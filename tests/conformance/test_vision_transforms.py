"""The transforms of Go's package vision/transforms are torchvision's.

Where torchvision is installed, to the last bit, with the same random numbers, on cases drawn at random; it is optional,
so elsewhere results are compared, by a bound, with what a script has written down from it on another machine. `CONFORMANCE=full` draws 300 of each name.
"""

from __future__ import annotations

import gc
import json
import os
import re
import warnings
from collections.abc import Iterator
from fnmatch import fnmatchcase

import pytest
import torch

from pytorch_bridge.codegen.generate import reference_is_installed

if not reference_is_installed():
    pytest.skip("the numbers are of the torch that Go was generated for", allow_module_level=True)

from pytorch_bridge.native.toolchain import ROOT
from pytorch_bridge.testing.conformance import vision_transforms as under_test
from pytorch_bridge.testing.conformance.harness import Harness
from pytorch_bridge.testing.conformance.vision_transforms import EXPECTED, NAMES, Case, Draw

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("one_thread", "quiet")]

FULL = os.environ.get("CONFORMANCE") == "full"
TRIED = 300 if FULL else 10
OPTIONAL = "torchvision is optional; the tests with expected values run without it"


@pytest.fixture
def quiet() -> Iterator[None]:
    """torchvision warns of ranges that begin at their end, and of what it passes through."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("name", NAMES)
def test_numbers_are_torchvisions_to_the_last_bit(name: str, harness: Harness) -> None:
    pytest.importorskip("torchvision", reason=OPTIONAL)
    ended = [(str(c), under_test.unlike(c, harness)) for c in Draw(name, 1).cases(TRIED)]
    problems = [f"{case}: {how}" for case, how in ended if how not in ("", "error")]
    assert not problems, f"{len(problems)} of {TRIED} differ:\n" + "\n".join(problems[:10])
    assert sum(how == "" for _, how in ended) >= TRIED // 5, "too many cases are errors"


def test_numbers_are_as_torchvision_was_written_down(harness: Harness) -> None:
    wanted = json.loads(EXPECTED.read_text())
    tried = set()
    for name in NAMES:
        for case in Draw(name, 0).cases(60):
            if str(case) not in wanted:
                continue
            tried.add(str(case))
            torch.manual_seed(case.seed)
            got = under_test.measured(under_test.go(case, harness))
            assert not (how := under_test.apart(got, wanted[str(case)])), f"{case}: {how}"
    assert tried == set(wanted)
    assert {c.split("(")[0] for c in tried} == set(NAMES)


def test_a_difference_is_found(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compared fails for another result, and for another number of random numbers."""
    pytest.importorskip("torchvision", reason=OPTIONAL)
    case = Case("RandomRotation", [[40.0, 50.0]], shape=(3, 16, 16), seed=4)
    assert under_test.unlike(case, harness) == ""
    make = under_test.go
    with monkeypatch.context() as patch:
        other = Case("RandomRotation", [[41.0, 51.0]], shape=(3, 16, 16), seed=4)
        patch.setattr(under_test, "go", lambda _, harness: make(other, harness))
        assert "differs" in under_test.unlike(case, harness)
    with monkeypatch.context() as patch:

        def draws_once_more(case: Case, harness: Harness) -> list[object]:
            found = make(case, harness)
            torch.rand(1)
            return found

        patch.setattr(under_test, "go", draws_once_more)
        assert "random numbers" in under_test.unlike(case, harness)


def rows() -> list[tuple[list[str], str]]:
    """The table of names of docs/vision.md: torchvision's, or patterns of them, and what it says of Go."""
    page = (ROOT / "docs/vision.md").read_text()
    table = page[page.index("| torchvision.transforms.v2 | Go |") :].split("\n\n")[0]
    found = []
    for line in table.splitlines()[2:]:
        names, go = line.strip("|").split("|", 1)
        found.append((re.findall(r"`([^`]+)`", names), go.strip()))
    return found


def test_every_public_name_of_torchvision_is_in_the_table() -> None:
    pytest.importorskip("torchvision", reason=OPTIONAL)
    from types import ModuleType

    from torchvision.transforms import v2
    from torchvision.transforms.v2 import functional

    patterns = [p for names, _ in rows() for p in names]
    public = {
        n
        for module in (v2, functional)
        for n in vars(module)
        if not n.startswith("_") and not isinstance(getattr(module, n), ModuleType)
    }
    missing = {n for n in public if not any(fnmatchcase(n, p) for p in patterns)}
    assert missing == set(), "say in docs/vision.md what they are in Go, or why they are not there"
    gone = {p for p in patterns if not any(fnmatchcase(n, p) for n in public)}
    assert gone == set()


def test_every_name_of_the_table_is_in_go() -> None:
    api = (ROOT / "gotorch/testdata/api.txt").read_text()
    for names, go in rows():
        assert go, names
        for package, name in re.findall(r"`(transforms|functional|imageio)\.(\w+)`", go):
            folder = {
                "transforms": "transforms",
                "functional": "transforms/functional",
                "imageio": "imageio",
            }[package]
            assert re.search(rf"^gotorch/vision/{folder}: (func|type|const) {name}\b", api, re.M), (
                package,
                name,
            )


def test_every_name_is_tried() -> None:
    """A class or function of the table that Go has is in the tests of numbers."""
    by_hand = {
        "clamp_*", "convert_*", "sanitize_*", "get_*", "to_*", "*_tensor", "To*", "PIL*",
        "Convert*", "Transform", "Lambda", "InterpolationMode", "AutoAugmentPolicy", "hflip",
        "vflip", "elastic_transform", "*_image", "*_video", "*_mask", "*_bounding_boxes",
        "*_keypoints",
    }  # fmt: skip
    for names, go in rows():
        if go.startswith(("none", "`imageio.")) or (
            "`transforms." not in go and "`functional." not in go
        ):
            continue
        for name in names:
            assert name in NAMES or any(fnmatchcase(name, p) for p in by_hand), name


def test_no_handle_is_left(harness: Harness) -> None:
    left = []
    for _ in range(3):
        for name in NAMES[::3]:
            for case in Draw(name, 2).cases(2):
                torch.manual_seed(case.seed)
                try:
                    under_test.go(case, harness)
                except under_test.WrapperError:
                    continue
        gc.collect()
        left.append(harness.collect())
    assert left[1] >= left[2], left
