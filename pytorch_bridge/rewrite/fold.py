"""Constant folding: what depends on constants only is computed once, here."""

from __future__ import annotations

from math import prod
from typing import Any

from ..aliasing.in_place import is_dense
from ..aliasing.sharing import Replace, Sharing, carefully
from ..graph.basic import Apply, Constant, Variable
from ..graph.function_graph import OUTPUT, FunctionGraph
from ..inference.quiet import default_modes
from ..ops.basic import DeepCopyOp, Shape, Shape_i, deep_copy_op
from ..ops.native import NativeOp, constant
from ..ops.op import Op, run_perform
from ..ops.variables import TensorConstant
from ..types import TensorType
from .known_strides import dense
from .rules import owner

# Functions that are given strides for the memory that a tensor lies in.
_AROUND = (
    "as_strided", "as_strided_", "as_strided_copy", "as_strided_scatter", "_reshape_alias",
    "_reshape_alias_copy", "set_",
)  # fmt: skip

_SMALL = 64 << 10  # bytes that a constant may have, however little it is made of


def fold(fgraph: FunctionGraph) -> int:
    """Replaces by constants what nodes make of constants, and sizes that types know; returns how
    many nodes have gone.

    A constant that is a view of another, such as a transposed weight, stays a view of it: it takes
    no memory, and its strides are those that the kernels would meet. Nodes stay that draw random
    numbers, that write into something, that copy, that raise, and whose result is much larger than
    what it is made of.
    """
    return carefully(fgraph, _fold, "fold")


def _fold(fgraph: FunctionGraph, replace: Replace) -> int:
    sharing = Sharing(fgraph)
    outputs = set(fgraph.outputs)
    given = {_storage(v.data) for v in fgraph.variables if isinstance(v, Constant)}
    count = 0
    for node in fgraph.toposort():
        if node not in fgraph:
            continue
        values = _sizes(node) or _computed(node)
        if values is None or any(v in sharing.destroyed for v in node.outputs):
            continue
        used = [(v, c) for v, c in zip(node.outputs, values, strict=True) if fgraph.clients[v]]
        if not all(_invisible(sharing, v, c, v in outputs) for v, c in used):
            continue
        done = True
        for old, new in used:
            done = replace(old, new, "fold") and done
            if old in outputs:
                _give_copies(fgraph, new)
        count += done
    _compact(fgraph, given)
    return count


def _storage(value: Any) -> int:
    """The number of a tensor's storage; 0 where there is none."""
    import torch

    plain = isinstance(value, torch.Tensor) and value.layout == torch.strided
    return value.untyped_storage()._cdata if plain and not value.is_nested else 0


def _compact(fgraph: FunctionGraph, given: set[int]) -> None:
    """Gives constants memory of their own where less than half is left in the graph of a storage
    that was made here, and has none of those `given`."""
    parts: dict[int, list[Constant]] = {}
    for v in fgraph.variables:
        if isinstance(v, Constant) and _storage(v.data) not in {0, *given}:
            parts.setdefault(_storage(v.data), []).append(v)
    for mine in parts.values():
        whole = mine[0].data.untyped_storage().nbytes()
        if 2 * sum(_span(v.data) * v.data.element_size() for v in mine) > whole:
            continue
        if any(_looks_around(client) for v in mine for client, _ in fgraph.clients[v]):
            continue
        for v in mine:
            v.data = _alone(v.data)


def _span(t: Any) -> int:
    """The elements from the first to the last of a tensor in its memory."""
    if t.numel() == 0:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))


def _looks_around(client: Apply | str) -> bool:
    """Whether what reads a tensor may read what lies around it, at the offset that it has."""
    if isinstance(client, str) or not isinstance(client.op, NativeOp):
        return True
    return owner(client.outputs[0], *_AROUND) is not None


