"""What computes beside the processor: the tests of tests/devices, on a stand-in for a device whose memory
is the computer's, and on CUDA where `make test-cuda` asks for it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import pytorch_bridge as pb
from pytorch_bridge import TensorType, export_go, function, ops
from pytorch_bridge.errors import BridgeValueError, MissingMethodError
from pytorch_bridge.graph.basic import Apply
from pytorch_bridge.native import env
from pytorch_bridge.native.artifacts import digest
from pytorch_bridge.native.toolchain import ROOT
from pytorch_bridge.ops.op import Op
from pytorch_bridge.testing.gotests import run_go

SOURCE = ROOT / "tests/devices/standin/standin.cc"


@pytest.fixture(scope="module")
def standin(library):
    """The stand-in's library, compiled when it or torch has changed."""
    flags = [f for f in library.compile_flags() if not f.startswith(("-fvisibility", "-O", "-I"))]
    torch = library.torch
    link = [f"-L{torch.lib}", f"-Wl,-rpath,{torch.lib}", "-ltorch_cpu", "-lc10"]
    command = [*library.compiler.command, *flags, "-O1", "-shared", str(SOURCE), *link, "-o"]
    made_from = digest(SOURCE.read_bytes(), *command, library.compiler.version)
    out = library.out / "devices" / f"libstandin-{made_from[:16]}.so"
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        partial = out.with_suffix(f".{os.getpid()}.part")
        subprocess.run([*command, str(partial)], check=True)
        partial.replace(out)
    return out


