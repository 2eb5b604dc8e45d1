"""Traced and compiled: what extensions add, used from Python through one C function."""

# ruff: noqa: RUF012  # templates are written as in the documentation

from __future__ import annotations

import gc
import math
import operator
import sys

import pytest
import torch

from pytorch_bridge.extending import (
    AssignmentError,
    AttributeTemplate,
    BoxingError,
    CallableTemplate,
    DuplicateError,
    NativeValue,
    RegistrationError,
    TypingError,
    VarArg,
    box,
    infer,
    infer_getattr,
    intrinsic,
    jit,
    lower_builtin,
    lower_cast,
    lower_getattr,
    lower_getattr_generic,
    lower_setattr,
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
    typeof_impl,
    types,
    unbox,
)
from pytorch_bridge.testing.gotests import ensure_library

ensure_library()

f64, i64 = types.float64, types.int64


# A struct of three members, one of them a tensor


class Affine:
    """y = x * scale + shift, for a tensor of shifts."""

    def __init__(self, scale, shift, steps):
        self.scale, self.shift, self.steps = scale, shift, steps


class AffineType(types.Type):
    def __init__(self):
        super().__init__(name="Affine")


class Finer(Affine):
    pass


class FinerType(AffineType):
    pass


class Sibling(types.Type):
    pass


affine = AffineType()
SHIFT = types.Array("float32", (None,))


@pytest.fixture
def an_affine():
    """Everything that the struct needs, registered."""
    typeof_impl(Affine)(lambda val, c: affine)

    @register_model(AffineType)
    class AffineModel(models.StructModel):
        def __init__(self, dmm, fe_type):
            members = [("scale", f64), ("shift", SHIFT), ("steps", types.int32)]
            models.StructModel.__init__(self, dmm, fe_type, members)

    for name in ("scale", "shift", "steps"):
        make_attribute_wrapper(AffineType, name, name)

    @unbox(AffineType)
    def unbox_affine(typ, obj, c):
        made = c.struct(typ)
        made.scale = c.pyapi.float_as_double(c.pyapi.object_getattr_string(obj, "scale"))
        made.shift = c.unbox_value(SHIFT, c.pyapi.object_getattr_string(obj, "shift"))
        made.steps = c.unbox_value(types.int32, c.pyapi.object_getattr_string(obj, "steps"))
        return NativeValue(made._getvalue())

    @box(AffineType)
    def box_affine(typ, val, c):
        v = c.struct(typ, val)
        cls = c.pyapi.unserialize(c.pyapi.serialize_object(Affine))
        parts = (c.box(f64, v.scale), c.box(SHIFT, v.shift), c.box(types.int32, v.steps))
        return c.pyapi.call_function_objargs(cls, parts)

    @type_callable(Affine)
    def type_affine(context):
        def typer(scale, shift, steps):
            if isinstance(shift, types.Array):
                return affine

        return typer

    @lower_builtin(Affine, types.Float, types.Array, types.Integer)
    def make_affine(context, b, sig, args):
        made = context.make_struct(b, sig.return_type)
        made.scale, made.shift = args[0], args[1]
        made.steps = context.cast(b, args[2], sig.args[2], types.int32)
        return made._getvalue()

    return Affine(2.0, torch.tensor([1.0, -1.0]), 3)


# C2, C3: overload


def my_where(cond, x, y):
    raise NotImplementedError("only traced code calls it")


def test_c2_where_chooses_by_the_types_of_its_arguments():
    chosen = []

    @overload(my_where)
    def where(cond, x, y):
        if isinstance(cond, types.Array):
            if all(ty.layout == "C" for ty in (cond, x, y)):

                def where_impl(cond, x, y):
                    """Fast implementation for contiguous tensors."""
                    if x.shape != cond.shape or y.shape != cond.shape:
                        raise ValueError("all inputs should have the same shape")
                    chosen.append("contiguous")
                    return torch.where(cond, x, y)

            else:

                def where_impl(cond, x, y):
                    chosen.append("generic")
                    return cond * x + (~cond) * y

        else:

            def where_impl(cond, x, y):
                chosen.append("scalar")
                return x * cond + y * (1 - cond)

        return where_impl

    @jit
    def f(cond, x, y):
        return my_where(cond, x, y)

    x, y = torch.arange(6.0).reshape(2, 3), -torch.ones(2, 3)
    cond = x > 2
    assert torch.equal(f(cond, x, y), torch.where(cond, x, y))
    assert torch.equal(f(cond.t(), x.t(), y.t()), torch.where(cond, x, y).t())
    assert f(True, 3, 4) == 3
    assert f(False, 3, 4) == 4
    assert list(dict.fromkeys(chosen)) == ["contiguous", "generic", "scalar"]
    with pytest.raises(ValueError, match="all inputs should have the same shape"):
        f(cond, x, y[:1])


class Pair:
    def __init__(self, a, b):
        self.a, self.b = a, b


class PairType(types.Type):
    def __init__(self):
        super().__init__("Pair")


@pytest.fixture
def a_pair():
    """Two floats, without names for them."""
    typeof_impl(Pair)(lambda val, c: PairType())

    @register_model(PairType)
    class PairModel(models.StructModel):
        def __init__(self, dmm, fe_type):
            models.StructModel.__init__(self, dmm, fe_type, [("a", f64), ("b", f64)])

    @unbox(PairType)
    def unbox_pair(typ, obj, c):
        made = c.struct(typ)
        made.a = c.pyapi.float_as_double(c.pyapi.object_getattr_string(obj, "a"))
        made.b = c.pyapi.float_as_double(c.pyapi.object_getattr_string(obj, "b"))
        return NativeValue(made._getvalue())

    return Pair(1.5, 2.5)


