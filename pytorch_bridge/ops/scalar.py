"""Ops on single numbers: what Elemwise, Reduce and Composite are made of.

A scalar op knows its Python function, its native function for tensors, and its C expression. It
works on variables of numbers (`n * 2 + 1`), and inside a Composite on elements of tensors.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import BridgeTypeError, MissingMethodError
from ..graph.basic import Apply, Constant, Variable
from ..types import TensorType, Type, schema_type
from ..types.base import Sub
from ..types.numbers import NumberArg, ScalarArg
from .native import constant, native, native_op
from .op import Names, Op, Storages, Values, closed


@dataclass(frozen=True)
class _Entry:
    arity: int
    native: str  # the overload for tensors
    python: Callable[..., Any]
    result: str  # of numbers: "same" as the widest argument, "float", "bool" or "int"
    floating: str  # C for double and float; {0} is the first argument, {f} is "f" for float
    # C for int64_t: an expression, or the name of a function that takes the arguments and where the
    # result goes, and returns whether it has more than 64 bits. None: there is none.
    integer: str | None
    inplace: str | None = None  # the overload that writes into its first argument
    reduction: str | None = None  # the function that folds a tensor with it, along dimensions


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def _sign(x: float) -> float:
    return type(x)((x > 0) - (x < 0))


def _power(x: Any, y: Any) -> Any:
    if isinstance(x, int) and isinstance(y, int) and y < 0:
        raise ValueError("pow: an integer to a negative power is no integer")
    found = x**y
    if isinstance(found, complex):
        raise ValueError("pow: a fractional power of a negative number is complex")
    return found


_S = {
    # name: arity, native, Python, result, C floating, C integer, in place, reduction
    "add": _Entry(2, "add.Tensor", operator.add, "same", "{0} + {1}", "pb_add_int", "add_.Tensor",
                  "sum.dim_IntList"),
    "sub": _Entry(2, "sub.Tensor", operator.sub, "same", "{0} - {1}", "pb_sub_int", "sub_.Tensor"),
    "mul": _Entry(2, "mul.Tensor", operator.mul, "same", "{0} * {1}", "pb_mul_int", "mul_.Tensor",
                  "prod.dim_int"),
    "div": _Entry(2, "div.Tensor", operator.truediv, "float", "{0} / {1}", None, "div_.Tensor"),
    "floor_divide": _Entry(2, "floor_divide", operator.floordiv, "same",
                           "pb_floor_divide({0}, {1})", "pb_floor_divide_int",
                           "floor_divide_.Tensor"),
    "remainder": _Entry(2, "remainder.Tensor", operator.mod, "same", "pb_remainder({0}, {1})",
                        "pb_remainder_int({0}, {1})", "remainder_.Tensor"),
    "pow": _Entry(2, "pow.Tensor_Tensor", _power, "same", "pb_pow({0}, {1})",
                  "pb_pow_int", "pow_.Tensor"),
    "maximum": _Entry(2, "maximum", max, "same", "pb_maximum({0}, {1})",
                      "{0} > {1} ? {0} : {1}", None, "amax"),
    "minimum": _Entry(2, "minimum", min, "same", "pb_minimum({0}, {1})",
                      "{0} < {1} ? {0} : {1}", None, "amin"),
    "neg": _Entry(1, "neg", operator.neg, "same", "-{0}", "pb_neg_int", "neg_"),
    "abs": _Entry(1, "abs", abs, "same", "fabs{f}({0})", "pb_abs_int", "abs_"),
    "sign": _Entry(1, "sign", _sign, "same", "({0} > 0) - ({0} < 0)", "({0} > 0) - ({0} < 0)",
                   "sign_"),
    "square": _Entry(1, "square", lambda x: x * x, "same", "{0} * {0}", "pb_square_int", "square_"),
    "reciprocal": _Entry(1, "reciprocal", lambda x: 1 / x, "float", "1 / {0}", None,
                         "reciprocal_"),
    "relu": _Entry(1, "relu", lambda x: max(x, type(x)(0)), "same", "{0} < 0 ? 0 : {0}",
                   "{0} < 0 ? 0 : {0}", "relu_"),
    "sqrt": _Entry(1, "sqrt", math.sqrt, "float", "sqrt{f}({0})", None, "sqrt_"),
    "rsqrt": _Entry(1, "rsqrt", lambda x: 1 / math.sqrt(x), "float", "1 / sqrt{f}({0})", None,
                    "rsqrt_"),
    "exp": _Entry(1, "exp", math.exp, "float", "exp{f}({0})", None, "exp_"),
    "log": _Entry(1, "log", math.log, "float", "log{f}({0})", None, "log_"),
    "log1p": _Entry(1, "log1p", math.log1p, "float", "log1p{f}({0})", None, "log1p_"),
    "expm1": _Entry(1, "expm1", math.expm1, "float", "expm1{f}({0})", None, "expm1_"),
    "sin": _Entry(1, "sin", math.sin, "float", "sin{f}({0})", None, "sin_"),
    "cos": _Entry(1, "cos", math.cos, "float", "cos{f}({0})", None, "cos_"),
    "tanh": _Entry(1, "tanh", math.tanh, "float", "tanh{f}({0})", None, "tanh_"),
    "erf": _Entry(1, "erf", math.erf, "float", "erf{f}({0})", None, "erf_"),
    "sigmoid": _Entry(1, "sigmoid", _sigmoid, "float", "pb_sigmoid({0})", None,
                      "sigmoid_"),
    "silu": _Entry(1, "silu", lambda x: x * _sigmoid(x), "float", "{0} * pb_sigmoid({0})",
                   None, "silu_"),
    "floor": _Entry(1, "floor", math.floor, "int", "floor{f}({0})", "{0}", "floor_"),
    "ceil": _Entry(1, "ceil", math.ceil, "int", "ceil{f}({0})", "{0}", "ceil_"),
    "trunc": _Entry(1, "trunc", math.trunc, "int", "trunc{f}({0})", "{0}", "trunc_"),
    "round": _Entry(1, "round", round, "int", "nearbyint{f}({0})", "{0}", "round_"),
    "lt": _Entry(2, "lt.Tensor", operator.lt, "bool", "{0} < {1}", "{0} < {1}"),
    "le": _Entry(2, "le.Tensor", operator.le, "bool", "{0} <= {1}", "{0} <= {1}"),
    "gt": _Entry(2, "gt.Tensor", operator.gt, "bool", "{0} > {1}", "{0} > {1}"),
    "ge": _Entry(2, "ge.Tensor", operator.ge, "bool", "{0} >= {1}", "{0} >= {1}"),
    "eq": _Entry(2, "eq.Tensor", operator.eq, "bool", "{0} == {1}", "{0} == {1}"),
    "ne": _Entry(2, "ne.Tensor", operator.ne, "bool", "{0} != {1}", "{0} != {1}"),
    "logical_and": _Entry(2, "logical_and", lambda x, y: bool(x and y), "bool", "{0} && {1}",
                          "{0} && {1}", None, "all.dim"),
    "logical_or": _Entry(2, "logical_or", lambda x, y: bool(x or y), "bool", "{0} || {1}",
                         "{0} || {1}", None, "any.dim"),
    "logical_not": _Entry(1, "logical_not", operator.not_, "bool", "!{0}", "!{0}"),
    "where": _Entry(3, "where.self", lambda c, x, y: x if c else y, "same", "{0} ? {1} : {2}",
                    "{0} ? {1} : {2}"),
    "sym_float": _Entry(1, "", float, "float", "(double){0}", "(double){0}"),
    "sym_int": _Entry(1, "", int, "int", "trunc({0})", "{0}"),
    "bitwise_and": _Entry(2, "bitwise_and.Tensor", operator.and_, "same", "", "{0} & {1}"),
    "bitwise_or": _Entry(2, "bitwise_or.Tensor", operator.or_, "same", "", "{0} | {1}"),
    "bitwise_xor": _Entry(2, "bitwise_xor.Tensor", operator.xor, "same", "", "{0} ^ {1}"),
    "bitwise_not": _Entry(1, "bitwise_not", operator.invert, "same", "", "~{0}"),
    "bitwise_left_shift": _Entry(2, "bitwise_left_shift.Tensor", operator.lshift, "same", "",
                                 "pb_bitwise_left_shift_int"),
    "bitwise_right_shift": _Entry(2, "bitwise_right_shift.Tensor", operator.rshift, "same", "",
                                  "pb_shift_right({0}, {1})"),
}  # fmt: skip

# What PyTorch's kernels compute otherwise than C, in the last bit or for zeros. sqrt is MKL's where
# there is one, and not always the nearest number.
_INEXACT = frozenset(
    [
        "floor_divide",
        "remainder",
        "pow",
        "maximum",
        "minimum",
        "sqrt",
        "rsqrt",
        "exp",
        "log",
        "log1p",
        "expm1",
        "sin",
        "cos",
        "tanh",
        "erf",
        "sigmoid",
        "silu",
    ]
)

SUPPORT = r"""
/* Numbers as Python has them: a remainder has the sign of what it is divided by, the first of two
 * that are equal, or not ordered, is the greater one. */
