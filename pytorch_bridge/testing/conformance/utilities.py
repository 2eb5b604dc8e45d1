"""Runs the functions of nn/init and of the packages in nn/utils beside PyTorch's.

Those of torch.nn.init fill tensors of many shapes and dtypes, with the same seed. Those of
torch.nn.utils change modules: a module is made in Python and in Go with the same seed, both are
changed, and then compared as they train.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrize, prune

from pytorch_bridge.schema.names import Names
from pytorch_bridge.schema.python_api import python_api

from .check import SEED
from .harness import Broken, GoCrash, Harness, Request, WrapperError
from .modules import (
    FUNCTIONAL,
    Call,
    GoModule,
    Tally,
    _takes_dtype,
    _text,
    constructor,
    differ,
    forward,
    functional,
    gradients,
)

FULL = False  # every shape and layer, rather than some of them: the tests say so

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64)

# Public names that Go has not as a function of that name, with the reason.
NOT_FUNCTIONS = {
    **{
        f"init.{name}": "the old name of the function with an underscore"
        for name in (
            "constant", "dirac", "eye", "kaiming_normal", "kaiming_uniform", "normal", "orthogonal",
            "sparse", "uniform", "xavier_normal", "xavier_uniform",
        )
    },
    "utils.clip_grad_norm": "the old name of the function with an underscore",
    "utils.clip_grad_norm_": "`utils.ClipGradNorm_`: see test_clipping of the modules",
    "utils.clip_grad_value_": "`utils.ClipGradValue_`: see the tests in Go",
    "utils.parameters_to_vector": "`utils.ParametersToVector`: see test_clipping of the modules",
    **{
        f"utils.fusion.{name}": "the same as in torch.nn.utils"
        for name in (
            "fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval",
            "fuse_linear_bn_weights",
        )
    },
    "utils.stateless.functional_call": "the old name of torch.func.functional_call",
    **{
        f"utils.rnn.{name}": "`nn/utils/rnn`: see RNN, LSTM and GRU, and the tests in Go"
        for name in (
            "PackedSequence", "invert_permutation", "pack_padded_sequence", "pack_sequence",
            "pad_packed_sequence", "pad_sequence", "unpack_sequence", "unpad_sequence",
        )
    },
}  # fmt: skip

# Names that the case of another function tries.
BY_FUNCTIONS = {
    "utils.remove_spectral_norm": "spectral_norm",
    "utils.remove_weight_norm": "weight_norm",
    "utils.prune.CustomFromMask": "custom_from_mask",
    "utils.prune.Identity": "identity",
    "utils.prune.L1Unstructured": "l1_unstructured",
    "utils.prune.LnStructured": "ln_structured",
    "utils.prune.RandomStructured": "random_structured",
    "utils.prune.RandomUnstructured": "random_unstructured",
}


class Differs(Exception):
    """What differs between Python and Go."""


class Refused(Exception):
    """Python and Go have both refused a call, with the same error."""


def python_function(name: str) -> Any:
    """A function by its name below torch.nn."""
    module, _, function = name.rpartition(".")
    return getattr(importlib.import_module(f"torch.nn.{module}"), function)


def arguments(name: str, args: tuple, kwargs: dict[str, Any]) -> Call:
    """The arguments in Go, by the rules for options."""
    function = python_function(name)
    bound = dict(inspect.signature(function).bind(*args, **kwargs).arguments)
    api = python_api()[f"torch.nn.{name}"]
    parameters: list[Any] = []
    options: dict[str, Any] = {}
    for a in api.arguments or ():
        if a.name not in bound:
            continue
        value = bound[a.name]
        if isinstance(value, Twin):
            value = value.go
        if a.required:
            parameters.append(value)
        elif name == "init.calculate_gain" or name.endswith("is_parametrized"):
            if value is not None:
                parameters.append(value)  # one that may be there, by itself
        elif a.name == "mode":
            options["FanOut"] = value == "fan_out"
        elif name.endswith("weight_norm") and a.name == "dim":
            options["Dim"] = -1 if value is None else value
        elif value is not None:
            field = Names().field(a.name)
            if a.default is True:
                field, value = f"No{field}", not value
            options[field] = value
    return Call(parameters, options)


def go_name(name: str) -> str:
    """The name of a function in the harness's table."""
    return name.removeprefix("utils.") if name.count(".") > 1 else name


def invoke(harness: Harness, name: str, made: Call) -> Any:
    """What a function of the harness returns; a module comes as one."""
    result = functional(harness, name, made)
    if isinstance(result, int) and not isinstance(result, bool):
        module = GoModule.__new__(GoModule)
        module.harness, module.number = harness, result
        return module
    return result


