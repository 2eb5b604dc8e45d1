"""Who can see whose memory, for rewrites that would make one of two.

A caller may write into what a function has returned. So what an output lies in must stay its own:
apart from the inputs, the constants, and other outputs that it was apart from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..errors import InconsistencyError
from ..graph.basic import Constant, Variable, toposort
from ..graph.function_graph import FunctionGraph
from .destroy import Memory

Replace = Callable[[Variable, Variable, str], bool]


def carefully(
    fgraph: FunctionGraph, step: Callable[[FunctionGraph, Replace], int], name: str
) -> int:
    """Runs a rewrite, which replaces variables by what it is given. All is validated together; if
    that fails, it is taken back, and every replacement is validated alone."""

    def at_once(old: Variable, new: Variable, reason: str) -> bool:
        fgraph.replace(old, new, reason)
        return True

    def one_by_one(old: Variable, new: Variable, reason: str) -> bool:
        return fgraph.try_replace_all([(old, new)], reason)

    try:
        with fgraph.trial(name):
            return step(fgraph, at_once)
    except InconsistencyError:
        return step(fgraph, one_by_one)


class Sharing:
    """What lies in the memory of what, when a rewrite begins."""

    def __init__(self, fgraph: FunctionGraph) -> None:
        self.memory = Memory(toposort(fgraph.outputs, fgraph.inputs))
        self.inputs = set(fgraph.inputs)
        self.destroyed = {root for root, _ in self.memory.destroyers}
        self._outputs: dict[Variable, set[Variable]] = {}  # by their roots
        for v in fgraph.outputs:
            for root in self.roots(v):
                self._outputs.setdefault(root, set()).add(v)

    def roots(self, v: Variable) -> set[Variable]:
        """The variables whose memory v may lie in."""
        if v not in self.memory.versions and v.owner is not None:
            for node in toposort([v], self.memory.versions):
                if any(o not in self.memory.versions for o in node.outputs):
                    self.memory._add(node)
        return {root for root, _ in self.memory.of(v)}

    def outputs_in(self, v: Variable) -> set[Variable]:
        """The outputs that may lie in v's memory."""
        return set().union(*(self._outputs.get(root, ()) for root in self.roots(v)))

    def apart(self, variables: Iterable[Variable]) -> bool:
        """Whether no output lies in the memory of any of these."""
        return not any(map(self.outputs_in, variables))

    def may_be_one(self, old: Variable, new: Variable) -> bool:
        """Whether old, which has memory of its own, may be replaced by new, which has the same
        value: nobody writes into either, and no output comes to share memory that it did not."""
        before, after = self.roots(old), self.roots(new)
        if (before | after) & self.destroyed:
            return False
        mine = self.outputs_in(old)
        if mine:
            if self.outputs_in(new) or any(
                root in self.inputs or isinstance(root, Constant) for root in after
            ):
                return False
            for root in after:
                self._outputs.setdefault(root, set()).update(mine)
        return True
