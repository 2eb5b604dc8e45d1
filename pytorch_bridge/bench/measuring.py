"""How times are measured: every way of doing the same work, interleaved, as ratios.

Each way is a worker process that reads "CASE ITERATIONS" and answers "WALL_NS CPU_NS", or "none"
for a case that it does not have. A round asks every worker once for one case, one after the other,
so that all see the same noise; a figure is the median over rounds of the ratio of two ways in the
same round. The rounds are spread over sittings, each with new processes: where a process happens to
have its memory moves a small op by a twentieth.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from ..native import toolchain
from ..native.toolchain import ROOT
from ..schema.functions import torch_dir

OUT = toolchain.build_dir() / "bench"
ROUND_SECONDS = 0.12  # how long one worker runs one case in a round; Go wakes threads in short ones


@dataclass(frozen=True)
class Way:
    """One way of doing the work, the command of its worker, and how the document names it."""

    key: str
    title: str
    command: list[str]


@dataclass(frozen=True)
class Target:
    """The most that a case may take, as a ratio to another way: the family's base, unless `to` is
    given."""

    case: str
    way: str
    wall: float
    cpu: float | None = None
    to: str = ""


@dataclass(frozen=True)
class Family:
    """Cases that are done in the same ways. `base` is the way that the others are compared with."""

    title: str
    text: str
    base: str
    cases: dict[str, str]
    ways: list[Way]
    targets: list[Target]
    sittings: int = 4


class Worker:
    """A running worker process."""

    def __init__(self, way: Way) -> None:
        self.way = way
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "GOMAXPROCS": toolchain.variable("GOMAXPROCS") or "2",
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
    """Wall and CPU nanoseconds of every round, by case and way."""

    rounds: dict[tuple[str, str], list[tuple[float, float]]] = field(default_factory=dict)

    def has(self, case: str, way: str) -> bool:
        return (case, way) in self.rounds

    def nanoseconds(self, case: str, way: str) -> float:
        """The median of the wall times."""
        return statistics.median(wall for wall, _ in self.rounds[case, way])

    def ratio(self, case: str, way: str, to: str) -> tuple[float, float]:
        """The medians of the ratios of wall and CPU times in the same round."""
        pairs = list(zip(self.rounds[case, way], self.rounds[case, to], strict=True))
        return (
            statistics.median(a[0] / b[0] for a, b in pairs),
            statistics.median(a[1] / b[1] for a, b in pairs),
        )


def measure(family: Family, rounds: int, cases: list[str]) -> Figures:
    """Runs cases in every way, interleaved."""
    figures = Figures()
    for sitting in range(family.sittings):
        workers = [Worker(w) for w in family.ways]
        try:
            for case in cases:
                _sit(workers, case, len(range(sitting, rounds, family.sittings)), figures)
        finally:
            for worker in workers:
                worker.close()
    for case in cases:
        print(_line(case, figures, family), flush=True)
    return figures


def _sit(workers: list[Worker], case: str, rounds: int, figures: Figures) -> None:
    """Adds some rounds of one case."""
    iterations: dict[str, int] = {}
    able = []
    for worker in workers:
        if worker.run(case, 2) is None:
            continue
        first = worker.run(case, 20)
        assert first is not None
        able.append(worker)
        iterations[worker.way.key] = max(3, int(ROUND_SECONDS * 1e9 / first[0]))
    for _ in range(rounds):
        for worker in able:
            one = worker.run(case, iterations[worker.way.key])
            assert one is not None
            figures.rounds.setdefault((case, worker.way.key), []).append(one)


def _line(case: str, figures: Figures, family: Family) -> str:
    parts = [f"{case:16}"]
    for way in family.ways:
        if figures.has(case, way.key):
            wall, cpu = figures.ratio(case, way.key, family.base)
            parts.append(f"{way.key} {wall:.2f} (cpu {cpu:.2f})")
    return "  ".join(parts)


# Building workers


def compile_cpp(name: str, *options: str) -> list[str]:
    """Compiles bench/NAME.cc against libtorch; returns the command that runs it."""
    torch = torch_dir()
    lib, include = torch / "lib", torch / "include"
    api = include / "torch" / "csrc" / "api" / "include"
    head = [toolchain.variable("CXX") or "g++", "-std=c++20", "-O2", *options, f"-isystem{include}"]
    # An RPATH, unlike a RUNPATH, also serves libraries that a loaded model needs.
    head += [f"-isystem{api}", f"-L{lib}", f"-Wl,-rpath,{lib},--disable-new-dtags"]
    return _compile(name, ".cc", head, ["-ltorch_cpu", "-lc10"])


def compile_c(name: str) -> list[str]:
    """Compiles bench/NAME.c against cgotorch; returns the command that runs it."""
    ours = toolchain.build_dir() / "lib"
    head = [toolchain.variable("CC") or "cc", "-std=c99", "-O2", f"-I{ROOT / 'cgotorch'}"]
    head += [f"-L{ours}", f"-Wl,-rpath,{ours}"]
    return _compile(name, ".c", head, ["-lcgotorch", "-Wl,--allow-shlib-undefined"])


def _compile(name: str, ending: str, head: list[str], tail: list[str]) -> list[str]:
    OUT.mkdir(parents=True, exist_ok=True)
    source, target = ROOT / "bench" / f"{name}{ending}", OUT / name
    if not target.exists() or source.stat().st_mtime >= target.stat().st_mtime:
        subprocess.run([*head, str(source), "-o", str(target), *tail], check=True)
    return [str(target)]


def compile_go(package: str, name: str, where: Path = ROOT) -> list[str]:
    """Compiles a Go program; returns the command that runs it."""
    OUT.mkdir(parents=True, exist_ok=True)
    go = shutil.which("go") or "go"
    subprocess.run([go, "build", "-o", OUT / name, package], cwd=where, check=True)
    return [str(OUT / name)]
