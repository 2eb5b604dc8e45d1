"""What Numba's tests ask of its registry, asked of this one, in our own words.

After numba/numba at 5340f052: test_extending, test_extending_types, test_typeof, test_typeconv, test_casting, test_struct_ref,
test_dispatcher, test_operators, and the interval of its documentation. `numba.md` lists the cases that end differently.
"""

from __future__ import annotations

import collections
import copy
import enum
import itertools
import math
import operator
import pickle

import pytest
import torch

from pytorch_bridge.extending import (
    AbstractTemplate,
    Conversion,
    NativeValue,
    RegistrationError,
    TypingError,
    box,
    can_convert,
    infer,
    intrinsic,
    jit,
    lower_builtin,
    lower_cast,
    lower_setattr_generic,
    make_attribute_wrapper,
    models,
    overload,
    overload_attribute,
    overload_method,
    register_jitable,
    register_model,
    signature,
    type_callable,
    typeof,
    typeof_impl,
    types,
    unbox,
)
from pytorch_bridge.extending.ranking import rank
from pytorch_bridge.testing.gotests import ensure_library

pytestmark = pytest.mark.usefixtures("unregistered")
ensure_library()

i16, i32, i64 = types.int16, types.int32, types.int64
f32, f64 = types.float32, types.float64


# The dummy: an object of which nothing but its type is known -----------------------------------


class Dummy:
    pass


class DummyType(types.Dummy):
    def __init__(self):
        super().__init__("dummy")


dummy = DummyType()


@pytest.fixture
def a_dummy():
    typeof_impl(Dummy)(lambda val, c: dummy)
    return Dummy()


def test_functions_of_a_new_type(a_dummy):
    overload(len)(lambda x: (lambda x: 13) if x is dummy else None)
    overload(operator.add)(lambda a, b: (lambda a, b: 42) if a is b is dummy else None)
    overload(operator.iadd)(lambda a, b: (lambda a, b: 43) if a is b is dummy else None)
    overload(operator.getitem)(lambda o, i: (lambda o, i: i + 123) if o is dummy else None)
    printed, changed = [], []

    @overload(print)
    def print_dummy(x):
        return (lambda x: printed.append("hello!")) if x is dummy else None

    @overload(operator.setitem)
    def set_dummy(o, i, v):
        return (lambda o, i, v: changed.append("set")) if o is dummy else None

    @overload(operator.delitem)
    def delete_dummy(o, i):
        return (lambda o, i: changed.append("del")) if o is dummy else None

    def f(d, e, n):
        print(d)
        d[n] = 5
        del d[n]
        both = operator.add(d, e), d + e, 1 + n, len(d), len([4, 5]), d[321], operator.iadd(d, e)
        d += e
        return *both, d

    assert jit(f)(a_dummy, Dummy(), 1) == (42, 42, 2, 13, 2, 444, 43, 43)
    assert (printed, changed) == (["hello!"], ["set", "del"])


def test_a_new_type_that_becomes_a_number_is_one_where_a_number_is_asked_for(a_dummy):
    @lower_cast(DummyType, types.Number)
    def as_number(context, b, fromty, toty, val):
        return context.cast(b, context.get_constant(i64, 42), i64, toty)

    def twice(x):
        raise NotImplementedError

    @infer
    class Twice(AbstractTemplate):
        key = twice

        def generic(self, args, kws):
            return signature(f64, f64)

    lower_builtin(twice, types.Float)(lambda context, b, sig, args: args[0] * 2)
    assert jit(lambda d: twice(d))(a_dummy) == 84.0
    assert (jit(lambda d: float(d))(a_dummy), jit(lambda d: int(d))(a_dummy)) == (42.0, 42)


def test_overloads_that_refuse_say_why():
    def where(cond, x, y):
        raise NotImplementedError

    @overload(where)
    def chooses(cond, x, y):
        if isinstance(cond, types.Array):
            if x.dtype != y.dtype:
                raise TypingError("x and y should have the same dtype")
            return lambda cond, x, y: torch.where(cond, x, y)
        return lambda cond, x, y: x if cond else y

    f = jit(lambda cond, x, y: where(cond, x, y))
    assert f(x=3, cond=True, y=8) == f(True, 3, 8) == 3
    cond, x = torch.tensor([True, False]), torch.tensor([1, 2])
    assert f(cond, x, x * 4).tolist() == [1, 8]
    with pytest.raises(TypingError, match="x and y should have the same dtype"):
        f(cond, x, x.float())


