"""The checked-in tables, which are YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

# The loader in C, where there is one, takes a tenth of the time.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_table(path: Path) -> Any:
    """What a YAML file says."""
    return yaml.load(path.read_text(), _LOADER)
