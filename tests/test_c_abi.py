"""The C ABI from C: rows D3, D4, D5 and D9 of the behaviours."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pytorch_bridge.native.toolchain import ROOT, find_torch

pytestmark = pytest.mark.smoke


@pytest.fixture(scope="module")
def program(c_program) -> Path:
    return c_program("abi_test")


def test_facts(program):
    done = subprocess.run([program], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok") > 20


def test_clang_has_no_warnings_for_what_every_function_uses(tmp_path):
    names = ["clang++", *(f"clang++-{version}" for version in range(30, 14, -1))]
    clang = next(filter(shutil.which, names), None)
    if clang is None:
        pytest.skip("clang++ is not installed")
    source = tmp_path / "thunk.cc"
    source.write_text('#include "thunk.h"\n')
    flags = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'cgotorch'}"]
    flags += [f"-isystem{path}" for path in find_torch().includes]
    done = subprocess.run([clang, *flags, str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
