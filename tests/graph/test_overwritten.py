"""Buffers and arguments that a call overwrites: in Python, and as exported packages have them."""

from __future__ import annotations

import collections
from typing import Any

import models as model_zoo
import pytest
import torch
from package_form import PackageForm
from torch import nn
from torch.utils import _pytree

import pytorch_bridge as pb
from pytorch_bridge.errors import BridgeTypeError

FORMS: dict[str, Any] = {}


def form(f: Any) -> Any:
    FORMS[f.__name__] = f
    return f


@form
def a_row(m, x, i):
    m.a.index_copy_(0, i, x[:1])
    return m.a.sum(0) + x


@form
def a_row_and_the_result(m, x, i):
    m.a.index_copy_(0, i, x[:1])
    return m.a


@form
def rows_twice(m, x, i):
    m.a.index_copy_(0, i, x[:1])
    m.a.index_copy_(0, i + 1, x[1:2])
    return m.a.sum()


@form
def a_row_and_a_function(m, x, i):
    m.a.index_copy_(0, i, x[:1])
    m.a.mul_(2)
    return m.a.sum()


@form
def a_function_and_a_row(m, x, i):
    m.a.add_(1)
    m.a.index_copy_(0, i, x[:1])
    return m.a.clone()


@form
def a_row_of_a_part(m, x, i):
    m.a[:, :2].index_copy_(0, i, x[:1, :2])
    return m.a.sum(0) + x


@form
def a_row_and_what_was_there(m, x, i):
    before = m.a[0] * 2
    m.a.index_copy_(0, i, x[:1])
    return before * x, m.a[0]


@form
def all_of_it(m, x, i):
    before = m.a * 2
    m.a.copy_(x * 3)
    return before + m.a


@form
def all_of_it_transposed(m, x, i):
    m.a.t().copy_(x.t())
    return m.a * 1


@form
def one_number(m, x, i):
    y = m.a + x
    m.a.fill_(2.0)
    m.b.zero_()
    return y


@form
def scattered(m, x, i):
    m.a.scatter_(0, i.expand(1, 3), x[:1])
    m.b.scatter_add_(0, i.expand(1, 3), x[:1])
    return m.a * m.b


@form
def indexed(m, x, i):
    m.a[i] = x[:1]
    m.b.index_add_(0, i, x[:1])
    return m.a * m.b


@form
def masked(m, x, i):
    m.a.masked_fill_(x > 0, 1.0)
    m.b.masked_scatter_(x > 0, x)
    return m.a * m.b


@form
def assigned(m, x, i):
    m.a = x * 2
    return m.a


@form
def rolled(m, x, i):
    m.a = torch.cat([m.a[1:], x[:1]])
    return m.a.mean(0)


@form
def swapped(m, x, i):
    kept = m.a.clone()
    m.a.copy_(m.b)
    m.b.copy_(kept)
    return m.a + x


@form
def swapped_names(m, x, i):
    m.a, m.b = m.b, m.a
    return m.a + x


@form
def shifted(m, x, i):
    m.a.copy_(m.b)
    m.b.copy_(x)
    return m.a.sum() + x


@form
def one_value_for_both(m, x, i):
    v = x * 2
    m.a, m.b = v, v
    return v


@form
def rows_of_each_other(m, x, i):
    m.a.index_copy_(0, i, m.b[:1])
    m.b.index_copy_(0, i, x[:1])
    return m.a + m.b


@form
def a_buffer_and_an_argument(m, x, i):
    m.a.index_copy_(0, i, x[:1])
    x.copy_(m.a)
    return m.a.sum() + x


@form
def an_argument_and_the_result(m, x, i):
    x.index_copy_(0, i, m.a[:1])
    m.a.copy_(x)
    return x


@form
def through_a_conversion_to_what_it_is(m, x, i):
    m.a.copy_(x)
    m.a.to(torch.float32).add_(1)
    return m.a.to("cpu", torch.float32) * 2


class Buffers(nn.Module):
    def __init__(self, forward: Any) -> None:
        super().__init__()
        self.body = forward
        for name in "ab":
            sign = 1 if name == "a" else -1
            self.register_buffer(name, sign * torch.arange(12.0).reshape(4, 3))

    def forward(self, x, i):
        return self.body(self, x, i)


@pytest.mark.parametrize("name", FORMS)
def test_overwritten(name):
    generator = torch.Generator().manual_seed(0)
    example = torch.randn(4, 3, generator=generator), torch.tensor([1])
    # Not strict, torch 2.15 loses what names that are swapped are.
    program = torch.export.export(Buffers(FORMS[name]), example, strict="names" in name)
    theirs, package = program.module(), PackageForm(program)
    model = pb.from_exported(program)
    compiled = model.compile("py")
    for k in range(3):
        x, i = torch.randn(4, 3, generator=generator), torch.tensor([k])
        given = [x.clone() for _ in range(3)]
        want = _pytree.tree_leaves(theirs(given[0], i))
        kept = dict(theirs.named_buffers())
        for got in (_pytree.tree_leaves(compiled(given[1], i)), package(given[2], i)):
            assert all(map(torch.equal, got, want))
        for values in (model.state_values, package.state):
            assert all(torch.equal(values.get(n, kept[n]), kept[n]) for n in kept)
        assert torch.equal(given[1], given[0])
        assert torch.equal(given[2], given[0])


