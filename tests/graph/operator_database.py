"""Calls of native functions, from PyTorch's operator database."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch

from pytorch_bridge.ops.native import NativeFunction, native
from pytorch_bridge.testing.conformance.harness import absent
from pytorch_bridge.testing.conformance.samples import Sampler, database

# The database comes in PARTS; a test runs EVERY-th entry of each, or all of them when
# CONFORMANCE=full (which passes, too, and takes four times as long).
PARTS = 4
EVERY = 1 if os.environ.get("CONFORMANCE") == "full" else 4

# What autograd differentiates and we do not: what is called depends on the elements.
NO_GRADIENT = {"narrow.Tensor"}


class Skip(Exception):
    """A call that says nothing."""


def flat(result: Any) -> list[Any]:
    """The results of a function, lists dissolved."""
    if not isinstance(result, (list, tuple)):
        return [result]
    return [x for r in result for x in flat(r)]


def _dtype(entry: Any) -> torch.dtype | None:
    dtypes = (torch.float32, torch.int64, torch.bool)
    return next((d for d in dtypes if entry.supports_dtype(d, "cpu")), None)


def _plain(v: Any) -> Any:
    if isinstance(v, torch.Tensor):
        return v.detach()
    return [_plain(x) for x in v] if isinstance(v, list) else v


def _dense(v: Any) -> bool:
    if isinstance(v, (list, tuple)):
        return all(map(_dense, v))
    return not isinstance(v, torch.Tensor) or (v.layout == torch.strided and not v.is_nested)


@cache
def _names() -> list[str]:
    return sorted(database())


def calls(
    part: int, gradient: bool = False, samples: int = 1
) -> Iterator[tuple[str, NativeFunction, list[Any]]]:
    """The database's entry, the function, and its bound arguments; one part of PARTS."""
    sampler = Sampler()
    seen: set[str] = set()
    for name in _names()[part :: PARTS * EVERY]:
        entry = database()[name]
        dtype = _dtype(entry)
        if dtype is None:
            continue
        if gradient and (
            not entry.supports_autograd or dtype != torch.float32 or "foreach" in name
        ):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cases = list(sampler.cases(entry, dtype, lambda i: i < samples))
        for case in cases:
            if gradient and (
                not (case.own or "function" in case.origin)
                or "noncontiguous" in case.origin
                or "without" in case.origin
            ):
                continue
            function = native(case.operator.name)
            if gradient and function.name in seen:
                continue
            seen.add(function.name)
            values = [
                function.defaults[i] if v is absent else _plain(v)
                for i, v in enumerate(case.values)
            ]
            if gradient and (
                function.random
                or function.returns_written
                or "out" in function.function.tags
                or not _dense(values)
            ):
                continue
            yield name, function, values
