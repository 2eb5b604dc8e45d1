"""Between Python and C: boxers that fail, strings, cleanups, and parts of structs."""

from __future__ import annotations

import operator
import threading

import pytest
import torch

from pytorch_bridge.extending import (
    AbstractTemplate,
    AssignmentError,
    ConcreteTemplate,
    NativeValue,
    RegistrationError,
    TypingError,
    box,
    infer,
    intrinsic,
    jit,
    lower_builtin,
    lower_setattr_generic,
    make_attribute_wrapper,
    models,
    overload,
    register_model,
    signature,
    type_callable,
    typeof_impl,
    types,
    unbox,
)
from pytorch_bridge.testing.gotests import ensure_library

ensure_library()

f64, i64, text = types.float64, types.int64, types.unicode_type


def struct(cls, members, assigned=True, cleanup=None):
    """Everything for a class whose objects are structs of their attributes; returns its type."""

    class StructType(types.Type):
        def __init__(self):
            super().__init__(name=cls.__name__)

    made = StructType()
    typeof_impl(cls)(lambda val, c: made)

    @register_model(StructType)
    class Model(models.StructModel):
        def __init__(self, dmm, fe_type):
            models.StructModel.__init__(self, dmm, fe_type, members)

    for name, _ in members:
        make_attribute_wrapper(StructType, name, name)

    @unbox(StructType)
    def unboxer(typ, obj, c):
        s = c.struct(typ)
        for name, t in members:
            setattr(s, name, c.unbox_value(t, c.pyapi.object_getattr_string(obj, name)))

        def emit():
            note = c.pyapi.unserialize(c.pyapi.serialize_object(cleanup))
            c.pyapi.call_function_objargs(note, [c.box(*_first(members, s))])

        return NativeValue(s._getvalue(), cleanup=emit if cleanup else None)

    @box(StructType)
    def boxer(typ, val, c):
        s = c.struct(typ, val)
        made = c.pyapi.unserialize(c.pyapi.serialize_object(cls))
        return c.pyapi.call_function_objargs(made, [c.box(t, getattr(s, n)) for n, t in members])

    @type_callable(cls)
    def type_constructor(context):
        def typer(*args):
            return made if len(args) == len(members) else None

        return typer

    @lower_builtin(cls, *[types.Type] * len(members))
    def construct(context, b, sig, args):
        s = context.make_struct(b, made)
        for (name, t), v, given in zip(members, args, sig.args, strict=True):
            setattr(s, name, context.cast(b, v, given, t))
        return s._getvalue()

    if assigned:

        @lower_setattr_generic(StructType)
        def assign(context, b, sig, args, attr):
            target, value = args
            s = context.make_struct(b, made, target)
            setattr(s, attr, context.cast(b, value, sig.args[1], dict(members)[attr]))
            b.emit(context.data_model_manager.lookup(made).release(target.text))
            b.move_to(target.text, s._getvalue())

    return made


def _first(members, s):
    name, t = members[0]
    return t, getattr(s, name)


def of(name, *fields):
    """A plain class with fields."""

    def init(self, *values):
        for n, v in zip(fields, values, strict=True):
            setattr(self, n, v)

    return type(name, (), {"__init__": init})


# Boxers and unboxers that fail --------------------------------------------------------------------


class Plain(types.Type):
    pass


@pytest.mark.parametrize("error", ["ValueError", None])
def test_a_boxer_that_returns_null_is_an_error(error):
    value = of("Value", "x")
    inner = Plain("inner")
    register_model(Plain)(models.ObjectModel)
    typeof_impl(value)(lambda val, c: inner)
    unbox(Plain)(lambda typ, obj, c: NativeValue(obj))

    @box(Plain)
    def null(typ, val, c):
        if error:
            c.pyapi.err_set_string(error, "no way")
        return c.builder.value(None, "PyObject *")

    kind = ValueError if error else SystemError
    why = "no way" if error else r"the boxer .*null.* returned NULL for a value of type inner"
    with pytest.raises(kind, match=why):
        jit(lambda v: v)(value(1))
    with pytest.raises(kind, match=why):  # within a tuple, whose boxer asks it
        jit(lambda v, n: (n, (v, n)))(value(1), 2)


def test_an_unboxer_that_sets_an_exception_and_says_nothing_is_heard():
    value, t = of("Value"), Plain("quiet")
    register_model(Plain)(models.ObjectModel)
    typeof_impl(value)(lambda val, c: t)
    box(Plain)(lambda typ, val, c: val)

    @unbox(Plain)
    def unboxer(typ, obj, c):
        c.pyapi.err_set_string("KeyError", "unheard")
        return NativeValue(obj)

    with pytest.raises(KeyError, match="unheard"):
        jit(lambda v: v)(value())


