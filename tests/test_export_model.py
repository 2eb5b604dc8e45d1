"""Folders of pb.export_model: what is in them, and that Go gets from them what PyTorch computes.

tests/export_model is the Go program. `CONFORMANCE=full` exports hundreds of random graphs.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import json
import os
import random
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from graph import models as model_zoo
from graph import random_graphs
from safetensors import safe_open
from safetensors.torch import save, save_file
from torch import nn

import pytorch_bridge as pb
from pytorch_bridge import TensorType, ops
from pytorch_bridge.cli import main
from pytorch_bridge.errors import BridgeError, BridgeTypeError, BridgeValueError, MissingMethodError
from pytorch_bridge.native.toolchain import ROOT
from pytorch_bridge.packages.go_package import abi
from pytorch_bridge.testing.gotests import run_go

GRAPHS = 300 if os.environ.get("CONFORMANCE") == "full" else 6


@pytest.fixture(scope="module")
def opener(tmp_path_factory):
    program = tmp_path_factory.mktemp("opener") / "open"
    built = run_go("build", "-buildvcs=false", "-o", str(program), "./tests/export_model")
    assert built.returncode == 0, built.stderr
    return program


def golden(folder: Path, runs: list[tuple[list[Any], list[Any] | None]]) -> None:
    """Writes inputs and what comes of them, None for an error."""
    tensors: dict[str, Any] = {}
    for k, (given, results) in enumerate(runs):
        tensors |= {f"{k}.in.{i}": t for i, t in enumerate(given)}
        if results is None:
            tensors[f"{k}.fails"] = torch.ones(1)
        else:
            tensors |= {f"{k}.out.{i}": t for i, t in enumerate(results)}
    save_file(
        {n: t.detach().clone().contiguous() for n, t in tensors.items()}, str(folder) + ".golden"
    )


def manifest(folder: Path) -> Any:
    return json.loads((folder / "manifest.json").read_text())


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.take, self.keep = nn.Linear(3, 4), nn.Linear(4, 4)

    def forward(self, x: Any, h: Any) -> Any:
        h = torch.tanh(self.take(x) + self.keep(h))
        return {"y": h.sum(1), "h_out": h}


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("n", torch.zeros(()))

    def forward(self, x: Any) -> Any:
        self.n.add_(1)
        return x + self.n


def cell() -> Any:
    torch.manual_seed(0)
    batch = torch.export.Dim("batch", min=1, max=64)
    given = torch.rand(2, 3), torch.rand(2, 4)
    return torch.export.export(Cell().eval(), given, dynamic_shapes=({0: batch}, {0: batch}))


def exported(seed: int, folder: Path) -> bool:
    """Exports the random graph of a seed, with what eager PyTorch computes; False where there is none."""
    graph = random_graphs.Maker(seed).make()
    rng = random.Random(seed)
    variables = [t(f"v{i}") for i, t in enumerate(graph.types)]
    try:
        built = graph.run(ops, variables)
        pb.export_model((variables, [built[i] for i in graph.outputs]), folder)
    except BridgeError:
        return False
    runs = []
    for shapes in [graph.shapes, *(random_graphs.other_shapes(graph, rng) for _ in range(2))]:
        given = random_graphs.inputs_of(graph, rng, shapes)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                values = graph.run(torch.ops.aten, [v.clone() for v in given])
            if any(v.numel() > 1_000_000 for v in values):
                continue
            runs.append((given, [values[i] for i in graph.outputs]))
        except (RuntimeError, IndexError, ValueError):
            continue
    if not runs:
        return False
    golden(folder, runs)
    return True


def test_go_gets_what_pytorch_computes(opener, tmp_path):
    model = tmp_path / "cell"
    program = cell()
    pb.export_model(program, model, state={"h_out": "h"})
    module = program.module()
    runs = []
    for n in (1, 2, 64):
        given = [torch.randn(n, 3), torch.randn(n, 4)]
        found = module(*given)
        runs.append((given, [found["y"], found["h_out"]]))
    # What the program was not exported for is an error, not a crash: of a range, and sizes that must agree.
    runs.append(([torch.randn(65, 3), torch.randn(65, 4)], None))
    runs.append(([torch.randn(2, 3), torch.randn(3, 4)], None))
    runs.append(([torch.randn(2, 3, dtype=torch.float64), torch.randn(2, 4)], None))
    golden(model, runs)
    # What calls change is the opened model's: buffers.
    counter = tmp_path / "counter"
    x = torch.rand(3)
    pb.export_model(torch.export.export(Counter(), (x,)), counter)
    assert manifest(counter)["changes"]
    golden(counter, [([x], [x + n]) for n in (1, 2, 3)])
    decoder = tmp_path / "decoder"
    pb.export_model(model_zoo.decoder(), decoder)
    tokens = [torch.tensor([n]) for n in (3, *model_zoo.decoded(100))]
    golden(decoder, [([a], [b]) for a, b in itertools.pairwise(tokens)])
    branching = tmp_path / "branching"
    program = model_zoo.branching()
    pb.export_model(program, branching)
    golden(branching, [([x], [program.module()(x)]) for x in model_zoo.branching_runs()])
    looping = tmp_path / "looping"
    program = model_zoo.looping()
    pb.export_model(program, looping)
    with torch.no_grad():
        golden(looping, [([x], program.module()(x)) for x in model_zoo.looping_runs()])
    folders = [model, counter, decoder, branching, looping]
    seed = 0
    while len(folders) <= GRAPHS + 3:
        folder = tmp_path / f"g{seed}"
        if exported(seed, folder):
            folders.append(folder)
        seed += 1
    done = subprocess.run([opener, *folders], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"0 of {len(folders)} folders differ" in done.stdout


def test_mapped_weights_give_the_bits_that_others_do(opener, tmp_path):
    """On addresses that are no multiples of 64, kernels of a linear layer compute other last bits."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(576, 1024), nn.Hardswish(), nn.Linear(1024, 1000)).eval()
    x = torch.randn(1, 576)
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        expected = module(x)
    finally:
        torch.set_num_threads(before)
    for folder in (ours, theirs):
        pb.export_model(torch.export.export(module, (x,)), folder)
        golden(folder, [([x], [expected])])
    weights = ours / "weights.safetensors"
    with safe_open(weights, "pt") as file:
        named = {n: file.get_tensor(n) for n in file.keys()}  # noqa: SIM118 - it is no dict
    assert {offset % 64 for offset in offsets(weights).values()} == {0}
    # A file in which none is aligned, as others write them.
    text = manifest(theirs)
    for extra in range(64):
        data = save(named, {"generator": "x" * extra})
        (theirs / "weights.safetensors").write_bytes(data)
        if all(n % 64 for n in offsets(theirs / "weights.safetensors").values()):
            break
    text["weights"] |= {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    (theirs / "manifest.json").write_text(json.dumps(text))
    for how in ("-map=false", "-map"):
        done = subprocess.run(
            [opener, "-bits", how, ours, theirs],
            capture_output=True,
            text=True,
            timeout=600,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert done.returncode == 0, f"{how}: {done.stdout}{done.stderr}"


def offsets(path: Path) -> dict[str, int]:
    """Where the tensors of a safetensors file begin in it."""
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    return {n: end + e["data_offsets"][0] for n, e in header.items() if n != "__metadata__"}


def test_the_manifest_says_what_the_model_takes_and_needs(tmp_path):
    folder = pb.export_model(cell(), tmp_path / "cell", name="cell", state={"h_out": "h"})
    found = manifest(folder)
    assert [(s["name"], s["dtype"], s["shape"]) for s in found["inputs"]] == [
        ("x", "float32", [-1, 3]),
        ("h", "float32", [-1, 4]),
    ]
    assert [s["name"] for s in found["outputs"]] == ["y", "h_out"]
    assert {(s["input"], s["dim"], s["symbol"]) for s in found["sizes"]} == {
        ("x", 0, found["sizes"][0]["symbol"]),
        ("h", 0, found["sizes"][0]["symbol"]),
    }
    assert found["sizes"][0]["max"] == 64
    assert found["state"] == [{"output": "h_out", "input": "h"}]
    assert (found["abi"], found["name"]) == (abi.ABI, "cell")
    assert found["torch"] == torch.__version__.partition("+")[0]
    for file in (found["library"], found["weights"]):
        data = (folder / file["file"]).read_bytes()
        assert (hashlib.sha256(data).hexdigest(), len(data)) == (file["sha256"], file["bytes"])
    assert sorted(p.name for p in folder.iterdir()) == [
        "manifest.json", "model.so", "weights.safetensors"
    ]  # fmt: skip


def test_gos_abi_is_pythons():
    assert f'const abi = "{abi.ABI}"' in (ROOT / "gotorch/graph/graph.go").read_text()
    assert (
        f'const ABI = "{abi.ABI}"' in (ROOT / "gotorch/internal/modeltest/modeltest.go").read_text()
    )


def test_exporting_again_gives_the_same_bytes_and_keeps_what_is_the_users(tmp_path):
    folder = tmp_path / "cell"
    pb.export_model(cell(), folder)
    (folder / "config.json").write_text("{}")
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    # In another process, where dicts and paths are others.
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'tests')!r}); import test_export_model as t, pytorch_bridge as pb; "
        f"pb.export_model(t.cell(), {str(folder)!r})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
    # One without weights leaves none of the old.
    x = TensorType("float32", (None,))("x")
    pb.export_model(([x], ops.relu(x)), folder)
    assert sorted(p.name for p in folder.iterdir()) == ["config.json", "manifest.json", "model.so"]


