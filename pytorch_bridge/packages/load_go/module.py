"""Python functions around the functions of a loaded Go package."""

from __future__ import annotations

import atexit
import ctypes
import functools
import keyword
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytorch_bridge.native.extension import call_shared, end_other_threads
from pytorch_bridge.packages.load_go.errors import GoError, exception
from pytorch_bridge.packages.load_go.wire import ArgumentPlace, Reply, SliceWire, wire

_PANIC = (
    1  # what a reply starts with, see gotorch/internal/pyload/pyload.go; 0 where there are results
)

_forked: list[bool] = []  # not empty in a child process, where Go's threads are missing
os.register_at_fork(after_in_child=lambda: _forked.append(True))


_modules: list[GoModule] = []


@atexit.register
def _end() -> None:
    """Go must not touch tensors any more while the interpreter takes itself apart."""
    if not _forked:
        for module in _modules:
            module.collect()
        end_other_threads()


class _Unset:
    """The default of an option: what Go's zero value means."""

    def __repr__(self) -> str:
        return "..."


_UNSET = _Unset()


class GoModule(types.ModuleType):
    """The exported functions and constants of a Go package."""

    def __init__(self, description: dict, folder: Path, library: ctypes.CDLL) -> None:
        super().__init__(description["package"])
        self.__file__ = str(folder)
        self.__path__: list[str] = []
        self._description = description
        self._library = library
        call = ctypes.cast(library.gotorch_pyload_call, ctypes.c_void_p).value
        assert call is not None
        for i, function in enumerate(description["functions"]):
            setattr(self, function["name"], _Function(description, function, i, call).make())
        for constant in description["constants"]:
            setattr(self, constant["name"], _constant(constant))
        self.__all__ = [f["name"] for f in description["functions"]]
        self.__all__ += [c["name"] for c in description["constants"]]
        self.__doc__ = "\n".join([description["doc"].rstrip(), "", *self._table()]).strip()
        _modules.append(self)

    def collect(self) -> None:
        """Frees the tensors that Go has dropped, now rather than in a moment."""
        if not _forked:
            self._library.gotorch_pyload_collect()

    def _table(self) -> list[str]:
        lines = [f["signature"] for f in self._description["functions"]]
        if self._description["left_out"]:
            lines += ["", "Python cannot call:"]
            lines += [
                f"{left['signature']}: {left['reason']}" for left in self._description["left_out"]
            ]
        return lines

    def __repr__(self) -> str:
        head = f"<Go package {self._description['path']} from {self.__file__}>"
        return "\n".join([head, *(f"  {line}".rstrip() for line in self._table())])

    def __getattr__(self, name: str) -> Any:
        package = self.__name__
        for left in self.__dict__.get("_description", {}).get("left_out", []):
            if left["name"] == name:
                what = f"{left['signature']} of Go's package {package}"
                raise AttributeError(f"Python cannot call {what}: {left['reason']}")
        raise AttributeError(f"Go's package {package} has no exported function {name!r}")


def _constant(constant: dict) -> bool | int | float | str:
    text = constant["value"]
    convert: dict[str, Callable[[str], bool | int | float | str]] = {
        "bool": lambda text: text == "true",
        "int": int,
        "float": float,
        "str": str,
    }
    return convert[constant["kind"]](text)


