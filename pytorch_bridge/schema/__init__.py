"""PyTorch's native functions as a typed model: what there is, what it is called, what it means."""

from .functions import Argument, Function, Return, load_reference, read_installed
from .names import Names

__all__ = ["Argument", "Function", "Names", "Return", "load_reference", "read_installed"]
