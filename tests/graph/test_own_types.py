"""Types that users derive from this package's: their values go through their own `filter`, and no
type is taken for another."""

import functools
import itertools

import pytest
import torch
from doubles import VersionedDouble

import pytorch_bridge as pb
from pytorch_bridge import Apply, CType, FunctionGraph, Generic, Op, TensorType, Type, function, ops
from pytorch_bridge.errors import BridgeTypeError, MissingMethodError
from pytorch_bridge.rewrite.merge import merge
from pytorch_bridge.types import generic, schema_type


class PositiveObject(Generic):
    def filter(self, value, strict=False, allow_downcast=None):
        if not value > 0:
            raise TypeError(f"expected something positive, got {value!r}")
        return value


class PositiveTensor(TensorType):
    def filter(self, value, strict=False, allow_downcast=None):
        value = super().filter(value, strict, allow_downcast)
        if not bool((value > 0).all()):
            raise TypeError(f"expected something positive, got {value!r}")
        return value


class HoldsPositive(TensorType):
    """The same by another method."""

    def holds(self, value):
        return super().holds(value) and bool((value > 0).all())

    def _fits(self, t):
        return super()._fits(t) and bool((t > 0).all())


class PositiveNumber(type(schema_type("float"))):
    def filter(self, value, strict=False, allow_downcast=None):
        value = super().filter(value, strict, allow_downcast)
        if not value > 0:
            raise TypeError(f"expected something positive, got {value!r}")
        return value


class PositiveDouble(VersionedDouble):
    def filter(self, value, strict=False, allow_downcast=None):
        value = super().filter(value, strict, allow_downcast)
        if not value > 0:
            raise TypeError(f"expected something positive, got {value!r}")
        return value


class Positive(Type):
    def filter(self, value, strict=False, allow_downcast=None):
        if not value > 0:
            raise TypeError(f"expected something positive, got {value!r}")
        return value


class Same(Op):
    __props__ = ()
    view_map = {0: [0]}  # noqa: RUF012

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = inputs[0]


def positive():
    return [
        (PositiveObject(), 2, -2),
        (PositiveTensor("float32", (None,)), torch.ones(2), -torch.ones(2)),
        (HoldsPositive("float32", (None,)), torch.ones(2), -torch.ones(2)),
        (PositiveNumber("float", "float"), 2.0, -2.0),
        (PositiveDouble(), 2.0, -2.0),
        (Positive(), 2, -2),
    ]


@pytest.mark.parametrize("mode", ["c", "py", "opwise"])
def test_values_go_through_the_filter_of_the_type(mode):
    for t, good, bad in positive():
        x, y = t("x"), TensorType("float32", (2,))("y")
        f = function([x, y], [Same()(x), y * 2], mode=mode)
        assert bool(torch.as_tensor(f(good, torch.ones(2))[0] == good).all()), t
        with pytest.raises(BridgeTypeError, match=r"input 0 \(x\).*positive|expected"):
            f(bad, torch.ones(2))
        single = function(x, Same()(x), mode=mode)
        with pytest.raises(BridgeTypeError):
            single(bad)
        with pytest.raises(BridgeTypeError):
            single(x=bad)


def test_values_of_built_in_types_go_to_the_c_code_at_once():
    for t in (TensorType("float32", (2,)), schema_type("int"), schema_type("Tensor?"), generic):
        x = t("x")
        assert function(x, Same()(x)).direct is not None
    for t, *_ in positive()[:-1]:
        x = t("x")
        assert function(x, Same()(x)).direct is None


# One type is not another -------------------------------------------------------------------------


class CDouble(Generic):
    """A number in C, whatever it derives from."""

    def filter(self, value, strict=False, allow_downcast=None):
        return float(value)

    def c_declare(self, name, sub, check_input=True):
        return f"double {name};"

    def c_init(self, name, sub):
        return f"{name} = 0.0;"

    def c_extract(self, name, sub, check_input=True, **kwargs):
        return f"{name} = PyFloat_AsDouble(py_{name});"

    def c_sync(self, name, sub):
        return f"Py_XDECREF(py_{name}); py_{name} = PyFloat_FromDouble({name});"

    def c_cleanup(self, name, sub):
        return ""


class Units(TensorType):
    """Tensors in a unit, with a function of their own in C."""

    def __init__(self, dtype, shape, unit="m", **kwargs):
        super().__init__(dtype, shape, **kwargs)
        self.unit = unit

    def c_support_code(self):
        return [*super().c_support_code(), f"static int unit_{self.unit}(void) {{ return 7; }}"]


