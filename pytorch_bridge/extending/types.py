"""The types that extensions speak of: `from pytorch_bridge.extending import types`.

    class IntervalType(types.Type):
        def __init__(self):
            super().__init__(name="Interval")

`types.Type` is the base for a type of one's own. It needs no C of its own: how its values look in C
is said by the data model that is registered for it (`register_model`), how they come from Python
and go back by `unbox` and `box`. Two types are equal if they are of one class and have the same
`key`, which is the name unless a subclass defines it.

The classes say what kind a type is (`isinstance(t, types.Integer)`), the instances which one it is
(`t == types.int64`). Registrations take either.
"""

from __future__ import annotations

import math
import struct
from collections import abc
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from .. import sameness
from ..errors import BridgeTypeError, RegistrationError
from ..types.base import CType, Sub
from ..types.base import Type as BaseType
from ..types.parsing import schema_type
from ..types.tensor import TensorType
from .errors import absent

if TYPE_CHECKING:
    from ..graph.basic import Variable
    from .boxing import Boundary
    from .models import DataModel
    from .ranking import Conversion


def _abi() -> CType:
    """A type that knows where cgotorch is."""
    return schema_type("Tensor")


class Above:
    """What types ask of the modules above this one, which put it here."""

    typeof: abc.Callable[[Any], BaseType]
    data_model: abc.Callable[[BaseType], DataModel]
    support_code: abc.Callable[[], Sequence[str]]
    used_definitions: abc.Callable[[Type], list[str]]
    boundary: abc.Callable[[Type, str, Sub], Boundary]
    parameters: abc.Callable[[Type, str], list[str]]
    results: abc.Callable[[Type, str], list[str]]
    take: abc.Callable[[Type, str, str, Sub, bool], str]
    give: abc.Callable[[Type, str, str], str]
    constant_text: abc.Callable[[Type, Any], str | None]


above = Above()


class Type(CType):
    """A type whose C comes from its data model and from what is registered with box and unbox."""

    c_extract_filters = True

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def key(self) -> Hashable:
        """What tells instances of one class apart."""
        return self.name

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.key == other.key

    def __hash__(self) -> int:
        return hash((type(self), self.key))

    def __call__(self, name: str | None = None, *args: Any) -> Variable:
        if args or not (name is None or isinstance(name, str)):
            shown = ", ".join(map(str, (name, *args)))
            raise BridgeTypeError(
                f"{self}({shown}) is Numba's: a signature is signature({self}, {shown}), and "
                "values are converted with int(), float() and lower_cast"
            )
        return super().__call__(name)

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__

    def can_convert_to(self, other: BaseType) -> Conversion | None:
        """How a value of this type becomes one of another; None: not at all, as far as this type
        knows."""
        return None

    def can_convert_from(self, other: BaseType) -> Conversion | None:
        """How a value of another type becomes one of this type; None: not at all."""
        return None

    def filter(self, value: Any, strict: bool = False, allow_downcast: bool | None = None) -> Any:
        found = above.typeof(value)
        if found != self and not self.is_super(found):
            raise BridgeTypeError(f"expected a value of type {self}, got {value!r} of type {found}")
        return value

    def values_eq(self, a: Any, b: Any) -> bool:
        """Whether two values are equal: by their class's `==`, or where it has none, by what is in
        their attributes."""
        if a is b:
            return True
        eq: Any = type(a).__eq__
        plain = eq is object.__eq__ and getattr(a, "__dict__", None)
        if not plain or type(a) is not type(b) or vars(a).keys() != vars(b).keys():
            return bool(a == b)
        return all(_equal(v, getattr(b, name)) for name, v in vars(a).items())

    # In C
    @property
    def data_model(self) -> DataModel:
        """How values look in C. RegistrationError where no model is registered."""
        return above.data_model(self)

    def c_element_type(self) -> str:
        return self.data_model.c_type

    def c_headers(self) -> Sequence[str]:
        return _abi().c_headers()

    def c_libraries(self) -> Sequence[str]:
        return _abi().c_libraries()

    def c_compile_args(self) -> Sequence[str]:
        return _abi().c_compile_args()

    def c_support_code(self) -> Sequence[str]:
        own = self.data_model.definitions()
        return [*above.support_code(), *own, *above.used_definitions(self)]

    def c_declare(self, name: str, sub: Sub, check_input: bool = True) -> str:
        return above.boundary(self, name, sub).declare()

    def c_init(self, name: str, sub: Sub) -> str:
        return self.data_model.clear(name)

    def c_extract(self, name: str, sub: Sub, check_input: bool = True, **kwargs: Any) -> str:
        return above.boundary(self, name, sub).extract()

    def c_sync(self, name: str, sub: Sub) -> str:
        return above.boundary(self, name, sub).sync()

    def c_cleanup(self, name: str, sub: Sub) -> str:
        return above.boundary(self, name, sub).cleanup()

    # Where a graph meets C, and so Go: one parameter for each number or tensor in the value
    def c_parameters(self, n: str) -> list[str]:
        return above.parameters(self, n)

    def c_results(self, n: str) -> list[str]:
        return above.results(self, n)

    def c_take(self, name: str, n: str, sub: Sub, check_input: bool = True) -> str:
        return above.take(self, name, n, sub, check_input)

    def c_give(self, name: str, n: str, sub: Sub) -> str:
        return above.give(self, name, n)

    def c_literal(self, value: Any) -> str | None:
        return above.constant_text(self, value)

    def c_code_cache_version(self) -> tuple[Any, ...]:
        return (1,)  # all that the registrations contribute is in the source, which is hashed


