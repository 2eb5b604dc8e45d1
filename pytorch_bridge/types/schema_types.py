"""One class per type of PyTorch's schema language.

A class knows, for a value called `name`:

- its C face: the parameters of the C function (`c_parameters`) and the C++ expression that ATen is
  given for them (`cpp`);
- its block face: the eight-byte fields through which Go hands it over (`block`), and how the C
  thunk reads the C parameters from them (`from_block`);
- its Go face: the parameter type (`go`), the statements that fill the block (`go_fill`), and the
  field of an options struct where the schema has a default (`go_option`);
- its face as a result: `c_results`, `cpp_store`, `go_result`;
- its face in a graph: it is a `CType`, whose values are what torch.ops takes, and `c_literal` is a
  value that is known as the C function's arguments.

`schema_type("int[2]")` gives the instance for a schema spelling. The wrapper generator uses it too,
so nothing here imports torch before a value is looked at.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from .. import toolchain
from ..errors import BridgeTypeError, MissingMethodError
from . import c_support
from .base import CType, Sub, Type
from .enums import DEVICES, DTYPES, LAYOUTS, MEMORY_FORMATS, device_parts, dtype_name

# The named defaults of enums, in C++ and in Go.
ENUM_DEFAULTS = {
    "long": ("at::kLong", "Int64"),
    "contiguous_format": ("at::MemoryFormat::Contiguous", "ContiguousFormat"),
}
REDUCTIONS = {"Mean": "1"}  # at::Reduction::Mean, the one named integer among the defaults


@dataclass(frozen=True)
class BlockField:
    """One member of an argument block, in C and in Go; `suffix` tells a value's members apart."""

    suffix: str
    c: str
    go: str

    def c_name(self, n: str) -> str:
        return n + ("_" + self.suffix if self.suffix else "")

    def go_name(self, p: str) -> str:
        return p + self.suffix.capitalize()


@dataclass(frozen=True)
class GoOption:
    """How an argument with a default stands in an options struct.

    The field's zero value means the default. Where that is not the schema's own zero, either the
    field is a pointer and nil means `default`, or its zero value is no legal choice and replaced.
    """

    type: str
    default: str = ""  # the Go literal of the default, where leaving the field out is not enough
    zero: str = ""  # the zero value to replace by it; "" with a default: the field is a pointer
    note: str = ""  # what leaving it out means, for the doc comment


@dataclass(frozen=True)
class PackageResult:
    """How a result comes from C to a Go package of its own: the members of the block, in C the
    statements before the call, the arguments and the statements after success, where the block is
    *b; and the Go expression for the value."""

    fields: list[BlockField]
    before: list[str]
    arguments: list[str]
    after: list[str]
    go: str


class SchemaType(CType):
    """A type of the schema language. Subclasses fill in the faces."""

    c = ""  # the C type of the single parameter
    go = ""  # the Go type
    go_zero_is_default = False  # the zero Go value is not a legal value: it can mean "left out"

    def __init__(self, schema: str) -> None:
        self.schema = schema

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.schema!r})"

    # In a graph
    @property
    def key(self) -> tuple[Any, ...]:
        """What tells this type from others. Symbolic sizes are integers there."""
        return (type(self).__name__, self.schema.replace("SymInt", "int").replace("Sym", ""))

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, SchemaType) and self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        return self.schema

    def holds(self, value: Any) -> bool:
        """Whether value is one of this type as it is."""
        raise NotImplementedError(f"{type(self).__name__} lacks holds")

    def convert(self, value: Any, allow_downcast: bool | None) -> Any:
        """Returns value as one of this type, or TypeError."""
        raise self.refusal(value)

    def refusal(self, value: Any, why: str = "") -> BridgeTypeError:
        return BridgeTypeError(f"expected {self}, got {describe(value)}{why}")

    def filter(self, value: Any, strict: bool = False, allow_downcast: bool | None = None) -> Any:
        if self.holds(value):
            return value
        if strict:
            raise self.refusal(value)
        return self.convert(value, allow_downcast)

    def c_headers(self) -> Sequence[str]:
        return ["math.h", "stdlib.h", "string.h", "cgotorch.h"]

    def c_header_dirs(self) -> Sequence[str]:
        return [str(toolchain.ROOT / "cgotorch")]

    def c_libraries(self) -> Sequence[str]:
        return ["cgotorch"]

    def c_lib_dirs(self) -> Sequence[str]:
        return [str(toolchain.build_dir() / "lib")]

    def c_support_code(self) -> Sequence[str]:
        return c_support.HELPERS

    def c_init(self, name: str, sub: Sub) -> str:
        return f"{name} = 0;"

    def c_code_cache_version(self) -> tuple[Any, ...]:
        return (1,)

    # C face
    def c_parameters(self, n: str) -> list[str]:
        return [f"{self.c}{n}" if self.c.endswith("*") else f"{self.c} {n}"]

    def cpp(self, n: str, written: bool = False) -> str:
        return n

    def cpp_unrecorded(self, n: str) -> str:
        """A C++ condition: is there no tensor in the argument that autograd has to look after?
        Empty for what is never a tensor."""
        return ""

    def cpp_is_default(self, n: str, default: str) -> str:
        """A C++ condition: does the C parameter have the schema's default?"""
        raise NotImplementedError(f"{self.schema} = {default}")

    def cpp_default(self, default: str) -> str:
        """The C++ expression of the schema's default, for an argument that C does not have."""
        raise NotImplementedError(f"{self.schema} = {default}")

    # Where a graph meets C, and so Go
    def c_take(self, name: str, n: str, sub: Sub, check_input: bool = True) -> str:
        """Fills the variables for `name` from the C parameters of n; checks it if check_input."""
        return f"{name} = {n};"

    def c_give(self, name: str, n: str, sub: Sub) -> str:
        """Puts the value of `name` where the C results of n point. It does not fail."""
        return f"*{n} = {name};"

    # Block face
    def block(self) -> list[BlockField]:
        return [BlockField("", self.c, self.go)]

    def block_words(self, n: str) -> list[str]:
        """The words of tensors (cgotorch/words.h) among the fields, as C++ expressions."""
        return []

    def before_block(self, n: str) -> list[str]:
        """Statements of the thunk on which `from_block` stands."""
        return []

    def from_block(self, n: str) -> list[str]:
        return [f"b.{n}"]

    # Go face
    def go_fill(self, n: str, x: str, arg: str) -> list[str]:
        """Statements that put the Go expression x into the block's fields for n."""
        return [f"blk.{n} = {x}"]

    def go_keep(self, x: str) -> list[str]:
        """What must stay alive until the call has returned."""
        return []

    def go_option(self, default: str) -> GoOption:
        raise NotImplementedError(f"{self.schema} = {default}")

    # As a result
    def c_results(self, n: str) -> list[str]:
        return [f"{self.c} *{n}"]

    def cpp_store(self, n: str, x: str) -> str:
        return f"*{n} = {x}"

    def block_results(self) -> list[BlockField]:
        return [BlockField("", "int64_t", "int64")]

    def thunk_results(self, n: str) -> tuple[list[str], list[str], list[str]]:
        """Statements before the call, arguments, statements after success."""
        return [f"{self.c} {n};"], [f"&{n}"], [f"b.{n} = {n};"]

    def go_result(self, n: str) -> str:
        return f"blk.{n}"

    # In a Go package of its own, which has the functions of gotorch/graph
    def package_go(self) -> str:
        """The Go type as another package than gotorch writes it."""
        return re.sub(r"\b([A-Z]\w*)", r"gotorch.\1", self.go)

    def package_block(self) -> list[BlockField]:
        return self.block()

    def package_arguments(self, n: str) -> list[str]:
        """What the C function is given, where the block is *b."""
        return [e.replace("b.", "b->", 1) for e in self.from_block(n)]

    def package_held(self, n: str) -> list[str]:
        """The words of tensors among the fields, as cgotorch_held of C."""
        return []

    def package_fill(self, n: str, x: str, arg: str) -> list[str]:
        """Statements that put the Go expression x into the block's fields for n."""
        raise MissingMethodError(f"a Go package cannot have an input of type {self}")

    def package_result(self, n: str) -> PackageResult:
        """How the result n gets to Go."""
        raise MissingMethodError(f"a Go package cannot have an output of type {self}")


