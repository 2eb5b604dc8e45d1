"""How a value of each type crosses between a Go package of its own and its C function, with the
functions of gotorch/graph."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ...errors import MissingMethodError
from ...types.containers import List, Optional
from ...types.faces import Face
from ...types.numbers import Number, ScalarArg
from ...types.objects import String
from ...types.schema import SchemaType
from ...types.tensor import TensorArg
from .. import go_types
from ..block import Field, block
from ..go_types import GoField


def go_type(t: SchemaType) -> str:
    """The Go type as another package than gotorch writes it."""
    return re.sub(r"\b([A-Z]\w*)", r"gotorch.\1", go_types.go(t).type)


class Result(NamedTuple):
    """How a result comes from C to Go: the members of the block, in C the statements before the
    call, the arguments and the statements after success, where the block is *b; and the Go
    expression for the value."""

    fields: list[GoField]
    before: list[str]
    arguments: list[str]
    after: list[str]
    go: str


class Value:
    """A value called n in the block, which is *b in C and blk in Go."""

    def __init__(self, t: Any) -> None:
        self.t = t

    def fields(self) -> list[GoField]:
        return go_types.in_go(block(self.t).fields())

    def arguments(self, n: str) -> list[str]:
        """What the C function is given."""
        return [e.replace("b.", "b->", 1) for e in block(self.t).arguments(n)]

    def held(self, n: str) -> list[str]:
        """The words of tensors among the fields, as cgotorch_held of C."""
        return []

    def fill(self, n: str, x: str, arg: str) -> list[str]:
        """Statements that put the Go expression x into the block's fields for n."""
        return go_types.go(self.t).fill(n, x, arg)

    def keep(self, x: str) -> list[str]:
        """Go expressions that must be alive until the call has returned."""
        return []

    def result(self, n: str) -> Result:
        """How the result n gets to Go."""
        raise MissingMethodError(f"a Go package cannot have an output of type {self.t}")


value: Face[Value] = Face("way into a Go package", __name__)


@value.of(SchemaType)
class _Refused(Value):
    def fill(self, n: str, x: str, arg: str) -> list[str]:
        raise MissingMethodError(f"a Go package cannot have an input of type {self.t}")


@value.of(TensorArg)
class _Tensor(Value):
    word = "Word"

    def fields(self) -> list[GoField]:
        return [GoField("", "Tensor", "unsafe.Pointer")]

    def arguments(self, n: str) -> list[str]:
        return [f"b->{n}"]

    def held(self, n: str) -> list[str]:
        return [f"{{&b->{n}, 1}}"]

    def fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f"blk.{n} = graph.{self.word}({x}, op, {arg})"]

    def keep(self, x: str) -> list[str]:
        return [f"{x}.T"]

    def result(self, n: str) -> Result:
        return Result(
            [GoField("", "struct { Tensor handle; int64_t meta; }", "graph.Result")],
            [],
            [f"&b->{n}.handle"],
            [f"b->{n}.meta = cgotorch_meta(b->{n}.handle);"],
            f"graph.Tensor(blk.{n}, blk.Block)",
        )


@value.of(Optional, TensorArg)
class _OptionalTensor(_Tensor):
    word = "OptWord"


@value.of(Number)
class _Number(Value):
    def fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f"blk.{n} = graph.Bool({x})" if self.t.kind == "bool" else f"blk.{n} = {x}"]

    def result(self, n: str) -> Result:
        if self.t.kind != "bool":
            return Result(self.fields(), [], [f"&b->{n}"], [], f"blk.{n}")
        after = [f"b->{n} = {n};"]
        return Result(self.fields(), [f"bool {n};"], [f"&{n}"], after, f"blk.{n} != 0")


value.of(Optional, Number)(Value)


@value.of(ScalarArg)
class _Scalar(Value):
    def fields(self) -> list[GoField]:
        return [GoField("", "Scalar", "graph.Number")]

    def fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f"blk.{n} = graph.Scalar({x}, op, {arg})"]

    def result(self, n: str) -> Result:
        return Result(self.fields(), [], [f"&b->{n}"], [], f"graph.ScalarOf(blk.{n})")


@value.of(String)
class _String(Value):
    def fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f"blk.{n} = graph.CString({x}, op, {arg})"]

    def result(self, n: str) -> Result:
        return Result(self.fields(), [], [f"&b->{n}"], [], f"C.GoString((*C.char)(blk.{n}))")


@value.of(List, Number)
class _List(Value):
    def result(self, n: str) -> Result:
        take = {"int": "TakeInts", "float": "TakeFloats"}[self.t.elem.kind]
        return _list(self.t.elem.c, n, take)


def _list(c: str, n: str, take: str) -> Result:
    fields = [GoField("", f"struct {{ {c} *data; int64_t len; }}", "graph.List")]
    return Result(fields, [], [f"&b->{n}.data", f"&b->{n}.len"], [], f"graph.{take}(blk.{n})")


@value.of(Optional, List)
def _optional_list(t: Optional) -> Value:
    return value(t.elem)


@value.of(List, TensorArg)
class _Tensors(Value):
    words = "Words"

    def fields(self) -> list[GoField]:
        return go_types.in_go([Field("", "const Tensor *"), Field("len", "int64_t")])

    def arguments(self, n: str) -> list[str]:
        return [f"b->{n}", f"b->{n}_len"]

    def held(self, n: str) -> list[str]:
        return [f"{{(Tensor *)b->{n}, b->{n}_len}}"]

    def fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f"blk.{n}, blk.{n}Len = graph.{self.words}({x}, op, {arg})"]

    def keep(self, x: str) -> list[str]:
        return [x]

    def result(self, n: str) -> Result:
        return _list("Tensor", n, "Tensors")


@value.of(List, Optional)
class _OptionalTensors(_Tensors):
    words = "OptWords"
