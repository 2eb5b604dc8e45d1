"""What authors of ops, graphs, features and rules get wrong is an error that says so, or right."""

import pytest
import torch

import pytorch_bridge as pb
from pytorch_bridge import Apply, FunctionGraph, Op, TensorType, function, ops
from pytorch_bridge.errors import (
    BridgeTypeError,
    ContractError,
    InconsistencyError,
)
from pytorch_bridge.graph.basic import toposort
from pytorch_bridge.graph.features import Feature
from pytorch_bridge.rewrite.rules import Rules


def vector(name=None, dtype="float32"):
    return TensorType(dtype, (None,))(name)


class Twice(Op):
    __props__ = ()

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = inputs[0] * 2


# Graphs ------------------------------------------------------------------------------------------


def test_what_has_no_order_is_no_list_of_variables():
    x, y = vector("x"), vector("y")
    for make in (
        lambda: function({x, y}, x + y),
        lambda: function([x, y], {x, y}),
        lambda: function(frozenset([x, y]), x + y),
        lambda: FunctionGraph({x, y}, [x + y]),
        lambda: FunctionGraph([x, y], {x + y}),
        lambda: Apply(Twice(), {x, y}, [vector()]),
        lambda: pb.grad((x + y).sum(), {x, y}),
    ):
        with pytest.raises(BridgeTypeError, match=r"order|list of variables"):
            make()
    assert function([x, y], x.add_(y), mutable={x}) is not None
    assert function({x: 1, y: 2}.keys(), x - y)(torch.ones(1), torch.zeros(1)) == 1


def test_an_output_of_a_node_is_a_variable_of_its_own():
    x, y = vector("x"), vector("y")
    for inputs, outputs, why in (
        ([x], [x], "one of its inputs"),
        ([x], [y, y], "one of its outputs"),
        ([x], [Twice()(x)], "an output of Twice already"),
        ([x], [ops.constant(torch.ones(1))], "the constant"),
        ([x], [3], "no Variable"),
    ):
        with pytest.raises(BridgeTypeError, match=why):
            Apply(Twice(), inputs, outputs)
    assert x.owner is None
    assert y.owner is None


def test_a_cycle_is_reported_wherever_it_is_made():
    x = vector("x")
    free = vector("free")
    y = Twice()(ops.exp(free))
    Apply(Twice(), [y], [free])  # free had no owner
    for use in (
        lambda: toposort([y]),
        lambda: FunctionGraph([x], [y]),
        lambda: function([x], y),
        lambda: pb.grad(y.sum(), [x]),
    ):
        with pytest.raises(InconsistencyError, match=r"cycle: .*Twice.* needs .*exp"):
            use()


def test_a_replacement_that_needs_who_uses_what_it_replaces_is_refused():
    x = vector("x")
    a = ops.exp(x)
    b = ops.sin(a)
    graph = FunctionGraph([x], [b, ops.cos(a)])
    a, b = (graph.became[v] for v in (a, b))
    before = str(graph)
    assert not graph.try_replace(a, ops.neg(ops.neg(b)))
    assert not graph.try_replace_all([(a, ops.neg(ops.neg(b)))])
    with pytest.raises(InconsistencyError, match="cycle"):
        graph.replace_all_validate([(a, ops.tanh(ops.neg(b)))])
    assert str(graph) == before
    graph.check()
    # What is made of the variable itself goes on to use it.
    assert graph.try_replace(a, ops.neg(ops.tanh(a)))
    graph.check()
    f = function(graph.inputs, graph.outputs)
    expected = -torch.ones(1).exp().tanh()
    assert torch.equal(f(torch.ones(1))[0], expected.sin())


def test_the_types_of_a_graph_hold():
    x, wide = vector("x"), vector("wide", "float64")
    graph = FunctionGraph([x, wide], [ops.exp(x), ops.neg(wide)])
    x, wide = graph.inputs
    node = graph.outputs[0].owner
    for client, i, new in (
        (node, 0, wide),
        ("output", 0, wide),
        (node, 0, TensorType("float32", (None, None))()),
        (node, 0, ops.constant(torch.ones(2, 2))),
        (node, 0, pb.schema_type("float")()),
    ):
        with pytest.raises(BridgeTypeError, match=r"cannot become .*filter_variable"):
            graph.change_input(client, i, new)
    graph.change_input(node, 0, ops.constant(torch.ones(2)))
    graph.check()


