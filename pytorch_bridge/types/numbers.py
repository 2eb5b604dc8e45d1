"""The numbers among the schema types."""

from __future__ import annotations

import math
import sys
from typing import Any

from . import literals
from .base import Sub, Type
from .literals import CLiteral
from .schema_types import Plain, Refused

_PYTHON = {"int": int, "float": float, "bool": bool}
_C = {"int": "int64_t", "float": "double", "bool": "bool"}


class NumberArg(Plain):
    """float, bool, and what is one of those or an int in Python and C: SymInt, SymBool,
    DeviceIndex, QScheme. `kind` says which."""

    c_extract_filters = True

    def __init__(self, schema: str, kind: str) -> None:
        super().__init__(schema)
        self.kind = self.function = kind
        self.c = _C[kind]

    def holds(self, value: Any) -> bool:
        if self.kind == "int":
            whole = isinstance(value, int) and not isinstance(value, bool)
            return whole and -(2**63) <= value < 2**63
        return isinstance(value, _PYTHON[self.kind])

    def convert(self, value: Any, allow_downcast: bool | None) -> Any:
        """The number of this kind that is equal to value; with allow_downcast the nearest."""
        number = item(value)
        if not isinstance(number, (bool, int, float)):
            raise Refused(value)
        try:
            converted: Any = _PYTHON[self.kind](number)
        except (ValueError, OverflowError) as e:
            raise Refused(value, f": {e}") from None
        if self.kind == "int" and not -(2**63) <= converted < 2**63:
            raise Refused(value, ", which has more than 64 bits")
        same = converted == number or (number != number and converted != converted)
        if not same and not allow_downcast:
            raise Refused(
                value, f": it would become {converted!r}, which takes allow_downcast=True"
            )
        return converted

    def values_eq_approx(self, a: Any, b: Any) -> bool:
        return close(a, b)

    def literal(self, value: Any) -> CLiteral:
        return CLiteral(self.c, literals.number(self.kind, value))

    def c_init(self, name: str, sub: Sub) -> str:
        return f"{name} = 0;"


class ScalarArg(Plain):
    """Scalar: a number that brings its kind along."""

    c_extract_filters = True

    c = "Scalar"
    kind = function = "scalar"

    def holds(self, value: Any) -> bool:
        return isinstance(value, (bool, int, float, complex))

    def convert(self, value: Any, allow_downcast: bool | None) -> Any:
        number = item(value)
        if not self.holds(number):
            raise Refused(value)
        return number

    def is_super(self, otype: Type) -> bool | None:
        return self == otype or isinstance(otype, NumberArg) or None

    def values_eq(self, a: Any, b: Any) -> bool:
        return type(a) is type(b) and a == b

    def values_eq_approx(self, a: Any, b: Any) -> bool:
        return type(a) is type(b) and close(a, b)

    def literal(self, value: Any) -> CLiteral:
        return CLiteral("Scalar", literals.scalar(value))


def is_number(t: Type) -> bool:
    """Whether the values of a type are numbers."""
    return isinstance(t, (NumberArg, ScalarArg))


_SCALARS = (("numpy", "generic"), ("numpy", "ndarray"), ("torch", "Tensor"))


def item(value: Any) -> Any:
    """The Python number of a NumPy or torch scalar; anything else as it is."""
    known = [getattr(sys.modules.get(m), kind, None) for m, kind in _SCALARS]
    if isinstance(value, tuple(k for k in known if k is not None)):
        number: Any = value
        try:
            return number.item()
        except (AttributeError, ValueError, RuntimeError, TypeError):
            return value
    return value


def close(a: Any, b: Any, tolerance: float = 1e-7) -> bool:
    """Whether two numbers are equal up to rounding; nan is nan, and inf only inf."""
    if isinstance(a, complex) or isinstance(b, complex):
        a, b = complex(a), complex(b)
        return close(a.real, b.real, tolerance) and close(a.imag, b.imag, tolerance)
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return (math.isnan(a) and math.isnan(b)) or math.isclose(
        a, b, rel_tol=tolerance, abs_tol=tolerance * 1e-3
    )
