"""Native ops on single elements: what a Composite is made of when a graph's nodes are fused.

An op has one of two forms in a loop. An expression is C that gives, bit for bit, what PyTorch's
kernels give, wherever an element stands: sums, quotients, comparisons. A kernel is PyTorch's own
function, called for a block of elements: exp, tanh, gelu, whose last bits depend on the processor
and on the library that PyTorch was built with.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from ..errors import BridgeTypeError
from ..graph.basic import Apply, Variable
from ..schema.corrections import IN
from ..types import TensorType
from .fused_dtypes import FusedDType, fused_dtype, known
from .native import NativeFunction, NativeOp, find_packet, native_op
from .op import Op, closed
from .scalar import ScalarOp, by_native, native_form


@closed
class ElementOp(Op):
    """A native op that takes and returns elements: variables of tensor types without dimensions."""

    __props__ = ("op",)

    def __init__(self, op: NativeOp) -> None:
        self.op = op
        self.name = str(op)

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__

    def compute(self, values: Sequence[Any]) -> Any:
        """The op on tensors of any shape."""
        return self.op.call(values)


def native_node(node: Apply) -> Apply:
    """The native op of a node of elements, applied to the same variables."""
    if isinstance(node.op, ElementOp):
        return Apply(node.op.op, node.inputs, [v.type.make_variable() for v in node.outputs])
    assert isinstance(node.op, ScalarOp)
    return native_form(node.op, node.inputs)


@dataclass(frozen=True)
class Expression:
    """C on one element: `text` with {0}, {1} for the inputs, which are cast to the dtypes given.
    It is `representable` where the dtype of the result has the number, as when one is chosen, and
    for `contiguous` results only where the strides of others are not those of the inputs."""

    text: str
    casts: tuple[str, ...]
    representable: bool = False
    contiguous: bool = False


@dataclass(frozen=True)
class Kernel:
    """PyTorch's function that writes into its last input, `out`."""

    op: NativeOp
    contiguous: bool  # it is another kernel for tensors that are not contiguous


Form = Expression | Kernel


def form(op: NativeOp, inputs: Sequence[str], output: str) -> Form | None:
    """How a loop computes an op on inputs of these dtypes, which PyTorch gives the output of that
    dtype; None where it cannot."""
    dtypes = fused_dtype(output), *map(fused_dtype, inputs)
    return None if None in dtypes else _form(op, tuple(inputs), output, dtypes)


@cache
def _form(
    op: NativeOp, inputs: tuple[str, ...], output: str, dtypes: tuple[FusedDType, ...]
) -> Form | None:
    """`dtypes` are those of the output and the inputs, on which the answer depends."""
    values = {a.name: v for a, v in zip(op.native.function.arguments, op.arguments, strict=True)}
    base = op.native.base
    writer = _WRITERS.get(base)
    if writer is not None:
        found = writer(_Operands(op, values, inputs, output))
        if isinstance(found, Expression) and not _rounds_before(found, inputs):
            return replace(found, representable=base in _CHOOSING, contiguous=base in _CONTIGUOUS)
    if op.name in _KERNELS and dtypes[0].floating and all(d == output for d in inputs):
        out = _out_form(op.native)
        if out is not None and _all_inputs(op):
            return Kernel(native_op(out, (*op.arguments, IN), (), ()), base in _CONTIGUOUS)
    return None


def _rounds_before(found: Expression, inputs: Sequence[str]) -> bool:
    """Whether an input has to be rounded before it is computed with."""
    pairs = zip(inputs, found.casts, strict=True)
    return any(known(c).short and d not in (c, "bool") for d, c in pairs)


def _all_inputs(op: NativeOp) -> bool:
    """Whether no tensor is given by a number, or missing."""
    pairs = zip(op.native.function.arguments, op.arguments, strict=True)
    return all(v is IN for a, v in pairs if a.type.startswith("Tensor"))


@cache
def _out_form(function: NativeFunction) -> NativeFunction | None:
    """The overload that writes the result into one further argument, which is the last."""
    packet = find_packet(function.base)
    assert packet is not None
    wanted = [(a.name, a.type) for a in function.function.arguments]
    for candidate in packet.overloads.values():
        arguments = candidate.function.arguments
        if (
            len(arguments) == len(wanted) + 1
            and arguments[-1].written
            and [(a.name, a.type) for a in arguments[:-1]] == wanted
        ):
            return candidate
    return None