class TensorArg(SchemaType):
    """What the wrappers know of a tensor; TensorType adds what graphs know."""

    c, go = "Tensor", "Tensor"

    def cpp(self, n: str, written: bool = False) -> str:
        return f'in_mut({n}, "{n}")' if written else f'in({n}, "{n}")'

    def cpp_unrecorded(self, n: str) -> str:
        return f"unrecorded({n})"

    def block(self) -> list[BlockField]:
        return [BlockField("", "Word", "unsafe.Pointer")]

    def block_words(self, n: str) -> list[str]:
        return [f"b.{n}"]

    def from_block(self, n: str) -> list[str]:
        return [f'used(b.{n}, "{n}")']

    def go_fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f'blk.{n} = {x}.word(op, "{arg}")']

    def go_keep(self, x: str) -> list[str]:
        return [f"{x}.T"]

    def c_take(self, name: str, n: str, sub: Sub, check_input: bool = True) -> str:
        return f"{name} = RetainTensor({n});"

    def c_give(self, name: str, n: str, sub: Sub) -> str:
        return f"*{n} = RetainTensor({name});"

    def c_results(self, n: str) -> list[str]:
        return [f"Tensor *{n}"]

    def cpp_store(self, n: str, x: str) -> str:
        return f"out({n}, {x})"

    def block_results(self) -> list[BlockField]:
        return [BlockField("", "OutTensor", "outTensor")]

    def thunk_results(self, n: str) -> tuple[list[str], list[str], list[str]]:
        return [], [f"&b.{n}.handle"], [f"describe(b.{n});"]

    def go_result(self, n: str) -> str:
        return f"newTensor(&blk.{n}, blk.scope)"

    def package_block(self) -> list[BlockField]:
        return [BlockField("", "Tensor", "unsafe.Pointer")]

    def package_arguments(self, n: str) -> list[str]:
        return [f"b->{n}"]

    def package_held(self, n: str) -> list[str]:
        return [f"{{&b->{n}, 1}}"]

    def package_fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f"blk.{n} = graph.Word({x}, op, {arg})"]

    def package_result(self, n: str) -> PackageResult:
        return PackageResult(
            [BlockField("", "struct { Tensor handle; int64_t meta; }", "graph.Result")],
            [],
            [f"&b->{n}.handle"],
            [f"b->{n}.meta = cgotorch_meta(b->{n}.handle);"],
            f"graph.Tensor(blk.{n}, blk.Block)",
        )


class OptionalTensor(TensorArg):
    """A tensor or None; in a graph, what may turn out to be none at run time."""

    go_zero_is_default = True

    def holds(self, value: Any) -> bool:
        import torch

        return value is None or isinstance(value, torch.Tensor)

    def is_super(self, otype: Type) -> bool | None:
        return isinstance(otype, TensorArg) or None

    def values_eq(self, a: Any, b: Any) -> bool:
        if a is None or b is None:
            return a is b
        return schema_type("Tensor").values_eq(a, b)

    def values_eq_approx(self, a: Any, b: Any) -> bool:
        if a is None or b is None:
            return a is b
        return schema_type("Tensor").values_eq_approx(a, b)

    @staticmethod
    def may_share_memory(a: Any, b: Any) -> bool:
        return schema_type("Tensor").may_share_memory(a, b)

    def c_literal(self, value: Any) -> str | None:
        return "NULL" if value is None else None

    def c_declare(self, name: str, sub: Sub, check_input: bool = True) -> str:
        return f"Tensor {name};"

    def c_init(self, name: str, sub: Sub) -> str:
        return f"{name} = NULL;"

    def c_extract(self, name: str, sub: Sub, check_input: bool = True, **kwargs: Any) -> str:
        return (
            f"{name} = NULL;\nif (py_{name} != Py_None) {{\n"
            f"  {name} = pb_python->unwrap(py_{name});\n"
            f"  if ({name} == NULL) {{\n{sub['fail']}\n}}\n}}"
        )

    def c_sync(self, name: str, sub: Sub) -> str:
        return f"Py_XDECREF(py_{name});\npy_{name} = pb_python->wrap({name});"

    def c_cleanup(self, name: str, sub: Sub) -> str:
        return f"FreeTensor({name});\n{name} = NULL;"

    def c_release(self, name: str, sub: Sub) -> str:
        return self.c_cleanup(name, sub)

    def cpp(self, n: str, written: bool = False) -> str:
        return f"in_opt({n})"

    def cpp_is_default(self, n: str, default: str) -> str:
        return f"{n} == nullptr"

    def cpp_default(self, default: str) -> str:
        return "std::optional<at::Tensor>()"

    def from_block(self, n: str) -> list[str]:
        return [f'used_opt(b.{n}, "{n}")']

    def go_fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f"blk.{n} = unsafe.Pointer({x}.T)"]

    def package_fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f"blk.{n} = graph.OptWord({x}, op, {arg})"]

    def go_option(self, default: str) -> GoOption:
        return GoOption("Tensor", note="none")


