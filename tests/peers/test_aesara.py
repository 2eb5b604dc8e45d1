"""What Aesara's tests ask of graphs, types, ops and the C linker, asked of those here (README.md)."""

from __future__ import annotations

import copy
import pickle
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from xml.dom import minidom

import numpy as np
import pytest
import torch

import pytorch_bridge as pb
from pytorch_bridge import Apply, CType, FunctionGraph, Op, TensorType, Type, function, ops
from pytorch_bridge.aliasing.destroy import DestroyHandler
from pytorch_bridge.errors import (
    BridgeTypeError,
    BridgeValueError,
    ContractError,
    InconsistencyError,
    MissingMethodError,
)
from pytorch_bridge.graph.basic import Constant, Variable, ancestors, graph_inputs, toposort
from pytorch_bridge.graph.features import Feature
from pytorch_bridge.ops.checks import CheckSizes, Require, SizeRule
from pytorch_bridge.rewrite.merge import merge
from pytorch_bridge.rewrite.rules import Rules, owner


class Thing(Type):
    """Anything; all are of one type, which has no hash."""

    def filter(self, value, strict=False, allow_downcast=None):
        return value

    def __eq__(self, other):
        return isinstance(other, Thing)

    __hash__ = None


def thing(name=None):
    return Thing().make_variable(name)


def things(names):
    return [thing(n) for n in names]


class Named(Op):
    """An op of any number of inputs that is known by itself."""

    def __init__(self, name, outputs=1, destroys=None, views=None):
        self.name, self.count = name, outputs
        self.destroy_map, self.view_map = destroys or {}, views or {}

    def make_node(self, *inputs):
        for v in inputs:
            if not isinstance(v, Variable) or not isinstance(v.type, Thing):
                raise TypeError(f"{self} takes things, not {v}")
        return Apply(self, list(inputs), [thing() for _ in range(self.count)])

    def perform(self, node, inputs, output_storage):
        for i, cell in enumerate(output_storage):
            cell[0] = (self.name, i, *inputs)


one, two, three = (Named(n) for n in ("one", "two", "three"))
several = Named("several", outputs=2)
view = Named("view", views={0: [0]})
sigmoid, dot, add = Named("sigmoid"), Named("dot"), Named("add")
add_into = Named("add_into", destroys={0: [0]})
into_first = Named("into_first", 2, destroys={0: [0]})
into_second = Named("into_second", 2, destroys={1: [1]})
into_both = Named("into_both", 2, destroys={0: [0], 1: [1]})


def text(v):
    """A variable's expression."""
    if v.owner is None:
        return v.name
    number = f"[{v.index}]" if len(v.owner.outputs) > 1 else ""
    return f"{v.owner.op}({', '.join(map(text, v.owner.inputs))}){number}"


def shown(graph):
    return [text(v) for v in graph.outputs]


# graph/test_basic.py, test_op.py, test_types.py -------------------------------------------------


def test_what_a_variable_is_made_of():
    x, y, z = things("xyz")
    a = one(x, y)
    b, c = several(a, z)
    assert text(c) == "several(one(x, y), z)[1]"
    assert list(ancestors([b])) == [b, a, x, y, z]
    assert list(ancestors([b], stop=[a])) == [b, a, z]
    assert graph_inputs([c, a]) == [x, y, z]
    assert [n.op for n in toposort([c, a])] == [one, several]
    assert [n.op for n in toposort([c], [a])] == [several]


def test_the_order_of_nodes():
    x, y, z = things("xyz")
    a, b = one(x, y), two(y, z)
    end = three(a, b, a)
    order = [n.op for n in toposort([end])]
    assert order in ([one, two, three], [two, one, three])
    assert toposort([end]) == toposort([end])
    assert toposort([x]) == []
    chain = x
    for _ in range(3):
        chain = one(chain)
    assert [text(n.outputs[0]) for n in toposort([chain])] == [
        "one(x)", "one(one(x))", "one(one(one(x)))",
    ]  # fmt: skip


def test_a_copy_leaves_what_it_is_of():
    x, y = things("xy")
    end = one(two(x), y)
    graph = FunctionGraph([x, y], [end])
    graph.replace(graph.outputs[0].owner.inputs[0], graph.inputs[1])
    assert shown(graph) == ["one(y, y)"]
    assert text(end) == "one(two(x), y)"
    assert text(graph.became[x]) == "x"
    same = FunctionGraph([x, y], [end], clone=False)
    assert same.outputs[0] is end


def test_a_copied_variable_is_in_no_graph():
    x, y = things("xy")
    for wrong in (copy.copy(one(x)), Variable(Thing(), one(x).owner, 7)):
        for outputs in ([wrong], [two(wrong, x)]):
            for clone in (True, False):
                with pytest.raises(BridgeValueError, match=r"is said to be output [07] of one"):
                    FunctionGraph([x], outputs, clone=clone)
    graph = FunctionGraph([x, y], [one(x)], clone=False)
    with pytest.raises(BridgeValueError, match="is said to be output"):
        graph.replace(graph.outputs[0], copy.copy(graph.outputs[0]))
    assert shown(graph) == ["one(x)"]
    graph.check()


def test_an_op_checks_what_it_is_given():
    with pytest.raises(TypeError, match="takes things"):
        one(3)
    with pytest.raises(TypeError, match="takes things"):
        one(TensorType("float32", ())())
    assert one().owner.inputs == []
    with pytest.raises(MissingMethodError, match="neither make_node nor itypes"):
        type("Bare", (Op,), {})()(thing())
    with pytest.raises(NotImplementedError):
        function([x := thing("x")], type("NoPerform", (Named,), {"perform": Op.perform})("n")(x))(1)


