"""while_loop, scan, map and associative_scan, in Python and as C.

Their operators are called as such, but in one test: to trace what torch.while_loop and the like are
given takes torch seconds.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
import torch
from c_form import CForm
from package_form import PackageForm
from torch import nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan

import pytorch_bridge as pb
from pytorch_bridge import ops
from pytorch_bridge.errors import BridgeTypeError, MissingMethodError
from pytorch_bridge.native.extension import live_handles
from pytorch_bridge.packages.go_package.source import source

SEEDS = int(os.environ.get("LOOPS", "6"))
ROWS = ({0: torch.export.Dim.AUTO},)
loops = torch.ops.higher_order


class Body(nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.body = forward
        self.a = nn.Linear(4, 4)
        self.register_buffer("kept", torch.tensor([1.0, -1, 0.5, 2]))

    def forward(self, x):
        return self.body(x, (self.a.weight, self.a.bias, self.kept, x.sum(0) * 0.1))


def program_of(body, rows=ROWS):
    torch.manual_seed(0)
    with torch.no_grad():  # where gradients are recorded, torch exports no loop over numbers
        return torch.export.export(Body(body), (torch.randn(6, 4),), dynamic_shapes=rows)


def forms_of(program, folder):
    model = pb.from_exported(program)
    return [model.compile("py"), model.compile(), PackageForm(program), CForm(program, folder)]


def listed(found):
    return list(found) if isinstance(found, (tuple, list)) else [found]


def same(a, b):
    if not isinstance(b, torch.Tensor):
        return a == b
    alike = (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
    return alike and torch.equal(a.nan_to_num(), b.nan_to_num())


def check(program, forms, inputs):
    """Each form gives what the module gives, in memory of its own, and leaves nothing behind."""
    before = live_handles()
    for x in inputs:
        with torch.no_grad():
            want = listed(program.module()(x))
        for k, form in enumerate(forms):
            got = listed(form(x))
            assert len(got) == len(want)
            for a, b in zip(got, want, strict=True):
                assert same(a, b), (k, a, b)
                assert not torch.is_tensor(a) or not a.numel() or a.data_ptr() != x.data_ptr()
            a = got = None
    assert live_handles() == before


# Programs that are drawn: functions of x, whose last dimension is 4, and of what they get besides


def linear(x, w, b, kept, y):
    return nn.functional.linear(x, w, b)


LEAVES = [
    linear,
    lambda x, *e: x.sin(),
    lambda x, w, b, kept, y: x * kept,
    lambda x, *e: x + torch.tensor([1.0, 2, 3, 4]),
    lambda x, w, b, kept, y: torch.relu(x - y),
    lambda x, *e: x.flip(-1) * 0.5,
    lambda x, w, b, kept, y: torch.where(x > 0, x.exp().clamp(max=3), y),
    lambda x, *e: x.clone(),
]


def drawn(rng, depth, rows=True, outer=True):
    """A function with loops in it. With `rows`, x has rows. A loop that carries a number is the
    `outer` one: torch exports it in no scan."""
    if depth == 0:
        return rng.choice(LEAVES)
    f, g = drawn(rng, depth - 1, rows, False), rng.choice(LEAVES)
    one, other = drawn(rng, depth - 1, False, False), rng.choice(LEAVES)
    n, longer = rng.randrange(4), rng.random() < 0.5

    def cond(x, *e):
        both = (lambda x, *e: (f(x, *e),)), (lambda x, *e: (g(x, *e),))
        return loops.cond(x.sum() > 0, *both, (x, *e))[0]

    def counted(x, *e):
        i, found = loops.while_loop(
            lambda i, x, *e: i < n + (x.sum() > 0 if longer else 0),
            lambda i, x, *e: (i + 1, f(x, *e)),
            (torch.tensor(0), x),
            e,
        )
        return found * i

    def numbered(x, *e):
        i, found = loops.while_loop(
            lambda i, x, *e: i < n, lambda i, x, *e: (i + 1, g(x, *e) + i), (0, x), e
        )
        return found + i

    def scanned(x, *e):
        step = lambda c, r, *e: [one(c, *e), other(r * c, *e), r * c.sum()]  # noqa: E731
        last, found, more = loops.scan(step, [e[3] * 2], [x], list(e))
        return found + last - more

    def mapped(x, *e):
        return loops.map_impl(lambda r, *e: (one(r, *e),), [x], list(e))[0]

    def combined(x, *e):
        return loops.associative_scan(lambda a, b, k: [a * b + k.sin()], [x], (e[2],))[0]

    kinds = [cond, counted, *([numbered] if outer else [])]
    kinds += [scanned, mapped, combined] if rows else []
    return rng.choice(kinds)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_drawn_programs(seed, tmp_path):
    rng = random.Random(seed)
    parts = [drawn(rng, depth) for depth in (2, 2, 1, 1)]
    rows = ROWS if seed % 2 else None
    program = program_of(lambda x, e: tuple(f(x * 0.5, *e) for f in parts), rows)
    sizes = (6, 2, 5, 9) if rows else (6,)
    inputs = [torch.randn(n, 4) * s for n in sizes for s in (1, -2)]
    check(program, forms_of(program, tmp_path), inputs)


def test_all_numbers_of_turns(tmp_path):
    def body(x, e):
        n = (x > 0).sum().item()
        i, a = loops.while_loop(
            lambda i, a, n: i < n, lambda i, a, n: (i + 1, a * 0.5 + n), (0, x), (n,)
        )
        flag, b = loops.while_loop(
            lambda f, b: f, lambda f, b: (b.sum() < 60, b + 1), (x.sum() < 60, x), ()
        )
        c, d = loops.scan(lambda c, r: [c + r, c * r], [x.sum(0)], [x], [])
        last, first = loops.scan(lambda c, r: [c * 2 + r, r.view(2, 2).t()], [e[2]], [x], [])
        (g,) = loops.map_impl(lambda r: (r.view(2, 2).t().cumsum(0),), [x], [])
        k, h = loops.associative_scan(
            lambda a, p, b, q: [a * b, p - q], [x.sigmoid(), (x * 9).long()], ()
        )
        return i, a, flag, b, c, d, last, first, g, k, h

    program = program_of(body)
    forms = forms_of(program, tmp_path)
    check(program, forms, [torch.randn(n, 4) for n in (2, 3, 4, 5, 7, 8, 17)])
    check(program, forms, [-torch.rand(3, 4), torch.rand(6, 4) * 30])


class Written(nn.Module):
    """As users write loops: what the functions read is found by torch."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.register_buffer("kept", torch.tensor([1.0, -1, 0.5, 2]))

    def forward(self, x):
        y = x.sum(0) * 0.1

        def turn(i, z):
            up = torch.cond(
                z.sum() > 0, lambda z: torch.relu(self.a(z)), lambda z: z.sin() + self.kept, (z,)
            )
            return i + 1, up * 0.5 + torch.tensor([1.0, 2, 3, 4])

        _, z = torch.while_loop(lambda i, z: i < x[0, 0] * 5, turn, (torch.tensor(0), x))
        last, found = scan(
            lambda c, r: (torch.tanh(c + r), self.a(c * r) + y), y * 2, x, reverse=True
        )
        mapped = torch_map(lambda r: {"a": self.a(r) * self.kept}, x)
        sums = associative_scan(lambda p, q: p * q + q, x, 0, combine_mode="pointwise")
        return z, last, found, mapped["a"], sums


