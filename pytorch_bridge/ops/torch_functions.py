"""Which functions are PyTorch's own.

A function that is called as one of PyTorch's is none for that: it is one if PyTorch has that very
object under the name.
"""

from __future__ import annotations

from types import BuiltinMethodType, ModuleType
from typing import Any


def _homes() -> tuple[Any, ...]:
    """Where PyTorch has the functions that go with native ones of the same name."""
    import torch

    return (
        torch,
        torch.Tensor,
        torch.nn.functional,
        torch.functional,
        torch._C._VariableFunctions,
        *(getattr(torch._C, n) for n in ("_nn", "_linalg", "_fft", "_special", "_sparse")),
    )


def own_name(func: Any) -> str | None:
    """The name that PyTorch has a function or a method by; None where it is none of PyTorch's."""
    import torch

    name = getattr(func, "__name__", None)
    if not isinstance(name, str) or isinstance(func, (type, ModuleType)):
        return None
    if isinstance(func, BuiltinMethodType) and isinstance(func.__self__, torch.Tensor):
        return name  # of a tensor, in C
    plain = getattr(func, "__func__", func)
    for home in _homes():
        there = getattr(home, name, None)
        if there is not None and (there is func or there is plain):
            return name
    return None
