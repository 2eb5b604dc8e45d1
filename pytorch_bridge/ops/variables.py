"""Variables with the operators of what they stand for: tensors as torch has them, and numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..errors import BridgeTypeError
from ..graph.basic import Constant, Variable
from ..types.base import Graphs, Type, register_graphs
from ..types.enums import DType
from ..types.schema_types import SchemaType
from ..types.tensor import TensorType

_COMPARE = {
    "__eq__": "eq",
    "__ne__": "ne",
    "__lt__": "lt",
    "__le__": "le",
    "__gt__": "gt",
    "__ge__": "ge",
}
_BINARY = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "truediv": "div",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "pow",
    "matmul": "matmul",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift",
}
_COMMUTATIVE = ("add", "mul", "bitwise_and", "bitwise_or", "bitwise_xor")
# The names of the operators with two operands.
OPERATORS = (
    *(f"__{side}{name}__" for name in _BINARY for side in ("", "r")),
    *_COMPARE,
)
_UNARY = {"__neg__": "neg", "__abs__": "abs", "__invert__": "bitwise_not"}


if TYPE_CHECKING:
    from .methods_gen import NativeMethods, ValueMethods
else:

    class NativeMethods:
        """The methods that `__getattr__` finds, which only type checkers see."""

    class ValueMethods:
        """The operators, which are set below."""


class ValueVariable(ValueMethods, Variable):
    """A number, or another value that is no tensor. Numbers have arithmetic and comparisons."""

    __hash__ = Variable.__hash__


class TensorMethods(NativeMethods):
    """What a tensor variable can do. Every method of torch.Tensor that is a native function is one
    here: `x.relu()`, `x.sum(0)`, `x.reshape(-1, 10)`. Comparisons are elementwise, `==` too."""

    type: Any
    __hash__ = object.__hash__
    # NumPy and torch leave `array + variable` to the variable.
    __array_ufunc__ = None

    @property
    def dtype(self) -> DType | None:
        """The dtype, which is equal to its name and to torch's dtype."""
        known: DType | None = self.type.dtype
        return known

    @property
    def ndim(self) -> int | None:
        known: int | None = self.type.ndim
        return known

    @property
    def shape(self) -> tuple[Any, ...]:
        """The sizes: numbers where the type knows them, else variables."""
        from .basic import shape_i

        known = self.type.shape
        if known is None:
            raise BridgeTypeError(f"{self} of type {self.type} has no fixed number of dimensions")
        me: Any = self
        return tuple(shape_i(me, i) if d is None else d for i, d in enumerate(known))

    def size(self, dim: int | None = None) -> Any:
        """The sizes, or one of them."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int | None:
        return self.ndim

    @property
    def T(self) -> TensorVariable:
        from .. import ops

        return ops.numpy_T(self)

    @property
    def mT(self) -> TensorVariable:
        from .. import ops

        return ops.mT(self)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            from .native import Method, find_method

            if name.startswith("__"):
                raise AttributeError(name)
            method = find_method(name)
            if method is None:
                raise AttributeError(f"a tensor variable has no attribute {name!r}")
            return Method(method, self)

    def __dir__(self) -> list[str]:
        from .signatures import method_names

        return [*object.__dir__(self), *method_names()]

    def __getitem__(self, index: Any) -> Any:
        from .indexing import get_item

        return get_item(self, index)

    def __iter__(self) -> Iterator[Any]:
        shape = self.type.shape
        if not shape or shape[0] is None:
            raise BridgeTypeError(f"{self} of type {self.type} has no fixed size to iterate over")
        return iter(self[i] for i in range(shape[0]))

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """`torch.relu(x)` and `tensor + x` build a graph where a native function has that name."""
        from .native import find_packet
        from .torch_functions import own_name

        name = own_name(func)
        if name is None:
            raise BridgeTypeError(f"{func} is no function of PyTorch that graph variables go into")
        reflected = name.startswith("__r") and name[3:-2] in _BINARY
        if name.startswith("__") and (name[2:-2] in _BINARY or reflected):
            key = _BINARY[name[3:-2] if reflected else name[2:-2]]
            args = args[::-1] if reflected else args
        else:
            key = _COMPARE.get(name) or _UNARY.get(name) or name
        packet = find_packet(key)
        if packet is None:
            raise BridgeTypeError(f"{name} cannot be applied to graph variables")
        return packet(*args, **(kwargs or {}))


class TensorVariable(TensorMethods, Variable):
    """A tensor in a graph."""


class TensorConstant(TensorMethods, Constant):
    """A tensor that is known."""


def _make_variable(t: Type, name: str | None) -> Variable:
    of = ValueVariable if isinstance(t, SchemaType) else Variable
    return (TensorVariable if isinstance(t, TensorType) else of)(t, name=name)


def _make_constant(t: Type, value: Any, name: str | None) -> Constant:
    return (TensorConstant if isinstance(t, TensorType) else Constant)(t, value, name=name)


def _specify_shape(v: Variable, shape: Any) -> Variable:
    from .basic import specify_shape

    specified: Variable = specify_shape(v, shape)
    return specified


def _as_object(v: Variable) -> Variable:
    from .basic import AsObject

    (made,) = AsObject().make_node(v).outputs
    return made


register_graphs(Graphs(Variable, _make_variable, _make_constant, _specify_shape, _as_object))


def _tensor_binary(native: str, reflected: bool) -> Any:
    def method(self: Any, other: Any) -> Any:
        from .. import ops

        if isinstance(other, (str, bytes, dict, set)):
            return NotImplemented
        if other is None and native in ("eq", "ne"):
            return NotImplemented  # no tensor is None
        swap = reflected and native not in _COMMUTATIVE
        a, b = (other, self) if swap else (self, other)
        if reflected and native == "sub" and not isinstance(other, TensorMethods):
            return ops.rsub(self, other)
        numbers = (bool, int, float, complex, ValueVariable)
        if reflected and native == "div" and isinstance(other, numbers):
            return ops.mul(ops.reciprocal(self), other)
        return getattr(ops, native)(a, b)

    return method


def _value_binary(scalar: str, reflected: bool) -> Any:
    def method(self: Any, other: Any) -> Any:
        from . import scalar as family

        if isinstance(other, TensorMethods) or (other is None and scalar in ("eq", "ne")):
            return NotImplemented
        a, b = (other, self) if reflected else (self, other)
        return getattr(family, scalar)(a, b)

    return method


def _unary(native: str, tensor: bool) -> Any:
    def method(self: Any) -> Any:
        from .. import ops
        from . import scalar as family

        return getattr(ops if tensor else family, native)(self)

    return method


for _name, _native in _BINARY.items():
    setattr(TensorMethods, f"__{_name}__", _tensor_binary(_native, False))
    setattr(TensorMethods, f"__r{_name}__", _tensor_binary(_native, True))
    if _native not in ("matmul",):
        setattr(ValueVariable, f"__{_name}__", _value_binary(_native, False))
        setattr(ValueVariable, f"__r{_name}__", _value_binary(_native, True))
for _name, _native in _COMPARE.items():
    setattr(TensorMethods, _name, _tensor_binary(_native, False))
    setattr(ValueVariable, _name, _value_binary(_native, False))
for _name, _native in _UNARY.items():
    setattr(TensorMethods, _name, _unary(_native, True))
    setattr(ValueVariable, _name, _unary(_native, False))
