"""The networks of Go's package vision/models/detection are torchvision's.

Where torchvision is installed, to the last bit; it is optional, so elsewhere state dicts, losses and what is found are
held to what a script has written down from it. `CONFORMANCE=full` tries all networks.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pytorch_bridge.codegen.generate import reference_is_installed

if not reference_is_installed():
    pytest.skip("Go was generated for another torch", allow_module_level=True)

from pytorch_bridge.testing.conformance import detection as under_test
from pytorch_bridge.testing.conformance.detection import CASES, EXPECTED, Case
from pytorch_bridge.testing.conformance.harness import Harness
from pytorch_bridge.testing.conformance.modules import Call, GoModule

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("one_thread")]

FULL = os.environ.get("CONFORMANCE") == "full"
TRIED = [c for c in CASES if c.light or FULL]
OPTIONAL = "torchvision is optional; the tests with expected values run without it"


@pytest.mark.parametrize("case", TRIED, ids=str)
def test_a_network_is_torchvisions_to_the_last_bit(
    case: Case, harness: Harness, tmp_path: Path
) -> None:
    pytest.importorskip("torchvision", reason=OPTIONAL)
    assert under_test.unlike(case, harness, tmp_path) == ""


@pytest.mark.parametrize("case", [c for c in TRIED if FULL or not c.trained], ids=str)
def test_a_network_is_as_torchvision_was_written_down(
    case: Case, harness: Harness, tmp_path: Path
) -> None:
    wanted = json.loads(EXPECTED.read_text())[str(case)]
    got = under_test.of_go(case, harness, tmp_path / "state.pt")
    # The order of sums belongs to a processor. Scores of the first two boxes differ by more than its last bits.
    assert got["losses"] == pytest.approx(wanted["losses"], rel=1e-3)
    for g, w in zip(got["first"], wanted["first"], strict=True):
        assert g == pytest.approx(w, rel=1e-3, abs=1e-3)
    assert {k: got[k] for k in ("digest", "boxes")} == {k: wanted[k] for k in ("digest", "boxes")}


def test_every_case_is_written_down() -> None:
    assert list(json.loads(EXPECTED.read_text())) == [str(c) for c in CASES]


def test_a_difference_is_found(harness: Harness, tmp_path: Path) -> None:
    """What is compared fails for a network that differs in one option that has no parameters."""
    pytest.importorskip("torchvision", reason=OPTIONAL)

    class Other(Case):
        def go(self, harness: Harness) -> GoModule:
            options = {**self.options, "rpn_nms_thresh": 0.4, "num_classes": 7}
            named = {under_test.go_name(k): v for k, v in options.items()}
            return GoModule(harness, self.name, Call([], named))

    found = under_test.unlike(Other(CASES[0].name, CASES[0].options), harness, tmp_path)
    assert found.startswith("losses (empty: False): loss_classifier")


def test_no_handle_is_left(harness: Harness) -> None:
    case = CASES[0]

    def run() -> None:
        go = case.go(harness)
        sum(under_test.losses_of_go(go, case.images(), case.targets())).backward()
        go.train(False)
        go.method("Found", case.images())
        del go

    run()
    before = harness.collect()
    run()
    assert harness.collect() <= before
