"""What traced code may call without any extension: PyTorch's functions and Python's operators.

PyTorch's native functions are found by their names. Python's operators, `len`, `bool`, `int`,
`float`, `abs`, `min`, `max` and the functions of `math` work on numbers and tensors.
"""

from __future__ import annotations

import builtins
import inspect
import math
import operator
from collections.abc import Callable, Mapping
from types import UnionType
from typing import TYPE_CHECKING, Any

import torch

from .. import ops
from ..graph.basic import Variable
from ..ops import scalar
from ..ops.native import Method, NativeFunction, NativeOp, Packet, find_method, find_packet
from ..ops.native import native as overload_of
from ..ops.op import Op
from ..ops.torch_functions import own_name
from ..types import TensorType
from . import types
from .errors import TypingError
from .graph_ops import lowered
from .lowering import lower_builtin
from .overloads import overload
from .proxies import (
    BINARY,
    COMPARE,
    UNARY,
    Proxy,
    Sizes,
    described,
    here,
    is_proxy,
    proxies,
    sizes,
    unwrapped,
)
from .signatures import signature
from .templates import AttributeTemplate, ConcreteTemplate, calls, infer_getattr

if TYPE_CHECKING:
    from .tracing import Trace

NOTHING = object()

# Operators ---------------------------------------------------------------------------------------


def _number(v: Any) -> bool:
    return isinstance(v, (bool, int, float)) or (
        isinstance(v, Variable) and not isinstance(v.type, TensorType)
    )


def _compare(name: str) -> Callable[[Any, Any], Any]:
    """Variables are equal by identity, so == and != of their values have functions here."""

    def compare(a: Any, b: Any) -> Any:
        if _number(a) and _number(b):
            return getattr(scalar, name)(a, b)
        return getattr(ops, name)(a, b)

    return compare


def _positive(a: Any) -> Any:
    return a


_ON_VARIABLES: dict[Any, Callable[..., Any]] = {
    **{f: f for f in BINARY.values()},
    **{f: _compare(name) for name, f in COMPARE.items()},
    **{f: f for f in UNARY.values()},
    operator.pos: _positive,
    operator.getitem: operator.getitem,
}


def _of_torch(func: Any) -> str | None:
    """The name of PyTorch's native function behind a function or a method, or None."""
    name = own_name(func)
    return name if name is not None and find_packet(name) is not None else None


def has_native(func: Any) -> bool:
    """Whether PyTorch, or Python's operators, can do it with variables."""
    if isinstance(func, (Op, Packet, NativeFunction)):
        return True
    try:
        if func in _ON_VARIABLES:
            return True
    except TypeError:  # no hash
        return False
    if isinstance(func, torch._ops.OpOverload):
        return func.namespace == "aten"
    if isinstance(func, torch._ops.OpOverloadPacket):
        return func._qualified_op_name.startswith("aten::")
    return _of_torch(func) is not None


def makes_sizes(packet: Packet) -> bool:
    """Whether the first argument of a function is the size of the result."""
    return all(
        f.function.arguments and f.function.arguments[0].name == "size"
        for f in packet.overloads.values()
    )


def is_random(func: Any) -> bool:
    """Whether each call of a function of PyTorch gives something else."""
    if not isinstance(func, (Packet, NativeFunction)):
        operator = isinstance(func, (torch._ops.OpOverload, torch._ops.OpOverloadPacket))
        if not (operator or own_name(func)) or not has_native(func):
            return False
        func = native(func)
    if isinstance(func, NativeFunction):
        return func.random
    return any(f.random for f in func.overloads.values()) if isinstance(func, Packet) else False


