"""Graphs of torch.fx, which tracing and torch.export make, as graphs of this package.

A call of a native function becomes its node; sizes become Shape_i nodes, or numbers where types
know them; arithmetic of sizes becomes scalar ops.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..errors import BridgeTypeError
from .basic import Variable

# Python's and torch's functions of sizes, as scalar ops.
_SCALARS: dict[Any, str] = {
    operator.add: "add",
    operator.sub: "sub",
    operator.mul: "mul",
    operator.truediv: "div",
    operator.floordiv: "floor_divide",
    operator.mod: "remainder",
    operator.pow: "pow",
    operator.neg: "neg",
    operator.abs: "abs",
    operator.lt: "lt",
    operator.le: "le",
    operator.gt: "gt",
    operator.ge: "ge",
    operator.eq: "eq",
    operator.ne: "ne",
    operator.and_: "bitwise_and",
    operator.or_: "bitwise_or",
    math.floor: "floor",
    math.ceil: "ceil",
    math.trunc: "trunc",
    round: "round",
    abs: "abs",
    max: "maximum",
    min: "minimum",
}
_TORCH_SCALARS = {
    "sym_max": "maximum",
    "sym_min": "minimum",
    "sym_float": "sym_float",
    "sym_int": "sym_int",
    "sym_not": "logical_not",
    "sym_ite": "where",
    "sym_sqrt": "sqrt",
    "_sym_sqrt": "sqrt",
}
# Nodes that only pass a value on.
_IDENTITIES = ("aten::detach", "aten::alias", "aten::lift_fresh", "aten::lift_fresh_copy")
# Nodes that only check: what they check is known, or is checked by the ops themselves.
_CHECKS = ("_assert", "sym_constrain", "_assert_scalar", "_assert_async", "_assert_tensor_metadata")

Handler = Callable[["Importer", Any, tuple[Any, ...], dict[str, Any]], Any]


class UnsupportedNode(BridgeTypeError):
    """A node of torch.fx has no counterpart."""


class Importer:
    """Turns nodes into variables as they are asked for. `values` begins with what is known: what
    a placeholder stands for, or what some node has been computed to already.

    `handlers` are for functions that are no native ones, by the function or its name.
    """

    def __init__(
        self,
        values: Mapping[Any, Any],
        attribute: Callable[[str], Any] | None = None,
        handlers: Mapping[Any, Handler] | None = None,
    ) -> None:
        self.values = dict(values)
        self.attribute = attribute
        self.handlers = dict(handlers or {})

    def convert(self, nodes: Iterable[Any]) -> list[Any]:
        """The variables (or numbers, or lists of them) that nodes compute."""
        wanted = list(nodes)
        pending = [n for n in reversed(wanted) if _is_node(n)]
        while pending:
            node = pending[-1]
            if node in self.values:
                pending.pop()
                continue
            missing = [n for n in node.all_input_nodes if n not in self.values]
            if missing:
                pending.extend(reversed(missing))
                continue
            self.values[node] = self._one(node)
            pending.pop()
        return [self.value(n) for n in wanted]

    def value(self, argument: Any) -> Any:
        """An argument with its nodes replaced by what they stand for."""
        if _is_node(argument):
            return self.values[argument]
        if isinstance(argument, (list, tuple)):
            return type(argument)(self.value(a) for a in argument)
        if isinstance(argument, dict):
            return {k: self.value(v) for k, v in argument.items()}
        return argument

    def _one(self, node: Any) -> Any:
        if node.op == "get_attr":
            if self.attribute is None:
                raise UnsupportedNode(f"{node.format_node()}: nothing is known by that name")
            return self.attribute(node.target)
        if node.op != "call_function":
            raise UnsupportedNode(f"{node.format_node()}: {node.op} has no counterpart")
        args = self.value(node.args)
        kwargs = self.value(node.kwargs)
        try:
            return self.call(node.target, args, kwargs)
        except UnsupportedNode:
            raise
        except (TypeError, ValueError, NotImplementedError, AttributeError) as e:
            raise UnsupportedNode(f"{node.format_node()}: {e}") from e

    def call(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a function returns for these arguments."""
        from ..ops import scalar
        from ..ops.basic import shape_i
        from ..ops.native import native, results_of

        name = getattr(target, "__name__", str(target))
        for key in (target, name):
            handler = self.handlers.get(key)
            if handler is not None:
                return handler(self, target, args, kwargs)
        if target is operator.getitem:
            return args[0][args[1]]
        schema = getattr(target, "_schema", None)
        if schema is None:
            form = _SCALARS.get(target) or _TORCH_SCALARS.get(name)
            if form is None:
                raise UnsupportedNode(f"{target} has no counterpart")
            if not any(isinstance(a, Variable) for a in args):
                return target(*args)
            return getattr(scalar, form)(*args)
        if schema.name in ("aten::sym_size", "aten::size") and len(args) == 2:
            ndim = args[0].type.ndim
            return shape_i(args[0], args[1] if args[1] >= 0 else args[1] + ndim)
        if schema.name in ("aten::sym_numel", "aten::numel"):
            total: Any = 1
            for d in args[0].shape:
                total = total * d
            return total
        if schema.name in _IDENTITIES:
            return args[0]
        if any(c in schema.name for c in _CHECKS):
            return None
        if not schema.name.startswith("aten::"):
            raise UnsupportedNode(f"{schema.name} is no native function of PyTorch")
        full = schema.name.removeprefix("aten::")
        if schema.overload_name:
            full += f".{schema.overload_name}"
        function = native(full)
        values = function.bind(args, kwargs)
        return results_of(function.apply(values))


def _is_node(value: Any) -> bool:
    return type(value).__name__ == "Node" and type(value).__module__.startswith("torch.fx")


def outputs_of(graph: Any) -> Any:
    """What the output node of a torch.fx graph returns."""
    (output,) = (n for n in graph.nodes if n.op == "output")
    return output.args[0]


def placeholders(graph: Any) -> Sequence[Any]:
    """The input nodes of a torch.fx graph."""
    return [n for n in graph.nodes if n.op == "placeholder"]
