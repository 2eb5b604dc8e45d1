"""`x[...]` on tensor variables, as PyTorch reads it."""

from __future__ import annotations

from typing import Any

from .. import ops
from ..errors import BridgeTypeError
from ..graph.basic import Variable
from ..types import TensorType
from ..types.numbers import NumberArg


def _integer(v: Any) -> bool:
    if isinstance(v, Variable):
        return isinstance(v.type, NumberArg) and v.type.kind == "int"
    return isinstance(v, int) and not isinstance(v, bool)


def get_item(x: Any, index: Any) -> Any:
    """x at integers, slices, None, `...`, and tensors of integers or booleans."""
    import torch

    items = list(index) if isinstance(index, tuple) else [index]
    if x.type.ndim is None:
        raise BridgeTypeError(f"{x} of type {x.type} has no fixed number of dimensions to index")

    def tensor(v: Any) -> Any:
        if isinstance(v, (list, torch.Tensor)):
            v = ops.constant(torch.as_tensor(v))
        return v if isinstance(v, Variable) and isinstance(v.type, TensorType) else None

    tensors = [tensor(v) for v in items]
    used = 0
    for v, t in zip(items, tensors, strict=True):
        if t is not None:
            used += t.type.ndim if t.type.dtype in ("bool", "uint8") else 1
        elif _integer(v) or isinstance(v, slice):
            used += 1
        elif v is not None and v is not Ellipsis and not isinstance(v, bool):
            raise BridgeTypeError(f"{x}[...] cannot be indexed with {v!r}")
    if sum(v is Ellipsis for v in items) > 1:
        raise BridgeTypeError(f"{x}[...] has more than one `...`")
    if used > x.type.ndim:
        raise BridgeTypeError(f"{x} of type {x.type} has {x.type.ndim} dimensions, indexed {used}")
    if not any(v is Ellipsis for v in items):
        items.append(Ellipsis)
        tensors.append(None)
    where: list[Any] = []  # a tensor or None for each dimension of the result so far
    dim = 0
    for v, t in zip(items, tensors, strict=True):
        if t is not None:
            where += [t]
            dim += t.type.ndim if t.type.dtype in ("bool", "uint8") else 1
            continue
        if v is Ellipsis:
            skipped = x.type.ndim - dim - _rest(items, tensors)
            where += [None] * skipped
            dim += skipped
        elif v is None:
            x = ops.unsqueeze(x, dim)
            where.append(None)
            dim += 1
        elif isinstance(v, bool):
            x = ops.unsqueeze(x, dim)
            where.append(ops.constant(torch.tensor([v])))
            dim += 1
        elif isinstance(v, slice):
            x = _slice(x, dim, v)
            where.append(None)
            dim += 1
        else:
            x = ops.select(x, dim, v)
    if any(t is not None for t in where):
        while where and where[-1] is None:
            where.pop()
        x = ops.index(x, where)
    return x


def _rest(items: list[Any], tensors: list[Any]) -> int:
    """How many dimensions what comes after the `...` uses."""
    place = next(i for i, v in enumerate(items) if tensors[i] is None and v is Ellipsis)
    n = 0
    for v, t in zip(items[place + 1 :], tensors[place + 1 :], strict=True):
        if t is not None:
            n += t.type.ndim if t.type.dtype in ("bool", "uint8") else 1
        elif _integer(v) or isinstance(v, slice):
            n += 1
    return n


def _slice(x: Any, dim: int, s: slice) -> Any:
    for v in (s.start, s.stop, s.step):
        if v is not None and not _integer(v):
            raise BridgeTypeError(f"a slice of {x} needs integers, got {v!r}")
    if s.start is None and s.stop is None and s.step is None:
        return x
    return ops.slice(x, dim, s.start, s.stop, 1 if s.step is None else s.step)
