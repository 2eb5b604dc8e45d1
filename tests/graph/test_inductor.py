"""The linker "inductor". One graph is compiled, once for as long as neither it nor the linker
changes: it stays in the cache, as what a user compiles does."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.export import Dim

import pytorch_bridge as pb
from pytorch_bridge import TensorType, ops, schema_type
from pytorch_bridge.errors import (
    BridgeTypeError,
    BridgeValueError,
    CompileError,
    MissingMethodError,
)
from pytorch_bridge.link import cache, inductor
from pytorch_bridge.link.c_linker import CacheVersionWarning
from pytorch_bridge.link.content import NoContent, content
from pytorch_bridge.link.inductor import Assumed, InductorLinker
from pytorch_bridge.link.torch_export import named_constants, traced
from pytorch_bridge.native import env
from pytorch_bridge.native.toolchain import ROOT
from pytorch_bridge.ops import scalar
from pytorch_bridge.ops.basic import shape
from pytorch_bridge.ops.checks import Require
from pytorch_bridge.rewrite.prepare import prepared
from pytorch_bridge.testing.gotests import run_go


def tensor(*sizes, dtype="float32", name=None):
    return TensorType(dtype, sizes)(name)


def constant(*sizes, seed=0, name=None):
    value = torch.randn(sizes, generator=torch.Generator().manual_seed(seed))
    return TensorType("float32", sizes).make_constant(value, name=name)


def network():
    """A layer of two inputs that share a batch, with numbers; what it got; how many rows."""
    x, y = tensor(None, 8, name="x"), tensor(None, 8, name="y")
    n, s = schema_type("int")("n"), schema_type("float")("s")
    weight, bias = constant(8, 4, name="layer.weight"), constant(4, seed=1, name="bias")
    h = ops.relu((x + y) @ weight + bias)
    return [x, y, n, s], [ops.softmax(h * s + n, -1), x.shape[0] * 2 + n, x, bias]


def example(rows, seed=2):
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(rows, 8, generator=g), torch.randn(rows, 8, generator=g), 3, 0.5]


@pytest.fixture(scope="module")
def compiled():
    return pb.function(*network(), mode="inductor")


def same(found, expected):
    for a, b in zip(found, expected, strict=True):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b)
        else:
            assert type(a) is type(b)
            assert a == b


# The compiled graph


@pytest.mark.parametrize("rows", [0, 1, 2, 5, 100])
def test_values_are_those_of_the_other_linkers(compiled, rows):
    same(compiled(*example(rows)), pb.function(*network(), mode="py")(*example(rows)))


def test_inputs_may_have_any_strides(compiled):
    x, y, n, s = example(6)
    views = [x.t().contiguous().t(), y[:, :1].expand(6, 8)]
    same(compiled(*views, n, s), compiled(*[v.contiguous() for v in views], n, s))
    same(compiled(x._neg_view(), y, n, s), compiled(-x, y, n, s))


def test_outputs_share_no_memory_with_inputs_and_constants(compiled):
    given = example(2)
    _, _, x, bias = compiled(*given)
    assert torch.equal(x, given[0])
    before = bias.clone()
    x.zero_()
    bias.zero_()
    assert given[0].any()
    assert torch.equal(compiled(*given)[3], before)


def test_what_does_not_fit_is_refused_before_the_code_runs(compiled):
    x, y, n, s = example(3)
    with pytest.raises(BridgeValueError, match="y: dimension 0 must be 3, as x's dimension 0 is"):
        compiled(x, y[:1], n, s)
    with pytest.raises(BridgeTypeError, match="input 0"):
        compiled(x[:, :7], y, n, s)
    with pytest.raises(BridgeTypeError, match="input 2"):
        compiled(x, y, 0.5, s)
    with pytest.raises(BridgeTypeError, match=r"x is a tensor of layout torch\.sparse_coo"):
        compiled(x.to_sparse(), y, n, s)


def test_several_threads(compiled):
    def call(i):
        given = example(i % 7, seed=i)
        return all(map(_equal, compiled(*given), expected[i]))

    expected = [compiled(*example(i % 7, seed=i)) for i in range(64)]
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(call, [*range(64)] * 4))


def _equal(a, b):
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def _resident():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_memory_stays_flat(compiled):
    given = example(1000)
    for _ in range(100):
        compiled(*given)
    before = _resident()
    for _ in range(2000):  # 48 kB of outputs each
        compiled(*given)
    assert _resident() - before < 20_000_000


SECOND = """
import sys
import torch
torch.set_num_threads(int(sys.argv[1]))
from test_inductor import network
import pytorch_bridge as pb
from pytorch_bridge.link import cache
f = pb.function(*network(), mode="inductor")
assert "torch._inductor" not in sys.modules
print(f.linker.path, cache.cache().compiled)
"""


def test_another_process_finds_it_in_the_cache(compiled):
    done = subprocess.run(
        [sys.executable, "-c", SECOND, str(torch.get_num_threads())],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{Path(__file__).parent}", "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(compiled.linker.path), "0"]


def test_settings_count_where_they_are_others():
    before = inductor._settings()
    import torch._inductor.config as config

    torch.use_deterministic_algorithms(torch.are_deterministic_algorithms_enabled())
    assert inductor._settings() == before
    with config.patch(max_autotune=not config.max_autotune):
        assert inductor._settings() != before


def test_a_package_that_is_damaged_says_so(compiled, tmp_path, monkeypatch):
    broken = tmp_path / "broken.pt2"
    broken.write_bytes(compiled.linker.path.read_bytes()[:1000])
    linker = InductorLinker(prepared(*network()))
    linker.__dict__["path"] = broken
    with pytest.raises(CompileError, match=r"broken\.pt2 cannot be loaded"):
        linker.make_thunk()


GO = """
package main

