"""The types by their spellings in schemas."""

from __future__ import annotations

import re

from .base import Type
from .containers import BoolArray, ListArg, Optional, OptionalTensor, TensorList
from .numbers import NumberArg, ScalarArg
from .objects import ENUMS, Enum, Handle, StreamArg, String
from .schema_types import SchemaType
from .tensor import TensorArg, TensorType

_TYPES: dict[str, SchemaType] = {
    "Tensor": TensorType(),
    "Scalar": ScalarArg("Scalar"),
    "str": String("str"),
    "Stream": StreamArg("Stream"),
    "bool": NumberArg("bool", "bool"),
    "SymBool": NumberArg("SymBool", "bool"),
    "float": NumberArg("float", "float"),
    **{name: NumberArg(name, "int") for name in ("int", "SymInt", "DeviceIndex", "QScheme")},
    **{name: Enum(name) for name in ENUMS},
    **{name: Handle(name) for name in ("Generator", "Storage")},
}
_CONTAINER = re.compile(r"(.+)(?:(\?)|\[(\d*)\])$")


def schema_type(schema: str) -> SchemaType:
    """The type for a schema spelling such as "Tensor?" or "int[2]", or LookupError.

    >>> pb.schema_type("int[2]").filter([3, 4])
    [3, 4]
    """
    known = _TYPES.get(schema)
    if known is None:
        found = _CONTAINER.match(schema)
        known = _contained(schema_type(found[1]), *found.groups()[1:]) if found else None
        if known is None:
            raise LookupError(f"there is no schema type {schema!r} in pytorch_bridge.types")
        _TYPES[schema] = known
    return known


def is_shared(t: Type) -> bool:
    """Whether t is the one type of its spelling, which is never freed."""
    return isinstance(t, SchemaType) and _TYPES.get(t.schema) is t


def _contained(elem: SchemaType, optional: str | None, size: str | None) -> SchemaType | None:
    if optional:
        return OptionalTensor(elem) if isinstance(elem, TensorArg) else Optional(elem)
    n = int(size or 0)
    if isinstance(elem, TensorArg):
        return TensorList(elem, n)
    if elem.schema in ("bool", "SymBool"):
        return BoolArray(elem, n) if n else None
    return ListArg(elem, n) if isinstance(elem, (NumberArg, ScalarArg)) else None
