"""Ranks in Go and in Python exchange tensors, and get the same bits as ranks in Python alone.

A program is a list of collectives, written at random: dtypes, sizes from 0, strides, groups, reductions,
with and without waiting. distributed/ranks.py runs it in torch.distributed, distributed/main.go with
package distributed, and some of the ranks in each. A collective that Gloo refuses has to fail in both,
on the same ranks.
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
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed import checkpoint
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

from pytorch_bridge.testing.gotests import run_go
from pytorch_bridge.toolchain import ROOT

HERE = Path(__file__).parent / "distributed"
sys.path.append(str(HERE))
import nets  # noqa: E402

FULL = os.environ.get("CONFORMANCE") == "full"

REALS = ["float32", "float64", "float16", "bfloat16"]
INTEGERS = ["uint8", "int8", "int32", "int64"]
OTHERS = ["bool", "complex64", "complex128", "int16"]
DTYPES = [*REALS * 2, *INTEGERS, *OTHERS]
OPS = [
    "broadcast", "all_reduce", "all_reduce", "all_reduce_coalesced", "reduce", "all_gather", "all_gather_into_tensor",
    "gather", "scatter", "reduce_scatter", "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "ring", "any",
    "barrier", "monitored_barrier",
]  # fmt: skip
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
            assert process.wait(240) == 0
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


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("distributed") / "ranks"
    built = run_go("build", "-buildvcs=false", "-o", str(made), "./tests/distributed")
    assert built.returncode == 0, built.stderr
    return made


@pytest.mark.parametrize("size", range(1, 9) if FULL else [1, 4])
def test_ranks_in_go_and_in_python_get_the_same_bits(
    size: int, program: Path, tmp_path: Path
) -> None:
    writer = Writer(size, size)
    for i in range(1000 if FULL else 120):
        writer.step(OPS[i % len(OPS)])
    jobs = {"python": set(), "go": set(range(size)), "half": set(range(size)[1::2])}
    if size == 1:
        del jobs["half"]
    for job, go in jobs.items():
        writer.write(tmp_path / job)
        run(tmp_path / job, program, size, go, "file" if job == "go" else "tcp")
        for rank in go:  # a train.Loop of a group is refused where one of its ranks is Python's
            for group, refused in json.loads(
                (tmp_path / job / f"loops{rank}.json").read_text()
            ).items():
                alone = set(members(writer, {"Group": int(group)})) <= go
                words = "" if alone else "NotImplementedError: there are ranks of Python in rank"
                assert words in refused, (job, rank, group)
                assert bool(refused) != alone, (job, rank, group, refused)
    compare(writer, tmp_path, list(jobs))


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


def test_models_train_to_the_same_bits(program: Path, tmp_path: Path) -> None:
    writer = Writer(7, 2)
    writer.train()
    writer.train(BucketCapMB=0.0001)
    writer.train(GradientAsBucketView=True, Accumulate=True)
    writer.train(StaticGraph=True, Heads=True)
    writer.train(FindUnusedParameters=True, Heads=True, Alternate=True)
    writer.train(FindUnusedParameters=True, Heads=True, Alternate=True, ByRank=True)
    writer.train(NoBroadcastBuffers=True)
    writer.train(Compression="fp16")
    writer.train(Compression="bf16")
    for job, go in {"python": set(), "go": {0, 1}, "half": {1}}.items():
        writer.write(tmp_path / job)
        run(tmp_path / job, program, 2, go, "tcp")
    compare(writer, tmp_path, ["go", "half"])
    ends: Tensors = torch.load(tmp_path / "go" / "out0.pt")
    assert len([name for name in ends if ".state." in name]) > 60


def test_models_train_to_the_same_bits_for_fifty_steps(program: Path, tmp_path: Path) -> None:
    """Two ranks come to the same bits in Go, in Python and mixed; and, with a tolerance, to what one
    process comes to that has the batches of both as one, and FullyShard of Go to the same.

    A network that normalises batches of a rank, or that drops out, is not one with whole batches.
    """
    writer = Writer(17, 2)
    writer.long("cnn", 50)
    writer.long("cnn whole", 50, BucketCapMB=0.001)
    writer.long("transformer", 50, BucketCapMB=0.001)
    writer.long("branches", 50, FindUnusedParameters=True)
    for job, go in {"python": set(), "go": {0, 1}, "half": {1}, "other half": {0}}.items():
        writer.write(tmp_path / job)
        run(tmp_path / job, program, 2, go, "tcp")
    compare(writer, tmp_path, ["go", "half", "other half"])

    writer.whole().write(tmp_path / "whole")
    run(tmp_path / "whole", program, 1, set(), "tcp")
    for step in writer.steps:
        step["Train"]["Shard"] = step["Train"]["Model"] != "branches"
    writer.write(tmp_path / "shard")
    run(tmp_path / "shard", program, 2, {0, 1}, "tcp")
    ends: list[Tensors] = [torch.load(tmp_path / "go" / f"out{rank}.pt") for rank in (0, 1)]
    shards: list[Tensors] = [torch.load(tmp_path / "shard" / f"out{rank}.pt") for rank in (0, 1)]
    whole: Tensors = torch.load(tmp_path / "whole" / "out0.pt")
    for name, end in ends[0].items():
        of, kind = name.split(".")[:2]
        if kind == "in":
            continue
        model = writer.steps[int(of)]["Train"]["Model"]
        if kind == "losses":
            assert len(end) == 50
            end = (end + ends[1][name]) / 2
            assert end[-5:].mean() < end[:5].mean(), f"{model} has learnt nothing"
            sharded = (shards[0][name] + shards[1][name]) / 2
        else:
            sharded = shards[0][name]
        if model != "cnn":
            torch.testing.assert_close(end, whole[name], rtol=1e-4, atol=1e-5)
        if "running" not in name:  # DataParallel has all ranks have rank 0's buffers
            torch.testing.assert_close(end, sharded, rtol=1e-4, atol=1e-5)


def test_batch_norms_of_all_ranks_are_those_of_one_process(program: Path, tmp_path: Path) -> None:
    """SyncBatchNorm, within DataParallel and FullyShard of Go, beside BatchNorm of one process of Python."""
    writer = Writer(19, 2)
    writer.long("cnn sync", 50)
    writer.whole().write(tmp_path / "whole")
    run(tmp_path / "whole", program, 1, set(), "tcp")
    whole: Tensors = torch.load(tmp_path / "whole" / "out0.pt")
    for job in ("ddp", "shard"):
        writer.steps[0]["Train"]["Shard"] = job == "shard"
        writer.write(tmp_path / job)
        run(tmp_path / job, program, 2, {0, 1}, "tcp")
        ends: list[Tensors] = [torch.load(tmp_path / job / f"out{rank}.pt") for rank in (0, 1)]
        for name, end in ends[0].items():
            if ".in." not in name:
                mine = (end + ends[1][name]) / 2 if name.endswith("losses") else end
                torch.testing.assert_close(mine, whole[name], rtol=1e-4, atol=1e-5)
        assert ends[0]["0.losses"][-5:].mean() < ends[0]["0.losses"][:5].mean()


POWER = {"Rank": 1, "Start": 2, "Rate": 2}


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


@pytest.mark.parametrize("size", [2, 3])
def test_hooks_reduce_gradients_to_the_same_bits(size: int, program: Path, tmp_path: Path) -> None:
    """With one bucket, where the order of Python's collectives is said."""
    writer = Writer(17, size)
    writer.train(Hook="all_reduce", BucketCapMB=0.0001)
    writer.train(Hook="gather", FindUnusedParameters=True, Heads=True, Alternate=True)
    writer.train(Hook="gather", GradientAsBucketView=True, Accumulate=True, BucketCapMB=0.0001)
    writer.train(Hook="bf16", StaticGraph=True)
    writer.train(Hook="power", PowerSGD=POWER)
    writer.train(Hook="power", PowerSGD=POWER | {"NoWarmStart": True, "Seed": 2**32 - 1})
    writer.train(Hook="power", PowerSGD={"Rank": 3, "Start": 3, "Rate": 0.5}, Heads=True)
    run_jobs(writer, program, tmp_path, mixed=True)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_post_local_sgd_to_the_same_bits(size: int, program: Path, tmp_path: Path) -> None:
    """Ranks average gradients in pairs after two passes, and parameters after each second or third step."""
    writer = Writer(37, size)
    writer.train(Hook="local", Local={"Start": 2, "Period": 2})
    writer.train(Hook="local", Local={"Start": 2, "Period": 2}, Heads=True, BucketCapMB=0.0001)
    writer.train(Hook="local", Local={"Start": 0, "Period": 3, "Alone": True}, FindUnusedParameters=True, Heads=True, Alternate=True)  # fmt: skip
    writer.train(Hook="local", Local={"Start": 1, "Period": 2, "Again": True})
    writer.train(Hook="local", Local={"Start": 9, "Period": 2, "Again": True})  # none is averaged
    run_jobs(writer, program, tmp_path, mixed=False)


