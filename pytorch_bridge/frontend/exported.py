"""Models from torch.export.

The graph is taken as it was exported: each call of a native function becomes its node, so the same
kernels run as in the module. What writes into memory becomes a new value, where everybody who looks
at that memory later can be told of it; where not, or under autocast, torch first makes the program
functional (`run_decompositions({})`), which takes longer.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from ..aliasing.destroy import Memory
from ..aliasing.in_place import is_dense, rounds_alike
from ..aliasing.partial_writes import assigns, scattering
from ..aliasing.runtime_strides import IfView, IntoView, can_look, clone_of, with_strides
from ..aliasing.unalias import byte_range, overlap
from ..autodiff.library_gradients import library_grad
from ..errors import REFUSALS, BridgeTypeError
from ..graph.basic import Apply, Constant, Variable, toposort
from ..ops.basic import deep_copy_op
from ..ops.checks import CheckSizes, Require, drawn, in_order
from ..ops.from_fx import (
    CHECKS,
    Importer,
    UnsupportedNode,
    draws,
    full_name,
    known_size,
    outputs_of,
    placeholders,
    type_of,
    written_at,
)
from ..ops.library_operators import LibraryOp, flat, register_gradients
from ..ops.native import (
    NativeFunction,
    NativeOp,
    constant,
    find_packet,
    native,
    native_op,
    results_of,
)
from ..ops.size_guards import Condition, parse
from ..ops.size_ranges import bounds, linear, size_rules, sizes_of
from ..ops.variables import TensorConstant
from ..sameness import same
from ..schema.corrections import IN, corrected
from ..types import TensorType, Type, schema_type
from .branches import Branch, Cond
from .flex_attention import flex_attention
from .loops import AssociativeScan, Map, Scan, While
from .model import Fixed, Model, leaf_paths

if TYPE_CHECKING:
    from torch.export import ExportedProgram

# Higher-order operators that only call their graph; the place of the graph among the arguments.
_CALLS = {"wrap_with_set_grad_enabled": 1, "invoke_subgraph": 0, "tag_activation_checkpoint": 0}
# Those that torch takes apart while it makes a program functional.
_FUNCTIONALIZED = frozenset(["wrap_with_autocast"])


class _NeedsFunctional(Exception):
    """A program is to be made functional first: why, and where in the model that is written."""

    def __init__(self, what: str, node: Any = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = "" if node is None else written_at(node)

    def refused(self, why: str, node: Any = None) -> UnsupportedNode:
        """The error where that does not help."""
        where = self.where or ("" if node is None else written_at(node))
        return UnsupportedNode(f"{self.what}, and {why}{where}")


def is_program(value: Any) -> bool:
    """Whether it is a torch.export.ExportedProgram."""
    import torch

    return isinstance(value, torch.export.ExportedProgram)


def from_exported(program: ExportedProgram, name: str | None = None) -> Model:
    """The model of a torch.export.ExportedProgram.

        >>> module, sizes = torch.nn.Linear(2, 3), [{0: torch.export.Dim("rows")}]
        >>> program = torch.export.export(module, (torch.ones(4, 2),), dynamic_shapes=sizes)
        >>> model = pb.from_exported(program)
        >>> torch.equal(model(torch.eye(2)), module(torch.eye(2)))
        True

    Inputs, results and numbers are those of `program.module()`; sizes that it leaves dynamic stay
    open, with the ranges and relations that it has. Buffers that a call changes are the model's
    state. Parameters and buffers share their memory with the program.

    BridgeTypeError where it is no such program. UnsupportedNode, a BridgeTypeError, names the node
    that has no counterpart, and the line of the model that it comes from.
    """

    if not is_program(program):
        raise BridgeTypeError(
            f"from_exported takes a torch.export.ExportedProgram, got {type(program).__name__}: "
            "torch.export.export(module, args) makes one, torch.export.load(file) reads one"
        )
    _refuse_lost(program)
    try:
        return _Program(program).model(name)
    except _NeedsFunctional as reason:
        _refuse_unsure(program, reason)
        _refuse_draws(program, reason)
        sizes = _known_sizes(program)
        try:
            functional = program.run_decompositions({})
        except REFUSALS as e:
            raise reason.refused(f"torch cannot make the program functional: {e}") from e
        if _count_assertions(functional) < _count_assertions(program):
            raise reason.refused(
                "torch, as it makes the program functional, drops an assertion without a message: "
                "give it one"
            ) from None
        # torch may have fixed a size of the program, which module() leaves open.
        for (place, before), (_, after) in zip(sizes, _known_sizes(functional), strict=True):
            if before != after:
                raise reason.refused(
                    f"torch, as it makes the program functional, fixes {place}, which the program "
                    f"leaves open, at {after}: let the module write into a clone, or export it "
                    "with this size fixed"
                ) from None
    try:
        return _Program(functional, program).model(name)
    except _NeedsFunctional as reason:
        raise reason.refused(
            "torch does not resolve it (run_decompositions): let the module write into a clone, "
            "or take the tensor (a cache, for instance) as an argument and return what becomes of "
            "it"
        ) from None


def _refuse_lost(program: Any) -> None:
    """UnsupportedNode where the program does not have what it differentiates. As torch.export
    records torch.func.grad, vjp, jacrev or hessian, it takes what they wrap for constants: module()
    then computes with tensors without elements, whatever its arguments are."""
    import torch

    for name, value in program.constants.items():
        if not isinstance(value, torch.Tensor):
            continue
        wrapped = torch._C._functorch.is_functorch_wrapped_tensor(value)
        if wrapped or isinstance(value, torch._subclasses.FakeTensor):
            raise UnsupportedNode(
                f"the program has a constant without elements, {name!r}, in the place of what the "
                "module differentiates by torch.func.grad, vjp, jacrev or hessian: torch.export "
                "has lost it, and program.module() does not compute it either. Record the "
                "derivative first, torch.fx.experimental.proxy_tensor.make_fx(function)(*args), "
                "and export the graph that it returns; or use torch.func.jvp in the module, which "
                "torch.export keeps"
            )


def _refuse_unsure(program: Any, reason: _NeedsFunctional) -> None:
    """UnsupportedNode where the program writes into a tensor that may be a view or a copy: as torch
    makes a program functional, it decides by the example, or takes it for a copy."""
    import torch

    groups: dict[Any, Any] = {}  # nodes that may share memory

    def group(node: Any) -> Any:
        while node in groups:
            node = groups[node]
        return node

    def join(node: Any, others: Iterable[Any]) -> None:
        for other in others:
            if group(other) is not group(node):
                groups[group(other)] = group(node)

    written: list[Any] = []
    unsure: list[Any] = []

    def look(module: Any) -> None:
        for node in module.graph.nodes:
            if node.op != "call_function":
                continue
            schema = getattr(node.target, "_schema", None)
            if schema is None:  # a graph inside the graph, getitem, or arithmetic of sizes
                join(node, node.all_input_nodes)
                for n in node.all_input_nodes:
                    inner = getattr(module, str(n.target), None) if n.op == "get_attr" else None
                    if isinstance(inner, torch.fx.GraphModule):
                        for p in placeholders(inner.graph):
                            join(node, [p])
                        look(inner)
                continue
            name = _native_name(node.target)
            corrections = corrected("views", name) or ()
            if name in _PERHAPS and _returns_view(node) is False:
                continue  # a copy
            aliases = False
            for i, a in enumerate(schema.arguments):
                value = node.args[i] if i < len(node.args) else node.kwargs.get(a.name)
                nodes = [n for n in _pytree.tree_leaves(value) if isinstance(n, torch.fx.Node)]
                if corrections is True or a.name in corrections or a.alias_info is not None:
                    aliases = True
                    join(node, nodes)
                if a.alias_info is not None and a.alias_info.is_write:
                    written.extend(nodes)
            if aliases and (corrections or name in _PERHAPS):
                unsure.append(node)

    from torch.utils import _pytree

    look(program.graph_module)
    groups_written = {group(n) for n in written}
    for node in unsure:
        if group(node) in groups_written:
            raise reason.refused(
                "the program writes into what may be a view for some inputs and a copy for others "
                f"({node.format_node()}): let the module write into a clone",
                node,
            )


def _calls(program: Any) -> Iterator[Any]:
    """The nodes of a program, and of the graphs in it, that call operators."""
    import torch

    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                if isinstance(node.target, torch._ops.OpOverload):
                    yield node


def _refuse_draws(program: Any, reason: _NeedsFunctional) -> None:
    """UnsupportedNode where the program draws random numbers into a tensor: as torch makes it
    functional, they are drawn into a new one, in the order of its elements in memory, which may be
    another."""
    for node in _calls(program):
        if node.target._schema.is_mutable and draws(node):
            raise reason.refused(
                f"{node.format_node()} draws random numbers into a tensor, whose order in memory "
                "torch does not keep as it makes the program functional: let the module draw into "
                "a new tensor",
                node,
            )


def _count_assertions(program: Any) -> int:
    """How often a program asserts what is known of tensors when it runs."""
    return sum("_assert_async" in node.target._schema.name for node in _calls(program))


def _known_sizes(program: Any) -> list[tuple[str, int | None]]:
    """The sizes of a program's inputs, with their names; None for open ones."""
    found = []
    for node in placeholders(program.graph):
        for dim, size in sizes_of(node.meta.get("val")):
            name = node.name if dim is None else f"{node.name}.size()[{dim}]"
            found.append((name, known_size(size)))
    return found


