"""Rewrites change nothing that a caller can observe."""

from __future__ import annotations

import gc
import random

import operator_database
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils import _pytree

import pytorch_bridge as pb
from pytorch_bridge import TensorType, function, ops, schema_type
from pytorch_bridge.aliasing.destroy import DestroyHandler
from pytorch_bridge.aliasing.in_place import InPlace, is_dense, writing_form
from pytorch_bridge.errors import (
    BridgeTypeError,
    BridgeValueError,
    DuplicateError,
    RegistrationError,
)
from pytorch_bridge.graph.basic import Apply, Constant
from pytorch_bridge.graph.features import Feature
from pytorch_bridge.graph.function_graph import FunctionGraph
from pytorch_bridge.native.extension import live_handles
from pytorch_bridge.ops.basic import Shape_i, deep_copy_op, shape, view_op
from pytorch_bridge.ops.native import NativeOp, constant, native
from pytorch_bridge.ops.variables import TensorConstant
from pytorch_bridge.registry import temporary
from pytorch_bridge.rewrite import (
    canonical,
    copies,
    fold,
    known_strides,
    names,
    register_rewrite,
    rewrite,
)
from pytorch_bridge.rewrite.rules import Rules

N = 10_000
MINE = [name for name in names() if name != "fuse"]  # which has tests of its own
SPECIAL = [0.0, -0.0, 1.0, -1.5, float("inf"), float("-inf"), float("nan"), 1e-42, 3e38, 2.5]


def tensor_type(*sizes, dtype="float32"):
    return TensorType(dtype, sizes)


def values(t: TensorType, seed: int = 0):
    """A tensor with NaN, infinities, zeros of both signs and a denormal number in it."""
    sizes = [3 if d is None else d for d in t.shape]
    pick = random.Random(seed)
    n = torch.Size(sizes).numel()
    if t.torch_dtype.is_floating_point or t.torch_dtype.is_complex:
        data = [pick.choice(SPECIAL) for _ in range(n)]
    else:
        data = [pick.choice([0, 1, 1, 2, 100]) for _ in range(n)]
    return torch.tensor(data).to(t.torch_dtype).reshape(sizes)


def facts(v):
    """Everything that a caller can see of a tensor, or of a value that is none."""
    if not isinstance(v, torch.Tensor):
        return v
    whole = v.resolve_conj().resolve_neg().contiguous().flatten()
    return v.dtype, v.shape, v.stride(), bytes(whole.view(torch.uint8).numpy()), v.is_conj()


def graph_of(f):
    return [str(n.op) for n in f.fgraph.toposort()]


def check(inputs, outputs, args=None, mode="py", passes=None):
    """The function with rewrites, once it has been compared with the one without."""
    plain = function(inputs, outputs, mode="py", rewrite=False)
    f = function(inputs, outputs, mode=mode, rewrite=passes or MINE)
    args = [values(v.type, i) for i, v in enumerate(inputs)] if args is None else args
    before = [facts(a) for a in args]
    want, got = plain(*args), f(*args)
    single = not isinstance(want, list)
    assert [facts(v) for v in ([got] if single else got)] == [
        facts(v) for v in ([want] if single else want)
    ]
    assert [facts(a) for a in args] == before
    return f


# Passes


def test_passes_are_chosen_by_name():
    x = tensor_type(3)("x")
    y = (x + 1.0).relu()
    assert graph_of(function([x], y, mode="py", rewrite=MINE)) == [
        "add.Scalar{other=1.0}",
        "relu[in place]",
    ]
    for none in (False, (), ["fold"], "merge"):
        assert graph_of(function([x], y, mode="py", rewrite=none)) == [
            "add.Scalar{other=1.0}",
            "relu",
        ]
    assert rewrite(FunctionGraph([x], [y]), "inplace") == {"inplace": 1}
    assert list(rewrite(FunctionGraph([x], [y]))) == names()
    with pytest.raises(BridgeValueError, match="no rewrite 'warp': there are fold, canonical"):
        function([x], y, mode="py", rewrite=["warp"])


# Constant folding


def test_constants_are_folded():
    x, c = tensor_type(2, 3)("x"), constant(torch.randn(3), "c")
    f = check([x], x + ops.exp(c * 2.0).sum())
    assert graph_of(f) == ["add.Tensor"]
    assert isinstance(f.fgraph.toposort()[0].inputs[1], Constant)


def test_a_view_of_a_constant_stays_one():
    x = tensor_type(5, 3)("x")
    w = constant(torch.randn(4, 3), "w")
    f = check([x], x @ w.t())
    (mm,) = f.fgraph.toposort()
    folded = mm.inputs[1]
    assert folded.data.data_ptr() == w.data.data_ptr()
    assert folded.data.stride() == (1, 3)
    assert TensorType.may_share_memory(folded.data, w.data)
    twice = check([x], x @ ops.t(w[1:])).fgraph.toposort()[0].inputs[1]
    assert TensorType.may_share_memory(twice.data, w.data)
    assert twice.data.storage_offset() == 3


