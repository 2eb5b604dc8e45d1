"""What is generated: every function with its names and types resolved, in one list.

`resolve` is the single place where schema, names and types meet; the emitters only print.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from ..schema import Argument, Function, Names, Return
from ..tables import read_table
from ..types import SchemaType, schema_type
from .go_types import GoOption, go

DOCS_FILE = Path(__file__).parents[1] / "schema" / "docs.yaml"
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


@dataclass(frozen=True)
class Result:
    """A result with its type and names; `same` is the argument that it is, if it is one."""

    ret: Return
    type: SchemaType
    c: str
    go: str
    same: Parameter | None


@dataclass(frozen=True)
class Op:
    """A function as the emitters need it."""

    function: Function
    c: str
    go: str | None
    index: int  # of its thunk; -1 where Go has none
    parameters: tuple[Parameter, ...]
    results: tuple[Result, ...]
    doc: str
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
        if self.factory and len(self.optional) == len(TENSOR_OPTIONS):
            return "TensorOptions"
        return f"{self.options_of or self.go}Options"

    @property
    def method(self) -> bool:
        return "method" in self.function.variants and any(
            p.argument.name == "self" for p in self.parameters
        )


@cache
def docs() -> dict[str, str]:
    """One line of description per family."""
    if not DOCS_FILE.exists():
        return {}
    return read_table(DOCS_FILE) or {}


def resolve(functions: list[Function], names: Names) -> list[Op]:
    """The ops of these functions, sorted by C name. ValueError where two get one name."""
    ops = [_resolve(f, names) for f in functions if f.name not in names.skipped]
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


def _options_of(op: Op, by_go: dict[str, Op]) -> str:
    """Add for Add_ and AddOut: the functional form, if its options are the same."""
    assert op.go is not None
    form = by_go.get(op.go.removesuffix("_").removesuffix("Out"))
    if form is None or form is op:
        return ""
    mine, theirs = ([(p.field, p.option) for p in o.optional] for o in (op, form))
    same = mine == theirs and op.factory == form.factory
    return form.go or "" if same else ""


def _resolve(f: Function, names: Names) -> Op:
    parameters = []
    for a in f.arguments:
        t = schema_type(a.type)
        option = go(t).option(a.default) if a.default is not None else None
        parameters.append(
            Parameter(
                a,
                t,
                names.c_parameter(a.name),
                names.go_parameter(a.name),
                option,
                names.field(a.name),
            )
        )
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
    return Op(
        f,
        names.c(f),
        names.go(f),
        -1,
        tuple(parameters),
        tuple(results),
        docs().get(f.family) or docs().get(f.base, ""),
    )