def test_an_argument_that_is_returned_is_not_copied_deeply():
    holder, t = of("Holder", "lock"), Plain("held")
    register_model(Plain)(models.ObjectModel)
    typeof_impl(holder)(lambda val, c: t)
    unbox(Plain)(lambda typ, obj, c: NativeValue(obj))
    boxed = []

    @box(Plain)
    def boxer(typ, val, c):
        note = c.pyapi.unserialize(c.pyapi.serialize_object(boxed.append))
        c.pyapi.call_function_objargs(note, [val])
        return val

    given = holder(threading.Lock())
    assert jit(lambda v: v)(given) is given
    assert boxed == [given]

    pair = of("Pair", "t", "n")
    struct(pair, [("t", types.Array("float32", (None,))), ("n", f64)])
    x = torch.ones(2)
    found = jit(lambda p: p)(pair(x, 1.0))
    assert (found.t.tolist(), found.n) == ([1.0, 1.0], 1.0)
    assert found.t.data_ptr() != x.data_ptr()


# Strings ------------------------------------------------------------------------------------------


def test_strings_own_their_text():
    made = of("Made", "n", "v")
    t = struct(made, [("n", text), ("v", f64)])

    class Fresh(made):
        """Gives another string each time it is asked."""

        @property
        def n(self):
            return "".join(self._n)

        @n.setter
        def n(self, value):
            self._n = list(value)

    typeof_impl(Fresh)(lambda val, c: t)
    through = jit(lambda s, v: (s, s.n, made("Bob", v), made("a\0b", v)))
    for n in ("x" + "y" * 40, "a\0b", "", "héllo ☃"):
        back, name, constant, cut = through(Fresh(n, 1.0), 2.0)
        assert [back.n, name, constant.n, cut.n, constant.v] == [n, n, "Bob", "a\0b", 2.0]
    for _ in range(100):
        through(Fresh("again" * 9, 1.0), 2.0)


def test_operators_of_strings():
    word = of("Word", "n")
    struct(word, [("n", text)])

    def f(s, t):
        a, b = s.n, t.n
        return (
            *(a == b, a != b, a < b, a <= b, a > b, a >= b, a == "ab", "ab" in a, "" in a),
            *(len(a), a + "é" + b, a.startswith(b), a.endswith(b), bool(a), "x" + a),
        )

    g = jit(f)
    for a, b in (
        ("ab", "ab"),
        ("héllo", "o"),
        ("", ""),
        ("a\0b", "b"),
        ("abc", "abd"),
        ("b", "ba"),
    ):
        assert g(word(a), word(b)) == f(word(a), word(b))
    with pytest.raises(TypingError, match="no attribute 'upper': registered are endswith, starts"):
        jit(lambda s: s.n.upper())(word("a"))
    with pytest.raises(TypingError, match="takes one string"):
        jit(lambda s: s.n.startswith(("a", "b")))(word("a"))


# Cleanups -----------------------------------------------------------------------------------------


def test_a_cleanup_runs_once_wherever_the_value_goes():
    told = []
    inner, outer = of("Inner", "v"), of("Outer", "a", "b")
    t = struct(inner, [("v", f64)], cleanup=told.append)
    struct(outer, [("a", t), ("b", t)])

    def run(f, *args):
        told.clear()
        found = jit(f)(*args)
        return found, told.copy()

    one, two = inner(1.0), inner(2.0)
    assert run(lambda i: i.v + 1, one) == (2.0, [1.0])
    found, cleaned = run(lambda i: (i, i.v), one)
    assert (found[0].v, cleaned) == (1.0, [1.0])
    found, cleaned = run(lambda i, j: (i, (j, i)), one, two)
    assert (found[1][0].v, cleaned) == (2.0, [2.0, 1.0])
    assert run(lambda o: o.a.v + o.b.v, outer(one, two)) == (3.0, [2.0, 1.0])
    found, cleaned = run(lambda o: (o, o.a), outer(one, two))
    assert (found[0].b.v, found[1].v, cleaned) == (2.0, 1.0, [2.0, 1.0])
    # What was not unboxed, because what came before failed, is zero or left out.
    told.clear()
    with pytest.raises(TypeError, match="must be real number"):
        jit(lambda o: o.a.v)(outer(inner(3.0), inner("x")))
    assert told[-1] == 3.0
    # In a function that Python runs between two nodes, values go out and come again.
    for mode in ("py", "opwise"):
        told.clear()
        assert jit(lambda o: o.a.v, mode=mode)(outer(one, two)) == 1.0
        assert set(told) <= {1.0, 2.0}


