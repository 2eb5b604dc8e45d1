"""PyTorch's native functions as ops.

`ops.add` is a packet: it finds the overload for its arguments, as torch.ops.aten.add does.
`ops.add.Scalar` is one overload. Calling either makes a node: arguments that are tensors, and
numbers that are variables, are its inputs; everything else is a parameter of the op.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from inspect import Signature
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

from ..errors import BridgeTypeError, ContractError, MissingMethodError
from ..graph.basic import Apply, Constant, Variable, among
from ..inference.result_types import output_types
from ..inference.shape_rules import Result
from ..sameness import key, same
from ..schema.corrections import IN, corrected, lines, overloads
from ..schema.functions import Argument, SchemaFunction
from ..types import SchemaType, TensorType, Type, schema_type
from ..types.base import Sub, load_graphs
from ..types.containers import ListArg, Optional, TensorList, element_of
from ..types.numbers import is_number
from ..types.tensor import TensorArg
from .native_c import call
from .op import CallsTorch, Gradients, Names, Storages, Values, Variables, closed

if TYPE_CHECKING:
    import torch

    from .variables import TensorConstant

_V = TypeVar("_V", bound=Variable)

SHORT = ("float16", "bfloat16")


class Derivatives(NamedTuple):
    """What ops ask of gradients, which are above them and register it: those of a node's inputs,
    what a node is made of, and the gradients through a graph."""

    gradients: Callable[
        [Apply, Sequence[Variable | None], Sequence[bool] | None], list[Variable | None]
    ]
    decompose: Callable[[Apply], list[Variable]]
    through: Callable[
        [Sequence[Variable], Sequence[Variable | None], Sequence[Variable]], list[Variable | None]
    ]


class _Later:
    """An attribute of what is callable, made when somebody asks for it: `help` and `signature` read
    it, and nothing else is to pay for it. Of the class it is `of_class`, if there is that."""

    def __init__(
        self, make: Callable[[Any, list[SchemaFunction]], Any], of_class: str | None
    ) -> None:
        self.make, self.of_class = make, of_class

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is not None:
            return self.make(instance, instance.functions())
        if self.of_class is None:
            raise AttributeError(f"{owner.__name__} has no such attribute")
        return self.of_class


def _docstring(of: Any, functions: list[SchemaFunction]) -> str:
    from .signatures import docstring

    return docstring(functions, repr(of).partition("(")[0])


def _signature(of: Any, functions: list[SchemaFunction]) -> Signature:
    from .signatures import common_signature

    return common_signature(functions)


def _signature_of_method(of: Any, functions: list[SchemaFunction]) -> Signature:
    """The function's, without the parameter that the variable is."""
    whole = _signature(of, functions)
    others = [p for name, p in whole.parameters.items() if name != "self"]
    return whole.replace(parameters=others)


_derivatives: list[Derivatives] = []


def register_derivatives(found: Derivatives) -> None:
    _derivatives[:] = [found]


def derivatives() -> Derivatives:
    if not _derivatives:
        load_graphs()
    return _derivatives[0]


