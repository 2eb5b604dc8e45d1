"""Gradients: the graph that computes how a cost changes with what it depends on."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import TYPE_CHECKING, Any, Literal, overload

from .. import ops
from ..errors import BridgeTypeError, BridgeValueError, MissingMethodError
from ..graph.basic import Apply, Variable, ordered, toposort
from ..ops.native import Derivatives, NativeOp, register_derivatives
from ..types import SchemaType, TensorType
from .derivatives import decompose, native_grad

if TYPE_CHECKING:
    from ..ops.variables import TensorVariable


@overload
def grad(
    cost: Variable,
    wrt: Variable,
    grad_outputs: Variable | None = None,
    allow_unused: Literal[False] = False,
) -> TensorVariable: ...
@overload
def grad(
    cost: Variable,
    wrt: Sequence[Variable],
    grad_outputs: Variable | None = None,
    allow_unused: Literal[False] = False,
) -> list[TensorVariable]: ...
@overload
def grad(
    cost: Variable,
    wrt: Variable,
    grad_outputs: Variable | None = None,
    allow_unused: bool = False,
) -> TensorVariable | None: ...
@overload
def grad(
    cost: Variable,
    wrt: Sequence[Variable],
    grad_outputs: Variable | None = None,
    allow_unused: bool = False,
) -> list[TensorVariable | None]: ...
def grad(
    cost: Variable,
    wrt: Variable | Sequence[Variable],
    grad_outputs: Variable | None = None,
    allow_unused: bool = False,
) -> Variable | Sequence[Variable | None] | None:
    """The gradient of a cost of one element: a variable for one in `wrt`, a list for several.

        >>> x = pb.TensorType("float32", (None,))("x")
        >>> pb.function(x, pb.grad((x**3).sum(), x))(torch.tensor([1.0, 2.0]))
        tensor([ 3., 12.])

    grad_outputs is what the gradient begins with (1 by default); with it, cost may have any shape.
    A variable that the cost does not depend on, or only through what is not differentiable, is a
    BridgeValueError that names it and what is in the way; with allow_unused its gradient is None.
    """
    wanted = [wrt] if isinstance(wrt, Variable) else ordered("grad: the variables wrt", wrt)
    for i, v in enumerate(wanted):
        if not isinstance(v, Variable):
            raise BridgeTypeError(f"grad: entry {i} of wrt is no variable: {v!r}")
    if not isinstance(cost, Variable):
        raise BridgeTypeError(f"grad: the cost is no variable: {cost!r}")
    _check_float(cost, "the cost")
    for v in wanted:
        _check_float(v, "a gradient is asked for")
    if grad_outputs is None:
        shape = getattr(cost.type, "shape", None)
        if shape is None or any(d != 1 for d in shape):
            raise BridgeTypeError(
                f"grad: the cost {cost} of type {cost.type} must have one element; take its sum or "
                "mean, or give grad_outputs"
            )
        grad_outputs = _ones_like(cost)
    elif isinstance(grad_outputs, Variable) and not _spreads(grad_outputs, cost):
        raise BridgeTypeError(
            f"grad: grad_outputs is {grad_outputs} of type {grad_outputs.type}, which has another "
            f"shape than the cost {cost} of type {cost.type}"
        )
    blocked: list[str] = []
    found = _backward([cost], [grad_outputs], wanted, blocked)
    for v, g in zip(wanted, found, strict=True):
        if g is None and not allow_unused:
            raise BridgeValueError(_no_gradient(cost, v, blocked))
    return found[0] if isinstance(wrt, Variable) else found


def vector_jacobian(
    outputs: Sequence[Variable],
    output_grads: Sequence[Variable | None],
    inputs: Sequence[Variable],
    depends: Set[Variable] | None = None,
) -> list[Variable | None]:
    """The gradients of inputs given those of outputs, None where there is none. `depends` are the
    variables that gradients go through, where that is known better than by what is computed from
    the inputs."""
    return _backward(outputs, output_grads, inputs, [], depends)


def _backward(
    outputs: Sequence[Variable],
    output_grads: Sequence[Variable | None],
    wanted: Sequence[Variable],
    blocked: list[str],
    known: Set[Variable] | None = None,
) -> list[Variable | None]:
    order = toposort(outputs)
    depends = depend(order, wanted) if known is None else known
    grads: dict[Variable, Variable] = {}

    def add(v: Variable, g: Variable) -> None:
        grads[v] = g if v not in grads else ops.add(grads[v], g)

    for v, g in zip(outputs, output_grads, strict=True):
        if g is not None:
            add(v, g)
    for node in reversed(order):
        if not any(v in grads for v in node.outputs):
            continue
        flows = _connected(node)
        reached = [
            any(c and v in grads for c, v in zip(f, node.outputs, strict=True)) for f in flows
        ]
        need = [
            r and v in depends and differentiable(v)
            for r, v in zip(reached, node.inputs, strict=True)
        ]
        for i, v in enumerate(node.inputs):
            if reached[i] and v in depends and not need[i]:
                blocked.append(f"{node.op} takes {v} of type {v.type}, which has no gradient")
        if not any(need):
            continue
        for i, g in enumerate(_node_grads(node, grads, need)):
            if not need[i]:
                continue
            if g is None:
                blocked.append(
                    f"{node.op} is not differentiable in its input {i} ({node.inputs[i]})"
                )
            else:
                add(node.inputs[i], g)
    return [grads.get(v) for v in wanted]


def depend(order: Sequence[Apply], wanted: Sequence[Variable]) -> Set[Variable]:
    """What is computed from these variables, and they themselves."""
    found = set(wanted)
    for node in order:
        # What is in memory that nobody has written comes from nothing.
        if _unwritten(node) or not any(v in found for v in node.inputs):
            continue
        for v, flows in zip(node.inputs, _connected(node), strict=True):
            if v in found:
                found.update(o for o, c in zip(node.outputs, flows, strict=True) if c)
    return found


def _connected(node: Apply) -> Sequence[Sequence[bool]]:
    """For each input, to which outputs' gradients it is connected."""
    pattern = getattr(node.op, "connection_pattern", None)
    if pattern is None:
        return [[True] * len(node.outputs)] * len(node.inputs)
    found = pattern(node)
    rows = isinstance(found, (list, tuple)) and len(found) == len(node.inputs)
    if not rows or not all(
        isinstance(row, (list, tuple)) and len(row) == len(node.outputs) for row in found
    ):
        raise BridgeTypeError(
            f"connection_pattern of {type(node.op).__qualname__} must return, for each of the "
            f"{len(node.inputs)} inputs, a list with a bool for each of the {len(node.outputs)} "
            f"outputs, not {found!r}"
        )
    return [[bool(c) for c in row] for row in found]


