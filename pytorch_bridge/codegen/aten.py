"""The C++ that ATen is given for the C parameters of each type, and what stores its results."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import NamedTuple

from ..errors import MissingMethodError
from ..types.containers import BoolArray, ListArg, Optional
from ..types.numbers import NumberArg, ScalarArg
from ..types.objects import Enum, Handle, StreamArg, String
from ..types.tensor import TensorArg
from ..types.type_rules import Face

# The named values among the schema's defaults.
_NAMED = {
    "True": "true",
    "False": "false",
    "Mean": "1",  # at::Reduction::Mean
    "long": "at::kLong",
    "contiguous_format": "at::MemoryFormat::Contiguous",
}


def _unknown(*given: str) -> str:
    raise MissingMethodError(f"{__name__} does not know the default {given[-1]} of such a type")


class Cpp(NamedTuple):
    """A value in C++. Templates have {n} for the name of the C parameters."""

    function: str = ""  # what converts it, in internal.h
    arguments: str = "{n}"
    writes: str = ""  # the function where ATen writes into it
    named: bool = False  # the function is told the name, for errors
    unrecorded: str = ""  # a condition: no tensor in it is one that autograd has to look after
    store: str = "*{n} = {x}"  # puts the result x where the C parameters point
    empty: str = "std::nullopt"  # stands for None where the type is optional
    is_default: Callable[[str, str], str] = _unknown  # a condition, of n and the schema's default
    default: Callable[[str], str] = _unknown  # the schema's, for an argument that C does not have

    def value(self, n: str, written: bool = False) -> str:
        """What ATen is given."""
        function = (written and self.writes) or self.function
        arguments = self.arguments.format(n=n) + (f', "{n}"' if self.named else "")
        return f"{function}({arguments})" if function else n


aten: Face[Cpp] = Face("C++", __name__)

aten.of(TensorArg)(
    lambda t: Cpp(
        "in",
        writes="in_mut",
        named=True,
        unrecorded="unrecorded({n})",
        store="out({n}, {x})",
        empty="std::optional<at::Tensor>()",
    )
)
aten.of(Handle)(lambda t: Cpp(t.c.lower(), named=True))
aten.of(StreamArg)(lambda t: Cpp("stream"))
aten.of(BoolArray)(lambda t: Cpp(f"bools<{t.size}>", named=True))


@aten.of(NumberArg)
def _number(t: NumberArg) -> Cpp:
    result = {
        "SymInt": "{x}.expect_int()",
        "SymBool": "{x}.expect_bool()",
        "QScheme": "static_cast<int64_t>({x})",
    }
    made = Cpp(
        {"SymInt": "c10::SymInt", "DeviceIndex": "device_index"}.get(t.schema, ""),
        store="*{n} = " + result.get(t.schema, "{x}"),
        is_default=lambda n, default: f"{n} == {_NAMED.get(default, default)}",
    )
    return made._replace(default=lambda default: made.value(_NAMED.get(default, default)))


@aten.of(ScalarArg)
def _scalar(t: ScalarArg) -> Cpp:
    return Cpp(
        "scalar",
        store="*{n} = from_scalar({x})",
        empty="std::optional<at::Scalar>()",
        is_default=lambda n, default: f"(scalar({n}).to<double>() == {scalar(default)})",
        default=lambda default: f"at::Scalar({scalar(default)})",
    )


@aten.of(Enum)
def _enum(t: Enum) -> Cpp:
    return Cpp(
        t.function,
        store=f"*{{n}} = static_cast<{t.c}>({{x}})",
        is_default=lambda n, default: f"{t.function}({n}) == {_NAMED[default]}",
        default=lambda default: _NAMED[default],
    )


@aten.of(String)
def _string(t: String) -> Cpp:
    return Cpp(
        "str",
        named=True,
        is_default=lambda n, default: f'str({n}, "{n}") == {string(default)}',
        default=string,
    )


@aten.of(ListArg)
def _list(t: ListArg) -> Cpp:
    def is_default(n: str, default: str) -> str:
        values = numbers(default, t.size)
        conditions = [f"{n}_len == {len(values)}"]
        conditions += [f"{n}[{i}] == {v}" for i, v in enumerate(values)]
        return "(" + " && ".join(conditions) + ")"

    def made(default: str) -> str:
        array = "SymIntArrayRef" if symbolic else f"ArrayRef<{t.elem.c}>"
        return f"c10::{array}({{{', '.join(map(aten(t.elem).default, numbers(default, t.size)))}}})"

    symbolic = t.elem.schema == "SymInt"
    function = "symints" if symbolic else t.function
    return Cpp(function, "{n}, {n}_len", is_default=is_default, default=made)


@aten.of(ListArg, TensorArg)
@aten.of(ListArg, Optional)
def _tensors(t: ListArg) -> Cpp:
    optional = isinstance(t.elem, Optional)
    return Cpp(
        "in_opt_list" if optional else "in_list",
        "{n}, {n}_len",
        named=not optional,
        unrecorded="unrecorded({n}, {n}_len)",
        store="out_list({n}, {n}_len, {x})",
    )


@aten.of(Optional)
def _optional(t: Optional) -> Cpp:
    elem = aten(t.elem)

    def is_default(n: str, default: str) -> str:
        if default == "None":
            return f"{n} == nullptr"
        if t.elem.nullable:
            return elem.is_default(n, default)
        return f"({n} != nullptr && {elem.is_default(f'*{n}', default)})"

    def made(default: str) -> str:
        return elem.empty if default == "None" else elem.default(default)

    number = {"SymInt": "symint_opt"}.get(t.elem.schema, "opt")
    function = number if isinstance(t.elem, NumberArg) else f"{elem.function}_opt"
    return Cpp(
        function, elem.arguments, unrecorded=elem.unrecorded, is_default=is_default, default=made
    )


# The schema's defaults, as C++ and Go both write them.


def scalar(default: str) -> str:
    return str(int(default == "True")) if default in ("True", "False") else default


def string(default: str) -> str:
    return '"' + ast.literal_eval(default).replace("\\", "\\\\").replace('"', '\\"') + '"'


def numbers(default: str, size: int) -> list[str]:
    """The elements of a list, for all of which one number may stand."""
    if default.startswith("["):
        return [str(v) for v in ast.literal_eval(default)]
    return [default] * max(size, 1)
