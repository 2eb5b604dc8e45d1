"""InPlace: a native function whose result is made in the memory of its first argument: a pointwise
one, or one that copies that argument and then writes some elements of the copy.

Nothing tells it from the function itself: the dtype, the sizes and the strides of the result are
those that it would have otherwise, or else it *is* computed otherwise. That is decided by each
call, because open sizes and the layout of what a caller gives are known then only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from ..errors import BridgeTypeError
from ..graph.basic import Apply
from ..ops.native import SHORT, NativeFunction, NativeOp, native_op
from ..ops.op import CallsTorch, Names, Storages, Values, closed
from ..schema.corrections import corrected
from ..types import TensorType
from ..types.base import Sub
from ..types.tensor import TensorArg


@cache
def writing_form(function: NativeFunction) -> NativeFunction | None:
    """The overload that writes into its argument self and is the same function otherwise:
    `add_.Tensor` for `add.Tensor`, `pow_.Scalar` for `pow.Tensor_Scalar`. None where there is none,
    and for what is neither pointwise nor writes into a copy."""
    if not (function.pointwise or writes_into_a_copy(function)) or len(function.results) != 1:
        return None
    found = function.in_place
    if corrected("own_layout", function.name) or found is None or found.returns_written:
        return None
    try:
        _ = found.torch_op
    except BridgeTypeError:
        return None
    return found


def writes_into_a_copy(function: NativeFunction) -> bool:
    """Whether a function copies its first argument and then writes into the copy, which is
    row-major where the argument is."""
    return corrected("copying", function.name) is not None


@closed
class InPlace(CallsTorch):
    """The node of a NativeOp, which `writing_form` has a form of, with the result in the memory of
    `self` where that makes no difference. The input is destroyed in either case.

    BridgeTypeError from make_node where the result cannot have self's dtype and sizes.
    """

    __props__ = ("op",)
    only_calls = True

    def __init__(self, op: NativeOp) -> None:
        form = writing_form(op.native)
        if form is None or not op.places.get("self"):
            raise BridgeTypeError(f"{op} has no form that writes into its first argument")
        self.op = op
        (self.place,) = op.places["self"]
        types = [TensorType()] * op.n_inputs
        self.writing = native_op(form, op.arguments, types)
        self.destroy_map = {0: [self.place]}
        self.copying = writes_into_a_copy(op.native)
        self.destroys_what_it_reads = not self.copying  # `x.mul_(x)` is PyTorch's to allow

    def __str__(self) -> str:
        return f"{self.op}[in place]"

    __repr__ = __str__

    def fits(self, node: Apply) -> bool:
        """Whether a node of the op may have its result in self, as far as the types know."""
        x, y = node.inputs[self.place].type, node.outputs[0].type
        if not isinstance(x, TensorType) or not isinstance(y, TensorType):
            return False
        if x.dtype is None or x.dtype != y.dtype or x.device != "cpu" or y.device != "cpu":
            return False
        if not rounds_alike(x.dtype) or (x.dtype in SHORT and self.writing.native.rounds_number):
            return False
        if x.shape is None or y.shape is None or len(x.shape) != len(y.shape):
            return False
        return all(None in (a, b) or a == b for a, b in zip(x.shape, y.shape, strict=True))

    def make_node(self, *inputs: Any) -> Apply:
        node = self.op.make_node(*inputs)
        if not self.fits(node):
            raise BridgeTypeError(
                f"{self}: the result, {node.outputs[0].type}, cannot be made in "
                f"{node.inputs[self.place]} of type {node.inputs[self.place].type}"
            )
        return self.of(node)

    def of(self, node: Apply) -> Apply:
        """The node in the place of one of the op."""
        return Apply(self, node.inputs, [node.outputs[0].type.make_variable()])

    # In Python
    def _others(self, values: Sequence[Any], node: Apply) -> list[Any]:
        return [
            value
            for i, (v, value) in enumerate(zip(node.inputs, values, strict=True))
            if i != self.place and isinstance(v.type, TensorArg) and value is not None
        ]

    def perform(self, node: Apply, inputs: Values, output_storage: Storages) -> None:
        x = inputs[self.place]
        if self.copying:
            here = x.is_contiguous() and makes_no_difference(x, [])
        else:
            here = makes_no_difference(x, self._others(inputs, node))
        output_storage[0][0] = (self.writing if here else self.op).call(inputs)

    # In C
    def c_code(self, node: Apply, name: str, inputs: Names, outputs: Names, sub: Sub) -> str:
        code = self.op.c_code(node, name, inputs, outputs, sub)
        x = inputs[self.place]
        others = [
            c
            for i, (v, c) in enumerate(zip(node.inputs, inputs, strict=True))
            if i != self.place and isinstance(v.type, TensorArg)
        ]
        if self.copying:
            lines = [f"const int in_place = pb_in_place({x}, NULL, 0) && pb_row_major({x});"]
        else:
            lines = [
                f"const Tensor others[] = {{{', '.join(others) or 'NULL'}}};",
                f"const int in_place = pb_in_place({x}, others, {len(others)});",
            ]
        one, two = self.writing.c_name, self.op.c_name
        called = re.sub(rf"\b{two}\(", f"(in_place ? {one} : {two})(", code)
        return "\n".join([*lines, called])

    def c_support_code(self) -> Sequence[str]:
        return [_SUPPORT, _ROW_MAJOR] if self.copying else [_SUPPORT]


def rounds_alike(dtype: str | None) -> bool:
    """Whether PyTorch's pointwise kernels give the same bits in place, for all functions. Those of
    complex numbers round several times for each element, and compilers order that otherwise where
    the result may lie in an argument's memory."""
    return dtype is not None and not dtype.startswith("complex")