class NativeFunction:
    __doc__ = _Later(
        _docstring,
        "One overload: `ops.add.Tensor`. Calling it makes a node and returns its outputs.",
    )
    __signature__ = _Later(_signature, None)

    def __init__(self, name: str) -> None:
        variants, tags, page, schema = lines()[name]
        self.function = SchemaFunction(
            schema, tuple(variants.split(",")), tuple(t for t in tags.split(",") if t), page
        )
        self.name = name
        self.base, _, self.overload = name.partition(".")
        self.types: tuple[SchemaType, ...] = tuple(
            schema_type(a.type) for a in self.function.arguments
        )
        self.defaults = tuple(
            _MISSING if a.default is None else _default(a, t)
            for a, t in zip(self.function.arguments, self.types, strict=True)
        )
        # The results; a function without any is made to return what it writes.
        self.results: tuple[SchemaType, ...] = tuple(
            schema_type(r.type) for r in self.function.returns
        )
        self.returns_written = not self.results
        if self.returns_written:
            self.results = tuple(
                t for a, t in zip(self.function.arguments, self.types, strict=True) if a.written
            )
        self._lists = sum(isinstance(t, TensorList) for t in self.results)
        self._places = {a.name: i for i, a in enumerate(self.function.arguments)}
        self._positional = sum(not a.kwarg_only for a in self.function.arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return native, (self.name,)

    @cached_property
    def torch_op(self) -> Any:
        """torch's own overload. BridgeTypeError where the installed torch has none."""
        import torch

        try:
            return getattr(getattr(torch.ops.aten, self.base), self.overload or "default")
        except AttributeError:
            raise BridgeTypeError(
                f"{self.name}: torch {torch.__version__} has no such function"
            ) from None

    @cached_property
    def random(self) -> bool:
        return (
            "nondeterministic_seeded" in self.function.tags
            or corrected("random", self.name) is not None
        )

    def draws(self, arguments: Template) -> bool:
        """Whether it draws random numbers, with these arguments."""
        if not self.random:
            return False
        named = zip((a.name for a in self.function.arguments), arguments, strict=True)
        return not any(draws_nothing(name, value) for name, value in named)

    @cached_property
    def elementwise(self) -> bool:
        """Whether each element of its results is made of those in the same place of its tensors,
        which broadcast."""
        f = self.function
        return (
            "pointwise" in f.tags
            and "out" not in f.tags
            and all(r == "Tensor" for r in (x.type for x in f.returns))
            and all(a.type in ("Tensor", "Tensor?") for a in f.arguments if "Tensor" in a.type)
        )

    @property
    def pointwise(self) -> bool:
        """The same, where it writes into no argument."""
        return self.elementwise and "inplace" not in self.function.tags

    @cached_property
    def functional(self) -> NativeFunction | None:
        """The function that does the same as this in-place one, and writes nothing. The arguments
        tell: overloads that belong together may have other names."""
        if not self.base.endswith("_") or self.base.endswith("__"):
            return None
        return self._alike(self.base[:-1], False)

    @cached_property
    def in_place(self) -> NativeFunction | None:
        """The function that does the same as this one, and writes the result into its first
        argument."""
        return self._alike(f"{self.base}_", True)

    def _alike(self, base: str, written: bool) -> NativeFunction | None:
        """The overload of another function that takes the same arguments, and writes into the
        first, or into none."""

        def taken(f: NativeFunction) -> list[Any]:
            return [(a.name, a.type, a.kwarg_only) for a in f.function.arguments]

        for name in overloads().get(base, ()):
            try:
                found = native(name)
            except BridgeTypeError:
                continue  # named tensors
            marks = [a.written for a in found.function.arguments]
            if marks == [written, *[False] * (len(marks) - 1)] and taken(found) == taken(self):
                return found
        return None

    @property
    def rounds_number(self) -> bool:
        """Whether it rounds a number to the dtype of the argument that it writes into, before it
        computes, unlike the method: that makes a tensor of the number."""
        return self.name in ("mul_.Scalar", "multiply_.Scalar")

    def __repr__(self) -> str:
        return f"ops.{self.function.schema}"

    def functions(self) -> list[SchemaFunction]:
        return [self.function]

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The arguments in the schema's order, defaults filled in. BridgeTypeError where one is
        missing or too many."""
        arguments = self.function.arguments
        values: list[Any] = [_MISSING] * len(arguments)
        if len(args) > self._positional:
            raise BridgeTypeError(
                f"{self.name} takes {self._positional} positional arguments, got {len(args)}"
            )
        values[: len(args)] = args
        for name, value in kwargs.items():
            place = self._places.get(name)
            if place is None:
                raise BridgeTypeError(f"{self.name} has no argument {name!r}: {self!r}")
            if values[place] is not _MISSING:
                raise BridgeTypeError(f"{self.name} was given {name!r} twice")
            values[place] = value
        for i, value in enumerate(values):
            if value is _MISSING:
                if self.defaults[i] is _MISSING:
                    raise BridgeTypeError(f"{self.name} needs {arguments[i].name!r}: {self!r}")
                values[i] = self.defaults[i]
        return values

    def split(self, values: Sequence[Any], strict: bool = False) -> tuple[Template, list[Variable]]:
        """The op's arguments, with IN where there is an input, and the inputs.

        With `strict`, only what needs no conversion is taken; the packet looks so for the overload
        that fits best."""
        template: list[Any] = []
        inputs: list[Variable] = []
        for a, t, value in zip(self.function.arguments, self.types, values, strict=True):
            try:
                template.append(_take(t, value, inputs, strict))
            except (TypeError, ValueError) as e:
                raise BridgeTypeError(f"{self.name}: argument {a.name!r}: {e}") from None
        return tuple(template), inputs

    def apply(self, values: Sequence[Any], types: Result | None = None) -> Apply:
        """The node for bound arguments. `types` are those of its outputs, where they are known."""
        form = self._scalar_form(values)
        if form is not None:
            return form.apply(values, types)
        template, inputs = self.split(values)
        if types is not None:
            op = native_op(self, template, (), types[1])
            node = Apply(op, inputs, [t.make_variable() for t in types[0]])
        else:
            node = native_op(self, template, [v.type for v in inputs]).make_node(*inputs)
        if node.op.random and self.name in _DECOMPOSED:
            return self._decomposed(node)
        return node

    def _decomposed(self, node: Apply) -> Apply:
        """What a function that draws random numbers without returning them is made of, so that its
        gradient can use what was drawn. The node is the last, with the function's result."""
        if not all(isinstance(v.type, TensorType) and v.type.shape for v in node.inputs):
            return node
        if self.name in _DROPOUTS:
            if (apart := _dropout(node)) is not None:
                return apart
            if any(None in v.type.shape for v in node.inputs):  # type: ignore[attr-defined]
                return node
            (result,) = derivatives().decompose(node)
        else:
            if any(v.type.device != "cpu" for v in node.inputs):  # type: ignore[attr-defined]
                return node  # other devices have kernels that draw
            try:
                (result,) = derivatives().decompose(node)
            except MissingMethodError:
                return node  # it runs, and has no gradient
        # With p=0 nothing is drawn, and the result is the input.
        drawn = result.owner is not None and not among(result, node.inputs)
        return result.owner if drawn and result.owner is not None else node

    def make_node(self, /, *args: Any, **kwargs: Any) -> Apply:
        """The node for arguments as torch's function takes them."""
        return self.apply(self.bind(args, kwargs))

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return results_of(self.make_node(*args, **kwargs))

    @cached_property
    def _scalar(self) -> NativeFunction | None:
        """The overload that differs by taking a Scalar for `other`, if there is one."""
        if self.overload not in ("Tensor", "Tensor_Tensor", "self", ""):
            return None
        for candidate in ("Scalar", "Tensor_Scalar"):
            name = f"{self.base}.{candidate}"
            if name not in lines() or name == self.name:
                continue
            form = native(name)
            if form.rounds_number:
                continue
            mine = [(a.name, a.type) for a in self.function.arguments]
            theirs = [(a.name, a.type) for a in form.function.arguments]
            changed = [i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b]
            if (
                len(mine) == len(theirs)
                and len(changed) == 1
                and mine[changed[0]][1] == "Tensor"
                and theirs[changed[0]] == (mine[changed[0]][0], "Scalar")
            ):
                return form
        return None

    def _scalar_form(self, values: Sequence[Any]) -> NativeFunction | None:
        """A number where a tensor can stand means the overload for numbers."""
        form = self._scalar
        if form is None:
            return None
        for t, other, value in zip(self.types, form.types, values, strict=True):
            if t is not other and isinstance(t, TensorArg):
                number = isinstance(value, (bool, int, float, complex)) or (
                    isinstance(value, Variable) and is_number(value.type)
                )
                return form if number else None
        return None


_DROPOUTS = ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
_DECOMPOSED = frozenset([*_DROPOUTS, "scaled_dot_product_attention"])


_ALPHA = 1.7580993408473766  # of SELU: its scale times its alpha


def _dropout(node: Apply) -> Apply | None:
    """A dropout taken apart as PyTorch does it on a CPU, whatever the sizes and strides of its
    tensor; None where it is elsewhere, or draws nothing."""
    (x,) = node.inputs
    op, t = node.op, x.type
    assert isinstance(op, NativeOp)
    assert isinstance(t, TensorType)
    assert t.shape is not None
    p = op.arguments[1]
    if t.device != "cpu" or p in (0.0, 1.0):
        return None
    if not op.name.startswith("feature"):
        noise = native("empty_like")(x)
    elif len(t.shape) >= 2:
        n, c, *others = x.shape  # type: ignore[attr-defined]
        sizes = [n, c, *(1 for _ in others)]
        noise = native("empty.memory_format")(sizes, dtype=t.torch_dtype)
    else:
        return None
    # In place: what is drawn goes into the elements in the order of the memory.
    noise = native("bernoulli_.float")(noise, 1 - p)
    times, plus = native("mul.Tensor"), native("add.Scalar")
    if "alpha" not in op.name:
        return times.make_node(x, native("div.Scalar")(noise, 1 - p))
    a = 1 / math.sqrt((_ALPHA * _ALPHA * p + 1) * (1 - p))
    scaled = native("mul.Scalar")
    shift = plus(scaled(plus(noise, -1), _ALPHA * a), _ALPHA * a * p)
    return native("add.Tensor").make_node(times(x, scaled(noise, a)), shift)


class _Missing:
    def __repr__(self) -> str:
        return "missing"


_MISSING: Any = _Missing()
Template = tuple[Any, ...]


def results_of(node: Apply) -> Any:
    """What a call returns: the output, or the list of them where the schema has several."""
    if len(node.outputs) == 1 and not getattr(node.op, "lists", ()):
        return node.outputs[0]
    return list(node.outputs)


def _default(a: Argument, t: SchemaType) -> Any:
    """The schema's default as a Python value."""
    import torch

    text = a.default
    assert text is not None
    if text == "None":
        return None
    if text in ("True", "False"):
        value: Any = text == "True"
    elif text == "Mean":
        value = 1
    elif text == "long":
        return torch.int64
    elif text == "contiguous_format":
        return torch.contiguous_format
    else:
        import ast

        value = ast.literal_eval(text)
    try:
        return _hashable(t.filter(value, allow_downcast=False))
    except TypeError:
        return value


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, (list, tuple)) else value


