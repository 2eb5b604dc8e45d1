"""Fusion of elementwise ops: values, strides and errors are those of PyTorch's functions, called one
after the other."""

from __future__ import annotations

import ctypes
import gc
import itertools
import math
import re
import struct
import subprocess

import pytest
import torch
from doubles import in_threads
from hypothesis import given, settings
from hypothesis import strategies as st

import pytorch_bridge as pb
from pytorch_bridge import TensorType, function, ops
from pytorch_bridge.graph.function_graph import FunctionGraph
from pytorch_bridge.native import build
from pytorch_bridge.native.extension import borrow, from_handle, live_handles
from pytorch_bridge.ops import Composite, Elemwise, scalar
from pytorch_bridge.ops.native import NativeOp, constant
from pytorch_bridge.packages.c_function import CFunction
from pytorch_bridge.rewrite.fuse import MAX_OPS, fuse

A = torch.ops.aten
SPECIAL = [0.0, -0.0, math.nan, math.inf, -math.inf, 1.0, -1.0, 0.5, 2.5, 3.5, -2.5, 1e30, -1e-30]
SIZES = (1, 5, 63, 4097, 8192, 12289)


@pytest.fixture(autouse=True)
def no_handle_is_left():
    gc.collect()  # of what other tests have left
    before = live_handles()
    yield
    assert live_handles() == before


def same(got, expected):
    """Equal in dtype, shape, strides and every bit, NaNs apart."""
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    assert got.stride() == expected.stride()
    if got.is_floating_point():
        nan = expected.isnan()
        assert torch.equal(got.isnan(), nan)
        whole = getattr(torch, f"int{8 * got.element_size()}")
        got, expected = (t.masked_fill(nan, 0).contiguous().view(whole) for t in (got, expected))
    assert torch.equal(got, expected)


def tensors(types):
    return [TensorType(d, s)(f"x{i}") for i, (d, s) in enumerate(types)]


def compiled(types, body, mode="c_only", **options):
    """The function of `body(ops, *variables)`, which returns a list."""
    inputs = tensors(types)
    return function(inputs, body(ops, *inputs), mode, **options)


def elemwise(f):
    """The Elemwise nodes of a compiled function."""
    return [n for n in f.fgraph.toposort() if isinstance(n.op, Elemwise)]


def values(dtype, n, seed=0):
    """Numbers of all sorts, special ones at both ends."""
    made = torch.Generator().manual_seed(seed)
    t = torch.randn(n, generator=made, dtype=torch.float64) * 3
    if dtype == "bool":
        return t > 0
    if dtype.startswith("int"):
        t = (t * 7).to(getattr(torch, dtype))
        edges = [0, 1, -1, torch.iinfo(t.dtype).max, torch.iinfo(t.dtype).min, 5]
        t[: len(edges)] = torch.tensor(edges[:n], dtype=t.dtype)[: len(t)]
        return t
    t = t.to(getattr(torch, dtype))
    special = torch.tensor(SPECIAL, dtype=t.dtype).roll(seed)
    k = min(n, len(special))
    t[:k] = special[:k]
    t[n - k :] = special[:k]
    return t


# What each op gives -------------------------------------------------------------------------------


def floating(A, x, y):
    u, v = A.mul(x, 1.5), A.neg(y)
    pairs = [A.add, A.sub, A.mul, A.div, A.maximum, A.minimum]
    pairs += [A.lt, A.le, A.gt, A.ge, A.eq, A.ne]
    found = [f(u, v) for f in pairs]
    units = [A.neg, A.abs, A.square, A.reciprocal, A.relu, A.sign, A.floor, A.ceil, A.trunc]
    units += [A.round, A.leaky_relu, A.hardtanh]
    found += [f(u) for f in units]
    found += [A.add(u, 0.1), A.mul(u, 3), A.div(u, 3.3), A.sub(u, 1), A.rsub(u, 0.3)]
    found += [A.clamp(u, -1, 0.7), A.clamp(u, 0.0), A.clamp(u, None, -0.0), A.clamp(u, 2, 1)]
    found += [A.clamp_min(u, -0.0), A.clamp_max(u, 0.25), A.threshold(u, 0.5, 2.0)]
    found += [A.pow(u, e) for e in (2, 3, -1, -2)]
    found += [A.threshold_backward(u, v, 0.5), A.where(A.lt(u, v), u, v), A.lt(u, 0.1)]
    found += [A.masked_fill(u, A.gt(u, v), -1.25), A.logical_not(A.lt(u, v))]
    return found


