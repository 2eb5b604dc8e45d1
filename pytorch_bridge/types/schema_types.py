"""One class per type of PyTorch's schema language.

A class knows, for a value called `name`:

- its C face: the parameters of the C function (`c_parameters`) and the C++ expression that ATen is
  given for them (`cpp`);
- its block face: the eight-byte fields through which Go hands it over (`block`), and how the C
  thunk reads the C parameters from them (`from_block`);
- its Go face: the parameter type (`go`), the statements that fill the block (`go_fill`), and the
  field of an options struct where the schema has a default (`go_option`);
- its face as a result: `c_results`, `cpp_store`, `go_result`.

`schema_type("int[2]")` gives the instance for a schema spelling.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache

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


class SchemaType:
    """A type of the schema language. Subclasses fill in the faces."""

    c = ""  # the C type of the single parameter
    go = ""  # the Go type
    go_zero_is_default = False  # the zero Go value is not a legal value: it can mean "left out"

    def __init__(self, schema: str) -> None:
        self.schema = schema

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.schema!r})"

    # C face
    def c_parameters(self, n: str) -> list[str]:
        return [f"{self.c}{n}" if self.c.endswith("*") else f"{self.c} {n}"]

    def cpp(self, n: str, written: bool = False) -> str:
        return n

    def cpp_is_default(self, n: str, default: str) -> str:
        """A C++ condition: does the C parameter have the schema's default?"""
        raise NotImplementedError(f"{self.schema} = {default}")

    def cpp_default(self, default: str) -> str:
        """The C++ expression of the schema's default, for an argument that C does not have."""
        raise NotImplementedError(f"{self.schema} = {default}")

    # Block face
    def block(self) -> list[BlockField]:
        return [BlockField("", self.c, self.go)]

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


class TensorArg(SchemaType):
    c, go = "Tensor", "Tensor"

    def cpp(self, n: str, written: bool = False) -> str:
        return f'in_mut({n}, "{n}")' if written else f'in({n}, "{n}")'

    def block(self) -> list[BlockField]:
        return [BlockField("", "Tensor", "unsafe.Pointer")]

    def go_fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f'blk.{n} = {x}.handle(op, "{arg}")']

    def go_keep(self, x: str) -> list[str]:
        return [f"{x}.T"]

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


class OptionalTensor(TensorArg):
    go_zero_is_default = True

    def cpp(self, n: str, written: bool = False) -> str:
        return f"in_opt({n})"

    def cpp_is_default(self, n: str, default: str) -> str:
        return f"{n} == nullptr"

    def cpp_default(self, default: str) -> str:
        return "std::optional<at::Tensor>()"

    def go_fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f'blk.{n} = {x}.optHandle(op, "{arg}")']

    def go_option(self, default: str) -> GoOption:
        return GoOption("Tensor", note="none")


class TensorList(SchemaType):
    go = "[]Tensor"
    optional = False

    def c_parameters(self, n: str) -> list[str]:
        return [f"const Tensor *{n}", f"int64_t {n}_len"]

    def cpp(self, n: str, written: bool = False) -> str:
        if self.optional:
            return f"in_opt_list({n}, {n}_len)"
        return f'in_list({n}, {n}_len, "{n}")'

    def block(self) -> list[BlockField]:
        return [
            BlockField("", "const Tensor *", "unsafe.Pointer"),
            BlockField("len", "int64_t", "int64"),
        ]

    def from_block(self, n: str) -> list[str]:
        return [f"b.{n}", f"b.{n}_len"]

    def go_fill(self, n: str, x: str, arg: str) -> list[str]:
        function = "optHandles" if self.optional else "handles"
        return [f'blk.{n}, blk.{n}Len = {function}({x}, op, "{arg}")']

    def go_keep(self, x: str) -> list[str]:
        return [f"unsafe.SliceData({x})"]

    def c_results(self, n: str) -> list[str]:
        return [f"Tensor **{n}", f"int64_t *{n}_len"]

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


class OptionalTensorList(TensorList):
    optional = True


class Number(SchemaType):
    """int, SymInt, DeviceIndex, float and bool."""

    def __init__(self, schema: str, c: str, go: str, cpp: str = "{}", result: str = "{}") -> None:
        super().__init__(schema)
        self.c, self.go, self._cpp, self._result = c, go, cpp, result

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


