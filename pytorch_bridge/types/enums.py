"""The numbers that C has for PyTorch's enums, by the names that Python has for them."""

from __future__ import annotations

import sys
from typing import Any


def _numbered(names: str) -> dict[str, int]:
    return {name: number for number, name in enumerate(names.split())}


# c10::ScalarType. The names are those of torch's attributes.
DTYPES = _numbered(
    "uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool "
    "qint8 quint8 qint32 bfloat16 quint4x2 quint2x4 bits1x8 bits2x4 bits4x2 bits8 bits16 "
    "float8_e5m2 float8_e4m3fn float8_e5m2fnuz float8_e4m3fnuz uint16 uint32 uint64 "
    "uint1 uint2 uint3 uint4 uint5 uint6 uint7 int1 int2 int3 int4 int5 int6 int7 "
    "float8_e8m0fnu float4_e2m1fn_x2"
)
_ALIASES = {
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "cfloat": "complex64",
    "cdouble": "complex128",
    "chalf": "complex32",
    "byte": "uint8",
    "char": "int8",
    "short": "int16",
    "int": "int32",
    "long": "int64",
}

# The C99 type of one element, for the dtypes that C can compute with.
C_ELEMENTS = {
    "uint8": "uint8_t",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "uint16": "uint16_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
    "float32": "float",
    "float64": "double",
    "bool": "bool",
}

# c10::Layout and c10::MemoryFormat.
LAYOUTS = _numbered("strided sparse_coo sparse_csr _mkldnn sparse_csc sparse_bsr sparse_bsc jagged")
MEMORY_FORMATS = _numbered("contiguous_format preserve_format channels_last channels_last_3d")

# c10::DeviceType, those that a tensor of this package can be on.
DEVICES: dict[str, int] = {
    "cpu": 0,
    "cuda": 1,
    "hip": 6,
    "xla": 9,
    "xpu": 12,
    "mps": 13,
    "meta": 14,
    "hpu": 15,
    "mtia": 19,
    "privateuseone": 20,
}


class DType(str):
    """The name of a dtype, which is equal to torch's dtype of that name as well."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return self is other or str.__eq__(self, other)
        return str(other) == f"torch.{self}"

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __reduce__(self) -> tuple[Any, ...]:
        return dtype_name, (str(self),)


_DTYPES = {name: DType(name) for name in DTYPES}


_PYTHON = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}


def _text_of(dtype: Any) -> str:
    """The text of what stands for a dtype: a class that is only called as one is none."""
    if isinstance(dtype, str):
        return dtype
    if isinstance(dtype, type):
        numpy: Any = sys.modules.get("numpy")
        of_numpy = numpy is not None and issubclass(dtype, numpy.generic)
        return numpy.dtype(dtype).name if of_numpy else _PYTHON.get(dtype, "")
    known = [sys.modules[m].dtype for m in ("numpy", "torch") if m in sys.modules]
    return str(dtype) if isinstance(dtype, tuple(known)) else ""


def dtype_name(dtype: Any) -> DType:
    """The name of a dtype given as torch, NumPy or text has it. ValueError for any other."""
    if type(dtype) is DType:
        return dtype
    name = _text_of(dtype).removeprefix("torch.")
    name = _ALIASES.get(name, name)
    if name not in DTYPES:
        raise ValueError(f"{dtype!r} is no dtype; dtypes are float32, int64, bool and so on")
    return _DTYPES[name]


def _private_backend() -> str:
    """What a backend of another project calls itself."""
    import torch

    return str(torch._C._get_privateuse1_backend_name())


def device_parts(device: Any) -> tuple[str, int]:
    """("cuda", 1) of "cuda:1"; -1 where no index is named. ValueError for what is no device."""
    kind, colon, index = str(device).partition(":")
    if kind not in DEVICES and kind == _private_backend():
        kind = "privateuseone"
    if kind not in DEVICES or (colon and not index.isdigit()):
        raise ValueError(f"{device!r} is no device; devices are cpu, cuda, cuda:1 and so on")
    return kind, int(index) if index else -1