class ListType(SchemaType):
    """A list: a pointer to its elements and their number, in C and in a block. In a graph the
    memory is the variable's own."""

    element = ""  # in C
    plural = ""  # in the names of the helpers that convert from and to Python
    optional = False

    def c_declare(self, name: str, sub: Sub, check_input: bool = True) -> str:
        return f"{self.element} *{name};\nint64_t {name}_len;"

    def c_init(self, name: str, sub: Sub) -> str:
        return f"{name} = NULL;\n{name}_len = 0;"

    def c_extract(self, name: str, sub: Sub, check_input: bool = True, **kwargs: Any) -> str:
        return (
            f"{self.c_init(name, sub)}\n"
            f'if (pb_{self.plural}_from(py_{name}, "{input_name(name, sub)}", '
            f"{int(self.optional)}, &{name}, &{name}_len)) {{\n{sub['fail']}\n}}"
        )

    def c_sync(self, name: str, sub: Sub) -> str:
        return f"Py_XDECREF(py_{name});\npy_{name} = pb_{self.plural}_to({name}, {name}_len);"

    def c_cleanup(self, name: str, sub: Sub) -> str:
        return f"free({name});\n{name} = NULL;"

    def c_take(self, name: str, n: str, sub: Sub, check_input: bool = True) -> str:
        return f"""{name} = NULL;
{name}_len = {n}_len;
if ({n}) {{
  {name} = ({self.element} *)malloc(({n}_len + 1) * sizeof *{name});
  if (!{name}) {{
    pb_error = cgotorch_make_error("MemoryError", "out of memory");
    {name}_len = 0;
    {sub["fail"]}
  }}
  if ({n}_len) memcpy({name}, {n}, {n}_len * sizeof *{name});
}}"""

    def c_give(self, name: str, n: str, sub: Sub) -> str:
        # The list is given away as it is.
        return f"*{n} = {name};\n*{n}_len = {name}_len;\n{self.c_init(name, sub)}"

    def c_parameters(self, n: str) -> list[str]:
        return [f"const {self.element} *{n}", f"int64_t {n}_len"]

    def c_results(self, n: str) -> list[str]:
        return [f"{self.element} **{n}", f"int64_t *{n}_len"]

    def block(self) -> list[BlockField]:
        return [
            BlockField("", f"const {self.element} *", "unsafe.Pointer"),
            BlockField("len", "int64_t", "int64"),
        ]

    def from_block(self, n: str) -> list[str]:
        return [f"b.{n}", f"b.{n}_len"]

    def _package_list(self, n: str, taken: str) -> PackageResult:
        return PackageResult(
            [BlockField("", f"struct {{ {self.element} *data; int64_t len; }}", "graph.List")],
            [],
            [f"&b->{n}.data", f"&b->{n}.len"],
            [],
            f"graph.{taken}(blk.{n})",
        )


class TensorList(ListType):
    """Tensors. In a graph an op takes them one by one; a variable of this type is one list."""

    go = "[]Tensor"
    element, plural = "Tensor", "tensors"

    def holds(self, value: Any) -> bool:
        import torch

        return isinstance(value, (list, tuple)) and all(
            isinstance(v, torch.Tensor) or (v is None and self.optional) for v in value
        )

    def values_eq(self, a: Any, b: Any) -> bool:
        one = schema_type("Tensor?")
        return len(a) == len(b) and all(map(one.values_eq, a, b))

    def values_eq_approx(self, a: Any, b: Any) -> bool:
        one = schema_type("Tensor?")
        return len(a) == len(b) and all(map(one.values_eq_approx, a, b))

    @staticmethod
    def may_share_memory(a: Any, b: Any) -> bool:
        share = schema_type("Tensor").may_share_memory
        a, b = (v if isinstance(v, (list, tuple)) else [v] for v in (a, b))
        return any(share(x, y) for x in a for y in b)

    def c_cleanup(self, name: str, sub: Sub) -> str:
        return f"FreeTensors({name}, {name}_len);\nFreeArray({name});\n{self.c_init(name, sub)}"

    def c_release(self, name: str, sub: Sub) -> str:
        return self.c_cleanup(name, sub)

    def c_support_code(self) -> Sequence[str]:
        return c_support.TENSOR_HELPERS

    def c_take(self, name: str, n: str, sub: Sub, check_input: bool = True) -> str:
        copy = super().c_take(name, n, sub, check_input)
        return f"{copy}\nfor (int64_t i = 0; i < {n}_len; i++) RetainTensor({n}[i]);"

    def cpp(self, n: str, written: bool = False) -> str:
        if self.optional:
            return f"in_opt_list({n}, {n}_len)"
        return f'in_list({n}, {n}_len, "{n}")'

    def cpp_unrecorded(self, n: str) -> str:
        return f"unrecorded({n}, {n}_len)"

    def block(self) -> list[BlockField]:
        return [
            BlockField("", "const Word *", "unsafe.Pointer"),
            BlockField("len", "int64_t", "int64"),
        ]

    def before_block(self, n: str) -> list[str]:
        optional = ", true" if self.optional else ""
        return [f'const UsedList {n}(b.{n}, b.{n}_len, "{n}"{optional});']

    def from_block(self, n: str) -> list[str]:
        return [f"{n}.data()", f"{n}.size()"]

    def go_fill(self, n: str, x: str, arg: str) -> list[str]:
        if self.optional:
            return [f"blk.{n}, blk.{n}Len = optWords({x})"]
        return [f'blk.{n}, blk.{n}Len = words({x}, op, "{arg}")']

    def go_keep(self, x: str) -> list[str]:
        return [f"unsafe.SliceData({x})"]

    def cpp_store(self, n: str, x: str) -> str:
        return f"out_list({n}, {n}_len, {x})"

    def block_results(self) -> list[BlockField]:
        return [BlockField("", "OutTensors", "outTensors")]

    def thunk_results(self, n: str) -> tuple[list[str], list[str], list[str]]:
        return (
            [f"Tensor *{n};", f"int64_t {n}_len;"],
            [f"&{n}", f"&{n}_len"],
            [f"describe(b.{n}, {n}, {n}_len);"],
        )

    def go_result(self, n: str) -> str:
        return f"newTensors(&blk.{n}, blk.scope)"

    def package_block(self) -> list[BlockField]:
        return ListType.block(self)

    def package_arguments(self, n: str) -> list[str]:
        return [f"b->{n}", f"b->{n}_len"]

    def package_held(self, n: str) -> list[str]:
        return [f"{{(Tensor *)b->{n}, b->{n}_len}}"]

    def package_fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f"blk.{n}, blk.{n}Len = graph.Words({x}, op, {arg})"]

    def package_result(self, n: str) -> PackageResult:
        return self._package_list(n, "Tensors")


class OptionalTensorList(TensorList):
    optional = True

    def package_fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f"blk.{n}, blk.{n}Len = graph.OptWords({x}, op, {arg})"]