def test_a_row_of_a_cache_is_written_where_it_is():
    program = torch.export.export(Buffers(a_row), (torch.ones(4, 3), torch.tensor([1])))
    ops = PackageForm(program).ops()
    assert "index_copy_" in ops
    assert not any("copy" in name.lower() for name in ops - {"index_copy_"})


def test_a_decoder_with_a_cache():
    """test_export_go.py and test_export_model.py run it in Go."""
    program = model_zoo.decoder()
    model, package = pb.from_exported(program), PackageForm(program)
    compiled = model.compile()
    token = other = torch.tensor([3])
    found = []
    for _ in range(8):
        token, other = compiled(token), package(other)[0]
        found.append(token.item())
        assert torch.equal(token, other)
    assert found == model_zoo.decoded(8)


class Cache:
    """Keys and values that grow, in a class whose constructor looks at tensors, as that of
    transformers does."""

    def __init__(self, pairs: Any) -> None:
        pairs = list(pairs)
        self.keys = [torch.cat([k.new_empty(0, *k.shape[1:]), k]) for k, _ in pairs]
        self.values = [v for _, v in pairs]


def register_cache() -> None:
    def parts(cache):
        return {"keys": cache.keys, "values": cache.values}

    def flatten(cache):
        values, keys = _pytree._dict_flatten(parts(cache))
        return values, [keys, len(cache.keys)]

    def flatten_with_keys(cache):
        values, keys = _pytree._dict_flatten_with_keys(parts(cache))
        return values, [keys, len(cache.keys)]

    def unflatten(values, context):
        found = _pytree._dict_unflatten(values, context[0])
        return Cache(zip(found["keys"], found["values"], strict=True))

    _pytree.register_pytree_node(
        Cache,
        flatten,
        unflatten,
        serialized_type_name="test_overwritten.Cache",
        flatten_with_keys_fn=flatten_with_keys,
    )
    torch.fx._pytree.register_pytree_flatten_spec(
        Cache, lambda cache, spec: [parts(cache)[k] for k in spec.context[0]]
    )


register_cache()


class Attends(nn.Module):
    def forward(self, x, cache):
        pairs = [
            (torch.cat([k, x + i]), torch.cat([v, x * 2]))
            for i, (k, v) in enumerate(zip(cache.keys, cache.values, strict=True))
        ]
        scores = [torch.softmax(x @ k.t(), -1) @ v for k, v in pairs]
        return torch.stack(scores).sum(0), Cache(pairs)


def test_an_object_of_tensors_is_an_argument():
    def cache(n):
        generator = torch.Generator().manual_seed(n)
        return Cache([[torch.randn(n, 3, generator=generator) for _ in range(2)] for _ in range(2)])

    rows = torch.export.Dim.AUTO
    shapes = (None, [[{0: rows}] * 2] * 2)
    program = torch.export.export(
        Attends(), (torch.ones(1, 3), cache(4)), dynamic_shapes=shapes, strict=False
    )
    assert program._guards_code  # they speak of the object's parts
    model = pb.from_exported(program)
    x, theirs = torch.randn(1, 3), cache(5)
    ours = cache(5)
    for _ in range(3):
        got, ours = model(x, ours)
        want, theirs = program.module()(x, theirs)
        assert type(ours) is Cache
        assert torch.equal(got, want)
        assert all(map(torch.equal, ours.keys + ours.values, theirs.keys + theirs.values))
    with pytest.raises(BridgeTypeError, match="argument cache must be"):
        model(x, [ours.keys, ours.values])
    odd = cache(5)
    odd.keys[1] = odd.keys[1][0]
    with pytest.raises(BridgeTypeError, match="cache_keys_1"):
        model(x, odd)


class Keyed(nn.Module):
    def forward(self, d, *, e):
        return d["a"] - 2 * d["b"]["x"] + e["p"] * 3 - e["q"]


def test_keys_of_a_dict_come_in_any_order():
    a, b = torch.ones(2), torch.full((2,), 5.0)
    program = torch.export.export(
        Keyed(), ({"a": a, "b": {"x": b, "y": a}},), {"e": {"p": a, "q": b}}
    )
    model = pb.from_exported(program)
    want = model({"a": a, "b": {"x": b, "y": a}}, e={"p": a, "q": b})
    turned = {"b": {"y": a, "x": b}, "a": a}
    for d in (turned, collections.OrderedDict(turned)):
        assert torch.equal(model(d, e={"q": b, "p": a}), want)
    for d in (
        {"b": {"y": a, "x": b}, "c": a},
        {**turned, "c": a},
        {**turned, "a": [a]},
        {**turned, "b": a},
        [a, turned["b"]],
    ):
        with pytest.raises(BridgeTypeError, match="argument d must be"):
            model(d, e={"q": b, "p": a})
