"""The conformance suite finds faults: wrappers are broken on purpose, and it names each of them.

The generated text of some wrappers is edited and built in place of the committed one. The suite
then runs as a program of its own, because a process holds one Go package, on entries of the database
that reach these wrappers and many others.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from pytorch_bridge.native.toolchain import ROOT
from pytorch_bridge.testing.conformance import harness

pytestmark = pytest.mark.long


class Fault(NamedTuple):
    what: str
    schema: str
    function: str  # the head of the Go function, up to its parameters
    old: str
    new: str
    entry: str  # of PyTorch's database, with samples that reach it; "" where it is by hand


FAULTS = [
    Fault("two arguments swapped", "sub.Tensor", "func Sub(",
          "blk.self = self.word(opSub, \"self\")\n\tblk.other = other.word(opSub, \"other\")",
          "blk.self = other.word(opSub, \"self\")\n\tblk.other = self.word(opSub, \"other\")", "sub"),
    Fault("an option dropped", "sum.dim_IntList", "func SumDim(",
          "blk.keepdim = boolInt(opt.KeepDim)", "blk.keepdim = 0", "sum"),
    Fault("alpha ignored", "addmm", "func AddMM(",
          "blk.alpha = makeScalar(opt.Alpha,", "blk.alpha = makeScalar(1,", "addmm"),
    Fault("a wrong default", "leaky_relu", "func LeakyReLU(",
          "opt.NegativeSlope = 0.01", "opt.NegativeSlope = 0.02", "nn.functional.leaky_relu"),
    Fault("in place, but another tensor is returned", "mul_.Tensor", "func Mul_(",
          "return self", "return self.Clone()", "mul"),
    Fault("in place, but a view of the argument is returned", "exp_", "func Exp_(",
          "return self", "return self.Alias()", "exp"),
    Fault("a copy instead of a view", "transpose.int", "func Transpose(",
          "return newTensor(&blk.r0, blk.scope)", "return newTensor(&blk.r0, blk.scope).Contiguous().Clone()",
          "transpose"),
    Fault("two results swapped", "max.dim", "func MaxDim(",
          "return newTensor(&blk.r0, blk.scope), newTensor(&blk.r1, blk.scope)",
          "return newTensor(&blk.r1, blk.scope), newTensor(&blk.r0, blk.scope)", "max.reduction_with_dim"),
    Fault("dtype ignored", "zeros", "func Zeros(",
          "blk.dtype = int64(opt.DType)", "blk.dtype = 0", "zeros"),
    Fault("the generator ignored", "normal_", "func Normal_(",
          "blk.generator = opt.Generator.handle(opNormal_, \"generator\")", "blk.generator = nil", ""),
    Fault("an optional tensor dropped", "layer_norm", "func LayerNorm(",
          "blk.bias = unsafe.Pointer(opt.Bias.T)", "blk.bias = nil",
          "nn.functional.layer_norm"),
    Fault("the method swaps, the function does not", "div.Tensor", "func (self Tensor) Div(",
          "return Div(self, other)", "return Div(other, self)", "div.no_rounding_mode"),
    Fault("an error swallowed", "mv", "func MV(",
          "call(opMV, unsafe.Pointer(&blk))",
          "func() {\n\t\tdefer func() { _ = recover() }()\n\t\tcall(opMV, unsafe.Pointer(&blk))\n\t}()", "mv"),
    Fault("out is not written", "cat.out", "func CatOut(",
          "blk.out = out.word(opCatOut, \"out\")", "blk.out = out.Clone().word(opCatOut, \"out\")", "cat"),
    Fault("the last of a list left out", "stack", "func Stack(",
          "words(tensors, opStack,", "words(tensors[:max(1, len(tensors)-1)], opStack,", "stack"),
    Fault("an explicit false taken for unset", "var.dim", "func VarDim(",
          "orDefault(opt.Unbiased, true)", "opt.Unbiased == nil || true", "var"),
    Fault("the graph lost", "tanh", "func Tanh(",
          "return newTensor(&blk.r0, blk.scope)", "return newTensor(&blk.r0, blk.scope).Detach()", "tanh"),
    Fault("requires_grad ignored", "ones", "func Ones(",
          "blk.requiresGrad = boolInt(opt.RequiresGrad)", "blk.requiresGrad = 0", "ones"),
    Fault("a number of another type", "true_divide.Scalar", "func TrueDivideScalar(",
          "makeScalar(other,", "makeScalar(complex(other.(float64), 0),", ""),
]  # fmt: skip

LEAK = Fault("every result kept for ever", "neg", "func Neg(",
             "return newTensor(&blk.r0, blk.scope)",
             "kept = append(kept, newTensor(&blk.r0, blk.scope))\n\treturn kept[len(kept)-1].Alias()",
             "neg")  # fmt: skip


def broken(faults: list[Fault], folder: Path) -> dict[Path, Path]:
    """Writes the files with faults; returns which file each replaces."""
    texts: dict[Path, str] = {p: p.read_text() for p in (ROOT / "gotorch").glob("ops_*_gen.go")}
    for fault in faults:
        path = next(p for p, text in texts.items() if f"\n{fault.function}" in text)
        start = texts[path].index(f"\n{fault.function}")
        end = texts[path].index("\n}\n", start)
        body = texts[path][start:end]
        assert body.count(fault.old) == 1, f"{fault.what}: {fault.schema} reads otherwise now"
        texts[path] = texts[path][:start] + body.replace(fault.old, fault.new) + texts[path][end:]
    overlay = {}
    for path, text in texts.items():
        if text != path.read_text():
            overlay[path] = folder / path.name
            overlay[path].write_text(text)
    return overlay


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """What the suite says about the broken package."""
    folder = tmp_path_factory.mktemp("faults")
    overlay = broken([*FAULTS, LEAK], folder)
    extra = folder / "faults.go"
    extra.write_text("package gotorch\n\nvar kept []Tensor\n")
    overlay[ROOT / "gotorch/faults.go"] = extra
    library = harness.build(overlay, "libfaulty.so")
    entries = sorted({f.entry for f in [*FAULTS, LEAK] if f.entry})
    command = [
        sys.executable,
        "-m",
        "pytorch_bridge.testing.conformance",
        "--library",
        str(library),
    ]
    command += ["--json", "--slice", "--by-hand", "--errors", "--exact", *entries]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.what.replace(" ", "-"))
def test_a_fault_is_found(found: dict, fault: Fault) -> None:
    assert fault.schema in found["failed"]
    about = [p for p in found["problems"] if p.startswith(f"{fault.schema}(")]
    assert all(re.search(r" as (function|method).* \[.*\]: .", p) for p in about)


def test_a_leak_is_found(found: dict) -> None:
    assert found["leaked"] > 0


def test_nothing_else_is_found(found: dict) -> None:
    wanted = {f.schema for f in FAULTS}
    # The result of the leaking function is a view, which the suite sees as well.
    assert set(found["failed"]) - {LEAK.schema} == wanted
    assert found["passed"] > 2000


def test_the_method_alone_is_broken(found: dict) -> None:
    about = [p for p in found["problems"] if p.startswith("div.Tensor(")]
    assert about
    assert all(" as method [" in p for p in about)
