"""The types of the results of common functions, by rules.

A rule is a proof, written down: what it says of a size holds whatever the open sizes are, zero and
one among them, in every call that PyTorch takes. It runs nothing, so a graph of such functions is
typed in microseconds each, and without importing what knows symbols. What a rule is not sure of,
and every function without a rule, is left to `typing.py`, which asks PyTorch; refusals, too, so
that their words are PyTorch's. tests/graph/test_typing.py holds every rule to PyTorch.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from ..errors import BridgeTypeError
from ..schema.corrections import IN
from ..types import TensorType, Type, schema_type
from ..types.containers import TensorList
from ..types.tensor import Shape, TensorArg

Result = tuple[tuple[Type, ...], tuple[int, ...]]
Size = int | None

_FLOATING = ("float32", "float64", "bfloat16", "float16")
_WHOLE = ("int64", "int32", "int16", "int8", "uint8", "bool")


class Unsure(Exception):
    """A rule does not say."""


class Refused(Exception):
    """A function refuses what a rule sees, and PyTorch's kernels without data do not."""


class _NoShape(Exception):
    """The sizes of a result are a variable: not even how many there are is known."""


class _Open:
    """Stands for a number that is a variable."""

    def __repr__(self) -> str:
        return "OPEN"


OPEN = _Open()


# Sizes ------------------------------------------------------------------------------------------


def broadcast(shapes: Iterable[Shape]) -> Shape | None:
    """The shape that shapes broadcast to; None where two sizes cannot meet. A size that is known
    and no 1 wins over an open one."""
    result: list[Size] = []
    for dims in itertools.zip_longest(*(reversed(s) for s in shapes), fillvalue=1):
        known = {d for d in dims if d is not None and d != 1}
        if len(known) > 1:
            return None
        result.append(known.pop() if known else None if None in dims else 1)
    return tuple(reversed(result))


def _broadcast(*shapes: Shape) -> Shape:
    found = broadcast(shapes)
    if found is None:
        raise Unsure
    return found


def _same(*sizes: Size) -> Size:
    """The size that all of these are, which must be equal."""
    known = {d for d in sizes if d is not None}
    if len(known) > 1:
        raise Unsure
    return known.pop() if known else None


def _alike(*shapes: Shape) -> Shape:
    if len({len(s) for s in shapes}) > 1:
        raise Unsure
    return tuple(_same(*dims) for dims in zip(*shapes, strict=True))


def _expanded(shape: Shape, into: Sequence[Size]) -> Shape:
    """`into`, to which `shape` is expanded."""
    if len(shape) > len(into):
        raise Unsure
    found = list(into)
    for i, d in enumerate(reversed(shape), 1):
        if d is not None and d != 1:
            found[-i] = _same(found[-i], d)
    return tuple(found)


def _product(sizes: Iterable[Size]) -> Size:
    sizes = list(sizes)
    return None if None in sizes else math.prod(sizes)  # type: ignore[arg-type]


def _sum(sizes: Iterable[Size]) -> Size:
    sizes = list(sizes)
    return None if None in sizes else sum(sizes)  # type: ignore[arg-type]


def _dim(value: Any, ndim: int) -> int:
    """A dimension, counted from the front."""
    if not isinstance(value, int) or not -ndim <= value < ndim:
        raise Unsure
    return value % ndim


def _along(value: Any, ndim: int) -> None:
    """Refuses a dimension that there is not, as kernels with data do."""
    n = max(ndim, 1)
    if isinstance(value, int) and not -n <= value < n:
        raise Refused(
            f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {value})"
        )


def _dims(value: Any, ndim: int) -> list[int]:
    """Dimensions, each of them once."""
    if isinstance(value, int):
        value = (value,)
    if not isinstance(value, (tuple, list)):
        raise Unsure
    found = [_dim(d, ndim) for d in value]
    if len(set(found)) < len(found):
        raise Unsure
    return found


def _told(sizes: Any, of: Shape | None = None, expands: bool = False) -> Shape:
    """Sizes that are given. A -1 is what is left of the elements of a tensor of the shape `of`, or
    its own size in that place where it is expanded."""
    if sizes is OPEN:
        raise _NoShape
    if not isinstance(sizes, (tuple, list)):
        raise Unsure
    found: list[Size] = []
    left: int | None = None
    for i, d in enumerate(sizes):
        if d is OPEN:
            found.append(None)
        elif not isinstance(d, int) or d < -1:
            raise Unsure
        elif d >= 0:
            found.append(d)
        elif of is None or left is not None:
            raise Unsure
        elif expands:
            place = i - len(sizes) + len(of)
            if place < 0:
                raise Unsure
            found.append(of[place])
        else:
            left = i
            found.append(None)
    if of is None or expands:
        return tuple(found)
    have = _product(of)
    rest = _product(d for i, d in enumerate(found) if i != left)
    if have is None or rest is None:
        return tuple(found)
    if left is None:
        if have != rest:
            raise Unsure
    elif rest == 0 or have % rest:
        raise Unsure
    else:
        found[left] = have // rest
    return tuple(found)


# Calls ------------------------------------------------------------------------------------------


