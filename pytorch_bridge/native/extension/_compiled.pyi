"""What boundary.cc and graph_call.cc define."""

from collections.abc import Callable
from typing import Any

import torch

class Graph:
    """A compiled graph of a library on disk: called with its inputs by position, it returns its
    output, or a list where there are several or none.

    `constants` is what its C code finds in pb->constants. `explain` makes the exception for a
    failure: it gets the number of the place, 0 for none, and the message of the C ABI or the
    exception that was set.
    """

    n_inputs: int
    n_outputs: int
    def __init__(
        self,
        path: str,
        n_inputs: int,
        n_outputs: int,
        constants: tuple[Any, ...],
        explain: Callable[[int, str | None, BaseException | None], BaseException],
    ) -> None: ...
    def __call__(self, *inputs: Any) -> Any: ...

class Entry:
    """Calls `graph`; or `otherwise` with the same arguments, where they are by name, or of another
    number or other types than the graph takes."""

    graph: Graph
    def __init__(self, graph: Graph, otherwise: Callable[..., Any]) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

def to_handle(tensor: torch.Tensor | None, /) -> int:
    """A handle with a reference of its own to the tensor; 0 for None."""

def borrow(tensor: torch.Tensor | None, /) -> int:
    """A handle without a reference, good as long as the tensor lives; 0 for None."""

def from_handle(handle: int, /) -> torch.Tensor | None:
    """The tensor of a handle, whose reference it takes; None for 0."""

def peek_handle(handle: int, /) -> torch.Tensor | None:
    """The tensor of a handle, which stays the caller's; None for 0."""

def free_handle(handle: int, /) -> None:
    """Drops the reference of a handle; nothing for 0."""

def end_other_threads() -> None:
    """Stops other threads for good at their next call into libcgotorch: at a process's end."""

def share_preemption() -> None:
    """To be called before and after a Go library is loaded and has started: see go_runtimes.h."""

def live_handles() -> int:
    """How many handles were given out, by this package, by Go and by C, and not freed yet."""

def call_shared(address: int, index: int, request: bytes, /) -> bytes:
    """Calls the C function at address without Python's lock; returns its reply.

    It is `int64_t f(int64_t index, const void *request, int64_t n, void **reply)`, which puts
    malloc'ed memory at *reply and returns its size.
    """
