"""Gradients in Go are PyTorch's, to the last bit: also those of higher order, and of functions that
are written in Go on one side and in Python on the other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import grad

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
