"""Ops that look at strides at each call, because types have none: to see whether a function has
returned a view, and to keep the strides of a tensor that is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import BridgeTypeError
from ..graph.basic import Apply
from ..types import TensorType
from ..types.base import Sub
from .functions import IN
from .native import NativeOp, native, native_op
from .op import CallsTorch, Gradients, Names, Storages, Values, Variables, closed


@closed
class IfView(CallsTorch):
    """One of its last two inputs: the first of them where `op`, applied to the inputs before them,
    returns a view of its first input, else the second."""

    __props__ = ("op",)
    only_calls = True

    def __init__(self, op: NativeOp) -> None:
        if not op.n_inputs or len(op.native.results) != 1 or op.lists or op.destroy_map:
            raise BridgeTypeError(f"{op} is no function that returns one tensor, perhaps a view")
        self.op = op
        self.view_map = {0: [op.n_inputs, op.n_inputs + 1]}

    def make_node(self, *inputs: Any) -> Apply:
        if len(inputs) != self.op.n_inputs + 2:
            raise BridgeTypeError(f"{self} takes {self.op.n_inputs + 2} inputs, got {len(inputs)}")
        return Apply(self, inputs, [inputs[-2].type.make_variable()])

    def grad(self, inputs: Variables, output_grads: Variables) -> Gradients:
        (g,) = output_grads
        if g is None:
            return [None] * len(inputs)
        (nothing,) = native("zeros_like").make_node(g).outputs
        looked_at = inputs[:-2]
        taken = self.make_node(*looked_at, g, nothing).outputs[0]
        other = self.make_node(*looked_at, nothing, g).outputs[0]
        return [*[None] * len(looked_at), taken, other]

    def perform(self, node: Apply, inputs: Values, output_storage: Storages) -> None:
        made = self.op.call(inputs[:-2])
        output_storage[0][0] = inputs[-2] if _share(made, inputs[0]) else inputs[-1]

    def c_code(self, node: Apply, name: str, inputs: Names, outputs: Names, sub: Sub) -> str:
        looked_at = node.inputs[: self.op.n_inputs]
        made, leave = f"{name}_made", f"goto {name}_done;"
        call = Apply(self.op, looked_at, [TensorType()()])
        code = self.op.c_code(call, name, inputs[:-2], [made], {"fail": f"{{ {leave} }}"})
        return "\n".join(
            [
                f"Tensor {made} = NULL;\nTensorInfo {name}_x, {name}_y;\n{{\n{code}\n}}",
                f"if ((pb_error = GetTensorInfo({inputs[0]}, &{name}_x))) {leave}",
                f"if ((pb_error = GetTensorInfo({made}, &{name}_y))) {leave}",
                f"FreeTensor({outputs[0]});",
                f"{outputs[0]} = RetainTensor({name}_x.storage_id == {name}_y.storage_id ? "
                f"{inputs[-2]} : {inputs[-1]});",
                f"{name}_done:;\nFreeTensor({made});\nif (pb_error) {{\n{sub['fail']}\n}}",
            ]
        )


def _share(a: Any, b: Any) -> bool:
    return bool(a.untyped_storage()._cdata == b.untyped_storage()._cdata)


@closed
class WithStrides(CallsTorch):
    """Its second input with the strides of the first, which has the same sizes: as it is where it
    has them, else a copy."""

    __props__ = ()
    only_calls = True
    view_map = {0: [1]}  # noqa: RUF012

    _copy = native_op(native("copy"), (IN, IN, False), (), ())

    def make_node(self, x: Any, new: Any) -> Apply:
        return Apply(self, [x, new], [new.type.make_variable()])

    def grad(self, inputs: Variables, output_grads: Variables) -> Gradients:
        return [None, *output_grads]

    def perform(self, node: Apply, inputs: Values, output_storage: Storages) -> None:
        output_storage[0][0] = laid_out(*inputs)

    def c_code(self, node: Apply, name: str, inputs: Names, outputs: Names, sub: Sub) -> str:
        copy = self._copy.c_code(node, name, inputs, outputs, sub)
        return "\n".join(
            [
                f"int {name}_alike = 0;",
                f"if ((pb_error = pb_laid_out_alike({inputs[0]}, {inputs[1]}, &{name}_alike))) {{\n"
                f"{sub['fail']}\n}}",
                f"if ({name}_alike) {{\nFreeTensor({outputs[0]});",
                f"{outputs[0]} = RetainTensor({inputs[1]});\n}} else {{\n{copy}\n}}",
            ]
        )

    def c_support_code(self) -> Sequence[str]:
        return [_SUPPORT]


with_strides = WithStrides()


@closed
class FilledLike(CallsTorch):
    """Its second input with its elements in the order of the first one's, by the strides of that,
    but the last dimension innermost: itself where they are so, else a copy. Both have as many
    dimensions."""

    __props__ = ()
    only_calls = True
    view_map = {0: [1]}  # noqa: RUF012

    def make_node(self, x: Any, new: Any) -> Apply:
        return Apply(self, [x, new], [new.type.make_variable()])

    def grad(self, inputs: Variables, output_grads: Variables) -> Gradients:
        return [None, *output_grads]

    def perform(self, node: Apply, inputs: Values, output_storage: Storages) -> None:
        x, new = inputs
        last = x.ndim - 1
        order = sorted(range(x.ndim), key=lambda d: (x.stride(d), -d))
        strides = _strides(new.shape, order)
        if strides and strides[last] != 1:
            strides = _strides(new.shape, [last, *(d for d in order if d != last)])
        if strides != list(new.stride()):
            new = new.new_empty_strided(new.shape, strides).copy_(new)
        output_storage[0][0] = new

    def c_code(self, node: Apply, name: str, inputs: Names, outputs: Names, sub: Sub) -> str:
        return (
            f"FreeTensor({outputs[0]});\n{outputs[0]} = NULL;\n"
            f"if ((pb_error = pb_filled_like({inputs[0]}, {inputs[1]}, &{outputs[0]}))) {{\n"
            f"{sub['fail']}\n}}"
        )

    def c_support_code(self) -> Sequence[str]:
        return [_FILLED]


def _strides(shape: Sequence[int], order: Sequence[int]) -> list[int]:
    """The strides of elements without gaps, where dimensions are from the innermost one on in an
    order."""
    strides, size = [0] * len(shape), 1
    for d in order:
        strides[d] = size
        size *= shape[d]
    return strides


filled_like = FilledLike()


def laid_out(x: Any, new: Any) -> Any:
    """A tensor with the strides of x, which has the same sizes: itself where it has them, else a
    copy."""
    import torch

    strided = x.layout == new.layout == torch.strided and not (x.is_nested or new.is_nested)
    return torch.ops.aten.copy(x, new) if strided and x.stride() != new.stride() else new


_SUPPORT = r"""
/* Whether two tensors of the same sizes have the same strides, or one of them has none. */
static const char *pb_laid_out_alike(Tensor x, Tensor y, int *alike) {
  TensorInfo a, b;
  const char *error = GetTensorInfo(x, &a);
  if (!error) error = GetTensorInfo(y, &b);
  if (error) return error;
  *alike = 1;
  if (!a.strides || !b.strides || a.ndim != b.ndim) return NULL;
  for (int64_t d = 0; d < a.ndim; d++) *alike = *alike && a.strides[d] == b.strides[d];
  return NULL;
}
"""

_FILLED = r"""
/* y, or a copy of it, whose elements lie in the order of the strides of x, those of the last
 * dimension side by side. */
