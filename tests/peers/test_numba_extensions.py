"""Programs as authors of extensions write them: the function on Python's own objects is the oracle.

After the extensions of vector (objects with coordinates), Awkward Array (views of lists of different
lengths), numba-scipy (functions of C with several signatures) and Bodo (columns), in our own words.
"""

from __future__ import annotations

import ctypes
import gc
import math
import operator
import sys

import pytest
import torch

from pytorch_bridge.extending import (
    AttributeTemplate,
    NativeValue,
    TypingError,
    box,
    cgutils,
    infer_getattr,
    intrinsic,
    jit,
    lower_builtin,
    lower_cast,
    lower_getattr_generic,
    make_attribute_wrapper,
    models,
    overload,
    overload_attribute,
    overload_method,
    register_model,
    signature,
    type_callable,
    typeof,
    typeof_impl,
    types,
    unbox,
)
from pytorch_bridge.extending.graph_ops import LoweredOp
from pytorch_bridge.testing.gotests import ensure_library

pytestmark = pytest.mark.usefixtures("unregistered")
ensure_library()

i64, f64 = types.int64, types.float64


# Objects with coordinates --------------------------------------------------------------------------


class Cartesian:
    def __init__(self, x, y):
        self.x, self.y = x, y


class Polar:
    def __init__(self, r, phi):
        self.r, self.phi = r, phi

    @property
    def x(self):
        return self.r * math.cos(self.phi)

    @property
    def y(self):
        return self.r * math.sin(self.phi)


class Vector:
    def __init__(self, plane):
        self.plane = plane

    @property
    def x(self):
        return self.plane.x

    @property
    def y(self):
        return self.plane.y

    def dot(self, other):
        return self.x * other.x + self.y * other.y

    def scaled(self, factor=2.0, *, offset=0.0):
        return type(self)(Cartesian(self.x * factor + offset, self.y * factor + offset))

    def __add__(self, other):
        return type(self)(Cartesian(self.x + other.x, self.y + other.y))

    def __mul__(self, k):
        return type(self)(Cartesian(self.x * k, self.y * k))

    __rmul__ = __mul__

    def __neg__(self):
        return type(self)(Cartesian(-self.x, -self.y))

    def __abs__(self):
        return math.sqrt(self.dot(self))

    def __eq__(self, other):
        return self.x == other.x and self.y == other.y

    def __bool__(self):
        return self.x != 0 or self.y != 0

    __hash__ = None


class Momentum(Vector):
    @property
    def px(self):
        return self.x

    def transverse(self):
        return abs(self)


class PlaneType(types.Type):
    fields = ()

    def __init__(self):
        super().__init__(type(self).__name__)


class CartesianType(PlaneType):
    fields = ("x", "y")


class PolarType(PlaneType):
    fields = ("r", "phi")


class VectorType(types.Type):
    cls = Vector

    def __init__(self, plane):
        super().__init__(f"{type(self).__name__}({plane})")
        self.plane = plane


class MomentumType(VectorType):
    cls = Momentum


PLANES = {Cartesian: CartesianType, Polar: PolarType}


@pytest.fixture
def vectors():
    for cls, t in PLANES.items():
        typeof_impl(cls)(lambda val, c, t=t: t())
        for name in t.fields:
            register_model_of(t, name)
        type_callable(cls)(lambda context, t=t: lambda a, b: t() if numbers(a, b) else None)
        lower_builtin(cls, types.Number, types.Number)(make_plane)
    for name in ("x", "y"):
        trigonometric(name)

    @typeof_impl(Vector)
    def typeof_vector(val, c):
        cls = MomentumType if isinstance(val, Momentum) else VectorType
        return cls(c.typeof(val.plane))

    @register_model(VectorType)
    @register_model(MomentumType)
    class Model(models.StructModel):
        def __init__(self, dmm, fe_type):
            super().__init__(dmm, fe_type, [("plane", fe_type.plane)])

    make_attribute_wrapper(VectorType, "plane", "plane")

    @unbox(VectorType)
    def unbox_vector(typ, obj, c):
        made = cgutils.create_struct_proxy(typ)(c.context, c.builder)
        plane = c.pyapi.object_getattr_string(obj, "plane")
        made.plane = c.pyapi.to_native_value(typ.plane, plane).value
        c.pyapi.decref(plane)
        return NativeValue(made._getvalue(), cgutils.is_not_null(c.builder, c.pyapi.err_occurred()))

    @box(VectorType)
    def box_vector(typ, val, c):
        cls = c.pyapi.unserialize(c.pyapi.serialize_object(typ.cls))
        given = cgutils.create_struct_proxy(typ)(c.context, c.builder, value=val)
        plane = c.pyapi.from_native_value(typ.plane, given.plane)
        made = c.pyapi.call_function_objargs(cls, (plane,))
        c.pyapi.decref(cls)
        c.pyapi.decref(plane)
        return made

    for cls, t in ((Vector, VectorType), (Momentum, MomentumType)):
        type_callable(cls)(
            lambda context, t=t: lambda p: t(p) if isinstance(p, PlaneType) else None
        )
        lower_builtin(cls, PlaneType)(make_vector)
    for name in ("x", "y"):
        overload_attribute(VectorType, name)(reader(name))
    overload_attribute(MomentumType, "px")(lambda v: lambda v: v.x)
    overload_method(MomentumType, "transverse")(lambda v: lambda v: abs(v))
    register_vector_operators()


