"""A bundle as an OCI image: a folder with the layout that registries and container engines read.

It is written by go-containerregistry, in the Go module beside this file; no daemon is asked. The
layers are libc where there is no base, the libraries, and the program with what it reads: whoever
ships a new version of the program sends only the last.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...errors import BundleError
from ...native import atomic_files, env, toolchain
from . import contents, progress
from .closure import GLIBC, Closure, glibc_needed, system_folders
from .program import Program

TOOL = Path(__file__).resolve().parent / "oci"
FOLDER = "/app"
"""Where a bundle is in its image."""

USER = "65532:65532"
"""As whom it runs where the base says nothing: nobody's number, and not root's."""


def check(target: Path, base: str) -> None:
    """BundleError where the target is something else, or the base cannot be one."""
    empty = target.is_dir() and not target.is_symlink() and not any(target.iterdir())
    if os.path.lexists(target) and not empty and not _is_layout(target):
        raise BundleError(
            f"{target} has other things in it than an OCI layout, so it is not replaced; "
            "name another folder"
        )
    if os.path.ismount(target):
        raise BundleError(
            f"a file system is mounted at {target}, so it cannot be replaced as a whole; name a "
            f"folder in it: {target / 'image'}"
        )
    if base.startswith("-"):
        raise BundleError(f"--base {base} is no reference to an image")


def _is_layout(target: Path) -> bool:
    if target.is_symlink() or not target.is_dir():
        return False
    names = set(os.listdir(target))
    return {"oci-layout", "index.json"} <= names <= {"oci-layout", "index.json", "blobs", "ingest"}


def write(
    bundle: Path,
    called: str,
    closure: Closure,
    program: Program,
    target: Path,
    base: str,
    ref: str,
    epoch: int,
) -> None:
    """Writes the image of a bundle; the folder is whole or not there."""
    target = Path(os.path.abspath(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    libraries = {contents.LIBRARIES, contents.LICENCES}
    of_libraries = [p for p in contents.walk(bundle) if p[0].split("/")[0] in libraries]
    of_program = [p for p in contents.walk(bundle) if p[0].split("/")[0] not in libraries]
    layers = [_layer("libraries", of_libraries), _layer("program", of_program)]
    if not base:
        layers.insert(
            0, {"name": "glibc of the machine that made this", "files": list(_glibc(closure))}
        )
    asked = {
        "base": base,
        "os": program.os,
        "arch": program.arch,
        "glibc": glibc_needed(closure)[0],
        "ref": ref,
        "epoch": epoch,
        "entrypoint": [f"{FOLDER}/{called}"],
        "folder": FOLDER,
        "user": USER,
        "title": called,
        "layers": layers,
    }

    def rescue(left: Path) -> None:
        if not os.path.lexists(target) and _is_layout(left / "old"):
            (left / "old").rename(target)

    with atomic_files.folder_beside(target, rescue) as part:
        sizes = [f["path"] and Path(f["path"]).stat().st_size for x in layers for f in x["files"]]
        progress.step("writing the image", sum(filter(None, sizes)))
        run({**asked, "out": str(part / "new")})
        for _, path in contents.walk(part / "new"):
            if path.is_file():
                path.chmod(0o644)
        contents.set_dates(part / "new", epoch)
        check(target, base)
        atomic_files.put_folder(part / "new", target, part / "old")


def run(asked: dict[str, Any]) -> None:
    """Has the Go program write the image that it is asked for; BundleError with what it says."""
    go = toolchain.find_go()
    # Flags and a workspace are for the user's program, not for this one.
    here = {
        **os.environ,
        **env.variables(),
        "GOFLAGS": "-mod=readonly",
        "GOWORK": "off",
        "CGO_ENABLED": "0",
    }
    with (
        tempfile.TemporaryFile("w+", errors="replace") as said,
        subprocess.Popen(
            [str(go.path), "run", "-C", str(TOOL), "."],
            env=here,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError), process.stdin as to:
            json.dump(asked, to)
        for line in process.stdout:  # bytes that are done
            progress.add(int(line))
        code = process.wait()
        said.seek(0)
        text = said.read()
    if code != 0:
        lines = [line for line in text.strip().splitlines() if not line.startswith("exit status")]
        raise BundleError("the image cannot be written: " + "\n  ".join(lines[-20:]))


def _layer(name: str, files: Iterable[tuple[str, Path]]) -> dict[str, Any]:
    return {"name": name, "files": [_file(f"{FOLDER[1:]}/{n}", path) for n, path in files]}


def _file(name: str, path: Path) -> dict[str, Any]:
    folder = path.is_dir()
    mode = 0o755 if folder else path.stat().st_mode & 0o777
    return {"name": name, "path": "" if folder else str(path), "mode": mode}


def _glibc(closure: Closure) -> Iterable[dict[str, Any]]:
    """The loader and the parts of glibc that are needed, at their places on this machine; and a
    folder for what is temporary."""
    yield {"name": "tmp", "path": "", "mode": 0o1777}
    if closure.program.interpreter:
        loader = closure.program.interpreter
        yield {"name": loader.lstrip("/"), "path": os.path.realpath(loader), "mode": 0o755}
    for name in sorted(closure.system):
        if not GLIBC.fullmatch(name) or name == Path(closure.program.interpreter).name:
            continue
        found = next((f / name for f in system_folders() if (f / name).is_file()), None)
        if found is None:
            raise BundleError(
                f"{name} is not among this machine's libraries; name a base for the image"
            )
        yield {"name": str(found).lstrip("/"), "path": os.path.realpath(found), "mode": 0o755}
