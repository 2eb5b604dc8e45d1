"""The layers and functions of Go's packages nn and nn/functional.

They follow from `nn.yaml` and the signatures in `python_gen.txt`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from .names import Names
from .python_api import NO_DEFAULT, PythonArgument, python_api
from .tables import read_table

NN_FILE = Path(__file__).with_name("nn.yaml")
_DIRECTIONS = re.compile(r"(\d)d$")


@dataclass(frozen=True)
class Argument:
    """An argument of a function or of a module's constructor, and how it stands in Go.

    It is a parameter, or with an option a field of the options struct. A bool that is true by
    default is there by the opposite.
    """

    python: str
    kind: str
    nullable: bool  # it may be left out, and that is a value of its own
    default: Any
    option: bool
    note: str
    go: str  # the parameter
    name: str  # what it holds, as a field of a module

    @property
    def negated(self) -> bool:
        return self.kind == "bool" and self.default is True and self.option

    @property
    def field(self) -> str:
        """The field of the options struct."""
        return f"No{self.name}" if self.negated else self.name

    @property
    def go_doc(self) -> str:
        """What a user of the function knows it by."""
        return self.field if self.option else self.go


class _Takes:
    """What takes arguments, of which some are fields of options."""

    arguments: tuple[Argument, ...]

    @property
    def required(self) -> list[Argument]:
        return [a for a in self.arguments if not a.option]

    @property
    def optional(self) -> list[Argument]:
        return [a for a in self.arguments if a.option]


@dataclass(frozen=True)
class Function(_Takes):
    """A function of torch.nn.functional."""

    python: str
    go: str
    section: str
    does: str
    arguments: tuple[Argument, ...]
    by_hand: bool
    native: str  # the function of the schema that it calls, with its overload
    with_indices: str  # the one that returns indices, too; "first" where all do
    options_of: str

    @property
    def options_type(self) -> str:
        """The Go type of the options, or "" where there are none."""
        return f"{self.options_of or self.go}Options" if self.optional else ""


@dataclass(frozen=True)
class Module(_Takes):
    """A class of torch.nn that keeps arguments for a function."""

    name: str
    section: str
    does: str
    arguments: tuple[Argument, ...]
    function: Function
    forward: tuple[Argument, ...]  # what Forward takes
    repr: str
    entry: Mapping[str, Any] = field(hash=False, compare=False)

    @property
    def directions(self) -> int:
        """Of how many dimensions its windows are, 0 where it has none."""
        found = _DIRECTIONS.search(self.name)
        return int(found[1]) if found else int(self.entry.get("dims", 0))


@dataclass(frozen=True)
class Based:
    """A class of torch.nn that is a Go type by hand for a number of directions."""

    name: str
    section: str
    does: str
    required: tuple[Argument, ...]
    base: str
    options: str
    lazy: str  # the class that it becomes

    @property
    def directions(self) -> int:
        """How many they are, or 0 for any number."""
        found = _DIRECTIONS.search(self.name)
        return int(found[1]) if found else 0


@dataclass(frozen=True)
class Layers:
    """All of nn.yaml."""

    functions: dict[str, Function]
    modules: dict[str, Module]
    based: dict[str, Based]
    by_hand: dict[str, bool]  # modules, and whether they are generic in a size

    @property
    def constructors(self) -> dict[str, int]:
        """Every module of nn, with the number of its type parameters."""
        sized = ("sizes", "window")
        found = {m.name: sum(a.kind in sized for a in m.required) for m in self.modules.values()}
        found |= {b.name: sum(a.kind in sized for a in b.required) for b in self.based.values()}
        return found | {name: int(generic) for name, generic in self.by_hand.items()}


@cache
def layers() -> Layers:
    """What nn.yaml says of the names in python_gen.txt. ValueError where the two do not fit."""
    return _Reader(read_table(NN_FILE)).layers()


def _expand(entries: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The entries, those with {n} in their names three times."""
    for name, entry in entries.items():
        full = {"does": entry} if isinstance(entry, str) else dict(entry)
        if "{n}" in name:
            for n in "123":
                yield name.replace("{n}", n), {k: _with(v, n) for k, v in full.items()}
        else:
            yield name, full


def _with(value: Any, n: str) -> Any:
    if isinstance(value, str):
        return value.replace("{n}", n)
    if isinstance(value, list):
        return [_with(v, n) for v in value]
    return value


