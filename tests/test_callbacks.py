"""What calls back into C, and what travels boxed, from C99."""

from __future__ import annotations

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