def test_what_is_folded_owns_no_more_than_it_needs():
    x, c = tensor_type(2)("x"), constant(torch.arange(1000.0) // 500)
    assert torch.unique_consecutive(c.data).untyped_storage().nbytes() == 4000  # for two numbers
    (add,) = check([x], x + ops.unique_consecutive(c)[0]).fgraph.toposort()
    folded = add.inputs[1]
    assert isinstance(folded, Constant)
    assert folded.data.tolist() == [0.0, 1.0]
    assert folded.data.untyped_storage().nbytes() == 8


@pytest.mark.parametrize(
    ("value", "stays"),
    [
        (torch.ones(10)[:2], False),
        (torch.ones(10, 3)[:2], False),
        (torch.ones(3, 10).t()[:2], True),  # a copy would have other strides
        (torch.ones(10)[::2], True),
        (torch.ones(10)[2:], True),
        (torch.ones(10), True),
        (torch.ones(10, 3).t()[:, :2], False),
        (torch.ones(10, 1)[:2].as_strided((2, 1), (1, 7)), False),
        (torch.quantize_per_tensor(torch.ones(10), 1.0, 0, torch.qint8)[:2], True),
        (torch.eye(3).to_sparse(), True),
    ],
)
def test_only_what_keeps_its_strides_is_made_smaller(value, stays):
    own = fold._own(value)
    assert (own is value) == stays
    if not stays:
        assert torch.equal(own, value)
        assert own.stride() == value.stride()
        assert own.untyped_storage().nbytes() == value.numel() * 4


def test_a_part_of_what_is_folded_owns_no_more_than_it_needs():
    x, c = tensor_type(2)("x"), constant(torch.arange(1000.0))
    for part, size in ((slice(2), 8), (slice(17, 19), 12), (slice(0, 999, 998), 4000)):
        f = check([x], x + (c * 2.0)[part])
        folded = f.fgraph.toposort()[0].inputs[1].data
        assert folded.untyped_storage().nbytes() == size
        assert torch.equal(folded, (torch.arange(1000.0) * 2)[part])
        # As to strides and alignment, kernels see what they would have seen.
        assert folded.stride() == torch.arange(1000.0)[part].stride()
        assert folded.data_ptr() % 64 == 4 * (part.start or 0) % 64
    # A part of what the caller keeps anyhow takes no memory, nor does one of what is needed whole.
    w, y = constant(torch.arange(1000.0), "w"), tensor_type(1000)("y")
    folded = check([x], x + w[:2]).fgraph.toposort()[0].inputs[1].data
    assert folded.data_ptr() == w.data.data_ptr()
    made = c * 2.0
    f = check([x, y], [x + made[:2], y + made])
    whole, part = sorted(
        (v.data for v in f.fgraph.variables if isinstance(v, Constant)), key=len, reverse=True
    )
    assert part.data_ptr() == whole.data_ptr()


def test_what_grows_is_not_folded():
    x = tensor_type(1)("x")
    small, large = ops.ones([100]), ops.ones([1000, 1000])
    assert len(graph_of(check([x], x + small))) == 1
    assert len(graph_of(check([x], x + large))) == 2
    column = constant(torch.randn(1000, 1))
    wide = column + column.t()
    assert "add.Tensor" in graph_of(check([x], x + wide))
    # A view takes no memory, however large it looks.
    spread = function([x], x + column.expand(1000, 1000), mode="py")
    assert graph_of(spread) == ["add.Tensor"]


def test_random_ops_are_not_folded():
    x, c = tensor_type(3)("x"), constant(torch.ones(3))
    f = function([x], [x + ops.bernoulli(c, 0.5), x + ops.rand([3])], mode="py")
    assert {"bernoulli.p", "rand"} <= {s.partition("{")[0] for s in graph_of(f)}


def test_what_raises_is_left_to_raise():
    x = tensor_type(2)("x")
    singular = constant(torch.zeros(2, 2))
    f = function([x], ops.linalg_inv(singular) @ x, mode="py")
    with pytest.raises(RuntimeError, match="singular"):
        f(torch.ones(2))


def test_folded_outputs_are_their_own():
    x, c = tensor_type(2)("x"), constant(torch.randn(3, 2))
    f = check([x], [c * 2.0, (c * 2.0)[::2], c.t(), c * 2.0, x])
    first = f(torch.ones(2))
    kept = [v.clone() for v in first]
    for v in first:
        v.zero_()
    assert all(torch.equal(a, b) for a, b in zip(f(torch.ones(2)), kept, strict=False))


def test_what_is_destroyed_is_not_folded():
    x, c = tensor_type(3)("x"), constant(torch.ones(3))
    f = check([x], ops.add_(c * 2.0, x))
    assert facts(f(torch.ones(3))) == facts(f(torch.ones(3)))


def test_sizes_are_folded():
    x = tensor_type(4, None)("x")
    n = schema_type("int")("n")
    f = function([x, n], [Shape_i(0)(x) * 2 + 1, Shape_i(1)(ops.relu(x)) + n, shape(x)], mode="py")
    assert f(torch.ones(4, 7), 5) == [9, 12, [4, 7]]
    (size,) = [m for m in f.fgraph.toposort() if str(m.op) == "Shape_i{i=1}"]
    assert size.inputs[0] is f.fgraph.inputs[0]  # that of x does as well
    assert not any(str(m.op) in ("mul", "Shape_i{i=0}") for m in f.fgraph.toposort())
    whole = tensor_type(4, 5)("w")
    assert graph_of(function([whole], shape(whole), mode="py")) == ["DeepCopyOp"]
    assert function([whole], shape(whole))(torch.ones(4, 5)) == [4, 5]


# Rules


def f32(*sizes):
    return tensor_type(*sizes)("x")


def dense_of(x):
    """A value in memory of its own, whose strides are known."""
    return ops.mm(x, constant(torch.eye(x.type.shape[1], dtype=x.type.torch_dtype)))


def integers(*sizes):
    return tensor_type(*sizes, dtype="int64")("x")


def f16(*sizes):
    return tensor_type(*sizes, dtype="float16")("x")


def row_major_of(x):
    """The same for a tensor of four dimensions."""
    return ops.linear(x, constant(torch.eye(x.type.shape[3])))


LAST = torch.channels_last


def double_exp(x):
    return ops.exp(ops.exp(x))


# For each rule: the graphs that it simplifies, as what is built, and how many nodes remain of it, or
# the only one.
CASES = {
    "alias(x), detach(x), x.view_as_itself -> x": [
        (f32(3, 3), lambda x: ops.alias(x) + 1.0, 1),
        (f32(3, 3), lambda x: ops.detach(x).exp(), 1),
        (f32(3, 3), lambda x: view_op(x).exp(), 1),
    ],
    "dropout(x, train=False) -> x": [
        (f32(3, 3), lambda x: ops.dropout(x, 0.5, False).exp(), 1),
        (f32(3, 3), lambda x: ops.alpha_dropout(x, 0.5, False).exp(), 1),
    ],
    "real(x), conj(x), resolve_conj(x) -> x, of real x": [
        (f32(3, 3), lambda x: ops.conj(x).exp(), 1),
        (tensor_type(2, dtype="complex64")("x"), lambda x: ops.conj(x) + 1.0, 2),
    ],
    "positive(x) -> x": [(f32(3, 3), lambda x: ops.positive(x).exp(), 1)],
    "x.to(dtype) -> x, of that dtype": [
        (f32(3), lambda x: x.to(torch.float32).exp(), 1),
        (f32(3), lambda x: x.to(torch.float64).exp(), 2),
        (f32(3), lambda x: ops.type_as(x, x).exp(), 1),
        (f32(3), lambda x: ops.to.dtype(x, torch.float32, False, True).exp(), 2),
        (f32(2, 3, 2, 2), lambda x: ops.to.dtype(x, torch.float32, memory_format=LAST).exp(), 2),
        (f32(3), lambda x: ops.type_as(x, constant(torch.ones(1).double())).exp(), 2),
    ],
    "contiguous(x) -> x, of contiguous x": [
        (f32(3, 3), lambda x: dense_of(x).contiguous().exp(), 2),
        (f32(3, 3), lambda x: x.contiguous().contiguous().exp(), 2),
        (f32(2, 3, 2, 5), lambda x: ops.contiguous(row_major_of(x), memory_format=LAST).exp(), 3),
    ],
    "expand(x, its own sizes) -> x": [
        (f32(1, 3), lambda x: x.expand(1, 3).exp(), 1),
        (f32(1, 3), lambda x: x.expand(2, 3).exp(), 2),
        (f32(None, 3), lambda x: x.expand(3, 3).exp(), 2),
    ],
    "view(x, its own sizes) -> x": [
        (f32(2, 3), lambda x: x.view(2, 3).exp(), 1),
        (f32(2, 1), lambda x: x.view(2, 1).exp(), 2),
        (f32(2, 3), lambda x: x.reshape(2, -1).exp(), 1),
        (f32(3, 1), lambda x: dense_of(x).view(3, 1).exp(), 2),
        (f32(3, 4), lambda x: ops.view.dtype(x, torch.float32).exp(), 1),
        (f32(3, 4), lambda x: ops.view.dtype(x, torch.int32).abs(), 2),
    ],
    "x[:] -> x": [
        (f32(None, 3), lambda x: ops.slice(x, 0, 0, 2**63 - 1, 1).exp(), 1),
        (f32(4, 3), lambda x: ops.slice(x, 0, None, 4, 1).exp(), 1),
        (f32(4, 3), lambda x: ops.slice(x, 0, None, 3, 1).exp(), 2),
        (f32(4, 3), lambda x: ops.slice(x, 0, None, None, 2).exp(), 2),
        (f32(4, 3), lambda x: ops.slice(x, 0, 0, 5, 1).exp(), 1),
        (f32(4, 3), lambda x: ops.slice(x, 0, 1, None, 1).exp(), 2),
        (f32(None, 3), lambda x: ops.slice(x, 0, 0, 3, 1).exp(), 2),
    ],
    "narrow(x, d, 0, its size) -> x": [
        (f32(4, 3), lambda x: ops.narrow(x, 1, 0, 3).exp(), 1),
        (f32(4, 3), lambda x: ops.narrow(x, 1, 0, 2).exp(), 2),
        (f32(4, 3), lambda x: ops.narrow(x, 0, 0, 3).exp(), 2),
    ],
    "squeeze(x, d) -> x, where that size is not 1": [
        (f32(4, 3), lambda x: ops.squeeze(x, 1).exp(), 1),
        (f32(4, 1), lambda x: ops.squeeze(x, 1).exp(), 2),
        (f32(4, None), lambda x: ops.squeeze(x, 1).exp(), 2),
    ],
    "squeeze(unsqueeze(x, d), d) -> x": [
        (f32(4, None), lambda x: ops.squeeze(ops.unsqueeze(x, -1), 2).exp(), 1),
        (f32(4, None), lambda x: ops.squeeze(ops.unsqueeze(x, 0), 2).exp(), 3),
    ],
    "permute(permute(x)) -> permute(x) or x": [
        (f32(2, 3), lambda x: x.t().transpose(0, 1).exp(), 1),
        (f32(2, 3), lambda x: x.transpose(1, 1).exp(), 1),
        (f32(2, 3, 4), lambda x: x.permute(1, 2, 0).permute(2, 0, 1).exp(), 1),
        (f32(2, 3, 4), lambda x: x.permute(1, 2, 0).mT.transpose(0, -1).exp(), 2),
        (f32(2, None, 4), lambda x: x.T.exp(), 2),
        (f32(2, None, 4), lambda x: x.T.permute(2, 1, 0).exp(), 1),
        (f32(2, 3, 4), lambda x: x.T.permute(1, 2, 0).exp(), 2),
        (f32(3), lambda x: ops.t(x).exp(), 1),
    ],
    "view(view(x)) -> view(x), of row-major x": [
        (f32(4, 4), lambda x: dense_of(x).view(16).view(2, -1).exp(), 3),
        (f32(4, 4), lambda x: x.view(16).view(2, 8).exp(), 3),
        (f32(4, 4), lambda x: ops.view.dtype(dense_of(x), torch.int32).view(16).abs(), 4),
        (f32(4, 4), lambda x: ops.view.dtype(dense_of(x).view(16), torch.int32).abs(), 4),
    ],
    "neg(neg(x)) -> x": [
        (f32(4, 4), lambda x: dense_of(x).neg().neg().sum(), 2),
        (f32(4, 4), lambda x: x.neg().neg().sum(), 3),
        (f16(4, 4), lambda x: dense_of(x).neg().neg().sum(), 4),
    ],
    "bitwise_not(bitwise_not(x)) -> x": [
        (integers(2, 2), lambda x: ops.bitwise_not(ops.bitwise_not(dense_of(x))).sum(), 2),
        (integers(2, 2), lambda x: ops.bitwise_not(ops.bitwise_not(x)).sum(), 3),
    ],
    "logical_not(logical_not(x)) -> x, of bool x": [
        (f32(2, 2), lambda x: ops.logical_not(ops.logical_not(ops.isnan(x))).sum(), 2),
        (f32(2, 2), lambda x: ops.logical_not(ops.logical_not(dense_of(x))).sum(), 4),
    ],
    "f(f(x)) -> f(x), for relu, abs, ceil, floor, trunc, round": [
        (f32(4, 4), lambda x: x.relu().relu().sum(), 2),
        (f32(4, 1), lambda x: x.relu().relu().sum(), 3),
        (f32(4, 4), lambda x: x.floor().floor().abs().abs().sum(), 3),
        (f32(4, 4), lambda x: x.floor().ceil().sum(), 3),
        (f16(4, 4), lambda x: dense_of(x).relu().relu().sum(), 4),
        (f32(4, 4), lambda x: ops.round(ops.round(x, decimals=1), decimals=2).sum(), 3),
    ],
    "matmul(x, y) -> mm(x, y), mv(x, y) or dot(x, y)": [
        (f32(None, 4), lambda x: ops.matmul(x, constant(torch.randn(4, 2))), "mm"),
        (f32(3, 4), lambda x: ops.matmul(x, constant(torch.randn(4))), "mv"),
        (f32(4), lambda x: ops.matmul(x, x), "dot"),
        (f32(4), lambda x: ops.matmul(x, constant(torch.randn(4, 2))), "matmul"),
    ],
    "x * 1, x + 0, x - 0 -> x, of integers": [
        (integers(2, 2), lambda x: (dense_of(x) * 1 + 0 - 0).sum(), 2),
        (f32(2, 2), lambda x: (dense_of(x) * 1 + 0).sum(), 4),
        (integers(2, 2), lambda x: (dense_of(x) * 1.0).sum(), 3),
        (integers(2, 2), lambda x: (dense_of(x) * 0).sum(), 3),
        (integers(2, 2), lambda x: (dense_of(x) + 1).sum(), 3),
        (integers(2, 2), lambda x: (x * 1).sum(), 2),
    ],
    "shape_i(f(x)) -> shape_i(x), of pointwise f": [
        (f32(None, 3), lambda x: x.exp().exp().shape[0], 1),
        (f32(None, 3), lambda x: x.t().shape[1], 2),
        (f32(None, 3), lambda x: (ops.slice(x, 0, 0, 1, 1) + x).shape[0], 3),
    ],
    "copy(x) -> x": [
        (f32(2, 2), lambda x: deep_copy_op(x.exp()).sum(), 2),
        (f32(2, 2), lambda x: deep_copy_op(x).sum(), 2),
        (f32(2, 2), lambda x: deep_copy_op(x.exp()), 1),
        (f32(2, 2), lambda x: deep_copy_op(x.exp().t()).sum(), 4),
    ],
    "clone(x) -> x": [
        (f32(2, 2), lambda x: ops.clone(x.exp()).sum(), 2),
        (f32(2, 2), lambda x: ops.clone(x), 1),
        (f32(2, 2), lambda x: ops.clone(x.exp().t(), memory_format=torch.contiguous_format), 3),
        (f32(2, 2), lambda x: ops.clone(dense_of(x), memory_format=torch.contiguous_format), 1),
        (f32(2, 2), lambda x: ops.clone(x.exp(), memory_format=torch.preserve_format), 1),
        (f32(2, 3, 2, 5), lambda x: ops.clone(row_major_of(x), memory_format=LAST).exp(), 3),
        (f32(2, 2), lambda x: ops.clone(x).sum(), 2),
    ],
    "_to_copy(x) -> x, to the same dtype": [
        (f32(2, 2), lambda x: ops._to_copy(x.exp(), dtype=torch.float32).sum(), 2),
        (f32(2, 2), lambda x: ops._to_copy(x.exp(), dtype=torch.float64).sum(), 3),
        (f32(2, 2), lambda x: ops._to_copy(x.exp()).sum(), 2),
        (f32(2, 2), lambda x: ops._to_copy(x).sum(), 2),
        (f32(2, 3, 2, 5), lambda x: ops._to_copy(row_major_of(x), memory_format=LAST).exp(), 3),
    ],
    "cat([x]) -> x": [
        (f32(2, 2), lambda x: ops.cat([dense_of(x)]).sum(), 2),
        (f32(2, 2), lambda x: ops.cat([x]).sum(), 2),
        (f32(2, 2), lambda x: ops.cat([dense_of(x), x]).sum(), 3),
    ],
}  # fmt: skip


def test_every_rule_has_a_case():
    texts = {e.value.text for m in (canonical, copies) for e in m.rule.table.entries()}
    assert sorted(texts) == sorted(CASES)


@pytest.mark.parametrize("text", CASES)
def test_rules(text):
    passes = ("fold", "canonical", "copies")
    for x, build, left in CASES[text]:
        out = build(x)
        one = values(x.type)
        layouts = [one, one.clone().as_strided(one.shape, one.stride())]
        if one.dim() > 1:
            layouts.append(one.transpose(0, -1).contiguous().transpose(0, -1))
        layouts.append(torch.stack([one, one], -1)[..., 0])
        for arg in layouts:
            if "view(" in text and not arg.is_contiguous():
                continue  # which cannot be viewed
            f = check([x], out, [arg], passes=passes)
        found = graph_of(f)
        assert found == [left] if isinstance(left, str) else len(found) == left, (text, found)
        if None in x.type.shape and "expand" not in text:
            empty = torch.zeros([0 if d is None else d for d in x.type.shape])
            check([x], out, [empty], passes=passes)


def test_a_copy_stays_where_it_can_be_seen():
    x = f32(3, 3)
    y = x.exp()
    both = check([x], [y, ops.clone(y)])
    a, b = both(torch.ones(3, 3))
    a.zero_()
    assert b.sum() > 0
    assert "clone" in graph_of(check([x], [y, ops.add_(ops.clone(y), 1.0)]))
    assert "DeepCopyOp" in graph_of(check([x], x.detach()))
    # Here nobody sees it.
    assert graph_of(check([x], ops.clone(y))) == ["exp"]
    assert graph_of(check([x], [ops.clone(y) + 1.0])) == ["exp", "add.Scalar{other=1.0}[in place]"]


def test_a_copy_stays_whose_strides_are_others():
    x = tensor_type(4, 5, dtype="int64")("x")
    every_other = ops.slice(x, 1, 0, 5, 2)
    f = function(x, ops.view(every_other * 1, [12]) - 7, mode="py")
    value = torch.arange(20).reshape(4, 5)
    assert torch.equal(f(value), value[:, ::2].reshape(12) - 7)


def test_constants_are_not_written_into():
    x = tensor_type(3)("x")
    y = ops.relu(constant(torch.tensor([1.0, -1.0, 2.0]))) + x
    f = function(x, y, mode="py", rewrite=["inplace"])
    assert graph_of(f)[0] == "relu"


def test_equal_outputs_stay_apart():
    x = f32(3, 3)
    a, b, c, d = check([x], [x.exp(), x.exp(), x.exp()[::2], x.exp()[::2]])(torch.ones(3, 3))
    kept = b.clone(), d.clone()
    a.zero_()
    c.zero_()
    assert torch.equal(b, kept[0])
    assert torch.equal(d, kept[1])
    # What comes after them is merged all the same.
    f = check([x], [x.exp(), x.exp(), x.exp().sin().cos() + x.exp().sin().cos()])
    assert sorted(s.partition("[")[0] for s in graph_of(f)) == [
        "add.Tensor",
        "cos",
        "exp",
        "exp",
        "sin",
    ]


def test_only_what_is_of_one_type_is_merged():
    x = f32(3)
    a = x.exp()
    wider = Apply(a.owner.op, [x], [tensor_type(None).make_variable()]).outputs[0]
    fgraph = FunctionGraph([x], [a.sum(), wider.sum(), x.sin() + x.sin()])
    assert rewrite(fgraph, "merge") == {"merge": 1}
    assert [str(n.op) for n in fgraph.toposort()].count("exp") == 2
    assert [str(n.op) for n in fgraph.toposort()].count("sin") == 1


def test_a_rule_of_ones_own():
    rules = Rules("mine")

    @rules("log(exp(x)) -> x", "log", copies=True)
    def _(node):
        inner = node.inputs[0].owner
        return inner.inputs[0] if inner is not None and str(inner.op) == "exp" else None

    x = f32(3)
    fgraph = FunctionGraph([x], [ops.log(ops.exp(x)).sum()])
    assert rules.apply(fgraph) == 1
    assert [str(n.op) for n in fgraph.toposort()] == ["sum"]
    # An output would share memory with an input.
    fgraph = FunctionGraph([x], [ops.log(ops.exp(x))])
    assert rules.apply(fgraph) == 0

    viewed = Rules("viewed")

    @viewed("log(exp(x)) -> alias(x)", "log", copies=True)
    def _(node):
        return ops.alias(node.inputs[0].owner.inputs[0])

    # The same by way of a view that the rule makes.
    assert viewed.apply(FunctionGraph([x], [ops.log(ops.exp(x))])) == 0
    assert viewed.apply(FunctionGraph([x], [ops.log(ops.exp(x)).sum()])) == 1


def test_a_rewrite_of_ones_own_comes_where_it_is_wanted(unregistered):
    before = names()
    assert before[-1] == "inplace"

    def first(fgraph):
        return 0

    def second(fgraph):
        return 1

    register_rewrite("second", second)
    register_rewrite("third", second, after="second")
    register_rewrite("fourth", second)
    register_rewrite("last", first, after=None)
    at = before.index("copies") + 1
    assert names() == [*before[:at], "second", "third", "fourth", *before[at:], "last"]
    x = f32(3)
    done = rewrite(FunctionGraph([x], [x.exp()]), ["last", "third"])
    assert done == {"third": 1, "last": 0}
    with pytest.raises(DuplicateError, match=r"rewrite 'second' is .*test_rewrites\.py:"):
        register_rewrite("second", first)
    with pytest.raises(RegistrationError, match="'fifth' cannot come after 'warp': there are fold"):
        register_rewrite("fifth", first, after="warp")


def test_what_was_registered_for_a_while_is_gone():
    before = names()
    with temporary():
        register_rewrite("a", fold.fold)
        with temporary():
            register_rewrite("b", fold.fold)
            register_rewrite("c", fold.fold, after="b")
        assert "b" not in names()
        assert "c" not in names()
        assert "a" in names()
    assert names() == before


# In place


def test_in_place_where_nobody_needs_the_argument():
    x, y = f32(3, 3), f32(3, 3)
    f = check([x, y], ((x + y) * 2.0).relu().sum(), mode="c")
    assert graph_of(f) == ["add.Tensor", "mul.Scalar{other=2.0}[in place]", "relu[in place]", "sum"]
    h = x.exp()
    for outs in (
        [h.relu(), h],  # it is an output
        [h.relu(), h.t()],  # so is a view of it
        [h.relu() + h.t().sum(0)],  # a view is read later
        [x.relu(), y.t().relu()],  # inputs
        [constant(torch.ones(3)).relu() + x],
        [h.relu() + ops.view(h, [9]).sum()],
    ):
        f = check([x, y], outs, mode="c")
        assert "relu[in place]" not in graph_of(f), outs
    # The last reader may.
    assert "relu[in place]" in graph_of(check([x], [h.sum(), h.relu()], mode="c"))
    assert "mul.Tensor[in place]" in graph_of(check([x], h * h))
    assert "add.Tensor[in place]" not in graph_of(check([x], h + h.t()))
    # Through a view, whose source nobody reads any more.
    assert "relu[in place]" in graph_of(check([x], h.t().relu(), mode="c"))


def test_in_place_of_elemwise():
    from pytorch_bridge.ops import scalar

    x = f32(3, 3)
    add, relu = ops.Elemwise(scalar.add), ops.Elemwise(scalar.relu)
    f = check([x], relu(add(x, x)), mode="c", passes=["inplace"])
    assert graph_of(f)[-1] == "relu[in place]"


def test_in_place_is_decided_by_each_call():
    """An open size may be 1, and then what is broadcast is larger than the argument."""
    x, y = f32(None, 3), f32(None, 3)
    x.name, y.name = "x", "y"
    for mode in ("py", "c"):
        f = function([x, y], x.exp() + y, mode=mode, rewrite=MINE)
        assert "add.Tensor[in place]" in graph_of(f)
        for a, b in ((2, 2), (1, 4), (4, 1), (1, 1)):
            p, q = torch.randn(a, 3), torch.randn(b, 3)
            assert facts(f(p, q)) == facts(p.exp() + q)
            q = torch.randn(3, b).t()
            assert facts(f(p, q)) == facts(p.exp() + q)


@pytest.mark.parametrize(
    "sizes", [(2, 3, 4, 5), (1, 3, 4, 5), (2, 1, 4, 5), (2, 3, 1, 1), (0, 3, 4, 5)]
)
def test_in_place_keeps_strides(sizes):
    x, y = f32(None, None, None, None), f32(None, None, None, None)
    x.name, y.name = "x", "y"
    f = function(
        [x, y],
        [ops.clone(x).exp() + y, (ops.clone(x) * 2.0).relu(), ops.relu(ops.clone(x)[:, :1])],
        rewrite=MINE,
    )
    g = function([x, y], f.outputs, rewrite=False)
    one = torch.randn(sizes)
    ways = [
        one,
        one.contiguous(memory_format=torch.channels_last),
        one.transpose(0, 3).contiguous().transpose(0, 3),
        torch.stack([one, one], -1)[..., 0],
        one[:1].expand(sizes) if sizes[0] else one,
    ]
    for a in ways:
        for b in [*ways, torch.randn(1, sizes[1], 1, 1), torch.randn(1, 1, 1, 1)]:
            assert list(map(facts, f(a, b))) == list(map(facts, g(a, b)))


def test_in_place_reuses_memory():
    x = f32(None)
    f = function([x], (x + 1.0).exp().sin(), rewrite=MINE)
    base = live_handles()
    for _ in range(3):
        f(torch.ones(1000))
    gc.collect()
    assert live_handles() == base
    # In Python one can watch it.
    node = InPlace(ops.sin(x).owner.op).make_node(x)
    a = torch.ones(5)
    out = [[None]]
    node.op.perform(node, [a], out)
    assert out[0][0].data_ptr() == a.data_ptr()
    b = torch.ones(6)[1:]
    node.op.perform(node, [b], out)
    assert out[0][0].data_ptr() != b.data_ptr()


def test_in_place_says_what_it_cannot_do():
    x = f32(3)
    with pytest.raises(BridgeTypeError, match=r"softmax.* has no form that writes"):
        InPlace(ops.softmax(x, 0).owner.op)
    op = InPlace(ops.add(x, f32(2, 3)).owner.op)
    with pytest.raises(BridgeTypeError, match="cannot be made in"):
        op.make_node(x, f32(2, 3))
    assert writing_form(native("softmax.int")) is None
    assert writing_form(native("add.Tensor")).name == "add_.Tensor"


def test_the_gradient_of_what_is_in_place():
    x = f32(3)
    f = function([x], (x * 2.0).exp().sum(), rewrite=MINE)
    a = torch.randn(3, requires_grad=True)
    f(a).backward()
    assert torch.allclose(a.grad, 2 * torch.exp(2 * a.detach()))


def _laid_out(t, way):
    """The tensor with other strides."""
    if way == 1:
        return t.transpose(0, -1).contiguous().transpose(0, -1)
    if way == 2:
        return t.transpose(-2, -1).contiguous().transpose(-2, -1)
    if way == 3:
        return torch.stack([t, t], -1)[..., 0]
    return t


def _sweep():
    """Calls of the operator database with arguments laid out in several ways: the node, its values
    and its results."""
    for _, called, bound in operator_database.calls(2):
        if called.random or called.returns_written or "out" in called.function.tags:
            continue
        for way in range(4):
            tensors = []

            def variable(t, way=way, tensors=tensors):
                dense = t.layout == torch.strided and not t.is_nested and t.dim() > 1
                tensors.append(_laid_out(t, way) if dense else t)
                return constant(tensors[-1]).type.make_variable()

            try:
                node = called.apply(_pytree.tree_map_only(torch.Tensor, variable, bound))
                if node.op.destroy_map:
                    continue
                results = [[None] for _ in node.outputs]
                node.op.perform(node, tensors, results)
            except Exception:
                continue  # not for these strides
            yield node, tensors, [r[0] for r in results]


def test_layouts_are_as_the_tables_say():
    """What rewrites take for granted of strides holds of PyTorch's kernels."""
    in_place = 0
    for node, tensors, results in _sweep():
        for v, r in zip(node.outputs, results, strict=True):
            if not isinstance(r, torch.Tensor) or r.layout != torch.strided or r.is_nested:
                continue
            assert is_dense(r) or not known_strides.dense(v), node.op
            new = torch.empty(r.shape, device="meta").stride()
            assert r.stride() == new or not known_strides.row_major(v), node.op
        if type(node.op) is not NativeOp or writing_form(node.op.native) is None:
            continue
        op = InPlace(node.op) if node.op.places["self"] else None
        if op is None or not op.fits(node):
            continue
        x = tensors[op.place]
        mine = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype) if is_dense(x) else None
        if mine is None or mine.stride() != x.stride():
            continue
        tensors[op.place] = mine.copy_(x)
        got = [[None]]
        op.perform(op.of(node), tensors, got)
        in_place += got[0][0].data_ptr() == mine.data_ptr()
        assert facts(got[0][0]) == facts(results[0]), node.op
    assert in_place > 50