def test_c3_len_of_a_new_type_works_and_of_a_tensor_is_unchanged(a_pair):
    @overload(len)
    def pair_len(x):
        if isinstance(x, PairType):
            return lambda x: 2
        return lambda x: 77  # what the core answers stays the core's

    @jit
    def f(p, x, t):
        return len(p), len(x), len(t), len((1, p))

    assert f(a_pair, torch.zeros(5, 2), (1.0, 2, 3.0)) == (2, 5, 3, 2)


def test_c4_all_none_is_a_typing_error_with_file_and_line(a_pair):
    @overload(my_where)
    def none_of_mine(cond, x, y):
        return None

    with pytest.raises(TypingError) as e:
        jit(lambda p: my_where(p, 1, 2))(a_pair)
    assert f"none_of_mine ({__file__}:{none_of_mine.__code__.co_firstlineno})" in str(e.value)


def test_c5_disagreeing_signatures_show_both(a_pair):
    overload_method(PairType, "foo")(lambda p, a_kwarg=None: lambda p, a_kwarg=12: a_kwarg)
    with pytest.raises(RegistrationError, match="default of 'a_kwarg' is None and 12"):
        jit(lambda p: p.foo())(a_pair)


def test_c6_keywords_and_defaults(a_pair):
    @overload_method(PairType, "foo")
    def foo(p, a_kwarg=10):
        def impl(p, a_kwarg=10):
            return a_kwarg

        return impl

    @jit
    def f(p, n):
        return p.foo(), p.foo(20), p.foo(a_kwarg=30), p.foo(n), p.foo(a_kwarg=n + 1)

    assert f(a_pair, 5) == (10, 20, 30, 5, 6)


def test_c7_an_attribute_of_tensors(an_affine):
    @overload_attribute(types.Array, "n_bytes")
    def array_nbytes(arr):
        def get(arr):
            return arr.numel() * arr.itemsize

        return get

    @jit
    def f(x, s):
        return x.n_bytes, s.shift.n_bytes

    assert f(torch.zeros(3, 4), an_affine) == (48, 8)
    assert f(torch.zeros(3, 4, dtype=torch.float64), an_affine) == (96, 8)


def test_c7_getter_setter_and_deleter(an_affine):
    @overload_attribute(AffineType, "twice")
    def twice(s):
        def get(s):
            return s.scale * 2

        def set(s, value):
            s.scale = value / 2

        def delete(s):
            s.scale = 0.0

        return get, set, delete

    @lower_setattr(AffineType, "scale")
    def set_scale(context, b, sig, args):
        target, value = args
        b.store(b.member(target, "scale", "double"), value)

    @jit
    def f(s, v):
        before = s.twice
        s.twice = v
        after = s.scale
        del s.twice
        return before, after, s.scale

    assert f(an_affine, 10.0) == (4.0, 5.0, 0.0)
    assert an_affine.scale == 2.0


def test_c8_a_method_is_inlined_and_inherited_by_subclasses_only(an_affine):
    typeof_impl(Finer)(lambda val, c: FinerType())

    @overload_method(AffineType, "take")
    def take(s, x):
        if isinstance(x, types.Array):

            def take_impl(s, x):
                return x * s.scale + s.shift

            return take_impl

    @jit
    def f(s, x):
        return s.take(x)

    x = torch.tensor([1.0, 2.0])
    assert f(an_affine, x).tolist() == [3.0, 3.0]
    assert f(Finer(3.0, x, 1), x).tolist() == [4.0, 8.0]
    graph = next(iter(f.specializations.values())).compiled.fgraph
    native = {str(node.op).partition(".")[0] for node in graph.toposort()}
    assert {"mul", "add"} <= native

    class Other: ...

    typeof_impl(Other)(lambda val, c: Sibling("Sibling"))
    register_model(Sibling)(models.OpaqueModel)
    with pytest.raises(TypingError, match="a value of type Sibling has no attribute 'take'"):
        f(Other(), x)
    with pytest.raises(TypingError, match=r"Affine\.take\(int64\)"):
        f(an_affine, 3)


def test_c9_members_are_read_and_not_assigned(an_affine):
    @jit
    def read(s):
        return s.scale, s.shift, s.steps

    scale, shift, steps = read(an_affine)
    assert (scale, shift.tolist(), steps) == (2.0, [1.0, -1.0], 3)

    @jit
    def write(s):
        s.scale = 3.0
        return s.scale

    with pytest.raises(AssignmentError, match="attribute scale of Affine cannot be assigned"):
        write(an_affine)


def test_c10_a_struct_crosses_intact(an_affine):
    @jit
    def through(s):
        return s

    back = through(an_affine)
    assert type(back) is Affine
    assert (back.scale, back.steps) == (2.0, 3)
    assert back.shift.tolist() == [1.0, -1.0]

    @jit
    def changed(s, x):
        return Affine(s.scale * 2, s.shift + x, s.steps + 1), s

    new, old = changed(an_affine, torch.tensor([1.0, 1.0]))
    assert (new.scale, new.shift.tolist(), new.steps) == (4.0, [2.0, 0.0], 4)
    assert (old.scale, old.shift.tolist(), old.steps) == (2.0, [1.0, -1.0], 3)


