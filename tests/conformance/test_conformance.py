"""The Go wrappers give what PyTorch gives in Python.

`make test` runs a fixed slice; `make conformance` runs all samples in all dtypes, and then writes
docs/conformance.md. `make conformance ARGS='-k addmm'` runs one operator's samples.
"""

from __future__ import annotations

import os
import re

import pytest
import torch

from pytorch_bridge.codegen.generate import reference_is_installed

if not reference_is_installed():
    pytest.skip("the samples are of the torch that Go was generated for", allow_module_level=True)

from pytorch_bridge.testing.conformance import by_hand, report
from pytorch_bridge.testing.conformance.check import SEED
from pytorch_bridge.testing.conformance.harness import Harness
from pytorch_bridge.testing.conformance.operators import operators
from pytorch_bridge.testing.conformance.samples import database
from pytorch_bridge.testing.conformance.suite import Suite

pytestmark = pytest.mark.long

FULL = os.environ.get("CONFORMANCE") == "full"


def told(problems: list[str]) -> str:
    return "\n".join([f"{len(problems)} calls differ", *problems[:20]])


@pytest.fixture(scope="module")
def suite(harness: Harness, one_thread: None) -> Suite:
    return Suite(harness, full=FULL)


@pytest.fixture(scope="module")
def base(suite: Suite) -> int:
    """The number of live handles before anything was called."""
    return suite.harness.collect()


@pytest.fixture(scope="module")
def ran(suite: Suite, base: int) -> dict[str, int]:
    """How many tests of each kind have run: what is counted needs all of them."""
    return {}


@pytest.mark.parametrize("section", by_hand.SECTIONS, ids=lambda s: s.__name__.strip("_"))
def test_by_hand(suite: Suite, ran: dict[str, int], section) -> None:
    problems = suite.by_hand(section)
    ran["by hand"] = ran.get("by hand", 0) + 1
    assert not problems, told(problems)


@pytest.mark.parametrize("name", list(database()))
def test_samples(suite: Suite, ran: dict[str, int], name: str) -> None:
    problems = suite.entry(name)
    ran["samples"] = ran.get("samples", 0) + 1
    assert not problems, told(problems)


def _has_errors(name: str) -> bool:
    return getattr(database()[name], "error_inputs_func", None) is not None


@pytest.mark.parametrize("name", [n for n in database() if _has_errors(n)])
def test_errors(suite: Suite, ran: dict[str, int], name: str) -> None:
    problems = suite.errors(name)
    ran["errors"] = ran.get("errors", 0) + 1
    assert not problems, told(problems)


def test_same_seed_same_numbers(suite: Suite) -> None:
    """Go seeds with its own function here, and draws through several ops in a row."""
    draws = [
        ("rand", [[3, 4]]),
        ("randn", [[5]]),
        ("randint", [100, [6]]),
        ("randperm", [9]),
        ("bernoulli", [torch.full([8], 0.5)]),
        ("normal.float_float", [1.0, 2.0, [4]]),
        ("multinomial", [torch.ones(5), 3]),
    ]
    torch.manual_seed(SEED)
    wanted = [operators()[name].oracle(*args) for name, args in draws]
    suite.harness.seed(SEED)
    for (name, args), value in zip(draws, wanted, strict=True):
        o = operators()[name]
        by_name = dict(zip((a.name for a in o.arguments), args, strict=False))
        got = suite.harness.call_named(o, by_name)
        assert torch.equal(got, value), name


def test_no_handle_is_left(suite: Suite, base: int, ran: dict[str, int]) -> None:
    if not ran:
        suite.entry("addmm")
    assert suite.harness.collect() == base


def _all() -> dict[str, int]:
    errors = sum(map(_has_errors, database()))
    return {"by hand": len(by_hand.SECTIONS), "samples": len(database()), "errors": errors}


if FULL:
    # These need all the others to have run.
    def test_every_function_is_reached(suite: Suite, ran: dict[str, int]) -> None:
        if ran != _all():
            pytest.skip("only part of the tests was selected")
        assert [name for name, why in suite.unreached().items() if not why] == []

    def test_the_report(suite: Suite, ran: dict[str, int]) -> None:
        if ran != _all():
            pytest.skip("only part of the tests was selected")
        report.OPERATORS.write(suite)


def test_the_report_is_of_this_schema() -> None:
    """docs/conformance.md has a line for each function, and says that nothing differs."""
    text = report.OPERATORS.read()
    listed = re.findall(r"^\| `(\w+)` \| (\d+) \|", text, re.M)
    families: dict[str, int] = {}
    for o in operators().values():
        families[o.function.family] = families.get(o.function.family, 0) + 1
    assert {name: int(n) for name, n in listed} == families, "run: make conformance"
    assert re.search(r"^\| calls that differ \| 0 \|$", text, re.M)
