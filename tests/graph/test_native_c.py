"""Native ops, copies, views and shapes in compiled graphs."""

from __future__ import annotations

import gc
import re
import subprocess
import sys

import pytest
import torch
from doubles import VersionedDouble, compiled, graph

import pytorch_bridge as pb
from pytorch_bridge import ops
from pytorch_bridge.errors import MissingMethodError
from pytorch_bridge.graph.basic import Constant
from pytorch_bridge.link.c_linker import CLinker
from pytorch_bridge.link.dual import DualLinker
from pytorch_bridge.link.opwise import OpWiseLinker
from pytorch_bridge.native.extension import live_handles
from pytorch_bridge.ops.basic import (
    DeepCopyOp,
    Shape_i,
    ViewOp,
    register_deep_copy_op_c_code,
    register_shape_c_code,
    register_shape_i_c_code,
    register_view_op_c_code,
    shape,
)
from pytorch_bridge.schema.functions import load_reference
from pytorch_bridge.types import TensorType, schema_type


@pytest.fixture(autouse=True)
def no_handle_is_left():
    gc.collect()
    before = live_handles()
    yield
    assert live_handles() == before


def tensor(*sizes, dtype="float32", name=None):
    return TensorType(dtype, sizes)(name)


def mlp():
    x, w1, b1 = tensor(None, 3, name="x"), tensor(4, 3, name="w1"), tensor(4, name="b1")
    w2, b2 = tensor(2, 4, name="w2"), tensor(2, name="b2")
    hidden = ops.relu(ops.addmm(b1, x, ops.t(w1)))
    return [x, w1, b1, w2, b2], [ops.addmm(b2, hidden, ops.t(w2))]


def mlp_values(batch=5):
    torch.manual_seed(0)
    return [
        torch.randn(batch, 3),
        torch.randn(4, 3),
        torch.randn(4),
        torch.randn(2, 4),
        torch.randn(2),
    ]


def eager_mlp(x, w1, b1, w2, b2):
    return torch.nn.functional.linear(torch.relu(torch.nn.functional.linear(x, w1, b1)), w2, b2)


@pytest.mark.parametrize("linker", [CLinker, OpWiseLinker, DualLinker])
def test_a9_a_network_to_the_last_bit(linker):
    f = compiled(*mlp(), linker)
    for batch in (5, 1, 0):
        values = mlp_values(batch)
        assert torch.equal(f(*values), eager_mlp(*values))


def test_a_graph_of_native_ops_is_c99_without_python_in_the_nodes():
    linker = CLinker(graph(*mlp()), demand_c=True)
    source = linker.source()
    assert str(linker.compiler()) in ("cc", "gcc", "clang")
    assert "-std=c99" in linker.compile_args()
    assert "AddMM(V3, V1, V6, arg_beta, arg_alpha, &V7)" in source
    assert source.count("PyEval_SaveThread") == 1


@pytest.mark.parametrize(
    ("value", "got"),
    [
        (torch.zeros(2, 3, dtype=torch.float64), "torch.float64"),
        (torch.zeros(2, 4), "(2, 4)"),
        (torch.zeros(3), "(3,)"),
        (torch.zeros(2, 3, device="meta"), "meta"),
        ([1.0], "list"),
        (None, "None"),
    ],
)
def test_a3_a_tensor_of_another_type_is_an_error_that_names_both_and_the_input(value, got):
    f = compiled(*mlp())
    _, *rest = mlp_values()
    with pytest.raises(TypeError) as raised:
        f(value, *rest)
    said = str(raised.value)
    assert said.startswith("x: expected ")
    assert "float32" in said
    assert got in said
    assert "In input 0, x, of type " in said


def test_a5_tensors_are_not_copied_and_their_counts_stay_flat():
    inputs, (out,) = mlp()
    x = inputs[0]
    f = compiled(inputs, [out, ops.t(x), x])
    values = mlp_values()
    f(*values)
    _, transposed, same = f(*values)
    assert same is values[0]
    assert transposed.data_ptr() == values[0].data_ptr()
    del transposed, same
    before = [(sys.getrefcount(v), v._use_count()) for v in values]
    storages = [torch._C._storage_Use_Count(v.untyped_storage()._cdata) for v in values]
    for _ in range(100_000):
        f(*values)
    assert [(sys.getrefcount(v), v._use_count()) for v in values] == before
    assert [torch._C._storage_Use_Count(v.untyped_storage()._cdata) for v in values] == storages


