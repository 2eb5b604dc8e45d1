"""When one value may stand for another.

Python's `==` does not say so: 1, 1.0 and True are equal, 0.0 and -0.0 are, a class may call
anything equal, and a NaN is not equal to itself. `key` makes a hashable key for any value, and two
values have equal keys only if no computation can tell them apart: they have the same class, and
inside the same bits, dtypes and order. A value of a class that is not known here equals itself
only.

Parameters of ops, constants, the merging of nodes and the keys of caches go by this.
"""

from __future__ import annotations

import dataclasses
import struct
import sys
from collections.abc import Collection, Hashable
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .graph.basic import Constant

# Classes whose `==` compares all that there is to a value.
_EXACT = frozenset([int, bool, str, bytes, type(None), type(...), type(NotImplemented)])
# Immutable classes from which a class without attributes of its own takes all of its state.
_BASES: tuple[Any, ...] = (int, float, complex, str, bytes, tuple, frozenset)

_LARGEST = 64 << 10  # bytes of a tensor that is compared by its contents


class Itself:
    """A key that equals itself only. It keeps its object, whose id is then no other object's."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Itself) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)

    def __repr__(self) -> str:
        return f"Itself({self.value!r})"


def same(a: Any, b: Any) -> bool:
    """Whether one value may stand for the other."""
    return a is b or (type(a) is type(b) and bool(key(a) == key(b)))


def key(value: Any) -> Hashable:
    """A key that two values share only if one may stand for the other.

    >>> key(0.0) == key(-0.0), key(1) == key(True), key((1, 2.5)) == key((1, 2.5))
    (False, False, True)
    """
    cls = type(value)
    if cls in _EXACT:
        return cls, value
    if cls is tuple or cls is list:
        return cls, tuple([key(v) for v in value])
    if isinstance(value, type) or not _compares_classes(type(cls)):
        return Itself(value)  # of classes, a metaclass may call any two equal
    own = getattr(cls, "__sameness__", None)
    if own is not None:
        made = own(value)
        return Itself(value) if made is None else (cls, made)
    found = parts(value)
    if found is None:
        return Itself(value)
    inside = [key(v) for v in found]
    return cls, frozenset(inside) if isinstance(value, (set, frozenset)) else tuple(inside)


def _compares_classes(kind: type) -> bool:
    """Whether the classes of a metaclass are equal to themselves only."""
    eq: object = kind.__eq__
    return eq is type.__eq__


def parts(value: Any) -> tuple[Any, ...] | None:
    """The parts of a value, which with its class are all of it, in order except for sets; None for
    an unknown class. Values without smaller parts give ints, strings and bytes."""
    cls = type(value)
    if isinstance(value, Enum):
        return None
    found = _library(value)
    if found is not None:
        return found
    if cls is list or cls is set:
        return tuple(value)
    if cls is dict:
        return tuple(x for item in value.items() for x in item)
    if cls is Decimal:
        sign, digits, exponent = value.as_tuple()
        return sign, digits, exponent
    if cls is Fraction:
        return value.numerator, value.denominator
    if cls in (range, slice):
        return value.start, value.stop, value.step
    if _frozen(value):
        return tuple(getattr(value, f.name) for f in dataclasses.fields(value))
    base = next((b for b in _BASES if isinstance(value, b)), None)
    if base is None or (cls is not base and _attributes(value, base)):
        return None
    if base is float:
        return (struct.pack("<d", value),)
    if base is complex:
        return (struct.pack("<dd", value.real, value.imag),)
    if base in (tuple, frozenset):
        return tuple(base.__iter__(value))
    # The plain value, which a __str__ or __int__ of the class does not decide.
    return (base.__getnewargs__(value)[0],)


def _library(value: Any) -> tuple[Any, ...] | None:
    """The parts of what NumPy and PyTorch define, where that is known."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if torch is not None and isinstance(
        value, (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.qscheme)
    ):
        return (str(value),)
    if numpy is None:
        return None
    if isinstance(value, numpy.dtype):
        plain = value.names is None and value.subdtype is None and not value.hasobject
        return (value.str,) if plain and value.metadata is None else None
    if isinstance(value, numpy.generic) and type(value).__flags__ & _HEAP_TYPE == 0:
        inside = parts(value.dtype)
        return None if inside is None else (*inside, value.tobytes())
    return None


_HEAP_TYPE = 1 << 9  # of a class that a class statement has made


def _frozen(value: Any) -> bool:
    """Whether a value is that of a frozen dataclass, with nothing but its fields."""
    cls = type(value)
    parameters = vars(cls).get("__dataclass_params__")
    if parameters is None or not parameters.frozen:
        return False
    return set(_attributes(value, object)) == {f.name for f in dataclasses.fields(value)}


def _attributes(value: Any, base: type = object) -> list[str]:
    """The names of the attributes that a value has besides those of a base class."""
    names = list(getattr(value, "__dict__", ()))
    for cls in type(value).__mro__:
        if cls is base:
            break
        slots = vars(cls).get("__slots__", ())
        slots = [slots] if isinstance(slots, str) else slots
        names += [n for n in slots if n not in ("__dict__", "__weakref__") and hasattr(value, n)]
    return names


def attributes_key(value: Any, without: Collection[str] = ()) -> Hashable:
    """A key of all attributes of an object, except those that are named, and those that are
    computed when they are first asked for."""
    cls = type(value)
    names = [
        n
        for n in _attributes(value)
        if n not in without and not isinstance(getattr(cls, n, None), cached_property)
    ]
    return tuple((n, key(getattr(value, n))) for n in sorted(names))


def constant_key(v: Constant) -> Hashable:
    """A key that two constants of a graph share only if one may stand for the other. Their values
    do not change."""
    data = v.data
    return key(v.type), _tensor(data) if hasattr(data, "untyped_storage") else key(data)


def _tensor(t: Any) -> Hashable:
    """A key of a tensor with all that kernels look at besides the elements, its alignment among it.
    A tensor that is large, or of a class or a layout that is not known, equals itself only."""
    import torch

    if type(t) not in (torch.Tensor, torch.nn.Parameter) or getattr(t, "__dict__", None):
        return Itself(t)
    try:
        if t.layout is not torch.strided or t.nbytes > _LARGEST:
            return Itself(t)
        whole = t.detach().cpu().resolve_conj().resolve_neg().contiguous()
        content = bytes(whole.view(-1).view(torch.uint8).numpy()) if whole.numel() else b""
        flags = (t.is_conj(), t.is_neg(), t.requires_grad, t.is_inference())
        kind = (t.dtype, tuple(t.shape), str(t.device))
        return type(t), kind, t.stride(), flags, t.data_ptr() % 64, content
    except (RuntimeError, TypeError, NotImplementedError):
        return Itself(t)
