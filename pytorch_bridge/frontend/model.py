"""A model: a graph with names, weights and structure. It comes from torch.export and goes to Go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from ..aliasing.destroy import Memory
from ..aliasing.runtime_strides import clone_of, laid_out
from ..aliasing.unalias import separated
from ..errors import REFUSALS, BridgeTypeError, BridgeValueError
from ..graph.basic import Constant, Variable, toposort
from ..ops.basic import deep_copy_op
from ..ops.checks import CheckSizes, InOrder, Require
from ..ops.native import NativeOp, native
from ..sameness import same
from ..types import TensorType, Type

if TYPE_CHECKING:
    from ..link.compiled_function import CompiledFunction


@dataclass(frozen=True)
class Fixed:
    """An argument or a result that is always this value: None, or a constant."""

    value: Any


@dataclass(eq=False)
class Model:
    """The graph from `inputs` to `outputs`.

    `weights` are the constants of the graph that have names: parameters, buffers and other tensors,
    by the names that state_dict() gives them; one that has two names is there twice. `updates` are
    the new values that a call gives to buffers (BatchNorm's statistics in training), by name; those
    buffers are in `state`, further inputs of the graph that stand for them, and their values in
    `state_values`. `mutations` are the new values that a call gives to its arguments, by the number
    of the input. `persistent` are the names of weights and state in state_dict(), in its order;
    `parameters` are the names of those that training changes. `aliases` are further names of
    tensors in `state`, with their names there.

    `in_spec` and `out_spec` are how arguments and results nest (None: flat). Their leaves are
    `in_leaves` and `out_leaves`: numbers of inputs and outputs, or what is Fixed. `arguments` are
    the names of the module's arguments. `example` are the inputs that the model was exported with.

    Calling a model compiles it first.
    """

    inputs: Sequence[Variable]
    outputs: Sequence[Variable]
    name: str = "model"
    weights: Mapping[str, Constant] = field(default_factory=dict)
    state: Mapping[str, Variable] = field(default_factory=dict)
    state_values: dict[str, Any] = field(default_factory=dict)
    updates: Mapping[str, Variable] = field(default_factory=dict)
    in_spec: Any = None
    out_spec: Any = None
    example: Sequence[Any] | None = None
    in_leaves: Sequence[int | Fixed] | None = None
    out_leaves: Sequence[int | Fixed] | None = None
    mutations: Mapping[int, Variable] = field(default_factory=dict)
    persistent: Sequence[str] | None = None
    parameters: Sequence[str] | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    arguments: Sequence[str] = ()

    def compile(self, mode: str | None = None) -> CompiledModel:
        """Returns a callable that takes and returns what the exported module does.

        `mode` is as for `function`. What the calls of any of a model's callables change is the
        model's: they share its state.
        """
        return CompiledModel(self, mode)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Calls the compiled model; compiles it, the first time."""
        compiled = self.__dict__.get("_compiled")
        if compiled is None:
            compiled = self.__dict__["_compiled"] = self.compile()
        return compiled(*args, **kwargs)

    def state_dict(self) -> dict[str, Any]:
        """Parameters and persistent buffers by name, as they are now. The tensors are the model's
        own."""
        found = {**{n: w.data for n, w in self.weights.items()}, **self.state_values}
        found |= {n: self.state_values[of] for n, of in self.aliases.items()}
        return found if self.persistent is None else {n: found[n] for n in self.persistent}

    def load_state(self, values: Mapping[str, Any]) -> None:
        """Gives buffers that calls change new values, which are copied. BridgeValueError for a
        name that is none of them; nothing has changed then."""
        given: dict[str, Any] = {}
        for name, value in values.items():
            if name not in self.state:
                known = ", ".join(self.state) or "nothing"
                raise BridgeValueError(
                    f"{self.name}: {name!r} is not what a call changes; that is {known}"
                )
            new = self.state[name].type.filter(value).detach().clone()
            given[name] = laid_out(self.state_values[name], new)
        self.state_values.update(given)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{v}: {v.type}" for v in self.inputs)
        outputs = ", ".join(str(v.type) for v in self.outputs)
        return f"Model {self.name}({inputs}) -> ({outputs})"


class CompiledModel:
    """A compiled model: call it as the module that it was exported from."""

    def __init__(self, model: Model, mode: str | None = None) -> None:
        from ..link.compiled_function import function

        self.model = model
        results = [*model.outputs, *model.updates.values(), *model.mutations.values()]
        self._in = _Arguments(model)
        self._out = _Results(model)
        self._counts = len(model.outputs), len(model.outputs) + len(model.updates)
        # Flat arguments and one result need no one in between.
        self._plain = self._in.plain and self._out.single and len(results) == 1
        self.function: CompiledFunction = function(
            [*model.inputs, *model.state.values()],
            results[0] if self._plain else results,
            mode,
            name=model.name,
        )
        self._enter = self.function.entry(self._nested) if self._plain else None

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if self._enter is not None:
            return self._enter(*args, **kwargs)
        return self._nested(*args, **kwargs)

    def _nested(self, /, *args: Any, **kwargs: Any) -> Any:
        """A call whose arguments or results may nest, or are to be converted."""
        if self._plain and not kwargs and len(args) == len(self.model.inputs):
            return self.function(*args)
        from ..link.compiled_function import strictly

        model = self.model
        given = self._in.inputs(args, kwargs)
        if self._plain:
            return self.function(*given)
        for i in model.mutations:
            v = model.inputs[i]
            try:
                given[i] = strictly(v.type, given[i])
            except TypeError as e:
                raise BridgeTypeError(f"{model.name}: input {i} ({v}): {e}") from e
        if model.mutations or model.updates:
            self._check_apart(given)
        read = self._before_writing(given) if model.mutations else given
        results = self.function(*read, *(model.state_values[n] for n in model.state))
        n, m = self._counts
        # What the module writes into its arguments. Autograd may refuse it: before anything else
        # is changed.
        for i, value in zip(model.mutations, results[m:], strict=True):
            given[i].copy_(value)
        for name, value in zip(model.updates, results[n:m], strict=True):
            model.state_values[name] = laid_out(model.state_values[name], value.detach())
        return self._out.nested(results[:n])

    def _check_apart(self, given: Sequence[Any]) -> None:
        """BridgeValueError where an argument shares memory with what the call writes into: the
        module would read there what it has written."""
        import torch

        model = self.model
        arguments = [f"{model.name}: the argument {v}" for v in model.inputs]
        named = list(zip(arguments, given, strict=True))
        written = [arguments[i] for i in model.mutations]
        storages = {_storage(x) for _, x in named} - {None}
        for name in model.updates:
            x = model.state_values[name]
            if _storage(x) in storages:
                named.append((f"the buffer {name}", x))
                written.append(f"the buffer {name}")
        named = [(n, x) for n, x in named if isinstance(x, torch.Tensor)]
        if written:
            names = [n for n, _ in named]
            places = [names.index(n) for n in written if n in names]
            separated([x for _, x in named], places, names, refuse=True)

    def _before_writing(self, given: Sequence[Any]) -> Sequence[Any]:
        """What the function is called with. Where gradients are recorded, these are copies of what
        is written into, because the backward pass may read them. GradientError where the module
        writes into a leaf that requires a gradient."""
        import torch

        def recorded(v: Any) -> bool:
            return isinstance(v, torch.Tensor) and v.requires_grad

        if not torch.is_grad_enabled() or not any(map(recorded, given)):
            return given
        from ..autodiff.compiled_autograd import refuse_leaf

        read = list(given)
        for i in self.model.mutations:
            if isinstance(given[i], torch.Tensor):
                name = self.model.inputs[i]
                refuse_leaf(given[i], f"{self.model.name}: the argument {name} is written into")
                read[i] = clone_of(given[i])
        return read

    def __repr__(self) -> str:
        return f"compiled {self.model!r}"


def _storage(value: Any) -> int | None:
    """What tells the storage of a strided tensor from others; None for other values."""
    import torch

    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_nested:
        return None
    place: int = value.untyped_storage()._cdata
    return place


class _Arguments:
    """How the arguments of a call become inputs."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.spec = model.in_spec
        self.leaves = list(range(len(model.inputs))) if model.in_leaves is None else model.in_leaves
        self.positional, self.keywords = self._names()
        # Whether arguments by position are the inputs.
        self.plain = self.leaves == list(range(len(model.inputs))) and (
            self.spec is None
            or (not self.keywords and all(c.is_leaf() for c in self.spec.child(0).children()))
        )

    def _names(self) -> tuple[list[str], list[str]]:
        """The names of arguments by position, where they are known, and of those by keyword."""
        if self.spec is None:
            return [v.name or "" for v in self.model.inputs], []
        keywords = list(self.spec.child(1).context)
        count = self.spec.child(0).num_children
        names = [n for n in self.model.arguments if n not in keywords][:count]
        return names, keywords

    def inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The values of the inputs, or BridgeTypeError and BridgeValueError."""
        from torch.utils import _pytree

        name = self.model.name
        if kwargs:
            args, kwargs = self._ordered(args, kwargs)
        if self.spec is None:
            leaves = list(args)
            if len(leaves) != len(self.leaves):
                raise BridgeTypeError(f"{name} takes {len(self.leaves)} inputs, got {len(leaves)}")
        else:
            leaves, spec = _pytree.tree_flatten((args, kwargs))
            if spec != self.spec:
                leaves = self._reordered(args, kwargs)
        found: list[Any] = []
        for number, (place, leaf) in enumerate(zip(self.leaves, leaves, strict=True)):
            if not isinstance(place, Fixed):
                found.append(leaf)
            elif not same(leaf, place.value):
                from ..types.schema_types import describe

                raise BridgeValueError(
                    f"{name}: argument {self._leaf_name(number)} is the constant {place.value!r} "
                    f"in the program, got {describe(leaf)}: export it again for another value"
                )
        return found

    def _leaf_name(self, number: int) -> str:
        types = [v.type for v in self.model.inputs]
        paths = None if self.spec is None else leaf_paths(self.spec, self.leaves, types)
        return str(number) if paths is None else self._path_name(paths[number])

    def _path_name(self, path: Sequence[Any]) -> str:
        from torch.utils import _pytree

        place = getattr(path[1], "idx", getattr(path[1], "key", None))
        if isinstance(place, int) and place < len(self.positional):
            place = self.positional[place]
        return f"{place}{_pytree.keystr(path[2:])}"

    def _ordered(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments by keyword where the program has them: by position, or in its order."""
        name = self.model.name
        values = list(args)
        left = dict(kwargs)
        for n in self.positional[len(values) :]:
            if n not in left:
                break
            values.append(left.pop(n))
        for n in left:
            if n in self.positional[: len(values)]:
                raise BridgeTypeError(f"{name} was given the argument {n!r} twice")
            if n not in self.keywords and n not in self.positional:
                known = ", ".join([*self.positional, *self.keywords])
                raise BridgeTypeError(f"{name} has no argument {n!r}; it has {known}")
        return tuple(values), {n: left[n] for n in [*self.keywords, *left] if n in left}

    def _reordered(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The leaves of arguments whose dicts may have their keys in another order."""
        from torch.utils import _pytree

        try:
            leaves: list[Any] = self.spec.flatten_up_to((args, kwargs))
        except ValueError:
            self._misfit(args, kwargs)
        if not all(_pytree.tree_structure(leaf).is_leaf() for leaf in leaves):
            self._misfit(args, kwargs)
        return leaves

    def _misfit(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NoReturn:
        """Raises what is wrong with arguments that nest in another way than the program's."""
        positional = self.spec.child(0).children()
        keywords = dict(zip(self.keywords, self.spec.child(1).children(), strict=True))
        name = self.model.name
        names = [*self.positional, *map(str, range(len(self.positional), len(positional)))]
        for n in self.keywords:
            if n not in kwargs:
                raise BridgeTypeError(f"{name} needs the argument {n!r}")
        if len(args) != len(positional):
            lacking = f": {names[len(args)]!r} is missing" if len(args) < len(positional) else ""
            raise BridgeTypeError(
                f"{name} takes {len(positional)} arguments by position, got {len(args)}{lacking}; "
                "what the program was exported without has its default"
            )
        from torch.utils import _pytree

        pairs = [*zip(names, args, positional, strict=True)]
        pairs += [(n, kwargs[n], spec) for n, spec in keywords.items()]
        for n, value, spec in pairs:
            got = _pytree.tree_structure(value)
            if got != spec:
                raise BridgeTypeError(
                    f"{name}: argument {n} must be {_shape_of(spec)}, got {_shape_of(got)}"
                )
        raise BridgeTypeError(f"{name}: the arguments do not nest as the program's")


class _Results:
    """How outputs become what a call returns."""

    def __init__(self, model: Model) -> None:
        n = len(model.outputs)
        self.spec = model.out_spec
        self.leaves = list(range(n)) if model.out_leaves is None else model.out_leaves
        flat = self.leaves == list(range(n))
        self.single = flat and n == 1 and (self.spec is None or self.spec.is_leaf())
        # Tuples and lists of nothing but outputs are made at once.
        kind = getattr(self.spec, "type", None)
        shallow = self.spec is not None and all(c.is_leaf() for c in self.spec.children())
        self.kind = kind if flat and shallow and kind in (tuple, list) else None

    def nested(self, values: Sequence[Any]) -> Any:
        if self.kind is not None:
            return self.kind(values)
        if self.single:
            return values[0]
        leaves = [p.value if isinstance(p, Fixed) else values[p] for p in self.leaves]
        return leaves if self.spec is None else self.spec.unflatten(leaves)


def leaf_paths(
    spec: Any, leaves: Sequence[int | Fixed], types: Sequence[Type]
) -> list[tuple[Any, ...]] | None:
    """The way to each leaf in the arguments of a model, by its spec, its leaves and the types of
    its inputs; None where that is not known. An object has to be asked for the way, and is made of
    tensors without data."""
    from torch.utils import _pytree

    values = [p.value if isinstance(p, Fixed) else _stand_in(types[p]) for p in leaves]
    try:
        found, again = _pytree.tree_flatten_with_path(spec.unflatten(values))
    except REFUSALS:  # of a class that takes no such tensors
        return None
    return [path for path, _ in found] if again == spec else None


def _stand_in(t: Type) -> Any:
    """A value that a type may have, a tensor without data."""
    import torch

    if not isinstance(t, TensorType):
        return 1
    return torch.empty(
        [1 if n is None else n for n in t.shape or ()], dtype=t.torch_dtype, device="meta"
    )


def substituted(
    outputs: Sequence[Variable], replacements: Mapping[Variable, Variable]
) -> list[Variable]:
    """The outputs with some of the variables that they depend on replaced by others."""
    became: dict[Variable, Variable] = dict(replacements)
    for node in toposort(outputs, became):
        copied = node.clone([became.get(v, v) for v in node.inputs])
        became.update(zip(node.outputs, copied.outputs, strict=True))
    return [became.get(v, v) for v in outputs]


def written_back(
    outputs: Sequence[Variable], updates: Sequence[tuple[Variable, Variable]]
) -> tuple[list[Variable], list[Variable]]:
    """The graph that writes each new value into the input that it is of, in pairs of both. Returns
    the outputs, in memory apart from these inputs, and for each pair the variable to ask for.

    A value that is made in the input's memory, such as a cache with a row written by index_copy_,
    stays there. Others are copied into it, after all that reads what was there before.
    """
    inputs = [x for x, _ in updates]
    news = [_made_in(x, new) for x, new in updates]
    # An input that is written into on the way to a value which lies elsewhere keeps its elements
    # until that value is known.
    destroyed = {
        root for root, _ in Memory(toposort([*outputs, *(v for _, v in updates)])).destroyers
    }
    copied = {
        x: deep_copy_op(x)
        for x, new in zip(inputs, news, strict=True)
        if new is None and x in destroyed
    }
    plain = [v if new is None else new for (_, v), new in zip(updates, news, strict=True)]
    found = substituted([*outputs, *plain], copied)
    outputs, plain = found[: len(outputs)], found[len(outputs) :]
    memory = Memory(toposort(found))
    here = set(inputs)

    def apart(v: Variable) -> Variable:
        return deep_copy_op(v) if any(root in here for root, _ in memory.of(v)) else v

    written = [
        native("copy_")(x, apart(v)) if new is None else v
        for x, v, new in zip(inputs, plain, news, strict=True)
    ]
    return list(map(apart, outputs)), written


def _made_in(x: Variable, new: Variable) -> Variable | None:
    """The variable that has the new value of an input and is made in all of the input's memory;
    None where it is made elsewhere."""
    if new.owner is not None and new.owner.op == deep_copy_op:
        new = new.owner.inputs[0]  # kept apart from a result, which is copied instead
    v: Variable | None = new
    while v is not None and v is not x:
        v = _overwritten(v)
    return None if v is None or v is new else new


def _overwritten(v: Variable) -> Variable | None:
    """The variable before v in the very same memory, with v's sizes and strides; None where none is
    known."""
    node = v.owner
    if node is None or v.index is None:
        return None
    op, out = node.op, v.index
    if isinstance(op, (CheckSizes, InOrder, Require)):
        return node.inputs[op.view_map[out][0]]
    if isinstance(op, NativeOp) and "inplace_view" not in op.native.function.tags:
        places = op.destroy_map.get(out, ())
        return node.inputs[places[0]] if len(places) == 1 else None
    return None


def _shape_of(spec: Any) -> str:
    """How a value nests, in Python's words: `(·, [·, ·])`."""
    if spec.is_leaf():
        return "·"
    parts = [_shape_of(child) for child in spec.children()]
    if spec.type is dict:
        return (
            "{" + ", ".join(f"{k!r}: {p}" for k, p in zip(spec.context, parts, strict=True)) + "}"
        )
    if spec.type in (tuple, list):
        left, right = "()" if spec.type is tuple else "[]"
        return left + ", ".join(parts) + right
    return f"{spec.type.__name__}({', '.join(parts)})"
