"""Zeros that are written: an option of Go that is given as 0 is PyTorch's argument given as 0.

Each number among the options of the modules and functions of torch.nn is set to zero in an input
of PyTorch's databases, on both sides. What is more, Go is asked once more with the option left out,
and then the comparison has to fail: only so is it shown that the zero arrived and was seen.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from types import NoneType
from typing import Any
from unittest import mock

import torch
from torch.testing._internal.common_modules import FunctionInput, ModuleInput
from torch.testing._internal.opinfo.core import SampleInput

from pytorch_bridge.native.toolchain import ROOT
from pytorch_bridge.schema.names import Names
from pytorch_bridge.schema.nn import layers
from pytorch_bridge.schema.python_api import python_api

from . import functions as of_functions
from . import modules as of_modules
from . import varied
from .harness import Harness
from .modules import Call, Modules, Tally, database

SAMPLES = 24  # of each database entry, at most

# Options of which no input can show whether they were given as zero, with the reason.
UNSEEN = {
    "nn.functional.pad: Value": "0 is what None means",
}


def _own_modules() -> dict[str, list[ModuleInput]]:
    """Inputs that show what the databases' do not: vectors of zeros, and modules to make."""
    nothing = torch.zeros(2, 3)

    def made(*inputs: torch.Tensor, **options: Any) -> ModuleInput:
        call = FunctionInput(*inputs) if inputs else None
        return ModuleInput(FunctionInput(**options), forward_input=call)

    return {
        "CosineSimilarity": [made(nothing, torch.ones(2, 3))],
        "GaussianNLLLoss": [made(torch.ones(2, 3), nothing, nothing.clone())],
        "Transformer": [
            made(d_model=8, nhead=4, num_encoder_layers=1, num_decoder_layers=1, dim_feedforward=2)
        ],
    }


def _own_samples() -> dict[str, list[SampleInput]]:
    nothing, ones, rows = torch.zeros(2, 3), torch.ones(2, 3), torch.tensor([0, 1])
    return {
        "cosine_similarity": [SampleInput(nothing, args=(ones,))],
        "embedding": [SampleInput(3 * ones, args=(rows,), kwargs={"max_norm": 1.0})],
        "embedding_bag": [
            SampleInput(3 * ones, args=(rows[None],), kwargs={"max_norm": 1.0, "mode": "sum"})
        ],
        "gaussian_nll_loss": [SampleInput(ones, args=(nothing, nothing))],
        "hardshrink": [SampleInput(ones / 4)],
        "normalize": [SampleInput(nothing)],
        "one_hot": [SampleInput(rows)],
        "poisson_nll_loss": [SampleInput(nothing, args=(ones,), kwargs={"log_input": False})],
        "rms_norm": [SampleInput(nothing, args=([3],))],
    }


@dataclass
class Zeros:
    """What came of it: options by `nn.ELU: Alpha`."""

    seen: set[str] = field(default_factory=set)
    unseen: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)


@cache
def _api(package: str) -> str:
    lines = (ROOT / "gotorch/testdata/api.txt").read_text().splitlines()
    return "\n".join(line for line in lines if line.startswith(f"gotorch/{package}: "))


@cache
def _sources(package: str) -> str:
    return "\n".join(p.read_text() for p in sorted((ROOT / "gotorch" / package).glob("*.go")))


@cache
def _scalars(package: str, function: str) -> frozenset[str]:
    """The fields of a function's options that are Scalars, which tell zero from nothing."""
    if not (of := re.search(rf": func {function}\(.*?\.\.\.(\w+)\)", _api(package))):
        return frozenset()
    struct = of[1]
    while alias := re.search(rf"\b{struct}\s+= (F\.)?(\w+)$", _sources(package), re.M):
        struct = alias[2]
        if alias[1]:
            package = "nn/functional"
    found = re.findall(rf": type {struct} struct, (\w+) gotorch.Scalar$", _api(package), re.M)
    return frozenset(found)


