"""Branches: a node with graphs in it, of which a call computes what it needs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..autodiff.grad import vector_jacobian
from ..errors import MissingMethodError
from ..graph.basic import Apply, Constant, Variable, graph_inputs, toposort
from ..link.compiled_function import function
from ..ops.native import native
from ..ops.op import CallsTorch, Names, Storages, Values, closed
from ..rewrite import names
from ..rewrite.prepare import prepared
from ..types import TensorType, Type
from ..types.base import Sub
from .model import substituted

if TYPE_CHECKING:
    from ..graph.function_graph import FunctionGraph
    from ..link.compiled_function import CompiledFunction

# Inputs and outputs of a graph, on another device.
Moved = Callable[[Sequence[Variable], Sequence[Variable]], tuple[list[Variable], list[Variable]]]


class Branch:
    """The graph from `inputs` to `outputs`. Its tensors that are known, `constants`, are inputs
    too, the last ones: they belong to the graph around it."""

    def __init__(self, inputs: Sequence[Variable], outputs: Sequence[Variable]) -> None:
        self.constants = [
            v for v in graph_inputs(outputs) if isinstance(v, Constant) and is_tensor(v.type)
        ]
        became: dict[Variable, Variable] = {v: v.type.make_variable() for v in self.constants}
        self.inputs = [*inputs, *became.values()]
        self.outputs = substituted(outputs, became)

    def located(self, move: Moved) -> Branch:
        """The same graph with what `move` makes of its inputs and outputs."""
        made = Branch(*move(self.inputs, self.outputs))
        made.constants = self.constants
        return made

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled and copied: not what has been compiled of it."""
        known = {"fgraph", "compiled"}
        return {name: value for name, value in vars(self).items() if name not in known}

    @cached_property
    def fgraph(self) -> FunctionGraph:
        """The graph as it is compiled. No constants are made of it."""
        passes = [p for p in names() if p != "fold"]
        return prepared(self.inputs, self.outputs, (), passes)

    @cached_property
    def compiled(self) -> CompiledFunction:
        return function(self.inputs, self.outputs)


class Branching(CallsTorch):
    """An op with graphs in it. Its inputs are its operands, then the constants of each branch.

    `c_around` is its C code around the functions that its branches are."""

    only_calls = True
    not_traced = (
        'which of its graphs are computed depends on values: mode "c" compiles it, mode '
        '"inductor" does not'
    )

    def __init__(self, branches: Sequence[Branch], types: Sequence[Type]) -> None:
        self.branches, self.types = list(branches), list(types)
        self.random = any(node.op.random for b in branches for node in toposort(b.outputs))

    def __str__(self) -> str:
        return type(self).__name__.lower()

    __repr__ = __str__

    def make_node(self, *operands: Variable) -> Apply:
        constants = [v for b in self.branches for v in b.constants]
        return Apply(self, [*operands, *constants], [t.make_variable() for t in self.types])

    def operands(self, inputs: Sequence[Any]) -> list[Any]:
        """Which of a node's inputs are its operands."""
        return list(inputs[: len(inputs) - sum(len(b.constants) for b in self.branches)])

    def constants(self, branch: int, inputs: Sequence[Any]) -> list[Any]:
        """Which of a node's inputs are the constants of a branch."""
        behind = sum(len(b.constants) for b in self.branches[branch + 1 :])
        end = len(inputs) - behind
        return list(inputs[end - len(self.branches[branch].constants) : end])

    def located(self, move: Moved, types: Sequence[Type]) -> Branching:
        """The same with its graphs on another device, and the types of its results there."""
        made = copy.copy(self)
        made.branches, made.types = [b.located(move) for b in self.branches], list(types)
        return made

    def c_code(self, node: Apply, name: str, inputs: Names, outputs: Names, sub: Sub) -> str:
        raise MissingMethodError(
            f"{self} calls functions that are compiled of its graphs; it is C in packages and "
            'folders alone, so use mode "c"'
        )

    def c_around(
        self, node: Apply, functions: Names, inputs: Names, outputs: Names, sub: Sub
    ) -> str:
        """C that computes the outputs' variables from the inputs'. Each of `functions` takes what
        its branch takes, and addresses for what that returns; it returns an error or NULL."""
        raise NotImplementedError


@closed
class Cond(Branching):
    """The outputs of its first branch where its first input is true, else of the second. The other
    inputs are those of both branches."""

    def taken(self, branch: int, inputs: Sequence[Any]) -> list[Any]:
        """Which of a node's inputs a branch gets."""
        return [*self.operands(inputs)[1:], *self.constants(branch, inputs)]

    def c_around(
        self, node: Apply, functions: Names, inputs: Names, outputs: Names, sub: Sub
    ) -> str:
        to = [f"&{o}" for o in outputs]
        calls = [called(f, [*self.taken(k, inputs), *to]) for k, f in enumerate(functions)]
        return f"pb_error = {inputs[0]} ? {calls[0]} : {calls[1]};\nif (pb_error) {sub['fail']}"

    def grad_of_node(
        self, node: Apply, output_grads: Sequence[Variable | None], need: Sequence[bool]
    ) -> Sequence[Variable | None]:
        """The gradients by the branch that is taken, which is computed again for it."""
        if self.random:
            raise MissingMethodError("cond has no gradient where a branch draws random numbers")
        operands = self.operands(node.inputs)[1:]
        count = len(operands)
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


def called(function: str, arguments: Iterable[str]) -> str:
    """The C expression of a call."""
    return f"{function}({', '.join(arguments)})"


def is_tensor(t: Type) -> bool:
    """Whether a type is that of tensors."""
    return isinstance(t, TensorType)
