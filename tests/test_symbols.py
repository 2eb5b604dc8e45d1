"""The names that libcgotorch.so shows to the linker, and programs that have the same names in C."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from pytorch_bridge.native import build
from pytorch_bridge.native.toolchain import ROOT
from pytorch_bridge.packages.go_package import abi
from pytorch_bridge.testing.gotests import run_go

NEW_AND_DELETE = {"_Znwm", "_ZdlPv", "_ZdlPvm"}


def declared() -> set[str]:
    """Every function of the C API, by its name in C."""
    return set(abi._declarations()[0])


def symbol(name: str) -> str:
    return name if name.startswith("cgotorch_") else f"cgotorch_{name}"


def read(*command) -> str:
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=True
    ).stdout


def test_every_symbol_has_the_prefix(library):
    if library.sanitize or build.sanitizer_of(library.out):
        pytest.skip("a sanitizer adds symbols of its own")
    lines = read("nm", "-D", "--defined-only", library.library).splitlines()
    exported = {line.split()[2] for line in lines}
    assert exported - NEW_AND_DELETE == {name for name in exported if name.startswith("cgotorch_")}
    functions = {line.split()[2] for line in lines if line.split()[1] == "T"}
    wanted = {symbol(name) for name in declared()}
    assert len(wanted) == len(declared()) > 3000  # no two functions share a symbol
    assert functions >= wanted
    # What is exported beside the header's is declared in another, for the Go package.
    internal = "".join(header.read_text() for header in (ROOT / "cgotorch").glob("*.h"))
    rest = functions - wanted - NEW_AND_DELETE
    assert [name for name in rest if f" {name}(" not in re.sub(r"\*", " ", internal)] == []


def test_the_library_can_be_loaded_late(library):
    """Its thread locals must fit into the little room that glibc keeps for libraries loaded after the program's start, of
    which torch's take some: 1,592 bytes did not fit beside torch 2.15, and 1,480 did."""
    if library.sanitize or build.sanitizer_of(library.out):
        pytest.skip("a sanitizer adds thread locals of its own")
    (size,) = re.findall(
        r"^ +TLS(?: +0x\w+){4} +(0x\w+)", read("readelf", "-lW", library.library), re.M
    )
    assert int(size, 16) <= 1300


def test_the_library_calls_its_own_functions(library):
    relocations = read("readelf", "-rW", library.library)
    # What another library could take over would be looked up by name.
    assert re.findall(r"\bcgotorch_\w+", relocations) == []
    # But not what a program may replace, for all libraries.
    assert set(re.findall(r"\b_Z(?:nw|dl)\w+", relocations)) >= {"_Znwm", "_ZdlPvm"}


@pytest.mark.parametrize(
    "command",
    [
        "gcc -std=c99 -pedantic",
        "gcc -std=c17 -pedantic",
        "g++ -std=c++11 -pedantic",
        "clang -std=c99 -pedantic -Weverything -Wno-padded -Wno-documentation",
        "clang++ -std=c++11 -pedantic",
    ],
)
def test_the_header_compiles_and_names_the_symbols(command, tmp_path):
    compiler, *flags = command.split()
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    source = tmp_path / f"main.{'cc' if '++' in compiler else 'c'}"
    source.write_text(
        "#include <cgotorch.h>\n"
        "const char *use(Tensor a, Tensor *c);\n"
        "const char *use(Tensor a, Tensor *c) {\n"
        "  const char *(*mm)(Tensor, Tensor, Tensor *) = &MM;\n"
        "  const char *error = mm(a, a, c);\n"
        "  return error ? error : Max(a, c);\n"
        "}\n"
    )
    flags += ["-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'cgotorch'}", "-c", "-o"]
    made = source.with_suffix(".o")
    subprocess.run([compiler, *flags, str(made), str(source)], check=True)
    undefined = {line.split()[1] for line in read("nm", "--undefined-only", made).splitlines()}
    assert {"cgotorch_MM", "cgotorch_Max"} <= undefined
    assert not {"MM", "Max"} & undefined


