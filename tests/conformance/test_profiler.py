"""Package profiler records what torch.profiler does: both watch the same runs, and agree but for times.

`make test` runs some of PyTorch's operator database, CONFORMANCE=full all of it.
"""

from __future__ import annotations

import gc
import json
import os
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten

from pytorch_bridge.codegen.generate import reference_is_installed

if not reference_is_installed():
    pytest.skip("the harness is of the torch that Go was generated for", allow_module_level=True)

from pytorch_bridge.testing.conformance.harness import Harness
from pytorch_bridge.testing.conformance.modules import SEED
from pytorch_bridge.testing.conformance.operators import operators
from pytorch_bridge.testing.conformance.profiles import (
    both_record,
    check_chrome,
    differences,
    go_records,
    of_averages,
)
from pytorch_bridge.testing.conformance.reasons import ENTRIES
from pytorch_bridge.testing.conformance.samples import sample_inputs

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("one_thread")]

FULL = os.environ.get("CONFORMANCE") == "full"
SOME = 20  # operators of the database that `make test` runs


@pytest.fixture(autouse=True, scope="module")
def only_new_objects_are_collected() -> Iterator[None]:
    """Before each recording garbage is collected; of half a million objects of torch that takes a quarter of a second."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def forward_and_backward(run: Callable[[], Any]) -> None:
    outputs = [t for t in tree_flatten(run())[0] if isinstance(t, torch.Tensor)]
    sums = [t.abs().sum() for t in outputs if t.requires_grad]
    if sums:
        torch.autograd.backward(sums)


def samples() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Calls of operators, of dtypes that have gradients and of those that have none."""
    draw = random.Random(SEED)
    chosen = [o for o in op_db if o.name not in ENTRIES]
    if not FULL:
        chosen = draw.sample(chosen, SOME)
    for o in chosen:
        dtypes = sorted(o.supported_dtypes("cpu"), key=str)
        if not dtypes:
            continue
        for dtype in draw.sample(dtypes, min(len(dtypes), 3 if FULL else 2)):
            grad = dtype in o.supported_backward_dtypes("cpu") and o.supports_autograd
            try:
                inputs = list(sample_inputs(o, dtype, grad))
            except (RuntimeError, NotImplementedError, ImportError):
                continue
            for i in draw.sample(range(len(inputs)), min(len(inputs), 4 if FULL else 2)):
                s = inputs[i]
                yield (
                    f"{o.formatted_name} {dtype} {i}",
                    lambda o=o, s=s: o(s.input, *s.args, **s.kwargs),
                )


def test_the_operator_database(harness: Harness) -> None:
    problems, seen = [], 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, call in samples():
            try:
                python, go = both_record(harness, lambda call=call: forward_and_backward(call))
            except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError):
                continue  # what fails in Python, such as a gradient that there is not
            seen += 1
            found = differences(python, go) + of_averages(python, go) + check_chrome(go.chrome)
            problems += [f"{name}: {p}" for p in found[:3]]
    assert not problems, "\n".join(problems[:30])
    assert seen > (1500 if FULL else 20)


