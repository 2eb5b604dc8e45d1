"""The inductor linker: the graph is traced by torch.export and compiled by AOTInductor.

What comes out is a package, a .pt2 file with machine code and constants. Here it is loaded and
called; `package(path)` writes it for others, such as gotorch/aoti. It is kept in the cache of
compiled graphs, since compiling takes up to minutes, while loading takes a fraction of a second and
needs neither torch.export nor Inductor.

Compiled code looks at nothing: the inputs are checked here before each call, their types, and the
sizes for what torch.export takes for granted about them. That goes with the package, as metadata.
"""

from __future__ import annotations

import itertools
import json
import os
import shlex
import shutil
import sys
import threading
import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from ..aliasing.destroy import Memory
from ..errors import REFUSALS, BridgeTypeError, BridgeValueError, CompileError
from ..graph.basic import Apply, Variable, among
from ..graph.printing import dprint
from ..inference.quiet import default_dtype
from ..native import atomic_files, toolchain
from ..native.artifacts import digest_file
from ..ops.checks import CheckSizes, SizeRule
from ..ops.size_guards import parse
from . import cache
from .c_linker import CacheVersionWarning
from .compile import processor
from .content import NoContent, content
from .torch_export import NUMBERS, check_traceable, head, kind_of, sources, traced

_METADATA = "pytorch_bridge"  # where the package says what its inputs must be

# Constants are kept as such, even small ones, so that all can be set; random numbers are ATen's.
_CONFIG = {"always_keep_tensor_constants": True, "fallback_random": True}

# Numbers for graphs that only this process knows.
_unknown = itertools.count()

# torch.export and Inductor are for one thread at a time.
_compiling = threading.Lock()


class InductorLinker:
    """Compiles the graph between `fgraph.inputs` and `fgraph.outputs`.

    Inputs are tensors on the CPU, whose types give dtype and number of dimensions, integers and
    floats; outputs are tensors on the CPU and numbers. A package has numbers as tensors without
    dimensions, of int64, float64 and bool. The tensors among the constants are constants of the
    package, by their names.

    BridgeTypeError where the types do not allow it, MissingMethodError where an op lacks perform,
    BridgeValueError where the graph writes into an input. Compiling raises a CompileError.
    """

    checks_inputs = False

    def __init__(self, fgraph: Any) -> None:
        self.inputs: list[Variable] = list(fgraph.inputs)
        self.outputs: list[Variable] = list(fgraph.outputs)
        self.order: list[Apply] = list(fgraph.toposort())
        self.names = [v.name or f"input {i}" for i, v in enumerate(self.inputs)]
        self.takes = [kind_of(v.type, f"input {i} ({v})", True) for i, v in enumerate(self.inputs)]
        self.returns = [
            kind_of(v.type, f"output {i} ({v})", False) for i, v in enumerate(self.outputs)
        ]
        check_traceable(self.order)
        for root, _ in Memory(self.order).destroyers:
            if among(root, self.inputs):
                raise BridgeValueError(
                    f"mode 'inductor' does not write into its inputs: leave {root} out of mutable"
                )

    @cached_property
    def path(self) -> Path:
        """The package in the cache; it is compiled where it is not there."""
        make = _Make(self)
        identity, where = make.identity()
        return where.library(dprint(self.outputs, file="str") or "", identity, make)

    def package(self, path: str | os.PathLike[str]) -> Path:
        """Writes the package to a file, which is whole or not there, and returns its path."""
        target = Path(path)
        with atomic_files.file(target) as part:
            shutil.copyfile(self.path, part)
        return target

    def make_thunk(self) -> InductorThunk:
        """A callable that takes the list of input values and returns the list of outputs."""
        return InductorThunk(self)


