"""Optional and ListArg, which are made of other schema types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import c_support
from .base import Sub, Type
from .literals import CLiteral
from .numbers import NumberArg
from .schema_types import Plain, Refused, SchemaType, converted
from .tensor import TensorArg


class Optional(SchemaType):
    """A value or None.

    In C it is what the element is where that can be NULL, and else a pointer; in a graph it points
    to a variable beside it, and a result is two: the value, and whether there is one.
    """

    c_extract_filters = True

    nullable = True

    def __init__(self, elem: SchemaType) -> None:
        super().__init__(f"{elem.schema}?")
        self.elem = elem
        self.c = elem.c if elem.nullable else f"const {elem.c} *"

    @property
    def kinds(self) -> tuple[type, ...]:
        return (Optional, *self.elem.kinds)

    @property
    def required(self) -> SchemaType:
        return self.elem

    @property
    def kind(self) -> str:
        """That of the numbers."""
        return self.elem.kind  # type: ignore[attr-defined]

    def holds(self, value: Any) -> bool:
        return value is None or self.elem.holds(value)

    def convert(self, value: Any, allow_downcast: bool | None) -> Any:
        return self.elem.convert(value, allow_downcast)

    def is_super(self, otype: Type) -> bool | None:
        return self == otype or self.elem == otype or self.elem.is_super(otype)

    def values_eq(self, a: Any, b: Any) -> bool:
        return a is b if a is None or b is None else self.elem.values_eq(a, b)

    def values_eq_approx(self, a: Any, b: Any) -> bool:
        return a is b if a is None or b is None else self.elem.values_eq_approx(a, b)

    def may_share_memory(self, a: Any, b: Any) -> bool:  # type: ignore[override]
        return self.elem.may_share_memory(a, b)

    def literal(self, value: Any) -> CLiteral | None:
        if value is None:
            return CLiteral(self.c, "NULL", length=0 if isinstance(self.elem, ListArg) else None)
        found = self.elem.literal(value)
        if found is None or self.elem.nullable:
            return found
        braced = found.value if found.compound else f"{{{found.value}}}"
        return found._replace(value=braced, address=True)

    # In C
    def c_support_code(self) -> Sequence[str]:
        return self.elem.c_support_code()

    def c_parameters(self, n: str) -> list[str]:
        return self.elem.c_parameters(n) if self.elem.nullable else super().c_parameters(n)

    def c_results(self, n: str) -> list[str]:
        value = self.elem.c_results(n)
        return value if self.elem.nullable else [*value, f"bool *{n}_given"]

    def c_declare(self, name: str, sub: Sub, check_input: bool = True) -> str:
        if self.elem.nullable:
            return self.elem.c_declare(name, sub, check_input)
        return f"{self.elem.c_declare(f'{name}_value', sub)}\n{self.c}{name};"

    def c_init(self, name: str, sub: Sub) -> str:
        if self.elem.nullable:
            return self.elem.c_init(name, sub)
        return f"{self.elem.c_init(f'{name}_value', sub)}\n{name} = NULL;"

    def c_extract(self, name: str, sub: Sub, check_input: bool = True, **kwargs: Any) -> str:
        if self.elem.nullable:
            return self.elem.c_extract(name, sub, check_input, none=True)
        assert isinstance(self.elem, Plain)
        value = self.elem.from_python(name, sub, f"{name}_value")
        return (
            f"{self.c_init(name, sub)}\nif (py_{name} != Py_None) {{\n{value}\n"
            f"{name} = &{name}_value;\n}}"
        )

    def to_python(self, value: str) -> str:
        if self.elem.nullable:
            return self.elem.to_python(value)
        return f"{value} ? {self.elem.to_python(f'*{value}')} : Py_NewRef(Py_None)"

    def c_cleanup(self, name: str, sub: Sub) -> str:
        return self.elem.c_cleanup(name, sub)

    def c_take(self, name: str, n: str, sub: Sub, check_input: bool = True) -> str:
        if self.elem.nullable:
            return self.elem.c_take(name, n, sub, check_input)
        return f"{name} = NULL;\nif ({n}) {{\n{name}_value = *{n};\n{name} = &{name}_value;\n}}"

    def c_give(self, name: str, n: str, sub: Sub) -> str:
        if self.elem.nullable:
            return self.elem.c_give(name, n, sub)
        # The variable beside it ends with the function, so that what is given is a copy.
        return f"*{n}_given = {name} != NULL;\nif ({name}) *{n} = *{name};"


class ListArg(SchemaType):
    """A list. Where the schema names a `size`, one number may stand for as many.

    In C it is a pointer to the elements and their number; in a graph the memory is the variable's
    own.
    """

    c_extract_filters = True

    nullable = True

    def __init__(self, elem: SchemaType, size: int = 0) -> None:
        super().__init__(f"{elem.schema}[{size or ''}]")
        self.elem, self.size = elem, size

    @property
    def kinds(self) -> tuple[type, ...]:
        return (ListArg, *self.elem.kinds)

    @property
    def function(self) -> str:
        """In the names of the helpers that convert from Python and to it."""
        return f"{self.elem.function}s"  # type: ignore[attr-defined]

    def holds(self, value: Any) -> bool:
        return isinstance(value, (list, tuple)) and all(map(self.elem.holds, value))

    def convert(self, value: Any, allow_downcast: bool | None) -> Any:
        if self.size and isinstance(value, (int, float)):
            return [self.elem.convert(value, allow_downcast)] * self.size
        if not isinstance(value, (list, tuple)):
            raise Refused(value)
        return [self.elem.convert(v, allow_downcast) for v in value]

    def values_eq(self, a: Any, b: Any) -> bool:
        return len(a) == len(b) and all(map(self.elem.values_eq, a, b))

    def values_eq_approx(self, a: Any, b: Any) -> bool:
        return len(a) == len(b) and all(map(self.elem.values_eq_approx, a, b))

    def literal(self, value: Any) -> CLiteral | None:
        found = [self.elem.literal(v) for v in value]
        texts = [e.value for e in found if e is not None]
        if len(texts) < len(found):
            return None
        # An array of nothing is no C, and an empty list is not none.
        nothing = "{0}" if self.elem.c == "Scalar" else "0"
        values = ", ".join(texts) or nothing
        return CLiteral(self.elem.c, f"{{{values}}}", array=True, length=len(texts))

    # In C
    def c_parameters(self, n: str) -> list[str]:
        return [f"const {self.elem.c} *{n}", f"int64_t {n}_len"]

    def c_results(self, n: str) -> list[str]:
        return [f"{self.elem.c} **{n}", f"int64_t *{n}_len"]

    def c_declare(self, name: str, sub: Sub, check_input: bool = True) -> str:
        return f"{self.elem.c} *{name};\nint64_t {name}_len;"

    def c_init(self, name: str, sub: Sub) -> str:
        return f"{name} = NULL;\n{name}_len = 0;"

    def c_extract(
        self, name: str, sub: Sub, check_input: bool = True, none: bool = False, **kwargs: Any
    ) -> str:
        places = (str(int(none)), f"&{name}", f"&{name}_len")
        return f"{self.c_init(name, sub)}\n{converted(self.function, name, sub, *places)}"

    def to_python(self, value: str) -> str:
        return f"pb_{self.function}_to({value}, {value}_len)"

    def c_cleanup(self, name: str, sub: Sub) -> str:
        return f"free({name});\n{name} = NULL;"

    def c_take(self, name: str, n: str, sub: Sub, check_input: bool = True) -> str:
        return f"""{name} = NULL;
{name}_len = {n}_len;
if ({n}) {{
  {name} = ({self.elem.c} *)malloc(({n}_len + 1) * sizeof *{name});
  if (!{name}) {{
    pb_error = cgotorch_make_error("MemoryError", "out of memory");
    {name}_len = 0;
    {sub["fail"]}
  }}
  if ({n}_len) memcpy({name}, {n}, {n}_len * sizeof *{name});
}}"""

    def c_give(self, name: str, n: str, sub: Sub) -> str:
        # The list is given away as it is.
        return f"*{n} = {name};\n*{n}_len = {name}_len;\n{self.c_init(name, sub)}"


class BoolArray(SchemaType):
    """bool[N]: exactly N of them, which C knows."""

    c_extract_filters = True

    c, size = "const bool *", 0

    def __init__(self, elem: SchemaType, size: int) -> None:
        super().__init__(f"{elem.schema}[{size}]")
        self.elem, self.size = elem, size

    def holds(self, value: Any) -> bool:
        listed = isinstance(value, (list, tuple)) and len(value) == self.size
        return listed and all(map(self.elem.holds, value))

    def literal(self, value: Any) -> CLiteral:
        return CLiteral("bool", f"{{{', '.join(str(v).lower() for v in value)}}}", array=True)

    def c_results(self, n: str) -> list[str]:
        return [f"bool *{n}"]

    def c_declare(self, name: str, sub: Sub, check_input: bool = True) -> str:
        return f"bool {name}[{self.size}];"

    def c_init(self, name: str, sub: Sub) -> str:
        return f"memset({name}, 0, sizeof {name});"

    def c_extract(self, name: str, sub: Sub, check_input: bool = True, **kwargs: Any) -> str:
        return converted("bools", name, sub, str(self.size), name)

    def to_python(self, value: str) -> str:
        return f"pb_bools_to({value}, {self.size})"

    def c_take(self, name: str, n: str, sub: Sub, check_input: bool = True) -> str:
        return f"memcpy({name}, {n}, sizeof {name});"

    def c_give(self, name: str, n: str, sub: Sub) -> str:
        # The caller has an array for as many.
        return f"memcpy({n}, {name}, sizeof {name});"


class OptionalTensor(Optional, TensorArg):
    """A tensor or None; in a graph, what may turn out to be none at run time."""

    c_extract_filters = True

    def c_support_code(self) -> Sequence[str]:
        return c_support.HELPERS

    def c_extract(self, name: str, sub: Sub, check_input: bool = True, **kwargs: Any) -> str:
        return (
            f"{name} = NULL;\nif (py_{name} != Py_None) {{\n"
            f"  {name} = pb_python->unwrap(py_{name});\n"
            f"  if ({name} == NULL) {{\n{sub['fail']}\n}}\n}}"
        )

    def c_take(self, name: str, n: str, sub: Sub, check_input: bool = True) -> str:
        return TensorArg.c_take(self, name, n, sub, check_input)


class TensorList(ListArg):
    """Tensors, some of which may be None where the schema says `Tensor?[]`. In a graph an op takes
    them one by one; a variable of this type is one list, which owns them."""

    c_extract_filters = True

    function = "tensors"

    def convert(self, value: Any, allow_downcast: bool | None) -> Any:
        raise Refused(value)

    def may_share_memory(self, a: Any, b: Any) -> bool:  # type: ignore[override]
        a, b = (v if isinstance(v, (list, tuple)) else [v] for v in (a, b))
        return any(self.elem.may_share_memory(x, y) for x in a for y in b)

    def c_support_code(self) -> Sequence[str]:
        return c_support.TENSOR_HELPERS

    def c_extract(
        self, name: str, sub: Sub, check_input: bool = True, none: bool = False, **kwargs: Any
    ) -> str:
        return super().c_extract(name, sub, none=isinstance(self.elem, Optional))

    def c_cleanup(self, name: str, sub: Sub) -> str:
        return f"FreeTensors({name}, {name}_len);\nFreeArray({name});\n{self.c_init(name, sub)}"

    def c_release(self, name: str, sub: Sub) -> str:
        return self.c_cleanup(name, sub)

    def c_take(self, name: str, n: str, sub: Sub, check_input: bool = True) -> str:
        copy = super().c_take(name, n, sub, check_input)
        return f"{copy}\nfor (int64_t i = 0; i < {n}_len; i++) RetainTensor({n}[i]);"


def element_of(t: Type) -> SchemaType | None:
    """The type of the elements of a list, also of an optional one; None for what is no list."""
    t = t.required if isinstance(t, SchemaType) else t
    return t.elem if isinstance(t, (ListArg, BoolArray)) else None


def is_number_list(t: Type) -> bool:
    """Whether values are lists of any number of numbers, or none."""
    return isinstance(element_of(t), NumberArg) and not isinstance(t, BoolArray)
