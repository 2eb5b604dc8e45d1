"""from_exported: what a program takes, returns, changes and refuses, against the module itself."""

from __future__ import annotations

import collections
import copy
import gc
import weakref
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.utils import _pytree

import pytorch_bridge as pb
from pytorch_bridge import BridgeTypeError, BridgeValueError
from pytorch_bridge.graph.basic import toposort
from pytorch_bridge.native.extension import live_handles
from pytorch_bridge.ops import library_operators
from pytorch_bridge.ops.checks import CheckSizes, Require, SizeRule
from pytorch_bridge.ops.from_fx import UnsupportedNode
from pytorch_bridge.ops.library_operators import LibraryOp

MODE = "py"  # the C code of these small graphs is tested once, by test_in_c


def assert_same(a, b):
    """Equal to the last bit, nested in the same way."""
    (ours, spec), (theirs, expected) = _pytree.tree_flatten(a), _pytree.tree_flatten(b)
    assert spec == expected
    for x, y in zip(ours, theirs, strict=True):
        assert type(x) is type(y) or isinstance(x, torch.Tensor)
        if isinstance(x, torch.Tensor):
            assert x.dtype == y.dtype
            torch.testing.assert_close(x, y, rtol=0, atol=0, equal_nan=True)
        else:
            assert x == y


def Of(function, **buffers):
    """A module whose forward is a function, which takes the module first where it has buffers."""
    forward = function if buffers else staticmethod(function)
    module = type("Of", (nn.Module,), {"forward": forward})()
    for name, value in buffers.items():
        module.register_buffer(name, value)
    return module


def export(module, *args, dynamic=None, **kwargs):
    if not isinstance(module, nn.Module):
        module = Of(module)
    return torch.export.export(module, args, kwargs or None, dynamic_shapes=dynamic)


def check(module, *args, dynamic=None, others=(), mode=MODE, **kwargs):
    """Exports, and compares with the module for these arguments and others; returns the model."""
    module = module if isinstance(module, nn.Module) else Of(module)
    program = export(copy.deepcopy(module), *args, dynamic=dynamic, **kwargs)
    model = pb.from_exported(program)
    compiled = model.compile(mode)
    for given in [args, *others]:
        mine = copy.deepcopy((given, kwargs))
        theirs = copy.deepcopy((given, kwargs))
        live = live_handles()
        with torch.no_grad():
            expected = module(*theirs[0], **theirs[1])
        assert_same(compiled(*mine[0], **mine[1]), expected)
        assert_same(mine, theirs)
        assert live_handles() == live
        for name, value in module.state_dict().items():
            assert torch.equal(model.state_dict()[name], value), name
    return model


X, Y = torch.randn(2, 3), torch.randn(2, 3)


# Results and arguments


Pair = collections.namedtuple("Pair", "first second")


@dataclass
class Point:
    x: torch.Tensor
    y: torch.Tensor
    name: str | None = None


torch.export.register_dataclass(Point, serialized_type_name="tests.graph.Point")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x + 1, x * 2),
        lambda x: [x + 1],
        lambda x: (x + 1,),
        lambda x: {"b": x + 1, "a": (x, [x * 2, None, 3, "three", 2.5, True])},
        lambda x: Pair(x + 1, {"z": x}),
        lambda x: Point(x + 1, x * 2),
        lambda x: (x, x),
        lambda x: (x + 1).view(-1),
        lambda x: None,
        lambda x: (x.shape[0], x.ndim),
    ],
    ids=["tuple", "list", "one", "nested", "named", "dataclass", "input", "view", "None", "sizes"],
)
def test_results_nest_as_the_module_nests_them(function):
    check(function, X, dynamic=({0: Dim.DYNAMIC},), others=[(torch.randn(5, 3),)])


