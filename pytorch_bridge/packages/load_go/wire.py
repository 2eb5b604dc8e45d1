"""How Python values travel to Go and back: the Python half of gotorch/internal/pyload/wire.go.

Each type of Go has a `Wire`, made of what gotorch/internal/loadgo says about it. Sending has two
steps: `check` turns a value into what `pack` writes, or raises; only when all arguments of a call
have passed does `pack` take references to tensors, so that a wrong argument leaks none.
"""

from __future__ import annotations

import contextlib
import operator
import struct
from collections.abc import Callable, Mapping
from typing import Any

import torch

from pytorch_bridge.native.extension import from_handle, to_handle

_INTEGERS = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "int": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "uint": "Q",
}
_FLOATS = {"float32": "f", "float64": "d"}
_COMPLEX = {"complex64": "f", "complex128": "d"}

_LENGTH = struct.Struct("=Q")
_BYTE = struct.Struct("=B")


class ArgumentPlace:
    """Where a value belongs: "Scale() argument 'x'", or an element of that."""

    def __init__(self, function: str, argument: str, inside: str = "") -> None:
        self.function = function
        self.argument = argument
        self.inside = inside

    def of(self, element: object) -> ArgumentPlace:
        return ArgumentPlace(self.function, self.argument, f"{self.inside}[{element!r}]")

    def __str__(self) -> str:
        return f"{self.function}() argument '{self.argument}'{self.inside}"

    def wrong_type(self, wire: Wire, value: object) -> TypeError:
        got = "None" if value is None else type(value).__name__
        return TypeError(f"{self} must be {wire.expected} (Go's {wire.go}), not {got}")


