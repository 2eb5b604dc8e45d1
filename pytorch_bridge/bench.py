"""`make bench`: every way of calling libtorch, measured in one interleaved run.

Each way is a worker process that reads "CASE ITERATIONS" and answers "WALL_NS CPU_NS". A round asks
every worker once for one case, one after the other, so that all see the same noise; a figure is the
median over rounds of the ratio to Python in the same round. The rounds are spread over sittings,
each with new processes: where a process happens to have its memory moves a small op by a
twentieth. Results go to docs/benchmarks.md and build/bench.json.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from .schema.functions import torch_dir, torch_version
from .toolchain import ROOT

OUT = ROOT / "build" / "bench"
DOCUMENT = ROOT / "docs" / "benchmarks.md"
ROUNDS = 24
SITTINGS = 4
ROUND_SECONDS = 0.12  # how long one worker runs one case in a round; Go wakes threads in short ones


@dataclass(frozen=True)
class Way:
    """One way of calling, the command of its worker, and how the document names it."""

    key: str
    title: str
    command: list[str]


@dataclass(frozen=True)
class Target:
    """The most that a case may take, as a ratio to Python eager."""

    case: str
    way: str
    wall: float
    cpu: float | None = None


TARGETS = [
    *(Target(c, "go_gc", 0.70, 0.70) for c in ("add", "mm", "relu", "transpose")),
    *(Target(c, "go_scope", 0.50) for c in ("add", "mm", "relu")),
    Target("transpose", "go_scope", 0.40),
    Target("mlp_step_64", "go_scope", 0.78),
    Target("mlp_forward_1", "go_scope", 0.52),
    Target("mlp_forward_64", "go_scope", 0.93),
]

CASES = {
    "add": "add, 2×2",
    "mm": "mm, 2×2",
    "relu": "relu, 2×2",
    "transpose": "transpose, 2×2",
    "mlp_forward_1": "MLP 784-128-10 forward, batch 1",
    "mlp_forward_64": "MLP 784-128-10 forward, batch 64",
    "mlp_step_64": "MLP SGD step, batch 64",
    "cnn_step_64": "the demo's CNN, SGD step, batch 64",
}


class Worker:
    """A running worker process."""

    def __init__(self, way: Way) -> None:
        self.way = way
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "GOMAXPROCS": os.environ.get("GOMAXPROCS", "2"),
        }
        self.process = subprocess.Popen(
            way.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def run(self, case: str, iterations: int) -> tuple[float, float] | None:
        """Wall and CPU nanoseconds per iteration; None where the worker lacks the case."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{case} {iterations}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker {self.way.key} died in case {case}")
        if line.startswith("none"):
            return None
        wall, cpu = map(int, line.split())
        return wall / iterations, cpu / iterations

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(timeout=30)


@dataclass
class Figures:
    """Per case and way, the ratios to Python of every round, and the absolute times."""

    wall: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    cpu: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    nanoseconds: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def add(self, case: str, way: str, one: tuple[float, float], base: tuple[float, float]) -> None:
        self.wall.setdefault((case, way), []).append(one[0] / base[0])
        self.cpu.setdefault((case, way), []).append(one[1] / base[1])
        self.nanoseconds.setdefault((case, way), []).append(one[0])


