"""What is written into a part of a tensor is written at once, and where the tensor is."""

from __future__ import annotations

import os
import random

import pytest
import torch
import writing_modules
import written_parts

import pytorch_bridge as pb
from pytorch_bridge import TensorType, function, ops, schema_type
from pytorch_bridge.aliasing.partial_writes import Written, can_be_written
from pytorch_bridge.errors import BridgeTypeError
from pytorch_bridge.ops.from_fx import UnsupportedNode
from pytorch_bridge.ops.native import constant

PARTS = 10
COUNT = 200  # in Python, and a few of them compiled
SEED = int(os.environ.get("SEED", "0"))


def f32(*sizes, name=None):
    return TensorType("float32", sizes)(name)


def written(f):
    """The writes of a compiled graph: whether each is in place."""
    return [n.op.in_place for n in f.fgraph.toposort() if isinstance(n.op, Written)]


def names(f):
    ops = [n.op for n in f.fgraph.toposort()]
    return ["Written" if isinstance(op, Written) else str(op).partition("{")[0] for op in ops]


def same(f, plain, *args):
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    given = list(map(written_parts.facts, tensors))
    got, want = f(*args), plain(*args)
    got, want = (r if isinstance(r, list) else [r] for r in (got, want))
    assert list(map(written_parts.facts, got)) == list(map(written_parts.facts, want))
    assert list(map(written_parts.facts, tensors)) == given


def both(inputs, outputs, *args, mode="py"):
    """The function, once its results have been compared with those without rewrites."""
    f = function(inputs, outputs, mode=mode)
    same(f, function(inputs, outputs, "py", rewrite=False), *args)
    return f


@pytest.mark.parametrize("part", range(PARTS))
def test_random_writes_are_what_eager_says(part):
    writes = here = 0
    for seed in range(part, COUNT, PARTS):
        n, m = written_parts.check(seed)
        writes, here = writes + n, here + m
    written_parts.check(part, "c")
    assert 0 < here < writes


@pytest.mark.parametrize("part", range(4))
def test_random_modules_are_what_the_program_says(part):
    """`make soak-graphs` runs more; `SEED=n` begins at n."""
    went = [writing_modules.check(seed) for seed in range(SEED + part, SEED + 20, 4)]
    assert any(how.startswith("direct") for how in went), went


def slices(x, y):
    x = x * 2
    x[1:, 1:] += y
    x[0] = 3
    x[:, 0] *= 2
    return x.exp()


def a_view_that_is_older(x, y):
    x = x * 2
    row, column, turned = x[1], x[:, 1:], x.t()
    row.add_(1)
    column[0].mul_(y[0, 0])
    turned[0, 1:] = y[0]
    x.diagonal().zero_()
    x[None].squeeze(0).unsqueeze(1)[0].neg_()
    return row + 0, column.sum(1), turned * 2, x


def what_is_given(x, y):
    x[1:].mul_(2)
    y.unbind(0)
    return x[1] + y[0, 0]


def all_of_it(x, y):
    x = x * 2
    first = x[0]
    x.index_fill_(1, torch.tensor([0]), 5.0)
    x += 1
    return first, x, y


def parts_of_lists(x, y):
    first, second = x.split(2, 1)
    first.add_(second)
    column = x.unbind(1)[0]
    column.mul_(3)
    z = x * 2
    a, b = z.split_with_sizes([1, 2])
    rows = b.unbind()
    rows[1][1:] = y[0]
    b.neg_()
    return first, second, column, a, b, rows[1], z


def what_is_asserted_about(x, y):
    torch._assert_async((x == x).all())
    x.mul_(2)
    row, flat = x[0], x.t().reshape(-1)
    torch._assert_async(row.max() < 1000)
    torch._assert_async(flat.min() > -1000)
    row.add_(1)
    flat.mul_(2)
    return row, flat, x * 1


def what_is_drawn(x, y):
    z = x * 2
    z.t()[1:].normal_()
    torch.nn.functional.dropout(z.t(), 0.5, inplace=True)
    first, second = z.split(2, 1)
    second.uniform_()
    z.t().reshape(-1)[:2].exponential_()
    return z * 1, first * 1


