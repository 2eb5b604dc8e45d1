"""DataParallel of Go and of Python train models to the same bits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from jobs import FULL, Tensors, Writer, compare, run, run_jobs


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


@pytest.mark.parametrize("size", [2, 3])
def test_sparse_gradients_to_the_same_bits(size: int, program: Path, tmp_path: Path) -> None:
    writer = Writer(31, size)
    writer.train(Sparse=True)
    writer.train(Sparse=True, BucketCapMB=0.0001, FindUnusedParameters=True)
    writer.train(Sparse=True, Hook="all_reduce")
    run_jobs(writer, program, tmp_path, mixed=True)
