"""What a graph gets before it is linked: a caller's memory is kept apart, then come the rewrites.

Each step is one pass over the graph, with what is known of memory at that point:

    protect             constants, and inputs that a caller keeps, are written into as copies
    separate_arguments  what a function reads and writes through two arguments is read before
    separate_inputs     two inputs of a call that overlap are told apart when they are there
    rewrite             the rewrites of the mode, in their order
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ..aliasing.destroy import DestroyHandler, Memory, conflicts, destroyed_inputs
from ..aliasing.runtime_strides import with_strides
from ..aliasing.unalias import Separate
from ..errors import BridgeTypeError, BridgeValueError
from ..graph.basic import Constant, Variable, among, toposort
from ..graph.function_graph import FunctionGraph
from ..ops.basic import deep_copy_op
from ..ops.native import NativeOp
from ..types import TensorType
from ..types.containers import Optional
from ..types.tensor import TensorArg
from . import rewrite as apply


def listed(what: str, variables: Any) -> list[Variable]:
    """The variables that an argument gives, which may be a single one."""
    if isinstance(variables, Variable):
        return [variables]
    wrong = (str, bytes, Mapping) if what == "mutable" else (str, bytes, Mapping, set, frozenset)
    if isinstance(variables, wrong) or not isinstance(variables, Iterable):
        raise BridgeTypeError(
            f"{what} is a variable or a list of variables, not {variables!r} of type "
            f"{type(variables).__name__}"
        )
    found = list(variables)
    for i, v in enumerate(found):
        if not isinstance(v, Variable):
            raise BridgeTypeError(f"{what}[{i}] is no variable: {v!r} of type {type(v).__name__}")
    return found


def prepared(
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    mutable: Iterable[Variable] = (),
    rewrite: bool | Iterable[str] = True,
    apart: bool = False,
) -> FunctionGraph:
    """The graph as it is compiled: a copy that keeps what the caller gives as it is, but for the
    inputs in `mutable`, and is rewritten: by every pass, none, or those that are named. `apart`
    says that calls refuse inputs that overlap one that is written into, instead of copying them.
    The errors are those of `function`."""
    fgraph = FunctionGraph(list(inputs), list(outputs))
    changed = set(listed("mutable", mutable))
    for v in changed:
        if not among(v, inputs):
            raise BridgeValueError(f"{v} is in mutable, but no input")
    kept = {fgraph.became[v] for v in inputs if v not in changed}
    protect(fgraph, kept)
    separate_arguments(fgraph)
    separate_inputs(fgraph, kept, apart)
    fgraph.attach_feature(DestroyHandler(kept))
    if rewrite is not False:
        apply(fgraph, rewrite)
    return fgraph


def protect(fgraph: FunctionGraph, kept: set[Variable]) -> None:
    """Keeps a caller's memory apart: inputs in `kept` and constants are destroyed as copies only,
    and no output shares memory with them."""
    memory = Memory(toposort(fgraph.outputs, fgraph.inputs))
    destroyed = {root for root, _ in memory.destroyers}
    for v in list(fgraph.variables):
        if v in destroyed and (v in kept or isinstance(v, Constant)):
            copied = deep_copy_op(v)
            if isinstance(v.type, TensorArg) and not isinstance(v.type, Optional):
                copied = with_strides(v, copied)  # which may have gaps, that a copy has not
            fgraph.replace(v, copied, "protect")
    memory = Memory(toposort(fgraph.outputs, fgraph.inputs))
    for i, out in enumerate(fgraph.outputs):
        if any(
            root in kept or isinstance(root, Constant) or (root, writer) in memory.destroyers
            for root, writer in memory.of(out)
        ):
            fgraph.change_input("output", i, deep_copy_op(out), "protect")


def separate_arguments(fgraph: FunctionGraph) -> None:
    """Puts a Separate before functions of PyTorch that may read what they destroy through another
    argument: what they read is its value before."""
    order = toposort(fgraph.outputs, fgraph.inputs)
    memory = Memory(order)
    for node in order:
        if not isinstance(node.op, NativeOp) or not node.op.destroy_map:
            continue
        destroyed = destroyed_inputs(node)
        versions = {v for i in destroyed for v in memory.of(node.inputs[i])}
        found = {i for version in versions for i, _ in conflicts(node, version, memory)}
        if not found:
            continue
        places = sorted({*found, *destroyed})
        if not all(isinstance(node.inputs[i].type, TensorArg) for i in places):
            continue  # lists are refused
        names = [f"input {i} of {node.op}" for i in places]
        op = Separate([places.index(i) for i in destroyed], names)
        apart = op.make_node(*(node.inputs[i] for i in places))
        became = {node.inputs[i]: apart.outputs[places.index(i)] for i in destroyed}
        for i, v in enumerate(list(node.inputs)):
            if i in places:
                fgraph.change_input(node, i, apart.outputs[places.index(i)], "separate")
            elif v in became:  # what it writes into is read as it is, too
                fgraph.change_input(node, i, became[v], "separate")


def separate_inputs(fgraph: FunctionGraph, kept: set[Variable], refuse: bool = False) -> None:
    """Has each call look whether what it writes into overlaps what it reads."""
    memory = Memory(toposort(fgraph.outputs, fgraph.inputs))
    destroyed = {root for root, _ in memory.destroyers}
    tensors = [
        v
        for v in fgraph.inputs
        if isinstance(v.type, TensorArg) and not isinstance(v.type, Optional) and fgraph.clients[v]
    ]
    written = [i for i, v in enumerate(tensors) if v in destroyed and v not in kept]
    if not written or len(tensors) < 2:
        return
    number = {v: i for i, v in enumerate(fgraph.inputs)}
    names = [f"input {number[v]} ({v})" for v in tensors]
    apart = Separate(written, names, refuse).make_node(*tensors)
    for old, new in zip(tensors, apart.outputs, strict=True):
        for client, i in list(fgraph.clients[old]):
            if client is not apart:
                fgraph.change_input(client, i, new, "separate")


def written_inputs(
    inputs: Sequence[Variable], outputs: Sequence[Variable], mutable: Collection[Variable]
) -> set[int]:
    """The numbers of the tensors in `mutable` that a call writes into."""
    if not mutable:
        return set()
    destroyed = {root for root, _ in Memory(toposort(outputs, inputs)).destroyers}
    return {
        i
        for i, v in enumerate(inputs)
        if v in mutable and v in destroyed and isinstance(v.type, TensorType)
    }
