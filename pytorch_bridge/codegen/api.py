"""What is generated: every function with its names and types resolved, in one list.

`resolve` is the single place where schema, names and types meet; the emitters only print.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cache

from ..schema import Argument, Description, Docs, Names, Return, SchemaFunction
from ..schema.docs import kind
from ..types import SchemaType, schema_type
from .go_types import GoOption, go

FORMAT = "memory_format"  # which some of those that take the others take, too
TENSOR_OPTIONS = ("dtype", "layout", "device", "pin_memory")


@dataclass(frozen=True)
class Parameter:
    """An argument with its type and its names."""

    argument: Argument
    type: SchemaType
    c: str  # C parameter
    go: str  # Go parameter and block field
    option: GoOption | None  # where it is a field of the options struct
    field: str  # its name there

    @property
    def list(self) -> bool:
        return self.argument.type.endswith("[]")

    @property
    def go_doc(self) -> str:
        """What a user of the Go function knows it by."""
        return self.field if self.option else self.go


@dataclass(frozen=True)
class Result:
    """A result with its type and names; `same` is the argument that it is, if it is one."""

    ret: Return
    type: SchemaType
    c: str
    go: str
    same: Parameter | None


@dataclass(frozen=True)
class Wrapped:
    """A function as the emitters need it."""

    function: SchemaFunction
    c: str
    go: str | None
    index: int  # of its thunk; -1 where Go has none
    parameters: tuple[Parameter, ...]
    results: tuple[Result, ...]
    description: Description
    options_of: str = ""  # the functional form's Go name, where its options struct serves

    @property
    def required(self) -> list[Parameter]:
        return [p for p in self.parameters if p.option is None]

    @property
    def optional(self) -> list[Parameter]:
        return [p for p in self.parameters if p.option is not None]

    @property
    def factory(self) -> bool:
        """Takes dtype, layout, device and pin_memory and makes one tensor."""
        names = [p.argument.name for p in self.optional]
        return all(n in names for n in TENSOR_OPTIONS) and len(self.results) == 1

    @property
    def options_type(self) -> str | None:
        """The Go type of the options, or None where there are none."""
        if not self.optional:
            return None
        if self.factory and {p.argument.name for p in self.optional} <= {*TENSOR_OPTIONS, FORMAT}:
            return "TensorOptions"
        return f"{self.options_of or self.go}Options"

    @property
    def method(self) -> bool:
        return "method" in self.function.variants and any(
            p.argument.name == "self" for p in self.parameters
        )


@cache
def docs() -> Docs:
    """The descriptions."""
    return Docs()


class Named:
    """The ops by their names in the schema, for what one's comment says of another."""

    def __init__(self, ops: list[Wrapped]) -> None:
        self._families: dict[str, list[Wrapped]] = defaultdict(list)
        self._ops: dict[str, Wrapped] = {}
        for op in sorted(ops, key=lambda op: (op.go is None, len(op.c), op.c)):
            self._families[op.function.family].append(op)
            self._ops[op.function.name] = op

    def seen_from(self, op: Wrapped, name: str) -> Wrapped | None:
        """The op of this name. Of a family, the one that takes what `op` takes, as an alias does;
        or else the one with the plainest name."""
        if name in self._ops and "." in name:
            return self._ops[name]
        family = [other for other in self._families.get(name, []) if other is not op]
        alike = [other for other in family if _taken(other) == _taken(op)]
        return next(iter(alike or family), None)


def _taken(op: Wrapped) -> tuple[object, ...]:
    """What the op takes, and whether it writes it."""
    return tuple((a.name, kind(a), a.written) for a in op.function.arguments)


def resolve(functions: list[SchemaFunction], names: Names) -> list[Wrapped]:
    """The ops of these functions, sorted by C name. ValueError where two get one name."""
    functions = [f for f in functions if f.name not in names.skipped]
    described = docs().of(functions)
    ops = [_resolve(f, names, described[f.name]) for f in functions]
    for face in ("c", "go"):
        seen: dict[str, str] = {}
        for op in ops:
            name = getattr(op, face)
            if name is None:
                continue
            if name in seen:
                raise ValueError(
                    f"{seen[name]} and {op.function.name} are both {name} in "
                    f"{'C' if face == 'c' else 'Go'}; name one of them in names.yaml"
                )
            seen[name] = op.function.name
    ops.sort(key=lambda op: (op.c.lstrip("_").lower(), op.c))
    by_go = {op.go: op for op in ops if op.go}
    index = 0
    numbered = []
    for op in ops:
        if op.go is not None:
            op = replace(op, index=index, options_of=_options_of(op, by_go))
            index += 1
        numbered.append(op)
    return numbered


def _options_of(op: Wrapped, by_go: dict[str, Wrapped]) -> str:
    """Add for Add_ and AddOut: the functional form, if its options are the same."""
    assert op.go is not None
    form = by_go.get(op.go.removesuffix("_").removesuffix("Out"))
    if form is None or form is op:
        return ""
    mine, theirs = ([(p.field, p.option) for p in o.optional] for o in (op, form))
    same = mine == theirs and op.factory == form.factory
    return form.go or "" if same else ""


def _check_parameters(f: SchemaFunction, parameters: list[Parameter]) -> None:
    """ValueError where Go would not take a name, or a reader not know it for one."""
    names = [p.go for p in parameters]
    for p in parameters:
        if names.count(p.go) > 1 or (p.option is None and "_" in p.go):
            raise ValueError(
                f"{f.name}: {p.go} is no name for a parameter in Go, or there are two of it; "
                f"give {p.argument.name} another in names.yaml, under parameters"
            )


def _resolve(f: SchemaFunction, names: Names, description: Description) -> Wrapped:
    parameters = []
    for a in f.arguments:
        t = schema_type(a.type)
        option = go(t).option(a.default) if a.default is not None else None
        parameters.append(
            Parameter(
                a,
                t,
                names.c_parameter(a.name),
                names.parameters.get(a.name) or names.go_parameter(a.name),
                option,
                names.field(a.name),
            )
        )
    go_name = names.go(f)
    if go_name is not None:
        _check_parameters(f, parameters)
    by_name = {p.argument.name: p for p in parameters}
    taken = {p.c for p in parameters}
    results = []
    for i, r in enumerate(f.returns):
        same = f.same_as(r)
        c = names.c_parameter(r.name)
        if c in taken:
            c = f"{r.name}_result"
        results.append(
            Result(r, schema_type(r.type), c, f"r{i}", by_name[same.name] if same else None)
        )
    return Wrapped(
        f,
        names.c(f),
        go_name,
        -1,
        tuple(parameters),
        tuple(results),
        description,
    )
