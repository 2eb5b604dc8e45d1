"""The engine of backward passes, with devices that come after the first pass."""

from __future__ import annotations

import subprocess

import pytest

from pytorch_bridge.native.toolchain import ROOT

pytestmark = pytest.mark.smoke


def test_facts(library, tmp_path):
    program, lib = tmp_path / "engine_test", library.library.parent
    command = [*library.compiler.command, *library.compile_flags()]
    command += [str(ROOT / "cgotorch/test/engine_test.cc"), "-o", str(program)]
    command += [f"-L{lib}", f"-L{library.torch.lib}", "-lcgotorch", "-ltorch_cpu", "-lc10"]
    command += [f"-Wl,-rpath,{lib}:{library.torch.lib}", "-Wl,--allow-shlib-undefined"]
    subprocess.run(command, check=True)
    done = subprocess.run([program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok") == 4
