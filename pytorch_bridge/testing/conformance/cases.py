"""Arguments for a function: made canonical, and copied."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from .harness import absent
from .operators import Operator

_KIND = re.compile(r"(\w+)(?:\[(\d*)\])?(\?)?$")


class Unfit(Exception):
    """A value that torch.ops does not take for a type of the schema."""


@dataclass
class Case:
    """A function with a value, or `absent`, for each argument of its schema."""

    operator: Operator
    values: list[Any]
    origin: str  # where it comes from, for people: "op_db addmm float32 #3"
    requires_grad: bool = False  # for a function that makes a tensor
    gradient: bool = False  # whether it is to be differentiated
    own: bool = False  # a sample's own operator, called with the sample's arguments

    def __repr__(self) -> str:
        given = [
            f"{a.name}={show(v)}"
            for a, v in zip(self.operator.arguments, self.values, strict=True)
            if v is not absent
        ]
        return f"{self.operator.name}({', '.join(given)})"


def show(v: Any) -> str:
    """A value in short."""
    if isinstance(v, torch.Tensor):
        kind = str(v.dtype).removeprefix("torch.")
        more = "" if v.layout == torch.strided else f" {v.layout}"
        shape = "nested" if v.is_nested else list(v.shape)
        return f"{kind}{shape}{more}"
    if isinstance(v, (list, tuple)):
        return f"[{', '.join(map(show, v))}]"
    return repr(v)


def make(
    operator: Operator,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    origin: str,
    strict: bool = False,
) -> Case:
    """The case of a call. Unfit where the arguments are not the schema's.

    strict: numbers are not taken for tensors, nor the other way round.
    """
    arguments = operator.arguments
    if len(args) > len(arguments):
        raise Unfit("too many arguments")
    kwargs = dict(kwargs)
    values: list[Any] = []
    for i, a in enumerate(arguments):
        if i < len(args):
            if a.kwarg_only:
                raise Unfit(f"{a.name} by position")
            v = args[i]
        elif a.name in kwargs:
            v = kwargs.pop(a.name)
        elif a.default is None:
            raise Unfit(f"no {a.name}")
        else:
            values.append(absent)
            continue
        values.append(canonical(a.type, v, strict))
    requires_grad = bool(kwargs.pop("requires_grad", False)) if operator.op.factory else False
    if kwargs:
        raise Unfit(f"no argument {', '.join(kwargs)}")
    return Case(operator, values, origin, requires_grad)


def canonical(kind: str, v: Any, strict: bool = False) -> Any:
    """The value as torch.ops and Go both take it for a type of the schema."""
    found = _KIND.match(kind)
    if found is not None and found[2] is not None:
        if v is None and found[3]:
            return None
        element, size = found[1], found[2]
        if isinstance(v, (list, tuple)):
            return [canonical(element, x, strict) for x in v]
        if size and isinstance(v, (int, float)):
            return [canonical(element, v, strict)] * int(size)
        raise Unfit(f"{show(v)} for {kind}")
    if kind.endswith("?[]"):
        if not isinstance(v, (list, tuple)):
            raise Unfit(f"{show(v)} for {kind}")
        return [canonical(kind[:-2], x, strict) for x in v]
    if kind.endswith("?"):
        if v is None:
            return None
        kind = kind[:-1]
    taken = _TAKES.get(kind)
    if taken is not None and v is not None:
        result = taken(v, strict)
        if result is not None:
            return result
    raise Unfit(f"{show(v)} for {kind}")


_Number = (bool, int, float, complex)


def _tensor(v: Any, strict: bool) -> Any:
    if isinstance(v, torch.Tensor):
        return v
    return torch.tensor(v) if isinstance(v, _Number) and not strict else None


def _int(v: Any, strict: bool) -> Any:
    if isinstance(v, bool):
        return None if strict else int(v)
    if isinstance(v, torch.Tensor):
        single = v.numel() == 1 and v.dtype == torch.int64 and not strict
        return int(v) if single else None
    return v.__index__() if hasattr(v, "__index__") else None


def _float(v: Any, strict: bool) -> Any:
    single = isinstance(v, torch.Tensor) and v.numel() == 1 and not strict
    return float(v) if single or (isinstance(v, (int, float)) and v is not True) else None


def _bool(v: Any, strict: bool) -> Any:
    return v if isinstance(v, bool) else bool(v) if isinstance(v, int) and not strict else None


def _scalar(v: Any, strict: bool) -> Any:
    if isinstance(v, torch.Tensor):
        single = v.numel() == 1 and not v.requires_grad and not strict
        return v.item() if single else None
    if hasattr(v, "item"):
        v = v.item()
    return v if isinstance(v, _Number) else None


def _dtype(v: Any, strict: bool) -> Any:
    if v in (float, int, bool, complex):
        kinds = {float: torch.get_default_dtype(), int: torch.int64, bool: torch.bool}
        return kinds.get(v, torch.complex64)
    return v if isinstance(v, torch.dtype) else None


def _storage(v: Any, strict: bool) -> Any:
    if isinstance(v, torch.TypedStorage):
        return v.untyped()
    return v if isinstance(v, torch.UntypedStorage) else None


def _is(*types: type) -> Callable[[Any, bool], Any]:
    return lambda v, strict: v if isinstance(v, types) else None


_TAKES: dict[str, Callable[[Any, bool], Any]] = {
    "Tensor": _tensor,
    "int": _int,
    "SymInt": _int,
    "DeviceIndex": _int,
    "QScheme": _int,
    "float": _float,
    "bool": _bool,
    "SymBool": _bool,
    "Scalar": _scalar,
    "ScalarType": _dtype,
    "Storage": _storage,
    "str": _is(str),
    "Layout": _is(torch.layout),
    "MemoryFormat": _is(torch.memory_format),
    "Device": lambda v, strict: torch.device(v) if isinstance(v, (torch.device, str)) else None,
    "Generator": _is(torch.Generator),
    "Stream": _is(torch.Stream),
}


# Copies -----------------------------------------------------------------------------------------


class Copier:
    """Copies values so that what shared a storage shares the copy of it."""

    def __init__(self) -> None:
        self.storages: dict[int, torch.UntypedStorage] = {}
        self.tensors: dict[int, torch.Tensor] = {}
        self.kept: list[Any] = []

    def __call__(self, v: Any) -> Any:
        if isinstance(v, torch.Tensor):
            return self.tensor(v)
        if isinstance(v, list):
            return [self(x) for x in v]
        if isinstance(v, torch.Generator):
            return v.clone_state()
        if isinstance(v, torch.UntypedStorage):
            return self.storage(v)
        return v

    def storage(self, s: torch.UntypedStorage) -> torch.UntypedStorage:
        if s.device.type == "meta":
            return s.clone()
        found = self.storages.get(s._cdata)
        if found is None:
            found = self.storages[s._cdata] = _cloned(s)
            self.kept.append(s)
        return found

    def tensor(self, t: torch.Tensor) -> torch.Tensor:
        found = self.tensors.get(id(t))
        if found is not None:
            return found
        if getattr(t, "is_packed", False):
            return t
        with torch.no_grad():
            copy = self._copy(t)
            if t.requires_grad:
                copy.requires_grad_()
        self.tensors[id(t)] = copy
        self.kept.append(t)
        return copy

    def _copy(self, t: torch.Tensor) -> torch.Tensor:
        t = t.detach()
        if (
            t.layout != torch.strided
            or t.is_nested
            or t.device.type == "meta"
            or type(t) is not torch.Tensor
            or not torch._C._has_storage(t)
        ):
            return t.clone()
        if t.is_quantized:
            return t.clone()
        if t._is_zerotensor():
            return torch._efficientzerotensor(t.shape, dtype=t.dtype)
        copy = torch.empty(0, dtype=t.dtype, device=t.device)
        copy.set_(self.storage(t.untyped_storage()), t.storage_offset(), t.size(), t.stride())
        if t.is_conj():
            torch._C._set_conj(copy, True)
        if t.is_neg():
            torch._C._set_neg(copy, True)
        return copy


def _cloned(s: torch.UntypedStorage) -> torch.UntypedStorage:
    if s.device.type == "cpu":
        return s.clone()
    # By a tensor of its bytes: not every backend can copy storages.
    bytes_of = torch.empty(0, dtype=torch.uint8, device=s.device)
    return bytes_of.set_(s, 0, (s.nbytes(),), (1,)).clone().untyped_storage()


def tensors_in(values: list[Any]) -> Iterator[torch.Tensor]:
    """The tensors among values and in their lists."""
    for v in values:
        if isinstance(v, torch.Tensor):
            yield v
        elif isinstance(v, list):
            yield from tensors_in(v)
