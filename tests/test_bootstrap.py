"""Set-up: what it does, what it does not do twice, and how it goes on after an interruption."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pytorch_bridge.native import bootstrap, toolchain, versions
from pytorch_bridge.native.bootstrap import Environment
from pytorch_bridge.native.toolchain import Missing


@pytest.fixture
def pip(monkeypatch):
    """Records what pip is asked for instead of running it."""
    calls: list[list[str]] = []
    monkeypatch.setattr(bootstrap, "_check_call", lambda command: calls.append(command[3:]))
    monkeypatch.setattr(bootstrap, "_runs", lambda command: True)
    monkeypatch.setattr(Environment, "_fetch_digits", lambda self: None)
    return calls


@pytest.fixture
def venv(tmp_path):
    folder = tmp_path / ".venv"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python").symlink_to(sys.executable)
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.1\n")
    return folder


def test_default_is_the_reference_torch(venv):
    assert Environment(venv, None, None).torch == versions.REFERENCE_TORCH


def test_python_3_10_gets_the_newest_torch_that_has_a_wheel_for_it(venv):
    (venv / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.10.12\n")
    assert Environment(venv, None, None).torch == "2.14.1"


def test_second_setup_finds_everything_done(venv, pip):
    Environment(venv, None, None).make()
    assert [call[:1] for call in pip] == [["install"], ["install"]]
    assert f"torch=={versions.REFERENCE_TORCH}" in pip[0]
    assert Environment(venv, None, None).ready()


def test_what_is_asked_for_in_ranges_is_installed_in_these_versions(venv, pip):
    Environment(venv, None, None).make()
    assert pip[1][-2:] == ["-c", str(bootstrap.CONSTRAINTS)]
    assert bootstrap.CONSTRAINTS.is_file()


def test_the_distribution_of_the_former_name_is_removed(venv, pip):
    (venv / "lib/python3.12/site-packages/pytorch_bridge-0.1.0.dist-info").mkdir(parents=True)
    (venv / "lib/python3.12/site-packages/pytorch_bridge-0.1.0.dist-info/RECORD").touch()
    Environment(venv, None, None).make()
    assert [call[0] for call in pip] == ["install", "uninstall", "install"]
    assert pip[1][-1] == "pytorch_bridge"


def test_choice_of_torch_and_index_holds_until_another_is_made(venv, pip):
    Environment(venv, "2.13.0", "https://example.org/cpu").make()
    assert pip[-2][-3:] == ["--index-url", "https://example.org/cpu", "torch==2.13.0"]
    later = Environment(venv, None, None)
    assert (later.torch, later.index) == ("2.13.0", "https://example.org/cpu")
    assert later.ready()
    assert not Environment(venv, "2.14.0", None).ready()


def test_another_index_replaces_the_same_version(venv, pip):
    Environment(venv, None, None).make()
    pip.clear()
    Environment(venv, None, "https://example.org/cpu").make()
    assert "--force-reinstall" in pip[0]
    pip.clear()
    Environment(venv, None, "https://example.org/cpu").make()
    assert not any("--force-reinstall" in call for call in pip)


def test_interrupted_setup_goes_on(venv, pip, monkeypatch):
    Environment(venv, None, None).make()

    def stop(command):
        raise KeyboardInterrupt

    monkeypatch.setattr(bootstrap, "_check_call", stop)
    with pytest.raises(KeyboardInterrupt):
        Environment(venv, "2.13.0", None).make()
    monkeypatch.setattr(bootstrap, "_check_call", lambda command: pip.append(command[3:]))
    again = Environment(venv, None, None)
    assert not again.ready()
    again.make()
    assert Environment(venv, None, None).ready()


def test_what_a_killed_pip_left_is_removed(venv):
    site = venv / "lib/python3.12/site-packages"
    whole, half = site / "numpy-2.4.6.dist-info", site / "torch-2.15.0.dist-info"
    for folder in [whole, half, site / "~orch"]:
        folder.mkdir(parents=True)
    (whole / "RECORD").touch()
    Environment(venv, None, None)._mend_packages()
    assert [path.name for path in site.iterdir()] == [whole.name]


def test_python_starts_in_any_folder_and_locale(tmp_path):
    """Also where LC_ALL is C, for which Python reads .pth files as ASCII."""
    venv = tmp_path / "prüfung ü/.venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (site,) = venv.glob("lib/python3.*/site-packages")
    (venv.parent / "checkout").mkdir()
    (venv.parent / "checkout/found.py").touch()
    (site / "pytorch_bridge.pth").write_text(f"{venv.parent / 'checkout'}\n", encoding="utf-8")
    environment = Environment(venv, None, None)
    environment._name_checkout()
    environment._name_checkout()
    assert (site / "pytorch_bridge.pth").read_text() == "../../../../checkout\n"
    for locale in ("C", "POSIX", "C.UTF-8"):
        env = {**os.environ, "LC_ALL": locale}
        subprocess.run([venv / "bin/python", "-c", "import found"], env=env, check=True)


def test_python_without_venv_names_the_debian_package(tmp_path, monkeypatch):
    monkeypatch.setattr(bootstrap, "_runs", lambda command: False)
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    with pytest.raises(Missing) as info:
        Environment(tmp_path / ".venv", None, None)._make_venv()
    assert info.value.fix == f"sudo apt install python3.{sys.version_info[1]}-venv"


def test_torch_without_a_wheel_says_what_to_type(venv, pip, monkeypatch):
    def fail(command):
        raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(bootstrap, "_check_call", fail)
    with pytest.raises(Missing, match=r"did not install torch 2\.15\.0 for Python 3\.12"):
        Environment(venv, None, None).make()


def test_full_disk_is_found_before_the_download(venv, monkeypatch, pip):
    monkeypatch.setattr(bootstrap, "_runs", lambda command: "show" not in command)
    usage = type("usage", (), {"free": 1 << 30})
    monkeypatch.setattr(bootstrap.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(Missing, match=r"1\.0 GB left"):
        Environment(venv, None, None).make()
    assert pip == []


def test_go_that_has_gone_is_provided_again(venv, pip, monkeypatch):
    Environment(venv, None, None).make()

    def none(venv=None):
        raise Missing("no go", "")

    monkeypatch.setattr(toolchain, "find_go", none)
    assert not Environment(venv, None, None).ready()


def test_too_old_torch_is_refused_before_anything_is_done(capsys):
    assert bootstrap.main(["--venv", "nowhere", "--torch", "2.9.1"]) == 1
    assert "2.11.0 and newer, not 2.9.1" in capsys.readouterr().err
    assert not (toolchain.ROOT / "nowhere").exists()


def test_old_python_is_told_so():
    # The file must parse there; what runs is up to the first import that is not of the old days.
    source = bootstrap.__file__
    code = (
        "import sys; sys.version_info = (3, 8, 1); import shutil; shutil.which = lambda n: None\n"
        f"exec(compile(open({source!r}).read(), 'bootstrap', 'exec'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "Python 3.10 or newer is needed" in done.stderr