class Call:
    """The arguments of a call by their names: types where tensors are, lists of them where lists
    are, OPEN where a number is a variable."""

    def __init__(
        self, function: Any, template: tuple[Any, ...], inputs: Sequence[Type], device: str
    ) -> None:
        self.name: str = function.name
        self.device = device
        self.tensors: list[TensorType] = []
        for t in inputs:
            if isinstance(t, TensorType):
                if t.dtype is None or t.shape is None:
                    raise Unsure
                self.tensors.append(t)
            elif isinstance(t, (TensorArg, TensorList)):
                raise Unsure
        if len({t.device for t in self.tensors if t.shape != ()}) > 1:
            raise Unsure
        given = iter(inputs)

        def filled(v: Any) -> Any:
            if isinstance(v, tuple):
                return tuple(map(filled, v))
            if v is not IN:
                return v
            t = next(given)
            return t if isinstance(t, TensorType) else OPEN

        self.args: dict[str, Any] = {}
        for a, v in zip(function.function.arguments, template, strict=True):
            value = self.args[a.name] = filled(v)
            if a.type.startswith("Tensor") and isinstance(value, (bool, int, float, complex)):
                raise Unsure
            if a.name == "layout" and str(value) not in ("None", "torch.strided"):
                raise Unsure
            if a.name == "pin_memory" and value:
                raise Unsure
            if a.name == "memory_format" and "channels_last" in str(value):
                raise Unsure

    def __getitem__(self, name: str) -> Any:
        return self.args[name]

    @property
    def first(self) -> TensorType:
        return self.tensors[0]

    @property
    def shape(self) -> Shape:
        """That of the first tensor."""
        shape = self.first.shape
        assert shape is not None
        return shape

    def shape_of(self, name: str) -> Shape:
        t = self.args[name]
        if not isinstance(t, TensorType) or t.shape is None:
            raise Unsure
        return t.shape

    def flag(self, name: str) -> bool:
        if not isinstance(self.args[name], bool):
            raise Unsure
        return self.args[name]

    def dtype(self, *names: str, kinds: Sequence[str] = _FLOATING) -> str:
        """The dtype that all tensors have, or those named."""
        tensors = [self.args[n] for n in names if self.args[n] is not None] or self.tensors
        dtype = tensors[0].dtype
        if any(t.dtype != dtype for t in tensors) or dtype is None or dtype not in kinds:
            raise Unsure
        return dtype

    def made(self, shape: Iterable[Size], dtype: str | None = None) -> TensorType:
        return TensorType(dtype or self.first.dtype, tuple(shape), device=self.device)


Rule = Callable[[Call], "list[TensorType] | Result"]
_RULES: dict[str, Rule] = {}
_R = TypeVar("_R", bound=Rule)


def _rule(names: str) -> Callable[[_R], _R]:
    def register(function: _R) -> _R:
        _RULES.update(dict.fromkeys(names.split(), function))
        return function

    return register


def by_rule(
    function: Any, template: tuple[Any, ...], inputs: tuple[Type, ...], device: str
) -> Result | None:
    """The types of the results, and how many tensors each list among them has; None where no rule
    is sure. BridgeTypeError where the rule knows that the function refuses it."""
    rule = _RULES.get(function.name)
    if rule is None:
        return None
    try:
        call = Call(function, template, inputs, device)
        found = rule(call)
    except Unsure:
        return None
    except Refused as e:
        shown = ", ".join(map(str, inputs))
        raise BridgeTypeError(f"{function.name}({shown}): {e}") from None
    except _NoShape:
        dtype = call.args.get("dtype") or call.first.dtype
        return (
            ((TensorType(dtype, None, device=device),), ()) if len(function.results) == 1 else None
        )
    return found if isinstance(found, tuple) else (tuple(found), ())


# What keeps the shape of its first tensor -------------------------------------------------------


@_rule("clone detach alias lift_fresh lift_fresh_copy detach_copy alias_copy contiguous")
def _itself(c: Call) -> list[TensorType]:
    return [c.made(c.shape)]


@_rule("type_as")
def _type_as(c: Call) -> list[TensorType]:
    return [TensorType(c["other"].dtype, c.shape, device=c["other"].device)]


@_rule("rand_like randn_like")
def _random_like(c: Call) -> list[TensorType]:
    like = c.made(c.shape, c["dtype"])
    if like.dtype not in _FLOATING:
        raise Unsure
    return [like]


@_rule("zeros_like ones_like full_like empty_like")
@_rule("to.dtype to.dtype_layout to.device _to_copy")
def _in_dtype(c: Call) -> list[TensorType]:
    return [c.made(c.shape, c["dtype"])]


@_rule("softmax.int _softmax log_softmax.int _log_softmax")
def _softmax(c: Call) -> list[TensorType]:
    _along(c["dim"], len(c.shape))
    c.dtype()
    _dim(c["dim"], max(len(c.shape), 1))
    if c.args.get("half_to_float") or c.args.get("dtype") is not None:
        raise Unsure
    return [c.made(c.shape)]


@_rule("cumsum cumprod logcumsumexp")
def _cumulative(c: Call) -> list[TensorType]:
    c.dtype()
    _dim(c["dim"], max(len(c.shape), 1))
    return [c.made(c.shape, c.args.get("dtype"))]


@_rule("tril triu")
def _triangle(c: Call) -> list[TensorType]:
    if len(c.shape) < 2:
        raise Unsure
    return [c.made(c.shape)]


@_rule("flip")
def _flip(c: Call) -> list[TensorType]:
    _dims(c["dims"], len(c.shape))
    return [c.made(c.shape)]


@_rule("dropout")
def _dropout(c: Call) -> list[TensorType]:
    c.dtype()
    return [c.made(c.shape)]


@_rule("native_dropout")
def _native_dropout(c: Call) -> list[TensorType]:
    c.dtype()
    return [c.made(c.shape), c.made(c.shape, "bool")]


@_rule("sort sort.stable")
def _sort(c: Call) -> list[TensorType]:
    (places,) = _argsort(c)
    return [c.made(c.shape), places]


