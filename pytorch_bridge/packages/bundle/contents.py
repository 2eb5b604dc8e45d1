"""The files of a bundle: what goes where, copied with the same permissions and dates whoever
copies."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from ...errors import BundleError
from ...native import toolchain
from . import progress

_BLOCK = 1 << 20

LIBRARIES, LICENCES, MANIFEST, SUMS, SBOM = (
    "lib",
    "licenses",
    "bundle.json",
    "SHA256SUMS",
    "sbom.spdx.json",
)
TORCH_VERSION = "build-version"
"""Beside the folder of its libraries, as in an archive of libtorch: gotorch.TorchVersion reads
it."""

OWN = frozenset({LIBRARIES, LICENCES, MANIFEST, SUMS, SBOM, TORCH_VERSION})


@dataclass(frozen=True)
class File:
    """A file on its way into the bundle."""

    source: Path | bytes
    executable: bool = False


@dataclass
class Contents:
    """What a bundle is made of, by names within it, with / between folders."""

    files: dict[str, File] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    """Those that may be empty; the others follow from the files."""

    def add(self, name: str, file: File) -> None:
        """BundleError where something else has the name, or one that only a folder can have."""
        try:
            name.encode()
        except UnicodeEncodeError as err:
            raise BundleError(
                f"{os.fsencode(name)!r} is no name in UTF-8; give the file another"
            ) from err
        before = self.files.get(name)
        if before is not None and before != file:
            raise BundleError(f"{name} would be two files: {_source(before)} and {_source(file)}")
        parents = [p.as_posix() for p in PurePosixPath(name).parents][:-1]
        for parent in parents:
            if parent in self.files:
                raise BundleError(
                    f"{parent} would be a file, {_source(self.files[parent])}, "
                    f"and a folder with {name}"
                )
        if name in self.folders:
            raise BundleError(f"{name} would be a folder and a file, {_source(file)}")
        self.folders.update(parents)
        self.files[name] = file

    def write(self, folder: Path) -> None:
        """Writes all of it into a folder that is empty."""
        for name in sorted(self.folders):
            (folder / name).mkdir(parents=True, exist_ok=True)
        sources = [f.source for f in self.files.values() if isinstance(f.source, Path)]
        progress.step("copying", sum(path.stat().st_size for path in sources))
        for name, file in sorted(self.files.items()):
            put(folder, name, file)


def _source(file: File) -> str:
    return "what bundle writes" if isinstance(file.source, bytes) else str(file.source)


def put(folder: Path, name: str, file: File) -> Path:
    """Writes one file and returns where; its permissions are those of the umask 022."""
    path = folder / name
    if isinstance(file.source, bytes):
        path.write_bytes(file.source)
    else:
        with file.source.open("rb") as source, path.open("wb") as out:
            while block := source.read(_BLOCK):
                out.write(block)
                progress.add(len(block))
    path.chmod(0o755 if file.executable else 0o644)
    return path


def walk(folder: Path) -> Iterator[tuple[str, Path]]:
    """All that is in a folder, folders too, in the order of the names' bytes."""
    found = []
    for top, folders, names in os.walk(folder):
        found += [Path(top, name) for name in folders + names]
    named = [(path.relative_to(folder).as_posix(), path) for path in found]
    yield from sorted(named, key=lambda pair: os.fsencode(pair[0]))


def set_dates(folder: Path, epoch: int) -> None:
    """Gives all of it the same date, and folders their permissions."""
    for _, path in [*walk(folder), ("", folder)]:
        if path.is_dir():
            path.chmod(0o755)
        os.utime(path, (epoch, epoch))


def epoch() -> int:
    """The date of what is written: SOURCE_DATE_EPOCH, or 0."""
    text = (toolchain.variable("SOURCE_DATE_EPOCH") or "0").strip()
    if not text.isdecimal() or int(text) >= 1 << 33:  # what fits a tar's header
        raise BundleError(
            f"SOURCE_DATE_EPOCH={text} is no number of seconds since 1970; "
            "git log -1 --format=%ct prints one"
        )
    return int(text)


def digest(path: Path, algorithm: str = "sha256") -> str:
    """The digest of a file, in hexadecimal."""
    found = hashlib.new(algorithm)
    with path.open("rb") as file:  # Python 3.10 has no hashlib.file_digest
        while part := file.read(_BLOCK):
            found.update(part)
            progress.add(len(part))
    return found.hexdigest()


