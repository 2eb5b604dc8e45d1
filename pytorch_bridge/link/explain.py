"""What to say when a compiled graph fails: where, and what the graph is like there."""

from __future__ import annotations

import builtins
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import BridgeTypeError, BridgeValueError
from ..graph.basic import Apply, Constant, Variable, among
from ..types.schema_types import describe

_NEIGHBOURS = 3  # nodes shown before and after the one that failed


@dataclass(frozen=True, eq=False)
class GraphPlace:
    """A place in a graph where its code can fail.

    `phase` is "extract" (an input is taken from its Python object), "init" (a variable is
    initialised), "code" (a node runs) or "sync" (an output is made a Python object). An exception
    that comes from a compiled graph has it as the attribute `graph_place`.
    """

    phase: str
    variable: Variable | None = None
    node: Apply | None = None
    input: int | None = None  # the number of the variable among the graph's inputs


class VariableNames:
    """What the variables of a graph are called: their names, else a letter and a number."""

    def __init__(self, inputs: Sequence[Variable], order: Sequence[Apply]) -> None:
        self._names: dict[Variable, str] = {}
        for i, v in enumerate(inputs):
            self._names[v] = v.name or f"in{i}"
        number = constants = 0
        for node in order:
            for v in node.inputs:
                # The values of a tensor say nothing about which one it is.
                if isinstance(v, Constant) and v not in self._names and _has_dims(v.data):
                    self._names[v] = v.name or f"c{constants}"
                    constants += v.name is None
            for v in node.outputs:
                if v not in self._names:
                    self._names[v] = v.name or f"t{number}"
                    number += v.name is None

    def __getitem__(self, v: Variable) -> str:
        if v in self._names:
            return self._names[v]
        return str(v) if isinstance(v, Constant) or v.name else "?"

    def line(self, node: Apply) -> str:
        """`a = add(x, y)`"""
        left = ", ".join(self[v] for v in node.outputs)
        return f"{left} = {node.op}({', '.join(self[v] for v in node.inputs)})".removeprefix(" = ")


def _has_dims(value: Any) -> bool:
    return bool(getattr(value, "ndim", 0))


def picture(order: Sequence[Apply], at: int, names: VariableNames) -> str:
    """The node with its number and those around it: what computes its inputs, what uses it."""
    node = order[at]
    made_by = {v: i for i, n in enumerate(order[:at]) for v in n.outputs}
    before = sorted({made_by[v] for v in node.inputs if v in made_by})[-_NEIGHBOURS:]
    mine = set(node.outputs)
    after = [i for i in range(at + 1, len(order)) if not mine.isdisjoint(order[i].inputs)]
    lines = []
    for i in [*before, at, *after[:_NEIGHBOURS]]:
        lines.append(f"{'->' if i == at else '  '} {i:>3}  {names.line(order[i])}")
    return "\n".join(lines)


