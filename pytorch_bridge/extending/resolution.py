"""Which registration a call or an attribute means.

Calls. Every candidate that is registered for the function (templates and overloads) is asked with
the types of the arguments, in the order of registration. An overload that returns an implementation
takes the types as they are; a template's signature counts by the conversions that its arguments
need (see `ranking`). The candidate with the least conversion wins, and of equally good ones the
one that was registered first: the core comes first, so that an extension adds to a function for new
types and cannot change it for the core's. A candidate that needs no conversion cannot be beaten, so
that later ones are not asked.

A constant has a literal type. Where nobody takes that, the candidates are asked again as for a
value of its plain type.

Methods and attributes. What is registered for the instance comes first, then what is registered for
its class, for the base classes in their order (the MRO), and for Any. At each step single
attributes come before an AttributeTemplate, and each in the order of registration; one that says
"not mine" (None, or a TypingError) passes on to the next.

If nobody is left, TypingError lists all candidates with file, line and reason. An exception other
than TypingError propagates as it is: it is a bug in the candidate.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import RegistrationError
from ..registry import Entry
from ..types.base import Type
from . import templates, types
from .errors import NotMineError, TypingError
from .models import StructModel, default_manager
from .overloads import AttributeOverload, Intrinsic, Member, Overload, check_parameters
from .ranking import Rank, can_convert, rank
from .selecting import Any as AnyType
from .signatures import Signature
from .templates import AttributeTemplate, Template
from .typeof import typeof_constant

_NONE: Rank = (0, 0, 0)


class TypingContext:
    """The `context` of templates: types values and calls."""

    def resolve_value_type(self, value: Any) -> Type:
        return typeof_constant(value)

    def resolve_function_type(
        self, func: Any, args: Sequence[Type], kws: Mapping[str, Type]
    ) -> Signature | None:
        """The signature of a call of func, or None where a candidate has none (an overload)."""
        return resolve_call(func, args, kws).signature

    def resolve_getattr(self, ty: Type, attr: str) -> Type | None:
        found = resolve_attribute(ty, attr)
        return found.type if found is not None else None

    def can_convert(self, a: Type, b: Type) -> Any:
        return can_convert(a, b)


_context = TypingContext()


@dataclass(frozen=True)
class Resolved:
    """What a call means: an implementation to trace, or a signature to lower."""

    entry: Entry | None
    implementation: Callable[..., Any] | None = None
    signature: Signature | None = None
    codegen: Callable[..., Any] | None = None


@dataclass(frozen=True)
class ResolvedAttribute:
    """What an attribute means. `kind`: "getter" (implementation, perhaps setter and deleter),
    "method" (to be called with the object and the arguments) or "typed" (the type, to lower)."""

    entry: Entry
    kind: str
    type: Type | None = None
    getter: Callable[..., Any] | None = None
    setter: Callable[..., Any] | None = None
    deleter: Callable[..., Any] | None = None
    member: str | None = None


def _name(func: Any) -> str:
    return getattr(func, "__qualname__", None) or getattr(func, "__name__", None) or repr(func)


def _shown(args: Sequence[Any], kws: Mapping[str, Any]) -> str:
    return ", ".join([*map(str, args), *(f"{k}={v}" for k, v in kws.items())])


def _ask_overload(
    entry: Entry, candidate: Overload, args: Sequence[Type], kws: Mapping[str, Type]
) -> Callable[..., Any]:
    """The implementation. TypingError says why there is none."""
    f = candidate.function
    try:
        inspect.signature(f).bind(*args, **kws)
    except TypeError as e:
        raise NotMineError(str(e)) from None
    found = f(*args, **kws)
    if found is None:
        raise NotMineError("returned None: not for these types")
    return _implementation(entry, candidate, found)


def _implementation(
    entry: Entry, candidate: Overload | AttributeOverload, found: Any
) -> Callable[..., Any]:
    if not callable(found) or isinstance(found, type):
        raise RegistrationError(
            f"{entry} must return a function that implements it, or None, not {found!r}"
        )
    if candidate.strict:
        check_parameters(candidate.function, found)
    return found


def _ask(entry: Entry, args: Sequence[Type], kws: Mapping[str, Type]) -> tuple[Rank, Resolved]:
    """What a candidate offers, and what that costs. TypingError says why it offers nothing."""
    candidate = entry.value
    if isinstance(candidate, Overload):
        return _NONE, Resolved(entry, _ask_overload(entry, candidate, args, kws))
    assert issubclass(candidate, Template)
    template = candidate(_context)
    sig = template.apply(args, kws)
    if sig is None:
        raise NotMineError("returned None: not for these types")
    given = template.arrange(args, kws)
    cost = rank(given, sig.args)
    if cost is None:
        raise NotMineError(f"{sig} does not take ({_shown(args, kws)})")
    return cost, Resolved(entry, signature=sig)


@dataclass(frozen=True)
class _Reason:
    """Why a candidate is not taken, in words. The error itself would keep all frames alive."""

    entry: Entry
    text: str
    explicit: bool  # it says so itself, rather than that it is for other types


def _failure(what: str, reasons: Sequence[_Reason]) -> TypingError:
    """The error that lists the candidates. It is `refused` where one of them says why."""
    lines = [f"\n  {r.entry}:\n    {r.text}" for r in reasons]
    count = f"the {len(lines)} candidates" if len(lines) != 1 else "the only candidate"
    tail = f": {count} turned it down:{''.join(lines)}" if lines else ": nothing is registered"
    made = TypingError(f"no implementation of {what}{tail}")
    made.refused = any(r.explicit for r in reasons)  # type: ignore[attr-defined]
    return made


def has_candidates(func: Any) -> bool:
    """Whether anything is registered for calls of func."""
    try:
        return bool(templates.calls.get(func))
    except TypeError:  # no hash
        return False


def resolve_call(func: Any, args: Sequence[Type], kws: Mapping[str, Type]) -> Resolved:
    """What a call of func with arguments of these types means. TypingError lists the candidates."""
    return _by_value_or_type(lambda args, kws: _resolve_call(func, args, kws), args, kws)


def _by_value_or_type(
    resolve: Callable[[Sequence[Type], Mapping[str, Type]], Resolved],
    args: Sequence[Type],
    kws: Mapping[str, Type],
) -> Resolved:
    """Resolves with constants as literal types, and where nobody takes these, as values that are
    not known."""
    try:
        return resolve(args, kws)
    except TypingError:
        plain = [types.unliteral(t) for t in args]
        named = {k: types.unliteral(t) for k, t in kws.items()}
        if plain == list(args) and named == dict(kws):
            raise
        try:
            return resolve(plain, named)
        except TypingError:
            pass
        raise


def _resolve_call(func: Any, args: Sequence[Type], kws: Mapping[str, Type]) -> Resolved:
    if isinstance(func, Intrinsic):
        return _resolve_intrinsic(func, args, kws)
    best: tuple[Rank, Resolved] | None = None
    reasons: list[_Reason] = []
    for entry in templates.calls.get(func):
        try:
            found = _ask(entry, args, kws)
        except TypingError as e:
            reasons.append(_Reason(entry, str(e), not isinstance(e, NotMineError)))
            continue
        if best is None or found[0] < best[0]:
            best = found
        if best[0] == _NONE:
            break
    if best is None:
        raise _failure(f"{_name(func)}({_shown(args, kws)})", reasons)
    return best[1]


def _resolve_intrinsic(func: Intrinsic, args: Sequence[Type], kws: Mapping[str, Type]) -> Resolved:
    where = f"{func.__name__} ({func.place})"
    try:
        inspect.signature(func.function).bind(_context, *args, **kws)
    except TypeError as e:
        raise TypingError(f"{where}: {e}") from None
    found = func.function(_context, *args, **kws)
    if found is None:
        raise TypingError(f"{where} is not for ({_shown(args, kws)}): it returned None")
    if (
        not isinstance(found, tuple)
        or len(found) != 2
        or not isinstance(found[0], Signature)
        or not callable(found[1])
    ):
        raise RegistrationError(f"{where} must return a Signature and a function, not {found!r}")
    return Resolved(None, signature=found[0], codegen=found[1])


def _by_nearness(entries: Sequence[Entry], t: Type) -> list[tuple[int, Entry]]:
    """The entries that apply to a type with how far they are: 0 the instance, then its classes."""
    order: list[Any] = [t, *type(t).__mro__]
    found = []
    for entry in entries:
        spec = entry.specs[0]
        if spec is AnyType:
            found.append((len(order), entry))
            continue
        for i, candidate in enumerate(order):
            if (i == 0) == (not isinstance(spec, type)) and spec == candidate:
                found.append((i, entry))
                break
    return found


def _attribute_candidates(t: Type, attr: str) -> list[Entry]:
    single = [(d, 0, e.number, e) for d, e in _by_nearness(templates.attributes.get(attr), t)]
    general = [(d, 1, e.number, e) for d, e in _by_nearness(templates.attributes.get(None), t)]
    return [e for *_, e in sorted(single + general, key=lambda x: x[:3])]


def resolve_attribute(t: Type, attr: str) -> ResolvedAttribute | None:
    """What the attribute of a value means, None where nothing is registered for it. Methods are
    resolved when they are called, by resolve_method."""
    refused: TypingError | None = None
    for entry in _attribute_candidates(t, attr):
        candidate = entry.value
        if isinstance(candidate, Overload):
            return ResolvedAttribute(entry, "method")
        if isinstance(candidate, Member):
            model = _struct(t)
            return ResolvedAttribute(
                entry, "typed", type=model.member_type(candidate.field), member=candidate.field
            )
        if isinstance(candidate, AttributeOverload):
            try:
                found = candidate.function(t)
            except TypingError as e:
                refused = refused or e
                continue
            if found is None:
                continue
            return _resolve_accessors(entry, candidate, found)
        assert issubclass(candidate, AttributeTemplate)
        try:
            typed = candidate(_context).resolve(t, attr)
        except TypingError as e:
            refused = refused or e
            continue
        if typed is not None:
            return ResolvedAttribute(entry, "typed", type=typed)
    if refused is not None:
        raise refused
    return None


def _struct(t: Type) -> Any:
    model = default_manager.lookup(t)
    if not isinstance(model, StructModel):
        raise RegistrationError(f"{t} is no struct: its model is {type(model).__name__}")
    return model


def _resolve_accessors(entry: Entry, candidate: AttributeOverload, found: Any) -> ResolvedAttribute:
    if not isinstance(found, tuple):
        getter = _implementation(entry, candidate, found)
        return ResolvedAttribute(entry, "getter", getter=getter)
    if len(found) != 3 or not any(found):
        raise RegistrationError(
            f"{entry} must return a getter or (getter, setter, deleter), not {found!r}"
        )
    for f, what, n in zip(found, ("getter", "setter", "deleter"), (1, 2, 1), strict=True):
        if f is None:
            continue
        if not callable(f):
            raise RegistrationError(f"{entry}: its {what} is no function, but {f!r}")
        if len(inspect.signature(f).parameters) != n:
            raise RegistrationError(f"{entry}: its {what} must have {n} parameters")
    return ResolvedAttribute(entry, "getter", getter=found[0], setter=found[1], deleter=found[2])


def resolve_method(t: Type, attr: str, args: Sequence[Type], kws: Mapping[str, Type]) -> Resolved:
    """What a call of a method means. TypingError lists the candidates."""
    return _by_value_or_type(lambda args, kws: _resolve_method(t, attr, args, kws), args, kws)


def _resolve_method(t: Type, attr: str, args: Sequence[Type], kws: Mapping[str, Type]) -> Resolved:
    reasons: list[_Reason] = []
    for entry in _attribute_candidates(t, attr):
        if not isinstance(entry.value, Overload):
            continue
        try:
            return Resolved(entry, _ask_overload(entry, entry.value, [t, *args], kws))
        except TypingError as e:
            reasons.append(_Reason(entry, str(e), not isinstance(e, NotMineError)))
    raise _failure(f"{t}.{attr}({_shown(args, kws)})", reasons)


def attribute_names(t: Type) -> list[str]:
    """The single attributes and methods that are registered for a type, for messages."""
    names = [k for k in templates.attributes.names() if isinstance(k, str)]
    return sorted(n for n in names if _by_nearness(templates.attributes.get(n), t))