def _equal(a: Any, b: Any) -> bool:
    if hasattr(a, "untyped_storage"):
        return hasattr(b, "untyped_storage") and TensorType(a.dtype, a.shape).values_eq(a, b)
    if isinstance(a, (tuple, list)):
        return type(a) is type(b) and len(a) == len(b) and all(map(_equal, a, b))
    return bool(a == b) or sameness.same(a, b) or Type.values_eq(_ANY, a, b)


class Opaque(Type):
    """A type whose values nothing but its own functions can look into."""


_ANY = Type("any")


class PyObject(Type):
    """A Python object that C carries, as a member of a struct for instance."""


class Dummy(Type):
    """A type that has a single value, which does not exist at run time."""


class Callable(Type):
    """What can be called."""


class Function(Callable):
    """A global function whose calls a template types."""

    def __init__(self, template: Any) -> None:
        super().__init__(f"function({getattr(template, '__name__', template)})")
        self.template = template

    @property
    def key(self) -> Hashable:
        return self.template


class Iterable(Type):
    """What can be iterated over; `iterator_type.yield_type` is the type of the elements."""

    @property
    def iterator_type(self) -> Iterator:
        raise NotImplementedError(f"{type(self).__name__} does not define iterator_type")


class Iterator(Iterable):
    """An iterator over elements of `yield_type`."""

    def __init__(self, yield_type: BaseType) -> None:
        super().__init__(f"iter({yield_type})")
        self.yield_type = yield_type

    @property
    def key(self) -> Hashable:
        return self.yield_type

    @property
    def iterator_type(self) -> Iterator:
        return self


# Numbers -----------------------------------------------------------------------------------------


class Number(Type):
    """Boolean, integer, floating point and complex numbers."""


def _refuse(t: Type, value: Any, why: str = "") -> BridgeTypeError:
    return BridgeTypeError(f"expected a value of type {t}, got {value!r}{why and ', ' + why}")


class Boolean(Number):
    """True and False."""

    c_extract_filters = True

    def __init__(self, name: str = "bool") -> None:
        super().__init__(name)

    def filter(self, value: Any, strict: bool = False, allow_downcast: bool | None = None) -> Any:
        if isinstance(value, bool):
            return value
        if not strict and allow_downcast and isinstance(value, (int, float)):
            return bool(value)
        raise _refuse(self, value)


