"""Traced functions and Python: what a value that is not there yet answers, and what is outside."""

from __future__ import annotations

import array
import collections
import contextvars
import copy
import ctypes
import dataclasses
import datetime
import enum
import functools
import itertools
import json
import logging
import math
import operator
import os
import pathlib
import random
import sys
import threading
import time
import types as python_types
import uuid
import weakref
from collections.abc import Callable, Hashable, Iterable, Sized

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pytorch_bridge.extending import TypingError, jit, overload, types
from pytorch_bridge.extending.outside import state
from pytorch_bridge.extending.rewriting import within
from pytorch_bridge.testing.gotests import ensure_library

ensure_library()

X = torch.arange(3.0)


def seen(f, *args):
    """The results of a jitted function at its first and its second call."""
    g = jit(f)
    return g(*args), g(*args)


# What a value answers -----------------------------------------------------------------------------


def asked(x, n, f, b, t):
    """Questions whose answers do not depend on the values, but for sizes."""
    size = t.shape[0]
    return (
        [callable(v) for v in (x, n, f, b)],
        [hasattr(v, "__len__") for v in (x, n, f)],
        [hasattr(v, name) for v in (x, n) for name in ("__iter__", "__getitem__", "__contains__")],
        [isinstance(v, Iterable) for v in (x, n, f)],
        [isinstance(v, (Sized, Callable)) for v in (x, n, f)],
        [isinstance(v, Hashable) for v in (x, n)],
        [isinstance(v, int | float) for v in (n, f, b, x)],
        [isinstance(v, (str, torch.Tensor)) for v in (x, n)],
        [type(x) is torch.Tensor, type(n) is int, type(f) is float, type(b) is bool],
        [issubclass(type(v), int) for v in (n, f, b)],
        size in {2, 4},
        size in (2, 4),
        {2: "two"}.get(size, "other"),
        {size: 1}[2],
        len({*t.shape}),
        len(set(t.shape)),
        sorted(t.shape),
        f"{size} and {size:>3}",
        str(size) + repr(size),
        "%d" % size,  # noqa: UP031
        [0] * size,
        size * "ab",
        list(range(size)),
        max(t.shape),
        n == "a",
        n is None,
        x.is_cuda,
        x.is_cpu,
        copy.copy(n) == n,
    )


def test_a_value_answers_as_pythons_own_does():
    args = (X, 3, 0.5, True, torch.zeros(2, 5))
    expected = asked(*args)
    for found in seen(asked, *args):
        assert str(found) == str(expected)


class Held:
    """An object that a traced function finds."""


HELD = Held()
LOG: list = []
COUNT = torch.zeros(3)
Pair = collections.namedtuple("Pair", "a b")


def kept_in_an_object(x):
    HELD.last = x * 2
    return x


def kept_in_a_list(x):
    LOG.append(x + 1)
    return x


def kept_in_a_class(x):
    Held.last = x
    return x


def swallowed(n):
    try:
        return {1: 2}[n]
    except Exception:
        return -1


def swallowed_truth(n):
    try:
        return 1 if n > 2 else 2
    except TypeError:
        return -1


def written_by_name(x):
    for t in [COUNT]:
        torch.ops.aten.add_.Tensor(t, 1)
    return x


def autocast(x):
    with torch.autocast("cpu", torch.bfloat16):
        return x @ x


@functools.lru_cache
def remembered(n):
    return n + 1


