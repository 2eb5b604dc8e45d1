"""Programs of nested transforms, written at random: torch.func evaluates them, and Go's functorch.

A program is an expression in Polish notation. Operands of a transform are its options, what it is
at, and last the body of its function, in which one variable more is known, or two:
`grad v 0 mul v 1 v 0` is the gradient of y -> sum(y * x) at x. Bodies use the variables of the
functions around them, so that levels which are taken for one another give other numbers.
harness/compositions.go is the same in Go.
"""

from __future__ import annotations

import itertools
import random
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, func

from . import reasons
from .check import SEED, _value_difference, first_line, seed
from .harness import GoCrash, Harness, Request, WrapperError
from .transforms import TRANSFORM

COMPOSITION = TRANSFORM - 1

Shape = tuple[int, ...]

PLAIN: dict[str, Callable[[Tensor], Tensor]] = {
    "sin": torch.sin,
    "cos": torch.cos,
    "tanh": torch.tanh,
    "neg": torch.neg,
    "sigmoid": torch.sigmoid,
    "square": torch.square,
    "clone": torch.clone,
    "detach": torch.detach,
    "relu": torch.relu,
    "sum": torch.sum,
    "mean": torch.mean,
    "sumlast": lambda x: x.sum(-1),
    "softmax": lambda x: x.softmax(-1),
    "cumsum": lambda x: x.cumsum(-1),
    "logsumexp": lambda x: x.logsumexp(-1),
    "t": lambda x: x.transpose(-1, -2),
    "flat": lambda x: x.reshape(-1),
    "unsqueeze": lambda x: x.unsqueeze(0),
    "first": lambda x: x[0],
    "noise": lambda x: x + torch.rand_like(x),
    "dropout": lambda x: torch.dropout(x, 0.5, True),
}


def _inplace(x: Tensor, y: Tensor) -> Tensor:
    return x.clone().mul_(y)


def _set(x: Tensor, y: Tensor) -> Tensor:
    z = x.clone()
    z[0].copy_(y)
    return z


JOINING: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "mul": torch.mul,
    "mm": torch.matmul,
    "stack": lambda x, y: torch.stack([x, y]),
    "where": lambda x, y: torch.where(x > 0, x, y),
    "inplace": _inplace,
    "set": _set,
}

RANDOMNESS = ("error", "different", "same")
NUMBERS = {"vmap": 4, "vmap2": 5, "jacrev": 1, "jacfwd": 1}  # how many options each has
TRANSFORMS = (
    "vmap",
    "vmap2",
    "grad",
    "grad2",
    "gradvalue",
    "vjp",
    "vjps",
    "vjpvjp",
    "jvp",
    "jacrev",
    "jacfwd",
    "hessian",
)
LARGEST = 96  # elements of a tensor


