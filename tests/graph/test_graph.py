"""Graphs: changing them safely, what destroys what, printing, and 10,000 nodes of each."""

from __future__ import annotations

import io
from xml.etree import ElementTree

import pytest
import torch

import pytorch_bridge as pb
from pytorch_bridge import (
    Apply,
    BridgeTypeError,
    BridgeValueError,
    Constant,
    InconsistencyError,
    TensorType,
    constant,
    dprint,
    draw,
    function,
    ops,
    schema_type,
)
from pytorch_bridge.aliasing.destroy import DestroyHandler
from pytorch_bridge.errors import DuplicateError
from pytorch_bridge.graph.basic import ancestors, clone_graph, graph_inputs, toposort
from pytorch_bridge.graph.features import Feature
from pytorch_bridge.graph.function_graph import FunctionGraph
from pytorch_bridge.link.python import PythonLinker
from pytorch_bridge.ops.basic import DeepCopyOp, Shape, Shape_i, ViewOp
from pytorch_bridge.ops.op import Op
from pytorch_bridge.rewrite.merge import merge

A, B = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])


def vector(name=None):
    return TensorType("float32", (None,))(name)


class Plain(Op):
    """Any number of vectors to any number, with the given maps."""

    def __init__(self, name, n_outputs=1, view_map=None, destroy_map=None, perform=None):
        self.name = name
        self.n_outputs = n_outputs
        self.view_map = view_map or {}
        self.destroy_map = destroy_map or {}
        self._perform = perform
        self.ran = 0

    def make_node(self, *xs):
        return Apply(self, xs, [xs[0].type() for _ in range(self.n_outputs)])

    def perform(self, node, inputs, output_storage):
        self.ran += 1
        for cell, value in zip(output_storage, self._perform(*inputs), strict=True):
            cell[0] = value


# FunctionGraph


def test_a_graph_is_a_copy_that_knows_its_clients():
    x, y = vector("x"), vector("y")
    s = x + y
    out = s * s
    graph = FunctionGraph([x, y], [out])
    graph.check()
    assert graph.inputs[0] is not x
    assert graph.became[x] is graph.inputs[0]
    copied = graph.became[s]
    assert [(str(n.op), i) for n, i in graph.clients[copied]] == [
        ("mul.Tensor", 0),
        ("mul.Tensor", 1),
    ]
    assert list(graph.clients[graph.outputs[0]]) == [("output", 0)]
    assert len(graph.apply_nodes) == 2
    assert copied in graph
    assert s not in graph
    assert out.owner.inputs[0] is s


def test_bad_graphs_are_refused():
    x, y = vector("x"), vector("y")
    with pytest.raises(
        BridgeValueError,
        match=r"^input 1 of add\.Tensor needs the variable y of type .*, which is no input of the graph$",
    ):
        FunctionGraph([x], [x + y])
    with pytest.raises(BridgeValueError, match="inputs 0 and 1 of the graph are the same: x"):
        FunctionGraph([x, x], [x])
    with pytest.raises(BridgeTypeError, match="input 0 of the graph is the constant"):
        FunctionGraph([constant(A)], [])
    with pytest.raises(BridgeTypeError, match="output 0 of the graph is no variable: 3"):
        FunctionGraph([x], [3])


def test_replace_prunes_what_nobody_uses():
    x, y = vector("x"), vector("y")
    graph = FunctionGraph([x, y], [(x + y).relu() * 2], clone=False)
    relu = graph.outputs[0].owner.inputs[0]
    graph.replace(relu, y, "shorter")
    graph.check()
    assert [str(n.op) for n in graph.toposort()] == ["mul.Scalar{other=2}"]
    assert graph.clients[x] == {}


def test_replace_by_what_uses_the_old():
    x = vector("x")
    graph = FunctionGraph([x], [x.relu() + 1], clone=False)
    relu = graph.outputs[0].owner.inputs[0]
    graph.replace(relu, (relu * 2).exp())
    graph.check()
    assert [n.op.name for n in graph.toposort()] == ["relu", "mul.Scalar", "exp", "add.Scalar"]


