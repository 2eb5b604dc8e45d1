"""Compiled functions in autograd: calls with tensors that require a gradient.

Such a call is one node of autograd's graph. Its backward pass is a compiled graph too. That
computes again what it needs of the forward pass, from what the forward pass has kept: inputs,
sizes, and what was drawn at random, which nobody can compute again. What is kept of the results are
results of the node, so that a second derivative finds its way through them.

The node writes into nothing. What the function writes into is copied first, and the new values are
copied back as PyTorch's own `copy_` does it: with its place in autograd's graph, and its errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from .. import ops
from ..aliasing.destroy import Memory
from ..aliasing.runtime_strides import clone_of
from ..aliasing.unalias import separated
from ..errors import BridgeError, GradientError
from ..graph.basic import Apply, Variable, clone_graph, toposort
from ..inference.symbolic_sizes import NotProved, prove
from ..ops.basic import After, Shape, Shape_i, SpecifyShape, ViewOp, deep_copy_op
from ..ops.native import NativeOp, native
from ..ops.op import CallsTorch, Gradients, Names, Op, Storages, Values, Variables, closed
from ..types import TensorType
from ..types.base import Sub
from .attention import as_recorded
from .derivatives import _examples, _flat, differentiable
from .grad import vector_jacobian

if TYPE_CHECKING:
    from ..link.compiled_function import CompiledFunction


_Size = tuple[Variable, Op]  # a tensor, and Shape or Shape_i


@dataclass
class _Plan:
    """A call whose inputs require gradients in one of the possible ways."""

    results: list[Variable]  # outputs, then what is kept besides, then new values of inputs
    tracked: list[bool]  # which results require a gradient
    wanted: list[Variable]  # the inputs that do
    places: list[int]  # and their places
    depends: set[Variable]  # all variables that require a gradient
    kept_inputs: list[int] = field(default_factory=list)  # those that the backward pass reads
    kept_results: list[int] = field(default_factory=list)
    sizes: list[_Size] = field(default_factory=list)  # of inputs, which are kept besides
    forward: CompiledFunction | None = None
    error: BridgeError | None = None  # why there is no backward pass
    backward: dict[tuple[bool, ...], tuple[Any, ...]] = field(default_factory=dict)


class Tracking:
    """How a compiled function is called as a part of autograd's graph."""

    def __init__(
        self, compiled: CompiledFunction, function: Callable[..., CompiledFunction]
    ) -> None:
        """`function` compiles what is computed beside it."""
        # Not the compiled function itself, which keeps this object.
        self._function = function
        self.name = str(compiled)
        # A copy, for an input may be what the graph of another computes, which it does not here.
        self.inputs, self.outputs, became = clone_graph(compiled.inputs, compiled.outputs)
        self.place = {v: i for i, v in enumerate(self.inputs)}
        self.mode, self.rewrite = compiled.mode, compiled.rewrite
        self.mutable = {became[v] for v in compiled.mutable}
        self.memory = Memory(toposort(self.outputs, self.inputs))
        destroyed = {root for root, _ in self.memory.destroyers}
        self.written = [
            i for i, v in enumerate(self.inputs) if v in self.mutable and v in destroyed
        ]
        self.finals: dict[int, Variable] = {}
        self.unknown: dict[int, str] = {}  # why there is no variable for an input's new value
        for i in self.written:
            try:
                self.finals[i] = self._final(self.inputs[i])
            except _NotSaid as e:
                self.unknown[i] = str(e)
        self._plans: dict[tuple[bool, ...], _Plan] = {}
        # What is called in its place, where autograd computes the outputs by other kernels.
        self._recorded: dict[tuple[bool, ...], tuple[Tracking, CompiledFunction] | None] = {}

    def call(self, compiled: CompiledFunction, values: Sequence[Any]) -> list[Any]:
        """The results of a call. GradientError where what is written into cannot be."""
        wanted = tuple(_requires_grad(v) for v in values)
        if wanted not in self._recorded:
            self._recorded[wanted] = self._as_recorded(wanted)
        if (recorded := self._recorded[wanted]) is not None:
            tracking, compiled = recorded
            return tracking.call(compiled, values)
        plan = self._plans.get(wanted)
        if plan is None:
            plan = self._plans[wanted] = self._plan(wanted)
        new = len(plan.results) - len(self.written)
        rebased = [i for k, i in enumerate(self.written) if wanted[i] or plan.tracked[new + k]]
        tensors = [i for i, v in enumerate(values) if isinstance(v, torch.Tensor)]
        names = [f"input {i} ({self.inputs[i]})" for i in tensors]
        written = [k for k, i in enumerate(tensors) if i in self.written]
        separated([values[i] for i in tensors], written, names)  # raises
        self._check_writable(values, rebased)
        if not any(plan.tracked) and not rebased:
            return compiled.run(values)
        given = list(values)
        for i in self.written:
            # What is kept must stay as it is.
            given[i] = clone_of(values[i]) if i in plan.kept_inputs else values[i]
        found = _Node.apply(_TrackedCall(self, plan, plan.forward or compiled), *given)
        # First what autograd may refuse: then nothing has been changed.
        for i in [*rebased, *(i for i in self.written if i not in rebased)]:
            with torch.set_grad_enabled(i in rebased):
                values[i].copy_(found[new + self.written.index(i)])
        results = list(found[: len(self.outputs)])
        for k, v in enumerate(self.outputs):
            again = self._in_memory_of_inputs(v, values)
            results[k] = results[k] if again is None else again
        return results

    def _as_recorded(self, wanted: tuple[bool, ...]) -> tuple[Tracking, CompiledFunction] | None:
        needed = [v for v, w in zip(self.inputs, wanted, strict=True) if w]
        outputs = as_recorded(self.outputs, needed)
        if all(a is b for a, b in zip(outputs, self.outputs, strict=True)):
            return None
        compiled = self._compiled(self.inputs, outputs, self.mutable)
        return Tracking(compiled, self._function), compiled

    def _check_writable(self, values: Sequence[Any], rebased: Iterable[int]) -> None:
        for i in rebased:
            where = f"{self.name}: input {i} ({self.inputs[i]}) is written into"
            if i in self.unknown:
                raise GradientError(f"{where} {self.unknown[i]}, and gradients are recorded")
            refuse_leaf(values[i], where)

    # What inputs become

    def _final(self, v: Variable) -> Variable:
        """The variable that has the value of v's memory when everything has run."""
        version = next((x for x in self.memory.of(v) if x in self.memory.destroyers), None)
        if version is None:
            return v
        if len(self.memory.of(v)) > 1:
            raise _NotSaid("through what may be a view of several")
        node = self.memory.destroyers[version]
        places = [i for i in _destroyed(node) if version in self.memory.of(node.inputs[i])]
        outputs = [o for o, mine in node.op.destroy_map.items() if list(mine) == places]
        if len(places) != 1 or outputs in ([], [None]) or len(outputs) > 1:
            raise _NotSaid(f"by {node.op}, which does not return it")
        assert outputs[0] is not None
        new = self._final(node.outputs[outputs[0]])
        x = node.inputs[places[0]]
        while x is not v:
            base = _base(x)
            if base is None:
                raise _NotSaid(f"through {x}")
            new = _with(base, x, new)
            x = base
        return new

    def _in_memory_of_inputs(self, v: Variable, values: Sequence[Any]) -> Any:
        """An output that lies in the memory of an input that was written into, made of that input;
        None where it does not, or cannot be."""
        if not any(self.place.get(root) in self.written for root, _ in self.memory.of(v)):
            return None
        views: list[Apply] = []
        while (node := v.owner) is not None:
            places = node.op.destroy_map.get(v.index, ())
            if len(places) == 1:
                v = node.inputs[places[0]]
                continue
            base = _base(v)
            if base is None:
                return None
            views.append(node)
            v = base
        if v not in self.place:
            return None
        x = values[self.place[v]]
        for node in reversed(views):
            storage: list[list[Any]] = [[None]]
            node.op.perform(node, [x], storage)
            x = storage[0][0]
        return x

    # Plans

    def _plan(self, wanted: tuple[bool, ...]) -> _Plan:
        places = [i for i, w in enumerate(wanted) if w]
        inputs = [self.inputs[i] for i in places]
        finals = [self.finals.get(i, self.inputs[i]) for i in self.written]
        order = toposort([*self.outputs, *finals], self.inputs)
        tracked = _tracked(order, inputs)
        drawn = [
            v
            for node in order
            if node.op.random
            for v in node.outputs
            if isinstance(v.type, TensorType)
        ]
        results = [*self.outputs, *finals]
        error: BridgeError | None = None
        for roots in ([*results, *drawn], results):
            try:
                seeds = [v.type.make_variable() if v in tracked else None for v in roots]
                found = vector_jacobian(roots, seeds, inputs, tracked)
            except BridgeError as e:
                error = error or e
                continue
            break
        else:
            return _Plan(
                results, [v in tracked for v in results], inputs, places, tracked, error=error
            )
        leaves = _Leaves(self.inputs, drawn, results)
        leaves.of(found)
        shown = set(self.outputs)
        extra = [v for v in leaves.drawn if v not in shown]
        results = [*self.outputs, *extra, *finals]
        number = {v: k for k, v in reversed([*enumerate(results)])}
        plan = _Plan(results, [v in tracked for v in results], inputs, places, tracked)
        plan.kept_inputs = [i for i, v in enumerate(self.inputs) if v in leaves.inputs]
        plan.kept_results = [number[v] for v in leaves.drawn]
        plan.sizes = leaves.sizes
        if extra:
            plan.forward = self._compiled(self.inputs, [*self.outputs, *extra], self.mutable)
        return plan

    def _compiled(
        self,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],
        mutable: Iterable[Variable] = (),
    ) -> CompiledFunction:
        return self._function(
            inputs,
            list(outputs),
            self.mode,
            mutable=mutable,
            name=self.name,
            rewrite=self.rewrite,
        )

    # The backward pass

    def gradients(self, plan: _Plan, kept: dict[Any, Any], grads: Sequence[Any]) -> list[Any]:
        """The gradients of the wanted inputs."""
        if plan.error is not None:
            raise type(plan.error)(str(plan.error)) from plan.error
        given = tuple(isinstance(g, torch.Tensor) for g in grads)
        if given not in plan.backward:
            plan.backward[given] = self._backward(plan, given)
        places, leaves, compiled = plan.backward[given]
        results: list[Any] = [None] * len(plan.wanted)
        if compiled is None:
            return results
        values = [kept[v] for v in leaves]
        seeds = [g.contiguous() for g in grads if isinstance(g, torch.Tensor)]
        for i, g in zip(places, compiled(*values, *seeds), strict=True):
            results[i] = g
        return results

    def _backward(self, plan: _Plan, given: tuple[bool, ...]) -> tuple[Any, ...]:
        seeds = [
            v.type.make_variable() if g else None for v, g in zip(plan.results, given, strict=True)
        ]
        found = vector_jacobian(plan.results, seeds, plan.wanted, plan.depends)
        places = [i for i, g in enumerate(found) if g is not None]
        if not places:
            return places, [], None
        kept_results = [plan.results[k] for k in plan.kept_results]
        leaves = _Leaves(self.inputs, kept_results, plan.results)
        gradients = leaves.of([found[i] for i in places])
        known: set[Any] = {self.inputs[i] for i in plan.kept_inputs}
        known.update(kept_results, plan.sizes)
        known.update(v for v in self.inputs if not isinstance(v.type, TensorType))
        needed = list(leaves.became)
        for v in needed:
            if v not in known:
                raise GradientError(
                    f"{self.name}: this derivative needs {v}, which the forward pass has not kept"
                )
        inputs = [*leaves.became.values(), *(s for s in seeds if s is not None)]
        return places, needed, self._compiled(inputs, gradients)


