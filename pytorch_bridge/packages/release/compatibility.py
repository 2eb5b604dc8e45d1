"""What a released version promised, and what would break it.

    python -m pytorch_bridge.packages.release.compatibility     writes what this version has

docs/compatibility.md has the promise. What is compared are names with their types: of the Go
packages, from the list that `TestAPI` holds to the code, and of the C functions, from the headers.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from ... import __version__
from ...native.toolchain import ROOT
from ..go_package import abi

FOLDER = ROOT / "tests/released"
GO_API = ROOT / "gotorch/testdata/api.txt"

Promise = dict[str, list[str]]
"""The lines of "go" and of "c", and the constants that exported packages name, "packages"."""


def today() -> Promise:
    """What the checkout has."""
    functions, types = abi._declarations()
    # A type stands once for each of its names.
    c = sorted({*functions.values(), *types.values()})
    return {"go": GO_API.read_text().splitlines(), "c": c, "packages": [abi.ABI]}


def released() -> dict[tuple[int, ...], Promise]:
    """What released versions had, the oldest first."""
    found = {}
    for path in FOLDER.glob("v*.json.gz"):
        found[numbers(path.name.removesuffix(".json.gz"))] = json.loads(
            gzip.decompress(path.read_bytes())
        )
    return dict(sorted(found.items()))


def numbers(version: str) -> tuple[int, ...]:
    """A version, to compare: (0, 2, 0) of "v0.2.0". ValueError where it is none."""
    match = re.fullmatch(r"v?(\d+)\.(\d+)\.(\d+)", version)
    if match is None:
        raise ValueError(f"{version!r} is no version like 1.2.3")
    return tuple(map(int, match.groups()))


def may_break(old: tuple[int, ...], new: tuple[int, ...]) -> bool:
    """Whether a version may break what an older one promised: one with another first number, and
    before 1.0 one with another second number."""
    return new[0] != old[0] or (new[0] == 0 and new[1] != old[1])


_MEMBER = re.compile(r"(\S+: type \w+(?:\[.*?\])? interface), ")


def broken(old: Promise, new: Promise) -> list[str]:
    """What programs that were written for `old` do not find in `new`: lines that are gone, and
    methods that are new in an interface, which types of theirs do not have."""
    found = []
    for part in ("go", "c", "packages"):
        have = set(new[part])
        found += [f"gone or changed: {line}" for line in old[part] if line not in have]
    known = set(old["go"])
    for line in new["go"]:
        member = _MEMBER.match(line)
        if member and line not in known and member[1] in known:
            found.append(f"new in an interface: {line}")
    return found


def write(folder: Path = FOLDER) -> Path:
    """Writes down what this version promises; the same bytes each time."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"v{__version__}.json.gz"
    path.write_bytes(gzip.compress(json.dumps(today(), indent=0).encode(), 9, mtime=0))
    return path


def main(arguments: Sequence[str]) -> int:
    if arguments:
        print(__doc__)
        return 2
    print(write())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
