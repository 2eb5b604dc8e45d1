"""The type of tensors: a dtype, a shape of which sizes may be open, and a kind of device."""

from __future__ import annotations

import copy
import math
import sys
import warnings
from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import BridgeTypeError, BridgeValueError
from ..sameness import attributes_key
from . import c_support
from .base import Sub, Type, form_of, graphs
from .enums import C_ELEMENTS, DEVICES, DTYPES, device_parts, dtype_name
from .schema_types import SchemaType, converted, input_name

if TYPE_CHECKING:
    import torch

    from ..graph.basic import Constant, Variable
    from ..ops.variables import TensorVariable

Shape = tuple[int | None, ...]

# How far apart two results of the same computation may be: relative, absolute.
TOLERANCES = {
    "float64": (1e-7, 1e-9),
    "float32": (1e-4, 1e-5),
    "float16": (1e-2, 1e-3),
    "bfloat16": (3e-2, 1e-2),
    "complex128": (1e-7, 1e-9),
    "complex64": (1e-4, 1e-5),
    "complex32": (1e-2, 1e-3),
}


_SIZES = "shape is a tuple of sizes, with None for an open one, or None"


class TensorArg(SchemaType):
    """A tensor, or what may be one: in C a Tensor, which a graph's variable owns."""

    c = "Tensor"
    nullable = True

    def c_take(self, name: str, n: str, sub: Sub, check_input: bool = True) -> str:
        return f"{name} = RetainTensor({n});"

    def c_give(self, name: str, n: str, sub: Sub) -> str:
        return f"*{n} = RetainTensor({name});"

    def c_release(self, name: str, sub: Sub) -> str:
        return self.c_cleanup(name, sub)