@_rule("argsort")
def _argsort(c: Call) -> list[TensorType]:
    _along(c["dim"], len(c.shape))
    c.dtype(kinds=_FLOATING + _WHOLE)
    _dim(c["dim"], max(len(c.shape), 1))
    return [c.made(c.shape, "int64")]


# Normalisation ----------------------------------------------------------------------------------


def _normalized(c: Call) -> tuple[Shape, int]:
    """The shape, and where what is normalised begins."""
    sizes = _told(c["normalized_shape"])
    at = len(c.shape) - len(sizes)
    if not sizes or at < 0 or OPEN in c["normalized_shape"]:
        raise Unsure
    for name in ("weight", "bias"):
        if c.args.get(name) is not None:
            sizes = _alike(sizes, c.shape_of(name))
    return (*c.shape[:at], *_alike(c.shape[at:], sizes)), at


@_rule("layer_norm rms_norm")
def _layer_norm(c: Call) -> list[TensorType]:
    c.dtype()
    return [c.made(_normalized(c)[0])]


@_rule("native_layer_norm")
def _native_layer_norm(c: Call) -> list[TensorType]:
    if c.dtype() not in ("float32", "float64"):
        raise Unsure  # statistics may be of another dtype
    shape, at = _normalized(c)
    statistics = (*shape[:at], *[1] * (len(shape) - at))
    return [c.made(shape), c.made(statistics), c.made(statistics)]


def _channels(c: Call, names: Sequence[str], count: Size) -> Size:
    """The number of channels, by the tensors that have a number for each."""
    for name in names:
        if c.args.get(name) is not None:
            (count,) = _alike((count,), c.shape_of(name))
    return count


_OF_CHANNELS = ("weight", "bias", "running_mean", "running_var")


@_rule("batch_norm native_batch_norm")
def _batch_norm(c: Call) -> list[TensorType]:
    if c.dtype() not in ("float32", "float64") or len(c.shape) < 2:
        raise Unsure
    running = [c[n] is not None for n in _OF_CHANNELS[2:]]
    if not all(running) and (any(running) or not c.flag("training")):
        raise Unsure
    _channels(c, _OF_CHANNELS, c.shape[1])
    # (The channels are not told by the others: where there is no row, they need not fit.)
    found = [c.made(c.shape)]
    # What is saved for a gradient has no elements in evaluation.
    return found if "cudnn_enabled" in c.args else [*found, c.made((None,)), c.made((None,))]


@_rule("group_norm")
def _group_norm(c: Call) -> list[TensorType]:
    c.dtype()
    if len(c.shape) < 2 or not isinstance(c["num_groups"], int) or c["num_groups"] < 1:
        raise Unsure
    channels = _channels(c, _OF_CHANNELS[:2], c.shape[1])
    if (channels is not None and channels % c["num_groups"]) or 0 in (channels, *c.shape[2:]):
        raise Unsure
    return [c.made((c.shape[0], channels, *c.shape[2:]))]


@_rule("native_group_norm")
def _native_group_norm(c: Call) -> list[TensorType]:
    if c.dtype() not in ("float32", "float64"):
        raise Unsure
    n, channels, size, groups = _told([c[a] for a in ("N", "C", "HxW", "group")])
    _same(_product(c.shape), _product((n, channels, size)))
    _channels(c, _OF_CHANNELS[:2], channels)
    if not groups or len(c.shape) < 3 or (channels is not None and channels % groups):
        raise Unsure
    of_groups = (n, groups)
    return [c.made(c.shape), c.made(of_groups), c.made(of_groups)]


# Products ---------------------------------------------------------------------------------------


def _ndims(*shapes: tuple[Shape, int]) -> None:
    if any(len(shape) != n for shape, n in shapes):
        raise Unsure


@_rule("mm addmm")
def _mm(c: Call) -> list[TensorType]:
    a, b = (c.shape_of(n) for n in (("self", "mat2") if len(c.args) == 2 else ("mat1", "mat2")))
    return _matrices(c, a, b)


@_rule("bmm baddbmm")
def _bmm(c: Call) -> list[TensorType]:
    a, b = (c.shape_of(n) for n in (("self", "mat2") if len(c.args) == 2 else ("batch1", "batch2")))
    _ndims((a, 3), (b, 3))
    return _matrices(c, a, b, (_same(a[0], b[0]),))


def _matrices(c: Call, a: Shape, b: Shape, batch: Shape = ()) -> list[TensorType]:
    """The product of matrices, and what is added to it."""
    c.dtype()
    _ndims((a, len(batch) + 2), (b, len(batch) + 2))
    _same(a[-1], b[-2])
    shape: Shape = (*batch, a[-2], b[-1])
    return [c.made(_expanded(c.shape, shape) if len(c.args) > 2 else shape)]


@_rule("mv addmv")
def _mv(c: Call) -> list[TensorType]:
    c.dtype()
    matrix, vector = c.shape_of("mat" if "mat" in c.args else "self"), c.shape_of("vec")
    _ndims((matrix, 2), (vector, 1))
    _same(matrix[1], vector[0])
    shape: Shape = (matrix[0],)
    return [c.made(_expanded(c.shape, shape) if "mat" in c.args else shape)]


@_rule("dot")
def _dot(c: Call) -> list[TensorType]:
    c.dtype()
    a, b = c.shape_of("self"), c.shape_of("tensor")
    _ndims((a, 1), (b, 1))
    _same(a[0], b[0])
    return [c.made(())]


@_rule("outer")
def _outer(c: Call) -> list[TensorType]:
    c.dtype()
    a, b = c.shape_of("self"), c.shape_of("vec2")
    _ndims((a, 1), (b, 1))
    return [c.made((*a, *b))]


