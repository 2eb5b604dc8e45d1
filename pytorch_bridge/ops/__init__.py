"""Ops: PyTorch's native functions, each under its own name, and the families made of them.

ops.mm(a, b)    ops.add.Scalar(x, 2)    ops.Elemwise(ops.scalar.add)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .op import Op

if TYPE_CHECKING:
    from .basic import DeepCopyOp, Shape, Shape_i, SpecifyShape, ViewOp
    from .composite import Composite
    from .elemwise import Elemwise
    from .native import NativeOp
    from .reduce import Reduce

_CLASSES = {
    "Composite": "composite",
    "DeepCopyOp": "basic",
    "Elemwise": "elemwise",
    "NativeOp": "native",
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

__all__ = ["Composite", "DeepCopyOp", "Elemwise", "NativeOp", "Op", "Reduce", "Shape", "Shape_i"]
__all__ += ["SpecifyShape", "ViewOp"]


def __getattr__(name: str) -> Any:
    import importlib

    if name in _CLASSES:
        return getattr(importlib.import_module(f".{_CLASSES[name]}", __name__), name)
    if not name.startswith("__"):
        from .native import find_packet

        packet = find_packet(name)
        if packet is not None:
            globals()[name] = packet
            return packet
    raise AttributeError(f"PyTorch has no native function {name!r}")


def __dir__() -> list[str]:
    from .native import packet_names

    return [*_CLASSES, *packet_names()]