# Functions whose result is always a view of their first argument, whatever its strides are. Applied
# to the new value of that argument, they give the new value of the view.
_VIEWS = frozenset(
    """slice.Tensor select.int diagonal narrow unbind.int split.Tensor split_with_sizes chunk
    transpose.int permute t unsqueeze squeeze.dim squeeze.dims squeeze view view_as unflatten.int
    expand movedim.int movedim.intlist swapaxes swapdims numpy_T mT detach alias atleast_1d
    atleast_2d atleast_3d
    """.split()  # noqa: SIM905
)
# Functions that return a view of their first argument, that argument itself, or a copy, by its
# strides, its dtype and the other arguments.
_CONVERSIONS = frozenset(["to.dtype", "to.device", "to.other", "to.dtype_layout", "type_as"])
_PERHAPS = _CONVERSIONS | frozenset(
    """reshape reshape_as flatten.using_ints ravel contiguous
    positive conj_physical resolve_conj resolve_neg
    dropout feature_dropout alpha_dropout feature_alpha_dropout
    """.split()  # noqa: SIM905
)
# Functions that may return their very argument.
_ITSELF = _PERHAPS | frozenset(["atleast_1d", "atleast_2d", "atleast_3d"])
# Views that keep the order of the elements: a reshape inverts them.
_ORDERED = _PERHAPS | frozenset(
    """view view_as unflatten.int squeeze.dim squeeze.dims squeeze
    atleast_1d atleast_2d atleast_3d
    """.split()  # noqa: SIM905
)


def _is_view(function: NativeFunction, arguments: Sequence[Any], x: Any, out: Any) -> bool | None:
    """Whether a function, with these arguments, returns a view of its first one, of type `x`, as a
    result of type `out`. None where only a call can tell."""
    import torch

    name = function.name
    if name in _VIEWS:
        return True
    if name not in _PERHAPS or not isinstance(x, TensorType) or not isinstance(out, TensorType):
        return None
    given = {a.name: v for a, v in zip(function.function.arguments, arguments, strict=True)}
    shape = x.shape is not None and None not in x.shape and x.shape == out.shape
    if name in _CONVERSIONS:
        if given.get("copy"):
            return False
        types = [(t.dtype, t.device) for t in (x, out)]
        if any(None in t for t in types) or given.get("pin_memory"):
            return None
        if types[0] != types[1]:
            return False
        return True if given.get("memory_format") in (None, torch.preserve_format) else None
    if "dropout" in name:
        return given["train"] is False or given["p"] == 0
    if name in ("conj_physical", "resolve_conj"):
        real = x.dtype is not None and not x.dtype.startswith("complex")
        return real or (False if name == "conj_physical" and x.dtype is not None else None)
    if name == "positive" or (shape and name in ("reshape", "reshape_as", "flatten.using_ints")):
        return True
    return None


def _native_name(target: Any) -> str:
    """The name of a function of PyTorch as the schemas here have it, "" for other operators."""
    schema = getattr(target, "_schema", None)
    return full_name(schema) if schema is not None and schema.name.startswith("aten::") else ""


def _returns_view(node: Any) -> bool | None:
    """`_is_view` of a node of torch.fx that calls one of these functions."""
    function = native(_native_name(node.target))
    types = [type_of(n.meta.get("val")) for n in (node.all_input_nodes[0], node)]
    return _is_view(function, function.bind(node.args, node.kwargs), *types)


# Views that invert themselves: the same function again gives back the argument.
_TURNING = frozenset(["transpose.int", "swapaxes", "swapdims", "t", "numpy_T", "mT"])


