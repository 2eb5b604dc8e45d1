"""The commands doctor and env, and what the command line does with errors."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys

import pytest

from pytorch_bridge import cli
from pytorch_bridge.cli import doctor
from pytorch_bridge.native import toolchain
from pytorch_bridge.native.toolchain import ROOT, Missing


def states() -> dict[str, str]:
    return {finding.what: finding.state for finding in doctor.findings()}


def test_doctor_is_content_after_a_build(library, capsys):
    assert cli.main(["doctor"]) == 0
    assert "Everything is in order." in capsys.readouterr().out


def test_doctor_without_a_compiler(monkeypatch, capsys):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert cli.main(["doctor"]) == 1
    said = capsys.readouterr().out
    assert "C++ compiler    missing" in said
    assert "no-such-compiler does not run" in said
    assert "type: " in said


def test_doctor_without_go(monkeypatch):
    monkeypatch.setattr(toolchain, "_go", lambda path: None)
    assert states()["go"] == "missing"


def test_doctor_without_torch(library, monkeypatch):
    monkeypatch.setattr(toolchain.importlib.util, "find_spec", lambda name: None)
    found = states()
    assert (found["torch"], found["libcgotorch.so"]) == ("missing", "wrong")


def test_doctor_without_the_library(monkeypatch):
    monkeypatch.setenv("GOTORCH_BUILD_DIR", "build/nothing-here")
    assert states()["libcgotorch.so"] == "missing"


def test_doctor_finds_a_library_of_another_torch(library, tmp_path, monkeypatch):
    lib = tmp_path / "lib"
    lib.mkdir()
    shutil.copy(library.library, lib)
    facts = json.loads(library.facts.read_text())
    (lib / "cgotorch.json").write_text(json.dumps({**facts, "torch": "2.12.0+cpu"}))
    monkeypatch.setenv("GOTORCH_BUILD_DIR", str(tmp_path))
    finding = doctor.check_library()
    assert finding.state == "wrong"
    assert "built for torch 2.12.0+cpu; installed is " in finding.detail
    assert finding.fix == "make build"


def test_doctor_finds_a_library_that_does_not_load(library, tmp_path, monkeypatch):
    lib = tmp_path / "lib"
    lib.mkdir()
    (lib / "libcgotorch.so").write_bytes(b"no library")
    shutil.copy(library.facts, lib)
    monkeypatch.setenv("GOTORCH_BUILD_DIR", str(tmp_path))
    finding = doctor.check_library()
    assert finding.state == "wrong"
    assert "does not load" in finding.detail


def test_doctor_finds_cgo_switched_off(monkeypatch):
    monkeypatch.setenv("CGO_ENABLED", "0")
    assert states()["cgo"] == "wrong"


def test_absent_pkg_config_is_no_error(monkeypatch):
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    assert doctor.check_pkgconfig().state == "optional"


def test_env_is_what_a_shell_evaluates(monkeypatch, tmp_path):
    monkeypatch.setenv("PKG_CONFIG_PATH", "/elsewhere")
    done = subprocess.run(
        ["sh", "-c", f'eval "$({sys.executable} -m pytorch_bridge env)" && echo $PKG_CONFIG_PATH'],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.stdout == f"{toolchain.build_dir()}/lib/pkgconfig:/elsewhere\n"
    assert done.stderr == ""


def test_env_as_json_and_the_line_for_go_mod(capsys):
    assert cli.main(["env", "--json"]) == 0
    assert "PKG_CONFIG_PATH" in json.loads(capsys.readouterr().out)
    assert cli.main(["env"]) == 0
    assert f"#   replace gotorch.dev => {ROOT}" in capsys.readouterr().out


def test_missing_piece_is_one_line_and_what_to_type(monkeypatch, capsys):
    def missing(directory=None):
        raise Missing("torch is not installed.", "make build")

    monkeypatch.setattr(toolchain, "find_torch", missing)
    assert cli.main(["build"]) == 1
    assert capsys.readouterr().err == (
        "python -m pytorch_bridge: torch is not installed.\n  To fix it, type: make build\n"
    )


def test_unknown_command_lists_the_known_ones(capsys):
    with pytest.raises(SystemExit):
        cli.main(["bild"])
    assert "build" in capsys.readouterr().err


def test_the_command_is_the_module():
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has none")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, _, name = project["scripts"]["gotorch"].partition(":")
    assert getattr(importlib.import_module(module), name) is cli.main
    run = "import sys; sys.argv[0] = '/usr/bin/gotorch'; from pytorch_bridge.cli import main; main(['--help'])"
    said = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True).stdout
    assert said.startswith("usage: gotorch ")
