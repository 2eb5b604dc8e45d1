"""A pytest plugin that collects and reports the tests and examples of the Go packages.

Each Go test, fuzz test and example with an `// Output:` comment is one item, so that
`pytest -k Index` and `pytest gotorch/tensor_test.go` select among them. They are found by reading
the source; the package is compiled once, when its first selected item runs, and its tests run in
one process. A package that does not compile is one failure with the compiler's message.

Tests named TestSmoke... carry the marker `smoke`: they must also pass with an older torch.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytorch_bridge.native import build, toolchain
from pytorch_bridge.native.toolchain import ROOT

TIMEOUT = "15m"

_FUNCTION = re.compile(
    r"^func (?P<name>Test\w*|Fuzz\w*)\(\w+ \*testing\.[TF]\)"
    r"|^func (?P<example>Example\w*)\(\) \{\n(?P<body>(?:.*\n)*?)\}$",
    re.M,
)
_HAS_OUTPUT = re.compile(r"^\s*// (Unordered )?[Oo]utput:", re.M)


def run_go(*arguments: str, cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs `go` as the build does, and returns its output as text."""
    go = toolchain.find_go()
    command = [str(go.path), *arguments]
    return subprocess.run(
        command, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True
    )


@functools.cache
def ensure_library() -> None:
    """Brings libcgotorch.so up to date, once per session."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        failed = build.main()
    if failed:
        raise RuntimeError(f"libcgotorch.so does not build:\n{said.getvalue()}")


@functools.cache
def _packages() -> dict[Path, str]:
    """The import path of every test file that belongs to this platform and these build tags.

    A package that is broken (-e) fails when its tests run, not here.
    """
    listed = run_go("list", "-e", "-json=Dir,ImportPath,TestGoFiles,XTestGoFiles", "./...")
    if listed.returncode != 0:
        raise RuntimeError(f"go list ./... failed:\n{listed.stderr}")
    decoder, text, files = json.JSONDecoder(), listed.stdout.strip(), {}
    while text:
        package, end = decoder.raw_decode(text)
        text = text[end:].lstrip()
        for name in package.get("TestGoFiles", []) + package.get("XTestGoFiles", []):
            files[Path(package["Dir"], name)] = package["ImportPath"]
    return files


def packages_with_tests() -> list[str]:
    """The import paths of the packages that have tests."""
    return sorted(set(_packages().values()))


class GoFailed(Exception):
    """A Go test failed; the text is what it printed."""


class PackageRun:
    """One `go test` process, read as far as the item that asks needs."""

    def __init__(self, package: str, names: list[str], *flags: str) -> None:
        ensure_library()
        self.package = package
        self.results: dict[str, tuple[str, float]] = {}
        self.outputs: dict[str, list[str]] = defaultdict(list)
        self.outside: list[str] = []
        """What belongs to no test: the compiler's messages, a crash."""
        self.told = False
        go = toolchain.find_go()
        command = [str(go.path), "test", "-json", "-vet=off", "-count=1", f"-timeout={TIMEOUT}"]
        command += [*flags, "-run", f"^({'|'.join(names)})$", package]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def result(self, name: str) -> tuple[str, float]:
        """How the test ended, "pass", "fail" or "skip", and its seconds."""
        assert self.process.stdout is not None
        while name not in self.results:
            line = self.process.stdout.readline()
            if not line:
                self.process.wait()
                return ("missing", 0.0)
            self._read(line)
        return self.results[name]

    def wait(self) -> list[str]:
        """Reads to the end; returns what the failed tests, or the compiler, printed."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._read(line)
        if self.process.wait() == 0:
            return []
        failed = [name for name, (state, _) in self.results.items() if state == "fail"]
        return [self.output(name) for name in failed] or ["".join(self.outside)]

    def _read(self, line: str) -> None:
        try:
            event: dict[str, Any] = json.loads(line)
        except ValueError:
            self.outside.append(line)
            return
        name, action = event.get("Test", ""), event["Action"]
        if action in ("output", "build-output"):
            test = name.partition("/")[0]
            (self.outputs[test] if test else self.outside).append(event["Output"])
        elif action in ("pass", "fail", "skip") and name and "/" not in name:
            self.results[name] = (action, event.get("Elapsed", 0.0))

    def output(self, name: str) -> str:
        noise = ("=== RUN", "=== PAUSE", "=== CONT", "=== NAME")
        return "".join(line for line in self.outputs[name] if not line.startswith(noise)).rstrip()

    def tell_outside(self, name: str) -> str:
        """Why a test has no result, in full to the first that asks."""
        if self.told:
            return f"did not run: see the first failures of {self.package}"
        self.told = True
        return f"{name} did not run:\n{''.join(self.outside).strip()}"

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


class GoTest(pytest.Item):
    """One Go test, fuzz test or example."""

    def __init__(self, *, package: str, line: int, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.package = package
        self.line = line
        self.seconds: float | None = None
        if self.name.startswith("TestSmoke"):
            self.add_marker("smoke")

    def runtest(self) -> None:
        runs = self.session.stash.setdefault(_runs, {})
        if self.package not in runs:
            items = [item for item in self.session.items if isinstance(item, GoTest)]
            names = [item.name for item in items if item.package == self.package]
            runs[self.package] = PackageRun(self.package, names)
        run = runs[self.package]
        state, self.seconds = run.result(self.name)
        if state == "skip":
            pytest.skip(run.output(self.name))
        if state == "missing" and run.told:
            pytest.skip(run.tell_outside(self.name))
        if state != "pass":
            told = run.output(self.name)
            if state == "missing":
                told = f"{run.tell_outside(self.name)}\n{told}"
            raise GoFailed(told.strip())

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, GoFailed):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.line, self.name


_runs = pytest.StashKey[dict[str, PackageRun]]()


class GoFile(pytest.File):
    """A _test.go file."""

    def collect(self) -> Iterator[GoTest]:
        package = _packages().get(self.path)
        if package is None:
            return
        text = self.path.read_text()
        for match in _FUNCTION.finditer(text):
            if match["example"] and not _HAS_OUTPUT.search(match["body"]):
                continue  # Go compiles it, and runs nothing
            yield GoTest.from_parent(
                self,
                name=match["name"] or match["example"],
                package=package,
                line=text.count("\n", 0, match.start()),
            )


def pytest_configure() -> None:
    """Gives every test the Go that the build uses, and threads that sleep while they wait.

    Those of OpenMP wait by spinning, also while what they wait for has no core: with as many
    processes as cores, a training takes ten times the processor time.
    """
    os.environ.update(toolchain.go_environment(toolchain.find_go()))
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Takes over the Go test files."""
    if file_path.name.endswith("_test.go"):
        return GoFile.from_parent(parent, path=file_path)
    return None


def unit(nodeid: str) -> str:
    """What stays together where several processes share the tests: those of a Go package, which run
    in one process of Go, and those of a Python file, which share fixtures. Under the race detector
    each package is a test."""
    file = nodeid.partition("::")[0]
    if file == "tests/test_race.py":
        return nodeid
    return str(Path(file).parent) if file.endswith("_test.go") else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Shares the tests among processes by their units."""
    from xdist.scheduler import LoadScopeScheduling  # not needed where one process runs them

    class ByUnit(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit(nodeid)

    return ByUnit(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where several processes share the tests, what takes long begins first, so that none waits for
    it at the end."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Reports the time that Go measured: a package's compilation is not its first test's."""
    report: Any = yield
    if isinstance(item, GoTest) and report.when == "call" and item.seconds is not None:
        report.duration = item.seconds
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Ends what an early stop leaves running."""
    for run in session.stash.get(_runs, {}).values():
        run.close()
