"""Runs the schedulers of package optim/lrscheduler on configurations drawn at random.

Python and Go each have an optimiser with the same groups and a scheduler with the same arguments.
Learning rates, momenta and what the scheduler tells are compared after each step, to the last bit.
In the middle the states of optimiser and scheduler go from each to a new pair of the other; or the
optimiser's alone, and the new scheduler resumes by its `last_epoch`.
"""

from __future__ import annotations

import math
import random
import struct
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import lr_scheduler, swa_utils

from pytorch_bridge.schema.names import Names
from pytorch_bridge.schema.python_api import python_api

from .check import SEED
from .harness import Broken, GoCrash, Harness, Request, WrapperError
from .modules import Tally
from .optimizers import GoOptimizer

SCHEDULER, SCHEDULE, SCHEDULE_TO, RATES = range(-40, -44, -1)

STEPS = 100

NAMES = [*sorted({*lr_scheduler.__all__} - {"LRScheduler"}), "SWALR"]


class GoScheduler(GoOptimizer):
    """A scheduler that Go has made, whose state dicts go as those of optimisers do."""

    def __init__(
        self, harness: Harness, name: str, parameters: list[Any], options: dict[str, Any]
    ) -> None:
        self.harness, self.number = harness, 0
        self.parts = parameters  # which it uses
        request = Request([SCHEDULER, 0, 0])
        request.text_only(name)
        request.invocation(parameters, options)
        self.number = harness.send(request)[0][0]

    def _rows(self, what: int, opt: GoOptimizer, *words: int, floats: list[float] | None) -> Any:
        request = Request([what, 0, 0, opt.number, self.number, *words])
        if floats is not None:
            request.value("float[]", floats)
        return self.harness.send(request)[0][0]

    def steps(self, opt: GoOptimizer, n: int, metrics: list[float]) -> list[list[float]]:
        return self._rows(SCHEDULE, opt, n, floats=metrics)

    def steps_to(self, opt: GoOptimizer, epochs: list[float]) -> list[list[float]]:
        return self._rows(SCHEDULE_TO, opt, floats=epochs)

    def rates(self, opt: GoOptimizer) -> list[float]:
        return self._rows(RATES, opt, floats=None)


class Table:
    """A function of an epoch that is looked up, so that Go can have the same."""

    def __init__(self, values: list[float]) -> None:
        self.values = values

    def function(self) -> Callable[[float], float]:
        return lambda x: self.values[int(x) % len(self.values)]


class Made:
    """A scheduler to be made: PyTorch's name, arguments in Python, and schedulers within."""

    def __init__(self, name: str, **arguments: Any) -> None:
        self.name, self.arguments = name, arguments

    def __repr__(self) -> str:
        given = ", ".join(f"{k}={getattr(v, 'values', v)!r}" for k, v in self.arguments.items())
        return f"{self.name}({given})"

    def python(self, opt: Any, **more: Any) -> Any:
        def value(v: Any) -> Any:
            if isinstance(v, list):
                return [value(x) for x in v]
            if isinstance(v, Made):
                return v.python(opt)
            return v.function() if isinstance(v, Table) else v

        cls = getattr(swa_utils if self.name == "SWALR" else lr_scheduler, self.name)
        first = {} if self.name == "ChainedScheduler" else {"optimizer": opt}
        return cls(**first, **{k: value(v) for k, v in self.arguments.items()}, **more)

    def go(self, harness: Harness, opt: GoGroups, **more: Any) -> GoScheduler:
        api = python_api()[_full(self.name)]
        arguments = {"optimizer": opt, **self.arguments, **more}
        parameters, options = [], {}

        def value(name: str, v: Any) -> Any:
            if isinstance(v, list):
                return [value("", x) for x in v]
            if isinstance(v, Made):
                return v.go(harness, opt)
            if isinstance(v, Table):  # of which there is one for all groups, or one for each
                return [v.values] if name == "lr_lambda" else v.values
            return v

        for a in api.arguments or ():
            if a.name not in arguments or arguments[a.name] is None:
                continue
            v = value(a.name, arguments[a.name])
            if a.required:
                parameters.append(v)
            elif a.default is True:
                options[f"No{Names().field(a.name)}"] = not v
            elif self.name != "ChainedScheduler":
                options[Names().field(a.name)] = v
        if self.name == "LambdaLR" or self.name == "MultiplicativeLR":
            groups = len(opt.groups)
            if isinstance(self.arguments["lr_lambda"], Table):
                parameters[1] = parameters[1] * groups
        return GoScheduler(harness, self.name, parameters, options)


