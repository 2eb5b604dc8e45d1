"""Writes C text: the `builder` that lowering functions are given.

    def lower(context, b, sig, args):
        a, x = args
        c = b.call("MM", a, x)                 # a function of cgotorch.h: errors leave the block
        n = b.call("SizeOf", c, 0)
        with b.if_(n > 4):
            b.fail("ValueError", "at most 4 rows, got {}", n)
        return b.call("ReLU", c)

What it emits is a C99 block. Variables are declared, and zero, at its start; what `call` returns
belongs to the block and is freed when it is left, by an error too, except what is moved out of it.
Values (`Value`) know operators: `n > 4`, `a + b`, `-x`.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..errors import BridgeTypeError
from ..types.literals import nan
from .headers import Declaration, c_function

_INTEGERS = {
    "bool": (1, False),
    "int8_t": (8, True),
    "uint8_t": (8, False),
    "int16_t": (16, True),
    "uint16_t": (16, False),
    "int32_t": (32, True),
    "uint32_t": (32, False),
    "int": (32, True),
    "long": (64, True),
    "int64_t": (64, True),
    "uint64_t": (64, False),
    "size_t": (64, False),
}
_FLOATS = {"float": 32, "double": 64}
_POINTERS = ("Tensor", "Generator", "Storage", "pb_string")


@dataclass(frozen=True)
class Form:
    """How values of a C type that hold references are copied, given up and made empty: an
    expression, and two statements, with {} for the value."""

    retain: str
    release: str
    clear: str = "{} = NULL;"


# By C type. The data models of structs add theirs.
FORMS: dict[str, Form] = {
    "Tensor": Form("RetainTensor({})", "FreeTensor({});"),
    "Storage": Form("RetainStorage({})", "FreeStorage({});"),
    "PyObject *": Form("Py_XNewRef({})", "Py_XDECREF({});"),
    "pb_string": Form("pb_string_retain({})", "pb_string_release({});"),
}


# What stands for a C value: bools and integers are floats to a type checker.
Operand: TypeAlias = "Value | float | str | None"


class BuilderError(BridgeTypeError):
    """The builder was asked for C that cannot be."""


def is_number(ctype: str) -> bool:
    return ctype in _INTEGERS or ctype in _FLOATS


def literal(value: bool | int | float, ctype: str | None = None) -> str:
    """A C constant for a Python number, with every bit of it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if value == -(1 << 63):
            return "INT64_MIN"
        if not -(1 << 63) < value < 1 << 64:
            raise BuilderError(f"{value} fits no integer type of C")
        if value >= 1 << 63:
            return f"UINT64_C({value})"
        text = f"INT64_C({abs(value)})" if abs(value) >= 1 << 31 else str(abs(value))
        return f"(-{text})" if value < 0 else text
    if math.isnan(value):
        return f"({nan(value)})"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    text = value.hex() if value != int(value) or abs(value) > 1e15 else repr(value)
    return f"({text})" if text.startswith("-") else text


def quoted(text: str) -> str:
    """A C string literal."""
    out = []
    for byte in text.encode():
        char = chr(byte)
        if char in '"\\':
            out.append("\\" + char)
        elif 32 <= byte < 127 and char != "?":  # "??" could begin a trigraph
            out.append(char)
        else:
            out.append(f"\\{byte:03o}")
    return '"' + "".join(out) + '"'


def string_literal(text: str) -> str:
    """A pb_string in C, NULs included, that lives as long as the library."""
    try:
        return f"PB_STRING({len(text.encode())}, {quoted(text)})"
    except UnicodeEncodeError as e:
        raise BuilderError(f"{text!r} has no UTF-8: {e}") from None


def clear(ctype: str, variable: str) -> str:
    """A statement that makes a variable empty, without giving up what it holds."""
    if ctype in FORMS:
        return FORMS[ctype].clear.format(variable)
    if zero(ctype) == "{0}":
        return f"memset(&{variable}, 0, sizeof {variable});"
    return f"{variable} = {zero(ctype)};"


def zero(ctype: str) -> str:
    """The initialiser that makes a variable zero."""
    if ctype == "bool":
        return "false"
    if is_number(ctype):
        return "0"
    return "NULL" if ctype.endswith("*") or ctype in _POINTERS else "{0}"


