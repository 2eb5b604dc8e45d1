"""Runs the functions of package nn/functional on the samples of PyTorch's operator database."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.testing._internal.opinfo.core import SampleInput

from pytorch_bridge.schema.nn import layers
from pytorch_bridge.schema.python_api import python_api

from .check import SEED
from .harness import Broken, GoCrash, Harness, WrapperError
from .modules import Tally, call, copied, differ, functional, gradients
from .samples import database as operators
from .samples import sample_inputs

# Functions that the database has no entry for, and the modules whose inputs they are tested with.
BY_MODULES = {
    "dropout1d": "Dropout1d",
    "fold": "Fold",
    "lp_pool1d": "LPPool1d",
    "lp_pool2d": "LPPool2d",
    "lp_pool3d": "LPPool3d",
}


# Functions that a file of tests of their own draws calls of.
DRAWN = ("grouped_mm", "scaled_addmm", "scaled_addmm_", "scaled_grouped_mm", "scaled_mm")

# Names of torch.nn.functional that Go has elsewhere or not at all; those that end in an underscore
# are with the function that they are the form in place of.
NOT_FUNCTIONS = {
    "ScalingType": "functional.ScalingType, a type: test_products.py",
    "SwizzleType": "functional.SwizzleType, a type: test_products.py",
    "conv_tbc": "gotorch.ConvTBC",
    "native_channel_shuffle": "gotorch.NativeChannelShuffle",
    "upsample": "deprecated by PyTorch in favour of interpolate",
    "upsample_bilinear": "deprecated by PyTorch in favour of interpolate",
    "upsample_nearest": "deprecated by PyTorch in favour of interpolate",
}


def by_hand(dtype: torch.dtype) -> dict[str, list[SampleInput]]:
    """Samples for those that have neither."""
    theta = torch.tensor([[[1.0, 0.2, 0.1], [0.0, 0.8, -0.3]]], dtype=dtype)
    deep = torch.tensor([[[1.0, 0.2, 0.1, 0.0], [0.0, 0.8, -0.3, 0.5], [0.1, 0.0, 1.0, 0.0]]])
    logits = torch.linspace(-2, 2, 12, dtype=dtype).reshape(3, 4)
    return {
        "affine_grid": [
            SampleInput(
                theta.clone().requires_grad_(), args=([1, 3, 4, 5],), kwargs={"align_corners": a}
            )
            for a in (False, True)
        ]
        + [SampleInput(deep.to(dtype).requires_grad_(), args=([1, 3, 2, 4, 5],))],
        "gumbel_softmax": [
            SampleInput(logits.clone().requires_grad_(), kwargs=k)
            for k in ({}, {"tau": 0.5, "dim": 0}, {"hard": True})
        ],
    }


@cache
def entries() -> dict[str, list[Any]]:
    """The entries of the database for each function."""
    found: dict[str, list[Any]] = {}
    for name, entry in operators().items():
        base = name.removeprefix("nn.functional.").split(".")[0]
        if base in layers().functions and (name.startswith("nn.functional.") or base in _TORCH):
            found.setdefault(base, []).append(entry)
    return found


# Functions that are torch's own, and in torch.nn.functional by name only.
_TORCH = ("softmax", "log_softmax", "sigmoid", "tanh", "pdist")


class Functions:
    """Runs samples with one harness."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.tallies: dict[str, Tally] = {}

    def run(self, name: str, dtypes: tuple[torch.dtype, ...]) -> list[str]:
        """Runs all samples of a function; returns what differs."""
        tally = self.tallies.setdefault(name, Tally())
        before = len(tally.problems)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for dtype in dtypes:
                for entry in [*entries().get(name, []), None]:
                    for at, sample in enumerate(_samples(name, entry, dtype)):
                        try:
                            problem = self._one(tally, name, sample)
                        except (GoCrash, Broken) as err:
                            problem = f"{type(err).__name__}: {err}"
                        if problem:
                            first = problem.splitlines()[0]
                            tally.problems.append(f"{name} {dtype} #{at}: {first}")
        return tally.problems[before:]

    def _one(self, tally: Tally, name: str, sample: Any) -> str:
        arguments = python_api()[f"torch.nn.functional.{name}"].arguments or ()
        names = [a.name for a in arguments]
        values = [sample.input, *sample.args]
        if name.startswith("embedding"):
            values[:2] = values[1::-1]  # the database has the weight first
        if name == "ctc_loss":
            values[2:4] = [torch.as_tensor(v, dtype=torch.int64) for v in values[2:4]]
        bound = dict(zip(names, values, strict=False))
        for key, value in sample.kwargs.items():
            bound[{"self": "input"}.get(key, key)] = value
        bound = {k: v for k, v in bound.items() if k in names and not k.startswith("_")}
        if _is_default_distance(bound.get("distance_function")):
            del bound["distance_function"]
        ours, theirs = copied(bound), copied(bound)
        torch.manual_seed(SEED)
        error: Exception | None = None
        try:
            first, *rest = theirs
            named = {n: theirs[n] for n in rest}
            wanted = getattr(F, name)(theirs[first], **named)
        except (RuntimeError, ValueError, TypeError, NotImplementedError, IndexError) as err:
            error = err
        self.harness.seed(SEED)
        wants_indices = bool(ours.get("return_indices"))
        target = f"{name}_with_indices" if wants_indices else name
        try:
            given = call(f"torch.nn.functional.{name}", ours)
            got = functional(self.harness, target, given)
        except WrapperError as err:
            if error is not None:
                tally.errors += 1
                return ""
            return f"{err}, where Python returns"
        if error is not None:
            return f"no error, where Python says {error}"
        if problem := differ("result", wanted, got) or differ("input", theirs, ours):
            return problem
        counted, problem = gradients(theirs, ours, wanted, got)
        tally.gradients += counted
        if not problem:
            tally.passed += 1
        return problem


def _is_default_distance(given: Any) -> bool:
    """Whether it is what the loss takes where no distance is given."""
    if not isinstance(given, nn.PairwiseDistance):
        return False
    return all(
        getattr(given, n) == getattr(nn.PairwiseDistance(), n)
        for n in nn.PairwiseDistance.__constants__
    )


def _samples(name: str, entry: Any, dtype: torch.dtype) -> Iterable[Any]:
    """The samples of an entry of the database, or those by hand."""
    if entry is None:
        return by_hand(dtype).get(name, []) if dtype.is_floating_point else []
    if not entry.supports_dtype(dtype, "cpu"):
        return []
    torch.manual_seed(SEED)
    random.seed(SEED)
    return sample_inputs(entry, dtype, dtype in entry.supported_backward_dtypes("cpu"))
