"""Modules with random arguments and random tensors do what PyTorch's do.

`make test` runs a few hundred, CONFORMANCE=full ten thousand.
"""

from __future__ import annotations

import os

import pytest

from pytorch_bridge.codegen.generate import reference_is_installed

if not reference_is_installed():
    pytest.skip("the samples are of the torch that Go was generated for", allow_module_level=True)

from pytorch_bridge.testing.conformance import modules as under_test
from pytorch_bridge.testing.conformance import varied
from pytorch_bridge.testing.conformance.harness import Harness
from pytorch_bridge.testing.conformance.modules import Call

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("one_thread")]

CASES = 10_000 if os.environ.get("CONFORMANCE") == "full" else 300


def test_variations(harness: Harness) -> None:
    result = varied.run(harness, 20, CASES)
    assert not result.problems, "\n".join([f"{len(result.problems)} differ", *result.problems[:20]])
    assert result.same > CASES / 5
    assert result.refused > CASES / 10


def test_a_fault_is_found(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the numbers of a constructor left out, the comparison says what differs."""
    right = under_test.constructor

    def wrong(cls: type, args: tuple, kwargs: dict) -> Call:
        made = right(cls, args, kwargs)
        return Call(made.parameters, {k: v for k, v in made.options.items() if k != "Eps"})

    monkeypatch.setattr(under_test, "constructor", wrong)
    assert any("eps" in p for p in varied.run(harness, 1, 300).problems)
