"""Each test registers on its own: what it adds is withdrawn when it ends."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def registry_as_it_was(unregistered):
    pass