class _Function:
    """One function of Go, and what makes the Python function that calls it."""

    def __init__(self, package: dict, described: dict, index: int, address: int) -> None:
        self.package = package["package"]
        self.described = described
        self.name: str = described["name"]
        self.index = index
        self.address = address
        params = described["params"]
        options = described["options"] or {"fields": []}
        names = _python_names([p["name"] for p in (*params, *options["fields"])])
        self.names, self.options = names[: len(params)], names[len(params) :]
        self.wires = [wire(p["type"]) for p in params]
        if described["variadic"]:
            last = params[-1]["type"]
            self.wires[-1] = SliceWire({"go": f"...{last['go']}", "elem": last})
        self.option_wires = [wire(field["type"]) for field in options["fields"]]
        self.has_options = described["options"] is not None
        self.results = [wire(r["type"]) for r in described["results"]]
        self.title = f"{self.package}.{self.name}"
        self.option_places = [ArgumentPlace(self.title, name) for name in self.options]

    def make(self) -> Callable[..., Any]:
        """A Python function with the names, types and comment of Go's.

        It is written as source, so that Python itself sorts out the arguments, and quickly.
        """
        params = list(self.names)
        if self.described["variadic"]:
            params[-1] = "*" + params[-1]
        elif self.options:
            params.append("*")
        params += [f"{name}=__unset" for name in self.options]

        scope: dict[str, Any] = {
            "__forked": _forked,
            "__refuse": self._refuse,
            "__unset": _UNSET,
            "__pack_options": self._pack_options,
            "__call": functools.partial(call_shared, self.address, self.index),
            "__error": self._error,
            "__Reply": Reply,
        }
        body = ["if __forked: __refuse()"]
        # All are checked before the first reference to a tensor is taken.
        for i, (each, name) in enumerate(zip(self.wires, self.names, strict=True)):
            scope |= {f"__check{i}": each.check, f"__pack{i}": each.pack}
            scope[f"__place{i}"] = ArgumentPlace(self.title, name)
            body.append(f"{name} = __check{i}({name}, __place{i})")
        if self.has_options:
            scope["__check_options"] = self._check_options
            body.append(f"__given = __check_options([{', '.join(self.options)}])")
        body.append("__parts = []")
        body += [f"__pack{i}({name}, __parts)" for i, name in enumerate(self.names)]
        if self.has_options:
            body.append("__pack_options(__given, __parts)")
        body.append('__reply = __call(b"".join(__parts))')
        body.append("if __reply[0]: raise __error(__reply)")
        unpacked = [f"__unpack{i}(__results)" for i in range(len(self.results))]
        scope |= {f"__unpack{i}": each.unpack for i, each in enumerate(self.results)}
        if unpacked:
            body += ["__results = __Reply(__reply)", f"return {', '.join(unpacked)}"]

        source = "\n    ".join([f"def {self.name}({', '.join(params)}):", *body])
        file, _, line = self.described["where"].rpartition(":")
        exec(compile(source, f"<{file}:{line}>", "exec"), scope)
        function: types.FunctionType = scope[self.name]
        function.__module__ = self.package
        function.__qualname__ = self.name
        function.__doc__ = self._doc()
        function.__annotations__ = self._annotations()
        return function

    def _refuse(self) -> None:
        raise RuntimeError(
            f"{self.title}(): Go does not survive a fork. Load the package "
            'in the child, or use multiprocessing.set_start_method("spawn").'
        )

    def _check_options(self, values: list[Any]) -> list[Any]:
        return [
            _UNSET if value is _UNSET else each.check(value, place)
            for each, place, value in zip(
                self.option_wires, self.option_places, values, strict=True
            )
        ]

    def _pack_options(self, given: list[Any], parts: list[bytes]) -> None:
        if all(value is _UNSET for value in given):
            parts.append(b"\0")
            return
        parts.append(b"\1")
        for each, value in zip(self.option_wires, given, strict=True):
            parts.append(b"\0" if value is _UNSET else b"\1")
            if value is not _UNSET:
                each.pack(value, parts)

    def _error(self, data: bytes) -> Exception:
        title = f"{self.title}()"
        reply = Reply(data)
        if data[0] == _PANIC:
            kind, text, op, stack = (reply.text() for _ in range(4))
            error = exception(kind, text)
            _note(error, f"Go panicked in {title}{f', in {op}' if op else ''}:\n{stack.rstrip()}")
            return error
        text, go_type, kind, inner = (reply.text() for _ in range(4))
        failed = GoError(text)
        failed.go_type = go_type
        if kind:
            failed.__cause__ = exception(kind, inner)
        _note(failed, f"{title} returned this as a {go_type}.")
        return failed

    def _doc(self) -> str:
        lines = [self.described["doc"].rstrip(), "", self.described["signature"]]
        options = self.described["options"]
        if options and options["fields"]:
            lines += ["", f"The fields of {options['go']} are keywords:"]
            for name, field in zip(self.options, options["fields"], strict=True):
                doc = " ".join(field.get("doc", "").split())
                lines.append(f"    {name}: {field['type']['go']}{f'  {doc}' if doc else ''}")
        if options and options["left_out"]:
            lines += ["", "but not, because of their types:"]
            lines += [f"    {o['name']}: {o['reason']}" for o in options["left_out"]]
        lines += ["", self.described["where"]]
        return "\n".join(lines).strip()

    def _annotations(self) -> dict[str, Any]:
        annotations = {
            name: each.annotation
            for name, each in zip(
                [*self.names, *self.options], [*self.wires, *self.option_wires], strict=True
            )
        }
        if self.described["variadic"]:
            annotations[self.names[-1]] = wire(self.described["params"][-1]["type"]).annotation
        kinds = [each.annotation for each in self.results]
        if len(kinds) > 1:
            annotations["return"] = tuple[tuple(kinds)]  # type: ignore[misc]
        else:
            annotations["return"] = kinds[0] if kinds else None
        return annotations


def _python_names(names: list[str]) -> list[str]:
    """The names, but for Python's keywords and for repetitions, which get an underscore."""
    taken: list[str] = []
    for name in names:
        while keyword.iskeyword(name) or name in taken or name.startswith("__"):
            name = name.lstrip("_") + "_"
        taken.append(name)
    return taken


def _note(error: Exception, text: str) -> None:
    if sys.version_info >= (3, 11):
        error.add_note(text)
