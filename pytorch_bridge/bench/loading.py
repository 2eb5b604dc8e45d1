"""Data loaders: package data against torch.utils.data.DataLoader with as many workers."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

from ..native.toolchain import ROOT
from .measuring import OUT, Family, Target, Way, compile_go

KINDS = {
    "arrays": "10,000 arrays of 784, a `TensorDataset`, batches of 64",
    "samples": "the same, a data set of one's own",
    "jpegs": "64 JPEGs of 256×256, decoded, batches of 8",
}
WORKERS = {0: "no workers", 1: "1 worker", 2: "2 workers"}

CASES = {
    f"loader_{kind}_{n}": f"{title}, {text}"
    for kind, title in KINDS.items()
    if kind != "jpegs" or importlib.util.find_spec("PIL")
    for n, text in WORKERS.items()
}


def pictures(worker: list[str]) -> Path:
    """Draws the JPEGs, if they are not there; returns their folder."""
    folder = OUT / "jpegs"
    if not (folder / "63.jpg").exists():
        subprocess.run([*worker, "pictures", str(folder)], check=True)
    return folder


def family() -> Family:
    """Compiles the worker, and draws the pictures."""
    go = compile_go("./bench/goworker", "go_worker")
    folder = str(pictures(go))
    python = str(ROOT / "bench/loading_worker.py")
    return Family(
        title="Data loaders",
        text=(
            "An epoch in random order; the times are of a whole epoch. Python's workers are "
            "processes that stay (`persistent_workers`), and decode with Pillow; Go's are "
            "goroutines, and decode to the same bits with package vision/imageio, without C. CPU "
            "time is without Python's processes."
        ),
        base="python",
        cases=CASES,
        ways=[
            Way("python", "`DataLoader`", [sys.executable, python, folder]),
            Way("go_gc", "Go, `data.Loader`", [*go, "load", folder]),
        ],
        targets=[Target(case, "go_gc", 0.67) for case in CASES],
        sittings=2,
    )


def facts() -> dict[str, str]:
    return {}
