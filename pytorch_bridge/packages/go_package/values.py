"""How a value of each type crosses between a Go package of its own and its C function, with the
functions of gotorch/graph."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ...codegen import go_types
from ...codegen.arg_block import Field, block
from ...codegen.go_types import GoField
from ...errors import MissingMethodError
from ...types.containers import ListArg, Optional
from ...types.numbers import NumberArg, ScalarArg
from ...types.objects import String
from ...types.schema_types import SchemaType
from ...types.tensor import TensorArg
from ...types.type_rules import Face


def go_type(t: SchemaType) -> str:
    """The Go type as another package than gotorch writes it."""
    return re.sub(r"\b([A-Z]\w*)", r"gotorch.\1", go_types.go(t).type)


class Input(NamedTuple):
    """A value given to C in the block, which is *b in C and blk in Go. Templates have {n} for its
    name there."""

    fields: list[GoField]
    fill: str  # the Go statement that puts the expression {x} into the block
    arguments: Sequence[str] = ("b->{n}",)  # what the C function is given
    held: str = ""  # the words of tensors among the fields, as cgotorch_held of C
    keep: str = ""  # what must be alive in Go until the call has returned


class Output(NamedTuple):
    """A result: the members of the block, the Go expression for the value; and in C the arguments,
    the statements before the call and those after success."""

    fields: list[GoField]
    go: str
    arguments: Sequence[str] = ("&b->{n}",)
    before: Sequence[str] = ()
    after: Sequence[str] = ()

    def named(self, n: str) -> Output:
        """The same with its name put in."""
        parts = ([e.format(n=n) for e in part] for part in self[2:])
        return Output(self.fields, self.go.format(n=n), *parts)


given: Face[Input] = Face("way into the function of a Go package", __name__)
taken: Face[Output] = Face("way out of the function of a Go package", __name__)


@given.of(SchemaType)
def _no_input(t: SchemaType) -> Input:
    raise MissingMethodError(f"a Go package cannot have an input of type {t}")


@taken.of(SchemaType)
def _no_output(t: SchemaType) -> Output:
    raise MissingMethodError(f"a Go package cannot have an output of type {t}")


def _fields(t: SchemaType) -> list[GoField]:
    return go_types.in_go(block(t).fields)


def _as_in_gotorch(t: SchemaType, fill: str = "") -> Input:
    arguments = [a.replace("b.", "b->", 1) for a in block(t).arguments]
    return Input(_fields(t), fill or go_types.go(t).fill, arguments)


given.of(Optional, NumberArg)(_as_in_gotorch)
given.of(ListArg, NumberArg)(_as_in_gotorch)
given.of(Optional, ListArg, NumberArg)(_as_in_gotorch)
given.of(String)(lambda t: _as_in_gotorch(t, "blk.{n} = graph.CString({x}, op, {arg})"))
given.of(ScalarArg)(
    lambda t: Input(
        [GoField("", "Scalar", "graph.Number")], "blk.{n} = graph.Scalar({x}, op, {arg})"
    )
)


@given.of(NumberArg)
def _number(t: NumberArg) -> Input:
    return _as_in_gotorch(t, "blk.{n} = graph.Bool({x})" if t.kind == "bool" else "")


@given.of(TensorArg)
@given.of(Optional, TensorArg)
def _tensor(t: TensorArg) -> Input:
    return Input(
        [GoField("", "Tensor", "unsafe.Pointer")],
        f"blk.{{n}} = graph.{'Opt' * isinstance(t, Optional)}Word({{x}}, op, {{arg}})",
        held="{{&b->{n}, 1}}",
        keep="{x}.T",
    )


@given.of(ListArg, TensorArg)
@given.of(ListArg, Optional)
def _tensors(t: ListArg) -> Input:
    words = "Opt" * isinstance(t.elem, Optional) + "Words"
    return Input(
        go_types.in_go([Field("", "const Tensor *"), Field("len", "int64_t")]),
        f"blk.{{n}}, blk.{{n}}Len = graph.{words}({{x}}, op, {{arg}})",
        ["b->{n}", "b->{n}_len"],
        "{{(Tensor *)b->{n}, b->{n}_len}}",
        "{x}",
    )


taken.of(ScalarArg)(lambda t: Output(given(t).fields, "graph.ScalarOf(blk.{n})"))
taken.of(String)(lambda t: Output(_fields(t), "C.GoString((*C.char)(blk.{n}))"))
taken.of(TensorArg)(
    lambda t: Output(
        [GoField("", "struct { Tensor handle; int64_t meta; }", "graph.Result")],
        "graph.Tensor(blk.{n}, blk.Block)",
        ["&b->{n}.handle"],
        after=["b->{n}.meta = cgotorch_meta(b->{n}.handle);"],
    )
)
taken.of(Optional, TensorArg)(lambda t: taken(t.elem))
taken.of(Optional, ListArg)(lambda t: taken(t.elem))


@taken.of(NumberArg)
def _number_taken(t: NumberArg) -> Output:
    if t.kind == "bool":
        return Output(_fields(t), "blk.{n} != 0", ["&{n}"], ["bool {n};"], ["b->{n} = {n};"])
    return Output(_fields(t), "blk.{n}")


@taken.of(ListArg, NumberArg)
def _list_taken(t: ListArg, function: str = "") -> Output:
    function = function or {"int": "TakeInts", "float": "TakeFloats"}[t.elem.kind]  # type: ignore[attr-defined]
    fields = [GoField("", f"struct {{ {t.elem.c} *data; int64_t len; }}", "graph.List")]
    return Output(fields, f"graph.{function}(blk.{{n}})", ["&b->{n}.data", "&b->{n}.len"])


taken.of(ListArg, TensorArg)(lambda t: _list_taken(t, "Tensors"))
taken.of(ListArg, Optional)(lambda t: _list_taken(t, "Tensors"))