def test_replace_keeps_types():
    x = TensorType("float32", (2, None))("x")
    wide, narrow = TensorType("float32", (2, None))("wide"), TensorType("float32", (2, 3))("narrow")
    graph = FunctionGraph([x, wide, narrow], [x + 1], clone=False)
    graph.replace(x, narrow)
    assert graph.outputs[0].owner.inputs == [narrow]
    graph.replace(narrow, wide)  # by a check at run time
    graph.check()
    assert str(graph.toposort()[0].op) == "SpecifyShape{sizes=(2, 3)}"
    with pytest.raises(
        BridgeTypeError, match=r"cannot replace .* by .*wrong.*\(for a test\).*float64"
    ):
        graph.replace(graph.outputs[0], TensorType("float64", (2, 3))("wrong"), "for a test")
    with pytest.raises(BridgeValueError, match="is not in the graph"):
        graph.replace(vector("elsewhere"), x)


class Log(Feature):
    def __init__(self, limit=10**9):
        self.events = []
        self.limit = limit

    def on_attach(self, fgraph):
        self.events.append("attach")

    def on_detach(self, fgraph):
        self.events.append("detach")

    def on_import(self, fgraph, node, reason):
        self.events.append(f"import {node.op}")

    def on_prune(self, fgraph, node, reason):
        self.events.append(f"prune {node.op}")

    def on_change_input(self, fgraph, client, i, old, new, reason):
        self.events.append(f"change {client if isinstance(client, str) else client.op} {i}")

    def validate(self, fgraph):
        if len(fgraph.apply_nodes) > self.limit:
            raise InconsistencyError("too many nodes")


def test_features_are_told_of_every_change():
    x = vector("x")
    graph = FunctionGraph([x], [x.relu()], clone=False)
    log = Log()
    graph.attach_feature(log)
    graph.replace(graph.outputs[0], x.exp().log())
    assert log.events == ["attach", "import exp", "import log", "change output 0", "prune relu"]
    assert graph.feature(Log) is log
    graph.remove_feature(log)
    assert log.events[-1] == "detach"
    assert graph.feature(Log) is None


def test_what_a_feature_refuses_is_taken_back():
    x, y = vector("x"), vector("y")
    graph = FunctionGraph([x, y], [x.relu() + y.relu(), x.relu()], [Log(limit=4)], clone=False)
    before = dprint(graph, file="str")
    first = graph.outputs[0].owner
    with pytest.raises(InconsistencyError, match="too many nodes"):
        graph.replace_all_validate(
            [(first.inputs[0], x.exp()), (first.inputs[1], y.exp().log().sin())]
        )
    graph.check()
    assert dprint(graph, file="str") == before
    assert not graph.try_replace_all([(first.inputs[0], x.exp().log().sin())])
    assert graph.try_replace_all([(first.inputs[0], x.exp())])
    graph.check()
    assert dprint(graph, file="str") != before


def test_an_error_half_way_is_taken_back():
    x, y = vector("x"), vector("y")
    graph = FunctionGraph([x, y], [x.relu() + y.relu()], clone=False)
    before = dprint(graph, file="str")
    first = graph.outputs[0].owner
    wrong = TensorType("int64", (None,))("wrong")
    with pytest.raises(BridgeTypeError):
        graph.replace_all_validate([(first.inputs[0], x.exp()), (first.inputs[1], wrong)])
    assert dprint(graph, file="str") == before
    graph.check()


def test_a_variable_from_elsewhere_leaves_nothing_behind():
    x, elsewhere = vector("x"), vector("elsewhere")
    graph = FunctionGraph([x], [x.relu()], clone=False)
    before = dprint(graph, file="str")
    with pytest.raises(BridgeValueError, match="elsewhere"):
        graph.replace_all_validate([(graph.outputs[0], x.exp() + elsewhere)])
    assert dprint(graph, file="str") == before
    graph.check()


def test_a_trial_inside_another_is_taken_back_alone():
    x = vector("x")
    graph = FunctionGraph([x], [x.relu(), x.exp()], [Log(limit=3)], clone=False)
    with graph.trial():
        graph.replace(graph.outputs[0], x.sin())
        assert not graph.try_replace_all([(graph.outputs[1], x.exp().log().cos())])
        assert graph.try_replace_all([(graph.outputs[1], x.cos())])
        inside = dprint(graph, file="str")
        graph.check()
    assert dprint(graph, file="str") == inside

    def fails():
        with graph.trial():
            assert graph.try_replace_all([(graph.outputs[0], x.tan())])
            raise KeyError("this step")

    with pytest.raises(KeyError, match="this step"):
        fails()
    assert dprint(graph, file="str") == inside
    graph.check()


