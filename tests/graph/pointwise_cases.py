"""Random elementwise graphs of mixed dtypes, held to eager PyTorch: every bit, dtype and stride, and
what is refused.

Inputs have special numbers in them, sizes of 0 and 1, and all sorts of strides. A seed makes the same
case each time:

    .venv/bin/python tests/graph/pointwise_cases.py 17        # one seed, told in full
    .venv/bin/python tests/graph/pointwise_cases.py 5000: 10m # from 5000 on, for ten minutes
"""

from __future__ import annotations

import math
import random
import sys
import warnings
from dataclasses import dataclass, field
from typing import Any

import torch
from random_graphs import Fault, main

import pytorch_bridge as pb
from pytorch_bridge import TensorType, ops

DTYPES = ("bfloat16", "float16", "float32", "float64", "int64", "int32", "int8", "uint8", "bool")
NUMBERS = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    2.0,
    0.5,
    math.inf,
    -math.inf,
    math.nan,
    1e-40,
    6e-8,
    65504.0,
    3e38,
)
SCALARS = (0, 1, 2, -1, 3, 0.5, -0.0, 2.5, True, 1e30, -7, 255, math.inf, math.nan, 1e-9, 300)
SHAPES = ((7,), (3, 5), (2, 1), (0,), (1,), (4, 33), (300,), (2, 3, 4), (2, 1, 3), (2, 3, 4, 5))
UNARY = """neg abs relu sigmoid tanh exp log sqrt rsqrt reciprocal floor ceil round trunc sign sin cos
    erf expm1 log1p silu gelu logical_not bitwise_not square isnan isinf isfinite frac softplus
    hardswish hardtanh relu6 elu leaky_relu mish log2 log10 atan asin sinh exp2 positive sgn signbit
    logit erfinv lgamma deg2rad selu hardsigmoid""".split()  # noqa: SIM905
BINARY = """add sub mul div pow maximum minimum fmod remainder floor_divide eq ne lt le gt ge
    logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor atan2 fmax fmin hypot
    copysign bitwise_left_shift bitwise_right_shift heaviside xlogy rsub nextafter logaddexp gcd lcm
    ldexp""".split()  # noqa: SIM905
WITH_NUMBER = """add sub mul div pow remainder fmod floor_divide eq lt ge rsub clamp_min clamp_max
    bitwise_and bitwise_or""".split()  # noqa: SIM905


@dataclass
class Case:
    """`types` are the inputs' dtypes and shapes; a step has a function's name, the numbers of the
    values that it takes, inputs first, and its other arguments. `outputs` are numbers of steps."""

    types: list[tuple[str, tuple[int, ...]]]
    seed: int
    steps: list[tuple[str, tuple[int, ...], tuple[Any, ...]]] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        parts = (self.types, *enumerate(self.steps), self.outputs)
        return "\n  ".join([f"seed {self.seed}", *map(str, parts)])

    def needed(self) -> set[int]:
        """The steps that the outputs depend on: others may raise in eager mode alone."""
        found = set(self.outputs)
        for i in range(len(self.steps) - 1, -1, -1):
            if i in found:
                found |= {r - len(self.types) for r in self.steps[i][1] if r >= len(self.types)}
        return found

    def run(self, library: Any, inputs: list[Any]) -> list[Any]:
        needed = self.needed()
        values = list(inputs)
        for i, (name, refs, others) in enumerate(self.steps):
            made = None
            if i in needed:
                args = [values[r] for r in refs]
                if name == "where":
                    args[0] = library.to(args[0], torch.bool)
                made = getattr(library, name)(*args, *others)
            values.append(made)
        return [values[len(inputs) + o] for o in self.outputs]


