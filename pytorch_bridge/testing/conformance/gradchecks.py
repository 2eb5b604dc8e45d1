"""gotorchtest.GradCheck and GradGradCheck, held to torch.autograd.gradcheck and gradgradcheck: both
are given the same functions, right ones and wrong ones, and must find the same."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.gradcheck import GradcheckError

from .cases import Case, Copier
from .check import SEED, seed
from .harness import GoCrash, Harness, Request, WrapperError
from .samples import Sampler, database
from .transforms import Call

GRADCHECK = -80

# What Python calls the options, by the harness's names for them.
OPTIONS: dict[str, dict[str, bool]] = {
    "fast": {"fast_mode": True},
    "forward": {"check_forward_ad": True},
    "dtypes": {"check_grad_dtypes": True},
    "batched": {"check_batched_grad": True},
    "batched forward": {"check_batched_forward_grad": True},
    "no undefined": {"check_undefined_grad": False},
    "no backward": {"check_backward_ad": False},
    "spread": {"gen_non_contig_grad_outputs": True},
}
SECOND = OPTIONS | {
    "forward": {"check_fwd_over_rev": True},
    "no backward": {"check_rev_over_rev": False},
}


@dataclass(frozen=True)
class Check:
    """One way to check a function."""

    second: bool
    on: tuple[str, ...] = ()

    def __str__(self) -> str:
        name = "gradgradcheck" if self.second else "gradcheck"
        return f"{name} ({', '.join(self.on)})" if self.on else name

    def arguments(self) -> dict[str, bool]:
        of = SECOND if self.second else OPTIONS
        return {name: value for option in self.on for name, value in of[option].items()}


CHECKS = [
    Check(False),
    Check(False, ("fast",)),
    Check(False, ("batched", "dtypes")),
    Check(False, ("forward", "batched forward")),
    Check(False, ("forward", "fast", "no backward", "dtypes")),
    Check(True),
    Check(True, ("fast", "spread")),
    Check(True, ("forward", "no undefined", "fast")),
]

# What a check ends in.
PASSES, FAILS, REFUSED = "passes", "fails", "is refused"
MOST = 24  # elements of what is differentiated, and of what comes out

# What Python says and what Go finds where they differ, with the reason.
UNLIKE = {
    ("zip() argument 2 is shorter than argument 1", PASSES): (
        "Python stumbles over a gradient that is none, of an argument that has no gradient"
    ),
    ("You must implement the jvp function for custom", PASSES): (
        "Python asks for forward mode of a gradient that is none"
    ),
    ("Double did not match Half", FAILS): "results of half precision, on which Python stumbles",
    ("\"div_cpu\" not implemented for 'ComplexHalf'", FAILS): (
        "results of half precision, on which Python stumbles"
    ),
}
# Whose batching rule in libtorch is wrong, with torch.func as well; Python's gradcheck uses an
# older vmap.
BATCHED = {"index_fill"}


@dataclass
class Tally:
    """How often both said the same, by what they said."""

    agreed: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


def complete(t: torch.Tensor) -> bool:
    return t.is_floating_point() or t.is_complex()


class GradChecks:
    """Everything that is checked with one harness, and what came of it."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.tallies: dict[str, Tally] = {str(check): Tally() for check in CHECKS}
        self.operators: set[str] = set()

    def run(
        self, name: str, dtype: torch.dtype, wanted: Callable[[int], bool] = lambda i: True
    ) -> list[str]:
        """Checks an operator of the database in each way. Returns the problems."""
        entry = database()[name]
        if not entry.supports_dtype(dtype, "cpu"):
            return []
        problems = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for case in Sampler().cases(entry, dtype, wanted):
                if case.own and not case.operator.function.base.endswith("_"):
                    problems += self._case(name, case)
        return problems

    def _case(self, name: str, case: Case) -> list[str]:
        call, problems = Call(case, complete), []
        why = "results at random" if case.operator.random else call.unfit()
        if not why and call.vague:
            why = "results in memory that nobody has written to"
        if not why:
            try:
                ys = call.function(*Copier()(call.xs))
                if max(sum(t.numel() for t in ts) for ts in (call.xs, ys)) > MOST:
                    why = f"more than {MOST} elements"
            except Exception:
                why = "refused by PyTorch"
        for check in CHECKS:
            tally = self.tallies[str(check)]
            if why or (name in BATCHED and "batched forward" in check.on):
                tally.skipped[why or "a batching rule of libtorch's that torch.func has, too"] += 1
                continue
            problem = self.compare(check, call.function, call.xs, call.write)
            if problem:
                problems.append(f"{check} of {case!r} [{case.origin}]: {problem}")
                tally.problems.append(problems[-1])
            else:
                self.operators.add(name)
        return problems

    def compare(
        self,
        check: Check,
        function: Callable[..., Any],
        xs: list[torch.Tensor],
        write: Callable[[Request], None] | str,
    ) -> str:
        """What differs between Python and Go, with the verdict in the tally where nothing does.

        Go's function is one of the harness's, by its name, or an operator that is written.
        """
        python, why = self.python(check, function, _leaves(xs))
        mine = _leaves(xs)
        before = [x.detach().clone() for x in mine]
        go, said = self.go(check, mine, write)
        if not all(torch.equal(x, b) or x.isnan().any() for x, b in zip(mine, before, strict=True)):
            return "an input is not what it was"
        if python != go:
            if reason := self._unlike(check, function, xs, (python, why), go):
                self.tallies[str(check)].skipped[reason] += 1
                return ""
            return f"{go} ({said}); with PyTorch it {python} ({why})"
        self.tallies[str(check)].agreed[python] += 1
        return ""

    def _unlike(
        self,
        check: Check,
        function: Callable[..., Any],
        xs: list[torch.Tensor],
        python: tuple[str, str],
        go: str,
    ) -> str:
        for (text, verdict), reason in UNLIKE.items():
            if text in python[1] and go == verdict:
                return reason
        batches = {"batched", "batched forward"} & set(check.on)
        if batches and go == PASSES:
            without = Check(check.second, tuple(o for o in check.on if o not in batches))
            if self.python(without, function, _leaves(xs))[0] == PASSES:
                return "limits of Python's older vmap, which its gradcheck uses for batches"
        return ""

    def python(
        self, check: Check, function: Callable[..., Any], xs: list[torch.Tensor]
    ) -> tuple[str, str]:
        seed()
        try:
            (gradgradcheck if check.second else gradcheck)(function, tuple(xs), **check.arguments())
        except GradcheckError as err:
            return FAILS, str(err)
        except Exception as err:
            return REFUSED, f"{type(err).__name__}: {err}"
        return PASSES, ""

    def go(
        self, check: Check, xs: list[torch.Tensor], write: Callable[[Request], None] | str
    ) -> tuple[str, str]:
        request = Request([GRADCHECK, 0, 0, len(check.on)])
        for option in check.on:
            request.text_only(option)
        request.words.append(int(check.second))
        request.text_only(write if isinstance(write, str) else "")
        request.value("Tensor[]", xs)
        if not isinstance(write, str):
            write(request)
        self.harness.seed(SEED)
        try:
            msg, *where = self.harness.send(request)[0]
        except WrapperError as err:
            return REFUSED, str(err)
        except GoCrash as err:
            return "crashes", str(err)
        return (FAILS, f"{msg} {where}") if msg else (PASSES, "")


def _leaves(xs: list[torch.Tensor]) -> list[torch.Tensor]:
    return [x.detach().clone().requires_grad_() for x in xs]
