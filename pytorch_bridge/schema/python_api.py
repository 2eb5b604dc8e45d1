"""PyTorch's Python API for building and training models, by name and signature.

`python_gen.txt` holds it, one name a line, as the installed torch had it when it was generated:

    torch.nn.functional.elu(input, alpha=1.0, inplace=False)

It is what the layers of Go's package nn and their defaults are generated from, and the list of
names that the documentation and the tests hold to be complete.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

API_FILE = Path(__file__).with_name("python_gen.txt")

# The modules whose public names count.
NAMESPACES = (
    "torch",
    "torch.Tensor",
    "torch.amp",
    "torch.autograd",
    "torch.autograd.function",
    "torch.autograd.graph",
    "torch.fft",
    "torch.linalg",
    "torch.nested",
    "torch.random",
    "torch.sparse",
    "torch.special",
    "torch.nn",
    "torch.nn.attention",
    "torch.nn.attention.bias",
    "torch.nn.attention.flex_attention",
    "torch.nn.attention.varlen",
    "torch.nn.modules.module",
    "torch.nn.functional",
    "torch.nn.init",
    "torch.nn.utils",
    "torch.nn.utils.fusion",
    "torch.nn.utils.parametrizations",
    "torch.nn.utils.parametrize",
    "torch.nn.utils.prune",
    "torch.nn.utils.rnn",
    "torch.nn.utils.stateless",
    "torch.optim",
    "torch.optim.lr_scheduler",
    "torch.optim.swa_utils",
    "torch.func",
    "torch.distributions",
    "torch.distributions.transforms",
    "torch.distributions.constraints",
    "torch.distributed",
    "torch.distributed.algorithms.ddp_comm_hooks.default_hooks",
    "torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook",
    "torch.distributed.algorithms.join",
    "torch.distributed.checkpoint",
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.fsdp",
    "torch.distributed.optim",
    "torch.distributed.pipelining",
    "torch.distributed.tensor.parallel",
    "torch.nn.parallel",
    "torch.utils.checkpoint",
    "torch.profiler",
    "torch.autograd.profiler",
    "torch.utils.data",
    "torch.jit",
)

# Names without an underscore that are no part of what a user calls: patterns, with the reason.
LEFT_OUT = {
    "torch": {
        "AVG|SUM": "of TorchScript's",
        "LoggerBase|StorageBase": "what others are made of",
        "classproperty|get_file_path|prepare_multiprocessing_environment": "helpers of torch's",
        "profiler_allow_cudagraph_cupti_lazy_reinit_cuda12": "a switch of PyTorch's inside",
        "quantized_(gru|lstm)": "operators, in torch.ops",
    },
    "torch.autograd": {
        "DeviceType|Profiler.*|SavedTensor|kineto_available": "of the profiler and the engine in C",
    },
    "torch.autograd.profiler": {"Profiler(Activity|Config|State)": "of the profiler in C"},
    "torch.distributed.fsdp": {"FlatParameter": "what FullyShardedDataParallel is made of"},
    "torch.fft": {"Tensor": "torch.Tensor"},
    "torch.jit": {
        "(ONNX|TopLevel)?TracedModule|RecursiveScript(Class|Module)": "scripts in Python",
        "ScriptWarning|Trac(erWarning|ingCheckError)|is_tracing|script_method": "of scripting",
        "fuser|optimized_execution|run_frozen_optimizations": "switches that are not documented",
        "(jit_module_from|save_jit_module_to)_flatbuffer": "of a format that PyTorch has dropped",
    },
    "torch.nn.functional": {
        "Tensor": "torch.Tensor",
        "assert_int_or_pair|boolean_dispatch": "helpers of the functions",
        "has_torch_function.*": "of subclasses in Python",
    },
    "torch.nn.utils.prune": {"ABC|Iterable|abstractmethod": "Python's"},
    "torch.nn.utils.rnn": {"PackedSequence_|bind": "what PackedSequence is made of"},
    "torch.profiler": {"RecordScope": "of the profiler in C"},
}

# The classes that C++ declares by pybind11 and users know; the others are parts of TorchScript.
_KNOWN_CLASSES = frozenset(["Event", "Tag"])

NO_DEFAULT = object()
ABSENT = "..."  # stands in the file for a default that has no literal


@dataclass(frozen=True)
class PythonArgument:
    """An argument of a function or of a class's constructor."""

    name: str
    default: Any = NO_DEFAULT
    keyword_only: bool = False

    @property
    def required(self) -> bool:
        return self.default is NO_DEFAULT


@dataclass(frozen=True)
class PythonName:
    """A public function, class or constant. `arguments` is None where Python does not say them."""

    namespace: str
    name: str
    arguments: tuple[PythonArgument, ...] | None

    @property
    def full(self) -> str:
        return f"{self.namespace}.{self.name}"

    def argument(self, name: str) -> PythonArgument:
        for a in self.arguments or ():
            if a.name == name:
                return a
        raise KeyError(f"{self.full} has no argument {name}")


@cache
def python_api() -> dict[str, PythonName]:
    """What the file says, by full name."""
    found = {}
    for line in API_FILE.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        full, _, arguments = line.partition("(")
        namespace, _, name = full.rpartition(".")
        parsed = _parse(arguments.removesuffix(")")) if arguments else None
        found[full] = PythonName(namespace, name, parsed)
    return found


