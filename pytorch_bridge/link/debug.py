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

ContractError says which op broke which of these. A RuntimeWarning says what is unknown: whether an
input has changed that cannot be copied or compared.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from ..aliasing.destroy import check_maps, destroyed_inputs
from ..errors import REFUSALS, ContractError
from ..graph.basic import Apply, Variable
from ..graph.function_graph import FunctionGraph
from ..ops.basic import made_of_items, remade
from ..ops.native import NativeOp
from ..ops.op import Op, Storage, apply_to, has_perform
from ..types.schema_types import describe
from .dual import equal, measured
from .explain import short
from .opwise import in_c
from .python import NodeRunner, PythonLinker


class DebugLinker(PythonLinker):
    """The linker of `mode="debug"`."""

    def __init__(self, fgraph: FunctionGraph) -> None:
        super().__init__(fgraph, gc=False)
        for node in self.order:
            _check_node(node)
        self._used = {v for v, clients in fgraph.clients.items() if clients}

    def make_thunk(self) -> Callable[[Sequence[Any]], list[Any]]:
        run = super().make_thunk()

        def thunk(values: Sequence[Any]) -> list[Any]:
            for v, value in zip(self.inputs, values, strict=True):
                if not v.type.is_valid_value(value):
                    raise ContractError(f"the filter of {v.type} lets through what it refuses: {v}")
            return run(values)

        return thunk

    def runner(self, node: Apply) -> NodeRunner:
        run = super().runner(node) if has_perform(node.op) else in_c(node)
        return _Checked(node, run or super().runner(node), self._used)


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
    except REFUSALS as e:
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


def _copied(value: Any, kept: list[Any] | None = None) -> Any:
    """A copy in memory of its own, with the same strides. What cannot be copied is there itself,
    and in `kept`."""
    if hasattr(value, "untyped_storage"):
        try:
            return _same_layout(value)
        except (RuntimeError, NotImplementedError):
            return value.detach().clone()
    if made_of_items(value):
        return remade(value, (_copied(v, kept) for v in value))
    try:
        return copy.deepcopy(value)
    except (copy.Error, *REFUSALS):  # whatever its class makes of being copied
        if kept is not None:
            kept.append(value)
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


