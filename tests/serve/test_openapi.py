"""The server's description of itself is OpenAPI, and what the server answers is what it describes."""

from __future__ import annotations

import http.client
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytorch_bridge.native.toolchain import ROOT

WHY = "pip install kubernetes-validate, which brings jsonschema along, for these tests"
jsonschema = pytest.importorskip("jsonschema", reason=WHY)
referencing = pytest.importorskip("referencing", reason=WHY)

DESCRIPTION = json.loads((ROOT / "gotorch/serve/openapi.json").read_text())
URI = "urn:openapi"
REGISTRY = referencing.Registry().with_resource(
    URI,
    referencing.Resource.from_contents(
        DESCRIPTION, default_specification=referencing.jsonschema.DRAFT202012
    ),
)


def whole(reference: dict[str, Any]) -> Any:
    """The part of the description that a reference names."""
    if "$ref" not in reference:
        return reference
    return REGISTRY.resolver(URI).lookup(reference["$ref"]).contents


def validator(schema: dict[str, Any]) -> Any:
    """It resolves the references of a part of the description in all of it."""
    text = json.dumps(schema).replace('"#/', f'"{URI}#/')
    return jsonschema.Draft202012Validator(json.loads(text), registry=REGISTRY)


@pytest.fixture(scope="module")
def address(served: SimpleNamespace) -> str:
    return served.rest


