"""Package metrics measures what torchmetrics measures.

Cases are drawn at random: options, batches of random sizes, absent classes, ignored and wrong labels, wrong shapes.
Values are compared after each batch, with one update of everything, and after the state went through a file.
"""

from __future__ import annotations

import gc
import os

import pytest

pytest.importorskip(
    "torchmetrics", reason="torchmetrics is what metrics are compared with: make setup"
)

from pytorch_bridge.testing.conformance import metrics as under_test
from pytorch_bridge.testing.conformance.harness import Harness
from pytorch_bridge.testing.conformance.metrics import NAMES, Metrics

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("one_thread")]

FULL = os.environ.get("CONFORMANCE") == "full"
TRIED = 400 if FULL else 8


@pytest.fixture(scope="module")
def metrics(harness: Harness) -> Metrics:
    return Metrics(harness)


@pytest.mark.parametrize("name", NAMES)
def test_metric(metrics: Metrics, name: str) -> None:
    problems = metrics.run(name, TRIED)
    assert not problems, f"{len(problems)} of {TRIED} differ:\n" + "\n".join(problems[:20])
    assert metrics.tallies[name].passed >= TRIED // 3


def test_a_fault_is_found(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """With precision for recall behind its back, the comparison says what differs."""
    make = under_test.GoMetric.__init__

    def faulty(self: under_test.GoMetric, harness: Harness, case: under_test.Case) -> None:
        name = case.name.replace("Recall", "Precision")
        make(self, harness, under_test.Case(name, case.arguments, case.options))

    monkeypatch.setattr(under_test.GoMetric, "__init__", faulty)
    assert len(Metrics(harness).run("MulticlassRecall", 10)) >= 3


def test_no_handle_is_left(harness: Harness) -> None:
    left = []
    for _ in range(3):
        runner = Metrics(harness)
        for name in NAMES:
            runner.run(name, 2)
        del runner
        gc.collect()
        left.append(harness.collect())
    assert left[1] == left[2], left
