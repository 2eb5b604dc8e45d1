"""Rules: patterns of nodes, and the shorter form that has the same value.

    rule = Rules("mine")

    @rule("neg(neg(x)) -> x", "neg", copies=True)
    def _(node):
        x = inner(node, "neg")
        return x if x is not None and settled(x) else None

    register_rewrite("mine", rule.apply)

The text is for the reader, the names say at which functions to ask the rule, and it returns the
variable that stands for the node's output, or None. `copies` says that the output has memory of its
own, which the replacement may share with others: such a rule is not applied where anyone could see
that.

Every rule is exact. The value is the same bit for bit, with NaN's payload and the sign of zero,
and so are dtype and strides; what would raise still raises. Loops (`fuse.py`) are no rule: they may
change the sign and the payload of a NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ..graph.basic import Apply, Constant, Variable
from ..graph.function_graph import FunctionGraph
from ..ops.functions import IN
from ..ops.native import NativeOp
from ..ops.op import Op
from ..registry import Table
from ..types.tensor import TensorArg
from .sharing import Replace, Sharing, carefully

Build = Callable[[Apply], "Variable | None"]


@dataclass(frozen=True)
class Rule:
    """One pattern. `build` returns what replaces the only output of a node, or None."""

    text: str
    ops: tuple[str, ...]  # schema names, base names, or names of op classes
    copies: bool
    build: Build


class Rules:
    """A set of rules, found by the op at the root of their pattern. Its `apply` is a rewrite of
    this name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.table = Table(f"rule of {name}", unique=False, resolved=False)

    def __call__(self, text: str, *ops: str, copies: bool = False) -> Callable[[Build], Build]:
        """Adds a rule: a decorator."""

        def add(build: Build) -> Build:
            new = Rule(text, ops, copies, build)
            for name in ops:
                self.table.add(name, new, build)
            return build

        return add

    def of(self, op: Op) -> Iterable[Rule]:
        """The rules to ask at nodes of an op."""
        name = op.name if isinstance(op, NativeOp) else type(op).__name__
        for key in dict.fromkeys((name, name.partition(".")[0])):
            yield from (entry.value for entry in self.table.get(key))

    def apply(self, fgraph: FunctionGraph) -> int:
        """Applies them from the inputs to the outputs, each node until no rule fits it; returns
        how many have been applied."""

        def step(fgraph: FunctionGraph, replace: Replace) -> int:
            sharing = Sharing(fgraph)
            return sum(self._at(fgraph, n, sharing, replace) for n in fgraph.toposort())

        return carefully(fgraph, step, self.name)

    def _at(
        self, fgraph: FunctionGraph, node: Apply | None, sharing: Sharing, replace: Replace
    ) -> int:
        count = 0
        while node is not None and node in fgraph and len(node.outputs) == 1:
            old = node.outputs[0]
            node = None
            for rule in self.of(old.owner.op) if old.owner is not None else ():
                assert old.owner is not None
                new = rule.build(old.owner)
                if new is None or not _as_narrow(old, new):
                    continue
                if requires_grad(new) != requires_grad(old):
                    continue  # PyTorch chooses kernels by that
                if rule.copies and not sharing.may_be_one(old, new):
                    continue
                if replace(old, new, rule.text):
                    count += 1
                    node = new.owner
                    break
        return count


def _as_narrow(old: Variable, new: Variable) -> bool:
    return bool(old.type == new.type or old.type.is_super(new.type))


def requires_grad(v: Variable) -> bool:
    """Whether v is a constant that requires a gradient, or a view of one, which does so under
    no_grad, too, unless it is detached."""
    pending, seen = [v], set()
    while pending:
        x = pending.pop()
        if isinstance(x, Constant) and getattr(x.data, "requires_grad", False):
            return True
        node = x.owner
        if x in seen or node is None or x.index is None or owner(x, *_DETACHING):
            continue
        seen.add(x)
        pending += [node.inputs[i] for i in node.op.view_map.get(x.index, ())]
    return False


_DETACHING = ("detach", "detach_copy")


# What rules look at


def arguments(node: Apply) -> dict[str, Any]:
    """The arguments of a native op by name, the inputs of the node filled in; numbers that are
    constants as themselves."""
    assert isinstance(node.op, NativeOp)
    inputs = iter(node.inputs)

    def value(v: Any) -> Any:
        if isinstance(v, tuple):
            return tuple(map(value, v))
        if v is not IN:
            return v
        given = next(inputs)
        return given.data if isinstance(given, Constant) and _is_number(given.data) else given

    names = [a.name for a in node.op.native.function.arguments]
    return dict(zip(names, map(value, node.op.arguments), strict=True))


def all_known(a: dict[str, Any]) -> bool:
    """Whether no argument is a number, a dtype and so on that only a call gives."""
    return not any(
        isinstance(v, Variable) and not isinstance(v.type, TensorArg) for v in a.values()
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, complex))


def owner(v: Any, *names: str) -> Apply | None:
    """The node that computes v, where it is of a native op with one of these names."""
    node = getattr(v, "owner", None)
    if node is None or not isinstance(node.op, NativeOp):
        return None
    base = node.op.name.partition(".")[0]
    return node if node.op.name in names or base in names else None


def first(node: Apply) -> Variable:
    """The first input of a node."""
    return node.inputs[0]