# Typing and implementation ------------------------------------------------------------------------


def both(typing, implementation):
    def stub(*args, **kwargs):
        raise NotImplementedError

    overload(stub)(eval(f"lambda {typing}: (lambda {implementation}: 1)"))
    return stub


@pytest.mark.parametrize(
    ("typing", "implementation", "call"),
    [
        ("a, b", "a, c", (1, 2)),
        ("a, b=None", "a, b=12", (1,)),
        ("a, b=1", "a, b", (1, 2)),
        ("a", "a, b=1", (1,)),
        ("a, *b", "a, *c", (1, 2)),
        ("a, *b", "a, b", (1, 2)),
        ("a, *, b=1", "a, b=1", (1,)),
        ("a, **k", "a, **m", (1,)),
        ("a, b=0.0", "a, b=-0.0", (1,)),
        ("a, b=1", "a, b=True", (1,)),
    ],
)
def test_parameters_that_disagree_are_an_error(typing, implementation, call):
    stub = both(typing, implementation)
    with pytest.raises(RegistrationError, match="typing and implementation disagree"):
        jit(lambda: stub(*call))()


@pytest.mark.parametrize("typing", ["a, *b", "a, b=None", "a, *, c=3", "a, b=(1, 'x')"])
def test_parameters_that_agree_are_none(typing):
    assert jit(lambda: both(typing, typing)(1))() == 1


def test_any_number_of_arguments(a_dummy):
    @overload_method(DummyType, "many")
    def many(obj, val, val2, *args):
        return lambda obj, val, val2, *args: (val, val2, args)

    f = jit(lambda obj, *args: obj.many(*args))
    for args in ((1, 2), (1, 2, 3), (1, 2, 3, 4), (1, 2, (3,)), (1, 2, (3, (4, 5)))):
        assert f(a_dummy, *args) == (*args[:2], args[2:])
    g = jit(lambda obj: (obj.many(1, 2), obj.many(1, 2, 3)))
    assert g(a_dummy) == ((1, 2, ()), (1, 2, (3,)))


def test_literals_are_asked_first_and_values_next(a_dummy):
    def chooses(x):
        if isinstance(x, types.IntegerLiteral):
            if x.literal_value == 1:
                return lambda x: 0xCAFE
            raise TypingError("another literal")
        return lambda x: x * 100

    def stub(x):
        raise NotImplementedError

    overload(stub)(chooses)

    @overload_method(DummyType, "chooses")
    def method(self, x):
        found = chooses(x)
        return lambda self, x: found(x)

    @overload_method(DummyType, "no_literal")
    def no_literal(self, x):
        return None if isinstance(x, types.Literal) else lambda self, x: x

    @intrinsic
    def whole(context, x):
        if isinstance(x, types.Literal) and x.literal_value != 1:
            raise TypingError("another literal")
        factor = 100 if not isinstance(x, types.Literal) else 7
        return signature(i64, types.unliteral(x)), lambda c, b, sig, args: args[0] * factor

    f = jit(
        lambda d, x: (
            (stub(1), stub(2), stub(x)),
            (d.chooses(1), d.chooses(2), d.chooses(x)),
            (whole(1), whole(2), whole(x)),
            d.no_literal(0xCAFE),
        )
    )
    assert f(a_dummy, 3) == ((0xCAFE, 200, 300),) * 2 + ((7, 200, 300), 0xCAFE)


# Intrinsics, constructors, jitables ----------------------------------------------------------------


def test_intrinsics_keep_what_functions_have():
    @intrinsic
    def documented(context, x):
        """One more."""
        return signature(i64, i64), lambda c, b, sig, args: args[0] + 1

    assert (documented.__name__, documented.__doc__) == ("documented", "One more.")
    assert jit(lambda x: documented(x))(3) == 4
    with pytest.raises(TypingError, match="can be called in traced code only"):
        documented(3)