class _Leaves:
    """What gradients need of the forward pass: a copy of their graph is made, in which that is
    inputs. Nodes that write into something write into copies."""

    def __init__(
        self, inputs: Sequence[Variable], drawn: Iterable[Variable], results: Iterable[Variable]
    ) -> None:
        self.all = {*inputs, *drawn}
        # What the forward pass has computed, and so checked.
        self.done = {v for node in toposort(results, inputs) for v in node.outputs}
        self.tensors = {v for v in inputs if isinstance(v.type, TensorType)}
        self.numbers = set(inputs) - self.tensors
        self.became: dict[Variable | _Size, Variable] = {}

    def of(self, outputs: Sequence[Variable | None]) -> list[Variable]:
        wanted = [v for v in outputs if v is not None]
        copies: dict[Variable, Variable] = {}

        def copied(v: Variable) -> Variable:
            if v in copies:
                return copies[v]
            return self._leaf(v, v) if v in self.all else v

        for node in self._needed(wanted):
            if isinstance(node.op, After) and node.inputs[1] in self.done:
                copies[node.outputs[0]] = copied(node.inputs[0])
                continue
            if isinstance(node.op, (Shape, Shape_i)) and node.inputs[0] in self.tensors:
                size = node.inputs[0], node.op
                copies[node.outputs[0]] = self._leaf(size, node.outputs[0])
                continue
            inputs = [copied(v) for v in node.inputs]
            for i in _destroyed(node):
                inputs[i] = deep_copy_op(inputs[i])
            copies.update(zip(node.outputs, node.clone(inputs).outputs, strict=True))
        return [copied(v) for v in wanted]

    def _needed(self, wanted: Sequence[Variable]) -> list[Apply]:
        """The nodes that compute some variables, without checks that the forward pass has made."""
        order = toposort(wanted, self.all)
        needed, nodes = set(wanted), []
        for node in reversed(order):
            if not needed.isdisjoint(node.outputs):
                checked = isinstance(node.op, After) and node.inputs[1] in self.done
                needed.update(node.inputs[:1] if checked else node.inputs)
                nodes.append(node)
        return nodes[::-1]

    def _leaf(self, key: Variable | _Size, v: Variable) -> Variable:
        if key not in self.became:
            self.became[key] = v.type.make_variable(v.name)
        return self.became[key]

    @property
    def sizes(self) -> list[_Size]:
        return [v for v in self.became if isinstance(v, tuple)]

    @property
    def inputs(self) -> set[Variable]:
        return {v for v in self.became if not isinstance(v, tuple) and v in self.tensors}

    @property
    def drawn(self) -> list[Variable]:
        return [v for v in self.became if isinstance(v, Variable) and v.owner is not None]