def test_power_sgd_to_the_same_bits(program: Path, tmp_path: Path) -> None:
    writer = Writer(19, 2)
    several = {"Heads": True, "BucketCapMB": 0.0001}
    writer.train(Hook="power", PowerSGD=POWER, **several)
    writer.train(Hook="power", PowerSGD=POWER | {"NoWarmStart": True, "Seed": 5}, **several)
    writer.train(Hook="power", PowerSGD=POWER | {"NoErrorFeedback": True}, **several)
    writer.train(Hook="power", PowerSGD={"Rank": 2, "Start": 2, "Rate": 1, "Batch": True, "Epsilon": 1e-8}, Heads=True)  # fmt: skip
    neither = {"NoErrorFeedback": True, "NoWarmStart": True}
    writer.train(Hook="power", PowerSGD={"Rank": 4, "Start": 0, "Rate": 0.1} | neither, Heads=True)
    writer.train(Hook="power", PowerSGD={"Rank": 1, "Start": 2, "Rate": 1000})  # none is
    writer.train(Hook="fp16_power", PowerSGD=POWER, GradientAsBucketView=True)
    run_jobs(writer, program, tmp_path, mixed=False)


BATCHES = [[1, 6, 3], [6, 3], [0, 4], [5, 5], [2, 6], [6, 2, 6]]


