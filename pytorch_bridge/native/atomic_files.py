"""Writes files and folders that are complete or not there, whatever ends the process.

What is written has a name of its own, beside its place, until it is complete. Its writer keeps it
locked, and the system takes the lock away with the process. So the next writer knows what nobody
will complete, and removes it. The head of gotorch/internal/replace/replace.go says more: files have
the same names here as there, so each removes what the other leaves.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_DEAD_AFTER = 24 * 60 * 60  # seconds without a change, for what another machine has made
_MARKS = re.compile(r"([0-9a-f]{8})-[0-9a-f]{16}\.part")


def _machine() -> str:
    """Tells machines apart, and the times between two starts of one."""
    with contextlib.suppress(OSError):
        mark = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
        if re.fullmatch("[0-9a-f]{8}", mark):
            return mark
    return "00000000"


def _lock(fd: int) -> bool | None:
    """Whether fd is ours; None where the file system has no locks."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _opened(path: Path, flags: int) -> int | None:
    """A descriptor of `path` that is locked; None where another has taken it for dead."""
    fd = os.open(path, flags | os.O_CLOEXEC, 0o666)
    try:
        locked = _lock(fd)
        if locked is None or (locked and os.path.samestat(os.fstat(fd), os.lstat(path))):
            return fd
    except FileNotFoundError:
        pass
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    return None


def _made(folder: Path, prefix: str, make: Callable[[Path], int | None]) -> tuple[Path, int]:
    """A new name in a folder, and the descriptor that `make` returns for it."""
    for _ in range(100):
        path = folder / f"{prefix}{_machine()}-{secrets.token_hex(8)}.part"
        with contextlib.suppress(FileExistsError):
            fd = make(path)
            if fd is not None:
                return path, fd
    raise OSError(f"no file can be made in {folder}")


def _dead(folder: Path, prefix: str, is_kind: Callable[[int], bool]) -> Iterator[Path]:
    """What writers that have died left in a folder, each locked while it is looked at."""
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        if not name.startswith(prefix) or not (m := _MARKS.fullmatch(name, len(prefix))):
            continue
        path = folder / name
        try:
            found = os.lstat(path)
            if not is_kind(found.st_mode):
                continue
            if m[1] != _machine() and time.time() - found.st_mtime < _DEAD_AFTER:
                continue
            how = os.O_RDONLY if stat.S_ISDIR(found.st_mode) else os.O_RDWR
            fd = os.open(path, how | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            if _lock(fd):
                yield path
        finally:
            os.close(fd)


@contextlib.contextmanager
def file(target: Path, mode: int | None = None) -> Iterator[Path]:
    """The path of an empty file, which becomes `target` when the context ends without an error. Its
    permissions are `mode`, or those of the file that was there. A link is kept, and the file that
    it leads to replaced; a device or a pipe is written to as it is."""
    target = Path(os.path.realpath(target))
    with contextlib.suppress(FileNotFoundError):
        old = target.stat().st_mode
        if stat.S_ISDIR(old):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
        if not stat.S_ISREG(old):
            yield target
            return
        mode = old & 0o777 if mode is None else mode
    folder = target.parent
    for left in _dead(folder, "gotorch-", stat.S_ISREG):
        with contextlib.suppress(OSError):
            left.unlink()
    part, fd = _made(
        folder, "gotorch-", lambda path: _opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    )
    try:
        try:
            if mode is not None:  # before there is anything to read; who fills it opens it again
                os.fchmod(fd, mode | stat.S_IWUSR)
            yield part
            if mode is not None:
                os.fchmod(fd, mode)
            os.fsync(fd)
            part.replace(target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    finally:
        os.close(fd)
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder survive a crash; not every file system can."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


@contextlib.contextmanager
def folder_beside(target: Path, rescue: Callable[[Path], None]) -> Iterator[Path]:
    """An empty folder beside `target`, on the same file system, that is gone when the context ends.
    What one that died left is given to `rescue` before it is removed."""
    prefix = f".{target.name}."
    for left in _dead(target.parent, prefix, stat.S_ISDIR):
        rescue(left)
        shutil.rmtree(left, ignore_errors=True)

    def make(path: Path) -> int | None:
        path.mkdir()
        try:
            return _opened(path, os.O_RDONLY)
        except FileNotFoundError:  # it has been taken for dead
            return None

    part, fd = _made(target.parent, prefix, make)
    try:
        yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)
        os.close(fd)


def put_folder(new: Path, target: Path, aside: Path) -> None:
    """Gives the folder `new` the name `target`. The folder that has the name gets that of `new`, or
    of `aside` where the system cannot do both in one step; and keeps it where that fails."""
    if not target.exists():
        new.rename(target)
        return
    if _exchange(new, target):
        return
    try:
        target.rename(aside)
        new.rename(target)
    except BaseException:  # an interrupt as well: what is of value may be in it
        if aside.exists() and not target.exists():
            aside.rename(target)
        raise


def _exchange(a: Path, b: Path) -> bool:
    """Makes each of two folders the other, in one step that nobody can come between. False where
    the system has no such step."""
    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None)
    here, exchange = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux
    return renameat2 is not None and not renameat2(here, bytes(a), here, bytes(b), exchange)
