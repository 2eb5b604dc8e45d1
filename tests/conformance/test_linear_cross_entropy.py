"""LinearCrossEntropy in chunks is PyTorch's, to the last bit: losses and gradients for arguments and options that
are drawn at random, what is refused, and what passes again over the same graph."""

from __future__ import annotations

import contextlib
import os
import random
import warnings
from collections import Counter
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from pytorch_bridge.codegen.generate import reference_is_installed

if not reference_is_installed():
    pytest.skip("the options are of the torch that Go was generated for", allow_module_level=True)

from pytorch_bridge.schema.names import Names
from pytorch_bridge.testing.conformance.harness import Harness, WrapperError
from pytorch_bridge.testing.conformance.modules import Call, GoModule, functional

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("one_thread")]

FULL = os.environ.get("CONFORMANCE") == "full"
DTYPES = (torch.float32, torch.float32, torch.float64, torch.float16, torch.bfloat16)


class Drawn:
    """A call with everything at random."""

    def __init__(self, seed: int) -> None:
        r = random.Random(seed)
        g = torch.Generator().manual_seed(seed)
        self.dtype = r.choice(DTYPES)
        n, d, c = r.choice((0, 1, 2, 5, 16, 33)), r.choice((1, 3, 8)), r.choice((1, 2, 7, 40))
        single = n == 1 and r.random() < 0.5

        def numbers(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=g).to(self.dtype)

        x, w = numbers(n, d), numbers(c, d)
        self.ignore = r.choice((None, None, 0, -100, c - 1, -1))
        if r.random() < 0.3:
            target = torch.rand((n, c), generator=g).to(self.dtype)
            if r.random() < 0.9:
                self.ignore = None
        else:
            target = torch.randint(c, (n,), generator=g)
            if self.ignore is not None:
                target[::3] = self.ignore
        bias = numbers(c) if r.random() < 0.5 else None
        classes = torch.rand(c, generator=g).to(self.dtype) if r.random() < 0.4 else None
        if single:
            x, target = x[0], target[0]
        self.tensors: list[Any] = [x, w, target, bias, classes]
        self.wanted = [r.random() < 0.8 for _ in range(5)]
        self.wanted[2] = self.wanted[4] = False
        self.reduction = r.choice(("mean", "mean", "sum", "none"))
        self.smooth = r.random() < 0.05
        self.options: dict[str, Any] = {"allow_retain_graph": r.random() < 0.3}
        if r.random() < 0.4:
            self.options["batch_chunk_size"] = r.choice((1, 2, 3, 8, 100))
        methods = (
            "auto",
            "aspect_ratio",
            "aspect_ratio:2",
            "aspect_ratio:5",
            None,
            "aspect_ratio:0",
            "x",
        )
        if r.random() < 0.6:
            self.options["chunking_method"] = r.choice(methods)
        if r.random() < 0.6:
            self.options["acc_policy"] = r.choice(("auto", "accurate", "compact", "compact"))
        if r.random() < 0.4:
            self.options["acc_dtype"] = r.choice((None, torch.float32, torch.float32, self.dtype))
        self.upstream = 1.0 + r.random()

    def leaves(self) -> list[Any]:
        return [
            t if t is None else t.clone().requires_grad_(wanted)
            for t, wanted in zip(self.tensors, self.wanted, strict=True)
        ]

    def python(self, xs: list[Any]) -> torch.Tensor:
        options = nn.LinearCrossEntropyOptions(**self.options)
        return F.linear_cross_entropy(
            xs[0], xs[1], xs[2], linear_bias=xs[3], weight=xs[4], reduction=self.reduction,
            ignore_index=self.ignore, label_smoothing=0.1 if self.smooth else 0.0, options=options,
        )  # fmt: skip

    def go(self, harness: Harness, xs: list[Any]) -> torch.Tensor:
        options = {
            "LinearBias": xs[3],
            "Weight": xs[4],
            "Reduction": self.reduction,
            "IgnoreIndex": self.ignore,
            "LabelSmoothing": 0.1 if self.smooth else 0.0,
            "Options": self.chunking(),
        }
        given = {k: v for k, v in options.items() if v is not None}
        return functional(harness, "linear_cross_entropy", Call(xs[:3], given))

    def chunking(self) -> dict[str, Any]:
        """The options as fields in Go, also those that Python's class refuses."""
        fields = {Names().field(k): v for k, v in self.options.items()}
        if "ChunkingMethod" in fields and fields["ChunkingMethod"] is None:
            fields["ChunkingMethod"] = "none"
        return {k: v for k, v in fields.items() if v is not None}

    def __repr__(self) -> str:
        shapes = [t if t is None else (tuple(t.shape), t.dtype) for t in self.tensors]
        return f"{shapes} {self.reduction} ignore={self.ignore} {self.options}"


