"""`make bench-serve`: package serve beside what a user would pick instead.

The servers of bench/serving are given one processor, and bench/serving/load, the clients of all of
them, another. All run at once and those that nobody asks take no time, so that a round can ask one
after the other. Each speaks the protocol in which it is fastest, and each answer is compared with
Python's. A server whose packages cannot be installed is left out, and a sentence says so.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ..native import toolchain
from ..native.toolchain import ROOT
from .measuring import OUT, compile_go

SOURCES = ROOT / "bench" / "serving"
DOCUMENT = ROOT / "docs" / "benchmarks-serving.md"
VENVS = toolchain.build_dir() / "serving"
FOLDER = OUT / "serving"
MODELS = FOLDER / "models"
EXPORTED = OUT / "_serving"  # with a name that `go build ./...` passes over

CLIENTS = (1, 16, 64)
LOAD = 0.7  # of a server's own peak, where the time of answers is taken


@dataclass(frozen=True)
class Case:
    """A model, and for how many seconds a server is measured in a turn."""

    name: str
    title: str
    rounds: int
    closed: float
    open: float
    faster: float | None = None  # the target: how often the throughput of the best of the others


OPEN_ROUNDS = 3
CASES = {
    case.name: case
    for case in (
        Case("mlp", "MLP 784-512-10", 5, 2, 6, faster=3.0),
        Case("encoder", "encoder of 4 layers, width 256, 64 tokens", 3, 2.5, 8),
        Case("resnet18", "ResNet-18, 224×224", 3, 5, 12, faster=1.2),
    )
}


def processors() -> tuple[int, int]:
    """That of the servers, and that of the clients."""
    there = sorted(os.sched_getaffinity(0))
    return there[0], there[-1]


class Program:
    """A program that was started, with all that it has started itself."""

    def __init__(
        self,
        command: list[str],
        processor: int,
        log: Path,
        environment: dict[str, str] | None = None,
        talks: bool = False,
    ) -> None:
        self.log = log
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if talks else errors,  # nobody reads what others say
                stderr=errors,
                text=True,
                cwd=log.parent,
                start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
                preexec_fn=lambda: os.sched_setaffinity(0, {processor}),
            )

    def ask(self, line: str) -> Any:
        assert self.process.stdin
        assert self.process.stdout
        if line:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self.process.args!r} ended: {_end(self.log)}")
        return json.loads(answer)

    def memory(self) -> int:
        """Bytes that it and its children hold, what they share divided among them."""
        total = 0
        for pid in _session(self.process.pid):
            try:
                for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                    if line.startswith("Pss:"):
                        total += int(line.split()[1]) * 1024
            except OSError:
                pass  # it has ended
        return total

    def close(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in _session(self.process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            try:
                self.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                continue
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()


def _session(leader: int) -> list[int]:
    """The processes of a session: none of them is another's, as each program begins its own."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                if os.getsid(int(path.name)) == leader:
                    found.append(int(path.name))
            except ProcessLookupError:
                pass
    return found


def _end(log: Path) -> str:
    text = log.read_text(errors="replace").strip().splitlines()
    return text[-1] if text else "(no message)"


def _port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def install(name: str, packages: list[str]) -> str:
    """A Python with packages, beside the torch of this one; "" or why there is none."""
    folder = VENVS / name
    ready = folder / "ready"
    wanted = " ".join(packages)
    if ready.exists() and ready.read_text() == wanted:
        return ""
    shutil.rmtree(folder, ignore_errors=True)
    for command in (
        [sys.executable, "-m", "venv", "--without-pip", str(folder)],
        [sys.executable, "-m", "pip", "--python", str(_python(name)), "install", "-q", *packages],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["(no message)"])[-1]
            return f"{name} cannot be installed here, and is left out: {last}"
        site = next(folder.glob("lib/python*/site-packages"))
        # The torch that is here is found before pip looks for one.
        paths = [os.path.relpath(p, site) for p in sys.path if p.endswith("site-packages")]
        (site / "torch.pth").write_text("\n".join(paths) + "\n")
    ready.write_text(wanted)
    return ""