def test_as_users_write_it(tmp_path):
    torch.manual_seed(0)
    with torch.no_grad():
        program = torch.export.export(Written(), (torch.randn(6, 4),), dynamic_shapes=ROWS)
    inputs = [torch.rand(n, 4) * s for n in (2, 6, 7) for s in (1, -1)]
    check(program, forms_of(program, tmp_path), inputs)


@pytest.mark.parametrize("table", [{}, None])
def test_decomposed_programs(table):
    def body(x, e):
        step = lambda i, a, *e: (i + 1, linear(a, *e))  # noqa: E731
        _, a = loops.while_loop(lambda i, a, *e: i < 3, step, (torch.tensor(0), x * 1), e)
        last, found = loops.scan(lambda c, r: [c + r, c * r], [e[3] * 1], [a], [])
        (b,) = loops.map_impl(lambda r: (r.softmax(0),), [found], [])
        (c,) = loops.cond(b.sum() > 0, lambda b: (b.tanh(),), lambda b: (b.cos(),), (b,))
        return last, c, *loops.associative_scan(lambda p, q: [p * q], [c], ())

    program = program_of(body).run_decompositions(table)
    model = pb.from_exported(program)
    check(program, [model.compile("py")], [torch.randn(n, 4) for n in (2, 5)])


def test_nothing_to_go_over(tmp_path):
    """A scan over nothing returns what it carries, a map over nothing has nothing to return."""
    rows = ({0: torch.export.Dim("n", min=0)},)

    def body(x, e):
        return loops.scan(lambda c, r, w: [c @ w + r, c.view(2, 2)], [e[2]], [x], [e[0]])

    program = program_of(body, rows)
    check(program, forms_of(program, tmp_path), [torch.randn(n, 4) for n in (0, 1, 2)])
    program = program_of(lambda x, e: loops.map_impl(lambda r: (r.sin(),), [x], []), rows)
    for form in forms_of(program, tmp_path):
        assert torch.equal(listed(form(torch.ones(1, 4)))[0], torch.ones(1, 4).sin())
        with pytest.raises((ValueError, RuntimeError), match="first size is 0"):
            form(torch.ones(0, 4))


