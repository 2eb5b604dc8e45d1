"""Composite: a graph of scalar ops as one scalar op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import BridgeTypeError
from ..graph.basic import Apply, Constant, Variable, among, clone_graph, graph_inputs, toposort
from ..inference.shape_rules import broadcast
from ..sameness import constant_key
from ..types import TensorType, Type
from ..types.numbers import NumberArg
from .fused_elements import ElementOp
from .native import constant
from .op import Op, Storages, Values, closed
from .scalar import ScalarOp


@closed
class Composite(Op):
    """A graph of scalar ops between `inputs` and `outputs`, which are elements: variables of
    tensor types without dimensions. Composites in it are dissolved, so there is never one inside
    another.

        x, y = TensorType("float32", ())("x"), TensorType("float32", ())("y")
        f = Elemwise(Composite([x, y], [scalar.relu(scalar.mul(scalar.add(x, y), y))]))
    """

    def __init__(self, inputs: Sequence[Variable], outputs: Sequence[Variable]) -> None:
        inputs, outputs, _ = clone_graph(inputs, outputs)
        for v in graph_inputs(outputs):
            if not among(v, inputs) and not isinstance(v, Constant):
                raise BridgeTypeError(f"Composite: {v} is neither an input nor a constant")
        outputs = _dissolved(inputs, outputs)
        self.inputs = inputs
        self.outputs = outputs
        self.order = toposort(outputs, inputs)
        for node in self.order:
            if not isinstance(node.op, (ScalarOp, ElementOp)):
                raise BridgeTypeError(f"Composite: {node.op} is no scalar op")
        for v in [*inputs, *outputs]:
            element = isinstance(v.type, TensorType) and v.type.ndim == 0
            if not element and not isinstance(v.type, NumberArg):
                raise BridgeTypeError(f"Composite: {v} of type {v.type} is no element")
        self._structure = self._describe()
        self._hash = hash(self._structure)

    @property
    def arity(self) -> int:
        return len(self.inputs)

    def _describe(self) -> tuple[Any, ...]:
        """What makes two composites equal: types, and the nodes with the numbers of their inputs
        among all variables."""
        numbers: dict[Variable, Any] = {v: i for i, v in enumerate(self.inputs)}

        def number(v: Variable) -> Any:
            if v not in numbers:
                assert isinstance(v, Constant)
                return ("constant", constant_key(v))
            return numbers[v]

        nodes = []
        for node in self.order:
            inputs = tuple(number(v) for v in node.inputs)
            nodes.append((node.op, inputs, node.outputs[0].type))
            for v in node.outputs:
                numbers[v] = len(numbers)
        types = tuple(v.type for v in self.inputs)
        return types, tuple(nodes), tuple(number(v) for v in self.outputs)

    def _parameters(self) -> tuple[Any, ...]:
        return self._structure

    __eq__ = Op.__eq__

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> Any:
        return Composite, (self.inputs, self.outputs)  # hashes are other ones in other processes

    def __str__(self) -> str:
        return f"Composite{{{', '.join(self._texts())}}}"

    __repr__ = __str__

    def _texts(self) -> list[str]:
        names: dict[Variable, str] = {v: v.name or f"i{i}" for i, v in enumerate(self.inputs)}
        for node in self.order:
            args = ", ".join(names.get(v, str(v)) for v in node.inputs)
            text = f"{node.op}({args})"
            names[node.outputs[0]] = text if len(text) <= 80 else text[:77] + "..."
        return [names.get(v, str(v)) for v in self.outputs]

    # As a scalar op
    def make_node(self, *inputs: Any) -> Apply:
        if len(inputs) != self.arity:
            raise BridgeTypeError(f"{self} takes {self.arity} inputs, got {len(inputs)}")
        variables = [constant(v) for v in inputs]
        for i, (mine, v) in enumerate(zip(self.inputs, variables, strict=True)):
            if not mine.type.is_super(v.type):
                raise BridgeTypeError(
                    f"{self}: input {i} must be of type {mine.type}, got {v} of type {v.type}"
                )
        return Apply(self, variables, [v.type.make_variable() for v in self.outputs])

    def compute(self, values: Sequence[Any]) -> list[Any]:
        """The outputs for numbers or tensors, one scalar op after the other."""
        known: dict[Variable, Any] = dict(zip(self.inputs, values, strict=True))

        def value(v: Variable) -> Any:
            if v not in known:
                assert isinstance(v, Constant)
                return v.data
            return known[v]

        for node in self.order:
            assert isinstance(node.op, (ScalarOp, ElementOp))
            known[node.outputs[0]] = node.op.compute([value(v) for v in node.inputs])
        return [value(v) for v in self.outputs]

    def perform(self, node: Apply, inputs: Values, output_storage: Storages) -> None:
        for storage, value in zip(output_storage, self.compute(inputs), strict=True):
            storage[0] = value

    # As what Elemwise applies
    def tensor_types(self, types: Sequence[Type]) -> list[Type]:
        """The types of Elemwise's outputs."""
        shapes = []
        devices = set()
        for i, (mine, t) in enumerate(zip(self.inputs, types, strict=True)):
            assert isinstance(t, TensorType)
            if t.dtype != getattr(mine.type, "dtype", None):
                raise BridgeTypeError(
                    f"Elemwise{{{self}}}: input {i} must be of "
                    f"{getattr(mine.type, 'dtype', mine.type)}, got {t}"
                )
            if t.shape is None:
                raise BridgeTypeError(f"Elemwise{{{self}}}: input {i} has no fixed dimensions")
            shapes.append(t.shape)
            devices.add(t.device)
        if broadcast(shapes) is None:
            raise BridgeTypeError(
                f"Elemwise{{{self}}}: the shapes {', '.join(map(str, shapes))} do not broadcast"
            )
        device = next((d for d in devices if d != "cpu"), "cpu")
        return [
            TensorType(v.type.dtype, broadcast(mine), device=device)  # type: ignore[attr-defined]
            for v, mine in zip(self.outputs, self._shapes(shapes), strict=True)
        ]

    def _shapes(self, shapes: Sequence[Any]) -> list[list[Any]]:
        """For each output the shapes of the inputs that it depends on."""
        leaves = {v: 1 << i for i, v in enumerate(self.inputs)}
        for node in self.order:
            bits = 0
            for v in node.inputs:
                bits |= leaves.get(v, 0)
            leaves[node.outputs[0]] = bits
        return [
            [s for i, s in enumerate(shapes) if leaves.get(v, 0) >> i & 1] for v in self.outputs
        ]


def _dissolved(inputs: Sequence[Variable], outputs: Sequence[Variable]) -> list[Variable]:
    """The outputs, with every Composite among the nodes replaced by what it is made of."""
    order = toposort(outputs, inputs)
    if not any(isinstance(n.op, Composite) for n in order):
        return list(outputs)
    became: dict[Variable, Variable] = {}
    for node in order:
        args = [became.get(v, v) for v in node.inputs]
        if isinstance(node.op, Composite):
            inner = node.op
            mapped: dict[Variable, Variable] = dict(zip(inner.inputs, args, strict=True))
            for step in inner.order:
                copied = step.clone([mapped.get(v, v) for v in step.inputs])
                mapped.update(zip(step.outputs, copied.outputs, strict=True))
            became.update(
                (mine, mapped.get(v, v))
                for mine, v in zip(node.outputs, inner.outputs, strict=True)
            )
        else:
            copied = node.clone(args)
            became.update(zip(node.outputs, copied.outputs, strict=True))
    return [became.get(v, v) for v in outputs]
