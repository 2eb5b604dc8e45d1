"""Reduce: a scalar op folded along axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import BridgeTypeError
from ..graph.basic import Apply, Variable, toposort
from ..types import TensorType
from ..types.base import Sub
from .native import NativeFunction, constant, derivatives, native, results_of
from .op import CallsTorch, Gradients, Names, Storages, Values, Variables, closed
from .scalar import ScalarOp


@closed
class Reduce(CallsTorch):
    """Folds a tensor with a scalar op that is associative: add, mul, maximum, minimum,
    logical_and, logical_or. `axes` of None means all; `keepdim` leaves them with size 1."""

    __props__ = ("scalar_op", "axes", "keepdim")

    def __init__(
        self, scalar_op: Any, axes: int | Sequence[int] | None = None, keepdim: bool = False
    ) -> None:
        if not isinstance(scalar_op, ScalarOp) or scalar_op.entry.reduction is None:
            raise BridgeTypeError(f"Reduce cannot fold with {scalar_op!r}")
        self.scalar_op = scalar_op
        self.axes = (axes,) if isinstance(axes, int) else None if axes is None else tuple(axes)
        self.keepdim = bool(keepdim)

    def __str__(self) -> str:
        return f"Reduce{{{self.scalar_op}, axes={self.axes}}}"

    __repr__ = __str__

    def _axes(self, t: TensorType) -> list[int]:
        """The axes to fold, counted from 0."""
        ndim = t.ndim
        if ndim is None:
            raise BridgeTypeError(f"{self}: {t} has no fixed number of dimensions")
        axes = range(ndim) if self.axes is None else self.axes
        found = []
        for a in axes:
            if not -ndim <= a < ndim:
                raise BridgeTypeError(f"{self}: {t} has {ndim} dimensions, there is no axis {a}")
            found.append(a % ndim)
        if len(set(found)) != len(found):
            raise BridgeTypeError(f"{self}: an axis is named twice")
        return sorted(found)

    def _function(self) -> NativeFunction:
        name = self.scalar_op.entry.reduction
        assert name is not None  # __init__ has asked
        return native(name)

    def expand(self, x: Any) -> Variable:
        """The same in native ops."""
        axes = self._axes(x.type)
        function = self._function()
        if not axes:
            return native("clone")(x)
        if "int[" in function.types[1].schema:
            return function(x, axes, self.keepdim)
        # One axis at a time: the last first, so that the others keep their numbers.
        for a in reversed(axes):
            x = results_of(function.make_node(x, a, self.keepdim))
        return x

    def make_node(self, x: Any) -> Apply:
        x = constant(x)
        if not isinstance(x.type, TensorType):
            raise BridgeTypeError(f"{self} needs a tensor, got {x} of type {x.type}")
        return Apply(self, [x], [self.expand(x.type.make_variable()).type.make_variable()])

    def perform(self, node: Apply, inputs: Values, output_storage: Storages) -> None:
        (x,) = inputs
        axes = self._axes(TensorType(x.dtype, x.shape, device=x.device))
        function = self._function()
        if not axes:
            output_storage[0][0] = x.clone()
            return
        if "int[" in function.types[1].schema:
            x = function.torch_op(x, axes, self.keepdim)
        else:
            for a in reversed(axes):
                x = function.torch_op(x, a, self.keepdim)
        output_storage[0][0] = x

    def grad(self, inputs: Variables, output_grads: Variables) -> Gradients:
        return derivatives().through([self.expand(inputs[0])], output_grads, inputs)

    def c_code(self, node: Apply, name: str, inputs: Names, outputs: Names, sub: Sub) -> str:
        """One call, or one after the other where the function takes one axis only."""
        x = node.inputs[0].type.make_variable()
        steps = toposort([self.expand(x)])
        lines = [f"Tensor {name}_{k} = NULL;" for k in range(len(steps) - 1)]
        source = inputs[0]
        for k, step in enumerate(steps):
            last = k == len(steps) - 1
            target = outputs[0] if last else f"{name}_{k}"
            free = f"FreeTensor({source});" if k else ""
            # What the last call read goes, whether or not the call fails.
            fail = sub["fail"].strip().removeprefix("{").removesuffix("}").strip()
            fails = {"fail": f"{{ {free} {fail} }}" if free else sub["fail"]}
            lines.append(f"{{\n{step.op.c_code(step, name, [source], [target], fails)}\n{free}\n}}")
            source = target
        return "\n".join(lines)