def send(
    address: str, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(address, timeout=30)
    try:
        text = body if isinstance(body, (bytes, str, type(None))) else json.dumps(body)
        connection.request(method, path, text, {k.replace("_", "-"): v for k, v in headers.items()})
        answer = connection.getresponse()
        return answer.status, dict(answer.headers), answer.read()
    finally:
        connection.close()


def test_the_description_is_served_and_whole(address: str) -> None:
    status, headers, text = send(address, "GET", "/v2/openapi.json")
    assert status == 200
    assert headers["Content-Type"] == "application/json"
    assert json.loads(text) == DESCRIPTION
    assert DESCRIPTION["openapi"] == "3.1.0"
    components = DESCRIPTION["components"]
    for schema in components["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    for reference in set(re.findall(r'"\$ref": "([^"]+)"', json.dumps(DESCRIPTION))):
        whole({"$ref": reference})  # an error where there is none
    used = json.dumps(DESCRIPTION["paths"]) + json.dumps(components)
    for kind in ("schemas", "responses", "parameters"):
        for name in components[kind]:
            assert f"#/components/{kind}/{name}" in used, f"nothing uses {kind}/{name}"
    ids = [op["operationId"] for item in DESCRIPTION["paths"].values() for op in operations(item)]
    assert len(ids) == len(set(ids))
    for path, item in DESCRIPTION["paths"].items():
        names = {p["name"] for p in map(whole, item.get("parameters", [])) if p["in"] == "path"}
        assert names == set(re.findall(r"\{(\w+)\}", path)), path
        for operation in operations(item):
            for response in operation["responses"].values():
                assert whole(response)["description"]


def operations(item: dict[str, Any]) -> list[dict[str, Any]]:
    return [item[method] for method in ("get", "post") if method in item]


def answered(address: str, method: str, path: str, template: str, **sent: Any) -> int:
    """Sends, and holds the answer to the description."""
    status, headers, text = send(address, method, path, **sent)
    described = DESCRIPTION["paths"][template][method.lower()]["responses"]
    assert str(status) in described, f"{method} {path} is {status}, which {template} does not have"
    content = whole(described[str(status)]).get("content")
    if content is None:
        assert text == b""
        return status
    kind = headers["Content-Type"]
    assert kind in content
    if kind == "application/octet-stream":
        length = int(headers["Inference-Header-Content-Length"])
        kind, text = "application/json", text[:length]
    validator(content[kind]["schema"]).validate(json.loads(text))
    return status


def test_answers_are_as_described(address: str) -> None:
    for template, item in DESCRIPTION["paths"].items():
        for method in ("get", "post"):
            if method not in item or "{name}" in template:
                continue
            assert answered(address, method.upper(), template, template) == 200
    names = json.loads(send(address, "GET", "/v2/models")[2])["models"]
    assert {"net", "upper", "echo_FP32"} <= set(names)
    for template in DESCRIPTION["paths"]:
        if not template.startswith("/v2/models/{name}") or template.endswith("/infer"):
            continue
        for name in [*names, "nobody"]:
            path = template.replace("{name}", name).replace("{version}", "1")
            status = answered(address, "GET", path, template)
            assert (status == 200) == (name != "nobody"), path
    for template in ("/v2/repository/models/{name}/unload", "/v2/repository/models/{name}/load"):
        for name, expected in (("net", 200), ("nobody", 404)):
            path = template.replace("{name}", name)
            assert answered(address, "POST", path, template) == expected
        if template.endswith("unload"):
            ready = "/v2/models/{name}/ready"
            assert answered(address, "GET", ready.replace("{name}", "net"), ready) == 400
            of = "/v2/models/{name}"
            assert answered(address, "GET", of.replace("{name}", "net"), of) == 503
    status = answered(
        address, "POST", "/v2/repository/models/net/load", template, body={"parameters": {"config": "{}"}}
    )  # fmt: skip
    assert status == 501


INFER = "/v2/models/{name}/infer"


def test_inference_is_as_described(address: str) -> None:
    request = {"inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2.5]}]}
    body_schema = DESCRIPTION["paths"][INFER]["post"]["requestBody"]["content"]
    validator(body_schema["application/json"]["schema"]).validate(request)
    path = INFER.replace("{name}", "echo_FP32")
    for parameters in ({}, {"binary_data_output": True}):
        sent = {**request, "id": "7", "parameters": parameters}
        assert answered(address, "POST", path, INFER, body=sent) == 200
    raw = answered(
        address, "POST", path, INFER, body=b"\0" * 8, Inference_Header_Content_Length="0"
    )
    assert raw == 200
    for body, expected, headers in (
        ("{", 400, {}),
        (request, 415, {"Content_Encoding": "br"}),
        (request, 400, {"Inference_Header_Content_Length": "100000"}),
    ):
        assert answered(address, "POST", path, INFER, body=body, **headers) == expected
    assert answered(address, "POST", INFER.replace("{name}", "nobody"), INFER, body=request) == 404
    slow = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [0]}]}
    assert answered(address, "POST", INFER.replace("{name}", "slow"), INFER, body=slow) == 200


NULL = st.none()
REQUESTS = st.fixed_dictionaries(
    {
        "inputs": st.lists(
            st.fixed_dictionaries(
                {
                    "name": st.sampled_from(["x", "y", 1, None]),
                    "shape": st.sampled_from([[1], [2], [1, 1], [-1], "1", None]),
                    "datatype": st.sampled_from(["FP32", "FP33", None]),
                    "data": st.sampled_from([[1], [1.5, 2], [[1]], 1, ["a"], {}, None]),
                },
                optional={"parameters": st.sampled_from([None, {}, {"a": 1}, []])},
            ),
            min_size=1,
            max_size=1,
        )
    },
    optional={
        "id": st.sampled_from([None, "", "a", 1]),
        "parameters": st.sampled_from([None, {}, {"a": None, "b": "c", "d": 1.5}, {"a": {}}, 1]),
        "outputs": st.sampled_from([None, [], [{"name": "y", "parameters": None}], [{"name": 1}]]),
    },
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(REQUESTS)
def test_what_the_description_refuses_the_server_refuses(address: str, request: Any) -> None:
    """The other way round does not hold: a schema cannot say that data has a shape's size."""
    status = answered(address, "POST", INFER.replace("{name}", "echo_FP32"), INFER, body=request)
    schema = DESCRIPTION["components"]["schemas"]["inferenceRequest"]
    if not validator(schema).is_valid(request):
        assert status == 400


def test_every_path_of_the_server_is_described() -> None:
    """And the other way round: rest.go has them, in its own order."""
    text = Path(ROOT / "gotorch/serve/rest.go").read_text()
    of = re.findall(r'"(/v2/models/\{name\}[^"]*)"', text)
    found = set()
    for method, path, joined in re.findall(
        r'handle\("(GET|POST) (/[^"]*)?"(\+of(?:\+"[^"]*")?)?', text
    ):
        ends = re.findall(r'"([^"]*)"', joined) or [""]
        for begin in of if joined else [path]:
            found.add((method.lower(), begin + ends[0] if joined else begin))
    found.discard(("get", "/v2/{$}"))
    described = {(m, p) for p, i in DESCRIPTION["paths"].items() for m in ("get", "post") if m in i}
    assert described == found
