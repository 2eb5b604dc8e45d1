"""The types of graphs, and those of PyTorch's schema language: their values, and these in C.

The kinds of types that extensions speak of (`types.Array`, `types.Integer`) are found here too;
they live in pytorch_bridge.extending.types.
"""

from typing import Any

from .base import CType, Generic, Type, generic, register_transfer, transfer
from .parsing import schema_type
from .schema import SchemaType
from .tensor import TensorType

__all__ = [
    "CType",
    "Generic",
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
