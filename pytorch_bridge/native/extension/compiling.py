"""Compiles the extension for the torch and the Python that run, as build.py does the library."""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from pytorch_bridge.native import build, prebuilt_library, toolchain
from pytorch_bridge.native.artifacts import Record, digest, digest_files, locked
from pytorch_bridge.native.toolchain import Missing

SOURCES = sorted(Path(__file__).parent.glob("*.cc"))
HEADERS = sorted(Path(__file__).parent.glob("*.h"))

_SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


@dataclass(frozen=True)
class ExtensionSettings(build.Settings):
    """What to build the extension with, and where to put it."""

    @property
    def library(self) -> Path:
        return library(self.out, self.torch)

    @property
    def facts(self) -> Path:
        return self.library.with_suffix(".json")

    @property
    def objects(self) -> Path:
        return self.out / "obj/boundary" / _key(self.torch)

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


class ExtensionBuild(build.Build):
    """One run: compiles and links if anything changed."""

    def run(self) -> str:
        objects = self.settings.objects
        return self._made([build.Unit(s, objects / f"{s.stem}{_SUFFIX}.o") for s in SOURCES])


def _key(torch: toolchain.Torch) -> str:
    """Tells apart the environments that use one folder of everything built."""
    return digest(str(torch), os.path.abspath(sys.prefix))[:12]


def library(out: Path, torch: toolchain.Torch) -> Path:
    """Where the extension for this Python and this torch is, in the folder of everything built."""
    return out / f"lib/_compiled-{_key(torch)}{_SUFFIX}"


def ensure() -> Path:
    """Compiles the extension unless that was done, and returns its path.

    Raises Missing where libcgotorch.so or a compiler is absent, CompileError where it fails.
    """
    cgotorch = prebuilt_library.ensure()
    out, torch = toolchain.build_dir(), toolchain.find_torch()
    made = library(out, torch)
    # What an import compares, without asking a compiler for its version.
    by, record = _key(torch), Record(made.with_suffix(".made-from.json"))
    files = [*SOURCES, *HEADERS, Path(__file__), *sorted(build.SOURCES.glob("*.h"))]

    def there() -> bool:
        return made.exists() and record.current(by, files) is not None

    if there():
        return made
    if not cgotorch.exists():
        raise Missing(f"{cgotorch} is not built.", "make build")
    settings = ExtensionSettings(torch, toolchain.find_compiler(), out, build.sanitizer_of(out))
    with contextlib.redirect_stdout(sys.stderr), locked(out / "boundary.lock", "build"):
        if not there():  # by whoever held the lock
            print("pytorch_bridge: compiling the Python extension, once ...", flush=True)
            before = digest_files(files)
            ExtensionBuild(settings, jobs=build.default_jobs()).run()
            record.write(by, before)
    return made