class Labelled(Generic):
    def __init__(self, label):
        self.label = label


def different():
    return [
        generic,
        CDouble(),
        Labelled("a"),
        Labelled("b"),
        Labelled(0.0),
        Labelled(-0.0),
        TensorType("float32", (2,)),
        Units("float32", (2,)),
        Units("float32", (2,), "kg"),
        PositiveTensor("float32", (2,)),
        HoldsPositive("float32", (2,)),
        schema_type("float"),
        PositiveNumber("float", "float"),
        VersionedDouble(),
        PositiveDouble(),
    ]


def test_types_of_different_classes_are_different():
    for (i, a), (j, b) in itertools.product(enumerate(different()), enumerate(different())):
        assert (a == b) == (i == j), (a, b)
        if i == j:
            assert hash(a) == hash(b)
            assert a.is_super(b)


def test_what_a_type_computes_when_it_is_asked_is_no_difference():
    class Bounded(TensorType):
        def __init__(self, bound):
            super().__init__("float32", (2,))
            self.bound = bound

        @functools.cached_property
        def shown(self):
            return object()

    one, two = Bounded(1.0), Bounded(1.0)
    assert one.shown is not None
    assert one == two != Bounded(2.0)
    assert one.is_super(two)


def test_a_subclass_is_part_of_its_class_but_not_the_reverse():
    plain, units, kg = (t for t in different()[6:9])
    assert plain.is_super(units)
    assert not units.is_super(plain)
    assert not units.is_super(kg)
    assert Units("float32", (None,)).is_super(units)
    x = units("x")
    assert torch.equal(function(x, ops.exp(x))(torch.zeros(2)), torch.ones(2))
    assert ops.exp(x).type == plain


def test_generic_is_no_type_of_c_values():
    objects = [generic, Labelled("a"), Labelled("b"), Labelled(0.0), Labelled(-0.0)]
    for t in different():
        assert bool(generic.is_super(t)) == (t in objects), t
        assert not CDouble().is_super(t) or type(t) is CDouble
    assert generic.is_super(Positive())


class Length(Op):
    """Takes any object."""

    itypes = (generic,)
    otypes = (schema_type("int"),)
    __props__ = ()

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = len(str(inputs[0]))

    def c_code(self, node, name, inputs, outputs, sub):
        return f"""{{
  PyObject *text = PyObject_Str({inputs[0]});
  if (!text) {sub["fail"]}
  {outputs[0]} = PyUnicode_GetLength(text);
  Py_DECREF(text);
}}"""

    def c_code_cache_version(self):
        return (1,)


@pytest.mark.parametrize("mode", ["c", "py", "debug", "opwise"])
def test_what_takes_any_object_gets_objects(mode):
    values = {CDouble(): 2.5, schema_type("int"): 12345, TensorType("float32", ()): torch.ones(())}
    values |= {schema_type("str"): "abc", Positive(): 3, generic: None, VersionedDouble(): 1.5}
    for t, value in values.items():
        x = t("x")
        assert function(x, Length()(x), mode=mode)(value) == len(str(value)), t
    with pytest.raises(MissingMethodError):
        function(x := CDouble()("x"), Length()(x), mode="c_only")


def test_c_code_of_a_type_is_there_next_to_one_that_derives_from_it():
    class Seven(Op):
        __props__ = ()

        def make_node(self, x, y):
            return Apply(self, [x, y], [schema_type("int")()])

        def c_code(self, node, name, inputs, outputs, sub):
            return f"{outputs[0]} = unit_m() + unit_kg();"

        def c_code_cache_version(self):
            return (1,)

    plain = TensorType("float32", (None,))("plain")
    metres, kg = Units("float32", (None,))("metres"), Units("float32", (None,), "kg")("kg")
    f = function([plain, metres, kg], [plain + 1, Seven()(metres, kg)], mode="c_only")
    assert f(torch.ones(1), torch.ones(1), torch.ones(1))[1] == 14


def test_constants_of_types_that_are_not_equal_stay_apart():
    ends = [
        Same()(t.make_constant(1.5)) for t in (CDouble(), generic, Labelled("a"), Labelled("b"))
    ]
    graph = FunctionGraph([], ends)
    merge(graph)
    assert len(graph.apply_nodes) == 4
    assert isinstance(CDouble(), CType)
    assert not isinstance(pb.Type(), CType)
