"""Copies that nobody could tell from what they are copies of.

A copy goes where nobody writes into it or into its source, where no output of the function comes to
share memory, and where it has the strides of its source for certain.
"""

from __future__ import annotations

from ..graph.basic import Apply, Variable
from ..ops.basic import DeepCopyOp
from ..types import TensorType
from .known_strides import dense, row_major
from .rules import Rules, all_known, arguments, first

rule = Rules("copies")


@rule("copy(x) -> x", DeepCopyOp, "alias_copy", "detach_copy", "lift_fresh_copy", copies=True)
def _(node: Apply) -> Variable | None:
    return first(node) if dense(first(node)) else None


@rule("clone(x) -> x", "clone", copies=True)
def _(node: Apply) -> Variable | None:
    wanted = str(arguments(node)["memory_format"])
    if wanted in ("None", "torch.preserve_format"):
        return first(node) if dense(first(node)) else None
    same = wanted == "torch.contiguous_format" and row_major(first(node))
    return first(node) if same else None


@rule("_to_copy(x) -> x, to the same dtype", "_to_copy", "to.dtype", copies=True)
def _(node: Apply) -> Variable | None:
    a, x = arguments(node), first(node)
    if not isinstance(x.type, TensorType) or x.type.dtype is None or x.type.device != "cpu":
        return None
    if not all_known(a) or a.get("pin_memory"):
        return None
    if any(a.get(k) is not None for k in ("layout", "memory_format")):
        return None
    here = str(a.get("device") or "cpu") == "cpu"
    same = here and a["dtype"] in (None, x.type.torch_dtype)
    return x if same and dense(x) else None


@rule("cat([x]) -> x", "cat", copies=True)
def _(node: Apply) -> Variable | None:
    return first(node) if len(node.inputs) == 1 and row_major(first(node)) else None