class _Reader:
    def __init__(self, table: Mapping[str, Any]) -> None:
        self.table = table
        self.names = Names()
        self.known = python_api()

    def layers(self) -> Layers:
        functions = {}
        for part, by_hand in (("functional", False), ("by_hand", True)):
            for section, entries in self.table[part].items():
                for name, entry in _expand(entries):
                    functions[name] = self._function(name, entry, section, by_hand)
        modules = {}
        for section, entries in self.table["modules"].items():
            for name, entry in _expand(entries):
                modules[name] = self._module(name, entry, section, functions)
        based: dict[str, Based] = {}
        for section, entries in self.table["based"].items():
            for name, entry in _expand(entries):
                based[name] = self._based(name, entry, section, based)
        listed = [n for names in self.table["modules_by_hand"].values() for n in names]
        generic = {name.removesuffix("[]"): name.endswith("[]") for name in listed}
        return Layers(functions, modules, based, generic)

    def _based(
        self, name: str, entry: dict[str, Any], section: str, known: dict[str, Based]
    ) -> Based:
        _check_keys(name, entry, "does base options lazy")
        lazy = entry.get("lazy", "")
        found = self.known[f"torch.nn.{name}"].arguments or ()
        required = tuple(self._argument(f"torch.nn.{name}", a, {}) for a in found if a.required)
        base = entry.get("base") or known[lazy].base
        return Based(name, section, entry["does"], required, base, entry["options"], lazy)

    def _function(self, name: str, entry: dict[str, Any], section: str, by_hand: bool) -> Function:
        _check_keys(
            name, entry, "does go native with_indices options_of positional options args left_out"
        )
        return Function(
            name,
            entry.get("go") or self.names.camel(name),
            section,
            entry.get("does", ""),
            self._arguments(f"torch.nn.functional.{name}", entry),
            by_hand,
            entry.get("native", name),
            entry.get("with_indices", ""),
            self.names.camel(entry.get("options_of", "")),
        )

    def _module(
        self, name: str, entry: dict[str, Any], section: str, functions: dict[str, Function]
    ) -> Module:
        _check_keys(
            name,
            entry,
            "does calls repr positional args buffers checks dims forward left_out pads renamed "
            "stride_is_kernel every_direction unused",
        )
        function = functions[entry.get("calls") or name.lower()]
        arguments = self._arguments(f"torch.nn.{name}", entry)
        mine = {entry.get("renamed", {}).get(a.python, a.python) for a in arguments} | {"training"}
        mine |= set(entry.get("left_out", ()))
        if "pads" in entry:
            mine |= {"pad", "mode", "value"}
        wanted = entry.get("forward")
        forward = [
            a
            for a in function.arguments
            if (a.python in wanted if wanted else not a.option and a.python not in mine)
        ]
        return Module(
            name,
            section,
            entry.get("does") or function.does,
            arguments,
            function,
            tuple(forward),
            entry.get("repr", ""),
            entry,
        )

    def _arguments(self, full: str, entry: dict[str, Any]) -> tuple[Argument, ...]:
        found = self.known.get(full)
        if found is None or found.arguments is None:
            raise ValueError(f"python_gen.txt does not have the arguments of {full}")
        left_out = {*self.table["left_out"], *entry.get("left_out", ())}
        return tuple(
            self._argument(full, a, entry) for a in found.arguments if a.name not in left_out
        )

    def _argument(self, full: str, a: PythonArgument, entry: dict[str, Any]) -> Argument:
        listed = self.table["arguments"].get(a.name, [])
        own = entry.get("args", {}).get(a.name, [])
        own = [own] if isinstance(own, str) else own
        kind = (own or listed or [_kind_of(a.default)])[0]
        if not kind:
            raise ValueError(f"nn.yaml does not say what the argument {a.name} of {full} is")
        nullable = kind.endswith("?") or kind in ("tensor", "dtype", "device")
        kind = kind.removesuffix("?")
        default = a.default
        if kind == "float" and isinstance(default, int):
            default = float(default)
        option = not a.required and a.name not in entry.get("positional", ())
        option = option or a.name in entry.get("options", ())
        return Argument(
            a.name,
            kind,
            nullable and default is None,
            default,
            option,
            (own[1:] or listed[1:] or [""])[0],
            self.names.parameters.get(a.name) or self.names.go_parameter(a.name),
            self.names.field(a.name),
        )


def _kind_of(default: Any) -> str:
    if default is NO_DEFAULT or default is None:
        return ""
    return {bool: "bool", int: "int", float: "float", str: "text"}.get(type(default), "")


def _check_keys(name: str, entry: dict[str, Any], known: str) -> None:
    if unknown := entry.keys() - set(known.split()):
        raise ValueError(f"nn.yaml: {name} has the unknown key {', '.join(sorted(unknown))}")
