"""Averages of weights by Go's package optim/swautils are PyTorch's, to the last bit."""

from __future__ import annotations

import pytest
import torch

from pytorch_bridge.codegen.generate import reference_is_installed

if not reference_is_installed():
    pytest.skip("the modules are of the torch that Go was generated for", allow_module_level=True)

from pytorch_bridge.testing.conformance import averages
from pytorch_bridge.testing.conformance.harness import Harness

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("one_thread")]

DTYPES = (torch.float32, torch.float64, torch.bfloat16)


@pytest.mark.parametrize("buffers", [False, True])
@pytest.mark.parametrize("function", sorted(averages.FUNCTIONS))
def test_averages(harness: Harness, function: str, buffers: bool) -> None:
    for dtype in DTYPES:
        for decay in (0.0, 0.9, 0.999, 1.0):
            problem = averages.run(harness, function, decay, buffers, dtype)
            assert not problem, f"{dtype} {decay}: {problem}"


def test_a_fault_is_found(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """With another decay in Python, the comparison says what differs."""
    other = averages.FUNCTIONS["ema"]
    monkeypatch.setitem(averages.FUNCTIONS, "ema", lambda decay: other(decay + 1e-6))
    problem = averages.run(harness, "ema", 0.9, False, torch.float64)
    assert "update 2" in problem


def test_no_handle_is_left(harness: Harness) -> None:
    left = []
    for _ in range(3):
        averages.run(harness, "ema_multi", 0.9, True, torch.float32)
        left.append(harness.collect())
    assert left[0] == left[1] == left[2], left
