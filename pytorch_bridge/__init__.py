"""pytorch_bridge writes, builds and checks gotorch, PyTorch for Go, and compiles graphs of tensors.

    python -m pytorch_bridge doctor     what is installed, what is missing, what to type
    python -m pytorch_bridge generate   the C and Go functions, from PyTorch's own schema
    python -m pytorch_bridge build      libcgotorch.so, for the torch that is installed

A graph is built from typed variables and ops, and compiled into one function:

    import pytorch_bridge as pb

    x, w = pb.TensorType("float32", (None, 784))("x"), pb.TensorType("float32", (784, 10))("w")
    f = pb.function([x, w], pb.ops.softmax(pb.ops.mm(x, w), -1))
    f(torch.rand(3, 784), torch.rand(784, 10))

Importing the package imports neither torch nor anything else that takes time: every name below is
imported when it is first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"
"""The version of gotorch: of this package, of libcgotorch.so and of the Go module."""

if TYPE_CHECKING:
    from . import ops
    from .autodiff.grad import grad
    from .errors import (
        BridgeError,
        BridgeTypeError,
        BridgeValueError,
        CompileError,
        ContractError,
        DuplicateError,
        ExtensionWarning,
        GradientError,
        InconsistencyError,
        MissingMethodError,
        RegistrationError,
    )
    from .extending import jit
    from .frontend.exported import from_exported
    from .frontend.model import Model
    from .frontend.training_steps import SGD, Adam, AdamW, Training, training_step
    from .graph.basic import Apply, Constant, Variable
    from .graph.function_graph import FunctionGraph
    from .graph.printing import dprint, draw
    from .link.compiled_function import CompiledFunction, function, register_linker
    from .ops.fused_dtypes import FusedDType, register_fused_dtype
    from .ops.native import constant
    from .ops.op import Op
    from .packages.go_package import ExportError, export_go
    from .packages.load_go import load_go
    from .packages.load_go.errors import GoBuildError, GoError
    from .packages.model_folder import export_model
    from .registry import temporary, transaction
    from .rewrite import register_rewrite
    from .types import (
        CType,
        Generic,
        TensorType,
        Type,
        generic,
        register_transfer,
        schema_type,
        transfer,
    )

# Where each name comes from.
_LATER = {
    "Apply": "graph.basic",
    "BridgeError": "errors",
    "BridgeTypeError": "errors",
    "BridgeValueError": "errors",
    "CType": "types",
    "Adam": "frontend.training_steps",
    "AdamW": "frontend.training_steps",
    "CompileError": "errors",
    "CompiledFunction": "link.compiled_function",
    "Constant": "graph.basic",
    "ContractError": "errors",
    "DuplicateError": "errors",
    "ExtensionWarning": "errors",
    "FusedDType": "ops.fused_dtypes",
    "RegistrationError": "errors",
    "register_fused_dtype": "ops.fused_dtypes",
    "register_rewrite": "rewrite",
    "temporary": "registry",
    "transaction": "registry",
    "ExportError": "packages.go_package",
    "FunctionGraph": "graph.function_graph",
    "Generic": "types",
    "GoBuildError": "packages.load_go.errors",
    "GoError": "packages.load_go.errors",
    "GradientError": "errors",
    "InconsistencyError": "errors",
    "MissingMethodError": "errors",
    "Model": "frontend.model",
    "Op": "ops.op",
    "SGD": "frontend.training_steps",
    "TensorType": "types",
    "Training": "frontend.training_steps",
    "Type": "types",
    "Variable": "graph.basic",
    "constant": "ops.native",
    "dprint": "graph.printing",
    "draw": "graph.printing",
    "export_go": "packages.go_package",
    "export_model": "packages.model_folder",
    "from_exported": "frontend.exported",
    "function": "link.compiled_function",
    "generic": "types",
    "jit": "extending",
    "grad": "autodiff.grad",
    "load_go": "packages.load_go",
    "register_linker": "link.compiled_function",
    "register_transfer": "types",
    "schema_type": "types",
    "training_step": "frontend.training_steps",
    "transfer": "types",
}
_PACKAGES = ("ops",)


__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "Apply",
    "BridgeError",
    "BridgeTypeError",
    "BridgeValueError",
    "CType",
    "CompileError",
    "CompiledFunction",
    "Constant",
    "ContractError",
    "DuplicateError",
    "ExportError",
    "ExtensionWarning",
    "FunctionGraph",
    "FusedDType",
    "Generic",
    "GoBuildError",
    "GoError",
    "GradientError",
    "InconsistencyError",
    "MissingMethodError",
    "Model",
    "Op",
    "RegistrationError",
    "TensorType",
    "Training",
    "Type",
    "Variable",
    "constant",
    "dprint",
    "draw",
    "export_go",
    "export_model",
    "from_exported",
    "function",
    "generic",
    "grad",
    "jit",
    "load_go",
    "ops",
    "register_fused_dtype",
    "register_linker",
    "register_rewrite",
    "register_transfer",
    "schema_type",
    "temporary",
    "training_step",
    "transaction",
    "transfer",
]


def load_graphs() -> None:
    """Imports what types need to make variables and ops to be differentiated: layers above them,
    which register themselves."""
    importlib.import_module(".ops.variables", __name__)
    importlib.import_module(".autodiff.grad", __name__)


if not TYPE_CHECKING:  # which would let every name pass

    def __getattr__(name: str) -> Any:
        if name in _PACKAGES:
            return importlib.import_module(f".{name}", __name__)
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f".{_LATER[name]}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER, *_PACKAGES})