def test_a_class_is_called_for_its_type():
    class Made:
        def __init__(self, v):
            self.v = v

    class MadeType(types.Type):
        pass

    made = MadeType("made")
    typeof_impl(Made)(lambda val, c: made)
    register_model(MadeType)(
        type("Model", (models.StructModel,), {"__init__": lambda s, d, t: _one(s, d, t)})
    )
    make_attribute_wrapper(MadeType, "v", "v")

    @type_callable(Made)
    def typed(context):
        return lambda v: made if isinstance(v, types.Number) else None

    assert callable(typed)

    @lower_builtin(Made, types.Number)
    def construct(context, b, sig, args):
        s = context.make_struct(b, made)
        s.v = context.cast(b, args[0], sig.args[0], f64)
        return s._getvalue()

    assert jit(lambda n: Made(n).v + Made(2).v)(1) == 3.0


def _one(self, dmm, fe_type):
    models.StructModel.__init__(self, dmm, fe_type, [("v", f64)])


def test_jitable_functions_stay_pythons():
    @register_jitable
    def inner(x, y=2):
        return x + y

    assert (inner(1), jit(lambda x: inner(x))(1), jit(lambda x: inner(x, y=5))(1)) == (3, 3, 6)


# Boxes ---------------------------------------------------------------------------------------------


class Holder:
    def __init__(self, value):
        self.value = value


class HolderType(types.Type):
    def __init__(self):
        super().__init__("holder")


@pytest.fixture
def a_holder():
    typeof_impl(Holder)(lambda val, c: HolderType())
    register_model(HolderType)(
        type("Model", (models.StructModel,), {"__init__": lambda s, d, t: _one(s, d, t)})
    )
    make_attribute_wrapper(HolderType, "v", "value")


def test_boxers_and_unboxers_raise_what_python_raised(a_holder):
    @unbox(HolderType)
    def unboxer(typ, obj, c):
        s = c.struct(typ)
        s.v = c.pyapi.float_as_double(c.pyapi.object_getattr_string(obj, "value"))
        too_large = s.v > 100
        with c.builder.if_(too_large):
            c.pyapi.err_set_string("ValueError", "cannot be > 100")
        return NativeValue(s._getvalue(), is_error=too_large)

    @box(HolderType)
    def boxer(typ, val, c):
        value = c.struct(typ, val).v
        with c.builder.if_(value < 0):
            c.builder.fail("ValueError", "cannot be < 0, was {}", value)
        return c.pyapi.float_from_double(value)

    f = jit(lambda h: h)
    assert f(Holder(3.0)) == 3.0
    for value, error, why in (
        (200.0, ValueError, "cannot be > 100"),
        (-1.0, ValueError, "cannot be < 0, was -1"),
        ("x", TypeError, "must be real number"),
    ):
        with pytest.raises(error, match=why):
            f(Holder(value))


# Types of values -----------------------------------------------------------------------------------


class Shade(enum.Enum):
    RED = 1


def test_types_of_values():
    Point = collections.namedtuple("Point", "x y")
    for value, expected in (
        *((v, i64) for v in (1, -1, 2**40, 2**63 - 1, -(2**63))),
        *((v, types.uint64) for v in (2**63, 2**64 - 1)),
        (1.0, f64),
        (1j, types.complex128),
        (True, types.boolean),
        (None, types.none),
        ("abc", types.unicode_type),
        ((1, 2.0), types.Tuple((i64, f64))),
        ((1, 2), types.UniTuple(i64, 2)),
        ((), types.Tuple(())),
        ([1, 2], types.List(i64)),
        (Point(1, 2), types.UniTuple(i64, 2)),
    ):
        assert typeof(value) == expected, value
    for value in (2**64, -(2**63) - 1, [], [1, 2.0], Shade.RED, Shade, ..., {1}, b"a"):
        with pytest.raises(TypingError):
            typeof(value)
    x = torch.arange(10.0)
    for t, ndim, layout in (
        (x, 1, "C"),
        (x.reshape(2, 5), 2, "C"),
        (x.reshape(2, 5).T, 2, "A"),
        (x[::2], 1, "A"),
        (torch.tensor(1.0), 0, "C"),
    ):
        found = typeof(t)
        assert (found.ndim, found.layout, found.dtype) == (ndim, layout, "float32")


