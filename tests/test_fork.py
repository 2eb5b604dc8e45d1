"""A process that forks while other threads call the library: the child can call it, too."""

from __future__ import annotations

import re
import subprocess

import pytest

from pytorch_bridge.native.toolchain import ROOT

pytestmark = pytest.mark.smoke


def test_children_work(c_program):
    thunks = (ROOT / "cgotorch/thunks_gen.cc").read_text()
    numbers = re.findall(r"^    thunk_(\w+),$", thunks, re.MULTILINE)
    command = [c_program("fork_test"), str(numbers.index("AddOut"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok") == 3
