"""Fusion: elementwise ops that follow each other become one loop, an Elemwise of a Composite.

A group has one shape, and every path between two of its nodes stays in it. That is kept by stages:
what a group reads from outside is of an earlier stage than the group, so what depends on a group
from outside is of a later one, and never leads back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..graph.basic import Apply, Variable
from ..ops.composite import Composite
from ..ops.elemwise import Elemwise
from ..ops.fused_dtypes import known
from ..ops.fused_elements import Kernel, element, element_node, form, native_node
from ..ops.native import NativeOp
from ..ops.scalar import native_form
from ..types import TensorType

if TYPE_CHECKING:
    from ..graph.function_graph import FunctionGraph
    from ..ops.composite import Composite
    from ..ops.native import NativeOp

# Of one group: what a C compiler optimises in a moment, and what stays in the nearest cache.
MAX_OPS = 48
SHORT = 2  # an op of a short dtype, which rounds, counts as so many
MAX_KERNELS = 8
MAX_INPUTS = 24


def fuse(fgraph: FunctionGraph) -> int:
    """Fuses all groups of two ops or more; returns how many there are."""
    groups = [g for g in _groups(fgraph) if g.count > 1]
    became: dict[Variable, Variable] = {}
    pairs: list[tuple[Variable, Variable]] = []
    for group in groups:
        made = group.fused(fgraph, became)
        became.update(made)
        pairs += made
    if fgraph.try_replace_all(pairs, "fuse"):
        return len(groups)
    # Some loop would read what another op has destroyed by then: the others are made.
    became, count = {}, 0
    for group in groups:
        made = group.fused(fgraph, became)
        if fgraph.try_replace_all(made, "fuse"):
            became.update(made)
            count += 1
    return count


class _Step:
    """A node of a group as native ops, one after the other: that of a Composite has several."""

    def __init__(self, node: Apply) -> None:
        self.node = node
        self.inputs = list(node.inputs)  # as they are before anything is fused
        self.ops: list[tuple[NativeOp, list[Variable], Variable]] = []
        self.results: list[Variable] = []  # what stands for the node's outputs
        self.kernels = 0
        self.weight = 0  # what it takes to compile


def _step(node: Apply) -> _Step | None:
    """What a loop computes for a node; None for what no loop computes."""
    op = node.op
    if not all(_fits(v) for v in [*node.inputs, *node.outputs]):
        return None
    if getattr(op, "random", False) or op.view_map or op.destroy_map:
        return None
    step = _Step(node)
    step.results = list(node.outputs)
    if isinstance(op, NativeOp) and len(node.outputs) == 1:
        step.ops.append((op, step.inputs, node.outputs[0]))
    elif isinstance(op, Elemwise) and op.composite:
        if not _dissolve(op.scalar_op, step):
            return None
    elif isinstance(op, Elemwise):
        inner = native_form(op.scalar_op, step.inputs)
        step.ops.append((inner.op, inner.inputs, node.outputs[0]))  # type: ignore[arg-type]
    return step if step.ops and _computable(step) else None


def _dissolve(composite: Composite, step: _Step) -> bool:
    """Takes a Composite apart; whether that can be done."""
    if len({v.type.shape for v in step.node.outputs}) > 1:  # type: ignore[attr-defined]
        return False
    became: dict[Variable, Variable] = dict(zip(composite.inputs, step.inputs, strict=True))
    made: set[Variable] = set()
    for node in composite.order:
        inner = native_node(node)
        if any(v not in became for v in inner.inputs):
            return False  # a constant
        inputs = [became[v] for v in inner.inputs]
        (result,) = element_node(inner.op, inputs, _dtype(node.outputs[0])).outputs  # type: ignore[arg-type]
        became[node.outputs[0]] = result
        made.add(result)
        step.ops.append((inner.op, inputs, result))  # type: ignore[arg-type]
    step.results = [became.get(v, v) for v in composite.outputs]
    return made.issuperset(step.results)


def _computable(step: _Step) -> bool:
    """Whether a loop has a form for each op; counts the kernels, and the weight."""
    for op, inputs, result in step.ops:
        found = form(op, [_dtype(v) for v in inputs], _dtype(result))
        if found is None:
            return False
        step.kernels += isinstance(found, Kernel)
        step.weight += SHORT if known(_dtype(result)).short else 1
    return True


def _dtype(v: Variable) -> str:
    return str(getattr(v.type, "dtype", None))


def _fits(v: Variable) -> bool:
    t = v.type
    return (
        isinstance(t, TensorType)
        and t.dtype is not None
        and t.shape is not None
        and t.device == "cpu"
    )


class _Group:
    """Nodes of one stage and one shape."""

    def __init__(self, stage: int, shape: Any) -> None:
        self.stage = stage
        self.shape = shape
        self.steps: list[_Step] = []
        self.count = 0
        self.kernels = 0
        self.weight = 0
        self.read: set[Variable] = set()
        self.made: set[Variable] = set()
        self.merged: _Group | None = None  # into which it has gone

    def add(self, step: _Step) -> None:
        self.steps.append(step)
        self.count += len(step.ops)
        self.kernels += step.kernels
        self.weight += step.weight
        self.read.update(step.inputs)
        self.made.update(step.node.outputs)

    def fused(
        self, fgraph: FunctionGraph, became: dict[Variable, Variable]
    ) -> list[tuple[Variable, Variable]]:
        """The group's outputs, each with that of the one node that computes them all. `became` has
        what other groups' outputs are now."""
        members = {s.node for s in self.steps}
        known: dict[Variable, Variable] = {}
        leaves: dict[Variable, Variable] = {}
        outputs: list[tuple[Variable, Variable]] = []
        for step in self.steps:
            for v in step.inputs:
                if v not in self.made and v not in leaves:
                    leaves[v] = known[v] = element(_dtype(v))
            for op, inputs, result in step.ops:
                node = element_node(op, [known[v] for v in inputs], _dtype(result))
                known[result] = node.outputs[0]
            for v, result in zip(step.node.outputs, step.results, strict=True):
                known[v] = known[result]
                if any(client not in members for client, _ in fgraph.clients.get(v, ())):
                    outputs.append((v, known[v]))
        composite = Composite(list(leaves.values()), [e for _, e in outputs])
        made = [v.type.make_variable(v.name) for v, _ in outputs]
        Apply(Elemwise(composite), [became.get(v, v) for v in leaves], made)
        return [(v, new) for (v, _), new in zip(outputs, made, strict=True)]


