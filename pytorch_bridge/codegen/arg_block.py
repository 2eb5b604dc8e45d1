"""How each type stands in the block of arguments through which Go calls (cgotorch/thunk.h).

A block is a struct of eight-byte fields. What is said here is the C side: the fields, what a thunk
makes of them for the C function, and what it does with the results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ..types.containers import ListArg, Optional
from ..types.numbers import NumberArg, ScalarArg
from ..types.objects import Enum
from ..types.schema_types import SchemaType
from ..types.tensor import TensorArg
from ..types.type_rules import Face


@dataclass(frozen=True)
class Field:
    """One member of a block; `suffix` tells a value's members apart."""

    suffix: str
    c: str

    def c_name(self, n: str) -> str:
        return n + ("_" + self.suffix if self.suffix else "")


class Passed(NamedTuple):
    """A value in the block b, or a result. Templates have {n} for its name."""

    fields: list[Field]
    arguments: list[str]  # what the C function is given
    before: list[str] = []  # noqa: RUF012  statements of the thunk before the call
    after: list[str] = []  # noqa: RUF012  and after it, if it succeeded
    words: str = ""  # the words of tensors (cgotorch/words.h) among the fields, in C++


def _one(c: str, argument: str = "b.{n}", **more: str) -> Passed:
    return Passed([Field("", c)], [argument], **more)  # type: ignore[arg-type]


def _pair(c: str) -> list[Field]:
    return [Field("", f"const {c} *"), Field("len", "int64_t")]


block: Face[Passed] = Face("field of a block", __name__)

block.of(SchemaType)(lambda t: _one(t.c))
block.of(Enum)(lambda t: _one("int64_t", f"go_{t.function}(b.{{n}})"))
block.of(TensorArg)(lambda t: _one("Word", 'used(b.{n}, "{n}")', words="b.{n}"))
block.of(ListArg)(lambda t: Passed(_pair(t.elem.c), ["b.{n}", "b.{n}_len"]))
block.of(Optional)(lambda t: block(t.elem) if t.elem.nullable else _one(t.c))
block.of(Optional, TensorArg)(lambda t: _one("Word", 'used_opt(b.{n}, "{n}")', words="b.{n}"))
block.of(Optional, Enum)(lambda t: _one("int64_t", f"Opt{t.elem.c}(b.{{n}}).get()"))
block.of(Optional, ScalarArg)(
    lambda t: _one("Scalar", "b.{n}.kind == ScalarNone ? nullptr : &b.{n}")
)


@block.of(NumberArg)
def _number(t: NumberArg) -> Passed:
    c = "double" if t.kind == "float" else "int64_t"
    return _one(c, "b.{n} != 0" if t.kind == "bool" else "b.{n}")


@block.of(ListArg, TensorArg)
@block.of(ListArg, Optional)
def _tensors(t: ListArg) -> Passed:
    optional = ", true" if isinstance(t.elem, Optional) else ""
    used = f'const UsedList {{n}}(b.{{n}}, b.{{n}}_len, "{{n}}"{optional});'
    return Passed(_pair("Word"), ["{n}.data()", "{n}.size()"], [used])


result: Face[Passed] = Face("field of a block for results", __name__)


def _plain(t: SchemaType, c: str = "int64_t", value: str = "{n}") -> Passed:
    return Passed([Field("", c)], ["&{n}"], [f"{t.c} {{n}};"], [f"b.{{n}} = {value};"])


# As Go has it: one more than in C, 0 for what is not set.
result.of(Enum)(lambda t: _plain(t, value="{n} + 1"))
result.of(ScalarArg)(lambda t: _plain(t, "Scalar"))
result.of(NumberArg)(lambda t: _plain(t, block(t).fields[0].c))
result.of(TensorArg)(
    lambda t: Passed([Field("", "OutTensor")], ["&b.{n}.handle"], after=["describe(b.{n});"])
)
result.of(ListArg, TensorArg)(
    lambda t: Passed(
        [Field("", "OutTensors")],
        ["&{n}", "&{n}_len"],
        ["Tensor *{n};", "int64_t {n}_len;"],
        ["describe(b.{n}, {n}, {n}_len);"],
    )
)