static inline double pb_remainder(double a, double b) {
  double r = fmod(a, b);
  if (r == 0) return copysign(0, b);
  return (r < 0) != (b < 0) ? r + b : r;
}
static inline double pb_floor_divide(double a, double b) {
  if (b == 0) return a / b;
  double r = fmod(a, b), q = (a - r) / b;
  if (r != 0 && (b < 0) != (r < 0)) q -= 1;
  if (q == 0) return copysign(0, a / b);
  double f = floor(q);
  return q - f > 0.5 ? f + 1 : f;
}
/* Integers: whether the result has more than 64 bits, or else it in *r. */
static inline int pb_add_int(int64_t a, int64_t b, int64_t *r) {
  return __builtin_add_overflow(a, b, r);
}
static inline int pb_sub_int(int64_t a, int64_t b, int64_t *r) {
  return __builtin_sub_overflow(a, b, r);
}
static inline int pb_mul_int(int64_t a, int64_t b, int64_t *r) {
  return __builtin_mul_overflow(a, b, r);
}
static inline int pb_neg_int(int64_t a, int64_t *r) { return pb_sub_int(0, a, r); }
static inline int pb_abs_int(int64_t a, int64_t *r) {
  return a < 0 ? pb_neg_int(a, r) : pb_sub_int(a, 0, r);
}
static inline int pb_square_int(int64_t a, int64_t *r) { return pb_mul_int(a, a, r); }
static inline int pb_floor_divide_int(int64_t a, int64_t b, int64_t *r) {
  if (b == -1) return pb_neg_int(a, r);
  *r = a / b;
  if (a % b != 0 && (a < 0) != (b < 0)) *r -= 1;
  return 0;
}
static inline int64_t pb_remainder_int(int64_t a, int64_t b) {
  int64_t r = b == -1 ? 0 : a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
static inline int pb_pow_int(int64_t a, int64_t b, int64_t *r) {
  *r = 1;
  for (;;) {
    if ((b & 1) && pb_mul_int(*r, a, r)) return 1;
    b >>= 1;
    if (!b) return 0;
    if (pb_mul_int(a, a, &a)) return 1;
  }
}
static inline int pb_bitwise_left_shift_int(int64_t a, int64_t n, int64_t *r) {
  *r = n < 64 ? (int64_t)((uint64_t)a << n) : 0;
  return n < 64 ? *r >> n != a : a != 0;
}
static inline int64_t pb_shift_right(int64_t a, int64_t n) { return a >> (n < 64 ? n : 63); }
/* Whether a double is an int64_t, but for what is behind its point. */
static inline int pb_is_int(double a) { return a >= -0x1p63 && a < 0x1p63; }
/* Compilers make pow(a, -1) of what they know to be 1 / a, which rounds otherwise. */
static double (*volatile pb_pow)(double, double) = pow;
static inline double pb_maximum(double a, double b) { return b > a ? b : a; }
static inline double pb_minimum(double a, double b) { return b < a ? b : a; }
static inline double pb_sigmoid(double x) {
  return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}
/* The quotient of integers, rounded once: as doubles, large ones would be rounded before. */
static inline double pb_divide(int64_t a, int64_t b) {
  __extension__ typedef unsigned __int128 wide;
  const int64_t exact = INT64_C(1) << 53;
  if (a <= exact && a >= -exact && b <= exact && b >= -exact) return (double)a / (double)b;
  const uint64_t n = a < 0 ? 0 - (uint64_t)a : (uint64_t)a;
  const uint64_t d = b < 0 ? 0 - (uint64_t)b : (uint64_t)b;
  const double sign = (a < 0) != (b < 0) ? -1 : 1;
  if (!n) return sign * 0;
  const int shift = 64 + __builtin_clzll(n);
  const wide all = (wide)n << shift, q = all / d;
  return sign * ldexp((double)(q | (all % d != 0)), -shift);
}
/* 1, 2 or 4 where an integer is less than a double, equal or greater, and 8 where that is NaN. */
static inline int pb_order(int64_t a, double b) {
  if (b != b) return 8;
  if (b >= 0x1p63) return 1;
  if (b < -0x1p63) return 4;
  const int64_t whole = (int64_t)b;
  const double rest = b - (double)whole;
  if (a != whole) return a < whole ? 1 : 4;
  return rest > 0 ? 1 : rest < 0 ? 4 : 2;
}
"""

# What Python refuses of floats, in C: of the arguments {0} and {1} and the result {r}.
_DOMAIN = "isnan({r}) && !isnan({0})", "ValueError", "math domain error"
_RANGE = "isinf({r}) && isfinite({0})", "OverflowError", "math range error"
_POLE = "isinf({r}) && isfinite({0})", "ValueError", "math domain error"
_ZERO = "{0} == 0", "ZeroDivisionError", "division by zero"
_REFUSED = {
    "pow": (
        ("{0} == 0 && {1} < 0 && isfinite({1})", "ZeroDivisionError", "zero to a negative power"),
        (
            "isnan({r}) && !isnan({0}) && !isnan({1})",
            "ValueError",
            "a fractional power of a negative number is complex",
        ),
        ("isinf({r}) && isfinite({0}) && isfinite({1})", "OverflowError", "math range error"),
    ),
    "exp": (_RANGE,),
    "expm1": (_RANGE,),
    "log": (_POLE, _DOMAIN),
    "log1p": (_POLE, _DOMAIN),
    "sqrt": (_DOMAIN,),
    "rsqrt": (_ZERO, _DOMAIN),
    "reciprocal": (_ZERO,),
    "sin": (_DOMAIN,),
    "cos": (_DOMAIN,),
}
# Comparisons of an integer with a float: the orders, as pb_order has them, where they hold; and
# those of a float with an integer.
_ORDERS = {
    "lt": (1, 4), "le": (3, 6), "gt": (4, 1), "ge": (6, 3), "eq": (2, 2), "ne": (13, 13)
}  # fmt: skip
_SHIFTS = ("bitwise_left_shift", "bitwise_right_shift")
_MORE = "the result has more than 64 bits"


def _to_int(text: str, output: str, refuse: Callable[[str, str, str], str]) -> str:
    """A double as an int64_t, with the errors of Python's int()."""
    return (
        f"const double pb_value = {text};\n"
        + refuse("pb_value != pb_value", "ValueError", "cannot convert float NaN to integer")
        + refuse("!pb_is_int(pb_value)", "OverflowError", _MORE)
        + f"{output} = (int64_t)pb_value;"
    )


_PYTHON: dict[str | None, Callable[[Any], Any]] = {"bool": bool, "int": int, "float": float}
_ORDER = {"bool": 0, "int": 1, "float": 2}
_TYPES: dict[str, Type] = {}


def _number(kind: str) -> Type:
    return schema_type(kind)


@closed
class ScalarOp(Op):
    """An op on numbers, `scalar.add` and so on."""

    __props__ = ("name",)

    def __init__(self, name: str) -> None:
        if name not in _S:
            raise BridgeTypeError(f"there is no scalar op {name!r}: there are {', '.join(_S)}")
        self.name = name
        self.entry = _S[name]

    def __reduce__(self) -> Any:
        return ScalarOp, (self.name,)

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__

    @property
    def arity(self) -> int:
        return self.entry.arity

    def make_node(self, *inputs: Any) -> Apply:
        """The node for numbers, or for elements of tensors: variables of tensor types without
        dimensions."""
        if len(inputs) != self.arity:
            raise BridgeTypeError(f"{self} takes {self.arity} inputs, got {len(inputs)}")
        variables = [constant(v) for v in inputs]
        elements = [isinstance(v.type, TensorType) and v.type.ndim == 0 for v in variables]
        if any(elements):
            return self._on_elements(variables)
        kinds = []
        for i, v in enumerate(variables):
            kind = getattr(v.type, "kind", "") if isinstance(v.type, NumberArg) else ""
            if kind not in _ORDER:
                raise BridgeTypeError(
                    f"{self}: input {i} must be a number, got {v} of type {v.type}"
                )
            if kind == "float" and self.entry.floating == "":
                raise BridgeTypeError(
                    f"{self}: input {i} must be an integer or a bool, got {v} of type {v.type}"
                )
            kinds.append(kind)
        kind = self.entry.result
        if kind == "same":
            arguments = kinds[1:] if self.name == "where" else kinds
            kind = max(arguments, key=_ORDER.__getitem__)
            kept = self.name.startswith(("bitwise", "where", "max", "min"))
            if kind == "bool" and (not kept or self.name in (*_SHIFTS, "bitwise_not")):
                kind = "int"
        return Apply(self, variables, [_number(kind).make_variable()])

    def _on_elements(self, variables: Sequence[Variable]) -> Apply:
        inner = native_form(self, variables)
        return Apply(self, variables, [v.type.make_variable() for v in inner.outputs])

    def compute(self, values: Sequence[Any]) -> Any:
        """The op on Python numbers, or on tensors of any shape."""
        import torch

        if any(isinstance(v, torch.Tensor) for v in values):
            if not self.entry.native:
                raise MissingMethodError(f"{self} has no form for tensors")
            return native(self.entry.native).torch_op(*values)
        result = self.entry.python(*values)
        if isinstance(result, int) and not -(1 << 63) <= result < 1 << 63:
            raise OverflowError(f"{self}: the result has more than 64 bits")
        return result

    def perform(self, node: Apply, inputs: Values, output_storage: Storages) -> None:
        found = self.compute(inputs)
        kind = getattr(node.outputs[0].type, "kind", None)
        # Of an integer and a float, the greater one is a float.
        output_storage[0][0] = _PYTHON[kind](found) if kind in _PYTHON else found

    def trace(self, node: Apply, inputs: Sequence[Any]) -> list[Any]:
        import torch

        symbols = (torch.SymInt, torch.SymFloat, torch.SymBool)
        function = of_symbols(self.name) if any(isinstance(v, symbols) for v in inputs) else None
        return [self.compute(inputs) if function is None else function(*inputs)]

    def c_expression(self, arguments: Sequence[str], c_type: str) -> str:
        """The op in C, on expressions of one C type: float, double, int64_t, or bool."""
        wrapped = [a if a.isidentifier() else f"({a})" for a in arguments]
        text = self.entry.floating if c_type in ("float", "double") else self.entry.integer
        if not text or text.isidentifier():
            raise MissingMethodError(f"{self} has no C code for {c_type}")
        return text.format(*wrapped, f="f" if c_type == "float" else "")

    def exact(self, c_type: str) -> str | None:
        """C for a C type, with {0}, {1} for the arguments and {f} for the suffix of float's
        functions, that gives every bit that PyTorch's kernels give; None where there is none."""
        if self.name in _INEXACT:
            return None
        if c_type in ("float", "double"):
            return self.entry.floating
        return None if self._checked else self.entry.integer

    def c_code(self, node: Apply, name: str, inputs: Names, outputs: Names, sub: Sub) -> str:
        if not all(isinstance(v.type, NumberArg) for v in node.inputs):
            raise MissingMethodError(f"{self} has C code on its own for numbers only")
        kinds = [getattr(v.type, "kind", "") for v in node.inputs]
        chosen = kinds[1:] if self.name == "where" else kinds
        floating = "float" in chosen or self.entry.result == "float"
        c_type = "double" if floating else "int64_t"
        arguments = [
            f"({c_type}){n}" if not (self.name == "where" and i == 0) else n
            for i, n in enumerate(inputs)
        ]
        if floating and self.entry.integer is not None and "float" not in kinds:
            c_type, arguments = "int64_t", list(inputs)

        def refuse(condition: str, kind: str, why: str) -> str:
            error = f'cgotorch_make_error("{kind}", "{self}: {why}")'
            return f"if ({condition}) {{\npb_error = {error};\n{sub['fail']}\n}}\n"

        check = ""
        if self.name in ("div", "floor_divide", "remainder"):
            check = refuse(f"{inputs[1]} == 0", "ZeroDivisionError", "division by zero")
        result = "double" if self.entry.result == "float" else c_type
        if self.entry.result == "int" and floating:
            text = self.c_expression(arguments, "double")
            return _to_int(text, outputs[0], refuse)
        if self.name == "pow" and not floating:
            why = "an integer to a negative power is no integer"
            check = refuse(f"{inputs[1]} < 0", "ValueError", why)
        if self.name in _SHIFTS:
            check = refuse(f"{inputs[1]} < 0", "ValueError", "negative shift count")
        if c_type == "int64_t" and result == c_type and self._checked:
            given = ", ".join([*arguments, "&pb_result"])
            overflow = refuse(f"{self.entry.integer}({given})", "OverflowError", _MORE)
            return f"{check}int64_t pb_result;\n{overflow}{outputs[0]} = pb_result;"
        if self.name in _ORDERS and sorted(kinds) in (["bool", "float"], ["float", "int"]):
            swapped = kinds[0] == "float"
            a, b = reversed(inputs) if swapped else inputs
            return f"{outputs[0]} = (pb_order({a}, {b}) & {_ORDERS[self.name][swapped]}) != 0;"
        if self.name in ("div", "reciprocal") and "float" not in kinds:
            text = f"pb_divide({', '.join([*['1'][: 2 - self.arity], *inputs])})"
        else:
            text = self.c_expression(arguments, result if self.name == "div" else c_type)
        if result == "double" and self.name in _REFUSED:
            names = [f"(double){n}" for n in inputs]
            check += f"const double pb_result = {text};\n"
            for condition, kind, why in _REFUSED[self.name]:
                check += refuse(condition.format(*names, r="pb_result"), kind, why)
            text = "pb_result"
        return f"{check}{outputs[0]} = {text};"

    @property
    def _checked(self) -> bool:
        """Whether C for integers is a function that says whether the result fits."""
        return (self.entry.integer or "").isidentifier()

    def c_support_code(self) -> Sequence[str]:
        return [SUPPORT]

    def c_headers(self) -> Sequence[str]:
        return ["<math.h>", "<stdint.h>", "<string.h>"]

    def c_needs_gil(self, node: Apply) -> bool:
        return False

    def c_code_cache_version(self) -> tuple[Any, ...]:
        return (4,)


@closed
class NumberOf(Op):
    """A Scalar, such as item() returns, as a number of one kind: "int", "float" or "bool"."""

    __props__ = ("kind",)

    def __init__(self, kind: str) -> None:
        if kind not in _ORDER:
            raise BridgeTypeError(f"NumberOf: the kinds are {', '.join(_ORDER)}, not {kind!r}")
        self.kind = kind

    def make_node(self, x: Any) -> Apply:
        x = constant(x)
        if not isinstance(x.type, ScalarArg):
            raise BridgeTypeError(f"{self} needs a Scalar, got {x} of type {x.type}")
        return Apply(self, [x], [_number(self.kind).make_variable()])

    def perform(self, node: Apply, inputs: Values, output_storage: Storages) -> None:
        found = {"int": int, "float": float, "bool": bool}[self.kind](inputs[0])
        if self.kind == "int" and not -(1 << 63) <= found < 1 << 63:
            raise OverflowError(_MORE)
        output_storage[0][0] = found

    def trace(self, node: Apply, inputs: Sequence[Any]) -> list[Any]:
        import torch

        (x,) = inputs
        if self.kind == "bool":
            return [x if isinstance(x, (bool, torch.SymBool)) else x != 0]
        return [torch.sym_int(x) if self.kind == "int" else torch.sym_float(x)]

    def c_code(self, node: Apply, name: str, inputs: Names, outputs: Names, sub: Sub) -> str:
        (x,), (z,) = inputs, outputs
        floating = f"{x}.kind == ScalarFloat"
        if self.kind == "bool":
            parts = f"{x}.v.c[0] != 0 || {x}.v.c[1] != 0"
            whole = f"{floating} ? {x}.v.f != 0 : {x}.v.i != 0"
            return f"{z} = {x}.kind == ScalarComplex ? {parts} : {whole};"

        def refuse(condition: str, kind: str, why: str) -> str:
            error = f'cgotorch_make_error("{kind}", "{why}")'
            return f"if ({condition}) {{\npb_error = {error};\n{sub['fail']}\n}}\n"

        why = f"a complex number is no {self.kind}"
        unordered = refuse(f"{x}.kind == ScalarComplex", "TypeError", why)
        if self.kind == "float":
            whole = f"{x}.kind == ScalarUInt ? (double)(uint64_t){x}.v.i : (double){x}.v.i"
            return f"{unordered}{z} = {floating} ? {x}.v.f : {whole};"
        large = refuse(f"{x}.kind == ScalarUInt && {x}.v.i < 0", "OverflowError", _MORE)
        inside = _to_int(f"{x}.v.f", z, refuse)
        return f"{unordered}{large}if ({floating}) {{\n{inside}\n}} else {{\n{z} = {x}.v.i;\n}}"

    def c_support_code(self) -> Sequence[str]:
        return [SUPPORT]

    def c_headers(self) -> Sequence[str]:
        return ["cgotorch.h", "<math.h>", "<stdint.h>"]

    def c_needs_gil(self, node: Apply) -> bool:
        return False

    def c_code_cache_version(self) -> tuple[Any, ...]:
        return (3,)


_ops = {name: ScalarOp(name) for name in _S}
NAMES = tuple(_S)
_of_native = {op.entry.native.partition(".")[0]: op for op in _ops.values() if op.entry.native}


def by_native(base: str) -> ScalarOp:
    """The scalar op of a native function's name, without its overload."""
    return _of_native[base]


def native_form(scalar: Any, inputs: Sequence[Any], inplace: bool = False) -> Apply:
    """The node of the native function that a scalar op stands for."""
    inputs = [
        v.data if isinstance(v, Constant) and isinstance(v.type, NumberArg) else v for v in inputs
    ]
    name = scalar.entry.inplace if inplace else scalar.entry.native
    if not name:
        kind = "in place" if inplace else "on tensors"
        raise BridgeTypeError(f"{scalar} has no form {kind}")
    function = native(name)
    template, variables = function.split(function.bind(inputs, {}))
    return native_op(function, template, [v.type for v in variables]).make_node(*variables)


# torch's functions of its symbols of sizes, as scalar ops.
TORCH_SCALARS = {
    "sym_max": "maximum",
    "sym_min": "minimum",
    "sym_float": "sym_float",
    "sym_int": "sym_int",
    "sym_not": "logical_not",
    "sym_ite": "where",
    "sym_sqrt": "sqrt",
    "_sym_sqrt": "sqrt",
}


def of_torch(function: Any) -> str | None:
    """The scalar op that one of these functions of torch is; None for any other."""
    import torch

    return next((n for f, n in TORCH_SCALARS.items() if getattr(torch, f, None) is function), None)


def of_symbols(name: str) -> Callable[..., Any] | None:
    """torch's function that does to its symbols of sizes what a scalar op does to numbers; None
    where Python's own does."""
    import torch

    theirs = (f for f, mine in TORCH_SCALARS.items() if mine == name)
    return next((getattr(torch, f) for f in theirs if hasattr(torch, f)), None)


def __getattr__(name: str) -> ScalarOp:
    if name in _ops:
        return _ops[name]
    raise AttributeError(f"there is no scalar op {name!r}")