def sums(folder: Path, algorithm: str = "sha256") -> dict[str, str]:
    """The digests of the files in a folder."""
    files = [(name, path) for name, path in walk(folder) if path.is_file()]
    progress.step("computing checksums", sum(path.stat().st_size for _, path in files))
    return {name: digest(path, algorithm) for name, path in files}


def sums_text(digests: dict[str, str]) -> str:
    """Lines for sha256sum -c, with names escaped as it escapes them."""
    lines = []
    for name, digest in digests.items():
        escaped = name.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
        lines.append(f"{'' if escaped == name else chr(92)}{digest}  {escaped}\n")
    return "".join(lines)


_ESCAPED = {"\\\\": "\\", "\\n": "\n", "\\r": "\r"}


def listed(text: str) -> set[str]:
    """The names in lines as `sums_text` writes them."""
    found = set()
    for line in text.split("\n"):
        name = line.lstrip("\\")[66:]
        if line.startswith("\\"):
            name = re.sub(r"\\[\\nr]", lambda m: _ESCAPED[m[0]], name)
        found.add(name)
    return found


# Included files -----------------------------------------------------------------------------------


def included(text: str | os.PathLike[str]) -> tuple[Path, str]:
    """What `PATH` or `PATH=DEST` names: the file or folder, and its name in the bundle.
    `PATH=DEST/` puts it into the folder DEST."""
    text = os.fspath(text)
    path, dest = Path(text), ""
    if not os.path.lexists(path) and "=" in text:
        before, _, dest = text.rpartition("=")
        path = Path(before)
        if not dest:
            raise BundleError(f"--include {text} names no place after the =")
    if not path.exists():
        broken = "is a link that leads nowhere" if path.is_symlink() else "does not exist"
        raise BundleError(f"{path}, which is to be included, {broken}")
    own = Path(os.path.abspath(path)).name
    if not dest:
        dest = own
    elif dest.endswith("/"):
        dest += own
    parts = PurePosixPath(dest).parts
    if not parts or dest.startswith("/") or ".." in parts or "\0" in dest:
        raise BundleError(
            f"--include {text} would be put at {dest or '/'}, which is not within the bundle"
        )
    return path, "/".join(parts)


def include(contents: Contents, path: Path, dest: str, out: Path) -> None:
    """Adds a file, or all of a folder. Links are followed, so that a bundle has none; what is
    neither file nor folder is refused, and so is a folder that the bundle would be written into."""
    if dest.split("/")[0] in OWN:
        raise BundleError(
            f"{path} cannot be put at {dest}: the name is bundle's own; say --include {path}=OTHER"
        )
    real = Path(os.path.realpath(path))
    if real == out or real in out.parents:
        raise BundleError(
            f"{path} has the bundle itself in it, {out}; include its parts, "
            "or write the bundle elsewhere"
        )
    _include(contents, path, dest, (), out)


def _include(contents: Contents, path: Path, dest: str, above: tuple[str, ...], out: Path) -> None:
    real = os.path.realpath(path)
    try:
        kind = path.stat().st_mode
    except OSError as err:  # a link that leads nowhere, or round in circles
        raise BundleError(
            f"{path}, which is to be included, cannot be read: {err.strerror}"
        ) from err
    if stat.S_ISDIR(kind):
        if real in above or Path(real) == out or Path(real) in out.parents:
            raise BundleError(f"{path} is a link to a folder that it is in")
        contents.folders.add(dest)
        if dest in contents.files:
            raise BundleError(
                f"{dest} would be a file, {_source(contents.files[dest])}, and the folder {path}"
            )
        try:
            names = sorted(os.listdir(path))
        except OSError as err:
            raise BundleError(
                f"{path}, which is to be included, cannot be read: {err.strerror}"
            ) from err
        for name in names:
            _include(contents, path / name, f"{dest}/{name}", (*above, real), out)
    elif stat.S_ISREG(kind):
        if not os.access(path, os.R_OK):
            raise BundleError(f"{path}, which is to be included, cannot be read")
        contents.add(dest, File(Path(real), executable=bool(kind & stat.S_IXUSR)))
    else:
        raise BundleError(f"{path} is neither a file nor a folder, and cannot be included")