def native(func: Any) -> Callable[..., Any]:
    """The function on variables."""
    if isinstance(func, (Op, Packet, NativeFunction)):
        return func

    if func in _ON_VARIABLES:
        return _ON_VARIABLES[func]
    if isinstance(func, torch._ops.OpOverload):
        name, _, suffix = func._schema.name.removeprefix("aten::"), "", func._schema.overload_name
        return overload_of(f"{name}.{suffix}" if suffix else name)
    if isinstance(func, torch._ops.OpOverloadPacket):
        base: str | None = func._qualified_op_name.removeprefix("aten::")
    else:
        base = _of_torch(func)
    packet = find_packet(base or "")
    if packet is None:
        raise TypingError(f"PyTorch has no native function {base or func}")
    return packet


def check_pure(func: Any, kwargs: Mapping[str, Any]) -> None:
    """TypingError for functions that write into a tensor."""
    if isinstance(func, Op) or func in _ON_VARIABLES:
        return
    name = getattr(func, "__name__", "")
    if kwargs.get("out") is not None:
        raise TypingError(f"{name}(out=...) writes into a tensor; a traced function makes new ones")
    if name.endswith("_") and not name.endswith("__"):
        raise TypingError(
            f"{name} writes into a tensor; a traced function computes new ones: use "
            f"x = x.{name.rstrip('_')}(...)"
        )


def check_kept(result: Any) -> None:
    """TypingError where a function of PyTorch that was called writes into an argument, whatever it
    is called."""
    for v in result if isinstance(result, (list, tuple)) else [result]:
        node = v.owner if isinstance(v, Variable) else None
        if node is not None and isinstance(node.op, NativeOp) and node.op.destroy_map:
            raise TypingError(
                f"{node.op.name} writes into a tensor{here()}; a traced function computes new ones"
            )


def _set_item(trace: Trace, x: Any, index: Any, value: Any) -> Any:
    raise TypingError(
        "an assignment to elements writes into a tensor; a traced function computes new ones: use "
        "torch.where, x.index_put(...), x.slice_scatter(...) or x.select_scatter(...)"
    )


# Attributes and methods --------------------------------------------------------------------------


def attribute(trace: Trace, owner: Proxy, name: str) -> Any:
    """What a tensor or a number has by itself under a name; NOTHING where it has nothing."""
    t = owner._pb_type
    if isinstance(t, types.Array):
        return _tensor_attribute(trace, owner, t, name)
    return _number_attribute(owner, t, name)


def _number_attribute(owner: Proxy, t: Any, name: str) -> Any:
    if type(t) not in (types.Integer, types.Float, types.Boolean):
        return NOTHING
    if name == "real":
        return owner
    if name == "imag":
        return 0
    return NOTHING


_DEVICES = {
    "is_cpu": "cpu",
    "is_cuda": "cuda",
    "is_meta": "meta",
    "is_mps": "mps",
    "is_xpu": "xpu",
}

# What an argument has beside its type: the function is then traced for each.
_LOOKED_AT: dict[str, Callable[[torch.Tensor], Any]] = {
    "requires_grad": lambda x: x.requires_grad,
    "layout": lambda x: x.layout,
    "is_sparse": lambda x: x.is_sparse,
    "is_sparse_csr": lambda x: x.is_sparse_csr,
    "is_quantized": lambda x: x.is_quantized,
    "is_nested": lambda x: x.is_nested,
    "is_mkldnn": lambda x: x.is_mkldnn,
}


def looked_at(x: torch.Tensor) -> tuple[Any, ...]:
    """All of that, for the key of an argument."""
    return tuple(f(x) for f in _LOOKED_AT.values())


_VIEWS = ("T", "mT", "H", "mH", "real", "imag")


