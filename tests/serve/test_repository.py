"""A server follows a folder of models while NVIDIA's tritonclient asks it: versions come, are replaced, are damaged and
go, and no request is dropped. Sequences keep their state.

As in test_clients.py, the tests are skipped where the client is not installed.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import pytorch_bridge as pb
from pytorch_bridge import TensorType

WHY = "pip install 'tritonclient[http,grpc]' for these tests"
http_client = pytest.importorskip("tritonclient.http", reason=WHY)
grpc_client = pytest.importorskip("tritonclient.grpc", reason=WHY)
from tritonclient.utils import InferenceServerException  # noqa: E402


class Scale(nn.Module):
    def __init__(self, by: float) -> None:
        super().__init__()
        self.by = nn.Parameter(torch.tensor([float(by), float(by)]))

    def forward(self, x: Any) -> Any:
        return x * self.by


def write(folder: Path, by: float) -> None:
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(
        Scale(by), (torch.rand(2, 2),), dynamic_shapes=({0: batch},), strict=False
    )
    pb.export_model(program, folder, outputs=["y"])


@pytest.fixture(scope="module")
def served(
    server: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, Any, Any]]:
    folder = tmp_path_factory.mktemp("models")
    write(folder / "scale/1", 1)
    (folder / "scale/config.json").write_text(
        '{"batching": {"max": 8}, "queue": {"max": 64}, "warmup": [{"x": [8, 2]}]}'
    )
    x, h = TensorType("float32", (None, 2))("x"), TensorType("float32", (None, 2))("h")
    pb.export_model(
        ([x, h], [x + h, x + h]), folder / "sum", outputs=["y", "h_out"], state={"h_out": "h"}
    )
    with subprocess.Popen(
        [server, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        at = json.loads(process.stdout.readline())
        with (
            contextlib.closing(http_client.InferenceServerClient(at["rest"])) as rest,
            contextlib.closing(grpc_client.InferenceServerClient(at["grpc"])) as grpc,
        ):
            yield folder, rest, grpc
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(20) == 0


def ask(
    library: Any, client: Any, model: str, value: float, version: str = "", **how: Any
) -> float:
    given = library.InferInput("x", [1, 2], "FP32")
    given.set_data_from_numpy(np.full((1, 2), value, np.float32))
    return float(client.infer(model, [given], version, **how).as_numpy("y")[0, 0])


def soon(is_so: Any) -> None:
    end = time.monotonic() + 60
    while True:
        with contextlib.suppress(InferenceServerException):
            if is_so():
                return
        assert time.monotonic() < end
        time.sleep(0.02)


def test_versions_are_replaced_under_load_and_no_request_is_dropped(served):
    folder, rest, grpc = served
    failed: list[Exception] = []
    asked = [0, 0]
    stop = threading.Event()

    def load(which: int, library: Any, url: str) -> None:
        last = 0.0
        with contextlib.closing(library.InferenceServerClient(url)) as client:
            while not stop.is_set():
                try:
                    got = ask(library, client, "scale", 1)
                    assert got >= last, (got, last)
                    last = got
                    asked[which] += 1
                except Exception as e:
                    failed.append(e)
                    return

    urls = (http_client, rest._parsed_url.netloc), (grpc_client, grpc._channel._channel.target())
    threads = [
        threading.Thread(
            target=load, args=(i, library, url.decode() if isinstance(url, bytes) else url)
        )
        for i, (library, url) in enumerate(urls)
    ]
    for t in threads:
        t.start()
    try:
        for n in (2, 3):  # another content of the same version
            write(folder / "scale/1", n)
            soon(lambda n=n: ask(http_client, rest, "scale", 1) == n)
        write(folder / "scale/2", 4)  # a higher one
        soon(lambda: ask(grpc_client, grpc, "scale", 1) == 4)
        assert ask(http_client, rest, "scale", 1, "1") == 3
        # One that is damaged leaves the old in service, and the index says why.
        library = folder / "scale/2/model.so"
        library.write_bytes(library.read_bytes()[:1000])
        soon(
            lambda: any(
                "1000 bytes" in m.get("reason", "") for m in rest.get_model_repository_index()
            )
        )
        assert ask(http_client, rest, "scale", 1) == 4
        write(folder / "scale/2", 5)
        soon(lambda: ask(http_client, rest, "scale", 1) == 5)
        before = list(asked)
        soon(lambda: all(a > b for a, b in zip(asked, before, strict=True)) or bool(failed))
    finally:
        stop.set()
        for t in threads:
            t.join()
    assert not failed


def test_clients_load_and_unload(served):
    folder, rest, grpc = served
    write(folder / "scale/1", 7)
    for client, library in ((rest, http_client), (grpc, grpc_client)):
        client.unload_model("scale")
        assert not client.is_model_ready("scale")
        client.load_model("scale")
        assert ask(library, client, "scale", 1, "1") == 7
    (folder / "broken").mkdir()
    (folder / "broken/manifest.json").write_text("{")
    for client in (rest, grpc):
        with pytest.raises(InferenceServerException, match="not yet complete"):
            client.load_model("broken")
    assert ask(http_client, rest, "scale", 1, "1") == 7


def test_a_sequence_keeps_its_state(served):
    _, rest, grpc = served
    for client, library, ids in ((rest, http_client, (1, "a")), (grpc, grpc_client, (2, "b"))):
        assert [m["name"] for m in rest.get_model_metadata("sum")["inputs"]] == ["x"]
        for i in ids:
            got = [
                ask(
                    library,
                    client,
                    "sum",
                    v,
                    sequence_id=i,
                    sequence_start=k == 0,
                    sequence_end=k == 3,
                )
                for k, v in enumerate([1, 2, 3, 4])
            ]
            assert got == [1, 3, 6, 10]
            with pytest.raises(InferenceServerException, match="has not begun"):
                ask(library, client, "sum", 1, sequence_id=i)
        with pytest.raises(InferenceServerException, match="sequence_id"):
            ask(library, client, "sum", 1)
