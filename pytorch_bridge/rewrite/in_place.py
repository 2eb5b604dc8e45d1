"""In-place: a pointwise function takes the memory of its first argument, when nobody needs it, and
so does what writes a part of it.

One walk from the inputs to the outputs, in the order in which the graph runs. Where no later node
reads what a node's first argument lies in, and neither a caller nor a constant has it, the order
stays one that computes the graph when the node destroys it. Whether the result then looks as it
would have is for each call to see (aliasing/in_place.py).
"""

from __future__ import annotations

from ..aliasing.destroy import Memory, Version
from ..aliasing.in_place import InPlace, writing_form
from ..aliasing.partial_writes import Written
from ..aliasing.sharing import Replace, carefully
from ..graph.basic import Apply, Constant, Variable
from ..graph.function_graph import FunctionGraph
from ..ops.elemwise import Elemwise
from ..ops.native import NativeOp
from ..ops.scalar import native_form


def inplace(fgraph: FunctionGraph) -> int:
    """Lets nodes write where that is safe; returns how many."""
    return carefully(fgraph, _inplace, "inplace")


def _inplace(fgraph: FunctionGraph, replace: Replace) -> int:
    order = fgraph.toposort()
    known = _KnownGraph(fgraph, order)
    count = 0
    for i, node in enumerate(order):
        form = _form(node)
        if form is None:
            count += _loop(node, i, known, replace) + _part(node, i, known, replace)
            continue
        op, plain = form
        if not op.fits(plain) or not known.free(node, op.place, i, op.destroys_what_it_reads):
            continue
        old, new = node.outputs[0], op.of(plain).outputs[0]
        known.was[new] = known.was.get(old, old)
        count += replace(old, new, "inplace")
    return count


def _loop(node: Apply, i: int, known: _KnownGraph, replace: Replace) -> int:
    """Lets a fused loop write its outputs where its inputs were; returns how many."""
    op = node.op
    if type(op) is not Elemwise or not op.composite:
        return 0
    for o in range(len(node.outputs)):
        for k in range(len(node.inputs)):
            other = op.in_place(node, o, k)
            if other is not None and known.free(node, k, i):
                op = other
                break
    if op is node.op:
        return 0
    made = Apply(op, node.inputs, [v.type.make_variable(v.name) for v in node.outputs])
    for old, new in zip(node.outputs, made.outputs, strict=True):
        known.was[new] = known.was.get(old, old)
        if not replace(old, new, "inplace"):
            return 0
    return len(op.inplace)


def _part(node: Apply, i: int, known: _KnownGraph, replace: Replace) -> int:
    """Lets a node write a part of a tensor where that is; returns how many."""
    op = node.op
    if not isinstance(op, Written) or op.in_place:
        return 0
    if not known.free(node, 0, i, twice=False):
        return 0
    old = node.outputs[0]
    made = Apply(Written(op.ops, op.source, True), node.inputs, [old.type.make_variable(old.name)])
    known.was[made.outputs[0]] = known.was.get(old, old)
    return replace(old, made.outputs[0], "inplace")


def _form(node: Apply) -> tuple[InPlace, Apply] | None:
    """The op that writes, and the node of what it stands for."""
    plain = node
    if type(node.op) is Elemwise and not node.op.composite and not node.op.inplace:
        if not node.op.scalar_op.entry.native:
            return None
        plain = native_form(node.op.scalar_op, node.inputs)
    op = plain.op
    if type(op) is not NativeOp or not op.places.get("self") or writing_form(op.native) is None:
        return None
    return InPlace(op), plain


class _KnownGraph:
    """What lies where, and who reads it last, in the graph as it was."""

    def __init__(self, fgraph: FunctionGraph, order: list[Apply]) -> None:
        self.memory = Memory(order)
        self.kept = set(fgraph.inputs)
        self.shown: set[Version] = set()
        for v in fgraph.outputs:
            self.shown |= self.memory.of(v)
        place = {node: i for i, node in enumerate(order)}
        self.last: dict[Version, int] = {
            version: max(place[n] for n in readers)
            for version, readers in self.memory.readers.items()
        }
        self.was: dict[Variable, Variable] = {}  # before it was made in place

    def versions(self, v: Variable) -> frozenset[Version]:
        return self.memory.of(self.was.get(v, v))

    def free(self, node: Apply, place: int, i: int, twice: bool = True) -> bool:
        """Whether node i of the order may destroy its input; with `twice`, also one that it has
        twice."""
        x = node.inputs[place]
        mine = self.versions(x)
        for version in mine:
            root, _ = version
            if root in self.kept or isinstance(root, Constant) or version in self.shown:
                return False
            if version in self.memory.destroyers or self.last[version] > i:
                return False
        # Two that overlap are not all right.
        return all(
            (v is x and (twice or k == place)) or not (self.versions(v) & mine)
            for k, v in enumerate(node.inputs)
        )
