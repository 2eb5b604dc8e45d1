"""Gradients whose sizes are open, held to autograd at sizes that they were not made with.

Every function of PyTorch's operator database that has a gradient is differentiated once with all
its sizes open, and the graph is run with tensors of sizes drawn at random, 0 and 1 among them: it
gives what autograd gives, or refuses.

    .venv/bin/python tests/graph/gradient_cases.py SEED CHANGES [PART]
"""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import operator_database as database
import torch

from pytorch_bridge import TensorType, function
from pytorch_bridge.autodiff.derivatives import native_grad
from pytorch_bridge.errors import BridgeTypeError, MissingMethodError
from pytorch_bridge.ops.native import native_op

SIZES = (0, 1, 2, 3, 5, 8)
# Kernels that end the process where sizes do not fit each other.
CRASHES = (
    "segment_reduce",
    "pdist",
    "native_batch_norm",
    "native_layer_norm",
    "native_group_norm",
    "_batch_norm",
)


class Case:
    """A function with open sizes, and the graph of its gradient."""

    def __init__(self, function_: Any, values: list[Any]) -> None:
        self.function = function_
        template, inputs = function_.split(values)
        self.tensors = [v.data for v in inputs]
        types = [_open(v.type) for v in inputs]
        self.op = native_op(function_, template, types)
        node = self.op.make_node(*[t() for t in types])
        self.wanted = [isinstance(t, torch.Tensor) and _differentiable(t) for t in self.tensors]
        seeds = [o.type() if _floating(o.type) else None for o in node.outputs]
        grads = native_grad(node, seeds)
        pairs = enumerate(zip(grads, self.wanted, strict=True))
        self.places = [i for i, (g, w) in pairs if g is not None and w]
        self.seeded = [s is not None for s in seeds]
        self.run = function(
            [*node.inputs, *(s for s in seeds if s is not None)],
            [grads[i] for i in self.places],
            mode="py",
        )

    def changed(self, rng: random.Random) -> list[Any]:
        """The inputs with other sizes: one of them everywhere, or one dimension of one input."""
        shapes = [list(t.shape) if isinstance(t, torch.Tensor) else None for t in self.tensors]
        for _ in range(rng.choice((1, 1, 2, 3))):
            known = [s for s in shapes if s]
            if not known:
                break
            if rng.random() < 0.6:
                old, new = rng.choice(rng.choice(known)), rng.choice(SIZES)
                shapes = [s and [new if d == old else d for d in s] for s in shapes]
            else:
                shape = rng.choice(known)
                shape[rng.randrange(len(shape))] = rng.choice(SIZES)
        made = torch.Generator().manual_seed(rng.randrange(1 << 30))
        return [_like(t, s, made) for t, s in zip(self.tensors, shapes, strict=True)]

    def check(self, given: list[Any]) -> str:
        """ "right", "refused", or "void" where PyTorch refuses; AssertionError where it is wrong."""
        leaves = [
            t.clone().requires_grad_() if w else t for t, w in zip(given, self.wanted, strict=True)
        ]
        made = torch.Generator().manual_seed(1)
        try:
            results = database.flat(self.op.call(leaves))
            outputs = [o for o, s in zip(results, self.seeded, strict=True) if s]
            seeds = [torch.randn(o.shape, dtype=o.dtype, generator=made) for o in outputs]
            used = [(o, g) for o, g in zip(outputs, seeds, strict=True) if o.requires_grad]
            expected = torch.autograd.grad(
                [o for o, _ in used],
                [leaves[i] for i in self.places],
                [g for _, g in used],
                allow_unused=True,
            )
        except (RuntimeError, IndexError, ValueError, NotImplementedError):
            return "void"
        try:
            found = self.run(*given, *seeds)
        except (
            RuntimeError,
            ValueError,
            TypeError,
            NotImplementedError,
            LookupError,
            ArithmeticError,
        ):
            return "refused"
        for got, want in zip(found, expected, strict=True):
            want = torch.zeros_like(got) if want is None else want
            torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4, equal_nan=True)
        return "right"


def _open(t: Any) -> Any:
    return t.clone(shape=[None] * len(t.shape)) if isinstance(t, TensorType) else t


def _floating(t: Any) -> bool:
    return isinstance(t, TensorType) and (t.dtype or "").startswith(("float", "complex"))


def _differentiable(t: torch.Tensor) -> bool:
    return t.is_floating_point() or t.is_complex()


def _like(t: Any, shape: list[int] | None, made: torch.Generator) -> Any:
    """Numbers of the kind that a tensor has, in another shape."""
    if shape is None:
        return t
    if list(t.shape) == shape:
        return t.clone()
    if t.dtype == torch.bool:
        return torch.rand(shape, generator=made) > 0.5
    if not _differentiable(t):
        return torch.zeros(shape, dtype=t.dtype)
    positive = not t.is_complex() and bool((t > 0).all())
    drawn = torch.randn(shape, dtype=t.dtype, generator=made)
    return drawn.abs() + 0.1 if positive else drawn


def every_case(part: int) -> Iterator[Case]:
    for _, function_, values in database.calls(part, gradient=True, samples=2):
        if function_.name.startswith(CRASHES) or "backward" in function_.name:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                yield Case(function_, values)
            except (BridgeTypeError, MissingMethodError):
                continue
            except RuntimeError:
                continue


def hold(seed: int, changes: int, part: int) -> tuple[dict[str, int], list[str]]:
    """How many changed calls had which outcome, and what is wrong, in one part of the database."""
    counts = dict.fromkeys(("right", "refused", "void", "wrong"), 0)
    wrong = []
    for case in every_case(part):
        for k in range(changes):
            given = case.changed(random.Random(f"{seed} {case.function.name} {k}"))
            try:
                outcome = case.check(given)
            except AssertionError as e:
                outcome = "wrong"
                shapes = [list(g.shape) if isinstance(g, torch.Tensor) else g for g in given]
                first = " ".join(str(e).split("\n")[:3])
                wrong.append(f"{case.function.name}{case.op.arguments} of {shapes}: {first}")
            counts[outcome] += 1
    return counts, wrong


if __name__ == "__main__":
    seed, changes, *parts = map(int, sys.argv[1:])
    warnings.simplefilter("ignore")
    faults = []
    for part in parts or range(database.PARTS):
        counts, wrong = hold(seed, changes, part)
        print(f"part {part}: {counts}", *wrong, sep="\n    ", flush=True)
        faults += wrong
    sys.exit(bool(faults))
