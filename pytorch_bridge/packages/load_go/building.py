"""Builds a Go package as a shared library whose functions Python can call.

Nothing is written into the package's folder. What is made lies in load_go in the folder of
everything built: a program around the package (gotorch/internal/loadgo writes it), a go.work that
joins it, the package's module and gotorch, and the library. It is made again when a source file of
the package, of what it imports, or of gotorch has changed in content.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pytorch_bridge.native import prebuilt_library, toolchain
from pytorch_bridge.native.artifacts import Record, digest, digest_files, locked
from pytorch_bridge.native.toolchain import ROOT
from pytorch_bridge.packages.load_go.errors import GoBuildError

_GOTORCH = "gotorch.dev/gotorch"
_PYLOAD = ROOT / "gotorch/internal/pyload"
_LOADGO = ROOT / "gotorch/internal/loadgo"

_KEPT = 4  # libraries of earlier states of a package, which other processes may be about to load


@dataclass(frozen=True)
class Built:
    """A package's library, and what gotorch/internal/loadgo says about its functions."""

    library: Path
    description: dict


class Builder:
    """Builds one package."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        name = f"{folder.name}-{digest(os.fsencode(folder))[:12]}"
        self.work = toolchain.build_dir() / "load_go" / name
        self.go = toolchain.find_go()
        self.env = {**os.environ, **toolchain.go_environment(self.go)}

    @contextlib.contextmanager
    def built(self) -> Iterator[Built]:
        """The library, up to date, which stays in place until the context ends."""
        self.work.mkdir(parents=True, exist_ok=True)
        with contextlib.redirect_stdout(sys.stderr), locked(self.work / "lock", "build"):
            yield self._current() or self._build()

    # What was built from what ------------------------------------------------------------------

    @property
    def _record(self) -> Record:
        return Record(self.work / "made-from.json")

    def _current(self) -> Built | None:
        """The library, if nothing has changed since it was built."""
        folders = self._record.read().get("folders", [])
        found = self._record.current(self._made_by(), self._files(folders))
        if found is None or not (self.work / found["library"]).exists():
            return None
        return Built(self.work / found["library"], found["description"])

    def _made_by(self) -> str:
        settings = {k: v for k, v in self.env.items() if re.match(r"GO|CGO_|CC$|CXX$", k)}
        return digest(json.dumps([self.go.version, str(self.go.path), sorted(settings.items())]))

    def _files(self, folders: list[str]) -> list[Path]:
        """The files that decide what is built: those in these folders, and in our own."""
        found = []
        for folder in [*folders, str(_PYLOAD), str(_LOADGO), str(Path(__file__).parent)]:
            with contextlib.suppress(OSError):
                found += [f for f in sorted(Path(folder).iterdir()) if f.is_file()]
        return [f for f in found if f.suffix not in (".pyc", ".so")]

    # Building ----------------------------------------------------------------------------------

    def _build(self) -> Built:
        self._record.remove()
        by = self._made_by()
        for left in self.work.glob("*.part"):  # by one that was killed: we hold the lock
            left.unlink()
        self._forget_others()
        work, main = self.work, self.work / "main"
        shutil.rmtree(main, ignore_errors=True)
        main.mkdir()
        shutil.copytree(_PYLOAD, main / "pyload")
        (main / "go.mod").write_text("module pyload.invalid/main\n\ngo 1.26.0\n")
        overlay = self._write_workspace()

        fields = "-json=ImportPath,Name,Dir,Export,GoFiles,CgoFiles,Standard,Module"
        options = ["-buildmode=c-shared", *overlay]
        listed = self._run("list", "-export", "-deps", fields, *options, ".", _GOTORCH)
        (work / "list.json").write_text(listed)
        packages = _decode_all(listed)
        package = next(p for p in packages if p["Dir"] == str(self.folder))
        path, name = package["ImportPath"], package["Name"]
        if name == "main":
            raise GoBuildError(f"{self.folder} is a program, package main: nothing can import it.")
        if "internal" in path.split("/"):
            raise GoBuildError(
                f"{self.folder} is {path}: a package in a folder `internal` can only be imported "
                "from beside that folder. Load a package there that calls it."
            )

        loadgo = ["-list", str(work / "list.json"), "-package", path, "-o", str(main / "main.go")]
        described = self._run("run", "./gotorch/internal/loadgo", *loadgo, cwd=ROOT, GOWORK="off")

        # As they were before: what is edited during the build is built again next time.
        folders = self._folders(packages)
        files = digest_files(self._files(folders))
        library = work / f"{name}-{digest(by, json.dumps(files))[:16]}.so"
        partial = library.with_suffix(".part")
        output = ["-buildvcs=false", "-ldflags=-w", "-o", str(partial)]
        self._run("build", *options, *output, ".", cwd=main)
        partial.with_suffix(".h").unlink(missing_ok=True)
        partial.replace(library)
        facts = {"library": library.name, "folders": folders, "description": json.loads(described)}
        self._record.write(by, files, folder=str(self.folder), **facts)
        older = sorted(work.glob("*.so"), key=lambda file: file.stat().st_mtime, reverse=True)
        for file in older[_KEPT:]:
            file.unlink()
        return Built(library, facts["description"])

    def _forget_others(self) -> None:
        """Removes what was built of packages that are gone."""
        for path in self.work.parent.glob(f"*/{self._record.path.name}"):
            with contextlib.suppress(OSError, KeyError):
                if not Path(Record(path).read()["folder"]).exists():
                    shutil.rmtree(path.parent)

    def _write_workspace(self) -> list[str]:
        """Writes go.work, and returns the options that make a plain folder a module."""
        found = json.loads(self._run("env", "-json", "GOMOD", "GOWORK"))
        modules = {self.work / "main", ROOT}
        overlay = []
        if Path(found["GOMOD"]).name == "go.mod":
            modules.add(Path(found["GOMOD"]).parent)
        else:
            modules.add(self.folder)
            name = re.sub(r"[^\w.-]", "_", self.folder.name)
            module = self.work / "go.mod"
            module.write_text(f"module folder.invalid/{name}\n\ngo 1.26.0\n")
            replace = {"Replace": {str(self.folder / "go.mod"): str(module)}}
            (self.work / "overlay.json").write_text(json.dumps(replace))
            overlay = ["-overlay", str(self.work / "overlay.json")]

        replaces: list[str] = []
        theirs = found["GOWORK"]
        if theirs and theirs != "off":
            read = json.loads(self._run("work", "edit", "-json", theirs))
            modules |= {Path(theirs).parent / use["DiskPath"] for use in read.get("Use") or []}
            for replace in read.get("Replace") or []:
                replaces.append(_replace_line(replace, Path(theirs).parent))
            with contextlib.suppress(OSError):
                shutil.copy(f"{theirs}.sum", self.work / "go.work.sum")

        uses = sorted({os.path.realpath(module) for module in modules})
        lines = [f"go {self._go_version(uses)}", *(f"use {json.dumps(use)}" for use in uses)]
        (self.work / "go.work").write_text("\n".join([*lines, *replaces]) + "\n")
        self.env["GOWORK"] = str(self.work / "go.work")
        return overlay

    def _go_version(self, modules: list[str]) -> str:
        """The newest that one of the modules asks for: go.work must not say less."""
        newest = "1.26.0"
        for module in modules:
            with contextlib.suppress(OSError):
                found = re.search(r"^go ([\d.]+)$", (Path(module) / "go.mod").read_text(), re.M)
                if found and _numbers(found[1]) > _numbers(newest):
                    newest = found[1]
        return newest

    def _folders(self, packages: list[dict]) -> list[str]:
        """The folders whose files decide what is built: not those of released modules."""
        folders = {str(self.folder)}
        for package in packages:
            module = package.get("Module") or {}
            module = module.get("Replace") or module
            if not package.get("Standard") and not module.get("Version"):
                folders |= {package["Dir"], module.get("Dir", package["Dir"])}
        return sorted(folders)

    def _run(self, *arguments: str, cwd: Path | None = None, **env: str) -> str:
        folder = cwd or self.folder
        done = subprocess.run(
            [str(self.go.path), *arguments],
            cwd=folder,
            env={**self.env, **env},
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise GoBuildError(self._message(done.stderr, folder))
        return done.stdout

    def _message(self, said: str, folder: Path) -> str:
        """What Go said, with whole paths."""

        def whole(found: re.Match[str]) -> str:
            return os.path.normpath(folder / found[0])

        lines = [line for line in said.strip().splitlines() if not line.startswith("# ")]
        lines = [re.sub(r"^[^\s:]+\.go(?=:\d)", whole, line) for line in lines]
        return "\n".join([f"{self.folder} does not build:", *lines])


def _decode_all(text: str) -> list[dict]:
    decoder, found = json.JSONDecoder(), []
    text = text.strip()
    while text:
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:].lstrip()
    return found


def _numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]


def _replace_line(replace: dict, folder: Path) -> str:
    old, new = replace["Old"], replace["New"]
    target = new["Path"]
    if not new.get("Version"):
        target = json.dumps(os.path.normpath(folder / target))
    before = f"{old['Path']} {old.get('Version', '')}".strip()
    return f"replace {before} => {target} {new.get('Version', '')}".rstrip()


def check_folder(path: str | os.PathLike[str]) -> Path:
    """The folder of a package; an OSError or a GoBuildError if it is none."""
    folder = Path(os.path.realpath(path))
    names = os.listdir(folder)
    if not any(name.endswith(".go") and not name.endswith("_test.go") for name in names):
        raise GoBuildError(f"There are no Go files in {folder}.")
    return folder


def check_library() -> None:
    """The Go code asks the same when it starts, and ends the process if the answer is no."""
    import ctypes

    library = ctypes.CDLL(str(prebuilt_library.ensure()))
    library.cgotorch_api_hash.restype = ctypes.c_char_p
    built = library.cgotorch_api_hash().decode()
    if f'"{built}"' not in (ROOT / "gotorch/internal/ctorch/ops_gen.go").read_text():
        again = toolchain.fix("make build", toolchain.REINSTALL)
        raise GoBuildError(f"libcgotorch.so is of another version of gotorch; type: {again}")