class _Checked:
    """Runs a node and checks."""

    def __init__(self, node: Apply, run: NodeRunner, used: set[Variable]) -> None:
        self.node, self.run, self.used = node, run, used

    @cached_property
    def in_c(self) -> NodeRunner | None:
        """The C code of an op that has `perform` as well; native ops are PyTorch both ways."""
        op = self.node.op
        own = type(op).c_code is not Op.c_code and has_perform(op)
        return in_c(self.node) if own and not isinstance(op, NativeOp) else None

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[Storage]) -> None:
        uncopied: list[list[Any]] = [[] for _ in inputs]
        before = list(map(_copied, inputs, uncopied))
        old = [cell[0] for cell in outputs]
        results = self._run(self.run, inputs, [None] * len(outputs))
        self._check_types(results)
        self._check_inputs(inputs, before, uncopied)
        self._check_aliases(inputs, results)
        if not self.node.op.random:
            kept = [_copied(v) for v in results]

            def again(how: str, storage: Sequence[Any], run: NodeRunner = self.run) -> None:
                found = self._run(run, [_copied(v) for v in before], storage)
                self._compare(found, kept, how)

            again("run again", [None] * len(outputs))
            if any(v is not None for v in old):
                again("given its old outputs", [_copied(v) for v in old])
            again("given its outputs", [_copied(v) for v in results])
            strided = [_elsewhere(v) for v in results]
            if any(v is not None for v in strided):
                again("given outputs with other strides", strided)
            if self.in_c is not None:
                again("run as C", [None] * len(outputs), self.in_c)
        for cell, value in zip(outputs, results, strict=True):
            cell[0] = value

    def _run(self, run: NodeRunner, inputs: Sequence[Any], storage: Sequence[Any]) -> list[Any]:
        """What the node computes, given storages with these values."""
        given: list[Storage] = [[v] for v in storage]
        cells = list(given)
        run(inputs, cells)
        for i, (cell, mine) in enumerate(zip(cells, given, strict=True)):
            if cell is not mine or len(cell) != 1:
                raise ContractError(
                    f"{self.node.op} resized the storage of its output {i}, or put another in its "
                    "place"
                )
        return [cell[0] for cell in cells]

    def _check_types(self, results: Sequence[Any]) -> None:
        for i, (v, value) in enumerate(zip(self.node.outputs, results, strict=True)):
            if not v.type.is_valid_value(value):
                raise ContractError(
                    f"{self.node.op}: output {i} must be of type {v.type}, it is {describe(value)}"
                )

    def _check_inputs(
        self, inputs: Sequence[Any], before: Sequence[Any], uncopied: Sequence[Sequence[Any]]
    ) -> None:
        node, op = self.node, self.node.op
        destroyed = destroyed_inputs(node)
        for i, (v, value, was) in enumerate(zip(node.inputs, inputs, before, strict=True)):
            if i in destroyed:
                continue
            equal = next(measured(value, was, v.type.values_eq, v.type.values_eq_approx), None)
            if equal is not False:
                if equal is None or uncopied[i]:
                    advice = f"compared: give {v.type} a values_eq"
                    if uncopied[i]:
                        advice = "copied: give its class a __deepcopy__"
                    warnings.warn(
                        f"it is unknown whether {op} changes its input {i} ({v}), because "
                        f"{describe(value)} cannot be {advice}",
                        RuntimeWarning,
                        stacklevel=2,
                    )
                continue
            if any(_share(node, j, i, inputs) for j in destroyed):
                continue
            raise ContractError(
                f"{op} has changed its input {i} ({v}), which destroy_map does not say: it is "
                f"{dict(op.destroy_map)}"
            )

    def _check_aliases(self, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        node, op = self.node, self.node.op
        places = range(len(results))
        allowed = [{*op.view_map.get(o, ()), *op.destroy_map.get(o, ())} for o in places]
        for o, (v, result) in enumerate(zip(node.outputs, results, strict=True)):
            for i, value in enumerate(inputs):
                if i in allowed[o] or not _may_share(v, node.inputs[i], result, value):
                    continue
                # The same memory may have come in through another argument.
                if any(_share(node, j, i, inputs) for j in allowed[o]):
                    continue
                raise ContractError(
                    f"{op}: output {o} shares memory with input {i} ({node.inputs[i]}), which "
                    f"neither view_map {dict(op.view_map)} nor destroy_map "
                    f"{dict(op.destroy_map)} says"
                )
        used = [o for o, v in enumerate(node.outputs) if v in self.used]
        for n, a in enumerate(used):
            for b in used[n + 1 :]:
                if allowed[a] & allowed[b]:
                    continue
                if any(_share(node, i, j, inputs) for i in allowed[a] for j in allowed[b]):
                    continue
                if _may_share(node.outputs[a], node.outputs[b], results[a], results[b]):
                    raise ContractError(
                        f"{op}: outputs {a} and {b}, which are both used, share memory"
                    )

    def _compare(self, found: Sequence[Any], expected: Sequence[Any], how: str) -> None:
        for o, (v, a, b) in enumerate(zip(self.node.outputs, found, expected, strict=True)):
            if v in self.used and not equal(v.type, a, b):
                raise ContractError(
                    f"{self.node.op} gives another output {o} when it is {how}: {short(a)}, "
                    f"first {short(b)}"
                )


def _may_share(a: Variable, b: Variable, x: Any, y: Any) -> bool:
    return bool(a.type.may_share_memory(x, y) or b.type.may_share_memory(x, y))


def _share(node: Apply, i: int, j: int, inputs: Sequence[Any]) -> bool:
    return _may_share(node.inputs[i], node.inputs[j], inputs[i], inputs[j])
