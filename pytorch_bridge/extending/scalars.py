"""Strings, complex numbers and large integers: what the core does with them in C.

Graphs have no type for these, so that no function of PyTorch takes them; Python's operators do,
with Python's results and errors.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ..types.base import Type
from . import types
from .builder import CBuilder, Value
from .casts import lower_cast
from .context import Context
from .errors import TypingError
from .lowering import lower_getattr
from .overloads import Intrinsic, intrinsic, overload, overload_method
from .signatures import signature

# Strings -----------------------------------------------------------------------------------------


def _strings(*args: Type) -> bool:
    return all(isinstance(t, types.UnicodeType) for t in args)


def _on_strings(name: str, returns: Type, n: int, emit: Callable[..., Any]) -> Intrinsic:
    """An intrinsic for n strings."""

    def typed(context: Any, a: Any, b: Any = None) -> Any:
        def codegen(context: Context, b: CBuilder, sig: Any, args: Any) -> Value:
            found: Value = emit(b, *args)
            return found

        return signature(returns, *[types.unicode_type] * n), codegen

    typed.__name__ = name
    return intrinsic(typed)


def _compared(op: str) -> Callable[..., Value]:
    return lambda b, x, y: b.expression(f"pb_string_compare({x.text}, {y.text}) {op} 0", "bool")


def _begins(b: CBuilder, x: Value, y: Value) -> Value:
    n = f"pb_string_size({y.text})"
    return b.expression(
        f"pb_string_size({x.text}) >= {n} && memcmp({x.text}, {y.text}, (size_t){n}) == 0", "bool"
    )


def _ends(b: CBuilder, x: Value, y: Value) -> Value:
    m, n = f"pb_string_size({x.text})", f"pb_string_size({y.text})"
    return b.expression(
        f"{m} >= {n} && memcmp({x.text} + ({m} - {n}), {y.text}, (size_t){n}) == 0", "bool"
    )


def _joined(b: CBuilder, x: Value, y: Value) -> Value:
    made = b.owned("pb_string")
    sizes = [f"{v.text}, pb_string_size({v.text})" for v in (x, y)]
    b.emit(f"{made.text} = pb_string_join({', '.join(sizes)});")
    b.check(b.expression(f"{made.text} != NULL", "bool"), "MemoryError", "a string")
    return made


def _count(b: CBuilder, x: Value) -> Value:
    return b.expression(f"pb_string_count({x.text})", "int64_t")


def _within(b: CBuilder, x: Value, y: Value) -> Value:
    return b.expression(f"pb_string_find({x.text}, {y.text}) >= 0", "bool")


def _string_operator(function: Any, returns: Type, emit: Callable[..., Any]) -> None:
    call = _on_strings(function.__name__, returns, 2, emit)

    @overload(function)
    def implemented(a: Any, b: Any) -> Any:
        if _strings(a, b):
            return lambda a, b: call(a, b)
        return None


for _op, _function in (
    ("==", operator.eq),
    ("!=", operator.ne),
    ("<", operator.lt),
    ("<=", operator.le),
    (">", operator.gt),
    (">=", operator.ge),
):
    _string_operator(_function, types.boolean, _compared(_op))
_string_operator(operator.add, types.unicode_type, _joined)
_string_operator(operator.contains, types.boolean, _within)

_length = _on_strings("len", types.int64, 1, _count)


@overload(len)
def _string_len(x: Any) -> Any:
    return (lambda x: _length(x)) if _strings(x) else None


def _string_method(name: str, emit: Callable[..., Any]) -> None:
    call = _on_strings(name, types.boolean, 2, emit)

    @overload_method(types.UnicodeType, name)
    def implemented(s: Any, part: Any) -> Any:
        if not _strings(part):
            raise TypingError(f"str.{name} of a traced string takes one string, not {part}")
        return lambda s, part: call(s, part)


_string_method("startswith", _begins)
_string_method("endswith", _ends)


@lower_cast(types.UnicodeType, types.Boolean, conversion=None)
def _string_is_true(context: Context, b: CBuilder, fromty: Type, toty: Type, val: Value) -> Value:
    return b.expression(f"pb_string_size({val.text}) > 0", "bool")


# Complex numbers ---------------------------------------------------------------------------------


def _complex(*args: Type) -> bool:
    """Whether an operator is one of complex numbers: one is, and all are numbers."""
    return any(isinstance(t, types.Complex) for t in args) and all(
        isinstance(t, types.Number) for t in args
    )


def _on_complex(name: str, returns: Type, n: int, emit: Callable[..., Any]) -> Intrinsic:
    """An intrinsic for n complex numbers, whose parts `emit` is given as expressions."""

    def typed(context: Any, a: Any, b: Any = None) -> Any:
        def codegen(context: Context, b: CBuilder, sig: Any, args: Any) -> Value:
            given = [context.make_struct(b, types.complex128, v) for v in args]
            found = emit(b, *[part for z in given for part in (z.real, z.imag)])
            if returns is not types.complex128:
                value: Value = found
                return value
            made = context.make_struct(b, types.complex128)
            made.real, made.imag = found
            return made._getvalue()

        return signature(returns, *[types.complex128] * n), codegen

    typed.__name__ = name
    return intrinsic(typed)


def _quotient(b: CBuilder, a: Value, x: Value, c: Value, y: Value) -> tuple[Value, Value]:
    """(a + xi) / (c + yi), scaled by the larger part of the divisor, as Python does."""
    b.check(
        b.expression(f"{c.text} != 0 || {y.text} != 0", "bool"),
        "ZeroDivisionError",
        "complex division by zero",
    )
    real, imag = b.variable("double"), b.variable("double")
    ratio, whole = b.variable("double"), b.variable("double")
    with b.if_(b.expression(f"fabs({c.text}) >= fabs({y.text})", "bool")):
        b.store(ratio, y / c)
        b.store(whole, c + y * ratio)
        b.store(real, (a + x * ratio) / whole)
        b.store(imag, (x - a * ratio) / whole)
    with b.else_(), b.if_(b.expression(f"fabs({y.text}) >= fabs({c.text})", "bool")):
        b.store(ratio, c / y)
        b.store(whole, c * ratio + y)
        b.store(real, (a * ratio + x) / whole)
        b.store(imag, (x * ratio - a) / whole)
    with b.if_(b.expression(f"isnan({c.text}) || isnan({y.text})", "bool")):
        b.store(real, b.expression("NAN", "double"))
        b.store(imag, b.expression("NAN", "double"))
    return real, imag


def _absolute(b: CBuilder, a: Value, x: Value) -> Value:
    found: Value = b.c_call("hypot", a, x, returns="double")
    wrong = f"isinf({found.text}) && isfinite({a.text}) && isfinite({x.text})"
    b.check(~b.expression(wrong, "bool"), "OverflowError", "absolute value too large")
    return found


_COMPLEX: dict[Any, tuple[int, Type, Callable[..., Any]]] = {
    operator.add: (2, types.complex128, lambda b, a, x, c, y: (a + c, x + y)),
    operator.sub: (2, types.complex128, lambda b, a, x, c, y: (a - c, x - y)),
    operator.mul: (2, types.complex128, lambda b, a, x, c, y: (a * c - x * y, a * y + x * c)),
    operator.truediv: (2, types.complex128, _quotient),
    operator.eq: (2, types.boolean, lambda b, a, x, c, y: (a == c) & (x == y)),
    operator.ne: (2, types.boolean, lambda b, a, x, c, y: (a != c) | (x != y)),
    operator.neg: (1, types.complex128, lambda b, a, x: (-a, -x)),
    operator.pos: (1, types.complex128, lambda b, a, x: (a, x)),
    abs: (1, types.float64, _absolute),
}


def _complex_operator(function: Any, n: int, returns: Type, emit: Callable[..., Any]) -> None:
    call = _on_complex(function.__name__, returns, n, emit)
    if n == 1:

        @overload(function)
        def unary(a: Any) -> Any:
            return (lambda a: call(a)) if _complex(a) else None

    else:

        @overload(function)
        def binary(a: Any, b: Any) -> Any:
            return (lambda a, b: call(a, b)) if _complex(a, b) else None


for _function, (_n, _returns, _emit) in _COMPLEX.items():
    _complex_operator(_function, _n, _returns, _emit)


def _part(name: str) -> None:
    @lower_getattr(types.Complex, name)
    def lowered(context: Context, b: CBuilder, typ: Any, value: Value) -> Value:
        return b.member(value, name, context.get_value_type(typ.underlying_float))


_part("real")
_part("imag")
_conjugate = _on_complex("conjugate", types.complex128, 1, lambda b, a, x: (a, -x))


@overload_method(types.Complex, "conjugate")
def _complex_conjugate(z: Any) -> Any:
    return lambda z: _conjugate(z)


# Integers above 2**63 ----------------------------------------------------------------------------


def _large(*args: Type) -> bool:
    """Whether an operator is one of integers of which one is unsigned, of 64 bits."""
    whole = all(isinstance(t, (types.Integer, types.Boolean)) for t in args)
    return whole and any(types.unliteral(t) == types.uint64 for t in args)


def _on_large(name: str, returns: Type, expression: str) -> Intrinsic:
    """An intrinsic for two integers, computed with 128 bits; {0} and {1} are these."""

    def typed(context: Any, x: Any, y: Any) -> Any:
        kinds = [
            types.uint64 if types.unliteral(t) == types.uint64 else types.int64 for t in (x, y)
        ]

        def codegen(context: Context, b: CBuilder, sig: Any, args: Any) -> Value:
            x, y = (f"((__int128){v.text})" for v in args)
            if "{zero}" in expression:
                b.check(args[1] != 0, "ZeroDivisionError", "integer division or modulo by zero")
            text = expression.format(x, y, zero="")
            if returns is types.boolean:
                return b.expression(text, "bool")
            made = b.variable("__int128")
            b.emit(f"{made.text} = {text};")
            fits = f"{made.text} >= 0 && {made.text} <= (__int128)UINT64_MAX"
            b.check(
                b.expression(fits, "bool"),
                "OverflowError",
                f"the result of {name} of {kinds[0]} and {kinds[1]} is not within 0 ... 2**64 - 1",
            )
            return b.cast(made, "uint64_t")

        return signature(returns, *kinds), codegen

    typed.__name__ = name
    return intrinsic(typed)


_FLOOR = "({0} / {1} - ({0} % {1} != 0 && ({0} < 0) != ({1} < 0)))"
_LARGE = {
    operator.add: (types.uint64, "{0} + {1}"),
    operator.sub: (types.uint64, "{0} - {1}"),
    operator.mul: (
        types.uint64,
        "(__extension__({{ __int128 pb_p; __builtin_mul_overflow({0}, {1}, &pb_p) ? "
        "(__int128)-1 : pb_p; }}))",
    ),
    operator.floordiv: (types.uint64, "{zero}" + _FLOOR),
    operator.mod: (types.uint64, "{zero}{0} - {1} * " + _FLOOR),
    operator.and_: (types.uint64, "{0} & {1}"),
    operator.or_: (types.uint64, "{0} | {1}"),
    operator.xor: (types.uint64, "{0} ^ {1}"),
    operator.eq: (types.boolean, "{0} == {1}"),
    operator.ne: (types.boolean, "{0} != {1}"),
    operator.lt: (types.boolean, "{0} < {1}"),
    operator.le: (types.boolean, "{0} <= {1}"),
    operator.gt: (types.boolean, "{0} > {1}"),
    operator.ge: (types.boolean, "{0} >= {1}"),
}


def _large_operator(function: Any, returns: Type, expression: str) -> None:
    call = _on_large(function.__name__, returns, expression)

    @overload(function)
    def implemented(a: Any, b: Any) -> Any:
        return (lambda a, b: call(a, b)) if _large(a, b) else None


for _function, (_returns, _expression) in _LARGE.items():
    _large_operator(_function, _returns, _expression)
