"""The libraries that a program needs are those that the system's loader takes."""

from __future__ import annotations

import os
import random
import re
import subprocess
from pathlib import Path

import pytest
from linking import Linker, run

from pytorch_bridge.errors import BundleError
from pytorch_bridge.native import elf
from pytorch_bridge.packages.bundle.closure import Finder, beside, glibc_needed

FULL = os.environ.get("CONFORMANCE") == "full"


def names(closure) -> set[str]:
    return set(closure.libraries)


def loaded(program: Path) -> dict[str, str]:
    """What the loader says that it takes for a program: names and paths, or "" where there is none."""
    done = subprocess.run(
        [program],
        env={"LD_TRACE_LOADED_OBJECTS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    found = {}
    for line in done.stdout.splitlines():
        if match := re.match(r"\s*(\S+) => (not found|\S+)", line):
            path = "" if match[2] == "not found" else os.path.realpath(match[2])
            # One asks in vain, and another later finds it: the program does not start.
            found[match[1]] = path if found.get(match[1], path) else ""
    return found


@pytest.mark.parametrize("seed", range(60 if FULL else 6))
def test_the_loader_takes_the_same(linker: Linker, tmp_path: Path, seed: int) -> None:
    """Libraries in folders of their own, with DT_RPATH, DT_RUNPATH or neither, in two copies or not there."""
    draw = random.Random(seed)
    folders = [tmp_path / f"d{i}" for i in range(4)]
    every = [f"libr{seed}_{i}.so.1" for i in range(7)]

    def paths() -> dict[str, str]:
        some = [
            draw.choice([str(f), f"$ORIGIN/../{f.name}", "${ORIGIN}"])
            for f in draw.sample(folders, draw.randint(1, 3))
        ]
        return draw.choice([{"rpath": ":".join(some)}, {"runpath": ":".join(some)}, {}])

    for name in every:
        for folder in draw.sample(folders, draw.choice([1, 1, 1, 2, 3])):
            needs = draw.sample(every, draw.randint(0, 3))
            linker.library(folder / name, [n for n in needs if n != name], **paths())
    # Now and then one that is nowhere.
    gone = draw.random() < 0.2
    needs = draw.sample(every, 3) + ["libnowhere.so.9"] * gone
    program = linker.program(
        tmp_path / "d0/app", needs, rpath=":".join(map(str, draw.sample(folders, 3)))
    )
    expected = loaded(program)
    missing = {name for name, path in expected.items() if not path}
    if missing:
        # The loader goes on, and the first that it misses is ours.
        with pytest.raises(BundleError) as caught:
            Finder(elf.read(program)).run()
        assert str(caught.value).split(",")[0] in missing, expected
        return
    found = Finder(elf.read(program)).run()
    ours = {n: str(v.source) for n, v in found.libraries.items()}
    assert ours == {n: p for n, p in expected.items() if n not in found.system}


def test_a_library_that_is_not_there_is_named_with_where_it_was_looked_for(linker, tmp_path):
    lib = linker.library(tmp_path / "lib/liba.so", ["libgone.so.4"])
    program = linker.program(tmp_path / "app", ["liba.so"], rpath=str(lib.parent))
    with pytest.raises(
        BundleError,
        match=r"libgone.so.4, which .*/lib/liba.so needs, is not on this machine(.|\n)*LD_LIBRARY_PATH",
    ):
        Finder(elf.read(program)).run()


def test_a_library_that_is_needed_by_a_path_is_refused(linker, tmp_path):
    lib = linker.library(tmp_path / "lib/liba.so", soname=None)
    program = tmp_path / "app"
    run(
        "gcc",
        "-x",
        "c",
        "-",
        "-o",
        program,
        "-Wl,--no-as-needed",
        "-x",
        "none",
        lib,
        input="int main(void) { return 0; }\n",
    )
    with pytest.raises(BundleError, match="a path, which leads nowhere on another machine"):
        Finder(elf.read(program)).run()


def closure_of(linker, tmp_path, cpu=False, **first):
    """The closure of a program that needs liba.so, which is in a folder with the others."""
    linker.library(tmp_path / "lib/liba.so", **first)
    program = linker.program(tmp_path / "app", ["liba.so"], rpath=str(tmp_path / "lib"))
    return Finder(elf.read(program), cpu).run()


def test_what_a_library_names_comes_if_it_is_beside_it(linker, tmp_path):
    for name in ("libplug.so", "libdeep.so.2", "libversion.so.3", "libother.so"):
        linker.library(tmp_path / "lib" / name)
    linker.library(tmp_path / "lib/libplug.so", text=["libdeep.so.2"])
    found = closure_of(
        linker,
        tmp_path,
        text=[
            "/folder/libplug.so",
            "libversion.so",
            "see libother.so for more",
            "libz.so.1",
            "libnowhere.so",
        ],
    )
    # Named with a folder, by one that was named, without its version. A sentence is no name, and the
    # system's libz.so.1 is not beside it.
    assert names(found) == {"liba.so", "libplug.so", "libdeep.so.2", "libversion.so.3"}
    assert found.libraries["libdeep.so.2"].named_by == {"libplug.so"}
    assert found.libraries["libplug.so"].needed_by == set()


def test_of_a_file_and_links_to_it_one_comes(linker, tmp_path):
    linker.library(tmp_path / "lib/libp.so.1.2.3", soname="libp.so.1")
    (tmp_path / "lib/libp.so.1").symlink_to("libp.so.1.2.3")
    (tmp_path / "lib/libp.so").symlink_to("libp.so.1")
    found = closure_of(linker, tmp_path, text=["libp.so"])
    assert names(found) == {"liba.so", "libp.so.1"}


def test_what_is_named_and_cannot_be_loaded_here_is_left_out(linker, tmp_path):
    linker.library(tmp_path / "lib/libplug.so", ["libgone.so.7"])
    found = closure_of(linker, tmp_path, text=["libplug.so"])
    assert names(found) == {"liba.so"}
    assert found.left_out["libplug.so"].why == "it needs libgone.so.7, which is not on this machine"


def test_what_is_for_python_is_not_taken(linker, tmp_path):
    linker.library(tmp_path / "lib/libtorch_python.so")
    assert names(closure_of(linker, tmp_path, text=["libtorch_python.so"])) == {"liba.so"}


def test_for_the_processor_what_is_named_and_needs_a_gpu_is_left_out(linker, tmp_path):
    """And what is needed stays, as libcudart of libtorch_cpu.so: without it nothing starts."""
    for name in ("libcudart.so.13", "libcublas.so.13", "libplain.so"):
        linker.library(tmp_path / "lib" / name)
    linker.library(tmp_path / "lib/libtorch_cuda.so", ["libcublas.so.13", "libcudart.so.13"])
    linker.library(tmp_path / "lib/libdriver.so", ["libcuda.so.1"])
    first = {
        "needs": ["libcudart.so.13"],
        "text": ["libtorch_cuda.so", "libdriver.so", "libplain.so"],
    }
    whole = closure_of(linker, tmp_path, **first)
    assert names(whole) == {
        "liba.so",
        "libcudart.so.13",
        "libcublas.so.13",
        "libplain.so",
        "libtorch_cuda.so",
        "libdriver.so",
    }
    assert whole.system["libcuda.so.1"] == {"libdriver.so"}
    small = closure_of(linker, tmp_path, cpu=True, **first)
    assert names(small) == {"liba.so", "libcudart.so.13", "libplain.so"}
    assert set(small.left_out) == {"libtorch_cuda.so", "libcublas.so.13", "libdriver.so"}
    assert {v.why for v in small.left_out.values()} == {"only a GPU needs it"}


def test_for_the_processor_libtorch_so_draws_in_no_gpu(linker, tmp_path):
    """What is compiled for Python needs libtorch.so, which needs all of torch."""
    linker.library(tmp_path / "lib/libtorch_cpu.so")
    linker.library(tmp_path / "lib/libtorch_cuda.so", ["libcublas.so.13"])
    linker.library(tmp_path / "lib/libtorch.so", ["libtorch_cpu.so", "libtorch_cuda.so"])
    linker.library(tmp_path / "ops/libops.so", ["libtorch.so"])
    linker.library(
        tmp_path / "lib/libcgotorch.so", ["libtorch_cpu.so"], rpath=str(tmp_path / "lib")
    )
    program = linker.program(tmp_path / "app", ["libcgotorch.so"], rpath=str(tmp_path / "lib"))
    found = Finder(elf.read(program), cpu=True).run([elf.read(tmp_path / "ops/libops.so")])
    assert names(found) == {"libcgotorch.so", "libtorch_cpu.so", "libtorch.so"}
    umbrella = found.libraries["libtorch.so"]
    assert umbrella.without == ("libtorch_cuda.so",)
    elf.drop_needed(umbrella.source, "libtorch_cuda.so")
    assert elf.read(umbrella.source).needed == ("libtorch_cpu.so", "libtorch_cpu.so")


def test_an_older_library_than_was_linked_with_is_refused(tmp_path):
    old, new = tmp_path / "old/libv.so", tmp_path / "new/libv.so"
    for path, versions in ((old, "V_1 { f; };"), (new, "V_1 { f; };\nV_2 { g; } V_1;")):
        path.parent.mkdir()
        (script := path.with_suffix(".map")).write_text(versions)
        code = "void f(void) {}\nvoid g(void) {}\n"
        run(
            "gcc",
            "-shared",
            "-fPIC",
            "-x",
            "c",
            "-",
            "-o",
            path,
            "-Wl,-soname,libv.so",
            f"-Wl,--version-script={script}",
            input=code,
        )
    program = tmp_path / "app"
    code = "void f(void); void g(void); int main(void) { f(); g(); }\n"
    run(
        "gcc",
        "-x",
        "c",
        "-",
        "-o",
        program,
        "-x",
        "none",
        new,
        f"-Wl,-rpath,{old.parent}",
        input=code,
    )
    with pytest.raises(
        BundleError, match=r"app needs V_2 of libv\.so, which .*old/libv\.so does not have"
    ):
        glibc_needed(Finder(elf.read(program)).run())


def test_the_oldest_glibc_is_that_of_the_newest_symbol(tmp_path):
    """As binutils' list of a program's symbols has it."""
    program = tmp_path / "app"
    run(
        "gcc",
        "-x",
        "c",
        "-",
        "-o",
        program,
        "-lm",
        input="#include <math.h>\nint main(int n, char **v) { return (int)exp((double)n) + *v[0]; }\n",
    )
    closure = Finder(elf.read(program)).run()
    symbols = run("objdump", "-p", program)
    asked = [tuple(map(int, m.split("."))) for m in re.findall(r"GLIBC_(\d+\.\d+)", symbols)]
    assert glibc_needed(closure) == (".".join(map(str, max(asked))), "app")


def test_names_are_found_without_the_table_of_sections(linker, tmp_path):
    path = linker.library(tmp_path / "lib/liba.so", text=["libplug.so"])
    linker.library(tmp_path / "lib/libplug.so")
    data = bytearray(path.read_bytes())
    data[0x28:0x30] = bytes(8)  # e_shoff
    data[0x3C:0x40] = bytes(4)  # e_shnum, e_shstrndx
    path.write_bytes(data)
    read = elf.read(path)
    assert "libplug.so" in read.names
    assert [p.name for p in beside("libplug.so", read, ())] == ["libplug.so"]


def test_the_loader_s_path_counts_as_it_does_for_the_program(linker, tmp_path, monkeypatch):
    linker.library(tmp_path / "far/liba.so")
    program = linker.program(tmp_path / "app", ["liba.so"])
    monkeypatch.setenv("LD_LIBRARY_PATH", f":{tmp_path / 'far'}:")
    assert names(Finder(elf.read(program)).run()) == {"liba.so"}


def test_a_folder_that_cannot_be_listed_is_not_an_empty_one(linker, tmp_path, monkeypatch):
    """Not by its mode: whoever may do everything reads it all the same."""
    listdir = os.listdir

    def refused(folder):
        if Path(folder).is_relative_to(tmp_path):
            raise PermissionError(13, "Permission denied", str(folder))
        return listdir(folder)

    monkeypatch.setattr("pytorch_bridge.packages.bundle.closure.os.listdir", refused)
    with pytest.raises(BundleError, match="cannot be listed: Permission denied"):
        closure_of(linker, tmp_path, text=["libp.so"])
