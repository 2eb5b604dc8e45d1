"""The transforms of Go's package functorch give what torch.func gives, to the last bit.

Gradients, products, Jacobians and batches of every operator of PyTorch's database that Go has and that
floating point tensors go into. `make test` tries one sample of a fixed part of them.
"""

from __future__ import annotations

import os

import pytest
import torch

from pytorch_bridge.codegen.generate import reference_is_installed

if not reference_is_installed():
    pytest.skip("the samples are of the torch that Go was generated for", allow_module_level=True)

from pytorch_bridge.testing.conformance import report
from pytorch_bridge.testing.conformance import transforms as under_test
from pytorch_bridge.testing.conformance.harness import Harness
from pytorch_bridge.testing.conformance.samples import database
from pytorch_bridge.testing.conformance.suite import _hash
from pytorch_bridge.testing.conformance.transforms import TRANSFORMS, Transforms

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("one_thread")]

FULL = os.environ.get("CONFORMANCE") == "full"

# Those of _foreach functions do to many tensors what others do to one.
NAMES = [n for n in database() if not n.startswith("_foreach")]
TRIED = NAMES if FULL else [n for n in NAMES if _hash(n) % 8 == 0]


@pytest.fixture(scope="module")
def transforms(harness: Harness) -> Transforms:
    return Transforms(harness)


@pytest.mark.parametrize("name", TRIED)
def test_operator(transforms: Transforms, name: str) -> None:
    wanted = (lambda i: i < 4) if FULL else (lambda i: i == 0)
    problems = transforms.run(name, torch.float64, wanted)
    assert not problems, "\n".join(problems[:20])


def test_enough_was_compared(transforms: Transforms) -> None:
    if len(transforms.tallies) < len(TRIED):
        pytest.skip("only part of the tests was selected")
    assert set(transforms.by_transform) == set(TRANSFORMS)
    least = 200 if FULL else 20
    assert sum(t.passed > 0 for t in transforms.tallies.values()) >= least
    assert all(t.passed >= least for t in transforms.by_transform.values())


def test_a_fault_is_found(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one element of a cotangent changed behind its back, the comparison says what differs."""
    monkeypatch.setitem(
        under_test.TRANSFORMS,
        "vjp",
        lambda f, xs, more: under_test._vjp(f, xs, [m + 1 for m in more]),
    )
    problems = Transforms(harness).run("sin", torch.float64, lambda i: i == 0)
    assert problems, "nothing was found"
    assert all(p.startswith("vjp of sin(") and "differ" in p for p in problems), problems


def test_no_handle_is_left(harness: Harness) -> None:
    left = []
    for _ in range(3):
        Transforms(harness).run("nn.functional.linear", torch.float64)
        left.append(harness.collect())
    assert left[1] == left[2] == left[0], left


if FULL:

    def test_the_table(transforms: Transforms) -> None:
        if len(transforms.tallies) < len(TRIED):
            pytest.skip("only part of the tests was selected")
        report.TRANSFORMS.write(transforms)


def test_the_table_is_complete() -> None:
    """docs/conformance.md has a line for each transform and each operator, and nothing differs."""
    rows = report.TRANSFORMS.rows()
    assert {f"func.{name}" for name in TRANSFORMS} == rows.keys(), "run: make conformance"
    assert {name for name, row in rows.items() if row[-1] != "0"} == set()