@_rule("matmul")
def _matmul(c: Call) -> list[TensorType]:
    c.dtype()
    a, b = c.shape_of("self"), c.shape_of("other")
    if not a or not b:
        raise Unsure
    _same(a[-1], b[-2] if len(b) > 1 else b[0])
    batch = _broadcast(a[:-2], b[:-2])
    return [c.made((*batch, *(a[-2:-1]), *(b[-1:] if len(b) > 1 else ())))]


@_rule("linear")
def _linear(c: Call) -> list[TensorType]:
    c.dtype()
    x, weight = c.shape_of("input"), c.shape_of("weight")
    if not x or len(weight) != 2:
        raise Unsure
    _same(x[-1], weight[1])
    features = weight[0]
    if c["bias"] is not None:
        _ndims((c.shape_of("bias"), 1))
        (features,) = _expanded(c.shape_of("bias"), (features,))
    return [c.made((*x[:-1], features))]


@_rule("scaled_dot_product_attention")
def _attention(c: Call) -> list[TensorType]:
    c.dtype("query", "key", "value")
    q, k, v = (c.shape_of(n) for n in ("query", "key", "value"))
    # Where one has no elements, the result has the query's dimensions and nothing is broadcast.
    filled = all(_product(s) for s in (q, k, v))
    if not filled and None not in (*q, *k, *v):
        raise Unsure
    if len({len(s) for s in (q, k, v)}) > 1:
        if filled:
            raise Unsure
        return [TensorType(c.first.dtype, None, device=c.device)]
    if len(q) < 3 or c["enable_gqa"] is not False:
        raise Unsure
    _same(q[-1], k[-1])
    _same(k[-2], v[-2])
    shape = (*_broadcast(q[:-2], k[:-2], v[:-2]), q[-2])
    if c["attn_mask"] is not None:
        if c["is_causal"] is not False:
            raise Unsure
        mask = c.shape_of("attn_mask")
        if c["attn_mask"].dtype not in ("bool", c.first.dtype) or len(mask) < 2:
            raise Unsure
        _expanded(mask, (*shape, k[-2]))
        shape = _broadcast(shape, mask[:-1])
    if not filled:
        shape = tuple(a if a == b else None for a, b in zip(shape, q[:-1], strict=True))
    return [c.made((*shape, v[-1]))]


@_rule("linalg_solve linalg_solve_ex _linalg_solve_ex")
def _solve(c: Call) -> list[TensorType]:
    a, b = c.shape_of("A"), c.shape_of("B")
    # These are vectors where the sizes are those of the matrices' rows, and else one matrix.
    unlike = any(None not in d and d[0] != d[1] for d in zip(a[:-1], b, strict=False))
    if len(b) < 2 or len(b) != len(a) - 1 or unlike or None not in (*a, *b):
        raise Unsure
    result = TensorType(c.dtype(), None, device=c.device)
    lu, pivots, info = (
        c.made((None,) * (len(a) - i), d) for i, d in enumerate((None, "int32", "int32"))
    )
    return {
        "linalg_solve": [result],
        "linalg_solve_ex": [result, info],
        "_linalg_solve_ex": [result, lu, pivots, info],
    }[c.name]


# Reductions -------------------------------------------------------------------------------------


def _reduced(c: Call, dtype: str | None = None, nonempty: bool = False) -> TensorType:
    """The first tensor without the dimensions `dim`, or with sizes of 1 in their places."""
    shape, dim = c.shape, c.args.get("dim")
    if dim is None or (dim == () and c.name != "logsumexp"):
        dims: Sequence[int] = range(len(shape))
    else:
        if not shape:
            raise Unsure
        dims = _dims(dim, len(shape))
    if nonempty and any(shape[d] == 0 for d in dims):
        raise Unsure
    keep = "keepdim" in c.args and c.flag("keepdim")
    return c.made(
        (1 if d in dims else n for d, n in enumerate(shape) if keep or d not in dims), dtype
    )


@_rule("sum sum.dim_IntList nansum prod prod.dim_int")
def _summed(c: Call) -> list[TensorType]:
    dtype = c["dtype"]
    if dtype is None:
        dtype = "int64" if c.first.dtype in _WHOLE else c.dtype()
    return [_reduced(c, dtype)]


@_rule("mean mean.dim nanmean linalg_vector_norm")
def _mean(c: Call) -> list[TensorType]:
    c.dtype()
    if c["dtype"] is not None:
        raise Unsure
    return [_reduced(c, nonempty="ord" in c.args)]


@_rule("var.correction std.correction var.dim std.dim var std logsumexp")
def _spread(c: Call) -> list[TensorType]:
    c.dtype()
    return [_reduced(c)]


@_rule("var_mean.correction")
def _var_mean(c: Call) -> list[TensorType]:
    c.dtype()
    return [_reduced(c)] * 2


@_rule("amax amin max min")
def _extreme(c: Call) -> list[TensorType]:
    c.dtype(kinds=_FLOATING + _WHOLE)
    return [_reduced(c, nonempty=True)]


@_rule("max.dim min.dim")
def _extreme_and_place(c: Call) -> list[TensorType]:
    c.dtype(kinds=_FLOATING + _WHOLE)
    return [_reduced(c, nonempty=True), _reduced(c, "int64")]


@_rule("argmax argmin")
def _place(c: Call) -> list[TensorType]:
    c.dtype(kinds=_FLOATING + _WHOLE[:-1])
    return [_reduced(c, "int64", nonempty=True)]


@_rule("any any.dim all all.dim")
def _whether(c: Call) -> list[TensorType]:
    if c.first.dtype == "uint8":
        raise Unsure
    return [_reduced(c, "bool")]


