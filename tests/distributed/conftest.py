"""The program of main.go beside this file, whose ranks several files test."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytorch_bridge.testing.gotests import run_go


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("distributed") / "ranks"
    built = run_go("build", "-buildvcs=false", "-o", str(made), "./tests/distributed")
    assert built.returncode == 0, built.stderr
    return made