@dataclass
class _TrackedCall:
    """What the node of a call knows."""

    tracking: Tracking
    plan: _Plan
    forward: CompiledFunction


class _Node(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: _TrackedCall, *values: Any) -> Any:
        tracking, plan = call.tracking, call.plan
        given = list(values)
        for i in tracking.written:
            given[i] = clone_of(values[i].detach())
        results = call.forward.run(given)
        # A change of one of them in place is to change no other.
        everything = _apart([given[i] for i in tracking.written], results)
        ctx.mark_non_differentiable(
            *(
                r
                for r, tracked in zip(everything, plan.tracked, strict=True)
                if isinstance(r, torch.Tensor) and not tracked
            )
        )
        ctx.set_materialize_grads(False)
        tensors = {tracking.inputs[i]: values[i] for i in plan.kept_inputs}
        tensors |= {plan.results[k]: everything[k] for k in plan.kept_results}
        ctx.save_for_backward(*tensors.values())
        ctx.names = list(tensors)
        ctx.numbers = {
            v: x
            for v, x in zip(tracking.inputs, values, strict=True)
            if not isinstance(v.type, TensorType)
        }
        for v, op in plan.sizes:
            sizes = list(values[tracking.place[v]].shape)
            ctx.numbers[v, op] = sizes[op.i] if isinstance(op, Shape_i) else sizes
        ctx.call = call
        return tuple(everything)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        plan = ctx.call.plan
        kept = {**ctx.numbers, **dict(zip(ctx.names, ctx.saved_tensors, strict=True))}
        found = ctx.call.tracking.gradients(plan, kept, grads)
        results: list[Any] = [None] * (1 + len(ctx.call.tracking.inputs))
        for i, g in zip(plan.places, found, strict=True):
            results[1 + i] = g
        return tuple(results)