def test_types_and_what_they_are_super_of():
    class Sub(Thing):
        pass

    t, s, other = Thing(), Sub(), TensorType("float32", ())
    assert t.is_super(t)
    assert t.is_super(other) is None
    assert t.in_same_class(Thing())
    assert not t.in_same_class(other)
    v = s.make_variable("v")
    assert t.filter_variable(v) is v  # equal, as Thing's __eq__ says
    with pytest.raises(TypeError, match="cannot be converted"):
        t.filter_variable(other.make_variable())
    assert type(t.clone()) is Thing


# graph/test_fg.py, test_features.py -------------------------------------------------------------


def test_what_a_graph_is_made_from():
    x, y, z = things("xyz")
    end = one(x, y)
    for inputs, outputs, error in (
        ([x, x, y], [end], BridgeValueError),
        ([x], [end], BridgeValueError),
        ([x, None], [end], BridgeTypeError),
        ([x, y], [None], BridgeTypeError),
        ([x, y, Constant(Thing(), 1)], [end], BridgeTypeError),
    ):
        with pytest.raises(error):
            FunctionGraph(inputs, outputs)
    graph = FunctionGraph([x, y, z], [end, end, x])
    assert shown(graph) == ["one(x, y)", "one(x, y)", "x"]
    assert len(graph.apply_nodes) == 1
    assert graph.outputs[0].owner in graph
    assert end.owner not in graph
    assert FunctionGraph([], []).toposort() == []
    again = pickle.loads(pickle.dumps(graph))
    again.check()
    assert shown(again) == shown(graph)


def test_changing_an_input():
    x, y, z = things("xyz")
    a = one(x)
    graph = FunctionGraph([x, y, z], [two(a, y), three(a)], clone=False)
    node = graph.outputs[0].owner
    graph.change_input(node, 0, z)
    assert shown(graph) == ["two(z, y)", "three(one(x))"]
    graph.change_input("output", 1, y)
    assert shown(graph) == ["two(z, y)", "y"]
    assert a not in graph
    graph.check()
    with pytest.raises(BridgeTypeError):
        graph.change_input(node, 0, TensorType("float32", ())())
    with pytest.raises(BridgeValueError, match="no input"):
        graph.change_input(node, 0, one(thing("free")))
    assert shown(graph) == ["two(z, y)", "y"]
    graph.check()


def test_replacing():
    x, y, z = things("xyz")
    a = one(x, y)
    graph = FunctionGraph([x, y, z], [two(a), three(a, a)], clone=False)
    graph.replace_all([(a, z)])
    assert shown(graph) == ["two(z)", "three(z, z)"]
    with pytest.raises(BridgeValueError, match="not in the graph"):
        graph.replace(a, y)
    b = graph.outputs[0]
    graph.replace(b, one(b))
    assert shown(graph) == ["one(two(z))", "three(z, z)"]
    assert not graph.try_replace(z, one(graph.outputs[1]))
    graph.check()


class Recorder(Feature):
    def __init__(self):
        self.seen = []

    def on_import(self, fgraph, node, reason):
        self.seen.append(f"+{node.op}")

    def on_prune(self, fgraph, node, reason):
        self.seen.append(f"-{node.op}")

    def on_change_input(self, fgraph, client, i, old, new, reason):
        self.seen.append(f"{text(old)} becomes {text(new)}")


class NoTwo(Feature):
    def validate(self, fgraph):
        if any(n.op is two for n in fgraph.apply_nodes):
            raise InconsistencyError("two is not wanted")


def test_features_are_told_and_may_object():
    x, y = things("xy")
    a = one(x)
    graph = FunctionGraph([x, y], [three(a)], clone=False)
    recorder = Recorder()
    graph.attach_feature(recorder)
    graph.attach_feature(recorder)  # once is enough
    graph.attach_feature(NoTwo())
    graph.replace_all_validate([(a, one(y))])
    assert recorder.seen == ["+one", "one(x) becomes one(y)", "-one"]
    with pytest.raises(InconsistencyError, match="not wanted"):
        graph.replace_all_validate([(graph.outputs[0], two(x))])
    assert not graph.try_replace_all([(graph.outputs[0], two(x))])
    assert shown(graph) == ["three(one(y))"]
    graph.check()
    graph.remove_feature(graph.feature(NoTwo))
    assert graph.try_replace(graph.outputs[0], two(x))
    with pytest.raises(ValueError, match="not in the list"):
        graph.remove_feature(NoTwo())


class Members(Feature):
    """The nodes that it has been told of, each once."""

    def __init__(self):
        self.nodes = set()

    def on_attach(self, fgraph):
        self.nodes = set(fgraph.apply_nodes)

    def on_import(self, fgraph, node, reason):
        assert node not in self.nodes
        self.nodes.add(node)

    def on_prune(self, fgraph, node, reason):
        self.nodes.remove(node)


class Refuses(Feature):
    """Raises by chance in one of its methods."""

    def __init__(self, rng):
        self.rng, self.where, self.chance = rng, "", 0.0

    def _told(self, where):
        if where == self.where and self.rng.random() < self.chance:
            raise self.rng.choice([ArithmeticError, InconsistencyError])(where)

    def on_import(self, *args):
        self._told("import")

    def on_prune(self, *args):
        self._told("prune")

    def on_change_input(self, *args):
        self._told("change")

    def validate(self, fgraph):
        self._told("validate")