class TensorType(TensorArg):
    """The tensors of one dtype with as many dimensions as `shape` has.

        >>> x = pb.TensorType("float32", (None, 784))("x")
        >>> x.type.shape, x.type.dtype
        ((None, 784), 'float32')

    `TensorType("float32", (None, 784))` has matrices with any number of rows. `dtype` is a name,
    and torch's and NumPy's dtypes are taken as well. A dtype or shape of None leaves it open:
    `TensorType()` is what the schema calls Tensor. `broadcastable` is the older way to give the
    shape: True is a 1, False any size; `shape` may have these, too.
    """

    c_extract_filters = True

    if TYPE_CHECKING:

        def __call__(self, name: str | None = None) -> TensorVariable: ...
        def make_variable(self, name: str | None = None) -> TensorVariable: ...

    def __init__(
        self,
        dtype: Any = None,
        shape: Iterable[int | None] | None = None,
        name: str | None = None,
        broadcastable: Iterable[bool] | None = None,
        device: Any = None,
    ) -> None:
        super().__init__("Tensor")
        flags: Iterable[Any] = ()
        if shape is not None:
            flags = shape = tuple(_listed(shape, _SIZES))
        if broadcastable is not None:
            if shape is not None:
                raise BridgeTypeError("TensorType takes shape or broadcastable, not both")
            flags = tuple(_listed(broadcastable, "broadcastable is a list of bools"))
            shape = tuple(1 if b else None for b in flags)
        if broadcastable is not None or any(map(_is_bool, flags)):
            warnings.warn(
                "broadcastable= is the old style: give shape= with None for what is not a 1",
                DeprecationWarning,
                stacklevel=2,
            )
        try:
            self.dtype = None if dtype is None else dtype_name(dtype)
            parts = None if device is None else device_parts(device)
        except ValueError as e:
            raise BridgeTypeError(f"TensorType: {e}") from None
        if device is None and dtype is not None:
            parts = ("cpu", -1)
        if parts == ("cpu", 0):
            parts = ("cpu", -1)
        self.device = None if parts is None else parts[0] + (f":{parts[1]}" if parts[1] > 0 else "")
        self.shape: Shape | None = None if shape is None else tuple(map(_dim, shape))
        self.name = name

    @property
    def ndim(self) -> int | None:
        """How many dimensions; None where the shape is open altogether."""
        return None if self.shape is None else len(self.shape)

    @property
    def broadcastable(self) -> tuple[bool, ...]:
        """Which sizes are known to be 1."""
        return tuple(d == 1 for d in self.shape or ())

    @property
    def torch_dtype(self) -> torch.dtype:
        import torch

        return getattr(torch, self.dtype or "None")

    @property
    def key(self) -> tuple[Any, ...]:
        return ("Tensor", self.dtype, self.shape, self.device)

    def __eq__(self, other: object) -> bool:
        return self is other or (
            type(self) is type(other)
            and self.shape == other.shape
            and self.dtype == other.dtype
            and self.device == other.device
            and (type(self) is TensorType or self._others() == other._others())
        )

    def _others(self) -> Hashable:
        """The attributes that a subclass has added."""
        return attributes_key(self, _OWN)

    def __hash__(self) -> int:
        return hash((self.dtype, self.shape))

    def __str__(self) -> str:
        if self.name is not None:
            return self.name
        if self.dtype is None and self.shape is None:
            return "Tensor"
        parts = [self.dtype or "any dtype"]
        if self.shape is not None:
            parts.append(str(self.shape))
        if self.device not in ("cpu", None):
            parts.append(self.device)
        return f"TensorType({', '.join(parts)})"

    __repr__ = __str__

    def clone(self, *args: Any, **kwargs: Any) -> TensorType:
        """Returns this type with what is given replaced, as the constructor takes it."""
        names = ("dtype", "shape", "name", "broadcastable", "device")
        if len(args) > len(names):
            raise BridgeTypeError(f"TensorType.clone takes {', '.join(names)}")
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        old = {n: getattr(self, n) for n in names if n != "broadcastable"}
        if given.get("broadcastable") is not None:
            old.pop("shape")
        new = TensorType(**{**old, **given})
        if type(self) is TensorType:
            return new
        mine = copy.copy(self)  # a constructor of its own is not known
        vars(mine).update(vars(new))
        return mine

    # Values
    def filter(self, value: Any, strict: bool = False, allow_downcast: bool | None = None) -> Any:
        """Returns value as a tensor of this type, or TypeError.

        Without `strict`, numbers, lists, NumPy arrays and tensors of other dtypes become one of
        this dtype where no element changes. allow_downcast=True lets elements change;
        allow_downcast=None lets a Python float be rounded, as PyTorch does. The shape and the
        device must fit in any case.
        """
        import torch

        if isinstance(value, torch.Tensor) and self._fits(value):
            return value
        if strict:
            raise self.refusal(value)
        python = False  # numbers of Python, whose floats have no dtype of their own
        if isinstance(value, torch.Tensor):
            tensor = value
        else:
            python = isinstance(value, (bool, int, float, complex, list, tuple))
            try:
                tensor = torch.as_tensor(value, device=self.device)
                if python and (tensor.is_floating_point() or tensor.is_complex()):
                    wide = torch.complex128 if tensor.is_complex() else torch.float64
                    tensor = torch.as_tensor(value, dtype=wide, device=self.device)
            except (TypeError, ValueError, RuntimeError) as e:
                raise self.refusal(value, f": {e}") from None
        if self.dtype is not None and tensor.dtype != self.torch_dtype:
            target = self.torch_dtype
            rounded = (
                python
                and allow_downcast is None
                and (tensor.is_floating_point() or tensor.is_complex())
                and (target.is_complex or (target.is_floating_point and not tensor.is_complex()))
            )
            try:
                converted = _to(tensor, target)
                same = allow_downcast or rounded or _same_elements(tensor, converted)
            except RuntimeError as e:
                raise self.refusal(value, f": {e}") from None
            if not same:
                why = f": {self.dtype} cannot hold all of its elements; allow_downcast=True"
                raise self.refusal(value, why + " rounds them")
            tensor = converted
        elif python and self.dtype is None and tensor.dtype in (torch.float64, torch.complex128):
            tensor = torch.as_tensor(value, device=self.device)
        if not self._fits(tensor):
            raise self.refusal(value)
        return tensor

    def refusal(self, value: Any, why: str = "") -> BridgeTypeError:
        sizes = getattr(value, "shape", None)
        if not why and self.shape is not None and isinstance(sizes, tuple):
            why = misfit(self.shape, sizes)
        return super().refusal(value, why)

    def holds(self, value: Any) -> bool:
        import torch

        return isinstance(value, torch.Tensor) and self._fits(value)

    def _fits(self, t: torch.Tensor) -> bool:
        if self.dtype is not None and t.dtype != self.torch_dtype:
            return False
        if self.device is not None:
            kind, index = device_parts(self.device)
            if t.device.type != kind or (index >= 0 and t.device.index != index):
                return False
        if self.shape is None:
            return True
        return t.dim() == len(self.shape) and all(
            a is None or a == b for a, b in zip(self.shape, t.shape, strict=True)
        )

    def values_eq(self, a: Any, b: Any) -> bool:
        """Whether two tensors are equal in dtype, shape and elements; NaN is NaN."""
        return _compare(a, b, exact=True)

    def values_eq_approx(
        self, a: Any, b: Any, rtol: float | None = None, atol: float | None = None
    ) -> bool:
        """Whether two tensors are equal in dtype and shape, and in elements up to rounding.

        Integers and booleans are compared exactly, NaN is NaN, and an infinity is itself only.
        """
        return _compare(a, b, exact=False, rtol=rtol, atol=atol)

    @staticmethod
    def may_share_memory(a: Any, b: Any) -> bool:
        """Whether the storages of two tensors overlap. Tensors without elements share nothing."""
        import torch

        if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
            return False
        if a is b:
            return bool(a.numel() > 0)
        return any(
            x[0] == y[0] and x[1] < y[2] and y[1] < x[2] for x in _extents(a) for y in _extents(b)
        )

    def get_shape_info(self, obj: Any) -> tuple[tuple[int, ...], int]:
        """Sizes and bytes per element of a tensor."""
        if obj.layout.__str__() != "torch.strided":
            return (sum(part.numel() * part.element_size() for part in _parts(obj)),), 1
        return tuple(obj.shape), obj.element_size()

    def get_size(self, shape_info: tuple[tuple[int, ...], int]) -> int:
        shape, itemsize = shape_info
        return math.prod(shape) * itemsize

    # Types
    def in_same_class(self, otype: Type) -> bool | None:
        """Whether otype has the same dtype, device and number of dimensions, and its sizes of 1
        in the same places: then both broadcast alike."""
        return (
            isinstance(otype, TensorType)
            and self.dtype == otype.dtype
            and self.device == otype.device
            and self.ndim == otype.ndim
            and self.broadcastable == otype.broadcastable
        )

    def is_super(self, otype: Type) -> bool | None:
        """True if otype is this type with perhaps more of it known; None if it is not. A type of a
        subclass is one of this class, as long as its values look like tensors in C."""
        if not isinstance(otype, type(self)) or form_of(type(otype)) is not form_of(type(self)):
            return None
        if type(self) is not TensorType and self._others() != otype._others():
            return None
        for mine, theirs in ((self.dtype, otype.dtype), (self.device, otype.device)):
            if mine is not None and mine != theirs:
                return None
        if self.shape is None:
            return True
        if otype.shape is None or len(self.shape) != len(otype.shape):
            return None
        pairs = zip(self.shape, otype.shape, strict=True)
        return all(a is None or a == b for a, b in pairs) or None

    def convert_variable(self, var: Variable) -> Variable | None:
        """var, or its check against this type's shape at run time where the two can meet."""
        if self.is_super(var.type):
            return var
        other = var.type
        if (
            not isinstance(other, TensorType)
            or self.shape is None
            or self.dtype not in (other.dtype, None)
            or self.device not in (other.device, None)
            or (other.shape is not None and len(other.shape) != len(self.shape))
        ):
            return None
        known = other.shape or (None,) * len(self.shape)
        if any(None not in (a, b) and a != b for a, b in zip(self.shape, known, strict=True)):
            return None
        made = graphs().specify_shape(var, self.shape)
        # A value of a class is not known to be one of a subclass, which may ask for more.
        return made if self == made.type or self.is_super(made.type) else None

    def make_constant(self, value: Any, name: str | None = None) -> Constant:
        tensor = self.filter(value)
        known = tensor.detach() if tensor.requires_grad else tensor
        return graphs().make_constant(self, known, name)

    # In C
    def c_declare(self, name: str, sub: Sub, check_input: bool = True) -> str:
        return f"Tensor {name};"

    def c_init(self, name: str, sub: Sub) -> str:
        return f"{name} = NULL;"

    def c_expected(self, name: str, anywhere: bool = False) -> tuple[str, str]:
        """Declarations of what is expected of the tensor `name`, and a pointer to it: for
        cgotorch_check_tensor. With `anywhere` its device is not looked at."""
        dtype = -1 if self.dtype is None else DTYPES[self.dtype]
        of = None if anywhere else self.device
        device = -1 if of is None else DEVICES[device_parts(of)[0]]
        ndim = -1 if self.shape is None else len(self.shape)
        lines = []
        sizes = "NULL"
        if self.shape:
            sizes = f"{name}_sizes"
            known = ", ".join("-1" if d is None else str(d) for d in self.shape)
            lines.append(f"static const int64_t {sizes}[] = {{{known}}};")
        lines.append(
            f"static const cgotorch_tensor_type {name}_type = "
            f"{{{dtype}, {device}, -1, {ndim}, {sizes}}};"
        )
        return "\n".join(lines), f"&{name}_type"

    def c_extract(self, name: str, sub: Sub, check_input: bool = True, **kwargs: Any) -> str:
        if "constant" in sub:
            return f"if (pb_constant_from(py_{name}, &{name})) {{\n{sub['fail']}\n}}"
        declarations, expected = self.c_expected(name) if check_input else ("", "NULL")
        described = input_name(str(self.clone(name=None)), {})
        call = converted("tensor", name, sub, f'"{described}"', expected, f"&{name}")
        return f"{declarations}\n{call}"

    def c_take(self, name: str, n: str, sub: Sub, check_input: bool = True) -> str:
        if not check_input:
            return super().c_take(name, n, sub)
        declarations, expected = self.c_expected(name)
        check = f"if ((pb_error = cgotorch_check_tensor({n}, {expected}))) {sub['fail']}"
        return f"{name} = NULL;\n{declarations}\n{check}\n{super().c_take(name, n, sub)}"

    def to_python(self, value: str) -> str:
        return f"pb_python->wrap({value})"

    def c_cleanup(self, name: str, sub: Sub) -> str:
        return f"FreeTensor({name});\n{name} = NULL;"

    def c_support_code(self) -> Sequence[str]:
        return c_support.TENSOR_HELPERS

    def c_element_type(self) -> str:
        return C_ELEMENTS.get(self.dtype or "", "")