class Integer(Number):
    """Whole numbers of `bitwidth` bits; `signed` or not."""

    c_extract_filters = True

    def __init__(self, bitwidth: int, signed: bool = True) -> None:
        super().__init__(f"{'' if signed else 'u'}int{bitwidth}")
        self.bitwidth, self.signed = bitwidth, signed

    @property
    def minval(self) -> int:
        return -(1 << (self.bitwidth - 1)) if self.signed else 0

    @property
    def maxval(self) -> int:
        return (1 << (self.bitwidth - int(self.signed))) - 1

    def filter(self, value: Any, strict: bool = False, allow_downcast: bool | None = None) -> Any:
        if isinstance(value, int) and (not strict or not isinstance(value, bool)):
            if not self.minval <= value <= self.maxval:
                raise _refuse(self, value, f"which is not within {self.minval} ... {self.maxval}")
            return int(value)
        if not strict and isinstance(value, float) and (value.is_integer() or allow_downcast):
            return self.filter(int(value))
        raise _refuse(self, value)

    def __lt__(self, other: Number) -> bool:
        return _order(self) < _order(other)


class Float(Number):
    """Floating point numbers of `bitwidth` bits."""

    c_extract_filters = True

    def __init__(self, bitwidth: int) -> None:
        super().__init__(f"float{bitwidth}")
        self.bitwidth = bitwidth

    def filter(self, value: Any, strict: bool = False, allow_downcast: bool | None = None) -> Any:
        if isinstance(value, bool) or not isinstance(value, (float, int)):
            raise _refuse(self, value)
        if strict and not isinstance(value, float):
            raise _refuse(self, value)
        try:
            stored = struct.unpack("f", struct.pack("f", value))[0] if self.bitwidth == 32 else None
            kept = float(value) if stored is None else stored
        except OverflowError:
            raise _refuse(self, value, "which is out of range") from None
        exact = kept == value or (isinstance(value, float) and math.isnan(value))
        # A Python float is rounded as torch.tensor rounds it; an int must not lose digits.
        if not exact and isinstance(value, int) and not allow_downcast:
            raise _refuse(self, value, "which it cannot hold exactly")
        return value if strict else kept

    def __lt__(self, other: Number) -> bool:
        return _order(self) < _order(other)


class Complex(Number):
    """Complex numbers; the parts are of type `underlying_float`."""

    c_extract_filters = True

    def __init__(self, name: str, underlying_float: Float) -> None:
        super().__init__(name)
        self.underlying_float = underlying_float
        self.bitwidth = 2 * underlying_float.bitwidth

    def filter(self, value: Any, strict: bool = False, allow_downcast: bool | None = None) -> Any:
        if isinstance(value, complex):
            return value
        if not strict and isinstance(value, (int, float)) and not isinstance(value, bool):
            return complex(value)
        raise _refuse(self, value)

    def __lt__(self, other: Number) -> bool:
        return _order(self) < _order(other)


def _order(t: Number) -> tuple[int, int]:
    kinds = (Boolean, Integer, Float, Complex)
    return next(i for i, k in enumerate(kinds) if isinstance(t, k)), getattr(t, "bitwidth", 1)


