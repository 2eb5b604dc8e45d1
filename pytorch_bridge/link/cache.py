"""Compiled graphs on disk, found by what they are made from.

    <folder>/ab/<key>.c            the source, for the reader and the debugger
    <folder>/ab/<key>.json         which headers were read, and the library made with them
    <folder>/ab/<name>.so          the library; the name is a digest of the key and those headers

or .pt2, where AOTInductor has made it.

The key is a digest of the source, of the compiler and its arguments, and of the versions that ops
and types give; no Python hash and no pickle is in it. A library comes into being by a rename, and
the record that names it by another, so whoever dies before leaves nothing that is taken for whole.
One process at a time compiles for one key; the system frees the lock of one that dies.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from .. import toolchain
from ..errors import CompileError


class Maker(Protocol):
    """What makes a library of a source: `link.compile.Build`, for one."""

    @property
    def source_suffix(self) -> str: ...

    @property
    def library_suffix(self) -> str: ...

    def run(self, source: Path, library: Path, depends: Path) -> None:
        """Makes the library, and writes which files it was made from, as `cc -MF` does.
        CompileError where that fails."""


def digest(*parts: str | bytes) -> str:
    """A digest of a list of texts, which no other list has."""
    joined = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        joined.update(b"%d:" % len(data) + data)
    return joined.hexdigest()


_digests: dict[tuple[str, int, int], str] = {}


def digest_file(path: str) -> str:
    """A file's digest, "" where it is gone. Read once per process while its date stays."""
    try:
        stat = os.stat(path)
        known = (path, stat.st_mtime_ns, stat.st_size)
        if known not in _digests:
            _digests[known] = digest(Path(path).read_bytes())
        return _digests[known]
    except OSError:
        return ""


def folder() -> Path:
    """$GOTORCH_CACHE, or cache/graphs in the folder of everything built."""
    given = os.environ.get("GOTORCH_CACHE")
    return Path(given) if given else toolchain.build_dir() / "cache/graphs"


class Cache:
    """The libraries in one folder. Any number of threads and processes may use it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.compiled = 0  # by this object
        self._known: dict[str, Path] = {}

    def library(self, source: str, identity: Sequence[str], build: Maker) -> Path:
        """The library for a source; `identity` is what makes the key. It is compiled unless that
        was done. CompileError where the compiler refuses; then nothing is kept but the source."""
        key = digest(*identity)
        place = self.root / key[:2]
        record = place / f"{key}.json"
        found = self._known.get(key) or _read(record)
        if found is None:
            with self._locked(place / f"{key}.lock"):
                found = _read(record)  # by whoever held the lock
                if found is None:
                    found = self._compile(place, key, source, build)
        self._known[key] = found
        return found

    @contextmanager
    def _locked(self, path: Path) -> Iterator[None]:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("w")
        except OSError as err:
            raise CompileError(
                f"the cache of compiled graphs, {self.root}, cannot be written: {err}. "
                "Set GOTORCH_CACHE to another folder."
            ) from err
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _compile(self, place: Path, key: str, source: str, build: Maker) -> Path:
        for left in place.glob(f"{key}.part-*"):  # by one that was killed: we hold its lock
            left.unlink(missing_ok=True)
        text = place / f"{key}{build.source_suffix}"
        _write(text, source)
        part = place / f"{key}.part-{os.getpid()}{build.library_suffix}"
        depends = part.with_suffix(".d")
        try:
            build.run(text, part, depends)
            words = shlex.split(depends.read_text().replace("\\\n", " "))
            headers = sorted({w for w in words if not w.endswith(":")} - {str(text)})
            files = {path: digest_file(path) for path in headers}
            name = digest(key, json.dumps(files))[:40] + build.library_suffix
            part.replace(place / name)
        finally:
            part.unlink(missing_ok=True)
            depends.unlink(missing_ok=True)
        self.compiled += 1
        _write(place / f"{key}.json", json.dumps({"library": name, "headers": files}, indent=1))
        return place / name


def _read(record: Path) -> Path | None:
    """The library that a record names, if it is there and its headers are as they were."""
    try:
        entry = json.loads(record.read_bytes())
        library = record.with_name(entry["library"])
        same = all(digest_file(path) == d for path, d in entry["headers"].items())
        return library if same and library.exists() else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _write(path: Path, text: str) -> None:
    """Writes a file that is whole or not there."""
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=f"{path.stem}.part-")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.replace(part, path)
    except BaseException:
        os.unlink(part)
        raise


_caches: dict[Path, Cache] = {}
_own: dict[int, Path] = {}  # by process: one that was forked has none yet


def cache() -> Cache:
    """The cache that processes share."""
    return _caches.setdefault(folder(), Cache(folder()))


def own_cache() -> Cache:
    """A cache for this process alone, which ends with it."""
    pid = os.getpid()
    if pid not in _own:
        _own[pid] = Path(tempfile.mkdtemp(prefix="pytorch_bridge-"))
        atexit.register(_end, pid)
    return _caches.setdefault(_own[pid], Cache(_own[pid]))


def _end(pid: int) -> None:
    if os.getpid() == pid:
        shutil.rmtree(_own[pid], ignore_errors=True)