REFUSED = {
    "text": (lambda n: str(n), r"str\(\) needs the value of <int64 n>"),
    "f-string": (lambda n: f"{n}", "text of a value"),
    "format": (lambda n: f"{n:>5}", "text of a value"),
    "repr in an f-string": (lambda n: f"{n!r}", "text of a value"),
    "percent": (lambda n: "%s" % n, "text of a value"),  # noqa: UP031
    "in a list": (lambda n: repr([n]), r"repr\(\) needs the value"),
    "print": (lambda n: print(n), r"print\(\) needs the value"),
    "join": (lambda n: "".join(map(str, [n])), "text of a value"),
    "hash": (lambda n: hash(n), "a hash"),
    "set": (lambda n: len({n, 3}), "a hash"),
    "in a set": (lambda n: n in {1, 3}, "a hash"),
    "key": (lambda n: {1: 2}.get(n), "a hash"),
    "a cache": (lambda n: remembered(n), "a hash"),
    "truth": (lambda n: 1 if n else 2, "truth of <int64 n> is not known"),
    "in a tuple": (lambda n: n in (1, 3), "truth of"),
    "sorted": (lambda n: sorted([n, 2]), "truth of"),
    "range": (lambda n: list(range(n)), "needs the value"),
    "times a list": (lambda n: [0] * n, "needs the value"),
    "index": (lambda n: [1, 2, 3][n], "needs the value"),
    "numpy": (lambda n: np.array([n]), "no implementation for values that are traced"),
    "gamma": (lambda n: math.gamma(n), "gamma has no implementation"),
    "modulus": (lambda n: pow(n, 2, 5), "modulus"),
    "digits": (lambda n: round(n, 1), r"round\(\)"),
    "swallowed": (swallowed, "a hash"),
    "swallowed truth": (swallowed_truth, "truth of"),
    "leaf": (lambda x: x.is_leaf, "has no attribute 'is_leaf': it is autograd's"),
    "retains": (lambda x: x.retains_grad, "has no attribute 'retains_grad'"),
    "grad_fn": (lambda x: x.grad_fn, "has no attribute 'grad_fn'"),
    "of a result": (lambda x: (x * 2).requires_grad, "known of the function's arguments only"),
    "parameter": (lambda x: isinstance(x, torch.nn.Parameter), "Parameter"),
    "object": (kept_in_an_object, "leaves .* in the attribute 'last' of a Held"),
    "list": (kept_in_a_list, "leaves .* in a list"),
    "class": (kept_in_a_class, "leaves .*'last'"),
    "closure": (lambda x: (lambda y: lambda: y)(x + 1), "a variable that a function encloses"),
    "set of results": (lambda x: {x + 1}, "leaves .* in a set"),
    "generator": (lambda x: (v for v in [x]), "leaves"),
    "array": (lambda x: Held() if setattr(HELD, "again", x) else x, "'again'"),
    "tensor": (lambda x: x + COUNT.add_(1), "add_ writes into a tensor"),
    "by another name": (written_by_name, "writes into a tensor"),
    "statistics": (lambda x: F.batch_norm(x.expand(2, 3), MEAN, MEAN, training=True), "writes"),
    "eager write": (
        lambda x: NORM(x.expand(2, 3)),
        "writes into a tensor from outside",
    ),
    "random": (lambda x: x + random.random(), "gives another value at each call"),
    "numpy's random": (lambda x: x + np.random.rand(), "gives another value at each call"),
    "a generator's": (lambda x: x + np.random.default_rng(0).random(), "another value at each"),
    "hidden random": (lambda x: x + _rolls(), "drew random numbers while it was traced"),
    "clock": (lambda x: x + time.time(), "gives another value at each call"),
    "date": (lambda x: x + datetime.datetime.now().year, "gives another value at each call"),
    "uuid": (lambda x: (x, uuid.uuid4()), "gives another value at each call"),
    "iterator": (lambda x: x + next(TICKS), "TICKS is an iterator from outside"),
    "autocast": (autocast, "autocast has no effect in a traced function"),
}
TICKS = itertools.count()
MEAN = torch.ones(3)
NORM = torch.nn.BatchNorm1d(3)
_rolls = functools.partial(random.Random.random, random._inst)
NUMBERS = {"n"}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_value_answers_is_refused_with_the_line(case):
    f, why = REFUSED[case]
    (name,) = f.__code__.co_varnames[:1]
    with pytest.raises(TypingError, match=why) as e:
        jit(f)(3 if name == "n" else X)
    if "needs the value" in str(e.value) or "truth" in str(e.value):
        assert __file__ in str(e.value)
    LOG.clear()
    vars(HELD).clear()
    assert COUNT.tolist() == [0, 0, 0]


