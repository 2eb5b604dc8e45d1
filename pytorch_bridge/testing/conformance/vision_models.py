"""The networks of Go's package vision/models, held to torchvision's.

Each is made in Python and in Go with the same seed. What is compared is state dicts, with the order
of their names, what String writes, a step in training with its gradients and buffers, and
evaluation afterwards, to the last bit. For those that are not torchvision's there is a module here.

    python -m pytorch_bridge.testing.conformance.vision_models

writes `EXPECTED` from the installed torchvision: what can be tested where there is none.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pytorch_bridge.native.toolchain import ROOT
from pytorch_bridge.schema.names import Names

from .harness import Harness, Request
from .modules import Call, GoModule, differ

SAVE, LOAD_FILE, FEATURES = range(-110, -113, -1)

EXPECTED = ROOT / "gotorch" / "vision" / "models" / "testdata" / "torchvision.json"
SEED = 3


@dataclass(frozen=True)
class Case:
    """A network with options."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    size: int = 64  # height and width of images
    light: bool = False  # so light that every run of the tests has it
    groups: bool = False  # with nn.GroupNorm
    shape: tuple[int, ...] = ()  # of the input, if not that of images
    arguments: tuple[int, ...] = ()  # those without defaults

    def __str__(self) -> str:
        options = ",".join(f"{k}={v}" for k, v in self.options.items())
        return " ".join(filter(None, (self.name, "of groups" * self.groups, options)))

    def python(self) -> nn.Module:
        if self.name in OWN:
            return OWN[self.name](*self.arguments, **self.options)
        from torchvision import models  # type: ignore[import-not-found]

        options = dict(self.options)
        if self.groups:
            options["norm_layer"] = partial(nn.GroupNorm, 4)
        return getattr(models, self.name)(**options)

    def go(self, harness: Harness) -> GoModule:
        options = {}
        for name, value in self.options.items():
            if name == "init_weights":
                options["NoInitWeights"] = not value
            else:
                options[OPTIONS.get(name) or Names().field(name)] = value
        name = f"{self.name} of groups" if self.groups else self.name
        return GoModule(harness, name, Call(list(self.arguments), options))


# Go's names of classes, where they are not torchvision's.
OTHER_CLASSES = {"InvertedResidualV2": "InvertedResidual", "Named": "Sequential"}

OPTIONS = {n: n.upper() for n in ("nz", "ngf", "ndf", "nc")}


