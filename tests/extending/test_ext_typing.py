"""How calls, methods and attributes are typed, and what is said where they are not."""

# ruff: noqa: RUF012  # templates are written as in the documentation

from __future__ import annotations

import math
import operator

import pytest
import torch

from pytorch_bridge.extending import (
    AbstractTemplate,
    AttributeTemplate,
    CallableTemplate,
    ConcreteTemplate,
    RegistrationError,
    Signature,
    TypingError,
    UnreachableError,
    infer,
    infer_getattr,
    infer_global,
    make_attribute_wrapper,
    models,
    overload,
    overload_attribute,
    overload_method,
    register_model,
    signature,
    type_callable,
    types,
)
from pytorch_bridge.extending.resolution import resolve_attribute, resolve_call, resolve_method

f64, i64, i32, f32 = types.float64, types.int64, types.int32, types.float32


class Shape(types.Type):
    pass


class Square(Shape):
    pass


class Circle(Shape):
    pass


def place(f) -> str:
    return f"{__file__}:{f.__code__.co_firstlineno}"


def known(x): ...


def another(x, y=None): ...


# C4: None means "not mine"


def test_c4_all_none_lists_each_candidate_with_file_and_line():
    @overload(known)
    def for_squares(x):
        return None

    @overload(known)
    def for_circles(x):
        raise TypingError("only circles are round")

    @overload(known)
    def with_two(x, y): ...

    with pytest.raises(TypingError) as e:
        resolve_call(known, [Shape("s")], {})
    text = str(e.value)
    assert text.startswith("no implementation of known(s): the 3 candidates turned it down:")
    for f, why in (
        (for_squares, "returned None: not for these types"),
        (for_circles, "only circles are round"),
        (with_two, "missing a required argument: 'y'"),
    ):
        assert f"{f.__qualname__} ({place(f)}):\n    {why}" in text


def test_c4_another_exception_propagates():
    @overload(known)
    def broken(x):
        return x.no_such_attribute

    with pytest.raises(AttributeError, match="no_such_attribute"):
        resolve_call(known, [Shape("s")], {})


def test_c4_the_first_of_equally_good_ones_wins():
    overload(known)(lambda x: None)
    first = overload(known)(lambda x: lambda x: 1)
    overload(known)(lambda x: lambda x: 2)
    found = resolve_call(known, [Shape("s")], {})
    assert found.entry.thing is first
    assert found.implementation(0) == 1


# C5: typing and implementation agree


def test_c5_another_default_shows_both():
    @overload(another)
    def typing(x, y=None):
        def implementation(x, y=12):
            return x

        return implementation

    with pytest.raises(RegistrationError) as e:
        resolve_call(another, [i64], {})
    text = str(e.value)
    assert "the default of 'y' is None and 12" in text
    assert f"typing(x, y=None) ({place(typing)})" in text
    assert "implementation(x, y=12) (" in text
    assert f"{__file__}:{typing.__code__.co_firstlineno + 2}" in text


@pytest.mark.parametrize(
    ("implementation", "why"),
    [
        (lambda z, y=None: z, "parameter 'x' is 'z' in the implementation"),
        (lambda x: x, "2 parameters and 1"),
        (lambda x, y: x, "the default of 'y' is None and missing"),
        (lambda x, *, y=None: x, "'y' is positional or keyword and keyword-only"),
        (lambda x, y=False: x, "the default of 'y' is None and False"),
    ],
)
def test_c5_names_kinds_and_numbers(implementation, why):
    overload(another)(lambda x, y=None: implementation)
    with pytest.raises(RegistrationError, match=why):
        resolve_call(another, [i64], {})


def test_c5_defaults_that_python_calls_equal_are_different():
    overload(another)(lambda x, y=1: lambda x, y=True: x)
    with pytest.raises(RegistrationError, match="the default of 'y' is 1 and True"):
        resolve_call(another, [i64], {})
    nan = float("nan")
    overload(known)(lambda x=nan: lambda x=nan: x)
    assert resolve_call(known, [], {}).implementation is not None


def test_c5_not_strict_is_not_compared():
    overload(another, strict=False)(lambda x, y=None: lambda x, y=12: x)
    assert resolve_call(another, [i64], {}).implementation(3) == 3


def test_an_implementation_that_is_no_function():
    @overload(known)
    def wrong(x):
        return 3

    with pytest.raises(RegistrationError, match=r"wrong \(.*must return a function .* not 3"):
        resolve_call(known, [i64], {})


# C7, C8: attributes and methods