def register_model_of(t, name):
    """The plane's struct, once, and one of its members as an attribute."""
    if name == t.fields[0]:
        members = [(n, f64) for n in t.fields]

        @register_model(t)
        class Model(models.StructModel):
            def __init__(self, dmm, fe_type):
                super().__init__(dmm, fe_type, members)

        @unbox(t)
        def unbox_plane(typ, obj, c):
            made = c.struct(typ)
            for n in typ.fields:
                value = c.pyapi.object_getattr_string(obj, n)
                setattr(made, n, c.pyapi.float_as_double(value))
            return NativeValue(made._getvalue())

        @box(t)
        def box_plane(typ, val, c):
            cls = next(k for k, v in PLANES.items() if v is type(typ))
            given = c.struct(typ, val)
            parts = [c.pyapi.float_from_double(getattr(given, n)) for n in typ.fields]
            made = c.pyapi.unserialize(c.pyapi.serialize_object(cls))
            return c.pyapi.call_function_objargs(made, parts)

    make_attribute_wrapper(t, name, name)


def make_plane(context, builder, sig, args):
    made = context.make_helper(builder, sig.return_type)
    for name, value, t in zip(sig.return_type.fields, args, sig.args, strict=True):
        setattr(made, name, context.cast(builder, value, t, f64))
    return made._getvalue()


def make_vector(context, builder, sig, args):
    made = context.make_struct(builder, sig.return_type)
    made.plane = args[0]
    return made._getvalue()


def trigonometric(name):
    function = {"x": math.cos, "y": math.sin}[name]
    overload_attribute(PolarType, name)(lambda p: lambda p: p.r * function(p.phi))


def reader(name):
    def typed(v):
        return lambda v: getattr(v.plane, name)

    return typed


def numbers(*args):
    return all(isinstance(t, types.Number) for t in args)


def register_vector_operators():
    def both(a, b):
        return isinstance(a, VectorType) and isinstance(b, VectorType)

    @overload_method(VectorType, "dot")
    def dot(v, other):
        if isinstance(other, VectorType):
            return lambda v, other: v.x * other.x + v.y * other.y

    @overload_method(VectorType, "scaled")
    def scaled(v, factor=2.0, *, offset=0.0):
        cls = v.cls

        def impl(v, factor=2.0, *, offset=0.0):
            return cls(Cartesian(v.x * factor + offset, v.y * factor + offset))

        return impl

    @overload(operator.add)
    def add(a, b):
        if both(a, b):
            cls = a.cls
            return lambda a, b: cls(Cartesian(a.x + b.x, a.y + b.y))

    @overload(operator.mul)
    def mul(a, b):
        if isinstance(a, VectorType) and numbers(b):
            cls = a.cls
            return lambda a, b: cls(Cartesian(a.x * b, a.y * b))
        if numbers(a) and isinstance(b, VectorType):
            return lambda a, b: b * a

    @overload(operator.neg)
    def neg(a):
        if isinstance(a, VectorType):
            cls = a.cls
            return lambda a: cls(Cartesian(-a.x, -a.y))

    @overload(abs)
    def length(a):
        return (lambda a: math.sqrt(a.dot(a))) if isinstance(a, VectorType) else None

    @overload(operator.eq)
    def eq(a, b):
        return (lambda a, b: (a.x == b.x) & (a.y == b.y)) if both(a, b) else None

    @lower_cast(VectorType, types.Boolean)
    def is_true(context, b, fromty, toty, val):
        plane = context.make_struct(b, fromty, val).plane
        parts = context.make_struct(b, fromty.plane, plane)
        found = [getattr(parts, n) != 0 for n in fromty.plane.fields]
        return found[0] | found[1] if fromty.plane.fields[0] == "x" else found[0]


