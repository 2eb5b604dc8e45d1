"""docs/modules.md has every public name of torch.nn.Module, and what it names in Go is there."""

from __future__ import annotations

import re

import pytest
import torch

from pytorch_bridge.codegen.generate import reference_is_installed
from pytorch_bridge.native.toolchain import ROOT

if not reference_is_installed():
    pytest.skip("the table is of the torch that Go was generated for", allow_module_level=True)

ROWS = dict(
    re.findall(r"^\| `(\w+)` \| (.+) \|$", (ROOT / "docs/modules.md").read_text(), re.MULTILINE)
)


def test_every_method_is_there() -> None:
    public = {name for name in dir(torch.nn.Module) if not name.startswith("_")}
    assert set(ROWS) == public


def test_what_it_is_in_go_is_there() -> None:
    api = (ROOT / "gotorch/testdata/api.txt").read_text()
    for name, go in ROWS.items():
        methods = re.findall(r"`Module\.(\w+)`", go)
        assert methods or go.startswith(("none: ", "a method `")), name
        for method in methods:
            assert re.search(rf"\(\*?Module\) {method}\b|Module\.{method}\b", api), (name, method)


def test_names_are_pytorchs_in_gos_spelling() -> None:
    for name, go in ROWS.items():
        found = re.match(r"`Module\.(\w+)`", go)
        if found and name not in ("mtia", "xpu"):
            assert found[1].lower().rstrip("_") == name.replace("_", ""), name