class Objects(Feature):
    """Raises when it hears of an op."""

    def __init__(self, about):
        self.about, self.nodes = about, {}

    def on_import(self, fgraph, node, reason):
        if str(node.op) == self.about:
            raise ValueError(f"no {node.op} here")
        self.nodes[node] = None

    def on_prune(self, fgraph, node, reason):
        del self.nodes[node]

    def on_change_input(self, fgraph, client, i, old, new, reason):
        if self.about == "change" and not reason.startswith("revert"):
            raise ValueError("no changes here")


@pytest.mark.parametrize("about", ["cos", "neg", "change"])
@pytest.mark.parametrize(
    "change",
    [
        lambda g, old, new: g.replace(old, new),
        lambda g, old, new: g.replace_all([(old, new)]),
        lambda g, old, new: g.replace_all_validate([(old, new)]),
        lambda g, old, new: g.try_replace(old, new),
        lambda g, old, new: g.change_input("output", 1, new),
    ],
)
def test_what_a_feature_refuses_is_taken_back(about, change):
    x = vector("x")
    a = ops.exp(x)
    graph = FunctionGraph([x], [ops.sin(a), a, a])
    first, second = Objects("nothing"), Objects(about)
    second.nodes.update(graph.apply_nodes)
    first.nodes.update(graph.apply_nodes)
    for feature in (first, second, late := Objects("nothing")):
        graph.attach_feature(feature)
    late.nodes.update(graph.apply_nodes)
    before = str(graph)
    old = graph.became[a]
    for _ in range(2):  # the second time as well
        new = ops.neg(ops.cos(ops.tanh(graph.inputs[0])))
        with pytest.raises(ValueError, match="here"):
            change(graph, old, new)
        assert str(graph) == before
        graph.check()
        for feature in (first, second, late):
            assert set(feature.nodes) == set(graph.apply_nodes)
    if about != "change":
        assert graph.try_replace(old, ops.log(graph.inputs[0]))


# Rules -------------------------------------------------------------------------------------------


def test_a_rule_that_matches_its_own_result_ends():
    rules = Rules("endless")

    @rules("relu(x) -> relu(x)", "relu")
    def _(node):
        return ops.relu(node.inputs[0])

    @rules("exp(x) -> log(x)", "exp")
    def _(node):
        return ops.log(node.inputs[0])

    @rules("log(x) -> exp(x)", "log")
    def _(node):
        return ops.exp(node.inputs[0])

    x = vector("x")
    graph = FunctionGraph([x], [ops.relu(x)])
    with pytest.raises(ContractError, match=r"rules of endless do not end.*relu\(x\) -> relu"):
        rules.apply(graph)
    graph.check()
    with pytest.raises(ContractError, match=r"exp\(x\) -> log\(x\)' and 'log\(x\) -> exp"):
        rules.apply(FunctionGraph([x], [ops.log(x)]))


# Types -------------------------------------------------------------------------------------------


def test_a_bool_in_a_shape_is_the_older_way():
    for given, meant in (
        ((True, False), (1, None)),
        ((True, 3, None), (1, 3, None)),
        ([False], (None,)),
    ):
        with pytest.warns(DeprecationWarning, match="old style"):
            assert TensorType("float32", given).shape == meant


@pytest.mark.parametrize("mode", ["c", "py"])
def test_a_gradient_alone_is_checked_as_the_value_is(mode):
    x = vector("x")
    y = TensorType("float32", (3,)).filter_variable(x)
    for cost in (y.sum(), (y * y).sum(), ops.exp(y).mean()):
        leaf = torch.ones(3, requires_grad=True)
        (g,) = pb.grad(cost, [x])
        f = function([x], g, mode=mode)
        (theirs,) = torch.autograd.grad(function([x], cost)(leaf), leaf)
        assert torch.equal(f(torch.ones(3)), theirs)
        with pytest.raises(TypeError, match=r"expected \(3,\)"):
            f(torch.ones(4))
