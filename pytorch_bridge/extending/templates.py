"""Typing by classes: which types a call, a method or an attribute takes and gives.

    @infer_global(len)
    class Len(AbstractTemplate):
        key = len

        def generic(self, args, kws):
            (val,) = args
            if isinstance(val, types.BaseTuple):
                return signature(types.intp, val)

A template says what a call returns, not how it is computed: that is for lower_builtin. `overload`
does both at once, and is what most extensions want.

    ConcreteTemplate   `cases` lists the signatures
    AbstractTemplate   `generic(args, kws)` returns a Signature, or None: not for these types
    CallableTemplate   `generic()` returns a function with the parameters of the one that is typed
    AttributeTemplate  `resolve_<attr>(ty)` returns the type of an attribute of `key`
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ..errors import RegistrationError
from ..registry import Table
from ..types.base import Type
from . import types
from .errors import NotMineError, UnreachableError
from .ranking import rank
from .selecting import check, show
from .signatures import Signature, signature

if TYPE_CHECKING:
    from .resolution import TypingContext

_T = TypeVar("_T", bound=type)
_F = TypeVar("_F", bound=Callable[..., Any])

calls = Table("template", unique=False)  # by the function
attributes = Table("attribute", unique=False)  # by the attribute, specs say of what type
globals_ = Table("type of a global", unique=True)  # by id of the value


class Template:
    """What templates share. `key` is what they type."""

    key: ClassVar[Any] = None

    def __init__(self, context: TypingContext) -> None:
        self.context = context

    def apply(self, args: Sequence[Type], kws: Mapping[str, Type]) -> Signature | None:
        """The signature for a call, None where the template is not for it. TypingError says
        why it is not."""
        raise NotImplementedError(f"{type(self).__name__} is no template to derive from directly")

    def arrange(self, args: Sequence[Any], kws: Mapping[str, Any]) -> list[Any]:
        """Arguments in the order in which the signature has them: that of the parameters of what is
        typed, where it has any to look at."""
        if not kws:
            return list(args)
        try:
            parameters = inspect.signature(type(self).key)  # not the bound method
            return positions(parameters, parameters.bind(*args, **kws).arguments)
        except (TypeError, ValueError):
            raise NotMineError(
                f"the place of {', '.join(kws)} is not known: give arguments by position"
            ) from None

    def _wrong(self, what: str) -> RegistrationError:
        return RegistrationError(f"template {type(self).__qualname__}: {what}")


def positions(parameters: inspect.Signature, arguments: Mapping[str, Any]) -> list[Any]:
    """Arguments that are bound to names, in the order of the parameters."""
    given: list[Any] = []
    for name, value in arguments.items():
        kind = parameters.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            given += value
        elif kind is inspect.Parameter.VAR_KEYWORD:
            given += value.values()
        else:
            given.append(value)
    return given


def _positional(args: Sequence[Type], kws: Mapping[str, Type]) -> Sequence[Type]:
    if kws:
        raise NotMineError(f"it takes no keyword arguments, got {', '.join(kws)}")
    return args


class ConcreteTemplate(Template):
    """`cases` lists the signatures. The one that needs the least conversion is chosen, the first of
    equally good ones."""

    cases: ClassVar[Sequence[Signature]] = ()

    def apply(self, args: Sequence[Type], kws: Mapping[str, Type]) -> Signature | None:
        best: tuple[Any, Signature] | None = None
        args = _positional(args, kws)
        for case in self.cases:
            if not isinstance(case, Signature):
                raise self._wrong(f"a case is no Signature, but {case!r}")
            found = rank(args, case.args)
            if found is not None and (best is None or found < best[0]):
                best = found, case
        if best is None:
            shown = "".join(f"\n      {case}" for case in self.cases)
            raise NotMineError(f"no case matches; the cases are:{shown}")
        return best[1]


class AbstractTemplate(Template):
    """`generic(args, kws)` decides."""

    def generic(self, args: Any, kws: Any) -> Signature | None:
        raise self._wrong("it must define generic(args, kws)")

    def apply(self, args: Sequence[Type], kws: Mapping[str, Type]) -> Signature | None:
        found = self.generic(tuple(args), dict(kws))
        if found is not None and not isinstance(found, Signature):
            raise self._wrong(f"generic must return a Signature or None, not {found!r}")
        return found


class CallableTemplate(Template):
    """`generic()` returns the typer: a function with the parameters of the one that is typed, which
    is given types (None for defaults that say so) and returns the type of the result, a whole
    Signature, or None."""

    def generic(self) -> Callable[..., Any]:
        raise self._wrong("it must define generic(), which returns the typer")

    def apply(self, args: Sequence[Type], kws: Mapping[str, Type]) -> Signature | None:
        typer = self.generic()
        if not callable(typer):
            raise self._wrong(f"generic must return a function, not {typer!r}")
        parameters = inspect.signature(typer)
        try:
            parameters.bind(*args, **kws)
        except TypeError as e:
            raise NotMineError(f"{e}; it takes {parameters}") from None
        found = typer(*args, **kws)
        if found is None or isinstance(found, Signature):
            return found
        if not isinstance(found, Type):
            raise self._wrong(f"the typer must return a Type, a Signature or None, not {found!r}")
        return signature(found, *self.arrange(args, kws))

    def arrange(self, args: Sequence[Any], kws: Mapping[str, Any]) -> list[Any]:
        """Arguments in the order of the typer's parameters."""
        parameters = inspect.signature(self.generic())
        return positions(parameters, parameters.bind(*args, **kws).arguments)


