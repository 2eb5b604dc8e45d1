"""A bundle as one file: a tar whose bytes follow from the bundle's alone."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ...errors import BundleError
from ...native import atomic_files
from . import progress
from .contents import walk

_ENDS = (".tar", ".tar.gz", ".tgz")


def check(target: Path) -> None:
    """BundleError where the name says nothing of the form, or a folder has it."""
    if not target.name.endswith(_ENDS):
        raise BundleError(f"--tar {target} does not end in .tar, .tar.gz or .tgz")
    if target.is_dir():
        raise BundleError(f"--tar {target} is a folder")


def write(folder: Path, target: Path, epoch: int) -> None:
    """Writes the folder, under its own name; the file is whole or not there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with (
        atomic_files.file(target, 0o644) as part,
        part.open("wb") as file,
        _packed(file, target.name) as out,
        tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        sizes = [path.stat().st_size for _, path in walk(folder) if path.is_file()]
        progress.step(f"writing {target.name}", sum(sizes))
        tar.addfile(_header(folder.name, folder, epoch))
        for name, path in walk(folder):
            header = _header(f"{folder.name}/{name}", path, epoch)
            if path.is_dir():
                tar.addfile(header)
            else:
                with path.open("rb") as content:
                    tar.addfile(header, _Counted(content))


class _Counted(io.RawIOBase):
    """A file whose bytes count as done when they are read."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file

    def read(self, size: int = -1, /) -> bytes:
        data = self.file.read(size)
        progress.add(len(data))
        return data


@contextmanager
def _packed(file: IO[bytes], name: str) -> Iterator[IO[bytes]]:
    if name.endswith(".tar"):
        yield file
        return
    # Without a name and a date, which would be others each time.
    with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=6, mtime=0) as packed:
        buffered = io.BufferedWriter(packed, 1 << 20)
        yield buffered
        buffered.flush()


def _header(name: str, path: Path, epoch: int) -> tarfile.TarInfo:
    found = path.lstat()
    header = tarfile.TarInfo(name)
    header.mode = found.st_mode & 0o777
    header.mtime = epoch
    if path.is_dir():
        header.type = tarfile.DIRTYPE
    else:
        header.size = found.st_size
    return header
