"""C for what has been typed: calls, attributes, assignments and constants.

    @lower_builtin(operator.add, IntervalType, IntervalType)
    def add_intervals(context, builder, sig, args):
        ...

Where several registrations apply the most specific one wins (see `selecting`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import RegistrationError
from ..registry import Entry, Table
from ..types.base import Type
from . import types
from .builder import CBuilder, Value
from .errors import AssignmentError, LoweringError
from .selecting import Spec, check, listing, select, show

if TYPE_CHECKING:
    from .context import Context

_F = TypeVar("_F", bound=Callable[..., Any])
_builtins = Table("lowering", unique=True)
getattrs = Table("attribute's lowering", unique=True)
_setattrs = Table("assignment's lowering", unique=True)
_constants = Table("lowering of constants", unique=True)


def _name(key: Any) -> str:
    return getattr(key, "__qualname__", None) or str(key)


def _register(table: Table, key: Any, specs: tuple[Any, ...], subject: str) -> Callable[[_F], _F]:
    try:
        hash(key)
    except TypeError:
        raise RegistrationError(f"{key!r} cannot be registered: it has no hash") from None

    def decorate(f: _F) -> _F:
        if not callable(f):
            raise RegistrationError(f"a function is registered as {table.what}, not {f!r}")
        table.add(key, f, f, subject, specs)
        return f

    return decorate


def lower_builtin(func: Hashable, *argtypes: Spec) -> Callable[[_F], _F]:
    """Decorates the C of a call of func with arguments of these types:
    `f(context, builder, sig, args)` returns the C value.

    Each argtype is a type, a class of types, or Any; the last may be VarArg(...).
    """
    specs = check(argtypes, f"lower_builtin({_name(func)})")
    shown = ", ".join(map(show, specs))
    return _register(_builtins, func, specs, f"{_name(func)}({shown})")


def lower_getattr(ty: Spec, attr: str) -> Callable[[_F], _F]:
    """Decorates the C of reading `value.attr`: `f(context, builder, typ, value)`."""
    specs = check((ty,), "lower_getattr")
    return _register(getattrs, attr, specs, f"{show(ty)}.{attr}")


def lower_getattr_generic(ty: Spec) -> Callable[[_F], _F]:
    """Decorates the C of reading any attribute for which there is no lower_getattr:
    `f(context, builder, typ, value, attr)`."""
    specs = check((ty,), "lower_getattr_generic")
    return _register(getattrs, None, specs, f"all attributes of {show(ty)}")


def lower_setattr(ty: Spec, attr: str) -> Callable[[_F], _F]:
    """Decorates the C of `target.attr = value`: `f(context, builder, sig, args)`, where args are
    the target, a variable of C that may be written to, and the value; sig.args are their types."""
    specs = check((ty,), "lower_setattr")
    return _register(_setattrs, attr, specs, f"{show(ty)}.{attr}")


def lower_setattr_generic(ty: Spec) -> Callable[[_F], _F]:
    """Decorates the C of assigning any attribute for which there is no lower_setattr:
    `f(context, builder, sig, args, attr)`."""
    specs = check((ty,), "lower_setattr_generic")
    return _register(_setattrs, None, specs, f"all attributes of {show(ty)}")


def lower_constant(ty: Spec) -> Callable[[_F], _F]:
    """Decorates the C of a constant: `f(context, builder, ty, pyval)` returns a value whose text is
    an expression of C. What it emits beside that does not become part of the constant."""
    specs = check((ty,), "lower_constant")
    return _register(_constants, "constant", specs, show(ty))


def find_builtin(key: Any, args: Sequence[Type]) -> Entry:
    """The most specific lowering of a call. LoweringError that lists those there are."""
    entries = _builtins.get(key)
    found = select(entries, args, f"calls of {_name(key)}")
    if found is None:
        shown = ", ".join(map(str, args))
        hint = f"; there is:{listing(entries)}" if entries else ""
        raise LoweringError(
            f"no C is registered with lower_builtin for {_name(key)}({shown}){hint}"
        )
    return found


def _specific_first(table: Table, attr: str, t: Type) -> tuple[Entry, bool] | None:
    """The entry for an attribute, and whether it is a generic one."""
    for key in (attr, None):
        found = select(table.get(key), (t,), f"attribute {attr}")
        if found is not None:
            return found, key is None
    return None


def find_getattr(t: Type, attr: str) -> tuple[Callable[..., Value], Entry]:
    """The lowering of reading an attribute, as f(context, builder, typ, value)."""
    found = _specific_first(getattrs, attr, t)
    if found is None:
        raise LoweringError(f"no C is registered with lower_getattr for {t}.{attr}")
    entry, generic = found
    if not generic:
        return entry.value, entry

    def call(context: Context, builder: CBuilder, typ: Type, value: Value) -> Value:
        return entry.value(context, builder, typ, value, attr)

    return call, entry


def has_getattr(t: Type, attr: str) -> bool:
    """Whether C is registered for reading an attribute."""
    return _specific_first(getattrs, attr, t) is not None


def has_setattr(t: Type, attr: str) -> bool:
    """Whether C is registered for assigning to an attribute."""
    return _specific_first(_setattrs, attr, t) is not None


def find_setattr(t: Type, attr: str) -> tuple[Callable[..., Any], Entry]:
    """The lowering of an assignment, as f(context, builder, sig, args)."""
    found = _specific_first(_setattrs, attr, t)
    if found is None:
        raise AssignmentError(
            f"attribute {attr} of {t} cannot be assigned to: neither lower_setattr nor "
            f"lower_setattr_generic is registered for it"
        )
    entry, generic = found
    if not generic:
        return entry.value, entry

    def call(context: Context, builder: CBuilder, sig: Any, args: Sequence[Value]) -> Any:
        return entry.value(context, builder, sig, args, attr)

    return call, entry


def constant(context: Context, builder: CBuilder, t: Type, value: Any) -> Value:
    """A constant as an expression of C. LoweringError where none is registered for its type."""
    plain = types.unliteral(t)
    entry = select(_constants.get("constant"), (plain,), "constants")
    if entry is None:
        raise LoweringError(f"no C is registered with lower_constant for values of {plain}")
    made = entry.value(context, builder, plain, value)
    if not isinstance(made, Value):
        raise RegistrationError(f"{entry} must return a value of the builder, not {made!r}")
    return made


def has_constant(t: Type) -> bool:
    """Whether constants of type t have C."""
    return select(_constants.get("constant"), (types.unliteral(t),), "constants") is not None