class Value:
    """A C expression without side effects, and its type. `owned`: the block frees it. `fresh`: it
    shares no memory with what the block was given."""

    __slots__ = ("builder", "ctype", "fresh", "owned", "text")

    def __init__(self, builder: CBuilder, text: str, ctype: str, owned: bool = False) -> None:
        self.builder, self.text, self.ctype, self.owned = builder, text, ctype, owned
        self.fresh = False

    def __repr__(self) -> str:
        return f"<{self.ctype} {self.text}>"

    def __bool__(self) -> bool:
        raise BuilderError(f"{self!r} is known when the C runs: use `with b.if_(...)` or b.select")

    __hash__ = None  # type: ignore[assignment]  # == makes a C expression

    def _binary(self, op: str, other: Operand, swap: bool = False, result: str = "") -> Value:
        b = self.builder
        a, c = self, b.value(other, self.ctype)
        if swap:
            a, c = c, a
        return Value(b, f"({a.text} {op} {c.text})", result or common(a.ctype, c.ctype))

    def __add__(self, o: Operand) -> Value:
        return self._binary("+", o)

    def __radd__(self, o: Operand) -> Value:
        return self._binary("+", o, True)

    def __sub__(self, o: Operand) -> Value:
        return self._binary("-", o)

    def __rsub__(self, o: Operand) -> Value:
        return self._binary("-", o, True)

    def __mul__(self, o: Operand) -> Value:
        return self._binary("*", o)

    def __rmul__(self, o: Operand) -> Value:
        return self._binary("*", o, True)

    def __truediv__(self, o: Operand) -> Value:
        """C's division: of integers it truncates."""
        return self._binary("/", o)

    def __rtruediv__(self, o: Operand) -> Value:
        return self._binary("/", o, True)

    def __mod__(self, o: Operand) -> Value:
        """C's remainder: it has the sign of the dividend."""
        return self._binary("%", o)

    def __neg__(self) -> Value:
        return Value(self.builder, f"(-{self.text})", self.ctype)

    def __and__(self, o: Operand) -> Value:
        logical = self.ctype == "bool"
        return self._binary("&&" if logical else "&", o, result="bool" if logical else "")

    def __or__(self, o: Operand) -> Value:
        logical = self.ctype == "bool"
        return self._binary("||" if logical else "|", o, result="bool" if logical else "")

    def __invert__(self) -> Value:
        return Value(
            self.builder, f"({'!' if self.ctype == 'bool' else '~'}{self.text})", self.ctype
        )

    def __lt__(self, o: Operand) -> Value:
        return self._binary("<", o, result="bool")

    def __le__(self, o: Operand) -> Value:
        return self._binary("<=", o, result="bool")

    def __gt__(self, o: Operand) -> Value:
        return self._binary(">", o, result="bool")

    def __ge__(self, o: Operand) -> Value:
        return self._binary(">=", o, result="bool")

    def __eq__(self, o: Operand) -> Value:  # type: ignore[override]
        if self.ctype == "pb_string" and o is not None:
            other = self.builder.string(o)
            return Value(self.builder, f"pb_string_equal({self.text}, {other.text})", "bool")
        return self._binary("==", o, result="bool")

    def __ne__(self, o: Operand) -> Value:  # type: ignore[override]
        if self.ctype == "pb_string" and o is not None:
            return ~(self == o)
        return self._binary("!=", o, result="bool")


def common(a: str, b: str) -> str:
    """The type of a + b in C."""
    if a == b:
        return a if a not in _INTEGERS or _INTEGERS[a][0] >= 32 else "int"
    if a in _FLOATS or b in _FLOATS:
        return "double" if "double" in (a, b) else "float"
    if a in _INTEGERS and b in _INTEGERS:
        (x, signed), (y, other) = _INTEGERS[a], _INTEGERS[b]
        bits = max(32, x, y)
        unsigned = (not signed and x == bits) or (not other and y == bits)
        return f"{'u' if unsigned else ''}int{bits}_t"
    return a if is_number(b) else b


