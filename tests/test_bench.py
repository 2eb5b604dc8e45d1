"""What `make bench` compares is the same work: its models give the same numbers in Go and in Python."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytorch_bridge import bench
from pytorch_bridge.bench import functions, loading, measuring, peers, ranks, serving, training
from pytorch_bridge.native import toolchain
from pytorch_bridge.native.env import variables
from pytorch_bridge.native.toolchain import ROOT

STEPS = "5"
# One thread, and the batch that is quick.
NAMES = [
    "mlp_64_sgd",
    "mlp_64_foreach",
    "cnn_4_sgd",
    "transformer_1_foreach",
    "lstm_1_fused",
    "encoder_1_fused",
]


@pytest.fixture(scope="module")
def worker(library, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("bench") / "worker"
    command = [str(toolchain.find_go().path), "build", "-o", str(out), "./bench/goworker"]
    subprocess.run(command, cwd=ROOT, env={**os.environ, **variables()}, check=True)
    return out


def losses(*command: str) -> list[float]:
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return [float.fromhex(line) for line in done.stdout.split()]


def test_models_train_alike_in_go_and_python(worker):
    python = losses(sys.executable, str(ROOT / "bench/training_worker.py"), "losses", STEPS, *NAMES)
    assert losses(str(worker), "losses", STEPS, *NAMES) == python
    first_and_second = list(zip(python[:: int(STEPS)], python[1 :: int(STEPS)], strict=True))
    assert len(first_and_second) == len(NAMES)
    assert all(a != b for a, b in first_and_second)  # they are trained


def test_workers_of_two_ranks_answer(worker):
    """All cases, in Go and in Python; those that C++ lacks it says."""
    compiled = measuring.compile_cpp("ranks_worker", f"-I{ROOT / 'cgotorch/lacking'}")
    lines = "".join(f"{case} 1\n" for case in ranks.CASES if "67108864" not in case)
    for command in ([sys.executable, ranks.WORKER], [str(worker), "ranks"], compiled):
        done = subprocess.run(
            command, input=lines, capture_output=True, text=True, check=True, timeout=240
        )
        answers = done.stdout.splitlines()
        assert len(answers) == len(ranks.CASES) - 1, done.stderr
        assert all(len(a.split()) == 2 for a in answers) == (command is not compiled)
    assert subprocess.run([worker, "first_ranks", "2"], timeout=240, check=False).returncode == 0


def test_memory_of_a_sharded_rank_is_counted_alike(worker, library):
    """Between steps a rank has a half of parameters and of AdamW's averages, in either language."""
    sizes = ["4", "256"]
    python = [sys.executable, ranks.WORKER, "sharded", str(library.library), *sizes]
    whole = 4 * 256 * 257 * 4 / 2**20
    for command in ([str(worker), "sharded", *sizes], python):
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
        counted = json.loads(done.stdout)
        assert 1.5 * whole <= counted["between_mb"] <= 1.6 * whole
        # In a step gradients are there too, and units; all that is shared out would be 4.
        for name in counted.keys() & {"most_mb", "no_prefetch_mb"}:
            assert 2 * whole <= counted[name] < 3.5 * whole


def test_what_two_ranks_exchange(worker):
    """A rank sends its gradients once, and a sharded one its parameters and its gradients."""
    for job, sent in {"cnn_4_sgd": 4 * 12_810, "sharded": 2 * 8 * 4 * 1024 * 1025}.items():
        command = [str(worker), "exchanged", job]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
        figures = json.loads(done.stdout)
        assert sent <= figures["sent"] < 1.05 * sent
        assert figures["reduces"] == (8 if job == "sharded" else 1)
        assert min(figures[name] for name in ("alone_ms", "both_ms", "hop_us")) > 0


def test_the_formula_for_more_machines_is_a_ring():
    job = {"sent": 1e6, "reduces": 1, "hop_us": 50, "alone_ms": 20}
    for machines in ranks.MACHINES:
        # A buffer of a million bytes goes round twice, in as many pieces as there are machines.
        exchange = 2 * (machines - 1) * (8e6 / machines / 1e9 * 1e3 + 50 / 1000)
        waits, beside = ranks.efficiency(job, machines, 1)
        assert waits == pytest.approx(20 / (20 + exchange))
        assert beside == pytest.approx(min(1, 20 / exchange))


