"""What a traced function reads from outside: global names, enclosing variables, objects.

A traced function runs once for its types, and what it reads beside its arguments is part of the
graph from then on. So all that it reads is noted here, as it was before the function ran, and
looked at again before each call: where anything is different, the function is traced again. What
gives another value at each call, such as the clock, is refused.

Tensors from outside are inputs of the graph, which each call passes along, so that a weight that
an optimiser steps is the new one, and gets its gradient.
"""

from __future__ import annotations

import argparse
import array
import collections
import contextvars
import ctypes
import datetime
import dis
import functools
import inspect
import os
import pathlib
import queue
import random
import secrets
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from enum import Enum
from hashlib import blake2b
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .. import sameness
from .errors import TypingError
from .proxies import is_proxy

MISSING = object()
_LARGEST = 200_000  # parts of an object that is compared at each call

# What is compared by identity: it has no state that a traced function reads without our seeing it.
_BY_IDENTITY = (
    type,
    FunctionType,
    BuiltinFunctionType,
    ModuleType,
    torch.Tensor,
    torch.Generator,
    Enum,
    torch.dtype,
)


_EMPTY: dict[Any, Any] = {}
_IN_ORDER: tuple[Any, ...] = (
    *(list, tuple, collections.deque),
    *(type(_EMPTY.keys()), type(_EMPTY.values()), type(_EMPTY.items())),
)
_C_DATA = (ctypes._SimpleCData, ctypes.Array, ctypes.Structure, ctypes.Union)


class _Inside(Exception):
    """The object was made by the traced function."""