_UNWRITTEN = frozenset(
    f"{name}{overload}"
    for name in ("empty_like", "new_empty", "new_empty_strided")
    for overload in ("", ".out")
)


def _unwritten(node: Apply) -> bool:
    return isinstance(node.op, NativeOp) and node.op.name in _UNWRITTEN


def _asked(node: Apply, given: Sequence[Variable]) -> Any:
    whole = getattr(node.op, "L_op", None)
    if whole is not None:
        return whole(node.inputs, node.outputs, given)
    return node.op.grad(node.inputs, given)


def _node_grads(
    node: Apply, grads: dict[Variable, Variable], need: Sequence[bool]
) -> Sequence[Variable | None]:
    """What a node's grad returns, checked."""
    op = node.op
    given: list[Any] = [grads.get(v) for v in node.outputs]
    where = ", ".join(f"{i} ({v})" for i, v in enumerate(node.inputs) if need[i])
    try:
        own = getattr(op, "grad_of_node", None)
        if own is not None:
            found = own(node, given, need)
        else:
            filled: list[Any] = [
                g if g is not None else _zeros_like(v)
                for g, v in zip(given, node.outputs, strict=True)
            ]
            found = _asked(node, filled)
    except NotImplementedError as e:
        raise MissingMethodError(
            f"the gradient through {op} in its input {where} is needed, and missing: {e}"
        ) from e
    if isinstance(found, Variable) or not isinstance(found, (list, tuple)):
        raise BridgeTypeError(
            f"grad of {op} must return a list with an entry for each of its {len(node.inputs)} "
            f"inputs, got {found!r}"
        )
    if len(found) != len(node.inputs):
        raise BridgeTypeError(
            f"grad of {op} returned {len(found)} entries for {len(node.inputs)} inputs"
        )
    for i, (g, v) in enumerate(zip(found, node.inputs, strict=True)):
        if g is None:
            continue
        if not isinstance(g, Variable):
            raise BridgeTypeError(f"grad of {op} returned no variable for input {i}: {g!r}")
        if need[i] and not _fits(g, v):
            raise BridgeTypeError(
                f"grad of {op} returned a gradient of type {g.type} for input {i} of type {v.type}"
            )
    return found


def _fits(g: Variable, v: Variable) -> bool:
    """Whether g can be a gradient of v: the same dtype, and a shape that can be the same."""
    a, b = g.type, v.type
    if not isinstance(a, TensorType) or not isinstance(b, TensorType):
        return True
    if None not in (a.dtype, b.dtype) and a.dtype != b.dtype:
        return False
    if a.shape is None or b.shape is None:
        return True
    return len(a.shape) == len(b.shape) and all(
        x == y or None in (x, y) for x, y in zip(a.shape, b.shape, strict=True)
    )


def _spreads(g: Variable, cost: Variable) -> bool:
    """Whether g may have the shape of a cost, or be broadcast to it."""
    mine, theirs = (getattr(v.type, "shape", None) for v in (g, cost))
    if mine is None or theirs is None:
        return True
    pairs = zip(reversed(mine), reversed(theirs), strict=False)
    return len(mine) <= len(theirs) and all(a in (b, 1, None) or b is None for a, b in pairs)


def differentiable(v: Variable) -> bool:
    """Whether gradients go through such a variable."""
    if not isinstance(v.type, TensorType):
        # A type of someone else's may have gradients; its ops know.
        return not isinstance(v.type, SchemaType)
    return v.type.dtype is None or v.type.dtype.startswith(("float", "complex", "bfloat"))


def _check_float(v: Variable, what: str) -> None:
    if not differentiable(v):
        raise BridgeTypeError(
            f"grad: {what} for {v} of type {v.type}, which is no floating point tensor"
            if what.startswith("a ")
            else f"grad: {what} {v} of type {v.type} is no floating point tensor"
        )


def _no_gradient(cost: Variable, v: Variable, blocked: Sequence[str]) -> str:
    text = f"grad: {cost} has no gradient with respect to {v}"
    if blocked:
        return f"{text}: {'; '.join(dict.fromkeys(blocked))}"
    return f"{text}: it does not depend on it"


def _ones_like(v: Variable) -> Variable:
    import torch

    t = v.type
    if isinstance(t, TensorType) and t.dtype and t.shape is not None and t.device == "cpu":
        sizes = [d or 1 for d in t.shape]
        one: Variable = ops.constant(torch.ones(sizes, dtype=t.torch_dtype, device="cpu"))
        return one
    return ops.ones_like(v)


def _zeros_like(v: Variable) -> Variable | None:
    return ops.zeros_like(v) if isinstance(v.type, TensorType) else None


register_derivatives(Derivatives(native_grad, decompose, vector_jacobian))