def devices(which: str, *flags: str) -> str:
    """Runs the tests on a device; returns what they print."""
    done = run_go(
        *("test", "-tags", "devices", "-vet=off", "-count=1", "-v", *flags, "./tests/devices"),
        GOTORCH_TEST_DEVICE=which,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_on_the_standin(standin):
    said = devices(f"standin={standin}")
    skipped = [line.split()[2] for line in said.splitlines() if line.startswith("--- SKIP")]
    assert skipped == []
    text = "".join(path.read_text() for path in (ROOT / "tests/devices").glob("*_test.go"))
    tests = re.findall(r"^func (Test\w+)\(\w+ \*testing\.T\)", text, re.M)
    assert len(tests) > 10
    assert sorted(re.findall(r"^--- PASS: (\w+)", said, re.M)) == sorted(tests)


def test_on_cuda():
    if not os.environ.get("GOTORCH_TEST_CUDA"):
        pytest.skip("make test-cuda runs it")
    devices("cuda")


def test_nccl_is_made_by_the_names_of_its_constructors(library, tmp_path):
    """Whatever GPU there is: cgotorch/test/nccl_test.cc."""
    if not (library.torch.lib / "libtorch_cuda.so").exists():
        pytest.skip("a build of torch for the CPU alone has no NCCL")
    source, program = ROOT / "cgotorch/test/nccl_test.cc", tmp_path / "nccl_test"
    flags = [f for f in library.compile_flags() if not f.startswith("-O")]
    folders = [library.library.parent, library.torch.lib]
    link = [word for folder in folders for word in (f"-L{folder}", f"-Wl,-rpath,{folder}")]
    link += ["-lcgotorch", "-ltorch_cpu", "-lc10", "-Wl,--allow-shlib-undefined"]
    lacking = ["-idirafter", str(ROOT / "cgotorch/lacking")]
    compiler = library.compiler.command
    subprocess.run(
        [*compiler, *flags, *lacking, str(source), "-o", str(program), *link], check=True
    )
    done = subprocess.run(
        [str(program), str(library.torch.lib)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


class Positions(nn.Module):
    """Makes tensors itself, has a buffer that it changes, and constants."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 6)
        self.norm = nn.BatchNorm1d(6)
        self.linear = nn.Linear(6, 3)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls.add_(1)
        places = torch.arange(x.shape[0]) % 10
        h = self.norm(x + self.table(places)) * torch.tensor([1.0, 2.0, 3.0, 1.0, 2.0, 3.0])
        return self.linear(torch.relu(h) + torch.zeros(6).to("cpu")), self.calls * 2


def packages(folder: Path, device: str) -> None:
    """Go packages of the module example.org/device that compute on a device."""
    torch.manual_seed(0)
    batch = {0: torch.export.Dim("batch", min=2)}
    inputs = torch.randn(4, 6)
    program = torch.export.export(Positions().eval(), (inputs,), dynamic_shapes=(batch,))
    export_go(program, folder / "positions", device=device)
    mlp = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    program = torch.export.export(mlp, (inputs,), dynamic_shapes=(batch,))
    export_go(
        program, folder / "trained", training=pb.Training(optimizer=pb.AdamW()), device=device
    )
    x = TensorType("float32", (None, 3)).make_variable("x")
    y = ops.mul(ops.add(x, ops.constant(torch.tensor([1.0, 2.0, 3.0]))), ops.exp(x))
    export_go((x, ops.cat([y, ops.ones([1, 3])])), folder / "constants", device=device)
    export_go(function([x], ops.relu(x + x * 2)), folder / "compiled", device=device)
    (folder / "go.mod").write_text(
        "module example.org/device\n\ngo 1.26.0\n\nrequire gotorch.dev v0.0.0\n\n"
        f"replace gotorch.dev => {ROOT}\n"
    )


def ended(folder: Path) -> dict[str, list[str]]:
    """Runs the packages' golden tests; the tests by how they ended, as "package.Test"."""
    done = run_go("test", "-json", "-count=1", "./...", cwd=folder, **env.variables())
    found: dict[str, list[str]] = {}
    for event in map(json.loads, done.stdout.splitlines()):
        if event["Action"] in ("pass", "fail", "skip") and "Test" in event:
            package = event["Package"].rpartition("/")[2]
            found.setdefault(event["Action"], []).append(f"{package}.{event['Test']}")
    assert found, done.stdout + done.stderr
    assert "fail" not in found, done.stdout
    return {action: sorted(tests) for action, tests in found.items()}


GOLDEN = [
    *("compiled.TestGolden", "constants.TestGolden", "positions.TestGolden"),
    *("trained.TestGolden", "trained.TestGoldenTraining"),
]


def test_exported_packages_on_the_standin(standin, tmp_path):
    packages(tmp_path, "privateuseone")
    assert ended(tmp_path) == {"skip": GOLDEN}, "there is no such device yet"
    for folder in ("positions", "trained", "constants", "compiled"):
        (tmp_path / folder / "library_test.go").write_text(
            f'package {folder}\n\nimport (\n\t"os"\n\t"testing"\n\n\t"gotorch.dev/gotorch"\n)\n\n'
            "func TestMain(m *testing.M) {\n"
            f"\tif err := gotorch.LoadLibrary({json.dumps(str(standin))}); err != nil {{\n"
            "\t\tpanic(err)\n\t}\n\tos.Exit(m.Run())\n}\n"
        )
    assert ended(tmp_path) == {"pass": GOLDEN}


def test_exported_packages_on_cuda(library, tmp_path):
    if not os.environ.get("GOTORCH_TEST_CUDA"):
        pytest.skip("make test-cuda runs it")
    packages(tmp_path, "cuda")
    assert ended(tmp_path) == {"pass": GOLDEN}


def test_what_cannot_be_on_a_device_is_refused(tmp_path):
    x = TensorType("float32", (3,)).make_variable("x")
    with pytest.raises(BridgeValueError, match="'gpu' is no device"):
        export_go((x, ops.relu(x)), tmp_path / "a", device="gpu")
    with pytest.raises(BridgeValueError, match="meta tensors have no values"):
        export_go((x, ops.relu(x)), tmp_path / "a", device="meta")

    class Mine(Op):
        def make_node(self, x):
            return Apply(self, [x], [x.type()])

        def c_code(self, node, name, inputs, outputs, sub):
            return "abort();"

    with pytest.raises(MissingMethodError, match=r"Mine.* has C code of its own"):
        export_go((x, Mine()(x)), tmp_path / "a", device="cuda")
    assert not (tmp_path / "a").exists()


# Entries of PyTorch's operator database, of each kind: elementwise, in place, views, reductions,
# several results, lists of tensors, numbers and dtypes, matrices, windows, indices, random numbers.
ENTRIES = [
    *("add", "mul", "exp", "where", "clamp", "sum", "var_mean", "max.reduction_with_dim", "sort"),
    *("cat", "stack", "split", "transpose", "expand", "index_select", "gather", "to", "zeros_like"),
    *("new_full", "addmm", "nn.functional.linear", "nn.functional.conv2d", "softmax", "nonzero"),
    *("nn.functional.max_pool2d", "nn.functional.layer_norm", "linalg.qr", "cumsum", "tril"),
]


DTYPES = ("float32", "float64", "int64", "bool")


def conformance(*arguments: str) -> dict:
    """What the conformance suite finds on a device, in a process of its own."""
    command = [sys.executable, "-m", "pytorch_bridge.testing.conformance", "--slice", "--json"]
    done = subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_conformance_on_the_standin(standin):
    device = ["--device", "privateuseone:0", "--load", str(standin)]
    # Its copies know no conjugate tensors.
    dtypes = [word for name in DTYPES for word in ("--dtype", name)]
    found = conformance(*device, *dtypes, "--exact", *ENTRIES)
    assert found["problems"] == []
    assert found["leaked"] == 0
    assert found["passed"] > 1000


def test_conformance_on_cuda(library):
    if not os.environ.get("GOTORCH_TEST_CUDA"):
        pytest.skip("make test-cuda runs it")
    found = conformance("--device", "cuda:0")
    assert found["problems"] == []
    assert found["leaked"] == 0
    assert found["passed"] > 20_000


def test_aoti_on_cuda(library, tmp_path):
    if not os.environ.get("GOTORCH_TEST_CUDA"):
        pytest.skip("make test-cuda runs it")
    from safetensors.torch import save_file

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).cuda().eval()
    x = torch.randn(4, 6, device="cuda")
    batch = {0: torch.export.Dim("batch", min=2)}
    with torch.no_grad():
        program = torch.export.export(model, (x,), dynamic_shapes=(batch,))
        path = str(tmp_path / "model.pt2")
        torch._inductor.aoti_compile_and_package(program, package_path=path)
        save_file({"x": x.cpu(), "y": model(x).cpu()}, tmp_path / "values.safetensors")
    done = run_go(
        *("test", "-tags", "devices", "-vet=off", "-count=1", "-v", "./tests/devices/aoti"),
        GOTORCH_TEST_AOTI=str(tmp_path),
    )
    assert done.returncode == 0, done.stdout + done.stderr