def _tensor_attribute(trace: Trace, owner: Proxy, t: types.Array, name: str) -> Any:
    v: Any = owner._pb_variable
    if name == "shape":
        return sizes(trace.wrap(v.shape))
    if name == "ndim":
        return t.ndim
    if name == "dtype":
        return t.torch_dtype if t.dtype is not None else NOTHING
    if name == "device":
        return torch.device(t.device) if t.device is not None else NOTHING
    if name == "itemsize":
        return t.torch_dtype.itemsize
    if name == "nbytes":
        return _numel(owner) * t.torch_dtype.itemsize
    if name in _DEVICES:
        return torch.device(t.device).type == _DEVICES[name] if t.device is not None else NOTHING
    given = owner._pb_given
    if name in _LOOKED_AT and given is not None:
        trace.looks = True
        return _LOOKED_AT[name](given)
    if name in _VIEWS:
        if name == "real" and not t.torch_dtype.is_complex:
            return owner
        packet = find_packet({"T": "numpy_T", "H": "matrix_H"}.get(name, name))
        return NOTHING if packet is None else trace.wrap(packet(v))
    constant = _CONSTANT_METHODS.get(name)
    if constant is not None:
        return lambda *args, **kwargs: constant(owner, *args, **kwargs)
    known = inspect.getattr_static(torch.Tensor, name, None)
    if known is not None and not callable(known):  # a property
        return NOTHING
    packet = find_method(name)
    if packet is None:
        return NOTHING
    bound = Method(packet, v)  # the variable itself has other things under some names, as `clone`

    def method(*args: Any, **kwargs: Any) -> Any:
        check_pure(method, kwargs)
        return trace.on_variables(bound, args, kwargs)

    method.__name__ = name
    return method


def detached(result: Any) -> Any:
    """Results without a gradient."""
    if isinstance(result, (list, tuple)):
        return type(result)(map(detached, result))
    if not isinstance(result, Variable) or not isinstance(result.type, TensorType):
        return result
    detach = find_packet("detach")
    assert detach is not None
    return detach(result)


def named(result: Any) -> Any:
    """The results of a function, with the names that PyTorch's have: `x.max(dim=1).values`."""
    if not isinstance(result, list) or not result or not isinstance(result[0], Variable):
        return result
    node = result[0].owner
    if node is None or not isinstance(node.op, NativeOp) or node.outputs != result:
        return result
    cls = getattr(torch.return_types, node.op.name.partition(".")[0], None)
    return result if cls is None or cls.n_fields != len(result) else cls(result)


# What a tensor has in PyTorch and not in a traced function, and what to write there.
_HINTS = {
    **dict.fromkeys(
        ("numpy", "tolist"), "return the tensor, and convert what the function returns"
    ),
    "cuda": 'write x.to("cuda")',
    "backward": "gradients are taken of what the function returns, or with pytorch_bridge.grad",
    "requires_grad_": "gradients are taken of what the function returns",
    "data": "write x.detach()",
    "grad": "a traced function has values, whose gradients are not known",
    **dict.fromkeys(
        ("is_leaf", "retains_grad", "grad_fn", "output_nr", "_version", "_base"),
        "it is autograd's, which records no traced function while it is traced",
    ),
    **dict.fromkeys(
        ("requires_grad", "layout", "is_sparse", "is_quantized"),
        "it is known of the function's arguments only",
    ),
}


def hint(t: Any, name: str) -> str:
    """What to write for an attribute of PyTorch's tensors that is not there."""
    return _HINTS.get(name, "") if isinstance(t, types.Array) else ""


def _to(x: Any, *args: Any, **kwargs: Any) -> Any:
    """x.to, also of a device alone."""
    if args and isinstance(args[0], (str, torch.device)):
        names = ("device", "dtype", "non_blocking", "copy")
        kwargs = {**dict(zip(names, args, strict=False)), **kwargs}
        args = ()
    if isinstance(kwargs.get("device"), str):
        kwargs["device"] = torch.device(kwargs["device"])
    packet = find_packet("to")
    assert packet is not None
    return x._pb_trace.on_variables(Method(packet, x._pb_variable), args, kwargs)


def _type(x: Any, dtype: Any = None, non_blocking: bool = False) -> Any:
    """x.type(): the name of its class, or x in the dtype that is given or that such a name has."""
    if dtype is None:
        return torch.empty(0, dtype=x.dtype, device=x.device).type()
    return x.to(dtype if isinstance(dtype, torch.dtype) else torch.empty(0).type(dtype).dtype)