def makes_no_difference(x: Any, others: Sequence[Any]) -> bool:
    """Whether the result of a pointwise function with x's dtype, made in x, has the layout that it
    would have in memory of its own.

    x must fill a storage of its own. The rules by which PyTorch lays a result out, for operands
    of one shape: contiguous if all are; in the order of channels_last if all are; with their
    strides if all have the same and leave no gaps. Where one of the others is broadcast, x
    decides alone if it is contiguous without sizes of 1, and that one is contiguous.
    """
    import torch

    if x.layout != torch.strided or x.is_nested or x.is_conj() or x.is_neg():
        return False
    n = x.numel()
    if n == 0 or x.storage_offset() or x.untyped_storage().nbytes() != n * x.element_size():
        return False
    channels = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    if x.is_contiguous():
        known = torch.contiguous_format
        expected = torch.empty(x.shape, device="meta").stride()
    elif channels is not None and x.is_contiguous(memory_format=channels):
        known = channels
        expected = torch.empty(x.shape, device="meta", memory_format=channels).stride()
    else:
        known = None
        expected = x.stride() if is_dense(x) else None
    if x.stride() != expected:
        return False
    for y in others:
        if y.layout != torch.strided or y.is_nested:
            return False
        if y.shape == x.shape:
            if known is None:
                same = y.stride() == x.stride()
            else:
                same = y.is_contiguous(memory_format=known)
        else:
            fits = y.dim() <= x.dim() and all(
                a in (1, b) for a, b in zip(reversed(y.shape), reversed(x.shape), strict=False)
            )
            plain = known == torch.contiguous_format and 1 not in x.shape and y.is_contiguous()
            same = y.dim() == 0 or (fits and plain)
        if not same:
            return False
    return True


def is_dense(x: Any) -> bool:
    """Whether the elements of a strided tensor fill their memory without gaps or overlaps."""
    expected = 1
    for stride, size in sorted((a, b) for a, b in zip(x.stride(), x.shape, strict=True) if b != 1):
        if stride != expected:
            return x.numel() < 2
        expected *= size
    return True


_SUPPORT = r"""
/* Whether dims in an order, the fastest last, are dense: their strides are those of new memory. */
static int pb_laid_out(const TensorInfo *info, const int *order) {
  int64_t stride = 1;
  for (int64_t k = info->ndim; k-- > 0;) {
    const int d = order ? order[k] : (int)k;
    if (info->strides[d] != stride) return 0;
    stride *= info->sizes[d];
  }
  return 1;
}

/* Whether the result of a pointwise function, made in x, looks as it does in memory of its own:
 * pytorch_bridge/aliasing/in_place.py, makes_no_difference. Besides, nobody else may have x's
 * memory. */
static int pb_in_place(Tensor x, const Tensor *others, int n) {
  static const int last_2d[] = {0, 2, 3, 1}, last_3d[] = {0, 2, 3, 4, 1};
  const int lazy = TensorConj | TensorNeg | TensorNested;
  TensorInfo a, b;
  int known, ones = 0;
  const char *error = GetTensorInfo(x, &a);
  if (error) {
    FreeString(error);
    return 0;
  }
  if ((a.flags & lazy) || !a.strides || a.numel == 0 || a.storage_offset ||
      a.storage_nbytes != a.numel * a.itemsize || a.storage_uses != 1 || a.uses != 1)
    return 0;
  known = a.flags & (TensorContiguous | TensorChannelsLast);
  if (known & TensorContiguous) {
    known = TensorContiguous;
    if (!pb_laid_out(&a, NULL)) return 0;
  } else if (known) {
    if (!pb_laid_out(&a, a.ndim == 4 ? last_2d : last_3d)) return 0;
  } else if (!(a.flags & TensorNonOverlapping)) {
    return 0;
  }
  for (int64_t d = 0; d < a.ndim; d++) ones |= a.sizes[d] == 1;
  for (int i = 0; i < n; i++) {
    int same, fits;
    if (!others[i] || others[i] == x) continue;
    if ((error = GetTensorInfo(others[i], &b))) {
      FreeString(error);
      return 0;
    }
    if (!b.strides) {
      if (b.ndim == 0 && b.numel == 1) continue;
      return 0;
    }
    if (b.ndim == 0) continue;
    same = fits = b.ndim <= a.ndim;
    same = same && b.ndim == a.ndim;
    for (int64_t d = 1; fits && d <= b.ndim; d++) {
      const int64_t mine = a.sizes[a.ndim - d], theirs = b.sizes[b.ndim - d];
      same = same && mine == theirs;
      fits = theirs == 1 || theirs == mine;
    }
    if (!fits) return 0;
    if (!same) {
      if (known != TensorContiguous || ones || !(b.flags & TensorContiguous)) return 0;
    } else if (known) {
      if (!(b.flags & known)) return 0;
    } else {
      for (int64_t d = 0; d < a.ndim; d++)
        if (a.strides[d] != b.strides[d]) return 0;
    }
  }
  return 1;
}
"""

_ROW_MAJOR = r"""
static int pb_row_major(Tensor x) {
  TensorInfo info;
  const char *error = GetTensorInfo(x, &info);
  if (error) FreeString(error);
  return !error && (info.flags & TensorContiguous);
}
"""
