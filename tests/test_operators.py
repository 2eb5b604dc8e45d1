"""Operators of a library that is loaded at run time, called by name from Go (row D11 of the
behaviours: whatever such an operator throws is a Go panic)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pytorch_bridge.testing.gotests import run_go
from pytorch_bridge.toolchain import ROOT

HERE = Path(__file__).parent / "operators"

EXPECTED = """\
new operators: 8
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


@pytest.mark.smoke
def test_operators_of_a_library(library, tmp_path):
    target = tmp_path / "liboperators.so"
    flags = [flag for flag in library.compile_flags() if flag != "-fvisibility=hidden"]
    link = ["-shared", f"-L{library.torch.lib}", "-ltorch_cpu", "-lc10"]
    command = [
        *library.compiler.command,
        *flags,
        HERE / "library/operators.cc",
        "-o",
        target,
        *link,
    ]
    subprocess.run([str(word) for word in command], check=True)
    done = run_go("run", "-buildvcs=false", "./tests/operators", str(target), cwd=ROOT)
    assert done.stdout.splitlines() == EXPECTED.splitlines(), done.stderr
    assert done.returncode == 0
