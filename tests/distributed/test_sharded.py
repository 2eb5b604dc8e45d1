"""Sharded models of Go and of Python, their checkpoints, and trainings that are started again."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import nets
import pytest
import torch
from jobs import FULL, Tensors, Writer, compare, run, same
from torch.distributed import checkpoint
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

from pytorch_bridge.native.toolchain import ROOT
from pytorch_bridge.testing.gotests import run_go


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
            assert code in (self.process.wait(480), None)
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
