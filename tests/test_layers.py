"""Row D10: what stands on package gotorch reaches libtorch through it alone. And in Python a layer
imports none that is above it."""

from __future__ import annotations

import ast
import json
from collections.abc import Container, Iterator
from pathlib import Path

from pytorch_bridge.testing.gotests import run_go
from pytorch_bridge.toolchain import ROOT

# From below to above: a module imports from its own layer and those below it. `extending` stands on
# the graphs and registers into them; what is printed in other languages is printed of all of it.
LAYERS = [
    ["errors", "registry", "tables", "replacing", "artifacts", "versions", "toolchain"],
    ["schema"],
    ["types"],
    ["graph"],
    ["ops"],
    ["variables", "fx", "ranges", "derivatives", "gradient"],
    ["rewrite"],
    ["link"],
    [
        "compiled",
        "tracked",
        "model",
        "attention",
        "branches",
        "looping",
        "library_gradients",
        "exported",
        "training",
    ],
    ["extending"],
    ["targets"],
]
PACKAGE = ROOT / "pytorch_bridge"


def modules() -> dict[str, Path]:
    """The modules of pytorch_bridge, by their names after it."""
    found = {}
    for file in PACKAGE.rglob("*.py"):
        parts = file.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imported(name: str, file: Path, known: Container[str]) -> Iterator[str]:
    """The modules that a module imports, in functions too, but for annotations."""
    tree = ast.parse(file.read_text())
    annotations = {
        id(n)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for n in ast.walk(block)
    }
    inside = name.split(".") if file.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or id(node) in annotations or not node.level:
            continue
        up = inside[: len(inside) - node.level + 1]
        base = ".".join([*filter(None, up), *filter(None, [node.module])])
        for a in node.names:
            full = f"{base}.{a.name}" if base else a.name
            yield full if full in known else base


def graph() -> dict[str, set[str]]:
    known = modules()
    found = {n: set(imported(n, f, known)) & set(known) for n, f in known.items()}
    return {n: targets - {n} for n, targets in found.items()}


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """The sets of modules that import one another, by way of others too."""
    left = dict(edges)
    while ends := [n for n, to in left.items() if not to & set(left)]:
        for n in ends:
            del left[n]
    while ends := [n for n in left if not any(n in to for to in left.values())]:
        for n in ends:
            del left[n]
    return [sorted(left)] if left else []


def test_no_module_imports_itself_by_way_of_others():
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]
    edges = graph()
    assert len(edges) > 100
    assert cycles(edges) == []


def test_a_layer_imports_none_above_it():
    rank = {name: i for i, layer in enumerate(LAYERS) for name in layer}
    upwards = [
        f"{name} imports {target}"
        for name, targets in graph().items()
        for target in sorted(targets)
        if rank.get(name.split(".")[0], 99) < rank.get(target.split(".")[0], -1)
    ]
    assert upwards == []


def packages() -> list[dict]:
    """The packages of the module, as `go list` describes them."""
    done = run_go("list", "-json=ImportPath,CgoFiles,Imports", "./gotorch/...")
    assert done.returncode == 0, done.stderr
    return json.loads("[" + done.stdout.replace("}\n{", "},{") + "]")


def ours(package: dict) -> list[str]:
    """What a package imports of the module."""
    return [i for i in package.get("Imports", []) if i.startswith("gotorch.dev/")]


def test_d10_only_ctorch_uses_cgo():
    with_cgo = [p["ImportPath"] for p in packages() if p.get("CgoFiles")]
    assert with_cgo == ["gotorch.dev/gotorch/internal/ctorch"]


def test_d10_ctorch_and_gotorch_depend_on_nothing_above_them():
    known = {p["ImportPath"]: ours(p) for p in packages()}
    assert known["gotorch.dev/gotorch/internal/ctorch"] == ["gotorch.dev/gotorch/internal/finalize"]
    core = known["gotorch.dev/gotorch"]
    assert all(i.startswith("gotorch.dev/gotorch/internal/") for i in core), core