class OptionalNumber(SchemaType):
    """int?, float?, bool?: a pointer in C and in Go."""

    go_zero_is_default = True

    def __init__(self, schema: str, c: str, go: str, cpp: str) -> None:
        super().__init__(schema)
        self.number, self.go, self._cpp = c, f"*{go}", cpp
        self.c = f"const {c} *"

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

    def go_option(self, default: str) -> GoOption:
        if default in ("None", "0", "False"):
            # Where the schema says `int? size=0` or `bool? pin_memory=False`, none means the same.
            return GoOption(self.go, note="none")
        raise NotImplementedError(f"{self.schema} = {default}")


class NumberList(SchemaType):
    """int[], SymInt[], float[] and their fixed-size and optional forms."""

    def __init__(self, schema: str, c: str, go: str, cpp: str, size: int, optional: bool) -> None:
        super().__init__(schema)
        self.element, self.size, self.optional, self._cpp = c, size, optional, cpp
        self.go = f"[]{go}"
        self.go_element = go

    def c_parameters(self, n: str) -> list[str]:
        return [f"const {self.element} *{n}", f"int64_t {n}_len"]

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

    def block(self) -> list[BlockField]:
        return [
            BlockField("", f"const {self.element} *", "unsafe.Pointer"),
            BlockField("len", "int64_t", "int64"),
        ]

    def from_block(self, n: str) -> list[str]:
        return [f"b.{n}", f"b.{n}_len"]

    def go_fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f"blk.{n}, blk.{n}Len = unsafe.Pointer(unsafe.SliceData({x})), int64(len({x}))"]

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

    def cpp(self, n: str, written: bool = False) -> str:
        return f'bools<{self.size}>({n}, "{n}")'

    def block(self) -> list[BlockField]:
        return [BlockField("", "const bool *", "unsafe.Pointer")]

    def go_fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f"blk.{n} = unsafe.Pointer(&{x})"]


class ScalarArg(SchemaType):
    c, go = "Scalar", "Scalar"
    go_zero_is_default = True  # nil

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


class OptionalScalar(ScalarArg):
    c = "const Scalar *"

    def cpp(self, n: str, written: bool = False) -> str:
        return f"scalar_opt({n})"

    def cpp_is_default(self, n: str, default: str) -> str:
        return f"{n} == nullptr"

    def cpp_default(self, default: str) -> str:
        return "std::optional<at::Scalar>()"

    def from_block(self, n: str) -> list[str]:
        return [f"b.{n}.kind == ScalarNone ? nullptr : &b.{n}"]

    def go_fill(self, n: str, x: str, arg: str) -> list[str]:
        return [f'blk.{n} = optScalar({x}, op, "{arg}")']

    def go_option(self, default: str) -> GoOption:
        return GoOption("Scalar", note="none")


class ScalarList(SchemaType):
    go = "[]Scalar"

    def c_parameters(self, n: str) -> list[str]:
        return [f"const Scalar *{n}", f"int64_t {n}_len"]

    def cpp(self, n: str, written: bool = False) -> str:
        return f"scalars({n}, {n}_len)"

    def block(self) -> list[BlockField]:
        return [
            BlockField("", "const Scalar *", "unsafe.Pointer"),
            BlockField("len", "int64_t", "int64"),
        ]

    def from_block(self, n: str) -> list[str]:
        return [f"b.{n}", f"b.{n}_len"]

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


class StreamArg(SchemaType):
    c, go = "Stream", "Stream"

    def cpp(self, n: str, written: bool = False) -> str:
        return f"stream({n})"

    def block(self) -> list[BlockField]:
        return [BlockField("", "Stream", "Stream")]


def _simple() -> dict[str, SchemaType]:
    types: list[SchemaType] = [
        TensorArg("Tensor"),
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


_SIMPLE = _simple()
_LIST = re.compile(r"(int|SymInt|float|bool)\[(\d*)\](\??)$")


@cache
def schema_type(schema: str) -> SchemaType:
    """The type for a schema spelling such as "Tensor?" or "int[2]", or LookupError."""
    simple = _SIMPLE.get(schema)
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
