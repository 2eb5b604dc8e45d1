"""The content of a graph as text, the same in every process: what a cache's key is made of."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ..graph.basic import Apply, Constant, Variable
from ..native.artifacts import digest, digest_file
from ..ops.op import Op
from ..sameness import Itself, attributes_key, key
from ..types import Type


class NoContent(Exception):
    """Something has no content that another process would recognise; the message names it."""


def content(inputs: Sequence[Variable], outputs: Sequence[Variable], order: Sequence[Apply]) -> str:
    """Everything that the values and types of a graph's outputs depend on: types, ops with their
    parameters and the files that they are defined in, constants and their names. NoContent where
    that cannot be said."""
    numbers: dict[Variable, int] = {}
    files: dict[str, None] = {}
    lines: list[str] = []

    def number(v: Variable) -> int:
        if v not in numbers:
            numbers[v] = len(numbers)
            data = f" = {v.name!r} {_text(v.data, files)}" if isinstance(v, Constant) else ""
            lines.append(f"{numbers[v]}: {_text(v.type, files)}{data}")
        return numbers[v]

    for v in inputs:
        number(v)
    for node in order:
        given = [number(v) for v in node.inputs]
        lines.append(f"{_text(node.op, files)} of {given} is {[number(v) for v in node.outputs]}")
    lines.append(f"{[number(v) for v in inputs]} to {[number(v) for v in outputs]}")
    return "\n".join([*lines, *map(digest_file, files)])


def _text(value: Any, files: dict[str, None]) -> str:
    import torch

    return _tensor(value) if isinstance(value, torch.Tensor) else _spelt(key(value), files)


def _spelt(part: Any, files: dict[str, None]) -> str:
    """A key as text."""
    if isinstance(part, tuple):
        return f"({', '.join(_spelt(p, files) for p in part)})"
    if isinstance(part, frozenset):
        return f"{{{', '.join(sorted(_spelt(p, files) for p in part))}}}"
    if isinstance(part, type):
        _check_named(part)
        if issubclass(part, (Op, Type)):
            _defined(part, files)
        return f"{part.__module__}.{part.__qualname__}"
    if isinstance(part, Type):
        return f"{part} {_spelt(attributes_key(part), files)}"
    if not isinstance(part, Itself):
        return repr(part)
    value = part.value
    if isinstance(value, type):
        return _spelt(value, files)
    kind = type(value).__qualname__
    if isinstance(value, Op):
        raise NoContent(f"{value}: {kind} has no __props__")
    raise NoContent(f"a {kind}, {value!r}")


def _check_named(kind: type) -> None:
    """NoContent for a class that its name does not find, as one that is made by a function: it may
    be another each time, in the same file."""
    found: Any = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    if found is not kind and kind.__flags__ & _HEAP_TYPE:
        raise NoContent(f"{kind.__module__} has another {kind.__qualname__}, or none")


_HEAP_TYPE = 1 << 9  # of a class that a class statement has made


def _defined(kind: type, files: dict[str, None]) -> None:
    """Adds the files that a class and those it derives from are defined in."""
    for base in kind.__mro__:
        if base in (Op, Type, object):
            continue
        _check_named(base)
        file = getattr(sys.modules.get(base.__module__), "__file__", None)
        if file is None:
            raise NoContent(f"{base.__qualname__} is defined in no file")
        files[file] = None


def _tensor(t: Any) -> str:
    """A digest of what is in a tensor, with what its strides say."""
    import torch

    if t.layout != torch.strided or t.is_quantized:
        raise NoContent(f"a tensor of layout {t.layout} and type {t.dtype}")
    whole = t.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    data = whole.view(torch.uint8).numpy().data if t.numel() else b""
    return f"{t.dtype} {tuple(t.shape)} {t.stride()} {digest(data)}"