class CBuilder:
    """Emits the statements of one block.

    `fail` is the C that leaves after an error (`sub["fail"]`); `error` is the variable that takes
    the message. `name` makes the block's variables unique in their function.
    """

    def __init__(self, name: str = "b", fail: str = "goto fail;", error: str = "pb_error") -> None:
        self.name, self._fail, self.error = name, fail, error
        # The same block may stand in a function twice, with other ways to leave.
        self._label = f"{name}_fail_{zlib.crc32(fail.encode()):08x}"
        self._count = 0
        self._declarations: list[str] = []
        self._lines: list[str] = []
        self._frees: dict[str, str] = {}  # by the variable
        self._owned: dict[str, str] = {}  # the C types of those
        self.structs: dict[str, Any] = {}  # the models of the structs that it makes, by C type
        self._depth = 0
        self._loops = 0
        self._may_fail = False
        self.calls_torch = False
        self.calls_python = False

    @property
    def in_loop(self) -> bool:
        """Whether what is emitted now runs again and again."""
        return self._loops > 0

    # Values
    def value(self, x: Operand, ctype: str | None = None) -> Value:
        """Returns x as a Value; a Python number, string or None becomes a constant."""
        if isinstance(x, Value):
            return x
        if x is None:
            return Value(self, "NULL", ctype or "void *")
        if isinstance(x, str):
            return Value(self, quoted(x), "const char *")
        if isinstance(x, bool):
            return Value(self, literal(x), "bool")
        if isinstance(x, int):
            if ctype in _FLOATS:
                return Value(self, literal(float(x)), ctype)
            return Value(self, literal(x), "int64_t" if x < 1 << 63 else "uint64_t")
        if isinstance(x, float):
            return Value(self, literal(x), "double")
        raise BuilderError(f"{x!r} has no form in C")

    def variable(self, ctype: str, value: Operand = None) -> Value:
        """Returns a new variable of the block. It is zero until something is stored in it."""
        self._count += 1
        name = f"{self.name}_{self._count}"
        space = "" if ctype.endswith("*") else " "
        self._declarations.append(f"{ctype}{space}{name} = {zero(ctype)};")
        made = Value(self, name, ctype)
        if value is not None:
            self.store(made, value)
        elif self._loops:  # what the last turn left there
            self.emit(clear(ctype, name))
        return made

    def owned(self, ctype: str, value: Operand = None, free: str | None = None) -> Value:
        """Returns a new variable; what is stored in it is freed when the block is left: by `free`,
        C statements with {} for the variable, or as is right for its type. A value that the block
        owns already is moved there; another one is taken over as it is."""
        if free is None:
            if ctype not in FORMS:
                raise BuilderError(f"how is a {ctype} freed? give free=")
            free = FORMS[ctype].release
        made = self.variable(ctype)
        free = free.format(made.text)
        if self._loops:
            turn = self._lines.pop()
            self.emit(free)
            self._lines.append(turn)
        self._frees[made.text] = free
        self._owned[made.text] = ctype
        made.owned = True
        if value is not None:
            self.store(made, value)
        return made

    def static(self, ctype: str) -> Value:
        """Returns a variable that keeps its value between calls of the function. It begins zero."""
        self._count += 1
        name = f"{self.name}_{self._count}"
        space = "" if ctype.endswith("*") else " "
        self._declarations.append(f"static {ctype}{space}{name} = {zero(ctype)};")
        return Value(self, name, ctype)

    def string(self, x: Operand) -> Value:
        """A string as the value of a `unicode_type`: a constant, or a copy of a C string that ends
        with NUL. One that is such a value already is returned as it is."""
        if isinstance(x, str):
            return Value(self, string_literal(x), "pb_string")
        v = self.value(x)
        if v.ctype == "pb_string":
            return v
        if v.ctype not in ("const char *", "char *"):
            raise BuilderError(f"{v!r} is no string")
        made = self.owned("pb_string")
        self.emit(f"{made.text} = pb_string_new({v.text}, (int64_t)strlen({v.text}));")
        self.check(Value(self, f"{made.text} != NULL", "bool"), "MemoryError", "a string")
        return made

    def store(self, variable: Value, value: Operand) -> None:
        """variable = value; Where the block owns both, the value is moved, and what was in the
        variable is given up."""
        v = self.value(value, variable.ctype)
        if not (variable.owned and v.owned):
            self.emit(f"{variable.text} = {v.text};")
        elif v.text != variable.text:
            self.emit(self._frees[variable.text])
            self.move_to(variable.text, v)

    def move_to(self, target: str, value: Operand, ctype: str | None = None) -> None:
        """Stores value in `target`, the text of an lvalue that lives longer than the block, with a
        reference of its own: what the block owns is moved there, all else copied."""
        v = self.value(value, ctype)
        if v.owned:
            self.emit(f"{target} = {v.text};")
            self.emit(clear(v.ctype, v.text))
        elif v.ctype in FORMS:
            self.emit(f"{target} = {FORMS[v.ctype].retain.format(v.text)};")
        else:
            self.emit(f"{target} = {v.text};")

    def member(self, struct: Value, field: str, ctype: str) -> Value:
        """struct.field, or struct->field; it is borrowed from the struct."""
        arrow = "->" if struct.ctype.endswith("*") else "."
        return Value(self, f"{struct.text}{arrow}{field}", ctype)

    def address(self, v: Value) -> Value:
        """&v"""
        return Value(
            self, f"&{v.text}", f"{v.ctype} *" if not v.ctype.endswith("*") else f"{v.ctype}*"
        )

    def load(self, pointer: Value, index: Operand = 0) -> Value:
        """pointer[index]"""
        if not pointer.ctype.endswith("*"):
            raise BuilderError(f"{pointer!r} is no pointer")
        ctype = pointer.ctype[:-1].strip().removeprefix("const ")
        return Value(self, f"{pointer.text}[{self.value(index).text}]", ctype)

    def expression(self, text: str, ctype: str) -> Value:
        """Any C expression, of the type that is given."""
        return Value(self, text if re.fullmatch(r"[\w.]+", text) else f"({text})", ctype)

    # Statements
    def emit(self, line: str) -> None:
        """Any C statements."""
        self._lines += ["  " * self._depth + part for part in line.splitlines()]

    def alias(self, ctype: str, name: str, value: Value) -> Value:
        """A variable under a name that is given, for C that was written elsewhere."""
        space = "" if ctype.endswith("*") else " "
        self._declarations.append(f"{ctype}{space}{name} = {zero(ctype)};")
        made = Value(self, name, ctype)
        self.store(made, value)
        return made

    def leaving(self) -> dict[str, str]:
        """What C that was written elsewhere needs to leave after an error: sub["fail"]."""
        self._may_fail = True
        return {"fail": f"goto {self._label};", "error": self.error}

    def comment(self, text: str) -> None:
        self.emit(f"/* {text.replace('*/', '* /')} */")

    @contextmanager
    def _block(self, head: str) -> Iterator[None]:
        self.emit(head + " {")
        self._depth += 1
        yield
        self._depth -= 1
        self.emit("}")

    def if_(self, condition: Value) -> AbstractContextManager[None]:
        """`with b.if_(x > 0): ...` emits what is inside only if the condition holds."""
        return self._block(f"if ({condition.text})")

    def else_(self) -> AbstractContextManager[None]:
        """`with b.else_(): ...`, right after an if_."""
        if not self._lines or self._lines[-1] != "  " * self._depth + "}":
            raise BuilderError("else_ must come right after if_")
        self._lines.pop()
        return self._block("} else")

    @contextmanager
    def loop(self, count: Operand, start: Operand = 0) -> Iterator[Value]:
        """`with b.loop(n) as i: ...` runs for i from start up to count."""
        i = self.variable("int64_t")
        head = f"for ({i.text} = {self.value(start).text}; {i.text} < {self.value(count).text};"
        self._loops += 1
        with self._block(f"{head} {i.text}++)"):
            yield i
        self._loops -= 1

    @contextmanager
    def while_(self, condition: Callable[[], Value]) -> Iterator[None]:
        """`with b.while_(lambda: i < n): ...`"""
        self._loops += 1
        with self._block(f"while ({condition().text})"):
            yield
        self._loops -= 1

    def goto_fail(self) -> None:
        """Leaves after an error that has been set already."""
        self._may_fail = True
        self.emit(f"goto {self._label};")

    def fail(self, kind: str, message: str, *values: Operand) -> None:
        """Leaves with an error, `b.fail("ValueError", "{} is negative", n)`. `kind` is the name of
        a built-in exception."""
        pattern, parts = message.split("{}"), []
        if len(pattern) != len(values) + 1:
            raise BuilderError(
                f"{message!r} has {len(pattern) - 1} places for {len(values)} values"
            )
        text = f"{kind}: {pattern[0]}".replace("%", "%%")
        for x, rest in zip(values, pattern[1:], strict=True):
            v = self.value(x)
            form, part = _printf(v)
            text += form + rest.replace("%", "%%")
            parts.append(part)
        self.emit(f"{self.error} = pb_format({', '.join([quoted(text), *parts])});")
        self.goto_fail()

    def check(self, condition: Value, kind: str, message: str, *values: Operand) -> None:
        """Leaves with an error unless the condition holds."""
        with self.if_(Value(self, f"!({condition.text})", "bool")):
            self.fail(kind, message, *values)

    # Calls
    def call(self, function: str, *args: Any) -> Any:
        """Calls a function of cgotorch.h; an error leaves the block. Returns what it writes: a
        Value, or a tuple of several. Tensors among them belong to the block.

        A list of numbers or tensors is given as a Python sequence, a Scalar as a number, an
        optional number as a number or None.
        """
        found = c_function(function)
        if found is None:
            raise BuilderError(f"cgotorch.h has no function {function}; use c_call for another one")
        self.calls_torch = True
        texts = self._arguments(found, args)
        results: list[Value] = []
        for p in reversed(found.outputs):  # the count of a list comes after it
            if p.ctype == "Tensor *":
                free = (
                    f"if ({{0}}) {{{{ FreeTensors({{0}}, {results[0].text}); FreeArray({{0}}); }}}}"
                )
                results.insert(0, self.owned(p.ctype, free=free))
            elif p.ctype in FORMS or p.ctype == "Generator":
                results.insert(0, self.owned(p.ctype, free=f"Free{p.ctype}({{}});"))
            else:
                results.insert(0, self.variable(p.ctype))
        for r in results:
            r.fresh = found.fresh
        all_ = ", ".join([*texts, *(f"&{r.text}" for r in results)])
        with self._block(f"if (({self.error} = {function}({all_})))"):
            self.goto_fail()
        return results[0] if len(results) == 1 else tuple(results)

    def _arguments(self, function: Declaration, args: Sequence[Any]) -> list[str]:
        texts: list[str] = []
        left = list(args)
        parameters = list(function.inputs)

        def refuse(why: str) -> BuilderError:
            return BuilderError(f"{function} was called with ({', '.join(map(repr, args))}): {why}")

        while parameters:
            p = parameters.pop(0)
            if not left:
                raise refuse(f"{p.name} is missing")
            x = left.pop(0)
            is_list = bool(parameters) and parameters[0].name == f"{p.name}_len"
            if is_list and (isinstance(x, (list, tuple)) or x is None):
                parameters.pop(0)
                element = p.ctype[:-1].strip().removeprefix("const ")
                values = [self.value(e, element).text for e in x or ()]
                if x:
                    texts.append(f"(const {element}[]){{{', '.join(values)}}}")
                elif x is None:
                    texts.append("NULL")
                else:  # an empty list is not none
                    texts.append(f"(const {element}[]){{{zero(element)}}}")
                texts.append(str(len(values)))
            elif p.ctype == "Scalar" or p.ctype == "const Scalar *":
                v = (
                    x
                    if x is None or (isinstance(x, Value) and "Scalar" in x.ctype)
                    else self.scalar(x)
                )
                v = self.value(v)
                pointer = p.ctype.endswith("*") and v.ctype == "Scalar"
                texts.append(f"&{v.text}" if pointer else v.text)
            elif p.ctype.endswith("*") and p.ctype not in ("const char *", "void *"):
                element = p.ctype[:-1].strip().removeprefix("const ")
                if isinstance(x, (bool, int, float)) or (
                    isinstance(x, Value) and is_number(x.ctype)
                ):
                    texts.append(f"&{self.variable(element, x).text}")
                else:
                    texts.append(self.value(x).text)
            else:
                texts.append(self.value(x, p.ctype).text)
        if left:
            raise refuse(f"{len(left)} too many")
        return texts

    def c_call(self, function: str, *args: Operand, returns: str | None = None) -> Any:
        """Calls any other C function, which cannot fail: `b.c_call("sqrt", x, returns="double")`.
        Without `returns` it is a statement."""
        text = f"{function}({', '.join(self.value(x).text for x in args)})"
        if returns is None:
            self.emit(text + ";")
            return None
        return self.variable(returns, Value(self, text, returns))

    def scalar(self, x: Operand | complex) -> Value:
        """A Scalar with the value of a number, kept bool, int, float or complex."""
        made = self.variable("Scalar")
        if isinstance(x, complex):
            kind, stores = "ScalarComplex", {"c[0]": literal(x.real), "c[1]": literal(x.imag)}
        else:
            v = self.value(x)
            if v.ctype == "bool":
                kind, stores = "ScalarBool", {"i": v.text}
            elif v.ctype in _INTEGERS:
                unsigned = v.ctype in ("uint64_t", "size_t")
                kind = (
                    "ScalarInt"
                    if not unsigned
                    else f"{v.text} > INT64_MAX ? ScalarUInt : ScalarInt"
                )
                stores = {"i": f"(int64_t)({v.text})"}
            elif v.ctype in _FLOATS:
                kind, stores = "ScalarFloat", {"f": v.text}
            else:
                raise BuilderError(f"a {v.ctype} makes no Scalar")
        self.emit(f"{made.text}.kind = {kind};")
        for field, text in stores.items():
            self.emit(f"{made.text}.v.{field} = {text};")
        return made

    # Conversions, also under the names of LLVM's builder
    def cast(self, v: Operand, ctype: str) -> Value:
        """(ctype)v, as C converts."""
        v = self.value(v)
        return v if v.ctype == ctype else Value(self, f"(({ctype}){v.text})", ctype)

    trunc = zext = sext = fptrunc = fpext = fptosi = fptoui = sitofp = uitofp = bitcast = cast

    def select(self, condition: Value, a: Operand, b: Operand) -> Value:
        """condition ? a : b"""
        x = self.value(a)
        y = self.value(b, x.ctype)
        text = f"({condition.text} ? {x.text} : {y.text})"
        return Value(self, text, common(x.ctype, y.ctype) if x.ctype != y.ctype else x.ctype)

    # The text
    @staticmethod
    def support_code() -> list[str]:
        """The functions that the statements call; an op whose c_code is written by a builder
        returns them from c_support_code."""
        return [FORMAT_ERROR]

    def declarations(self) -> str:
        """The declarations alone, for a function that declares elsewhere."""
        return "\n".join(self._declarations)

    def frees(self) -> str:
        """What gives up everything that the block owns; it does no harm twice."""
        return "\n".join(
            f"{free}\n{clear(self._owned[name], name)}"
            for name, free in reversed(self._frees.items())
        )

    def statements(self, free: bool = True) -> str:
        """The statements without the declarations. With `free`, what the block owns is given up at
        its end; after an error it is in any case."""
        out = list(self._lines)
        if free:
            out += reversed(self._frees.values())
        if self._may_fail:
            out += ["if (0) {", f"{self._label}:;"]
            if free:
                out += [f"  {f}" for f in reversed(self._frees.values())]
            out += [f"  {line}" for line in self._fail.splitlines()]
            out += ["}"]
        return "\n".join(out)

    def apart(self, emit: Callable[[], None]) -> str:
        """What `emit` emits, as a whole block of its own, for another place in the function. What
        the builder has made so far is in its reach. A call that fails there leads to the end of
        that block and nowhere else."""
        kept = dict(self.__dict__)
        self._owned = dict(self._owned)
        self._label, self._fail = f"{self.name}_apart_{self._count}", ""
        self._declarations, self._lines, self._frees = [], [], {}
        self._depth, self._loops, self._may_fail, self.calls_torch = 0, 0, False, False
        self.error = f"{self._label}_error"
        try:
            emit()
            free = "FreeString({})" if self.calls_torch else "free((void *){})"
            self._declarations.append(f"const char *{self.error} = NULL;")
            self._frees[self.error] = free.format(self.error) + ";"
            self._owned[self.error] = "const char *"
            # The label is the block's own: a linker may need the block in several places.
            return f"{{\n__label__ {self._label};\n{self.block()}\n}}"
        finally:
            calls = kept["calls_torch"] or self.calls_torch
            self.__dict__.update({**kept, "_count": self._count, "calls_torch": calls})

    def block(self) -> str:
        """The whole block, { ... }."""
        inside = "\n".join(part for part in (self.declarations(), self.statements()) if part)
        return "{\n" + "\n".join("  " + line for line in inside.splitlines()) + "\n}"


