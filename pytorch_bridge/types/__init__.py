"""The types of graphs, and those of PyTorch's schema language, with their C, C++ and Go faces."""

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
