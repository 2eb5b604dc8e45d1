"""What the tests of one process share: it holds one Go package."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from pytorch_bridge.testing.conformance.harness import Harness


@pytest.fixture(scope="session")
def harness() -> Harness:
    return Harness()


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """PyTorch computes in one thread, so that sums are in one order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
