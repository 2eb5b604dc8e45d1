"""The part of cgotorch.h that a C file uses, as a header of its own.

A generated package brings it along, so that it builds where gotorch is only a Go module, without
the path of its C headers. ABI in gotorch/graph says which version the declarations are of.
"""

from __future__ import annotations

import re
from functools import cache

from ...native import toolchain
from ...native.versions import REFERENCE_TORCH
from .folder import GENERATED_C

_REVISION = 3
"""Counts the changes of the C functions that are ours and not PyTorch's. The second: their symbols
begin with cgotorch_. The third: blocks have words for tensors."""

ABI = f"ABI{REFERENCE_TORCH.replace('.', '_')}r{_REVISION}"
"""The constant of gotorch/graph that a generated package names."""

_SYMBOL = re.compile(r"\bCGOTORCH_SYMBOL\((\w+)\)")

_WORD = re.compile(r"\b[A-Za-z_]\w*\b")


@cache
def _headers() -> str:
    """cgotorch.h and everything that it includes, without comments and directives."""
    folder = toolchain.ROOT / "cgotorch"

    def read(name: str) -> str:
        text = re.sub(r"/\*.*?\*/", " ", (folder / name).read_text(), flags=re.S)
        text = re.sub(r"\\\n", " ", text)
        return re.sub(r'^#include "(.*)"$', lambda m: read(m[1]), text, flags=re.M)

    return re.sub(r'^\s*#.*$|^extern "C" \{$|^\}$', "", read("cgotorch.h"), flags=re.M)


@cache
def _declarations() -> tuple[dict[str, str], dict[str, str]]:
    """The functions, and the types and enums, each by its name with its text."""
    functions: dict[str, str] = {}
    types: dict[str, str] = {}
    depth, start, text = 0, 0, _headers()
    for i, c in enumerate(text):
        depth += (c == "{") - (c == "}")
        if c != ";" or depth:
            continue
        one = " ".join(text[start : i + 1].split())
        start = i + 1
        if one.startswith("CGOTORCH_API"):
            name = re.match(r"[^(]*?(\w+)\(", one)
            if name:
                one = _SYMBOL.sub(r'__asm__("cgotorch_\1")', one)
                functions[name[1]] = one.removeprefix("CGOTORCH_API ")
        elif one.startswith("typedef"):
            name = re.search(r"\(\*(\w+)\)\(", one) or re.search(r"(\w+);$", one)
            if name:
                types[name[1]] = one
        elif one.startswith(("enum", "struct")) and "{" in one:
            if one.startswith("enum"):
                for word in _WORD.findall(one.partition("{")[2]):
                    types.setdefault(word, one)
            tag = re.match(r"(?:enum|struct) (\w+)", one)
            if tag:
                types[tag[1]] = one
    return functions, types


def header(*sources: str) -> str:
    """The declarations that C sources use."""
    functions, types = _declarations()
    used = {w for source in sources for w in _WORD.findall(source)}
    called = [text for name, text in functions.items() if name in used]
    # In the order of the headers, where a type comes before those who use it.
    order = list(dict.fromkeys(types.values()))
    wanted: set[str] = set()
    pending = [*(w for text in called for w in _WORD.findall(text)), *used, "Tensor"]
    seen: set[str] = set()
    while pending:
        word = pending.pop()
        if word in seen:
            continue
        seen.add(word)
        text = types.get(word)
        if text is not None and text not in wanted:
            wanted.add(text)
            pending += _WORD.findall(text)
    parts = [
        GENERATED_C.strip(),
        "/* What this package uses of gotorch's cgotorch.h, which describes it. */",
        "#ifndef CGOTORCH_H\n#define CGOTORCH_H\n",
        "#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n",
        '#ifdef __cplusplus\nextern "C" {\n#endif\n',
        *(t for t in order if t in wanted),
        "",
        *called,
        "",
        "#ifdef __cplusplus\n}\n#endif\n\n#endif",
    ]
    return "\n".join(parts) + "\n"
