"""Compiled functions in autograd: gradients, what is recorded, and what is refused, as in eager mode.

A case is one Python function of tensors, which is run on variables and on tensors.
"""

from __future__ import annotations

import gc

import pytest
import torch
from torch.autograd import forward_ad

from pytorch_bridge import (
    BridgeError,
    GradientError,
    MissingMethodError,
    TensorType,
    function,
    grad,
    ops,
    schema_type,
)

AT = torch.ops.aten


def compiled(f, tensors, mutable=(), mode="py", open_sizes=True):
    types = [TensorType(t.dtype, [None] * t.dim() if open_sizes else t.shape) for t in tensors]
    inputs = [t(f"x{i}") for i, t in enumerate(types)]
    return function(inputs, f(ops, *inputs), mode, mutable=[inputs[i] for i in mutable])


def numbers(shape, seed=0, dtype=torch.float64):
    made = torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (made + 0.5).to(dtype)


def leaves(tensors, wanted):
    return [t.clone().requires_grad_(w) for t, w in zip(tensors, wanted, strict=True)]


def outcome(f, tensors, create_graph=False):
    """Everything that autograd has to say about a call."""
    wanted = [t for t in tensors if t.requires_grad]
    results = f(*tensors)
    results = results if isinstance(results, (list, tuple)) else [results]
    found = {
        "values": [r.detach().clone() for r in results],
        "recorded": [r.requires_grad for r in results],
    }
    recorded = [r for r in results if r.requires_grad]
    if not recorded:
        return found
    cost = sum((r * r).sum() if not r.is_complex() else (r * r.conj()).real.sum() for r in recorded)
    first = torch.autograd.grad(cost, wanted, create_graph=create_graph, allow_unused=True)
    found["first"] = [g if g is None else g.detach() for g in first]
    if create_graph:
        again = sum((g * g).sum() for g in first if g is not None and g.requires_grad)
        found["of gradients"] = [g is not None and g.requires_grad for g in first]
        if isinstance(again, torch.Tensor):
            second = torch.autograd.grad(again, wanted, allow_unused=True)
            found["second"] = [g if g is None else g.detach() for g in second]
    return found


def same(a, b):
    assert a.keys() == b.keys()
    for name, mine in a.items():
        for i, (x, y) in enumerate(zip(mine, b[name], strict=True)):
            if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor):
                torch.testing.assert_close(x, y, msg=f"{name} {i}: {x} and {y}")
            elif name in ("first", "second"):
                # None and zeros are the same derivative.
                other = y if x is None else x
                assert other is None or not other.any(), (name, i, x, y)
            else:
                assert x == y, (name, i, x, y)


X, Y, M = numbers((3, 4)), numbers((3, 4), 1), numbers((4, 4), 2)

CASES = {
    "product": lambda A, x, y: A.mul(x, y),
    "several": lambda A, x, y: [A.sin(A.mul(x, y)), A.sum(A.exp(x)), A.add(y, 1)],
    "comparison": lambda A, x, y: [A.mul(x, y), A.gt(x, y), A.argmax(x, 1)],
    "nothing recorded": lambda A, x, y: [A.gt(x, y)],
    "detached": lambda A, x, y: [A.mul(A.detach(x), y), A.detach(A.mul(x, y))],
    "zeros": lambda A, x, y: [A.zeros_like(x), A.mul(x, y)],
    "identity": lambda A, x, y: [x, A.mul(x, y)],
    "one twice": lambda A, x, y: [A.add(x, y), A.add(x, y)],
    "views": lambda A, x, y: [A.t(A.mul(x, y)), A.select(A.mul(x, y), 0, 1)],
    "indices": lambda A, x, y: A.topk(A.mul(x, y), 2)[:2],
    "in place": lambda A, x, y: A.exp(A.mul_(A.mul(x, 2), y)),
    "in place, both read": lambda A, x, y: A.sin(A.mul_(A.mul(A.mul(x, 2), 3), A.exp(y))),
    "unused": lambda A, x, y: A.sinh(y),
}


