"""KServe's client, over REST and gRPC, gets from package serve what NumPy computes.

The client is not among what this project needs, and brings much along: where it is missing these tests are skipped. To
run them, `pip install --target FOLDER kserve`, and put the folder at the end of PYTHONPATH.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

kserve = pytest.importorskip("kserve", reason="pip install kserve for these tests")
from kserve.inference_client import (  # noqa: E402
    InferenceGRPCClient,
    InferenceRESTClient,
    RESTConfig,
)
from kserve.protocol.infer_type import (  # noqa: E402
    InferInput,
    InferRequest,
    RequestedOutput,
)


def rest(served: SimpleNamespace, call: Callable[[Any, str], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:
            return await call(client, "http://" + served.rest)

    return asyncio.run(run())


def rpc(served: SimpleNamespace, call: Callable[[Any], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with InferenceGRPCClient(served.grpc) as client:
            return await call(client)

    return asyncio.run(run())


def test_health(served: SimpleNamespace) -> None:
    assert rest(served, lambda c, url: c.is_server_live(url)) is True
    assert rest(served, lambda c, url: c.is_server_ready(url)) is True
    assert rest(served, lambda c, url: c.is_model_ready(url, "net")) is True
    assert rest(served, lambda c, url: c.is_model_ready(url, "nobody")) is False
    assert rpc(served, lambda c: c.is_server_live()) is True
    assert rpc(served, lambda c: c.is_server_ready()) is True
    assert rpc(served, lambda c: c.is_model_ready("net")) is True


KINDS = {
    "FP32": np.float32, "FP64": np.float64, "INT8": np.int8, "INT64": np.int64, "UINT16": np.uint16,
    "BOOL": np.bool_, "FP16": np.float16, "BYTES": np.object_,
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("over", ["rest", "grpc"])
def test_values_come_back(served: SimpleNamespace, kind: str, binary: bool, over: str) -> None:
    if kind == "FP16" and not binary:
        pytest.skip("the client refuses FP16 in JSON")
    if kind == "BYTES":
        array: np.ndarray = np.array([b"ab", b"", "ä".encode()], dtype=object)
    else:
        array = np.array([0, 1, 1, 0, 1]).astype(KINDS[kind]).reshape(5)
    value = InferInput(name="x", shape=list(array.shape), datatype=kind)
    value.set_data_from_numpy(array, binary_data=binary)
    wanted = RequestedOutput(name="y", parameters={"binary_data": binary})
    request = InferRequest(
        model_name=f"echo_{kind}",
        infer_inputs=[value],
        request_id="7",
        request_outputs=[wanted],
    )
    if over == "rest":
        answer = rest(served, lambda c, url: c.infer(url, request, model_name=f"echo_{kind}"))
    else:
        answer = rpc(served, lambda c: c.infer(request))
    assert answer.id == "7"
    got = answer.outputs[0].as_numpy()
    if kind == "BYTES":
        assert [t.encode() if isinstance(t, str) else t for t in got.reshape(-1)] == list(array)
    else:
        np.testing.assert_array_equal(got, array)
