"""Makes mutants of an area's files and runs its tests on each:

    python -m pytorch_bridge.testing.mutants rewrite link --minutes 20
    python -m pytorch_bridge.testing.mutants go --file places scope    of these files only
    python -m pytorch_bridge.testing.mutants c --again                 who survived, once more
    python -m pytorch_bridge.testing.mutants --report                  figures, and who survived

The mutants of an area are tried in an order that the seed gives, one at a time. Results are in
build/mutants/results.jsonl, one line each, written as they come: whoever is stopped goes on there.
All is done in a copy of the working tree, build/mutants/tree, which the tool may write into.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from ...native.env import variables
from ...native.toolchain import ROOT, build_dir
from .areas import AREAS, Area, files_of
from .mutating import Mutant, all_applied, mutants

FOLDER = build_dir() / "mutants"
TREE = FOLDER / "tree"
RESULTS = FOLDER / "results.jsonl"
EQUIVALENT = Path(__file__).with_name("equivalent.yaml")

GIGABYTES = 8  # of memory, for a process
# The tests of a mutant may take this many times what they take without, and some seconds.
TIMES_SLOWER, SECONDS_MORE = 4, 60


# ---- the copy


def copy_tree() -> None:
    """Brings the copy to what the working tree has now: what git knows, and what is new."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    wanted = {name for name in listed.split("\0") if name and (ROOT / name).is_file()}
    TREE.mkdir(parents=True, exist_ok=True)
    for path in [*TREE.rglob("*")]:
        name = str(path.relative_to(TREE))
        ours = name.startswith(("build/", ".venv/")) or "__pycache__" in name
        if (
            path.is_file()
            and not ours
            and name not in wanted
            and name != "gotorch/internal/ctorch/headers_gen.h"
        ):
            path.unlink()
    for name in wanted:
        place = TREE / name
        if not place.exists() or place.read_bytes() != (ROOT / name).read_bytes():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place)
    if not (TREE / ".venv").exists():
        (TREE / ".venv").symlink_to(ROOT / ".venv")
    for kept in ("cache", "obj"):  # what takes long to make
        if (build_dir() / kept).exists() and not (TREE / "build" / kept).exists():
            shutil.copytree(build_dir() / kept, TREE / "build" / kept)