class AttributeTemplate(Template):
    """Types the attributes of `key`, a type or a class of types.

    `resolve_<attr>(self, ty)` returns the type of the attribute, or None;
    `generic_resolve(self, ty, attr)`, if defined, is asked about all others.
    """

    def generic_resolve(self, ty: Any, attr: str) -> Any:
        return None

    def resolve(self, ty: Type, attr: str) -> Type | None:
        """The type of ty.attr, or None where the template does not know it."""
        method = getattr(self, f"resolve_{attr}", None)
        found = self.generic_resolve(ty, attr) if method is None else method(ty)
        if found is not None and not isinstance(found, Type):
            raise self._wrong(f"the type of attribute {attr} is no Type, but {found!r}")
        return found


def _check_template(cls: Any, kind: type, decorator: str) -> None:
    if not (isinstance(cls, type) and issubclass(cls, kind)):
        raise RegistrationError(f"{decorator} decorates a {kind.__name__}, not {cls!r}")
    if decorator != "infer_global" and cls.key is None:  # type: ignore[attr-defined]
        raise RegistrationError(f"template {cls.__qualname__} must define key: what it types")


def infer(cls: _T) -> _T:
    """Decorates a template for calls of its key."""
    _check_template(cls, Template, "infer")
    if issubclass(cls, AttributeTemplate):
        raise RegistrationError(
            f"{cls.__qualname__} types attributes: register it with infer_getattr"
        )
    key = cls.key  # type: ignore[attr-defined]
    calls.add(key, cls, cls, getattr(key, "__qualname__", str(key)))
    return cls


def infer_getattr(cls: _T) -> _T:
    """Decorates an AttributeTemplate for values of its key."""
    _check_template(cls, AttributeTemplate, "infer_getattr")
    key = cls.key  # type: ignore[attr-defined]
    attributes.add(None, cls, cls, f"all attributes of {show(key)}", check((key,), "infer_getattr"))
    return cls


def _reachable(value: Any) -> bool:
    """Whether a function or a class is found under its own name."""
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    names = (getattr(value, "__qualname__", None), getattr(value, "__name__", None))
    for start in (module, getattr(value, "__self__", None)):  # a method of C has no module
        for name in filter(None, names):
            found = start
            for part in name.split("."):
                found = getattr(found, part, None)
            if found is value or (found is not None and found == value):
                return True
    return False


def infer_global(value: Any, typ: Type | None = None) -> Any:
    """Types a global value: `infer_global(value, type)`, or as a decorator of the template for its
    calls. There, UnreachableError (a ValueError) if the value cannot be found by its own name,
    because the template would never be asked."""
    if typ is not None:
        if not isinstance(typ, Type):
            raise RegistrationError(f"infer_global takes a Type, not {typ!r}")
        if isinstance(typ, types.Function):
            calls.add(value, typ.template, typ.template, _called(value))
        else:
            globals_.add(id(value), (value, typ), typ, _called(value))
        return None

    def decorate(cls: _T) -> _T:
        _check_template(cls, Template, "infer_global")
        if not callable(value):
            raise RegistrationError(f"infer_global cannot decorate for {value!r}: give its type")
        if not _reachable(value):
            raise UnreachableError(
                f"{value!r} cannot be reached as "
                f"{getattr(value, '__module__', '?')}.{_called(value)}: the template "
                f"{cls.__qualname__} would not be found"
            )
        calls.add(value, cls, cls, _called(value))
        return cls

    return decorate


def _called(value: Any) -> str:
    return getattr(value, "__qualname__", None) or repr(value)


def type_callable(func: Hashable) -> Callable[[_F], _F]:
    """Decorates `f(context)`, which returns the typer for calls of func (see CallableTemplate). The
    decorated function is returned unchanged."""

    def decorate(f: _F) -> _F:
        if not callable(f):
            raise RegistrationError(f"type_callable decorates a function, not {f!r}")

        def generic(self: CallableTemplate) -> Any:
            return f(self.context)

        name = f"{getattr(f, '__name__', 'typer')}"
        made = type(name, (CallableTemplate,), {"key": func, "generic": generic})
        calls.add(func, made, f, _called(func))
        return f

    return decorate
