"""Rewrites: a graph becomes another that computes the same values with less work.

Each changes nothing that a caller can observe, and is validated or taken back. They are, in order,

    fold       what depends on constants only becomes one
    canonical  what does nothing, or undoes what was done, goes
    copies     copies go that nobody can tell from what they are of
    merge      what is computed twice is computed once
    writes     what is written into a part of a tensor is written at once
    fuse       elementwise ops that follow each other become one loop
    inplace    results are made in memory that nobody needs any more

Each is a function in a module of its name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ..errors import BridgeValueError

if TYPE_CHECKING:
    from ..graph.function_graph import FunctionGraph

# A pass takes a graph, changes it, and returns how much it has done; applied in this order.
PASSES = {
    "fold": "fold.fold",
    "canonical": "canonical.canonical",
    "copies": "copies.copies",
    "merge": "merge.merge_apart",
    "writes": "writes.writes",
    "fuse": "fuse.fuse",
    "inplace": "inplace.inplace",
}


def _pass(name: str) -> Callable[[FunctionGraph], int]:
    module, function = PASSES[name].split(".")
    return getattr(importlib.import_module(f".{module}", __name__), function)


def rewrite(fgraph: FunctionGraph, passes: bool | Iterable[str] | None = None) -> dict[str, int]:
    """Applies the passes in their order, whatever order they are named in; True and None mean all
    of them, False none. Returns how much each has done.

    BridgeValueError for a name that is no pass.
    """
    if passes is None or isinstance(passes, bool):
        chosen = set() if passes is False else set(PASSES)
    else:
        chosen = {passes} if isinstance(passes, str) else set(passes)
    for name in sorted(chosen.difference(PASSES)):
        raise BridgeValueError(f"there is no rewrite {name!r}: there are {', '.join(PASSES)}")
    return {name: _pass(name)(fgraph) for name in PASSES if name in chosen}