def changed_at_random(rng, graph):
    """One change, perhaps through what depends on what it replaces; whether it was made."""
    known = list(graph.variables)

    def new():
        made = rng.choice([one, two, several, view])(rng.choice(known), rng.choice(known))
        made = rng.choice(made) if isinstance(made, list) else made
        return rng.choice([made, one(made), rng.choice(known)])

    pairs = [(rng.choice(known), new()), (rng.choice(known), new())]
    client, i = rng.choice([c for v in known for c in graph.clients[v]])
    try:
        match rng.randrange(5):
            case 0:
                graph.replace(*pairs[0])
            case 1:
                graph.replace_all_validate(pairs)
            case 2:
                return graph.try_replace_all(pairs)
            case 3:
                graph.change_input(client, i, new())
            case 4:
                with graph.trial():
                    graph.replace(*pairs[0])
                    with suppress(ArithmeticError), graph.trial():
                        graph.replace(*pairs[1])
    except (ArithmeticError, InconsistencyError, BridgeValueError):
        return False
    return True


@pytest.mark.parametrize("seeds", [range(60)])
def test_features_that_raise_anywhere_leave_the_graph_as_it_was(seeds):
    for seed in seeds:
        rng = random.Random(seed)
        pool = inputs = things("xyz")
        for _ in range(8):
            made = rng.choice([one, two, several, view])(rng.choice(pool), rng.choice(pool))
            pool = pool + (made if isinstance(made, list) else [made])
        graph = FunctionGraph(inputs, rng.sample(pool[3:], 3), clone=False)
        refuses, counts = Refuses(rng), [Members(), Members()]
        for feature in (counts[0], refuses, counts[1]):
            graph.attach_feature(feature)
        for _ in range(10):
            before = shown(graph)
            refuses.where = rng.choice(["import", "prune", "change", "validate"])
            refuses.chance = rng.choice([0, 0.3, 1])
            made = changed_at_random(rng, graph)
            refuses.chance = 0
            try:
                graph.validate()
            except InconsistencyError:
                break  # `replace` alone leaves it to this
            assert made or shown(graph) == before, seed
            graph.check()
            assert all(c.nodes == set(graph.apply_nodes) for c in counts), seed


def test_features_are_known_by_themselves():
    @dataclass
    class Log(Feature):
        seen: list

        def on_import(self, fgraph, node, reason):
            self.seen.append(node.op)

    x, y = things("xy")
    graph = FunctionGraph([x, y], [one(x)], clone=False)
    first, second = Log([]), Log([])
    graph.attach_feature(first)
    graph.attach_feature(second)
    graph.remove_feature(second)
    with pytest.raises(BridgeValueError, match="not in the list"):
        graph.remove_feature(second)
    graph.replace(graph.outputs[0], two(x))
    assert (first.seen, second.seen) == ([two], [])


def test_what_uses_nothing_here_is_not_changed():
    x, y = things("xy")
    graph = FunctionGraph([x, y], [one(x)], clone=False)
    node, other = graph.outputs[0].owner, two(x).owner
    for client, i in (("outputs", 0), (node, -1), (node, 1), (other, 0), ("output", 1)):
        with pytest.raises(BridgeValueError, match="there is no input"):
            graph.change_input(client, i, y)
    assert (shown(graph), text(other.outputs[0])) == (["one(x)"], "two(x)")
    graph.check()


def test_a_copy_of_a_graph_is_its_own():
    x, y = things("xy")
    graph = FunctionGraph([x, y], [two(one(x), y)], clone=False)
    copied = copy.copy(graph)
    copied.replace(copied.outputs[0].owner.inputs[0], copied.inputs[1])
    assert (shown(graph), shown(copied)) == (["two(one(x), y)"], ["two(y, y)"])
    graph.check()


def test_a_cycle_that_nobody_uses_any_more_goes():
    x, z = things("xz")
    a, _ = several(x)
    graph = FunctionGraph([x, z], [one(two(a))], clone=False)
    end = graph.outputs[0]
    with graph.trial():
        graph.replace(x, two(end))
        graph.change_input("output", 0, z)
    graph.check()
    assert not graph.apply_nodes


# graph/test_destroyhandler.py -------------------------------------------------------------------


def consistent(outputs, kept=(), inputs="xyz"):
    """Whether there is an order for a graph of x, y and z, of which some must be kept."""
    given = [v for v in graph_inputs(outputs) if v.name and v.name in inputs]
    try:
        graph = FunctionGraph(given, outputs, clone=False)
        graph.attach_feature(DestroyHandler(frozenset(v for v in given if v.name in kept)))
    except InconsistencyError:
        return False
    order = graph.toposort()
    assert len(order) == len(graph.apply_nodes)
    return True


X, Y, Z = things("xyz")
V = view(X)
DESTROYED = add_into(X, Y)
LOOP = add_into(X, Y), add_into(Y, X)


@pytest.mark.parametrize(
    ("outputs", "kept", "wanted"),
    [
        ([add_into(X, view(X))], "", False),
        ([add_into(X, Y)], "x", False),
        ([add_into(X, Y)], "y", True),
        ([add_into(view(view(X)), Y)], "x", False),
        ([add_into(sigmoid(X), X)], "x", True),
        ([add(DESTROYED, X)], "", False),
        ([dot(add_into(X, Y), X)], "", False),
        ([dot(DESTROYED, sigmoid(DESTROYED))], "", True),
        ([dot(add_into(X, Y), add_into(X, Z))], "", False),
        ([dot(add_into(view(X), Y), add_into(view(X), Z))], "", False),
        ([dot(add_into(X, Y), add_into(Y, Z))], "", True),
        ([dot(*LOOP)], "", False),
        ([dot(add_into(X, Y), add_into(Y, view(X)))], "", False),
        ([add_into(X, add_into(Y, X))], "", True),
        ([add_into(X, sigmoid(add_into(view(X), Y)))], "", False),
        ([dot(add_into(dot(X, Y), Z), dot(X, Y))], "", True),
        ([add_into(add_into(add_into(X, Y), Z), Y)], "", True),
        ([dot(into_first(X, Y)[0], into_second(Y, X)[1])], "", False),
        ([dot(into_first(X, Y)[0], into_second(X, Y)[1])], "", False),
        ([into_both(X, Y)[0]], "", True),
        ([into_both(X, X)[0]], "", False),
        ([into_both(X, view(X))[0]], "", False),
        ([dot(into_both(X, Y)[0], X)], "", False),
        ([dot(into_both(X, Y)[0], add(X, into_both(X, Y)[1]))], "", False),
        ([add_into(Constant(Thing(), 1), X)], "", False),
    ],
)
def test_what_is_destroyed_is_destroyed_once_and_last(outputs, kept, wanted):
    assert consistent(outputs, kept) == wanted