def test_what_a_body_raises(tmp_path):
    """It comes out as it is, and nothing is left behind."""

    def body(x, e):
        step = lambda i, a, *e: (i + 1, torch.linalg.inv(a).contiguous() - torch.eye(4))  # noqa: E731
        _, a = loops.while_loop(lambda i, a, *e: i < 3, step, (torch.tensor(0), x[:4] * 1), e)

        def stepped(c, r):
            torch._assert_async((c < 9).all(), "too much")
            return [c + r, c.clone()]

        c, d = loops.scan(stepped, [x[0] * 1], [x], [])
        (f,) = loops.map_impl(lambda r: (torch.linalg.cholesky(r.view(2, 2)),), [x], [])
        (g,) = loops.associative_scan(
            lambda p, q: [p + torch.linalg.inv(q)], [x.view(-1, 2, 2)], ()
        )
        return a, c, d, f, g

    program = program_of(body, None)
    forms = forms_of(program, tmp_path)
    good = torch.tensor([3.0, 1, 1, 2]).repeat(6, 1) * 0.1 + torch.eye(4).repeat(2, 1)[:6] * 0.02
    singular, high, indefinite, pair = (good.clone() for _ in range(4))
    singular[:4] = 1
    high[3] = 9
    indefinite[4] = torch.tensor([1.0, 2, 2, 1])
    pair[5] = torch.tensor([1, 4, 0.5, 2])
    check(program, forms, [good])
    before = live_handles()
    for x in (singular, high, indefinite, pair):
        with torch.no_grad(), pytest.raises(RuntimeError) as want:
            program.module()(x)
        for form in forms:
            with pytest.raises(RuntimeError) as got:
                form(x)
            text = str(want.value).split("(")[0].splitlines()[0].removeprefix("Expected ")
            assert text.removesuffix(".")[:40] in str(got.value)
            del got
    assert live_handles() == before


