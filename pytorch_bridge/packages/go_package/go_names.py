"""Names in Go for what Python has named."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import Path

from ...errors import BridgeTypeError, BridgeValueError
from ...schema.names import GO_KEYWORDS, Names

# What generated code calls things, and what Go predeclares.
_WORDS = """
    C Net _ append base64 block cap close comparable complex complex64 complex128 clear constants
    copy delete err error false filepath float32 golden gotorch graph graphtest imag init int int8
    int16 int32 iota make max min net op os panic print println real recover result rune sync t
    testing true uint uint8 uint16 uint32 uint64 uintptr weights
"""
_TAKEN = GO_KEYWORDS | frozenset(_WORDS.split())
# A program cannot import these, or Go does not compile them.
_NO_PACKAGE = ("main", "init", "documentation")


@functools.cache
def _names() -> Names:
    return Names()


def parameters(names: Iterable[str | None], letter: str) -> list[str]:
    """Names of Go parameters, each another: `input_ids` is inputIDs, what Go cannot have is in0."""
    found: list[str] = []
    for i, name in enumerate(names):
        bare = re.sub(r"\W+", "_", name or "", flags=re.A).strip("_")
        made = _names().go_parameter(bare) if bare and not bare[0].isdigit() else f"{letter}{i}"
        made = re.sub(r"_+$", "", made) or f"{letter}{i}"
        if made in _TAKEN or re.fullmatch(r"out\d+", made):
            made += "_"
        while made in found:
            made += "_"
        found.append(made)
    return found


def fields(names: Iterable[str]) -> list[str]:
    """Names of the fields of a Go struct, each another."""
    found: list[str] = []
    for i, name in enumerate(names):
        bare = re.sub(r"\W+", "_", name, flags=re.A).strip("_")
        made = _names().camel(bare) if bare else ""
        if not re.match(r"[A-Z]", made):
            made = f"Out{made or i}"
        while made in found:
            made += "_"
        found.append(made)
    return found


def module(path: str) -> None:
    """BridgeValueError unless Go takes path for the path of a module."""
    why = ""
    if not isinstance(path, str):
        raise BridgeTypeError(f"export_go: module is a string, not {path!r}")
    parts = path.split("/")
    if not path:
        why = "it is empty"
    elif strange := re.sub(r"[A-Za-z0-9._~/-]", "", path):
        why = f"{strange[0]!r} is not allowed: ASCII letters, digits and . - _ ~ / are"
    elif any(not p for p in parts):
        why = "a part between slashes is empty"
    elif any(p.startswith(".") or p.endswith(".") for p in parts):
        why = "a part begins or ends with a dot"
    elif path.startswith("-"):
        why = "it begins with a dash"
    elif len(parts) > 1 and re.fullmatch(r"v0\d*|v1", parts[-1]):
        why = "a major version at the end is v2 or later"
    if why:
        raise BridgeValueError(
            f"export_go: module={path!r} is no path for a Go module: {why}; "
            'one is module="example.com/digits"'
        )


def package(name: str | None, folder: Path) -> str:
    """The name of a package: the one that is given, or one from its folder."""
    if name is None:
        name = re.sub(r"\W|_", "", folder.name, flags=re.A).lower()
        if not re.match(r"[a-z]", name) or name in GO_KEYWORDS or name in _NO_PACKAGE:
            raise BridgeValueError(
                f"export_go: no Go package can be named after the folder {folder.name!r}; give "
                "package="
            )
        return name
    fits = re.fullmatch(r"[a-z][a-z0-9_]*", name) and not name.endswith("_test")
    if not fits or name in GO_KEYWORDS or name in _NO_PACKAGE:
        raise BridgeValueError(
            f"export_go: package={name!r} is no name for a Go package: take lower-case letters and "
            f"digits, and neither {', '.join(_NO_PACKAGE)} nor what ends in _test"
        )
    return name


def exported(name: str) -> str:
    """BridgeValueError unless name is one that Go exports."""
    if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", name) or name == "C":
        raise BridgeValueError(
            f"export_go: name={name!r} is no name for a Go function that other packages can call: "
            "take letters and digits, the first an upper-case letter"
        )
    return name


def quoted(text: str) -> str:
    """A Go string literal."""
    return '"' + "".join(_quoted(c) for c in text) + '"'


def _quoted(c: str) -> str:
    if c in '"\\':
        return "\\" + c
    if "\ud800" <= c <= "\udfff":  # half a character, which Go refuses
        c = "\ufffd"
    return c if " " <= c <= "~" else f"\\U{ord(c):08x}"


def remark(text: str) -> str:
    """The text in one line of a comment."""
    return "".join(c if c.isprintable() else " " for c in text)