@pytest.mark.parametrize("batches", BATCHES if FULL else BATCHES[:1])
def test_ranks_join_to_the_same_bits(batches: list[int], program: Path, tmp_path: Path) -> None:
    writer = Writer(23, len(batches))
    writer.train(Batches=batches)
    writer.train(Batches=batches, Remain=True, BucketCapMB=0.0001)
    writer.train(Batches=batches, Accumulate=True)
    writer.train(Batches=batches, FindUnusedParameters=True, Heads=True, Alternate=True)
    writer.train(Batches=batches, NoBroadcastBuffers=True, GradientAsBucketView=True)
    writer.train(Batches=batches, Compression="bf16")
    writer.train(Batches=batches, Hook="gather")
    writer.train(Batches=batches, Throw=True)
    run_jobs(writer, program, tmp_path, mixed=True)
    ends: Tensors = torch.load(tmp_path / "go" / "out0.pt")
    threw = [float(t) for name, t in ends.items() if name.endswith(".threw")]
    assert threw == [0] * 7 + [float(len(set(batches)) > 1)]


def test_optimisers_whose_state_is_shared_out_join(program: Path, tmp_path: Path) -> None:
    writer = Writer(29, 3)
    writer.train(Batches=[3, 6, 1], Zero=True)
    run_jobs(writer, program, tmp_path, mixed=False)


def test_sparse_tensors_are_reduced_to_the_same_bits(program: Path, tmp_path: Path) -> None:
    writer = Writer(37, 3)
    # Those whose sums Gloo refuses late, see refused_late, are float16 and bool among others.
    for dtype in ("float32", "float64", "int64", "uint8"):
        writer.sparse(dtype, "sum", wait=dtype != "float64")
    writer.sparse("float32", "max", wait=True)
    for job, go in {"python": set(), "go": {0, 1, 2}, "half": {1}}.items():
        writer.write(tmp_path / job)
        run(tmp_path / job, program, 3, go, "tcp")
    compare(writer, tmp_path, ["go", "half"])
    refused = json.loads((tmp_path / "go" / "out0.json").read_text())
    assert refused.keys() == {"4"}


