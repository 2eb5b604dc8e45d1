"""What authors of ops, graphs, features and rules get wrong is an error that says so, or right."""

import collections
import pickle
import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from doubles import Double

import pytorch_bridge as pb
from pytorch_bridge import Apply, FunctionGraph, Op, TensorType, function, ops
from pytorch_bridge.errors import BridgeTypeError, ContractError, InconsistencyError
from pytorch_bridge.graph.basic import toposort
from pytorch_bridge.graph.features import Feature
from pytorch_bridge.ops import scalar
from pytorch_bridge.rewrite.rules import Rules
from pytorch_bridge.types import generic


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


def test_an_input_that_a_node_computes_stays_one_when_the_node_goes():
    x = vector("x")
    values, indices = ops.sort(x)
    graph = FunctionGraph([x, values], [indices, ops.exp(values)], clone=False)
    graph.replace(indices, indices.type.make_constant(torch.zeros(2, dtype=torch.int64)))
    graph.check()
    assert [str(node.op) for node in graph.toposort()] == ["exp"]
    graph.replace(graph.outputs[1], x)
    graph.check()
    assert values in graph


class Follows(Feature):
    """Knows the nodes and their inputs by what it hears."""

    def on_attach(self, fgraph):
        self.nodes = set(fgraph.apply_nodes)
        self.inputs = {place: v for v, places in fgraph.clients.items() for place in places}

    def on_import(self, fgraph, node, reason):
        assert node not in self.nodes
        self.nodes.add(node)
        self.inputs.update({(node, i): v for i, v in enumerate(node.inputs)})

    def on_prune(self, fgraph, node, reason):
        self.nodes.remove(node)
        for i, v in enumerate(node.inputs):
            assert self.inputs.pop((node, i)) is v

    def on_change_input(self, fgraph, client, i, old, new, reason):
        assert self.inputs[client, i] is old
        self.inputs[client, i] = new


class Flaky(Feature):
    """Raises sometimes, whatever it hears."""

    def __init__(self, draw):
        self.draw, self.chance = draw, draw.choice([0.05, 0.3])

    def on_import(self, *args):
        if self.draw.random() < self.chance:
            raise LookupError("not now")

    on_prune = on_change_input = on_import


def test_the_graph_is_as_before_whatever_a_feature_raises():
    failures = 0
    for seed in range(150):
        draw = random.Random(seed)
        x, y = vector("x"), vector("y")
        made = [x, y]
        for _ in range(6):
            made.append(draw.choice([ops.add, ops.mul])(draw.choice(made), draw.choice(made)))
        graph = FunctionGraph([x, y], made[-2:], clone=False)
        first, last = Follows(), Follows()
        for feature in (first, Flaky(draw), last):
            graph.attach_feature(feature)
        for _ in range(4):
            before = [*graph.outputs, *graph.apply_nodes], str(graph)
            order = graph.toposort()
            known = [x, y]
            for node in order[: draw.randrange(len(order))]:
                known += node.outputs
            old = draw.choice([v for node in order for v in node.outputs][-3:])
            new = ops.sub(draw.choice(known), ops.constant(torch.ones(2)))
            try:
                graph.replace_all_validate([(old, new), (draw.choice(known), ops.neg(y))])
            except (LookupError, InconsistencyError):
                failures += 1
                now = [*graph.outputs, *graph.apply_nodes]
                assert {id(v) for v in now} == {id(v) for v in before[0]}
                assert str(graph) == before[1]
            graph.check()
            for feature in (first, last):
                assert feature.nodes == set(graph.apply_nodes)
                heard = {place: v for v, places in graph.clients.items() for place in places}
                assert feature.inputs.keys() == heard.keys()
                assert all(feature.inputs[place] is v for place, v in heard.items())
    assert failures > 50


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
    with pytest.raises(ContractError, match=r"log\(x\) -> exp\(x\)' and 'exp\(x\) -> log"):
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


# Around graphs ------------------------------------------------------------------------------------


def test_graphs_of_scalar_ops_go_through_pickle():
    a, b = (pb.schema_type("float")(n) for n in "ab")
    ends = [scalar.relu(a), scalar.where(scalar.lt(a, b), a, b), scalar.maximum(a, scalar.abs(b))]
    for fgraph in (FunctionGraph([a, b], ends), FunctionGraph([], [ops.constant(2)])):
        again = pickle.loads(pickle.dumps(fgraph))
        again.check()
        assert str(again) == str(fgraph)
    again = pickle.loads(pickle.dumps(FunctionGraph([a, b], ends)))
    assert function(again.inputs, again.outputs)(-1.0, 2.0) == [0.0, -1.0, 2.0]
    assert again.try_replace(again.outputs[0], scalar.neg(again.inputs[1]))
    again.check()

    x = vector("x")
    fused = function([x], ops.exp(x) * 2 + 1).fgraph
    (op,) = {n.op for n in fused.toposort()}
    assert pickle.loads(pickle.dumps(op)) == op
    code = (
        "import pickle, sys\n"
        f"op = pickle.loads({pickle.dumps(op)!r})\n"
        "same = hash(op) == hash(pickle.loads(pickle.dumps(op)))\n"
        "sys.stdout.buffer.write(pickle.dumps((op, same)))"
    )
    other, same_hash = pickle.loads(subprocess.check_output([sys.executable, "-c", code]))
    assert other == op
    assert hash(other) == hash(op)
    assert same_hash


