"""Runs the packages distributions, transforms and constraints beside torch.distributions.

A case is a `Spec`: a call of something in torch.distributions whose arguments may be other specs.
It is built in Python and in Go, on copies of the same tensors and with the same seed; then every
method is called on both, and results, gradients, random states and errors are compared, bit for
bit.
"""

from __future__ import annotations

import inspect
import itertools
import math
import random
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch import distributions as D
from torch.distributions import constraints, kl, relaxed_bernoulli, relaxed_categorical, transforms

from pytorch_bridge.schema.names import Names
from pytorch_bridge.schema.python_api import python_api

from .check import SEED, first_line
from .harness import Broken, GoCrash, Harness, Request, WrapperError
from .modules import FORGET, Tally, differ

MAKE, METHOD = -70, -71

# Names of torch.distributions that Go has not, or elsewhere, with the reason.
NOT_IN_GO = {
    "Constraint": "the interface `constraints.Constraint`",
    "Distribution": "the interface `distributions.Distribution`, and `distributions.Base`",
    "ExponentialFamily": "the interface `distributions.ExponentialFamily`",
    "Transform": "the interface `transforms.Transform`, and `transforms.Base`",
    "dependent_property": "a decorator of Python's; such a support is a method",
    "register_kl": "`distributions.RegisterKL`, which takes a Go function",
}

# Public names that are in no list of PyTorch's.
UNLISTED = {
    "LogitRelaxedBernoulli": relaxed_bernoulli.LogitRelaxedBernoulli,
    "ExpRelaxedCategorical": relaxed_categorical.ExpRelaxedCategorical,
}


@dataclass
class Spec:
    """A call of something in torch.distributions."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    inverse: bool = False  # of a transform

    def __repr__(self) -> str:
        given = [_show(a) for a in self.args] + [f"{k}={_show(v)}" for k, v in self.kwargs.items()]
        return f"{self.name}({', '.join(given)})" + ".inv" * self.inverse


def _show(v: Any) -> str:
    if isinstance(v, Tensor):
        return f"{str(v.dtype).removeprefix('torch.')}{list(v.shape)}"
    return repr(v)


def target(name: str) -> Any:
    """What a name is in torch.distributions."""
    # Some constraints have the names of modules of torch.distributions.
    order = (constraints, D, transforms) if name[0].islower() else (D, transforms, constraints)
    for namespace in order:
        found = getattr(namespace, name, None)
        if found is not None:
            return found
    return UNLISTED[name]


def mapped(value: Any, fn: Callable[[Any], Any]) -> Any:
    """value with fn applied to the tensors in it."""
    if isinstance(value, Spec):
        kwargs = {k: mapped(v, fn) for k, v in value.kwargs.items()}
        return Spec(value.name, tuple(mapped(a, fn) for a in value.args), kwargs, value.inverse)
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(v, fn) for v in value)
    return fn(value) if isinstance(value, Tensor) else value


def copied(value: Any) -> tuple[Any, list[Tensor]]:
    """A copy whose tensors are leaves of their own, and those that require grad."""
    leaves: list[Tensor] = []

    def copy(t: Tensor) -> Tensor:
        c = t.detach().clone()
        if t.requires_grad:
            leaves.append(c.requires_grad_())
        return c

    return mapped(value, copy), leaves


def in_python(value: Any) -> Any:
    """What a spec makes."""
    if isinstance(value, (list, tuple)):
        return [in_python(v) for v in value]
    if not isinstance(value, Spec):
        return value
    made = target(value.name)
    if inspect.isroutine(made) or inspect.isclass(made) or value.args or value.kwargs:
        kwargs = {k: in_python(v) for k, v in value.kwargs.items()}
        made = made(*(in_python(a) for a in value.args), **kwargs)
    return made.inv if value.inverse else made


@cache
def _names() -> Names:
    return Names()


@cache
def _signature(name: str) -> inspect.Signature:
    return inspect.signature(target(name))


class GoObject:
    """A distribution, constraint or transform that Go has made."""

    def __init__(self, harness: Harness, number: int, parts: Any = ()) -> None:
        self.harness, self.number = harness, number
        self.parts = parts  # what it is made of, whose tensors it has

    def __del__(self) -> None:
        if self.number:
            self.harness.send(Request([FORGET, 0, 0, self.number]))

    def call(self, method: str, *args: Any, options: dict[str, Any] | None = None) -> Any:
        request = Request([METHOD, 0, 0, self.number])
        request.text_only(method)
        request.invocation(list(args), options or {})
        return _one(self.harness.send(request)[0])

    def child(self, method: str, *args: Any) -> GoObject:
        return GoObject(self.harness, self.call(method, *args)[0], self)


def _one(results: list[Any]) -> Any:
    return results[0] if results else None


class Go:
    """Makes and calls things in Go."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness

    def invoke(self, name: str, parameters: Iterable[Any], options: dict[str, Any]) -> Any:
        request = Request([MAKE, 0, 0])
        request.text_only(name)
        request.invocation(list(parameters), options)
        return _one(self.harness.send(request)[0])

    def make(self, value: Any) -> Any:
        """What a spec makes."""
        if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
            return [self.make(v) for v in value]
        if not isinstance(value, Spec):
            return value
        parameters: list[Any] = []
        options: dict[str, Any] = {}
        made = target(value.name)
        if inspect.isroutine(made) or inspect.isclass(made):
            bound = _signature(value.name).bind(*value.args, **value.kwargs).arguments
            for name, p in _signature(value.name).parameters.items():
                required = p.default is p.empty
                if name in bound and bound[name] is not None and not required:
                    options |= _option(name, self.make(bound[name]))
                elif required and name in bound:
                    v = bound[name]
                    one = isinstance(v, Spec) and name in ("transforms", "parts")
                    parameters.append(self.make([v] if one else v))
        number = self.invoke(value.name, parameters, options)[0]
        found = GoObject(self.harness, number, (parameters, options))
        return found.child("Inv") if value.inverse else found


def _option(name: str, value: Any) -> dict[str, Any]:
    if name == "validate_args":
        return {} if value else {"NoValidateArgs": True}
    return {_names().field(name): value}


# Running both ------------------------------------------------------------------------------------


@dataclass
class Ended:
    """How a call ended."""

    value: Any = None
    error: tuple[str, str] | None = None
    state: Tensor | None = None


def attempt(fn: Callable[..., Any]) -> Ended:
    torch.manual_seed(SEED)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = fn()
    except WrapperError as err:
        return Ended(error=(err.kind, first_line(err.message)))
    except (GoCrash, Broken):
        raise
    except Exception as err:
        return Ended(error=(type(err).__name__.lstrip("_"), first_line(str(err))))
    return Ended(value, None, torch.get_rng_state())


