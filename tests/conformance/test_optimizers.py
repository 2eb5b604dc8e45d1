"""The optimisers of Go's package optim change parameters as PyTorch's do, to the last bit.

All configurations of PyTorch's optimiser database, 30 steps each; in the middle the state goes from
Python to Go and from Go to Python.
"""

from __future__ import annotations

import gc
import os

import pytest
import torch

from pytorch_bridge.codegen.generate import reference_is_installed

if not reference_is_installed():
    pytest.skip("the samples are of the torch that Go was generated for", allow_module_level=True)

from pytorch_bridge.testing.conformance import optimizers as under_test
from pytorch_bridge.testing.conformance import report
from pytorch_bridge.testing.conformance.harness import Harness
from pytorch_bridge.testing.conformance.optimizer_runs import NAMES, Runs
from pytorch_bridge.testing.conformance.optimizers import Optimizers, database

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("one_thread")]

FULL = os.environ.get("CONFORMANCE") == "full"
TRIED = (torch.float32, torch.float64, torch.bfloat16) if FULL else (torch.float32, torch.float64)


@pytest.fixture(scope="module")
def optimizers(harness: Harness) -> Optimizers:
    return Optimizers(harness, searches=60 if FULL else 6)


@pytest.mark.parametrize("name", sorted(database()))
def test_optimizer(optimizers: Optimizers, name: str) -> None:
    problems = optimizers.run(name, TRIED)
    assert not problems, "\n".join(problems[:20])
    tally = optimizers.tallies[name]
    assert tally.passed >= 3 * len(TRIED)
    assert tally.errors


@pytest.mark.parametrize("name", NAMES)
def test_options_at_random(harness: Harness, name: str) -> None:
    """All options, dtypes and layouts, with states that go from each to the other at any step."""
    runs = Runs(harness)
    count = 150 if FULL else 8
    problems = runs.run(name, count)
    assert not problems, "\n".join(p[:1000] for p in problems[:10])
    assert runs.passed > count / 2


def test_every_optimizer_has_runs_at_random() -> None:
    assert {*NAMES} == database().keys() - {"LBFGS"}  # which has them with closures


if FULL:

    def test_the_table(optimizers: Optimizers) -> None:
        if len(optimizers.tallies) < len(database()):
            pytest.skip("only part of the tests was selected")
        report.OPTIMIZERS.write(optimizers)


def test_the_table_is_complete() -> None:
    """docs/conformance.md has a line for each optimiser, and nothing differs."""
    rows = report.OPTIMIZERS.rows()
    wanted = {f"optim.{name}" for name in database()}
    assert wanted == rows.keys(), "run: make conformance"
    assert {name for name, row in rows.items() if row[-1] != "0"} == set()


def test_a_fault_is_found(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one option changed behind its back, the comparison says what differs."""
    monkeypatch.setattr(under_test, "options", lambda name, given: {"Eps": 1e-4})
    problems = Optimizers(harness).run("RMSprop", (torch.float32,))
    assert any("a parameter after step 1" in p for p in problems), problems


@pytest.mark.parametrize("name", ["LBFGS", "NAdam"])
def test_no_handle_is_left(harness: Harness, name: str) -> None:
    left = []
    for _ in range(3):
        Optimizers(harness).run(name, (torch.float32,))
        gc.collect()  # errors of Python refer to the frames that refer to them
        left.append(harness.collect())
    assert left[1] == left[2] == left[0], left