def test_arguments_nest_as_the_module_takes_them():
    def f(x, pair, *, scale, point):
        return x * scale["by"] + pair[0] - pair[1][0] * point.y

    model = check(f, X, (Y, [X]), scale={"by": Y}, point=Point(X, Y))
    assert model.example[0] is X
    assert len(model.example) == len(model.inputs)
    # By keyword where the module has it by position, and in any order.
    named = model.compile(MODE)
    by = {"by": Y}
    expected = f(X, (Y, [X]), scale=by, point=Point(X, Y))
    assert torch.equal(named(pair=(Y, [X]), point=Point(X, Y), scale=by, x=X), expected)
    for args, kwargs, message in [
        ((X,), {"scale": by, "point": Point(X, Y)}, "'pair' is missing"),
        ((X, (Y, [X])), {"scale": by}, "needs the argument 'point'"),
        (
            (X, (Y, X)),
            {"scale": by, "point": Point(X, Y)},
            r"pair must be \(·, \[·\]\), got \(·, ·\)",
        ),
        ((X, (Y, [X])), {"scale": {"at": Y}, "point": Point(X, Y)}, "scale must be {'by': ·}"),
        ((X, (Y, [X]), 1), {"scale": by, "point": Point(X, Y)}, "takes 2 arguments"),
        ((X, (Y, [X])), {"scale": by, "point": X, "x": X}, "'x' twice"),
        ((X, (Y, [X])), {"scale": by, "point": X, "z": X}, "no argument 'z'; it has x, pair, "),
    ]:
        with pytest.raises(BridgeTypeError, match=message):
            named(*args, **kwargs)


def test_constants_among_the_arguments():
    def f(x, n, factor, mode, flag, other):
        y = x * n * factor if flag else x
        return y + 1 if mode == "more" and other is None else y

    model = check(f, X, 2, 1.5, "more", True, None)
    compiled = model.compile(MODE)
    assert [type(v).__name__ for v in model.in_leaves] == ["int"] + 5 * ["Fixed"]
    for place, value, message in [
        (1, 3, "argument n is the constant 2 in the program, got 3"),
        (1, 2.0, "argument n is the constant 2"),
        (2, 1.25, "argument factor is the constant 1.5"),
        (3, "less", "argument mode is the constant 'more'"),
        (4, False, "argument flag is the constant True"),
        (5, X, "argument other is the constant None"),
    ]:
        args = [X, 2, 1.5, "more", True, None]
        args[place] = value
        with pytest.raises(BridgeValueError, match=message):
            compiled(*args)


def test_numbers_among_the_arguments():
    def f(x, n):
        return x.narrow(0, 0, n) * n, n + 1

    check(f, torch.randn(6, 3), 4, dynamic=(None, Dim.DYNAMIC), others=[(torch.randn(6, 3), 5)])


def test_a_model_of_one_input_is_called_directly():
    compiled = check(lambda x: x.relu(), X).compile("c")
    assert torch.equal(compiled(X), X.relu())
    assert torch.equal(compiled(X.tolist()), X.relu())
    y = X.clone().requires_grad_()
    compiled(y).sum().backward()
    assert torch.equal(y.grad, (X > 0).float())


# Sizes