@pytest.mark.parametrize("sizes", [(2, 3), (1, 3), (2, 1), (1, 1), (0, 3)])
def test_products_are_row_major(sizes):
    n, m = sizes
    for a in (torch.randn(n, m), torch.randn(m, n).t(), torch.randn(n, 2 * m)[:, ::2]):
        for name, args in {
            "mm": (a, torch.randn(5, m).t()),
            "addmm": (torch.randn(1, 4).expand(n, 4), a, torch.randn(m, 4)),
            "linear": (a, torch.randn(4, m), torch.randn(4)),
            "bmm": (a.t()[None].mT, torch.randn(4, m)[None].mT),
            "softmax.int": (a, 0),
            "layer_norm": (a, [m]),
            "embedding": (a, torch.zeros(3, 2, dtype=torch.int64)),
            "index_select": (a, 1, torch.zeros(2, dtype=torch.int64)),
        }.items():
            if n == 0 and name in ("embedding",):
                continue
            node = native(name).make_node(*args)
            assert known_strides.row_major(node.outputs[0])
            got = native(name).torch_op(*args)
            assert got.stride() == torch.empty(got.shape, device="meta").stride(), (
                name,
                a.stride(),
            )


# Memory


def _peak(f):
    """The most bytes that tensors had while f ran, beyond those that there were."""
    f()
    with torch.profiler.profile(profile_memory=True) as profile:
        f()
    events = profile.profiler.kineto_results.events()
    steps = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    now = most = 0
    for _, n in steps:
        now += n
        most = max(most, now)
    return most