Pair = collections.namedtuple("Pair", "first second")


@pytest.mark.parametrize("mode", ["c", "py", "debug", "opwise", "dual"])
def test_a_namedtuple_is_returned_as_one(mode):
    x = generic("x")
    value = Pair(1, (torch.ones(2), [2.0]))
    found = function(x, [x, Keep()(x)], mode=mode)(value)
    for v in found:
        assert type(v) is Pair
        assert v.second[1] == [2.0]
        assert torch.equal(v.second[0], torch.ones(2))
    assert found[0].second[0].data_ptr() != value.second[0].data_ptr()


class Keep(Op):
    """Its input."""

    __props__ = ()
    view_map = {0: [0]}  # noqa: RUF012

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = inputs[0]


class Zero(Keep):
    view_map = {}  # noqa: RUF012

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = inputs[0] * 0.0


@pytest.mark.parametrize("mode", ["debug", "dual"])
def test_a_measure_that_fails_says_nothing(mode):
    x = Double()("x")
    assert function(x, Zero()(x), mode=mode)(3.0) == 0.0
    assert function(x, Zero()(x), mode=mode)(float("inf")) != 0.0

    class Random(Zero):
        def perform(self, node, inputs, output_storage):
            self.__dict__["n"] = n = self.__dict__.get("n", 0) + 1
            output_storage[0][0] = float(n % 2) * 2 - 1

    if mode == "debug":
        with pytest.raises(ContractError, match="another output 0 when it is run again"):
            function(x, Random()(x), mode=mode)(3.0)


def test_comments_of_an_author_are_his():
    class Says(Op):
        __props__ = ("text",)

        def __init__(self, text):
            self.text = text

        def make_node(self):
            return Apply(self, [], [pb.schema_type("str")()])

        def c_code(self, node, name, inputs, outputs, sub):
            return f"{outputs[0]} = {self.text};"

        def c_code_cache_version(self):
            return (1,)

    for text, meant in (
        ('"/*: a */"', "/*: a */"),
        ('"/*: b */"', "/*: b */"),
        ('/*: 0 */ "c"', "c"),
        ('"two \\\n   lines,  and \\\n\tmore"', "two    lines,  and \tmore"),
        (f'"{"long, " * 40}"', "long, " * 40),
    ):
        assert function([], Says(text)())() == meant


def test_what_is_read_only_is_not_written_into(tmp_path):
    x = vector("x")
    f = function([x], x.add_(1), mutable=[x])
    data = np.ones(3, dtype=np.float32)
    f(data)
    assert data.tolist() == [2, 2, 2]
    locked = data.copy()
    locked.setflags(write=False)
    data.tofile(tmp_path / "data")
    mapped = np.memmap(tmp_path / "data", dtype=np.float32, mode="r")
    for mode in ("c", "py"):
        f = function([x], x.add_(1), mutable=[x], mode=mode)
        for value in (locked, mapped, np.broadcast_to(data[:1], 3), locked[1:]):
            with pytest.raises(BridgeTypeError, match="read-only"):
                f(value)
    assert locked.tolist() == mapped.tolist() == [2, 2, 2]


def test_an_input_may_have_any_name():
    names = ["self", "args", "kwargs", "method", "called", "mode"]
    inputs = [vector(n) for n in names]
    for mode in ("c", "py"):
        f = function(inputs, sum(inputs[1:], inputs[0]), mode=mode)
        assert f(**{n: torch.ones(1) for n in names}) == len(names)


# What an author has written wrongly ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "name", "value"),
    [
        *((Op, n, None) for n in ("params_type", "make_thunk")),
        (Op, "do_constant_folding", lambda self, fgraph, node: False),
        (pb.Type, "filter_checks_isfinite", True),
        (TensorType, "filter_checks_isfinite", True),
        (pb.CType, "c_extract_out", lambda self, name, sub: ""),
    ],
)
def test_what_aesara_alone_knows_is_refused_by_name(base, name, value):
    with pytest.raises(BridgeTypeError, match=f"Mine defines {name}, which Aesara knows"):
        type("Mine", (base,), {name: value})


@pytest.mark.parametrize("props", ["axis", 3, ("axis", 3), {"axis": 1}])
def test_props_are_names(props):
    with pytest.raises(BridgeTypeError, match=r"Mine\.__props__ is a tuple of the names"):
        type("Mine", (Op,), {"__props__": props})