def test_c10_references_stay_flat(an_affine):
    from pytorch_bridge.native.extension import live_handles

    @jit
    def f(s):
        return Affine(s.scale, s.shift, s.steps)

    f(an_affine)
    gc.collect()
    before = live_handles(), sys.getrefcount(Affine), sys.getrefcount(an_affine)
    uses = torch._C._storage_Use_Count(an_affine.shift.untyped_storage()._cdata)
    for _ in range(2000):
        f(an_affine)
    an_affine.steps = 2**40
    for _ in range(200):
        with pytest.raises(OverflowError):
            f(an_affine)
    gc.collect()
    assert (live_handles(), sys.getrefcount(Affine), sys.getrefcount(an_affine)) == before
    assert torch._C._storage_Use_Count(an_affine.shift.untyped_storage()._cdata) == uses


def test_c11_a_value_without_a_type_is_a_constant_of_the_trace():
    class Settings:
        factor = 3

    @jit
    def f(x, s):
        return x * s.factor

    assert f(torch.ones(2), Settings()).tolist() == [3.0, 3.0]


def test_c16_real_and_imag_of_a_complex_tensor():
    @jit
    def f(x):
        return x.real + x.imag

    x = torch.tensor([1 + 2j, 3 - 1j])
    assert f(x).dtype == torch.float32
    assert f(x).tolist() == [3.0, 2.0]


# C17, C22: typing and C apart


def clamp(x, lo=None, hi=None):
    raise NotImplementedError


def test_c17_c22_a_callable_template_with_its_lowering(a_pair):
    @infer
    class Clamp(CallableTemplate):
        key = clamp

        def generic(self):
            def typer(x, lo, hi):
                if all(isinstance(t, types.Float) for t in (x, lo, hi)):
                    return signature(f64, f64, f64, f64)

            return typer

    @lower_builtin(clamp, types.Float, VarArg(types.Float))
    def lower_clamp(context, b, sig, args):
        x, lo, hi = args
        return b.select(x < lo, lo, b.select(x > hi, hi, x))

    @jit
    def f(x):
        return clamp(x, hi=2.0, lo=-1.0)

    assert [f(v) for v in (-5.0, 0.5, 7.0)] == [-1.0, 0.5, 2.0]
    with pytest.raises(TypingError, match="missing a required argument: 'hi'"):
        jit(lambda x: clamp(x, 1.0))(2.0)


def test_c22_getattr_specific_and_generic(a_pair):
    @infer_getattr
    class PairAttributes(AttributeTemplate):
        key = PairType

        def generic_resolve(self, ty, attr):
            return f64 if attr in ("first", "sum", "product") else None

    @lower_getattr(PairType, "first")
    def first(context, b, typ, value):
        return b.member(value, "a", "double")

    @lower_getattr_generic(PairType)
    def computed(context, b, typ, value, attr):
        a, c = (b.member(value, n, "double") for n in "ab")
        return a + c if attr == "sum" else a * c

    @jit
    def f(p):
        return p.first, p.sum, p.product

    assert f(a_pair) == (1.5, 4.0, 3.75)


def test_c23_setattr_specific_generic_neither(a_pair):
    make_attribute_wrapper(PairType, "a", "a")
    make_attribute_wrapper(PairType, "b", "b")

    @lower_setattr(PairType, "a")
    def set_a(context, b, sig, args):
        b.store(b.member(args[0], "a", "double"), args[1])

    @jit
    def both(p):
        p.a = 7.0
        p.b = 8.0
        return p.a, p.b

    with pytest.raises(AssignmentError, match="attribute b of Pair"):
        both(a_pair)

    @lower_setattr_generic(PairType)
    def set_any(context, b, sig, args, attr):
        b.store(b.member(args[0], attr, "double"), args[1] * 10)

    assert both(a_pair) == (7.0, 80.0)
    assert (a_pair.a, a_pair.b) == (1.5, 2.5)


def test_lowerings_can_call_torch_and_fail(a_pair):
    def outer(x, y):
        raise NotImplementedError

    @type_callable(outer)
    def type_outer(context):
        return lambda x, y: types.Array("float32", (None, None))

    @lower_builtin(outer, types.Array, types.Array)
    def lower_outer(context, b, sig, args):
        x, y = args
        n = b.call("SizeOf", x, 0)
        with b.if_(n > 3):
            b.fail("ValueError", "at most 3 rows, got {}", n)
        return b.call("MM", b.call("Unsqueeze", x, 1), b.call("Unsqueeze", y, 0))

    @jit
    def f(x, y):
        return outer(x, y).relu()

    x, y = torch.tensor([1.0, -2.0]), torch.tensor([3.0, 4.0, -5.0])
    assert torch.equal(f(x, y), torch.outer(x, y).relu())
    with pytest.raises(ValueError, match="at most 3 rows, got 4"):
        f(torch.ones(4), y)
    with pytest.raises(IndexError):
        jit(lambda x: outer(x, x))(torch.tensor(1.0).reshape(()))


# C20, C21: conversions


def test_c20_a_call_converts_what_it_is_given(a_pair):
    @lower_cast(PairType, types.Float)
    def pair_to_float(context, b, fromty, toty, val):
        return b.member(val, "a", "double") + b.member(val, "b", "double")

    @jit
    def f(p, n):
        return math.sqrt(p), math.sqrt(n), float(p)

    assert f(a_pair, 9) == (2.0, 3.0, 4.0)


