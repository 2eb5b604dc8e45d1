"""The areas of the code: which files, how a mutant is built, and which tests are about it.

Stages run one after the other, the narrowest first, up to the first failure. A mutant that passes
the last one has survived.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_PYTEST = ["python", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
# A sanitizer reserves more memory than a mutant may have.
_PYTEST += ["-k", "not sanitizer"]
_BUILD = ["python", "-m", "pytorch_bridge", "build"]
_GO_TEST_NAME = re.compile(r"^func ((?:Test|Fuzz|Example)\w*)[(]", re.M)


@dataclass(frozen=True)
class Area:
    """Part of the code. Commands run in the copy, `python` and `go` are those of the repository."""

    files: tuple[str, ...]
    """Patterns of files; generated ones are never among them."""
    stages: Callable[[Path, str], list[list[str]]]
    """The tests of a file, given the root."""
    prepare: tuple[list[str], ...] = (_BUILD,)
    """Once, before the first mutant."""
    compile: tuple[list[str], ...] = ()
    """After a change. Where one fails, the mutant does not compile."""
    at_once: int = 1
    """How many mutants are compiled into one program, which has a switch for each."""
    switch: Callable[[Path, list[str]], dict[str, str]] = lambda root, files: {}
    """What files say that have switches: $GOTORCH_MUTANT is the number of the one that is on. The
    text goes in front of what the file says."""


def _python(near: dict[str, list[str]], far: list[str]) -> Callable[..., list[list[str]]]:
    """The test files about a source file, then those of the area."""

    def stages(root: Path, file: str) -> list[list[str]]:
        first = near.get(Path(file).stem, far[:1])
        rest = [test for test in far if test not in first]
        return [[*_PYTEST, *(f"tests/graph/{test}" for test in tests)] for tests in (first, rest)]

    return stages


def _tests_in(path: Path) -> str:
    """A pattern for the tests of a Go file; one that nothing matches where there are none."""
    text = path.read_text() if path.exists() else ""
    return f"^({'|'.join(_GO_TEST_NAME.findall(text))})$"


_PROGRAM = "build/root.test"
_RUN = ["env", "-C", "gotorch", f"../{_PROGRAM}", "-test.failfast", "-test.short"]
_LINK = ["go", "test", "-c", "-vet=off", "-o", _PROGRAM, "./gotorch"]


def _go(root: Path, file: str) -> list[list[str]]:
    source = root / file
    near = _tests_in(source.with_name(source.stem + "_test.go"))
    return [
        *([[*_RUN, "-test.run", near]] if "Test" in near else []),
        _RUN,
    ]


def _go_switch(root: Path, files: list[str]) -> dict[str, str]:
    text = """package gotorch

import "os"
import "strconv"

var mutantInEffect, _ = strconv.Atoi(os.Getenv("GOTORCH_MUTANT"))

func mutant(n int) bool { return mutantInEffect == n }
"""
    return {"gotorch/mutant_switch.go": text}


def _c_switch(root: Path, files: list[str]) -> dict[str, str]:
    text = """#include <stdlib.h>
static bool mutant(int n) {
  static const char *const given = getenv("GOTORCH_MUTANT");
  static const int in_effect = given ? atoi(given) : 0;
  return in_effect == n;
}
"""
    return dict.fromkeys(files, text)


# The Go tests about a file of C++, where they are not those of the Go file of that name.
_GO_TESTS_OF = {
    "allocator": "memory scope outofmemory threads",
    "convert": "index io tensor",
    "generator": "generator",
    "graph": "tensor",
    "loops": "tensor print",
    "modes": "modes",
    "objects": "memory scope",
    "runtime": "memory threads tensor",
    "safetensors": "io",
    "tensor": "tensor data",
}


def _c(root: Path, file: str) -> list[list[str]]:
    names = _GO_TESTS_OF.get(Path(file).stem, Path(file).stem).split()
    patterns = [_tests_in(root / f"gotorch/{name}_test.go") for name in names]
    near = "|".join(pattern for pattern in patterns if "Test" in pattern)
    python = {
        "allocator": ["test_allocator.py"],
        "aoti": ["test_aoti.py"],
        "aoti_checks": ["test_aoti.py"],
        "archive": ["test_aoti.py", "test_jit.py"],
        "jit": ["test_jit.py"],
        "jit_checks": ["test_jit.py"],
        "autograd": ["test_callbacks.py"],
        "dispatch": ["test_callbacks.py"],
        "graph": ["graph/test_graph_c.py"],
        "loops": ["graph/test_fusion.py", "graph/test_native_c.py"],
        "safetensors": ["test_files.py"],
        "io": ["test_files.py"],
    }.get(Path(file).stem, [])
    last = ["test_c_abi.py", "test_callbacks.py", "test_symbols.py"]
    tests = [*python, *(test for test in last if test not in python)]
    return [
        *([[*_RUN, "-test.run", near]] if near else []),
        *([[*_PYTEST, *(f"tests/{test}" for test in python)]] if python else []),
        _RUN,
        [*_PYTEST, *(f"tests/{test}" for test in tests)],
    ]


AREAS = {
    "rewrite": Area(
        ("pytorch_bridge/rewrite/*.py",),
        _python(
            {
                "fuse": ["test_fusion.py"],
                "inplace": ["test_in_place.py", "test_rewrites.py"],
                "sharing": ["test_separate.py", "test_in_place.py"],
            },
            [
                "test_rewrites.py",
                "test_in_place.py",
                "test_fusion.py",
                "test_separate.py",
                "test_native_c.py",
                "test_c_linker.py",
                "test_random_graphs.py",
            ],
        ),
    ),
    "link": Area(
        ("pytorch_bridge/link/*.py",),
        _python(
            {
                "cache": ["test_cache.py"],
                "compile": ["test_cache.py"],
                "content": ["test_inductor.py"],
                "inductor": ["test_inductor.py"],
                "tracing": ["test_inductor.py"],
                "python": ["test_ops.py"],
                "blocks": ["test_long_graphs.py"],
            },
            [
                "test_c_linker.py",
                "test_cache.py",
                "test_native_c.py",
                "test_ops.py",
                "test_graph_c.py",
                "test_fusion.py",
                "test_random_graphs.py",
            ],
        ),
    ),
    "go": Area(("gotorch/*.go",), _go, compile=(_LINK,), at_once=32, switch=_go_switch),
    "c": Area(
        ("cgotorch/*.cc",),
        _c,
        prepare=(_BUILD, _LINK),
        compile=(_BUILD,),
        at_once=32,
        switch=_c_switch,
    ),
}


def files_of(area: Area, root: Path) -> list[str]:
    """The files of an area that are written by hand and are not tests."""
    paths = sorted(path for pattern in area.files for path in root.glob(pattern))
    return [
        str(path.relative_to(root))
        for path in paths
        if "_gen" not in path.name and not path.name.endswith("_test.go")
    ]
