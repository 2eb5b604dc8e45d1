"""How the outputs of a graph become what the traced function returned.

Tuples, lists, dicts and other known containers are made again at each call. What else the function
made while it was traced, such as a set, an array of NumPy or a tensor that depends on no argument,
is copied at each call, so that no caller gets what another one may have changed. An object from
outside, and an argument, is returned itself.
"""

from __future__ import annotations

import copy
import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from .errors import TypingError
from .proxies import Sizes, elements, is_container, is_proxy, is_sequence, rebuilt

_ONE = (
    *(int, float, complex, str, bytes, bool, type(None), type(...), type, Enum),
    *(FunctionType, BuiltinFunctionType, MethodType, ModuleType),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
)
_LARGEST = 100_000  # objects within one that the function made


class _Slot:
    """Where an output goes."""


class _Argument:
    """Where an argument goes, by its place among the arguments."""

    def __init__(self, path: tuple[int, ...]) -> None:
        self.path = path

    def of(self, args: Sequence[Any]) -> Any:
        found: Any = args
        for i in self.path:
            found = found[i]
        return getattr(found, "value", found) if type(found) is Constant else found


class _Made:
    """An object that the function made, which is kept for copies alone."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Constant:
    """An argument that is a constant: a default that was not given, or one that jit was told of."""

    def __init__(self, value: Any) -> None:
        self.value = value


_SLOT = _Slot()


class Results:
    """Makes what a function returned of the graph's outputs. `args` are those that the function was
    traced with, `made` says whether a tensor was made while it was. Before `settle`, nothing else
    may have what the function returned."""

    def __init__(
        self, result: Any, args: Sequence[Any], made: Callable[[torch.Tensor], bool]
    ) -> None:
        self._is_new = made
        self._given = dict(_places(args, ()))
        self._made: dict[int, _Made] = {}
        self._pattern = self._emptied(result)
        self._outside: list[Any] = []
        del self._given

    def settle(self, name: str) -> Callable[..., Any] | None:
        """Tells what the function made from what was there. Returns f(outputs, args), or None where
        the result is the only output itself. TypingError for what can be made once only."""
        if self._made:
            self._settle(name)
        pattern = self._pattern
        if pattern is _SLOT:
            return None
        cls = type(pattern)
        if is_sequence(pattern) and cls is not Sizes and all(v is _SLOT for v in pattern):
            return lambda found, args: cls(found)
        return self._filled

    def _emptied(self, value: Any) -> Any:
        if is_proxy(value):
            return _SLOT
        if isinstance(value, _ONE):
            return value
        path = self._given.get(id(value))
        if path is not None:
            return _Argument(path)
        inside = elements(value)
        if inside is not None:
            return rebuilt(value, [self._emptied(v) for v in inside])
        return self._made.setdefault(id(value), _Made(value))

    def _settle(self, name: str) -> None:
        if self._shared():  # perhaps by what nobody has any more
            gc.collect()
        shared = self._shared()
        self._outside = list(shared.values())
        memo = {id(v): v for v in self._outside}
        for m in self._made.values():
            if id(m.value) in shared:
                continue
            try:
                copy.deepcopy(m.value, dict(memo))
            except MemoryError:
                raise
            except Exception as e:
                cls = type(m.value)
                raise TypingError(
                    f"{name} returns a {cls.__module__}.{cls.__qualname__} that it made while it "
                    f"was traced, and that cannot be made again at each call ({e}): return what it "
                    "consists of, in a tuple, a list or a dict"
                ) from None

    def _shared(self) -> dict[int, Any]:
        """The objects in what the function returned that something else refers to as well."""
        kept: dict[int, Any] = {}
        inner: Counter[int] = Counter()
        probe = _Made([])
        pending = [m.value for m in (probe, *self._made.values())]
        kept.update((id(v), v) for v in pending)
        roots = set(kept)
        while pending and len(kept) < _LARGEST:
            for found in gc.get_referents(pending.pop()):
                if isinstance(found, _ONE):
                    continue
                inner[id(found)] += 1
                if id(found) not in kept:
                    kept[id(found)] = found
                    pending.append(found)
        pending.clear()
        found = None
        # A root has one reference more: that of its _Made.
        usual = sys.getrefcount(kept[id(probe.value)])
        shared: dict[int, Any] = {}
        for i in kept:
            if isinstance(kept[i], torch.Tensor):  # which C++ refers to as well
                other = not self._is_new(kept[i])
            else:
                other = sys.getrefcount(kept[i]) - inner[i] > (usual if i in roots else usual - 1)
            if other:
                shared[i] = kept[i]
        return shared

    def _filled(self, outputs: Sequence[Any], args: Sequence[Any]) -> Any:
        found, memo = iter(outputs), {id(v): v for v in self._outside}

        def put(value: Any) -> Any:
            cls = type(value)
            if cls is _Slot:
                return next(found)
            if cls is _Argument:
                return value.of(args)
            if cls is _Made:
                return copy.deepcopy(value.value, memo)
            inside = elements(value)
            return value if inside is None else rebuilt(value, [put(v) for v in inside])

        return put(self._pattern)


def _places(args: Sequence[Any], path: tuple[int, ...]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Where the objects among arguments are, by id."""
    for i, a in enumerate(args):
        value = a.value if type(a) is Constant else a
        if is_container(value) and type(a) is not Constant:
            yield from _places(value, (*path, i))
        elif not isinstance(value, _ONE):
            yield id(value), (*path, i)