def test_an_unboxer_may_clean_up_after_another_itself():
    told = []
    inner, early = of("Inner", "v"), of("Early", "a")
    t = struct(inner, [("v", f64)], cleanup=told.append)
    struct(early, [("a", t)])

    class EarlyType(types.Type):
        pass

    class Twice:
        def __init__(self, a):
            self.a = a

    twice = EarlyType("twice")
    typeof_impl(Twice)(lambda val, c: twice)

    @register_model(EarlyType)
    class Model(models.StructModel):
        def __init__(self, dmm, fe_type):
            models.StructModel.__init__(self, dmm, fe_type, [("v", f64)])

    make_attribute_wrapper(EarlyType, "v", "v")

    @unbox(EarlyType)
    def unboxer(typ, obj, c):
        s = c.struct(typ)
        given = c.unbox(t, c.pyapi.object_getattr_string(obj, "a"))
        s.v = c.struct(t, given.value).v
        return NativeValue(s._getvalue(), cleanup=given.cleanup)

    assert jit(lambda v: v.v)(Twice(inner(4.0))) == 4.0
    assert told == [4.0]

    class LoopType(types.Type):
        pass

    class Loop:
        pass

    typeof_impl(Loop)(lambda val, c: LoopType("loop"))
    register_model(LoopType)(Model)

    @unbox(LoopType)
    def in_a_loop(typ, obj, c):
        s = c.struct(typ)
        with c.builder.loop(2):
            c.unbox(t, obj)
        return NativeValue(s._getvalue())

    with pytest.raises(RegistrationError, match="cleanup, and is asked in a loop"):
        jit(lambda v: 1)(Loop())


# Parts of structs ---------------------------------------------------------------------------------


def test_an_assignment_to_a_part_is_seen_in_the_whole():
    leaf, branch, tree = of("Leaf", "x"), of("Branch", "a", "n"), of("Tree", "b")
    t = struct(leaf, [("x", f64)])
    u = struct(branch, [("a", t), ("n", f64)])
    struct(tree, [("b", u)])

    def f(w, other, v):
        part = w.b.a
        part.x = v
        first = w.b.a.x
        w.b.n = 8.0
        w.b.a = other
        part.x = 7.0
        other.x = 5.0
        return first, w.b.a.x, part.x, w.b.n, w

    def given():
        return tree(branch(leaf(1.0), 2.0)), leaf(9.0), 3.0

    *expected, whole = f(*given())
    *found, back = jit(f)(*given())
    assert found == expected
    assert (back.b.a.x, back.b.n) == (whole.b.a.x, whole.b.n)

    fixed, holder = of("Fixed", "x"), of("Holder", "a")
    struct(holder, [("a", struct(fixed, [("x", f64)]))], assigned=False)

    def lost(h):
        h.a.x = 5.0

    with pytest.raises(AssignmentError, match=r"would be lost .*the value is a copy of Holder\.a"):
        jit(lost)(holder(fixed(1.0)))


def test_a_gradient_of_a_tensor_in_a_struct_is_refused_next_to_another():
    held = of("Held", "t")
    struct(held, [("t", types.Array("float32", (None,)))])
    f = jit(lambda s, x: s.t * 2 + x)
    inside, beside = (torch.ones(3, requires_grad=True) for _ in range(2))
    for x in (beside, beside.detach()):
        with pytest.raises(RuntimeError, match="records no gradient, and this tensor requires one"):
            f(held(inside), x)
    f(held(inside.detach()), beside).sum().backward()
    assert beside.grad.tolist() == [1, 1, 1]
    with torch.no_grad():
        assert f(held(inside), beside).tolist() == [3, 3, 3]


# Numbers ------------------------------------------------------------------------------------------


def test_keywords_of_intrinsics_and_templates_are_bound_by_name():
    @intrinsic
    def minus(context, a, b):
        def codegen(context, b, sig, args):
            return args[0] - args[1]

        return signature(f64, f64, f64), codegen

    def less(a, b):
        raise NotImplementedError

    @infer
    class Less(AbstractTemplate):
        key = less

        def generic(self, args, kws):
            return signature(f64, f64, f64)

    @lower_builtin(less, types.Float, types.Float)
    def lowered(context, b, sig, args):
        return args[0] - args[1]

    f = jit(lambda a, b: (minus(b=b, a=a), minus(a, b=b), less(b=b, a=a), less(a, b=b)))
    assert f(5.0, 3.0) == (2.0,) * 4


