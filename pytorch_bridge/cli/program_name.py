"""The name of this program in messages."""

from __future__ import annotations

import sys
from pathlib import Path


def called() -> str:
    """This program as it was typed: pip installs the command `gotorch`, which is the same."""
    return "gotorch" if Path(sys.argv[0]).name == "gotorch" else "python -m pytorch_bridge"
