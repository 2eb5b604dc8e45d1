"""What lowering, boxing and casting code is given beside the builder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import RegistrationError
from ..types.base import Type
from . import types
from .builder import CBuilder, Value
from .casts import cast
from .errors import LoweringError
from .lowering import constant, find_builtin, find_getattr, has_constant
from .models import DataModelManager, StructModel, default_manager


class Context:
    """Types as they are in C, constants, conversions, and calls of other lowering code."""

    @property
    def data_model_manager(self) -> DataModelManager:
        return default_manager

    def get_value_type(self, t: Type) -> str:
        """The C type of values of t."""
        return default_manager.lookup(t).c_type

    get_data_type = get_argument_type = get_value_type

    def get_constant(self, t: Type, value: Any, builder: CBuilder | None = None) -> Value:
        """A constant of type t."""
        return constant(self, builder or _scratch, t, value)

    def cast(self, builder: CBuilder, value: Value, fromty: Type, toty: Type) -> Value:
        """value of type fromty as one of type toty."""
        return cast(self, builder, value, fromty, toty)

    def is_true(self, builder: CBuilder, t: Type, value: Value) -> Value:
        """The truth value of value."""
        return self.cast(builder, value, t, types.boolean)

    def get_function(self, key: Any, sig: Any) -> Callable[[CBuilder, Sequence[Value]], Value]:
        """What is registered with lower_builtin for a call: give it a builder and the values."""
        entry = find_builtin(key, sig.args)

        def call(builder: CBuilder, args: Sequence[Value]) -> Value:
            return entry.value(self, builder, sig, list(args))

        return call

    def get_getattr(self, t: Type, attr: str) -> Callable[[CBuilder, Value], Value]:
        """What is registered with lower_getattr for an attribute."""
        call, _ = find_getattr(t, attr)
        return lambda builder, value: call(self, builder, t, value)

    def make_struct(self, builder: CBuilder, t: Type, value: Value | None = None) -> StructProxy:
        """A struct of type t whose members are attributes."""
        return StructProxy(self, builder, t, value)

    make_helper = make_struct

    def make_tuple(self, builder: CBuilder, t: types.BaseTuple, values: Sequence[Value]) -> Value:
        """A tuple of values."""
        made = StructProxy(self, builder, t)
        for i, v in enumerate(values):
            setattr(made, f"f{i}", v)
        return made._getvalue()


class StructProxy:
    """A struct under construction, or a copy of one. Its members are read and assigned as
    attributes, which emits C; the struct has references of its own to what it holds."""

    _model: StructModel
    _builder: CBuilder
    _variable: Value

    def __init__(
        self, context: Context, builder: CBuilder, t: Type, value: Value | None = None
    ) -> None:
        model = default_manager.lookup(t)
        if not isinstance(model, StructModel):
            raise RegistrationError(
                f"{t} is no struct: its model is {type(model).__name__}, not a StructModel"
            )
        c = model.c_type
        builder.structs[c] = model
        variable = builder.owned(c) if model.owns else builder.variable(c)
        if value is not None:
            if value.ctype != c:
                raise LoweringError(f"{value!r} is no {t}, whose C type is {c}")
            builder.move_to(variable.text, value)
        object.__setattr__(self, "_model", model)
        object.__setattr__(self, "_builder", builder)
        object.__setattr__(self, "_variable", variable)

    def _member(self, name: str) -> Value:
        model = self._model
        model.member_type(name)
        return self._builder.member(self._variable, name, model.models[name].c_type)

    def __getattr__(self, name: str) -> Value:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._member(name)

    def __setattr__(self, name: str, value: Any) -> None:
        member = self._member(name)
        b = self._builder
        if member.ctype == "pb_string" and value is not None:
            value = b.string(value)
        if self._model.models[name].owns:
            kept = b.owned(member.ctype)
            b.move_to(kept.text, value, member.ctype)
            b.emit(self._model.models[name].release(member.text))
            value = kept
        b.move_to(member.text, value, member.ctype)

    def _getvalue(self) -> Value:
        """The struct as a value."""
        return self._variable


_scratch = CBuilder("constant")  # constants need no statements


def constant_text(t: Type, value: Any) -> str | None:
    """C for a constant, or None where it has none and must be passed in."""
    if not has_constant(t):
        return None
    builder = CBuilder("constant")
    text = constant(Context(), builder, t, value).text
    return text if not builder.statements() else None


types.above.constant_text = constant_text
