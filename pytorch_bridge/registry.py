"""Where registrations are kept: of types and kernels, rewrites, linkers, whatever is extended.

A registration remembers the file and line of what was registered, so that every message can say
where to look. Registering the same thing twice is an error that names both places.

An extension is registered as a whole or not at all: what a module registers while it is being
imported is withdrawn when its import fails. `transaction` does the same for any block of code,
and `temporary` takes everything back in any case, which is what tests and notebooks want:

    with temporary():
        @overload(len)
        def ...

A package that is installed may name its extension in the entry-point group
`pytorch_bridge.extensions`; `load_extensions` imports those before the first graph is compiled.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from types import CodeType, FrameType, FunctionType, MemberDescriptorType
from typing import Any

from .errors import DuplicateError, ExtensionWarning, RegistrationError
from .sameness import same

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
GROUP = "pytorch_bridge.extensions"


@dataclass(frozen=True)
class Place:
    """A line of a file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def _frames() -> Iterator[FrameType]:
    """The frames outside this package's functions, the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_HERE) or code.co_name == "<module>":
            yield frame
        frame = frame.f_back


def caller() -> Place:
    """The innermost line that is running outside this package's functions."""
    for frame in _frames():
        return Place(frame.f_code.co_filename, frame.f_lineno)
    return Place("<unknown>", 0)


def place_of(thing: Any) -> Place:
    """Where a function is defined. For anything else, a class for instance, the line that is
    running now: that of its decorator."""
    if callable(thing) and not isinstance(thing, type):
        thing = inspect.unwrap(thing)
        code = getattr(getattr(thing, "__func__", thing), "__code__", None)
        if isinstance(code, CodeType):
            return Place(code.co_filename, code.co_firstlineno)
    return caller()


def _captured(function: FunctionType) -> list[Any]:
    """What a function's code sees beside its arguments: enclosing variables and defaults."""
    found: list[Any] = [function.__defaults__, function.__kwdefaults__]
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # not assigned yet
            found.append(cell)
    return found


_OF_CLASSES = frozenset(["__dict__", "__weakref__", "_abc_impl"])  # made for each anew


def _same(a: Any, b: Any, within: tuple[Any, Any] | None = None) -> bool:
    """Whether two things are one, perhaps after its file was executed again: then functions have
    equal code that sees the same, and classes have such members. `within` are the classes that
    they are of, which stand for each other."""
    if same(a, b) or (within is not None and a is within[0] and b is within[1]):
        return True
    if isinstance(a, FunctionType) and isinstance(b, FunctionType):
        x, y = a.__code__, b.__code__
        return (
            x == y
            and x.co_filename == y.co_filename
            and _all_same(_captured(a), _captured(b), within)
        )
    if isinstance(a, type) and isinstance(b, type):
        if within is not None or (a.__module__, a.__qualname__) != (b.__module__, b.__qualname__):
            return False
        mine, theirs = ({n: v for n, v in vars(c).items() if n not in _OF_CLASSES} for c in (a, b))
        return (
            _all_same(a.__bases__, b.__bases__, None)
            and mine.keys() == theirs.keys()
            and _all_same(mine.values(), [theirs[n] for n in mine], (a, b))
        )
    if type(a) is not type(b):
        return False
    if isinstance(a, (staticmethod, classmethod)):
        return _same(a.__func__, b.__func__, within)
    if isinstance(a, property):
        return _all_same((a.fget, a.fset, a.fdel), (b.fget, b.fset, b.fdel), within)
    return isinstance(a, MemberDescriptorType)  # of __slots__, of the same name


def _all_same(a: Iterable[Any], b: Iterable[Any], within: tuple[Any, Any] | None) -> bool:
    a, b = list(a), list(b)
    return len(a) == len(b) and all(_same(x, y, within) for x, y in zip(a, b, strict=True))


@dataclass(eq=False)
class Entry:
    """One registration."""

    table: Table
    key: Any
    value: Any
    thing: Any  # what the decorator stands above
    place: Place
    specs: tuple[Any, ...]  # the types of arguments that it is for, where it has any
    number: int  # counts registrations: an earlier one has a lower number
    spec: ModuleSpec | None  # of the module that is being imported, if one is
    thread: int = field(default_factory=threading.get_ident)

    @property
    def own(self) -> bool:
        """Whether this package registered it."""
        return self.place.file.startswith(_HERE)

    def __str__(self) -> str:
        name = getattr(self.thing, "__qualname__", None) or repr(self.thing)
        return f"{name} ({self.place})"


