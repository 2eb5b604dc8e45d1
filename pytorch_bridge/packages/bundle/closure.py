"""Which shared libraries a program needs, found as the system's loader finds them.

Two rules, and nothing is taken from a list:

1. What a file says that it needs (DT_NEEDED), and what that needs.
2. What the program or a library may load by name while it runs. Nothing says that in an ELF file,
   so it is every C string in its data that is the name of a file beside it or on its run path:
   libcgotorch.so has "libtorch_cuda.so", cuDNN has "libcudnn_ops.so" (and adds the ".9"). What is
   found only among the system's libraries does not count, for other machines have others.

What stays with the machine are glibc, whose parts must be of one build with its loader, and what a
GPU's driver brings. What rule 2 finds is left out if it needs what is not there, so that it could
not be loaded here either; and, for the processor alone, if it is for a GPU.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from ...errors import BundleError
from ...native import elf, toolchain
from ...native.elf import Elf

GLIBC = re.compile(
    r"(ld-linux\S*|ld64|libc|libm|libdl|libpthread|librt|libutil|libresolv|libanl|libmvec|libnsl|libnss_\w+"
    r"|libthread_db|libBrokenLocale|libc_malloc_debug|linux-vdso\S*)\.so\.\d+"
)
"""What belongs to glibc. Of one build with the loader, which a program names by its path."""

DRIVER = re.compile(r"lib(cuda|cudadebugger|nvcuvid|nvidia-[\w-]+|EGL_nvidia|GLX_nvidia)\.so\.\d+")
"""What comes with a GPU's driver, and must be of one version with it."""

_GPU = re.compile(
    r"lib(cuda|cudart|nvrtc|amdhip64|hsa-runtime64|ze_loader|sycl|(c10|torch)_(cuda|hip|xpu))(?![a-z])"
)
_PYTHON = re.compile(r"lib(torch_)?python[\d.]*\.so")
"""Named by libcgotorch.so only to say that a library which needs it is for Python."""

_UMBRELLA = "libtorch.so"
"""An empty library that needs the others of torch, so that one name links them all."""


@dataclass
class Library:
    """A shared library that goes into the bundle."""

    name: str
    """Its file's name there: that by which it is needed."""
    elf: Elf
    loaders: tuple[Elf, ...]
    """Who had it loaded: the file that needs it first, and that file's own, up to the program."""
    needed_by: set[str] = field(default_factory=set)
    named_by: set[str] = field(default_factory=set)
    without: tuple[str, ...] = ()
    """What it says that it needs, and does not need on a processor."""
    why: str = ""
    """Why it is left out, if it is."""

    @property
    def source(self) -> Path:
        return self.elf.path

    @property
    def for_gpu(self) -> bool:
        """Whether it is NVIDIA's, or stands on what is for a GPU."""
        return "nvidia" in self.source.parts or any(map(_GPU.match, (self.name, *self.elf.needed)))


@dataclass
class Closure:
    """What a program needs, by name."""

    program: Elf
    libraries: dict[str, Library] = field(default_factory=dict)
    left_out: dict[str, Library] = field(default_factory=dict)
    """What is loaded by name only and is not to come, or cannot be loaded here either."""
    system: dict[str, set[str]] = field(default_factory=dict)
    """What stays with the machine, and who needs it."""
    more: list[Elf] = field(default_factory=list)
    """What the program loads while it runs, and who made the bundle named."""

    def elves(self) -> Iterator[tuple[str, Elf]]:
        yield self.program.path.name, self.program
        for name, library in sorted(self.libraries.items()):
            yield name, library.elf
        for file in self.more:
            yield file.path.name, file