def kernels(A, x, y):
    u, v = A.mul(x, 1.25), A.abs(y)
    names = "exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh asin acos atan erf erfc"
    names += " sigmoid silu gelu mish softplus elu hardswish hardsigmoid sqrt rsqrt"
    found = [A.neg(getattr(A, n)(u)) for n in names.split()]
    found.append(A.neg(A.gelu(u, approximate="tanh")))
    found += [A.neg(f(u, v)) for f in (A.maximum, A.minimum, A.pow, A.atan2, A.tanh_backward)]
    found += [A.neg(f(u, v)) for f in (A.sigmoid_backward, A.gelu_backward, A.silu_backward)]
    found += [A.neg(A.pow(u, e)) for e in (0.5, -0.5, 1.7, 4, 0, 1)]
    found += [A.neg(A.add(u, v, alpha=0.3)), A.neg(A.sub(u, v, alpha=0.3))]
    return found


def whole(A, x, y):
    u, v = A.add(x, 3), A.neg(y)
    found = [f(u, v) for f in (A.add, A.sub, A.mul, A.div, A.lt, A.le, A.gt, A.ge, A.eq, A.ne)]
    found += [f(u, v) for f in (A.bitwise_and, A.bitwise_or, A.bitwise_xor)]
    found += [f(u) for f in (A.neg, A.abs, A.square, A.relu, A.sign, A.bitwise_not, A.reciprocal)]
    found += [A.mul(u, 7), A.sub(u, 2), A.add(u, 0.5), A.clamp(u, -3, 9), A.lt(u, 4)]
    found += [A.where(A.lt(u, v), u, v), A.mul(u, A.lt(u, v))]
    return found


def logical(A, x, y):
    u, v = A.logical_not(x), A.bitwise_not(y)
    found = [f(u, v) for f in (A.logical_and, A.logical_or, A.bitwise_and, A.bitwise_or)]
    return [*found, A.bitwise_xor(u, v), A.logical_not(u), A.where(u, v, y)]


def parts(body, size=20):
    """What a body returns, in parts: a group of ops takes so many."""
    x = torch.ones(2, dtype=torch.bool if body is logical else torch.int64)
    x = x if body in (whole, logical) else x.float()
    count = len(body(A, x, x))
    for i in range(0, count, size):
        yield lambda *args, i=i: body(*args)[i : i + size]


@pytest.mark.parametrize(
    ("dtype", "body"),
    [
        ("float32", floating),
        ("float64", floating),
        ("float32", kernels),
        ("float64", kernels),
        ("bfloat16", floating),
        ("float16", floating),
        ("bfloat16", kernels),
        ("float16", kernels),
        ("int64", whole),
        ("int32", whole),
        ("bool", logical),
    ],
    ids=lambda p: getattr(p, "__name__", p),
)
def test_every_op_gives_eagers_bits(dtype, body):
    for part in parts(body):
        f = compiled([(dtype, (None,))] * 2, part)
        left = {n.op.name for n in f.fgraph.toposort() if not isinstance(n.op, Elemwise)}
        assert left <= {"mul.Scalar", "abs"}, "a full group leaves what it shares with others"
        for n in SIZES:
            x, y = values(dtype, n), values(dtype, n, 3)
            for got, expected in zip(f(x, y), part(A, x, y), strict=True):
                same(got, expected)