def _take(t: SchemaType, value: Any, inputs: list[Variable], strict: bool) -> Any:
    """One argument as it stands in the template; what is an input goes to `inputs`."""
    import torch

    if isinstance(t, TensorArg):
        if isinstance(value, torch.Tensor):
            value = constant(value)
        if isinstance(value, Variable):
            if not isinstance(value.type, TensorArg):
                raise BridgeTypeError(f"expected {t}, got {value} of type {value.type}")
            inputs.append(value)
            return IN
        if value is None and isinstance(t, Optional):
            return None
        if isinstance(value, (bool, int, float, complex)) and not strict:
            return value  # a number in the place of a tensor takes no part in type promotion
        raise t.refusal(value)
    if isinstance(t, TensorList):
        if isinstance(value, Variable):
            if isinstance(value.type, TensorArg):
                raise BridgeTypeError(f"expected {t}, got the tensor {value}")
            inputs.append(value)
            return IN
        if not isinstance(value, (list, tuple)):
            raise t.refusal(value)
        return tuple(_take(t.elem, v, inputs, True) for v in value)
    if isinstance(value, Variable):
        kind = getattr(t, "kind", "")
        fits = t == value.type or t.is_super(value.type)
        if not fits and is_number(value.type):
            # An integer is taken as a float, as everywhere in Python.
            fits = kind == "float" and getattr(value.type, "kind", "") == "int"
        if not fits:
            raise BridgeTypeError(f"expected {t}, got {value} of type {value.type}")
        inputs.append(value)
        return IN
    if isinstance(value, (list, tuple)) and any(isinstance(v, Variable) for v in value):
        element = element_of(t)
        if element is None:
            raise t.refusal(value)
        one = schema_type(element.schema.replace("SymInt", "int"))
        return tuple(_take(one, v, inputs, strict) for v in value)
    if value is _MISSING:
        return value
    if strict and isinstance(value, bool) and getattr(t, "kind", "") == "int":
        raise t.refusal(value)
    if strict and not t.holds(value):
        integer = isinstance(value, int) and not isinstance(value, bool)
        listed = isinstance(t.required, ListArg) and t.required.size
        if not (integer and (listed or getattr(t, "kind", "") == "float")):
            raise t.refusal(value)
    return _hashable(t.filter(value))


