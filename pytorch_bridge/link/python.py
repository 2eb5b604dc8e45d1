"""Runs a graph node by node, with Python in between.

There is one interpreter. A linker says how a single node is run, and what is checked around it:
here by `perform`, in `opwise` as C of its own, in `dual` and `debug` both ways and compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..graph.basic import Apply, Constant, Variable, toposort
from ..inference.quiet import without_autocast
from ..ops.op import Storage, run_perform
from .explain import Explainer, GraphPlace

# Runs a node on the values of its inputs; what it computes goes into the storages of its outputs.
NodeRunner = Callable[[Sequence[Any], Sequence[Storage]], None]


class PythonLinker:
    """Runs a graph by `perform`. Subclasses run a node in another way.

    With `gc`, temporaries are dropped after their last use. Without, each op finds its old outputs
    in its storage at the next call, and may use them again.
    """

    def __init__(self, fgraph: Any, gc: bool = True) -> None:
        self.inputs: list[Variable] = list(fgraph.inputs)
        self.outputs: list[Variable] = list(fgraph.outputs)
        ordered = getattr(fgraph, "toposort", None)
        self.order: list[Apply] = list(
            ordered() if ordered else toposort(self.outputs, self.inputs)
        )
        self.gc = gc

    def runner(self, node: Apply) -> NodeRunner:
        """How a node is run."""
        return partial(run_perform, node)

    def make_thunk(self) -> Callable[[Sequence[Any]], list[Any]]:
        """A callable that takes the list of input values and returns the list of outputs."""
        return Interpreter(self)


class Interpreter:
    """Takes the values of a graph's inputs, and returns those of its outputs. What a node raises
    says where in the graph it was."""

    def __init__(self, linker: PythonLinker) -> None:
        self.linker = linker
        slots = {v: i for i, v in enumerate(linker.inputs)}

        def places(variables: Sequence[Variable]) -> list[int]:
            return [slots.setdefault(v, len(slots)) for v in variables]

        nodes = [(places(node.inputs), places(node.outputs)) for node in linker.order]
        self.outputs = places(linker.outputs)
        self.initial = [v.data if isinstance(v, Constant) else None for v in slots]
        kept = {*self.outputs, *(slots[v] for v in slots if isinstance(v, Constant))}
        last: dict[int, int] = {}
        for i, (inputs, outputs) in enumerate(nodes):
            last.update(dict.fromkeys([*inputs, *outputs], i))
        drops: list[list[int]] = [[] for _ in nodes]
        for slot, i in last.items():
            if linker.gc and slot not in kept:
                drops[i].append(slot)
        runners = map(linker.runner, linker.order)
        self.steps = [(r, *n, d) for r, n, d in zip(runners, nodes, drops, strict=True)]
        self.storage = None if linker.gc else self._fresh()

    def _fresh(self) -> list[Storage]:
        return [[value] for value in self.initial]

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        import torch

        n = len(self.linker.inputs)
        if len(values) != n:
            raise TypeError(f"the graph has {n} inputs, the call gives {len(values)}")
        storage = self.storage or self._fresh()
        for i, value in enumerate(values):
            storage[i][0] = value
        with torch.no_grad(), without_autocast():  # as in C
            for at, (run, inputs, outputs, drops) in enumerate(self.steps):
                given = [storage[i][0] for i in inputs]
                try:
                    run(given, [storage[o] for o in outputs])
                except Exception as e:
                    self._explain(e, at, given)
                    raise
                for slot in drops:
                    storage[slot][0] = None
        results = [storage[o][0] for o in self.outputs]
        if self.storage is not None:
            # What the caller has is not ours any more.
            for slot in (*self.outputs, *range(n)):
                storage[slot][0] = self.initial[slot]
        return results

    def _explain(self, e: Exception, at: int, given: Sequence[Any]) -> None:
        linker = self.linker
        place = GraphPlace("code", node=linker.order[at])
        Explainer(linker.inputs, linker.outputs, linker.order, [place]).at(1, e, given)
