"""Compiles the C++ in cgotorch/ into build/lib/libcgotorch.so for the torch that is installed.

An object is compiled again when its source, a header of ours that it includes, the compiler, a
flag or the torch changed in content; dates do not matter. The library appears by a rename, so a
program that is running keeps the one it has.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path

from pytorch_bridge.errors import CompileError
from pytorch_bridge.native import toolchain, versions
from pytorch_bridge.native.artifacts import (
    Record,
    dependencies,
    digest,
    digest_files,
    locked,
    run_compiler,
    write,
)
from pytorch_bridge.native.toolchain import ROOT, Compiler, Torch

SOURCES = ROOT / "cgotorch"

_BYTES_PER_JOB = 3 << 29  # 1.5 GB: what g++ takes for a file full of torch's headers

# What the library shows to others: the C ABI, and operator new and delete (objects.cc). Templates
# of the C++ headers that it was compiled with stay its own.
_EXPORTED = "{ global: cgotorch_*; _Znw*; _Zdl*; local: *; };\n"
# What another library or the program may replace. Every other call within the library goes where it
# was written to go, whatever else has a symbol of that name.
_REPLACEABLE = "{ _Znw*; _Zdl*; };\n"


@dataclass(frozen=True)
class Settings:
    """What to build with, and where to put it."""

    torch: Torch
    compiler: Compiler
    out: Path
    sanitize: str | None = None

    @property
    def library(self) -> Path:
        return self.out / "lib/libcgotorch.so"

    @property
    def facts(self) -> Path:
        """The JSON file beside the library that says what it was built with."""
        return self.out / "lib/cgotorch.json"

    def compile_flags(self) -> list[str]:
        level = "-O1" if self.sanitize else "-O2"  # a sanitizer's reports are clearer
        flags = ["-std=c++20", level, "-fPIC", "-fvisibility=hidden", "-Wall", "-DNDEBUG"]
        # A handle is read as the at::Tensor that its bits are (internal.h).
        flags += ["-fno-strict-aliasing"]
        flags += [f"-D_GLIBCXX_USE_CXX11_ABI={int(self.torch.uses_cxx11_abi())}"]
        # The release alone: what is for CUDA and what is not have the same C++.
        flags += [f'-DCGOTORCH_TORCH_VERSION="{self.torch.release}"']
        flags += ["-DAT_PER_OPERATOR_HEADERS"]  # of torch's ops, only what is included by name
        # Of libtorch's assertions the library has the paths of headers: not those of this machine.
        flags += [f"-ffile-prefix-map={path}={name}" for path, name in self.renamed().items()]
        flags += [f"-I{SOURCES}"]
        # As system headers: their warnings are not ours, and they stay out of the dependencies.
        flags += [f"-isystem{path}" for path in self.torch.includes]
        if self.sanitize:
            flags += [f"-fsanitize={self.sanitize}", "-fno-omit-frame-pointer", "-g"]
        if self.sanitize == "thread":
            flags += ["-Wno-tsan"]  # it does not know fences: what they order has atomics, too
        return flags

    def renamed(self) -> dict[Path, str]:
        """What the folders of the sources are called in the library, wherever they are. Where one
        is in another, the last one counts."""
        return {SOURCES: "cgotorch", self.out / "gen": "cgotorch", self.torch.dir: "torch"}

    def flags_for(self, source: Path) -> list[str]:
        """Those of compile_flags that one source is compiled with.

        Generated functions do nothing but pass arguments on. They would take minutes under a
        sanitizer, and -O2 makes of them what -O1 does, in half as much time again.
        """
        generated = source.name.startswith("ops_gen_")
        flags = (replace(self, sanitize=None) if generated else self).compile_flags()
        if source.name in ("functorch.cc", "distributed.cc", "errors.cc"):
            # For headers that torch includes and does not bring.
            flags += ["-idirafter", str(SOURCES / "lacking")]
        if generated:
            flags[flags.index("-O2")] = "-O1"
        return flags

    def link_flags(self) -> list[str]:
        # Nothing of libtorch_cuda.so is linked: it is loaded when CUDA is first asked about.
        # Lazy binding lets the library start, and say what is wrong, beside another torch than
        # its own. With an RPATH, not a RUNPATH, no LD_LIBRARY_PATH brings in another torch.
        flags = ["-shared", f"-L{self.torch.lib}", "-ltorch_cpu", "-lc10"]
        flags += [f"-Wl,-rpath,{self.torch.lib}", "-Wl,-soname,libcgotorch.so", "-Wl,-z,lazy"]
        flags += ["-Wl,--disable-new-dtags"]
        for option, (file, _) in self.linker_files().items():
            flags.append(f"-Wl,--{option}={file}")
        if self.sanitize:
            return [*flags, f"-fsanitize={self.sanitize}"]
        return [*flags, "-Wl,--no-undefined"]

    def linker_files(self) -> dict[str, tuple[Path, str]]:
        """Files that the linker reads, by the option that names them: where, and their texts."""
        return {
            "version-script": (self.objects / "exported.map", _EXPORTED),
            "dynamic-list": (self.objects / "replaceable.list", _REPLACEABLE),
        }

    @property
    def objects(self) -> Path:
        return self.out / "obj"


@dataclass(frozen=True)
class Unit:
    """One source file, its object, and the record of what the object was made from."""

    source: Path
    object: Path

    @property
    def record(self) -> Record:
        return Record(self.object.with_suffix(".json"))


class Build:
    """One run: what is out of date is compiled, then linked."""

    def __init__(self, settings: Settings, jobs: int, verbose: bool = False) -> None:
        self.settings = settings
        self.jobs = jobs
        self.verbose = verbose
        torch, compiler = settings.torch, settings.compiler
        # torch's headers are taken as a whole: its version and place stand for them.
        self.tools = digest(
            shlex.join(compiler.command),
            compiler.version,
            torch.version,
            str(torch.dir),
        )

    def run(self) -> str:
        """Brings the library up to date and returns what was done; "" if there was nothing."""
        settings = self.settings
        known = {settings.objects / f"{source.stem}.o": source for source in self._sources()}
        done = self._made([Unit(source, made) for made, source in known.items()])
        for orphan in settings.objects.glob("*.o"):
            if orphan not in known:
                orphan.unlink()
                orphan.with_suffix(".json").unlink(missing_ok=True)
        write(
            self.settings.out / "lib/pkgconfig/cgotorch.pc",
            pkgconfig(self.settings.library.parent, self.settings.torch.version),
        )
        if not toolchain.INSTALLED and (SOURCES.parent / "gotorch").is_dir():
            write(SOURCES.parent / "gotorch/internal/ctorch/headers_gen.h", _headers_for_go())
        return done

    def _made(self, units: list[Unit]) -> str:
        """Compiles and links what is out of date, and says what that was."""
        self.settings.objects.mkdir(parents=True, exist_ok=True)
        self.settings.library.parent.mkdir(parents=True, exist_ok=True)
        stale = [unit for unit in units if not self._up_to_date(unit)]
        self._compile_all(stale)
        linked = self._link(units)
        return f"{len(stale)} files compiled, linked" if stale else "linked" if linked else ""

    def _sources(self) -> list[Path]:
        by_name = {path.name: path for path in sorted(SOURCES.glob("*.cc"))}
        if not by_name:
            raise CompileError(f"There is nothing to compile in {SOURCES}.")
        if self.settings.torch.release != versions.REFERENCE_TORCH:
            by_name |= {path.name: path for path in self._shards()}
        return list(by_name.values())

    def _shards(self) -> list[Path]:
        """The generated files that adapt the committed C ABI to the installed torch."""
        torch = self.settings.torch
        out = self.settings.out / "gen"
        record = Record(out / "generated-by.json")
        package = Path(__file__).parents[1]
        generator = sorted(package.rglob("*.py"))
        tables = [p for end in ("yaml", "txt") for p in package.rglob(f"*.{end}")]
        files = [*generator, *sorted(tables)]
        if record.current(str(torch), files) is None:
            shutil.rmtree(out, ignore_errors=True)
            before = digest_files(files)
            # A program of its own: what generates stands on much that stands on this module.
            program = [
                sys.executable,
                "-m",
                "pytorch_bridge.codegen.generate",
                str(torch.dir),
                str(out),
            ]
            done = subprocess.run(program, capture_output=True, text=True)
            if done.returncode:
                raise CompileError(f"The sources for torch {torch.version}: {done.stderr.strip()}")
            record.write(str(torch), before)
        return sorted(out.glob("*.cc"))

    def _made_by(self, unit: Unit) -> str:
        return digest(self.tools, str(unit.source), *self.settings.flags_for(unit.source))

    def _up_to_date(self, unit: Unit) -> bool:
        return unit.object.exists() and unit.record.current(self._made_by(unit)) is not None

    def _compile_all(self, units: list[Unit]) -> None:
        # The longest first, so that no core waits at the end: by the last run's time where it
        # is known, else by size.
        def weight(unit: Unit) -> tuple[float, int]:
            return (unit.record.read().get("seconds", 0.0), unit.source.stat().st_size)

        units = sorted(units, key=weight, reverse=True)
        progress = _Progress(len(units))
        with ThreadPoolExecutor(max_workers=self.jobs) as pool:
            running: dict[Future[float], Unit] = {pool.submit(self._compile, u): u for u in units}
            progress.started([u.source.name for u in units[: self.jobs]])
            try:
                while running:
                    ended, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in ended:
                        unit = running.pop(future)
                        seconds = future.result()
                        names = [u.source.name for u in list(running.values())[: self.jobs]]
                        progress.ended(unit.source.name, seconds, names)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
            finally:
                progress.close()

    def _compile(self, unit: Unit) -> float:
        """Compiles one file; returns the seconds it took."""
        started = time.monotonic()
        partial = unit.object.with_suffix(".o.part")
        depends = unit.object.with_suffix(".d")
        before = digest_files([unit.source])
        unit.record.remove()
        self._call(
            [
                *self.settings.compiler.command,
                *self.settings.flags_for(unit.source),
                *["-MMD", "-MF", str(depends), "-MT", "object"],
                *["-c", str(unit.source), "-o", str(partial)],
            ]
        )
        files = digest_files(dependencies(depends))
        depends.unlink()
        partial.replace(unit.object)
        seconds = time.monotonic() - started
        # A source edited while it was compiled must be compiled again next time.
        unit.record.write(self._made_by(unit), files | before, seconds=round(seconds, 2))
        return seconds

    def _link(self, units: list[Unit]) -> bool:
        """Links the library unless it was made from the same; returns whether it did."""
        settings = self.settings
        facts = {
            "torch": settings.torch.version,
            "torch_dir": str(settings.torch.dir),
            "sanitize": settings.sanitize,
            "compiler": settings.compiler.version,
            "compile_flags": settings.compile_flags(),
            "link_flags": settings.link_flags(),
            "linker_files": [text for _, text in settings.linker_files().values()],
        }
        # What the objects were made from stands for them.
        made_from = {str(unit.object): unit.record.read() for unit in units}
        for record in made_from.values():
            record.pop("seconds", None)
        facts["key"] = digest(json.dumps([self.tools, facts, made_from], sort_keys=True))
        try:
            if settings.library.exists() and json.loads(settings.facts.read_text()) == facts:
                return False
        except (OSError, ValueError):
            pass
        for file, text in settings.linker_files().values():
            write(file, text)
        partial = settings.library.with_suffix(".so.part")
        objects = [str(unit.object) for unit in units]
        self._call(
            [*settings.compiler.command, *objects, *settings.link_flags(), "-o", str(partial)]
        )
        settings.facts.unlink(missing_ok=True)  # never beside a library that it is not of
        partial.replace(settings.library)
        write(settings.facts, json.dumps(facts, indent=2) + "\n")
        return True

    def _call(self, command: list[str]) -> None:
        if self.verbose:
            print(shlex.join(command), flush=True)
        if message := run_compiler(command, whole=self.verbose):
            print(message, file=sys.stderr, flush=True)


def _headers_for_go() -> str:
    """A header whose content changes with every header of cgotorch.

    Go compiles a package again when a file in its folder changes, and does not look at what is
    included from elsewhere.
    """
    headers = sorted(SOURCES.glob("*.h"))
    contents = digest(*(part for path in headers for part in (path.name, path.read_bytes())))
    return (
        "// Code generated by pytorch_bridge; DO NOT EDIT.\n\n"
        "// Makes Go compile this package again when a header of cgotorch has changed.\n"
        f"// {contents}\n"
    )


class _Progress:
    """One line that is written over on a terminal; one line per file elsewhere."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self.live = sys.stdout.isatty() and total > 0

    def started(self, running: list[str]) -> None:
        if self.live:
            self._show(running)

    def ended(self, name: str, seconds: float, running: list[str]) -> None:
        self.done += 1
        if self.live:
            self._show(running)
        else:
            print(f"[{self.done}/{self.total}] {name} {seconds:.1f} s", flush=True)

    def _show(self, running: list[str]) -> None:
        width = os.get_terminal_size().columns - 1
        line = f"[{self.done}/{self.total}] compiling {', '.join(running)}"
        print(f"\r\033[K{line[:width]}", end="", flush=True)

    def close(self) -> None:
        if self.live:
            print("\r\033[K", end="", flush=True)


