"""Options: what is left out is PyTorch's default, and what is written is given, also a zero.

A field of a plain number or bool cannot tell its zero from nothing, so it may only stand where
PyTorch's default is that zero. The lists below are held to be complete, and the defaults in Go's
comments to be PyTorch's.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch.nn.functional as F
from torch import amp, nn, optim
from torch.nn import init
from torch.utils.data import DataLoader

from pytorch_bridge.schema import Names, functions
from pytorch_bridge.targets import api
from pytorch_bridge.toolchain import ROOT

PYTHON: dict[str, Callable[..., Any]] = {
    "gotorch/optim: SGDOptions": optim.SGD,
    "gotorch/optim: AdamOptions": optim.Adam,
    "gotorch/optim: AdamWOptions": optim.AdamW,
    "gotorch/optim: GradScalerOptions": amp.GradScaler,
    "gotorch/nn: LinearOptions": nn.Linear,
    "gotorch/nn: Conv2dOptions": nn.Conv2d,
    "gotorch/nn: BatchNorm2dOptions": nn.BatchNorm2d,
    "gotorch/nn: DropoutOptions": nn.Dropout,
    "gotorch/nn: FlattenOptions": nn.Flatten,
    "gotorch/nn: MaxPool2dOptions": nn.MaxPool2d,
    "gotorch/nn: ReLUOptions": nn.ReLU,
    "gotorch/nn: LoadOptions": nn.Module.load_state_dict,
    "gotorch/nn/functional: LinearOptions": F.linear,
    "gotorch/nn/functional: Conv2dOptions": nn.Conv2d,  # F.conv2d has no signature
    "gotorch/nn/functional: PadOptions": F.pad,
    "gotorch/nn/functional: MaxPool2dOptions": nn.MaxPool2d,
    "gotorch/nn/functional: ReLUOptions": F.relu,
    "gotorch/nn/functional: DropoutOptions": F.dropout,
    "gotorch/nn/functional: BatchNormOptions": F.batch_norm,
    "gotorch/nn/functional: SoftmaxOptions": F.softmax,
    "gotorch/nn/functional: CrossEntropyOptions": F.cross_entropy,
    "gotorch/nn/functional: NLLLossOptions": F.nll_loss,
    "gotorch/nn/functional: MSELossOptions": F.mse_loss,
    "gotorch/nn/init: UniformOptions": init.uniform_,
    "gotorch/nn/init: NormalOptions": init.normal_,
    "gotorch/nn/init: TruncNormalOptions": init.trunc_normal_,
    "gotorch/nn/init: DiracOptions": init.dirac_,
    "gotorch/nn/init: XavierOptions": init.xavier_uniform_,
    "gotorch/nn/init: KaimingOptions": init.kaiming_uniform_,
    "gotorch/nn/init: OrthogonalOptions": init.orthogonal_,
    "gotorch/nn/init: SparseOptions": init.sparse_,
    "gotorch/data: LoaderOptions": DataLoader,
}

# Structs of functions that PyTorch does not have. Their plain fields begin with a zero that is meant.
OURS = {
    "gotorch/aoti: LoadOptions",
    "gotorch/gotorchtest: Options",
    "gotorch/train/plot: GridOptions",
}

NAMES = {
    "LR": "lr", "AMSGrad": "amsgrad", "InPlace": "inplace", "DType": "dtype", "From": "a", "To": "b",
    "Workers": "num_workers", "Prefetch": "prefetch_factor", "Partial": "strict",
    "TrackRunningStats": "track_running_stats", "Disabled": "enabled",
}  # fmt: skip
INVERTED = {"NoBias", "NoAffine", "NoTrackRunningStats", "Partial", "Disabled"}

# Fields that are a value of another argument, or an argument that Python has not.
OTHERS = {
    "SamePadding",  # padding="same"
    "CumulativeAverage",  # momentum=None
    "FanOut",  # mode="fan_out"
    "Seed",  # generator=
}

# Where PyTorch's signature has None, and says elsewhere what that is.
MEANT = {("gotorch/data: LoaderOptions", "Prefetch"): 2}

PLAIN = {"bool", "int", "int64", "uint64", "float64", "string"}


def structs() -> dict[str, dict[str, str]]:
    """The option structs that are written by hand outside of package gotorch: fields and types."""
    found: dict[str, dict[str, str]] = {}
    for line in (ROOT / "gotorch/testdata/api.txt").read_text().splitlines():
        if m := re.fullmatch(r"(gotorch/\S+): type (\w*Options) struct, (\w+) (.*)", line):
            found.setdefault(f"{m[1]}: {m[2]}", {})[m[3]] = m[4]
    return found


def documented(struct: str, field: str) -> str | None:
    """The default that the comment of a field tells."""
    package, name = struct.split(": ")
    for path in (ROOT / package).glob("*.go"):
        if body := re.search(rf"\ntype {name} struct {{\n(.*?)\n}}", path.read_text(), re.S):
            line = re.search(rf"^\t(?:\w+, )*{field}\b.*$", body[1], re.M)
            default = line and re.search(r"default: ([^;]+)$", line[0])
            return default[1] if default else None
    raise AssertionError(f"no source of {struct}")


def python_default(struct: str, field: str) -> Any:
    bare = field.removeprefix("No") if field in INVERTED else field
    name = NAMES.get(bare) or re.sub(r"(?<!^)(?=[A-Z])", "_", bare).lower()
    default = inspect.signature(PYTHON[struct]).parameters[name].default
    default = MEANT.get((struct, field), default)
    return not default if field in INVERTED else default


def test_every_options_struct_is_in_the_table():
    assert set(structs()) == set(PYTHON) | OURS


FIELDS = [(s, f) for s, fields in structs().items() if s in PYTHON for f in fields]


@pytest.mark.parametrize(("struct", "field"), [(s, f) for s, f in FIELDS if f not in OTHERS])
def test_a_field_that_is_left_out_is_pytorchs_default(struct, field):
    kind = structs()[struct][field]
    if kind in PLAIN:
        assert not python_default(struct, field), "this zero is not PyTorch's default"
    elif kind == "gotorch.Scalar":
        default = documented(struct, field)
        assert default is not None, "the comment does not tell the default"
        assert float(default) == python_default(struct, field)


def test_generated_options_have_no_zero_that_is_not_the_default():
    """A plain number has the default 0, and a plain bool False, by the schema."""
    checked = 0
    for op in api.resolve(functions.load_reference(), Names()):
        for p in op.optional:
            option = p.option
            if option is not None and option.type in PLAIN - {"string"}:
                checked += 1
                assert p.argument.default in ("0", "0.", "0.0", "False", "None", "-0."), (
                    op.go,
                    p.field,
                )
    assert checked > 500
