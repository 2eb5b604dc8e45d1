"""Numbers that a Go type may not hold: Item and ToSlice refuse what libtorch's item<T>() refuses."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pytorch_bridge.testing.gotests import run_go
from pytorch_bridge.toolchain import ROOT

HERE = Path(__file__).parent / "numbers"

INTEGERS = sorted(
    {
        sign * 2**bits + off
        for bits in (0, 7, 8, 15, 16, 31, 32)
        for sign in (1, -1)
        for off in (-1, 0, 1)
    }
    | {300, -300, 2**53 + 1, 2**63 - 1, -(2**63), -(2**63) + 1}
)
UNSIGNED = [2**63, 2**63 + 1, 2**64 - 1]
FLOATS = [
    "nan",
    "inf",
    "-inf",
    "0",
    "-0",
    "0.5",
    "-0.5",
    "0.999",
    "-0.999",
    "2.7",
    "-2.7",
    "1e39",
    "-1e39",
    "1e300",
    "1e-46",
    "3.4028234663852886e38",
    "3.4028235e38",
    "3.4028236e38",
    "-3.4028236e38",
    "9223372036854774784",
    "18446744073709549568",
    "-9223372036854777856",
]
FLOATS += [f"{sign}{x}" for sign in ("", "-") for x in (126.5, 127, 127.5, 128, 128.5, 255.5, 256)]
FLOATS += [f"{sign}{2.0**bits}" for sign in ("", "-") for bits in (15, 16, 31, 32, 53, 63, 64)]
COMPLEX = ["1,0", "2.5,0", "300,0", "1,2", "0,2", "nan,0", "0,nan", "1e300,0", "0,1e300", "inf,0"]


def wraps(argument: str, name: str) -> bool:
    """Whether libtorch makes a large unsigned number of a negative integer, which gotorch refuses."""
    return argument.startswith("i:-") and name.startswith("uint")


@pytest.mark.smoke
def test_a_number_that_does_not_fit_is_refused_as_libtorch_refuses_it(library, tmp_path):
    torch = library.torch
    if not any((folder / "torch/headeronly/util/TypeCast.h").exists() for folder in torch.includes):
        pytest.skip("this torch has no such header")
    arguments = ["b:0", "b:1", *(f"i:{n}" for n in INTEGERS if -(2**63) <= n < 2**63)]
    arguments += [f"u:{n}" for n in UNSIGNED] + [f"f:{x}" for x in FLOATS]
    arguments += [f"c:{z}" for z in COMPLEX]
    program = tmp_path / "numbers"
    includes = [f"-I{folder}" for folder in torch.includes]
    command = [
        *library.compiler.command,
        "-std=c++20",
        *includes,
        HERE / "libtorch/numbers.cc",
        "-o",
        program,
    ]
    subprocess.run([str(word) for word in command], check=True)
    theirs = subprocess.run(
        [program, *arguments], check=True, capture_output=True, text=True
    ).stdout
    done = run_go("run", "-buildvcs=false", "./tests/numbers", *arguments, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    ours = done.stdout.splitlines()
    assert len(ours) == len(theirs.splitlines()) == 13 * len(arguments)
    wrong, stricter = [], 0
    for our, their in zip(ours, theirs.splitlines(), strict=True):
        argument, name, result = our.split()
        if wraps(argument, name):
            assert result == "overflow", our
            stricter += not their.endswith("overflow")
        elif our != their:
            wrong.append((our, their))
    assert not wrong
    assert stricter > 0  # else the exception has no reason any more
