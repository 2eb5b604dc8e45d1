"""`gotorch doctor`: what is installed, what is missing, and what to type."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pytorch_bridge import __version__
from pytorch_bridge.errors import CompileError
from pytorch_bridge.native import prebuilt_library, toolchain, versions
from pytorch_bridge.native.toolchain import ROOT, Missing


@dataclass(frozen=True)
class Finding:
    """One line of the table."""

    what: str
    state: str
    """"ok", "missing", "wrong", or "optional": absent, and needed for few things only."""
    detail: str
    fix: str = ""

    @property
    def bad(self) -> bool:
        return self.state in ("missing", "wrong")


def check_python() -> Finding:
    detail = f"{sys.version.split()[0]}, {sys.executable}"
    if sys.version_info < versions.OLDEST_PYTHON:
        newer = toolchain.fix("make PYTHON=python3.12", "python3.12 -m venv /a/new/environment")
        return Finding("python", "wrong", detail, newer)
    if not toolchain.INSTALLED and Path(sys.prefix).parent != ROOT:
        fix = "make build; then .venv/bin/python -m pytorch_bridge doctor"
        return Finding("python", "wrong", f"{detail}, which is not the repository's", fix)
    return Finding("python", "ok", detail)


def check_gotorch() -> Finding:
    detail = f"{__version__}, {Path(__file__).parents[1]}"
    if toolchain.INSTALLED:
        has = ", ".join(prebuilt_library.manifest()["libraries"]) or "no torch"
        detail += f", with libraries for torch {has}"
    return Finding("gotorch", "ok", detail)


def check_torch() -> Finding:
    torch = toolchain.find_torch()
    kind = f"CUDA {torch.cuda}" if torch.cuda else "CPU"
    detail = f"{torch.version} ({kind}), {torch.dir}"
    numbers = [int(n) for n in torch.release.split(".")[:2]]
    if numbers < [int(n) for n in versions.OLDEST_TORCH.split(".")[:2]]:
        oldest = versions.OLDEST_TORCH
        reference = versions.REFERENCE_TORCH
        fix = toolchain.fix(
            f"make build TORCH_VERSION={reference}", f"pip install torch=={reference}"
        )
        return Finding("torch", "wrong", f"{detail}: older than {oldest}", fix)
    return Finding("torch", "ok", detail)


def check_compiler() -> Finding:
    compiler = toolchain.find_compiler()
    return Finding("C++ compiler", "ok", compiler.version)


def check_go() -> Finding:
    go = toolchain.find_go()
    return Finding("go", "ok", f"{go.version}, {go.path}")


def check_cc() -> Finding:
    """cgo compiles with $CC, which need not belong to the C++ compiler."""
    go = toolchain.find_go()
    command = [str(go.path), "env", "CC", "CGO_ENABLED"]
    env = {**os.environ, **toolchain.go_environment(go)}
    said = subprocess.run(command, capture_output=True, text=True, env=env).stdout.split("\n")
    cc, enabled = said[0], said[1]
    if enabled == "0" and shutil.which(cc.split()[0]):
        return Finding("cgo", "wrong", "is switched off by CGO_ENABLED=0", "unset CGO_ENABLED")
    if not shutil.which(cc.split()[0]):
        fix = toolchain.install_line("gcc")
        return Finding("cgo", "missing", f"needs the C compiler {cc}, not on PATH", fix)
    return Finding("cgo", "ok", f"with {cc}")


def check_library() -> Finding:
    """libcgotorch.so is there, is of the installed torch, and loads. Without a checkout it is put
    there first, as by whatever needs it."""
    name = "libcgotorch.so"
    try:
        library = prebuilt_library.ensure()
    except CompileError as err:
        return Finding(name, "wrong", str(err), "export CXX=clang++   (or a newer compiler)")
    lib = library.parent
    again = toolchain.fix("make build", f"rm -r {shlex.quote(str(lib.parent))}; gotorch doctor")
    try:
        facts = json.loads((lib / "cgotorch.json").read_text())
    except (OSError, ValueError):
        facts = None
    if facts is None or not library.exists():
        return Finding(name, "missing", f"{library} is not built", again)
    try:
        torch = toolchain.find_torch()
    except Missing:
        return Finding(name, "wrong", f"{library} has no torch to go with", again)
    for built, installed in [
        (facts["torch"], torch.version),
        (facts["torch_dir"], str(torch.dir)),
    ]:
        if built != installed:
            detail = f"was built for torch {built}; installed is {installed}"
            return Finding(name, "wrong", detail, again)
    # In a process of its own: a library that does not fit may take the process with it.
    load = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", load, library], capture_output=True, text=True)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return Finding(
            name, "wrong", f"does not load: {said[-1]}", toolchain.fix("make clean build", again)
        )
    return Finding(name, "ok", f"for torch {facts['torch']}, {library}")


def check_threads() -> Finding:
    """The number of threads of an op in a Go program, by the rule of gotorch/container.go."""
    processors = len(os.sched_getaffinity(0))
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        if os.environ.get(name):
            return Finding("threads", "ok", f"an op uses {os.environ[name]}, as {name} says")
    ask = (
        "import ctypes, sys; quota = ctypes.CDLL(sys.argv[1]).cgotorch_cpu_quota;"
        "quota.restype = ctypes.c_double; print(quota(b''))"
    )
    library = prebuilt_library.ensure()
    done = subprocess.run([sys.executable, "-c", ask, library], capture_output=True, text=True)
    if done.returncode != 0:
        return Finding("threads", "optional", "not known without libcgotorch.so")
    quota = float(done.stdout)
    if quota == 0 or max(1, int(quota)) >= processors:
        return Finding("threads", "ok", f"an op uses {processors} at most, one for each processor")
    detail = f"an op uses {max(1, int(quota))}, as the container's quota is {quota:.3g} CPUs; "
    return Finding("threads", "ok", f"{detail}there are {processors}")


def check_pkgconfig() -> Finding:
    found = shutil.which("pkg-config") or shutil.which("pkgconf")
    if found:
        return Finding("pkg-config", "ok", found)
    detail = "only for programs that use cgotorch.pc: in C, or in Go with -tags pkgconfig"
    return Finding("pkg-config", "optional", detail, toolchain.install_line("pkg-config"))


def check_disk() -> Finding:
    place = toolchain.build_dir()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free / 2**30
    if free < 0.5:
        return Finding("disk", "wrong", f"{free:.1f} GB free in {place}", "make room there")
    return Finding("disk", "ok", f"{free:.0f} GB free")


CHECKS: dict[str, Callable[[], Finding]] = {
    "gotorch": check_gotorch,
    "python": check_python,
    "torch": check_torch,
    "C++ compiler": check_compiler,
    "go": check_go,
    "cgo": check_cc,
    "libcgotorch.so": check_library,
    "threads": check_threads,
    "pkg-config": check_pkgconfig,
    "disk": check_disk,
}


def findings() -> Iterator[Finding]:
    """What each check found, in the order of the table."""
    for what, check in CHECKS.items():
        try:
            yield check()
        except Missing as err:
            yield Finding(what, "missing", err.what, err.fix)


def main() -> int:
    """Prints the table; returns 1 if something needed is missing or wrong."""
    found = list(findings())
    width = max(len(finding.what) for finding in found)
    for finding in found:
        print(f"{finding.what:<{width}}  {finding.state:<8}  {finding.detail}")
        if finding.fix:
            print(f"{'':<{width}}            type: {finding.fix}")
    bad = [finding.what for finding in found if finding.bad]
    print(f"\nNot in order: {', '.join(bad)}." if bad else "\nEverything is in order.")
    return 1 if bad else 0