@_rule("mse_loss l1_loss")
def _loss(c: Call) -> list[TensorType]:
    c.dtype()
    shape = _broadcast(c.shape_of("self"), c.shape_of("target"))
    if c["reduction"] not in (0, 1, 2):
        raise Unsure
    return [c.made(() if c["reduction"] else shape)]


@_rule("multilabel_margin_loss multilabel_margin_loss_forward")
def _multilabel_loss(c: Call) -> list[TensorType]:
    x, target = c.shape_of("self"), c.shape_of("target")
    c.dtype("self")
    if c["target"].dtype != "int64" or c["reduction"] not in (0, 1, 2):
        raise Unsure
    if len(x) > 2 or x[-1:] == (0,) or (len(x) == 2 and len(target) != 2) or len(target) > len(x):
        raise Unsure
    if len(target) < len(x):
        _same(1, *x)
        shape = target
    else:
        shape = _alike(x, target)
    # Of one row there is one number, without dimensions.
    loss = c.made(() if c["reduction"] else shape[:-1])
    return [loss, c.made(shape)] if c.name.endswith("_forward") else [loss]


@_rule("multi_margin_loss")
def _multi_margin_loss(c: Call) -> list[TensorType]:
    x, target = c.shape_of("self"), c.shape_of("target")
    c.dtype("self")
    if c["target"].dtype != "int64" or c["reduction"] not in (0, 1, 2) or c["weight"] is not None:
        raise Unsure
    if c["p"] not in (1, 2) or len(x) > 2 or len(target) > 1 or x[-1:] == (0,):
        raise Unsure
    rows = _same(x[0] if len(x) == 2 else 1, *(target or (1,)))
    return [c.made(() if c["reduction"] else (rows,) * len(target))]


@_rule("cross_entropy_loss nll_loss_nd")
def _class_loss(c: Call) -> list[TensorType]:
    x, target = c.shape_of("self"), c.shape_of("target")
    if len(x) < 2 or not x[1] or c["target"].dtype != "int64" or c["self"].dtype not in _FLOATING:
        raise Unsure
    if c["weight"] is not None:
        c.dtype("self", "weight")
        _alike(x[1:2], c.shape_of("weight"))
    shape = _alike((x[0], *x[2:]), target)
    if c["reduction"] not in (0, 1, 2):
        raise Unsure
    return [c.made(() if c["reduction"] else shape)]


# Dimensions that are moved, added, removed ------------------------------------------------------


@_rule("permute permute_copy")
def _permute(c: Call) -> list[TensorType]:
    dims = _dims(c["dims"], len(c.shape))
    if len(dims) != len(c.shape):
        raise Unsure
    return [c.made(c.shape[d] for d in dims)]


@_rule("transpose.int transpose_copy.int swapdims swapaxes")
def _transpose(c: Call) -> list[TensorType]:
    _, a, b, *_ = c.args.values()
    return [c.made(_swapped(c.shape, a, b))]


def _swapped(shape: Shape, a: Any, b: Any) -> Shape:
    if not shape:
        raise Unsure
    sizes = list(shape)
    i, j = _dim(a, len(sizes)), _dim(b, len(sizes))
    sizes[i], sizes[j] = sizes[j], sizes[i]
    return tuple(sizes)


@_rule("t t_copy")
def _t(c: Call) -> list[TensorType]:
    if len(c.shape) > 2:
        raise Unsure
    return [c.made(reversed(c.shape))]


@_rule("mT")
def _m_t(c: Call) -> list[TensorType]:
    if len(c.shape) < 2:
        raise Unsure
    return [c.made(_swapped(c.shape, -1, -2))]


@_rule("movedim.int movedim.intlist")
def _movedim(c: Call) -> list[TensorType]:
    n = len(c.shape)
    source, target = _dims(c["source"], n), _dims(c["destination"], n)
    if len(source) != len(target):
        raise Unsure
    rest = iter(d for d in range(n) if d not in source)
    came = dict(zip(target, source, strict=True))
    return [c.made(c.shape[came[d] if d in came else next(rest)] for d in range(n))]


@_rule("unsqueeze unsqueeze_copy")
def _unsqueeze(c: Call) -> list[TensorType]:
    at = _dim(c["dim"], len(c.shape) + 1)
    return [c.made((*c.shape[:at], 1, *c.shape[at:]))]


@_rule("squeeze squeeze.dim squeeze.dims squeeze_copy squeeze_copy.dim squeeze_copy.dims")
def _squeeze(c: Call) -> list[TensorType]:
    if not c.shape:
        raise Unsure
    dims = _dims(c["dim"], len(c.shape)) if "dim" in c.args else range(len(c.shape))
    if any(c.shape[d] is None for d in dims):
        return [TensorType(c.first.dtype, None, device=c.device)]
    return [c.made(n for d, n in enumerate(c.shape) if n != 1 or d not in dims)]


@_rule("select.int select_copy.int")
def _select(c: Call) -> list[TensorType]:
    at = _dim(c["dim"], len(c.shape))
    size, index = c.shape[at], c["index"]
    if size is not None and index is not OPEN and not -size <= index < size:
        raise Unsure
    return [c.made((*c.shape[:at], *c.shape[at + 1 :]))]


@_rule("slice.Tensor slice_copy.Tensor")
def _slice(c: Call) -> list[TensorType]:
    at = _dim(c["dim"], len(c.shape))
    size, (start, end, step) = c.shape[at], (c[n] for n in ("start", "end", "step"))
    if step is OPEN or step < 1:
        raise Unsure
    found: Size = None
    if size is not None and start is not OPEN and end is not OPEN:
        found = len(range(*slice(start, end, step).indices(size)))
    elif start in (None, 0) and end is None and step == 1:
        found = size
    return [c.made((*c.shape[:at], found, *c.shape[at + 1 :]))]