def misfit(expected: Sequence[int | None], sizes: Sequence[int]) -> str:
    """What of some sizes is not as expected, for the end of a message: the first dimension, what
    it must be and what it is; or how many there are. Empty where all are."""
    if len(expected) != len(sizes):
        return f": {len(expected)} dimensions are expected, got {len(sizes)}"
    for i, (wanted, size) in enumerate(zip(expected, sizes, strict=True)):
        if wanted is not None and wanted != size:
            return f": dimension {i} must be {wanted}, got {size}"
    return ""


def _listed(value: Any, wanted: str) -> Iterable[Any]:
    """value, if it can be iterated over and is no text."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        hint = ""
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 8:
            hint = f"; {value} open dimensions are shape={(None,) * value}"
        raise BridgeTypeError(f"TensorType: {wanted}, not {value!r}{hint}")
    return value


def _is_bool(value: Any) -> bool:
    numpy: Any = sys.modules.get("numpy")
    return isinstance(value, bool) or (numpy is not None and isinstance(value, numpy.bool_))


def _dim(size: Any) -> int | None:
    if size is None:
        return None
    if _is_bool(size):
        return 1 if size else None
    try:
        n = int(size.__index__())
    except AttributeError:
        raise BridgeTypeError(f"TensorType: a size is an integer or None, not {size!r}") from None
    if n < 0:
        raise BridgeValueError(f"TensorType: a size is not negative, got {n}")
    return n


def _to(t: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """t in another dtype; the real part where only that fits."""
    return (t.real if t.is_complex() and not dtype.is_complex else t).to(dtype)


def _same_elements(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether b, which is a in another dtype, has lost nothing."""
    import torch

    if b.is_complex() and not a.is_complex():
        if not bool((b.imag == 0).all()):
            return False
        b = b.real
    if a.is_complex() and not b.is_complex():
        return bool((a.imag == 0).all()) and _same_elements(a.real, b)
    if b.is_floating_point() and not a.is_floating_point() and not a.is_complex():
        # Rounding up may leave the range of the integers, where the way back is undefined.
        limit = 1.0 if a.dtype == torch.bool else float(torch.iinfo(a.dtype).max) + 1
        if a.dtype != torch.bool and bool((b.double() >= limit).any()):
            return False
    if a.is_floating_point() and not b.is_floating_point() and not b.is_complex():
        if not bool(torch.isfinite(a).all()):
            return False
        if b.dtype != torch.bool:
            info = torch.iinfo(b.dtype)
            wide = a.double()
            if bool(((wide < float(info.min)) | (wide >= float(info.max) + 1)).any()):
                return False
    return _compare(a, b.to(a.dtype), exact=True)


