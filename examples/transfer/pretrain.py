"""Trains a small network on the digits 0 to 4, and saves it as models are saved for others: a
folder with config.json and model.safetensors. The Go program beside this file goes on from there.

    .venv/bin/python examples/transfer/pretrain.py build/transfer/digits-0-4
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

DIGITS = Path(sys.prefix) / "share/digits/mnist_5k.csv.gz"
CHANNELS = 16


class Net(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, CHANNELS, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(CHANNELS, 2 * CHANNELS, 5), nn.ReLU(), nn.MaxPool2d(2),
        )  # fmt: skip
        self.classifier = nn.Linear(2 * CHANNELS * 4 * 4, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(images).flatten(1))


def main(folder: Path) -> None:
    with gzip.open(DIGITS) as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.uint8)
    table = table[table[:, -1] < 5]
    images = torch.from_numpy(table[:, :-1]).float().view(-1, 1, 28, 28)
    images = (images / 255 - 0.1307) / 0.3081
    labels = torch.from_numpy(table[:, -1]).long()

    torch.manual_seed(1)
    net = Net(5)
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    for epoch in range(10):
        for batch in torch.randperm(len(labels)).split(64):
            loss = F.cross_entropy(net(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch + 1}: loss {loss.item():.4f}")

    folder.mkdir(parents=True, exist_ok=True)
    save_file(net.state_dict(), folder / "model.safetensors", metadata={"format": "pt"})
    config = {"model_type": "digits-cnn", "channels": CHANNELS, "num_classes": 5}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