class Finder:
    """Adds to a closure what files need."""

    def __init__(self, program: Elf, cpu: bool = False) -> None:
        self.closure = Closure(program)
        self.cpu = cpu
        self._sonames: dict[str, str] = {}

    def run(self, more: Iterable[Elf] = ()) -> Closure:
        """The closure of the program and of `more`, which it loads while it runs."""
        _read.cache_clear()  # what was built anew since
        _listed.cache_clear()
        self._need([(self.closure.program, ())])
        first = self.closure.libraries.get("libcgotorch.so")
        loaders = (first.elf, *first.loaders) if first else (self.closure.program,)
        self.closure.more = list(more)
        self._need([(e, loaders) for e in self.closure.more])
        self._name()
        return self.closure

    # By need ------------------------------------------------------------------------------------

    def _need(self, files: Iterable[tuple[Elf, tuple[Elf, ...]]]) -> None:
        """In the loader's order: all that a file needs before what those need."""
        waiting = list(files)
        for file, loaders in waiting:
            for library in self._needs_of(file, loaders):
                waiting.append((library.elf, library.loaders))

    def _needs_of(self, file: Elf, loaders: tuple[Elf, ...]) -> Iterator[Library]:
        """The libraries that a file needs and that were not there before."""
        name = self._name_of(file)
        dropped = self.closure.libraries[name].without if name in self.closure.libraries else ()
        for wanted in file.needed:
            if wanted in dropped:
                continue
            if GLIBC.fullmatch(wanted) or DRIVER.fullmatch(wanted):
                self.closure.system.setdefault(wanted, set()).add(name)
            elif known := self._known(wanted):
                known.needed_by.add(name)
            else:
                library = self._add(wanted, find(wanted, file, loaders), (file, *loaders))
                library.needed_by.add(name)
                yield library

    def _name_of(self, file: Elf) -> str:
        for name, library in self.closure.libraries.items():
            if library.elf is file:
                return name
        return file.path.name

    def _known(self, name: str) -> Library | None:
        return self.closure.libraries.get(self._sonames.get(name, name))

    def _add(self, name: str, path: Path, loaders: tuple[Elf, ...]) -> Library:
        library = Library(name, _read(path), loaders)
        if self.cpu and name == _UMBRELLA:
            library.without = tuple(filter(_GPU.match, library.elf.needed))
        self.closure.libraries[name] = library
        if library.elf.soname:
            self._sonames.setdefault(library.elf.soname, name)
        return library

    # By name ------------------------------------------------------------------------------------

    def _name(self) -> None:
        program = self.closure.program
        self._named(Library(program.path.name, program, ()))
        looked: set[str] = set()
        while new := [n for n in self.closure.libraries if n not in looked]:
            for name in new:
                looked.add(name)
                self._named(self.closure.libraries[name])

    def _named(self, by: Library) -> None:
        for wanted in by.elf.names:
            for path in beside(wanted, by.elf, by.loaders):
                self._may_load(by, path)

    def _may_load(self, by: Library, path: Path) -> None:
        name = path.name
        if name == by.name or GLIBC.fullmatch(name) or _PYTHON.fullmatch(name):
            return
        if known := self._known(name) or self.closure.left_out.get(name):
            known.named_by.add(by.name)
            return
        loaders = (by.elf, *by.loaders)
        trial = Finder(self.closure.program)
        trial.closure.libraries = dict(self.closure.libraries)
        trial._sonames = dict(self._sonames)
        library = trial._add(name, path, loaders)
        library.named_by.add(by.name)
        absent = trial._try(library)
        brought = [v for n, v in trial.closure.libraries.items() if n not in self.closure.libraries]
        if self.cpu and any(each.for_gpu for each in brought):
            for each in brought:
                each.why = "only a GPU needs it"
                self.closure.left_out.setdefault(each.name, each)
        elif absent:
            library.why = f"it needs {absent}, which is not on this machine"
            self.closure.left_out[name] = library
        else:
            self.closure.libraries[name] = library
            if library.elf.soname:
                self._sonames.setdefault(library.elf.soname, name)
            self._need([(library.elf, loaders)])

    def _try(self, library: Library) -> str:
        """Adds what a library needs, as far as it is there; the name of one that is not, or ""."""
        absent = ""
        waiting = [library]
        for each in waiting:
            for wanted in each.elf.needed:
                if GLIBC.fullmatch(wanted) or DRIVER.fullmatch(wanted) or self._known(wanted):
                    continue
                found = _found(wanted, each.elf, each.loaders)
                if found is None:
                    absent = absent or wanted
                    continue
                waiting.append(self._add(wanted, found, (each.elf, *each.loaders)))
                waiting[-1].needed_by.add(each.name)
        return absent


# Where the loader looks ---------------------------------------------------------------------------


@cache
def _read(path: Path) -> Elf:
    return elf.read(path)


def find(name: str, file: Elf, loaders: tuple[Elf, ...]) -> Path:
    """Where the loader finds what a file needs; BundleError where it does not."""
    if "/" in name:
        raise BundleError(
            f"{file.path} needs {name}, a path, which leads nowhere on another machine; link it by "
            "name: -L FOLDER -l NAME, where the library has a soname"
        )
    found = _found(name, file, loaders)
    if found is None:
        looked = "\n  ".join(map(str, dict.fromkeys(_folders(file, loaders))))
        raise BundleError(
            f"{name}, which {file.path} needs, is not on this machine. Looked in\n  {looked}\n"
            "Install what has it, or say where it is: LD_LIBRARY_PATH=FOLDER"
        )
    return found


def _found(name: str, file: Elf, loaders: tuple[Elf, ...]) -> Path | None:
    for folder in _folders(file, loaders):
        path = folder / name
        if path.is_file() and elf.is_elf(path):
            path = Path(os.path.realpath(path))
            # The loader passes by what is for another machine.
            if (_read(path).machine, _read(path).bits) == (file.machine, file.bits):
                return path
    return None


