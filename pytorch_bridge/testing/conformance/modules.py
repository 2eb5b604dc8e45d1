"""Runs the modules of package nn on the inputs of PyTorch's own module database.

A module is made in Python and in Go with the same seed, so that what they begin with is compared
too. Both get the same inputs. As tensors of Go are PyTorch's own, Python can ask autograd for the
gradients of what Go has computed.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_map

from pytorch_bridge.schema.names import Names
from pytorch_bridge.schema.nn import NN_FILE, Argument, Function, Module, layers
from pytorch_bridge.schema.python_api import python_api
from pytorch_bridge.schema.tables import read_table

from . import more_modules
from .check import SEED
from .harness import Broken, GoCrash, Harness, Request, WrapperError

MAKE, CALL, STATE, TENSORS, LOAD, TRAIN, TEXT, FORGET, FUNCTIONAL, CONVERT = range(-10, -20, -1)

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.complex64)

# Why what Python refuses is not tried.
COMPILED = "an error of a type, which Go's compiler finds"

AS_INPUT = -1  # nn.AsInput


@dataclass(frozen=True)
class Call:
    """Arguments in Go: parameters, and the fields of options."""

    parameters: list[Any]
    options: dict[str, Any]


@cache
def _names() -> Names:
    return Names()


@cache
def left_out() -> frozenset[str]:
    """The arguments that Go does not have."""
    return frozenset(read_table(NN_FILE)["left_out"]) | {"_weight", "_freeze"}


def _arguments(full: str) -> dict[str, Argument | None]:
    """What is known of a function's arguments in Go; None is for the rule alone."""
    namespace, _, name = full.rpartition(".")
    known = layers()
    found: Function | Module | None = None
    if namespace.endswith("functional"):
        found = known.functions.get(name)
    found = found or (known.modules.get(name) if namespace == "torch.nn" else None)
    return {a.python: a for a in found.arguments} if found else {}


def call(full: str, bound: dict[str, Any]) -> Call:
    """The arguments of a function or class of torch.nn, by the rules for Go.

    What has no default is a parameter, what has one is an option by its name, and a bool that is
    true by default is the opposite.
    """
    api = python_api()[full]
    known = _arguments(full)
    parameters, options = [], {}
    for a in api.arguments or ():
        if a.name not in bound and not a.required:
            argument = known.get(a.name)
            if argument is not None and not argument.option:
                parameters.append(a.default)  # one that Go wants
            continue
        if a.name in left_out():
            continue
        value = bound.get(a.name)
        argument = known.get(a.name)
        option = argument.option if argument else not a.required
        if not option:
            parameters.append(_sizes(value))
            continue
        name = _names().field(a.name)
        if a.default is True:
            name, value = f"No{name}", not value
        options.update(_special(a.name, name, value))
    return Call(parameters, options)


def _special(python: str, name: str, value: Any) -> dict[str, Any]:
    """What has another form in Go."""
    if python == "momentum" and value is None:
        return {"CumulativeAverage": True}
    if python == "padding" and value == "same":
        return {"SamePadding": True}
    if python == "padding" and value == "valid":
        return {}
    if python == "options" and isinstance(value, nn.LinearCrossEntropyOptions):
        return {name: chunks(value)}
    if value is None:
        return {}
    return {name: _sizes(value)}


def chunks(options: nn.LinearCrossEntropyOptions) -> dict[str, Any]:
    """The fields of the struct in Go."""
    fields = {_names().field(f.name): getattr(options, f.name) for f in dataclasses.fields(options)}
    fields["ChunkingMethod"] = fields["ChunkingMethod"] or "none"
    return {k: v for k, v in fields.items() if v is not None}


def _sizes(value: Any) -> Any:
    """A value with None among sizes as Go has it."""
    if isinstance(value, (list, tuple)):
        return [AS_INPUT if v is None else _sizes(v) for v in value]
    return AS_INPUT if value is None else value


def bind(cls: Any, args: tuple, kwargs: dict) -> dict[str, Any]:
    """The arguments by name, without those that Go does not have or that are of no use there."""
    target = cls.__init__ if inspect.isclass(cls) else cls
    signature = inspect.signature(target)
    bound = signature.bind(*((None,) if inspect.isclass(cls) else ()), *args, **kwargs)
    found = dict(bound.arguments)
    found.pop("self", None)
    for extra in [n for n, p in signature.parameters.items() if p.kind is p.VAR_KEYWORD]:
        found.update(found.pop(extra, {}))
    return found


