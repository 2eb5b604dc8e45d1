"""Ops that look at strides at each call, because types have none: to see whether a function has
returned a view, and to keep the strides of a tensor that is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import BridgeTypeError
from ..graph.basic import Apply
from ..ops.native import NativeOp, native, native_op
from ..ops.op import CallsTorch, Gradients, Names, Storages, Values, Variables, closed
from ..schema.corrections import IN
from ..types import TensorType
from ..types.base import Sub
from .in_place import is_dense


def clone_of(t: Any) -> Any:
    """A copy of a tensor with its strides, also where there are gaps between its elements."""
    import torch

    if t.layout != torch.strided or t.is_nested or t.is_quantized or is_dense(t) or 0 in t.stride():
        return t.clone()
    return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device).copy_(t)


class _Looks(CallsTorch):
    """An op whose calls look whether `op`, applied to its first inputs, returns a view of input
    `place` as its result `index`."""

    __props__ = ("op", "place", "index")
    only_calls = True
    behind: int  # how many inputs come behind those of `op`

    def __init__(self, op: NativeOp, place: int = 0, index: int = 0) -> None:
        if not can_look(op, place):
            raise BridgeTypeError(f"{op} is no function that returns tensors, perhaps views")
        self.op, self.place, self.index = op, place, index

    def _check_inputs(self, inputs: Sequence[Any]) -> None:
        if len(inputs) != self.op.n_inputs + self.behind:
            raise BridgeTypeError(
                f"{self} takes {self.op.n_inputs + self.behind} inputs, got {len(inputs)}"
            )

    def _made(self, inputs: Values) -> Any:
        found = self.op.call(inputs)
        return found[self.index] if self.op.lists else found

    def _look(
        self, node: Apply, name: str, inputs: Names, leave: str
    ) -> tuple[str, list[str], list[str]]:
        """The C variable of the result, and of others; what makes them, and what frees them."""
        n = len(self.op.groups[0])
        made = [f"{name}_made{i}" for i in range(n)]
        call = Apply(self.op, node.inputs[: self.op.n_inputs], [TensorType()() for _ in made])
        code = self.op.c_code(call, name, inputs, made, {"fail": f"{{ {leave} }}"})
        lines = [
            *(f"Tensor {m} = NULL;" for m in made),
            f"TensorInfo {name}_x, {name}_y;\n{{\n{code}\n}}",
            f"if ((pb_error = GetTensorInfo({inputs[self.place]}, &{name}_x))) {leave}",
            f"if ((pb_error = GetTensorInfo({made[self.index]}, &{name}_y))) {leave}",
        ]
        return made[self.index], lines, [f"FreeTensor({m});" for m in made]


def can_look(op: NativeOp, place: int) -> bool:
    """Whether calls can look if an op returns views of one of its inputs."""
    tensors = len(op.native.results) == 1 and (op.lists or not op.native.returns_written)
    return bool(tensors) and 0 <= place < op.n_inputs and not op.destroy_map


@closed
class IfView(_Looks):
    """One of its last two inputs: the first of them where `op`, applied to the inputs before them,
    returns a view, else the second."""

    behind = 2

    def __init__(self, op: NativeOp, place: int = 0, index: int = 0) -> None:
        super().__init__(op, place, index)
        self.view_map = {0: [op.n_inputs, op.n_inputs + 1]}

    def make_node(self, *inputs: Any) -> Apply:
        self._check_inputs(inputs)
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
        made = self._made(inputs[:-2])
        view = _share(made, inputs[self.place])
        output_storage[0][0] = inputs[-2] if view else inputs[-1]

    def c_code(self, node: Apply, name: str, inputs: Names, outputs: Names, sub: Sub) -> str:
        _, lines, freed = self._look(node, name, inputs[:-2], f"goto {name}_done;")
        return "\n".join(
            [
                *lines,
                f"FreeTensor({outputs[0]});",
                f"{outputs[0]} = RetainTensor({name}_x.storage_id == {name}_y.storage_id ? "
                f"{inputs[-2]} : {inputs[-1]});",
                f"{name}_done:;",
                *freed,
                f"if (pb_error) {{\n{sub['fail']}\n}}",
            ]
        )


@closed
class IntoView(_Looks):
    """A copy of input `place`, with its strides, into which the last input has been written where
    `op` returns a view of it: in that view."""

    behind = 1

    _write = native_op(native("copy_"), (IN, IN, False), (), ())
    _copy = native_op(native("copy"), (IN, IN, False), (), ())

    def make_node(self, *inputs: Any) -> Apply:
        self._check_inputs(inputs)
        return Apply(self, inputs, [inputs[self.place].type.make_variable()])

    def grad(self, inputs: Variables, output_grads: Variables) -> Gradients:
        (g,) = output_grads
        if g is None:
            return [None] * len(inputs)
        looked_at = list(inputs[:-1])
        given = [*looked_at[: self.place], g, *looked_at[self.place + 1 :]]
        types = [inputs[-1].type.make_variable() for _ in self.op.groups[0]]
        part = Apply(self.op, given, types).outputs[self.index]
        (nothing,) = native("zeros_like").make_node(part).outputs
        found: list[Any] = [None] * len(inputs)
        found[self.place] = self.make_node(*given, nothing).outputs[0]
        look = IfView(self.op, self.place, self.index)
        found[-1] = look.make_node(*looked_at, part, nothing).outputs[0]
        return found

    def perform(self, node: Apply, inputs: Values, output_storage: Storages) -> None:
        x = inputs[self.place]
        copied = self._copy.call([x, x])
        made = self._made([*inputs[: self.place], copied, *inputs[self.place + 1 : -1]])
        if _share(made, copied):
            made.copy_(inputs[-1])
        output_storage[0][0] = copied

    def c_code(self, node: Apply, name: str, inputs: Names, outputs: Names, sub: Sub) -> str:
        leave, x = f"goto {name}_done;", inputs[self.place]
        fail = {"fail": f"{{ {leave} }}"}
        copied, written = f"{name}_copied", f"{name}_written"
        given = [*inputs[: self.place], copied, *inputs[self.place + 1 : -1]]
        made, lines, freed = self._look(node, name, given, leave)
        tensor = TensorType()
        copy = Apply(self._copy, [tensor(), tensor()], [tensor()])
        write = Apply(self._write, [tensor(), tensor()], [tensor()])
        copies = self._copy.c_code(copy, name, [x, x], [copied], fail)
        writes = self._write.c_code(write, name, [made, inputs[-1]], [written], fail)
        return "\n".join(
            [
                f"Tensor {copied} = NULL, {written} = NULL;",
                *(line for line in lines if line.startswith("Tensor ")),
                f"{{\n{copies}\n}}",
                *(line for line in lines if not line.startswith("Tensor ")),
                f"if ({name}_x.storage_id == {name}_y.storage_id) {{\n{writes}\n}}",
                f"FreeTensor({outputs[0]});\n{outputs[0]} = RetainTensor({copied});",
                f"{name}_done:;",
                *freed,
                f"FreeTensor({copied});\nFreeTensor({written});",
                f"if (pb_error) {{\n{sub['fail']}\n}}",
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
