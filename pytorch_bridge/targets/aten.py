"""The C++ that ATen is given for the C parameters of each type, and what stores its results."""

from __future__ import annotations

import ast
from typing import Any

from ..errors import MissingMethodError
from ..types.containers import BoolArray, List, Optional
from ..types.faces import Face
from ..types.numbers import Number, ScalarArg
from ..types.objects import Enum, Handle, StreamArg, String
from ..types.tensor import TensorArg

# The named values among the schema's defaults.
_NAMED = {
    "True": "true",
    "False": "false",
    "Mean": "1",  # at::Reduction::Mean
    "long": "at::kLong",
    "contiguous_format": "at::MemoryFormat::Contiguous",
}


class Cpp:
    """A value whose C parameters are called n, in C++."""

    converter = ""  # in internal.h
    named = False  # it is told the parameter's name, for errors
    empty = "std::nullopt"  # what stands for None where the type is optional

    def __init__(self, t: Any) -> None:
        self.t = t

    @property
    def function(self) -> str:
        return self.converter

    def arguments(self, n: str) -> list[str]:
        """The C parameters."""
        return [n]

    def value(self, n: str, written: bool = False) -> str:
        """What ATen is given."""
        arguments = [*self.arguments(n), *([f'"{n}"'] if self.named else [])]
        return f"{self.function}({', '.join(arguments)})"

    def unrecorded(self, n: str) -> str:
        """A condition: is there no tensor in the argument that autograd has to look after? Empty
        for what is never a tensor."""
        return ""

    def is_default(self, n: str, default: str) -> str:
        """A condition: does the C parameter have the schema's default?"""
        raise MissingMethodError(f"{self.t} = {default}: {__name__} knows no such default")

    def default(self, default: str) -> str:
        """The schema's default, for an argument that C does not have."""
        raise MissingMethodError(f"{self.t} = {default}: {__name__} knows no such default")

    def store(self, n: str, x: str) -> str:
        """Puts the result x where the C parameters of n point."""
        return f"*{n} = {x}"


aten: Face[Cpp] = Face("C++", __name__)


@aten.of(TensorArg)
class _Tensor(Cpp):
    converter, named, empty = "in", True, "std::optional<at::Tensor>()"

    def value(self, n: str, written: bool = False) -> str:
        return f'in_mut({n}, "{n}")' if written else super().value(n)

    def unrecorded(self, n: str) -> str:
        return f"unrecorded({n})"

    def store(self, n: str, x: str) -> str:
        return f"out({n}, {x})"


@aten.of(Number)
class _Number(Cpp):
    def value(self, n: str, written: bool = False) -> str:
        form = {"SymInt": "c10::SymInt({})", "DeviceIndex": "device_index({})"}
        return form.get(self.t.schema, "{}").format(n)

    def is_default(self, n: str, default: str) -> str:
        return f"{n} == {_NAMED.get(default, default)}"

    def default(self, default: str) -> str:
        return self.value(_NAMED.get(default, default))

    def store(self, n: str, x: str) -> str:
        form = {
            "SymInt": "{}.expect_int()",
            "SymBool": "{}.expect_bool()",
            "QScheme": "static_cast<int64_t>({})",
        }
        return f"*{n} = {form.get(self.t.schema, '{}').format(x)}"


@aten.of(ScalarArg)
class _Scalar(Cpp):
    converter, empty = "scalar", "std::optional<at::Scalar>()"

    def is_default(self, n: str, default: str) -> str:
        return f"({self.value(n)}.to<double>() == {scalar(default)})"

    def default(self, default: str) -> str:
        return f"at::Scalar({scalar(default)})"

    def store(self, n: str, x: str) -> str:
        return f"*{n} = from_scalar({x})"


@aten.of(Enum)
class _Enum(Cpp):
    @property
    def function(self) -> str:
        return str(self.t.function)

    def is_default(self, n: str, default: str) -> str:
        return f"{self.value(n)} == {_NAMED[default]}"

    def default(self, default: str) -> str:
        return _NAMED[default]

    def store(self, n: str, x: str) -> str:
        return f"*{n} = static_cast<{self.t.c}>({x})"


@aten.of(String)
class _String(Cpp):
    converter, named = "str", True

    def is_default(self, n: str, default: str) -> str:
        return f"{self.value(n)} == {string(default)}"

    def default(self, default: str) -> str:
        return string(default)


@aten.of(Handle)
class _Handle(Cpp):
    named = True

    @property
    def function(self) -> str:
        return str(self.t.c).lower()


@aten.of(StreamArg)
class _Stream(Cpp):
    converter = "stream"


@aten.of(BoolArray)
class _BoolArray(Cpp):
    named = True

    @property
    def function(self) -> str:
        return f"bools<{self.t.size}>"


@aten.of(List)
class _List(Cpp):
    @property
    def function(self) -> str:
        return "symints" if self.t.elem.schema == "SymInt" else str(self.t.function)

    def arguments(self, n: str) -> list[str]:
        return [n, f"{n}_len"]

    def is_default(self, n: str, default: str) -> str:
        values = numbers(default, self.t.size)
        conditions = [f"{n}_len == {len(values)}"]
        conditions += [f"{n}[{i}] == {v}" for i, v in enumerate(values)]
        return "(" + " && ".join(conditions) + ")"

    def default(self, default: str) -> str:
        elem = self.t.elem
        array = "SymIntArrayRef" if elem.schema == "SymInt" else f"ArrayRef<{elem.c}>"
        values = map(aten(elem).default, numbers(default, self.t.size))
        return f"c10::{array}({{{', '.join(values)}}})"


@aten.of(List, TensorArg)
class _Tensors(_List):
    converter, named = "in_list", True
    function = Cpp.function

    def unrecorded(self, n: str) -> str:
        return f"unrecorded({n}, {n}_len)"

    def store(self, n: str, x: str) -> str:
        return f"out_list({n}, {n}_len, {x})"


@aten.of(List, Optional)
class _OptionalTensors(_Tensors):
    converter, named = "in_opt_list", False


@aten.of(Optional)
class _Optional(Cpp):
    def __init__(self, t: Optional) -> None:
        super().__init__(t)
        self.elem = aten(t.elem)

    @property
    def function(self) -> str:
        return f"{self.elem.function}_opt"

    def arguments(self, n: str) -> list[str]:
        return self.elem.arguments(n)

    def unrecorded(self, n: str) -> str:
        return self.elem.unrecorded(n)

    def is_default(self, n: str, default: str) -> str:
        if default == "None":
            return f"{n} == nullptr"
        if self.t.elem.nullable:
            return self.elem.is_default(n, default)
        return f"({n} != nullptr && {self.elem.is_default(f'*{n}', default)})"

    def default(self, default: str) -> str:
        return self.elem.empty if default == "None" else self.elem.default(default)

    def store(self, n: str, x: str) -> str:
        raise MissingMethodError(f"{self.t} as a result: {__name__} does not store it")


@aten.of(Optional, Number)
class _OptionalNumber(_Optional):
    @property
    def function(self) -> str:
        return "symint_opt" if self.t.elem.schema == "SymInt" else "opt"


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