def test_replacements_are_refused_where_nothing_could_run():
    x, y, z = things("xyz")
    tv, sx = view(x), sigmoid(x)
    graph = FunctionGraph([x, y, z], [add_into(x, sx)], clone=False)
    graph.attach_feature(DestroyHandler())
    assert not graph.try_replace(sx, tv)
    assert not graph.try_replace(sx, view(tv))
    assert not graph.try_replace(sx, add_into(x, y))
    assert graph.try_replace(sx, y)
    assert shown(graph) == ["add_into(x, y)"]
    assert graph.try_replace(graph.outputs[0], dot(graph.outputs[0], y))
    assert not graph.try_replace(y, tv)
    graph.check()


def test_a_handler_serves_each_graph_that_it_is_attached_to():
    x, y = things("xy")
    graph = FunctionGraph([x, y], [add_into(x, y), sigmoid(x)], clone=False)
    handler = DestroyHandler()
    graph.attach_feature(handler)
    FunctionGraph([x, y], [one(x)]).attach_feature(handler)
    assert [n.op for n in graph.toposort()] == [sigmoid, add_into]
    assert not graph.try_replace(graph.outputs[1], x)


# graph/rewriting/test_basic.py ------------------------------------------------------------------


def rewritten(rules, outputs, inputs):
    graph = FunctionGraph(inputs, outputs)
    count = rules.apply(graph)
    graph.check()
    return count, shown(graph)


def test_rules_of_ops_of_ones_own():
    rules = Rules("peers")

    class Outer(Named):
        pass

    class Inner(Named):
        pass

    outer, inner = Outer("outer"), Inner("inner")

    @rules("outer(inner(a, b), c) -> three(c, b)", Outer)
    def _(node):
        found = owner(node.inputs[0], Inner)
        if found is None or len(node.inputs) != 2 or len(found.inputs) != 2:
            return None
        return three(node.inputs[1], found.inputs[1])

    @rules("outer(outer(a)) -> a", Outer)
    def _(node):
        found = owner(node.inputs[0], Outer)
        return found.inputs[0] if found and len(node.inputs) == len(found.inputs) == 1 else None

    x, y, z = things("xyz")
    assert rewritten(rules, [outer(inner(x, y), z)], [x, y, z]) == (1, ["three(z, y)"])
    assert rewritten(rules, [outer(inner(x), z)], [x, z])[0] == 0
    assert rewritten(rules, [one(outer(inner(x, y), z))], [x, y, z])[1] == ["one(three(z, y))"]
    for n, left in ((2, "x"), (3, "outer(x)"), (6, "x"), (7, "outer(x)")):
        v = x
        for _ in range(n):
            v = outer(v)
        assert rewritten(rules, [v], [x])[1] == [left]


def test_a_rule_that_raises_half_way_leaves_nothing():
    rules, asked = Rules("half"), []

    @rules("one(a) -> two(a)", Named)
    def _(node):
        asked.append(node)
        if len(asked) == 3:
            raise ZeroDivisionError
        return two(*node.inputs) if node.op is one else None

    x = thing("x")
    graph = FunctionGraph([x], [one(one(one(x)))])
    graph.attach_feature(members := Members())
    with pytest.raises(ZeroDivisionError):
        rules.apply(graph)
    graph.check()
    assert (shown(graph), members.nodes) == (["one(one(one(x)))"], set(graph.apply_nodes))


def merged(outputs, inputs):
    graph = FunctionGraph(inputs, outputs)
    merge(graph)
    graph.check()
    return shown(graph), len(graph.apply_nodes)


def test_merging():
    x, y, z = things("xyz")
    assert merged([one(two(x, y), two(x, y), two(x, z))], [x, y, z]) == (
        ["one(two(x, y), two(x, y), two(x, z))"], 3,
    )  # fmt: skip
    assert merged([one(two(three(x), y), two(three(x), y))], [x, y])[1] == 3
    assert merged([two(x, y), two(x, y)], [x, y])[1] == 1
    assert merged([one(x), one(y), one(x)], [x, y])[1] == 2
    assert merged([one(), one()], [])[1] == 1
    assert merged([one(x), Named("one")(x)], [x])[1] == 2

    class Hashed(Thing):
        def __hash__(self):
            return 0

    constants = [Constant(Hashed(), v) for v in (2, 2, 2.0, True, 1)]
    graph = FunctionGraph([], [one(c) for c in constants])
    merge(graph)
    assert len(graph.apply_nodes) == 4


# link/c -----------------------------------------------------------------------------------------


