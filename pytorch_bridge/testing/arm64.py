"""`make test-arm64`: the library, C programs and the Go smoke tests for linux/arm64, by qemu-user.

    build/arm64/site/    torch's wheel for arm64, and what of CUDA its libtorch_cpu.so needs
    build/arm64/root/    what qemu shows instead of this machine: the loader, libc, the processors
    build/arm64/lib/     libcgotorch.so
    build/arm64/bin/     the C programs
    build/arm64/testdata/    an exported Go package with fused loops, which ./... passes by

Everything is compiled by the cross compiler. What this machine has for itself stays as it is. What
cannot be looked at this way stands in docs/maintaining.md.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path

from pytorch_bridge.native import build, toolchain, versions
from pytorch_bridge.native.artifacts import locked
from pytorch_bridge.native.toolchain import ROOT, Compiler, Missing

OUT = ROOT / "build/arm64"
TRIPLE = "aarch64-linux-gnu"
_TO_INSTALL = f"sudo apt install qemu-user g++-{versions.OLDEST_GXX}-{TRIPLE}"

# What torch's wheels for arm64 are tagged with, and NVIDIA's.
_PLATFORMS = [f"manylinux_2_{minor}_aarch64" for minor in range(28, 16, -1)]
# libtorch_cpu.so needs these two of CUDA, and no more.
_CUDA = "cudart,cupti"

# libtorch asks the system what the processors are. qemu 7 shows this machine's, and libtorch's
# cpuinfo crashes on an x86 in the place of an arm64.
_PROCESSOR = """\
processor\t: {number}
BogoMIPS\t: 243.75
Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm asimddp
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: 0xd0c
CPU revision\t: 1