def environment() -> dict[str, str]:
    """For the tests of a mutant: they find the copy, and no graph that another mutant made."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GOTORCH_")}
    env["PYTHONPATH"] = str(TREE)
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    env["GOTORCH_CACHE"] = str(FOLDER / "graphs")
    # As `python -m pytorch_bridge env` in the copy says.
    env |= {k: v.replace(str(build_dir()), str(TREE / "build")) for k, v in variables().items()}
    return env


def fresh_graphs() -> None:
    """The graphs that the code without a mutant compiled, for one mutant to find and spoil."""
    shutil.rmtree(FOLDER / "graphs", ignore_errors=True)
    if (FOLDER / "graphs-before").exists():
        shutil.copytree(FOLDER / "graphs-before", FOLDER / "graphs", copy_function=os.link)


# ---- commands


def _pytest(arguments: list[str]) -> int:
    """pytest in a process that has torch already; ours of the checkout is not to be found in it."""
    for name in [*sys.modules]:
        if name.split(".")[0] == "pytorch_bridge":
            del sys.modules[name]
    ours = ("", str(ROOT), str(FOLDER / "packages"))
    sys.path[:] = [str(TREE), *(path for path in sys.path if path not in ours)]
    sys.dont_write_bytecode = True
    import pytest

    return int(pytest.main(arguments, plugins=[_FastFirst()]))


class _FastFirst:
    """A plugin of pytest: the tests that took least come first, so that most mutants end soon."""

    def __init__(self) -> None:
        self.file = FOLDER / "durations.json"
        self.took: dict[str, float] = {}
        with contextlib.suppress(OSError, ValueError):
            self.took = json.loads(self.file.read_text())

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items.sort(key=lambda item: self.took.get(item.nodeid, 0.0))

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call":
            self.took[report.nodeid] = round(report.duration, 2)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if exitstatus == 0:
            self.file.write_text(json.dumps(self.took, indent=0))


def run(command: list[str], seconds: float, mutant: int = 0) -> tuple[int | None, str]:
    """The exit status and the output; None where the time was over. `mutant` is the one that is in
    effect, of a program that has several."""
    env = environment()
    if mutant:
        env["GOTORCH_MUTANT"] = str(mutant)
    log = FOLDER / "output.txt"
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.chdir(TREE)
            os.environ.clear()
            os.environ.update(env)
            resource.setrlimit(resource.RLIMIT_DATA, (GIGABYTES << 30,) * 2)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            with log.open("wb") as out, open(os.devnull) as nothing:
                os.dup2(nothing.fileno(), 0)
                os.dup2(out.fileno(), 1)
                os.dup2(out.fileno(), 2)
            if command[:3] == ["python", "-m", "pytest"]:
                code = _pytest(command[3:])
                sys.stdout.flush()
                os._exit(code)
            program = str(TREE / ".venv/bin/python") if command[0] == "python" else command[0]
            os.execvpe(program, [program, *command[1:]], env)
        finally:
            os._exit(99)
    end, status = time.monotonic() + seconds, None
    try:
        while status is None and time.monotonic() < end:
            done, wait = os.waitpid(child, os.WNOHANG)
            if done:
                status = os.waitstatus_to_exitcode(wait)
            else:
                time.sleep(0.05)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # with all that it has started
        if status is None:
            os.waitpid(child, 0)
    return status, log.read_text(errors="replace")


_FAILED = re.compile(
    r"^(?:FAILED|ERROR) (\S+)|^\s*--- FAIL: (\S+)|^(panic: .*|fatal error: .*|SIG\w+: .*)", re.M
)


def who_failed(output: str) -> str:
    found = _FAILED.search(output)
    if found:
        return next(group for group in found.groups() if group)[:200]
    return (output.strip().splitlines() or ["no output"])[-1][:200]


# ---- one area


class Tests:
    """How long the tests of an area take, which are to be green without a mutant.

    That is kept in build/mutants/seconds.json until a file of the copy changes.
    """

    def __init__(self) -> None:
        self.file = FOLDER / "seconds.json"
        self.tree = _digest_of_tree()
        self.seconds: dict[str, float] = {}
        with contextlib.suppress(OSError, ValueError):
            kept = json.loads(self.file.read_text())
            if kept["tree"] == self.tree:
                self.seconds = kept["seconds"]

    def known(self, command: list[str]) -> bool:
        return shlex.join(command) in self.seconds

    def seconds_of(self, command: list[str]) -> float:
        """The seconds that the command takes; the whole is ended where it fails."""
        name = shlex.join(command)
        if name not in self.seconds:
            fresh_graphs()
            started = time.monotonic()
            status, output = run(command, 3600)
            if status != 0:
                sys.exit(f"without a mutant, this fails:\n  {name}\n{output[-3000:]}")
            shutil.rmtree(FOLDER / "graphs-before", ignore_errors=True)
            if (FOLDER / "graphs").exists():
                (FOLDER / "graphs").rename(FOLDER / "graphs-before")
            self.seconds[name] = round(time.monotonic() - started, 1)
            self.file.write_text(json.dumps({"tree": self.tree, "seconds": self.seconds}))
        return self.seconds[name]


def _digest_of_tree() -> str:
    digest = hashlib.sha256()
    for folder in ("pytorch_bridge", "cgotorch", "gotorch", "tests"):
        for path in sorted((TREE / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def try_one(area: Area, tests: Tests, mutant: Mutant) -> tuple[str, str]:
    """The result, and by what."""
    place = TREE / mutant.file
    source = place.read_bytes()
    broken = mutant.applied(source)

    def compiled(text: bytes) -> str:
        """What the compiler says against this text of the file."""
        place.write_bytes(text)
        if place.suffix == ".py":
            try:
                compile(text, mutant.file, "exec")
            except SyntaxError as err:
                return str(err)
        for command in area.compile:
            status, output = run(command, 900)
            if status != 0:
                return who_failed(output)
        return ""

    try:
        # How long tests take is known when they are needed: few mutants come to the last ones.
        stages = area.stages(TREE, mutant.file)
        if said := compiled(broken):
            return "does not compile", said
        for command in stages:
            if not tests.known(command):
                compiled(source)
                tests.seconds_of(command)
                compiled(broken)
            result = tested(command, tests, 0)
            if result is not None:
                return result
        return "survived", ""
    finally:
        place.write_bytes(source)


def tested(command: list[str], tests: Tests, n: int) -> tuple[str, str] | None:
    """What the tests of a stage say; None where they pass."""
    limit = TIMES_SLOWER * tests.seconds_of(command) + SECONDS_MORE
    fresh_graphs()
    status, output = run(command, limit, n)
    if status is None:
        return "timed out", shlex.join(command)
    return None if status == 0 else ("killed", who_failed(output))


def try_several(
    area: Area, tests: Tests, batch: list[Mutant]
) -> Iterator[tuple[Mutant, str, str, float]]:
    """Each mutant, its result, by what, and the seconds; all of them are in one program."""
    numbered = list(enumerate(batch, 1))
    files = sorted({m.file for m in batch})
    sources = {file: (TREE / file).read_bytes() for file in files}
    switch = {file: text.encode() for file, text in area.switch(TREE, files).items()}
    try:
        for file in {*files, *switch}:
            mine = [(n, m) for n, m in numbered if m.file == file]
            text = all_applied(sources.get(file, b""), mine)
            (TREE / file).write_bytes(switch.get(file, b"") + text)
        compiles = all(run(command, 1800)[0] == 0 for command in area.compile)
        if compiles:
            for n, mutant in numbered:
                started = time.monotonic()
                results = (tested(c, tests, n) for c in area.stages(TREE, mutant.file))
                found = next((r for r in results if r is not None), ("survived", ""))
                yield mutant, *found, time.monotonic() - started
    finally:
        for file in {*files, *switch}:
            if file in sources:
                (TREE / file).write_bytes(sources[file])
            else:
                (TREE / file).unlink(missing_ok=True)
    if not compiles and len(batch) == 1:
        yield batch[0], "does not compile", "", 0.0
    elif not compiles:
        for half in (batch[: len(batch) // 2], batch[len(batch) // 2 :]):
            yield from try_several(area, tests, half)


def batches(order: list[Mutant], size: int, one_file: bool) -> Iterator[list[Mutant]]:
    """The mutants that can be switched, so many at a time, in the order as far as may be; then each
    of the others alone."""
    left = [m for m in order if m.switched is not None] if size > 1 else []
    while left:
        batch: list[Mutant] = []
        for mutant in left:
            apart = all(m.file != mutant.file or _apart(m, mutant) for m in batch)
            if apart and (not one_file or not batch or mutant.file == batch[0].file):
                batch.append(mutant)
            if len(batch) == size:
                break
        taken = set(batch)
        left = [m for m in left if m not in taken]
        yield batch
    yield from ([m] for m in order if size == 1 or m.switched is None)


def _apart(a: Mutant, b: Mutant) -> bool:
    assert a.switched is not None
    assert b.switched is not None
    return a.switched[1] <= b.switched[0] or b.switched[1] <= a.switched[0]


def read_results() -> dict[tuple[str | int, ...], dict[str, Any]]:
    """The last result of each mutant, by its key."""
    results = {}
    if RESULTS.exists():
        for line in RESULTS.read_text().splitlines():
            one = json.loads(line)
            results[tuple(one[k] for k in ("file", "text", "kind", "old", "new", "nth"))] = one
    return results


def run_area(name: str, chosen: argparse.Namespace, end: float) -> None:
    area = AREAS[name]
    known = read_results()
    order = [m for file in files_of(area, TREE) for m in mutants(TREE, file)]
    random.Random(chosen.seed).shuffle(order)
    if chosen.file:
        order = [m for m in order if Path(m.file).stem in chosen.file]
    if chosen.again:
        order = [m for m in order if known.get(m.key, {}).get("result") == "survived"]
    else:
        order = [m for m in order if m.key not in known]
    for command in area.prepare:
        status, output = run(command, 3600)
        if status != 0:
            sys.exit(f"{shlex.join(command)} fails:\n{output[-3000:]}")
    tests = Tests()
    for batch in batches(order, area.at_once, one_file=name == "c"):
        if time.monotonic() > end:
            break
        started = time.monotonic()
        if batch[0].switched is None:
            result, by = try_one(area, tests, batch[0])
            record(name, batch[0], result, by, time.monotonic() - started)
            continue
        for mutant, result, by, seconds in try_several(area, tests, batch):
            record(name, mutant, result, by, seconds)
            if time.monotonic() > end:
                break
    if area.compile:  # leave no mutant in what is built
        for command in area.prepare:
            run(command, 3600)


def record(area: str, mutant: Mutant, result: str, by: str, seconds: float) -> None:
    keys = ("file", "line", "text", "kind", "old", "new", "nth")
    line: dict[str, Any] = {"area": area, **{key: getattr(mutant, key) for key in keys}}
    line |= {"result": result, "by": by, "seconds": round(seconds, 1)}
    with RESULTS.open("a") as out:
        print(json.dumps(line), file=out)
    place = f"{mutant.file}:{mutant.line}: {mutant.kind}: {shown(mutant)}"
    print(f"{result:16} {seconds:6.1f} s  {place}  [{by[:60]}]", flush=True)


# ---- the report


def reason(mutant: Mutant, entries: list[dict[str, str]]) -> str | None:
    """Why no test can kill it, or need not, if somebody has said so."""
    for entry in entries:
        same = entry["file"] == mutant.file and entry["line"] == mutant.text
        if same and entry["kind"] == mutant.kind and entry.get("new", mutant.new) == mutant.new:
            return entry["reason"]
    return None


def report() -> None:
    """Figures by area of the mutants that the files of now still have, and the survivors."""
    entries, known = yaml.safe_load(EQUIVALENT.read_text()) or [], read_results()
    print("| area | mutants | tried | do not compile | killed | timed out | explained | survived |")
    print("|-|-|-|-|-|-|-|-|")
    left = []
    for name, area in AREAS.items():
        everything = [m for file in files_of(area, ROOT) for m in mutants(ROOT, file)]
        count: Counter[str] = Counter()
        for mutant in everything:
            result = known.get(mutant.key, {}).get("result")
            if result == "survived" and reason(mutant, entries) is not None:
                result = "explained"
            elif result == "survived":
                left.append(mutant)
            if result is not None:
                count[result] += 1
        columns = ("does not compile", "killed", "timed out", "explained", "survived")
        figures = " | ".join(str(count[column]) for column in columns)
        print(f"| {name} | {len(everything)} | {sum(count.values())} | {figures} |")
    for mutant in left:
        print(f"\n{mutant.file}:{mutant.line}: {mutant.kind}: {shown(mutant)}\n  {mutant.text}")


def shown(mutant: Mutant) -> str:
    old, new = (" ".join(text.split())[:60] for text in (mutant.old, mutant.new))
    return f"{old} -> {new or 'nothing'}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m pytorch_bridge.testing.mutants")
    parser.add_argument("areas", nargs="*", metavar="AREA", help=", ".join(AREAS))
    parser.add_argument("--minutes", type=float, default=60, help="for each area")
    parser.add_argument("--seed", type=int, default=1, help="gives the order")
    parser.add_argument("--file", nargs="*", help="only files of these names, without the ending")
    parser.add_argument("--again", action="store_true", help="those that have survived")
    parser.add_argument("--report", action="store_true", help="only what is known")
    chosen = parser.parse_args()
    for name in set(chosen.areas) - set(AREAS):
        parser.error(f"there is no area {name}: there are {', '.join(AREAS)}")
    if not chosen.report:
        import torch  # noqa: F401  once, for the pytest of every mutant

        signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # and what it has started

        copy_tree()
        for name in chosen.areas or AREAS:
            run_area(name, chosen, time.monotonic() + 60 * chosen.minutes)
    report()


if __name__ == "__main__":
    main()
