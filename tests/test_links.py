"""A name of the library that has a row in docs/pytorch-names.md links to PyTorch's page, in its comment or its type's."""

from __future__ import annotations

import re
from functools import cache

from pytorch_bridge.schema import Names, counterparts, functions
from pytorch_bridge.targets import api
from pytorch_bridge.targets import counterparts as page
from pytorch_bridge.toolchain import ROOT

LINK = re.compile(r"https://docs\.pytorch\.org/docs/stable/[\w./-]+\.html(?:#[\w.-]+)?")

# Names of PyTorch that no page of its documentation is about.
NO_PAGE = {"torch.nn.RNNCellBase": "PyTorch's reference has the cells alone"}


DECLARED = re.compile(r"(?:func (?:\((?:\w+ )?\*?(\w+)[^)]*\) )?|type |var |const )(\w+)")


@cache
def comments(package: str) -> dict[str, str]:
    """The comment of each declaration of a package; a method is `Type.Method`."""
    found: dict[str, str] = {}
    for path in sorted((ROOT / "gotorch" / package).glob("*.go")):
        if path.name.endswith("_test.go"):
            continue
        above, group = "", None
        for line in path.read_text().splitlines():
            if line.lstrip().startswith("//"):
                above += line + "\n"
                continue
            if m := DECLARED.match(line):
                found[f"{m[1]}.{m[2]}" if m[1] else m[2]] = above
            elif line in ("var (", "const (", "type ("):
                group = above
            elif line == ")":
                group = None
            elif group is not None and (m := re.match(r"\t(\w+)", line)):
                found[m[1]] = group + above + line
            above = ""
    return found


def rows() -> dict[str, list[str]]:
    """PyTorch's names by the Go names of their rows, without those of package gotorch."""
    native = page.native(api.resolve(functions.load_reference(), Names()))
    found: dict[str, list[str]] = {}
    for listed in counterparts.counterparts(native).values():
        for c in listed:
            for go in c.go:
                if not go.startswith("gotorch."):
                    found.setdefault(go, []).append(c.python.full)
    return found


def test_names_with_a_counterpart_link_to_it() -> None:
    missing, without = [], set()
    for go, python in rows().items():
        package, _, name = go.partition(".")
        known = comments(package)
        assert name in known, f"no comment of {go} was found"
        if LINK.search(known[name] + known.get(name.partition(".")[0], "")):
            continue
        if set(python) <= NO_PAGE.keys():
            without |= set(python)
            continue
        missing.append(f"{go}: {', '.join(python)}")
    assert not missing, "\n".join(["without a link:", *missing])
    assert without == NO_PAGE.keys()
