"""Compiles the extension for the torch and the Python that run, as build.py does the library."""

from __future__ import annotations

import contextlib
import json
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from pytorch_bridge import build, toolchain
from pytorch_bridge.bootstrap import locked
from pytorch_bridge.toolchain import Missing

SOURCES = sorted(Path(__file__).parent.glob("*.cc"))
HEADERS = sorted(Path(__file__).parent.glob("*.h"))

_SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


@dataclass(frozen=True)
class Settings(build.Settings):
    """What to build the extension with, and where to put it."""

    @property
    def library(self) -> Path:
        return library(self.out, self.torch)

    @property
    def facts(self) -> Path:
        return self.library.with_suffix(".json")

    @property
    def objects(self) -> Path:
        return self.out / "obj/extension" / _key(self.torch)

    def compile_flags(self) -> list[str]:
        # torch brings the pybind11 that it was itself compiled with.
        return [*super().compile_flags(), f"-isystem{sysconfig.get_paths()['include']}"]

    def linker_files(self) -> dict[str, tuple[Path, str]]:
        return {}  # visibility says what Python looks for

    def link_flags(self) -> list[str]:
        flags = ["-shared", f"-L{self.torch.lib}", f"-L{self.out / 'lib'}"]
        flags += ["-lcgotorch", "-ltorch_python", "-ltorch_cpu", "-lc10"]
        # Whoever imports it has loaded torch; libcgotorch.so lies beside it.
        flags += ["-Wl,-rpath,$ORIGIN", f"-Wl,-rpath,{self.torch.lib}", "-Wl,--disable-new-dtags"]
        return [*flags, f"-fsanitize={self.sanitize}"] if self.sanitize else flags


class Build(build.Build):
    """One run: compiles and links if anything changed."""

    def run(self) -> str:
        settings = self.settings
        settings.objects.mkdir(parents=True, exist_ok=True)
        units = [
            build.Unit(source, settings.objects / f"{source.stem}{_SUFFIX}.o") for source in SOURCES
        ]
        stale = [unit for unit in units if not self._up_to_date(unit)]
        for unit in stale:
            self._compile(unit)
        linked = self._link(units)
        return "compiled, linked" if stale else "linked" if linked else ""


def _key(torch: toolchain.Torch) -> str:
    """Tells apart the environments that use one folder of everything built."""
    return build._digest(str(torch), sys.prefix)[:12]


def library(out: Path, torch: toolchain.Torch) -> Path:
    """Where the extension for this Python and this torch is, in the folder of everything built."""
    return out / f"lib/_compiled-{_key(torch)}{_SUFFIX}"


def ensure() -> Path:
    """Compiles the extension unless that was done, and returns its path.

    Raises Missing where libcgotorch.so or a compiler is absent, CompileError where it fails.
    """
    out = toolchain.build_dir()
    torch = toolchain.find_torch()
    if _current(out, torch):
        return library(out, torch)
    if not (out / "lib/libcgotorch.so").exists():
        raise Missing(f"{out / 'lib/libcgotorch.so'} is not built.", "make build")
    settings = Settings(torch, toolchain.find_compiler(), out, build.sanitizer_of(out))
    with contextlib.redirect_stdout(sys.stderr), locked(out / "extension.lock", "build"):
        if not _current(out, torch):  # by whoever held the lock
            print("pytorch_bridge: compiling the Python extension, once ...", flush=True)
            # What an import compares, without asking a compiler for its version. Taken before: what
            # is edited meanwhile is compiled again next time.
            state = _state(torch)
            Build(settings, jobs=1).run()
            build._write(_record(settings.library), json.dumps(state, indent=1) + "\n")
    return settings.library


def _record(library: Path) -> Path:
    return library.with_suffix(".made-from.json")


def _state(torch: toolchain.Torch) -> dict:
    files = [*SOURCES, *HEADERS, Path(__file__), *sorted(build.SOURCES.glob("*.h"))]
    return {"torch": str(torch), "python": sys.prefix, "files": build._digest_files(files)}


def _current(out: Path, torch: toolchain.Torch) -> bool:
    made = library(out, torch)
    try:
        return made.exists() and json.loads(_record(made).read_text()) == _state(torch)
    except (OSError, ValueError):
        return False
