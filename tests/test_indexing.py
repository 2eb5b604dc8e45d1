"""Indexing gives in Go what it gives in Python."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import make_index_golden as golden
import pytest
import torch

from pytorch_bridge.testing.gotests import ensure_library, run_go
from pytorch_bridge.versions import REFERENCE_TORCH

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
