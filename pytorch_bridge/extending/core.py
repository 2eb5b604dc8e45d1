"""What the core registers: the types that PyTorch and Python bring, written as an extension is.

Numbers, strings, None, tuples, lists and tensors: their types, models, boxes, conversions and
truth values. `natives` adds what can be called on them.
"""

from __future__ import annotations

from typing import Any

import torch

from ..ops.basic import register_deep_copy_op_c_code, register_view_op_c_code
from ..types.base import CType, Type
from ..types.tensor import TensorArg
from . import models, types
from .boxing import BoxContext, NativeValue, box, unbox
from .builder import CBuilder, Value, literal, string_literal
from .casts import lower_cast
from .context import Context, StructProxy
from .errors import TypingError
from .lowering import lower_builtin, lower_constant
from .models import register_model
from .templates import AttributeTemplate, CallableTemplate, infer_getattr, infer_global
from .typeof import TypeofContext, typeof_impl

# What values are ---------------------------------------------------------------------------------


@typeof_impl(bool)
def _typeof_bool(val: bool, c: TypeofContext) -> Type:
    return types.boolean


@typeof_impl(int)
def _typeof_int(val: int, c: TypeofContext) -> Type:
    if -(1 << 63) <= val < 1 << 63:
        return types.int64
    if 0 <= val < 1 << 64:
        return types.uint64
    raise TypingError(f"the integer {val} has more than 64 bits")


@typeof_impl(float)
def _typeof_float(val: float, c: TypeofContext) -> Type:
    return types.float64


@typeof_impl(complex)
def _typeof_complex(val: complex, c: TypeofContext) -> Type:
    return types.complex128


@typeof_impl(str)
def _typeof_str(val: str, c: TypeofContext) -> Type:
    return types.unicode_type


@typeof_impl(type(None))
def _typeof_none(val: None, c: TypeofContext) -> Type:
    return types.none


@typeof_impl(tuple)
def _typeof_tuple(val: tuple[Any, ...], c: TypeofContext) -> Type:
    return types.Tuple([c.typeof(v) for v in val])


@typeof_impl(list)
def _typeof_list(val: list[Any], c: TypeofContext) -> Type | None:
    if not val:
        raise TypingError("the type of an empty list is not known: give a tuple")
    found = [c.typeof(v) for v in val]
    for i, t in enumerate(found):
        if t != found[0]:
            raise TypingError(
                f"a list has elements of one type; element 0 is {found[0]}, element {i} is {t}"
            )
    return types.List(found[0])


@typeof_impl(torch.Tensor)
def _typeof_tensor(val: torch.Tensor, c: TypeofContext) -> Type:
    strided = val.layout is torch.strided
    layout = "C" if strided and val.is_contiguous() else "A"
    return types.Array(val.dtype, tuple(val.shape), layout, val.device)


# What they are in C ------------------------------------------------------------------------------

register_model(types.Boolean)(models.BooleanModel)
register_model(types.Integer)(models.IntegerModel)
register_model(types.Float)(models.FloatModel)
register_model(types.Complex)(models.ComplexModel)
register_model(types.BaseTuple)(models.TupleModel)
register_model(types.UnicodeType)(models.StringModel)
register_model(types.Opaque)(models.OpaqueModel)
register_model(types.PyObject)(models.ObjectModel)
register_model(TensorArg)(models.TensorModel)


@register_model(types.Dummy)
class _DummyModel(models.PrimitiveModel):
    """A value that is the only one of its type takes no room, but C wants something."""

    def __init__(self, dmm: models.DataModelManager, fe_type: Type) -> None:
        super().__init__(dmm, fe_type, "char")


@lower_constant(types.Boolean)
def _constant_bool(context: Context, builder: CBuilder, ty: Type, pyval: Any) -> Value:
    return Value(builder, literal(bool(pyval)), "bool")


@lower_constant(types.Integer)
def _constant_int(context: Context, builder: CBuilder, ty: types.Integer, pyval: Any) -> Value:
    return Value(builder, literal(ty.filter(pyval)), context.get_value_type(ty))


@lower_constant(types.Float)
def _constant_float(context: Context, builder: CBuilder, ty: types.Float, pyval: Any) -> Value:
    return Value(builder, literal(float(pyval)), context.get_value_type(ty))


