"""How long `go build` takes for a program that uses package gotorch and nothing else of the
library, and how large the program is, beside an earlier commit: what nn and its like have become
must cost such a program nothing."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from ..native import toolchain
from ..native.env import variables
from ..native.toolchain import ROOT

BASE = "8cba736"
PROGRAM = """package main

import (
	"fmt"

	"gotorch.dev/gotorch"
)

func main() {
	x := gotorch.Ones([]int64{2, 2})
	fmt.Println(x.MM(x))
}
"""
ROUNDS = 3


_HEADERS = Path("gotorch/internal/ctorch/headers_gen.h")


def _copy(commit: str, into: Path) -> None:
    """The Go package of a commit and a program, with the library that is built here."""
    into.mkdir()
    parts = ["go.mod", "go.sum", "gotorch", "cgotorch"]
    files = subprocess.run(
        ["git", "archive", commit, *parts], cwd=ROOT, capture_output=True, check=True
    )
    subprocess.run(["tar", "-x"], cwd=into, input=files.stdout, check=True)
    shutil.copy(ROOT / _HEADERS, _headers(into))
    (into / "program").mkdir()
    (into / "program/main.go").write_text(PROGRAM)
    (into / "build").mkdir()
    (into / "build/lib").symlink_to(toolchain.build_dir() / "lib")


def _headers(where: Path) -> Path:
    """What has Go compile the package with C in it anew; that was gotorch in older commits."""
    path = where / _HEADERS
    return path if path.parent.is_dir() else where / "gotorch" / path.name


def _build(where: Path, cold: str) -> float:
    """Seconds of a build. What is new in a header makes Go compile the package, and no other."""
    if cold:
        with _headers(where).open("a") as header:
            header.write(f"// {cold}\n")
    command = [str(toolchain.find_go().path), "build", "-buildvcs=false", "-o", "out", "./program"]
    environment = {**os.environ, **variables()}
    # The library is today's, and may lack what the commit called: nothing is run.
    environment["CGO_LDFLAGS"] = f"-L{where}/build/lib -Wl,--unresolved-symbols=ignore-all"
    start = time.perf_counter()
    subprocess.run(command, cwd=where, env=environment, check=True)
    return time.perf_counter() - start


def facts() -> dict[str, str]:
    known = subprocess.run(
        ["git", "cat-file", "-e", f"{BASE}^{{commit}}"], cwd=ROOT, capture_output=True, check=False
    )
    if known.returncode != 0:
        return {}  # a copy of the repository without its history
    with tempfile.TemporaryDirectory() as folder:
        before, now = Path(folder, "before"), Path(folder, "now")
        _copy(BASE, before)
        _copy("HEAD", now)
        for where in (before, now):
            _build(where, "")
        ratios: dict[bool, list[float]] = {True: [], False: []}
        seconds: dict[bool, list[float]] = {True: [], False: []}
        for number in range(ROUNDS):
            for cold in (True, False):
                note = f"{number} {time.time_ns()}" if cold else ""
                if not cold:  # linked again
                    for where in (before, now):
                        (where / "out").unlink()
                one, other = _build(before, note), _build(now, note)
                seconds[cold].append(other)
                ratios[cold].append(other / one)
        sizes = [Path(w, "out").stat().st_size for w in (before, now)]
    median = statistics.median
    return {
        f"`go build` of a program that uses package gotorch only, to commit {BASE}": (
            f"compiled {median(seconds[True]):.1f} s, ratio {median(ratios[True]):.2f}; from the "
            f"cache {median(seconds[False]):.1f} s, ratio {median(ratios[False]):.2f}; "
            f"{sizes[1] / 1e6:.1f} MB, ratio {sizes[1] / sizes[0]:.2f} (targets 1.10)"
        )
    }
