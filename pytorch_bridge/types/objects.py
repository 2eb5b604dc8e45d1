"""The schema types that are neither numbers nor tensors: enums, strings, and libtorch's objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import c_support, literals
from .base import Sub
from .enums import DEVICES, DTYPES, LAYOUTS, MEMORY_FORMATS, device_parts, dtype_name
from .literals import CLiteral
from .schema_types import Plain, Refused, SchemaType, converted

# By the schema's name: the class in torch, what C calls it in names, and the numbers.
ENUMS: dict[str, tuple[str, str, dict[str, int]]] = {
    "ScalarType": ("dtype", "dtype", DTYPES),
    "Layout": ("layout", "layout", LAYOUTS),
    "MemoryFormat": ("memory_format", "memory_format", MEMORY_FORMATS),
    "Device": ("device", "device", DEVICES),
}


class Enum(Plain):
    """ScalarType, Layout, MemoryFormat and Device: small values with a name."""

    c_extract_filters = True

    def __init__(self, schema: str) -> None:
        super().__init__(schema)
        self.c = schema
        self._torch, self.function, self._numbers = ENUMS[schema]

    def holds(self, value: Any) -> bool:
        import torch

        return isinstance(value, getattr(torch, self._torch))

    def convert(self, value: Any, allow_downcast: bool | None) -> Any:
        import torch

        try:
            if self.schema == "ScalarType" and value is not None:
                return getattr(torch, dtype_name(value))
            if self.schema == "Device" and isinstance(value, str):
                return torch.device(value)
            if self.schema in ("Layout", "MemoryFormat") and value in self._numbers:
                return getattr(torch, value)
        except (ValueError, RuntimeError) as e:
            raise Refused(value, f": {e}") from None
        raise Refused(value)

    def literal(self, value: Any) -> CLiteral:
        if self.schema == "Device":
            kind, index = device_parts(value)
            return CLiteral(self.c, f"{{{DEVICES[kind]}, {index}}}")
        return CLiteral(self.c, str(self._numbers[str(value).removeprefix("torch.")]))

    def c_support_code(self) -> Sequence[str]:
        return c_support.ENUM_HELPERS


class String(Plain):
    """str. In a graph the memory is that of the Python string."""

    c_extract_filters = True

    c, function, nullable = "const char *", "str", True

    def holds(self, value: Any) -> bool:
        return isinstance(value, str)

    def literal(self, value: Any) -> CLiteral:
        return CLiteral(self.c, literals.string(value))

    def c_init(self, name: str, sub: Sub) -> str:
        return f"{name} = NULL;"

    def c_extract(
        self, name: str, sub: Sub, check_input: bool = True, none: bool = False, **kwargs: Any
    ) -> str:
        return converted("str", name, sub, str(int(none)), f"&{name}")

    def to_python(self, value: str) -> str:
        return f"{value} ? PyUnicode_FromString({value}) : Py_NewRef(Py_None)"


class Handle(SchemaType):
    """Generator and Storage: objects of libtorch that C refers to. Graphs have none in C."""

    c_extract_filters = True

    nullable = True

    def __init__(self, schema: str) -> None:
        super().__init__(schema)
        self.c = schema

    def holds(self, value: Any) -> bool:
        import torch

        return isinstance(value, torch.Generator if self.c == "Generator" else torch.UntypedStorage)


class StreamArg(Plain):
    """Stream, a struct in C."""

    c_extract_filters = True

    c, function = "Stream", "stream"

    def holds(self, value: Any) -> bool:
        import torch

        return isinstance(value, torch.Stream)

    def literal(self, value: Any) -> CLiteral:
        parts = (value.stream_id, value.device_index, value.device_type)
        return CLiteral("Stream", f"{{{', '.join(f'INT64_C({p})' for p in parts)}}}")
