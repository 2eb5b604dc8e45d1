"""Rows that are proved independent are: PyTorch computes the same for requests that are joined as for each alone.

And the models that people serve are proved.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import pytorch_bridge as pb
from pytorch_bridge.ops.row_independence import independent
from pytorch_bridge.packages.go_package.source import source


class Of(nn.Module):
    """A function of one tensor as a module; `weights` are its buffers."""

    def __init__(self, f: Callable[..., Any], **weights: Tensor) -> None:
        super().__init__()
        self.f = f
        for name, w in weights.items():
            self.register_buffer(name, w)

    def forward(self, x: Tensor) -> Any:
        return self.f(x, **dict(self.named_buffers()))


class Of2(Of):
    def forward(self, x: Tensor, y: Tensor) -> Any:
        return self.f(x, y)


def proved(net: nn.Module, *args: Tensor, **dims: Any) -> bool:
    batch = torch.export.Dim("batch", max=64)
    shapes = dims.get("shapes") or tuple({0: batch} for _ in args)
    made = source(torch.export.export(net.eval(), args, dynamic_shapes=shapes), None)
    return independent(made.inputs, made.outputs)


class Residual(nn.Module):
    def __init__(self, n: int) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(n, n, 3, padding=1), nn.Conv2d(n, n, 3, padding=1)
        self.norm_a, self.norm_b = nn.BatchNorm2d(n), nn.GroupNorm(2, n)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm_b(self.b(F.gelu(self.norm_a(self.a(x)))))
        return F.relu(x + y)


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.positions = nn.Embedding(50, 16), nn.Embedding(7, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(16, 5)

    def forward(self, ids: Tensor) -> Any:
        x = self.embed(ids) + self.positions(torch.arange(7))
        h = self.encoder(x)
        return {"tags": self.out(h).argmax(-1), "scores": self.out(h[:, 0]).log_softmax(-1)}


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.LayerNorm(8), nn.Dropout(), nn.Linear(8, 3), nn.Softmax(-1)), (4,)),
    "cnn": (lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(144, 10)), (1, 14, 14)),
    "resnet": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), Residual(8), nn.AvgPool2d(2), Residual(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Linear(8, 5)), (3, 14, 14)),
    "encoder": (lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (5, 16)),
    "conv1d": (lambda: nn.Sequential(nn.Conv1d(3, 4, 3), nn.SiLU(), nn.ConvTranspose1d(4, 2, 3), nn.ZeroPad1d(1)), (3, 9)),
    "unet": (lambda: nn.Sequential(nn.Conv2d(1, 4, 3, 2), nn.Upsample(scale_factor=2), nn.Hardtanh(), nn.PixelShuffle(2)), (1, 9, 9)),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_models_that_are_served_are_proved(name: str) -> None:
    make, shape = MODELS[name]
    torch.manual_seed(0)
    assert proved(make(), torch.rand(2, *shape))


def test_a_tagger_of_texts_is_proved() -> None:
    torch.manual_seed(0)
    assert proved(Tagger(), torch.randint(0, 50, (2, 7)))


MIXED: dict[str, Callable[[Tensor], Any]] = {
    "mean": lambda x: x - x.mean(0),
    "mean of all": lambda x: x / x.mean(),
    "softmax": lambda x: x.softmax(0),
    "cumsum": lambda x: x.cumsum(0),
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(1, 0),
    "sort": lambda x: x.sort(0).values,
    "the number of rows": lambda x: x * x.shape[0],
    "divided by it": lambda x: x / x.shape[0],
    "a row for all": lambda x: x - x[:1],
    "the last row": lambda x: x - x[-1],
    "products of rows": lambda x: (x @ x.T) @ x,
    "distances": lambda x: x - (x.unsqueeze(0) - x.unsqueeze(1)).sum(0),
    "twice": lambda x: torch.cat([x, x], 0)[: x.shape[0]],
    "attention of rows": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None])[0],
    "batch norm in training": lambda x: F.batch_norm(x, None, None, training=True),
    "max over rows": lambda x: x + x.amax(0),
    "arange of rows": lambda x: x + torch.arange(x.shape[0])[:, None],
    "interleaved": lambda x: x.reshape(4, -1).T,
    "another shape": lambda x: x.T.reshape(-1, 4),
    "transposed": lambda x: x.T,
    "pooled over rows": lambda x: F.avg_pool1d(x.T[None], 3, 1, 1)[0].T,
    "convolved over rows": lambda x: F.conv1d(x.T[None], torch.ones(4, 4, 3), padding=1)[0].T,
    "noise": lambda x: x + torch.rand_like(x),
    "one row fewer": lambda x: x[1:],
    "a scalar": lambda x: x.sum(),
    "a constant": lambda x: (x, torch.ones(3)),
    "padded": lambda x: F.pad(x, (0, 0, 1, 0)),
}  # fmt: skip


@pytest.mark.parametrize("name", MIXED)
def test_what_mixes_rows_is_not_proved(name: str) -> None:
    try:
        found = proved(Of(MIXED[name]), torch.rand(5, 4))
    except torch._dynamo.exc.UserError:
        pytest.skip("torch.export takes no open batch of this")
    assert not found


def test_a_function_of_elements_may_have_several_results() -> None:
    assert proved(Of(torch.frexp), torch.rand(3, 4))
    assert proved(Of(lambda x: torch.frexp(x)[0] + torch.frexp(x)[1]), torch.rand(3, 4))
    assert not proved(Of(lambda x: torch.frexp(x - x.mean(0))), torch.rand(3, 4))


def test_several_inputs_have_the_same_rows() -> None:
    batch, other = torch.export.Dim("batch", max=64), torch.export.Dim("other", max=64)
    x, y = torch.rand(3, 4), torch.rand(3, 4)
    assert proved(Of2(lambda x, y: x * y + x), x, y)
    # Each has rows of its own number.
    two = Of2(lambda x, y: (x.exp(), y.exp()))
    assert not proved(two, torch.rand(3, 4), torch.rand(5, 4), shapes=({0: batch}, {0: other}))
    # The same number is another size too.
    square = Of2(lambda x, y: x * 2)
    assert not proved(square, torch.rand(3, 3), y, shapes=({0: batch, 1: batch}, {0: batch}))
    # A weight for each row.
    fixed = Of2(lambda x, y: x + y)
    assert not proved(fixed, x, torch.rand(1, 4), shapes=({0: batch}, None))
    a = pb.TensorType("float32", (None, 4))("a")
    b = pb.TensorType("float32", (None, 4))("b")
    assert independent([a], [pb.ops.exp(a)])
    assert not independent([a, b], [a + b]), "one may have a single row, which is for all"
    assert not independent([a], [pb.ops.exp(a), pb.ops.sum(a)])
    assert not independent([], [])


# Random functions ---------------------------------------------------------------------------------

Step = Callable[[Tensor, random.Random], Tensor]


def _sizes(x: Tensor, r: random.Random) -> list[int]:
    """Dimensions, some of which may be that of the rows."""
    return r.sample(range(x.dim()), r.randint(1, x.dim()))


def _regrouped(x: Tensor, r: random.Random) -> Tensor:
    n = x.shape[0]
    return r.choice(
        [
            lambda: x.reshape(n, -1),
            lambda: x.reshape(-1, x.shape[-1]),
            lambda: x.flatten(r.randrange(x.dim())),
            lambda: x.unflatten(-1, (-1, 1)),
            lambda: x.reshape(n * x.shape[1], -1) if x.dim() > 1 else x,
            lambda: x.reshape(2, -1, n),
            lambda: x.reshape(-1, n, 2),
        ]
    )()


STEPS: list[Step] = [
    lambda x, r: r.choice([torch.tanh, torch.relu, torch.neg, torch.sigmoid])(x),
    lambda x, r: x.softmax(r.randrange(x.dim())),
    lambda x, r: x.cumsum(r.randrange(x.dim())) / 10,
    lambda x, r: x.mean(_sizes(x, r), keepdim=True) + x,
    lambda x, r: x.sum(r.randrange(x.dim())),
    lambda x, r: x.amax(_sizes(x, r)),
    lambda x, r: x.unsqueeze(r.randrange(x.dim() + 1)),
    lambda x, r: x.transpose(r.randrange(x.dim()), r.randrange(x.dim())),
    lambda x, r: x.permute(r.sample(range(x.dim()), x.dim())),
    lambda x, r: x.select(r.randrange(x.dim()), 0),
    lambda x, r: x.narrow(r.randrange(x.dim()), 0, 1) * x,
    lambda x, r: torch.cat([x, x * 2], r.randrange(x.dim())),
    lambda x, r: torch.stack([x, -x], r.randrange(x.dim() + 1)),
    lambda x, r: x.flip(_sizes(x, r)),
    lambda x, r: x @ torch.linspace(-1, 1, x.shape[-1] * 3).reshape(x.shape[-1], 3),
    lambda x, r: x @ x.transpose(-1, -2),
    lambda x, r: F.layer_norm(x, x.shape[-1:]),
    lambda x, r: x + torch.linspace(0, 1, x.shape[-1]),
    lambda x, r: torch.where(x > 0, x, x.roll(1, r.randrange(x.dim()))),
    lambda x, r: x.expand(2, *x.shape),
    lambda x, r: x.chunk(2, r.randrange(x.dim()))[0],
    lambda x, r: F.scaled_dot_product_attention(x, x, x),
    lambda x, r: F.avg_pool2d(x, 2),
    lambda x, r: F.pad(x, (1, 0)),
    lambda x, r: x.topk(1, r.randrange(x.dim())).values + x,
    _regrouped,
    _regrouped,
]  # fmt: skip


class Random(nn.Module):
    """Steps drawn by a seed; the same each time it is called."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed

    def forward(self, x: Tensor) -> Tensor:
        r = random.Random(self.seed)
        begin = x
        for _ in range(r.randint(1, 5)):
            x = r.choice(STEPS)(x, r)
        if r.random() < 0.5 and x.shape[0] == begin.shape[0]:
            x = x.reshape(x.shape[0], -1)
        return x


