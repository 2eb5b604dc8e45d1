"""Gradients: what grad returns and refuses, and autograd's values for the operator database."""

from __future__ import annotations

import contextlib
import itertools
import warnings

import gradient_cases
import operator_database as database
import pytest
import torch

from pytorch_bridge import (
    Apply,
    BridgeTypeError,
    BridgeValueError,
    MissingMethodError,
    TensorType,
    function,
    grad,
    ops,
    schema_type,
)
from pytorch_bridge.autodiff import derivatives
from pytorch_bridge.autodiff.derivatives import native_grad
from pytorch_bridge.graph.basic import toposort
from pytorch_bridge.ops.checks import CheckSizes
from pytorch_bridge.ops.native import native, native_op
from pytorch_bridge.ops.op import Op

A, B = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])


def vector(name=None):
    return TensorType("float32", (None,))(name)


def matrix(name=None):
    return TensorType("float32", (None, None))(name)


class Half(Op):
    """(x + y) / 2, with the gradient that is given."""

    def __init__(self, gradient=None):
        self.gradient = gradient

    def make_node(self, x, y):
        return Apply(self, [x, y], [x.type()])

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = (inputs[0] + inputs[1]) / 2

    def grad(self, inputs, output_grads):
        if self.gradient is None:
            return super().grad(inputs, output_grads)
        return self.gradient(inputs, output_grads)

    def __str__(self):
        return "Half"


# B11


def test_b11_one_entry_per_input():
    x, y, g = matrix("x"), matrix("y"), matrix("g")
    node = ops.mm(x, y).owner
    gx, gy = node.op.grad(node.inputs, [g])
    a, b, c = torch.randn(2, 3), torch.randn(3, 4), torch.randn(2, 4)
    s, t = a.clone().requires_grad_(), b.clone().requires_grad_()
    expected = torch.autograd.grad(s @ t, [s, t], c)
    for result, e in zip(function([x, y, g], [gx, gy], mode="py")(a, b, c), expected, strict=True):
        torch.testing.assert_close(result, e)


@pytest.mark.parametrize(
    ("gradient", "message"),
    [
        (
            lambda i, g: g[0],
            "grad of Half must return a list with an entry for each of its 2 inputs",
        ),
        (lambda i, g: [g[0]], "grad of Half returned 1 entries for 2 inputs"),
        (lambda i, g: [g[0], 1.0], "grad of Half returned no variable for input 1: 1.0"),
        (
            lambda i, g: [g[0].sum(), None],
            r"grad of Half returned a gradient of type .*float32, \(\)",
        ),
        (
            lambda i, g: [g[0].to(torch.float64), None],
            "of type .*float64.* for input 0 of type .*float32",
        ),
    ],
)
def test_b11_a_bare_variable_or_a_wrong_length_is_a_typed_error(gradient, message):
    x, y = vector("x"), vector("y")
    with pytest.raises(BridgeTypeError, match=message):
        grad(Half(gradient)(x, y).sum(), [x, y])


def test_b11_an_op_of_ones_own():
    x, y = vector("x"), vector("y")
    half = Half(lambda inputs, grads: [grads[0] / 2, grads[0] / 2])
    f = function([x, y], grad((half(x, y) * x).sum(), [x, y]), mode="py")
    gx, gy = f(A, B)
    assert gx.tolist() == ((A + B) / 2 + A / 2).tolist()
    assert gy.tolist() == (A / 2).tolist()


# B12


def test_b12_none_is_accepted_and_asking_for_it_is_an_error():
    x, y = vector("x"), vector("y")
    half = Half(lambda inputs, grads: [grads[0] / 2, None])
    cost = half(x, y).sum()
    assert function([x, y], grad(cost, x), mode="py")(A, B).tolist() == [0.5, 0.5]
    with pytest.raises(
        BridgeValueError,
        match=r"has no gradient with respect to y: Half is not differentiable in its input 1 \(y\)",
    ):
        grad(cost, [x, y])
    assert grad(cost, [x, y], allow_unused=True)[1] is None
    # Another path is enough.
    assert function([x, y], grad(cost + (y * y).sum(), y), mode="py")(A, B).tolist() == [6.0, 8.0]


