"""What the builder's operators and statements compute, held to Python and PyTorch."""

from __future__ import annotations

import gc
import itertools
import math

import pytest
import torch

import pytorch_bridge as pb
from pytorch_bridge.extending import (
    BuilderError,
    CBuilder,
    NativeValue,
    intrinsic,
    jit,
    make_attribute_wrapper,
    models,
    register_model,
    signature,
    typeof_impl,
    types,
    unbox,
)
from pytorch_bridge.native.extension import live_handles
from pytorch_bridge.testing.gotests import ensure_library

ensure_library()

f64, i64, boolean = types.float64, types.int64, types.boolean


def compiled(emit, result):
    """`f(x, y)` whose C `emit(b, x, y)` writes; what it returns is of the type that `result` is."""

    @intrinsic
    def probe(typingctx, x, y):
        of = result if isinstance(result, pb.Type) else result(x)
        return signature(of, x, y), lambda context, b, sig, args: emit(b, *args)

    return jit(lambda x, y: probe(x, y))


def values_of(f, pairs):
    return [f(x, y) for x, y in pairs]


@pytest.fixture(autouse=True)
def no_handle_is_left():
    gc.collect()
    before = live_handles()
    yield
    assert live_handles() == before


INTEGERS = [(7, 3), (-7, 3), (7, -3), (0, 5), (1 << 40, 3)]
FLOATS = [(7.5, 2.0), (-0.5, 3.25), (1e300, -1e10), (math.inf, 1.0)]
OPERATORS = {
    "+": (lambda x, y: x + y, None),
    "-": (lambda x, y: x - y, None),
    "*": (lambda x, y: x * y, None),
    "reflected": (lambda x, y: 2 + (3 - (4 * x)), None),
    "unary": (lambda x, y: -x, None),
    "<": (lambda x, y: x < y, boolean),
    "<=": (lambda x, y: x <= y, boolean),
    ">": (lambda x, y: x > y, boolean),
    ">=": (lambda x, y: x >= y, boolean),
    "==": (lambda x, y: x == y, boolean),
    "!=": (lambda x, y: x != y, boolean),
    "and, or, not": (lambda x, y: ((x < y) & (y > 2)) | ~(x == 7), boolean),
}


@pytest.mark.parametrize("pairs", [INTEGERS, FLOATS], ids=["integers", "floats"])
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_compute_what_pythons_do(name, pairs):
    operator, result = OPERATORS[name]
    f = compiled(lambda b, x, y: operator(x, y), result or type_of(pairs[0][0]))
    wanted = [operator(x, y) for x, y in pairs]
    if name.startswith("and"):
        wanted = [(x < y and y > 2) or x != 7 for x, y in pairs]
    assert values_of(f, pairs) == wanted


def type_of(value):
    return i64 if isinstance(value, int) else f64


def test_division_is_cs():
    assert values_of(compiled(lambda b, x, y: x / y, i64), INTEGERS) == [
        math.trunc(x / y) for x, y in INTEGERS
    ]
    assert values_of(compiled(lambda b, x, y: x % y, i64), INTEGERS) == [
        int(math.fmod(x, y)) for x, y in INTEGERS
    ]
    halves = [(x / 2, y) for x, y in FLOATS]
    assert values_of(compiled(lambda b, x, y: (1 / x) / y, f64), halves) == [
        (1 / x) / y for x, y in halves
    ]


def test_bits():
    f = compiled(lambda b, x, y: (x & y) | ~x, i64)
    assert values_of(f, INTEGERS) == [(x & y) | ~x for x, y in INTEGERS]


@pytest.mark.parametrize(
    ("left", "right"),
    itertools.product(["int8_t", "uint8_t", "int32_t", "uint32_t", "float"], repeat=2),
)
def test_operands_of_two_types_meet_as_in_c(left, right):
    """The wider type, and not one that is unsigned where that holds both."""

    def emit(b, x, y):
        return b.cast(b.cast(x, left) + b.cast(y, right), "double")

    assert compiled(emit, f64)(100, 3) == 103.0


def if_else(b, x, y):
    found = b.variable("int64_t")
    with b.if_(x > y):
        b.store(found, x - y)
    with b.else_():
        with b.if_(x == y):
            b.store(found, 100)
        with b.else_():
            b.store(found, y - x)
    return found


def loop(b, x, y):
    total = b.variable("int64_t", 0)
    with b.loop(y, start=1) as i, b.loop(i) as k:
        kept = b.variable("int64_t")  # zero in every turn
        b.store(kept, kept + 1)
        b.store(total, total + k * x + kept)
    return total


def while_(b, x, y):
    n, turns = b.variable("int64_t", x), b.variable("int64_t", 0)
    with b.while_(lambda: n > y):
        b.store(n, n / 2)
        b.store(turns, turns + 1)
    return turns