boolean = Boolean()
int8, int16, int32, int64 = (Integer(n) for n in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (Integer(n, signed=False) for n in (8, 16, 32, 64))
float32, float64 = Float(32), Float(64)
complex64 = Complex("complex64", float32)
complex128 = Complex("complex128", float64)
intp, uintp = int64, uint64
# Numba's other names for these
bool_, int_, long_, ssize_t, size_t, intc = boolean, int64, int64, int64, uint64, int32
float_, double = float32, float64

signed_domain = frozenset([int8, int16, int32, int64])
unsigned_domain = frozenset([uint8, uint16, uint32, uint64])
integer_domain = signed_domain | unsigned_domain
real_domain = frozenset([float32, float64])
complex_domain = frozenset([complex64, complex128])
number_domain = integer_domain | real_domain | complex_domain


# What is known while typing ----------------------------------------------------------------------


class Literal(Type):
    """A value that is known while typing: `literal_value`, of the type `literal_type`.

    The literal types derive from the type that they are narrower than, so that
    `isinstance(t, types.Integer)` holds for the type of 20 as well.
    """

    literal_value: Any
    literal_type: BaseType

    @property
    def key(self) -> Hashable:
        of = None if self.literal_type is self else self.literal_type
        return sameness.key(self.literal_value), of


class IntegerLiteral(Literal, Integer):
    def __init__(self, value: int, of: Integer = int64) -> None:
        Integer.__init__(self, of.bitwidth, of.signed)
        self.name = f"Literal[{value!r}]"
        self.literal_value, self.literal_type = value, of


class BooleanLiteral(Literal, Boolean):
    def __init__(self, value: bool) -> None:
        Boolean.__init__(self, f"Literal[{value!r}]")
        self.literal_value, self.literal_type = value, boolean


class FloatLiteral(Literal, Float):
    def __init__(self, value: float) -> None:
        Float.__init__(self, 64)
        self.name = f"Literal[{value!r}]"
        self.literal_value, self.literal_type = value, float64


class UnicodeType(Type):
    """Strings."""


class StringLiteral(Literal, UnicodeType):
    def __init__(self, value: str) -> None:
        UnicodeType.__init__(self, f"Literal[{value!r}]")
        self.literal_value, self.literal_type = value, unicode_type


class NoneType(Dummy):
    """The type of None."""


class Known(Literal, Dummy):
    """A Python object that is a constant of the trace: a dtype, a device, a class."""

    def __init__(self, value: Any, name: str | None = None) -> None:
        Dummy.__init__(self, f"Known[{value!r}]" if name is None else name)
        self.literal_value, self.literal_type = value, self


unicode_type = UnicodeType("str")
string = unicode_type
none = NoneType("none")
void = none
pyobject = PyObject("pyobject")


def unliteral(t: BaseType) -> BaseType:
    """The type that a literal one is narrower than; any other type unchanged."""
    return t.literal_type if isinstance(t, Literal) else t


# Tensors -----------------------------------------------------------------------------------------


class Array(TensorType):
    """A tensor as typing sees it: a TensorType with a `layout`, "C" where the elements are known to
    lie row by row without gaps, else "A" for any."""

    def __init__(
        self, dtype: Any = None, shape: Any = None, layout: str = "A", device: Any = None
    ) -> None:
        super().__init__(dtype, shape, device=device)
        if layout not in ("C", "A"):
            raise RegistrationError(f"the layout of an Array is C or A, not {layout!r}")
        self.layout = layout

    @classmethod
    def of(cls, t: TensorType, layout: str = "A") -> Array:
        """The type of a tensor as typing sees it."""
        made = cls.__new__(cls)
        made.__dict__.update(t.__dict__)
        made.layout = layout
        return made

    def plain(self) -> TensorType:
        """The type as graphs have it."""
        return TensorType(self.dtype, self.shape, device=self.device)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Array) and self.layout == other.layout and super().__eq__(other)

    def __hash__(self) -> int:
        return hash((super().__hash__(), self.layout))

    def __str__(self) -> str:
        return super().__str__() + (" C" if self.layout == "C" else "")

    __repr__ = __str__

    def clone(self, *args: Any, **kwargs: Any) -> Array:
        layout = kwargs.pop("layout", self.layout)
        return Array.of(self.plain().clone(*args, **kwargs), layout)

    def is_super(self, otype: BaseType) -> bool | None:
        if self.layout == "C" and getattr(otype, "layout", "A") != "C":
            return None
        return super().is_super(otype)


Buffer = Array


# Containers --------------------------------------------------------------------------------------


class BaseTuple(Iterable):
    """Tuples: `types` are those of the elements, `len(t)` is how many there are."""

    types: tuple[BaseType, ...] = ()

    @property
    def key(self) -> Hashable:
        return self.types

    def __len__(self) -> int:
        return len(self.types)

    def __iter__(self) -> Any:
        return iter(self.types)

    def __getitem__(self, i: Any) -> Any:
        return self.types[i]

    @property
    def count(self) -> int:
        return len(self.types)