def literal(value: Any, dtype: str, rounded: bool = True) -> str | None:
    """A number in C as PyTorch's kernels have it in a tensor's dtype, or, without `rounded`, in
    the type that they compute in; None where there is none."""
    import torch

    how, of = known(dtype), getattr(torch, dtype)
    if dtype == "bool":
        return ("true" if value else "false") if isinstance(value, bool) else None
    if how.integer:
        bounds = torch.iinfo(of)
        least, most = max(bounds.min, -(2**31) + 1), min(bounds.max, 2**31 - 1)
        if not isinstance(value, int) or not least <= value <= most:
            return None
        return f"({how.computed}){int(value)}"
    if isinstance(value, complex):
        return None
    if isinstance(value, int) and abs(value) > 2**53:
        return None
    value = float(value)
    if math.isfinite(value) and abs(value) > torch.finfo(of).max:
        return None  # some kernels raise, others make it infinite
    if how.short and rounded:
        value = torch.tensor(value, dtype=of).item()
    if math.isnan(value) and struct.pack("<d", value) != struct.pack("<d", math.nan):
        return None  # its sign and its payload are kept by the kernels
    if math.isnan(value) or math.isinf(value):
        text = "NAN" if math.isnan(value) else "INFINITY" if value > 0 else "-INFINITY"
        return f"({how.computed}){text}"
    return f"({how.computed}){value.hex()}"


class _Operands:
    """The arguments of one op, as they are written in C."""

    def __init__(
        self, op: NativeOp, values: dict[str, Any], inputs: tuple[str, ...], output: str
    ) -> None:
        self.op, self.values, self.inputs, self.output = op, values, inputs, output

    @property
    def floats(self) -> bool:
        return known(self.output).floating

    def takes_bool(self) -> bool:
        """Whether an operand is a truth value, which PyTorch subtracts from nothing."""
        return "bool" in self.inputs or any(isinstance(v, bool) for v in self.values.values())

    def __getitem__(self, name: str) -> Any:
        return self.values.get(name)

    def text(self, name: str, dtype: str, rounded: bool = True) -> str | None:
        """An argument in C: an input's place, or a number."""
        value = self.values[name]
        if value is IN:
            return f"{{{self.op.places[name][0]}}}"
        return None if value is None or isinstance(value, tuple) else literal(value, dtype, rounded)

    def common(self, *names: str) -> str | None:
        """The dtype in which PyTorch compares arguments, where it is clear."""
        dtypes = {self.inputs[self.op.places[n][0]] for n in names if self.values[n] is IN}
        if len(dtypes) != 1:
            return None
        (dtype,) = dtypes
        numbers = [self.values[n] for n in names if self.values[n] is not IN]
        if not known(dtype).floating and any(type(v) is not int for v in numbers):
            return None
        return dtype

    def expression(
        self, template: str, dtype: str, *names: str, rounded: bool = True
    ) -> Expression | None:
        """The template with {0}, {1} for the named arguments, all in one dtype; numbers among them
        are `rounded` to it, or as kernels have them that compute with more digits."""
        if not self.values.keys() <= {*names, "alpha", "rounding_mode"}:
            return None
        parts = [self.text(n, dtype, rounded) for n in names]
        if any(p is None for p in parts):
            return None
        places = [p for n in names for p in self.op.places[n]]
        if len(places) != len(self.inputs):
            return None
        casts = [dtype] * len(places)
        t = known(dtype).computed
        return Expression(template.format(*parts, f="f" if t == "float" else "", t=t), tuple(casts))


Writer = Callable[[_Operands], Form | None]


def _wrapping(template: str, dtype: str) -> str:
    """A sum or product of integers that wraps around, which signed ones must not in C."""
    unsigned = "uint64_t" if dtype == "int64" else "uint32_t"
    operands = [f"({unsigned}){{{k}}}" for k in range(2)]
    return f"({known(dtype).computed})({template.format(*operands)})"


def _entry(op: NativeOp) -> Any:
    """What scalar ops know of an overload: `add.Scalar` is that of `add.Tensor`."""
    base = op.native.base
    return by_native(base)


def _sum(o: _Operands) -> Form | None:
    """add, sub, mul: `alpha` is 1, or the kernel's business."""
    alpha = o["alpha"]
    if o.output == "bool" or (alpha is not None and (alpha is IN or alpha != 1)):
        return None
    if o.op.name.startswith("sub") and o.takes_bool():
        return None
    template = _entry(o.op).exact("double")
    if not o.floats:
        template = _wrapping(template, o.output)
    product = o.op.name.startswith("mul")
    return o.expression(template, o.output, "self", "other", rounded=not product)


