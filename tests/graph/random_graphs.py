"""Random graphs, held to eager PyTorch: what the types say of every variable, values and gradients.

A graph is a list of steps that is made by running them on tensors. It is then built of variables,
whose types leave some sizes open, and both run again at other sizes. A seed makes the same graph
each time:

    .venv/bin/python tests/graph/random_graphs.py 17           # one seed, told in full
    .venv/bin/python tests/graph/random_graphs.py 0:5000       # many; prints those that fail
    .venv/bin/python tests/graph/random_graphs.py 5000: 10m    # from 5000 on, for ten minutes
"""

from __future__ import annotations

import copy
import itertools
import math
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

import pytorch_bridge as pb
from pytorch_bridge import ops
from pytorch_bridge.errors import BridgeError, ContractError, InconsistencyError, MissingMethodError
from pytorch_bridge.types import TensorType

SIZES = (0, 1, 2, 3, 5, 64, 784, 6000)
LIKELY = (1, 2, 2, 3, 3, 5, 5, 8, 0, 64)
ELEMENTS = 40_000  # of any tensor
TRIES = 4  # sizes at which a graph runs, besides those that it was made with


@dataclass(frozen=True)
class Ref:
    """A result of an earlier step, or an input."""

    number: int

    def __repr__(self) -> str:
        return f"v{self.number}"


@dataclass
class Step:
    name: str  # of a native function
    args: tuple[Any, ...]
    result: int | None = None  # the number of the result, where there are several

    def run(self, library: Any, values: list[Any]) -> Any:
        found = getattr(library, self.name)(*_filled(self.args, values))
        return found if self.result is None else found[self.result]

    def __str__(self) -> str:
        which = "" if self.result is None else f"[{self.result}]"
        return f"{self.name}({', '.join(map(_shown, self.args))}){which}"


def _shown(v: Any) -> str:
    if isinstance(v, torch.Tensor):
        return f"tensor({v.tolist()})" if v.numel() < 9 else f"tensor of {tuple(v.shape)}"
    if isinstance(v, list):
        return f"[{', '.join(map(_shown, v))}]"
    return repr(v)


def _filled(v: Any, values: Any) -> Any:
    if isinstance(v, Ref):
        return values[v.number]
    if isinstance(v, (list, tuple)):
        return type(v)(_filled(x, values) for x in v)
    return v


def _refs(v: Any) -> list[int]:
    if isinstance(v, Ref):
        return [v.number]
    return [n for x in v for n in _refs(x)] if isinstance(v, (list, tuple)) else []


@dataclass
class Graph:
    seed: int
    types: list[TensorType] = field(default_factory=list)
    shapes: list[list[int]] = field(default_factory=list)  # what it was made with
    steps: list[Step] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"seed {self.seed}"]
        for i, (t, s) in enumerate(zip(self.types, self.shapes, strict=True)):
            lines.append(f"  v{i}: {t}, made with {s}")
        lines += [f"  v{len(self.types) + i} = {s}" for i, s in enumerate(self.steps)]
        return "\n".join([*lines, f"  returns {', '.join(f'v{i}' for i in self.outputs)}"])

    def run(self, library: Any, inputs: list[Any]) -> list[Any]:
        values = list(inputs)
        for step in self.steps:
            values.append(step.run(library, values))
        return values


def tensor(rng: random.Random, dtype: str, shape: list[int]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rng.getrandbits(32))
    if dtype == "int64":
        return torch.randint(-3, 4, shape, generator=generator)
    return torch.randn(shape, generator=generator, dtype=getattr(torch, dtype)).round(decimals=3)


