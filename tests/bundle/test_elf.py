"""ELF files are read as binutils read them, and their run paths are written in place."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from linking import run

from pytorch_bridge.errors import BundleError
from pytorch_bridge.native import elf


def dynamic(path: Path) -> list[tuple[str, str]]:
    """What readelf says: [("NEEDED", "libc.so.6"), ...]."""
    text = run("readelf", "-dW", path)
    return re.findall(r"\((NEEDED|SONAME|RPATH|RUNPATH)\).*\[(.*)\]", text)


@pytest.mark.parametrize("path", ["/bin/sh", "/usr/bin/env", "/usr/bin/gcc"])
def test_it_reads_what_readelf_reads(path):
    read, said = elf.read(Path(path)), dynamic(Path(path))
    assert list(read.needed) == [name for kind, name in said if kind == "NEEDED"]
    interpreter = re.search(r"interpreter: (.*)\]", run("readelf", "-lW", path))
    assert read.interpreter == interpreter[1]
    versions = set(re.findall(r"Name: (GLIBC_\S+)", run("readelf", "-VW", path)))
    assert set().union(*read.requires.values()) == versions


def test_a_run_path_becomes_another_that_all_inherit(linker, tmp_path):
    there = tmp_path / "a folder with a long name" / "lib"
    linker.library(there / "liba.so", ["libb.so"])
    linker.library(there / "libb.so")
    program = linker.program(tmp_path / "app", ["liba.so"], runpath=str(there))
    before = program.stat().st_size
    assert subprocess.run([program], check=False).returncode != 0  # a DT_RUNPATH is not for libb.so
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    shutil.copy(program, moved)
    shutil.move(there, moved / "lib")
    assert elf.set_run_path(moved / "app", "$ORIGIN/lib")
    assert subprocess.run([moved / "app"], check=False).returncode == 0
    assert (moved / "app").stat().st_size == before
    assert ("RPATH", "$ORIGIN/lib") in dynamic(moved / "app")
    assert str(tmp_path).encode() not in (moved / "app").read_bytes()


def test_a_library_without_a_run_path_stays_as_it_is(linker, tmp_path):
    path = linker.library(tmp_path / "liba.so")
    before = path.read_bytes()
    assert not elf.set_run_path(path, "$ORIGIN")
    assert path.read_bytes() == before


def test_a_run_path_that_is_too_short_is_refused(linker, tmp_path):
    path = linker.library(tmp_path / "liba.so", rpath="/short")
    before = path.read_bytes()
    with pytest.raises(
        BundleError, match=r"is '/short', which is too short to write '\$ORIGIN' there"
    ):
        elf.set_run_path(path, "$ORIGIN")
    assert path.read_bytes() == before


def test_a_run_path_that_shares_its_bytes_is_refused(tmp_path):
    """The linker keeps a symbol whose name the run path ends in within the run path."""
    path = tmp_path / "liba.so"
    code = "int tail_of_it(void) { return 1; }\n"
    run(
        "gcc",
        "-shared",
        "-fPIC",
        "-x",
        "c",
        "-",
        "-o",
        path,
        "-Wl,-rpath,/some/folder/tail_of_it",
        input=code,
    )
    before = path.read_bytes()
    assert before.count(b"tail_of_it\0") == 2  # in .dynstr once, and in .strtab
    with pytest.raises(BundleError, match="shares its bytes with another name"):
        elf.set_run_path(path, "$ORIGIN")
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\x7fELF",
        b"#!/bin/sh\n",
        b"\x7fELF\x02\x01\x01" + bytes(9),
        b"\x7fELF" + b"\xff" * 200,
    ],
)
def test_what_is_no_elf_file_is_refused(tmp_path, text):
    path = tmp_path / "file"
    path.write_bytes(text)
    for read in (elf.read, lambda p: elf.set_run_path(p, "$ORIGIN")):
        with pytest.raises(BundleError, match="is no ELF file, or damaged"):
            read(path)


def test_a_damaged_file_is_an_error_or_read_and_nothing_else(linker, tmp_path):
    """Bytes of its head and its tables are changed at random, and it ends anywhere."""
    whole = linker.library(
        tmp_path / "liba.so", ["libb.so"], rpath="/a/long/folder", text=["libplug.so"]
    ).read_bytes()
    path = tmp_path / "damaged.so"
    draw = random.Random(0)
    refused = 0
    for _ in range(4000 if os.environ.get("CONFORMANCE") == "full" else 150):
        data = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            at = draw.choice(
                [draw.randrange(64), draw.randrange(len(data)), draw.randrange(64, 64 + 56 * 6)]
            )
            data[at] = draw.choice([0, 0xFF, draw.randrange(256)])
        if draw.random() < 0.3:
            del data[draw.randrange(len(data)) :]
        path.write_bytes(data)
        try:
            assert elf.read(path).names is not None
            elf.set_run_path(path, "$ORIGIN")
        except BundleError:
            refused += 1
    assert refused > 20
