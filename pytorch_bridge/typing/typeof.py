"""`typeof_impl` and `typeof` of pytorch_bridge.extending."""

from __future__ import annotations

from ..extending import typeof, typeof_impl

__all__ = ["typeof", "typeof_impl"]
