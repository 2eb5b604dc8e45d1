"""Operators that are registered with torch.library, as ops: Python calls them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import MissingMethodError
from ..graph.basic import Apply, Variable
from ..types import Type
from .native import IN
from .op import Op, Storage, parameter_key


class LibraryOp(Op):
    """An overload, `torch.ops.mylib.f.default`, with its arguments; IN stands for an input of the
    node.

    It runs in the interpreter, so a graph with it cannot leave Python.
    """

    def __init__(self, overload: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        import torch

        self.overload = overload
        self.args, self.kwargs = args, dict(kwargs)
        self.name = f"{overload._schema.name}.{overload._overloadname}"
        self.random = torch.Tag.nondeterministic_seeded in overload.tags
        self._key = (self.name, parameter_key(args), parameter_key(self.kwargs))
        self.view_map, self.destroy_map = self._memory()

    @classmethod
    def of(cls, overload: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> LibraryOp:
        """The op for the arguments of a call."""
        op = cls(overload, _template(args), _template(dict(kwargs)))
        try:
            hash(op)
        except TypeError as e:
            raise MissingMethodError(f"{op.name}: a parameter cannot be compared: {e}") from e
        return op

    def _parameters(self) -> tuple[Any, ...]:
        return self._key

    def _memory(self) -> tuple[dict[int, list[int]], dict[int | None, list[int]]]:
        """What results are views of, and what is written into, by the marks of the schema."""
        schema = self.overload._schema
        places: dict[int, list[int]] = {}
        n = 0
        for i, argument in enumerate(schema.arguments):
            value = self.args[i] if i < len(self.args) else self.kwargs.get(argument.name)
            count = sum(x is IN for x in _flat(value))
            places[i] = list(range(n, n + count))
            n += count
        views: dict[int, list[int]] = {}
        written: list[int] = []
        for i, argument in enumerate(schema.arguments):
            info = argument.alias_info
            if info is None:
                continue
            if info.is_write:
                written += places[i]
                continue
            for o, result in enumerate(schema.returns):
                if result.alias_info is not None and (
                    info.before_set & result.alias_info.before_set
                ):
                    views.setdefault(o, []).extend(places[i])
        return views, {None: written} if written else {}

    def node(
        self, types: Sequence[Type], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Apply:
        """The call as a node whose results have these types."""
        inputs = [v for v in _flat((args, dict(kwargs))) if isinstance(v, Variable)]
        return Apply(self, inputs, [t.make_variable() for t in types])

    def perform(
        self, node: Apply, inputs: Sequence[Any], output_storage: Sequence[Storage]
    ) -> None:
        values = iter(inputs)
        result = self.overload(*_filled(self.args, values), **_filled(self.kwargs, values))
        results = result if isinstance(result, (tuple, list)) else [result]
        for storage, value in zip(output_storage, results, strict=True):
            storage[0] = value


def _template(value: Any) -> Any:
    if isinstance(value, Variable):
        return IN
    if isinstance(value, (list, tuple)):
        return tuple(map(_template, value))
    if isinstance(value, dict):
        return {k: _template(v) for k, v in value.items()}
    return value


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [x for v in value for x in _flat(v)]
    return [value]


def _filled(value: Any, values: Any) -> Any:
    if value is IN:
        return next(values)
    if isinstance(value, tuple):
        return [_filled(v, values) for v in value]
    if isinstance(value, dict):
        return {k: _filled(v, values) for k, v in value.items()}
    return value