def test_clones_and_walks():
    x, y = vector("x"), vector("y")
    a = x + y
    b = a * constant(A)
    ins, (copied,), became = clone_graph([x, y], [b])
    assert copied is not b
    assert became[a] is copied.owner.inputs[0]
    assert graph_inputs([b]) == [x, y, b.owner.inputs[1]]
    assert list(ancestors([b], stop=[a])) == [b, a, b.owner.inputs[1]]
    assert toposort([b], [a]) == [b.owner]
    assert [v.name for v in ins] == ["x", "y"]


# B14 to B18: who destroys what


def test_b15_a_destroyer_runs_after_every_other_reader():
    x, y = vector("x"), vector("y")
    for outputs in ([ops.add_(x, y), x * 2], [x * 2, ops.add_(x, y)]):
        for mode in ("py", "debug"):
            f = function([x, y], outputs, mode=mode)
            a = A.clone()
            results = {tuple(v.tolist()) for v in f(a, B)}
            assert results == {(4.0, 6.0), (2.0, 4.0)}
            assert a.tolist() == [1.0, 2.0]
    f = function([x, y], [ops.add_(x, y), x * 2], mode="py", mutable=[x])
    a = A.clone()
    changed, old = f(a, B)
    assert (changed.tolist(), old.tolist()) == ([4.0, 6.0], [2.0, 4.0])
    assert changed.data_ptr() == a.data_ptr()


def test_b14_the_order_follows_destroy_map():
    seen = []

    def reads(*xs):
        seen.append("read")
        return [xs[0].clone()]

    def destroys(x, y):
        seen.append("destroy")
        return [x.add_(1), y.add_(1)][: op.n_outputs]

    x, y = vector("x"), vector("y")
    for maps in ({None: [0, 1]}, {0: [0, 1]}, {0: [0], None: [1]}):
        op = Plain("destroys", 1, destroy_map=maps, perform=destroys)
        reader = Plain("reads", 1, perform=reads)
        out = op(x, y)
        f = function([x, y], [out, reader(x), reader(y)], mode="py", mutable=[x, y])
        seen.clear()
        f(A.clone(), B.clone())
        assert seen == ["read", "read", "destroy"]


def test_b16_two_that_destroy_the_same_are_refused_at_compile():
    x = vector("x")
    first, second = (
        Plain(n, destroy_map={0: [0]}, perform=lambda x: [x.add_(1)]) for n in ("first", "second")
    )
    for mode in ("py", "debug"):
        with pytest.raises(
            InconsistencyError, match=r"first\(.*\) and second\(.*\) both destroy .*x"
        ):
            function([x], [first(x), second(x)], mode=mode)
    assert first.ran == second.ran == 0
    assert issubclass(InconsistencyError, ValueError)


def test_b16_a_reader_that_would_have_to_come_after_is_refused():
    x = vector("x")
    op = Plain("destroys", destroy_map={0: [0]}, perform=lambda x: [x.add_(1)])
    reader = Plain("reads", perform=lambda a, b: [a + b])
    with pytest.raises(InconsistencyError, match="destroys"):
        function([x], reader(op(x), x), mode="py")
    chain = function([x], op(op(x)), mode="py")
    assert chain(A).tolist() == [3.0, 4.0]


def test_b16_an_op_that_reads_what_it_destroys_through_another_input():
    x = vector("x")
    op = Plain("adds", destroy_map={0: [0]}, perform=lambda x, y: [x.add_(y)])
    with pytest.raises(InconsistencyError, match=r"adds\(.*\) destroys .*x.* which its input 1"):
        function([x], op(x, x.view(-1)), mode="py")
    assert function([x], ops.add_(x, x), mode="py")(A).tolist() == [2.0, 4.0]  # PyTorch can


def test_b16_constants_and_kept_inputs_are_destroyed_as_copies():
    c = constant(A.clone())
    f = function([], ops.add_(c, 1), mode="py")
    assert f().tolist() == [2.0, 3.0]
    assert f().tolist() == [2.0, 3.0]
    with pytest.raises(InconsistencyError, match="destroys the constant"):
        FunctionGraph([], [ops.add_(c, 1)], [DestroyHandler()])
    x = vector("x")
    graph = FunctionGraph([x], [ops.add_(x, 1)], clone=False)
    with pytest.raises(InconsistencyError, match=r"destroys x .*, which must be kept"):
        graph.attach_feature(DestroyHandler({x}))