class Plain(SchemaType):
    """A C value without anything to free. `kind` names its conversions in c_support."""

    kind = ""

    def c_declare(self, name: str, sub: Sub, check_input: bool = True) -> str:
        return f"{self.c} {name};"

    def c_extract(self, name: str, sub: Sub, check_input: bool = True, **kwargs: Any) -> str:
        return (
            f'if (pb_{self.kind}_from(py_{name}, "{input_name(name, sub)}", &{name})) {{\n'
            f"{sub['fail']}\n}}"
        )

    def c_sync(self, name: str, sub: Sub) -> str:
        return f"Py_XDECREF(py_{name});\npy_{name} = pb_{self.kind}_to({name});"

    def c_element_type(self) -> str:
        return self.c


class Number(Plain):
    """int, SymInt, DeviceIndex, float and bool."""

    def __init__(self, schema: str, c: str, go: str, cpp: str = "{}", result: str = "{}") -> None:
        super().__init__(schema)
        self.c, self.go, self._cpp, self._result = c, go, cpp, result
        self.kind = {"int64_t": "int", "double": "float", "bool": "bool"}[c]

    def holds(self, value: Any) -> bool:
        return holds_number(self.kind, value)

    def convert(self, value: Any, allow_downcast: bool | None) -> Any:
        return convert_number(self, self.kind, value, allow_downcast)

    def values_eq_approx(self, a: Any, b: Any) -> bool:
        return close(a, b)

    def c_literal(self, value: Any) -> str | None:
        return number_literal(self.kind, value)

    def cpp(self, n: str, written: bool = False) -> str:
        return self._cpp.format(n)

    def literal(self, default: str) -> str:
        return {"True": "true", "False": "false"}.get(default, REDUCTIONS.get(default, default))

    def cpp_is_default(self, n: str, default: str) -> str:
        return f"{n} == {self.literal(default)}"

    def cpp_default(self, default: str) -> str:
        return self._cpp.format(self.literal(default))

    def block(self) -> list[BlockField]:
        if self.c == "double":
            return [BlockField("", "double", "float64")]
        return [BlockField("", "int64_t", "int64")]

    def from_block(self, n: str) -> list[str]:
        return [f"b.{n} != 0" if self.c == "bool" else f"b.{n}"]

    def go_fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f"blk.{n} = boolInt({x})" if self.go == "bool" else f"blk.{n} = {x}"]

    def go_option(self, default: str) -> GoOption:
        literal = self.literal(default)
        if literal in ("false", "0", "0.0"):
            return GoOption(self.go)
        return GoOption(f"*{self.go}", default=literal, note=literal)

    def cpp_store(self, n: str, x: str) -> str:
        return f"*{n} = {self._result.format(x)}"

    def block_results(self) -> list[BlockField]:
        if self.c == "double":
            return [BlockField("", "double", "float64")]
        return [BlockField("", "int64_t", "int64")]

    def go_result(self, n: str) -> str:
        return f"blk.{n} != 0" if self.go == "bool" else f"blk.{n}"

    def package_fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f"blk.{n} = graph.Bool({x})" if self.go == "bool" else f"blk.{n} = {x}"]

    def package_result(self, n: str) -> PackageResult:
        if self.go != "bool":
            return PackageResult(self.block(), [], [f"&b->{n}"], [], f"blk.{n}")
        after = [f"b->{n} = {n};"]
        return PackageResult(self.block(), [f"bool {n};"], [f"&{n}"], after, f"blk.{n} != 0")


class OptionalNumber(SchemaType):
    """int?, float?, bool?: a pointer in C and in Go."""

    go_zero_is_default = True

    def __init__(self, schema: str, c: str, go: str, cpp: str) -> None:
        super().__init__(schema)
        self.number, self.go, self._cpp = c, f"*{go}", cpp
        self.c = f"const {c} *"
        self.kind = {"int64_t": "int", "double": "float", "bool": "bool"}[c]

    def holds(self, value: Any) -> bool:
        return value is None or holds_number(self.kind, value)

    def convert(self, value: Any, allow_downcast: bool | None) -> Any:
        return convert_number(self, self.kind, value, allow_downcast)

    def is_super(self, otype: Type) -> bool | None:
        return self == otype or otype == schema_type(self.kind) or None

    def c_literal(self, value: Any) -> str | None:
        if value is None:
            return "NULL"
        return f"&(const {self.number}){{{number_literal(self.kind, value)}}}"

    def c_declare(self, name: str, sub: Sub, check_input: bool = True) -> str:
        return f"{self.number} {name}_value;\n{self.c}{name};"

    def c_init(self, name: str, sub: Sub) -> str:
        return f"{name}_value = 0;\n{name} = NULL;"

    def c_extract(self, name: str, sub: Sub, check_input: bool = True, **kwargs: Any) -> str:
        return (
            f"{self.c_init(name, sub)}\nif (py_{name} != Py_None) {{\n"
            f'if (pb_{self.kind}_from(py_{name}, "{input_name(name, sub)}", &{name}_value)) {{\n'
            f"{sub['fail']}\n}}\n{name} = &{name}_value;\n}}"
        )

    def c_sync(self, name: str, sub: Sub) -> str:
        return (
            f"Py_XDECREF(py_{name});\n"
            f"py_{name} = {name} ? pb_{self.kind}_to(*{name}) : Py_NewRef(Py_None);"
        )

    def c_take(self, name: str, n: str, sub: Sub, check_input: bool = True) -> str:
        return f"{name} = NULL;\nif ({n}) {{\n{name}_value = *{n};\n{name} = &{name}_value;\n}}"

    def cpp(self, n: str, written: bool = False) -> str:
        return f"{self._cpp}({n})"

    def cpp_is_default(self, n: str, default: str) -> str:
        if default == "None":
            return f"{n} == nullptr"
        return f"({n} != nullptr && *{n} == {default.lower()})"

    def cpp_default(self, default: str) -> str:
        return "std::nullopt" if default == "None" else default.lower()

    def block(self) -> list[BlockField]:
        return [BlockField("", self.c, "unsafe.Pointer")]

    def go_fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f"blk.{n} = unsafe.Pointer({x})"]

    def package_fill(self, n: str, x: str, arg: str) -> list[str]:
        return self.go_fill(n, x, arg)

    def go_option(self, default: str) -> GoOption:
        if default in ("None", "0", "False"):
            # Where the schema says `int? size=0` or `bool? pin_memory=False`, none means the same.
            return GoOption(self.go, note="none")
        raise NotImplementedError(f"{self.schema} = {default}")