class WithState(nn.Module):
    def forward(self, x, h):
        after = torch.tanh(x + h)
        return after * 2, after


def test_the_command_line(tmp_path, capsys):
    given = torch.ones(1, 2), torch.ones(1, 2)
    program = torch.export.export(WithState().eval(), given)
    saved, folder = tmp_path / "model.pt2", tmp_path / "models/step/1"
    torch.export.save(program, saved)
    names = ["--output", "y", "--output", "h_out", "--state", "h_out=h_in"]
    names += ["--input", "x", "--input", "h_in", "--name", "step"]
    assert main(["export", str(saved), "--model", str(folder), *names]) == 0
    assert capsys.readouterr().out == (
        f"wrote {folder}; it takes x float32 [1, 2], h_in float32 [1, 2] "
        "and gives y float32 [1, 2], h_out float32 [1, 2]\n"
    )
    pb.export_model(
        program,
        tmp_path / "python",
        name="step",
        inputs=["x", "h_in"],
        outputs=["y", "h_out"],
        state={"h_out": "h_in"},
    )
    assert manifest(folder) == manifest(tmp_path / "python")

    assert main(["export", str(saved), "--model", str(tmp_path / "plain")]) == 0
    pb.export_model(program, tmp_path / "python/plain")
    assert manifest(tmp_path / "plain") == manifest(tmp_path / "python/plain")
    assert "it takes x float32 [1, 2], h float32 [1, 2]" in capsys.readouterr().out