class InductorThunk:
    """A package, loaded. Several threads may call it."""

    def __init__(self, linker: InductorLinker) -> None:
        import torch

        self.takes, self.returns = linker.takes, linker.returns
        self.names = linker.names
        runners = max(1, min(os.cpu_count() or 1, 16))
        # What torch._inductor.aoti_load_package comes to, without seconds of imports.
        load = torch._C._aoti.AOTIModelPackageLoader
        try:
            self.loader = load(str(linker.path), "model", False, runners, -1)
            assumed = json.loads(self.loader.get_metadata()[_METADATA])
        except (RuntimeError, KeyError, ValueError) as e:
            raise CompileError(
                f"the package {linker.path} cannot be loaded: {head(str(e))}\nRemove it, and it is "
                "compiled again."
            ) from e
        self.assumed = Assumed(self.names, assumed["rules"], assumed["guards"])

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        self.assumed.check(values)
        given = [self._tensor(i, v) for i, v in enumerate(values)]
        results = self.loader.run(given)
        return [
            r if kind == "tensor" else r.item()
            for r, kind in zip(results, self.returns, strict=True)
        ]

    def _tensor(self, i: int, value: Any) -> Any:
        import torch

        if self.takes[i] != "tensor":
            return torch.tensor(value, dtype=getattr(torch, NUMBERS[self.takes[i]]))
        if value.layout != torch.strided:
            raise BridgeTypeError(
                f"{self.names[i]} is a tensor of layout {value.layout}: it must be strided"
            )
        return value.resolve_conj().resolve_neg().contiguous()


class Assumed:
    """What compiled code takes for granted about the sizes of its inputs, as `traced` says it."""

    def __init__(
        self, names: Sequence[str], rules: Sequence[Sequence[Any]], guards: Sequence[str]
    ) -> None:
        known = sources(names)
        self._sizes = CheckSizes(
            names, [SizeRule(*r) for r in rules], [parse(g, known) for g in guards]
        )

    def check(self, values: Sequence[Any]) -> None:
        """BridgeValueError where the values of the inputs have other sizes."""
        self._sizes.perform(None, values, [[None] for _ in values])  # type: ignore[arg-type]


class _Make:
    """Makes the package of a graph, for the cache."""

    source_suffix = ".txt"
    library_suffix = ".pt2"

    def __init__(self, linker: InductorLinker) -> None:
        self.linker = linker
        try:
            self.compiler = toolchain.find_compiler()
        except toolchain.Missing as e:
            raise CompileError(f"mode 'inductor' needs a C++ compiler. {e}") from e

    def identity(self) -> tuple[list[str], cache.Cache]:
        """What tells the package from others, and the cache that it belongs into: that of this
        process alone where the graph has something that no other would recognise."""
        import torch

        linker = self.linker
        words = [
            *map(digest_file, (__file__, str(Path(__file__).with_name("torch_export.py")))),
            torch.__version__,
            str(torch.get_num_threads()),  # is in the code
            str(default_dtype()),
            shlex.join(self.compiler.command),
            self.compiler.version,
            processor(),
            *_settings(),
        ]
        try:
            whole = content(linker.inputs, linker.outputs, linker.order)
        except NoContent as e:
            warnings.warn(
                f"{e}: each process compiles the graphs with it again",
                CacheVersionWarning,
                stacklevel=6,
            )
            return [*words, f"graph {next(_unknown)}"], cache.own_cache()
        return [*words, whole], cache.cache()

    def run(self, source: Path, library: Path, depends: Path) -> None:
        import torch

        linker = self.linker
        with _compiling:
            found = traced(linker.inputs, linker.outputs, linker.order)
            assumed = {"rules": found.rules, "guards": found.guards}
            config: dict[str, Any] = {
                **_CONFIG,
                "aot_inductor.metadata": {_METADATA: json.dumps(assumed)},
            }
            if len(self.compiler.command) == 1:
                config["cpp.cxx"] = (None, self.compiler.command[0])
            try:
                torch._inductor.aoti_compile_and_package(
                    found.program, package_path=str(library), inductor_configs=config
                )
            except (OSError, *REFUSALS) as e:
                raise CompileError(f"AOTInductor failed: {head(f'{type(e).__name__}: {e}')}") from e
        depends.write_text("library:\n")


def _changed(config: Any) -> str:
    """The settings that are not the default ones. Inductor itself also names those that were set to
    what they were already, as torch.use_deterministic_algorithms(False) does."""

    def is_default(line: str) -> bool:
        name, _, value = line.removeprefix(f"{config.__name__}.").partition(" = ")
        entry = config._config.get(name)
        return entry is not None and value == repr(entry.default)

    return "\n".join(t for t in config.codegen_config().splitlines() if not is_default(t))


def _settings() -> list[str]:
    """What has been set of Inductor's configuration, here and in the environment."""
    config = sys.modules.get("torch._inductor.config")
    here = "" if config is None else _changed(config)
    names = sorted(n for n in os.environ if n.startswith(("TORCHINDUCTOR_", "AOT_INDUCTOR_")))
    return [here, *(f"{n}={os.environ[n]}" for n in names if n != "TORCHINDUCTOR_CACHE_DIR")]
