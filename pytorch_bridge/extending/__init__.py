"""Adding types, functions, methods and kernels, from outside the package.

This is the one module that an extension imports. A type of one's own:

    from pytorch_bridge.extending import types, typeof_impl, register_model, models

    class Interval:                                    # any Python class
        def __init__(self, lo, hi):
            self.lo, self.hi = lo, hi

    class IntervalType(types.Type):                    # its type
        def __init__(self):
            super().__init__(name="Interval")

    @typeof_impl(Interval)                             # which values have it
    def typeof_interval(val, c):
        return IntervalType()

    @register_model(IntervalType)                      # what they are in C
    class IntervalModel(models.StructModel):
        def __init__(self, dmm, fe_type):
            members = [("lo", types.float64), ("hi", types.float64)]
            models.StructModel.__init__(self, dmm, fe_type, members)

    make_attribute_wrapper(IntervalType, "lo", "lo")   # x.lo
    make_attribute_wrapper(IntervalType, "hi", "hi")

    @overload_attribute(IntervalType, "width")         # x.width, written in Python
    def interval_width(x):
        def get(x):
            return x.hi - x.lo
        return get

and, with `unbox` and `box`, how its values come from Python and go back. Where to read on:

    overload, overload_method, overload_attribute      `overloads`: implementations in Python
    intrinsic, lower_builtin, lower_getattr, ...       `lowering`: implementations in C
    infer, infer_getattr, infer_global, type_callable  `templates`: typing alone
    lower_cast                                         `casts`: conversions and truth values
    typeof_impl, typeof                                `typeof`: the type of a value
    models, register_model, make_attribute_wrapper     `models`: what a value is in C
    box, unbox, NativeValue                            `boxing`: from Python and back
    transaction, temporary                             `registry`: all or nothing
    jit                                                `jitted`: Python functions, compiled
    Op, Apply, Variable, Type, CType, TensorType       ops and types of graphs, written in full

Which of several registrations counts is said in `resolution` (calls, methods, attributes) and in
`selecting` (C and conversions).
"""

from __future__ import annotations

from .. import types as _graph_types
from ..errors import DuplicateError, RegistrationError
from ..graph.basic import Apply, Variable
from ..ops.op import Op
from ..registry import temporary, transaction
from ..types import CType, TensorType, Type
from . import cgutils, models, types
from .boxing import BoxContext, BoxingError, NativeValue, box, unbox
from .builder import BuilderError, CBuilder, Value
from .casts import lower_cast
from .context import Context, StructProxy
from .errors import AssignmentError, LoweringError, TypingError, UnreachableError, absent
from .lowering import (
    lower_builtin,
    lower_constant,
    lower_getattr,
    lower_getattr_generic,
    lower_setattr,
    lower_setattr_generic,
)
from .models import register_model
from .overloads import (
    intrinsic,
    make_attribute_wrapper,
    overload,
    overload_attribute,
    overload_method,
    register_jitable,
)
from .ranking import Conversion, can_convert
from .selecting import AmbiguityError, Any, VarArg
from .signatures import Signature, signature
from .templates import (
    AbstractTemplate,
    AttributeTemplate,
    CallableTemplate,
    ConcreteTemplate,
    infer,
    infer_getattr,
    infer_global,
    type_callable,
)
from .typeof import typeof, typeof_impl

from .jitted import jit  # isort: skip
from . import core, natives, parameters, scalars  # isort: skip  # register what Python brings

del core, natives, parameters, scalars

# Code that was written for Numba looks for the types of extensions among all types.
for _name in set(dir(types)) - set(dir(_graph_types)):
    setattr(_graph_types, _name, getattr(types, _name))
del _name


# Names that code written for Numba looks for, and what to write for them.
_ABSENT = {
    "overload_classmethod": "register the class method's function: overload(Class.method)",
    "overload_glue": "use overload",
    "is_jitted": "compare with isinstance(f, type(jit(f)))",
    "as_numba_type": "types come from values: typeof(value)",
    "njit": "use jit, which always compiles the whole function",
    "vectorize": "PyTorch's functions are elementwise already, and jit fuses them",
    "guvectorize": "use torch.vmap outside of jit, or dimensions in the function",
    "cfunc": "export_go makes a package with a function that C and Go can call",
    "objmode": "a compiled function cannot call the interpreter: return, and call again",
    "prange": "PyTorch's functions run in parallel by themselves",
    "jitclass": "register a class with typeof_impl, register_model, box and unbox",
    "generated_jit": "use overload",
    "stencil": "use slices, or torch.nn.functional.conv2d",
    "get_cython_function_address": "give the address as a value of a type derived from Opaque",
    "typed": "lists and dicts are taken apart, or exist while a function is traced only",
    "optional": "a value or None is decided while tracing: None is a constant of its own",
    "deferred_type": "a struct cannot contain itself",
    "cuda": "tensors on a device are computed on there",
    "structref": "a struct is a value: register_model with a StructModel",
    "SentryLiteralArgs": "name constants with jit(constants=...)",
    "literally": "name constants with jit(constants=...)",
    "literal_unroll": "loops over constants and tuples are always unrolled",
}


__getattr__ = absent(__name__, _ABSENT)


__all__ = [
    "AbstractTemplate",
    "AmbiguityError",
    "Any",
    "Apply",
    "AssignmentError",
    "AttributeTemplate",
    "BoxContext",
    "BoxingError",
    "BuilderError",
    "CBuilder",
    "CType",
    "CallableTemplate",
    "ConcreteTemplate",
    "Context",
    "Conversion",
    "DuplicateError",
    "LoweringError",
    "NativeValue",
    "Op",
    "RegistrationError",
    "Signature",
    "StructProxy",
    "TensorType",
    "Type",
    "TypingError",
    "UnreachableError",
    "Value",
    "VarArg",
    "Variable",
    "box",
    "can_convert",
    "cgutils",
    "infer",
    "infer_getattr",
    "infer_global",
    "intrinsic",
    "jit",
    "lower_builtin",
    "lower_cast",
    "lower_constant",
    "lower_getattr",
    "lower_getattr_generic",
    "lower_setattr",
    "lower_setattr_generic",
    "make_attribute_wrapper",
    "models",
    "overload",
    "overload_attribute",
    "overload_method",
    "register_jitable",
    "register_model",
    "signature",
    "temporary",
    "transaction",
    "type_callable",
    "typeof",
    "typeof_impl",
    "types",
    "unbox",
]
