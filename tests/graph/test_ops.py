"""Ops: how they make nodes, what they declare, how they run in Python, and the families."""

from __future__ import annotations

import copy
import random
import subprocess
import sys
import threading
import warnings

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import pytorch_bridge as pb
from pytorch_bridge import (
    Apply,
    BridgeTypeError,
    ContractError,
    InconsistencyError,
    MissingMethodError,
    TensorType,
    Type,
    Variable,
    constant,
    dprint,
    function,
    grad,
    ops,
    schema_type,
)
from pytorch_bridge.graph.basic import toposort
from pytorch_bridge.graph.function_graph import FunctionGraph
from pytorch_bridge.inference import quiet
from pytorch_bridge.link.python import PythonLinker
from pytorch_bridge.ops import Composite, Elemwise, Reduce, scalar
from pytorch_bridge.ops.native import native
from pytorch_bridge.ops.op import Op
from pytorch_bridge.ops.signatures import method_names
from pytorch_bridge.rewrite.merge import merge

int64, float64 = schema_type("int"), schema_type("float")


def matrix(name=None, dtype="float32"):
    return TensorType(dtype, (None, None))(name)


def vector(name=None, dtype="float32"):
    return TensorType(dtype, (None,))(name)


class SeedAdd(Op):
    """The seed's example: integers only, both of them."""

    __props__ = ()

    def make_node(self, x, y):
        inputs = []
        for v in (x, y):
            if isinstance(v, int):
                v = constant(v)
            elif not isinstance(v, Variable) or v.type != int64:
                raise TypeError("expected an int64 ScalarType")
            inputs.append(v)
        return Apply(op=self, inputs=inputs, outputs=[int64()])

    def perform(self, node, inputs, output_storage):
        x, y = inputs
        (z,) = output_storage
        z[0] = x + y


add = SeedAdd()


# B1: parameters


def test_b1_parameters_are_not_inputs():
    x = matrix("x")
    node = ops.transpose(x, 0, 1).owner
    assert node.inputs == [x]
    assert str(node.op) == "transpose.int{dim0=0, dim1=1}"
    assert node.op == ops.transpose(matrix(), dim0=0, dim1=1).owner.op
    assert hash(node.op) == hash(ops.transpose(matrix(), 0, 1).owner.op)
    assert node.op != ops.transpose(x, 1, 0).owner.op


def test_b1_defaults_are_the_same_as_what_is_left_out():
    x = matrix()
    assert ops.softmax(x, -1).owner.op == ops.softmax(x, dim=-1, dtype=None).owner.op
    assert ops.softmax(x, -1).owner.op == pb.ops.softmax.int(x, -1).owner.op


@pytest.mark.parametrize(("a", "b"), [(1, 1.0), (1, True), (0.0, -0.0), (1.0, True)])
def test_b1_what_python_calls_equal_are_different_parameters(a, b):
    x = matrix("x")
    one, two = ops.add(x, a).owner.op, ops.add(x, b).owner.op
    assert one != two
    graph = FunctionGraph([x], [ops.mul(x, a), ops.mul(x, b)])
    merge(graph)
    assert len(graph.apply_nodes) == 2


def test_b1_none_and_empty_lists_differ_from_what_is_given():
    x = matrix()
    assert ops.sum(x, [0]).owner.op != ops.sum(x, [0, 1]).owner.op
    assert len(ops.cat([x, x, x], 0).owner.inputs) == 3
    assert ops.cat([x, x], 0).owner.op != ops.cat([x, x, x], 0).owner.op


def test_b1_a_number_that_is_a_variable_is_an_input():
    x, n = matrix("x"), int64("n")
    node = ops.view(x, [n, 2]).owner
    assert node.inputs == [x, n]
    assert node.outputs[0].type.shape == (None, 2)
    f = function([x, n], node.outputs[0], mode="py")
    assert f(torch.ones(3, 4), 6).shape == (6, 2)
    y = function([x, n], x * n, mode="py")(torch.ones(1, 2), 3)
    assert y.tolist() == [[3.0, 3.0]]


# B2: families


def test_b2_elemwise_is_the_scalar_op_on_every_element():
    x, y = vector("x"), TensorType("float32", (None, 1))("y")
    z = Elemwise(scalar.add)(x, y)
    assert z.type == TensorType("float32", (None, None))
    a, b = torch.tensor([1.0, 2.0]), torch.tensor([[10.0], [20.0]])
    assert torch.equal(function([x, y], z, mode="py")(a, b), a + b)
    with pytest.raises(BridgeTypeError, match="Elemwise needs a scalar op"):
        Elemwise(ops.add)
    with pytest.raises(BridgeTypeError, match="takes 2 inputs, got 1"):
        Elemwise(scalar.add)(x)
    with pytest.raises(BridgeTypeError, match="input 1 is no tensor"):
        Elemwise(scalar.add)(x, int64())


def test_b2_elemwise_in_place():
    x, y = vector("x"), vector("y")
    op = Elemwise(scalar.add, inplace={0: 0})
    assert op.destroy_map == {0: [0]}
    assert op != Elemwise(scalar.add)
    a, b = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    assert function([x, y], op(x, y), mode="py", mutable=[x])(a, b).data_ptr() == a.data_ptr()
    assert a.tolist() == [4.0, 6.0]
    with pytest.raises(BridgeTypeError, match="doesn't match the broadcast shape"):
        op(x, matrix())
    with pytest.raises(BridgeTypeError, match="cannot write into its input 1"):
        Elemwise(scalar.add, inplace={0: 1})


@pytest.mark.parametrize("name", [n for n in scalar.NAMES if scalar.__getattr__(n).entry.native])
def test_b2_scalar_ops_on_numbers_and_on_tensors_agree(name):
    op = getattr(scalar, name)
    integer = not op.entry.floating
    values = [(3, 2, 2), (5, 7, 1)] if integer else [(0.5, 0.25, 2.0), (2.0, 3.0, -1.5)]
    for numbers in values:
        numbers = list(numbers[: op.arity])
        if name == "where":
            numbers[0] = True
        if name == "atanh":
            continue
        dtype = torch.int64 if integer else torch.float64
        tensors = [torch.tensor(n, dtype=torch.bool if n is True else dtype) for n in numbers]
        expected = op.compute(tensors).item()
        assert op.compute(numbers) == pytest.approx(expected, rel=1e-12)


