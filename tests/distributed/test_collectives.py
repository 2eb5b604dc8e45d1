"""Ranks in Go and in Python exchange tensors, and get the same bits as ranks in Python alone.

A collective that Gloo refuses has to fail in both, on the same ranks.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import FULL, HERE, OPS, Writer, compare, members, run


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
    subprocess.run(command, check=True, timeout=480)
    compare(writer, tmp_path, ["torchrun"])