class GoModule:
    """A module that Go has made."""

    def __init__(self, harness: Harness, name: str, made: Call) -> None:
        self.harness = harness
        self.number = 0
        request = Request([MAKE, 0, 0])
        request.text_only(name)
        request.invocation(made.parameters, made.options)
        self.number = harness.send(request)[0][0]

    def __del__(self) -> None:
        if self.number and not sys.is_finalizing():
            self.harness.send(Request([FORGET, 0, 0, self.number]))

    def _send(self, what: int, *words: int) -> list[Any]:
        return self.harness.send(Request([what, 0, 0, self.number, *words]))[0]

    def method(self, method: str, *args: Any, **options: Any) -> Any:
        request = Request([CALL, 0, 0, self.number])
        request.text_only(method)
        request.invocation(list(args), options)
        results = self.harness.send(request)[0]
        return results[0] if len(results) == 1 else tuple(results)

    def state_dict(self) -> dict[str, torch.Tensor]:
        return dict(zip(*self._send(STATE), strict=True))

    def tensors(self) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """Its own parameters and buffers."""
        names, parameters, of_buffers, buffers = self._send(TENSORS)
        return dict(zip(names, parameters, strict=True)), dict(
            zip(of_buffers, buffers, strict=True)
        )

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        request = Request([LOAD, 0, 0, self.number])
        request.value("str[]", list(state))
        request.value("Tensor[]", list(state.values()))
        problem = self.harness.send(request)[0]
        if problem:
            raise WrapperError("nn.LoadStateDict", "StateDictError", problem[0])

    def train(self, on: bool) -> None:
        self._send(TRAIN, int(on))

    def to(self, dtype: torch.dtype) -> None:
        request = Request([CONVERT, 0, 0, self.number])
        request.text_only(str(dtype))
        self.harness.send(request)

    def __str__(self) -> str:
        return self._send(TEXT)[0]


def functional(harness: Harness, name: str, arguments: Call) -> Any:
    """What a function of nn/functional returns."""
    request = Request([FUNCTIONAL, 0, 0])
    request.text_only(name)
    request.invocation(arguments.parameters, arguments.options)
    results = harness.send(request)[0]
    return results[0] if len(results) == 1 else tuple(results)


@dataclass
class Tally:
    """How a module's inputs went."""

    passed: int = 0
    errors: int = 0
    gradients: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


@cache
def database() -> dict[str, Any]:
    """PyTorch's modules with their inputs, by class name, and those that it leaves out."""
    from torch.testing._internal.common_modules import module_db

    return {m.module_cls.__name__: m for m in module_db} | dict(more_modules.entries())


