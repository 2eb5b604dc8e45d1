"""The schedulers of Go's package optim/lrscheduler give PyTorch's learning rates, to the last bit.

Configurations are drawn at random, 100 steps each; in the middle the states of scheduler and
optimiser go from Python to Go and from Go to Python, or the scheduler resumes by its last_epoch.
"""

from __future__ import annotations

import os

import pytest

from pytorch_bridge.generate import reference_is_installed

if not reference_is_installed():
    pytest.skip("the signatures are of the torch that Go was generated for", allow_module_level=True)

from pytorch_bridge.testing.conformance import schedulers as under_test
from pytorch_bridge.testing.conformance.harness import Harness
from pytorch_bridge.testing.conformance.schedulers import NAMES, Schedulers

pytestmark = [pytest.mark.long]

FULL = os.environ.get("CONFORMANCE") == "full"
TRIED = int(os.environ.get("N", 200))


@pytest.fixture(scope="module")
def schedulers(harness: Harness) -> Schedulers:
    return Schedulers(harness)


@pytest.mark.parametrize("name", NAMES)
def test_scheduler(schedulers: Schedulers, name: str) -> None:
    problems = schedulers.run(name, TRIED)
    assert not problems, f"{len(problems)} differ:\n" + "\n".join(problems[:20])
    tally = schedulers.tallies[name]
    assert tally.passed >= TRIED // 3
