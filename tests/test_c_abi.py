"""The C ABI from C: rows D3, D4, D5 and D9 of the behaviours, and no invalid access to memory."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pytorch_bridge.toolchain import ROOT

pytestmark = pytest.mark.smoke


@pytest.fixture(scope="module")
def program(library, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("abi") / "abi_test"
    lib = library.library.parent
    flags = ["-std=c99", "-g", "-Wall", "-Werror", "-pedantic", f"-I{ROOT / 'cgotorch'}"]
    link = [f"-L{lib}", "-lcgotorch", f"-Wl,-rpath,{lib}", "-Wl,--allow-shlib-undefined"]
    subprocess.run(
        ["gcc", *flags, str(ROOT / "cgotorch/test/abi_test.c"), "-o", str(out), *link],
        check=True,
    )
    return out


def test_facts(program):
    done = subprocess.run([program], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok") > 20


def test_no_invalid_access_to_memory(program):
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")
    # Uninitialised values are not looked at: libtorch's vector code reads beyond what it uses.
    done = subprocess.run(
        ["valgrind", "--error-exitcode=9", "--leak-check=no", "--undef-value-errors=no", program],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
