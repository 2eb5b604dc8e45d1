"""Row D10: what stands on package gotorch reaches libtorch through it alone. And in Python a layer
imports none that is above it."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytorch_bridge.testing.gotests import run_go
from pytorch_bridge.toolchain import ROOT

GRAPHS = {"graph", "ops", "rewrite", "link", "targets"}


def imported(file: Path) -> Iterator[str]:
    """The folders of pytorch_bridge that a file of one of them imports from, in functions too, but
    for annotations."""
    tree = ast.parse(file.read_text())
    annotations = {
        id(n)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for n in ast.walk(block)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 2 and id(node) not in annotations:
            yield from [node.module.split(".")[0]] if node.module else [a.name for a in node.names]


@pytest.mark.parametrize(
    ("folder", "above"),
    [("schema", {"types", *GRAPHS}), ("types", GRAPHS), ("ops", {"link", "targets"})],
)
def test_a_layer_imports_none_above_it(folder, above):
    files = sorted((ROOT / "pytorch_bridge" / folder).glob("*.py"))
    assert files
    found = {f.name: found for f in files if (found := above & set(imported(f)))}
    assert found == {}


def packages() -> list[dict]:
    """The packages of the module, as `go list` describes them."""
    done = run_go("list", "-json=ImportPath,CgoFiles,Imports", "./gotorch/...")
    assert done.returncode == 0, done.stderr
    return json.loads("[" + done.stdout.replace("}\n{", "},{") + "]")


def test_d10_only_gotorch_itself_uses_cgo():
    with_cgo = [p["ImportPath"] for p in packages() if p.get("CgoFiles")]
    assert with_cgo == ["gotorch.dev/gotorch"]


def test_d10_the_core_does_not_depend_on_the_library_above_it():
    core = next(p for p in packages() if p["ImportPath"] == "gotorch.dev/gotorch")
    above = [i for i in core["Imports"] if i.startswith("gotorch.dev/")]
    assert all(i.startswith("gotorch.dev/gotorch/internal/") for i in above), above
