"""Runs the optimisers of package optim on the configurations of PyTorch's own optimiser database.

Python and Go each have a copy of the parameters, whose gradients are set from outside, the same for
both: so that a difference is the optimiser's. In the middle of the run the state goes from each to
a new optimiser of the other. Runs with a closure let Go call a function of Python, which computes
loss and gradients of whichever copy it is for.
"""

from __future__ import annotations

import ctypes
import inspect
import random
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch

from pytorch_bridge.native.extension import to_handle
from pytorch_bridge.schema.names import Names
from pytorch_bridge.schema.python_api import python_api

from .check import SEED
from .harness import Broken, GoCrash, Harness, Request, WrapperError
from .modules import COMPILED, FORGET, Tally, differ

MAKE, STEP, ZERO_GRAD, SAVE, LOAD = range(-30, -35, -1)

ADD_GROUP, STEP_WITH, NAME_PARAMS = -35, -36, -37

STEPS = 30
CLOSURE_STEPS = 6
MANY = 20  # configurations of LBFGS at random, with each of which all functions are tried

_CLOSURE = ctypes.CFUNCTYPE(ctypes.c_int64)

# Arguments that Go does not have, with the reason.
LEFT_OUT = {
    "foreach": "Go computes in foreach functions as it is; Python runs with and without them",
    "capturable": "for CUDA graphs, which Go does not record",
    "differentiable": "steps are not recorded by autograd in Go",
    "params": "the parameters",
}


# What Python does not take together with foreach=True.
ALONE = {"foreach", "fused", "capturable", "differentiable"}

# Whose steps PyTorch itself computes in another order with foreach=True, which is not its default
# for tensors of the CPU. Go has the bits of the default. In bfloat16 more of them round in between.
OTHERWISE = {"ASGD", "Adafactor", "NAdam", "RAdam"}

# Those that compute with a learning rate in a tensor in the tensor's dtype.
ROUNDED = {"LBFGS", "Muon", "SparseAdam"}

# Why what Python refuses is not tried.
FOREACH = (
    "a learning rate or betas in tensors together with `foreach=True`, which Python refuses: in Go "
    "they are numbers, and there is no such argument"
)


@cache
def database() -> dict[str, Any]:
    """PyTorch's optimisers, by class name."""
    from torch.testing._internal.common_optimizers import optim_db

    return {o.optim_cls.__name__: o for o in optim_db}


class GoOptimizer:
    """An optimiser that Go has made."""

    def __init__(
        self, harness: Harness, name: str, params: list[torch.Tensor], options: dict[str, Any]
    ) -> None:
        self.harness, self.number = harness, 0
        request = Request([MAKE, 0, 0])
        request.text_only(name)
        request.invocation([params], options)
        self.number = harness.send(request)[0][0]

    def __del__(self) -> None:
        if self.number:
            self.harness.send(Request([FORGET, 0, 0, self.number]))

    def add_group(self, params: list[torch.Tensor], options: dict[str, Any]) -> None:
        """Adds a group; a false bool, which is left out of Go's options, is set in the group."""
        request = Request([ADD_GROUP, 0, 0, self.number])
        request.invocation([params], options)
        request.text_only("\n".join(name for name, value in options.items() if value is False))
        self.harness.send(request)

    def name(self, names: list[str | None]) -> None:
        """Gives the parameters of all groups their names."""
        request = Request([NAME_PARAMS, 0, 0, self.number])
        request.text_only("\n".join(name or "" for name in names))
        self.harness.send(request)

    def step(self) -> None:
        self.harness.send(Request([STEP, 0, 0, self.number]))

    def step_with(self, closure: Callable[[], torch.Tensor]) -> None:
        raised: list[BaseException] = []

        @_CLOSURE
        def call() -> int:
            try:
                assert torch.is_grad_enabled()
                return to_handle(closure())
            except BaseException as err:
                raised.append(err)
                return 0

        address = ctypes.cast(call, ctypes.c_void_p).value or 0
        try:
            self.harness.send(Request([STEP_WITH, 0, 0, self.number, address]))
        except GoCrash:
            if raised:
                raise raised[0] from None
            raise

    def _file(self, what: int, path: Path) -> None:
        request = Request([what, 0, 0, self.number])
        request.text_only(str(path))
        self.harness.send(request)

    def state_dict(self) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "state.pt"
            self._file(SAVE, path)
            return torch.load(path, weights_only=True)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "state.pt"
            torch.save(state, path)
            self._file(LOAD, path)


def bowl(params: list[torch.Tensor]) -> torch.Tensor:
    """A quadratic function with different curvatures."""
    squares = [(p * p.conj()).real for p in params]
    return sum((s * torch.arange(1, s.numel() + 1).to(s.dtype).view_as(s)).sum() for s in squares)


