"""`python -m pytorch_bridge export model.pt2 --go dir`."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path
from typing import Any

from ...cli import called
from ...errors import BridgeError, BridgeValueError
from ...toolchain import fix
from .export import export_go


def main(options: argparse.Namespace) -> int:
    """Exports; an error is one line on the standard error."""
    try:
        program = load(options.model)

        folder = export_go(
            program,
            options.go,
            package=options.package,
            module=options.module,
            name=options.name,
            training=options.training or None,
            device=options.device,
        )
    except BridgeError as e:
        lines = str(e).splitlines() or [type(e).__name__]
        print(f"{called()} export: {lines[0]}", *lines[1:], sep="\n", file=sys.stderr)
        return 1
    libraries = fix("", ' && eval "$(gotorch env)"')
    print(f"wrote {folder}; to check it, type: cd {folder}{libraries} && go test .")
    return 0


def load(path: Path) -> Any:
    """The exported program in a file, or BridgeValueError."""
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise BridgeValueError(f"{path} {what}; torch.export.save(program, path) makes such a file")
    import torch

    # It would write a trace of its own beside the error.
    log = logging.getLogger("torch.export")
    before = log.disabled
    log.disabled = True
    try:
        return torch.export.load(path)
    except Exception as e:  # whatever a damaged file makes of its reader
        first = (str(e).splitlines() or [type(e).__name__])[0]
        raise BridgeValueError(
            f"{path} is no exported program, or damaged, or of another version of torch than "
            f"{torch.__version__}: {first}"
        ) from e
    finally:
        log.disabled = before