class Explainer:
    """Makes the exception for a failure of one graph."""

    def __init__(
        self,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],
        order: Sequence[Apply],
        places: Sequence[GraphPlace],
    ) -> None:
        self.outputs = list(outputs)
        self.order = list(order)
        self.places = list(places)
        self.names = VariableNames(inputs, order)
        self.in_c: dict[str, str] = {}  # the name of each variable of the C code
        self.silent = False  # a part of a graph does not know where it is

    def where(self, place: GraphPlace, values: Sequence[Any] = ()) -> str:
        """The lines that say where a failure was; `values` are those of the node's inputs, where
        they are at hand."""
        names = self.names
        if place.node is None:
            assert place.variable is not None
            v = place.variable
            if place.input is not None:
                return f"In input {place.input}, {names[v]}, of type {v.type}"
            what = "output" if among(v, self.outputs) else "variable"
            return f"In {what} {names[v]}, of type {v.type}"
        at = self.order.index(place.node)
        lines = [f"In node {at} of {len(self.order)}, {place.node.op}"]
        if place.variable is not None:
            lines[0] += f", output {names[place.variable]}"
        given = dict(zip(place.node.inputs, map(describe, values), strict=False))
        for v in dict.fromkeys(place.node.inputs):
            if not isinstance(v, Constant):
                got = f", given {given[v]}" if v in given else ""
                lines.append(f"  input {names[v]}: {v.type}{got}")
        lines.append(picture(self.order, at, names))
        return "\n".join(lines)

    def at(self, number: int, error: BaseException, values: Sequence[Any]) -> None:
        """Adds to an exception what is to be said of a place, a node that was given values."""
        self(number, None, error, values)

    def _named(self, message: str) -> str:
        """The message with the names of variables where the C code, which does not depend on
        them, has `{V1}`."""
        return re.sub(r"\{(V\d+)\}", lambda m: self.in_c.get(m[1], m[0]), message)

    def __call__(
        self,
        number: int,
        message: str | None,
        raised: BaseException | None,
        values: Sequence[Any] = (),
    ) -> BaseException:
        """The exception for a failure at the place of a number, 0 for none; `message` is one of
        the C ABI, `raised` what was set in Python."""
        place = self.places[number - 1] if number else None
        if message is not None:
            message = self._named(message)
        elif raised is not None and len(raised.args) == 1 and isinstance(raised.args[0], str):
            raised.args = (self._named(raised.args[0]),)
        where = ""
        if not self.silent and (place is None or not _explains_itself(place)):
            where = "\n" + (self.where(place, values) if place else "In a c_sync")
        if message is not None:
            error: BaseException = exception(message, place, where)
            error.__cause__ = raised
        elif raised is not None:
            error = _extended(raised, where)
        else:
            what = place.phase if place else "sync"
            error = RuntimeError(
                f"the C code of this {'node' if place and place.node else what} failed "
                f"without setting an exception{where}"
            )
        if place is not None:
            error.graph_place = place  # type: ignore[attr-defined]
        return error


def picture_of(node: Apply) -> str:
    """A node with what computes its inputs."""
    near = list(dict.fromkeys(v.owner for v in node.inputs if v.owner is not None))
    order = [*near, node]
    return picture(
        order, len(near), VariableNames([v for v in node.inputs if v.owner is None], order)
    )


def exception(message: str, place: GraphPlace | None, where: str) -> Exception:
    """The Python exception for a "KindError: text" of the C ABI."""
    kind, colon, text = message.partition(": ")
    if not colon:
        kind, text = "RuntimeError", message
    refused = place is not None and (place.phase == "extract" or _explains_itself(place))
    found = _class(kind, of_type=refused)
    if found is None:
        found, text = RuntimeError, message
    return found(f"{text}{where}")


def _explains_itself(place: GraphPlace) -> bool:
    """Whether the place is a check whose message says all that there is to say."""
    return place.node is not None and place.node.op.explains_itself


def _class(kind: str, of_type: bool) -> type[Exception] | None:
    # What a type refuses is this package's error; what PyTorch refuses is raised as PyTorch does.
    if of_type and kind in ("TypeError", "ValueError"):
        return BridgeTypeError if kind == "TypeError" else BridgeValueError
    found: Any = getattr(builtins, kind, None)
    if found is None:
        import torch

        homes = {"LinAlgError": torch.linalg, "Dist": torch.distributed}
        home = homes.get(kind) or (torch.distributed if kind.startswith("Dist") else torch)
        found = getattr(home, kind, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else None


def short(value: Any) -> str:
    """A picture of a value in one line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 120 else text[:117] + "..."


def _extended(error: BaseException, where: str) -> BaseException:
    """The same exception, which now also says where it was."""
    if len(error.args) == 1 and isinstance(error.args[0], str) and not isinstance(error, KeyError):
        if not error.args[0].endswith(where):
            error.args = (f"{error.args[0]}{where}",)
    elif where and hasattr(error, "add_note"):  # Python 3.11
        error.add_note(where[1:])
    return error