class _Parts:
    """Makes the key of one object with all that can be reached from it."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}
        self.kept: list[Any] = []

    def of(self, value: Any) -> Hashable:
        if is_proxy(value):
            raise _Inside
        cls = type(value)
        if value is None or cls in (int, bool, str, bytes):
            return cls, value
        if isinstance(value, _BY_IDENTITY) and not (isinstance(value, type) and _own(value)):
            return sameness.Itself(value)
        known = self.seen.get(id(value))
        if known is not None:
            return known
        self.seen[id(value)] = len(self.seen)
        self.kept.append(value)
        if len(self.seen) > _LARGEST:
            raise TypingError(
                f"a traced function reads an object of class {cls.__qualname__} with more than "
                f"{_LARGEST} parts, too many to compare at each call: give it what it needs of it"
            )
        if isinstance(value, type):
            return sameness.Itself(value), tuple(map(self.of, _data(value)))
        if isinstance(value, MethodType):
            return cls, self.of(value.__self__), value.__func__
        if isinstance(value, functools.partial):
            inside = (value.func, value.args, value.keywords)
            return cls, tuple(map(self.of, inside)), self._attributes(value)
        own = self._contents(value)
        if own is None:
            parts = sameness.parts(value)
            own = None if parts is None else tuple(map(self.of, parts))
        attributes = () if _hidden(cls) else self._attributes(value)
        if own is None:
            # Two objects of a class that says when they are equal are as good as one another where
            # their attributes are.
            eq: Any = cls.__eq__
            by_value = eq is not object.__eq__ and attributes and _plain(cls)
            own = None if by_value else sameness.Itself(value)
        return cls, own, attributes

    def _contents(self, value: Any) -> Hashable:
        if isinstance(value, (set, frozenset)):
            return frozenset(map(self.of, value))
        if isinstance(value, dict):
            return tuple([(self.of(k), self.of(v)) for k, v in dict.items(value)])
        if isinstance(value, _IN_ORDER):
            return tuple([self.of(v) for v in iter(value)])
        if isinstance(value, MappingProxyType):
            return tuple([(self.of(k), self.of(v)) for k, v in value.items()])
        if isinstance(value, (bytearray, memoryview, array.array, *_C_DATA)):
            return bytes(value)
        if isinstance(value, weakref.ReferenceType):
            return sameness.Itself(value), self.of(value())
        if isinstance(value, contextvars.ContextVar):
            return sameness.Itself(value), self.of(value.get(None))
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, numpy.ndarray) and not value.dtype.hasobject:
            content = numpy.ascontiguousarray(value).tobytes()
            return value.dtype.str, value.shape, blake2b(content).digest()
        return None

    def _attributes(self, value: Any) -> tuple[Any, ...]:
        names = sameness._attributes(value)
        # The state itself, without what a class computes when it is asked.
        found = getattr(value, "__dict__", {})
        return (
            *[(n, self.of(found[n] if n in found else getattr(value, n))) for n in sorted(names)],
            *map(self.of, _data(type(value))),
        )


def _data(cls: type) -> tuple[Any, ...]:
    """The values that class statements give the objects of a class."""
    return tuple(
        v
        for c in cls.__mro__
        if _own(c)
        for name, v in list(vars(c).items())
        if not name.startswith("__")
        and not hasattr(type(v), "__get__")
        and not isinstance(v, _BY_IDENTITY)
    )


def _hidden(cls: type) -> bool:
    """Whether an object of Python's own library has an inside that is none of ours: a logger, a
    lock."""
    top = (cls.__module__ or "").partition(".")[0]
    if top not in sys.stdlib_module_names or top == "__main__" or cls in _OPEN:
        return False
    found: Any = sys.modules.get(cls.__module__)
    for part in cls.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is cls


_OPEN = frozenset(
    [
        SimpleNamespace,
        argparse.Namespace,
        type(os.environ),
        collections.UserDict,
        collections.UserList,
        collections.ChainMap,
        threading.local,
    ]
)


def _plain(cls: type) -> bool:
    """Whether all the state of an object is in its attributes."""
    return all(c.__flags__ & sameness._HEAP_TYPE for c in cls.__mro__ if c is not object)


_LIBRARIES = frozenset(["torch", "numpy", "pytorch_bridge", *sys.stdlib_module_names])


def library(thing: Any) -> bool:
    """Whether a class, a function or a module belongs to Python, PyTorch, NumPy or this package."""
    name = thing.__name__ if isinstance(thing, ModuleType) else getattr(thing, "__module__", "")
    return (name or "").partition(".")[0] in _LIBRARIES - {"__main__"}


def _own(cls: type) -> bool:
    return cls is not object and bool(cls.__flags__ & sameness._HEAP_TYPE) and not library(cls)


def state(value: Any) -> Hashable:
    """A key of an object with all that it consists of: attributes, elements, and theirs. Two states
    are equal only if a function reads the same in both, and gets the same tensors."""
    return _Parts().of(value)


# Names -------------------------------------------------------------------------------------------

# Methods of Python's containers that say nothing of what is in them.
_ONLY_WRITE = frozenset(["append", "appendleft", "add", "extend", "insert"])
_LOADS = ("LOAD_ATTR", "LOAD_METHOD")

_Chain = tuple[str, ...]
_reads: WeakKeyDictionary[CodeType, tuple[set[_Chain], set[_Chain]]] = WeakKeyDictionary()


def _chains(code: CodeType) -> tuple[set[_Chain], set[_Chain]]:
    """What code reads of global names and of enclosing variables: each name with the attributes
    that are read of it, `np.random.rand` as three names."""
    found = _reads.get(code)
    if found is not None:
        return found
    names: set[_Chain] = set()
    cells: set[_Chain] = set()
    instructions = list(dis.get_instructions(code))
    for i, made in enumerate(instructions):
        is_global = made.opname in ("LOAD_GLOBAL", "LOAD_NAME")
        if not is_global and made.opname not in ("LOAD_DEREF", "LOAD_CLASSDEREF"):
            continue
        chain = [made.argval]
        for after in instructions[i + 1 :]:
            if after.opname not in _LOADS:
                break
            chain.append(after.argval)
        (names if is_global else cells).add(tuple(chain))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inside, free = _chains(constant)
            names |= inside
            cells |= free
    _reads[code] = names, cells
    return names, cells


class Outside:
    """What one tracing has read from outside, and how it was."""

    def __init__(self) -> None:
        self._names: dict[tuple[int, str], tuple[Any, str, Any]] = {}
        self._cells: dict[int, tuple[CellType, Any]] = {}
        self._states: dict[tuple[int, Any], tuple[Callable[[], Any], Hashable]] = {}
        self._asked: dict[Any, tuple[Callable[..., Any], tuple[Any, ...], Any]] = {}
        self._tensors: dict[int, tuple[torch.Tensor, int]] = {}
        self._given: list[tuple[torch.Tensor, tuple[Any, ...]]] = []
        self._attributes: list[tuple[Callable[[], Any], str, Hashable]] = []
        self._functions: set[Any] = set()
        self.dtype = torch.get_default_dtype()

    def holds(self) -> bool:
        """Whether all is as it was."""
        for names, name, value in self._names.values():
            if names.get(name, MISSING) is not value:
                return False
        for cell, value in self._cells.values():
            if _content(cell) is not value:
                return False
        if torch.get_default_dtype() is not self.dtype:
            return False
        for t, version in self._tensors.values():
            if t._version != version:
                return False
        for t, kind in self._given:
            if _kind(t) != kind:
                return False
        for function, args, result in self._asked.values():
            if function(*args) != result:
                return False
        return all(state(read()) == known for read, known in self._states.values()) and all(
            _still(*attribute) for attribute in self._attributes
        )

    def attribute(self, owner: Any, name: str, value: Any) -> None:
        """Notes an attribute that is in no object's state: of a module, or one that the object's
        class computes."""
        if not _computed(owner, name):
            return
        read: Callable[[], Any]
        try:
            read = weakref.ref(owner)  # what the function made may go
        except TypeError:
            read = functools.partial(_itself, owner)
        with suppress(_Inside):
            self._attributes.append((read, name, state(value)))

    def settle(self) -> None:
        """Forgets attributes of what the function made, and those that are another object each
        time."""
        self._attributes = [a for a in self._attributes if a[0]() is not None and _still(*a)]

    def function(self, function: FunctionType) -> None:
        """Notes what a function reads, before it runs."""
        code = function.__code__
        seen = (code, id(function.__globals__), tuple(map(id, function.__closure__ or ())))
        if seen in self._functions:
            return
        self._functions.add(seen)
        names, cells = _chains(code)
        for chain in names:
            self._global(function.__globals__, chain)
        free = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        for chain in cells:
            if chain[0] in free:
                self._cell(free[chain[0]], chain)
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self.object(default)

    def _state(self, key: Any, read: Callable[[], Any], value: Any) -> None:
        if key not in self._states:
            with suppress(_Inside):
                self._states[key] = read, state(value)

    def _global(self, names: dict[str, Any], chain: _Chain) -> None:
        name, *rest = chain
        value = names.get(name, MISSING)
        if self._value(("global", id(names), name), value, rest, lambda: names.get(name)):
            self._names.setdefault((id(names), name), (names, name, value))

    def _cell(self, cell: CellType, chain: _Chain) -> None:
        value = _content(cell)
        if self._value(("cell", id(cell)), value, chain[1:], lambda: _content(cell)):
            self._cells.setdefault(id(cell), (cell, value))

    def _value(self, key: Any, value: Any, rest: Any, read: Callable[[], Any]) -> bool:
        """Notes what a name stands for, and what is read of it; returns whether identity says that
        it is the same."""
        if value is MISSING or is_proxy(value):
            return value is MISSING
        if isinstance(value, (ModuleType, type)) and rest:
            owner = value
            name, *further = rest
            found = getattr(owner, name, MISSING)
            if not (library(owner) and isinstance(found, _BY_IDENTITY[:4])):
                inner = (*key, name)
                if self._value(inner, found, further, lambda: getattr(owner, name, None)):
                    self._state((0, inner), lambda: getattr(owner, name, None), found)
            elif further and isinstance(found, (ModuleType, type)):
                self._value((*key, name), found, further, lambda: getattr(owner, name, None))
            return True
        if isinstance(value, type) and _own(value):
            self._state((2, value), lambda: _data(value), _data(value))
        if isinstance(value, _BY_IDENTITY):
            return True
        if isinstance(value, Iterator) and type(value).__module__ in ("builtins", "itertools"):
            raise TypingError(
                f"{key[-1] if isinstance(key[-1], str) else rest} is an iterator from outside "
                f"({type(value).__qualname__}), which gives another value at each call, and a "
                "traced function runs once for its types: give it the values as arguments"
            )
        if rest and rest[0] in _ONLY_WRITE and isinstance(value, (list, set, collections.deque)):
            return True
        self._state((0, key), read, value)
        return False

    def object(self, value: Any) -> None:
        """Notes an object that is read in whatever way."""
        if value is None or isinstance(value, (int, str, float, *_BY_IDENTITY)):
            return
        self._state((1, id(value)), lambda: value, value)

    def asked(self, function: Callable[..., Any], args: tuple[Any, ...], result: Any) -> None:
        """Notes the answer of a function about the process's state."""
        self._asked.setdefault((function, args), (function, args, result))

    def tensor(self, t: torch.Tensor) -> None:
        """Notes a tensor that is an input: its elements may change, its type may not."""
        self._given.append((t, _kind(t)))

    def elements(self, t: torch.Tensor) -> None:
        """Notes that the function has read the elements of a tensor while it was traced."""
        self._tensors.setdefault(id(t), (t, t._version))


