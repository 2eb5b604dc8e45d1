"""A name of the library that has a row in docs/pytorch-names.md links to PyTorch's page, in its comment or its type's.

Of every link, the name is one of the installed torch. Which pages PyTorch's documentation has, only its sources say:
`PYTORCH_DOCS=.../pytorch/docs/source`, at the release that REFERENCE_TORCH names, holds the links to them.
"""

from __future__ import annotations

import os
import re
import textwrap
from functools import cache
from pathlib import Path

import pytest
import pytorch_docs
from pytorch_docs import in_torch

from pytorch_bridge.codegen import api
from pytorch_bridge.codegen import counterparts as page
from pytorch_bridge.native.toolchain import ROOT
from pytorch_bridge.schema import Names, counterparts, docs_url, functions, page_of
from pytorch_bridge.schema.pages import DOCS
from pytorch_bridge.schema.tables import read_table

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


# Pages of PyTorch's documentation, and anchors in them, that are no names of Python.
PAGES = {
    "checkpoint",
    "ddp_comm_hooks",
    "distributed",
    "distributed.checkpoint",
    "distributed.fsdp.fully_shard",
    "distributed.pipelining",
    "distributed.tensor.parallel",
    "distributions",
    "func.api",
    "profiler",
    "random",
    "tensorboard",
    "utils",
    "amp#gradient-scaling",
    "distributions#module-torch.distributions.constraint_registry",
    "distributions#module-torch.distributions.constraints",
    "optim#weight-averaging-swa-and-ema",
    "type_info#finfo-doc",
    "type_info#iinfo-doc",
}


def links() -> dict[str, str]:
    """The links to PyTorch's reference in what we write, each with a file that has it."""
    all_links: dict[str, str] = {}
    files = [*(ROOT / "gotorch").rglob("*.go"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    for path in files:
        for link in LINK.findall(path.read_text()):
            all_links.setdefault(link.rstrip("."), str(path.relative_to(ROOT)))
    return all_links


def split(link: str) -> tuple[str, str]:
    """The page of a link, and the anchor in it or ""."""
    page, _, anchor = link.removeprefix(DOCS).partition("#")
    return page.removesuffix(".html"), anchor


def wrong(link: str) -> str:
    """What is wrong with a link, as far as the installed torch can tell; "" where nothing is."""
    page, anchor = split(link)
    name = page.removeprefix("generated/")
    if page == name:  # a page with much on it
        if f"{page}#{anchor}".rstrip("#") in PAGES:
            return ""
        if not anchor:
            return f"{page} is no page that PAGES lists"
        return "" if in_torch(anchor) is not None else f"torch has no {anchor}"
    if docs_url(page_of(name)) != link.partition("#")[0]:
        return f"PyTorch documents it at {docs_url(page_of(name)) if page_of(name) else 'no page'}"
    if in_torch(name) is None:
        return f"torch has no {name}"
    if anchor and (not anchor.startswith(f"{name}.") or in_torch(anchor) is None):
        return f"torch has no {anchor} on that page"
    return ""


def test_a_link_names_what_the_installed_torch_has() -> None:
    assert len(links()) > 1000
    bad = [f"{file}: {link}: {why}" for link, file in links().items() if (why := wrong(link))]
    assert not bad, "\n".join(bad)


def test_pages_that_the_checks_name_are_linked() -> None:
    linked = {"#".join(split(link)).rstrip("#") for link in links()}
    assert linked >= PAGES


@pytest.mark.parametrize(
    "link",
    [
        "generated/torch.special.entr.html",  # an anchor in special.html
        "generated/torch.conv1d.html",  # documented as torch.nn.functional.conv1d
        "generated/torch.alias_copy.html",  # has a docstring, but no page
        "generated/torch.nn.functional.silu_.html",  # no name of torch
        "generated/torch.nn.Module.html#torch.nn.Module.forwards",
        "generated/torch.nn.Module.html#torch.nn.Linear",
        "nn.init.html#torch.nn.init.xavier_",
        "nn.initialize.html",
    ],
)
def test_a_wrong_link_is_found(link: str) -> None:
    assert wrong(DOCS + link)


def test_the_table_of_pages_has_names_of_torch() -> None:
    table = read_table(ROOT / "pytorch_bridge/schema/pages.yaml")
    names = [*table["none"], *table["elsewhere"], *table["elsewhere"].values()]
    assert not [n for n in names if in_torch(n) is None]
    assert not set(table["none"]) & set(table["elsewhere"])


SOURCES = {
    "torch.md": """
        # torch
        ```{eval-rst}
        .. currentmodule:: torch
        .. autosummary::
            :toctree: generated
            :nosignatures:

            mm
            autograd.grad_mode.inference_mode

        .. autosummary::
            :nosignatures:

            bmm
        ```
    """,
    "special.rst": """
        Special
        =======

        .. automodule:: torch.special
        .. currentmodule:: torch.special
        .. autofunction:: entr
    """,
    "optim.md": """
        ## Weight Averaging (SWA and EMA)
        (a-label)=
        ```{eval-rst}
        .. automodule:: torch.optim
        .. autosummary::
            :toctree: generated
            :template: classtemplate.rst

            ~adam.Adam
        .. autofunction:: torch.optim.swa_utils.update_bn
        .. currentmodule:: torch.utils.tensorboard.writer
        .. autoclass:: SummaryWriter

           .. automethod:: add_scalar
        ```
    """,
    "distributions.md": """
        ```{eval-rst}
        .. automodule:: torch.distributions.transforms
            :members:
        ```
    """,
}


def test_the_sources_of_the_documentation_say_which_pages_it_has(tmp_path: Path) -> None:
    for name, text in SOURCES.items():
        (tmp_path / name).write_text(textwrap.dedent(text))
    docs = pytorch_docs.documented(tmp_path)
    assert set(docs.anchors) == {
        *(Path(name).stem for name in SOURCES),
        "generated/torch.mm",
        "generated/torch.autograd.grad_mode.inference_mode",
        "generated/torch.optim.adam.Adam",
    }
    for there in (
        "special#torch.special.entr",
        "special#module-torch.special",
        "special#special",
        "optim#weight-averaging-swa-and-ema",
        "optim#a-label",
        "optim#torch.optim.swa_utils.update_bn",
        "optim#torch.utils.tensorboard.writer.SummaryWriter.add_scalar",
        "distributions#torch.distributions.transforms.TanhTransform",
        "generated/torch.optim.adam.Adam#torch.optim.adam.Adam.step",
    ):
        assert docs.has(*there.split("#")), there
    for absent in (
        "special#torch.special.erf",
        "generated/torch.bmm",
        "generated/torch.mm#torch.mm.T",
        "optim#torch.utils.tensorboard.writer.SummaryWriter.add_tensor",
        "distributions#torch.distributions.transforms.Absent",
    ):
        assert not docs.has(*absent.split("#")), absent


@pytest.mark.skipif("PYTORCH_DOCS" not in os.environ, reason="PYTORCH_DOCS names no sources")
def test_the_documentation_has_what_is_linked() -> None:
    folder = Path(os.environ["PYTORCH_DOCS"])
    docs = pytorch_docs.documented(folder)
    assert docs.anchors, f"no sources of pages in {folder}"
    bad = [f"{file}: {link}" for link, file in links().items() if not docs.has(*split(link))]
    assert not bad, "\n".join(["the documentation lacks:", *bad])
