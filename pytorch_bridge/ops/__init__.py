"""Ops: PyTorch's native functions, each under its own name, and the families made of them.

ops.mm(a, b)    ops.add.Scalar(x, 2)    ops.Elemwise(ops.scalar.add)
"""

from __future__ import annotations

from typing import Any

# What is written by hand, and in which module. The rest is PyTorch's; `__init__.pyi` has its types.
HAND_WRITTEN = {
    "Composite": "composite",
    "DeepCopyOp": "basic",
    "Elemwise": "elemwise",
    "NativeOp": "native",
    "Op": "op",
    "Reduce": "reduce",
    "Shape": "basic",
    "Shape_i": "basic",
    "SpecifyShape": "basic",
    "ViewOp": "basic",
    "constant": "native",
    "register_deep_copy_op_c_code": "basic",
    "register_shape_c_code": "basic",
    "register_shape_i_c_code": "basic",
    "register_view_op_c_code": "basic",
}

__all__ = [name for name in HAND_WRITTEN if name[0].isupper()]


def __getattr__(name: str) -> Any:
    import importlib

    if name in HAND_WRITTEN:
        return getattr(importlib.import_module(f".{HAND_WRITTEN[name]}", __name__), name)
    if not name.startswith("__"):
        from .native import find_packet

        packet = find_packet(name)
        if packet is not None:
            globals()[name] = packet
            return packet
    raise AttributeError(f"PyTorch has no native function {name!r}")


def __dir__() -> list[str]:
    from .native import packet_names

    return [*HAND_WRITTEN, *(n for n in packet_names() if not n.startswith("__"))]
