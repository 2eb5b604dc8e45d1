"""What a type of values is, in Python (`Type`) and in C (`CType`).

A `Type` is a set of constraints on values: it makes variables that stand for such values in a
graph, and filters the values that are given for them. A `CType` knows besides how its values look
in C: how they are declared, taken from Python, given back and cleaned up.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ..errors import BridgeTypeError, BridgeValueError, MissingMethodError
from ..registry import Table
from ..sameness import attributes_key

if TYPE_CHECKING:
    from ..graph.basic import Constant, Variable


class Graphs(NamedTuple):
    """What types ask of graphs, which are above them and register it."""

    variable: type[Variable]
    make_variable: Callable[[Type, str | None], Variable]
    make_constant: Callable[[Type, Any, str | None], Constant]
    specify_shape: Callable[[Variable, Any], Variable]
    as_object: Callable[[Variable], Variable]


_graphs: list[Graphs] = []


def register_graphs(found: Graphs) -> None:
    """Gives types what they ask of graphs."""
    _graphs[:] = [found]


def load_graphs() -> None:
    """Has the layers above that register themselves with those below be imported."""
    import_module(__package__.partition(".")[0]).load_graphs()


def graphs() -> Graphs:
    if not _graphs:
        load_graphs()
    return _graphs[0]


Sub = dict[str, str]  # bits of C for a fragment: sub["fail"] leaves it after an error


def check_names(cls: type, absent: Mapping[str, str]) -> None:
    """BridgeTypeError where a class defines a name in `absent`, which has no effect here; its value
    says what to do instead."""
    for name, instead in absent.items():
        if hasattr(cls, name):
            raise BridgeTypeError(
                f"{cls.__qualname__} defines {name}, which Aesara knows and this package does not: "
                f"{instead}"
            )


# Attributes of Aesara's types that have no effect here, and what to do instead.
_ABSENT = {
    "filter_checks_isfinite": "check it in filter",
    "value_zeros": "nothing makes values from types",
    "c_extract_out": "c_extract is used for outputs as well",
    "variable_type": "variables of all types are Variables",
    "constant_type": "constants of all types are Constants",
}


class Type:
    """A set of constraints on values. Only `filter` must be defined by a subclass."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check_names(cls, _ABSENT)

    def filter(self, value: Any, strict: bool = False, allow_downcast: bool | None = None) -> Any:
        """Returns value as this type has it.

        With `strict`, the very same object or TypeError. Without, value may be converted;
        where that loses information it takes `allow_downcast=True`, else TypeError.
        """
        raise MissingMethodError(f"{type(self).__name__} does not define filter")

    # A subclass may define `filter_inplace(value, storage, strict=False, allow_downcast=None)`,
    # which is then called instead of `filter` where an old value's memory can be used again.

    def filter_variable(self, other: Any, allow_convert: bool = True) -> Variable:
        """Returns a variable for `other` that fits this type: `other` itself where its type is
        this one or narrower, else a conversion. TypeError where there is none."""
        if not isinstance(other, graphs().variable):
            return self.make_constant(other)
        if other.type != self and not self.is_super(other.type):
            converted = self.convert_variable(other) if allow_convert else None
            if converted is None:
                mine, theirs = str(self), str(other.type)
                if mine == theirs:
                    mine += f" ({type(self).__qualname__})"
                    theirs += f" ({type(other.type).__qualname__})"
                raise BridgeTypeError(
                    f"expected a variable of type {mine}, got {other} of type {theirs}, "
                    "which cannot be converted"
                )
            other = converted
        assert isinstance(other, graphs().variable)
        return other

    def convert_variable(self, var: Variable) -> Variable | None:
        """Returns var as a variable of this type, perhaps by an op that checks at run time, or
        None where that is impossible."""
        if self == var.type or self.is_super(var.type):
            return var
        return None

    def is_valid_value(self, value: Any) -> bool:
        """Whether strict `filter` takes value."""
        try:
            self.filter(value, strict=True)
        except (TypeError, ValueError):
            return False
        return True

    def in_same_class(self, otype: Type) -> bool | None:
        """Whether otype belongs to the same class of types; by default only an equal one does."""
        return self == otype

    def is_super(self, otype: Type) -> bool | None:
        """True if every value of otype is one of this type; None if that cannot be told."""
        return True if self == otype else None

    def values_eq(self, a: Any, b: Any) -> bool:
        """Whether two values are equal."""
        try:
            return bool(a == b)
        except (RuntimeError, ValueError):  # of tensors and arrays, and what they are in
            if type(a) in (list, tuple) or hasattr(a, "_fields"):
                pairs = type(a) is type(b) and len(a) == len(b) and zip(a, b, strict=True)
                return pairs is not False and all(self.values_eq(x, y) for x, y in pairs)
            return type(a) is type(b) and a.shape == b.shape and bool((a == b).all())

    def values_eq_approx(self, a: Any, b: Any) -> bool:
        """Whether two values are equal up to rounding."""
        return self.values_eq(a, b)

    def make_variable(self, name: str | None = None) -> Variable:
        """Returns a variable of this type."""
        return graphs().make_variable(self, name)

    def make_constant(self, value: Any, name: str | None = None) -> Constant:
        """Returns a constant of this type; value goes through `filter`."""
        return graphs().make_constant(self, self.filter(value), name)

    def __call__(self, name: str | None = None) -> Variable:
        return self.make_variable(name)

    def __sameness__(self) -> Hashable:
        """The key of two types of this class that may stand for each other."""
        kind = type(self)
        hashes: object = kind.__hash__
        return self if hashes is not None and kind.__eq__ is not object.__eq__ else None

    def clone(self, *args: Any, **kwargs: Any) -> Type:
        """Returns a copy with what is given replaced. Subclasses with parameters override it."""
        if args or kwargs:
            return type(self)(*args, **kwargs)
        return copy.copy(self)

    @staticmethod
    def may_share_memory(a: Any, b: Any) -> bool:
        """Whether two values could share memory. Debug mode finds undeclared aliases with it."""
        return False

    def get_shape_info(self, obj: Any) -> Any:
        """What `get_size` needs to know of obj."""
        raise MissingMethodError(f"{type(self).__name__} does not define get_shape_info")

    def get_size(self, shape_info: Any) -> int:
        """The bytes of data of an object, container not counted."""
        raise MissingMethodError(f"{type(self).__name__} does not define get_size")