@pytest.mark.parametrize("size", [2, 3])
def test_sparse_gradients_to_the_same_bits(size: int, program: Path, tmp_path: Path) -> None:
    writer = Writer(31, size)
    writer.train(Sparse=True)
    writer.train(Sparse=True, BucketCapMB=0.0001, FindUnusedParameters=True)
    writer.train(Sparse=True, Hook="all_reduce")
    run_jobs(writer, program, tmp_path, mixed=True)


@pytest.mark.parametrize("size", [2, 3])
def test_sharded_models_train_to_the_same_bits(size: int, program: Path, tmp_path: Path) -> None:
    """FullyShard is fully_shard: parameters and what the optimiser has of them, whole. Gloo adds three
    numbers up in an order that depends on where they are in a buffer, which has more in Go."""
    writer = Writer(13, size)
    writer.train("shard")
    writer.train("shard", Frozen=True)
    writer.train("shard", Accumulate=True)
    writer.train("shard", Half=True)
    # 0.01 is below every norm here. With three ranks the last has one of 7 rows, and none of 3 weights.
    for norm in ["2", "1", "3.5", "inf"]:
        writer.train("shard", Clip=0.01, Norm=norm, Accumulate=norm == "1")
    for job, go in {"python": set(), "go": set(range(size))}.items():
        writer.write(tmp_path / job)
        run(tmp_path / job, program, size, go, "tcp")
    compare(writer, tmp_path, ["go"], 1e-5 if size > 2 else 0)
    ends: Tensors = torch.load(tmp_path / "go" / "out0.pt")
    assert len([name for name in ends if ".optimizer." in name]) == 8 * 7 * 3 - 3


def test_checkpoints_go_between_languages_and_numbers_of_ranks(
    program: Path, tmp_path: Path
) -> None:
    """What ranks of one language have saved, ranks of the other load, as many as there are: the same
    parameters, state of the optimiser, options and values. Then all train on, to the same bits."""
    for saver, go in {"python": set(), "go": {0, 1}}.items():
        writer = Writer(17, 2)
        writer.train("shard", Save=str(tmp_path / saver))
        writer.write(tmp_path / f"{saver} saves")
        run(tmp_path / f"{saver} saves", program, 2, go, "tcp")
    saved: Tensors = torch.load(tmp_path / "go saves" / "out0.pt")
    for size in (1, 2, 3, 5, 8) if FULL else (1, 3):
        writer = Writer(19, size)
        writer.train("shard", Load=str(tmp_path / "python"))
        writer.train("shard", Load=str(tmp_path / "go"))
        ends: dict[str, Tensors] = {}
        for loader, go in {"python": set(), "go": set(range(size))}.items():
            folder = tmp_path / f"{loader} {size}"
            writer.write(folder)
            run(folder, program, size, go, "tcp")
            ends[loader] = torch.load(folder / "out0.pt")
            for step in ("0", "1"):
                assert ends[loader][f"{step}.note"].tolist() == [0, 1, 2, 3, 7, 3]
                for name, wanted in saved.items():
                    if ".in." not in name:
                        got = ends[loader][name.replace("0.", f"{step}.loaded.", 1)]
                        assert same(got, wanted), (name, loader, size, step)
        assert ends["go"].keys() == ends["python"].keys()
        tolerance = 1e-5 if size > 2 else 0
        for name, wanted in ends["python"].items():
            torch.testing.assert_close(ends["go"][name], wanted, rtol=0, atol=tolerance)
    entries = checkpoint.FileSystemReader(tmp_path / "go").read_metadata().state_dict_metadata
    wanted = checkpoint.FileSystemReader(tmp_path / "python").read_metadata().state_dict_metadata
    assert entries.keys() == wanted.keys()
    for name, entry in entries.items():
        if isinstance(entry, TensorStorageMetadata):
            assert entry.size == wanted[name].size
            assert entry.properties.dtype == wanted[name].properties.dtype
        else:
            assert isinstance(wanted[name], BytesStorageMetadata)


def whole(folder: Path) -> dict[str, Any]:
    """All that a checkpoint has."""
    state: dict[str, Any] = {}
    reader, planner = checkpoint.FileSystemReader(folder), _EmptyStateDictLoadPlanner()
    _load_state_dict(state, storage_reader=reader, planner=planner, no_dist=True)
    return state