def test_a_network_needs_no_more_memory_than_eager():
    """Values are given back after their last use; so are those that only a view was left of."""

    def block(x, w1, w2, f):
        h = f.relu(f.conv2d(x, w1, None, [1, 1], [1, 1]))
        return f.relu(f.conv2d(h, w2, None, [1, 1], [1, 1]) + x)

    def network(x, weights, f):
        for i in range(0, len(weights), 2):
            x = block(x, weights[i], weights[i + 1], f)
            x = f.transpose(f.transpose(x, 2, 3) * 2.0, 2, 3)
        return f.flatten(x, 1)

    weights = [torch.randn(8, 8, 3, 3) for _ in range(8)]
    x = TensorType("float32", (None, 8, 32, 32))("x")
    f = function([x], network(x, [constant(w) for w in weights], ops))
    a = torch.randn(2, 8, 32, 32)
    with torch.inference_mode():
        want = network(a, weights, torch)
        eager = _peak(lambda: network(a, weights, torch))
    plain = function([x], f.outputs, rewrite=False)
    assert facts(f(a)) == facts(plain(a)[0]) == facts(want)
    assert 0 < _peak(lambda: f(a)) <= _peak(lambda: plain(a)) <= eager


def test_dimensions_that_are_inputs():
    x, d = f32(2, 3), schema_type("int")("d")
    for body in (
        ops.squeeze(x, d),
        ops.narrow(x, d, 0, 2),
        ops.squeeze(ops.unsqueeze(x, 0), d),
        ops.squeeze(ops.unsqueeze(x, d), 0),
    ):
        plain = function([x, d], body, "py", rewrite=False)
        value = torch.randn(2, 3)
        assert facts(function([x, d], body, "py")(value, 1)) == facts(plain(value, 1))


