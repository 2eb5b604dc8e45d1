"""Random variations of the modules' inputs: other arguments of the constructors, other tensors.

The databases have the inputs that are right. Here arguments are changed at random, and tensors get
other sizes, strides, dtypes and values; what Python accepts Go must accept, with the same numbers,
and what Python refuses Go must refuse, unless `DIFFERENT` says why not.
"""

from __future__ import annotations

import inspect
import random
import re
import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch

from . import modules as under_test
from .harness import Broken, Harness, WrapperError
from .modules import GoModule, Modules, Tally, copied, database, differ

FLOATS = (0.0, 1.0, -0.5, 0.1, 2.5, 1e-8, 1e8, 1e-40, 0.999, float("nan"), float("inf"))
WORDS = {
    "reduction": ("none", "mean", "sum", "bogus"),
    "padding_mode": ("zeros", "reflect", "replicate", "circular", "bogus"),
    "mode": ("nearest", "linear", "bilinear", "bicubic", "area", "sum", "mean", "max", "bogus"),
    "nonlinearity": ("tanh", "relu", "bogus"),
    "approximate": ("none", "tanh", "bogus"),
}
DTYPES = (
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool,
    torch.complex64,
)  # fmt: skip

# Arguments that are not varied: objects, and those that Go does not have.
KEPT = {"self", "device", "dtype", "_weight", "_freeze", "distance_function", "norm", "options"}
KEPT |= {"custom_encoder", "custom_decoder", "activation"}
# Modules that are not varied, with the reason.
LEFT_OUT = {
    "TransformerEncoder": "made of a layer",
    "TransformerDecoder": "made of a layer",
    "CTCLoss": "PyTorch reads beyond targets that do not fit",
}

# What may differ: by the module's name and by what is said, with the reason.
ONE = "a list of one number is for all directions in Go"
DIFFERENT = (
    ("", "must have the same shape, got", "a loss broadcasts with a warning in Python, not in Go"),
    ("", "Padding length must|one number or|same number of spatial|single Int", ONE),
    ("", "kernel_size equals to|output_size equals to", ONE),
    ("", r"String\(\) is .*(\(\d+,\)|padding=valid)", ONE),
    ("", "not iterable|must be a tuple of ints", "an error of a type, which Go's compiler finds"),
    ("Adaptive.*Pool", "negative dimension|greater than or equal to 0", "-1 is nn.AsInput"),
    ("LazyInstanceNorm", "num_features|running_mean should", "Python's channels without a batch"),
    ("", r"got NaN|\(NaN\)", "a bound that is NaN is refused in Go"),
    ("Dropout", "leaf Variable", "in evaluation mode Go overwrites nothing"),
    ("Conv|Linear", "bias 0 differs", "without inputs Python leaves a bias unset, and Go has 0"),
    ("LazyLinear", "result 0 differs", "without inputs Python leaves a bias unset, and Go has 0"),
    ("LazyConv", "out_channels must be divisible", "Python drops the channels that are left over"),
    ("^Transformer$", "IndexError: index 0", "Python needs one layer of each kind"),
    ("SyncBatchNorm", "should be non-zero", "other batch normalisations take no channels"),
    ("Upsample", "either size or scale_factor", "a factor of 0.0 is none in Python"),
    ("CircularPad", "result 0 differs", "with negative padding, too, Python leaves elements unset"),
)


@dataclass
class Varied:
    """What came of it."""

    cases: int = 0
    same: int = 0
    refused: int = 0
    different: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


def _other(rng: random.Random, name: str, value: Any) -> Any:
    """Another value of an argument."""
    match value:
        case bool():
            return not value
        case int():
            return rng.choice([value - 1, value + 1, 0, 1, 2, 3, -1, 7, value * 2])
        case float():
            return rng.choice(FLOATS)
        case str():
            return rng.choice(WORDS.get(name, (value, "bogus")))
        case torch.Tensor():
            return _other_tensor(rng, value)
        case tuple() | list() if value and all(isinstance(v, (int, float)) for v in value):
            items = list(value)
            at = rng.randrange(len(items))
            items[at] = _other(rng, name, items[at])
            return type(value)(items)
    return value


def _other_tensor(rng: random.Random, given: torch.Tensor) -> torch.Tensor:
    t, n = given.detach().clone(), given.dim()
    match rng.randrange(9):
        case 0 if n:  # another size, also 0
            d = rng.randrange(n)
            size = rng.choice([0, 1, t.shape[d] + 1, t.shape[d] * 2]) if t.shape[d] else 0
            t = t.index_select(d, torch.arange(size) % max(t.shape[d], 1))
        case 1 if n and t.numel():
            t = t.select(rng.randrange(n), 0)
        case 2:
            t = t.unsqueeze(rng.randrange(n + 1))
        case 3 if t.dtype.is_floating_point:
            t = t.contiguous()
            greatest = torch.finfo(t.dtype).max
            t.view(-1)[::3] = rng.choice([float("nan"), float("inf"), -greatest, greatest, 1e-42])
        case 4 if n > 1:  # other strides
            a, b = rng.sample(range(n), 2)
            t = t.transpose(a, b).contiguous().transpose(a, b)
        case 5:
            t = t.to(rng.choice(DTYPES))
        case 6 if n and t.shape[0]:  # overlapping
            t = t.narrow(0, 0, 1).expand(t.shape)
        case 7:
            t = torch.stack([t, t], -1)[..., 0]
        case 8 if n > 1:
            t = t.transpose(*rng.sample(range(n), 2))
    grows = given.requires_grad and (t.dtype.is_floating_point or t.dtype.is_complex)
    return t.requires_grad_(grows)


