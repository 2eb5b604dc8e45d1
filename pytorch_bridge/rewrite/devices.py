"""A graph on another device than the one it was made on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..errors import BridgeValueError, MissingMethodError
from ..graph.basic import Apply, Constant, Variable, toposort
from ..ops.library_operators import LibraryOp
from ..ops.native import NativeOp, native_op
from ..types import TensorType, Type
from ..types.enums import device_parts


def device_name(device: Any) -> str | None:
    """The device as types name it, None for the CPU. BridgeValueError for one that is none, or on
    which nothing can be computed."""
    try:
        kind, index = device_parts(device)
    except ValueError as e:
        raise BridgeValueError(f"device: {e}") from None
    if kind == "meta":
        raise BridgeValueError("device: meta tensors have no values, so nothing computes there")
    return None if kind == "cpu" else f"{kind}:{index}" if index >= 0 else kind


def located(
    inputs: Sequence[Variable], outputs: Sequence[Variable], device: str
) -> tuple[list[Variable], list[Variable]]:
    """The graph from `inputs` to `outputs`, which stays as it is, with `device` wherever it has the
    CPU: in the types of inputs, results and constants, and in arguments, as `zeros(..., device=)`
    and `x.to(device)` have them.

    The tensors of constants stay where they are; whoever runs the graph moves them.
    MissingMethodError where an op computes with C code of its own, on the processor.
    """
    became: dict[Variable, Variable] = {}

    def moved(v: Variable) -> Variable:
        new = became.get(v)
        if new is None:
            new = became[v] = v.unconnected()
            new.type = _type(v.type, device)
            if isinstance(new, Constant) and _is_cpu(new.data):
                new.data = _there(device)
        return new

    ins = [moved(v) for v in inputs]
    for node in toposort(outputs, inputs):
        made = [v.unconnected() for v in node.outputs]
        for old, new in zip(node.outputs, made, strict=True):
            new.type = _type(old.type, device)
            became[old] = new
        Apply(_op(node, device), [moved(v) for v in node.inputs], made)
    return ins, [moved(v) for v in outputs]


def _type(t: Type, device: str) -> Type:
    if isinstance(t, TensorType) and t.device == "cpu":
        return TensorType(t.dtype, t.shape, device=device)
    return t


def _there(device: str) -> Any:
    import torch

    return torch.device(device)


def _is_cpu(value: Any) -> bool:
    import torch

    return isinstance(value, torch.device) and value.type == "cpu"


def _op(node: Apply, device: str) -> Any:
    op = node.op
    within = getattr(op, "located", None)
    if within is not None:  # it has graphs in it
        return within(
            lambda inputs, outputs: located(inputs, outputs, device),
            [_type(v.type, device) for v in node.outputs],
        )
    if isinstance(op, NativeOp):
        # Without a tensor to go by, no device is the CPU.
        makes = not any(isinstance(v.type, TensorType) for v in node.inputs)
        arguments = tuple(
            _there(device)
            if a.type.startswith("Device") and (_is_cpu(v) or (v is None and makes))
            else v
            for a, v in zip(op.native.function.arguments, op.arguments, strict=True)
        )
        if arguments == op.arguments:
            return op
        types = [_type(v.type, device) for v in node.inputs]
        return native_op(op.native, arguments, types, op.lists)
    if isinstance(op, LibraryOp) and any(map(_is_cpu, _leaves([op.args, op.kwargs]))):
        raise MissingMethodError(
            f"{op} is told to compute on the CPU, so the graph cannot be on {device}"
        )
    tensors = any(isinstance(v.type, TensorType) for v in [*node.inputs, *node.outputs])
    if tensors and not op.only_calls:
        raise MissingMethodError(
            f"{op} has C code of its own, which computes on the processor: the graph cannot be on "
            f"{device}"
        )
    return op


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for v in value:
            yield from _leaves(v)
    else:
        yield value
