"""Compiled packages, as far as Go's own tests in gotorch/aoti do not see to them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pytorch_bridge.native.toolchain import ROOT
from pytorch_bridge.packages.go_package.golden import chosen
from pytorch_bridge.testing import packages

TESTS = ROOT / "cgotorch/test"


@pytest.fixture(scope="session")
def package():
    """The folder of the one package that all tests share."""
    command = [sys.executable, "-m", "pytorch_bridge.testing.packages"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_package_is_made_once(package):
    # By path and without torch, which takes longer to import than to look for a folder.
    code = "import sys; from pytorch_bridge.testing import packages as p; print(p.package(), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.split() == [package, "False"], done.stderr


def test_another_model_is_another_package(package, tmp_path, monkeypatch):
    page = tmp_path / "aoti.md"
    page.write_text(packages.PAGE.read_text().replace("nn.Linear(8, 16)", "nn.Linear(8, 32)"))
    monkeypatch.setattr(packages, "PAGE", page)
    monkeypatch.setattr(packages, "_make", lambda folder: (folder / "model.pt2").touch())
    monkeypatch.setattr(packages, "_cache", lambda: tmp_path / "cache")
    other = packages.package()
    assert other.name != package.rsplit("/")[-1]
    assert [p.name for p in other.iterdir()] == ["model.pt2"]
    assert packages.package() == other


def test_from_c_without_python_or_environment(library, tmp_path_factory, tmp_path):
    package = tmp_path_factory.mktemp("package")
    packages.copy(package)
    lib = library.library.parent
    flags = ["-std=c99", "-D_POSIX_C_SOURCE=200809L", "-pedantic", "-Wall", "-Werror"]
    link = ["-lcgotorch", "-lpthread", f"-Wl,-rpath,{lib}", "-Wl,--allow-shlib-undefined"]
    command = ["cc", *flags, f"-I{ROOT / 'cgotorch'}", TESTS / "aoti_test.c", f"-L{lib}", *link]
    subprocess.run([*command, "-o", tmp_path / "test"], check=True)
    done = subprocess.run(
        [tmp_path / "test", package],
        cwd=tmp_path,
        env={"TMPDIR": str(tmp_path), **chosen()},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["test"]


def test_sources_of_models(library, tmp_path):
    program = tmp_path / "aoti_checks_test"
    sources = [TESTS / "aoti_checks_test.cc", ROOT / "cgotorch/aoti_checks.cc"]
    flags = ["-std=c++20", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover"]
    subprocess.run([*library.compiler.command, *flags, *sources, "-o", program], check=True)
    done = subprocess.run([program, "20000"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