def build_workers() -> list[Way]:
    """Compiles the C++, C and Go workers and returns every way."""
    OUT.mkdir(parents=True, exist_ok=True)
    torch = torch_dir()
    lib, include = torch / "lib", torch / "include"
    cxx, cc, go = (
        os.environ.get("CXX", "g++"),
        os.environ.get("CC", "cc"),
        shutil.which("go") or "go",
    )
    ours = ROOT / "build" / "lib"
    _make(
        OUT / "cpp_worker",
        [ROOT / "bench" / "cpp_worker.cc"],
        [cxx, "-std=c++20", "-O2", f"-isystem{include}", f"-L{lib}", f"-Wl,-rpath,{lib}"],
        ["-ltorch_cpu", "-lc10"],
    )
    _make(
        OUT / "c_worker",
        [ROOT / "bench" / "c_worker.c"],
        [cc, "-std=c99", "-O2", f"-I{ROOT / 'cgotorch'}", f"-L{ours}", f"-Wl,-rpath,{ours}"],
        ["-lcgotorch", "-Wl,--allow-shlib-undefined"],
    )
    subprocess.run([go, "build", "-o", OUT / "go_worker", "./bench/goworker"], cwd=ROOT, check=True)
    return [
        Way("python", "Python eager", [sys.executable, str(ROOT / "bench" / "python_worker.py")]),
        Way("cpp", "C++ `at::`", [str(OUT / "cpp_worker")]),
        Way("c", "C ABI from C", [str(OUT / "c_worker")]),
        Way("go_gc", "Go, collector", [str(OUT / "go_worker"), "gc"]),
        Way("go_scope", "Go, in a Scope", [str(OUT / "go_worker"), "scope"]),
        Way("go_close", "Go, Close", [str(OUT / "go_worker"), "close"]),
    ]


def _make(target: Path, sources: list[Path], head: list[str], tail: list[str]) -> None:
    if target.exists() and all(s.stat().st_mtime < target.stat().st_mtime for s in sources):
        return
    subprocess.run([*head, *map(str, sources), "-o", str(target), *tail], check=True)


def measure(ways: list[Way], rounds: int, cases: list[str]) -> Figures:
    """Runs every case of every way, interleaved."""
    figures = Figures()
    for sitting in range(SITTINGS):
        workers = [Worker(w) for w in ways]
        try:
            for case in cases:
                _sit(workers, case, len(range(sitting, rounds, SITTINGS)), figures)
        finally:
            for worker in workers:
                worker.close()
    for case in cases:
        print(_line(case, figures, ways), flush=True)
    return figures


def _sit(workers: list[Worker], case: str, rounds: int, figures: Figures) -> None:
    """Adds some rounds of one case."""
    iterations: dict[str, int] = {}
    able = []
    for worker in workers:
        worker.run(case, 2)
        first = worker.run(case, 20)
        if first is None:
            continue
        able.append(worker)
        iterations[worker.way.key] = max(3, int(ROUND_SECONDS * 1e9 / first[0]))
    for _ in range(rounds):
        found = {w.way.key: w.run(case, iterations[w.way.key]) for w in able}
        base = found["python"]
        assert base is not None
        for key, one in found.items():
            assert one is not None
            figures.add(case, key, one, base)


def _line(case: str, figures: Figures, ways: list[Way]) -> str:
    parts = [f"{case:16}"]
    for way in ways:
        ratios = figures.wall.get((case, way.key))
        if ratios:
            cpu = statistics.median(figures.cpu[case, way.key])
            parts.append(f"{way.key} {statistics.median(ratios):.2f} (cpu {cpu:.2f})")
    return "  ".join(parts)


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


def special(name: str) -> dict[str, float]:
    """A case with figures of its own, as the Go worker prints them in JSON."""
    done = subprocess.run(
        [str(OUT / "go_worker"), name], check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout)


def machine() -> str:
    cpu = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    go = subprocess.run(
        [shutil.which("go") or "go", "version"], capture_output=True, text=True, check=True
    )
    return (
        f"{cpu}, {os.cpu_count()} cores, {platform.system()} {platform.release().split('-')[0]}, "
        f"Python {platform.python_version()}, torch {torch_version()}, {go.stdout.split()[2]}"
    )