def test_results_in_pythons_containers():
    def f(x, n):
        return (
            Pair(x, n),
            collections.OrderedDict(a=x + 1),
            collections.deque([x + n], maxlen=3),
            slice(n, None),
            {"k": [x, (n, "text")]},
            torch.max(x, 0),
        )

    expected = f(X, 2)
    for found in seen(f, X, 2):
        assert str(found) == str(expected)
        assert [type(v) for v in found] == [type(v) for v in expected]
        assert found[2].maxlen == 3


def test_named_tuples_sizes_and_any_number_of_arguments():
    def f(p, s, *more, k=2):
        return p._replace(a=p.a.reshape(s) * k), sum(more), p.b

    args = (Pair(X, 2), torch.Size([3, 1]), 4, 0.5)
    for found in seen(f, *args):
        assert str(found) == str(f(*args))
    assert jit(lambda *xs: len(xs))() == 0
    with pytest.raises(TypeError, match=r"takes no \*\*kw: name the parameters"):
        jit(lambda **kw: kw)


class Kind(enum.IntEnum):
    ONE = 1
    TWO = 2


class Word(str, enum.Enum):
    A = "a"


class Odd(int):
    def __add__(self, other):
        return 100


def test_members_of_enums_and_ones_own_numbers_stay_what_they_are():
    f = jit(lambda e: (e is Kind.ONE, e.name, e + 1))
    assert f(Kind.ONE) == (True, "ONE", 2)
    assert f(Kind.TWO) == (False, "TWO", 3)
    assert f.function(Kind.TWO) == f(Kind.TWO)
    assert jit(lambda e: (e is Word.A, e.name))(Word.A) == (True, "A")
    assert jit(lambda n: n + 1)(Odd(3)) == 100


def test_integers_of_64_bits_come_in_any_order():
    for order in ((2**63, -1, 2**63), (-1, 2**64 - 1, 5)):
        f = jit(lambda n: n)
        assert [f(v) for v in order] == list(order)


def test_refused_branches_are_told_by_in_too():
    assert within(3, (1, 3))
    f = jit(lambda x, n: (2 in x, 7 in x, n in x, 3 in [1, 3], "a" in {"a": 1}))
    assert f(X, 1) == (True, False, True, True, True)


# What is outside ----------------------------------------------------------------------------------

K = 3
TABLE = {"a": [1.0]}
W = torch.ones(3)


class Scales:
    SCALE = 2


@dataclasses.dataclass(frozen=True)
class Config:
    n: object


class Settings:
    def __init__(self):
        self.k, self.deep = 2, {"a": [1]}