def refused(call, kind, *parts):
    with pytest.raises(kind) as caught:
        call()
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize("mode", ["py", "c"])
def test_sizes_are_checked(mode):
    b, t = Dim("b", min=3, max=64), Dim("t", max=9)
    program = export(
        lambda x, y, z: (x + y, z.sum()),
        torch.randn(4, 5),
        torch.randn(4, 5),
        torch.randn(8, 3),
        dynamic=({0: b, 1: t}, {0: b, 1: t}, {0: 2 * b}),
    )
    f = pb.from_exported(program, name="adder").compile(mode)

    def call(x, y, z):
        return lambda: f(torch.zeros(x), torch.zeros(y), torch.zeros(z))

    assert call((64, 9), (64, 9), (128, 3))()[0].shape == (64, 9)
    value = BridgeValueError
    refused(call((2, 5), (2, 5), (4, 3)), value, "x: dimension 0 must be between 3 and 64, got 2")
    refused(
        call((65, 5), (65, 5), (130, 3)), value, "x: dimension 0 must be between 3 and 64, got 65"
    )
    refused(call((4, 10), (4, 10), (8, 3)), value, "x: dimension 1 must be at most 9, got 10")
    refused(
        call((4, 5), (5, 5), (8, 3)),
        value,
        "y: dimension 0 must be 4, as x's dimension 0 is, got 5",
    )
    refused(
        call((4, 5), (4, 6), (8, 3)),
        value,
        "y: dimension 1 must be 5, as x's dimension 1 is, got 6",
    )
    refused(
        call((4, 5), (4, 5), (9, 3)),
        value,
        "z: dimension 0 must be 8, 2*n, where n is x's dimension 0, got 9",
    )
    refused(call((4, 5), (4, 5), (8, 2)), BridgeTypeError, "adder", "z", "(None, 3)", "(8, 2)")
    with pytest.raises(BridgeTypeError, match=r"x.*float32.*got a Tensor of torch.complex64"):
        f(torch.full((4, 5), 1j), torch.zeros(4, 5), torch.zeros(8, 3))


def test_a_size_that_only_appears_in_an_expression():
    b = Dim("b", max=8)
    model = check(
        lambda x: x.view(-1, 2).sum(1), torch.randn(6), dynamic=({0: 2 * b},),
        others=[(torch.randn(10),)],
    )  # fmt: skip
    refused(
        lambda: model.compile("c")(torch.zeros(7)),
        BridgeValueError,
        "x: dimension 0 must be 2*n for a whole n, got 7",
    )


def test_a_size_as_a_number():
    def f(x, n):
        torch._check(n >= 4)
        torch._check(n <= 9)
        return x * n

    model = check(f, X, 5, dynamic=(None, Dim.DYNAMIC), others=[(X, 9)])
    for mode in ("py", "c"):
        refused(
            lambda: model.compile(mode)(X, 10),  # noqa: B023
            BridgeValueError,
            "n must be between 4 and 9, got 10",
        )


def test_size_checks_pass_gradients_on():
    x, y = (pb.TensorType("float32", (None,))(n) for n in "xy")
    rules = [SizeRule(0, 0, "n"), SizeRule(1, 0, "n")]
    a, b = CheckSizes(["x", "y"], rules)(x, y)
    gx, gy = pb.grad((a * b).sum(), [x, y])
    one, two = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    gradients = pb.function([x, y], [gx, gy], mode="py")(one, two)
    assert_same(gradients, [two, one])


def test_misuse_of_checks():
    x = pb.TensorType("float32", (None,))("x")
    with pytest.raises(BridgeTypeError, match="takes 1 inputs, got 2"):
        CheckSizes(["x"], [])(x, x)
    with pytest.raises(BridgeValueError, match="fits no size"):
        CheckSizes(["x"], [SizeRule(1, 0, "n")])
    with pytest.raises(BridgeTypeError, match="fits no size"):
        CheckSizes(["x"], [SizeRule(0, 1, "n")])(x)
    with pytest.raises(BridgeTypeError, match="needs a truth value"):
        Require("no")(x, x)


# Sizes that depend on elements, and assertions


def test_assertions_hold_when_the_graph_runs():
    def f(x, n):
        u = n.item()
        torch._check(u <= 2, lambda: "n is at most 2")
        torch._check(u >= 0)
        return x[:u] * 2, u + 1

    model = check(f, X, torch.tensor(1), others=[(X, torch.tensor(2)), (X, torch.tensor(0))])
    for mode in ("py", "c"):
        refused(lambda: model.compile(mode)(X, torch.tensor(3)), RuntimeError, "u0 <= 2")  # noqa: B023


def test_sizes_of_results_that_depend_on_elements():
    check(lambda x: x[x > 0].sum() + x.nonzero().shape[0], X, others=[(Y,)])


def test_an_assertion_about_elements():
    def f(x):
        torch._assert_async((x > 0).all(), "not positive")
        return x.log()

    model = check(f, X.abs() + 1)
    refused(lambda: model.compile(MODE)(-X.abs()), RuntimeError, "not positive")


