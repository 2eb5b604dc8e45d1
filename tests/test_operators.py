"""Operators of a library that is loaded at run time, called by name from Go (row D11 of the
behaviours: whatever such an operator throws is a Go panic)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import pytorch_bridge as pb
from pytorch_bridge import export_go
from pytorch_bridge.native.toolchain import ROOT
from pytorch_bridge.ops.library_operators import libraries_of
from pytorch_bridge.testing.gotests import run_go

sys.path.insert(0, str(Path(__file__).parent / "graph"))
from package_form import PackageForm

HERE = Path(__file__).parent / "operators"

EXPECTED = """\
operators: 11
gotorchtest::scale(Tensor x, Scalar by=2, *, int times=1) -> Tensor
tensor([ 9., 18.]) tensor([9., 9.]) tensor([0.5000])
[]gotorch.Tensor=[tensor([1])] []interface {}=[<nil> tensor([1])] []int64=[1 2] []float64=[0.5] []bool=[true] []string=[a é]
gotorchtest::echo_lists: TypeError: argument 'o' of gotorchtest::echo_lists must be Tensor?[], not None
[]gotorch.Tensor=[] []interface {}=[] []int64=[] []float64=[] []bool=[] []string=[]
complex128=(1+2i) string=text bool=true float64=3 gotorch.Device=cpu int64=15 <nil>=<nil>
bool=true string= bool=false float64=0.25 gotorch.Device=cpu <nil>=<nil> int64=7
gotorch.Dict=[{k tensor([1])}]
gotorchtest::echo_dict: TypeError: argument 'd' of gotorchtest::echo_dict must be str, not int
gotorchtest::throw_int: RuntimeError: a C++ exception that is no std::exception was thrown
gotorchtest::throw_text: RuntimeError: a text
gotorchtest::throw_index: IndexError: index 7 is out of bounds
Backward: RuntimeError: rude
"""


@pytest.fixture(scope="module")
def operators(library, tmp_path_factory) -> Path:
    """The library of operators. It needs libtorch.so and does not say where that is, as libraries that
    are built for Python."""
    target = tmp_path_factory.mktemp("operators") / "liboperators.so"
    flags = [flag for flag in library.compile_flags() if flag != "-fvisibility=hidden"]
    flags += ["-O0"]
    link = [
        "-shared",
        f"-L{library.torch.lib}",
        "-Wl,--no-as-needed",
        "-ltorch",
        "-ltorch_cpu",
        "-lc10",
    ]
    command = [
        *library.compiler.command,
        *flags,
        HERE / "library/operators.cc",
        "-o",
        target,
        *link,
    ]
    subprocess.run([str(word) for word in command], check=True)
    return target


@pytest.mark.smoke
def test_operators_of_a_library(operators):
    done = run_go("run", "-buildvcs=false", "./tests/operators", str(operators), cwd=ROOT)
    assert done.stdout.splitlines() == EXPECTED.splitlines(), done.stderr
    assert done.returncode == 0


class Affine(torch.nn.Module):
    def forward(self, x):
        y = torch.ops.gotorchtest.affine(x, float("inf"), [-(2**63)], t=torch.float64)
        return y, torch.ops.gotorchtest.affine(x.to(torch.complex64), 0.1, [3], plus=2j)


class Written(torch.nn.Module):
    """Operators write into a buffer, an argument, a new tensor and a part of one."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(2, 3))

    def forward(self, x, y):
        torch.ops.gotorchtest.accumulate(self.total, x)
        n = torch.ops.gotorchtest.counted(y, self.total)
        z = x * 2
        torch.ops.gotorchtest.accumulate(z, y)
        part = z[:, 1:]
        m = torch.ops.gotorchtest.counted(part, x[:, :2])
        return z + n, self.total * m, part


def written(operators):
    """The program of Written."""
    torch.ops.load_library(operators)
    for name in ("accumulate", "counted"):
        if not torch._library.simple_registry.singleton.find(
            f"gotorchtest::{name}"
        ).fake_impl.kernel:
            torch.library.register_fake(
                f"gotorchtest::{name}",
                (lambda y, x: None) if name == "accumulate" else (lambda y, x: y.new_empty(())),
            )
    given = torch.randn(2, 3), torch.randn(2, 3)
    return torch.export.export(Written(), given, dynamic_shapes=({0: None}, {0: None}))


def test_operators_that_write_into_their_arguments(operators):
    program = written(operators)
    module = program.module()
    model = pb.from_exported(program)
    compiled = [model.compile("py"), pb.from_exported(program).compile()]
    packages = [PackageForm(program, "py"), PackageForm(program, None)]
    for _ in range(3):
        x, wide = torch.randn(2, 3), torch.randn(2, 6)
        copies = [wide.clone() for _ in range(5)]
        given = [t[:, ::2] for t in copies]
        want = module(x, given[0])
        for form, y in zip([*compiled, *packages], given[1:], strict=True):
            got = form(x, y)
            assert all(map(torch.equal, got, want))
        for t in copies[1:]:
            assert torch.equal(t, copies[0])
    total = module.state_dict()["total"]
    for form in compiled:
        assert torch.equal(form.model.state_dict()["total"], total)
    for form in packages:
        assert torch.equal(form.state["total"], total)


def test_an_exported_package_loads_the_library_of_its_operators(operators, tmp_path):
    torch.ops.load_library(operators)

    @torch.library.register_fake("gotorchtest::affine.Tensor")
    def _(x, by, shift, *, t=None, plus=0):
        return x.new_empty(x.shape, dtype=t or x.dtype)

    x = torch.randn(3)
    export_go(torch.export.export(Affine(), (x,)), tmp_path / "affine")
    export_go(written(operators), tmp_path / "written")
    (tmp_path / "go.mod").write_text(
        "module example.org/operators\n\ngo 1.26.0\n\nrequire gotorch.dev v0.0.0\n\n"
        f"replace gotorch.dev => {ROOT}\n"
    )
    done = run_go("test", "-c", "-o", "tests", "./affine", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    done = run_go("test", "./written", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    tests = {"args": tmp_path / "tests", "cwd": tmp_path / "affine", "text": True}
    done = subprocess.run(**tests, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr

    # Without the library it says which operator, which file and which call.
    operators.unlink()
    done = subprocess.run(**tests, capture_output=True)
    assert re.search(
        r"OSError: gotorchtest::affine is an operator of a library, which is to be loaded before: "
        rf"OSError: {operators}: cannot open .*affine\.Tensor\(x",
        done.stderr,
    )


def test_the_libraries_that_an_operator_may_be_from(monkeypatch, tmp_path):
    files = {
        "a_caller": b"\0mylib::half\0",
        "b_schema": b"\0mylib\0half.out(Tensor x) -> Tensor\0",
        "c_other_name": b"\0mylib\0halves(Tensor x)\0",
        "d_other_namespace": b"\0other\0half(Tensor x)\0",
        "e_gone": b"",
        "f_kernel": b"\0mylib\0half.out\0",
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "e_gone").unlink()
    monkeypatch.setattr(torch.ops, "loaded_libraries", {str(tmp_path / name) for name in files})
    found = [Path(path).name for path in libraries_of.__wrapped__("mylib::half")]
    assert found == ["b_schema", "a_caller", "f_kernel"]