def test_a6_a_failing_native_op_leaves_no_handle_and_says_what_pytorch_says():
    a, b = tensor(None, None, name="a"), tensor(None, None, name="b")
    f = compiled([a, b], [ops.relu(ops.mm(ops.neg(a), b))])
    assert f(torch.ones(2, 3), torch.ones(3, 2)).tolist() == [[0, 0], [0, 0]]
    with pytest.raises(RuntimeError) as raised:
        f(torch.ones(2, 3), torch.ones(2, 3))
    said = str(raised.value)
    assert said.startswith("mm: mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)\n")
    assert "In node 1 of 3, mm\n  input t0: " in said
    assert "->   1  t1 = mm(t0, b)" in said
    index = tensor(None, dtype="int64", name="index")
    f = compiled([a, index], [ops.index_select(a, 0, index)])
    with pytest.raises(IndexError, match="index out of range"):
        f(torch.ones(2, 3), torch.tensor([7]))


def test_kinds_of_errors():
    a = tensor(None, None, name="a")
    singular = compiled([a], [ops.linalg_inv(a)])
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        singular(torch.zeros(2, 2))
    with pytest.raises(RuntimeError, match=r"^linalg.inv|^linalg_inv|must be batches of square"):
        singular(torch.zeros(2, 3))


def test_gradients_are_not_recorded_without_saying_so():
    inputs, outputs = mlp()
    f = compiled(inputs, outputs)
    values = mlp_values()
    values[1].requires_grad_()
    with pytest.raises(RuntimeError, match="records no gradient") as raised:
        f(*values)
    assert "In input 1, w1" in str(raised.value)
    with torch.no_grad():
        assert torch.equal(f(*values), eager_mlp(*values))
    values[1] = values[1].detach()
    assert not f(*values).requires_grad