class HasCode:
    """What C code needs around it, which a type and an op both say. The methods for headers,
    libraries and arguments may take the compiler as an argument `c_compiler`."""

    def c_headers(self) -> Sequence[str]:
        return []

    def c_header_dirs(self) -> Sequence[str]:
        return []

    def c_libraries(self) -> Sequence[str]:
        return []

    def c_lib_dirs(self) -> Sequence[str]:
        return []

    def c_compile_args(self) -> Sequence[str]:
        return []

    def c_no_compile_args(self) -> Sequence[str]:
        return []

    def c_compiler(self) -> str | None:
        """The compiler that this forces, or None."""
        return None

    def c_support_code(self) -> str | Sequence[str]:
        """Functions and types that the code uses."""
        return []

    def c_init_code(self) -> str | Sequence[str]:
        """What runs once, when the module is loaded."""
        return []

    def c_code_cache_version(self) -> tuple[Any, ...]:
        """Changes with the C code; () means that the code may be cached for this process only."""
        return ()


class CType(Type, HasCode):
    """A type whose values have a form in C.

    A call goes through `filter`, then c_extract. A class may say with `c_extract_filters` that its
    c_extract accepts what strict `filter` does and no more, and gives the same values: then a call
    does without `filter`. This holds for its subclasses, unless they filter otherwise.

    Each method returns C text. `name` is the C variable; what a type declares must have it in its
    name. `sub["fail"]` is what leaves after an error has been set. The Python object that belongs
    to the variable is `py_<name>`, which the linker declares.
    """

    c_extract_filters = False

    def _missing(self, method: str) -> MissingMethodError:
        return MissingMethodError(f"{type(self).__name__} has no C code: it lacks {method}")

    def c_declare(self, name: str, sub: Sub, check_input: bool = True) -> str:
        """Declares the variables for `name`."""
        raise self._missing("c_declare")

    def c_init(self, name: str, sub: Sub) -> str:
        """Initialises what c_declare declared, for a temporary or an output."""
        raise self._missing("c_init")

    def c_extract(self, name: str, sub: Sub, check_input: bool = True, **kwargs: Any) -> str:
        """Fills the variables from py_<name>, a borrowed reference; checks it if check_input."""
        raise self._missing("c_extract")

    def c_sync(self, name: str, sub: Sub) -> str:
        """Puts the value into py_<name>, giving up the reference that was there."""
        raise self._missing("c_sync")

    def c_cleanup(self, name: str, sub: Sub) -> str:
        """Frees what the variables hold. It runs after a failure as well, also after one in
        c_extract itself."""
        return ""

    def c_literal(self, value: Any) -> str | None:
        """A C expression for a constant value, or None where it has none and is passed in."""
        return None

    def c_element_type(self) -> str:
        """The C type of one element, "" where there is none."""
        return ""


