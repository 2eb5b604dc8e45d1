"""A package that somebody else has written: found by its entry point, and all of it or nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pytorch_bridge.native.toolchain import ROOT

# A rewrite, a linker, a transfer and a dtype of fused loops, and nothing of this project edited.
EXTENSION = """
from pytorch_bridge import FusedDType, register_fused_dtype, register_linker
from pytorch_bridge import register_rewrite, register_transfer
from pytorch_bridge.link.python import PythonLinker
from pytorch_bridge.rewrite.rules import Rules, owner

rule = Rules("logarithms")


@rule("log(exp(x)) -> x, to the last digit but one", "log", copies=True)
def _(node):
    inner = owner(node.inputs[0], "exp")
    return inner and inner.inputs[0]


class Counting(PythonLinker):
    calls = 0

    def make_thunk(self):
        thunk = super().make_thunk()

        def counted(values):
            Counting.calls += 1
            return thunk(values)

        return counted


@register_transfer
def to_nowhere(v, target):
    return v if target == "nowhere" else None


register_rewrite("logarithms", rule.apply, after="canonical")
register_linker("counting", Counting, rewrite=["logarithms"])
register_fused_dtype("int16", FusedDType("int16_t", "int16_t"))
"""

PROGRAM = """
import torch
import pytorch_bridge as pb
from pytorch_bridge import TensorType, function, ops
from pytorch_bridge.ops import Elemwise

x = TensorType("float32", (None,))("x")
f = function([x], ops.log(ops.exp(x)).sum(), mode="counting")
assert [str(n.op) for n in f.fgraph.toposort()] == ["sum"]
f(torch.ones(3))
import outside
assert outside.Counting.calls == 1
assert pb.transfer(x, "nowhere") is x

i = TensorType("int16", (None,))("i")
body = lambda A, i: A.sub(A.mul(A.neg(A.abs(i)), 300), A.clamp(i, -5, 40))
f = function([i], body(ops, i))
assert [type(n.op) for n in f.fgraph.toposort()] == [Elemwise]
v = torch.arange(-32768, 32768).to(torch.int16)
assert torch.equal(f(v), body(torch.ops.aten, v))
print("done")
"""


def installed(folder: Path, module: str, source: str, value: str) -> Path:
    """A package with an entry point, as pip would leave it."""
    (folder / f"{module}.py").write_text(source)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[pytorch_bridge.extensions]\nmine = {value}\n")
    return folder


def run(program: str, folder: Path) -> subprocess.CompletedProcess:
    code = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(folder)!r}]\n{program}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


@pytest.mark.usefixtures("library")
def test_a_package_from_outside_adds_a_rewrite_a_linker_a_transfer_and_a_dtype(tmp_path):
    done = run(PROGRAM, installed(tmp_path, "outside", EXTENSION, "outside"))
    assert (done.stdout, done.stderr) == ("done\n", "")


SIMPLE = """
import torch
from pytorch_bridge import TensorType, function, ops, rewrite
x = TensorType("float32", (None,))("x")
f = function([x], ops.exp(x), mode="py")
assert torch.equal(f(torch.zeros(2)), torch.ones(2))
print(rewrite.names())
"""


@pytest.mark.parametrize("value", ["broken", "broken:missing", "broken:extend"])
def test_an_extension_that_fails_leaves_nothing_and_says_why(tmp_path, value):
    source = "from pytorch_bridge import register_rewrite\n"
    source += 'def extend():\n    register_rewrite("half", print)\n    1 / 0\n'
    if value == "broken":
        source += "extend()\n"
    done = run(SIMPLE, installed(tmp_path, "broken", source, value))
    assert done.returncode == 0, done.stderr
    assert "half" not in done.stdout
    assert "ExtensionWarning: the extension 'mine' of broken (broken" in done.stderr
    assert ("missing" if "missing" in value else "ZeroDivisionError") in done.stderr


def test_a_function_is_called_once(tmp_path):
    source = "def extend():\n    print('extended')\n"
    done = run(SIMPLE + SIMPLE, installed(tmp_path, "outside", source, "outside:extend"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("extended") == 1
