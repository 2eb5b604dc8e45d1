"""Models that the tests export: the usual layers, put together by hand, with random weights."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim


class MLP(nn.Module):
    def __init__(self, sizes=(784, 128, 10)):
        super().__init__()
        self.layers = nn.ModuleList(map(nn.Linear, sizes[:-1], sizes[1:]))

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return self.layers[-1](x)


class Block(nn.Module):
    """Two 3x3 convolutions, or a bottleneck of three where `squeeze` is not 1, and a shortcut."""

    def __init__(self, inside, outside, stride, squeeze):
        super().__init__()
        width = outside // squeeze
        sizes = [(inside, width, 3, stride), (width, outside, 3, 1)]
        if squeeze != 1:
            sizes = [(inside, width, 1, 1), (width, width, 3, stride), (width, outside, 1, 1)]
        self.convs = nn.ModuleList(
            nn.Conv2d(a, b, k, s, padding=k // 2, bias=False) for a, b, k, s in sizes
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(b) for _, b, _, _ in sizes)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = None
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x):
        y = x
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            y = norm(conv(y))
            if i + 1 < len(self.convs):
                y = self.relu(y)
        y += x if self.shortcut is None else self.shortcut(x)
        return self.relu(y)


class ResNet(nn.Module):
    """`depths` blocks in each of four stages."""

    def __init__(self, depths, squeeze, classes=10):
        super().__init__()
        widths = [64 * squeeze << i for i in range(4)]
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, padding=3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, padding=1),
        )
        blocks = []
        inside = 64
        for stage, (depth, width) in enumerate(zip(depths, widths, strict=True)):
            for i in range(depth):
                blocks.append(Block(inside, width, 2 if stage and not i else 1, squeeze))
                inside = width
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classify = nn.Linear(inside, classes)
        for m in self.modules():
            if isinstance(m, nn.BatchNorm2d):
                # As if it had been trained: statistics that are not 0 and 1.
                nn.init.normal_(m.running_mean, std=0.1)
                nn.init.uniform_(m.running_var, 0.5, 1.5)

    def forward(self, x):
        return self.classify(self.pool(self.blocks(self.stem(x))).flatten(1))


def resnet18():
    return ResNet((2, 2, 2, 2), squeeze=1)


def resnet50():
    return ResNet((3, 4, 6, 3), squeeze=4)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.combine = nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (
            part.view(b, t, self.heads, c // self.heads).transpose(1, 2)
            for part in self.project(x).chunk(3, dim=-1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.combine(y.transpose(1, 2).reshape(b, t, c))


class GPT(nn.Module):
    def __init__(self, words=97, width=64, heads=4, depth=3, length=32):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(length, width)
        self.attention = nn.ModuleList(Attention(width, heads) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * depth + 1))
        self.widen = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(depth))
        self.narrow = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(depth))
        self.predict = nn.Linear(width, words, bias=False)
        self.predict.weight = self.words.weight  # tied

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for i, attention in enumerate(self.attention):
            x = x + attention(self.norms[2 * i](x))
            x = x + self.narrow[i](F.gelu(self.widen[i](self.norms[2 * i + 1](x))))
        return self.predict(self.norms[-1](x))


class LSTM(nn.Module):
    def __init__(self, inside=8, width=16, classes=5):
        super().__init__()
        self.lstm = nn.LSTM(inside, width, num_layers=2, batch_first=True, bidirectional=True)
        self.classify = nn.Linear(2 * width, classes)

    def forward(self, x, state=None):
        y, (h, c) = self.lstm(x, state)
        return self.classify(y[:, -1]), (h, c)


BATCH = Dim("batch", max=1024)


def pictures(batch):
    return (torch.randn(batch, 3, 64, 64),)


# By name: how to make it, inputs for a batch size, and what is dynamic.
MODELS = {
    "mlp": (MLP, lambda b: (torch.randn(b, 784),), ({0: BATCH},)),
    "resnet18": (resnet18, pictures, ({0: BATCH},)),
    "resnet50": (resnet50, pictures, ({0: BATCH},)),
    "gpt": (
        GPT,
        lambda b: (torch.randint(97, (b, 7 + b)),),
        ({0: BATCH, 1: Dim("length", max=32)},),
    ),
    "lstm": (LSTM, lambda b: (torch.randn(b, 6, 8),), ({0: BATCH},)),
}


def make(name, seed=0):
    """The model of a name, in evaluation mode, and the ExportedProgram of it."""
    build, inputs, dynamic = MODELS[name]
    torch.manual_seed(seed)
    model = build().eval()
    return model, torch.export.export(model, inputs(3), dynamic_shapes=dynamic)


class Decoder(nn.Module):
    """Attention over a cache of keys and values: a call takes a token, writes its row into the cache
    and returns the most probable next one."""

    def __init__(self, tokens=29, width=16, heads=2, length=128):
        super().__init__()
        self.heads, self.length = heads, length
        self.token, self.place = nn.Embedding(tokens, width), nn.Embedding(length, width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.head = nn.Linear(width, tokens)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(heads, length, width // heads))
        self.register_buffer("at", torch.zeros(1, dtype=torch.int64))

    def forward(self, token):
        x = self.token(token) + self.place(self.at)
        q, k, v = (t.view(1, self.heads, -1).transpose(0, 1) for t in self.qkv(x).chunk(3, -1))
        self.keys.index_copy_(1, self.at, k)
        self.values.index_copy_(1, self.at, v)
        seen = torch.arange(self.length) <= self.at
        y = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=seen)
        self.at.add_(1)
        return self.head(x + self.out(y.transpose(0, 1).reshape(1, -1))).argmax(-1)


def _decoder():
    with torch.random.fork_rng():
        torch.manual_seed(11)
        return Decoder().eval()


def decoder():
    """The program of a Decoder, whose cache is empty."""
    return torch.export.export(_decoder(), (torch.tensor([3]),))


def decoded(steps):
    """The tokens that the module itself gives, beginning with 3."""
    module, token, found = _decoder(), torch.tensor([3]), []
    with torch.no_grad():
        for _ in range(steps):
            token = module(token)
            found.append(token.item())
    return found


class Branching(nn.Module):
    """A branch within a branch, with parameters, a buffer, a constant and what is around them."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.register_buffer("kept", torch.arange(4.0))

    def forward(self, x):
        y = x * 2

        def inner(x):
            return torch.cond(
                x[0, 0] > 0,
                lambda x: torch.relu(self.a(x)) * self.kept,
                lambda x: torch.linalg.inv(x) @ x + 1,
                (x,),
            )

        z = torch.cond(
            x.sum() > 0, inner, lambda x: self.b(x) + y + torch.tensor([1.0, 2, 3, 4]), (x,)
        )
        return self.head(z)