def _groups(fgraph: FunctionGraph) -> list[_Group]:
    """The groups, each after those that it reads from."""
    stage: dict[Apply, int] = {}
    group_of: dict[Apply, _Group] = {}
    groups: list[_Group] = []

    def group(node: Apply) -> _Group | None:
        found = group_of.get(node)
        while found is not None and found.merged is not None:
            found = found.merged
        if found is not None:
            group_of[node] = found
        return found

    for node in fgraph.toposort():
        producers = [v.owner for v in node.inputs if v.owner in stage]
        after = max((stage[p] + 1 for p in producers), default=0)
        step = _step(node)
        if step is None:
            stage[node] = after
            continue
        shape = node.outputs[0].type.shape  # type: ignore[attr-defined]
        # Groups of the latest stage among those that the node reads: it may join them all, if all
        # else that it reads is of an earlier one.
        near: list[_Group] = []
        for p in dict.fromkeys(producers):
            g = group(p)
            if stage[p] == after - 1 and g not in near:
                near.append(g)  # type: ignore[arg-type]
        joined = None
        if near and all(g is not None and g.shape == shape for g in near):
            joined = _joined(near, step)
        if joined is None:
            joined = _Group(after, shape)
            groups.append(joined)
        joined.add(step)
        group_of[node] = joined
        stage[node] = joined.stage
    return sorted((g for g in groups if g.merged is None), key=lambda g: g.stage)


def _joined(groups: list[_Group], step: _Step) -> _Group | None:
    """The groups as one that has room for a step; None where it would be too large."""
    read = set(step.inputs).union(*(g.read for g in groups))
    made = set(step.node.outputs).union(*(g.made for g in groups))
    if (
        sum(g.weight for g in groups) + step.weight > MAX_OPS
        or sum(g.kernels for g in groups) + step.kernels > MAX_KERNELS
        or len(read - made) > MAX_INPUTS
    ):
        return None
    first, *others = groups
    for g in others:
        first.steps += g.steps
        first.count += g.count
        first.kernels += g.kernels
        first.weight += g.weight
        first.read |= g.read
        first.made |= g.made
        g.merged = first
    return first
