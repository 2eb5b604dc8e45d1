"""`python -m pytorch_bridge bundle`: of a program with a small library, which takes a second, and of one with
libtorch. Run in a root of their own with libc and nothing else, where the system allows one."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import http.server
import io
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from linking import run, run_in

from pytorch_bridge import cli
from pytorch_bridge.native import elf
from pytorch_bridge.native.toolchain import ROOT, find_go
from pytorch_bridge.packages.bundle import BundleError, bundle, contents

FULL = os.environ.get("CONFORMANCE") == "full"

# Of what `make test` has compiled already, only the program is linked; -trimpath would compile all of it anew.
# The bundles of the small program have it.
CACHED = ["-trimpath=false"]

MAIN = """\
package main

// #cgo LDFLAGS: -L${SRCDIR}/../clib -lsmall -Wl,-rpath,${SRCDIR}/../clib
// int small(void);
import "C"

import (
	"fmt"
	"os"
	"path/filepath"
)

var Version = "none"

func main() {
	program, err := os.Executable()
	if err != nil {
		panic(err)
	}
	data, err := os.ReadFile(filepath.Join(filepath.Dir(program), "data/hello.txt"))
	fmt.Println(C.small(), Version, string(data), err == nil, os.Args[1:])
}
"""


@pytest.fixture(scope="module")
def module(tmp_path_factory) -> Path:
    """A Go module with programs, one of which needs a library that loads another by its name."""
    top = tmp_path_factory.mktemp("module")
    files = {
        "go.mod": "module example.org/shop\n\ngo 1.26\n",
        "LICENSE": "Do as you like.\n",
        "app/main.go": MAIN,
        "app/tagged.go": '//go:build special\n\npackage main\n\nfunc init() { Version = "tagged" }\n',
        "pure/main.go": 'package main\n\nfunc main() { println("pure") }\n',
        "broken/main.go": "package main\n\nfunc main() { undefined() }\n",
        "library/library.go": "package library\n",
        "lib/main.go": "package main\n\nfunc main() {}\n",
        "data/hello.txt": "hello",
    }
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    (top / "clib").mkdir()
    code = "int plug(void) { return 42; }\n"
    run("gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", top / "clib/libplug.so", input=code)
    code = """#include <dlfcn.h>
    static const char *const name = "libplug.so";
    int small(void) {
      void *plug = dlopen(name, RTLD_NOW);
      return plug ? ((int (*)(void))dlsym(plug, "plug"))() : -1;
    }
    """
    flags = [f"-Wl,-rpath,{top / 'clib'}", "-Wl,-soname,libsmall.so"]
    run(
        "gcc",
        "-shared",
        "-fPIC",
        "-x",
        "c",
        "-",
        "-o",
        top / "clib/libsmall.so",
        *flags,
        input=code,
    )
    return top


@pytest.fixture
def shop(module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to write to, and the module's as the one to work in."""
    monkeypatch.chdir(module)
    for name in ("GOFLAGS", "SOURCE_DATE_EPOCH", "LD_LIBRARY_PATH", "GOOS", "GOARCH"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


SAID = "42 none hello true [a b]\n"


def tree(folder: Path) -> dict[str, str]:
    return contents.sums(folder)


def left_behind(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.endswith(".part")]


# The folder ---------------------------------------------------------------------------------------


def test_a_bundle_runs_where_it_is_copied_and_the_library_is_gone(shop, module, namespaces):
    made = bundle("./app", shop / "dist", include=["data"])
    assert set(os.listdir(made.folder)) == {
        "app",
        "lib",
        "licenses",
        "data",
        "bundle.json",
        "SHA256SUMS",
    }
    assert set(os.listdir(made.folder / "lib")) == {"libsmall.so", "libplug.so"}
    assert made.manifest["libraries"]["libplug.so"]["named_by"] == ["libsmall.so"]
    assert made.manifest["included"] == {"data/hello.txt": 5}
    run("sha256sum", "--quiet", "--strict", "-c", "SHA256SUMS", cwd=made.folder)
    assert str(module).encode() not in b"".join(
        p.read_bytes() for p in made.folder.rglob("*") if p.is_file()
    )
    assert (
        made.folder / "licenses/golang/example.org/shop/LICENSE"
    ).read_text() == "Do as you like.\n"
    assert (
        "BSD" in (made.folder / "licenses/golang/stdlib/LICENSE").read_text()
        or "Redistribution" in (made.folder / "licenses/golang/stdlib/LICENSE").read_text()
    )

    moved = shop / "a folder, größer ☃ = 2"
    shutil.copytree(made.folder, moved)
    hidden = module / "clib.gone"
    (module / "clib").rename(hidden)
    try:
        assert run(moved / "app", "a", "b", env={}, cwd="/") == SAID
        (shop / "link").symlink_to(moved / "app")
        assert run(shop / "link", "a", "b", env={}, cwd="/") == SAID
        # Another library of that name does not come in.
        assert (
            run(moved / "app", "a", "b", env={"LD_LIBRARY_PATH": str(hidden.parent / "none")})
            == SAID
        )
    finally:
        hidden.rename(module / "clib")


def fresh_root(folder: Path, manifest: dict, *, libc: bool = True) -> Path:
    """A root with the loader and the parts of glibc that a bundle says it needs, and nothing else."""
    (folder / "tmp").mkdir(parents=True)
    if libc:
        loader = Path(manifest["needs"]["interpreter"])
        places = {loader.name: loader}
        for line in run(
            "ldconfig", "-p", env={"PATH": "/sbin:/usr/sbin:/bin:/usr/bin"}
        ).splitlines():
            if match := re.match(r"\s*(\S+) \(.*x86-64.*\) => (\S+)", line):
                places.setdefault(match[1], Path(match[2]))
        for name in {*manifest["needs"]["libraries"], loader.name}:
            (folder / str(places[name]).lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(places[name], folder / str(places[name]).lstrip("/"))
    return folder


def test_in_a_root_with_libc_alone_it_runs(shop, namespaces):
    if namespaces:
        pytest.skip(namespaces)
    made = bundle("./app", shop / "dist", include=["data"])
    root = fresh_root(shop / "root", made.manifest)
    shutil.copytree(made.folder, root / "opt/my app")
    done = run_in(root, "/opt/my app/app", "a", "b")
    assert (done.stdout, done.stderr) == (SAID, "")


def test_made_twice_it_is_the_same_to_the_last_bit(shop, module, monkeypatch):
    """Whoever makes it, whenever, into whatever folder; in a tar too."""
    made, modes = [], []
    for i, umask in enumerate((0o22, 0o77)):
        (shop / str(i)).mkdir()
        old = os.umask(umask)
        try:
            made.append(
                bundle(
                    "./app",
                    shop / f"{i}/dist",
                    include=["data"],
                    sbom=True,
                    tar=shop / f"{i}.tar.gz",
                )
            )
        finally:
            os.umask(old)
        (module / "data/hello.txt").touch()
        modes.append(
            {n: (p.stat().st_mode, p.stat().st_mtime) for n, p in contents.walk(made[-1].folder)}
        )
    assert tree(made[0].folder) == tree(made[1].folder)
    assert modes[0] == modes[1]
    assert (shop / "0.tar.gz").read_bytes() == (shop / "1.tar.gz").read_bytes()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    dated = bundle("./app", shop / "dated", include=["data"], sbom=True)
    assert {p.stat().st_mtime for _, p in contents.walk(dated.folder)} == {1700000000}
    assert (
        json.loads((dated.folder / "sbom.spdx.json").read_text())["creationInfo"]["created"]
        == "2023-11-14T22:13:20Z"
    )


def test_flags_of_go_build_are_passed_on(shop):
    made = bundle(
        "./app",
        shop / "dist",
        name="shop server",
        tags="special",
        ldflags="-s -w",
        build_flags=["-trimpath=false"],
    )
    assert made.program.name == "shop server"
    assert run(made.program, env={}).split()[1] == "tagged"
    info = run(find_go().path, "version", "-m", made.program)
    assert "-tags=special" in info
    assert "-trimpath" not in info
    made = bundle("./app", shop / "dist", ldflags="-X main.Version=1.2.3")
    assert run(made.program, env={}).split()[1] == "1.2.3"
    assert "-trimpath=true" in run(find_go().path, "version", "-m", made.program)
    assert not (shop / "dist/shop server").exists(), "a bundle that is replaced leaves nothing"


def test_a_program_without_libraries_is_one_too(shop):
    made = bundle("./pure", shop / "dist")
    assert made.manifest["needs"]["glibc"] == ""
    assert made.manifest["libraries"] == {}
    assert (
        subprocess.run([made.program], capture_output=True, text=True, env={}, check=False).stderr
        == "pure\n"
    )


def test_an_import_path_a_file_and_another_module_s_folder_are_programs(shop, module, monkeypatch):
    assert (
        bundle("example.org/shop/pure", shop / "a").manifest["package"] == "example.org/shop/pure"
    )
    assert bundle("pure/main.go", shop / "b").program.name == "main"
    monkeypatch.chdir(shop)
    assert bundle(module / "pure", "c").program.name == "pure"
    assert (shop / "c/pure").is_file()


# What is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("package", "options", "said"),
    [
        ("./nothing", {}, "is no Go package that can be built"),
        ("./library", {}, "is package library, and no program"),
        ("./...", {}, "packages; name one program|no Go package that can be built"),
        ("./broken", {}, r"go build refuses example.org/shop/broken:(.|\n)*undefined: undefined"),
        ("./lib", {}, "would be called lib, which is a name of bundle's own; say --name OTHER"),
        ("./pure", {"name": "a/b"}, "is no name of a file"),
        ("./pure", {"name": ".."}, "is no name of a file"),
        ("./pure", {"name": "data", "include": ["data"]}, "and so is what is included"),
        ("./pure", {"include": ["nothing"]}, "does not exist"),
        ("./pure", {"build_flags": ["-o=x"]}, "say --out and --name"),
        ("./pure", {"build_flags": ["-ldflags=-s"]}, "say --ldflags"),
        ("./pure", {"build_flags": ["-no-such-flag"]}, "go build refuses"),
        ("./pure", {"base": "debian:12"}, "say --oci as well"),
        ("./pure", {"tar": "x.zip"}, "does not end in"),
        ("./pure", {"tar": "@out/x.tar"}, "is within the bundle"),
        ("./pure", {"oci": "@out"}, "is within the bundle"),
        ("./pure", {"oci": "@out.oci", "tar": "@out.oci/x.tar"}, "is within the image"),
        ("./pure", {"oci": "@out/.."}, "is within the image|other things in it"),
        ("./pure", {"oci": "data"}, "other things in it than an OCI layout"),
        (
            "./app",
            {"ldflags": '-extldflags "-Wl,-z,now -static"'},
            "go build refuses|has given app no run path|no program",
        ),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(shop, package, options, said):
    out = shop / "dist"
    options = {
        k: str(v).replace("@out", str(out)) if isinstance(v, str) else v for k, v in options.items()
    }
    with pytest.raises(BundleError) as caught:
        bundle(package, out, **options)
    assert re.search(said, str(caught.value)), caught.value
    assert os.listdir(shop) == []


@pytest.mark.parametrize(("name", "value"), [("GOARCH", "arm64"), ("GOOS", "windows")])
def test_another_machine_s_program_is_refused(shop, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(
        BundleError,
        match=f"the program is to be for .*{value}.*; bundle it on such a machine, or unset",
    ):
        bundle("./pure", shop / "dist")


def test_ldflags_in_goflags_are_refused_because_they_would_be_lost(shop, monkeypatch):
    monkeypatch.setenv("GOFLAGS", "-ldflags=-s")
    with pytest.raises(BundleError, match="say --ldflags instead"):
        bundle("./pure", shop / "dist")


def test_what_is_no_bundle_is_not_replaced(shop):
    (shop / "file").write_text("mine")
    (shop / "folder").mkdir()
    (shop / "folder/bundle.json").write_text('{"mine": 1}')
    (shop / "empty").mkdir()
    (shop / "link").symlink_to("empty")
    before = tree(shop)
    for name, said in (
        ("file", "is a file"),
        ("folder", "other things in it than a bundle"),
        ("link", "is a link"),
    ):
        with pytest.raises(BundleError, match=said):
            bundle("./pure", shop / name)
    assert tree(shop) == before
    assert bundle("./pure", shop / "empty").program.is_file()
    # What a program has written beside itself is not thrown away.
    (shop / "empty/log.txt").write_text("mine")
    with pytest.raises(BundleError, match=r"has got other files since, such as log\.txt"):
        bundle("./pure", shop / "empty")
    assert (shop / "empty/log.txt").read_text() == "mine"
    (shop / "empty/log.txt").unlink()
    # A bundle that cannot be made anew stays.
    before = tree(shop / "empty")
    with pytest.raises(BundleError, match="go build refuses"):
        bundle("./broken", shop / "empty")
    assert tree(shop / "empty") == before
    assert left_behind(shop) == []


def test_a_folder_that_cannot_be_written_is_an_error(shop):
    (shop / "file").write_text("")
    with pytest.raises(BundleError, match="cannot be written"):
        bundle("./pure", shop / "file/dist")


def test_who_is_killed_leaves_the_old_bundle_and_the_next_removes_the_rest(shop, module):
    bundle("./pure", shop / "dist")
    before = tree(shop / "dist")
    code = (
        "import os, signal\n"
        "from pytorch_bridge.packages.bundle import bundle, contents\n"
        "contents.set_dates = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"bundle('./app', {str(shop / 'dist')!r})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert tree(shop / "dist") == before
    assert len(left_behind(shop)) == 1
    bundle("./app", shop / "dist")
    assert left_behind(shop) == []
    assert (shop / "dist/app").is_file()


def test_a_bundle_that_was_put_aside_when_its_replacer_died_comes_back(shop):
    bundle("./pure", shop / "dist")
    before = tree(shop / "dist")
    code = (
        "import os, signal\nfrom pathlib import Path\n"
        "from pytorch_bridge.packages.bundle import bundle\n"
        "from pytorch_bridge import replacing\n"
        "replacing._exchange = lambda a, b: False  # as where the system has no such step\n"
        "real = Path.rename\n"
        "def rename(self, to):\n"
        "    if self.name == 'new': os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return real(self, to)\n"
        "Path.rename = rename\n"
        f"bundle('./pure', {str(shop / 'dist')!r})\n"
    )
    subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert not (shop / "dist").exists()
    with pytest.raises(BundleError, match="go build refuses"):
        bundle("./broken", shop / "dist")
    assert tree(shop / "dist") == before


def test_a_bundle_is_never_away_while_another_takes_its_place(shop, monkeypatch):
    bundle("./pure", shop / "dist")
    (shop / "image").mkdir()
    renamed = []
    real = Path.rename

    def rename(path: Path, to: Path) -> Path:
        renamed.append(path)
        return real(path, to)

    monkeypatch.setattr(Path, "rename", rename)
    made = bundle("./pure", shop / "dist", name="other", oci=shop / "image")
    assert made.program.is_file()
    assert not {shop / "dist", shop / "image"} & set(renamed)
    assert set(os.listdir(shop)) == {"dist", "image"}


def test_where_a_file_system_is_mounted_it_says_so_before_it_builds(shop, monkeypatch):
    mounted = shop / "mounted"
    mounted.mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == mounted)
    for out, more in ((mounted, {}), (shop / "dist", {"oci": mounted})):
        with pytest.raises(BundleError, match=r"is mounted at .*mounted, .* name a folder in it"):
            bundle("./broken", out, **more)
    assert os.listdir(shop) == ["mounted"]
    assert bundle("./pure", mounted / "bundle").program.is_file()


def test_what_the_system_refuses_is_a_bundle_error(shop, module, monkeypatch, capsys):
    long = "a" * 300
    for options in (
        {"include": [long]},
        {"tar": f"{long}.tar"},
        {"oci": long},
        {"include": ["data/" + long]},
    ):
        with pytest.raises(BundleError, match="File name too long"):
            bundle("./pure", shop / "dist", **options)
    gone = shop / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    for out in ("dist", ""):
        assert cli.main(["bundle", str(module / "pure"), "-o", out, "--tar"]) == 1
        assert "No such file or directory" in capsys.readouterr().err
    assert os.listdir(shop) == []


# What is included ---------------------------------------------------------------------------------


HEADERS = {
    "firmware.elf": bytes([1, 1, 1]) + bytes(9) + struct.pack("<HHIIIIIHHHHHH", 2, 94, 1, 0, 0, 0, 0, 52, 0, 0, 0, 0, 0),
    "big.so": bytes([2, 2, 1]) + bytes(9) + struct.pack(">HHIQQQIHHHHHH", 3, 22, 1, 0, 0, 0, 0, 64, 0, 0, 0, 0, 0),
    "arm.so": bytes([2, 1, 1]) + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 183, 1, 64, 64, 99, 0, 64, 56, 9, 64, 9, 9),
    "module.o": bytes([2, 1, 1]) + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, 99, 0, 64, 56, 0, 64, 9, 9),
    "short": b"",
}  # fmt: skip


def test_what_other_machines_run_is_data(shop):
    folder = shop / "firmware"
    folder.mkdir()
    for name, rest in HEADERS.items():
        (folder / name).write_bytes(b"\x7fELF" + rest)
    made = bundle("./app", shop / "dist", include=[folder])
    assert set(made.manifest["included"]) == {f"firmware/{name}" for name in HEADERS}
    for name, rest in HEADERS.items():
        assert (made.folder / "firmware" / name).read_bytes() == b"\x7fELF" + rest
    # One for this machine is to be whole.
    (folder / "mine.so").write_bytes(made.folder.joinpath("lib/libplug.so").read_bytes()[:3000])
    with pytest.raises(BundleError, match=r"mine\.so is no ELF file, or damaged"):
        bundle("./app", shop / "dist", include=[folder])


def test_an_included_library_that_needs_none_of_the_bundle_s_stays_as_it_is(shop, linker):
    """A folder of export_model is known by digests, and some compilers write a run path of their own."""
    alone = linker.library(
        shop / "models/model.so", ["libc.so.6"], runpath="/opt/compiler/lib/libc"
    )
    needs = linker.library(shop / "models/op.so", ["libsmall.so"], runpath="/opt/compiler/lib/libc")
    made = bundle("./app", shop / "dist", include=[shop / "models"])
    assert (made.folder / "models/model.so").read_bytes() == alone.read_bytes()
    assert elf.read(made.folder / "models/op.so").rpath == ("$ORIGIN/../lib",)
    assert elf.read(needs).runpath == ("/opt/compiler/lib/libc",)


def test_the_glibc_that_an_included_library_needs_counts(shop):
    (shop / "versions").write_text("GLIBC_2.99 { global: later; };\n")
    shared = ["gcc", "-shared", "-fPIC", "-nostdlib", "-x", "c", "-"]
    flags = [f"-Wl,--version-script={shop}/versions", "-Wl,-soname,libc.so.6"]
    run(*shared, *flags, "-o", shop / "libc.so.6", input="void later(void) {}\n")
    code = "void later(void);\nvoid use(void) { later(); }\n"
    more = ["-x", "none", shop / "libc.so.6", "-o", shop / "libnew.so"]
    run(*shared, *more, input=code)
    needs = bundle("./app", shop / "dist", include=[shop / "libnew.so"]).manifest["needs"]
    assert (needs["glibc"], needs["glibc_because_of"]) == ("2.99", "libnew.so")


OPENS = """\
package main

// #cgo LDFLAGS: -L${SRCDIR}/clib -lshort -Wl,-rpath,${SRCDIR}/clib -Wl,--disable-new-dtags
// #include <dlfcn.h>
// int shallow(void);
// static int opened(void) {
//   void *plug = dlopen("libopened.so", RTLD_NOW);
//   return plug ? ((int (*)(void))dlsym(plug, "opened"))() : -1;
// }
import "C"

import "fmt"

func main() { fmt.Println(C.shallow(), C.opened()) }
"""


def test_what_the_program_opens_by_name_comes_and_so_does_a_library_with_a_short_run_path(shop):
    """There is no room for $ORIGIN in that, and no need of it: the program's run path is for all."""
    (shop / "clib").mkdir()
    (shop / "go.mod").write_text("module example.org/opens\n\ngo 1.26\n")
    (shop / "main.go").write_text(OPENS)

    def library(name: str, code: str, *flags: str | Path) -> None:
        out = shop / f"clib/lib{name}.so"
        run("gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", out, *flags, input=code)

    library("opened", "int opened(void) { return 6; }\n")
    library("deep", "int deep(void) { return 7; }\n")
    flags = ["-Wl,--disable-new-dtags,-rpath,/opt/q", f"-L{shop}/clib", "-ldeep"]
    library("short", "int deep(void);\nint shallow(void) { return deep(); }\n", *flags)
    made = bundle(shop, shop / "dist")
    assert made.manifest["libraries"]["libopened.so"]["named_by"] == ["opens"]
    assert elf.read(made.folder / "lib/libshort.so").rpath == ()
    (shop / "clib").rename(shop / "gone")
    assert run(made.program, env={}) == "7 6\n"


def test_weights_of_exported_packages_come_by_themselves(shop, module, tmp_path):
    generated = "// Code generated by pytorch_bridge.export_go; DO NOT EDIT.\n\npackage digits\n"
    top = tmp_path / "weights"
    files = {
        "go.mod": "module example.org/w\n\ngo 1.26\n\nrequire example.org/other v0.0.0\n\nreplace example.org/other => ../other\n",
        "main.go": 'package main\n\nimport (\n\t_ "example.org/other/far"\n\t_ "example.org/w/models/digits"\n\t_ "example.org/w/inside"\n\t_ "example.org/w/byhand"\n)\n\nfunc main() {}\n',
        "models/digits/forward_gen.go": generated,
        "inside/forward_gen.go": generated.replace("digits", "inside"),
        "inside/embed.go": 'package inside\n\nimport _ "embed"\n\n//go:embed weights.safetensors\nvar w []byte\n',
        "byhand/x.go": "package byhand\n",
        "../other/go.mod": "module example.org/other\n\ngo 1.26\n",
        "../other/far/forward_gen.go": generated.replace("digits", "far"),
    }
    for name in ("models/digits", "inside", "byhand", "../other/far"):
        files[f"{name}/weights.safetensors"] = name
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    made = bundle(top, tmp_path / "dist")
    # Where they are beside go.mod; of another module by the package's name. What is embedded is in the program.
    assert set(made.manifest["included"]) == {
        "models/digits/weights.safetensors",
        "far/weights.safetensors",
    }
    moved = bundle(
        top, tmp_path / "dist", include=[f"{top}/models/digits/weights.safetensors=mine/"]
    )
    assert set(moved.manifest["included"]) == {
        "mine/weights.safetensors",
        "far/weights.safetensors",
    }


def test_what_an_included_library_needs_comes_too(shop, linker, module):
    linker.library(shop / "more/libdeep.so.1")
    linker.library(shop / "ops/libops.so", ["libdeep.so.1"], runpath=str(shop / "more"))
    linker.library(shop / "ops/a/b/libbare.so")
    linker.program(shop / "ops/a/tool", ["libdeep.so.1"], runpath=str(shop / "more"))
    made = bundle("./app", shop / "dist", include=[shop / "ops"])
    assert made.manifest["libraries"]["libdeep.so.1"]["needed_by"] == ["libops.so", "tool"]
    assert (made.folder / "ops/libops.so").is_file()
    # It looks in the bundle, with a DT_RPATH: what loads it then says where, too. So does a program.
    assert elf.read(made.folder / "ops/libops.so").rpath == ("$ORIGIN/../lib",)
    assert elf.read(made.folder / "ops/a/b/libbare.so").rpath == ()
    (shop / "more").rename(shop / "gone")
    run(made.folder / "ops/a/tool", env={})
    assert str(shop).encode() not in (made.folder / "ops/a/tool").read_bytes()
    run("sha256sum", "--quiet", "--strict", "-c", "SHA256SUMS", cwd=made.folder)


def test_what_is_within_an_included_package_of_aotinductor_needs_comes_too(shop, linker):
    import zipfile

    linker.library(shop / "more/libdeep.so.1")
    linker.library(shop / "model.so", ["libdeep.so.1"], rpath=str(shop / "more"))
    with zipfile.ZipFile(shop / "model.pt2", "w") as zipped:
        zipped.write(shop / "model.so", "model/data/aotinductor/model/m.wrapper.so")
    made = bundle("./app", shop / "dist", include=[shop / "model.pt2"])
    assert "libdeep.so.1" in made.manifest["libraries"]
    (shop / "damaged.pt2").write_bytes((shop / "model.pt2").read_bytes()[:-40])
    with pytest.raises(BundleError, match=r"damaged\.pt2 is no package of AOTInductor, or damaged"):
        bundle("./app", shop / "dist", include=[shop / "damaged.pt2"])


# The bill of materials ----------------------------------------------------------------------------


def test_the_bill_of_materials_is_valid_and_complete(shop):
    parse = pytest.importorskip(
        "spdx_tools.spdx.parser.parse_anything",
        reason="spdx-tools, which checks it, is not installed",
    )
    from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

    made = bundle("./app", shop / "dist", include=["data"], sbom=True)
    document = parse.parse_file(str(made.folder / "sbom.spdx.json"))
    assert [m.validation_message for m in validate_full_spdx_document(document, "SPDX-2.3")] == []
    files = {f.name: {c.algorithm.name: c.value for c in f.checksums} for f in document.files}
    here = {
        f"./{n}": d
        for n, d in tree(made.folder).items()
        if n not in ("sbom.spdx.json", "SHA256SUMS")
    }
    assert {name: sums["SHA256"] for name, sums in files.items()} == here
    for name, sums in files.items():
        assert sums["SHA1"] == hashlib.sha1((made.folder / name).read_bytes()).hexdigest()
    assert {p.name for p in document.packages} == {
        "app",
        "example.org/shop",
        "stdlib",
        "libsmall.so",
        "libplug.so",
    }


# The image ----------------------------------------------------------------------------------------


def layers_of(layout: Path) -> tuple[dict, dict, list[bytes]]:
    """An image's manifest, its configuration and its layers, with every digest and size checked."""

    def blob(said: dict) -> bytes:
        algorithm, _, digest = said["digest"].partition(":")
        data = (layout / "blobs" / algorithm / digest).read_bytes()
        assert hashlib.new(algorithm, data).hexdigest() == digest
        assert len(data) == said["size"]
        return data

    assert json.loads((layout / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    (entry,) = json.loads((layout / "index.json").read_text())["manifests"]
    manifest = json.loads(blob(entry))
    assert manifest["mediaType"] == "application/vnd.oci.image.manifest.v1+json"
    config = json.loads(blob(manifest["config"]))
    layers = [gzip.decompress(blob(layer)) for layer in manifest["layers"]]
    assert config["rootfs"]["diff_ids"] == [
        f"sha256:{hashlib.sha256(data).hexdigest()}" for data in layers
    ]
    return {**manifest, "entry": entry}, config, layers


def unpack(layers: list[bytes], root: Path) -> None:
    for layer in layers:
        with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
            # Older patches of Python 3.10 and 3.11 have no filters, and trust by themselves.
            trust = {"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}
            tar.extractall(root, **trust)


def test_an_image_without_a_base_runs(shop, namespaces):
    made = bundle(
        "./app", shop / "dist", include=["data"], oci=shop / "image", ref="shop:1", name="my shop"
    )
    manifest, config, layers = layers_of(made.image)
    assert manifest["entry"]["annotations"]["org.opencontainers.image.ref.name"] == "shop:1"
    assert manifest["entry"]["platform"] == {
        "architecture": made.manifest["needs"]["platform"].split("/")[1],
        "os": "linux",
    }
    assert config["config"]["Entrypoint"] == ["/app/my shop"]
    assert config["config"]["WorkingDir"] == "/app"
    assert config["config"]["User"] == "65532:65532", "not root, where there is no base to say who"
    assert config["created"] == "1970-01-01T00:00:00Z"
    assert len(layers) == 3
    root = shop / "root"
    unpack(layers, root)
    assert tree(root / "app") == tree(made.folder)
    assert (root / "tmp").stat().st_mode & 0o7777 == 0o1777
    if namespaces:
        pytest.skip(namespaces)
    done = run_in(root, *config["config"]["Entrypoint"], "a", "b")
    assert (done.stdout, done.stderr) == (SAID, "")


def test_a_terminal_is_shown_how_far_it_is(shop):
    """And what is not a terminal is not."""
    command = [sys.executable, "-m", "pytorch_bridge", "bundle", "./app", "-o", str(shop / "dist")]
    command += ["--tar", "--oci", "--include", "data"]
    command += ["--include", f"{shop / 'large'}=large"]
    (shop / "large").write_bytes(os.urandom(8 << 20))
    main, terminal = pty.openpty()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=terminal, text=True) as process:
        os.close(terminal)
        seen = b""
        with contextlib.suppress(OSError):  # of Linux, when the other end is closed
            while part := os.read(main, 1 << 16):
                seen += part
        os.close(main)
        assert process.stdout is not None
        said = process.stdout.read()
    assert process.returncode == 0, seen
    assert re.match(r".*dist: \d+ MB", said)
    lines = seen.decode().split("\r\x1b[K")
    assert lines[-1] == "", "the line is gone in the end"
    steps = ["go build", "looking for libraries", "copying", "computing checksums"]
    at = 0
    for step in [*steps, "writing the image", "writing dist.tar"]:
        at = next(i for i, line in enumerate(lines) if i >= at and line.startswith(step))
    for line in lines:
        if found := re.search(r"\[([#.]+)\] (\d+) of (\d+) MB", line):
            bar, done, total = found[1], int(found[2]), int(found[3])
            assert done <= total
            assert total >= 8
            assert len(bar) == 24
            assert abs(bar.count("#") / 24 - done / total) < 0.2
    quiet = subprocess.run(command, capture_output=True, text=True)
    assert (quiet.returncode, quiet.stderr, quiet.stdout) == (0, "", said)


def test_an_image_is_the_same_twice_and_replaces_itself_alone(shop):
    first = bundle("./app", shop / "dist", oci=shop / "image")
    before = tree(first.image)
    modes = {n: p.stat().st_mode for n, p in contents.walk(first.image)}
    assert {oct(m & 0o777) for n, m in modes.items() if n.startswith("blobs/sha256/")} == {"0o644"}
    second = bundle("./app", shop / "dist", oci=shop / "image")
    assert tree(second.image) == before
    (shop / "image/mine.txt").write_text("mine")
    with pytest.raises(BundleError, match="other things in it than an OCI layout"):
        bundle("./app", shop / "dist", oci=shop / "image")
    assert left_behind(shop) == []


def base_layout(
    folder: Path, files: dict[str, bytes], arch: str = "amd64", docker: bool = False
) -> Path:
    """An image with these files, written by hand as an OCI layout, or as the file of docker save."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for name, data in files.items():
            header = tarfile.TarInfo(name)
            header.size = len(data)
            tar.addfile(header, io.BytesIO(data))
    layer = raw.getvalue()
    config = {
        "os": "linux",
        "architecture": arch,
        "config": {"Env": ["PATH=/usr/bin", "MINE=1"], "Cmd": ["sh"], "User": "1000"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        "history": [{"created_by": "hand"}],
    }
    if docker:
        with tarfile.open(folder, "w") as tar:
            said = [{"Config": "config.json", "RepoTags": ["base:1"], "Layers": ["layer.tar"]}]
            for name, data in {
                "config.json": json.dumps(config).encode(),
                "layer.tar": layer,
                "manifest.json": json.dumps(said).encode(),
            }.items():
                header = tarfile.TarInfo(name)
                header.size = len(data)
                tar.addfile(header, io.BytesIO(data))
        return folder
    blobs = folder / "blobs/sha256"
    blobs.mkdir(parents=True)

    def blob(data: bytes, kind: str) -> dict:
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {
            "mediaType": f"application/vnd.oci.image.{kind}",
            "digest": f"sha256:{digest}",
            "size": len(data),
        }

    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob(json.dumps(config).encode(), "config.v1+json"),
        "layers": [blob(gzip.compress(layer), "layer.v1.tar+gzip")],
    }
    entry = {
        **blob(json.dumps(manifest).encode(), "manifest.v1+json"),
        "platform": {"os": "linux", "architecture": arch},
    }
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return folder


def libc(version: str) -> bytes:
    return (
        f"\0GNU C Library (Debian GLIBC {version}-1) stable release version {version}.\n\0".encode()
    )


GOOD = {"usr/lib/x86_64-linux-gnu/libc.so.6": libc("9.99"), "etc/os-release": b"ID=base\n"}


@pytest.fixture
def registry(tmp_path) -> Iterator[str]:
    """A registry of this machine, with an image called base."""
    layout = base_layout(tmp_path / "in the registry", GOOD)
    (entry,) = json.loads((layout / "index.json").read_text())["manifests"]

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, data = "application/octet-stream", b"{}"
            if "/manifests/" in self.path:
                kind, digest = entry["mediaType"], entry["digest"]
            else:
                digest = self.path.rpartition("/")[2]
            path = layout / "blobs/sha256" / digest.removeprefix("sha256:")
            if self.path != "/v2/" and (
                not path.is_file() or not self.path.startswith("/v2/base/")
            ):
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if self.path != "/v2/":
                data = path.read_bytes()
                self.send_response(200)
                self.send_header("Docker-Content-Digest", digest)
            else:
                self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"localhost:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_an_image_stands_on_the_base_that_is_named(shop, registry):
    bases = {"registry": f"{registry}/base:12"}
    if FULL:
        bases["layout"] = str(base_layout(shop / "layout", GOOD))
        bases["docker"] = str(base_layout(shop / "base.tar", GOOD, docker=True))
    for kind, base in bases.items():
        made = bundle("./app", shop / "dist", oci=shop / f"image-{kind}", base=base)
        _, config, layers = layers_of(made.image)
        assert len(layers) == 3, kind
        root = shop / f"root-{kind}"
        unpack(layers, root)
        assert (root / "etc/os-release").read_text() == "ID=base\n"
        assert tree(root / "app") == tree(made.folder)
        assert not (root / "lib64").exists(), "glibc is the base's"
        assert config["config"]["Env"] == ["PATH=/usr/bin", "MINE=1"]
        assert config["config"]["User"] == "1000"
        assert "Cmd" not in config["config"]
        label = config["config"]["Labels"]["org.opencontainers.image.base.name"]
        assert label == (base if kind == "registry" else Path(base).name)


@pytest.mark.parametrize(
    ("base", "said"),
    [
        (
            {"lib/x86_64-linux-gnu/libc-2.12.so": libc("2.12")},
            r"has glibc 2.12, and the program needs 2.\d+: name a newer base",
        ),
        ({"lib/ld-musl-x86_64.so.1": b"musl"}, "has no glibc, but musl: take Debian"),
        ({"bin/busybox": b"static"}, "has no glibc: take Debian"),
        ("arm64", "has 0 images for linux/amd64"),
        ("empty", "cannot be had"),
        ("/nowhere/at/all", "cannot be had"),
        ("UPPER CASE", "cannot be had"),
        ("-v", "is no reference to an image"),
    ],
)
def test_a_base_that_will_not_do_is_refused_and_nothing_is_written(shop, base, said):
    if isinstance(base, dict):
        base = str(base_layout(shop / "base", base))
    elif base == "arm64":
        base = str(base_layout(shop / "base", GOOD, arch="arm64"))
    elif base == "empty":
        (shop / "base").mkdir()
        base = str(shop / "base")
    with pytest.raises(BundleError, match=said):
        bundle("./app", shop / "dist", oci=shop / "image", base=base)
    assert set(os.listdir(shop)) <= {"base"}


# The command line ---------------------------------------------------------------------------------


def test_the_command_says_what_it_did_and_what_to_type(shop, capsys, monkeypatch, module):
    monkeypatch.chdir(shop)
    assert (
        cli.main(
            [
                "bundle",
                str(module / "app"),
                "-o",
                "dist/app",
                "--include",
                f"{module}/data",
                "--tar",
                "--oci",
                "--sbom",
            ]
        )
        == 0
    )
    said = capsys.readouterr().out
    assert re.match(
        r"dist/app: \d+(\.\d)? MB for linux/amd64 with glibc 2\.\d+ or newer\n  in it: app .*, 1 included files 5 bytes, libsmall.so",
        said,
    )
    assert "no licence was found for: libplug.so, libsmall.so\n" in said
    assert "dist/app.tar\ndist/app.oci\nto run it, type: dist/app/app\n" in said
    assert (shop / "dist/app.tar").is_file()
    assert (shop / "dist/app.oci/index.json").is_file()


@pytest.mark.parametrize(
    "words", [["--ldflags", "-X=main.Version=2"], ["--ldflags=-X=main.Version=2"]]
)
def test_flags_are_typed_as_for_go_build(shop, module, words):
    command = ["bundle", "./app", "-o", str(shop / "dist"), "--include", "data"]
    assert cli.main([*command, *words, "--build-flag", "-buildvcs=false"]) == 0
    assert run(shop / "dist/app", env={}).split()[1] == "2"


def test_the_command_s_errors_are_messages(shop, capsys):
    assert cli.main(["bundle", "./library", "-o", str(shop / "dist")]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(
        "python -m pytorch_bridge bundle: example.org/shop/library is package library, and no program"
    )


def test_without_pyelftools_it_says_what_to_type(shop, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "elftools.elf.elffile", None)
    assert cli.main(["bundle", "./pure", "-o", str(shop / "dist")]) == 1
    assert "pyelftools is not installed.\n  To fix it, type: make setup" in capsys.readouterr().err
    assert os.listdir(shop) == []


# With libtorch ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(library, tmp_path_factory) -> Path:
    """The bundle of tests/bundle/probe, for the processor, and its copy is where nothing else is."""
    out = tmp_path_factory.mktemp("real")
    (out / "hello.txt").write_text("hello")
    # As operators in C++ are compiled for Python: they need libtorch.so, which needs all of torch.
    lib, ops = library.torch.lib, out / "libops.so"
    flags = ["-Wl,--no-as-needed", f"-L{lib}", "-ltorch", "-ltorch_cpu", f"-Wl,-rpath,{lib}"]
    flags += ["-Wl,--allow-shlib-undefined"]
    run("gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", ops, *flags, input="")
    program = ROOT / "tests/bundle/probe"
    made = bundle(
        program,
        out / "dist",
        cpu=True,
        include=[f"{out / 'hello.txt'}=data/", f"{ops}=data/"],
        build_flags=CACHED,
    )
    yield made.folder
    shutil.rmtree(out)


def probe(text: str) -> tuple[list[str], set[str]]:
    """What the probe prints, and the libraries that it has loaded."""
    lines = text.splitlines()
    mapped = {line.removeprefix("mapped ") for line in lines if line.startswith("mapped ")}
    return [line for line in lines if not line.startswith("mapped ")], mapped


def test_a_program_with_libtorch_runs_in_a_root_with_libc_alone(
    real, library, namespaces, tmp_path
):
    manifest = json.loads((real / "bundle.json").read_text())
    if namespaces:  # in another folder, then, and with no variable
        folder = tmp_path / "somewhere else"
        shutil.copytree(real, folder, copy_function=os.link)
        done = subprocess.run(
            [folder / "probe"], capture_output=True, text=True, env={}, cwd="/", check=False
        )
    else:
        root = fresh_root(tmp_path / "root", manifest)
        folder = Path("/opt/größer app")
        shutil.copytree(real, root / "opt/größer app", copy_function=os.link)
        done = run_in(root, f"{folder}/probe")
    assert done.returncode == 0, done.stderr
    lines, mapped = probe(done.stdout)
    cuda = library.torch.cuda
    assert lines[:6] == [
        f"torch {library.torch.version}",
        "mm [4 0 0 9]",
        f"inverse {'[0.5 -0 0 0.33333334]' if '-0' in lines[2] else '[0.5 0 0 0.33333334]'}",
        "fft torch.complex64",
        "conv 9",
        "backward 600",
    ]
    assert re.match("cuda .*CUDA is not available", lines[6]) or not cuda
    assert lines[7:9] == ["ops <nil>", "data hello"]
    # Nothing from outside but glibc, and nothing in it that is not needed.
    outside = {Path(p).name for p in mapped if not p.startswith(str(folder))}
    assert outside <= set(manifest["needs"]["libraries"])
    inside = {Path(p).name for p in mapped} - outside
    assert inside == {*manifest["libraries"], "libops.so"}
    if cuda:
        assert manifest["libraries"]["libtorch.so"]["without"] == ["libtorch_cuda.so"]


def test_a_program_with_libtorch_is_small_and_says_what_is_in_it(real, library):
    manifest = json.loads((real / "bundle.json").read_text())
    size = sum(p.stat().st_size for p in real.rglob("*") if p.is_file())
    assert size <= 600e6
    assert {
        "libcgotorch.so",
        "libtorch_cpu.so",
        "libc10.so",
        "libstdc++.so.6",
        "libgcc_s.so.1",
    } <= set(manifest["libraries"])
    assert not any(
        "cublas" in n or "cudnn" in n or n == "libtorch_cuda.so" for n in manifest["libraries"]
    )
    if library.torch.cuda:
        assert manifest["left_out"]["libtorch_cuda.so"] == {
            "why": "only a GPU needs it",
            "named_by": ["libcgotorch.so"],
        }
        assert (
            "libcudart.so.13" in manifest["libraries"] or "libcudart.so.12" in manifest["libraries"]
        )
    assert (real / "build-version").read_text() == f"{library.torch.version}\n"
    assert (real / "licenses/pypi/torch/LICENSE").is_file()
    # By the loader itself: everything within the bundle, but for glibc.
    done = run(manifest["needs"]["interpreter"], "--list", real / "probe", env={})
    for name, path in re.findall(r"(\S+) => (\S+)", done):
        assert path.startswith(f"{real}/lib/") or name in manifest["needs"]["libraries"], (
            name,
            path,
        )
    for name in manifest["libraries"]:
        assert not any(
            str(ROOT) in p for e in [elf.read(real / "lib" / name)] for p in (*e.rpath, *e.runpath)
        )


def test_a_program_with_libtorch_runs_where_nothing_can_be_written(real, namespaces, tmp_path):
    if namespaces:
        pytest.skip(namespaces)
    (root := fresh_root(tmp_path / "root", json.loads((real / "bundle.json").read_text()))).chmod(
        0o755
    )
    shutil.copytree(real, root / "app", copy_function=os.link)
    for name in ("proc", "dev"):
        (root / name).mkdir()
    script = (
        'mount --rbind /proc "$1/proc" && mount --rbind /dev "$1/dev" && mount --rbind "$1" "$1" && '
        'mount -o remount,ro,bind "$1" && cd "$1" && exec chroot . /app/probe'
    )
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", script, "sh", root],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "backward 600" in done.stdout


@pytest.mark.skipif(not FULL, reason="it is four gigabytes: CONFORMANCE=full")
def test_all_of_cuda_is_found_in_a_root_with_libc_alone(library, namespaces, tmp_path):
    """Without a GPU libtorch_cuda.so and what it needs are loaded, and then say that there is none."""
    if not library.torch.cuda:
        pytest.skip("this torch is a build without CUDA")
    if namespaces:
        pytest.skip(namespaces)
    made = bundle(ROOT / "tests/bundle/probe", tmp_path / "dist", build_flags=CACHED)
    assert {"libtorch_cuda.so", "libtorch_cuda_linalg.so", "libcudnn_ops.so.9"} <= set(
        made.manifest["libraries"]
    )
    root = fresh_root(tmp_path / "root", made.manifest)
    (tmp_path / "dist").rename(root / "app")
    done = run_in(root, "/app/probe")
    lines, mapped = probe(done.stdout)
    assert "no NVIDIA GPU or driver was found" in lines[6] or lines[6] == "cuda works"
    assert "/app/lib/libtorch_cuda.so" in mapped
    # Whatever is loaded by its name later is found, too.
    for name in sorted(made.manifest["libraries"]):
        done = run_in(
            root,
            made.manifest["needs"]["interpreter"],
            "--preload",
            f"/app/lib/{name}",
            "/app/probe",
        )
        missing = set(re.findall(r"(\S+): cannot open shared object", done.stderr))
        assert missing <= set(made.manifest["needs"]["driver"]), (name, done.stderr)


@pytest.mark.skipif(not FULL, reason="it takes a minute: CONFORMANCE=full")
def test_the_demo_is_at_most_600_mb_with_no_path_of_this_machine_in_it(library, tmp_path):
    made = bundle(
        ROOT / "examples/digits",
        tmp_path / "dist",
        cpu=True,
        tar=tmp_path / "digits.tar.gz",
        sbom=True,
    )
    assert made.manifest["bytes"] <= 600e6
    assert str(ROOT).encode() not in made.program.read_bytes()
    again = bundle(ROOT / "examples/digits", tmp_path / "again", cpu=True, sbom=True)
    assert tree(made.folder) == tree(again.folder)
    assert (tmp_path / "digits.tar.gz").stat().st_size <= 200e6
