"""No invalid access to memory in what the C programs do, by valgrind."""

from __future__ import annotations

import shutil
import subprocess

import pytest

pytestmark = [pytest.mark.smoke, pytest.mark.long]


def test_no_invalid_access_to_memory(c_program, tmp_path):
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")
    # Uninitialised values are not looked at: libtorch's vector code reads beyond what it uses.
    command = ["valgrind", "--error-exitcode=9", "--leak-check=no", "--undef-value-errors=no"]
    done = subprocess.run(
        [*command, c_program("together"), tmp_path], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok") > 60
