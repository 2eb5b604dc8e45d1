"""PyTorch's native functions as a typed model: what there is, what it is called, what it means."""

from .docs import Description, Docs
from .functions import Argument, Return, SchemaFunction, load_reference, read_installed
from .names import Names
from .pages import docs_url, page_of
from .subjects import Subject, Subjects

__all__ = [
    "Argument",
    "Description",
    "Docs",
    "Names",
    "Return",
    "SchemaFunction",
    "Subject",
    "Subjects",
    "docs_url",
    "load_reference",
    "page_of",
    "read_installed",
]