def test_b2_scalar_ops_compute_with_variables():
    n, r = int64("n"), float64("r")
    f = function([n, r], [n * 2 + 1, n / 4, n // 4, n % 4, -n, n < 3, n * r, 7 - n], mode="py")
    assert f(6, 0.5) == [13, 1.5, 1, 2, -6, False, 3.0, 1]
    types = [v.type for v in f.outputs]
    assert [str(t) for t in types] == ["int", "float", "int", "int", "int", "bool", "float", "int"]
    with pytest.raises(BridgeTypeError, match="truth of"):
        bool(n < 3)


def test_b2_reduce():
    x = torch.arange(24.0).reshape(2, 3, 4) + 1
    v = TensorType("float32", (2, None, 4))("v")
    for op, expected in (
        (Reduce(scalar.add, (0, 2)), x.sum((0, 2))),
        (Reduce(scalar.add), x.sum()),
        (Reduce(scalar.mul, (0, 1)), x.prod(1).prod(0)),
        (Reduce(scalar.maximum, -1, keepdim=True), x.amax(-1, keepdim=True)),
        (Reduce(scalar.minimum, (0, 1)), x.amin((0, 1))),
        (Reduce(scalar.logical_and, (1,)), x.bool().all(1)),
        (Reduce(scalar.add, ()), x),
    ):
        out = op(v)
        for mode in ("py", "c_only"):
            assert torch.equal(function([v], out, mode=mode)(x), expected), op
        assert out.type.is_valid_value(expected), op
    assert Reduce(scalar.add, (0, 2))(v).type.shape == (None,)
    assert Reduce(scalar.add, 1) == Reduce(scalar.add, (1,))
    assert Reduce(scalar.add, 1) != Reduce(scalar.mul, 1)
    with pytest.raises(BridgeTypeError, match="there is no axis 3"):
        Reduce(scalar.add, 3)(v)
    with pytest.raises(BridgeTypeError, match="cannot fold with sub"):
        Reduce(scalar.sub)


def element(name=None, dtype="float32"):
    return TensorType(dtype, ())(name)


def test_b2_a_composite_equals_eager():
    x, y, z = element("x"), element("y"), element("z")
    body = scalar.relu(scalar.mul(scalar.add(x, y), z))
    op = Elemwise(Composite([x, y, z], [body]))
    a, b, c = torch.randn(3, 4), torch.randn(4), torch.randn(3, 1)
    u, v, w = matrix("u"), vector("v"), TensorType("float32", (None, 1))("w")
    out = op(u, v, w)
    assert out.type == TensorType("float32", (None, None))
    assert torch.equal(function([u, v, w], out, mode="py")(a, b, c), ((a + b) * c).relu())
    assert str(op.scalar_op) == "Composite{relu(mul(add(x, y), z))}"
    with pytest.raises(BridgeTypeError, match="input 0 must be of float32, got"):
        op(matrix(dtype="float64"), v, w)
    with pytest.raises(BridgeTypeError, match="do not broadcast"):
        op(TensorType("float32", (2,))(), TensorType("float32", (3,))(), w)


def test_b2_nested_composites_flatten():
    x, y = element("x"), element("y")
    inner = Composite([x, y], [scalar.add(x, y), scalar.mul(x, y)])
    a, b = element("a"), element("b")
    s, p = inner(a, b)
    outer = Composite([a, b], [scalar.sub(*inner(s, p)), s])
    assert {type(n.op) for n in outer.order} == {scalar.ScalarOp}
    assert [n.op.name for n in outer.order].count("add") == 2
    same = Composite([a, b], [scalar.sub(*inner(*inner(a, b))), inner(a, b)[0]])
    assert len(same.order) == 6
    u, v = vector("u"), vector("v")
    m, n = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0])
    first, second = function([u, v], Elemwise(outer)(u, v), mode="py")(m, n)
    assert torch.equal(first, ((m + n) + (m * n)) - ((m + n) * (m * n)))
    assert torch.equal(second, m + n)


def test_b2_equal_composites_are_equal_whatever_their_variables():
    def make(name, constant_=2.0):
        x = element(name)
        return Composite([x], [scalar.mul(x, constant(torch.tensor(constant_)))])

    assert make("a") == make("b")
    assert hash(make("a")) == hash(make("b"))
    assert make("a") != make("a", 3.0)
    assert make("a", 0.0) != make("a", -0.0)
    with pytest.raises(BridgeTypeError, match="neither an input nor a constant"):
        Composite([element()], [scalar.neg(element("stranger"))])
    x = element()
    with pytest.raises(BridgeTypeError, match="no scalar op"):
        Composite([x], [ops.relu(x)])


