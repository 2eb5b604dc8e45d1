"""Runs cases, follows them up with the other forms of their functions, and counts."""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from . import by_hand, reasons, standins
from .cases import Case, tensors_in
from .check import Checker, Outcome
from .derive import others, variants
from .harness import Harness
from .operators import Operator, operators
from .samples import DTYPES, Sampler, database, error_inputs, signature


@dataclass
class Tally:
    """How the cases of a function ended."""

    passed: int = 0
    errors: int = 0  # Python and Go raised the same
    failed: int = 0
    gradients: int = 0
    forms: Counter[str] = field(default_factory=Counter)


class Suite:
    """Everything that is run with one harness, and what came of it."""

    def __init__(self, harness: Harness, full: bool = True, device: str = "cpu") -> None:
        self.harness = harness
        self.device = device  # where the samples of PyTorch's database are made
        self.dtypes = list(DTYPES)
        self.checker = Checker(harness)
        self.sampler = Sampler(device)
        self.full = full
        self.tallies: dict[str, Tally] = defaultdict(Tally)
        self.stood_in: set[str] = set()  # functions that only a stand-in computed
        self.not_applicable: Counter[str] = Counter()  # samples, by reason
        self.samples = 0
        self.varied: set[Operator] = set()

    # One case ------------------------------------------------------------------------------------

    def run(self, case: Case, follow: bool = True) -> list[str]:
        """Checks a case and, if it passes, those that follow from it. Returns the problems."""
        if reason := self._fatal(case):
            self.not_applicable[reason] += 1
            return []
        outcome = self.checker.check(case)
        self._count(case.operator, outcome)
        if outcome.ended == "unfit" and follow:
            self.not_applicable[reasons.UNFIT] += 1
        problems = list(outcome.problems) if outcome.ended == "failed" else []
        if outcome.ended == "passed" and case.operator not in self.varied:
            self.varied.add(case.operator)
            for variant in variants(case, outcome.results):
                problems += self.run(variant, follow=False)
        if follow and outcome.ended == "passed":
            for other in others(case, outcome.results):
                if other.operator.name in reasons.SKIPPED_OUT and other.origin.endswith(
                    "empty out"
                ):
                    continue
                key = signature(other)
                if key in self.sampler.seen:
                    continue
                self.sampler.seen.add(key)
                problems += self.run(other, follow=False)
        return problems

    def _fatal(self, case: Case) -> str:
        """Why the case must not be run on this device, or ""."""
        if torch.device(self.device).type != "cuda":
            return ""
        only_empty, reason = reasons.FATAL_ON_CUDA.get(case.operator.name, (False, ""))
        if only_empty and all(t.numel() > 0 for t in tensors_in(case.values)):
            return ""
        return reason

    def _count(self, o: Operator, outcome: Outcome) -> None:
        if outcome.ended == "unfit":
            return
        tally = self.tallies[o.name]
        tally.passed += outcome.ended == "passed"
        tally.errors += outcome.ended == "error"
        tally.failed += outcome.ended == "failed"
        tally.gradients += outcome.gradient
        tally.forms.update(outcome.forms)

    # Many ----------------------------------------------------------------------------------------

    def entry(self, name: str) -> list[str]:
        """Runs the samples of an entry of PyTorch's database, in every dtype or in a slice."""
        entry = database()[name]
        if name in reasons.ENTRIES:
            self.not_applicable[reasons.ENTRIES[name]] += 1
            return []
        problems = []
        for dtype in self.dtypes:
            if not entry.supports_dtype(dtype, torch.device(self.device).type):
                continue
            if not self.full and not _in_slice(name, dtype):
                continue
            for case in self.sampler.cases(entry, dtype, self._wanted(name, dtype)):
                problems += self.run(case)
        return problems

    def _wanted(self, name: str, dtype: torch.dtype) -> Any:
        if self.full:
            return lambda i: True
        if dtype == torch.float32:
            return lambda i: i < 2 or _hash(f"{name} {i}") % 6 == 0
        return lambda i: i == _hash(f"{name} {dtype}") % 3

    def errors(self, name: str) -> list[str]:
        """Runs the bad inputs that PyTorch's database has for an entry."""
        problems: list[str] = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for origin, wanted, cases in error_inputs(database()[name]):
                self.samples += 1
                applied = False
                for case in cases:
                    outcome = self.checker.check(case)
                    self._count(case.operator, outcome)
                    applied = applied or outcome.ended in ("error", "failed")
                    problems += outcome.problems if outcome.ended == "failed" else ()
                if not applied:
                    self.not_applicable[reasons.error_reason(origin, wanted, bool(cases))] += 1
        return problems

    def by_hand(self, section: Any) -> list[str]:
        """Runs one section of the cases that are written by hand."""
        problems = [p for case in by_hand.cases([section]) for p in self.run(case)]
        if section in by_hand.STOOD_IN:
            # The errors for want of hardware have been compared; now for arguments and results.
            before = {n for n, t in self.tallies.items() if t.passed}
            with standins.installed():
                problems += [p for case in by_hand.cases([section]) for p in self.run(case)]
            self.stood_in |= {n for n, t in self.tallies.items() if t.passed} - before
        return problems

    # All -----------------------------------------------------------------------------------------

    def unreached(self) -> dict[str, str]:
        """The functions without a checked result, with the reason, or "" where there is none."""
        return {
            name: reasons.UNREACHED.get(name, "")
            for name in operators()
            if not self.tallies[name].passed
        }


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def _in_slice(name: str, dtype: torch.dtype) -> bool:
    """Every entry in float32, and in one other dtype or none."""
    return dtype == torch.float32 or _hash(name) % 8 == DTYPES.index(dtype)


def names(only: Iterable[str] = ()) -> list[str]:
    """The entries of the database, or those whose names contain one of the given texts."""
    wanted = list(only)
    return [n for n in database() if not wanted or any(w in n for w in wanted)]