def test_whatever_is_proved_is_so() -> None:
    """Of random functions, many of which mix rows."""
    count = {True: 0, False: 0}
    for seed in range(90):
        r = random.Random(seed)
        shape = [r.choice([2, 4, 6]) for _ in range(r.randint(1, 3))]
        net = Random(seed)
        generator = torch.Generator().manual_seed(seed)
        parts = [torch.rand(n, *shape, generator=generator) for n in (5, 1, 7)]
        try:
            whole = net(torch.cat(parts))
            batch = torch.export.Dim("batch", min=1, max=64)
            program = torch.export.export(net, (parts[0],), dynamic_shapes=({0: batch},))
            made = source(program, None)
        except Exception:  # shapes that do not fit, or what torch.export does not take
            continue
        found = independent(made.inputs, made.outputs)
        count[found] += 1
        if found:
            alone = torch.cat([net(part) for part in parts])
            torch.testing.assert_close(whole, alone, msg=f"seed {seed} mixes rows")
    assert count[True] > 12, count
    assert count[False] > 12, count


def test_the_manifest_says_what_is_proved(tmp_path: Path) -> None:
    batch = torch.export.Dim("batch", max=64)

    def manifest(name: str, f: Callable[[Tensor], Any], **options: Any) -> Any:
        program = torch.export.export(Of(f), (torch.rand(2, 4),), dynamic_shapes=({0: batch},))
        folder = pb.export_model(program, tmp_path / name, **options)
        return json.loads((folder / "manifest.json").read_text())

    assert manifest("independent", lambda x: x.softmax(1))["independent_rows"] is True
    assert "independent_rows" not in manifest("mixed", lambda x: x.softmax(0))
    keeps = {"inputs": ["h"], "outputs": ["h_out"], "state": {"h_out": "h"}}
    assert "independent_rows" not in manifest("state", lambda x: x * 2, **keeps)