def changes():
    """Pairs of a function and of what changes outside between its calls."""
    cell = 1
    settings = Settings()
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).eval()
    linear = torch.nn.Linear(3, 3)
    deque = collections.deque([1.0], maxlen=1)
    array = np.ones(3, dtype=np.float32)
    simple = python_types.SimpleNamespace(k=1)

    def enclosed(x):
        return x * cell

    def enclose():
        nonlocal cell
        cell = 1.5

    def stepped():
        with torch.no_grad():
            linear.weight.add_(1)

    def other_statistics():
        module[1].running_mean = torch.ones(2)

    def helper(x):
        return x * K

    return [
        (lambda x: helper(x), lambda: globals().update(K=4), lambda: globals().update(K=3)),
        (lambda x: x * TABLE["a"][0], lambda: TABLE["a"].append(0) or TABLE.update(a=[2.0])),
        (lambda x: x * Scales.SCALE, lambda: setattr(Scales, "SCALE", 5)),
        (lambda x: x * Scales().SCALE, lambda: setattr(Scales, "SCALE", 6)),
        (enclosed, enclose),
        (lambda x: x * settings.k, lambda: setattr(settings, "k", 2.5)),
        (lambda x: x + settings.deep["a"][0], lambda: settings.deep["a"].insert(0, 7)),
        (lambda x: x + len(LOG), lambda: LOG.append(1)),
        (lambda x: x + deque[0], lambda: deque.append(3.0)),
        (lambda x: x + float(array[0]), lambda: array.fill(2)),
        (lambda x: x * simple.k, lambda: setattr(simple, "k", 4)),
        (lambda x: x + float(os.environ.get("TOLD", 1)), lambda: os.environ.update(TOLD="5")),
        (lambda x: x + W, lambda: W.add_(1)),
        (lambda x: 2.0 * W + x, lambda: W.data.add_(1)),
        (lambda x: x.sum() + W, lambda: setattr(W, "data", torch.full((1,), 7.0))),
        (lambda x: x + int(W.sum().item()), lambda: W.add_(1)),
        (lambda x: linear(x), stepped),
        (lambda x: linear(x), lambda: setattr(linear, "bias", None)),
        (lambda x: module(x.expand(2, 3)), other_statistics),
        (lambda x: module(x.expand(2, 3)), lambda: module.append(torch.nn.ReLU())),
        (lambda x: x + torch.ones(3), lambda: torch.set_default_dtype(torch.float64)),
        (lambda x: x * float(os.getenv("TOLD", "2")), lambda: os.environ.update(TOLD="6")),
    ]


N_CHANGES = 22


@pytest.mark.parametrize("case", range(N_CHANGES))
def test_what_changes_outside_is_seen(case):
    assert len(changes()) == N_CHANGES
    f, change, *back = changes()[case]
    g = jit(f)
    with torch.no_grad():
        try:
            assert torch.equal(g(X), f(X))
            n = len(g.specializations)
            change()
            for _ in range(2):
                assert torch.equal(g(X), f(X))
                assert g(X).dtype == f(X).dtype
            for again in back:
                again()
                assert torch.equal(g(X), f(X))
            assert len(g.specializations) == n  # one for the types; the old one is replaced
        finally:
            torch.set_default_dtype(torch.float32)
            os.environ.pop("TOLD", None)
            LOG.clear()
            W.data = torch.ones(3)


def test_states_of_what_python_brings():
    variable, local = contextvars.ContextVar("variable", default=1), threading.local()
    settings, numbers, c = Settings(), array.array("d", [1.0]), (ctypes.c_double * 1)(1.0)
    table, local.k = {"a": 1}, 1
    for seen, change in (
        (variable, lambda: variable.set(2)),
        (local, lambda: setattr(local, "k", 2)),
        (weakref.ref(settings), lambda: setattr(settings, "k", 3)),
        (numbers, lambda: numbers.append(2.0)),
        (c, lambda: c.__setitem__(0, 2.0)),
        (python_types.MappingProxyType(table), lambda: table.update(a=2)),
        (table.values(), lambda: table.update(a=3)),
        (Scales, lambda: setattr(Scales, "SCALE", 11)),
    ):
        before = state(seen)
        assert state(seen) == before
        change()
        assert state(seen) != before, seen


class Scaled:
    def __init__(self, k):
        self.k = k

    def times(self, x):
        self.calls = getattr(self, "calls", 0) + 1
        return x * self.k + self.calls

    @classmethod
    def by_class(cls, x):
        return x * cls.K

    def __call__(self, x):
        return x + self.k

    K = 2


def test_what_is_jitted_and_is_no_function_is_looked_at_too():
    def both(scaled, f, change, *args):
        g = jit(f, mode="py")
        first = g(*args)
        scaled.calls = 0
        assert first == f(*args)
        change()
        scaled.calls = 0
        found = g(*args)
        scaled.calls = 0
        assert found == f(*args) != first
        scaled.K = Scaled.K = 2

    for made in (
        lambda s: s.times,
        lambda s: s,
        lambda s: functools.partial(lambda o, x: x * o.k, s),
    ):
        scaled = Scaled(2.0)
        both(scaled, made(scaled), lambda s=scaled: setattr(s, "k", 3.0), 1.5)
    both(Scaled(1), Scaled.by_class, lambda: setattr(Scaled, "K", 7), 2)
    scaled, g = Scaled(1), None
    g = jit(scaled.times, mode="py")
    assert [g(1), g(1), g(1)] == [2, 3, 4]  # what Python gives, whose counter goes up
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Dropout(0.5)).eval()
    g = jit(model, mode="py")
    assert torch.equal(g(X), model(X))
    model[0].weight = torch.nn.Parameter(torch.ones(2, 3))
    assert torch.equal(g(X), model(X))


