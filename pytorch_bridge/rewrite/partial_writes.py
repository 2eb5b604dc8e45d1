"""Writes: what is written into a part of a tensor is written at once, without copies in between.

A program that was made functional has, for `x[:, 1:, 2:] += y`,

    a = slice(x, 1, 1)        c = add(b, y)                   e = slice_scatter(x, d, 1, 1)
    b = slice(a, 2, 2)        d = slice_scatter(a, c, 2, 2)

and the same once more for what Python assigns back, which changes nothing. Each slice_scatter
copies all of x. This makes one Written of them, which copies x once; `inplace` then sees whether it
has to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..aliasing.partial_writes import Written, assigning_form, scatters, view_of
from ..aliasing.sharing import Replace, Sharing, carefully
from ..graph.basic import Apply, Variable, among
from ..graph.function_graph import OUTPUT, FunctionGraph
from ..ops.fused_elements import Expression, form
from ..ops.native import SHORT, NativeOp
from ..schema.corrections import IN
from .known_strides import dense
from .rules import owner

_END = 2**63 - 1


def writes(fgraph: FunctionGraph) -> int:
    """Brings together what is written into parts of one tensor; returns how many such writes there
    are."""
    return carefully(fgraph, _writes, "writes")


def _writes(fgraph: FunctionGraph, replace: Replace) -> int:
    sharing = Sharing(fgraph)
    count = 0
    # The outermost first: what is inside of it goes with it.
    for node in reversed(fgraph.toposort()):
        if node not in fgraph or not (scatters(node.op) or _is_copy(node)):
            continue
        path = _path(fgraph, node)
        old = node.outputs[0]
        same = path.changes_nothing() and path.keeps_layout() and old.type == path.base.type
        if same and sharing.may_be_one(old, path.base):
            count += replace(old, path.base, "writes")
            continue
        op, inputs = path.written()
        made = Apply(op, inputs, [old.type.make_variable(old.name)])
        count += replace(old, made.outputs[0], "writes")
    return count


@dataclass
class _Path:
    """The way from a tensor to the part of it that is written."""

    base: Variable
    ops: list[NativeOp] = field(default_factory=list)
    numbers: list[Sequence[Variable]] = field(default_factory=list)  # of each of `ops`
    whole: list[bool] = field(default_factory=list)  # whether each leads to all of the tensor
    source: NativeOp | None = None  # what makes what is written of the part, and of `rest`
    rest: Sequence[Variable] = ()

    def is_part(self, v: Variable) -> bool:
        """Whether v is the part where the path has led so far."""
        for op, numbers, whole in reversed(
            list(zip(self.ops, self.numbers, self.whole, strict=True))
        ):
            if whole and not _leads(v, op, numbers):
                continue  # a view of all is taken out wherever it stands
            if not _leads(v, op, numbers):
                return False
            assert v.owner is not None
            v = v.owner.inputs[0]
        return v is self.base

    def changes_nothing(self) -> bool:
        """Whether what is written is what is there."""
        plain = self.source is None or self.source.name == "copy"
        return plain and self.is_part(self.rest[0])

    def keeps_layout(self) -> bool:
        """Whether the result certainly has the strides of the base."""
        v = self.base
        while not dense(v):
            node = v.owner
            if node is None:
                return False
            if scatters(node.op) or _is_copy(node) or isinstance(node.op, Written):
                return True
            if owner(v, *_KEEPING) is None:
                return False
            v = node.inputs[0]
        return True

    def written(self) -> tuple[Written, list[Variable]]:
        """The op that stands for all, and its inputs."""
        kept = [i for i, whole in enumerate(self.whole) if not whole] or [0][: len(self.ops)]
        numbers = [v for i in kept for v in self.numbers[i]]
        op = Written([self.ops[i] for i in kept], self.source)
        return op, [self.base, *numbers, *self.rest]


# Views that have no two elements in one place if their argument has not.
_KEEPING = ("slice.Tensor", "select.int", "narrow", "transpose.int", "permute", "t", "diagonal")


def _path(fgraph: FunctionGraph, node: Apply) -> _Path:
    """The path of the node that scatters, as far as its own input is but the next step of it."""
    path = _Path(node.inputs[0])
    at = node.outputs[0]
    while True:
        inner = at.owner
        first = at is node.outputs[0]
        if inner is None or not (first or _used_once(fgraph, at)) or not inner.inputs:
            break
        if not path.is_part(inner.inputs[0]):
            break
        if scatters(inner.op):
            assert isinstance(inner.op, NativeOp)
            path.ops.append(inner.op)
            path.numbers.append(inner.inputs[2:])
            path.whole.append(_is_whole(inner))
            at = inner.inputs[1]
        else:
            if _is_source(inner, path):
                assert isinstance(inner.op, NativeOp)
                path.source, path.rest = inner.op, inner.inputs[1:]
                return path
            break
    path.rest = [at]
    return path


def _used_once(fgraph: FunctionGraph, v: Variable) -> bool:
    clients = fgraph.clients[v]
    return len(clients) == 1 and all(client != OUTPUT for client, _ in clients)


def _is_copy(node: Apply) -> bool:
    op = node.op
    return isinstance(op, NativeOp) and op.name == "copy" and op.arguments[:2] == (IN, IN)


def _is_source(node: Apply, path: _Path) -> bool:
    """Whether a function of the part gives the same bits where the part lies."""
    op = node.op
    if not isinstance(op, NativeOp) or op.places.get("self") != [0]:
        return False
    writing = assigning_form(op.native)
    if writing is None:
        return False
    types = [v.type for v in [*node.inputs, *node.outputs]]
    if writing.rounds_number and getattr(types[0], "dtype", None) in SHORT:
        return False
    if op.native.pointwise:
        dtypes = [str(getattr(t, "dtype", None)) for t in types]
        if any(getattr(t, "device", None) != "cpu" for t in types) or dtypes[0] != dtypes[-1]:
            return False
        if among(node.inputs[0], node.inputs[1:]):
            return False
        # What depends on where an element stands is computed as it was.
        return isinstance(form(op, dtypes[:-1], dtypes[-1]), Expression)
    return True


def _leads(v: Variable, op: NativeOp, numbers: Sequence[Variable]) -> bool:
    """Whether v is the view that an op writes into, of the first input of v's node."""
    node, view = v.owner, view_of(op)
    if node is None or not isinstance(node.op, NativeOp) or node.op.name != view.name:
        return False
    ndim = getattr(node.inputs[0].type, "ndim", None)
    same = _where(node.op, ndim) == _where(view, ndim)
    mine = node.inputs[1:]
    return (
        same
        and len(mine) == len(numbers)
        and all(a is b for a, b in zip(mine, numbers, strict=True))
    )


def _where(view: NativeOp, ndim: int | None) -> list[object]:
    """What a view is told, in one form where there are several."""
    found: list[object] = []
    for a, v in zip(view.native.function.arguments, view.arguments, strict=True):
        if a.name.startswith("dim") and isinstance(v, int) and ndim:
            v %= ndim
        elif view.name == "slice.Tensor" and v is None:
            v = 0 if a.name == "start" else _END
        found.append(v)
    return found


def _is_whole(node: Apply) -> bool:
    """Whether a function that scatters writes all of its first input."""
    op, t = node.op, node.inputs[0].type
    ndim = getattr(t, "ndim", None)
    if not isinstance(op, NativeOp) or op.name != "slice_scatter" or not ndim:
        return False
    _, dim, start, end, step = _where(view_of(op), ndim)
    if start != 0 or step != 1 or not isinstance(dim, int) or not isinstance(end, int):
        return False
    size = t.shape[dim]  # type: ignore[attr-defined]
    return end >= (_END if size is None else size)
