"""Merging: what is computed twice is computed once.

Two nodes are one when their ops are equal and their inputs are the same variables. Ops that draw
random numbers never are. Constants are one when they have equal types and, bit for bit, equal
values, and no different names: a weight that a Go package can set apart stays apart.
"""

from __future__ import annotations

from typing import Any

from ..aliasing.sharing import Sharing
from ..errors import ContractError, InconsistencyError
from ..graph.basic import Apply, Constant, Variable
from ..graph.function_graph import FunctionGraph
from ..ops.op import Op
from ..sameness import constant_key, key


def merge_apart(fgraph: FunctionGraph) -> int:
    """`merge`, but for outputs in memory of their own: each keeps it, since a caller may write into
    one of them."""
    return merge(fgraph, outputs_too=False)


def merge(fgraph: FunctionGraph, outputs_too: bool = True) -> int:
    """Merges all that is equal; returns how many nodes and constants have gone."""
    pairs = _equal_constants(fgraph)
    removed = len(pairs)
    fgraph.replace_all(pairs, "merge constants")
    pairs = _equal_nodes(fgraph, None if outputs_too else Sharing(fgraph))
    if not pairs:
        return removed
    try:
        fgraph.replace_all_validate(pairs, "merge")
        return removed + len({old.owner for old, _ in pairs})
    except InconsistencyError:
        # Something that is destroyed is wanted twice: keep those apart, merge the rest.
        for old, new in pairs:
            if old in fgraph.clients and new in fgraph.clients:
                removed += fgraph.try_replace_all([(old, new)], "merge")
        return removed


def _equal_constants(fgraph: FunctionGraph) -> list[tuple[Variable, Variable]]:
    first: dict[Any, Variable] = {}
    pairs: list[tuple[Variable, Variable]] = []
    for v in list(fgraph.variables):
        if not isinstance(v, Constant):
            continue
        other = first.setdefault((constant_key(v), v.name), v)
        if other is not v:
            pairs.append((v, other))
    return pairs


def _equal_nodes(fgraph: FunctionGraph, sharing: Sharing | None) -> list[tuple[Variable, Variable]]:
    laws = _Laws()
    first: dict[Any, Apply] = {}
    same: dict[Variable, Variable] = {}
    pairs: list[tuple[Variable, Variable]] = []
    given: set[Apply] = set()  # nodes that stand for what the caller gets
    for node in fgraph.toposort():
        if node.op.random or getattr(node.op, "never_merged", False):
            continue
        inputs = tuple(same.get(v, v) for v in node.inputs)
        laws.check(node.op)
        other = first.setdefault((key(node.op), inputs), node)
        if other is node:
            continue
        if [v.type for v in node.outputs] != [v.type for v in other.outputs]:
            continue
        if sharing and not sharing.apart(node.outputs):
            if other in given or not sharing.apart(other.outputs):
                continue
            given.add(other)
        for mine, theirs in zip(node.outputs, other.outputs, strict=True):
            same[mine] = theirs
            pairs.append((mine, theirs))
    return pairs


class _Laws:
    """Finds ops that are equal and have different hashes, which no table can bring together, or
    different parameters, so that one cannot stand for the other."""

    def __init__(self) -> None:
        self.ops: dict[type, dict[int, Op]] = {}

    def check(self, op: Op) -> None:
        kind = type(op)
        if kind.__hash__ is None:
            raise ContractError(f"{kind.__qualname__} defines __eq__ and no __hash__")
        if kind.__eq__ is Op.__eq__:
            return
        known = self.ops.setdefault(kind, {})
        mine = hash(op)
        if mine in known:
            other = known[mine]
            if op == other and op._parameters() != other._parameters():
                raise ContractError(
                    f"{kind.__qualname__}: {op} and {other} are equal, and what __props__ names "
                    f"differs: {_props(op)} and {_props(other)}"
                )
            return
        for theirs, other in known.items():
            if op == other:
                raise ContractError(
                    f"{kind.__qualname__}: {op} and {other} are equal, and their hashes are "
                    f"{mine} and {theirs}"
                )
        known[mine] = op


def _props(op: Op) -> str:
    return ", ".join(f"{p}={getattr(op, p)!r}" for p in op.__props__ or ())