def _numbers(package: str, function: str, full: str) -> Iterator[tuple[str, str, Any]]:
    """The numbers among a function's optional arguments: PyTorch's name, Go's, and a zero."""
    fields = _scalars(package, function)
    for a in python_api()[full].arguments or ():
        name, default = Names().field(a.name), a.default
        if name not in fields or not isinstance(default, (int, float, NoneType)):
            continue
        if a.name == "align_corners":
            yield a.name, name, False
        elif default is None or default:
            yield a.name, name, type(default or 0)(0)


def _without(name: str) -> Callable[[Call], Call]:
    return lambda made: Call(made.parameters, {k: v for k, v in made.options.items() if k != name})


def modules(harness: Harness) -> Zeros:
    """Sets each number of each module's constructor to zero."""
    result, runner = Zeros(), Modules(harness)
    right = of_modules.constructor
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in sorted(set(database()) - set(varied.LEFT_OUT)):
            info = database()[module]
            signature = list(inspect.signature(info.module_cls.__init__).parameters)[1:]
            for python, go, zero in _numbers("nn", module, f"torch.nn.{module}"):
                option = f"nn.{module}: {go}"
                result.unseen.add(option)
                for given, training in itertools.islice(_inputs(info), SAMPLES):
                    args = list(given.constructor_input.args)
                    kwargs = dict(given.constructor_input.kwargs)
                    if python in signature[: len(args)]:
                        args[signature.index(python)] = zero
                    else:
                        kwargs[python] = zero

                    problems = partial(
                        _problems, runner, info.module_cls, args, kwargs, given, training
                    )
                    result.problems += [f"{option}: {p}" for p in problems()]
                    leave = _without(go)
                    with mock.patch.object(
                        of_modules, "constructor", lambda *of, leave=leave: leave(right(*of))
                    ):
                        if problems():
                            result.seen.add(option)
                            break
    result.unseen -= result.seen
    return result


def _problems(
    runner: Modules,
    cls: Any,
    args: list,
    kwargs: dict[str, Any],
    given: ModuleInput,
    training: bool,
) -> list[str]:
    outcome, inputs, of = varied.Varied(), given.forward_input, torch.float32
    values = None if inputs is None else list(inputs.args)
    named = {} if inputs is None else dict(inputs.kwargs)
    varied.compare(runner, outcome, 1, cls, list(args), dict(kwargs), values, named, of, training)
    return outcome.problems


def _inputs(info: Any) -> Iterator[tuple[Any, bool]]:
    for given in _own_modules().get(info.module_cls.__name__, ()):
        yield given, True
    for training in (True, False):
        for given in of_modules._inputs(info, torch.float32, training):
            yield given, training


def functions(harness: Harness) -> Zeros:
    """Sets each number of each function to zero."""
    result, runner = Zeros(), of_functions.Functions(harness)
    right = of_modules.call
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in sorted({*of_functions.entries(), *of_functions.by_hand(torch.float32)}):
            signature = [
                a.name for a in python_api()[f"torch.nn.functional.{name}"].arguments or ()
            ]
            for python, go, zero in _numbers(
                "nn/functional", layers().functions[name].go, f"torch.nn.functional.{name}"
            ):
                option = f"nn.functional.{name}: {go}"
                result.unseen.add(option)
                for sample in itertools.islice(_samples(name), SAMPLES):
                    changed = copy.copy(sample)
                    changed.args, changed.kwargs = tuple(sample.args), dict(sample.kwargs)
                    at = signature.index(python) - 1
                    if at < len(changed.args):
                        changed.args = (*changed.args[:at], zero, *changed.args[at + 1 :])
                    else:
                        changed.kwargs[python] = zero
                    if problem := runner._one(Tally(), name, changed):
                        result.problems.append(f"{option}: {problem}")
                    leave = _without(go)
                    with mock.patch.object(
                        of_functions, "call", lambda *of, leave=leave: leave(right(*of))
                    ):
                        if runner._one(Tally(), name, changed):
                            result.seen.add(option)
                            break
    result.unseen -= result.seen
    return result


def _samples(name: str) -> Iterator[Any]:
    yield from _own_samples().get(name, ())
    for entry in [*of_functions.entries().get(name, []), None]:
        yield from of_functions._samples(name, entry, torch.float32)