class Reply:
    """What Go sent, read from the front."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 1  # behind the byte that says whether it was a success

    def read(self, form: struct.Struct) -> tuple[Any, ...]:
        values = form.unpack_from(self.data, self.at)
        self.at += form.size
        return values

    def length(self) -> int:
        (n,) = _LENGTH.unpack_from(self.data, self.at)
        self.at += 8
        return n

    def take(self, n: int) -> bytes:
        taken = self.data[self.at : self.at + n]
        self.at += n
        return taken

    def text(self) -> str:
        return _decode(self.take(self.length()))


def _decode(data: bytes) -> str:
    # Strings of Go may hold any bytes; so nothing is lost, there and back.
    return data.decode("utf-8", "surrogateescape")


class Wire:
    """One type of Go."""

    expected = ""
    """What a value has to be, for messages: "an int"."""
    annotation: Any = None

    def __init__(self, shape: dict) -> None:
        self.go: str = shape["go"]

    def check(self, value: Any, place: ArgumentPlace) -> Any:
        raise NotImplementedError

    def pack(self, value: Any, parts: list[bytes]) -> None:
        raise NotImplementedError

    def unpack(self, reply: Reply) -> Any:
        raise NotImplementedError


class BoolWire(Wire):
    expected = "a bool"
    annotation = bool

    def check(self, value: Any, place: ArgumentPlace) -> bool:
        if isinstance(value, bool):
            return value
        raise place.wrong_type(self, value)

    def pack(self, value: bool, parts: list[bytes]) -> None:
        parts.append(b"\1" if value else b"\0")

    def unpack(self, reply: Reply) -> bool:
        return reply.take(1) != b"\0"


class NumberWire(Wire):
    """A number of fixed width; `code` is its letter in the struct module."""

    def __init__(self, shape: dict, code: str) -> None:
        super().__init__(shape)
        self.code = code
        self.form = struct.Struct(f"={code}")

    def pack(self, value: Any, parts: list[bytes]) -> None:
        parts.append(self.form.pack(value))

    def unpack(self, reply: Reply) -> Any:
        return reply.read(self.form)[0]

    def pack_all(self, values: list, parts: list[bytes]) -> None:
        parts.append(struct.pack(f"={len(values)}{self.code}", *values))

    def unpack_all(self, n: int, reply: Reply) -> list:
        return list(reply.read(struct.Struct(f"={n}{self.code}")))


class IntegerWire(NumberWire):
    expected = "an int"
    annotation = int

    def __init__(self, shape: dict) -> None:
        super().__init__(shape, _INTEGERS[shape["kind"]])
        bits = self.form.size * 8
        signed = shape["kind"].startswith("int")
        self.range = (-1 << (bits - 1), 1 << (bits - 1)) if signed else (0, 1 << bits)

    def check(self, value: Any, place: ArgumentPlace) -> int:
        if isinstance(value, (bool, torch.Tensor)):
            raise place.wrong_type(self, value)
        try:
            value = operator.index(value)
        except TypeError:
            raise place.wrong_type(self, value) from None
        if not self.range[0] <= value < self.range[1]:
            raise OverflowError(f"{place} is {value}, which Go's {self.go} cannot hold")
        return value


class FloatWire(NumberWire):
    expected = "a float"
    annotation = float

    def __init__(self, shape: dict) -> None:
        super().__init__(shape, _FLOATS[shape["kind"]])

    def check(self, value: Any, place: ArgumentPlace) -> float:
        # A tensor has __float__ too, which copies it from its device: that must be written out.
        if isinstance(value, (bool, str, bytes, bytearray, torch.Tensor)):
            raise place.wrong_type(self, value)
        try:
            value = float(value)
            self.form.pack(value)
        except TypeError:
            raise place.wrong_type(self, value) from None
        except OverflowError:
            raise OverflowError(f"{place} is {value}, which Go's {self.go} cannot hold") from None
        return value


class ComplexWire(NumberWire):
    expected = "a complex"
    annotation = complex

    def __init__(self, shape: dict) -> None:
        super().__init__(shape, f"2{_COMPLEX[shape['kind']]}")

    def check(self, value: Any, place: ArgumentPlace) -> complex:
        if isinstance(value, (bool, str, torch.Tensor)):
            raise place.wrong_type(self, value)
        try:
            value = complex(value)
            self.form.pack(value.real, value.imag)
        except TypeError:
            raise place.wrong_type(self, value) from None
        except OverflowError:
            raise OverflowError(f"{place} is {value}, which Go's {self.go} cannot hold") from None
        return value

    def pack(self, value: complex, parts: list[bytes]) -> None:
        parts.append(self.form.pack(value.real, value.imag))

    def unpack(self, reply: Reply) -> complex:
        return complex(*reply.read(self.form))

    def pack_all(self, values: list, parts: list[bytes]) -> None:
        for value in values:
            self.pack(value, parts)

    def unpack_all(self, n: int, reply: Reply) -> list:
        return [self.unpack(reply) for _ in range(n)]


class StringWire(Wire):
    expected = "a str"
    annotation = str

    def check(self, value: Any, place: ArgumentPlace) -> bytes:
        if not isinstance(value, str):
            raise place.wrong_type(self, value)
        try:
            return value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as err:
            raise ValueError(f"{place} is no text that UTF-8 can hold: {err}") from None

    def pack(self, value: bytes, parts: list[bytes]) -> None:
        parts.append(_LENGTH.pack(len(value)))
        parts.append(value)

    def unpack(self, reply: Reply) -> str:
        return reply.text()


class BytesWire(Wire):
    expected = "bytes"
    annotation = bytes

    def check(self, value: Any, place: ArgumentPlace) -> bytes:
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        raise place.wrong_type(self, value)

    def pack(self, value: bytes, parts: list[bytes]) -> None:
        parts.append(_LENGTH.pack(len(value)))
        parts.append(value)

    def unpack(self, reply: Reply) -> bytes:
        return reply.take(reply.length())


class TensorWire(Wire):
    expected = "a torch.Tensor or None"
    annotation = torch.Tensor

    def check(self, value: Any, place: ArgumentPlace) -> Any:
        if value is None or isinstance(value, torch.Tensor):
            return value
        raise place.wrong_type(self, value)

    def pack(self, value: Any, parts: list[bytes]) -> None:
        parts.append(_LENGTH.pack(to_handle(value)))

    def unpack(self, reply: Reply) -> torch.Tensor | None:
        return from_handle(reply.length())


class DTypeWire(Wire):
    expected = "a torch.dtype or None"
    annotation = torch.dtype

    def check(self, value: Any, place: ArgumentPlace) -> bytes:
        if value is None:
            return b""
        if isinstance(value, torch.dtype):
            return str(value).removeprefix("torch.").encode()
        raise place.wrong_type(self, value)

    pack = StringWire.pack

    def unpack(self, reply: Reply) -> torch.dtype | None:
        name = reply.text()
        return getattr(torch, name) if name else None


class DeviceWire(Wire):
    expected = "a torch.device, its name or None"
    annotation = torch.device

    def check(self, value: Any, place: ArgumentPlace) -> bytes:
        if value is None:
            return b""
        if isinstance(value, (torch.device, str)):
            return str(torch.device(value)).encode()
        raise place.wrong_type(self, value)

    pack = StringWire.pack

    def unpack(self, reply: Reply) -> torch.device | None:
        name = reply.text()
        return torch.device(name) if name else None


class ScalarWire(Wire):
    expected = "a bool, an int, a float, a complex or None"
    annotation = complex
    _FORMS = (
        None,
        struct.Struct("=?"),
        struct.Struct("=q"),
        struct.Struct("=d"),
        struct.Struct("=2d"),
        struct.Struct("=Q"),
    )

    def check(self, value: Any, place: ArgumentPlace) -> bytes:
        if value is None:
            return b"\0"
        if isinstance(value, bool):
            return struct.pack("=B?", 1, value)
        if isinstance(value, float):
            return struct.pack("=Bd", 3, value)
        if isinstance(value, complex):
            return struct.pack("=B2d", 4, value.real, value.imag)
        if isinstance(value, torch.Tensor) or not hasattr(type(value), "__index__"):
            raise place.wrong_type(self, value)
        value = operator.index(value)
        if -1 << 63 <= value < 1 << 63:
            return struct.pack("=Bq", 2, value)
        if 0 <= value < 1 << 64:
            return struct.pack("=BQ", 5, value)
        raise OverflowError(f"{place} is {value}, which Go's {self.go} cannot hold")

    def pack(self, value: bytes, parts: list[bytes]) -> None:
        parts.append(value)

    def unpack(self, reply: Reply) -> bool | int | float | complex | None:
        form = self._FORMS[reply.read(_BYTE)[0]]
        if form is None:
            return None
        values = reply.read(form)
        return complex(*values) if len(values) == 2 else values[0]


class SliceWire(Wire):
    def __init__(self, shape: dict) -> None:
        super().__init__(shape)
        self.elem = wire(shape["elem"])
        self.expected = f"a list of {_plural(self.elem)}"
        self.annotation = list[self.elem.annotation]  # type: ignore[name-defined]

    def check(self, value: Any, place: ArgumentPlace) -> Any:
        if value is None and self.nil_is_none():
            return []
        if isinstance(self.elem, NumberWire):
            memory = self._memory(value)
            if memory is not None:
                return memory
        elif isinstance(value, torch.Tensor):
            raise place.wrong_type(self, value)
        if isinstance(value, (str, bytes, bytearray, Mapping)) or not hasattr(value, "__iter__"):
            raise place.wrong_type(self, value)
        elements = list(value)
        if isinstance(self.elem, (IntegerWire, FloatWire)) and {type(e) for e in elements} <= {
            self.elem.annotation
        }:
            # At once; what does not fit is named below.
            with contextlib.suppress(struct.error, OverflowError):
                return struct.pack(f"={len(elements)}{self.elem.code}", *elements)
        check = self.elem.check
        try:
            return [check(element, place) for element in elements]
        except (TypeError, ValueError, OverflowError):
            # Again, to say which one it was.
            return [check(element, place.of(i)) for i, element in enumerate(elements)]

    def nil_is_none(self) -> bool:
        return True

    def _memory(self, value: Any) -> bytes | None:
        """The elements of an array that lie as Go wants them; None for all else."""
        assert isinstance(self.elem, NumberWire)
        try:
            view = memoryview(value)
        except TypeError:
            return None
        code = self.elem.code
        # The buffer protocol has letters of its own for complex numbers, and two for 64 bits.
        formats = {"q": "ql", "Q": "QL", "2f": ["Zf"], "2d": ["Zd"]}.get(code, code)
        return view.tobytes() if view.ndim == 1 and view.format in formats else None

    def pack(self, value: Any, parts: list[bytes]) -> None:
        if isinstance(value, bytes):
            assert isinstance(self.elem, NumberWire)
            parts.append(_LENGTH.pack(len(value) // self.elem.form.size))
            parts.append(value)
            return
        parts.append(_LENGTH.pack(len(value)))
        if isinstance(self.elem, NumberWire):
            self.elem.pack_all(value, parts)
        else:
            for element in value:
                self.elem.pack(element, parts)

    def unpack(self, reply: Reply) -> list:
        n = reply.length()
        if isinstance(self.elem, NumberWire):
            return self.elem.unpack_all(n, reply)
        return [self.elem.unpack(reply) for _ in range(n)]


class ArrayWire(SliceWire):
    def __init__(self, shape: dict) -> None:
        super().__init__(shape)
        self.len = shape.get("len", 0)
        self.expected = f"a list of {self.len} {_plural(self.elem)}"

    def nil_is_none(self) -> bool:
        return False

    def check(self, value: Any, place: ArgumentPlace) -> Any:
        checked = super().check(value, place)
        n = len(checked)
        if isinstance(checked, bytes):
            assert isinstance(self.elem, NumberWire)
            n //= self.elem.form.size
        if n != self.len:
            raise ValueError(f"{place} must have {self.len} elements (Go's {self.go}), not {n}")
        return checked


class MapWire(Wire):
    def __init__(self, shape: dict) -> None:
        super().__init__(shape)
        self.key, self.elem = wire(shape["key"]), wire(shape["elem"])
        self.expected = f"a dict of {_plural(self.key)} and {_plural(self.elem)}"
        self.annotation = dict[self.key.annotation, self.elem.annotation]  # type: ignore[name-defined]

    def check(self, value: Any, place: ArgumentPlace) -> list[tuple[Any, Any]]:
        if value is None:
            return []
        if not isinstance(value, Mapping):
            raise place.wrong_type(self, value)
        return [
            (self.key.check(k, place.of(k)), self.elem.check(v, place.of(k)))
            for k, v in value.items()
        ]

    def pack(self, value: list[tuple[Any, Any]], parts: list[bytes]) -> None:
        parts.append(_LENGTH.pack(len(value)))
        for k, v in value:
            self.key.pack(k, parts)
            self.elem.pack(v, parts)

    def unpack(self, reply: Reply) -> dict:
        pairs = [(self.key.unpack(reply), self.elem.unpack(reply)) for _ in range(reply.length())]
        # Go's order is another each time.
        return dict(sorted(pairs, key=lambda pair: pair[0]))


class PointerWire(Wire):
    def __init__(self, shape: dict) -> None:
        super().__init__(shape)
        self.elem = wire(shape["elem"])
        self.expected = f"{self.elem.expected} or None"
        self.annotation = self.elem.annotation | None

    def check(self, value: Any, place: ArgumentPlace) -> Any:
        if value is None:
            return None
        try:
            return (self.elem.check(value, place),)
        except TypeError:
            raise place.wrong_type(self, value) from None

    def pack(self, value: Any, parts: list[bytes]) -> None:
        if value is None:
            parts.append(b"\0")
        else:
            parts.append(b"\1")
            self.elem.pack(value[0], parts)

    def unpack(self, reply: Reply) -> Any:
        return self.elem.unpack(reply) if reply.take(1) != b"\0" else None


def _plural(wire: Wire) -> str:
    first, _, rest = wire.expected.partition(" ")
    if first not in ("a", "an"):
        return wire.expected
    noun, _, rest = rest.partition(" ")
    return " ".join([f"{noun}s", *([rest] if rest else [])])


_WIRES: dict[str, Callable[[dict], Wire]] = {
    "bool": BoolWire,
    **dict.fromkeys(_INTEGERS, IntegerWire),
    **dict.fromkeys(_FLOATS, FloatWire),
    **dict.fromkeys(_COMPLEX, ComplexWire),
    "string": StringWire,
    "bytes": BytesWire,
    "tensor": TensorWire,
    "dtype": DTypeWire,
    "device": DeviceWire,
    "scalar": ScalarWire,
    "slice": SliceWire,
    "array": ArrayWire,
    "map": MapWire,
    "pointer": PointerWire,
}


def wire(shape: dict) -> Wire:
    """The Wire of a type as gotorch/internal/loadgo describes it."""
    return _WIRES[shape["kind"]](shape)