class NumberList(ListType):
    """int[], SymInt[], float[] and their fixed-size and optional forms."""

    def __init__(self, schema: str, c: str, go: str, cpp: str, size: int, optional: bool) -> None:
        super().__init__(schema)
        self.element, self.size, self.optional, self._cpp = c, size, optional, cpp
        self.go = f"[]{go}"
        self.go_element = go
        self.kind = {"int64_t": "int", "double": "float"}[c]
        self.plural = f"{self.kind}s"

    def holds(self, value: Any) -> bool:
        if value is None:
            return self.optional
        return isinstance(value, (list, tuple)) and all(holds_number(self.kind, v) for v in value)

    def convert(self, value: Any, allow_downcast: bool | None) -> Any:
        if self.size and isinstance(value, (int, float)):
            return [convert_number(self, self.kind, value, allow_downcast)] * self.size
        if not isinstance(value, (list, tuple)):
            raise self.refusal(value)
        return [convert_number(self, self.kind, v, allow_downcast) for v in value]

    def c_literal(self, value: Any) -> str | None:
        if value is None:
            return "NULL, 0"
        if not value:
            # A pointer that is not NULL: an empty list is not none.
            return f"(const {self.element}[]){{0}}, 0"
        values = ", ".join(number_literal(self.kind, v) for v in value)
        return f"(const {self.element}[]){{{values}}}, {len(value)}"

    def c_element_type(self) -> str:
        return self.element

    def cpp(self, n: str, written: bool = False) -> str:
        return f"{self._cpp}({n}, {n}_len)"

    def values(self, default: str) -> list[str]:
        if default.startswith("["):
            return [str(v) for v in ast.literal_eval(default)]
        return [default] * max(self.size, 1)

    def cpp_is_default(self, n: str, default: str) -> str:
        if default == "None":
            return f"{n} == nullptr"
        values = self.values(default)
        conditions = [f"{n}_len == {len(values)}"]
        conditions += [f"{n}[{i}] == {v}" for i, v in enumerate(values)]
        return "(" + " && ".join(conditions) + ")"

    def cpp_default(self, default: str) -> str:
        if default == "None":
            return "std::nullopt"
        if "SymInt" in self.schema:
            values = ", ".join(f"c10::SymInt({v})" for v in self.values(default))
            return f"c10::SymIntArrayRef({{{values}}})"
        return f"c10::ArrayRef<{self.element}>({{{', '.join(self.values(default))}}})"

    def go_fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f"blk.{n}, blk.{n}Len = unsafe.Pointer(unsafe.SliceData({x})), int64(len({x}))"]

    def package_fill(self, n: str, x: str, arg: str) -> list[str]:
        return self.go_fill(n, x, arg)

    def package_result(self, n: str) -> PackageResult:
        return self._package_list(n, "TakeInts" if self.kind == "int" else "TakeFloats")

    def go_option(self, default: str) -> GoOption:
        if default == "None" or not self.values(default):
            return GoOption(self.go, note="none" if default == "None" else "")
        values = ", ".join(self.values(default))
        return GoOption(self.go, default=f"{self.go}{{{values}}}", zero="nil", note=f"[{values}]")


class BoolArray(SchemaType):
    """bool[N]: a Go array."""

    def __init__(self, schema: str, size: int) -> None:
        super().__init__(schema)
        self.size = size
        self.c, self.go = "const bool *", f"[{size}]bool"

    def holds(self, value: Any) -> bool:
        return (
            isinstance(value, (list, tuple))
            and len(value) == self.size
            and all(isinstance(v, bool) for v in value)
        )

    def c_literal(self, value: Any) -> str | None:
        return f"(const bool[]){{{', '.join(str(v).lower() for v in value)}}}"

    def c_declare(self, name: str, sub: Sub, check_input: bool = True) -> str:
        return f"bool {name}[{self.size}];"

    def c_init(self, name: str, sub: Sub) -> str:
        return f"memset({name}, 0, sizeof {name});"

    def c_extract(self, name: str, sub: Sub, check_input: bool = True, **kwargs: Any) -> str:
        return (
            f'if (pb_bools_from(py_{name}, "{input_name(name, sub)}", {self.size}, {name})) {{\n'
            f"{sub['fail']}\n}}"
        )

    def c_sync(self, name: str, sub: Sub) -> str:
        return f"Py_XDECREF(py_{name});\npy_{name} = pb_bools_to({name}, {self.size});"

    def c_element_type(self) -> str:
        return "bool"

    def c_take(self, name: str, n: str, sub: Sub, check_input: bool = True) -> str:
        return f"memcpy({name}, {n}, sizeof {name});"

    def cpp(self, n: str, written: bool = False) -> str:
        return f'bools<{self.size}>({n}, "{n}")'

    def block(self) -> list[BlockField]:
        return [BlockField("", "const bool *", "unsafe.Pointer")]

    def go_fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f"blk.{n} = unsafe.Pointer(&{x})"]


class ScalarArg(Plain):
    c, go = "Scalar", "Scalar"
    go_zero_is_default = True  # nil
    kind = "scalar"

    def holds(self, value: Any) -> bool:
        return isinstance(value, (bool, int, float, complex))

    def convert(self, value: Any, allow_downcast: bool | None) -> Any:
        number = item(value)
        if not isinstance(number, (bool, int, float, complex)):
            raise self.refusal(value)
        return number

    def is_super(self, otype: Type) -> bool | None:
        return self == otype or isinstance(otype, Number) or None

    def values_eq(self, a: Any, b: Any) -> bool:
        return type(a) is type(b) and a == b

    def values_eq_approx(self, a: Any, b: Any) -> bool:
        return type(a) is type(b) and close(a, b)

    def c_literal(self, value: Any) -> str | None:
        return scalar_literal(value)

    def c_init(self, name: str, sub: Sub) -> str:
        return f"memset(&{name}, 0, sizeof {name});"

    def cpp(self, n: str, written: bool = False) -> str:
        return f"scalar({n})"

    def _literal(self, default: str) -> tuple[str, str]:
        if default in ("True", "False"):
            return "Bool", str(int(default == "True"))
        return ("Float", default) if re.search(r"[.e]", default) else ("Int", default)

    def cpp_is_default(self, n: str, default: str) -> str:
        _, value = self._literal(default)
        return f"(scalar({n}).to<double>() == {value})"

    def cpp_default(self, default: str) -> str:
        return f"at::Scalar({self._literal(default)[1]})"

    def block(self) -> list[BlockField]:
        return [BlockField("", "Scalar", "cScalar")]

    def go_fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f'blk.{n} = makeScalar({x}, op, "{arg}")']

    def go_option(self, default: str) -> GoOption:
        _, value = self._literal(default)
        return GoOption("Scalar", default=value, zero="nil", note=value)

    def cpp_store(self, n: str, x: str) -> str:
        return f"*{n} = from_scalar({x})"

    def block_results(self) -> list[BlockField]:
        return [BlockField("", "Scalar", "cScalar")]

    def go_result(self, n: str) -> str:
        return f"blk.{n}.value()"

    def package_block(self) -> list[BlockField]:
        return [BlockField("", "Scalar", "graph.Number")]

    def package_fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f"blk.{n} = graph.Scalar({x}, op, {arg})"]

    def package_result(self, n: str) -> PackageResult:
        return PackageResult(self.package_block(), [], [f"&b->{n}"], [], f"graph.ScalarOf(blk.{n})")