def branching():
    with torch.random.fork_rng():
        torch.manual_seed(12)
        return torch.export.export(Branching().eval(), (torch.rand(4, 4),))


def branching_runs():
    """Arguments that take each way; the third has no inverse, and its branch needs none."""
    generator = torch.Generator().manual_seed(3)
    x = torch.rand(4, 4, generator=generator)
    other = x.clone()
    other[0, 0] = -0.1
    return [x, -x, torch.ones(4, 4), other]


class Looping(nn.Module):
    """Loops of each kind, and a branch in one of them; as operators, which torch exports faster."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.register_buffer("kept", torch.tensor([1.0, -1, 0.5, 2]))

    def forward(self, x):
        loops = torch.ops.higher_order
        given = self.a.weight, self.a.bias, self.kept

        def turn(i, z, first, w, b, kept):
            ways = [
                lambda z, w, b, kept: (torch.relu(nn.functional.linear(z, w, b)),),
                lambda z, w, b, kept: (z.sin() + kept,),
            ]
            (up,) = loops.cond(z.sum() > 0, *ways, (z, w, b, kept))
            return i + 1, up * 0.5 + torch.tensor([1.0, 2, 3, 4])

        def goes_on(i, z, first, w, b, kept):
            return i < first * 5

        _, z = loops.while_loop(goes_on, turn, (torch.tensor(0), x), (x[0, 0] * 1, *given))

        def step(c, r, w, b):
            return [torch.tanh(c + r), nn.functional.linear(c * r, w, b)]

        last, found = loops.scan(step, [self.kept * 2], [x], given[:2])
        (mapped,) = loops.map_impl(lambda r, kept: (r.cumsum(0) * kept,), [x], [self.kept])
        (sums,) = loops.associative_scan(lambda p, q: [p * q + q], [x], ())
        return z, last, found, mapped, sums


def looping():
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(7)
        rows = ({0: torch.export.Dim("n", min=2, max=64)},)
        return torch.export.export(Looping(), (torch.rand(6, 4),), dynamic_shapes=rows)


def looping_runs():
    """Arguments for which the loop turns no, three and five times, and what comes of them."""
    generator = torch.Generator().manual_seed(3)
    runs = [torch.rand(n, 4, generator=generator) for n in (2, 6, 9)]
    for x, first in zip(runs, (-1, 0.5, 0.9), strict=True):
        x[0, 0] = first
    return runs