def _printf(v: Value) -> tuple[str, str]:
    if v.ctype == "bool":
        return "%s", f'({v.text} ? "True" : "False")'
    if v.ctype in _INTEGERS:
        if v.ctype in ("uint64_t", "size_t"):
            return "%llu", f"(unsigned long long)({v.text})"
        return "%lld", f"(long long)({v.text})"
    if v.ctype in _FLOATS:
        return "%.17g", v.text
    if v.ctype in ("const char *", "char *"):
        return "%s", v.text
    if v.ctype == "pb_string":
        return "%s", f'({v.text} ? {v.text} : "")'
    raise BuilderError(f"a {v.ctype} cannot stand in a message")


FORMAT_ERROR = """\
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifndef PB_FORMAT
#define PB_FORMAT
/* A message for FreeString, or one that needs no memory. */
static inline const char *pb_format(const char *format, ...) {
  va_list args;
  char *text;
  int n;
  va_start(args, format);
  n = vsnprintf(NULL, 0, format, args);
  va_end(args);
  text = (char *)malloc(n < 0 ? 1 : (size_t)n + 1);
  if (text == NULL) return NULL;
  text[0] = 0;
  va_start(args, format);
  if (n >= 0) vsnprintf(text, (size_t)n + 1, format, args);
  va_end(args);
  return text;
}
#endif
"""