class OptionalScalar(ScalarArg):
    c = "const Scalar *"

    def holds(self, value: Any) -> bool:
        return value is None or super().holds(value)

    def c_literal(self, value: Any) -> str | None:
        return "NULL" if value is None else f"&(const Scalar){scalar_literal(value, bare=True)}"

    def c_declare(self, name: str, sub: Sub, check_input: bool = True) -> str:
        return f"Scalar {name}_value;\nconst Scalar *{name};"

    def c_init(self, name: str, sub: Sub) -> str:
        return f"memset(&{name}_value, 0, sizeof {name}_value);\n{name} = NULL;"

    def c_extract(self, name: str, sub: Sub, check_input: bool = True, **kwargs: Any) -> str:
        return (
            f"{self.c_init(name, sub)}\nif (py_{name} != Py_None) {{\n"
            f'if (pb_scalar_from(py_{name}, "{input_name(name, sub)}", &{name}_value)) {{\n'
            f"{sub['fail']}\n}}\n{name} = &{name}_value;\n}}"
        )

    def c_sync(self, name: str, sub: Sub) -> str:
        return (
            f"Py_XDECREF(py_{name});\n"
            f"py_{name} = {name} ? pb_scalar_to(*{name}) : Py_NewRef(Py_None);"
        )

    def c_take(self, name: str, n: str, sub: Sub, check_input: bool = True) -> str:
        return f"{name} = NULL;\nif ({n}) {{\n{name}_value = *{n};\n{name} = &{name}_value;\n}}"

    def cpp(self, n: str, written: bool = False) -> str:
        return f"scalar_opt({n})"

    def cpp_is_default(self, n: str, default: str) -> str:
        return f"{n} == nullptr"

    def cpp_default(self, default: str) -> str:
        return "std::optional<at::Scalar>()"

    def from_block(self, n: str) -> list[str]:
        return [f"b.{n}.kind == ScalarNone ? nullptr : &b.{n}"]

    def package_fill(self, n: str, x: str, arg: str) -> list[str]:
        return SchemaType.package_fill(self, n, x, arg)

    def package_result(self, n: str) -> PackageResult:
        return SchemaType.package_result(self, n)

    def go_fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f'blk.{n} = optScalar({x}, op, "{arg}")']

    def go_option(self, default: str) -> GoOption:
        return GoOption("Scalar", note="none")


class ScalarList(ListType):
    go = "[]Scalar"
    element, plural = "Scalar", "scalars"

    def holds(self, value: Any) -> bool:
        return isinstance(value, (list, tuple)) and all(
            isinstance(v, (bool, int, float, complex)) for v in value
        )

    def c_literal(self, value: Any) -> str | None:
        if not value:
            return "(const Scalar[]){{0}}, 0"
        values = ", ".join(scalar_literal(v, bare=True) for v in value)
        return f"(const Scalar[]){{{values}}}, {len(value)}"

    def cpp(self, n: str, written: bool = False) -> str:
        return f"scalars({n}, {n}_len)"

    def go_fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f'blk.{n}, blk.{n}Len = makeScalars({x}, op, "{arg}")']


class Enum(SchemaType):
    """ScalarType, Layout, MemoryFormat and Device: small values whose zero in Go means "unset".

    In a block they travel as Go has them; the thunk decodes.
    """

    def __init__(self, schema: str, go: str, function: str) -> None:
        super().__init__(schema)
        self.optional = schema.endswith("?")
        self.plain = schema.rstrip("?")
        self.c = f"const {self.plain} *" if self.optional else self.plain
        self.go, self.function = go, function
        self.go_zero_is_default = self.optional

    def holds(self, value: Any) -> bool:
        import torch

        kinds = {
            "ScalarType": torch.dtype,
            "Layout": torch.layout,
            "MemoryFormat": torch.memory_format,
            "Device": torch.device,
        }
        return isinstance(value, kinds[self.plain]) or (value is None and self.optional)

    def convert(self, value: Any, allow_downcast: bool | None) -> Any:
        import torch

        try:
            if self.plain == "ScalarType" and value is not None:
                return getattr(torch, dtype_name(value))
            if self.plain == "Device" and isinstance(value, str):
                return torch.device(value)
            if self.plain == "Layout" and value in LAYOUTS:
                return getattr(torch, value)
            if self.plain == "MemoryFormat" and value in MEMORY_FORMATS:
                return getattr(torch, value)
        except (ValueError, RuntimeError) as e:
            raise self.refusal(value, f": {e}") from None
        raise self.refusal(value)

    def is_super(self, otype: Type) -> bool | None:
        plain = isinstance(otype, Enum) and self.plain == otype.plain
        return self == otype or (self.optional and plain) or None

    def c_literal(self, value: Any) -> str | None:
        if value is None:
            return "NULL"
        if self.plain == "Device":
            kind, index = device_parts(value)
            number = f"{{{DEVICES[kind]}, {index}}}"
            return f"{'&' if self.optional else ''}(const Device){number}"
        table = {"ScalarType": DTYPES, "Layout": LAYOUTS, "MemoryFormat": MEMORY_FORMATS}
        literal = str(table[self.plain][str(value).removeprefix("torch.")])
        return f"&(const {self.plain}){{{literal}}}" if self.optional else literal

    def c_declare(self, name: str, sub: Sub, check_input: bool = True) -> str:
        if self.optional:
            return f"{self.plain} {name}_value;\n{self.c}{name};"
        return f"{self.plain} {name};"

    def c_init(self, name: str, sub: Sub) -> str:
        if self.optional:
            return f"memset(&{name}_value, 0, sizeof {name}_value);\n{name} = NULL;"
        return f"memset(&{name}, 0, sizeof {name});"

    def c_extract(self, name: str, sub: Sub, check_input: bool = True, **kwargs: Any) -> str:
        target = f"{name}_value" if self.optional else name
        code = (
            f'if (pb_{self.function}_from(py_{name}, "{input_name(name, sub)}", &{target})) {{\n'
            f"{sub['fail']}\n}}"
        )
        if not self.optional:
            return code
        return (
            f"{self.c_init(name, sub)}\nif (py_{name} != Py_None) {{\n{code}\n"
            f"{name} = &{name}_value;\n}}"
        )

    def c_sync(self, name: str, sub: Sub) -> str:
        value = f"pb_{self.function}_to({'*' if self.optional else ''}{name})"
        if self.optional:
            value = f"{name} ? {value} : Py_NewRef(Py_None)"
        return f"Py_XDECREF(py_{name});\npy_{name} = {value};"

    def c_support_code(self) -> Sequence[str]:
        return c_support.ENUM_HELPERS

    def c_element_type(self) -> str:
        return self.plain

    def c_take(self, name: str, n: str, sub: Sub, check_input: bool = True) -> str:
        if self.optional:
            found = f"{name}_value = *{n};\n{name} = &{name}_value;"
            return f"{name} = NULL;\nif ({n}) {{\n{found}\n}}"
        return super().c_take(name, n, sub)

    def cpp(self, n: str, written: bool = False) -> str:
        return f"{self.function}{'_opt' if self.optional else ''}({n})"

    def cpp_is_default(self, n: str, default: str) -> str:
        if default == "None":
            return f"{n} == nullptr"
        value = ENUM_DEFAULTS[default][0]
        if self.optional:
            return f"({n} != nullptr && {self.function}(*{n}) == {value})"
        return f"{self.function}({n}) == {value}"

    def cpp_default(self, default: str) -> str:
        return "std::nullopt" if default == "None" else ENUM_DEFAULTS[default][0]

    def block(self) -> list[BlockField]:
        return [BlockField("", "int64_t", "int64")]

    def from_block(self, n: str) -> list[str]:
        if self.optional:
            return [f"Opt{self.plain}(b.{n}).get()"]
        return [f"go_{self.function}(b.{n})"]

    def go_fill(self, n: str, x: str, arg: str) -> list[str]:
        if self.optional:
            return [f"blk.{n} = int64({x})"]
        return [f'blk.{n} = {x}.required(op, "{arg}")']

    def go_option(self, default: str) -> GoOption:
        if default == "None":
            return GoOption(self.go, note="none")
        name = ENUM_DEFAULTS[default][1]
        return GoOption(self.go, default=name, zero="0", note=name)

    def cpp_store(self, n: str, x: str) -> str:
        return f"*{n} = static_cast<{self.plain}>({x})"

    def thunk_results(self, n: str) -> tuple[list[str], list[str], list[str]]:
        return [f"{self.plain} {n};"], [f"&{n}"], [f"b.{n} = {n} + 1;"]

    def go_result(self, n: str) -> str:
        return f"{self.go}(blk.{n})"


