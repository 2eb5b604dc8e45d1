"""Running PyTorch's functions only to see what they would do, without a word of what they say."""

from __future__ import annotations

import contextlib
import logging
import threading
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from functools import cache
from typing import Any


@contextlib.contextmanager
def without_autocast() -> Iterator[None]:
    """Ends the caller's autocast; an op may still use its own inside."""
    import torch

    with contextlib.ExitStack() as stack:
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield


@contextlib.contextmanager
def default_modes() -> Iterator[None]:
    """PyTorch as a compiled function calls it, in whatever modes the caller is: without autocast,
    inference mode and another default device. Grad mode is to be set inside."""
    import torch

    with contextlib.ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))  # which enables gradients
        stack.enter_context(without_autocast())
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        yield


def default_dtype() -> Any:
    """torch's default dtype, by which some results get theirs."""
    import torch

    return torch.get_default_dtype()


_silent: ContextVar[bool] = ContextVar("silent", default=False)
_one_at_a_time = threading.RLock()


class _WhereSilent:
    """Stands in a filter of warnings where a pattern does. Filters are one list for all threads: so
    they see this one, and it fits nothing of theirs."""

    def match(self, text: str) -> bool:
        return _silent.get()


_filter: Any = ("ignore", _WhereSilent(), Warning, None, 0)


@cache
def _listen() -> None:
    """Filters that drop what is logged where it is silent, and nothing elsewhere."""
    for name in ("torch._subclasses.fake_tensor", "torch.fx", *_SYMBOLS):
        logging.getLogger(name).addFilter(lambda record: not _silent.get())


_SYMBOLS = (
    "torch.fx.experimental.symbolic_shapes",
    "torch.fx.experimental.recording",
    "torch.fx.experimental.sym_node",
)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No warning is shown, and torch does not log what fails: the failure is raised, and answered.
    Threads wait for each other here; others are not told less than they were."""
    _listen()
    with _one_at_a_time:
        # Not catch_warnings: two threads that change and restore the list could leave it changed.
        filters: Any = warnings.filters
        filters.insert(0, _filter)
        token = _silent.set(True)
        try:
            yield
        finally:
            _silent.reset(token)
            with contextlib.suppress(ValueError):  # somebody has reset the list
                filters.remove(_filter)