class Modules:
    """Runs inputs of the database with one harness."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.tallies: dict[str, Tally] = {}

    def run(self, name: str, dtypes: tuple[torch.dtype, ...] = DTYPES) -> list[str]:
        """Runs all inputs of a module; returns what differs."""
        info = database()[name]
        tally = self.tallies.setdefault(name, Tally())
        before = len(tally.problems)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for dtype in dtypes:
                if dtype not in info.dtypes:
                    continue
                for training in (True, False):
                    for at, given in enumerate(_inputs(info, dtype, training)):
                        origin = (
                            f"{name} {dtype} {'train' if training else 'eval'} #{at} {given.desc}"
                        )
                        run = partial(self._one, tally, info.module_cls, given, dtype, training)
                        self._guard(tally, origin, run)
                    self._errors(tally, info, dtype, training)
        return tally.problems[before:]

    def _guard(self, tally: Tally, origin: str, run: Callable[[], str]) -> None:
        try:
            problem = run()
        except (GoCrash, WrapperError) as err:
            problem = f"{type(err).__name__}: {err}"
        except Exception as err:  # the harness's own
            problem = f"{type(err).__name__}: {err}"
        if problem:
            tally.problems.append(f"{origin}: {problem.splitlines()[0]}")

    def _one(self, tally: Tally, cls: Any, given: Any, dtype: torch.dtype, training: bool) -> str:
        args, kwargs = given.constructor_input.args, given.constructor_input.kwargs
        made = {**kwargs}
        made.pop("_random_samples", None)
        factory = {"dtype": dtype} if _takes_dtype(cls) and "dtype" not in made else {}
        torch.manual_seed(SEED)
        python = cls(*copied(args), **copied(made), **factory)
        self.harness.seed(SEED)
        if cls in (nn.TransformerEncoder, nn.TransformerDecoder):
            go = self._of_layers(cls, args, made)
        else:
            go = GoModule(self.harness, cls.__name__, constructor(cls, args, {**made, **factory}))
        python.train(training)
        go.train(training)
        if problem := self._state("at first", python, go):
            return problem
        if problem := _text(python, go):
            return problem
        if given.forward_input is None:
            return ""
        ours, theirs = [
            copied((given.forward_input.args, given.forward_input.kwargs)) for _ in "ab"
        ]
        torch.manual_seed(SEED)
        wanted = python(*theirs[0], **theirs[1])
        self.harness.seed(SEED)
        got = forward(cls, go, args, {**made}, *ours)
        if problem := differ("result", wanted, got):
            return problem
        if problem := self._state("after", python, go):
            return problem
        if problem := _text(python, go):
            return problem
        if problem := self._gradients(tally, python, go, theirs, ours, wanted, got):
            return problem
        # Another state than the one that both have drawn.
        with torch.no_grad():
            for t in python.state_dict().values():
                if isinstance(t, torch.Tensor) and (t.is_floating_point() or t.is_complex()):
                    t.add_(1)
        go.load_state_dict({k: v for k, v in python.state_dict().items() if v is not None})
        if problem := self._state("after a load", python, go):
            return problem
        tally.passed += 1
        return ""

    def _of_layers(self, cls: Any, args: tuple, kwargs: dict) -> GoModule:
        """A stack of layers in Go, with a layer that has the state of Python's."""
        made = bind(cls, args, kwargs)
        layer = made.pop("encoder_layer", None) or made.pop("decoder_layer")
        attn = layer.self_attn
        options = {
            "DimFeedforward": layer.linear1.out_features,
            "Dropout": layer.dropout.p,
            "Activation": layer.activation.__name__,
            "LayerNormEps": layer.norm1.eps,
            "BatchFirst": attn.batch_first,
            "NormFirst": layer.norm_first,
            "NoBias": layer.linear1.bias is None,
            "DType": layer.linear1.weight.dtype,
        }
        of = GoModule(
            self.harness, type(layer).__name__, Call([attn.embed_dim, attn.num_heads], options)
        )
        of.load_state_dict(layer.state_dict())
        of.train(layer.training)
        rest = {k: v for k, v in made.items() if k != "num_layers"}
        options = _options(rest, {"enable_nested_tensor", "mask_check"})
        return GoModule(self.harness, cls.__name__, Call([of, made["num_layers"]], options))

    def _state(self, when: str, python: nn.Module, go: GoModule) -> str:
        wanted = {k: v for k, v in python.state_dict().items() if isinstance(v, torch.Tensor)}
        lazy = [
            k for k, v in wanted.items() if isinstance(v, nn.parameter.UninitializedTensorMixin)
        ]
        got = go.state_dict()
        if sorted(wanted) != sorted(got):
            return f"state dict {when}: {sorted(got)}, not {sorted(wanted)}"
        for name in wanted:
            if name not in lazy and (problem := differ(name, wanted[name], got[name])):
                return f"{when}: {problem}"
        parameters = go.tensors()[0]
        names = [n for n, _ in python.named_parameters()]
        if sorted(names) != sorted(parameters):
            return f"parameters {when}: {list(parameters)}, not {names}"
        for name, p in python.named_parameters():
            if p.requires_grad != parameters[name].requires_grad:
                return f"{name} {when}: requires_grad is {parameters[name].requires_grad}"
        return ""

    def _gradients(
        self,
        tally: Tally,
        python: nn.Module,
        go: GoModule,
        theirs: Any,
        ours: Any,
        wanted: Any,
        got: Any,
    ) -> str:
        parameters = go.tensors()[0]
        names = [n for n, p in python.named_parameters() if p.requires_grad]
        own = dict(python.named_parameters())
        counted, problem = gradients(
            [theirs, [own[n] for n in names]],
            [ours, [parameters[n] for n in names]],
            wanted,
            got,
        )
        tally.gradients += counted
        return problem

    def _errors(self, tally: Tally, info: Any, dtype: torch.dtype, training: bool) -> None:
        from torch.testing._internal.common_modules import ModuleErrorEnum

        make = info.module_error_inputs_func
        if make is None:
            return
        for at, error in enumerate(
            make(info, device="cpu", dtype=dtype, requires_grad=False, training=training)
        ):
            given = error.module_error_input
            args, kwargs = given.constructor_input.args, given.constructor_input.kwargs
            origin = f"{info.module_cls.__name__} {dtype} error #{at}"

            def run(
                error: Any = error, given: Any = given, args: Any = args, kwargs: Any = kwargs
            ) -> str:
                try:
                    python = info.module_cls(*args, **kwargs)
                    python.train(training)
                    python(*given.forward_input.args, **given.forward_input.kwargs)
                    return ""  # in this mode there is none
                except Exception as err:
                    said, text = type(err), str(err)  # and not err, whose frames hold tensors
                try:
                    go = GoModule(
                        self.harness,
                        info.module_cls.__name__,
                        constructor(info.module_cls, args, kwargs),
                    )
                    if error.error_on is ModuleErrorEnum.FORWARD_ERROR:
                        go.train(training)
                        forward(
                            info.module_cls,
                            go,
                            args,
                            kwargs,
                            given.forward_input.args,
                            given.forward_input.kwargs,
                        )
                except WrapperError as err:
                    wanted = (ValueError if said is AssertionError else said).__name__
                    if err.kind != wanted:
                        return f"a {err.kind}, not a {wanted}: {err}, where Python says {text}"
                    tally.errors += 1
                    return ""
                except Broken:
                    tally.skipped[COMPILED] += 1
                    return ""
                return f"no error, where Python says {error.error_regex}"

            self._guard(tally, origin, run)


