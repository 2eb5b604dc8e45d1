"""Debug mode: runs a graph op by op, and checks everything that an op and a type declare.

For each node, on the values that come up:

- every output is a valid value of its type;
- inputs change only where destroy_map says so, and share memory with outputs only where view_map or
  destroy_map do; outputs that are used share no memory with each other, unless both are views of
  one input, or of inputs that do;
- the results are the same again, with empty storage, with the old outputs in it, and with outputs
  of other strides in it: an op that draws random numbers is excepted;
- storages keep their one element;
- where an op has both C code and `perform`, both give the same.

ContractError says which op broke which of these.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ContractError
from ..graph.basic import Apply, Variable
from ..graph.destroy import check_maps
from ..graph.function_graph import FunctionGraph
from ..ops.op import Op, apply_to
from ..types import Type
from .python import Thunk, node_thunk, perform


class DebugLinker:
    """The linker of `mode="debug"`."""

    def __init__(self, fgraph: FunctionGraph) -> None:
        self.fgraph = fgraph
        for node in fgraph.apply_nodes:
            _check_node(node)

    def make_thunk(self) -> Callable[[Sequence[Any]], list[Any]]:
        return DebugThunk(self.fgraph)


def _check_node(node: Apply) -> None:
    """What can be said about a node without values."""
    check_maps(node)
    op = node.op
    kind = type(op)
    if kind.__hash__ is None:
        raise ContractError(f"{kind.__qualname__} defines __eq__ and no __hash__")
    if hash(op) != hash(op) or op != op:
        raise ContractError(f"{op} is not equal to itself, or its hash changes")
    try:
        again = apply_to(op, [v.type.make_variable() for v in node.inputs])
    except NotImplementedError:
        return
    except Exception as e:
        raise ContractError(
            f"make_node of {op} refuses inputs of the types that this node has: {e}"
        ) from e
    mine, theirs = ([v.type for v in n.outputs] for n in (node, again))
    if len(mine) != len(theirs) or any(
        a != b and not a.is_super(b) and not b.is_super(a)
        for a, b in zip(mine, theirs, strict=True)
    ):
        raise ContractError(
            f"make_node of {op} gives other output types for inputs of equal types: "
            f"{', '.join(map(str, mine))}, then {', '.join(map(str, theirs))}"
        )


def _copied(value: Any) -> Any:
    """A copy in memory of its own, with the same strides."""
    if hasattr(value, "untyped_storage"):
        try:
            return _same_layout(value)
        except (RuntimeError, NotImplementedError):
            return value.detach().clone()
    if isinstance(value, (list, tuple)):
        return type(value)(map(_copied, value))
    try:
        return copy.deepcopy(value)
    except Exception:  # whatever its class makes of being copied
        return value


def _same_layout(t: Any) -> Any:
    """A copy of a tensor with all of its storage, so that strides and offset are the same."""
    import torch

    if t.layout is not torch.strided or t.is_quantized:
        return t.detach().clone()
    storage = t.untyped_storage().clone()
    fresh = torch.empty(0, dtype=t.dtype, device=t.device)
    fresh.set_(storage, t.storage_offset(), t.shape, t.stride())
    return torch._neg_view(fresh) if t.is_neg() else fresh.conj() if t.is_conj() else fresh


def _elsewhere(value: Any) -> Any:
    """A tensor of the same type with other strides and other elements; None for other values."""
    import torch

    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    if value.is_quantized:
        return None
    big = torch.zeros([2 * d + 1 for d in value.shape], dtype=value.dtype, device=value.device)
    for d in range(value.dim()):
        big = big.narrow(d, 0, 2 * value.shape[d])
    for d in range(value.dim()):
        big = big[(slice(None),) * d + (slice(None, None, 2),)]
    return big


def _exactly(t: Type, a: Any, b: Any) -> bool:
    try:
        return bool(t.values_eq(a, b))
    except (NotImplementedError, TypeError, ValueError, RuntimeError):  # == is no truth for all
        return bool(t.values_eq_approx(a, b))


class DebugThunk(Thunk):
    """Runs and checks."""

    def __init__(self, fgraph: FunctionGraph) -> None:
        super().__init__(fgraph, gc=False)
        self._runners = {node: self._runner(node) for node in self.order}
        self._c: dict[Apply, Callable[..., Any] | None] = {}
        self._used = {v for v, clients in fgraph.clients.items() if clients}

    def _runner(self, node: Apply) -> Callable[[Sequence[Any], Sequence[list[Any]]], None]:
        if type(node.op).perform is not Op.perform:
            return lambda inputs, outputs: perform(node, inputs, outputs, self.order)
        return node_thunk(node)

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        for v, value in zip(self.fgraph.inputs, values, strict=True):
            if not v.type.is_valid_value(value):
                raise ContractError(f"the filter of {v.type} lets through what it refuses: {v}")
        return super().__call__(values)

    def step(self, node: Apply, inputs: list[Any], outputs: list[list[Any]]) -> None:
        op = node.op
        before = [_copied(v) for v in inputs]
        old = [cell[0] for cell in outputs]
        fresh: list[list[Any]] = [[None] for _ in outputs]
        given = list(fresh)
        self._runners[node](inputs, fresh)
        self._check_cells(node, fresh, given)
        self._check_types(node, fresh)
        self._check_inputs(node, inputs, before)
        self._check_aliases(node, inputs, fresh)
        results = [cell[0] for cell in fresh]
        if not op.random:
            kept = [_copied(v) for v in results]
            self._again(node, before, [None] * len(outputs), kept, "run again")
            if any(v is not None for v in old):
                self._again(node, before, [_copied(v) for v in old], kept, "given its old outputs")
            self._again(node, before, [_copied(v) for v in results], kept, "given its outputs")
            strided = [_elsewhere(v) for v in results]
            if any(v is not None for v in strided):
                self._again(node, before, strided, kept, "given outputs with other strides")
            self._check_c(node, before, kept)
        for cell, value in zip(outputs, results, strict=True):
            cell[0] = value

    def _check_cells(self, node: Apply, cells: Sequence[Any], given: Sequence[list[Any]]) -> None:
        for i, (cell, mine) in enumerate(zip(cells, given, strict=True)):
            if cell is not mine or len(cell) != 1:
                raise ContractError(
                    f"{node.op} resized the storage of its output {i}, or put another in its place"
                )

    def _check_types(self, node: Apply, cells: Sequence[list[Any]]) -> None:
        from ..types.schema import describe

        for i, (v, cell) in enumerate(zip(node.outputs, cells, strict=True)):
            if not v.type.is_valid_value(cell[0]):
                raise ContractError(
                    f"{node.op}: output {i} must be of type {v.type}, it is {describe(cell[0])}"
                )

    def _check_inputs(self, node: Apply, inputs: Sequence[Any], before: Sequence[Any]) -> None:
        op = node.op
        destroyed = {i for places in op.destroy_map.values() for i in places}
        for i, (v, value, was) in enumerate(zip(node.inputs, inputs, before, strict=True)):
            if i in destroyed or _exactly(v.type, value, was):
                continue
            if any(j in destroyed and _share(node, j, i, inputs) for j in range(len(inputs))):
                continue
            raise ContractError(
                f"{op} has changed its input {i} ({v}), which destroy_map does not say: it is "
                f"{dict(op.destroy_map)}"
            )

    def _check_aliases(
        self, node: Apply, inputs: Sequence[Any], cells: Sequence[list[Any]]
    ) -> None:
        op = node.op
        allowed = [{*op.view_map.get(o, ()), *op.destroy_map.get(o, ())} for o in range(len(cells))]
        for o, (v, cell) in enumerate(zip(node.outputs, cells, strict=True)):
            for i, value in enumerate(inputs):
                if i in allowed[o] or not _may_share(v, node.inputs[i], cell[0], value):
                    continue
                # The same memory may have come in through another argument.
                if any(_share(node, j, i, inputs) for j in allowed[o]):
                    continue
                raise ContractError(
                    f"{op}: output {o} shares memory with input {i} ({node.inputs[i]}), which "
                    f"neither view_map {dict(op.view_map)} nor destroy_map "
                    f"{dict(op.destroy_map)} says"
                )
        used = [o for o, v in enumerate(node.outputs) if v in self._used]
        for n, a in enumerate(used):
            for b in used[n + 1 :]:
                if allowed[a] & allowed[b]:
                    continue
                if any(_share(node, i, j, inputs) for i in allowed[a] for j in allowed[b]):
                    continue
                if _may_share(node.outputs[a], node.outputs[b], cells[a][0], cells[b][0]):
                    raise ContractError(
                        f"{op}: outputs {a} and {b}, which are both used, share memory"
                    )

    def _again(
        self,
        node: Apply,
        before: Sequence[Any],
        storage: Sequence[Any],
        expected: Sequence[Any],
        how: str,
    ) -> None:
        inputs = [_copied(v) for v in before]
        cells: list[list[Any]] = [[v] for v in storage]
        given = list(cells)
        self._runners[node](inputs, cells)
        self._check_cells(node, cells, given)
        self._compare(node, [c[0] for c in cells], expected, how)

    def _compare(
        self, node: Apply, found: Sequence[Any], expected: Sequence[Any], how: str
    ) -> None:
        for o, (v, a, b) in enumerate(zip(node.outputs, found, expected, strict=True)):
            if v in self._used and not v.type.values_eq_approx(a, b):
                raise ContractError(
                    f"{node.op} gives another output {o} when it is {how}: {_short(a)}, "
                    f"first {_short(b)}"
                )

    def _check_c(self, node: Apply, before: Sequence[Any], expected: Sequence[Any]) -> None:
        """Compares with the op's own C code, for ops from outside; native ops are PyTorch both
        ways."""
        op = node.op
        own = type(op).c_code is not Op.c_code and type(op).perform is not Op.perform
        if not own or type(op).__module__.startswith("pytorch_bridge."):
            return
        if node not in self._c:
            self._c[node] = _c_thunk(node)
        thunk = self._c[node]
        if thunk is not None:
            found = thunk([_copied(v) for v in before])
            self._compare(node, found, expected, "run as C")


def _c_thunk(node: Apply) -> Callable[[Sequence[Any]], list[Any]] | None:
    """The node as C, or None where it has no C code."""
    from .c_linker import CLinker

    inputs: list[Variable] = [v.type.make_variable() for v in node.inputs]
    try:
        return CLinker(FunctionGraph(inputs, node.clone(inputs).outputs, clone=False)).make_thunk()
    except NotImplementedError:
        return None


def _may_share(a: Variable, b: Variable, x: Any, y: Any) -> bool:
    return bool(a.type.may_share_memory(x, y) or b.type.may_share_memory(x, y))


def _share(node: Apply, i: int, j: int, inputs: Sequence[Any]) -> bool:
    return _may_share(node.inputs[i], node.inputs[j], inputs[i], inputs[j])


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 120 else text[:117] + "..."
