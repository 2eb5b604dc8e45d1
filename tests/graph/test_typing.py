"""Rules for the types of results are held to PyTorch; `make soak` does so for longer."""

from __future__ import annotations

import os
import re

import operator_database as database
import pytest
import rule_cases
import torch

import pytorch_bridge as pb
from pytorch_bridge import TensorType, ops
from pytorch_bridge.inference import shape_rules
from pytorch_bridge.inference.symbolic_sizes import prove
from pytorch_bridge.ops.native import native

SEED = int(os.environ.get("SEED", "1000"))


def test_what_rules_say_is_what_pytorch_does():
    said, wrong = rule_cases.run(SEED, changes=6)
    assert not wrong, "\n".join(wrong)
    # The database comes in parts; what is in none of them is called by hand.
    assert sum(count > 0 for count in said.values()) > len(said) / 2


@pytest.mark.parametrize("name", ["mm", "softmax.int", "cat", "reshape", "conv2d"])
def test_a_wrong_rule_is_found(name, monkeypatch):
    rule = shape_rules._RULES[name]

    def wrong(call):
        (found,) = rule(call)
        return [found.clone(shape=[1 if d is None else d + 1 for d in found.shape])]

    monkeypatch.setitem(shape_rules._RULES, name, wrong)
    calls = [c for c in rule_cases.every_call() if c[0].name == name]
    assert calls
    assert rule_cases.run(SEED, changes=2, calls=calls)[1]


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("as_strided_", ([2], [1])),
        ("detach_", ()),
        ("resize_", ([2, 1],)),
        ("squeeze_", ()),
        ("squeeze_.dim", (0,)),
        ("squeeze_.dims", ([0, 1],)),
        ("swapaxes_", (0, 1)),
        ("swapdims_", (0, -1)),
        ("t_", ()),
        ("transpose_", (-1, 0)),
        ("unsqueeze_", (-1,)),
    ],
)
def test_what_changes_its_shape_in_place_has_the_type_of_what_it_becomes(name, args):
    assert "inplace_view" in native(name).function.tags
    x = TensorType("float32", (None, 3))("x")
    y = native(name)(x, *args)
    f = pb.function(x, y)
    for n in (0, 1, 2, 5):
        if name in ("as_strided_", "resize_") and not n:
            continue  # there is no memory, or nothing in it
        given = torch.arange(3.0 * n).reshape(n, 3)
        expected = native(name).torch_op(given.clone(), *args)
        assert y.type.shape is None or y.type.is_valid_value(expected)
        assert torch.equal(f(given), expected)


@pytest.mark.parametrize(
    "name", ["sum", "mean", "prod", "max", "min", "all", "any", "median", "nanmedian"]
)
def test_a_reduction_of_all_has_no_dimensions_whatever_it_is_of(name):
    shapeless = TensorType("float32", (None, None))("x").squeeze()
    assert shapeless.type.shape is None
    assert getattr(ops, name)(shapeless).type.shape == ()
    assert ops.sum(shapeless, 0).type.shape is None


def test_a_loss_that_is_a_mean_has_no_dimensions():
    shapeless = TensorType("float32", (None, None))("x").squeeze()
    assert [ops.mse_loss(shapeless, 1 - shapeless, r).type.shape for r in (0, 1, 2)] == [
        None,
        (),
        (),
    ]


def test_masked_scatter_has_the_sizes_of_its_mask():
    x, source = TensorType("float32", (None, 1))("x"), TensorType("float32", (None,))("source")
    y = ops.masked_scatter(x, TensorType("bool", (None, 4))("mask"), source)
    assert y.type.shape == (None, 4)
    fixed = TensorType("float32", (5,))("x"), TensorType("bool", (5, 5))("mask"), source
    assert ops.masked_scatter(*fixed).type.shape == (5, 5)


