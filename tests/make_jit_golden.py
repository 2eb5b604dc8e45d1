"""Writes the TorchScript files of the Go tests: .venv/bin/python tests/make_jit_golden.py."""

import enum
from typing import NamedTuple

import torch
from torch import Tensor, nn

from pytorch_bridge.native.toolchain import ROOT

TESTDATA = ROOT / "gotorch/jit/testdata"


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Output(NamedTuple):
    logits: Tensor
    label: int


class Counter:
    def __init__(self, start: int) -> None:
        self.n = start

    def up(self, by: int = 1) -> int:
        self.n += by
        return self.n


class Net(nn.Module):
    limit: int

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)
        self.out = nn.Linear(4, 2)
        self.words = ["cat", "dog"]
        self.color = Color.BLUE
        self.counter = Counter(3)
        self.limit = 9
        self.maybe: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.drop(torch.relu(self.norm(self.hidden(x)))))

    @torch.jit.export
    def classify(self, x: Tensor, words: bool = False) -> tuple[list[str], Tensor]:
        best = self.forward(x).argmax(1)
        names: list[str] = []
        for i in range(best.size(0)):
            number = int(best[i].item())
            names.append(self.words[number] if words else str(number))
        return names, best

    @torch.jit.export
    def output(self, o: Output, color: Color) -> Output:
        if color == Color.RED:
            raise ValueError("red is no color for this")
        return Output(o.logits * 2, o.label + 1)

    @torch.jit.export
    def echo(self, table: dict[str, list[int]], c: complex, d: torch.device, t: Tensor | None):
        return table, c, d, t, self.color

    @torch.jit.export
    def count(self, by: Counter) -> Counter:
        self.counter.up(by.n)
        return self.counter

    @torch.jit.export
    def counted(self) -> int:
        return self.counter.n

    @torch.jit.export
    def later(self, x: Tensor) -> torch.jit.Future[Tensor]:
        return torch.jit.fork(torch.relu, x)

    @torch.jit.export
    def spin(self, n: int) -> int:
        total = 0
        for i in range(n):
            total += i % 7
        return total


class Served(nn.Module):
    """A script for a server, with arguments that are no tensors."""

    def forward(self, x: Tensor, times: int = 2, words: list[str] | None = None):
        said = "" if words is None else " ".join(words)
        return {"y": x * times, "length": torch.tensor([len(said)])}


@torch.jit.interface
class Step(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pass


class Plus(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.p


class Steps(nn.Module):
    """A module whose attribute may be any module, also itself."""

    step: Step

    def __init__(self) -> None:
        super().__init__()
        self.step = Plus()
        self.q = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.step.forward(x) * self.q


def main() -> None:
    TESTDATA.mkdir(exist_ok=True)
    torch.manual_seed(0)
    net = torch.jit.script(Net().eval())
    torch.jit.save(net, str(TESTDATA / "net.pt"), _extra_files={"labels.txt": "cat\ndog\n"})
    torch.jit.save(torch.jit.script(Served()), str(TESTDATA / "served.pt"))
    torch.jit.save(torch.jit.script(Steps()), str(TESTDATA / "steps.pt"))
    traced = torch.jit.trace(nn.Sequential(nn.Linear(2, 2), nn.Tanh()).eval(), torch.ones(1, 2))
    torch.jit.save(traced, str(TESTDATA / "traced.pt"))


if __name__ == "__main__":
    main()