@pytest.mark.parametrize(
    "forward",
    [
        *(slices, a_view_that_is_older, what_is_given, all_of_it, parts_of_lists),
        *(what_is_asserted_about, what_is_drawn),
    ],
)
def test_a_program_that_writes_into_views_is_taken_as_it_is(forward, monkeypatch):
    """Making it functional takes torch a hundred times as long as importing it."""
    module = type("Module", (torch.nn.Module,), {"forward": staticmethod(forward)})()
    args = torch.randn(3, 3), torch.randn(2, 2)
    program = torch.export.export(module, tuple(t.clone() for t in args))

    def refused(*args, **kwargs):
        raise AssertionError("run_decompositions")

    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", refused)
    compiled = pb.from_exported(program).compile("py")
    mine, theirs = ([t.clone() for t in args] for _ in range(2))
    torch.manual_seed(0)
    got = compiled(*mine)
    torch.manual_seed(0)
    want = program.module()(*theirs)
    got, want = (r if isinstance(r, tuple) else (r,) for r in (got, want))
    assert all(map(torch.equal, got, want))
    assert all(map(torch.equal, mine, theirs))


def views_that_a_call_finds(x):
    """Functions whose results may be views by the sizes or the strides, or of which no function
    takes a written part back."""
    x.unfold(1, 2, 2).add_(1)
    x.sum_to_size(3, 4).mul_(2)
    torch.einsum("ij->ji", x)[0].sub_(1)
    torch.einsum("ij,jk->ik", x, x.t())[0].sub_(1)
    spread, row = torch.broadcast_tensors(x, x[0] * 2)
    spread.add_(row)
    torch.meshgrid(x[0], x[1, :1], indexing="ij")[0].mul_(2)
    x.tensor_split((1, 2), 1)[1].mul_(3)
    torch.cartesian_prod(x[2]).neg_()
    torch.atleast_3d(x)[:, :2].mul_(2)
    kept = x.unfold(0, 1, 1)
    x.view(torch.int32)[:1].zero_()
    n = x.shape[0]
    x.narrow(0, 1, n - 1).exp_()
    (x + 1).as_strided((2, 2), (1, 2), 1).zero_()
    return x.sum(0), x * 1, spread * 1, kept * 1


def parts_of_complex_numbers(x):
    x.imag.add_(1)
    x.conj().mul_(2)
    torch.view_as_real(x)[0].zero_()
    x.real.mul_(3)
    x.conj().imag.sub_(1)
    x.mH.add_(1j)
    return x * 1, x.sum(0)


@pytest.mark.parametrize("mode", ["py", "c"])
@pytest.mark.parametrize(
    ("forward", "dtype"),
    [(views_that_a_call_finds, torch.float32), (parts_of_complex_numbers, torch.complex64)],
)
def test_whether_a_function_returned_a_view_is_found_by_each_call(
    forward, dtype, mode, monkeypatch
):
    module = type("Module", (torch.nn.Module,), {"forward": staticmethod(forward)})()
    rows = ({0: torch.export.Dim.AUTO},) if dtype.is_complex else None
    program = torch.export.export(module, (torch.ones(3, 4, dtype=dtype),), dynamic_shapes=rows)
    monkeypatch.delattr(torch.export.ExportedProgram, "run_decompositions")
    compiled = pb.from_exported(program).compile(mode)
    for i, layout in enumerate(writing_modules.LAYOUTS):
        value = layout(writing_modules.drawn(random.Random(i), (3, 4), dtype))
        mine, theirs = (writing_modules.again(value) for _ in range(2))
        got, want = compiled(mine), program.module()(theirs)
        for a, b in zip([*got, mine], [*want, theirs], strict=True):
            assert writing_modules.bits(a) == writing_modules.bits(b)


def test_the_place_of_an_argument_in_its_storage_is_not_known():
    def forward(x):
        x.as_strided((2,), (1,), 1).add_(1)
        return x * 1

    module = type("Module", (torch.nn.Module,), {"forward": staticmethod(forward)})()
    with pytest.raises(UnsupportedNode, match="places in the storage"):
        pb.from_exported(torch.export.export(module, (torch.ones(3),)))


def test_an_operator_that_writes_into_two_parts_of_one_tensor_is_named():
    def forward(x):
        z = x * 2
        torch.ops.writing.exchange(z[0], z[1], 0)
        return z

    module = type("Module", (torch.nn.Module,), {"forward": staticmethod(forward)})()
    program = torch.export.export(module, (torch.ones(2, 3),))
    with pytest.raises(UnsupportedNode, match="writing::exchange writes into tensors that share"):
        pb.from_exported(program)


