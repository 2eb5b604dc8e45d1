"""Which memory an op destroys, and who must have read it before.

Every variable lies in the memory of one or more *roots*: itself, or those that it is a view of. A
node that destroys a root makes a new *version* of it: what the node returns in that memory, and all
views of that, are of the new version; whoever reads an older version must run before the node. Two
nodes that destroy the same version cannot both have it: such a graph is inconsistent. Nor can one
node read what it destroys through another argument; `rewrite/prepare.py` puts a Separate before
those of PyTorch's functions that would.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ..errors import BridgeTypeError, InconsistencyError
from ..graph.basic import Apply, Constant, Variable, toposort
from ..graph.features import Feature

if TYPE_CHECKING:
    from ..graph.function_graph import FunctionGraph

Version = tuple[Variable, Apply | None]  # a root, and the node that last wrote into it


def destroyed_inputs(node: Apply) -> list[int]:
    """The inputs that a node destroys."""
    return sorted({i for inputs in node.op.destroy_map.values() for i in inputs})


class Memory:
    """Where every variable of a graph lies."""

    def __init__(self, order: list[Apply]) -> None:
        self.versions: dict[Variable, frozenset[Version]] = {}
        self.readers: dict[Version, list[Apply]] = {}
        self.destroyers: dict[Version, Apply] = {}
        for node in order:
            self._add(node)

    def of(self, v: Variable) -> frozenset[Version]:
        """The versions whose memory a variable lies in."""
        found = self.versions.get(v)
        if found is None:
            found = self.versions[v] = frozenset([(v, None)])
        return found

    def _add(self, node: Apply) -> None:
        op = node.op
        check_maps(node)
        for v in dict.fromkeys(node.inputs):
            for version in self.of(v):
                self.readers.setdefault(version, []).append(node)
        for i in destroyed_inputs(node):
            for version in self.of(node.inputs[i]):
                other = self.destroyers.setdefault(version, node)
                if other is not node:
                    raise InconsistencyError(
                        f"{_shown(other)} and {_shown(node)} both destroy {_named(version[0])}"
                    )
        if not op.view_map and not op.destroy_map:
            return
        for o, out in enumerate(node.outputs):
            lies_in: set[Version] = set()
            for i in op.view_map.get(o, ()):
                lies_in |= self.of(node.inputs[i])
            for i in op.destroy_map.get(o, ()):
                lies_in |= {(root, node) for root, _ in self.of(node.inputs[i])}
            if lies_in:
                self.versions[out] = frozenset(lies_in)


def check_maps(node: Apply) -> None:
    """InconsistencyError where view_map or destroy_map name what the node does not have, and
    BridgeTypeError where they are no such maps."""
    for name, mapping in (("view_map", node.op.view_map), ("destroy_map", node.op.destroy_map)):
        lists = isinstance(mapping, Mapping) and all(
            isinstance(found, (list, tuple)) for found in mapping.values()
        )
        if not lists:
            raise BridgeTypeError(
                f"{name} of {type(node.op).__qualname__} has lists of inputs by the number of an "
                f"output, such as {{0: [0]}}; it is {mapping!r}"
            )
        for o, inputs in mapping.items():
            if o is None and name == "destroy_map":
                pass
            elif not isinstance(o, int) or not 0 <= o < len(node.outputs):
                raise InconsistencyError(
                    f"{name} of {node.op} names output {o!r}; it has {len(node.outputs)}"
                )
            for i in inputs:
                if not isinstance(i, int) or not 0 <= i < len(node.inputs):
                    raise InconsistencyError(
                        f"{name} of {node.op} names input {i!r}; it has {len(node.inputs)}"
                    )


class DestroyHandler(Feature):
    """Refuses graphs in which no order of the nodes respects what they destroy, and gives the
    order to the others.

    Constants are never destroyed, nor is anything in `protected`.
    """

    def __init__(self, protected: frozenset[Variable] | set[Variable] = frozenset()) -> None:
        self.protected = protected

    def on_attach(self, fgraph: FunctionGraph) -> None:
        self.validate(fgraph)

    def validate(self, fgraph: FunctionGraph) -> None:
        """InconsistencyError, which names the nodes and what they destroy."""
        if _destroys(fgraph):
            fgraph._restricted(toposort(fgraph.outputs, fgraph.inputs), self.orderings(fgraph))

    def memory(self, fgraph: FunctionGraph) -> Memory:
        """Where every variable lies."""
        return Memory(toposort(fgraph.outputs, fgraph.inputs))

    def orderings(self, fgraph: FunctionGraph) -> dict[Apply, list[Apply]]:
        if not _destroys(fgraph):
            return {}
        memory = self.memory(fgraph)
        before: dict[Apply, list[Apply]] = {}
        for (root, writer), node in memory.destroyers.items():
            if isinstance(root, Constant):
                raise InconsistencyError(f"{_shown(node)} destroys the constant {root}")
            if root in self.protected:
                raise InconsistencyError(
                    f"{_shown(node)} destroys {_named(root)}, which must be kept"
                )
            version = (root, writer)
            others = [n for n in memory.readers.get(version, ()) if n is not node]
            self._check_arguments(node, version, memory)
            if others:
                before.setdefault(node, []).extend(others)
        for i, v in enumerate(fgraph.outputs):
            for version in memory.of(v):
                destroyer = memory.destroyers.get(version)
                if destroyer is not None:
                    raise InconsistencyError(
                        f"{_shown(destroyer)} destroys {_named(version[0])}, "
                        f"which output {i} of the graph still needs"
                    )
        return before

    def _check_arguments(self, node: Apply, version: Version, memory: Memory) -> None:
        """A node that reads what it destroys through another argument must be able to."""
        for i, v in conflicts(node, version, memory):
            raise InconsistencyError(
                f"{_shown(node)} destroys {_named(version[0])}, which its input {i} ({v}) needs"
            )


def _destroys(fgraph: FunctionGraph) -> bool:
    """Whether any node destroys anything."""
    return any(node.op.destroy_map for node in fgraph.apply_nodes)


def conflicts(node: Apply, version: Version, memory: Memory) -> Iterator[tuple[int, Variable]]:
    """The other inputs of a node that may lie in what it destroys, as far as it matters: one that
    is the very tensor that it destroys may be read by an op that takes element by element, and
    those that come from one Separate share nothing with what that was told is written into."""
    here = [i for i in destroyed_inputs(node) if version in memory.of(node.inputs[i])]
    able = getattr(node.op, "destroys_what_it_reads", False)
    for i, v in enumerate(node.inputs):
        if i in here[:1] or version not in memory.of(v):
            continue
        same = v is node.inputs[here[0]]
        if (same and able and i not in here) or separate(node.inputs[here[0]], v):
            continue
        yield i, v


def separate(written: Variable, v: Variable) -> bool:
    """Whether both are of one Separate, which sees to it that they share no memory."""
    owner = written.owner
    return (
        owner is not None
        and owner is v.owner
        and written is not v
        and written.index in getattr(owner.op, "written", ())
    )


def _named(v: Variable) -> str:
    return f"{v} ({v.type})" if v.owner is None else f"the output of {_shown(v.owner)}"


def _shown(node: Apply) -> str:
    text = ", ".join(str(v) if len(str(v)) < 40 else str(v)[:37] + "..." for v in node.inputs)
    return f"{node.op}({text})"
