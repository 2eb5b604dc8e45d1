"""The Python linker: each node's `perform`, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import BridgeTypeError
from ..graph.basic import Apply, Constant, Variable
from ..graph.function_graph import FunctionGraph
from ..ops.op import run_perform


class PythonLinker:
    """Runs a graph by `perform`.

    With `gc`, temporaries are dropped after their last use. Without, each op finds its old outputs
    in its storage at the next call, and may use them again.
    """

    checks_inputs = False

    def __init__(self, fgraph: FunctionGraph, gc: bool = True) -> None:
        self.fgraph = fgraph
        self.gc = gc

    def make_thunk(self) -> Callable[[Sequence[Any]], list[Any]]:
        return Thunk(self.fgraph, self.gc)


class Thunk:
    """Takes the values of a graph's inputs, and returns those of its outputs."""

    def __init__(self, fgraph: FunctionGraph, gc: bool = True) -> None:
        self.fgraph = fgraph
        self.order = fgraph.toposort()
        self.gc = gc
        self.slots: dict[Variable, int] = {}
        self.constants: list[tuple[int, Any]] = []
        for v in fgraph.inputs:
            self._slot(v)
        self.steps = [
            (node, [self._slot(v) for v in node.inputs], [self._slot(v) for v in node.outputs])
            for node in self.order
        ]
        self.outputs = [self._slot(v) for v in fgraph.outputs]
        self.drops = self._last_uses()
        self._storage = None if gc else self._fresh()

    def _slot(self, v: Variable) -> int:
        if v not in self.slots:
            self.slots[v] = len(self.slots)
            if isinstance(v, Constant):
                self.constants.append((self.slots[v], v.data))
        return self.slots[v]

    def _last_uses(self) -> list[list[int]]:
        """For each step, what nobody needs after it."""
        keep = {*self.outputs, *(s for s, _ in self.constants)}
        last: dict[int, int] = {}
        for i, (_, inputs, outputs) in enumerate(self.steps):
            last.update(dict.fromkeys([*inputs, *outputs], i))
        drops: list[list[int]] = [[] for _ in self.steps]
        for slot, i in last.items():
            if slot not in keep:
                drops[i].append(slot)
        return drops

    def _fresh(self) -> list[list[Any]]:
        storage: list[list[Any]] = [[None] for _ in self.slots]
        for slot, value in self.constants:
            storage[slot][0] = value
        return storage

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        import torch

        storage = self._storage or self._fresh()
        for i, value in enumerate(values):
            storage[i][0] = value
        with torch.no_grad():
            for (node, inputs, outputs), drops in zip(self.steps, self.drops, strict=True):
                self.step(node, [storage[i][0] for i in inputs], [storage[o] for o in outputs])
                if self.gc:
                    for slot in drops:
                        storage[slot][0] = None
        results = [storage[o][0] for o in self.outputs]
        if not self.gc:
            # What the caller has is not ours any more.
            for slot in (*self.outputs, *range(len(values))):
                storage[slot][0] = None
        return results

    def step(self, node: Apply, inputs: list[Any], outputs: list[list[Any]]) -> None:
        """Runs one node."""
        perform(node, inputs, outputs, self.order)


def perform(
    node: Apply, inputs: Sequence[Any], outputs: Sequence[list[Any]], order: Sequence[Apply]
) -> None:
    """`perform`, with the node named in what it raises."""
    try:
        run_perform(node, inputs, outputs)
    except Exception as e:
        _explain(e, node, inputs, order)
        raise


def _explain(e: Exception, node: Apply, inputs: Sequence[Any], order: Sequence[Apply]) -> None:
    """Adds to an exception where in the graph it was raised."""
    from ..types.schema import describe
    from .explain import picture_of

    place = next((i for i, n in enumerate(order) if n is node), None)
    note = f"\nin node {place}: {node.op}\n{picture_of(node)}"
    for i, (v, value) in enumerate(zip(node.inputs, inputs, strict=True)):
        note += f"\n  input {i} ({v}, {v.type}): {describe(value)}"
    add_note = getattr(e, "add_note", None)  # Python 3.11
    if add_note is not None:
        add_note(note.lstrip("\n"))
    elif e.args and isinstance(e.args[0], str):
        e.args = (e.args[0] + note, *e.args[1:])


def node_thunk(node: Apply) -> Callable[[Sequence[Any], Sequence[list[Any]]], None]:
    """What runs one node on values and storages: `perform`, or the C code where it has no other.
    BridgeTypeError where it has neither."""
    from ..ops.op import Op

    if type(node.op).perform is not Op.perform:
        return lambda inputs, outputs: perform(node, inputs, outputs, [node])
    try:
        from .c_linker import CLinker
    except ImportError:
        raise BridgeTypeError(
            f"{node.op} has no perform, and nothing compiles its C code"
        ) from None
    inputs = [v.type.make_variable() for v in node.inputs]
    single = node.clone(inputs)
    thunk = CLinker(FunctionGraph(inputs, single.outputs, clone=False)).make_thunk()

    def run(values: Sequence[Any], outputs: Sequence[list[Any]]) -> None:
        for cell, value in zip(outputs, thunk(list(values)), strict=True):
            cell[0] = value

    return run