def _takes_dtype(cls: Any) -> bool:
    return "dtype" in inspect.signature(cls.__init__).parameters or cls.__name__ in (
        "RNN",
        "GRU",
        "LSTM",
    )


def copied(value: Any) -> Any:
    """A copy whose tensors are leaves of their own; those that are one stay one."""
    done: dict[int, torch.Tensor] = {}

    def leaf(t: Any) -> Any:
        if isinstance(t, nn.Module):
            return copy.deepcopy(t)
        if not isinstance(t, torch.Tensor):
            return t
        if id(t) not in done:
            done[id(t)] = t.detach().clone().requires_grad_(t.requires_grad)
        return done[id(t)]

    return tree_map(leaf, value)


def _inputs(info: Any, dtype: torch.dtype, training: bool) -> list[Any]:
    torch.manual_seed(SEED)
    return info.module_inputs_func(
        info, device="cpu", dtype=dtype, requires_grad=True, training=training
    )


def constructor(cls: Any, args: tuple, kwargs: dict) -> Call:
    """The arguments of a constructor in Go."""
    special = CONSTRUCTORS.get(cls.__name__)
    return (
        special(cls, args, kwargs)
        if special
        else call(f"torch.nn.{cls.__name__}", bind(cls, args, kwargs))
    )


def forward(cls: Any, go: GoModule, args: tuple, kwargs: dict, given: tuple, named: dict) -> Any:
    """What Go's Forward returns."""
    special = FORWARDS.get(cls.__name__)
    if special:
        return special(go, bind(cls, args, kwargs), given, named)
    made = bind(cls, args, kwargs)
    method = "ForwardWithIndices" if made.get("return_indices") else "Forward"
    return go.method(method, *given, *named.values())


def _recurrent(cls: Any, args: tuple, kwargs: dict) -> Call:
    names = [
        "input_size",
        "hidden_size",
        "num_layers",
        "bias",
        "batch_first",
        "dropout",
        "bidirectional",
    ]
    names.append("proj_size")
    if cls is nn.RNN:
        names.insert(3, "nonlinearity")
    given = dict(zip(names, args, strict=False)) | kwargs
    parameters = [given.pop("input_size"), given.pop("hidden_size")]
    options = {}
    for name, value in given.items():
        if name == "bias":
            options["NoBias"] = not value if isinstance(value, bool) else value
        else:
            options[_names().field(name)] = value
    return Call(parameters, options)


