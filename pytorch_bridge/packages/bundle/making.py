"""From a Go program to a folder that is whole, or not there."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ...errors import BundleError
from ...native import atomic_files, elf, toolchain
from . import archive, contents, image, origin, program, progress, sbom
from .closure import DRIVER, Closure, Finder, glibc_needed
from .contents import Contents, File
from .origin import Origin
from .program import Program

_FORMAT = 1


@dataclass(frozen=True)
class Bundle:
    """A bundle that has been made."""

    folder: Path
    program: Path
    """What to run."""
    manifest: dict[str, Any]
    """What bundle.json says."""
    tar: Path | None = None
    image: Path | None = None


@contextmanager
def _told() -> Iterator[None]:
    """Makes a BundleError of what the system refuses, wherever that is."""
    try:
        yield
    except OSError as err:
        raise BundleError(f"the bundle cannot be made: {err}") from err


@_told()
def bundle(
    package: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    cpu: bool = False,
    include: Sequence[str | os.PathLike[str]] = (),
    name: str = "",
    tags: str = "",
    ldflags: str = "",
    build_flags: Sequence[str] = (),
    sbom: bool = False,
    tar: str | os.PathLike[str] | None = None,
    oci: str | os.PathLike[str] | None = None,
    base: str = "",
    ref: str = "latest",
) -> Bundle:
    """Builds the Go program in `package`, a folder or an import path, and gathers it in the folder
    `out`.

    An `out` that is a bundle as it was made is replaced, an empty one filled, and any other
    refused. With `cpu` what only a GPU needs stays away. `include` has files and folders that the
    program reads, as PATH or PATH=DEST; weights of packages of `export_go` come by themselves. The
    program is called `name`, by default as go calls it. `tags`, `ldflags` and `build_flags` are for
    `go build`.

    `sbom` adds a bill of materials. `tar` also writes all of it as one file, .tar or .tar.gz; and
    `oci` as a folder with an OCI image, called `ref` there, on the image `base`: a reference to a
    registry, a folder with an OCI layout, or the file of `docker save`. Without one, the image has
    this machine's glibc. It runs as the user of its base, or as user 65532 if the base names
    none: not as root.

    BundleError says what is in the way; nothing is half written then, and what was there stays.
    """
    target = Path(os.path.abspath(out))
    check_target(target)
    if base and oci is None:
        raise BundleError(f"the base {base} is for an image; say --oci as well")
    if tar is not None:
        archive.check(Path(tar))
    if oci is not None:
        image.check(Path(oci), base)
    _check_apart({"the bundle": out, "the image": oci, "the tar": tar})
    epoch = contents.epoch()
    found = program.look(os.fspath(package), tags)
    parts = Contents()
    for path, dest in map(contents.included, include):
        contents.include(parts, path, dest, Path(os.path.realpath(target)))
    taken = {f.source for f in parts.files.values()}
    for path, dest in found.weights:
        real = Path(os.path.realpath(path))
        if real not in taken and dest not in parts.files:
            contents.include(parts, real, dest, Path(os.path.realpath(target)))
    with _beside(target) as part:
        build = part / "build"
        build.mkdir()
        progress.step("go build")
        binary = program.build(found, build, tags, ldflags, build_flags)
        called = name or binary.name
        _check_name(called, parts)
        progress.step("looking for libraries")
        closure = _closure(binary, cpu, parts, part)
        new = part / "new"
        new.mkdir()
        manifest = _gather(new, called, found, closure, cpu, parts, epoch, sbom)
        made = _Outputs(new, called, closure, epoch)
        if oci is not None:
            made.image(Path(oci), base, ref, found)
        if tar is not None:
            made.tar(Path(tar), target.name, part)
        contents.set_dates(new, epoch)
        _put_in_place(new, target, part)
    atomic_files.sync_folder(target.parent)
    return Bundle(
        target,
        target / called,
        manifest,
        None if tar is None else Path(tar),
        None if oci is None else Path(oci),
    )


# The folder ---------------------------------------------------------------------------------------


def check_target(target: Path) -> None:
    """BundleError where there is something that is no bundle."""
    if not os.path.lexists(target):
        return
    if target.is_symlink():
        raise BundleError(f"{target} is a link; name the folder that it leads to")
    if not target.is_dir():
        raise BundleError(f"{target} is a file; name another folder")
    if os.path.ismount(target):
        raise BundleError(
            f"a file system is mounted at {target}, so it cannot be replaced as a whole; name a "
            f"folder in it: {target / 'bundle'}"
        )
    if any(target.iterdir()) and not _is_bundle(target):
        raise BundleError(
            f"{target} has other things in it than a bundle, so it is not replaced; "
            "name another folder, or remove it"
        )
    if added := _added(target):
        raise BundleError(
            f"{target} is a bundle that has got other files since, such as {added}, so it is not "
            "replaced; move them, or name another folder"
        )


def _added(folder: Path) -> str:
    """A file in a bundle that was not there when it was made; "" where there is none."""
    try:
        known = contents.listed((folder / contents.SUMS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = set()
    for name, path in contents.walk(folder):
        if name not in known and name != contents.SUMS and (path.is_symlink() or not path.is_dir()):
            return name
    return ""


def _is_bundle(folder: Path) -> bool:
    try:
        said = json.loads((folder / contents.MANIFEST).read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(said, dict) and isinstance(said.get("bundle"), int)


def _check_apart(places: Mapping[str, str | os.PathLike[str] | None]) -> None:
    """BundleError where one is to be written into another."""
    paths = {what: Path(os.path.abspath(p)) for what, p in places.items() if p is not None}
    for what, path in paths.items():
        for other, inner in paths.items():
            if other != what and inner.is_relative_to(path):
                raise BundleError(f"{inner} is within {what}, {path}; write it beside that")


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """A folder beside the target, which is gone in the end."""

    def rescue(left: Path) -> None:  # of one that was killed between the two renames
        with suppress(OSError):
            if not os.path.lexists(target):
                (left / "old").rename(target)

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_files.folder_beside(target, rescue) as part:
            yield part
    except OSError as err:
        raise BundleError(f"the bundle cannot be written: {err}") from err


def _put_in_place(new: Path, target: Path, part: Path) -> None:
    check_target(target)  # what may have come meanwhile
    atomic_files.put_folder(new, target, part / "old")


def _check_name(name: str, parts: Contents) -> None:
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise BundleError(f"--name {name} is no name of a file")
    if name in contents.OWN:
        raise BundleError(
            f"the program would be called {name}, which is a name of bundle's own; say --name OTHER"
        )
    if name in parts.files or name in parts.folders:
        raise BundleError(
            f"the program would be called {name}, and so is what is included; say --name OTHER"
        )


# What it needs ------------------------------------------------------------------------------------


def _closure(binary: Path, cpu: bool, parts: Contents, part: Path) -> Closure:
    read = elf.read(binary)
    if not read.interpreter and not read.is_static:
        raise BundleError("go build has made a library, and not a program; leave out -buildmode")
    with tempfile.TemporaryDirectory(dir=part) as folder:
        more = [elf.read(path) for path in _loadable(parts, binary, Path(folder))]
        return Finder(read, cpu).run(more)


def _loadable(parts: Contents, binary: Path, folder: Path) -> Iterator[Path]:
    """Included files that are loaded: libraries, programs, and libraries within packages of
    AOTInductor."""
    for name, file in sorted(parts.files.items()):
        if not isinstance(file.source, Path):
            continue
        if elf.is_loadable(file.source, binary):
            yield file.source
        elif name.endswith(".pt2"):
            yield from _within(file.source, folder)


def _within(package: Path, folder: Path) -> Iterator[Path]:
    try:
        with zipfile.ZipFile(package) as zipped:
            members = [m for m in zipped.namelist() if m.endswith(".so")]
            for i, member in enumerate(members):
                path = folder / f"{package.name}.{i}.so"
                with zipped.open(member) as source, path.open("wb") as out:
                    while block := source.read(1 << 20):
                        out.write(block)
                yield path
                path.unlink()
    except (zipfile.BadZipFile, NotImplementedError, EOFError, RuntimeError) as err:
        raise BundleError(f"{package} is no package of AOTInductor, or damaged: {err}") from err


# Gathering ----------------------------------------------------------------------------------------


def _gather(
    new: Path,
    called: str,
    found: Program,
    closure: Closure,
    cpu: bool,
    parts: Contents,
    epoch: int,
    bill: bool,
) -> dict[str, Any]:
    files = list(parts.files)
    parts.add(called, File(closure.program.path, executable=True))
    for library in closure.libraries.values():
        parts.add(f"{contents.LIBRARIES}/{library.name}", File(library.source))
    torch = closure.libraries.get("libtorch_cpu.so")
    version = _torch_version(torch.source) if torch else ""
    if version:
        parts.add(contents.TORCH_VERSION, File(f"{version}\n".encode()))
    made_of = {
        f"{contents.LIBRARIES}/{n}": origin.of_library(v.source)
        for n, v in closure.libraries.items()
    }
    modules = [origin.of_module(m) for m in found.modules]
    own = modules[0]
    used = sorted(
        {*modules[1:], *made_of.values()} - {own}, key=lambda o: (o.kind, o.name, o.version)
    )
    for package in (own, *used):
        for name, path in package.licences:
            where = PurePosixPath(contents.LICENCES, package.kind, package.name.lstrip("/"), name)
            parts.add(where.as_posix(), File(Path(os.path.realpath(path))))
    parts.write(new)
    _set_run_paths(new, called, closure, files)
    manifest = _manifest(new, called, found, closure, cpu, version, own, used, made_of)
    _write(new, contents.MANIFEST, json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")
    if bill:
        one, two = contents.sums(new, "sha1"), contents.sums(new)
        summed = {name: (one[name], two[name]) for name in two}
        last = (contents.SBOM, contents.SUMS)
        text = sbom.document(called, own.version, (own, *used), summed, made_of, last, epoch)
        _write(new, contents.SBOM, text)
        digests = {**two, contents.SBOM: contents.digest(new / contents.SBOM)}
    else:
        digests = contents.sums(new)
    _write(new, contents.SUMS, contents.sums_text(dict(sorted(digests.items()))))
    contents.set_dates(new, epoch)
    return manifest


def _write(folder: Path, name: str, text: str) -> None:
    contents.put(folder, name, File(text.encode()))


def _torch_version(library: Path) -> str:
    """The version of the torch that a library is of, in a wheel or an archive of libtorch."""
    with suppress(toolchain.Missing):
        return toolchain.find_torch(library.parent.parent).version
    with suppress(OSError):
        return (library.parent.parent / "build-version").read_text().strip()
    return ""


def _set_run_path_of_included(new: Path, name: str, program: Path, closure: Closure) -> None:
    path = new / name
    if not elf.is_loadable(path, program):
        return
    found = elf.read(path)
    # What needs none of the bundle's libraries stays as it is: somebody may know its digest, as
    # the manifest of export_model does.
    if closure.libraries.keys().isdisjoint(found.needed):
        return
    up = "/".join(["$ORIGIN", *[".."] * name.count("/"), contents.LIBRARIES])
    # A program has to say where the bundle's libraries are.
    _set_run_path(path, [up] if found.interpreter else [up, "$ORIGIN", ""])


def _set_run_path(path: Path, choices: Sequence[str]) -> None:
    """Gives a file the first run path that there is room for. A library finds what it needs, once
    its run path is a DT_RPATH, where those do that load it; so any will do for one."""
    for i, choice in enumerate(choices):
        try:
            elf.set_run_path(path, choice)
            return
        except elf.TooShort:
            if i == len(choices) - 1:
                raise


def _set_run_paths(new: Path, called: str, closure: Closure, included: Sequence[str]) -> None:
    if not elf.set_run_path(new / called, program.RUN_PATH) and closure.libraries:
        raise BundleError(f"go build has given {called} no run path; leave out -extldflags -static")
    if closure.libraries:
        for name in included:
            _set_run_path_of_included(new, name, new / called, closure)
    for name, library in closure.libraries.items():
        path = new / contents.LIBRARIES / name
        _set_run_path(path, ["$ORIGIN", ""])
        for without in library.without:
            elf.drop_needed(path, without)


def _manifest(
    new: Path,
    called: str,
    found: Program,
    closure: Closure,
    cpu: bool,
    torch: str,
    own: Origin,
    used: Sequence[Origin],
    made_of: dict[str, Origin],
) -> dict[str, Any]:
    sizes = {name: path.stat().st_size for name, path in contents.walk(new) if path.is_file()}
    glibc, because = glibc_needed(closure)
    libraries = {
        name: {
            "bytes": sizes[f"{contents.LIBRARIES}/{name}"],
            "from": str(made_of[f"{contents.LIBRARIES}/{name}"]),
            **({"needed_by": sorted(v.needed_by)} if v.needed_by else {}),
            **({"named_by": sorted(v.named_by)} if v.named_by else {}),
            **({"without": list(v.without)} if v.without else {}),
        }
        for name, v in sorted(closure.libraries.items())
    }
    own_files = {called, *contents.OWN}
    return {
        "bundle": _FORMAT,
        "program": called,
        "package": found.package,
        "version": own.version,
        "go": found.go,
        "torch": torch,
        "cpu": cpu,
        "bytes": sum(sizes.values()),
        "needs": {
            "platform": found.platform,
            "glibc": glibc,
            "glibc_because_of": because,
            "interpreter": closure.program.interpreter,
            "libraries": sorted(n for n in closure.system if not DRIVER.fullmatch(n)),
            "driver": sorted(n for n in closure.system if DRIVER.fullmatch(n)),
        },
        "libraries": libraries,
        "left_out": {
            name: {
                "why": v.why,
                **(
                    {"named_by": sorted(v.named_by)}
                    if v.named_by
                    else {"needed_by": sorted(v.needed_by)}
                ),
            }
            for name, v in sorted(closure.left_out.items())
        },
        "included": {n: s for n, s in sizes.items() if n.split("/")[0] not in own_files},
        "packages": [
            {
                "name": o.name,
                **({"version": o.version} if o.version else {}),
                "kind": o.kind,
                **({"license": o.licence} if o.licence else {}),
                "license_files": len(o.licences),
            }
            for o in (own, *used)
        ],
    }


class _Outputs:
    """The other forms of a bundle that lies in a folder of another name as yet."""

    def __init__(self, new: Path, called: str, closure: Closure, epoch: int) -> None:
        self.new, self.called, self.closure, self.epoch = new, called, closure, epoch

    def tar(self, target: Path, name: str, part: Path) -> None:
        # The folder's name stands in the tar.
        named = part / "tar" / name
        named.parent.mkdir()
        self.new.rename(named)
        try:
            archive.write(named, target, self.epoch)
        finally:
            named.rename(self.new)

    def image(self, target: Path, base: str, ref: str, found: Program) -> None:
        image.write(self.new, self.called, self.closure, found, target, base, ref, self.epoch)