def _itself(value: Any) -> Any:
    return value


def _computed(owner: Any, name: str) -> bool:
    """Whether an attribute is not a part of its owner's state."""
    if name.startswith("__"):
        return False
    if isinstance(owner, ModuleType):
        return not library(owner)
    cls = type(owner)
    if isinstance(owner, (tuple, Enum)) or not _own(cls) or name in getattr(owner, "__dict__", ()):
        return False
    static = inspect.getattr_static(cls, name, MISSING)
    if static is MISSING:
        return not isinstance(owner, torch.nn.Module)
    plain = (FunctionType, classmethod, staticmethod, MemberDescriptorType)
    return hasattr(type(static), "__get__") and not isinstance(static, plain)


def _still(read: Callable[[], Any], name: str, known: Hashable) -> bool:
    """Whether an attribute is as it was, or its owner is gone."""
    owner = read()
    try:
        return owner is None or state(getattr(owner, name, MISSING)) == known
    except Exception:
        return False


def _kind(t: torch.Tensor) -> tuple[Any, ...]:
    contiguous = t.layout is torch.strided and t.is_contiguous()
    return t.dtype, t.shape, t.device, contiguous, t.requires_grad


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return MISSING


# What is another thing at each call --------------------------------------------------------------


def _table(*owners: tuple[Any, tuple[str, ...]]) -> frozenset[Any]:
    return frozenset(getattr(o, n) for o, names in owners for n in names if hasattr(o, n))