class Writer:
    """Writes programs of which it knows the shapes, so that most have a result."""

    def __init__(self, rng: random.Random, given: list[Shape]) -> None:
        self.rng = rng
        self.given = given

    def expression(self, variables: list[Shape], depth: int) -> tuple[str, Shape]:
        rng = self.rng
        if depth <= 0 or rng.random() < 0.08:
            return self.leaf(variables)
        kind = rng.random()
        if kind < 0.3:
            return self.plain(variables, depth)
        if kind < 0.55:
            return self.joined(variables, depth)
        return self.transform(variables, depth)

    def leaf(self, variables: list[Shape]) -> tuple[str, Shape]:
        if variables and self.rng.random() < 0.85:
            # The last, of the innermost function, more often than those around.
            i = len(variables) - 1
            while i > 0 and self.rng.random() < 0.4:
                i -= 1
            return f"v {i}", variables[i]
        i = self.rng.randrange(len(self.given))
        return f"c {i}", self.given[i]

    def body(self, variables: list[Shape], bound: int, depth: int) -> tuple[str, Shape]:
        """An expression of the last variables, which is not linear in them as a rule."""
        of, shape = self.expression(variables, depth)
        wanted = [f"v {i}" for i in range(len(variables) - bound, len(variables))]
        for _ in range(30):
            if all(v in of for v in wanted) and "detach" not in of:
                break
            of, shape = self.expression(variables, depth)
        bends = ["sin", "tanh", "square", "sigmoid", *["softmax", "logsumexp"] * (len(shape) > 0)]
        if self.rng.random() < 0.6:
            name = self.rng.choice(bends)
            of, shape = f"{name} {of}", shape[:-1] if name == "logsumexp" else shape
        return of, shape

    def plain(self, variables: list[Shape], depth: int) -> tuple[str, Shape]:
        of, shape = self.expression(variables, depth - 1)
        if self.rng.random() < 0.05:
            return f"nograd {of}", shape
        name = self.rng.choice([n for n in PLAIN if self.fits(n, shape)])
        meta = PLAIN[name](torch.empty(shape, device="meta"))
        return f"{name} {of}", tuple(meta.shape)

    def fits(self, name: str, shape: Shape) -> bool:
        if name in ("noise", "dropout"):
            return self.rng.random() < 0.3
        if name == "detach":
            return self.rng.random() < 0.5
        if name in ("t",):
            return len(shape) >= 2
        if name == "unsqueeze":
            return len(shape) < 3
        if name in ("softmax", "cumsum", "sumlast", "logsumexp"):
            return len(shape) >= 1
        return name != "first" or (len(shape) >= 1 and shape[0] > 0)

    def joined(self, variables: list[Shape], depth: int) -> tuple[str, Shape]:
        a, left = self.expression(variables, depth - 1)
        for _ in range(6):
            b, right = self.expression(variables, self.rng.randrange(depth))
            for name in self.rng.sample(list(JOINING), len(JOINING)):
                try:
                    x, y = (torch.empty(s, device="meta") for s in (left, right))
                    shape = tuple(JOINING[name](x, y).shape)
                except (RuntimeError, IndexError):
                    continue
                if torch.Size(shape).numel() <= LARGEST and len(shape) <= 4:
                    return f"{name} {a} {b}", shape
        return a, left

    def transform(self, variables: list[Shape], depth: int) -> tuple[str, Shape]:
        rng = self.rng
        at, shape = self.expression(variables, depth - 2)
        name = rng.choice(TRANSFORMS)
        if name in ("vmap", "vmap2") and not shape:
            name = "jvp"
        if name == "vmap":
            dim = rng.randrange(-len(shape), len(shape))
            inner = shape[: dim % len(shape)] + shape[dim % len(shape) + 1 :]
            body, result = self.body([*variables, inner], 1, depth - 1)
            words, shape = self.out(result, shape[dim])
            return f"vmap {dim} {words} {at} {body}", shape
        if name == "vmap2":
            other, second = self.expression(variables, depth - 2)
            dim = rng.randrange(-len(shape), len(shape))
            inner = shape[: dim % len(shape)] + shape[dim % len(shape) + 1 :]
            fitting = [i for i, s in enumerate(second) if s == shape[dim]]
            dim2 = "none"
            if fitting and rng.random() < 0.6:
                i = rng.choice(fitting)
                dim2, second = str(i), second[:i] + second[i + 1 :]
            if rng.random() < 0.5:
                first, dims = (at, other), f"{dim} {dim2}"
                bound = [inner, second]
            else:
                first, dims = (other, at), f"{dim2} {dim}"
                bound = [second, inner]
            body, result = self.body([*variables, *bound], 2, depth - 1)
            words, shape = self.out(result, shape[dim])
            return f"vmap2 {dims} {words} {first[0]} {first[1]} {body}", shape
        if name == "grad2":
            other, second = self.expression(variables, depth - 2)
            body, _ = self.body([*variables, shape, second], 1 + rng.randrange(2), depth - 1)
            return f"grad2 {at} {other} {body}", shape
        body, result = self.body([*variables, shape], 1, depth - 1)
        numel = torch.Size(shape).numel()
        elements = {
            "jacrev": torch.Size(result).numel() * numel,
            "jacfwd": torch.Size(result).numel() * numel,
            "hessian": numel * numel,
            "vjps": 2 * numel,
        }
        if elements.get(name, 0) > LARGEST:
            name = "vjp"
        match name:
            case "jacrev":
                return f"jacrev {rng.choice((0, 0, 1, 2, 5))} {at} {body}", result + shape
            case "jacfwd":
                return f"jacfwd {rng.choice((0, 0, 1, 2))} {at} {body}", result + shape
            case "hessian":
                return f"hessian {at} {body}", shape + shape
            case "vjps":
                return f"vjps {at} {body}", (2, *shape)
            case "vjpvjp" | "jvp":
                return f"{name} {at} {body}", result
        return f"{name} {at} {body}", shape

    def out(self, result: Shape, size: int) -> tuple[str, Shape]:
        """A vmap's options but for where its batch is, and the shape that comes out."""
        rng = self.rng
        n = len(result) + 1
        dim = rng.randrange(-n, n)
        shape = list(result)
        shape.insert(dim % n, size)
        chunk = rng.choice((0, 0, 0, 1, 2))
        return f"{dim} {rng.choice((0, 1, 1, 2))} {chunk}", tuple(shape)