def pkgconfig(lib: Path, torch_version: str) -> str:
    """The text of cgotorch.pc for a library in `lib`."""

    def quoted(path: Path) -> str:
        return str(path).replace("\\", "\\\\").replace(" ", "\\ ")

    return f"""\
includedir={quoted(SOURCES)}
libdir={quoted(lib)}

Name: cgotorch
Description: PyTorch's native functions in C, for torch {torch_version}
Version: {torch_version.partition("+")[0]}
Cflags: -I${{includedir}}
Libs: -L${{libdir}} -lcgotorch -Wl,-rpath,${{libdir}}
"""


def default_jobs() -> int:
    """One compiler per core, as far as memory allows."""
    cores = len(os.sched_getaffinity(0))
    try:
        available = re.search(r"^MemAvailable: *(\d+) kB", Path("/proc/meminfo").read_text(), re.M)
    except OSError:
        available = None
    if available is None:
        return cores
    return max(1, min(cores, int(available[1]) * 1024 // _BYTES_PER_JOB))


def sanitizer_of(out: Path) -> str | None:
    """The sanitizer that a folder is for: once one has been asked for, it stays, and what is made
    for the library there is built with it too."""
    try:
        return json.loads((out / "lib/cgotorch.json").read_text())["sanitize"]
    except (OSError, ValueError, KeyError):
        return None


def main(
    jobs: int | None = None,
    torch_dir: Path | None = None,
    sanitize: str | None = None,
    verbose: bool = False,
) -> int:
    """Builds the library and says what was done; returns the exit code."""
    started = time.monotonic()
    out = toolchain.build_dir()
    if sanitize and out.name != sanitize:
        out = out / sanitize  # build/address or build/thread: run with that as GOTORCH_BUILD_DIR
    torch = toolchain.find_torch(torch_dir)
    settings = Settings(torch, toolchain.find_compiler(), out, sanitize or sanitizer_of(out))
    with locked(out / "build.lock", "build"):
        try:
            done = Build(settings, jobs or default_jobs(), verbose).run()
        except CompileError as err:
            print(err, file=sys.stderr)
            return 1
    library = os.path.relpath(settings.library)
    if done:
        print(f"{library}: {done}, torch {torch.version}, {time.monotonic() - started:.1f} s")
    else:
        print(f"{library} is up to date, torch {torch.version}")
    return 0