class CFloat(CType):
    def filter(self, value, strict=False, allow_downcast=None):
        if strict and not isinstance(value, float):
            raise TypeError(f"expected a float, got {value!r}")
        return float(value)

    def c_declare(self, name, sub, check_input=True):
        return f"double {name}; void* {name}_bad;"

    def c_init(self, name, sub):
        return f"{name} = 0; {name}_bad = NULL;"

    def c_literal(self, value):
        return repr(value)

    def c_extract(self, name, sub, check_input=True, **kwargs):
        return f"""
        if (!PyFloat_Check(py_{name})) {{
          PyErr_SetString(PyExc_TypeError, "not a double!");
          {sub["fail"]}
        }}
        {name} = PyFloat_AsDouble(py_{name});
        {name}_bad = NULL;"""

    def c_sync(self, name, sub):
        return f"Py_XDECREF(py_{name}); py_{name} = PyFloat_FromDouble({name});"

    def c_cleanup(self, name, sub):
        return f"if ({name}_bad) free({name}_bad);"

    def c_headers(self):
        return ["stdlib.h"]

    def c_code_cache_version(self):
        return (1,)

    def __eq__(self, other):
        return type(self) is type(other)

    def __hash__(self):
        return hash(type(self))


class Binary(Op):
    __props__ = ("symbol",)

    def __init__(self, symbol):
        self.symbol = symbol

    def make_node(self, *inputs):
        t = CFloat()
        return Apply(self, [t.filter_variable(v) for v in inputs], [t()])

    def perform(self, node, inputs, output_storage):
        x, y = inputs
        output_storage[0][0] = {"+": x + y, "-": x - y, "*": x * y}.get(self.symbol, x)

    def c_code(self, node, name, inputs, outputs, sub):
        x, y = inputs
        return f"{outputs[0]} = {x} {self.symbol} {y};"

    def c_code_cache_version(self):
        return (1,)


class Lies(Binary):
    """`perform` and the C code differ."""

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = inputs[0] - inputs[1] + 10


class Fails(Binary):
    def c_code(self, node, name, inputs, outputs, sub):
        return f"""
        PyErr_SetString(PyExc_RuntimeError, "this op fails");
        {sub["fail"]}"""


plus, minus, times = (Binary(s) for s in "+-*")


@pytest.mark.parametrize("mode", ["c", "py", "dual", "debug"])
def test_linkers_agree(mode):
    x, y, z = (CFloat()(n) for n in "xyz")
    e = plus(times(plus(x, y), minus(y, z)), 12.0)
    assert function([x, y, z], e, mode=mode)(2.0, 3.0, 1.0) == 22.0
    f = function([x, y, z], [e, e, x, plus(x, x), minus(x, y)], mode=mode)
    assert f(z=1, y=3, x=2) == [22.0, 22.0, 2.0, 4.0, -1.0]
    with pytest.raises(TypeError, match=r"input 1 \(y\)"):
        f(2.0, object(), 1.0)
    with pytest.raises(BridgeValueError, match="inputs 0 and 1"):
        function([x, x], plus(x, x), mode=mode)


def test_what_fails_in_c_fails_in_python():
    x, y = (CFloat()(n) for n in "xy")
    with pytest.raises(RuntimeError, match="this op fails"):
        function([x, y], plus(Fails("+")(x, y), y))(1.0, 2.0)
    for mode in ("dual", "debug"):
        with pytest.raises(ContractError):
            function([x, y], Lies("-")(x, y), mode=mode)(2.0, 3.0)
    assert function([x, y], Lies("-")(x, y), mode="c")(2.0, 3.0) == -1.0
    assert function([x, y], Lies("-")(x, y), mode="py")(2.0, 3.0) == 9.0


def test_literals_are_in_the_source():
    x = CFloat()("x")
    f = function([x], plus(x, 12.5), rewrite=False)
    assert "12.5" in f.linker.source()
    assert f(1.0) == 13.5
    g = function([x], plus(x, 13.5), rewrite=False)
    assert g(1.0) == 14.5


# link/c/test_op.py, what nodes keep between calls ------------------------------------------------


class Counts(Op):
    """Its input and how often it has been computed. What begins and ends is in sys.peers_log."""

    __props__ = ("label", "first", "fails")
    random = True

    def __init__(self, label, first=0, fails=False):
        self.label, self.first, self.fails = label, first, fails

    def make_node(self, x):
        return Apply(self, [CFloat().filter_variable(x)], [CFloat()()])

    def _says(self, name, sign):
        return f"""
        if (log_{name}) {{
          PyObject *said_{name} = PyUnicode_FromString("{sign}{self.label}");
          if (said_{name}) PyList_Append(log_{name}, said_{name});
          Py_XDECREF(said_{name});
        }}"""

    def c_support_code_struct(self, node, name):
        return f"long count_{name}, *place_{name}; /* {{ */\n PyObject *log_{name};"

    def c_init_code_struct(self, node, name, sub):
        failing = f'PyErr_SetString(PyExc_OSError, "no room"); {sub["fail"]}' if self.fails else ""
        return f"""
        log_{name} = Py_XNewRef(PySys_GetObject("peers_log"));
        {self._says(name, "+")}
        {failing}
        place_{name} = &count_{name};
        *place_{name} = {self.first};"""

    def c_cleanup_code_struct(self, node, name):
        return f"{self._says(name, '-')}\nPy_CLEAR(log_{name});"

    def c_code(self, node, name, inputs, outputs, sub):
        return f"""
        const long seen = *place_{name};
        Py_BEGIN_ALLOW_THREADS
        for (volatile int i = 0; i < 20000; i++) {{}}
        Py_END_ALLOW_THREADS
        count_{name} = seen + 1;
        {outputs[0]} = {inputs[0]} + seen;"""

    def c_code_cache_version(self):
        return (1,)