# Validated or reverted


class Objects(Feature):
    """Refuses graphs with an op."""

    def __init__(self, text):
        self.text = text

    def validate(self, fgraph):
        if any(self.text in str(n.op) for n in fgraph.apply_nodes):
            raise pb.InconsistencyError(self.text)


def test_what_is_refused_is_taken_back_alone():
    x = f32(3)
    out = (x.exp().sin() * ops.detach(ops.detach(x.cos()))).relu()
    fgraph = FunctionGraph([x], [out])
    fgraph.attach_feature(DestroyHandler(set(fgraph.inputs)))
    fgraph.attach_feature(Objects("sin[in place]"))
    rewrite(fgraph, MINE)
    fgraph.check()
    assert [str(n.op) for n in fgraph.toposort()] == [
        "exp", "sin", "cos", "mul.Tensor[in place]", "relu[in place]",
    ]  # fmt: skip


def test_trials_are_taken_back():
    x = f32(3)
    fgraph = FunctionGraph([x], [x.exp().sin()])
    before = str(fgraph)

    def fails():
        with fgraph.trial("test"):
            fgraph.replace(fgraph.outputs[0], ops.cos(fgraph.inputs[0]))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    fgraph.check()
    assert str(fgraph) == before


def test_what_writes_and_what_draws_stays():
    x, m, v = f32(4, 2), f32(2), f32(2)
    m.name, v.name = "m", "v"
    y = ops.batch_norm(x, None, None, m, v, True, 0.1, 1e-5, False)
    f = function([x, m, v], [y, ops.rand([2])], mode="py", mutable=[m, v])
    assert any(s.startswith("batch_norm") for s in graph_of(f))
    assert any(s.startswith("rand") for s in graph_of(f))
    mean, var = torch.zeros(2), torch.ones(2)
    f(torch.ones(4, 2), mean, var)
    assert mean.tolist() == pytest.approx([0.1, 0.1])
    # What nobody uses is not computed, and what it would have needed is not either.
    h = x.exp()
    unused = h.sin()
    assert graph_of(function([x], h, mode="py")) == ["exp"]
    del unused


