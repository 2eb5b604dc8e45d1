"""How well a value of one type serves where another type is asked for.

    exact     the same type, or a literal of it
    promote   more of the same kind: int32 to int64, a tensor of known shape to one of any shape
    safe      another kind, with nothing lost: int32 to float64
    unsafe    something may be lost: int64 to float32, float64 to int64

A call is resolved to the candidate that needs the fewest unsafe conversions, then the fewest safe
ones, then the fewest promotions.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from ..registry import Entry, Table
from ..types.base import Type
from . import types
from .selecting import select


class Conversion(IntEnum):
    exact = 0
    promote = 1
    safe = 2
    unsafe = 3


_MANTISSA = {32: 24, 64: 53}


def _numbers(a: types.Number, b: types.Number) -> Conversion:
    if isinstance(a, types.Boolean):
        return Conversion.safe
    if isinstance(b, types.Boolean):
        return Conversion.unsafe
    if isinstance(a, types.Integer) and isinstance(b, types.Integer):
        if a.minval >= b.minval and a.maxval <= b.maxval:
            return Conversion.promote if a.signed == b.signed else Conversion.safe
        return Conversion.unsafe
    if isinstance(b, types.Complex):
        if isinstance(a, types.Complex):
            return Conversion.promote if a.bitwidth <= b.bitwidth else Conversion.unsafe
        return max(Conversion.safe, _numbers(a, b.underlying_float))
    if isinstance(a, types.Float) and isinstance(b, types.Float):
        return Conversion.promote if a.bitwidth <= b.bitwidth else Conversion.unsafe
    if isinstance(a, types.Integer) and isinstance(b, types.Float):
        digits = a.bitwidth - int(a.signed)
        return Conversion.safe if digits <= _MANTISSA[b.bitwidth] else Conversion.unsafe
    return Conversion.unsafe


def can_convert(a: Type, b: Type) -> Conversion | None:
    """How a value of type a becomes one of type b; None: not at all.

    Numbers and tuples are known here, other types are asked (`can_convert_to`, then
    `can_convert_from`), then a conversion registered with lower_cast counts with the rank that was
    given there.
    """
    if a == b:
        return Conversion.exact
    if isinstance(a, types.Literal):
        return can_convert(a.literal_type, b) if a.literal_type is not a else None
    if isinstance(a, types.Number) and isinstance(b, types.Number):
        return _numbers(a, b)
    if isinstance(a, types.BaseTuple) and isinstance(b, types.BaseTuple):
        if len(a) != len(b):
            return None
        ranks = [can_convert(x, y) for x, y in zip(a.types, b.types, strict=True)]
        known = [r for r in ranks if r is not None]
        return max(known, default=Conversion.exact) if len(known) == len(ranks) else None
    if b.is_super(a):
        return Conversion.promote
    for found in (
        a.can_convert_to(b) if isinstance(a, types.Type) else None,
        b.can_convert_from(a) if isinstance(b, types.Type) else None,
    ):
        if found is not None:
            return found
    return registered_rank(a, b)


casts = Table("conversion", unique=True)  # of lower_cast


def find_cast(fromty: Type, toty: Type) -> Entry | None:
    """The most specific conversion, or None. AmbiguityError where several are."""
    entries = casts.get("cast")
    found = select(entries, (fromty, toty), "the conversion")
    if found is None and isinstance(fromty, types.Literal) and fromty.literal_type is not fromty:
        return find_cast(fromty.literal_type, toty)
    return found


def registered_rank(fromty: Type, toty: Type) -> Conversion | None:
    """What a registered conversion costs where it makes a call fit."""
    found = find_cast(fromty, toty)
    return None if found is None else found.value[1]


Rank = tuple[int, int, int]  # how many unsafe, safe and promoting conversions


def rank(actual: Sequence[Type], formal: Sequence[Type]) -> Rank | None:
    """What a call with `actual` types costs where `formal` ones are asked for; None: it cannot be
    made. Ranks compare as they should: the lowest is the best."""
    if len(actual) != len(formal):
        return None
    counts = [0, 0, 0, 0]
    for a, b in zip(actual, formal, strict=True):
        found = can_convert(a, b)
        if found is None:
            return None
        counts[found] += 1
    return counts[Conversion.unsafe], counts[Conversion.safe], counts[Conversion.promote]
