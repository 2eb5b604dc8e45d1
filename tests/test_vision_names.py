"""Every public name of torchvision.ops and torchvision.models has one in Go, or a reason in docs/vision-models.md."""

from __future__ import annotations

import re
from functools import cache

import pytest

from pytorch_bridge.native.toolchain import ROOT

PAGE = ROOT / "docs" / "vision-models.md"


@cache
def rows() -> dict[str, str]:
    """What the page has of each name."""
    found = re.findall(r"^\| `([\w.]+)` \| (.+) \|$", PAGE.read_text(), re.M)
    assert len(found) == len(dict(found)), "a name is there twice"
    return dict(found)


@cache
def exported() -> set[str]:
    lines = (ROOT / "gotorch/testdata/api.txt").read_text().splitlines()
    found = (re.match(r"gotorch/(vision/[\w/]+): (?:func|type) (\w+)", line) for line in lines)
    return {f"{m[1].rpartition('/')[2]}.{m[2]}" for m in found if m}


def test_go_names_of_the_table_are_there() -> None:
    said = {n for text in rows().values() for n in re.findall(r"`(\w+\.\w+)`", text)}
    assert said
    assert said - exported() == set()


def test_a_name_without_one_in_go_has_a_reason() -> None:
    for name, text in rows().items():
        assert text.startswith("`") or len(text.removeprefix("none: ")) > 10, name


@pytest.mark.parametrize("module", ["ops", "models", "models.detection", "models.segmentation"])
def test_the_table_is_complete(module: str) -> None:
    pytest.importorskip("torchvision", reason="which has the names")
    import importlib

    of = importlib.import_module(f"torchvision.{module}")
    names = {f"{module}.{n}" for n in getattr(of, "__all__", None) or dir(of) if public(of, n)}
    there = {n for n in rows() if n.rpartition(".")[0] == module}
    assert names - there == set()
    assert there - names == set()


def public(of: object, name: str) -> bool:
    thing = getattr(of, name)
    weights = name.endswith("_Weights")  # files to download, which Go does not
    return not name.startswith("_") and callable(thing) and not weights