def _vary(rng: random.Random, cls: Any, given: Any) -> tuple[list, dict, list | None, dict]:
    """A constructor's and a call's arguments, some of them changed."""
    args, kwargs = list(given.constructor_input.args), dict(given.constructor_input.kwargs)
    kwargs.pop("_random_samples", None)
    signature = inspect.signature(cls.__init__).parameters
    names = [n for n in signature if n != "self"]
    plain = [n for n in names if n not in KEPT and not signature[n].kind.name.startswith("VAR")]
    for name in rng.choices(plain, k=rng.choice([0, 1, 1, 2, 3])) if plain else ():
        at, default = names.index(name), signature[name].default
        if at < len(args):
            args[at] = _other(rng, name, args[at])
        elif name in kwargs or default not in (None, inspect.Parameter.empty):
            kwargs[name] = _other(rng, name, kwargs.get(name, default))
    if given.forward_input is None:
        return args, kwargs, None, {}
    inputs = list(given.forward_input.args)
    for at in rng.choices(range(len(inputs)), k=rng.choice([0, 1, 1, 2])) if inputs else ():
        inputs[at] = _other(rng, "", inputs[at])
    return args, kwargs, inputs, dict(given.forward_input.kwargs)


def run(harness: Harness, seed: int, cases: int) -> Varied:
    """Runs that many variations."""
    rng, result, modules = random.Random(seed), Varied(), Modules(harness)
    names = sorted(set(database()) - set(LEFT_OUT))
    samples: dict[Any, list] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while result.cases < cases:
            info = database()[rng.choice(names)]
            training = rng.random() < 0.5
            dtype = rng.choice([torch.float32, torch.float64])
            if dtype not in info.dtypes:
                continue
            key = info.module_cls, dtype, training
            if key not in samples:
                samples[key] = under_test._inputs(info, dtype, training)
            given = rng.choice(samples[key])
            _one(modules, result, rng, info.module_cls, given, dtype, training)
    return result


def _one(
    modules: Modules, result: Varied, rng: random.Random, cls: Any, given: Any,
    dtype: torch.dtype, training: bool,
) -> None:  # fmt: skip
    args, kwargs, inputs, named = _vary(rng, cls, given)
    seed = rng.randrange(1 << 30)
    compare(modules, result, seed, cls, args, kwargs, inputs, named, dtype, training)


def compare(
    modules: Modules, result: Varied, seed: int, cls: Any, args: list, kwargs: dict[str, Any],
    inputs: list | None, named: dict[str, Any], dtype: torch.dtype, training: bool,
) -> None:  # fmt: skip
    """Runs a module with these arguments in both languages, and counts what comes of it."""
    if under_test._takes_dtype(cls) and "dtype" not in kwargs:
        kwargs["dtype"] = dtype
    theirs, ours = [copied((inputs, named)) for _ in "ab"]
    python = wanted = got = None
    refused = answer = ""
    try:
        torch.manual_seed(seed)
        python = cls(*copied(args), **copied(kwargs))
        python.train(training)
        if inputs is not None:
            wanted = python(*theirs[0], **theirs[1])
    except Exception as err:
        refused = f"{type(err).__name__}: {err}".splitlines()[0]
    try:
        modules.harness.seed(seed)
        made = under_test.constructor(cls, tuple(args), kwargs)
        go = GoModule(modules.harness, cls.__name__, made)
        go.train(training)
        if inputs is not None and python is not None:
            got = under_test.forward(cls, go, tuple(args), dict(kwargs), tuple(ours[0]), ours[1])
    except WrapperError as err:
        answer = str(err)
    except (Broken, TypeError, IndexError, AttributeError):
        return  # what the harness cannot say, as Go's compiler would not take it
    result.cases += 1
    problem = ""
    if bool(refused) != bool(answer):
        problem = f"Python: {refused or 'accepts'}; Go: {answer or 'accepts'}"
    elif refused:
        result.refused += 1
    else:
        problem = differ("result", wanted, got) or modules._state("after", python, go)
        problem = problem or differ("input", theirs, ours) or under_test._text(python, go)
        problem = problem or modules._gradients(Tally(), python, go, theirs, ours, wanted, got)
        result.same += not problem
    if problem:
        for of, says, why in DIFFERENT:
            if re.search(of, cls.__name__) and re.search(says, problem):
                result.different[why] += 1
                return
        shapes = [
            f"{tuple(i.shape)} {i.dtype}" if isinstance(i, torch.Tensor) else i
            for i in inputs or ()
        ]
        result.problems.append(
            f"{cls.__name__}({args}, {kwargs}) training={training} of {shapes}: {problem}"
        )