def test_b17_destroying_a_view_destroys_what_it_is_of():
    x = TensorType("float32", (None, None))("x")
    view = x.t()
    f = function([x], [ops.add_(view, 1), x * 2], mode="py", mutable=[x])
    t = torch.eye(2)
    changed, doubled = f(t)
    assert torch.equal(doubled, torch.eye(2) * 2)
    assert torch.equal(changed, torch.eye(2) + 1)
    with pytest.raises(InconsistencyError, match=r"both destroy x"):
        function([x], [ops.add_(view, 1), ops.mul_(x, 2)], mode="py")
    with pytest.raises(InconsistencyError):
        function([x], ops.mm(ops.add_(view, 1), x), mode="py")


def test_b17_views_of_what_was_destroyed_are_new():
    x = vector("x")
    changed = ops.add_(x, 1)
    f = function([x], [changed.view(-1) * 1, x * 1, ops.mul_(changed.view(-1), 10)], mode="debug")
    new, old, last = f(A)
    assert (new.tolist(), old.tolist(), last.tolist()) == ([2.0, 3.0], [1.0, 2.0], [20.0, 30.0])


def test_b18_a_view_of_several_inputs_is_destroyed_with_each():
    x, y, z = vector("x"), vector("y"), vector("z")
    choose = Plain("choose", view_map={0: [0, 1]}, perform=lambda x, y: [x if x[0] > 0 else y])
    destroy = Plain("destroy", destroy_map={0: [0]}, perform=lambda x: [x.add_(100)])
    out = destroy(choose(x, y))
    f = function([x, y, z], [out, x + z, y + z], mode="py", mutable=[x, y])
    for a, b in ((A.clone(), B.clone()), (-A, B.clone())):
        changed, with_x, with_y = f(a.clone(), b.clone(), B)
        assert torch.equal(with_x, a + B)
        assert torch.equal(with_y, b + B)
        assert torch.equal(changed, (a if a[0] > 0 else b) + 100)
    for other in (x, y):
        with pytest.raises(InconsistencyError, match="both destroy"):
            function([x, y], [out, destroy(other)], mode="py")


def test_replacing_by_a_destroyer_is_validated():
    x, y = vector("x"), vector("y")
    graph = FunctionGraph([x, y], [(x + y) + (x * y)], [DestroyHandler({x, y})], clone=False)
    total = graph.outputs[0].owner
    a, b = total.inputs
    assert graph.try_replace_all([(graph.outputs[0], ops.add_(a, b))])
    assert not graph.try_replace_all([(a, ops.add_(x, y))])
    graph.check()
    assert [str(n.op) for n in graph.toposort()] == [
        "add.Tensor",
        "mul.Tensor",
        "add_.Tensor",
    ]


def test_merging_leaves_apart_what_is_destroyed_twice():
    x, y = vector("x"), vector("y")
    graph = FunctionGraph(
        [x, y], [ops.add_(x + y, 1), ops.mul_(x + y, 2), x + y], [DestroyHandler()], clone=False
    )
    merge(graph)
    graph.check()
    graph.validate()
    f = function([x, y], [ops.add_(x + y, 1), ops.mul_(x + y, 2), x + y], mode="py")
    assert [v.tolist() for v in f(A, B)] == [[5.0, 7.0], [8.0, 12.0], [4.0, 6.0]]


# function


def test_a17_no_output_shares_memory_with_an_input_or_a_constant():
    x = vector("x")
    c = constant(A.clone())
    f = function([x], [x, x.view(-1), x[1:], c, x + 0], mode="py")
    a = A.clone()
    for out in f(a):
        assert not TensorType.may_share_memory(out, a)
        assert not TensorType.may_share_memory(out, c.data)
    f(a)[3].zero_()
    assert f(a)[3].tolist() == [1.0, 2.0]


def test_function_takes_names_and_converts():
    x, n = vector("x"), schema_type("int")("n")
    f = function([x, n], x * n, mode="py", name="scaled")
    assert f([1, 2], 3.0).tolist() == [3.0, 6.0]
    assert f(n=2, x=A).tolist() == [2.0, 4.0]
    assert str(f) == "scaled"
    for call, error, message in (
        (lambda: f(A), TypeError, "scaled needs input 1, n"),
        (lambda: f(A, 1, 2), TypeError, "takes 2 inputs, got 3"),
        (lambda: f(A, 1, n=2), TypeError, "given the input 'n' twice"),
        (lambda: f(A, m=2), TypeError, "no input named 'm'"),
        (lambda: f(A, 2.5), TypeError, r"scaled: input 1 \(n\): expected int, got 2.5"),
        (
            lambda: f(torch.eye(2), 1),
            TypeError,
            r"input 0 \(x\): expected .*\(None,\).*shape \(2, 2\)",
        ),
    ):
        with pytest.raises(error, match=message):
            call()
    with pytest.raises(
        BridgeValueError, match="there is no mode 'warp': modes are c, c_only, debug"
    ):
        function([x], x, mode="warp")
    with pytest.raises(BridgeValueError, match="is in mutable, but no input"):
        function([x], x, mode="py", mutable=[n])