def _checked(what: str, elements: abc.Iterable[Any]) -> tuple[BaseType, ...]:
    found = tuple(elements)
    for i, t in enumerate(found):
        if not isinstance(t, BaseType):
            raise RegistrationError(f"element {i} of {what} is no Type, but {t!r}")
    return found


class Tuple(BaseTuple):
    """A tuple of elements of any types. `Tuple((t, t))` makes a UniTuple."""

    def __new__(cls, types: abc.Iterable[BaseType] = ()) -> Any:
        found = _checked("a tuple type", types)
        uniform = cls is Tuple and found and all(t == found[0] for t in found)
        return UniTuple(found[0], len(found)) if uniform else object.__new__(cls)

    def __init__(self, types: abc.Iterable[BaseType]) -> None:
        found = _checked("a tuple type", types)
        super().__init__(f"({', '.join(map(str, found))}{',' if len(found) == 1 else ''})")
        self.types = found


class UniTuple(BaseTuple):
    """A tuple of `count` elements of one type, `dtype`."""

    def __init__(self, dtype: BaseType, count: int) -> None:
        super().__init__(f"{dtype} x {count}")
        (self.dtype,) = _checked("a tuple type", [dtype])
        self.types = (dtype,) * count

    @property
    def iterator_type(self) -> Iterator:
        return Iterator(self.dtype)


class List(Iterable):
    """A list of elements of one type, `dtype`."""

    def __init__(self, dtype: BaseType) -> None:
        super().__init__(f"list({dtype})")
        (self.dtype,) = _checked("a list type", [dtype])

    @property
    def key(self) -> Hashable:
        return self.dtype

    @property
    def iterator_type(self) -> Iterator:
        return Iterator(self.dtype)


# Types that Numba has and this package has not, and what there is in their place.
_ABSENT = {
    "Optional": "a value or None is decided while tracing: None is a constant of its own",
    "NamedTuple": "named tuples are taken apart when a function is called, and made again",
    "NamedUniTuple": "named tuples are taken apart when a function is called, and made again",
    "Record": "register a class with a StructModel",
    "NestedArray": "a tensor has more dimensions",
    "ListType": "lists are taken apart when a function is called",
    "DictType": "a dict that a function makes and returns is made again at each call",
    "Set": "a set that a function makes is Python's, while it is traced",
    "Bytes": "give a tensor of uint8",
    "CharSeq": "use unicode_type",
    "UnicodeCharSeq": "use unicode_type",
    "Omitted": "a default that is not given is a Literal, or Known",
    "StructRef": "a struct is a value: register_model with a StructModel",
    "EnumMember": "members of enums are constants",
    "IntEnumMember": "members of enums are constants",
    "NPDatetime": "convert to int64",
    "NPTimedelta": "convert to int64",
    "float16": "numbers have 32 or 64 bits; tensors have torch.float16",
    "deferred_type": "a struct cannot contain itself",
    "CPointer": "use a tensor, or a type derived from Opaque, which is a void * in C",
    "voidptr": "use a type derived from Opaque, which is a void * in C",
    "MemInfoPointer": "tensors, strings and pyobject count their references by themselves",
    "IterableType": "use Iterable; values are iterated over by len and operator.getitem",
    "IteratorType": "use Iterator; values are iterated over by len and operator.getitem",
    "SimpleIteratorType": "values are iterated over by len and operator.getitem",
    "ArrayCompatible": "read the tensor of the value in an overload_attribute",
    "Sized": "register overload(len)",
    "undefined": "write None for what is not known",
    "SliceType": "slices of values are constants while a function is traced",
    "RangeType": "ranges are constants while a function is traced",
    "ClassType": "type_callable and lower_builtin of the class make its objects",
    "ExternalFunction": "an intrinsic calls it with builder.c_call",
    "ExternalFunctionPointer": "give a type derived from Opaque, and call it in an intrinsic",
    "FunctionType": "functions are constants, and are traced where they are called",
    "Dispatcher": "jitted functions are constants, and are traced where they are called",
}

__getattr__ = absent(__name__, _ABSENT, "types.")