def peak():
    """The most memory that this process has had, in kB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def test_turns_keep_no_memory(tmp_path):
    def body(x, e):
        def again(n, y):
            step = lambda i, a: (i + 1, a.sin())  # noqa: E731
            return loops.while_loop(lambda i, a: i < n, step, (torch.tensor(0), y), ())[1]

        y = x.sum() * torch.ones(1 << 18)
        last, all_ = loops.scan(lambda c, r: [c.sin(), r + 1], [y], [torch.ones(500)], [])
        return again(500, y)[:3].clone(), last[:3].clone(), all_[:3].clone()

    program = program_of(body, None)
    x, forms = torch.randn(6, 4), forms_of(program, tmp_path)[1::2]
    want = program.module()(x)
    for form in forms:
        Path("/proc/self/clear_refs").write_text("5")  # the peak is what it is now
        before = peak()
        assert all(map(torch.equal, form(x), want))
        assert peak() - before < 100_000  # kB, of 500 MB


# Gradients


def plain_while(test, body, carried, more):
    while test(*carried, *more):
        carried = body(*carried, *more)
    return carried


def plain_scan(step, carried, sequences, more):
    found = []
    for elements in zip(*sequences, strict=True):
        results = step(*carried, *elements, *more)
        carried = results[: len(carried)]
        found.append(results[len(carried) :])
    return [*carried, *map(torch.stack, zip(*found, strict=True))]


def plain_map(f, sequences, more):
    found = [f(*elements, *more) for elements in zip(*sequences, strict=True)]
    return list(map(torch.stack, zip(*found, strict=True)))


def plain_associative(combine, sequences, more):
    first, *rest = zip(*sequences, strict=True)
    found = [first]
    for elements in rest:
        found.append(combine(*found[-1], *elements, *more))
    return list(map(torch.stack, zip(*found, strict=True)))


HERE = (loops.while_loop, loops.scan, loops.map_impl, loops.associative_scan)
PLAIN = (plain_while, plain_scan, plain_map, plain_associative)


def looped(x, e, forms):
    again, scan, mapped, associative = forms
    n, a = again(
        lambda i, a, *e: i < a.abs().sum() * 0 + 3,
        lambda i, a, *e: (i + 1, torch.tanh(linear(a, *e)) * e[3] + a),
        (torch.tensor(0), x * 1),
        e,
    )
    _, never = again(lambda i, a, *e: i > 0, lambda i, a, *e: (i, a * 2), (torch.tensor(0), x), e)
    a = a * n + never
    step = lambda c, r, k, *e: [torch.tanh(linear(c, *e) + r), c * r * e[3] + k, k + 1]  # noqa: E731
    c, b, k = scan(step, [e[3] * 1.5], [a, torch.arange(6)], list(e))
    (d,) = mapped(lambda r, *e: (linear(r, *e).sin() * e[3],), [b * k[:, None]], list(e))
    p, q = associative(lambda a, p, b, q: [a * b, p * b + q], [torch.sigmoid(d), torch.cos(b)], ())
    return linear(p + q * 0.1 + c, *e) + a


def test_gradients(tmp_path):
    program = program_of(lambda x, e: looped(x, e, HERE), None)
    model = pb.from_exported(program)
    cost = ops.sum(model.outputs[0])
    (x,), gradient = model.inputs, pb.grad(cost, model.inputs[0])
    forms = [pb.function([x], [gradient], "py"), pb.function([x], [gradient])]
    forms.append(CForm(([x], [gradient]), tmp_path))
    torch.manual_seed(0)
    module = Body(lambda x, e: looped(x, e, PLAIN))
    before = live_handles()
    for _ in range(3):
        given = torch.randn(6, 4, requires_grad=True)
        module(given).sum().backward()
        for form in forms:
            (found,) = form(given.detach())
            torch.testing.assert_close(found, given.grad, rtol=1e-5, atol=1e-5)
            del found
    assert live_handles() == before
    step = pb.training_step(pb.from_exported(program), pb.Training(), mode="py")
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in range(3):
        x, t = torch.randn(6, 4), torch.randint(4, (6,))
        loss = nn.functional.cross_entropy(module(x), t)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(step(x, t, lr=0.1), loss.detach())
    for name, value in module.state_dict().items():
        torch.testing.assert_close(step.state_dict()[name], value)


def of_a_number(x, e):
    return loops.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2), (0, x), ())[1]


def of_draws(x, e):
    step = lambda c, r: [c + torch.dropout(r, 0.5, True), c * 1]  # noqa: E731
    return loops.scan(step, [e[3]], [x], [])[1]


def of_more(x, e):
    return loops.associative_scan(lambda a, b, k: [a * b + k], [x], (e[1],))[0]


@pytest.mark.parametrize(
    ("body", "text"),
    [(of_a_number, "carries a number"), (of_draws, "draws random"), (of_more, "as a sequence")],
)
def test_what_has_no_gradient(body, text):
    program = program_of(lambda x, e: body(nn.functional.linear(x, e[0], e[1]), e), None)
    with pytest.raises(MissingMethodError, match=text):
        pb.training_step(pb.from_exported(program), pb.Training(), mode="py")


# What is refused


def writing(x, e):
    return loops.while_loop(lambda a, b: a.sum() < 9, lambda a, b: (a + b.add_(1),), (x,), (e[2],))


def branching_pairs(x, e):
    def combine(a, b):
        return list(loops.cond(a.sum() > 0, lambda a, b: (a + b,), lambda a, b: (a * b,), (a, b)))

    return loops.associative_scan(combine, [x], ())


@pytest.mark.parametrize(
    ("body", "text"),
    [(writing, "let it write into a clone"), (branching_pairs, "control flow: use torch.where")],
)
def test_what_is_refused(body, text):
    program = program_of(body, None)
    with pytest.raises(BridgeTypeError, match=text) as caught:
        pb.from_exported(program)
    assert "test_loops.py" in str(caught.value)


def test_inductor_says_what_to_use():
    program = program_of(
        lambda x, e: loops.cond(x.sum() > 0, lambda x: (x + 1,), lambda x: (x.sin(),), (x,)), None
    )
    with pytest.raises(MissingMethodError, match=r'cond: .* mode "c" compiles it'):
        pb.from_exported(program).compile("inductor")


def test_graphs_inside_move_to_the_device():
    made = source(
        program_of(
            lambda x, e: (
                loops.cond(
                    x.sum() > 0, lambda x: (x + torch.zeros(4),), lambda x: (x.sin(),), (x,)
                )[0],
            ),
            None,
        ),
        None,
        "cuda",
    )
    (node,) = (n for n in made.fgraph().toposort() if str(n.op) == "cond")
    for branch in node.op.branches:
        assert {v.type.device for v in [*branch.inputs, *branch.outputs]} == {"cuda"}
        for inner in branch.fgraph.toposort():
            assert {v.type.device for v in inner.outputs} == {"cuda"}
            assert "cpu" not in str(getattr(inner.op, "arguments", ()))
