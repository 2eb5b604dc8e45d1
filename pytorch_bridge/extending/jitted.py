"""Compiling Python functions over graph variables.

    @pb.jit
    def f(x, s):
        return s.scale * x.relu()

At the first call with arguments of new types the function is traced: it runs once on stand-ins for
its arguments, everything that it does with them is resolved through the registry and recorded, and
the recorded graph is compiled. Further calls with such arguments run the compiled graph.

- Tensors, numbers and values of registered types are inputs of the graph, also within tuples and
  lists. Truth values, strings, None, dtypes, devices and everything else that typeof does not know
  are constants, and so are defaults that are not given and what `constants` names: for another one
  the function is traced again.
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
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

import torch
from torch.autograd import forward_ad

from .. import registry
from ..compiled import CompiledFunction, CopiedAsItself, function
from ..errors import BridgeTypeError, BridgeValueError, RegistrationError
from ..graph.basic import Variable
from ..sameness import key
from . import types
from .errors import TypingError, UnknownTypeError
from .graph_ops import graph_type
from .proxies import Proxy, is_sequence, proxies
from .tracing import NeedSizes, Trace
from .typeof import type_function, typeof

_F = TypeVar("_F", bound=Callable[..., Any])


_TENSORS = (torch.Tensor, torch.nn.Parameter)
_NUMBERS = (int, float)


class Specialization:
    """A jitted function for arguments of some types: the graph, and how values go in and out."""

    def __init__(
        self,
        compiled: CompiledFunction,
        args: Sequence[Any],
        flat: bool,
        rebuild: Callable[[list[Any]], Any] | None,
    ) -> None:
        self.compiled, self.flat, self.rebuild = compiled, flat, rebuild
        # The C callable itself, where every argument is an input.
        self.direct = compiled.direct if flat else None
        self.watch(args)

    def watch(self, args: Sequence[Any]) -> None:
        """Notes what `direct` does not check by itself, as the registry is now."""
        self.version = registry.version()
        self.tensors = [(i, _contiguous(a)) for i, a in enumerate(args) if type(a) in _TENSORS]
        self.others = [
            (i, type(a), type_function(a), typeof(a))
            for i, a in enumerate(args)
            if self.flat and type(a) not in _TENSORS and type(a) not in _NUMBERS
        ]

    def fits(self, args: Sequence[Any]) -> bool:
        """Whether `direct` may be called: it checks the rest."""
        if registry.changes != self.version:
            return False
        for i, contiguous in self.tensors:
            if args[i].is_contiguous() is not contiguous:
                return False
        for i, cls, typed, t in self.others:
            a = args[i]
            if type(a) is not cls:
                return False
            found = typed(a)
            if found is not t and found != t:
                return False
        return True

    def __call__(self, args: Sequence[Any]) -> Any:
        values = args if self.flat else list(_leaves(args))
        direct = self.compiled.direct
        recorded = forward_ad._current_level >= 0 or any(
            getattr(v, "requires_grad", False) for v in values
        )
        found = (self.compiled if direct is None or recorded else direct)(*values)
        return found if self.rebuild is None else self.rebuild(found)


def _contiguous(t: torch.Tensor) -> bool:
    return t.layout is torch.strided and t.is_contiguous()


def _leaves(args: Any) -> Any:
    """The values among arguments that are inputs of the graph."""
    for a in args:
        if isinstance(a, (tuple, list)):
            yield from _leaves(a)
        elif _is_input(a):
            yield a


def _is_input(value: Any) -> bool:
    cls = type(value)
    if cls in _TENSORS or cls in _NUMBERS:
        return True
    if value is None or cls in (str, bool, _Known):
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
        self.signature = inspect.signature(f)
        self.constants = frozenset(constants)
        for name in self.constants:
            if name not in self.signature.parameters:
                raise BridgeValueError(f"{self.__name__} has no parameter {name!r}")
        self.sizes_matter = False
        self.specializations: dict[Any, Specialization] = {}
        parameters = self.signature.parameters.values()
        self._n = len(parameters)
        # What stands for arguments that are left out at the end; None where none may be.
        self._defaults: list[_Known | None] = [
            _Known(p.default)
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
                    result = last.direct(*args)  # type: ignore[misc]
                    return result if last.rebuild is None else last.rebuild(result)
            except (AttributeError, TypeError, RuntimeError) as e:
                if called:
                    if getattr(getattr(e, "graph_place", None), "phase", "") != "extract":
                        raise
                    # Nothing has run. A RuntimeError is that of a tensor with a derivative.
                    refused = e if isinstance(e, TypeError) else None
        if kwargs or len(args) != self._n or self.constants:
            args = self._bind(args, kwargs)
        sizes = self.sizes_matter
        try:
            found = self.specializations.get(tuple([_key(a, sizes) for a in args]))
        except (TypingError, RegistrationError):
            raise
        except TypeError:  # an argument without a hash
            raise BridgeTypeError(
                f"{self.__name__}: each argument must have a type, or a hash as a constant"
            ) from None
        if found is None:
            found = self._specialize(args)
        elif found is last and refused is not None:
            raise refused
        if found.direct is not None:
            self._last = found
            if found.version != registry.changes:
                found.watch(args)
        return found(args)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def _bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """All arguments by position, defaults filled in. TypeError as Python has it."""
        if not kwargs and not self.constants:
            left_out = self._defaults[len(args) :]
            if len(args) < self._n and None not in left_out:
                return (*args, *left_out)
        for p in self.signature.parameters.values():
            if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                raise BridgeTypeError(f"{self.__name__}: a jitted function takes no {p}")
        bound = self.signature.bind(*args, **kwargs)
        given = set(bound.arguments)
        bound.apply_defaults()
        return tuple(
            v if n in given and n not in self.constants else _Known(v)
            for n, v in bound.arguments.items()
        )

    def _specialize(self, args: Sequence[Any]) -> Specialization:
        if not self.sizes_matter:
            try:
                return self._trace(args, sizes_open=True)
            except NeedSizes:
                pass
        made = self._trace(args, sizes_open=False)
        self.sizes_matter = True
        return made

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
            else:
                positional.append(by_name[p.name])
        result = trace.run(self.function, positional, keyword)
        outputs = [p._pb_variable for p in proxies(result)]
        rebuild = _rebuild(self.__name__, result)
        compiled = function(
            inputs,
            outputs[0] if type(result) is Proxy else outputs,
            self.mode,
            name=self.__name__,
        )
        flat = all(isinstance(v, Proxy) for v in values) and len(inputs) == len(args)
        made = Specialization(compiled, args, flat, rebuild)
        self.specializations[tuple(_key(a, not sizes_open) for a in args)] = made
        return made

    def _input(self, trace: Trace, value: Any, name: str, inputs: list[Variable]) -> Any:
        if isinstance(value, _Known):
            return value.value
        if type(value) in (tuple, list):
            return type(value)(
                self._input(trace, v, f"{name}_{i}", inputs) for i, v in enumerate(value)
            )
        if not _is_input(value):
            return value
        t = typeof(value)
        if isinstance(t, types.Array) and trace.sizes_open:
            t = t.clone(shape=(None,) * (t.ndim or 0))
        trace.classes.setdefault(t, type(value))
        v = graph_type(t).make_variable(name)
        inputs.append(v)
        return Proxy(trace, v, t)

    def __repr__(self) -> str:
        return f"<jit {self.__qualname__}>"

    def __reduce__(self) -> str:
        return self.__qualname__  # as a function is pickled: by its name in its module


class _Known:
    """An argument that is a constant: a default that was not given, or one that jit was told of."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self._key = key(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Known) and bool(self._key == other._key)

    def __hash__(self) -> int:
        return hash(self._key)