# Programs with such names of their own -------------------------------------------------------------

TRAINS = """
func main() {
	x := gotorch.FromSlice([]float32{1, -2, 3}, 3)
	fmt.Println(gotorch.Data[float32](x.Add(x)), gotorch.Data[float32](x.Max()))
	w := gotorch.FromSlice([]float32{1, 2, 3, 4}, 2, 2)
	w.RequiresGrad_(true)
	w.MM(w).Sum().Backward()
	fmt.Println(gotorch.Data[float32](w.Grad()), gotorch.Item[float32](x.Mul(x).Sum()))
	err := gotorch.Try0(func() { x.MM(x) })
	fmt.Println(errors.Is(err, gotorch.RuntimeError))
	%s
}
"""
EXPECTED = "[2 -4 6] [3]\n[7 11 9 13] 14\ntrue\n"

IN_C = """\
#include <stdio.h>
#include <stdlib.h>

%s
int Sub(int a, int b) { return a - b; }
"""

PREAMBLE = """\
package main

// int Sub(int a, int b);
import "C"

import (
	"errors"
	"fmt"

	"gotorch.dev/gotorch"
)
"""

EXPORTING = """\
package main

import "C"

import (
	"errors"
	"fmt"

	"gotorch.dev/gotorch"
)

//export Add
func Add(a, b C.int) C.int { panic("Add of this program was called") }

//export Max
func Max() { panic("Max of this program was called") }

//export FreeTensor
func FreeTensor() { panic("FreeTensor of this program was called") }

//export TensorFromData
func TensorFromData() { panic("TensorFromData of this program was called") }

//export thunk_Add
func thunk_Add() { panic("thunk_Add of this program was called") }
"""

LINKED = """\
package main

// #cgo LDFLAGS: -Wl,--no-as-needed -L${SRCDIR} -lothers -Wl,-rpath,${SRCDIR}
// int Sub(int a, int b);
import "C"

import (
	"errors"
	"fmt"

	"gotorch.dev/gotorch"
)
"""


@pytest.fixture(scope="module")
def programs(library, tmp_path_factory):
    """Three programs: one has the names of the C API as C functions, one as exported Go functions,
    and one is linked with a library that has them all."""
    folder = tmp_path_factory.mktemp("programs")
    (folder / "go.mod").write_text(
        "module example.org/programs\n\ngo 1.26.0\n\nrequire gotorch.dev v0.0.0\n\n"
        f"replace gotorch.dev => {ROOT}\n"
    )
    names = {name for name in declared() if not name.startswith("cgotorch_")} - {"Sub"}
    names |= {"thunk_Add", "thunk_MM", "thunk_Max"}
    every = "\n".join(
        f'void {name}(void) {{ puts("{name} of others"); fflush(stdout); abort(); }}'
        for name in names
    )
    program = TRAINS % "fmt.Println(C.Sub(44, 2))"
    for name, go, c in (
        ("c", PREAMBLE + program, IN_C % every),
        ("exporting", EXPORTING + TRAINS % "fmt.Println(42)", None),
        ("linked", LINKED + program, None),
    ):
        (folder / name).mkdir()
        (folder / name / "main.go").write_text(go)
        if c is not None:
            (folder / name / "own.c").write_text(c)
    others = folder / "others.c"
    others.write_text(IN_C % every)
    into = folder / "linked/libothers.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(into), str(others)], check=True)
    built = run_go("build", "-o", f"{folder}/bin/", "./...", cwd=folder)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.parametrize("name", ["c", "exporting", "linked"])
def test_a_program_with_the_same_names_runs(programs, name):
    # First in the order in which symbols are looked up, as a program's own are.
    preload = {"LD_PRELOAD": str(programs / "linked/libothers.so")} if name == "linked" else {}
    done = subprocess.run(
        [programs / "bin" / name], env=preload, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == (EXPECTED + "42\n", "", 0)
