"""Calls of single functions, and networks written out in them: Go, C and C++ against Python."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

from ..native.toolchain import ROOT
from .measuring import OUT, Family, Target, Way, compile_c, compile_cpp, compile_go

CASES = {
    "add": "add, 2×2",
    "mm": "mm, 2×2",
    "relu": "relu, 2×2",
    "transpose": "transpose, 2×2",
    "mlp_forward_1": "MLP 784-128-10 forward by `nn.Sequential`, batch 1",
    "mlp_forward_64": "MLP 784-128-10 forward by `nn.Sequential`, batch 64",
    "mlp_step_64": "MLP SGD step, batch 64",
    "mlp_adam_64": "MLP Adam step, batch 64",
    "cnn_step_64": "the demo's CNN, SGD step, batch 64",
}


def family() -> Family:
    """Compiles the workers."""
    go = compile_go("./bench/goworker", "go_worker")
    return Family(
        title="Functions",
        text="Calls of PyTorch's functions. Ratios to Python eager (same torch).",
        base="python",
        cases=CASES,
        ways=[
            Way("python", "Python eager", [sys.executable, str(ROOT / "bench/python_worker.py")]),
            Way("cpp", "C++ `at::`", compile_cpp("cpp_worker")),
            Way("c", "C ABI from C", compile_c("c_worker")),
            Way("go_gc", "Go, collector", [*go, "gc"]),
            Way("go_scope", "Go, in a Scope", [*go, "scope"]),
            Way("go_close", "Go, Close", [*go, "close"]),
        ],
        targets=[
            *(Target(c, "go_gc", 0.70, 0.70) for c in ("add", "mm", "relu", "transpose")),
            *(Target(c, "go_scope", 0.50) for c in ("add", "mm", "relu")),
            Target("transpose", "go_scope", 0.40),
            Target("mlp_step_64", "go_scope", 0.78),
            Target("mlp_forward_1", "go_scope", 0.52),
            Target("mlp_forward_64", "go_scope", 0.93),
        ],
    )


def first_result(rounds: int) -> tuple[float, float]:
    """Seconds from the start of a process to its first result: Python, then Go (medians)."""
    commands = [
        [sys.executable, "-c", "import torch; torch.ones(1)"],
        [str(OUT / "go_worker"), "first"],
    ]
    times: list[list[float]] = [[], []]
    for _ in range(rounds):
        for command, taken in zip(commands, times, strict=True):
            start = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            taken.append(time.perf_counter() - start)
    return statistics.median(times[0]), statistics.median(times[1])


def special(*arguments: str) -> dict[str, float]:
    """A case with figures of its own, as the Go worker prints them in JSON."""
    done = subprocess.run(
        [str(OUT / "go_worker"), *arguments], check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout)


def facts() -> dict[str, str]:
    """What is measured apart: starting, memory, and concurrency, each with its target."""
    python, go = first_result(7)
    memory, parallel, handles = special("memory"), special("parallel"), special("handles")
    return {
        "from the start of the process to the first result": (
            f"Python {python * 1000:.0f} ms, Go {go * 1000:.0f} ms, ratio {go / python:.2f} "
            "(target 0.12)"
        ),
        "20,000 tensors of 1 MB, none freed by hand: resident memory above the start": (
            f"{memory['grown_mb']:.0f} MB (target 200)"
        ),
        "the same loop: speed relative to the loop with Close": (
            f"{memory['speed']:.2f} (target 0.5); with one thread {memory['speed_one']:.2f}, and "
            f"there with Close 32 tensors later {memory['late']:.2f}: that is the caches' part"
        ),
        "32 goroutines of 512×512 matmuls: throughput relative to one after the other": (
            f"{parallel['speedup']:.2f} (target 1)"
        ),
        "one collection with a million live handles": f"{handles['gc_ms']:.0f} ms (target 100)",
    }