# Parameters, buffers, constants


def test_buffers_and_constants():
    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)
            self.tied = nn.Linear(3, 3)
            self.tied.weight = self.linear.weight
            self.register_buffer("kept", torch.randn(3))
            self.register_buffer("lost", torch.randn(3), persistent=False)
            self.plain = torch.randn(3)

        def forward(self, x):
            y = self.tied(self.linear(x)) + self.kept + self.lost + self.plain
            return y + torch.tensor([1.0, 2.0, 3.0]), self.kept

    model = check(Module(), X)
    assert {"linear.weight", "tied.weight", "kept", "lost", "plain"} <= set(model.weights)
    assert model.weights["linear.weight"] is model.weights["tied.weight"]
    assert not model.state
    assert "lost" not in model.state_dict()
    # What is returned is the caller's.
    compiled = model.compile(MODE)
    before = compiled(X)
    compiled(X)[1].add_(1)
    assert_same(compiled(X), before)


def test_batch_norm_in_training():
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True)).train()
    pictures = [(torch.randn(b, 3, 6, 6),) for b in (2, 3, 5)]
    model = check(module, *pictures[0], dynamic=({0: Dim("b")},), others=pictures[1:], mode="c")
    assert list(model.updates) == list(model.state)
    assert set(model.state) == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    assert model.state_dict()["1.num_batches_tracked"] == 3
    # All that is compiled from a model shares its state, and it can be set back.
    model.compile("py")(*pictures[0])
    assert model.state_dict()["1.num_batches_tracked"] == 4
    model.load_state({"1.num_batches_tracked": 0})
    model(*pictures[0])
    assert model.state_dict()["1.num_batches_tracked"] == 1
    with pytest.raises(
        BridgeValueError, match=r"'0.weight' is not what a call changes; that is 1\."
    ):
        model.load_state({"1.num_batches_tracked": 7, "0.weight": torch.zeros(1)})
    with pytest.raises(BridgeTypeError, match="dimension 0 must be 4, got 5"):
        model.load_state({"1.num_batches_tracked": 7, "1.running_mean": torch.zeros(5)})
    assert model.state_dict()["1.num_batches_tracked"] == 1


def counter(self, x):
    self.count.add_(1)
    return x * self.count, self.count


def cache(self, x):
    self.memory[1:2] = x
    self.memory.mul_(2)
    return self.memory.sum(0)


def shared(self, x):
    row = self.memory[0]
    self.memory.add_(x)
    return row + 1


def input_written(x, y):
    x.add_(1)
    z = x * y
    x[0] = 0
    return z


def chain(x):
    y = x * 2
    y += 1
    y.relu_().mul_(3)
    z = y.view(-1)
    z.sub_(1)
    return z


def later_view(x):
    y = x * 2
    z = y.t()
    y.add_(1)
    return z, y


def not_pointwise(x):
    y = x.clone()
    y.index_fill_(0, torch.tensor([0]), 5.0)
    y.copy_(x[0] * 2).clamp_(min=0)
    return y.to(torch.int64).add_(1)


@pytest.mark.parametrize(
    "module",
    [
        Of(counter, count=torch.zeros(())),
        Of(cache, memory=torch.randn(4, 3)),
        Of(shared, memory=torch.randn(4, 3)),
        chain,
        later_view,
        not_pointwise,
        lambda x: x.add_(1),
        lambda x: (x.mul_(2).view(-1), x),
    ],
    ids=["buffer", "part", "view", "chain", "later", "scatter", "argument", "both"],
)
def test_what_is_written_in_place(module):
    x = torch.randn(1, 3)
    check(module, x, others=[(x + 1,), (x,)])


def written(self, x):
    self.a.add_(1)
    return x + self.b.sum()


