"""Hooks that reduce DataParallel's gradients, in Go and in Python, come to the same bits."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import Writer, run_jobs

POWER = {"Rank": 1, "Start": 2, "Rate": 2}


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