def on_numbers(v):
    """What takes a number: kernels have it rounded to the dtype of the tensor, or not."""

    def body(A, x, y):
        found = [f(x, v) for f in (A.add, A.sub, A.mul, A.div, A.rsub, A.lt, A.le, A.eq, A.gt)]
        found += [A.clamp_min(x, v), A.clamp_max(x, v), A.clamp(x, -v, v + 0.37)]
        found += [A.leaky_relu(x, v), A.hardtanh(x, -v, v + 0.37)]
        found += [A.threshold(x, v, v / 3), A.threshold_backward(x, y, v)]
        return [*found, A.masked_fill(x, A.gt(x, y), v), A.where(A.gt(x, y), x, v)]

    return body


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_short_dtypes_are_rounded_as_pytorch_rounds_them(dtype):
    """All 65,536 numbers, with each other in some order."""
    of = getattr(torch, dtype)
    x = torch.arange(1 << 16).to(torch.int16).view(of)
    y = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(1))].contiguous()
    others = [d for d in ("float32", "float64", "bool", "bfloat16", "float16") if d != dtype]

    def converted(A, x, y):
        to = [A._to_copy(x, dtype=getattr(torch, d)) for d in others]
        return [*to, A.mul(x, A.lt(x, y)), A.where(A.lt(x, y), x, A._to_copy(y, dtype=of))]

    bodies = floating, kernels, converted, *map(on_numbers, (0.1, 1 / 3, 60000.0, 1e-8, 3))
    for body in itertools.chain.from_iterable(map(parts, bodies)):
        f = compiled([(dtype, (None,))] * 2, lambda A, x, y, body=body: body(A, A.abs(A.neg(x)), y))
        assert elemwise(f)
        for got, expected in zip(f(x, y), body(A, x.abs(), y), strict=True):
            same(got, expected)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("other", ["float32", "float64", "int64", "int32", "bool"])
def test_what_becomes_a_short_dtype(dtype, other):
    made = torch.Generator().manual_seed(5)
    bits = torch.randint(-(2**31), 2**31 - 1, (1 << 19,), generator=made)
    x = {
        "float32": bits.to(torch.int32).view(torch.float32),
        "float64": bits.to(torch.int32).view(torch.float32).double() * (1 + 2**-30),
        "bool": bits > 0,
    }.get(other, (bits >> (bits % 31)).to(getattr(torch, other)))
    to = getattr(torch, dtype)
    f = compiled([(other, (None,))], lambda A, x: [A.neg(A._to_copy(x, dtype=to))])
    assert [n.op.__class__ for n in f.fgraph.toposort()] == [Elemwise]
    same(f(x)[0], -x.to(to))


def test_a_short_dtype_takes_no_input_that_it_would_round():
    x, y = tensors([("bfloat16", (None,)), ("float32", ())])
    f = function([x, y], ops.neg(ops.add(x, y)), "c_only")
    assert not elemwise(f)
    a, b = torch.full((70,), 1e-4, dtype=torch.bfloat16), torch.tensor(0.1)
    same(f(a, b), -(a + b))


def test_conversions_and_mixed_dtypes():
    def body(A, f, d, i, b):
        to = A._to_copy
        u = A.mul(f, 0.3)
        found = [A.add(to(u, dtype=torch.float64), d), to(A.neg(d), dtype=torch.float32)]
        found += [A.mul(u, i), A.add(u, b), A.mul(A.add(i, 1), b), A.add(u, d), A.div(i, A.neg(i))]
        found += [to(A.mul(i, 3), dtype=torch.int32), to(A.neg(i), dtype=torch.float32)]
        found += [to(A.neg(u), dtype=torch.bool), to(A.logical_not(b), dtype=torch.int64)]
        return found

    kinds = ("float32", "float64", "int64", "bool")
    f = compiled([(d, (None,)) for d in kinds], body)
    given = [values(d, 5000, k) for k, d in enumerate(kinds)]
    for got, expected in zip(f(*given), body(A, *given), strict=True):
        same(got, expected)
    # A tensor without dimensions takes less part in type promotion than an element of one.
    body = lambda A, x, s: [A.relu(A.mul(x, s)), A.neg(A.add(A.abs(x), s))]  # noqa: E731
    f = compiled([("float32", (None,)), ("float64", ())], body)
    assert len(elemwise(f)) == 2
    assert len(f.fgraph.apply_nodes) == 2
    given = values("float32", 100), torch.tensor(1 / 3, dtype=torch.float64)
    for got, expected in zip(f(*given), body(A, *given), strict=True):
        same(got, expected)


