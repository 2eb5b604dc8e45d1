"""What an ELF file says of itself, read with pyelftools; and its run path, written in place.

Nothing is moved: a run path is written over the one that is there, which is longer. So no file
comes out otherwise than its linker has laid it out, as it may of tools that make room.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..errors import BundleError
from .toolchain import Missing, fix

_RUN_PATHS = {"DT_RPATH": 15, "DT_RUNPATH": 29}

# A name of a library as it stands in a C string of its own, maybe with a folder: "libcudnn_ops.so".
_NAME = re.compile(
    rb"(?<=\0)(?:[\x21-\x7e]*/)?([A-Za-z0-9_+-][A-Za-z0-9_.+-]*\.so(?:\.[0-9]+)*)(?=\0)"
)
_READ_ONLY = re.compile(r"\.l?ro?data\b|\.data\b")


class TooShort(BundleError):
    """There is no room for a run path where the old one is."""


@dataclass(frozen=True)
class Elf:
    """A program or a shared library."""

    path: Path
    machine: str
    """As pyelftools calls it: "EM_X86_64"."""
    bits: int
    interpreter: str
    """The loader that starts it: "/lib64/ld-linux-x86-64.so.2"; "" for a library."""
    soname: str
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    """DT_RPATH, which whatever is loaded on behalf of this file inherits; nothing where there is a
    DT_RUNPATH, as the loader has it."""
    runpath: tuple[str, ...]
    """DT_RUNPATH, which is for its own needs alone."""
    requires: dict[str, frozenset[str]]
    """The versions that it needs, by library: {"libc.so.6": {"GLIBC_2.34"}}."""
    provides: frozenset[str]
    """The versions that it defines."""

    @property
    def is_static(self) -> bool:
        return not self.needed and not self.interpreter

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What may be names of libraries that it loads while it runs: every C string in its data
        that is one. It is more than it loads, for names also stand in tables and in messages."""
        with (
            _refusing(self.path),
            self.path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as m,
        ):
            found: set[bytes] = set()
            for start, size in self._data(file):
                found.update(_NAME.findall(m[max(start - 1, 0) : start + size + 1]))
        return tuple(sorted(name.decode() for name in found))

    def _data(self, file: Any) -> list[tuple[int, int]]:
        elf = _opened(file)
        sections = [
            (s["sh_offset"], s["sh_size"])
            for s in elf.iter_sections()
            if s["sh_type"] == "SHT_PROGBITS" and _READ_ONLY.match(s.name)
        ]
        return sections or [(0, os.fstat(file.fileno()).st_size)]


def _opened(file: Any) -> Any:
    try:
        from elftools.elf.elffile import ELFFile
    except ImportError as err:
        raise Missing(
            "pyelftools is not installed.", fix("make setup", "pip install pyelftools")
        ) from err
    return ELFFile(file)


