"""Numbers that a Go type may not hold: Item and ToSlice refuse what libtorch's item<T>() refuses."""

from __future__ import annotations

import platform
import re
import subprocess
from pathlib import Path

import pytest

from pytorch_bridge.native.toolchain import ROOT
from pytorch_bridge.testing.gotests import run_go

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


# Packages that compute with numbers as Python does, to the last bit.
AS_PYTHON = ("optim/...", "nn/init", "distributions/...")
FUSED = re.compile(r"\(\S*?(\w+\.go:\d+)\)\s+(VFN?M\w+)")


def fused(folder: Path, package: str, files: list[str], level: str, config: str) -> list[str]:
    """Where the compiler rounds a product and a sum at once, for processors that can."""
    said = run_go(
        "tool", "compile", "-p", package, "-importcfg", config, "-S", "-o", str(folder / "out.o"),
        *files, GOAMD64=level,
    )  # fmt: skip
    assert said.returncode == 0, said.stdout[-2000:] + said.stderr[-2000:]
    return [" ".join(m) for m in FUSED.findall(said.stdout)]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="GOAMD64 is of that processor")
def test_no_product_is_fused_with_a_sum(tmp_path: Path) -> None:
    """Go may fuse x*y + z unless the product is converted to float64, and does with GOAMD64=v3."""
    shown = "{{if .Export}}{{.ImportPath}}={{.Export}}{{end}}"
    wanted = [f"./gotorch/{p}" for p in AS_PYTHON]
    exports = run_go("list", "-export", "-deps", "-f", shown, *wanted).stdout.split()
    lines = []
    for at, line in enumerate(exports):
        path, _, archive = line.partition("=")
        # What was compiled for v1 may be used by v3, but the compiler compares the names.
        data = Path(archive).read_bytes().replace(b"GOAMD64=v1", b"GOAMD64=v3", 1)
        (tmp_path / f"{at}.a").write_bytes(data)
        lines.append(f"packagefile {path}={tmp_path / f'{at}.a'}\n")
    config = tmp_path / "importcfg"
    config.write_text("".join(lines))
    listed = run_go("list", "-f", '{{.ImportPath}} {{.Dir}} {{join .GoFiles ","}}', *wanted).stdout
    found = {}
    for line in listed.splitlines():
        package, directory, names = line.split()
        files = [f"{directory}/{name}" for name in names.split(",")]
        if places := fused(tmp_path, package, files, "v3", str(config)):
            found[package] = sorted(set(places))
    assert found == {}, "write x + float64(y*z)"
    seen = tmp_path / "seen.go"
    seen.write_text("package seen\n\nfunc F(x, y, z float64) float64 { return x*y + z }\n")
    assert fused(tmp_path, "seen", [str(seen)], "v3", str(config))
