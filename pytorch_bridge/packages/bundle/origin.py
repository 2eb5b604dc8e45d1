"""Where a file that goes into a bundle comes from: a wheel, a package of the system, a Go module;
and its licence."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from urllib.parse import quote

from ... import __version__
from ...native import toolchain
from .program import Module

_LICENCE = re.compile(r"(licen[cs]e|copying|copyright|notice|patents|eula)", re.I)


@dataclass(frozen=True)
class Origin:
    """A package, as its manager knows it."""

    kind: str
    """"pypi", "deb", "rpm", "golang"; "gotorch" or "file" for what no manager knows."""
    name: str
    version: str
    licence: str = ""
    """An SPDX expression, where the package says one."""
    licences: tuple[tuple[str, Path], ...] = ()
    """The files with its terms, by the names they get below a folder of the package's."""

    @property
    def purl(self) -> str:
        """The package's URL in the form that scanners know; "" where there is none."""
        name, vendor = self.name, ""
        if self.kind in ("deb", "rpm"):
            vendor = f"{_os_release().get('ID', 'linux')}/"
        elif self.kind == "pypi":
            name = name.lower().replace("_", "-")
        elif self.kind != "golang":
            return ""
        version = f"@{quote(self.version, safe=':')}" if self.version else ""
        return f"pkg:{self.kind}/{vendor}{quote(name)}{version}"

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()


def of_library(path: Path) -> Origin:
    """The package that a shared library belongs to."""
    if path.name.startswith("libcgotorch.so"):
        return _gotorch()
    return _of_wheel(path) or _of_system(path) or Origin("file", path.name, "")


def of_module(module: Module) -> Origin:
    """A Go module."""
    if module.path == "gotorch.dev" and not module.version:
        return _gotorch()
    found = tuple(_licence_files(module.folder)) if module.folder else ()
    if module.path == "std":
        return Origin("golang", "stdlib", module.version.removeprefix("go"), "BSD-3-Clause", found)
    return Origin("golang", module.path, module.version, "", found)


def _licence_files(folder: Path) -> Iterator[tuple[str, Path]]:
    with_names = (
        sorted(p for p in folder.iterdir() if _LICENCE.match(p.name)) if folder.is_dir() else []
    )
    for path in with_names:
        if path.is_file():
            yield path.name, path
        elif path.is_dir():
            for file in sorted(p for p in path.rglob("*") if p.is_file()):
                yield file.relative_to(folder).as_posix(), file


@cache
def _gotorch() -> Origin:
    return Origin("gotorch", "gotorch", __version__, "", tuple(_licence_files(toolchain.ROOT)))


# Wheels -------------------------------------------------------------------------------------------


def _of_wheel(path: Path) -> Origin | None:
    for site in path.parents:
        if site.name in ("site-packages", "dist-packages"):
            info = _wheels(site).get(path.relative_to(site).as_posix())
            return _wheel(info) if info else None
    return None


@cache
def _wheels(site: Path) -> dict[str, Path]:
    """The shared libraries of a folder of packages, and the .dist-info that lists each."""
    found = {}
    for info in sorted(site.glob("*.dist-info")):
        try:
            lines = (info / "RECORD").read_text(errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            name = line.partition(",")[0]
            if ".so" in name:
                found[name] = info
    return found


@cache
def _wheel(info: Path) -> Origin:
    said = metadata.PathDistribution(info).metadata
    folder = info / "licenses"
    found = (
        [(p.relative_to(folder).as_posix(), p) for p in sorted(folder.rglob("*")) if p.is_file()]
        if folder.is_dir()
        else list(_licence_files(info))
    )
    return Origin(
        "pypi", said["Name"], said["Version"], said["License-Expression"] or "", tuple(found)
    )


# The system's packages ----------------------------------------------------------------------------


@cache
def _os_release() -> dict[str, str]:
    try:
        lines = Path("/etc/os-release").read_text().splitlines()
    except OSError:
        return {}
    return {k: v.strip('"') for k, _, v in (line.partition("=") for line in lines)}


def _output(*command: str) -> str:
    """What a package manager says, also where it does not know all that it is asked about."""
    if shutil.which(command[0]) is None:
        return ""
    here = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(
        command, capture_output=True, text=True, errors="replace", env=here, check=False
    ).stdout


def _of_system(path: Path) -> Origin | None:
    text = str(path)
    if not text.startswith(("/usr/", "/lib", "/opt/")) or text.startswith("/usr/local/"):
        return None
    # /lib may be a link to /usr/lib, and packages say either.
    names = sorted({text, f"/{text.removeprefix('/usr/').lstrip('/')}", f"/usr{text}"})
    if owner := re.match(r"([\w.+-]+)(?::\w+)?: ", _output("dpkg-query", "-S", *names)):
        found = _output("dpkg-query", "-W", "-f", "${Version}\n", owner[1])
        return _deb(owner[1], found.partition("\n")[0])
    for line in _output("rpm", "-qf", "--qf", "%{NAME}\t%{VERSION}-%{RELEASE}\n", *names).split(
        "\n"
    ):
        if line.count("\t") == 1:
            name, version = line.split("\t")
            folder = Path("/usr/share/licenses") / name
            files = [(p.name, p) for p in sorted(folder.glob("*")) if p.is_file()]
            return Origin("rpm", name, version, "", tuple(files))
    return None


@cache
def _deb(name: str, version: str) -> Origin:
    terms = Path("/usr/share/doc") / name / "copyright"
    files = (("copyright", terms),) if terms.is_file() else ()
    return Origin("deb", name, version, "", files)
