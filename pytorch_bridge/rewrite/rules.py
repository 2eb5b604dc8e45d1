"""Rules: patterns of nodes, and the shorter form that has the same value.

    rule = Rules("mine")

    @rule("neg(neg(x)) -> x", "neg", copies=True)
    def _(node):
        x = inner(node, "neg")
        return x if x is not None and settled(x) else None

    register_rewrite("mine", rule.apply)

The text is for the reader. The names are those of PyTorch's functions, with or without an
overload, at which the rule is asked; for another op its class is given. The rule returns the
variable that stands for the node's output, for several outputs a list with a variable or None for
each, or None. `copies` says that the output has memory of its
own, which the replacement may share with others: such a rule is not applied where anyone could see
that.

Every rule is exact. The value is the same bit for bit, with NaN's payload and the sign of zero,
and so are dtype and strides; what would raise still raises. Loops (`fuse.py`) are no rule: they may
change the sign and the payload of a NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..aliasing.sharing import Replace, Sharing, carefully
from ..errors import ContractError, RegistrationError
from ..graph.basic import Apply, Constant, Variable
from ..graph.function_graph import FunctionGraph
from ..ops.native import NativeOp, packet_names
from ..ops.op import Op
from ..registry import Place, Table, place_of
from ..schema.corrections import IN, lines
from ..types.tensor import TensorArg

# How often rules are applied at one node, each to the result of the one before, besides the number
# of nodes.
_MOST = 1000

Build = Callable[[Apply], "Variable | Sequence[Variable | None] | None"]
Root = str | type[Op]  # a function of PyTorch by its name, or a class of ops


@dataclass(frozen=True)
class Rule:
    """One pattern. `build` returns what replaces the output of a node, a list where it has
    several, or None."""

    text: str
    ops: tuple[Root, ...]
    copies: bool
    build: Build

    @property
    def place(self) -> Place:
        return place_of(self.build)


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
            roots = (op.name, op.native.base)
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
        while node is not None and node in fgraph:
            if len(applied) > most:
                last = " and ".join(map(repr, dict.fromkeys(applied[-10:])))
                raise ContractError(
                    f"the rules of {self.name} do not end: they have been applied {most} times at "
                    f"what is {node} now, by {last}. A rule must not match its own result, nor one "
                    "that another rule turns back"
                )
            asked, node = node, None
            for rule in self.of(asked.op):
                pairs = [(o, n) for o, n in _pairs(rule, asked) if fgraph.clients.get(o)]
                if not pairs or not all(_fits(rule, sharing, *pair) for pair in pairs):
                    continue
                done = [replace(old, new, rule.text) for old, new in pairs]
                if any(done):
                    count += 1
                    applied.append(rule.text)
                    node = pairs[0][1].owner
                    break
        return count


def _pairs(rule: Rule, node: Apply) -> list[tuple[Variable, Variable]]:
    """The outputs of a node that a rule replaces, each with what takes its place."""
    found = rule.build(node)
    if found is None:
        return []
    new = [found] if isinstance(found, Variable) else found
    if not isinstance(new, (list, tuple)) or len(new) != len(node.outputs):
        raise ContractError(
            f"the rule {rule.text!r} ({rule.place}) returned {found!r} for {node.op}, which has "
            f"{len(node.outputs)} outputs: it must return a variable for a single output, a list "
            "with a variable or None for each of several, or None"
        )
    pairs = [(o, n) for o, n in zip(node.outputs, new, strict=True) if n is not None]
    for _, n in pairs:
        if not isinstance(n, Variable):
            raise ContractError(
                f"the rule {rule.text!r} ({rule.place}) returned {n!r}: no variable"
            )
    return pairs


def _fits(rule: Rule, sharing: Sharing, old: Variable, new: Variable) -> bool:
    if not _as_narrow(old, new) or requires_grad(new) != requires_grad(old):
        return False  # PyTorch chooses kernels by whether a gradient is required
    return not rule.copies or sharing.may_be_one(old, new)


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


def owner(v: Any, *roots: Root) -> Apply | None:
    """The node that computes v, where it is of one of these functions of PyTorch or classes of
    ops."""
    node = getattr(v, "owner", None)
    if node is None:
        return None
    op = node.op
    found = {op.name, op.native.base} if isinstance(op, NativeOp) else {type(op)}
    return node if found.intersection(roots) else None


def first(node: Apply) -> Variable:
    """The first input of a node."""
    return node.inputs[0]