# Messages in which Go has words of its own: PyTorch speaks of Python here.
OWN_WORDS = (
    r"Mismatching argument at index|objects cannot be broadcast|Attempting to broadcast",
    r"different +event shapes",
    r"has no attribute|object is not|unsupported operand|must be|indices|index|range",
    r"math domain error|Target size|torch\.finfo|is not invertible|max\(\) iterable|max\(\) arg",
)


def error_differs(wanted: tuple[str, str] | None, got: tuple[str, str] | None) -> str:
    """How errors differ: not in kind, and where it is Python's code that speaks not in the text."""
    if wanted is None or got is None:
        return "" if wanted is got else f"error {got}, not {wanted}"
    kinds = {"AssertionError": "ValueError", "ZeroDivisionError": "ValueError"}
    kind = kinds.get(wanted[0], wanted[0])
    typed = ("AttributeError", "TypeError", "IndexError")
    if kind in typed and got[0] in (*typed, "ValueError", "RuntimeError"):
        return ""
    if kind != got[0]:
        return f"error {got}, not {wanted}"
    spoken = wanted[0] not in ("AssertionError", "NotImplementedError", "ZeroDivisionError")
    if spoken and wanted[1] != got[1] and not any(re.search(w, wanted[1]) for w in OWN_WORDS):
        return f"error {got}, not {wanted}"
    return ""


def _gradient_for(t: Tensor) -> Tensor:
    with torch.no_grad():
        g = torch.arange(1, t.numel() + 1, dtype=torch.float64).remainder(7).add(0.5)
        return g.reshape(t.shape).to(t.dtype)


