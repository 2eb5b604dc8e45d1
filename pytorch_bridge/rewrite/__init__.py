"""Rewrites: a graph becomes another that computes the same values with less work.

Each changes nothing that a caller can observe, and is validated or taken back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..graph.function_graph import FunctionGraph


def rewrite(fgraph: FunctionGraph) -> None:
    """Applies every rewrite that is on by default."""
    from .merge import merge

    merge(fgraph)