def test_b12_integers_have_no_gradient():
    x, i = matrix("x"), TensorType("int64", (None,))("i")
    cost = ops.index_select(x, 0, i).sum()
    f = function([x, i], grad(cost, x), mode="py")
    assert f(torch.ones(3, 2), torch.tensor([0, 0])).tolist() == [
        [2.0, 2.0],
        [0.0, 0.0],
        [0.0, 0.0],
    ]
    with pytest.raises(BridgeTypeError, match=r"a gradient is asked for for i of type .*int64"):
        grad(cost, i)
    with pytest.raises(BridgeTypeError, match=r"the cost .* is no floating point tensor"):
        grad(ops.argmax(x), x)
    with pytest.raises(BridgeTypeError, match="must have one element"):
        grad(x * 2, x)
    with pytest.raises(BridgeTypeError, match="entry 0 of wrt is no variable: 3"):
        grad(x.sum(), [3])
    with pytest.raises(BridgeValueError, match="it does not depend on it"):
        grad(x.sum(), vector("stranger"))
    with pytest.raises(
        BridgeValueError,
        match=r"argmax.*not differentiable|which has no gradient|no gradient with respect to x",
    ):
        grad(x.argmax().to(torch.float32), x)


# B13


def test_b13_a_missing_grad_names_the_op_and_the_input():
    x, y = vector("x"), vector("y")
    cost = Half()(x, y * 2).sum() + (x * y).sum()
    with pytest.raises(
        NotImplementedError,
        match=r"through Half in its input 0 \(x\), 1 \(.*mul|through Half in its input 0 \(x\) is needed",
    ):
        grad(cost, x)
    with pytest.raises(MissingMethodError, match="lacks grad"):
        grad(Half()(x, y).sum(), y)
    z = vector("z")
    other = cost + (z * 3).sum()
    assert function([z], grad(other, z), mode="py")(A).tolist() == [3.0, 3.0]


# Graphs


def test_gradients_add_up_over_paths():
    x = vector("x")
    cost = (x * x + x.exp() * x).sum()
    a = A.clone().requires_grad_()
    (expected,) = torch.autograd.grad((a * a + a.exp() * a).sum(), a)
    torch.testing.assert_close(function([x], grad(cost, x), mode="py")(A), expected)


def test_gradients_of_a_variable_in_the_middle():
    x = vector("x")
    h = x.exp()
    cost = (h * h).sum()
    gh, gx = grad(cost, [h, x])
    f = function([x], [gh, gx], mode="py")
    torch.testing.assert_close(f(A)[0], 2 * A.exp())
    torch.testing.assert_close(f(A)[1], 2 * (2 * A).exp())


def test_gradients_with_a_start():
    x = vector("x")
    g = vector("g")
    f = function([x, g], grad(x * x, x, grad_outputs=g), mode="py")
    assert f(A, B).tolist() == [6.0, 16.0]


def test_second_derivatives():
    x = vector("x")
    first = grad((x**3).sum(), x)
    second = grad(first.sum(), x)
    torch.testing.assert_close(function([x], second, mode="py")(A), 6 * A)


def test_broadcast_over_open_sizes():
    """Whether an open size is 1 shows at run time only."""
    x, y = matrix("x"), matrix("y")
    f = function([x, y], grad((x * y + y / x).sum(), [x, y]), mode="py")
    for left, right in (((3, 4), (3, 4)), ((1, 4), (3, 4)), ((3, 1), (1, 4)), ((3, 4), (1, 1))):
        a = (torch.rand(left) + 0.5).requires_grad_()
        b = (torch.rand(right) + 0.5).requires_grad_()
        expected = torch.autograd.grad((a * b + b / a).sum(), [a, b])
        for result, e in zip(f(a.detach(), b.detach()), expected, strict=True):
            torch.testing.assert_close(result, e)


@pytest.mark.parametrize("shapes", [((3, 4), (3, 4)), ((1, 4), (3, 1)), ((0, 4), (1, 1))])
def test_tensors_that_are_broadcast_together(shapes):
    x, y = matrix("x"), matrix("y")
    a, b = ops.broadcast_tensors([x, y])
    f = function([x, y], grad((a * a * b).sum(), [x, y]), mode="py")
    leaves = [torch.randn(s, requires_grad=True) for s in shapes]
    wide, other = torch.broadcast_tensors(*leaves)
    wanted = torch.autograd.grad((wide * wide * other).sum(), leaves)
    for found, w in zip(f(*[v.detach() for v in leaves]), wanted, strict=True):
        torch.testing.assert_close(found, w)