def _rsub(o: _Operands) -> Form | None:
    if not o.floats or o["alpha"] != 1 or o.takes_bool():
        return None
    return o.expression("{1} - {0}", o.output, "self", "other")


def _quotient(o: _Operands) -> Form | None:
    if not o.floats or o["rounding_mode"] is not None:
        return None
    return o.expression("{0} / {1}", o.output, "self", "other", rounded=False)


def _unary(o: _Operands) -> Form | None:
    if o.output == "bool":
        return None
    template = _entry(o.op).exact(known(o.output).computed)
    return o.expression(template, o.output, "self") if template else None


def _negative(o: _Operands) -> Form | None:
    if known(o.output).integer:
        return o.expression(_wrapping("0 - {0}", o.output), o.output, "self")
    return _unary(o)


def _absolute(o: _Operands) -> Form | None:
    if known(o.output).integer:
        negative = _wrapping("0 - {0}", o.output)
        return o.expression(f"{{0}} < 0 ? {negative} : {{0}}", o.output, "self")
    return _unary(o)


def _square(o: _Operands) -> Form | None:
    if known(o.output).integer:
        return o.expression(_wrapping("{0} * {0}", o.output), o.output, "self")
    return _unary(o)


def _comparison(o: _Operands) -> Form | None:
    dtype = o.common("self", "other")
    if dtype is None or dtype == "bool":
        return None
    return o.expression(_entry(o.op).exact("double"), dtype, "self", "other")


def _logical(o: _Operands) -> Form | None:
    names = [a.name for a in o.op.native.function.arguments]
    if any(d != "bool" for d in o.inputs):
        return None
    return o.expression(_entry(o.op).exact("bool"), "bool", *names)


def _bits(o: _Operands) -> Form | None:
    if o.floats:
        return None
    names = [a.name for a in o.op.native.function.arguments]
    if o.output == "bool" and o.op.name == "bitwise_not":
        return o.expression("!{0}", "bool", *names)
    return o.expression(_entry(o.op).exact("int64_t"), o.output, *names)


def _choice(condition: str, template: str, names: Sequence[str]) -> Writer:
    def write(o: _Operands) -> Form | None:
        if o[condition] is not IN or o.inputs[o.op.places[condition][0]] != "bool":
            return None
        parts = {n: o.text(n, o.output) for n in names}
        if any(p is None for p in parts.values()):
            return None
        place = o.op.places[condition][0]
        casts = [o.output] * len(o.inputs)
        casts[place] = "bool"
        return Expression(template.format(f"{{{place}}}", *parts.values()), tuple(casts))

    return write


def _clamp(o: _Operands) -> Form | None:
    """Bounds that are numbers; of equal values, and for NaN, the element itself."""
    if o.output == "bool" or any(isinstance(o[n], float) and math.isnan(o[n]) for n in _BOUNDS):
        return None
    low, high = (next((o[n] for n in names if n in o.values), None) for names in _BOUND_NAMES)
    if low is IN or high is IN:
        return None
    text = "{0}"
    for bound, sign in ((low, "<"), (high, ">")):
        if bound is not None:
            c = literal(bound, o.output)
            if c is None:
                return None
            # Twice the text of a text grows; there are two at most.
            text = f"(({text}) {sign} {c} ? {c} : ({text}))"
    if low is None and high is None:
        return None
    return Expression(text, (o.output,)) if len(o.inputs) == 1 else None


_BOUND_NAMES = (("min", "min_val"), ("max", "max_val"))
_BOUNDS = tuple(n for names in _BOUND_NAMES for n in names)


def _clamp_one(side: str) -> Writer:
    def write(o: _Operands) -> Form | None:
        bound = o[side]
        if o.output == "bool" or bound is IN or (isinstance(bound, float) and math.isnan(bound)):
            return None
        sign = "<" if side == "min" else ">"
        return o.expression(f"{{0}} {sign} {{1}} ? {{1}} : {{0}}", o.output, "self", side)

    return write


def _relu6(o: _Operands) -> Form | None:
    return Expression("({0} < 0 ? 0 : {0} > 6 ? 6 : {0})", (o.output,)) if o.floats else None


def _power(o: _Operands) -> Form | None:
    """The exponents for which PyTorch multiplies."""
    if o.op.name != "pow.Tensor_Scalar" or not o.floats:
        return None
    exponent = o["exponent"]
    if exponent is IN or isinstance(exponent, (bool, complex)):
        return None
    template = _POWERS.get(float(exponent))
    return o.expression(template, o.output, "self") if template else None