class Distributions:
    """Runs cases with one harness."""

    def __init__(self, harness: Harness) -> None:
        self.harness, self.go = harness, Go(harness)
        self.tallies: dict[str, Tally] = {}

    def tally(self, name: str) -> Tally:
        return self.tallies.setdefault(name, Tally())

    # One comparison ------------------------------------------------------------------------------

    def both(
        self,
        name: str,
        what: str,
        python: Callable[..., Any],
        go: Callable[..., Any],
        leaves: tuple[list[Tensor], list[Tensor]] = ([], []),
    ) -> Ended:
        """Calls Python and Go and counts what came of it; returns how Python ended."""
        tally = self.tally(name)
        wanted = attempt(python)
        try:
            got = attempt(go)
            problem = self._compare(tally, what, wanted, got, leaves)
        except (GoCrash, Broken) as err:
            problem = f"{type(err).__name__}: {first_line(str(err))}"
        if problem:
            tally.problems.append(f"{what}: {problem}")
        elif wanted.error:
            tally.errors += 1
        else:
            tally.passed += 1
        return wanted

    def _compare(
        self,
        tally: Tally,
        what: str,
        wanted: Ended,
        got: Ended,
        leaves: tuple[list[Tensor], list[Tensor]],
    ) -> str:
        if problem := error_differs(wanted.error, got.error):
            return problem
        if wanted.error:
            return ""
        w, g = wanted.value, got.value
        if isinstance(w, torch.Size):
            w = list(w)
        if problem := differ("the result", w, g):
            return problem
        if not torch.equal(wanted.state, got.state):
            return "the random numbers are in another state"
        if isinstance(w, Tensor):
            if w.requires_grad != g.requires_grad:
                return f"requires_grad is {g.requires_grad}"
            if w.requires_grad and w.is_floating_point() and leaves[0]:
                tally.gradients += 1
                grads = [
                    attempt(
                        lambda t=t, of=of: torch.autograd.grad(
                            t, of, _gradient_for(t), retain_graph=True, allow_unused=True
                        )
                    )
                    for t, of in ((w, leaves[0]), (g, leaves[1]))
                ]
                if problem := error_differs(grads[0].error, grads[1].error):
                    return f"the backward pass: {problem}"
                return differ("the gradient", grads[0].value, grads[1].value)
        return ""

    # Distributions -------------------------------------------------------------------------------

    def distribution(
        self, spec: Spec, values: Iterable[Tensor] = (), thorough: bool = True
    ) -> None:
        """Makes a distribution on both sides and calls all its methods."""
        name = spec.name
        (theirs, a), (ours, b) = copied(spec), copied(spec)
        leaves = (a, b)
        made: list[GoObject] = []

        def make() -> str:
            made.append(self.go.make(ours))
            return made[0].call("String")

        wanted = attempt(lambda: in_python(theirs))
        python = wanted.value
        self.both(name, f"{spec!r}", lambda: _repr(in_python(theirs)), make)
        if wanted.error or not made:
            return
        go = made[0]
        self.methods(name, repr(spec), python, go, leaves, values)
        if not thorough:
            return
        for shape in ((2, *python.batch_shape), (), (3, 2, 3)):
            expanded: list[Any] = [None, None]

            def of_python(shape: tuple[int, ...] = shape, at: list[Any] = expanded) -> str:
                at[0] = python.expand(torch.Size(shape))
                return _repr(at[0])

            def of_go(shape: tuple[int, ...] = shape, at: list[Any] = expanded) -> str:
                at[1] = go.child("Expand", *shape)
                return at[1].call("String")

            what = f"{spec!r}.expand({shape})"
            if not self.both(name, what, of_python, of_go).error and expanded[1]:
                self.methods(name, what, expanded[0], expanded[1], leaves, values)

    def methods(
        self,
        name: str,
        what: str,
        python: Any,
        go: GoObject,
        leaves: tuple[list[Tensor], list[Tensor]],
        values: Iterable[Tensor],
    ) -> None:
        def check(method: str, theirs: Callable[..., Any], ours: Callable[..., Any]) -> Ended:
            return self.both(name, f"{what}.{method}", theirs, ours, leaves)

        check("batch_shape", lambda: python.batch_shape, lambda: go.call("BatchShape"))
        check("event_shape", lambda: python.event_shape, lambda: go.call("EventShape"))
        check("has_rsample", lambda: bool(python.has_rsample), lambda: go.call("HasRSample"))
        check(
            "has_enumerate_support",
            lambda: bool(python.has_enumerate_support),
            lambda: go.call("HasEnumerateSupport"),
        )
        check(
            "arg_constraints",
            lambda: [str(x) for pair in python.arg_constraints.items() for x in pair],
            lambda: go.call("ArgConstraints"),
        )
        support = check(
            "support", lambda: str(python.support), lambda: go.child("Support").call("String")
        )
        drawn: list[Tensor] = []
        for shape in ((), (3,), (2, 1), (0,)):
            s = check(
                f"sample({shape})",
                lambda shape=shape: python.sample(torch.Size(shape)),
                lambda shape=shape: go.call("Sample", *shape),
            )
            if s.value is not None:
                drawn.append(s.value)
            check(
                f"rsample({shape})",
                lambda shape=shape: python.rsample(torch.Size(shape)),
                lambda shape=shape: go.call("RSample", *shape),
            )
        for method, attribute in (
            ("Mean", "mean"),
            ("Mode", "mode"),
            ("Variance", "variance"),
            ("StdDev", "stddev"),
            ("Entropy", "entropy"),
            ("Perplexity", "perplexity"),
        ):

            def of(attribute: str = attribute) -> Any:
                found = getattr(python, attribute)
                return found() if callable(found) else found

            check(attribute, of, lambda method=method: go.call(method))
        for attribute in ("probs", "logits", "scale_tril", "covariance_matrix", "precision_matrix"):
            if hasattr(type(python), attribute):
                check(
                    attribute,
                    lambda attribute=attribute: getattr(python, attribute),
                    lambda attribute=attribute: go.call(_names().field(attribute)),
                )
        for expand in (True, False):
            check(
                f"enumerate_support({expand})",
                lambda expand=expand: python.enumerate_support(expand),
                lambda expand=expand: go.call(
                    "EnumerateSupport", options={} if expand else {"NoExpand": True}
                ),
            )
        for at, value in enumerate([*drawn, *values]):
            for method, attribute in (("LogProb", "log_prob"), ("CDF", "cdf"), ("ICDF", "icdf")):
                inputs = [value.detach().clone() for _ in "ab"]
                differentiable = value.is_floating_point() and at % 2 == 0
                if differentiable:
                    inputs = [t.requires_grad_() for t in inputs]
                if attribute == "icdf" and value.is_floating_point():
                    inputs = [t.detach().sigmoid() for t in inputs]
                with_value = tuple(
                    [*of, t] if t.requires_grad else of
                    for of, t in zip(leaves, inputs, strict=True)
                )
                self.both(
                    name,
                    f"{what}.{attribute}({_show(value)} {value.flatten()[:3].tolist()})",
                    lambda attribute=attribute, t=inputs[0]: getattr(python, attribute)(t),
                    lambda method=method, t=inputs[1]: go.call(method, t),
                    with_value,  # type: ignore[arg-type]
                )
            if support.error is None:
                self.both(
                    name,
                    f"{what}.support.check({_show(value)})",
                    lambda value=value: python.support.check(value),
                    lambda value=value: go.child("Support").call("Check", value),
                )
        check("repr", lambda: _repr(python), lambda: go.call("String"))

    # Divergences ---------------------------------------------------------------------------------

    def divergence(self, p: Spec, q: Spec) -> Ended:
        pair = Spec("kl_divergence", (p, q))
        (theirs, a), (ours, b) = copied(pair), copied(pair)
        made = [attempt(lambda s=s: in_python(s)) for s in theirs.args]
        if any(m.error for m in made):
            return made[0]
        objects = [self.go.make(s) for s in ours.args]
        return self.both(
            "kl_divergence",
            repr(pair),
            lambda: D.kl_divergence(made[0].value, made[1].value),
            lambda: self.go.invoke("kl_divergence", objects, {}),
            (a, b),
        )

    # Transforms ----------------------------------------------------------------------------------

    def made(self, spec: Spec) -> tuple[tuple[Any, Any], tuple[GoObject, Any]] | None:
        """What spec makes on both sides, each with its tensors; None where it is refused."""
        (theirs, a), (ours, b) = copied(spec), copied(spec)
        go: list[GoObject] = []

        def make() -> str:
            go.append(self.go.make(ours))
            return go[0].call("String")

        wanted = attempt(lambda: in_python(theirs))
        self.both(spec.name, f"{spec!r}", lambda: repr(in_python(theirs)), make)
        return None if wanted.error or not go else ((wanted.value, a), (go[0], b))

    def transform(self, spec: Spec, inputs: Iterable[Tensor], shapes: Iterable[tuple] = ()) -> None:
        """Makes a transform on both sides and calls all its methods."""
        name = spec.name
        made = self.made(spec)
        if made is None:
            return
        (python, a), (go, b) = made

        def check(method: str, p: Callable[..., Any], g: Callable[..., Any]) -> Ended:
            return self.both(name, f"{spec!r}.{method}", p, g, (a, b))

        check("bijective", lambda: bool(python.bijective), lambda: go.call("Bijective"))
        check("sign", lambda: python.sign, lambda: go.call("Sign"))
        check("event_dim", lambda: python.event_dim, lambda: go.call("EventDim"))
        check("inv", lambda: repr(python.inv), lambda: go.child("Inv").call("String"))
        check(
            "inv.inv",
            lambda: repr(python.inv.inv),
            lambda: go.child("Inv").child("Inv").call("String"),
        )
        check(
            "with_cache",
            lambda: repr(python.with_cache(1)),
            lambda: go.child("WithCache", 1).call("String"),
        )
        for end in ("domain", "codomain"):
            method = end.capitalize()
            check(
                end,
                lambda end=end: str(getattr(python, end)),
                lambda m=method: go.child(m).call("String"),
            )
            check(
                f"{end}.event_dim",
                lambda end=end: getattr(python, end).event_dim,
                lambda m=method: go.child(m).call("EventDim"),
            )
        for shape in shapes:
            for method, attribute in (
                ("ForwardShape", "forward_shape"),
                ("InverseShape", "inverse_shape"),
            ):
                check(
                    f"{attribute}({shape})",
                    lambda at=attribute, s=shape: list(getattr(python, at)(torch.Size(s))),
                    lambda m=method, s=shape: go.call(m, list(s)),
                )
        for value in inputs:
            self._through(name, repr(spec), python, go, value, (a, b))
            cached = attempt(lambda: python.with_cache(1))
            # What is its own inverse may come out of the cache either way.
            if cached.error is None and "AbsTransform" not in repr(spec):
                what = f"{spec!r} cached"
                self._through(name, what, cached.value, go.child("WithCache", 1), value, (a, b))

    def _through(
        self,
        name: str,
        what: str,
        p: Any,
        g: GoObject,
        value: Tensor,
        of: tuple[list[Tensor], list[Tensor]],
    ) -> None:
        """Sends a value there and back."""
        x = [value.detach().clone().requires_grad_(value.is_floating_point()) for _ in "ab"]
        leaves = ([*of[0], x[0]], [*of[1], x[1]]) if value.is_floating_point() else of
        what = f"{what}({_show(value)} {value.flatten()[:3].tolist()})"
        ys = self.both(name, what, lambda: p(x[0]), lambda: g.call("Forward", x[1]), leaves)
        self.both(
            name,
            f"{what} inverse of input",
            lambda: p.inv(x[0]),
            lambda: g.child("Inv").call("Forward", x[1]),
            leaves,
        )
        if ys.error:
            return
        floats = ys.value.is_floating_point()
        y = [ys.value.detach().clone().requires_grad_(floats) for _ in "ab"]
        both = ([*leaves[0], y[0]], [*leaves[1], y[1]]) if floats else leaves
        self.both(
            name,
            f"{what} back",
            lambda: p.inv(y[0]),
            lambda: g.child("Inv").call("Forward", y[1]),
            both,
        )
        self.both(
            name,
            f"{what} log_abs_det_jacobian",
            lambda: p.log_abs_det_jacobian(x[0], y[0]),
            lambda: g.call("LogAbsDetJacobian", x[1], y[1]),
            both,
        )
        self.both(
            name,
            f"{what} inv.log_abs_det_jacobian",
            lambda: p.inv.log_abs_det_jacobian(y[0], x[0]),
            lambda: g.child("Inv").call("LogAbsDetJacobian", y[1], x[1]),
            both,
        )

    # Constraints ---------------------------------------------------------------------------------

    def constraint(self, spec: Spec, values: Iterable[Tensor]) -> None:
        """Makes a constraint on both sides, and the transforms into it, and checks values."""
        name = spec.name
        made = self.made(spec)
        if made is None:
            return
        (python, _), (go, _) = made
        what = repr(spec)
        self.both(
            name, f"{what}.is_discrete", lambda: python.is_discrete, lambda: go.call("IsDiscrete")
        )
        self.both(name, f"{what}.event_dim", lambda: python.event_dim, lambda: go.call("EventDim"))
        self.both(
            name,
            f"is_dependent({what})",
            lambda: constraints.is_dependent(python),
            lambda: self.go.invoke("is_dependent", [go], {}),
        )
        for value in values:
            self.both(
                name,
                f"{what}.check({_show(value)} {value.flatten()[:4].tolist()})",
                lambda value=value: python.check(value),
                lambda value=value: go.call("Check", value),
            )
        for registry in ("biject_to", "transform_to"):
            into: list[Any] = [None, None]

            def of_python(registry: str = registry, at: list[Any] = into) -> str:
                at[0] = getattr(D, registry)(python)
                return repr(at[0])

            def of_go(registry: str = registry, at: list[Any] = into) -> str:
                at[1] = GoObject(self.harness, self.go.invoke(registry, [go], {})[0], go)
                return at[1].call("String")

            if self.both(registry, f"{registry}({what})", of_python, of_go).error or not into[1]:
                continue
            for value in values:
                self.both(
                    registry,
                    f"{registry}({what})({_show(value)})",
                    lambda value=value, t=into[0]: t(value),
                    lambda value=value, t=into[1]: t.call("Forward", value),
                )


