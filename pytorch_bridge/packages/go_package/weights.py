"""The tensors of a generated package: their names, how Go is told of them, and the file."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...errors import BridgeTypeError, BridgeValueError
from ...graph.basic import Constant
from ...types import TensorType, Type
from ...types.enums import DEVICES, device_parts, dtype_name
from . import go_names
from .folder import MARK

if TYPE_CHECKING:
    import torch

WEIGHTS = "weights.safetensors"
METADATA = {"format": "pt", "generator": MARK}

SMALL = 4096  # bytes of constants without names that become part of the program


@dataclass
class Weight:
    """A tensor under its name. `strides` is None where they are those of a contiguous tensor."""

    name: str
    tensor: torch.Tensor
    named: bool = True  # in Python
    zero: bool = False  # it begins as zeros
    device: str | None = None  # where the package needs it; None: on the CPU
    requires_grad: bool = False  # by which libtorch's linear chooses its kernel
    aliases: list[str] = field(default_factory=list)  # further names in Python

    @property
    def strides(self) -> list[int] | None:
        t = self.tensor
        return None if t.is_contiguous() else list(t.stride())

    def go(self) -> str:
        """The Go literal, as an element of a []graph.Weight."""
        fields = [
            f"Name: {go_names.quoted(self.name)}",
            f"DType: gotorch.{go_dtype(self.tensor.dtype)}",
            f"Shape: {ints(self.tensor.shape)}",
        ]
        if self.strides is not None:
            fields.append(f"Strides: {ints(self.strides)}")
        if self.aliases:
            fields.append(f"Aliases: []string{{{', '.join(map(go_names.quoted, self.aliases))}}}")
        fields += ["Zero: true"] if self.zero else [] if self.named else ["Constant: true"]
        if self.requires_grad:
            fields.append("RequiresGrad: true")
        if self.device is not None:
            fields.append(f"Device: {go_device(self.device)}")
        return f"{{{', '.join(fields)}}}"


def ints(values: Sequence[int]) -> str:
    """A Go list of integers."""
    return f"[]int64{{{', '.join(map(str, values))}}}"


def go_dtype(dtype: Any) -> str:
    """The constant of package gotorch for a dtype."""
    name = dtype_name(dtype)
    special = {"bfloat16": "BFloat16"}
    if name not in special and name.startswith("float8"):
        return "Float8" + "".join(w.upper() for w in name.split("_")[1:])
    return special.get(name, name[:1].upper() + name[1:])


def go_device(device: str) -> str:
    """The Go expression for a device."""
    kind, index = device_parts(device)
    if kind == "cuda":
        return f"gotorch.CUDA({index})"
    return f"gotorch.NewDevice({DEVICES[kind]}, {index})"


def device_of(t: Type) -> str | None:
    """Where a package needs a tensor of a type; None for the CPU."""
    return t.device if isinstance(t, TensorType) and t.device != "cpu" else None


def collect(
    constants: Sequence[Constant], named: Mapping[str, Constant], taken: Sequence[str] = ()
) -> list[Weight]:
    """The weights for the constants of a C function, in their order: under the names that the model
    has for them, and others as "constant0" ...; names in `taken` are not used."""
    names: dict[int, str] = {}
    for name, constant in named.items():
        names.setdefault(id(constant.data), name)
    storages = {_place(c.data): n for n, c in reversed(list(named.items()))}
    found: list[Weight] = []
    used = set(taken)
    free = 0
    for constant in constants:
        t = constant.data
        if t.is_sparse or t.is_quantized or t.device.type == "meta" or t.is_nested:
            raise BridgeTypeError(
                f"export_go: the constant {constant} is a {t.layout} tensor on {t.device}: only "
                "dense tensors with values can be in a Go package"
            )
        name = names.get(id(t)) or storages.get(_place(t)) or ""
        in_python = bool(name) and name not in used
        if not in_python:
            while f"constant{free}" in used or f"constant{free}" in named:
                free += 1
            name = f"constant{free}"
        used.add(name)
        device = device_of(constant.type)
        weight = Weight(name, t.detach(), in_python, device=device)
        weight.requires_grad = t.requires_grad
        found.append(weight)
    return found


def alias(weights: Sequence[Weight], named: Mapping[str, Constant]) -> None:
    """Notes the names that the model has for weights beside their first one."""
    by_name = {w.name: w for w in weights if w.named}
    groups: dict[tuple[Any, ...], list[str]] = {}
    for name, constant in named.items():
        groups.setdefault(_place(constant.data), []).append(name)
    for group in groups.values():
        known = [by_name[n] for n in group if n in by_name]
        for weight in known[:1]:
            weight.aliases = [n for n in group if n not in by_name]


def _place(t: torch.Tensor) -> tuple[Any, ...]:
    return (t.data_ptr(), t.dtype, tuple(t.shape), tuple(t.stride())) if t.numel() else (id(t),)


def is_small(weights: Sequence[Weight]) -> bool:
    """Whether the weights can be part of the program: a few numbers that nobody has named."""
    return not any(w.named for w in weights) and sum(w.tensor.nbytes for w in weights) <= SMALL


def contents(
    tensors: Mapping[str, torch.Tensor],
    metadata: Mapping[str, str] = METADATA,
    op: str = "export_go",
) -> bytes:
    """A safetensors file. Tensors that share memory are written once each."""
    from safetensors.torch import save

    for name in tensors:
        if name == "__metadata__" or re.search("[\0\ud800-\udfff]", name):
            raise BridgeValueError(
                f"{op}: no tensor in a safetensors file can have the name {name!r}; give the "
                "weight another"
            )
    plain = {
        n: t.detach().resolve_conj().resolve_neg().contiguous().cpu() for n, t in tensors.items()
    }
    pointers: set[int] = set()
    for n, t in plain.items():
        if t.data_ptr() in pointers or t.untyped_storage().nbytes() != t.nbytes:
            plain[n] = t.clone()
        pointers.add(t.data_ptr())
    try:
        data = save(plain, dict(metadata))
    except (KeyError, RuntimeError, ValueError) as e:
        of = ", ".join(f"{n} is {t.dtype}" for n, t in plain.items() if not _writable(t.dtype))
        raise BridgeTypeError(
            f"{op}: a safetensors file cannot hold these weights: {of or e}; give them another "
            "dtype. For complex128 that is complex64, or two weights of float64, the parts"
        ) from e
    return _aligned(data)


def _writable(dtype: torch.dtype) -> bool:
    """Whether safetensors has a name for a dtype."""
    import torch
    from safetensors.torch import save

    try:
        save({"": torch.empty(0, dtype=dtype)})
    except (KeyError, RuntimeError, ValueError):
        return False
    return True


_ALIGNMENT = 64  # of libtorch's own memory; on other addresses kernels compute other last bits


def _aligned(data: bytes) -> bytes:
    """The same file, for who maps it: a tensor whose size is a multiple of 64, as that of most
    large ones is, begins at one. The format has no gaps, so these come first. The metadata, which
    have another order in each process, are put in order."""
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    metadata = dict(sorted(header.pop("__metadata__", {}).items()))
    entries = sorted(header.items(), key=lambda item: item[1]["data_offsets"])
    spans = {name: entry["data_offsets"] for name, entry in entries}
    entries.sort(key=lambda item: (spans[item[0]][1] - spans[item[0]][0]) % _ALIGNMENT != 0)
    parts, at = [], 0
    for name, entry in entries:
        start, stop = spans[name]
        parts.append(memoryview(data)[end + start : end + stop])
        entry["data_offsets"] = [at, at := at + stop - start]
    text = json.dumps(
        {"__metadata__": metadata, **dict(entries)}, separators=(",", ":"), ensure_ascii=False
    ).encode()
    text += b" " * (-(len(text) + 8) % _ALIGNMENT)
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


def digest(data: bytes) -> str:
    """The SHA-256 sum that the package checks."""
    return hashlib.sha256(data).hexdigest()
