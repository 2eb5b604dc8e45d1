"""The types of graphs, and those of PyTorch's schema language, with their C, C++ and Go faces.

The kinds of types that extensions speak of (`types.Array`, `types.Integer`) are found here too;
they live in pytorch_bridge.extending.types.
"""

from typing import Any

from .base import CType, Generic, Type, generic, register_transfer, transfer
from .schema_types import BlockField, GoOption, SchemaType, schema_type
from .tensor import TensorType

__all__ = [
    "BlockField",
    "CType",
    "Generic",
    "GoOption",
    "SchemaType",
    "TensorType",
    "Type",
    "generic",
    "register_transfer",
    "schema_type",
    "transfer",
]


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ..extending import types

    return getattr(types, name)
