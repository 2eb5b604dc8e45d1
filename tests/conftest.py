"""What the tests share."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pytorch_bridge.native import build, toolchain
from pytorch_bridge.native.toolchain import ROOT
from pytorch_bridge.registry import temporary
from pytorch_bridge.testing.gotests import ensure_library


@pytest.fixture
def unregistered():
    """What the test registers is withdrawn when it ends."""
    with temporary():
        yield


@pytest.fixture(scope="session")
def library() -> build.Settings:
    """The libcgotorch.so of the installed torch, up to date."""
    ensure_library()
    torch, compiler, out = toolchain.find_torch(), toolchain.find_compiler(), toolchain.build_dir()
    return build.Settings(torch, compiler, out, build.sanitizer_of(out))


@pytest.fixture(scope="module")
def c_program(library, tmp_path_factory) -> Callable[[str], Path]:
    """Compiles a program of cgotorch/test, of C99 or C++20, with the library's sanitizer if it has one."""

    def compiled(name: str) -> Path:
        out = tmp_path_factory.mktemp("c") / name
        lib = library.library.parent
        source = ROOT / "cgotorch/test" / f"{name}.c"
        compiler, standard = "gcc", "-std=c99"
        if not source.exists():
            source, compiler, standard = source.with_suffix(".cc"), "g++", "-std=c++20"
        flags = [standard, "-g", "-Wall", "-Wextra", "-Werror", "-pedantic"]
        if sanitizer := build.sanitizer_of(library.out):
            flags += [f"-fsanitize={sanitizer}"]
        flags += [f"-I{ROOT / 'cgotorch'}", str(source), "-o", str(out)]
        link = [f"-L{lib}", "-lcgotorch", f"-Wl,-rpath,{lib}", "-Wl,--allow-shlib-undefined"]
        subprocess.run([compiler, *flags, *link], check=True)
        return out

    return compiled


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts a program that prints the given lines first on PATH, and returns its path."""

    def make(name: str, output: str, exit_code: int = 0) -> Path:
        folder = tmp_path / "tools"
        folder.mkdir(exist_ok=True)
        script = folder / name
        script.write_text(f"#!/bin/sh\ncat <<'END'\n{output}\nEND\nexit {exit_code}\n")
        script.chmod(0o755)
        monkeypatch.setenv("PATH", str(folder), prepend=":")
        return script

    return make