def made(rng: random.Random, seed: int) -> Case:
    shape = rng.choice(SHAPES)
    shapes = (shape, shape, shape, (), (1,), shape[-1:])
    case = Case([(rng.choice(DTYPES), rng.choice(shapes)) for _ in range(rng.randint(1, 4))], seed)
    for n in range(len(case.types), len(case.types) + rng.randint(1, 9)):
        a, b, c = (n - 1 if rng.random() < 0.4 else rng.randrange(n) for _ in range(3))
        case.steps.append(
            rng.choices(
                [
                    (rng.choice(UNARY), (a,), ()),
                    (rng.choice(BINARY), (a, b), ()),
                    (rng.choice(WITH_NUMBER), (a,), (rng.choice(SCALARS),)),
                    ("to", (a,), (getattr(torch, rng.choice(DTYPES)),)),
                    ("where", (a, b, c), ()),
                    ("masked_fill", (a, b), (rng.choice((0, 1.5, -2)),)),
                    ("clamp", (a,), (rng.choice((None, -1, 0.5)), rng.choice((2, 1.5, 0)))),
                ],
                (30, 35, 15, 10, 5, 3, 4),
            )[0]
        )
    last = len(case.steps) - 1
    case.outputs = [i for i in range(last) if rng.random() < 0.3] + [last]
    return case


def value(rng: random.Random, dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    kind = getattr(torch, dtype)
    if kind.is_floating_point:
        numbers = [
            rng.choice(NUMBERS) if rng.random() < 0.6 else rng.gauss(0, 3) for _ in range(97)
        ]
    else:
        least, most = (0, 1) if dtype == "bool" else (torch.iinfo(kind).min, torch.iinfo(kind).max)
        few = (0, 1, 2, 3, 5, 7, -1, -2, most, least, most - 1)
        numbers = [min(max(rng.choice(few), least), most) for _ in range(97)]
    n = math.prod(shape)
    made = torch.tensor(
        (numbers * (n // 97 + 1))[:n], dtype=torch.float64 if kind.is_floating_point else kind
    )
    return laid_out(rng, made.to(kind).reshape(shape))


def laid_out(rng: random.Random, v: torch.Tensor) -> torch.Tensor:
    """The same elements, or repeated ones, in another layout half of the time."""
    n, way = v.dim(), rng.random()
    if not n or way < 0.5:
        return v
    if way < 0.6:
        return torch.stack([v, v], n)[..., 0]
    if way < 0.7 and v.shape[0]:
        return v[:1].expand(v.shape)
    order = rng.sample(range(n), n)
    return v.permute(order).contiguous().permute([order.index(d) for d in range(n)])


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal in dtype, shape, strides and every bit, NaNs apart."""
    if (a.dtype, a.shape, a.stride()) != (b.dtype, b.shape, b.stride()):
        return False
    if a.is_floating_point():
        nan = a.isnan()
        if not torch.equal(nan, b.isnan()):
            return False
        a, b = a.masked_fill(nan, 0), b.masked_fill(nan, 0)
        if not torch.equal(a.signbit(), b.signbit()):
            return False
    return torch.equal(a, b)


def check(seed: int) -> str:
    """In a word how it went; Fault where the graph is not what eager PyTorch is."""
    rng = random.Random(seed)
    case = made(rng, seed)
    given = [value(rng, *t) for t in case.types]
    opened = rng.random() < 0.5
    inputs = [
        TensorType(d, [None if opened and n != 1 else n for n in s])(f"x{i}")
        for i, (d, s) in enumerate(case.types)
    ]
    refusal = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = case.run(torch.ops.aten, given)
        except (RuntimeError, NotImplementedError) as e:
            refusal = e
    try:
        found = pb.function(inputs, case.run(ops, inputs))(*given)
    except (RuntimeError, NotImplementedError, pb.BridgeError) as e:
        if refusal is None:
            raise Fault(f"{type(e).__name__}: {e}") from e
        return "refused"
    if refusal is not None:
        raise Fault(f"eager raises {refusal}, and the graph does not")
    for o, a, b in zip(case.outputs, found, expected, strict=True):
        if not same(a, b):
            told = [f"{t.dtype} {tuple(t.shape)} {t.stride()}\n{t}" for t in (a, b)]
            raise Fault(f"step {o} is {told[0]}\neager: {told[1]}")
    return "fine"


if __name__ == "__main__":
    sys.exit(main(check, lambda seed: made(random.Random(seed), seed), *sys.argv[1:]))