class DoubleConv(nn.Module):
    def __init__(self, cin: int, mid: int, out: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for a, b in ((cin, mid), (mid, out)):
            conv = nn.Conv2d(a, b, 3, padding=1, bias=False)
            layers += [conv, nn.BatchNorm2d(b), nn.ReLU(inplace=True)]
        self.double_conv = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.double_conv(x)


class UNetDown(nn.Module):
    def __init__(self, cin: int, out: int) -> None:
        super().__init__()
        self.maxpool_conv = nn.Sequential(nn.MaxPool2d(2), DoubleConv(cin, out, out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.maxpool_conv(x)


class UNetUp(nn.Module):
    def __init__(self, cin: int, out: int, bilinear: bool) -> None:
        super().__init__()
        if bilinear:
            self.up: nn.Module = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        else:
            self.up = nn.ConvTranspose2d(cin, cin // 2, 2, stride=2)
        self.conv = DoubleConv(cin, cin // 2 if bilinear else out, out)

    def forward(self, x: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        x = self.up(x)
        h, w = (before.shape[d] - x.shape[d] for d in (2, 3))
        x = nn.functional.pad(x, [w // 2, w - w // 2, h // 2, h - h // 2])
        return self.conv(torch.cat([before, x], 1))


class UNetOut(nn.Module):
    def __init__(self, cin: int, out: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(cin, out, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


class UNet(nn.Module):
    def __init__(self, channels: int, classes: int, bilinear: bool = False) -> None:
        super().__init__()
        half = 2 if bilinear else 1
        self.inc = DoubleConv(channels, 64, 64)
        for i in range(4):
            out = 128 << i
            self.add_module(f"down{i + 1}", UNetDown(out // 2, out // half if i == 3 else out))
        for i in range(4):
            cin = 1024 >> i
            self.add_module(f"up{i + 1}", UNetUp(cin, cin // 2 // half if i < 3 else 64, bilinear))
        self.outc = UNetOut(64, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = [self.inc(x)]
        for i in range(4):
            made.append(self.get_submodule(f"down{i + 1}")(made[-1]))
        x = made.pop()
        for i in range(4):
            x = self.get_submodule(f"up{i + 1}")(x, made.pop())
        return self.outc(x)


def _drawn(m: nn.Module) -> None:
    if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(m.weight, 0.0, 0.02)
    elif isinstance(m, nn.BatchNorm2d):
        nn.init.normal_(m.weight, 1.0, 0.02)
        nn.init.zeros_(m.bias)


class DCGANGenerator(nn.Module):
    def __init__(self, nz: int = 100, ngf: int = 64, nc: int = 3) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        sizes = [nz, 8 * ngf, 4 * ngf, 2 * ngf, ngf]
        for i, (a, b) in enumerate(pairwise(sizes)):
            place = (2, 1) if i else (1, 0)
            layers += [nn.ConvTranspose2d(a, b, 4, *place, bias=False), nn.BatchNorm2d(b)]
            layers.append(nn.ReLU(inplace=True))
        layers += [nn.ConvTranspose2d(ngf, nc, 4, 2, 1, bias=False), nn.Tanh()]
        self.main = nn.Sequential(*layers)
        self.apply(_drawn)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.main(x)


class DCGANDiscriminator(nn.Module):
    def __init__(self, ndf: int = 64, nc: int = 3) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for i, (a, b) in enumerate(pairwise([nc, ndf, 2 * ndf, 4 * ndf, 8 * ndf])):
            layers.append(nn.Conv2d(a, b, 4, 2, 1, bias=False))
            layers += [nn.BatchNorm2d(b)] * bool(i)
            layers.append(nn.LeakyReLU(0.2, inplace=True))
        layers += [nn.Conv2d(8 * ndf, 1, 4, bias=False), nn.Sigmoid()]
        self.main = nn.Sequential(*layers)
        self.apply(_drawn)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.main(x).view(-1, 1).squeeze(1)


# Networks that are not torchvision's.
OWN: dict[str, Callable[..., nn.Module]] = {
    "unet": UNet,
    "dcgan_generator": DCGANGenerator,
    "dcgan_discriminator": DCGANDiscriminator,
}


def _vit(name: str, **options: Any) -> Case:
    size = 28 if name.endswith("14") else 64
    light = "attention_dropout" in options
    return Case(name, {"image_size": size, **options}, size, light)


FEW = {"num_classes": 7}

CASES = [
    Case("resnet18", FEW, light=True),
    Case("resnet18", {**FEW, "zero_init_residual": True}, groups=True, light=True),
    Case("resnet50", {**FEW, "replace_stride_with_dilation": [False, True, True]}, light=True),
    Case("resnet50", {**FEW, "zero_init_residual": True}),
    *(Case(f"resnet{n}", FEW) for n in (34, 101, 152)),
    *(Case(f"resnext{n}", FEW) for n in ("50_32x4d", "101_32x8d", "101_64x4d")),
    *(Case(f"wide_resnet{n}_2", FEW) for n in (50, 101)),
    Case("resnet18"),
    Case("mobilenet_v2", {**FEW, "width_mult": 0.5, "dropout": 0.3}, light=True),
    Case("mobilenet_v2", {**FEW, "round_nearest": 4, "width_mult": 1.4}),
    Case("mobilenet_v2", {**FEW, "inverted_residual_setting": [[1, 16, 1, 1], [6, 24, 2, 2]]}),
    Case("mobilenet_v2", FEW, groups=True),
    Case("mobilenet_v3_small", FEW, light=True),
    Case("mobilenet_v3_small", {**FEW, "width_mult": 0.75, "reduced_tail": True, "dilated": True}),
    Case("mobilenet_v3_large", {**FEW, "dropout": 0.1}, light=True),
    Case("mobilenet_v3_large", {**FEW, "reduced_tail": True}),
    Case("mobilenet_v3_large", {**FEW, "dilated": True, "width_mult": 1.3}),
    *(Case(f"vgg{n}{bn}", FEW) for n in (11, 13, 16, 19) for bn in ("", "_bn")),
    Case("vgg11", {**FEW, "init_weights": False, "dropout": 0.2}),
    Case("convnext_tiny", {**FEW, "layer_scale": 0.5, "stochastic_depth_prob": 0.9}, light=True),
    *(Case(f"convnext_{n}", FEW) for n in ("tiny", "small", "base", "large")),
    Case("efficientnet_b0", {**FEW, "stochastic_depth_prob": 0.9, "dropout": 0.5}, light=True),
    *(Case(f"efficientnet_b{n}", FEW) for n in range(8)),
    _vit("vit_b_16", dropout=0.1, attention_dropout=0.1, **FEW),
    _vit("vit_b_32", representation_size=11, **FEW),
    *(_vit(f"vit_{n}", **FEW) for n in ("b_16", "l_16", "l_32", "h_14")),
    Case("alexnet", {**FEW, "dropout": 0.3}),
    Case("squeezenet1_0", FEW),
    Case("squeezenet1_1", {**FEW, "dropout": 0.2}, light=True),
    Case("unet", arguments=(3, 2), size=35, light=True),
    Case("unet", {"bilinear": True}, arguments=(3, 1), size=32),
    Case("dcgan_generator", {"nz": 10, "ngf": 8, "nc": 1}, shape=(2, 10, 1, 1), light=True),
    Case("dcgan_discriminator", {"ndf": 8}, light=True),
    Case("dcgan_generator", shape=(2, 100, 1, 1)),
    Case("dcgan_discriminator"),
]


def images(case: Case) -> torch.Tensor:
    shape = case.shape or (2, 3, case.size, case.size)
    numbers = torch.arange(math.prod(shape), dtype=torch.float64) * 0.37
    return torch.sin(numbers).float().view(shape)


def digest(state: Iterable[tuple[str, torch.Tensor]]) -> str:
    lines = (f"{k} {tuple(v.shape)} {v.dtype}\n" for k, v in state)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def saved(go: GoModule, path: Path) -> None:
    """Has Go write the state to a file."""
    _file(go, SAVE, path)


def loaded(go: GoModule, path: Path) -> None:
    """Has Go read the state from a file."""
    _file(go, LOAD_FILE, path)


def _file(go: GoModule, what: int, path: Path) -> None:
    request = Request([what, 0, 0, go.number])
    request.text_only(str(path))
    problem = go.harness.send(request)[0]
    if problem:
        raise OSError(problem[0])


def features(go: GoModule, names: list[str], x: torch.Tensor) -> list[torch.Tensor]:
    request = Request([FEATURES, 0, 0, go.number])
    request.value("str[]", names)
    request.value("Tensor", x)
    return go.harness.send(request)[0][0]


def made(
    case: Any, harness: Harness, file: Path, seed: int = SEED
) -> tuple[nn.Module, GoModule, str]:
    """A network in Python and in Go, and how what Go saves of it differs from Python's state."""
    torch.manual_seed(seed)
    python = case.python()
    harness.seed(seed)
    go = case.go(harness)
    saved(go, file)
    state, wanted = torch.load(file), python.state_dict()
    if list(state) != list(wanted):
        return python, go, f"state dict: {list(state)}, not {list(wanted)}"
    return python, go, _same("at first", wanted, state)


def unlike(case: Case, harness: Harness, folder: Path) -> str:
    """What of a network in Go is not as in torchvision; nothing if all is."""
    file = folder / "of_go.pt"
    python, go, problem = made(case, harness, file)
    if problem:
        return problem
    text = str(go)
    for ours, theirs in OTHER_CLASSES.items():
        text = text.replace(f"{ours}(", f"{theirs}(")
    if text != str(python):
        return f"text: {text}"
    x = images(case)
    for training in (True, False):
        python.train(training)
        go.train(training)
        ours_x, theirs_x = (x.clone().requires_grad_() for _ in "ab")
        torch.manual_seed(SEED)
        wanted = python(theirs_x)
        harness.seed(SEED)
        got = go.method("Forward", ours_x)
        when = "training" if training else "evaluation"
        if problem := differ("result", wanted, got):
            return f"{when}: {problem}"
        if problem := _same(when, python.state_dict(), go.state_dict()):
            return problem
        parameters = go.tensors()[0]
        own = dict(python.named_parameters())
        if list(own) != list(parameters):
            return f"{when}: other parameters, or in another order"
        weights = torch.sin(torch.arange(wanted.numel()).float()).view_as(wanted)
        theirs_g = torch.autograd.grad(wanted, [theirs_x, *own.values()], weights)
        ours_g = torch.autograd.grad(got, [ours_x, *parameters.values()], weights)
        for name, a, b in zip(["x", *own], theirs_g, ours_g, strict=True):
            if problem := differ(name, a, b):
                return f"gradient in {when}: {problem}"
    # A file of Python's into a network of Go's, and the other way round.
    with torch.no_grad():
        for p in python.parameters():
            p.add_(0.01)
    torch.save(python.state_dict(), file)
    loaded(go, file)
    if problem := _same("of Python's file", python.state_dict(), go.state_dict()):
        return problem
    saved(go, file)
    python.load_state_dict(torch.load(file), strict=True)
    return ""


def _same(when: str, wanted: dict[str, torch.Tensor], got: dict[str, torch.Tensor]) -> str:
    if sorted(wanted) != sorted(got):
        return f"state dict {when}: {sorted(set(wanted) ^ set(got))}"
    for name in wanted:
        if problem := differ(name, wanted[name], got[name]):
            return f"{when}: {problem}"
    return ""


def measured(case: Case, state: dict[str, torch.Tensor], logits: torch.Tensor) -> dict[str, Any]:
    """What `EXPECTED` has of a network."""
    return {
        "entries": len(state),
        "elements": sum(v.numel() for v in state.values()),
        "digest": digest(state.items()),
        "sums": [float(v.double().abs().sum()) for v in list(state.values())[:3]],
        "logits": [float(v) for v in logits.flatten()[:4]],
    }


def expected() -> dict[str, Any]:
    """What torchvision says of each case."""
    found = {}
    for case in CASES:
        torch.manual_seed(SEED)
        model = case.python().eval()
        with torch.no_grad():
            found[str(case)] = measured(case, model.state_dict(), model(images(case)))
        print(case, flush=True)
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    EXPECTED.parent.mkdir(exist_ok=True)
    EXPECTED.write_text(json.dumps(expected(), indent=1) + "\n")