def test_c7_overload_attribute():
    overload_attribute(Shape, "area")(lambda s: lambda s: 4)
    assert resolve_attribute(Square("q"), "area").getter(None) == 4
    assert resolve_attribute(Square("q"), "size") is None


def test_c7_getter_setter_deleter():
    overload_attribute(Shape, "area")(lambda s: ((lambda s: 4), (lambda s, v: None), None))
    found = resolve_attribute(Square("q"), "area")
    assert found.getter(None) == 4
    assert found.setter is not None
    assert found.deleter is None


@pytest.mark.parametrize(
    ("returned", "why"),
    [
        (3, "must return a function"),
        ((None, None, None), "must return a getter or"),
        ((len, len), "must return a getter or"),
        (((lambda s: 1), (lambda s: 1), None), "its setter must have 2 parameters"),
        (((lambda s: 1), 3, None), "its setter is no function"),
    ],
)
def test_c7_anything_else_is_refused(returned, why):
    @overload_attribute(Shape, "area")
    def area(s):
        return returned

    with pytest.raises(RegistrationError, match=rf"area \(.*{why}"):
        resolve_attribute(Shape("s"), "area")


def test_c8_a_subclass_inherits_a_method_a_sibling_does_not():
    overload_method(Square, "side")(lambda s: lambda s: 2)

    class Tile(Square):
        pass

    assert resolve_method(Tile("t"), "side", [], {}).implementation(None) == 2
    with pytest.raises(TypingError, match=r"c\.side\(\): nothing is registered"):
        resolve_method(Circle("c"), "side", [], {})


def test_c8_the_nearest_class_is_asked_first_and_passes_on():
    overload_method(Shape, "side")(lambda s: lambda s: "shape")

    @overload_method(Square, "side")
    def square_side(s):
        return (lambda s: "big") if s.name == "big" else None

    assert resolve_method(Square("big"), "side", [], {}).implementation(0) == "big"
    assert resolve_method(Square("small"), "side", [], {}).implementation(0) == "shape"
    overload_method(Square("one"), "side")(lambda s: lambda s: "the one")
    assert resolve_method(Square("one"), "side", [], {}).implementation(0) == "the one"


def test_c8_a_method_that_nobody_takes_lists_the_candidates():
    @overload_method(Shape, "scale")
    def scale(s, by):
        return None

    with pytest.raises(TypingError, match=r"scale \(.*:\d+\):\n    returned None"):
        resolve_method(Shape("s"), "scale", [f64], {})
    with pytest.raises(TypingError, match="missing a required argument: 'by'"):
        resolve_method(Shape("s"), "scale", [], {})


# C9, C10: members of structs


def test_c9_a_member_types_as_it_is_in_the_struct():
    @register_model(Square)
    class Model(models.StructModel):
        def __init__(self, dmm, fe_type):
            models.StructModel.__init__(self, dmm, fe_type, [("side_", f64)])

    make_attribute_wrapper(Square, "side_", "side")
    assert resolve_attribute(Square("q"), "side").type == f64
    assert resolve_attribute(Circle("c"), "side") is None
    make_attribute_wrapper(Square, "nothing", "nothing")
    with pytest.raises(RegistrationError, match="no member 'nothing'; its members: side_"):
        resolve_attribute(Square("q"), "nothing")


def test_c9_what_is_no_struct_is_a_type_error():
    register_model(Circle)(models.OpaqueModel)
    with pytest.raises(TypeError, match="that of Circle is OpaqueModel"):
        make_attribute_wrapper(Circle, "r", "r")
    with pytest.raises(TypeError, match="that of Square is none"):
        make_attribute_wrapper(Square, "r", "r")


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ([("a", f64), ("a", f64)], "two members a"),
        ([("a b", f64)], "'a b' cannot name a member"),
        ([("a", float)], "member a of q is no Type"),
    ],
)
def test_c10_members_that_cannot_be(members, why):
    @register_model(Square)
    class Model(models.StructModel):
        def __init__(self, dmm, fe_type):
            models.StructModel.__init__(self, dmm, fe_type, members)

    with pytest.raises(RegistrationError, match=why):
        models.default_manager.lookup(Square("q"))


def test_c10_a_struct_that_contains_itself():
    @register_model(Square)
    class Model(models.StructModel):
        def __init__(self, dmm, fe_type):
            models.StructModel.__init__(self, dmm, fe_type, [("inner", fe_type)])

    with pytest.raises(RegistrationError, match="q has itself as a member"):
        models.default_manager.lookup(Square("q"))


def test_c10_a_type_without_a_model():
    with pytest.raises(RegistrationError, match=r"no data model is registered for q \(Square\)"):
        models.default_manager.lookup(Square("q"))


