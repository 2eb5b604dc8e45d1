"""The wheel: pytorch_bridge, the sources of gotorch and libcgotorch.so, as PEP 427 has it.

Python's backends write wheels of Python files, which are for any machine, or compile extensions;
this one is for a machine and for any Python. It is a zip with three files about it, and pip is its
test.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ... import __version__
from ...native.artifacts import digest
from ...native.toolchain import ROOT, Missing
from .libraries import ReleaseLibrary

_PACKAGE = "pytorch_bridge"
_SOURCES = f"{_PACKAGE}/_sources"

# Of pytorch_bridge, what is for a checkout.
_FOR_CHECKOUTS = ("bench/", "native/bootstrap.py", "packages/release/", "testing/")
# Of the rest, what builds the library and Go programs.
_BUILT_FROM = ("LICENSE", "NOTICE", "cgotorch/", "go.mod", "go.sum", "gotorch/")
_FOR_TESTS = ("cgotorch/test/", "gotorch/testdata/")


def contents(names: Sequence[str]) -> dict[str, str]:
    """What of a checkout goes into the wheel: the paths there, and those here."""
    found = {}
    for name in names:
        within = name.removeprefix(f"{_PACKAGE}/")
        if within != name:
            if not within.startswith(_FOR_CHECKOUTS):
                found[name] = name
        elif name.startswith(_BUILT_FROM) and not _is_test(name):
            found[f"{_SOURCES}/{name}"] = name
    return found


def _is_test(name: str) -> bool:
    return name.startswith(_FOR_TESTS) or name.endswith("_test.go") or "/testdata/" in name


def write(out: Path, names: Sequence[str], libraries: Sequence[ReleaseLibrary], date: int) -> Path:
    """Writes the wheel into the folder `out`, and returns its path. The one there is replaced when
    the new one is whole."""
    files = {name: (ROOT / here).read_bytes() for name, here in contents(names).items()}
    sources = digest(*(part for name in sorted(files) for part in (name, files[name])))
    said = {lib.release: lib.facts() for lib in sorted(libraries, key=lambda lib: lib.release)}
    manifest = {"version": __version__, "sources": sources, "libraries": said}
    files[f"{_SOURCES}/release.json"] = (json.dumps(manifest, indent=1) + "\n").encode()
    for lib in libraries:
        files[f"{_SOURCES}/lib/{lib.release}/libcgotorch.so"] = lib.path.read_bytes()
    tag = _tag(libraries)
    info = f"gotorch-{__version__}.dist-info"
    project = _project()
    files[f"{info}/METADATA"] = _metadata(project).encode()
    files[f"{info}/WHEEL"] = _wheel(tag).encode()
    files[f"{info}/entry_points.txt"] = _entry_points(project).encode()
    for name in project["license-files"]:
        files[f"{info}/licenses/{name}"] = (ROOT / name).read_bytes()
    files[f"{info}/RECORD"] = _record(files, f"{info}/RECORD").encode()
    path = out / f"gotorch-{__version__}-{tag}.whl"
    part = path.with_suffix(".whl.part")
    try:
        _zip(part, files, date)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path


def _tag(libraries: Sequence[ReleaseLibrary]) -> str:
    machines = {lib.machine for lib in libraries}
    if len(machines) != 1:
        raise Missing(
            f"A wheel is for one kind of machine, not for {', '.join(sorted(machines)) or 'none'}.",
            "make release   (with the torch of one kind)",
        )
    major, minor = max(lib.glibc for lib in libraries)
    return f"py3-none-manylinux_{major}_{minor}_{machines.pop()}"


def _project() -> dict[str, Any]:
    try:
        import tomllib
    except ImportError as err:
        raise Missing("Python 3.11 reads pyproject.toml.", "make PYTHON=python3.12") from err
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _metadata(project: dict[str, Any]) -> str:
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {project['name']}",
        f"Version: {__version__}",
        f"Summary: {project['description']}",
        f"Requires-Python: {project['requires-python']}",
        f"License-Expression: {project['license']}",
        *(f"License-File: {name}" for name in project["license-files"]),
        "Classifier: Operating System :: POSIX :: Linux",
        "Classifier: Typing :: Typed",
        *(f"Requires-Dist: {wanted}" for wanted in project["dependencies"]),
        "Description-Content-Type: text/markdown",
    ]
    return "\n".join(lines) + "\n\n" + (ROOT / "docs/install.md").read_text()


def _wheel(tag: str) -> str:
    # Purelib: what is in it is no extension of one Python, and lies where Python files do.
    return (
        f"Wheel-Version: 1.0\nGenerator: gotorch {__version__}\nRoot-Is-Purelib: true\nTag: {tag}\n"
    )


def _entry_points(project: dict[str, Any]) -> str:
    lines = ["[console_scripts]", *(f"{k} = {v}" for k, v in project["scripts"].items())]
    return "\n".join(lines) + "\n"


def _record(files: dict[str, bytes], own: str) -> str:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerows(_hashed(files))
    rows.writerow([own, "", ""])
    return text.getvalue()


def _hashed(files: dict[str, bytes]) -> Iterator[tuple[str, str, int]]:
    for name, data in sorted(files.items()):
        made = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        yield name, f"sha256={made}", len(data)


def _zip(path: Path, files: dict[str, bytes], date: int) -> None:
    when = time.gmtime(max(date, 315532800))[:6]  # zip begins in 1980
    # What is about the wheel comes last, as tools expect it.
    order = sorted(files, key=lambda name: (".dist-info/" in name, name.endswith("/RECORD"), name))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name in order:
            entry = zipfile.ZipInfo(name, when)
            entry.compress_type = zipfile.ZIP_DEFLATED
            mode = 0o755 if name.endswith(".so") else 0o644
            entry.external_attr = (0o100000 | mode) << 16
            entry.create_system = 3
            zipped.writestr(entry, files[name], compresslevel=9)
