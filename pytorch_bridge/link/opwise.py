"""The per-op linker: one C function per node, and Python in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from ..graph.basic import Apply, Constant, Variable, position, toposort
from .c_linker import CLinker, Thunk
from .emit import Perform, has_c
from .explain import Explainer, Place

NodeThunk = Callable[[list[Any]], list[Any]]


class NodeLinker:
    """Runs the nodes of a graph one by one, in Python. Subclasses say how one node is run."""

    def __init__(self, fgraph: Any) -> None:
        self.inputs: list[Variable] = list(fgraph.inputs)
        self.outputs: list[Variable] = list(fgraph.outputs)
        ordered = getattr(fgraph, "toposort", None)
        self.order: list[Apply] = list(
            ordered() if ordered else toposort(self.outputs, self.inputs)
        )

    def node_thunk(self, node: Apply) -> NodeThunk:
        """A function from the values of a node's inputs to those of its outputs."""
        raise NotImplementedError

    def make_thunk(self) -> Callable[[Sequence[Any]], list[Any]]:
        """A callable that takes the list of input values and returns the list of outputs."""
        last: dict[Variable, int] = {}
        for i, node in enumerate(self.order):
            last.update(dict.fromkeys([*node.inputs, *node.outputs], i))
        kept = {*self.inputs, *self.outputs}
        dead: list[list[Variable]] = [[] for _ in self.order]
        for v, i in last.items():
            if v not in kept and not isinstance(v, Constant):
                dead[i].append(v)
        steps = [(n, self.node_thunk(n), d) for n, d in zip(self.order, dead, strict=True)]
        explain = Explainer(
            self.inputs, self.outputs, self.order, [Place("code", node=n) for n in self.order]
        )

        def thunk(values: Sequence[Any]) -> list[Any]:
            if len(values) != len(self.inputs):
                raise TypeError(
                    f"the graph has {len(self.inputs)} inputs, the call gives {len(values)}"
                )
            at = dict(zip(self.inputs, values, strict=True))
            for i, (node, run, unused) in enumerate(steps):
                arguments = [at[v] if v in at else _data(v) for v in node.inputs]
                try:
                    results = run(arguments)
                except Exception as err:
                    raise explain.at(i + 1, err)  # noqa: B904  # it is the same exception
                at.update(zip(node.outputs, results, strict=True))
                for v in unused:
                    del at[v]
            return [at[v] if v in at else _data(v) for v in self.outputs]

        return thunk


def _data(v: Variable) -> Any:
    assert isinstance(v, Constant), v
    return v.data


def perform(node: Apply) -> NodeThunk:
    """Runs a node in Python."""

    run = Perform(node)
    return lambda values: list(run(*values))


def alone(node: Apply) -> SimpleNamespace:
    """A graph of one node: its inputs, each once, and all its outputs."""
    became = {
        v: v.clone() if isinstance(v, Constant) else Variable(v.type, name=v.name)
        for v in node.inputs
    }
    copied = node.clone([became[v] for v in node.inputs])
    inputs = [v for v in became.values() if not isinstance(v, Constant)]
    return SimpleNamespace(inputs=inputs, outputs=copied.outputs)


def compiled(node: Apply) -> NodeThunk | None:
    """Runs a node's C code; None where it has none."""
    if not all(has_c(v.type) for v in [*node.inputs, *node.outputs]):
        return None
    try:
        library = CLinker(alone(node), demand_c=True).library()
    except NotImplementedError:
        return None
    library.explain.silent = True
    thunk = Thunk(library)
    firsts = [
        i
        for i, v in enumerate(node.inputs)
        if not isinstance(v, Constant) and position(v, node.inputs) == i
    ]
    return lambda values: thunk([values[i] for i in firsts])


class OpWiseLinker(NodeLinker):
    """One compiled function per node; `perform` for those without C code."""

    def node_thunk(self, node: Apply) -> NodeThunk:
        return compiled(node) or perform(node)
