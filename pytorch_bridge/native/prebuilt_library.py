"""libcgotorch.so where there is no checkout: as the wheel brings it, or compiled once.

A wheel has the library for some releases of torch. libtorch's C++ holds for a release only, so one
is taken where it was built for just that; for another torch the library is compiled from the
wheel's sources. Either way it comes to lie in the user's cache, because it names the folder of its
torch: that is how it finds libtorch, and programs that are linked to it need name nothing else. A
wheel's library has room for any path there (`release.ROOM`), so that nobody needs a linker.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import sys
from pathlib import Path
from typing import Any

from pytorch_bridge.native import build, toolchain
from pytorch_bridge.native.artifacts import Record, digest, digest_file, locked, write
from pytorch_bridge.native.toolchain import ROOT, Missing, Torch

MANIFEST = ROOT / "release.json"
"""What a wheel says of its sources and libraries."""

_NAME = "libcgotorch.so"

_known: set[Path] = set()
"""The libraries that this process has found to be as they should."""


def manifest() -> dict[str, Any]:
    """What the wheel's release.json says. Missing where there is no such file: that is a package
    without sources."""
    try:
        return json.loads(MANIFEST.read_text())
    except (OSError, ValueError) as err:
        raise Missing(
            f"This pytorch_bridge, in {Path(__file__).parents[1]}, has come without the sources of "
            f"gotorch: {err}.",
            toolchain.REINSTALL,
        ) from err


def ensure() -> Path:
    """The library for the installed torch. In a checkout that is what `make build` has made, or is
    to make; elsewhere it is put into the cache if it is not there.

    Missing where there is no torch, no place for it or no compiler; CompileError where that fails.
    """
    if not toolchain.INSTALLED:
        return toolchain.build_dir() / "lib" / _NAME
    out = toolchain.build_dir()
    library = out / "lib" / _NAME
    if library in _known and library.exists():
        return library
    torch, said = toolchain.find_torch(), manifest()
    by = digest(json.dumps(said, sort_keys=True), torch.version, str(torch.dir))
    record = Record(out / "lib/provided.json")
    if _there(library, record, by):
        _known.add(library)
        return library
    try:
        out.mkdir(parents=True, exist_ok=True)
        _check_owner(out)
        with contextlib.redirect_stdout(sys.stderr), locked(out / "build.lock", "build"):
            if not _there(library, record, by):  # by whoever held the lock
                record.remove()
                _make(said, torch, out)
                record.write(by, {})
    except OSError as err:
        raise Missing(
            f"{library} cannot be made: {err}.", "export GOTORCH_BUILD_DIR=/a/folder/of/yours"
        ) from err
    return library


def _there(library: Path, record: Record, by: str) -> bool:
    if not library.exists() or record.current(by) is None:
        return False
    _check_owner(library.parent)
    return True


def _check_owner(folder: Path) -> None:
    """Missing where others could put a library of theirs into a folder: loading one runs it."""
    st = folder.stat()
    ours = (os.geteuid(), 0, os.stat(__file__).st_uid)
    group = stat.S_IWGRP if st.st_gid != os.getegid() else 0
    if st.st_uid not in ours or st.st_mode & (stat.S_IWOTH | group):
        raise Missing(
            f"Other users of this machine can write in {folder}, and what is in it is run.",
            "export GOTORCH_BUILD_DIR=/a/folder/of/yours",
        )


def _make(said: dict[str, Any], torch: Torch, out: Path) -> None:
    brought = said["libraries"].get(torch.release)
    if brought is not None and brought["cxx11_abi"] == torch.uses_cxx11_abi():
        _place(ROOT / "lib" / torch.release / _NAME, brought, torch, out)
        return
    has = ", ".join(said["libraries"]) or "none"
    print(
        f"gotorch has come with libraries for torch {has}, not for {torch.version}: compiling one, "
        "once; that takes some minutes ...",
        flush=True,
    )
    try:
        compiler = toolchain.find_compiler()
    except Missing as err:
        raise Missing(
            f"gotorch has come with libraries for torch {has}, and to compile one for "
            f"{torch.version} takes a compiler. {err.what}",
            f"{err.fix}   or   pip install 'torch=={next(reversed(said['libraries']), '2.15.0')}'",
        ) from err
    build.Build(build.Settings(torch, compiler, out), build.default_jobs()).run()
    # The objects are 30 MB, and nothing here changes.
    shutil.rmtree(out / "obj", ignore_errors=True)


def _place(source: Path, brought: dict[str, Any], torch: Torch, out: Path) -> None:
    """Copies a library of the wheel, and writes into it where its torch is."""
    from pytorch_bridge.native import elf

    if digest_file(source) != brought["digest"]:
        raise Missing(f"{source} is damaged.", toolchain.REINSTALL)
    if ":" in str(torch.lib) or "$" in str(torch.lib):
        raise Missing(
            f"torch is in {torch.dir}, and no library can name a folder with a colon or a dollar.",
            "python -m venv /a/folder/with/another/name",
        )
    lib = out / "lib"
    lib.mkdir(exist_ok=True)
    facts = lib / "cgotorch.json"
    part = lib / f"{_NAME}.part"
    try:
        shutil.copyfile(source, part)
        part.chmod(0o755)
        elf.set_run_path(part, str(torch.lib))
        facts.unlink(missing_ok=True)  # never beside a library that it is not of
        part.replace(lib / _NAME)
    finally:
        part.unlink(missing_ok=True)
    write(lib / "pkgconfig/cgotorch.pc", build.pkgconfig(lib, torch.version))
    said = {"torch": torch.version, "torch_dir": str(torch.dir), "sanitize": None, **brought}
    write(facts, json.dumps(said, indent=2) + "\n")
