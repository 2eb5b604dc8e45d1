"""What is refused while a graph is built, and with which words."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

import pytorch_bridge as pb
from pytorch_bridge import TensorType, ops
from pytorch_bridge.graph.basic import graph_inputs
from pytorch_bridge.ops import Composite, Elemwise, NativeOp, Reduce, scalar
from pytorch_bridge.ops.basic import SpecifyShape
from pytorch_bridge.ops.native import native
from pytorch_bridge.ops.scalar import NumberOf
from pytorch_bridge.types import schema_type

M = TensorType("float32", (None, 3))("m")
SHAPELESS = TensorType("float32")("s")
N = schema_type("int")("n")
E = TensorType("float32", ())("e")
ADD = Composite([E], [scalar.add(E, E)])
CASES = {
    "a kind that is no class": (
        lambda: ops.register_shape_c_code("Tensor", "", ()),
        "expected a class of types, got 'Tensor'",
    ),
    "SpecifyShape of a number": (lambda: SpecifyShape([1])(N), "needs a tensor, got n"),
    "SpecifyShape that cannot be": (lambda: SpecifyShape([2, 4])(M), "cannot have these sizes"),
    "Composite of matrices": (lambda: Composite([M], [M]), r"\(None, 3\)\) is no element"),
    "Composite with too few": (lambda: ADD(), "takes 1 inputs, got 0"),
    "Composite of another type": (lambda: ADD(N), "input 0 must be of type TensorType"),
    "Elemwise without dimensions": (lambda: Elemwise(ADD)(SHAPELESS), "has no fixed dimensions"),
    "Elemwise into what is no input": (
        lambda: Elemwise(scalar.add, {0: 2}),
        "has no input 2 for output 0",
    ),
    "Reduce without dimensions": (lambda: Reduce(scalar.add)(SHAPELESS), "no fixed number of dim"),
    "Reduce twice": (lambda: Reduce(scalar.add, (0, -2))(M), "an axis is named twice"),
    "Reduce of a number": (lambda: Reduce(scalar.add)(N), "needs a tensor, got n"),
    "an unknown scalar op": (lambda: scalar.ScalarOp("sum"), "no scalar op 'sum': there are add,"),
    "a scalar op with too few": (lambda: scalar.ScalarOp("add")(N), "takes 2 inputs, got 1"),
    "NumberOf of a kind": (lambda: NumberOf("long"), "the kinds are .*, not 'long'"),
    "NumberOf a tensor": (lambda: NumberOf("int")(M), "needs a Scalar, got m"),
    "a scalar op of a string": (lambda: scalar.neg("a"), "'a'"),
    "an index without dimensions": (lambda: SHAPELESS[0], "no fixed number of dimensions to index"),
    "an index that is a string": (lambda: M["a"], "cannot be indexed with 'a'"),
    "two ellipses": (lambda: M[..., 0, ...], r"more than one `\.\.\.`"),
    "a slice of floats": (lambda: M[0.5:], "a slice of m needs integers, got 0.5"),
    "sizes without dimensions": (lambda: SHAPELESS.shape, "has no fixed number of dimensions"),
    "a walk over an open size": (lambda: iter(M), "has no fixed size to iterate over"),
    "a native op with too few": (
        lambda: _op()(M),
        "takes 2 inputs, got 1",
    ),
    "an overload of its own": (lambda: native("add.nonsense"), "no native function add.nonsense"),
    "a tensor for a number": (
        lambda: ops.softmax(M, M),
        "argument 'dim': expected int, got m of type",
    ),
    "a number for a list": (lambda: ops.view(M, 1.5), "view"),
    "two outputs of one name": (lambda: _max()(M, name="y"), "has 2 outputs: name them apart"),
    "a rewrite without a name": (lambda: pb.register_rewrite("", print), "name .* is a string"),
    "a rewrite that is no function": (
        lambda: pb.register_rewrite("mine", 3),
        "the rewrite 'mine' must be callable, not 3",
    ),
    "a linker of a number": (lambda: pb.register_linker(5, print), "name .* string, not 5"),
    "a linker that is none": (lambda: pb.register_linker("mine", 5), "'mine' must be callable"),
    "rewrites that are a number": (
        lambda: pb.function(M, M, rewrite=5),
        "True, False or names of rewrites, not 5",
    ),
    "a compiled function that is pickled": (
        lambda: pickle.dumps(pb.function(M, M * 2, mode="py")),
        "compiled for this process and cannot be pickled",
    ),
    "a dtype that PyTorch lacks": (
        lambda: pb.register_fused_dtype("float12", pb.FusedDType("float", "float", "", "")),
        "'float12' is no dtype of PyTorch",
    ),
}


def _op() -> NativeOp:
    return ops.add(M, M).owner.op


def _max() -> NativeOp:
    return ops.max(M, 0)[0].owner.op


@pytest.mark.parametrize("name", CASES)
def test_what_is_refused_is_refused_with_its_reason(name):
    build, words = CASES[name]
    with pytest.raises(pb.BridgeTypeError, match=words):
        build()


def test_a_composite_of_numbers_runs_in_python():
    a, b = schema_type("float")("a"), schema_type("float")("b")
    op = Composite([a, b], [scalar.add(scalar.mul(a, b), 1)])
    x, y = schema_type("float")("x"), schema_type("float")("y")
    assert pb.function([x, y], op(x, y), mode="py")(2.0, 3.5) == 8.0


def test_gradients_go_through_checked_shapes_and_past_sizes():
    x = TensorType("float32", (None, 3))("x")
    checked = ops.SpecifyShape([2, None])(x)
    f = pb.function(x, pb.grad((checked * x.shape[0]).sum(), x))
    assert torch.equal(f(torch.randn(2, 3)), torch.full((2, 3), 2.0))


def test_a_linker_whose_thunk_is_none_is_told():
    class Nothing:
        def __init__(self, fgraph):
            pass

        def make_thunk(self):
            return None

    with pb.temporary():
        pb.register_linker("nothing", Nothing)
        with pytest.raises(pb.ContractError, match="make_thunk of Nothing must return a callable"):
            pb.function(M, M * 2, mode="nothing")


@pb.jit
def doubled(x):
    return x * 2


def test_what_is_compiled_is_copied_as_itself():
    f = pb.function(M, M * 2, mode="py")
    assert copy.copy(f) is f
    assert copy.deepcopy(f) is f
    assert copy.deepcopy([doubled])[0] is doubled
    assert pickle.loads(pickle.dumps(doubled)) is doubled
    module = torch.nn.Sequential(torch.nn.Linear(3, 3))
    module.f = f
    assert copy.deepcopy(module).f is f


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_graphs_are_copied_and_pickle(copied):
    one = ops.cat([ops.softmax(M * 2, -1), ops.clamp(M, max=0.5)], 1)
    y, f = copied((one, ops.add))
    assert f is ops.add
    assert y.owner.op == one.owner.op
    x = graph_inputs([y])[0]
    a = torch.randn(2, 3)
    wanted = torch.cat([torch.softmax(a * 2, -1), a.clamp(max=0.5)], 1)
    assert torch.equal(pb.function(x, y, mode="py")(a), wanted)