def _apart(finals: Sequence[Any], results: Sequence[Any]) -> list[Any]:
    """Results and new values, with a copy of each that shares memory with another."""
    taken: set[int] = set()
    found: list[Any] = []
    for r in [*finals, *results]:
        if isinstance(r, torch.Tensor) and r.layout == torch.strided and not r.is_nested:
            place = r.untyped_storage()._cdata
            r = clone_of(r) if place in taken else r
            taken.add(r.untyped_storage()._cdata)
        found.append(r)
    return [*found[len(finals) :], *found[: len(finals)]]


def refuse_leaf(x: Any, where: str) -> None:
    """GradientError where PyTorch would not write into a tensor that a gradient is asked for."""
    base = x._base if x._is_view() else None
    for t, what in ((x, "a leaf"), (base, "a view of a leaf")):
        if t is not None and t.requires_grad and t.is_leaf:
            raise GradientError(
                f"{where}: {what} Variable that requires grad is being used in an in-place "
                "operation."
            )


def _requires_grad(v: Any) -> bool:
    return isinstance(v, torch.Tensor) and v.requires_grad


def _destroyed(node: Apply) -> list[int]:
    return sorted({i for inputs in node.op.destroy_map.values() for i in inputs})


# Views


class _NotSaid(Exception):
    """No variable stands for what is in an input's memory at the end."""