class Computing:
    """Attributes that are in no state of the object."""

    def __getattr__(self, name):
        if name == "dynamic":
            return TABLE["k"]
        raise AttributeError(name)

    @property
    def computed(self):
        return TABLE["k"]


def test_attributes_that_a_class_computes_are_looked_at():
    o, module, cell = Computing(), python_types.ModuleType("a_module_of_the_test"), [0]
    sys.modules[module.__name__] = module

    def imports(x):
        import a_module_of_the_test

        return x * a_module_of_the_test.k

    class Doubled:
        def __init__(self, k):
            self.k = k

        @property
        def twice(self):
            return 2 * self.k

    def inside(x):
        a, b = Doubled(x), Doubled(3)
        before = b.twice
        b.k = 5
        return a.twice + b.twice + before

    functions = (
        lambda x: x * o.computed,
        lambda x: x * o.dynamic,
        lambda x: x * getattr(module, "k"),  # noqa: B009
        lambda x: x * sys.modules[module.__name__].k,
        imports,
        inside,
    )
    compiled = [jit(f, mode="py") for f in functions]
    try:
        for k in (1, 2, 3):
            TABLE["k"] = module.k = cell[0] = k
            assert [g(1) for g in compiled] == [f(1) for f in functions]
        assert len(compiled[-1].specializations) == 1
        assert not next(iter(compiled[-1].specializations.values())).elsewhere
    finally:
        del TABLE["k"], sys.modules[module.__name__]


def numbers(n, f, x):
    return (
        *(torch.tensor(n), torch.tensor([n, f]), torch.tensor([[n, 1], [2, n]]), torch.tensor(f)),
        *(torch.tensor([n > 2, False]), torch.tensor([n, True]), torch.tensor(x.shape)),
        *(
            torch.as_tensor([n, f], dtype=torch.float64),
            torch.as_tensor(x),
            torch.as_tensor(x, dtype=torch.int8),
        ),
        *(copy.copy(x), copy.deepcopy([x])[0]),
    )


def test_tensors_of_numbers():
    f = jit(numbers)
    for given in ((3, 2.5, X), (2**53 + 1, -0.0, X)):
        for a, b in zip(f(*given), numbers(*given), strict=True):
            assert a.dtype == b.dtype
            assert torch.equal(a, b)
    with pytest.raises(TypingError, match="the lists in it differ"):
        jit(lambda n: torch.tensor([[n], [n, n]]))(1)


def shapes(x):
    s, t = x.shape, x.size()
    return (
        *(
            s,
            t,
            s[1:],
            operator.add(s[:-1], (3, 1)),
            (1, *s),
            s.numel(),
            math.prod(s),
            type(s) is torch.Size,
        ),
        *(isinstance(s, torch.Size), type(s[:0]), x.reshape(s[0] * s[1]), x.new_zeros(s), s == t),
        *(torch.ones(s), x.expand(s), len(s), s == (2, 3), s[0] in s),
    )


def test_shapes_are_sizes():
    f = jit(lambda x: shapes(x)[:13] + shapes(x)[13:])
    for x in (torch.ones(2, 3), torch.ones(4, 5)):
        for a, b in zip(f(x), shapes(x), strict=True):
            assert type(a) is type(b)
            assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
    open_ = jit(lambda x: (x.shape, x.shape.numel(), isinstance(x.shape, torch.Size)), mode="py")
    for x in (torch.ones(2, 3), torch.ones(4, 5)):
        assert open_(x) == (x.shape, x.numel(), True)
        assert type(open_(x)[0]) is torch.Size
    assert len(open_.specializations) == 1


