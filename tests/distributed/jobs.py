"""Programs of collectives and of trainings, and what runs them, with some of the ranks in Go.

A program is a list of steps, written at random: dtypes, sizes from 0, strides, groups, reductions, with and without
waiting. ranks.py runs it in torch.distributed, main.go with package distributed, and some of the ranks in each.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nets
import torch

HERE = Path(__file__).parent
FULL = os.environ.get("CONFORMANCE") == "full"

REALS = ["float32", "float64", "float16", "bfloat16"]
INTEGERS = ["uint8", "int8", "int32", "int64"]
OTHERS = ["bool", "complex64", "complex128", "int16"]
DTYPES = [*REALS * 2, *INTEGERS, *OTHERS]
OPS = [
    "broadcast", "all_reduce", "all_reduce", "all_reduce_coalesced", "reduce", "all_gather", "all_gather_into_tensor",
    "gather", "scatter", "reduce_scatter", "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "ring", "any",
    "barrier", "monitored_barrier",
]  # fmt: skip  # fmt: skip
REDUCES = ["sum", "sum", "sum", "product", "min", "max", "band", "bor", "bxor", "avg"]
Tensors = dict[str, torch.Tensor]


def refused_late(op: str, dtype: str, reduce: str) -> bool:
    """Whether Gloo finds out in a thread of its own that it cannot do this.

    A barrier that begins before that thread has put the work away fails in its place, on some of the ranks.
    """
    number = dtype in REALS or dtype in INTEGERS
    number = number or ("all_reduce" in op and reduce == "sum" and dtype != "bool")
    if (op == "gather" and dtype.startswith("complex")) or dtype == "int16":
        return True
    if "reduce" not in op:
        return False
    if reduce in ("band", "bor", "bxor") and dtype in REALS:
        return True
    return (reduce == "avg" and dtype not in REALS) or not number


class Writer:
    """Writes a program, and the tensors that each rank has at its beginning."""

    def __init__(self, seed: int, size: int) -> None:
        self.random = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.size = size
        self.groups = [[0, size - 1], list(range(0, size, 2)), list(range(1, size))]
        self.groups = [sorted(set(g)) for g in self.groups if g]
        self.tensors: list[Tensors] = [{} for _ in range(size)]
        self.steps: list[dict[str, Any]] = []

    def shape(self) -> list[int]:
        return [self.random.choice([0, 1, 2, 3, 5, 17]) for _ in range(self.random.randint(0, 3))]

    def tensor(self, shape: Sequence[int], dtype: str, turned: bool) -> torch.Tensor:
        of = getattr(torch, dtype)
        turned = turned and len(shape) > 1
        sizes = [*shape[:-2], shape[-1], shape[-2]] if turned else list(shape)
        if of == torch.bool:
            t = torch.randint(0, 2, sizes, generator=self.generator).bool()
        elif of.is_floating_point or of.is_complex:
            t = torch.randn(
                sizes, generator=self.generator, dtype=of if of.is_complex else torch.float64
            ).to(of)
        else:
            t = torch.randint(0, 100, sizes, generator=self.generator).to(of)
        return t.transpose(-1, -2) if turned else t

    def step(self, op: str, refused: bool = False) -> None:
        draw = self.random
        group = draw.choice([-1, -1, *range(len(self.groups))])
        members = list(range(self.size)) if group < 0 else self.groups[group]
        n = len(members)
        if n < 2 and op in ("ring", "any"):
            group, members, n = -1, list(range(self.size)), self.size
            if n < 2:
                return
        name, shape = str(len(self.steps)), self.shape()
        while True:
            dtype, reduce = draw.choice(DTYPES), draw.choice(REDUCES)
            if refused_late(op, dtype, reduce) == refused:
                break
        step = {
            "ID": name, "Op": op, "Group": group, "Reduce": reduce, "Root": draw.randrange(n),
            "Tag": draw.randrange(5), "Async": draw.random() < 0.5, "Inputs": 1, "Outputs": 0,
        }  # fmt: skip
        if op == "any":  # Gloo cannot receive nothing from anyone
            shape = [max(n, 1) for n in shape]
        ins: list[list[int]] = [shape]
        outs: list[list[int]] = []
        each: dict[int, tuple[list[list[int]], list[list[int]]]] = {}
        first = [draw.choice([0, 1, 2, 3]), *shape]
        match op:
            case "all_reduce_coalesced":
                ins = [self.shape() for _ in range(draw.randint(1, 3))]
            case "all_gather" | "gather" | "any":
                outs = [shape] * n
            case "all_gather_into_tensor":
                ins = [first]
                outs = [draw.choice([[first[0] * n, *shape], [n, *first]])]
            case "scatter" | "reduce_scatter":
                ins, outs = [shape] * n, [shape]
            case "reduce_scatter_tensor":
                ins, outs = [[first[0] * n, *shape]], [first]
            case "all_to_all":
                ins, outs = [shape] * n, [shape] * n
            case "all_to_all_single" if draw.random() < 0.5:
                ins, outs = [[first[0] * n, *shape]], [[first[0] * n, *shape]]
            case "all_to_all_single":
                rows = [[draw.choice([0, 1, 2]) for _ in members] for _ in members]
                columns = [[row[i] for row in rows] for i in range(n)]
                for i, rank in enumerate(members):
                    each[rank] = ([[sum(rows[i]), *shape]], [[sum(columns[i]), *shape]])
                step["Splits"] = {
                    str(rank): [columns[i], rows[i]] for i, rank in enumerate(members)
                }
                outs = [[0]]
            case "ring":
                outs = [shape]
            case "barrier" | "monitored_barrier":
                ins = []
        step["Inputs"], step["Outputs"] = len(ins), len(outs)
        # A quarter has other strides than those of its shape, which Gloo refuses or copies: on all
        # ranks, for where some refuse others wait.
        turned = {kind for kind in ("in", "out") if draw.random() < 0.125}
        turned -= {"gather": {"out"}, "scatter": {"in"}, "ring": {"out"}}.get(op, set())
        for rank in members:
            mine = each.get(rank, (ins, outs))
            for kind, shapes in zip(("in", "out"), mine, strict=True):
                for i, s in enumerate(shapes):
                    self.tensors[rank][f"{name}.{kind}.{i}"] = self.tensor(s, dtype, kind in turned)
        # Where the ranks' shapes differ, so may whether a tensor that was turned is as its shape says: an
        # empty one is.
        for of in sorted({of for t in self.tensors for of in t if of.split(".")[0] == name}):
            if len({self.tensors[rank][of].is_contiguous() for rank in members}) > 1:
                for rank in members:
                    self.tensors[rank][of] = self.tensors[rank][of].contiguous()
        self.steps.append(step)

    def train(self, op: str = "train", **options: Any) -> None:
        """A step that trains a model on all ranks, each with samples of its own."""
        name = str(len(self.steps))
        step = {"ID": name, "Op": op, "Group": -1, "Reduce": "sum", "Inputs": 6, "Outputs": 0}
        self.steps.append({**step, "Root": 0, "Async": False, "Train": options})
        for tensors in self.tensors:
            for i in range(6):
                tensors[f"{name}.in.{i}"] = torch.randn(4, 5, generator=self.generator)

    def long(self, model: str, steps: int, **options: Any) -> None:
        """A step that trains a model of nets.py for so many batches."""
        name = str(len(self.steps))
        step = {"ID": name, "Op": "long", "Group": -1, "Reduce": "sum", "Inputs": 2 * steps}
        train = {"Model": model, **options}
        self.steps.append({**step, "Outputs": 0, "Root": 0, "Async": False, "Train": train})
        for tensors in self.tensors:
            for i in range(steps):
                batch = nets.samples(model, self.generator)
                tensors[f"{name}.in.{2 * i}"], tensors[f"{name}.in.{2 * i + 1}"] = batch

    def whole(self) -> Writer:
        """The same for one process, which has the batches of all ranks as one."""
        one = Writer(0, 1)
        one.groups = [[0]]
        one.steps = [
            {**step, "Train": {**step["Train"], "Whole": self.size}} for step in self.steps
        ]
        one.tensors = [
            {name: torch.cat([t[name] for t in self.tensors]) for name in self.tensors[0]}
        ]
        return one

    def mesh(self, *shape: int) -> None:
        """A step in which all ranks make a mesh and add up along each of its dimensions."""
        name = str(len(self.steps))
        step = {"ID": name, "Op": "mesh", "Group": -1, "Reduce": "sum", "Inputs": len(shape)}
        self.steps.append({**step, "Outputs": 0, "Root": 0, "Async": False, "Shape": shape})
        for tensors in self.tensors:
            for i in range(len(shape)):
                tensors[f"{name}.in.{i}"] = torch.randn(4, generator=self.generator)

    def sparse(self, dtype: str, reduce: str, wait: bool) -> None:
        """A step in which all ranks make sparse tensors of theirs, and reduce them."""
        name = str(len(self.steps))
        step = {"ID": name, "Op": "sparse", "Group": -1, "Reduce": reduce, "Inputs": 6}
        self.steps.append({**step, "Outputs": 0, "Root": 0, "Async": not wait})
        for tensors in self.tensors:
            for i, shape in enumerate([[4, 3], [7, 2], [5, 2, 2], [0, 3], [6, 1], [1, 9]]):
                there = torch.rand(shape, generator=self.generator) < 0.4
                tensors[f"{name}.in.{i}"] = self.tensor(shape, dtype, False) * there

    def write(self, folder: Path) -> None:
        folder.mkdir()
        for rank, tensors in enumerate(self.tensors):
            torch.save(tensors, folder / f"in{rank}.pt")
        (folder / "program.json").write_text(
            json.dumps({"Groups": self.groups, "Steps": self.steps})
        )


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def run(folder: Path, program: Path, size: int, go: set[int], way: str, **variables: str) -> None:
    """Runs the program of a folder, with some of its ranks in Go."""
    meet = f"file://{folder}/meet" if way == "file" else f"tcp://127.0.0.1:{free_port()}"
    rest = [str(folder), meet, str(size)]
    commands = [[program, *rest, str(rank)] for rank in sorted(go)]
    if others := [str(rank) for rank in range(size) if rank not in go]:
        commands.append([sys.executable, HERE / "ranks.py", *rest, *others])
    # In groups of their own, for ranks.py has children.
    env = os.environ | variables
    started = [subprocess.Popen(command, start_new_session=True, env=env) for command in commands]
    try:
        for process in started:
            assert process.wait(480) == 0
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return (
        a.dtype == b.dtype
        and a.shape == b.shape
        and bool(torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8)))
    )


def compare(writer: Writer, folder: Path, jobs: list[str], tolerance: float = 0) -> None:
    """Holds what ranks have in the end to what those of the job `python` have: to the same bits, or
    with a tolerance."""
    failed = 0
    for rank in range(writer.size):
        reference: Tensors = torch.load(folder / "python" / f"out{rank}.pt")
        refused = json.loads((folder / "python" / f"out{rank}.json").read_text())
        failed += len(refused)
        for job in jobs:
            got: Tensors = torch.load(folder / job / f"out{rank}.pt")
            said = json.loads((folder / job / f"out{rank}.json").read_text())
            assert {k: refused.get(k) for k in refused.keys() ^ said.keys()} == {}, said
            assert got.keys() == reference.keys()
            for name, expected in reference.items():
                step = writer.steps[int(name.split(".")[0])]
                if step["ID"] in refused:
                    continue
                if step["Op"] == "reduce" and step["Root"] != members(writer, step).index(rank):
                    continue  # what is in the others' is not said
                if tolerance:
                    torch.testing.assert_close(got[name], expected, rtol=tolerance, atol=tolerance)
                else:
                    assert same(got[name], expected), (job, rank, step, got[name], expected)
    assert failed < len(writer.steps) * writer.size / 2


def members(writer: Writer, step: dict[str, Any]) -> list[int]:
    return list(range(writer.size)) if step["Group"] < 0 else writer.groups[step["Group"]]


def run_jobs(writer: Writer, program: Path, folder: Path, *, mixed: bool) -> None:
    """Runs a program with all ranks in Python, all in Go and, if mixed, every other one in Go, and
    holds them to the same bits."""
    jobs = {"python": set(), "go": set(range(writer.size)), "half": set(range(writer.size)[1::2])}
    if not mixed:
        del jobs["half"]
    for job, go in jobs.items():
        writer.write(folder / job)
        run(folder / job, program, writer.size, go, "tcp")
    compare(writer, folder, [job for job in jobs if job != "python"])
    said = json.loads((folder / "python" / "out0.json").read_text())
    assert said == {}