def test_a_graph_runs_below_autograd_and_autocast():
    x = tensor(2, 2, name="x")
    f = compiled([x], [ops.mm(x, x)])
    value = torch.ones(2, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.mm(value, value).dtype == torch.bfloat16
        assert f(value).dtype == torch.float32
        assert torch.mm(value, value).dtype == torch.bfloat16
    with torch.inference_mode():
        assert f(value).is_inference()


def test_after_a_failure_autograd_records_again():
    a, b = tensor(None, None, name="a"), tensor(None, None, name="b")
    f = compiled([a, b], [ops.mm(a, b)])
    with pytest.raises(RuntimeError):
        f(torch.ones(2, 3), torch.ones(2, 3))
    assert (torch.ones(2, requires_grad=True) * 2).requires_grad


def test_in_place_ops_count_as_changes():
    x = tensor(2, name="x")
    f = compiled([x], [ops.add_(x, x)])
    value = torch.ones(2)
    version = value._version
    out = f(value)
    assert out is value
    assert value.tolist() == [2, 2]
    assert value._version == version + 1


def test_b21_perform_in_the_middle_of_native_ops_sees_torch_as_usual():
    from pytorch_bridge.graph.basic import Apply
    from pytorch_bridge.ops.op import Op

    class Doubled(Op):
        def make_node(self, x):
            return Apply(self, [x], [x.type()])

        def perform(self, node, inputs, output_storage):
            leaf = inputs[0].detach().clone().requires_grad_()
            (leaf * leaf).sum().backward()
            output_storage[0][0] = leaf.grad

    x = tensor(3, name="x")
    f = compiled([x], [ops.neg(Doubled()(ops.relu(x)))])
    assert f(torch.tensor([1.0, -1.0, 2.0])).tolist() == [-2, 0, -4]


# Forms of arguments and results -----------------------------------------------------------------


def call(build, *values):
    """Builds a graph on variables for the values, compiles it and calls it."""
    variables = []
    for v in values:
        if isinstance(v, torch.Tensor):
            kind = TensorType(v.dtype, v.shape)
        else:
            kind = schema_type(type(v).__name__)
        variables.append(kind(f"v{len(variables)}"))
    outs = build(*variables)
    outs = list(outs) if isinstance(outs, (list, tuple)) else [outs]
    results = CLinker(graph(variables, outs), demand_c=True).make_thunk()(values)
    return results[0] if len(results) == 1 else results


X = torch.arange(6.0).reshape(2, 3)
I = torch.arange(6).reshape(2, 3)  # noqa: E741


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        # scalars of each kind, and None
        (lambda x: ops.add(x, 2), X + 2),
        (lambda x: ops.add(x, 2.5, alpha=3), torch.add(X, 2.5, alpha=3)),
        (lambda x: ops.mul(x, True), X * True),
        (lambda x: ops.mul(x, 1 + 2j), X * (1 + 2j)),
        (lambda x: ops.clamp(x, None, 3), X.clamp(max=3)),
        (lambda x: ops.clamp(x, 1, 3.5), X.clamp(1, 3.5)),
        (lambda x: ops.add(x, float("inf")), X + float("inf")),
        # lists of integers, empty ones, none
        (lambda x: ops.permute(x, (1, 0)), X.permute(1, 0)),
        (lambda x: ops.sum(x, [0, 1], keepdim=True), X.sum([0, 1], keepdim=True)),
        (lambda x: ops.sum(x, []), X.sum([])),
        (lambda x: ops.sum.dim_IntList(x, None), X.sum()),
        # dtypes, devices, memory formats
        (lambda x: ops.sum(x, dtype=torch.float64), X.sum(dtype=torch.float64)),
        (lambda x: ops.clone(x, memory_format=torch.contiguous_format), X.clone()),
        (lambda x: ops.zeros_like(x, dtype=torch.int64), torch.zeros_like(X, dtype=torch.int64)),
        # strings
        (
            lambda x: ops.gelu(x, approximate="tanh"),
            torch.nn.functional.gelu(X, approximate="tanh"),
        ),
        (lambda x: ops.div(x, 2, rounding_mode="floor"), torch.div(X, 2, rounding_mode="floor")),
        # lists of tensors, in and out
        (lambda x: ops.cat([x, x, x], 1), torch.cat([X] * 3, 1)),
        (lambda x: ops.split(x, 2, 1), X.split(2, 1)),
        (lambda x: ops.cat(ops.split(x, 1, 0), 1), torch.cat(X.split(1, 0), 1)),
        # several results
        (lambda x: ops.topk(x, 2), X.topk(2)),
        (lambda x: ops.max(x, 1), X.max(1)),
        # a bool, an int that is no tensor
        (lambda x: ops.cumsum(x, 1), X.cumsum(1)),
        (lambda x: ops.sort(x, 1, True), X.sort(1, True)),
        (
            lambda x: ops.native_layer_norm(x, [3], None, None, 1e-5)[0],
            torch.nn.functional.layer_norm(X, [3]),
        ),
    ],
)
def test_forms_of_arguments(build, expected):
    result = call(build, X)
    if isinstance(expected, (tuple, list)):
        assert all(torch.equal(a, b) for a, b in zip(result, expected, strict=True))
    else:
        assert result.dtype == expected.dtype
        assert torch.equal(result, expected)