_RESHAPED = frozenset(
    [
        *("view", "_unsafe_view", "reshape", "flatten.using_ints", "unflatten.int", "ravel"),
        *("squeeze", "squeeze.dim", "squeeze.dims", "unsqueeze", "view_as", "reshape_as"),
    ]
)
_ITSELF = frozenset(["alias", "t", "transpose.int", "permute", "numpy_T", "mT"])
_SCATTERED = {"select.int": "select", "slice.Tensor": "slice", "diagonal": "diagonal"}


def _base(v: Variable) -> Variable | None:
    """What v is a view of, where `_with` knows the way back."""
    node = v.owner
    if node is None or len(node.inputs) != 1:
        return None
    if isinstance(node.op, (ViewOp, SpecifyShape)):
        return node.inputs[0]
    if not isinstance(node.op, NativeOp):
        return None
    known = {*_RESHAPED, *_ITSELF, *_SCATTERED}
    return node.inputs[0] if node.op.name in known else None


def _with(base: Variable, view: Variable, new: Variable) -> Variable:
    """The base with a new value in the place of its view."""
    assert view.owner is not None
    op = view.owner.op
    if not isinstance(op, NativeOp):
        return new
    if op.name in _RESHAPED:
        return ops.reshape(new, list(base.shape))  # type: ignore[attr-defined]
    values = op.arguments[1:]
    if op.name in _SCATTERED:
        return _Scatter(op)(base, new)
    if op.name == "permute":
        (dims,) = values
        order = [d % len(dims) for d in dims]
        return ops.permute(new, [order.index(d) for d in range(len(order))])
    if op.name == "transpose.int":
        return ops.transpose(new, *values)
    return new if op.name == "alias" else getattr(ops, op.name)(new)


