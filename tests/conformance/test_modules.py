"""The modules of Go's package nn and the functions of nn/functional give what PyTorch's give.

`make test` runs everything in float32, `make conformance` in all dtypes, and then writes the tables
of docs/conformance.md. `make conformance ARGS='-k LSTM'` runs one module's inputs.
"""

from __future__ import annotations

import os

import pytest
import torch

from pytorch_bridge.codegen.generate import reference_is_installed

if not reference_is_installed():
    pytest.skip("the samples are of the torch that Go was generated for", allow_module_level=True)

from pytorch_bridge.schema.nn import Function, layers
from pytorch_bridge.schema.python_api import python_api
from pytorch_bridge.testing.conformance import modules as under_test
from pytorch_bridge.testing.conformance import report
from pytorch_bridge.testing.conformance.functions import (
    BY_MODULES,
    DRAWN,
    NOT_FUNCTIONS,
    Functions,
    by_hand,
)
from pytorch_bridge.testing.conformance.functions import entries as functions_with_samples
from pytorch_bridge.testing.conformance.harness import Harness
from pytorch_bridge.testing.conformance.modules import DTYPES, Call, Modules, database
from pytorch_bridge.testing.conformance.more_modules import CONTAINERS, NOT_MODULES

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("one_thread")]

FULL = os.environ.get("CONFORMANCE") == "full"
TRIED = DTYPES if FULL else (torch.float32,)
INTEGERS = (torch.int64,)  # which few functions are for


def told(problems: list[str]) -> str:
    return "\n".join([f"{len(problems)} differ", *problems[:20]])


@pytest.fixture(scope="module")
def modules(harness: Harness) -> Modules:
    return Modules(harness)


@pytest.fixture(scope="module")
def functions(harness: Harness) -> Functions:
    return Functions(harness)


@pytest.mark.parametrize("name", list(database()))
def test_module(modules: Modules, name: str) -> None:
    problems = modules.run(name, TRIED)
    assert not problems, told(problems)
    assert modules.tallies[name].passed


@pytest.mark.parametrize("name", sorted({*functions_with_samples(), *by_hand(torch.float32)}))
def test_function(functions: Functions, name: str) -> None:
    problems = functions.run(name, (*TRIED, *INTEGERS))
    assert not problems, told(problems)
    tally = functions.tallies[name]
    assert tally.passed or tally.skipped


def test_every_module_of_pytorch_is_there() -> None:
    classes = {n.name for n in python_api().values() if n.namespace == "torch.nn"}
    known = set(layers().constructors)
    assert classes - known - NOT_MODULES.keys() == set()
    assert known - classes == set()
    assert known - set(database()) == set(CONTAINERS)


def test_every_function_of_pytorch_is_there() -> None:
    names = {n.name for n in python_api().values() if n.namespace == "torch.nn.functional"}
    known = set(layers().functions)
    in_place = {f"{f.python}_" for f in layers().functions.values() if "InPlace" in _fields(f)}
    indices = {n for n in names if n.endswith("_with_indices")}
    names -= {n for n in indices if n.removesuffix("_with_indices") in known}
    assert names - known - in_place - NOT_FUNCTIONS.keys() == set()
    assert known - names == set()


def _fields(f: Function) -> set[str]:
    return {a.field for a in f.optional}


def test_every_function_is_tried() -> None:
    tried = {*functions_with_samples(), *by_hand(torch.float32), *BY_MODULES, *DRAWN}
    assert set(layers().functions) - tried == set()


@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3.0, float("inf")])
@pytest.mark.parametrize("max_norm", [0.1, 1e6])
def test_clipping(harness: Harness, norm_type: float, max_norm: float) -> None:
    ours, theirs = (
        [torch.linspace(-1, 2, n).requires_grad_() for n in (5, 1, 12)] for _ in ("Go", "Python")
    )
    for p in (*ours, *theirs):
        p.grad = torch.sin(p.detach() * 3)
    arguments = Call([ours, max_norm], {"NormType": norm_type})
    got = under_test.functional(harness, "clip_grad_norm_", arguments)
    wanted = torch.nn.utils.clip_grad_norm_(theirs, max_norm, norm_type)
    grads = [[p.grad for p in params] for params in (theirs, ours)]
    assert not under_test.differ("norm and gradients", [wanted, *grads[0]], [got, *grads[1]])
    vector = under_test.functional(harness, "parameters_to_vector", Call([ours], {}))
    assert torch.equal(vector, torch.nn.utils.parameters_to_vector(theirs))


def test_clipping_of_two_dtypes(harness: Harness) -> None:
    """The norms of each dtype's gradients are added up in the same order."""
    generator = torch.Generator().manual_seed(0)
    kinds = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
    for at in range(24):
        pair = kinds[at % 4], kinds[(at + 1 + at // 4 % 3) % 4]
        values = [torch.randn(3, generator=generator).to(pair[i % 3 % 2]) for i in range(11)]
        ours, theirs = ([torch.zeros_like(v).requires_grad_() for v in values] for _ in "ab")
        for params in (ours, theirs):
            for p, v in zip(params, values, strict=True):
                p.grad = v.clone()
        got = under_test.functional(harness, "clip_grad_norm_", Call([ours, 0.5], {}))
        wanted = torch.nn.utils.clip_grad_norm_(theirs, 0.5)
        assert torch.equal(got, wanted), (at, pair)
        assert all(torch.equal(a.grad, b.grad) for a, b in zip(ours, theirs, strict=True)), pair


@pytest.mark.parametrize(
    ("name", "option", "value", "seen"),
    [
        ("ELU", "Alpha", 0.9, "alpha"),
        ("Conv2d", "Stride", [2, 2], "stride"),
        ("LSTM", "NumLayers", 3, "weight_ih_l2"),
        ("Dropout", "InPlace", True, "inplace"),
        ("LayerNorm", "Eps", 0.5, "eps"),
    ],
)
def test_a_fault_is_found(
    harness: Harness,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    option: str,
    value: object,
    seen: str,
) -> None:
    """With one option changed behind its back, the comparison says what differs."""
    right = under_test.constructor

    def wrong(cls: type, args: tuple, kwargs: dict) -> Call:
        made = right(cls, args, kwargs)
        return Call(made.parameters, {**made.options, option: value})

    monkeypatch.setattr(under_test, "constructor", wrong)
    problems = Modules(harness).run(name, (torch.float32,))
    assert any(seen in p for p in problems), problems


def test_no_handle_is_left(harness: Harness) -> None:
    before = harness.collect()
    modules = Modules(harness)
    for name in ("LSTM", "TransformerEncoderLayer", "Conv2d", "LazyConv2d", "CrossEntropyLoss"):
        modules.run(name, (torch.float32,))
    assert harness.collect() == before


if FULL:

    def test_the_tables(modules: Modules, functions: Functions) -> None:
        if len(modules.tallies) < len(database()):
            pytest.skip("only part of the tests was selected")
        report.LAYERS.write(modules, functions)


def test_the_tables_are_complete() -> None:
    """docs/conformance.md has a line for each module and function, and nothing differs."""
    rows = report.LAYERS.rows()
    wanted = {f"nn.{name}" for name in database()}
    wanted |= {f"nn.functional.{name}" for name in functions_with_samples()}
    assert wanted - rows.keys() == set(), "run: make conformance"
    assert {name for name, row in rows.items() if row[-1] != "0"} == set()
