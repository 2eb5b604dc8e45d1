"""Jobs of two processes, one thread each: collectives, and training steps of DataParallel."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

from ..toolchain import ROOT
from .functions import special
from .measuring import OUT, Family, Target, Way, compile_cpp, compile_go

SIZES = {"1024": "1 KB", "1048576": "1 MB", "67108864": "64 MB"}
REDUCED = {f"all_reduce_{n}": f"`AllReduce` of {title}" for n, title in SIZES.items()}
TRAINED = {
    "cnn_32_sgd": "`DataParallel`: CNN, batch 32 a rank, SGD",
    "transformer_1_foreach": "`DataParallel`: char transformer, batch 1 a rank, AdamW",
    "transformer_12_foreach": "`DataParallel`: char transformer, batch 12 a rank, AdamW",
}
CASES = REDUCED | TRAINED
WORKER = str(ROOT / "bench/ranks_worker.py")


def family() -> Family:
    """Compiles the workers."""
    go = compile_go("./bench/goworker", "go_worker")
    cpp = compile_cpp("ranks_worker", f"-I{ROOT / 'cgotorch/lacking'}")
    return Family(
        title="Several ranks",
        text=(
            "Two processes on this machine, with Gloo, one thread each; the times are the first "
            "one's. Training steps are zeroed gradients, forward, loss, backward with the "
            "exchange of gradients, and optimiser, in Python with DistributedDataParallel."
        ),
        base="python",
        cases=CASES,
        ways=[
            Way("python", "Python", [sys.executable, WORKER]),
            Way("cpp", "C++, c10d", cpp),
            Way("go_ranks", "Go", [*go, "ranks"]),
        ],
        targets=[Target(case, "go_ranks", 1.05, to="cpp") for case in REDUCED]
        + [Target(case, "go_ranks", 0.95) for case in TRAINED if "_12_" not in case],
        sittings=2,
    )


RANKS, STARTS = 4, 5


def facts() -> dict[str, str]:
    """How long a job takes to begin, and how much memory a rank has of what it shares."""
    commands = {
        "python": [sys.executable, WORKER, "first", str(RANKS)],
        "go": [str(OUT / "go_worker"), "first_ranks", str(RANKS)],
    }
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(STARTS):
        for name, command in commands.items():
            start = time.perf_counter()
            subprocess.run(command, check=True)
            taken[name].append(time.perf_counter() - start)
    ratio = statistics.median(g / p for g, p in zip(taken["go"], taken["python"], strict=True))
    python, go = (statistics.median(taken[name]) for name in ("python", "go"))
    return {
        f"from the start of {RANKS} ranks to the end of their first collective": (
            f"Python {python:.2f} s, Go {go:.2f} s, ratio {ratio:.2f} (target 0.30)"
        ),
        **memory(),
    }


UNITS, WIDTH = 8, 2048


def memory() -> dict[str, str]:
    """What a rank has of a model that two share out, above its share: a half of parameters,
    gradients and AdamW's two averages."""
    go = special("sharded", str(UNITS), str(WIDTH))
    command = [
        sys.executable,
        WORKER,
        "sharded",
        str(ROOT / "build/lib/libcgotorch.so"),
        str(UNITS),
        str(WIDTH),
    ]
    python = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    unit = go["unit_mb"]
    share = 4 * UNITS * unit / 2
    above = {
        "Go": go["most_mb"],
        "Go with `NoPrefetch`": go["no_prefetch_mb"],
        "`fully_shard`": python["most_mb"],
    }
    figures = ", ".join(f"{way} {(most - share) / unit:.1f}" for way, most in above.items())
    return {
        f"`FullyShard` of {UNITS} units of {unit:.0f} MB over 2 ranks, AdamW: between steps": (
            f"Go {go['between_mb']:.0f} MB, Python {python['between_mb']:.0f} MB (half of "
            f"parameters and of AdamW's two averages: {3 * UNITS * unit / 2:.0f})"
        ),
        f"the same: at most above a rank's share with gradients, which is {share:.0f} MB": (
            f"{figures} units (target 2)"
        ),
    }
