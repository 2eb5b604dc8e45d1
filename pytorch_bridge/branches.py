"""Branches: a node with graphs in it, of which a call computes one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .compiled import function
from .errors import MissingMethodError
from .gradient import vector_jacobian
from .graph.basic import Apply, Constant, Variable, graph_inputs, toposort
from .model import substituted
from .ops.native import native
from .ops.op import Op, Storages, Values, closed
from .rewrite import names
from .rewrite.prepare import prepared
from .types import TensorType, Type

if TYPE_CHECKING:
    from .compiled import CompiledFunction
    from .graph.function_graph import FunctionGraph


class Branch:
    """The graph from `inputs` to `outputs`. Its tensors that are known, `constants`, are inputs
    too, the last ones: they belong to the graph around it."""

    def __init__(self, inputs: Sequence[Variable], outputs: Sequence[Variable]) -> None:
        self.constants = [
            v for v in graph_inputs(outputs) if isinstance(v, Constant) and _is_tensor(v.type)
        ]
        became: dict[Variable, Variable] = {v: v.type.make_variable() for v in self.constants}
        self.inputs = [*inputs, *became.values()]
        self.outputs = substituted(outputs, became)

    @cached_property
    def fgraph(self) -> FunctionGraph:
        """The graph as it is compiled. No constants are made of it."""
        passes = [p for p in names() if p != "fold"]
        return prepared(self.inputs, self.outputs, (), passes)

    @cached_property
    def compiled(self) -> CompiledFunction:
        return function(self.inputs, self.outputs)


@closed
class Cond(Op):
    """The outputs of its first branch where its first input is true, else of the second. The other
    inputs are those of both branches, each with its constants behind."""

    def __init__(self, branches: Sequence[Branch], types: Sequence[Type]) -> None:
        self.branches, self.types = list(branches), list(types)
        self.random = any(node.op.random for b in branches for node in toposort(b.outputs))

    def __str__(self) -> str:
        return "cond"

    __repr__ = __str__

    def make_node(self, condition: Variable, *operands: Variable) -> Apply:
        constants = [v for b in self.branches for v in b.constants]
        inputs = [condition, *operands, *constants]
        return Apply(self, inputs, [t.make_variable() for t in self.types])

    def taken(self, branch: int, inputs: Sequence[Any]) -> list[Any]:
        """Which of a node's inputs a branch gets."""
        before = sum(len(b.constants) for b in self.branches[:branch])
        behind = sum(len(b.constants) for b in self.branches[branch + 1 :])
        shared = len(inputs) - 1 - sum(len(b.constants) for b in self.branches)
        own = inputs[1 + shared + before : len(inputs) - behind]
        return [*inputs[1 : 1 + shared], *own]

    def grad_of_node(
        self, node: Apply, output_grads: Sequence[Variable | None], need: Sequence[bool]
    ) -> Sequence[Variable | None]:
        """The gradients by the branch that is taken, which is computed again for it."""
        if self.random:
            raise MissingMethodError("cond has no gradient where a branch draws random numbers")
        count = len(node.inputs) - 1 - sum(len(b.constants) for b in self.branches)
        operands = node.inputs[1 : 1 + count]
        wanted = [i for i in range(count) if need[1 + i]]
        given = [g for g in output_grads if g is not None]
        branches = []
        for b in self.branches:
            grads = iter([g.type.make_variable() for g in given])
            taken = [None if g is None else next(grads) for g in output_grads]
            xs = [b.inputs[i] for i in wanted]
            found = vector_jacobian(b.outputs, taken, xs)
            pairs = zip(xs, found, strict=True)
            filled = [native("zeros_like")(x) if g is None else g for x, g in pairs]
            own = dict(zip(b.inputs[count:], b.constants, strict=True))
            inputs = [*b.inputs[:count], *(g for g in taken if g is not None)]
            branches.append(Branch(inputs, substituted(filled, own)))
        made = Cond(branches, [operands[i].type for i in wanted])
        results = made.make_node(node.inputs[0], *operands, *given).outputs
        places = dict(zip(wanted, results, strict=True))
        return [None, *(places.get(i) for i in range(count)), *[None] * (len(need) - 1 - count)]

    def perform(self, node: Apply, inputs: Values, output_storage: Storages) -> None:
        branch = 0 if inputs[0] else 1
        results = self.branches[branch].compiled(*self.taken(branch, inputs))
        for storage, value in zip(output_storage, results, strict=True):
            storage[0] = value


def _is_tensor(t: Type) -> bool:
    return isinstance(t, TensorType)
