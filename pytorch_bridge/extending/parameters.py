"""Values of registered types as parameters of a C function.

A struct is passed member by member, so that a caller needs no header of its own:

    const char *Width(double x_lo, double x_hi, double *out0)

Structs within structs, and tuples, are taken apart in the same way. Members that are numbers and
tensors have the forms that they have everywhere else in cgotorch.h.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import MissingMethodError
from ..types.base import Sub, Type
from ..types.parsing import schema_type
from ..types.schema_types import SchemaType
from . import types
from .builder import is_number
from .models import DataModel, StructModel, default_manager


@dataclass(frozen=True)
class Leaf:
    """A number or a tensor in a value: how to get there (".lo"), the type that carries it across
    the boundary, and its C type inside."""

    path: tuple[str, ...]
    type: SchemaType
    c_type: str
    within: types.Integer | None = None  # the range of a narrow integer

    @property
    def member(self) -> str:
        return "".join(f".{p}" for p in self.path)

    def name(self, n: str) -> str:
        return "_".join([n, *self.path])


def leaves(t: Type) -> list[Leaf]:
    """The leaves of a value. MissingMethodError where it has a part that only Python has."""
    return list(_leaves(t, default_manager.lookup(t), ()))


def _leaves(t: Type, model: DataModel, path: tuple[str, ...]) -> Iterator[Leaf]:
    if isinstance(model, StructModel):
        for name, member in model.members:
            yield from _leaves(member, model.models[name], (*path, name))
        return
    if isinstance(t, SchemaType):
        t = t.plain() if isinstance(t, types.Array) else t
        assert isinstance(t, SchemaType)
        yield Leaf(path, t, model.c_type)
        return
    c = model.c_type
    if not is_number(c) or c == "uint64_t":
        where = f"member {'.'.join(path)} of type {t}" if path else f"the type {t}"
        raise MissingMethodError(f"{where} cannot be a parameter of a C function: it is a {c} in C")
    kind = "bool" if c == "bool" else "float" if c in ("float", "double") else "int"
    narrow = t if isinstance(t, types.Integer) and t.bitwidth < 64 else None
    yield Leaf(path, schema_type(kind), c, narrow)


def parameters(t: Type, n: str) -> list[str]:
    """The C parameters for a value that is given."""
    return [p for leaf in leaves(t) for p in leaf.type.c_parameters(leaf.name(n))]


def results(t: Type, n: str) -> list[str]:
    """The C parameters for a value that is returned."""
    return [p for leaf in leaves(t) for p in leaf.type.c_results(leaf.name(n))]


def take(t: Type, name: str, n: str, sub: Sub, check_input: bool) -> str:
    """Fills the variable from its C parameters."""
    lines = [default_manager.lookup(t).clear(name)]
    for leaf in leaves(t):
        given, place = leaf.name(n), f"{name}{leaf.member}"
        if leaf.within is not None and check_input:
            low, high = leaf.within.minval, leaf.within.maxval
            lines.append(
                f"if ({given} < {low} || {given} > {high}) {{\n"
                f'pb_error = pb_format("OverflowError: %lld does not fit {leaf.within}", '
                f"(long long){given});\n{sub['fail']}\n}}"
            )
        if isinstance(leaf.type, SchemaType) and leaf.c_type == "Tensor":
            # It is checked under a name of its own.
            own = leaf.name(name)
            lines.append(f"{{\nTensor {own};")
            lines.append(leaf.type.c_take(own, given, sub, check_input))
            lines.append(f"{place} = {own};\n}}")
        else:
            lines.append(f"{place} = ({leaf.c_type}){given};")
    return "\n".join(lines)


def give(t: Type, name: str, n: str) -> str:
    """Puts the variable's value where the C results point."""
    lines = []
    for leaf in leaves(t):
        value = f"{name}{leaf.member}"
        if leaf.c_type == "Tensor":
            value = f"RetainTensor({value})"
        lines.append(f"*{leaf.name(n)} = {value};")
    return "\n".join(lines)


types.above.parameters = parameters
types.above.results = results
types.above.take = take
types.above.give = give
