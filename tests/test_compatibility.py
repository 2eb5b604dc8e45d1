"""What docs/compatibility.md promises is kept: today's names beside those of released versions."""

from __future__ import annotations

import copy
import re

import pytest

from pytorch_bridge import __version__
from pytorch_bridge.native import versions
from pytorch_bridge.native.toolchain import ROOT
from pytorch_bridge.packages.release import compatibility
from pytorch_bridge.packages.release.compatibility import (
    broken,
    may_break,
    numbers,
    released,
    today,
)

BROKEN: dict[str, str] = {}
"""What a version that may break something does break: the line as `broken` has it, and why."""


def test_what_was_released_is_still_there():
    now, past = numbers(__version__), released()
    assert past, "no version is written down"
    assert max(past) <= now
    have = today()
    for version, promise in past.items():
        lines = broken(promise, have)
        if may_break(version, now):
            lines = [line for line in lines if not BROKEN.get(line)]
        assert lines == [], f"{len(lines)} lines of {version} are broken: see docs/compatibility.md"


def test_no_reason_is_left_for_what_is_not_broken():
    have = today()
    found = {line for promise in released().values() for line in broken(promise, have)}
    assert set(BROKEN) <= found


PROMISE = {
    "go": [
        "gotorch: func Add(self, other Tensor) Tensor",
        "gotorch: type Option struct",
        "gotorch: type Option struct, Alpha Scalar",
        "gotorch/data: type Dataset[S any] interface",
        "gotorch/data: type Dataset[S any] interface, Len func() int",
    ],
    "c": ["const char *MM(Tensor self, Tensor mat2, Tensor *result);"],
    "packages": ["ABI1"],
}


@pytest.mark.parametrize(
    ("part", "line", "by", "says"),
    [
        ("go", 0, None, "gone or changed: gotorch: func Add(self, other Tensor) Tensor"),
        ("go", 0, "gotorch: func Add(self Tensor) Tensor", "gone or changed: gotorch: func Add"),
        ("go", 2, None, "gone or changed: gotorch: type Option struct, Alpha"),
        ("c", 0, "const char *MM(Tensor self, Tensor *result);", "gone or changed: const char *MM"),
        ("packages", 0, "ABI2", "gone or changed: ABI1"),
    ],
)
def test_a_change_to_what_was_released_is_found(part, line, by, says):
    new = copy.deepcopy(PROMISE)
    new[part][line : line + 1] = [by] if by else []
    (found,) = broken(PROMISE, new)
    assert found.startswith(says)


def test_what_is_new_breaks_nothing_but_for_methods_of_interfaces():
    new = copy.deepcopy(PROMISE)
    new["go"] += ["gotorch: type Option struct, Beta Scalar", "gotorch: func Sub()"]
    new["go"] += ["gotorch: type New interface", "gotorch: type New interface, Do func()"]
    new["c"].append("void More(void);")
    assert broken(PROMISE, new) == []
    new["go"].append("gotorch/data: type Dataset[S any] interface, Cap func() int")
    assert broken(PROMISE, new) == [f"new in an interface: {new['go'][-1]}"]


@pytest.mark.parametrize(
    ("old", "new", "may"),
    [
        ("0.2.0", "0.2.1", False),
        ("0.2.9", "0.3.0", True),
        ("0.9.0", "1.0.0", True),
        ("1.2.0", "1.3.0", False),
        ("1.9.3", "2.0.0", True),
    ],
)
def test_which_versions_may_break_something(old, new, may):
    assert may_break(numbers(old), numbers(new)) == may


@pytest.mark.parametrize("version", ["", "1.2", "1.2.3-rc1", "latest"])
def test_a_version_has_three_numbers(version):
    with pytest.raises(ValueError, match="no version like"):
        numbers(version)


def test_what_is_written_down_is_the_same_each_time(tmp_path):
    one = compatibility.write(tmp_path / "one").read_bytes()
    assert one == compatibility.write(tmp_path / "two").read_bytes()


def test_the_version_stands_in_one_place():
    log = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(rf"^## {re.escape(__version__)}\b", log, re.M)
    assert '\nversion = "' not in (ROOT / "pyproject.toml").read_text().partition("[tool.ruff")[0]


def test_the_supported_torches_are_from_the_oldest_to_the_reference():
    assert versions.SUPPORTED_TORCH[0] == versions.OLDEST_TORCH
    assert versions.SUPPORTED_TORCH[-1] == versions.REFERENCE_TORCH
    assert versions.NEWEST_TORCH_FOR_PYTHON_3_10 in versions.SUPPORTED_TORCH