def is_elf(path: Path) -> bool:
    """Whether a file begins as one; nothing more is known of it then."""
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def is_loadable(path: Path, program: Path) -> bool:
    """Whether a file says of itself that it is a library or a program for the machine that
    `program` is for. Any other is data to it: an object file, or what another processor runs."""
    with path.open("rb") as file, program.open("rb") as other:
        mine, theirs = file.read(20), other.read(20)
    # The class and the order of bytes, the processor; and the kind: ET_EXEC or ET_DYN.
    same = mine[:6] == theirs[:6] and mine[18:] == theirs[18:]
    return same and int.from_bytes(mine[16:18], "little") in (2, 3)


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Makes a BundleError of whatever a damaged file makes of its reader."""
    try:
        yield
    except (BundleError, Missing):
        raise
    except Exception as err:
        if isinstance(err, OSError) and err.filename is not None:
            raise  # of opening it; of seeking where nothing can be there is no name
        raise BundleError(
            f"{path} is no ELF file, or damaged: {err or type(err).__name__}"
        ) from err


def read(path: Path) -> Elf:
    """What the file says; BundleError where it is no ELF file, or a damaged one."""
    with _refusing(path), path.open("rb") as file:
        return _read(path, _opened(file))


def _read(path: Path, elf: Any) -> Elf:
    interpreter, soname = "", ""
    needed: list[str] = []
    paths: dict[str, tuple[str, ...]] = {}
    for segment in elf.iter_segments():
        kind = segment["p_type"]
        if kind == "PT_INTERP":
            interpreter = segment.get_interp_name()
        elif kind == "PT_DYNAMIC":
            for tag in segment.iter_tags():
                name = tag.entry.d_tag
                if name == "DT_NEEDED":
                    needed.append(tag.needed)
                elif name == "DT_SONAME":
                    soname = tag.soname
                elif name in _RUN_PATHS:
                    text = tag.rpath if name == "DT_RPATH" else tag.runpath
                    paths[name] = tuple(filter(None, text.split(":")))
    requires: dict[str, frozenset[str]] = {}
    provides: set[str] = set()
    for section in elf.iter_sections():
        if section["sh_type"] == "SHT_GNU_verneed":
            for library, versions in section.iter_versions():
                requires[library.name] = frozenset(v.name for v in versions)
        elif section["sh_type"] == "SHT_GNU_verdef":
            for _, versions in section.iter_versions():
                provides.update(v.name for v in list(versions)[:1])  # the others are its parents
    runpath = paths.get("DT_RUNPATH", ())
    return Elf(
        path=path,
        machine=elf["e_machine"],
        bits=elf.elfclass,
        interpreter=interpreter,
        soname=soname,
        needed=tuple(needed),
        rpath=() if runpath else paths.get("DT_RPATH", ()),
        runpath=runpath,
        requires=requires,
        provides=frozenset(provides),
    )


def set_run_path(path: Path, run_path: str) -> bool:
    """Makes `run_path` the DT_RPATH of a file that has a DT_RPATH or a DT_RUNPATH, which must be as
    long; returns whether it has one.

    A DT_RPATH, because LD_LIBRARY_PATH brings in no other libtorch then, and because what is loaded
    on behalf of the file looks there as well.
    """
    with _refusing(path), path.open("r+b") as file:
        return _set_run_path(path, file, run_path.encode())


def _set_run_path(path: Path, file: Any, wanted: bytes) -> bool:
    elf = _opened(file)
    if elf.elfclass != 64 or not elf.little_endian:
        raise BundleError(
            f"{path} is for another kind of machine: 64 bits, little endian, are read"
        )
    dynamic = next(_dynamic(elf), None)
    if dynamic is None:
        return False
    tags = list(dynamic.iter_tags())
    found = [(i, t) for i, t in enumerate(tags) if t.entry.d_tag in _RUN_PATHS]
    if not found:
        return False
    at = {t.entry.d_tag: t.entry.d_val for t in tags}
    size = at["DT_STRSZ"]
    start = next(elf.address_offsets(at["DT_STRTAB"], size), None)
    if start is None:
        raise BundleError(f"{path} is no ELF file, or damaged: its table of strings is nowhere")
    file.seek(start)
    strings = file.read(size)
    shared = _names_used(elf, tags)
    for i, tag in found:
        offset = tag.entry.d_val
        end = strings.index(b"\0", offset)
        if len(wanted) > end - offset:
            raise TooShort(
                f"the run path of {path} is {strings[offset:end].decode(errors='replace')!r}, "
                f"which is too short to write {wanted.decode()!r} there; "
                "link it with a longer one: -Wl,-rpath,FOLDER"
            )
        # Linkers let a name that another ends in share its bytes.
        if any(offset <= name < end for name in shared):
            raise BundleError(f"the run path of {path} shares its bytes with another name")
        file.seek(start + offset)
        file.write(wanted + b"\0" * (end - offset - len(wanted)))
        file.seek(dynamic["p_offset"] + i * 16)
        file.write(struct.pack("<q", _RUN_PATHS["DT_RPATH"]))
    return True


def _dynamic(elf: Any) -> Iterator[Any]:
    return (s for s in elf.iter_segments() if s["p_type"] == "PT_DYNAMIC")


def drop_needed(path: Path, name: str) -> None:
    """Makes a file need another library that it needs already in the place of `name`."""
    with _refusing(path), path.open("r+b") as file:
        dynamic = next(_dynamic(_opened(file)))
        tags = list(dynamic.iter_tags())
        needs = {
            t.needed: (i, t.entry.d_val) for i, t in enumerate(tags) if t.entry.d_tag == "DT_NEEDED"
        }
        if name not in needs:
            return
        other = next((value for n, (_, value) in needs.items() if n != name), None)
        if other is None:
            raise BundleError(f"{path} needs {name} alone")
        file.seek(dynamic["p_offset"] + needs[name][0] * 16)
        file.write(struct.pack("<qQ", 1, other))


def _names_used(elf: Any, tags: list[Any]) -> set[int]:
    """Where in the table of strings the other names begin: of symbols, libraries and versions."""
    used = {t.entry.d_val for t in tags if t.entry.d_tag in ("DT_NEEDED", "DT_SONAME")}
    for section in elf.iter_sections():
        kind = section["sh_type"]
        if kind == "SHT_DYNSYM":
            used.update(symbol[0] for symbol in struct.iter_unpack("<IBBHQQ", section.data()))
        elif kind in ("SHT_GNU_verneed", "SHT_GNU_verdef"):
            for entry, parts in section.iter_versions():
                used.update(v for k, v in entry.entry.items() if k == "vn_file")
                used.update(
                    v for p in parts for k, v in p.entry.items() if k in ("vna_name", "vda_name")
                )
    return used
