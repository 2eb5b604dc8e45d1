"""`python -m pytorch_bridge export model.pt2`, with `--go dir` or `--model dir`."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path
from typing import Any

from ..errors import BridgeError, BridgeValueError
from ..native.toolchain import fix
from ..packages import model_folder
from ..packages.go_package.export import export_go
from .program_name import called


def main(options: argparse.Namespace) -> int:
    """Exports; an error is one line on the standard error."""
    try:
        program = load(options.model)
        said = _model(program, options) if options.go is None else _package(program, options)
    except BridgeError as e:
        lines = str(e).splitlines() or [type(e).__name__]
        print(f"{called()} export: {lines[0]}", *lines[1:], sep="\n", file=sys.stderr)
        return 1
    print(said)
    return 0


def _package(program: Any, options: argparse.Namespace) -> str:
    folder = export_go(
        program,
        options.go,
        package=options.package,
        module=options.module,
        name="Forward" if options.name is None else options.name,
        training=options.training or None,
        device=options.device,
    )
    libraries = fix("", ' && eval "$(gotorch env)"')
    return f"wrote {folder}; to check it, type: cd {folder}{libraries} && go test ."


def _model(program: Any, options: argparse.Namespace) -> str:
    state: dict[str, str] = {}
    for pair in options.state:
        out, equals, into = pair.partition("=")
        if not (out and equals and into):
            raise BridgeValueError(f"--state is OUTPUT=INPUT, as in h_out=h_in, not {pair!r}")
        if out in state:
            raise BridgeValueError(f"--state says twice which input the output {out!r} becomes")
        state[out] = into
    folder = model_folder.export_model(
        program,
        options.folder,
        name=options.name,
        inputs=options.input or None,
        outputs=options.output or None,
        state=state,
    )
    text = json.loads((folder / model_folder.MANIFEST).read_bytes())
    takes, gives = (", ".join(_shown(s) for s in text[side]) for side in ("inputs", "outputs"))
    return f"wrote {folder}; it takes {takes or 'nothing'} and gives {gives}"


def _shown(spec: dict[str, Any]) -> str:
    """The name, dtype and sizes of an input or output: x float32 [?, 4]."""
    if spec["shape"] is None:
        sizes = "..."
    else:
        sizes = ", ".join("?" if n < 0 else str(n) for n in spec["shape"])
    return f"{spec['name']} {spec['dtype']} [{sizes}]"


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
