"""gotorchtest.GradCheck and GradGradCheck say of a function what torch.autograd.gradcheck and gradgradcheck say.

Of operators of PyTorch's database, real and complex, and of functions whose gradients are written by hand, right
and wrong ones, in Python and in Go. `make test` tries one sample of a fixed part of the operators.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from pytorch_bridge.codegen.generate import reference_is_installed

if not reference_is_installed():
    pytest.skip("the samples are of the torch that Go was generated for", allow_module_level=True)

from pytorch_bridge.testing.conformance import report
from pytorch_bridge.testing.conformance.gradchecks import (
    CHECKS,
    FAILS,
    PASSES,
    REFUSED,
    Check,
    GradChecks,
)
from pytorch_bridge.testing.conformance.harness import Harness
from pytorch_bridge.testing.conformance.samples import database
from pytorch_bridge.testing.conformance.suite import _hash

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("one_thread")]

FULL = os.environ.get("CONFORMANCE") == "full"
NAMES = [n for n in database() if not n.startswith("_foreach")]
TRIED = NAMES if FULL else [n for n in NAMES if _hash(n) % 24 == 1]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture(scope="module")
def checks(harness: Harness) -> GradChecks:
    return GradChecks(harness)


@pytest.mark.parametrize("name", TRIED)
def test_operator(checks: GradChecks, name: str) -> None:
    problems = []
    for dtype in (torch.float64, torch.complex128):
        problems += checks.run(name, dtype, lambda i: i < 2 if FULL else i == 0)
    assert not problems, "\n".join(problems[:20])


def test_enough_was_compared(checks: GradChecks) -> None:
    least = 200 if FULL else 8
    assert len(checks.operators) >= least
    assert all(t.agreed[PASSES] >= least for t in checks.tallies.values())
    if FULL:
        assert all(t.agreed[FAILS] + t.agreed[REFUSED] for t in checks.tallies.values()), (
            "no operator whose gradient is refused"
        )


# Functions of Python with gradients of their own, as the harness has them in Go: forward, backward of the inputs
# and the gradients of the results, and whether gradients that are none come as such.
Backward = Callable[[tuple[Tensor, ...], list[Any]], tuple[Any, ...]]
passes = [0]


def _square(xs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (xs[0] * xs[0],)


def _both(xs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return xs[0] * xs[1], xs[0] + xs[1]


def _of_two(xs: tuple[Tensor, ...], g: list[Any]) -> tuple[Any, ...]:
    return g[0] * xs[1] + g[1], g[0] * xs[0] + g[1]


def _another(xs: tuple[Tensor, ...], g: list[Any]) -> tuple[Any, ...]:
    passes[0] += 1
    return (g[0] * xs[0] * (2 + 1e-9 * (passes[0] % 2)),)


def _by_numbers(xs: tuple[Tensor, ...], g: list[Any]) -> tuple[Any, ...]:
    factor = 3.0 if float(g[0].abs().sum()) < 0 else 2.0
    return (g[0] * xs[0].conj() * factor,)


BY_HAND: dict[str, tuple[Callable[..., Any], Backward, bool]] = {
    "right": (_square, lambda xs, g: (g[0] * xs[0] * 2,), False),
    "too large": (_square, lambda xs, g: (g[0] * xs[0] * 2.01,), False),
    "none": (_square, lambda xs, g: (None,), False),
    "not multiplied": (_square, lambda xs, g: (xs[0] * 2,), False),
    "another each time": (_square, _another, False),
    "second gradient wrong": (_square, lambda xs, g: (g[0] * xs[0].detach() * 2,), False),
    "conjugate": (_square, lambda xs, g: (g[0] * xs[0].conj() * 2,), False),
    "needs its gradients": (_both, _of_two, True),
    "of two": (_both, _of_two, False),
    "of two swapped": (
        _both,
        lambda xs, g: (g[0] * xs[0] + g[1], g[0] * xs[1] + g[1]),
        False,
    ),
    "second result forgotten": (_both, lambda xs, g: (g[0] * xs[1], g[0] * xs[0]), False),
    "ones where none": (
        _both,
        lambda xs, g: _of_two(xs, [torch.ones_like(xs[0]) if x is None else x for x in g]),
        True,
    ),
    "by numbers": (_square, _by_numbers, False),
}
# What is to come out without options, for real numbers and for complex ones, and of the second gradient.
EXPECTED = {
    "right": (PASSES, FAILS, PASSES),
    "too large": (FAILS, FAILS, PASSES),
    "none": (FAILS, FAILS, PASSES),
    "not multiplied": (FAILS, FAILS, PASSES),
    "another each time": (FAILS, FAILS, FAILS),
    "second gradient wrong": (PASSES, FAILS, FAILS),
    "conjugate": (PASSES, PASSES, PASSES),
    "needs its gradients": (REFUSED, REFUSED, PASSES),
    "of two": (PASSES, FAILS, PASSES),
    "of two swapped": (FAILS, FAILS, PASSES),
    "second result forgotten": (FAILS, FAILS, PASSES),
    "ones where none": (FAILS, FAILS, PASSES),
    "by numbers": (PASSES, PASSES, PASSES),
}


def function(name: str) -> Callable[..., Any]:
    forward, backward, sparing = BY_HAND[name]

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *xs: Tensor) -> Any:
            ctx.save_for_backward(*xs)
            ctx.set_materialize_grads(not sparing)
            return forward(xs)

        @staticmethod
        def backward(ctx: Any, *g: Any) -> Any:
            return backward(ctx.saved_tensors, list(g))

    return lambda *xs: Function.apply(*xs)  # type: ignore[no-untyped-call]


def inputs(name: str, dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(7)
    n = 2 if BY_HAND[name][0] is _both else 1
    return [torch.randn(3, generator=generator, dtype=dtype) for _ in range(n)]


@pytest.mark.parametrize("check", CHECKS, ids=str)
@pytest.mark.parametrize("name", BY_HAND)
def test_functions_with_gradients_by_hand(checks: GradChecks, name: str, check: Check) -> None:
    for dtype in (torch.float64, torch.complex128):
        problem = checks.compare(check, function(name), inputs(name, dtype), name)
        assert not problem, f"{dtype}: {problem}"


@pytest.mark.parametrize("name", EXPECTED)
def test_what_is_wrong_is_found(checks: GradChecks, name: str) -> None:
    def said(second: bool, dtype: torch.dtype) -> str:
        return checks.go(Check(second), [x.requires_grad_() for x in inputs(name, dtype)], name)[0]

    real, complex_, second = EXPECTED[name]
    assert said(False, torch.float64) == real
    assert said(False, torch.complex128) == complex_
    assert said(True, torch.float64) == second


def test_a_fault_is_found(checks: GradChecks) -> None:
    """The comparison says it when Python and Go get different functions."""
    problem = checks.compare(CHECKS[0], function("right"), inputs("right", torch.float64), "none")
    assert problem.startswith("fails"), problem
    assert problem.endswith("it passes ()"), problem


def test_no_handle_is_left(checks: GradChecks, harness: Harness) -> None:
    left = []
    for _ in range(4):
        for check in CHECKS:
            for name in ("right", "too large", "of two swapped", "by numbers"):
                checks.go(check, [x.requires_grad_() for x in inputs(name, torch.float64)], name)
        left.append(harness.collect())
    assert left[1] == left[2] == left[3], left


if FULL:

    def test_the_table(checks: GradChecks) -> None:
        if len(checks.operators) < 200:
            pytest.skip("only part of the tests was selected")
        report.GRADCHECKS.write(checks)


def test_the_table_is_complete() -> None:
    """docs/conformance.md has a line for each check, and nothing differs."""
    rows = report.GRADCHECKS.rows()
    assert {f"autograd.{c}" for c in CHECKS} == rows.keys(), "run: make conformance"
    assert {name for name, row in rows.items() if row[-1] != "0"} == set()
