"""Attention whose mask requires a gradient.

PyTorch's kernel for attention on a CPU has no gradient of the mask. Where autograd records and the
mask requires one, PyTorch takes the attention apart instead, in the forward pass already: its
result has other last bits and other strides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..graph.basic import Apply, Constant, Variable, toposort
from ..ops.native import NativeOp, native
from ..schema.corrections import IN
from ..types import TensorType
from .grad import depend


def as_recorded(outputs: Sequence[Variable], wrt: Iterable[Variable]) -> list[Variable]:
    """The outputs as autograd computes them where these variables require a gradient, as do
    constants that say so. Nothing is copied where that is the same graph."""
    order = toposort(outputs)
    constants = (
        v
        for node in order
        for v in node.inputs
        if isinstance(v, Constant) and getattr(v.data, "requires_grad", False)
    )
    depends = depend(order, [*wrt, *constants])
    became: dict[Variable, Variable] = {}
    for node in order:
        apart = _taken_apart(node) and _arguments(node, node.inputs)[3] in depends
        if not apart and not any(v in became for v in node.inputs):
            continue
        inputs = [became.get(v, v) for v in node.inputs]
        made = [_apart(node, inputs)] if apart else node.clone(inputs).outputs
        became.update(zip(node.outputs, made, strict=True))
    return [became.get(v, v) for v in outputs]


def _taken_apart(node: Apply) -> bool:
    """Whether PyTorch takes this attention apart where its mask requires a gradient, and only
    there. With a dropout it does so always."""
    op = node.op
    return (
        isinstance(op, NativeOp)
        and op.name == "scaled_dot_product_attention"
        and not op.random
        and all(v.type.device == "cpu" for v in node.inputs if isinstance(v.type, TensorType))
    )


def _arguments(node: Apply, inputs: Sequence[Variable]) -> list[Any]:
    assert isinstance(node.op, NativeOp)
    given = iter(inputs)
    return [next(given) if a is IN else a for a in node.op.arguments]


def _apart(node: Apply, inputs: Sequence[Variable]) -> Variable:
    *args, scale, grouped = _arguments(node, inputs)
    made = native("_scaled_dot_product_attention_math")(*args, scale=scale, enable_gqa=grouped)[0]
    assert isinstance(made, Variable)
    return made