@lower_constant(types.UnicodeType)
def _constant_string(context: Context, builder: CBuilder, ty: Type, pyval: str) -> Value:
    return Value(builder, string_literal(pyval), "pb_string")


@lower_constant(types.Dummy)
def _constant_dummy(context: Context, builder: CBuilder, ty: Type, pyval: Any) -> Value:
    return Value(builder, "0", "char")


# Between Python and C ----------------------------------------------------------------------------


@unbox(types.Boolean)
def _unbox_bool(typ: Type, obj: Value, c: BoxContext) -> NativeValue:
    return NativeValue(c.pyapi.object_istrue(obj))


@box(types.Boolean)
def _box_bool(typ: Type, val: Value, c: BoxContext) -> Value:
    return c.pyapi.bool_from_long(c.builder.zext(val, c.pyapi.long))


@unbox(types.Integer)
def _unbox_int(typ: types.Integer, obj: Value, c: BoxContext) -> NativeValue:
    b = c.builder
    ctype = c.context.get_value_type(typ)
    if typ.bitwidth == 64:
        wide = c.pyapi.long_as_longlong(obj) if typ.signed else c.pyapi.long_as_ulonglong(obj)
        return NativeValue(wide)
    wide = c.pyapi.long_as_longlong(obj)
    fits = (wide >= typ.minval) & (wide <= typ.maxval)
    b.check(fits, "OverflowError", f"{{}} does not fit {typ}", wide)
    return NativeValue(b.cast(wide, ctype))


@box(types.Integer)
def _box_int(typ: types.Integer, val: Value, c: BoxContext) -> Value:
    return c.pyapi.long_from_longlong(val) if typ.signed else c.pyapi.long_from_ulonglong(val)


@unbox(types.Float)
def _unbox_float(typ: types.Float, obj: Value, c: BoxContext) -> NativeValue:
    wide = c.pyapi.float_as_double(obj)
    return NativeValue(c.builder.cast(wide, c.context.get_value_type(typ)))


@box(types.Float)
def _box_float(typ: Type, val: Value, c: BoxContext) -> Value:
    return c.pyapi.float_from_double(val)


@unbox(types.Complex)
def _unbox_complex(typ: types.Complex, obj: Value, c: BoxContext) -> NativeValue:
    b = c.builder
    made = c.struct(typ)
    part = c.context.get_value_type(typ.underlying_float)
    for name in ("real", "imag"):
        wide = c.pyapi.float_as_double(c.pyapi.object_getattr_string(obj, name))
        setattr(made, name, b.cast(wide, part))
    return NativeValue(made._getvalue())


@box(types.Complex)
def _box_complex(typ: Type, val: Value, c: BoxContext) -> Value:
    v = c.struct(typ, val)
    return c.pyapi.complex_from_doubles(v.real, v.imag)


@unbox(types.UnicodeType)
def _unbox_string(typ: Type, obj: Value, c: BoxContext) -> NativeValue:
    return NativeValue(c.pyapi.string_as_string(obj))


@box(types.UnicodeType)
def _box_string(typ: Type, val: Value, c: BoxContext) -> Value:
    return c.pyapi.string_from_string(val)


@unbox(types.Dummy)
def _unbox_dummy(typ: Type, obj: Value, c: BoxContext) -> NativeValue:
    return NativeValue(Value(c.builder, "0", "char"))


@box(types.NoneType)
def _box_none(typ: Type, val: Value, c: BoxContext) -> Value:
    return c.pyapi.make_none()


@unbox(types.PyObject)
def _unbox_object(typ: Type, obj: Value, c: BoxContext) -> NativeValue:
    return NativeValue(obj)


@box(types.PyObject)
def _box_object(typ: Type, val: Value, c: BoxContext) -> Value:
    return val


@unbox(types.BaseTuple)
def _unbox_tuple(typ: types.BaseTuple, obj: Value, c: BoxContext) -> NativeValue:
    b = c.builder
    n = c.pyapi.tuple_size(obj)
    b.check(n == len(typ), "TypeError", f"expected a tuple of {len(typ)}, got one of {{}}", n)
    made = c.struct(typ)
    for i, t in enumerate(typ.types):
        setattr(made, f"f{i}", c.unbox_value(t, c.pyapi.tuple_getitem(obj, i)))
    return NativeValue(made._getvalue())