def an_assertion_without_a_message(x, y):
    torch._assert_async((x > 0).all())
    with torch.autocast("cpu", torch.bfloat16):
        return x @ y


def what_is_drawn_into(x, y):
    z = x * 2
    z.t().bernoulli_()
    with torch.autocast("cpu", torch.bfloat16):
        return x @ y, z


@pytest.mark.parametrize(
    ("forward", "text"),
    [
        (an_assertion_without_a_message, "drops an assertion without a message"),
        (what_is_drawn_into, "draws random numbers into a tensor"),
    ],
)
def test_a_program_of_which_torch_would_make_another_is_refused(forward, text):
    module = type("Module", (torch.nn.Module,), {"forward": staticmethod(forward)})()
    program = torch.export.export(module, (torch.ones(2, 2), torch.ones(2, 2)))
    with pytest.raises(UnsupportedNode, match=text):
        pb.from_exported(program)


def test_a_conversion_under_autocast_to_another_dtype_is_a_copy():
    def forward(x, y):
        with torch.autocast("cpu", torch.bfloat16):
            z = x @ y
            w = z.float()
            w.mul_(2)
            z.add_(1)
        x.sub_(1)
        return z, w

    module = type("Module", (torch.nn.Module,), {"forward": staticmethod(forward)})()
    args = torch.randn(2, 2), torch.randn(2, 2)
    program = torch.export.export(module, tuple(t.clone() for t in args))
    mine, theirs = ([t.clone() for t in args] for _ in range(2))
    got, want = pb.from_exported(program).compile("py")(*mine), program.module()(*theirs)
    assert all(map(torch.equal, got, want))
    assert all(map(torch.equal, mine, theirs))


class Pooled(torch.nn.Module):
    """What MViT does: the rows behind the first get what belongs to their place."""

    def __init__(self):
        super().__init__()
        self.project = torch.nn.Linear(6, 6)
        self.place = torch.nn.Parameter(torch.randn(1, 1, 4, 4))

    def forward(self, x):
        q, k, v = (self.project(x) * n for n in (1, 2, 3))
        attention = q @ k.transpose(-1, -2)
        attention[:, :, 1:, 1:] += self.place
        out = attention.softmax(-1) @ v
        out[:, :, 1:] += q[:, :, 1:]
        return out


def test_a_residual_of_a_part_is_added_where_it_is():
    module, rows = Pooled(), torch.export.Dim("rows", min=2, max=64)
    example = torch.randn(3, 2, 5, 6)
    program = torch.export.export(module, (example,), dynamic_shapes=({0: rows},))
    compiled = pb.from_exported(program).compile()
    f = compiled.function
    # Two for the ten functions that copy: one for each view, and for what Python assigns back.
    assert written(f) == [True, True]
    assert not {"slice_scatter", "copy", "add.Tensor"}.intersection(names(f))
    with torch.no_grad():
        for n in (3, 2, 7):
            x = torch.randn(n, 2, 5, 6)
            assert torch.equal(compiled(x), program.module()(x))


def test_what_somebody_reads_later_is_copied_once():
    x, y = f32(4, 5, name="x"), f32(3, 2, name="y")
    a = ops.exp(x)
    part = a[1:][:, 1:3]
    new = ops.slice_scatter(a, ops.slice_scatter(a[1:], ops.add(part, y), 1, 1, 3), 0, 1, 2**63 - 1)
    args = torch.randn(4, 5), torch.randn(3, 2)
    for outputs, places in (
        ([new], [True]),
        ([new, a], [False]),
        ([new, a[0]], [False]),
        ([a.sum(), new], [True]),
        ([new, (a * new).sum()], [False]),
    ):
        assert written(both([x, y], outputs, *args)) == places


