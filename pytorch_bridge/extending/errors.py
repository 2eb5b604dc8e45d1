"""What goes wrong in an extension, or in code that uses one."""

from __future__ import annotations

from ..errors import BridgeTypeError, BridgeValueError


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
