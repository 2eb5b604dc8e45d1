"""The type of a Python value.

    @typeof_impl(Interval)
    def typeof_interval(val, c):
        return IntervalType()

The function for the nearest base class of the value's class is asked; it returns a type, or None
where the value has none, which is an error that names the class. A class of one's own may have
`_bridge_type_` instead, an attribute or a property; of that and a registered base class the nearer
one counts. `@typeof_impl.generic` decorates a hook for values that neither of them knows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from .. import registry
from ..errors import RegistrationError
from ..registry import Entry, Table
from ..types.base import Type
from . import types
from .errors import TypingError, UnknownTypeError

_F = TypeVar("_F", bound=Callable[..., Any])
_classes = Table("typeof_impl", unique=True)
_hooks = Table("generic hook of typeof_impl", unique=False)


@dataclass(frozen=True)
class TypeofContext:
    """The `c` of typeof_impl. `purpose` is "argument" or "constant"."""

    purpose: str = "argument"

    def typeof(self, value: Any) -> Type:
        """The type of a part of the value."""
        return typeof(value, self.purpose)


class _TypeofImpl:
    """`@typeof_impl(cls)` registers a function for a class; `typeof_impl(val, c)` is the type of
    val."""

    def __call__(self, *args: Any) -> Any:
        if len(args) == 2:
            return typeof(args[0], args[1].purpose)
        (cls,) = args
        if not isinstance(cls, type):
            raise RegistrationError(f"typeof_impl takes a class, not {cls!r}")

        def decorate(f: _F) -> _F:
            if not callable(f):
                raise RegistrationError(f"typeof_impl decorates a function, not {f!r}")
            _classes.add(cls, f, f, cls.__qualname__)
            return f

        return decorate

    register = __call__

    def generic(self, f: _F) -> _F:
        """Decorates a hook, `f(val, c)`, that is asked about values that are not known otherwise;
        the first hook that returns a type wins, in the order of registration."""
        if not callable(f):
            raise RegistrationError(f"a hook of typeof_impl is a function, not {f!r}")
        _hooks.add("hook", f, f, "all values")
        return f


typeof_impl = _TypeofImpl()


# How the values of a class are typed: by an entry, by _bridge_type_ (_OWN), or not (None). The key
# None has the registry's version for which that holds.
_plans: dict[Any, Any] = {}
_UNKNOWN, _OWN = object(), object()
_CONTEXTS = {purpose: TypeofContext(purpose) for purpose in ("argument", "constant")}


def _plan(cls: type) -> Any:
    for base in cls.__mro__:
        if "_bridge_type_" in vars(base):
            return _OWN
        entries = _classes.get(base)
        if entries:
            return entries[0]
    return None


def registered_class(cls: type) -> type | None:
    """The base class for which typeof_impl is asked about values of a class; None for one that has
    _bridge_type_, or of which nothing is known."""
    for base in cls.__mro__:
        if "_bridge_type_" in vars(base):
            return None
        if _classes.get(base):
            return base
    return None


def _about(value: Any) -> str:
    cls = type(value)
    return f"{cls.__module__}.{cls.__qualname__}"


def typeof(value: object, purpose: str = "argument") -> Type:
    """The type of a value. TypingError, which names its class, where it has none."""
    cls = type(value)
    own = getattr(value, "__dict__", None)
    if own and "_bridge_type_" in own:
        return _declared(value)
    if _plans.get(None) != registry.version():
        _plans.clear()
        _plans[None] = registry.version()
    plan = _plans.get(cls, _UNKNOWN)
    if plan is _UNKNOWN:
        plan = _plans[cls] = _plan(cls)
    c = _CONTEXTS[purpose]
    if plan is _OWN:
        return _declared(value)
    if plan is not None:
        return _asked(plan, value, c)
    asked = []
    for entry in _hooks.get("hook"):
        found = entry.value(value, c)
        if found is not None:
            return _checked(entry, value, found)
        asked.append(f"\n  {entry} returned None")
    raise UnknownTypeError(
        f"cannot determine the type of a value of class {_about(value)}: register a function for "
        f"the class with typeof_impl, or give it a _bridge_type_{''.join(asked)}"
    )


def type_function(value: Any) -> Callable[[Any], Type]:
    """What types the values of exactly this value's class: typeof without looking for it."""
    typeof(value)
    plan, c = _plans.get(type(value)), _CONTEXTS["argument"]
    if not isinstance(plan, Entry):
        return typeof
    f = plan.value

    def function(value: Any) -> Type:
        if "_bridge_type_" in getattr(value, "__dict__", ()):
            return typeof(value)
        found = f(value, c)
        return found if isinstance(found, Type) else typeof(value)

    return function


def _declared(value: Any) -> Type:
    found = value._bridge_type_
    if not isinstance(found, Type):
        raise TypingError(f"_bridge_type_ of {_about(value)} is no Type, but {found!r}")
    return found


def _asked(entry: Entry, value: Any, c: TypeofContext) -> Type:
    found = entry.value(value, c)
    if found is None:
        raise TypingError(
            f"cannot determine the type of a value of class {_about(value)}: {entry} returned None"
        )
    return _checked(entry, value, found)


def _checked(entry: Entry, value: Any, found: Any) -> Type:
    if not isinstance(found, Type):
        raise RegistrationError(
            f"{entry} must return a Type for a value of class {_about(value)}, or None, "
            f"not {found!r}"
        )
    return found


def typeof_constant(value: Any) -> Type:
    """The type of a value that is known while tracing: a Literal one for numbers and strings,
    Known for what has no type at all."""
    if isinstance(value, bool):
        return types.BooleanLiteral(value)
    if isinstance(value, int):
        found = typeof(value)
        assert isinstance(found, types.Integer)
        return types.IntegerLiteral(value, found)
    if isinstance(value, float):
        return types.FloatLiteral(value)
    if isinstance(value, str):
        return types.StringLiteral(value)
    if isinstance(value, tuple):
        return types.Tuple([typeof_constant(v) for v in value])
    try:
        return typeof(value, "constant")
    except TypingError:
        return types.Known(value)


types.above.typeof = typeof
