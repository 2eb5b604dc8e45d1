"""Which C counts for a call, a conversion or an attribute, and what the builder writes."""

from __future__ import annotations

import operator

import pytest

from pytorch_bridge.extending import (
    AmbiguityError,
    Any,
    AssignmentError,
    BoxContext,
    BoxingError,
    BuilderError,
    CBuilder,
    Context,
    LoweringError,
    NativeValue,
    RegistrationError,
    VarArg,
    box,
    lower_builtin,
    lower_cast,
    lower_constant,
    lower_getattr,
    lower_getattr_generic,
    lower_setattr,
    lower_setattr_generic,
    models,
    register_model,
    signature,
    types,
    unbox,
)
from pytorch_bridge.extending.casts import find_cast
from pytorch_bridge.extending.lowering import find_builtin, find_getattr, find_setattr

f64, i64, i32 = types.float64, types.int64, types.int32
context = Context()


class Left(types.Type):
    pass


class Leftmost(Left):
    pass


class Right(types.Type):
    pass


def cast(fromty, toty, text="v", ctype="double"):
    b = CBuilder()
    return context.cast(b, b.expression(text, ctype), fromty, toty), b


# C20: conversions


def test_c20_the_most_specific_conversion_wins():
    def any_to_any(context, b, fromty, toty, val): ...
    def left_to_any(context, b, fromty, toty, val): ...
    def leftmost_to_any(context, b, fromty, toty, val): ...
    def one_to_any(context, b, fromty, toty, val): ...

    lower_cast(Any, Any)(any_to_any)
    lower_cast(Left, Any)(left_to_any)
    lower_cast(Leftmost, Any)(leftmost_to_any)
    lower_cast(Leftmost("one"), Any)(one_to_any)
    for t, expected in (
        (Right("r"), any_to_any),
        (Left("l"), left_to_any),
        (Leftmost("m"), leftmost_to_any),
        (Leftmost("one"), one_to_any),
    ):
        assert find_cast(t, Right("x")).thing is expected


def test_c20_a_tie_is_two_ambiguous_signatures_with_both_names():
    @lower_cast(Leftmost, Any)
    def by_source(context, b, fromty, toty, val): ...

    @lower_cast(Left, Right)
    def by_both(context, b, fromty, toty, val): ...

    with pytest.raises(AmbiguityError, match="2 ambiguous signatures") as e:
        find_cast(Leftmost("m"), Right("r"))
    for f in (by_source, by_both):
        assert f"{f.__qualname__} ({__file__}:{f.__code__.co_firstlineno})" in str(e.value)
    assert isinstance(e.value, TypeError)
    assert find_cast(Left("l"), Right("r")).thing is by_both
    lower_cast(Leftmost, Right)(resolves := lambda *a: None)
    assert find_cast(Leftmost("m"), Right("r")).thing is resolves


def test_c20_none_registered_names_both_types_and_what_there_is():
    with pytest.raises(LoweringError, match="no conversion from l to r is registered"):
        cast(Left("l"), Right("r"))

    @lower_cast(Left, i64)
    def left_to_int(context, b, fromty, toty, val): ...

    with pytest.raises(LoweringError, match=r"there are:\n  \(Left, int64\): .*left_to_int"):
        cast(Left("l"), Right("r"))


def test_c20_the_seeds_float_to_integer():
    class Metres(types.Float):
        pass

    @lower_cast(Metres, types.Integer)
    def float_to_integer(context, builder, fromty, toty, val):
        lty = context.get_value_type(toty)
        if toty.signed:
            return builder.fptosi(val, lty)
        else:
            return builder.fptoui(val, lty)

    assert cast(Metres(64), types.int32)[0].text == "((int32_t)v)"
    assert cast(Metres(64), types.uint8)[0].text == "((uint8_t)v)"


def test_c20_what_returns_no_value_is_named():
    @lower_cast(Left, Right)
    def forgetful(context, b, fromty, toty, val):
        pass

    with pytest.raises(RegistrationError, match=r"forgetful .* must return a value of the builder"):
        cast(Left("l"), Right("r"))


