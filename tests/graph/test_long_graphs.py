"""A compiler's time grows with the square of a function's length, so the function of a long graph is
not optimised, while what has loops in it is."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from doubles import graph

from pytorch_bridge import ops
from pytorch_bridge.link.c_linker import CLinker
from pytorch_bridge.link.emit import has_loop
from pytorch_bridge.ops import Composite, Elemwise, scalar
from pytorch_bridge.ops.basic import Shape_i
from pytorch_bridge.ops.op import Op
from pytorch_bridge.packages.c_function import CFunction
from pytorch_bridge.types import TensorType

MARK = "PB_CALLS_ONLY "


class Looping(Op):
    """A tensor as it is, after a loop over who knows what."""

    __props__ = ()
    itypes = otypes = (TensorType("float32", (None, 3)),)
    view_map = {0: [0]}  # noqa: RUF012

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = inputs[0]

    def c_code(self, node, name, inputs, outputs, sub):
        (x,), (z,) = inputs, outputs
        return f"for (int i = 0; i < 2; i++) {{ FreeTensor({z}); {z} = RetainTensor({x}); }}"

    def c_code_cache_version(self):
        return (1,)


def linker_of(length, extra=None):
    """Calls, sizes, numbers and a fused loop, again and again."""
    a, b = (TensorType("float32", ())(n) for n in "ab")
    fused = Elemwise(Composite([a, b], [scalar.relu(scalar.mul(a, scalar.add(a, b)))]))
    x = TensorType("float32", (None, 3))("x")
    y = x if extra is None else extra(x)
    for i in range(length):
        rows = scalar.add(Shape_i(0)(y), i % 2)
        y = ops.expand(fused(y, y)[:1], [rows, 3])
    return graph([x], [y])


def test_the_function_of_a_long_graph_is_marked_and_others_are_not():
    assert MARK + "int pb_graph(" in CLinker(linker_of(40)).source()
    assert MARK + "const char *Net(" in CFunction(linker_of(40), "Net").source()
    assert MARK not in CLinker(linker_of(3)).source()
    assert "-O2" in CLinker(linker_of(40)).compile_args()


def test_a_loop_of_an_op_of_ones_own_stays_optimised():
    assert MARK not in CLinker(linker_of(40, Looping())).source()
    assert has_loop('do { x(); } while ("...");')
    assert not has_loop('f(b, "for (;;)"); /* while */ do_it(format);')


def test_values_are_those_of_the_ops():
    x = torch.randn(4, 3)
    linker = CLinker(linker_of(40))
    (y,) = linker.make_thunk()([x])
    want = x
    for i in range(40):
        want = torch.relu(want * (want + want))[:1].expand(want.shape[0] + i % 2, 3)
    assert torch.equal(y, want)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_the_compiler_optimises_loops_alone(compiler, monkeypatch):
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    monkeypatch.setenv("CC", compiler)
    linker = CLinker(linker_of(40))
    source = linker.source()
    marked, plain = functions(linker, source), functions(linker, source.replace("\n" + MARK, "\n"))
    assert marked["pb_graph"] != plain["pb_graph"]
    loops = {name: size for name, size in plain.items() if "_loop" in name}
    assert loops
    assert {name: marked[name] for name in loops} == loops


def functions(linker, source):
    """The number of lines that each function has in assembly."""
    build = linker.build()
    words = [
        w
        for w in build.command(Path("-"), Path("-"))
        if w != "-shared" and not w.startswith(("-l", "-L", "-Wl"))
    ]
    at = words.index("-")
    words[at : at + 1] = ["-x", "c", "-S", "-"]
    done = subprocess.run(words, input=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = re.findall(r"^([\w.]+):.*\n((?s:.*?))^\s*\.size\s+\1,", done.stdout, re.M)
    return {name: len(body.splitlines()) for name, body in found}
