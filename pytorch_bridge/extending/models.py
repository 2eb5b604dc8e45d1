"""How the values of a type look in C.

    @register_model(IntervalType)
    class IntervalModel(models.StructModel):
        def __init__(self, dmm, fe_type):
            members = [("lo", types.float64), ("hi", types.float64)]
            models.StructModel.__init__(self, dmm, fe_type, members)

A model is registered for a class of types and holds for its subclasses too; the nearest class wins.
`fe_type` is the type itself, so that members may depend on it. `dmm.lookup(t)` gives the model of
another type.

    PrimitiveModel   a number or another C type that is copied as it is
    OpaqueModel      a pointer that is copied as it is
    StructModel      named members, each of any type that has a model
    TensorModel      a handle: each copy owns a reference
    ObjectModel      a Python object: each copy owns a reference
    StringModel      UTF-8: each copy owns a reference
    TupleModel       a StructModel with the members f0, f1, ...
    BooleanModel, IntegerModel, FloatModel, ComplexModel   numbers
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any

from .. import registry
from ..errors import RegistrationError
from ..registry import Entry, Table
from ..types.base import CType, Type
from . import types
from .builder import FORMS, STRINGS, Form, clear

_models = Table("data model", unique=True)


class DataModel:
    """How one type's values look in C: the C type, and how values are copied and given up."""

    c_type: str  # as a variable is declared
    go_type: str = ""  # what the value is in an exported Go package; "" where it cannot be there

    def __init__(self, dmm: DataModelManager, fe_type: Type) -> None:
        self.dmm, self.fe_type = dmm, fe_type

    @property
    def owns(self) -> bool:
        """Whether a value holds references, so that copies must be retained and released."""
        return False

    @property
    def shares(self) -> bool:
        """Whether copies of a value have memory in common that somebody may write into."""
        return self.owns

    @property
    def in_python(self) -> bool:
        """Whether copying a value, and giving it up, needs the interpreter."""
        return False

    def definitions(self) -> list[str]:
        """The C definitions that c_type needs, each after those that it needs itself."""
        return []

    def clear(self, variable: str) -> str:
        """A statement that makes a variable empty, without giving up what it holds."""
        return clear(self.c_type, variable)

    def retain(self, value: str) -> str:
        """An expression for a copy of value that owns its references."""
        return value

    def release(self, variable: str) -> str:
        """Statements that give up what a variable holds and leave it empty."""
        return ""

    def unshare(self, variable: str, fail: str) -> str:
        """Statements that give a variable tensors with memory of their own, in the place of those
        that it holds."""
        return ""


class PrimitiveModel(DataModel):
    """A C type that is copied as it is: `be_type`."""

    def __init__(
        self, dmm: DataModelManager, fe_type: Type, be_type: str, go_type: str = ""
    ) -> None:
        super().__init__(dmm, fe_type)
        self.c_type, self.go_type = be_type, go_type


class OpaqueModel(PrimitiveModel):
    """A pointer that nothing here follows; whoever made it frees it."""

    def __init__(self, dmm: DataModelManager, fe_type: Type) -> None:
        super().__init__(dmm, fe_type, "void *", "unsafe.Pointer")


class BooleanModel(PrimitiveModel):
    def __init__(self, dmm: DataModelManager, fe_type: Type) -> None:
        super().__init__(dmm, fe_type, "bool", "bool")


class IntegerModel(PrimitiveModel):
    def __init__(self, dmm: DataModelManager, fe_type: types.Integer) -> None:
        name = f"{'' if fe_type.signed else 'u'}int{fe_type.bitwidth}"
        super().__init__(dmm, fe_type, f"{name}_t", name)


class FloatModel(PrimitiveModel):
    def __init__(self, dmm: DataModelManager, fe_type: types.Float) -> None:
        c = "double" if fe_type.bitwidth == 64 else "float"
        super().__init__(dmm, fe_type, c, f"float{fe_type.bitwidth}")


class HandleModel(DataModel):
    """A pointer to something that counts its references."""

    @property
    def owns(self) -> bool:
        return True

    def retain(self, value: str) -> str:
        return FORMS[self.c_type].retain.format(value)

    def release(self, variable: str) -> str:
        return f"{FORMS[self.c_type].release.format(variable)}\n{variable} = NULL;"


