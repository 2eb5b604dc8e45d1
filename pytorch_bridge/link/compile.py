"""The C and C++ compilers that graphs are compiled with."""

from __future__ import annotations

import functools
import os
import platform
import re
import shlex
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import CompileError
from ..native import toolchain
from ..native.artifacts import run_compiler
from ..native.build import sanitizer_of

HEADERS = Path(__file__).parents[1] / "native/extension"  # where pb_graph.h is


@dataclass(frozen=True)
class GraphCompiler:
    """A compiler by the command that starts it: what `c_compiler` names, and what is passed to
    those `c_headers` and the like that take an argument."""

    command: str

    def __str__(self) -> str:
        return self.command

    @property
    def cplusplus(self) -> bool:
        return "++" in Path(self.words()[0]).name

    @property
    def suffix(self) -> str:
        return ".cc" if self.cplusplus else ".c"

    def words(self) -> list[str]:
        return _words(self.command)

    def version(self) -> str:
        """What the compiler calls itself. CompileError where it does not run."""
        return _version(self.command, os.environ.get("PATH", ""))

    def flags(self) -> list[str]:
        """What every graph is compiled with, before the arguments of its ops and types."""
        standard = "-std=c++20" if self.cplusplus else "-std=c99"
        # Products and sums are rounded one by one, as ATen rounds them.
        flags = [standard, "-O2", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off"]
        if sanitizer := sanitizer_of(toolchain.build_dir()):
            flags += [f"-fsanitize={sanitizer}", "-g"]
        # A function that is not declared would be taken to return an int, and half a pointer.
        return flags if self.cplusplus else [*flags, "-Werror=implicit-function-declaration"]


def default_compiler() -> GraphCompiler:
    """$CC, or the first of cc, gcc and clang that there is."""
    if given := toolchain.variable("CC"):
        return GraphCompiler(given)
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return GraphCompiler(name)
    raise CompileError("no C compiler is on PATH: there is no cc, gcc or clang. Set CC to one.")


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as err:  # a quote that does not end
        raise CompileError(f"the compiler {command!r} is no command: {err}") from err


@functools.cache
def _version(command: str, path: str) -> str:
    try:
        done = subprocess.run(
            [*_words(command), "--version"], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired) as err:
        raise CompileError(f"the compiler {command!r} does not run: {err}") from err
    if done.returncode != 0:
        raise CompileError(f"the compiler {command!r} does not run: {done.stderr.strip()}")
    return done.stdout.splitlines()[0] if done.stdout else ""


@functools.cache
def processor() -> str:
    """What this processor is, for code that is made for it alone."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    found = re.findall(r"^(?:model name|flags|Features)\s*:.*", text, re.M)
    return "\n".join(sorted(set(found)))


@dataclass(frozen=True)
class Recipe:
    """How one source is made into a library. Equal builds of equal sources give equal libraries."""

    compiler: GraphCompiler
    arguments: tuple[str, ...]  # to compile
    header_dirs: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    lib_dirs: tuple[str, ...] = ()
    python: bool = True  # whether the source includes Python.h

    library_suffix = ".so"

    @property
    def source_suffix(self) -> str:
        return self.compiler.suffix

    def identity(self) -> list[str]:
        """What tells this build from others."""
        words = [*self.command(Path("source"), Path("library")), self.compiler.version()]
        if any(a in ("-march=native", "-mtune=native", "-mcpu=native") for a in self.arguments):
            words.append(processor())
        return words

    def command(self, source: Path, library: Path, depends: Path | None = None) -> list[str]:
        words = [*self.compiler.words(), *self.arguments, "-shared"]
        if self.python:
            words += [f"-I{HEADERS}", f"-isystem{sysconfig.get_paths()['include']}"]
        words += [f"-I{d}" for d in self.header_dirs]
        if depends is not None:
            words += ["-MMD", "-MF", str(depends), "-MT", "library"]
        words += [str(source), "-o", str(library)]
        for d in self.lib_dirs:
            words += [f"-L{d}", f"-Wl,-rpath,{d}"]
        return words + [lib if lib.startswith("-") else f"-l{lib}" for lib in self.libraries]

    def run(self, source: Path, library: Path, depends: Path) -> None:
        """Compiles; CompileError with the compiler's message where it refuses."""
        run_compiler(self.command(source, library, depends))


def without(arguments: Sequence[str], excluded: Sequence[str]) -> list[str]:
    """The arguments, each once, but for those that c_no_compile_args names."""
    kept: list[str] = []
    for a in arguments:
        if a not in excluded and a not in kept:
            kept.append(a)
    return kept
