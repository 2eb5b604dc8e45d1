"""What the graph workers of `make bench` run: modules, and the inputs that they are called with."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn


class Exact(nn.Module):
    """Ten elementwise ops that every compiler rounds in the same way."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        e = ((x + y) * 0.5 - y).square() + 1.0
        return ((x * e.reciprocal()).relu() * y).neg().abs()


class Gelu(nn.Module):
    """Ten elementwise ops, one of them transcendental: a bias and GELU in its tanh form."""

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        u = x + bias
        inner = (u * u * 0.044715 + 1.0) * u * math.sqrt(2 / math.pi)
        return (inner.tanh() + 1.0) * u * 0.5


class Products(nn.Module):
    """A hundred ops that take no time by themselves: what is left is the cost of calling them."""

    def forward(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        for _ in range(50):
            x = x @ y @ z
        return x


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))


def randoms(
    *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: tuple(torch.randn(s, dtype=dtype) for s in shapes)


SMALL, LARGE = (64, 128), (1000, 1000)
MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Tensor, ...]]]] = {
    "mlp_1": (mlp, randoms((1, 784))),
    "mlp_64": (mlp, randoms((64, 784))),
    "products": (Products, randoms((2, 2), (2, 2), (2, 2))),
    "exact_small": (Exact, randoms(SMALL, SMALL)),
    "exact_large": (Exact, randoms(LARGE, LARGE)),
    "gelu_small": (Gelu, randoms(SMALL, SMALL[-1:])),
    "gelu_large": (Gelu, randoms(LARGE, LARGE[-1:])),
    "gelu_bfloat16": (Gelu, randoms(LARGE, LARGE[-1:], dtype=torch.bfloat16)),
    "gelu_float16": (Gelu, randoms(LARGE, LARGE[-1:], dtype=torch.float16)),
}


def make(case: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The module of a case, in evaluation mode, and its inputs."""
    torch.manual_seed(0)
    module, inputs = MODELS[case]
    return module().eval(), inputs()