class Maker:
    """Makes one graph, with tensors to see what is possible."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.graph = Graph(seed)
        self.values: list[torch.Tensor] = []
        self.usable: list[int] = []
        self.fresh: set[int] = set()  # memory of their own that nobody has looked at

    def make(self) -> Graph:
        rng = self.rng
        for _ in range(rng.randint(1, 3)):
            shape = [rng.choice(LIKELY) for _ in range(rng.choice((1, 2, 2, 3, 3, 4)))]
            if rng.random() < 0.3:
                shape[rng.randrange(len(shape))] = rng.choice(SIZES)
            while _elements(shape) > ELEMENTS // 8:
                shape[shape.index(max(shape))] = 2
            known = [d if rng.random() < 0.45 else None for d in shape]
            dtype = rng.choice(("float32",) * 6 + ("float64", "int64"))
            self.graph.types.append(TensorType(dtype, known))
            self.graph.shapes.append(shape)
            self._add(tensor(rng, dtype, shape), fresh=False)
        wanted = rng.randint(1, 7)
        for _ in range(60):
            if len(self.graph.steps) == wanted:
                break
            self._step()
        made = range(len(self.graph.types), len(self.values))
        ends = [i for i in self.usable if i in made] or self.usable
        last = ends[-1]
        self.graph.outputs = sorted({last, *rng.sample(ends, min(len(ends), rng.randint(0, 2)))})
        return live(self.graph)

    def _add(self, value: torch.Tensor, fresh: bool) -> None:
        self.usable.append(len(self.values))
        if fresh:
            self.fresh.add(len(self.values))
        self.values.append(value)

    def _step(self) -> None:
        rng = self.rng
        i = rng.choice(self.usable[-4:])
        kinds = [self._view] * 4 + [self._element] * 2 + [self._reduce] * 2 + [self._window] * 2
        kinds += [self._index] * 2 + [self._meet] * 4 + [self._shape] * 2
        if i in self.fresh:
            kinds += [self._in_place] * 6
        step = rng.choice(kinds)(i, self.values[i])
        if step is None:
            return
        writes = step.name.endswith("_")
        values = [v.clone() if writes and n == i else v for n, v in enumerate(self.values)]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = step.run(torch.ops.aten, values)
        except (RuntimeError, IndexError, ValueError):
            return
        if not isinstance(result, torch.Tensor) or result.numel() > ELEMENTS:
            return
        used = _refs(step.args)
        self.fresh -= set(used)
        if writes:
            self.usable.remove(i)
        self.graph.steps.append(step)
        shares = any(
            v.numel()
            and result.numel()
            and v.untyped_storage() is not None
            and v.untyped_storage().data_ptr() == result.untyped_storage().data_ptr()
            for v in values
        )
        # Where there are no elements, it cannot be told.
        self._add(result, fresh=writes or (not shares and result.numel() > 0))

    # Kinds of steps. Each gets the number of a value, and the value.
    def _dim(self, x: torch.Tensor) -> int:
        return self.rng.randrange(-x.dim(), x.dim())

    def _view(self, i: int, x: torch.Tensor) -> Step | None:
        rng, v = self.rng, Ref(i)
        n = x.dim()
        if n == 0:
            return Step(*rng.choice((("unsqueeze", (v, 0)), ("expand", (v, [3])))))
        d = self._dim(x)
        size = x.shape[d]
        bound = rng.choice((0, 1, 2, 3, 64, size, size - 1, -1, -2))
        perm = rng.sample(range(n), n)
        where = rng.choice((0, -1, 1, size // 2, size - 1))
        factor = rng.choice((1, 2, 3, 5, 64))
        length = rng.randint(0, min(size, 3))
        sizes = [rng.choice((-1, s)) if s != 1 else rng.choice((1, -1, 4)) for s in x.shape]
        return Step(
            *rng.choice(
                (
                    ("transpose", (v, d, self._dim(x))),
                    ("permute", (v, perm)),
                    ("unsqueeze", (v, d)),
                    ("squeeze", (v, d)),
                    ("select", (v, d, where)),
                    ("slice", (v, d, 0, bound)),
                    ("slice", (v, d, bound, None, rng.choice((1, 2)))),
                    ("narrow", (v, d, 0, length)),
                    ("reshape", (v, [-1, factor])),
                    ("reshape", (v, [factor, -1])),
                    ("reshape", (v, [-1])),
                    ("flatten", (v, rng.randrange(n))),
                    ("unflatten", (v, d, [-1, factor])),
                    ("unflatten", (v, d, [factor, -1])),
                    ("expand", (v, sizes)),
                    ("expand", (v, [2, *[-1] * n])),
                    ("unfold", (v, d, rng.choice((1, 2, 3)), rng.choice((1, 2)))),
                    ("diagonal", (v, rng.choice((0, 1, -1)), 0, n - 1)),
                    ("movedim", (v, d, 0)),
                    ("t", (v,)),
                    ("split", (v, rng.choice((1, 2, max(1, size))), d), 0),
                    ("chunk", (v, rng.choice((1, 2)), d), 0),
                )
            )
        )

    def _element(self, i: int, x: torch.Tensor) -> Step | None:
        rng, v = self.rng, Ref(i)
        return Step(
            *rng.choice(
                (
                    *((name, (v,)) for name in ("relu", "tanh", "sigmoid", "abs", "neg", "sin")),
                    ("clamp", (v, -1, 1)),
                    ("mul", (v, rng.choice((2, 0.5, -1)))),
                    ("add", (v, rng.choice((1, 0.25)))),
                    ("pow", (v, 2)),
                    ("gelu", (v,)),
                    ("eq", (v, 1)),
                    ("gt", (v, 0)),
                    ("masked_fill", (v, torch.tensor(True), 2)),
                )
            )
        )

    def _in_place(self, i: int, x: torch.Tensor) -> Step | None:
        rng, v = self.rng, Ref(i)
        other = Ref(rng.choice(self.usable))
        return Step(
            *rng.choice(
                (
                    ("relu_", (v,)),
                    ("add_", (v, 1)),
                    ("mul_", (v, 2)),
                    *((("add_", (v, other)), ("mul_", (v, other))) if other != v else ()),
                    ("tanh_", (v,)),
                    ("copy_", (v, other)) if other != v else ("neg_", (v,)),
                    ("fill_", (v, 3)),
                )
            )
        )

    def _reduce(self, i: int, x: torch.Tensor) -> Step | None:
        rng, v = self.rng, Ref(i)
        if x.dim() == 0:
            return Step("sum", (v,))
        d, keep = self._dim(x), rng.random() < 0.5
        dims = sorted(rng.sample(range(x.dim()), rng.randint(1, x.dim())))
        return Step(
            *rng.choice(
                (
                    ("sum", (v, dims, keep)),
                    ("mean", (v, dims, keep)),
                    ("amax", (v, dims, keep)),
                    ("sum", (v,)),
                    ("mean", (v,)),
                    ("argmax", (v, d, keep)),
                    ("prod", (v, d, keep)),
                    ("logsumexp", (v, dims, keep)),
                    ("cumsum", (v, d)),
                    ("max", (v, d, keep), 0),
                    ("sort", (v, d), 0),
                    ("topk", (v, rng.choice((1, 2)), d), 0),
                    ("softmax", (v, d)),
                    ("log_softmax", (v, d)),
                    ("any", (v, d, keep)),
                    ("layer_norm", (v, [x.shape[-1]])),
                    ("linalg_vector_norm", (v, 2, dims, keep)),
                    ("flip", (v, dims)),
                    ("roll", (v, [1], [d])),
                )
            )
        )

    def _window(self, i: int, x: torch.Tensor) -> Step | None:
        rng, v = self.rng, Ref(i)
        n = x.dim()
        if n < 2:
            return Step("constant_pad_nd", (v, [1, 2])) if n else None
        w = torch.randn(2, x.shape[1], *[2] * (n - 2), generator=torch.Generator().manual_seed(1))
        stride = rng.choice((1, 2))
        found = [
            ("constant_pad_nd", (v, [1, rng.choice((0, -1, 2))])),
            ("adaptive_avg_pool1d", (v, [2])),
        ]
        if n == 3 and x.dtype == torch.float32:
            found += [("conv1d", (v, w, None, [stride])), ("avg_pool1d", (v, [2]))]
        if n == 4 and x.dtype == torch.float32:
            found += [
                ("conv2d", (v, w, None, [stride, 1])),
                ("max_pool2d", (v, [2, 2], [stride, 2])),
                ("avg_pool2d", (v, [2, 2])),
                ("adaptive_avg_pool2d", (v, [2, 3])),
                ("group_norm", (v, rng.choice((1, 2)))),
                ("pixel_shuffle", (v, 2)),
                ("upsample_nearest2d", (v, None, [2.0, 2.0])),
                ("batch_norm", (v, None, None, None, None, True, 0.1, 1e-5, False)),
            ]
        return Step(*rng.choice(found))

    def _index(self, i: int, x: torch.Tensor) -> Step | None:
        rng, v = self.rng, Ref(i)
        if x.dim() == 0:
            return None
        d = self._dim(x)
        few = torch.tensor([0] * rng.randint(0, 3))
        return Step(
            *rng.choice(
                (
                    ("index_select", (v, d, few)),
                    ("index", (v, [few])),
                    ("index", (v, [None] * (x.dim() - 1) + [few])),
                    ("gather", (v, d, torch.zeros([1] * x.dim(), dtype=torch.int64))),
                    ("slice_scatter", (v, Ref(rng.choice(self.usable)), d, 0, 2)),
                    ("index_add", (v, d, few[:1], Ref(rng.choice(self.usable)))),
                    ("masked_fill", (v, torch.ones([1] * x.dim(), dtype=torch.bool), 1)),
                    ("tril", (v,)),
                    ("diag_embed", (v,)),
                    ("nonzero", (v,)),
                )
            )
        )

    def _meet(self, i: int, x: torch.Tensor) -> Step | None:
        rng, v = self.rng, Ref(i)
        j = rng.choice(self.usable)
        u = Ref(j)
        mine = torch.randn(
            x.shape[-1] if x.dim() else 1, 3, generator=torch.Generator().manual_seed(2)
        ).to(x.dtype)
        row = mine[:, 0]
        return Step(
            *rng.choice(
                (
                    *((name, (v, u)) for name in ("add", "sub", "mul", "maximum", "div")),
                    ("add", (v, row)),
                    ("mul", (row, v)),
                    ("where", (torch.tensor(True), v, u)),
                    ("addcmul", (v, u, row)),
                    ("lerp", (v, u, 0.5)),
                    ("matmul", (v, mine)),
                    ("matmul", (v, u)),
                    ("mm", (v, mine)),
                    ("mv", (v, row)),
                    ("linear", (v, mine.t().contiguous())),
                    ("addmm", (u, v, mine)),
                    ("einsum", ("...j,jk->...k", [v, mine])),
                    ("outer", (v, row)),
                    ("bmm", (v, u)),
                    ("floor_divide", (v, 2)),
                    ("mse_loss", (v, u, 0)),
                    ("sum_to_size", (v, [1] * x.dim())),
                    ("expand_as", (v, u)),
                    ("broadcast_tensors", ([v, u],), 0),
                )
            )
        )

    def _shape(self, i: int, x: torch.Tensor) -> Step | None:
        rng, v = self.rng, Ref(i)
        if x.dim() == 0:
            return Step("stack", ([v, v],))
        d = self._dim(x)
        u = Ref(rng.choice(self.usable))
        return Step(
            *rng.choice(
                (
                    ("cat", ([v, v], d)),
                    ("cat", ([v, u], d)),
                    ("stack", ([v, v], d)),
                    ("repeat", (v, [2, *[1] * (x.dim() - 1)])),
                    ("tile", (v, [2])),
                    ("clone", (v,)),
                    ("zeros_like", (v,)),
                    ("kron", (v, torch.ones(2, 2))),
                    ("repeat_interleave", (v, 2, d)),
                    ("pad", (v, [1, 1])),
                )
            )
        )


def live(graph: Graph) -> Graph:
    """The graph without the steps that nothing needs: they do not run, and so do not refuse."""
    n = len(graph.types)
    needed = set(graph.outputs)
    for i in reversed(range(len(graph.steps))):
        if n + i in needed:
            needed.update(_refs(graph.steps[i].args))
    became: dict[int, Ref] = {i: Ref(i) for i in range(n)}
    steps = []
    for i, step in enumerate(graph.steps):
        if n + i in needed:
            became[n + i] = Ref(n + len(steps))
            steps.append(Step(step.name, _filled(step.args, became), step.result))
    outputs = [became[i].number for i in graph.outputs]
    return Graph(graph.seed, graph.types, graph.shapes, steps, outputs)


def _elements(shape: list[int]) -> int:
    n = 1
    for d in shape:
        n *= max(d, 1)
    return n


class Fault(Exception):
    """What is wrong with a graph."""


def inputs_of(graph: Graph, rng: random.Random, shapes: list[list[int]]) -> list[torch.Tensor]:
    found = [tensor(rng, t.dtype, s) for t, s in zip(graph.types, shapes, strict=True)]
    if len(found) > 1 and rng.random() < 0.3:
        # Two inputs in the same memory, where they can be.
        for i, a in enumerate(found[1:], 1):
            b = found[0]
            if a.dtype == b.dtype and a.shape != () and a.numel() <= b.numel():
                found[i] = b.reshape(-1)[: a.numel()].view(a.shape)
    # Of its own, so that a seed goes on making the sizes and elements that it made.
    layouts = random.Random(f"{graph.seed}, {shapes}")
    return [laid_out(layouts, v) if layouts.random() < 0.3 else v for v in found]


def laid_out(rng: random.Random, value: torch.Tensor) -> torch.Tensor:
    """The same elements, with strides that are not row-major."""
    n = value.dim()
    if rng.random() < 0.3:
        return torch.stack([value, value], n)[..., 0]
    order = rng.sample(range(n), n)
    back = [order.index(d) for d in range(n)]
    return value.permute(order).contiguous().permute(back)


def other_shapes(graph: Graph, rng: random.Random) -> list[list[int]]:
    """Other sizes where they are open; often the same where they were the same."""
    became: dict[int, int] = {}
    same = rng.random() < 0.7
    shapes = []
    for t, made in zip(graph.types, graph.shapes, strict=True):
        shape = []
        for known, d in zip(t.shape or (), made, strict=True):
            other = rng.choice(SIZES[:5] if rng.random() < 0.7 else SIZES)
            if same:
                other = became.setdefault(d, other)
            shape.append(other if known is None else known)
        places = [i for i, size in enumerate(t.shape or ()) if size is None]
        while _elements(shape) > ELEMENTS // 4 and any(shape[i] > 2 for i in places):
            shape[max(places, key=lambda i: shape[i])] = 2
        shapes.append(shape)
    return shapes


def check(seed: int, modes: tuple[str, ...] = ("py",), gradients: bool = False) -> str:
    """Holds the graph of a seed to eager PyTorch; returns how that went. Fault where it fails."""
    graph = Maker(seed).make()
    rng = random.Random(seed)
    variables = [t(f"v{i}") for i, t in enumerate(graph.types)]
    try:
        built = graph.run(ops, variables)
    except MissingMethodError:
        return "no gradient"  # nor a graph: dropout and the like
    except BridgeError as e:
        return f"refused: {str(e).partition('(')[0]} {str(e).rpartition('): ')[2]}"[:160]
    outputs = [built[i] for i in graph.outputs]
    grads: list[Any] = []
    wrt: list[int] = []
    if gradients:
        try:
            grads, wrt = _gradients(graph, variables, built)
        except MissingMethodError:
            grads, wrt = [], []
    try:
        functions = [pb.function(variables, [*outputs, *grads], mode=mode) for mode in modes]
    except InconsistencyError:
        # A gradient may need what is overwritten.
        grads, wrt = [], []
        try:
            functions = [pb.function(variables, outputs, mode=mode) for mode in modes]
        except InconsistencyError:
            # What may be a view, is taken for one: einsum of a single tensor is.
            return "refused: what it overwrites may be read later"
    shapes = [graph.shapes, *(other_shapes(graph, rng) for _ in range(TRIES))]
    ran = 0
    for s in shapes:
        given = inputs_of(graph, rng, s)
        ran += _at(graph, built, functions, wrt, given, f"at {s}")
    return "fine" if ran > 1 else "fine at one size"


def _gradients(graph: Graph, variables: list[Any], built: list[Any]) -> tuple[list[Any], list[int]]:
    cost = built[graph.outputs[-1]]
    wrt = [i for i, t in enumerate(graph.types) if t.dtype and t.dtype.startswith("float")]
    if not wrt or not (cost.type.dtype or "").startswith("float") or cost.type.shape is None:
        return [], []
    found = pb.grad(
        cost, [variables[i] for i in wrt], grad_outputs=ops.ones_like(cost), allow_unused=True
    )
    pairs = [(g, i) for g, i in zip(found, wrt, strict=True) if g is not None]
    return [g for g, _ in pairs], [i for _, i in pairs]


def _at(
    graph: Graph,
    built: list[Any],
    functions: list[Any],
    wrt: list[int],
    given: list[torch.Tensor],
    where: str,
) -> bool:
    # Of their own, with all that they share: sum_to_size of one row is its input, and written into.
    leaves = [v.requires_grad_(i in wrt) for i, v in enumerate(copy.deepcopy(given))]
    expected: list[torch.Tensor] | None = None
    values: list[torch.Tensor] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values = graph.run(torch.ops.aten, leaves)
            if any(v.numel() > 40 * ELEMENTS for v in values):
                return False
            results = [values[i] for i in graph.outputs]
            expected = results + _autograd(results[-1], [leaves[i] for i in wrt])
    except (RuntimeError, IndexError, ValueError) as e:
        if "returned an invalid gradient" in str(e):
            return False  # that of pixel_shuffle is, without rows; the graph's may be right
        refusal = e
    for i, (variable, value) in enumerate(zip(built, values, strict=bool(values))):
        if not variable.type.is_valid_value(value.detach()):
            raise Fault(
                f"{where}: v{i} is typed {variable.type} and is {value.dtype} {tuple(value.shape)}"
            )
    for f in functions:
        try:
            results = f(*given)
        except Exception as e:
            # How many tensors a list has is part of a graph; whoever gives other sizes is told.
            if expected is None or (isinstance(e, ContractError) and "tensors; for" in str(e)):
                continue
            if wrt and any(
                text in str(e) for text in ("input of batch_norm", "at least one element")
            ):
                continue  # the gradient of batch_norm needs elements
            raise Fault(f"{where}, mode {f.mode}: {type(e).__name__}: {e}") from e
        if expected is None:
            raise Fault(f"{where}, mode {f.mode}: eager raises {refusal}, and the graph does not")
        for k, (a, b) in enumerate(zip(results, expected, strict=False)):
            what = f"output {k}" if k < len(graph.outputs) else f"gradient {k - len(graph.outputs)}"
            b = b.detach()
            if a.shape != b.shape or a.dtype != b.dtype:
                raise Fault(
                    f"{where}, mode {f.mode}: {what} is {a.dtype} {tuple(a.shape)}, "
                    f"eager {b.dtype} {tuple(b.shape)}"
                )
            # An input that is copied has its sums added up in another order where it has gaps.
            tolerance = 2e-4 if k >= len(graph.outputs) else 2e-5
            close = {"rtol": tolerance, "atol": tolerance}
            if not torch.allclose(a, b, equal_nan=True, **close):
                raise Fault(f"{where}, mode {f.mode}: {what} is\n{a}\neager:\n{b}")
    return expected is not None


def _autograd(cost: torch.Tensor, leaves: list[torch.Tensor]) -> list[torch.Tensor]:
    """Eager gradients; none where autograd refuses what was written into, which a graph copies."""
    if not leaves:
        return []
    try:
        found = torch.autograd.grad(cost, leaves, torch.ones_like(cost), allow_unused=True)
    except RuntimeError as e:
        if "modified by an inplace operation" not in str(e):
            raise
        return []
    return [torch.zeros_like(v) if g is None else g for g, v in zip(found, leaves, strict=True)]


def how(seed: int) -> dict[str, Any]:
    """What is checked for a seed: compiling takes time, and tracing gradients more."""
    return {"modes": ("py", "c") if seed % 16 == 0 else ("py",), "gradients": seed % 8 == 1}


def main(
    check: Callable[[int], str], made: Callable[[int], Any], argument: str, duration: str = ""
) -> int:
    """Checks the seeds that an argument names, as in `17`, `0:5000`, or `5000:` for a duration, and
    prints those that fail as they are `made`. The exit status."""
    first, colon, last = argument.partition(":")
    seconds = float(duration[:-1]) * {"s": 1, "m": 60, "h": 3600}[duration[-1]] if duration else 0
    single = not colon
    until = int(last) if last else math.inf if seconds else int(first) + 1
    if single:
        print(made(int(first)))
    went: Counter[str] = Counter()
    failed = []
    began = time.monotonic()
    for seed in itertools.count(int(first)):
        if seed >= until or (seconds and time.monotonic() - began > seconds):
            break
        try:
            result = check(seed)
        except Exception as e:
            failed.append(seed)
            result = "FAILED"
            if single and not isinstance(e, Fault):
                raise
            text = str(e) if isinstance(e, Fault) else f"{type(e).__name__}: {e}"
            print(made(seed), text, sep="\n", end="\n\n", flush=True)
        went[result] += 1
    for result, n in went.most_common():
        print(f"{n:6} {result}")
    total = sum(went.values())
    print(f"{total} graphs in {time.monotonic() - began:.0f} s, failed: {failed or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(lambda s: check(s, **how(s)), lambda s: Maker(s).make(), *sys.argv[1:]))