def _parse(text: str) -> tuple[PythonArgument, ...]:
    tree = ast.parse(f"def f({text}): pass").body[0]
    assert isinstance(tree, ast.FunctionDef)
    a = tree.args
    plain = [*a.posonlyargs, *a.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(a.defaults))
    defaults += a.defaults
    out = []
    for arg, default, keyword_only in [
        *((x, d, False) for x, d in zip(plain, defaults, strict=True)),
        *((x, d, True) for x, d in zip(a.kwonlyargs, a.kw_defaults, strict=True)),
    ]:
        value: Any = NO_DEFAULT
        if default is not None:
            value = ast.literal_eval(default)
        out.append(PythonArgument(arg.arg, value, keyword_only))
    return tuple(out)


def read_installed_api() -> str:
    """The text of the file for the installed torch.

    It is read in a new process: a program that has imported torch may have added names to it, as
    one does that brings a device.
    """
    root = str(Path(__file__).parents[2])
    code = f"import sys; sys.path.insert(0, {root!r}); from {__name__} import _installed as i; "
    command = [sys.executable, "-c", code + "sys.stdout.write(i())"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _installed() -> str:
    import torch

    version = torch.__version__.split("+")[0]
    lines = [f"# The public names of PyTorch {version}."]
    for namespace in NAMESPACES:
        module = torch.Tensor if namespace == "torch.Tensor" else importlib.import_module(namespace)
        for name in _public(module):
            lines.append(f"{namespace}.{name}{_signature(getattr(module, name))}")
    return "\n".join(lines) + "\n"


def _public(module: Any) -> list[str]:
    """What a module lists in `__all__`, and what is defined there without an underscore."""
    names = sorted({*dir(module), *getattr(module, "__all__", ())})
    return [n for n in names if not not_public(module, n)]


def not_public(module: Any, name: str) -> str:
    """Why a name is no public one of a module's; nothing where it is."""
    if not hasattr(module, name):
        return "listed, but not there"
    value = getattr(module, name, None)
    if name.startswith("_"):
        return "private"
    if inspect.ismodule(value):
        return "a module"
    if inspect.isclass(module):
        return ""  # every attribute of a tensor's
    namespace = module.__name__
    for pattern, reason in LEFT_OUT.get(namespace, {}).items():
        if re.fullmatch(pattern, name):
            return reason
    if _of_pybind(value) and value.__module__ == namespace == "torch":
        return "" if name in _KNOWN_CLASSES else "a class of TorchScript's"
    if name in getattr(module, "__all__", ()):
        return ""
    home = getattr(value, "__module__", None) or ""
    if not callable(value):
        own = type(value).__module__ == namespace
        return "" if own else "a constant that is not listed"
    if not _is_home(home, namespace):
        return f"from {home or 'Python'}"
    return ""


def _of_pybind(value: Any) -> bool:
    return inspect.isclass(value) and type(value).__name__ == "pybind11_type"


def _is_home(home: str, namespace: str) -> bool:
    """Whether what is defined in `home` is what a module defines: there, or in C for it."""
    if namespace == "torch":
        return home.partition(".")[0] in ("torch", "")
    if namespace == "torch.linalg":
        return home.startswith(("torch._C", "torch._linalg"))
    if namespace in ("torch.nn", "torch.distributed", "torch.distributed.checkpoint"):
        return home.startswith((namespace, "torch._C._distributed_c10d"))
    if namespace == "torch.nn.functional":
        return home in ("torch", "") or home.startswith(("torch.nn", "torch._C", "torch._jit"))
    return home in (namespace, f"torch._C._{namespace.rpartition('.')[2]}")


def _signature(value: Any) -> str:
    """The arguments, without annotations; nothing where Python does not tell them."""
    if inspect.isfunction(value) and value.__closure__:
        # What goes to one of two functions by a flag has the signature of both.
        value = inspect.getclosurevars(value).nonlocals.get("if_true", value)
    target = value.__init__ if inspect.isclass(value) else value
    try:
        parameters = list(inspect.signature(target).parameters.values())
    except (TypeError, ValueError):
        return _documented(value)
    if inspect.isclass(value):
        parameters = parameters[1:]
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        return "()" if inspect.isclass(value) and _empty(value) else ""
    out, star = [], False
    for p in parameters:
        if p.kind is p.KEYWORD_ONLY and not star:
            out.append("*")
            star = True
        out.append(p.name if p.default is p.empty else f"{p.name}={_literal(p.default)}")
    return f"({', '.join(out)})"


def _empty(cls: type) -> bool:
    """Whether a class has no constructor of its own."""
    own = cls.__dict__.get("__init__") or inspect.getattr_static(cls, "__init__")
    return own.__qualname__ == "Module.__init__"


def _literal(value: Any) -> str:
    if value is None or isinstance(value, (bool, int, str)):
        return repr(value)
    if isinstance(value, float) and value == value and abs(value) != float("inf"):
        return repr(value)
    if type(value) is tuple and all(isinstance(v, (bool, int, float)) for v in value):
        return repr(value)
    return ABSENT


_NUMBER = re.compile(r"(\d+)(?:\.)?/(\d+)\.?")


def _documented(value: Any) -> str:
    """The signature that the docstring of a function written in C begins with."""
    text = " ".join((value.__doc__ or "").strip().split("\n\n")[0].split())
    found = re.match(r"\w+(\(.*?\))(?: ->|$)", text)
    if not found:
        return ""
    signature = _NUMBER.sub(lambda m: repr(int(m[1]) / int(m[2])), found[1])
    signature = re.sub(r"\s*=\s*", "=", signature)
    try:
        _parse(signature[1:-1])
    except (SyntaxError, ValueError):
        return ""
    return signature
