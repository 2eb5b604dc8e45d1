"""Values that are known when C is written."""

from __future__ import annotations

import math
import struct
from typing import Any, NamedTuple


class CLiteral(NamedTuple):
    """A known value in C: an initialiser `value` of the type `c`, which is given as it is, by its
    `address`, or as an `array`, with its `length` where that is a parameter of its own.

    `CLiteral("int64_t", "INT64_C(5)")`, `CLiteral("Scalar", "{ScalarInt, {INT64_C(5)}}")`.
    """

    c: str
    value: str
    address: bool = False
    array: bool = False
    length: int | None = None

    @property
    def inline(self) -> bool:
        """Whether it is an expression of any C, and of C++, that stands for one argument."""
        return self.length is None and not self.compound

    @property
    def compound(self) -> bool:
        """Whether it needs a variable, or a compound literal."""
        return self.address or self.array or self.value.startswith("{")

    def declaration(self, name: str) -> str:
        """A constant with the value; `reference` is what it is called by."""
        return f"const {self.c} {name}{'[]' if self.array else ''} = {self.value};"

    def reference(self, name: str) -> str:
        return f"&{name}" if self.address else name

    def __str__(self) -> str:
        """As the arguments of a call, in C99."""
        text = self.value
        if self.compound:
            brackets = "[]" if self.array else ""
            text = self.reference(f"(const {self.c}{brackets}){self.value}")
        return text if self.length is None else f"{text}, {self.length}"


def string(text: str, errors: str = "strict") -> str:
    """A C string."""
    encoded = text.encode(errors=errors)
    plain = (chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in encoded)
    return f'"{"".join(plain)}"'


def nan(value: float) -> str:
    """A NaN with the sign and the payload of another."""
    (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    sign, quiet, payload = bits >> 63, bits >> 51 & 1, bits & (1 << 51) - 1
    if quiet and not payload:
        return "-(double)NAN" if sign else "(double)NAN"
    text = f'__builtin_nan{"" if quiet else "s"}("{payload:#x}")'
    return f"-{text}" if sign else text


def number(kind: str, value: Any) -> str:
    """A Python number in C."""
    if kind == "bool":
        return "true" if value else "false"
    if kind == "int":
        # -2**63 has no literal of its own.
        return "INT64_MIN" if value == -(2**63) else f"INT64_C({int(value)})"
    if math.isnan(value):
        return nan(value)
    if math.isinf(value):
        return "(double)INFINITY" if value > 0 else "-(double)INFINITY"
    return float(value).hex()


def scalar(value: Any) -> str:
    """A Python number as the initialiser of a Scalar."""
    if isinstance(value, bool):
        return f"{{ScalarBool, {{{int(value)}}}}}"
    if isinstance(value, int):
        if value >= 2**63:
            return f"{{ScalarUInt, {{(int64_t)UINT64_C({value})}}}}"
        return f"{{ScalarInt, {{{number('int', value)}}}}}"
    if isinstance(value, complex):
        parts = ", ".join(number("float", v) for v in (value.real, value.imag))
        return f"{{ScalarComplex, {{.c = {{{parts}}}}}}}"
    return f"{{ScalarFloat, {{.f = {number('float', value)}}}}}"