def _compare(
    a: Any, b: Any, exact: bool, rtol: float | None = None, atol: float | None = None
) -> bool:
    import torch

    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return False
    if a is b:
        return True
    if a.dtype != b.dtype or a.shape != b.shape or a.layout != b.layout:
        return False
    with torch.no_grad():
        if a.layout != torch.strided:
            if a.layout is torch.sparse_coo:
                a, b = a.coalesce(), b.coalesce()
            pairs = zip(_parts(a), _parts(b), strict=True)
            return all(_compare(x, y, exact, rtol, atol) for x, y in pairs)
        if a.is_quantized:
            same = a.qscheme() == b.qscheme()
            return same and _compare(a.dequantize(), b.dequantize(), exact, rtol, atol)
        a, b = a.detach().cpu().resolve_conj().resolve_neg(), b.detach().cpu().resolve_conj()
        b = b.resolve_neg()
        default = TOLERANCES.get(str(a.dtype).removeprefix("torch."), (1e-1, 1e-1))
        if a.is_complex():
            a, b = torch.view_as_real(a), torch.view_as_real(b)
        if not a.is_floating_point():
            return bool(torch.equal(a, b))
        if a.element_size() < 4:
            a, b = a.float(), b.float()
        if exact:
            return bool(((a == b) | (a.isnan() & b.isnan())).all())
        r, t = (x if x is not None else d for x, d in zip((rtol, atol), default, strict=True))
        return bool(torch.allclose(a, b, rtol=r, atol=t, equal_nan=True))


def _parts(t: torch.Tensor) -> list[torch.Tensor]:
    """The dense tensors that a tensor is made of."""
    import torch

    if t.layout is torch.sparse_coo:
        return [t._indices(), t._values()]
    if t.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [t.crow_indices(), t.col_indices(), t.values()]
    if t.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [t.ccol_indices(), t.row_indices(), t.values()]
    if t.is_nested:
        return [t.values()]
    return [t]


def _extents(t: torch.Tensor) -> list[tuple[Any, int, int]]:
    """The memory of a tensor: device, first byte, byte after the last."""
    found = []
    for part in _parts(t):
        try:
            storage = part.untyped_storage()
            start, size = storage.data_ptr(), storage.nbytes()
        except (RuntimeError, NotImplementedError):  # no storage that can be seen
            continue
        if part.numel() and size:
            if part.device.type == "meta":
                found.append((("meta", storage._cdata), 0, size))
            else:
                found.append((part.device, start, start + size))
    return found


_OWN = frozenset(vars(TensorType()))