def test_loaders_load_alike_in_go_and_python(worker, tmp_path):
    """The same batches in the same order."""
    kinds = [kind for kind in loading.KINDS if f"loader_{kind}_0" in loading.CASES]
    subprocess.run([worker, "pictures", tmp_path], check=True)
    python = [sys.executable, str(ROOT / "bench/loading_worker.py")]
    go, torchs = (
        [
            [float(x) for x in line.split()]
            for line in subprocess.run(
                [*command, "loaded", str(tmp_path), *kinds],
                capture_output=True,
                text=True,
                check=True,
            ).stdout.splitlines()
        ]
        for command in ([str(worker)], python)
    )
    assert [targets for _, targets in go] == [targets for _, targets in torchs]
    assert len(go) == 2 * 157 + (8 if "jpegs" in kinds else 0)
    for (ours, _), (theirs, _) in zip(go, torchs, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-6)


def test_workers_have_the_cases(worker):
    """A case that a worker lacks would be an empty cell that nobody notices."""
    for mode, cases in {"scope": functions.CASES, "train_gc": training.CASES}.items():
        asked = "".join(f"{case} 1\n" for case in cases if "cnn" not in case)
        done = subprocess.run(
            [str(worker), mode], input=asked, capture_output=True, text=True, check=True
        )
        answers = done.stdout.splitlines()
        assert len(answers) == asked.count("\n")
        assert all(re.fullmatch(r"\d+ \d+", line) for line in answers), answers


def test_the_facts_of_graphs_are_found():
    command = [sys.executable, str(ROOT / "bench/graph_facts.py"), "mlp"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)


def test_peers_that_are_missing_are_left_out_with_a_sentence(monkeypatch):
    monkeypatch.setattr(peers, "shutil", SimpleNamespace(which=lambda name: None))
    assert peers.tch() == (
        "cargo is not on PATH, so tch-rs is left out (to install Rust: https://rustup.rs)"
    )
    monkeypatch.setenv("GOPROXY", "off")
    monkeypatch.setenv("GOMODCACHE", "/nowhere")
    made = peers.gomlx()
    assert isinstance(made, str)
    assert made.startswith("Go's modules for GoMLX are not to be had, so it is left out: ")


def test_a_section_is_measured_again_alone():
    text = f"# Benchmarks\n\nMachine: {bench.machine()}.\n\nthe median over 24 rounds of\n\n## A\n\n1\n\n## B\n\n2\n"
    assert bench.replaced(text, 24, "A", ["## A", "", "3"]) == text.replace("1\n", "3\n", 1)
    assert bench.replaced(text, 24, "B", ["## B", "", "3"]) == text.replace("2\n", "3\n")
    assert bench.replaced(text, 24, "C", ["## C", "", "3"]) == text + "\n## C\n\n3\n"
    for machine, rounds in (("Machine: another", 24), (f"Machine: {bench.machine()}", 25)):
        with pytest.raises(SystemExit, match="make bench"):
            bench.replaced(text.replace(f"Machine: {bench.machine()}", machine), rounds, "A", [])


def test_a_case_that_is_not_there_is_named():
    with pytest.raises(SystemExit, match="no case loader"):
        bench.main(1, ["loader"])


def answers(figures: dict, **rates: float) -> serving.Results:
    """Results of servers with so many requests a second, and so many µs at 70 % of that."""
    results = serving.Results(serving.CASES["mlp"], [])
    for key, rate in rates.items():
        title = {"fastapi": "FastAPI"}.get(key, key)
        results.ways.append(serving.Way(key, title, "raw", None, ours=key.startswith("go")))
        for clients in serving.CLIENTS:
            results.rates[key, clients] = [rate, 2 * rate, rate]
        results.times[key] = [figures.get(key, 1000.0)] * 200
        results.same[key] = [figures.get("go_rest", 1000.0)] * 200
        results.middle[key] = [100.0, 900.0, 110.0]
        results.memory[key] = 1000000
    return results


def test_a_server_is_held_to_the_best_of_the_others():
    results = answers(
        {"go_rest": 400.0, "fastapi": 1000.0, "mlserver": 900.0},
        go_rest=3500,
        go_grpc=1,
        fastapi=1000,
        mlserver=500,
    )
    assert results.peak("go_rest") == 3500
    results.direct = [40.0, 800.0, 45.0]  # the machine had other work in the second round
    assert results.above("go_rest") == 65
    *throughput, p99 = serving.targets(results)
    assert [(row.beside, row.figure, row.met, row.floor) for row in throughput] == [
        ("FastAPI", 3.5, True, None)
    ] * 3
    assert (p99.beside, p99.met, p99.floor) == ("mlserver", True, None)
    assert p99.figure == pytest.approx(400 / 900)
    slower = serving.targets(answers({}, go_rest=2900, go_grpc=1, fastapi=1000))
    assert [row.met for row in slower] == [False] * 4


