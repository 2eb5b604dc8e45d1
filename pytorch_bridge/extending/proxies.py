"""What a traced function sees in the place of a value.

Whatever Python can do with a value, a proxy answers as the value would, records in the graph, or
refuses with an error that says where. It never answers for itself: its text, its hash and its class
are those of a value that is not there yet.
"""

from __future__ import annotations

import functools
import linecache
import operator
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import torch

from ..graph.basic import Variable
from ..registry import caller
from ..types.base import Type
from . import types
from .errors import TypingError

if TYPE_CHECKING:
    from .tracing import Trace

# The tracing that is running in this thread.
current: ContextVar[Trace | None] = ContextVar("trace", default=None)


def here() -> str:
    """The line of the traced function that is running."""
    place = caller()
    line = linecache.getline(place.file, place.line).strip()
    return f" ({place}{': ' + line if line else ''})"


class Proxy:
    """A value of a known type that exists when the compiled function runs. Whatever is done with it
    is resolved through the registry, and becomes part of the graph."""

    __slots__ = ("__weakref__", "_pb_given", "_pb_place", "_pb_trace", "_pb_type", "_pb_variable")
    __array_ufunc__ = None

    def __init__(self, trace: Trace, variable: Variable, type: Type, given: Any = None) -> None:
        object.__setattr__(self, "_pb_trace", trace)
        object.__setattr__(self, "_pb_variable", variable)
        object.__setattr__(self, "_pb_type", type)
        object.__setattr__(self, "_pb_given", given)
        object.__setattr__(self, "_pb_place", caller())
        trace.follow(self)

    _pb_trace: Trace
    _pb_variable: Variable
    _pb_type: Type
    _pb_given: Any  # the value that the function was traced with, of an argument
    _pb_place: Any

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        # isinstance(x, torch.Tensor), isinstance(n, int) and so on hold in traced code.
        return self._pb_trace.class_of(self) or Proxy

    # Its text and its hash would be the value's
    def __repr__(self) -> str:
        if not self._pb_trace.running:
            return described(self)
        return self._known("the text of a value (repr, str, print, an f-string)")

    def __str__(self) -> str:
        return repr(self)

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __hash__(self) -> int:
        t = self._pb_type
        if isinstance(t, types.Array) or not self._pb_trace.running:
            return object.__hash__(self)  # tensors are hashed by identity
        return self._known("a hash (a set, a key of a dict, hash())")

    def __copy__(self) -> Any:
        if isinstance(self._pb_type, (types.Number, types.Array)):
            return self  # nobody writes into it
        return self._refuse(
            f"{described(self)} cannot be copied while it is traced{here()}: copy.deepcopy can"
        )

    def __deepcopy__(self, memo: Any) -> Any:
        if isinstance(self._pb_type, (types.Number, types.Array)):
            return self
        return proxy(self._pb_trace, self._pb_variable, self._pb_type, self._pb_given)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._refuse(f"{described(self)} cannot be pickled while it is traced{here()}")

    def _refuse(self, message: str) -> Any:
        """A TypingError that the traced function cannot leave behind by catching it."""
        error = TypingError(message)
        self._pb_trace.refused.append(error)
        raise error

    # Attributes
    def __getattr__(self, name: str) -> Any:
        return self._pb_trace.getattr(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._pb_trace.setattr(self, name, value)

    def __delattr__(self, name: str) -> None:
        self._pb_trace.delattr(self, name)

    def __bridge_apply__(self, op: Any, inputs: Any) -> Any:
        return self._pb_trace.on_variables(op, inputs, {})

    # What must be known while the function is traced
    def __bool__(self) -> bool:
        self._pb_trace.need_value(self)
        return self._refuse(
            f"the truth of {described(self)} is not known while the function is traced{here()}: "
            "choose by value with torch.where(condition, a, b); if, while, and, or, not can depend "
            "on types, shapes and constants only"
        )

    def _known(self, what: str) -> Any:
        self._pb_trace.need_value(self)
        return self._refuse(
            f"{what} needs the value of {described(self)}, which is not known while the function "
            f"is traced{here()}: it must be a constant (jit(constants=...)), a size of a tensor, "
            "or an argument's default"
        )

    def __index__(self) -> int:
        return self._known("an index, a range or a size")

    def __int__(self) -> int:
        return self._known("int()")

    def __float__(self) -> float:
        return self._known("float()")

    def __complex__(self) -> complex:
        return self._known("complex()")

    def __round__(self, digits: Any = None) -> Any:
        args = (self,) if digits is None else (self, digits)
        return self._pb_trace.call(round, args, {})

    def __pow__(self, other: Any, modulus: Any = None) -> Any:
        if modulus is not None:
            return self._pb_trace.call(pow, (self, other, modulus), {})
        _check_number(self, other)
        return self._pb_trace.call(operator.pow, (self, other), {})

    def __rpow__(self, other: Any, modulus: Any = None) -> Any:
        _check_number(self, other)
        return self._pb_trace.call(operator.pow, (other, self), {})

    # What torch's functions do with it
    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        trace = next(p._pb_trace for p in proxies((args, kwargs)))
        return trace.call(func, args, kwargs or {})


def described(p: Proxy) -> str:
    """A proxy in messages."""
    return f"<{p._pb_type} {p._pb_variable}>"


# What some values have and others have not, such as a length: hasattr, callable, iter and the
# abstract classes of collections.abc look for these methods in the class.


def _len(self: Proxy) -> int:
    found = self._pb_trace.call(len, (self,), {})
    return found if isinstance(found, int) and not is_proxy(found) else self._known("len()")


def _iter(self: Proxy) -> Iterator[Any]:
    return self._pb_trace.iterate(self)


def _contains(self: Proxy, item: Any) -> bool:
    return bool(self._pb_trace.call(operator.contains, (self, item), {}))


def _getitem(self: Proxy, index: Any) -> Any:
    return self._pb_trace.call(operator.getitem, (self, index), {})


def _setitem(self: Proxy, index: Any, value: Any) -> None:
    self._pb_trace.call(operator.setitem, (self, index, value), {})


def _delitem(self: Proxy, index: Any) -> None:
    self._pb_trace.call(operator.delitem, (self, index), {})


def _call(self: Proxy, *args: Any, **kwargs: Any) -> Any:
    raise TypingError(f"a value of type {self._pb_type} cannot be called{here()}")


_MORE: dict[str, Callable[..., Any]] = {
    "__len__": _len,
    "__iter__": _iter,
    "__contains__": _contains,
    "__getitem__": _getitem,
    "__setitem__": _setitem,
    "__delitem__": _delitem,
    "__call__": _call,
}
_REGISTERED: dict[str, Any] = {
    "__len__": len,
    "__contains__": operator.contains,
    "__getitem__": operator.getitem,
    "__setitem__": operator.setitem,
    "__delitem__": operator.delitem,
}


@functools.lru_cache(maxsize=1024)
def _made(name: str, more: tuple[str, ...]) -> type[Proxy]:
    methods = {n: _MORE[n] for n in more}
    return type(f"value of type {name}", (Proxy,), {"__slots__": (), **methods})


def proxy(trace: Trace, variable: Variable, t: Type, given: Any = None) -> Proxy:
    """A proxy of the class that has the methods of t's values."""
    if isinstance(t, types.Number):
        more: tuple[str, ...] = ()
    elif isinstance(t, types.Array):
        more = tuple(n for n in _MORE if n != "__call__")
    else:
        cls = trace.class_of_type(t)
        more = tuple(
            n
            for n in _MORE
            if (cls is not None and any(n in vars(c) for c in cls.__mro__))
            or (n in _REGISTERED and trace.takes(_REGISTERED[n], t))
        )
        if "__getitem__" in more and "__len__" in more and "__iter__" not in more:
            more += ("__iter__",)
    return _made(str(t), more)(trace, variable, t, given)


def is_proxy(value: Any) -> bool:
    """Whether it is a proxy, and no class of its own says otherwise."""
    return issubclass(type(value), Proxy)


def _binary(function: Callable[..., Any], reflected: bool) -> Callable[..., Any]:
    def method(self: Proxy, other: Any) -> Any:
        args = (other, self) if reflected else (self, other)
        if isinstance(other, (str, bytes, list, tuple)) and isinstance(self._pb_type, types.Number):
            if function is operator.mul:
                return other * self._known("a sequence times a number")
            return NotImplemented  # as for the number itself
        _check_number(self, other)
        return self._pb_trace.call(function, args, {})

    return method


def _check_number(p: Proxy, other: Any) -> None:
    """TypingError for a number of NumPy beside a value: it has rules of its own for the result's
    dtype, and for what does not fit."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(p._pb_type, types.Number):
        return
    if isinstance(other, numpy.generic) and not isinstance(other, float):
        raise TypingError(
            f"{described(p)} meets a {type(other).__name__} of NumPy{here()}, whose results have "
            "dtypes of their own: convert it with .item()"
        )


def _compare(function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Proxy, other: Any) -> Any:
        foreign = other is None or isinstance(other, (str, bytes, list, tuple, set, dict))
        if foreign and isinstance(self._pb_type, types.Number):
            return NotImplemented  # as for the number itself
        _check_number(self, other)
        return self._pb_trace.call(function, (self, other), {})

    return method


def _in_place(function: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Proxy, other: Any) -> Any:
        return self._pb_trace.in_place(function, plain, self, other)

    return method


def _unary(function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Proxy) -> Any:
        return self._pb_trace.call(function, (self,), {})

    return method


BINARY: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "pow": operator.pow,
    "matmul": operator.matmul,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "lshift": operator.lshift,
    "rshift": operator.rshift,
}
COMPARE: dict[str, Callable[..., Any]] = {
    name: getattr(operator, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")
}
UNARY: dict[str, Callable[..., Any]] = {
    "neg": operator.neg,
    "pos": operator.pos,
    "abs": abs,
    "invert": operator.invert,
}

for _name, _function in BINARY.items():
    if _name != "pow":
        setattr(Proxy, f"__{_name}__", _binary(_function, False))
        setattr(Proxy, f"__r{_name}__", _binary(_function, True))
    setattr(
        Proxy,
        f"__i{_name}__",
        _in_place(getattr(operator, f"i{_name.rstrip('_')}"), _function),
    )
for _name, _reflected in (("divmod", False), ("rdivmod", True)):
    setattr(Proxy, f"__{_name}__", _binary(divmod, _reflected))
for _name, _function in COMPARE.items():
    setattr(Proxy, f"__{_name}__", _compare(_function))
for _name, _function in UNARY.items():
    setattr(Proxy, f"__{_name}__", _unary(_function))


# Containers --------------------------------------------------------------------------------------


class Sizes(tuple[Any, ...]):
    """A torch.Size in which some sizes are values."""

    __slots__ = ()

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return torch.Size

    def numel(self) -> Any:
        """The product of the sizes."""
        return functools.reduce(operator.mul, self, 1)

    def __getitem__(self, index: Any) -> Any:
        found = tuple.__getitem__(self, index)
        return sizes(found) if isinstance(index, slice) else found

    def __add__(self, other: Any) -> Any:
        return sizes((*self, *other)) if isinstance(other, tuple) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return sizes((*other, *self)) if isinstance(other, tuple) else NotImplemented


def sizes(values: Any) -> Any:
    """A torch.Size of sizes, some of which may be values."""
    found = tuple(values)
    return torch.Size(found) if all(type(v) is int for v in found) else Sizes(found)


def is_sequence(value: Any) -> bool:
    """Whether it is a tuple or a list, or one of PyTorch's tuples with names, which are made of a
    sequence as these are."""
    import torch

    cls = type(value)
    return cls in (tuple, list, Sizes) or getattr(torch.return_types, cls.__name__, None) is cls


def _typed_as_tuple(cls: type) -> bool:
    from .typeof import registered_class

    return registered_class(cls) is tuple


def _named(cls: type) -> bool:
    return issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple)


def is_container(value: Any) -> bool:
    """Whether it is an argument whose elements are arguments: a tuple, one with names, or a list,
    of a class to which nothing else gives a type."""
    cls = type(value)
    return cls in (tuple, list, torch.Size) or (_named(cls) and _typed_as_tuple(cls))


def elements(value: Any) -> list[Any] | None:
    """What is in a container that `rebuilt` makes again; None for anything else."""
    cls = type(value)
    if is_sequence(value) or cls is deque or _named(cls) or cls is torch.Size:
        return list(value)
    if cls in (dict, OrderedDict, defaultdict):
        return list(value.values())
    if cls is slice:
        return [value.start, value.stop, value.step]
    return None


def rebuilt(value: Any, inside: list[Any]) -> Any:
    """A container like value with other elements."""
    cls = type(value)
    if _named(cls):
        return cls._make(inside)
    if cls is deque:
        return deque(inside, value.maxlen)
    if cls is slice:
        return slice(*inside)
    if cls in (torch.Size, Sizes):
        return sizes(inside)
    if cls is defaultdict:
        return defaultdict(value.default_factory, zip(value, inside, strict=True))
    if cls in (dict, OrderedDict):
        return cls(zip(value, inside, strict=True))
    return cls(inside)


def proxies(value: Any) -> Iterator[Proxy]:
    """The proxies in a value, and in containers."""
    if is_proxy(value):
        yield value
        return
    for v in elements(value) or ():
        yield from proxies(v)


def unwrapped(value: Any) -> Any:
    """The same with the graph's variables in the place of proxies, and of tensors from outside."""
    if is_proxy(value):
        return value._pb_variable
    if isinstance(value, torch.Tensor):
        trace = current.get()
        return value if trace is None else trace.constant(value)
    inside = elements(value)
    return value if inside is None else rebuilt(value, [unwrapped(v) for v in inside])
