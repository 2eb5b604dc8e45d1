"""What graphs are made of: variables, constants and the nodes that apply ops to them.

Nothing here recurses: a graph may be a chain of ten thousand nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import BridgeTypeError, BridgeValueError, InconsistencyError

if TYPE_CHECKING:
    from ..ops.op import Op
    from ..types.base import Type


_T = TypeVar("_T")


class Variable:
    """A value in a graph: an input, a constant, or output `index` of the node `owner`.

    It has no truth. Where variables have operators, `==` is one of them and makes a variable:
    `is`, `among` and `position` find out whether two are the same one.
    """

    def __init__(
        self,
        type: Type,
        owner: Apply | None = None,
        index: int | None = None,
        name: str | None = None,
    ) -> None:
        if name is not None and not isinstance(name, str):
            raise BridgeTypeError(f"a variable's name is a string, not {name!r}")
        self.type = type
        self.owner = owner
        self.index = index
        self.name = name

    def unconnected(self) -> Variable:
        """Returns an input of the same type and name. (`clone` is an op: PyTorch's, on tensors.)"""
        return self.type.make_variable(self.name)

    def __bool__(self) -> bool:
        raise BridgeTypeError(
            f"the truth of {self} is not known while a graph is built; use ops.where for a choice "
            "by value, and `is` to ask whether two variables are the same one"
        )

    def __str__(self) -> str:
        if self.name is not None:
            return self.name
        if self.owner is not None:
            number = f".{self.index}" if len(self.owner.outputs) > 1 else ""
            return f"{self.owner.op}{number}"
        return f"<{self.type}>"

    __repr__ = __str__


class Constant(Variable):
    """A variable whose value is known. The value must not be changed."""

    def __init__(self, type: Type, data: Any, name: str | None = None) -> None:
        super().__init__(type, name=name)
        self.data = data

    def unconnected(self) -> Constant:
        return type(self)(self.type, self.data, name=self.name)

    def __str__(self) -> str:
        if self.name is not None:
            return self.name
        text = " ".join(repr(self.data).split())
        return text if len(text) <= 40 else f"{text[:37]}..."

    __repr__ = __str__


class Apply:
    """The application of an op to inputs. It owns its outputs."""

    def __init__(self, op: Op, inputs: Sequence[Variable], outputs: Sequence[Variable]) -> None:
        self.op = op
        self.inputs = ordered(f"the inputs of {op}", inputs)
        self.outputs = ordered(f"the outputs of {op}", outputs)
        for kind, variables in (("input", self.inputs), ("output", self.outputs)):
            for i, v in enumerate(variables):
                if not isinstance(v, Variable):
                    raise BridgeTypeError(f"{kind} {i} of {op} is no Variable: {v!r}")
        for i, v in enumerate(self.outputs):
            if v.owner is not None:
                raise BridgeTypeError(f"output {i} of {op} is an output of {v.owner.op} already")
            if isinstance(v, Constant):
                raise BridgeTypeError(f"output {i} of {op} is the constant {v}")
            if among(v, self.inputs) or among(v, self.outputs[:i]):
                other = "input" if among(v, self.inputs) else "output"
                raise BridgeTypeError(
                    f"output {i} of {op} is one of its {other}s as well, {v}: an output is a new "
                    "variable, x.type()"
                )
        for i, v in enumerate(self.outputs):
            v.owner, v.index = self, i

    def clone(self, inputs: Sequence[Variable] | None = None) -> Apply:
        """Returns the same application with new outputs, to other inputs if given."""
        outputs = [v.unconnected() for v in self.outputs]
        return Apply(self.op, self.inputs if inputs is None else inputs, outputs)

    def __str__(self) -> str:
        return f"{self.op}({', '.join(map(str, self.inputs))})"

    __repr__ = __str__


def ordered(what: str, variables: Iterable[_T]) -> list[_T]:
    """A list of what is given in an order. BridgeTypeError for a set, which has none."""
    if isinstance(variables, (set, frozenset)):
        raise BridgeTypeError(
            f"{what} are given in an order, so not as a {type(variables).__name__}"
        )
    return list(variables)


def position(v: Variable, variables: Iterable[Variable]) -> int | None:
    """Where v itself is among variables first; None where it is not."""
    return next((i for i, x in enumerate(variables) if x is v), None)


def among(v: Variable, variables: Iterable[Variable]) -> bool:
    """Whether v itself is one of variables. (`v in variables` asks with `==` what is no `v`.)"""
    return position(v, variables) is not None


def ancestors(outputs: Iterable[Variable], stop: Iterable[Variable] = ()) -> Iterator[Variable]:
    """Yields every variable that the outputs depend on, themselves included, once; it does not go
    beyond those of `stop`."""
    seen: set[Variable] = set()
    border = set(stop)
    pending = list(outputs)[::-1]
    while pending:
        v = pending.pop()
        if v in seen:
            continue
        seen.add(v)
        yield v
        if v.owner is not None and v not in border:
            pending.extend(reversed(v.owner.inputs))


def graph_inputs(outputs: Iterable[Variable]) -> list[Variable]:
    """The variables without an owner that the outputs depend on, constants too, in the order in
    which they are met."""
    return [v for v in ancestors(outputs) if v.owner is None]


def toposort(outputs: Iterable[Variable], inputs: Iterable[Variable] = ()) -> list[Apply]:
    """The nodes that lead from inputs to outputs, each after those that it needs. The order
    depends on the graph only. InconsistencyError where a node needs what it computes."""
    border = inputs if isinstance(inputs, (dict, set, frozenset)) else set(inputs)
    done: set[Apply] = set()
    begun: set[Apply] = set()
    order: list[Apply] = []
    for out in outputs:
        if out.owner is None or out in border:
            continue
        pending: list[tuple[Apply, int]] = [(out.owner, 0)]
        while pending:
            node, i = pending.pop()
            if node in done:
                continue
            while i < len(node.inputs):
                v = node.inputs[i]
                i += 1
                if v.owner is not None and v not in border and v.owner not in done:
                    begun.add(node)
                    if v.owner in begun:
                        raise _cycle(v.owner, [n for n, _ in pending if n in begun] + [node])
                    pending.append((node, i))
                    pending.append((v.owner, 0))
                    break
            else:
                begun.discard(node)
                done.add(node)
                order.append(node)
    return order


def _cycle(first: Apply, path: Sequence[Apply]) -> InconsistencyError:
    """The error for a path of nodes, each of which needs the next, and the last the first."""
    start = next(i for i, node in enumerate(path) if node is first)
    nodes = [str(node.op) for node in path[start:]]
    shown = nodes if len(nodes) <= 6 else [*nodes[:3], "...", *nodes[-2:]]
    return InconsistencyError(
        f"the graph has a cycle: {' needs '.join([*shown, nodes[0]])}. A replacement must "
        "not be computed from the results of what it replaces"
    )


def check_owned(v: Variable) -> None:
    """BridgeValueError where a variable has an owner of which it is no output, as a copy has."""
    if v.owner is not None and not among(v, v.owner.outputs):
        raise BridgeValueError(
            f"{v} is said to be output {v.index} of {v.owner}, which has another variable there: "
            "a copy of a variable (copy.copy) is not in the graph"
        )


def clone_graph(
    inputs: Sequence[Variable], outputs: Sequence[Variable]
) -> tuple[list[Variable], list[Variable], dict[Variable, Variable]]:
    """Copies the graph between inputs and outputs. Returns the copies of both, and what became of
    each variable. Constants are shared."""
    became: dict[Variable, Variable] = {v: v.unconnected() for v in inputs}
    for node in toposort(outputs, inputs):
        for v in node.inputs:
            if v not in became:
                check_owned(v)
                if v.owner is None:
                    became[v] = v
        copied = node.clone([became[v] for v in node.inputs])
        for mine, theirs in zip(node.outputs, copied.outputs, strict=True):
            became.setdefault(mine, theirs)  # an input stays one, whoever else computes it
    for v in outputs:
        if v not in became:
            check_owned(v)
            became[v] = v
    return [became[v] for v in inputs], [became[v] for v in outputs], became
