"""Random writes into parts of tensors, as a functional program has them, held to eager PyTorch.

.venv/bin/python tests/graph/written_parts.py 0:5000       # seeds; prints those that fail
.venv/bin/python tests/graph/written_parts.py 0:500 c      # compiled
"""

from __future__ import annotations

import random
import sys
from typing import Any

import torch

from pytorch_bridge import TensorType, function, ops
from pytorch_bridge.aliasing.partial_writes import Written
from pytorch_bridge.graph.basic import Variable
from pytorch_bridge.ops.native import constant

DTYPES = ("float32", "float32", "float64", "int64", "bool", "float16", "complex64")
SIZES = (0, 1, 2, 3, 3, 4, 5)


class Maker:
    """A graph, made with an example of each value."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.inputs: list[Variable] = []
        self.args: list[torch.Tensor] = []
        self.example: dict[Variable, Any] = {}

    def tensor(self, shape: Any, dtype: str) -> torch.Tensor:
        made = torch.randn(tuple(shape), generator=self.generator) * 3
        return made.to(getattr(torch, dtype))

    def given(self, value: torch.Tensor) -> Variable:
        """An input; some of its sizes are open."""
        shape = [None if self.rng.random() < 0.4 else d for d in value.shape]
        v = TensorType(value.dtype, shape)(f"x{len(self.inputs)}")
        self.inputs.append(v)
        self.args.append(value)
        self.example[v] = value
        return v

    def call(self, name: str, *args: Any) -> Variable:
        """The application of a function, which runs on the examples, too."""
        base, _, overload = name.partition(".")
        run = getattr(getattr(torch.ops.aten, base), overload or "default")
        value = run(*(self.example[a] if isinstance(a, Variable) else a for a in args))
        v = getattr(getattr(ops, base), overload or "default")(*args)
        self.example[v] = value
        return v

    def base(self) -> Variable:
        rng = self.rng
        dtype = rng.choice(DTYPES)
        shape = [rng.choice(SIZES) for _ in range(rng.choice((1, 2, 2, 3)))]
        kind = rng.randrange(10)
        value = self.tensor(shape, dtype)
        if kind == 0:
            return self.given(value)
        if kind == 1:
            v = constant(value)
            self.example[v] = value
            return v
        if kind == 2:  # elements that overlap
            one = self.call("clone", self.given(value[:1]))
            return self.call("expand", one, [*shape])
        if kind == 3 and dtype == "complex64":
            return self.call(
                rng.choice(("_conj", "_neg_view")), self.call("mul.Scalar", self.given(value), 2)
            )
        own = self.call("clone", self.given(value))
        if dtype not in ("bool",):
            own = self.call("mul.Scalar", own, 2)
        if kind == 4:
            return self.call("transpose.int", own, 0, -1)
        if kind == 5:
            return self.call("slice.Tensor", own, rng.randrange(len(shape)), 1, 2**63 - 1, 2)
        if kind == 6:
            return self.call("contiguous", own)
        return own

    def where(self, v: Variable) -> tuple[str, str, tuple[Any, ...]]:
        """A way to write into a part of a tensor: the view, the function, what both are told."""
        rng, x = self.rng, self.example[v]
        kinds = ["slice"] * 4
        if x.dim() > 1:
            kinds.append("diagonal")
        nonempty = [d for d in range(x.dim()) if x.shape[d]]
        if nonempty and x.dim() > 1:
            kinds += ["select"] * 2
        if x.is_contiguous() and x.numel() > 3 and not x.storage_offset():
            kinds.append("as_strided")
        kind = rng.choice(kinds) if x.dim() else ""
        if kind == "select":
            d = rng.choice(nonempty)
            return "select.int", "select_scatter", (d, rng.randrange(x.shape[d]))
        if kind == "diagonal":
            return "diagonal", "diagonal_scatter", (rng.choice((-1, 0, 1)), 0, 1)
        if kind == "as_strided":
            return "as_strided", "as_strided_scatter", ([2], [2], rng.choice((0, 1)))
        d = rng.randrange(-x.dim(), x.dim())
        size = x.shape[d]
        start = rng.choice((None, 0, 0, 1, -1, 2))
        end = rng.choice((None, 2**63 - 1, 2**63 - 1, size, -1, 2))
        return "slice.Tensor", "slice_scatter", (d, start, end, rng.choice((1, 1, 1, 2)))

    def source(self, part: Variable) -> Variable:
        """What is written into a part."""
        rng, x = self.rng, self.example[part]
        dtype = str(x.dtype).removeprefix("torch.")
        kind = rng.randrange(8)
        number = dtype != "bool"
        if kind == 0:
            other = rng.choice((dtype, dtype, "float64", "int64"))
            if dtype == "complex64" or other == dtype:
                return self.given(self.tensor(x.shape, other))
            return self.given(self.tensor(x.shape, dtype))
        if kind == 1:
            small = x.shape[1:] if rng.random() < 0.5 else [rng.choice((1, d)) for d in x.shape]
            return self.call("copy", part, self.given(self.tensor(small, dtype)))
        if kind == 2:
            return self.call("fill.Scalar", part, 1)
        if kind == 3:
            return self.call("copy", part, part)
        if kind == 4 or not number:
            return part
        if kind == 5:
            return self.call(rng.choice(("add.Tensor", "mul.Tensor")), part, part)
        if kind == 6 and x.is_floating_point():
            return self.call(rng.choice(("exp", "relu", "neg")), part)
        other = self.given(self.tensor(rng.choice((x.shape, x.shape[1:])), dtype))
        return self.call(rng.choice(("add.Tensor", "mul.Tensor", "sub.Tensor")), part, other)

    def write(self, x: Variable) -> tuple[Variable, list[Variable]]:
        """x with a part written, and the parts on the way."""
        rng, parts, ways = self.rng, [x], []
        for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3))):
            if not self.example[parts[-1]].dim():
                break
            view, scatter, told = self.where(parts[-1])
            parts.append(self.call(view, parts[-1], *told))
            ways.append((scatter, told))
        source = parts[-1]
        if ways and rng.random() < 0.2:  # another part of the same size
            view, _, told = self.where(parts[-2])
            other = self.call(view, parts[-2], *told)
            if self.example[other].shape == self.example[source].shape:
                source = other
        found = self.source(source) if ways else self.call("copy", x, self.source(x))
        for part, (scatter, told) in reversed(list(zip(parts, ways, strict=False))):
            found = self.call(scatter, part, found, *told)
        return found, parts

    def make(self) -> list[Variable]:
        """The outputs."""
        rng = self.rng
        x = self.base()
        outputs = []
        for _ in range(rng.randint(1, 4)):
            before = x
            x, parts = self.write(x)
            if rng.random() < 0.2:  # somebody else reads what was there
                outputs.append(self.call("alias", rng.choice([before, *parts])))
            if rng.random() < 0.2:
                outputs.append(self.call("sum", rng.choice([before, *parts])))
        return [*outputs, x]


def facts(v: torch.Tensor) -> tuple[Any, ...]:
    content = v.resolve_conj().resolve_neg().numpy().tobytes()
    # `copy` gives what has no memory the offset 0, where it would have kept it otherwise.
    offset = v.storage_offset() if v.numel() else 0
    return v.dtype, v.shape, v.stride(), offset, v.is_conj(), v.is_neg(), content


def check(seed: int, mode: str = "py") -> tuple[int, int]:
    """How many writes the compiled graph has, and how many of them are in place. AssertionError
    where anything differs from what PyTorch's functions give one after the other."""
    maker = Maker(seed)
    outputs = maker.make()
    plain = function(maker.inputs, outputs, mode="py", rewrite=False)
    f = function(maker.inputs, outputs, mode=mode)
    for times in (1, 2):
        args = [(a * times).to(a.dtype) if times > 1 else a.clone() for a in maker.args]
        given = [facts(a) for a in args]
        want, got = plain(*args), f(*args)
        assert [facts(v) for v in got] == [facts(v) for v in want], f.fgraph
        assert [facts(a) for a in args] == given, f.fgraph
        if times == 1:
            # A result is the caller's: writing into it changes nothing else.
            assert [facts(v)[-1] for v in got] == [facts(maker.example[v])[-1] for v in outputs]
    ops_of = [n.op for n in f.fgraph.toposort() if isinstance(n.op, Written)]
    return len(ops_of), sum(op.in_place for op in ops_of)


def main(seeds: str, mode: str = "py") -> int:
    start, end = map(int, seeds.split(":"))
    failed, total, here = 0, 0, 0
    for seed in range(start, end):
        try:
            n, m = check(seed, mode)
            total, here = total + n, here + m
        except Exception as e:
            failed += 1
            print(seed, type(e).__name__, str(e)[:600])
    print(f"{end - start} graphs, {total} writes, {here} in place, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
