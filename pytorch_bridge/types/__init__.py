"""The types of graphs, and those of PyTorch's schema language: their values, and these in C.

The kinds of types that extensions speak of (`types.Array`, `types.Integer`) are found here too,
once pytorch_bridge.extending is imported, where they live.
"""

from .base import CType, Generic, Type, generic, register_transfer, transfer
from .parsing import schema_type
from .schema_types import SchemaType
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
