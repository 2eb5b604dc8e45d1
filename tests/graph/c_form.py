"""A model as the C function that packages call, compiled with all warnings as errors."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

from pytorch_bridge.native import build
from pytorch_bridge.native.extension import borrow, from_handle
from pytorch_bridge.packages.c_function import CFunction
from pytorch_bridge.packages.go_package.source import source
from pytorch_bridge.types import TensorType

STRICT = [
    "-std=c99",
    "-Wall",
    "-Wextra",
    "-pedantic",
    "-Werror",
    "-Wno-unused-function",
    "-O1",
    "-fPIC",
]


class CForm:
    """Call it with tensors; a RuntimeError has the message of the function."""

    def __init__(self, program: Any, folder: Path) -> None:
        made = source(program, None)
        assert not made.state
        self.function = CFunction(made.fgraph(), "Forward")
        lib = build.toolchain.build_dir() / "lib"
        file = folder / f"forward{len(list(folder.iterdir()))}.c"
        file.write_text(self.function.source())
        here = [f"-I{build.SOURCES}", f"-L{lib}", "-lcgotorch", f"-Wl,-rpath,{lib}"]
        library = file.with_suffix(".so")
        subprocess.run(["cc", *STRICT, "-shared", str(file), "-o", str(library), *here], check=True)
        self.call = ctypes.CDLL(str(library)).Forward
        self.call.restype = ctypes.c_void_p
        self.free = ctypes.CDLL(str(lib / "libcgotorch.so")).cgotorch_FreeString

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        constants = [c.data for c in self.function.constants]
        handles = (ctypes.c_void_p * len(constants))(*map(borrow, constants))
        kinds = [ctypes.c_void_p if tensor(v) else ctypes.c_int64 for v in self.function.outputs]
        results = [kind() for kind in kinds]
        given = [ctypes.c_void_p(borrow(x)) for x in inputs]
        first = [handles] if constants else []
        error = self.call(*first, *given, *map(ctypes.byref, results))
        if error is not None:
            text = ctypes.string_at(error).decode()
            self.free(ctypes.c_void_p(error))
            raise RuntimeError(text)
        pairs = zip(self.function.outputs, results, strict=True)
        return tuple(from_handle(r.value) if tensor(v) else r.value for v, r in pairs)


def tensor(v: Any) -> bool:
    return isinstance(v.type, TensorType)
