"""What a traced function sees in the place of a value."""

from __future__ import annotations

import linecache
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..graph.basic import Variable
from ..registry import caller
from ..types.base import Type
from . import types
from .errors import TypingError

if TYPE_CHECKING:
    from .tracing import Trace


def _here() -> str:
    place = caller()
    line = linecache.getline(place.file, place.line).strip()
    return f" ({place}{': ' + line if line else ''})"


class Proxy:
    """A value of a known type that exists when the compiled function runs. Whatever is done with it
    is resolved through the registry, and becomes part of the graph."""

    __slots__ = ("_pb_trace", "_pb_type", "_pb_variable")
    __array_ufunc__ = None

    def __init__(self, trace: Trace, variable: Variable, type: Type) -> None:
        object.__setattr__(self, "_pb_trace", trace)
        object.__setattr__(self, "_pb_variable", variable)
        object.__setattr__(self, "_pb_type", type)

    _pb_trace: Trace
    _pb_variable: Variable
    _pb_type: Type

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        # isinstance(x, torch.Tensor), isinstance(n, int) and so on hold in traced code.
        t = self._pb_type
        if isinstance(t, types.Array):
            import torch

            return torch.Tensor
        for kind, cls in ((types.Boolean, bool), (types.Integer, int), (types.Float, float)):
            if type(t) is kind:
                return cls
        return self._pb_trace.classes.get(t, Proxy)

    def __repr__(self) -> str:
        return f"<{self._pb_type} {self._pb_variable}>"

    __str__ = __repr__
    __hash__ = object.__hash__

    # Attributes
    def __getattr__(self, name: str) -> Any:
        return self._pb_trace.getattr(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._pb_trace.setattr(self, name, value)

    def __delattr__(self, name: str) -> None:
        self._pb_trace.delattr(self, name)

    def __getitem__(self, index: Any) -> Any:
        return self._pb_trace.call(operator.getitem, (self, index), {})

    def __setitem__(self, index: Any, value: Any) -> None:
        self._pb_trace.call(operator.setitem, (self, index, value), {})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypingError(f"a value of type {self._pb_type} cannot be called{_here()}")

    def __bridge_apply__(self, op: Any, inputs: Any) -> Any:
        return self._pb_trace.on_variables(op, inputs, {})

    # What must be known while the function is traced
    def __bool__(self) -> bool:
        self._pb_trace.need_value(self)
        raise TypingError(
            f"the truth of {self!r} is not known while the function is traced{_here()}: choose by "
            "value with torch.where(condition, a, b); if, while, and, or, not can depend on types, "
            "shapes and constants only"
        )

    def _known(self, what: str) -> Any:
        self._pb_trace.need_value(self)
        raise TypingError(
            f"{what} needs the value of {self!r}, which is not known while the function is "
            f"traced{_here()}: it must be a constant, a size of a tensor, or an argument's default"
        )

    def __index__(self) -> int:
        return self._known("an index, a range or a size")

    def __int__(self) -> int:
        return self._known("int()")

    def __float__(self) -> float:
        return self._known("float()")

    def __complex__(self) -> complex:
        return self._known("complex()")

    def __len__(self) -> int:
        found = self._pb_trace.call(len, (self,), {})
        return found if isinstance(found, int) else self._known("len() without source")

    def __iter__(self) -> Iterator[Any]:
        return self._pb_trace.iterate(self)

    def __contains__(self, item: Any) -> bool:
        return bool(self._pb_trace.call(operator.contains, (self, item), {}))

    # What torch's functions do with it
    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        trace = next(p._pb_trace for p in proxies((args, kwargs)))
        return trace.call(func, args, kwargs or {})


def _binary(function: Callable[..., Any], reflected: bool) -> Callable[..., Any]:
    def method(self: Proxy, other: Any) -> Any:
        args = (other, self) if reflected else (self, other)
        return self._pb_trace.call(function, args, {})

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
    setattr(Proxy, f"__{_name}__", _binary(_function, False))
    setattr(Proxy, f"__r{_name}__", _binary(_function, True))
for _name, _function in COMPARE.items():
    setattr(Proxy, f"__{_name}__", _binary(_function, False))
for _name, _function in UNARY.items():
    setattr(Proxy, f"__{_name}__", _unary(_function))


def is_sequence(value: Any) -> bool:
    """Whether it is a tuple or a list, or one of PyTorch's tuples with names, which are made of a
    sequence as these are."""
    import torch

    cls = type(value)
    return cls in (tuple, list) or getattr(torch.return_types, cls.__name__, None) is cls


def proxies(value: Any) -> Iterator[Proxy]:
    """The proxies in nested tuples, lists, dicts and slices."""
    if type(value) is Proxy:
        yield value
    elif type(value) in (tuple, list):
        for v in value:
            yield from proxies(v)
    elif type(value) is dict:
        for v in value.values():
            yield from proxies(v)
    elif type(value) is slice:
        yield from proxies((value.start, value.stop, value.step))
    elif isinstance(value, (tuple, list)) and not hasattr(value, "_pb_trace"):
        for v in value:  # named tuples
            yield from proxies(v)


def unwrapped(value: Any) -> Any:
    """The same with the graph's variables in the place of proxies."""
    if type(value) is Proxy:
        return value._pb_variable
    if is_sequence(value):
        return type(value)(unwrapped(v) for v in value)
    if type(value) is dict:
        return {k: unwrapped(v) for k, v in value.items()}
    if type(value) is slice:
        return slice(unwrapped(value.start), unwrapped(value.stop), unwrapped(value.step))
    return value