@box(types.BaseTuple)
def _box_tuple(typ: types.BaseTuple, val: Value, c: BoxContext) -> Value:
    v = c.struct(typ, val)
    return c.pyapi.tuple_pack([c.box(t, getattr(v, f"f{i}")) for i, t in enumerate(typ.types)])


@unbox(TensorArg)
def _unbox_tensor(typ: CType, obj: Value, c: BoxContext) -> NativeValue:
    """Schema types bring the way from Python themselves."""
    b = c.builder
    made = b.owned("Tensor")
    b.alias("PyObject *", f"py_{made.text}", obj)
    b.emit(typ.c_extract(made.text, b.leaving(), True))
    return NativeValue(made)


@box(TensorArg)
def _box_tensor(typ: CType, val: Value, c: BoxContext) -> Value:
    return c.pyapi._object(f"pb_python->wrap({val.text})")


# Copies of what a function returns as it was given: the numbers, and tensors of their own


def _copied(t: Type, source: str, target: str, fail: str) -> str:
    model = models.default_manager.lookup(t)
    return (
        f"{model.release(target)}\n{target} = {model.retain(source)};\n"
        f"{model.unshare(target, fail)}"
    )


def _viewed(t: Type, source: str, target: str, fail: str) -> str:
    model = models.default_manager.lookup(t)
    return f"{model.release(target)}\n{target} = {model.retain(source)};"


register_deep_copy_op_c_code(types.Type, _copied, version=(1,))
register_view_op_c_code(types.Type, _viewed, version=(1,))

# Conversions -------------------------------------------------------------------------------------


@lower_cast(types.Boolean, types.Integer)
@lower_cast(types.Boolean, types.Float)
def _from_bool(context: Context, b: CBuilder, fromty: Type, toty: Type, val: Value) -> Value:
    return b.cast(val, context.get_value_type(toty))


@lower_cast(types.Integer, types.Float)
@lower_cast(types.Float, types.Float)
def _to_float(context: Context, b: CBuilder, fromty: Type, toty: Type, val: Value) -> Value:
    return b.cast(val, context.get_value_type(toty))


@lower_cast(types.Integer, types.Integer)
def _int_to_int(
    context: Context, b: CBuilder, fromty: types.Integer, toty: types.Integer, val: Value
) -> Value:
    if fromty.minval < toty.minval:
        b.check(val >= toty.minval, "OverflowError", f"{{}} does not fit {toty}", val)
    if fromty.maxval > toty.maxval:
        b.check(val <= toty.maxval, "OverflowError", f"{{}} does not fit {toty}", val)
    return b.cast(val, context.get_value_type(toty))


@lower_cast(types.Float, types.Integer)
def _float_to_int(
    context: Context, b: CBuilder, fromty: types.Float, toty: types.Integer, val: Value
) -> Value:
    """Towards zero, as int() does. What does not fit is an error: C leaves it undefined."""
    low, high = float(toty.minval), float(toty.maxval + 1)
    fits = (val > low - 1 if toty.bitwidth <= 32 else val >= low) & (val < high)
    b.check(fits, "OverflowError", f"{{}} does not fit {toty}", val)
    return b.cast(val, context.get_value_type(toty))


@lower_cast(types.Number, types.Complex)
def _to_complex(
    context: Context, b: CBuilder, fromty: Type, toty: types.Complex, val: Value
) -> Value:
    made = StructProxy(context, b, toty)
    part = context.get_value_type(toty.underlying_float)
    if isinstance(fromty, types.Complex):
        old = StructProxy(context, b, fromty, val)
        made.real, made.imag = b.cast(old.real, part), b.cast(old.imag, part)
    else:
        made.real = b.cast(val, part)
    return made._getvalue()