def test_what_a_loop_cannot_give_is_left_alone():
    def left(types, body):
        f = compiled(types, body, "py", rewrite=["fuse"])
        return [n.op.name for n in f.fgraph.toposort() if type(n.op) is NativeOp]

    x = [("float32", (None,))]
    to_int = lambda A, x: [A._to_copy(A.neg(A.abs(x)), dtype=torch.int64)]  # noqa: E731
    assert left(x, to_int) == ["_to_copy"]
    nan = lambda A, x: [A.clamp(A.neg(A.abs(x)), math.nan)]  # noqa: E731
    assert left(x, nan) == ["clamp"]
    huge = lambda A, x: [A.neg(A.clamp_max(A.abs(x), 1e300))]  # noqa: E731
    assert "clamp_max" in left(x, huge)
    with pytest.raises(RuntimeError, match="without overflow"):
        compiled(x, huge)(torch.ones(3))
    small = lambda A, x: [A.neg(A.abs(x))]  # noqa: E731
    assert left([("int8", (None,))], small) == ["abs", "neg"]
    ints = [("int64", (None,))] * 2
    divided = lambda A, x, y: [A.neg(A.floor_divide(A.abs(x), y))]  # noqa: E731
    assert "floor_divide" in left(ints, divided)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        compiled(ints, divided)(torch.ones(3, dtype=torch.int64), torch.zeros(3, dtype=torch.int64))
    rounded = lambda A, x: [A.neg(A.round(A.abs(x), decimals=2))]  # noqa: E731
    assert "round.decimals" in left(x, rounded)
    for minus, of in itertools.product(
        ("sub", "rsub"), (lambda A, x: (A.gt(x, 0), 0.5), lambda A, x: (x, True))
    ):
        truth = lambda A, x: [A.neg(getattr(A, minus)(*of(A, x)))]  # noqa: E731, B023
        with pytest.raises(RuntimeError, match="bool tensor is not supported"):
            compiled(x, truth)(torch.ones(3))


# Layouts ------------------------------------------------------------------------------------------


def layouts(dims):
    """Tensors of one number of dimensions that lie in memory in many ways."""
    base = torch.randn(6, 4, 70, 64)
    if dims == 0:
        return [torch.tensor(0.5), base[0, 0, 0, 1]]
    if dims == 1:
        vectors = [torch.randn(64), torch.randn(1), torch.randn(0), torch.randn(70, 64)[:, 3][:64]]
        vectors += [
            torch.randn(200)[3:67],
            torch.randn(200)[::3][:64],
            torch.tensor(2.0).expand(64),
        ]
        return vectors
    if dims == 2:
        square = [torch.randn(64, 64), torch.randn(64, 64).t(), torch.randn(64, 100)[:, 7:71]]
        square += [torch.randn(1, 64).expand(64, 64), torch.randn(64, 1).expand(64, 64)]
        square += [
            torch.randn(70).as_strided((64, 64), (0, 1)),
            torch.randn(300).as_strided((64, 64), (1, 1)),
        ]
        square += [
            torch.randn(64, 1),
            torch.randn(1, 64),
            torch.randn(1, 1),
            torch.randn(64, 64)[::2],
        ]
        square += [torch.randn(128, 64)[::2], torch.randn(0, 64), torch.randn(64, 128)[:, ::2]]
        square += [torch._neg_view(torch.randn(64, 64))]
        return square
    images = [
        torch.randn(2, 3, 8, 64),
        torch.randn(2, 3, 8, 64).to(memory_format=torch.channels_last),
    ]
    images += [torch.randn(1, 3, 8, 64).to(memory_format=torch.channels_last)]
    images += [
        torch.randn(2, 1, 8, 64).to(memory_format=torch.channels_last),
        torch.randn(1, 3, 1, 1),
    ]
    images += [torch.randn(3, 2, 8, 64).transpose(0, 1), torch.randn(2, 3, 64, 8).transpose(2, 3)]
    images += [
        torch.randn(2, 3, 8, 1),
        torch.randn(8, 64).expand(2, 3, 8, 64),
        torch.randn(2, 3, 9, 64)[:, :, 1:],
    ]
    images += [
        torch.randn(2, 1, 1, 64),
        torch.randn(2, 3, 8, 64).as_strided((2, 1, 8, 64), (1536, 7, 64, 1)),
    ]
    return images


def chain(A, x, y):
    u = A.mul(A.add(x, y), 0.7)
    t = A.tanh(A.sub(u, 0.1))
    return [A.mul(A.relu(u), t), A.sigmoid(A.neg(x)), A.add(t, y), A.gelu(A.abs(x))]