def test_narrow_integers_are_converted_with_their_check():
    def narrow(n):
        raise NotImplementedError

    @infer
    class Narrow(ConcreteTemplate):
        key = narrow
        cases = [signature(i64, types.int32)]  # noqa: RUF012

    @lower_builtin(narrow, types.int32)
    def lowered(context, b, sig, args):
        return b.cast(args[0], "int64_t")

    f = jit(lambda n: narrow(n))
    assert f(2**31 - 1) == 2**31 - 1
    with pytest.raises(OverflowError, match="does not fit int32"):
        f(2**40 + 5)


def test_elements_of_unsigned_tensors():
    large = torch.tensor([2**64 - 1, 5], dtype=torch.uint64)
    f = jit(lambda t, i: t[i].item(), constants=("i",))
    assert f(large, 1) == 5
    with pytest.raises(OverflowError, match="18446744073709551615 does not fit int64"):
        f(large, 0)
    assert jit(lambda t: float(t[0]))(large) == float(2**64 - 1)


def test_complex_numbers():
    def f(a, b):
        return (
            *(a + b, a - b, a * b, a / b, a == b, a != b, -a, +a, abs(a), a * 2, 2.5 * a),
            *(1 + a, a.conjugate(), a.real, a.imag, bool(a)),
        )

    g = jit(f)
    numbers = (1 + 2j, 3 - 4j, 0j, 1e300 + 1e300j, 1e-300j, complex(-0.0, 0), complex("inf+1j"))
    for a in numbers:
        for b in numbers[:2] + numbers[3:5]:
            assert repr(g(a, b)) == repr(f(a, b))
    with pytest.raises(ZeroDivisionError, match="complex division by zero"):
        g(1j, 0j)
    with pytest.raises(OverflowError, match="absolute value too large"):
        jit(lambda a: abs(a))(1.7e308 + 1.7e308j)
    with pytest.raises(TypingError, match=r"no implementation of pow\(complex128, Literal\[2\]\)"):
        jit(lambda a: a**2)(1j)


def test_integers_above_2_63():
    op = operator
    functions = (op.add, op.sub, op.mul, op.floordiv, op.mod, op.and_, op.or_, op.xor, op.eq, op.lt)
    for f in functions:
        g = jit(lambda a, b, f=f: f(a, b))
        for a, b in ((2**63, 5), (2**64 - 1, 2**64 - 1), (2**63 + 7, 2**63), (2**63 + 3, -2)):
            expected = f(a, b)
            if 0 <= expected < 2**64:
                assert g(a, b) == expected
            else:
                with pytest.raises(OverflowError, match=r"is not within 0 \.\.\. 2"):
                    g(a, b)
    for f in (op.floordiv, op.mod):
        with pytest.raises(ZeroDivisionError):
            jit(lambda a, b, f=f: f(a, b))(2**63, 0)


def test_operators_that_nobody_took_name_the_candidates():
    value = of("Value", "x")
    t = struct(value, [("x", f64)])

    @overload(operator.mul)
    def times(a, b):
        return (lambda a, b: a) if isinstance(b, types.Boolean) else None

    for f, why in (
        (lambda v: v + 1, r"no implementation of add\(Value, Literal\[1\]\)"),
        (lambda v: 1 + v, r"no implementation of add\(Literal\[1\], Value\)"),
        (lambda v: v * 2, rf"no implementation of mul(.|\n)*times \({__file__}"),
        (lambda v: -v, r"no implementation of neg\(Value\)"),
        (lambda v: v != v, r"no implementation of ne\(Value, Value\)"),
        (lambda v: v < 1, r"no implementation of lt"),
        (lambda v: torch.relu(v), r"no implementation of relu\(Value\): nothing is registered"),
        (lambda v: v[0], "'value of type Value' object is not subscriptable"),
        (lambda v: v(), "'value of type Value' object is not callable"),
        (lambda v: list(v), "'value of type Value' object is not iterable"),
        (lambda v: 3 in v, "no implementation of contains"),
        (lambda v: len(v), "no implementation of len"),
    ):
        with pytest.raises(TypeError, match=why) as e:
            jit(f)(value(1.0))
        assert "Variable" not in str(e.value)
        assert "Proxy" not in str(e.value)

    overload(len)(lambda o: (lambda o: 3) if o == t else None)
    overload(operator.getitem)(lambda o, i: (lambda o, i: o.x + i) if o == t else None)
    overload(operator.delitem)(lambda o, i: (lambda o, i: None) if o == t else None)

    def g(v):
        del v[0]
        return list(v), [i * 1 for i in v], hasattr(v, "__len__"), len(v)

    assert jit(g)(value(1.0)) == ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], True, 3)