def test_b2_gradients_of_the_families_are_autograds():
    a, b = torch.randn(3, 4, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    x, y = matrix("x", "float64"), vector("y", "float64")
    p, q = element("p", "float64"), element("q", "float64")
    composite = Composite([p, q], [scalar.tanh(scalar.mul(scalar.add(p, q), q))])
    for out, eager in (
        (Elemwise(scalar.mul)(x, y), lambda s, t: s * t),
        (Elemwise(composite)(x, y), lambda s, t: ((s + t) * t).tanh()),
        (Reduce(scalar.add, 0)(x * y), lambda s, t: (s * t).sum(0)),
        (Reduce(scalar.mul, 1)(x) * y.sum(), lambda s, t: s.prod(1) * t.sum()),
    ):
        f = function([x, y], pb.grad(out.sum(), [x, y]), mode="py")
        s, t = a.clone().requires_grad_(), b.clone().requires_grad_()
        expected = torch.autograd.grad(eager(s, t).sum(), [s, t])
        for g, e in zip(f(a, b), expected, strict=True):
            torch.testing.assert_close(g, e)


# B3: equality and hashes


class Scale(Op):
    def __init__(self, k):
        self.k = k

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = inputs[0] * self.k


class EqualScale(Scale):
    def __eq__(self, other):
        return type(self) is type(other) and self.k == other.k

    def __hash__(self):
        return hash((type(self), self.k))


class WrongHash(EqualScale):
    __hash__ = object.__hash__


class NoHash(EqualScale):
    def __eq__(self, other):
        return type(self) is type(other) and self.k == other.k

    __hash__ = None


def test_b3_equal_ops_merge():
    x = vector("x")

    def count(kind):
        graph = FunctionGraph([x], [kind(2)(x), kind(2)(x), kind(3)(x)])
        merge(graph)
        return len(graph.apply_nodes)

    assert count(Scale) == 3
    assert count(EqualScale) == 2


@pytest.mark.parametrize("kind", [WrongHash, NoHash])
def test_b3_equal_without_a_matching_hash_is_reported(kind):
    x = vector("x")
    graph = FunctionGraph([x], [kind(2)(x), kind(2)(x)])
    with pytest.raises(ContractError, match=f"{kind.__name__}.*hash"):
        merge(graph)


class AlwaysEqual(Scale):
    __props__ = ("k",)

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 0


class AlwaysEqualToo(AlwaysEqual):
    pass


def test_a_method_of_tensors_is_one_of_tensor_variables():
    assert not {*dir(pb.Variable)}.intersection(method_names())
    x = vector("x")
    for y in (x.clone(), ops.constant(torch.ones(3)).clone(memory_format=torch.contiguous_format)):
        assert str(y.owner.op).startswith("clone")
    value, (g,) = (x.clone() * 3).sum(), pb.grad((x.clone() * 3).sum(), [x])
    value, g = function([x], [value, g])(torch.ones(2))
    assert value == 6
    assert torch.equal(g, torch.full((2,), 3.0))


def test_b3_an_op_that_equals_all_is_none_of_them():
    x = vector("x")
    with pytest.raises(ContractError, match=r"AlwaysEqual.*differs: k=3 and k=2"):
        merge(FunctionGraph([x], [AlwaysEqual(2)(x), AlwaysEqual(3)(x)]))
    graph = FunctionGraph([x], [AlwaysEqual(2)(x), AlwaysEqual(2)(x), AlwaysEqualToo(2)(x)])
    merge(graph)
    assert len(graph.apply_nodes) == 2


@pytest.mark.parametrize("mode", ["py", "c"])
def test_errors_about_sizes_name_the_dimension(mode):
    x = TensorType("float32", (None, 3))("x")
    narrow = TensorType("float32", (2, 3)).filter_variable(x)
    f = function([x], narrow + 1, mode=mode)
    with pytest.raises(
        TypeError, match=r"shape \(5, 3\), expected \(2, 3\): dimension 0 must be 2, got 5"
    ):
        f(torch.zeros(5, 3))
    with pytest.raises(BridgeTypeError, match=r"x.*shape \(2, 4\): dimension 1 must be 3, got 4"):
        f(torch.zeros(2, 4))
    with pytest.raises(BridgeTypeError, match=r"x.*shape \(2,\): 2 dimensions are expected, got 1"):
        f(torch.zeros(2))


def test_b3_chains_merge_from_the_inputs_on():
    x, y = matrix("x"), matrix("y")
    graph = FunctionGraph([x, y], [ops.mm(x, y).relu() + 1, ops.mm(x, y).relu() + 1])
    assert merge(graph) == 3
    assert graph.outputs[0] is graph.outputs[1]
    graph.check()


def test_b3_constants_merge_by_their_bits():
    x = vector("x", "float64")

    def constants(*values):
        outputs = [x + constant(v) for v in values]
        graph = FunctionGraph([x], outputs)
        merge(graph)
        return len(graph.apply_nodes)

    one = torch.tensor([1.0], dtype=torch.float64)
    nan = torch.tensor([float("nan")], dtype=torch.float64)
    assert constants(one, one.clone()) == 1
    assert constants(nan, nan.clone()) == 1
    assert constants(one * 0.0, one * -0.0) == 2
    assert constants(one, one.float()) == 2
    assert constants(one, one.reshape(1, 1)) == 2


def test_b3_random_ops_never_merge():
    x = matrix("x")
    outputs = [
        ops.bernoulli(x),
        ops.bernoulli(x),
        ops.rand([2]),
        ops.rand([2]),
        ops.empty([2]),
        ops.empty([2]),
    ]
    graph = FunctionGraph([x], outputs)
    merge(graph)
    assert len(graph.apply_nodes) == 6
    # In evaluation nothing is drawn.
    graph = FunctionGraph([x], [ops.dropout(x, 0.5, False), ops.dropout(x, 0.5, False)])
    merge(graph)
    assert len(graph.apply_nodes) == 1


# B4: make_node


def test_b4_the_seeds_make_node():
    node1 = add.make_node(int64(), int64())
    node2 = add.make_node(1, 2)
    node3 = add.make_node(int64(), 79)
    for node in (node1, node2, node3):
        assert isinstance(node, Apply)
        assert node.op is add
        assert [v.type for v in (*node.inputs, *node.outputs)] == [int64] * 3
        assert node.outputs[0].owner is node
    with pytest.raises(TypeError):
        add.make_node(float64(), int64())
    with pytest.raises(TypeError):
        add.make_node(int64(), float64())


def test_b4_native_ops_wrap_constants_and_validate():
    x = matrix("x")
    node = ops.mm(x, torch.ones(3, 2)).owner
    assert isinstance(node.inputs[1], pb.Constant)
    for bad, message in (
        (lambda: ops.mm(x), "mm needs 'mat2'"),
        (lambda: ops.mm(x, x, x), "takes 2 positional arguments, got 3"),
        (lambda: ops.mm(x, other=x), "mm has no argument 'other'"),
        (lambda: ops.mm(x, x, self=x), "given 'self' twice"),
        (lambda: ops.mm(x, "y"), "argument 'mat2': expected Tensor, got 'y'"),
        (lambda: ops.mm(x, vector("v")), r"mm\(TensorType\(float32, \(None, None\)\), .*\): "),
        (lambda: ops.softmax(x, "a"), "no overload of softmax takes these arguments"),
        (lambda: ops.add.Tensor(x, None), "argument 'other'"),
        (lambda: ops.softmax.int(x, x), "argument 'dim': expected int, got x of type"),
        (lambda: int64.filter(TensorType("float32")("open")), "got the variable open of type"),
    ):
        with pytest.raises(BridgeTypeError, match=message):
            bad()


def test_b4_an_output_belongs_to_one_node():
    x = vector()
    out = TensorType("float32", (None,))()
    Apply(add, [x], [out])
    with pytest.raises(BridgeTypeError, match="is an output of"):
        Apply(add, [x], [out])
    with pytest.raises(BridgeTypeError, match=r"input 0 of .* is no Variable: 3"):
        Apply(add, [3], [])


def test_b4_itypes_and_otypes_make_nodes():
    class Twice(Op):
        __props__ = ()
        itypes = (float64,)
        otypes = (float64, float64)

        def perform(self, node, inputs, output_storage):
            output_storage[0][0] = output_storage[1][0] = 2 * inputs[0]

    a, b = Twice()(3)
    assert function([], [a, b], mode="py")() == [6.0, 6.0]
    with pytest.raises(BridgeTypeError, match="takes 1 inputs, got 2"):
        Twice()(1.0, 2.0)
    with pytest.raises(MissingMethodError, match="neither make_node nor itypes"):
        Op()(1)


# B7: calls


def test_b7_one_output_is_a_variable_and_several_are_a_list():
    x, y = matrix("x"), matrix("y")
    assert isinstance(ops.mm(x, y), Variable)
    values, indices = ops.max(x, 1)
    assert (values.type.dtype, indices.type.dtype) == ("float32", "int64")
    assert isinstance(ops.max(x), Variable)
    pieces = ops.split(TensorType("float32", (5,))(), 2)
    assert [p.type.shape for p in pieces] == [(2,), (2,), (1,)]
    assert isinstance(ops.split(TensorType("float32", (2,))(), 2), list)
    assert SeedAdd()(1, 2, name="three").name == "three"


def test_b7_a_list_whose_length_is_not_known_is_refused():
    with pytest.raises(BridgeTypeError, match="depends on a size that is not known"):
        ops.split(vector(), 2)


# B8, B9: perform


def test_b8_perform():
    node = add.make_node(int64(), int64())
    storage = [None]
    add.perform(node, (3, 7), (storage,))
    assert storage == [10]
    x = matrix()
    node = ops.max(x, 1).__getitem__(0).owner
    cells = [[None], [None]]
    node.op.perform(node, (torch.tensor([[1.0, 3.0], [5.0, 2.0]]),), cells)
    assert cells[0][0].tolist() == [3.0, 5.0]
    assert cells[1][0].tolist() == [1, 0]
    with pytest.raises(MissingMethodError, match="lacks perform"):
        Op().perform(node, (), ())


class Misbehaved(Op):
    """An op on vectors, whose perform is given."""

    def __init__(self, perform, n_outputs=1, view_map=None, destroy_map=None):
        self._perform = perform
        self.n_outputs = n_outputs
        self.view_map = view_map or {}
        self.destroy_map = destroy_map or {}

    def make_node(self, *xs):
        xs = [constant(x) for x in xs]
        return Apply(self, xs, [xs[0].type() for _ in range(self.n_outputs)])

    def perform(self, node, inputs, output_storage):
        self._perform(inputs, output_storage)


def debug(op, *values, used=None):
    variables = [vector(f"x{i}") for i in range(len(values))]
    outputs = op.make_node(*variables).outputs
    f = function(variables, [outputs[i] for i in used] if used else outputs, mode="debug")
    return f(*values)


A, B = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])


