"""The command line: `python -m pytorch_bridge COMMAND`, or `gotorch COMMAND`."""

from .commands import main

__all__ = ["main"]
