"""The golden test of a generated package: the inputs of its calls, and what Python computed from
them.

Values are bit for bit the same where the same torch runs on the same kind of processor; elsewhere
libtorch takes other kernels, and the test compares as torch.testing.assert_close does.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ...errors import BridgeError, BridgeTypeError, BridgeValueError
from ...graph.basic import Variable
from ...sameness import same
from ...types.base import Type
from ...types.containers import ListArg, Optional, TensorList
from ...types.numbers import NumberArg, ScalarArg
from ...types.objects import String
from ...types.schema_types import SchemaType
from ...types.tensor import TensorArg, TensorType
from ...types.type_rules import Face
from . import go_names, weights
from .crossing import Crossing

FILE = "testdata/golden.safetensors"
OPEN = 3  # the size that open dimensions get
STEPS = 3  # of training
# The calls, and what is before the names of their values.
CALLS = {"first": "", "refused": "refused.", "again": "again."}
_REFUSALS = (RuntimeError, ValueError, IndexError, TypeError)


# By these the kernels of libtorch, oneDNN and MKL are chosen.
CHOOSING = [
    "ATEN_CPU_CAPABILITY", "DNNL_DEFAULT_FPMATH_MODE", "DNNL_MAX_CPU_ISA", "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_DEFAULT_FPMATH_MODE", "ONEDNN_MAX_CPU_ISA",
]  # fmt: skip
_PROCESSOR = r"(?:model name|cpu family|model|cache size|flags|Features|CPU implementer|CPU part)"


def chosen() -> dict[str, str]:
    """The variables of the environment that choose kernels."""
    return {name: value for name in CHOOSING if (value := os.environ.get(name))}


def machine() -> str:
    """What results depend on in their last bits; gotorch/graph/graphtest says the same in Go."""
    import torch

    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = f"model: {platform.machine()}"
    lines = sorted(set(re.findall(rf"^{_PROCESSOR}\s*:.*", text, re.M)))
    lines += [f"{name}={value}" for name, value in chosen().items()]
    return f"{torch.__version__}\n{hashlib.sha256(chr(10).join(lines).encode()).hexdigest()}"


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Sums depend on the number of threads in their last bits."""
    import torch

    n = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n)


def random_value(t: Type, generator: Any) -> Any:
    """A value of a type."""
    import torch

    if isinstance(t, TensorType):
        if t.shape is None or t.dtype is None:
            raise BridgeTypeError("its dtype or shape is open")
        shape = [OPEN if d is None else d for d in t.shape]
        dtype = t.torch_dtype
        if dtype.is_floating_point or dtype.is_complex:
            wide = torch.complex64 if dtype.is_complex else torch.float32
            return torch.randn(shape, generator=generator, dtype=wide).to(dtype)
        return torch.randint(0, 2, shape, generator=generator).to(dtype)
    if isinstance(t, TensorList):
        return [torch.randn(OPEN, generator=generator) for _ in range(2)]
    if isinstance(t, (NumberArg, ScalarArg)):
        return {"int": 2, "float": 0.5, "bool": True, "scalar": 0.5}[t.kind]
    if isinstance(t, ListArg):
        return [random_value(t.elem, generator)] * (t.size or 2)
    if isinstance(t, Optional) and not isinstance(t, TensorArg):
        return random_value(t.elem, generator)
    if isinstance(t, String):
        return "text"
    raise BridgeTypeError("its type has values that only you know")


def example(inputs: Sequence[Variable], given: Sequence[Any] | None) -> list[Any]:
    """The inputs of the test: what is given, or random values."""
    import torch

    if given is not None:
        given = list(given)
        if len(given) != len(inputs):
            raise BridgeValueError(
                f"export_go: example has {len(given)} values for {len(inputs)} inputs"
            )
        found = []
        for i, (v, value) in enumerate(zip(inputs, given, strict=True)):
            try:
                found.append(v.type.filter(value))
            except TypeError as e:
                raise BridgeTypeError(f"export_go: example: input {i} ({v}): {e}") from e
        return [_owned(v) for v in found]
    generator = torch.Generator().manual_seed(0)
    found = []
    for i, v in enumerate(inputs):
        try:
            found.append(random_value(v.type, generator))
        except BridgeTypeError as e:
            raise BridgeValueError(
                f"export_go: there is no example for input {i} ({v}) of type {v.type}, because "
                f"{e}: give example="
            ) from None
    return found