def test_types_are_themselves_after_pickling_and_in_dicts():
    for t in (i64, f32, types.complex64, types.Tuple((i64, f64)), types.UniTuple(i64, 2)):
        assert pickle.loads(pickle.dumps(t)) == t
        assert {t: 1}[pickle.loads(pickle.dumps(t))] == 1
    assert types.Tuple((i64, i64)) == types.UniTuple(i64, 2)
    assert len({i16, i32, i64, types.uint16, f32, f64, types.boolean}) == 7


# Conversions ---------------------------------------------------------------------------------------


def test_conversions_of_numbers():
    for a in types.integer_domain:
        for b in types.integer_domain:
            found = can_convert(a, b)
            if a == b:
                assert found == Conversion.exact
            elif a.signed == b.signed and a.bitwidth < b.bitwidth:
                assert found == Conversion.promote
            elif b.minval <= a.minval and a.maxval <= b.maxval:
                assert found == Conversion.safe
            else:
                assert found == Conversion.unsafe
    assert can_convert(f32, f64) == Conversion.promote
    assert can_convert(f64, f32) == Conversion.unsafe
    assert can_convert(i32, f64) == Conversion.safe
    assert can_convert(i64, f64) == Conversion.unsafe
    assert can_convert(i16, f32) == Conversion.safe
    for a, b in itertools.product(types.number_domain, repeat=2):
        if a in types.complex_domain and b not in types.complex_domain:
            assert can_convert(a, b) is None or can_convert(a, b) == Conversion.unsafe
        else:
            assert can_convert(a, b) is not None


def test_the_least_conversion_wins():
    def best(actual, formals):
        ranks = [rank(actual, f) for f in formals]
        return min((r, i) for i, r in enumerate(ranks) if r is not None)[1]

    for actual, formals, expected in (
        ((i64, i32, i32), [(i32, i32, i32), (i64, i64, i64)], 1),
        ((i32, i16, i32), [(i64, i64, i64), (i32, i32, i32), (i16, i16, i16)], 1),
        ((i32, i32), [(i64, i64), (f64, f64)], 0),
    ):
        assert best(actual, formals) == expected
        assert best(actual, formals[::-1]) == len(formals) - 1 - expected


def test_numbers_are_cast_as_python_casts_them():
    f = jit(lambda x: (int(x), float(int(x)), bool(x), complex_of(x)))

    @overload(complex_of)
    def complex_impl(x):
        return lambda x: x + 0j

    for x in (12.3, -12.3, 0.0, 3.21):
        assert f(x) == (int(x), float(int(x)), bool(x), x + 0j)
    for x in (math.inf, -math.inf, math.nan, 1e300):
        with pytest.raises(OverflowError, match="does not fit int64"):
            f(x)
    assert jit(lambda x: (float(x) / 2, int(x)))(321) == (160.5, 321)
    assert jit(lambda t: (float(t), int(t), bool(t)))(torch.tensor(2.5)) == (2.5, 2, True)
    with pytest.raises(RuntimeError):
        jit(lambda t: float(t))(torch.ones(4))


def complex_of(x):
    raise NotImplementedError


# Structs -------------------------------------------------------------------------------------------


def test_a_struct_with_methods_attributes_and_assignments():
    class Person:
        def __init__(self, name, tally):
            self.name, self.tally = name, tally

    class PersonType(types.Type):
        pass

    person = PersonType("person")
    members = [("name", types.unicode_type), ("tally", i64)]
    typeof_impl(Person)(lambda val, c: person)

    @register_model(PersonType)
    class Model(models.StructModel):
        def __init__(self, dmm, fe_type):
            models.StructModel.__init__(self, dmm, fe_type, members)

    for name, _ in members:
        make_attribute_wrapper(PersonType, name, name)

    @unbox(PersonType)
    def unboxer(typ, obj, c):
        s = c.struct(typ)
        for name, t in members:
            setattr(s, name, c.unbox_value(t, c.pyapi.object_getattr_string(obj, name)))
        return NativeValue(s._getvalue())

    @box(PersonType)
    def boxer(typ, val, c):
        s = c.struct(typ, val)
        cls = c.pyapi.unserialize(c.pyapi.serialize_object(Person))
        return c.pyapi.call_function_objargs(cls, [c.box(t, getattr(s, n)) for n, t in members])

    @lower_setattr_generic(PersonType)
    def assign(context, b, sig, args, attr):
        target, value = args
        b.emit(f"{target.text}.{attr} = {value.text};")

    overload_method(PersonType, "greet")(lambda self, n: lambda self, n: self.tally * n)
    overload_attribute(PersonType, "upper")(lambda self: lambda self: self.tally + 100)

    def f(p):
        before = p.tally
        p.tally = p.tally + 1
        return before, p.tally, p.upper, p.greet(2), p.name == "Ann", len(p.name), p

    given = Person("Ann", 5)
    *found, back = jit(f)(given)
    assert found == [5, 6, 106, 12, True, 3]
    assert (back.name, back.tally, given.tally) == ("Ann", 6, 5)
    with pytest.raises(AttributeError, match="has no attribute 'age': registered are greet, name"):
        jit(lambda p: p.age)(given)