def test_lists_of_numbers(harness: Harness) -> None:
    """Lists of numbers of several kinds, and longer ones than Kineto keeps."""
    x = torch.randn(5, 5)

    def run() -> None:
        torch.gradient(x, spacing=[1.5, 2.0], dim=[0, 1])
        torch._foreach_add([x, x], [1, 2.5])
        x[None, torch.tensor([1])]
        for rank in (30, 31):
            torch.zeros([1] * rank).permute(list(range(rank)))

    python, go = both_record(harness, run)
    assert not differences(python, go)
    lists = [t for e in go.events if e["Name"] == "aten::permute" for t in e["Types"]]
    assert lists == ["float", "ScalarList", "float", ""]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.head = nn.Linear(8 * 6 * 6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.profiler.record_function("features"):
            x = torch.relu(self.norm(self.conv(x)))
        return self.head(x.flatten(1))


def test_training_steps_with_ranges(harness: Harness) -> None:
    """A model that trains, in ranges: two observers of one run."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x, y = torch.randn(4, 3, 8, 8), torch.randint(5, (4,))

    def run() -> None:
        for _ in range(3):
            with torch.profiler.record_function("step"):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()

    for by_shape in (False, True):
        python, go = both_record(harness, run, by_shape)
        problems = (
            differences(python, go) + of_averages(python, go, by_shape) + check_chrome(go.chrome)
        )
        assert not problems, "\n".join(problems[:20])
    forward = [e for e in go.events if e["Forward"] >= 0]
    linked = {(e["Name"], go.events[e["Forward"]]["Name"]) for e in forward if ":" not in e["Name"]}
    assert {
        ("AddmmBackward0", "aten::addmm"),
        ("ConvolutionBackward0", "aten::convolution"),
        ("NllLossBackward0", "aten::nll_loss_forward"),
        ("ReluBackward0", "aten::relu"),
    } <= linked


def test_every_arrow_is_kinetos(harness: Harness, tmp_path: Any) -> None:
    """Which call of the forward pass a node belongs to is what Kineto's trace says."""
    model = nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.LayerNorm(5), nn.Linear(5, 1))
    x = torch.randn(3, 6)
    path = tmp_path / "kineto.json"
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as python:
        go = go_records(harness, lambda: model(x).sum().backward())
    python.export_chrome_trace(str(path))

    def arrows(text: str) -> Counter[tuple[str, str]]:
        events = json.loads(text)["traceEvents"]
        slices = [e for e in events if e.get("ph") == "X" and e.get("cat") == "cpu_op"]
        starts, ends = {}, {}
        for e in events:
            if e.get("cat") == "fwdbwd":
                (starts if e["ph"] == "s" else ends)[e["id"]] = e["ts"]

        def at(ts: float) -> str:
            # The innermost slice that begins there.
            return [s["name"] for s in slices if abs(s["ts"] - ts) < 1e-3][-1]

        return Counter((at(starts[i]), at(ends[i])) for i in starts)

    theirs, ours = arrows(path.read_text()), arrows(go.chrome)
    assert ours == theirs
    assert sum(ours.values()) >= 5


MODELS: dict[str, Callable[[], tuple[str, dict[str, Any]]]] = {
    "mm": lambda: (
        "mm",
        {"self": torch.randn(4, 3, requires_grad=True), "mat2": torch.randn(3, 2)},
    ),
    "linear": lambda: (
        "linear",
        {
            "input": torch.randn(2, 4, 3),
            "weight": torch.randn(5, 3, requires_grad=True),
            "bias": torch.randn(5, requires_grad=True),
        },
    ),
    "conv2d.input": lambda: (
        "conv2d",
        {"input": torch.randn(2, 3, 8, 8), "weight": torch.randn(4, 3, 3, 3, requires_grad=True)},
    ),
    "layer_norm": lambda: (
        "layer_norm",
        {"input": torch.randn(2, 6, requires_grad=True), "normalized_shape": [6]},
    ),
    "cat": lambda: ("cat", {"tensors": [torch.randn(2, 3, requires_grad=True), torch.randn(4, 3)]}),
    "softmax": lambda: ("softmax.int", {"self": torch.randn(3, 7, requires_grad=True), "dim": -1}),
}


@pytest.mark.parametrize("name", list(MODELS))
def test_the_same_in_python_and_in_go(harness: Harness, name: str) -> None:
    """Python computes and torch.profiler records; Go computes the same and Go records."""
    op, given = MODELS[name]()
    o = operators().get(op) or operators().get(f"{op}.default") or operators()[op.split(".")[0]]
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True, with_flops=True
    ) as python:
        y = o.oracle(**given)
        torch.autograd.backward([y], [torch.ones_like(y)])

    for t in tree_flatten(given)[0]:
        if isinstance(t, torch.Tensor):
            t.grad = None

    def run() -> None:
        y = harness.call_named(o, given)
        harness.backward([y], [torch.ones_like(y)])

    go = go_records(harness, run)
    theirs = {
        (a.key, str([list(s) for s in a.input_shapes])): (a.count, a.flops)
        for a in python.key_averages(group_by_input_shape=True)
    }
    ours = {
        (a["Key"], str(a["Shapes"])): (a["Count"], a["FLOPs"])
        for a in go.averages
        if a["Kind"] != "Memory"
    }
    assert ours == theirs
    assert not check_chrome(go.chrome)
    called = {e["Go"] for e in go.events if e["Parent"] < 0 and e["Kind"] != "Memory"} - {""}
    assert "Backward" in called
    assert len(called) == 2
