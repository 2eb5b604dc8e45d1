"""Further cases from one that passed: the function's other forms, and its other names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch

from . import reasons
from .cases import Case
from .check import default_value
from .harness import absent
from .operators import Operator, overloads, siblings


@cache
def other_names() -> dict[str, list[str]]:
    """By base name, the names that PyTorch's database lists for the same function."""
    from .samples import database

    found: dict[str, set[str]] = {}
    for entry in database().values():
        own = getattr(entry, "aten_name", None) or entry.name
        names = {a.name.replace(".", "_") for a in getattr(entry, "aliases", None) or ()}
        found.setdefault(own.replace(".", "_"), set()).update(names)
    return {k: sorted(v) for k, v in found.items() if v}


def others(case: Case, results: list[Any]) -> Iterator[Case]:
    """The other forms of a case's function, with its arguments. results are Python's."""
    o = case.operator
    for sibling in siblings(o):
        yield from _as(case, sibling, results)
    for name in other_names().get(o.function.family, ()):
        for form in (name, f"{name}_") if not o.function.base.endswith("_") else (f"{name}_",):
            for other in overloads().get(form, ()):
                if _inputs(other)[: len(_inputs(o))] == _inputs(o):
                    yield from _as(case, other, results)


def variants(case: Case, results: list[Any]) -> Iterator[Case]:
    """The case with one argument at a time given another value, as far as it is no tensor: so that
    each option of each function is seen to arrive."""
    o = case.operator
    if o.function.family in reasons.NEVER_VARIED:
        return
    for i, a in enumerate(o.arguments):
        if a.default is None and "int" in a.type.lower():
            continue  # a size that must fit the tensors
        values = list(case.values)
        given = values[i] if values[i] is not absent else default_value(o, i)
        values[i] = _other(a.type, given)
        if values[i] is not absent:
            yield Case(o, values, f"{case.origin}, another {a.name}", case.requires_grad)
    result = results[0] if results else None
    if o.op.factory and not case.requires_grad and isinstance(result, torch.Tensor):
        differentiable = result.dtype.is_floating_point or result.dtype.is_complex
        if differentiable:
            yield Case(o, case.values, f"{case.origin}, requires_grad", requires_grad=True)


def _other(kind: str, v: Any) -> Any:
    """Another value for a type of the schema, or `absent`. v is `absent` without a default."""
    missing = v is absent or v is None
    kind = kind.rstrip("?")
    if kind == "bool":
        return True if missing else not v
    if kind in ("int", "SymInt"):
        return 1 if missing else v + 1
    if kind == "float":
        return 0.5 if missing else v * 0.5 + 0.25
    if kind == "Scalar":
        return 0.5 if missing else v + 0.5
    if kind == "Generator":
        return torch.Generator().manual_seed(5)
    if kind == "ScalarType" and missing:
        return torch.float64
    if kind == "MemoryFormat" and missing:
        return torch.contiguous_format
    if kind == "Layout" and missing:
        return torch.sparse_coo
    if kind == "Device" and missing:
        return torch.device("meta")
    sized = _SIZED.match(kind)
    if sized is not None:
        return [1] * int(sized[1]) if missing or not v else [x + 1 for x in v]
    return absent


_SIZED = re.compile(r"(?:int|SymInt)\[(\d)\]$")


def _inputs(o: Operator) -> list[tuple[str, str]]:
    return [(a.name, a.type) for a in o.arguments if a.name not in o.out_names]


def _as(case: Case, other: Operator, results: list[Any]) -> Iterator[Case]:
    given = {a.name: v for a, v in zip(case.operator.arguments, case.values, strict=True)}
    origin = f"{case.origin} as {other.name}"
    for kind, outs in _outs(case, other, results):
        values = []
        for a in other.arguments:
            if a.name in outs:
                values.append(outs[a.name])
            elif a.name in given:
                v = given[a.name]
                values.append(_detached(v) if outs or a.written else v)
            elif a.default is not None:
                values.append(absent)
            else:
                return
        if outs or other.function.base.endswith("_"):
            values = [_detached(v) for v in values]
        yield Case(other, values, origin + kind)


def _detached(v: Any) -> Any:
    """Without a graph: autograd refuses to write into what it needs."""
    if isinstance(v, torch.Tensor):
        return v.detach() if v.requires_grad else v
    return [_detached(x) for x in v] if isinstance(v, list) else v


def _outs(case: Case, other: Operator, results: list[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What to give for the out arguments: of the right size, and empty, to be resized."""
    if not other.out_names:
        yield "", {}
        return
    if case.operator.out_names:
        return
    wanted = results
    if len(other.out_names) != len(wanted):
        return
    for kind, make in ((" into a full out", _full), (" into an empty out", _empty)):
        try:
            yield kind, {n: make(r) for n, r in zip(other.out_names, wanted, strict=True)}
        except (RuntimeError, NotImplementedError, TypeError):
            return


def _full(r: Any) -> Any:
    if isinstance(r, (list, tuple)):
        return [_full(x) for x in r]
    if r is None:
        return torch.empty(0)
    t = r.detach()
    if t.is_quantized:
        return torch.ops.aten.empty_quantized(list(t.shape), t).copy_(torch.zeros(t.shape))
    if t.layout != torch.strided or t.is_nested:
        return t.clone().zero_()
    return torch.ones_like(t)


def _empty(r: Any) -> Any:
    if isinstance(r, (list, tuple)):
        return [_empty(x) for x in r]
    if r is None:
        return torch.empty(0)
    t = r.detach()
    if t.layout != torch.strided or t.is_nested or t.is_quantized:
        raise TypeError
    return torch.empty(0, dtype=t.dtype, device=t.device)
