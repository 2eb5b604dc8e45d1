"""The extensions of examples/extending, each one file outside the package."""

from __future__ import annotations

import importlib.util
import operator
import sys

import pytest
import torch
import torch.nn.functional as F

from pytorch_bridge.extending import TypingError, jit
from pytorch_bridge.native.toolchain import ROOT
from pytorch_bridge.testing.gotests import ensure_library

ensure_library()


@pytest.fixture
def example(request):
    """The module of a file in examples/extending, registered for the test."""
    path = ROOT / "examples" / "extending" / f"{request.param}.py"
    # Other tests of this process import it by its name, and then it is registered for good.
    imported = sys.modules.get(request.param)
    if imported is not None and imported.__file__ == str(path):
        return imported
    spec = importlib.util.spec_from_file_location(f"example_{request.param}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def of(name):
    return pytest.mark.parametrize("example", [name], indirect=True)


@of("interval")
def test_interval_in_compiled_functions(example):
    Interval = example.Interval
    a, b, x = Interval(1.0, 2.5), Interval(-1.0, 4.0), torch.tensor([0.0, 2.0, 9.0])

    @jit
    def f(a, b, x):
        inside = operator.contains(a, 2)
        return a.width, a + b, a + 1, a.clamp(x), len(a), bool(a), inside, Interval(b.hi, b.lo)

    width, added, shifted, clamped, n, true, inside, swapped = f(a, b, x)
    assert (width, n, true, inside) == (1.5, 2, True, True)
    assert [(i.lo, i.hi) for i in (added, shifted, swapped)] == [(0, 6.5), (2, 3.5), (4, -1)]
    assert clamped.tolist() == [1.0, 2.0, 2.5]
    assert jit(lambda a: bool(a))(swapped) is False
    assert example.normalised(x, Interval(0.0, 2.0)).tolist() == [0.0, 1.0, 1.0]


@of("interval")
def test_interval_misused(example):
    with pytest.raises(TypingError, match=r"type_interval \(.*interval\.py:\d+\)"):
        jit(lambda x: example.Interval(x, 1.0))(torch.ones(2))
    with pytest.raises(TypingError, match=r"interval_clamp \(.*interval\.py:\d+\)"):
        jit(lambda i: i.clamp(3.0))(example.Interval(0.0, 1.0))
    with pytest.raises(TypeError, match="must be real number, not str"):
        example.normalised(torch.ones(2), example.Interval(0.0, "1"))


@of("labelled")
def test_labelled_methods_become_native_ops(example):
    t = torch.randn(3, 4, 5)
    x = example.Labelled(t, ("batch", "time", "feature"))
    f = jit(lambda x: x.order(("time", "feature", "batch")).mean("feature"))
    y = f(x)
    assert y.names == ("time", "batch")
    assert torch.equal(y.tensor, t.permute(1, 2, 0).mean(1))
    assert torch.equal(
        f(example.Labelled(t[:2, :, :3], x.names)).tensor, t[:2, :, :3].permute(1, 2, 0).mean(1)
    )
    assert len(f.specializations) == 1
    (compiled,) = (s.compiled for s in f.specializations.values())
    assert {"permute", "mean.dim"} <= {node.op.name for node in compiled.fgraph.toposort()}


@of("labelled")
def test_labelled_operands_are_matched_by_name(example):
    a = example.Labelled(torch.randn(3, 4), ("batch", "time"))
    b = example.Labelled(torch.randn(4, 2), ("time", "feature"))
    y = jit(lambda a, b: a * b / 2)(a, b)
    assert y.names == ("batch", "time", "feature")
    assert torch.equal(y.tensor, a.tensor[:, :, None] * b.tensor / 2)
    assert torch.equal(example.centred(a).tensor, a.tensor - a.tensor.mean(1, keepdim=True))
    assert jit(lambda a: a.names)(a) == ("batch", "time")


@of("labelled")
def test_labelled_misused(example):
    x = example.Labelled(torch.ones(2, 3), ("batch", "time"))
    with pytest.raises(TypingError, match="there is no dimension 'times' among batch, time"):
        jit(lambda x: x.sum("times"))(x)
    with pytest.raises(TypingError, match="a tensor of 2 dimensions needs as many names"):
        jit(lambda x: example.Labelled(x.tensor, ("one",)))(x)


@of("kernel")
def test_a_kernel_with_its_gradient(example):
    torch.manual_seed(0)
    tensors = [torch.randn(s, requires_grad=True) for s in ((5, 4), (4, 8), (8,), (8, 2), (2,))]

    def reference(x, w1, b1, w2, b2):
        return F.gelu(x @ w1 + b1, approximate="tanh") @ w2 + b2

    got, expected = example.model(*tensors), reference(*tensors)
    torch.testing.assert_close(got, expected)
    weights = torch.randn(5, 2)
    g = torch.autograd.grad((got * weights).sum(), tensors)
    h = torch.autograd.grad((expected * weights).sum(), tensors)
    for a, b in zip(g, h, strict=True):
        torch.testing.assert_close(a, b)
    (compiled,) = (s.compiled for s in example.model.specializations.values())
    assert any(type(node.op) is example.BiasGelu for node in compiled.fgraph.toposort())


@of("kernel")
def test_a_kernel_checks_what_it_is_given(example):
    f = jit(lambda x, bias: example.bias_gelu(x, bias))
    with pytest.raises(ValueError, match="bias_gelu: 4 columns have 3 biases"):
        f(torch.ones(2, 4), torch.ones(3))
    x = torch.ones(2, 4, dtype=torch.float64)
    assert f(x, x[0]).dtype == torch.float64  # not for the kernel
    t = torch.randn(4, 6).t()
    torch.testing.assert_close(f(t, t[0]), F.gelu(t + t[0], approximate="tanh"))


def test_a_hundred_ops_are_traced_into_a_hundred_nodes():
    def f(x):
        for i in range(50):
            x = torch.tanh(x * 2) if i % 2 else (x + 1).relu()
        return x

    compiled = jit(f, mode="debug")  # which runs the graph as it was traced
    compiled(torch.ones(3))
    (graph,) = (s.compiled.fgraph for s in compiled.specializations.values())
    assert len(graph.toposort()) == 100
