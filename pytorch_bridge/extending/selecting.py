"""Choosing among registrations by the types of several arguments: the most specific wins.

Each argument is registered as an instance of a type (only that type), as a class of types (all its
instances and those of subclasses), or as Any. The instance is more specific than its class, a class
than its base classes, all than Any. `VarArg(spec)` in the last place stands for any number of
further arguments; it is less specific than as many single ones.

One registration is more specific than another if it is so in some argument and in none less. If
two remain of which neither is, that is "2 ambiguous signatures", an error that names both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ..errors import RegistrationError
from ..registry import Entry
from ..types.base import Type
from .errors import LoweringError, TypingError


class AnyType:
    """Stands for every type."""

    def __repr__(self) -> str:
        return "Any"


Any = AnyType()


class VarArg:
    """Any number of further arguments, each as `spec` says."""

    def __init__(self, spec: Type | type[Type] | AnyType = Any) -> None:
        self.spec = spec

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VarArg) and self.spec == other.spec

    def __hash__(self) -> int:
        return hash((VarArg, self.spec))

    def __repr__(self) -> str:
        return f"VarArg({show(self.spec)})"


Spec: TypeAlias = Type | type[Type] | AnyType | VarArg


def show(spec: Spec) -> str:
    """How messages write a spec: the name of a class, or what an instance calls itself."""
    return spec.__name__ if isinstance(spec, type) else str(spec)


def check(specs: Sequence[Spec], what: str) -> tuple[Spec, ...]:
    """Returns the specs as a tuple. RegistrationError where one is none."""
    for i, s in enumerate(specs):
        if isinstance(s, VarArg):
            if i != len(specs) - 1:
                raise RegistrationError(f"{what}: VarArg must be the last argument")
            s = s.spec
        is_class = isinstance(s, type) and issubclass(s, Type)
        if s is not Any and not is_class and not isinstance(s, Type):
            raise RegistrationError(
                f"{what} is registered for types or classes of types, not for {s!r}"
            )
    return tuple(specs)


def matches(spec: Spec, t: Type) -> bool:
    """Whether a type is one that spec stands for."""
    if spec is Any:
        return True
    if isinstance(spec, type):
        return isinstance(t, spec)
    return bool(spec == t)


def _within(a: Spec, b: Spec) -> bool:
    """Whether every type that a stands for is one that b stands for."""
    if b is Any:
        return True
    if a is Any:
        return False
    if isinstance(b, type):
        return issubclass(a, b) if isinstance(a, type) else isinstance(a, b)
    return bool(a == b)


def _expand(specs: Sequence[Spec], n: int) -> tuple[Spec, ...] | None:
    """As many specs as there are arguments, or None where the numbers do not fit."""
    if specs and isinstance(specs[-1], VarArg):
        fixed = len(specs) - 1
        return None if n < fixed else (*specs[:-1], *[specs[-1].spec] * (n - fixed))
    return tuple(specs) if len(specs) == n else None


def applies(specs: Sequence[Spec], args: Sequence[Type]) -> bool:
    """Whether a registration for specs is one for arguments of these types."""
    expanded = _expand(specs, len(args))
    return expanded is not None and all(map(matches, expanded, args))


def more_specific(a: Sequence[Spec], b: Sequence[Spec], n: int) -> bool:
    """Whether specs a, of n arguments, beat specs b."""
    x, y = _expand(a, n), _expand(b, n)
    assert x is not None
    assert y is not None
    if not all(map(_within, x, y)):
        return False
    if all(map(_within, y, x)):  # the same types: single arguments beat VarArg
        return len(a) > len(b) or (a != b and not (a and isinstance(a[-1], VarArg)))
    return True


def select(entries: Sequence[Entry], args: Sequence[Type], what: str) -> Entry | None:
    """The most specific of the registrations that apply. None where none applies; AmbiguityError
    where several remain."""
    fitting = [e for e in entries if applies(e.specs, args)]
    if len(fitting) > 1:
        n = len(args)
        fitting = [
            e
            for e in fitting
            if not any(more_specific(o.specs, e.specs, n) for o in fitting if o is not e)
        ]
    if len(fitting) > 1:
        found = "".join(f"\n  ({', '.join(map(show, e.specs))}): {e}" for e in fitting)
        raise AmbiguityError(
            f"{len(fitting)} ambiguous signatures for {what} "
            f"of ({', '.join(map(str, args))}):{found}"
        )
    return fitting[0] if fitting else None


class AmbiguityError(TypingError, LoweringError):
    """Several registrations are equally specific."""


def listing(entries: Sequence[Entry]) -> str:
    """The registrations, one a line, for the end of a message."""
    return "".join(f"\n  ({', '.join(map(show, e.specs))}): {e}" for e in entries)