def _repr(d: Any) -> str:
    return re.sub(r"(?<=[\w.])\(\) \+ ", "", repr(d))


# Cases -------------------------------------------------------------------------------------------


class Cases:
    """Random cases of torch.distributions."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)

    def shape(self) -> tuple[int, ...]:
        """One of shapes that mostly broadcast with each other."""
        return self.random.choice(
            [(), (), (1,), (3,), (2, 1), (2, 3), (2, 3), (1, 3), (0, 3), (4,)][
                : 9 + (self.random.random() < 0.1)
            ]
        )

    def dtype(self) -> torch.dtype:
        return self.random.choice([torch.float32, torch.float32, torch.float64])

    def rand(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return torch.rand(shape, dtype=torch.float64, generator=self.generator).to(dtype)

    def randn(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=self.generator).to(dtype)

    def learned(self, t: Tensor) -> Tensor:
        return t.requires_grad_(t.is_floating_point() and self.random.random() < 0.7)

    def numbers(self, kind: str, dtype: torch.dtype, number: float = 0.25) -> Any:
        """A tensor or a number of a kind."""
        r = self.random
        hostile = r.random() < 0.08
        if r.random() < number:
            choices: dict[str, list[Any]] = {
                "real": [0, 1.5, -2.0, 0.0, True],
                "positive": [1, 0.3, 2.5, 4.0],
                "unit": [0.3, 0.5, 0.9, 0, 1],
                "count": [0, 1, 5, 3],
            }
            return r.choice([-1.0, math.nan, math.inf, 0]) if hostile else r.choice(choices[kind])
        shape = self.shape()
        t = {
            "real": lambda: self.randn(shape, dtype) * 2,
            "positive": lambda: self.rand(shape, dtype) * r.choice([1.0, 4.0]) + 0.05,
            "unit": lambda: self.rand(shape, dtype),
            "count": lambda: (self.rand(shape, dtype) * 6).floor(),
        }[kind]()
        if hostile and t.numel():
            t.view(-1)[0] = r.choice([-1.0, math.nan, math.inf, 0.0, 1.0])
        elif kind == "unit" and t.numel() and r.random() < 0.3:
            t.view(-1)[-1] = r.choice([0.0, 1.0, 0.5])
        elif kind == "count" and r.random() < 0.3:
            t = torch.full_like(t, 4.0)
        return self.learned(t)

    def flags(self) -> dict[str, Any]:
        return self.random.choice([{}, {}, {}, {"validate_args": False}])

    def vectors(self, kind: str, dtype: torch.dtype, n: int, shape: tuple[int, ...]) -> Tensor:
        full = (*shape, n)
        t = {
            "real": lambda: self.randn(full, dtype),
            "positive": lambda: self.rand(full, dtype) * 3 + 0.05,
            "unit": lambda: self.rand(full, dtype) + 0.01,
        }[kind]()
        if t.numel() and self.random.random() < 0.1:
            t.view(-1)[0] = self.random.choice([-1.0, math.nan, math.inf, 0.0])
        return self.learned(t)

    def matrix(self, kind: str, dtype: torch.dtype, n: int, shape: tuple[int, ...]) -> Tensor:
        a = self.randn((*shape, n, n), dtype)
        m = a @ a.mT + torch.eye(n, dtype=dtype)
        if kind == "scale_tril":
            m = torch.linalg.cholesky(m).contiguous()
        if m.numel() and self.random.random() < 0.07:
            m.view(-1)[0] = self.random.choice([-1.0, math.nan])
        return self.learned(m)

    def either(self, vector: bool) -> dict[str, Any]:
        dtype = self.dtype()
        name = self.random.choice(["probs", "logits"])
        if self.random.random() < 0.03:
            return {}
        if vector:
            shape = self.random.choice([(), (3,), (2, 3), (0,)])
            value = self.vectors("unit" if name == "probs" else "real", dtype, 4, shape)
        else:
            value = self.numbers("unit" if name == "probs" else "real", dtype)
        return {name: value} | self.flags()

    def distribution(self, name: str) -> Spec:
        """Random parameters for a distribution."""
        r, dtype = self.random, self.dtype()
        n = r.choice([1, 2, 3])
        batch = r.choice([(), (3,), (2, 3), (1, 3)])
        if name == "VonMises":  # for what is no concentration PyTorch draws samples for ever
            most = r.choice([3, 30])  # the formula is another one from 3.75
            concentration = self.learned(self.rand(self.shape(), dtype) * most + 0.1)
            return Spec(name, (self.numbers("real", dtype), concentration), self.flags())
        if name in SIMPLE:
            kinds = SIMPLE[name]
            return Spec(name, tuple(self.numbers(k, dtype) for k in kinds), self.flags())
        if name in ("Bernoulli", "ContinuousBernoulli", "Geometric"):
            more = {"lims": (0.45, 0.55)} if name[0] == "C" and r.random() < 0.3 else {}
            return Spec(name, (), self.either(False) | more)
        if name in ("Categorical", "OneHotCategorical", "OneHotCategoricalStraightThrough"):
            return Spec(name, (), self.either(True))
        if name == "Multinomial":
            return Spec(name, (r.choice([1, 3, 7]),), self.either(True))
        if name in ("Binomial", "NegativeBinomial"):
            return Spec(name, (self.numbers("count", dtype, 0.5),), self.either(False))
        if name in ("RelaxedBernoulli", "LogitRelaxedBernoulli"):
            return Spec(name, (self.learned(self.rand((), dtype) + 0.3),), self.either(False))
        if name in ("RelaxedOneHotCategorical", "ExpRelaxedCategorical"):
            return Spec(name, (self.learned(self.rand((), dtype) + 0.3),), self.either(True))
        if name == "StudentT":
            given = {
                k: self.numbers(v, dtype)
                for k, v in (("loc", "real"), ("scale", "positive"))
                if r.random() < 0.7
            }
            return Spec(name, (self.numbers("positive", dtype),), given | self.flags())
        if name == "Dirichlet":
            return Spec(
                name,
                (self.vectors("positive", dtype, 3, batch if r.random() < 0.9 else (0,)),),
                self.flags(),
            )
        if name == "LKJCholesky":
            return Spec(
                name, (r.choice([1, 2, 3, 4]), self.numbers("positive", dtype)), self.flags()
            )
        if name in ("MultivariateNormal", "Wishart"):
            which = r.choice(["covariance_matrix", "precision_matrix", "scale_tril"])
            first = (
                self.vectors("real", dtype, n, r.choice([batch, ()]))
                if name[0] == "M"
                else (
                    r.choice(
                        [
                            n + 1.5,
                            n + 2,
                            self.learned(self.rand(r.choice([batch, ()]), dtype) * 3 + n),
                        ]
                    )
                )
            )
            return Spec(
                name,
                (first,),
                {which: self.matrix(which, dtype, n, r.choice([batch, ()]))} | self.flags(),
            )
        if name == "LowRankMultivariateNormal":
            shapes = [r.choice([batch, ()]) for _ in range(3)]
            factor = self.learned(self.randn((*shapes[1], n, r.choice([1, 2])), dtype))
            return Spec(
                name,
                (
                    self.vectors("real", dtype, n, shapes[0]),
                    factor,
                    self.vectors("positive", dtype, n, shapes[2]),
                ),
                self.flags(),
            )
        if name == "Independent":
            base = self.distribution(
                r.choice(["Normal", "Bernoulli", "Dirichlet", "Categorical", "Uniform"])
            )
            return Spec(name, (base, r.choice([0, 1, 1, 2])), self.flags())
        if name == "MixtureSameFamily":
            k = 3
            mixture = Spec(
                "Categorical",
                (),
                {"logits": self.learned(self.randn(r.choice([(k,), (2, k)]), dtype))},
            )
            shape = r.choice([(k,), (2, k)])
            component = r.choice(
                [
                    Spec(
                        "Normal",
                        (
                            self.learned(self.randn(shape, dtype)),
                            self.learned(self.rand(shape, dtype) + 0.1),
                        ),
                    ),
                    Spec("Poisson", (self.learned(self.rand(shape, dtype) + 0.1),)),
                    Spec(
                        "Independent",
                        (Spec("Normal", (self.learned(self.randn((*shape, 2), dtype)), 1.0)), 1),
                    ),
                    Spec("Dirichlet", (self.rand((*shape, 3), dtype) + 0.1,)),
                    Spec("Normal", (0.0, 1.0)),
                ]
            )
            return Spec(name, (mixture, component), self.flags())
        if name == "TransformedDistribution":
            base = r.choice(
                [
                    Spec("Normal", (self.numbers("real", dtype), self.numbers("positive", dtype))),
                    Spec("Normal", (self.learned(self.randn((2, 3), dtype)), 1.0)),
                    Spec("Uniform", (0.0, 1.0)),
                    Spec("Dirichlet", (self.rand((2, 3), dtype) + 0.1,)),
                ]
            )
            ts = [
                self.transform(r.choice(FOR_DISTRIBUTIONS))
                for _ in range(r.choice([0, 1, 1, 2, 3]))
            ]
            return Spec(name, (base, ts), self.flags())
        raise KeyError(name)

    def values(self) -> list[Tensor]:
        """Values to ask for probabilities of: some inside of any support, some outside of all."""
        dtype = self.dtype()
        return [
            self.randn((), dtype),
            self.rand((3,), dtype),
            torch.tensor([0.0, 1.0, 0.5], dtype=dtype),
            torch.tensor(math.nan, dtype=dtype),
            torch.tensor([[math.inf], [-1.0]], dtype=dtype),
            torch.tensor([0, 1, 0]),
            self.rand((2, 3, 3), dtype),
            self.rand((0, 3), dtype),
            self.rand((5,), dtype),
            torch.tensor([True, False, True]),
            torch.eye(3, dtype=dtype),
        ]

    def transform(self, name: str) -> Spec:
        r, dtype = self.random, self.dtype()
        cache = (
            {"cache_size": 1}
            if r.random() < 0.2 and name not in ("AbsTransform", "identity_transform")
            else {}
        )
        inverse = r.random() < 0.2
        if name == "AffineTransform":
            given = [self.numbers("real", dtype), self.numbers("positive", dtype)]
            if r.random() < 0.3 and isinstance(given[1], Tensor):
                given[1] = (-given[1].detach()).requires_grad_(given[1].requires_grad)
            return Spec(
                name,
                tuple(given),
                cache | ({"event_dim": r.choice([1, 2])} if r.random() < 0.3 else {}),
                inverse,
            )
        if name == "PowerTransform":
            return Spec(name, (self.numbers("positive", dtype),), cache, inverse)
        if name == "ReshapeTransform":
            return Spec(
                name,
                r.choice(
                    [((3,), (3, 1)), ((2, 3), (6,)), ((6,), (2, 3)), ((), (1,)), ((2,), (3,))]
                ),
                cache,
                inverse,
            )
        if name == "ComposeTransform":
            return Spec(
                name,
                ([self.transform(r.choice(ELEMENTARY)) for _ in range(r.choice([0, 1, 2, 3]))],),
                cache,
                inverse,
            )
        if name == "IndependentTransform":
            return Spec(
                name, (self.transform(r.choice(ELEMENTARY)), r.choice([0, 1, 2])), cache, inverse
            )
        if name == "CatTransform":
            parts = [
                self.transform(r.choice(("ExpTransform", "AbsTransform", "TanhTransform")))
                for _ in range(2)
            ]
            joined = {"dim": r.choice([0, 1, -1])} | (
                {"lengths": [1, 2]} if r.random() < 0.7 else {}
            )
            return Spec(name, (parts,), joined | cache, inverse)
        if name == "StackTransform":
            parts = [
                self.transform(r.choice(("ExpTransform", "SigmoidTransform", "TanhTransform")))
                for _ in range(3)
            ]
            return Spec(name, (parts,), {"dim": r.choice([0, 1, -1])} | cache, inverse)
        if name == "CumulativeDistributionTransform":
            return Spec(
                name,
                (self.distribution(r.choice(["Normal", "Laplace", "Cauchy"])),),
                cache,
                inverse,
            )
        return Spec(name, (), cache, inverse)

    def inputs(self) -> list[Tensor]:
        dtype = self.dtype()
        found = [
            self.randn((), dtype),
            self.randn((3,), dtype),
            self.rand((2, 3), dtype),
            self.randn((2, 3, 3), dtype) * 3,
            self.rand((6,), dtype),
            self.rand((0, 3), dtype),
            torch.tensor([0.0, 1.0, -1.0, math.nan, math.inf, -math.inf], dtype=dtype),
        ]
        a = self.randn((2, 3, 3), dtype)
        found.append(a @ a.mT + torch.eye(3, dtype=dtype))
        return found

    def constraint(self, name: str) -> Spec:
        r, dtype = self.random, self.dtype()
        if name in ("greater_than", "greater_than_eq", "less_than", "multinomial"):
            return Spec(name, (self.numbers("real", dtype, 0.5),))
        if name in ("interval", "half_open_interval", "integer_interval"):
            low = self.numbers("real", dtype, 0.5)
            return Spec(
                name,
                r.choice(
                    [(low, self.numbers("positive", dtype, 0.5)), (0, 1), (0.0, 1.0), (-1, 2.5)]
                ),
            )
        if name == "independent":
            return Spec(name, (self.constraint(r.choice(BOUNDED)), r.choice([0, 1, 2, -1])))
        if name == "MixtureSameFamilyConstraint":
            return Spec(name, (self.constraint(r.choice((*BOUNDED, "simplex"))),))
        if name == "cat":
            given = {"dim": r.choice([0, -1, 1])} | (
                {"lengths": [1, 2]} if r.random() < 0.8 else {}
            )
            return Spec(name, ([self.constraint(r.choice(BOUNDED)) for _ in range(2)],), given)
        if name == "stack":
            return Spec(
                name,
                ([self.constraint(r.choice(BOUNDED)) for _ in range(3)],),
                {"dim": r.choice([0, -1, 1])},
            )
        return Spec(name)

    def hostile(self) -> list[Tensor]:
        """Values to check: of all dtypes, with what is no number, without elements."""
        found = self.inputs()
        lower = torch.linalg.cholesky(found[-1])
        found += [
            lower,
            lower / lower.norm(dim=-1, keepdim=True),
            torch.softmax(self.randn((2, 3), torch.float64), -1),
            torch.eye(3)[[0, 2]],
            torch.tensor([0, 1, 3, -2]),
            torch.tensor([True, False]),
            torch.tensor([0.0, 1.0, 2.0, 2.5, -3.0, math.inf]),
            torch.rand(2, 0, 0),
            torch.rand(2, 3, 4, generator=self.generator),
            torch.tensor([1.0, 2.0], dtype=torch.bfloat16),
        ]
        return found


class Spoiler:
    """Makes of good arguments what no one should pass, or seldom does."""

    DTYPES = (
        torch.int64,
        torch.bfloat16,
        torch.float16,
        torch.float64,
        torch.bool,
        torch.complex64,
    )
    NUMBERS = (-1.0, math.nan, math.inf, -math.inf, 0.0, 1.0, 1e-45, 1e38, -0.0)

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def __call__(self, value: Any) -> Any:
        if isinstance(value, Spec):
            fixed = ("validate_args", "cache_size")
            kwargs = {k: v if k in fixed else self(v) for k, v in value.kwargs.items()}
            return Spec(value.name, tuple(map(self, value.args)), kwargs, value.inverse)
        if isinstance(value, (list, tuple)):
            return type(value)(map(self, value))
        if isinstance(value, Tensor):
            return self.tensor(value) if self.random.random() < 0.6 else value
        if type(value) is float and self.random.random() < 0.3:
            return self.random.choice(self.NUMBERS)
        if type(value) is int and self.random.random() < 0.3:
            return self.random.choice((0, 1, 2, 5))
        return value

    def tensor(self, t: Tensor) -> Tensor:
        """Another dtype, shape or element."""
        r, learned = self.random, t.requires_grad
        t = t.detach().clone(memory_format=torch.contiguous_format)
        kind = r.choice(("dtype", "number", "number", "more", "less", "empty", "twice", "large"))
        if kind == "dtype":
            t = t.to(r.choice(self.DTYPES))
        elif kind == "number" and t.numel() and t.is_floating_point():
            t.view(-1)[r.randrange(t.numel())] = r.choice(self.NUMBERS)
        elif kind == "more":
            t = t.unsqueeze(r.randrange(t.dim() + 1))
        elif kind == "less" and t.dim() and t.shape[0]:
            t = t[0]
        elif kind == "empty" and t.dim():
            t = t.narrow(r.randrange(t.dim()), 0, 0)
        elif kind == "twice" and t.dim():
            t = torch.cat([t, t], r.randrange(t.dim()))
        elif kind == "large" and t.is_floating_point():
            t = t * 1e30
        return t.requires_grad_(learned and t.is_floating_point())


_TWO = {
    ("real", "positive"): "Normal Laplace Cauchy Gumbel LogNormal LogisticNormal VonMises Uniform",
    ("positive", "positive"): "Beta Gamma InverseGamma Kumaraswamy Pareto Weibull FisherSnedecor",
    ("positive",): "Chi2 Exponential HalfCauchy HalfNormal Poisson",
    ("real", "positive", "real"): "GeneralizedPareto",
}
SIMPLE = {name: kinds for kinds, names_ in _TWO.items() for name in names_.split()}
ELEMENTARY = (
    "ExpTransform", "PowerTransform", "SigmoidTransform", "SoftplusTransform", "TanhTransform",
    "AbsTransform", "AffineTransform", "StickBreakingTransform", "SoftmaxTransform",
)  # fmt: skip
FOR_DISTRIBUTIONS = (
    *ELEMENTARY,
    "CumulativeDistributionTransform",
    "ReshapeTransform",
    "IndependentTransform",
)
BOUNDED = (
    "real",
    "positive",
    "nonnegative",
    "unit_interval",
    "greater_than",
    "interval",
    "less_than",
    "boolean",
)


# Parameters on both sides of every bound that a formula has, and far away.
_WIDE: dict[str, list[float]] = {
    "real": [-1e30, -40.0, -0.5, 0.0, 3.0, 1e30],
    "positive": [1e-30, 1e-3, 0.5, 1.0, 2.0, 3.9, 4.0, 1e30],
    "unit": [0.0, 1e-30, 0.4995, 0.5, 0.9, 1.0],
    "logits": [-1e30, -3.0, 0.0, 0.001, 3.0, 40.0],
}


def _wide(kind: str, dtype: torch.dtype, dims: int = 0) -> Tensor:
    """A tensor of them, with dimensions to broadcast behind."""
    values = torch.tensor(_WIDE[kind], dtype=dtype)
    return values.reshape(-1, *[1] * dims).requires_grad_()


def corners(name: str) -> list[Spec]:
    """What one seldom draws: options left out, wide parameters, probabilities of 0 and 1."""
    half, double = torch.tensor([0.2, 0.5]), torch.float64
    either = [{"probs": _wide("unit", double)}, {"logits": _wide("logits", torch.float32)}]
    vectors: list[dict[str, Any]] = [
        {"probs": torch.tensor([[0.0, 0.5, 0.5], [1.0, 0.0, 0.0]], requires_grad=True)},
        {"logits": torch.tensor([[-math.inf, 0.0, 1.0], [3.0, 4.0, 5.0]])},
    ]
    if name == "VonMises":  # PyTorch draws for ever where the concentration is extreme
        positive = torch.tensor([1e-3, 0.5, 3.7, 3.8, 30.0], dtype=double, requires_grad=True)
        return [Spec(name, (0.5, positive))]
    if name in SIMPLE:
        kinds = SIMPLE[name]
        return [
            Spec(name, tuple(_wide(k, dtype, at) for at, k in enumerate(kinds)))
            for dtype in (torch.float32, double)
        ]
    if name in ("Bernoulli", "ContinuousBernoulli", "Geometric"):
        return [Spec(name, (), given | {"validate_args": False}) for given in either]
    if name in ("Categorical", "OneHotCategorical", "OneHotCategoricalStraightThrough"):
        return [Spec(name, (), given | {"validate_args": False}) for given in vectors]
    if name in ("RelaxedBernoulli", "RelaxedOneHotCategorical"):
        # Whole numbers have no logits, and none are computed before they are asked for.
        temperature, whole = torch.tensor([0.5]), {"probs": torch.tensor([1, 1])}
        return [Spec(name, (temperature,), whole | {"validate_args": v}) for v in (True, False)]
    if name == "Multinomial":
        return [Spec(name, (), vectors[0]), Spec(name, (3,), vectors[0])]
    if name == "Binomial":
        return [Spec(name, (), either[0]), *(Spec(name, (4,), given) for given in either)]
    if name == "NegativeBinomial":
        return [Spec(name, (4,), given | {"validate_args": False}) for given in either]
    if name == "StudentT":
        positive = _wide("positive", double)
        return [Spec(name, (positive,)), Spec(name, (positive, 1.5)), Spec(name, (3, 0, positive))]
    if name == "LKJCholesky":
        return [Spec(name, (3,))]
    if name == "Dirichlet":
        return [Spec(name, (torch.tensor([[1e-3, 1e-3], [0.5, 3.0]], requires_grad=True),))]
    if name == "Wishart":
        # The square roots on the diagonal are kept from 0.
        return [Spec(name, (1e-4,), {"scale_tril": torch.eye(1, requires_grad=True)})]
    if name == "MixtureSameFamily":
        return [
            Spec(
                name,
                (
                    Spec("Categorical", (), {"probs": torch.rand(*mixed, 2) + 0.1}),
                    Spec("Normal", (torch.randn(*batch, 2), 1.0)),
                ),
            )
            for mixed, batch in (((), ()), ((), (3, 2)), ((2,), (3, 2)), ((3, 1), (3, 2)))
        ]
    if name == "Independent":
        return [Spec(name, (Spec("Normal", (half, 1.0)), n)) for n in (0, 1)]
    return []


def corner_divergences() -> list[tuple[Spec, Spec]]:
    """Pairs where one has what the other has not: probabilities of 0, other counts and bounds."""
    unit = torch.tensor([0.0, 0.3, 1.0], dtype=torch.float64)
    ours, theirs = unit.repeat(3), unit.repeat_interleave(3)
    same = {
        "Bernoulli": ((), {}),
        "Binomial": ((3,), {}),
        "ContinuousBernoulli": ((), {"validate_args": False}),
    }
    found = [
        (
            Spec(name, args, {"probs": ours.clone().requires_grad_()} | more),
            Spec(name, args, {"probs": theirs.clone().requires_grad_()} | more),
        )
        for name, (args, more) in same.items()
    ]
    rows = torch.tensor([[0.0, 0.5, 0.5], [0.5, 0.5, 0.0], [1.0, 0.0, 0.0]], dtype=torch.float64)
    for name in ("Categorical", "OneHotCategorical"):
        p, q = rows.clone().requires_grad_(), rows[:, None].clone().requires_grad_()
        found.append((Spec(name, (), {"probs": p}), Spec(name, (), {"probs": q})))
    for p, q in registered():
        if p in SIMPLE and q in SIMPLE and "VonMises" not in (p, q):
            found += zip(corners(p)[1:], corners(q)[1:], strict=True)
    for p, count in (("Binomial", 3), ("Binomial", 5)):
        found.append((Spec(p, (4,), {"probs": 0.5}), Spec(p, (count,), {"probs": 0.25})))
    # What lies on one bound of the unit interval, and beyond the other, tells the two apart.
    bounds = ((0.0, 1.0), (-1.0, 0.5), (0.25, 2.0), (1.0, 3.0), (0.0, 2.0), (-1.0, 1.0))
    others = [
        Spec("Beta", (2.0, 3.0)),
        Spec("ContinuousBernoulli", (), {"probs": 0.3}),
        Spec("Exponential", (2.0,)),
        Spec("Gamma", (2.0, 3.0)),
        Spec("Pareto", (0.5, 3.0)),
        *(Spec("Uniform", b) for b in bounds),
    ]
    for b in bounds:
        found += [(Spec("Uniform", b), q) for q in others]
        found += [(p, Spec("Uniform", b)) for p in others]
    return found


def names() -> list[str]:
    """All public names below torch.distributions."""
    found = {n.rpartition(".")[2] for n in python_api() if n.startswith("torch.distributions.")}
    return sorted(found)


def distributions() -> list[str]:
    return sorted(
        n
        for n in (*names(), *UNLISTED)
        if inspect.isclass(target(n))
        and issubclass(target(n), D.Distribution)
        and n not in NOT_IN_GO
    )


def transform_names() -> list[str]:
    found = [
        n
        for n in names()
        if inspect.isclass(target(n)) and issubclass(target(n), D.Transform) and n not in NOT_IN_GO
    ]
    return [*found, "identity_transform"]


def constraint_names() -> list[str]:
    space = "torch.distributions.constraints"
    found = [n.name for n in python_api().values() if n.namespace == space]
    return [n for n in found if n not in NOT_IN_GO and n != "is_dependent"]


def registered() -> list[tuple[str, str]]:
    """The pairs of distributions that a divergence is registered for."""
    return sorted((p.__name__, q.__name__) for p, q in kl._KL_REGISTRY)


@contextmanager
def unchecked(runner: Distributions) -> Iterator[None]:
    """Has arguments not been checked, in Python and in Go."""
    D.Distribution.set_default_validate_args(False)
    runner.go.invoke("set_default_validate_args", [False], {})
    try:
        yield
    finally:
        D.Distribution.set_default_validate_args(True)
        runner.go.invoke("set_default_validate_args", [True], {})


def run_distribution(runner: Distributions, name: str, rounds: int, seed: int = 0) -> list[str]:
    tally = runner.tally(name)
    before = len(tally.problems)
    cases = Cases(seed + sum(map(ord, name)))
    for at in range(rounds):
        spec = cases.distribution(name)
        values = cases.random.sample(cases.values(), 4)
        if at % 5 == 4:
            with unchecked(runner):
                runner.distribution(spec, values, thorough=False)
        else:
            runner.distribution(spec, values, thorough=at % 2 == 0)
    return tally.problems[before:]


def run_corners(runner: Distributions, name: str) -> list[str]:
    tally = runner.tally(name)
    before = len(tally.problems)
    torch.manual_seed(3)
    for spec in corners(name):
        values = [torch.tensor([1e-30, 0.5, 1.0]).reshape(3, 1, 1), torch.tensor([[0.0], [1.0]])]
        runner.distribution(spec, values, thorough=False)
    return tally.problems[before:]


def run_transform(runner: Distributions, name: str, rounds: int, seed: int = 0) -> list[str]:
    tally = runner.tally(name)
    before = len(tally.problems)
    cases = Cases(seed + sum(map(ord, name)))
    shapes = ((), (3,), (2, 3), (3, 3), (6,), (1, 1), (2, 0))
    for _ in range(rounds):
        runner.transform(cases.transform(name), cases.random.sample(cases.inputs(), 3), shapes)
    return tally.problems[before:]


def run_constraint(runner: Distributions, name: str, rounds: int, seed: int = 0) -> list[str]:
    before = {n: len(t.problems) for n, t in runner.tallies.items()}
    cases = Cases(seed + sum(map(ord, name)))
    for _ in range(rounds):
        runner.constraint(cases.constraint(name), cases.hostile())
    return [p for n, t in runner.tallies.items() for p in t.problems[before.get(n, 0) :]]


def run_divergences(
    runner: Distributions, rounds: int, all_pairs: bool, seed: int = 0
) -> list[str]:
    """The registered pairs, and if asked every pair there is."""
    tally = runner.tally("kl_divergence")
    before = len(tally.problems)
    cases = Cases(seed + 77)
    known = set(distributions())
    pairs = [(p, q) for p, q in registered() if p in known and q in known]
    for p, q in pairs:
        for _ in range(rounds):
            runner.divergence(cases.distribution(p), cases.distribution(q))
    same = [
        "Wishart",
        "Chi2",
        "LogNormal",
        "StudentT",
        "OneHotCategoricalStraightThrough",
        "HalfCauchy",
    ]
    for name, _ in itertools.product(same, range(rounds)):
        runner.divergence(cases.distribution(name), cases.distribution(name))
    if all_pairs:
        for p, q in itertools.product(distributions(), repeat=2):
            runner.divergence(cases.distribution(p), cases.distribution(q))
    return tally.problems[before:]


def run_spoiled(runner: Distributions, rounds: int, seed: int = 0) -> list[str]:
    """Distributions, transforms and divergences of arguments that do not fit."""
    for at in range(seed, seed + rounds):
        cases, spoil = Cases(at), Spoiler(at)
        # For what is no concentration, or no count, PyTorch draws samples for ever.
        name = cases.random.choice(
            [n for n in distributions() if n not in ("VonMises", "Binomial")]
        )
        values = [spoil(v) for v in cases.random.sample(cases.values(), 2)]
        runner.distribution(spoil(cases.distribution(name)), values, thorough=at % 4 == 0)
        transform = spoil(cases.transform(cases.random.choice(transform_names())))
        runner.transform(transform, [spoil(cases.random.choice(cases.inputs()))], ((0, 3), (6,)))
        p, q = cases.random.choice(registered())
        runner.divergence(spoil(cases.distribution(p)), spoil(cases.distribution(q)))
    return [p for t in runner.tallies.values() for p in t.problems]
