"""Functions that PyTorch has in Python only, and Go too: to the last bit, on arguments drawn at random."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
import torch

from pytorch_bridge.testing.conformance.check import SEED, seed
from pytorch_bridge.testing.conformance.harness import Harness, Request, WrapperError

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("one_thread")]

COMPOSED = -100
LEFT_OUT = 1 << 40


def go(harness: Harness, name: str, tensors: list[Any], numbers: list[int | None]) -> Any:
    request = Request([COMPOSED, 0, 0])
    request.text_only(name)
    request.value("Tensor?[]", tensors)
    request.words.append(len(numbers))
    request.words += [LEFT_OUT if n is None else n for n in numbers]
    harness.seed(SEED)
    return harness.send(request)[0][0]


def compare(harness: Harness, name: str, python: Any, *given: Any) -> str:
    """How the call ended: "well" or the class of what both raise."""
    wanted: Any = None
    error = ""
    seed()
    try:
        wanted = python()
    except (RuntimeError, ValueError, TypeError) as err:
        error = type(err).__name__.lstrip("_")
    try:
        got = go(harness, name, *given)
    except WrapperError as err:
        if error == err.kind:
            return error
        pytest.fail(f"{name} {given}: {err}; Python: {error or wanted}")
    assert not error, f"{name} {given}: {got}; Python raises {error}"
    if name == "broadcast_shapes":
        assert list(wanted) == got
        return "well"
    assert len(wanted) == len(got)
    for w, g in zip(wanted, got, strict=True):
        assert w.dtype == g.dtype, name
        assert w.shape == g.shape, name
        assert w.layout == g.layout, name
        if w.layout != torch.strided:
            assert w._nnz() == g._nnz(), name
            w, g = w.to_dense(), g.to_dense()
        assert torch.equal(w, g), f"{name} {given}: {g}; Python: {w}"
    return "well"


def test_unravel_index_and_broadcast_shapes(harness: Harness) -> None:
    r, ended = random.Random(1), Counter[str]()
    for _ in range(300):
        shape = [r.choice((1, 2, 3, 5, 5, 0, -1)) if r.random() < 0.3 else r.randrange(1, 6)
                 for _ in range(r.randrange(4))]  # fmt: skip
        dtype = r.choice(
            (torch.int64, torch.int64, torch.int32, torch.uint8, torch.float32, torch.bool)
        )
        indices = torch.randint(0, 60, r.choice(((), (3,), (2, 2), (0,)))).to(dtype)
        if dtype == torch.int64:
            indices -= 20
        how = compare(
            harness, "unravel_index",
            lambda i=indices, s=shape: torch.unravel_index(i, tuple(s)) if s else (),
            [indices], shape,
        ) if shape else "well"  # fmt: skip
        ended[how] += 1
        shapes = [
            [r.choice((1, 1, 2, 3, 0)) for _ in range(r.randrange(4))]
            for _ in range(r.randrange(4))
        ]
        if r.random() < 0.1 and shapes:
            shapes[0].append(-1)
        flat = [n for s in shapes for n in (len(s), *s)]
        ended[
            compare(
                harness, "broadcast_shapes", lambda s=shapes: torch.broadcast_shapes(*s), [], flat
            )
        ] += 1
    assert all(ended[how] > 20 for how in ("well", "ValueError", "TypeError", "RuntimeError")), (
        ended
    )


def test_low_rank(harness: Harness) -> None:
    r, ended = random.Random(2), Counter[str]()
    for _ in range(150):
        dtype = r.choice((torch.float32, torch.float64, torch.float64, torch.complex128))
        m, n = r.randrange(1, 12), r.randrange(1, 12)
        batch = r.choice(((), (), (2,)))
        a = torch.randn(*batch, m, n, dtype=dtype)
        mean = torch.randn(1, n, dtype=dtype) if r.random() < 0.4 else None
        q, times = r.choice((None, 1, 2, 3, 9)), r.choice((None, None, 0, 1))
        if not batch and r.random() < 0.3 and dtype != torch.complex128:
            a = (a * (a > 0)).to_sparse()
        ended[compare(
            harness, "svd_lowrank",
            lambda a=a, q=q, t=times, m=mean: torch.svd_lowrank(a, q, t, m), [a, mean], [q, times],
        )] += 1  # fmt: skip
        center = r.random() < 0.7
        ended[compare(
            harness, "pca_lowrank",
            lambda a=a, q=q, t=times, c=center: torch.pca_lowrank(a, q, c, 2 if t is None else t),
            [a], [q, times, int(center)],
        )] += 1  # fmt: skip
    assert ended["well"] > 150, ended
    assert ended["ValueError"] > 5, ended


# Go's layouts begin with one that is not given.
LAYOUTS = [None, torch.strided, torch.sparse_coo, torch.sparse_csr, None, torch.sparse_csc]


def test_spdiags(harness: Harness) -> None:
    r, ended = random.Random(3), Counter[str]()
    for _ in range(300):
        # What lies outside of the matrix ends Python; gotorch/composed_test.go tries it.
        m, n = r.randrange(1, 6), r.randrange(1, 6)
        wide = r.randrange(1, min(m, n) + 1)
        rows = r.randrange(min(4, m + wide))
        dtype = r.choice((torch.float32, torch.float64, torch.int64, torch.complex64, torch.bool))
        diagonals = torch.randint(-3, 9, (rows, wide)).to(dtype)
        offsets = torch.tensor(r.sample(range(1 - m, wide), rows), dtype=torch.int64)
        if r.random() < 0.1 and rows > 1:
            offsets[0] = offsets[1]
        if r.random() < 0.1:
            offsets = offsets.to(r.choice((torch.int32, torch.float32)))
        if r.random() < 0.1:
            diagonals = r.choice((diagonals.flatten(), diagonals[None]))
        shape = r.choice(([m, n],) * 8 + ([m], [m, n, 1]))
        layout = r.choice((0, 0, 2, 2, 3, 5, 5, 1))
        if layout == 0:
            python = lambda d=diagonals, o=offsets, s=shape: (torch.sparse.spdiags(d, o, s),)  # noqa: E731
        else:
            python = lambda d=diagonals, o=offsets, s=shape, at=LAYOUTS[layout]: (  # noqa: E731
                torch.sparse.spdiags(d, o, s, layout=at),
            )
        ended[compare(harness, "spdiags", python, [diagonals, offsets], [layout, *shape])] += 1
    assert ended["well"] > 100, ended
    assert ended["RuntimeError"] > 50, ended


def test_a_fault_is_found(harness: Harness) -> None:
    a = torch.randn(5, 4)
    with pytest.raises(AssertionError, match="svd_lowrank"):
        compare(harness, "svd_lowrank", lambda: torch.svd_lowrank(a + 1, 3), [a, None], [3, None])


def test_no_handle_is_left(harness: Harness) -> None:
    left = []
    for _ in range(4):
        test_low_rank(harness)
        left.append(harness.collect())
    assert left[1] == left[2] == left[3], left
