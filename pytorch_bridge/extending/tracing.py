"""Running a Python function on proxies, so that what it does becomes a graph.

What a call means is found in this order: an intrinsic or a jitted function; what is registered for
the function (see `resolution`); PyTorch's own function of that name; the Python code of the
function, which is then traced as well. Attributes and methods: what is registered for the type,
then PyTorch's.
"""

from __future__ import annotations

import functools
import gc
import inspect
import operator
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import BuiltinFunctionType, CellType, FrameType, FunctionType, MethodType
from typing import Any
from weakref import ReferenceType, ref

import torch

from ..errors import BridgeTypeError, RegistrationError
from ..graph.basic import Variable, ancestors
from ..ops.basic import Shape_i
from ..ops.native import Packet, collected
from ..types import SchemaType
from ..types.base import Type
from . import lowering, natives, types
from .casts import cast
from .errors import AssignmentError, LoweringError, TypingError
from .graph_ops import graph_type, lowered, typing_type, widened
from .outside import ASKED, MISSING, Eager, Outside, check_steady, generators, library
from .overloads import Intrinsic
from .proxies import (
    Proxy,
    current,
    described,
    elements,
    here,
    is_proxy,
    proxies,
    proxy,
    rebuilt,
    unwrapped,
)
from .ranking import can_convert, find_cast
from .resolution import (
    Resolved,
    attribute_names,
    has_candidates,
    resolve_attribute,
    resolve_call,
    resolve_method,
)
from .rewriting import made_inside, rewritten, within
from .signatures import Signature, signature
from .templates import calls, positions
from .typeof import typeof_constant

_TENSORS = (torch.Tensor, torch.nn.Parameter)


class NeedSizes(BaseException):
    """The function looks at a size that the graph leaves open: it is traced again with all sizes
    known. Not an Exception, so that a traced function does not catch it."""


def call_in_trace(func: Any, /, *args: Any, **kwargs: Any) -> Any:
    """What each call in a traced function has become."""
    trace = current.get()
    if trace is None:
        return func(*args, **kwargs)
    return trace.call(func, args, kwargs)


_SIZED = (tuple, list, dict, str, bytes, set, frozenset, range)


class BoundMethod:
    """`x.name` where that is a method: to be called."""

    def __init__(self, trace: Trace, owner: Proxy, name: str) -> None:
        self.trace, self.owner, self.name = trace, owner, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.trace.call_method(self.owner, self.name, args, kwargs)

    def __repr__(self) -> str:
        return f"<method {self.name} of {self.owner!r}>"


