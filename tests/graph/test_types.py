"""Types: which values they have, which types are wider, and how variables are filtered by them."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import pytorch_bridge as pb
from pytorch_bridge import (
    BridgeTypeError,
    BridgeValueError,
    Constant,
    TensorType,
    Type,
    Variable,
    constant,
    function,
    ops,
    schema_type,
)
from pytorch_bridge.graph.basic import Apply, toposort
from pytorch_bridge.graph.function_graph import FunctionGraph
from pytorch_bridge.ops.basic import SpecifyShape
from pytorch_bridge.ops.op import Op
from pytorch_bridge.rewrite.merge import merge
from pytorch_bridge.types.enums import DTYPES, LAYOUTS, MEMORY_FORMATS, dtype_name


# The seed's example, as written there.
class DoubleType(Type):
    def filter(self, x, strict=False, allow_downcast=None):
        if strict:
            if isinstance(x, float):
                return x
            else:
                raise TypeError("expected a float!")
        elif allow_downcast:
            return float(x)
        else:  # covers both the false and none cases.
            x_float = float(x)
            if x_float == x:
                return x_float
            else:
                raise TypeError(
                    "The double type cannot accurately represent "
                    f"value {x} (of type {type(x)}): you must explicitly "
                    "allow downcasting if you want to do this."
                )

    def values_eq_approx(self, x, y, tolerance=1e-4):
        return abs(x - y) / (abs(x) + abs(y)) < tolerance


class EqualDoubleType(DoubleType):
    def __eq__(self, other):
        return type(self) is type(other)

    def __hash__(self):
        return hash(type(self))


class DoubleAdd(Op):
    """Adds two doubles, in whatever type it is given."""

    __props__ = ()

    def make_node(self, x, y):
        return pb.Apply(self, [x, y], [x.type()])

    def perform(self, node, inputs, output_storage):
        x, y = inputs
        output_storage[0][0] = x + y


# E1 ... E21


def test_e1_a_variable_has_static_facts_and_no_data():
    v = TensorType("float32", (None, 784))("x")
    assert isinstance(v, Variable)
    assert (v.type.dtype, v.type.shape, v.type.ndim, v.name) == ("float32", (None, 784), 2, "x")
    assert (v.dtype, v.ndim, v.type.device) == ("float32", 2, "cpu")
    assert str(v.type) == repr(v.type) == "TensorType(float32, (None, 784))"
    huge = TensorType("float64", (1 << 40, 1 << 20))()
    assert huge.type.shape == (1 << 40, 1 << 20)


@pytest.mark.parametrize(
    "dtype", [torch.float32, "float32", "float", np.float32, np.dtype("float32"), "torch.float32"]
)
def test_e1_dtypes_may_be_torchs_numpys_or_names(dtype):
    assert TensorType(dtype, ()).dtype == "float32"


def test_e1_what_is_no_dtype_or_size_is_refused():
    with pytest.raises(BridgeTypeError, match="'float31' is no dtype"):
        TensorType("float31", ())
    with pytest.raises(BridgeTypeError, match=r"a size is an integer or None, not 1\.5"):
        TensorType("float32", (1.5,))
    with pytest.raises(BridgeValueError, match="not negative, got -1"):
        TensorType("float32", (-1,))
    with pytest.raises(BridgeTypeError, match="'gpu' is no device"):
        TensorType("float32", (), device="gpu")


@pytest.mark.parametrize("wrong", [3, 2.0, "ab", True])
def test_a_shape_that_is_no_list_is_refused(wrong):
    with pytest.raises(pb.BridgeTypeError, match="shape is a tuple of sizes"):
        TensorType("float32", wrong)
    with pytest.raises(pb.BridgeTypeError, match="broadcastable is a list of bools"):
        TensorType("float32", broadcastable=wrong)


def test_a_number_of_dimensions_is_answered_with_the_shape_for_it():
    with pytest.raises(pb.BridgeTypeError, match=r"shape=\(None, None, None\)"):
        TensorType("float32", 3)


def test_e2_none_is_any_size_and_ndim_is_fixed():
    t = TensorType("float32", (2, None))
    for shape in ((2, 0), (2, 1), (2, 7)):
        assert t.is_valid_value(torch.zeros(shape))
    for shape in ((2,), (2, 1, 1), (3, 1), ()):
        assert not t.is_valid_value(torch.zeros(shape))


def test_e3_broadcastable_is_the_old_style():
    with pytest.warns(DeprecationWarning, match="broadcastable="):
        t = TensorType("float32", broadcastable=(True, False))
    assert t.shape == (1, None)
    assert t.broadcastable == (True, False)
    with pytest.raises(BridgeTypeError, match="not both"):
        TensorType("float32", (1,), broadcastable=(True,))


def test_e4_in_same_class_is_the_same_pattern_of_ones():
    def t(*shape):
        return TensorType("float64", shape)

    assert not t(2, None).in_same_class(t(2, 1))
    assert t(2, None).in_same_class(t(3, None))
    assert t(1, None).in_same_class(t(1, 5))
    assert not t(2, None).in_same_class(t(2, None, None))
    assert not t(2).in_same_class(TensorType("float32", (2,)))
    assert not t(2).in_same_class(schema_type("int"))


def test_e5_is_super_where_equality_would_be_wrong():
    wide, narrow = TensorType("float64", (2, None)), TensorType("float64", (2, 1))
    assert wide.is_super(narrow) is True
    assert narrow.is_super(wide) is None
    assert wide != narrow
    assert TensorType().is_super(narrow)
    assert TensorType("float64").is_super(wide)
    assert TensorType("float32").is_super(wide) is None
    assert TensorType("float64", (2, None), device="cuda").is_super(narrow) is None
    # An op takes the narrower type: mm wants matrices.
    assert ops.mm(narrow(), TensorType("float64", (1, 3))()).type.shape == (2, 3)


def test_e6_filter_variable_returns_the_narrower_variable():
    v1, v2 = TensorType("float64", (2, None))(), TensorType("float64", (2, 1))()
    assert v1.type.filter_variable(v2) is v2
    assert v1.type.filter_variable(v1) is v1


def test_e7_the_other_way_round_a_check_is_inserted():
    v1, v2 = TensorType("float64", (2, None))("v1"), TensorType("float64", (2, 1))()
    v3 = v2.type.filter_variable(v1)
    assert v3.type == TensorType("float64", (2, 1))
    assert isinstance(v3.owner.op, SpecifyShape)
    f = function([v1], v3 * 1, mode="py")
    assert f(torch.ones(2, 1, dtype=torch.float64)).shape == (2, 1)
    with pytest.raises(TypeError, match=r"v1 has the shape \(2, 3\), expected \(2, 1\)"):
        f(torch.ones(2, 3, dtype=torch.float64))


def test_e7_each_knows_a_part_of_the_shape():
    a, b = TensorType("float32", (None, 3))(), TensorType("float32", (2, None))
    assert b.filter_variable(a).type.shape == (2, 3)


def test_e7_what_cannot_meet_is_an_error():
    v = TensorType("float32", (2, None))("v")
    with pytest.raises(BridgeTypeError, match="cannot be converted"):
        TensorType("float32", (3, 1)).filter_variable(v)
    with pytest.raises(BridgeTypeError, match="float64"):
        TensorType("float64", (2, None)).filter_variable(v)
    with pytest.raises(BridgeTypeError):
        TensorType("float32", (2, 1)).filter_variable(v, allow_convert=False)
    with pytest.raises(BridgeTypeError):
        schema_type("int").filter_variable(v)


def test_e8_defaults_of_the_base_class():
    a, b = DoubleType(), DoubleType()
    assert a.in_same_class(a) is True
    assert a.in_same_class(b) is False
    assert a.is_super(a) is True
    assert a.is_super(b) is None


def test_e9_strict_filter_gives_the_same_object_or_type_error():
    t, x = TensorType("float32", (3,)), torch.ones(3)
    assert t.filter(x, strict=True) is x
    parameter = torch.nn.Parameter(x)
    assert t.filter(parameter, strict=True) is parameter
    for bad in (torch.ones(3, dtype=torch.float64), torch.ones(4), [1.0, 2.0, 3.0], 1.0, None):
        with pytest.raises(TypeError, match=r"expected TensorType\(float32, \(3,\)\), got"):
            t.filter(bad, strict=True)


def test_e10_downcasts():
    t = TensorType("float32", ())
    exact, inexact = torch.tensor(2**24), torch.tensor(2**24 + 1)
    for allow in (None, False, True):
        assert t.filter(exact, allow_downcast=allow).item() == 2**24
    for allow in (None, False):
        with pytest.raises(TypeError, match="allow_downcast=True"):
            t.filter(inexact, allow_downcast=allow)
    assert t.filter(inexact, allow_downcast=True).dtype == torch.float32


@pytest.mark.parametrize(
    ("value", "dtype", "allowed"),
    [
        ([1, 2], "float32", True),
        (torch.tensor([1.0, math.nan]), "float64", True),
        (torch.tensor([0.1, 0.2], dtype=torch.float64), "float32", False),
        (torch.tensor([0.5, math.inf], dtype=torch.float64), "float32", True),
        (torch.tensor([1e300, 1.0], dtype=torch.float64), "float32", False),
        (torch.tensor([1.0, 2.0]), "int64", True),
        (torch.tensor([1.5, 2.0]), "int64", False),
        (torch.tensor([math.nan, 2.0]), "int64", False),
        (torch.tensor([math.inf, 2.0]), "int32", False),
        (torch.tensor([2.0**63, 0.0]), "int64", False),
        (torch.tensor([2**63 - 1, 0]), "float64", False),
        (torch.tensor([300, 0]), "uint8", False),
        (torch.tensor([255, 0]), "uint8", True),
        (torch.tensor([0, 1]), "bool", True),
        (torch.tensor([0, 2]), "bool", False),
        (torch.tensor([True, False]), "float16", True),
        (torch.tensor([1 + 0j, 2]), "float32", True),
        (torch.tensor([1 + 1j, 2]), "float32", False),
        (torch.tensor([1.0, 2.0]), "complex64", True),
        (np.array([1.0, 2.0]), "float32", True),
        (np.array([0.1, 2.0]), "float32", False),
    ],
)
def test_e10_a_conversion_must_keep_every_element(value, dtype, allowed):
    t = TensorType(dtype, (2,))
    if allowed:
        result = t.filter(value)
        assert dtype_name(result.dtype) == dtype
        assert torch.equal(
            torch.nan_to_num(result.to(torch.complex128)),
            torch.nan_to_num(torch.as_tensor(value).to(torch.complex128)),
        )
    else:
        with pytest.raises(TypeError):
            t.filter(value)
        assert dtype_name(t.filter(value, allow_downcast=True).dtype) == dtype


def test_e10_a_python_float_is_rounded_unless_that_is_forbidden():
    t = TensorType("float32", ())
    assert t.filter(0.1).item() == torch.tensor(0.1).item()
    with pytest.raises(TypeError):
        t.filter(0.1, allow_downcast=False)


def test_e10_the_shape_must_fit_even_then():
    with pytest.raises(TypeError):
        TensorType("float32", (2,)).filter([1.0], allow_downcast=True)


def test_e11_filter_inplace_gets_the_old_storage():
    seen = []

    class InPlace(DoubleType):
        def filter_inplace(self, value, storage, strict=False, allow_downcast=None):
            seen.append(storage)
            return self.filter(value, strict, allow_downcast)

    t = InPlace()
    x, y = t("x"), t("y")
    f = function([x, y], DoubleAdd()(x, y), mode="py")
    assert f(1, 2.0) == 3.0
    assert f(5.0, 6.0) == 11.0
    # What was made for the call before; its 2.0 is the caller's own object.
    assert seen == [None, None, 1.0, None]


def test_what_a_caller_gave_is_no_storage_of_the_next_call():
    class Items(pb.Generic):
        def filter_inplace(self, value, storage, strict=False, allow_downcast=None):
            if isinstance(value, list):
                return value
            storage = [] if storage is None else storage
            storage[:] = value
            return storage

    class Total(Op):
        def make_node(self, x):
            return Apply(self, [x], [pb.generic()])

        def perform(self, node, inputs, output_storage):
            output_storage[0][0] = sum(inputs[0])

    x = Items()("x")
    f = function([x], Total()(x), mode="py")
    mine = [1, 2, 3]
    assert [f(mine), f((4, 5)), f((6,))] == [6, 9, 6]
    assert mine == [1, 2, 3]


def test_calls_at_the_same_time_share_no_old_storage():
    both_are_in = threading.Barrier(2, timeout=60)

    class Cell(DoubleType):
        """A list of one number, which is used again."""

        def filter(self, value, strict=False, allow_downcast=None):
            return value

        def filter_inplace(self, value, storage, strict=False, allow_downcast=None):
            storage = storage if storage is not None else [None]
            storage[0] = value
            return storage

    class Read(Op):
        def make_node(self, x):
            return Apply(self, [x], [DoubleType()()])

        def perform(self, node, inputs, output_storage):
            if inputs[0][0]:
                both_are_in.wait()
            output_storage[0][0] = inputs[0][0]

    x = Cell()("x")
    f = function(x, Read()(x), mode="py")
    f(0.0)
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(f, [1.0, 2.0])) == [1.0, 2.0]


@pytest.mark.parametrize(
    ("t", "values"),
    [
        (TensorType("float32", (None,)), [torch.ones(2), torch.ones(2, 2), 1.0, [1.0], None]),
        (TensorType("int64", ()), [torch.tensor(1), torch.tensor(1.0), 1]),
        (DoubleType(), [1.0, 1, "1"]),
        (schema_type("int"), [1, True, 1.0, 2**63, -(2**63)]),
        (schema_type("float?"), [1.0, None, 1]),
        (schema_type("int[]"), [[1, 2], (1,), [], [1.0], None]),
        (schema_type("bool[2]"), [[True, False], [True], [1, 0]]),
        (schema_type("Scalar"), [1, 1.0, True, 1j, None, "1"]),
        (schema_type("ScalarType"), [torch.float32, "float32", None]),
        (schema_type("Device?"), [torch.device("cpu"), None, "cpu"]),
        (schema_type("str"), ["", None, 1]),
        (schema_type("Tensor?"), [None, torch.ones(1), 1]),
        (schema_type("Tensor[]"), [[torch.ones(1)], [], [None], None]),
        (schema_type("Generator?"), [None, torch.default_generator, 1]),
    ],
)
def test_e12_is_valid_value_is_that_strict_filter_does_not_raise(t, values):
    for value in values:
        try:
            assert t.filter(value, strict=True) is value
            passes = True
        except TypeError:
            passes = False
        assert t.is_valid_value(value) is passes
    assert t.is_valid_value(values[0])


def test_e13_values_eq():
    assert DoubleType().values_eq(1.0, 1.0)
    assert not DoubleType().values_eq(math.nan, math.nan)
    t = TensorType("float32", (2,))
    nan = torch.tensor([math.nan, 1.0])
    assert t.values_eq(nan, nan.clone())
    assert not t.values_eq(nan, torch.tensor([math.nan, 1.0000001]))
    assert not t.values_eq(torch.ones(2), torch.ones(2, dtype=torch.float64))
    assert t.values_eq(torch.ones(4)[::2], torch.ones(2))


def f32(*values):
    return torch.tensor(values)


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (f32(-1.0), f32(-2.0), False),
        (f32(0.0), f32(0.0), True),
        (f32(0.0), f32(-0.0), True),
        (f32(math.nan), f32(math.nan), True),
        (f32(math.inf), f32(math.inf), True),
        (f32(math.inf), f32(-math.inf), False),
        (f32(1.0), f32(math.inf), False),
        (f32(1.0), f32(math.nan), False),
        (f32(1.0), f32(1.00001), True),
        (f32(1.0), f32(1.01), False),
        (torch.tensor([1]), torch.tensor([2]), False),
        (torch.tensor([10**15]), torch.tensor([10**15 + 1]), False),
        (f32(1.0), torch.tensor([1.0], dtype=torch.float64), False),
        (f32(1.0), f32(1.0, 1.0), False),
        (f32(), f32(), True),
        (torch.tensor([1 + 1j]), torch.tensor([1 + 1j]), True),
        (torch.tensor([1 + 1j]), torch.tensor([1 - 1j]), False),
        (torch.tensor([1.0, 2.0]).to_sparse(), torch.tensor([1.0, 2.0]).to_sparse(), True),
        (torch.tensor([1.0, 2.0]).to_sparse(), torch.tensor([1.0, 2.0]), False),
        (f32(1.0), 1.0, False),
    ],
)
def test_e14_values_eq_approx(a, b, equal):
    assert TensorType().values_eq_approx(a, b) is equal


def test_e14_extra_arguments_have_defaults():
    t = TensorType("float32", (1,))
    assert t.values_eq_approx(f32(1.0), f32(1.1), rtol=0.2)
    assert not t.values_eq_approx(f32(1.0), f32(1.1))
    assert DoubleType().values_eq_approx(1.0, 1.00001)


def test_e14_numbers_follow_the_same_rules():
    t = schema_type("float")
    assert not t.values_eq_approx(-1.0, -2.0)
    assert t.values_eq_approx(0.0, 0.0)
    assert t.values_eq_approx(math.nan, math.nan)
    assert t.values_eq_approx(math.inf, math.inf)
    assert not t.values_eq_approx(math.inf, -math.inf)
    assert not t.values_eq_approx(1.0, math.inf)
    assert not schema_type("int").values_eq_approx(10**15, 10**15 + 1)
    assert not schema_type("Scalar").values_eq_approx(1, 1.0)


def test_e15_make_variable_and_call():
    t = DoubleType()
    for make in (t, t.make_variable):
        assert make("a").name == "a"
        assert make(name="a").name == "a"
        assert make(None).name is None
        assert make().name is None
        assert make().type is t
    with pytest.raises(BridgeTypeError, match="name is a string, not 5"):
        TensorType("float32", ())(5)


def test_e16_bare_types_differ_and_equal_ones_merge():
    assert DoubleType() != DoubleType()
    assert EqualDoubleType() == EqualDoubleType()
    assert hash(EqualDoubleType()) == hash(EqualDoubleType())

    def nodes_after_merge(kind):
        x = kind()("x")
        two = [Constant(kind(), 2.0), Constant(kind(), 2.0)]
        graph = FunctionGraph([x], [DoubleAdd()(x, c) for c in two])
        merge(graph)
        return len(graph.apply_nodes)

    assert nodes_after_merge(DoubleType) == 2
    assert nodes_after_merge(EqualDoubleType) == 1


def test_e16_tensor_types():
    a = TensorType("float32", (None, 2))
    assert a == TensorType("float32", [None, 2])
    assert hash(a) == hash(TensorType("float32", [None, 2]))
    assert a != TensorType("float32", (3, 2))
    assert a != TensorType("float64", (None, 2))
    assert a != TensorType("float32", (None, 2), device="cuda")
    assert a == TensorType("float32", (None, 2), device="cpu")
    assert schema_type("int") == schema_type("SymInt")
    assert schema_type("int") != schema_type("float")
    assert TensorType() == schema_type("Tensor")


def test_e17_clone_overrides_what_is_given():
    t = TensorType("float32", (2, None), device="cuda:1")
    assert t.clone() == t
    assert t.clone() is not t
    assert t.clone(dtype="int64") == TensorType("int64", (2, None), device="cuda:1")
    assert t.clone("int64") == t.clone(dtype="int64")
    assert t.clone(shape=(3,)).shape == (3,)
    assert t.clone(device="cpu").device == "cpu"
    with pytest.warns(DeprecationWarning, match="old style"):
        assert t.clone(broadcastable=(True,)).shape == (1,)
    with pytest.raises(TypeError):
        t.clone(colour="red")


def test_e18_may_share_memory():
    share = TensorType.may_share_memory
    x = torch.arange(6.0)
    assert share(x, x)
    assert share(x, x[2:])
    assert share(x[:1].expand(5), x)
    assert share(x, x.view(2, 3).t())
    assert not share(x, x.clone())
    assert not share(x, 1.0)
    assert not share("x", x)
    assert not share(torch.empty(0), torch.empty(0))
    empty = torch.empty(0)
    assert not share(empty, empty)
    assert not share(x[:0], x)
    array = np.zeros(4)
    assert share(torch.from_numpy(array), torch.from_numpy(array))
    assert share(x.to_sparse(), x.to_sparse()) is False
    sparse = x.to_sparse()
    assert share(sparse, sparse.values())
    assert not schema_type("int").may_share_memory(1, 1)


def test_e19_sizes():
    t = TensorType("float32", (3, 4))
    assert t.get_size(t.get_shape_info(torch.zeros(3, 4))) == 48
    assert t.get_size(t.get_shape_info(torch.zeros(1).expand(3, 4))) == 48
    assert t.get_size(t.get_shape_info(torch.zeros(3, 0))) == 0
    assert t.get_size(t.get_shape_info(torch.eye(4).to_sparse())) == 4 * 4 + 2 * 4 * 8
    with pytest.raises(NotImplementedError, match="DoubleType does not define get_size"):
        DoubleType().get_size(None)


def test_e20_register_transfer(unregistered):
    x = TensorType("float32", ())("x")
    with pytest.raises(ValueError, match="no registered transfer knows the target 'moon'"):
        pb.transfer(x, "moon")
    calls = []

    def nothing(v, target):
        calls.append("nothing")

    def to_moon(v, target):
        calls.append("moon")
        return v if target == "moon" else None

    def never(v, target):
        calls.append("never")
        return v

    for t in (nothing, to_moon, never):
        pb.register_transfer(t)
    assert pb.transfer(x, "moon") is x
    assert calls == ["nothing", "moon"]
    with pytest.raises(ValueError, match=r"nothing is registered twice: at .*test_types\.py:"):
        pb.register_transfer(nothing)


def test_e21_the_double_type_of_the_seed():
    double = DoubleType()
    assert double.filter(3) == 3.0
    assert isinstance(double.filter(3), float)
    with pytest.raises(TypeError, match="expected a float!"):
        double.filter(3, strict=True)
    with pytest.raises(TypeError, match="cannot accurately represent value 9007199254740993"):
        double.filter(2**53 + 1)
    assert double.filter(2**53 + 1, allow_downcast=True) == 2.0**53
    assert double.values_eq_approx(1.0, 1.00001)
    x, y = double("x"), double("y")
    f = function([x, y], DoubleAdd()(DoubleAdd()(x, y), y), mode="py")
    assert f(1, 2.5) == 6.0
    assert function([x], x, mode="py")(1.5) == 1.5
    assert function([x, y], DoubleAdd()(x, y), mode="debug")(1, 2.5) == 3.5


# Constants, and the types of the schema


def test_constants_get_the_type_of_their_value():
    assert constant(1).type == schema_type("int")
    assert constant(True).type == schema_type("bool")
    assert constant(1.0).type == schema_type("float")
    assert constant("a").type == schema_type("str")
    assert constant(torch.float32).type == schema_type("ScalarType")
    assert constant(torch.ones(2, 3)).type == TensorType("float32", (2, 3))
    assert constant(np.ones(2)).type == TensorType("float64", (2,))
    x = TensorType("float32", ())()
    assert constant(x) is x
    with pytest.raises(BridgeTypeError, match="no type is known"):
        constant(object())


def test_a_constant_is_no_part_of_autograd():
    p = torch.nn.Parameter(torch.ones(2))
    assert not constant(p).data.requires_grad


def test_numbers_convert_what_loses_nothing():
    i, f = schema_type("int"), schema_type("float")
    assert i.filter(2.0) == 2
    assert isinstance(i.filter(np.int32(3)), int)
    assert i.filter(torch.tensor(4)) == 4
    with pytest.raises(BridgeTypeError, match=r"expected int, got 2\.5"):
        i.filter(2.5)
    assert i.filter(2.5, allow_downcast=True) == 2
    with pytest.raises(BridgeTypeError, match="64 bits"):
        i.filter(2**63)
    assert f.filter(3) == 3.0
    with pytest.raises(BridgeTypeError):
        f.filter(2**53 + 1)
    assert schema_type("int[2]").filter(3) == [3, 3]
    assert schema_type("ScalarType").filter("float16") is torch.float16
    assert schema_type("Layout").filter("sparse_coo") is torch.sparse_coo
    assert schema_type("MemoryFormat?").filter("channels_last") is torch.channels_last
    assert schema_type("Device").filter("cuda:1") == torch.device("cuda:1")


def test_optional_types_are_wider():
    for plain in ("int", "float", "bool", "ScalarType", "Device", "str", "Tensor"):
        assert schema_type(f"{plain}?").is_super(schema_type(plain))
        assert schema_type(plain).is_super(schema_type(f"{plain}?")) is None
    assert schema_type("Scalar").is_super(schema_type("int"))


@pytest.mark.filterwarnings("ignore")
def test_enum_numbers_are_torchs(library):
    """The numbers of dtypes, layouts and memory formats in C are libtorch's own."""

    @torch.jit.script
    def dtype_number(x: torch.Tensor) -> int:
        return x.dtype

    for name, number in DTYPES.items():
        assert dtype_number(torch.empty(0, dtype=getattr(torch, name))) == number, name
    for number, name in enumerate(("strided", "sparse_coo", "sparse_csr", "_mkldnn", "sparse_csc")):
        assert LAYOUTS[name] == number
        assert isinstance(getattr(torch, name), torch.layout)
    for name in MEMORY_FORMATS:
        assert isinstance(getattr(torch, name), torch.memory_format)


