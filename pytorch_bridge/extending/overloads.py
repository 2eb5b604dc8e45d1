"""Implementing functions, attributes and methods in Python.

    @overload(len)
    def pair_len(x):
        if isinstance(x, PairType):
            def pair_len_impl(x):
                return 2
            return pair_len_impl

The decorated function has the parameters of the one that is implemented and is given the *types* of
the arguments. It returns a function with the same parameters for the values, or None: "not mine".
That function is traced in the place of the call, so it may use whatever may be used there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from ..errors import RegistrationError
from ..registry import place_of
from ..sameness import same
from ..types.base import Type
from . import lowering, templates
from .errors import TypingError
from .models import StructModel, default_manager, registered_model
from .selecting import Spec, check, show

_F = TypeVar("_F", bound=Callable[..., Any])


class Overload:
    """An overload of a function or of a method, in the table of templates' calls."""

    def __init__(self, function: Callable[..., Any], strict: bool, method: bool = False) -> None:
        self.function, self.strict, self.method = function, strict, method


class AttributeOverload:
    """An overload of an attribute."""

    def __init__(self, function: Callable[..., Any], strict: bool) -> None:
        self.function, self.strict = function, strict


class Member:
    """An attribute that is a member of a struct."""

    def __init__(self, field: str) -> None:
        self.field = field


def _check_function(f: Any, decorator: str) -> None:
    if not callable(f) or isinstance(f, type):
        raise RegistrationError(f"{decorator} decorates a function, not {f!r}")
    try:
        inspect.signature(f)
    except (TypeError, ValueError) as e:
        raise RegistrationError(f"{decorator}: {f!r} has no parameters to look at: {e}") from None


def overload(func: Hashable, *, strict: bool = True) -> Callable[[_F], _F]:
    """Decorates what implements func for some types. With strict=False the parameters of the
    implementation are not compared with those of the decorated function."""
    try:
        hash(func)
    except TypeError:
        raise RegistrationError(f"{func!r} cannot be overloaded: it has no hash") from None

    def decorate(f: _F) -> _F:
        _check_function(f, "overload")
        name = getattr(func, "__qualname__", None) or repr(func)
        templates.calls.add(func, Overload(f, strict), f, name)
        return f

    return decorate


def overload_method(typ: Spec, attr: str, *, strict: bool = True) -> Callable[[_F], _F]:
    """Decorates what implements the method `attr` of a type, or of a class of types and its
    subclasses. The first parameter is the object. For the nearest class first, each registered
    function is asked in turn."""
    specs = check((typ,), "overload_method")

    def decorate(f: _F) -> _F:
        _check_function(f, "overload_method")
        what = f"{show(typ)}.{attr}"
        templates.attributes.add(attr, Overload(f, strict, method=True), f, what, specs)
        return f

    return decorate


def overload_attribute(typ: Spec, attr: str, *, strict: bool = True) -> Callable[[_F], _F]:
    """Decorates what implements reading the attribute `attr` of a type, or of a class of types and
    its subclasses: it is given the type and returns a function of the object, or None. What it
    returns may also be (getter, setter, deleter), with None for those that there are not; the
    setter is a function of the object and the value."""
    specs = check((typ,), "overload_attribute")

    def decorate(f: _F) -> _F:
        _check_function(f, "overload_attribute")
        what = f"{show(typ)}.{attr}"
        templates.attributes.add(attr, AttributeOverload(f, strict), f, what, specs)
        return f

    return decorate


