"""What is made of other files, and kept until those change in content; dates do not matter.

A thing that was made has a record beside it: by what it was made (a digest of the tools and their
arguments), and the digests of the files that it was made of. Records appear by a rename once all
else is there, so whoever is killed before leaves nothing that is taken for whole. Set-up uses this
too: there is nothing but the standard library here.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shlex
import stat
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import CompileError
from . import atomic_files

_MESSAGE_LINES = 40  # of one compiler's message; the first ones say what is wrong


def digest(*parts: str | bytes) -> str:
    """A digest of a list of texts, which no other list has."""
    joined = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        joined.update(b"%d:" % len(data) + data)
    return joined.hexdigest()


_digests: dict[tuple[str | int, ...], str] = {}


def digest_file(path: str | Path) -> str:
    """A file's digest, "" where it is gone. Read once per process while its dates stay."""
    try:
        st = os.stat(path)
        known = (str(path), st.st_ino, st.st_size, st.st_mtime_ns, st.st_ctime_ns)
        if known not in _digests:
            _digests[known] = digest(Path(path).read_bytes())
        return _digests[known]
    except OSError:
        return ""


def digest_files(paths: Iterable[str | Path]) -> dict[str, str]:
    """The digests by path."""
    return {str(path): digest_file(path) for path in paths}


def dependencies(makefile: Path) -> list[str]:
    """The prerequisites in a dependency file that the compiler wrote for make, where it escapes
    spaces, # and $, and nothing else."""
    text = os.fsdecode(makefile.read_bytes()).replace("\\\n", " ").partition(":")[2]
    words = re.findall(r"(?:\\+[ \t]|\S)+", text)
    unescaped = [re.sub(r"(\\+)([ \t])", lambda m: m[1][: len(m[1]) // 2] + m[2], w) for w in words]
    return [w.replace("\\#", "#").replace("$$", "$") for w in unescaped]


def write(path: Path, text: str, mode: int | None = None) -> None:
    """Writes a file that is whole or not there, and on the disk, unless it says so already; with
    these permissions, where they are given."""
    with suppress(OSError, ValueError):
        if path.read_text(encoding="utf-8") == text and mode in (None, _mode(path)):
            return
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_files.file(path, mode) as part:
        part.write_text(text, encoding="utf-8")


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@dataclass(frozen=True)
class Record:
    """The file that says what another was made of."""

    path: Path

    def read(self) -> dict[str, Any]:
        """What it says; nothing where it is not there, or no record."""
        try:
            found = json.loads(self.path.read_bytes())
        except (OSError, ValueError, RecursionError):
            found = None
        return found if isinstance(found, dict) else {}

    def current(self, by: str, files: Iterable[str | Path] | None = None) -> dict[str, Any] | None:
        """What it says, if it would be made by the same of the same: of `files`, or of those that
        are in the record. None otherwise."""
        found = self.read()
        known = found.get("files")
        if found.get("by") != by or not isinstance(known, dict):
            return None
        return found if digest_files(known if files is None else files) == known else None

    def write(
        self, by: str, files: Mapping[str, str], mode: int | None = None, **facts: Any
    ) -> None:
        """Records it, once all is there; `files` are digests from before it was made, so that what
        is edited meanwhile is made again."""
        text = json.dumps({"by": by, "files": files, **facts}, indent=1)
        write(self.path, f"{text}\n", mode)

    def remove(self) -> None:
        """Whoever is killed from here on has none."""
        self.path.unlink(missing_ok=True)


@contextmanager
def locked(path: Path, waiting_for: str = "") -> Iterator[None]:
    """Holds the lock file `path`, so that two who make the same take turns. Whoever has to wait
    says so, where there are words for it.

    The system releases it when its holder dies, however that happens.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if waiting_for:
                print(f"Waiting for another {waiting_for} to end ...", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:  # a process that was forked meanwhile has the file open as well
            fcntl.flock(file, fcntl.LOCK_UN)


def run_compiler(command: Sequence[str], whole: bool = False) -> str:
    """Runs a compiler or linker, and returns what it says: the first lines, unless `whole`.
    CompileError, with the message and the command, where it refuses."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    except OSError as err:
        raise CompileError(f"the compiler {command[0]} does not run: {err}") from err
    lines = (done.stdout + done.stderr).strip().splitlines()
    if len(lines) > _MESSAGE_LINES and not whole:
        lines[_MESSAGE_LINES:] = [f"... and {len(lines) - _MESSAGE_LINES} lines more"]
    if done.returncode != 0:
        said = "\n".join(["the compiler failed:", *lines, "The command was:"])
        raise CompileError(f"{said}\n  {shlex.join(command)}")
    return "\n".join(lines)