def coordinates(v):
    if isinstance(v, Vector):
        return type(v), type(v.plane), v.x, v.y
    return tuple(map(coordinates, v)) if isinstance(v, (tuple, list)) else v


def test_objects_with_coordinates(vectors):
    def f(a, b, k):
        return (
            *(a + b, k * a, a * k, -a, a.scaled(), a.scaled(k, offset=1), a.scaled(factor=k)),
            *(abs(a), a.dot(b), a == b, bool(a), a.x, b.y, [a, (b,)]),
        )

    def momentum(p):
        return p.px, p.transverse(), p + p, p

    g, h = jit(f), jit(momentum)
    objects = [
        *(Vector(Cartesian(1.0, 2.5)), Vector(Polar(2.0, 0.5)), Momentum(Polar(0.0, 1.0))),
        *(Momentum(Cartesian(math.nan, -0.0)),),
    ]
    for a, b in ((0, 1), (1, 0), (2, 3), (3, 3), (0, 0)):
        given = objects[a], objects[b], 3
        assert repr(coordinates(g(*given))) == repr(coordinates(f(*given)))
    for p in objects[2:]:
        assert repr(coordinates(h(p))) == repr(coordinates(momentum(p)))
    with pytest.raises(AttributeError, match="has no attribute 'px'"):
        h(objects[0])
    with pytest.raises(TypingError, match=r"no implementation of add\(VectorType"):
        jit(lambda a: a + 1)(objects[0])
    wrong = Vector(Cartesian("one", 2))
    with pytest.raises(TypeError, match="must be real number, not str"):
        g(wrong, wrong, 1)


# Views of lists of different lengths ---------------------------------------------------------------


class Jagged:
    """Lists of numbers one after another: list i is content[offsets[i]:offsets[i + 1]]."""

    def __init__(self, offsets, content, behavior):
        self.offsets, self.content, self.behavior = offsets, content, behavior

    def __len__(self):
        return len(self.offsets) - 1

    def __getitem__(self, i):
        n = len(self)
        if not -n <= i < n:
            raise IndexError("index out of range")
        i = i + n if i < 0 else i
        return self.content[int(self.offsets[i]) : int(self.offsets[i + 1])]

    def sums(self):
        return torch.stack([self[i].sum() for i in range(len(self))])


class JaggedType(types.Type):
    def __init__(self, content, behavior):
        super().__init__(f"Jagged({content}, {behavior!r})")
        self.offsets = types.Array("int64", (None,))
        self.content, self.behavior = content, behavior


@pytest.fixture
def lists():
    @typeof_impl(Jagged)
    def typeof_jagged(val, c):
        return JaggedType(types.Array(c.typeof(val.content).dtype, (None,)), type(val.behavior))

    @register_model(JaggedType)
    class Model(models.StructModel):
        def __init__(self, dmm, fe_type):
            members = [("offsets", fe_type.offsets), ("content", fe_type.content)]
            super().__init__(dmm, fe_type, [*members, ("held", types.pyobject)])

    make_attribute_wrapper(JaggedType, "offsets", "offsets")
    make_attribute_wrapper(JaggedType, "content", "content")

    @unbox(JaggedType)
    def unbox_jagged(typ, obj, c):
        made = c.context.make_helper(c.builder, typ)
        for name, t in (("offsets", typ.offsets), ("content", typ.content)):
            part = c.pyapi.object_getattr_string(obj, name)
            setattr(made, name, c.pyapi.to_native_value(t, part).value)
        made.held = c.pyapi.object_getattr_string(obj, "behavior")
        return NativeValue(made._getvalue())

    @box(JaggedType)
    def box_jagged(typ, val, c):
        given = c.struct(typ, val)
        parts = [
            *(c.box(typ.offsets, given.offsets), c.box(typ.content, given.content)),
            c.box(types.pyobject, given.held),
        ]
        cls = c.pyapi.unserialize(c.pyapi.serialize_object(Jagged))
        return c.pyapi.call_function_objargs(cls, parts)

    @overload(len)
    def length(v):
        return (lambda v: v.offsets.shape[0] - 1) if isinstance(v, JaggedType) else None

    @intrinsic
    def piece(context, v, i):
        def codegen(context, b, sig, args):
            given = context.make_struct(b, sig.args[0], args[0])
            info = b.call("GetTensorInfo", given.offsets)
            n = b.load(b.member(info, "sizes", "const int64_t *"), 0) - 1
            i = args[1]
            b.check((i < n) & (i >= -n), "IndexError", "index out of range")
            i = b.variable("int64_t", b.select(i < 0, i + n, i))
            data = b.cast(b.call("TensorData", given.offsets), "const int64_t *")
            first, last = b.load(data, i), b.load(data, i + 1)
            return b.call("SliceDim", given.content, 0, first, last, 1)

        if isinstance(v, JaggedType) and isinstance(i, types.Integer):
            return signature(v.content, v, i64), codegen

    @overload(operator.getitem)
    def item(v, i):
        return (lambda v, i: piece(v, i)) if isinstance(v, JaggedType) else None

    @overload_method(JaggedType, "sums")
    def sums(v):
        def impl(v):
            lengths = v.offsets[1:] - v.offsets[:-1]
            rows = torch.repeat_interleave(lengths)
            zeros = torch.zeros(lengths.shape[0], dtype=v.content.dtype)
            return zeros.index_add(0, rows, v.content)

        return impl


