"""The functions and modules of Go's package vision/ops are torchvision's.

Where torchvision is installed, to the last bit on arguments drawn at random; it is optional, so elsewhere they are
compared, by a bound, with what a script has written down from it on another machine. `CONFORMANCE=full` draws many more.
"""

from __future__ import annotations

import json
import os

import pytest

from pytorch_bridge.codegen.generate import reference_is_installed

if not reference_is_installed():
    pytest.skip("Go was generated for another torch", allow_module_level=True)

from pytorch_bridge.testing.conformance import vision_ops as under_test
from pytorch_bridge.testing.conformance.harness import Harness

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("one_thread")]

FULL = os.environ.get("CONFORMANCE") == "full"
OPTIONAL = "torchvision is optional; the tests with expected values run without it"


def test_functions_are_torchvisions_to_the_last_bit(harness: Harness) -> None:
    pytest.importorskip("torchvision", reason=OPTIONAL)
    problems = [
        p for c in under_test.calls(300 if FULL else 12) if (p := under_test.unlike(c, harness))
    ]
    assert problems == []


def test_functions_are_as_torchvision_was_written_down(harness: Harness) -> None:
    wanted = json.loads(under_test.EXPECTED.read_text())
    calls = under_test.calls(2)
    assert [str(c) for c in calls] == [w[0] for w in wanted]
    for call, (_, *expected) in zip(calls, wanted, strict=True):
        got = under_test.measured(
            under_test.with_gradients(call, lambda t, c=call: under_test.run_go(harness, c, t))
        )
        for g, w in zip(got, expected, strict=True):
            assert g[:2] == w[:2], str(call)
            # Another processor may add up in another order, and round half precision to the next number.
            tolerance = max(call.close, 1e-5, 2e-3 if g[1] == "torch.float16" else 0)
            assert g[2] == pytest.approx(w[2], rel=tolerance, abs=tolerance), str(call)
            assert g[3] == pytest.approx(w[3], rel=tolerance, abs=tolerance), str(call)
