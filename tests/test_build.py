"""The build of libcgotorch.so: what is compiled again and what is not, on two small files."""

from __future__ import annotations

import ctypes
import subprocess
import threading
import time
from dataclasses import replace

import pytest

from pytorch_bridge.native import build, toolchain
from pytorch_bridge.native.artifacts import locked
from pytorch_bridge.native.build import Build, CompileError, Settings
from pytorch_bridge.native.toolchain import ROOT
from pytorch_bridge.testing.gotests import run_go


@pytest.fixture
def sources(tmp_path, monkeypatch):
    folder = tmp_path / "cgotorch"
    folder.mkdir()
    (folder / "answer.h").write_text("#define ANSWER 42\n")
    (folder / "one.cc").write_text(
        '#include "answer.h"\n#include <torch/version.h>\n'
        'extern "C" __attribute__((visibility("default"))) int cgotorch_answer() { return ANSWER; }\n'
    )
    (folder / "two.cc").write_text("int hidden() { return 1; }\n")
    monkeypatch.setattr(build, "SOURCES", folder)
    return folder


@pytest.fixture
def settings(tmp_path):
    torch, compiler = toolchain.find_torch(), toolchain.find_compiler()
    return Settings(torch, compiler, tmp_path / "out")


def compiled(settings, capsys):
    """Builds, and returns the names of the files that were compiled."""
    capsys.readouterr()
    Build(settings, jobs=2).run()
    lines = capsys.readouterr().out.splitlines()
    return sorted(line.split()[1] for line in lines)


def test_build_compiles_only_what_changed_in_content(sources, settings, capsys):
    assert compiled(settings, capsys) == ["one.cc", "two.cc"]
    assert compiled(settings, capsys) == []
    (sources / "one.cc").touch()
    assert compiled(settings, capsys) == []
    (sources / "answer.h").write_text("#define ANSWER 43\n")
    assert compiled(settings, capsys) == ["one.cc"]
    (sources / "two.cc").write_text("int hidden() { return 2; }\n")
    assert compiled(settings, capsys) == ["two.cc"]
    assert ctypes.CDLL(str(settings.library)).cgotorch_answer() == 43


def test_go_compiles_again_when_a_header_changes(sources, settings):
    package = sources.parent / "gotorch/internal/ctorch"
    package.mkdir(parents=True)
    (sources.parent / "go.mod").write_text("module example.org\n\ngo 1.26.0\n")
    (package / "answer.go").write_text(
        "package ctorch\n\n// #cgo CFLAGS: -I${SRCDIR}/../../../cgotorch\n"
        '// #include <answer.h>\nimport "C"\n\nfunc Answer() int { return C.ANSWER }\n'
    )
    Build(settings, jobs=2).run()
    assert run_go("build", "./gotorch/internal/ctorch", cwd=sources.parent).returncode == 0
    (sources / "answer.h").write_text("#define QUESTION 6\n")
    (sources / "one.cc").unlink()
    Build(settings, jobs=2).run()
    assert "ANSWER" in run_go("build", "./gotorch/internal/ctorch", cwd=sources.parent).stderr


def test_library_exports_only_what_is_marked(sources, settings):
    Build(settings, jobs=2).run()
    exported = subprocess.run(
        ["nm", "-D", "--defined-only", settings.library], capture_output=True, text=True
    ).stdout
    assert " cgotorch_answer\n" in exported
    assert "hidden" not in exported


def test_removed_source_leaves_the_library(sources, settings, capsys):
    (sources / "three.cc").write_text('extern "C" __attribute__((visibility("default"))) int x;')
    Build(settings, jobs=1).run()
    (sources / "three.cc").unlink()
    assert compiled(settings, capsys) == []
    assert not (settings.objects / "three.o").exists()


def test_other_flags_compile_again(sources, settings, capsys, monkeypatch):
    compiled(settings, capsys)
    flags = settings.compile_flags()
    monkeypatch.setattr(Settings, "compile_flags", lambda self: [*flags, "-DMORE"])
    assert compiled(settings, capsys) == ["one.cc", "two.cc"]


def test_other_flags_of_one_file_compile_it_again(sources, settings, capsys, monkeypatch):
    compiled(settings, capsys)
    plain = Settings.flags_for
    more = {"two.cc": ["-DMORE"]}
    monkeypatch.setattr(
        Settings,
        "flags_for",
        lambda self, source: [*plain(self, source), *more.get(source.name, [])],
    )
    assert compiled(settings, capsys) == ["two.cc"]


def test_a_sanitizer_leaves_out_generated_functions(settings):
    watched = replace(settings, sanitize="address")
    assert "-fsanitize=address" in watched.flags_for(ROOT / "cgotorch/errors.cc")
    assert "-fsanitize=address" not in watched.flags_for(ROOT / "cgotorch/ops_gen_0.cc")
    assert "-fsanitize=address" in watched.link_flags()


def test_compile_error_shows_message_and_command_and_keeps_the_library(sources, settings, capsys):
    compiled(settings, capsys)
    (sources / "one.cc").write_text("int broken( {}\n")
    with pytest.raises(CompileError, match=r"(?s)error: .*The command was:\n.*one\.cc"):
        Build(settings, jobs=2).run()
    assert ctypes.CDLL(str(settings.library)).cgotorch_answer() == 42


def test_undefined_symbol_is_found_when_linking(sources, settings):
    (sources / "two.cc").write_text("int nowhere(); int hidden() { return nowhere(); }\n")
    with pytest.raises(CompileError, match="nowhere"):
        Build(settings, jobs=2).run()
    assert not settings.facts.exists()


def test_killed_between_object_and_record_compiles_again(sources, settings, capsys):
    compiled(settings, capsys)
    (settings.objects / "one.json").write_text('{"tools": ')
    assert compiled(settings, capsys) == ["one.cc"]


def test_two_builds_at_once_take_turns(tmp_path, capsys):
    order = []

    def second():
        with locked(tmp_path / "lock", "build"):
            order.append("second")

    with locked(tmp_path / "lock", "build"):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.2)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    assert "Waiting for another build" in capsys.readouterr().out


def test_library_is_written_down_with_its_torch_and_compiler(sources, settings):
    import json

    import torch

    Build(settings, jobs=2).run()
    facts = json.loads(settings.facts.read_text())
    assert facts["torch"] == torch.__version__
    assert facts["compiler"] == settings.compiler.version
    pc = (settings.library.parent / "pkgconfig/cgotorch.pc").read_text()
    assert f"libdir={settings.library.parent}\n" in pc


def test_headers_compile_as_c99():
    code = '#include "cgotorch.h"\nint main(void) { return 0; }\n'
    done = subprocess.run(
        [
            *["gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"],
            *[f"-I{ROOT / 'cgotorch'}", "-x", "c", "-"],
        ],
        input=code,
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    assert done.returncode == 0


@pytest.mark.smoke
def test_a_library_that_is_up_to_date_runs_no_compiler(library, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "run", refuse)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    assert Build(library, jobs=1).run() == ""