# Large graphs


def test_ten_thousand_nodes_are_visited_a_few_times(monkeypatch):
    visits = 0
    made = Apply.__init__

    def counted(self, *args):
        nonlocal visits
        visits += 1
        made(self, *args)

    x = f32(None, 3)
    out = x
    for _ in range(N // 4):
        out = ops.detach(out.relu().relu() + 1.0).exp()
    fgraph = FunctionGraph([x], [out])
    fgraph.attach_feature(DestroyHandler(set(fgraph.inputs)))
    validated = 0
    validate = DestroyHandler.validate

    def watched(self, fgraph):
        nonlocal validated
        validated += 1
        validate(self, fgraph)

    monkeypatch.setattr(Apply, "__init__", counted)
    monkeypatch.setattr(DestroyHandler, "validate", watched)
    done = rewrite(fgraph, MINE)
    assert done["canonical"] >= N // 4
    assert done["inplace"] >= 3 * (N // 4) - 1
    assert visits <= 2 * N
    assert validated <= 2 * len(names())
    fgraph.check()


# Whole graphs at random

_UNARY = ["relu", "neg", "abs", "floor", "exp", "detach", "clone", "contiguous", "alias", "sigmoid"]
_BINARY = ["add", "mul", "sub", "maximum"]


@st.composite
def graphs(draw):
    """Inputs, and outputs that a few ops make of them."""
    a, b = f32(2, 3), f32(None, 3)
    a.name, b.name = "a", "b"
    k = constant(torch.tensor([[1.0, -0.0, float("nan")], [2.0, 0.5, -3.0]]), "k")
    pool = [a, b, k]
    for _ in range(draw(st.integers(1, 12))):
        x = draw(st.sampled_from(pool[-6:]))
        kind = draw(st.integers(0, 9))
        if kind < 3:
            y = getattr(ops, draw(st.sampled_from(_UNARY)))(x)
        elif kind < 5:
            other = draw(st.sampled_from(pool))
            try:
                y = getattr(ops, draw(st.sampled_from(_BINARY)))(x, other)
            except BridgeTypeError:
                continue
        elif kind == 5 and x.type.ndim == 2:
            y = x.t()
        elif kind == 6:
            y = x[draw(st.sampled_from([slice(None), slice(1, None), slice(None, None, 2)]))]
        elif kind == 7:
            y = draw(st.sampled_from([lambda v: v * 1.0, lambda v: v + 0.0, lambda v: v * 2]))(x)
        elif kind == 8:
            y = ops.add_(draw(st.sampled_from([x, ops.clone(x), x.exp()])), 1.0)
        else:
            y = deep_copy_op(x)
        pool.append(y)
    n = draw(st.integers(1, 3))
    return [a, b], [draw(st.sampled_from(pool[3:] or pool)) for _ in range(n)]


@settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(graphs(), st.integers(0, 2), st.sampled_from([0, 1, 2]))
def test_random_graphs(graph, seed, rows):
    inputs, outputs = graph
    try:
        plain = function(inputs, outputs, mode="py", rewrite=False)
    except pb.InconsistencyError:
        return
    a = values(inputs[0].type, seed)
    b = values(tensor_type(rows, 3), seed + 1)
    args = [a, b] if seed else [a.t().contiguous().t(), torch.stack([b, b], -1)[..., 0]]
    before = list(map(facts, args))

    def run(f):
        try:
            return f(*args)
        except RuntimeError as e:
            return str(e).partition("\n")[0]

    want = run(plain)
    f = function(inputs, outputs, mode="py", rewrite=MINE)
    f.fgraph.check()
    f.fgraph.validate()
    got = run(f)
    assert list(map(facts, args)) == before
    if isinstance(want, str):
        assert isinstance(got, str)
        return
    assert list(map(facts, got)) == list(map(facts, want))
    # What lies in one memory did so before, and still does.
    for i, p in enumerate(got):
        assert not any(TensorType.may_share_memory(p, x) for x in args)
        assert not any(
            TensorType.may_share_memory(p, v.data)
            for v in f.fgraph.variables
            if isinstance(v, Constant)
        )
        for j in range(i):
            shared = TensorType.may_share_memory(want[i], want[j])
            assert TensorType.may_share_memory(p, got[j]) == shared


@pytest.mark.parametrize("recorded", [False, True])
def test_a_folded_constant_is_to_kernels_what_it_stands_for(recorded):
    """Whether a gradient is asked for, strides, offset and lazy bits: matmul and linear choose by
    them how they compute."""
    data = torch.randn(4, 6, dtype=torch.complex64).requires_grad_(recorded)
    A = torch.ops.aten
    for build in (
        lambda B, p: B.t(p),
        lambda B, p: B.slice(B.transpose(p, 0, 1), 0, 1, 4),
        lambda B, p: B.expand(B.select(p, 0, 2), [3, 6]),
        lambda B, p: B._conj(p),
        lambda B, p: B.detach(p),
        lambda B, p: B.contiguous(p),
        lambda B, p: B.contiguous(B.t(p)),
        lambda B, p: B.mul(p, 2),
    ):
        with torch.no_grad():
            expected = build(A, data)
        for mode in (torch.inference_mode, torch.enable_grad):
            leaf = TensorConstant(constant(data).type, data)
            with mode(), torch.autocast("cpu"):
                graph = FunctionGraph([], [ops.mul(build(ops, leaf), ops.rand([1]))])
                rewrite(graph, ["fold"])
            (found,) = [v.data for v in graph.variables if isinstance(v, Constant)]
            for fact in ("requires_grad", "shape", "dtype"):
                assert getattr(found, fact) == getattr(expected, fact)
            for fact in ("stride", "storage_offset", "is_conj", "is_neg", "is_inference"):
                assert getattr(found, fact)() == getattr(expected, fact)()
            assert found.data_ptr() % 64 == expected.data_ptr() % 64
            assert torch.equal(found, expected)


class Look(pb.Op):
    """Tells whether what a kernel gets requires a gradient."""

    __props__ = ("name",)
    random = True  # it looks each time
    seen: dict[str, bool] = {}  # noqa: RUF012

    def __init__(self, name):
        self.name = name

    def make_node(self, x):
        return Apply(self, [x], [tensor_type()()])

    def perform(self, node, inputs, output_storage):
        self.seen[self.name] = inputs[0].requires_grad
        output_storage[0][0] = torch.zeros(())


@pytest.mark.parametrize("mode", ["py", "c"])
def test_views_of_parameters_are_to_kernels_what_they_are_in_eager(mode):
    """linear chooses by it how it computes, under no_grad too: of all functions in PyTorch's operator
    database, it alone."""
    data = torch.randn(6, 5, requires_grad=True)
    n, x = schema_type("int")("n"), tensor_type(None)("x")
    builds = {
        "itself": lambda B, p, n: B.alias(p),
        "slice": lambda B, p, n: B.slice(p, 0, 0, n),
        "expand": lambda B, p, n: B.expand(p, [n, 6, 5]),
        "view": lambda B, p, n: B.view(p, [n, -1]),
        "reshape": lambda B, p, n: B.reshape(p, [n, -1]),
        "turned": lambda B, p, n: B.t(B.slice(p, 0, 0, n)),
        "contiguous": lambda B, p, n: B.contiguous(B.slice(p, 0, 0, n)),
        "new": lambda B, p, n: B.mul(B.slice(p, 0, 0, n), 2.0),
        # What rules take out or put in the place of something else.
        "detached": lambda B, p, n: B.t(B.detach(p)),
        "detached view": lambda B, p, n: B.detach(B.slice(p, 0, 0, n)),
        "detached once": lambda B, p, n: B.slice(B.detach(p), 0, 0, n),
        "copy": lambda B, p, n: B.clone(p),
        "twice": lambda B, p, n: B.neg(B.neg(p)),
        "turned twice": lambda B, p, n: B.t(B.t(p)),
    }
    leaf = TensorConstant(constant(data).type, data, "p")
    with torch.no_grad():
        expected = {k: build(torch.ops.aten, data, 2).requires_grad for k, build in builds.items()}
    assert set(expected.values()) == {True, False}
    looks = [Look(k)(build(ops, leaf, n)) for k, build in builds.items()]
    for passes in (True, [p for p in names() if p != "fold"], False):
        f = function([n, x], [*looks, x * 2], mode, rewrite=passes)
        for grad in (torch.no_grad, torch.enable_grad):
            Look.seen.clear()
            with grad():
                f(2, torch.ones(3))
            assert Look.seen == expected


def test_constants_of_another_alignment_are_not_one():
    data = torch.arange(40.0)
    a, b = data[:8].clone(), torch.cat([data[:1], data[:8]])[1:]
    graph = FunctionGraph([], [ops.add(constant(a), constant(b))])
    rewrite(graph, ["merge"])
    assert len({v for v in graph.variables if isinstance(v, Constant)}) == 2
    graph = FunctionGraph([], [ops.add(constant(a), constant(a.clone()))])
    rewrite(graph, ["merge"])
    assert len({v for v in graph.variables if isinstance(v, Constant)}) == 1


def test_outputs_that_are_equal_to_one_that_nobody_gets_stay_apart():
    """Each of them could be merged with the one inside, and then they would be one tensor."""
    x = f32(4)
    y = x[1:]
    f = function([x], [y.clone().sum(), y.clone(), y.clone()], mode="py")
    _, first, second = f(torch.ones(4))
    first.add_(1)
    assert second.tolist() == [1, 1, 1]