LOSSES = {
    "mse_loss": lambda A, x, y, r: A.mse_loss(x, y, r),
    "l1_loss": lambda A, x, y, r: A.l1_loss(x, y, r),
    "smooth_l1_loss": lambda A, x, y, r: A.smooth_l1_loss(x, y, r, 0.5),
    "huber_loss": lambda A, x, y, r: A.huber_loss(x, y, r, 0.5),
    "kl_div": lambda A, x, y, r: A.kl_div(x, y, r),
    "poisson_nll_loss": lambda A, x, y, r: A.poisson_nll_loss(x, y, True, True, 1e-8, r),
    "margin_ranking_loss": lambda A, x, y, r: A.margin_ranking_loss(x, y, x, 0.5, r),
}


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("reduction", [0, 1])
@pytest.mark.parametrize("name", LOSSES)
def test_losses_that_broadcast(name, reduction):
    """What autograd computes, or refused: never other numbers."""
    shapes = {2: [(3, 4), (1, 4), (3, 1), (1, 1), (0, 4), (1, 0)], 1: [(4,), (1,), (0,)]}
    right = 0
    for dims in ((2, 2), (1, 2)):
        x, y = (TensorType("float32", (None,) * d)(n) for d, n in zip(dims, "xy", strict=True))
        f = function([x, y], grad(LOSSES[name](ops, x, y, reduction).sum(), [x, y]), mode="py")
        for sizes in itertools.product(*(shapes[d] for d in dims)):
            a, b = (torch.rand(s, requires_grad=True) for s in sizes)
            try:
                wanted = torch.autograd.grad(
                    LOSSES[name](torch.ops.aten, a, b, reduction).sum(), [a, b]
                )
                found = f(a.detach(), b.detach())
            except (RuntimeError, ValueError, ZeroDivisionError):
                continue
            for g, w in zip(found, wanted, strict=True):
                torch.testing.assert_close(g, w, equal_nan=True)
            right += len({*sizes}) > 1
    assert right > 10


def test_two_open_sizes_of_one_tensor_stay_apart():
    x = matrix("x")
    f = function([x], grad((x.mean(1) * x.sum(1)).sum(), x), mode="py")
    for shape in ((2, 3), (5, 5), (3, 2)):
        a = torch.randn(shape, requires_grad=True)
        (expected,) = torch.autograd.grad((a.mean(1) * a.sum(1)).sum(), a)
        torch.testing.assert_close(f(a.detach()), expected)


def test_what_the_op_computed_is_not_computed_again():
    x = matrix("x")
    y = ops.softmax(x, -1)
    graph = toposort([grad((y * y).sum(), x)])
    names = [getattr(n.op, "name", "") for n in graph]
    assert names.count("softmax.int") == 1
    assert "_softmax" not in names


def test_random_ops():
    x = TensorType("float32", (100,))("x")
    y, _ = ops.native_dropout(x, 0.5, True)
    f = function([x], [y, grad(y.sum(), x)], mode="py")
    a = torch.ones(100)
    dropped, g = f(a)
    assert torch.equal(dropped, g)  # the gradient has the mask that was drawn
    with pytest.raises(NotImplementedError, match="draws random numbers"):
        grad(ops.rrelu(x, 0.1, 0.3, True).sum(), x)


def test_dropout_has_a_gradient():
    x = TensorType("float32", (100,))("x")
    y = ops.dropout(x, 0.5, True)
    dropped, g = function([x], [y, grad(y.sum(), x)], mode="py")(torch.ones(100))
    assert torch.equal(dropped, g)
    assert set(g.tolist()) == {0.0, 2.0}
    assert (
        function([x], ops.dropout(x, 0.0, True), mode="py")(torch.ones(100)).tolist() == [1.0] * 100
    )
    still = ops.dropout(x, 0.5, False)
    assert function([x], grad(still.sum(), x), mode="py")(torch.ones(100)).tolist() == [1.0] * 100


def test_gradients_of_in_place_ops():
    x, y = vector("x"), vector("y")
    changed = ops.mul_(x * 1, y)
    f = function([x, y], grad((changed * changed).sum(), [x, y]), mode="py")
    a, b = A.clone().requires_grad_(), B.clone().requires_grad_()
    expected = torch.autograd.grad(((a * b) ** 2).sum(), [a, b])
    for result, e in zip(f(A, B), expected, strict=True):
        torch.testing.assert_close(result, e)


def test_what_looks_at_values():
    x = TensorType("float32", (3, 3))("x")
    a = torch.randn(3, 3, requires_grad=True)
    (expected,) = torch.autograd.grad((torch.masked_select(a, a > 0) ** 2).sum(), a)
    f = function([x], grad((ops.masked_select(x, x > 0) ** 2).sum(), x), mode="py")
    torch.testing.assert_close(f(a.detach()), expected)
    start = TensorType("int64", ())("start")
    with pytest.raises(NotImplementedError, match="gradient"):
        grad(ops.narrow(x, 0, start, 2).sum(), x)


