"""The transforms of Go's package functorch, held to torch.func: each on operators of PyTorch's
database, as Python and as Go call them."""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import func

from . import reasons
from .cases import Case, Copier
from .check import SEED, _gradient_for, _value_difference, first_line, seed
from .harness import Absent, GoCrash, Harness, Request, WrapperError, absent
from .samples import Sampler, database

TRANSFORM = -60

Function = Callable[..., tuple[torch.Tensor, ...]]
Tensors = list[torch.Tensor]


def _total(f: Function) -> Callable[..., torch.Tensor]:
    def total(*xs: torch.Tensor) -> torch.Tensor:
        first, *others = (y.sum() for y in f(*xs))
        for other in others:
            first = first + other
        return first

    return total


def _all(xs: Tensors) -> tuple[int, ...]:
    return tuple(range(len(xs)))


def _grad(f: Function, xs: Tensors, more: Tensors) -> list[Any]:
    grads, value = func.grad_and_value(_total(f), _all(xs))(*xs)
    return [*grads, value]


def _vjp(f: Function, xs: Tensors, more: Tensors) -> list[Any]:
    ys, vjp = func.vjp(f, *xs)
    return [*ys, *vjp(tuple(more))]


def _jvp(f: Function, xs: Tensors, more: Tensors) -> list[Any]:
    ys, tangents = func.jvp(f, tuple(xs), tuple(more))
    return [*ys, *tangents]


def _vmap(f: Function, xs: Tensors, more: Tensors) -> list[Any]:
    return list(func.vmap(f, randomness="different")(*xs))


def _vmap_of_grad(f: Function, xs: Tensors, more: Tensors) -> list[Any]:
    grad = func.grad(_total(f), _all(xs))
    return list(func.vmap(grad, randomness="different")(*xs))


def _jacrev(f: Function, xs: Tensors, more: Tensors) -> list[Any]:
    return [j for row in func.jacrev(f, _all(xs))(*xs) for j in row]


def _jacfwd(f: Function, xs: Tensors, more: Tensors) -> list[Any]:
    return [j for row in func.jacfwd(f, _all(xs))(*xs) for j in row]


def _hessian(f: Function, xs: Tensors, more: Tensors) -> list[Any]:
    return [h for row in func.hessian(_total(f), _all(xs))(*xs) for h in row]


# By the names that the harness has for them. A new one is a line here and one there.
TRANSFORMS: dict[str, Callable[[Function, Tensors, Tensors], list[Any]]] = {
    "grad": _grad,
    "vjp": _vjp,
    "jvp": _jvp,
    "vmap": _vmap,
    "vmap of grad": _vmap_of_grad,
    "jacrev": _jacrev,
    "jacfwd": _jacfwd,
    "hessian": _hessian,
}
MAPS = {"vmap", "vmap of grad"}
# Those whose results are as large as the product of what goes in and what comes out.
LARGE = {"jacrev", "jacfwd", "hessian"}
MOST = {"jacrev": 512, "jacfwd": 512, "hessian": 128}  # elements of the inputs


@dataclass
class Tally:
    """How the calls of an operator or of a transform ended."""

    passed: int = 0
    errors: int = 0  # both raised the same
    skipped: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