_FILTERING = frozenset(["filter", "filter_inplace", "holds", "convert", "_fits"])


def extracts_as_filtered(t: Type) -> bool:
    """Whether c_extract does all that `filter` does for the values of a type."""
    if _FILTERING & getattr(t, "__dict__", {}).keys():
        return False
    for kind in type(t).__mro__:
        own = vars(kind)
        if own.get("c_extract_filters"):
            inner = getattr(t, "elem", None)  # of a container
            return inner is None or extracts_as_filtered(inner)
        if _FILTERING & own.keys():
            return False
    return False


def form_of(kind: type) -> object:
    """The method that declares the values of a class of types in C; None where they have no form
    there. The values of two classes look alike in C if it is the same."""
    found: object = getattr(kind, "c_declare", None)
    return None if found is CType.c_declare else found


class Generic(CType):
    """Any Python object. In C it is a PyObject pointer.

    A subclass is a type of its own, whose values have the form that it gives them; two of one
    subclass are equal if their attributes are.
    """

    c_extract_filters = True

    def filter(self, value: Any, strict: bool = False, allow_downcast: bool | None = None) -> Any:
        return value

    def is_super(self, otype: Type) -> bool | None:
        if type(self) is not Generic:
            return super().is_super(otype)
        # Values of a type without C stay Python objects there.
        return True if form_of(type(otype)) in (None, Generic.c_declare) else None

    def convert_variable(self, var: Variable) -> Variable | None:
        if type(self) is Generic and not self.is_super(var.type):
            return graphs().as_object(var)
        return super().convert_variable(var)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return False
        return type(self) is Generic or attributes_key(self) == attributes_key(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def __str__(self) -> str:
        return "object"

    def c_declare(self, name: str, sub: Sub, check_input: bool = True) -> str:
        return f"PyObject *{name};"

    def c_init(self, name: str, sub: Sub) -> str:
        return f"{name} = NULL;"

    def c_extract(self, name: str, sub: Sub, check_input: bool = True, **kwargs: Any) -> str:
        return f"Py_INCREF(py_{name});\n{name} = py_{name};"

    def c_sync(self, name: str, sub: Sub) -> str:
        return (
            f"Py_XDECREF(py_{name});\npy_{name} = {name} ? {name} : Py_None;\nPy_INCREF(py_{name});"
        )

    def c_cleanup(self, name: str, sub: Sub) -> str:
        return f"Py_XDECREF({name});"

    def c_code_cache_version(self) -> tuple[Any, ...]:
        return (1,)


generic = Generic()

_transfers = Table("transfer", unique=True, resolved=False)
_Transfer = TypeVar("_Transfer", bound="Callable[[Variable, str], Variable | None]")


def register_transfer(function: _Transfer) -> _Transfer:
    """Adds a target for `transfer`: a decorator. The function gets a variable and the target, and
    returns the variable there, or None where it does not know the target. DuplicateError where it
    is registered already.

        >>> with pb.temporary():
        ...     @pb.register_transfer
        ...     def to_half(v, target):
        ...         return pb.ops.to(v, torch.float16) if target == "half" else None
        ...     pb.transfer(pb.TensorType("float32", (2,))(), "half").type
        TensorType(float16, (2,))
    """
    _transfers.add(function, function, subject=getattr(function, "__qualname__", repr(function)))
    return function


def transfer(variable: Variable, target: str) -> Variable:
    """Returns the variable on another target, by the first registered function that knows it;
    BridgeValueError where none does.

        >>> pb.transfer(pb.TensorType("float32", (2,))(), "moon")
        Traceback (most recent call last):
            ...
        pytorch_bridge.errors.BridgeValueError: no registered transfer knows the target 'moon'; ...
    """
    for entry in _transfers.entries():
        moved: Variable | None = entry.value(variable, target)
        if moved is not None:
            return moved
    raise BridgeValueError(
        f"no registered transfer knows the target {target!r}; register_transfer adds one"
    )