def test_views_of_lists(lists):
    def f(v, i):
        return len(v), v[i], v[-1], v[i].sum() + v[0].sum(), v.sums()

    g = jit(f)
    for dtype in (torch.float64, torch.int64):
        content = torch.arange(6, dtype=dtype)
        v = Jagged(torch.tensor([0, 2, 2, 6]), content, object())
        for i in (0, 1, 2, -1, -3):
            for a, b in zip(g(v, i), f(v, i), strict=True):
                assert type(a) is type(b)
                assert a == b if isinstance(a, int) else torch.equal(a, b)
        for i in (3, -4):
            with pytest.raises(IndexError, match="index out of range"):
                g(v, i)
    assert len(g.specializations) == 2
    for s in g.specializations.values():  # references to the object are counted under the lock
        lowered = [n for n in s.compiled.fgraph.toposort() if isinstance(n.op, LoweredOp)]
        assert lowered
        assert all(n.op.c_needs_gil(n) for n in lowered)
    with pytest.raises(TypingError, match="keep the size in its type"):
        jit(lambda v: [x.sum() for x in v])(v)
    same = jit(lambda v: v)
    behavior = v.behavior
    before = sys.getrefcount(behavior), sys.getrefcount(v.content)
    for _ in range(200):
        back = same(v)
        assert back.behavior is behavior
    del back
    gc.collect()
    assert (sys.getrefcount(behavior), sys.getrefcount(v.content)) == before
    v.offsets = v.offsets.int()
    with pytest.raises(TypeError, match="int64"):
        g(v, 0)


# Functions of C with several signatures ------------------------------------------------------------


class CFunction(types.Opaque):
    """A function of ctypes: its address is a value, its signature a part of the type."""

    def __init__(self, returns, *args):
        super().__init__(f"C function {args} -> {returns}")
        self.returns, self.args = returns, args

    @property
    def key(self):
        return self.returns, self.args


C_TYPES = {ctypes.c_double: f64, ctypes.c_long: i64, ctypes.c_int: types.int32}


def address(function):
    return ctypes.cast(function, ctypes.c_void_p).value


@pytest.fixture
def c_functions():
    @typeof_impl(ctypes._CFuncPtr)
    def typeof_function(val, c):
        return CFunction(C_TYPES[val.restype], *(C_TYPES[t] for t in val.argtypes))

    @unbox(CFunction)
    def unbox_function(typ, obj, c):
        get = c.pyapi.unserialize(c.pyapi.serialize_object(address))
        found = c.pyapi.long_as_longlong(c.pyapi.call_function_objargs(get, [obj]))
        return NativeValue(c.builder.cast(found, "void *"))

    @intrinsic
    def call(context, f, *args):
        def codegen(context, b, sig, args):
            given = [context.get_value_type(t) for t in sig.args[1:]]
            returns = context.get_value_type(sig.return_type)
            target = f"(({returns} (*)({', '.join(given)})){args[0].text})"
            return b.variable(returns, b.c_call(target, *args[1:], returns=returns))

        if isinstance(f, CFunction) and len(f.args) == len(args):
            return signature(f.returns, f, *f.args), codegen

    return call