@pytest.mark.parametrize("mode", ["py", "c", "opwise", "debug"])
def test_a_perform_that_does_not_store_its_output_is_rejected(mode):
    class Returns(Op):
        __props__ = ("stores",)

        def __init__(self, stores):
            self.stores = stores

        def make_node(self, x):
            return Apply(self, [x], [x.type()])

        def perform(self, node, inputs, output_storage):
            if self.stores:
                output_storage[0][0] = inputs[0] + 1
            return inputs[0] + 1 if self.stores is not False else None

    x = vector("x")
    for stores, message in (
        (None, r"perform of Returns\{stores=None\} returned a Tensor; it must store output i"),
        (True, "returned a Tensor; it must store output i"),
        (False, "stored no output 0, of type"),
    ):
        f = function([x], Returns(stores)(x), mode=mode)
        with pytest.raises(ContractError, match=message):
            f(A)


def test_a_make_node_that_returns_no_apply_is_rejected():
    class Wrong(Op):
        def make_node(self, x):
            return Apply(self, [x], [x.type()]).outputs[0]

    class Nothing(Op):
        def make_node(self, x):
            Apply(self, [x], [x.type()])

    for op, name in ((Wrong(), "TensorVariable"), (Nothing(), "NoneType")):
        with pytest.raises(
            BridgeTypeError, match=f"make_node of .* of type {name}; it must return"
        ):
            op(vector("x"))


def test_b8_a_perform_that_resizes_its_storage_is_rejected():
    def grows(inputs, outputs):
        outputs[0][0] = inputs[0] + 1
        outputs[0].append(1)

    def replaces(inputs, outputs):
        outputs[0] = [inputs[0] + 1]

    for perform in (grows, replaces):
        with pytest.raises(ContractError, match=r"storage of its output 0|resized the storage"):
            debug(Misbehaved(perform), A)
    x = vector("x")
    with pytest.raises(ContractError, match="resized the storage of output 0 to 2"):
        function([x], Misbehaved(grows)(x), mode="py")(A)


def test_b8_a_value_of_another_type_is_caught():
    def wrong(inputs, outputs):
        outputs[0][0] = inputs[0].double()

    with pytest.raises(ContractError, match=r"output 0 must be of type .*float32.*float64"):
        debug(Misbehaved(wrong), A)


class AddReusing(Op):
    """Adds into its old output where that fits, as the seed allows."""

    __props__ = ()
    reused = 0

    def make_node(self, x, y):
        return Apply(self, [x, y], [x.type()])

    def perform(self, node, inputs, output_storage):
        x, y = inputs
        (z,) = output_storage
        if z[0] is None or z[0].shape != x.shape:
            z[0] = torch.empty_like(x)
        else:
            AddReusing.reused += 1
        torch.add(x, y, out=z[0])


def test_b9_old_storage_may_be_used_again():
    x, y = vector("x"), vector("y")
    node = AddReusing()(x, y).owner
    for old in (None, torch.empty(2), torch.empty(4)[::2], torch.empty(7)):
        cell = [old]
        node.op.perform(node, (A, B), (cell,))
        assert cell[0].tolist() == [4.0, 6.0]
    assert debug(AddReusing(), A, B)[0].tolist() == [4.0, 6.0]


def test_b9_the_linker_leaves_temporaries_for_the_next_call():
    x, y = vector("x"), vector("y")
    out = AddReusing()(AddReusing()(x, y), y)
    graph = FunctionGraph([x, y], [out])
    thunk = PythonLinker(graph, gc=False).make_thunk()
    AddReusing.reused = 0
    (first,) = thunk([A, B])
    (second,) = thunk([A, B + 1])
    assert AddReusing.reused == 1  # the temporary; the output belongs to the caller
    assert first.tolist() == [7.0, 10.0]
    assert second.tolist() == [9.0, 12.0]


