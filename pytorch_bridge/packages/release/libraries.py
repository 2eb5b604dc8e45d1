"""libcgotorch.so for a wheel: the same wherever it is compiled, and for wherever torch will be."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from ...errors import BundleError
from ...native import build, elf, toolchain
from ...native.artifacts import digest_file, locked
from ...native.toolchain import ROOT, Compiler, Missing, Torch

ROOM = "/" + "room-for-the-folder-of-torch-" * 142
"""The run path in a wheel's library: longer than any path can be (PATH_MAX is 4096), so that the
true one can be written over it."""


@dataclass(frozen=True)
class ReleaseSettings(build.Settings):
    """As in a checkout, of the same objects; but the library lies apart, and has `ROOM`."""

    @property
    def library(self) -> Path:
        return self.out / "release/libcgotorch.so"

    @property
    def facts(self) -> Path:
        return self.out / "release/cgotorch.json"

    def link_flags(self) -> list[str]:
        own = f"-Wl,-rpath,{self.torch.lib}"
        # Symbols that nobody can link to are for debuggers.
        return [
            *(f"-Wl,-rpath,{ROOM}" if flag == own else flag for flag in super().link_flags()),
            "-Wl,--strip-all",
        ]


class _Link(build.Build):
    def run(self) -> str:
        objects = self.settings.objects
        return self._made([build.Unit(s, objects / f"{s.stem}.o") for s in self._sources()])


@dataclass(frozen=True)
class ReleaseLibrary:
    """A library for a wheel."""

    path: Path
    release: str
    """Of the torch that it is for."""
    cxx11_abi: bool
    glibc: tuple[int, int]
    """The oldest that has all it needs, with the libstdc++ of its time."""
    machine: str
    """As wheels call it: "x86_64"."""
    compiler: str

    def facts(self) -> dict[str, object]:
        return {
            "digest": digest_file(self.path),
            "cxx11_abi": self.cxx11_abi,
            "compiler": self.compiler,
            "glibc": ".".join(map(str, self.glibc)),
        }


def make(torch: Torch, compiler: Compiler, jobs: int) -> ReleaseLibrary:
    """Compiles what is out of date, in the folder where `make build` and `make test-torch` do so,
    and links. The torch is that of this Python, whose torchgen is asked. CompileError where that
    fails."""
    settings = ReleaseSettings(torch, compiler, toolchain.build_dir())
    with locked(settings.out / "build.lock", "build"):
        _Link(settings, jobs).run()
    return read(settings.library.parent)


def read(folder: Path) -> ReleaseLibrary:
    """The library that `make` has left in a folder. Missing where it is none for a release."""
    library = folder / "libcgotorch.so"
    try:
        said = json.loads((folder / "cgotorch.json").read_text())
        torch, found = toolchain.find_torch(Path(said["torch_dir"])), elf.read(library)
    except (OSError, ValueError, KeyError, BundleError) as err:
        raise Missing(
            f"There is no library for a release in {folder}: {err}.",
            "python -m pytorch_bridge release --library   (with the Python of its torch)",
        ) from err
    if found.rpath != (ROOM,) or said["torch"] != torch.version or said["sanitize"]:
        raise Missing(
            f"{library} was not made for a release, or the torch in {torch.dir} is another now.",
            "python -m pytorch_bridge release --library   (with the Python of its torch)",
        )
    for place in (ROOT, torch.dir):
        if str(place).encode() in library.read_bytes():
            raise Missing(
                f"{library} has the path {place} in it.",
                "make release   (with a compiler that knows -ffile-prefix-map)",
            )
    return ReleaseLibrary(
        library,
        torch.release,
        torch.uses_cxx11_abi(),
        glibc(found),
        {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}[found.machine],
        said["compiler"],
    )


# The oldest system that has a version of libstdc++ or of libgcc, told by its glibc: what manylinux
# calls a policy. Distributions take both from one year.
_LIBSTDCXX = [
    ((3, 4, 19), (2, 17)),
    ((3, 4, 24), (2, 27)),
    ((3, 4, 25), (2, 28)),
    ((3, 4, 28), (2, 31)),
    ((3, 4, 29), (2, 34)),
    ((3, 4, 30), (2, 35)),
    ((3, 4, 32), (2, 39)),
    ((3, 4, 33), (2, 40)),
]


def glibc(library: elf.Elf) -> tuple[int, int]:
    """The oldest glibc that a library can be loaded with, from the versions of its symbols."""
    needed = (2, 17)
    for wanted in library.requires.values():
        for version in wanted:
            name, _, text = version.rpartition("_")
            if not re.fullmatch(r"\d+(\.\d+)*", text):
                raise Missing(
                    f"{library.path} needs {version}, and nobody knows which glibc has that.",
                    "make release   (with a compiler of an older system)",
                )
            number = tuple(map(int, text.split(".")))
            if name == "GLIBC":
                needed = max(needed, (number[0], number[1]))
            elif name == "GLIBCXX":
                known = [system for newest, system in _LIBSTDCXX if number <= newest]
                if not known:
                    raise Missing(
                        f"{library.path} needs {version}, newer than the table of systems knows.",
                        "make release   (with an older compiler)",
                    )
                needed = max(needed, known[0])
    return needed
