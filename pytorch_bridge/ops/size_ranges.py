"""What torch.export says of the sizes of a program's inputs: which are multiples of one another,
and between which bounds they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from .checks import SizeRule

_UNBOUNDED = 1 << 62


def sizes_of(value: Any) -> Iterable[tuple[int | None, Any]]:
    """The sizes of what an input is like, with their dimensions; None for a number."""
    import torch

    if isinstance(value, torch.Tensor):
        return enumerate(value.shape)
    return [(None, value)] if isinstance(value, torch.SymInt) else []


def size_rules(nodes: Sequence[Any], ranges: Mapping[Any, Any]) -> Iterator[SizeRule]:
    """What is known about the sizes of inputs, which stand for their placeholders."""
    import torch

    places: dict[Any, list[SizeRule]] = {}
    for i, node in enumerate(nodes):
        for dim, size in sizes_of(node.meta.get("val")):
            if not isinstance(size, torch.SymInt):
                continue
            parts = linear(size.node.expr)
            if parts is None:
                continue
            symbol, scale, offset = parts
            low, high = bounds(ranges.get(size.node.expr))
            mine = places.setdefault(symbol, [])
            rule = SizeRule(i, dim, f"n{len(places)}", scale, offset, low, high)
            if mine:
                rule = rule._replace(symbol=mine[0].symbol)
            mine.append(rule)
    for mine in places.values():
        # The symbol itself says best what it is.
        mine.sort(key=lambda rule: (rule.scale, rule.offset) != (1, 0))
        first = mine[0] = _bounded(mine[0], mine[1:])
        if len(mine) > 1 or (first.low, first.high, first.scale) != (None, None, 1):
            yield from mine


def _bounded(first: SizeRule, others: Sequence[SizeRule]) -> SizeRule:
    """The first rule of a symbol, with the bounds of the others, which follow it. They can be
    narrower than its own: twice a size that is at least 2 is at least 4, which does not stand for
    any."""
    low, high = first.low, first.high
    for rule in others:
        if rule.low is not None:
            least = -((rule.offset - rule.low) // rule.scale) * first.scale + first.offset
            low = least if low is None else max(low, least)
        if rule.high is not None:
            most = (rule.high - rule.offset) // rule.scale * first.scale + first.offset
            high = most if high is None else min(high, most)
    return first._replace(low=low, high=high)


def linear(expression: Any) -> tuple[Any, int, int] | None:
    """The symbol, the factor and the rest of an expression of one symbol; None of another."""
    import sympy

    if not isinstance(expression, sympy.Expr) or len(expression.free_symbols) != 1:
        return None
    (symbol,) = expression.free_symbols
    expanded = sympy.expand(expression)
    scale, offset = expanded.coeff(symbol, 1), expanded.coeff(symbol, 0)
    if not (scale.is_Integer and offset.is_Integer and scale > 0):
        return None
    if sympy.expand(scale * symbol + offset - expanded) != 0:
        return None
    return symbol, int(scale), int(offset)


def bounds(found: Any) -> tuple[int | None, int | None]:
    """The least and the greatest size of a range, None where there is none. As in torch.export, a
    least size of 2 or less is none: it stands for any."""
    if found is None:
        return None, None

    def number(bound: Any) -> int | None:
        try:
            n = int(bound)
        except (TypeError, ValueError, OverflowError, AttributeError):
            return None
        return n if abs(n) < _UNBOUNDED else None

    low, high = number(found.lower), number(found.upper)
    return (low if low is not None and low > 2 else None), high
