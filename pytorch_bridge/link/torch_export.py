"""A graph as torch.export sees it: a module that runs the nodes. Open sizes are left open."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import REFUSALS, BridgeTypeError, CompileError, MissingMethodError
from ..graph.basic import Apply, Constant, Variable
from ..inference.quiet import default_modes
from ..ops.checks import CheckSizes, SizeRule
from ..ops.op import Op
from ..ops.size_guards import parse
from ..ops.size_ranges import linear, size_rules
from ..types import TensorType, Type
from ..types.numbers import NumberArg
from .explain import picture_of

_LINES = 12  # of what torch says about a failure

# What numbers are while they are inputs and outputs: tensors without dimensions.
NUMBERS = {"int": "int64", "float": "float64", "bool": "bool"}


def kind_of(t: Type, where: str, an_input: bool) -> str:
    """ "tensor", or what a number is: "int", "float", "bool". BridgeTypeError for what cannot go
    into or out of a program of torch.export."""
    if isinstance(t, NumberArg) and (t.kind != "bool" or not an_input):
        return t.kind
    if not isinstance(t, TensorType):
        kinds = "tensors, integers and floats" if an_input else "tensors and numbers"
        verb = "takes" if an_input else "returns"
        raise BridgeTypeError(f"mode 'inductor' {verb} {kinds}: {where} is of type {t}")
    if an_input and (t.dtype is None or t.shape is None):
        raise BridgeTypeError(
            f"mode 'inductor' needs the dtype and the number of dimensions of each input: {where} "
            f"is of type {t}"
        )
    if t.device not in (None, "cpu"):
        raise BridgeTypeError(f"mode 'inductor' compiles for the CPU: {where} is on {t.device}")
    return "tensor"


def named_constants(order: Sequence[Apply], outputs: Sequence[Variable]) -> dict[Constant, str]:
    """The tensors among the constants, with the names that they have in the program: their own,
    with what makes them unique and possible, or `constant_0` and so on."""
    found: dict[Constant, str] = {}
    taken: set[str] = set()
    for v in [v for node in order for v in node.inputs] + list(outputs):
        if not isinstance(v, Constant) or v in found or not isinstance(v.type, TensorType):
            continue
        name = v.name or f"constant_{len(found)}"
        # Dots lead into modules, whose own attributes are no place for tensors.
        parts = [p if p.isidentifier() or p.isdigit() else f"_{p}" for p in name.split(".")]
        parts = [f"{p}_" if hasattr(_empty(), p) else p for p in parts]
        name = ".".join(parts)
        if any(_clash(name, other) for other in taken):
            name = "_".join(parts)
        while any(_clash(name, other) for other in taken):
            name += "_"
        taken.add(name)
        found[v] = name
    return found


def _clash(a: str, b: str) -> bool:
    return a == b or a.startswith(f"{b}.") or b.startswith(f"{a}.")


def _empty() -> Any:
    import torch

    return torch.nn.Module()


def check_traceable(order: Sequence[Apply]) -> None:
    """MissingMethodError where a node has nothing to trace."""
    for i, node in enumerate(order):
        kind = type(node.op)
        reason = getattr(node.op, "not_traced", None)
        if reason is not None:
            raise MissingMethodError(f"mode 'inductor' cannot trace node {i}, {node.op}: {reason}")
        if kind.perform is Op.perform and kind.trace is Op.trace:
            raise MissingMethodError(
                f"mode 'inductor' cannot trace node {i}, {node.op}: {kind.__name__} lacks perform"
            )


@dataclass
class Traced:
    """A program of torch.export, and what it takes for granted about the sizes of its inputs: as
    rules, and in Python where no rule says it, `L['inputs'][0].size()[0] % 8 == 0`."""

    program: Any
    rules: list[SizeRule]
    guards: list[str]


def traced(
    inputs: Sequence[Variable], outputs: Sequence[Variable], order: Sequence[Apply]
) -> Traced:
    """The graph as a program whose open sizes are open. It is traced with sizes that are as
    different as the graph allows, so that none is taken to be another by chance.

    CompileError, which names the node where it is about one, where the graph cannot be traced or a
    size cannot stay open.
    """
    import torch

    failure: CompileError | None = None
    for sizes in _attempts(inputs, order):
        module, place = _module(inputs, outputs, order)
        example = tuple(_example(v, sizes) for v in inputs)
        try:
            with default_modes(), torch.no_grad():
                program = torch.export.export(module, example, dynamic_shapes=_dynamic(inputs))
            return _understood(inputs, program, example)
        except CompileError as e:
            failure = e
        except REFUSALS as e:
            failure = _failure(place, order, e, _shapes(inputs, example))
    assert failure is not None
    raise failure


def _shapes(inputs: Sequence[Variable], example: Sequence[Any]) -> str:
    shapes = (f"{v}: {tuple(t.shape)}" for v, t in zip(inputs, example, strict=True))
    return f"inputs of the shapes {', '.join(shapes)}" if inputs else "no inputs"


def _failure(place: list[int], order: Sequence[Apply], e: Exception, shapes: str) -> CompileError:
    what = head(f"{type(e).__name__}: {e}") + f"\ntraced with {shapes}"
    if not place:
        return CompileError(f"mode 'inductor': torch.export refuses the graph: {what}")
    node = order[place[0]]
    return CompileError(
        f"mode 'inductor' cannot trace node {place[0]}, {node.op}: {what}\n{picture_of(node)}"
    )


def head(text: str) -> str:
    """The first lines of what may be long."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    more = len(lines) - _LINES
    return "\n".join([*lines[:_LINES], *([f"... and {more} lines"] if more > 0 else [])])