@pytest.mark.parametrize(
    "dims", [(0, 0), (1, 1), (0, 1), (2, 2), (2, 1), (1, 2), (2, 0), (4, 4), (4, 0), (4, 1)]
)
def test_layouts(dims):
    torch.manual_seed(0)
    f = compiled([("float32", (None,) * d) for d in dims], chain)
    assert elemwise(f)
    ran = 0
    for x, y in itertools.product(*map(layouts, dims)):
        try:
            expected = chain(A, x, y)
        except RuntimeError as e:
            with pytest.raises(RuntimeError, match=re.escape(str(e).split("\n")[0])):
                f(x, y)
            continue
        for got, want in zip(f(x, y), expected, strict=True):
            same(got, want)
        ran += 1
    assert ran


def masked(A, x, y):
    return [A.neg(A.masked_fill(A.mul(x, 1.5), A.gt(y, 0), 2.0))]


def masked_by_one(A, x, y):
    return [A.neg(A.masked_fill(x, torch.tensor([[True]]), 2.0)), A.neg(y)]


@pytest.mark.parametrize("dims", [2, 4])
@pytest.mark.parametrize("body", [floating, kernels, masked, masked_by_one])
def test_every_op_gives_eagers_strides(dims, body):
    for part in parts(body):
        f = compiled([("float32", (None,) * dims)] * 2, part)
        assert elemwise(f)
        for x, y in itertools.product(layouts(dims), repeat=2):
            try:
                expected = part(A, x, y)
            except RuntimeError:  # they do not broadcast
                continue
            for got, want in zip(f(x, y), expected, strict=True):
                same(got, want)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ((100, 1000), (1000,)),
        ((1000, 100), (1000, 1)),
        ((100, 7000), (7000,)),
        ((20, 30, 100), (30, 1)),
        ((20, 30, 100), (20, 1, 100)),
        ((40000, 3), (3,)),
        ((65, 1), (1, 1030)),
        ((100, 1000), (1, 1)),
    ],
)
def test_broadcasting_over_several_blocks_and_threads(x, y):
    f = compiled([("float32", (None,) * len(x)), ("float32", (None,) * len(y))], chain)
    given = torch.randn(x), torch.randn(y)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            for got, want in zip(f(*given), chain(A, *given), strict=True):
                same(got, want)
    finally:
        torch.set_num_threads(before)


OPS = [
    lambda A, x, y: A.add(x, y),
    lambda A, x, y: A.sub(y, x),
    lambda A, x, y: A.mul(x, 1.1),
    lambda A, x, y: A.tanh(x),
    lambda A, x, y: A.sigmoid(y),
    lambda A, x, y: A.where(A.lt(x, y), x, y),
    lambda A, x, y: A.clamp(x, -1.0, 2.0),
    lambda A, x, y: A.softmax(x, -1),
    lambda A, x, y: A.sum(x, [-1], True),
    lambda A, x, y: A.div(y, A.add(A.abs(x), 1.0)),
    lambda A, x, y: A.unsqueeze(A.select(x, 0, 0), 0),
]


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(OPS), st.integers(0, 9), st.integers(0, 9)), max_size=14
    ),
    outputs=st.lists(st.integers(0, 9), min_size=1, max_size=3),
    dtype=st.sampled_from(["float32", "bfloat16", "float16"]),
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_random_graphs(steps, outputs, dtype):
    def body(A, x, y):
        found = [x, y]
        for op, i, j in steps:
            found.append(op(A, found[-1 - i % len(found)], found[-1 - j % len(found)]))
        return [A.neg(found[-1 - o % len(found)]) for o in outputs]

    inputs = tensors([(dtype, (None, None)), (dtype, (None, 64))])
    plain = FunctionGraph(inputs, body(ops, *inputs))
    fused = plain.clone()
    fuse(fused)
    fused.check()
    f = function(inputs, body(ops, *inputs), "py")
    for sizes in ((5, 64), (1, 64)), ((7, 64), (7, 64)):
        x, y = (torch.randn(s).to(getattr(torch, dtype)) for s in sizes)
        for got, want in zip(f(x, y), body(A, x, y), strict=True):
            assert torch.equal(got, want)
    if steps:
        f = function(inputs, body(ops, *inputs), "c_only")
        for got, want in zip(f(x, y), body(A, x, y), strict=True):
            same(got, want)