def test_what_the_libraries_reach_alone_stands_beside_the_targets():
    results = answers(
        {"go_rest": 400.0, "fastapi": 1000.0}, go_rest=2000, go_grpc=1500, fastapi=1000
    )
    results.direct = [40.0, 800.0, 45.0]
    for key, rate, wait in (
        ("call_rest", 2200, 90.0),
        ("call_grpc", 1600, 99.0),
        ("wire_rest", 9000, 50.0),
        ("wire_grpc", 8000, 60.0),
    ):
        results.rates[key, 1] = [rate] * 3
        results.middle[key] = [wait, 880.0, wait + 5]
    one, more, most, p99 = serving.targets(results)
    assert one.floor == pytest.approx(2.2)
    assert more.floor is most.floor is None
    assert p99.floor == pytest.approx(95 / 1000)
    assert results.added("go_rest", "call_rest") == 15
    section = "\n".join(serving._section(results))
    assert "| throughput, 1 client | FastAPI | 3.00 | 2.00 | **missed** | 2.20 |" in section
    assert "above a direct call, µs | | 100 | 65 | met | 59 |" in section
    assert "| gotorch above net/http or grpc-go with the model | 15 | 6 |" in section
    assert "A direct call of the exported package takes 45 µs. The clients" in section
    results.last = [30.0, 720.0, 36.0]
    section = "\n".join(serving._section(results))
    assert (
        "45 µs, and one of a package that was exported with the channels last 0.80 times" in section
    )


def test_the_section_by_hand_stays():
    """`make bench-serve` writes the document, and keeps what it has not measured."""
    text = serving.DOCUMENT.read_text()
    kept = serving.soak_section(text)
    assert kept.startswith("## A million requests\n\n```sh\nmake soak-serve\n")
    assert text.endswith(f"\n\n{kept}\n")
    again = serving.document([], "a machine", [], kept)
    assert again.endswith(f"processes of a server.\n\n{kept}\n")
    assert serving.soak_section(again) == kept
    assert serving.soak_section(serving.document([], "a machine", [], "")) == ""


def test_a_server_that_cannot_be_installed_is_left_out_with_a_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr(serving, "VENVS", tmp_path)
    why = serving.install("nothing", [str(tmp_path / "there-is-no-such-file.whl")])
    assert why.startswith("nothing cannot be installed here, and is left out: ")
    assert not (tmp_path / "nothing/ready").exists()


@pytest.fixture(scope="module")
def load(library, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("load")
    command = [str(toolchain.find_go().path), "build", "-o", str(out), "./bench/serving/load"]
    subprocess.run(command, cwd=ROOT, env={**os.environ, **variables()}, check=True)
    return out / "load"


def test_the_clients_compare_answers_and_charge_for_waiting(load, tmp_path):
    """A server that answers one request at a time, in 20 ms, with the input doubled; with `wrong`
    it is wrong."""

    class Doubles(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        one = threading.Lock()

        def do_POST(self):
            body = struct.unpack("<2f", self.rfile.read(int(self.headers["Content-Length"])))
            with self.one:
                time.sleep(0.02)
            off = 0.1 if self.path == "/wrong" else 0
            out = struct.pack("<2f", *(2 * x + off for x in body))
            self.send_response(200)
            self.send_header("Content-Length", str(len(out)))
            self.end_headers()
            self.wfile.write(out)

        def log_message(self, *args):
            pass

    (tmp_path / "in").write_bytes(struct.pack("<4f", 1, 2, 3, 4))
    (tmp_path / "out").write_bytes(struct.pack("<4f", 2, 4, 6, 8))
    with ThreadingHTTPServer(("127.0.0.1", 0), Doubles) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = {
            "Kind": "raw",
            "Address": f"127.0.0.1:{server.server_port}",
            "Path": "/",
            "Type": "FP32",
            "Shape": [2],
            "Inputs": str(tmp_path / "in"),
            "Outputs": str(tmp_path / "out"),
            "Clients": 4,
            "Seconds": 0.3,
        }
        jobs = [base, {**base, "Rate": 200}, {**base, "Path": "/wrong"}, {**base, "Kind": "no"}]
        done = subprocess.run(
            [load],
            input="".join(json.dumps(j) + "\n" for j in jobs),
            capture_output=True,
            text=True,
        )
        server.shutdown()
    closed, at_a_rate, wrong, unknown = map(json.loads, done.stdout.splitlines())
    assert closed["Requests"] >= 4
    assert closed["Rate"] <= 55
    # 60 requests are due in 0.3 s, and take 1.2 s: the last waits for what is before it.
    assert len(at_a_rate["Times"]) == 60
    assert max(at_a_rate["Times"]) >= 800_000
    assert "where Python has" in wrong["Error"]
    assert "no clients of kind" in unknown["Error"]
