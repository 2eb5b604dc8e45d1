"""Compiling Python functions over graph variables.

    @pb.jit
    def f(x, s):
        return s.scale * x.relu()

At the first call with arguments of new types the function is traced: it runs once on stand-ins for
its arguments, everything that it does with them is resolved through the registry and recorded, and
the recorded graph is compiled. Further calls with such arguments run the compiled graph.

- Tensors, numbers and values of registered types are inputs of the graph, also within tuples and
  lists. Truth values, strings, None, members of enums, dtypes, devices and everything else that
  typeof does not know are constants, and so are defaults that are not given and what `constants`
  names: for another one, or where an attribute of one is another, the function is traced again.
- What the function reads from outside, global names and enclosing variables, is looked at before
  each call, and where it is different the function is traced again (see `outside`). A tensor from
  outside is an input of the graph.
- Python runs while tracing: loops over constants are unrolled, branches on types, dtypes, numbers
  of dimensions and constants are decided. Branching on a value is a TypingError.
- Sizes are left open, so that one graph serves all, unless the function looks at one in Python
  (`if x.shape[0] > 4`, `range(len(x))`): from then on it is traced for each shape.
- What is written into a tensor is refused: a traced function computes new ones. Attributes that are
  assigned to are changed for the function, not for the caller.
- A specialisation stays as it was compiled, also when something is registered afterwards.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, TypeVar, overload

import torch
from torch.autograd import forward_ad

from .. import registry
from ..errors import BridgeTypeError, BridgeValueError, RegistrationError
from ..graph.basic import Variable, toposort
from ..link.compiled_function import CompiledFunction, CopiedAsItself, function
from ..sameness import _HEAP_TYPE as HEAP_TYPE
from . import types
from .errors import TypingError, UnknownTypeError
from .graph_ops import graph_type, holds_tensors, present
from .natives import looked_at
from .outside import state
from .proxies import is_container, is_proxy, proxies, proxy, rebuilt
from .results import Constant, Results
from .signatures import Signature
from .tracing import NeedSizes, Trace
from .typeof import registered_class, type_function, typeof

_F = TypeVar("_F", bound=Callable[..., Any])


_TENSORS = (torch.Tensor, torch.nn.Parameter)
_NUMBERS = (int, float)
_PYTHON = (int, float, complex, str, tuple, list)
_STATES = 8  # graphs that are kept for the same types, with other things outside
_MOST = 1024  # graphs of one function


class Specialization:
    """A jitted function for arguments of some types: the graph, and how values go in and out."""

    def __init__(
        self,
        compiled: CompiledFunction,
        args: Sequence[Any],
        flat: bool,
        rebuild: Callable[[Sequence[Any], Sequence[Any]], Any] | None,
        trace: Trace,
        structs: Sequence[int],
    ) -> None:
        self.compiled, self.flat, self.rebuild = compiled, flat, rebuild
        self.outside = trace.outside
        self.captured = tuple([t for t, _ in trace.captured.values()])
        self.looks = trace.looks
        self.structs = structs  # the inputs that are no tensors, and may contain some
        self.elsewhere: list[Specialization] = []  # for other states of what is outside
        self._refusing: CompiledFunction | None = None
        # The C callable itself, where every argument is an input.
        self.direct = compiled.direct if flat else None
        self.watch(args)

    def watch(self, args: Sequence[Any]) -> None:
        """Notes what `direct` does not check by itself, as the registry is now."""
        self.version = registry.version()
        self.tensors = [(i, self._seen(a)) for i, a in enumerate(args) if type(a) in _TENSORS]
        self.others = [
            (i, type(a), type_function(a), typeof(a))
            for i, a in enumerate(args)
            if self.flat and type(a) not in _TENSORS and type(a) not in _NUMBERS
        ]

    def fits(self, args: Sequence[Any]) -> bool:
        """Whether `direct` may be called: it checks the rest."""
        if registry.changes != self.version:
            return False
        for i, seen in self.tensors:
            if self._seen(args[i]) != seen:
                return False
        for i, cls, typed, t in self.others:
            a = args[i]
            if type(a) is not cls:
                return False
            found = typed(a)
            if found is not t and found != t:
                return False
        return self.outside.holds()

    def _seen(self, t: torch.Tensor) -> Any:
        """What of a tensor's state the graph is for, beside the type that it checks."""
        return (_contiguous(t), looked_at(t)) if self.looks else t.is_contiguous()

    def in_this_state(self) -> Specialization | None:
        """This one or another one for the same types, for what is outside as it is now."""
        return next((s for s in (self, *self.elsewhere) if s.outside.holds()), None)

    def __call__(self, args: Sequence[Any]) -> Any:
        values = (*(args if self.flat else _leaves(args)), *self.captured)
        direct = self.compiled.direct
        recorded = forward_ad._current_level >= 0 or any(
            getattr(v, "requires_grad", False) for v in values
        )
        if recorded and self.structs:
            self._refuse_gradients([values[i] for i in self.structs])
        found = (self.compiled if direct is None or recorded else direct)(*values)
        return found if self.rebuild is None else self.rebuild(found, args)

    def graph(self) -> tuple[list[Variable], list[Variable]]:
        """The inputs and outputs of the graph, in which tensors from outside are constants."""
        n = len(self.compiled.inputs) - len(self.captured)
        inputs, outside = self.compiled.inputs[:n], self.compiled.inputs[n:]
        became: dict[Variable, Variable] = {
            v: v.type.make_constant(t.detach()) for v, t in zip(outside, self.captured, strict=True)
        }
        for node in toposort(self.compiled.outputs, self.compiled.inputs):
            copied = node.clone([became.get(v, v) for v in node.inputs])
            became.update(zip(node.outputs, copied.outputs, strict=True))
        return list(inputs), [became.get(v, v) for v in self.compiled.outputs]

    def _refuse_gradients(self, values: Sequence[Any]) -> None:
        """A RuntimeError for a tensor in a struct that requires a gradient, which nothing would
        compute: as it is where no other tensor requires one."""
        if self._refusing is None:
            inputs = [self.compiled.inputs[i] for i in self.structs]
            copies = [v.unconnected() for v in inputs]
            self._refusing = function(copies, [present(v) for v in copies])
        self._refusing(*values)