_CHANGING = _table(
    (
        time,
        (
            "time",
            "time_ns",
            "perf_counter",
            "perf_counter_ns",
            "monotonic",
            "monotonic_ns",
            "process_time",
            "process_time_ns",
            "thread_time",
            "thread_time_ns",
            "localtime",
            "gmtime",
            "ctime",
            "strftime",
        ),
    ),
    (datetime.datetime, ("now", "utcnow", "today")),
    (datetime.date, ("today",)),
    (os, ("urandom", "getrandom", "times")),
    (secrets, ("token_bytes", "token_hex", "token_urlsafe", "randbelow", "randbits", "choice")),
    (uuid, ("uuid1", "uuid4")),
    (sys.modules["builtins"], ("input", "open")),
    (pathlib.Path, ("open", "read_text", "read_bytes", "exists", "stat", "iterdir", "glob")),
)

# Answers about the process that are noted, and asked for again at each call.
ASKED = frozenset(
    [
        torch.is_inference_mode_enabled,
        torch.get_default_dtype,
        torch.get_default_device,
        torch.get_num_threads,
        torch.are_deterministic_algorithms_enabled,
        torch.is_autocast_enabled,
        torch.cuda.is_available,
        os.getenv,
        os.getcwd,
        os.getpid,
        os.path.exists,
    ]
)


def check_steady(func: Any) -> None:
    """TypingError for a function that gives another value at each call."""
    generators: tuple[Any, ...] = (random.Random, queue.Queue, queue.SimpleQueue)
    owner = getattr(func, "__self__", None)
    func = func.__func__ if isinstance(func, MethodType) and library(func) else func
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        generators += (numpy.random.RandomState, numpy.random.Generator)
    changing = isinstance(owner, generators)
    if not changing:
        try:
            changing = func in _CHANGING
        except TypeError:  # no hash
            return
    if changing:
        name = getattr(func, "__qualname__", None) or repr(func)
        raise TypingError(
            f"{name} gives another value at each call, and a traced function runs once for its "
            "types: give it the value as an argument, or draw numbers with torch.rand"
        )


def generators() -> tuple[Hashable, ...]:
    """The states of Python's, NumPy's and PyTorch's random numbers."""
    numpy = sys.modules.get("numpy")
    found: list[Hashable] = [random.getstate(), bytes(torch.get_rng_state().numpy())]
    if numpy is not None:
        kind, keys, *rest = numpy.random.get_state()
        found.append((kind, keys.tobytes(), *rest))
    return tuple(found)


# What PyTorch computes while a function is traced ------------------------------------------------


class Eager(TorchDispatchMode):
    """Sees the operators that run while a function is traced, on tensors that are known: what they
    write must have been made in the tracing, and what they read from outside is noted."""

    def __init__(self, outside: Outside) -> None:
        super().__init__()
        self.outside = outside
        self.passing = 0  # the package's own work
        self._storages: set[int] = set()
        self._kept: list[torch.Tensor] = []

    def made(self, t: torch.Tensor) -> bool:
        """Whether the memory of a tensor was made in this tracing."""
        return _storage(t) in self._storages

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.passing:
            return func(*args, **kwargs)
        given: list[torch.Tensor] = []
        for i, argument in enumerate(func._schema.arguments):
            value = args[i] if i < len(args) else kwargs.get(argument.name)
            written = argument.alias_info is not None and argument.alias_info.is_write
            for t in _tensors(value):
                if self.made(t):
                    continue
                if written:
                    raise TypingError(
                        f"{func} writes into a tensor from outside, which would happen once, while "
                        "the function is traced: a traced function computes new ones, give it the "
                        "tensor and return the new one"
                    )
                self.outside.elements(t)
                given.append(t)
        found = func(*args, **kwargs)
        known = {_storage(t) for t in given}
        for t in _tensors(found):
            storage = _storage(t)
            if storage not in known:
                self._storages.add(storage)
                self._kept.append(t)
        return found


def _storage(t: torch.Tensor) -> int:
    try:
        return t.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError):  # of a layout without a storage
        return id(t)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from _tensors(v)