def _norm(
    trace: Trace,
    input: Any,
    p: Any = "fro",
    dim: Any = None,
    keepdim: bool = False,
    out: Any = None,
    dtype: Any = None,
) -> Any:
    """torch.norm, whose own Python code asks for the layout, as it is for strided tensors."""
    check_pure(torch.norm, {"out": out})
    dims = [dim] if isinstance(dim, int) else dim
    matrix = p != "fro" if isinstance(p, str) else False
    if matrix or (p == "fro" and dims is not None and len(dims) > 2):
        dims = list(range(input.ndim)) if dims is None else dims
        return trace.call(torch.linalg.matrix_norm, (input, p, dims, keepdim), {"dtype": dtype})
    p = 2 if p is None or isinstance(p, str) else p
    return trace.call(torch.linalg.vector_norm, (input, p, dims, keepdim), {"dtype": dtype})


def _norm_method(
    x: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Any:
    return _norm(x._pb_trace, x, p, dim, keepdim, dtype=dtype)


def _numel(x: Any) -> Any:
    n: Any = 1
    for size in x.shape:
        n = n * size
    return n


def _size(x: Any, dim: int | None = None) -> Any:
    return x.shape if dim is None else x.shape[dim]


def _item(x: Any) -> Any:
    """The only element as a number."""
    trace, dtype = x._pb_trace, x.dtype
    if dtype.is_complex:
        raise TypingError("item() of a complex tensor has no type: take real and imag apart")
    if dtype is torch.bool:
        return trace.call(bool, (x,), {})
    return trace.call(float if dtype.is_floating_point else int, (x,), {})


_CONSTANT_METHODS: dict[str, Callable[..., Any]] = {
    "item": _item,
    "numel": _numel,
    "nelement": _numel,
    "size": _size,
    "dim": lambda x: x.ndim,
    "ndimension": lambda x: x.ndim,
    "element_size": lambda x: x.dtype.itemsize,
    "is_complex": lambda x: x.dtype.is_complex,
    "is_floating_point": lambda x: x.dtype.is_floating_point,
    "float": lambda x: x.to(torch.float32),
    "double": lambda x: x.to(torch.float64),
    "half": lambda x: x.to(torch.float16),
    "bfloat16": lambda x: x.to(torch.bfloat16),
    "int": lambda x: x.to(torch.int32),
    "long": lambda x: x.to(torch.int64),
    "bool": lambda x: x.to(torch.bool),
    "byte": lambda x: x.to(torch.uint8),
    "short": lambda x: x.to(torch.int16),
    "char": lambda x: x.to(torch.int8),
    "cfloat": lambda x: x.to(torch.complex64),
    "cdouble": lambda x: x.to(torch.complex128),
    "cpu": lambda x: x.to("cpu"),
    "to": _to,
    "type": _type,
    "norm": _norm_method,
}


# Functions of Python -----------------------------------------------------------------------------


def _truth(trace: Trace, x: Any = False) -> Any:
    return trace.wrap(trace.convert(x, types.boolean)) if is_proxy(x) else bool(x)


def _to_int(trace: Trace, x: Any = 0, *args: Any) -> Any:
    if is_proxy(x) and isinstance(x._pb_type, types.Integer):
        return x
    return trace.wrap(trace.convert(x, types.int64)) if is_proxy(x) else int(x, *args)


def _to_float(trace: Trace, x: Any = 0.0) -> Any:
    if is_proxy(x) and isinstance(x._pb_type, types.Float):
        return x
    return trace.wrap(trace.convert(x, types.float64)) if is_proxy(x) else float(x)


def _extremum(name: str) -> Callable[..., Any]:
    def function(trace: Trace, *args: Any, **kwargs: Any) -> Any:
        values = list(args[0]) if len(args) == 1 else list(args)
        if kwargs or not values:
            raise TypingError(f"{name}() of traced values takes numbers, and nothing by keyword")
        best = values[0]
        for v in values[1:]:
            a, b = unwrapped(best), unwrapped(v)
            if not (_number(a) and _number(b)):
                raise TypingError(
                    f"{name}() needs the truth of a comparison of tensors: use torch.{name}imum"
                )
            best = trace.wrap(getattr(scalar, f"{name}imum")(a, b))
        return best

    return function


def _is_instance(trace: Trace, value: Any, cls: Any) -> bool:
    if not is_proxy(value):
        return isinstance(value, cls)
    if isinstance(cls, tuple):
        return any(_is_instance(trace, value, c) for c in cls)
    if isinstance(cls, UnionType):
        return _is_instance(trace, value, cls.__args__)
    if cls is torch.nn.Parameter or isinstance(cls, type(torch.FloatTensor)):
        raise TypingError(
            f"isinstance(x, {cls.__qualname__}) is not known of a traced tensor{here()}: jit takes "
            "parameters and other tensors alike; look at x.dtype and x.device"
        )
    return issubclass(_class(trace, value), cls)


def _class(trace: Trace, value: Any, *args: Any) -> Any:
    """type(value)"""
    if args or not is_proxy(value):
        return torch.Size if type(value) is Sizes else type(value, *args)
    found = trace.class_of(value)
    if found is None:
        raise TypingError(
            f"the Python class of {described(value)} is not known while the function is "
            f"traced{here()}"
        )
    return found


def _text(func: Any) -> Callable[..., Any]:
    """What a function that makes text says of traced values."""

    def function(trace: Trace, *args: Any, **kwargs: Any) -> Any:
        for p in proxies((args, kwargs)):
            p._known(f"{func.__name__}()")
        return func(*args, **kwargs)

    return function


def _round(trace: Trace, x: Any, ndigits: Any = None) -> Any:
    if ndigits is not None or not _numeric(x):
        raise TypingError(
            f"round() of a traced value takes one number{here()}: use torch.round(x, decimals=n)"
        )
    if not isinstance(x._pb_type, types.Float):
        return trace.call(int, (x,), {})
    return trace.wrap(trace.convert(_half_even(trace, x), types.int64))


def _half_even(trace: Trace, x: Any) -> Any:
    return _c_function(trace, "nearbyint", x)


def _c_function(trace: Trace, name: str, x: Any) -> Any:
    """A function of C's library, on a float."""

    def emit(context: Any, b: Any, sig: Any, args: Any) -> Any:
        return b.c_call(name, args[0], returns="double")

    sig = signature(types.float64, types.float64)
    return trace.wrap(lowered(name, sig, emit, name, [x._pb_variable]))


def _numeric(*values: Any) -> bool:
    """Whether values are numbers, traced or not, that are not complex."""
    kinds = (types.Boolean, types.Integer, types.Float)
    return all(
        type(v._pb_type) in kinds if is_proxy(v) else isinstance(v, (bool, int, float))
        for v in values
    )


def _divmod(trace: Trace, a: Any, b: Any) -> Any:
    if not _numeric(a, b):
        raise TypingError(f"divmod() of traced values takes two numbers{here()}")
    return trace.call(operator.floordiv, (a, b), {}), trace.call(operator.mod, (a, b), {})


def _pow(trace: Trace, a: Any, b: Any, mod: Any = None) -> Any:
    if mod is not None:
        raise TypingError(
            f"pow() with a modulus has no implementation for traced values{here()}: write "
            "pow(a, b) % m where that is within 64 bits"
        )
    return trace.call(operator.pow, (a, b), {})


def _prod(trace: Trace, values: Any, *, start: Any = 1) -> Any:
    for v in values:
        start = trace.call(operator.mul, (start, v), {})
    return start


def _tensor(trace: Trace, data: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """torch.tensor of numbers, of lists of numbers in lists, and of a tensor."""
    if is_proxy(data) and isinstance(data._pb_type, types.Array):
        return _as_tensor(trace, data.detach().clone(), dtype=dtype, device=device)
    leaves: list[Any] = []

    def shape_of(value: Any) -> tuple[int, ...]:
        if not isinstance(value, (list, tuple)):
            if not _numeric(value):
                raise TypingError(
                    f"torch.tensor() of traced values takes numbers, and lists of them{here()}: "
                    "use torch.stack for tensors"
                )
            leaves.append(value)
            return ()
        inside = {shape_of(v) for v in value}
        if len(inside) > 1:
            raise TypingError(f"torch.tensor(): the lists in it differ in their lengths{here()}")
        return (len(value), *(inside.pop() if inside else ()))

    shape = shape_of(data)
    if dtype is None:
        kinds = {v._pb_type if is_proxy(v) else type(v) for v in leaves}
        if any(k is float or isinstance(k, types.Float) for k in kinds):
            dtype = torch.get_default_dtype()
            trace.outside.asked(torch.get_default_dtype, (), dtype)
        else:
            dtype = torch.bool if kinds <= {bool, types.boolean} else torch.int64
    made = [trace.call(torch.full, ((), v), {"dtype": dtype, "device": device}) for v in leaves]
    return trace.call(torch.stack, (made,), {}).reshape(shape)


def _as_tensor(trace: Trace, data: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """torch.as_tensor."""
    if not is_proxy(data) or not isinstance(data._pb_type, types.Array):
        return _tensor(trace, data, dtype=dtype, device=device)
    data = data if dtype is None else data.to(dtype)
    return data if device is None else data.to(device)


def _no_delete(trace: Trace, x: Any, index: Any) -> Any:
    raise TypingError(
        f"no implementation of del x[i] for a value of type {trace.typeof(x)}{here()}: nothing is "
        "registered with overload(operator.delitem)"
    )


def _to_whole(name: str) -> Callable[..., Any]:
    def function(trace: Trace, x: Any) -> Any:
        if not _numeric(x):
            raise TypingError(f"math.{name}() of a traced value takes a number{here()}")
        if not isinstance(x._pb_type, types.Float):
            return trace.call(int, (x,), {})
        return trace.wrap(trace.convert(_c_function(trace, name, x), types.int64))

    return function


def _no_torch_function(trace: Trace, *args: Any, **kwargs: Any) -> bool:
    """PyTorch's own Python functions go on with their bodies."""
    return False


SPECIAL: dict[Any, Callable[..., Any]] = {
    bool: _truth,
    operator.truth: _truth,
    int: _to_int,
    float: _to_float,
    type: _class,
    **{f: _text(f) for f in (str, repr, format, ascii, print)},
    round: _round,
    divmod: _divmod,
    pow: _pow,
    math.floor: _to_whole("floor"),
    math.ceil: _to_whole("ceil"),
    math.trunc: _to_whole("trunc"),
    math.prod: _prod,
    torch.tensor: _tensor,
    torch.as_tensor: _as_tensor,
    operator.delitem: _no_delete,
    min: _extremum("min"),
    max: _extremum("max"),
    builtins.isinstance: _is_instance,
    operator.setitem: _set_item,
    torch.norm: _norm,
    torch.overrides.has_torch_function: _no_torch_function,
    torch.overrides.has_torch_function_unary: _no_torch_function,
    torch.overrides.has_torch_function_variadic: _no_torch_function,
}


@overload(len)
def _tensor_len(x: Any) -> Any:
    if isinstance(x, types.Array):
        if not x.ndim:
            raise TypingError("len() of a tensor without dimensions")
        return lambda x: x.shape[0]
    return None


@infer_getattr
class _TensorAttributes(AttributeTemplate):
    """The types of a tensor's parts; `attribute` above computes them."""

    key = types.Array

    def _part(self, ty: types.Array) -> Any:
        if ty.dtype is None or not ty.dtype.startswith("complex"):
            return None
        part = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}[ty.dtype]
        return types.Array(part, ty.shape, device=ty.device)

    def resolve_real(self, ty: types.Array) -> Any:
        return self._part(ty) or ty

    def resolve_imag(self, ty: types.Array) -> Any:
        return self._part(ty)


# math: as Python has it, with its errors


_MATH = {
    "sqrt": "domain",
    "exp": "range",
    "expm1": "range",
    "log": "domain",
    "log1p": "domain",
    "log2": "domain",
    "log10": "domain",
    "sin": "domain",
    "cos": "domain",
    "tan": "domain",
    "asin": "domain",
    "acos": "domain",
    "atan": "",
    "sinh": "range",
    "cosh": "range",
    "tanh": "",
    "erf": "",
    "fabs": "",
    "acosh": "domain",
    "asinh": "",
    "atanh": "domain",
    "cbrt": "",
    "erfc": "",
    "exp2": "range",
}


def _math(name: str, error: str) -> None:
    function = getattr(math, name)
    template = type(
        f"Math_{name}",
        (ConcreteTemplate,),
        {"key": function, "cases": [signature(types.float64, types.float64)]},
    )
    calls.add(function, template, (template, name), f"math.{name}")

    def emit(context: Any, b: Any, sig: Any, args: Any) -> Any:
        (x,) = args
        y = b.c_call(name, x, returns="double")
        finite = b.expression(f"isfinite({x.text})", "bool")
        known = b.expression(f"!isnan({x.text})", "bool")
        if error == "domain":
            wrong = b.expression(f"!isfinite({y.text})", "bool") & finite
            wrong = wrong | (b.expression(f"isnan({y.text})", "bool") & known)
            b.check(~wrong, "ValueError", "math domain error")
        elif error == "range":
            wrong = b.expression(f"isinf({y.text})", "bool") & finite
            b.check(~wrong, "OverflowError", "math range error")
        return y

    lower_builtin(function, types.Float)(emit)


for _name, _error in _MATH.items():
    _math(_name, _error)


def _math_of(name: str, n: int, returns: Any, emit: Callable[..., Any]) -> None:
    """A function of `math` that takes n floats."""
    function = getattr(math, name)
    case = signature(returns, *[types.float64] * n)
    template = type(f"Math_{name}", (ConcreteTemplate,), {"key": function, "cases": [case]})
    calls.add(function, template, (template, name), f"math.{name}")
    lower_builtin(function, *[types.Float] * n)(emit)


def _called(name: str, returns: str) -> Callable[..., Any]:
    def emit(context: Any, b: Any, sig: Any, args: Any) -> Any:
        return b.c_call(name, *args, returns=returns)

    return emit


def _fmod(context: Any, b: Any, sig: Any, args: Any) -> Any:
    x, y = args
    found = b.c_call("fmod", x, y, returns="double")
    wrong = b.expression(f"isnan({found.text})", "bool")
    wrong = wrong & b.expression(f"!isnan({x.text}) && !isnan({y.text})", "bool")
    b.check(~wrong, "ValueError", "math domain error")
    return found


def _scaled(factor: float) -> Callable[..., Any]:
    return lambda context, b, sig, args: args[0] * factor


for _name in ("atan2", "copysign"):
    _math_of(_name, 2, types.float64, _called(_name, "double"))
_math_of("fmod", 2, types.float64, _fmod)
for _name in ("isnan", "isinf", "isfinite"):
    _math_of(
        _name,
        1,
        types.boolean,
        lambda context, b, sig, args, name=_name: b.expression(f"{name}({args[0].text})", "bool"),
    )
_math_of("degrees", 1, types.float64, _scaled(180.0 / math.pi))
_math_of("radians", 1, types.float64, _scaled(math.pi / 180.0))


@overload(operator.contains)
def _tensor_contains(x: Any, item: Any) -> Any:
    if isinstance(x, types.Array):
        if not isinstance(item, (types.Array, types.Number)):
            raise TypingError(f"a tensor contains numbers and tensors, not {item}")
        return lambda x, item: bool((x == item).any())
    return None
