"""What computes beside the processor: the tests of tests/devices, on a stand-in for a device whose memory
is the computer's, and on CUDA where `make test-cuda` asks for it."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from pytorch_bridge import build
from pytorch_bridge.testing.gotests import run_go
from pytorch_bridge.toolchain import ROOT

SOURCE = ROOT / "tests/devices/standin/standin.cc"


@pytest.fixture(scope="module")
def standin(library):
    """The stand-in's library, compiled when it or torch has changed."""
    flags = [f for f in library.compile_flags() if not f.startswith(("-fvisibility", "-O", "-I"))]
    torch = library.torch
    link = [f"-L{torch.lib}", f"-Wl,-rpath,{torch.lib}", "-ltorch_cpu", "-lc10"]
    command = [*library.compiler.command, *flags, "-O1", "-shared", str(SOURCE), *link, "-o"]
    made_from = build._digest(SOURCE.read_bytes(), *command, library.compiler.version)
    out = library.out / "devices" / f"libstandin-{made_from[:16]}.so"
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        partial = out.with_suffix(f".{os.getpid()}.part")
        subprocess.run([*command, str(partial)], check=True)
        partial.replace(out)
    return out


def devices(which: str, *flags: str) -> str:
    """Runs the tests on a device; returns what they print."""
    done = run_go(
        *("test", "-tags", "devices", "-vet=off", "-count=1", "-v", *flags, "./tests/devices"),
        GOTORCH_TEST_DEVICE=which,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_on_the_standin(standin):
    said = devices(f"standin={standin}")
    skipped = [line.split()[2] for line in said.splitlines() if line.startswith("--- SKIP")]
    assert skipped == []
    text = "".join(path.read_text() for path in (ROOT / "tests/devices").glob("*_test.go"))
    tests = re.findall(r"^func (Test\w+)\(\w+ \*testing\.T\)", text, re.M)
    assert len(tests) > 10
    assert sorted(re.findall(r"^--- PASS: (\w+)", said, re.M)) == sorted(tests)


def test_on_cuda():
    if not os.environ.get("GOTORCH_TEST_CUDA"):
        pytest.skip("make test-cuda runs it")
    devices("cuda")
