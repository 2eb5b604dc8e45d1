"""The conditions on sizes that a program of torch.export has: the verdict on inputs, and the numbers,
are those of `program.module()`."""

from __future__ import annotations

import io
import itertools
import logging
import random

import pytest
import torch
from torch import nn
from torch.export import Dim

import pytorch_bridge as pb
from pytorch_bridge import BridgeTypeError, BridgeValueError, TensorType, function
from pytorch_bridge.ops.checks import CheckSizes
from pytorch_bridge.ops.from_fx import UnsupportedNode
from pytorch_bridge.ops.size_guards import Condition, parse

OPEN = {0: Dim.AUTO, 1: Dim.AUTO}


def size_of_one(x):
    return x + torch.ones(6)


def even(x):
    return x.mean(1) if x.shape[0] % 2 == 0 else x.sum(1)


def taller(x):
    return x * 2 if x.shape[0] > x.shape[1] else x * 3


def big(x):
    return x.exp() if x.shape[0] * x.shape[1] > 10 else x


def unequal(x):
    return x + 1 if x.shape[0] != x.shape[1] else x - 1


def quotient(x):
    return x + 1 if x.shape[0] / x.shape[1] > 1.2 else x - 1


def halves(x):
    return x + 1 if int(x.shape[0] * 0.5) == 3 else x - 1


def root(x):
    return x + 1 if torch.sym_sqrt(x.shape[0]) > 2 else x - 1


def greatest(x):
    return x + 1 if max(x.shape[0], x.shape[1]) == 6 else x - 1


def power(x):
    return x + 1 if x.shape[0] ** 2 > 3 * x.shape[1] else x - 1


def several(x):
    y = x.mean(0) if x.shape[0] % 3 == 0 else x.sum(0)
    return y * 2 if x.shape[0] // x.shape[1] == 1 and x.shape[1] < 5 else y


def viewed(x):
    return x.view(-1, 3)


