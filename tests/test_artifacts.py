"""What is known by the content of what it was made of."""

from __future__ import annotations

import os
import stat
import sys

import pytest

from pytorch_bridge.errors import CompileError
from pytorch_bridge.native.artifacts import Record, digest, digest_files, run_compiler, write


def test_a_digest_is_of_a_list():
    lists = [("a", "b"), ("ab",), ("a", "b", ""), ("", "a", "b"), ("1:a", "b"), ()]
    assert len({digest(*parts) for parts in lists}) == len(lists)
    assert digest("ä") == digest("ä".encode())


def test_a_record_holds_while_tools_and_files_are_the_same(tmp_path):
    files = [tmp_path / name for name in ("a.c", "a.h")]
    for file in files:
        file.write_text("int a;")
    record = Record(tmp_path / "a.json")
    assert record.current("cc 1") is None
    record.write("cc 1", digest_files(files), seconds=2)
    assert record.current("cc 1")["seconds"] == 2
    assert record.current("cc 1", files) == record.read()
    assert record.current("cc 2") is None
    assert record.current("cc 1", files[:1]) is None  # one more was read then
    os.utime(files[0])
    assert record.current("cc 1") is not None
    files[1].write_text("long b;")
    assert record.current("cc 1") is None
    files[1].write_text("int a;")
    assert record.current("cc 1") is not None
    files[1].unlink()
    assert record.current("cc 1") is None
    record.remove()
    record.remove()
    assert record.read() == {}


@pytest.mark.parametrize(
    "text", ["", "[]", '{"by": "cc"}', '{"by": "cc", "files": [1]}', "[" * 9999]
)
def test_what_is_no_record_holds_for_nothing(tmp_path, text):
    record = Record(tmp_path / "a.json")
    record.path.write_text(text)
    assert record.current("cc") is None
    assert record.current("cc", []) is None


def test_a_file_that_says_so_already_is_left_alone(tmp_path):
    path = tmp_path / "new/folder/a"
    write(path, "größe")
    first = path.stat().st_ino
    write(path, "größe")
    assert path.stat().st_ino == first
    path.chmod(0o666)
    write(path, "größe", 0o644)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    write(path, "other")
    assert path.read_text() == "other"
    assert os.listdir(path.parent) == ["a"]


def test_a_compilers_message_is_cut_and_its_command_shown():
    says = "import sys; print(*range(100), sep='\\n'); sys.exit({})"
    command = [sys.executable, "-c", says.format(0)]
    assert run_compiler(command).splitlines()[-2:] == ["39", "... and 60 lines more"]
    assert run_compiler(command, whole=True).splitlines() == [str(i) for i in range(100)]
    with pytest.raises(
        CompileError, match=r"(?s)failed:\n0\n.*60 lines more\nThe command was:\n  .*-c "
    ):
        run_compiler([sys.executable, "-c", says.format(1)])
    with pytest.raises(CompileError, match=r"the compiler /no/cc does not run: .*No such file"):
        run_compiler(["/no/cc"])
