"""`python -m pytorch_bridge bundle ./cmd/app -o dist/app`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from ..errors import BridgeError
from ..packages.bundle import progress
from ..packages.bundle.making import Bundle, bundle
from .program_name import called


def main(options: argparse.Namespace) -> int:
    """Bundles and says what came of it; an error is one message on the standard error."""
    out = options.out
    try:
        with progress.shown(sys.stderr):
            made = bundle(
                options.program,
                out,
                cpu=options.cpu,
                include=options.include,
                name=options.name,
                tags=options.tags,
                ldflags=options.ldflags,
                build_flags=options.build_flag,
                sbom=options.sbom,
                tar=_default(options.tar, out, ".tar"),
                oci=_default(options.oci, out, ".oci"),
                base=options.base,
                ref=options.ref,
            )
    except (BridgeError, OSError) as e:  # the latter where the current folder is gone
        lines = str(e).splitlines() or [type(e).__name__]
        print(f"{called()} bundle: {lines[0]}", *lines[1:], sep="\n", file=sys.stderr)
        return 1
    print("\n".join(report(made)))
    return 0


def _default(given: Path | None, out: Path, end: str) -> Path | None:
    if given is None or given != Path():
        return given
    whole = Path(os.path.abspath(out))
    return out.parent / f"{whole.name}{end}" if out.name else whole.with_name(whole.name + end)


def report(made: Bundle) -> list[str]:
    """What a user wants to know of a bundle."""
    said, shown = made.manifest, _shown(made.folder)
    needs = said["needs"]
    system = (
        f"{needs['platform']} with glibc {needs['glibc']} or newer"
        if needs["glibc"]
        else needs["platform"]
    )
    lines = [f"{shown}: {size(said['bytes'])} for {system}"]
    libraries = sorted(said["libraries"].items(), key=lambda item: -item[1]["bytes"])
    parts = [f"{name} {size(v['bytes'])}" for name, v in libraries[:3]]
    more = [f"{len(libraries) - 3} more libraries"] if len(libraries) > 3 else []
    own = [f"{said['program']} {size((made.program).stat().st_size)}"]
    files = (
        [f"{len(said['included'])} included files {size(sum(said['included'].values()))}"]
        if said["included"]
        else []
    )
    lines.append(f"  in it: {', '.join(own + files + parts + more)}")
    for why in sorted({v["why"] for v in said["left_out"].values()}):
        names = [n for n, v in said["left_out"].items() if v["why"] == why]
        shown_names = ", ".join(names[:3]) + (
            f" and {len(names) - 3} more" if len(names) > 3 else ""
        )
        lines.append(f"  left out, because {why}: {shown_names}")
    bare = [p["name"] for p in said["packages"] if not p["license_files"]]
    if bare:
        lines.append(f"  no licence was found for: {', '.join(bare)}")
    lines += [f"{_shown(path)}" for path in (made.tar, made.image) if path]
    lines.append(f"to run it, type: {_shown(made.program)}")
    return lines


def _shown(path: Path) -> str:
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("../..") else relative


def size(n: int) -> str:
    """A size for people, in the units of disks and downloads: "448 MB"."""
    for unit, one in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if n >= one:
            value = n / one
            return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"
    return f"{n} bytes"