def test_open_sizes_that_only_one_value_fits():
    x, w = matrix("x"), vector("w")
    f = function([x, w], grad((ops.layer_norm(x, [3], w) ** 3).sum(), [x, w]), mode="py")
    a, b = torch.randn(5, 3, requires_grad=True), torch.randn(3, requires_grad=True)
    expected = torch.autograd.grad((torch.nn.functional.layer_norm(a, [3], b) ** 3).sum(), [a, b])
    for result, e in zip(f(a.detach(), b.detach()), expected, strict=True):
        torch.testing.assert_close(result, e, rtol=1e-4, atol=1e-4)


def test_a_trace_that_is_good_for_some_sizes_only_is_refused():
    x = matrix("x")
    with pytest.raises(MissingMethodError, match="give it in the type"):
        grad(ops.sgn(x).sum(), x)
    fixed = TensorType("float32", (3, 4))("x")
    a = torch.randn(3, 4)
    g = function([fixed], grad(ops.sgn(fixed).sum(), fixed), mode="py")(a)
    leaf = a.clone().requires_grad_()
    expected = torch.autograd.grad(torch.sgn(leaf).sum(), leaf)[0]
    torch.testing.assert_close(g, expected, rtol=1e-3, atol=1e-4)


def test_a_number_input():
    x, n = vector("x"), schema_type("int")("n")
    f = function([x, n], grad((x * n).sum(), x), mode="py")
    assert f(A, 3).tolist() == [3.0, 3.0]
    f = function([x, n], grad(ops.narrow(x * x, 0, n, 1).sum(), x), mode="py")
    assert f(A, 1).tolist() == [0.0, 4.0]
    assert f(A, 0).tolist() == [2.0, 0.0]


@pytest.mark.parametrize(
    ("build", "eager"),
    [
        (lambda x, r: x * r * x, lambda x, r: x * r * x),
        (lambda x, r: x / (r + 3), lambda x, r: x / (r + 3)),
        (lambda x, r: (x + r) * x, lambda x, r: (x + r) * x),
        (lambda x, r: ops.pow(ops.abs(x), r), lambda x, r: x.abs() ** r),
        (lambda x, r: ops.clamp(x, r), lambda x, r: x.clamp(min=r)),
        (lambda x, r: ops.leaky_relu(x, r), torch.nn.functional.leaky_relu),
        (lambda x, r: ops.elu(x, r), torch.nn.functional.elu),
        (lambda x, r: ops.addcmul(x, x, x, value=r), lambda x, r: x.addcmul(x, x, value=r)),
    ],
    ids=["mul", "div", "add", "pow", "clamp", "leaky_relu", "elu", "addcmul"],
)
def test_a_float_input_stays_open_in_the_gradient(build, eager):
    x, r = vector("x"), schema_type("float")("r")
    f = function([x, r], grad(build(x, r).sum(), x), mode="py")
    for number in (2.5, 0.0, 1.0, -1.0):
        leaf = torch.tensor([-2.0, -0.5, 0.5, 1.0, 3.0], requires_grad=True)
        eager(leaf, number).sum().backward()
        torch.testing.assert_close(f(leaf.detach(), number), leaf.grad)


def norm_gradients(f, x, value):
    """Those of the graph and those of eager PyTorch."""
    g = TensorType("float32", x.type.shape)("g")
    weight = torch.linspace(0.5, 2, 6)
    given = torch.randn(value.shape, generator=torch.Generator().manual_seed(1))
    compiled = function([x, g], grad(f(ops, x, weight), x, grad_outputs=g), mode="py")
    leaf = value.requires_grad_()
    eager = f(torch.ops.aten, leaf, weight)
    return compiled(leaf.detach(), given), torch.autograd.grad(eager, leaf, given)[0]


def batch_norm(library, x, weight, training=True):
    running = (None, None) if training else (torch.zeros(6), torch.ones(6))
    return library.batch_norm(x, weight, None, *running, training, 0.1, 1e-5, False)


def test_an_open_size_of_one_is_broadcast_along_with_dimensions():
    u, v = TensorType("float32", (None,))("u"), TensorType("float32", (4, 2, 3))("v")
    f = function([u, v], grad((u * v).sum(), u), mode="py")
    value = torch.randn(4, 2, 3)
    for n in (1, 3):
        leaf = torch.ones(n, requires_grad=True)
        (wanted,) = torch.autograd.grad((leaf * value).sum(), leaf)
        torch.testing.assert_close(f(leaf.detach(), value), wanted)


def test_batch_norm_of_pictures_of_any_size():
    x = TensorType("float32", (None, 6, None, None))("x")
    found, wanted = norm_gradients(batch_norm, x, torch.randn(2, 6, 3, 5))
    assert torch.equal(found, wanted)