def draws_nothing(name: str, value: Any) -> bool:
    """Whether a function that may draw random numbers draws none, by one of its arguments."""
    if name in ("train", "training"):
        return value is False
    return name in ("dropout", "dropout_p") and type(value) in (int, float) and value == 0


@cache
def native(name: str) -> NativeFunction:
    """The function of a full schema name, "add.Tensor". BridgeTypeError for an unknown one."""
    if name not in lines():
        raise BridgeTypeError(f"PyTorch has no native function {name}")
    try:
        return NativeFunction(name)
    except LookupError as e:
        raise BridgeTypeError(f"{name} is not supported: {e}") from None


class Packet:
    __doc__ = _Later(_docstring, "All overloads of one function.")
    __signature__ = _Later(_signature, None)

    def __init__(self, base: str) -> None:
        self.base = base

    def __reduce__(self) -> tuple[Any, ...]:
        return _packet, (self.base,)

    def functions(self) -> list[SchemaFunction]:
        """The functions of the overloads, in the order in which they are tried."""
        return [f.function for f in self.overloads.values()]

    @cached_property
    def overloads(self) -> dict[str, NativeFunction]:
        """By overload name, in the order in which they are tried: torch's own."""
        import torch

        names = {n.partition(".")[2]: n for n in overloads()[self.base]}
        packet = getattr(torch.ops.aten, self.base, None)
        order = [] if packet is None else packet.overloads()
        order = ["" if o == "default" else o for o in order]
        found = {}
        for suffix in [*(o for o in order if o in names), *(o for o in names if o not in order)]:
            try:
                found[suffix] = native(names[suffix])
            except BridgeTypeError:
                continue  # named tensors
        return found

    if not TYPE_CHECKING:  # stubs name the overloads

        def __getattr__(self, overload: str) -> NativeFunction:
            name = self.base if overload == "default" else f"{self.base}.{overload}"
            if overload.startswith("__") or name not in lines():
                raise AttributeError(f"ops.{self.base} has no overload {overload!r}")
            return native(name)

    def __dir__(self) -> list[str]:
        return [o or "default" for o in self.overloads]

    def __repr__(self) -> str:
        return f"ops.{self.base}"

    @cached_property
    def takes_sizes(self) -> bool:
        """Whether the argument after self is a list of integers of any length, in all overloads."""
        seconds = [f.function.arguments[1].type for f in self.overloads.values() if f.types[1:]]
        return bool(seconds) and all(s in ("int[]", "SymInt[]", "ScalarType") for s in seconds)

    @cached_property
    def before_self(self) -> int:
        """How many arguments stand before self: one in `where(condition, self, other)`."""
        places = {
            [a.name for a in f.arguments].index("self")
            for f in self.functions()
            if "method" in f.variants
        }
        return places.pop() if len(places) == 1 else 0

    def choose(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[NativeFunction, list[Any]]:
        """The overload for these arguments, and the arguments bound to it."""
        candidates = self.overloads
        if len(candidates) == 1:
            only = next(iter(candidates.values()))
            return only, only.bind(args, kwargs)
        reasons = {}
        # The method makes a tensor of a number. That of a variable takes the overload for numbers,
        # where nothing is rounded.
        dtype = getattr(getattr(args[0] if args else None, "type", None), "dtype", None)
        rounding = [f for f in candidates.values() if f.rounds_number]
        plain = [f for f in candidates.values() if not f.rounds_number]
        exact = [] if dtype is None or dtype in SHORT else rounding
        for strict, tried in ((True, plain), (False, [*plain, *exact])):
            for function in tried:
                try:
                    values = function.bind(args, kwargs)
                    function.split(values, strict)
                    return function, values
                except BridgeTypeError as e:
                    reasons[function] = str(e)
        raise BridgeTypeError(self._refusal(args, kwargs, reasons))

    def _refusal(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], reasons: Mapping[NativeFunction, str]
    ) -> str:
        """What was given, and why no overload takes it. Those that write into `out` count where
        one of their outputs was given, or where there are no others."""
        outs = {f: {a.name for a in f.function.parsed.arguments.out} for f in reasons}
        asked = [f for f in reasons if not outs[f] or outs[f] & kwargs.keys()]
        said = [
            f"    {f.function.schema}\n        {_reason(f, reasons[f])}" for f in asked or reasons
        ]
        given = [_given(v) for v in args] + [f"{k}={_given(v)}" for k, v in kwargs.items()]
        return (
            f"no overload of {self.base} takes these arguments: ({', '.join(given)})\n"
            + "\n".join(said)
        )

    def make_node(self, /, *args: Any, **kwargs: Any) -> Apply:
        function, values = self.choose(args, kwargs)
        return function.apply(values)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Makes a node, and returns its output, or the list of them where there are several."""
        return results_of(self.make_node(*args, **kwargs))


def collected(packet: Packet, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """`x.view(2, 3)` as `x.view([2, 3])`, where the function takes a list of sizes."""
    numbers = args and all(
        not isinstance(a.type, TensorArg)
        if isinstance(a, Variable)
        else isinstance(a, int) and not isinstance(a, bool)
        for a in args
    )
    return (args,) if numbers and packet.takes_sizes else args


class Method:
    __doc__ = _Later(_docstring, "A function as the method of one variable: `x.sum`.")
    __signature__ = _Later(_signature_of_method, None)

    def __init__(self, packet: Packet, variable: Any) -> None:
        self.packet, self.variable = packet, variable

    def functions(self) -> list[SchemaFunction]:
        return self.packet.functions()

    def __repr__(self) -> str:
        return f"{type(self.variable).__name__}.{self.packet.base}"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        before = self.packet.before_self
        if not before:
            return self.packet(self.variable, *collected(self.packet, args), **kwargs)
        if len(args) < before:
            return self.packet(*args, self=self.variable, **kwargs)
        return self.packet(*args[:before], self.variable, *args[before:], **kwargs)


def _reason(function: NativeFunction, text: str) -> str:
    """An overload's refusal without what stands above it: its name and its schema."""
    return text.removesuffix(f": {function!r}").removeprefix(f"{function.name}: ")


