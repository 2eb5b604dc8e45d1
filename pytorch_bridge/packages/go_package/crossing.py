"""How the values of a function cross between Go and C.

A value of a schema type is one *part*; a struct that an extension has registered is one part for
each number and tensor in it. The type's own package face does the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...codegen.go_types import GoField
from ...errors import MissingMethodError
from ...extending import parameters, types
from ...extending.models import StructModel, default_manager
from ...extending.selecting import show
from ...types.base import Type
from ...types.schema_types import SchemaType
from . import values
from .values import Output, given, taken


@dataclass(frozen=True)
class Part:
    """A number, a list or a tensor in a value: the way to it (".Lo"), and its type."""

    path: tuple[str, ...]
    type: SchemaType


def parts(t: Type) -> list[Part]:
    """What a value consists of in C. MissingMethodError where Go cannot have it."""
    if isinstance(t, SchemaType):
        return [Part((), t)]
    if not hasattr(t, "data_model"):
        raise MissingMethodError(
            f"a Go package cannot have an input or output of type {t}: it is neither one of "
            "PyTorch's types nor registered with pytorch_bridge.extending"
        )

    return [Part(leaf.path, leaf.type) for leaf in parameters.leaves(t)]


def go_type(t: Type) -> str:
    """The Go type of a value: int64, gotorch.Tensor and so on, or the name of a struct."""
    if isinstance(t, SchemaType):
        return values.go_type(t)
    made = go_struct(t)
    if made is not None:
        return made[0]
    found = parts(t)
    if len(found) > 1:
        raise MissingMethodError(
            f"a Go package cannot have an input or output of type {t}: take it apart"
        )
    return values.go_type(found[0].type)


def go_struct(t: Type) -> tuple[str, str] | None:
    """The name and the documented definition of the Go struct for a type, None where it has none
    (it is no struct)."""
    model = default_manager.lookup(t)
    if not isinstance(model, StructModel) or isinstance(t, (types.BaseTuple, types.Complex)):
        return None
    parameters.leaves(t)  # says what Go cannot have
    doc = (type(t).__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")
    name = model.go_type
    lines = [f"// {name} is {t} of the graph: {doc}" if doc else f"// {name} is {t} of the graph."]
    lines.append(f"type {name} struct {{")
    for field, member in model.members:
        lines.append(f"\t{exported(field)} {go_type(member)} // {show(member)}")
    return name, "\n".join([*lines, "}"])


def exported(name: str) -> str:
    """A member's name as Go exports it."""
    return "".join(w[:1].upper() + w[1:] for w in name.split("_")) or "Field"


def _member(path: tuple[str, ...]) -> str:
    return "".join(f".{exported(p)}" for p in path)


class Crossing:
    """Value number `i` of the inputs ("in") or outputs ("out") of a function."""

    def __init__(self, t: Type, kind: str, i: int) -> None:
        self.type, self.kind = t, kind
        self.parts = parts(t)
        many = len(self.parts) > 1
        self.names = [f"{kind}{i}" + (f"p{k}" if many else "") for k in range(len(self.parts))]

    # An input
    def input_fields(self) -> list[tuple[str, GoField]]:
        return [
            (n, f)
            for n, p in zip(self.names, self.parts, strict=True)
            for f in given(p.type).fields
        ]

    def c_arguments(self) -> list[str]:
        """What the C function is given, where the block is *b."""
        return [
            e.format(n=n)
            for n, p in zip(self.names, self.parts, strict=True)
            for e in given(p.type).arguments
        ]

    def held(self) -> list[str]:
        """The words of tensors in the block, as cgotorch_held."""
        return [
            e
            for n, p in zip(self.names, self.parts, strict=True)
            if (e := given(p.type).held.format(n=n))
        ]

    def fill(self, x: str, arg: str) -> list[str]:
        return [
            given(p.type).fill.format(n=n, x=x + _member(p.path), arg=arg)
            for n, p in zip(self.names, self.parts, strict=True)
        ]

    def keep(self, x: str) -> list[str]:
        """Go expressions that must be alive until the call has returned."""
        places = (given(p.type).keep.format(x=x + _member(p.path)) for p in self.parts)
        return [e for e in places if e]

    # An output
    def results(self) -> list[Output]:
        return [taken(p.type).named(n) for n, p in zip(self.names, self.parts, strict=True)]

    def taken(self) -> str:
        """The Go expression for the value."""
        found = {p.path: r.go for p, r in zip(self.parts, self.results(), strict=True)}
        return _composed(self.type, (), found)

    def members(self, x: str) -> list[tuple[str, str]]:
        """Each part of the Go value x: what tells it apart, and the expression."""
        return [("".join(f".{w}" for w in p.path), x + _member(p.path)) for p in self.parts]

    def made(self, one: Callable[[str, SchemaType], str]) -> str:
        """The Go expression for the value made of its parts, each of which `one` gives."""
        found = {p.path: one("".join(f".{w}" for w in p.path), p.type) for p in self.parts}
        return _composed(self.type, (), found)


def _composed(t: Type, path: tuple[str, ...], values: dict[tuple[str, ...], str]) -> str:
    if path in values:
        return values[path]

    model = default_manager.lookup(t)
    assert isinstance(model, StructModel)
    members = ", ".join(
        f"{exported(name)}: {_composed(member, (*path, name), values)}"
        for name, member in model.members
    )
    return f"{go_type(t)}{{{members}}}"


def structs(types: list[Type]) -> dict[str, str]:
    """The definitions of the Go structs that values of these types need, by their names."""
    found: dict[str, str] = {}
    pending: list[Any] = list(types)
    while pending:
        t = pending.pop(0)
        if isinstance(t, SchemaType):
            continue

        made = go_struct(t)
        if made is None:
            continue
        known = found.setdefault(made[0], made[1])
        if known != made[1]:
            raise MissingMethodError(
                f"two types are called {made[0]} in Go: give one of their models another go_type"
            )
        model = default_manager.lookup(t)
        if isinstance(model, StructModel):
            pending += [member for _, member in model.members]
    return found