def test_functions_of_c_by_their_addresses(c_functions):
    library = ctypes.CDLL(None)

    def c_function(name, returns, *args):
        found = getattr(library, name)
        found.restype, found.argtypes = returns, list(args)
        return found

    d, n = ctypes.c_double, ctypes.c_long
    pow_, labs = c_function("pow", d, d, d), c_function("labs", n, n)
    fma = c_function("fma", d, d, d, d)
    g = jit(lambda f, *args: c_functions(f, *args))
    for f, args in ((pow_, (2.0, 0.5)), (pow_, (2, 3)), (labs, (-5,)), (fma, (2.0, 3.0, 4.0))):
        assert g(f, *args) == f(*args)
        assert type(g(f, *args)) is type(f(*args))
    hypot = c_function("hypot", d, d, d)
    n_before = len(g.specializations)
    assert g(hypot, 3.0, 4.0) == 5.0  # of the type of pow: the address is a value
    assert len(g.specializations) == n_before
    with pytest.raises(TypingError, match="it returned None"):
        g(pow_, 1.0)


def test_a_function_for_signatures_that_are_listed():
    def bessel(*args):
        raise NotImplementedError

    kernels = {(f64,): "j0", (types.int64, f64): "jn"}

    def kernel(name):
        @intrinsic
        def call(context, *args):
            def codegen(context, b, sig, args):
                return b.c_call(name, *args, returns="double")

            return signature(f64, *args), codegen

        return call

    found = {args: kernel(name) for args, name in kernels.items()}

    @overload(bessel)
    def choose(*args):
        call = found.get(tuple(args))
        return (lambda *args: call(*args)) if call else None

    g = jit(lambda *args: bessel(*args))
    j0, j1 = 0.7651976865579666, 0.4400505857449335
    assert g(1.0) == pytest.approx(j0, rel=1e-15)
    assert g(1, 1.0) == pytest.approx(j1, rel=1e-15)
    assert jit(lambda x: bessel(1, x))(1.0) == pytest.approx(j1, rel=1e-15)  # a constant
    with pytest.raises(TypingError, match=r"no implementation of .*bessel"):
        g(1.0, 1.0)


# Columns -------------------------------------------------------------------------------------------


class Series:
    def __init__(self, data, name):
        self.data, self.name = data, name

    def mean(self):
        return self.data.mean()

    def __add__(self, other):
        return Series(self.data + (other.data if isinstance(other, Series) else other), self.name)

    def __gt__(self, other):
        return Series(self.data > other, self.name)


class Frame:
    def __init__(self, columns, data):
        self.columns, self.data = columns, data

    def __getattr__(self, name):
        columns = self.__dict__.get("columns", ())
        if name not in columns:
            raise AttributeError(name)
        return Series(self.data[columns.index(name)], name)

    def __getitem__(self, key):
        if isinstance(key, Series):
            return Frame(self.columns, tuple(d[key.data] for d in self.data))
        return getattr(self, key)

    def assign(self, name, series):
        return Frame((*self.columns, name), (*self.data, series.data))


class SeriesType(types.Type):
    def __init__(self, data, name):
        super().__init__(f"Series({data}, {name!r})")
        self.data, self.title = data, name


class FrameType(types.Type):
    def __init__(self, columns, data):
        super().__init__(f"Frame({columns}, {data})")
        self.columns, self.data = columns, data


def any_size(t):
    return types.Array(t.dtype, (None,) * t.ndim)


