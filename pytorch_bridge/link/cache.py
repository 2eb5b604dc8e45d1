"""Compiled graphs on disk, found by what they are made from.

    <folder>/ab/<key>.c            the source, for the reader and the debugger
    <folder>/ab/<key>.json         which headers were read, the library made with them, its digest
    <folder>/ab/<name>.so          the library; the name is a digest of the key and those headers

or .pt2, where AOTInductor has made it.

The key is a digest of the source, of the compiler and its arguments, and of the versions that ops
and types give; no Python hash and no pickle is in it. A library comes into being by a rename, once
it is on the disk, and the record that names it by another, so whoever dies before leaves nothing
that is taken for whole. One process at a time compiles for one key; the system frees the lock of
one that dies.

To load a library is to run it. So a library that is not what its record says, because a disk was
full or somebody wrote into it, is made again; and a folder in which other users of the machine can
write is refused.
"""

from __future__ import annotations

import atexit
import fcntl
import itertools
import os
import shlex
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from ..errors import CompileError
from ..native import toolchain
from ..native.artifacts import (
    Record,
    dependencies,
    digest,
    digest_file,
    digest_files,
    locked,
    write,
)


class Maker(Protocol):
    """What makes a library of a source: `link.compile.Recipe`, for one."""

    @property
    def source_suffix(self) -> str: ...

    @property
    def library_suffix(self) -> str: ...

    def run(self, source: Path, library: Path, depends: Path) -> None:
        """Makes the library, and writes which files it was made from, as `cc -MF` does.
        CompileError where that fails."""


def folder() -> Path:
    """$GOTORCH_CACHE, or cache/graphs in the folder of everything built."""
    given = toolchain.variable("GOTORCH_CACHE")
    return Path(given) if given else toolchain.build_dir() / "cache/graphs"


class Cache:
    """The libraries in one folder. Any number of threads and processes may use it."""

    def __init__(self, root: Path, variable: str = "GOTORCH_CACHE") -> None:
        self.root = root
        self.variable = variable  # of the environment, which says where the folder is
        self.compiled = 0  # by this object
        self._known: dict[str, tuple[Path, str]] = {}  # by key: the library and its digest

    def library(self, source: str, identity: Sequence[str], build: Maker) -> Path:
        """The library for a source; `identity` is what makes the key. It is compiled unless that
        was done. CompileError where the compiler refuses; then nothing is kept but the source."""
        _check_name(self.root, self.variable)
        key = digest(*identity)
        place = self.root / key[:2]
        record = place / f"{key}.json"
        _check_owner(self.root)
        _check_owner(place)
        found = self._known.get(key)
        if found is None or not _whole(*found):
            found = _read(record)
        if found is None:
            with self._writing(place), locked(place / f"{key}.lock"):
                found = _read(record)  # by whoever held the lock
                if found is None:
                    found = self._compile(place, key, source, build)
        self._known[key] = found
        return found[0]

    @contextmanager
    def _writing(self, place: Path) -> Iterator[None]:
        """Makes the folders; errors of the disk are CompileErrors."""
        try:
            self.root.mkdir(mode=0o755, parents=True, exist_ok=True)
            place.mkdir(mode=0o755, exist_ok=True)
            yield
        except OSError as err:
            raise _unwritable(self.root, err, self.variable) from err

    def _compile(self, place: Path, key: str, source: str, build: Maker) -> tuple[Path, str]:
        for left in place.glob(f"{key}.part-*"):  # by one that was killed: we hold its lock
            left.unlink(missing_ok=True)
        text = place / f"{key}{build.source_suffix}"
        write(text, source, 0o644)
        part = place / f"{key}.part-{os.getpid()}{build.library_suffix}"
        depends = part.with_suffix(".d")
        try:
            build.run(text, part, depends)
            headers = digest_files(sorted({*dependencies(depends)} - {str(text)}))
            name = digest(key, *itertools.chain(*headers.items()))[:40] + build.library_suffix
            os.chmod(part, 0o755)  # whatever the umask lets others do
            with part.open("rb") as file:
                os.fsync(file.fileno())
            made = digest_file(str(part))
            part.replace(place / name)
        finally:
            part.unlink(missing_ok=True)
            depends.unlink(missing_ok=True)
        self.compiled += 1
        record = Record(place / f"{key}.json")
        record.write(key, headers, 0o644, library=name, digest=made)
        return place / name, made


def _whole(library: Path, made: str) -> bool:
    """Whether a library is what it was when it was made, and of no use to others."""
    return digest_file(str(library)) == made != "" and not _others_write(library)


