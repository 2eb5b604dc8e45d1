"""The server of main.go beside this file, which several clients test."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytorch_bridge.testing.gotests import run_go


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program."""
    program = tmp_path_factory.mktemp("serve") / "serve"
    built = run_go("build", "-buildvcs=false", "-o", str(program), "./tests/serve")
    assert built.returncode == 0, built.stderr
    return program


@pytest.fixture(scope="module")
def served(server: Path) -> Iterator[SimpleNamespace]:
    """The addresses of one that runs, `rest` and `grpc`."""
    with subprocess.Popen(
        [server], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield SimpleNamespace(**json.loads(process.stdout.readline()))
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(20) == 0