def _given(value: Any) -> str:
    """An argument in a message: its value, or its type where that says more."""
    import torch

    if isinstance(value, Variable):
        return str(value.type)
    if isinstance(value, torch.Tensor):
        return f"Tensor({str(value.dtype).removeprefix('torch.')}, {tuple(value.shape)})"
    text = repr(value)
    return text if len(text) <= 40 else type(value).__name__


@cache
def _packet(base: str) -> Packet:
    return Packet(base)


def find_packet(base: str) -> Packet | None:
    """The packet of a name, or None where PyTorch has no such native function."""
    return _packet(base) if base in overloads() else None


def find_method(base: str) -> Packet | None:
    """The packet, where torch.Tensor has it as a method."""
    names = overloads().get(base, ())
    return _packet(base) if any("method" in lines()[n][0] for n in names) else None


def packet_names() -> Iterator[str]:
    return iter(overloads())


@overload
def constant(value: _V, name: str | None = None) -> _V: ...
@overload
def constant(value: complex | str, name: str | None = None) -> Constant: ...
@overload
def constant(value: torch.Tensor, name: str | None = None) -> TensorConstant: ...
@overload
def constant(  # type: ignore[overload-cannot-match]  # where torch is Any, as in this package
    value: torch.dtype | torch.device | torch.layout | torch.memory_format, name: str | None = None
) -> Constant: ...
def constant(value: object, name: str | None = None) -> Variable:
    """A constant of the type that value has: a tensor, a number, a string, a dtype and so on.
    BridgeTypeError where no type has it.

        >>> pb.constant(torch.ones(2, 3)).type
        TensorType(float32, (2, 3))
    """
    import torch

    if isinstance(value, Variable):
        return value
    if isinstance(value, torch.Tensor):
        t: Type = TensorType(value.dtype, value.shape, device=value.device)
        return t.make_constant(value, name)
    kinds: list[tuple[Any, str]] = [
        (bool, "bool"),
        (int, "int"),
        (float, "float"),
        (complex, "Scalar"),
        (str, "str"),
        (torch.dtype, "ScalarType"),
        (torch.device, "Device"),
        (torch.layout, "Layout"),
        (torch.memory_format, "MemoryFormat"),
    ]
    for kind, schema in kinds:
        if isinstance(value, kind):
            return schema_type(schema).make_constant(value, name)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.generic, numpy.ndarray)):
        made: Constant = constant(torch.as_tensor(value), name)
        return made
    raise BridgeTypeError(f"no type is known for the constant {value!r} ({type(value).__name__})")


