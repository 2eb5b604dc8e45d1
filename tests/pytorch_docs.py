"""What PyTorch's documentation has, read from its sources: the folder docs/source of PyTorch.

Sphinx makes a page of each entry of an autosummary with a toctree, and an anchor of what an auto... directive, a
heading or a label names.
"""

from __future__ import annotations

import importlib
import inspect
import re
from dataclasses import dataclass, field
from pathlib import Path

_DIRECTIVE = re.compile(r"( *)\.\. ([\w:]+):: *(.*)")
_OPTION = re.compile(r" +:([\w-]+):")
_ENTRY = re.compile(r" +~?([\w.]+)$")
_LABEL = re.compile(r"\(([\w. -]+)\)=$|\.\. _([\w. -]+):$")
_ANCHORED = re.compile(r"auto(function|class|attribute|data|exception|method|property)$")


def in_torch(name: str) -> object | None:
    """What the installed torch has under a full name."""
    parts = name.split(".")
    for n in range(len(parts), 0, -1):
        try:
            value: object = importlib.import_module(".".join(parts[:n]))
        except ImportError:
            continue
        for part in parts[n:]:
            value = getattr(value, part, None)
            if value is None:
                break
        else:
            return value
    return None


def slug(heading: str) -> str:
    """The anchor of a heading, as docutils makes it."""
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"\{\w+\}|`", "", heading).lower()).strip("-")


@dataclass
class Documented:
    """Pages by their names, "special" or "generated/torch.mm", with the anchors that each has."""

    anchors: dict[str, set[str]] = field(default_factory=dict)

    def has(self, page: str, anchor: str = "") -> bool:
        if page not in self.anchors:
            return False
        if not anchor or anchor in self.anchors[page]:
            return True
        # The page of a class has its members.
        of_class = page.removeprefix("generated/")
        return anchor == of_class or (
            anchor.startswith(f"{of_class}.")
            and inspect.isclass(in_torch(of_class))
            and in_torch(anchor) is not None
        )


def documented(folder: Path) -> Documented:
    """What the sources in a folder make."""
    result = Documented()
    for path in sorted([*folder.rglob("*.md"), *folder.rglob("*.rst")]):
        _read(path, str(path.relative_to(folder).with_suffix("")), result)
    return result


def _full(name: str, module: str) -> str:
    """A name as Sphinx looks it up: in the current module first."""
    name = name.removeprefix("~").partition("(")[0].strip()
    if name.startswith("torch."):
        return name
    inside = f"{module}.{name}"
    return inside if module and (in_torch(inside) is not None or in_torch(name) is None) else name


def _read(path: Path, page: str, into: Documented) -> None:
    anchors = into.anchors.setdefault(page, set())
    module = owner = summary = ""
    summary_indent = -1  # inside of an autosummary: how far it is indented
    makes_pages = False
    lines = path.read_text().splitlines()
    for at, line in enumerate(lines):
        if m := _LABEL.match(line):
            anchors.add(slug(m[1] or m[2]))
        if m := re.match(r"#+ (.*)", line):
            anchors.add(slug(m[1]))
        elif at and line and set(line) <= set("=-~^") and len(line) >= len(lines[at - 1]) > 0:
            anchors.add(slug(lines[at - 1]))
        if m := _DIRECTIVE.match(line):
            indent, kind, name = len(m[1]), m[2], m[3].strip()
            summary_indent = indent if kind == "autosummary" else -1
            makes_pages = False
            if kind in ("currentmodule", "module", "py:module", "automodule"):
                module = name
                if kind != "currentmodule":
                    anchors.add(f"module-{name}")
            elif _ANCHORED.match(kind):
                full = f"{owner}.{name}" if kind == "automethod" and indent else _full(name, module)
                anchors.add(full)
                owner = full if kind == "autoclass" else owner
            summary = name if kind == "automodule" else _full(name, module) if name else ""
            continue
        if summary_indent >= 0:
            if line.strip() and len(line) - len(line.lstrip()) <= summary_indent:
                summary_indent = -1
            elif (m := _OPTION.match(line)) is not None:
                makes_pages = makes_pages or m[1] == "toctree"
            elif makes_pages and (m := _ENTRY.match(line)):
                into.anchors.setdefault(f"generated/{_full(m[1], module)}", set())
        elif (m := _OPTION.match(line)) and m[1] == "members":
            value = in_torch(summary)
            names = getattr(value, "__all__", None) or [n for n in dir(value) if n[0] != "_"]
            anchors.update(f"{summary}.{n}" for n in names)
