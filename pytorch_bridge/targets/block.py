"""How each type stands in the block of arguments through which Go calls (cgotorch/thunk.h).

A block is a struct of eight-byte fields. What is said here is the C side: the fields, what a thunk
makes of them for the C function, and what it does with the results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..types.containers import List, Optional
from ..types.faces import Face
from ..types.numbers import Number, ScalarArg
from ..types.objects import Enum
from ..types.schema import SchemaType
from ..types.tensor import TensorArg


@dataclass(frozen=True)
class Field:
    """One member of a block; `suffix` tells a value's members apart."""

    suffix: str
    c: str

    def c_name(self, n: str) -> str:
        return n + ("_" + self.suffix if self.suffix else "")


class Passed:
    """A value called n in a block called b."""

    def __init__(self, t: Any) -> None:
        self.t = t

    def fields(self) -> list[Field]:
        return [Field("", self.t.c)]

    def words(self, n: str) -> list[str]:
        """The words of tensors (cgotorch/words.h) among the fields, as C++ expressions."""
        return []

    def before(self, n: str) -> list[str]:
        """Statements of the thunk on which `arguments` stands."""
        return []

    def arguments(self, n: str) -> list[str]:
        """What the C function is given."""
        return [f"b.{n}"]

    # As a result
    def result_fields(self) -> list[Field]:
        return [Field("", "int64_t")]

    def result(self, n: str) -> tuple[list[str], list[str], list[str]]:
        """Statements before the call, arguments, statements after success."""
        return [f"{self.t.c} {n};"], [f"&{n}"], [f"b.{n} = {n};"]


block: Face[Passed] = Face("field of a block", __name__)
block.of(SchemaType)(Passed)


@block.of(Number)
class _Number(Passed):
    def fields(self) -> list[Field]:
        return [Field("", "double" if self.t.kind == "float" else "int64_t")]

    def arguments(self, n: str) -> list[str]:
        return [f"b.{n} != 0" if self.t.kind == "bool" else f"b.{n}"]

    def result_fields(self) -> list[Field]:
        return self.fields()


@block.of(ScalarArg)
class _Scalar(Passed):
    def result_fields(self) -> list[Field]:
        return self.fields()


@block.of(Enum)
class _Enum(Passed):
    """As Go has it: one more than in C, 0 for what is not set."""

    def fields(self) -> list[Field]:
        return [Field("", "int64_t")]

    def arguments(self, n: str) -> list[str]:
        return [f"go_{self.t.function}(b.{n})"]

    def result(self, n: str) -> tuple[list[str], list[str], list[str]]:
        return [f"{self.t.c} {n};"], [f"&{n}"], [f"b.{n} = {n} + 1;"]


@block.of(TensorArg)
class _Tensor(Passed):
    used = "used"

    def fields(self) -> list[Field]:
        return [Field("", "Word")]

    def words(self, n: str) -> list[str]:
        return [f"b.{n}"]

    def arguments(self, n: str) -> list[str]:
        return [f'{self.used}(b.{n}, "{n}")']

    def result_fields(self) -> list[Field]:
        return [Field("", "OutTensor")]

    def result(self, n: str) -> tuple[list[str], list[str], list[str]]:
        return [], [f"&b.{n}.handle"], [f"describe(b.{n});"]


@block.of(List)
class _List(Passed):
    def fields(self) -> list[Field]:
        return [Field("", f"const {self.t.elem.c} *"), Field("len", "int64_t")]

    def arguments(self, n: str) -> list[str]:
        return [f"b.{n}", f"b.{n}_len"]


@block.of(List, TensorArg)
class _Tensors(_List):
    def fields(self) -> list[Field]:
        return [Field("", "const Word *"), Field("len", "int64_t")]

    def before(self, n: str) -> list[str]:
        optional = ", true" if isinstance(self.t.elem, Optional) else ""
        return [f'const UsedList {n}(b.{n}, b.{n}_len, "{n}"{optional});']

    def arguments(self, n: str) -> list[str]:
        return [f"{n}.data()", f"{n}.size()"]

    def result_fields(self) -> list[Field]:
        return [Field("", "OutTensors")]

    def result(self, n: str) -> tuple[list[str], list[str], list[str]]:
        declared = [f"Tensor *{n};", f"int64_t {n}_len;"]
        return declared, [f"&{n}", f"&{n}_len"], [f"describe(b.{n}, {n}, {n}_len);"]


block.of(List, Optional)(_Tensors)


@block.of(Optional)
def _optional(t: Optional) -> Passed:
    return block(t.elem) if t.elem.nullable else Passed(t)


@block.of(Optional, TensorArg)
class _OptionalTensor(_Tensor):
    used = "used_opt"


@block.of(Optional, Enum)
class _OptionalEnum(Passed):
    def fields(self) -> list[Field]:
        return [Field("", "int64_t")]

    def arguments(self, n: str) -> list[str]:
        return [f"Opt{self.t.elem.c}(b.{n}).get()"]


@block.of(Optional, ScalarArg)
class _OptionalScalar(Passed):
    def fields(self) -> list[Field]:
        return [Field("", "Scalar")]

    def arguments(self, n: str) -> list[str]:
        return [f"b.{n}.kind == ScalarNone ? nullptr : &b.{n}"]
