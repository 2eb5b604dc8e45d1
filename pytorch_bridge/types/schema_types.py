"""What the types of PyTorch's schema language have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import BridgeTypeError
from . import c_support
from .base import CType, Sub, Type
from .literals import CLiteral


class Refused(Exception):
    """A value that `convert` does not take, and why; `filter` says what was expected instead."""

    def __init__(self, value: Any, why: str = "") -> None:
        super().__init__(value, why)
        self.value, self.why = value, why


class SchemaType(CType):
    """A type of the schema language: its values, which are those that torch.ops takes, and their
    form in C. What a target language makes of it is said there: see `faces`."""

    c = ""  # the C type of a value
    c_extract_filters = True
    nullable = False  # a C pointer, or some: NULL can stand for None

    def __init__(self, schema: str) -> None:
        self.schema = schema

    @property
    def kinds(self) -> tuple[type, ...]:
        """The class, after those of the containers that it is in. Rules are found by it."""
        return (type(self),)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.schema!r})"

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells this type from others. Symbolic sizes are integers there."""
        return (type(self), self.schema.replace("SymInt", "int").replace("Sym", ""))

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, SchemaType) and self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        return self.schema

    @property
    def required(self) -> SchemaType:
        """The type without None."""
        return self

    # Values
    def holds(self, value: Any) -> bool:
        """Whether value is one of this type as it is."""
        raise NotImplementedError(f"{type(self).__name__} lacks holds")

    def convert(self, value: Any, allow_downcast: bool | None) -> Any:
        """Returns value as one of this type, or Refused."""
        raise Refused(value)

    def refusal(self, value: Any, why: str = "") -> BridgeTypeError:
        return BridgeTypeError(f"expected {self}, got {describe(value)}{why}")

    def filter(self, value: Any, strict: bool = False, allow_downcast: bool | None = None) -> Any:
        if self.holds(value):
            return value
        if strict:
            raise self.refusal(value)
        try:
            return self.convert(value, allow_downcast)
        except Refused as e:
            raise self.refusal(e.value, e.why) from None

    def literal(self, value: Any) -> CLiteral | None:
        """A value that is known in C, or None where it has no literal."""
        return None

    def c_literal(self, value: Any) -> str | None:
        found = self.literal(value)
        return None if found is None else str(found)

    # As a parameter and a result of a C function
    def c_parameters(self, n: str) -> list[str]:
        """The parameters for a value called n."""
        return [f"{self.c}{n}" if self.c.endswith("*") else f"{self.c} {n}"]

    def c_results(self, n: str) -> list[str]:
        """The parameters for a result called n."""
        return [f"{self.c} *{n}"]

    def c_take(self, name: str, n: str, sub: Sub, check_input: bool = True) -> str:
        """Fills the variables for `name` from the C parameters of n; checks it if check_input."""
        return f"{name} = {n};"

    def c_give(self, name: str, n: str, sub: Sub) -> str:
        """Puts the value of `name` where the C results of n point. It does not fail."""
        return f"*{n} = {name};"

    # In the C of a graph
    def c_headers(self) -> Sequence[str]:
        return ["math.h", "stdlib.h", "string.h", "cgotorch.h"]

    def c_libraries(self) -> Sequence[str]:
        return ["cgotorch"]

    def c_support_code(self) -> Sequence[str]:
        return c_support.HELPERS

    def c_init(self, name: str, sub: Sub) -> str:
        return f"memset(&{name}, 0, sizeof {name});"

    def to_python(self, value: str) -> str:
        """A C expression for a new reference to what the variable `value` holds."""
        raise self._missing("c_sync")

    def c_sync(self, name: str, sub: Sub) -> str:
        return f"Py_XDECREF(py_{name});\npy_{name} = {self.to_python(name)};"

    def c_code_cache_version(self) -> tuple[Any, ...]:
        return (1,)


class Plain(SchemaType):
    """A type whose C values are copied by `=`, with nothing to free."""

    function = ""  # in the names of the helpers that convert from Python and to it

    def c_declare(self, name: str, sub: Sub, check_input: bool = True) -> str:
        (declaration,) = self.c_parameters(name)
        return f"{declaration};"

    def c_extract(self, name: str, sub: Sub, check_input: bool = True, **kwargs: Any) -> str:
        return self.from_python(name, sub, name)

    def from_python(self, name: str, sub: Sub, target: str) -> str:
        """Fills `target` from py_<name>."""
        return converted(self.function, name, sub, f"&{target}")

    def to_python(self, value: str) -> str:
        return f"pb_{self.function}_to({value})"

    def c_element_type(self) -> str:
        return self.c


def converted(function: str, name: str, sub: Sub, *arguments: str) -> str:
    """Calls a helper that fills what the arguments point to from py_<name>."""
    given = ", ".join([f"py_{name}", f'"{input_name(name, sub)}"', *arguments])
    return f"if (pb_{function}_from({given})) {{\n{sub['fail']}\n}}"


def describe(value: Any) -> str:
    """A short picture of a value for a message."""
    kind = type(value).__qualname__
    of = getattr(value, "type", None)
    if isinstance(of, Type):
        return f"the variable {value} of type {of}"
    shape = getattr(value, "shape", None)
    if shape is not None:
        device = str(getattr(value, "device", "cpu"))
        where = "" if device == "cpu" else f" on {device}"
        return f"a {kind} of {getattr(value, 'dtype', '?')} and shape {tuple(shape)}{where}"
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} (of type {kind})"


def input_name(name: str, sub: Sub) -> str:
    """The name to use for a variable in messages of C: its own, where the linker passes it."""
    return sub.get("variable", name).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
