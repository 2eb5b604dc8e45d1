"""What the functions of the C ABI take and give, read from cgotorch's own headers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from ..native.toolchain import ROOT
from ..schema.corrections import corrections

HEADERS = ROOT / "cgotorch"


@dataclass(frozen=True)
class DeclaredParameter:
    """One parameter of a C function: `const int64_t *dim` has the type "const int64_t *"."""

    ctype: str
    name: str


@dataclass(frozen=True)
class Declaration:
    """A function that returns NULL or an error: what it takes, and what it writes through its last
    parameters (their types are without the final `*`)."""

    name: str
    inputs: tuple[DeclaredParameter, ...]
    outputs: tuple[DeclaredParameter, ...]
    schema: str = ""  # of a native function

    @property
    def fresh(self) -> bool:
        """Whether the results share no memory with the arguments, for all that is known."""
        if not self.schema:
            return False
        head, _, result = self.schema.partition(" -> ")
        if "(" in result.replace("()", "").strip("()"):
            return False
        name = head.partition("(")[0]
        known = corrections()["views"]
        return name not in known and name.partition(".")[0] + ".*" not in known

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{p.ctype} {p.name}' for p in self.inputs)})"


_DECLARATION = re.compile(
    r"(?:^ \*     (?P<schema>\S.*?) \*/\n)?CGOTORCH_API const char \*(\w+)\(([^;]*?)\)"
    r"(?:\s*CGOTORCH_SYMBOL\(\w+\))?;",
    re.M,
)
_PARAMETER = re.compile(r"(.*?)(\w+)\s*$", re.S)


@cache
def _declarations() -> dict[str, tuple[str, str]]:
    """Parameters and schema, by name."""
    found: dict[str, tuple[str, str]] = {}
    for path in sorted(HEADERS.glob("*.h")):
        for schema, name, parameters in _DECLARATION.findall(path.read_text()):
            found.setdefault(name, (parameters, schema))
    return found


def _parameter(text: str) -> DeclaredParameter:
    match = _PARAMETER.fullmatch(" ".join(text.split()))
    assert match is not None, text
    return DeclaredParameter(match[1].strip(), match[2])


@cache
def c_function(name: str) -> Declaration | None:
    """The function of cgotorch.h, or None where it has none of that name and convention."""
    text, schema = _declarations().get(name, (None, ""))
    if text is None or "(" in text:  # those that take callbacks are not for generated code
        return None
    parameters = [] if text.strip() in ("", "void") else [_parameter(p) for p in text.split(",")]
    split = len(parameters)
    while split > 0:
        ctype = parameters[split - 1].ctype
        if not ctype.endswith("*") or ctype.startswith("const ") or ctype in ("void *", "FILE *"):
            break
        split -= 1
    outputs = tuple(DeclaredParameter(p.ctype[:-1].strip(), p.name) for p in parameters[split:])
    return Declaration(name, tuple(parameters[:split]), outputs, schema)
