"""Builds and loads the Go package as a shared library, and calls wrappers in it."""

from __future__ import annotations

import ctypes
import json
import os
import struct
from array import array
from pathlib import Path
from typing import Any

import torch

from pytorch_bridge.native import toolchain
from pytorch_bridge.native.artifacts import locked
from pytorch_bridge.native.extension import from_handle, to_handle
from pytorch_bridge.testing.gotests import ensure_library, run_go

from .operators import Operator, operators

SOURCES = "./tests/conformance/harness"

FUNCTION, METHOD = 0, 1
BACKWARD, GRAD, SEED = -1, -2, -3

# The tags of values; see values.go.
(
    ABSENT, NONE, TENSOR, SAME, BOOL, INT, UINT, FLOAT, COMPLEX, STRING, LIST, GENERATOR, STORAGE,
    STREAM, BORROWED, MODULE,
) = range(16)  # fmt: skip
ENDED_WELL, ENDED_IN_ERROR, ENDED_BADLY, REQUEST_BROKEN = range(4)

ROOM = 1 << 18


class Absent:
    """Stands for an argument that the caller leaves out."""

    def __repr__(self) -> str:
        return "left out"


absent = Absent()


class WrapperError(Exception):
    """A wrapper panicked with *gotorch.Error."""

    def __init__(self, op: str, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.op, self.kind, self.message = op, kind, message


class GoCrash(Exception):
    """A wrapper panicked with anything else."""


class Broken(Exception):
    """The harness does not know how to make this call. The fault is the harness's."""


def build(overlay: dict[Path, Path] | None = None, name: str = "libharness.so") -> Path:
    """Builds the shared library, with other texts for some files, and returns its path."""
    ensure_library()
    folder = toolchain.build_dir() / "conformance"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / name
    command = ["build", "-buildmode=c-shared", "-buildvcs=false", "-ldflags=-s -w"]
    if overlay:
        listed = folder / f"{name}.overlay.json"
        listed.write_text(json.dumps({"Replace": {str(k): str(v) for k, v in overlay.items()}}))
        command += ["-overlay", str(listed)]
    go_env = toolchain.go_environment(toolchain.find_go())
    # For a library Go compiles everything anew, a minute of processor time: once, not by each
    # process of pytest.
    with locked(folder / "lock"):
        built = run_go(*command, "-o", str(target), SOURCES, cwd=toolchain.ROOT, **go_env)
    if built.returncode:
        raise RuntimeError(f"{SOURCES} does not build:\n{built.stderr}")
    return target


class Harness:
    """The loaded library."""

    def __init__(self, path: Path | None = None) -> None:
        self.library = ctypes.CDLL(os.fspath(path or build()))
        self._call = self.library.conformance_call
        self._call.restype = ctypes.c_int64
        self._call.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64]
        self.library.conformance_collect.restype = ctypes.c_int64
        self.library.conformance_size.restype = ctypes.c_int64
        if self.library.conformance_size() != len(operators()):
            raise RuntimeError("table_gen.go is not of this schema: run `make generate`")
        self.response = array("q", bytes(8 * ROOM))
        self.address = self.response.buffer_info()[0]

    def collect(self) -> int:
        """Runs Go's collector; returns how many handles are alive."""
        return self.library.conformance_collect()

    def call(
        self,
        o: Operator,
        values: list[Any],
        form: int = FUNCTION,
        options: bool | None = None,
        requires_grad: bool = False,
    ) -> tuple[list[Any], list[torch.Tensor]]:
        """Calls a wrapper with one value per argument of the schema.

        An argument that is `absent` is left out of the options; where all are, no options are
        given, unless options says so. Returns the results, and the states of generators.
        """
        if options is None:
            options = requires_grad or any(
                is_option and v is not absent
                for is_option, v in zip(o.options, values, strict=True)
            )
        request = Request([o.index, form, int(options)])
        for a, v in zip(o.arguments, values, strict=True):
            request.value(a.type, v)
        if requires_grad:
            request.words.append(1)
        return self.send(request)

    def call_named(self, o: Operator, values: dict[str, Any]) -> Any:
        """The result of a wrapper that has one, with arguments by name."""
        return self.call(o, [values.get(a.name, absent) for a in o.arguments])[0][0]

    def backward(self, outputs: list[torch.Tensor], grads: list[torch.Tensor]) -> None:
        request = Request([BACKWARD, 0, 0])
        request.value("Tensor[]", outputs)
        request.value("Tensor[]", grads)
        self.send(request)

    def grad(
        self, outputs: list[torch.Tensor], grads: list[torch.Tensor], inputs: list[torch.Tensor]
    ) -> list[torch.Tensor | None]:
        request = Request([GRAD, 0, 0])
        for tensors in (outputs, grads, inputs):
            request.value("Tensor[]", tensors)
        return self.send(request)[0][0]

    def seed(self, seed: int) -> None:
        self.send(Request([SEED, 0, 0, seed]))

    def send(self, request: Request) -> tuple[list[Any], list[torch.Tensor]]:
        words = array("q", request.words)
        self._call(words.buffer_info()[0], len(words), self.address, ROOM)
        return Response(self.response, request.tensors).read()


