"""Running a Python function on proxies, so that what it does becomes a graph.

What a call means is found in this order: an intrinsic or a jitted function; what is registered for
the function (see `resolution`); PyTorch's own function of that name; the Python code of the
function, which is then traced as well. Attributes and methods: what is registered for the type,
then PyTorch's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from ..errors import BridgeTypeError, RegistrationError
from ..graph.basic import Variable, ancestors
from ..ops.basic import Shape_i
from ..ops.native import Packet, collected
from ..types.base import Type
from . import lowering, natives, types
from .casts import cast
from .errors import AssignmentError, LoweringError, TypingError
from .graph_ops import graph_type, lowered, typing_type, widened
from .overloads import Intrinsic
from .proxies import Proxy, is_sequence, proxies, unwrapped
from .ranking import can_convert, find_cast
from .resolution import (
    Resolved,
    attribute_names,
    has_candidates,
    resolve_attribute,
    resolve_call,
    resolve_method,
)
from .rewriting import rewritten
from .signatures import Signature, signature
from .typeof import typeof_constant

_current: ContextVar[Trace | None] = ContextVar("trace", default=None)


class NeedSizes(BaseException):
    """The function looks at a size that the graph leaves open: it is traced again with all sizes
    known. Not an Exception, so that a traced function does not catch it."""


def call_in_trace(func: Any, /, *args: Any, **kwargs: Any) -> Any:
    """What each call in a traced function has become."""
    trace = _current.get()
    if trace is None:
        return func(*args, **kwargs)
    return trace.call(func, args, kwargs)


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
        self.classes: dict[Type, type] = {}  # the Python classes of the arguments' types

    def run(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Any = None) -> Any:
        """What function returns for proxies."""
        token = _current.set(self)
        try:
            return self._inline(function, args, kwargs or {})
        finally:
            _current.reset(token)

    # Values
    def wrap(self, value: Any, t: Type | None = None) -> Any:
        """Variables as proxies, also in lists and tuples; a tuple of C is taken apart."""
        if isinstance(value, Variable):
            t = typing_type(value) if t is None else widened(t)
            if isinstance(t, types.NoneType):
                return None
            if isinstance(t, types.BaseTuple):
                return tuple(self._element(value, t, i) for i in range(len(t)))
            return Proxy(self, value, t)
        if isinstance(value, (list, tuple)):
            return type(value)(self.wrap(v) for v in value)
        return value

    def _element(self, v: Variable, t: types.BaseTuple, i: int) -> Any:
        sig = signature(t.types[i], t)

        def emit(context: Any, b: Any, sig: Signature, args: Any) -> Any:
            return b.member(args[0], f"f{i}", context.get_value_type(t.types[i]))

        return self.wrap(lowered(f"element {i}", sig, emit, ("element", i), [v]), t.types[i])

    def typeof(self, value: Any) -> Type:
        """The type of a proxy, or of a constant."""
        if type(value) is Proxy:
            return value._pb_type
        if isinstance(value, tuple) and any(True for _ in proxies(value)):
            return types.Tuple([self.typeof(v) for v in value])
        if isinstance(value, list) and any(True for _ in proxies(value)):
            found = {self.typeof(v) for v in value}
            return types.List(found.pop()) if len(found) == 1 else types.Known(value)
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
        if type(value) is not Proxy:
            if isinstance(t, types.Literal):
                t = types.unliteral(t)
            if isinstance(t, types.Known):
                raise TypingError(f"{value!r} exists while the function is traced only, not in C")
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
        if type(func) in (BoundMethod, Proxy):
            return func(*args, **kwargs)
        if func is len and args and (is_sequence(args[0]) or type(args[0]) in (dict, str, set)):
            return func(*args, **kwargs)
        if isinstance(func, Intrinsic) or has_candidates(func):
            return self._registered(func, args, kwargs)
        tracked = next(proxies((args, kwargs)), None) is not None
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
        if tracked and isinstance(func, BuiltinFunctionType):
            self._check_builtin(func)
        return func(*args, **kwargs)

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
        except TypingError:
            # Nothing is for these types: what Python or PyTorch do is left.
            if tracked and natives.has_native(func):
                return self.native(func, args, kwargs)
            if not tracked and not isinstance(func, Intrinsic):
                return func(*args, **kwargs)
            raise
        return self.apply(func, resolved, args, kwargs)

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
            values = [*args, *kwargs.values()]

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
        natives.check_pure(func, kwargs)
        return self.on_variables(natives.native(func), args, kwargs)

    def on_variables(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """A function of variables, on proxies."""
        given = unwrapped(tuple(args))
        if isinstance(function, Packet) and given and not isinstance(given[0], (list, tuple)):
            if natives.makes_sizes(function):  # torch.zeros(2, 3) is torch.zeros([2, 3])
                given = (given,)
            elif type(args[0]) is Proxy:
                given = (given[0], *collected(function, given[1:]))
        try:
            return self.wrap(natives.named(function(*given, **unwrapped(dict(kwargs)))))
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
            plain = rewritten(plain, call_in_trace, self._is_seen)
        return plain(*bound, *args, **kwargs)

    # Attributes
    def getattr(self, owner: Proxy, name: str) -> Any:
        """owner.name"""
        t = owner._pb_type
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
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
        return self.wrap(made, found.type)

    def setattr(self, owner: Proxy, name: str, value: Any) -> None:
        """owner.name = value: owner stands for the changed value from now on."""
        t = owner._pb_type
        found = resolve_attribute(t, name)
        if found is not None and found.setter is not None:
            self._inline(found.setter, (owner, value), {})
            return
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
        except TypingError:
            native = natives.attribute(self, owner, name)
            if native is natives.NOTHING:
                raise
            return native(*args, **kwargs)
        assert resolved.implementation is not None
        return self._implemented(resolved.entry, resolved.implementation, (owner, *args), kwargs)

    def iterate(self, owner: Proxy) -> Iterator[Any]:
        """iter(owner)"""
        if not isinstance(owner._pb_type, types.Array):
            raise TypingError(f"a value of type {owner._pb_type} cannot be iterated over")
        n = owner.shape[0] if owner._pb_type.shape else None
        if n is None:
            raise TypingError("a tensor without dimensions cannot be iterated over")
        return iter([owner[i] for i in range(n)])


class _MissingAttribute(TypingError, AttributeError):
    """A value has no attribute of that name; hasattr and getattr's default take it as such."""


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
