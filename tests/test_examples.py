"""The examples' trainings are PyTorch's, step by step, and nothing that ends a process changes what they come to.

What the examples learn is tested beside them, in examples/*/main_test.go.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, OneCycleLR
from torch.utils.data import DataLoader, TensorDataset

from pytorch_bridge.native.toolchain import ROOT
from pytorch_bridge.testing.gotests import run_go

FULL = os.environ.get("CONFORMANCE") == "full"
DIGITS = ROOT / ".venv/share/digits/mnist_5k.csv.gz"
TEXT = ROOT / "examples/chargpt/opticks.txt"


@pytest.fixture(scope="module")
def programs(library, tmp_path_factory) -> Path:
    """A folder with the programs digits and chargpt."""
    out = tmp_path_factory.mktemp("programs")
    built = run_go(
        "build", "-buildvcs=false", "-o", str(out), "./examples/digits", "./examples/chargpt"
    )
    assert built.returncode == 0, built.stderr
    return out


def run(*command: str | Path) -> None:
    """Runs a program with one thread: with more, sums would be added in another order."""
    done = subprocess.run(command, cwd=ROOT, env=ONE_THREAD, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


def checkpoint(folder: Path) -> dict[str, Any]:
    """The last checkpoint of a run."""
    return torch.load(max(folder.glob("step-*.pt")))


def losses_of(folder: Path) -> list[float]:
    return checkpoint(folder)["train"]["history"]["losses"].tolist()


# The same in Python -------------------------------------------------------------------------------


class Training:
    """What a run of train.Loop does, as one writes it in Python."""

    def __init__(self, model: nn.Module, learn: TensorDataset, test: TensorDataset) -> None:
        self.model, self.learn, self.test = model, learn, test

    def losses(
        self,
        steps: int,
        batch: int,
        loss: Callable[[Tensor, Tensor], Tensor],
        opt: torch.optim.Optimizer,
        schedule: LRScheduler,
        drop_last: bool = False,
        clip: float | None = None,
    ) -> Iterator[float]:
        loader = DataLoader(self.learn, batch, shuffle=True, drop_last=drop_last)
        while True:
            self.model.train()
            for x, y in loader:
                opt.zero_grad()
                out = loss(self.model(x), y)
                out.backward()
                if clip is not None:
                    nn.utils.clip_grad_norm_(self.model.parameters(), clip)
                opt.step()
                schedule.step()
                yield out.item()
                steps -= 1
                if steps == 0:
                    return
            self.model.eval()
            with torch.no_grad():
                for x, y in DataLoader(self.test, 256):
                    loss(self.model(x), y)


def digits(steps: int) -> Iterator[float]:
    """examples/digits in Python."""
    torch.manual_seed(1)
    table = np.loadtxt(DIGITS, delimiter=",", dtype=np.float32)
    pixels, labels = table[:, :-1].reshape(-1, 1, 28, 28), table[:, -1].astype(np.int64)
    x = torch.from_numpy((pixels / np.float32(255) - np.float32(0.1307)) / np.float32(0.3081))
    y = torch.from_numpy(labels)
    every = torch.arange(len(y)) % 5 == 4
    model = nn.Sequential(
        nn.Conv2d(1, 16, 5), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.3), nn.Linear(32 * 4 * 4, 128), nn.ReLU(), nn.Dropout(0.3),
        nn.Linear(128, 10),
    )  # fmt: skip
    opt = AdamW(model.parameters(), lr=3e-3)
    run = Training(model, TensorDataset(x[~every], y[~every]), TensorDataset(x[every], y[every]))
    return run.losses(steps, 64, F.cross_entropy, opt, CosineAnnealingLR(opt, steps))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.1)
        self.heads = width // 32

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop(self.attention(self.norm1(x)))
        return x + self.drop(self.narrow(F.gelu(self.widen(self.norm2(x)))))

    def attention(self, x: Tensor) -> Tensor:
        n, t, width = x.shape
        qkv = self.qkv(x).view(n, t, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind()
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(n, t, width))


class GPT(nn.Module):
    def __init__(self, n: int, context: int, width: int, layers: int) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(n, width), nn.Embedding(context, width)
        self.drop = nn.Dropout(0.1)
        self.blocks = nn.ModuleList([Block(width) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, n)
        self.apply(self.small)

    def small(self, part: nn.Module) -> None:
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.normal_(part.weight, std=0.02)
        if isinstance(part, nn.Linear):
            nn.init.zeros_(part.bias)

    def forward(self, x: Tensor) -> Tensor:
        h = self.drop(self.token(x) + self.place(torch.arange(x.size(1))))
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


def chargpt(steps: int) -> Iterator[float]:
    """examples/chargpt in Python."""
    torch.manual_seed(1)
    context, width, layers = 64, 128, 3
    text = TEXT.read_text()
    characters = sorted(set(text))
    ids = torch.tensor([characters.index(c) for c in text])
    cut = len(ids) * 9 // 10

    def pieces(part: Tensor, step: int) -> TensorDataset:
        windows = part.unfold(0, context + 1, step)
        return TensorDataset(windows[:, :-1], windows[:, 1:])

    def loss(scores: Tensor, after: Tensor) -> Tensor:
        return F.cross_entropy(scores.flatten(0, 1), after.flatten())

    model = GPT(len(characters), context, width, layers)
    opt = AdamW(model.parameters(), weight_decay=0.1)
    schedule = OneCycleLR(opt, 3e-3, total_steps=steps, pct_start=0.1)
    run = Training(model, pieces(ids[:cut], context // 8), pieces(ids[cut:], context))
    return run.losses(steps, 16, loss, opt, schedule, drop_last=True, clip=1.0)


PYTHON = {"digits": digits, "chargpt": chargpt}
# The folder of checkpoints; shifts of digits are drawn by Go's generator, and left out.
ARGUMENTS = {"digits": ["-shift", "0", "-run", "{out}/run"], "chargpt": []}


@pytest.mark.parametrize("example", PYTHON)
def test_losses_follow_pytorchs(programs: Path, tmp_path: Path, example: str) -> None:
    steps = 200 if FULL else 20
    more = [a.format(out=tmp_path) for a in ARGUMENTS[example]]
    run(programs / example, "-out", tmp_path, "-steps", str(steps), *more, "train")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        want = list(PYTHON[example](steps))
    finally:
        torch.set_num_threads(threads)
    got = losses_of(tmp_path / "run")
    assert len(got) == len(want) == steps
    difference = max(abs(a - b) for a, b in zip(got, want, strict=True))
    assert got == want, f"they differ by up to {difference:.3g}"  # to the last bit
    assert want[-1] < want[0] - 0.5, "it learns"


# kill -9 ------------------------------------------------------------------------------------------

# Small trainings that save often. That of digits ends amid its second epoch.
KILLED = {
    "chargpt": f"-width 32 -layers 1 -context 32 -batch 8 -steps {150 if FULL else 50} -save 1 -out {{out}} train",
    "digits": "-steps 80 -run {out}/run -out {out} train",
}


@pytest.mark.parametrize("example", KILLED if FULL else ["chargpt"])
def test_a_killed_training_goes_on_to_the_same_bits(
    programs: Path, tmp_path: Path, example: str
) -> None:
    """Kills it at moments that are spread evenly over all of its life, from the first instruction to the last, and
    lets it go on, until it has come to its end; once and again, until there were enough kills."""

    def start(folder: Path) -> subprocess.Popen[bytes]:
        arguments = KILLED[example].format(out=folder).split()
        return subprocess.Popen(
            [programs / example, *arguments],
            cwd=ROOT,
            env=ONE_THREAD,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def end(process: subprocess.Popen[bytes]) -> int:
        _, said = process.communicate()
        assert process.returncode in (0, -signal.SIGKILL), said.decode()
        return process.returncode

    begun = time.monotonic()
    assert end(start(tmp_path / "whole")) == 0
    life = time.monotonic() - begun
    (last,) = (tmp_path / "whole/run").iterdir()
    whole = torch.load(last)
    kills, rng = 50 if FULL else 3, random.Random(1)
    before, amid, between = 0, 0, 0  # the first checkpoint, the writing of one, two of them
    trial = 0
    while before + amid + between < kills:
        folder = tmp_path / f"trial{trial}"
        run_folder = folder / "run"
        for _ in range(1 + trial % 3):
            process = start(folder)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(rng.uniform(0, life))
            process.kill()
            if end(process) == 0:
                break  # the moment was after its end
            names = {f.name for f in run_folder.iterdir()} if run_folder.exists() else set()
            complete = {n for n in names if re.fullmatch(r"step-\d{8}\.pt", n)}
            amid += names != complete
            before += not complete and not names
            between += bool(complete) and names == complete
        assert end(start(folder)) == 0
        assert [f.name for f in run_folder.iterdir()] == [last.name], "something is left"
        differ = list(differences(checkpoint(run_folder), whole))
        assert not differ, f"trial {trial}: {differ[:5]}"
        trial += 1
    print(
        f"{example}: {before} kills before a checkpoint was there, {amid} amid the writing of one, {between} between"
    )


def differences(a: Any, b: Any, at: str = "") -> Iterator[str]:
    """Where two checkpoints are not the same to the last bit. How long something took is no part of it."""
    if isinstance(b, dict):
        if a.keys() != b.keys():
            yield f"{at}: {list(a)}, not {list(b)}"
            return
        for key in b.keys() - {"elapsed", "duration"}:
            yield from differences(a[key], b[key], f"{at}.{key}")
    elif isinstance(b, list):
        if len(a) != len(b):
            yield f"{at}: {len(a)} elements, not {len(b)}"
            return
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            yield from differences(x, y, f"{at}[{i}]")
    elif isinstance(b, Tensor):
        same = (a.dtype, a.shape) == (b.dtype, b.shape)
        if not same or a.numpy().tobytes() != b.numpy().tobytes():
            yield at
    elif (type(a), repr(a)) != (type(b), repr(b)):
        yield f"{at}: {a}, not {b}"


# Pages --------------------------------------------------------------------------------------------

FOLDERS = sorted(main.parent for main in (ROOT / "examples").glob("*/main.go"))


def test_every_example_is_in_the_readme():
    listed = re.findall(
        r"\]\(examples/(\w+)/(?:README\.md|main\.go)\)", (ROOT / "README.md").read_text()
    )
    assert sorted(listed) == [folder.name for folder in FOLDERS]


@pytest.mark.parametrize("folder", [f for f in FOLDERS if f.name != "hello"], ids=lambda f: f.name)
def test_an_example_has_a_page_with_a_picture(folder: Path) -> None:
    text = (folder / "README.md").read_text()
    assert len(text.splitlines()) <= 60, "it is longer than a page"
    assert f"go run ./examples/{folder.name}" in text
    links = re.findall(r"\]\(([^)#]+)\)", text)
    pictures = [folder / link for link in links if link.endswith(".png")]
    assert pictures
    for link in links:
        assert link.startswith("https://") or (folder / link).exists(), f"{link} leads nowhere"
    for picture in pictures:
        assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        assert picture.stat().st_size < 100_000