@_rule("narrow narrow_copy")
def _narrow(c: Call) -> list[TensorType]:
    at = _dim(c["dim"], len(c.shape))
    size, start, length = c.shape[at], c["start"], c["length"]
    if length is not OPEN and length < 0:
        raise Unsure
    if size is not None and start is not OPEN:
        first = start + size if start < 0 else start
        if not 0 <= first <= size or (length is not OPEN and first + length > size):
            raise Unsure
    return [c.made((*c.shape[:at], None if length is OPEN else length, *c.shape[at + 1 :]))]


@_rule("flatten.using_ints")
def _flatten(c: Call) -> list[TensorType]:
    if not c.shape:
        return [c.made((1,))]
    first, last = (_dim(c[n], len(c.shape)) for n in ("start_dim", "end_dim"))
    if first > last:
        raise Unsure
    middle = c.shape[first : last + 1]
    return [c.made((*c.shape[:first], _product(middle), *c.shape[last + 1 :]))]


@_rule("ravel")
def _ravel(c: Call) -> list[TensorType]:
    return [c.made((_product(c.shape),))]


@_rule("unflatten.int")
def _unflatten(c: Call) -> list[TensorType]:
    at = _dim(c["dim"], len(c.shape))
    if not c["sizes"]:
        raise Unsure
    sizes = _told(c["sizes"], (c.shape[at],))
    return [c.made((*c.shape[:at], *sizes, *c.shape[at + 1 :]))]


@_rule("view _unsafe_view view_copy reshape _reshape_copy")
def _reshape(c: Call) -> list[TensorType]:
    _, sizes = c.args.values()
    return [c.made(_told(sizes, c.shape))]


@_rule("view_as reshape_as")
def _reshape_as(c: Call) -> list[TensorType]:
    mine, theirs = (_product(c.shape_of(n)) for n in ("self", "other"))
    _same(mine, theirs)
    return [c.made(c.shape_of("other"))]


@_rule("expand expand_copy broadcast_to")
def _expand(c: Call) -> list[TensorType]:
    return [c.made(_expanded(c.shape, _told(c["size"], c.shape, expands=True)))]


@_rule("expand_as")
def _expand_as(c: Call) -> list[TensorType]:
    return [c.made(_expanded(c.shape, c.shape_of("other")))]


@_rule("sum_to_size")
def _sum_to_size(c: Call) -> list[TensorType]:
    sizes = _told(c["size"])
    if len(sizes) > len(c.shape) or c.first.dtype not in _FLOATING:
        raise Unsure
    for a, b in zip(reversed(sizes), reversed(c.shape), strict=False):
        if a is not None and a != 1:
            _same(a, b)
    return [c.made(sizes)]


@_rule("new_zeros new_ones new_full new_empty")
def _new(c: Call) -> list[TensorType]:
    return [c.made(_told(c["size"]), c["dtype"])]


# Parts that are joined and taken apart ----------------------------------------------------------


def _listed(c: Call) -> list[Shape]:
    """The shapes of a list of tensors, which are of one dtype."""
    if not isinstance(c["tensors"], tuple) or not c["tensors"]:
        raise Unsure
    c.dtype(kinds=_FLOATING + _WHOLE)
    return [t.shape for t in c["tensors"]]


@_rule("cat concat concatenate")
def _cat(c: Call) -> list[TensorType]:
    shapes = _listed(c)
    at = _dim(c["dim"], len(shapes[0]))
    _ndims(*((s, len(shapes[0])) for s in shapes))
    # (A vector without elements may be among tensors of more dimensions.)
    rest = _alike(*((*s[:at], *s[at + 1 :]) for s in shapes))
    return [c.made((*rest[:at], _sum(s[at] for s in shapes), *rest[at:]))]


@_rule("stack")
def _stack(c: Call) -> list[TensorType]:
    shape = _alike(*_listed(c))
    at = _dim(c["dim"], len(shape) + 1)
    return [c.made((*shape[:at], len(c["tensors"]), *shape[at:]))]


def _parts(c: Call, sizes: Sequence[Size]) -> Result:
    at = _dim(c["dim"], len(c.shape))
    shapes = [(*c.shape[:at], d, *c.shape[at + 1 :]) for d in sizes]
    return tuple(map(c.made, shapes)), (len(shapes),)


@_rule("split_with_sizes split_with_sizes_copy split.sizes")
def _split_with_sizes(c: Call) -> Result:
    sizes = _told(c["split_size" if "split_size" in c.args else "split_sizes"])
    _same(c.shape[_dim(c["dim"], len(c.shape))], _sum(sizes))
    return _parts(c, sizes)


@_rule("split.Tensor split_copy.Tensor unsafe_split.Tensor")
def _split(c: Call) -> Result:
    size, each = c.shape[_dim(c["dim"], len(c.shape))], c["split_size"]
    if not size or each is OPEN or each < 1:
        raise Unsure
    return _parts(c, [min(each, size - i) for i in range(0, size, each)])


@_rule("unbind.int unbind_copy.int")
def _unbind(c: Call) -> Result:
    at = _dim(c["dim"], len(c.shape))
    n = c.shape[at]
    if not n:
        raise Unsure
    return (c.made((*c.shape[:at], *c.shape[at + 1 :])),) * n, (n,)