def test_inputs_constants_and_what_overlaps_are_copied():
    x, y = f32(3, 4, name="x"), f32(2, 4, name="y")
    value = torch.randn(3, 4)
    args = value, torch.randn(2, 4)
    for base in (x, ops.transpose(ops.transpose(x, 0, 1), 0, 1), constant(value), x[:, :]):
        assert written(both([x, y], ops.slice_scatter(base, y, 0, 1, 3), *args)) == [False]
    # Elements of one row stand for all three; that is seen when there are values.
    rows = ops.expand(ops.exp(x)[:1], [3, 4])
    for mode in ("py", "c"):
        f = both([x, y], ops.slice_scatter(rows, y, 0, 1, 3), *args, mode=mode)
        assert written(f) == [True]
    assert not can_be_written(torch.randn(1, 4).expand(3, 4))
    assert can_be_written(torch.randn(1, 4).expand(1, 4))
    # What is written lies in what it is written into.
    own = ops.exp(x)
    assert written(both([x, y], ops.slice_scatter(own, own[:2], 0, 1, 3), *args)) == [False]
    whole = ops.slice_scatter(own, own, 0, 0, 3)
    assert written(both([x, y], [whole], *args)) == []


def test_what_depends_on_its_place_is_computed_as_it_was():
    """exp of a vector's worth of elements is another kernel than that of one, and rounds otherwise."""
    x = f32(None, 40, name="x")
    a = x * 2
    for name, inside in (("exp", False), ("tanh", False), ("neg", True), ("relu", True)):
        new = ops.slice_scatter(a, getattr(ops, name)(a[:, 1:38]), 1, 1, 38)
        f = both([x], new, torch.randn(7, 40))
        assert written(f) == [True]
        assert len(names(f)) == (2 if inside else 4)
    narrow = TensorType("float16", (3, 40))("x")
    b = narrow * 2
    new = ops.slice_scatter(b, ops.add(b[:, 1:], b[:, :39]), 1, 1, 40)
    assert "add.Tensor" in names(both([narrow], new, torch.randn(3, 40).half()))


def test_sizes_that_do_not_fit_are_refused():
    x, y = f32(None, None, name="x"), f32(None, None, name="y")
    new = ops.slice_scatter(ops.exp(x), y, 0, 1, 2**63 - 1)
    for mode in ("py", "c"):
        f = function([x, y], new, mode)
        assert written(f) == [True]
        assert f(torch.zeros(3, 2), torch.zeros(2, 2)).sum() == 2
        # One row would do for copy_, which repeats it.
        for sizes in ((1, 2), (3, 2), (2, 1)):
            with pytest.raises(RuntimeError, match=r"\[2, 2\]"):
                f(torch.zeros(3, 2), torch.zeros(*sizes))
    with pytest.raises(BridgeTypeError, match="no form that writes"):
        Written([], ops.cumsum(x, 0).owner.op)


def test_where_is_known_when_there_are_values():
    x, y, at = f32(5, None, name="x"), f32(1, None, name="y"), schema_type("int")("at")
    a = ops.exp(x)
    added = ops.add(ops.slice(a, 0, at, 5), y)
    new = ops.slice_scatter(a, added, 0, at, 5)
    f = function([x, y, at], new)
    assert written(f) == [True]
    assert len(names(f)) == 2  # the sum is made in the part
    plain = function([x, y, at], new, "py", rewrite=False)
    for start in (0, 2, 5, -1):
        same(f, plain, torch.randn(5, 3), torch.randn(1, 3), start)
    # Another place is another part.
    other = ops.slice_scatter(a, ops.add(ops.slice(a, 0, at, 5), y), 0, 0, 1)
    assert len(names(function([x, y, at], other))) == 4


def test_another_part_of_the_same_size_is_another():
    x = f32(3, 3, name="x")
    a = ops.exp(x)
    value = torch.randn(3, 3)
    for scatter, view, here, there in (
        ("slice_scatter", "slice", (0, 1, 3), (0, 0, 2)),
        ("slice_scatter", "slice", (0, 1, 2), (0, 1, 3, 2)),
        ("select_scatter", "select", (0, 1), (1, 1)),
        ("diagonal_scatter", "diagonal", (0, 0, 1), (0, 1, 0)),
        ("as_strided_scatter", "as_strided", ([2], [2], 0), ([2], [2], 1)),
    ):
        for told in (here, there):
            part = getattr(ops, view)(a, *told)
            for source in (part * 2, part, ops.copy(part, part)):
                if part.type.shape == getattr(ops, view)(a, *here).type.shape:
                    new = getattr(ops, scatter)(a, source, *here)
                    f = both([x], new, value)
                    if told == here:
                        assert len(names(f)) <= 2
    inner = ops.slice_scatter(a[1:], ops.neg(a[1:][:, 1:]), 1, 1, 3)
    both([x], ops.slice_scatter(a, inner, 0, 0, 2), value)  # from other rows