@lower_cast(types.BaseTuple, types.BaseTuple)
def _tuple_to_tuple(
    context: Context, b: CBuilder, fromty: types.BaseTuple, toty: types.BaseTuple, val: Value
) -> Value:
    if len(fromty) != len(toty):
        raise TypingError(f"{fromty} does not become {toty}: the lengths differ")
    old = StructProxy(context, b, fromty, val)
    return context.make_tuple(
        b,
        toty,
        [
            context.cast(b, getattr(old, f"f{i}"), s, t)
            for i, (s, t) in enumerate(zip(fromty.types, toty.types, strict=True))
        ],
    )


# Truth values


@lower_cast(types.Integer, types.Boolean)
@lower_cast(types.Float, types.Boolean)
def _number_is_true(context: Context, b: CBuilder, fromty: Type, toty: Type, val: Value) -> Value:
    return val != 0


@lower_cast(types.Complex, types.Boolean)
def _complex_is_true(context: Context, b: CBuilder, fromty: Type, toty: Type, val: Value) -> Value:
    v = StructProxy(context, b, fromty, val)
    return (v.real != 0) | (v.imag != 0)


@lower_cast(types.BaseTuple, types.Boolean, conversion=None)
def _tuple_is_true(
    context: Context, b: CBuilder, fromty: types.BaseTuple, toty: Type, val: Value
) -> Value:
    return b.value(len(fromty) > 0)


@lower_cast(types.NoneType, types.Boolean, conversion=None)
def _none_is_true(context: Context, b: CBuilder, fromty: Type, toty: Type, val: Value) -> Value:
    return b.value(False)


@lower_cast(TensorArg, types.Boolean, conversion=None)
def _tensor_is_true(context: Context, b: CBuilder, fromty: Type, toty: Type, val: Value) -> Value:
    """That of the only element; an error, PyTorch's own, where there is not one element."""
    return b.call("IsNonZero", val)


@lower_cast(TensorArg, types.Float, conversion=None)
@lower_cast(TensorArg, types.Integer, conversion=None)
def _tensor_to_number(
    context: Context, b: CBuilder, fromty: Type, toty: types.Number, val: Value
) -> Value:
    """The only element, as float(t) and int(t) have it."""
    item = b.call("TensorItem", val)
    kind = b.member(item, "kind", "int64_t")
    whole = b.member(item, "v.i", "int64_t")
    b.check(kind != 4, "TypeError", f"a complex number does not become {toty}")
    large = kind == 5  # above INT64_MAX: these are the bits
    if isinstance(toty, types.Float):
        unsigned = b.cast(b.cast(whole, "uint64_t"), "double")
        wide = b.select(large, unsigned, b.cast(whole, "double"))
        wide = b.select(kind == 3, b.member(item, "v.f", "double"), wide)
        return b.cast(wide, context.get_value_type(toty))
    if toty == types.uint64:
        made = b.variable("uint64_t", b.cast(whole, "uint64_t"))
        b.check(~((kind < 3) & (whole < 0)), "OverflowError", f"{{}} does not fit {toty}", whole)
        with b.if_(kind == 3):
            wide = b.member(item, "v.f", "double")
            b.store(made, context.cast(b, wide, types.float64, types.uint64))
        return made
    given = b.cast(whole, "uint64_t")
    b.check(~large, "OverflowError", f"{{}} does not fit {toty}", given)
    made = b.variable("int64_t", whole)
    with b.if_(kind == 3):
        from_float = context.cast(b, b.member(item, "v.f", "double"), types.float64, types.int64)
        b.store(made, from_float)
    return context.cast(b, made, types.int64, toty)


# Attributes and functions that need no op of PyTorch ---------------------------------------------


@infer_getattr
class _ComplexAttributes(AttributeTemplate):
    key = types.Complex

    def resolve_real(self, ty: types.Complex) -> Type:
        return ty.underlying_float

    def resolve_imag(self, ty: types.Complex) -> Type:
        return ty.underlying_float


@infer_global(len)
class _Len(CallableTemplate):
    key = len

    def generic(self) -> Any:
        def typer(obj: Type) -> Any:
            return types.intp if isinstance(obj, types.BaseTuple) else None

        return typer


@lower_builtin(len, types.BaseTuple)
def _tuple_len(context: Context, builder: CBuilder, sig: Any, args: Any) -> Value:
    (tup,) = sig.args
    return context.get_constant(types.intp, len(tup))