# In place, threads, sizes -------------------------------------------------------------------------


def test_results_in_the_memory_of_inputs():
    e, g = TensorType("float32", ())("e"), TensorType("float32", ())("g")
    t = scalar.tanh(scalar.add(e, g))
    op = Elemwise(Composite([e, g], [scalar.mul(t, e), scalar.sub(e, g)]))
    x, y = tensors([("float32", (None, None))] * 2)
    node = op.make_node(x, y)
    both = op.in_place(node, 0, 0)
    assert both.inplace == {0: 0}
    assert both.destroy_map == {0: [0]}
    assert both.in_place(both.make_node(x, y), 1, 0) is None, "its memory is taken"
    assert op.in_place(op.make_node(x, x), 0, 0) is None, "it is read twice"
    narrow = TensorType("float32", (None,))()
    assert op.in_place(op.make_node(narrow, y), 0, 0) is None, "it has another type"
    both = both.in_place(both.make_node(x, y), 1, 1)
    f = function([x, y], both(x, y), "c_only", mutable=[x, y], rewrite=False)
    sizes = [(64, 64), (1, 1), (100, 1000)]
    for x_, y_ in [(torch.randn(s), torch.randn(s)) for s in sizes] + [
        (torch.randn(64, 64).t(), torch.randn(64, 64).t())
    ]:
        expected = (x_ + y_).tanh() * x_, x_ - y_
        versions = x_._version, y_._version
        got = f(x_, y_)
        assert torch.equal(x_, expected[0])
        assert torch.equal(y_, expected[1])
        assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
        assert (x_._version, y_._version) > versions
    # What is written overlaps what is read: the calls compute first and write then.
    one = op.in_place(node, 0, 0)
    f = function([x, y], one(x, y)[0], "c_only", mutable=[x], rewrite=False)
    memory = torch.randn(65, 64)
    x_, y_ = memory[1:], memory[:-1]
    expected = (x_ + y_).tanh() * x_
    f(x_, y_)
    assert torch.equal(x_, expected)
    # Other strides, another shape: nothing is written. Elements that share memory are refused.
    x_, y_ = torch.randn(64, 64).t(), torch.randn(64, 64)
    expected, before = ((x_ + y_).tanh() * x_, x_ - y_), y_.clone()
    g = function([x, y], both(x, y), "c_only", mutable=[x, y], rewrite=False)
    got = g(x_, y_)
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
    assert torch.equal(y_, before)
    x_, y_ = torch.randn(64, 1).expand(64, 64), torch.randn(64, 64)
    before = x_.clone()
    for linker in ("c_only", "py"):
        g = function([x, y], one(x, y)[0], linker, mutable=[x], rewrite=False)
        with pytest.raises(ValueError, match="several of its elements are one in memory"):
            g(x_, y_)
        assert torch.equal(x_, before)
    x_, y_ = torch.randn(1, 64), torch.randn(64, 64)
    expected, before = (x_ + y_).tanh() * x_, x_.clone()
    assert torch.equal(f(x_, y_), expected)
    assert torch.equal(x_, before)


def test_the_inplace_rewrite_gives_loops_dead_memory():
    x, w = tensors([("float32", (None, 8)), ("float32", (8, 8))])
    h = ops.mm(x, w)
    out = ops.mm(ops.tanh(h * 0.5) + h, w)
    f = function([x, w], [out, ops.relu(ops.neg(h))], "c_only")
    assert [n.op.inplace for n in elemwise(f)] in ([{}, {0: 0}], [{0: 0}, {}]), "the last reader"
    s, t = torch.randn(5, 8), torch.randn(8, 8)
    h = s @ t
    got = f(s, t)
    assert torch.equal(got[0], ((h * 0.5).tanh() + h) @ t)
    assert torch.equal(got[1], (-h).relu())


def test_many_threads_run_one_function():
    f = compiled([("float32", (None, None)), ("float32", (None,))], chain)
    given = [(torch.randn(50 + i, 130), torch.randn(130)) for i in range(4)]
    expected = [chain(A, *xy) for xy in given]
    wrong = []

    def work(k):
        for _ in range(50):
            for got, want in zip(f(*given[k]), expected[k], strict=True):
                if not torch.equal(got, want):
                    wrong.append(k)

    in_threads(work)
    assert not wrong