CONVOLVED = [torch.randn(1, 2, 3, 3) for _ in range(2)]
WEIGHT = torch.randn(2, 2, 1, 1)
BACKWARD = ([2], [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
# By the type of the list, which has the variable k in it.
WITH_VARIABLES = {
    "int[]": (lambda x, k: ops.reshape(x, (k, -1)), (X, 3), X.reshape(3, 2)),
    "int[]?": (
        lambda x, k: ops.upsample_nearest1d.vec(x, [k], None),
        (X[None], 6),
        X[None].repeat_interleave(2, 2),
    ),
    "float[]?": (
        lambda x, k: ops.upsample_nearest1d.vec(x, None, [k]),
        (X[None], 2.0),
        X[None].repeat_interleave(2, 2),
    ),
    "Scalar[]": (lambda x, k: ops._foreach_add.ScalarList([x], [k]), (X, 2), X + 2),
    "bool[]": (
        lambda g, x, w, k: ops.convolution_backward(g, x, w, *BACKWARD, [k, True, False])[1],
        (*CONVOLVED, WEIGHT, False),
        torch.ops.aten.convolution_backward(*CONVOLVED, WEIGHT, *BACKWARD, [True] * 3)[1],
    ),
    "Tensor[]": (lambda x, k: ops.stack([x, k]), (X, X), torch.stack([X, X])),
    "Tensor?[]": (lambda x, k: ops.index(x, [None, k]), (X, I[0]), X[:, I[0]]),
}


@pytest.mark.parametrize("kind", WITH_VARIABLES)
def test_a_variable_among_the_elements_of_a_list(kind):
    build, values, expected = WITH_VARIABLES[kind]
    result = call(build, *values)
    assert torch.equal(result, expected)


def test_lists_of_every_type_have_been_tried():
    found = {str(a.type) for f in load_reference() for a in f.arguments if "[" in str(a.type)}
    assert {
        re.sub(r"\[\d\]", "[]", t.replace("Sym", "").replace("Int", "int")) for t in found
    } == set(WITH_VARIABLES)


def test_a_variable_in_the_place_of_what_may_be_none():
    x = TensorType("float32", X.shape)("x")
    layout = schema_type("MemoryFormat")
    known = Constant(layout, torch.contiguous_format)
    for memory_format, given in ((layout("f"), (torch.contiguous_format,)), (known, ())):
        variables = [x, memory_format][: 1 + len(given)]
        y = ops.clone(x, memory_format=memory_format)
        (result,) = CLinker(graph(variables, [y]), demand_c=True).make_thunk()(
            [X.T.contiguous().T, *given]
        )
        assert result.is_contiguous()
        assert torch.equal(result, X)


def test_a_number_in_the_place_of_a_tensor_does_not_promote():
    x, out = TensorType("int64", I.shape)("x"), TensorType("float32", I.shape)("out")
    total = ops.add.out(x, 2.5, out=out)
    assert "cgotorch_number_tensor(" in CLinker(graph([x, out], [total])).source()
    result = compiled([x, out], [total])(I, torch.empty(I.shape))
    assert torch.equal(result, I + 2.5)


def test_numbers_as_variables():
    assert call(lambda x, k: ops.mul(x, k), X, 3).tolist() == (X * 3).tolist()
    assert call(lambda x, k: ops.mul(x, k), X, 0.5).tolist() == (X * 0.5).tolist()
    assert call(lambda x, k: ops.full((2, k), 1.5), X, 3).shape == (2, 3)
    assert call(lambda x, k: ops.expand(x, (k, 2, 3)), X, 4).shape == (4, 2, 3)
    assert call(lambda x, k: ops.clamp(x, k, 4), X, 2).tolist() == X.clamp(2, 4).tolist()


def test_the_c_of_every_native_op_is_cplusplus_as_well():
    class Plus(VersionedDouble):
        def c_compiler(self):
            return "g++"

    number = Plus()("number")
    x = tensor(2, 3, name="x")
    y = ops.add(ops.sum(ops.clamp(x, 1, 3.5), [0], keepdim=True, dtype=torch.float64), 1 + 2j)
    parts = ops.split(ops.cat([x, x], 0), 2, 0)
    f = compiled([x, number], [y, ops.add(parts[1], x), number])
    a, b, c = f(X, 1.5)
    assert torch.equal(a, X.clamp(1, 3.5).sum([0], keepdim=True, dtype=torch.float64) + (1 + 2j))
    assert torch.equal(b, X * 2)
    assert c == 1.5


def test_temporaries_are_freed_after_their_last_use():
    x = tensor(None, name="x")
    v = x
    for _ in range(6):
        v = ops.add(v, 1)
    source = CLinker(graph([x], [v])).source()
    body = source[source.index("/* 0: ") :]
    assert body.index("FreeTensor(V2)") < body.index("/* 2: ")
    assert compiled([x], [v])(torch.zeros(3)).tolist() == [6, 6, 6]


# DeepCopyOp, ViewOp, Shape, Shape_i -------------------------------------------------------------


def test_a17_function_of_x_to_x_does_not_return_its_storage():
    x = tensor(2, 3, name="x")
    f = pb.function([x], x, mode="c")
    out = f(X)
    assert torch.equal(out, X)
    assert out.data_ptr() != X.data_ptr()
    assert "Clone(" in CLinker(graph([x], [DeepCopyOp()(x)])).source()


def test_a17_the_code_for_a_type_is_registered_with_a_version():
    class Copied(VersionedDouble):
        pass

    x = Copied()("x")
    linker = CLinker(graph([x], [DeepCopyOp()(x)]), demand_c=True)
    with pytest.raises(MissingMethodError, match=r"DeepCopyOp.* no C code, which is demanded"):
        linker.source()
    assert compiled([x], [DeepCopyOp()(x)])(1.5) == 1.5
    register_deep_copy_op_c_code(Copied, "%(oname)s = %(iname)s + 1; /* copied */", version=(7,))
    linker = CLinker(graph([x], [DeepCopyOp()(x)]), demand_c=True)
    assert "V2 = V1 + 1; /* copied */" in linker.source()
    assert ("DeepCopyOp", (1, 7)) in (linker.versions() or ())
    assert linker.make_thunk().call(1.5) == 2.5


def test_a18_a_view_is_c_after_registration():
    class Viewed(VersionedDouble):
        pass

    x = Viewed()("x")
    with pytest.raises(MissingMethodError):
        CLinker(graph([x], [ViewOp()(x)]), demand_c=True).source()
    register_view_op_c_code(Viewed, "%(oname)s = %(iname)s;", (1,))
    assert CLinker(graph([x], [ViewOp()(x)]), demand_c=True).make_thunk().call(2.0) == 2.0
    t = tensor(2, 3, name="t")
    value = X.clone()
    assert compiled([t], [ViewOp()(t)])(value).data_ptr() == value.data_ptr()


def test_a19_shapes_of_tensors():
    x = tensor(None, None, name="x")
    f = compiled([x], [Shape_i(0)(x), Shape_i(1)(x), shape(x)])
    assert f(torch.zeros(4, 5)) == [4, 5, [4, 5]]
    with pytest.raises(TypeError, match=r"Shape_i.*2 dimensions"):
        Shape_i(5)(x)
    anything = TensorType()("anything")
    f = compiled([anything], [Shape_i(2)(anything)])
    assert f(torch.zeros(1, 2, 3)) == 3
    with pytest.raises(TypeError, match="no dimension 2"):
        f(torch.zeros(1, 2))


def test_a19_shapes_of_a_type_of_ones_own():
    class Pairs(VersionedDouble):
        """A pair of floats."""

        def filter(self, value, strict=False, allow_downcast=None):
            return value

        def c_declare(self, name, sub):
            return f"double {name}[2];"

        def c_init(self, name, sub):
            return f"{name}[0] = {name}[1] = 0;"

        def c_extract(self, name, sub, **kwargs):
            return f'if (!PyArg_ParseTuple(py_{name}, "dd", {name}, {name} + 1)) {sub["fail"]}'

        def c_sync(self, name, sub):
            return (
                f'Py_XDECREF(py_{name}); py_{name} = Py_BuildValue("(dd)", {name}[0], {name}[1]);'
            )

    x = Pairs()("x")
    outs = [Shape_i(0)(x), shape(x)]
    register_shape_i_c_code(
        Pairs,
        "%(oname)s = 2 + %(i)s;",
        'if (%(i)s > 0) { PyErr_SetString(PyExc_TypeError, "a pair"); %(fail)s }',
        version=(1,),
    )
    register_shape_c_code(
        Pairs,
        "%(oname)s = (int64_t *)malloc(8); %(oname)s[0] = 2; %(oname)s_len = 1;",
        version=(1,),
    )
    assert CLinker(graph([x], outs), demand_c=True).make_thunk().call((1.0, 2.0)) == [2, [2]]
    with pytest.raises(TypeError, match="a pair"):
        compiled([x], [Shape_i(1)(x)])((1.0, 2.0))


DEVICES = """
import torch

import pytorch_bridge as pb


class Same(pb.Op):
    __props__ = ()

    def make_node(self, d):
        return pb.Apply(self, [d], [d.type.make_variable()])

    def c_code(self, node, name, inputs, outputs, sub):
        return f"{outputs[0]} = {inputs[0]};"

    def c_code_cache_version(self):
        return (1,)


d = pb.schema_type("Device")("d")
f = pb.function([d], Same()(d), "c_only")
for name in ("cpu", "cuda:1", "privateuseone:2"):
    assert f(torch.device(name)) == f(name) == torch.device(name)
for name in ("cpu:", "cpu:x", "nobody", 1, None):
    try:
        f(name)
    except TypeError as e:
        assert "expected Device" in str(e), e
    else:
        raise AssertionError(name)
torch.utils.rename_privateuse1_backend("somebody")
for name in ("somebody", "somebody:2", "cpu"):
    assert f(torch.device(name)) == f(name) == torch.device(name)
"""


def test_devices_go_through_c_by_any_name_that_torch_has_for_them():
    """A backend gives itself a name once in a process."""
    done = subprocess.run([sys.executable, "-c", DEVICES], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