def test_a_property_that_is_missing_is_named():
    class Mine(Twice):
        __props__ = ("axis",)

    with pytest.raises(BridgeTypeError, match=r"Mine\.__props__ is .*axis"):
        hash(Mine())


@pytest.mark.parametrize(
    ("attributes", "why"),
    [
        ({"view_map": {0: 0}}, r"view_map of Mine has lists.*\{0: 0\}"),
        ({"view_map": [0]}, "view_map of Mine has lists"),
        ({"view_map": None}, "view_map of Mine has lists"),
        ({"destroy_map": {0: "0"}}, "destroy_map of Mine has lists"),
        ({"default_output": 3}, r"Mine\.default_output is the number of one of the 1"),
        ({"default_output": "0"}, r"Mine\.default_output"),
        ({"default_output": -1}, r"Mine\.default_output"),
        ({"c_code": lambda self, *args: None}, r"c_code of .*Mine.* returned None"),
        ({"c_code": lambda self, *args: b""}, r"c_code of .*Mine.* returned b''"),
        ({"c_code": lambda self, *a: "", "c_headers": lambda self: [3]}, "c_headers of .*Mine.* 3"),
        ({"c_code": lambda self, *a: "", "c_libraries": lambda self: 3}, "c_libraries of .*Mine"),
        ({"connection_pattern": lambda self, node: [True]}, "connection_pattern of Mine"),
        ({"connection_pattern": lambda self, node: None}, "connection_pattern of Mine"),
    ],
)
def test_a_method_that_is_malformed_is_named(attributes, why):
    kind = type("Mine", (Twice,), {"c_code_cache_version": lambda self: (1,), **attributes})
    x = vector("x")

    def use():
        y = kind()(x)
        function(x, y, mode="c")
        pb.grad(y.sum(), [x])

    with pytest.raises(BridgeTypeError, match=why):
        use()


@pytest.mark.parametrize("method", ["c_declare", "c_init", "c_extract", "c_sync", "c_cleanup"])
def test_a_method_of_a_type_that_is_malformed_is_named(method):
    kind = type("Mine", (type(Double()),), {method: lambda self, *args: None})
    with pytest.raises(BridgeTypeError, match=rf"{method} of Mine returned None"):
        function([x := kind()("x")], Keep()(Zero()(x)), mode="c")


class Split(Op):
    """Its inputs' sum, and its second input doubled."""

    __props__ = ("connected",)

    def __init__(self, connected=True):
        self.connected = connected

    def make_node(self, x, y):
        return Apply(self, [x, y], [x.type(), y.type()])

    def perform(self, node, inputs, output_storage):
        output_storage[0][0], output_storage[1][0] = inputs[0] + inputs[1], inputs[1] * 2

    def connection_pattern(self, node):
        return [[True, False], [self.connected, True]]

    def L_op(self, inputs, outputs, output_grads):
        assert [o.owner.op for o in outputs] == [self, self]
        first, second = output_grads
        return [first, first + second * 2]


def test_gradients_go_by_the_pattern_and_by_all_of_a_node():
    x, y = vector("x"), vector("y")
    one, two = Split()(x, y)
    f = function([x, y], pb.grad((one * one + two).sum(), [x, y]))
    for found, wanted in zip(f(torch.ones(2), torch.ones(2)), (4.0, 6.0), strict=True):
        assert torch.equal(found, torch.full((2,), wanted))
    with pytest.raises(pb.BridgeValueError, match="with respect to x: it does not depend"):
        pb.grad(two.sum(), [x])
    assert pb.grad(two.sum(), [x, y], allow_unused=True)[0] is None
    assert pb.grad(Split(False)(x, y)[0].sum(), [x, y], allow_unused=True)[1] is None


def test_a_rule_for_a_node_with_several_outputs():
    rules = Rules("several")

    @rules("split(x, y) -> x + y, y * 2", Split)
    def _(node):
        x, y = node.inputs
        return [ops.add(x, y), ops.mul(y, 2)] if node.op.connected else [None, ops.mul(y, 2)]

    x, y = vector("x"), vector("y")
    for outputs, names in (
        ([*Split()(x, y)], ["add.Tensor", "mul.Scalar{other=2}"]),
        ([Split()(x, y)[1]], ["mul.Scalar{other=2}"]),
        ([*Split(False)(x, y)], ["Split{connected=False}", "mul.Scalar{other=2}"]),
    ):
        graph = FunctionGraph([x, y], outputs)
        assert rules.apply(graph) == 1
        assert [str(n.op) for n in graph.toposort()] == names
        graph.check()

    for wrong in ([x], x, [x, 3], 3, {0: x}):
        careless = Rules("careless")
        careless("split -> nothing right", Split)(lambda node, wrong=wrong: wrong)
        with pytest.raises(ContractError, match=r"split -> nothing right.* returned"):
            careless.apply(FunctionGraph([x, y], [*Split()(x, y)]))