def test_buffers_in_the_same_memory_that_are_written():
    """Of one tensor of two names torch.export sees both; a view of it would stay as it was."""
    whole = torch.zeros(4, 2)
    for a, b in [(whole, whole[1:3]), (whole[1:3], whole), (whole[:2], whole[:2].view(-1))]:
        with pytest.raises(UnsupportedNode, match=r"changes a, which shares its memory with b"):
            pb.from_exported(export(Of(written, a=a, b=b), X))
    for function, a, b in [
        (written, whole, whole),
        (written, whole[:2], whole[2:]),
        (written, whole[:, 0], whole[:, 1]),
        # One that nothing is made of may be anywhere.
        (lambda self, x: x + self.a.add_(1).sum(), whole[1:3], whole),
    ]:
        whole.zero_()
        module = Of(function, a=a, b=b)
        model = pb.from_exported(export(copy.deepcopy(module), X)).compile(MODE)
        for _ in range(3):
            assert_same(model(X), module(X))


def test_state_under_a_second_name_is_as_it_is_now():
    def count(self, x):
        self.a.add_(1)
        return x * self.a

    def alike(got, want):
        assert list(got) == list(want)
        for name, value in want.items():
            assert torch.equal(got[name], value), name

    shared = torch.zeros(3)
    module = Of(count, a=shared, b=shared, c=shared.clone())
    model = pb.from_exported(export(copy.deepcopy(module), X))
    alike(model.state_dict(), module.state_dict())
    for _ in range(2):
        model.compile("py")(X)
        module(X)
        alike(model.state_dict(), module.state_dict())
    model.load_state({next(iter(model.state)): torch.full((3,), 7.0)})
    assert [v[0].item() for v in model.state_dict().values()] == [7, 7, 0]


def test_arguments_that_are_written():
    model = check(input_written, X, Y, mode="c")
    assert list(model.mutations) == [0]
    given = torch.ones(2, dtype=torch.int64)
    halves = pb.from_exported(export(lambda x: x.add_(0.5) * 2, torch.ones(2))).compile("py")
    with pytest.raises(
        BridgeTypeError, match=r"input 0 \(x\): .* it is written into, so it is not"
    ):
        halves(given)
    assert given.tolist() == [1, 1]


def test_arguments_that_are_written_are_recorded():
    def module(x):
        return x.mul_(3).exp() * 2

    compiled = pb.from_exported(export(module, X)).compile("py")
    for f in (module, compiled):
        leaf = X.clone().requires_grad_()
        value = leaf * 1
        (found,) = torch.autograd.grad(f(value).sum() + value.sum(), leaf)
        torch.testing.assert_close(found, 6 * torch.exp(3 * X) + 3)
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used"):
            f(leaf)
        assert torch.equal(leaf, X)


def test_what_only_an_argument_sees():
    weight = torch.full((2, 3), 2.0)

    def forward(self, x):
        x.add_(self.weight)
        return self.other + 1

    check(Of(forward, weight=weight, other=torch.ones(3)), X)


def test_in_place_ops_become_values_where_nobody_can_tell():
    model = pb.from_exported(export(chain, X))
    names = [str(n.op) for n in toposort(model.outputs)]
    assert names[0].startswith("mul")
    assert "relu" in names


# Graphs inside graphs


def test_modes_are_taken_apart():
    def f(x, w):
        with torch.no_grad():
            y = x @ w
        with torch.autocast("cpu", torch.bfloat16):
            z = y @ w
            with torch.enable_grad():
                z = z.relu()
        return y, z

    check(f, X, torch.randn(3, 3))


def test_what_is_not_supported_is_named():
    class Branches(nn.Module):
        def forward(self, x):
            y = x * 2
            ways = lambda a: (a.add_(1) * 2,), lambda a: (a - 1,)
            return torch.ops.higher_order.cond(y.sum() > 0, *ways, (y,))

    with pytest.raises(UnsupportedNode) as caught:
        pb.from_exported(export(Branches(), X))
    message = str(caught.value)
    assert "cond" in message
    assert "let it write into a clone" in message
    assert "test_exported.py" in message
    assert "return torch.ops.higher_order.cond(" in message


