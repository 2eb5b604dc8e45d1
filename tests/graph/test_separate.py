"""What is written into, and who else lies there: inputs that overlap, and arguments of one function."""

from __future__ import annotations

import itertools

import pytest
import torch

from pytorch_bridge import (
    FunctionGraph,
    GradientError,
    InconsistencyError,
    TensorType,
    function,
    ops,
)
from pytorch_bridge.aliasing.destroy import DestroyHandler
from pytorch_bridge.aliasing.unalias import overlap

MODES = ("c_only", "py", "debug")


def matrix(name):
    return TensorType("float32", (None, None))(name)


def numbers(*shape):
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).view(shape)


@pytest.mark.parametrize("mode", MODES)
def test_what_is_read_is_its_value_before(mode):
    v, w = matrix("v"), matrix("w")
    f = function([v, w], [ops.add_(v, 1), w * 2], mode, mutable=[v])
    base = numbers(4, 4)
    views = {
        "the same": lambda t: (t, t),
        "a view of all": lambda t: (t, t.view(4, 4)),
        "transposed": lambda t: (t, t.t()),
        "overlapping rows": lambda t: (t[:3], t[1:]),
        "overlapping columns": lambda t: (t[:, :3], t[:, 1:]),
        "expanded": lambda t: (t, t[0].expand(4, 4)),
        "apart": lambda t: (t[:2], t[2:]),
        "columns apart": lambda t: (t[:, :2], t[:, 2:]),
        "no elements": lambda t: (t[:0], t[:0]),
    }
    for name, view in views.items():
        t, expected = base.clone(), base.clone()
        a, b = view(t)
        old = b.clone()
        view(expected)[0].add_(1)
        changed, doubled = f(a, b)
        assert torch.equal(doubled, old * 2), name
        assert torch.equal(t, expected), name
        assert torch.equal(changed, a), name


@pytest.mark.parametrize("mode", MODES)
def test_two_that_are_written_into_must_not_overlap(mode):
    v, w = matrix("v"), matrix("w")
    f = function([v, w], [ops.add_(v, 1), ops.mul_(w, 2)], mode, mutable=[v, w])
    t = numbers(4, 4)
    for a, b in ((t, t), (t, t.t()), (t[:3], t[1:]), (t[:, :3], t[:, 2:]), (t, t[1:2])):
        with pytest.raises(ValueError, match=r"input 0 \(v\) and input 1 \(w\) are both written"):
            f(a, b)
        assert torch.equal(t, numbers(4, 4))
    for a, b in ((t[:2], t[2:]), (t[:, ::2], t[:, 1::2]), (t[:, :1], t[:, 3:])):
        before = a.clone(), b.clone()
        f(a, b)
        assert torch.equal(a, before[0] + 1)
        assert torch.equal(b, before[1] * 2)
    with pytest.raises(ValueError, match=r"input 1 \(w\) is written into, and several of its el"):
        f(t, numbers(4).expand(4, 4))
    x = (numbers(4, 4).requires_grad_() * 1,) * 2
    with pytest.raises(ValueError, match="share memory"):
        f(*x)
    with pytest.raises(GradientError):
        f(numbers(4, 4).requires_grad_(), numbers(4, 4))


def test_whether_tensors_overlap():
    """Against counting: the C and the Python form, on slices of one tensor."""
    v, w = (TensorType("int64", (None, None))(n) for n in "vw")
    f = function([v, w], [ops.add_(v, 1), ops.mul_(w, 2)], "c_only", mutable=[v, w])
    t = torch.zeros(5, 6, dtype=torch.int64)
    cuts = [slice(0, 2), slice(1, 4, 2), slice(0, None, 2), slice(3, None)]
    views = [t[i, j] for i in cuts for j in cuts]
    views += [t.view(-1)[1:25].view(4, 6), t.t()[1:3], t.view(-1)[::5].view(2, 3)]
    # The same memory in a storage of its own, as what NumPy has made comes.
    foreign = [torch.from_numpy(v.numpy()) for v in views[::3]]
    seen = set()
    for a, b in itertools.product(views, [*views, *foreign]):
        t.zero_()
        a.add_(1)
        b.add_(1)
        expected = bool((t == 2).any())
        seen.add(expected)
        assert overlap(a, b) is expected
        if expected:
            with pytest.raises(ValueError, match=r"0 \(v\) and input 1 .* share memory"):
                f(a, b)
        else:
            f(a, b)
    assert seen == {False, True}