def test_numbers_convert_and_what_does_not_fit_is_an_error():
    value, b = cast(i64, f64, ctype="int64_t")
    assert (value.text, b.block()) == ("((double)v)", "{\n\n}")
    value, b = cast(i64, types.int8, ctype="int64_t")
    assert "if (!((v >= (-128))))" in b.block()
    assert "if (!((v <= 127)))" in b.block()
    assert "OverflowError: %lld does not fit int8" in b.block()


# C21: truth


def test_c21_truth_is_a_conversion():
    assert (
        context.is_true(CBuilder(), f64, CBuilder().expression("v", "double")).text == "(v != 0.0)"
    )
    with pytest.raises(LoweringError, match="no conversion from l to bool"):
        cast(Left("l"), types.boolean)

    @lower_cast(Left, types.Boolean)
    def always(context, b, fromty, toty, val):
        return b.value(True)

    assert cast(Left("l"), types.boolean)[0].text == "true"


# C22: calls and attributes


def test_c22_class_or_instance_any_and_vararg():
    def anything(context, b, sig, args): ...
    def two(context, b, sig, args): ...
    def lefts(context, b, sig, args): ...
    def exact(context, b, sig, args): ...

    lower_builtin("f", VarArg(Any))(anything)
    lower_builtin("f", Any, Any)(two)
    lower_builtin("f", Left, VarArg(Left))(lefts)
    lower_builtin("f", Left, Leftmost("m"))(exact)
    left, m, r = Left("l"), Leftmost("m"), Right("r")
    for args, expected in (
        ([], anything),
        ([r], anything),
        ([r, r, r], anything),
        ([r, left], two),
        ([left], lefts),
        ([left, left, m], lefts),
        ([m, m], exact),
    ):
        assert find_builtin("f", args).thing is expected, args


def test_c22_a_single_argument_beats_vararg():
    lower_builtin("f", VarArg(Left))(lambda *a: None)
    one = lower_builtin("f", Left)(lambda *a: None)
    assert find_builtin("f", [Left("l")]).thing is one


def test_c22_no_lowering_lists_those_there_are():
    @lower_builtin("f", Left, VarArg(Right))
    def there(context, b, sig, args): ...

    with pytest.raises(
        LoweringError, match=r"for f\(r\); there is:\n  \(Left, VarArg\(Right\)\): .*there"
    ):
        find_builtin("f", [Right("r")])
    with pytest.raises(LoweringError, match=r"for g\(r\)$"):
        find_builtin("g", [Right("r")])
    with pytest.raises(RegistrationError, match="VarArg must be the last"):
        lower_builtin("f", VarArg(Left), Left)


def test_c22_getattr_specific_then_generic():
    @lower_getattr_generic(Left)
    def any_attribute(context, b, typ, value, attr):
        return b.expression(f"get_{attr}({value.text})", "double")

    @lower_getattr(Left, "ndim")
    def ndim(context, b, typ, value):
        return context.get_constant(types.intp, 3)

    b = CBuilder()
    v = b.expression("v", "x")
    assert context.get_getattr(Left("l"), "ndim")(b, v).text == "3"
    assert context.get_getattr(Leftmost("m"), "size")(b, v).text == "(get_size(v))"
    with pytest.raises(LoweringError, match=r"lower_getattr for r\.size"):
        find_getattr(Right("r"), "size")


def test_c22_calls_of_other_lowerings():
    @lower_builtin(operator.add, Left, types.Integer)
    def add(context, b, sig, args):
        return args[0] + args[1]

    b = CBuilder()
    call = context.get_function(operator.add, signature(Left("l"), Left("l"), i64))
    assert call(b, [b.expression("v", "int64_t"), b.value(2)]).text == "(v + 2)"


# C23: assignments


def test_c23_specific_first_generic_next_neither_is_a_typed_error():
    def size(context, b, sig, args): ...

    lower_setattr(Left, "size")(size)
    assert find_setattr(Leftmost("m"), "size")[0] is size
    with pytest.raises(AssignmentError, match="attribute colour of m cannot be assigned"):
        find_setattr(Leftmost("m"), "colour")
    assert issubclass(AssignmentError, TypeError)
    assert issubclass(AssignmentError, AttributeError)

    seen = []

    @lower_setattr_generic(Left)
    def other(context, b, sig, args, attr):
        seen.append(attr)

    find_setattr(Leftmost("m"), "colour")[0](context, CBuilder(), None, [])
    assert seen == ["colour"]
    assert find_setattr(Leftmost("m"), "size")[0] is size


