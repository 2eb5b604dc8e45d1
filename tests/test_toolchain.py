"""What is found on a machine, and what a missing piece says."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from pytorch_bridge.native import toolchain, versions
from pytorch_bridge.native.toolchain import ROOT, Missing
from pytorch_bridge.schema import functions


def test_torch_is_found_without_importing_it():
    import torch

    found = toolchain.find_torch()
    assert found.version == torch.__version__
    assert found.cuda == torch.version.cuda
    assert found.dir == Path(torch.__file__).parent
    assert found.uses_cxx11_abi() == torch.compiled_with_cxx11_abi()


def test_reference_torch_is_the_one_of_the_committed_schemas():
    assert functions.reference_version() == versions.REFERENCE_TORCH


def test_half_removed_torch_is_missing(tmp_path):
    (tmp_path / "version.py").write_text("__version__ = '2.15.0'\n")
    with pytest.raises(Missing, match="is incomplete"):
        toolchain.find_torch(tmp_path)


def test_torch_has_the_same_folder_wherever_one_is(monkeypatch):
    """The library names it, and is loaded from anywhere."""
    site = toolchain.find_torch().dir.parent
    monkeypatch.chdir(site.parent)
    for given in (Path(site.name), Path(site.name) / "torch"):
        found = toolchain.find_torch(given).dir
        assert found.is_absolute()
        assert found.samefile(site / "torch")


@pytest.mark.parametrize(
    ("banner", "reason"),
    [
        ("g++ (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0", "older than 12"),
        ("Debian clang version 14.0.6", "older than 15"),
        ("a program that is no compiler", "older than 12"),
    ],
)
def test_old_compiler_is_refused_with_what_to_type(tool, monkeypatch, banner, reason):
    monkeypatch.setenv("CXX", str(tool("g++", banner)))
    with pytest.raises(Missing, match=reason) as info:
        toolchain.find_compiler()
    assert "install" in info.value.fix


@pytest.mark.parametrize(
    "banner", ["g++ (GCC) 12.1.0", "g++-13 (Ubuntu 13.1.0-8ubuntu1) 13.1.0", "clang version 18.1.3"]
)
def test_new_compiler_is_taken(tool, monkeypatch, banner):
    monkeypatch.setenv("CXX", str(tool("cxx", banner)) + " -m64")
    assert toolchain.find_compiler().version == banner


def test_newer_gxx_beside_an_old_default_is_found(tool, monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    tool("g++", "g++ (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0")
    newer = "g++-13 (Ubuntu 13.1.0-8ubuntu1) 13.1.0"
    tool("g++-13", newer)
    found = toolchain.find_compiler()
    assert found.command == ("g++-13",)
    assert found.version == newer


def test_no_compiler_at_all_says_what_to_type(tmp_path, monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Missing, match=r"g\+\+ >= 12"):
        toolchain.find_compiler()


def test_old_go_gives_way_to_the_one_in_the_environment(tool, tmp_path):
    tool("go", "go1.22.2")
    in_venv = tool("venv-go", "go1.26.6").rename(tmp_path / "go")
    (tmp_path / "bin").mkdir()
    in_venv.rename(tmp_path / "bin/go")
    found = toolchain.find_go(tmp_path)
    assert (found.path, found.version) == (tmp_path / "bin/go", "1.26.6")
    assert toolchain.go_environment(found)["PATH"].startswith(f"{tmp_path}/bin:")


def test_old_go_alone_is_missing(tool, tmp_path):
    tool("go", "go1.22.2")
    with pytest.raises(Missing, match=r"No Go >= 1\.26"):
        toolchain.find_go(tmp_path)


@pytest.mark.parametrize("home", [None, "", "/dev/null/home"])
def test_go_has_caches_without_a_home(monkeypatch, home):
    for name in ["HOME", "GOCACHE", "GOPATH"]:
        monkeypatch.delenv(name, raising=False)
    if home is not None:
        monkeypatch.setenv("HOME", home)
    env = toolchain.go_environment(toolchain.find_go())
    assert env["GOCACHE"] == str(ROOT / "build/go/cache")
    assert env["GOPATH"] == str(ROOT / "build/go/path")


def test_another_build_folder_comes_first_for_the_linker(monkeypatch):
    monkeypatch.setenv("GOTORCH_BUILD_DIR", "build/with space")
    env = toolchain.go_environment(toolchain.find_go())
    lib = ROOT / "build/with space/lib"
    assert env["CGO_LDFLAGS"] == f"'-L{lib}' '-Wl,-rpath,{lib}'"


def test_command_line_starts_without_torch():
    from pytorch_bridge.cli import commands

    done = toolchain._output(
        [
            *[sys.executable, "-X", "importtime", "-c"],
            f"import sys; sys.path.insert(0, {str(ROOT)!r}); import pytorch_bridge.cli,"
            "pytorch_bridge.native.build, pytorch_bridge.cli.doctor, pytorch_bridge.native.env\n"
            "print([m for m in ('torch', 'torchgen', 'yaml', 'numpy') if m in sys.modules])",
        ]
    )
    assert done is not None
    assert done.strip() == "[]"
    assert {"build", "coverage", "doctor", "env", "generate"} <= set(commands._commands)


@pytest.mark.parametrize("empty", ["", "  "])
def test_an_empty_variable_is_as_good_as_none(empty, monkeypatch, tool):
    from pytorch_bridge.link import cache, compile

    for name in ("GOTORCH_BUILD_DIR", "GOTORCH_CACHE", "CC", "CXX", "HOME"):
        monkeypatch.delenv(name, raising=False)
    tool("g++", "g++ (GCC) 13.1.0")
    unset = [
        toolchain.build_dir(),
        cache.folder(),
        compile.default_compiler(),
        toolchain.find_compiler(),
        toolchain._go_caches(),
    ]
    assert unset[0] == ROOT / "build"
    for name in ("GOTORCH_BUILD_DIR", "GOTORCH_CACHE", "CC", "CXX", "HOME"):
        monkeypatch.setenv(name, empty)
    assert unset == [
        toolchain.build_dir(),
        cache.folder(),
        compile.default_compiler(),
        toolchain.find_compiler(),
        toolchain._go_caches(),
    ]


def test_make_takes_an_empty_variable_for_none(monkeypatch):
    import subprocess

    for arguments, environment in ((["PYTHON="], None), ([], "")):
        if environment is not None:
            monkeypatch.setenv("PYTHON", environment)
        command = ["make", "--dry-run", "doctor", "VENV=/nonexistent", *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        assert "else python3 -m pytorch_bridge doctor" in done.stdout


def test_no_variable_is_read_past_the_one_function():
    """`variable` is what knows that empty is unset. Lists of folders may be empty; the last one is
    set here."""
    read = re.compile(r"environ(?:\.get\(|\[)[\"'](\w+)[\"']")
    files = (ROOT / "pytorch_bridge").rglob("*.py")
    found = {name for path in files for name in read.findall(path.read_text())}
    assert found == {"PATH", "PKG_CONFIG_PATH", "TORCHINDUCTOR_CACHE_DIR"}
