"""What calls back into C, and what travels boxed, from C99; no invalid access to memory."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pytorch_bridge.toolchain import ROOT

pytestmark = pytest.mark.smoke


@pytest.fixture(scope="module")
def program(library, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("callbacks") / "callbacks_test"
    lib = library.library.parent
    flags = ["-std=c99", "-g", "-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{ROOT / 'cgotorch'}"]
    link = [f"-L{lib}", "-lcgotorch", f"-Wl,-rpath,{lib}", "-Wl,--allow-shlib-undefined"]
    source = ROOT / "cgotorch/test/callbacks_test.c"
    subprocess.run(["gcc", *flags, str(source), "-o", str(out), *link], check=True)
    return out


def test_facts(program, tmp_path):
    done = subprocess.run([program, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok") > 40


def test_no_invalid_access_to_memory(program, tmp_path):
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")
    # Uninitialised values are not looked at: libtorch's vector code reads beyond what it uses.
    command = ["valgrind", "--error-exitcode=9", "--leak-check=no", "--undef-value-errors=no"]
    done = subprocess.run([*command, program, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
