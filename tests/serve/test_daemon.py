"""The command gotorch-serve, and a program on package daemon, with other people's clients: tritonclient over TLS with
tokens, and a collector for traces. What needs no client but Go's is tested in Go.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest

from pytorch_bridge.native.toolchain import ROOT
from pytorch_bridge.testing.gotests import run_go

DIGITS = ROOT / ".venv/share/digits/mnist_5k.csv.gz"
TOKEN = "a-token-for-the-test-0123"
OLD = "a-token-that-was-good-0123"
TRACE = "0af7651916cd43dd8448eb211c80319c"


def build(folder: Path, package: str) -> Path:
    program = folder / Path(package).name
    built = run_go("build", "-buildvcs=false", "-o", str(program), package)
    assert built.returncode == 0, built.stderr
    return program


@contextmanager
def running(*command: str | Path, until: str = "daemon: ready") -> Iterator[dict[str, str]]:
    """The addresses of a server that has logged `until`, which must end well when it is told to."""
    environment = {**os.environ, "DIGITS": str(DIGITS), "OMP_NUM_THREADS": "1"}
    arguments = ["--http=127.0.0.1:0", "--grpc=127.0.0.1:0", "--metrics=127.0.0.1:0", "--drain=0"]
    with subprocess.Popen(
        [*command, *arguments, "--log.format=json"],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stderr is not None
        late = threading.Timer(120, process.kill)  # the test fails then, and waits no longer
        late.start()
        line = ""
        for line in process.stderr:
            if f'"{until}' in line:
                break
        else:
            pytest.fail(f"the server has ended: {line}")
        late.cancel()
        try:
            yield json.loads(line)
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("command"), "./cmd/gotorch-serve")


def test_the_command_says_what_it_is_and_what_is_wrong(command: Path, tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([command, *arguments], capture_output=True, text=True)

    assert run("--version").stdout.startswith("gotorch-serve ")
    file = tmp_path / "serve.yaml"
    file.write_text("http: :9000\nlimits:\n  request_bytes: 8MiB\n")
    assert run("--check", "--config", str(file)).stdout == "the configuration is right\n"
    file.write_text("htpp: :9000\nlimits:\n  request_bytes: 8MB\n")
    wrong = run("--config", str(file))
    assert wrong.returncode == 2
    assert wrong.stderr == (
        "gotorch-serve: the configuration is wrong:\n"
        f'{file}:1: there is no key "htpp"; is it http?\n'
        f'{file}:3: limits.request_bytes is "8MB": it must be a size, such as 64MiB\n'
    )


def test_spans_go_to_a_collector(command: Path) -> None:
    """OTLP over HTTP, in protobuf: names and ids stand in it as they are."""
    got: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            got.append((self.path, body))
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    collector = HTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=collector.serve_forever)
    thread.start()
    try:
        endpoint = f"http://127.0.0.1:{collector.server_port}"
        # It has no model, so that it is never ready.
        with running(command, f"--tracing.endpoint={endpoint}", until="daemon: alive") as at:
            request = urllib.request.Request(
                f"http://{at['http']}/v2/models/none/infer",
                data=b"{}",
                headers={"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"},
            )
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(request)
    finally:  # what was left has been sent when the command has ended
        collector.shutdown()
        thread.join()
        collector.server_close()
    assert [path for path, _ in got] == ["/v1/traces"]
    spans = got[0][1]
    for text in (b"gotorch-serve", b"infer", b"NOT_FOUND", b"none", bytes.fromhex(TRACE)):
        assert text in spans


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")
def test_tritonclient_comes_in_with_tls_and_a_token(tmp_path: Path) -> None:
    why = "pip install 'tritonclient[http,grpc]' for this test"
    http_client = pytest.importorskip("tritonclient.http", reason=why)
    grpc_client = pytest.importorskip("tritonclient.grpc", reason=why)
    from tritonclient.utils import InferenceServerException

    cert, key, tokens = (str(tmp_path / name) for name in ("cert.pem", "key.pem", "tokens"))
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    Path(tokens).write_text(f"me infer {TOKEN}\nonce infer {OLD} 2001-01-01T00:00:00Z\n")
    program = build(tmp_path, "./tests/serve/daemon")
    flags = [f"--tls.cert={cert}", f"--tls.key={key}", f"--auth.tokens={tokens}"]
    with running(program, *flags) as at:
        image = np.zeros((2, 1, 28, 28), np.float32)
        clients = [
            (http_client, http_client.InferenceServerClient(
                at["http"].replace("127.0.0.1", "localhost"), ssl=True, ssl_options={"ca_certs": cert})),
            (grpc_client, grpc_client.InferenceServerClient(
                at["grpc"].replace("127.0.0.1", "localhost"), ssl=True, root_certificates=cert)),
        ]  # fmt: skip
        for module, client in clients:
            value = module.InferInput("image", [2, 1, 28, 28], "FP32")
            value.set_data_from_numpy(image)
            assert client.is_server_live()
            assert client.is_server_ready()
            ok = client.infer("digits", [value], headers={"authorization": f"Bearer {TOKEN}"})
            np.testing.assert_allclose(ok.as_numpy("digit").sum(1), 1, rtol=1e-5)
            for header, word in (
                (f"Bearer {TOKEN}x", "not known"),
                (f"Bearer {OLD}", "expired"),
                (f"Basic {TOKEN}", "Bearer TOKEN"),
                (None, "no bearer token"),
            ):
                headers = {"authorization": header} if header else None
                with pytest.raises(InferenceServerException, match=word):
                    client.infer("digits", [value], headers=headers)
            with pytest.raises(InferenceServerException, match="not good for this"):
                client.load_model("idle", headers={"authorization": f"Bearer {TOKEN}"})
            client.close()