# The module


def _module(
    inputs: Sequence[Variable], outputs: Sequence[Variable], order: Sequence[Apply]
) -> tuple[Any, list[int]]:
    """A module that runs the graph; the list has the number of the node that it is at, if any."""
    import torch

    place: list[int] = []
    names = named_constants(order, outputs)

    class Graph(torch.nn.Module):
        def forward(self, *inputs: Any) -> Any:
            known = dict(zip(variables, inputs, strict=True))
            known = {v: x if _is_tensor(v) else x.item() for v, x in known.items()}

            def value(v: Variable) -> Any:
                if v in known:
                    return known[v]
                assert isinstance(v, Constant)
                return self.get_buffer(names[v]) if v in names else v.data

            for i, node in enumerate(order):
                place[:] = [i]
                results = node.op.trace(node, [value(v) for v in node.inputs])
                for v, result in zip(node.outputs, results, strict=True):
                    if type(result) in (torch.Tensor, torch.nn.Parameter):
                        raise BridgeTypeError(f"{v} is a tensor that was made outside of torch")
                    known[v] = result
            place.clear()
            return tuple(_as_tensor(value(v), v.type) for v in outputs)

    variables = tuple(inputs)
    module = Graph()
    taken: set[int] = set()
    for v, name in names.items():
        data = v.data.detach()
        # Each in memory of its own, as each is set on its own.
        memory = data.untyped_storage().data_ptr()
        data = data.clone() if memory in taken else data
        taken.add(memory)
        *path, last = name.split(".")
        inner: Any = module
        for part in path:
            if part not in inner._modules:
                inner.add_module(part, torch.nn.Module())
            inner = inner._modules[part]
        inner.register_buffer(last, data)
    return module, place


def _is_tensor(v: Variable) -> bool:
    return isinstance(v.type, TensorType)


def _as_tensor(value: Any, t: Type) -> Any:
    import torch

    if not isinstance(t, NumberArg):
        return value
    if isinstance(value, torch.SymBool):
        value = torch.sym_ite(value, 1, 0)
    return torch.ops.aten.scalar_tensor(value, dtype=getattr(torch, NUMBERS[t.kind]))


# Sizes


def _attempts(
    inputs: Sequence[Variable], order: Sequence[Apply]
) -> Iterator[dict[tuple[Variable, int], int]]:
    """Sizes for the open dimensions of inputs: all different; equal in the same place; all equal.
    What the graph itself says about them holds for all."""
    places = [
        (v, d)
        for v in inputs
        if _is_tensor(v)
        for d, n in enumerate(v.type.shape)  # type: ignore[attr-defined]
        if n is None
    ]
    tried: list[dict[tuple[Variable, int], int]] = []
    for numbers in (range(len(places)), [d for _, d in places], [0] * len(places)):
        sizes = {p: 24 + 8 * n for p, n in zip(places, numbers, strict=True)}
        _obey(sizes, order)
        sizes = _holding(sizes, order)
        if sizes not in tried:
            tried.append(sizes)
            yield sizes


