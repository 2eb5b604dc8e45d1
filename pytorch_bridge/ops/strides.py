"""What depends on strides, which no type knows: whether a function returns a view, and the strides
of what is written. Each call looks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import BridgeTypeError
from ..graph.basic import Apply
from ..types import TensorType
from ..types.base import Sub
from .functions import IN
from .in_place import is_dense
from .native import NativeOp, native, native_op
from .op import CallsTorch, Gradients, Names, Storages, Values, Variables


def clone_of(t: Any) -> Any:
    """A copy of a tensor with its strides, also where there are gaps between its elements."""
    import torch

    if t.layout != torch.strided or t.is_nested or t.is_quantized or is_dense(t) or 0 in t.stride():
        return t.clone()
    return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device).copy_(t)


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


class WithStrides(CallsTorch):
    """Its second input with the strides of the first, which has the same sizes: itself where it has
    them, else a copy."""

    __props__ = ()
    only_calls = True
    view_map = {0: [1]}  # noqa: RUF012

    _copy = native_op(native("copy"), (IN, IN, False), (), ())

    def make_node(self, x: Any, new: Any) -> Apply:
        return Apply(self, [x, new], [new.type.make_variable()])

    def grad(self, inputs: Variables, output_grads: Variables) -> Gradients:
        return [None, *output_grads]

    def perform(self, node: Apply, inputs: Values, output_storage: Storages) -> None:
        x, new = inputs
        output_storage[0][0] = new if _laid_out_alike(x, new) else self._copy.call(inputs)

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


def _laid_out_alike(x: Any, new: Any) -> bool:
    import torch

    if not (x.layout == new.layout == torch.strided) or x.is_nested or new.is_nested:
        return True  # there are no strides to keep
    return bool(x.stride() == new.stride())


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
