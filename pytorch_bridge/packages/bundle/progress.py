"""The progress of a bundle, as one line on a terminal: the current step, a bar, and bytes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TextIO

_WIDTH = 24
_PERIOD = 0.1  # of new lines, in seconds


class _Line:
    """The line of a terminal. `total` is 0 where nobody knows how much there is to do."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.what, self.total, self.bytes, self.shown = "", 0, 0, 0.0

    def show(self) -> None:
        self.shown = time.monotonic()
        text = f"{self.what} ..."
        if self.total:
            part = min(1.0, self.bytes / self.total)
            bar = "#" * int(part * _WIDTH)
            done, whole = self.bytes / 1e6, self.total / 1e6
            text = f"{self.what} [{bar:.<{_WIDTH}}] {done:.0f} of {whole:.0f} MB"
        self.write(text)

    def write(self, text: str) -> None:
        # Whatever becomes of the terminal, the bundle is made.
        try:
            self.stream.write(f"\r\x1b[K{text}")
            self.stream.flush()
        except (OSError, ValueError):
            pass


_LINE: ContextVar[_Line | None] = ContextVar("_LINE", default=None)


@contextmanager
def shown(stream: TextIO) -> Iterator[None]:
    """Shows what is done within it, if the stream is a terminal. The line is gone in the end."""
    if not stream.isatty():
        yield
        return
    line = _Line(stream)
    before = _LINE.set(line)
    try:
        yield
    finally:
        _LINE.reset(before)
        line.write("")


def step(what: str, total: int = 0) -> None:
    """Begins something that takes `total` bytes."""
    if line := _LINE.get():
        line.what, line.total, line.bytes = what, total, 0
        line.show()


def add(n: int) -> None:
    """Says that so many bytes more are done."""
    if line := _LINE.get():
        line.bytes += n
        if time.monotonic() - line.shown >= _PERIOD:
            line.show()
