"""What each type is in Go: in a signature, in an options struct, and on its way into a block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from ..errors import MissingMethodError
from ..types.containers import BoolArray, List, Optional
from ..types.faces import Face
from ..types.numbers import Number, ScalarArg
from ..types.objects import Enum, Handle, StreamArg, String
from ..types.tensor import TensorArg
from . import aten
from .block import Field

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


class GoType:
    """A value: the Go expression x, and n in the block blk."""

    name = ""

    def __init__(self, t: Any) -> None:
        self.t = t

    @property
    def type(self) -> str:
        """The Go type, as package gotorch writes it."""
        return self.name

    def fill(self, n: str, x: str, arg: str) -> list[str]:
        """Statements that put x into the block; errors name it by arg."""
        return [f"blk.{n} = {x}"]

    def keep(self, x: str) -> list[str]:
        """What must stay alive until the call has returned."""
        return []

    def option(self, default: str) -> GoOption:
        """The field of an options struct for an argument with this default."""
        raise MissingMethodError(f"{self.t} = {default}: {__name__} knows no such default")

    def result(self, n: str) -> str:
        """The value of the result n of the block."""
        return f"blk.{n}"


go: Face[GoType] = Face("Go type", __name__)


@go.of(TensorArg)
class _Tensor(GoType):
    name = "Tensor"

    def fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f'blk.{n} = {x}.word(op, "{arg}")']

    def keep(self, x: str) -> list[str]:
        return [f"{x}.T"]

    def result(self, n: str) -> str:
        return f"newTensor(&blk.{n}, blk.scope)"


@go.of(Number)
class _Number(GoType):
    @property
    def type(self) -> str:
        return {"int": "int64", "float": "float64", "bool": "bool"}[self.t.kind]

    def fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f"blk.{n} = boolInt({x})" if self.t.kind == "bool" else f"blk.{n} = {x}"]

    def option(self, default: str) -> GoOption:
        literal = _NAMED.get(default, default)
        if literal in ("false", "0", "0.0"):
            return GoOption(self.type)
        return GoOption(f"*{self.type}", default=literal, note=literal)

    def result(self, n: str) -> str:
        return f"blk.{n} != 0" if self.t.kind == "bool" else f"blk.{n}"


@go.of(ScalarArg)
class _Scalar(GoType):
    name = "Scalar"

    def fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f'blk.{n} = makeScalar({x}, op, "{arg}")']

    def option(self, default: str) -> GoOption:
        value = aten.scalar(default)
        return GoOption("Scalar", default=value, zero="nil", note=value)

    def result(self, n: str) -> str:
        return f"blk.{n}.value()"


@go.of(Enum)
class _Enum(GoType):
    @property
    def type(self) -> str:
        return {"ScalarType": "DType"}.get(self.t.schema, self.t.schema)

    def fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f'blk.{n} = {x}.required(op, "{arg}")']

    def option(self, default: str) -> GoOption:
        return GoOption(self.type, default=_NAMED[default], zero="0", note=_NAMED[default])

    def result(self, n: str) -> str:
        return f"{self.type}(blk.{n})"


@go.of(String)
class _String(GoType):
    name = "string"

    def fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f'blk.{n} = cString({x}, op, "{arg}")']

    def option(self, default: str) -> GoOption:
        quoted = aten.string(default)
        return GoOption("string", default=quoted, zero='""', note=quoted)


@go.of(Handle)
class _Handle(GoType):
    @property
    def type(self) -> str:
        return f"*{self.t.c}"

    def fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f'blk.{n} = {x}.handle(op, "{arg}")']

    def keep(self, x: str) -> list[str]:
        return [x]


@go.of(StreamArg)
class _Stream(GoType):
    name = "Stream"


@go.of(List)
class _List(GoType):
    @property
    def type(self) -> str:
        return f"[]{go(self.t.elem).type}"

    def fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f"blk.{n}, blk.{n}Len = unsafe.Pointer(unsafe.SliceData({x})), int64(len({x}))"]

    def option(self, default: str) -> GoOption:
        values = ", ".join(aten.numbers(default, self.t.size))
        if not values:
            return GoOption(self.type)
        return GoOption(self.type, f"{self.type}{{{values}}}", zero="nil", note=f"[{values}]")


@go.of(List, ScalarArg)
class _Scalars(_List):
    def fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f'blk.{n}, blk.{n}Len = makeScalars({x}, op, "{arg}")']


@go.of(List, TensorArg)
class _Tensors(_List):
    def fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f'blk.{n}, blk.{n}Len = words({x}, op, "{arg}")']

    def keep(self, x: str) -> list[str]:
        return [f"unsafe.SliceData({x})"]

    def result(self, n: str) -> str:
        return f"newTensors(&blk.{n}, blk.scope)"


@go.of(List, Optional)
class _OptionalTensors(_Tensors):
    def fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f"blk.{n}, blk.{n}Len = optWords({x})"]


@go.of(BoolArray)
class _BoolArray(GoType):
    @property
    def type(self) -> str:
        return f"[{self.t.size}]bool"

    def fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f"blk.{n} = unsafe.Pointer(&{x})"]


@go.of(Optional)
class _Optional(GoType):
    """What has a zero value that is no value of the element: that means none."""

    note = "none"

    def __init__(self, t: Optional) -> None:
        super().__init__(t)
        self.elem = go(t.elem)

    @property
    def type(self) -> str:
        return self.elem.type

    def fill(self, n: str, x: str, arg: str) -> list[str]:
        return self.elem.fill(n, x, arg)

    def keep(self, x: str) -> list[str]:
        return self.elem.keep(x)

    def option(self, default: str) -> GoOption:
        if default == "None":
            return GoOption(self.type, note=self.note)
        return self.elem.option(default)


@go.of(Optional, TensorArg)
class _OptionalTensor(_Optional):
    def fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f"blk.{n} = unsafe.Pointer({x}.T)"]


@go.of(Optional, ScalarArg)
class _OptionalScalar(_Optional):
    def fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f'blk.{n} = optScalar({x}, op, "{arg}")']


@go.of(Optional, Enum)
class _OptionalEnum(_Optional):
    def fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f"blk.{n} = int64({x})"]


@go.of(Optional, Handle)
class _OptionalHandle(_Optional):
    note = "the default one"


@go.of(Optional, Number)
class _Pointer(_Optional):
    @property
    def type(self) -> str:
        return f"*{self.elem.type}"

    def fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f"blk.{n} = unsafe.Pointer({x})"]

    def option(self, default: str) -> GoOption:
        # Where the schema says `int? size=0` or `bool? pin_memory=False`, none means the same.
        return super().option("None" if default in ("0", "False") else default)


@go.of(Optional, String)
class _OptionalString(_Pointer):
    def fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f'blk.{n} = optString({x}, op, "{arg}")']