def make_attribute_wrapper(
    typeclass: Type | type[Type], struct_attr: str, python_attr: str
) -> None:
    """Makes the member `struct_attr` of a struct readable as the attribute `python_attr`.

    RegistrationError (a TypeError) where the model of the class is no StructModel, or has no such
    member. (Where the class makes its types of arguments, that is seen when the attribute is used.)
    """
    specs = check((typeclass,), "make_attribute_wrapper")
    cls = typeclass if isinstance(typeclass, type) else type(typeclass)
    model = registered_model(cls)
    if model is None or not issubclass(model, StructModel):
        has = "none" if model is None else model.__name__
        raise RegistrationError(
            f"make_attribute_wrapper needs a class of types whose model is a StructModel; that of "
            f"{cls.__name__} is {has}"
        )

    struct = _struct_of(typeclass, model)
    if struct is not None:
        struct.member_type(struct_attr)
    subject, thing = f"{show(typeclass)}.{python_attr}", (cls, python_attr)

    def getter(context: Any, builder: Any, typ: Any, value: Any) -> Any:
        struct = context.data_model_manager.lookup(typ)
        struct.member_type(struct_attr)
        return builder.member(value, struct_attr, struct.models[struct_attr].c_type)

    lowering.getattrs.add(python_attr, getter, thing, subject, specs)
    templates.attributes.add(python_attr, Member(struct_attr), thing, subject, specs)


def _struct_of(typeclass: Type | type[Type], model: type[Any]) -> StructModel | None:
    """The struct of a type; of a class of types where these are all alike, because they are made
    without arguments."""
    try:
        if isinstance(typeclass, type):
            if inspect.signature(typeclass).parameters:
                return None
            typeclass = typeclass()
        made = model(default_manager, typeclass)
    except Exception:  # what it needs may be registered later
        return None
    return made if isinstance(made, StructModel) else None


def register_jitable(f: _F) -> _F:
    """Decorates a Python function that traced code calls: it is traced as well, and stays callable
    from Python. Functions of one's own modules are traced without it; it is for those of modules
    that otherwise run as they are (torch, NumPy, Python's own library)."""
    _check_function(f, "register_jitable")
    f.__bridge_jitable__ = True  # type: ignore[attr-defined]
    return f


class Intrinsic:
    """A function for traced code that has its typing and its C in one place."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__name__ = getattr(function, "__name__", "intrinsic")
        self.__qualname__ = getattr(function, "__qualname__", self.__name__)
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__
        self.__wrapped__ = function
        self.place = place_of(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypingError(
            f"{self.__name__} ({self.place}) is C: it can be called in traced code only"
        )

    def __repr__(self) -> str:
        return f"<intrinsic {self.__qualname__}>"


def intrinsic(f: Callable[..., Any]) -> Intrinsic:
    """Decorates `f(typingctx, *types)`, which returns a Signature and the function that writes the
    C, `codegen(context, builder, sig, args)`, or None where it is not for these types.

        @intrinsic
        def fma(typingctx, x, y, z):
            if x == y == z == types.float64:
                def codegen(context, builder, sig, args):
                    return builder.c_call("fma", *args, returns="double")
                return signature(types.float64, x, y, z), codegen
    """
    _check_function(f, "intrinsic")
    return Intrinsic(f)


# Do typing and implementation agree?


def check_parameters(typing: Callable[..., Any], implementation: Callable[..., Any]) -> None:
    """RegistrationError, with both sides, unless the two have the same parameters: names, kinds and
    defaults."""
    a = list(inspect.signature(typing).parameters.values())
    b = list(inspect.signature(implementation).parameters.values())

    def refuse(why: str) -> RegistrationError:
        return RegistrationError(
            f"typing and implementation disagree: {why}\n"
            f"  typing:         {_head(typing)} ({place_of(typing)})\n"
            f"  implementation: {_head(implementation)} ({place_of(implementation)})"
        )

    if len(a) != len(b):
        raise refuse(f"{len(a)} parameters and {len(b)}")
    for p, q in zip(a, b, strict=True):
        if p.name != q.name:
            raise refuse(f"parameter {p.name!r} is {q.name!r} in the implementation")
        if p.kind is not q.kind:
            raise refuse(f"parameter {p.name!r} is {p.kind.description} and {q.kind.description}")
        if not same(p.default, q.default):
            raise refuse(f"the default of {p.name!r} is {_default(p)} and {_default(q)}")


def _default(p: inspect.Parameter) -> str:
    return "missing" if p.default is p.empty else repr(p.default)


def _head(f: Callable[..., Any]) -> str:
    parameters = [p.replace(annotation=p.empty) for p in inspect.signature(f).parameters.values()]
    return f"{getattr(f, '__name__', f)}{inspect.Signature(parameters)}"
