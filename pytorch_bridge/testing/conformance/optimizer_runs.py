"""Runs optimisers with all options drawn at random, on parameters of all kinds.

What PyTorch's database does not have: several groups, dtypes side by side in one, complex numbers,
no elements, tensors that are not contiguous, gradients that are sparse, not finite, laid out in
another way than the parameter or missing at first; states that go from each to the other at any
step; and groups and options that come between two steps. A step that Python refuses is refused by
Go, which has then changed nothing.
"""

from __future__ import annotations

import copy
import math
import random
import warnings
from collections.abc import Callable
from typing import Any

import torch

from .harness import Harness, WrapperError
from .optimizers import GoOptimizer, options

REAL = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
COMPLEX = (torch.complex64, torch.complex128)
NOT_COMPLEX = {"Adafactor", "Muon", "SparseAdam"}
FUSED = {"Adam", "AdamW", "SGD"}
SPARSE = {"Adagrad", "SGD"}  # beside dense ones
NAMES = (
    "ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon", "NAdam", "RAdam",
    "RMSprop", "Rprop", "SGD", "SparseAdam",
)  # fmt: skip

# What Python's optimisers themselves fail with, where there is nothing to compare.
FAULTS = ("but got NoneType",)  # momenta of which some are new, in the fused kernel of SGD


def bits(t: torch.Tensor) -> tuple[Any, ...]:
    """What two tensors have in common that are the same, the sign of zero included."""
    layout = t.layout
    if layout is not torch.strided:
        t = t.coalesce().to_dense()
    t = t.detach()
    strides = tuple(s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1 and t.numel())
    parts = (torch.view_as_real(t) if t.is_complex() else t).contiguous()
    parts = torch.where(parts.isnan(), math.nan, parts)
    whole = parts.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[parts.element_size()])
    return layout, t.dtype, tuple(t.shape), strides, tuple(whole.flatten().tolist())


def plain(value: Any) -> Any:
    """A state dict to be compared: tensors by their bits, what Go does not have left out."""
    if isinstance(value, torch.Tensor):
        return bits(value)
    if isinstance(value, dict):
        # The last of them is in groups of every Python optimiser that come after a loaded state.
        left_out = ("foreach", "fused", "differentiable")
        kept = {k: plain(v) for k, v in value.items() if k not in left_out and v is not None}
        return {k: v for k, v in kept.items() if v != {}}
    return [plain(v) for v in value] if isinstance(value, (list, tuple)) else value


Group = tuple[list[torch.Tensor], dict[str, Any]]