class Reader:
    """Makes a function of a program, of the list of variables."""

    def __init__(self, text: str, given: list[Tensor]) -> None:
        self.words = iter(text.split())
        self.given = given

    def expression(self) -> Callable[[list[Tensor]], Tensor]:
        word = next(self.words)
        if word in PLAIN:
            one = PLAIN[word]
            of = self.expression()
            return lambda vs: one(of(vs))
        if word in JOINING:
            both = JOINING[word]
            a, b = self.expression(), self.expression()
            return lambda vs: both(a(vs), b(vs))
        if word == "v":
            i = int(next(self.words))
            return lambda vs: vs[i]
        if word == "c":
            i = int(next(self.words))
            return lambda vs: self.given[i]
        if word == "nograd":
            of = self.expression()
            return torch.no_grad()(of)
        return self.transform(word)

    def transform(self, word: str) -> Callable[[list[Tensor]], Tensor]:
        options = [next(self.words) for _ in range(NUMBERS.get(word, 0))]
        numbers = [None if o == "none" else int(o) for o in options]
        at = self.expression()
        other = self.expression() if word in ("vmap2", "grad2") else None
        of = self.expression()

        def run(vs: list[Tensor]) -> Tensor:
            args = [at(vs)] if other is None else [at(vs), other(vs)]
            return _transformed(word, numbers, lambda *xs: of([*vs, *xs]), args)

        return run


def _transformed(word: str, numbers: list[Any], f: Callable[..., Tensor], xs: list[Tensor]) -> Any:
    x = xs[0]
    if word in ("vmap", "vmap2"):
        *ins, out, randomness, chunk = numbers
        mapped = func.vmap(
            f, tuple(ins), out, randomness=RANDOMNESS[randomness], chunk_size=chunk or None
        )
        return mapped(*xs)
    if word in ("grad", "grad2"):
        return func.grad(lambda *xs: f(*xs).sum())(*xs)
    if word == "gradvalue":

        def both(x: Tensor) -> tuple[Tensor, Tensor]:
            y = f(x)
            return y.sum(), y

        g, (value, aux) = func.grad_and_value(both, has_aux=True)(x)
        return g * value + aux.sum()
    if word.startswith("vjp"):
        y, vjp = func.vjp(f, x)
        if word == "vjp":
            return vjp(y.cos())[0]
        if word == "vjps":
            return func.vmap(vjp)(torch.stack([y.cos(), y.sin()]))[0]
        return func.grad(lambda c: vjp(c)[0].square().sum())(y.cos())
    if word == "jvp":
        y, tangent = func.jvp(f, (x,), (x.sin(),))
        return y * tangent
    if word == "jacrev":
        return func.jacrev(f, chunk_size=numbers[0] or None)(x)
    if word == "jacfwd":
        return func.jacfwd(f, randomness=RANDOMNESS[numbers[0]])(x)
    if word == "hessian":
        return func.hessian(lambda x: f(x).sum())(x)
    raise ValueError(word)


