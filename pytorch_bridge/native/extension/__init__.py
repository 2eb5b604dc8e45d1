"""torch.Tensor to a handle of the C ABI and back, without a copy.

A handle is the address of the tensor's at::TensorImpl, an int, and owns one reference to it: what
`Tensor` is in cgotorch.h. 0 is none, and stands for None.

    h = to_handle(t)      # a new reference to the tensor in t
    t = from_handle(h)    # takes the reference: h must not be used, nor freed, any more
    h = borrow(t)         # no reference: good as long as t lives
    t = peek_handle(h)    # takes nothing: h still has to be freed
    free_handle(h)

A tensor that comes back while Python still holds it is the very same object, with its attributes,
its subclass and its grad; else it is a torch.Tensor with the same data, grad_fn and requires_grad.
What is no tensor, or no int, is a TypeError. That an int is a live handle cannot be checked.

The C++ is compiled when this package is first imported, in a quarter of a minute, and again after
torch, Python or a header of cgotorch has changed. ImportError says what is missing.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys

import torch  # noqa: F401  # first: the extension is linked to its libraries

from pytorch_bridge.errors import CompileError
from pytorch_bridge.native.extension import compiling
from pytorch_bridge.native.toolchain import Missing


def _load(name: str) -> None:
    try:
        path = str(compiling.ensure())
    except (CompileError, Missing) as err:
        raise ImportError(f"The extension of pytorch_bridge cannot be built: {err}") from err
    loader = importlib.machinery.ExtensionFileLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[name] = module


_load(f"{__name__}._compiled")

from pytorch_bridge.native.extension._compiled import (  # noqa: E402
    Entry,
    Graph,
    borrow,
    call_shared,
    end_other_threads,
    free_handle,
    from_handle,
    live_handles,
    peek_handle,
    share_preemption,
    to_handle,
)

__all__ = [
    "Entry",
    "Graph",
    "borrow",
    "call_shared",
    "end_other_threads",
    "free_handle",
    "from_handle",
    "live_handles",
    "peek_handle",
    "share_preemption",
    "to_handle",
]
