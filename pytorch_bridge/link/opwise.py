"""The per-op linker: one C function per node, and Python in between."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from ..graph.basic import Apply, Constant, Variable, position
from ..ops.op import Storage
from .c_linker import CLinker, CThunk
from .emit import has_c
from .python import NodeRunner, PythonLinker


def alone(node: Apply) -> SimpleNamespace:
    """A graph of one node: its inputs, each once, and all its outputs."""
    became = {
        v: v.unconnected() if isinstance(v, Constant) else Variable(v.type, name=v.name)
        for v in node.inputs
    }
    copied = node.clone([became[v] for v in node.inputs])
    inputs = [v for v in became.values() if not isinstance(v, Constant)]
    return SimpleNamespace(inputs=inputs, outputs=copied.outputs)


def in_c(node: Apply) -> NodeRunner | None:
    """Runs a node's C code; None where it has none."""
    if not all(has_c(v.type) for v in [*node.inputs, *node.outputs]):
        return None
    try:
        library = CLinker(alone(node), demand_c=True).library()
    except NotImplementedError:
        return None
    library.explain.silent = True
    thunk = CThunk(library)
    firsts = [
        i
        for i, v in enumerate(node.inputs)
        if not isinstance(v, Constant) and position(v, node.inputs) == i
    ]

    def run(values: Sequence[Any], outputs: Sequence[Storage]) -> None:
        for cell, value in zip(outputs, thunk([values[i] for i in firsts]), strict=True):
            cell[0] = value

    return run


class OpWiseLinker(PythonLinker):
    """One compiled function per node; `perform` for those without C code."""

    def runner(self, node: Apply) -> NodeRunner:
        return in_c(node) or super().runner(node)
