"""What a call takes and returns, in types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import RegistrationError
from ..types.base import Type

if TYPE_CHECKING:
    from ..types.base import Type


@dataclass(frozen=True)
class Signature:
    """The types of a call: `(int64, float64) -> float64`.

    `recvr` is the type of the object where the call is one of a method; args is without it.
    """

    return_type: Type
    args: tuple[Type, ...]
    recvr: Type | None = None

    def __str__(self) -> str:
        args = ", ".join(map(str, self.args))
        receiver = f"{self.recvr}." if self.recvr is not None else ""
        return f"{receiver}({args}) -> {self.return_type}"

    __repr__ = __str__


def signature(return_type: Type, *args: Type, recvr: Type | None = None) -> Signature:
    """Returns the Signature of a call that takes args. RegistrationError for what is no type."""
    for what, t in (
        ("the return type", return_type),
        *((f"argument {i}", t) for i, t in enumerate(args)),
        *([("the receiver", recvr)] if recvr is not None else []),
    ):
        if not isinstance(t, Type):
            hint = ": give an instance, not the class" if isinstance(t, type) else ""
            raise RegistrationError(f"{what} of a signature is no Type, but {t!r}{hint}")
    return Signature(return_type, args, recvr)