@pytest.fixture
def columns():
    @typeof_impl(Series)
    def typeof_series(val, c):
        return SeriesType(any_size(c.typeof(val.data)), val.name)

    @typeof_impl(Frame)
    def typeof_frame(val, c):
        return FrameType(val.columns, types.Tuple([any_size(c.typeof(d)) for d in val.data]))

    for t in (SeriesType, FrameType):
        register_columns(t)

    @type_callable(Series)
    def type_series(context):
        def typer(data, name):
            if isinstance(data, types.Array) and isinstance(name, types.StringLiteral):
                return SeriesType(any_size(data), name.literal_value)

        return typer

    @type_callable(Frame)
    def type_frame(context):
        def typer(columns, data):
            if isinstance(columns, types.BaseTuple) and isinstance(data, types.BaseTuple):
                names = tuple(t.literal_value for t in columns)
                return FrameType(names, types.Tuple([any_size(t) for t in data]))

        return typer

    @infer_getattr
    class Columns(AttributeTemplate):
        key = FrameType

        def generic_resolve(self, ty, attr):
            if attr in ty.columns:
                return SeriesType(ty.data[ty.columns.index(attr)], attr)

    @lower_getattr_generic(FrameType)
    def column(context, builder, typ, value, attr):
        i = typ.columns.index(attr)
        frame = context.make_struct(builder, typ, value)
        made = context.make_struct(builder, SeriesType(typ.data[i], attr))
        made.data = getattr(context.make_struct(builder, typ.data, frame.data), f"f{i}")
        return made._getvalue()

    overload_method(SeriesType, "mean")(lambda s: lambda s: s.data.mean())

    @overload(operator.add)
    def add(s, other):
        if isinstance(s, SeriesType):
            name = s.title
            if isinstance(other, SeriesType):
                return lambda s, other: Series(s.data + other.data, name)
            return lambda s, other: Series(s.data + other, name)

    @overload(operator.gt)
    def gt(s, other):
        if isinstance(s, SeriesType):
            name = s.title
            return lambda s, other: Series(s.data > other, name)

    @overload(operator.getitem)
    def item(frame, key):
        if not isinstance(frame, FrameType):
            return None
        if isinstance(key, types.StringLiteral):
            name = key.literal_value
            return lambda frame, key: getattr(frame, name)
        if isinstance(key, SeriesType):
            names = frame.columns

            def rows(frame, key):
                kept = tuple([getattr(frame, n).data[key.data] for n in names])
                return Frame(names, kept)

            return rows

    @overload_method(FrameType, "assign")
    def assign(frame, name, series):
        if isinstance(name, types.StringLiteral):
            names = frame.columns
            longer = (*names, name.literal_value)

            def impl(frame, name, series):
                parts = tuple([getattr(frame, n).data for n in names])
                return Frame(longer, (*parts, series.data))

            return impl


def register_columns(t):
    cls = {SeriesType: Series, FrameType: Frame}[t]

    @register_model(t)
    class Model(models.StructModel):
        def __init__(self, dmm, fe_type):
            super().__init__(dmm, fe_type, [("data", fe_type.data)])

    make_attribute_wrapper(t, "data", "data")

    @unbox(t)
    def unbox_columns(typ, obj, c):
        made = c.struct(typ)
        made.data = c.unbox_value(typ.data, c.pyapi.object_getattr_string(obj, "data"))
        return NativeValue(made._getvalue())

    @box(t)
    def box_columns(typ, val, c):
        data = c.box(typ.data, c.struct(typ, val).data)
        title = typ.title if t is SeriesType else typ.columns
        known = c.pyapi.unserialize(c.pyapi.serialize_object(title))
        made = c.pyapi.unserialize(c.pyapi.serialize_object(cls))
        return c.pyapi.call_function_objargs(
            made, (data, known) if t is SeriesType else (known, data)
        )

    lower_builtin(
        cls, *((types.Array, types.UnicodeType), (types.BaseTuple, types.BaseTuple))[t is FrameType]
    )(lambda context, b, sig, args: make_columns(context, b, sig, args, t))


def make_columns(context, b, sig, args, t):
    made = context.make_struct(b, sig.return_type)
    i = 0 if t is SeriesType else 1
    made.data = context.cast(b, args[i], sig.args[i], sig.return_type.data)
    return made._getvalue()


def parts(value):
    if isinstance(value, Series):
        return "Series", value.name, value.data.tolist()
    if isinstance(value, Frame):
        return "Frame", value.columns, [d.tolist() for d in value.data]
    return [parts(v) for v in value] if isinstance(value, (list, tuple)) else value.tolist()


def test_columns(columns):
    def f(frame):
        dear = frame[frame.price > 1.5]
        both = frame.price + frame["count"]
        longer = frame.assign("both", both + 1)
        return frame.price, dear, both, longer, longer.both.mean(), [frame.price + 2, (dear,)]

    g = jit(f)
    for n in (3, 5):
        frame = Frame(("price", "count"), (torch.arange(n) * 0.75, torch.arange(n)))
        assert parts(g(frame)) == parts(f(frame))
    assert len(g.specializations) == 1
    other = Frame(("count", "price"), frame.data[::-1])
    assert parts(g(other)) == parts(f(other))
    assert len(g.specializations) == 2
    with pytest.raises(AttributeError, match="has no attribute 'cost'"):
        jit(lambda frame: frame.cost)(other)
    with pytest.raises(TypingError, match=r"no implementation of sub\(Series"):
        jit(lambda frame: frame.price - 1)(other)
    same, data = jit(lambda frame: frame), frame.data[0]
    before = sys.getrefcount(data)
    for _ in range(200):
        same(frame)
    gc.collect()
    assert sys.getrefcount(data) == before
    assert typeof(frame) == typeof(Frame(frame.columns, tuple(d.clone() for d in frame.data)))