# The op


@closed
class NativeOp(CallsTorch):
    """A native function with its parameters.

    `arguments` has the schema's arguments in order, with IN where the node has an input (within a
    list, too); `lists` says how many tensors each list among the results has.
    """

    only_calls = True
    leaves_out = True

    def __init__(
        self, native_function: NativeFunction, arguments: Template, lists: tuple[int, ...]
    ):
        self.native = native_function
        self.arguments = arguments
        self.lists = lists
        self.name = native_function.name
        self.random = native_function.draws(arguments)
        self._key = (self.name, key(arguments), lists)
        self._hash = hash(self._key)

    def _parameters(self) -> tuple[Any, ...]:
        return self._key

    def __reduce__(self) -> Any:
        return native_op, (self.native, self.arguments, (), self.lists)

    __eq__ = CallsTorch.__eq__

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        shown = [
            f"{a.name}={_text(v)}"
            for a, v, d in zip(
                self.native.function.arguments, self.arguments, self.native.defaults, strict=True
            )
            if v is not IN
            and not same(v, d)
            and not (isinstance(v, tuple) and v and all(x is IN for x in v))
        ]
        return f"{self.name}{{{', '.join(shown)}}}" if shown else self.name

    __repr__ = __str__

    @cached_property
    def places(self) -> dict[str, list[int]]:
        """The inputs that each argument has."""
        found: dict[str, list[int]] = {}
        n = 0
        for a, v in zip(self.native.function.arguments, self.arguments, strict=True):
            count = sum(x is IN for x in v) if isinstance(v, tuple) else int(v is IN)
            found[a.name] = list(range(n, n + count))
            n += count
        return found

    @cached_property
    def n_inputs(self) -> int:
        return sum(map(len, self.places.values()))

    @cached_property
    def groups(self) -> list[range]:
        """The outputs that each result of the schema has."""
        found, n, lists = [], 0, iter(self.lists)
        for t in self.native.results:
            count = next(lists) if isinstance(t, TensorList) else 1
            found.append(range(n, n + count))
            n += count
        return found

    @cached_property
    def view_map(self) -> Mapping[int, Sequence[int]]:  # type: ignore[override]
        f = self.native.function
        found: dict[int, list[int]] = {}
        extra = corrected("views", self.name)
        for k, group in enumerate(self.groups):
            names: list[str] = []
            if not self.native.returns_written:
                names = [a.name for a in f.views(f.returns[k])]
            if extra is not None:
                tensors = [a.name for a in f.arguments if "Tensor" in a.type]
                names += [n for n in tensors if extra is True or n in extra]
            inputs = sorted({i for n in names for i in self.places[n]})
            if corrected("view_of_one", self.name) and len(inputs) > 1:
                continue
            if corrected("view_of_each", self.name) and len(inputs) == len(group):
                found.update((o, [i]) for o, i in zip(group, inputs, strict=True))
            elif inputs:
                found.update((o, inputs) for o in group)
        for o in self.destroy_map:
            if o is not None:
                kept = [i for i in found.get(o, ()) if i not in self.destroy_map[o]]
                if kept:
                    found[o] = kept
                else:
                    found.pop(o, None)
        return found

    @cached_property
    def destroy_map(self) -> Mapping[int | None, Sequence[int]]:  # type: ignore[override]
        f = self.native.function
        found: dict[int | None, list[int]] = {}
        claimed: set[int] = set()
        if self.native.returns_written:
            written = [a for a in f.arguments if a.written]
            for group, a in zip(self.groups, written, strict=True):
                # One output for each tensor of the argument, in its order.
                for o, i in zip(group, self.places[a.name], strict=False):
                    found[o] = [i]
                    claimed.add(i)
        else:
            for k, group in enumerate(self.groups):
                same = f.same_as(f.returns[k])
                if same is None:
                    continue
                places = self.places[same.name]
                one_each = len(places) == len(group)
                for n, o in enumerate(group):
                    found[o] = [places[n]] if one_each else list(places)
                claimed.update(places)
        rest = [
            i for a in f.arguments if a.written for i in self.places[a.name] if i not in claimed
        ]
        for name, condition in (corrected("writes", self.name) or {}).items():
            if self._holds(condition):
                rest += [i for i in self.places[name] if i not in claimed]
        if rest:
            found[None] = sorted(set(rest))
        return found

    def _holds(self, condition: str | bool) -> bool:
        """Whether a correction applies: always, or where an argument is not False."""
        if condition is True:
            return True
        for a, v in zip(self.native.function.arguments, self.arguments, strict=True):
            if a.name == condition:
                return v is not False
        raise ValueError(f"corrections.yaml: {self.name} has no argument {condition!r}")

    @cached_property
    def destroys_what_it_reads(self) -> bool:
        """Whether the very tensor that is written into may be another argument, as in `x.add_(x)`:
        where each element is computed from those in its own place."""
        return "pointwise" in self.native.function.tags or self.name == "copy_"

    # Building
    def make_node(self, *inputs: Any) -> Apply:
        """The node for inputs: variables; tensors and numbers become constants."""
        if len(inputs) != self.n_inputs:
            raise BridgeTypeError(f"{self} takes {self.n_inputs} inputs, got {len(inputs)}")
        variables = [constant(v) for v in inputs]
        types, lists = output_types(self.native, self.arguments, tuple(v.type for v in variables))
        if lists != self.lists:
            raise BridgeTypeError(
                f"{self} returns lists of {list(self.lists)} tensors; for inputs of the types "
                f"{', '.join(str(v.type) for v in variables)} it would return {list(lists)}"
            )
        return Apply(self, variables, [t.make_variable() for t in types])

    def __call__(self, *inputs: Any, name: str | None = None) -> Any:
        node = self.make_node(*inputs)
        if name is not None:
            if len(node.outputs) != 1:
                raise BridgeTypeError(f"{self} has {len(node.outputs)} outputs: name them apart")
            node.outputs[0].name = name
        return results_of(node)

    def grad(self, inputs: Variables, output_grads: Variables) -> Gradients:
        """PyTorch's own derivative, traced."""
        return derivatives().gradients(self.make_node(*inputs), output_grads, None)

    def grad_of_node(
        self, node: Apply, output_grads: Sequence[Variable | None], wanted: Sequence[bool]
    ) -> Sequence[Variable | None]:
        """As `grad`, using what the node has computed already."""
        return derivatives().gradients(node, output_grads, wanted)

    # In Python
    @cached_property
    def _call(self) -> tuple[list[Any], dict[str, Any]]:
        positional = []
        keyword = {}
        for a, v in zip(self.native.function.arguments, self.arguments, strict=True):
            if a.kwarg_only:
                keyword[a.name] = v
            else:
                positional.append(v)
        return positional, keyword

    def call(self, inputs: Sequence[Any]) -> Any:
        """torch's function on values."""
        values = iter(inputs)
        positional, keyword = self._call
        args = [_fill(v, values) for v in positional]
        kwargs = {k: _fill(v, values) for k, v in keyword.items()}
        result = self.native.torch_op(*args, **kwargs)
        return None if self.native.returns_written else result

    def perform(self, node: Apply, inputs: Values, output_storage: Storages) -> None:
        result = self.call(inputs)
        if self.native.returns_written:
            for o, places in self.destroy_map.items():
                if o is not None:
                    output_storage[o][0] = inputs[places[0]]
            return
        if len(self.native.results) == 1:
            result = (result,)
        for t, group, value in zip(self.native.results, self.groups, result, strict=True):
            if not isinstance(t, TensorList):
                output_storage[group.start][0] = value
                continue
            if len(value) != len(group):
                raise ContractError(
                    f"{self} returned {len(value)} tensors; for its input types "
                    f"{len(group)} were expected"
                )
            for o, v in zip(group, value, strict=True):
                output_storage[o][0] = v

        for k, t in self.converted(node):
            output_storage[k][0] = output_storage[k][0].to(t.torch_dtype)
        for cell, v in zip(output_storage, node.outputs, strict=True):
            _check_result(self, v.type, cell[0])

    def converted(self, node: Apply) -> Iterator[tuple[int, TensorType]]:
        """The results that come in another dtype where there are no elements, and their types."""
        for k in corrected("dtypes", self.name) or ():
            t = node.outputs[k].type
            if isinstance(t, TensorType) and t.dtype is not None:
                yield k, t

    # In C
    @cached_property
    def to_name(self) -> str:
        """The name of the C function that converts."""
        return str(_names().c(native("to.dtype").function))

    @cached_property
    def c_name(self) -> str:
        """The name of the C function."""
        return str(_names().c(self.native.function))

    def c_code(self, node: Apply, name: str, inputs: Names, outputs: Names, sub: Sub) -> str:
        """The call of the C function, with what it needs around it."""
        return call(self, node, name, inputs, outputs, sub)


