"""Graphs of torch.fx, which tracing and torch.export make, as graphs of this package.

A call of a native function becomes its node; sizes become Shape_i nodes, or numbers where types
know them; arithmetic of sizes becomes scalar ops.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import BridgeTypeError
from ..graph.basic import Apply, Variable
from ..types import TensorType, Type, schema_type
from ..types.containers import TensorList
from ..types.numbers import ScalarArg
from ..types.tensor import TensorArg
from . import scalar
from .basic import shape_i
from .native import draws_nothing, native, results_of
from .scalar import NumberOf, of_torch

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
    operator.lshift: "bitwise_left_shift",
    operator.rshift: "bitwise_right_shift",
    math.floor: "floor",
    math.ceil: "ceil",
    math.trunc: "trunc",
    round: "round",
    abs: "abs",
    max: "maximum",
    min: "minimum",
}
# Nodes that only pass a value on.
_IDENTITIES = (
    "aten::detach",
    "aten::detach_",
    "aten::alias",
    "aten::lift_fresh",
)
# Nodes that only check.
CHECKS = frozenset(
    f"aten::{name}"
    for name in (
        *("_assert_async", "_assert_scalar", "_assert_tensor_metadata"),
        *("sym_constrain_range", "sym_constrain_range_for_size"),
        *("_functional_assert_async", "_functional_assert_scalar"),
        *("_functional_sym_constrain_range", "_functional_sym_constrain_range_for_size"),
    )
)

Handler = Callable[["Importer", Any, tuple[Any, ...], dict[str, Any]], Any]


class UnsupportedNode(BridgeTypeError):
    """A node of torch.fx has no counterpart."""


class Importer:
    """Turns nodes into variables as they are asked for. `values` begins with what is known: what
    a placeholder stands for, or what some node has been computed to already.

    `handlers` are for functions by themselves, and for operators by their names with the namespace
    and the overload, "aten.view.default". With `typed`,
    results have the types that nodes carry, whose open sizes are symbols; else they are inferred.
    """

    def __init__(
        self,
        values: Mapping[Any, Any],
        attribute: Callable[[str], Any] | None = None,
        handlers: Mapping[Any, Handler] | None = None,
        typed: bool = False,
    ) -> None:
        self.values = dict(values)
        self.attribute = attribute
        self.handlers = dict(handlers or {})
        self.typed = typed

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
            return self.call(node.target, args, kwargs, node)
        except (TypeError, ValueError, NotImplementedError, AttributeError) as e:
            raise UnsupportedNode(f"{node.format_node()}: {e}{written_at(node)}") from e

    def call(
        self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], node: Any = None
    ) -> Any:
        """What a function returns for these arguments; `node` is the one that calls it."""
        schema = getattr(target, "_schema", None)
        handler = self.handlers.get(target if schema is None else str(target))
        if handler is not None:
            return handler(self, target, args, kwargs)
        if target is operator.getitem:
            return args[0][args[1]]
        if schema is None:
            form = _SCALARS.get(target) or of_torch(target)
            if form is None:
                raise UnsupportedNode(f"{target} has no counterpart")
            if not any(isinstance(a, Variable) for a in args):
                return target(*args)
            if target is round and args[1:] == (None,):
                args = args[:1]
            return getattr(scalar, form)(*args)
        if schema.name in ("aten::sym_size", "aten::size") and len(args) == 2:
            ndim = args[0].type.ndim
            return shape_i(args[0], args[1] if args[1] >= 0 else args[1] + ndim)
        if schema.name in ("aten::sym_numel", "aten::numel"):
            total: Any = 1
            for d in args[0].shape:
                total = total * d
            return total
        # Of a program, kernels are chosen by whether a tensor requires a gradient, and each tensor
        # may get other sizes (`unsqueeze_`).
        apart = self.typed and schema.name in ("aten::detach", "aten::alias")
        if schema.name in _IDENTITIES and not apart:
            return args[0]
        if schema.name in CHECKS:
            return None  # of a gradient: the op itself has checked it
        if not schema.name.startswith("aten::"):
            return self.foreign(target, args, kwargs, node)
        return results_of(self.apply(native(full_name(schema)), args, kwargs, node))

    def foreign(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], node: Any) -> Any:
        """What an operator returns that is none of PyTorch's."""
        raise UnsupportedNode(f"{target._schema.name} is no native function of PyTorch")

    def apply(self, function: Any, args: Any, kwargs: Any, node: Any) -> Apply:
        """The application of a native function."""
        value = node.meta.get("val") if self.typed and node is not None else None
        applied = function.apply(function.bind(args, kwargs), _types_of(function, value))
        if len(applied.outputs) == 1 and isinstance(applied.outputs[0].type, ScalarArg):
            kind = getattr(type_of(value), "kind", None)
            if kind is not None:  # a number that later nodes compute with
                return NumberOf(kind).make_node(applied.outputs[0])
        return applied