class Node:
    def __init__(self, parent, value):
        self.parent, self.value, self.children = parent, value, []
        if parent is not None:
            parent.children.append(self)


SHARED = Node(None, 1)


def makes(x):
    """What a function makes that depends on no value."""
    found, whole = set(), torch.zeros(4)

    def walk(n):
        found.add(n)
        if n:
            walk(n - 1)

    walk(2)
    top = Node(None, collections.Counter("aab"))
    Node(top, np.ones(2))
    return x, found, whole, whole[:2], {"array": np.arange(3)}, top, Node(SHARED, 2), bytearray(2)


def test_what_a_function_made_is_made_at_each_call():
    g = jit(makes, mode="py")
    for _ in range(3):
        x, found, whole, part, table, top, other, text = g(X)
        assert torch.equal(x, X)
        assert (found, whole.tolist(), table["array"].tolist()) == ({0, 1, 2}, [0.0] * 4, [0, 1, 2])
        assert (top.value["a"], len(top.children), text) == (2, 1, bytearray(2))
        assert top.children[0].parent is top
        assert top.children[0].value.tolist() == [1, 1]
        assert other.parent is SHARED
        found.add(9)
        whole.fill_(3)
        assert part.tolist() == [3, 3]
        table["array"][0] = 7
        top.value.update("aa")
        top.children[0].value[0] = 5
        top.children.clear()
        text.append(1)
    # What was there before stays itself, and so does an argument.
    settings, equal = Config([1]), Config([1])
    assert jit(lambda x: SHARED, mode="py")(X) is SHARED
    given = jit(lambda x, s: (s[0], x), mode="py")
    for s in (settings, equal):
        assert given(X, (s,))[0] is s
    for once in (lambda x: (v for v in (1, 2)), lambda x: threading.Lock()):
        with pytest.raises(TypingError, match="cannot be made again at each call"):
            jit(once)(X)


def test_numbers_of_numpy_beside_values_are_refused():
    for f in (lambda n: n + np.int8(100), lambda n: np.float32(0.1) * n, lambda n: n < np.int16(3)):
        with pytest.raises(TypingError, match=r"of NumPy .*convert it with \.item\(\)"):
            jit(f)(100)
    assert torch.equal(jit(lambda x: x * np.float32(2), mode="py")(X), X * np.float32(2))
    assert jit(lambda z: (z + True, z * False), mode="py")(1j) == (1j + True, 1j * False)


def test_constants_are_told_apart_by_what_is_in_them():
    f = jit(lambda x, c: x * c.n)
    whole = torch.arange(3)
    assert f(whole, Config(1)).dtype == torch.int64
    assert f(whole, Config(1.0)).dtype == torch.float32
    assert [f(X, Config(z))[1].item().hex() for z in (0.0, -0.0)] == ["0x0.0p+0", "-0x0.0p+0"]
    assert len(f.specializations) == 4
    f(whole, Config(1))
    assert len(f.specializations) == 4

    settings, g = Settings(), jit(lambda x, s: x * s.k + s.deep["a"][0])
    for change in (
        lambda: None,
        lambda: setattr(settings, "k", 3),
        lambda: settings.deep["a"].insert(0, 9),
    ):
        change()
        assert torch.equal(g(X, settings), g.function(X, settings))

    # Objects that are equal to themselves only are told apart.
    a, b, h = Held(), Held(), jit(lambda x, o: x if o is HELD else -x)
    assert torch.equal(h(X, HELD), X)
    assert torch.equal(h(X, a), -X)
    assert torch.equal(h(X, b), -X)


def test_a_module_as_an_argument_is_the_one_that_it_is_now():
    m = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(3, 2)).eval()
    f, x = jit(lambda m, x: m(x)), torch.randn(4, 3)
    assert torch.equal(f(m, x), m(x))
    m.train()
    assert not torch.equal(f(m, x), f(m, x))
    m.eval()
    assert torch.equal(f(m, x), m(x))
    m[1].weight = torch.nn.Parameter(torch.zeros(2, 3))
    assert torch.equal(f(m, x), m(x))