@_rule("embedding")
def _embedding(c: Call) -> list[TensorType]:
    weight, indices = c.shape_of("weight"), c.shape_of("indices")
    if len(weight) != 2 or weight[0] == 0 or c["indices"].dtype not in ("int64", "int32"):
        raise Unsure
    return [c.made((*indices, weight[1]), c["weight"].dtype)]


@_rule("index_select")
def _index_select(c: Call) -> list[TensorType]:
    at = _dim(c["dim"], len(c.shape))
    index = c.shape_of("index")
    if len(index) > 1 or c.shape[at] == 0 or c["index"].dtype not in ("int64", "int32"):
        raise Unsure
    return [c.made((*c.shape[:at], *(index or (1,)), *c.shape[at + 1 :]))]


@_rule("gather")
def _gather(c: Call) -> list[TensorType]:
    index = c.shape_of("index")
    at = _dim(c["dim"], len(c.shape))
    if len(index) != len(c.shape) or c["index"].dtype != "int64":
        raise Unsure
    for d, (size, most) in enumerate(zip(index, c.shape, strict=True)):
        if d != at and size is not None and most is not None and size > most:
            raise Unsure
    return [c.made(index)]


@_rule("masked_scatter")
def _masked_scatter(c: Call) -> list[TensorType]:
    if c["source"].dtype != c.first.dtype or c["mask"].dtype != "bool":
        raise Unsure
    return [c.made(_broadcast(c.shape, c.shape_of("mask")))]


@_rule("unique_consecutive")
def _unique_consecutive(c: Call) -> list[TensorType]:
    places: Shape = (None,)  # there are none of a vector that are not asked for
    if c["dim"] is None:
        values: Shape = (None,)
        if c.flag("return_inverse"):
            places = c.shape
    else:
        at = _dim(c["dim"], len(c.shape))
        rest = (*c.shape[:at], *c.shape[at + 1 :])
        if 0 in rest:
            raise Unsure
        values = (*rest[:at], None, *rest[at:])
        if c.flag("return_inverse") or len(c.shape) > 1:
            places = c.shape[at : at + 1]
    return [c.made(values), c.made(places, "int64"), c.made((None,), "int64")]


# Windows ----------------------------------------------------------------------------------------


def _numbers(value: Any, n: int) -> list[int]:
    """A list of n numbers, or one for all."""
    numbers = [value] if isinstance(value, int) else list(value)
    if any(not isinstance(v, int) for v in numbers) or len(numbers) not in (1, n):
        raise Unsure
    return numbers * n if len(numbers) == 1 else numbers


def _moved(size: Size, window: Size, stride: int, padding: int, dilation: int) -> Size:
    """How often a window fits."""
    if stride < 1 or padding < 0 or dilation < 1:
        raise Unsure
    if size is None or window is None:
        return None
    if window < 1:
        raise Unsure
    found = (size + 2 * padding - dilation * (window - 1) - 1) // stride + 1
    if found < 1:
        raise Unsure
    return found


def _windows(c: Call) -> int:
    """Along how many dimensions windows move: the number in the function's name, or that of the
    strides."""
    digits = [d for d in c.name.partition("d_")[0] if d in "123"]
    return int(digits[0]) if digits else len(c["stride"])


@_rule("conv1d conv2d conv3d convolution")
def _convolution(c: Call) -> list[TensorType]:
    c.dtype()
    x, weight = c.shape_of("input"), c.shape_of("weight")
    n = _windows(c)
    _ndims((x, n + 2), (weight, n + 2))
    groups = c["groups"]
    if 0 in x[2:]:
        raise Unsure
    if c.args.get("transposed") not in (None, False) or not isinstance(groups, int) or groups < 1:
        raise Unsure
    if weight[0] == 0 or (weight[0] or 0) % groups or any(c.args.get("output_padding") or ()):
        raise Unsure
    if weight[1] is not None:
        _same(x[1], weight[1] * groups)
    stride, padding, dilation = (_numbers(c[a], n) for a in ("stride", "padding", "dilation"))
    channels = weight[0]
    if c["bias"] is not None:
        (channels,) = _alike((channels,), c.shape_of("bias"))
    # Where nothing comes in, what comes out is not what the weights say.
    channels = channels if weight[1] else None
    moved = map(_moved, x[2:], weight[2:], stride, padding, dilation)
    return [c.made((x[0], channels, *moved))]


@_rule("convolution_backward")
def _convolution_backward(c: Call) -> Result:
    c.dtype()
    if c["transposed"] is not False:
        raise Unsure
    x, weight = c.shape_of("input"), c.shape_of("weight")
    return _masked(c, x, weight, weight[:1])


@_rule("native_group_norm_backward")
def _group_norm_backward(c: Call) -> Result:
    if c.dtype() not in ("float32", "float64"):
        raise Unsure
    return _masked(c, c.shape_of("input"), *[_told((c["C"],))] * 2)


@_rule("native_batch_norm_backward")
def _batch_norm_backward(c: Call) -> Result:
    if c.dtype() not in ("float32", "float64") or len(c.shape_of("input")) < 2:
        raise Unsure
    return _masked(c, c.shape_of("input"), *[c.shape_of("input")[1:2]] * 2)


@_rule("native_layer_norm_backward")
def _layer_norm_backward(c: Call) -> Result:
    if c.dtype() not in ("float32", "float64"):
        raise Unsure
    return _masked(c, c.shape_of("input"), *[_told(c["normalized_shape"])] * 2)


def _masked(c: Call, *shapes: Shape) -> Result:
    """Gradients of these shapes, where they are wanted."""
    mask = c["output_mask"]
    if not isinstance(mask, (tuple, list)) or len(mask) != len(shapes):
        raise Unsure
    none = schema_type("Tensor?")
    return tuple(c.made(s) if m else none for s, m in zip(shapes, mask, strict=True)), ()