def _hidden(go: GoModule, made: dict, given: tuple, named: dict) -> Any:
    """A recurrent layer gets its states one by one, and has another method for packed input."""
    x, state = given[0], (given[1] if len(given) > 1 else named.get("hx"))
    states = [] if state is None else [state] if isinstance(state, torch.Tensor) else list(state)
    results = go.method("Forward", x, *states)
    if not isinstance(results, tuple) or len(results) < 3:
        return results
    return results[0], results[1:]


def _attention(go: GoModule, made: dict, given: tuple, named: dict) -> Any:
    names = ("query", "key", "value", "key_padding_mask", "need_weights", "attn_mask")
    all_ = dict(zip((*names, "average_attn_weights", "is_causal"), given, strict=False)) | named
    q, k, v = (all_.pop(n) for n in names[:3])
    return go.method("Forward", q, k, v, **_options(all_, {"need_weights", "average_attn_weights"}))


def _options(named: dict[str, Any], true: Collection[str] = ()) -> dict[str, Any]:
    out = {}
    for name, value in named.items():
        if name in true:
            out[f"No{_names().field(name)}"] = not value
        elif value is not None:
            out[_names().field(name)] = value
    return out


def _masked(*names: str) -> Any:
    """Forward of a transformer's part: `names` are its arguments; its inputs go first."""

    def run(go: GoModule, made: dict, given: tuple, named: dict) -> Any:
        all_ = dict(zip(names, given, strict=False)) | named
        tensors = [all_.pop(n) for n in ("src", "tgt", "memory") if n in names and n in all_]
        options = {}
        for name, value in all_.items():
            if value is None:
                continue
            if "src" in names and "tgt" not in names:
                name = name.removeprefix("src_")
            options[_names().field(name)] = value
        return go.method("Forward", *tensors, **options)

    return run


def _transformer(cls: Any, args: tuple, kwargs: dict) -> Call:
    made = bind(cls, args, kwargs)
    activation = made.pop("activation", None)
    if activation is not None:
        name = activation if isinstance(activation, str) else activation.__name__
        made["activation"] = name
    return call(f"torch.nn.{cls.__name__}", made)


def _lengths(go: GoModule, made: dict, given: tuple, named: dict) -> Any:
    values = [*given, *named.values()]
    return go.method(
        "Forward",
        *(
            torch.as_tensor(v, dtype=torch.int64) if isinstance(v, (tuple, list)) else v
            for v in values
        ),
    )


def _unpool(go: GoModule, made: dict, given: tuple, named: dict) -> Any:
    x, indices, *size = [*given, *named.values()]
    return go.method("Forward", x, indices, *(size[0] if size else ()))


def _bag(go: GoModule, made: dict, given: tuple, named: dict) -> Any:
    all_ = dict(zip(("input", "offsets", "per_sample_weights"), given, strict=False)) | named
    return go.method("Forward", all_.pop("input"), **_options(all_))


CONSTRUCTORS: dict[str, Callable[[Any, tuple, dict], Call]] = {
    "RNN": _recurrent,
    "GRU": _recurrent,
    "LSTM": _recurrent,
    "TransformerEncoderLayer": _transformer,
    "TransformerDecoderLayer": _transformer,
    "Transformer": _transformer,
}

_DECODER = (
    "tgt", "memory", "tgt_mask", "memory_mask", "tgt_key_padding_mask", "memory_key_padding_mask",
    "tgt_is_causal", "memory_is_causal",
)  # fmt: skip
FORWARDS: dict[str, Callable[[GoModule, dict, tuple, dict], Any]] = {
    "RNN": _hidden,
    "GRU": _hidden,
    "LSTM": _hidden,
    "RNNCell": _hidden,
    "GRUCell": _hidden,
    "LSTMCell": _hidden,
    "MultiheadAttention": _attention,
    "TransformerEncoderLayer": _masked("src", "src_mask", "src_key_padding_mask", "is_causal"),
    "TransformerEncoder": _masked("src", "mask", "src_key_padding_mask", "is_causal"),
    "TransformerDecoderLayer": _masked(*_DECODER),
    "TransformerDecoder": _masked(*_DECODER),
    "Transformer": _masked(
        "src", "tgt", "src_mask", "tgt_mask", "memory_mask", "src_key_padding_mask",
        "tgt_key_padding_mask", "memory_key_padding_mask", "src_is_causal", "tgt_is_causal",
        "memory_is_causal",
    ),
    **{f"MaxUnpool{n}d": _unpool for n in "123"},
    "CTCLoss": _lengths,
    "EmbeddingBag": _bag,
}  # fmt: skip