@pytest.mark.parametrize("shape", [(None,), (None, None), (None, 3, 2), (4, None)])
@pytest.mark.parametrize("dim", [None, 0, -1])
@pytest.mark.parametrize("wanted", [(False, False), (True, False), (False, True), (True, True)])
def test_unique_consecutive_counts_dimensions_from_the_end(shape, dim, wanted):
    results = ops.unique_consecutive(TensorType("float32", shape)("x"), *wanted, dim)
    for n in (0, 1, 2, 5):
        x = torch.ones([n if d is None else d for d in shape])
        if dim is not None and 0 in x.shape[:dim] + x.shape[dim + 1 if dim >= 0 else x.ndim :]:
            continue
        found = torch.ops.aten.unique_consecutive(x, *wanted, dim)
        for r, t in zip(results, found, strict=True):
            assert r.type.is_valid_value(t), (r.type, t.shape)


@pytest.mark.parametrize(
    ("q", "k"),
    [
        ((1, None, 8), (4, 5, 8)),
        ((1, 3, 8), (4, None, 8)),
        ((1, 2, 3, None), (4, 2, 5, None)),
        ((None, 2, 3, 8), (4, 2, None, 8)),
        ((None, None, None), (None, None, None, None)),
    ],
)
def test_attention_without_elements_is_not_broadcast(q, k):
    types = [TensorType("float32", s) for s in (q, k, k)]
    y = ops.scaled_dot_product_attention(*(t() for t in types))
    for n in (0, 1, 3):
        given = [torch.ones([n if d is None else d for d in t.shape]) for t in types]
        try:
            expected = torch.nn.functional.scaled_dot_product_attention(*given)
        except RuntimeError:
            continue
        assert y.type.is_valid_value(expected), (n, y.type, expected.shape)


@pytest.mark.parametrize("name", ["linalg_solve", "linalg_solve_ex", "_linalg_solve_ex"])
@pytest.mark.parametrize("a", [(None, None, None), (None, 3, 3), (2, 3, 3), (2, 3, None)])
@pytest.mark.parametrize("b", [(None, None), (None, 3), (3, None), (2, None)])
def test_whether_a_system_is_solved_for_vectors_may_depend_on_sizes(name, a, b):
    matrices, right = TensorType("float32", a), TensorType("float32", b)
    results = native(name)(matrices("a"), right("b"))
    results = results if isinstance(results, (list, tuple)) else [results]
    for b in ((2, 3), (3, 3), (3, 4)):
        given = torch.eye(3).expand(2, 3, 3), torch.ones(b)
        if not right.is_valid_value(given[1]):
            continue
        for r, t in zip(results, database.flat(native(name).torch_op(*given)), strict=True):
            assert r.type.is_valid_value(t), (r.type, t.shape)


def test_a_window_of_avg_pool3d_is_refused_where_only_padding_makes_it_fit():
    x = TensorType("float32", (None, 3, 3, 4, 4))("x")
    with pytest.raises(pb.BridgeTypeError, match="smaller than kernel size"):
        ops.avg_pool3d(x, [4, 2, 2], [2, 2, 2], [1, 0, 0])
    assert ops.avg_pool3d(x, [3, 2, 2], [2, 2, 2], [1, 0, 0]).type.shape == (None, 3, 2, 2, 2)


@pytest.mark.parametrize(("x", "target"), [((), ()), ((3,), (3,)), ((1,), ()), ((2, 3), (2, 3))])
def test_the_loss_of_one_row_has_no_dimensions(x, target):
    given = torch.zeros(x), torch.zeros(target, dtype=torch.int64)
    for sizes in ((x, target), ((None,) * len(x), (None,) * len(target))):
        made = [TensorType(d, s)() for d, s in zip(("float32", "int64"), sizes, strict=True)]
        y = ops.multilabel_margin_loss(*made, 0)
        expected = torch.ops.aten.multilabel_margin_loss(*given, 0)
        assert y.type.is_valid_value(expected), (y.type, expected.shape)
        y, places = ops.multilabel_margin_loss_forward(*made, 0)
        assert places.type.is_valid_value(torch.zeros(target))