def test_c21_truth_of_one_element_works_and_of_two_raises():
    @jit
    def f(x):
        return bool(x)

    assert f(torch.tensor([3.0])) is True
    assert f(torch.tensor(0)) is False
    with pytest.raises(RuntimeError, match="more than one value is ambiguous"):
        f(torch.tensor([1.0, 2.0]))
    g = jit(lambda n, x: (bool(n), bool(x)))
    assert [g(n, float(n)) for n in (0, 2)] == [(False, False), (True, True)]


def test_c21_the_truth_of_a_new_type(a_pair):
    @lower_cast(PairType, types.Boolean)
    def pair_is_true(context, b, fromty, toty, val):
        return b.member(val, "a", "double") != 0

    f = jit(lambda p: bool(p))
    assert f(a_pair) is True
    assert f(Pair(0.0, 1.0)) is False


def test_int_and_float_of_tensors():
    f = jit(lambda x: (int(x), float(x)))
    assert f(torch.tensor(3)) == (3, 3.0)
    assert f(torch.tensor([2.75])) == (2, 2.75)
    with pytest.raises(OverflowError):
        f(torch.tensor(math.inf))


# C24, C25: to Python and back


def test_c24_a_missing_boxer_is_an_error_only_where_the_value_is_returned(a_pair):
    make_attribute_wrapper(PairType, "a", "a")
    assert jit(lambda p: p.a)(a_pair) == 1.5
    with pytest.raises(BoxingError, match="type Pair cannot be returned to Python: no @box"):
        jit(lambda p: p)(a_pair)


def test_c24_a_missing_unboxer():
    class Lonely: ...

    typeof_impl(Lonely)(lambda val, c: Sibling("Sibling"))
    register_model(Sibling)(models.OpaqueModel)
    with pytest.raises(BoxingError, match=r"type Sibling cannot be passed from Python: no @unbox"):
        jit(lambda p, x: x.relu())(Lonely(), torch.ones(1))


def test_c25_the_exceptions_type_survives(an_affine):
    @jit
    def f(s):
        return s.scale

    del an_affine.steps
    with pytest.raises(AttributeError, match="steps"):
        f(an_affine)
    an_affine.steps, an_affine.scale = 1, "two"
    with pytest.raises(TypeError, match="must be real number, not str"):
        f(an_affine)
    an_affine.scale, an_affine.shift = 2.0, torch.zeros(1, 1)
    with pytest.raises(TypeError, match="expected TensorType"):
        f(an_affine)

    class Raises(Affine):
        @property
        def scale(self):
            raise ZeroDivisionError("no scale")

        @scale.setter
        def scale(self, value): ...

    with pytest.raises(ZeroDivisionError, match="no scale"):
        f(Raises(1.0, torch.zeros(1), 1))


def test_c25_is_error_and_cleanup():
    class Buffer:
        log = []

        def __init__(self, n):
            self.n = n

        def open(self):
            Buffer.log.append(f"open {self.n}")
            return float(self.n)

        def close(self):
            Buffer.log.append(f"close {self.n}")

    class BufferType(types.Type):
        def __init__(self):
            super().__init__("Buffer")

    typeof_impl(Buffer)(lambda val, c: BufferType())

    @register_model(BufferType)
    class BufferModel(models.PrimitiveModel):
        def __init__(self, dmm, fe_type):
            models.PrimitiveModel.__init__(self, dmm, fe_type, "double")

    @unbox(BufferType)
    def unbox_buffer(typ, obj, c):
        value = c.pyapi.float_as_double(c.pyapi.call_method(obj, "open"))
        negative = value < 0
        with c.builder.if_(negative):
            c.pyapi.err_set_string("PyExc_ValueError", "a negative buffer")
        opened = c.builder.variable("bool", True)

        def cleanup():
            with c.builder.if_(opened):
                c.builder.emit(f'Py_XDECREF(PyObject_CallMethod({obj.text}, "close", NULL));')

        return NativeValue(value, is_error=negative, cleanup=cleanup)

    @lower_cast(BufferType, types.Float)
    def buffer_to_float(context, b, fromty, toty, val):
        return val

    f = jit(lambda x, b: x * float(b))
    assert f(torch.ones(1), Buffer(3)).tolist() == [3.0]
    assert Buffer.log == ["open 3", "close 3"]
    Buffer.log.clear()
    with pytest.raises(ValueError, match="a negative buffer"):
        f(torch.ones(1), Buffer(-1))
    assert Buffer.log == ["open -1", "close -1"]
    Buffer.log.clear()

    class NotOne:
        def open(self):
            return "text"

        _bridge_type_ = BufferType()

    with pytest.raises(TypeError, match="must be real number"):
        jit(lambda a, b: float(a) + float(b))(Buffer(5), NotOne())
    assert Buffer.log == ["open 5", "close 5"]


