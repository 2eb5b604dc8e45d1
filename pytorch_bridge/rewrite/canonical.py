"""Canonical forms: rules for what does nothing, does it twice, or undoes what was done.

What is *not* here, because it is not exact: x + 0 and x * 1 of floats (-0.0 + 0 is 0.0, a
multiplication quiets signalling NaNs and flushes denormal numbers where that is switched on),
x / c as x * (1 / c), folding a batch norm into its convolution, and everything that changes the
strides that a kernel meets.
"""

from __future__ import annotations

from typing import Any

from ..graph.basic import Apply, Variable
from ..ops.basic import Shape_i, ViewOp
from ..ops.native import NativeOp, native
from ..types import TensorType
from .known_strides import contiguous, no_ones, row_major, settled
from .rules import Rules, all_known, arguments, first, owner

rule = Rules("canonical")


def _shape(v: Any) -> tuple[int | None, ...] | None:
    """The sizes, where all are known."""
    shape = v.type.shape if isinstance(v, Variable) and isinstance(v.type, TensorType) else None
    return None if shape is None or None in shape else shape


def _dtype(v: Variable) -> str:
    return getattr(v.type, "dtype", None) or ""


def _complex(v: Variable) -> bool:
    return _dtype(v).startswith("complex") or not _dtype(v)


def _integer(v: Variable) -> bool:
    return "int" in _dtype(v)


# Functions that return their argument


@rule("alias(x), detach(x), x.view_as_itself -> x", "alias", "detach", "lift", ViewOp)
def _(node: Apply) -> Variable | None:
    return first(node)


@rule("dropout(x, train=False) -> x", "dropout", "feature_dropout", "alpha_dropout",
      "feature_alpha_dropout")  # fmt: skip
def _(node: Apply) -> Variable | None:
    return first(node) if arguments(node)["train"] is False else None


@rule("real(x), conj(x), resolve_conj(x) -> x, of real x", "real", "conj", "resolve_conj",
      "conj_physical")  # fmt: skip
def _(node: Apply) -> Variable | None:
    return None if _complex(first(node)) else first(node)


@rule("positive(x) -> x", "positive")
def _(node: Apply) -> Variable | None:
    return None if _dtype(first(node)) in ("", "bool") else first(node)


@rule("x.to(dtype) -> x, of that dtype", "to.dtype", "to.dtype_layout", "to.device", "to.other",
      "type_as")  # fmt: skip
def _(node: Apply) -> Variable | None:
    a, x = arguments(node), first(node)
    t = x.type
    if not isinstance(t, TensorType) or t.dtype is None or t.device != "cpu":
        return None
    if not all_known(a) or a.get("copy"):
        return None
    if a.get("layout") is not None or a.get("memory_format") is not None:
        return None
    if "other" in a:
        other = a["other"].type
        return x if (other.dtype, other.device) == (t.dtype, t.device) else None
    same = a["dtype"] in (None, t.torch_dtype)
    return x if same and str(a.get("device") or "cpu") == "cpu" else None


@rule("contiguous(x) -> x, of contiguous x", "contiguous")
def _(node: Apply) -> Variable | None:
    default = str(arguments(node)["memory_format"]) == "torch.contiguous_format"
    return first(node) if default and contiguous(first(node)) else None


@rule("expand(x, its own sizes) -> x", "expand", "broadcast_to")
def _(node: Apply) -> Variable | None:
    same = _shape(first(node)) is not None and _shape(node.outputs[0]) == _shape(first(node))
    return first(node) if same else None


@rule("view(x, its own sizes) -> x", "view", "reshape", "_unsafe_view")
def _(node: Apply) -> Variable | None:
    x = first(node)
    a = arguments(node)
    if "dtype" in a:
        return x if all_known(a) and a["dtype"] == getattr(x.type, "torch_dtype", None) else None
    same = _shape(x) is not None and _shape(node.outputs[0]) == _shape(x)
    # Elsewhere the strides of dimensions of size 1 are computed anew.
    return x if same and (no_ones(x) or row_major(x)) else None


@rule("x[:] -> x", "slice.Tensor")
def _(node: Apply) -> Variable | None:
    a, x = arguments(node), first(node)
    shape = getattr(x.type, "shape", None)
    if shape is None or any(isinstance(a[k], Variable) for k in ("start", "step")):
        return None
    if a["start"] not in (None, 0) or a["step"] != 1:
        return None
    end, size = a["end"], shape[a["dim"]] if isinstance(a["dim"], int) and shape else None
    whole = end is None or (isinstance(end, int) and end >= (2**63 - 1 if size is None else size))
    return x if whole and shape else None


@rule("narrow(x, d, 0, its size) -> x", "narrow")
def _(node: Apply) -> Variable | None:
    a, x = arguments(node), first(node)
    shape = getattr(x.type, "shape", None)
    if not shape or not all(isinstance(a[k], int) for k in ("dim", "start", "length")):
        return None
    return x if a["start"] == 0 and a["length"] == shape[a["dim"]] else None


@rule("squeeze(x, d) -> x, where that size is not 1", "squeeze.dim")
def _(node: Apply) -> Variable | None:
    a, shape = arguments(node), getattr(first(node).type, "shape", None)
    if not shape or not isinstance(a["dim"], int):
        return None
    return first(node) if shape[a["dim"]] not in (None, 1) else None


