"""What the C ABI says when PyTorch fails or warns is what Python says, word for word."""

from __future__ import annotations

import ctypes
import itertools
import subprocess
import warnings
from collections.abc import Iterator

import pytest
import torch

from pytorch_bridge.native.toolchain import ROOT, find_compiler, find_torch

ELEMENTS = ["Byte", "Char", "Double", "Float", "Int", "Long", "Short", "Half"]
OTHER_ELEMENTS = ["BFloat16", "Bool", "ComplexFloat", "QInt8", "UInt16", ""]
BACKENDS = ["CPU", "CUDA", "SparseCPU", "SparseCUDA"]
OTHER_BACKENDS = ["XLA", "Meta", "SparseCsrCPU", "QuantizedCPU", "CPUCPU", "Sparse", ""]

SENTENCES = [
    "expected CPUFloatType but got CUDALongType",
    "CPUFloatTypeCPUFloatTypes, not TypeCPUFloat or CPUTypes",
    "[CPUHalfType [2, 3]]",
    "SparseSparseCPUIntType",
    "no type at all",
    "größer als CPUByteType",
    "the first CPUCharType\nand the second CPUCharType line",
    "",
]


class Value(ctypes.Structure):
    """cgotorch's Value, with the member for strings."""

    _fields_ = [
        ("kind", ctypes.c_int64),
        ("len", ctypes.c_int64),
        ("string", ctypes.c_char_p),
        ("rest", ctypes.c_int64 * 2),
    ]


STRING = 6

Handler = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)


@pytest.fixture(scope="module")
def operators(tmp_path_factory) -> None:
    """The operators of gotorch/testdata/throws.cc, in this process."""
    found = find_torch()
    out = tmp_path_factory.mktemp("messages") / "libthrows.so"
    source = ROOT / "gotorch/testdata/throws.cc"
    flags = ["-std=c++20", "-shared", "-fPIC", *(f"-isystem{path}" for path in found.includes)]
    link = [f"-L{found.lib}", "-ltorch_cpu", "-lc10"]
    compiler = find_compiler().command
    subprocess.run([*compiler, *flags, str(source), "-o", str(out), *link], check=True)
    torch.ops.load_library(out)


@pytest.fixture(scope="module")
def abi(library, operators) -> ctypes.CDLL:
    abi = ctypes.CDLL(str(library.library))
    for function in (
        abi.cgotorch_FindOperator,
        abi.cgotorch_CallOperator,
        abi.cgotorch_SetWarningHandler,
    ):
        function.restype = ctypes.c_void_p  # NULL, or a message to be freed
    return abi


def call(abi: ctypes.CDLL, operator: str, text: str) -> str:
    """Calls an operator that takes a string; returns what it fails with, "" if it does not."""
    handle, results, n = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int64()
    assert abi.cgotorch_FindOperator(operator.encode(), b"", ctypes.byref(handle)) is None
    data = text.encode()
    args = (Value * 1)(Value(STRING, len(data), data))
    one = ctypes.c_int64(1)
    error = abi.cgotorch_CallOperator(
        handle, args, one, None, one, ctypes.byref(results), ctypes.byref(n)
    )
    abi.cgotorch_FreeValues(results, n, ctypes.c_bool(True))
    if error is None:
        return ""
    message = ctypes.string_at(error).decode()
    abi.cgotorch_FreeString(ctypes.c_void_p(error))
    return message


def types() -> Iterator[str]:
    backends, elements = BACKENDS + OTHER_BACKENDS, ELEMENTS + OTHER_ELEMENTS
    for backend, element in itertools.product(backends, elements):
        yield f"{backend}{element}Type"
        yield f"Variable[{backend}{element}Type]"


@pytest.mark.parametrize("thrown", ["c10", "std"])
def test_errors_have_pythons_text(abi, thrown):
    translated = 0
    for text in [*types(), *SENTENCES]:
        with pytest.raises(RuntimeError) as raised:
            torch.ops.gotorch_test.throws(f"{thrown}:{text}")
        python = (str(raised.value).splitlines() or [""])[0]
        assert call(abi, "gotorch_test::throws", f"{thrown}:{text}") == f"RuntimeError: {python}"
        translated += "torch." in python
    # Each of the plain types at least: otherwise nothing was compared.
    assert translated > 2 * len(ELEMENTS) * len(BACKENDS)


def test_warnings_have_pythons_text(abi):
    got: list[tuple[str, str]] = []

    @Handler
    def handler(data, kind, message):
        got.append((kind.decode(), message.decode()))

    texts = [text for text in [*types(), *SENTENCES] if text]
    assert abi.cgotorch_SetWarningHandler(handler, None, None) is None
    try:
        for text in texts:
            assert call(abi, "gotorch_test::deprecated", text) == ""
    finally:
        abi.cgotorch_SetWarningHandler(None, None, None)
    assert len(got) == len(texts)
    for text, (kind, message) in zip(texts, got, strict=True):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.ops.gotorch_test.deprecated(text)
        python = str(caught[0].message).partition(" (Triggered internally at ")[0]
        assert (kind, message) == (caught[0].category.__name__, python)
