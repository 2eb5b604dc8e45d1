"""Row D10: what stands on package gotorch reaches libtorch through it alone. And in Python a layer
imports none that is above it."""

from __future__ import annotations

import ast
import json
from collections.abc import Container, Iterator
from pathlib import Path

import pytest

from pytorch_bridge.native.toolchain import ROOT
from pytorch_bridge.testing.gotests import run_go

# From below to above: a module imports from its own layer and from those below it. A module belongs to the
# longest name here that begins its own. Package aliasing is one subject with a part in two layers.
LAYERS = [
    ["", "errors", "registry", "sameness", "native"],
    ["schema"],
    ["types"],
    ["inference"],
    ["graph", "aliasing.destroy", "aliasing.sharing"],
    ["ops", "aliasing"],
    ["autodiff"],
    ["rewrite"],
    ["link"],
    ["frontend"],
    ["extending", "typing"],
    ["codegen"],
    ["packages"],
    ["cli", "__main__", "bench", "testing"],
]
RANKS = {name: i for i, layer in enumerate(LAYERS) for name in layer}
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
        if id(node) in annotations:
            continue
        if isinstance(node, ast.Import):
            yield from (within(a.name) for a in node.names if within(a.name) is not None)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                up = inside[: len(inside) - node.level + 1]
                base = ".".join([*filter(None, up), *filter(None, [node.module])])
            elif (base := within(node.module)) is None:
                continue
            for a in node.names:
                full = f"{base}.{a.name}" if base else a.name
                yield full if full in known else base
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
            ("import_module", "__import__")
        ):
            to = node.args[0]
            if isinstance(to, ast.Constant) and (base := within(to.value)) is not None:
                yield base


def within(name: str) -> str | None:
    """The name of a module after pytorch_bridge, or None where it is of another package."""
    top, _, rest = name.partition(".")
    return rest if top == "pytorch_bridge" else None


def graph() -> dict[str, set[str]]:
    known = modules()
    found = {n: set(imported(n, f, known)) & set(known) for n, f in known.items()}
    # Python runs the packages that a module is in before it.
    return {
        n: {p for t in targets for p in [t, *above(t)]} - {n, *above(n)}
        for n, targets in found.items()
    }


def above(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:i]) for i in range(1, len(parts))]


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


def layer(module: str) -> int:
    """The rank of a module. KeyError where it has none."""
    name = module
    while name not in RANKS and "." in name:
        name = name.rpartition(".")[0]
    return RANKS[name]


def test_a_layer_imports_none_above_it():
    upwards = [
        f"{name} imports {target}"
        for name, targets in graph().items()
        for target in sorted(targets)
        if layer(name) < layer(target)
    ]
    assert upwards == []


@pytest.mark.parametrize(
    "text",
    [
        "from .. import cli",
        "from ..cli import called",
        "import pytorch_bridge.cli",
        "import pytorch_bridge.cli as c",
        "from pytorch_bridge import cli",
        "from pytorch_bridge.cli import called",
        "def f():\n    from ..cli import called",
        "importlib.import_module('pytorch_bridge.cli')",
    ],
)
def test_every_kind_of_import_is_seen(text, tmp_path):
    file = tmp_path / "basic.py"
    file.write_text(text)
    assert "cli" in imported("graph.basic", file, modules())


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
