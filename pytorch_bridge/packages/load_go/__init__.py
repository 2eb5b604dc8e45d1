"""load_go: the exported functions of a Go package, callable from Python.

See docs/load-go.md. `building` makes a shared library of the package, `wire` takes values to Go and
back, `module` makes the Python functions.
"""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path

from pytorch_bridge.native.extension import share_preemption
from pytorch_bridge.packages.load_go.building import Builder, check_folder, check_library
from pytorch_bridge.packages.load_go.module import GoModule

__all__ = ["GoModule", "load_go"]

_loaded: dict[Path, tuple[Path, GoModule]] = {}
_lock = threading.Lock()


def load_go(path: str | os.PathLike[str]) -> GoModule:
    """Builds the Go package in the folder `path` and returns a module with its exported functions.

        ops = pytorch_bridge.load_go("path/to/package")
        y = ops.Scale(x, 0.5)

    The package may belong to a Go module, or be a plain folder of .go files; either may import
    gotorch.dev/gotorch. Building takes a few seconds, the first time longer; it is not repeated
    until a source file has changed.

    FileNotFoundError or NotADirectoryError if there is no such folder; GoBuildError if the package
    does not compile.
    """
    folder = check_folder(path)
    with _lock:
        check_library()
        with Builder(folder).built() as built:
            library, module = _loaded.get(folder, (None, None))
            if library == built.library and module is not None:
                return module
            share_preemption()
            address = ctypes.CDLL(str(built.library))
            address.gotorch_pyload_collect()  # waits until Go has started
            share_preemption()
        module = GoModule(built.description, folder, address)
        _loaded[folder] = (built.library, module)
        return module