def test_cleanup_may_call_python_and_fail():
    class Lease:
        log = []

        def __init__(self, n, closes=True):
            self.n, self.closes = n, closes

        def close(self, what, n):
            Lease.log.append((what, n))
            if not self.closes:
                raise OSError("does not close")

        def after(self):
            Lease.log.append("after")

    class LeaseType(types.Type):
        def __init__(self):
            super().__init__("Lease")

    typeof_impl(Lease)(lambda val, c: LeaseType())

    @register_model(LeaseType)
    class LeaseModel(models.PrimitiveModel):
        def __init__(self, dmm, fe_type):
            models.PrimitiveModel.__init__(self, dmm, fe_type, "double")

    @unbox(LeaseType)
    def unbox_lease(typ, obj, c):
        number = c.pyapi.object_getattr_string(obj, "n")
        value = c.pyapi.float_as_double(number)

        def cleanup():
            with c.builder.if_(number != None):  # noqa: E711  # in C
                word = c.pyapi.unserialize(c.pyapi.serialize_object(("closed", 1)))
                c.pyapi.call_method(obj, "close", [word, c.pyapi.float_from_double(value)])
                c.builder.check(value < 10, "ValueError", "{} is too much", value)
                c.pyapi.call_method(obj, "after")

        return NativeValue(value, cleanup=cleanup)

    @lower_cast(LeaseType, types.Float)
    def lease_to_float(context, b, fromty, toty, val):
        return val

    f = jit(lambda a, b: float(a) + float(b))
    first, closed = Lease(1), ("closed", 1)
    assert f(first, Lease(2)) == 3.0
    assert sorted(map(str, Lease.log)) == sorted(
        map(str, [(closed, 1.0), (closed, 2.0), "after", "after"])
    )
    Lease.log.clear()
    references = sys.getrefcount(first), sys.getrefcount(closed)
    for _ in range(100):
        f(first, first)
    Lease.log.clear()
    assert (sys.getrefcount(first), sys.getrefcount(closed)) == references
    Lease.log.clear()
    assert f(first, Lease(2, closes=False)) == 3.0
    assert Lease.log.count("after") == 1
    Lease.log.clear()
    assert f(first, Lease(20)) == 21.0
    assert Lease.log.count("after") == 1
    Lease.log.clear()
    with pytest.raises(TypeError, match="must be real number"):
        f(Lease("text"), Lease(2))
    assert (closed, 2.0) not in Lease.log


# intrinsic, register_jitable


def test_intrinsic_has_typing_and_c_in_one_place():
    @intrinsic
    def fma(typingctx, x, y, z):
        if all(isinstance(t, types.Float) for t in (x, y, z)):

            def codegen(context, b, sig, args):
                return b.c_call("fma", *args, returns="double")

            return signature(f64, f64, f64, f64), codegen

    f = jit(lambda x, y: fma(x, y, 1.0))
    assert f(2.0, 3.0) == 7.0
    with pytest.raises(
        TypingError, match=r"fma \(.*:\d+\) is not for \(Literal\[1\], float64, Literal"
    ):
        jit(lambda y: fma(1, y, 1.0))(2.0)
    with pytest.raises(TypingError, match=r"fma .* is C: it can be called in traced code only"):
        fma(1.0, 2.0, 3.0)
    with pytest.raises(TypingError, match="missing a required argument: 'z'"):
        jit(lambda y: fma(y, y))(2.0)


@register_jitable
def helper(x, k=2):
    return abs(x) * k


def test_register_jitable_stays_callable_and_is_traced(a_pair):
    overload(abs)(lambda x: (lambda x: 5.0) if isinstance(x, PairType) else None)
    f = jit(lambda p: helper(p, k=3))
    assert f(a_pair) == 15.0
    assert helper(-4) == 8


# What is traced


def test_operators_of_a_new_type(a_pair):
    make_attribute_wrapper(PairType, "a", "a")
    make_attribute_wrapper(PairType, "b", "b")
    overload(operator.mul)(
        lambda p, x: (lambda p, x: p.a * x + p.b) if isinstance(p, PairType) else None
    )
    overload(operator.getitem)(
        lambda p, i: (lambda p, i: p.a if i == 0 else p.b) if isinstance(p, PairType) else None
    )
    f = jit(lambda p, x: (p * x, p[0], p[1], x * 2))
    y, a, b, twice = f(a_pair, torch.tensor([2.0]))
    assert (y.tolist(), a, b, twice.tolist()) == ([5.5], 1.5, 2.5, [4.0])


def test_branching_on_a_value_says_what_to_use_instead():
    @jit
    def f(x, n):
        if n > 3:
            return x
        return -x

    with pytest.raises(TypingError) as e:
        f(torch.ones(2), 4)
    assert "is not known while the function is traced" in str(e.value)
    assert f"{__file__}:" in str(e.value)
    assert "if n > 3:" in str(e.value)
    assert "torch.where(condition, a, b)" in str(e.value)
    with pytest.raises(TypingError, match=r"torch.where"):
        jit(lambda x: x if x.sum() > 0 else -x)(torch.ones(2))
    with pytest.raises(TypingError, match="needs the value of"):
        jit(lambda n: sum(range(n)))(4)


def test_branching_on_types_sizes_and_constants_works():
    traced = []

    @jit
    def f(x, mode, flip=False):
        traced.append(1)
        if isinstance(x, torch.Tensor) and x.dtype is torch.float32 and x.ndim == 2:
            x = x + 1
        if x.shape[0] > 2:
            x = x[:2]
        for i in range(len(x)):
            x = x * (i + 1)
        if mode == "neg" and not flip:
            x = -x
        return x

    x = torch.ones(3, 2)
    assert f(x, "neg").tolist() == [[-4.0, -4.0]] * 2
    assert f(x, "pos").tolist() == [[4.0, 4.0]] * 2
    assert f(torch.ones(1, 2), "pos").tolist() == [[2.0, 2.0]]
    assert f(x, "neg", flip=True).tolist() == [[4.0, 4.0]] * 2
    assert f(x.double(), "pos").tolist() == [[2.0, 2.0]] * 2
    n = len(traced)
    assert f(x + 1, "neg").tolist() == [[-6.0, -6.0]] * 2
    assert len(traced) == n


