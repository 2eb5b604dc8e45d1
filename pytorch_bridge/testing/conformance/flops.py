"""Holds gotorch.FlopCounterMode to torch.utils.flop_counter, over PyTorch's module database.

What Go computes is counted in Go, what Python computes in Python, each forward and backward, by
operator.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_flatten
from torch.utils.flop_counter import FlopCounterMode

from .harness import Harness, Request
from .modules import GoModule, _inputs, _takes_dtype, constructor, copied, database, forward

COUNT = -50
SUMMARY = -52

Flops = dict[str, int]


class CountingHarness(Harness):
    """A harness that counts what its calls compute."""

    def __init__(self, harness: Harness) -> None:
        self.__dict__.update(harness.__dict__)
        self.flops: Counter[str] = Counter()

    def send(self, request: Request) -> tuple[list[Any], list[torch.Tensor]]:
        request.words[:0] = [COUNT, 0, 0]
        results, generators = super().send(request)
        *results, names, numbers = results
        self.flops.update(dict(zip(names, numbers, strict=True)))
        return results, generators

    def taken(self) -> Flops:
        taken, self.flops = {k: v for k, v in self.flops.items() if v}, Counter()
        return taken


def counted(run: Callable[[], Any]) -> tuple[Any, Flops]:
    """What Python computes, and its FLOPs."""
    with FlopCounterMode(display=False) as mode:
        result = run()
    counts = mode.get_flop_counts().get("Global", {})
    return result, {str(k): v for k, v in counts.items() if v}


def both_ways(
    harness: CountingHarness, python: Callable[[], Any], go: Callable[[], Any]
) -> tuple[str, int]:
    """What differs in what both count forward and backward, and how much there was."""
    wanted, theirs = counted(python)
    harness.taken()
    got = go()
    ours = harness.taken()
    if ours != theirs:
        return f"forward: {ours}, not {theirs}", 0
    sums = []
    for result in (wanted, got):
        outputs = [t for t in tree_flatten(result)[0] if isinstance(t, torch.Tensor)]
        sums.append([t for t in outputs if t.requires_grad])
    if not sums[0]:
        return "", sum(theirs.values())
    grads = [torch.ones_like(t) for t in sums[0]]
    _, theirs_back = counted(lambda: torch.autograd.backward(sums[0], grads))
    harness.backward(sums[1], [torch.ones_like(t) for t in sums[1]])
    ours = harness.taken()
    if ours != theirs_back:
        return f"backward: {ours}, not {theirs_back}", 0
    return "", sum(theirs.values()) + sum(theirs_back.values())


def of_module(harness: Harness, name: str) -> tuple[list[str], int, int]:
    """What differs for the inputs of a module, how many were tried, and how many took FLOPs."""
    counting = CountingHarness(harness)
    info = database()[name]
    problems, tried, counts = [], 0, 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for at, given in enumerate(_inputs(info, torch.float32, True)):
            cls, args = info.module_cls, given.constructor_input.args
            kwargs = dict(given.constructor_input.kwargs)
            kwargs.pop("_random_samples", None)
            if given.forward_input is None or kwargs.get("options"):
                continue
            if cls in (nn.TransformerEncoder, nn.TransformerDecoder):
                continue  # layers that Python makes; Transformer has both
            factory = (
                {"dtype": torch.float32} if _takes_dtype(cls) and "dtype" not in kwargs else {}
            )
            python = cls(*copied(args), **copied(kwargs), **factory)
            go = GoModule(counting, cls.__name__, constructor(cls, args, {**kwargs, **factory}))
            inputs = given.forward_input
            theirs, ours = (
                copied((inputs.args, inputs.kwargs)),
                copied((inputs.args, inputs.kwargs)),
            )
            problem, flops = both_ways(
                counting,
                partial(python, *theirs[0], **theirs[1]),
                partial(forward, cls, go, args, {**kwargs}, *ours),
            )
            tried += 1
            counts += flops > 0
            if problem:
                problems.append(f"{name} #{at} {given.desc}: {problem}")
    return problems, tried, counts


def of_summary(harness: Harness, name: str) -> tuple[list[str], int]:
    """What differs between nn.Summary and Python for a module's inputs, and how many were tried.

    What a module within takes is what FlopCounterMode counts for it, forward and backward.
    """
    info = database()[name]
    problems, tried = [], 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for at, given in enumerate(_inputs(info, torch.float32, True)):
            cls, args = info.module_cls, given.constructor_input.args
            kwargs = dict(given.constructor_input.kwargs)
            inputs = given.forward_input
            if (
                inputs is None
                or inputs.kwargs
                or kwargs.get("options")
                or not all(isinstance(t, torch.Tensor) for t in inputs.args)
            ):
                continue
            factory = (
                {"dtype": torch.float32} if _takes_dtype(cls) and "dtype" not in kwargs else {}
            )
            python = cls(*copied(args), **copied(kwargs), **factory)
            go = GoModule(harness, cls.__name__, constructor(cls, args, {**kwargs, **factory}))
            with FlopCounterMode(display=False) as mode:
                wanted = python(*copied(inputs.args))
            outputs = [t for t in tree_flatten(wanted)[0] if isinstance(t, torch.Tensor)]
            theirs = _by_module(mode, cls.__name__)
            with FlopCounterMode(display=False) as mode:
                torch.autograd.backward([t.sum() for t in outputs if t.requires_grad])
            request = Request([SUMMARY, 0, 0, go.number, 1])
            request.value("Tensor[]", list(inputs.args))
            names, flops, back, sizes, parameters = harness.send(request)[0]
            tried += 1
            ours = {n: f for n, f in zip(names, flops, strict=True) if f}
            total = sum(mode.get_flop_counts().get("Global", {}).values())
            shapes = [n for t in outputs for n in (t.dim(), *t.shape)]
            numel = sum(p.numel() for p in python.parameters())
            if ours != theirs:
                problems.append(f"{name} #{at}: forward {ours}, not {theirs}")
            if back[0] != total:
                problems.append(f"{name} #{at}: backward {back[0]}, not {total}")
            if (sizes or [], parameters) != (shapes, numel):
                problems.append(f"{name} #{at}: {sizes} and {parameters}, not {shapes} and {numel}")
    return problems, tried


def _by_module(mode: FlopCounterMode, root: str) -> Flops:
    """FLOPs by the names of modules, "" for the whole."""
    found = {}
    for name, counts in mode.get_flop_counts().items():
        total = sum(counts.values())
        if total and (name == root or name.startswith(f"{root}.")):
            found[name[len(root) + 1 :]] = total
    return found