@closed
class _Scatter(CallsTorch):
    """A tensor with another value in the place of one of its views. It is a native function; its
    gradient is known for sizes that are open, too."""

    __props__ = ("view",)
    only_calls = True

    def __init__(self, view: NativeOp) -> None:
        self.view = view

    def _native(self, base: Variable, new: Variable) -> Apply:
        function = native(f"{_SCATTERED[self.view.name]}_scatter")
        return function.make_node(base, new, *self.view.arguments[1:])

    def make_node(self, base: Any, new: Any) -> Apply:
        return Apply(self, [base, new], [base.type.make_variable()])

    def perform(self, node: Apply, inputs: Values, output_storage: Storages) -> None:
        self._native(*node.inputs).op.perform(node, inputs, output_storage)

    def c_code(self, node: Apply, name: str, inputs: Names, outputs: Names, sub: Sub) -> str:
        inner = self._native(*node.inputs)
        return inner.op.c_code(inner, name, inputs, outputs, sub)

    def grad(self, inputs: Variables, output_grads: Variables) -> Gradients:
        (g,) = output_grads
        return [self(g, ops.zeros_like(inputs[1])), self.view(g)]


# Which variables require a gradient

_flags: dict[Any, tuple[bool, ...]] = {}


def _tracked(order: Sequence[Apply], wanted: Sequence[Variable]) -> set[Variable]:
    """The variables that require a gradient where these do, as PyTorch has it."""
    found = set(wanted)
    for node in order:
        flags = tuple(v in found for v in node.inputs)
        if any(flags):
            found.update(v for v, f in zip(node.outputs, _outputs(node, flags), strict=True) if f)
    return found


def _outputs(node: Apply, flags: tuple[bool, ...]) -> tuple[bool, ...]:
    possible = tuple(differentiable(v.type) for v in node.outputs)
    op = node.op
    if not isinstance(op, NativeOp):
        return possible
    types = tuple(v.type for v in node.inputs)
    key = (op._key, types, flags)
    if key not in _flags:
        _flags[key] = _asked(node, flags) or possible
    return _flags[key]


def _asked(node: Apply, flags: tuple[bool, ...]) -> tuple[bool, ...] | None:
    """What PyTorch says when the op runs on tensors without data; None where it does not, or not
    the same at all sizes that the types leave open."""
    op = node.op
    assert isinstance(op, NativeOp)
    destroyed = _destroyed(node)
    types = [v.type for v in node.inputs]
    said: set[tuple[bool, ...]] = set()

    def run(values: Sequence[Any]) -> list[Any]:
        with torch.enable_grad():
            values = [v.requires_grad_() if f else v for v, f in zip(values, flags, strict=True)]
            values = [clone_of(v) if i in destroyed else v for i, v in enumerate(values)]
            found = list(_flat(op, values))
        said.add(tuple(map(_requires_grad, found)))
        return found

    def symbolic(size: Callable[[], Any]) -> list[Any]:
        sizes = [[size() if d is None else d for d in t.shape] for t in types]  # type: ignore[attr-defined]
        return run([torch.empty(s, dtype=t.torch_dtype) for s, t in zip(sizes, types, strict=True)])  # type: ignore[attr-defined]

    fixed = all(isinstance(t, TensorType) and None not in (t.shape or ()) for t in types)
    try:
        # What has a derivative of its own asks nothing but that. What is made of other functions
        # may choose them by sizes.
        if fixed or not _is_composite(op):
            example, _ = next(_examples(op, types))
            run([v.to("meta") if isinstance(v, torch.Tensor) else v for v in example])
        elif all(isinstance(t, TensorType) and t.dtype and t.shape is not None for t in types):
            prove(symbolic, every_way=True)
    except (StopIteration, NotProved, BridgeError, RuntimeError, TypeError, ValueError):
        return None  # it has no such kernel, or looks at values
    except (IndexError, AssertionError, AttributeError):  # as kernels in Python refuse
        return None
    if len(said) != 1:
        return None
    (found,) = said
    return found if len(found) == len(node.outputs) else None


def _is_composite(op: NativeOp) -> bool:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return bool(has(op.native.torch_op.name(), "CompositeImplicitAutograd"))
