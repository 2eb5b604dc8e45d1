"""Small libraries and programs, made with the linker alone, which takes milliseconds."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

GCC = ["gcc", "-O0", "-fPIC"]


def run(*command: str | Path, **options) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


class Linker:
    """Makes libraries that need one another, also round in circles."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.empty = folder / "empty.o"
        run(*GCC, "-x", "c", "-c", "-", "-o", self.empty, input="")

    def library(
        self,
        path: Path,
        needs: Iterable[str] = (),
        *,
        rpath: str = "",
        runpath: str = "",
        text: Iterable[str] = (),
        soname: str | None = "",
    ) -> Path:
        """A library at a path that needs libraries of these names, and has these texts in it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        shells = self.folder / "shells"
        shells.mkdir(exist_ok=True)
        stand_ins = []
        for name in needs:
            if not (shells / name).exists():
                run("ld", "-shared", "-soname", name, self.empty, "-o", shells / name)
            stand_ins.append(str(shells / name))
        flags = ["-shared", "--no-as-needed"]
        if soname is not None:
            flags += ["-soname", soname or path.name]
        if rpath or runpath:
            flags += [
                "--disable-new-dtags" if rpath else "--enable-new-dtags",
                "-rpath",
                rpath or runpath,
            ]
        run("ld", *flags, self.object(text), *stand_ins, "-o", path)
        return path

    def object(self, text: Iterable[str]) -> Path:
        text = list(text)
        if not text:
            return self.empty
        out = self.folder / "text.o"
        table = ", ".join(f'"{t}"' for t in text)
        run(
            *GCC,
            "-x",
            "c",
            "-c",
            "-",
            "-o",
            out,
            input=f"const char *const table[] = {{{table}}};\n",
        )
        return out

    def program(
        self, path: Path, needs: Iterable[Path], *, rpath: str = "", runpath: str = ""
    ) -> Path:
        """A program that needs libraries and does nothing."""
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = []
        if rpath or runpath:
            tags = "--disable-new-dtags" if rpath else "--enable-new-dtags"
            flags = [f"-Wl,{tags}", f"-Wl,-rpath,{rpath or runpath}"]
        shells = self.folder / "shells"
        stand_ins = []
        for name in needs:
            shells.mkdir(exist_ok=True)
            if not (shells / name).exists():
                run("ld", "-shared", "-soname", name, self.empty, "-o", shells / name)
            stand_ins.append(str(shells / name))
        run(
            *[
                *GCC,
                "-x",
                "c",
                "-",
                "-o",
                path,
                "-Wl,--no-as-needed",
                "-Wl,--allow-shlib-undefined",
            ],
            *["-x", "none", *stand_ins, *flags],
            input="int main(void) { return 0; }\n",
        )
        return path


@pytest.fixture
def linker(tmp_path: Path) -> Linker:
    folder = tmp_path / "linker"
    folder.mkdir()
    return Linker(folder)


@pytest.fixture(scope="session")
def namespaces() -> str:
    """Why no root of its own can be made here; "" where it can."""
    for tool in ("unshare", "chroot", "mount"):
        if shutil.which(tool, path=PATH) is None:
            return f"there is no {tool} here"
    try:
        done = subprocess.run(
            ["unshare", "-Urm", "sh", "-c", "mount --rbind /proc /proc"],
            capture_output=True,
            text=True,
            env={"PATH": PATH},
        )
    except OSError as err:
        return str(err)
    return (
        ""
        if done.returncode == 0
        else f"a root of its own is forbidden here: {done.stderr.strip()}"
    )


PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/bin", "/sbin", "/bin"])


def run_in(root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Runs a command in a root of its own, as an engine of containers does: with /proc and /dev, and with
    no variable but PATH."""
    script = 'set -e; mount --rbind /proc "$1/proc"; mount --rbind /dev "$1/dev"; root=$1; shift; exec chroot "$root" "$@"'
    for name in ("proc", "dev"):
        (root / name).mkdir(exist_ok=True)
    return subprocess.run(
        ["unshare", "-Urm", "sh", "-c", script, "sh", root, *command],
        capture_output=True,
        text=True,
        env={"PATH": PATH},
        check=False,
    )