def valley(params: list[torch.Tensor]) -> torch.Tensor:
    """Rosenbrock's function."""
    x = torch.cat([p.reshape(-1) for p in params])
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def cliff(params: list[torch.Tensor]) -> torch.Tensor:
    """A function that is not a number beyond a wall."""
    return sum((p**2).sum() - 0.1 * (4 - p).log().sum() for p in params)


def slope(params: list[torch.Tensor]) -> torch.Tensor:
    """A function without a minimum, nearly flat far out."""
    return sum((p.atan() + p * 1e-3).sum() for p in params)


LOSSES = [bowl, valley, cliff, slope]


def searched(draw: random.Random) -> dict[str, Any]:
    """Options of LBFGS, drawn at random."""
    choices: dict[str, list[Any]] = {
        "lr": [1.0, 0.5, 1e-3, 0.0, 30.0, draw.uniform(0, 2)],
        "max_iter": [0, 1, 2, 7, 20],
        "max_eval": [
            1,
            3,
            25,
            40,
        ],  # with 0 Python's line search uses a variable that it has not set
        "tolerance_grad": [0.0, 1e-5, 1e-2, 1.0],
        "tolerance_change": [0.0, 1e-5, 1e-2, -1.0],
        "history_size": [1, 2, 5],
        "line_search_fn": ["strong_wolfe", "strong_wolfe", None, "armijo"],
    }
    found = {k: draw.choice(v) for k, v in choices.items() if draw.random() < 0.4}
    if found.get("line_search_fn") == "armijo" and draw.random() < 0.8:
        del found["line_search_fn"]
    return found