# Constants


def test_constants():
    assert context.get_constant(f64, 0.1).text == (0.1).hex()
    assert types.int64.c_literal(-(2**63)) == "INT64_MIN"
    assert types.uint64.c_literal(2**64 - 1) == "UINT64_C(18446744073709551615)"
    assert types.float64.c_literal(float("-inf")) == "(-INFINITY)"
    assert types.unicode_type.c_literal('a"\n?') == 'PB_STRING(4, "a\\"\\012\\077")'
    assert Left("l").c_literal(3) is None

    @lower_constant(Left)
    def left(context, b, ty, pyval):
        return b.value(pyval * 2)

    assert Left("l").c_literal(3) == "6"


# C24, C25: boxing


def test_c24_a_missing_boxer_matters_only_where_the_value_is_returned():
    register_model(Left)(models.OpaqueModel)
    unbox(Left)(lambda typ, obj, c: NativeValue(c.builder.expression(obj.text, "void *")))
    t, sub = Left("l"), {"fail": "goto fail;"}
    assert "V1" in t.c_declare("V1", sub)
    t.c_extract("V1", sub)
    t.c_cleanup("V1", sub)
    with pytest.raises(BoxingError, match="type l cannot be returned to Python: no @box") as e:
        t.c_sync("V1", sub)
    assert isinstance(e.value, TypeError)


def test_c25_an_unboxer_must_give_the_models_type():
    register_model(Left)(models.OpaqueModel)

    @unbox(Left)
    def wrong(typ, obj, c):
        return NativeValue(c.pyapi.float_as_double(obj))

    with pytest.raises(
        RegistrationError, match=r"wrong .* must give a void \*, which is what l is in C"
    ):
        Left("l").c_extract("V1", {"fail": "goto fail;"})


def test_c24_a_boxer_must_give_an_object():
    register_model(Left)(models.OpaqueModel)

    @box(Left)
    def wrong(typ, val, c):
        return val

    with pytest.raises(RegistrationError, match=r"wrong .* must return a PyObject \*"):
        Left("l").c_sync("V1", {"fail": "goto fail;"})


def test_c24_the_seeds_box_of_a_bool():
    class Flag(types.Boolean):
        pass

    @box(Flag)
    def box_bool(typ, val, c):
        longval = c.builder.zext(val, c.pyapi.long)
        return c.pyapi.bool_from_long(longval)

    b = CBuilder()
    BoxContext(b).box(Flag(), b.expression("v", "bool"))
    assert "PyBool_FromLong(((long)v))" in b.block()


# The builder


def test_a_call_knows_what_the_header_says():
    b = CBuilder("b", fail="return 1;")
    a, x = b.expression("a", "Tensor"), b.expression("x", "Tensor")
    c = b.call("MM", a, x)
    s = b.call("SumDim", c, [0, 1], True, None)
    b.move_to("*result", s)
    text = b.block()
    assert "if ((pb_error = MM(a, x, &b_1))) {" in text
    assert "SumDim(b_1, (const int64_t[]){0, 1}, 2, true, NULL, &b_2)" in text
    assert "*result = b_2;\n  b_2 = NULL;" in text
    assert text.count("FreeTensor(b_1);") == 2  # at the end, and after an error
    assert "return 1;" in text


@pytest.mark.parametrize(
    ("misuse", "why"),
    [
        (lambda b: b.call("NoSuchFunction"), "cgotorch.h has no function NoSuchFunction"),
        (lambda b: b.call("MM", b.expression("a", "Tensor")), "MM.*mat2 is missing"),
        (lambda b: b.call("ReLU", *[b.expression("a", "Tensor")] * 2), "1 too many"),
        (lambda b: b.value([1]), "has no form in C"),
        (lambda b: bool(b.value(1) > 2), "known when the C runs"),
        (lambda b: b.fail("ValueError", "{} and {}", 1), "2 places for 1 values"),
        (lambda b: b.else_(), "right after if_"),
        (lambda b: b.load(b.value(1)), "no pointer"),
        (lambda b: b.value(2**64), "fits no integer type"),
    ],
)
def test_misuse_of_the_builder(misuse, why):
    with pytest.raises(BuilderError, match=why):
        misuse(CBuilder())
    assert issubclass(BuilderError, TypeError)