@pytest.mark.parametrize("driver", [None, "gels", "gelsy", "gelsd", "gelss"])
@pytest.mark.parametrize("ndim", [2, 3])
def test_whether_there_are_residuals_of_a_batch_depends_on_sizes(driver, ndim):
    a, b = (TensorType("float32", (None,) * ndim)(name) for name in "ab")
    results = ops.linalg_lstsq(a, b, driver=driver)
    for m, n in ((2, 2), (4, 2), (2, 4)):
        given = torch.randn(3, m, n)[(0,) * (3 - ndim)], torch.randn(3, m, 2)[(0,) * (3 - ndim)]
        expected = torch.ops.aten.linalg_lstsq(*given, driver=driver)
        for r, t in zip(results, expected, strict=True):
            assert r.type.is_valid_value(t), (r.type, t.shape)


@pytest.mark.parametrize("mode", ["c", "py"])
def test_the_mask_of_a_dropout_is_of_truth_values_where_there_are_no_elements(mode):
    x = TensorType("float32", (None,))("x")
    y, mask = ops.native_dropout(x, 0.5, True)
    outputs = [y, mask, ops.bitwise_not(mask) * 2, pb.grad(y.sum(), x)]
    f = pb.function(x, outputs, mode=mode)
    for n in (0, 3):
        found = f(torch.ones(n))
        assert all(v.type.is_valid_value(t) for v, t in zip(outputs, found, strict=True)), n


@pytest.mark.parametrize("mode", ["c", "py"])
def test_a_count_with_weights_is_of_their_dtype_where_there_is_nothing_to_count(mode):
    places, weights = TensorType("int64", (None,))("places"), TensorType("float64", (None,))("w")
    y = ops.bincount(places, weights, 2)
    f = pb.function([places, weights], y, mode=mode)
    for n in (0, 3):
        found = f(torch.zeros(n, dtype=torch.int64), torch.full((n,), 0.5, dtype=torch.float64))
        assert torch.equal(found, torch.tensor([0.5 * n, 0.0], dtype=torch.float64))
        assert y.type.is_valid_value(found)


@pytest.mark.parametrize("mode", ["c", "py"])
@pytest.mark.parametrize("wrong", [("float32", (None,)), ("int64", (None, None))])
def test_a_result_that_is_not_as_typed_is_an_error(mode, wrong):
    x = TensorType("float32", (None, None))("x")
    function = native("cov")
    types = (TensorType(*wrong),), ()
    node = function.apply(function.bind([x], {}), types)
    f = pb.function(x, node.outputs[0], mode=mode)
    with pytest.raises(TypeError, match="float32"):
        f(torch.ones(2, 3))


def test_a_number_of_dimensions_is_not_that_of_one_way_alone():
    def call(symbol):
        x = torch.empty([symbol()])
        return [x.squeeze(0), x.unsqueeze(0)[0]]

    assert [sizes for _, sizes in prove(call)] == [None, (None,)]


@pytest.mark.parametrize(
    "name", ["softmax.int", "log_softmax.int", "sort", "sort.stable", "argsort"]
)
@pytest.mark.parametrize("shape", [(), (None,), (2, None)])
@pytest.mark.parametrize("dim", [-3, -2, -1, 0, 1, 2, 7])
def test_a_dimension_that_there_is_not_is_refused(name, shape, dim):
    x = TensorType("float32", shape)("x")
    function = native(name)
    given = {"dim": dim, **({"stable": True} if name == "sort.stable" else {})}
    try:
        function.torch_op(torch.ones([d or 3 for d in shape]), **given)
    except IndexError as e:
        with pytest.raises(pb.BridgeTypeError, match=re.escape(str(e))):
            function(x, **given)
    else:
        function(x, **given)


@pytest.mark.parametrize("mode", ["c", "py"])
def test_a_tensor_of_another_device_is_refused_by_its_device(mode):
    x = TensorType("float32", (None,))("x")
    with pytest.raises(TypeError, match=r"shape \(2,\) on meta"):
        pb.function(x, x * 2, mode=mode)(torch.ones(2, device="meta"))
