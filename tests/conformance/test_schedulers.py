"""The schedulers of Go's package optim/lrscheduler give PyTorch's learning rates, to the last bit.

Configurations are drawn at random, 100 steps each; in the middle the states of scheduler and
optimiser go from Python to Go and from Go to Python, or the scheduler resumes by its last_epoch.
"""

from __future__ import annotations

import gc
import math
import os
from typing import Any

import pytest

from pytorch_bridge.codegen.generate import reference_is_installed

if not reference_is_installed():
    pytest.skip(
        "the signatures are of the torch that Go was generated for", allow_module_level=True
    )

from pytorch_bridge.testing.conformance import report
from pytorch_bridge.testing.conformance import schedulers as under_test
from pytorch_bridge.testing.conformance.harness import Harness
from pytorch_bridge.testing.conformance.schedulers import NAMES, Schedulers

pytestmark = [pytest.mark.long]

FULL = os.environ.get("CONFORMANCE") == "full"
TRIED = 100 if FULL else 8


@pytest.fixture(scope="module")
def schedulers(harness: Harness) -> Schedulers:
    return Schedulers(harness)


@pytest.mark.parametrize("name", NAMES)
def test_scheduler(schedulers: Schedulers, name: str) -> None:
    problems = schedulers.run(name, TRIED)
    assert not problems, f"{len(problems)} differ:\n" + "\n".join(problems[:20])
    tally = schedulers.tallies[name]
    assert tally.passed >= TRIED // 3


if FULL:

    def test_the_table(schedulers: Schedulers) -> None:
        if len(schedulers.tallies) < len(NAMES):
            pytest.skip("only part of the tests was selected")
        report.SCHEDULERS.write(schedulers)


def test_the_table_is_complete() -> None:
    """docs/conformance.md has a line for each scheduler of PyTorch, and nothing differs."""
    rows = report.SCHEDULERS.rows()
    assert rows.keys() == report.scheduler_names(), "run: make conformance"
    assert {name for name, row in rows.items() if row[-1] != "0"} == set()


def test_a_fault_is_found(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the last bit of what Python tells changed, the comparison says what differs."""
    honest = under_test.rates

    def faulty(opt: Any, scheduler: Any) -> list[float]:
        first, *rest = honest(opt, scheduler)
        return [math.nextafter(first, 9), *rest]

    monkeypatch.setattr(under_test, "rates", faulty)
    problems = Schedulers(harness).run("ExponentialLR", 3)
    assert len(problems) == 3
    assert all("at first" in p for p in problems), problems


def test_no_handle_is_left(harness: Harness) -> None:
    left = []
    for _ in range(3):
        Schedulers(harness).run("SequentialLR", 4)
        gc.collect()  # errors of Python refer to the frames that refer to them
        left.append(harness.collect())
    assert left[0] == left[1] == left[2], left
