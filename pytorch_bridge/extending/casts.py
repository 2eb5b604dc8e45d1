"""Implicit conversions between types, and truth values, which are conversions to Boolean.

    @lower_cast(IntervalType, types.Float)
    def width(context, builder, fromty, toty, val):
        ...

The most specific registration wins; where two are equally specific a conversion is an error that
names both. A conversion may be used to make a call fit: `conversion` says what it costs there
(see `ranking`), None that it never is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import RegistrationError
from ..registry import Entry
from ..types.base import Type
from . import types
from .builder import CBuilder, Value
from .errors import LoweringError
from .ranking import Conversion, casts, find_cast
from .selecting import Spec, check, listing, matches

if TYPE_CHECKING:
    from .context import Context

_F = TypeVar("_F", bound=Callable[..., Any])


def lower_cast(
    fromty: Spec, toty: Spec, conversion: Conversion | str | None = Conversion.unsafe
) -> Callable[[_F], _F]:
    """Decorates what converts values: `f(context, builder, fromty, toty, val)` returns the C value.
    fromty and toty are types, classes of types, or Any."""
    specs = check((fromty, toty), "lower_cast")
    rank = Conversion[conversion] if isinstance(conversion, str) else conversion

    def decorate(f: _F) -> _F:
        if not callable(f):
            raise RegistrationError(f"lower_cast decorates a function, not {f!r}")
        casts.add("cast", (f, rank), f, f"{specs[0]} to {specs[1]}", specs)
        return f

    return decorate


def cast(context: Context, builder: CBuilder, value: Value, fromty: Type, toty: Type) -> Value:
    """value of type fromty as one of type toty. LoweringError where no conversion is registered."""
    if types.unliteral(fromty) == toty:
        return value
    entry = find_cast(fromty, toty)
    if entry is None:
        if toty.is_super(fromty):
            return value
        near = [e for e in casts.get("cast") if _reaches(e, fromty, toty)]
        hint = f"; there are:{listing(near)}" if near else ""
        raise LoweringError(
            f"no conversion from {fromty} to {toty} is registered with lower_cast{hint}"
        )
    made = entry.value[0](context, builder, types.unliteral(fromty), toty, value)
    if not isinstance(made, Value):
        raise RegistrationError(f"{entry} must return a value of the builder, not {made!r}")
    return made


def _reaches(entry: Entry, fromty: Type, toty: Type) -> bool:
    """Whether a conversion has one of its two ends here."""
    return matches(entry.specs[0], fromty) or matches(entry.specs[1], toty)