def _ended(err: Exception) -> str:
    kind = err.kind if isinstance(err, WrapperError) else type(err).__name__
    return f"refused: {kind}"


def _run(loss: torch.Tensor, xs: list[Any], upstream: float) -> list[Any]:
    """The loss and the gradients, and what a second pass over the same graph gives."""
    found: list[Any] = [loss.detach().clone()]
    if not loss.requires_grad:
        return found
    for _ in range(2):
        leaves = [x for x in xs if x is not None and x.requires_grad]
        for x in leaves:
            x.grad = None
        try:
            loss.backward(torch.full_like(loss, upstream), retain_graph=True)
            found += [x.grad for x in leaves]
        except RuntimeError as err:
            found.append(str(err).splitlines()[0].partition(" twice")[0].rpartition("linear")[2])
    return found


def _same(a: Any, b: Any) -> bool:
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return a is b or (isinstance(a, str) and a == b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(), b.nan_to_num())


def compare(harness: Harness, drawn: Drawn) -> tuple[str, str]:
    """How the call ended, and what differs."""
    theirs, ours = drawn.leaves(), drawn.leaves()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            want = _run(drawn.python(theirs), theirs, drawn.upstream)
        except (RuntimeError, ValueError, TypeError, IndexError) as err:
            want = [_ended(err)]
        try:
            got = _run(drawn.go(harness, ours), ours, drawn.upstream)
        except WrapperError as err:
            got = [_ended(err)]
    if len(want) != len(got) or not all(_same(a, b) for a, b in zip(want, got, strict=True)):
        return "differs", f"{drawn!r}:\nwant {want}\ngot {got}"
    return (want[0] if isinstance(want[0], str) else str(drawn.dtype)), ""


@pytest.mark.filterwarnings("ignore")
def test_losses_and_gradients(harness: Harness) -> None:
    ended: Counter[str] = Counter()
    problems = []
    for seed in range(4000 if FULL else 400):
        how, problem = compare(harness, Drawn(seed))
        ended[how] += 1
        if problem:
            problems.append(f"{seed}: {problem}")
    assert not problems, f"{ended}\n" + "\n".join(problems[:5])
    least = 200 if FULL else 20
    assert all(ended[str(dtype)] >= least for dtype in DTYPES), ended
    assert ended["refused: ValueError"] >= least, ended


def test_the_text_of_a_module(harness: Harness) -> None:
    for drawn in map(Drawn, range(200)):
        try:
            options = nn.LinearCrossEntropyOptions(**drawn.options)
        except ValueError:
            continue
        python = repr(nn.LinearCrossEntropyLoss(2, 3, options=options))
        made = Call([2, 3], {"Options": drawn.chunking()})
        assert str(GoModule(harness, "LinearCrossEntropyLoss", made)) == python


def test_a_fault_is_found(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other chunks give other bits somewhere, so that chunks that are cut wrongly do not pass."""
    honest = Drawn.python

    def other(drawn: Drawn, xs: list[Any]) -> torch.Tensor:
        drawn.options = {"batch_chunk_size": 1, "allow_retain_graph": True}
        return honest(drawn, xs)

    seeds = [s for s in range(60) if compare(harness, Drawn(s))[1] == ""]
    original = Drawn.go
    monkeypatch.setattr(Drawn, "python", other)
    monkeypatch.setattr(
        Drawn,
        "go",
        lambda drawn, h, xs: original(_with(drawn, {"batch_chunk_size": 8}), h, xs),
    )
    assert any(compare(harness, Drawn(s))[1] for s in seeds)


def _with(drawn: Drawn, options: dict[str, Any]) -> Drawn:
    drawn.options = drawn.options | options
    return drawn


def test_no_handle_is_left(harness: Harness) -> None:
    left = []
    for _ in range(4):
        for seed in range(40):
            drawn = Drawn(seed)
            xs = drawn.leaves()
            with contextlib.suppress(WrapperError):
                _run(drawn.go(harness, xs), xs, 1.0)
        left.append(harness.collect())
    assert left[1] == left[2] == left[3], left