CONFLICTS = {
    "sub_ of a row": lambda A, x, old: A.sub_(x, A.expand(A.select(old, 0, 0), [3, 3])),
    "add_ of the transposed": lambda A, x, old: A.add_(x, A.t(old)),
    "copy_ of the diagonal": lambda A, x, old: A.copy_(x, A.expand(A.diagonal(old), [3, 3])),
    "addmm_": lambda A, x, old: A.addmm_(x, old, A.t(old)),
    "masked_scatter_": lambda A, x, old: A.masked_scatter_(x, A.gt(old, 2), A.t(old)),
    "index_add_": lambda A, x, old: A.index_add_(x, 0, torch.tensor([2, 0]), A.slice(old, 0, 1, 3)),
    "scatter_": lambda A, x, old: A.scatter_(x, 0, torch.tensor([[2, 1, 0]]), A.flip(old, [0])),
    "lerp_": lambda A, x, old: A.lerp_(x, A.t(old), old),
    "mm.out": lambda A, x, old: A.mm.out(old, old, out=x),
    "mv.out": lambda A, x, old: A.mv.out(old, A.select(old, 0, 1), out=A.select(x, 0, 0)),
    "mul_ of itself": lambda A, x, old: A.mul_(x, old),
    "addcmul_": lambda A, x, old: A.addcmul_(x, old, A.t(old)),
    "half of the other": lambda A, x, old: A.add_(A.slice(x, 0, 0, 2), A.slice(old, 0, 1, 3)),
}


@pytest.mark.parametrize("case", CONFLICTS)
def test_arguments_that_lie_in_what_a_function_writes_into(case):
    f = CONFLICTS[case]
    x = matrix("x")
    for mode in ("c_only", "py"):
        g = function([x], f(ops, x, x), mode, mutable=[x])
        t = numbers(3, 3)
        expected = numbers(3, 3)
        result = f(torch.ops.aten, expected, numbers(3, 3))
        assert torch.equal(g(t), result)
        assert torch.equal(t, expected)


def test_batches():
    x = TensorType("float32", (None, None, None))("x")
    t = numbers(2, 3, 3) / 10
    for f in (
        lambda A, x, old: A.baddbmm_(x, old, A.transpose(old, 1, 2)),
        lambda A, x, old: A.bmm.out(old, A.transpose(old, 1, 2), out=x),
    ):
        g = function([x], f(ops, x, x), "c_only")
        assert torch.equal(g(t), f(torch.ops.aten, t.clone(), t))


def test_nothing_is_copied_in_vain():
    x = matrix("x")
    g = function([x], ops.mul_(x, x), "c_only", mutable=[x])
    assert [str(n.op) for n in g.fgraph.toposort()] == ["mul_.Tensor"]
    g = function([x], ops.add_(x[:2], x[2:]), "c_only", mutable=[x])
    t = numbers(4, 2)
    assert g(t).data_ptr() == t.data_ptr()
    assert torch.equal(t[:2], numbers(4, 2)[:2] + numbers(4, 2)[2:])


def test_what_nobody_separates_is_refused():
    x, y = matrix("x"), matrix("y")
    for f in (lambda v, w: ops.addmm_(v, w, w), lambda v, w: ops.add_(v, ops.t(w))):
        with pytest.raises(InconsistencyError, match=r"destroys x .*, which its input 1"):
            FunctionGraph([x], [f(x, x)], [DestroyHandler()])
        FunctionGraph([x, y], [f(x, y)], [DestroyHandler()])
    # Merging two equal arguments would make one tensor of them.
    a, b = ops.exp(x), ops.exp(x)
    g = function([x], ops.addmm_(a, b, b), "c_only")
    t = numbers(3, 3) / 10
    assert torch.equal(g(t), torch.addmm(t.exp(), t.exp(), t.exp()))
    x1, x2 = ops._foreach_exp([x, x])
    with pytest.raises((InconsistencyError, ValueError)):
        function([x1.owner.inputs[0]], ops._foreach_add_.Scalar([x, x], 1), "py", mutable=[x])(t)
    assert torch.equal(t, numbers(3, 3) / 10)
    assert x2 is not None


@pytest.mark.parametrize("mode", ["py", "c"])
def test_what_is_written_into_is_not_converted(mode):
    """It would be a copy of the caller's that changes."""
    v, w = (TensorType("float32", (None,))(n) for n in "vw")
    f = function([v, w], [ops.add_(v, 1), w * 2], mode, mutable=[v, w])
    t = torch.ones(2)
    for other in (torch.ones(2, dtype=torch.float64), torch.ones(2, dtype=torch.int64), [1.0, 1.0]):
        with pytest.raises(TypeError, match=r"input 0 \(v\): .* it is written into, so"):
            f(other, t)
        assert list(other) == [1, 1]
        # What is only read may be.
        assert torch.equal(f(torch.ones(2), other)[1], t * 2)
    with pytest.raises(TypeError, match=r"1 dimensions are expected, got 2$"):
        f(torch.ones(1, 2), t)
    array = torch.ones(2).numpy()
    f(array, t)
    assert array.tolist() == [2, 2]