def test_weights_from_outside_train():
    torch.manual_seed(0)
    eager = torch.nn.Linear(3, 1)
    model = copy.deepcopy(eager)
    step = jit(lambda x, y: ((model(x) - y) ** 2).mean())
    x, y = torch.randn(5, 3), torch.randn(5, 1)
    for m, loss in ((eager, lambda x, y: ((eager(x) - y) ** 2).mean()), (model, step)):
        optimizer = torch.optim.SGD(m.parameters(), 0.1)
        for _ in range(3):
            optimizer.zero_grad()
            loss(x, y).backward()
            optimizer.step()
    torch.testing.assert_close(model.weight, eager.weight)
    assert len(step.specializations) == 1
    assert not next(iter(step.specializations.values())).elsewhere


def test_what_is_computed_without_a_gradient_has_none():
    def f(x):
        with torch.no_grad():
            y = x * 2
        return (y * x).sum()

    for g in (f, jit(f)):
        x = X.clone().requires_grad_()
        g(x).backward()
        assert x.grad.tolist() == [0, 2, 4]

    looked = jit(lambda x: x * (2 if x.requires_grad else 3))
    for given in (X, X.clone().requires_grad_(), X):
        assert torch.equal(looked(given), looked.function(given))
    sparse = jit(lambda x: x.is_sparse)
    assert [sparse(v) for v in (X, torch.eye(3).to_sparse(), torch.eye(3).t())] == [0, 1, 0]


def test_tensors_that_a_function_makes_may_be_written_into():
    def f(x):
        t = torch.zeros(3)
        y = x + t
        t += 1
        t[0] = 5
        return y, x + t

    for found in seen(f, X):
        assert [v.tolist() for v in found] == [v.tolist() for v in f(X)]


def test_python_inside():
    """Classes, generators, matches and the rest of Python, traced with their calls."""

    class Base:
        def go(self, x):
            return x + len(x)

    class Inner(Base):
        def __init__(self, x, k):
            self.__k = len(x) * k

        def __call__(self, y):
            return super().go(y) * self.__k

    def parts(x):
        for i in range(2):
            yield x + i

    def f(x, n):
        match n:
            case int():
                r = Inner(x, 2)(x)
            case _:
                r = x
        match x.shape:
            case (_,):
                r = r * 2
        total = [y := x + 1, y * 2]
        logging.getLogger("quiet").debug("traced")
        counted: int = functools.partial(len)(x)
        return r, sum(parts(x)), list(parts(x)), total, counted, json.dumps({"a": 1})

    for found in seen(f, X, 3):
        assert str(found) == str(f(X, 3))


# Sources ------------------------------------------------------------------------------------------

OTHER = python_types.ModuleType("other")
OTHER.f = lambda x: 1 / 0


def overloaded():
    @overload(OTHER.f)
    def other(x):
        return lambda x: x * 10


def test_two_functions_in_one_line_are_told_apart():
    overloaded()
    a, b, c = jit(lambda x: OTHER.f(x) + 1), jit(lambda x: OTHER.f(x) + 2), jit(lambda x: OTHER.f(x) + 1)  # fmt: skip
    assert [f(X)[1].item() for f in (a, b, c)] == [11, 12, 11]


def test_functions_without_source_see_modules():
    overloaded()
    names = {"other": OTHER, "torch": torch, "math": math, "time": time}
    exec(
        "def f(x): return other.f(x) + 1\n"
        "def r(x): return x + torch.rand(3)\n"
        "def n(v): return math.sqrt(v), type(v) is float, isinstance(v, float)\n"
        "def t(x): return x + time.time()\n",
        names,
    )
    assert jit(names["f"])(X).tolist() == [1, 11, 21]
    random_ = jit(names["r"])
    assert not torch.equal(random_(X), random_(X))
    assert jit(names["n"])(4.0) == (2.0, True, True)
    with pytest.raises(TypingError, match="gives another value at each call"):
        jit(names["t"])(X)