def _alone(t: Any) -> Any:
    """The tensor with its strides, and its place between multiples of 64 bytes, in a storage that
    ends with it: kernels look at these."""
    import torch

    if t.is_conj() or t.is_neg():
        return t
    before = t.storage_offset() % max(1, 64 // t.element_size())
    with torch.inference_mode(False), torch.no_grad():
        own = torch.empty(before + _span(t), dtype=t.dtype, device=t.device)
        part = torch.as_strided(own, (_span(t),), (1,), before)
        part.copy_(torch.as_strided(t.detach(), (_span(t),), (1,), t.storage_offset()))
        own = torch.as_strided(own, t.shape, t.stride(), before)
    return own.requires_grad_(t.requires_grad)


def _invisible(sharing: Sharing, old: Variable, new: Constant, is_output: bool) -> bool:
    """Whether a caller cannot tell: no output lies in old's memory, or only old itself, of which
    a copy of the constant is given."""
    if not isinstance(old.type, TensorType):
        return True
    seen = sharing.outputs_in(old)
    return not seen or (is_output and seen == {old} and dense(new))


def _give_copies(fgraph: FunctionGraph, new: Constant) -> None:
    copied = deep_copy_op(new)
    for i, v in enumerate(fgraph.outputs):
        if v is new:
            fgraph.change_input(OUTPUT, i, copied, "fold")


def _sizes(node: Apply) -> list[Constant] | None:
    """The result of asking for sizes that the type knows."""
    if not isinstance(node.op, (Shape, Shape_i)):
        return None
    known = getattr(node.inputs[0].type, "shape", None)
    if known is None or (isinstance(node.op, Shape) and None in known):
        return None
    if isinstance(node.op, Shape):
        return [node.outputs[0].type.make_constant(list(known))]
    size = known[node.op.i] if node.op.i < len(known) else None
    return None if size is None else [node.outputs[0].type.make_constant(size)]


def _computed(node: Apply) -> list[Constant] | None:
    """The constants that a node's outputs are, or None where they are to be computed at run
    time."""
    import torch

    op = node.op
    if not all(isinstance(v, Constant) for v in node.inputs):
        return None
    if op.random or op.destroy_map or isinstance(op, DeepCopyOp):
        return None
    if getattr(op, "never_merged", False) or type(op).perform is Op.perform:
        return None
    limit = max(_SMALL, sum(_nbytes(v.data) for v in node.inputs if isinstance(v, Constant)))
    expected = [_expected(v) for i, v in enumerate(node.outputs) if i not in op.view_map]
    if sum(expected) > limit:
        return None
    storage: list[list[Any]] = [[None] for _ in node.outputs]
    try:
        with default_modes(), torch.no_grad():
            run_perform(node, [v.data for v in node.inputs], storage)  # type: ignore[attr-defined]
    except MemoryError:
        raise
    except Exception:  # an op may raise anything; the caller gets it when the function runs
        return None
    made = [
        _constant(node, v, cell[0], limit) for v, cell in zip(node.outputs, storage, strict=True)
    ]
    return None if any(v is None for v in made) else made  # type: ignore[return-value]


def _constant(node: Apply, old: Variable, value: Any, limit: int) -> Constant | None:
    """The constant for an output; None where it had better be computed each time."""
    import torch

    if not old.type.is_valid_value(value):
        return None
    if not isinstance(value, torch.Tensor):
        return old.type.make_constant(value)
    if not _is_view(node, value):
        if _nbytes(value) > limit:
            return None
        value = _own(value)
    # A view of a parameter requires a gradient under no_grad, too, and PyTorch chooses kernels by
    # that.
    t = constant(value).type
    return TensorConstant(t, value.detach().requires_grad_(value.requires_grad))


def _is_view(node: Apply, value: Any) -> bool:
    """Whether a tensor lies in the memory of an input."""
    return any(
        isinstance(v, Constant) and TensorType.may_share_memory(v.data, value) for v in node.inputs
    )


def _own(value: Any) -> Any:
    """The tensor in no more memory than it needs, with its strides."""
    import torch

    if value.layout != torch.strided or value.is_nested or value.is_quantized:
        return value
    if value.untyped_storage().nbytes() <= value.numel() * value.element_size():
        return value
    if value.storage_offset() or not is_dense(value):
        return value
    own = value.clone()
    return own if own.stride() == value.stride() else value


def _expected(v: Variable) -> int:
    """The bytes that a result will have, as far as its type says."""
    t = v.type
    if not isinstance(t, TensorType) or t.dtype is None or None in (t.shape or (None,)):
        return 0
    return prod(t.shape or ()) * t.torch_dtype.itemsize  # type: ignore[arg-type]


def _nbytes(value: Any) -> int:
    import torch

    if isinstance(value, (list, tuple)):
        return sum(map(_nbytes, value))
    if not isinstance(value, torch.Tensor):
        return 8
    return value.numel() * value.element_size()