def test_what_the_command_line_refuses_writes_nothing(tmp_path, capsys):
    saved, folder = tmp_path / "model.pt2", tmp_path / "model"
    torch.export.save(torch.export.export(nn.Tanh(), (torch.ones(2),)), saved)
    for more, said in (
        (["--output", "a", "--output", "b"], "2 names of outputs are given"),
        (["--state", "output0"], "--state is OUTPUT=INPUT"),
        (["--state", "=x"], "--state is OUTPUT=INPUT"),
        (["--state", "no=x"], "names the output 'no'"),
        (["--state", "output0=x", "--state", "output0=y"], "twice"),
    ):
        assert main(["export", str(saved), "--model", str(folder), *more]) == 1
        error = capsys.readouterr().err
        assert said in error
        assert "Traceback" not in error
    both = ["--go", str(folder), "--model", str(folder)]
    for arguments, said in (
        (both, "argument --model: not allowed with argument --go"),
        ([], "one of the arguments --go --model is required"),
        ([*both[2:], "--package", "p"], "argument --package: not allowed with --model"),
        ([*both[2:], "--training"], "argument --training: not allowed with --model"),
        ([*both[:2], "--state", "a=b"], "argument --state: not allowed with --go"),
        ([*both[:2], "--input", "a"], "argument --input: not allowed with --go"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["export", str(saved), *arguments])
        assert ended.value.code == 2
        assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [saved]


def test_files_of_others_are_not_replaced(tmp_path):
    x = TensorType("float32", (None,))("x")
    (tmp_path / "m").mkdir()
    (tmp_path / "m/manifest.json").write_text('{"format": "theirs"}')
    with pytest.raises(pb.ExportError, match=r"manifest\.json was not written by export_model"):
        pb.export_model(([x], ops.relu(x)), tmp_path / "m")
    assert (tmp_path / "m/manifest.json").read_text() == '{"format": "theirs"}'


class Returns(nn.Module):
    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result

    def forward(self, x: Any) -> Any:
        return self.result(x)


@pytest.mark.parametrize(
    ("result", "names"),
    [
        (lambda x: {"output1": x + 1, "output0": x * 2}, ["output1", "output0"]),
        (
            lambda x: {"a": {"b": x + 1}, "a.b": x * 2, "output1": x * 3},
            ["a.b", "output1_", "output1"],
        ),
        (lambda x: (x + 1, {"a": x * 2}), ["output0", "1.a"]),
    ],
)
def test_a_key_names_what_it_is_the_key_of(tmp_path, result, names):
    program = torch.export.export(Returns(result), (torch.ones(2),))
    folder = pb.export_model(program, tmp_path / "m")
    assert [s["name"] for s in manifest(folder)["outputs"]] == names


def test_a_model_without_results_is_refused(tmp_path):
    class Writes(nn.Module):
        def forward(self, x: Any) -> None:
            x.add_(1)

    with pytest.raises(BridgeTypeError, match="returns no tensors"):
        pb.export_model(torch.export.export(Writes(), (torch.ones(2),)), tmp_path / "m")
    assert not list(tmp_path.iterdir())


def test_a_folder_whose_name_is_no_text_gives_the_model_one(tmp_path):
    x = TensorType("float32", (2,))("x")
    folder = pb.export_model(([x], ops.relu(x)), Path(os.fsdecode(bytes(tmp_path) + b"/a\xff")))
    assert manifest(folder)["name"] == "a?"


def test_names_are_the_users_or_the_graphs(tmp_path):
    x, y = TensorType("float32", (2,))("x"), TensorType("int64", ())()
    folder = pb.export_model(([x, y], [ops.relu(x), x + y]), tmp_path / "m")
    found = manifest(folder)
    assert [s["name"] for s in found["inputs"]] == ["x", "input1"]
    assert [s["name"] for s in found["outputs"]] == ["output0", "output1"]
    assert found["outputs"][1]["shape"] == [2]
    pb.export_model(([x, y], [ops.relu(x), x + y]), folder, inputs=["a", "b"], outputs=["c", "d"])
    found = manifest(folder)
    assert [s["name"] for s in [*found["inputs"], *found["outputs"]]] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("how", "error", "text"),
    [
        ({"inputs": ["a"]}, BridgeValueError, "1 names of inputs"),
        ({"outputs": ["a", "a"]}, BridgeValueError, "two outputs"),
        ({"inputs": ["a", ""]}, BridgeValueError, "cannot be called ''"),
        ({"state": {"no": "x"}}, BridgeValueError, "names the output 'no'"),
        ({"state": {"output0": "no"}}, BridgeValueError, "names the input 'no'"),
        ({"state": {"output1": "x"}}, BridgeValueError, "float64"),
        ({"state": {"output0": "h"}}, BridgeValueError, "shape"),
        ({"state": {"output0": "x", "output1": "x"}}, BridgeValueError, "float64|same input"),
    ],
)
def test_wrong_arguments_write_nothing(tmp_path, how, error, text):
    x, h = TensorType("float32", (None, 2))("x"), TensorType("float32", (None, 3))("h")
    graph = [x, h], [ops.relu(x), h * pb.constant(torch.ones(3, dtype=torch.float64))]
    with pytest.raises(error, match=text):
        pb.export_model(graph, tmp_path / "m", **how)
    assert not list(tmp_path.iterdir())