def test_what_writes_into_a_copy_needs_none():
    x, y = f32(None, 3, name="x"), f32(2, 3, name="y")
    rows = constant(torch.tensor([0, 2]))
    a = ops.exp(x)
    args = torch.randn(4, 3), torch.randn(2, 3)
    for new in (
        ops.index_put(a, [rows], y, True),
        ops.index_add(a, 0, rows, y),
        ops.index_copy(a, 0, rows, y),
        ops.index_fill(a, 0, rows, 2.0),
        ops.scatter(a, 0, constant(torch.zeros(2, 3, dtype=torch.int64)), y),
    ):
        (node,) = [
            n
            for n in both([x, y], new, *args, mode="c").fgraph.toposort()
            if "[in place]" in str(n.op)
        ]
        assert node.op.op.name == new.owner.op.name
        assert "in place" not in str(both([x, y], [new, a], *args).fgraph)
    # What it writes lies in what it writes into: PyTorch refuses that in place.
    doubled = ops.index_put(a, [constant(torch.tensor([2, 1, 0, 3]))], a)
    assert "in place" not in str(both([x], doubled, args[0]).fgraph)
    # Strides that the copy would not have.
    for other in (a[:, ::2], ops.transpose(a, 0, 1)):
        both([x], ops.index_fill(other, 0, constant(torch.tensor([1])), 2.0), args[0])


def test_the_gradient_of_what_is_written():
    x, y = f32(4, 3, name="x"), f32(2, 3, name="y")
    a = ops.sin(x)
    new = ops.slice_scatter(a, ops.mul(a[1:3], y), 0, 1, 3)
    f = function([x, y], new)
    assert written(f) == [True]
    mine = [torch.randn(4, 3, requires_grad=True), torch.randn(2, 3, requires_grad=True)]
    theirs = [t.detach().clone().requires_grad_() for t in mine]
    f(*mine).pow(2).sum().backward()
    b = torch.sin(theirs[0])
    torch.slice_scatter(b, b[1:3] * theirs[1], 0, 1, 3).pow(2).sum().backward()
    for m, t in zip(mine, theirs, strict=True):
        assert torch.allclose(m.grad, t.grad)
    # Of the op itself.
    (node,) = (n for n in f.fgraph.toposort() if isinstance(n.op, Written))
    u, v = (t.make_variable() for t in (x.type, y.type))
    made = Written(node.op.ops, node.op.source)(u, v)
    grads = function([u, v], [pb.grad(made.sum(), w) for w in (u, v)])
    u0, v0 = torch.randn(4, 3), torch.randn(2, 3)
    got = grads(u0, v0)
    assert torch.equal(got[0][1:3], v0)
    assert torch.equal(got[1], u0[1:3])


class Halves(torch.nn.Module):
    def forward(self, x):
        left, right = x.split(2, 1)
        left.add_(right)
        left.unbind(1)[0].mul_(3)
        return left


class Windows(torch.nn.Module):
    def forward(self, x):
        left, right = x.chunk(2, 1)
        x.unfold(1, 2, 2).mul_(2)
        left.unbind(1)[0].add_(right[:, 0])
        return left


def test_a_size_that_is_open_stays_open():
    """torch fixes sizes as it makes such programs functional."""
    rows = ({0: torch.export.Dim.AUTO},)
    for module in (Halves(), Windows()):
        program = torch.export.export(module, (torch.ones(3, 4),), dynamic_shapes=rows)
        compiled = pb.from_exported(program).compile("py")
        for n in (3, 2, 7, 1, 0):
            mine = torch.randn(n, 4)
            theirs = mine.clone()
            assert torch.equal(compiled(mine), program.module()(theirs))
            assert torch.equal(mine, theirs)


class Cast(Windows):
    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            y = x @ x.t()
        return super().forward(x), y


def test_a_size_that_torch_fixes_is_named():
    rows = ({0: torch.export.Dim.AUTO},)
    program = torch.export.export(Cast(), (torch.ones(3, 4),), dynamic_shapes=rows)
    with pytest.raises(UnsupportedNode, match=r"fixes x.size\(\)\[0\], .* leaves open, at 3"):
        pb.from_exported(program)
