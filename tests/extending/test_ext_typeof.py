"""Which type a Python value has."""

from __future__ import annotations

import math

import pytest
import torch

from pytorch_bridge.extending import RegistrationError, TypingError, typeof, typeof_impl, types
from pytorch_bridge.types import TensorType


class Base: ...


class Middle(Base): ...


class Leaf(Middle): ...


class Named(types.Type):
    pass


def test_c11_the_function_gets_value_and_context():
    seen = []

    @typeof_impl(Base)
    def _typeof_base(val, c):
        seen.append((val, c.purpose, c.typeof(3)))
        return Named("base")

    b = Base()
    assert typeof(b) == Named("base")
    assert seen == [(b, "argument", types.int64)]


def test_c11_the_nearest_base_class_wins():
    typeof_impl(Base)(lambda val, c: Named("base"))
    assert typeof(Leaf()) == Named("base")
    typeof_impl.register(Middle)(lambda val, c: Named("middle"))
    assert typeof(Leaf()) == Named("middle")
    assert typeof(Base()) == Named("base")


def test_c11_none_is_an_error_that_names_the_class():
    @typeof_impl(Base)
    def undecided(val, c):
        return None

    with pytest.raises(TypingError) as e:
        typeof(Leaf())
    assert f"{__name__}.Leaf" in str(e.value)
    assert f"undecided ({__file__}:{undecided.__code__.co_firstlineno}) returned None" in str(
        e.value
    )
    assert isinstance(e.value, TypeError)


def test_c11_anything_but_a_type_is_an_error_that_names_the_function():
    @typeof_impl(Base)
    def wrong(val, c):
        return Named

    with pytest.raises(RegistrationError, match=r"wrong \(.*must return a Type"):
        typeof(Base())


def test_c11_an_exception_in_the_function_propagates():
    @typeof_impl(Base)
    def broken(val, c):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        typeof(Base())


def test_c12_bridge_type_on_an_instance():
    b = Base()
    b._bridge_type_ = Named("mine")
    assert typeof(b) == Named("mine")
    with pytest.raises(TypingError, match="Base"):
        typeof(Base())


def test_c12_bridge_type_as_a_property():
    class Own:
        n = 3

        @property
        def _bridge_type_(self):
            return Named(f"own{self.n}")

    assert typeof(Own()) == Named("own3")


def test_c12_the_nearer_of_bridge_type_and_registration_counts():
    class Declares(Base):
        _bridge_type_ = Named("declared")

    class Below(Declares): ...

    typeof_impl(Base)(lambda val, c: Named("base"))
    assert typeof(Declares()) == Named("declared")
    assert typeof(Below()) == Named("declared")
    typeof_impl(Below)(lambda val, c: Named("below"))
    assert typeof(Below()) == Named("below")


def test_c12_bridge_type_that_is_no_type():
    b = Base()
    b._bridge_type_ = "float64"
    with pytest.raises(TypingError, match=r"_bridge_type_ of .*Base is no Type, but 'float64'"):
        typeof(b)


def test_c13_the_generic_hook_sees_unknown_values_and_only_those():
    seen = []

    @typeof_impl.generic
    def hook(val, c):
        seen.append(val)
        return Named("guessed") if isinstance(val, Leaf) else None

    typeof_impl(int)  # looking up a class registers nothing
    leaf, base = Leaf(), Base()
    assert typeof(leaf) == Named("guessed")
    assert typeof(3) == types.int64
    assert typeof(torch.zeros(2)) is not None
    with pytest.raises(TypingError, match=r"hook \(.*\) returned None"):
        typeof(base)
    assert seen == [leaf, base]


def test_c13_hooks_are_asked_in_the_order_of_registration():
    typeof_impl.generic(lambda val, c: None)
    typeof_impl.generic(lambda val, c: Named("second"))
    typeof_impl.generic(lambda val, c: Named("third"))
    assert typeof(Base()) == Named("second")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, types.boolean),
        (3, types.int64),
        (-(2**63), types.int64),
        (2**63, types.uint64),
        (0.5, types.float64),
        (math.nan, types.float64),
        (1j, types.complex128),
        ("s", types.unicode_type),
        (None, types.none),
        ((1, 2), types.UniTuple(types.int64, 2)),
        ((1, 0.5), types.Tuple((types.int64, types.float64))),
        ((), types.Tuple(())),
        ([1, 2], types.List(types.int64)),
    ],
    ids=repr,
)
def test_what_python_brings(value, expected):
    assert typeof(value) == expected


def test_what_has_no_type():
    for value, why in ((2**64, "64 bits"), ([], "empty list"), ([1, 0.5], "element 1 is float64")):
        with pytest.raises(TypingError, match=why):
            typeof(value)


def test_tensors_have_dtype_shape_and_layout():
    t = typeof(torch.zeros(2, 3))
    assert isinstance(t, types.Array)
    assert isinstance(t, TensorType)
    assert (t.dtype, t.shape, t.layout) == ("float32", (2, 3), "C")
    assert typeof(torch.zeros(2, 3).t()).layout == "A"
    assert t != typeof(torch.zeros(2, 3).t().contiguous().t())


def test_types_are_equal_by_class_and_key():
    assert types.Integer(64) == types.int64
    assert types.Integer(64, signed=False) != types.int64
    assert Named("a") == Named("a")
    assert Named("a") != Named("b")
    assert Named("a") != types.Type("a")
    assert len({Named("a"), Named("a"), Named("b")}) == 2
    assert types.Tuple([types.int64]) == types.UniTuple(types.int64, 1)


def test_filter_of_numbers():
    assert types.int8.filter(5) == 5
    assert types.int64.filter(True) == 1
    assert types.int64.filter(3.0) == 3
    assert types.float32.filter(0.1) == torch.tensor(0.1).item()
    for t, value in (
        (types.int8, 200),
        (types.uint8, -1),
        (types.int64, 0.5),
        (types.int64, "1"),
        (types.float32, 2**24 + 1),
        (types.boolean, 1),
    ):
        with pytest.raises(TypeError, match=f"expected a value of type {t}, got"):
            t.filter(value)
    with pytest.raises(TypeError):
        types.int64.filter(True, strict=True)