def document(
    figures: Figures, ways: list[Way], start: tuple[float, float], extra: dict, rounds: int
) -> str:
    """The text of docs/benchmarks.md."""
    shown = [w for w in ways if w.key != "python"]
    lines = [
        "<!-- Generated by `make bench`; do not edit. -->",
        "# Benchmarks",
        "",
        f"Machine: {machine()}.",
        "",
        f"One thread per op. Each figure is the median over {rounds} rounds, in {SITTINGS} "
        "sittings of new processes, of the ratio to Python eager (same torch) in the same round; "
        "smaller is faster. In brackets: CPU time over all "
        "threads, the collector's included.",
        "",
        "| | Python eager | " + " | ".join(w.title for w in shown) + " |",
        "|-|-:|" + "-:|" * len(shown),
    ]
    for case, title in CASES.items():
        if (case, "python") not in figures.nanoseconds:
            continue
        micro = statistics.median(figures.nanoseconds[case, "python"]) / 1000
        cells = []
        for way in shown:
            ratios = figures.wall.get((case, way.key))
            if ratios is None:
                cells.append("")
                continue
            cpu = statistics.median(figures.cpu[case, way.key])
            cells.append(f"{statistics.median(ratios):.2f} ({cpu:.2f})")
        lines.append(f"| {title} | {micro:.2f} µs | " + " | ".join(cells) + " |")
    lines += [
        "",
        "Targets (ratio to Python eager):",
        "",
        "| case | way | target | measured | |",
        "|-|-|-:|-:|-|",
    ]
    for target in TARGETS:
        ratios = figures.wall.get((target.case, target.way))
        if ratios is None:
            continue
        wall = statistics.median(ratios)
        cpu = statistics.median(figures.cpu[target.case, target.way])
        met = wall <= target.wall and (target.cpu is None or cpu <= target.cpu)
        shown_cpu = f" ({cpu:.2f})" if target.cpu else ""
        lines.append(
            f"| {CASES[target.case]} | {target.way} | {target.wall:.2f} | {wall:.2f}{shown_cpu} | "
            f"{'met' if met else '**missed**'} |"
        )
    python, go = start
    lines += [
        "",
        f"From the start of the process to the first result: Python {python * 1000:.0f} ms, "
        f"Go {go * 1000:.0f} ms, ratio {go / python:.2f} (target 0.12).",
        "",
        "Memory and concurrency:",
        "",
        "| | |",
        "|-|-|",
    ]
    lines += [f"| {name} | {value} |" for name, value in extra.items()]
    return "\n".join([*lines, ""])


def main(rounds: int = ROUNDS, cases: list[str] | None = None, write: bool = True) -> int:
    """Builds, measures, prints, and writes docs/benchmarks.md and build/bench.json."""
    ways = build_workers()
    figures = measure(ways, rounds, cases or list(CASES))
    if cases:
        return 0
    start = first_result(7)
    memory, parallel, handles = special("memory"), special("parallel"), special("handles")
    extra = {
        "20,000 tensors of 1 MB, none freed by hand: resident memory above the start": (
            f"{memory['grown_mb']:.0f} MB (target 200)"
        ),
        "the same loop: speed relative to the loop with Close": (
            f"{memory['speed']:.2f} (target 0.5)"
        ),
        "32 goroutines of 512×512 matmuls: throughput relative to one after the other": (
            f"{parallel['speedup']:.2f} (target 1)"
        ),
        "one collection with a million live handles": f"{handles['gc_ms']:.0f} ms (target 100)",
    }
    text = document(figures, ways, start, extra, rounds)
    print(text)
    result = {
        "machine": machine(),
        "rounds": rounds,
        "wall": {f"{c}/{w}": statistics.median(v) for (c, w), v in figures.wall.items()},
        "cpu": {f"{c}/{w}": statistics.median(v) for (c, w), v in figures.cpu.items()},
        "start_seconds": {"python": start[0], "go": start[1]},
        "memory": memory,
        "parallel": parallel,
        "handles": handles,
        "peak_rss_kb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss,
    }
    (ROOT / "build" / "bench.json").write_text(json.dumps(result, indent=2) + "\n")
    if write:
        DOCUMENT.write_text(text)
    return 0