class Twin:
    """A module in Python and the same in Go."""

    def __init__(self, harness: Harness, python: nn.Module, go: GoModule, made: Any = None) -> None:
        self.harness, self.python, self.go, self.made = harness, python, go, made

    @classmethod
    def of(cls, harness: Harness, kind: Any, *args: Any, **kwargs: Any) -> Twin:
        if "dtype" in kwargs and not _takes_dtype(kind):
            del kwargs["dtype"]
        torch.manual_seed(SEED)
        python = kind(*args, **kwargs)
        harness.seed(SEED)
        go = GoModule(harness, kind.__name__, constructor(kind, args, kwargs))
        return cls(harness, python, go, (kind, args, kwargs))

    @classmethod
    def own(cls, harness: Harness, python: nn.Module) -> Twin:
        return cls(harness, python, GoModule(harness, type(python).__name__, Call([], {})))

    @classmethod
    def sequence(cls, harness: Harness, *twins: Twin) -> Twin:
        go = GoModule(harness, "Sequence", Call([[t.go for t in twins]], {}))
        return cls(harness, nn.Sequential(*(t.python for t in twins)), go)

    def child(self, name: str) -> Twin:
        return Twin(
            self.harness,
            self.python.get_submodule(name),
            invoke(self.harness, "Module.child", Call([self.go, name], {})),
        )

    def apply(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Calls a function in both with this module; returns what Python's returns."""
        return both(self.harness, name, self, *args, **kwargs)

    def call(self, *inputs: Any) -> tuple[Any, Any]:
        """What both make of inputs, after comparing it."""
        torch.manual_seed(SEED)
        wanted = self.python(*inputs)
        state = torch.get_rng_state()
        self.harness.seed(SEED)
        if self.made is None:
            got = invoke(self.harness, "Module.call", Call([self.go, *inputs], {}))
        else:
            kind, args, kwargs = self.made
            got = forward(kind, self.go, args, {**kwargs}, inputs, {})
        if problem := differ("result", wanted, got):
            raise Differs(problem)
        if not torch.equal(state, torch.get_rng_state()):
            raise Differs("a call draws other random numbers")
        return wanted, got

    def check(self, when: str, ordered: bool = True) -> None:
        """Compares all that both have."""
        wanted = {k: v for k, v in self.python.state_dict().items() if v is not None}
        got = self.go.state_dict()
        if sorted(wanted) != sorted(got):
            raise Differs(f"state dict {when}: {sorted(got)}, not {sorted(wanted)}")
        for name in wanted:
            if problem := differ(name, wanted[name], got[name]):
                raise Differs(f"{when}: {problem}")
            if wanted[name].stride() != got[name].stride():
                raise Differs(
                    f"{when}: {name} has strides {got[name].stride()}, not {wanted[name].stride()}"
                )
        for what, theirs, ours in zip(
            ("parameters", "buffers"),
            (dict(self.python.named_parameters()), dict(self.python.named_buffers())),
            self.go.tensors(),
            strict=True,
        ):
            order = list if ordered else sorted
            if order(theirs) != order(ours):
                raise Differs(f"{what} {when}: {list(ours)}, not {list(theirs)}")
            for name, t in theirs.items():
                if t.requires_grad != ours[name].requires_grad:
                    raise Differs(f"{name} {when}: requires_grad is {ours[name].requires_grad}")
        if problem := _text(self.python, self.go):
            raise Differs(f"{when}: {problem}")

    def train(self, *inputs: Any, steps: int = 3) -> None:
        """Trains both, and compares everything after each step."""
        theirs = [p for p in self.python.parameters() if p.requires_grad]
        names = [n for n, p in self.python.named_parameters() if p.requires_grad]
        own = self.go.tensors()[0]
        ours = [own[n] for n in names]
        optimizers = [torch.optim.SGD(p, lr=0.05, momentum=0.9) for p in (theirs, ours)]
        for step in range(steps):
            wanted, got = self.call(*inputs)
            counted, problem = gradients(theirs, ours, wanted, got)
            if problem or not counted:
                raise Differs(f"step {step}: {problem or 'no gradients'}")
            wanted, got = self.call(*inputs)
            for params, result, optimizer in zip(
                (theirs, ours), (wanted, got), optimizers, strict=True
            ):
                for p in params:
                    p.grad = None
                flat = [t for t in _tensors(result) if t.requires_grad]
                torch.autograd.backward(
                    [t.float().pow(2).sum() if not t.is_complex() else t.abs().sum() for t in flat]
                )
                optimizer.step()
            self.check(f"after step {step}", ordered=False)

    def exchange(self, *inputs: Any) -> None:
        """Sends state dicts both ways, with other numbers in them."""
        state = {k: v.clone() for k, v in self.python.state_dict().items()}
        with torch.no_grad():
            for t in self.python.state_dict().values():
                if t.is_floating_point() or t.is_complex():
                    t.mul_(1.25)
        self.go.load_state_dict(self.python.state_dict())
        self.check("after a state dict of Python's", ordered=False)
        self.call(*inputs)
        self.go.load_state_dict(state)
        self.python.load_state_dict({k: v.clone() for k, v in self.go.state_dict().items()})
        self.check("after a state dict of Go's", ordered=False)
        self.call(*inputs)

    def clone(self) -> Twin:
        """A copy in Go, beside the same Python module."""
        copied = invoke(self.harness, "Module.clone", Call([self.go], {}))
        return Twin(self.harness, self.python, copied, self.made)

    def modes(self, x: Any) -> None:
        """Calls it in modes, between calls that are trained."""
        if self.made is None or self.made[0] in NO_LAYERS:
            return
        for mode in ("no_grad", "inference_mode", "scope"):
            torch.manual_seed(SEED)
            wanted = self.python(x)
            self.harness.seed(SEED)
            got = invoke(self.harness, "Module.call_in", Call([mode, self.go, x], {}))
            if problem := differ(f"result in {mode}", wanted, got):
                raise Differs(problem)
            self.call(x)


# Modules whose Forward gets or returns several tensors.
NO_LAYERS = (nn.LSTM, nn.MultiheadAttention, nn.GRUCell, nn.RNNCell, nn.Bilinear)


def _tensors(value: Any) -> list[torch.Tensor]:
    return [t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


# What Python raises of a kind that Go has not.
KINDS = {"AssertionError", "ZeroDivisionError", "KeyError", "AttributeError", "OverflowError"}


def in_python(name: str, args: Any, kwargs: dict) -> tuple[Any, Exception | None, list]:
    """What a function of Python's returns or raises, and the states of the default generator and of
    one that is among the arguments, which is put back."""
    generator = kwargs.get("generator")
    before = generator.get_state() if generator is not None else None
    torch.manual_seed(SEED)
    wanted, failed = None, None
    try:
        wanted = python_function(name)(*args, **kwargs)
    except Exception as err:
        failed = err
    states = [torch.get_rng_state()]
    if generator is not None:
        states.append(generator.get_state())
        generator.set_state(before)
    return wanted, failed, states


def both(harness: Harness, name: str, *args: Any, **kwargs: Any) -> Any:
    """Calls a function in Python and in Go; returns what Python's returns.

    Where Python raises, Go must, and the error is raised. Random numbers are compared by the state
    of the default generator, and of one that is among the arguments.
    """
    theirs = [a.python if isinstance(a, Twin) else a for a in args]
    named = {k: v.python if isinstance(v, Twin) else v for k, v in kwargs.items()}
    made = arguments(name, args, kwargs)
    wanted, failed, states = in_python(name, theirs, named)
    harness.seed(SEED)
    target = go_name(name)
    if name == "utils.prune.ln_structured" and isinstance(made.parameters[3], str):
        target = "prune.ln_structured of a norm with a name"
    try:
        request = Request([FUNCTIONAL, 0, 0])
        request.text_only(target)
        request.invocation(made.parameters, made.options)
        results, generators = harness.send(request)
    except WrapperError as err:
        if failed is None:
            raise Differs(f"{name}: {err}, and Python says nothing") from err
        kind = type(failed).__name__
        if (
            kind != err.kind
            and kind not in KINDS
            and err.kind not in ("ValueError", "RuntimeError")
        ):
            raise Differs(f"{name}: {err}, and Python says {kind}: {failed}") from err
        raise Refused(str(failed)) from failed
    if failed is not None:
        raise Differs(f"{name}: no error, where Python says {type(failed).__name__}: {failed}")
    states_of_go = [torch.get_rng_state(), *generators]
    if any(not torch.equal(a, b) for a, b in zip(states, states_of_go, strict=True)):
        raise Differs(f"{name} draws other random numbers")
    got = results[0] if len(results) == 1 else tuple(results)
    if isinstance(got, int) and not isinstance(got, bool):
        module = GoModule.__new__(GoModule)
        module.harness, module.number = harness, got
        if wanted is not theirs[0]:
            return Twin(
                harness, wanted, module, args[0].made if isinstance(args[0], Twin) else None
            )
        return wanted
    if wanted is not None and (problem := differ(name, wanted, got)):
        raise Differs(problem)
    return wanted


# Cases -------------------------------------------------------------------------------------------

Case = tuple[str, Callable[[Harness, torch.dtype], None], tuple[torch.dtype, ...]]
_cases: dict[str, list[Case]] = {}


def case(name: str, *dtypes: torch.dtype, what: str = "") -> Callable[[Any], Any]:
    """Registers a function as a case of a function of torch.nn."""

    def register(run: Any) -> Any:
        _cases.setdefault(name, []).append((what or run.__name__, run, dtypes))
        return run

    return register


class Utilities:
    """Runs cases with one harness."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.tallies: dict[str, Tally] = {}

    def run(self, name: str, dtypes: tuple[torch.dtype, ...] = DTYPES) -> list[str]:
        """Runs all cases of a function; returns what differs."""
        tally = self.tallies.setdefault(name, Tally())
        before = len(tally.problems)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for what, run, of in cases()[name]:
                for dtype in dtypes:
                    if dtype not in of:
                        continue
                    try:
                        run(self.harness, dtype)
                    except Exception as err:  # also the harness's own
                        tally.problems.append(f"{what} {dtype}: {type(err).__name__}: {err}"[:1500])
                    else:
                        tally.passed += 1
            for what, run, of in errors().get(name, ()):
                try:
                    run(self.harness, of[0])
                except Refused:
                    tally.errors += 1
                except Exception as err:  # also the harness's own
                    tally.problems.append(f"{what}: {type(err).__name__}: {err}"[:1500])
                else:
                    tally.problems.append(f"{what}: Python has no error")
        return tally.problems[before:]


@cache
def cases() -> dict[str, list[Case]]:
    """All cases, by the function's name below torch.nn."""
    _init_cases()
    return _cases


@cache
def errors() -> dict[str, list[Case]]:
    """Cases in which Python raises."""
    return _errors()


# Initial values ----------------------------------------------------------------------------------

SHAPES = (
    (), (1,), (7,), (0,), (3, 4), (4, 3), (5, 5), (1, 1), (0, 3), (3, 0), (2, 3, 4), (4, 2, 3),
    (6, 2, 3, 3), (2, 4, 1, 5), (4, 2, 3, 2, 3), (130, 17),
)  # fmt: skip

ALL = DTYPES
REAL = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
LAPACK = (torch.float32, torch.float64, torch.complex64)


def _tensors_of(shape: tuple[int, ...], dtype: torch.dtype) -> Iterator[torch.Tensor]:
    """Tensors of a shape, contiguous and not."""
    yield torch.full(shape, 0.5, dtype=dtype)
    yield torch.full(shape, 0.5, dtype=dtype).requires_grad_()
    if len(shape) > 1:
        yield torch.full(shape[::-1], 0.5, dtype=dtype).permute(*range(len(shape) - 1, -1, -1))
        yield torch.full((*shape[:-1], 2 * shape[-1]), 0.5, dtype=dtype)[..., ::2]


INIT: dict[str, list[tuple[tuple, dict[str, Any]]]] = {
    "uniform_": [
        ((), {}), ((), {"a": -2.0}), ((), {"a": 1.0, "b": 1.5}), ((), {"a": 0.0, "b": 0.0}),
    ],
    "normal_": [
        ((), {}), ((), {"mean": 3.0}), ((), {"mean": -1.0, "std": 0.25}), ((), {"std": 0.0}),
    ],
    "trunc_normal_": [
        ((), {}), ((), {"std": 0.02}), ((), {"mean": 1.0, "std": 2.0, "a": 0.5, "b": 0.75}),
        ((), {"mean": 5.0, "std": 1.0, "a": -1.0, "b": 1.0}), ((), {"a": 0.0, "b": 0.0}),
        ((), {"mean": 0.3, "std": 0.7, "a": -0.1, "b": 3.0}),
    ],
    "constant_": [((0.3,), {}), ((2,), {}), ((float("nan"),), {})],
    "ones_": [((), {})],
    "zeros_": [((), {})],
    "eye_": [((), {})],
    "dirac_": [((), {}), ((), {"groups": 2})],
    "xavier_uniform_": [((), {}), ((), {"gain": 1.7}), ((), {"gain": 0.0})],
    "xavier_normal_": [((), {}), ((), {"gain": 1.7}), ((), {"gain": 0.0})],
    "kaiming_uniform_": [
        ((), {}), ((), {"a": 0.3}), ((), {"mode": "fan_out"}), ((), {"nonlinearity": "relu"}),
        ((), {"a": 2.0, "mode": "fan_out", "nonlinearity": "tanh"}),
    ],
    "kaiming_normal_": [
        ((), {}), ((), {"a": 0.3}), ((), {"mode": "fan_out"}), ((), {"nonlinearity": "selu"}),
    ],
    "orthogonal_": [((), {}), ((), {"gain": 2.5})],
    "sparse_": [((0.5,), {}), ((0.1,), {"std": 2.0}), ((1.0,), {}), ((0.0,), {}), ((2.0,), {})],
}  # fmt: skip

_GENERATORS = {n for n in INIT if n not in ("constant_", "ones_", "zeros_", "eye_", "dirac_")}

# Where Go refuses what Python computes something of, with the reason.
STRICTER = {
    "sparse_": "a negative sparsity, of which Python takes the places counted from the end",
    "dirac_": "groups that are negative, for which Python fills with zeros",
}


def _init_one(harness: Harness, name: str, t: torch.Tensor, args: tuple, kwargs: dict) -> bool:
    """Fills a tensor in both; returns whether Python does."""
    backing = t.detach()
    storage = backing.untyped_storage().clone()
    ours = torch.empty(0, dtype=t.dtype).set_(
        storage, backing.storage_offset(), backing.shape, backing.stride()
    )
    ours.requires_grad_(t.requires_grad)
    full = f"init.{name}"
    _, failed, states = in_python(full, (t, *args), kwargs)
    harness.seed(SEED)
    made = arguments(full, (ours, *args), kwargs)
    request = Request([FUNCTIONAL, 0, 0])
    request.text_only(full)
    request.invocation(made.parameters, made.options)
    try:
        results, generators = harness.send(request)
    except WrapperError as err:
        if failed is None:
            raise Differs(f"{err}, and Python says nothing") from err
        return False
    if failed is not None:
        raise Differs(f"no error, where Python says {type(failed).__name__}: {failed}")
    if results[0] is not ours:
        raise Differs("what is returned is another tensor")
    for a, b in zip(states, [torch.get_rng_state(), *generators], strict=True):
        if not torch.equal(a, b):
            raise Differs("other random numbers are drawn")
    whole = [
        torch.empty(0, dtype=torch.uint8).set_(x.detach().untyped_storage()) for x in (t, ours)
    ]
    if not torch.equal(*whole):
        raise Differs(differ("the tensor", t, ours) or "the bits, or what is beside the tensor")
    if ours.stride() != t.stride() or ours.requires_grad != t.requires_grad or not ours.is_leaf:
        raise Differs("strides or part in autograd")
    return True


def _init_cases() -> None:
    for name, variants in INIT.items():

        def run(
            harness: Harness, dtype: torch.dtype, name: str = name, variants: Any = variants
        ) -> None:
            filled = 0
            shapes = SHAPES if FULL else SHAPES[::3]
            for shape, (args, kwargs) in itertools.product(shapes, variants):
                for i, t in enumerate(_tensors_of(shape, dtype)):
                    given = dict(kwargs)
                    if i == 0 and name in _GENERATORS:
                        given["generator"] = torch.Generator().manual_seed(SEED + 1)
                    try:
                        filled += _init_one(harness, name, t, args, given)
                    except (Differs, GoCrash, Broken) as err:
                        raise Differs(
                            f"{shape} {args} {kwargs} #{i}: {type(err).__name__}: {err}"
                        ) from err
            if not filled:
                raise Differs("nothing was filled")

        of = LAPACK if name == "orthogonal_" else REAL if name == "trunc_normal_" else ALL
        _cases.setdefault(f"init.{name}", []).append(("all shapes", run, of))


@case("init.calculate_gain", torch.float32)
def gains(harness: Harness, dtype: torch.dtype) -> None:
    for name in (
        "linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
        "conv_transpose3d", "sigmoid", "tanh", "relu", "leaky_relu", "selu",
    ):  # fmt: skip
        both(harness, "init.calculate_gain", name)
        both(harness, "init.calculate_gain", name, 0.2)
        both(harness, "init.calculate_gain", name, 0)


# Modules -----------------------------------------------------------------------------------------


def rand(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(SEED)
    plain = torch.complex128 if dtype.is_complex else torch.float64
    return torch.randn(shape, generator=generator, dtype=plain).to(dtype)


def layer_cases(dtype: torch.dtype) -> Iterator[tuple[str, Any, tuple, dict, str, tuple]]:
    """Layers, a tensor of theirs, and inputs."""
    yield "Linear", nn.Linear, (3, 4), {}, "weight", (rand(2, 3, dtype=dtype),)
    yield "square Linear", nn.Linear, (4, 4), {"bias": False}, "weight", (rand(2, 4, dtype=dtype),)
    yield "flat Linear", nn.Linear, (5, 2), {}, "weight", (rand(5, dtype=dtype),)
    yield "Conv2d", nn.Conv2d, (2, 4, 3), {"groups": 2}, "weight", (rand(1, 2, 5, 5, dtype=dtype),)
    yield "Conv1d", nn.Conv1d, (2, 3, 2), {}, "weight", (rand(2, 2, 5, dtype=dtype),)
    yield (
        "ConvTranspose2d",
        nn.ConvTranspose2d,
        (2, 4, 3),
        {},
        "weight",
        (rand(1, 2, 4, 4, dtype=dtype),),
    )
    yield "Embedding", nn.Embedding, (5, 3), {}, "weight", (torch.tensor([[0, 4, 4]]),)
    yield (
        "Bilinear",
        nn.Bilinear,
        (2, 3, 4),
        {},
        "weight",
        (rand(5, 2, dtype=dtype), rand(5, 3, dtype=dtype)),
    )
    yield "LSTM", nn.LSTM, (3, 4), {}, "weight_hh_l0", (rand(5, 2, 3, dtype=dtype),)
    yield (
        "GRUCell",
        nn.GRUCell,
        (3, 4),
        {},
        "weight_ih",
        (rand(2, 3, dtype=dtype), rand(2, 4, dtype=dtype)),
    )


QUICK = ("Linear", "ConvTranspose2d", "LSTM")  # the layers of the tests that are not the full ones

# Why spectral norm is not tried on LSTM: each time that the weight is computed may change it.
SEVERAL_TIMES = "a recurrent layer reads its weights several times a call in Python"


REAL_ONLY = (nn.LSTM, nn.GRUCell, nn.Embedding, nn.Bilinear)  # without complex gradients in PyTorch


def lifecycle(
    harness: Harness,
    dtype: torch.dtype,
    apply: Callable[[Twin, str], Any],
    remove: Callable[[Twin, str], Any],
    *,
    leave_out: tuple[str, ...] = (),
    again: Callable[[Twin, str], Any] | None = None,
) -> None:
    """Changes layers, trains them, sends their state, copies them and changes them back."""
    tried = 0
    for what, kind, args, kwargs, name, inputs in layer_cases(dtype):
        if not FULL and what not in QUICK:
            continue
        if what in leave_out or (dtype.is_complex and kind in REAL_ONLY):
            continue
        try:
            twin = Twin.of(harness, kind, *args, **kwargs, dtype=dtype)
            apply(twin, name)
            twin.check("at first")
            twin.call(*inputs)
            twin.check("after a call")
            twin.train(*inputs)
            if again is not None:
                again(twin, name)
                twin.check("again")
                twin.train(*inputs, steps=2)
            twin.python.eval()
            twin.go.train(False)
            twin.train(*inputs, steps=1)
            twin.modes(inputs[0])
            twin.exchange(*inputs)
            copied = twin.clone()
            copied.check("in a copy", ordered=False)
            copied.call(*inputs)
            twin.python.train()
            twin.go.train(True)
            remove(twin, name)
            twin.check("after removal", ordered=False)
            twin.train(*inputs, steps=1)
        except (Differs, GoCrash, Broken, WrapperError) as err:
            raise Differs(f"{what}: {type(err).__name__}: {err}") from err
        tried += 1
    assert tried


BOTH = (torch.float32, torch.float64)


@case("utils.parametrizations.weight_norm", *BOTH, torch.bfloat16)
@case("utils.weight_norm", *BOTH, torch.bfloat16)
def _weight_norm(harness: Harness, dtype: torch.dtype) -> None:
    for dim in (0, 1, None):
        for new in (True, False):
            package = "utils.parametrizations" if new else "utils"

            def apply(t: Twin, name: str, p: str = package, dim: Any = dim) -> None:
                t.apply(f"{p}.weight_norm", name, dim=dim)

            def remove(t: Twin, name: str, new: bool = new) -> None:
                if new:
                    t.apply("utils.parametrize.remove_parametrizations", name)
                else:
                    t.apply("utils.remove_weight_norm", name)

            lifecycle(harness, dtype, apply, remove)


@case("utils.parametrizations.spectral_norm", *BOTH, torch.complex64)
def _new_spectral_norm(harness: Harness, dtype: torch.dtype) -> None:
    for options in ({}, {"n_power_iterations": 3, "eps": 1e-4}, {"dim": 1}, {"dim": -1}):
        lifecycle(
            harness,
            dtype,
            lambda t, name, o=options: t.apply("utils.parametrizations.spectral_norm", name, **o),  # type: ignore[misc]
            lambda t, name: t.apply("utils.parametrize.remove_parametrizations", name),
            leave_out=("LSTM",),
        )
    twin = Twin.of(harness, nn.Linear, 3, 4, dtype=dtype)  # of one dimension
    twin.apply("utils.parametrizations.spectral_norm", "bias")
    twin.check("a vector")
    twin.train(rand(2, 3, dtype=dtype))
    twin.apply("utils.parametrize.remove_parametrizations", "bias")


@case("utils.spectral_norm", *BOTH)
def _old_spectral_norm(harness: Harness, dtype: torch.dtype) -> None:
    for options in ({}, {"n_power_iterations": 3, "eps": 1e-4}, {"dim": 1}):
        lifecycle(
            harness,
            dtype,
            lambda t, name, o=options: t.apply("utils.spectral_norm", name, **o),  # type: ignore[misc]
            lambda t, name: t.apply("utils.remove_spectral_norm", name),
        )


@case("utils.parametrizations.orthogonal", *BOTH, torch.complex64)
def _orthogonal(harness: Harness, dtype: torch.dtype) -> None:
    for by in (None, "matrix_exp", "cayley", "householder"):
        for trivial in (True, False):
            if dtype.is_complex and by == "householder":
                continue
            lifecycle(
                harness,
                dtype,
                lambda t, name, by=by, trivial=trivial: t.apply(  # type: ignore[misc]
                    "utils.parametrizations.orthogonal", name, by, use_trivialization=trivial
                ),
                lambda t, name: t.apply("utils.parametrize.remove_parametrizations", name),
            )


# Parametrizations of one's own -------------------------------------------------------------------


class Symmetric(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.triu() + x.triu(1).mT


class NoResize(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.sin()

    def right_inverse(self, x: Any) -> Any:
        raise NotImplementedError("no inverse")


class Skew(nn.Module):
    def forward(self, x: Any) -> Any:
        upper = x.triu(1)
        return upper - upper.mT

    def right_inverse(self, a: Any) -> Any:
        return a.triu(1)


class RankOne(nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        return x.unsqueeze(-1) * y.unsqueeze(-2)

    def right_inverse(self, y: Any) -> Any:
        return y.select(1, 0).clone(), y.select(0, 0).clone()


class Sum(nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        return x + y

    def right_inverse(self, y: Any) -> Any:
        return y, torch.zeros_like(y)


class Double(nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2

    def right_inverse(self, y: Any) -> Any:
        return y / 2


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(3.0))

    def forward(self, x: Any) -> Any:
        return x * self.scale


class Resized(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.select(0, 0)


class AsDouble(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.double()


class WrongInverse(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.float()

    def right_inverse(self, y: Any) -> Any:
        return y.double()


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 3))
        self.register_buffer("mean", torch.ones(3))

    def forward(self, x: Any) -> Any:
        return x @ self.weight + self.mean


REGISTER = "utils.parametrize.register_parametrization"
REMOVE = "utils.parametrize.remove_parametrizations"


def register(twin: Twin, name: str, kind: Any, **options: Any) -> Twin:
    made = Twin.own(twin.harness, kind())
    twin.apply(REGISTER, name, made, **options)
    return made


@case(REGISTER, torch.float32)
def _registered(harness: Harness, dtype: torch.dtype) -> None:
    for kinds in (
        (Symmetric,), (Skew,), (RankOne,), (Sum,), (Double,), (Scaled,), (NoResize,),
        (Symmetric, Double), (Sum, Double, Double), (RankOne, Symmetric, Scaled),
        (Double, Double, Double), (NoResize, Skew),
    ):  # fmt: skip
        for kind, args, inputs in (
            (nn.Linear, (4, 4), (rand(2, 4),)),
            (nn.RNNCell, (4, 4), (rand(2, 4), rand(2, 4))),
        ):
            name = "weight" if kind is nn.Linear else "weight_hh"
            twin = Twin.of(harness, kind, *args)
            for k in kinds:
                register(twin, name, k)
            twin.check("at first")
            twin.train(*inputs)
            twin.modes(inputs[0])
            twin.exchange(*inputs)
            twin.clone().call(*inputs)
            twin.apply(REMOVE, name)
            twin.check("after removal", ordered=False)
            twin.train(*inputs, steps=1)


@case(REGISTER, torch.float32)
@case(REMOVE, torch.float32)
def _several_tensors(harness: Harness, dtype: torch.dtype) -> None:
    twin = Twin.of(harness, nn.Linear, 4, 4)
    register(twin, "bias", Double)
    register(twin, "weight", Skew)
    register(twin, "bias", Scaled)
    twin.check("two")
    twin.train(rand(2, 4))
    twin.apply(REMOVE, "bias", leave_parametrized=False)
    twin.check("one")
    twin.train(rand(2, 4))
    twin.apply(REMOVE, "weight", leave_parametrized=False)
    twin.check("none", ordered=False)
    twin.train(rand(2, 4))


@case(REGISTER, torch.float32)
def _modules_and_buffers(harness: Harness, dtype: torch.dtype) -> None:
    twin = Twin.own(harness, Own())
    register(twin, "mean", Double)
    register(twin, "weight", Symmetric)
    twin.check("at first")
    twin.train(rand(2, 3))
    twin.exchange(rand(2, 3))
    twin.apply(REMOVE, "mean")
    twin.apply(REMOVE, "weight")
    twin.check("after removal")
    norm = Twin.of(harness, nn.BatchNorm1d, 3)
    register(norm, "running_mean", Double)
    register(norm, "weight", Scaled)
    norm.python.eval()
    norm.go.train(False)
    norm.check("batch norm")
    norm.train(rand(4, 3))
    frozen = Twin.of(harness, nn.Linear, 3, 3)
    frozen.python.requires_grad_(False)
    invoke(harness, "Module.freeze", Call([frozen.go], {}))
    register(frozen, "weight", Sum)
    register(frozen, "bias", Double)
    frozen.check("frozen")
    frozen.call(rand(2, 3))
    frozen.apply(REMOVE, "bias")
    frozen.check("frozen, one removed", ordered=False)


@case(REGISTER, torch.float32)
def _nested(harness: Harness, dtype: torch.dtype) -> None:
    first, second = (Twin.of(harness, nn.Linear, 3, 3) for _ in "ab")
    twin = Twin.sequence(harness, first, Twin.of(harness, nn.Tanh), second, first)
    register(first, "weight", Symmetric)
    second.apply("utils.parametrizations.spectral_norm")
    twin.check("shared")
    twin.train(rand(2, 3))
    twin.exchange(rand(2, 3))
    copied = twin.clone()
    copied.check("a copy")
    copied.call(rand(2, 3))
    # a parametrization that is parametrized itself
    inner = Twin.of(harness, nn.Linear, 3, 3)
    scaled = register(inner, "weight", Scaled)
    register(scaled, "scale", Double)
    inner.check("in a parametrization")
    inner.train(rand(2, 3))


@case(REGISTER, torch.float32)
def _attention(harness: Harness, dtype: torch.dtype) -> None:
    for batch_first in (False, True):
        twin = Twin.of(harness, nn.MultiheadAttention, 4, 2, batch_first=batch_first)
        x = rand(3, 2, 4)
        register(twin.child("out_proj"), "weight", Symmetric)
        register(twin, "in_proj_weight", Double)
        twin.check("attention")
        twin.train(x, x.clone(), x + 1)
        twin.python.eval()
        twin.go.train(False)
        with torch.no_grad():
            twin.call(x, x.clone(), x + 1)
    layer = Twin.of(
        harness, nn.TransformerEncoderLayer, 4, 2, dim_feedforward=6, dropout=0.0, batch_first=True
    )
    layer.child("linear1").apply("utils.parametrizations.weight_norm")
    register(layer.child("self_attn.out_proj"), "weight", Symmetric)
    layer.check("an encoder layer")
    layer.train(rand(2, 3, 4))
    layer.python.eval()
    layer.go.train(False)
    layer.call(rand(2, 3, 4))


@case("utils.parametrize.ParametrizationList", torch.float32)
def _assigned(harness: Harness, dtype: torch.dtype) -> None:
    for kinds in ((Double,), (Skew,), (RankOne,), (Sum, Double), (Double, Double)):
        twin = Twin.of(harness, nn.Linear, 4, 4)
        for k in kinds:
            register(twin, "weight", k)
        twin.python.weight = rand(4, 4)
        invoke(
            harness,
            "parametrize.ParametrizationList.right_inverse",
            Call([twin.go, "weight", rand(4, 4)], {}),
        )
        twin.check("assigned")
        twin.train(rand(2, 4))
        wanted = twin.python.weight
        got = invoke(harness, "parametrize.refresh", Call([twin.go, "weight"], {}))
        if problem := differ("the weight", wanted, got):
            raise Differs(problem)
    for by, trivial in (
        ("cayley", True),
        ("matrix_exp", True),
        ("householder", True),
        ("householder", False),
    ):
        for shape in ((4, 4), (3, 5), (5, 3)):
            twin = Twin.of(harness, nn.Linear, *shape)
            twin.apply(
                "utils.parametrizations.orthogonal", "weight", by, use_trivialization=trivial
            )
            value = (
                torch.linalg.qr(rand(*shape[::-1]))[0]
                if shape[1] >= shape[0]
                else rand(*shape[::-1])
            )
            torch.manual_seed(SEED)
            twin.python.weight = value
            harness.seed(SEED)
            invoke(
                harness,
                "parametrize.ParametrizationList.right_inverse",
                Call([twin.go, "weight", value.clone()], {}),
            )
            twin.check("assigned an orthogonal one")
            twin.train(rand(2, shape[0]))


@case("utils.parametrize.cached", torch.float32)
def _cached(harness: Harness, dtype: torch.dtype) -> None:
    twin = Twin.of(harness, nn.Linear, 3, 3)
    twin.apply("utils.parametrizations.spectral_norm")
    x = rand(2, 3)
    with parametrize.cached():
        wanted = twin.python(x), twin.python(x)
    got = invoke(harness, "parametrize.cached", Call([twin.go, x], {}))
    if problem := differ("in the cache", wanted, got):
        raise Differs(problem)
    twin.check("after the cache")
    counted, problem = gradients(
        list(twin.python.parameters()), list(twin.go.tensors()[0].values()), wanted, got
    )
    if problem or not counted:
        raise Differs(problem)
    twin.train(x)


@case("utils.parametrize.is_parametrized", torch.float32)
@case("utils.parametrize.type_before_parametrizations", torch.float32)
def _told(harness: Harness, dtype: torch.dtype) -> None:
    twin = Twin.of(harness, nn.Linear, 3, 3)
    for step in range(3):
        for args in ((), ("weight",), ("bias",), ("nothing",)):
            twin.apply("utils.parametrize.is_parametrized", *args)
        wanted = parametrize.type_before_parametrizations(twin.python).__name__
        got = invoke(harness, "parametrize.type_before_parametrizations", Call([twin.go], {}))
        if wanted != got:
            raise Differs(f"the type is {got}, not {wanted}")
        if step == 0:
            register(twin, "weight", Double)
        elif step == 1:
            twin.apply(REMOVE, "weight")


@case("utils.parametrize.transfer_parametrizations_and_params", torch.float32)
def _transferred(harness: Harness, dtype: torch.dtype) -> None:
    for kinds, only in (((Double,), None), ((Sum, Double), None), ((Symmetric,), "weight")):
        source, target = (Twin.of(harness, nn.Linear, 4, 4) for _ in "ab")
        for k in kinds:
            register(source, "weight", k)
        register(source, "bias", Double)
        source.apply("utils.parametrize.transfer_parametrizations_and_params", target, only)
        target.check("transferred")
        target.train(rand(2, 4))
        source.check("they share")
        source.call(rand(2, 4))


# Pruning -----------------------------------------------------------------------------------------

PRUNERS: dict[str, list[tuple[tuple, dict[str, Any]]]] = {
    "identity": [((), {})],
    "random_unstructured": [((0.4,), {}), ((3,), {}), ((0,), {}), ((0.0,), {}), ((1.0,), {})],
    "l1_unstructured": [((0.4,), {}), ((3,), {}), ((0,), {}), ((1.0,), {})],
    "random_structured": [((0.5, 0), {}), ((1, 1), {}), ((0, 0), {}), ((0.3, -1), {})],
    "ln_structured": [
        ((0.5, 2, 0), {}), ((1, 1, 1), {}), ((0.5, float("inf"), -1), {}), ((1, "fro", 0), {}),
        ((0, 2, 0), {}), ((0.3, -1.0, 1), {}),
    ],
}  # fmt: skip


def _pruner(name: str, args: tuple, kwargs: dict[str, Any]) -> Any:
    def run(harness: Harness, dtype: torch.dtype) -> None:
        def apply(t: Twin, tensor: str) -> None:
            t.apply(f"utils.prune.{name}", tensor, *args, **kwargs)
            t.apply("utils.prune.is_pruned")

        def again(t: Twin, tensor: str) -> None:
            if getattr(t.python, f"{tensor}_mask").sum() < 4:
                return  # of which not all of these can take something
            t.apply("utils.prune.random_unstructured", tensor, 0.2)
            t.apply("utils.prune.l1_unstructured", tensor, 1)
            t.apply("utils.prune.ln_structured", tensor, 1, 2, 0)

        lifecycle(harness, dtype, apply, lambda t, n: t.apply("utils.prune.remove", n), again=again)

    return run


for _name, _variants in PRUNERS.items():
    for _args, _kwargs in _variants:
        case(f"utils.prune.{_name}", *BOTH, torch.bfloat16, what=f"{_args}")(
            _pruner(_name, _args, _kwargs)
        )


@case("utils.prune.l1_unstructured", *BOTH)
@case("utils.prune.ln_structured", *BOTH)
def _scores(harness: Harness, dtype: torch.dtype) -> None:
    for name, args in (("l1_unstructured", (0.4,)), ("ln_structured", (2, 2, 0))):
        twin = Twin.of(harness, nn.Linear, 3, 4, dtype=dtype)
        for _ in range(2):
            twin.apply(
                f"utils.prune.{name}", "weight", *args, importance_scores=rand(4, 3, dtype=dtype)
            )
            twin.check("with scores")
        twin.train(rand(2, 3, dtype=dtype))
        twin.apply("utils.prune.remove", "weight")
        twin.check("after removal", ordered=False)


@case("utils.prune.ln_structured", *BOTH)
def _matrix_norms(harness: Harness, dtype: torch.dtype) -> None:
    for norm in ("fro", "nuc"):
        twin = Twin.of(harness, nn.Conv1d, 3, 4, 2, dtype=dtype)
        twin.apply("utils.prune.ln_structured", "weight", 2, norm, 0)
        twin.check(norm)
        twin.train(rand(2, 3, 5, dtype=dtype))


@case("utils.prune.custom_from_mask", *BOTH)
@case("utils.prune.remove", torch.float32)
@case("utils.prune.is_pruned", torch.float32)
def _masks(harness: Harness, dtype: torch.dtype) -> None:
    twin = Twin.of(harness, nn.Linear, 3, 4, dtype=dtype)
    outer = Twin.sequence(harness, twin)
    outer.apply("utils.prune.is_pruned")
    for i, kind in enumerate((torch.bool, torch.int64, dtype)):
        mask = (rand(4, 3) > -0.5 * i).to(kind)
        twin.apply("utils.prune.custom_from_mask", "weight", mask)
        twin.check(f"mask {i}")
        outer.apply("utils.prune.is_pruned")
    twin.apply("utils.prune.l1_unstructured", "bias", 2)
    twin.check("two tensors")
    outer.train(rand(2, 3, dtype=dtype))
    twin.apply("utils.prune.remove", "weight")
    twin.check("one tensor", ordered=False)
    outer.apply("utils.prune.is_pruned")
    twin.train(rand(2, 3, dtype=dtype))
    twin.apply("utils.prune.remove", "bias")
    outer.apply("utils.prune.is_pruned")
    twin.check("none", ordered=False)


@case("utils.prune.global_unstructured", *BOTH)
def _global(harness: Harness, dtype: torch.dtype) -> None:
    for method, amount, scored in (
        ("L1Unstructured", 0.4, False), ("L1Unstructured", 5, True),
        ("RandomUnstructured", 0.3, False), ("L1Unstructured", 0, False),
    ):  # fmt: skip
        a, b = (
            Twin.of(harness, nn.Linear, 3, 4, dtype=dtype),
            Twin.of(harness, nn.Linear, 4, 2, dtype=dtype),
        )
        twin = Twin.sequence(harness, a, b)
        for _ in range(2):
            names = ["weight", "bias", "weight"]
            of = [a, a, b]
            scores = [rand(4, 3, dtype=dtype), rand(4, dtype=dtype)] if scored else []
            torch.manual_seed(SEED)
            prune.global_unstructured(
                [(t.python, n) for t, n in zip(of, names, strict=True)],
                getattr(prune, method),
                importance_scores={
                    (t.python, n): s for t, n, s in zip(of, names, scores, strict=False)
                },
                amount=amount,
            )
            state = torch.get_rng_state()
            harness.seed(SEED)
            made = Call([[t.go for t in of], names, method, amount, scores], {})
            invoke(harness, "prune.global_unstructured", made)
            if not torch.equal(state, torch.get_rng_state()):
                raise Differs("global pruning draws other random numbers")
            twin.check("pruned")
            twin.train(rand(2, 3, dtype=dtype))


class _EveryOther(prune.BasePruningMethod):
    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        mask = default_mask.clone()
        mask.view(-1)[::2] = 0
        return mask


@case("utils.prune.BasePruningMethod", torch.float32)
def _own_method(harness: Harness, dtype: torch.dtype) -> None:
    twin = Twin.of(harness, nn.Linear, 3, 4)
    for _ in range(3):
        _EveryOther.apply(twin.python, "weight")
        invoke(harness, "prune.BasePruningMethod", Call([twin.go, "weight"], {}))
        twin.check("a method of one's own")
    twin.train(rand(2, 3))
    t = rand(4, 3)
    for name, options in (
        ("L1Unstructured", {}), ("RandomUnstructured", {}), ("RandomStructured", {}),
        ("L1Unstructured", {"default_mask": (rand(4, 3) > 0).float()}),
        ("L1Unstructured", {"importance_scores": rand(4, 3).abs()}),
    ):  # fmt: skip
        torch.manual_seed(SEED)
        wanted = getattr(prune, name)(2).prune(t, **options)
        harness.seed(SEED)
        fields = {Names().field(k): v for k, v in options.items()}
        got = invoke(harness, "prune.prune", Call([name, 2, t], fields))
        if problem := differ(name, wanted, got):
            raise Differs(problem)


@case("utils.prune.PruningContainer", torch.float32)
def _container(harness: Harness, dtype: torch.dtype) -> None:
    container = prune.PruningContainer()
    container._tensor_name = "t"
    method = _EveryOther()
    method._tensor_name = "t"
    container.add_pruning_method(method)
    mask = (rand(4, 3) > 0).float()
    wanted = container.compute_mask(rand(4, 3), mask.clone())
    got = invoke(
        harness, "prune.PruningContainer of methods of one's own", Call([rand(4, 3), mask], {})
    )
    if problem := differ("the mask", wanted, got):
        raise Differs(problem)


# The rest of torch.nn.utils ----------------------------------------------------------------------


@case("utils.clip_grads_with_norm_", *BOTH)
@case("utils.get_total_norm", *BOTH)
def _norms(harness: Harness, dtype: torch.dtype) -> None:
    for norm_type in (2.0, 1.0, 3.0, float("inf"), 0.0, -1.0):
        theirs, ours = (
            [torch.linspace(-1, 2, n, dtype=dtype).requires_grad_() for n in (5, 1, 12)]
            for _ in "ab"
        )
        for p in (*theirs, *ours):
            p.grad = torch.sin(p.detach() * 3)
        total = both(harness, "utils.get_total_norm", [p.grad for p in theirs], norm_type)
        nn.utils.clip_grads_with_norm_(theirs, 0.5, total)
        invoke(harness, "utils.clip_grads_with_norm_", Call([ours, 0.5, total], {}))
        if problem := differ("gradients", [p.grad for p in theirs], [p.grad for p in ours]):
            raise Differs(problem)
    if problem := differ(
        "of none",
        nn.utils.get_total_norm([]),
        invoke(harness, "utils.get_total_norm", Call([[]], {})),
    ):
        raise Differs(problem)


@case("utils.vector_to_parameters", *BOTH)
def _vector(harness: Harness, dtype: torch.dtype) -> None:
    theirs, ours = ([torch.zeros(s, dtype=dtype) for s in ((2, 3), (), (4,))] for _ in "ab")
    vec = rand(11, dtype=dtype)
    nn.utils.vector_to_parameters(vec, theirs)
    invoke(harness, "utils.vector_to_parameters", Call([vec, ours], {}))
    if problem := differ("parameters", theirs, ours):
        raise Differs(problem)


@case("utils.convert_conv2d_weight_memory_format", *BOTH)
@case("utils.convert_conv3d_weight_memory_format", *BOTH)
def _formats(harness: Harness, dtype: torch.dtype) -> None:
    for name, kinds, formats, size in (
        (
            "2d",
            (nn.Conv2d, nn.ConvTranspose2d, nn.Conv1d, nn.Linear),
            (torch.channels_last, torch.contiguous_format),
            4,
        ),
        (
            "3d",
            (nn.Conv3d, nn.ConvTranspose3d, nn.Conv2d),
            (torch.channels_last_3d, torch.contiguous_format),
            5,
        ),
    ):
        twins = [
            Twin.of(harness, k, 2, 4, *(() if k is nn.Linear else (3,)), dtype=dtype) for k in kinds
        ]
        outer = Twin.sequence(harness, *twins)
        for memory_format in formats:
            outer.apply(f"utils.convert_conv{name}_weight_memory_format", memory_format)
            outer.check(str(memory_format))
            twins[0].train(rand(1, 2, *[4] * (size - 2), dtype=dtype), steps=1)


def _normalised(
    harness: Harness, kind: Any, n: int, dtype: torch.dtype, x: Any, **options: Any
) -> Twin:
    bn = Twin.of(harness, kind, n, dtype=dtype, **options)
    bn.python(x)  # so that there are statistics
    bn.go.load_state_dict(bn.python.state_dict())
    return bn


@case("utils.fuse_conv_bn_eval", *BOTH)
@case("utils.fuse_linear_bn_eval", *BOTH)
def _fused(harness: Harness, dtype: torch.dtype) -> None:
    for kind, args, options, norm, n, shape in (
        (nn.Conv2d, (2, 4, 3), {}, nn.BatchNorm2d, 4, (2, 2, 5, 5)),
        (nn.Conv2d, (2, 4, 3), {"bias": False}, nn.BatchNorm2d, 4, (2, 2, 5, 5)),
        (nn.Conv1d, (2, 4, 3), {}, nn.BatchNorm1d, 4, (2, 2, 5)),
        (nn.ConvTranspose2d, (2, 4, 3), {}, nn.BatchNorm2d, 4, (2, 2, 5, 5)),
        (nn.ConvTranspose3d, (2, 4, 3), {"bias": False}, nn.BatchNorm3d, 4, (1, 2, 3, 3, 3)),
        (nn.Linear, (2, 4), {}, nn.BatchNorm1d, 4, (5, 2)),
        (nn.Linear, (2, 4), {"bias": False}, nn.BatchNorm1d, 4, (5, 2)),
        (nn.Linear, (2, 4), {}, nn.BatchNorm1d, 1, (5, 2)),
    ):
        for affine in (True, False):
            if kind is nn.Linear and not affine:
                continue
            layer = Twin.of(harness, kind, *args, **options, dtype=dtype)
            x = rand(*shape, dtype=dtype)
            y = layer.python(x).detach()
            if n == 1:
                y = y[:, :1]
            bn = _normalised(harness, norm, n, dtype, y, affine=affine)
            for t in (layer, bn):
                t.python.eval()
                t.go.train(False)
            extra = (True,) if "Transpose" in kind.__name__ else ()
            name = "fuse_linear_bn_eval" if kind is nn.Linear else "fuse_conv_bn_eval"
            fused = layer.apply(f"utils.{name}", bn, *extra)
            fused.check("fused")
            layer.check("what was fused")
            fused.train(x, steps=1)


@case("utils.fuse_conv_bn_weights", *BOTH, torch.bfloat16)
@case("utils.fuse_linear_bn_weights", *BOTH, torch.bfloat16)
def _fused_weights(harness: Harness, dtype: torch.dtype) -> None:
    w, b = rand(4, 3, dtype=dtype).requires_grad_(), rand(4, dtype=dtype)
    for stats in (torch.float32, dtype):
        mean, var, scale = (rand(4, dtype=stats) for _ in "abc")
        var = var.abs() + 0.1
        for bias in (b, None, b.clone().requires_grad_()):
            both(harness, "utils.fuse_linear_bn_weights", w, bias, mean, var, 1e-5, scale, mean)
            for kernel in (w[..., None], w[..., None, None]):
                for bn_w, bn_b in ((scale, mean), (None, None), (scale, None)):
                    both(
                        harness,
                        "utils.fuse_conv_bn_weights",
                        kernel,
                        bias,
                        mean,
                        var,
                        1e-3,
                        bn_w,
                        bn_b,
                    )
                    both(
                        harness, "utils.fuse_conv_bn_weights", kernel.transpose(0, 1), bias, mean,
                        var, 1e-3, bn_w, bn_b, transpose=True,
                    )  # fmt: skip


@case("utils.skip_init", torch.float32, torch.float64)
def _skipped(harness: Harness, dtype: torch.dtype) -> None:
    python = nn.utils.skip_init(nn.Linear, 3, 4, dtype=dtype)
    torch.manual_seed(SEED)
    state = torch.get_rng_state()
    go = invoke(harness, "utils.skip_init", Call([3, 4, dtype], {}))
    if not torch.equal(state, torch.get_rng_state()):
        raise Differs("numbers were drawn")
    twin = Twin(harness, python, go)
    go.load_state_dict(python.state_dict())
    twin.check("skipped")
    twin.call(rand(2, 3, dtype=dtype))


# Errors ------------------------------------------------------------------------------------------


def _errors() -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = {}

    def add(name: str, what: str, run: Callable[[Harness], Any]) -> None:
        def case(harness: Harness, dtype: torch.dtype) -> None:
            run(harness)

        found.setdefault(name, []).append((what, case, (torch.float32,)))

    def linear(name: str, *args: Any, before: Any = None, of: str = "", **kwargs: Any) -> None:
        def run(h: Harness) -> None:
            twin = Twin.of(h, nn.Linear, 4, 4)
            if before is not None:
                before(twin)
            kept = twin.go.state_dict()
            kept = {k: v.clone() for k, v in kept.items()}
            try:
                twin.apply(name, *args, **kwargs)
            except Refused:
                after = twin.go.state_dict()
                if problem := differ("the state after the error", sorted(kept), sorted(after)):
                    raise Differs(problem) from None
                if problem := differ("the state after the error", kept, after):
                    raise Differs(problem) from None
                twin.go.method("Forward", rand(2, 4))
                raise

        add(of or name, f"{name} {args} {kwargs}", run)

    for name, args in (
        ("xavier_uniform_", ()), ("xavier_normal_", ()), ("kaiming_uniform_", ()),
        ("kaiming_normal_", ()), ("orthogonal_", ()), ("eye_", ()), ("dirac_", ()),
        ("sparse_", (0.5,)),
    ):  # fmt: skip
        add(
            f"init.{name}",
            "one dimension",
            lambda h, n=name, a=args: both(h, f"init.{n}", torch.ones(3), *a),  # type: ignore[misc]
        )
    add("init.eye_", "three dimensions", lambda h: both(h, "init.eye_", torch.ones(3, 2, 1)))
    add(
        "init.dirac_",
        "six dimensions",
        lambda h: both(h, "init.dirac_", torch.ones(1, 1, 1, 1, 1, 1)),
    )
    add("init.dirac_", "groups", lambda h: both(h, "init.dirac_", torch.ones(3, 1, 1), groups=2))
    add("init.dirac_", "no groups", lambda h: both(h, "init.dirac_", torch.ones(3, 1, 1), groups=0))
    add(
        "init.normal_",
        "a negative deviation",
        lambda h: both(h, "init.normal_", torch.ones(3), std=-1.0),
    )
    add("init.uniform_", "bounds", lambda h: both(h, "init.uniform_", torch.ones(3), 1.0, 0.0))
    add(
        "init.uniform_",
        "integers",
        lambda h: both(h, "init.uniform_", torch.ones(3, dtype=torch.int64)),
    )
    add(
        "init.normal_",
        "integers",
        lambda h: both(h, "init.normal_", torch.ones(3, dtype=torch.int64)),
    )
    add(
        "init.orthogonal_",
        "bfloat16",
        lambda h: both(h, "init.orthogonal_", torch.ones(3, 3, dtype=torch.bfloat16)),
    )
    add(
        "init.trunc_normal_",
        "no deviation",
        lambda h: both(h, "init.trunc_normal_", torch.ones(3), std=0.0),
    )
    add(
        "init.trunc_normal_",
        "bounds",
        lambda h: both(h, "init.trunc_normal_", torch.ones(3), a=1.0, b=-1.0),
    )
    add(
        "init.xavier_uniform_",
        "no elements",
        lambda h: both(h, "init.xavier_uniform_", torch.ones(0, 0)),
    )
    add("init.calculate_gain", "a name", lambda h: both(h, "init.calculate_gain", "gelu"))
    for name in ("kaiming_uniform_", "kaiming_normal_"):
        add(
            f"init.{name}",
            "a name",
            lambda h, n=name: both(h, f"init.{n}", torch.ones(3, 3), nonlinearity="gelu"),  # type: ignore[misc]
        )

    linear("utils.weight_norm", "nothing")
    linear("utils.weight_norm", "weight", before=lambda t: t.apply("utils.weight_norm"))
    linear("utils.weight_norm", "weight", 7)
    linear("utils.remove_weight_norm", "weight", of="utils.weight_norm")
    linear("utils.spectral_norm", "nothing")
    linear("utils.spectral_norm", "weight", 0)
    linear("utils.spectral_norm", "weight", dim=5)
    linear("utils.spectral_norm", "weight", before=lambda t: t.apply("utils.spectral_norm"))
    linear("utils.remove_spectral_norm", "weight", of="utils.spectral_norm")
    linear("utils.parametrizations.weight_norm", "nothing")
    linear("utils.parametrizations.spectral_norm", "nothing")
    linear("utils.parametrizations.spectral_norm", "weight", 0)
    linear("utils.parametrizations.spectral_norm", "weight", dim=2)
    linear("utils.parametrizations.spectral_norm", "weight", dim=-3)
    linear("utils.parametrizations.orthogonal", "bias")
    linear("utils.parametrizations.orthogonal", "nothing")
    linear("utils.parametrizations.orthogonal", "weight", "other")
    linear(REMOVE, "weight")
    linear(
        REMOVE,
        "weight",
        leave_parametrized=False,
        before=lambda t: t.apply("utils.parametrizations.weight_norm"),
    )
    for kind in (Resized, AsDouble, WrongInverse):
        add(
            REGISTER,
            kind.__name__,
            lambda h, k=kind: register(Twin.of(h, nn.Linear, 4, 4), "weight", k),  # type: ignore[misc]
        )

        def second(h: Harness, kind: Any = kind) -> None:
            twin = Twin.of(h, nn.Linear, 4, 4)
            register(twin, "weight", Double)
            register(twin, "weight", kind)

        add(REGISTER, f"a second {kind.__name__}", second)
    add(
        REGISTER,
        "no such tensor",
        lambda h: register(Twin.of(h, nn.Linear, 4, 4), "nothing", Double),
    )
    for name, bad in (
        ("random_unstructured", [(-1,), (1.5,), (17,), (-0.1,)]),
        ("l1_unstructured", [(-1,), (1.5,), (17,), (-0.1,)]),
        ("random_structured", [(5, 0), (0.5, 2), (-1, 0), (1.5, 0)]),
        ("ln_structured", [(5, 2, 0), (0.5, 2, 2), (-1, 2, 0)]),
    ):
        for amounts in bad:
            linear(f"utils.prune.{name}", "weight", *amounts)
            linear(
                f"utils.prune.{name}",
                "weight",
                *amounts,
                before=lambda t: t.apply("utils.prune.identity", "weight"),
            )
        linear(f"utils.prune.{name}", "nothing", *([1] * len(bad[0])))
    linear("utils.prune.random_structured", "bias", 1, 0)
    linear("utils.prune.ln_structured", "bias", 1, 2, 0)
    linear("utils.prune.l1_unstructured", "weight", 1, importance_scores=torch.ones(3))
    linear("utils.prune.custom_from_mask", "weight", torch.ones(3))
    linear("utils.prune.identity", "nothing")
    linear("utils.prune.remove", "weight")
    return found
