"""What the tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytorch_bridge import build, toolchain
from pytorch_bridge.testing.gotests import ensure_library


@pytest.fixture(scope="session")
def library() -> build.Settings:
    """The libcgotorch.so of the installed torch, up to date."""
    ensure_library()
    torch, compiler = toolchain.find_torch(), toolchain.find_compiler()
    return build.Settings(torch, compiler, toolchain.build_dir())


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