def test_loops_are_taken_apart_and_fused_with_what_follows():
    e, g, c = (TensorType("float32", ())(n) for n in "egc")
    x, y = tensors([("float32", (None, 8))] * 2)
    w = TensorType("float32", (8,))("w")
    s, t, u = torch.randn(5, 8), torch.randn(5, 8), torch.randn(8)

    def loops(op, *inputs):
        """How many ops each loop has, of a graph with neg of what `op` returns."""
        made = op(*inputs)
        made = made if isinstance(made, list) else [made]
        f = function([x, y, w], [ops.neg(made[0]), *made[1:]], "c")
        r = op.scalar_op
        given = {x: s, y: t, w: u}
        for got, want in zip(f(s, t, u), expected[r](*(given[v] for v in inputs)), strict=True):
            same(got, want)
        return [len(n.op.scalar_op.order) for n in elemwise(f)]

    product = scalar.mul(scalar.tanh(scalar.add(e, g)), e)
    chained = Composite([e, g], [product, scalar.sub(e, g)])
    scaled = Composite([e], [scalar.mul(e, constant(torch.tensor(2.0)))])
    of_one = Composite([e, g], [scalar.add(e, g), scalar.tanh(g)])
    passed = Composite([e, c], [scalar.add(e, c), c])
    expected = {
        chained: lambda a, b: [-((a + b).tanh() * a), a - b],
        scaled: lambda a: [-(a * 2.0)],
        of_one: lambda a, b: [-(a + b), b.tanh()],
        passed: lambda a, b: [-(a + b), b],
    }
    assert loops(Elemwise(chained), x, y) == [5]
    assert loops(Elemwise(scaled), x) == [1], "a constant is no element of a loop"
    assert loops(Elemwise(of_one), x, y) == [3]
    assert loops(Elemwise(of_one), x, w) == [2], "its results have two shapes"
    assert loops(Elemwise(passed), x, y) == [1], "it returns what it was given"


def test_groups_are_of_one_stage():
    x = TensorType("float32", (None, 8))("x")
    a = ops.relu(x + 1)
    b = ops.softmax(a, -1)
    out = ops.tanh(a * b) - a  # `a` goes on beside the softmax
    f = function([x], out, "c_only")
    names = [type(n.op).__name__ for n in f.fgraph.toposort()]
    assert names == ["Elemwise", "NativeOp", "Elemwise"]
    t = torch.randn(5, 8)
    a_ = (t + 1).relu()
    same(f(t), (a_ * a_.softmax(-1)).tanh() - a_)


def test_what_is_destroyed_is_read_before():
    x, y = tensors([("float32", (None,))] * 2)
    a = x * 2
    changed = ops.add_(a, y)
    out = ops.relu(ops.neg(changed))
    f = function([x, y], [out, ops.exp(ops.neg(x))], "c_only")
    s, t = torch.randn(50), torch.randn(50)
    got = f(s, t)
    assert torch.equal(got[0], (-(s * 2 + t)).relu())
    assert torch.equal(got[1], (-s).exp())


def test_a_chain_of_ten_thousand():
    x = TensorType("float32", (None,))("x")
    v = x
    for k in range(10_000):
        v = ops.neg(v) if k % 2 else ops.add.Scalar(v, 1.0)
    fgraph = FunctionGraph([x], [v])
    count = fuse(fgraph)
    fgraph.check()
    assert count == math.ceil(10_000 / MAX_OPS) == len(fgraph.apply_nodes)


def test_equal_loops_are_written_once():
    x, w = tensors([("float32", (None, 8)), ("float32", (8, 8))])
    v = x
    for _ in range(5):
        v = ops.tanh(ops.mm(v, w) * 0.5) + 1
    f = function([x, w], v, "c_only", rewrite=["fuse"])
    assert len(elemwise(f)) == 5
    assert f.linker.source().count("cgotorch_loop_block *block) {\n") == 3, "two loops and a block"


