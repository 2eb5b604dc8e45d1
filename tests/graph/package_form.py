"""A model as exported packages have it, run in Python: the same graph, which writes into its state and
into its arguments, without the C compiler and Go."""

from __future__ import annotations

from typing import Any

import torch

import pytorch_bridge as pb
from pytorch_bridge.packages.go_package.c_file import PackageFunction
from pytorch_bridge.packages.go_package.source import source


class PackageForm:
    """Call it with the inputs; `state` is what calls change."""

    def __init__(self, program: Any, mode: str | None = "py") -> None:
        self.source = made = source(program, None)
        PackageFunction(made.fgraph(), "f", len(made.state), len(made.hidden)).source()
        self.state = {n: made.values[n].clone() for n in made.state}
        self.function = pb.function(
            [*made.inputs, *made.state.values()],
            [*made.outputs, *made.hidden],
            mode,
            mutable=made.mutable,
        )

    def __call__(self, *inputs: Any) -> list[Any]:
        found = self.function(*inputs, *self.state.values())[: len(self.source.outputs)]
        own = {t.untyped_storage().data_ptr() for t in self.state.values() if t.numel()}
        tensors = [t for t in found if isinstance(t, torch.Tensor) and t.numel()]
        assert not any(t.untyped_storage().data_ptr() in own for t in tensors)
        return found

    def ops(self) -> set[str]:
        """The names of what the graph applies."""
        return {str(getattr(n.op, "name", n.op)) for n in self.function.fgraph.toposort()}
