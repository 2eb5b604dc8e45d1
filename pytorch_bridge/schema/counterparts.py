"""What each public name of PyTorch is in Go.

Most follow by a rule: a function of native_functions.yaml is the generated one, a name of
`torch.nn` is that of package nn, in Go's spelling. `counterparts.yaml` has the packages, the names
that the rule does not find, and the reason for each name that has no counterpart. That a Go name
exists is looked up in the list of exported names, so that a name of PyTorch is either there, or has
its reason, or is an error.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from .python_api import PythonName, python_api
from .tables import read_table

FILE = Path(__file__).with_name("counterparts.yaml")
ROOT = Path(__file__).parents[2]
EXPORTED = ROOT / "gotorch" / "testdata" / "api.txt"

# What native functions of these namespaces begin with in the schema.
_PREFIXES = {
    "torch": "",
    "torch.Tensor": "",
    "torch.fft": "fft_",
    "torch.linalg": "linalg_",
    "torch.special": "special_",
    "torch.sparse": "sparse_",
}


@dataclass(frozen=True)
class Counterpart:
    """A name of PyTorch and what it is in Go: names that exist, or the reason why there is none."""

    python: PythonName
    go: tuple[str, ...]
    reason: str = ""


class CounterpartError(ValueError):
    """The table, PyTorch's names and Go's names do not fit."""


@cache
def exported(path: Path = EXPORTED) -> frozenset[str]:
    """Every exported name of Go, `gotorch.Tensor.Add`, `nn/functional.ReLU`, but no field."""
    found = set()
    for line in path.read_text().splitlines():
        package, _, rest = line.partition(": ")
        package = package.removeprefix("gotorch/")
        if method := re.match(r"func \(\*?(\w+)(?:\[.*?\])?\) (\w+)", rest):
            found.add(f"{package}.{method[1]}.{method[2]}")
        elif plain := re.match(r"(?:func|type|const|var) (\w+)", rest):
            found.add(f"{package}.{plain[1]}")
            # A field is no counterpart of a function: Tensor.T is the handle, not torch.Tensor.T.
            if member := re.match(r"type \w+(?:\[.*?\])? interface, (\w+) func", rest):
                found.add(f"{package}.{plain[1]}.{member[1]}")
    return frozenset(found)


@cache
def _table() -> dict[str, Any]:
    return {name: entry for name, entry in read_table(FILE).items() if name != "also"}


def also() -> dict[str, str]:
    """Names that users look for though they are not public, and their counterparts in Go."""
    return read_table(FILE)["also"]


def package(namespace: str) -> str:
    """The Go package of a module of PyTorch's, below gotorch; the first of several."""
    packages = _table()[namespace]["package"]
    return packages if isinstance(packages, str) else packages[0]


def counterparts(
    native: dict[str, list[tuple[str, bool]]],
    table: dict[str, Any] | None = None,
    known: frozenset[str] | None = None,
) -> dict[str, list[Counterpart]]:
    """Every public name of PyTorch by namespace, in the order of the file.

    `native` has the Go names of each native function, by its name without the overload, and
    whether it is a method. CounterpartError says which names have neither a counterpart nor a
    reason, and what of the table is of no use.
    """
    table = _table() if table is None else table
    known = exported() if known is None else known
    wrong: list[str] = []
    spelt = {key(name): name for name in sorted(known)}
    found: dict[str, list[Counterpart]] = defaultdict(list)
    used: set[tuple[str, str]] = set()
    for name in python_api().values():
        entry = table.get(name.namespace)
        if entry is None:
            wrong.append(f"{name.namespace} is no namespace of the table")
            continue
        go, reason, by = _look_up(name, entry, native, spelt)
        used.add((name.namespace, by))
        if not go and not reason:
            wrong.append(f"{name.full} is neither in Go nor has it a reason")
        wrong += [f"{name.full}: Go has no {g}" for g in go if g not in known]
        if reason:
            there, _, _ = _look_up(name, {"package": entry["package"]}, native, spelt)
            wrong += [f"{name.full} has a reason why Go lacks it: {g}" for g in there]
        found[name.namespace].append(Counterpart(name, go, reason))
    for namespace, entry in table.items():
        for pattern in [*entry.get("go", {}), *entry.get("none", {})]:
            if (namespace, pattern) not in used:
                wrong.append(f"{namespace}: {pattern} is about no name of PyTorch that needs it")
    if wrong:
        raise CounterpartError("\n".join(dict.fromkeys(wrong)))
    return dict(found)


def _look_up(
    name: PythonName,
    entry: dict[str, Any],
    native: dict[str, list[tuple[str, bool]]],
    known: dict[str, str],
) -> tuple[tuple[str, ...], str, str]:
    """The Go names or the reason, and the key of the table that says it."""
    for pattern, listed in entry.get("go", {}).items():
        if re.fullmatch(pattern, name.name):
            return (listed,) if isinstance(listed, str) else tuple(listed), "", pattern
    for pattern, reason in entry.get("none", {}).items():
        if re.fullmatch(pattern, name.name):
            return (), reason, pattern
    prefix = _PREFIXES.get(name.namespace)
    if prefix is not None:
        method = name.namespace == "torch.Tensor"
        in_go = native.get(prefix + name.name, []) or native.get(f"_{prefix}{name.name}", [])
        if method:
            in_go = [(f"Tensor.{go}", True) for go, is_method in in_go if is_method]
        if in_go:
            return tuple(f"gotorch.{go}" for go, _ in in_go), "", ""
    packages = entry["package"]
    kind = "Tensor." if name.namespace == "torch.Tensor" else ""
    for package in [packages] if isinstance(packages, str) else packages:
        for spelling in (name.name, name.name.removesuffix(entry.get("without", ""))):
            for full in (f"{package}.{kind}{spelling}", f"{package}.{spelling}"):
                if found := known.get(key(full)):
                    return (found,), "", ""
    return (), "", ""


def key(name: str) -> str:
    """What PyTorch's spelling and Go's have in common; an underscore at the end says in place."""
    return name.lower().rstrip("_").replace("_", "") + ("_" if name.endswith("_") else "")
