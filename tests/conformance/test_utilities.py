"""The functions of nn/init and of the packages in nn/utils do what PyTorch's do, to the last bit."""

from __future__ import annotations

import gc
import os
import re

import pytest
import torch
from torch import nn

from pytorch_bridge.codegen.generate import reference_is_installed

if not reference_is_installed():
    pytest.skip("the samples are of the torch that Go was generated for", allow_module_level=True)

from pytorch_bridge.schema.python_api import python_api
from pytorch_bridge.testing.conformance import report
from pytorch_bridge.testing.conformance import utilities as under_test
from pytorch_bridge.testing.conformance.harness import Harness
from pytorch_bridge.testing.conformance.modules import Call
from pytorch_bridge.testing.conformance.utilities import (
    BY_FUNCTIONS,
    DTYPES,
    NOT_FUNCTIONS,
    Differs,
    Double,
    Twin,
    Utilities,
    cases,
    errors,
    invoke,
    rand,
    register,
)

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("one_thread")]

FULL = os.environ.get("CONFORMANCE") == "full"
TRIED = DTYPES if FULL else (torch.float32,)
under_test.FULL = FULL


@pytest.fixture(scope="module")
def utilities(harness: Harness) -> Utilities:
    return Utilities(harness)


@pytest.mark.parametrize("name", sorted(cases()))
def test_utility(utilities: Utilities, name: str) -> None:
    problems = utilities.run(name, TRIED)
    assert not problems, "\n".join(problems[:20])
    assert utilities.tallies[name].passed


def test_every_function_of_pytorch_is_tried() -> None:
    names = {
        n.full.removeprefix("torch.nn.")
        for n in python_api().values()
        if re.match(r"torch\.nn\.(init|utils)\b", n.namespace)
    }
    assert names - set(cases()) - NOT_FUNCTIONS.keys() - BY_FUNCTIONS.keys() == set()
    assert (set(cases()) | NOT_FUNCTIONS.keys() | BY_FUNCTIONS.keys()) - names == set()
    assert set(errors()) - set(cases()) == set()


if FULL:

    def test_the_table(utilities: Utilities) -> None:
        if len(utilities.tallies) < len(cases()):
            pytest.skip("only part of the tests was selected")
        report.UTILITIES.write(utilities)


def test_the_table_is_complete() -> None:
    """docs/conformance.md has a line for each function, and nothing differs."""
    rows = report.UTILITIES.rows()
    wanted = {f"nn.{name}" for name in cases()}
    assert wanted - rows.keys() == set(), "run: make conformance"
    assert {name for name in wanted if rows[name][-1] != "0"} == set()


@pytest.mark.parametrize(
    ("name", "changed", "seen"),
    [
        ("utils.parametrizations.spectral_norm", {"NPowerIterations": 2}, "differs"),
        ("utils.parametrizations.weight_norm", {"Dim": 1}, "original0"),
        ("init.kaiming_uniform_", {"A": 0.1}, "the tensor"),
        ("utils.spectral_norm", {"Eps": 0.5}, "differs"),
    ],
)
def test_a_fault_is_found(
    harness: Harness,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    changed: dict[str, object],
    seen: str,
) -> None:
    """With one option changed behind its back, the comparison says what differs."""
    right = under_test.arguments

    def wrong(of: str, args: tuple, kwargs: dict) -> Call:
        made = right(of, args, kwargs)
        return Call(made.parameters, {**made.options, **changed}) if of == name else made

    monkeypatch.setattr(under_test, "arguments", wrong)
    problems = Utilities(harness).run(name, (torch.float32,))
    assert any(seen in p for p in problems), problems


def test_a_mask_of_another_draw_is_found(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    right = under_test.arguments

    def wrong(of: str, args: tuple, kwargs: dict) -> Call:
        made = right(of, args, kwargs)
        if of.endswith("l1_unstructured"):
            made.parameters[2] = made.parameters[2] / 2
        return made

    monkeypatch.setattr(under_test, "arguments", wrong)
    problems = Utilities(harness).run("utils.prune.l1_unstructured", (torch.float32,))
    assert any("weight_mask" in p for p in problems), problems


def test_reading_a_field_is_what_python_reads(harness: Harness) -> None:
    twin = Twin.of(harness, nn.Linear, 3, 3)
    register(twin, "weight", Double)
    twin.call(rand(2, 3))
    field = invoke(harness, "Module.field", Call([twin.go, "Weight"], {}))
    assert torch.equal(field, twin.python.weight)
    assert field.grad_fn is not None


def test_an_error_leaves_the_module_as_it_was(harness: Harness) -> None:
    twin = Twin.of(harness, nn.Linear, 4, 4)
    register(twin, "weight", Double)
    twin.check("before")
    with pytest.raises(under_test.Refused, match="shape") as refused:
        register(twin, "weight", under_test.Resized)
    assert isinstance(refused.value.__cause__, ValueError)
    twin.check("after")
    twin.train(rand(2, 4))


def test_no_handle_is_left(harness: Harness) -> None:
    names = (
        "utils.spectral_norm",
        "utils.parametrize.cached",
        "utils.parametrize.transfer_parametrizations_and_params",
        "utils.prune.custom_from_mask",
        "utils.prune.global_unstructured",
        "utils.fuse_conv_bn_eval",
        "utils.skip_init",
    )
    left = []
    for _ in range(4):
        for name in names:
            problems = Utilities(harness).run(name, (torch.float32,))
            assert not problems
        gc.collect()
        left.append(harness.collect())
    assert min(left[2:]) <= left[1], left  # the collector may come a round later


def test_the_comparison_can_fail(harness: Harness) -> None:
    twin = Twin.of(harness, nn.Linear, 3, 3)
    with torch.no_grad():
        twin.python.bias.add_(1)
    with pytest.raises(Differs):
        twin.check("changed")
    with pytest.raises(Differs):
        twin.call(rand(2, 3))