def test_one_graph_for_all_sizes_unless_one_is_looked_at():
    traced = []

    @jit
    def f(x):
        traced.append(1)
        return x.reshape(x.shape[1], -1) * x.shape[0]

    for shape in ((2, 3), (4, 6), (1, 5)):
        x = torch.randn(shape)
        assert torch.equal(f(x), x.reshape(shape[1], -1) * shape[0])
    assert len(traced) == 1
    assert len(f.specializations) == 1


def test_writing_into_a_tensor_is_refused():
    for f in (
        lambda x: x.add_(1),
        lambda x: torch.relu_(x),
        lambda x: torch.add(x, 1, out=x),
        lambda x: operator.setitem(x, 0, 1.0),
    ):
        with pytest.raises(TypingError, match="writes into a tensor"):
            jit(f)(torch.ones(2))

    def assigns(x):
        x[0] = 1.0
        return x

    with pytest.raises(TypingError, match="writes into a tensor"):
        jit(assigns)(torch.ones(2))

    def adds(x):
        y = x
        y += 1
        return y

    x = torch.ones(2)
    assert jit(adds)(x).tolist() == [2.0, 2.0]
    assert x.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.max(dim=1).values,
        lambda x: x.sort().indices,
        lambda x: torch.min(x, dim=0),
        lambda x: (torch.topk(x, 1), [x.aminmax()]),
        lambda x: torch.linalg.slogdet(x @ x.T).logabsdet,
        lambda x: torch.stack(torch.cummax(x, 0)[:1]),
        lambda x: len(x.median(1)) * x.median(1)[0],
    ],
)
def test_results_have_the_names_that_pytorch_gives_them(f):
    x = torch.tensor([[1.0, 5.0, 2.0], [3.0, 0.0, 9.0]])
    found, expected = jit(f)(x), f(x)
    assert type(found) is type(expected)
    assert str(found) == str(expected)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.cpu(),
        lambda x: x.byte(),
        lambda x: x.short(),
        lambda x: x.char(),
        lambda x: x.cdouble(),
        lambda x: x.type(torch.int32),
        lambda x: x.type("torch.DoubleTensor"),
        lambda x: x if x.type() == "torch.FloatTensor" else -x,
        lambda x: x.to("cpu"),
        lambda x: x.to(torch.device("cpu"), torch.float64),
        lambda x: x.to(device="cpu", copy=True),
        lambda x: torch.norm(x),
        lambda x: torch.norm(x, 1, dim=0, keepdim=True),
        lambda x: torch.norm(x, "nuc"),
        lambda x: x.norm(dim=1, dtype=torch.float64),
        lambda x: x.norm(3),
        lambda x: x + torch.zeros(2, 3),
        lambda x: x + torch.ones(x.shape[0], 3),
    ],
)
def test_conversions_and_norms_are_pytorchs(f):
    x = torch.tensor([[1.0, 5.0, 2.0], [3.0, 0.0, 9.0]])
    torch.testing.assert_close(jit(f)(x), f(x))


@pytest.mark.parametrize(
    ("f", "instead"),
    [
        (lambda x: x.cuda(), r'write x.to\("cuda"\)'),
        (lambda x: x.numpy(), "return the tensor, and convert"),
        (lambda x: x.tolist(), "return the tensor, and convert"),
    ],
)
def test_what_a_traced_tensor_lacks_says_what_to_write_instead(f, instead):
    with pytest.raises(TypingError, match=instead):
        jit(f)(torch.ones(2))


def test_a_tensor_method_whose_name_a_variable_has_too():
    x = torch.arange(6.0).reshape(2, 3)
    for f in (lambda x: x.clone(), lambda x: x.clone() + x, lambda x: x.t().clone()):
        y = jit(f)(x)
        assert torch.equal(y, f(x))
        assert y.data_ptr() != x.data_ptr()
    y = jit(lambda x: x.clone(memory_format=torch.contiguous_format))(x.t())
    assert torch.equal(y, x.t())
    assert y.is_contiguous()


def test_functions_methods_and_operators_of_torch():
    import torch.nn.functional as F

    def f(x, w, t):
        h = F.gelu(F.linear(x, w))
        h = torch.softmax(h, -1) @ w
        a = torch.cat([h, x], dim=1)[:, 1:3].sum(dim=-1)
        loss = F.cross_entropy(F.linear(x, w), t)
        return a, loss, -abs(x).max(), x**2 // 3 != 0

    x, w, t = torch.randn(4, 3), torch.randn(3, 3), torch.tensor([0, 1, 2, 0])
    for got, expected in zip(jit(f)(x, w, t), f(x, w, t), strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=0)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = torch.nn.LayerNorm(6), torch.nn.Linear(6, 6)
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x):
        h = self.norm(x) + self.drop(self.linear(x))
        q, k, v = h.chunk(3, -1)
        return torch.einsum("ij,kj->ik", q, k) @ v


F = torch.nn.functional
BLOCK = Block().eval()


