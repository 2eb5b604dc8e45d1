"""Reads the declarations that a type writes in C, as far as is needed to check their names."""

from __future__ import annotations

import re

_NOT_CODE = re.compile(
    r"""/\*.*?\*/ | //[^\n]* | "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' | ^[ \t]*\#(?:\\\n|[^\n])*""",
    re.S | re.M | re.X,
)
_OPEN, _CLOSE = "([{", ")]}"
_TYPE_ALONE = re.compile(r"\s*(?:struct|union|enum|class)\b[\s\w]*$")
_POINTER_TO_FUNCTION = re.compile(r"\(\s*(?:[\w:]+\s*::\s*)?[*&]+\s*(?:const\s+)?(\w+)")


def without_text(code: str) -> str:
    """A piece of C without its comments, strings and preprocessor lines."""
    return _NOT_CODE.sub(" ", code)


def statements(code: str) -> list[str]:
    """The statements of a piece of C at its outermost level, without comments and strings."""
    code = without_text(code)
    found, depth, start = [], 0, 0
    for i, c in enumerate(code):
        depth += (c in _OPEN) - (c in _CLOSE)
        if c == ";" and depth == 0:
            found.append(code[start:i])
            start = i + 1
    return [s.strip() for s in [*found, code[start:]] if s.strip()]


def _drop_groups(text: str, opening: str, closing: str) -> str:
    out, depth = [], 0
    for c in text:
        if c == opening:
            depth += 1
        elif c == closing and depth:
            depth -= 1
        elif depth == 0:
            out.append(c)
    return "".join(out)


def _split(text: str) -> list[str]:
    """Splits at the commas outside all brackets; <> count where they are not comparisons."""
    pieces, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([<") - (c in ")]>")
        if c == "," and depth == 0:
            pieces.append(text[start:i])
            start = i + 1
    return [*pieces, text[start:]]


def declared(code: str) -> list[str]:
    """The names of the variables that a piece of C declares; types are left out."""
    names = []
    for statement in statements(code):
        text = _drop_groups(statement, "{", "}")
        if re.match(r"(typedef|using)\b", text) or _TYPE_ALONE.match(text):
            # `struct s { ... } x` declares x; `struct s { ... }` and `struct s` declare nothing.
            after = statement.rpartition("}")[2] if "}" in statement else ""
            if re.match(r"(typedef|using)\b", text) or not after.strip():
                continue
            text = "struct " + after
        # What follows a = is a value; with the = go commas that are no separators.
        text = re.sub(r"=(?:[^,()]|\((?:[^()]|\([^()]*\))*\))*", "", text)
        for piece in _split(text):
            function = _POINTER_TO_FUNCTION.search(piece)
            if function:
                names.append(function[1])
                continue
            piece = _drop_groups(_drop_groups(piece, "[", "]"), "<", ">")
            words = re.findall(r"[A-Za-z_]\w*", _drop_groups(piece, "(", ")"))
            inside = re.findall(r"[A-Za-z_]\w*", piece)
            if len(words) == 1 and "(" in piece and len(inside) > 1:
                names.append(inside[-1])  # MACRO(name)
            elif words:
                names.append(words[-1])
    return names


def mentions(identifier: str, name: str) -> bool:
    """Whether an identifier has `name` in it: V1_data has V1, V10 has not."""
    return re.search(rf"{re.escape(name)}(?!\d)", identifier) is not None