def test_a_reshape_within_a_gradient_is_no_view_where_strides_do_not_allow_it():
    x = TensorType("float32", (2, 6, None, 3))("x")
    value = torch.randn(2, 6, 4, 3).to(memory_format=torch.channels_last)

    def f(library, x, weight):
        return library.instance_norm(x, weight, None, None, None, True, 0.1, 1e-5, False)

    found, wanted = norm_gradients(f, x, value)
    assert torch.equal(found, wanted)


def test_the_gradient_of_batch_norm_without_rows_is_an_error():
    """PyTorch's kernel would end the process."""
    x = TensorType("float32", (None, 6))("x")
    y = batch_norm(ops, x, torch.ones(6), training=False)
    with pytest.raises(ValueError, match="dimension 0 must be at least 1, got 0"):
        function([x], grad(y.sum(), x), mode="py")(torch.ones(0, 6))


@pytest.mark.parametrize("mode", ["c", "py"])
@pytest.mark.parametrize(
    ("name", "args"), [("var", ()), ("std", ()), ("var", ([0],)), ("var", ([0], False))]
)
def test_the_variance_of_one_element_has_a_gradient_that_is_no_number(name, args, mode):
    u = vector("u")
    f = function([u], grad(getattr(ops, name)(u, *args), u), mode=mode)
    for n in (1, 2, 5):
        x = torch.arange(1.0, n + 1, requires_grad=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (expected,) = torch.autograd.grad(getattr(torch, name)(x, *args), x)
        assert torch.allclose(f(x.detach()), expected, equal_nan=True)


def test_numbers_that_choose_what_is_called_have_to_be_known():
    x, r, s = matrix(), schema_type("float")("r"), schema_type("Scalar")("s")
    z = TensorType("complex64", (None,))("z")
    for cost, wrt, text in (
        (ops.layer_norm(x, [4], eps=r), x, "depends on the number that input 1 is"),
        (ops.abs(z * s), z, "argument s of type Scalar is a variable"),
    ):
        with pytest.raises(MissingMethodError, match=text):
            grad(cost.sum(), wrt)


# A whole network, and autograd through a compiled function


def mlp():
    x, t = TensorType("float32", (None, 6))("x"), TensorType("int64", (None,))("t")
    w, b = TensorType("float32", (4, 6))("w"), TensorType("float32", (4,))("b")
    v = TensorType("float32", (3, 4))("v")
    logits = ops.linear(ops.gelu(ops.layer_norm(ops.linear(x, w, b), [4])), v)
    return [x, t, w, b, v], ops.nll_loss(ops.log_softmax(logits, 1), t)


def test_a_network():
    inputs, cost = mlp()
    f = function(inputs, [cost, *grad(cost, inputs[2:])], mode="py")
    for n in (1, 5):
        values = [
            torch.randn(n, 6),
            torch.randint(3, (n,)),
            torch.randn(4, 6),
            torch.randn(4),
            torch.randn(3, 4),
        ]
        leaves = [v.clone().requires_grad_(v.is_floating_point()) for v in values]
        x, t, w, b, v = leaves
        F = torch.nn.functional
        loss = F.cross_entropy(F.linear(F.gelu(F.layer_norm(F.linear(x, w, b), [4])), v), t)
        expected = [loss, *torch.autograd.grad(loss, [w, b, v])]
        for result, e in zip(f(*values), expected, strict=True):
            torch.testing.assert_close(result, e.detach())


def test_a_compiled_function_is_part_of_autograd():
    inputs, cost = mlp()
    f = function(inputs, cost, mode="py")
    values = [
        torch.randn(2, 6),
        torch.tensor([0, 2]),
        torch.randn(4, 6),
        torch.randn(4),
        torch.randn(3, 4),
    ]
    parameters = [torch.nn.Parameter(v) for v in values[2:]]
    loss = f(*values[:2], *parameters) * 2
    loss.backward()
    expected = function(inputs, grad(cost, inputs[2:]), mode="py")(*values)
    for p, e in zip(parameters, expected, strict=True):
        torch.testing.assert_close(p.grad, 2 * e)
    with torch.no_grad():
        assert not f(*values[:2], *parameters).requires_grad


# Every op of the operator database


@pytest.mark.parametrize("part", range(database.PARTS))
def test_b11_gradients_of_the_operator_database_are_autograds(part):
    problems = []
    checked = 0
    for name, function_, values in database.calls(part, gradient=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                problem = _gradient_problem(function_, values)
            except database.Skip:
                continue
        checked += 1
        if problem:
            problems.append(f"{name}, {function_.name}: {problem}")
    assert not problems, "\n".join(problems)
    assert checked >= 10


@pytest.mark.parametrize("part", range(database.PARTS))
def test_gradients_with_open_sizes_are_autograds_whatever_the_sizes_are(part):
    counts, wrong = gradient_cases.hold(1, 3, part)
    assert not wrong, "\n".join(wrong)
    assert counts["right"] > 5 * counts["refused"]
    assert counts["right"] > 30


def test_a_gradient_is_checked_where_sizes_of_one_are_broadcast_inside():
    x, y = matrix("x"), matrix("y")
    cost = ops.cosine_similarity(x, y, 1).sum()
    f = function([x, y], grad(cost, [x, y]), mode="py")
    a, b = torch.randn(4, 5), torch.randn(4, 5)
    leaves = [a.clone().requires_grad_(), b.clone().requires_grad_()]
    expected = torch.autograd.grad(torch.cosine_similarity(*leaves).sum(), leaves)
    for got, want in zip(f(a, b), expected, strict=True):
        torch.testing.assert_close(got, want)
    with pytest.raises(ValueError, match=r"gradient: dimension 1 must be 5, .* got 1"):
        f(a, b[:, :1])


@pytest.mark.parametrize(
    ("function_", "eager", "right", "refused"),
    [
        # It cuts where there is more than n, and fills up where there is less.
        (
            lambda x: ops.abs(ops.fft_rfft(x, 10)),
            lambda x: torch.fft.rfft(x, 10).abs(),
            [(3, 12), (3, 10), (1, 40)],
            [(3, 9), (3, 2)],
        ),
        (
            lambda x: ops.linalg_lu(x)[1],
            lambda x: torch.linalg.lu(x)[1],
            [(6, 3), (5, 5)],
            [(3, 6), (1, 4)],
        ),
        (
            lambda x: ops.linalg_qr(x)[1],
            lambda x: torch.linalg.qr(x)[1],
            [(6, 3), (5, 5)],
            [(3, 6), (1, 4)],
        ),
        # Its gradient uses the results and not the input, and is checked all the same.
        (
            lambda x: ops.linalg_svd(x, False)[2],
            lambda x: torch.linalg.svd(x, False)[2],
            [(6, 3), (5, 5)],
            [(3, 6), (1, 4)],
        ),
        # Those hold for whatever order: no check.
        (lambda x: x[:3], lambda x: x[:3], [(2, 4), (3, 4), (9, 4), (0, 4)], []),
        (lambda x: x.unfold(1, 4, 2), lambda x: x.unfold(1, 4, 2), [(2, 4), (1, 40)], []),
    ],
)
def test_a_gradient_is_checked_where_another_order_of_sizes_has_another(
    function_, eager, right, refused
):
    x = TensorType("float64", (None, None))("x")
    y = function_(x)
    f = function([x], grad((y * y).sum(), [x]), mode="py")
    for shape in right:
        value = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        (expected,) = torch.autograd.grad(eager(value).square().sum(), [value])
        (got,) = f(value.detach())
        torch.testing.assert_close(got, expected)
    for shape in refused:
        with pytest.raises(BridgeValueError, match=r"for its gradient\.size"):
            f(torch.randn(shape, dtype=torch.float64))


def _gradient_problem(function_, values):
    template, inputs = function_.split(values)
    types = [v.type for v in inputs]
    tensors = [v.data for v in inputs]
    try:
        op = native_op(function_, template, types)
        node = op.make_node(*[t() for t in types])
    except BridgeTypeError as e:
        raise database.Skip from e
    wanted = [isinstance(t, TensorType) and t.dtype.startswith(("float", "complex")) for t in types]
    destroyed = {i for places in op.destroy_map.values() for i in places}
    leaves = [
        t.clone().requires_grad_(w) if isinstance(t, torch.Tensor) else t
        for t, w in zip(tensors, wanted, strict=True)
    ]
    try:
        result = op.call([v.clone() if i in destroyed else v for i, v in enumerate(leaves)])
    except RuntimeError as e:
        raise database.Skip from e
    outputs = database.flat(result)
    if not database._dense(outputs):
        raise database.Skip
    diff = [o.requires_grad if isinstance(o, torch.Tensor) else False for o in outputs]
    if not any(diff) or not all(wanted[i] for i in destroyed):
        raise database.Skip
    torch.manual_seed(0)
    seeds = [torch.randn_like(o) for o, d in zip(outputs, diff, strict=True) if d]
    try:
        expected = torch.autograd.grad(
            [o for o, d in zip(outputs, diff, strict=True) if d],
            [v for v, w in zip(leaves, wanted, strict=True) if w],
            seeds,
            allow_unused=True,
        )
    except (RuntimeError, NotImplementedError) as e:
        raise database.Skip from e
    seed_variables = [o.type() if d else None for o, d in zip(node.outputs, diff, strict=True)]
    try:
        found = native_grad(node, seed_variables)
    except MissingMethodError as e:
        if function_.name in database.NO_GRADIENT:
            raise database.Skip from e
        raise
    pairs = [
        (g, e)
        for g, e in zip((g for g, w in zip(found, wanted, strict=True) if w), expected, strict=True)
        if g is not None or (e is not None and bool(e.any()))
    ]
    if any(g is None or e is None for g, e in pairs):
        return "one has a gradient, the other none"
    f = function(
        [*node.inputs, *(v for v in seed_variables if v is not None)],
        [g for g, _ in pairs],
        mode="py",
    )
    results = f(*[t.clone() if isinstance(t, torch.Tensor) else t for t in tensors], *seeds)
    for result, (_, e) in zip(results, pairs, strict=True):
        try:
            torch.testing.assert_close(result, e, rtol=1e-4, atol=1e-5, equal_nan=True)
        except AssertionError as error:
            return str(error).partition("\n")[0]
    return None


def test_native_gradients_keep_their_trace():
    x = matrix("x")
    start = len(derivatives._traces)
    for _ in range(3):
        grad((x.sinh() + matrix().sinh().sum()).sum(), x)
    assert len(derivatives._traces) <= start + 3


@pytest.mark.parametrize(
    "mode",
    [torch.autocast("cpu"), torch.inference_mode(), torch.device("meta")],
    ids=["autocast", "inference", "device"],
)
def test_records_are_made_in_the_default_modes(mode):
    """They are kept: another program's graph uses them too. Each mode has sizes of its own."""
    n = {torch.autocast: 31, torch.inference_mode: 37}.get(type(mode), 41)
    x, y = TensorType("float32", (None, n))("x"), TensorType("float32", (n, 3))("y")
    with mode:
        gradients = grad((ops.mm(x, y).softmax(1) ** 2).sum(), [x, y])
    a, b = torch.randn(2, n, requires_grad=True), torch.randn(n, 3, requires_grad=True)
    wanted = torch.autograd.grad((torch.mm(a, b).softmax(1) ** 2).sum(), [a, b])
    compiled = function([x, y], gradients, mode="py")
    for around in (contextlib.nullcontext(), torch.autocast("cpu")):
        with around:
            results = compiled(a.detach(), b.detach())
        torch.testing.assert_close(results, list(wanted))


def test_types_are_those_of_the_default_dtype():
    x = TensorType("int64", (2, 43))("x")
    assert ops.div(x, x).type.dtype == "float32"
    torch.set_default_dtype(torch.float64)
    try:
        y = ops.div(x, x)
        assert y.type.dtype == "float64"
        assert function([x], y, mode="py")(torch.ones(2, 43).long()).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert ops.div(x, x).type.dtype == "float32"


def test_unknown_dimensions_are_refused_clearly():
    x = TensorType("float32")("x")
    with pytest.raises(
        MissingMethodError, match="its dtype and its number of dimensions must be known"
    ):
        grad(native("exp")(x), x, grad_outputs=x)


@pytest.mark.parametrize("name", ["cov", "corrcoef"])
def test_what_compares_elements_only_to_warn(name):
    x = TensorType("float32", (2, 5))("x")
    value = torch.randn(2, 5, requires_grad=True)
    (wanted,) = torch.autograd.grad((getattr(torch, name)(value) ** 2).sum(), value)
    f = function([x], grad((getattr(ops, name)(x) ** 2).sum(), x), mode="py")
    torch.testing.assert_close(f(value.detach()), wanted)


@pytest.mark.parametrize("shape", [(None,), (None, 3), (2, None), (None, None), (2, 3, None)])
@pytest.mark.parametrize("dim", [None, 0, -1])
def test_the_gradient_of_a_product_of_nothing_has_no_elements(shape, dim):
    x = TensorType("float32", shape)("x")
    y = ops.prod(x) if dim is None else ops.prod(x, dim)
    f = function(x, grad(y.sum(), x), mode="py")
    for sizes in itertools.product((0, 1, 4), repeat=shape.count(None)):
        given = iter(sizes)
        a = torch.randn([next(given) if d is None else d for d in shape], requires_grad=True)
        b = a.prod() if dim is None else a.prod(dim)
        (expected,) = torch.autograd.grad(b.sum(), a)
        torch.testing.assert_close(f(a.detach()), expected)


def test_a_guard_stays_where_no_sizes_show_it_to_be_needless():
    """The op refuses all that are on its other side, so that none could be tried."""
    x = TensorType("float32", (None,))("x")
    (g,) = grad(ops.sum(ops.narrow(x, 0, 0, 3)), [x])
    checks = [n.op for n in toposort([g]) if isinstance(n.op, CheckSizes)]
    assert [c.text for op in checks for c in op.conditions] == ["-3 + x0.shape[0] >= 0"]


ATTENTION = {
    "plain": {},
    "causal": {"is_causal": True},
    "scaled": {"scale": 0.3},
    "dropout of 0": {"dropout_p": 0.0},
    "grouped": {"kv": 2, "enable_gqa": True},
    "bool mask": {"mask": torch.bool},
    "float mask": {"mask": torch.float32},
    "half": {"dtype": torch.bfloat16},
    "dropout": {"dropout_p": 0.4},
    "causal dropout": {"is_causal": True, "dropout_p": 0.4},
}


@pytest.mark.parametrize(
    ("case", "known"),
    [*((case, True) for case in ATTENTION), ("plain", False), ("causal dropout", False)],
)
def test_attention_has_the_gradient_of_autograd(case, known):
    options = dict(ATTENTION[case])
    mask, kv = options.pop("mask", None), options.pop("kv", 4)
    dtype = options.pop("dtype", torch.float32)
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, 4, 7, 8), (2, kv, 7, 8), (2, kv, 7, 8)]
    values = [torch.randn(s, generator=generator).to(dtype) for s in shapes]
    if mask is not None:
        values.append((torch.randn(7, 7, generator=generator) > -0.5).to(mask))
        values[-1][:, 0] = True
    weight = torch.randn(shapes[0], generator=generator).to(dtype)

    def variable(x):
        sizes = [n if known or i % 2 else None for i, n in enumerate(x.shape)]
        return TensorType(x.dtype, sizes if x.dim() == 4 else x.shape)()

    variables, w = [variable(v) for v in values], variable(weight)
    y = ops.scaled_dot_product_attention(*variables, **options)
    found = function([*variables, w], [y, *grad((y * w).sum(), variables[:3])], mode="py")
    torch.manual_seed(1)
    got = found(*values, weight)
    leaves = [v.clone().requires_grad_(i < 3) for i, v in enumerate(values)]
    torch.manual_seed(1)
    out = torch.nn.functional.scaled_dot_product_attention(*leaves, **options)
    want = [out.detach(), *torch.autograd.grad((out * weight).sum(), leaves[:3])]
    assert all(map(torch.equal, got, want))


