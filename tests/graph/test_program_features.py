"""What programs of torch.export may have besides functions of tensors: each against module()."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.utils import _pytree

import pytorch_bridge as pb


class Calls(nn.Module):
    def __init__(self, body: Any) -> None:
        super().__init__()
        self.body = body
        self.register_buffer("kept", torch.zeros(6, 4))

    def forward(self, x):
        return self.body(self, x)


def agree(program: Any, *runs: Any, mode: str | None = "py") -> None:
    """Holds a model to its program: results, arguments and state."""
    model = pb.from_exported(program)
    ours, theirs = model.compile(mode), program.module()
    for args in runs:
        mine, their = copy.deepcopy(args), copy.deepcopy(args)
        got, want = (_pytree.tree_leaves(f(*v)) for f, v in ((ours, mine), (theirs, their)))
        for a, b in zip([*got, *mine], [*want, *their], strict=True):
            assert a.dtype == b.dtype
            assert torch.equal(a, b)
        for name, t in theirs.state_dict().items():
            assert torch.equal(model.state_dict()[name], t), name


def rows(n: int = 6) -> tuple[torch.Tensor]:
    return (torch.randn(n, 4),)


@pytest.mark.parametrize(
    ("body", "mode"),
    [
        (lambda m, x: x[: round(x.shape[0] / 4)], None),
        (lambda m, x: x.new_zeros(x.shape[0] << 1), None),
        (lambda m, x: x[: x.shape[0] >> 1] if x.shape[0] >> 1 > 1 else x, "py"),
    ],
)
def test_arithmetic_of_sizes(body, mode):
    program = torch.export.export(Calls(body), rows(), dynamic_shapes=({0: Dim.AUTO},))
    agree(program, rows(6), rows(9), rows(10), mode=mode)


@pytest.mark.parametrize("affine", [True, False])
def test_instance_norm_keeps_statistics(affine):
    module = nn.InstanceNorm1d(4, affine=affine, track_running_stats=True).train()
    program = torch.export.export(
        module, (torch.randn(3, 4, 5),), dynamic_shapes=({0: Dim.AUTO, 2: Dim.AUTO},)
    )
    agree(program, (torch.randn(3, 4, 5),), (torch.randn(2, 4, 7),))


@torch.library.custom_op("features::double_into", mutates_args=("y",))
def double_into(x: torch.Tensor, y: torch.Tensor) -> None:
    y.copy_(x * 2)


@torch.library.custom_op("features::count", mutates_args=("y",))
def count(y: torch.Tensor) -> int:
    y.add_(1)
    return 3


@count.register_fake
def _(y):
    return 3


def writes_into_a_value(m, x):
    y = torch.zeros_like(x)
    double_into(x, y)
    return y + 1


def writes_into_a_buffer(m, x):
    double_into(x, m.kept)
    return m.kept + x


def writes_into_the_argument(m, x):
    double_into(x * 1, x)
    return x + 1


def returns_a_number(m, x):
    y = x * 1
    return y * count(y) + y


@pytest.mark.parametrize(
    "body",
    [writes_into_a_value, writes_into_a_buffer, writes_into_the_argument, returns_a_number],
)
def test_operators_that_write(body):
    agree(torch.export.export(Calls(body), rows()), rows(), rows())


@pytest.mark.parametrize(
    "body",
    [
        lambda m, x: torch.vmap(lambda r: r.sum() * r)(x),
        lambda m, x: torch.func.jvp(lambda a: a.sin() * 2, (x,), (x * 3,)),
    ],
)
def test_transforms_of_functions(body):
    agree(torch.export.export(Calls(body), rows()), rows(), rows())


def test_a_program_that_was_exported_under_autocast():
    module = nn.Sequential(nn.Linear(4, 4), nn.Softmax(-1))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        program = torch.export.export(module, rows())
    agree(program, rows(), mode=None)