def test_function_gives_what_it_was_asked_for():
    x = vector("x")
    assert isinstance(function([x], x + 1, mode="py")(A), torch.Tensor)
    assert isinstance(function([x], [x + 1], mode="py")(A), list)
    assert function([x], [], mode="py")(A) == []
    assert function(x, x + 1, mode="py")(A).tolist() == [2.0, 3.0]


def test_an_error_names_the_node_and_shows_what_is_around_it():
    x, y = vector("x"), vector("y")
    f = function([x, y], ((x + 1) * y).relu(), mode="py", rewrite=False)
    with pytest.raises(RuntimeError, match="must match the size") as e:
        f(A, torch.ones(3))
    said = str(e.value)
    assert "In node 1 of 3, mul" in said
    assert "input y: TensorType(float32, (None,)), given a Tensor of torch.float32" in said
    assert "shape (3,)" in said
    assert "add.Scalar{other=1}(x)" in said


def test_register_linker(unregistered):
    seen = []

    class Counting(PythonLinker):
        def make_thunk(self):
            thunk = super().make_thunk()

            def counting(values):
                seen.append(len(values))
                return thunk(values)

            return counting

    pb.register_linker("counting", Counting)
    x, y = vector("x"), vector("y")
    f = function([x, y], x * 2 + y, mode="counting")
    assert seen == []
    assert torch.equal(f(A, A), A * 2 + A)
    assert torch.equal(f(A, A), A * 2 + A)
    assert seen == [2, 2]
    with pytest.raises(DuplicateError, match=r"linker 'counting' is .* at .*test_graph\.py:\d+"):
        pb.register_linker("counting", Counting)
    with pytest.raises(
        DuplicateError, match=r"linker 'py' is .* at .*compiled_function\.py:\d+ and at"
    ):
        pb.register_linker("py", Counting)
    with pytest.raises(BridgeValueError, match=r"'missing'.*counting"):
        function([x], x, mode="missing")


def test_a19_shapes():
    x = TensorType("float32", (None, 3))("x")
    f = function([x], [Shape()(x), Shape_i(0)(x), Shape_i(1)(x)], mode="py")
    assert f(torch.ones(2, 3)) == [[2, 3], 2, 3]
    with pytest.raises(TypeError, match=r"Shape_i{i=5} of x: .* has 2 dimensions"):
        Shape_i(5)(x)
    with pytest.raises(TypeError, match="0 or more"):
        Shape_i(-1)


def test_a17_a18_copies_and_views():
    x = vector("x")
    graph = FunctionGraph([x], [DeepCopyOp()(x), ViewOp()(x)])
    from pytorch_bridge.link.python import PythonLinker

    copied, view = PythonLinker(graph).make_thunk()([A])
    assert view is A
    assert copied.data_ptr() != A.data_ptr()
    assert torch.equal(copied, A)
    values = schema_type("int[]")("values")
    given = [1, 2]
    result = function([values], values, mode="py")(given)
    assert result == given
    assert result is not given


# Printing


def test_dprint():
    x, y = vector("x"), vector("y")
    s = x + y
    s.name = "s"
    out = io.StringIO()
    assert dprint([s * s.relu(), ops.max(s, 0)[1]], print_type=True, file=out) is None
    assert out.getvalue() == dprint([s * s.relu(), ops.max(s, 0)[1]], print_type=True, file="str")
    text = dprint([s * s.relu(), ops.max(s, 0)[1]], file="str")
    assert (
        text
        == """\
mul.Tensor [id A]
 ├─ add.Tensor [id B] 's'
 │   ├─ x [id C]
 │   └─ y [id D]
 └─ relu [id E]
     └─ add.Tensor [id B] 's'
         └─ ···
max.dim{dim=0}.1 [id F]
 └─ add.Tensor [id B] 's'
     └─ ···
"""
    )
    assert "<TensorType(float32, (None,))>" in out.getvalue()
    assert dprint(s.relu().exp().log(), depth=1, file="str").count("\n") == 2
    f = function([x, y], s, mode="py", name="f")
    assert "add.Tensor" in dprint(f, file="str")
    with pytest.raises(BridgeTypeError, match="expected variables or a graph, got 3"):
        dprint(3)