class TensorModel(HandleModel):
    """A Tensor of cgotorch.h."""

    c_type, go_type = "Tensor", "gotorch.Tensor"

    def unshare(self, variable: str, fail: str) -> str:
        return (
            f"if ({variable}) {{\nTensor pb_copy = NULL;\n"
            f"if ((pb_error = Clone({variable}, NULL, &pb_copy))) {{\n{fail}\n}}\n"
            f"FreeTensor({variable});\n{variable} = pb_copy;\n}}"
        )

    def definitions(self) -> list[str]:
        code = self.fe_type.c_support_code() if isinstance(self.fe_type, CType) else []
        return [code] if isinstance(code, str) else list(code)


class ObjectModel(HandleModel):
    """A Python object. Go has none, so that an exported package cannot have such a value."""

    c_type = "PyObject *"

    @property
    def in_python(self) -> bool:
        return True


class StringModel(HandleModel):
    """UTF-8 that counts its references, and knows its length."""

    c_type = "pb_string"

    @property
    def shares(self) -> bool:
        return False  # nobody writes into a string

    def definitions(self) -> list[str]:
        return [STRINGS]


_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class StructModel(DataModel):
    """A C struct with `members`: pairs of a name and a type."""

    def __init__(
        self, dmm: DataModelManager, fe_type: Type, members: Sequence[tuple[str, Type]]
    ) -> None:
        super().__init__(dmm, fe_type)
        self.members = [(name, t) for name, t in members]
        seen: set[str] = set()
        for name, t in self.members:
            if not isinstance(name, str) or not _FIELD.fullmatch(name):
                raise RegistrationError(f"{fe_type}: {name!r} cannot name a member of a C struct")
            if name in seen:
                raise RegistrationError(f"{fe_type} has two members {name}")
            if not isinstance(t, Type):
                raise RegistrationError(f"member {name} of {fe_type} is no Type, but {t!r}")
            seen.add(name)
        self._models: dict[str, DataModel] | None = None

    @property
    def models(self) -> dict[str, DataModel]:
        """The members' models, by name."""
        if self._models is None:
            self._models = {name: self.dmm.lookup(t) for name, t in self.members}
        return self._models

    def member_type(self, name: str) -> Type:
        """The type of a member. RegistrationError where there is none of that name."""
        for field, t in self.members:
            if field == name:
                return t
        fields = ", ".join(field for field, _ in self.members) or "none"
        raise RegistrationError(f"{self.fe_type} has no member {name!r}; its members: {fields}")

    @property
    def c_type(self) -> str:  # type: ignore[override]
        layout = ";".join(f"{m.c_type} {name}" for name, m in self.models.items())
        digest = hashlib.sha256(f"{self.fe_type}|{layout}".encode()).hexdigest()[:8]
        return f"pb_{re.sub(r'[^A-Za-z0-9]+', '_', str(self.fe_type))[:40]}_{digest}"

    @property
    def go_type(self) -> str:  # type: ignore[override]
        """A struct of the exported package, named like the type; "" where a member has none."""
        if not all(m.go_type for m in self.models.values()):
            return ""
        words = re.findall(r"[A-Za-z0-9]+", str(self.fe_type))
        return "".join(w[0].upper() + w[1:] for w in words)

    @property
    def owns(self) -> bool:
        return any(m.owns for m in self.models.values())

    @property
    def shares(self) -> bool:
        return any(m.shares for m in self.models.values())

    @property
    def in_python(self) -> bool:
        return any(m.in_python for m in self.models.values())

    def definitions(self) -> list[str]:
        c = self.c_type
        out: list[str] = []
        for m in self.models.values():
            out += [d for d in m.definitions() if d not in out]
        guard = c.upper()
        fields = "".join(
            f"  {m.c_type}{'' if m.c_type.endswith('*') else ' '}{name};\n"
            for name, m in self.models.items()
        )
        text = f"#ifndef {guard}\n#define {guard}\n/* {self.fe_type} */\n"
        text += f"typedef struct {{\n{fields or '  char nothing;' + chr(10)}}} {c};\n"
        if self.owns:
            retained = "".join(
                f"  v.{name} = {m.retain(f'v.{name}')};\n"
                for name, m in self.models.items()
                if m.owns
            )
            text += f"static inline {c} {c}_retain({c} v) {{\n{retained}  return v;\n}}\n"
            released = "".join(
                f"  {line}\n"
                for name, m in self.models.items()
                for line in m.release(f"v->{name}").splitlines()
            )
            text += f"static inline void {c}_release({c} *v) {{\n{released}}}\n"
        return [*out, text + "#endif\n"]

    def retain(self, value: str) -> str:
        return f"{self.c_type}_retain({value})" if self.owns else value

    def release(self, variable: str) -> str:
        return f"{self.c_type}_release(&{variable});" if self.owns else ""

    def unshare(self, variable: str, fail: str) -> str:
        return "\n".join(
            m.unshare(f"{variable}.{name}", fail) for name, m in self.models.items() if m.owns
        )


