"""Writes the C header, the C++ shards and the Go files from the committed schemas.

`generate` first brings the committed schemas (schema/functions_gen.txt) up to the installed torch
if that is as new; then every other file is a function of them, of names.yaml, of subjects.yaml and
of docs.yaml.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from ..native.toolchain import ROOT, find_go
from ..schema import Names, SchemaFunction, Subject, Subjects, load_reference, read_installed
from ..schema.functions import (
    REFERENCE_FILE,
    reference_text,
    reference_version,
    torch_dir,
    torch_version,
)
from ..schema.python_api import API_FILE, read_installed_api
from . import c, conformance, ctorch, go, nn, reference, stubs
from .api import Named, Wrapped, resolve

SHARDS = 8


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("+")[0].split(".")[:3] if part.isdigit())


def reference_is_installed() -> bool:
    """Is the installed torch the one that the committed schemas come from?"""
    return _release(torch_version()) == _release(reference_version())


def files(functions: list[SchemaFunction], version: str) -> dict[Path, str]:
    """Every generated file with its text, before gofmt."""
    names = Names()
    ops = resolve(functions, names)
    digest = api_hash(ops)
    installed = {f.name: f for f in functions}
    out = {Path("cgotorch/ops_gen.h"): c.header(ops, digest)}
    for i, part in enumerate(c.split(ops, SHARDS)):
        out[Path(f"cgotorch/ops_gen_{i}.cc")] = c.shard(part, installed, version)
    out[Path("cgotorch/thunks_gen.cc")] = c.table(ops)
    out[Path("gotorch/ops_gen.go")] = go.numbers(ops, Subjects().all)
    out[ctorch.PACKAGE / "ops_gen.go"] = go.names(ops, digest)
    out[ctorch.PACKAGE / "bindings_gen.go"] = ctorch.bindings(ROOT)
    known = Named(ops)
    parts = by_subject(ops)
    for subject, mine in parts.items():
        out[Path("gotorch") / subject.file] = go.wrappers(mine, known)
    out.update(nn.files(ops))
    out.update(reference.files({s: [op.function for op in mine] for s, mine in parts.items()}))
    out[conformance.TABLE] = conformance.table(ops, names.hand_written)
    out[conformance.MODULES] = conformance.modules()
    return out


def by_subject(ops: list[Wrapped]) -> dict[Subject, list[Wrapped]]:
    """The ops that Go has by what they are about, in the order of subjects.yaml."""
    subjects = Subjects()
    in_go = [op for op in ops if op.go]
    of = subjects.of(op.function.family for op in in_go)
    parts: dict[Subject, list[Wrapped]] = defaultdict(list)
    for op in in_go:
        parts[of[op.function.family]].append(op)
    return {subject: parts[subject] for subject in subjects.all}


HEADERS = ROOT / "cgotorch"
_READ_BY_GO = ("cgotorch.h", "allocator.h", "cgroup.h", "objects.h", "os_thread.h", "thunk.h")


def api_hash(ops: list[Wrapped]) -> str:
    """Changes whenever a caller that was compiled before might misread the library: with the layout
    of a block or what a thunk takes a field for, the position of a thunk, and everything that the
    headers by hand declare, which is what cgo reads. Comments and line breaks do not count."""
    parts = [f"{op.index} {c.signature(op)}\n{c.thunk(op)}" for op in ops]
    parts += _declared([HEADERS / name for name in _READ_BY_GO])
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _declared(headers: list[Path]) -> list[str]:
    """The code of headers, and of those by hand that they include from beside them."""
    found: dict[Path, str] = {}
    while headers:
        header = headers.pop(0)
        if header in found or "_gen." in header.name or header.name == "internal.h":
            continue
        text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", header.read_text(), flags=re.S)
        found[header] = " ".join(text.split())
        headers += [header.parent / name for name in re.findall(r'#include "(.*?)"', text)]
    return list(found.values())


def gofmt(texts: dict[Path, str]) -> dict[Path, str]:
    """The texts with every Go file formatted."""
    binary = find_go().path.with_name("gofmt")
    out = {}
    for path, text in texts.items():
        if path.suffix == ".go":
            done = subprocess.run([binary], input=text, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"gofmt rejects {path}:\n{done.stderr}")
            text = done.stdout
        out[path] = text
    return out


def shards_for_installed(torch: Path, directory: Path) -> None:
    """Writes the C++ shards for an installed torch that is not the reference.

    Functions it lacks return an error that names the version with them. torch must be the one of
    this Python: its schemas are read with its own torchgen.
    """
    if torch.resolve() != torch_dir().resolve():
        raise ValueError(
            f"{torch} is not this Python's torch ({torch_dir()}); use that one's Python"
        )
    version = reference_version()
    ops = resolve(load_reference(), Names())
    installed = {f.name: f for f in read_installed()}
    directory.mkdir(parents=True, exist_ok=True)
    for i, part in enumerate(c.split(ops, SHARDS)):
        _write(directory / f"ops_gen_{i}.cc", c.shard(part, installed, version))


def write_stubs() -> None:
    """Writes the stubs of `pytorch_bridge.ops` into the checkout. They are not committed: they
    follow from what is, in 16,000 lines that nobody reads."""
    for path, text in stubs.files().items():
        _write(ROOT / path, text)


def _write(path: Path, text: str) -> bool:
    if path.exists() and path.read_text() == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return True


def main(check: bool = False) -> int:
    """Generates, or with check says what would change. Returns an exit status."""
    installed = torch_version()
    stale = []
    if not REFERENCE_FILE.exists() or _release(installed) >= _release(reference_version()):
        text = reference_text(installed, read_installed(with_pages=True))
        old = REFERENCE_FILE.read_text() if REFERENCE_FILE.exists() else ""
        if text != old:
            stale.append(str(REFERENCE_FILE.relative_to(ROOT)))
            if not check:
                _report(old, text)
                REFERENCE_FILE.write_text(text)
        if not API_FILE.exists() or API_FILE.read_text() != read_installed_api():
            stale.append(str(API_FILE.relative_to(ROOT)))
            if not check:
                API_FILE.write_text(read_installed_api())
    if check and stale:
        functions, version = read_installed(with_pages=True), installed.split("+")[0]
    else:
        functions, version = load_reference(), reference_version()
    wanted = gofmt(files(functions, version))
    for path, text in wanted.items():
        if check:
            full = ROOT / path
            if not full.exists() or full.read_text() != text:
                stale.append(str(path))
        elif _write(ROOT / path, text):
            stale.append(str(path))
    write_stubs()
    patterns = (
        "cgotorch/*ops_*gen*.*",
        "gotorch/*ops_*gen*.*",
        "gotorch/internal/ctorch/*_gen.go",
        "gotorch/nn/**/*_gen.go",
        "docs/reference/*.md",
    )
    for pattern in patterns:
        for path in sorted(ROOT.glob(pattern)):
            if path.relative_to(ROOT) not in wanted:
                stale.append(f"{path.relative_to(ROOT)} (no longer generated)")
                if not check:
                    path.unlink()
    if check and stale:
        print("not what the installed torch asks for; run `make generate` and review the diff:")
        print("\n".join(f"  {s}" for s in stale))
        return 1
    print("generated files are up to date" if not stale else "wrote " + ", ".join(stale))
    return 0


def _report(old: str, new: str) -> None:
    """Says which functions a new torch brought, changed or dropped."""

    def schemas(text: str) -> dict[str, str]:
        lines = [line.split("\t")[3] for line in text.splitlines() if "\t" in line]
        return {s.split("(")[0]: s for s in lines}

    before, after = schemas(old), schemas(new)
    for name in sorted(after.keys() - before.keys()) if before else []:
        print(f"new: {after[name]}")
    for name in sorted(before.keys() - after.keys()):
        print(f"gone: {before[name]}")
    for name in sorted(k for k in before.keys() & after.keys() if before[k] != after[k]):
        print(f"changed: {before[name]}\n     to: {after[name]}")


if __name__ == "__main__":  # run by native/build.py for a torch that is not the reference
    shards_for_installed(Path(sys.argv[1]), Path(sys.argv[2]))
