"""The packages distributions, transforms and constraints compute what torch.distributions does, to the last bit.

Random parameters, values and inputs, of which some are hostile; every method of every distribution, transform
and constraint, all registered divergences, with gradients, random states and errors.
"""

from __future__ import annotations

import math
import os
import random

import pytest
import torch
from torch.distributions import constraints

from pytorch_bridge.codegen.generate import reference_is_installed

if not reference_is_installed():
    pytest.skip("the samples are of the torch that Go was generated for", allow_module_level=True)

from pytorch_bridge.testing.conformance import distributions as under_test
from pytorch_bridge.testing.conformance import report
from pytorch_bridge.testing.conformance.distributions import (
    NOT_IN_GO,
    Distributions,
    Spec,
    constraint_names,
    corner_divergences,
    distributions,
    names,
    run_constraint,
    run_corners,
    run_distribution,
    run_divergences,
    run_spoiled,
    run_transform,
    transform_names,
)
from pytorch_bridge.testing.conformance.harness import Harness

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("one_thread")]

FULL = os.environ.get("CONFORMANCE") == "full"
ROUNDS = 8 if FULL else 1


@pytest.fixture(scope="module")
def runner(harness: Harness) -> Distributions:
    return Distributions(harness)


@pytest.mark.parametrize("name", distributions())
def test_distribution(runner: Distributions, name: str) -> None:
    problems = run_distribution(runner, name, ROUNDS)
    assert not problems, "\n".join(problems[:20])
    assert runner.tallies[name].passed or runner.tallies[name].errors


def test_corners(runner: Distributions) -> None:
    """Options left out, and parameters where formulas change."""
    problems = [p for name in distributions() for p in run_corners(runner, name)]
    assert not problems, "\n".join(problems[:20])


@pytest.mark.parametrize("name", transform_names())
def test_transform(runner: Distributions, name: str) -> None:
    problems = run_transform(runner, name, ROUNDS)
    assert not problems, "\n".join(problems[:20])


@pytest.mark.parametrize("name", constraint_names())
def test_constraint(runner: Distributions, name: str) -> None:
    problems = run_constraint(runner, name, ROUNDS)
    assert not problems, "\n".join(problems[:20])


def test_divergences(runner: Distributions) -> None:
    problems = run_divergences(runner, max(1, ROUNDS // 3), all_pairs=FULL)
    assert not problems, "\n".join(problems[:20])
    assert runner.tallies["kl_divergence"].passed > 50


def test_an_affine_transform_of_any_scale(runner: Distributions) -> None:
    """The logarithm of a scale that is a number is the C library's, to the last bit of a float64."""
    draw = random.Random(1)
    x = torch.zeros(1, dtype=torch.float64)
    for _ in range(200):
        scale = math.exp(draw.gauss(0, 3)) * draw.choice([1, -1])
        runner.transform(Spec("AffineTransform", (draw.gauss(0, 1), scale)), [x])
    problems = runner.tallies["AffineTransform"].problems
    assert not problems, "\n".join(problems[:20])


def test_arguments_that_do_not_fit(runner: Distributions) -> None:
    """Other dtypes and shapes, no elements, numbers outside of all bounds: the same, or refused."""
    spoiled = Distributions(runner.harness)
    problems = run_spoiled(spoiled, 500 if FULL else 25)
    assert not problems, "\n".join(problems[:20])
    assert sum(t.errors for t in spoiled.tallies.values()) > 100


def test_divergences_in_corners(runner: Distributions) -> None:
    before = len(runner.tally("kl_divergence").problems)
    for p, q in corner_divergences():
        runner.divergence(p, q)
    problems = runner.tally("kl_divergence").problems[before:]
    assert not problems, "\n".join(problems[:20])


def test_every_name_is_there() -> None:
    """A name that is new in torch.distributions is in the tests, or has a reason."""
    here = {*distributions(), *transform_names(), *constraint_names(), *NOT_IN_GO}
    here |= {"kl_divergence", "biject_to", "transform_to", "is_dependent"}
    assert set(names()) <= here, sorted(set(names()) - here)
    assert set(constraints.__all__) <= set(names()), "constants are missing in python_gen.txt"


if FULL:

    def test_the_table(runner: Distributions) -> None:
        wanted = {*distributions(), *transform_names(), *constraint_names(), "kl_divergence"}
        if not wanted <= runner.tallies.keys():
            pytest.skip("only part of the tests was selected")
        report.DISTRIBUTIONS.write(runner)


def test_the_table_is_complete() -> None:
    """docs/conformance.md has a line for each name, and nothing differs."""
    rows = report.DISTRIBUTIONS.rows()
    wanted = {*distributions(), *transform_names(), *constraint_names()}
    wanted |= {"kl_divergence", "biject_to", "transform_to"}
    assert {f"torch.distributions.{n}" for n in wanted} == rows.keys(), "run: make conformance"
    assert {name for name, row in rows.items() if row[-1] != "0"} == set()


def test_a_fault_is_found(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a Laplace for a Normal behind its back, the comparison says what differs."""
    runner = Distributions(harness)
    make = under_test.Go.invoke
    monkeypatch.setattr(
        under_test.Go,
        "invoke",
        lambda go, name, *rest: make(go, "Laplace" if name == "Normal" else name, *rest),
    )
    runner.distribution(Spec("Normal", (0.0, torch.tensor([1.0, 2.0], requires_grad=True))))
    problems = "\n".join(runner.tallies["Normal"].problems)
    for what in ("log_prob", "entropy", "sample(())", "variance"):
        assert f".{what}" in problems, problems


def test_no_handle_is_left(harness: Harness) -> None:
    left = []
    for _ in range(3):
        runner = Distributions(harness)
        for name in ("Gumbel", "Wishart", "Dirichlet", "MixtureSameFamily"):
            run_distribution(runner, name, 1)
        run_transform(runner, "ComposeTransform", 1)
        harness.seed(1)
        under_test.Go(harness).invoke(
            "is_dependent", [under_test.Go(harness).make(Spec("real"))], {}
        )
        left.append(harness.collect())
    assert left[1] == left[2], left
