"""Words that are closed while calls use them: from C++, with and without membarrier(2)."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from pytorch_bridge.native.toolchain import ROOT

pytestmark = pytest.mark.smoke


@pytest.fixture(scope="module")
def command(c_program) -> list[str | Path]:
    thunks = (ROOT / "cgotorch/thunks_gen.cc").read_text()
    numbers = re.findall(r"^    thunk_(\w+),$", thunks, re.MULTILINE)
    return [c_program("words_test"), *(str(numbers.index(name)) for name in ("AddOut", "Cat"))]


@pytest.mark.parametrize("without", [False, True])
def test_facts(command, without):
    environ = dict(os.environ)
    if without:
        environ["WORDS_TEST_WITHOUT_MEMBARRIER"] = "1"
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok") > 40
