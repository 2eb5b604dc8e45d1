"""Indexing gives in Go what it gives in Python."""

from __future__ import annotations

import ctypes
import os
import warnings
from pathlib import Path

import make_index_golden as golden
import pytest
import torch
from torch.autograd import forward_ad

from pytorch_bridge.native.extension import from_handle, to_handle
from pytorch_bridge.native.versions import REFERENCE_TORCH
from pytorch_bridge.testing.gotests import ensure_library, run_go

SEED, CASES = 20260, 6000


@pytest.mark.skipif(
    torch.__version__.partition("+")[0] != REFERENCE_TORCH,
    reason="the file has the error messages of the reference torch",
)
def test_the_golden_file_is_what_torch_gives() -> None:
    assert golden.GOLDEN.read_text() == golden.golden(), "run python tests/make_index_golden.py"


def test_every_expression_is_asked_once() -> None:
    asked = list(golden.read_expressions())
    assert len(asked) > 800
    twice = {text for text in asked if asked.count(text) > 1}
    assert not twice


class Term(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("kind", "start", "stop", "step", "of")]


def test_an_item_of_a_dual_tensor_has_its_tangent(library) -> None:
    get_item = ctypes.CDLL(os.fspath(library.library)).cgotorch_GetItem
    get_item.restype = ctypes.c_char_p
    x, result = torch.arange(4.0), ctypes.c_void_p()
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.tensor([1.0, 2.0, 3.0, 4.0]))
        named = (ctypes.c_int64 * 2)(1, 2)
        handle = ctypes.c_void_p(to_handle(dual))
        for term in (
            Term(kind=2, start=1, stop=3, step=1),  # a slice
            Term(kind=8, start=2, of=ctypes.addressof(named)),  # a list
        ):
            error = get_item(handle, ctypes.byref(term), ctypes.c_int64(1), ctypes.byref(result))
            assert error is None
            item = from_handle(result.value)
            assert forward_ad.unpack_dual(item).tangent.tolist() == [2, 3]
        assert from_handle(handle.value) is dual


def test_random_expressions(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = list(golden.random_cases(SEED, CASES))
    assert sum("error" in case for case in cases) < CASES / 4
    file = tmp_path / "cases.json"
    file.write_text(golden.to_text(iter(cases)))
    ensure_library()
    done = run_go(
        *["test", "./gotorch", "-count=1", "-run", "^TestIndexAsPyTorch$"],
        *["-args", f"-index-cases={os.fspath(file)}"],
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
