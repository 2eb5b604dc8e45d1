"""What jitted functions cost beside their ops, with the struct of examples/extending/interval.py.

python bench/extension_calls.py    prints the milliseconds that a process's first call takes
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from pytorch_bridge.extending import jit

sys.path.append(str(Path(__file__).parents[1] / "examples" / "extending"))
from interval import Interval

torch.set_num_threads(1)
MATRICES = tuple(torch.randn(2, 2) for _ in range(3))
INTERVAL = Interval(-1.0, 1.0)


def chain(n: int) -> Callable[..., tuple[torch.Tensor, float]]:
    """n matrix products, and a member of the struct."""

    def f(
        x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, interval: Interval
    ) -> tuple[torch.Tensor, float]:
        for i in range(n):
            x = x @ (y, z)[i % 2]
        return x, interval.lo

    return f


def overhead() -> float:
    """Microseconds of a call that are not its ops': what is left of the time for n ops where n goes
    to 0."""
    short, long = jit(chain(4)), jit(chain(34))

    def timed(f: Callable[..., object]) -> float:
        start = time.perf_counter()
        for _ in range(3000):
            f(*MATRICES, INTERVAL)
        return (time.perf_counter() - start) / 3000 * 1e6

    rounds = [(timed(short), timed(long)) for _ in range(20)][3:]
    each = statistics.median((b - a) / 30 for a, b in rounds)
    return statistics.median(a for a, _ in rounds) - 4 * each


def tracing() -> float:
    """Seconds to type and trace 100 ops."""

    def once() -> float:
        f = jit(chain(100), mode="debug")  # which compiles nothing
        start = time.perf_counter()
        f._specialize((*MATRICES, INTERVAL))
        return time.perf_counter() - start

    return statistics.median(once() for _ in range(7))


def first_call() -> float:
    """Seconds of the first call in a new process, with the function in the cache."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    runs = [
        subprocess.run(
            [sys.executable, __file__], check=True, capture_output=True, text=True, env=environment
        )
        for _ in range(6)
    ]
    return statistics.median(float(run.stdout) for run in runs[1:]) / 1000


if __name__ == "__main__":
    compiled = jit(chain(4))
    start = time.perf_counter()
    compiled(*MATRICES, INTERVAL)
    print((time.perf_counter() - start) * 1000)
