"""The types of PyTorch's schema language, each with its C, C++ and Go faces in one class."""

from .schema_types import BlockField, GoOption, SchemaType, schema_type

__all__ = ["BlockField", "GoOption", "SchemaType", "schema_type"]