class Trace:
    """One function being traced. With `sizes_open`, sizes that the graph leaves open may turn out
    to be needed, which NeedSizes says."""

    def __init__(self, sizes_open: bool = False) -> None:
        self.sizes_open = sizes_open
        # The Python classes of the arguments' types; None where there are several.
        self.classes: dict[Type, type | None] = {}
        self.refused: list[TypingError] = []  # what no proxy can answer
        self.running = False
        self.asked: tuple[Any, str] | None = None  # the attribute that is read next
        self.looks = False  # whether it asked what an argument has beside its type
        self.outside = Outside()
        self.captured: dict[int, tuple[torch.Tensor, Proxy]] = {}  # tensors from outside, as inputs
        self._eager = Eager(self.outside)
        self._constants: dict[tuple[int, int], tuple[torch.Tensor, torch.Tensor]] = {}
        self._followed: list[ReferenceType[Proxy]] = []
        self._parts: dict[int, dict[str, Proxy]] = {}  # members that were read, by their owner
        self._owners: dict[int, list[tuple[Proxy, str]]] = {}  # and who has a member
        self._gradients = torch.is_grad_enabled()
        self._autocast = _autocast()

    def run(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Any = None) -> Any:
        """What function returns for proxies."""
        token = current.set(self)
        before = generators()
        self.running = True
        try:
            # The graph is one for calls with a gradient and without.
            with self._eager, torch.enable_grad():
                found = self._inline(function, args, kwargs or {})
            if self.refused:
                raise self.refused[0]
            if generators() != before:
                raise TypingError(
                    "the function drew random numbers while it was traced, which would be the same "
                    "at each call: give it the numbers as an argument, or draw them with torch.rand"
                )
            self.outside.settle()
            return found
        finally:
            self.running = False
            self.asked = None
            current.reset(token)
            self._parts.clear()
            self._owners.clear()

    # What comes from outside
    def follow(self, p: Proxy) -> None:
        """Remembers a proxy, to see whether it is still there when the tracing has ended."""
        self._followed.append(ref(p))

    def check_escaped(self, name: str) -> None:
        """TypingError where something outside still has a proxy."""
        self.captured_proxies = [p for _, p in self.captured.values()]
        own = set(map(id, self.captured_proxies))

        def left() -> list[Proxy]:
            return [p for p in (r() for r in self._followed) if p is not None and id(p) not in own]

        for wait in (0.0, 0.01, 0.05):  # another thread may be collecting, and this one does not
            if left():
                time.sleep(wait)
                gc.collect()
        found = left()
        if found:
            p = found[0]
            raise TypingError(
                f"{name} leaves {described(p)}, made at {p._pb_place}, in {_holder(p, found)}: "
                "such a value does not exist when the function has been traced; return it, in a "
                "tuple, a list or a dict"
            )

    def read(self, value: Any) -> Any:
        """What a traced function reads under a name: a tensor from outside is an input."""
        if self.asked is not None:
            (owner, name), self.asked = self.asked, None
            self.attribute(owner, name, value)
        if type(value) in _TENSORS and not self._eager.made(value):
            return self.outer(value)
        return value

    def attribute(self, owner: Any, name: str, value: Any) -> None:
        """Notes an attribute that a traced function has read."""
        if not self.running or is_proxy(owner) or is_proxy(value):
            return
        if not isinstance(value, torch.Tensor) or not self._eager.made(value):
            self.outside.attribute(owner, name, value)

    def outer(self, value: torch.Tensor) -> Proxy:
        """A tensor from outside, as an input of the graph."""
        found = self.captured.get(id(value))
        if found is None:
            t = typeof_constant(value)
            v = graph_type(t).make_variable(f"outside_{len(self.captured)}")
            self.outside.tensor(value)
            found = self.captured[id(value)] = (value, proxy(self, v, t, value))
        return found[1]

    def made(self, value: torch.Tensor) -> bool:
        """Whether a tensor was made while the function was traced."""
        return self._eager.made(value)

    def constant(self, value: torch.Tensor) -> Any:
        """A tensor that no proxy stands for, on its way into the graph."""
        if not self.running:
            return value
        if not self._eager.made(value):
            return self.outer(value)._pb_variable if type(value) in _TENSORS else value
        if value.requires_grad and value.grad_fn is not None:
            raise TypingError(
                "a tensor that PyTorch computed while the function was traced depends on one from "
                f"outside that requires a gradient, which would be lost{here()}: give the function "
                "that tensor as an argument"
            )
        key = (id(value), value._version)
        if key not in self._constants:  # it may be written into later on
            with self.own_work():
                self._constants[key] = (value, value.detach().clone())
        return self._constants[key][1]

    @contextmanager
    def own_work(self) -> Iterator[None]:
        """What this package computes on the way, which is none of the function's."""
        self._eager.passing += 1
        try:
            yield
        finally:
            self._eager.passing -= 1

    def class_of(self, p: Proxy) -> type | None:
        """The Python class of a value, where that is known."""
        given = p._pb_given
        if given is not None and not isinstance(given, torch.Tensor):
            return type(given)
        return self.class_of_type(p._pb_type)

    def class_of_type(self, t: Type) -> type | None:
        """The Python class of the values of a type, where that is known."""
        if isinstance(t, types.Array):
            return torch.Tensor
        for kind, cls in (
            (types.Boolean, bool),
            (types.Integer, int),
            (types.Float, float),
            (types.Complex, complex),
        ):
            if type(t) is kind:
                return cls
        return str if type(t) is types.UnicodeType else self.classes.get(t)

    def takes(self, func: Any, t: Type) -> bool:
        """Whether something is registered for a function of a value of type t, and perhaps more."""
        if func is len:
            try:
                resolve_call(len, [t], {})
            except TypingError:
                return False
            return True
        return any(not library(entry.thing) for entry in calls.get(func))

    # Values
    def wrap(self, value: Any, t: Type | None = None) -> Any:
        """Variables as proxies, also in lists and tuples; a tuple of C is taken apart."""
        if isinstance(value, Variable):
            t = typing_type(value) if t is None else widened(t)
            if isinstance(t, types.NoneType):
                return None
            if isinstance(t, types.BaseTuple):
                return tuple(self._element(value, t, i) for i in range(len(t)))
            return proxy(self, value, t)
        if isinstance(value, (list, tuple)):
            return rebuilt(value, [self.wrap(v) for v in value])
        return value

    def _element(self, v: Variable, t: types.BaseTuple, i: int) -> Any:
        sig = signature(t.types[i], t)

        def emit(context: Any, b: Any, sig: Signature, args: Any) -> Any:
            return b.member(args[0], f"f{i}", context.get_value_type(t.types[i]))

        return self.wrap(lowered(f"element {i}", sig, emit, ("element", i), [v]), t.types[i])

    def typeof(self, value: Any) -> Type:
        """The type of a proxy, or of a constant."""
        if is_proxy(value):
            return value._pb_type
        if isinstance(value, tuple) and any(True for _ in proxies(value)):
            return types.Tuple([self.typeof(v) for v in value])
        if any(True for _ in proxies(value)):
            found = {self.typeof(v) for v in elements(value) or ()}
            if isinstance(value, list) and len(found) == 1:
                return types.List(found.pop())
            return types.Known(value, f"{type(value).__name__} of {', '.join(map(str, found))}")
        return typeof_constant(value)

    def need_value(self, proxy: Proxy) -> None:
        """NeedSizes where knowing all sizes might tell the value of a proxy."""
        if self.sizes_open and any(
            v.owner is not None and isinstance(v.owner.op, Shape_i)
            for v in ancestors([proxy._pb_variable])
        ):
            raise NeedSizes

    def variable(self, value: Any, t: Type) -> Variable:
        """A variable of type t for a value, converted where it is of another one."""
        if isinstance(t, types.BaseTuple) and isinstance(value, tuple):
            return self._tuple(value, t)
        if not is_proxy(value):
            if isinstance(value, torch.Tensor):
                value = self.constant(value)
                if isinstance(value, Variable):
                    return value
            if isinstance(t, types.Literal):
                t = types.unliteral(t)
            if isinstance(t, types.Known):
                raise TypingError(f"{t} exists while the function is traced only, not in C")
            if isinstance(value, bool) and not isinstance(t, types.Boolean):
                value = int(value) if isinstance(t, types.Number) else value
            made = graph_type(t)
            return made.make_constant(made.filter(value))
        have = value._pb_type
        wanted = widened(t)
        if have == wanted or graph_type(have) == graph_type(wanted):
            return value._pb_variable
        if find_cast(have, wanted) is None and (
            wanted.is_super(have) or graph_type(wanted).is_super(graph_type(have))
        ):
            return value._pb_variable
        return self.convert(value, wanted)

    def _tuple(self, value: tuple[Any, ...], t: types.BaseTuple) -> Variable:
        if len(value) != len(t):
            raise TypingError(f"a tuple of {len(value)} is no {t}")
        parts = [self.variable(v, e) for v, e in zip(value, t.types, strict=True)]
        sig = signature(t, *t.types)

        def emit(context: Any, b: Any, sig: Signature, args: Any) -> Any:
            return context.make_tuple(b, t, args)

        return lowered("tuple", sig, emit, "tuple", parts)

    def convert(self, value: Proxy, t: Type) -> Variable:
        """value as one of type t, by what is registered with lower_cast."""
        have = value._pb_type
        entry = find_cast(have, t)

        def emit(context: Any, b: Any, sig: Signature, args: Any) -> Any:
            return cast(context, b, args[0], have, t)

        sig = signature(t, have)
        return lowered(f"{have} to {t}", sig, emit, entry, [value._pb_variable])

    # Calls
    def call(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What a call in the traced function gives."""
        func = getattr(func, "__bridge_traced__", func)
        if is_proxy(func) or type(func) is BoundMethod:
            return func(*args, **kwargs)
        if func is within:
            item, container = args
            container = self.read(container)
            if not is_proxy(container):
                return item in container
            func, args = operator.contains, (container, item)
        args = tuple([self.read(a) for a in args])
        kwargs = {k: self.read(v) for k, v in kwargs.items()}
        if func is len and args and not is_proxy(args[0]) and isinstance(args[0], _SIZED):
            return func(*args, **kwargs)
        if isinstance(func, Intrinsic) or has_candidates(func):
            return self._registered(func, args, kwargs)
        if type(func) is functools.partial:
            return self.call(func.func, (*func.args, *args), {**func.keywords, **kwargs})
        check_steady(func)
        tracked = next(proxies((args, kwargs)), None) is not None
        if not tracked and _hashable(func):
            if (func is getattr or func is hasattr) and len(args) in (2, 3):
                found = getattr(args[0], args[1], MISSING)
                self.attribute(args[0], args[1], found)
                if func is hasattr:
                    return found is not MISSING
                return func(*args) if found is MISSING else found
            if func is torch.is_grad_enabled:
                self.outside.asked(func, (), self._gradients)
                return func() and self._gradients
            if func in ASKED and not kwargs:
                found = func(*args)
                self.outside.asked(func, args, found)
                return found
        if tracked:
            special = natives.SPECIAL.get(func) if _hashable(func) else None
            if special is not None:
                return special(self, *args, **kwargs)
        inside = self._python(func, tracked)
        # What is random is so at each call of the compiled function.
        if inside is None and (natives.has_native if tracked else natives.is_random)(func):
            return self.native(func, args, kwargs)
        if inside is not None:
            return self._inline(inside, args, kwargs)
        if isinstance(func, type):
            return self._construct(func, args, kwargs)
        method = type(func).__call__ if callable(func) else None
        if isinstance(method, FunctionType) and self._python(method, tracked) is not None:
            return self._inline(method, (func, *args), kwargs)
        if tracked and isinstance(func, BuiltinFunctionType):
            self._check_builtin(func)
        return func(*args, **kwargs)

    def _construct(self, cls: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """An object of a class, whose __init__ is traced where the class is no library's."""
        new: Any = cls.__new__
        plain = type(cls) is type and new is object.__new__
        if not plain or library(cls) or not isinstance(cls.__init__, FunctionType):
            return cls(*args, **kwargs)
        made = object.__new__(cls)
        self._inline(cls.__init__, (made, *args), kwargs)
        return made

    def _check_builtin(self, func: Any) -> None:
        """Functions of C that are given a proxy ask it what it cannot answer."""
        module = getattr(func, "__module__", None) or ""
        if module.partition(".")[0] in ("math", "torch", "numpy", "cmath"):
            raise TypingError(
                f"{getattr(func, '__qualname__', func)} has no implementation for values that are "
                "traced: nothing is registered for it, and PyTorch has no native function of that "
                "name"
            )

    def _registered(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        tracked = next(proxies((args, kwargs)), None) is not None
        try:
            resolved = resolve_call(
                func,
                [self.typeof(a) for a in args],
                {k: self.typeof(v) for k, v in kwargs.items()},
            )
        except TypingError as e:
            # Nothing is for these types, and nobody says why: what Python or PyTorch do is left.
            if getattr(e, "refused", False):
                raise
            if tracked and natives.has_native(func) and self._foreign(args, kwargs) is None:
                return self.native(func, args, kwargs)
            if tracked and _hashable(func) and func in natives.SPECIAL:
                return natives.SPECIAL[func](self, *args, **kwargs)
            python = isinstance(func, Intrinsic) or self._python(func, tracked) is not None
            if not tracked and not python:
                return func(*args, **kwargs)
            raise
        return self.apply(func, resolved, args, kwargs)

    def _foreign(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Type | None:
        """The type of a value among arguments that PyTorch's functions do not know."""
        for p in proxies((tuple(args), dict(kwargs))):
            t = p._pb_type
            if not isinstance(graph_type(t), SchemaType):
                return t
        return None

    def in_place(self, function: Any, plain: Any, a: Any, b: Any) -> Any:
        """`a += b`: what is registered for it, or that of `a + b`."""
        if has_candidates(function):
            try:
                resolved = resolve_call(function, [self.typeof(a), self.typeof(b)], {})
            except TypingError as e:
                if getattr(e, "refused", False):
                    raise
            else:
                return self.apply(function, resolved, (a, b), {})
        return self.call(plain, (a, b), {})

    def apply(
        self, func: Any, resolved: Resolved, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """The implementation traced, or the registered C as a node."""
        if resolved.implementation is not None:
            return self._implemented(resolved.entry, resolved.implementation, args, kwargs)
        sig = resolved.signature
        assert sig is not None
        if resolved.codegen is not None:
            codegen, key = resolved.codegen, (func, resolved.codegen)
            typing = inspect.signature(func.function)
            bound = typing.bind(None, *args, **kwargs)
            values = positions(typing, bound.arguments)[1:]

            def emit(context: Any, b: Any, sig: Signature, args: Any) -> Any:
                return codegen(context, b, sig, args)

        else:
            assert resolved.entry is not None
            entry = lowering.find_builtin(func, sig.args)
            values = resolved.entry.value(None).arrange(args, kwargs)
            key = (func, entry)  # type: ignore[assignment]

            def emit(context: Any, b: Any, sig: Signature, args: Any) -> Any:
                return entry.value(context, b, sig, args)

        if len(values) != len(sig.args):
            raise RegistrationError(
                f"the signature {sig} has {len(sig.args)} arguments for a call with {len(values)}"
            )
        variables = [self.variable(v, t) for v, t in zip(values, sig.args, strict=True)]
        name = getattr(func, "__name__", None) or str(func)
        return self.wrap(lowered(name, sig, emit, key, variables), sig.return_type)

    def native(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """PyTorch's function, or Python's operator, on variables."""
        foreign = self._foreign(args, kwargs)
        if foreign is not None:
            shown = ", ".join(
                [*(str(self.typeof(a)) for a in args)]
                + [f"{k}={self.typeof(v)}" for k, v in kwargs.items()]
            )
            name = getattr(func, "__name__", None) or str(func)
            raise TypingError(
                f"no implementation of {name}({shown}): nothing is registered for it, and "
                f"PyTorch's takes no {foreign}{here()}"
            )
        natives.check_pure(func, kwargs)
        return self.on_variables(natives.native(func), args, kwargs)

    def on_variables(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """A function of variables, on proxies."""
        if _autocast() != self._autocast:
            raise TypingError(
                f"autocast has no effect in a traced function{here()}: call the compiled function "
                "under torch.autocast, or convert with x.to(dtype)"
            )
        with self.own_work():
            return self._on_variables(function, args, kwargs)

    def _on_variables(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        given = unwrapped(tuple(args))
        if isinstance(function, Packet) and given and not isinstance(given[0], (list, tuple)):
            if natives.makes_sizes(function):  # torch.zeros(2, 3) is torch.zeros([2, 3])
                given = (given,)
            elif is_proxy(args[0]):
                given = (given[0], *collected(function, given[1:]))
        try:
            found = function(*given, **unwrapped(dict(kwargs)))
            natives.check_kept(found)
            found = natives.named(found)
            if not torch.is_grad_enabled():  # within the traced function's no_grad
                found = natives.detached(found)
            return self.wrap(found)
        except BridgeTypeError as e:
            if self.sizes_open and not isinstance(e, TypingError):
                raise NeedSizes from e  # perhaps it can be typed then
            raise

    def _python(self, func: Any, tracked: bool) -> Callable[..., Any] | None:
        """The function, if it is one in Python that is to be traced as well."""
        plain = func.__func__ if isinstance(func, MethodType) else func
        if not isinstance(plain, FunctionType):
            return None
        if getattr(plain, "__bridge_jitable__", False):
            return func
        home = plain.__globals__.get("__name__") or ""  # a decorator may have changed __module__
        top = home.partition(".")[0]
        if top in ("numpy", "pytorch_bridge") or top in sys.stdlib_module_names:
            return None
        if top == "torch":
            # Functions of torch.nn.functional that call native ones.
            inside = home in ("torch.nn.functional", "torch.functional")
            return func if tracked and inside else None
        return func

    def _is_seen(self, value: Any) -> bool:
        """Whether a call of a function has a meaning here that it has not by itself."""
        if isinstance(value, Intrinsic) or hasattr(value, "__bridge_traced__"):
            return True
        if has_candidates(value) or (_hashable(value) and value in natives.SPECIAL):
            return True
        if isinstance(value, BuiltinFunctionType):  # torch.rand, time.time
            return True
        return self._python(value, tracked=False) is not None

    def _implemented(
        self,
        entry: Any,
        implementation: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """What is registered, traced."""
        try:
            return self._inline(implementation, args, kwargs)
        except RecursionError:
            raise TypingError(
                f"{entry} calls itself without end: what it returns is traced in the place of the "
                "call, so that it may call itself only for other types or constants"
            ) from None

    def _inline(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        bound: tuple[Any, ...] = ()
        plain: Any = function
        if isinstance(function, MethodType):
            bound, plain = (function.__self__,), function.__func__
        if isinstance(plain, FunctionType):
            if not library(plain) and not made_inside(plain):
                self.outside.function(plain)
            plain = rewritten(plain, call_in_trace, read_in_trace, owner_in_trace, self._is_seen)
        return plain(*bound, *args, **kwargs)

    # Attributes
    def getattr(self, owner: Proxy, name: str) -> Any:
        """owner.name"""
        t = owner._pb_type
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        part = self._parts.get(id(owner), {}).get(name)
        if part is not None:
            return part
        found = resolve_attribute(t, name)
        if found is None:
            native = natives.attribute(self, owner, name)
            if native is not natives.NOTHING:
                return native
            hint = natives.hint(t, name)
            names = ", ".join(attribute_names(t))
            raise _MissingAttribute(
                f"a value of type {t} has no attribute {name!r}: "
                + (hint or f"registered are {names or 'none'}")
            )
        if found.kind == "method":
            return BoundMethod(self, owner, name)
        if found.kind == "getter":
            if found.getter is None:
                raise _MissingAttribute(f"attribute {name} of {t} cannot be read: {found.entry}")
            return self._implemented(found.entry, found.getter, (owner,), {})
        assert found.type is not None
        if not lowering.has_getattr(t, name):
            native = natives.attribute(self, owner, name)
            if native is not natives.NOTHING:
                return native
            raise LoweringError(
                f"{t}.{name} is typed by {found.entry}, but no C is registered for it with "
                "lower_getattr"
            )
        call, entry = lowering.find_getattr(t, name)

        def emit(context: Any, b: Any, sig: Signature, args: Any) -> Any:
            return call(context, b, t, args[0])

        sig = signature(found.type, t)
        made = lowered(f"getattr {name}", sig, emit, (name, entry), [owner._pb_variable])
        part = self.wrap(made, found.type)
        self._joined(owner, name, part)
        return part

    def _joined(self, owner: Proxy, name: str, part: Any) -> None:
        """Notes that owner.name is part, so that an assignment to part.x is seen in owner."""
        old = self._parts.setdefault(id(owner), {}).pop(name, None)
        if old is not None:
            self._owners[id(old)].remove((owner, name))
        if is_proxy(part) and not isinstance(part._pb_type, (types.Number, types.Array)):
            self._parts[id(owner)][name] = part
            self._owners.setdefault(id(part), []).append((owner, name))

    def setattr(self, owner: Proxy, name: str, value: Any) -> None:
        """owner.name = value: owner stands for the changed value from now on."""
        t = owner._pb_type
        found = resolve_attribute(t, name)
        if found is not None and found.setter is not None:
            self._inline(found.setter, (owner, value), {})
            return
        given = self.typeof(value)
        for whole, part in self._owners.get(id(owner), ()):
            if not lowering.has_setattr(whole._pb_type, part):
                raise AssignmentError(
                    f"the assignment to {name} would be lost{here()}: the value is a copy of "
                    f"{whole._pb_type}.{part}, to which nothing can be assigned, as neither "
                    "lower_setattr nor lower_setattr_generic is registered for it"
                )
        stored = self._assign(owner, name, value, found)
        self._joined(owner, name, value if given == stored else None)

    def _assign(self, owner: Proxy, name: str, value: Any, found: Any) -> Type:
        """Emits owner.name = value; returns the type that is stored."""
        t = owner._pb_type
        call, entry = lowering.find_setattr(t, name)
        given = self.typeof(value)
        wanted = found.type if found is not None and found.type is not None else None
        if wanted is not None and can_convert(given, wanted) is None:
            raise TypingError(f"{t}.{name} is {wanted}, to which {given} does not convert")
        stored = types.unliteral(wanted or given)

        def emit(context: Any, b: Any, sig: Signature, args: Any) -> Any:
            model = context.data_model_manager.lookup(t)
            target = b.owned(model.c_type) if model.owns else b.variable(model.c_type)
            b.move_to(target.text, args[0])
            call(context, b, sig, [target, args[1]])
            return target

        sig = signature(t, t, stored)
        variables = [owner._pb_variable, self.variable(value, stored)]
        made = lowered(f"setattr {name}", sig, emit, (name, entry), variables)
        object.__setattr__(owner, "_pb_variable", made)
        for whole, part in self._owners.get(id(owner), ()):
            self._assign(whole, part, owner, resolve_attribute(whole._pb_type, part))
        return stored

    def delattr(self, owner: Proxy, name: str) -> None:
        """del owner.name"""
        found = resolve_attribute(owner._pb_type, name)
        if found is None or found.deleter is None:
            raise AssignmentError(f"attribute {name} of {owner._pb_type} cannot be deleted")
        self._inline(found.deleter, (owner,), {})

    def call_method(
        self, owner: Proxy, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """owner.name(*args, **kwargs)"""
        t = owner._pb_type
        try:
            resolved = resolve_method(
                t,
                name,
                [self.typeof(a) for a in args],
                {k: self.typeof(v) for k, v in kwargs.items()},
            )
        except TypingError as e:
            native = natives.attribute(self, owner, name)
            if native is natives.NOTHING or getattr(e, "refused", False):
                raise
            return native(*args, **kwargs)
        assert resolved.implementation is not None
        return self._implemented(resolved.entry, resolved.implementation, (owner, *args), kwargs)

    def iterate(self, owner: Proxy) -> Iterator[Any]:
        """iter(owner)"""
        if not isinstance(owner._pb_type, types.Array):
            n = self.call(len, (owner,), {})
            if not is_proxy(n):
                return iter([self.call(operator.getitem, (owner, i), {}) for i in range(n)])
            self.need_value(n)
            raise TypingError(
                f"a value of type {owner._pb_type} cannot be iterated over{here()}: its len() is "
                "not known while the function is traced: keep the size in its type"
            )
        n = owner.shape[0] if owner._pb_type.shape else None
        if n is None:
            raise TypingError("a tensor without dimensions cannot be iterated over")
        return iter([self.call(operator.getitem, (owner, i), {}) for i in range(n)])


class _MissingAttribute(TypingError, AttributeError):
    """A value has no attribute of that name; hasattr and getattr's default take it as such."""


def read_in_trace(value: Any, /) -> Any:
    """What each name, attribute and element that a traced function reads has become."""
    trace = current.get()
    return value if trace is None else trace.read(value)


def owner_in_trace(owner: Any, name: str, /) -> Any:
    """What each object has become of which a traced function reads an attribute next."""
    trace = current.get()
    if trace is not None:
        trace.asked = owner, name
    return owner


def _autocast() -> tuple[bool, ...]:
    return tuple(torch.is_autocast_enabled(d) for d in ("cpu", "cuda"))


def _holder(p: Proxy, own: Any) -> str:
    """Where something is kept, for messages."""
    for holder in gc.get_referrers(p):
        if holder is own or isinstance(holder, FrameType):
            continue
        if isinstance(holder, CellType):
            return "a variable that a function encloses"
        name = _name_in(holder if isinstance(holder, dict) else getattr(holder, "__dict__", {}), p)
        if not isinstance(holder, dict):
            kind = type(holder).__qualname__
            return f"the attribute {name} of a {kind}" if name else f"a {kind}"
        for owner in gc.get_referrers(holder):
            if getattr(owner, "__dict__", None) is holder:
                return f"the attribute {name} of a {type(owner).__qualname__}"
        return f"a dict, under {name}"
    return "an object"


def _name_in(names: dict[Any, Any], value: Any) -> str:
    for name, found in names.items():
        if found is value:
            return repr(name)
    return ""


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