"""
_MIDR = "0x00000000413fd0c1\n"  # the same in the register's bits: a Neoverse N1


@dataclass(frozen=True)
class Cross:
    """What compiles for arm64, and what runs it here."""

    cc: str
    cxx: Compiler
    runner: tuple[str, ...]

    def environment(self) -> dict[str, str]:
        """What `go` needs to compile for arm64, beyond the present environment."""
        go = toolchain.find_go()
        lib = OUT / "lib"
        return toolchain.go_environment(go) | {
            "GOOS": "linux",
            "GOARCH": "arm64",
            "CGO_ENABLED": "1",
            "CC": self.cc,
            "CXX": shlex.join(self.cxx.command),
            "CGO_LDFLAGS": shlex.join([f"-L{lib}", f"-Wl,-rpath,{lib}"]),
        }


def find_cross() -> Cross:
    """The cross compiler and qemu. Missing where one is not installed."""
    numbers = range(versions.OLDEST_GXX + 8, versions.OLDEST_GXX - 1, -1)
    for suffix in ["", *(f"-{n}" for n in numbers)]:
        cc = shutil.which(f"{TRIPLE}-gcc{suffix}")
        found = toolchain._compiler([f"{TRIPLE}-g++{suffix}"])
        if cc and isinstance(found, Compiler):
            break
    else:
        raise Missing(f"There is no {TRIPLE}-g++ >= {versions.OLDEST_GXX}.", _TO_INSTALL)
    qemu = shutil.which("qemu-aarch64")
    if qemu is None:
        raise Missing("There is no qemu-aarch64.", _TO_INSTALL)
    return Cross(cc, found, (qemu, "-L", str(make_root(cc))))


def make_root(cc: str) -> Path:
    """Where programs under qemu find their loader and libc, and what the processors are."""
    root = OUT / "root"
    libc = subprocess.run([cc, "-print-file-name=libc.so.6"], capture_output=True, text=True)
    lib = Path(libc.stdout.strip()).resolve().parent
    cpu = root / "sys/devices/system/cpu/cpu0/regs/identification"
    for folder in (root / "proc", cpu):
        folder.mkdir(parents=True, exist_ok=True)
    here = range(os.cpu_count() or 1)
    text = "".join(_PROCESSOR.format(number=number) for number in here)
    (root / "proc/cpuinfo").write_text(text)
    (cpu / "midr_el1").write_text(_MIDR)
    (root / "lib").unlink(missing_ok=True)
    (root / "lib").symlink_to(lib)
    return root


def install_torch() -> Path:
    """The reference torch for arm64, by pip."""
    site, ready = OUT / "site", OUT / "torch.txt"
    if ready.is_file() and ready.read_text() == versions.REFERENCE_TORCH:
        return site
    ready.unlink(missing_ok=True)
    shutil.rmtree(site, ignore_errors=True)
    _install(site, f"torch=={versions.REFERENCE_TORCH}", "--no-deps")
    text = next(site.glob("torch-*.dist-info/METADATA")).read_text()
    wanted = HeaderParser().parsestr(text).get_all("Requires-Dist", [])
    for requirement in wanted:
        if match := re.match(r"cuda-toolkit\[.*?\](==[\w.]+)", requirement):
            _install(site, f"cuda-toolkit[{_CUDA}]{match[1]}")
    ready.write_text(versions.REFERENCE_TORCH)
    return site


def _install(site: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(site)]
    command += ["--no-compile", "--only-binary=:all:", *(f"--platform={p}" for p in _PLATFORMS)]
    _run("torch for arm64", [*command, *arguments])


# C programs -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Program:
    """A program of cgotorch/test, with other sources of cgotorch, or with the library."""

    name: str
    arguments: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    environment: Mapping[str, str] | None = None


# Of its facts, by a part of their names, those that neither fork nor use up the memory.
_OF_THE_ALLOCATOR = ("aligned", "blocks", "freeing", "a thread that ends", "clone")


def programs(scratch: Path) -> list[Program]:
    """Those whose tests run without sanitizers, which qemu cannot, and without Python."""
    thunks = (ROOT / "cgotorch/thunks_gen.cc").read_text()
    numbers = re.findall(r"^    thunk_(\w+),$", thunks, re.MULTILINE)
    words = tuple(str(numbers.index(name)) for name in ("AddOut", "Cat"))
    return [
        Program("abi_test"),
        Program("callbacks_test", (str(scratch),)),
        Program("words_test", words),
        Program("words_test", words, environment={"WORDS_TEST_WITHOUT_MEMBARRIER": "1"}),
        *(Program("allocator_test", (fact,), ("allocator.cc",)) for fact in _OF_THE_ALLOCATOR),
        Program("aoti_checks_test", ("2000",), ("aoti_checks.cc",)),
        Program("safetensors_test", ("20000",), ("safetensors.cc",)),
    ]


def compile_program(cross: Cross, settings: build.Settings, program: Program) -> Path:
    folder, out = ROOT / "cgotorch", OUT / "bin" / program.name
    out.parent.mkdir(exist_ok=True)
    link = ["-Wl,--allow-shlib-undefined", f"-Wl,-rpath,{settings.library.parent}"]
    link += [f"-L{settings.library.parent}", "-lcgotorch", "-lpthread", "-ldl"]
    source = folder / "test" / f"{program.name}.c"
    if source.exists():
        command = [cross.cc, "-std=c99", f"-I{folder}"]
    else:
        source = source.with_suffix(".cc")
        command = [*cross.cxx.command, "-std=c++20", f"-I{folder}"]
    if program.sources:
        command = [*cross.cxx.command, *settings.compile_flags()]
        command.remove("-fvisibility=hidden")
        lib = settings.torch.lib
        link = [f"-Wl,-rpath,{lib}", f"-L{lib}", "-Wl,--allow-shlib-undefined"]
        link += ["-ltorch_cpu", "-lc10", "-lpthread", "-ldl"]
    sources = [str(source), *(str(folder / name) for name in program.sources)]
    _run(f"compile {program.name}", [*command, *sources, "-o", str(out), *link])
    return out


def export_model() -> str:
    """Exports a Go package with fused loops, and what Python computes here; returns its path."""
    import torch

    import pytorch_bridge as pb
    from pytorch_bridge import ops

    def tensor(name: str, dtype: str, dims: int) -> pb.Variable:
        return pb.TensorType(dtype, (None,) * dims)(name)

    x, w = tensor("x", "float32", 2), tensor("w", "float32", 2)
    half, whole = tensor("half", "bfloat16", 1), tensor("whole", "int64", 1)
    y = ops.mm(x, w)
    y = y * ops.sigmoid(y) + ops.tanh(y) * y - ops.exp(-y * y)
    outputs = [ops.softmax(y, -1), ops.mul(half, half) + half, ops.mul(whole, whole) + whole]
    with torch.no_grad():
        folder = pb.export_go(([x, w, half, whole], outputs), OUT / "testdata/model")
    return f"./{Path(folder).relative_to(ROOT)}"


def smoke_packages() -> list[str]:
    """The Go packages with smoke tests."""
    tests = (ROOT / "gotorch").rglob("*_test.go")
    found = {path.parent for path in tests if "func TestSmoke" in path.read_text()}
    return [f"./{folder.relative_to(ROOT)}" for folder in sorted(found)]


# All of it --------------------------------------------------------------------------------------


def _run(what: str, command: Sequence[str], **env: str) -> None:
    """Runs a command, whose output is shown. SystemExit where it fails."""
    started = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **env})
    if done.returncode != 0:
        print(shlex.join(command), file=sys.stderr)
        raise SystemExit(f"make test-arm64: {what} failed, exit code {done.returncode}")
    print(f"==> {what}: {time.monotonic() - started:.0f} s", flush=True)


def main(arguments: Sequence[str]) -> int:
    """Runs everything, or of Go what is named: packages, and flags of `go test`."""
    OUT.mkdir(parents=True, exist_ok=True)
    with locked(OUT / "arm64.lock", "the tests for arm64"):
        cross = find_cross()
        torch = toolchain.find_torch(install_torch())
        settings = build.Settings(torch, cross.cxx, OUT)
        bridge = [sys.executable, "-m", "pytorch_bridge", "build", "--torch", str(torch.dir)]
        own = {"CXX": shlex.join(cross.cxx.command), "GOTORCH_BUILD_DIR": str(OUT)}
        _run("libcgotorch.so", bridge, **own)
        go = [str(toolchain.find_go().path)]
        go_test = [*go, "test", f"-exec={shlex.join(cross.runner)}", "-timeout=60m"]
        if arguments:
            _run("go test", [*go_test, *arguments], **cross.environment())
            return 0
        scratch = OUT / "scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        wanted = programs(scratch)
        by_name = {program.name: program for program in wanted}
        made = {n: compile_program(cross, settings, p) for n, p in by_name.items()}
        for program in wanted:
            command = [*cross.runner, str(made[program.name]), *program.arguments]
            _run(program.name, command, **(program.environment or {}))
        _run("go vet", [*go, "vet", "./..."], **cross.environment())
        smoke = [*go_test, "-run=^TestSmoke", *smoke_packages()]
        _run("go test", smoke, **cross.environment())
        _run("an exported package", [*go_test, export_model()], **cross.environment())
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Missing as err:
        sys.exit(f"make test-arm64: {err}")