@pytest.fixture
def log(monkeypatch):
    found = []
    monkeypatch.setattr(sys, "peers_log", found, raising=False)
    return found


@pytest.mark.parametrize("mode", ["c", "opwise"])
def test_nodes_keep_what_they_declare(mode, log):
    x = CFloat()("x")
    outputs = [Counts("a")(x), Counts("b")(plus(x, x)), Counts("a")(x)]
    f, g = function([x], outputs, mode=mode), function([x], outputs, mode=mode)
    assert log == ["+a", "+b", "+a"] * 2
    assert f(1.0) == [1.0, 2.0, 1.0]
    assert f(1.0) == [2.0, 3.0, 2.0]
    assert g(1.0) == [1.0, 2.0, 1.0]
    del log[:]
    del f
    assert sorted(log) == ["-a", "-a", "-b"]
    assert g(1.0) == [2.0, 3.0, 2.0]
    # Only what is initialised differs.
    assert function([x], Counts("a", 5)(x), mode=mode)(1.0) == 6.0


def test_what_begins_ends_where_another_fails_to(log):
    x = CFloat()("x")
    for wrong in range(3):
        del log[:]
        v = x
        for i in range(3):
            v = Counts("abc"[i], fails=i == wrong)(v)
        with pytest.raises(OSError, match=rf"no room\nIn node {wrong} of 3"):
            function([x], v)
        began = "abc"[: wrong + 1]
        assert log == [*(f"+{c}" for c in began), *(f"-{c}" for c in reversed(began))]


class Returns(Counts):
    """Names a member that is not its own, or returns no C."""

    def c_support_code_struct(self, node, name):
        return {"none": None, "number": 3, "other": "int count;"}[self.label]

    def c_init_code_struct(self, node, name, sub):
        return ""

    def c_cleanup_code_struct(self, node, name):
        return None

    def c_code(self, node, name, inputs, outputs, sub):
        return f"{outputs[0]} = {inputs[0]};"


def test_members_are_checked():
    x = CFloat()("x")
    assert function([x], Returns("none")(x))(2.0) == 2.0
    with pytest.raises(BridgeTypeError, match=r"c_support_code_struct of .* returned 3"):
        function([x], Returns("number")(x))
    with pytest.raises(BridgeTypeError, match="'count', whose name does not contain 'node_0'"):
        function([x], Returns("other")(x))


class InCxx(Counts):
    """Members of C++ are constructed and destroyed."""

    def c_support_code_struct(self, node, name):
        return f"std::vector<int> seen_{name}; int none_{name}; struct {{ int n = 3; }} own_{name};"

    def c_init_code_struct(self, node, name, sub):
        return f"seen_{name}.assign(3, none_{name});"

    def c_cleanup_code_struct(self, node, name):
        return f"seen_{name}.clear();"

    def c_code(self, node, name, inputs, outputs, sub):
        return f"{outputs[0]} = {inputs[0]} + seen_{name}.size() + own_{name}.n;"

    def c_headers(self):
        return ["<vector>"]

    def c_compiler(self):
        return "g++"


def test_members_of_cxx_are_constructed():
    x = CFloat()("x")
    assert function([x], InCxx("a")(x))(1.0) == 7.0


def test_calls_of_what_keeps_something_take_turns(log):
    x = CFloat()("x")
    f = function([x], Counts("a")(x))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: f(0.0), range(200)))
    assert sorted(found) == list(range(200))

    class CallsBack(Named):
        def make_node(self, v):
            return Apply(self, [v], [CFloat()()])

        def perform(self, node, inputs, output_storage):
            output_storage[0][0] = again(inputs[0]) if inputs[0] else 0.0

    again = function([x], plus(Counts("b")(x), CallsBack("back")(x)))
    with pytest.raises(RuntimeError, match="called from within itself"):
        again(1.0)
    assert again(0.0) == 1.0


class KeepsTensors(Op):
    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def c_support_code_struct(self, node, name):
        return f"Tensor last_{name};"

    def c_cleanup_code_struct(self, node, name):
        return f"FreeTensor(last_{name});"

    def c_code(self, node, name, inputs, outputs, sub):
        return f"""
        {outputs[0]} = RetainTensor(last_{name} ? last_{name} : {inputs[0]});
        FreeTensor(last_{name});
        last_{name} = RetainTensor({inputs[0]});"""

    def c_headers(self):
        return ["cgotorch.h"]

    def c_code_cache_version(self):
        return (1,)


def test_tensors_are_kept_and_no_c_function_keeps_them(tmp_path):
    x = TensorType("float32", (None,))("x")
    f = function([x], KeepsTensors()(x * 2), rewrite=False)
    assert [f(torch.full((2,), i)).tolist()[0] for i in (1.0, 2.0, 3.0)] == [2.0, 2.0, 4.0]
    for export in (pb.export_go, pb.export_model):
        with pytest.raises(MissingMethodError, match="keeps state between calls"):
            export(f, tmp_path / "out")


# tensor/test_type.py ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float32", "int64", "bool", "complex64"])
def test_dtypes_are_given_as_others_have_them(name):
    for dtype in (name, np.dtype(name), np.dtype(name).type, getattr(torch, name)):
        assert TensorType(dtype, ()).dtype == name


def test_fixed_shapes():
    t, m, n = (TensorType("float64", s) for s in ((2, None), (2, 1), (2, 3)))
    assert t.is_super(m)
    assert t.is_super(n)
    assert not m.is_super(t)
    assert not t.in_same_class(m)
    assert t.in_same_class(n)
    v = m("v")
    assert t.filter_variable(v) is v
    narrowed = n.filter_variable(t("w"))
    assert narrowed.type == n
    assert narrowed.owner is not None
    with pytest.raises(TypeError):
        n.filter_variable(v)
    with pytest.raises(TypeError):
        t.filter(np.ones((3, 2)))
    assert t.clone(dtype="float32", shape=(3, 2)) == TensorType("float32", (3, 2))
    assert t != m
    assert hash(t) == hash(TensorType("float64", (2, None)))