# C14: ConcreteTemplate


def test_c14_only_listed_signatures_type():
    @infer
    class Mod(ConcreteTemplate):
        key = "%"
        cases = [signature(op, op, op) for op in sorted(types.signed_domain)]
        cases += [signature(op, op, op) for op in sorted(types.unsigned_domain)]
        cases += [signature(op, op, op) for op in sorted(types.real_domain)]

    assert resolve_call("%", [i32, i32], {}).signature == signature(i32, i32, i32)
    assert resolve_call("%", [f32, f64], {}).signature == signature(f64, f64, f64)
    with pytest.raises(TypingError) as e:
        resolve_call("%", [Shape("s"), i64], {})
    assert "no case matches; the cases are:" in str(e.value)
    for case in Mod.cases:
        assert str(case) in str(e.value)
    with pytest.raises(TypingError, match="no keyword arguments, got b"):
        resolve_call("%", [i64], {"b": i64})


def test_c14_the_least_conversion_wins_then_the_first():
    @infer
    class T(ConcreteTemplate):
        key = "f"
        cases = [signature(f32, f32), signature(f64, f64), signature(i64, i64), signature(f64, i64)]

    assert resolve_call("f", [i32], {}).signature == T.cases[2]
    assert resolve_call("f", [f32], {}).signature == T.cases[0]
    assert resolve_call("f", [types.boolean], {}).signature == T.cases[0]


def test_a_signature_is_made_of_instances():
    with pytest.raises(RegistrationError, match=r"argument 1 of a signature .*give an instance"):
        signature(i64, i64, types.Integer)
    assert str(signature(f64, i64, i32)) == "(int64, int32) -> float64"


# C15: AbstractTemplate


def test_c15_generic_decides():
    @infer
    class GetItemUniTuple(AbstractTemplate):
        key = "getitem"

        def generic(self, args, kws):
            tup, idx = args
            if isinstance(tup, types.UniTuple) and isinstance(idx, types.Integer):
                return signature(tup.dtype, tup, idx)

    pair = types.UniTuple(f64, 2)
    assert resolve_call("getitem", [pair, i64], {}).signature.return_type == f64
    with pytest.raises(TypingError, match=r"GetItemUniTuple \(.*:\d+\):\n    returned None"):
        resolve_call("getitem", [f64, i64], {})


def test_c15_a_return_that_is_no_signature_names_the_template():
    @infer
    class Careless(AbstractTemplate):
        key = "careless"

        def generic(self, args, kws):
            return f64

    with pytest.raises(
        RegistrationError, match=r"Careless: generic must return a Signature or None, not float64"
    ):
        resolve_call("careless", [f64], {})


def test_a_keyword_whose_place_nothing_says_is_refused():
    @infer
    class Minus(AbstractTemplate):
        key = "minus"  # has no parameters to look at

        def generic(self, args, kws):
            return signature(f64, f64, f64)

    with pytest.raises(TypingError, match="the place of a is not known"):
        resolve_call("minus", [f64], {"a": f64})


# C16: AttributeTemplate


def test_c16_real_of_a_complex_tensor_is_of_its_float_type():
    from pytorch_bridge.extending import typeof

    found = resolve_attribute(typeof(torch.zeros(2, 3, dtype=torch.complex64)), "real")
    assert found.type.dtype == "float32"
    assert found.type.shape == (2, 3)
    assert (
        resolve_attribute(typeof(torch.zeros(2, dtype=torch.complex128)), "imag").type.dtype
        == "float64"
    )
    assert resolve_attribute(types.complex64, "real").type == f32


def test_c16_resolve_attr_by_class_with_a_generic_one():
    @infer_getattr
    class ShapeAttributes(AttributeTemplate):
        key = Shape

        def resolve_area(self, ty):
            return f64

        def generic_resolve(self, ty, attr):
            return i64 if attr.startswith("n_") else None

    assert resolve_attribute(Square("q"), "area").type == f64
    assert resolve_attribute(Square("q"), "n_sides").type == i64
    assert resolve_attribute(Square("q"), "colour") is None


def test_c16_a_result_that_is_no_type_names_the_template():
    @infer_getattr
    class Careless(AttributeTemplate):
        key = Shape

        def resolve_area(self, ty):
            return "float64"

    with pytest.raises(RegistrationError, match="Careless: the type of attribute area is no Type"):
        resolve_attribute(Square("q"), "area")


# C17: CallableTemplate