@pytest.mark.parametrize("wanted", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("case", CASES)
def test_calls_are_recorded_as_eager_mode_records_them(case, wanted):
    f = CASES[case]
    g = compiled(f, (X, Y))
    for create_graph in (False, True):
        mine = outcome(g, leaves((X, Y), wanted), create_graph)
        theirs = outcome(lambda *v: f(AT, *v), leaves((X, Y), wanted), create_graph)
        same(mine, theirs)


DRAWS = {
    "dropout": lambda A, x, y: A.mul(A.dropout(x, 0.5, True), y),
    "dropout twice": lambda A, x, y: A.dropout(A.mul(A.dropout(A.exp(x), 0.3, True), y), 0.4, True),
    "feature_dropout": lambda A, x, y: A.mul(A.feature_dropout(x, 0.5, True), y),
    "native_dropout": lambda A, x, y: A.mul(A.native_dropout(A.mul(x, x), 0.5, True)[0], y),
    "rand_like": lambda A, x, y: [A.mul(x, A.rand_like(x)), A.sin(A.add(y, A.rand_like(y)))],
    "what was drawn": lambda A, x, y: (lambda r: [r, A.mul(x, r), A.t(r)])(A.rand_like(x)),
    "bernoulli": lambda A, x, y: A.mul(A.bernoulli(A.div(x, 2)), A.exp(y)),
    "not needed": lambda A, x, y: A.add(A.mul(x, y), A.randn_like(x)),
}


@pytest.mark.parametrize("wanted", [(True, True), (False, True)])
@pytest.mark.parametrize("case", DRAWS)
def test_what_was_drawn_is_kept_for_the_backward_pass(case, wanted):
    f = DRAWS[case]
    g = compiled(f, (X, Y))
    for create_graph in (False, True):
        torch.manual_seed(3)
        mine = outcome(g, leaves((X, Y), wanted), create_graph)
        state = torch.get_rng_state()
        torch.manual_seed(3)
        theirs = outcome(lambda *v: f(AT, *v), leaves((X, Y), wanted), create_graph)
        assert torch.equal(state, torch.get_rng_state())
        same(mine, theirs)


CHANGES = {
    "exp(mul_(x, 3))": lambda A, x, y: A.exp(A.mul_(x, 3)),
    "returned": lambda A, x, y: A.mul_(x, y),
    "twice": lambda A, x, y: A.sin(A.add_(A.mul_(x, y), A.exp(y))),
    "old value": lambda A, x, y: A.mul(A.exp(A.mul(x, 2)), A.sin_(x)),
    "a row": lambda A, x, y: A.mul_(A.select(x, 0, 1), A.select(y, 0, 0)),
    "columns": lambda A, x, y: A.exp_(A.slice(x, 1, 1, 3)),
    "the diagonal": lambda A, x, y: A.mul_(A.diagonal(x), 3),
    "transposed": lambda A, x, y: A.mul_(A.transpose(x, 0, 1), A.t(y)),
    "permuted": lambda A, x, y: A.sin_(A.select(A.permute(A.view(x, [3, 2, 2]), [2, 0, 1]), 0, 1)),
    "a view of it": lambda A, x, y: [A.t(A.sin_(x)), A.select(A.mul_(y, 2), 0, 1)],
    "overwritten": lambda A, x, y: A.mul(A.copy_(x, y), 2),
    "filled": lambda A, x, y: A.mul(A.fill_(x, 2), y),
    "drawn": lambda A, x, y: A.mul(A.bernoulli_(x, 0.5), y),
}


@pytest.mark.parametrize("wanted", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("case", CHANGES)
def test_what_is_written_into_is_recorded(case, wanted):
    """The inputs are no leaves: a function of leaves, as in the middle of a model."""
    f = CHANGES[case]
    # The second derivative of a slice is known for known sizes only.
    g = compiled(f, (X, Y), mutable=(0, 1), open_sizes=case != "columns")
    if case == "a view of it" and wanted != (True, True):
        return  # eager mode has a leaf there that comes to require a gradient

    def through(h):
        def call(x, y):
            a = x * 1 if x.requires_grad else x
            b = y * 1 if y.requires_grad else y
            before = a._version
            result = h(a, b)
            found = list(result) if isinstance(result, (list, tuple)) else [result]
            assert a._version > before
            return [*found, a, b, a * b]

        return call

    for create_graph in (False, True):
        outcomes = []
        for h in (g, lambda *v: f(AT, *v)):
            torch.manual_seed(1)
            outcomes.append(outcome(through(h), leaves((X, Y), wanted), create_graph))
        same(*outcomes)


def test_outputs_in_the_memory_of_what_is_written_into_stay_there():
    f = compiled(CHANGES["a view of it"], (X, Y), mutable=(0, 1))
    for recorded in (False, True):
        a, b = (t.clone().requires_grad_(recorded) * 1 for t in (X, Y))
        transposed, row = f(a, b)
        assert transposed.data_ptr() == a.data_ptr()
        assert torch.equal(transposed, a.t())
        assert torch.equal(row, b[1])
        a.detach().zero_()
        assert not transposed.any()


def test_a_leaf_is_not_overwritten():
    f = compiled(lambda A, x, y: [A.mul_(x, 3), A.add_(y, 1)], (X, Y), mutable=(0, 1))
    x, y = leaves((X, Y), (True, False))
    for a in (x, x.view(-1).view(3, 4)):
        with pytest.raises(RuntimeError) as theirs:
            a.mul_(3)
        with pytest.raises(GradientError) as mine:
            f(a, y)
        assert str(theirs.value) in str(mine.value)
        assert "input 0 (x0)" in str(mine.value)
    assert torch.equal(x, X)
    assert torch.equal(y, Y)
    with torch.no_grad():
        f(x, y)
    assert torch.equal(x, X * 3)
    # What is a view for autograd's eyes only: PyTorch's own words, and nothing has been changed.
    with torch.no_grad():
        row = torch.stack([X, X])[0]
    parts = (X.clone().requires_grad_() * 1).unbind(0)
    g = compiled(lambda A, x, y: [A.mul_(x, 3), A.add_(y, 1)], (X[0], X[0]), mutable=(0, 1))
    z = Y[0].clone()
    with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
        g(parts[0], z)
    assert torch.equal(z, Y[0])
    assert torch.equal(parts[0], X[0])
    assert row is not None


def test_a_change_after_the_call_is_found():
    f = compiled(lambda A, x, y: A.mul(A.exp(x), y), (X, Y))
    x, y = leaves((X, Y), (True, False))
    z = f(x, y)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()
    # As in eager mode, nobody minds where the value is not needed.
    g = compiled(lambda A, x, y: A.add(x, y), (X, Y))
    z = g(x, y)
    y.add_(1)
    z.sum().backward()
    assert torch.equal(x.grad, torch.ones_like(X))


def test_a_change_of_one_result_changes_no_other():
    f = compiled(lambda A, x, y: (lambda z: [z, A.t(z)])(A.mul(x, y)), (X, Y))
    x, y = leaves((X, Y), (True, True))
    a, b = f(x, y)
    a.mul_(2)
    (g,) = torch.autograd.grad(b.sum(), x)
    assert torch.equal(g, Y)
    assert torch.equal(b, (X * Y).t())


@pytest.mark.parametrize("mode", ["c", "py"])
def test_batch_norm(mode):
    mean, var = torch.zeros(4, dtype=torch.float64), torch.ones(4, dtype=torch.float64)
    tensors = (numbers((5, 4)), numbers(4, 1), numbers(4, 2), mean, var)

    def f(A, x, w, b, m, v):
        return A.batch_norm(x, w, b, m, v, True, 0.1, 1e-5, False)

    g = compiled(f, tensors, mutable=(3, 4), mode=mode, open_sizes=False)
    outcomes, statistics = [], []
    for h in (g, lambda *v: f(AT, *v)):
        given = leaves(tensors, (True, True, True, False, False))
        outcomes.append(outcome(h, given, create_graph=True))
        statistics.append(given[3:])
    same(*outcomes)
    for mine, theirs in zip(*statistics, strict=True):
        torch.testing.assert_close(mine, theirs)
        assert not mine.requires_grad
    assert not torch.equal(statistics[0][0], mean)
    with pytest.raises(GradientError, match="which does not return it"):
        g(*leaves(tensors, (True, False, False, True, False)))


def test_functions_inside_functions():
    inner = compiled(lambda A, x, y: A.mul(A.dropout(x, 0.5, True), A.exp(y)), (X, Y))
    outer = compiled(lambda A, x, y: [A.sin(A.mul(x, y)), A.sum(x)], (X, Y))

    def both(f, g):
        def call(x, y):
            a, b = g(x, f(x * y, y))
            c, _ = g(f(a, y), x)
            return [c * b, a]

        return call

    eager = (
        lambda x, y: AT.mul(AT.dropout(x, 0.5, True), AT.exp(y)),
        lambda x, y: [AT.sin(AT.mul(x, y)), AT.sum(x)],
    )
    for create_graph in (False, True):
        outcomes = []
        for f, g in ((inner, outer), eager):
            torch.manual_seed(5)
            outcomes.append(outcome(both(f, g), leaves((X, Y), (True, True)), create_graph))
        same(*outcomes)


def test_derivatives_of_any_order():
    f = compiled(lambda A, x: A.sum(A.exp(A.mul(x, 2))), (X,))
    x = X.clone().requires_grad_()
    g = f(x)
    for order in range(1, 5):
        (g,) = torch.autograd.grad(g.sum(), x, create_graph=True)
        torch.testing.assert_close(g, 2.0**order * torch.exp(2 * x))
    assert torch.autograd.gradcheck(
        compiled(CASES["product"], (X, Y)), leaves((X, Y), (True, True))
    )
    assert torch.autograd.gradgradcheck(
        compiled(CASES["in place"], (X, Y)), leaves((X, Y), (True, True))
    )


def test_hooks_and_retained_graphs():
    f = compiled(DRAWS["dropout"], (X, Y))
    x, y = leaves((X, Y), (True, True))
    seen = []
    a = x * 2
    a.register_hook(seen.append)
    z = f(a, y)
    z.sum().backward(retain_graph=True)
    first = x.grad.clone()
    x.grad = None
    z.sum().backward()
    assert torch.equal(first, x.grad)
    assert len(seen) == 2
    assert torch.equal(2 * seen[0], first)


def test_what_has_no_gradient_runs_and_says_so_backwards():
    x = TensorType("float64", (None, None))("x")
    f = function([x], ops.mul(ops.rrelu(x, 0.1, 0.3, True), 2))
    a = X.clone().requires_grad_()
    y = f(a)
    assert y.requires_grad
    with pytest.raises(MissingMethodError, match="rrelu"):
        y.sum().backward()


def test_lists_record_nothing():
    values = schema_type("Tensor[]")("values")
    for mode in ("c", "py"):
        f = function([values], ops.stack(values), mode=mode)
        with pytest.raises(GradientError, match="the list values has a tensor that requires"):
            f([X, X.clone().requires_grad_()])
        with torch.no_grad():
            assert torch.equal(f([X.clone().requires_grad_()])[0], X)


def test_what_a_call_keeps_goes_with_it():
    f = compiled(DRAWS["dropout twice"], (X, Y))
    x, y = leaves((X, Y), (True, True))
    f(x, y).sum().backward()
    gc.collect()
    before = sum(isinstance(o, torch.Tensor) for o in gc.get_objects())
    gc.disable()
    try:
        for _ in range(5):
            z = f(x, y)
            del z
        alive = sum(isinstance(o, torch.Tensor) for o in gc.get_objects())
    finally:
        gc.enable()
    assert alive == before


def test_errors_are_of_this_package():
    assert issubclass(GradientError, BridgeError)
    assert issubclass(GradientError, RuntimeError)
    assert grad is not None


@pytest.mark.parametrize("mode", ["py", "c"])
def test_derivatives_that_would_be_dropped_are_refused(mode):
    """Those of forward mode, and the transforms of torch.func."""
    x = TensorType("float32", (None,))("x")
    f = function([x], x * 2, mode)
    one = torch.ones(2)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(one, one)
        for call in (f, function([x], ops.mul_(x, 3), mode, mutable=[x])):
            with pytest.raises(GradientError, match=r"input 0 \(x\) has a tangent"):
                call(dual)
            with torch.no_grad(), pytest.raises(GradientError, match="tangent"):
                call(dual)
        assert torch.equal(f(one), one * 2)
        assert torch.equal(f(forward_ad.unpack_dual(dual).primal), one * 2)
        xs = schema_type("Tensor[]")("xs")
        with pytest.raises(GradientError, match=r"input 0 \(xs\) has a tangent"):
            function([xs], ops.cat(xs, 0), mode)([one, dual])
    assert torch.equal(one, torch.ones(2))
    with pytest.raises(GradientError, match="tangent"):
        torch.func.jvp(f, (one,), (one,))
    for transform in (torch.func.grad, torch.func.jacrev):
        with pytest.raises(GradientError, match=r"transforms of torch.func .* backward\(\)"):
            transform(lambda v: f(v).sum())(one)
    rows = torch.arange(6.0).reshape(3, 2)
    assert torch.equal(torch.func.vmap(f)(rows), rows * 2)


def test_a_jitted_function_refuses_a_tangent():
    from pytorch_bridge.extending import jit

    f = jit(lambda a, b: a * b)
    one = torch.ones(2)
    for _ in range(2):
        with forward_ad.dual_level(), pytest.raises(GradientError, match=r"\(a\) has a tangent"):
            f(forward_ad.make_dual(one, one), 2.0)
        assert torch.equal(f(one, 2.0), one * 2)


def test_what_one_size_says_is_not_said_of_all():
    """trapezoid gives zeros that depend on nothing where there are no elements."""
    from pytorch_bridge.autodiff import compiled_autograd

    for size, said in ((None, None), (0, (False,)), (3, (True,))):
        x = TensorType("float32", (size,))("x")
        assert compiled_autograd._asked(ops.trapezoid(x).owner, (True,)) == said
        leaf = torch.ones(3 if size is None else size, requires_grad=True)
        result = function([x], ops.trapezoid(x), "py")(leaf)
        assert result.requires_grad is (size != 0)
    # What is chosen by no size is known at all of them.
    y = TensorType("float32", (None, None))("y")
    for v, said in ((ops.matmul(y, y), True), (ops.exp(y), True), (ops.argmax(y), False)):
        assert compiled_autograd._asked(v.owner, (True,) * len(v.owner.inputs)) == (said,)


@pytest.mark.parametrize("shape", [(None, 4, None, None), (2, 4, None, None), (None, 4, 3, 3)])
def test_the_gradient_of_group_norm_where_sizes_are_open(shape):
    """What it calls is told the product of its sizes."""
    x = TensorType("float64", shape)("x")
    w, b = (TensorType("float64", (4,))(n) for n in "wb")
    plain = function([x], ops.group_norm(x, 2), "py")
    scaled = function([x, w, b], ops.group_norm(x, 2, w, b), "py")
    for sizes in ((2, 4, 3, 3), (5, 4, 1, 2), (0, 4, 2, 2)):
        if any(known not in (None, n) for known, n in zip(shape, sizes, strict=True)):
            continue
        given = [numbers(sizes), numbers((4,), 1), numbers((4,), 2)]
        for f, count in ((plain, 1), (scaled, 3)):
            mine, theirs = ([t.clone().requires_grad_() for t in given[:count]] for _ in "ab")
            f(*mine).pow(2).sum().backward()
            torch.nn.functional.group_norm(theirs[0], 2, *theirs[1:]).pow(2).sum().backward()
            for m, t in zip(mine, theirs, strict=True):
                torch.testing.assert_close(m.grad, t.grad)
