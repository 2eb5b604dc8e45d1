"""export_go: a graph or a model as a Go package."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ... import __version__
from ...native import toolchain
from ...rewrite.devices import device_name
from . import abi, folder, go_file, go_names, golden, weights
from .c_file import PackageFunction
from .go_file import GoFunction, Package
from .source import Source, source
from .training import trained_package

if TYPE_CHECKING:
    import torch

    from ...extending.jitted import Jit
    from ...frontend.model import CompiledModel, Model
    from ...frontend.training_steps import Training
    from ...graph.basic import Variable
    from ...graph.function_graph import FunctionGraph
    from ...link.compiled_function import CompiledFunction

    Exportable: TypeAlias = (
        Model
        | CompiledModel
        | CompiledFunction
        | Jit
        | FunctionGraph
        | tuple[Variable | Sequence[Variable], Variable | Sequence[Variable]]
    )

GO_MOD = """\
{mark}
module {module}

go 1.26.0

require gotorch.dev {version}

replace gotorch.dev => {root}
"""


def export_go(
    graph: Exportable,
    dir: str | Path,
    *,
    package: str | None = None,
    module: str | None = None,
    name: str = "Forward",
    example: Sequence[Any] | None = None,
    golden: bool = True,
    training: Training | bool | None = None,
    device: str | torch.device | None = None,
) -> Path:
    """Writes a Go package that computes a graph, and returns its folder.

    `graph` is a Model (what from_exported returns), a function that `function` or `jit` has
    compiled, a FunctionGraph, or a pair of inputs and outputs. The package needs gotorch and
    nothing else: no Python, and no headers of PyTorch. It has one C file, which `name` calls;
    weights.safetensors, unless there are none; a Go file with documented functions; and a golden
    test, which compares with what Python computes for `example`, the inputs (by default those that
    a model was exported with, else random ones), unless `golden` is False.

    `package` is the name of the package, by default that of the folder. With `module` there is a
    go.mod, which finds gotorch where it is on this machine.

    `training` adds TrainStep, which does forward and backward pass and the optimiser's step in one
    call: True for cross entropy and SGD, or a pb.Training.

    `device` is where the package computes, as "cuda" or "cuda:1": its weights are moved there when
    they are loaded, inputs are expected there and results are there. By default that is where the
    graph was made. Nothing of the device is needed to export, and the golden test, which holds what
    the device computes to what the CPU did within gotorchtest's tolerance, skips itself where there
    is none.

    The folder is written whole or not at all. Files of an earlier export are replaced; a file that
    has the name of a new one and was not written by export_go is an ExportError, and others stay.
    MissingMethodError where an op has no C code, or a type cannot be in Go.
    """
    target = folder.absolute(dir, "export_go")
    if module is not None:
        go_names.module(module)
    package = go_names.package(package, target)
    go_names.exported(name)
    made = source(graph, example, None if device is None else device_name(device))
    if training is None or training is False:
        written = _package(made, package, name)
    else:
        written = trained_package(graph, training, made, package, name)
    files = _files(written, made, example, golden)
    if module is not None:
        files["go.mod"] = _go_mod(module)
    folder.write(target, {n: t.encode() if isinstance(t, str) else t for n, t in files.items()})
    return target


def _go_mod(module: str) -> str:
    import json

    root = str(toolchain.ROOT)
    quoted = json.dumps(root) if any(c in root for c in " \t'\"") else root
    version = f"v{__version__}" if toolchain.INSTALLED else "v0.0.0"
    return GO_MOD.format(mark=folder.GENERATED, module=module, root=quoted, version=version)


def _package(made: Source, package: str, name: str) -> Package:
    """The package with one function."""
    c = PackageFunction(
        made.fgraph(), f"{package}_{name}", n_state=len(made.state), n_hidden=len(made.hidden)
    )
    found = weights.collect(c.constants, made.weights)
    weights.alias(found, made.weights)
    found += [
        weights.Weight(n, made.values[n], device=made.device or weights.device_of(v.type))
        for n, v in made.state.items()
    ]
    data = weights.contents({w.name: w.tensor for w in found}) if found else b""
    embedded = bool(found) and not made.state and weights.is_small(found)
    function = GoFunction(
        c,
        name,
        made.tree,
        "Output" if name == "Forward" else f"{name}Output",
        "computes the model." if made.weights else "computes the graph.",
        list(range(len(found))),
        changes=bool(made.state),
        names=made.names,
    )
    return Package(
        package,
        made.title,
        [function],
        found,
        [],
        weights.digest(data) if data else "",
        embedded=embedded,
        data=data,
    )


def _files(
    package: Package, made: Source, example: Sequence[Any] | None, with_golden: bool
) -> dict[str, str | bytes]:
    package.check()
    types = [v.type for f in package.functions for v in [*f.c.inputs, *f.c.outputs]]
    package.device = next(filter(None, map(weights.device_of, types)), None)
    files: dict[str, str | bytes] = {}
    texts = []
    for f in package.functions:
        files[f"{f.c.file}{f.c.suffix}"] = f.c.source()
        files[f"{f.c.file}.h"] = f.c.header()
        texts.append(f.c.source())
    files["cgotorch.h"] = abi.header(*texts)
    main = package.functions[0].c.file
    files[f"{main}.go"] = _formatted(go_file.main_file(package))
    files["doc.go"] = _formatted(go_file.doc_file(package))
    if package.weights and not package.embedded:
        files[weights.WEIGHTS] = package.data
    if with_golden:
        files |= _golden(package, made, example)
    return files


def _golden(package: Package, made: Source, given: Sequence[Any] | None) -> dict[str, str | bytes]:
    given = made.example if given is None else given
    calls = golden.expected(made.calls, golden.example(made.inputs, given), random=given is None)
    crossings = package.functions[0].c
    tensors: dict[str, Any] = {}
    for before, values, found in calls:
        of = [("in", crossings.takes, values)]
        results, after = [], []
        if found is not None:
            results, after = found[: len(made.outputs)], found[len(made.outputs) :]
            of.append(("out", crossings.gives, results))
        for name, crossed, given in of:
            for i, (crossing, value) in enumerate(zip(crossed, given, strict=True)):
                tensors |= golden.stored(f"{before}{name}.{i}", crossing, value)
        tensors |= {f"{before}after.{i}": t for i, t in enumerate(after)}
    if package.train is not None:
        _, values, found = calls[0]
        assert found is not None
        tensors |= package.train(list(values), found[: len(made.outputs)])
    return {
        golden.FILE: golden.contents(tensors),
        "golden_test.go": _formatted(
            go_file.test_file(package, made.written, [before for before, *_ in calls])
        ),
    }


def _formatted(text: str) -> str:
    """The text as gofmt has it, where Go is installed."""
    try:
        gofmt = toolchain.find_go().path.with_name("gofmt")
    except toolchain.Missing:
        return text
    if not gofmt.exists():
        return text
    done = subprocess.run([gofmt], input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"gofmt rejects what export_go has written:\n{done.stderr}\n{text}")
    return done.stdout