def _read(record: Path) -> tuple[Path, str] | None:
    """The library that a record names and its digest, if it is whole and its headers are as they
    were."""
    try:
        if _others_write(record):
            return None
        entry = Record(record).current(record.stem)
        if entry is None:
            return None
        library, made = record.with_name(entry["library"]), entry["digest"]
        return (library, made) if _whole(library, made) else None
    except (OSError, KeyError, TypeError):
        return None


def _trusted() -> tuple[int, ...]:
    """The users who could change this program anyway."""
    return (os.geteuid(), 0, os.stat(__file__).st_uid)


def _others_write(path: Path) -> bool:
    """Whether users may write a file, or into a folder, who could not change this program anyway:
    such as are neither this user, whose own group counts as the user, nor root nor the owner of
    this file."""
    st = path.stat()
    group = stat.S_IWGRP if st.st_gid != os.getegid() else 0
    return st.st_uid not in _trusted() or bool(st.st_mode & (stat.S_IWOTH | group))


def _unwritable(folder: Path, err: OSError, variable: str) -> CompileError:
    return CompileError(
        f"the cache of compiled graphs, {folder}, cannot be written: {err}. Make room there, or "
        f"set {variable} to another folder."
    )


def _check_name(folder: Path, variable: str) -> None:
    """CompileError where the compiled code cannot be told where its library is."""
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise CompileError(
            f"the cache of compiled graphs is in {os.fsencode(folder)!r}, which is not UTF-8: set "
            f"{variable} to a folder with another name."
        ) from None


def _check_owner(folder: Path) -> None:
    """CompileError where others could put a library of theirs into a folder."""
    try:
        st = folder.stat()
        refused = _others_write(folder)
    except OSError:  # it is not there yet, or will be seen not to be writable
        return
    if not refused:
        return
    if st.st_uid not in _trusted():
        raise CompileError(
            f"the cache of compiled graphs is in {folder}, which belongs to another user of this "
            f"machine, number {st.st_uid}, and what is in it is run. Set GOTORCH_CACHE to a folder "
            "of your own."
        )
    raise CompileError(
        f"the cache of compiled graphs is in {folder}, where other users of this machine can "
        f"write ({stat.filemode(st.st_mode)}), and what is in it is run. Type chmod "
        f"go-w {shlex.quote(str(folder))} if all in it is yours, or set GOTORCH_CACHE to a "
        "folder of your own."
    )


_caches: dict[Path, Cache] = {}
_own: dict[int, Path] = {}  # by process: one that was forked has none yet
_OWN = "pytorch_bridge-"


def cache() -> Cache:
    """The cache that processes share."""
    return _caches.setdefault(folder(), Cache(folder()))


def own_cache() -> Cache:
    """A cache for this process alone, which ends with it. CompileError where there can be none."""
    pid = os.getpid()
    if pid not in _own:
        try:
            parent = Path(tempfile.gettempdir())
        except OSError as err:  # none of those that it tries
            raise _unwritable(Path(toolchain.variable("TMPDIR") or "/tmp"), err, "TMPDIR") from err
        _sweep(parent)
        made = _made(parent)
        if _own.setdefault(pid, made) == made:
            atexit.register(_end, pid)
        else:  # by another thread
            shutil.rmtree(made, ignore_errors=True)
    return _caches.setdefault(_own[pid], Cache(_own[pid], "TMPDIR"))


def _made(parent: Path) -> Path:
    """A new folder, locked by this process: the system frees the lock when it ends, however that
    comes."""
    try:
        while True:
            made = Path(tempfile.mkdtemp(prefix=_OWN, dir=parent))
            try:
                handle = os.open(made, os.O_RDONLY)
            except FileNotFoundError:  # swept: we were stopped for a minute
                continue
            try:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:  # it is being swept
                os.close(handle)
                continue
            except OSError:  # a file system without locks, where nobody sweeps either
                return made
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), os.stat(made)):
                    return made
            os.close(handle)
    except OSError as err:
        raise _unwritable(parent, err, "TMPDIR") from err


def _end(pid: int) -> None:
    if os.getpid() == pid:
        shutil.rmtree(_own[pid], ignore_errors=True)


def _sweep(parent: Path) -> None:
    """Removes the caches of processes that ended without removing them: which were killed, or which
    ended by os._exit, as those of multiprocessing and pytest-xdist do. Others' are not looked into,
    which root could: there may be anything in them."""
    with suppress(OSError):
        for left in parent.glob(f"{_OWN}*"):
            with suppress(OSError):  # another user's, a file, or gone by now
                handle = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                try:
                    st = os.fstat(handle)
                    # A new one is not locked yet.
                    if st.st_uid == os.geteuid() and time.time() - st.st_mtime > 60:
                        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        shutil.rmtree(left, ignore_errors=True)
                finally:
                    os.close(handle)