class Positive(TensorType):
    """A type that asks for more than TensorType, and has something of its own."""

    def __init__(self, *args, unit="m", **kwargs):
        super().__init__(*args, **kwargs)
        self.unit = unit

    def filter(self, value, strict=False, allow_downcast=None):
        found = super().filter(value, strict, allow_downcast)
        if bool((found < 0).any()):
            raise TypeError("expected nothing below zero")
        return found


class Takes(Op):
    """Says what types its input and output are of."""

    def __init__(self, type_):
        self.itypes, self.otypes = [type_], [type_]

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = inputs[0]


def test_a_subclass_is_no_base():
    t, plain = Positive("float32", (None,), unit="s"), TensorType("float32", (None,))
    for copied in (t.clone(), t.clone(name="t"), copy.copy(t)):
        assert copied == t
    narrowed = t.clone(shape=(3,))
    assert (type(narrowed), narrowed.unit, narrowed.shape) == (Positive, "s", (3,))
    assert t.is_super(narrowed)
    assert narrowed.filter_variable(t("x")).type == narrowed
    assert plain.filter_variable(v := t("x")) is v
    for wrong in (plain("x"), TensorType("float32", (3,))("x"), Positive("float32", (None,))("x")):
        with pytest.raises(BridgeTypeError, match="expected a variable of type"):
            t.filter_variable(wrong)
        with pytest.raises(BridgeTypeError, match="expected a variable of type"):
            Takes(t)(wrong)
    with pytest.raises(BridgeTypeError, match=r"\(Positive\), got x of .* \(TensorType\)"):
        t.filter_variable(plain("x"))
    assert type((t("x") * 2).type) is TensorType


def test_filter_and_equality():
    t = TensorType("float64", (None,))
    with pytest.raises(TypeError):
        t.filter([1.0, 2.0], strict=True)
    value = torch.ones(2, dtype=torch.float64)
    assert t.filter(value, strict=True) is value
    for a, b, equal in (
        ([1.0, np.nan], [1.0, np.nan], True),
        ([np.inf], [np.inf], True),
        ([np.inf], [-np.inf], False),
        ([np.inf], [1.0], False),
        ([-1.0], [-2.0], False),
        ([1.0], [1.0 + 1e-12], True),
    ):
        a, b = (torch.tensor(v, dtype=torch.float64) for v in (a, b))
        assert t.values_eq_approx(a, b) == equal
    a = torch.ones(5)
    assert TensorType.may_share_memory(a, a[2:])
    assert not TensorType.may_share_memory(a, a.clone())
    assert not TensorType.may_share_memory(a, (1,))


# compile/function, gradient, printing -----------------------------------------------------------


def test_calling_functions():
    x, s = (TensorType("float32", ())(n) for n in ("x", "s"))
    f = function([x, s], s / x)
    assert f(torch.tensor(1.0), torch.tensor(2.0)) == 2
    assert f(torch.tensor(4.0), s=torch.tensor(2.0)) == 0.5
    assert f(s=torch.tensor(4.0), x=2.0) == 2
    for args, kwargs, why in (
        ((1.0,), {}, "needs input 1"),
        ((1.0, 2.0, 3.0), {}, "takes 2 inputs, got 3"),
        ((1.0,), {"x": 2.0}, "'x' twice"),
        ((1.0,), {"q": 2.0}, "no input named 'q'"),
    ):
        with pytest.raises(TypeError, match=why):
            f(*args, **kwargs)
    assert function([], [])() == []
    c = ops.constant(torch.ones(2))
    first, second = function([], c)(), function([], c)()
    assert first is not second
    first += 1
    assert function([], c)().tolist() == [1.0, 1.0]
    with pytest.raises(BridgeValueError, match="no input"):
        function([x], s)


class TwoOutputs(Op):
    __props__ = ("returned",)

    def __init__(self, returned="right"):
        self.returned = returned

    def make_node(self, *inputs):
        return Apply(self, list(inputs), [v.type() for v in inputs])

    def perform(self, node, inputs, output_storage):
        for cell, v in zip(output_storage, inputs, strict=True):
            cell[0] = v * 2

    def grad(self, inputs, output_grads):
        if self.returned == "None":
            return None
        if self.returned == "short":
            return list(output_grads[1:])
        return [g * 2 for g in output_grads]


@pytest.mark.parametrize("mode", ["c", "py"])
def test_an_input_is_given_whatever_else_computes_it(mode):
    x = TensorType("float64", (None,))("x")
    y = x * 2
    a, b = TwoOutputs()(x, y)
    one, ten, hundred = (torch.full((1,), n, dtype=torch.float64) for n in (1.0, 10.0, 100.0))
    assert function([x, a], [a + b, a], mode=mode)(one, hundred) == [104.0, 100.0]
    f = function([x, y], x * y + y, mode=mode)
    p, q = one.clone().requires_grad_(), ten.clone().requires_grad_()
    f(p, q).backward()
    assert (p.grad.item(), q.grad.item()) == (10.0, 2.0)
    # Of what is no input the gradient goes on to what it is computed from.
    assert function([x], pb.grad((x * y + y).sum(), x), mode=mode)(one) == 6.0
    graph = FunctionGraph([x, a], [a + b], clone=False)
    graph.check()
    graph.replace(b, x)
    graph.check()
    assert len(graph.apply_nodes) == 1


