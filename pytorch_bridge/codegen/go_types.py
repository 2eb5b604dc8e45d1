"""What each type is in Go: in a signature, in an options struct, and on its way into a block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import MissingMethodError
from ..types.containers import BoolArray, ListArg, Optional
from ..types.numbers import NumberArg, ScalarArg
from ..types.objects import Enum, Handle, StreamArg, String
from ..types.tensor import TensorArg
from ..types.type_rules import Face
from . import aten
from .arg_block import Field

# The named values among the schema's defaults.
_NAMED = {
    "True": "true",
    "False": "false",
    "Mean": "1",
    "long": "Int64",
    "contiguous_format": "ContiguousFormat",
}

# The fields of a block; what is missing is a pointer.
_FIELDS = {
    "int64_t": "int64",
    "double": "float64",
    "Scalar": "cScalar",
    "Stream": "Stream",
    "OutTensor": "outTensor",
    "OutTensors": "outTensors",
}


@dataclass(frozen=True)
class GoField(Field):
    """A member of a block, in Go too."""

    go: str

    def go_name(self, n: str) -> str:
        return n + self.suffix.capitalize()


def in_go(fields: list[Field]) -> list[GoField]:
    """The members of a block that package gotorch fills."""
    return [GoField(f.suffix, f.c, _FIELDS.get(f.c, "unsafe.Pointer")) for f in fields]


class GoOption(NamedTuple):
    """How an argument with a default stands in an options struct.

    The field's zero value means the default. Where that is not the schema's own zero, either the
    field is a pointer and nil means `default`, or its zero value is no legal choice and replaced.
    """

    type: str
    default: str = ""  # the Go literal of the default, where leaving the field out is not enough
    zero: str = ""  # the zero value to replace by it; "" with a default: the field is a pointer
    note: str = ""  # what leaving it out means, for the doc comment


def _unknown(default: str) -> GoOption:
    raise MissingMethodError(f"{__name__} does not know the default {default} of such a type")


class GoType(NamedTuple):
    """A value in Go. Templates have {n} for its name in the block blk."""

    type: str
    fill: str = "blk.{n} = {x}"  # puts the expression {x} into the block; errors name it by {arg}
    keep: str = ""  # what must stay alive until the call has returned
    result: str = "blk.{n}"  # the value of the result
    option: Callable[[str], GoOption] = _unknown  # of the schema's default


go: Face[GoType] = Face("Go type", __name__)

go.of(TensorArg)(
    lambda t: GoType(
        "Tensor", 'blk.{n} = {x}.word(op, "{arg}")', "{x}.T", "newTensor(&blk.{n}, blk.scope)"
    )
)
go.of(Handle)(lambda t: GoType(f"*{t.c}", 'blk.{n} = {x}.handle(op, "{arg}")', "{x}"))
go.of(StreamArg)(lambda t: GoType("Stream"))
go.of(BoolArray)(lambda t: GoType(f"[{t.size}]bool", "blk.{n} = unsafe.Pointer(&{x})"))


def _replaced(type_: str, zero: str, default: str) -> GoOption:
    return GoOption(type_, default, zero, default)


@go.of(NumberArg)
def _number(t: NumberArg) -> GoType:
    name = {"int": "int64", "float": "float64", "bool": "bool"}[t.kind]

    def option(default: str) -> GoOption:
        literal = _NAMED.get(default, default)
        same = literal in ("false", "0", "0.0")
        return GoOption(name) if same else GoOption(f"*{name}", literal, note=literal)

    if t.kind == "bool":
        return GoType(name, "blk.{n} = boolInt({x})", result="blk.{n} != 0", option=option)
    return GoType(name, option=option)


@go.of(ScalarArg)
def _scalar(t: ScalarArg) -> GoType:
    return GoType(
        "Scalar",
        'blk.{n} = makeScalar({x}, op, "{arg}")',
        result="blk.{n}.value()",
        option=lambda default: _replaced("Scalar", "nil", aten.scalar(default)),
    )


@go.of(Enum)
def _enum(t: Enum) -> GoType:
    name = {"ScalarType": "DType"}.get(t.schema, t.schema)
    return GoType(
        name,
        'blk.{n} = {x}.required(op, "{arg}")',
        result=f"{name}(blk.{{n}})",
        option=lambda default: _replaced(name, "0", _NAMED[default]),
    )


@go.of(String)
def _string(t: String) -> GoType:
    return GoType(
        "string",
        'blk.{n} = cString({x}, op, "{arg}")',
        option=lambda default: _replaced("string", '""', aten.string(default)),
    )


@go.of(ListArg)
def _list(t: ListArg) -> GoType:
    name = f"[]{go(t.elem).type}"

    def option(default: str) -> GoOption:
        values = ", ".join(aten.numbers(default, t.size))
        if not values:
            return GoOption(name)
        return GoOption(name, f"{name}{{{values}}}", "nil", f"[{values}]")

    slice_ = "blk.{n}, blk.{n}Len = unsafe.Pointer(unsafe.SliceData({x})), int64(len({x}))"
    return GoType(name, slice_, option=option)


go.of(ListArg, ScalarArg)(
    lambda t: GoType("[]Scalar", 'blk.{n}, blk.{n}Len = makeScalars({x}, op, "{arg}")')
)


@go.of(ListArg, TensorArg)
@go.of(ListArg, Optional)
def _tensors(t: ListArg) -> GoType:
    words = "optWords({x})" if isinstance(t.elem, Optional) else 'words({x}, op, "{arg}")'
    return GoType(
        "[]Tensor",
        "blk.{n}, blk.{n}Len = " + words,
        "unsafe.SliceData({x})",
        "newTensors(&blk.{n}, blk.scope)",
    )


@go.of(Optional)
def _optional(t: Optional, type_: str = "", fill: str = "", note: str = "none") -> GoType:
    """What has a zero value that is no value of the element: that means none."""
    elem = go(t.elem)
    type_ = type_ or elem.type

    def option(default: str) -> GoOption:
        return GoOption(type_, note=note) if default == "None" else elem.option(default)

    return elem._replace(type=type_, fill=fill or elem.fill, option=option)


go.of(Optional, TensorArg)(lambda t: _optional(t, fill="blk.{n} = unsafe.Pointer({x}.T)"))
go.of(Optional, ScalarArg)(lambda t: _optional(t, fill='blk.{n} = optScalar({x}, op, "{arg}")'))
go.of(Optional, Enum)(lambda t: _optional(t, fill="blk.{n} = int64({x})"))
go.of(Optional, Handle)(lambda t: _optional(t, note="the default one"))
go.of(Optional, String)(lambda t: _optional(t, "*string", 'blk.{n} = optString({x}, op, "{arg}")'))


@go.of(Optional, NumberArg)
def _pointer(t: Optional) -> GoType:
    made = _optional(t, f"*{go(t.elem).type}", "blk.{n} = unsafe.Pointer({x})")
    # Where the schema says `int? size=0` or `bool? pin_memory=False`, none means the same.
    same = {"0": "None", "False": "None"}
    return made._replace(option=lambda default: made.option(same.get(default, default)))
