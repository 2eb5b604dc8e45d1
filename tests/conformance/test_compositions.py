"""Transforms within transforms, in any order, give what torch.func gives, to the last bit.

Programs are written at random; their numbers are their seeds. `make test` tries the first few.
"""

from __future__ import annotations

import os

import pytest
import torch

from pytorch_bridge.codegen.generate import reference_is_installed

if not reference_is_installed():
    pytest.skip(
        "torch.func is that of the torch that Go was generated for", allow_module_level=True
    )

from pytorch_bridge.testing.conformance import compositions as under_test
from pytorch_bridge.testing.conformance.compositions import TRANSFORMS, Compositions
from pytorch_bridge.testing.conformance.harness import Harness

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("one_thread")]

FULL = os.environ.get("CONFORMANCE") == "full"
PROGRAMS = 600 if FULL else 40


def test_programs(harness: Harness) -> None:
    tried = Compositions(harness)
    problems = [p for p in map(tried.run, range(PROGRAMS)) if p]
    assert not problems, "\n".join(problems[:20])
    # Most have a result, and each transform stands within others and has others within.
    assert tried.ends["result"] > PROGRAMS * 0.8, tried.ends
    assert tried.ends["gradient"] > PROGRAMS * 0.15, tried.ends
    assert {outer for outer, _ in tried.nested} == set(TRANSFORMS)
    assert {inner for _, inner in tried.nested} == set(TRANSFORMS)
    if FULL:
        assert len(tried.nested) == len(TRANSFORMS) ** 2


def test_a_fault_is_found(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Python multiplies with something else, programs with products differ, and no others."""
    monkeypatch.setitem(under_test.JOINING, "mul", lambda x, y: x * (y * 1.001))
    tried = Compositions(harness)
    problems = [p for p in map(tried.run, range(20)) if p]
    assert problems, "nothing was found"
    assert all("mul " in p and "differ" in p for p in problems), problems


def test_a_taken_level_would_be_found(harness: Harness) -> None:
    """The classic of perturbation confusion: the inner derivative does not see the outer variable."""
    x = torch.tensor([2.0], dtype=torch.float64)
    text = "grad v 0 mul v 1 grad v 1 mul v 1 v 2"
    got = Compositions(harness)._go(text, [x], [])
    assert got.tolist() == [4.0]  # of x * x, where confusion gives more or less
