"""Where PyTorch's documentation describes a name."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from .tables import read_table

DOCS = "https://docs.pytorch.org/docs/stable/"

# Modules that have one page, with an anchor for each name. Other names have a page each.
_ONE_PAGE = {
    "torch.nested.": "nested",
    "torch.nn.init.": "nn.init",
    "torch.special.": "special",
}
# Attributes of torch.Tensor that are on the page of the class.
_OF_THE_CLASS = {f"torch.Tensor.{name}" for name in ("H", "T", "mH", "mT")}


@cache
def _table() -> dict[str, object]:
    return read_table(Path(__file__).with_name("pages.yaml"))


def page_of(name: str) -> str:
    """The name on whose page one that has a docstring is described: itself, as a rule; "" where it
    is on none."""
    table = _table()
    if name in table["none"]:  # type: ignore[operator]
        return ""
    return str(table["elsewhere"].get(name, name))  # type: ignore[attr-defined]


def docs_url(page: str) -> str:
    """The address of what `page_of` names: of a page, or of an anchor in one."""
    for module, file in _ONE_PAGE.items():
        if page.startswith(module):
            return f"{DOCS}{file}.html#{page}"
    if page in _OF_THE_CLASS:
        return f"{DOCS}tensors.html#{page}"
    return f"{DOCS}generated/{page}.html"
