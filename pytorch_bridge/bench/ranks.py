"""Jobs of two processes, one thread each: collectives, and training steps of DataParallel."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

from ..native.toolchain import ROOT
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
            "exchange of gradients, and optimiser, in Python with DistributedDataParallel. What is "
            "simulated was computed on paper and not measured, as there were no more machines: "
            "what part 2 to 64 machines have of so many times the speed of one, from the time of a "
            "step of one process, from what a rank has sent to the other and from the time of a "
            "message on this machine. In a ring of n ranks each sends 2(n-1)/n of what it sends in "
            "one of two, and an all-gather is n-1 messages long, an all-reduce 2(n-1), as many of "
            "them as with two. The first figure is for an exchange that waits until all is "
            "computed, the second for one beside it."
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
        **on_paper(),
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


JOBS = {
    "cnn_32_sgd": "`DataParallel`, CNN, batch 32 a rank",
    "transformer_12_foreach": "`DataParallel`, char transformer, batch 12 a rank",
    "sharded": "`FullyShard`, 8 layers of 1024×1024, batch 64 a rank",
}
MACHINES = (2, 4, 8, 16, 32, 64)
NETWORKS = (1, 10, 25, 100)  # Gbit/s


def efficiency(job: dict[str, float], machines: int, gbit: float) -> tuple[float, float]:
    """What part of `machines` times the speed of one machine a job has, by a formula.

    Around a ring of n each rank sends (n-1)/n of a buffer to its neighbour in an all-gather, in n-1
    messages, and twice that in an all-reduce. `job` has what was measured with two ranks. The first
    result is for an exchange that begins when all is computed, the second for one that goes on
    while there is something to compute.
    """
    around = machines - 1
    bits = 8 * job["sent"] * 2 * around / machines
    messages = (2 * job.get("reduces", 0) + job.get("gathers", 0)) * around
    exchange = bits / (gbit * 1e6) + messages * job["hop_us"] / 1000
    alone = job["alone_ms"]
    return alone / (alone + exchange), alone / max(alone, exchange)


def on_paper() -> dict[str, str]:
    """How jobs would scale on machines that are not there."""
    rows = {}
    for name, title in JOBS.items():
        job = special("exchanged", name)
        rows[f"{title}: a step of one process, and of two ranks on this machine"] = (
            f"{job['alone_ms']:.1f} ms, {job['both_ms']:.1f} ms; a rank sends "
            f"{job['sent'] / 1e6:.2f} MB in {job['reduces']:.0f} all-reduces and "
            f"{job.get('gathers', 0):.0f} all-gathers, and a message takes {job['hop_us']:.0f} µs"
        )
        for gbit in NETWORKS:
            each = []
            for machines in MACHINES:
                least, most = efficiency(job, machines, gbit)
                each.append(f"{machines}: {100 * least:.0f} to {100 * most:.0f}%")
            rows[f"{title}: simulated, {gbit} Gbit/s"] = ", ".join(each)
    return rows