def _owned(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().contiguous().clone()
    if isinstance(value, (list, tuple)):
        return [_owned(v) for v in value]
    return value


def others(values: Sequence[Any]) -> Iterator[list[Any]]:
    """Other values of the same types and sizes, for another call: those first that differ most.
    Numbers of one dimension may be offsets, of which few go together; a function may ask for
    numbers in an interval, or in an order."""
    import torch

    def changed(value: Any, scaled: bool, flipped: bool, offsets: bool) -> Any:
        if isinstance(value, (list, tuple)):
            return [changed(v, scaled, flipped, offsets) for v in value]
        if type(value) is float:
            return value * 0.75 if scaled else value
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
            return value
        if value.is_floating_point() or value.is_complex():
            value = value * 0.75 if scaled else value
        elif value.dim() < 2 and not offsets:
            return value
        return value.flip(list(range(value.dim()))) if flipped else value

    ways = [(True, True, True), (True, True, False), (True, False, False), (False, True, False)]
    made = [[changed(v, *way) for v in values] for way in ways]
    # One argument alone, where they depend on each other.
    made += [[*values[:i], made[1][i], *values[i + 1 :]] for i in range(len(values))]
    for i, found in enumerate(made):
        if not any(_equal(found, before) for before in (values, *made[:i])):
            yield found


def _equal(a: Any, b: Any) -> bool:
    """Whether values of the same types are the same numbers."""
    import torch

    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_equal, a, b))
    if isinstance(a, torch.Tensor):
        return bool(a.layout == torch.strided and torch.equal(a, b)) or a is b
    return same(a, b)


def expected(
    calls: Callable[[], Callable[..., Any]], values: Sequence[Any], random: bool
) -> list[tuple[str, Sequence[Any], list[Any] | None]]:
    """The calls of the test: what is before the names of their values, the inputs, and what Python
    computes; `random` says that the inputs were drawn.

    The second has other values: its results are wrong where something of the first call stays
    behind. Where Python refuses all others, it is to be refused (None), and a third call computes
    what it computes after that. Where there are no others, the first is repeated.
    """
    import torch

    def run(**given: Sequence[Any]) -> list[tuple[str, Sequence[Any], list[Any] | None]]:
        found: list[tuple[str, Sequence[Any], list[Any] | None]] = []
        with one_thread(), torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            call = calls()
            for name, g in given.items():
                try:
                    results = [_owned(r) for r in call(*(_owned(v) for v in g))]
                except _REFUSALS:
                    if name != "refused":
                        raise
                    results = None
                found.append((CALLS[name], g, results))
        return found

    try:
        found = run(first=values, again=values)
    except BridgeError:
        raise
    except _REFUSALS as e:
        if not random:
            raise
        raise BridgeValueError(
            "export_go: the golden test needs inputs with which the graph can run, and random "
            f"ones will not do; give example=: {e}"
        ) from e
    refused = None
    for other in others(values):
        try:
            return run(first=values, again=other)
        except _REFUSALS:
            refused = refused or other
    return run(first=values, refused=refused, again=values) if refused else found


# In the file: a tensor for each number, list and tensor.


def _part(value: Any, path: str) -> Any:
    for name in path.split(".")[1:]:
        try:
            value = getattr(value, name)
        except AttributeError:
            raise BridgeValueError(
                f"export_go: the golden test needs the member {name} of {value!r}, which has no "
                "such attribute; golden=False leaves the test out"
            ) from None
    return value


def _stored(t: SchemaType, value: Any) -> dict[str, Any]:
    """A part as tensors, by what is added to its name."""
    import torch

    if isinstance(t, TensorList):
        return {f"[{i}]": v for i, v in enumerate(value)} | {"[]": torch.tensor(len(value))}
    if isinstance(t, TensorArg):
        return {} if value is None else {"": value}
    if isinstance(t, String):
        return {"": torch.tensor(list(value.encode()), dtype=torch.uint8)}
    if value is None:
        return {}
    if isinstance(value, (list, tuple)):
        kind = torch.float64 if kind_of(t) == "Floats" else torch.int64
        return {"": torch.tensor(value, dtype=kind)}
    kind = {bool: torch.bool, int: torch.int64, float: torch.float64}.get(
        type(value), torch.complex128
    )
    return {"": torch.tensor(value, dtype=kind)}


def stored(name: str, crossing: Crossing, value: Any) -> dict[str, Any]:
    """The tensors for a value."""
    found = {}
    for part in crossing.parts:
        path = "".join(f".{p}" for p in part.path)
        for suffix, t in _stored(part.type, _part(value, path)).items():
            found[f"{name}{path}{suffix}"] = t
    return found


kind_of: Face[str] = Face("method of graphtest.Golden", __name__)
"""The method of graphtest.Golden that reads or compares a part."""

kind_of.of(TensorArg)(lambda t: "Tensor")
kind_of.of(String)(lambda t: "String")
kind_of.of(ScalarArg)(lambda t: "Scalar")
kind_of.of(NumberArg)(lambda t: t.kind.title())
kind_of.of(Optional)(lambda t: kind_of(t.elem))
kind_of.of(Optional, NumberArg)(lambda t: f"Opt{kind_of(t.elem)}")
kind_of.of(ListArg)(lambda t: f"{kind_of(t.elem)}s")


def read(name: str, crossing: Crossing) -> str:
    """The Go expression for a value of the file."""
    return crossing.made(lambda path, t: f"golden.{kind_of(t)}({go_names.quoted(name + path)})")


def compared(name: str, crossing: Crossing, x: str) -> list[str]:
    """Go statements that compare the value x with that of the file."""
    return [f"golden.Check({go_names.quoted(name + path)}, {e})" for path, e in crossing.members(x)]


def contents(tensors: dict[str, Any]) -> bytes:
    """The file."""
    return weights.contents(tensors, {**weights.METADATA, "machine": machine()})