import (
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/aoti"
	"gotorch.dev/gotorch/gotorchtest"
)

func TestPackage(t *testing.T) {
	m, err := aoti.Load("network.pt2")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	want, _, err := gotorch.LoadSafetensors("expected.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	run := func(rows string) []gotorch.Tensor {
		return m.Run(want[rows+".x"], want[rows+".y"], want[rows+".n"], want[rows+".s"])
	}
	for _, rows := range []string{"1", "5"} {
		results := run(rows)
		for i, name := range []string{"p", "count", "same", "bias"} {
			if !gotorch.Equal(results[i], want[rows+"."+name]) {
				t.Errorf("%s of %s rows is not what Python gets", name, rows)
			}
		}
	}
	err = m.UpdateConstants(map[string]gotorch.Tensor{"bias": want["bias"], "layer.weight": want["weight"]})
	if err != nil {
		t.Fatal(err)
	}
	gotorchtest.AssertClose(t, run("5")[0], want["updated"])
	if !gotorch.Equal(run("5")[3], want["bias"]) {
		t.Error("the bias is not the new one")
	}
}
"""


def test_go_runs_the_package_and_updates_its_constants(compiled, library, tmp_path):
    from safetensors.torch import save_file

    assert compiled.linker.package(tmp_path / "network.pt2") == tmp_path / "network.pt2"
    assert [p.name for p in tmp_path.iterdir()] == ["network.pt2"]
    tensors = {"bias": torch.randn(4), "weight": torch.randn(8, 4)}
    for rows in (1, 5):
        x, y, n, s = example(rows)
        given = [x, y, torch.tensor(n), torch.tensor(s, dtype=torch.float64)]
        tensors |= {f"{rows}.{k}": v for k, v in zip("xyns", given, strict=True)}
        p, count, x_again, bias = compiled(x, y, n, s)
        results = {"p": p, "count": torch.tensor(count), "same": x_again, "bias": bias}
        tensors |= {f"{rows}.{k}": v for k, v in results.items()}
    h = torch.relu((x + y) @ tensors["weight"] + tensors["bias"])
    tensors["updated"] = torch.softmax(h * s + n, -1)
    save_file(tensors, tmp_path / "expected.safetensors")
    (tmp_path / "go.mod").write_text(
        "module example.org/package\n\ngo 1.26.0\n\nrequire gotorch.dev v0.0.0\n\n"
        f"replace gotorch.dev => {ROOT}\n"
    )
    (tmp_path / "package_test.go").write_text(GO)
    done = run_go("test", "-count=1", "./...", cwd=tmp_path, **env.variables())
    assert done.returncode == 0, done.stdout + done.stderr


# What torch.export sees


def program(inputs, outputs):
    """The traced graph, and a function that runs it."""
    graph = prepared(inputs, outputs, rewrite=False)
    found = traced(graph.inputs, graph.outputs, graph.toposort())
    return found, found.program.module(check_guards=False)


def test_numbers_and_sizes_stay_open():
    x, n = tensor(None, 3, name="x"), schema_type("int")("n")
    rows = x.shape[0]
    sizes = shape(x)
    outputs = [
        scalar.maximum(rows, n),
        scalar.sym_float(rows),
        scalar.lt(rows, n),
        ops.new_zeros(x, sizes),
        ops.view(x, [rows * 3]),
    ]
    found, run = program([x, n], outputs)
    assert found.rules == []
    assert found.guards == []
    for count in (2, 5):
        largest, number, less, zeros, flat = run(torch.ones(count, 3), torch.tensor(4))
        assert (largest.item(), number.item(), less.item()) == (max(count, 4), count, count < 4)
        assert [largest.dtype, number.dtype] == [torch.int64, torch.float64]
        assert [zeros.shape, flat.shape] == [(count, 3), (count * 3,)]


def test_the_rules_of_a_model_are_those_of_the_program():
    class Two(nn.Module):
        def forward(self, x, y):
            return x.sum() + y[: x.shape[0]] * 2

    rows = Dim("rows", min=4, max=100)
    exported = torch.export.export(
        Two(), (torch.ones(5, 2), torch.ones(11, 3)), dynamic_shapes=({0: rows}, {0: 2 * rows + 1})
    )
    model = pb.from_exported(exported)
    found, run = program(model.inputs, model.outputs)
    assert [r[:2] + r[3:] for r in found.rules] == [(0, 0, 1, 0, 4, 100), (1, 0, 2, 1, 9, 201)]
    assert torch.equal(run(torch.ones(9, 2), torch.ones(19, 3))[0], torch.full((9, 3), 20.0))


def test_the_conditions_of_a_model_hold_for_the_program():
    class Wide(nn.Module):
        def forward(self, x):
            y = x * 2 if x.shape[1] > x.shape[0] + 20 else x * 3
            return y.sum(1) if x.shape[0] % 3 == 1 else y.sum(0)

    auto = Dim.AUTO
    exported = torch.export.export(
        Wide(), (torch.ones(4, 30),), dynamic_shapes=({0: auto, 1: auto},)
    )
    model = pb.from_exported(exported)
    found, run = program(model.inputs, model.outputs)
    assert torch.equal(run(torch.ones(7, 50))[0], torch.full((7,), 100.0))
    assumed = Assumed(["x"], found.rules, found.guards)
    assumed.check([torch.ones(10, 90)])
    for sizes in [(9, 90), (10, 30)]:
        with pytest.raises(BridgeValueError, match="the program asks for x"):
            assumed.check([torch.ones(sizes)])


def test_conditions_are_checked_while_it_runs():
    x, n = tensor(2, name="x"), schema_type("int")("n")
    _, run = program([x, n], [Require("n is odd")(x, scalar.eq(scalar.remainder(n, 2), 0))])
    assert run(torch.ones(2), torch.tensor(4))[0].tolist() == [1, 1]
    with pytest.raises(RuntimeError):
        run(torch.ones(2), torch.tensor(3))


def test_what_torch_takes_for_granted_is_a_guard():
    z = tensor(None, name="z")
    y = tensor(None, 3, name="y")
    found, _ = program([z, y], [ops.view(z, [-1, 8]), ops.narrow(z, 0, 3, 2), y])
    assumed = Assumed(["z", "y"], found.rules, found.guards)
    assumed.check([torch.ones(8), torch.ones(1, 3)])
    assumed.check([torch.ones(80), torch.ones(0, 3)])
    with pytest.raises(BridgeValueError, match=r"asks for z.size\(\)\[0\] % 8 == 0, .* = 17"):
        assumed.check([torch.ones(17), torch.ones(1, 3)])
    with pytest.raises(BridgeValueError, match="z: dimension 0 must be at least 5, got 0"):
        assumed.check([torch.ones(0), torch.ones(1, 3)])


class Scale(pb.Op):
    __props__ = ("factor",)

    def __init__(self, factor):
        self.factor = factor

    def make_node(self, x):
        return pb.Apply(self, [x], [x.type()])

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = inputs[0] * self.factor


def test_perform_of_ones_own_is_traced():
    x = tensor(None, name="x")
    found, run = program([x], [ops.add_(Scale(2.0)(x), 1)])
    assert run(torch.ones(3))[0].tolist() == [3, 3, 3]
    assert "aten.mul.Tensor" in str(found.program.graph)


class Leaves(Scale):
    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = torch.from_numpy(inputs[0].numpy() * self.factor)


class MadeElsewhere(Scale):
    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = self.factor


class OnlyC(pb.Op):
    __props__ = ()

    def make_node(self, x):
        return pb.Apply(self, [x], [x.type()])


@pytest.mark.parametrize("op", [Leaves(2.0), MadeElsewhere(torch.ones(3))])
def test_an_op_that_leaves_torch_is_named(op):
    x = tensor(3, name="x")
    with pytest.raises(CompileError, match=r"cannot trace node 1, (Leaves|MadeElsewhere)"):
        program([x], [op(ops.relu(x))])


def test_an_op_without_perform_is_named():
    x = tensor(3, name="x")
    with pytest.raises(MissingMethodError, match="cannot trace node 1, OnlyC: OnlyC lacks perform"):
        pb.function([x], OnlyC()(ops.relu(x)), mode="inductor")


class Looking(Scale):
    """Looks at a size, so that it is no longer open."""

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = inputs[0] * int(inputs[0].shape[0])


def test_an_open_size_that_cannot_stay_open_is_named():
    x, y = tensor(3, None, name="x"), tensor(None, None, name="y")
    message = r"dimension 0 of y, .* cannot stay open: traced with .* y: \(.*must be \d+\. Give it"
    with pytest.raises(CompileError, match=message):
        pb.function([x, y], [x, Looking(1.0)(y)], mode="inductor")
    with pytest.raises(
        CompileError, match=r"cannot trace node 0, mm: (?s:.*)traced with inputs of"
    ):
        pb.function([x, y], ops.mm(y, constant(3, 2)), mode="inductor")


@pytest.mark.parametrize(
    ("v", "message"),
    [
        (
            schema_type("bool")("v"),
            "takes tensors, integers and floats: input 0 .v. is of type bool",
        ),
        (schema_type("Tensor[]")("v"), "takes tensors, integers and floats"),
        (TensorType()("v"), "needs the dtype and the number of dimensions"),
        (TensorType("float32", (2,), device="cuda")("v"), "for the CPU: input 0 .v. is on cuda"),
    ],
)
def test_inputs_that_cannot_be(v, message):
    x = tensor(2, name="x")
    with pytest.raises(BridgeTypeError, match=message):
        pb.function([v, x], ops.relu(x), mode="inductor")


def test_inputs_are_not_written_into():
    x = tensor(2, name="x")
    with pytest.raises(BridgeValueError, match="leave x out of mutable"):
        pb.function([x], ops.add_(x, 1), mode="inductor", mutable=[x])


def test_names_of_constants():
    x = tensor(2, name="x")
    names = ["a", "a", "a.b", "layers.0.weight", "no name", "forward", "", None]
    total = x
    for i, name in enumerate(names):
        total = total + constant(2, seed=i, name=name)
    graph = prepared([x], [total], rewrite=False)
    found = named_constants(graph.toposort(), graph.outputs)
    assert list(found.values()) == [
        "a", "a_", "a_b", "layers.0.weight", "_no name", "forward_", "constant_6", "constant_7"
    ]  # fmt: skip
    made = traced(graph.inputs, graph.outputs, graph.toposort())
    assert set(made.program.state_dict) == set(found.values())


def test_constants_with_equal_values_stay_two():
    x = tensor(2, name="x")
    a, b = constant(2, name="a"), constant(2, name="b")
    graph = prepared([x], [(x * a + b).t().t()], rewrite=("canonical", "copies"))
    assert set(named_constants(graph.toposort(), graph.outputs).values()) == {"a", "b"}
    assert len(graph.apply_nodes) == 2


# Compiling


def test_a_compiler_that_is_missing_or_fails(tmp_path, monkeypatch):
    monkeypatch.setenv("GOTORCH_CACHE", str(tmp_path))
    x = tensor(2, name="x")
    monkeypatch.setenv("CXX", "/nowhere/c++")
    with pytest.raises(CompileError, match=r"needs a C\+\+ compiler.*/nowhere/c\+\+ does not run"):
        pb.function([x], ops.relu(x), mode="inductor")


def test_what_inductor_refuses_is_a_compile_error(tmp_path, monkeypatch):
    monkeypatch.setenv("GOTORCH_CACHE", str(tmp_path))

    def refuse(*args, **options):
        raise RuntimeError("first line\n" * 100)

    monkeypatch.setattr(torch._inductor, "aoti_compile_and_package", refuse)
    x = tensor(2, name="x")
    with pytest.raises(CompileError, match=r"AOTInductor failed: RuntimeError: first line"):
        pb.function([x], ops.relu(x), mode="inductor")
    assert not [*tmp_path.glob("*/*.pt2"), *tmp_path.glob("*/*.part-*")]


def _content(inputs, outputs):
    graph = prepared(inputs, outputs, rewrite=False)
    return content(graph.inputs, graph.outputs, graph.toposort())


def test_the_content_of_a_graph_is_all_that_it_computes():
    def one(factor=2.0, seed=0, name="w", size=None, op=Scale):
        x = tensor(size, 8, name="x")
        return _content([x], [op(factor)(ops.mm(x, constant(8, 4, seed=seed, name=name)))])

    assert one() == one()
    others = [one(3.0), one(2), one(seed=1), one(name="v"), one(size=3), one(op=Leaves)]
    assert len({one(), *others}) == 7


def test_the_content_of_a_graph_is_the_same_in_another_process():
    code = "from test_inductor import *; import test_inductor as t\n"
    code += "print(cache.digest(t._content(*network())))"
    found = set()
    for seed in ("1", "2"):
        path = f"{ROOT}:{Path(__file__).parent}"
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        found.add(done.stdout.strip())
    assert found == {cache.digest(_content(*network()))}


def test_what_no_other_process_would_recognise_has_no_content():
    class Nameless(Scale):
        __props__ = None

    x = tensor(3, name="x")
    with pytest.raises(NoContent, match="Nameless has no __props__"):
        _content([x], [Nameless(1.0)(x)])
    with pytest.raises(NoContent, match="object"):
        _content([x], [Scale(object())(x)])

    def made(by):
        class Local(Scale):
            def perform(self, node, inputs, output_storage):
                output_storage[0][0] = inputs[0] * by

        return Local

    with pytest.raises(NoContent, match=r"test_inductor has another .*\.Local, or none"):
        _content([x], [made(2)(1.0)(x)])
    with pytest.raises(NoContent, match=r"\.Local, or none"):
        _content([x], [Scale(made(2))(x)])
    linker = InductorLinker(prepared([x], [Nameless(1.0)(x)]))
    with pytest.warns(CacheVersionWarning, match="each process compiles"):
        first, where = inductor._Make(linker).identity()
    assert where is cache.own_cache()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert inductor._Make(linker).identity()[0] != first


def test_the_weights_of_a_model_are_constants_by_their_names():
    model = pb.from_exported(torch.export.export(nn.Linear(3, 2), (torch.ones(1, 3),)))
    linker = InductorLinker(prepared(model.inputs, model.outputs))
    assert set(named_constants(linker.order, linker.outputs).values()) == {"weight", "bias"}