@pytest.mark.parametrize(
    "f",
    [
        lambda x, i, n: BLOCK(x),
        lambda x, i, n: F.max_pool2d(F.pad(i, (1, 1)), 2),
        lambda x, i, n: F.conv2d(i, torch.ones(2, 3, 3, 3), padding=1).mean((2, 3)),
        lambda x, i, n: F.scaled_dot_product_attention(i, i, i),
        lambda x, i, n: F.interpolate(
            F.batch_norm(i, torch.zeros(3), torch.ones(3)), scale_factor=2
        ),
        lambda x, i, n: torch.zeros(x.shape) + torch.ones(x.shape[0], 1) + torch.arange(6),
        lambda x, i, n: x[n] + x[:, 1:3].sum() + x[..., None][0, 0] + x[:n].sum(),
        lambda x, i, n: torch.where(x > 0, x, 0.0) + x.masked_fill(x < 0, 1.0),
        lambda x, i, n: (
            sum(x.split(2, dim=1)) + torch.stack([r * k for k, r in enumerate(x)])[:, :2]
        ),
        lambda x, i, n: x.norm() + x.std() + x.sum().item() * n + 2**n,
        lambda x, i, n: x.view(-1).reshape(2, -1).permute(1, 0).flatten().view(6, 4),
        lambda x, i, n: (1 - x) / (2 / (x + 10)) + 2**x + x**2 % 3,
        lambda x, i, n: F.one_hot(x.argmax(1), 6) + x.topk(2)[0].sum() + x.T.mT.sum(),
        lambda x, i, n: x.size(0) * x.numel() + x.dim() + x.double().to(torch.int64).type_as(x),
    ],
)
def test_what_pytorch_brings_needs_no_extension(f):
    torch.manual_seed(1)
    x, i = torch.randn(4, 6), torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(jit(f)(x, i, 2), f(x, i, 2))


def test_random_functions_are_random_at_each_call():
    f = jit(lambda x: x + torch.randn(2) + torch.rand_like(x))
    x = torch.zeros(2)
    torch.manual_seed(0)
    a, b = f(x), f(x)
    torch.manual_seed(0)
    assert torch.equal(f(x), a)
    assert not torch.equal(a, b)


def test_numbers_are_python_numbers():
    def f(n, x, b):
        return n + 2, n * x, n // 2, n % 3, -n, x / n, n > 3, n == 7, max(n, 9), abs(x), b

    compiled = jit(f)
    for args in ((7, 0.5, True), (-7, -2.25, False)):
        found = compiled(*args)
        assert found == f(*args)
        assert list(map(type, found)) == list(map(type, f(*args)))


def test_math_is_pythons():
    f = jit(lambda x: (math.exp(x), math.sin(x), math.tanh(x)))
    assert f(0.5) == pytest.approx((math.exp(0.5), math.sin(0.5), math.tanh(0.5)), rel=1e-15)
    for function, value in ((math.sqrt, -1.0), (math.log, 0.0), (math.log, -1.0)):
        with pytest.raises(ValueError, match="math domain error"):
            jit(lambda x, function=function: function(x))(value)
    with pytest.raises(OverflowError, match="math range error"):
        jit(lambda x: math.exp(x))(1e6)
    assert math.isnan(jit(lambda x: math.sqrt(x))(math.nan))


def test_closures_helpers_and_jitted_functions_are_traced():
    k = 3

    def local(x):
        return len(x) * k

    inner = jit(lambda x: x.relu() + local(x))

    @jit
    def f(x):
        return [g(x) for g in (inner, torch.neg)], {"n": local(x)}

    x = torch.tensor([-1.0, 2.0])
    (a, b), named = f(x)
    assert (a.tolist(), b.tolist(), named) == ([6.0, 8.0], [1.0, -2.0], {"n": 6})


def test_a_module_with_its_weights_as_constants():
    m = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    x = torch.randn(5, 3)
    with torch.no_grad():
        assert torch.equal(jit(lambda x: m(x))(x), m(x))


def test_tuples_go_in_and_out():
    @jit
    def f(pair, x):
        a, (b, c) = pair
        return (a + x, b), c * 2

    (a, b), c = f((torch.ones(2), (3, 0.5)), torch.ones(2))
    assert (a.tolist(), b, c) == ([2.0, 2.0], 3, 1.0)


def test_keywords_defaults_and_wrong_arguments():
    @jit
    def f(x, *, scale=2.0, name="a"):
        return x * scale + len(name)

    x = torch.ones(1)
    assert f(x).item() == 3.0
    assert f(x, scale=3.0, name="abc").item() == 6.0
    with pytest.raises(TypeError, match="unexpected keyword argument 'other'"):
        f(x, other=1)
    with pytest.raises(TypeError, match="missing a required argument"):
        f()


def test_constants_lists_and_dimensions():
    traced = []

    @jit(constants=("dim",))
    def f(xs, dim):
        traced.append(dim)
        return torch.cat(xs, dim).sum(dim)

    a, b = torch.ones(2, 3), torch.zeros(2, 3)
    assert f([a, b], 0).tolist() == [2.0, 2.0, 2.0]
    assert f([a, b], dim=1).tolist() == [3.0, 3.0]
    assert f([b, a], 0).tolist() == [2.0, 2.0, 2.0]
    assert traced == [0, 1]
    with pytest.raises(ValueError, match="f has no parameter 'n'"):
        jit(constants=("n",))(f.function)


@pytest.mark.parametrize("mode", ["py", "opwise", "dual"])
def test_every_mode_runs_registered_c(an_affine, mode):
    f = jit(lambda s, x: (s.shift + x, math.sqrt(s.scale), s), mode=mode)
    shift, root, s = f(an_affine, torch.ones(2))
    assert (shift.tolist(), root, type(s)) == ([2.0, 0.0], math.sqrt(2.0), Affine)