class String(SchemaType):
    c = "const char *"

    def __init__(self, schema: str) -> None:
        super().__init__(schema)
        self.optional = schema.endswith("?")
        self.go = "*string" if self.optional else "string"
        self.go_zero_is_default = self.optional

    def holds(self, value: Any) -> bool:
        return isinstance(value, str) or (value is None and self.optional)

    def is_super(self, otype: Type) -> bool | None:
        return self == otype or (self.optional and isinstance(otype, String)) or None

    def c_literal(self, value: Any) -> str | None:
        if value is None:
            return "NULL"
        text = "".join(
            chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}"
            for b in value.encode()
        )
        return f'"{text}"'

    def c_declare(self, name: str, sub: Sub, check_input: bool = True) -> str:
        return f"const char *{name};"

    def c_init(self, name: str, sub: Sub) -> str:
        return f"{name} = NULL;"

    def c_extract(self, name: str, sub: Sub, check_input: bool = True, **kwargs: Any) -> str:
        return (
            f'if (pb_str_from(py_{name}, "{input_name(name, sub)}", {int(self.optional)}, '
            f"&{name})) {{\n{sub['fail']}\n}}"
        )

    def c_sync(self, name: str, sub: Sub) -> str:
        return (
            f"Py_XDECREF(py_{name});\n"
            f"py_{name} = {name} ? PyUnicode_FromString({name}) : Py_NewRef(Py_None);"
        )

    def cpp(self, n: str, written: bool = False) -> str:
        return f"str_opt({n})" if self.optional else f'str({n}, "{n}")'

    def _quoted(self, default: str) -> str:
        text = ast.literal_eval(default)
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    def cpp_is_default(self, n: str, default: str) -> str:
        if default == "None":
            return f"{n} == nullptr"
        return f'str({n}, "{n}") == {self._quoted(default)}'

    def cpp_default(self, default: str) -> str:
        return "std::nullopt" if default == "None" else self._quoted(default)

    def block(self) -> list[BlockField]:
        return [BlockField("", self.c, "unsafe.Pointer")]

    def go_fill(self, n: str, x: str, arg: str) -> list[str]:
        function = "optString" if self.optional else "cString"
        return [f'blk.{n} = {function}({x}, op, "{arg}")']

    def package_fill(self, n: str, x: str, arg: str) -> list[str]:
        if self.optional:
            return super().package_fill(n, x, arg)
        return [f"blk.{n} = graph.CString({x}, op, {arg})"]

    def package_result(self, n: str) -> PackageResult:
        if self.optional:
            return super().package_result(n)
        return PackageResult(self.block(), [], [f"&b->{n}"], [], f"C.GoString((*C.char)(blk.{n}))")

    def go_option(self, default: str) -> GoOption:
        if default == "None":
            return GoOption("*string", note="none")
        quoted = self._quoted(default)
        return GoOption("string", default=quoted, zero='""', note=quoted)


class Handle(SchemaType):
    """Generator, Storage: opaque handles; Stream: a small struct."""

    def __init__(self, schema: str, function: str) -> None:
        super().__init__(schema)
        self.c = schema.rstrip("?")
        self.go = f"*{self.c}"
        self.function = function
        self.go_zero_is_default = schema.endswith("?")

    def holds(self, value: Any) -> bool:
        import torch

        kind = torch.Generator if self.c == "Generator" else torch.UntypedStorage
        return isinstance(value, kind) or (value is None and self.go_zero_is_default)

    def c_literal(self, value: Any) -> str | None:
        return "NULL" if value is None else None

    def cpp(self, n: str, written: bool = False) -> str:
        return (
            f"{self.function}({n})" if self.go_zero_is_default else f'{self.function}({n}, "{n}")'
        )

    def cpp_is_default(self, n: str, default: str) -> str:
        return f"{n} == nullptr"

    def cpp_default(self, default: str) -> str:
        return "std::nullopt"

    def block(self) -> list[BlockField]:
        return [BlockField("", self.c, "unsafe.Pointer")]

    def go_fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f'blk.{n} = {x}.handle(op, "{arg}")']

    def go_keep(self, x: str) -> list[str]:
        return [x]

    def go_option(self, default: str) -> GoOption:
        return GoOption(self.go, note="the default one")