def _full(name: str) -> str:
    return f"torch.optim.{'swa_utils' if name == 'SWALR' else 'lr_scheduler'}.{name}"


class Draw:
    """Draws configurations."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def optimizer(self) -> tuple[str, list[dict[str, Any]]]:
        """A class of torch.optim and the options of each group."""
        r = self.random
        name = r.choice(["SGD", "SGD", "Adam", "AdamW", "RMSprop", "NAdam", "Adagrad"])
        groups = []
        for _ in range(r.choice([1, 1, 2, 3])):
            options: dict[str, Any] = {"lr": r.choice([0.1, 0.5, 1e-3, r.uniform(1e-6, 3)])}
            if name in ("SGD", "RMSprop") and r.random() < 0.8:
                options["momentum"] = r.choice([0.9, r.random()])
            if name in ("Adam", "AdamW", "NAdam") and r.random() < 0.5:
                options["betas"] = (r.random(), r.random())
            groups.append(options)
        return name, groups

    def rates(self, groups: int, low: float = 1e-4, high: float = 2.0) -> float | list[float]:
        """A number, or one for each group; seldom too many. A list of one is a number in Go."""
        r = self.random
        several = groups + 2 * (r.random() < 0.04)
        if several == 1 or r.random() < 0.5:
            return r.uniform(low, high)
        return [r.uniform(low, high) for _ in range(several)]

    def some(self, **options: Callable[[], Any]) -> dict[str, Any]:
        """Some of the arguments that have defaults."""
        return {k: draw() for k, draw in options.items() if self.random.random() < 0.6}

    def epochs(self) -> int:
        r = self.random
        return r.choice([1, 2, 3, 5, 10, r.randint(1, 120), r.randint(100, 1000)])

    def lambdas(self, groups: int) -> Table | list[Table]:
        r = self.random

        def table() -> Table:
            return Table([r.uniform(0, 1.3) for _ in range(r.choice([1, 7, 101]))])

        if r.random() < 0.5:
            return table()
        return [table() for _ in range(groups + (r.random() < 0.04))]

    def scheduler(self, name: str, groups: int, depth: int = 0) -> Made:
        r = self.random
        odd = r.random() < 0.04  # something that is refused
        match name:
            case "LambdaLR" | "MultiplicativeLR":
                return Made(name, lr_lambda=self.lambdas(groups))
            case "StepLR":
                size = 0 if odd else r.choice([-1, 1]) ** (r.random() < 0.1) * self.epochs()
                return Made(name, step_size=size, **self.some(gamma=r.random))
            case "MultiStepLR":
                epochs = [r.randint(0, 100) for _ in range(r.randint(0, 6))]
                repeated = sorted(epochs + epochs[: r.randint(0, 2)])
                return Made(name, milestones=repeated, **self.some(gamma=lambda: r.uniform(0, 2)))
            case "ConstantLR":
                factor = r.choice([-0.1, 1.1, 0.0]) if odd else r.random()
                return Made(
                    name, **self.some(factor=lambda: factor, total_iters=lambda: self.epochs() - 1)
                )
            case "LinearLR":
                start = r.choice([0.0, 1.2, -1.0]) if odd else 1 - r.random()
                return Made(
                    name,
                    **self.some(
                        start_factor=lambda: start, end_factor=r.random, total_iters=self.epochs
                    ),
                )
            case "ExponentialLR":
                return Made(name, gamma=r.choice([0.9, 0.99, 1, r.uniform(0.5, 1.1)]))
            case "PolynomialLR":
                power = r.choice([0.5, 1, 2, 3.7, r.uniform(0, 4)])
                return Made(name, **self.some(total_iters=self.epochs, power=lambda: power))
            case "CosineAnnealingLR":
                length = 0 if odd else self.epochs()
                return Made(name, T_max=length, **self.some(eta_min=lambda: r.uniform(0, 0.1)))
            case "CosineAnnealingWarmRestarts":
                first = r.choice([0, -3]) if odd else r.randint(1, 40)
                return Made(
                    name,
                    T_0=first,
                    **self.some(
                        T_mult=lambda: r.choice([1, 1, 2, 3, 3 - 3 * odd]),
                        eta_min=lambda: r.uniform(0, 0.1),
                    ),
                )
            case "ReduceLROnPlateau":
                modes = ["min", "max", "mean"] if odd else ["min", "max"]
                return Made(
                    name,
                    **self.some(
                        mode=lambda: r.choice(modes),
                        factor=lambda: 1.5 if odd else r.random(),
                        patience=lambda: r.randint(0, 6),
                        threshold=lambda: r.choice([0.0, 0.1, r.random()]),
                        threshold_mode=lambda: r.choice(["rel", "abs"]),
                        cooldown=lambda: r.randint(0, 4),
                        min_lr=lambda: self.rates(groups, 0, 0.01),
                        eps=lambda: r.choice([0.0, 1e-3]),
                    ),
                )
            case "CyclicLR":
                modes = ["triangular", "triangular2", "exp_range", *(["square"] * odd)]
                return Made(
                    name,
                    base_lr=self.rates(groups),
                    max_lr=self.rates(groups),
                    **self.some(
                        step_size_up=lambda: r.choice([r.randint(1, 50), 7, 2.5]),
                        step_size_down=lambda: r.randint(0, 50),
                        mode=lambda: r.choice(modes),
                        gamma=lambda: r.choice([0.99, r.uniform(0.8, 1.01)]),
                        scale_mode=lambda: r.choice(["cycle", "iterations"]),
                        cycle_momentum=lambda: r.random() < 0.5,
                        base_momentum=lambda: self.rates(groups, 0, 0.9),
                        max_momentum=lambda: self.rates(groups, 0, 1),
                    ),
                    **(
                        {"scale_fn": Table([r.random() for _ in range(5)])}
                        if r.random() < 0.2
                        else {}
                    ),
                )
            case "OneCycleLR":
                total = r.randint(1, 90) if odd else r.randint(101, 300)
                steps: dict[str, Any] = {"total_steps": total}
                if r.random() < 0.3:
                    steps = {"epochs": r.randint(0 if odd else 1, 9), "steps_per_epoch": total}
                if r.random() < 0.02:
                    steps = {"epochs": 3}
                return Made(
                    name,
                    max_lr=self.rates(groups),
                    **steps,
                    **self.some(
                        pct_start=lambda: 1.5 if odd else r.random(),
                        anneal_strategy=lambda: r.choice(["cos", "linear", *(["up"] * odd)]),
                        cycle_momentum=lambda: r.random() < 0.5,
                        base_momentum=lambda: self.rates(groups, 0, 0.9),
                        max_momentum=lambda: self.rates(groups, 0, 1),
                        div_factor=lambda: r.uniform(1, 50),
                        final_div_factor=lambda: r.uniform(1, 1e5),
                        three_phase=lambda: r.random() < 0.6,
                    ),
                )
            case "SWALR":
                return Made(
                    name,
                    swa_lr=self.rates(groups),
                    **self.some(
                        anneal_epochs=lambda: -2 if odd else r.choice([0, 1, self.epochs()]),
                        anneal_strategy=lambda: r.choice(["cos", "linear", *(["up"] * odd)]),
                    ),
                )
            case "ChainedScheduler":
                return Made(name, schedulers=self.parts(groups, r.randint(1 - odd, 3), depth))
            case "SequentialLR":
                parts = self.parts(groups, r.randint(1 - odd, 4), depth)
                n = max(len(parts) - 1 + (r.random() < 0.03), 0)
                return Made(name, schedulers=parts, milestones=sorted(r.sample(range(1, 90), n)))
        raise AssertionError(name)

    def parts(self, groups: int, n: int, depth: int) -> list[Made]:
        simple = [x for x in NAMES if x not in ("ReduceLROnPlateau", "OneCycleLR")]
        if depth:
            simple = [x for x in simple if x not in ("ChainedScheduler", "SequentialLR")]
        return [self.scheduler(self.random.choice(simple), groups, depth + 1) for _ in range(n)]

    def metrics(self, n: int) -> list[float]:
        r = self.random
        found, at = [], r.uniform(-1, 3)
        for _ in range(n):
            at += r.uniform(-0.3, 0.2) if r.random() < 0.5 else 0
            found.append(r.choice([math.nan, math.inf, -math.inf]) if r.random() < 0.02 else at)
        return found


def rates(opt: Any, scheduler: Any) -> list[float]:
    """What Go tells with ratesOf."""
    row: list[float] = []
    for group in opt.param_groups:
        row.append(float(group["lr"]))
        row += [float(group[k]) for k in ("momentum",) if k in group]
        row += [float(group["betas"][0]) for _ in "b" if "betas" in group]
    return row + [float(x) for x in scheduler.get_last_lr()]


def bits(row: list[float]) -> list[str]:
    return ["nan" if x != x else struct.pack(">d", x).hex() for x in row]


def plain(value: Any) -> Any:
    """A state dict without its order, with floats by their bits."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items() if k not in ("foreach", "fused")}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return bits([float(value)])[0]
    return value