def test_a_function_without_source(a_pair):
    overload(len)(lambda x: (lambda x: 2) if isinstance(x, PairType) else None)
    names = {"helper": helper, "flag": int}
    exec("def f(p, x):\n    return len(p) + helper(x, k=3), isinstance(x, flag), int(x)", names)
    assert jit(names["f"])(a_pair, -4) == (14, True, -4)


def test_errors_in_the_function_propagate_with_their_lines():
    @jit
    def f(x):
        return {}["missing"]

    with pytest.raises(KeyError) as e:
        f(torch.ones(1))
    assert e.traceback[-1].path.name == "test_ext_jit.py"
    assert e.traceback[-1].lineno + 1 == f.function.__code__.co_firstlineno + 2


def test_an_unknown_attribute_names_the_type_and_what_there_is(an_affine):
    with pytest.raises(
        TypingError, match="Affine has no attribute 'offset': registered are scale, shift, steps"
    ):
        jit(lambda s: s.offset)(an_affine)
    assert jit(lambda s: getattr(s, "offset", 4) + hasattr(s, "scale"))(an_affine) == 5


def test_gradients_flow_through_tensor_arguments():
    f = jit(lambda x, n: (x * x * n).sum())
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    f(x, 3).backward()
    assert x.grad.tolist() == [6.0, 12.0]
    assert f(x.detach(), 0.5) == 2.5
    x.grad = None
    f(x, 0.5).backward()  # as the call before, but for the gradient
    assert x.grad.tolist() == [1.0, 2.0]
    with torch.no_grad():
        assert not f(x, 0.5).requires_grad


def test_gradients_of_tensors_within_structs_are_refused(an_affine):
    f = jit(lambda s: s.shift * s.scale)
    an_affine.shift.requires_grad_()
    with pytest.raises(RuntimeError, match="records no gradient, and this tensor requires one"):
        f(an_affine)
    with torch.no_grad():
        assert f(an_affine).tolist() == [2.0, -2.0]


def test_a_value_whose_type_cannot_be_told_is_no_constant():
    class Undecided: ...

    @typeof_impl(Undecided)
    def undecided(val, c):
        return None

    with pytest.raises(TypingError, match=r"Undecided: .*undecided .* returned None"):
        jit(lambda x: 3)(Undecided())
    with pytest.raises(TypingError, match="64 bits"):
        jit(lambda x: x)(2**70)
    with pytest.raises(TypeError, match="must have a type, or a hash as a constant"):
        jit(lambda x: 3)({})


def test_sparse_tensors_are_arguments_too():
    x = torch.eye(3).to_sparse()
    assert torch.equal(jit(lambda x, y: torch.mm(x, y))(x, torch.ones(3, 2)), torch.ones(3, 2))


def test_a_registration_of_an_extension_that_is_there_already():
    make = lambda: overload(my_where)(test_tuples_go_in_and_out)  # noqa: E731
    make()
    with pytest.raises(DuplicateError):
        make()


def test_a_wrapper_of_a_member_that_the_struct_lacks_is_refused():
    class OneType(types.Type):
        def __init__(self):
            super().__init__(name="One")

    class SomeType(types.Type):
        def __init__(self, names=("lo",)):
            self.names = names
            super().__init__(name=f"Some{names}")

    @register_model(OneType)
    class OneModel(models.StructModel):
        def __init__(self, dmm, fe_type):
            models.StructModel.__init__(self, dmm, fe_type, [("lo", types.float64)])

    @register_model(SomeType)
    class SomeModel(models.StructModel):
        def __init__(self, dmm, fe_type):
            members = [(name, types.float64) for name in fe_type.names]
            models.StructModel.__init__(self, dmm, fe_type, members)

    for typ in (OneType, OneType(), SomeType()):
        make_attribute_wrapper(typ, "lo", "low")
        with pytest.raises(RegistrationError, match="no member 'hi'; its members: lo"):
            make_attribute_wrapper(typ, "hi", "high")
    make_attribute_wrapper(SomeType, "hi", "high")  # some of its types may have it


def test_an_overload_that_calls_itself_without_end_is_an_error():
    def twice(x):
        raise AssertionError

    @overload(twice)
    def over(x):
        return lambda x: twice(x)

    @overload_method(types.Array, "again")
    def method(x):
        return lambda x: x.again()

    @overload_attribute(types.Array, "more")
    def attribute(x):
        return lambda x: x.more

    for f, name in (
        (lambda x: twice(x), "over"),
        (lambda x: x.again(), "method"),
        (lambda x: x.more, "attribute"),
    ):
        with pytest.raises(TypingError, match=rf"{name} \(.*calls itself without end"):
            jit(f)(torch.ones(2))


def test_an_overload_may_call_itself_for_another_constant():
    def power(x, n):
        raise AssertionError

    @overload(power)
    def over(x, n):
        if isinstance(n, types.Literal):
            return lambda x, n: x * power(x, n - 1) if n else torch.ones_like(x)
        return None

    assert jit(lambda x: power(x, 3))(torch.tensor([2.0])).item() == 8


def test_what_typeof_must_return_is_said():
    class Wrong:
        pass

    @typeof_impl(Wrong)
    def typed(val, c):
        return 3

    with pytest.raises(RegistrationError, match=r"must return a Type for a value of .*Wrong"):
        jit(lambda a: 1)(Wrong())
