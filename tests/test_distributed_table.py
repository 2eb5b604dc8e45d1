"""docs/distributed-tests.md has a row for each of PyTorch's distributed tests, and the tests that it names exist."""

from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from pytorch_bridge.native.toolchain import ROOT

ROW = re.compile(r"^\| (`.*`) \| (.*) \|$", re.M)
QUOTED = re.compile(r"`([^`]+)`")


def rows() -> list[tuple[list[str], str]]:
    text = (ROOT / "docs/distributed-tests.md").read_text()
    return [(QUOTED.findall(patterns), here) for patterns, here in ROW.findall(text)]


@pytest.fixture(scope="module")
def names() -> list[str]:
    # The module reads these when it is imported.
    before = {name: os.environ.get(name) for name in ("BACKEND", "WORLD_SIZE")}
    os.environ |= {"BACKEND": "gloo", "WORLD_SIZE": "2"}
    try:
        from torch.testing._internal.distributed.distributed_test import DistributedTest
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
    return [n.removeprefix("test_") for n in dir(DistributedTest._DistTestBase) if n[:5] == "test_"]


def test_each_test_of_pytorch_has_a_row(names: list[str]) -> None:
    used, without = set(), []
    for name in names:
        for patterns, _ in rows():
            fit = [p for p in patterns if fnmatchcase(name, p)]
            used.update(fit)
            if fit:
                break
        else:
            without.append(name)
    assert without == []
    assert [p for patterns, _ in rows() for p in patterns if p not in used] == []
    assert f"the {len(names)} of" in (ROOT / "docs/distributed-tests.md").read_text()


def test_the_tests_that_rows_name_exist() -> None:
    sources = [
        *(ROOT / "gotorch").glob("*/*_test.go"),
        ROOT / "tests/devices/ranks_test.go",
        *(ROOT / "tests/distributed").glob("test_*.py"),
    ]
    text = "\n".join(path.read_text() for path in sources)
    named = [q for _, here in rows() for q in QUOTED.findall(here)]
    tests = [q for q in named if re.match(r"Test[A-Z]|test_", q)]
    assert len(tests) > 20
    assert [t for t in tests if not re.search(rf"\b(?:func|def) {t}\(", text)] == []
    files = [q for q in named if q.startswith("tests/")]
    assert [f for f in files if not Path(ROOT / f).exists()] == []