def options(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """The options of a Go constructor for arguments in Python."""
    known = {a.name: a for a in python_api()[f"torch.optim.{name}"].arguments or ()}
    out = {}
    for key, value in given.items():
        if key in LEFT_OUT or value is None:
            continue
        assert key in known, key
        if isinstance(value, torch.Tensor) and value.numel() == 1:
            value = value.item()  # a learning rate in a tensor is a number in Go
        argument = known[key]
        name = Names().field(key)
        if argument.default is True:
            name, value = f"No{name}", not value
        out[name] = value
    return out


class Optimizers:
    """Runs configurations with one harness."""

    def __init__(self, harness: Harness, searches: int = 6) -> None:
        self.harness = harness
        self.tallies: dict[str, Tally] = {}
        self.searches = searches

    def run(self, name: str, dtypes: tuple[torch.dtype, ...]) -> list[str]:
        """Runs all configurations of an optimiser; returns what differs."""
        info = database()[name]
        tally = self.tallies.setdefault(name, Tally())
        before = len(tally.problems)
        fused: list[dict[str, Any]] = [{}]
        if "fused" in _fields(name):
            fused.append({"fused": True})
        if "foreach" in inspect.signature(info.optim_cls).parameters and name not in OTHERWISE:
            fused.append({"foreach": True})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for dtype in dtypes:
                self._with_closures(tally, info, dtype)
                if info.step_requires_closure:
                    self._errors(tally, info, dtype)
                    continue
                for at, kwargs in enumerate(_configurations(info)):
                    for more in fused:
                        apart = bool(kwargs.keys() & ALONE) or dtype == torch.bfloat16
                        if "foreach" in more and apart:
                            continue
                        origin = f"{name} {dtype} #{at} {kwargs} {more}"
                        try:
                            problem = self._one(info.optim_cls, {**kwargs, **more}, dtype)
                        except (GoCrash, Broken, WrapperError) as err:
                            problem = f"{type(err).__name__}: {err}".splitlines()[0]
                        if problem:
                            tally.problems.append(f"{origin}: {problem}")
                        else:
                            tally.passed += 1
                self._errors(tally, info, dtype)
        return tally.problems[before:]

    def _one(self, cls: Any, kwargs: dict[str, Any], dtype: torch.dtype) -> str:
        generator = torch.Generator().manual_seed(SEED)

        def numbers(*shape: int) -> torch.Tensor:
            plain = dtype.to_complex() if dtype.is_complex else torch.float64
            return torch.randn(shape, generator=generator, dtype=plain).to(dtype)

        shapes: Any = ((4, 5), (7,), (2, 3, 2), ())
        if cls is torch.optim.Muon:
            shapes = ((4, 5), (7, 3), (1, 1), (6, 6))
        sparse = cls is torch.optim.SparseAdam
        if sparse:
            shapes = ((4, 5), (7,), (2, 3, 2), (0, 3))

        def gradient(step: int, shape: torch.Size) -> torch.Tensor:
            if not sparse:
                return numbers(*shape)
            indexed = shape[: 1 + step % len(shape)]
            count = 0 if 0 in indexed else step % 4  # of which some are the same place
            places = torch.stack(
                [torch.randint(max(n, 1), (count,), generator=generator) for n in indexed]
            )
            values = numbers(count, *shape[len(indexed) :])
            return torch.sparse_coo_tensor(places, values, shape)

        start = [numbers(*s) for s in shapes]
        theirs, ours = ([t.clone().requires_grad_() for t in start] for _ in "ab")
        names: list[str | None] = [f"layers.{i}.weight" for i in range(len(shapes))]
        named = bool(kwargs) and cls is not torch.optim.LBFGS
        python = cls(list(zip(names, theirs, strict=True)) if named else theirs, **kwargs)
        go = GoOptimizer(self.harness, cls.__name__, ours, options(cls.__name__, kwargs))
        if named:
            go.name(names)
        for step in range(STEPS):
            if step == STEPS // 2:
                states = python.state_dict(), go.state_dict()
                if problem := differ("the state dict", _plain(states[0]), _plain(states[1])):
                    return f"in the middle: {problem}"
                # Each goes on from the other's state, in an optimiser with other options.
                python = cls(theirs)
                python.load_state_dict(states[1])
                go = GoOptimizer(self.harness, cls.__name__, ours, {})
                go.load_state_dict(states[0])
            for i, (a, b) in enumerate(zip(theirs, ours, strict=True)):
                grad = None if (step + i) % 7 == 6 else gradient(step, a.shape)
                a.grad, b.grad = grad, None if grad is None else grad.clone()
            python.step()
            go.step()
            for a, b in zip(theirs, ours, strict=True):
                if problem := differ(f"a parameter after step {step + 1}", a, b):
                    return problem
        return ""

    def _with_closures(self, tally: Tally, info: Any, dtype: torch.dtype) -> None:
        """Runs whose steps call a closure: all of what needs one; of others one, or all in full."""
        name = info.optim_cls.__name__
        configs = _configurations(info)
        losses = LOSSES
        if info.step_requires_closure:
            draw = random.Random(SEED)
            configs += [searched(draw) for _ in range(self.searches)]
        else:
            configs = configs if self.searches >= MANY else configs[:1]
            losses = LOSSES[:1]
        if dtype.is_complex or not dtype.is_floating_point:
            losses = LOSSES[:1]
        for at, kwargs in enumerate(configs):
            every = self.searches >= MANY
            for loss in losses if every else losses[at % len(losses) :][:1]:
                origin = f"{name} {dtype} with a closure #{at} {kwargs} {loss.__name__}"
                try:
                    problem, refused = self._closure(info.optim_cls, kwargs, dtype, loss, at)
                except (GoCrash, Broken, WrapperError) as err:
                    problem, refused = f"{type(err).__name__}: {err}".splitlines()[0], False
                if problem:
                    tally.problems.append(f"{origin}: {problem}")
                elif refused:
                    tally.errors += 1
                else:
                    tally.passed += 1

    def _closure(
        self, cls: Any, kwargs: dict[str, Any], dtype: torch.dtype, loss: Any, seed: int
    ) -> tuple[str, bool]:
        """One run with a closure: what differs, and whether both refuse a step."""
        if loss is slope and cls is torch.optim.LBFGS:
            kwargs = {"lr": 1.0, **kwargs}  # with the int, steps grow until torch refuses it
        generator = torch.Generator().manual_seed(SEED + seed)
        shapes: Any = ((4, 5), (7,), (2, 3, 2), ())
        if cls in (torch.optim.Muon, torch.optim.SparseAdam):
            shapes = ((4, 5), (7, 3))
        plain = dtype.to_complex() if dtype.is_complex else torch.float64
        start = [torch.randn(s, generator=generator, dtype=plain).to(dtype) for s in shapes]
        sparse = cls is torch.optim.SparseAdam
        theirs, ours = ([t.clone().requires_grad_() for t in start] for _ in "ab")

        def closure(params: list[torch.Tensor]) -> Callable[[], torch.Tensor]:
            def compute() -> torch.Tensor:
                for p in params:
                    p.grad = None
                seen = params
                if sparse:
                    rows = torch.tensor([0, 2, 0])
                    seen = [torch.nn.functional.embedding(rows, p, sparse=True) for p in params]
                value = loss(seen)
                if kwargs.get("maximize"):
                    value = -value
                value.backward()
                return value

            return compute

        python = cls(theirs, **kwargs)
        go = GoOptimizer(self.harness, cls.__name__, ours, options(cls.__name__, kwargs))
        for step in range(CLOSURE_STEPS):
            if step == CLOSURE_STEPS // 2:
                states = python.state_dict(), go.state_dict()
                if problem := differ("the state dict", _plain(states[0]), _plain(states[1])):
                    return f"in the middle: {problem}", False
                python = cls(theirs)
                python.load_state_dict(states[1])
                go = GoOptimizer(self.harness, cls.__name__, ours, {})
                go.load_state_dict(states[0])
            try:
                python.step(closure(theirs))
            except (RuntimeError, ZeroDivisionError) as err:
                before = [t.detach().clone() for t in ours]
                state = go.state_dict()
                try:
                    go.step_with(closure(ours))
                except WrapperError as got:
                    if got.kind != type(err).__name__:
                        return f"a {got.kind} ({got}), where Python says {err!r}", False
                    now = [_plain(go.state_dict()), ours]
                    return differ("after an error", [_plain(state), before], now), True
                return f"no error, where Python says {err!r}", False
            go.step_with(closure(ours))
            for a, b in zip(theirs, ours, strict=True):
                if problem := differ(f"a parameter after step {step + 1}", a, b):
                    return problem, False
        states = python.state_dict(), go.state_dict()
        return differ("the state dict", _plain(states[0]), _plain(states[1])), False

    def _errors(self, tally: Tally, info: Any, dtype: torch.dtype) -> None:
        for error in info.optim_error_inputs_func(device="cpu", dtype=dtype):
            given = error.optimizer_error_input
            name = info.optim_cls.__name__
            unknown = given.kwargs.keys() - {
                a.name for a in python_api()[f"torch.optim.{name}"].arguments or ()
            }
            params = (
                given.params if given.params is not None else [torch.ones(3, requires_grad=True)]
            )
            if unknown or not isinstance(params, (list, tuple)):
                tally.skipped[COMPILED] += 1
                continue
            groups = _groups(list(params))
            if len(groups) > 1 and name == "LBFGS":  # which has no AddGroup
                tally.skipped[COMPILED] += 1
                continue
            pairs = [p if isinstance(p, tuple) else (None, p) for g in groups for p in g]
            groups = [[p[1] if isinstance(p, tuple) else p for p in g] for g in groups]
            try:
                of = options(name, given.kwargs)
                go = GoOptimizer(self.harness, name, groups[0], of)
                for more in groups[1:]:
                    go.add_group(more, of)
                if any(known is not None for known, _ in pairs):
                    go.name([known for known, _ in pairs])
                if error.error_on.name == "STEP_ERROR":
                    go.step()
            except WrapperError as err:
                kind = error.error_type.__name__
                # Of a parameter that is in a group twice Python warns that it will be an error.
                if err.kind != ("ValueError" if kind == "UserWarning" else kind):
                    tally.problems.append(f"{name} {given.desc}: a {err.kind}: {err}")
                else:
                    tally.errors += 1
                continue
            except Broken:
                tally.skipped[COMPILED] += 1
                continue
            if given.kwargs.get("foreach"):
                tally.skipped[FOREACH] += 1
                continue
            tally.problems.append(
                f"{name} {given.desc}: no error, where Python says {error.error_regex}"
            )


def _configurations(info: Any) -> list[dict[str, Any]]:
    """The arguments of the database; for some with the number of a learning rate in a tensor."""
    found = []
    for config in info.optim_inputs_func(device="cpu"):
        lr = config.kwargs.get("lr")
        number = info.optim_cls.__name__ in ROUNDED and isinstance(lr, torch.Tensor)
        found.append({**config.kwargs, "lr": lr.item()} if number else config.kwargs)
    return found


def _groups(params: list[Any]) -> list[list[Any]]:
    """The parameters of each group."""
    if not any(isinstance(p, dict) for p in params):
        return [params]
    of = [p["params"] for p in params]
    return [list(p) if isinstance(p, (list, tuple)) else [p] for p in of]


def _fields(name: str) -> set[str]:
    fused = ("Adam", "AdamW", "SGD")
    return {"fused"} if name in fused else set()


def _plain(state: dict[str, Any]) -> list[Any]:
    """A state dict without what its order and a device's options are."""
    groups = [sorted(g.items()) for g in state["param_groups"]]
    found: list[Any] = []
    for key, value in [pair for g in groups for pair in g if pair[0] not in ("foreach", "fused")]:
        found += [key, float(value) if isinstance(value, torch.Tensor) else value]
    for number, values in sorted(state["state"].items()):
        found.append(number)
        found += [x for k, v in sorted(values.items()) if v is not None for x in (k, v)]
    return found
