"""Gradients in Go are PyTorch's, to the last bit: also those of higher order, and of functions that
are written in Go on one side and in Python on the other."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad, grad
from torch.nn import functional as F

from pytorch_bridge.native.extension import from_handle, to_handle
from pytorch_bridge.testing.gotests import run_go

Inputs = dict[str, Tensor]
cases: dict[str, Callable[[Inputs], list[Tensor]]] = {}


def case(function: Callable[[Inputs], list[Tensor]]) -> Callable[[Inputs], list[Tensor]]:
    cases[function.__name__] = function
    return function


def inputs() -> Inputs:
    g = torch.Generator().manual_seed(3)
    shapes = {"x": (5, 4), "w1": (4, 6), "b1": (6,), "w2": (6, 2), "gx": (5, 4)}
    tensors = {name: torch.randn(*shape, generator=g) for name, shape in shapes.items()}
    tensors |= {name: torch.randn(4, generator=g, dtype=torch.float64) for name in "uv"}
    return tensors | {"z": torch.randn(3, generator=g, dtype=torch.complex64)}


def mlp(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor) -> Tensor:
    return (x.mm(w1) + b1).tanh().mm(w2)


@case
def network(t: Inputs) -> list[Tensor]:
    leaves = [t[name].requires_grad_() for name in ("w1", "b1", "w2")]
    mlp(t["x"], *leaves).pow(2).mean().backward()
    return [leaf.grad for leaf in leaves]


@case
def hessian(t: Inputs) -> list[Tensor]:
    x = t["v"].requires_grad_()
    a, b = x[:3], x[1:]
    y = ((b - a.pow(2)).pow(2) * 100 + (-a + 1).pow(2)).sum()
    (first,) = grad(y, x, create_graph=True)
    return [first.detach(), torch.stack([grad(g, x, retain_graph=True)[0] for g in first.unbind()])]


@case
def gradient_penalty(t: Inputs) -> list[Tensor]:
    x, w1 = t["x"].requires_grad_(), t["w1"].requires_grad_()
    (g,) = grad(mlp(x, w1, t["b1"], t["w2"]).sum(), x, create_graph=True)
    g.pow(2).sum().backward()
    return [g.detach(), w1.grad]


class LeakyCube(torch.autograd.Function):
    @staticmethod
    def scale(x):
        return torch.where(x < 0, 0.1, 1.0).to(x.dtype)

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return LeakyCube.scale(x) * x * x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * LeakyCube.scale(x) * 3 * x * x


@case
def function(t: Inputs) -> list[Tensor]:
    x = t["v"].requires_grad_()
    y = LeakyCube.apply(x * 2)
    (first,) = grad(y.sum(), x, create_graph=True)
    (second,) = grad(first.sum(), x, create_graph=True)
    return [y.detach(), first.detach(), second.detach(), grad(second.sum(), x)[0]]


class SumAndProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x.clone(), w)
        product = x * w
        x.add_(w)
        ctx.mark_dirty(x)
        return x, product

    @staticmethod
    def backward(ctx, gs, gp):
        x, w = ctx.saved_tensors
        return gs + gp * w, gs + gp * x


@case
def in_place_function(t: Inputs) -> list[Tensor]:
    x, w = t["v"].requires_grad_(), t["u"].requires_grad_()
    h = x * 1
    _, product = SumAndProduct.apply(h, w)
    (h * product).sum().backward()
    return [h.detach(), product.detach(), x.grad, w.grad]


@case
def hooks(t: Inputs) -> list[Tensor]:
    x = t["v"].requires_grad_()
    h = x.sin()
    h.retain_grad()
    h.register_hook(lambda g: g * g)
    x.register_hook(lambda g: g.clamp(-0.5, 0.5))

    def add_one(x: Tensor) -> None:
        x.grad.add_(1)

    x.register_post_accumulate_grad_hook(add_one)
    h.exp().sum().backward()
    return [h.grad, x.grad]


@case
def autocast(t: Inputs) -> list[Tensor]:
    leaves = [t[name].requires_grad_() for name in ("w1", "b1", "w2")]
    with torch.autocast("cpu", torch.bfloat16):
        y = mlp(t["x"], *leaves)
    y.float().sum().backward()
    return [y.detach(), *(leaf.grad for leaf in leaves)]


@case
def complex_numbers(t: Inputs) -> list[Tensor]:
    z = t["z"].requires_grad_()
    (z * z.conj() + z.exp()).abs().sum().backward()
    return [z.grad]


@case
def vector_jacobian(t: Inputs) -> list[Tensor]:
    x = t["x"].requires_grad_()
    return list(grad([x.sigmoid(), x.sum()], x, [t["gx"], None]))


@case
def sparse_gradient(t: Inputs) -> list[Tensor]:
    w = t["w1"].requires_grad_()
    torch.nn.functional.embedding(torch.tensor([0, 2, 2]), w, sparse=True).sum().backward()
    return [w.grad.to_dense()]


@pytest.fixture(scope="module")
def computed_in_go(library, tmp_path_factory) -> Inputs:
    folder = tmp_path_factory.mktemp("autograd")
    torch.save(inputs(), folder / "in.pt")
    files = str(folder / "in.pt"), str(folder / "out.pt")
    done = run_go("run", "-buildvcs=false", "./tests/autograd", *files)
    assert done.returncode == 0, done.stdout + done.stderr
    return torch.load(folder / "out.pt", weights_only=True)


@pytest.mark.smoke
@pytest.mark.parametrize("name", cases)
def test_gradients_are_pytorchs(computed_in_go, name):
    want = cases[name](inputs())
    got = [computed_in_go.pop(f"{name}.{i}") for i in range(len(want))]
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g, w, rtol=0, atol=0)


def test_no_case_is_left_out(computed_in_go):
    assert not {name.partition(".")[0] for name in computed_in_go} - set(cases)


@pytest.fixture(scope="module")
def linear(library) -> Callable[..., Tensor]:
    """cgotorch_Linear, which passes autograd by where it would do nothing."""
    function = ctypes.CDLL(os.fspath(library.library)).cgotorch_Linear
    function.restype = ctypes.c_char_p

    def call(*tensors: Tensor | None) -> Tensor:
        handles = [None if t is None else ctypes.c_void_p(to_handle(t)) for t in tensors]
        result = ctypes.c_void_p()
        assert function(*handles, ctypes.byref(result)) is None
        for handle in handles:
            assert handle is None or from_handle(handle.value) is not None
        return from_handle(result.value)

    return call


@pytest.mark.parametrize("shape", [(3,), (2, 3), (0, 3), (2, 4, 3)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear_without_a_graph_is_pytorchs(linear, shape, bias):
    x, w = torch.randn(shape), torch.randn(5, 3, requires_grad=True)
    whole = torch.randn(2, 5, 3, requires_grad=True)
    b = torch.randn(5, requires_grad=True) if bias else None
    with torch.no_grad():
        for weight in (w, w.detach(), whole[0]):
            ours, theirs = linear(x, weight, b), F.linear(x, weight, b)
            assert torch.equal(ours, theirs)
            for facts in ("requires_grad", "is_leaf", "_version", "grad_fn", "shape"):
                assert getattr(ours, facts) == getattr(theirs, facts)
            assert ours._is_view() == theirs._is_view()
            assert ours.stride() == theirs.stride()
    ours = linear(x, w, b)
    assert ours.requires_grad
    (got,) = grad(ours.sum(), w)
    (wanted,) = grad(F.linear(x, w, b).sum(), w)
    assert torch.equal(got, wanted)


@pytest.mark.parametrize("where", ["input", "weight", "bias", "view"])
def test_linear_without_a_graph_has_its_tangent(linear, where):
    x, w, b, one = torch.randn(2, 3), torch.randn(5, 3), torch.randn(5), torch.ones(1)
    with forward_ad.dual_level(), torch.no_grad():

        def dual(name: str, t: Tensor) -> Tensor:
            return forward_ad.make_dual(t, one.expand_as(t).clone()) if name == where else t

        x, b, w = dual("input", x), dual("bias", b), dual("weight", w)
        if where == "view":
            w = forward_ad.make_dual(w, torch.ones_like(w))[:]
        tangent = forward_ad.unpack_dual(linear(x, w, b)).tangent
        assert tangent is not None
        assert torch.equal(tangent, forward_ad.unpack_dual(F.linear(x, w, b)).tangent)
