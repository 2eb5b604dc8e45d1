"""What can be attached to a FunctionGraph: it is told of every change, and may object."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .basic import Apply, Variable
    from .function_graph import FunctionGraph


class Feature:
    """The base class; every method may be left as it is."""

    def on_attach(self, fgraph: FunctionGraph) -> None:
        """Runs when it is attached; raises where it cannot be."""

    def on_detach(self, fgraph: FunctionGraph) -> None: ...

    def on_import(self, fgraph: FunctionGraph, node: Apply, reason: str) -> None:
        """A node has come into the graph."""

    def on_prune(self, fgraph: FunctionGraph, node: Apply, reason: str) -> None:
        """A node has left the graph."""

    def on_change_input(
        self,
        fgraph: FunctionGraph,
        client: Apply | str,
        i: int,
        old: Variable,
        new: Variable,
        reason: str,
    ) -> None:
        """Input i of a node, or output i of the graph, has changed."""

    def validate(self, fgraph: FunctionGraph) -> None:
        """Raises InconsistencyError where the graph cannot stay as it is."""

    def orderings(self, fgraph: FunctionGraph) -> dict[Apply, list[Apply]]:
        """For nodes, those that must run before them besides those that they need."""
        return {}