def beside(name: str, file: Elf, loaders: tuple[Elf, ...]) -> list[Path]:
    """The files that a library may mean by a name: beside it or on a run path, with this name or
    with a version behind it. None among the system's libraries."""
    folders = [file.path.parent, *_run_paths(file, loaders)]
    pattern = re.compile(re.escape(name) + (r"(\.\d+)*" if name.endswith(".so") else ""))
    for folder in dict.fromkeys(f for f in folders if f not in system_folders()):
        found = [folder / n for n in _listed(folder) if pattern.fullmatch(n)]
        # Of a file and the links to it, the one that others need it by.
        real: dict[str, Path] = {}
        for path in sorted(found):
            if not path.is_file() or not elf.is_elf(path):
                continue
            whole = _read(path)
            if (whole.machine, whole.bits) == (file.machine, file.bits):
                there = whole.soname in _listed(folder)
                real[os.path.realpath(path)] = folder / whole.soname if there else path
        if real:
            return list(real.values())
    return []


@cache
def _listed(folder: Path) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()
    except OSError as err:
        # A program may open by name what nobody may list: what is there is unknown, not nothing.
        raise BundleError(
            f"{folder}, where a library may look for others, cannot be listed: {err.strerror}\n"
            "Bundle as a user who may read it"
        ) from err


def _run_paths(file: Elf, loaders: tuple[Elf, ...]) -> Iterator[Path]:
    """The DT_RPATH of a file and of those it was loaded for, unless it has a DT_RUNPATH."""
    if file.runpath:
        yield from _expanded(file, file.runpath)
        return
    for each in (file, *loaders):
        yield from _expanded(each, each.rpath)
    if loaders:  # the program's holds for all; bundle has it as a DT_RPATH
        yield from _expanded(loaders[-1], loaders[-1].runpath)


def _folders(file: Elf, loaders: tuple[Elf, ...]) -> Iterator[Path]:
    yield from _run_paths(file, loaders)
    yield from map(Path, filter(None, (toolchain.variable("LD_LIBRARY_PATH") or "").split(":")))
    yield from system_folders()


def _expanded(file: Elf, paths: Iterable[str]) -> Iterator[Path]:
    for path in paths:
        path = re.sub(r"\$(ORIGIN\b|\{ORIGIN\})", lambda _: str(file.path.parent), path)
        if "$" not in path and path.startswith("/"):
            yield Path(os.path.normpath(path))


@cache
def system_folders() -> tuple[Path, ...]:
    """Where the loader looks at last: what /etc/ld.so.conf names, and what it knows itself."""
    found = list(_conf(Path("/etc/ld.so.conf"), 0))
    machine = os.uname().machine
    found += [Path(f"{up}/{machine}-linux-gnu") for up in ("/lib", "/usr/lib")]
    found += map(Path, ("/lib64", "/usr/lib64", "/lib", "/usr/lib"))
    return tuple(dict.fromkeys(found))


def _conf(path: Path, depth: int) -> Iterator[Path]:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        words = line.split("#")[0].split()
        if words[:1] == ["include"] and depth < 8:
            for pattern in words[1:]:
                for more in sorted(Path("/").glob(str(path.parent / pattern).lstrip("/"))):
                    yield from _conf(more, depth + 1)
        elif words and words[0].startswith("/"):
            yield Path(words[0])


# Versions -----------------------------------------------------------------------------------------

# Marks of glibc's ABI that are no numbers, and the release that brought each.
_MARKS = {"GLIBC_ABI_DT_RELR": (2, 36), "GLIBC_ABI_GNU_TLS": (2, 42)}


def glibc_needed(closure: Closure) -> tuple[str, str]:
    """The oldest glibc with all that is asked of it, "2.34", and the file that asks for that one.
    ("", "") where nothing is asked. BundleError where one of the libraries is older than another
    needs."""
    oldest, because = (0, 0), ""
    for name, file in closure.elves():
        for library, versions in file.requires.items():
            if library in closure.system and GLIBC.fullmatch(library):
                for version in versions:
                    number = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(\.\d+)?", version)
                    known = (int(number[1]), int(number[2])) if number else _MARKS.get(version)
                    if known and known > oldest:
                        oldest, because = known, name
            elif library in closure.libraries:
                there = closure.libraries[library].elf
                if there.provides and (lacking := versions - there.provides):
                    raise BundleError(
                        f"{name} needs {', '.join(sorted(lacking))} of {library}, which "
                        f"{there.path} does not have: it is older than what the program was "
                        "compiled with"
                    )
    return (".".join(map(str, oldest)) if because else ""), because