def test_gradients_are_checked():
    a, b = (TensorType("float64", ())(n) for n in "ab")
    for returned in ("None", "short"):
        x, _ = TwoOutputs(returned)(a, b)
        with pytest.raises(TypeError, match="grad of TwoOutputs"):
            pb.grad(x, [a])
    x, y = TwoOutputs()(a, b)
    assert function([a, b], pb.grad(x + y * y, [a, b]))(1.0, 2.0) == [2.0, 16.0]
    with pytest.raises(TypeError, match="one element"):
        pb.grad(TensorType("float64", (None,))("v"), a)
    with pytest.raises(TypeError, match=r"has no gradient|dtype|float"):
        pb.grad(x, [TensorType("int64", ())("i")])
    with pytest.raises(ValueError, match="does not depend"):
        pb.grad(x, [TensorType("float64", ())("free")])
    assert function([a], pb.grad(pb.grad(a**3, a), a))(2.0) == 12.0
    (g,) = pb.grad(a * a, [a])
    assert g.type.dtype == "float64"
    v = TensorType("float64", (2,))("v")
    for shape in ((2, 2), (3,), (1, 2)):
        with pytest.raises(TypeError, match="another shape than the cost"):
            pb.grad(v * v, v, grad_outputs=ops.constant(torch.ones(shape, dtype=torch.float64)))


def test_gradients_of_what_depends_on_each_other():
    x = TensorType("float64", ())("x")
    y = x * 2
    outputs = [pb.grad(x, x), pb.grad(y, y), pb.grad(y * x, y), pb.grad(y * x, x)]
    assert function([x], outputs)(3.0) == [1.0, 1.0, 3.0, 12.0]
    assert function([x], pb.grad(x * x, [x, x]))(3.0) == [6.0, 6.0]
    v = TensorType("float64", (2,))("v")
    known = ops.constant(torch.tensor([1.0, 10.0], dtype=torch.float64))
    f = function([v], pb.grad(v * v, v, grad_outputs=known))
    assert f(torch.ones(2, dtype=torch.float64)).tolist() == [2.0, 20.0]


class Apart(Op):
    """Two inputs, two outputs, and a gradient of the one that is not a number."""

    def make_node(self, a, b):
        return Apply(self, [a, b], [a.type(), b.type()])

    def connection_pattern(self, node):
        return [[True, False], [False, True]]

    def grad(self, inputs, output_grads):
        return [output_grads[0] * 2, output_grads[1] * float("nan")]

    def perform(self, node, inputs, output_storage):
        for cell, v in zip(output_storage, inputs, strict=True):
            cell[0] = v * 2


def test_what_is_not_connected_spoils_nothing():
    a, b = (TensorType("float64", ())(n) for n in "ab")
    x, _ = Apart()(a, b)
    assert function([a, b], pb.grad(x, a))(1.0, 1.0) == 2.0
    assert pb.grad(x, b, allow_unused=True) is None
    with pytest.raises(BridgeValueError, match="does not depend"):
        pb.grad(x, b)


@pytest.mark.parametrize("mode", ["c", "py"])
@pytest.mark.parametrize("rewrite", [True, False])
def test_a_gradient_alone_is_checked(mode, rewrite):
    x, holds = TensorType("float32", (None,))("x"), pb.schema_type("bool")("holds")
    ones = torch.ones(2)
    cubed = (Require("it does not hold")(x, holds) ** 3).sum()
    first = pb.grad(cubed, x)
    outputs = [first, pb.grad(first.sum(), x)]
    f = function([x, holds], outputs, mode=mode, rewrite=rewrite)
    assert [v.tolist() for v in f(ones, True)] == [[3.0, 3.0], [6.0, 6.0]]
    for out in outputs:
        with pytest.raises(RuntimeError, match="it does not hold"):
            function([x, holds], out, mode=mode, rewrite=rewrite)(ones, False)
    doubled = (CheckSizes(["x"], [SizeRule(0, 0, "n", low=3)])(x) * 2).sum()
    with pytest.raises(ValueError, match="at least 3, got 2"):
        function([x], pb.grad(doubled, x), mode=mode, rewrite=rewrite)(ones)
    # A backward pass has had its forward pass checked, and keeps nothing to check again.
    f = function([x, holds], Require("no")(CheckSizes(["x"], [])(x) * 2, holds), mode=mode)
    given = torch.ones(2, requires_grad=True)
    y = f(given, True)
    assert y.grad_fn.saved_tensors == ()
    y.sum().backward()
    assert given.grad.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("name", ["é", "变量", "a\x00b", "*/", "\ud800", "\ufffe", "{V1}", "%s\n"])
def test_names_are_shown_and_called_as_they_are(name, tmp_path):
    x = TensorType("float32", (None,))(name)
    f = function([x], x * 2)
    assert f(**{name: torch.ones(1)}) == 2
    with pytest.raises(TypeError) as e:
        f(torch.ones(1, 1))
    assert name in str(e.value)
    assert pb.dprint(x * 2, file="str").count(name) == 1
    pb.draw(x * 2, tmp_path / "drawn.svg")
    minidom.parse(str(tmp_path / "drawn.svg"))


def test_printing():
    a, b = (TensorType("float32", ())(n) for n in "ab")
    shared = a + b
    shown = pb.dprint(shared * shared, file="str")
    assert shown.splitlines()[0].startswith("mul.Tensor [id A]")
    assert shown.count("add.Tensor") == 2  # the second time by its letter
    assert "···" in shown
    assert pb.dprint([a, shared], file="str").splitlines()[0].startswith("a ")
