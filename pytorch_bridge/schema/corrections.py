"""What is said of PyTorch's native functions: the lines of the reference file, and where
corrections.yaml corrects them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from .functions import REFERENCE_FILE
from .tables import read_table

CORRECTIONS_FILE = Path(__file__).with_name("corrections.yaml")


class _Input:
    """Stands in an op's arguments where the node has an input."""

    def __repr__(self) -> str:
        return "·"

    def __sameness__(self) -> tuple[()]:
        return ()

    def __reduce__(self) -> str:
        return "IN"  # the one that there is, in copies and other processes too


IN = _Input()


@cache
def lines() -> dict[str, tuple[str, ...]]:
    """The fields of the reference file's lines, by full name."""
    found = {}
    for line in REFERENCE_FILE.read_text().splitlines():
        if line and not line.startswith("#"):
            fields = tuple(line.split("\t"))
            found[fields[3].partition("(")[0]] = fields
    return found


@cache
def overloads() -> dict[str, list[str]]:
    """The full names by base name, in the file's order."""
    found: dict[str, list[str]] = {}
    for name in lines():
        found.setdefault(name.partition(".")[0], []).append(name)
    return found


@cache
def corrections() -> dict[str, Any]:
    return read_table(CORRECTIONS_FILE)


def corrected(table: str, name: str) -> Any:
    entries = corrections()[table]
    for key in (name, name.partition(".")[0] + ".*"):
        if key in entries:
            return entries[key] if isinstance(entries, dict) else True
    return None