def _alone(part: Variable) -> NativeOp | None:
    """The single view that equals `part`, one of a list of views (`select` for `unbind`); None
    where none is known."""
    node, k = part.owner, part.index
    assert node is not None
    assert isinstance(node.op, NativeOp)
    assert k is not None
    name, arguments = node.op.name, node.op.arguments
    if name == "unbind.int":
        return native_op(native("select.int"), (*arguments, k), (), ())
    sizes: Any = None
    if name == "split.Tensor" and isinstance(arguments[1], int):
        sizes = [arguments[1]] * (k + 1)
    elif name == "split_with_sizes":
        sizes = arguments[1]
    elif name == "chunk" and isinstance(arguments[1], int):
        shape = getattr(node.inputs[0].type, "shape", None)
        size = shape[arguments[2]] if shape else None
        sizes = [-(-size // arguments[1])] * (k + 1) if size else None
    if sizes is None or not all(isinstance(n, int) for n in sizes):
        return None
    start = sum(sizes[:k])
    told = (IN, arguments[2], start, start + sizes[k], 1)
    return native_op(native("slice.Tensor"), told, (), ())


def _with_part(part: Variable, new: Variable) -> Variable | None:
    """The tensor that `part` is a view of, with `new` in the place of the view; None where no
    function does that."""
    node = part.owner
    assert node is not None
    if isinstance(node.op, Require):
        return _laid_out(node.inputs[0], new)
    assert isinstance(node.op, NativeOp)
    x, name, arguments = node.inputs[0], node.op.name, node.op.arguments
    back: tuple[str, tuple[Any, ...]] | None = None
    if name in _TURNING:
        back = name, arguments
    elif name == "permute" and all(isinstance(d, int) for d in arguments[1]):
        order = [d % len(arguments[1]) for d in arguments[1]]
        back = name, (IN, tuple(map(order.index, range(len(order)))))
    elif name == "unsqueeze":
        back = "squeeze.dim", arguments
    elif name in ("detach", "alias"):
        return _laid_out(x, new)
    elif name in _ORDERED:
        return _laid_out(x, _reshaped(new, x))
    if back is not None:
        op = native_op(native(back[0]), back[1], (), ())
        turned = Apply(op, [new, *node.inputs[1:]], [x.type.make_variable()]).outputs[0]
        return _laid_out(x, turned)
    view, numbers = node.op, node.inputs[1:]
    alone = _alone(part)
    if alone is not None:
        view = alone
    elif name == "narrow" and all(isinstance(n, int) and n >= 0 for n in arguments[2:]):
        dim, start, length = arguments[1:]
        view = native_op(native("slice.Tensor"), (IN, dim, start, start + length, 1), (), ())
    function = scattering(view)
    if function is None:
        return None
    return Apply(function, [x, new, *numbers], [x.type.make_variable()]).outputs[0]


def _reshaped(new: Variable, x: Variable) -> Variable:
    """`new` with the sizes of x."""
    function = native("reshape")
    applied = function.apply(function.bind([new, list(x.shape)], {}))  # type: ignore[attr-defined]
    applied.outputs[0].type = x.type
    return applied.outputs[0]


def _laid_out(x: Variable, new: Variable) -> Variable:
    """`new` with the strides of x."""
    made = with_strides.make_node(x, new).outputs[0]
    made.type = x.type
    return made


def _viewed(node: Apply, result: int) -> int:
    """The input of which a result of a node may be a view."""
    (place,) = node.op.view_map[result]
    return int(place)


class _Memory:
    """The variable that has the current value of another one's memory.

    A result that may be a view or a copy counts as both: it lies in its argument's memory, and in
    memory of its own."""

    def __init__(self) -> None:
        self._became: dict[Variable, Variable] = {}
        self._roots: dict[Variable, dict[Variable, int]] = {}  # and how often they were written
        self._written: dict[Variable, int] = {}
        self._views: dict[Variable, Apply] = {}  # what made them, or what is in their place now
        self._results: dict[Variable, int] = {}  # which result of that node they are
        self._perhaps: dict[Variable, Variable] = {}  # such views: their own memory's name
        self.bases: set[Variable] = set()  # the roots of these
        self._destroyed: dict[Variable, int] = {}  # what was written where it is, and when

    def is_view(self, v: Variable) -> bool:
        """Whether v is a view, or may be one, whose value can be computed again."""
        return v in self._views

    def may_be_another(self, x: Variable) -> bool:
        """Whether x may be one tensor with another variable: a function may have returned its very
        argument."""
        return any(
            isinstance(node.op, NativeOp)
            and (v in self._perhaps or node.op.name in _ITSELF)
            and (v is x or node.inputs[_viewed(node, self._results[v])] is x)
            for v, node in self._views.items()
        )

    def may_be_a_view(self, v: Variable) -> bool:
        """Whether only a call can tell if v is a view."""
        return v in self._perhaps

    def latest(self, v: Variable) -> Variable:
        """The variable that holds v's memory now, as far as that has been found."""
        first = v
        while v in self._became:
            v = self._became[v]
        if first is not v:
            self._became[first] = v
        return v

    def current(self, v: Variable) -> Variable:
        """v, or what has been written into its memory. _NeedsFunctional where that has been done
        elsewhere, and v is no view of what is known."""
        v = self.latest(v)
        roots = self._roots.get(v, {v: 0})
        if all(self._written.get(root, 0) == times for root, times in roots.items()):
            return v
        if not self.is_view(v):
            raise _NeedsFunctional(f"{v} is used after its memory was written into elsewhere")
        node = self._views[v]
        self._refuse_place(v, node)
        k = self._results[v]
        i = _viewed(node, k)
        x = self.current(node.inputs[i])
        given = [*node.inputs[:i], x, *node.inputs[i + 1 :]]
        again = Apply(node.op, given, [o.type.make_variable() for o in node.outputs])
        own = self._perhaps.get(v)
        if own is not None:
            if any(self._destroyed.get(root, 0) > times for root, times in roots.items()):
                raise _NeedsFunctional(f"{v} may be a view of what was written into")
            look = IfView(node.op, i, k)  # type: ignore[arg-type]
            found = look.make_node(*node.inputs, again.outputs[k], v).outputs[0]
            self._perhaps_view(found, node, k, own)
            self._became[v] = found
            return found
        self.applied(again)
        self._became.update(zip(node.outputs, again.outputs, strict=True))
        return again.outputs[k]

    def part_became(self, part: Variable, new: Variable) -> Variable | None:
        """Records that `new` has been written into a view; returns the view's new variable, or None
        where no function writes it into the whole."""
        at, value = part, new
        passed: list[tuple[Variable, Variable]] = []  # what may be a view, and what it is now
        while not self.lies_alone(at):
            if not self.is_view(at):
                return None
            node, k = self._views[at], self._results[at]
            if at in self._perhaps:
                value = _laid_out(at, value)
                passed.append((at, value))
            if at not in self._perhaps and (found := _with_part(at, value)) is not None:
                at, value = node.inputs[0], found
                continue
            if not isinstance(node.op, NativeOp):
                return None
            self._refuse_place(at, node)
            i = _viewed(node, k)
            x = self.current(node.inputs[i])
            if node.op.name in _PERHAPS:
                back = _laid_out(x, _reshaped(value, x))
                value = IfView(node.op).make_node(*node.inputs, back, x).outputs[0]
            else:
                given = [*node.inputs[:i], x, *node.inputs[i + 1 :]]
                value = IntoView(node.op, i, k).make_node(*given, value).outputs[0]
            at = x
        self.became(at, value, same=False)
        for old, _ in passed:
            own = self._perhaps[old]
            self._written[own] = self._written.get(own, 0) + 1
        for old, now in reversed(passed):
            self._perhaps_view(now, self._views[old], self._results[old], self._perhaps[old])
            self._became[old] = now
        return self.current(part)

    def _perhaps_view(self, v: Variable, node: Apply, result: int, own: Variable) -> None:
        """Records v, which may be the view that a node makes as one of its results, or lies in
        memory of its own."""
        self._views[v], self._results[v] = node, result
        self._perhaps[v] = own
        x = self.current(node.inputs[_viewed(node, result)])
        roots = self._roots.get(x) or self._own(x)
        self.bases.update(roots)
        self._roots[v] = {r: self._written.get(r, 0) for r in (*roots, own)}

    def _refuse_place(self, v: Variable, node: Apply) -> None:
        """UnsupportedNode where a view goes by the place of a tensor in a storage, which a graph
        keeps of none that it is given."""
        roots = self._roots.get(v, {v: 0})
        by_place = isinstance(node.op, NativeOp) and node.op.name == "as_strided"
        if by_place and any(root.owner is None for root in roots):
            raise UnsupportedNode(
                f"{node} takes elements by their places in the storage of what the program is "
                "given and writes into, which may be any: let the module write into a clone"
            )

    def may_share(self, v: Variable, other: Variable) -> bool:
        """Whether two variables may have memory in common."""
        mine, theirs = (self._roots.get(x, {x: 0}) for x in (v, other))
        return not mine.keys().isdisjoint(theirs)

    def lies_alone(self, v: Variable) -> bool:
        """Whether v is no view of anything."""
        return set(self._roots.get(v, {v: 0})) == {v}

    def applied(self, node: Apply) -> None:
        """Records what a node views and writes."""
        op = node.op
        for o, inputs in op.view_map.items():
            v, roots = node.outputs[o], dict[Variable, int]()
            for i in inputs:
                roots.update(self._roots.get(node.inputs[i]) or self._own(node.inputs[i]))
            if isinstance(op, NativeOp):
                view = None
                if op.arguments[0] is IN:
                    view = _is_view(op.native, op.arguments, node.inputs[0].type, v.type)
                if view is False:
                    continue
                if view and not (op.lists and _alone(v) is None):
                    self._views[v], self._results[v] = node, o
                elif len(inputs) == 1 and can_look(op, inputs[0]):
                    self._perhaps_view(v, node, o, v)
                    continue
            elif isinstance(op, Require):
                self._views[v], self._results[v] = node, o
            self._roots[v] = roots
        for out, inputs in op.destroy_map.items():
            if out is None:
                raise _NeedsFunctional(f"{op} writes into {node.inputs[inputs[0]]}")
            for i in inputs:
                self.became(node.inputs[i], node.outputs[out], same=True)

    def _own(self, v: Variable) -> dict[Variable, int]:
        return {v: self._written.get(v, 0)}

    def became(self, old: Variable, new: Variable, same: bool) -> None:
        """Records that the memory of `old` now holds the value of `new`: where `same`, because
        `new` lies there; else `new` has memory of its own."""
        roots = self._roots.get(old) or self._own(old)
        for root in roots:
            self._written[root] = self._written.get(root, 0) + 1
        if same:
            self._destroyed.update((root, self._written[root]) for root in roots)
            if set(roots) != {old}:
                self._roots[new] = {root: self._written[root] for root in roots}
        self._became[old] = new


class _Transformed:
    """What a node of a vmap or the like returns, or what is made of that."""

    def __init__(self, node: Any) -> None:
        self.needs = _NeedsFunctional(node.format_node(), node)


def _makes_new(node: Any) -> bool:
    """Whether a node makes a tensor in memory of its own."""
    schema = getattr(getattr(node, "target", None), "_schema", None)
    if schema is None or not schema.name.startswith("aten::new_"):
        return False
    return all(r.alias_info is None for r in schema.returns)


def _known(values: Any) -> Any:
    """The values, none of which may come from a vmap or the like."""
    from torch.utils import _pytree

    for v in _pytree.tree_leaves(values):
        if isinstance(v, _Transformed):
            raise v.needs
    return values


class _Importer(Importer):
    """Imports a whole program, node by node in its order, because what it writes matters later."""

    def __init__(self, functional: bool, typed: bool = True) -> None:
        super().__init__({}, typed=typed)
        self.memory = _Memory()
        self.functional = functional
        self.asserted: dict[tuple[str, Any], None] = {}  # messages and conditions, in their order
        self.dense: set[Variable] = set()  # inputs without gaps between their elements
        self.vmaps: list[_Transformed] = []  # the vmaps that a node is in
        self.draws: list[tuple[Apply, Variable | None]] = []  # and when what was drawn before is

    def value(self, argument: Any) -> Any:
        found = super().value(argument)
        return self.memory.current(found) if isinstance(found, Variable) else found

    def run(self, module: Any) -> None:
        """Computes the nodes of a graph; placeholders have values already."""
        places = {n: i for i, n in enumerate(module.graph.nodes)}
        for node in module.graph.nodes:
            if node.op == "get_attr":
                self.values[node] = self._attribute(module, node)
            elif node.op == "call_function" and node not in self.values:
                try:
                    self._step(node, places)
                except _NeedsFunctional as reason:
                    reason.where = reason.where or written_at(node)
                    raise
            elif node.op not in ("call_function", "placeholder", "output"):
                raise UnsupportedNode(f"{node.format_node()}: {node.op} has no counterpart")

    def _attribute(self, module: Any, node: Any) -> Any:
        import torch

        value = module
        for part in node.target.split("."):
            value = getattr(value, part)
        return constant(value) if isinstance(value, torch.Tensor) else value

    def _step(self, node: Any, places: Mapping[Any, int]) -> None:
        target = node.target
        name = getattr(target, "__name__", "")
        schema = getattr(target, "_schema", None)
        if self._transforms(node):
            return
        if getattr(target, "namespace", "") == "higher_order":
            self.values[node] = self._higher_order(node, name)
            return
        if schema is not None and schema.name in CHECKS:
            self._check(node, schema, places)
            self.values[node] = None
            return
        self.values[node] = self._one(node)

    def _transforms(self, node: Any) -> bool:
        """Whether a node belongs to a vmap or the like, or takes what comes out of one: torch
        resolves these as it resolves mutations, where somebody needs what comes out. Nobody needs
        the blocks of flex_attention's masks."""
        import torch

        target = node.target
        schema = getattr(target, "_schema", None)
        taken = [self.values[n] for n in node.all_input_nodes]
        found = next((v for v in taken if isinstance(v, _Transformed)), None)
        if getattr(target, "__module__", "") == "torch._functorch.predispatch":
            from torch._functorch import predispatch

            found = found or _Transformed(node)
            self.values[node] = found
            if target is predispatch._vmap_increment_nesting:
                self.vmaps.append(found)
            elif target is predispatch._vmap_decrement_nesting:
                self.vmaps.pop()
            return True
        if self.vmaps and draws(node):
            raise self.vmaps[-1].needs
        if found is None:
            return False
        indexes = target is torch.ops.higher_order.flat_apply  # by tensors
        if getattr(target, "namespace", "") == "higher_order" and not indexes:
            return False  # it says what it needs
        if schema is not None:
            checks = schema.name in CHECKS and not schema.name.endswith("_metadata")
            written = [
                n
                for i, a in enumerate(schema.arguments)
                if a.alias_info is not None and a.alias_info.is_write
                for n in [node.args[i] if i < len(node.args) else node.kwargs.get(a.name)]
            ]
            if checks or not all(map(_makes_new, written)):
                raise found.needs
        self.values[node] = found
        return True

    # Graphs inside graphs

    def _cond(self, node: Any) -> Any:
        """torch.cond: a node with both graphs in it; only the one that is taken is computed."""
        condition, *graphs, operands = self.value(node.args)
        if isinstance(getattr(condition, "type", None), TensorType):
            condition = results_of(_packet("is_nonzero").make_node(condition))
        types = self._result_types(node)
        branches = [self._branch(node, g, operands, types) for g in graphs]
        if not isinstance(condition, Variable):
            condition = constant(bool(condition))
        given = [v for v in operands if isinstance(v, Variable)]
        return self._nested(Cond(branches, types).make_node(condition, *given))

    def _nested(self, made: Apply) -> tuple[Variable, ...]:
        """The results of a node with graphs in it."""
        self._draw(made, ())
        return tuple(made.outputs)

    def _while(self, node: Any) -> Any:
        """torch.while_loop: a node with both graphs in it."""
        test, body, carried, others = self.value(node.args)
        types = self._result_types(node)
        if not types:
            raise UnsupportedNode(f"{node.format_node()}: the loop carries nothing")
        given = [self._given_as(t, v) for t, v in zip(types, carried, strict=True)]
        operands = [*given, *others]
        holds = self._branch(node, test, operands, [schema_type("bool")], types)
        again = self._branch(node, body, operands, types, types)
        given += [v for v in others if isinstance(v, Variable)]
        return self._nested(While(holds, again, types).make_node(*given))

    def _scan(self, node: Any) -> Any:
        """torch.scan: a node with the graph of a step. Results may be none."""
        body, begin, sequences, others = self.value(node.args)
        values = node.meta["val"]
        there = [k for k, v in enumerate(values) if v is not None]
        types = self._result_types(node, [values[k] for k in there])
        if not sequences or len(there) == len(values) == 0:
            raise UnsupportedNode(f"{node.format_node()}: the scan is over nothing")
        given = list(map(constant, begin))
        carried = types[: len(begin)]
        elements = self._elements(sequences)
        branch = self._branch(
            node,
            body,
            [*given, *sequences, *others],
            [*carried, *map(_element, types[len(begin) :])],
            [*carried, *elements],
            there,
        )
        given += [v for v in (*sequences, *others) if isinstance(v, Variable)]
        op = Scan(branch, types, len(begin), len(sequences))
        results = dict(zip(there, self._nested(op.make_node(*given)), strict=True))
        return tuple(results.get(k) for k in range(len(values)))

    def _map(self, node: Any) -> Any:
        """torch's map: a node with the graph of an element."""
        body, sequences, others = self.value(node.args)
        types = self._result_types(node)
        elements = self._elements(sequences)
        branch = self._branch(
            node, body, [*sequences, *others], [_element(t) for t in types], elements
        )
        given = [v for v in (*sequences, *others) if isinstance(v, Variable)]
        return self._nested(Map(branch, types, len(sequences)).make_node(*given))

    def _associative(self, node: Any) -> Any:
        """torch.associative_scan: a node with the graph that combines two elements, as PyTorch
        calls it, with many pairs at once."""
        body, sequences, others = self.value(node.args)
        types = self._result_types(node)
        elements = self._elements(sequences)
        operands = [*sequences, *sequences, *others]
        step = self._branch(node, body, operands, elements, elements * 2)
        rows = [TensorType(t.dtype, (None, *t.shape), device=t.device) for t in elements]  # type: ignore[attr-defined]
        pairs = self._branch(node, body, operands, rows, rows * 2, typed=False)
        given = [v for v in (*sequences, *others) if isinstance(v, Variable)]
        return self._nested(AssociativeScan(pairs, step, types).make_node(*given))

    def _elements(self, sequences: Sequence[Variable]) -> list[Type]:
        return [_element(v.type) for v in sequences]

    def _result_types(self, node: Any, values: Any = None) -> list[Type]:
        """The types of what a node with graphs in it returns."""
        values = node.meta.get("val") if values is None else values
        types = [type_of(v) for v in values] if isinstance(values, (list, tuple)) else [None]
        found = [t for t in types if t is not None]
        if len(found) < len(types):
            raise UnsupportedNode(
                f"{node.format_node()}: it returns what is neither a strided tensor nor a number"
                f"{written_at(node)}"
            )
        return found

    def _given_as(self, t: Type, value: Any) -> Variable:
        """What a graph gets for a value, as a variable of a type."""
        if isinstance(value, Variable):
            return value
        return t.make_constant(t.filter(int(value) if type(value) is bool else value))

    def _branch(
        self,
        node: Any,
        module: Any,
        operands: Sequence[Any],
        types: Sequence[Type],
        given: Sequence[Type] = (),
        wanted: Sequence[int] | None = None,
        typed: bool = True,
    ) -> Branch:
        """A graph inside the graph, which returns results of these types: those that are `wanted`,
        by their numbers. The first operands may have other types in it, `given`; all types follow
        from these where those of the nodes are not the ones that it is called with."""
        importer = _Importer(self.functional, typed)
        places = [n for n in module.graph.nodes if n.op == "placeholder"]
        known = [getattr(v, "type", None) for v in operands]
        known[: len(given)] = given
        values = [
            t.make_variable() if isinstance(v, Variable) and t is not None else v
            for t, v in zip(known, operands, strict=True)
        ]
        importer.values.update(zip(places, values, strict=True))
        importer.run(module)
        outputs = _known(importer.value(outputs_of(module.graph)))
        outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        outputs = outputs if wanted is None else [outputs[k] for k in wanted]
        inputs = [v for v in values if isinstance(v, Variable)]
        where = f"{node.format_node()}: a graph in it"
        if any(importer.memory.current(v) is not v for v in inputs):
            raise UnsupportedNode(
                f"{where} writes into what it is given: let it write into a clone, and return "
                f"that{written_at(node)}"
            )
        results = []
        for t, v in zip(types, outputs, strict=True):
            tensor = isinstance(getattr(v, "type", None), TensorType)
            if tensor and not isinstance(t, TensorType):  # a predicate
                v = results_of(_packet("is_nonzero").make_node(v))
            elif not isinstance(v, Variable) and isinstance(v, (bool, int, float)):
                v = self._given_as(t, v)
            if not isinstance(v, Variable) or isinstance(v.type, TensorType) is not isinstance(
                t, TensorType
            ):
                raise UnsupportedNode(f"{where} returns {v}, not a {t}{written_at(node)}")
            results.append(v)
        for message, holds in importer.asserted:
            results[0] = Require(message)(results[0], holds)
        last = importer.drawn_last(results)
        if last is not None:
            results[0] = in_order(results[0], last)
        return Branch(inputs, results)

    def _taken(self, module: Any, values: Sequence[Any]) -> Any:
        """What a recorded graph computes from values."""
        return _recorded(module, dict(zip(placeholders(module.graph), values, strict=True)))

    def _higher_order(self, node: Any, name: str) -> Any:
        import torch

        flex = node.target is torch.ops.higher_order.flex_attention
        if not flex:
            _known([self.values[n] for n in node.all_input_nodes])
        made = {
            torch.ops.higher_order.cond: self._cond,
            torch.ops.higher_order.while_loop: self._while,
            torch.ops.higher_order.scan: self._scan,
            torch.ops.higher_order.map_impl: self._map,
            torch.ops.higher_order.associative_scan: self._associative,
        }.get(node.target)
        if made is not None:
            if not self.typed:
                raise UnsupportedNode(
                    f"{node.format_node()}: the combination of an associative_scan has control "
                    f"flow: use torch.where in it, or scan{written_at(node)}"
                )
            return made(node)
        if flex:
            args = self.value(node.args)
            _known((args[:4], args[7:]))
            return flex_attention(node, args, self._taken)
        if name in _FUNCTIONALIZED and not self.functional:
            raise _NeedsFunctional(f"{node.format_node()}{written_at(node)}")
        if name not in _CALLS and not self.functional:
            raise _NeedsFunctional(f"{node.format_node()}{written_at(node)}")
        if node.target in _auto_functionalized():
            operator = node.args[0]._schema.name
            raise UnsupportedNode(
                f"{operator} writes into tensors that share memory with others of its arguments or "
                f"with its results: let the module give it clones{written_at(node)}"
            )
        if name not in _CALLS:
            raise UnsupportedNode(
                f"{node.format_node()}: {name} has no counterpart: use what is made of PyTorch's "
                "functions, torch.cond, while_loop, scan and map, and let them return what they "
                f"change, or export the parts apart{written_at(node)}"
            )
        args = self.value(node.args)
        place = _CALLS[name]
        inner = args[place]
        operands = args[place + 1 :]
        if name == "invoke_subgraph":
            operands = args[2:]
        inputs = [n for n in inner.graph.nodes if n.op == "placeholder"]
        self.values.update(zip(inputs, operands, strict=True))
        self.run(inner)
        return self.value(outputs_of(inner.graph))

    # Native functions

    def call(
        self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], node: Any = None
    ) -> Any:
        import torch

        if _native_name(target) in _CONVERSIONS and _returns_view(node):
            return args[0]  # that very tensor
        if target is torch.ops.aten.instance_norm.default and args[3] is not None and args[5]:
            return self._instance_norm(*args)
        return super().call(target, args, kwargs, node)

    def _instance_norm(
        self, x: Any, weight: Any, bias: Any, mean: Any, var: Any, use: bool, momentum: Any,
        eps: Any, cudnn: bool,
    ) -> Any:  # fmt: skip
        """instance_norm that keeps statistics, which it writes: a batch norm of rows and channels
        together, as PyTorch has it."""
        n, c, *others = x.shape

        def repeated(v: Any) -> Any:
            return None if v is None else native("repeat")(v, [n])

        rows = native("view")(native("contiguous")(x), [1, n * c, *others])
        y, _, _, *news = native("_native_batch_norm_legit_functional")(
            rows,
            repeated(weight),
            repeated(bias),
            repeated(mean),
            repeated(var),
            True,
            momentum,
            eps,
        )
        for old, new in zip((mean, var), news, strict=True):
            kept = native("mean.dim")(native("view")(new, [n, c]), [0])
            self.memory.became(old, kept, same=False)
        return native("view")(y, list(x.shape))

    def apply(self, function: NativeFunction, args: Any, kwargs: Any, node: Any) -> Apply:
        if self.functional:
            # torch has made a view of what was one for the example.
            function = native("reshape") if function.name == "view" else function
        else:
            if _cast(args, kwargs, node):
                raise _NeedsFunctional(f"{node.format_node()} was exported under torch.autocast")
            new = self._functional(function, args, kwargs, node)
            if new is not None:
                return new
        return self._apply(function, args, kwargs, node)

    def _apply(self, function: NativeFunction, args: Any, kwargs: Any, node: Any) -> Apply:
        """The application as it is, of which note has been taken."""
        random = function.random and _draws(function)
        if random and self.draws:
            args, kwargs = self._with_input(args, kwargs)
        applied = super().apply(function, args, kwargs, node)
        if random:
            self._draw(applied, (args, kwargs))
        if applied.op.destroy_map or applied.op.view_map:
            self.memory.applied(applied)
        return applied

    # Random numbers are drawn in the order of the program, and all of them.

    def _draw(self, applied: Apply, given: Any) -> None:
        """Takes note of the nodes that draw, of those that an application consists of."""
        from torch.utils import _pytree

        border = {v for v in _pytree.tree_leaves(given) if isinstance(v, Variable)}
        for node in toposort(applied.outputs, border) if given else [applied]:
            if node.op.random and _draws(node.op):
                before = drawn(self.draws[-1][0].outputs[0]) if self.draws else None
                self.draws.append((node, before))

    def _with_input(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The arguments of a function that draws, with a number that is an input where no other is:
        one that comes after what was drawn before."""
        from torch.utils import _pytree

        leaves, spec = _pytree.tree_flatten((args, kwargs))
        if not any(isinstance(v, Variable) for v in leaves):
            place = next((i for i, v in enumerate(leaves) if type(v) is int), None)
            if place is None:
                raise UnsupportedNode(
                    "a program cannot draw a tensor without sizes after other random numbers: "
                    "let it draw one of the size 1"
                )
            leaves[place] = in_order(leaves[place], drawn(self.draws[-1][0].outputs[0]))
        found: tuple[Any, Any] = _pytree.tree_unflatten(leaves, spec)
        return found

    def drawn_last(self, outputs: Sequence[Variable]) -> Variable | None:
        """Has every draw come after the one before it. What says that the last one has been made,
        unless the outputs do anyway."""
        for node, before in self.draws:
            waits = any(v.owner is not None and v.owner.op == in_order for v in node.inputs)
            if before is not None and not waits:
                if not node.inputs:
                    raise UnsupportedNode(
                        f"{node.op} has no inputs and draws random numbers after others: no graph "
                        "keeps them in this order"
                    )
                node.inputs[0] = in_order(node.inputs[0], before)
        if not self.draws or self.draws[-1][0] in toposort(outputs):
            return None
        last: Variable = drawn(self.draws[-1][0].outputs[0])
        return last

    def foreign(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], node: Any) -> Any:
        """An operator of torch.library, with results of the types that the node has. One that is
        made of other operators is taken apart."""
        from torch.utils import _pytree

        parts = _decomposed(target, node)
        if parts is not None:
            inputs = placeholders(parts.graph)
            self.values.update(zip(inputs, _pytree.tree_leaves((args, kwargs)), strict=True))
            self.run(parts)
            return self.value(outputs_of(parts.graph))
        value = node.meta.get("val")
        returns = target._schema.returns
        several = isinstance(value, (tuple, list))
        types = [type_of(v) for v in (value if several else (value,))] if returns else []
        if value is None and len(returns) == 1 and str(returns[0].type) in ("int", "float", "bool"):
            types = [schema_type(str(returns[0].type))]  # a number that torch knows already
        known = [t for t in types if t is not None]
        if len(known) != len(types) or (not known and not target._schema.is_mutable):
            raise UnsupportedNode(
                f"{target._schema.name} is no native function of PyTorch, and of other operators "
                "only those can be called that return tensors and numbers, or write into tensors"
            )
        op = LibraryOp.of(target, args, kwargs, written_at(node))
        pairs = zip(flat((args, kwargs)), flat((node.args, node.kwargs)), strict=True)
        op.example = [n.meta["val"] for v, n in pairs if isinstance(v, Variable)]
        # A view is written as a copy, which then goes into the whole.
        parts = {v: native("copy")(v, v) for v in self._parts(op, args, kwargs)}
        if parts:
            args, kwargs = _pytree.tree_map_only(
                Variable, lambda v: parts.get(v, v), (args, kwargs)
            )
        applied = op.node(known, args, kwargs)
        if op.random:
            self._draw(applied, ())
        self.memory.applied(applied)
        for v, own in parts.items():
            if self.memory.part_became(v, self.memory.current(own)) is None:
                raise _NeedsFunctional(f"{op.name} writes into {v}")
        results = applied.outputs[: len(known)]
        # A result that is a written argument by the schema is that argument.
        for o, i in op.returned_inputs.items():
            given = applied.inputs[i]
            own = next((v for v, copied in parts.items() if copied is given), given)
            now = self.memory.current(own)
            if now.type != results[o].type:
                raise _NeedsFunctional(f"{op.name} returns a view of what it writes into")
            results[o] = now
        return list(results) if several else results[0] if results else None

    def _parts(self, op: LibraryOp, args: Any, kwargs: Any) -> list[Variable]:
        """The views that an operator writes, if no other argument shares their memory and no result
        is a view of them."""
        from torch.utils import _pytree

        given = [v for v in _pytree.tree_leaves((args, kwargs)) if isinstance(v, Variable)]
        written = {i for places in op.destroy_map.values() for i in places}
        viewed = {i for places in op.view_map.values() for i in places}
        found = [
            i
            for i in sorted(written)
            if not self.memory.lies_alone(given[i]) and self.memory.is_view(given[i])
        ]
        for i in found:
            others = [v for k, v in enumerate(given) if k != i]
            if i in viewed or any(self.memory.may_share(given[i], v) for v in others):
                return []
        return [given[i] for i in found]

    def _functional(
        self, function: NativeFunction, args: Any, kwargs: Any, node: Any
    ) -> Apply | None:
        """`x.add_(y)` as a new value, `x.add(y)`, where both have one type, and x lies in memory of
        its own or is a known view; None otherwise."""
        if function.name.startswith("_") or not args or not isinstance(args[0], Variable):
            return None
        x = args[0]
        alone = self.memory.lies_alone(x)
        form = function.functional
        if form and "inplace_view" in function.function.tags and form.name in _VIEWS:
            return self._turned(x, form.apply(form.bind(args, kwargs)))
        exact = form is not None and (assigns(form) or rounds_alike(getattr(x.type, "dtype", None)))
        if form is None or form.random or not exact:
            in_place = alone and x not in self.memory.bases
            return None if in_place else self._written_apart(function, args, kwargs, node)
        if alone and not form.pointwise and x not in self.memory.bases:
            return None
        if alone:
            applied = form.apply(form.bind(args, kwargs))
        elif not self.memory.is_view(x):
            return None
        else:
            known = ((x.type,), ()) if assigns(form) else None
            applied = form.apply(form.bind(args, kwargs), known)
            if len(applied.outputs) != 1 or applied.op.view_map or applied.op.destroy_map:
                return self._written_apart(function, args, kwargs, node)
        (out,) = applied.outputs
        if out.type != x.type:
            mine, theirs = x.type, out.type
            # Where sizes are open, nothing but a size of 1 could differ, and that cannot grow.
            # Another dtype is PyTorch's to convert, or to refuse.
            alike = getattr(mine, "dtype", 0) == getattr(theirs, "dtype", 1)
            if not alike or not getattr(theirs, "is_super", lambda _: False)(mine):
                return None if alone else self._written_apart(function, args, kwargs, node)
            out.type = mine
        if alone:
            if self._may_move(x, form):
                applied = with_strides.make_node(x, out)
                (out,) = applied.outputs
            self.memory.became(x, out, same=False)
            return applied
        return self._in_part(x, out)

    def _in_part(self, part: Variable, new: Variable) -> Apply | None:
        """The application that gives the new value of a view, into which `new` has been written."""
        lists = getattr(part.owner.op, "lists", ())  # type: ignore[union-attr]
        if self.memory.may_be_a_view(part):
            lists = ()  # its place is taken by a node of its own
        view = _alone(part) if lists else None
        if lists and view is None:
            return None  # what comes back is a node, and a node of these returns a list
        now = self.memory.part_became(part, new)
        if now is None or view is None:
            return None if now is None else now.owner
        single = Apply(view, [now.owner.inputs[0]], [now.type.make_variable()])  # type: ignore[union-attr]
        self.memory.applied(single)
        return single

    def _written_apart(
        self, function: NativeFunction, args: Any, kwargs: Any, node: Any
    ) -> Apply | None:
        """The application of a function that writes into its first argument, which is a view or may
        have views: it writes into a copy with the same strides, which then goes into the whole."""
        x = args[0]
        alone = self.memory.lies_alone(x)
        if not alone and not self.memory.is_view(x):
            return None
        own = native("copy")(x, x)
        applied = super().apply(function, (own, *args[1:]), kwargs, node)
        if len(applied.outputs) != 1 or applied.op.destroy_map != {0: [0]}:
            return None
        if function.random and _draws(function):
            self._draw(applied, (own, args[1:], kwargs))
        if alone:
            self.memory.became(x, applied.outputs[0], same=False)
            return applied
        return self._in_part(x, applied.outputs[0])

    def _turned(self, x: Variable, applied: Apply) -> Apply:
        """Records that x has become a view of itself (`x.t_()`), in the same memory."""
        if self.memory.may_be_another(x):
            raise _NeedsFunctional(f"{x} gets other sizes, and may be one tensor with another")
        self.memory.applied(applied)
        for node, value in self.values.items():
            if isinstance(value, Variable) and self.memory.latest(value) is x:
                self.values[node] = applied.outputs[0]
        return applied

    def _may_move(self, x: Variable, form: NativeFunction) -> bool:
        """Whether the result of a function of x may have other strides than x."""
        from ..rewrite.known_strides import dense, row_major

        if corrected("own_layout", form.name):
            return not row_major(x)
        return not form.pointwise or (not dense(x) and x not in self.dense)

    # Checks

    def _check(self, node: Any, schema: Any, places: Mapping[Any, int]) -> None:
        """A check is decided here, or made when the graph runs, before the values that it is about
        are used."""
        name = schema.name.removeprefix("aten::").removeprefix("_functional_")
        args = self.value(node.args)
        kwargs = self.value(node.kwargs)
        if name == "_assert_tensor_metadata":
            self._check_metadata(node, args, kwargs)
        elif name in ("sym_constrain_range", "sym_constrain_range_for_size"):
            x, low, high, *_ = native(_native_name(node.target)).bind(args, kwargs)
            low = 0 if low is None and name.endswith("for_size") else low
            if isinstance(x, Variable):
                limits: list[Any] = [(low, ">=", operator.ge), (high, "<=", operator.le)]
                for bound, sign, holds in limits:
                    if bound is not None:
                        message = f"{node.args[0]} must be {sign} {bound}"
                        self._require(node, holds(x, bound), message, places)
        else:
            condition = args[0]
            message = args[1] if len(args) > 1 else kwargs.get("assert_msg", "an assertion failed")
            if isinstance(getattr(condition, "type", None), TensorType):
                condition = results_of(_packet("is_nonzero").make_node(condition))
            if isinstance(condition, Variable):
                self._require(node, condition, str(message), places)
            elif not condition:
                raise UnsupportedNode(f"{node.format_node()}: {message}{written_at(node)}")

    def _check_metadata(self, node: Any, args: Any, kwargs: Any) -> None:
        """UnsupportedNode unless the type says what is asserted. It says nothing of strides; device
        and layout are the program's own."""
        x, sizes, strides, dtype, *_ = native("_assert_tensor_metadata").bind(args, kwargs)
        known = dtype in (None, x.type.torch_dtype) and (
            sizes is None or same(list(sizes), list(x.type.shape))
        )
        if not known or strides is not None:
            raise UnsupportedNode(
                f"{node.format_node()}: the program asserts more of {x} than a type can say "
                f"({x.type}): assert it before the call, and leave it out here{written_at(node)}"
            )

    def _require(self, node: Any, condition: Any, message: str, places: Mapping[Any, int]) -> None:
        """Puts a condition before the later uses of the values that it was computed from, and
        before the results, which may not depend on those uses."""
        self.asserted[message, condition] = None
        here = places.get(node, -1)
        pending, seen = list(node.all_input_nodes), set()
        while pending:
            n = pending.pop()
            if n in seen:
                continue
            seen.add(n)
            value = self.values.get(n)
            later = any(places.get(user, -1) > here for user in n.users)
            if later and isinstance(value, Variable) and value is not condition:
                old = self.memory.current(value)
                checked = Require(message).make_node(old, condition)
                self.memory.applied(checked)
                self.values[n] = checked.outputs[0]
            else:
                pending.extend(n.all_input_nodes)


def _recorded(module: Any, values: Mapping[Any, Any]) -> Any:
    """What a graph that make_fx has recorded returns, given values of some of its nodes."""
    importer = _Importer(functional=True)
    importer.values.update(values)
    importer.run(module)
    return importer.value(outputs_of(module.graph))


register_gradients(lambda node, grads, need: library_grad(node, grads, need, _recorded))


@cache
def _auto_functionalized() -> frozenset[Any]:
    """What torch makes of operators of libraries that write, as it makes a program functional."""
    from torch.ops import higher_order

    names = "auto_functionalized", "auto_functionalized_v2"
    return frozenset(getattr(higher_order, n) for n in names if hasattr(higher_order, n))


def _draws(what: Any) -> bool:
    """Whether a function or an op that is random draws numbers: `empty` takes what is there."""
    function = getattr(what, "native", what)
    schema = getattr(function, "function", None)
    return schema is None or "nondeterministic_seeded" in schema.tags


def _cast(args: tuple[Any, ...], kwargs: Mapping[str, Any], node: Any) -> bool:
    """Whether a result of a program has another dtype than PyTorch gives it by itself, as far as
    the arguments say: floating point numbers of one kind become those of another."""
    import torch

    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point:
        return False
    given = [*args, *kwargs.values()]
    given += [v for a in given if isinstance(a, (list, tuple)) for v in a]
    if any(isinstance(v, torch.dtype) for v in given):
        return False
    types = [v.type for v in given if isinstance(v, Variable) and isinstance(v.type, TensorType)]
    known = [t.torch_dtype for t in types if t.dtype is not None]
    floating = [d for d in known if d.is_floating_point or d.is_complex]
    return (
        bool(floating)
        and value.dtype not in floating
        and not any(d.is_complex for d in floating)
        and node.target is not torch.ops.aten.view.dtype
    )


def _decomposed(target: Any, node: Any) -> Any:
    """The graph of an operator that is registered as made of others, whose placeholders are the
    leaves of the arguments; None for another operator."""
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils import _pytree

    has = torch._C._dispatch_has_kernel_for_dispatch_key
    if not has(target.name(), "CompositeImplicitAutograd"):
        return None
    given = _pytree.tree_map_only(
        torch.fx.Node, lambda n: n.meta.get("val"), (node.args, node.kwargs)
    )
    leaves, spec = _pytree.tree_flatten(given)

    def call(*leaves: Any) -> Any:
        args, kwargs = _pytree.tree_unflatten(leaves, spec)
        return target.decompose(*args, **kwargs)

    symbols = [d for v in leaves for d in getattr(v, "shape", (v,)) if isinstance(d, torch.SymInt)]
    assumed = symbols[0].node.shape_env.guards if symbols else []
    before = len(assumed)
    try:
        with torch.no_grad():
            parts = make_fx(call)(*leaves)
    except REFUSALS:  # a user's Python, which may look at numbers; it is called as it is
        return None
    # A graph that is right for some sizes only is not used: nobody would check them.
    return parts if len(assumed) == before else None


def _element(t: Any) -> TensorType:
    """The type of an element of a sequence."""
    return TensorType(t.dtype, t.shape[1:], device=t.device)


def _packet(name: str) -> Any:
    found = find_packet(name)
    assert found is not None
    return found


class _Program:
    """An exported program on its way to a model. `original` is what the caller gave, where that was
    not functional."""

    def __init__(self, program: Any, original: Any = None) -> None:
        self.program = program
        self.original = program if original is None else original
        self.importer = _Importer(functional=original is not None)
        self.inputs: list[Variable] = []
        self.in_leaves: list[int | Fixed] = []
        self.leaves: list[str] = []  # the names of their placeholders
        self.targets: dict[str, str] = {}  # of parameters, buffers, constants: by placeholder
        self._given: dict[str, tuple[Variable, Variable]] = {}  # by placeholder; also as checked

    def model(self, name: str | None) -> Model:
        program = self.program
        nodes = placeholders(program.graph)
        specs = program.graph_signature.input_specs
        for node, spec in zip(nodes, specs, strict=True):
            self._input(node, spec)
        self._check_sizes([n for n in nodes if n.name in self._given])
        self.importer.run(program.graph_module)
        outputs, out_leaves, updates, mutations = self._outputs()
        results = [*outputs, *updates.values(), *mutations.values()]
        weights, state, values = self._weights(results, updates)
        call = program.module_call_graph[0].signature
        return Model(
            self.inputs,
            [weights.get(v, v) for v in outputs],
            name=name or "model",
            weights={n: v for n, v in self._named(weights) if isinstance(v, Constant)},
            state=state,
            state_values=values,
            updates={n: weights.get(v, v) for n, v in updates.items()},
            in_spec=program.call_spec.in_spec,
            out_spec=program.call_spec.out_spec,
            example=self._example(),
            in_leaves=self.in_leaves,
            out_leaves=out_leaves,
            mutations={i: weights.get(v, v) for i, v in mutations.items()},
            persistent=[n for n in self.original.state_dict if n in self.targets.values()],
            parameters=list(self.original.graph_signature.parameters),
            aliases=self._aliases(state),
            arguments=tuple(getattr(call, "forward_arg_names", None) or ()),
        )

    def _aliases(self, state: Mapping[str, Any]) -> dict[str, str]:
        """Names of the module for tensors that are state under another one."""
        named = self.original.state_dict
        tensors = {n: named[n] for n in state if n in named}
        return {
            n: first
            for n, t in named.items()
            if n not in state
            for first, other in tensors.items()
            if t.numel() and t.is_set_to(other)
        }

    # In

    def _input(self, node: Any, spec: Any) -> None:
        kind = spec.kind.name
        argument = type(spec.arg).__name__
        if kind == "USER_INPUT":
            self.leaves.append(node.name)
        if argument == "ConstantArgument":
            self.in_leaves.append(Fixed(spec.arg.value))
            self.importer.values[node] = spec.arg.value
            return
        t = None
        if kind in ("USER_INPUT", "PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
            t = type_of(node.meta.get("val"))
        if t is None:
            raise UnsupportedNode(
                f"{node.format_node()}: inputs of the kind {kind} ({argument}) have no counterpart"
            )
        if kind == "USER_INPUT":
            v = t.make_variable(node.name)
            self.in_leaves.append(len(self.inputs))
            self.inputs.append(v)
        else:
            v = t.make_variable(spec.target)
            self.targets[node.name] = spec.target
            if is_dense(self._tensor(spec.target)):
                self.importer.dense.add(v)
        self.importer.values[node] = v
        self._given[node.name] = v, v

    def _check_sizes(self, nodes: Sequence[Any]) -> None:
        """Puts what the program knows about the sizes of its inputs before their first use."""
        nodes = [n for n in nodes if n.name not in self.targets]
        rules = list(size_rules(nodes, self.program.range_constraints))
        conditions = [*size_conditions(nodes, self.program.range_constraints), *self._guards(nodes)]
        used = {rule.input for rule in rules} | {i for c in conditions for i, _ in c.sizes()}
        if not used:
            return
        places = {i: k for k, i in enumerate(sorted(used))}
        check = CheckSizes(
            [nodes[i].name for i in places],
            [rule._replace(input=places[rule.input]) for rule in rules],
            [condition.renumbered(places) for condition in conditions],
        )
        checked = check.make_node(*(self._given[nodes[i].name][0] for i in places))
        for i, v in zip(places, checked.outputs, strict=True):
            name = nodes[i].name
            self._given[name] = self._given[name][0], v
            self.importer.values[nodes[i]] = v

    def _guards(self, nodes: Sequence[Any]) -> Iterator[Condition]:
        """The conditions on sizes under which the module does what the program does: which way it
        goes at its `if`s depends on them."""
        guards = getattr(self.original, "_guards_code", None)
        if guards is None:
            sizes = [d for n in nodes for d in getattr(n.meta["val"], "shape", ())]
            if any(known_size(d) is None for d in sizes):
                raise UnsupportedNode(
                    "this version of torch does not say under which conditions on its open sizes "
                    "the program is right: export it with fixed sizes, or with another torch"
                )
            return
        sources = self._sources(nodes)
        for guard in guards:
            try:
                condition = parse(guard, sources)
            except BridgeTypeError as e:
                raise UnsupportedNode(
                    f"the program is right only where {guard}, which cannot be checked: {e}"
                ) from e
            if not _is_decided(condition, nodes):
                yield condition

    def _sources(self, nodes: Sequence[Any]) -> dict[str, tuple[int, str]]:
        """The numbers and names of inputs by what guards call them."""
        from torch.utils import _pytree

        numbers = {n.name: i for i, n in enumerate(nodes)}
        call = self.program.module_call_graph[0].signature
        names = list(getattr(call, "forward_arg_names", None) or ())
        found: dict[str, tuple[int, str]] = {}
        spec = self.program.call_spec.in_spec
        paths = leaf_paths(spec, self.in_leaves, [v.type for v in self.inputs])
        for leaf, name in enumerate(self.leaves):
            if name not in numbers:
                continue
            place = numbers[name], name
            found[f"L['flat_args'][{leaf}]"] = place
            if paths is None:
                continue
            path = paths[leaf]
            argument = getattr(path[1], "idx", getattr(path[1], "key", None))
            if isinstance(argument, int):
                argument = names[argument] if argument < len(names) else name
            rest = _pytree.keystr(path[2:])
            found[f"L[{argument!r}]{rest}"] = place
            # What the module takes as *args.
            base, _, number = str(argument).rpartition("_")
            if base and number.isdigit():
                found.setdefault(f"L[{base!r}][{number}]{rest}", place)
        return found

    def _example(self) -> list[Any] | None:
        """The arguments that the program was exported with, one for each input."""
        from torch.utils import _pytree

        given = self.original.example_inputs
        if given is None:
            return None
        args, kwargs = given
        spec = self.program.call_spec.in_spec
        order = spec.child(1).context if spec.num_children == 2 else ()
        leaves = _pytree.tree_leaves((args, {k: kwargs[k] for k in order if k in kwargs}))
        if len(leaves) != len(self.in_leaves):
            return None
        found = zip(self.in_leaves, leaves, strict=True)
        return [leaf for place, leaf in found if not isinstance(place, Fixed)]

    # Out

    def _outputs(
        self,
    ) -> tuple[list[Variable], list[int | Fixed], dict[str, Variable], dict[int, Variable]]:
        """The results, where each leaf of them is, the new values of buffers and of inputs."""
        importer = self.importer
        leaves: list[Any] = []
        updates: dict[str, Variable] = {}
        mutations: dict[int, Variable] = {}
        numbers = {v: i for i, v in enumerate(self.inputs)}
        values = _known(importer.value(outputs_of(self.program.graph)))
        for spec, value in zip(self.program.graph_signature.output_specs, values, strict=True):
            kind = spec.kind.name
            if kind in ("BUFFER_MUTATION", "PARAMETER_MUTATION"):
                updates[spec.target] = value
            elif kind == "USER_INPUT_MUTATION":
                mutations[numbers[self._given[spec.target][0]]] = value
            elif kind in ("USER_OUTPUT", "LOSS_OUTPUT"):
                leaves.append(value)
            else:
                raise UnsupportedNode(f"{spec}: results of the kind {kind} have no counterpart")
        for name, (given, checked) in self._given.items():
            now = importer.memory.current(checked)
            if now is checked:
                continue
            if name in self.targets:
                updates[self.targets[name]] = now
            else:
                mutations[numbers[given]] = now
        self._assert_before(leaves, updates, mutations)
        outputs: list[Variable] = []
        places: list[int | Fixed] = []
        for value in leaves:
            if isinstance(value, Variable):
                places.append(len(outputs))
                outputs.append(value)
            else:
                places.append(Fixed(value))
        return outputs, places, _apart(updates, outputs), mutations

    def _assert_before(
        self, leaves: list[Any], updates: dict[str, Variable], mutations: dict[int, Variable]
    ) -> None:
        """Puts everything that the program asserts, and all random numbers that it draws, before
        one of its results, or else before what it writes."""
        computed = [v for v in leaves if isinstance(v, Variable)]
        last = self.importer.drawn_last([*computed, *updates.values(), *mutations.values()])
        if not self.importer.asserted and last is None:
            return
        results: list[tuple[Any, Any]] = [
            *((leaves, i) for i, value in enumerate(leaves) if isinstance(value, Variable)),
            *((updates, name) for name in updates),
            *((mutations, i) for i in mutations),
            *((leaves, i) for i, value in enumerate(leaves) if type(value) in (bool, int, float)),
        ]
        if not results:
            message, _ = next(iter(self.importer.asserted), (None, None))
            does = "draws random numbers" if message is None else f"asserts something ({message})"
            raise UnsupportedNode(
                f"the program {does}, and returns nothing that a graph could compute: return a "
                "tensor or a number"
            )
        of, place = results[0]
        for message, condition in self.importer.asserted:
            of[place] = Require(message)(constant(of[place]), condition)
        if last is not None:
            of[place] = in_order(of[place], last)

    # Parameters and buffers

    def _weights(
        self, outputs: Sequence[Variable], updates: Mapping[str, Variable]
    ) -> tuple[dict[Variable, Variable], dict[str, Variable], dict[str, Any]]:
        """What stands for each parameter and buffer: a constant, in the graph too, unless a call
        changes it; and those that are changed, with their values."""
        stand_for: dict[Variable, Variable] = {}
        state: dict[str, Variable] = {}
        values: dict[str, Any] = {}
        constants: dict[int, Variable] = {}
        self._check_apart(outputs, updates)
        for name, target in self.targets.items():
            v = self._given[name][0]
            tensor = self._tensor(target)
            if target in updates:
                state[target] = v
                values[target] = clone_of(tensor.detach())
                continue
            known = constants.get(id(tensor))
            if known is None:
                # One that requires a gradient keeps that: kernels are chosen by it.
                data = tensor.detach().requires_grad_(tensor.requires_grad)
                known = constants[id(tensor)] = TensorConstant(v.type, data, target)
            stand_for[v] = known
        for node in toposort(outputs):
            node.inputs = [stand_for.get(v, v) for v in node.inputs]
        return stand_for, state, values

    def _check_apart(self, results: Sequence[Variable], updates: Mapping[str, Variable]) -> None:
        """Refuses what a call changes under two names: a graph has a value for each of them, and
        only one would become the new one. torch.export itself sees to one tensor of two names, but
        not to a buffer that is a view of another."""
        if not updates:
            return
        used = {*results, *(v for node in toposort(results) for v in node.inputs)}
        found = [
            (target, self._tensor(target))
            for name, target in self.targets.items()
            if target in updates or self._given[name][0] in used
        ]
        spans = sorted((*byte_range(t), target) for target, t in found if t.numel())
        for i, (_, end, one) in enumerate(spans):
            for start, _, two in spans[i + 1 :]:
                if start >= end:
                    break
                changed, other = (one, two) if one in updates else (two, one)
                if changed in updates and overlap(self._tensor(one), self._tensor(two)):
                    raise UnsupportedNode(
                        f"a call changes {changed}, which shares its memory with {other}, that is "
                        "used as well: keep one of them, and take the other from it in forward"
                    )

    def _named(self, stand_for: Mapping[Variable, Variable]) -> Iterator[tuple[str, Variable]]:
        for name, target in self.targets.items():
            v = self._given[name][0]
            yield target, stand_for.get(v, v)

    def _tensor(self, target: str) -> Any:
        for table in (self.program.state_dict, self.program.constants):
            if target in table:
                return table[target]
        raise UnsupportedNode(f"the program has no value for {target!r}")


def _apart(updates: Mapping[str, Variable], outputs: Sequence[Variable]) -> dict[str, Variable]:
    """New values of buffers that share no memory with a result, which is the caller's."""
    if not updates:
        return {}
    memory = Memory(toposort([*outputs, *updates.values()]))
    taken = {root for v in outputs for root, _ in memory.of(v)}
    found = {}
    for name, v in updates.items():
        roots = {root for root, _ in memory.of(v)}
        if taken & roots:
            v = deep_copy_op(v)
        taken |= roots
        found[name] = v
    return found


def _is_decided(condition: Condition, nodes: Sequence[Any]) -> bool:
    """Whether a condition holds for all that the types of the inputs let in."""

    def size(i: int, dim: int | None) -> int | None:
        value = nodes[i].meta["val"]
        return known_size(value if dim is None else value.shape[dim])

    known = all(size(*place) is not None for place in condition.sizes())
    return known and bool(condition.holds(size))


def size_conditions(nodes: Sequence[Any], ranges: Mapping[Any, Any]) -> Iterator[Condition]:
    """What is known about the sizes of inputs, where no rule says it: that one is the product of
    two others, for instance."""
    import sympy
    import torch
    from torch.utils._sympy.printers import PythonPrinter

    sources: dict[str, tuple[int, str]] = {}
    written: dict[Any, str] = {}  # how what is known of each size is written
    others: list[tuple[str, Any]] = []
    for i, node in enumerate(nodes):
        value = node.meta.get("val")
        sources[f"inputs[{i}]"] = i, node.name
        for dim, size in sizes_of(value):
            if not isinstance(size, torch.SymInt) or known_size(size) is not None:
                continue
            text = f"inputs[{i}]" if dim is None else f"inputs[{i}].size()[{dim}]"
            if linear(size.node.expr) is None:
                others.append((text, size.node.expr))
            else:
                written.setdefault(size.node.expr, text)
    symbols = {e: sympy.Symbol(text) for e, text in written.items() if e.is_Symbol}
    texts = []
    for text, expression in others:
        low, high = bounds(ranges.get(expression))
        texts += [f"{text} >= {low}"] if low is not None else []
        texts += [f"{text} <= {high}"] if high is not None else []
        if expression.free_symbols <= set(symbols):
            value = PythonPrinter().doprint(expression.xreplace(symbols))
            texts.append(f"{text} == {value}")
        elif expression in written:
            texts.append(f"{text} == {written[expression]}")
        written.setdefault(expression, text)
    for text in texts:
        try:
            yield parse(text, sources)
        except BridgeTypeError as e:
            raise UnsupportedNode(
                f"the program is right only where {text}, which cannot be checked: {e}"
            ) from e
