"""What calls back into C, and what travels boxed, from C99; no invalid access to memory."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.smoke


@pytest.fixture(scope="module")
def program(c_program) -> Path:
    return c_program("callbacks_test")


def test_facts(program, tmp_path):
    done = subprocess.run([program, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok") > 40
    once = "once: indexing with dtype torch.uint8 is now deprecated"
    assert done.stderr.count(once) == 1, done.stderr


def test_no_invalid_access_to_memory(program, tmp_path):
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")
    # Uninitialised values are not looked at: libtorch's vector code reads beyond what it uses.
    command = ["valgrind", "--error-exitcode=9", "--leak-check=no", "--undef-value-errors=no"]
    done = subprocess.run([*command, program, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
