"""What the tests of bundles share."""

from __future__ import annotations

from linking import linker, namespaces  # fixtures

__all__ = ["linker", "namespaces"]