class Draw:
    """Draws a configuration, and gradients for it."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.random = random.Random(f"{name} {seed}")
        self.generator = torch.Generator().manual_seed(seed)
        dtypes = REAL if name in NOT_COMPLEX else REAL + COMPLEX
        mixed, first = self.random.random() < 0.3, self.random.choice(dtypes)
        fused = name in FUSED and first in REAL and self.random.random() < 0.4
        self.dtypes = (REAL if fused else dtypes) if mixed else (first,)
        # Fused kernels read memory in its order, whatever the order of elements is.
        self.fused = self.dense = fused
        self.wild = self.random.random() < 0.25  # gradients that are not finite

    def some(self, chance: float) -> dict[str, Any]:
        """Some of the options."""
        r = self.random
        uniform, flag = r.uniform, lambda: r.random() < 0.4
        betas = [0.0, 0.5, 0.6, 0.9, 0.999, 1 - 1e-12, uniform(0, 1)]
        eps: Callable[[], float] = lambda: r.choice([0.0, 1e-8, 1.0, 10 ** uniform(-20, 0)])  # noqa: E731
        known: dict[str, Callable[[], Any]] = {
            "lr": lambda: r.choice([0.0, 1e-3, 1.0, 1e3, 10 ** uniform(-12, 1)]),
            "maximize": flag,
            "weight_decay": lambda: r.choice([0.0, 0.01, 3.0, uniform(0, 1)]),
        }
        if self.name in ("Adam", "AdamW", "Adamax", "NAdam", "RAdam", "SparseAdam"):
            known |= {"betas": lambda: (r.choice(betas), r.choice(betas)), "eps": eps}
        match self.name:
            case "Adam" | "AdamW":
                known["amsgrad"] = flag
            case "NAdam":
                known["momentum_decay"] = lambda: r.choice([0.0, 4e-3, uniform(0, 2)])
                known["decoupled_weight_decay"] = flag
            case "RAdam":
                known["decoupled_weight_decay"] = flag
            case "SGD":
                known["momentum"] = lambda: r.choice([0.0, 0.9, 1.5, uniform(0, 1)])
                known |= {"dampening": lambda: r.choice([0.0, uniform(0, 1)]), "nesterov": flag}
            case "ASGD":
                known["lambd"] = lambda: r.choice([0.0, 1e-4, uniform(0, 1)])
                known["alpha"] = lambda: r.choice([0.0, 0.75, 2.0])
                known["t0"] = lambda: r.choice([0.0, 1e6, 2.0, 3.5])
            case "Adadelta":
                known |= {"rho": lambda: r.choice([0.0, 0.9, 1.0, uniform(0, 1)]), "eps": eps}
            case "Adagrad":
                known |= {"lr_decay": lambda: r.choice([0.0, 10.0, uniform(0, 1)]), "eps": eps}
            case "RMSprop":
                known["alpha"] = lambda: r.choice([0.0, 0.99, 1.0, uniform(0, 2)])
                known["momentum"] = lambda: r.choice([0.0, 0.9, 2.0])
                known |= {"eps": eps, "centered": flag}
            case "Rprop":
                del known["weight_decay"]
                known["etas"] = lambda: (uniform(0.01, 0.99), uniform(1.01, 3))
                known["step_sizes"] = lambda: (r.choice([0.0, 1e-6]), r.choice([0.02, 50]))
            case "SparseAdam":
                known["eps"] = known["lr"] = lambda: 10 ** uniform(-12, 1)
                del known["weight_decay"]
            case "Muon":
                del known["maximize"]
                known["momentum"] = lambda: r.choice([0.0, 0.95, 1.0])
                known |= {"nesterov": flag, "eps": eps, "ns_steps": lambda: r.choice([0, 1, 9])}
                known["ns_coefficients"] = lambda: (uniform(1, 4), -uniform(0, 5), uniform(0, 3))
                ratios = [None, "original", "match_rms_adamw", "spectral_unclamped"]
                known["adjust_lr_fn"] = lambda: r.choice(ratios)
            case "Adafactor":
                known["beta2_decay"] = lambda: -uniform(0, 2)
                known["eps"] = lambda: (r.choice([None, 1e-30, 0.0]), r.choice([1e-3, 0.0, 1.0]))
                known["d"] = lambda: uniform(1, 5)
        found = {k: draw() for k, draw in known.items() if r.random() < chance}
        if found.get("nesterov") and self.name == "SGD":
            found |= {"momentum": found.get("momentum") or 0.9, "dampening": 0.0}
        return found

    def later(self, given: dict[str, Any]) -> None:
        """Makes options those of an added group, where what is None is the first group's."""
        if "eps" in given and self.name == "Adafactor":
            given["eps"] = tuple(1e-8 if e is None else e for e in given["eps"])
        if given.get("adjust_lr_fn", "") is None:
            del given["adjust_lr_fn"]
        if self.name == "Muon" and given.get("nesterov") is True:
            # In Go it is to leave NoNesterov out.
            del given["nesterov"]

    def group(self, least: int = 1) -> Group:
        """Parameters, and options of their own."""
        return [self.parameter() for _ in range(self.random.randint(least, 4))], self.some(0.5)

    def changed(self) -> dict[str, Any]:
        """Options that a group may get between two steps."""
        found = self.some(0.3)
        for made_before_the_first_step in ("amsgrad", "centered"):
            found.pop(made_before_the_first_step, None)
        if self.name == "RMSprop":
            found.pop("momentum", None)  # as these
        return found

    def tensor(self, shape: tuple[int, ...], dtype: torch.dtype, wild: bool) -> torch.Tensor:
        r = self.random
        whole = torch.complex128 if dtype.is_complex else torch.float64
        t = torch.randn(shape, generator=self.generator, dtype=whole) * 10 ** r.uniform(-4, 4)
        if t.numel() and r.random() < 0.4:
            odd = [0.0, -0.0, *([math.inf, -math.inf, math.nan, 1e-40, 1e300] * wild)]
            t.view(-1)[r.randrange(t.numel())] = r.choice(odd)
        t = t.to(dtype)
        if not self.dense and t.dim() == 2 and r.random() < 0.2:
            return t.t().contiguous().t()
        if not self.dense and r.random() < 0.1:
            return torch.stack([t, t], -1)[..., 0]
        return t

    def parameter(self) -> torch.Tensor:
        shapes: list[tuple[int, ...]] = [(4, 5), (7,), (2, 3, 2), (), (1,), (17, 9)]
        empty: list[tuple[int, ...]] = [(0,), (3, 0)]
        if self.name == "Muon":
            shapes, empty = [(4, 5), (7, 3), (1, 1), (6, 6)], []
        if self.name == "SparseAdam":
            shapes.remove(())
        if self.name == "Adafactor":
            empty = []  # Python divides by zero
        return self.tensor(
            self.random.choice(shapes + empty), self.random.choice(self.dtypes), False
        )

    def gradient(self, p: torch.Tensor, sparse: bool) -> torch.Tensor | None:
        r = self.random
        if r.random() < 0.2:
            return None
        shape = tuple(p.shape)
        if not sparse or not shape:
            return self.tensor(shape, p.dtype, self.wild)
        indexed = shape[: r.randint(1, len(shape))]
        count = 0 if 0 in indexed else r.choice([0, 1, 5])
        places = [torch.randint(max(n, 1), (count,), generator=self.generator) for n in indexed]
        values = self.tensor((count, *shape[len(indexed) :]), p.dtype, self.wild).contiguous()
        return torch.sparse_coo_tensor(torch.stack(places), values, shape)


