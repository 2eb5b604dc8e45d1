"""The functions: their schemas, the Go wrappers, and the same function in torch.ops."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import torch

from pytorch_bridge.codegen.api import Wrapped, resolve
from pytorch_bridge.schema import Argument, Names, SchemaFunction, load_reference


@dataclass(frozen=True)
class Operator:
    """A function that Go has."""

    op: Wrapped
    index: int  # in the harness's table

    @property
    def name(self) -> str:
        """The schema's name, "add_.Tensor"."""
        return self.op.function.name

    @property
    def function(self) -> SchemaFunction:
        return self.op.function

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        return self.op.function.arguments

    @cached_property
    def returns(self) -> tuple[str, ...]:
        return tuple(r.type for r in self.op.function.returns)

    @cached_property
    def options(self) -> tuple[bool, ...]:
        """Which of the arguments are fields of the options struct."""
        return tuple(p.option is not None for p in self.op.parameters)

    @cached_property
    def method(self) -> bool:
        return self.op.method

    @cached_property
    def oracle(self) -> Any:
        """The function in torch.ops."""
        packet = getattr(torch.ops.aten, self.function.base)
        return getattr(packet, self.function.overload or "default")

    @cached_property
    def random(self) -> bool:
        return "nondeterministic_seeded" in self.function.tags or any(
            a.type.startswith("Generator") for a in self.arguments
        )

    @cached_property
    def out_names(self) -> tuple[str, ...]:
        return tuple(a.name for a in self.function.parsed.arguments.out)

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def __hash__(self) -> int:
        return self.index

    def __eq__(self, other: object) -> bool:
        return self is other


@cache
def operators() -> dict[str, Operator]:
    """Every function that Go has, by schema name, in the order of the harness's table."""
    found: dict[str, Operator] = {}
    for op in resolve(load_reference(), Names()):
        if op.go is not None:
            found[op.function.name] = Operator(op, len(found))
    return found


@cache
def public() -> list[Operator]:
    """Those without a leading underscore in PyTorch."""
    return [o for o in operators().values() if not o.function.private]


@cache
def overloads() -> dict[str, list[Operator]]:
    """The overloads of each base name, as far as Go has them."""
    found: dict[str, list[Operator]] = defaultdict(list)
    for o in operators().values():
        found[o.function.base].append(o)
    return dict(found)


@cache
def _groups() -> dict[Any, list[Operator]]:
    found: dict[Any, list[Operator]] = defaultdict(list)
    for o in operators().values():
        found[o.function.parsed.signature()].append(o)
    return dict(found)


@cache
def siblings(o: Operator) -> list[Operator]:
    """The other forms of a function: functional, in-place, out=, and the copying form of a view."""
    found = [s for s in _groups()[o.function.parsed.signature()] if s is not o]
    copy = operators().get(
        f"{o.function.base}_copy" + (f".{o.function.overload}" if o.function.overload else "")
    )
    if copy is not None and [a.name for a in copy.arguments] == [a.name for a in o.arguments]:
        found += [copy, *(s for s in siblings(copy))]
    return found