def test_what_a_call_leaves_behind_is_no_constants_value():
    x, known = vector("x"), constant(B)
    thunk = PythonLinker(FunctionGraph([x], [known, x + known]), gc=False).make_thunk()
    for _ in range(2):
        kept, total = thunk([A])
        assert kept is known.data
        assert torch.equal(total, A + B)
    with pytest.raises(TypeError, match="the graph has 1 inputs, the call gives 2"):
        thunk([A, A])


def test_b9_an_op_that_misuses_its_old_storage_is_caught():
    def accumulates(inputs, outputs):
        old = outputs[0][0]
        outputs[0][0] = inputs[0] + 1 if old is None else old + inputs[0] + 1

    with pytest.raises(ContractError, match="when it is given its outputs"):
        debug(Misbehaved(accumulates), A)

    def ignores_strides(inputs, outputs):
        out = outputs[0][0]
        if out is None or out.is_contiguous():
            outputs[0][0] = inputs[0] + 1
        else:
            outputs[0][0] = out  # whatever was there

    with pytest.raises(ContractError, match="other strides"):
        debug(Misbehaved(ignores_strides), A)


def test_b9_an_op_that_is_not_deterministic_is_caught():
    def draws(inputs, outputs):
        outputs[0][0] = inputs[0] + random.random()

    with pytest.raises(ContractError, match="when it is run again"):
        debug(Misbehaved(draws), A)
    op = Misbehaved(draws)
    op.random = True
    debug(op, A)


class Incomparable:
    def __init__(self, copies):
        self.copies = copies

    def __eq__(self, other):
        raise TypeError("no order")

    __hash__ = None

    def __deepcopy__(self, memo):
        if not self.copies:
            raise TypeError("no copy")
        return Incomparable(True)


@pytest.mark.parametrize(("copies", "text"), [(True, "compared"), (False, "copied")])
def test_what_cannot_be_compared_is_said_to_be_unknown(copies, text):
    class Reads(Op):
        __props__ = ()

        def make_node(self, x):
            return Apply(self, [x], [pb.TensorType("float32", ())()])

        def perform(self, node, inputs, output_storage):
            output_storage[0][0] = torch.ones(())

    x = pb.generic("x")
    f = function([x], Reads()(x), mode="debug")
    with pytest.warns(RuntimeWarning, match=f"unknown whether Reads changes.*cannot be {text}"):
        assert f(Incomparable(copies)) == 1


# B10: aliased outputs


def test_b10_aliased_outputs_that_are_both_used_are_caught():
    def two_views(inputs, outputs):
        outputs[0][0] = inputs[0] + 1
        outputs[1][0] = outputs[0][0].view(-1)

    op = Misbehaved(two_views, 2)
    with pytest.raises(ContractError, match="outputs 0 and 1, which are both used, share memory"):
        debug(op, A)
    assert debug(op, A, used=[0])[0].tolist() == [2.0, 3.0]


# B14 to B18, B20 in debug mode; what the compiler does is in test_graph.py


def test_b14_b20_a_change_that_is_not_declared_is_caught():
    def changes(inputs, outputs):
        outputs[0][0] = inputs[0].add_(1).clone()

    with pytest.raises(ContractError, match=r"has changed its input 0 \(x0\), which destroy_map"):
        debug(Misbehaved(changes), A.clone())
    a = A.clone()
    for declared in ({None: [0]}, {0: [0]}):
        assert debug(Misbehaved(changes, destroy_map=declared), a)[0].tolist() == [2.0, 3.0]
        assert a.tolist() == [1.0, 2.0]  # function() gave it a copy


def test_b14_several_inputs_may_be_destroyed():
    def swaps(inputs, outputs):
        x, y = inputs
        outputs[0][0], outputs[1][0] = x.copy_(y.clone()), y.add_(1)

    op = Misbehaved(swaps, 2, destroy_map={0: [0], 1: [1]})
    assert [v.tolist() for v in debug(op, A, B)] == [[3.0, 4.0], [4.0, 5.0]]


def test_b17_a_view_that_is_not_declared_is_caught():
    def views(inputs, outputs):
        outputs[0][0] = inputs[0].view(-1)

    with pytest.raises(ContractError, match=r"output 0 shares memory with input 0 \(x0\)"):
        debug(Misbehaved(views), A)
    assert debug(Misbehaved(views, view_map={0: [0]}), A)[0].tolist() == [1.0, 2.0]


def test_b18_a_view_of_several_inputs():
    def chooses(inputs, outputs):
        x, y = inputs
        outputs[0][0] = x if float(x[0]) > 0 else y

    both = Misbehaved(chooses, view_map={0: [0, 1]})
    assert debug(both, A, B)[0].tolist() == [1.0, 2.0]
    assert debug(both, -A, B)[0].tolist() == [3.0, 4.0]
    one = Misbehaved(chooses, view_map={0: [0]})
    with pytest.raises(ContractError, match="shares memory with input 1"):
        debug(one, -A, B)


# B19: hidden outputs


class Buffered(Op):
    """Adds into a hidden buffer that is larger than needed."""

    __props__ = ()
    default_output = 0

    def make_node(self, x, y):
        return Apply(self, [x, y], [x.type(), x.type()])

    def perform(self, node, inputs, output_storage):
        x, y = inputs
        z, buffer = output_storage
        if z[0] is None or buffer[0] is None or buffer[0].numel() < x.numel():
            buffer[0] = torch.empty(2 * x.numel())
        z[0] = buffer[0][: x.numel()]
        torch.add(x, y, out=z[0])


def test_b19_a_call_returns_the_default_output():
    x, y = vector("x"), vector("y")
    out = Buffered()(x, y)
    assert isinstance(out, Variable)
    assert len(out.owner.outputs) == 2
    for mode in ("py", "debug"):
        f = function([x, y], out, mode=mode)
        previous = []
        for n in (2, 5, 1, 8, 3, 8):  # growing, shrinking, growing
            a = torch.arange(float(n))
            result = f(a, a)
            assert result.tolist() == (2 * a).tolist()
            previous.append((result, 2 * a))
        for result, expected in previous:  # what was given away has stayed
            assert torch.equal(result, expected)