def like(t: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides."""
    if t.layout is not torch.strided:
        return t.clone()
    return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype).copy_(t)


class Runs:
    """Runs configurations with one harness; says how many were compared to their end."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.passed = self.refused = 0

    def run(self, name: str, configurations: int, seed: int = 0) -> list[str]:
        """Runs that many configurations of an optimiser; returns what differs."""
        problems = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for at in range(seed, seed + configurations):
                draw = Draw(name, at)
                groups = [draw.group() for _ in range(draw.random.choice([1, 1, 2, 3]))]
                for _, given in groups[1:]:
                    draw.later(given)
                if problem := self._one(draw, groups):
                    problems.append(f"{name} #{at} {[o for _, o in groups]}: {problem}")
        return problems

    def _one(self, draw: Draw, groups: list[Group]) -> str:
        r, cls = draw.random, getattr(torch.optim, draw.name)
        theirs, ours = ([[like(p).requires_grad_() for p in ps] for ps, _ in groups] for _ in "ab")
        if draw.fused:
            for _, given in groups:
                given["fused"] = r.random() < 0.7
        sparse = draw.name == "SparseAdam" or (draw.name in SPARSE and r.random() < 0.2)

        def python() -> Any:
            if draw.name == "Adagrad":  # which makes no state for groups that are added
                every = zip(theirs, groups, strict=True)
                return cls([{"params": ps, **groups[0][1], **o} for ps, (_, o) in every])
            opt = cls(theirs[0], **groups[0][1])
            for ps, (_, o) in zip(theirs[1:], groups[1:], strict=True):
                opt.add_param_group({"params": ps, **o})
            return opt

        def go() -> GoOptimizer:
            given = [options(draw.name, o) for _, o in groups]
            opt = GoOptimizer(self.harness, draw.name, ours[0], given[0])
            for ps, o in zip(ours[1:], given[1:], strict=True):
                opt.add_group(ps, o)
            return opt

        def states() -> str:
            """What differs between the state dicts."""
            if any(x.layout is not torch.strided for x in tensors(py.state_dict())):
                return ""  # Go does not save these
            wanted, got = plain(py.state_dict()), plain(mine.state_dict())
            return "" if wanted == got else f"the state is {different(got, wanted)}"

        py, mine = python(), go()
        flat = [p for ps in theirs for p in ps], [p for ps in ours for p in ps]
        for step in range(r.choice([3, 6, 12])):
            if r.random() < 0.2 and not sparse:
                if problem := states():
                    return f"before step {step}: {problem}"
                saved = copy.deepcopy(py.state_dict()), mine.state_dict()
                if r.random() < 0.5:
                    for n in range(len(groups)):
                        changed = draw.changed()
                        if draw.fused:
                            changed["fused"] = r.random() < 0.7
                        for state in saved:
                            state["param_groups"][n] |= changed
                if r.random() < 0.8:
                    py, mine = python(), go()
                py.load_state_dict(saved[1])
                mine.load_state_dict(saved[0])
            if r.random() < 0.15 and len(groups) < 5:
                ps, o = draw.group(least=0)
                draw.later(o)
                if draw.fused:
                    o["fused"] = r.random() < 0.7
                groups.append((ps, o))
                for all_of in (theirs, ours):
                    all_of.append([like(p).requires_grad_() for p in ps])
                added = {"params": theirs[-1], **o}
                if draw.name == "Adagrad":
                    added = {**groups[0][1], **added}
                    py.state.update(cls([dict(added)]).state)
                py.add_param_group(added)
                mine.add_group(ours[-1], options(draw.name, o))
                flat = [p for ps in theirs for p in ps], [p for ps in ours for p in ps]
            for a, b in zip(*flat, strict=True):
                a.grad = draw.gradient(a, sparse)
                b.grad = None if a.grad is None else like(a.grad)
            before = [bits(b) for b in flat[1]]
            try:
                py.step()
            except (RuntimeError, TypeError) as err:
                if any(fault in str(err) for fault in FAULTS):
                    return ""
                try:
                    mine.step()
                except WrapperError as got:
                    self.refused += 1
                    if before == [bits(b) for b in flat[1]]:
                        return ""
                    return f"a step that was refused, {got}, has changed something"
                return f"step {step} is not refused, as in Python: {err}"
            mine.step()
            for i, (a, b) in enumerate(zip(*flat, strict=True)):
                if bits(a) != bits(b):
                    return f"parameter {i} after step {step} is {b}, not {a}"
                if a.grad is not None and bits(a.grad) != bits(b.grad):
                    return f"the gradient {i} has changed in step {step}"
        self.passed += 1
        return states()


def different(got: Any, wanted: Any) -> str:
    """The first part of a state dict in which two differ."""
    both = list if isinstance(got, list) and isinstance(wanted, list) else dict
    if isinstance(got, both) and isinstance(wanted, both) and len(got) == len(wanted):
        for key in range(len(got)) if both is list else got:
            if both is dict and key not in wanted:
                break
            if got[key] != wanted[key]:
                return f"{key}: {different(got[key], wanted[key])}"
    return f"{got}, not {wanted}"


def tensors(value: Any) -> list[torch.Tensor]:
    """All tensors in a state dict."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors(v)]
    return [value] if isinstance(value, torch.Tensor) else []