@pytest.mark.parametrize(
    ("name", "known"),
    [
        *(("dropout", True), ("dropout", False), ("alpha_dropout", True)),
        *(("feature_dropout", True), ("feature_alpha_dropout", False)),
    ],
)
def test_dropout_draws_in_the_order_of_the_memory(name, known):
    x = torch.randn(6, 4, 5).permute(1, 2, 0).requires_grad_()
    v = TensorType("float32", x.shape if known else (None,) * 3)()
    y = getattr(ops, name)(v, 0.3, True)
    torch.manual_seed(1)
    got, g = function(v, [y, grad((y * y).sum(), v)], mode="py")(x.detach())
    torch.manual_seed(1)
    want = getattr(torch, name)(x, 0.3, True)
    assert torch.equal(got, want)
    assert got.stride() == want.stride()
    assert torch.equal(g, torch.autograd.grad((want * want).sum(), x)[0])


def test_gradients_of_open_sizes_that_must_be_known_ones():
    """Where one tensor has a known size and the other an open one in the same place."""
    torch.manual_seed(0)
    for name, first, second, sizes in (
        ("mul", (None, 4, None, 8), (None,) * 4, [(3, 4, 5, 8), (3, 4, 5, 8)]),
        ("mul", (None, 4, None, 8), (None,) * 4, [(3, 4, 5, 8), (1, 4, 1, 1)]),
        ("add", (None,) * 4, (5, 4, 3, 8), [(5, 4, 3, 8), (5, 4, 3, 8)]),
        ("mul", (None, 4, None, 8), (None, None), [(3, 4, 5, 8), (5, 8)]),
        ("ij,jk->ik", (None, 4), (None, None), [(3, 4), (4, 6)]),
        ("bhld,bhsd->bhls", (2, None, 4, 8), (None,) * 4, [(2, 3, 4, 8), (2, 3, 5, 8)]),
    ):
        variables = [TensorType("float32", s)() for s in (first, second)]
        x, z = map(torch.randn, sizes)

        def call(module, a, b, name=name):
            if "->" not in name:
                return getattr(module, name)(a, b)
            return module.einsum(name, [a, b])

        y = call(ops, *variables)
        got = function(variables, grad((y * y).sum(), variables), mode="py")(x, z)
        leaves = [v.clone().requires_grad_() for v in (x, z)]
        out = call(torch, *leaves)
        for a, b in zip(got, torch.autograd.grad((out * out).sum(), leaves), strict=True):
            torch.testing.assert_close(a, b)