def _obey(sizes: dict[tuple[Variable, int], int], order: Sequence[Apply]) -> None:
    """Changes sizes so that the CheckSizes of the graph find them right."""
    for node in order:
        if not isinstance(node.op, CheckSizes):
            continue
        symbols: dict[str, list[SizeRule]] = {}
        for rule in node.op.rules:
            if rule.dim is not None and (node.inputs[rule.input], rule.dim) in sizes:
                symbols.setdefault(rule.symbol, []).append(rule)
        for rules in symbols.values():
            n = sizes[node.inputs[rules[0].input], rules[0].dim or 0]
            for rule in rules:
                if rule.low is not None:
                    n = max(n, -((rule.offset - rule.low) // rule.scale))
            for rule in rules:
                if rule.high is not None:
                    n = min(n, (rule.high - rule.offset) // rule.scale)
            for rule in rules:
                sizes[node.inputs[rule.input], rule.dim or 0] = n * rule.scale + rule.offset


def _holding(
    sizes: dict[tuple[Variable, int], int], order: Sequence[Apply]
) -> dict[tuple[Variable, int], int]:
    """The sizes, or others, by chance, for which the conditions of the graph's CheckSizes hold; the
    same where none are found."""
    checks = [node for node in order if isinstance(node.op, CheckSizes) and node.op.conditions]

    def hold(sizes: dict[tuple[Variable, int], int]) -> bool:
        for node in checks:

            def size(i: int, dim: int | None, node: Apply = node) -> int:
                known = getattr(node.inputs[i].type, "shape", ())
                return sizes.get((node.inputs[i], dim or 0), known[dim] if dim is not None else 1)

            if not all(c.holds(size) for c in node.op.conditions):  # type: ignore[attr-defined]
                return False
        return True

    chance, tried = random.Random(0), sizes
    for _ in range(1000):
        if hold(tried):
            return tried
        tried = {place: 2 * chance.randint(2, 48) for place in sizes}
        _obey(tried, order)
    return sizes


def _example(v: Variable, sizes: dict[tuple[Variable, int], int]) -> Any:
    import torch

    if not isinstance(v.type, TensorType):
        return torch.ones((), dtype=getattr(torch, NUMBERS[v.type.kind]))  # type: ignore[attr-defined]
    shape = [sizes[v, d] if n is None else n for d, n in enumerate(v.type.shape or ())]
    return torch.zeros(shape, dtype=v.type.torch_dtype)


def _dynamic(inputs: Sequence[Variable]) -> Any:
    import torch

    auto, static = torch.export.Dim.AUTO, torch.export.Dim.STATIC
    shapes = [getattr(v.type, "shape", None) or () for v in inputs]
    each = tuple({d: auto if n is None else static for d, n in enumerate(s)} for s in shapes)
    return {"inputs": each} if each else None


def _understood(inputs: Sequence[Variable], program: Any, example: Sequence[Any]) -> Traced:
    """What a program says about the sizes of its inputs. CompileError where it is more than can be
    checked before each call."""
    specs = program.graph_signature.input_specs
    nodes = [n for n in program.graph.nodes if n.op == "placeholder"]
    given = [n for n, s in zip(nodes, specs, strict=True) if s.kind.name == "USER_INPUT"]
    for v, node in zip(inputs, given, strict=True):
        for d, open_size in enumerate(getattr(v.type, "shape", ())):
            size = node.meta["val"].shape[d]
            if open_size is None and (isinstance(size, int) or linear(size.node.expr) is None):
                raise CompileError(
                    f"mode 'inductor': dimension {d} of {v}, {v.type}, cannot stay open: traced "
                    f"with {_shapes(inputs, example)}, torch.export finds that it must be {size}. "
                    "Give it in the type."
                )
    guards = [g for g in getattr(program, "_guards_code", ()) if not _is_known(g)]
    for guard in guards:
        try:
            parse(guard, sources([str(v) for v in inputs]))
        except BridgeTypeError as e:
            raise CompileError(
                f"mode 'inductor': torch.export takes for granted {guard}, and that cannot be "
                f"checked: {e}"
            ) from e
    return Traced(program, list(size_rules(given, program.range_constraints)), guards)


def _is_known(guard: str) -> bool:
    """Whether a guard says that two sizes are equal, which is a rule, or that some number is not 0
    or 1, which torch.export assumes of each size and holds to be no matter."""
    tree = ast.parse(guard, mode="eval").body
    if not isinstance(tree, ast.Compare) or len(tree.ops) != 1:
        return False
    (right,) = tree.comparators
    if isinstance(tree.ops[0], ast.NotEq):
        return isinstance(right, ast.Constant) and right.value in (0, 1)
    sizes = [
        isinstance(s, ast.Subscript) and isinstance(s.slice, ast.Constant)
        for s in (tree.left, right)
    ]
    return isinstance(tree.ops[0], ast.Eq) and all(sizes)


def sources(names: Sequence[str]) -> dict[str, tuple[int, str]]:
    """What guards call the inputs with these names."""
    return {f"L['inputs'][{i}]": (i, name) for i, name in enumerate(names)}