def test_b19_between_calls_of_one_linker_too():
    x, y = vector("x"), vector("y")
    thunk = PythonLinker(FunctionGraph([x, y], [Buffered()(x, y) * 1]), gc=False).make_thunk()
    for n in (2, 5, 1, 8):
        a = torch.arange(float(n))
        assert thunk([a, a])[0].tolist() == (2 * a).tolist()


# Types of the results


def test_partial_shapes_go_through():
    x = TensorType("float32", (None, 784))("x")
    w = TensorType("float32", (784, 10))("w")
    assert ops.mm(x, w).type.shape == (None, 10)
    assert ops.linear(x, w.T).type.shape == (None, 10)
    assert x.sum(0).type.shape == (784,)
    assert x.reshape(-1, 28, 28).type.shape == (None, 28, 28)
    assert ops.cat([x, x], 1).type.shape == (None, 1568)
    assert (x + x).type.shape == (None, 784)
    assert (x + TensorType("float32", (3, 1))()).type.shape == (3, 784)
    images = TensorType("float32", (None, 3, 224, 224))()
    kernel = TensorType("float32", (64, 3, 7, 7))()
    assert ops.conv2d(images, kernel, None, 2, 3).type.shape == (None, 64, 112, 112)
    open_images = TensorType("float32", (None, 3, None, None))()
    assert ops.conv2d(open_images, kernel, None, 2, 3).type.shape == (None, 64, None, None)
    q = TensorType("float32", (None, 8, None, 64))()
    assert ops.scaled_dot_product_attention(q, q, q).type.shape == (None, 8, None, 64)


def test_partial_shapes_of_results_that_depend_on_values():
    x = matrix("x")
    assert ops.nonzero(x).type == TensorType("int64", (None, 2))
    assert ops.masked_select(x, x > 0).type == TensorType("float32", (None,))
    values, _, counts = ops.unique_dim(x, 0, True, False, True)
    assert values.type == TensorType("float32", (None, None))
    assert counts.type == TensorType("int64", (None,))


def test_a_size_of_one_can_change_the_number_of_dimensions():
    x = TensorType("float32", (None, 3))()
    assert x.squeeze().type == TensorType("float32", None)
    assert TensorType("float32", (1, 3))().squeeze().type.shape == (3,)


def test_an_open_size_is_that_of_its_partner():
    x, w = matrix(), TensorType("float32", (784, 10))()
    assert ops.mm(x, w).type.shape == (None, 10)
    assert ops.addmm(vector(), x, w).type.shape == (None, 10)
    batch = TensorType("float32", (None, 2, 3))()
    assert ops.bmm(batch, TensorType("float32", (8, 3, None))()).type.shape == (8, 2, None)


def tensor_of(*shape, dtype="float32"):
    return TensorType(dtype, shape)()


@pytest.mark.parametrize("name", ["clone", "contiguous", "_to_copy", "ones_like", "rand_like"])
def test_a_memory_format_is_for_so_many_dimensions(name):
    """Pointwise functions among them, whose types are otherwise those for one element."""
    four = TensorType("float32", (2, None, 4, 5))("x")
    made = getattr(ops, name)(four, memory_format=torch.channels_last)
    assert made.type == TensorType("float32", (2, None, 4, 5))
    value = torch.randn(2, 3, 4, 5)
    got = pb.function([four], made, "py")(value)
    assert got.stride() == (60, 1, 15, 3)
    three = TensorType("float32", (2, 3, 4))("x")
    with pytest.raises(BridgeTypeError, match=r"\(2, 3, 4\).*required rank 4"):
        getattr(ops, name)(three, memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (lambda: ops.reshape(vector(), [-1, 64]), (None, 64)),
        (lambda: ops.reshape(vector(), [-1, 5040]), (None, 5040)),
        (lambda: vector()[:1], (None,)),
        (lambda: tensor_of(None, 5)[:, 1:3], (None, 2)),
        (lambda: vector()[6000], ()),
        (lambda: ops.unflatten(vector(), 0, (2, 3)), (2, 3)),
        (lambda: ops.unflatten(vector(), 0, (-1, 64)), (None, 64)),
        (lambda: ops.group_norm(tensor_of(None, None, 8, 8), 32), (None, None, 8, 8)),
        (lambda: ops.channel_shuffle(tensor_of(None, None, 8, 8), 4), (None, None, 8, 8)),
        (lambda: ops.max_pool2d(tensor_of(None, 3, None, 6), [2, 2]), (None, 3, None, 3)),
        (lambda: ops.add_(tensor_of(None, 3, None, 4), tensor_of(None, 1, None, None)),
         (None, 3, None, 4)),
        (lambda: ops.floor_divide(tensor_of(None, 3, None, 4), tensor_of(None, 1, None, None)),
         (None, 3, None, 4)),
        (lambda: ops.unfold(matrix(), 1, 6000, 2), (None, None, 6000)),
        (lambda: ops.diagonal(tensor_of(None, 5)), (None,)),
        (lambda: ops.topk(tensor_of(None, 9), 3)[0], (None, 3)),
        (lambda: ops.constant_pad_nd(tensor_of(None, 3), [1, 2]), (None, 6)),
        (lambda: ops.upsample_nearest2d(tensor_of(None, 3, None, None), None, [2.0, 2.0]),
         (None, 3, None, None)),
        (lambda: tensor_of(None, 1) + tensor_of(1, None), (None, None)),
        (lambda: tensor_of(None, None) + tensor_of(1, 5), (None, 5)),
        (lambda: ops.kron(matrix(), tensor_of(2, 2)), (None, None)),
        (lambda: ops.dropout(vector(), 0.5, True), (None,)),
    ],
)  # fmt: skip
def test_a_size_is_known_where_it_is_proved_and_open_elsewhere(build, shape):
    assert build().type.shape == shape


