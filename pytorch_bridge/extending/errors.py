"""What goes wrong in an extension, or in code that uses one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..errors import BridgeTypeError, BridgeValueError, MissingMethodError


class TypingError(BridgeTypeError):
    """Types for which nothing that is registered stands.

    Typing code may raise it to turn a call down with a reason; the next candidate is asked then.
    Any other exception in typing code is a bug there, and propagates.
    """


class NotMineError(TypingError):
    """A candidate that is not for the types of a call, and has nothing to say about that."""


class UnknownTypeError(TypingError):
    """A value whose class nothing gives a type to."""


class UnreachableError(BridgeValueError):
    """A global value that nothing would find under its own name."""


class LoweringError(BridgeTypeError):
    """Typed code for which no C is registered."""


class AssignmentError(BridgeTypeError, AttributeError):
    """An attribute that cannot be assigned to."""


def absent(module: str, names: Mapping[str, str], of: str = "") -> Callable[[str], object]:
    """The __getattr__ of a module that lacks names of Numba's, and says what to write for each."""

    def __getattr__(name: str) -> object:
        if name in names:
            raise MissingMethodError(f"{of}{name} is Numba's, and is not here: {names[name]}")
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return __getattr__
