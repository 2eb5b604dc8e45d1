"""The helpers that code written for Numba's builder knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..types.base import Type
from .builder import CBuilder, Value
from .context import Context, StructProxy


def create_struct_proxy(typ: Type) -> Callable[..., StructProxy]:
    """`create_struct_proxy(typ)(context, builder, value=v)`: its members are attributes."""

    def make(context: Context, builder: CBuilder, value: Value | None = None) -> StructProxy:
        return StructProxy(context, builder, typ, value)

    return make


def is_null(builder: CBuilder, value: Value) -> Value:
    """value == NULL"""
    return Value(builder, f"({value.text} == NULL)", "bool")


def is_not_null(builder: CBuilder, value: Value) -> Value:
    """value != NULL"""
    return Value(builder, f"({value.text} != NULL)", "bool")


def if_likely(builder: CBuilder, condition: Value) -> Any:
    """builder.if_(condition)"""
    return builder.if_(condition)


if_unlikely = if_likely