def _key(value: Any, sizes: bool) -> Any:
    """What of an argument decides which graph serves it."""
    cls = type(value)
    if cls in _TENSORS:
        size = tuple(value.shape) if sizes else value.dim()
        return value.dtype, value.device, size, _contiguous(value)
    if cls in _NUMBERS:
        return cls
    if cls is tuple or cls is list:
        return cls, tuple([_key(v, sizes) for v in value])
    if value is None or cls in (str, bool, _Known):
        return cls, value
    try:
        return typeof(value)
    except UnknownTypeError:
        return cls, value


def _rebuild(name: str, result: Any) -> Callable[[list[Any]], Any] | None:
    """How results become what the function returned, None where it is the output itself."""
    if type(result) is Proxy:
        return None
    _check_result(name, result)

    def put(value: Any, found: Any) -> Any:
        if type(value) is Proxy:
            return next(found)
        if is_sequence(value):
            return type(value)(put(v, found) for v in value)
        if type(value) is dict:
            return {k: put(v, found) for k, v in value.items()}
        return value

    if is_sequence(result) and all(type(v) is Proxy for v in result):
        return type(result)
    return lambda found: put(result, iter(found))


def _check_result(name: str, value: Any) -> None:
    if is_sequence(value):
        for v in value:
            _check_result(name, v)
    elif type(value) is dict:
        for v in value.values():
            _check_result(name, v)
    elif type(value) is not Proxy and any(
        type(v) is Proxy for v in getattr(value, "__dict__", {}).values()
    ):
        raise TypingError(
            f"{name} returns a value of the Python class {type(value).__qualname__}, which was "
            "made while tracing: return its parts, or register the class's constructor with "
            "type_callable and lower_builtin"
        )


@overload
def jit(f: _F) -> Jit: ...
@overload
def jit(
    *, mode: str | None = None, constants: Sequence[str] = ()
) -> Callable[[Callable[..., Any]], Jit]: ...
def jit(
    f: Callable[..., Any] | None = None, *, mode: str | None = None, constants: Sequence[str] = ()
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
    if f is None:
        return lambda f: _jit(f, mode, constants)
    return _jit(f, mode, constants)


def _jit(f: Callable[..., Any], mode: str | None, constants: Sequence[str]) -> Jit:
    if not callable(f):
        raise BridgeTypeError(f"jit decorates a function, not {f!r}")
    return Jit(f, mode, constants)
