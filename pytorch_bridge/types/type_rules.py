"""What somebody makes of every type, in one place: rules by the class of the type.

    go = Face("Go type", __name__)
    go.of(String)(lambda t: "string")
    go.of(List)(lambda t: f"[]{go(t.elem)}")

A rule for `(Optional, List, Number)` is for an optional list of numbers, and goes before one for
`(Optional, List)` and that before `(Optional,)`. A class stands for those derived from it, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from ..errors import MissingMethodError
from .base import Type
from .parsing import is_shared
from .schema_types import SchemaType

Made = TypeVar("Made")
Kinds = tuple[type, ...]


class Face(Generic[Made]):
    """A function of types. `what` it returns and the module `where` its rules are complete the
    message for a type that has none."""

    def __init__(self, what: str, where: str) -> None:
        self.what, self.where = what, where
        self.rules: dict[Kinds, Callable[[Any], Made]] = {}
        self._found: dict[Kinds, Callable[[Any], Made] | None] = {}
        self._made: dict[int, Made] = {}  # by types that are never freed

    def of(self, *kinds: type) -> Callable[[Callable[[Any], Made]], Any]:
        """Decorates the rule for a class of types, or for a container of one: a function, or a
        class that is made with the type."""

        def decorate(rule: Callable[[Any], Made]) -> Callable[[Any], Made]:
            self.rules[kinds] = rule
            self._found.clear()
            self._made.clear()
            return rule

        return decorate

    def find(self, t: Type) -> Callable[[Any], Made] | None:
        """The nearest rule for a type."""
        kinds = kinds_of(t)
        if kinds not in self._found:
            self._found[kinds] = next(filter(None, map(self.rules.get, nearest(kinds))), None)
        return self._found[kinds]

    def __call__(self, t: Type) -> Made:
        known = self._made.get(id(t))
        if known is not None:
            return known
        rule = self.find(t)
        if rule is None:
            kinds = ", ".join(k.__name__ for k in kinds_of(t))
            raise MissingMethodError(
                f"there is no {self.what} for the type {t}: {self.where} needs a rule .of({kinds})"
            )
        made = rule(t)
        if is_shared(t):
            self._made[id(t)] = made
        return made


def kinds_of(t: Type) -> Kinds:
    """The class of a type, after those of the containers that it is in."""
    return t.kinds if isinstance(t, SchemaType) else (type(t),)


def nearest(kinds: Kinds) -> Iterator[Kinds]:
    """What rules for a type may be kept under, the most specific first."""
    for n in range(len(kinds), 0, -1):
        for last in kinds[n - 1].__mro__:
            yield (*kinds[: n - 1], last)