def full_name(schema: Any) -> str:
    """The name by which the schemas here have a function of PyTorch."""
    name: str = schema.name.removeprefix("aten::")
    return f"{name}.{schema.overload_name}" if schema.overload_name else name


def draws(node: Any) -> bool:
    """Whether a node calls a function that draws random numbers, with its arguments."""
    import torch

    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    arguments = node.target._schema.arguments
    named = {a.name: a.default_value for a in arguments if a.has_default_value()}
    named.update(zip((a.name for a in arguments), node.args, strict=False))
    return not any(draws_nothing(name, v) for name, v in {**named, **node.kwargs}.items())


def _is_node(value: Any) -> bool:
    import torch

    return isinstance(value, torch.fx.Node)


def written_at(node: Any) -> str:
    """Where in the model a node comes from, as lines to put behind a message."""
    import torch

    trace = (node.meta.get("stack_trace") or "").strip().splitlines()
    places = [i for i, line in enumerate(trace) if line.lstrip().startswith("File ")]
    others = (str(Path(torch.__file__).parent), "<eval_with_key>")
    own = [i for i in places if not any(o in trace[i] for o in others)]
    if not own:
        return ""
    end = next((i for i in places if i > own[-1]), len(trace))
    return "\n" + "\n".join(trace[own[-1] : end])


def known_size(size: Any) -> int | None:
    """A size that is one number, None for an open one. What torch.export has found to be one number
    may still be a symbol."""
    import torch

    if isinstance(size, torch.SymInt):
        expression = size.node.expr
        return int(expression) if expression.is_Integer else None
    return int(size)


def type_of(value: Any) -> Type | None:
    """The type of what a node says that its value is like, a fake tensor or a number; None where
    no type has it."""
    import torch

    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided:
            return None
        return TensorType(value.dtype, map(known_size, value.shape), device=value.device)
    for kinds, schema in (
        ((bool, torch.SymBool), "bool"),
        ((int, torch.SymInt), "int"),
        ((float, torch.SymFloat), "float"),
    ):
        if isinstance(value, kinds):
            return schema_type(schema)
    return None


def _types_of(function: Any, value: Any) -> tuple[tuple[Type, ...], tuple[int, ...]] | None:
    """The types of a native function's results, lists flattened, and how many tensors each list
    has, from what its node says of them; None where that is not enough."""
    results = (value,) if len(function.results) == 1 else value
    if not isinstance(results, (list, tuple)) or len(results) != len(function.results):
        return None
    types: list[Type] = []
    lists: list[int] = []
    for t, r in zip(function.results, results, strict=True):
        if isinstance(t, TensorList):
            if not isinstance(r, (list, tuple)):
                return None
            lists.append(len(r))
            found = [type_of(v) for v in r]
        elif isinstance(t, TensorArg):
            found = [type_of(r)]
        else:
            return None
        if not all(isinstance(f, TensorType) for f in found):
            return None
        types += found  # type: ignore[arg-type]
    return tuple(types), tuple(lists)


def outputs_of(graph: Any) -> Any:
    """What the output node of a torch.fx graph returns."""
    (output,) = (n for n in graph.nodes if n.op == "output")
    return output.args[0]


def placeholders(graph: Any) -> Sequence[Any]:
    """The input nodes of a torch.fx graph."""
    return [n for n in graph.nodes if n.op == "placeholder"]
