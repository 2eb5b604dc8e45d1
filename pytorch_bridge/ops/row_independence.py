"""A proof that rows are independent: row i of each output depends on row i of the inputs alone.

A server may then join requests along the first dimension. Each op needs a rule. Without one, or
with arguments that its rule does not cover, the answer is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from ..graph.basic import Apply, Constant, Variable, toposort
from ..schema.corrections import IN
from ..types import TensorType
from .basic import Shape_i
from .checks import CheckSizes
from .native import NativeOp
from .scalar import ScalarOp


class Rows(NamedTuple):
    """Dimension `dim` of a tensor has `outer * n * inner` elements for n rows; element
    `(o * n + row) * inner + i` is made of one row. All other sizes are independent of n."""

    dim: int
    outer: int = 1
    inner: int = 1

    @property
    def times(self) -> int:
        return self.outer * self.inner


class Count(NamedTuple):
    """A number that is so many times the number of rows."""

    times: int


class _Free:
    """A value that depends neither on the inputs nor on their number of rows."""


FREE = _Free()
Found = Rows | Count | _Free


class _Unknown(Exception):
    """There is no proof."""


def independent(inputs: Sequence[Variable], outputs: Sequence[Variable]) -> bool:
    """Whether each row of the outputs provably depends on the same row of the inputs alone.

    Inputs and outputs are tensors whose first size is open, and one for all."""
    try:
        return _Proof(inputs).holds(outputs)
    except _Unknown:
        return False


def _need(condition: object) -> None:
    if not condition:
        raise _Unknown


def _rows(found: Found) -> Rows:
    if not isinstance(found, Rows):
        raise _Unknown
    return found


def _count(found: Found) -> Count:
    if not isinstance(found, Count):
        raise _Unknown
    return found


def _shape(v: Variable) -> tuple[int | None, ...]:
    if not isinstance(v.type, TensorType) or v.type.shape is None:
        raise _Unknown
    return tuple(v.type.shape)


class _Proof:
    def __init__(self, inputs: Sequence[Variable]) -> None:
        self.inputs = inputs
        self.found: dict[Variable, Found] = {}
        _need(inputs)
        for v in inputs:
            shape = _shape(v)
            _need(shape and shape[0] is None)
            self.found[v] = Rows(0)

    def holds(self, outputs: Sequence[Variable]) -> bool:
        same = len(self.inputs) == 1
        for node in toposort(outputs, self.inputs):
            if isinstance(node.op, CheckSizes):
                same = self.check(node, node.op) or same
            else:
                for v, found in zip(node.outputs, self.of(node), strict=True):
                    self.found[v] = self.fits(v, found)
        _need(same)
        return all(self.at(v) == Rows(0) for v in outputs)

    def at(self, v: Variable) -> Found:
        if isinstance(v, Constant):
            return FREE
        _need(v in self.found)
        return self.found[v]

    def fits(self, v: Variable, found: Found) -> Found:
        """A type that says something else than the proof ends it."""
        if isinstance(found, Rows):
            shape = _shape(v)
            _need(found.dim < len(shape) and shape[found.dim] is None)
        return found

    def check(self, node: Apply, op: CheckSizes) -> bool:
        """Prove the conditions on sizes; return whether all inputs have the same number of rows."""
        first = [r for r in op.rules if r.dim == 0 and self.at(node.inputs[r.input]) == Rows(0)]
        symbols = {r.symbol for r in first}
        _need(len(symbols) <= 1)
        leading = [("size", r.input, 0) for r in first]
        for condition in op.conditions:  # the rules demand equal sizes already
            relation, *sides = condition.tree
            _need(relation == "==" and all(side in leading for side in sides))
        for r in op.rules:
            if r in first:
                _need((r.scale, r.offset) == (1, 0) and (r.low is None or r.low <= 1))
            else:
                _need(r.symbol not in symbols)
        for given, passed in zip(node.inputs, node.outputs, strict=False):
            self.found[passed] = self.at(given)
        checked = {id(node.inputs[r.input]) for r in first}
        return all(id(v) in checked for v in self.inputs)

    def of(self, node: Apply) -> list[Found]:
        op = node.op
        found = [self.at(v) for v in node.inputs]
        if not getattr(op, "random", False) and all(f is FREE for f in found):
            _need(isinstance(op, (NativeOp, ScalarOp, Shape_i)))
            return [FREE] * len(node.outputs)
        if isinstance(op, Shape_i):
            rows = _rows(found[0])
            _need(rows.dim == op.i)
            return [Count(rows.times)]
        if isinstance(op, ScalarOp):
            _need(op.name == "mul" and len(found) == 2)
            counts = [f for f in found if isinstance(f, Count)]
            others = [v.data for v in node.inputs if isinstance(v, Constant)]
            _need(len(counts) == len(others) == 1 and type(others[0]) is int)
            return [Count(counts[0].times * others[0])]
        if not isinstance(op, NativeOp) or op.random:
            raise _Unknown
        call = _Call(self, node, op)
        base = op.native.base
        if op.native.pointwise:
            return [call.pointwise()] * len(node.outputs)
        _need(base in _RULES)
        return [_RULES[base](call)] * len(node.outputs)


class _Call:
    """A node of a native function, with its arguments by name."""

    def __init__(self, proof: _Proof, node: Apply, op: NativeOp) -> None:
        self.proof, self.node, self.op = proof, node, op
        left = iter(node.inputs)
        arguments = self.op.native.function.arguments
        self.arguments = {
            a.name: _placed(v, left) for a, v in zip(arguments, self.op.arguments, strict=True)
        }

    def __getitem__(self, name: str) -> Any:
        _need(name in self.arguments)
        return self.arguments[name]

    def ints(self, name: str) -> tuple[int, ...]:
        """An argument that is one number or several, none of which is computed."""
        value = self[name]
        values = value if isinstance(value, tuple) else (value,)
        _need(all(type(n) is int for n in values))
        return values

    def dim(self, name: str, ndim: int) -> int:
        (n,) = self.ints(name)
        _need(-ndim <= n < ndim)
        return n % ndim

    def rows(self, name: str) -> tuple[Rows, tuple[int | None, ...]]:
        """An argument that has rows, and its shape."""
        v = self[name]
        _need(isinstance(v, Variable))
        return _rows(self.proof.at(v)), _shape(v)

    def free(self, *names: str) -> None:
        """Arguments that are independent of the rows, where they are there."""
        for name in names:
            for v in _variables(self.arguments.get(name)):
                _need(self.proof.at(v) is FREE)

    def others_free(self, *names: str) -> None:
        self.free(*(name for name in self.arguments if name not in names))

    def beside(self, v: Variable, rows: Rows, ndim: int) -> None:
        """An argument that broadcasts to `rows` has the same rows, or is one for all."""
        found, shape = self.proof.at(v), _shape(v)
        at = rows.dim - (ndim - len(shape))  # dimensions are counted from the last
        if found is FREE:
            _need(at < 0 or shape[at] == 1)
        else:
            _need(found == rows._replace(dim=at))

    def pointwise(self) -> Rows:
        tensors = [v for v in self.node.inputs if isinstance(v.type, TensorType)]
        for v in self.node.inputs:
            _need(isinstance(v.type, TensorType) or self.proof.at(v) is FREE)
        ndim = max(len(_shape(v)) for v in tensors)
        ranked = [
            found._replace(dim=found.dim + ndim - len(_shape(v)))
            for v in tensors
            if isinstance(found := self.proof.at(v), Rows)
        ]
        _need(ranked)
        for v in tensors:
            self.beside(v, ranked[0], ndim)
        return ranked[0]


def _placed(value: Any, left: Iterator[Variable]) -> Any:
    if value is IN:
        return next(left)
    return tuple(_placed(v, left) for v in value) if isinstance(value, tuple) else value


def _variables(value: Any) -> Iterator[Variable]:
    if isinstance(value, Variable):
        yield value
    elif isinstance(value, tuple):
        for v in value:
            yield from _variables(v)


# Rules --------------------------------------------------------------------------------------------

Rule = Callable[[_Call], Rows]
_RULES: dict[str, Rule] = {}


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        _RULES.update((name, rule) for name in names)
        return rule

    return register


def _first(call: _Call) -> str:
    return next(iter(call.arguments))


@_rule("contiguous", "clone", "detach", "alias", "to", "_to_copy", "lift_fresh_copy")
def _same(call: _Call) -> Rows:
    first = _first(call)
    call.others_free(first)
    return call.rows(first)[0]


@_rule("dropout", "feature_dropout", "alpha_dropout")
def _dropout(call: _Call) -> Rows:
    _need(call["train"] is False)
    return _same(call)


@_rule(
    "softmax", "log_softmax", "_softmax", "_log_softmax", "cumsum", "cumprod", "glu", "topk",
    "sort", "flip",
)  # fmt: skip
def _along(call: _Call) -> Rows:
    """Ops along one or several dimensions, which they keep."""
    first = _first(call)
    call.others_free(first)
    rows, shape = call.rows(first)
    dims = call.ints("dims" if "dims" in call.arguments else "dim")
    _need(rows.dim not in [d % len(shape) for d in dims])
    return rows


@_rule(
    "sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "all", "any", "prod", "var",
    "std", "logsumexp", "linalg_vector_norm", "norm", "median", "count_nonzero",
)  # fmt: skip
def _reduced(call: _Call) -> Rows:
    call.others_free("self")
    rows, shape = call.rows("self")
    _need("dim" in call.arguments)
    dims = {d % len(shape) for d in call.ints("dim")}
    _need(dims)
    _need(rows.dim not in dims)
    if call.arguments.get("keepdim") is True:
        return rows
    return rows._replace(dim=rows.dim - sum(d < rows.dim for d in dims))


@_rule("layer_norm", "rms_norm", "native_layer_norm")
def _layer_norm(call: _Call) -> Rows:
    call.others_free("input")
    rows, shape = call.rows("input")
    _need(rows.dim < len(shape) - len(call.ints("normalized_shape")))
    return rows


@_rule("batch_norm")
def _batch_norm(call: _Call) -> Rows:
    call.others_free("input")
    _need(call["training"] is False)
    return _leading(call, "input")


@_rule("group_norm")
def _group_norm(call: _Call) -> Rows:
    call.others_free("input")
    return _leading(call, "input")


def _leading(call: _Call, name: str) -> Rows:
    rows, _ = call.rows(name)
    _need(rows.dim == 0)
    return rows


@_rule(
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "convolution",
)  # fmt: skip
def _conv(call: _Call) -> Rows:
    call.others_free("input")
    _, shape = call.rows("input")
    _need(len(shape) == len(_shape(call["weight"])))  # else there is no batch
    return _leading(call, "input")


@_rule(
    *(f"{kind}_pool{n}d" for kind in ("max", "avg", "adaptive_avg",
    "adaptive_max") for n in (1, 2, 3)),
)  # fmt: skip
def _pool(call: _Call) -> Rows:
    first = _first(call)
    call.others_free(first)
    rows, shape = call.rows(first)
    n = int(call.op.native.base[-2])
    _need(rows.dim < len(shape) - n)
    return rows


@_rule("upsample_nearest1d", "upsample_nearest2d", "upsample_bilinear2d", "upsample_bicubic2d")
def _upsample(call: _Call) -> Rows:
    first = _first(call)
    call.others_free(first)
    return _leading(call, first)


@_rule("pixel_shuffle")
def _pixel_shuffle(call: _Call) -> Rows:
    rows, shape = call.rows("self")
    _need(rows.dim < len(shape) - 3)
    return rows


@_rule("pad", "constant_pad_nd")
def _pad(call: _Call) -> Rows:
    call.others_free("self")
    rows, shape = call.rows("self")
    _need(rows.dim < len(shape) - len(call.ints("pad")) // 2)
    return rows


@_rule("linear")
def _linear(call: _Call) -> Rows:
    call.others_free("input")
    rows, shape = call.rows("input")
    _need(rows.dim < len(shape) - 1)
    return rows


@_rule("mm")
def _mm(call: _Call) -> Rows:
    call.free("mat2")
    return _leading(call, "self")


@_rule("addmm")
def _addmm(call: _Call) -> Rows:
    call.others_free("mat1")
    bias = _shape(call["self"])
    _need(len(bias) < 2 or bias[0] == 1)
    return _leading(call, "mat1")


@_rule("matmul", "bmm")
def _matmul(call: _Call) -> Rows:
    a, b = (call[name] for name in list(call.arguments)[:2])
    (left, right), (m, n) = map(call.proof.at, (a, b)), map(len, map(_shape, (a, b)))
    _need(m >= 2 and n >= 2)
    ndim = max(m, n)
    if isinstance(left, Rows) and right is FREE:
        rows = left._replace(dim=left.dim + ndim - m)
        if rows.dim == ndim - 2:
            return rows
        _need(rows.dim < ndim - 2)
        call.beside(b, rows, ndim)
        return rows
    rows = _rows(right)
    rows = rows._replace(dim=rows.dim + ndim - n)
    _need(rows.dim < ndim - 2)
    call.beside(a, rows, ndim)
    return rows


@_rule("scaled_dot_product_attention")
def _attention(call: _Call) -> Rows:
    call.others_free("query", "key", "value", "attn_mask")
    rows, shape = call.rows("query")
    _need(rows.dim < len(shape) - 2 and call["dropout_p"] == 0.0)
    for name in ("key", "value"):
        other, its = call.rows(name)
        _need(other == rows and len(its) == len(shape))
    if call["attn_mask"] is not None:
        call.beside(call["attn_mask"], rows, len(shape))
    return rows


@_rule("embedding")
def _embedding(call: _Call) -> Rows:
    call.others_free("indices")
    return call.rows("indices")[0]


# Shapes


@_rule("unsqueeze")
def _unsqueeze(call: _Call) -> Rows:
    rows, shape = call.rows("self")
    return rows._replace(dim=rows.dim + (call.dim("dim", len(shape) + 1) <= rows.dim))


@_rule("squeeze")
def _squeeze(call: _Call) -> Rows:
    rows, shape = call.rows("self")
    _need("dim" in call.arguments)
    dims = {d % len(shape) for d in call.ints("dim")}
    # One of an unknown size would go, or not, by what the size is.
    _need(all(shape[d] is not None and d != rows.dim for d in dims))
    return rows._replace(dim=rows.dim - sum(d < rows.dim and shape[d] == 1 for d in dims))


@_rule("transpose")
def _transpose(call: _Call) -> Rows:
    rows, shape = call.rows("self")
    a, b = call.dim("dim0", len(shape)), call.dim("dim1", len(shape))
    return rows._replace(dim={a: b, b: a}.get(rows.dim, rows.dim))


@_rule("t")
def _t(call: _Call) -> Rows:
    rows, shape = call.rows("self")
    return rows._replace(dim=1 - rows.dim) if len(shape) == 2 else rows


@_rule("permute")
def _permute(call: _Call) -> Rows:
    rows, shape = call.rows("self")
    return rows._replace(dim=[d % len(shape) for d in call.ints("dims")].index(rows.dim))


@_rule("select")
def _select(call: _Call) -> Rows:
    call.others_free("self")
    rows, shape = call.rows("self")
    dim = call.dim("dim", len(shape))
    _need(dim != rows.dim)
    return rows._replace(dim=rows.dim - (dim < rows.dim))


@_rule(
    "slice", "narrow", "index_select", "split", "split_with_sizes", "chunk", "tensor_split",
    "roll",
)  # fmt: skip
def _part(call: _Call) -> Rows:
    call.others_free("self")
    rows, shape = call.rows("self")
    name = "dims" if "dims" in call.arguments else "dim"
    dims = [d % len(shape) for d in call.ints(name)]
    _need(dims and rows.dim not in dims)
    return rows


@_rule("unbind")
def _unbind(call: _Call) -> Rows:
    return _select(call)


@_rule("cat", "concat", "stack")
def _joined(call: _Call) -> Rows:
    tensors = call["tensors"]
    _need(isinstance(tensors, tuple) and tensors)
    found = {call.proof.at(v) for v in tensors}
    _need(len(found) == 1)
    rows = _rows(found.pop())
    new = call.op.native.base == "stack"
    dim = call.dim("dim", len(_shape(tensors[0])) + new)
    if new:
        return rows._replace(dim=rows.dim + (dim <= rows.dim))
    _need(dim != rows.dim)
    return rows


@_rule("expand")
def _expand(call: _Call) -> Rows:
    rows, shape = call.rows("self")
    sizes = call["size"]
    _need(isinstance(sizes, tuple))
    dim = rows.dim + len(sizes) - len(shape)
    for i, size in enumerate(sizes):
        if i == dim:
            counted = isinstance(size, Variable) and call.proof.at(size) == Count(rows.times)
            _need(counted or (type(size) is int and size == -1))
        else:
            _need(type(size) is int)
    return rows._replace(dim=dim)


@_rule("view", "reshape", "_unsafe_view")
def _view(call: _Call) -> Rows:
    rows, shape = call.rows("self")
    sizes = call["shape" if "shape" in call.arguments else "size"]
    _need(isinstance(sizes, tuple))
    return _viewed(call, rows, shape, list(sizes))


@_rule("flatten")
def _flatten(call: _Call) -> Rows:
    rows, shape = call.rows("self")
    first, last = call.dim("start_dim", len(shape)), call.dim("end_dim", len(shape))
    _need(first <= last)
    one = [-1] if first <= rows.dim <= last else [_product(shape[first : last + 1])]
    own: list[Any] = list(shape)
    if not first <= rows.dim <= last:
        own[rows.dim] = -1
    return _viewed(call, rows, shape, own[:first] + one + own[last + 1 :])


@_rule("unflatten")
def _unflatten(call: _Call) -> Rows:
    rows, shape = call.rows("self")
    dim, sizes = call.dim("dim", len(shape)), call.ints("sizes")
    own: list[Any] = list(shape)
    if rows.dim != dim:
        _need(-1 not in sizes)
        own[rows.dim] = -1
    return _viewed(call, rows, shape, own[:dim] + list(sizes) + own[dim + 1 :])


def _product(sizes: Sequence[int | None]) -> int:
    _need(all(n is not None for n in sizes))
    return math.prod(sizes)  # type: ignore[arg-type]


def _viewed(call: _Call, rows: Rows, shape: Sequence[int | None], sizes: list[Any]) -> Rows:
    """The same elements, in the same order, in another shape: a row's elements lie together in
    `block`s, of which there are `blocks`, one after the other for each row."""
    blocks = _product(shape[: rows.dim]) * rows.outer
    block = rows.inner * _product(shape[rows.dim + 1 :])
    _need(blocks > 0 and block > 0)
    counts = [i for i, n in enumerate(sizes) if isinstance(n, Variable)]
    open_ = [i for i, n in enumerate(sizes) if type(n) is int and n == -1]
    _need(all(type(n) is int for i, n in enumerate(sizes) if i not in counts))
    _need(len(counts) <= 1 and len(open_) <= 1 and counts + open_)
    known = math.prod(n for i, n in enumerate(sizes) if i not in counts + open_)
    _need(known > 0)
    if counts:
        (at,) = counts
        times = _count(call.proof.at(sizes[at])).times
        _need(times > 0)
        if open_:
            _need(blocks * block % (known * times) == 0)
            sizes[open_[0]] = blocks * block // (known * times)
    else:
        (at,) = open_
        _need(blocks * block % known == 0)
        times = blocks * block // known
    before, after = math.prod(sizes[:at]), math.prod(sizes[at + 1 :])
    _need(blocks % before == 0 and block % after == 0)
    found = Rows(at, blocks // before, block // after)
    _need(found.times == times)
    return found