def alike(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return same(*(t.resolve_conj().resolve_neg().contiguous() for t in (a, b)))
    if isinstance(a, dict):
        return bool(a.keys() == b.keys()) and all(alike(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(alike, a, b))
    return type(a) is type(b) and bool(a == b)


def test_checkpoints_of_all_kinds_of_values(program: Path, tmp_path: Path) -> None:
    """What Python saves Go reads and saves again, each of three ranks some of it, and Python reads."""
    complexes = torch.randn(3, 4, dtype=torch.complex64)
    state: dict[str, Any] = {
        "conj": complexes.conj(), "neg": complexes.conj().imag, "view": torch.arange(20)[3:7], "turned": torch.randn(3, 4).T,
        "expanded": torch.ones(1).expand(4), "empty": torch.ones(0, 3), "number": torch.tensor(3.5),
        "images": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last), "parameter": nets.nn.Parameter(torch.ones(2)),
        "none": None, "tuple": (torch.ones(2), 3), "list": [1, {"a": torch.ones(1)}, [torch.zeros(2)]], "text": "é\0x",
        "bytes": b"\xff", "large": 2**80, "negative": -1, "dtype": torch.float16, "device": torch.device("cpu"), "nothing": [],
        "complex": 1 + 2j, "dots.and.numbers": {7: "a", None: 2, True: 3},
    }  # fmt: skip
    dtypes = {d for d in vars(torch).values() if isinstance(d, torch.dtype)}
    dtypes = {d for d in dtypes if not str(d).startswith("torch.q")}  # quantised: Go refuses them
    for dtype in sorted(dtypes, key=str):
        with contextlib.suppress(TypeError):  # of those that Python saves nothing of
            if n := torch._utils._element_size(dtype):
                state[str(dtype)] = torch.randint(2, (3, 4 * n)).to(torch.uint8).view(dtype)
    assert len(state) > 21 + 20
    checkpoint.save(state, checkpoint_id=tmp_path / "python")
    writer = Writer(1, 3)
    writer.train("copy", Load=str(tmp_path / "python"), Save=str(tmp_path / "go"))
    writer.write(tmp_path / "job")
    run(tmp_path / "job", program, 3, {0, 1, 2}, "tcp")
    assert json.loads((tmp_path / "job" / "out0.json").read_text()) == {}
    got, want = whole(tmp_path / "go"), whole(tmp_path / "python")
    assert got.keys() == want.keys()
    assert [name for name in want if not alike(want[name], got[name])] == []
    assert {f.name for f in (tmp_path / "go").glob("*.distcp")} == {
        f"__{i}_0.distcp" for i in range(3)
    }
    # And into what is there.
    into = {n: torch.zeros_like(t) if isinstance(t, torch.Tensor) else t for n, t in state.items()}
    into["expanded"] = torch.zeros(4)
    checkpoint.load(into, checkpoint_id=tmp_path / "go")
    assert [name for name in state if not alike(state[name], into[name])] == []


def test_ranks_of_a_mesh_and_of_debug_level_detail(program: Path, tmp_path: Path) -> None:
    """With TORCH_DISTRIBUTED_DEBUG=DETAIL ranks talk before each collective, in Go as in Python."""
    writer = Writer(11, 4)
    for shape in ((2, 2), (4,), (1, 4), (3, 1), (1, 2, 2)):
        writer.mesh(*shape)
    for op in OPS:
        # A receive of anyone's is nothing that ranks can compare, and c10d counts a monitored barrier on
        # rank 0 alone, so that what comes after it differs.
        if op not in ("any", "monitored_barrier"):
            writer.step(op)
    for job, go in {"python": set(), "half": {1, 2}}.items():
        writer.write(tmp_path / job)
        run(tmp_path / job, program, 4, go, "tcp", TORCH_DISTRIBUTED_DEBUG="DETAIL")
    compare(writer, tmp_path, ["half"])


def test_what_gloo_refuses_is_refused(program: Path, tmp_path: Path) -> None:
    writer = Writer(5, 1)
    ops = [op for op in OPS if "reduce" in op or op == "gather"]
    for i in range(100):
        writer.step(ops[i % len(ops)], refused=True)
    for job, go in {"python": set(), "go": {0}}.items():
        writer.write(tmp_path / job)
        run(tmp_path / job, program, 1, go, "tcp")
    python, ours = (
        json.loads((tmp_path / job / "out0.json").read_text()) for job in ("python", "go")
    )
    assert python.keys() == ours.keys()
    assert len(python) > 50


def test_ranks_under_torchrun(program: Path, tmp_path: Path) -> None:
    writer = Writer(99, 3)
    for op in OPS:
        writer.step(op)
    writer.write(tmp_path / "python")
    run(tmp_path / "python", program, 3, set(), "tcp")
    writer.write(tmp_path / "torchrun")
    python = f"{sys.executable} {HERE / 'ranks.py'}"
    either = f'[ $RANK = 1 ] && exec {program} "$0"; exec {python} "$0"'
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python"]
    command += ["--nproc-per-node=3", "sh", "-c", either, str(tmp_path / "torchrun")]
    subprocess.run(command, check=True, timeout=240)
    compare(writer, tmp_path, ["torchrun"])


# A training that torchrun starts again ------------------------------------------------------------


class Trainer:
    """examples/distributed under torchrun, with two ranks."""

    def __init__(self, program: Path, out: Path, shard: bool) -> None:
        self.out, self.shard = out, shard
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python"]
        command += ["--nproc-per-node=2", "--max-restarts=3", "--monitor-interval=0.1"]
        command += [str(program), "-epochs", "2", "-out", str(out), f"-shard={shard}"]
        self.process = subprocess.Popen(command, start_new_session=True, cwd=ROOT)

    def workers(self) -> list[int]:
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task").glob("*/children")
        return [int(child) for path in children for child in path.read_text().split()]

    def steps(self) -> int:
        saved = self.out.glob("step-*/.metadata" if self.shard else "step-*.pt")
        names = [f.parent.name if self.shard else f.stem for f in saved]
        return max((int(name[5:]) for name in names), default=0)

    def after(self, steps: int) -> None:
        """Waits until so many steps are saved, or it has ended."""
        until = time.monotonic() + 240
        while self.steps() < steps and self.process.poll() is None and time.monotonic() < until:
            time.sleep(0.01)

    def end(self, code: int | None = 0) -> None:
        try:
            assert code in (self.process.wait(240), None)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def result(self) -> dict[str, Any]:
        name = self.out / f"step-{self.steps():08}"
        if not self.shard:
            return torch.load(f"{name}.pt")
        dcp_to_torch_save(name, self.out / "whole.pt")
        result: dict[str, Any] = torch.load(self.out / "whole.pt", weights_only=False)
        return result | result["loop"][0]


@pytest.mark.parametrize("shard", [False, True])
def test_a_training_goes_on_when_ranks_die(shard: bool, tmp_path: Path) -> None:
    """To the same bits: killed ranks, which torchrun replaces, and torchrun itself, which gets SIGTERM."""
    program = tmp_path / "ddp"
    built = run_go("build", "-buildvcs=false", "-o", str(program), "./examples/distributed")
    assert built.returncode == 0, built.stderr
    whole = Trainer(program, tmp_path / "whole", shard)
    whole.end()
    want = whole.result()

    draw = random.Random(3)
    for kind in ["killed", "terminated"] * (10 if FULL else 1):
        out = tmp_path / f"{kind}{draw.random()}"
        trainer = Trainer(program, out, shard)
        for after in (20, 70):
            trainer.after(after)
            if kind == "killed":
                if workers := trainer.workers():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(draw.choice(workers), signal.SIGKILL)
                continue
            trainer.process.terminate()
            trainer.end(None)
            assert trainer.steps() >= after
            trainer = Trainer(program, out, shard)
        trainer.end()
        got = trainer.result()
        assert torch.equal(got["train"]["history"]["losses"], want["train"]["history"]["losses"])
        for name, t in want["model_state_dict"].items():
            assert same(got["model_state_dict"][name], t), name
        left = {f.name for f in out.iterdir()} - {"log.csv", "loss.png", "whole.pt"}
        assert left == {f"step-{trainer.steps():08}" + ("" if shard else ".pt")}
        assert not trainer.workers()
