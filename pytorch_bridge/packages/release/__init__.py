"""`make release`: what users install, in dist/.

    dist/gotorch-0.2.0-py3-none-manylinux_2_34_x86_64.whl   the package, for pip
    dist/proxy/gotorch.dev/@v/v0.2.0.zip                    the Go module, for GOPROXY=file://...
    dist/SHA256SUMS                                         for sha256sum -c

The wheel has the library for some releases of torch (`libraries`), and the sources: of the Go
package, which programs are built with, and of the library, for other releases. What is in the
module is what the version control has. The same sources make the same bytes: dates are those of the
commit, or SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ... import __version__
from ...codegen import stubs
from ...native import build, toolchain, versions
from ...native.toolchain import ROOT, Missing
from . import libraries, wheel

MODULE = "gotorch.dev"
_SUMS = "SHA256SUMS"


def files() -> list[str]:
    """The files of this checkout, by their paths in it: those of version control, and the stubs,
    which the build makes. Missing where there is none."""
    text = _git("ls-files", "-z")
    absent = [str(path) for path in stubs.PATHS if not (ROOT / path).is_file()]
    if absent:
        raise Missing(f"The build has not made {', '.join(absent)}.", "make build")
    found = [name for name in text.split("\0") if name and (ROOT / name).is_file()]
    return sorted({*found, *map(str, stubs.PATHS)})


def epoch() -> int:
    """The date of what is released, in seconds."""
    given = toolchain.variable("SOURCE_DATE_EPOCH")
    if given is None:
        return int(_git("log", "-1", "--format=%ct"))
    if not given.isdecimal():
        raise Missing(
            f"SOURCE_DATE_EPOCH is {given!r}, and no number of seconds.", "unset SOURCE_DATE_EPOCH"
        )
    return int(given)


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
        )
    except OSError as err:
        raise Missing(f"git does not run: {err}.", "make release   (where git is)") from err
    if done.returncode != 0:
        raise Missing(
            f"A release is made of a clone: git says {done.stderr.strip()!r} in {ROOT}.",
            "make release   (in a clone)",
        )
    return done.stdout


def write_proxy(out: Path, names: Sequence[str], date: int) -> Path:
    """Writes this version of the Go module below `out`, and returns the folder of its versions."""
    go = toolchain.find_go()
    when = datetime.datetime.fromtimestamp(date, datetime.timezone.utc)
    command = [str(go.path), "run", "-modfile=.ci/tools.mod", "./.ci/modzip"]
    command += ["-module", MODULE, "-version", f"v{__version__}", "-root", str(ROOT)]
    command += ["-time", when.strftime("%Y-%m-%dT%H:%M:%SZ"), "-out", str(out)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **toolchain.go_environment(go), "GOWORK": "off"},
        input="".join(f"{name}\n" for name in names),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise Missing(
            f"The module cannot be packed:\n{done.stderr.strip()}", "make release   (after that)"
        )
    return out / MODULE / "@v"


def write_sums(out: Path) -> None:
    """Writes the digests of all that is in `out`."""
    lines = []
    for path in sorted(p for p in out.rglob("*") if p.is_file() and p.name != _SUMS):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        lines.append(f"{digest}  {path.relative_to(out).as_posix()}\n")
    (out / _SUMS).write_text("".join(lines))


def make_library(jobs: int | None = None) -> libraries.ReleaseLibrary:
    """The library for the torch of this Python."""
    torch, compiler = toolchain.find_torch(), toolchain.find_compiler()
    return libraries.make(torch, compiler, jobs or build.default_jobs())


def main(out: Path, folders: Sequence[Path] = (), jobs: int | None = None) -> int:
    """Writes the release, and says what is in it. `folders` are of libraries that were made with
    other torches."""
    names, date = files(), epoch()
    if changed := _git("status", "--porcelain").strip():
        print(f"not of a commit: {len(changed.splitlines())} files are changed or new", flush=True)
    by_release = {lib.release: lib for lib in [*map(libraries.read, folders), make_library(jobs)]}
    made = [by_release[release] for release in sorted(by_release)]
    out.mkdir(parents=True, exist_ok=True)
    path = wheel.write(out, names, made, date)
    proxy = write_proxy(out / "proxy", names, date)
    write_sums(out)
    for library in made:
        glibc = ".".join(map(str, library.glibc))
        print(f"libcgotorch.so for torch {library.release}, glibc {glibc} or newer")
    absent = set(versions.SUPPORTED_TORCH) - {library.release for library in made}
    if absent:
        print(f"without a library for torch {', '.join(sorted(absent))}: compiled where needed")
    for file in (path, proxy / f"v{__version__}.zip"):
        print(f"{os.path.relpath(file)}: {file.stat().st_size / 1e6:.1f} MB")
    return 0