def test_what_is_no_program():
    with pytest.raises(BridgeTypeError, match=r"ExportedProgram, got Linear.*torch.export.export"):
        pb.from_exported(nn.Linear(2, 2))


# Operators of others


@torch.library.custom_op("graph_tests::scaled", mutates_args=())
def scaled(x: torch.Tensor, others: list[torch.Tensor], by: float) -> torch.Tensor:
    return x * by + sum(others)


@scaled.register_fake
def _(x, others, by):
    return torch.empty_like(x)


@torch.library.custom_op("graph_tests::double_", mutates_args=("x",))
def double_(x: torch.Tensor) -> None:
    x.mul_(2)


class Scaled(nn.Module):
    def forward(self, x, y):
        return scaled(x.relu(), [y, x], 2.5) + 1


def test_operators_of_libraries():
    check(Scaled(), X, Y, others=[(Y, X)])
    model = check(Scaled(), X, Y, mode="c", dynamic=({0: Dim("b")}, {0: Dim("b")}))
    with pytest.raises(
        pb.MissingMethodError,
        match=r"(?s)graph_tests::scaled.* no C code, which is demanded: it is written in Python; "
        r"write it .*return scaled\(x.relu\(\), \[y, x\], 2.5\) \+ 1",
    ):
        model.compile("c_only")


