"""Graphs to look at: `dprint` as a tree, `draw` as an SVG."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any, Protocol, TextIO, TypeAlias

from ..errors import BridgeTypeError
from .basic import Apply, Constant, Variable, toposort


class GraphLike(Protocol):
    """A graph or a model."""

    @property
    def inputs(self) -> Sequence[Variable]: ...
    @property
    def outputs(self) -> Sequence[Variable]: ...


class CompiledLike(Protocol):
    """A compiled function."""

    @property
    def fgraph(self) -> GraphLike: ...


Drawable: TypeAlias = Variable | Apply | Sequence[Variable] | GraphLike | CompiledLike


def _outputs(graph: Drawable) -> tuple[list[Variable], list[Variable]]:
    """The inputs and the outputs of what can be printed: a variable, variables, a node, a
    FunctionGraph, a compiled function."""
    graph = getattr(graph, "fgraph", graph)
    if isinstance(graph, Variable):
        return [], [graph]
    if isinstance(graph, Apply):
        return [], list(graph.outputs)
    if hasattr(graph, "outputs") and hasattr(graph, "inputs"):
        return list(graph.inputs), list(graph.outputs)
    if isinstance(graph, (list, tuple)) and all(isinstance(v, Variable) for v in graph):
        return [], list(graph)
    raise BridgeTypeError(f"expected variables or a graph, got {graph!r}")


# What XML cannot have, however it is written.
_NO_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _escaped(text: str) -> str:
    return escape(_NO_XML.sub("\ufffd", text))


_DEEPEST = 50  # levels that are indented


def _letters(n: int) -> str:
    """A, B, ... Z, AA, AB, ..."""
    text = ""
    n += 1
    while n:
        n, r = divmod(n - 1, 26)
        text = chr(ord("A") + r) + text
    return text


def dprint(
    graph: Drawable,
    print_type: bool = False,
    depth: int = -1,
    file: TextIO | str | None = None,
) -> str | None:
    """Prints a graph as a tree: each variable below what it is computed for, with an id that is
    the same wherever it appears; what has been shown is not shown again.

        >>> x = pb.TensorType("float32", ())("x")
        >>> pb.dprint(x.exp() * 2)
        mul.Scalar{other=2} [id A]
         └─ exp [id B]
             └─ x [id C]

    `depth` limits the tree; `file` is where to print, or "str": then the text is returned.
    """
    _, outputs = _outputs(graph)
    ids: dict[Variable | Apply, str] = {}
    shown: set[Apply] = set()
    lines: list[str] = []
    # (variable, what is in front of it, what is in front of what is below, level)
    pending: list[tuple[Variable, str, str, int]] = [(v, "", "", 0) for v in reversed(outputs)]
    while pending:
        v, here, below, level = pending.pop()
        key: Variable | Apply = v if v.owner is None else v.owner
        known = ids.setdefault(key, _letters(len(ids)))
        kind = f" <{v.type}>" if print_type else ""
        if v.owner is None:
            lines.append(f"{here}{v} [id {known}]{kind}")
            continue
        node = v.owner
        number = f".{v.index}" if len(node.outputs) > 1 else ""
        name = f" '{v.name}'" if v.name else ""
        lines.append(f"{here}{node.op}{number} [id {known}]{kind}{name}")
        if not node.inputs or (0 <= depth <= level):
            continue
        if node in shown:
            lines.append(f"{below} └─ ···")
            continue
        shown.add(node)
        last = len(node.inputs) - 1
        for i in range(last, -1, -1):
            corner, rail = (" └─ ", "    ") if i == last else (" ├─ ", " │  ")
            if level >= _DEEPEST:  # no wider: a long chain would be all indentation
                mark = f"(level {level + 1})"
                pending.append((node.inputs[i], mark + corner, mark + rail, level + 1))
                continue
            pending.append((node.inputs[i], below + corner, below + rail, level + 1))
    text = "\n".join(lines) + "\n"
    if file == "str":
        return text
    assert not isinstance(file, str)
    (file or sys.stdout).write(text)
    return None


# An SVG in layers: what is computed from inputs only at the top, and so on down.

_FONT = 13
_CHAR = 7.4  # the width of a character, roughly
_HEIGHT = 26
_GAP = 24
_LAYER = 74
_WIDEST = 44  # characters

_COLOURS = {
    "input": "#cfe8cf",
    "constant": "#e6e6e6",
    "output": "#cfdcf5",
    "op": "#fff6d8",
}


class _Box:
    def __init__(self, text: str, kind: str) -> None:
        self.text = text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"
        self.full = text
        self.kind = kind
        self.layer = 0
        self.x = 0.0
        self.into: list[_Box] = []  # what it is drawn from

    @property
    def width(self) -> float:
        return len(self.text) * _CHAR + 18

    @property
    def y(self) -> float:
        return self.layer * _LAYER + 10


def draw(graph: Drawable, path: str | Path, print_type: bool = True) -> None:
    """Draws a graph into an SVG file: inputs green, constants grey, ops yellow, outputs blue. The
    arrows have the types of what flows along them, which the pointer shows."""
    inputs, outputs = _outputs(graph)
    Path(path).write_text(_svg(inputs, outputs, print_type), encoding="utf-8")


def _svg(inputs: Sequence[Variable], outputs: Sequence[Variable], print_type: bool) -> str:
    boxes: dict[Any, _Box] = {}
    arrows: list[tuple[_Box, _Box, Variable]] = []

    def box(v: Variable) -> _Box:
        if v.owner is not None:
            return boxes[v.owner]
        if v not in boxes:
            kind = "constant" if isinstance(v, Constant) else "input"
            text = f"{v}: {v.type}" if print_type and v.name else str(v)
            boxes[v] = _Box(text, kind)
        return boxes[v]

    for v in inputs:
        box(v)
    for node in toposort(outputs, inputs):
        new = _Box(str(node.op), "op")
        for v in node.inputs:
            source = box(v)
            new.into.append(source)
            arrows.append((source, new, v))
        boxes[node] = new
        new.layer = 1 + max((b.layer for b in new.into), default=0)
    for i, v in enumerate(outputs):
        end = _Box(v.name or (f"output {i}" if len(outputs) > 1 else "output"), "output")
        source = box(v)
        end.into.append(source)
        end.layer = source.layer + 1
        arrows.append((source, end, v))
        boxes["output", i] = end
    # What feeds one place only stands right above it.
    uses: dict[int, list[_Box]] = {}
    for source, target, _ in arrows:
        uses.setdefault(id(source), []).append(target)
    for b in boxes.values():
        if not b.into and id(b) in uses:
            b.layer = min(t.layer for t in uses[id(b)]) - 1
    _place(list(boxes.values()))
    return _text(list(boxes.values()), arrows)


def _place(boxes: list[_Box]) -> None:
    """Gives every box an x: in its layer, near the middle of what it is drawn from."""
    layers: dict[int, list[_Box]] = {}
    for b in boxes:
        layers.setdefault(b.layer, []).append(b)
    for layer in sorted(layers):
        row = layers[layer]
        middles = {
            id(b): sum(s.x + s.width / 2 for s in b.into) / len(b.into) if b.into else None
            for b in row
        }
        order = sorted(
            range(len(row)),
            key=lambda i: (middles[id(row[i])] is None, middles[id(row[i])] or 0, i),
        )
        x = 0.0
        for i in order:
            b = row[i]
            middle = middles[id(b)]
            b.x = max(x, middle - b.width / 2) if middle is not None else x
            x = b.x + b.width + _GAP
    left = min((b.x for b in boxes), default=0)
    for b in boxes:
        b.x += 10 - left


def _text(boxes: Iterable[_Box], arrows: Iterable[tuple[_Box, _Box, Variable]]) -> str:
    boxes = list(boxes)
    width = max((b.x + b.width for b in boxes), default=0) + 10
    height = max((b.y for b in boxes), default=0) + _HEIGHT + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="monospace" font-size="{_FONT}">',
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
        'markerHeight="8" orient="auto"><path d="M0 0 8 4 0 8z" fill="#666"/></marker></defs>',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>',
    ]
    for source, target, v in arrows:
        x1, y1 = source.x + source.width / 2, source.y + _HEIGHT
        x2, y2 = target.x + target.width / 2, target.y
        middle = (y1 + y2) / 2
        parts.append(
            f'<path d="M{x1:.1f} {y1:.1f}C{x1:.1f} {middle:.1f} {x2:.1f} {middle:.1f} '
            f'{x2:.1f} {y2:.1f}" fill="none" stroke="#666" marker-end="url(#arrow)">'
            f"<title>{_escaped(str(v.type))}</title></path>"
        )
    for b in boxes:
        parts.append(
            f'<g><title>{_escaped(b.full)}</title><rect x="{b.x:.1f}" y="{b.y:.1f}" '
            f'width="{b.width:.1f}" height="{_HEIGHT}" rx="5" fill="{_COLOURS[b.kind]}" '
            f'stroke="#888"/><text x="{b.x + b.width / 2:.1f}" y="{b.y + 17:.1f}" '
            f'text-anchor="middle">{_escaped(b.text)}</text></g>'
        )
    return "\n".join([*parts, "</svg>\n"])
