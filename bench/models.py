"""The models of bench/models/models.go in Python, with the same names and the same numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCABULARY, WIDTH, HEADS, LENGTH, CLASSES = 65, 128, 4, 64, 10


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))


def cnn() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 10),
    )  # fmt: skip


class CharTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x: Tensor) -> Tensor:
        h = self.token(x) + self.place(torch.arange(x.size(1), device=x.device))
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.attend, self.behind = nn.Dropout(0.1), nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.attention(self.norm1(x)))
        return x + self.behind(self.narrow(F.gelu(self.widen(self.norm2(x)))))

    def attention(self, x: Tensor) -> Tensor:
        n, t, _ = x.shape
        q, k, v = (
            part.view(n, t, HEADS, WIDTH // HEADS).transpose(1, 2)
            for part in self.qkv(x).split(WIDTH, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(n, t, WIDTH))


class CharLSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x: Tensor) -> Tensor:
        out, _ = self.lstm(self.token(x))
        return self.head(out)


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, dim_feedforward=4 * WIDTH, batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.token, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.encoder(self.token(x) * math.sqrt(WIDTH))
        return self.head(h.mean(1))


def data(model: str, batch: int) -> tuple[Tensor, Tensor]:
    if model == "mlp":
        return torch.randn(batch, 784), torch.randint(CLASSES, (batch,))
    if model == "cnn":
        return torch.randn(batch, 1, 28, 28), torch.randint(CLASSES, (batch,))
    x = torch.randint(VOCABULARY, (batch, LENGTH))
    if model == "encoder":
        return x, torch.randint(CLASSES, (batch,))
    return x, torch.randint(VOCABULARY, (batch * LENGTH,))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "mlp": mlp,
    "cnn": cnn,
    "transformer": CharTransformer,
    "lstm": CharLSTM,
    "encoder": Classifier,
}

OPTIMIZERS: dict[str, Callable[[list[Tensor]], torch.optim.Optimizer]] = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.01, foreach=True),
    "foreach": lambda params: torch.optim.AdamW(params, foreach=True),
    "fused": lambda params: torch.optim.AdamW(params, fused=True),
}


def step(name: str, device: str = "cpu") -> Callable[[], Tensor]:
    """A training step, which returns its loss, for a name such as "lstm_12_fused"."""
    model, batch, optimizer = name.split("_")
    torch.manual_seed(0)
    net = MODELS[model]()
    x, y = (part.to(device) for part in data(model, int(batch)))
    net.to(device)
    opt = OPTIMIZERS[optimizer](list(net.parameters()))

    def run() -> Tensor:
        opt.zero_grad()
        out = net(x)
        loss = F.cross_entropy(out.view(-1, out.size(-1)), y)
        loss.backward()
        opt.step()
        return loss

    return run