def test_typing_changes_nothing_that_other_threads_see():
    check, state = torch._check_with, torch.get_rng_state()
    filters = list(warnings.filters)
    seen = []

    def build(n):
        x = TensorType("float32", (None, n + 3, None))()
        for y in (x[:, :2], ops.dropout(x, 0.5, True), ops.unfold(x, 1, 2, 1), x.flatten(1)):
            seen.append(y.type.dtype)
        grad(x[:, 1:].sum(), x)

    threads = [threading.Thread(target=build, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    sent = 0
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        while any(t.is_alive() for t in threads):
            seen.append(torch._check_with is check)
            warnings.warn("of this thread", stacklevel=1)
            sent += 1
            threads[sent % 4].join(0.002)
    assert [str(w.message) for w in told].count("of this thread") == sent > 1
    assert seen.count("float32") == 16
    assert False not in seen
    assert [f for f in warnings.filters if f is not quiet._filter] == filters
    assert torch.equal(torch.get_rng_state(), state)


def test_what_is_quiet_warns_nobody():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with quiet.quiet():
            warnings.warn("of a trial", stacklevel=1)
            torch._C._warn()  # from C++
        with pytest.raises(UserWarning, match="of the program"):
            warnings.warn("of the program", stacklevel=1)


def test_dtypes_are_promoted_as_in_torch():
    f, d, i = (TensorType(t, (2,))() for t in ("float32", "float64", "int64"))
    scalar_d = TensorType("float64", ())()
    assert (f + d).type.dtype == "float64"
    assert (f + scalar_d).type.dtype == "float32"
    assert (i + 1).type.dtype == "int64"
    assert (i + 1.0).type.dtype == "float32"
    assert (i / 2).type.dtype == "float32"
    assert (f > 0).type.dtype == "bool"
    with pytest.raises(BridgeTypeError, match=r"atan2.*Expected a value of type 'Tensor'"):
        ops.atan2(i, 2.0)  # nor does torch


def test_a_number_in_the_place_of_a_tensor():
    x = TensorType("float16", (2,))("x")
    values = torch.tensor([1.0, 2.0], dtype=torch.float16)
    for out, expected in (
        (x + 1e-4, values + 1e-4),
        (2 / x, 2 / values),
        (1 - x, 1 - values),
        (2**x, 2**values),
        (x // 2, values // 2),
    ):
        assert torch.equal(function([x], out, mode="py")(values), expected)


def test_partial_shapes_where_sizes_are_variables():
    x, k = TensorType("float32", (2, 3))("x"), int64("k")
    sizes = schema_type("int[]")("sizes")
    assert ops.narrow(x, 1, k, 1).type.shape == (2, 1)
    assert ops.reshape(x, sizes).type == TensorType("float32", None)
    assert ops.zeros([k, 3]).type.shape == (None, 3)
    f = function([x, k, sizes], [ops.narrow(x, 1, k, 1), ops.reshape(x, sizes)], mode="py")
    narrow, other = f(torch.arange(6.0).reshape(2, 3), 2, [3, 2])
    assert (narrow.tolist(), other.shape) == ([[2.0], [5.0]], (3, 2))


def test_what_typing_has_found_is_remembered():
    def build(n):
        x = TensorType("float32", (None, n))("x")
        h = x
        for i in range(25):
            w = TensorType("float32", (n + i + 1, n + i))()
            h = ops.roll(ops.linear(h, w), 1).softmax(-1) + 1.0  # no rule knows roll
        return h

    with Counting() as new:
        assert len(toposort([build(80)])) == 100
    assert new.calls > 0
    with Counting() as known:
        build(80)
    assert known.calls == 0


class Counting(TorchDispatchMode):
    """Counts the calls that reach PyTorch's kernels."""

    calls = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls += 1
        return func(*args, **(kwargs or {}))


# Tensor variables


def test_tensor_variables_are_used_like_tensors():
    t = torch.arange(24.0).reshape(2, 3, 4)
    x = TensorType("float32", (2, None, 4))("x")
    n = int64("n")
    mask = t > 5
    for out, expected in (
        (x.relu().sum(1), t.relu().sum(1)),
        (x[0], t[0]),
        (x[-1, 1:, ::2], t[-1, 1:, ::2]),
        (x[..., None, 0], t[..., None, 0]),
        (x[:, torch.tensor([0, 2])], t[:, torch.tensor([0, 2])]),
        (x[torch.tensor([1]), :, torch.tensor([3])], t[torch.tensor([1]), :, torch.tensor([3])]),
        (x[x > 5], t[mask]),
        (x[0, n], t[0, 2]),
        (x[:, :n], t[:, :2]),
        (x[:, n:], t[:, 2:]),
        (x[:, ::n], t[:, ::2]),
        (x[:, None].shape[2] * 2, 6),
        (x.T.mT, t.T.mT),
        (x @ x.mT, t @ t.mT),
        (~(x > 5) & (x < 10), ~mask & (t < 10)),
        (x.view(-1, 12), t.view(-1, 12)),
        (x.permute(2, 0, 1), t.permute(2, 0, 1)),
        (x.size(1) + 1, 4),
        (x.max(), t.max()),
        (x.expand(5, 2, -1, 4), t.expand(5, 2, -1, 4)),
        (torch.relu(x), t.relu()),
        (torch.ones(4) + x, 1 + t),
        (torch.cat([x, t]), torch.cat([t, t])),
        (-x % 5, -t % 5),
        (abs(x - 12) ** 2, abs(t - 12) ** 2),
    ):
        result = function([x, n], out, mode="py")(t, 2)
        assert torch.equal(torch.as_tensor(result), torch.as_tensor(expected)), dprint(
            out, file="str"
        )
    assert x.shape[0] == 2
    assert x.shape[2] == 4
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        x.nonsense()
    with pytest.raises(BridgeTypeError, match="truth of"):
        bool(x > 0)
    with pytest.raises(BridgeTypeError, match="dimensions, indexed 4"):
        x[0, 0, 0, 0]
    with pytest.raises(BridgeTypeError, match="no fixed size to iterate over"):
        list(x[0])


def test_equality_is_elementwise():
    x, n = vector("x"), int64("n")
    t = torch.tensor([0.0, 2.0])
    for out, expected in (
        (x + (x == 2), t + (t == 2)),
        (x != 2, t != 2),
        (2 == x, t == 2),  # noqa: SIM300
        (x == x, t == t),
        (t == x, t == t),
        (x == n, t == 2),
        (n != 2, False),
        (n == 2, True),
    ):
        result = function([x, n], out, mode="py")(t, 2)
        assert torch.equal(torch.as_tensor(result), torch.as_tensor(expected))
    assert [x == None, n == None, n != None] == [False, False, True]  # noqa: E711  # as in torch
    assert x in {x: 0}
    assert hash(x) != hash(vector("x"))
    for question in (lambda: bool(x == 2), lambda: x in [n], lambda: x.shape == (3,)):
        with pytest.raises(BridgeTypeError, match=r"the truth of .* is not known"):
            question()
    with pytest.raises(BridgeTypeError, match="`is` to ask whether"):
        bool(Variable(int64))


def test_a_dtype_equals_torchs_and_its_name():
    for dtype in (vector().dtype, vector().type.dtype):
        assert dtype == torch.float32 == dtype == "float32"
        assert [dtype != torch.float32, dtype != "float32"] == [False, False]
        assert dtype != torch.float64
        assert dtype != "float64"
        assert dtype in (torch.float16, torch.float32)
        assert {"float32": 1}[dtype] == 1
        assert copy.deepcopy(dtype) == torch.float32


def test_a_function_that_torch_lacks_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no native function 'nonsense'"):
        _ = ops.nonsense
    with pytest.raises(AttributeError, match="no overload 'nonsense'"):
        _ = ops.add.nonsense
    assert "add" in dir(ops)
    assert "Scalar" in dir(ops.add)


def test_native_maps():
    x, y = matrix("x"), matrix("y")

    def maps(v):
        node = (v[0] if isinstance(v, list) else v).owner
        return dict(node.op.view_map), dict(node.op.destroy_map)

    assert maps(ops.mm(x, y)) == ({}, {})
    assert maps(x.t()) == ({0: [0]}, {})
    assert maps(ops.add_(x, y)) == ({}, {0: [0]})
    assert maps(ops.split(TensorType("float32", (4,))(), 2)) == ({0: [0], 1: [0]}, {})
    assert maps(ops.mm.out(x, y, out=matrix())) == ({}, {0: [2]})
    assert maps(ops.einsum("ij->ji", [x])) == ({0: [0]}, {})
    assert maps(ops.einsum("ij,jk->ik", [x, y])) == ({}, {})
    assert maps(ops.atleast_1d([x, y])) == ({0: [0], 1: [1]}, {})
    assert maps(ops._foreach_add_([x, y], 1)) == ({}, {0: [0], 1: [1]})
    stats = [vector() for _ in range(4)]
    image = TensorType("float32", (2, None, 3))()
    training = ops.batch_norm(image, *stats, True, 0.1, 1e-5, False)
    assert maps(training) == ({}, {None: [3, 4]})
    evaluation = ops.batch_norm(image, *stats, False, 0.1, 1e-5, False)
    assert maps(evaluation) == ({}, {})


def test_native_functions_without_results_return_what_they_write():
    x, y = vector("x"), vector("y")
    outs = ops._foreach_mul_([x, y], 2)
    f = function([x, y], outs, mode="debug")
    a, b = A.clone(), B.clone()
    assert [v.tolist() for v in f(a, b)] == [[2.0, 4.0], [6.0, 8.0]]
    assert a.tolist() == [1.0, 2.0]


def test_native_strings():
    x = matrix("x")
    assert str(ops.mm(x, x).owner) == "mm(x, x)"
    assert repr(native("mm")) == "ops.mm(Tensor self, Tensor mat2) -> Tensor"
    assert repr(ops.add) == "ops.add"


def test_c_literals():
    """A parameter of an op in C: hexadecimal floats keep every bit."""
    for schema, value, text in (
        ("int", -(2**63), "INT64_MIN"),
        ("int", 5, "INT64_C(5)"),
        ("float", 0.1, "0x1.999999999999ap-4"),
        ("float", float("-inf"), "-(double)INFINITY"),
        ("bool", True, "true"),
        ("int[]", (1, 2), "(const int64_t[]){INT64_C(1), INT64_C(2)}, 2"),
        ("int[]?", None, "NULL, 0"),
        ("ScalarType", torch.float32, "6"),
        ("Device", torch.device("cuda:1"), "(const Device){1, 1}"),
        ("str", 'a"b\n', '"a\\042b\\012"'),
    ):
        assert schema_type(schema).c_literal(value) == text


def test_inconsistent_maps_are_refused():
    x = vector("x")
    for maps in ({"view_map": {1: [0]}}, {"destroy_map": {0: [3]}}, {"view_map": {None: [0]}}):
        op = Misbehaved(lambda i, o: None, **maps)
        with pytest.raises(InconsistencyError, match=r"names (in|out)put"):
            function([x], op(x), mode="py")


def test_a_type_of_ones_own_runs_through_ops():
    class Text(Type):
        def filter(self, value, strict=False, allow_downcast=None):
            if not isinstance(value, str):
                raise TypeError(f"expected a text, got {value!r}")
            return value

        def __eq__(self, other):
            return type(self) is type(other)

        def __hash__(self):
            return hash(type(self))

    class Join(Op):
        __props__ = ("separator",)

        def __init__(self, separator):
            self.separator = separator

        def make_node(self, *texts):
            return Apply(self, [Text().filter_variable(t) for t in texts], [Text()()])

        def perform(self, node, inputs, output_storage):
            output_storage[0][0] = self.separator.join(inputs)

    a = Text()("a")
    out = Join("-")(a, "b", Join("+")(a, a))
    for mode in ("py", "debug"):
        assert function([a], out, mode=mode)("x") == "x-b-x+x"
        with pytest.raises(TypeError, match="expected a text, got 3"):
            function([a], out, mode=mode)(3)


def test_typing_does_not_import_what_takes_a_second():
    code = """
import sys
from pytorch_bridge import TensorType, function, ops
x = TensorType("float32", (None, 4))("x")
w = TensorType("float32", (4, 4))("w")
b = TensorType("float32", (4,))("b")
y = ops.softmax((ops.addmm(b, x, w) * 2 + 1).relu(), -1)
y = ops.cat([ops.layer_norm(y, [4], b, b), y]).mean(0) + ops.batch_norm(
    x, b, b, b, b, False, 0.1, 1e-5, True
).sum(0)
function([x, w, b], y, mode="py")
print([m for m in ("torch._dynamo", "sympy") if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_scalar_may_be_of_any_kind():
    """What is not an integer for some of them is not taken to be one."""
    x, z = TensorType("int64", (None,))("x"), TensorType("complex64", (None,))("z")
    s = schema_type("Scalar")("s")
    assert (x * s).type.dtype is None
    assert (z * s).type == z.type
    f = function([x, s], (x * s).to(torch.int64), "py")
    assert f(torch.tensor([1, 5]), 0.5).dtype == torch.int64