def test_a_file_that_changed_after_its_import_is_not_read(tmp_path: pathlib.Path):
    file = tmp_path / "changing.py"
    file.write_text("def f(x):\n    return x + 1\n")
    names = {"__name__": "changing"}
    exec(compile(file.read_text(), str(file), "exec"), names)
    file.write_text("def f(x):\n    return x + 2\n")
    assert jit(names["f"])(X).tolist() == [1, 2, 3]


def test_first_calls_in_several_threads():
    errors = []
    functions = [jit(lambda x, i=i: (x + 1) * i) for i in range(4)]

    def call(f):
        try:
            f(X)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=call, args=(f,)) for f in functions]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


# Overloads ----------------------------------------------------------------------------------------


def test_a_stub_never_runs_and_a_refusal_is_heard():
    def stub(x):
        return "the stub"

    @overload(stub)
    def tensors_only(x):
        return (lambda x: x) if isinstance(x, types.Array) else None

    with pytest.raises(TypingError, match=r"no implementation of .*stub\(Literal\[3\]\)"):
        jit(lambda x: (x, stub(3)))(X)

    @overload(torch.sinh)
    def never(x):
        raise TypingError("not today")

    with pytest.raises(TypingError, match="not today"):
        jit(lambda x: torch.sinh(x))(X)
    with pytest.raises(TypingError, match="not today"):
        jit(lambda x: torch.sinh(x) + torch.sinh(torch.ones(3)))(X)


def test_operators_in_place():
    @overload(operator.iadd)
    def added(a, b):
        if isinstance(a, types.Array) and isinstance(b, types.Float):
            return lambda a, b: a - b
        return None

    def f(x, n):
        x += n
        return x

    assert jit(f)(X, 1.0).tolist() == [-1, 0, 1]
    assert jit(f)(X, 1).tolist() == [1, 2, 3]


def test_numbers_of_math():
    fs = (
        *(math.floor, math.ceil, math.trunc, round, math.cbrt, math.erfc, math.degrees),
        *(math.radians, math.isnan, math.isinf, math.isfinite, math.asinh, math.exp2),
        *(lambda v: math.atan2(v, 2.0), lambda v: math.fmod(v, 2.0), lambda v: divmod(v, 0.7)),
        *(lambda v: math.copysign(v, -1.0), lambda v: pow(v, 2)),
    )
    g = jit(lambda v: tuple(f(v) for f in fs))
    for value in (2.5, -2.5, 3.5, -7.25, 0.0):
        expected = tuple(f(value) for f in fs)
        assert repr(g(value)) == repr(expected)
    with pytest.raises(OverflowError, match="does not fit int64"):
        jit(lambda v: math.floor(v))(1e300)
    with pytest.raises(ValueError, match="math domain error"):
        jit(lambda v: math.fmod(v, 0.0))(1.0)


def test_it_is_a_function_to_python(tmp_path):
    assert sys.modules[__name__].pickled_jit.py_func is plain
    import pickle

    assert pickle.loads(pickle.dumps(pickled_jit))(X).tolist() == [1, 2, 3]
    for what, why in (
        (lambda: jit("float64(float64)"), "takes a function and no signature"),
        (lambda: jit(nopython=True), "no option nopython: every function is compiled as a whole"),
        (lambda: jit(other=1), "no option other; it has mode and constants"),
    ):
        with pytest.raises(TypeError, match=why):
            what()
    with pytest.raises(NotImplementedError, match="overload_classmethod is Numba's"):
        from pytorch_bridge.extending import overload_classmethod  # noqa: F401
    with pytest.raises(NotImplementedError, match=r"types\.Optional is Numba's"):
        types.Optional  # noqa: B018
    assert types.void is types.none


def plain(x):
    return x + 1


pickled_jit = jit(plain)