class Request:
    """The words of a call."""

    def __init__(self, words: list[int]) -> None:
        self.words = words
        self.tensors: list[torch.Tensor] = []

    def tensor(self, tag: int, t: torch.Tensor) -> None:
        self.words += (tag, to_handle(t))
        self.tensors.append(t)

    def value(self, kind: str, v: Any) -> None:
        """Writes a value for an argument of the schema's type kind."""
        words = self.words
        if v is absent:
            words.append(ABSENT)
        elif v is None:
            words.append(NONE)
        elif isinstance(v, torch.Tensor):
            self.tensor(TENSOR, v)
        elif hasattr(v, "harness"):
            words += (MODULE, v.number)
        elif isinstance(v, (list, tuple)):
            words += (LIST, len(v))
            kind = kind[: kind.rindex("[")]
            for x in v:
                self.value(kind, x)
        elif isinstance(v, dict):
            words.append(LIST)
            self.fields(v)
        elif isinstance(v, bool):
            words += (BOOL, int(v))
        elif isinstance(v, int):
            if v > 0x7FFFFFFFFFFFFFFF:
                words += (UINT, v - (1 << 64))
            else:
                words += (INT, v)
        elif isinstance(v, float):
            words += (FLOAT, *_words(struct.pack("d", v)))
        elif isinstance(v, complex):
            words += (COMPLEX, *_words(struct.pack("dd", v.real, v.imag)))
        elif isinstance(v, torch.Generator):
            self.tensor(GENERATOR, v.get_state())
        elif isinstance(v, torch.UntypedStorage):
            self.tensor(STORAGE, torch.empty(0, dtype=torch.uint8).set_(v))
        elif isinstance(v, torch.Stream):
            words += (STREAM, v.stream_id, v.device_index, v.device_type)
        elif isinstance(v, (str, torch.dtype, torch.device, torch.layout, torch.memory_format)):
            self.text(str(v))
        else:
            raise Broken(f"no way to write {v!r}")

    def text_only(self, text: str) -> None:
        """Writes a string without its tag."""
        self.text(text)
        del self.words[-2 - (len(text.encode()) + 7) // 8]

    def invocation(self, parameters: list[Any], options: dict[str, Any]) -> None:
        """Writes what a function of package nn is called with."""
        self.words.append(len(parameters))
        for v in parameters:
            self.value(_list_type(v), v)
        self.fields(options)

    def fields(self, of: dict[str, Any]) -> None:
        """Writes the fields of a struct."""
        self.words.append(len(of))
        for name, v in of.items():
            self.text_only(name)
            self.value(_list_type(v), v)

    def text(self, text: str) -> None:
        raw = text.encode()
        self.words += (STRING, len(raw), *_words(raw + bytes(-len(raw) % 8)))


def _list_type(value: Any) -> str:
    """Something with as many pairs of brackets as the value has levels."""
    if isinstance(value, (list, tuple)):
        return (_list_type(value[0]) if value else "") + "[]"
    return ""


def _words(raw: bytes) -> tuple[int, ...]:
    return struct.unpack(f"{len(raw) // 8}q", raw)


class Response:
    """Reads what a call returned."""

    def __init__(self, words: array[int], tensors: list[torch.Tensor]) -> None:
        self.words = words
        self.at = 0
        self.tensors = tensors

    def next(self) -> int:
        self.at += 1
        return self.words[self.at - 1]

    def read(self) -> tuple[list[Any], list[torch.Tensor]]:
        ended = self.next()
        if ended == ENDED_WELL:
            results = [self.value() for _ in range(self.next())]
            return results, [self.value() for _ in range(self.next())]
        if ended == ENDED_IN_ERROR:
            raise WrapperError(self.value(), self.value(), self.value())
        raise (GoCrash if ended == ENDED_BADLY else Broken)(self.value())

    def value(self) -> Any:
        tag = self.next()
        if tag == NONE:
            return None
        if tag == TENSOR:
            return from_handle(self.next())
        if tag == SAME:
            return self.tensors[self.next()]
        if tag == BORROWED:
            t = from_handle(self.next())
            to_handle(t)  # the reference that from_handle took is Go's
            return t
        if tag == BOOL:
            return self.next() != 0
        if tag == INT:
            return self.next()
        if tag == UINT:
            return self.next() + (1 << 64 if self.words[self.at - 1] < 0 else 0)
        if tag == FLOAT:
            return struct.unpack("d", struct.pack("q", self.next()))[0]
        if tag == COMPLEX:
            return complex(*struct.unpack("dd", struct.pack("2q", self.next(), self.next())))
        if tag == STRING:
            n = self.next()
            start = self.at
            self.at += (n + 7) // 8
            return self.words[start : self.at].tobytes()[:n].decode(errors="replace")
        if tag == LIST:
            return [self.value() for _ in range(self.next())]
        raise Broken(f"result of tag {tag}")
