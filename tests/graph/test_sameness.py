"""When one value may stand for another: in parameters of ops, constants, and what is merged."""

import collections
import dataclasses
import enum
import itertools
import struct
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch

import pytorch_bridge as pb
from pytorch_bridge import Apply, FunctionGraph, Op, Type
from pytorch_bridge.graph.basic import Constant
from pytorch_bridge.rewrite.merge import merge
from pytorch_bridge.sameness import key, same


def nan(bits):
    return struct.unpack("<d", struct.pack("<Q", bits))[0]


class Celsius(float):
    pass


class Tagged(float):
    def __init__(self, value):
        self.tag = object()


class Colour(enum.IntEnum):
    RED = 1


class Shade(enum.IntEnum):
    RED = 1


class Word(str, enum.Enum):
    A = "a"


Pair = collections.namedtuple("Pair", "a b")
Point = collections.namedtuple("Point", "a b")


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: object


@dataclasses.dataclass(frozen=True)
class Thawed(Frozen):
    a: object

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 0


class Lying(type):
    def __eq__(cls, other):
        return True

    def __hash__(cls):
        return 0


class OneLie(int, metaclass=Lying):
    pass


class Equal:
    """Equal to all."""

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 0


# Makers of values: two of one maker may stand for each other, two of different ones may not.
MAKERS = [
    lambda: 1,
    lambda: True,
    lambda: 1.0,
    lambda: 1 + 0j,
    lambda: "1",
    lambda: b"1",
    lambda: Celsius(1),
    lambda: Colour.RED,
    lambda: Shade.RED,
    lambda: Word.A,
    lambda: "a",
    lambda: 0.0,
    lambda: -0.0,
    lambda: nan(0x7FF8000000000000),
    lambda: nan(0xFFF8000000000000),
    lambda: nan(0x7FF8000000000005),
    lambda: complex(0.0, -0.0),
    lambda: complex(0.0, 0.0),
    lambda: complex(-0.0, 0.0),
    lambda: np.float64(1),
    lambda: np.float32(1),
    lambda: np.int8(1),
    lambda: np.uint8(1),
    lambda: np.bool_(True),
    lambda: np.float32(0.0),
    lambda: np.float32(-0.0),
    lambda: np.str_("1"),
    lambda: np.datetime64(1, "s"),
    lambda: np.datetime64(1000, "ms"),
    lambda: np.dtype("<f4"),
    lambda: np.dtype(">f4"),
    lambda: torch.float32,
    lambda: torch.device("cpu"),
    lambda: "cpu",
    lambda: "torch.float32",
    lambda: torch.strided,
    lambda: torch.preserve_format,
    lambda: torch.Size([1, 2]),
    lambda: (1, 2),
    lambda: (1, 2.0),
    lambda: [1, 2],
    lambda: Pair(1, 2),
    lambda: Point(1, 2),
    lambda: range(0),
    lambda: range(1, 1),
    lambda: slice(1, 2),
    lambda: slice(True, 2),
    lambda: frozenset([0.0]),
    lambda: frozenset([-0.0]),
    lambda: {0.0},
    lambda: {1: "a", 2: "b"},
    lambda: {2: "b", 1: "a"},
    lambda: {True: "a", 2: "b"},
    lambda: Decimal("1.0"),
    lambda: Decimal("1.00"),
    lambda: Decimal("0"),
    lambda: Decimal("-0"),
    lambda: Decimal("NaN"),
    lambda: Decimal("sNaN"),
    lambda: Decimal("Infinity"),
    lambda: Fraction(1),
    lambda: None,
    lambda: ...,
    lambda: int,
    lambda: bool,
    lambda: Frozen(0.0),
    lambda: Frozen(-0.0),
    lambda: Frozen((np.float32(1),)),
    lambda: Thawed(1),
    lambda: Thawed(2),
    lambda: pb.TensorType("float32", (None,)),
    lambda: pb.TensorType("float32", (1,)),
]


def test_two_values_are_the_same_if_nothing_tells_them_apart():
    for i, j in itertools.product(range(len(MAKERS)), repeat=2):
        a, b = MAKERS[i](), MAKERS[j]()
        assert same(a, b) == (i == j), (a, b)
        assert (key(a) == key(b)) == (i == j), (a, b)
        if i == j:
            assert hash(key(a)) == hash(key(b)), a


def test_what_is_not_known_is_itself_only():
    for make in (
        object,
        Equal,
        lambda: Tagged(1),
        lambda: OneLie(1),
        lambda: lambda: 1,
        lambda: np.zeros(1),
    ):
        a, b = make(), make()
        assert same(a, a)
        assert same((a,), (a,))
        assert not same(a, b)
        assert not same((a, 1), (b, 1))
    # A key keeps its object: no other object gets its id.
    assert len({key(object()) for _ in range(100)}) == 100


class Scale(Op):
    """Its parameter is not looked at by what it computes."""

    __props__ = ("k",)

    def __init__(self, k):
        self.k = k

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = inputs[0] * self.k


class Careless(Scale):
    __props__ = None

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 0


class Anything(Type):
    def filter(self, value, strict=False, allow_downcast=None):
        return value

    def __eq__(self, other):
        return type(self) is type(other)

    def __hash__(self):
        return hash(type(self))


@pytest.mark.parametrize("kind", [Scale, Careless])
def test_ops_are_merged_as_their_parameters_are_the_same(kind):
    x = pb.TensorType("float32", (None,))("x")
    made = [make() for make in MAKERS for _ in range(2)]
    graph = FunctionGraph([x], [kind(k)(x) for k in made])
    merge(graph)
    assert len(graph.apply_nodes) == len(MAKERS)
    assert all(same(node.owner.op.k, k) for node, k in zip(graph.outputs, made, strict=True))


def test_constants_of_any_type_are_merged_as_their_values_are_the_same():
    makers = [*MAKERS, Equal, object]
    made = [make() for make in makers for _ in range(2)]
    variables = [Anything().make_constant(v) for v in made]
    ends = [Scale(i)(v) for i, v in enumerate(variables)]
    graph = FunctionGraph([], ends)
    merge(graph)
    assert sum(isinstance(v, Constant) for v in graph.variables) == len(MAKERS) + 4
    for node, value in zip(graph.outputs, made, strict=True):
        assert same(node.owner.inputs[0].data, value) or value is node.owner.inputs[0].data


@pytest.mark.parametrize("mode", ["c", "py"])
def test_an_infinity_does_not_become_a_nan(mode):
    class Divide(Op):
        __props__ = ("by",)

        def __init__(self, by):
            self.by = by

        def make_node(self, x):
            return Apply(self, [x], [x.type()])

        def perform(self, node, inputs, output_storage):
            output_storage[0][0] = inputs[0] / torch.tensor(float(self.by))

    x = pb.TensorType("float32", (1,))("x")
    for zero in (float, np.float32, np.float64):
        ends = [Divide(zero(0.0))(x), Divide(zero(-0.0))(x)]
        f = pb.function([x], [*ends, ends[0] - ends[1]], mode=mode)
        assert [float(v) for v in f(torch.ones(1))] == [torch.inf, -torch.inf, torch.inf]