def version(server: str, package: str) -> str:
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    done = subprocess.run(
        [str(_python(server)), "-c", code], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def _python(server: str) -> Path:
    return VENVS / server / "bin" / "python"


@dataclass(frozen=True)
class Way:
    """A server. `start` starts it for a model: the program, and the jobs' fields that say where."""

    key: str
    title: str
    kind: str
    start: Callable[[str, Path], tuple[Program, dict[str, str]]]
    ours: bool = False


def _go(
    binary: str, protocol: str, name: str, folder: Path, *options: str
) -> tuple[Program, dict[str, str]]:
    command = [str(OUT / binary), "-model", name, "-dir", str(MODELS), *options]
    program = Program(command, processors()[0], folder / "log", talks=True)
    return program, {"Address": program.ask("")[protocol]}


def _fastapi(name: str, folder: Path) -> tuple[Program, dict[str, str]]:
    port = _port()
    command = [
        str(_python("fastapi")),
        str(SOURCES / "fastapi_server.py"),
        name,
        str(MODELS),
        str(port),
    ]
    program = Program(command, processors()[0], folder / "log")
    return program, {"Address": f"127.0.0.1:{port}", "Path": "/predict"}


def _environment(name: str) -> dict[str, str]:
    return {
        "PYTHONPATH": str(SOURCES),
        "SERVED_MODEL": name,
        "SERVED_FOLDER": str(MODELS),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _mlserver(name: str, folder: Path) -> tuple[Program, dict[str, str]]:
    grpc = _port()
    settings = {
        "debug": False,
        "host": "127.0.0.1",
        "parallel_workers": 0,  # another process would be slower on one processor
        "http_port": _port(),
        "grpc_port": grpc,
        "metrics_port": _port(),
    }
    model = {"name": name, "implementation": "mlserver_runtime.Runtime"}
    (folder / "settings.json").write_text(json.dumps(settings))
    (folder / "model-settings.json").write_text(json.dumps(model))
    command = [str(VENVS / "mlserver/bin/mlserver"), "start", str(folder)]
    program = Program(command, processors()[0], folder / "log", _environment(name))
    return program, {"Address": f"127.0.0.1:{grpc}"}


def _bentoml(name: str, folder: Path) -> tuple[Program, dict[str, str]]:
    port = _port()
    home = {"BENTOML_HOME": str(folder), "BENTOML_DO_NOT_TRACK": "True"}
    command = [str(VENVS / "bentoml/bin/bentoml"), "serve", "bentoml_service:Service"]
    command += ["--working-dir", str(SOURCES), "--host", "127.0.0.1", "--port", str(port)]
    environment = {**_environment(name), **home}
    program = Program(command, processors()[0], folder / "log", environment)
    return program, {"Address": f"127.0.0.1:{port}", "Path": "/predict"}


def _torchserve(name: str, folder: Path) -> tuple[Program, dict[str, str]]:
    port, bin_folder = _port(), VENVS / "torchserve" / "bin"
    environment = {
        **_environment(name),
        "PATH": f"{bin_folder}:{os.environ['PATH']}",
        "LOG_LOCATION": str(folder / "logs"),
        "METRICS_LOCATION": str(folder / "logs"),
    }
    archive = [str(bin_folder / "torch-model-archiver"), "--model-name", name, "--version", "1.0"]
    archive += ["--handler", str(SOURCES / "torchserve_handler.py"), "--export-path", str(folder)]
    subprocess.run([*archive, "--force"], env={**os.environ, **environment}, check=True)
    model = {
        "marName": f"{name}.mar",
        "minWorkers": 1,
        "maxWorkers": 1,
        "batchSize": 1 if name == "resnet18" else 8,
        "maxBatchDelay": 1,
        "responseTimeout": 120,
    }
    (folder / "config.properties").write_text(
        f"inference_address=http://127.0.0.1:{port}\n"
        f"management_address=http://127.0.0.1:{_port()}\n"
        f"metrics_address=http://127.0.0.1:{_port()}\n"
        "disable_token_authorization=true\nenable_envvars_config=false\n"
        f"load_models=all\nmodel_store={folder}\n"
        f"models={json.dumps({name: {'1.0': model}})}\n"
    )
    command = [
        str(bin_folder / "torchserve"),
        "--foreground",
        "--ncs",
        "--model-store",
        str(folder),
    ]
    command += ["--ts-config", str(folder / "config.properties"), "--disable-token-auth"]
    program = Program(command, processors()[0], folder / "log", environment)
    return program, {"Address": f"127.0.0.1:{port}", "Path": f"/predictions/{name}"}


PEERS: dict[str, tuple[str, list[str], str, Callable[[str, Path], tuple[Program, dict[str, str]]]]]
PEERS = {
    "fastapi": (
        "FastAPI, uvicorn",
        ["fastapi", "uvicorn[standard]", "torchvision"],
        "raw",
        _fastapi,
    ),
    "mlserver": ("MLServer, gRPC", ["mlserver", "torchvision"], "grpc", _mlserver),
    "bentoml": ("BentoML", ["bentoml", "torchvision"], "rawjson", _bentoml),
    "torchserve": (
        "TorchServe",
        ["torchserve", "torch-model-archiver", "pyyaml", "torchvision"],
        "raw",
        _torchserve,
    ),
}

LAST = {"resnet18": "resnet18_last"}
"""Packages of the same models that have their channels last."""

TARGET_WAY = "go_rest"
OURS = [
    Way("go_rest", "gotorch, REST", "v2", lambda *a: _go("serving_exported", "rest", *a), True),
    Way("go_grpc", "gotorch, gRPC", "grpc", lambda *a: _go("serving_exported", "grpc", *a), True),
    Way("go_nn", "gotorch, `nn`, REST", "v2", lambda *a: _go("serving_eager", "rest", *a), True),
]


def _floor(least: str, title: str, protocol: str, kind: str) -> Way:
    def start(name: str, folder: Path) -> tuple[Program, dict[str, str]]:
        return _go("serving_exported", protocol, name, folder, "-floor", least)

    return Way(f"{least}_{protocol}", title, kind, start, True)


FLOORS = [
    _floor("call", "net/http and the model", "rest", "v2"),
    _floor("call", "grpc-go and the model", "grpc", "grpc"),
    _floor("wire", "net/http", "rest", "v2"),
    _floor("wire", "grpc-go", "grpc", "grpc"),
]
"""What the libraries take without package serve: they read a request and answer it with as many
bytes as gotorch does; with `call` the handler calls the model at once. It is measured as the others
are: a server that is near it may come out ahead."""


def _floors(case: Case) -> list[Way]:
    """All of them where the target is in microseconds, and else the one that the others need."""
    return FLOORS if case.name == "mlp" else FLOORS[:1]


def prepare(names: list[str]) -> tuple[list[Way], list[str]]:
    """Installs, exports and compiles: the servers, and sentences about those that are missing."""
    missing, ways = [], []
    for key, (title, packages, kind, start) in PEERS.items():
        why = install(key, packages)
        if not why and key == "torchserve" and not shutil.which("java"):
            why = "TorchServe is left out, because java is not on PATH"
        if why:
            print(f"make bench-serve: {why}", file=sys.stderr, flush=True)
            missing.append(f"{why}.")
        else:
            ways.append(Way(key, title, kind, start))
    if not ways:
        raise SystemExit("bench: there is no server to compare with: " + " ".join(missing))
    python = str(_python(ways[0].key))
    models = [python, str(SOURCES / "models.py")]
    subprocess.run([*models, str(MODELS), *names], check=True)
    shutil.rmtree(EXPORTED, ignore_errors=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [*models, "export", str(MODELS), str(EXPORTED), *names]
    subprocess.run(command, env=environment, check=True)
    packages = [*names, *(LAST[name] for name in names if name in LAST)]
    (EXPORTED / "main.go").write_text(_main(packages))
    compile_go(f"./{EXPORTED.relative_to(ROOT)}", "serving_exported")
    compile_go("./bench/serving/eager", "serving_eager")
    compile_go("./bench/serving/load", "serving_load")
    return [*OURS, *ways], missing


def _main(names: list[str]) -> str:
    """A program that serves the packages of export_go."""
    where = EXPORTED.relative_to(ROOT)
    imports = "".join(f'\t{name} "gotorch.dev/{where}/{name}"\n' for name in names)
    cases = "".join(
        f"\t\tcase {json.dumps(name)}:\n\t\t\treturn load({name}.Load(dir)).Forward\n"
        for name in names
    )
    return (
        "package main\n\nimport (\n\t"
        '"log"\n\n\t"gotorch.dev/bench/serving/server"\n\t"gotorch.dev/gotorch"\n'
        f"{imports})\n\n"
        "func load[N any](net N, err error) N {\n\tif err != nil {\n\t\tlog.Fatal(err)\n\t}\n"
        "\treturn net\n}\n\n"
        "func main() {\n\tserver.Main(func(name, _ string) func(gotorch.Tensor) gotorch.Tensor {\n"
        f'\t\tdir := {json.dumps(str(EXPORTED))} + "/" + name\n'
        f"\t\tswitch name {{\n{cases}\t\t}}\n"
        '\t\tlog.Fatalf("there is no model %s", name)\n\t\treturn nil\n\t})\n}\n'
    )


@dataclass
class Results:
    """What was measured of a model, by server."""

    case: Case
    ways: list[Way]
    rates: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    middle: dict[str, list[float]] = field(default_factory=dict)  # µs, of one client
    times: dict[str, list[float]] = field(default_factory=dict)  # µs, at LOAD of its own peak
    # µs, of TARGET_WAY under the load that another had, by the other
    same: dict[str, list[float]] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    client: float = 0  # the most of its processor that the load generator took
    direct: list[float] = field(default_factory=list)  # µs of a call without a server, by round
    last: list[float] = field(default_factory=list)  # the same of the package of LAST

    def rate(self, way: str, clients: int) -> float:
        return statistics.median(self.rates[way, clients])

    def peak(self, way: str) -> float:
        return max(self.rate(way, n) for n in CLIENTS)

    def p99(self, way: str) -> float:
        return _p99(self.times[way])

    def ratio(self, way: str, to: str, clients: int) -> float:
        """The median over rounds of the ratio in the same round."""
        pairs = zip(self.rates[way, clients], self.rates[to, clients], strict=True)
        return statistics.median(a / b for a, b in pairs)

    def above(self, way: str) -> float:
        """What one client waits above a direct call in the same round, in µs."""
        pairs = zip(self.middle[way], self.direct, strict=True)
        return statistics.median(a - b for a, b in pairs)

    def added(self, way: str, floor: str) -> float:
        """What one client waits longer than for a floor in the same round, in µs."""
        pairs = zip(self.middle[way], self.middle[floor], strict=True)
        return statistics.median(a - b for a, b in pairs)

    def others(self) -> list[Way]:
        return [way for way in self.ways if not way.ours]


def _p99(times: list[float]) -> float:
    return sorted(times)[min(len(times) - 1, len(times) * 99 // 100)]


def _outputs(way: Way, name: str) -> Path:
    """The file with the right answers: zeros, where there is no model."""
    real = MODELS / name / "outputs.bin"
    if not way.key.startswith("wire_"):
        return real
    zeros = real.with_name("zeros.bin")
    zeros.write_bytes(bytes(real.stat().st_size))
    return zeros


class Server:
    """A server that runs, as the clients reach it."""

    def __init__(self, way: Way, name: str) -> None:
        self.way = way
        spec = json.loads((MODELS / name / "spec.json").read_text())
        folder = FOLDER / f"{way.key}-{name}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.program, where = way.start(name, folder)
        self.job = {
            "Kind": way.kind,
            "Model": name,
            "Input": spec["input"],
            "Type": spec["type"],
            "Shape": spec["shape"],
            "Inputs": str(MODELS / name / "inputs.bin"),
            "Outputs": str(_outputs(way, name)),
            **where,
        }

    def ask(self, load: Program, clients: int, seconds: float, rate: float = 0) -> dict[str, Any]:
        job = {**self.job, "Clients": clients, "Seconds": seconds, "Rate": rate}
        return load.ask(json.dumps(job))

    def ready(self, load: Program, patience: float = 120) -> str:
        """Waits until it answers as Python does, alone and in batches; "" or why it does not."""
        end = time.monotonic() + patience
        while True:
            error = self.ask(load, 1, 0.2).get("Error", "")
            if not error:
                return self.ask(load, 16, 0.5).get("Error", "")
            wrong = "Python has" in error
            if wrong or self.program.process.poll() is not None or time.monotonic() > end:
                return error
            time.sleep(0.5)


def measure(case: Case, ways: list[Way], factor: float = 1.0) -> Results:
    """Measures one model. `factor` is of all times: less is quicker, and less steady."""
    results = Results(case, [])
    with tempfile.TemporaryDirectory() as folder:
        load = Program(
            [str(OUT / "serving_load")], processors()[1], Path(folder, "log"), talks=True
        )
        servers: list[Server] = []
        floors: list[Server] = []
        try:
            for way in _floors(case):
                floors.append(Server(way, case.name))
                if why := floors[-1].ready(load):
                    raise RuntimeError(f"{way.title}, {case.name}: {why}")
            for way in ways:
                server = Server(way, case.name)
                servers.append(server)
            for server in list(servers):
                if why := server.ready(load):
                    _leave_out(results, servers, server, why)
            results.ways = [server.way for server in servers]
            _closed(results, servers, floors, load, factor, Path(folder, "direct"))
            for server in floors:
                server.program.close()
            _open(results, servers, load, factor)
            for server in servers:
                results.memory[server.way.key] = server.program.memory()
        finally:
            for server in [*servers, *floors]:
                server.program.close()
            load.close()
    return results


def _leave_out(results: Results, servers: list[Server], server: Server, why: str) -> None:
    """Goes on without a server of others that does not answer."""
    if server.way.ours:
        raise RuntimeError(f"{server.way.title}, {results.case.name}: {why}")
    message = f"{server.way.title} does not answer, and is left out: {why}"
    print(f"make bench-serve: {results.case.name}: {message}", file=sys.stderr, flush=True)
    results.missing.append(f"{message}.")
    server.program.close()
    servers.remove(server)
    results.ways = [s.way for s in servers]
    if not results.others():
        raise RuntimeError(f"no other server answers with {results.case.name}")


def _asked(results: Results, servers: list[Server], server: Server, *job: Any) -> dict[str, Any]:
    """What the clients measured; {} where the server does not answer any more."""
    figures = server.ask(*job)
    if why := figures.get("Error"):
        _leave_out(results, servers, server, why)
        return {}
    results.client = max(results.client, figures["CPU"])
    return figures


def _closed(
    results: Results,
    servers: list[Server],
    floors: list[Server],
    load: Program,
    factor: float,
    log: Path,
) -> None:
    for _ in range(results.case.rounds):
        results.direct.append(_direct(results.case, log))
        if package := LAST.get(results.case.name):
            results.last.append(_direct(results.case, log, "-package", package))
        for clients in CLIENTS:
            for server in [*servers, *floors] if clients == 1 else list(servers):
                seconds = results.case.closed * factor
                figures = _asked(results, servers, server, load, clients, seconds)
                if not figures:
                    continue
                key = server.way.key
                results.rates.setdefault((key, clients), []).append(figures["Rate"])
                if clients == 1:
                    results.middle.setdefault(key, []).append(figures["P50"])
        print(_line(results), flush=True)


def _open(results: Results, servers: list[Server], load: Program, factor: float) -> None:
    def times(server: Server, of: str) -> list[float]:
        rate = LOAD * results.peak(of)
        seconds = results.case.open * factor
        figures = _asked(results, servers, server, load, CLIENTS[-1], seconds, rate)
        return figures.get("Times", [])

    target = next(server for server in servers if server.way.key == TARGET_WAY)
    for _ in range(OPEN_ROUNDS):
        for server in list(servers):
            key = server.way.key
            results.times.setdefault(key, []).extend(times(server, key))
            if server in servers and not server.way.ours:
                results.same.setdefault(key, []).extend(times(target, key))
    shown = "  ".join(f"{way.key} {results.p99(way.key) / 1000:.2f}" for way in results.ways)
    print(f"{results.case.name:9} p99 at {LOAD:.0%} of peak, ms: {shown}", flush=True)


def _direct(case: Case, log: Path, *options: str) -> float:
    command = [str(OUT / "serving_exported"), "-model", case.name, "-dir", str(MODELS), *options]
    times = {"mlp": 20000, "encoder": 200}.get(case.name, 20)
    program = Program([*command, "-direct", str(times)], processors()[0], log, talks=True)
    try:
        return program.ask("") / 1000
    finally:
        program.close()


def _line(results: Results) -> str:
    parts = [f"{results.case.name:9} requests/s"]
    for way in results.ways:
        rates = "/".join(f"{results.rate(way.key, n):.0f}" for n in CLIENTS)
        parts.append(f"{way.key} {rates}")
    return "  ".join(parts)


class Target(NamedTuple):
    what: str
    beside: str
    target: float
    figure: float
    met: bool
    floor: float | None  # the figure of FLOORS, where they have one


def targets(results: Results) -> list[Target]:
    rows: list[Target] = []
    others = results.others()
    floor = "call_rest" if "call_rest" in results.middle else None
    if want := results.case.faster:
        for n in CLIENTS:
            best = max(others, key=lambda way: results.rate(way.key, n))
            ratio = results.ratio(TARGET_WAY, best.key, n)
            least = results.ratio(floor, best.key, n) if floor and n == 1 else None
            what = f"throughput, {n} client{'s' if n > 1 else ''}"
            rows.append(Target(what, best.title, want, ratio, ratio >= want, least))
    by_title = {way.title: way.key for way in others}
    ratios = {title: _p99(results.same[key]) / results.p99(key) for title, key in by_title.items()}
    worst = max(ratios, key=lambda title: ratios[title])
    what = f"p99 of both at {LOAD:.0%} of the other's peak"
    # No answer comes sooner than one that waits for nothing but its own run.
    least = None
    if floor:
        least = statistics.median(results.middle[floor]) / results.p99(by_title[worst])
    rows.append(Target(what, worst, 0.5, ratios[worst], ratios[worst] <= 0.5, least))
    return rows


def _waiting(results: Results) -> list[str]:
    """What one client waits, and how much of that is not the server's doing."""
    if "wire_rest" not in results.middle:
        return []
    rows: list[tuple[str, Callable[[str], float]]] = [
        ("a direct call", lambda _: statistics.median(results.direct)),
        ("net/http or grpc-go alone", lambda p: statistics.median(results.middle[f"wire_{p}"])),
        ("with the model", lambda p: statistics.median(results.middle[f"call_{p}"])),
        ("gotorch", lambda p: statistics.median(results.middle[f"go_{p}"])),
        (
            "gotorch above net/http or grpc-go with the model",
            lambda p: results.added(f"go_{p}", f"call_{p}"),
        ),
    ]
    lines = ["", "| what one client waits, µs | REST | gRPC |", "|-|-:|-:|"]
    for what, of in rows:
        lines.append(f"| {what} | {of('rest'):.0f} | {of('grpc'):.0f} |")
    return lines


def _verdict(met: bool) -> str:
    return "met" if met else "**missed**"


def _section(results: Results) -> list[str]:
    base = next((w for w in results.ways if w.key == "fastapi"), results.others()[0])
    heads = [f"{n} client{'s' if n > 1 else ''}" for n in CLIENTS]
    lines = [
        f"## {results.case.title}",
        "",
        f"| | {' | '.join(heads)} | p99 at {LOAD:.0%} of its own peak | memory |",
        "|-|" + "-:|" * (len(CLIENTS) + 2),
    ]
    absolute = [f"{results.rate(base.key, n):,.0f}/s" for n in CLIENTS]
    absolute.append(f"{results.p99(base.key) / 1000:.2f} ms")
    absolute.append(f"{results.memory[base.key] / 1e6:.0f} MB")
    lines.append(f"| {base.title} | " + " | ".join(absolute) + " |")
    for way in results.ways:
        if way is base:
            continue
        cells = [f"{results.ratio(way.key, base.key, n):.2f}" for n in CLIENTS]
        cells.append(f"{results.p99(way.key) / results.p99(base.key):.2f}")
        cells.append(f"{results.memory[way.key] / results.memory[base.key]:.2f}")
        lines.append(f"| {way.title} | " + " | ".join(cells) + " |")
    lines += ["", "| gotorch, REST | beside | target | measured | | floor |"]
    lines.append("|-|-|-:|-:|-|-:|")
    for row in targets(results):
        least = "" if row.floor is None else f"{row.floor:.2f}"
        lines.append(
            f"| {row.what} | {row.beside} | {row.target:.2f} | {row.figure:.2f} | "
            f"{_verdict(row.met)} | {least} |"
        )
    if results.case.name == "mlp":
        for protocol, target in (("rest", 150), ("grpc", 100)):
            key, floor = f"go_{protocol}", f"call_{protocol}"
            title = next(way.title for way in OURS if way.key == key)
            over = results.above(key)
            least = f"{results.above(floor):.0f}" if floor in results.middle else ""
            lines.append(
                f"| {title}: what a client waits above a direct call, µs | | {target} | "
                f"{over:.0f} | {_verdict(over <= target)} | {least} |"
            )
    lines += _waiting(results)
    lines += [
        "",
        f"A direct call of the exported package takes "
        f"{statistics.median(results.direct):,.0f} µs{_last(results)}. The clients took "
        f"at most {results.client:.0%} of their processor."
        + "".join(f" {m}" for m in results.missing),
    ]
    return lines


def _last(results: Results) -> str:
    if not results.last:
        return ""
    ratio = statistics.median(a / b for a, b in zip(results.last, results.direct, strict=True))
    return f", and one of a package that was exported with the channels last {ratio:.2f} times that"


SOAK = "## A million requests"


def soak_section(text: str) -> str:
    """The section of the document that is written by hand, with what `make soak-serve` says."""
    _, found, section = text.partition(f"\n{SOAK}\n")
    return f"{SOAK}\n{section}".rstrip() if found else ""


def document(all_results: list[Results], machine: str, missing: list[str], kept: str) -> str:
    servers, clients = processors()
    versions = ", ".join(
        f"{package} {version(server, package)}"
        for server, package in (
            ("fastapi", "fastapi"),
            ("fastapi", "uvicorn"),
            ("mlserver", "mlserver"),
            ("bentoml", "bentoml"),
            ("torchserve", "torchserve"),
        )
        if (VENVS / server / "ready").exists()
    )
    apart = (
        "The servers share one processor and the clients have another, so that clients take no "
        "time from a server, and each server has what one processor gives"
        if servers != clients
        else "Servers and clients share one processor"
    )
    lines = [
        f'<!-- Generated by `make bench-serve` but for the section "{SOAK[3:]}"; '
        "do not edit the rest. -->",
        "# Serving, beside other servers",
        "",
        f"Machine: {machine}. {versions}.",
        "",
        f"{apart}, with one thread to an op. All are asked in turns by one program, "
        "`bench/serving/load`, over connections that stay open. Every answer is compared with "
        "Python's. Each server speaks the protocol in which it is fastest: FastAPI and TorchServe "
        "take and return the bytes of tensors, BentoML takes bytes and returns JSON, MLServer "
        "speaks gRPC, gotorch REST with binary tensors, and gRPC. gotorch serves packages of "
        "`export_go`, and in the row `nn` modules; the others run PyTorch in inference mode. "
        "gotorch joins requests in batches of what has come, with no delay, and TorchServe within "
        "a millisecond.",
        "",
        "The first columns are throughput, in a closed loop: ratios to "
        f"{PEERS['fastapi'][0]}, medians over rounds of the ratio in the same round; more is "
        "faster. The time of answers is taken in an open loop, in which requests are due at even "
        "intervals and their time counts from then, however late they are sent; less is faster. In "
        "the columns each server is under a load of its own; the target compares two under the "
        "same load, seven tenths of what the other can do, and shows the worst of them. "
        "The floor is the same figure of a server that is net/http, or grpc-go, and a handler that "
        "calls the exported package at once, without a queue and without looking at the request; "
        "of p99 it is what its single client waits. "
        "Memory is that of all processes of a server.",
    ]
    if missing:
        lines += ["", " ".join(missing)]
    for results in all_results:
        lines += ["", *_section(results)]
    if kept:
        lines += ["", kept]
    return "\n".join([*lines, ""])


def main(machine: str, cases: list[str], factor: float = 1.0) -> int:
    """Prepares, measures, prints and writes. With `cases` it only measures those."""
    if unknown := set(cases) - set(CASES):
        raise SystemExit(
            f"bench: there is no case {', '.join(sorted(unknown))}; there are {', '.join(CASES)}"
        )
    names = cases or list(CASES)
    FOLDER.mkdir(parents=True, exist_ok=True)
    ways, missing = prepare(names)
    results = [measure(CASES[name], ways, factor) for name in names]
    text = document(results, machine, missing, soak_section(DOCUMENT.read_text()))
    print(text)
    if not cases:
        DOCUMENT.write_text(text)
    return 0