def _check_result(op: NativeOp, t: Type, value: Any) -> None:
    """TypeError where a result has not the dtype and the number of dimensions of its type."""
    if not isinstance(t, TensorType) or value is None:
        return
    if t.dtype not in (None, str(value.dtype).removeprefix("torch.")) or (
        t.shape is not None and not value.is_nested and value.dim() != len(t.shape)
    ):
        raise BridgeTypeError(f"{op} returned {_given(value)}, its type is {t}")


@cache
def _names() -> Any:
    from ..schema.names import Names

    return Names()


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_text, value)) + ("," if len(value) == 1 else "") + ")"
    return str(value) if type(value).__module__ == "torch" else repr(value)


def _fill(value: Any, inputs: Iterator[Any]) -> Any:
    if value is IN:
        return next(inputs)
    if isinstance(value, tuple):
        return [_fill(v, inputs) for v in value]
    return value


_ops: dict[Any, NativeOp] = {}


def native_op(
    function: NativeFunction,
    template: Template,
    input_types: Sequence[Type],
    lists: tuple[int, ...] | None = None,
) -> NativeOp:
    """The op for arguments, and input types or how many tensors each list among the results has."""
    if lists is None:
        lists = ()
        if function._lists:
            _, lists = output_types(function, template, tuple(input_types))
    wanted = (function.name, key(template), lists)
    op = _ops.get(wanted)
    if op is None:
        op = NativeOp(function, template, lists)
        if len(_ops) < 100_000:
            _ops[wanted] = op
    return op
