"""How the fragments that types and ops write make up one C function.

A block is something that is entered and left: a variable is initialised or extracted, then cleaned
up; a node's code runs, then its cleanup. Blocks are entered in order and left in reverse. Whatever
fails goes to the end of its own block, and so leaves it and all those before it, and no other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class Block:
    """`fail` code inside `enter` is a goto to `label`, which stands before `leave`."""

    label: str
    title: str  # a comment; it does not count in the key of the cache
    enter: str
    leave: str = ""

    @property
    def jumped_to(self) -> bool:
        return re.search(rf"\bgoto {self.label};", self.enter) is not None


def braced(code: str) -> str:
    """The code as a block of its own, so that a goto out of it passes no declaration."""
    code = code.strip()
    return f"{{\n{code}\n}}" if code else ""


def nest(blocks: Sequence[Block]) -> str:
    """The blocks in C, one after the other and back again.

    They are not nested in the text: ten thousand nodes would be as many levels of braces.
    """
    lines = []
    for block in blocks:
        if block.enter:
            lines += [remark(block.title), block.enter]
    for block in reversed(blocks):
        if block.jumped_to:
            lines.append(f"{block.label}:;")
        if block.leave:
            lines.append(block.leave)
    return "\n".join(lines)


_REMARK = "/*\0 "  # before a remark, and in no C that others write: no compiler takes a NUL


def remark(text: str) -> str:
    """A comment for the reader only: what is compiled does not depend on it."""
    text = "".join(c if c.isprintable() else " " for c in text)
    text = re.sub(r" at 0x[0-9a-fA-F]+", "", " ".join(text.split()))
    text = text.replace("*/", "* /").replace("/*", "/ *")
    if len(text) > _WIDTH:
        text = text[: _WIDTH - 3] + "..."
    return f"{_REMARK}{text} */" if text else ""


def without_remarks(code: str) -> str:
    return re.sub(rf"[ \t]*{re.escape(_REMARK)}.*?\*/\n?", "", code, flags=re.S)


def shown(code: str) -> str:
    """The code with its remarks as plain comments."""
    return code.replace(_REMARK, "/* ")


_WIDTH = 96  # of a line


_TOKEN = re.compile(
    r"""/\*.*?\*/ | //[^\n]* | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' | [{}()] """, re.S | re.X
)
_LABEL = re.compile(r"[A-Za-z_]\w*:;?$")


def _broken(start: str, line: str) -> list[str]:
    """The line, in several where it is long: after commas that are in no string or comment."""
    lines = []
    bare = _TOKEN.sub(lambda m: m[0] if len(m[0]) == 1 else "_" * len(m[0]), line)
    while len(start) + len(line) > _WIDTH + 4:
        cut = bare.rfind(", ", 0, _WIDTH - len(start))
        if cut <= 0:
            break
        lines.append(start + line[: cut + 1])
        line, bare = line[cut + 2 :], bare[cut + 2 :]
        start = "    " + start if len(lines) == 1 else start
    return [*lines, start + line]


def indented(code: str) -> str:
    """The code with its lines indented by braces and without needless blank lines."""
    if 'R"' in code:  # a raw string of C++ is not ours to change
        return code
    out: list[str] = []
    braces = parentheses = 0
    in_comment = in_macro = open_end = False
    for raw in code.split("\n"):
        line = raw.strip()
        if not in_macro and out and out[-1].endswith("\\"):
            out.append(raw)  # perhaps within a string, which spaces belong to
            continue
        if in_macro or line.startswith("#"):
            in_macro = raw.rstrip().endswith("\\")
            out.append(raw.rstrip() if raw.lstrip() != line or not line.startswith("#") else line)
            continue
        if in_comment:
            in_comment = "*/" not in line
            out.append("  " * braces + (" " if line.startswith("*") else "") + line)
            continue
        if not line:
            if out and out[-1]:
                out.append("")
            continue
        level = braces
        for c in line:
            if c != "}":
                break
            level -= 1
        if _LABEL.match(line) and not line.startswith("default"):
            level -= 1
        further = "    " if parentheses or open_end else ""
        start = "  " * max(level, 0) + (further if line[0] not in "{}" else "")
        out += _broken(start, line)
        bare = _TOKEN.sub(lambda m: m[0] if len(m[0]) == 1 else " ", line)
        braces = max(braces + bare.count("{") - bare.count("}"), 0)
        parentheses = max(parentheses + bare.count("(") - bare.count(")"), 0)
        in_comment = "/*" in bare
        if bare.strip():  # more than a comment
            open_end = bare.rstrip()[-1] not in ";{}:,"
    return "\n".join(out).strip() + "\n"
