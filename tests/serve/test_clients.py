"""NVIDIA's tritonclient, over HTTP and gRPC, gets from package serve what NumPy and PyTorch compute.

main.go beside this file is the server. The client is not among what this project needs: where it is missing these
tests are skipped, and Go's own tests of the protocols stay.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import time
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

WHY = "pip install 'tritonclient[http,grpc]' for these tests"
http_client = pytest.importorskip("tritonclient.http", reason=WHY)
grpc_client = pytest.importorskip("tritonclient.grpc", reason=WHY)
ml_dtypes = pytest.importorskip("ml_dtypes", reason=WHY)
import gevent  # noqa: E402
from tritonclient.utils import InferenceServerException  # noqa: E402

DTYPES = {
    "BOOL": np.bool_, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64,
    "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64, "FP16": np.float16,
    "BF16": ml_dtypes.bfloat16, "FP32": np.float32, "FP64": np.float64, "BYTES": np.object_,
}  # fmt: skip


Client = tuple[Any, Any]  # the module and the client


@pytest.fixture(params=["http", "grpc"])
def client(request: pytest.FixtureRequest, served: SimpleNamespace) -> Iterator[Client]:
    if request.param == "http":
        made = http_client.InferenceServerClient(served.rest, concurrency=16)
        yield http_client, made
    else:
        made = grpc_client.InferenceServerClient(served.grpc)
        yield grpc_client, made
    made.close()


def infer(
    client: Client,
    model: str,
    array: np.ndarray,
    *,
    name: str = "x",
    kind: str = "",
    binary: bool = True,
    outputs: list[str] | None = None,
    **options: Any,
) -> Any:
    module, made = client
    kind = kind or next(k for k, d in DTYPES.items() if d == array.dtype)
    value = module.InferInput(name, list(array.shape), kind)
    wanted = None
    if module is http_client:
        value.set_data_from_numpy(array, binary_data=binary)
        if outputs is not None or not binary:
            wanted = [module.InferRequestedOutput(n, binary_data=binary) for n in outputs or ["y"]]
    else:
        value.set_data_from_numpy(array)
        if outputs is not None:
            wanted = [module.InferRequestedOutput(n) for n in outputs]
    return made.infer(model, [value], outputs=wanted, **options)


def sample(kind: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    dtype = DTYPES[kind]
    if kind == "BYTES":
        texts = ["", "a", "Grüße", '"\\\n', "\U0001f600", "x" * 300]
        array = np.empty(shape, dtype=object)
        flat = array.reshape(-1)
        for i in range(flat.size):
            flat[i] = texts[rng.integers(len(texts))].encode()
        return flat.reshape(shape)
    if kind == "BOOL":
        return rng.integers(0, 2, shape).astype(dtype)
    if kind in ("FP16", "BF16", "FP32", "FP64"):
        special = [0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, 6e-8, 65504.0, 1e-40, 3.4e38]
        values = np.where(
            rng.random(shape) < 0.3, rng.choice(special, shape), rng.standard_normal(shape) * 100
        )
        with np.errstate(over="ignore"):
            return np.asarray(values).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


SHAPES = [(), (1,), (0,), (3, 0, 2), (2, 3), (7,), (1, 1, 1, 1, 1, 5), (100, 40)]


def same(got: np.ndarray, expected: np.ndarray, kind: str) -> None:
    assert got.shape == expected.shape
    if kind == "BYTES":
        as_bytes = [t.encode() if isinstance(t, str) else t for t in got.reshape(-1)]
        assert as_bytes == list(expected.reshape(-1))
    else:
        assert got.dtype == expected.dtype
        if expected.dtype.kind in "fV" or kind == "BF16":
            # NaN is NaN, whatever bits it has where it went through JSON.
            expected, got = expected.astype(np.float64), got.astype(np.float64)
            assert np.array_equal(np.signbit(got[got == 0]), np.signbit(expected[expected == 0]))
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_dtype_and_shape_comes_back_as_it_was(
    client: Client, kind: str, shape: tuple[int, ...]
) -> None:
    array = sample(kind, shape, len(shape) + 17)
    ways = [True, False] if client[0] is http_client and kind != "BF16" else [True]
    for binary in ways:
        result = infer(client, f"echo_{kind}", array, kind=kind, binary=binary)
        same(result.as_numpy("y"), array, kind)


@pytest.mark.parametrize("kind", DTYPES)
def test_joined_requests_get_their_own_rows(served: SimpleNamespace, kind: str) -> None:
    arrays = [sample(kind, (1 + i % 5, *[(2,), (3,)][i % 2]), i) for i in range(40)]

    def one(i: int) -> None:  # a client for HTTP belongs to one thread
        module = [http_client, grpc_client][i % 2]
        with module.InferenceServerClient([served.rest, served.grpc][i % 2]) as own:
            result = infer((module, own), f"joined_{kind}", arrays[i], kind=kind)
        same(result.as_numpy("y"), arrays[i], kind)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(one, range(len(arrays))))


def test_a_network_computes_what_pytorch_does(client: Client) -> None:
    w, bias = torch.linspace(-1, 1, 12).reshape(4, 3), torch.linspace(0, 1, 3)
    for rows in (0, 1, 2, 8):
        x = torch.randn(rows, 4, generator=torch.Generator().manual_seed(rows))
        h = (x @ w + bias).relu()
        result = infer(client, "net", x.numpy())
        np.testing.assert_array_equal(result.as_numpy("h"), h.numpy())
        np.testing.assert_array_equal(result.as_numpy("p"), h.softmax(1).numpy())
        only = infer(client, "net", x.numpy(), outputs=["h"], request_id="7")
        response = only.get_response()
        if client[0] is http_client:
            assert [o["name"] for o in response["outputs"]] == ["h"]
            assert response["id"] == "7"
            assert response["model_version"] == "1"
        else:
            assert [o.name for o in response.outputs] == ["h"]
            assert response.id == "7"


def test_texts_have_parameters_and_versions(client: Client) -> None:
    texts = np.array([b"ab", b"", b"\xff\x00z"], dtype=object)
    result = infer(client, "upper", texts, name="texts", parameters={"suffix": "!"})
    assert list(result.as_numpy("texts")) == [b"AB!", b"!", b"\xff\x00Z!"]
    assert list(result.as_numpy("lengths")) == [2, 0, 3]
    for version, expected in (("", "2"), ("1", "1"), ("2", "2")):
        response = infer(client, "upper", texts, name="texts", model_version=version).get_response()
        got = response["model_version"] if isinstance(response, dict) else response.model_version
        assert got == expected


@pytest.mark.parametrize("packed", ["gzip", "deflate"])
@pytest.mark.parametrize("binary", [True, False])
def test_packed_requests_and_responses(served: SimpleNamespace, packed: str, binary: bool) -> None:
    array = sample("FP32", (200, 30), 3)
    with http_client.InferenceServerClient(served.rest) as rest:
        result = infer(
            (http_client, rest), "echo_FP32", array, binary=binary,
            request_compression_algorithm=packed, response_compression_algorithm=packed,
        )  # fmt: skip
        same(result.as_numpy("y"), array, "FP32")
    with grpc_client.InferenceServerClient(served.grpc) as grpc:
        result = infer((grpc_client, grpc), "echo_FP32", array, compression_algorithm=packed)
        same(result.as_numpy("y"), array, "FP32")


def test_failures_have_the_protocols_codes(client: Client) -> None:
    x = np.ones(1, np.float32)
    rest = client[0] is http_client

    def fails(status: int, code: str, text: str, call: Callable[[], Any]) -> None:
        with pytest.raises(InferenceServerException) as raised:
            call()
        assert raised.value.status() == (str(status) if rest else f"StatusCode.{code}")
        assert text in raised.value.message()

    def how(name: str) -> Callable[[], Any]:
        return lambda: infer(client, "fails", x, parameters={"how": name})

    fails(500, "INTERNAL", "no luck", how("error"))
    fails(500, "INTERNAL", "at the disco", how("panic"))
    fails(500, "INTERNAL", "ended its goroutine", how("exit"))
    fails(500, "INTERNAL", "shape '[77]' is invalid for input of size 1", how("torch"))
    fails(400, "INVALID_ARGUMENT", "not this one", how("argument"))
    fails(404, "NOT_FOUND", "no model", lambda: infer(client, "nobody", x))
    fails(404, "NOT_FOUND", "has no version", lambda: infer(client, "net", x, model_version="9"))
    fails(400, "INVALID_ARGUMENT", "expected to be", lambda: infer(client, "echo_INT8", x))
    fails(400, "INVALID_ARGUMENT", "no input", lambda: infer(client, "echo_FP32", x, name="z"))
    fails(
        400, "INVALID_ARGUMENT", "shape", lambda: infer(client, "net", np.ones((1, 5), np.float32))
    )
    fails(400, "INVALID_ARGUMENT", "8", lambda: infer(client, "net", np.ones((9, 4), np.float32)))
    fails(
        400, "INVALID_ARGUMENT", "no output", lambda: infer(client, "echo_FP32", x, outputs=["q"])
    )
    fails(400, "INVALID_ARGUMENT", "priority",
          lambda: infer(client, "net", np.ones((1, 4), np.float32), priority=4))  # fmt: skip
    fails(
        400, "INVALID_ARGUMENT", "sequence_id", lambda: infer(client, "echo_FP32", x, sequence_id=3)
    )
    same(infer(client, "fails", x).as_numpy("y"), x, "FP32")  # and it lives


def test_who_waits_too_long_is_told_so(client: Client) -> None:
    rest = client[0] is http_client
    with ThreadPoolExecutor(1) as threads:
        module, made = client
        if rest:
            running = made.async_infer("slow", [_slow(module, 1.0)])
        else:
            running = threads.submit(made.infer, "slow", [_slow(module, 1.0)])
        # A call of the client for REST is sent while gevent has its turn, not beside what runs here.
        (gevent.sleep if rest else time.sleep)(0.3)
        with pytest.raises(InferenceServerException) as raised:
            infer(client, "slow", np.zeros(1, np.float32), timeout=50_000)
        assert raised.value.status() == ("504" if rest else "StatusCode.DEADLINE_EXCEEDED")
        if not rest:
            # Which of the two the client says depends on whose clock is the first: a server resets
            # the stream of a call whose time is over.
            with pytest.raises(InferenceServerException, match=r"DEADLINE_EXCEEDED|CANCELLED"):
                infer(client, "slow", np.zeros(1, np.float32), client_timeout=0.05)
        result = running.get_result() if rest else running.result()
        assert result.as_numpy("y") == [1.0]


def _slow(module: Any, seconds: float) -> Any:
    value = module.InferInput("x", [1], "FP32")
    value.set_data_from_numpy(np.array([seconds], np.float32))
    return value


def test_a_full_queue_says_so(served: SimpleNamespace) -> None:
    def one(_: int) -> str:
        with http_client.InferenceServerClient(served.rest) as own:
            try:
                infer((http_client, own), "slow", np.array([0.3], np.float32))
            except InferenceServerException as e:
                return str(e.status())
            return "200"

    with ThreadPoolExecutor(12) as threads:
        statuses = list(threads.map(one, range(12)))
    assert statuses.count("200") == 5  # one runs, and four may wait
    assert statuses.count("429") == 7


def test_health_metadata_and_configuration(client: Client) -> None:
    module, made = client
    assert made.is_server_live()
    assert made.is_server_ready()
    assert made.is_model_ready("net")
    assert made.is_model_ready("upper", "1")
    if module is http_client:
        metadata = made.get_server_metadata()
        model = made.get_model_metadata("net")
        config = made.get_model_config("net")
    else:
        metadata = made.get_server_metadata(as_json=True)
        model = made.get_model_metadata("net", as_json=True)
        config = made.get_model_config("net", as_json=True)["config"]
    assert (metadata["name"], metadata["version"]) == ("tested", "7")
    assert "binary_tensor_data" in metadata["extensions"]
    assert model["name"] == "net"
    assert model["versions"] == ["1"]
    shape = [str(n) for n in model["inputs"][0]["shape"]]
    assert (model["inputs"][0]["datatype"], shape) == ("FP32", ["-1", "4"])
    assert [o["name"] for o in model["outputs"]] == ["p", "h"]
    assert config["max_batch_size"] == 8
    assert config["input"][0]["data_type"] == "TYPE_FP32"
    assert [int(n) for n in config["input"][0]["dims"]] == [4]
    assert config["dynamic_batching"]["preferred_batch_size"] == [4]
    assert int(config["dynamic_batching"]["max_queue_delay_microseconds"]) == 1000
    with pytest.raises(InferenceServerException, match="no model"):
        made.get_model_metadata("nobody")


def test_statistics_count_what_was_done(client: Client) -> None:
    def stats() -> Any:
        if client[0] is http_client:
            return client[1].get_inference_statistics("net")["model_stats"][0]
        return client[1].get_inference_statistics("net", as_json=True)["model_stats"][0]

    def count(of: Any, name: str) -> int:
        return int(of["inference_stats"].get(name, {}).get("count", 0))

    infer(client, "net", np.ones((1, 4), np.float32))
    before = stats()
    for rows in (1, 3, 8):
        infer(client, "net", np.ones((rows, 4), np.float32))
    with pytest.raises(InferenceServerException):
        infer(client, "net", np.ones((1, 5), np.float32))
    after = stats()
    assert int(after["inference_count"]) - int(before["inference_count"]) == 12
    assert int(after["execution_count"]) - int(before["execution_count"]) == 3
    for name, expected in (("success", 3), ("fail", 1), ("queue", 3), ("compute_infer", 3)):
        assert count(after, name) - count(before, name) == expected
    assert {1, 3, 8} <= {int(b["batch_size"]) for b in after["batch_stats"]}


def test_models_are_unloaded_and_loaded(client: Client) -> None:
    module, made = client

    def states() -> set[tuple[str, str]]:
        index = made.get_model_repository_index()
        if module is http_client:
            return {(m["version"], m["state"]) for m in index if m["name"] == "upper"}
        return {(m.version, m.state) for m in index.models if m.name == "upper"}

    texts = np.array([b"a"], dtype=object)
    assert states() == {("1", "READY"), ("2", "READY")}
    made.unload_model("upper")
    try:
        assert states() == {("1", "UNAVAILABLE"), ("2", "UNAVAILABLE")}
        assert not made.is_model_ready("upper")
        with pytest.raises(InferenceServerException) as raised:
            infer(client, "upper", texts, name="texts")
        assert raised.value.status() in ("503", "StatusCode.UNAVAILABLE")
    finally:
        made.load_model("upper")
    assert infer(client, "upper", texts, name="texts").as_numpy("texts") == [b"A"]
    with pytest.raises(InferenceServerException, match="no model"):
        made.load_model("nobody")


def test_a_stream_answers_each_request(served: SimpleNamespace) -> None:
    got: list[Any] = []
    with grpc_client.InferenceServerClient(served.grpc) as grpc:
        grpc.start_stream(lambda result, error: got.append((result, error)))
        for i in range(5):
            value = grpc_client.InferInput("x", [2, 2], "INT32")
            value.set_data_from_numpy(np.full((2, 2), i, np.int32))
            grpc.async_stream_infer("echo_INT32" if i != 3 else "nobody", [value])
        grpc.stop_stream()
    assert [None if e else int(r.as_numpy("y")[0, 0]) for r, e in got] == [0, 1, 2, None, 4]
    assert "no model" in str(got[3][1])


def post(
    served: SimpleNamespace, body: bytes, path: str = "/v2/models/echo_FP32/infer", **headers: str
) -> tuple[int, Any]:
    names = {k.replace("_", "-"): v for k, v in headers.items()}
    connection = http.client.HTTPConnection(served.rest, timeout=20)
    with contextlib.suppress(
        BrokenPipeError, ConnectionResetError
    ):  # it refuses before it has read
        connection.request("POST", path, body, names)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text)


def test_json_as_people_write_it(served: SimpleNamespace) -> None:
    status, answer = post(served, b"""
        {"outputs": [{"name": "y"}], "more": [{"a": null}], "inputs": [{"data": [[1, -2.5e0], [NaN, -Infinity]],
         "datatype": "FP32", "shape": [2, 2], "name": "x"}], "id": "\\u00e9"}""")  # fmt: skip
    assert status == 200
    assert answer["id"] == "é"
    data = answer["outputs"][0]["data"]
    assert data[:2] == [1.0, -2.5]
    assert math.isnan(data[2])
    assert data[3] == -math.inf


def test_bodies_that_lie_are_refused(served: SimpleNamespace) -> None:
    def head(**changes: Any) -> bytes:
        x = {"name": "x", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}}
        return json.dumps({"inputs": [x | changes]}).encode()

    ok = head()
    for body, headers, status in [
        (ok + bytes(8), {"Inference_Header_Content_Length": str(len(ok))}, 200),
        (ok + bytes(7), {"Inference_Header_Content_Length": str(len(ok))}, 400),
        (ok + bytes(9), {"Inference_Header_Content_Length": str(len(ok))}, 400),
        (ok + bytes(8), {"Inference_Header_Content_Length": str(len(ok) + 100)}, 400),
        (ok + bytes(8), {"Inference_Header_Content_Length": "-1"}, 400),
        (ok + bytes(8), {"Inference_Header_Content_Length": str(2**70)}, 400),
        (ok + bytes(8), {}, 400),
        (ok, {}, 400),
        (bytes(9 << 20), {}, 413),
        (zlib.compress(bytes(200 << 20)), {"Content_Encoding": "deflate"}, 413),
        (b"no zip", {"Content_Encoding": "gzip"}, 400),
        (b"{}", {"Content_Encoding": "br"}, 415),
        (b"[" * 100_000, {}, 400),
        (b'{"a":' * 100_000, {}, 400),
        (head(data=[1, 2]), {}, 400),
        (head(parameters={}, data=[1, 2, 3]), {}, 400),
        (head(parameters={}, data=[1]), {}, 400),
        (head(parameters={}, data=["1", "2"]), {}, 400),
        (head(parameters={}, shape=[2**40, 2**40], data=[]), {}, 400),
        (head(parameters={}, shape=[-1], data=[]), {}, 400),
        (head(parameters={}, shape=[2.5], data=[]), {}, 400),
        (head(parameters={}, datatype="FP8", data=[1, 2]), {}, 400),
    ]:
        got, answer = post(served, body, **headers)
        assert got == status, (body[:200], headers, answer)
        assert status == 200 or answer["error"].startswith("serve: ")


def test_metrics_and_what_is_left(served: SimpleNamespace) -> None:
    with http_client.InferenceServerClient(served.rest) as rest:
        infer((http_client, rest), "net", np.ones((2, 4), np.float32))
    with urllib.request.urlopen(f"http://{served.rest}/metrics") as answer:
        text = answer.read().decode()
    for line in (
        'gotorch_serve_requests_total{code="OK",model="net",version="1"}',
        'gotorch_serve_batch_rows_bucket{model="net",version="1",le="2"}',
        'gotorch_serve_queue_requests{model="net",version="1"} 0',
        "gotorch_serve_request_bytes 0",
    ):
        assert line in text