def test_ten_ops_are_one_loop_and_one_allocation():
    def body(A, x, y):
        a = A.mul(A.add(x, y), 0.5)
        b = A.add(A.mul(A.sub(a, y), a), 1.0)
        return [A.abs(A.mul(A.relu(A.mul(A.reciprocal(b), x)), y))]

    f = compiled([("float32", (64, 128))] * 2, body)
    assert len(f.fgraph.apply_nodes) == 1
    source = f.linker.source()
    assert source.count("PB_LOOP void ") == 1
    x, y = torch.randn(64, 128), torch.randn(64, 128)
    (expected,) = body(A, x, y)
    with torch.profiler.profile(profile_memory=True) as seen:
        (got,) = f(x, y)
    same(got, expected)
    made = [e for e in seen.events() if e.name == "[memory]" and e.cpu_memory_usage > 0]
    assert [e.cpu_memory_usage for e in made] == [64 * 128 * 4]
    assert not [e.name for e in seen.events() if e.name.startswith("aten::")]


def test_gradients_are_those_of_what_was_fused():
    x, y = tensors([("float32", (None, 8)), ("float32", (8,))])
    cost = ops.sum(ops.tanh((x + y) * 0.5) * x)
    f = function([x, y], [cost, *pb.grad(cost, [x, y])], "c_only")
    assert elemwise(f)
    s, t = torch.randn(4, 8, requires_grad=True), torch.randn(8, requires_grad=True)
    expected = (((s + t) * 0.5).tanh() * s).sum()
    expected.backward()
    got = f(s.detach(), t.detach())
    torch.testing.assert_close(got, [expected.detach(), s.grad, t.grad])
    tracked = function([x, y], cost)(s, t)
    s.grad = None
    tracked.backward()
    assert torch.equal(s.grad, got[1])


def test_python_runs_composites_too():
    f = compiled([("float32", (None, None)), ("float32", (None,))], chain, mode="py")
    given = torch.randn(5, 70), torch.randn(70)
    for got, want in zip(f(*given), chain(A, *given), strict=True):
        same(got, want)


# From C -------------------------------------------------------------------------------------------

STRICT = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-O1", "-fPIC"]
LIB = build.toolchain.build_dir() / "lib"
HERE = [f"-I{build.SOURCES}", f"-L{LIB}", "-lcgotorch", f"-Wl,-rpath,{LIB}"]


def test_a_c_function_has_the_loop(tmp_path):
    inputs = tensors([("float32", (None, None)), ("float32", (None,))])
    fgraph = FunctionGraph(inputs, [chain(ops, *inputs)[0]])
    assert fuse(fgraph) == 1
    source = tmp_path / "fused.c"
    source.write_text(CFunction(fgraph, "Fused").source())
    library = tmp_path / "fused.so"
    subprocess.run(["cc", *STRICT, "-shared", str(source), "-o", str(library), *HERE], check=True)
    call = ctypes.CDLL(str(library)).Fused
    call.restype = ctypes.c_void_p
    for x, y in [
        (torch.randn(64, 128), torch.randn(128)),
        (torch.randn(64, 64).t(), torch.randn(64)),
    ]:
        out = ctypes.c_void_p()
        assert call(*(ctypes.c_void_p(borrow(t)) for t in (x, y)), ctypes.byref(out)) is None
        same(from_handle(out.value), chain(A, x, y)[0])


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from([1, 0]), st.integers(1, (1 << 52) - 1), st.sampled_from(["float32", "float64"])
)
def test_a_number_that_is_nan_keeps_its_bits(sign, payload, dtype):
    """Its sign and its payload, in an op that is alone and among others that could be a loop."""
    bits = sign << 63 | 0x7FF << 52 | payload
    (number,) = struct.unpack("<d", struct.pack("<Q", bits))
    types = [("bool", (None,)), (dtype, (None,))]
    given_ = torch.tensor([True, False, True]), torch.arange(3, dtype=getattr(torch, dtype))

    def body(library, mask, x):
        filled = library.masked_fill(x, mask, number)
        return [filled, library.where(mask, library.masked_fill(library.neg(x), mask, number), x)]

    inputs = tensors(types)
    found = function(inputs, body(ops, *inputs))(*given_)
    whole = torch.int32 if dtype == "float32" else torch.int64
    for got, expected in zip(found, body(A, *given_), strict=True):
        assert torch.equal(got.view(whole), expected.view(whole))
