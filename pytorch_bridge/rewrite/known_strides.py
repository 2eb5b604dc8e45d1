"""What is known about strides, whatever the strides of the inputs are.

PyTorch's kernels may choose by strides how they compute, and round differently. So a rewrite keeps
the strides of everything, down to those of dimensions of size 1; these functions say when it can
be sure of them. Each looks at a variable and at most two nodes behind it.
"""

from __future__ import annotations

from typing import Any

from ..aliasing.in_place import is_dense
from ..graph.basic import Constant, Variable
from ..ops.basic import DeepCopyOp
from ..ops.native import NativeOp
from ..schema.corrections import corrected
from ..types import TensorType


def dense(v: Variable) -> bool:
    """Whether v's elements fill its memory without gaps or overlaps, in whatever order. A copy of
    it has the same strides."""
    if isinstance(v, Constant):
        return _is_dense(v.data)
    return _new(v) or (v.owner is not None and isinstance(v.owner.op, DeepCopyOp))


def row_major(v: Variable) -> bool:
    """Whether v has the strides of a new tensor of its sizes."""
    if isinstance(v, Constant):
        return _is_row_major(v.data)
    return _new(v) and _in_table("row_major", v)


def contiguous(v: Variable) -> bool:
    """Whether `contiguous(v)` is v."""
    return row_major(v) or (
        v.owner is not None
        and isinstance(v.owner.op, NativeOp)
        and v.owner.op.name in ("contiguous", "clone")
        and str(v.owner.op.arguments[1]) == "torch.contiguous_format"
    )


def settled(v: Variable) -> bool:
    """Whether a pointwise function of v alone has v's strides."""
    if row_major(v):
        return True
    if not _new(v) or v.owner is None or not isinstance(v.owner.op, NativeOp):
        return False
    node = v.owner
    function = v.owner.op.native
    if not function.pointwise or len(node.inputs) != 1 or corrected("own_layout", function.name):
        return False
    # The strides of dimensions of size 1 settle in the second function only, where the first was
    # given gaps.
    return dense(node.inputs[0]) or no_ones(v)


def no_ones(v: Variable) -> bool:
    """Whether v is known to have elements, and no dimension of size 1."""
    t = v.type
    return isinstance(t, TensorType) and all(d is not None and d > 1 for d in t.shape or (None,))


def _new(v: Variable) -> bool:
    """Whether v is the result of a native function that allocates it, without gaps."""
    node = v.owner
    if node is None or not isinstance(node.op, NativeOp) or not isinstance(v.type, TensorType):
        return False
    op = node.op
    return (
        v.index not in op.view_map
        and v.index not in op.destroy_map
        and not _in_table("gaps", v)
        and "out" not in op.native.function.tags
    )


def _in_table(table: str, v: Variable) -> bool:
    assert v.owner is not None
    assert isinstance(v.owner.op, NativeOp)
    places = corrected(table, v.owner.op.name)
    return places is not None and (places is True or v.index in places)


def _is_dense(data: Any) -> bool:
    import torch

    if not isinstance(data, torch.Tensor) or data.layout != torch.strided or data.is_nested:
        return False
    return is_dense(data)


def _is_row_major(data: Any) -> bool:
    import torch

    if not isinstance(data, torch.Tensor) or data.layout != torch.strided or data.is_nested:
        return False
    return data.stride() == torch.empty(data.shape, device="meta").stride()
