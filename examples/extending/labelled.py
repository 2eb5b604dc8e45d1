"""A tensor whose dimensions have names, in one file outside the package.

    python examples/extending/labelled.py

The names belong to the type, so that they are known while a function is traced and cost nothing
when it runs: `x.sum("time")` becomes PyTorch's own sum over dimension 1.
"""

from __future__ import annotations

import operator

import torch

from pytorch_bridge.extending import (
    NativeValue,
    TypingError,
    box,
    jit,
    lower_builtin,
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


class Labelled:
    """A tensor and a name for each of its dimensions."""

    def __init__(self, tensor, names):
        if len(names) != tensor.dim():
            raise ValueError(f"{tensor.dim()} dimensions have {len(names)} names")
        self.tensor, self.names = tensor, tuple(names)

    def __repr__(self):
        return f"Labelled({self.names}, {self.tensor.tolist()})"


class LabelledType(types.Type):
    """A tensor and a name for each of its dimensions."""

    def __init__(self, names, tensor):
        super().__init__(f"Labelled{list(names)} of {tensor}")
        self.names, self.tensor = names, tensor

    @property
    def key(self):
        return self.names, self.tensor

    def dim(self, name):
        """The number of a dimension. TypingError where there is none of that name."""
        if name not in self.names:
            raise TypingError(f"there is no dimension {name!r} among {', '.join(self.names)}")
        return self.names.index(name)


def open_sizes(t):
    """The type of tensors like t of any size: one compiled function serves them all."""
    return types.Array(t.dtype, (None,) * t.ndim, device=t.device)


@typeof_impl(Labelled)
def typeof_labelled(val, c):
    return LabelledType(val.names, open_sizes(c.typeof(val.tensor)))


@register_model(LabelledType)
class LabelledModel(models.StructModel):
    def __init__(self, dmm, fe_type):
        models.StructModel.__init__(self, dmm, fe_type, [("tensor", fe_type.tensor)])


make_attribute_wrapper(LabelledType, "tensor", "tensor")


@unbox(LabelledType)
def unbox_labelled(typ, obj, c):
    made = c.struct(typ)
    made.tensor = c.unbox_value(typ.tensor, c.pyapi.object_getattr_string(obj, "tensor"))
    return NativeValue(made._getvalue())


@box(LabelledType)
def box_labelled(typ, val, c):
    cls = c.pyapi.unserialize(c.pyapi.serialize_object(Labelled))
    names = c.pyapi.unserialize(c.pyapi.serialize_object(typ.names))
    return c.pyapi.call_function_objargs(cls, (c.box(typ.tensor, c.struct(typ, val).tensor), names))


# Labelled(tensor, ("batch", "time")) in a compiled function


@type_callable(Labelled)
def type_constructor(context):
    def typer(tensor, names):
        if isinstance(tensor, types.Array) and isinstance(names, types.BaseTuple):
            texts = tuple(t.literal_value for t in names if isinstance(t, types.StringLiteral))
            if len(texts) != len(names) or len(texts) != tensor.ndim:
                raise TypingError(f"a tensor of {tensor.ndim} dimensions needs as many names")
            return LabelledType(texts, open_sizes(tensor))

    return typer


@lower_builtin(Labelled, types.Array, types.BaseTuple)
def make_labelled(context, builder, sig, args):
    made = context.make_struct(builder, sig.return_type)
    made.tensor = args[0]
    return made._getvalue()


@overload_attribute(LabelledType, "names")
def labelled_names(x):
    names = x.names

    def get(x):
        return names

    return get


def reduction(method):
    """x.method("name") over one dimension, whose name goes away."""

    @overload_method(LabelledType, method)
    def reduce(x, name):
        if isinstance(name, types.StringLiteral):
            dim = x.dim(name.literal_value)
            rest = tuple(n for n in x.names if n != name.literal_value)

            def reduce_impl(x, name):
                return Labelled(getattr(x.tensor, method)(dim), rest)

            return reduce_impl


for method in ("sum", "mean", "amax"):
    reduction(method)


@overload_method(LabelledType, "order")
def labelled_order(x, names):
    if isinstance(names, types.BaseTuple):
        wanted = tuple(t.literal_value for t in names)
        dims = [x.dim(n) for n in wanted]

        def order_impl(x, names):
            return Labelled(x.tensor.permute(dims), wanted)

        return order_impl


def elementwise(function):
    """Tensors are matched by the names of their dimensions, in whatever order these come."""

    @overload(function)
    def apply(a, b):
        if isinstance(a, LabelledType) and isinstance(b, LabelledType):
            names = a.names + tuple(n for n in b.names if n not in a.names)

            def by_name(a, b):
                return Labelled(function(aligned(a, names), aligned(b, names)), names)

            return by_name
        if isinstance(a, LabelledType) and isinstance(b, types.Number):
            names = a.names

            def by_number(a, b):
                return Labelled(function(a.tensor, b), names)

            return by_number


def aligned(x, names):
    """x's tensor with the dimensions of names, those that it lacks of size 1."""
    have = [n for n in names if n in x.names]
    tensor = x.order(tuple(have)).tensor
    for i, n in enumerate(names):
        if n not in x.names:
            tensor = tensor.unsqueeze(i)
    return tensor


for function in (operator.add, operator.sub, operator.mul, operator.truediv):
    elementwise(function)


@jit
def centred(x):
    """x without its mean over time."""
    return x - x.mean("time")


if __name__ == "__main__":
    x = Labelled(torch.arange(6.0).reshape(2, 3), ("batch", "time"))
    print(centred(x))