STATEMENTS = {
    if_else: lambda x, y: x - y if x > y else 100 if x == y else y - x,
    loop: lambda x, y: sum(k * x + 1 for i in range(1, y) for k in range(i)),
    while_: lambda x, y: next(n for n in range(70) if x >> n <= y),
    lambda b, x, y: b.select(x > y, x, y): max,
    lambda b, x, y: b.select(x > 5, 1, 2.5): lambda x, y: 1 if x > 5 else 2.5,
}


@pytest.mark.parametrize("emit", STATEMENTS, ids=lambda f: f.__name__)
def test_statements_run_as_pythons_do(emit):
    pairs = [(7, 3), (3, 7), (4, 4), (1 << 40, 9)]
    f = compiled(lambda b, x, y: b.cast(emit(b, x, y), "double"), f64)
    assert values_of(f, pairs) == [STATEMENTS[emit](x, y) for x, y in pairs]


def test_a_static_variable_keeps_its_value():
    def emit(b, x, y):
        count = b.static("int64_t")
        b.store(count, count + x)
        return b.value(count)

    f = compiled(emit, i64)
    assert [f(2, 0), f(3, 0), f(5, 0)] == [2, 5, 10]


def test_a_failure_says_the_values():
    def emit(b, x, y):
        b.comment("looks for */ the first")
        with b.loop(10) as i:
            b.check(i < y, "IndexError", "{} of {}%: {}, {}", i, x, i > 2, "as told")
        return x

    f = compiled(emit, f64)
    assert f(0.1, 20) == 0.1
    with pytest.raises(IndexError, match=r"^4 of 0\.1000000000000000\d*%: True, as told\n"):
        f(0.1, 4)


def tensor_of(x):
    return types.Array("float32", x.shape)


SCALARS = {
    "an integer": (lambda x, n: 3, 3),
    "a float": (lambda x, n: 2.5, 2.5),
    "a bool": (lambda x, n: True, True),
    "a complex number": (lambda x, n: 1 + 2j, 1 + 2j),
    "a variable": (lambda x, n: n, 7),
    "a comparison": (lambda x, n: n > 2, True),
    "a size": (lambda x, n: x.builder.cast(n, "size_t"), 7),
    "no number": (lambda x, n: x.builder.value(math.nan), math.nan),
}


@pytest.mark.parametrize("name", SCALARS)
def test_scalars_are_what_they_are_of(name):
    given, value = SCALARS[name]
    dtype = "complex64" if isinstance(value, complex) else "float32"
    f = compiled(
        lambda b, x, n: b.call("MulScalar", x, given(x, n)), lambda x: types.Array(dtype, x.shape)
    )
    x = torch.arange(3.0)
    torch.testing.assert_close(f(x, 7), x * value, equal_nan=True, rtol=0, atol=0)


LISTS = {
    "numbers": (lambda b, x, n: b.call("SumDim", x, [0, 1], False, None), lambda x: x.sum()),
    "variables": (
        lambda b, x, n: b.call("Reshape", x, [n, -1]),
        lambda x: x.reshape(2, -1),
    ),
    "no numbers": (lambda b, x, n: b.call("SumDim", x, [], False, None), lambda x: x.sum()),
    "none": (lambda b, x, n: b.call("SumDim", x, None, False, None), lambda x: x.sum()),
    "optional numbers": (
        lambda b, x, n: b.call("Clamp", x, 1, b.scalar(3.5)),
        lambda x: x.clamp(1, 3.5),
    ),
    "half of them": (lambda b, x, n: b.call("Clamp", x, None, 3), lambda x: x.clamp(max=3)),
    "one of a list": (
        lambda b, x, n: b.call("Neg", b.load(b.call("Unbind", x, 0)[0], 1)),
        lambda x: -x.unbind(0)[1],
    ),
}


@pytest.mark.parametrize("name", LISTS)
def test_lists_and_options_are_given_as_in_python(name):
    emit, eager = LISTS[name]
    x = torch.arange(6.0).reshape(2, 3)
    wanted = eager(x)
    f = compiled(emit, types.Array("float32", (None,) * wanted.dim()))
    assert torch.equal(f(x, 2), wanted)