def test_an_operator_that_is_known_has_advice_of_its_own():
    # As the library transformers registers it, in Python.
    @torch.library.custom_op("transformers::grouped_mm_fallback", mutates_args=())
    def grouped_mm(input: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
        return torch.zeros(input.shape[0], weight.shape[2])

    grouped_mm.register_fake(lambda i, w, offs: i.new_empty(i.shape[0], w.shape[2]))

    class Experts(nn.Module):
        def forward(self, x, w, offs):
            return grouped_mm(x, w, offs)

    example = torch.ones(2, 3), torch.ones(1, 3, 4), torch.tensor([2])
    model = pb.from_exported(torch.export.export(Experts(), example))
    with pytest.raises(
        pb.MissingMethodError,
        match=r'(?s)written in Python; let .*model.set_experts_implementation\("batched_mm"\), and '
        r"export it again.*return grouped_mm\(x, w, offs\)",
    ):
        model.compile("c_only")


made_of_others = torch.library.Library("graph_tests_composite", "DEF")
made_of_others.define(
    "normed(Tensor x, Tensor? w, int[] sizes, *, float eps=1e-5) -> (Tensor, Tensor)"
)


@torch.library.impl(made_of_others, "normed", "CompositeImplicitAutograd")
def _normed(x, w, sizes, *, eps=1e-5):
    y = torch.nn.functional.layer_norm(x, sizes, w, None, eps)
    return y, torch.nn.functional.linear(y, y)


def test_operators_that_are_made_of_others_are_taken_apart():
    def f(x, w):
        y, z = torch.ops.graph_tests_composite.normed(x.relu(), w, [3], eps=0.5)
        return torch.ops.graph_tests_composite.normed(y, None, [3])[0] @ w + z.sum()

    rows = ({0: Dim("b")}, None)
    model = check(f, X, torch.randn(3), dynamic=rows, others=[(torch.randn(7, 3), torch.ones(3))])
    names = {str(n.op).split("{")[0] for n in toposort(model.outputs)}
    assert {"native_layer_norm", "mm"} <= names
    model.compile("c_only")


class OfMkldnn(nn.Module):
    """Calls an operator with a kernel of C++ that is no native function."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 4)

    def forward(self, x):
        linear = torch.ops.mkldnn._linear_pointwise
        y = linear(x, self.linear.weight, self.linear.bias, "leaky_relu", [0.25], algorithm="")
        return y + linear(x, self.linear.weight, None, "none", [], "")


def test_operators_with_kernels_of_cplusplus_are_called_from_c():
    given = [(torch.randn(7, 3),), (torch.randn(2, 3),)]
    for mode in ("py", "c_only"):
        model = check(OfMkldnn(), X, dynamic=({0: Dim.AUTO},), others=given, mode=mode)
    called = [n.op for n in toposort(model.outputs) if isinstance(n.op, LibraryOp)]
    assert len(called) == 2


def test_an_operator_whose_library_is_not_there(monkeypatch):
    program = export(OfMkldnn(), X)
    model = pb.from_exported(program)
    for node in toposort(model.outputs):
        if isinstance(node.op, LibraryOp):
            schema = SimpleNamespace(name="nowhere::f", overload_name="")
            node.op.overload = SimpleNamespace(_schema=schema)
    monkeypatch.setattr(library_operators, "is_python", lambda overload: False)
    for path, message in [
        ("/there/is/no/such.so", "nowhere::f is an operator of a library.*/there/is/no/such.so"),
        (torch._C.__file__, "there is no operator 'nowhere::f'"),
        (None, "there is no operator 'nowhere::f'"),
    ]:
        paths = () if path is None else (path,)
        monkeypatch.setattr(library_operators, "libraries_of", lambda name, paths=paths: paths)
        live = live_handles()
        with pytest.raises(Exception, match=message):
            model.compile("c_only")(X)
        assert live_handles() == live


def test_an_operator_of_a_library_that_only_writes():
    def f(x):
        y = x.relu()
        double_(y)
        double_(x)
        return y + x

    check(f, X, others=[(Y,)])


# Programs in other forms


def test_a_saved_program(tmp_path):
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(inplace=True)).eval()
    program = export(module, X, dynamic=({0: Dim("b", max=50)},))
    torch.export.save(program, tmp_path / "m.pt2")
    model = pb.from_exported(torch.export.load(tmp_path / "m.pt2"))
    assert torch.equal(model.compile(MODE)(X), module(X))
    refused(lambda: model.compile(MODE)(torch.zeros(51, 3)), BridgeValueError, "at most 50")


def test_a_program_that_has_been_decomposed():
    module = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.Flatten(), nn.Linear(64, 5),
        nn.LayerNorm(5), nn.Softmax(-1),
    ).eval()  # fmt: skip
    x = torch.randn(2, 3, 6, 6)
    program = export(module, x, dynamic=({0: Dim("b")},)).run_decompositions()
    expected = program.module()(x)
    assert torch.equal(pb.from_exported(program).compile(MODE)(x), expected)


def test_what_a_program_asks_of_layouts():
    """torch.export writes strides and offsets as arithmetic of sizes, so the calls are put into
    the program by hand."""
    aten = torch.ops.aten

    def f(x):
        return x[1:].t() * 2

    program = export(f, torch.randn(4, 6), dynamic=({0: Dim.DYNAMIC, 1: Dim.DYNAMIC},))
    graph = program.graph_module.graph
    (x,), (result,) = graph.find_nodes(op="placeholder"), graph.find_nodes(op="output")
    (view,) = graph.find_nodes(op="call_function", target=aten.t.default)
    product = result.args[0][0]
    asked = [
        (aten.sym_numel.default, x), (aten.sym_size.int, view, -1), (aten.sym_stride.int, view, 0),
        (aten.sym_stride.int, view, 1), (aten.sym_storage_offset.default, view),
    ]  # fmt: skip
    with graph.inserting_before(result):
        for function, of, *args in asked:
            number = graph.call_function(function, (of, *args))
            number.meta["val"] = function(of.meta["val"], *args)
            shape = product.meta["val"]
            product = graph.call_function(aten.add.Tensor, (product, number))
            product.meta["val"] = shape
    result.args = ((product,),)
    program.graph_module.recompile()

    for mode in ("py", "c"):
        model = pb.from_exported(program).compile(mode)
        for shape in ((4, 6), (5, 3)):
            given = torch.randn(shape)
            v = given[1:].t()
            numbers = given.numel() + v.size(-1) + v.stride(0) + v.stride(1) + v.storage_offset()
            torch.testing.assert_close(model(given), v * 2 + numbers)


def test_a_compiled_model_is_freed_without_the_collector():
    """Its weights may be gigabytes."""
    f = pb.from_exported(export(nn.Linear(3, 2), X)).compile("c")
    f(X)
    f(X.double().float().requires_grad_())  # converted and tracked, by way of Python
    with pytest.raises(BridgeTypeError):
        f(X, X)
    gone = [weakref.ref(v) for v in (f, f.function, f.function.direct)]
    gc.collect()
    gc.disable()
    try:
        del f
        assert [r() for r in gone] == [None, None, None]
    finally:
        gc.enable()


def test_ten_thousand_nodes():
    program = export(lambda x: (x * 0.5 + 1).sin(), X)
    graph = program.graph_module.graph
    nodes = [n for n in graph.nodes if n.op == "call_function"]
    last = nodes[-1]
    output = next(n for n in graph.nodes if n.op == "output")
    with graph.inserting_before(output):
        for i in range(10_000):
            node = nodes[i % len(nodes)]
            args = [last if isinstance(a, torch.fx.Node) else a for a in node.args]
            last = graph.call_function(node.target, tuple(args))
            last.meta = dict(node.meta)
    output.args = ((last,),)
    program.graph_module.recompile()
    model = pb.from_exported(program)
    assert len(toposort(model.outputs)) == 10_003
    assert torch.equal(
        pb.function(model.inputs, model.outputs, "py", rewrite=False)(X)[0],
        program.graph_module(X)[0],
    )


# Random numbers


def draws(x, y):
    """Functions that draw, with and without arguments, some in vain; the results in another
    order."""
    a = torch.rand(3)
    torch.randn(2)
    b = torch.randn(2, 3)
    c = nn.functional.dropout(x, 0.5, True)
    z = x.clone()
    z.t()[1:].normal_()
    torch.randperm(4)
    w = torch.rand_like(x)
    w.fill_(1)
    (taken,) = torch.cond(y.sum() > 0, lambda v: (v + torch.rand(1),), lambda v: (v * 2,), (x * 1,))
    d = torch.bernoulli(x.sigmoid())
    torch.rand(5)
    return b, taken, d, z, c, a, w


@pytest.mark.parametrize("mode", ["py", "c"])
def test_random_numbers_are_drawn_in_the_order_of_the_program(mode):
    for function in (draws, lambda x, y: (torch.rand(2), x + y)[1]):
        program = export(function, X, Y)
        compiled, theirs = pb.from_exported(program).compile(mode), program.module()
        for seed, y in enumerate((Y, Y.abs(), -Y.abs())):
            torch.manual_seed(seed)
            with torch.no_grad():
                expected = theirs(X, y)
            state = torch.get_rng_state()
            torch.manual_seed(seed)
            assert_same(compiled(X, y), expected)
            assert torch.equal(torch.get_rng_state(), state)


# Arguments that share memory


def test_arguments_that_share_memory_with_what_is_written_are_refused():
    """PyTorch would read what has been written."""

    def f(x, y):
        x.add_(1)
        return y * 2

    for mode in ("py", "c"):
        compiled = pb.from_exported(export(f, torch.ones(2, 3), Y)).compile(mode)
        big = torch.ones(3, 3)
        for given in ((big[:2], big[1:]), (big[:2], big[:2]), (big[:1].expand(2, 3), Y)):
            with pytest.raises(BridgeValueError, match="the argument x is written into, and"):
                compiled(*given)
            assert torch.equal(big, torch.ones(3, 3))
        apart = torch.ones(4, 3)
        assert torch.equal(compiled(apart[:2], apart[2:]), torch.full((2, 3), 2.0))
        assert torch.equal(apart[:2], torch.full((2, 3), 2.0))
    module = Of(lambda self, x: self.kept.add_(1)[0] + x, kept=torch.zeros(2, 3))
    model = pb.from_exported(export(module, torch.ones(3)))
    with pytest.raises(BridgeValueError, match="the buffer kept is written into, and shares"):
        model(model.state_dict()["kept"][1])