# The value of a unicode_type: a pointer to UTF-8 that ends with a NUL, behind the length and the
# count of its references, which is negative for a constant.
STRINGS = """\
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifndef PB_STRING
typedef const char *pb_string;
struct pb_string_head {
  int64_t refs, size;
};
#define PB_STRING(n, text)                                                             \\
  (__extension__({                                                                     \\
    static const struct {                                                              \\
      struct pb_string_head head;                                                      \\
      char text_[(n) + 1];                                                             \\
    } pb_literal = {{-1, (n)}, text};                                                  \\
    (pb_string)pb_literal.text_;                                                       \\
  }))
static inline struct pb_string_head *pb_string_head(pb_string s) {
  return (struct pb_string_head *)(uintptr_t)(s - sizeof(struct pb_string_head));
}
static inline int64_t pb_string_size(pb_string s) { return s ? pb_string_head(s)->size : 0; }
static inline pb_string pb_string_retain(pb_string s) {
  if (s && pb_string_head(s)->refs >= 0)
    __atomic_add_fetch(&pb_string_head(s)->refs, 1, __ATOMIC_RELAXED);
  return s;
}
static inline void pb_string_release(pb_string s) {
  if (s && pb_string_head(s)->refs >= 0 &&
      __atomic_sub_fetch(&pb_string_head(s)->refs, 1, __ATOMIC_ACQ_REL) == 0)
    free(pb_string_head(s));
}
/* a, then b; NULL where memory is out. */
static inline pb_string pb_string_join(const char *a, int64_t m, const char *b, int64_t n) {
  struct pb_string_head *made =
      (struct pb_string_head *)malloc(sizeof *made + (size_t)m + (size_t)n + 1);
  char *text = (char *)(made + 1);
  if (made == NULL) return NULL;
  made->refs = 1;
  made->size = m + n;
  if (m) memcpy(text, a, (size_t)m);
  if (n) memcpy(text + m, b, (size_t)n);
  text[m + n] = 0;
  return text;
}
static inline pb_string pb_string_new(const char *text, int64_t n) {
  return pb_string_join(text, n, NULL, 0);
}
/* As memcmp; the order of UTF-8 is that of its characters. */
static inline int pb_string_compare(pb_string a, pb_string b) {
  int64_t m = pb_string_size(a), n = pb_string_size(b), least = m < n ? m : n;
  int order = least ? memcmp(a, b, (size_t)least) : 0;
  return order ? order : (m > n) - (m < n);
}
static inline bool pb_string_equal(pb_string a, pb_string b) {
  return pb_string_compare(a, b) == 0;
}
/* How many characters there are. */
static inline int64_t pb_string_count(pb_string s) {
  int64_t n = 0, i;
  for (i = 0; i < pb_string_size(s); i++) n += (s[i] & 0xC0) != 0x80;
  return n;
}
/* Where b begins in a, or -1. */
static inline int64_t pb_string_find(pb_string a, pb_string b) {
  int64_t m = pb_string_size(a), n = pb_string_size(b), i;
  for (i = 0; i + n <= m; i++)
    if (n == 0 || memcmp(a + i, b, (size_t)n) == 0) return i;
  return -1;
}
#endif
"""
