"""Rules: patterns of nodes, and the shorter form that has the same value.

    rule = Rules("mine")

    @rule("neg(neg(x)) -> x", "neg", copies=True)
    def _(node):
        x = inner(node, "neg")
        return x if x is not None and settled(x) else None

    register_rewrite("mine", rule.apply)

The text is for the reader. The names are those of PyTorch's functions, with or without an
overload, at which the rule is asked; for another op its class is given. The rule returns the
variable that stands for the node's output, or None. `copies` says that the output has memory of its
own, which the replacement may share with others: such a rule is not applied where anyone could see
that.

Every rule is exact. The value is the same bit for bit, with NaN's payload and the sign of zero,
and so are dtype and strides; what would raise still raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ..errors import ContractError, RegistrationError
from ..graph.basic import Apply, Constant, Variable
from ..graph.function_graph import FunctionGraph
from ..ops.functions import IN, lines
from ..ops.native import NativeOp, packet_names
from ..ops.op import Op
from ..registry import Table
from ..types.tensor import TensorArg
from .sharing import Replace, Sharing, carefully

# How often rules are applied at one node, each to the result of the one before, besides the number
# of nodes.
_MOST = 1000

Build = Callable[[Apply], "Variable | None"]
Root = str | type[Op]  # a function of PyTorch by its name, or a class of ops


@dataclass(frozen=True)
class Rule:
    """One pattern. `build` returns what replaces the only output of a node, or None."""

    text: str
    ops: tuple[Root, ...]
    copies: bool
    build: Build


class Rules:
    """A set of rules, found by the op at the root of their pattern. Its `apply` is a rewrite of
    this name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.table = Table(f"rule of {name}", unique=False, resolved=False)

    def __call__(self, text: str, *ops: Root, copies: bool = False) -> Callable[[Build], Build]:
        """Adds a rule: a decorator. RegistrationError where PyTorch has no function of a name."""
        for root in ops:
            _check_root(root, text)

        def add(build: Build) -> Build:
            new = Rule(text, ops, copies, build)
            for name in ops:
                self.table.add(name, new, build)
            return build

        return add

    def of(self, op: Op) -> Iterable[Rule]:
        """The rules to ask at nodes of an op."""
        roots: tuple[Root, ...] = (type(op),)
        if isinstance(op, NativeOp):
            roots = (op.name, base_of(op))
        for root in dict.fromkeys(roots):
            yield from (entry.value for entry in self.table.get(root))

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
        # They may walk through the whole graph, to its inputs.
        most = _MOST + len(fgraph.apply_nodes)
        applied: list[str] = []
        while node is not None and node in fgraph and len(node.outputs) == 1:
            if len(applied) > most:
                last = " and ".join(map(repr, dict.fromkeys(applied[-10:])))
                raise ContractError(
                    f"the rules of {self.name} do not end: they have been applied {most} times at "
                    f"what is {node} now, by {last}. A rule must not match its own result, nor one "
                    "that another rule turns back"
                )
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
                    applied.append(rule.text)
                    node = new.owner
                    break
        return count


def _check_root(root: Any, rule: str) -> None:
    if isinstance(root, str):
        known = root in lines() or root in packet_names()
    else:
        known = isinstance(root, type) and issubclass(root, Op) and root is not NativeOp
    if not known:
        raise RegistrationError(
            f"the rule {rule!r} is for {root!r}, which is neither the name of a function of "
            "PyTorch nor a class of ops: give the class of an op of your own"
        )


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


def base_of(op: NativeOp) -> str:
    """The name of an op's function without its overload."""
    return op.name.partition(".")[0]


def owner(v: Any, *roots: Root) -> Apply | None:
    """The node that computes v, where it is of one of these functions of PyTorch or classes of
    ops."""
    node = getattr(v, "owner", None)
    if node is None:
        return None
    op = node.op
    found = {op.name, base_of(op)} if isinstance(op, NativeOp) else {type(op)}
    return node if found.intersection(roots) else None


def first(node: Apply) -> Variable:
    """The first input of a node."""
    return node.inputs[0]
