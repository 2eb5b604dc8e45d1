"""The derivatives of native ops: PyTorch's own, traced.

The op and the backward pass that autograd makes of it run on tensors without data, and what they
call is recorded. The record is kept by op and types; using it makes its nodes. What the op itself
has computed is taken from its node, not computed again.
"""

from __future__ import annotations

import contextlib
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

from ..errors import REFUSALS, BridgeTypeError, MissingMethodError
from ..graph.basic import Apply, Variable
from ..inference.quiet import default_dtype, default_modes, quiet
from ..inference.samples import ATTENTION, Samples
from ..inference.samples import example as number
from ..ops import scalar
from ..ops.basic import specify_shape
from ..ops.checks import CheckSizes, SizeRule
from ..ops.from_fx import Handler, Importer, draws, outputs_of, placeholders
from ..ops.native import NativeOp, constant, native
from ..ops.size_guards import Condition, parse
from ..ops.variables import TensorMethods
from ..types import TensorType, Type

# What only gives its input another shape: the gradient has the input's.
_RESHAPES = frozenset(
    [
        *("view", "reshape", "_unsafe_view", "view_copy", "_reshape_copy", "flatten.using_ints"),
        *("squeeze", "squeeze.dim", "squeeze.dims", "unsqueeze", "view_as", "reshape_as", "ravel"),
        *("squeeze_copy", "squeeze_copy.dim", "squeeze_copy.dims", "unsqueeze_copy"),
        *("unflatten.int", "squeeze_", "squeeze_.dim", "squeeze_.dims", "unsqueeze_"),
    ]
)
# What only repeats what it is given: output i is input i, larger.
_EXPANDS = frozenset(["expand", "expand_copy", "expand_as", "broadcast_to", "broadcast_tensors"])
# What never broadcasts one argument to another's shape, among those with several.
_ALIKE = frozenset(
    [
        *("mm", "mv", "bmm", "dot", "convolution", "conv1d", "conv2d", "conv3d", "embedding"),
        *("index_select", "gather", "layer_norm", "native_layer_norm", "batch_norm", "cat"),
        *("native_batch_norm", "group_norm", "native_group_norm", "stack", "nll_loss_nd"),
        *("threshold_backward", "_softmax_backward_data", "_log_softmax_backward_data"),
    ]
)
# What broadcasts the sizes that it does not sum along, beside what is elementwise.
_BROADCASTS = frozenset(
    [
        *("matmul", "addmm", "addmv", "addbmm", "baddbmm", "addr", "linear"),
        *("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "poisson_nll_loss"),
        "margin_ranking_loss",
    ]
)
# What compares elements to know whether to warn, and for nothing else.
_ONLY_WARN = frozenset(["cov", "corrcoef"])
_FLOATING = ("float", "complex", "bfloat")
_ALL = 1 << 62  # more elements than there are
# Sizes for what is not known. Two unknown sizes of one value stay apart in the trace.
_HINTS = (24, 36, 20, 60, 12, 28, 40)
_SMALL_HINTS = (8, 12, 10, 6, 14, 4)


def differentiable(t: Type) -> bool:
    """Whether values of a type can have a gradient."""
    return isinstance(t, TensorType) and (t.dtype or "").startswith(_FLOATING)


@dataclass
class _Trace:
    """A recorded backward pass."""

    inputs: Sequence[Any]  # torch.fx nodes
    grads: Sequence[Any]
    outputs: Sequence[Any]  # the op's results
    results: Sequence[Any]  # the gradients, None where there is none
    module: Any
    ties: Mapping[tuple[int, int], int]  # (input, dimension) to a size that it took for granted
    rules: tuple[SizeRule, ...]  # sizes of several inputs that it took for the same
    conditions: tuple[Condition, ...]  # how sizes compare, where another order has another record
    # Inputs whose gradient may have another shape where they have no elements.
    empty: frozenset[int]
    cut: bool  # whether it reshapes what has elements to what has none, where an input has none


_traces: dict[Any, _Trace | None] = {}


def native_grad(
    node: Apply,
    output_grads: Sequence[Variable | None],
    wanted: Sequence[bool] | None = None,
) -> list[Variable | None]:
    """The gradients of a node's inputs, None where there is none; `wanted` says which are needed.

    MissingMethodError where PyTorch has no derivative.
    """
    op = node.op
    assert isinstance(op, NativeOp)
    need = tuple(
        differentiable(v.type) and (wanted is None or wanted[i]) for i, v in enumerate(node.inputs)
    )
    if len(output_grads) != len(node.outputs):
        raise BridgeTypeError(
            f"{op} has {len(node.outputs)} outputs, got {len(output_grads)} output gradients"
        )
    given = tuple(
        g is not None and differentiable(o.type)
        for g, o in zip(output_grads, node.outputs, strict=True)
    )
    if not any(need) or not any(given):
        return [None] * len(node.inputs)
    name = "reshape" if op.name in _RESHAPES else "sum_to_size" if op.name in _EXPANDS else None
    shaped = [x for x, _ in zip(node.inputs, node.outputs, strict=False)]
    if name is not None and all(getattr(x.type, "shape", None) is not None for x in shaped):
        of_outputs = [
            native(name)(g, list(x.shape)) if g is not None and w else None  # type: ignore[attr-defined]
            for g, x, w in zip(output_grads, shaped, need, strict=False)
        ]
        return [*of_outputs, *[None] * (len(node.inputs) - len(shaped))]
    types = tuple(v.type for v in node.inputs)
    key = (op._key, types, tuple(v.type for v in node.outputs), given, need, default_dtype())
    if key not in _traces:
        with default_modes():
            _traces[key] = _trace(node, given, need)
    trace = _traces[key]
    if trace is None:
        return [None] * len(node.inputs)
    grads = [g for g, used in zip(output_grads, given, strict=True) if used and g is not None]
    values: dict[Any, Any] = {}
    values.update(zip(trace.outputs, node.outputs, strict=True))
    values.pop(None, None)
    given_inputs = [_checked(op, i, v, trace.ties) for i, v in enumerate(node.inputs)]
    if trace.rules or trace.conditions:
        given_inputs, grads = _related(op, given_inputs, grads, trace)
    values.update(zip(trace.inputs, given_inputs, strict=True))
    values.update(zip(trace.grads, grads, strict=True))
    known = set(values)
    _check_random(op, trace, known)
    handlers = _HANDLERS
    if op.native.pointwise:
        handlers = {**_HANDLERS, "aten.view.default": _summed}
    elif trace.cut:
        handlers = {**_HANDLERS, "aten.view.default": _cut}
    importer = Importer(values, lambda name: _attribute(trace.module, name), handlers)
    found = importer.convert([r for r in trace.results if r is not None])
    results: list[Variable | None] = []
    remaining = iter(found)
    for i, (x, r) in enumerate(zip(node.inputs, trace.results, strict=True)):
        g = None if r is None else next(remaining)
        if i in trace.empty:
            g = native("expand")(g, list(x.shape))  # type: ignore[attr-defined]
        results.append(None if g is None else _fitted(op, g, x, node))
    return results


def _any_size(op: NativeOp) -> bool:
    """Whether a size that a record takes for granted needs no check: it may be 1, which is
    broadcast, or the op is itself part of a record, and is given what belongs together."""
    family = op.native.function.family
    return op.native.elementwise or family in _BROADCASTS or "backward" in family


def _checked(op: NativeOp, i: int, x: Variable, ties: Mapping[tuple[int, int], int]) -> Variable:
    """Input i, whose open sizes must be those that a record takes for granted. The op itself has
    refused others; should it not have, this does."""
    shape = getattr(x.type, "shape", None) or ()
    if _any_size(op) or not any((i, d) in ties for d in range(len(shape))):
        return x
    return specify_shape(x, [ties.get((i, d), size) for d, size in enumerate(shape)])


def _related(
    op: NativeOp, inputs: list[Variable], grads: list[Variable], trace: _Trace
) -> tuple[list[Variable], list[Variable]]:
    """The inputs, whose sizes must be related as a record takes them to be, and what comes in from
    the outputs: a record that does not use the inputs uses these, and is checked as well."""
    compared = {i for condition in trace.conditions for i, _ in condition.sizes()}
    places = sorted({rule.input for rule in trace.rules} | compared)
    names = [f"input {i} of {op}, for its gradient" for i in places]
    names += [f"a gradient of {op}"] * len(grads)
    moved = {i: k for k, i in enumerate(places)}
    rules = [rule._replace(input=moved[rule.input]) for rule in trace.rules]
    conditions = [condition.renumbered(moved) for condition in trace.conditions]
    check = CheckSizes(names, rules, conditions)
    checked = check.make_node(*(inputs[i] for i in places), *grads).outputs
    found = dict(zip(places, checked, strict=False))
    return [found.get(i, v) for i, v in enumerate(inputs)], checked[len(places) :]


def _relations(
    op: NativeOp, types: Sequence[Type], module: Any, ties: Mapping[tuple[int, int], int]
) -> tuple[SizeRule, ...]:
    """The open sizes of several inputs that were taken for the same, or a multiple of it, where the
    op takes others: it broadcasts them somewhere, and there a record does something else."""
    if _any_size(op) or op.native.pointwise or op.native.function.family in _ALIKE:
        return ()
    found: dict[Any, list[tuple[int, int, Any]]] = {}
    for i, (t, node) in enumerate(zip(types, placeholders(module.graph), strict=False)):
        for d, size in enumerate((t.shape or ()) if isinstance(t, TensorType) else ()):
            if size is not None or (i, d) in ties:
                continue
            expression = node.meta["val"].shape[d].node.expr
            for symbol in expression.free_symbols:
                found.setdefault(symbol, []).append((i, d, expression))
    rules = []
    for symbol, places in found.items():
        if len({i for i, _, _ in places}) < 2:
            continue
        for i, d, expression in places:
            scale, offset = expression.coeff(symbol, 1), expression.coeff(symbol, 0)
            if not (scale.is_Integer and offset.is_Integer) or scale < 1:
                raise _TooSpecial(
                    f"size {d} of input {i} is {expression} there; give it in the type"
                )
            rules.append(SizeRule(i, d, str(symbol), int(scale), int(offset)))
    return tuple(rules)


def _reshaped(importer: Importer, target: Any, args: Any, kwargs: Any) -> Any:
    (made,) = native("reshape").apply(native("reshape").bind(args[:2], {})).outputs
    return made


def _cut(importer: Importer, target: Any, args: Any, kwargs: Any) -> Any:
    """As `_reshaped`; what is reshaped to no elements loses those that it has."""
    x, sizes = args
    numel: Any = 1
    for size in sizes:
        numel = numel * size
    end = scalar.where(scalar.eq(numel, 0), 0, _ALL)
    rest = native("slice.Tensor")(native("reshape")(x, [-1]), 0, 0, end)
    return native("reshape")(rest, list(sizes))


def _summed(importer: Importer, target: Any, args: Any, kwargs: Any) -> Any:
    """As `_reshaped`, in an elementwise op's gradient. Where a sum of what was broadcast is viewed
    without the dimensions that were added, only those go: an open size of 1 may have been
    broadcast, too, and `_fitted` sums along it."""
    x, sizes = args
    node = x.owner
    of_sum = node is not None and isinstance(node.op, NativeOp)
    if of_sum and node.op.name == "sum.dim_IntList":
        _, dims, keepdim, _ = node.op.arguments
        added = range(x.type.ndim - len(sizes))
        if keepdim is True and added and set(added) <= set(dims):
            return native("squeeze.dims").apply([x, list(added)]).outputs[0]
    return _reshaped(importer, target, args, kwargs)


def _batch_norm_backward(importer: Importer, target: Any, args: Any, kwargs: Any) -> Any:
    """Checked first: where there is no row, or no channel, PyTorch's kernel divides by zero, which
    ends the process."""
    function = native("native_batch_norm_backward")
    values = function.bind(args, kwargs)
    x = values[1]
    empty = [d for d in (0, 1) if not x.type.shape[d]]
    if empty:
        rules = [SizeRule(0, d, f"s{d}", low=1) for d in empty]
        values[1] = CheckSizes(["the input of batch_norm, for a gradient"], rules)(x)
    return list(function.apply(values).outputs)


def _divided(importer: Importer, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A quotient of numbers, which C++ has computed while Python records it: where the divisor is
    zero it is infinite, or not a number, and no error. (The variance of one element divides so.)"""
    a, b = args
    if not isinstance(b, Variable):
        return scalar.div(a, b) if isinstance(a, Variable) else a / b
    zero = scalar.eq(b, 0)
    quotient = scalar.div(a, scalar.where(zero, 1.0, b))
    return scalar.where(zero, scalar.mul(a, math.inf), quotient)


# A record is made with row-major tensors: where its reshape is a view, that of others may be none.
_HANDLERS: dict[Any, Handler] = {
    "aten.view.default": _reshaped,
    "aten._unsafe_view.default": _reshaped,
    "aten.native_batch_norm_backward.default": _batch_norm_backward,
    operator.truediv: _divided,
}


def _attribute(module: Any, name: str) -> Any:
    value = module
    for part in name.split("."):
        value = getattr(value, part)
    return constant(value)


def _fitted(op: NativeOp, g: Any, x: Variable, node: Apply) -> Variable:
    """A gradient with x's shape: where sizes are open, x may have been broadcast."""
    assert isinstance(x, TensorMethods)
    shape = x.type.shape  # type: ignore[attr-defined]
    tensors = [v for v in node.inputs if isinstance(v.type, TensorType)]
    if shape is None or g.type.shape is None or len(tensors) < 2:
        return g
    if g.type.shape == shape and None not in shape:
        return g
    if op.native.function.family in _ALIKE:
        return g
    return native("sum_to_size")(g, list(x.shape))


def _check_random(op: NativeOp, trace: _Trace, known: set[Any]) -> None:
    """Refuses to draw random numbers again."""
    pending = [r for r in trace.results if r is not None]
    seen = set(known)
    while pending:
        n = pending.pop()
        if n in seen:
            continue
        seen.add(n)
        if draws(n):
            raise MissingMethodError(
                f"{op} has no gradient here: it draws random numbers that it does not return "
                f"({n.target}); use an op that returns them, such as ops.native_dropout"
            )
        pending.extend(n.all_input_nodes)


def _looks_at_values() -> tuple[type[Exception], ...]:
    """What torch raises where a function needs the elements of tensors that have none."""
    from torch._subclasses import fake_tensor as f

    return (
        f.DataDependentOutputException,
        f.DynamicOutputShapeException,
        f.UnsupportedOperatorException,
    )


def _trace(node: Apply, given: tuple[bool, ...], need: tuple[bool, ...]) -> _Trace | None:
    op = node.op
    assert isinstance(op, NativeOp)
    types = [v.type for v in node.inputs]
    symbolic = _is_open(types)
    for v in node.inputs:
        if getattr(v.type, "kind", "int") not in ("int", "float"):
            raise MissingMethodError(
                f"{op} has no gradient where its argument {v} of type {v.type} is a variable"
            )
    error: Exception | None = None
    for example, ties in _examples(op, types):
        try:
            try:
                mode = "symbolic" if symbolic else "fake"
                return _record(op, types, example, given, need, mode, ties)
            except _looks_at_values() as e:
                error = e
                if symbolic:
                    continue
                # It looks at values: at some that it can have.
                return _record(op, types, list(map(_filled, example)), given, need, "real")
        except _NoGradient:
            return None
        except _TooSpecial as e:
            error = error or e
        except NotImplementedError as e:
            raise MissingMethodError(f"{op} has no gradient: {_first(e)}") from None
        except (RuntimeError, ValueError, TypeError, AssertionError, IndexError) as e:
            if "derivative for" in str(e) or "not implemented" in str(e):
                raise MissingMethodError(f"{op} has no gradient: {_first(e)}") from None
            error = e
    raise MissingMethodError(
        f"the gradient of {op} for {', '.join(map(str, types))} could not be traced: "
        f"{_first(error) if error else 'no example of such inputs'}"
    ) from error


def _flat(op: NativeOp, inputs: list[Any]) -> list[Any]:
    """The op's results, lists dissolved."""
    if op.native.function.family in _ONLY_WARN:
        with _nothing_is_equal()():
            result = op.call(inputs)
    else:
        result = op.call(inputs)
    if op.native.returns_written:
        return [inputs[op.destroy_map[o][0]] for o in range(sum(map(len, op.groups)))]
    results = (result,) if len(op.native.results) == 1 else result
    found: list[Any] = []
    for r in results:
        found += list(r) if isinstance(r, (list, tuple)) else [r]
    return found


@cache
def _nothing_is_equal() -> Any:
    """A mode for functions that compare elements only to know whether to warn."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            if func is torch.ops.aten.equal.default:
                return False
            return func(*args, **(kwargs or {}))

    return Mode


def decompose(node: Apply) -> list[Variable]:
    """The outputs of a node as a graph of what its function calls, which torch's own eager mode
    calls too. Random ops among it return what they draw, so their users can be differentiated."""
    op = node.op
    assert isinstance(op, NativeOp)
    types = tuple(v.type for v in node.inputs)
    key = (op._key, types, default_dtype())
    if key not in _decompositions:
        with default_modes():
            _decompositions[key] = _forward(op, types)
    inputs, outputs, module = _decompositions[key]
    importer = Importer(
        dict(zip(inputs, node.inputs, strict=True)),
        lambda name: _attribute(module, name),
        _HANDLERS,
    )
    return importer.convert(outputs)


_decompositions: dict[Any, tuple[list[Any], list[Any], Any]] = {}


def _forward(op: NativeOp, types: Sequence[Type]) -> tuple[list[Any], list[Any], Any]:
    import torch
    import torch.fx.experimental._config as fx_config
    from torch.fx.experimental.proxy_tensor import make_fx

    example, ties = next(_examples(op, types), (None, None))
    if example is None or ties:
        raise MissingMethodError(
            f"{op} for {', '.join(map(str, types))}: there is no example of such inputs"
        )

    def run(*values: Any) -> list[Any]:
        return _flat(op, list(values))

    def traced(mode: str) -> Any:
        with torch.no_grad(), quiet(), fx_config.patch(use_duck_shape=False):
            return make_fx(
                torch.func.functionalize(run, remove="mutations"),
                tracing_mode=mode,
                _allow_non_fake_inputs=True,
            )(*example)

    symbolic = _is_open(types)
    try:
        module = traced("symbolic" if symbolic else "fake")
    except RuntimeError as e:
        if not symbolic:
            raise
        raise MissingMethodError(
            f"{op} for {', '.join(map(str, types))}: what it draws depends on open sizes; "
            f"give them in the type ({_first(e)})"
        ) from None
    if symbolic:
        try:
            _check_sizes(types, module, {})
            _check_guards(types, module)
        except _TooSpecial as e:
            raise MissingMethodError(f"{op} for {', '.join(map(str, types))}: {e}") from None
    return list(placeholders(module.graph)), list(outputs_of(module.graph)), module


def _check_guards(types: Sequence[Type], module: Any) -> None:
    """Refuses a record that depends on how open sizes compare, but for those that are equal."""
    from sympy import Eq

    env = module.shape_env
    known: dict[Any, int] = {}
    for t, node in zip(types, placeholders(module.graph), strict=False):
        for d, size in enumerate((t.shape or ()) if isinstance(t, TensorType) else ()):
            expression = getattr(getattr(node.meta["val"].shape[d], "node", None), "expr", None)
            if size is not None and expression is not None:
                known[env.replace(expression)] = size
    for guard in env.guards:
        expression = env.replace(guard.expr)
        if set(known) >= expression.free_symbols:
            continue
        if not isinstance(expression.subs(known), Eq):
            raise _TooSpecial(f"what is called depends on {expression}; give sizes in the type")


class _NoGradient(Exception):
    """Nothing is differentiable."""


def _first(e: BaseException) -> str:
    return str(e).partition("\n")[0]


def _examples(
    op: NativeOp, types: Sequence[Type]
) -> Iterator[tuple[list[Any], dict[tuple[int, int], int]]]:
    """Tensors with untouched memory that have the types of the inputs; and the open sizes, by input
    and dimension, that can only be what they are there."""
    import torch

    for t in types:
        if isinstance(t, TensorType) and (t.dtype is None or t.shape is None):
            raise MissingMethodError(
                f"{op} cannot be differentiated for an input of type {t}: its dtype and its number "
                "of dimensions must be known"
            )
    samples = Samples(op.native, op.arguments, types)
    known = {d for t in types if isinstance(t, TensorType) for d in t.shape or ()}
    most = max((t.ndim or 0 for t in types if isinstance(t, TensorType)), default=0)
    sizes = [h for h in (_HINTS if most <= 4 else _SMALL_HINTS) if h not in known]
    sizes += [max([*sizes, 0]) + 2 * (i + 1) for i in range(most)]

    def values(choose: Callable[[int, int, int], int], whole: int = 3) -> list[Any]:
        found: list[Any] = []
        for i, t in enumerate(types):
            if isinstance(t, TensorType):
                shape = t.shape or ()
                filled = [
                    choose(i, d, len(shape)) if size is None else size
                    for d, size in enumerate(shape)
                ]
                found.append(torch.empty(filled, dtype=t.torch_dtype, device="cpu"))
            else:
                found.append(number(t, whole))  # 0 and 1 are special
        return found

    if not samples.open:
        yield values(lambda i, d, n: 0), {}
        return
    # Sizes that may differ do, so that the trace takes none for another: along the last
    # dimensions, which broadcast, or along the first. All are equal where they must be.
    ways: list[list[Callable[[int, int, int], int]]] = [
        [lambda i, d, n: sizes[n - 1 - d], lambda i, d, n: sizes[d]],
        [lambda i, d, n: sizes[0]],
    ]
    for alike in ways:
        # A size is large, an index is small.
        made = (values(way, whole) for whole in dict.fromkeys((sizes[0], 3)) for way in alike)
        possible = [example for example in made if _runs(op, example)]
        for example in possible:
            yield example, {}
        if possible:
            return
    for ties in samples.tied():

        def tied(sizes_of: Mapping[tuple[int, int], int]) -> list[Any]:
            return values(lambda i, d, n: sizes_of.get((i, d), sizes[0]))

        example = tied(ties)
        if not _runs(op, example):
            continue
        # einsum takes 1 for any size, too, and attention 0 and 1: their gradients refuse that when
        # they run.
        family = op.native.function.family
        taken = (1,) if family == "einsum" else (0, 1) if family in ATTENTION else ()
        tried = [n for n in (0, 1, *sizes[:2]) if n not in taken]
        others = (tied({**ties, place: n}) for place in ties for n in tried)
        if _any_size(op) or not any(_runs(op, other) for other in others):
            yield example, ties
            return


def _runs(op: NativeOp, example: list[Any]) -> bool:
    """Whether the op takes tensors of such shapes."""
    import torch

    meta = [v.to("meta") if isinstance(v, torch.Tensor) else v for v in example]
    try:
        with torch.no_grad():
            _flat(op, meta)
    except NotImplementedError:
        return True  # it cannot be told
    except REFUSALS:
        return False
    return True


def _is_open(types: Sequence[Type]) -> bool:
    return any(not isinstance(t, TensorType) or None in (t.shape or ()) for t in types)


class _TooSpecial(Exception):
    """A record is good for some sizes only."""


def _check_sizes(types: Sequence[Type], module: Any, ties: Mapping[tuple[int, int], int]) -> None:
    """Refuses a record in which an open size has become a number."""
    import torch

    env = getattr(module, "shape_env", None)
    floats: set[Any] = set()
    for i, (t, node) in enumerate(zip(types, placeholders(module.graph), strict=False)):
        value = node.meta.get("val")
        places = (
            [(d, value.shape[d]) for d, size in enumerate(t.shape or ()) if size is None]
            if isinstance(t, TensorType)
            else [(0, value)]
        )
        for d, size in places:
            if (i, d) in ties:
                continue
            expression = getattr(getattr(size, "node", None), "expr", None)
            if env is not None and expression is not None:
                expression = env.replace(expression)
            symbols = getattr(expression, "free_symbols", None)
            if not isinstance(size, (torch.SymInt, torch.SymFloat)) or not symbols:
                raise _TooSpecial(
                    f"what is called depends on size {d} of input {i}; give it in the type"
                    if isinstance(t, TensorType)
                    else f"what is called depends on the number that input {i} is"
                )
            if isinstance(size, torch.SymFloat):
                floats |= symbols
    for guard in getattr(env, "guards", ()):
        if floats & guard.expr.free_symbols:
            raise _TooSpecial("what is called depends on the value of a number")


# Sizes that are tried on the other side of a guard.
_TRIED = (2, 3, 4, 5, 7, 9, 16, 33, 64, 100)


def _orderings(
    op: NativeOp,
    types: Sequence[Type],
    example: Sequence[Any],
    traced: Any,
    right: Callable[[list[Any]], bool],
) -> tuple[Condition, ...]:
    """How open sizes compare with numbers and with each other in a record, where it is not `right`
    for sizes that compare otherwise. Sizes that the op itself refuses are none."""
    from sympy import Ge, Le
    from torch.utils._sympy.printers import PythonPrinter

    env = traced.shape_env
    places: dict[Any, list[tuple[int, int]]] = {}
    for i, (t, node) in enumerate(zip(types, placeholders(traced.graph), strict=False)):
        for d, size in enumerate((t.shape or ()) if isinstance(t, TensorType) else ()):
            expression = getattr(getattr(node.meta["val"].shape[d], "node", None), "expr", None)
            if size is None and expression is not None:
                places.setdefault(env.replace(expression), []).append((i, d))
    sizes = {s: example[at[0][0]].shape[at[0][1]] for s, at in places.items()}
    demanded: list[Condition] = []
    weaker = {">": Ge, "<": Le}
    guards = dict.fromkeys(env.replace(guard.expr) for guard in env.guards)
    orders = {e: getattr(e, "rel_op", "") in weaker for e in guards if e.free_symbols}
    orders |= {weaker[e.rel_op](*e.args): False for e, strict in orders.items() if strict}
    # What is weaker first, and what is simpler: others may be no more than that in other words.
    for expression in sorted(orders, key=lambda e: (orders[e], e.count_ops())):
        symbols = sorted(expression.free_symbols, key=str)
        if not symbols:
            continue  # the weaker form is true of every size
        if not places.keys() >= set(symbols):
            continue  # about the sizes of results, which follow from these
        if any(side.is_Integer and side in (0, 1) for side in expression.args) and any(
            side.is_Symbol for side in expression.args
        ):
            continue  # no elements, or one: `_without_elements`, `_fitted`
        text = PythonPrinter().doprint(expression)
        for symbol in symbols:
            i, d = places[symbol][0]
            text = re.sub(rf"\b{symbol}\b", f"x{i}.shape[{d}]", text)
        condition = parse(text, {f"x{i}": (i, f"x{i}") for i in range(len(types))})
        near = [int(n) for n in expression.atoms() if n.is_Integer] + [sizes[s] for s in symbols]
        tried = dict.fromkeys(n for n in (*(m + k for m in near for k in (-1, 0, 1)), *_TRIED))
        others = []
        for values in (
            {**base, **{s: sizes[s] for s in symbols}, symbol: size}
            for base in (dict.fromkeys(sizes, 3), sizes)  # convolutions take long of large ones
            for symbol in symbols
            for size in tried
            if size > 1
        ):
            at = {place: values[s] for s in places for place in places[s]}

            def size_of(i: int, d: int | None, at: Any = at) -> Any:
                return at[i, d]

            if condition.holds(size_of) or not all(c.holds(size_of) for c in demanded):
                continue
            other = list(example)
            for (i, d), size in at.items():
                shape = [*other[i].shape[:d], size, *other[i].shape[d + 1 :]]
                other[i] = example[i].detach().new_empty(shape)
            if _runs(op, other):
                others.append(other)
            if len(others) == 2:
                break
        # A condition stays unless other sizes show that the record is right without it.
        if not others or not all(map(right, others)):
            demanded.append(condition)
    return tuple(demanded)


def _record(
    op: NativeOp,
    types: Sequence[Type],
    example: list[Any],
    given: tuple[bool, ...],
    need: tuple[bool, ...],
    mode_name: str,
    ties: Mapping[tuple[int, int], int] = MappingProxyType({}),
) -> _Trace:
    import torch
    import torch.fx.experimental._config as fx_config
    from torch.fx.experimental.proxy_tensor import make_fx

    destroyed = {i for inputs in op.destroy_map.values() for i in inputs}
    for i, wanted in enumerate(need):
        if wanted:
            example[i] = example[i].requires_grad_()
    n = len(example)

    def flat(values: Sequence[Any]) -> list[Any]:
        # What is written into must be no leaf.
        inputs = [v.clone() if i in destroyed else v for i, v in enumerate(values)]
        return _flat(op, inputs)

    with torch.enable_grad(), quiet():
        from torch._subclasses.fake_tensor import FakeTensorMode

        if mode_name == "real":
            outs = flat(example)
        else:
            mode = FakeTensorMode(allow_non_fake_inputs=True)
            fakes = [
                mode.from_tensor(v).detach().requires_grad_(v.requires_grad)
                if isinstance(v, torch.Tensor)
                else v
                for v in example
            ]
            with mode:
                outs = flat(fakes)
        diff = [k for k, g in enumerate(given) if g and getattr(outs[k], "requires_grad", False)]
        if not diff:
            raise _NoGradient
        shapes = [torch.empty(outs[k].shape, dtype=outs[k].dtype) for k in diff]
        # A gradient for an output that has none is not used, but stays an argument.
        fills = [
            shapes[diff.index(k)] if k in diff else torch.empty(outs[k].shape, dtype=outs[k].dtype)
            for k, g in enumerate(given)
            if g
        ]
        order = [k for k, g in enumerate(given) if g]

        def backward(*values: Any) -> Any:
            inputs, grads = values[:n], values[n:]
            outs = flat(inputs)
            used = [(outs[k], grads[order.index(k)]) for k in diff]
            found = torch.autograd.grad(
                [o for o, _ in used],
                [v for v, w in zip(inputs, need, strict=True) if w],
                [g for _, g in used],
                allow_unused=True,
            )
            return outs, found

        def traced_with(function: Callable[..., Any], values: Sequence[Any]) -> Any:
            with _symbolic_floats(values) as numbers:
                made = make_fx(function, tracing_mode=mode_name, _allow_non_fake_inputs=True)
                return made(*numbers, *fills)

        with fx_config.patch(use_duck_shape=False):
            module = traced = traced_with(backward, example)
            if _mutates(module):
                with torch.no_grad():
                    functional = torch.func.functionalize(module, remove="mutations")
                    plain = [v.detach() if isinstance(v, torch.Tensor) else v for v in example]
                    module = traced_with(functional, plain)
    if mode_name == "real":
        _check_values(op, module)
    if mode_name == "symbolic":
        _check_sizes(types, traced, ties)
    nodes = placeholders(module.graph)
    outputs, found = outputs_of(module.graph)
    results = iter(found)
    inputs = list(nodes[:n])
    rules = _relations(op, types, traced, ties) if mode_name == "symbolic" else ()

    def right(values: Sequence[Any]) -> bool:
        """Whether the record gives what autograd gives for random elements in such tensors."""
        leaves = [_filled(v) for v in values]
        for leaf, wanted in zip(leaves, need, strict=True):
            if wanted:
                leaf.requires_grad_()
        try:
            with torch.enable_grad():
                seeds = [torch.randn_like(flat(leaves)[k]) for k in order]
                expected = backward(*leaves, *seeds)
            with torch.no_grad():
                plain = [v.detach() if isinstance(v, torch.Tensor) else v for v in leaves]
                results = module(*plain, *seeds)
        except REFUSALS:
            return False
        pairs = (
            (a, b)
            for x, y in zip(results, expected, strict=True)
            for a, b in zip(x, y, strict=True)
        )
        return all(
            a is b
            or (
                (a is not None and b is not None and a.shape == b.shape)
                and torch.allclose(a, b, 1e-3, 1e-4, equal_nan=True)
            )
            for a, b in pairs
        )

    symbolic = mode_name == "symbolic"
    conditions = _orderings(op, types, example, traced, right) if symbolic else ()
    empty, cut = _without_elements(op, types, module, example, given, need)
    return _Trace(
        inputs,
        list(nodes[n:]),
        [o if o not in inputs else None for o in outputs],
        [next(results) if w else None for w in need],
        module,
        ties,
        rules,
        conditions,
        empty,
        cut,
    )


def _without_elements(
    op: NativeOp,
    types: Sequence[Type],
    module: Any,
    example: Sequence[Any],
    given: tuple[bool, ...],
    need: tuple[bool, ...],
) -> tuple[frozenset[int], bool]:
    """The inputs whose gradient has another shape than they have, where they have no elements: a
    record is made with some, and PyTorch may take another way without. And whether the record then
    reshapes what has elements to what has none."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    places = [
        (i, d)
        for i, t in enumerate(types)
        if isinstance(t, TensorType)
        for d, size in enumerate(t.shape or ())
        if size is None
    ]
    if sum(isinstance(t, TensorType) for t in types) > 1:
        return frozenset(), False  # `_fitted` sees to it
    assert sum(need) == 1
    wrong = set()
    cut = False
    for i, d in places:
        shape = list(example[i].shape)
        shape[d] = 0
        try:
            with torch.no_grad(), quiet(), FakeTensorMode(allow_non_fake_inputs=True) as mode:
                values = [
                    mode.from_tensor(v) if isinstance(v, torch.Tensor) else v for v in example
                ]
                values[i] = torch.empty(shape, dtype=values[i].dtype)
                outs = [v for v, g in zip(_flat(op, values), given, strict=True) if g]
                try:
                    _, found = module(*values, *outs)
                except RuntimeError:
                    _, found = _cutting()(module).run(*values, *outs)
                    cut = True
        except REFUSALS:
            continue  # it is refused at run time as well
        (g,) = found
        if g is not None and g.shape != values[i].shape:
            wrong.add(i)
    return frozenset(wrong), cut


@cache
def _cutting() -> Any:
    """What runs a record as `_cut` changes it."""
    import torch

    class Cutting(torch.fx.Interpreter):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            if target is torch.ops.aten.view.default and 0 in args[1]:
                return args[0].new_empty(args[1])
            return super().call_function(target, args, kwargs)

    return Cutting


@contextlib.contextmanager
def _symbolic_floats(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """The values with symbols for floats, where make_fx has them for sizes and ints alone. Inside,
    it traces with the mode that the symbols belong to."""
    if not any(type(v) is float for v in values):
        yield values
        return
    from torch._dynamo.source import ConstantSource
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

    env = ShapeEnv()

    def symbol(i: int, value: float) -> Any:
        source = ConstantSource(f"number{i}")
        made = env.create_symbol(
            value,
            source,
            DimDynamic.DYNAMIC,
            positive=None,
            do_not_specialize_zero_one=True,
        )
        return env.create_symfloatnode(made, hint=value, source=source)

    with FakeTensorMode(shape_env=env, allow_non_fake_inputs=True):
        yield [symbol(i, v) if type(v) is float else v for i, v in enumerate(values)]


def _filled(value: Any) -> Any:
    """A tensor with elements that nearly everything accepts: random ones, zeros, True."""
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    if value.dtype == torch.bool:
        return torch.ones_like(value)
    if value.is_floating_point() or value.is_complex():
        generator = torch.Generator().manual_seed(0)
        return torch.rand(value.shape, dtype=value.dtype, generator=generator)
    return torch.zeros_like(value)


def _check_values(op: NativeOp, module: Any) -> None:
    """Refuses a record that has numbers in it that were read from tensors."""
    for node in module.graph.nodes:
        if getattr(getattr(node.target, "_schema", None), "name", "") in (
            "aten::_local_scalar_dense",
            "aten::item",
        ):
            raise MissingMethodError(
                f"{op} has no gradient here: what it calls depends on the elements of its inputs"
            )


def _mutates(module: Any) -> bool:
    return any(
        getattr(getattr(node.target, "_schema", None), "is_mutable", False)
        for node in module.graph.nodes
        if node.op == "call_function"
    )