class StreamArg(Plain):
    c, go = "Stream", "Stream"
    kind = "stream"

    def holds(self, value: Any) -> bool:
        import torch

        return isinstance(value, torch.Stream)

    def c_init(self, name: str, sub: Sub) -> str:
        return f"memset(&{name}, 0, sizeof {name});"

    def c_literal(self, value: Any) -> str | None:
        return (
            f"(const Stream){{INT64_C({value.stream_id}), INT64_C({value.device_index}), "
            f"INT64_C({value.device_type})}}"
        )

    def cpp(self, n: str, written: bool = False) -> str:
        return f"stream({n})"

    def block(self) -> list[BlockField]:
        return [BlockField("", "Stream", "Stream")]


def describe(value: Any) -> str:
    """A short picture of a value for a message."""
    kind = type(value).__qualname__
    of = getattr(value, "type", None)
    if isinstance(of, Type):
        return f"the variable {value} of type {of}"
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"a {kind} of {getattr(value, 'dtype', '?')} and shape {tuple(shape)}"
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} (of type {kind})"


def input_name(name: str, sub: Sub) -> str:
    """The name to use for a variable in messages of C: its own, where the linker passes it."""
    return sub.get("variable", name).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")


def item(value: Any) -> Any:
    """The Python number of a NumPy or torch scalar; anything else as it is."""
    if type(value).__module__.partition(".")[0] in ("numpy", "torch"):
        try:
            return value.item()
        except (AttributeError, ValueError, RuntimeError, TypeError):
            return value
    return value


def holds_number(kind: str, value: Any) -> bool:
    if kind == "int":
        return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
    return isinstance(value, float if kind == "float" else bool)


def convert_number(t: SchemaType, kind: str, value: Any, allow_downcast: bool | None) -> Any:
    """The Python number of this kind that is equal to value; with allow_downcast the nearest."""
    number = item(value)
    if not isinstance(number, (bool, int, float)):
        raise t.refusal(value)
    try:
        converted: Any = {"int": int, "float": float, "bool": bool}[kind](number)
    except (ValueError, OverflowError) as e:
        raise t.refusal(value, f": {e}") from None
    if kind == "int" and not -(2**63) <= converted < 2**63:
        raise t.refusal(value, ", which has more than 64 bits")
    same = converted == number or (number != number and converted != converted)
    if not same and not allow_downcast:
        raise t.refusal(value, f": it would become {converted!r}, which takes allow_downcast=True")
    return converted


def close(a: Any, b: Any, tolerance: float = 1e-7) -> bool:
    """Whether two numbers are equal up to rounding; nan is nan, and inf only inf."""
    if isinstance(a, complex) or isinstance(b, complex):
        a, b = complex(a), complex(b)
        return close(a.real, b.real, tolerance) and close(a.imag, b.imag, tolerance)
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return (math.isnan(a) and math.isnan(b)) or math.isclose(
        a, b, rel_tol=tolerance, abs_tol=tolerance * 1e-3
    )


def number_literal(kind: str, value: Any) -> str:
    """A Python number in C."""
    if kind == "bool":
        return "true" if value else "false"
    if kind == "int":
        # -2**63 has no literal of its own.
        return "INT64_MIN" if value == -(2**63) else f"INT64_C({int(value)})"
    if math.isnan(value):
        return "(double)NAN"
    if math.isinf(value):
        return "(double)INFINITY" if value > 0 else "-(double)INFINITY"
    return float(value).hex()


def scalar_literal(value: Any, bare: bool = False) -> str:
    """A Python number as a Scalar in C; `bare` leaves the type out, for an array's element."""
    if isinstance(value, bool):
        text = f"{{ScalarBool, {{{int(value)}}}}}"
    elif isinstance(value, int):
        if value >= 2**63:
            text = f"{{ScalarUInt, {{(int64_t)UINT64_C({value})}}}}"
        else:
            text = f"{{ScalarInt, {{{number_literal('int', value)}}}}}"
    elif isinstance(value, complex):
        parts = ", ".join(number_literal("float", v) for v in (value.real, value.imag))
        text = f"{{ScalarComplex, {{.c = {{{parts}}}}}}}"
    else:
        text = f"{{ScalarFloat, {{.f = {number_literal('float', value)}}}}}"
    return text if bare else f"(Scalar){text}"


@cache
def _simple() -> dict[str, SchemaType]:
    from .tensor import TensorType

    types: list[SchemaType] = [
        TensorType(),
        OptionalTensor("Tensor?"),
        TensorList("Tensor[]"),
        OptionalTensorList("Tensor?[]"),
        Number("int", "int64_t", "int64"),
        Number("SymInt", "int64_t", "int64", "c10::SymInt({})", "{}.expect_int()"),
        Number("DeviceIndex", "int64_t", "int64", "device_index({})"),
        Number("float", "double", "float64"),
        Number("bool", "bool", "bool"),
        Number("SymBool", "bool", "bool", "{}", "{}.expect_bool()"),
        Number("QScheme", "int64_t", "int64", "{}", "static_cast<int64_t>({})"),
        OptionalNumber("int?", "int64_t", "int64", "opt"),
        OptionalNumber("SymInt?", "int64_t", "int64", "symint_opt"),
        OptionalNumber("float?", "double", "float64", "opt"),
        OptionalNumber("bool?", "bool", "bool", "opt"),
        ScalarArg("Scalar"),
        OptionalScalar("Scalar?"),
        ScalarList("Scalar[]"),
        String("str"),
        String("str?"),
        Handle("Generator?", "generator_opt"),
        Handle("Generator", "generator"),
        Handle("Storage", "storage"),
        StreamArg("Stream"),
    ]
    for name, go, function in (
        ("ScalarType", "DType", "dtype"),
        ("Layout", "Layout", "layout"),
        ("MemoryFormat", "MemoryFormat", "memory_format"),
        ("Device", "Device", "device"),
    ):
        types += [Enum(name, go, function), Enum(f"{name}?", go, function)]
    return {t.schema: t for t in types}


_LIST = re.compile(r"(int|SymInt|float|bool)\[(\d*)\](\??)$")


def schema_type(schema: str) -> SchemaType:
    """The type for a schema spelling such as "Tensor?" or "int[2]", or LookupError."""
    return _parsed(schema)


@cache
def _parsed(schema: str) -> SchemaType:
    simple = _simple().get(schema)
    if simple is not None:
        return simple
    found = _LIST.match(schema)
    if found is None:
        raise LookupError(f"schema type {schema!r} has no class in pytorch_bridge.types")
    element, size, optional = found[1], int(found[2] or 0), bool(found[3])
    if element == "bool":
        if not size or optional:
            raise LookupError(f"schema type {schema!r} has no class in pytorch_bridge.types")
        return BoolArray(schema, size)
    c, go, cpp = {
        "int": ("int64_t", "int64", "ints"),
        "SymInt": ("int64_t", "int64", "symints"),
        "float": ("double", "float64", "floats"),
    }[element]
    return NumberList(schema, c, go, cpp + ("_opt" if optional else ""), size, optional)