def test_c17_the_typer_takes_keywords_and_returns_the_type():
    @infer
    class Sorted(CallableTemplate):
        key = sorted

        def generic(self):
            def typer(iterable, key=None, reverse=None):
                if reverse is not None and not isinstance(reverse, types.Boolean):
                    return
                if key is not None and not isinstance(key, types.Callable):
                    return
                if not isinstance(iterable, types.Iterable):
                    return
                return types.List(iterable.iterator_type.yield_type)

            return typer

    pair = types.UniTuple(f64, 2)
    assert resolve_call(sorted, [pair], {}).signature == signature(types.List(f64), pair)
    assert resolve_call(sorted, [pair], {"reverse": types.boolean}).signature == signature(
        types.List(f64), pair, types.boolean
    )
    for args, kws, why in (
        ([pair, f64], {}, "returned None"),
        ([], {}, "missing a required argument: 'iterable'"),
        ([pair], {"by": f64}, "unexpected keyword argument 'by'"),
        ([pair] * 4, {}, "too many positional arguments"),
    ):
        with pytest.raises(TypingError, match=why):
            resolve_call(sorted, args, kws)


def test_c17_a_whole_signature_may_be_returned():
    @infer
    class Widened(CallableTemplate):
        key = "widened"

        def generic(self):
            return lambda x: signature(f64, f64)

    assert resolve_call("widened", [i32], {}).signature == signature(f64, f64)


# C18: infer, infer_getattr, infer_global


def test_c18_infer_global_as_a_decorator():
    @infer_global(math.hypot)
    class Hypot(ConcreteTemplate):
        key = math.hypot
        cases = [signature(f64, f64, f64)]

    assert resolve_call(math.hypot, [f64, f64], {}).signature == Hypot.cases[0]


def test_c18_infer_global_with_a_type():
    class T(ConcreteTemplate):
        cases = [signature(f64, f64)]

    assert infer_global(math.sin, types.Function(T)) is None
    assert resolve_call(math.sin, [f64], {}).signature == T.cases[0]
    with pytest.raises(RegistrationError, match="takes a Type"):
        infer_global(math.sin, 3)


def test_c18_a_value_that_cannot_be_reached_is_a_value_error():
    def local(x): ...

    class T(ConcreteTemplate):
        key = local
        cases = [signature(f64, f64)]

    with pytest.raises(
        UnreachableError, match=r"cannot be reached as .*local.*: the template .*T would"
    ):
        infer_global(local)(T)
    assert issubclass(UnreachableError, ValueError)
    with pytest.raises(TypingError, match="nothing is registered"):
        resolve_call(local, [f64], {})
    assert infer_global(torch.relu)(T) is T


@pytest.mark.parametrize(
    ("register", "why"),
    [
        (lambda: infer(int), "infer decorates a Template"),
        (lambda: infer_getattr(ConcreteTemplate), "infer_getattr decorates a AttributeTemplate"),
        (lambda: infer(type("T", (AttributeTemplate,), {"key": Shape})), "infer_getattr"),
        (lambda: infer(type("T", (ConcreteTemplate,), {})), "must define key"),
        (lambda: infer_global(3)(type("T", (ConcreteTemplate,), {})), "give its type"),
    ],
)
def test_c18_misuse(register, why):
    with pytest.raises(RegistrationError, match=why):
        register()


# C19: type_callable


def test_c19_returns_the_function_unchanged():
    def type_sorted(context):
        def typer(iterable, key=None):
            return f64 if key is None else None

        return typer

    assert type_callable(sorted)(type_sorted) is type_sorted
    assert resolve_call(sorted, [i64], {}).signature == Signature(f64, (i64,))
    with pytest.raises(TypingError, match=rf"type_sorted \({place(type_sorted)}\)"):
        resolve_call(sorted, [i64, i64], {})


# Who wins


def test_exact_beats_converting_whatever_the_order():
    @infer
    class Wide(ConcreteTemplate):
        key = known
        cases = [signature(f64, f64)]

    exact = overload(known)(lambda x: (lambda x: x) if x == i64 else None)
    assert resolve_call(known, [i64], {}).entry.thing is exact
    assert resolve_call(known, [f32], {}).entry.thing is Wide


def test_c3_len_of_a_tuple_stays_the_cores():
    overload(len)(lambda x: lambda x: 7)
    core = resolve_call(len, [types.UniTuple(f64, 2)], {})
    assert core.signature.return_type == types.intp
    assert resolve_call(len, [Shape("s")], {}).implementation(0) == 7


def test_operators_are_functions_like_any_other():
    overload(operator.add)(lambda a, b: (lambda a, b: 3) if isinstance(a, Shape) else None)
    assert resolve_call(operator.add, [Shape("s"), i64], {}).implementation(0, 0) == 3