def test_what_no_folder_can_hold_is_refused(tmp_path):
    n = pb.schema_type("int")("n")
    x = TensorType("float32", (None,))("x")
    open_ = TensorType(None, (None,))("x")
    for graph, text in (
        (([x, n], x + n), "tensors of a known dtype"),
        (([open_], ops.relu(open_)), "dtype"),
    ):
        with pytest.raises((BridgeTypeError, MissingMethodError), match=text):
            pb.export_model(graph, tmp_path / "m")
    assert not list(tmp_path.iterdir())


def test_channels_that_are_last_stay_so(opener, tmp_path):
    """As docs/export-to-go.md has it: the weights keep their strides, and Go gets PyTorch's bits."""

    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
            self.net.to(memory_format=torch.channels_last)

        def forward(self, x):
            return self.net(x.contiguous(memory_format=torch.channels_last))

    module, x = Last().eval(), torch.randn(2, 3, 6, 6)
    folder = pb.export_model(torch.export.export(module, (x,)), tmp_path / "m")
    strides = {w["name"]: w.get("strides") for w in manifest(folder)["tensors"]}
    assert strides["net.0.weight"] == list(module.net[0].weight.stride()) == [27, 1, 9, 3]
    with torch.no_grad():
        want = module(x)
    golden(folder, [([x], [want])])
    done = subprocess.run([opener, folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout


def test_weights_that_no_file_can_hold_are_named(tmp_path):
    class Doubles(nn.Module):
        def __init__(self):
            super().__init__()
            self.turn = nn.Parameter(torch.ones(3, dtype=torch.complex128))
            self.shift = nn.Parameter(torch.ones(3))

        def forward(self, x):
            return (x * self.turn).real.float() + self.shift

    program = torch.export.export(Doubles(), (torch.ones(3),))
    for export in (pb.export_model, pb.export_go):
        with pytest.raises(BridgeTypeError, match="complex64, or two weights of float64") as e:
            export(program, tmp_path / "m")
        assert str(e.value).startswith(f"{export.__name__}: ")
        assert "these weights: turn is torch.complex128;" in str(e.value)
        assert not list(tmp_path.iterdir())


def test_the_library_needs_libc_and_shows_three_symbols(tmp_path):
    folder = pb.export_model(cell(), tmp_path / "cell")
    dynamic = subprocess.run(
        ["readelf", "-d", "--dyn-syms", "-W", folder / "model.so"], capture_output=True, text=True
    ).stdout
    needed = {line.split("[")[1].split("]")[0] for line in dynamic.splitlines() if "NEEDED" in line}
    assert needed <= {"libc.so.6", "libm.so.6"}
    shown = {
        line.split()[-1]
        for line in dynamic.splitlines()
        if " GLOBAL " in line and " UND " not in line and " DEFAULT " in line
    }
    assert shown == {"gotorch_model_abi", "gotorch_model_call", "gotorch_model_layout"}
    assert str(tmp_path).encode() not in (folder / "model.so").read_bytes()
    with pytest.raises(OSError, match="undefined symbol"):  # for its functions are the program's
        ctypes.CDLL(str(folder / "model.so"), mode=os.RTLD_NOW)