def in_pairs(x):
    return x.reshape(x.shape[0] // 2, 2, -1).sum(1)


def in_windows(x):
    return x.unfold(1, 2, 2) * 2


def smaller(x):
    return nn.functional.interpolate(x[None, None], scale_factor=0.5)


def sliced(x):
    return x[:, :3] + x[:, 1:]


def shifted(x):
    return x.mean(1) / (x.shape[1] - 3) if x.shape[1] > 3 else x.mean(1)


ALONE = [
    *(size_of_one, even, taller, big, unequal, quotient, halves, root, greatest, power, several),
    *(viewed, in_pairs, in_windows, smaller, sliced, shifted),
]


def module_of(function):
    return type("Of", (nn.Module,), {"forward": staticmethod(function)})()


def program_of(function, args, dynamic, kwargs=None, **options):
    return torch.export.export(module_of(function), args, kwargs, dynamic_shapes=dynamic, **options)


def outcome(call, args, kwargs):
    try:
        with torch.no_grad():
            return call(*args, **kwargs)
    except (
        AssertionError,
        BridgeValueError,
        BridgeTypeError,
        ZeroDivisionError,
        RuntimeError,
    ) as e:
        return e


def held_to_the_module(program, calls, modes=("py", "c")):
    """Compiles, and compares with module() for each of the calls; how many were refused."""
    theirs = program.module()
    model = pb.from_exported(program)
    refused = 0
    for mode in modes:
        ours = model.compile(mode)
        for args, kwargs in calls:
            expected, mine = outcome(theirs, args, kwargs), outcome(ours, args, kwargs)
            shapes = [tuple(a.shape) for a in args if isinstance(a, torch.Tensor)]
            if isinstance(expected, Exception):
                assert isinstance(mine, (BridgeValueError, BridgeTypeError)), (
                    shapes,
                    expected,
                    mine,
                )
                refused += 1
            else:
                assert not isinstance(mine, Exception), (shapes, mine)
                assert torch.equal(mine, expected), shapes
    return refused


SIZES = list(itertools.product(range(1, 10), repeat=2))


@pytest.mark.parametrize("function", ALONE)
def test_every_size_has_the_verdict_of_the_module(function):
    example = torch.randn(6, 6 if function is size_of_one else 4)
    program = program_of(function, (example,), (OPEN,))
    calls = [((torch.randn(n, m),), {}) for n, m in SIZES]
    refused = held_to_the_module(program, calls)
    assert 0 < refused < 2 * len(calls)


def several_inputs(x, others, *rest, y, n):
    if x.shape[0] * 2 > others["b"][0].shape[1] + y.shape[0]:
        x = x + 1
    if rest[1].shape[0] % 3 != 1 and n < y.shape[0]:
        x = x * 2
    return (
        x.sum()
        + others["a"].sum()
        + others["b"][0].sum()
        + rest[0].sum()
        + rest[1].sum()
        + y.sum() * n
    )


@pytest.mark.parametrize("strict", [False, True])
def test_sizes_of_inputs_that_nest(strict):
    def given(a, b, c, d, n):
        x, y, z = torch.ones(a, 4), torch.ones(3, b), torch.ones(c, 2)
        return (x, {"b": [y], "a": x}, x, z), {"y": torch.ones(d), "n": n}

    args, kwargs = given(6, 5, 3, 4, 2)
    program = program_of(
        several_inputs,
        args,
        {
            "x": {0: Dim.AUTO},
            "others": {"b": [{1: Dim.AUTO}], "a": {0: Dim.AUTO}},
            "rest": ({0: Dim.AUTO}, {0: Dim.AUTO}),
            "y": {0: Dim.AUTO},
            "n": None if strict else Dim.AUTO,
        },
        kwargs,
        strict=strict,
    )
    random.seed(0)
    ns = [2] if strict else [1, 2, 3]
    sizes = [(*(random.randint(2, 9) for _ in range(4)), random.choice(ns)) for _ in range(60)]
    refused = held_to_the_module(program, [given(*s) for s in sizes])
    assert 0 < refused < 2 * len(sizes)


def related(x, y, z):
    return x.view(-1) + y if z.shape[0] > 2 else y


def test_a_size_that_is_the_product_of_two_others():
    shapes = (OPEN, {0: Dim.AUTO}, {0: Dim.AUTO})
    program = program_of(related, (torch.ones(6, 4), torch.ones(24), torch.ones(3)), shapes)
    cases = [(6, 4, 24, 3), (2, 5, 10, 4), (2, 5, 11, 4), (2, 5, 10, 2), (3, 1, 3, 3), (1, 1, 1, 3)]
    calls = [((torch.randn(a, b), torch.randn(c), torch.randn(d)), {}) for a, b, c, d in cases]
    assert 0 < held_to_the_module(program, calls) < 2 * len(calls)
    # The sizes of the inputs say it too.
    program._guards_code = []
    model = pb.from_exported(program).compile("py")
    model(torch.ones(2, 5), torch.ones(10), torch.ones(3))
    with pytest.raises(
        BridgeValueError, match=r"x.size\(\)\[0\] \* x.size\(\)\[1\], got y|== x.size"
    ):
        model(torch.ones(2, 5), torch.ones(11), torch.ones(3))


def doubled(x, y):
    return x.sum() + y.sum() if y.shape[0] == x.shape[0] * 2 else x.sum()


def test_a_size_that_follows_another_has_bounds_of_its_own():
    """A least size of 2 stands for any, and twice that does not."""
    dynamic = ({0: Dim.AUTO}, {0: Dim.AUTO})
    program = program_of(doubled, (torch.ones(3, 4), torch.ones(6, 2)), dynamic)
    calls = [((torch.randn(n, 4), torch.randn(2 * n, 2)), {}) for n in range(4)]
    assert held_to_the_module(program, calls) == 4
    least, most = {"min": 3, "max": 7}, 7
    program = program_of(
        lambda x, y: x.sum() + y.sum(),
        (torch.ones(5), torch.ones(14)),
        ({0: (n := Dim("n", **least))}, {0: 3 * n - 1}),
    )
    sizes = [(n, 3 * n - 1) for n in range(1, most + 3)]
    calls = [((torch.randn(a), torch.randn(b)), {}) for a, b in [*sizes, (4, 12)]]
    assert held_to_the_module(program, calls) == 2 * 5


def test_the_error_has_the_condition_and_the_sizes():
    program = program_of(even, (torch.randn(6, 4),), (OPEN,))
    model = pb.from_exported(program)
    for mode in ("py", "c"):
        with pytest.raises(BridgeValueError) as e:
            model.compile(mode)(torch.randn(7, 3))
        assert str(e.value) == "the program asks for x.size()[0] % 2 == 0, got x.size()[0] = 7"
    program = program_of(size_of_one, (torch.randn(4, 6),), (OPEN,))
    assert pb.from_exported(program).inputs[0].type == TensorType("float32", (None, 6))


@pytest.mark.parametrize("how", ["saved", "decomposed"])
def test_a_program_keeps_its_conditions(how):
    program = program_of(several, (torch.randn(6, 4),), (OPEN,))
    if how == "decomposed":
        program = program.run_decompositions()
    else:
        file = io.BytesIO()
        torch.export.save(program, file)
        file.seek(0)
        program = torch.export.load(file)
    calls = [((torch.randn(n, m),), {}) for n, m in SIZES]
    assert 0 < held_to_the_module(program, calls, ["c"]) < len(calls)


def written_in_place(x):
    y = x * 2
    y[0].add_(1)
    return y.mean(0) if x.shape[0] > x.shape[1] else y


def test_a_program_that_is_made_functional_keeps_its_conditions():
    program = program_of(written_in_place, (torch.randn(6, 4),), (OPEN,))
    calls = [((torch.randn(n, m),), {}) for n, m in SIZES]
    assert 0 < held_to_the_module(program, calls, ["c"]) < len(calls)


def test_what_cannot_be_checked_is_refused_when_it_is_imported():
    program = program_of(even, (torch.randn(6, 4),), (OPEN,))
    for guard in ["L['x'].stride()[0] == 4", "L['z'].size()[0] > 2", "f(L['x'].size()[0])", "L["]:
        program._guards_code = [guard]
        with pytest.raises(UnsupportedNode, match="cannot be checked") as e:
            pb.from_exported(program)
        assert guard in str(e.value)
    del program._guards_code
    with pytest.raises(UnsupportedNode, match="does not say under which conditions"):
        pb.from_exported(program)
    closed = program_of(even, (torch.randn(6, 4),), None)
    del closed._guards_code
    pb.from_exported(closed)


# The language of conditions


NUMBERS = [0, 1, -1, 2, 3, -7, 2**31, 2**53 + 1, 2**62, 2**63 - 1, -(2**63)]


def both(text, values):
    """What Python and C say of a condition on the numbers a and b, in a graph."""
    condition = parse(text, {"L['a']": (0, "a"), "L['b']": (1, "b")})
    a, b = pb.schema_type("int")("a"), pb.schema_type("int")("b")
    outs = CheckSizes(["a", "b"], [], [condition])(a, b)
    found = []
    for mode in ("py", "c_only"):
        f = pb.function([a, b], outs, mode, rewrite=False)
        for given in values:
            try:
                f(*given)
                found.append(True)
            except BridgeValueError:
                found.append(False)
    return found[: len(values)], found[len(values) :]


@pytest.mark.parametrize(
    "text",
    [
        "L['a'] // L['b'] == -4 or L['a'] // L['b'] < 1 and L['b'] != 3",
        "L['a'] % L['b'] <= 1",
        "-L['a'] + L['b'] * 2 - 1 < abs(L['b'])",
        "L['a'] / L['b'] > 0.75",
        "not (0 <= L['a'] < 3)",
        "torch.sym_max(L['a'], L['b'], 2) * torch.sym_min(L['a'], L['b']) >= 6",
        "math.trunc(0.5*torch.sym_float(L['a'])) == math.floor(0.5 * torch.sym_float(L['a']))",
        "math.ceil(torch._sym_sqrt(torch.sym_float(L['a']))) >= L['b']",
        "L['a']**3 == L['b'] or True",
        "max(0.5*L['a'], 1.5) < min(2.5, -(-0.25) * L['b'])",
    ],
)
def test_c_computes_what_python_does(text):
    values = list(itertools.product(NUMBERS, repeat=2))
    python, c = both(text, values)
    for given, p, q in zip(values, python, c, strict=True):
        # What 64 bits do not hold, and what a double does not, is refused in C.
        if all(abs(n) < 2**20 for n in given):
            assert p == q, given
        else:
            assert p or not q, given
    assert any(c)
    assert not all(c) or "True" in text


def test_what_overflows_is_refused_and_never_wraps():
    text = "L['a'] * L['b'] < 10"
    _, c = both(text, [(2**32, 2**32), (2**62, 4), (3, 3), (-(2**63), 2), (-1, -(2**63))])
    assert c == [False, False, True, False, False]


def test_long_conditions_and_names_that_are_formats():
    text = " and ".join(f"L['a'] % {n} == 1" for n in range(2, 90))
    assert both(text, [(1, 0), (2, 0)]) == ([True, False], [True, False])
    a = TensorType("float32", (None,))("%s%n")
    condition = parse("L['a'].shape[0] % 2 == 0", {"L['a']": (0, "%s%n")})
    f = pb.function([a], CheckSizes(["%s%n"], [], [condition])(a), "c_only")
    with pytest.raises(BridgeValueError, match=r"%s%n.size\(\)\[0\] = 3"):
        f(torch.ones(3))


def test_misuse_of_conditions():
    x = TensorType("float32", (None,))("x")
    condition = Condition("", ("==", ("size", 0, 1), ("number", 2)))
    with pytest.raises(BridgeTypeError, match="fits no size"):
        CheckSizes(["x"], [], [condition])(x)
    with pytest.raises(BridgeValueError, match="fits no size"):
        CheckSizes(["x"], [], [condition.renumbered({0: 1})])
    assert CheckSizes(["x"], [], [condition]) != CheckSizes(["x"], [])
    for text in ["L['a']", "L['a'] + (L['a'] > 2)", "2 ** L['a'] > 1", "1.5 // L['a'] > 1"]:
        with pytest.raises(BridgeTypeError):
            parse(text, {"L['a']": (0, "a")})


@pytest.fixture(autouse=True)
def quiet():
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("mode", ["py", "c"])
def test_a_condition_without_sizes_holds_or_not(mode):
    x = TensorType("float32", (None,))("x")
    holds = CheckSizes(["x"], [], [parse("1 == 1", {})])
    assert torch.equal(function([x], holds(x), mode=mode)(torch.ones(2)), torch.ones(2))
    wrong = function([x], CheckSizes(["x"], [], [parse("1 == 2", {})])(x), mode=mode)
    with pytest.raises(BridgeValueError, match="1 == 2 does not hold"):
        wrong(torch.ones(2))