def test_draw(tmp_path):
    x, y = vector("x<"), vector("y")
    path = tmp_path / "g.svg"
    draw([ops.mm(x.unsqueeze(0), y.unsqueeze(1)) + constant(A), x], path)
    root = ElementTree.parse(path).getroot()
    texts = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "mm" in texts
    assert "x<: TensorType(float32, (None,))" in texts
    assert "output 0" in texts
    boxes = [
        (float(r.get("x")), float(r.get("y")), float(r.get("width")))
        for r in root.iter("{http://www.w3.org/2000/svg}rect")
        if r.get("x")
    ]
    assert len(boxes) == 9
    for i, (x1, y1, w1) in enumerate(boxes):
        for x2, y2, w2 in boxes[i + 1 :]:
            assert y1 != y2 or x1 + w1 <= x2 or x2 + w2 <= x1  # none covers another


# 10,000 nodes

N = 10_000


def chain(x, step, n=N):
    for _ in range(n):
        x = step(x)
    return x


def test_ten_thousand_nodes():
    x = vector("x")
    out = chain(x, lambda v: v + 1.0)
    graph = FunctionGraph([x], [out])
    graph.attach_feature(DestroyHandler())
    assert len(graph.toposort()) == N
    assert merge(graph) == 0
    graph.check()
    graph.replace(graph.outputs[0].owner.inputs[0], graph.inputs[0])
    assert len(graph.apply_nodes) == 1
    assert len(dprint(out, file="str").splitlines()) == N + 1
    assert function([x], out, mode="py")(A).tolist() == [N + 1.0, N + 2.0]
    draw(out, "/dev/null")


def test_ten_thousand_destroyers_and_readers():
    x = vector("x")
    changed, outs = x, []
    for i in range(N // 2):
        changed = ops.add_(changed, 1)
        if i % 100 == 0:
            outs.append(changed * 1)
    f = function([x], [changed, *outs], mode="py")
    results = f(A)
    assert results[0].tolist() == [N // 2 + 1.0, N // 2 + 2.0]
    assert [r[0].item() for r in results[1:]] == [2.0 + 100 * i for i in range(N // 200)]
    assert A.tolist() == [1.0, 2.0]


def test_ten_thousand_users_of_one_variable():
    x, y = vector("x"), vector("y")
    outs = [x + float(i) for i in range(N)]
    graph = FunctionGraph([x, y], outs, clone=False)
    graph.replace(x, y)
    assert not graph.clients[x]
    assert len(graph.clients[y]) == N


def test_ten_thousand_nodes_that_are_all_the_same():
    x = vector("x")
    graph = FunctionGraph(
        [x], [chain(x, lambda v: v.relu(), 3) for _ in range(N // 3)], clone=False
    )
    assert merge(graph) == 3 * (N // 3 - 1)
    assert len(graph.apply_nodes) == 3
    graph.check()


def test_a_gradient_through_ten_thousand_nodes():
    x = vector("x")
    out = chain(x, lambda v: v * 1.0001)
    f = function([x], pb.grad(out.sum(), x), mode="py")
    assert f(A.clone()).tolist() == pytest.approx([1.0001**N] * 2, rel=1e-3)


def test_a_constant_may_be_an_output():
    c = constant(A)
    assert isinstance(c, Constant)
    assert function([], c, mode="py")().tolist() == [1.0, 2.0]


@pytest.mark.parametrize("wrong", [None, 3, "x", {}, [None], [1.0]])
def test_what_is_no_variable_is_refused_at_once(wrong):
    x = TensorType("float32", (None,))("x")
    named = "outputs" + (r"\[0\]" if isinstance(wrong, list) else "")
    with pytest.raises(pb.BridgeTypeError, match=named):
        pb.function([x], wrong)
    with pytest.raises(pb.BridgeTypeError, match="inputs"):
        pb.function(wrong, x)
    with pytest.raises(pb.BridgeTypeError, match="mutable"):
        pb.function([x], x, mutable=wrong)