def test_what_a_loop_owns_goes_in_every_turn():
    def emit(b, x, n):
        total = b.owned("Tensor", b.call("ZerosLike", x, None, None, None, None, None))
        with b.loop(n):
            more = b.call("AddScalar", x, 1, 1)
            b.check(n < 5, "ValueError", "{} is too often", n)
            b.store(total, b.call("Add", total, more, 1))
        return total

    f = compiled(emit, lambda x: types.Array("float32", x.shape))
    x = torch.ones(2)
    assert torch.equal(f(x, 3), torch.full((2,), 6.0))
    with pytest.raises(ValueError, match="5 is too often"):
        f(x, 5)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda b: b.owned("Odd"), "how is a Odd freed"),
        (lambda b: b.else_(), "else_ must come right after if_"),
        (lambda b: b.load(b.variable("int64_t")), "is no pointer"),
        (lambda b: b.call("NoSuch"), "cgotorch.h has no function NoSuch"),
        (lambda b: b.call("Neg"), "self is missing"),
        (lambda b: b.call("Neg", 1, 2), "1 too many"),
        (lambda b: b.value(object()), "has no form in C"),
        (lambda b: b.value(1 << 64), "fits no integer type"),
        (lambda b: b.scalar("a"), "makes no Scalar"),
        (lambda b: b.fail("ValueError", "{} {}", 1), "has 2 places for 1 values"),
        (lambda b: b.fail("ValueError", "{}", b.variable("Odd")), "cannot stand in a message"),
        (lambda b: bool(b.variable("bool")), "is known when the C runs"),
    ],
)
def test_what_cannot_be_c_is_refused(wrong, words):
    with pytest.raises(BuilderError, match=words):
        wrong(CBuilder())


class Probe:
    """Python gives it what `look` finds out in C."""

    def __init__(self, value):
        self.value = value


class ProbeType(types.Type):
    pass


@pytest.fixture
def looked():
    """`f(look)`: a function of a Probe whose unboxing runs `look(c, obj)` for a number."""
    typeof_impl(Probe)(lambda val, c: ProbeType("probe"))

    @register_model(ProbeType)
    class Model(models.StructModel):
        def __init__(self, dmm, fe_type):
            super().__init__(dmm, fe_type, [("found", f64)])

    make_attribute_wrapper(ProbeType, "found", "found")
    look = []

    @unbox(ProbeType)
    def unboxed(typ, obj, c):
        made = c.struct(typ)
        made.found = c.builder.cast(look[0](c, obj), "double")
        return NativeValue(made._getvalue())

    def function(f):
        look[:] = [f]
        return jit(lambda p: p.found)

    return function


def member(c, obj):
    return c.pyapi.object_getattr_string(obj, "value")


def constant(c, thing):
    return c.pyapi.unserialize(c.pyapi.serialize_object(thing))


def changed(c, obj):
    c.pyapi.object_setattr_string(obj, "value", c.pyapi.float_from_double(4.5))
    c.pyapi.err_set_string("ValueError", "which goes")
    with c.builder.if_(c.pyapi.err_occurred() != None):  # noqa: E711  # in C
        c.pyapi.err_clear()
    return c.pyapi.float_as_double(member(c, obj))


def counted(c, obj):
    held = member(c, obj)
    c.pyapi.incref(held)
    c.pyapi.decref(held)
    again = member(c, obj)
    c.builder.emit(f"Py_DECREF({again.text});")
    return c.pyapi.float_as_double(again)


LOOKS = {
    "item": (
        lambda c, o: c.pyapi.float_as_double(
            c.pyapi.object_getitem(member(c, o), c.pyapi.long_from_longlong(1))
        ),
        [1.5, 2.5],
        2.5,
    ),
    "truth": (lambda c, o: c.pyapi.object_istrue(member(c, o)), [1], 1.0),
    "no truth": (lambda c, o: c.pyapi.object_istrue(member(c, o)), [], 0.0),
    "type": (lambda c, o: c.pyapi.object_type_is(member(c, o), constant(c, int)), True, 0.0),
    "isinstance": (
        lambda c, o: c.pyapi.object_isinstance(member(c, o), constant(c, int)),
        True,
        1.0,
    ),
    "unsigned": (
        lambda c, o: c.pyapi.long_as_ulonglong(member(c, o)),
        (1 << 64) - 1,
        float((1 << 64) - 1),
    ),
    "none": (
        lambda c, o: c.pyapi.object_type_is(c.pyapi.make_none(), constant(c, type(None))),
        0,
        1.0,
    ),
    "complex": (
        lambda c, o: c.pyapi.float_as_double(
            c.pyapi.object_getattr_string(c.pyapi.complex_from_doubles(1, 2), "imag")
        ),
        0,
        2.0,
    ),
    "changed": (changed, 1.0, 4.5),
    "counted": (counted, 6.5, 6.5),
}


@pytest.mark.parametrize("name", LOOKS)
def test_what_c_asks_python(name, looked):
    look, value, wanted = LOOKS[name]
    assert looked(look)(Probe(value)) == wanted


@pytest.mark.parametrize(
    ("look", "value", "error"),
    [
        (lambda c, o: c.pyapi.long_as_ulonglong(member(c, o)), -1, OverflowError),
        (LOOKS["item"][0], [], IndexError),
        (lambda c, o: c.pyapi.object_istrue(member(c, o)), torch.ones(2), RuntimeError),
        (
            lambda c, o: c.pyapi.float_as_double(c.pyapi.object_getattr_string(o, "no")),
            1,
            AttributeError,
        ),
    ],
)
def test_what_python_refuses_leaves_with_its_exception(look, value, error, looked):
    with pytest.raises(error):
        looked(look)(Probe(value))