def _conv_transpose(go: GoModule, made: dict, given: tuple, named: dict) -> Any:
    size = named.get("output_size") or (given[1] if len(given) > 1 else None)
    if size is None:
        return go.method("Forward", given[0])
    return go.method("ForwardSize", given[0], list(size))


for _n in "123":
    FORWARDS[f"ConvTranspose{_n}d"] = FORWARDS[f"LazyConvTranspose{_n}d"] = _conv_transpose


def gradients(theirs: Any, ours: Any, wanted: Any, got: Any) -> tuple[bool, str]:
    """Whether two results have gradients, and how those of what they were computed from differ."""
    outs = [_differentiable(x) for x in (wanted, got)]
    ins = [_differentiable(x) for x in (theirs, ours)]
    if not outs[0] or not ins[0]:
        return False, ""
    if len(outs[0]) != len(outs[1]):
        return False, f"{len(outs[1])} results have gradients, not {len(outs[0])}"
    generator = torch.Generator().manual_seed(SEED)
    grads = [torch.rand(o.shape, generator=generator).to(o.dtype) for o in outs[0]]
    results: list[Any] = []
    for out, inputs in zip(outs, ins, strict=True):
        try:
            results.append(torch.autograd.grad(out, inputs, grads, allow_unused=True))
        except (RuntimeError, NotImplementedError) as err:
            results.append(str(err).splitlines()[0])
    if isinstance(results[0], str) or isinstance(results[1], str):
        problem = f"gradients: {results[1]}, not {results[0]}"
        return False, "" if results[0] == results[1] else problem
    return True, differ("gradients", list(results[0]), list(results[1]))


def _differentiable(value: Any) -> list[torch.Tensor]:
    return [t for t in tree_flatten(value)[0] if isinstance(t, torch.Tensor) and t.requires_grad]


def differ(what: str, wanted: Any, got: Any) -> str:
    """What differs between two results, bit for bit."""
    flat = [list(tree_flatten(v)[0]) for v in (wanted, got)]
    if len(flat[0]) != len(flat[1]):
        return f"{what}: {len(flat[1])} values, not {len(flat[0])}"
    for i, (w, g) in enumerate(zip(*flat, strict=True)):
        if w is None or g is None:
            if w is not g:
                return f"{what} {i} is {_short(g)}, not {_short(w)}"
            continue
        if not isinstance(w, torch.Tensor):
            if w != g and not (w != w and g != g):
                return f"{what} {i} is {g}, not {w}"
            continue
        if not isinstance(g, torch.Tensor) or w.shape != g.shape or w.dtype != g.dtype:
            return f"{what} {i} is {_short(g)}, not {_short(w)}"
        w, g = w.detach(), g.detach()
        if w.layout is not torch.strided:
            w, g = w.to_dense(), g.to_dense()
        if not _equal(w, g):
            worst = (w.to(torch.complex128) - g.to(torch.complex128)).abs().max()
            return f"{what} {i} differs by {float(worst):g}"
    return ""


def _equal(w: torch.Tensor, g: torch.Tensor) -> bool:
    """Whether all bits are the same, where a NaN is like any other."""
    if w.is_complex():
        w, g = torch.view_as_real(w.resolve_conj()), torch.view_as_real(g.resolve_conj())
    same = w == g
    if w.is_floating_point():
        same = (same & (w.signbit() == g.signbit())) | (w.isnan() & g.isnan())
    return bool(same.all())


def _short(value: Any) -> str:
    return f"{value.dtype} {tuple(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)


# Modules whose text differs, with the reason.
TEXTS = {
    "TripletMarginWithDistanceLoss": "the distance is a function in Go, and no module",
}


def _text(python: nn.Module, go: GoModule) -> str:
    """How the texts differ. Numbers count as such: Go does not know whether 1 was given or 1.0."""

    def plain(text: str) -> str:
        return re.sub(r"(?<![\w.])(\d+)\.0(?![\w.])", r"\1", text)

    wanted, got = plain(repr(python)), plain(str(go))
    if type(python).__name__ in TEXTS:
        return ""
    return "" if wanted == got else f"String() is {got!r}, not {wanted!r}"