# Dispatchers and operators -------------------------------------------------------------------------


def test_a_function_is_compiled_once_for_its_types():
    traced = []

    @jit
    def add(x, y):
        traced.append((type(x), type(y)))
        return x + y

    for a, b in itertools.product((1, 2.5), repeat=2):
        for _ in range(2):
            assert add(a, b) == a + b
    assert len(traced) == len(add.specializations) == 4
    for args, kwargs, why in (
        ((1,), {}, "missing a required argument: 'y'"),
        ((1, 2, 3), {}, "too many positional"),
        ((1,), {"x": 2}, "multiple values"),
        ((1,), {"z": 2}, "missing a required argument: 'y'"),
    ):
        with pytest.raises(TypeError, match=why):
            add(*args, **kwargs)
    assert (add.py_func(1, 2), add.__name__, add(y=1, x=2)) == (3, "add", 3)


OPERATORS = (
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv),
    *(operator.mod, operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne),
)
WHOLE = (operator.and_, operator.or_, operator.xor)


def test_operators_of_numbers_are_pythons():
    def every(a, b, functions):
        return tuple(f(a, b) for f in functions)

    numbers = (7, -7, 3, -3, 2.5, -2.5, 10**6)
    compiled = jit(lambda a, b: every(a, b, OPERATORS))
    whole = jit(lambda a, b: (*every(a, b, WHOLE), ~a, a << 2, a >> 1, divmod(a, b)))
    for a, b in itertools.product(numbers, repeat=2):
        expected = every(a, b, OPERATORS)
        found = compiled(a, b)
        assert found == expected
        assert [type(v) for v in found] == [type(v) for v in expected]
        if isinstance(a, int) and isinstance(b, int):
            assert whole(a, b) == whole.function(a, b)
    for f in (operator.truediv, operator.floordiv, operator.mod):
        for zero in (0, 0.0):
            with pytest.raises(ZeroDivisionError):
                jit(lambda a, b, f=f: f(a, b))(1, zero)
    with pytest.raises(OverflowError):
        jit(lambda a: a * a)(2**62)


def test_a_copy_of_a_struct_is_another_one():
    class Held:
        def __init__(self, v):
            self.v = v

    class HeldType(types.Type):
        pass

    held = HeldType("held")
    typeof_impl(Held)(lambda val, c: held)
    register_model(HeldType)(
        type("Model", (models.StructModel,), {"__init__": lambda s, d, t: _one(s, d, t)})
    )
    make_attribute_wrapper(HeldType, "v", "v")

    @unbox(HeldType)
    def unboxer(typ, obj, c):
        s = c.struct(typ)
        s.v = c.pyapi.float_as_double(c.pyapi.object_getattr_string(obj, "v"))
        return NativeValue(s._getvalue())

    @lower_setattr_generic(HeldType)
    def assign(context, b, sig, args, attr):
        b.emit(f"{args[0].text}.{attr} = {args[1].text};")

    def f(h):
        other, (third,) = copy.deepcopy(h), copy.deepcopy([h])
        other.v, third.v = other.v + 1, 7.0
        return h.v, other.v, third.v

    assert jit(f)(Held(1.0)) == f(Held(1.0)) == (1.0, 2.0, 7.0)
    with pytest.raises(TypingError, match=r"copy\.deepcopy can"):
        jit(lambda h: copy.copy(h))(Held(1.0))