def _contiguous(t: torch.Tensor) -> bool:
    return t.layout is torch.strided and t.is_contiguous()


def _leaves(args: Any) -> Any:
    """The values among arguments that are inputs of the graph."""
    for a in args:
        if is_container(a):
            yield from _leaves(a)
        elif _is_input(a):
            yield a


def _is_input(value: Any) -> bool:
    cls = type(value)
    if cls in _TENSORS or cls in _NUMBERS:
        return True
    if value is None or cls in (str, bool, Constant) or _of_its_own(value):
        return False
    try:
        typeof(value)
    except UnknownTypeError:
        return False
    return True


class Jit(CopiedAsItself):
    """A jitted function. `specializations` has the compiled graphs by the arguments' types."""

    def __init__(
        self, f: Callable[..., Any], mode: str | None = None, constants: Sequence[str] = ()
    ) -> None:
        functools.update_wrapper(self, f)
        self.__name__ = getattr(f, "__name__", "jitted")
        self.__qualname__ = getattr(f, "__qualname__", self.__name__)
        self.function, self.mode = f, mode
        self.__bridge_traced__ = f  # in a traced function it is traced as part of that one
        self.signature = inspect.signature(f.forward if isinstance(f, torch.nn.Module) else f)
        self.constants = frozenset(constants)
        for name in self.constants:
            if name not in self.signature.parameters:
                raise BridgeValueError(f"{self.__name__} has no parameter {name!r}")
        self.sizes_matter = False
        self.looks = False  # whether a specialisation looked at what tensors have beside a type
        self.specializations: dict[Any, Specialization] = {}
        parameters = self.signature.parameters.values()
        for p in parameters:
            if p.kind is p.VAR_KEYWORD:
                raise BridgeTypeError(
                    f"{self.__name__}: a jitted function takes no {p}: name the parameters"
                )
        self._variadic = [p.name for p in parameters if p.kind is p.VAR_POSITIONAL]
        # -1 where the arguments have to be bound first.
        self._n = -1 if self._variadic else len(parameters)
        # What stands for arguments that are left out at the end; None where none may be.
        self._defaults: list[Constant | None] = [
            Constant(p.default)
            if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is not p.empty
            else None
            for p in parameters
        ]
        self._last: Specialization | None = None  # the one to try first

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        last, refused = self._last, None
        if last is not None and len(args) == self._n and not kwargs:
            called = False
            try:
                if last.fits(args):
                    called = True
                    result = last.direct(*args, *last.captured)  # type: ignore[misc]
                    return result if last.rebuild is None else last.rebuild(result, args)
            except (AttributeError, TypeError, RuntimeError, OverflowError) as e:
                if called:
                    if getattr(getattr(e, "graph_place", None), "phase", "") != "extract":
                        raise
                    # Nothing has run. A RuntimeError is that of a tensor with a derivative.
                    refused = e if isinstance(e, TypeError) else None
        if kwargs or len(args) != self._n or self.constants:
            args = self._bind(args, kwargs)
        known = self.specializations.get(self.key(args))
        found = known.in_this_state() if known is not None else None
        if found is None:
            found = self._specialize(args)
            if known is not None and known is not found:
                found.elsewhere = [known, *known.elsewhere][:_STATES]
        elif found is last and refused is not None:
            raise refused
        if found.direct is not None:
            self._last = found
            if found.version != registry.changes:
                found.watch(args)
        return found(args)

    def key(self, args: Sequence[Any]) -> Any:
        """What of the arguments decides which graph serves them."""
        try:
            return tuple([_key(a, self.sizes_matter, self.looks) for a in args])
        except (TypingError, RegistrationError):
            raise
        except TypeError:  # an argument without a hash
            raise BridgeTypeError(
                f"{self.__name__}: each argument must have a type, or a hash as a constant: of a "
                "dict or a set, give the values as arguments of their own, or in a named tuple"
            ) from None

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def _bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """All arguments by position, defaults filled in. TypeError as Python has it."""
        if not kwargs and not self.constants:
            left_out = self._defaults[len(args) :]
            if len(args) < self._n and None not in left_out:
                return (*args, *left_out)
        bound = self.signature.bind(*args, **kwargs)
        given = {*bound.arguments, *self._variadic}
        bound.apply_defaults()
        return tuple(
            v if n in given and n not in self.constants else Constant(v)
            for n, v in bound.arguments.items()
        )

    def _specialize(self, args: Sequence[Any]) -> Specialization:
        if not self.sizes_matter:
            try:
                return self._trace(args, sizes_open=True)
            except NeedSizes:
                pass
        return self._trace(args, sizes_open=False)

    def _trace(self, args: Sequence[Any], sizes_open: bool) -> Specialization:
        trace = Trace(sizes_open)
        inputs: list[Variable] = []
        names = list(self.signature.parameters)
        values = [self._input(trace, a, n, inputs) for a, n in zip(args, names, strict=True)]
        by_name = dict(zip(names, values, strict=True))
        positional, keyword = [], {}
        for p in self.signature.parameters.values():
            if p.kind is p.KEYWORD_ONLY:
                keyword[p.name] = by_name[p.name]
            elif p.kind is p.VAR_POSITIONAL:
                positional += by_name[p.name]
            else:
                positional.append(by_name[p.name])
        trace.outside.object(self.function)  # as it is before it runs
        for a in args:
            _note(trace, a)
        result = trace.run(self.function, positional, keyword)
        outputs = [p._pb_variable for p in proxies(result)]
        single, results = is_proxy(result), Results(result, args, trace.made)
        flat = all(is_proxy(v) for v in values) and len(inputs) == len(args)
        del result, values, by_name, positional, keyword
        trace.check_escaped(self.__name__)
        rebuild = results.settle(self.__name__)
        structs = [i for i, v in enumerate(inputs) if holds_tensors(v.type)]
        inputs += [p._pb_variable for _, p in trace.captured.values()]
        compiled = function(
            inputs,
            outputs[0] if single else outputs,
            self.mode,
            name=self.__name__,
        )
        made = Specialization(compiled, args, flat, rebuild, trace, structs)
        self.looks |= trace.looks
        self.sizes_matter |= not sizes_open
        key = self.key(args)
        while len(self.specializations) >= _MOST and key not in self.specializations:
            del self.specializations[next(iter(self.specializations))]
        self.specializations[key] = made
        return made

    def _input(self, trace: Trace, value: Any, name: str, inputs: list[Variable]) -> Any:
        if isinstance(value, Constant):
            return value.value
        if is_container(value):
            inside = [self._input(trace, v, f"{name}_{i}", inputs) for i, v in enumerate(value)]
            return rebuilt(value, inside)
        if not _is_input(value):
            return value
        t = typeof(value)
        if isinstance(t, types.Array) and trace.sizes_open:
            t = t.clone(shape=(None,) * (t.ndim or 0))
        cls = type(value)
        trace.classes[t] = cls if trace.classes.get(t, cls) is cls else None
        v = graph_type(t).make_variable(name)
        inputs.append(v)
        return proxy(trace, v, t, None if cls in _NUMBERS else value)

    def __repr__(self) -> str:
        return f"<jit {self.__qualname__}>"

    def __getattr__(self, name: str) -> Any:
        if name in _METHODS:
            raise AttributeError(
                f"{name} is Numba's, and is not here: `specializations` has what was compiled, by "
                "the arguments' types"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def py_func(self) -> Callable[..., Any]:
        """The Python function."""
        return self.function

    def __reduce__(self) -> Any:
        found: Any = sys.modules.get(self.__module__)
        for part in self.__qualname__.split("."):
            found = getattr(found, part, None)
        if found is self:
            return self.__qualname__  # as a function is pickled: by its name in its module
        return _jit, (self.function, self.mode, tuple(self.constants))


def _of_its_own(value: Any) -> bool:
    """Whether a value has more to it than the number, the text or the elements that the type of
    its base class is for: a member of an enum, an int of a class of one's own."""
    cls = type(value)
    if isinstance(value, Enum):
        return True
    return bool(cls.__flags__ & HEAP_TYPE) and registered_class(cls) in _PYTHON


def _note(trace: Trace, value: Any) -> None:
    """Notes that a constant may be read."""
    if is_container(value):
        for v in value:
            _note(trace, v)
    elif not _is_input(value):
        trace.outside.object(value.value if isinstance(value, Constant) else value)


def _key(value: Any, sizes: bool, looks: bool = False) -> Any:
    """What of an argument decides which graph serves it."""
    cls = type(value)
    if cls in _TENSORS:
        size = tuple(value.shape) if sizes else value.dim()
        made = value.dtype, value.device, size, _contiguous(value)
        return (*made, looked_at(value)) if looks else made
    if cls is float:
        return cls
    if cls is int:
        return typeof(value)
    if is_container(value):
        return cls, tuple([_key(v, sizes, looks) for v in value])
    if value is None or cls in (str, bool):
        return cls, value
    if cls is Constant:
        return cls, state(value.value)
    if not _of_its_own(value):
        try:
            return cls, typeof(value)
        except UnknownTypeError:
            pass
    if cls in (bytearray, dict, list, set):
        hash(value)  # raises: it has none
    return cls, state(value)


@overload
def jit(f: _F) -> Jit: ...
@overload
def jit(
    *, mode: str | None = None, constants: Sequence[str] = ()
) -> Callable[[Callable[..., Any]], Jit]: ...
def jit(
    f: Callable[..., Any] | None = None,
    *,
    mode: str | None = None,
    constants: Sequence[str] = (),
    **options: Any,
) -> Jit | Callable[[Callable[..., Any]], Jit]:
    """Compiles a Python function for the types that it is called with. `mode` is that of
    pb.function; `constants` names arguments that are known while tracing, such as dimensions.

        >>> @pb.jit
        ... def scaled(x, factor):
        ...     return (x * factor).relu()
        >>> scaled(torch.tensor([-1.0, 2.0]), 3)
        tensor([0., 6.])

    TypingError where a call in it has no meaning for the types; a branch on a value is a TypeError.
    """
    for name in options:
        why = f": {_OPTIONS[name]}" if name in _OPTIONS else ""
        raise BridgeTypeError(f"jit has no option {name}{why}; it has mode and constants")
    if f is None:
        return lambda f: _jit(f, mode, constants)
    return _jit(f, mode, constants)


# What Numba's compiled functions have beside `py_func`.
_METHODS = frozenset(
    [
        *("signatures", "overloads", "nopython_signatures", "inspect_llvm", "inspect_asm"),
        *("inspect_types", "inspect_cfg", "recompile", "compile", "disable_compile", "stats"),
        *("get_overload", "get_metadata", "parallel_diagnostics"),
    ]
)

# Options of Numba's jit, and why there are none here.
_OPTIONS = {
    "nopython": "every function is compiled as a whole",
    "forceobj": "every function is compiled as a whole",
    "cache": "what is compiled is kept on disk by itself",
    "parallel": "PyTorch's functions run in parallel by themselves",
    "fastmath": "results are PyTorch's, bit for bit",
    "nogil": "the interpreter's lock is given up wherever the graph does not need it",
    "inline": "functions are traced in the place of the call",
    "boundscheck": "PyTorch checks every index",
    "error_model": "errors are Python's",
    "locals": "types follow from the arguments",
    "signature": "types follow from the arguments: the function is compiled at its first call",
}


def _jit(f: Callable[..., Any], mode: str | None, constants: Sequence[str]) -> Jit:
    if isinstance(f, (str, Signature, list, tuple)):
        raise BridgeTypeError(
            f"jit takes a function and no signature, such as {f!r}: the function is compiled for "
            "the types of its arguments at its first call"
        )
    if not callable(f):
        raise BridgeTypeError(f"jit decorates a function, not {f!r}")
    return Jit(f, mode, constants)
