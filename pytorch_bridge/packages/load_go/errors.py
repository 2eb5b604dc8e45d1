"""The exceptions that errors of Go become."""

from __future__ import annotations

import builtins
import pickle

from pytorch_bridge.errors import BridgeError


class GoError(BridgeError, RuntimeError):
    """An error that a Go function returned. Where it wraps a gotorch.Error, that is its cause."""

    go_type = ""
    """The type of the error in Go: "*fs.PathError"."""


class GoBuildError(BridgeError, RuntimeError):
    """A Go package cannot be loaded: it does not compile, or is of a kind that cannot be imported.

    The text is what the Go compiler says, with file:line.
    """


# PyTorch's own classes, by the names under which messages carry them.
_IN_TORCH = {
    "LinAlgError": "linalg.LinAlgError",
    "OutOfMemoryError": "OutOfMemoryError",
    "AcceleratorError": "AcceleratorError",
    "DistError": "distributed.DistError",
    "DistBackendError": "distributed.DistBackendError",
    "DistNetworkError": "distributed.DistNetworkError",
    "DistStoreError": "distributed.DistStoreError",
}


def exception(kind: str, text: str) -> Exception:
    """An exception of the class that PyTorch raises in Python for an error of this kind.

    A kind without a class is a RuntimeError whose text begins with it.
    """
    if kind == "UnpicklingError":
        return pickle.UnpicklingError(text)
    found: object = getattr(builtins, kind, None)
    if kind in _IN_TORCH:
        import torch

        found = torch
        for name in _IN_TORCH[kind].split("."):
            found = getattr(found, name, None)
    if isinstance(found, type) and issubclass(found, Exception):
        return found(text)
    return RuntimeError(f"{kind}: {text}")
