"""Operators of libraries have the gradients that they have registered with autograd; what
torch.export loses is refused."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import pytorch_bridge as pb
from pytorch_bridge.errors import MissingMethodError

AUTO = torch.export.Dim.AUTO


@torch.library.custom_op("own_gradients::scaled", mutates_args=())
def scaled(x: torch.Tensor, y: torch.Tensor, k: float) -> torch.Tensor:
    return x * x * y * k


@scaled.register_fake
def _(x, y, k):
    return torch.empty_like(x)


def keep(ctx, inputs, output):
    x, y, ctx.k = inputs
    ctx.save_for_backward(x, y.exp(), output)


def backward(context, g):
    x, e, out = context.saved_tensors
    # None of x's own: what is registered is what counts.
    return g * x * context.k + out.sum(0, keepdim=True), (g * e).sum(0), None


scaled.register_autograd(backward, setup_context=keep)


@torch.library.custom_op("own_gradients::both", mutates_args=())
def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.sin(), x.cos()


@both.register_fake
def _(x):
    return torch.empty_like(x), torch.empty_like(x)


both.register_autograd(
    lambda context, a, b: a.mul(context.saved_tensors[0]) - 2 * b,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output[1]),
)


@torch.library.custom_op("own_gradients::none", mutates_args=())
def none(x: torch.Tensor) -> torch.Tensor:
    return x + 1


none.register_fake(torch.empty_like)


class Module(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body
        self.linear = nn.Linear(4, 4)
        self.other = nn.Parameter(torch.randn(4))

    def forward(self, x):
        return self.body(self, x)


def of_two(m, x):
    return scaled(m.linear(x).sin(), m.other * 2, 3.0) + 1


def of_several_results(m, x):
    a, b = both(m.linear(x) * m.other)
    return a * b


@pytest.mark.parametrize("body", [of_two, of_several_results])
@pytest.mark.parametrize("sizes", [None, ({0: AUTO},)], ids=["fixed", "open"])
def test_what_is_registered_is_the_gradient(body, sizes):
    torch.manual_seed(0)
    module = Module(body)
    model = pb.from_exported(
        torch.export.export(module, (torch.randn(5, 4),), dynamic_shapes=sizes)
    )
    for form in (model.compile("py"), model.compile()):
        for rows in (5,) if sizes is None else (5, 3, 1, 0):
            x = torch.randn(rows, 8)[:, ::2]
            a, b, g = x.clone().requires_grad_(), x.clone().requires_grad_(), torch.randn(rows, 4)
            (got,) = torch.autograd.grad(form(a), a, g)
            (want,) = torch.autograd.grad(module(b), b, g)
            assert torch.equal(got, want)
    step = pb.training_step(model, pb.Training(), mode="py")
    trained = copy.deepcopy(module)
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
    for _ in range(2):
        x, t = torch.randn(5, 4), torch.randint(4, (5,))
        loss = nn.functional.cross_entropy(trained(x), t)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert torch.equal(step(x, t, lr=0.1), loss)
    for n, p in trained.state_dict().items():
        assert torch.equal(step.state_dict()[n], p)


def test_without_a_registered_gradient_there_is_none():
    model = pb.from_exported(
        torch.export.export(Module(lambda m, x: none(m.linear(x))), (torch.randn(5, 4),))
    )
    with pytest.raises(MissingMethodError, match=r"own_gradients::none.* has no gradient"):
        pb.training_step(model, pb.Training(), mode="py")


def test_what_torch_export_loses_is_refused():
    """The program has no part of the function that depends on x."""

    def gradient(m, x):
        return torch.func.grad(lambda x: x.sin().sum())(x)

    x = torch.randn(2, 3)
    for sizes in (None, ({0: AUTO},)):
        program = torch.export.export(Module(gradient), (x,), dynamic_shapes=sizes)
        assert isinstance(program.module()(x), torch._subclasses.FakeTensor)
        with pytest.raises(pb.BridgeTypeError, match=r"torch\.export has lost it.*make_fx.*jvp"):
            pb.from_exported(program)
    # What the message names instead.
    want = gradient(None, x)
    recorded = make_fx(lambda x: gradient(None, x))(x)
    model = pb.from_exported(torch.export.export(recorded, (x,)))
    assert torch.equal(model(x), want)
    assert torch.equal(model(x * 2), gradient(None, x * 2))
