"""The models of models.go, in Python: what ranks train for fifty steps."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

CHARACTERS, WIDTH, PLACES = 11, 8, 6


def cnn(model: str) -> nn.Module:
    """The network of examples/digits, narrower; `cnn whole` neither normalises nor drops out, and `cnn sync`
    does not drop out. Python has one process for that, as PyTorch refuses SyncBatchNorm on the CPU."""
    parts: list[nn.Module] = []
    for before, after in ((1, 4), (4, 6)):
        parts.append(nn.Conv2d(before, after, 5))
        if model != "cnn whole":
            parts.append(nn.BatchNorm2d(after))
        parts += [nn.ReLU(), nn.MaxPool2d(2)]
    parts.append(nn.Flatten())
    if model == "cnn":
        parts.append(nn.Dropout(0.3))
    return nn.Sequential(*parts, nn.Linear(6 * 4 * 4, 16), nn.ReLU(), nn.Linear(16, 10))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, t, 3, 2, WIDTH // 2).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, WIDTH))
        return x + self.narrow(F.gelu(self.widen(self.norm2(x))))


class Transformer(nn.Module):
    """A transformer whose last layer has the weight of its first."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(CHARACTERS, WIDTH), nn.Embedding(PLACES, WIDTH)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CHARACTERS, bias=False)
        self.head.weight = self.token.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.token(x) + self.place(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


class Branches(nn.Module):
    """A model with heads of which a pass uses one, and one that no pass uses."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(5, 7)
        self.heads = nn.ModuleList([nn.Linear(7, 10), nn.Linear(7, 10), nn.Linear(7, 10)])

    def forward(self, x: torch.Tensor, head: int) -> torch.Tensor:
        return self.heads[head](torch.tanh(self.body(x)))


def build(model: str) -> nn.Module:
    match model:
        case "cnn" | "cnn whole" | "cnn sync":
            return cnn(model)
        case "transformer":
            return Transformer()
        case "branches":
            return Branches()
    raise AssertionError(model)


def loss(net: Any, model: str, x: torch.Tensor, y: torch.Tensor, head: int) -> torch.Tensor:
    out = net(x, head) if model == "branches" else net(x)
    return F.cross_entropy(out.flatten(0, -2), y.flatten())


def samples(model: str, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch of one rank: what there is to learn is the next character, which number is the greatest, and
    which rows are bright."""
    if model == "transformer":
        x = torch.randint(0, CHARACTERS, (3, PLACES), generator=generator)
        return x, (x + 1) % CHARACTERS
    if model == "branches":
        x = torch.randn((4, 5), generator=generator)
        return x, x.argmax(-1)
    x = torch.randn((4, 1, 28, 28), generator=generator)
    y = torch.randint(0, 10, (4,), generator=generator)
    for picture, label in zip(x, y.tolist(), strict=True):
        picture[:, 2 * label : 2 * label + 5] += 1
    return x, y
