"""Package metrics measures what torchmetrics measures.

Cases are drawn at random: options, batches of random sizes, absent classes, ignored and wrong labels, wrong shapes.
Values are compared after each batch, with one update of everything, and after the state went through a file.
"""

from __future__ import annotations

import gc
import os
import re

import pytest

pytest.importorskip(
    "torchmetrics", reason="torchmetrics is what metrics are compared with: make setup"
)

from pytorch_bridge.native.toolchain import ROOT
from pytorch_bridge.testing.conformance import metrics as under_test
from pytorch_bridge.testing.conformance import report
from pytorch_bridge.testing.conformance.harness import Harness
from pytorch_bridge.testing.conformance.metrics import NAMES, Metrics

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("one_thread")]

FULL = os.environ.get("CONFORMANCE") == "full"
TRIED = 100 if FULL else 8


@pytest.fixture(scope="module")
def metrics(harness: Harness) -> Metrics:
    return Metrics(harness)


@pytest.mark.parametrize("name", NAMES)
def test_metric(metrics: Metrics, name: str) -> None:
    problems = metrics.run(name, TRIED)
    assert not problems, f"{len(problems)} of {TRIED} differ:\n" + "\n".join(problems[:20])
    assert metrics.tallies[name].passed >= TRIED // 3


if FULL:

    def test_the_table(metrics: Metrics) -> None:
        if len(metrics.tallies) < len(NAMES):
            pytest.skip("only part of the tests was selected")
        report.METRICS.write(metrics)


def test_the_table_is_complete() -> None:
    """docs/conformance.md has a line for each metric, and nothing differs."""
    rows = report.METRICS.rows()
    assert rows.keys() == {f"metrics.{n}" for n in NAMES}, "run: make conformance"
    assert {name for name, row in rows.items() if row[-1] != "0"} == set()


def test_every_metric_of_go_is_tried() -> None:
    """A constructor that is in package metrics is in the tests."""
    api = (ROOT / "gotorch/testdata/api.txt").read_text()
    made = r"^gotorch/metrics: func (\w+)\(.*\) \*(?:Tensor|Curve|Text|Detection)Metric$"
    made += r"|^gotorch/metrics: func (\w+)\(.*\) \*(?:BLEU|Aggregator)$"
    found = {a or b for a, b in re.findall(made, api, re.M)}
    assert found == set(NAMES), found ^ set(NAMES)


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
        for name in NAMES[::4]:
            runner.run(name, 1)
        del runner
        gc.collect()
        left.append(harness.collect())
    assert left[1] == left[2], left