# Functions that only choose another

_PRODUCTS = {(2, 2): "mm", (2, 1): "mv", (1, 1): "dot"}


@rule("matmul(x, y) -> mm(x, y), mv(x, y) or dot(x, y)", "matmul")
def _(node: Apply) -> Variable | None:
    name = _PRODUCTS.get(tuple(getattr(v.type, "ndim", None) for v in node.inputs))  # type: ignore[arg-type]
    return None if name is None else native(name)(*node.inputs)


# One after the other


@rule("squeeze(unsqueeze(x, d), d) -> x", "squeeze.dim")
def _(node: Apply) -> Variable | None:
    inner = owner(first(node), "unsqueeze")
    ndim = getattr(first(node).type, "ndim", None)
    if inner is None or not ndim:
        return None
    dims = [arguments(n)["dim"] for n in (inner, node)]
    if not all(isinstance(d, int) for d in dims):
        return None
    return first(inner) if dims[0] % ndim == dims[1] % ndim else None


_PERMUTING = ("transpose.int", "t", "permute", "swapaxes", "swapdims", "numpy_T", "mT")


def _order(node: Apply) -> list[int] | None:
    """The dimensions of the input in the order in which the output has them."""
    ndim = getattr(first(node).type, "ndim", None)
    a = arguments(node)
    if ndim is None:
        return None
    order = list(range(ndim))
    if "dims" in a:  # of permute
        return [d % ndim for d in a["dims"]] if all(isinstance(d, int) for d in a["dims"]) else None
    if owner(node.outputs[0], "numpy_T"):
        return order[::-1]
    dims = [v for k, v in a.items() if k != "self"] or [-2, -1]
    if not all(isinstance(d, int) for d in dims) or not ndim:
        return None if ndim else order
    i, j = (d % ndim for d in dims)
    order[i], order[j] = order[j], order[i]
    return order


@rule("permute(permute(x)) -> permute(x) or x", *_PERMUTING)
def _(node: Apply) -> Variable | None:
    outer = _order(node)
    if outer is None:
        return None
    if outer == sorted(outer):
        return first(node)
    inner = owner(first(node), *_PERMUTING)
    before = None if inner is None else _order(inner)
    if inner is None or before is None:
        return None
    order = [before[d] for d in outer]
    if order == sorted(order):
        return first(inner)
    return native("permute")(first(inner), order)


@rule("view(view(x)) -> view(x), of row-major x", "view", "reshape", "_unsafe_view")
def _(node: Apply) -> Variable | None:
    inner = owner(first(node), "view", "reshape", "_unsafe_view")
    if inner is None or not row_major(first(inner)):
        return None
    if "dtype" in {*arguments(node), *arguments(inner)}:
        return None
    t = node.outputs[0].type
    return Apply(node.op, [first(inner), *node.inputs[1:]], [t.make_variable()]).outputs[0]


_EXACT = ("float32", "float64", "int8", "int16", "int32", "int64")


@rule("neg(neg(x)) -> x", "neg", copies=True)
def _(node: Apply) -> Variable | None:
    inner = owner(first(node), "neg")
    # Half-precision numbers may be rounded on the way, which loses what is in a NaN.
    exact = inner is not None and _dtype(first(node)) in _EXACT
    return first(inner) if inner is not None and exact and settled(first(inner)) else None


@rule("bitwise_not(bitwise_not(x)) -> x", "bitwise_not", copies=True)
def _(node: Apply) -> Variable | None:
    inner = owner(first(node), "bitwise_not")
    return first(inner) if inner is not None and settled(first(inner)) else None


@rule("logical_not(logical_not(x)) -> x, of bool x", "logical_not", copies=True)
def _(node: Apply) -> Variable | None:
    inner = owner(first(node), "logical_not")
    if inner is None or _dtype(first(inner)) != "bool":
        return None
    return first(inner) if settled(first(inner)) else None


_IDEMPOTENT = ("relu", "abs", "ceil", "floor", "trunc", "round")


@rule("f(f(x)) -> f(x), for relu, abs, ceil, floor, trunc, round", *_IDEMPOTENT, copies=True)
def _(node: Apply) -> Variable | None:
    x = first(node)
    same = x.owner is not None and x.owner.op == node.op and _dtype(x) in _EXACT
    return x if same and settled(x) else None


@rule("x * 1, x + 0, x - 0 -> x, of integers", "mul.Scalar", "add.Scalar", "sub.Scalar",
      copies=True)  # fmt: skip
def _(node: Apply) -> Variable | None:
    neutral = 1 if owner(node.outputs[0], "mul") else 0
    other, x = arguments(node)["other"], first(node)
    fits = isinstance(other, (int, bool)) and other == neutral and _integer(x)
    return x if fits and settled(x) else None


@rule("shape_i(f(x)) -> shape_i(x), of pointwise f", Shape_i)
def _(node: Apply) -> Variable | None:
    inner = getattr(first(node), "owner", None)
    if inner is None or not isinstance(inner.op, NativeOp) or len(inner.inputs) != 1:
        return None
    if not inner.op.native.pointwise:
        return None
    return node.op(first(inner))