class ComplexModel(StructModel):
    def __init__(self, dmm: DataModelManager, fe_type: types.Complex) -> None:
        part = fe_type.underlying_float
        super().__init__(dmm, fe_type, [("real", part), ("imag", part)])

    @property
    def go_type(self) -> str:  # type: ignore[override]
        return f"complex{self.fe_type.bitwidth}"  # type: ignore[attr-defined]


class TupleModel(StructModel):
    def __init__(self, dmm: DataModelManager, fe_type: types.BaseTuple) -> None:
        super().__init__(dmm, fe_type, [(f"f{i}", t) for i, t in enumerate(fe_type.types)])


class DataModelManager:
    """Finds the model of a type. There is one for all registrations, `default_manager`."""

    def __init__(self) -> None:
        self._cache: dict[Type, DataModel] = {}
        self._version = -1
        self._open: list[Type] = []

    def find(self, fe_type: Type) -> Entry | None:
        """The registration for the nearest class of a type."""
        for cls in type(fe_type).__mro__:
            found = _models.get(cls)
            if found:
                return found[0]
        return None

    def lookup(self, fe_type: Type) -> DataModel:
        """The model of a type. RegistrationError where no class of it has one."""
        if isinstance(fe_type, types.Literal) and fe_type.literal_type is not fe_type:
            fe_type = fe_type.literal_type
        if self._version != registry.version():
            self._cache.clear()
            self._version = registry.version()
        if fe_type in self._cache:
            return self._cache[fe_type]
        entry = self.find(fe_type)
        if entry is None:
            raise RegistrationError(
                f"no data model is registered for {fe_type} ({type(fe_type).__name__}): "
                "say what its values are in C with @register_model"
            )
        if fe_type in self._open:
            raise RegistrationError(f"{fe_type} has itself as a member, by {entry}")
        self._open.append(fe_type)
        try:
            made = entry.value(self, fe_type)
            if not isinstance(made, DataModel) or not hasattr(made, "fe_type"):
                raise RegistrationError(f"{entry} must call the __init__ of a class of models")
            if isinstance(made, StructModel):
                c = made.c_type  # asks for the members' models
                if made.owns:
                    FORMS[c] = Form(f"{c}_retain({{}})", f"{c}_release(&{{}});", _CLEAR)
        finally:
            self._open.pop()
        self._cache[fe_type] = made
        return made


_CLEAR = "memset(&{0}, 0, sizeof {0});"

default_manager = DataModelManager()


def register_model(fe_class: type[Type]) -> Callable[[type[DataModel]], type[DataModel]]:
    """Decorates the class of models for a class of types."""
    if not (isinstance(fe_class, type) and issubclass(fe_class, Type)):
        raise RegistrationError(f"register_model takes a class of types, not {fe_class!r}")

    def decorate(model: type[DataModel]) -> type[DataModel]:
        if not (isinstance(model, type) and issubclass(model, DataModel)):
            raise RegistrationError(f"{model!r} is no class of models, such as models.StructModel")
        _models.add(fe_class, model, model, fe_class.__name__)
        return model

    return decorate


def registered_model(fe_class: type[Type]) -> type[Any] | None:
    """The class of models for a class of types, or None."""
    for cls in fe_class.__mro__:
        found = _models.get(cls)
        if found:
            return found[0].value
    return None


types.above.data_model = default_manager.lookup
