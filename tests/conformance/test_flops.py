"""gotorch.FlopCounterMode counts what torch.utils.flop_counter counts, by operator, exactly.

`make test` runs the modules that compute with what has a formula, `make conformance` all of them.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from pytorch_bridge.codegen.generate import reference_is_installed

if not reference_is_installed():
    pytest.skip("the samples are of the torch that Go was generated for", allow_module_level=True)

from pytorch_bridge.native.toolchain import ROOT
from pytorch_bridge.testing.conformance.flops import (
    CountingHarness,
    both_ways,
    of_module,
    of_summary,
)
from pytorch_bridge.testing.conformance.harness import Harness
from pytorch_bridge.testing.conformance.modules import SEED, copied, database
from pytorch_bridge.testing.conformance.operators import operators

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("one_thread")]

FULL = os.environ.get("CONFORMANCE") == "full"

# The modules that compute with what has a formula.
COUNTED = re.compile(
    "(Lazy)?(Linear|Conv.*)|LinearCrossEntropyLoss|Transformer(.*Layer)?|.*Attention|"
    "AdaptiveLogSoftmaxWithLoss|(RNN|GRU|LSTM)(Cell)?"
)
HAVE_FLOPS = [n for n in database() if COUNTED.fullmatch(n)]

# Those whose inputs in the database are all given by name, or not tensors.
BY_NAME = ("Transformer", "MultiheadAttention", "LSTMCell", "LSTM")


@pytest.mark.parametrize("name", list(database()) if FULL else HAVE_FLOPS)
def test_module(harness: Harness, name: str) -> None:
    problems, _, counts = of_module(harness, name)
    assert not problems, "\n".join(problems[:10])
    assert (counts > 0) == (name in HAVE_FLOPS)


@pytest.mark.parametrize("name", HAVE_FLOPS)
def test_summary(harness: Harness, name: str) -> None:
    """nn.Summary says of each module within what FlopCounterMode says of it."""
    problems, tried = of_summary(harness, name)
    assert not problems, "\n".join(problems[:10])
    assert tried or name in BY_NAME


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Calls of functions at random, some of them made of those with a formula or calling them inside."""
    draw = random.Random(SEED)
    n = lambda low=1: draw.randint(low, 6)  # noqa: E731
    t = lambda *shape: torch.randn(shape, requires_grad=True)  # noqa: E731
    for _ in range(8):
        a, b, c, d = n(), n(), n(), n()
        yield "mm", {"self": t(a, b), "mat2": t(b, c)}
        yield "addmm", {"self": t(c), "mat1": t(a, b), "mat2": t(b, c)}
        yield "bmm", {"self": t(d, a, b), "mat2": t(d, b, c)}
        yield "baddbmm", {"self": t(d, a, c), "batch1": t(d, a, b), "batch2": t(d, b, c)}
        yield "addbmm", {"self": t(a, c), "batch1": t(d, a, b), "batch2": t(d, b, c)}
        yield "matmul", {"self": t(d, 1, a, b), "other": t(c, b, a)}
        yield "mv", {"self": t(a, b), "vec": t(b)}
        yield "linear", {"input": t(d, a, b), "weight": t(c, b), "bias": t(c)}
        yield "bilinear", {"input1": t(a, b), "input2": t(a, c), "weight": t(d, b, c)}
        yield (
            "tensordot",
            {"self": t(a, b, c), "other": t(c, b), "dims_self": [1, 2], "dims_other": [1, 0]},
        )
        yield "linalg_multi_dot", {"tensors": [t(a, b), t(b, c), t(c, d)]}
        yield "matrix_power", {"self": t(a, a), "n": n(2)}
        yield "cdist", {"x1": t(a, b), "x2": t(30, b)}
        yield "linalg_matrix_exp", {"self": t(a, a)}
        yield "einsum", {"equation": "bij,bjk->ik", "tensors": [t(d, a, b), t(d, b, c)]}
        groups = draw.choice((1, 2))
        for directions in (1, 2, 3):
            sizes = [n(3) for _ in range(directions)]
            strides = [draw.choice((1, 2)) for _ in range(directions)]
            yield (
                f"conv{directions}d",
                {
                    "input": t(a, 2 * groups, *sizes),
                    "weight": t(2 * groups, 2, *[draw.randint(1, 3)] * directions),
                    "stride": strides,
                    "groups": groups,
                },
            )
            overload = "" if directions == 1 else ".input"
            yield (
                f"conv_transpose{directions}d{overload}",
                {
                    "input": t(a, 2 * groups, *sizes),
                    "weight": t(2 * groups, 3, *[draw.randint(1, 3)] * directions),
                    "stride": strides,
                    "groups": groups,
                },
            )
        heads, causal = n(), draw.random() < 0.5
        query, key = t(a, heads, b, 4), t(a, heads, b if causal else c, 4)
        value = t(*key.shape[:3], draw.choice((4, 6)))
        yield "scaled_dot_product_attention", {
            "query": query, "key": key, "value": value, "is_causal": causal,
        }  # fmt: skip


def test_functions_at_random(harness: Harness) -> None:
    counting = CountingHarness(harness)
    problems, counts, seen = [], 0, 0
    for name, given in cases():
        o = operators().get(name) or operators()[f"{name}.default"]
        theirs, ours = copied(given), copied(given)
        problem, flops = both_ways(
            counting,
            lambda o=o, v=theirs: o.oracle(**v),
            lambda o=o, v=ours: counting.call_named(o, v),
        )
        seen += 1
        counts += flops > 0
        if problem:
            problems.append(f"{name}: {problem}")
    assert not problems, "\n".join(problems[:20])
    assert seen > 150
    assert counts > 120


def test_every_formula_is_there() -> None:
    """The list of formulas in C++ is that of PyTorch; higher-order operators are Python's alone."""
    from torch.utils.flop_counter import flop_registry

    packets = {str(k) for k in flop_registry if isinstance(k, torch._ops.OpOverloadPacket)}
    ours = re.findall(r'\{"aten::(\w+)",', (ROOT / "cgotorch/flops.cc").read_text())
    assert {f"aten.{name}" for name in ours} == {p for p in packets if p.startswith("aten.")}
    assert len(ours) == len(set(ours))


def test_a_fault_is_found(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one number changed behind its back, the comparison says what differs."""
    right = CountingHarness.taken
    monkeypatch.setattr(
        CountingHarness, "taken", lambda self: {k: v + 1 for k, v in right(self).items()}
    )
    problems, _, _ = of_module(harness, "Linear")
    assert problems
    assert "aten.addmm" in problems[0], problems


def test_no_handle_is_left(harness: Harness) -> None:
    left = []
    for _ in range(3):
        of_module(harness, "LSTM")
        left.append(harness.collect())
    assert left[1] == left[2] == left[0], left