_POWERS = {
    2.0: "{0} * {0}",
    3.0: "{0} * {0} * {0}",
    -1.0: "1 / {0}",
    -2.0: "1 / ({0} * {0})",
}


def _threshold(o: _Operands) -> Form | None:
    if not o.floats:
        return None
    names = ("self", "threshold", "value")
    return o.expression("{0} <= {1} ? {2} : {0}", o.output, *names, rounded=False)


def _threshold_backward(o: _Operands) -> Form | None:
    if not o.floats:
        return None
    names = ("grad_output", "self", "threshold")
    return o.expression("{1} <= {2} ? 0 : {0}", o.output, *names, rounded=False)


def _leaky_relu(o: _Operands) -> Form | None:
    if not o.floats:
        return None
    names = ("self", "negative_slope")
    return o.expression("{0} > 0 ? {0} : {0} * {1}", o.output, *names, rounded=False)


def _conversion(o: _Operands) -> Form | None:
    """A cast that changes the dtype and nothing else."""
    asked = [
        n for n, v in o.values.items() if n not in ("self", "dtype") and v not in (None, False)
    ]
    (source,) = o.inputs
    if o["dtype"] is None or source == o.output or o["dtype"] is IN:
        return None
    import torch

    if any(not (n == "memory_format" and o[n] == torch.preserve_format) for n in asked):
        return None
    if o.output == "bool":
        return Expression("{0} != 0", (source,))
    if known(source).floating and known(o.output).integer:
        return None  # what a number becomes that does not fit depends on the processor
    return Expression(f"({known(o.output).computed}){{0}}", (source,))


_WRITERS: dict[str, Writer] = {
    "add": _sum,
    "sub": _sum,
    "mul": _sum,
    "rsub": _rsub,
    "div": _quotient,
    "neg": _negative,
    "abs": _absolute,
    "square": _square,
    "clamp": _clamp,
    "hardtanh": _clamp,
    "clamp_min": _clamp_one("min"),
    "clamp_max": _clamp_one("max"),
    "relu6": _relu6,
    "pow": _power,
    "threshold": _threshold,
    "threshold_backward": _threshold_backward,
    "leaky_relu": _leaky_relu,
    "where": _choice("condition", "{0} ? {1} : {2}", ("self", "other")),
    "masked_fill": _choice("mask", "{0} ? {2} : {1}", ("self", "value")),
    "_to_copy": _conversion,
    **dict.fromkeys(("relu", "reciprocal", "sign"), _unary),
    **dict.fromkeys(("floor", "ceil", "trunc", "round"), _unary),
    **dict.fromkeys(("lt", "le", "gt", "ge", "eq", "ne"), _comparison),
    **dict.fromkeys(("logical_and", "logical_or", "logical_not"), _logical),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"), _bits),
}

# Those whose result is one of the numbers that they are given, its opposite, or a whole number near
# it.
_CHOOSING = frozenset(
    [
        *("neg", "abs", "relu", "relu6", "sign", "floor", "ceil", "trunc", "round", "clamp"),
        *("clamp_min", "clamp_max", "hardtanh", "threshold_backward", "where", "masked_fill"),
    ]
)

# Functions whose kernels, given a block of 4,096 elements or more, give what they give in the
# whole.
_KERNELS = frozenset(
    [
        *("add.Tensor", "sub.Tensor", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2"),
        *("log10", "log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan"),
        *("atan2", "erf", "erfc", "sigmoid", "silu", "gelu", "mish", "softplus", "elu"),
        *("hardswish", "hardsigmoid", "maximum", "minimum", "pow.Tensor_Scalar"),
        *("pow.Tensor_Tensor", "tanh_backward", "sigmoid_backward", "gelu_backward"),
        "silu_backward",
    ]
)


# Those that oneDNN computes where results are contiguous, and the one whose result always is.
_CONTIGUOUS = frozenset(["gelu", "gelu_backward", "masked_fill"])


def element(dtype: str) -> Variable:
    """A variable for one element of a dtype."""
    return TensorType(dtype, ())()


def element_node(op: NativeOp, inputs: Sequence[Variable], dtype: str) -> Apply:
    """The application to elements. `dtype` is what PyTorch makes of whole tensors: a tensor without
    dimensions takes less part in type promotion than an element of a larger one."""
    if len(inputs) != op.n_inputs:
        raise BridgeTypeError(f"{op} takes {op.n_inputs} inputs, got {len(inputs)}")
    return Apply(ElementOp(op), inputs, [element(dtype)])


__all__ = ["ElementOp", "Expression", "Form", "Kernel", "element", "element_node"]
__all__ += ["form", "literal", "native_node"]