@_rule("max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d")
def _pool(c: Call) -> list[TensorType]:
    c.dtype()
    n = _windows(c)
    if len(c.shape) != n + 2 or 0 in c.shape[1:] or c.flag("ceil_mode"):
        raise Unsure
    window = _numbers(c["kernel_size"], n)
    stride = _numbers(c["stride"], n) if c["stride"] else window
    padding = _numbers(c["padding"], n)
    dilation = _numbers(c.args.get("dilation", 1), n)
    if any(2 * p > k for p, k in zip(padding, window, strict=True)):
        raise Unsure
    if c.name == "avg_pool3d" and any(
        d is not None and d < k for d, k in zip(c.shape[2:], window, strict=True)
    ):
        raise Unsure  # padding does not count there
    moved = map(_moved, c.shape[2:], window, stride, padding, dilation)
    return [c.made((*c.shape[:2], *moved))]


@_rule("max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices")
def _pool_with_places(c: Call) -> list[TensorType]:
    (found,) = _pool(c)
    return [found, found.clone(dtype="int64")]


@_rule("max_pool2d_with_indices_backward max_pool3d_with_indices_backward")
def _pool_backward(c: Call) -> list[TensorType]:
    c.dtype("grad_output", "self")
    return [c.made(c.shape_of("self"))]


@_rule("adaptive_avg_pool2d _adaptive_avg_pool2d")
def _adaptive_pool(c: Call) -> list[TensorType]:
    c.dtype()
    sizes = _told(c["output_size"])
    if len(c.shape) not in (3, 4) or len(sizes) != 2 or 0 in c.shape[-3:]:
        raise Unsure
    return [c.made((*c.shape[:-2], *sizes))]


@_rule("constant_pad_nd pad")
@_rule("reflection_pad1d reflection_pad2d reflection_pad3d")
@_rule("replication_pad1d replication_pad2d replication_pad3d")
def _pad(c: Call) -> list[TensorType]:
    pad, shape = c["pad" if "pad" in c.args else "padding"], list(c.shape)
    constant = c.args.get("mode", "constant" if c.name == "constant_pad_nd" else "") == "constant"
    n = len(pad) // 2
    if len(pad) % 2 or n > len(shape) or not (constant or n + 1 <= len(shape) <= n + 2):
        raise Unsure
    if not constant and (c.dtype() and 0 in c.shape[-n - 1 :]):
        raise Unsure
    for i in range(n):
        size, around = shape[-1 - i], pad[2 * i : 2 * i + 2]
        if not constant and any(p is OPEN or p < 0 for p in around):
            raise Unsure
        if size is None or OPEN in around:
            shape[-1 - i] = None
        elif size + sum(min(p, 0) for p in around) < 0 or not (constant or max(around) < size):
            raise Unsure
        else:
            shape[-1 - i] = size + sum(around)
    return [c.made(shape)]


@_rule("upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d")
@_rule("_upsample_nearest_exact2d _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d")
@_rule("upsample_bicubic2d upsample_trilinear3d _upsample_bilinear2d_aa _upsample_bicubic2d_aa")
def _upsample(c: Call) -> list[TensorType]:
    c.dtype()
    sizes = _told(c["output_size"])
    if len(c.shape) != len(sizes) + 2 or 0 in (*sizes, *c.shape[1:]):
        raise Unsure
    return [c.made((*c.shape[:2], *sizes))]


@_rule("upsample_nearest1d_backward upsample_nearest2d_backward upsample_nearest3d_backward")
@_rule("upsample_linear1d_backward upsample_bilinear2d_backward upsample_bicubic2d_backward")
@_rule("upsample_trilinear3d_backward")
def _upsample_backward(c: Call) -> list[TensorType]:
    c.dtype()
    sizes = _told(c["input_size"])
    if len(c.shape) != len(sizes):
        raise Unsure
    return [c.made(sizes)]


@_rule("upsample_nearest1d.vec upsample_nearest2d.vec upsample_nearest3d.vec")
@_rule("_upsample_nearest_exact1d.vec _upsample_nearest_exact2d.vec _upsample_nearest_exact3d.vec")
@_rule("upsample_linear1d.vec upsample_bilinear2d.vec upsample_bicubic2d.vec")
@_rule("upsample_trilinear3d.vec _upsample_bilinear2d_aa.vec _upsample_bicubic2d_aa.vec")
def _upsample_by(c: Call) -> list[TensorType]:
    if c["output_size"] is not None:
        return _upsample(c)
    c.dtype()
    scales = c["scale_factors"]
    if not isinstance(scales, tuple) or OPEN in scales or len(c.shape) != len(scales) + 2:
        raise Unsure
    if 0 in c.shape[1:] or min(scales) < 1:
        raise Unsure
    moved = (None if n is None else int(n * f) for n, f in zip(c.shape[2:], scales, strict=True))
    return [c.made((*c.shape[:2], *moved))]


# Functions whose first result has the shape of the first tensor, whatever else is given. Whether
# they take what is given is PyTorch's to say.
KEEPS_SHAPE = frozenset(
    """instance_norm channel_shuffle roll feature_dropout alpha_dropout renorm
    index_fill.int_Scalar index_fill.int_Tensor index_add index_copy index_put index_reduce
    scatter.src scatter.value scatter_add scatter_reduce.two
    slice_scatter select_scatter diagonal_scatter
    softmax.int log_softmax.int cumsum cumprod logcumsumexp
    """.split()  # noqa: SIM905
)