def _groups(opt: Any) -> Any:
    """The groups of an optimiser. What it remembers of parameters is its own affair."""
    return plain(opt.state_dict()["param_groups"])


class Schedulers:
    """Runs configurations with one harness."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.tallies: dict[str, Tally] = {}

    def run(self, name: str, configurations: int, seed: int = SEED) -> list[str]:
        """Runs that many configurations of a scheduler; returns what differs."""
        tally = self.tallies.setdefault(name, Tally())
        before = len(tally.problems)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for at in range(configurations):
                draw = Draw(seed * 100003 + at)
                kind, groups = draw.optimizer()
                made = draw.scheduler(name, len(groups))
                try:
                    problem = self._one(tally, draw, kind, groups, made)
                except (GoCrash, Broken, WrapperError) as err:
                    problem = f"{type(err).__name__}: {err}".splitlines()[0]
                if problem:
                    tally.problems.append(f"#{at} {kind}{groups} {made}: {problem}")
        return tally.problems[before:]

    def _pair(self, kind: str, groups: list[dict[str, Any]]) -> tuple[Any, GoGroups]:
        def params() -> list[torch.Tensor]:
            return [torch.ones(2, requires_grad=True)]

        # An added group has the options of the constructor, which in Go are the first group's.
        python = getattr(torch.optim, kind)(
            [{"params": params(), **g} for g in groups], **groups[0]
        )
        return python, GoGroups(self.harness, kind, groups, params)

    def _one(
        self, tally: Tally, draw: Draw, kind: str, groups: list[dict[str, Any]], made: Made
    ) -> str:
        opt, go_opt = self._pair(kind, groups)
        try:
            python: Any = made.python(opt)
        except (ValueError, TypeError, KeyError, ZeroDivisionError, NotImplementedError) as err:
            before = _groups(go_opt)
            problem = self._refused(err, lambda: made.go(self.harness, go_opt))
            tally.errors += not problem
            if not problem and before != _groups(go_opt):
                # Schedulers within one that is refused have been made.
                problem = "" if made.name in COMPOSED else "the optimiser has changed"
            return problem
        go = made.go(self.harness, go_opt)
        if bits(rates(opt, python)) != bits(go.rates(go_opt)):
            return f"at first: {go.rates(go_opt)}, not {rates(opt, python)}"
        middle = draw.random.randint(1, STEPS - 1)
        for n in (middle, STEPS - middle):
            problem, refused = self._steps(draw, made, opt, python, go_opt, go, n)
            if problem or refused:
                tally.errors += refused
                return problem
            states = [python.state_dict(), opt.state_dict()], [go.state_dict(), go_opt.state_dict()]
            if plain(states[0][0]) != plain(states[1][0]):
                return f"the state after {n} steps is {states[1][0]}, not {states[0][0]}"
            if _groups(opt) != _groups(go_opt):
                return f"the groups after {n} steps are {states[1][1]}, not {states[0][1]}"
            # Each goes on from the other's states.
            resumes = draw.random.random() < 0.25 and made.name not in ALONE
            opt, go_opt = self._pair(kind, groups)
            more: dict[str, Any] = {}
            if resumes:
                opt.load_state_dict(states[1][1])
                go_opt.load_state_dict(states[0][1])
                more = {"last_epoch": python.last_epoch}
            try:
                python = made.python(opt, **more)
            except (ValueError, KeyError, ZeroDivisionError, NotImplementedError) as err:
                problem = self._refused(err, lambda: made.go(self.harness, go_opt, **more))  # noqa: B023
                tally.errors += not problem
                return problem
            go = made.go(self.harness, go_opt, **more)
            if not resumes:
                python.load_state_dict(states[1][0])
                go.load_state_dict(states[0][0])
                opt.load_state_dict(states[1][1])
                go_opt.load_state_dict(states[0][1])
            if bits(rates(opt, python)) != bits(go.rates(go_opt)):
                how = "resumed" if resumes else "loaded"
                return f"{how}: {go.rates(go_opt)}, not {rates(opt, python)}"
        tally.passed += 1
        return ""

    def _steps(
        self, draw: Draw, made: Made, opt: Any, python: Any, go_opt: GoOptimizer, go: Any, n: int
    ) -> tuple[str, bool]:
        """Takes n steps with both; returns what differs, and whether both refuse one."""
        metrics = draw.metrics(n) if made.name == "ReduceLROnPlateau" else []
        wanted: list[list[float]] = []
        error: Exception | None = None
        for i in range(n):
            opt.step()
            try:
                python.step(*metrics[i : i + 1])
            except (ValueError, KeyError, ZeroDivisionError, NotImplementedError) as err:
                error = err
                break
            wanted.append(rates(opt, python))
        got = go.steps(go_opt, len(wanted), metrics)
        for i, (a, b) in enumerate(zip(wanted, got, strict=True)):
            if bits(a) != bits(b):
                return f"step {i + 1} of {n}: {b}, not {a}", False
        if error is not None:
            before = plain(go.state_dict()), _groups(go_opt)
            problem = self._refused(error, lambda: go.steps(go_opt, 1, metrics[-1:]))
            if not problem and before != (plain(go.state_dict()), _groups(go_opt)):
                problem = "a step that was refused has changed something"
            return problem, not problem
        if made.name == "CosineAnnealingWarmRestarts":
            r = draw.random
            epochs = [r.choice([r.uniform(0, 60), float(r.randint(0, 60))]) for _ in range(5)]
            wanted = []
            for epoch in epochs:
                python.step(epoch)
                wanted.append(rates(opt, python))
            got = go.steps_to(go_opt, epochs)
            if list(map(bits, wanted)) != list(map(bits, got)):
                return f"steps to {epochs}: {got}, not {wanted}", False
        return "", False

    def _refused(self, err: Exception, call: Callable[[], Any]) -> str:
        try:
            call()
        except WrapperError as got:
            if got.kind == type(err).__name__:
                return ""
            return f"a {got.kind} ({got}), where Python has a {type(err).__name__}: {err}"
        return f"no error, where Python has a {type(err).__name__}: {err}"


COMPOSED = {"ChainedScheduler", "SequentialLR"}

# Those that do not resume by an argument alone.
ALONE = COMPOSED | {"ReduceLROnPlateau"}


class GoGroups(GoOptimizer):
    """An optimiser that Go has made, with several groups."""

    def __init__(
        self,
        harness: Harness,
        kind: str,
        groups: list[dict[str, Any]],
        params: Callable[[], list[torch.Tensor]],
    ) -> None:
        def options(g: dict[str, Any]) -> dict[str, Any]:
            return {Names().field(k): v for k, v in g.items()}

        self.groups = groups
        super().__init__(harness, kind, params(), options(groups[0]))
        for group in groups[1:]:
            self.add_group(params(), options(group))