class Table:
    """The registrations of one kind, by key, each key's in the order of registration.

    `what` names a registration in messages ("boxer"); a key of one that is `unique` has one entry
    for the same types of arguments. What is compiled by `jit` depends on those that are `resolved`:
    a change to one of them is a new `version`.
    """

    def __init__(self, what: str, unique: bool, resolved: bool = True) -> None:
        self.what, self.unique, self.resolved = what, unique, resolved
        self._entries: dict[Hashable, list[Entry]] = {}

    def add(
        self,
        key: Any,
        value: Any,
        thing: Any = None,
        subject: str = "",
        specs: tuple[Any, ...] = (),
    ) -> Entry:
        """Registers value under key and specs; `thing` is what was given for it, where that is
        something else. DuplicateError where there is one already; `subject` says there what they
        are."""
        thing = value if thing is None else thing
        with _lock:
            settle()
            place = place_of(thing)
            for entry in self._entries.get(key, ()):
                if entry.specs == specs and (self.unique or _same(entry.thing, thing)):
                    raise DuplicateError(
                        f"the {self.what} {f'for {subject}' if subject else repr(key)} is "
                        f"registered twice: at {entry.place} and at {place}"
                    )
            spec = _module_being_imported()
            entry = Entry(self, key, value, thing, place, specs, len(_journal), spec)
            self._entries.setdefault(key, []).append(entry)
            _journal.append(entry)
            if entry.spec is not None:
                _pending.append(entry)
            _changed(self)
            return entry

    def get(self, key: Any) -> tuple[Entry, ...]:
        """The registrations for a key, the earliest first."""
        settle()
        return tuple(self._entries.get(key, ()))

    def one(self, key: Any) -> Any:
        """The value for a key of a table that is unique; None where there is none."""
        found = self.get(key)
        return found[0].value if found else None

    def entries(self) -> Iterator[Entry]:
        """All registrations, the earliest first."""
        settle()
        found = [e for entries in self._entries.values() for e in entries]
        return iter(sorted(found, key=lambda e: e.number))

    def names(self) -> list[Hashable]:
        """The keys for which something is registered."""
        settle()
        return list(self._entries)

    def _remove(self, entry: Entry) -> None:
        entries = self._entries.get(entry.key, [])
        if entry in entries:
            entries.remove(entry)
            if not entries:
                del self._entries[entry.key]


_lock = threading.RLock()
_journal: list[Entry | None] = []  # what was withdrawn leaves None, so that numbers stay
_pending: list[Entry] = []  # made by modules whose import had not ended yet
changes = 0  # counts them; `version` settles first


def version() -> int:
    """A number that changes with the registry: what was resolved under another one may differ."""
    settle()
    return changes


def _changed(table: Table) -> None:
    global changes
    changes += table.resolved


def _withdraw(entry: Entry) -> None:
    entry.table._remove(entry)
    if _journal[entry.number] is entry:
        _journal[entry.number] = None
        _changed(entry.table)


def _module_being_imported() -> ModuleSpec | None:
    for frame in _frames():
        if frame.f_code.co_name == "<module>":
            spec = frame.f_globals.get("__spec__")
            if getattr(spec, "_initializing", False):
                return spec
    return None


def settle() -> None:
    """Withdraws what modules registered whose import has failed meanwhile."""
    if not _pending:
        return
    with _lock:
        waiting = []
        for entry in _pending:
            spec = entry.spec
            assert spec is not None
            if getattr(spec, "_initializing", False):
                waiting.append(entry)
                continue
            # A failed import leaves no module, or that of a later attempt with a spec of its own.
            module = sys.modules.get(spec.name)
            other = getattr(module, "__spec__", None)
            if module is None or (isinstance(other, ModuleSpec) and other is not spec):
                _withdraw(entry)
        _pending[:] = waiting


@contextmanager
def _undoing(when: Callable[[bool], bool]) -> Iterator[None]:
    start, thread, failed = len(_journal), threading.get_ident(), True
    try:
        yield
        failed = False
    finally:
        if when(failed):
            with _lock:
                for entry in _journal[start:][::-1]:
                    if entry is not None and entry.thread == thread and not _own(entry):
                        _withdraw(entry)


def _own(entry: Entry) -> bool:
    """Whether a module of this package made it when it was imported, as some are on first use."""
    return entry.spec is not None and entry.spec.name.startswith(__name__.rpartition(".")[0] + ".")


def check(what: str, name: object, thing: object) -> None:
    """RegistrationError unless what is registered under a name is callable, and the name a
    string."""
    if not isinstance(name, str) or not name:
        raise RegistrationError(f"the name of a {what} is a string, not {name!r}")
    if not callable(thing):
        raise RegistrationError(f"the {what} {name!r} must be callable, not {thing!r}")


def transaction() -> AbstractContextManager[None]:
    """A context: if it is left by an exception, what was registered in it is withdrawn.

    >>> with pb.temporary():
    ...     try:
    ...         with pb.transaction():
    ...             pb.register_linker("half", print)
    ...             raise ValueError
    ...     except ValueError:
    ...         pb.register_linker("half", print)  # it is free again
    """
    return _undoing(lambda failed: failed)


def temporary() -> AbstractContextManager[None]:
    """A context: what is registered in it is withdrawn when it is left, however that comes. What
    was compiled meanwhile stays as it is.

        >>> with pb.temporary():
        ...     pb.register_linker("mine", print)
        >>> pb.function([], [], mode="mine")
        Traceback (most recent call last):
            ...
        pytorch_bridge.errors.BridgeValueError: there is no mode 'mine': modes are c, c_only, ...
    """
    return _undoing(lambda failed: True)


_loaded = False
_loading = False


def load_extensions() -> None:
    """Imports the modules that installed packages name in their entry points `pytorch_bridge.
    extensions`, and calls those that are functions; once. One that fails is as if it were not
    there, with an ExtensionWarning that says why. Other threads wait for it."""
    global _loaded, _loading
    if _loaded:
        return
    with _lock:
        if _loaded or _loading:  # what is imported may compile something
            return
        _loading = True
        try:
            _load()
            _loaded = True
        finally:
            _loading = False


def _load() -> None:
    from importlib.metadata import entry_points

    for point in sorted(entry_points(group=GROUP), key=lambda p: p.name):
        try:
            with transaction():
                found = point.load()
                if callable(found):
                    found()
        except Exception as e:
            package = f" of {point.dist.name}" if point.dist is not None else ""
            warnings.warn(
                f"the extension {point.name!r}{package} ({point.value}) was not loaded: "
                f"{type(e).__name__}: {e}",
                ExtensionWarning,
                stacklevel=4,
            )