class Transforms:
    """Everything that is run with one harness, and what came of it."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.tallies: dict[str, Tally] = defaultdict(Tally)  # by operator
        self.by_transform: dict[str, Tally] = defaultdict(Tally)
        self.spare = False

    def run(
        self,
        name: str,
        dtype: torch.dtype,
        wanted: Callable[[int], bool] = lambda i: True,
        only: Callable[[str], bool] = lambda transform: True,
    ) -> list[str]:
        """Tries an entry of the database. Returns the problems."""
        entry, tally = database()[name], self.tallies[name]
        found = len(tally.problems)
        if not entry.supports_dtype(dtype, "cpu"):
            return []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tried = False
            for case in Sampler().cases(entry, dtype, wanted):
                if not case.own or case.operator.function.base.endswith("_"):
                    continue
                tried = True
                for transform in TRANSFORMS:
                    if only(transform):
                        self._one(transform, case, tally)
            if not tried:
                tally.skipped["no function of Go's by the operator's name"] += 1
        return tally.problems[found:]

    def _one(self, transform: str, case: Case, tally: Tally) -> None:
        both = (tally, self.by_transform[transform])
        call = Call.of(case)
        why = call.unfit() or call.too_large(transform)
        if not why:
            ended = self._compare(transform, call)
            if ended == "passed":
                for t in both:
                    t.passed += 1
                return
            if ended == "error":
                for t in both:
                    t.errors += 1
                return
            why = ended.removeprefix("skipped: ")
            if why == ended:
                for t in both:
                    t.problems.append(f"{transform} of {case!r} [{case.origin}]: {ended}")
                return
        for t in both:
            t.skipped[why] += 1

    def _compare(self, transform: str, call: Call) -> str:
        """ "passed", "error" where both raised, "skipped: why", or what differs."""
        xs = call.batched() if transform in MAPS else call.xs
        more: Tensors = []
        try:
            if transform == "vjp":
                seed()
                more = [_gradient_for(y) for y in call.function(*Copier()(call.xs))]
        except Exception as err:
            return f"skipped: {_refusal(err)}"
        if transform == "jvp":
            more = [_gradient_for(x) for x in call.xs]
        error = problem = ""
        results: list[Any] = []
        seed()
        try:
            results = TRANSFORMS[transform](call.function, Copier()(xs), more)
        except Exception as err:
            error = _refusal(err)
            raised = (type(err).__name__.lstrip("_"), first_line(str(err)))
        self.harness.seed(SEED)
        try:
            got = self._go(transform, call, Copier()(xs), more)
        except WrapperError as err:
            if not error:
                return f"panics with {err}; PyTorch gives a result"
            same = raised == (err.kind, first_line(err.message)) or reasons.same_error(
                raised, (err.kind, err.message)
            )
            return "error" if same else f"panics with {err}; PyTorch raises {': '.join(raised)}"
        except GoCrash as err:
            return f"crashes: {err}"
        if error:
            return f"gives a result; PyTorch raises {error}"
        problem = _value_difference(results, got, call.vague)
        if problem and self._moody(transform, call, xs, more, results):
            return "skipped: Python gives something else the second time"
        return problem or "passed"

    def _moody(
        self, transform: str, call: Call, xs: Tensors, more: Tensors, results: list[Any]
    ) -> bool:
        seed()
        again = TRANSFORMS[transform](call.function, Copier()(xs), more)
        return bool(_value_difference(results, again, call.vague))

    def _go(self, transform: str, call: Call, xs: Tensors, more: Tensors) -> list[Any]:
        request = Request([TRANSFORM, 0, 0])
        request.text_only(transform)
        request.value("Tensor[]", xs)
        request.value("Tensor[]", more)
        call.write(request)
        return self.harness.send(request)[0][0]


class Call:
    """A case as a function of the tensors among its arguments that can have a gradient."""

    def __init__(
        self, case: Case, wanted: Callable[[torch.Tensor], bool] = torch.Tensor.is_floating_point
    ) -> None:
        self.case = case
        self.wanted = wanted  # of arguments, and of results
        self.values = _detached(Copier()(case.values))
        flat = list(_flat(self.values))
        self.places = [i for i, t in enumerate(flat) if wanted(t)]
        self.xs = [flat[i] for i in self.places]
        self.others = [t for t in flat if not wanted(t)]
        self.vague = case.operator.name in reasons.UNINITIALISED

    _last: tuple[Case, Call] | None = None

    @classmethod
    def of(cls, case: Case) -> Call:
        if cls._last is None or cls._last[0] is not case:
            cls._last = (case, cls(case))
        return cls._last[1]

    def function(self, *xs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The operator as Python calls it, with its floating point results."""
        o = self.case.operator
        with_xs = iter(_places(self.values, dict(zip(self.places, xs, strict=True))))
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        positional = True
        for a, v in zip(o.arguments, with_xs, strict=True):
            if isinstance(v, Absent):
                positional = False
            elif a.kwarg_only or not positional:
                kwargs[a.name] = v
            else:
                args.append(v)
        result = o.oracle(*args, **kwargs)
        results = result if isinstance(result, (tuple, list)) else [result]
        flat = [t for r in results for t in (r if isinstance(r, (tuple, list)) else [r])]
        return tuple(t for t in flat if isinstance(t, torch.Tensor) and self.wanted(t))

    def write(self, request: Request) -> None:
        """Says which operator, with what arguments, and which of them are the function's."""
        request.words.append(len(self.places))
        request.words += self.places
        o = self.case.operator
        options = any(
            is_option and v is not absent
            for is_option, v in zip(o.options, self.values, strict=True)
        )
        request.words += (o.index, int(options))
        for a, v in zip(o.arguments, self.values, strict=True):
            request.value(a.type, v)

    def batched(self) -> Tensors:
        return [torch.stack([x, x * 0.5, x]) for x in self.xs]

    def unfit(self) -> str:
        o = self.case.operator
        if not self.xs:
            return "no floating point arguments"
        if o.random and "generator" in (a.name for a in o.arguments):
            given = dict(zip((a.name for a in o.arguments), self.values, strict=True))
            if isinstance(given["generator"], torch.Generator):
                return "a generator of its own, which Go gets a copy of"
        if any(t.layout != torch.strided or t.is_nested for t in _flat(self.values)):
            return "sparse or nested tensors"
        try:
            seed()
            ys = self.function(*Copier()(self.xs))
        except Exception as err:
            if reasons.refused(err, str(err)):
                return reasons.UNFIT
            return ""
        return "" if ys else "no floating point results"

    def too_large(self, transform: str) -> str:
        elements = sum(x.numel() for x in self.xs)
        return (
            f"more than {MOST[transform]} elements"
            if elements > MOST.get(transform, elements)
            else ""
        )


def _refusal(err: Exception) -> str:
    return f"{type(err).__name__.lstrip('_')}: {first_line(str(err))}"


def _flat(values: list[Any]) -> Iterator[torch.Tensor]:
    """The tensors of the arguments, in the order in which Go reads them."""
    for v in values:
        if isinstance(v, torch.Tensor):
            yield v
        elif isinstance(v, list):
            yield from _flat(v)


def _places(values: list[Any], xs: dict[int, torch.Tensor]) -> list[Any]:
    """The arguments with other tensors in some places of that order."""
    at = -1

    def place(v: Any) -> Any:
        nonlocal at
        if isinstance(v, torch.Tensor):
            at += 1
            return xs.get(at, v)
        return [place(x) for x in v] if isinstance(v, list) else v

    return [place(v) for v in values]


def _detached(v: Any) -> Any:
    if isinstance(v, torch.Tensor):
        return v.detach()
    return [_detached(x) for x in v] if isinstance(v, list) else v
