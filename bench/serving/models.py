"""The models that `make bench-serve` serves, in Python.

    models.py FOLDER [NAME ...]

writes, for each, a folder with its weights, inputs, and what PyTorch makes of those:

    spec.json  weights.pt  inputs.bin  outputs.bin
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

VOCABULARY, WIDTH, HEADS, LAYERS, LENGTH, CLASSES = 1000, 256, 4, 4, 64, 10
INPUTS = 16


class Encoder(nn.Module):
    """Tells of which class a text of 64 tokens is."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, dim_feedforward=4 * WIDTH, batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.token, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.encoder(self.token(x) * math.sqrt(WIDTH))
        return self.head(h.mean(1))


def resnet18() -> nn.Module:
    from torchvision.models import resnet18

    return resnet18(weights=None)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))


MODELS = {"mlp": mlp, "encoder": Encoder, "resnet18": resnet18}

SPECS = {
    "mlp": {"input": "x", "type": "FP32", "shape": [784], "out": [10], "batch": 64},
    "encoder": {"input": "x", "type": "INT64", "shape": [LENGTH], "out": [CLASSES], "batch": 8},
    "resnet18": {"input": "x", "type": "FP32", "shape": [3, 224, 224], "out": [1000], "batch": 4},
}
"""What a model takes and returns, without the batch; and how many rows a batch has at most, where a
server joins requests."""

DTYPES = {"FP32": torch.float32, "INT64": torch.int64}


def inputs(name: str) -> Tensor:
    """Some inputs, the same each time."""
    spec, draw = SPECS[name], torch.Generator().manual_seed(1)
    shape = [INPUTS, *spec["shape"]]
    if spec["type"] == "INT64":
        return torch.randint(VOCABULARY, shape, generator=draw)
    return torch.randn(shape, generator=draw)


def load(name: str, folder: str | Path) -> nn.Module:
    """The model with the weights that are in the folder."""
    model = MODELS[name]().eval()
    model.load_state_dict(torch.load(Path(folder) / name / "weights.pt", weights_only=True))
    return model


class Served:
    """A model as a server in Python has it: of bytes, to bytes."""

    def __init__(self, name: str, folder: str | Path) -> None:
        torch.set_num_threads(1)
        self.spec = SPECS[name]
        self.model = load(name, folder)
        self.dtype = DTYPES[self.spec["type"]]

    def tensor(self, body: bytes | bytearray) -> Tensor:
        if not isinstance(body, bytearray):
            body = bytearray(body)  # a tensor of what cannot be written to is a warning
        return torch.frombuffer(body, dtype=self.dtype).view(-1, *self.spec["shape"])

    def __call__(self, x: Tensor) -> Tensor:
        with torch.inference_mode():
            return self.model(x)

    def answer(self, body: bytes | bytearray) -> bytes:
        return self(self.tensor(body)).numpy().tobytes()


def write(folder: Path, names: list[str]) -> None:
    for name in names:
        torch.manual_seed(0)
        model, at = MODELS[name]().eval(), folder / name
        at.mkdir(parents=True, exist_ok=True)
        torch.save(model.state_dict(), at / "weights.pt")
        (at / "spec.json").write_text(json.dumps(SPECS[name]))
        x = inputs(name)
        (at / "inputs.bin").write_bytes(x.numpy().tobytes())
        with torch.inference_mode():  # one by one, as they come
            y = torch.cat([model(one) for one in x.split(1)])
        (at / "outputs.bin").write_bytes(y.numpy().tobytes())


class ChannelsLast(nn.Module):
    """The same of a model of images, with the channels innermost in memory."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model.to(memory_format=torch.channels_last)

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x.contiguous(memory_format=torch.channels_last))


def export(folder: Path, out: Path, names: list[str]) -> None:
    """Writes Go packages of the models that a graph compiler has been through. That of ResNet-18
    with its channels last is a package of its own."""
    import pytorch_bridge as pb

    def write(name: str, model: nn.Module, package: str) -> None:
        batch = torch.export.Dim("batch", max=256)
        program = torch.export.export(model, (inputs(name)[:2],), dynamic_shapes=({0: batch},))
        pb.export_go(program, out / package)

    for name in names:
        write(name, load(name, folder), name)
        if name == "resnet18":
            write(name, ChannelsLast(load(name, folder)), f"{name}_last")


if __name__ == "__main__":
    if sys.argv[1] == "export":
        export(Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:] or list(MODELS))
    else:
        write(Path(sys.argv[1]), sys.argv[2:] or list(MODELS))
