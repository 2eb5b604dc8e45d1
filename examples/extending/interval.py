"""An interval of numbers as a type of its own, in one file outside the package.

    python examples/extending/interval.py

docs/extending.md explains it line by line.
"""

from __future__ import annotations

import operator

import torch

from pytorch_bridge.extending import (
    NativeValue,
    box,
    jit,
    lower_builtin,
    lower_cast,
    make_attribute_wrapper,
    models,
    overload,
    overload_attribute,
    overload_method,
    register_model,
    type_callable,
    typeof_impl,
    types,
    unbox,
)


class Interval:
    """The numbers from lo up to hi."""

    def __init__(self, lo, hi):
        self.lo, self.hi = lo, hi

    def __repr__(self):
        return f"Interval({self.lo}, {self.hi})"


class IntervalType(types.Type):
    """The numbers from lo up to hi."""

    def __init__(self):
        super().__init__(name="Interval")


interval_type = IntervalType()


@typeof_impl(Interval)
def typeof_interval(val, c):
    return interval_type


@register_model(IntervalType)
class IntervalModel(models.StructModel):
    def __init__(self, dmm, fe_type):
        members = [("lo", types.float64), ("hi", types.float64)]
        models.StructModel.__init__(self, dmm, fe_type, members)


make_attribute_wrapper(IntervalType, "lo", "lo")
make_attribute_wrapper(IntervalType, "hi", "hi")


@unbox(IntervalType)
def unbox_interval(typ, obj, c):
    interval = c.struct(typ)
    interval.lo = c.pyapi.float_as_double(c.pyapi.object_getattr_string(obj, "lo"))
    interval.hi = c.pyapi.float_as_double(c.pyapi.object_getattr_string(obj, "hi"))
    return NativeValue(interval._getvalue())


@box(IntervalType)
def box_interval(typ, val, c):
    interval = c.struct(typ, val)
    lo = c.pyapi.float_from_double(interval.lo)
    hi = c.pyapi.float_from_double(interval.hi)
    cls = c.pyapi.unserialize(c.pyapi.serialize_object(Interval))
    return c.pyapi.call_function_objargs(cls, (lo, hi))


# Interval(lo, hi) in a compiled function: its type, then its C.


@type_callable(Interval)
def type_interval(context):
    def typer(lo, hi):
        if isinstance(lo, types.Number) and isinstance(hi, types.Number):
            return interval_type

    return typer


@lower_builtin(Interval, types.Number, types.Number)
def make_interval(context, builder, sig, args):
    interval = context.make_struct(builder, sig.return_type)
    interval.lo, interval.hi = (
        context.cast(builder, v, t, types.float64) for v, t in zip(args, sig.args, strict=True)
    )
    return interval._getvalue()


# What can be done with it, written in Python.


@overload_attribute(IntervalType, "width")
def interval_width(x):
    def get(x):
        return x.hi - x.lo

    return get


@overload_method(IntervalType, "clamp")
def interval_clamp(x, values):
    if isinstance(values, types.Array):

        def clamp(x, values):
            return values.clamp(x.lo, x.hi)

        return clamp


@overload(operator.add)
def interval_add(a, b):
    if isinstance(a, IntervalType) and isinstance(b, IntervalType):

        def add(a, b):
            return Interval(a.lo + b.lo, a.hi + b.hi)

        return add
    if isinstance(a, IntervalType) and isinstance(b, types.Number):

        def shift(a, b):
            return Interval(a.lo + b, a.hi + b)

        return shift


@overload(operator.contains)
def interval_contains(x, value):
    if isinstance(x, IntervalType) and isinstance(value, types.Number):

        def contains(x, value):
            return (x.lo <= value) & (value < x.hi)

        return contains


@overload(len)
def interval_len(x):
    if isinstance(x, IntervalType):
        return lambda x: 2


# An interval is true if there is a number in it.


@lower_cast(IntervalType, types.Boolean)
def interval_is_true(context, builder, fromty, toty, val):
    return builder.member(val, "lo", "double") < builder.member(val, "hi", "double")


@jit
def normalised(x, interval):
    """x clamped to the interval and mapped to 0 ... 1."""
    return (interval.clamp(x) - interval.lo) / interval.width


if __name__ == "__main__":
    print(normalised(torch.tensor([-1.0, 0.5, 3.0]), Interval(0.0, 2.0)))
    print(jit(lambda a, b: a + b + 0.5)(Interval(0.0, 1.0), Interval(2.0, 4.0)))