def _within_functorch(err: BaseException) -> bool:
    """Whether torch.func itself has raised an error, and not a program that it ran."""
    frames = traceback.extract_tb(err.__traceback__)
    return bool(frames) and "/torch/_functorch/" in frames[-1].filename


class Compositions:
    """Runs programs in both, and counts how they end."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.ends: Counter[str] = Counter()
        self.nested: Counter[tuple[str, str]] = Counter()  # transforms right within one another

    def run(self, number: int, depth: int = 6) -> str:
        """Tries the program of that number. Returns what differs, or ""."""
        rng = random.Random(number)
        dtype = torch.float32 if number % 4 == 0 else torch.float64
        shapes: list[Shape] = [
            (2, 3),
            rng.choice([(), (3,), (3,), (3, 2), (3, 2), (1, 2, 2), (1, 2, 2), (2, 2), (0, 3)]),
        ]
        consts: list[Shape] = [(3,), (), (2, 3), (3, 3)]
        text, _ = Writer(rng, consts).transform(list(shapes), depth)
        made = torch.Generator().manual_seed(number)
        xs = [torch.randn(s, generator=made, dtype=dtype) for s in shapes]
        given = [torch.randn(s, generator=made, dtype=dtype) for s in consts]
        # Half of them within the graph of ordinary autograd.
        grad = number % 2 == 0
        for t in (*xs, *given):
            t.requires_grad_(grad)
        self.nested.update(_nested(text))
        problem = self._compare(text, xs, given)
        return f"program {number}, {text!r}: {problem}" if problem else ""

    def _compare(self, text: str, xs: list[Tensor], given: list[Tensor]) -> str:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted: Any = None
            raised: tuple[str, str] | None = None
            seed()
            try:
                wanted = Reader(text, given).expression()(list(xs))
            except Exception as err:
                if isinstance(err, AssertionError) and _within_functorch(err):
                    # Chunks of nothing, for which Python has forgotten a case.
                    self.ends["fault of Python's"] += 1
                    return ""
                raised = (type(err).__name__.lstrip("_"), first_line(str(err)))
            random_state = torch.get_rng_state()
            self.harness.seed(SEED)
            try:
                got = self._go(text, xs, given)
            except WrapperError as err:
                if raised is None:
                    return f"panics with {err}; PyTorch gives a result"
                if raised == (err.kind, first_line(err.message)) or reasons.same_error(
                    raised, (err.kind, err.message)
                ):
                    self.ends["error"] += 1
                    return ""
                return f"panics with {err}; PyTorch raises {': '.join(raised)}"
            except GoCrash as err:
                return f"crashes: {err}"
            if raised is not None:
                return f"gives a result; PyTorch raises {': '.join(raised)}"
            problem = _value_difference(wanted, got, vague=False)
            if problem:
                return problem
            if not torch.equal(random_state, torch.get_rng_state()):
                return "the default generator is in another state afterwards"
            self.ends["result"] += 1
            if wanted.requires_grad:
                leaves = [t for t in (*xs, *given) if t.numel()]
                for w, g in zip(_grads(wanted, leaves), _grads(got, leaves), strict=True):
                    if (w is None) != (g is None):
                        return "a gradient is there in one, and not in the other"
                    if w is not None and (problem := _value_difference(w, g, False, False)):
                        return f"a gradient outside: {problem}"
                self.ends["gradient"] += 1
            return ""

    def _go(self, text: str, xs: list[Tensor], given: list[Tensor]) -> Any:
        request = Request([COMPOSITION, 0, 0])
        request.text_only(text)
        request.value("Tensor[]", xs)
        request.value("Tensor[]", given)
        return self.harness.send(request)[0][0]


def _grads(y: Tensor, leaves: list[Tensor]) -> tuple[Any, ...]:
    return torch.autograd.grad(y.sum(), leaves, allow_unused=True)


def _nested(text: str) -> Iterator[tuple[str, str]]:
    """The pairs of transforms that follow each other in a text, which most often nest."""
    found = [w for w in text.split() if w in TRANSFORMS]
    yield from itertools.pairwise(found)
