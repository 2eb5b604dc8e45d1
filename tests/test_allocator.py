"""The caching allocator's facts, in a program of its own."""

from __future__ import annotations

import subprocess

import pytest

from pytorch_bridge.native.toolchain import ROOT


@pytest.fixture(scope="module")
def program(library, tmp_path_factory):
    out = tmp_path_factory.mktemp("allocator") / "allocator_test"
    torch = library.torch
    flags = [f for f in library.compile_flags() if not f.startswith("-fvisibility")]
    sources = [str(ROOT / "cgotorch" / name) for name in ("test/allocator_test.cc", "allocator.cc")]
    link = [
        f"-L{torch.lib}",
        f"-Wl,-rpath,{torch.lib}",
        "-ltorch_cpu",
        "-lc10",
        "-lpthread",
        "-ldl",
    ]
    subprocess.run([*library.compiler.command, *flags, *sources, "-o", str(out), *link], check=True)
    return out


def test_facts(program):
    done = subprocess.run([program], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