static const char *pb_filled_like(Tensor x, Tensor y, Tensor *result) {
  TensorInfo a, b;
  const char *error = GetTensorInfo(x, &a);
  if (!error) error = GetTensorInfo(y, &b);
  if (error) return error;
  int64_t order[64], strides[64], size = 1, n = a.ndim;
  int alike = 1;
  if (n != b.ndim || n > 64 || !a.strides || !b.strides)
    return cgotorch_make_error("RuntimeError", "tensors of other dimensions");
  for (int64_t d = n - 1; d >= 0; d--) { /* of equal strides the last comes first */
    int64_t i = n - 1 - d;
    for (; i > 0 && a.strides[order[i - 1]] > a.strides[d]; i--) order[i] = order[i - 1];
    order[i] = d;
  }
  for (int64_t i = 0; i < n; size *= b.sizes[order[i]], i++) strides[order[i]] = size;
  if (n && strides[n - 1] != 1) {
    int64_t i = 0;
    while (order[i] != n - 1) i++;
    for (; i > 0; i--) order[i] = order[i - 1];
    order[0] = n - 1;
    size = 1;
    for (int64_t k = 0; k < n; size *= b.sizes[order[k]], k++) strides[order[k]] = size;
  }
  for (int64_t d = 0; d < n; d++) alike = alike && strides[d] == b.strides[d];
  if (alike) {
    *result = RetainTensor(y);
    return NULL;
  }
  Tensor made = NULL;
  error = NewEmptyStrided(y, b.sizes, n, strides, n, NULL, NULL, NULL, NULL, &made);
  if (!error) error = Copy_(made, y, false, result);
  FreeTensor(made);
  return error;
}
"""
