"""`make bench-peers`: beside Python, the libraries that a program in another language would use.

tch-rs has PyTorch for Rust: its worker is bench/peers/tch, built by cargo. GoMLX is a library for
Go with compiled graphs: its worker is bench/peers/gomlx. What is not there is left out, and a
sentence says so.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from ..native import toolchain
from ..native.toolchain import ROOT
from ..schema.functions import torch_dir, torch_version
from . import functions
from .measuring import OUT, Family, Target, Way, compile_cpp, compile_go

FOLDER = ROOT / "bench" / "peers"
DOCUMENT = ROOT / "docs" / "benchmarks-peers.md"

TORCH_OF_TCH = "2.13.0"
"""The torch that the tch in bench/peers/tch/Cargo.toml is made for. The Makefile reads it here."""

CASES = {case: title for case, title in functions.CASES.items() if case != "cnn_step_64"}


def tch() -> list[str] | str:
    """Builds tch-rs's worker with the torch of this Python: its command, or what is missing."""
    cargo = shutil.which("cargo")
    if cargo is None:
        return "cargo is not on PATH, so tch-rs is left out (to install Rust: https://rustup.rs)"
    if torch_version().partition("+")[0] != TORCH_OF_TCH:
        return f"tch-rs is left out: it wants torch {TORCH_OF_TCH}, and here is {torch_version()}"
    target = OUT / "tch"
    python = str(Path(sys.executable).parent)
    environment = {
        **os.environ,
        "CARGO_TARGET_DIR": str(target),
        "LIBTORCH_USE_PYTORCH": "1",
        "PATH": f"{python}:{os.environ['PATH']}",
    }
    command = [cargo, "build", "--release", "--locked"]
    done = subprocess.run(
        command, cwd=FOLDER / "tch", env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        return f"cargo did not build bench/peers/tch, so tch-rs is left out: {_last(done.stderr)}"
    worker = str(target / "release" / "tch_worker")
    return ["env", f"LD_LIBRARY_PATH={torch_dir() / 'lib'}", worker]


def gomlx() -> list[str] | str:
    """Builds GoMLX's worker: its command, or what is missing."""
    go = toolchain.find_go().path
    command = [str(go), "build", "-o", str(OUT / "gomlx_worker"), "."]
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": ""}
    done = subprocess.run(
        command, cwd=FOLDER / "gomlx", env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        return f"Go's modules for GoMLX are not to be had, so it is left out: {_last(done.stderr)}"
    return [str(OUT / "gomlx_worker")]


def _last(text: str) -> str:
    return (text.strip().splitlines() or ["(no message)"])[-1]


def _version(file: str, pattern: str) -> str:
    found = re.search(pattern, (FOLDER / file).read_text())
    assert found, f"{file} has no version"
    return found[1]


def family() -> Family:
    """Compiles the workers."""
    OUT.mkdir(parents=True, exist_ok=True)
    python = Way("python", "Python eager", [sys.executable, str(ROOT / "bench/python_worker.py")])
    peers, missing = [], []
    for key, title, made in (("tch", "tch-rs", tch()), ("gomlx", "GoMLX", gomlx())):
        if isinstance(made, str):
            print(f"make bench-peers: {made}", file=sys.stderr, flush=True)
            missing.append(f" {made[0].upper()}{made[1:]}.")
        else:
            peers.append(Way(key, title, made))
    go = compile_go("./bench/goworker", "go_worker")
    ours = [
        Way("go_scope", "Go, in a Scope", [*go, "scope"]),
        Way("go_gc", "Go, collector", [*go, "gc"]),
        Way("go_close", "Go, Close", [*go, "close"]),
    ]
    cpp = Way("cpp", "C++ `at::`", compile_cpp("cpp_worker"))
    has_tch = any(way.key == "tch" for way in peers)
    targets = [Target(case, "go_scope", 1.0, to="tch") for case in CASES if case != "mlp_forward_1"]
    return Family(
        title="Beside other libraries",
        text=(
            "Ratios to " + ("tch-rs" if has_tch else "Python eager") + ". "
            f"tch-rs {_version('tch/Cargo.toml', 'tch = .*?=([0-9.]+)')}, C++, Python and gotorch "
            f"run on one torch, {torch_version()}, which is that of tch-rs; its tensors are freed "
            f"at once, its optimisers are those of C++, which go parameter by parameter. GoMLX "
            f"{_version('gomlx/go.mod', 'gomlx/gomlx (v[0-9.]+)')} compiles graphs and has its "
            "backend in pure Go, with one thread to an op: XLA's would have to be downloaded by "
            "hand." + "".join(missing)
        ),
        base="tch" if has_tch else "python",
        cases=CASES,
        ways=[*peers, python, cpp, *ours],
        targets=[Target("mlp_forward_1", "go_scope", 0.95, to="tch"), *targets] if has_tch else [],
    )


def facts() -> dict[str, str]:
    return {}