def test_importing_the_package_imports_no_torch():
    code = "import sys, pytorch_bridge, pytorch_bridge.types as t; t.schema_type('Tensor'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_public_name_is_there():
    for name in pb.__all__:
        assert getattr(pb, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = pb.nothing


def test_types_are_not_computed_from_values():
    x = TensorType("float32", (None,))("x")
    order = toposort([(x + 1).relu()])
    assert [str(n.op) for n in order] == ["add.Scalar{other=1}", "relu"]


ONE, NAN = torch.ones(2), torch.tensor([1.0, math.nan])


@pytest.mark.parametrize(
    ("schema", "value", "equal", "other"),
    [
        ("int", 3, 3, 4),
        ("float", 0.5, 0.5, 0.75),
        ("bool", True, True, False),
        ("Scalar", 1 + 2j, 1 + 2j, 1 - 2j),
        ("str", "a", "a", "b"),
        ("int?", None, None, 0),
        ("int?", 0, 0, None),
        ("int[]", [1, 2], [1, 2], [1]),
        ("float[]", [1.0], [1.0], [2.0]),
        ("Tensor?", None, None, ONE),
        ("Tensor?", ONE, ONE.clone(), None),
        ("Tensor[]", [ONE, NAN], [ONE.clone(), NAN.clone()], [ONE, ONE]),
        ("Tensor", ONE.to_sparse(), ONE.to_sparse(), ONE),
        ("Tensor", ONE * 1j, ONE * 1j, ONE * 2j),
        ("Tensor", ONE.bfloat16(), ONE.bfloat16(), 2 * ONE.bfloat16()),
    ],
)
def test_values_of_every_type_are_compared(schema, value, equal, other):
    t = schema_type(schema)
    for same in (t.values_eq, t.values_eq_approx):
        assert same(value, equal)
        assert same(value, value)
    assert not t.values_eq(value, other)


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_whether_values_share_memory():
    x = torch.ones(4)
    tensors, tensor = schema_type("Tensor[]"), schema_type("Tensor")
    assert tensors.may_share_memory([ONE, x[1:]], x)
    assert not tensors.may_share_memory([ONE, x.clone()], [x])
    csr = ONE.view(1, 2).to_sparse_csr()
    assert tensor.may_share_memory(csr, csr.values())
    assert not tensor.may_share_memory(csr, ONE)
    assert tensor.values_eq(csr, csr.clone())
    assert not tensor.values_eq(csr, 2 * csr)
