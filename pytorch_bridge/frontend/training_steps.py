"""Training steps: forward pass, loss, backward pass and the optimiser's step as one graph.

    step = pb.training_step(model, pb.Training(optimizer=pb.SGD(momentum=0.9)))
    loss = step(x, target, lr=0.1)

An optimiser is a rule that writes the new value into a parameter, with PyTorch's own in-place
functions in the order in which torch.optim has them, so that the numbers are the same to the last
bit.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from .. import ops
from ..aliasing.runtime_strides import clone_of
from ..autodiff.attention import as_recorded
from ..autodiff.grad import grad
from ..errors import BridgeTypeError, BridgeValueError
from ..graph.basic import Variable
from ..link.compiled_function import function
from ..ops import scalar
from ..ops.native import SHORT
from ..types import TensorType, schema_type
from .model import Model, substituted, written_back

if TYPE_CHECKING:
    import torch

    from ..ops.variables import TensorVariable, ValueVariable


class Optimizer(Protocol):
    """A rule for new values of parameters. One of your own is any object with these two."""

    def state(self) -> Sequence[str]:
        """The names of the tensors that are kept for each parameter. They begin as zeros."""

    def update(
        self,
        parameter: TensorVariable,
        gradient: TensorVariable,
        state: Mapping[str, TensorVariable],
        lr: ValueVariable,
        step: ValueVariable,
    ) -> Sequence[Variable]:
        """Writes into the parameter and its state, and returns the last result of each that is
        written: first the parameter's, then those of the state in its order. All are variables;
        lr and step, which counts from 1, are floats."""


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent as torch.optim.SGD has it, without dampening: the optimizer of a
    Training. BridgeValueError for nesterov without a momentum.

        >>> pb.Training(optimizer=pb.SGD(momentum=0.9, nesterov=True)).optimizer
        SGD(momentum=0.9, weight_decay=0.0, nesterov=True)
    """

    momentum: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        if self.nesterov and not self.momentum:
            raise BridgeValueError("SGD: nesterov takes a momentum")

    def state(self) -> Sequence[str]:
        return ["momentum_buffer"] if self.momentum else []

    def update(
        self,
        parameter: TensorVariable,
        gradient: TensorVariable,
        state: Mapping[str, TensorVariable],
        lr: ValueVariable,
        step: ValueVariable,
    ) -> Sequence[Variable]:
        found = []
        if self.weight_decay:
            gradient = ops.add(gradient, parameter, alpha=self.weight_decay)
        if self.momentum:
            # In the first step, zero times the momentum and the gradient are the gradient.
            buffer = ops.add_(_times(state["momentum_buffer"], self.momentum), gradient, alpha=1)
            found.append(buffer)
            ahead = self.nesterov
            gradient = ops.add(gradient, buffer, alpha=self.momentum) if ahead else buffer
        return [ops.add_(parameter, gradient, alpha=-lr), *found]


def _times(x: TensorVariable, number: ValueVariable | float) -> TensorVariable:
    """Multiplies in place, as Python's mul_ does."""
    if x.type.dtype in SHORT:  # where aten::mul_.Scalar rounds the number first
        return ops.copy_(x, ops.mul(x, number))
    return ops.mul_(x, number)


@dataclass(frozen=True)
class Adam:
    """As torch.optim.Adam, without amsgrad: the optimizer of a Training. The learning rate is an
    argument of each step. BridgeValueError for betas that are not from 0 up to 1.

        >>> pb.Training(optimizer=pb.Adam(betas=(0.9, 0.95))).optimizer.eps
        1e-08
    """

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0

    decoupled = False

    def __post_init__(self) -> None:
        if not all(0 <= b < 1 for b in self.betas):
            raise BridgeValueError(f"{type(self).__name__}: betas are from 0 up to 1: {self.betas}")

    def state(self) -> Sequence[str]:
        return ["exp_avg", "exp_avg_sq"]

    def update(
        self,
        parameter: TensorVariable,
        gradient: TensorVariable,
        state: Mapping[str, TensorVariable],
        lr: ValueVariable,
        step: ValueVariable,
    ) -> Sequence[Variable]:
        beta1, beta2 = self.betas
        if self.weight_decay and self.decoupled:
            parameter = _times(parameter, 1 - lr * self.weight_decay)
        elif self.weight_decay:
            gradient = ops.add(gradient, parameter, alpha=self.weight_decay)
        mean = ops.lerp_(state["exp_avg"], gradient, 1 - beta1)
        square = _times(state["exp_avg_sq"], beta2)
        square = ops.addcmul_(square, gradient, gradient, value=1 - beta2)
        # Numbers are computed as Python does it: pow is not always sqrt.
        step_size = lr / (1 - scalar.pow(beta1, step))
        root = scalar.pow(1 - scalar.pow(beta2, step), 0.5)
        denominator = ops.add_(ops.div(ops.sqrt(square), root), self.eps)
        return [ops.addcdiv_(parameter, mean, denominator, value=-step_size), mean, square]


@dataclass(frozen=True)
class AdamW(Adam):
    """As torch.optim.AdamW: Adam whose weight decay is apart from the gradient.

    >>> pb.AdamW().weight_decay
    0.01
    """

    weight_decay: float = 1e-2

    decoupled = True


def cross_entropy(
    outputs: TensorVariable | Sequence[TensorVariable], target: TensorVariable
) -> TensorVariable:
    """The mean cross entropy of the first output, as F.cross_entropy has it, with classes in
    dimension 1 and a target of class numbers."""
    return ops.cross_entropy_loss(first(outputs), target)


def first(outputs: TensorVariable | Sequence[TensorVariable]) -> TensorVariable:
    """The first of the outputs, or the only one."""
    return outputs if isinstance(outputs, Variable) else outputs[0]


@dataclass(frozen=True)
class Training:
    """How a model is trained.

    `loss` takes the model's outputs (a variable, or the list of them where there are several) and
    the targets, and returns a variable of one element. `targets` are the targets' types, or tensors
    like them; with the default loss they follow from the model. `parameters` are the names of the
    weights to train, by default all parameters; `optimizer` is SGD, Adam, AdamW or your own.
    `model` is the one whose forward pass is trained: the same model, exported from model.train(),
    where the other was exported from model.eval() and there is a difference.

        >>> def squares(y, t):
        ...     return ((y - t) ** 2).mean()
        >>> targets = [pb.TensorType("float32", (None, 3))]
        >>> pb.Training(squares, targets=targets).optimizer
        SGD(momentum=0.0, weight_decay=0.0, nesterov=False)
    """

    loss: Callable[..., Variable] = cross_entropy
    optimizer: Optimizer = field(default_factory=SGD)
    targets: Sequence[TensorType | torch.Tensor] | None = None
    parameters: Sequence[str] | None = None
    model: Model | None = None

    def target_types(self, outputs: TensorVariable | Sequence[TensorVariable]) -> list[TensorType]:
        """The types of the targets."""
        if self.targets is not None:
            return [t if isinstance(t, TensorType) else _type_of(t) for t in self.targets]
        if self.loss is not cross_entropy:
            raise BridgeValueError(
                "Training: with a loss of your own, targets= are the types of its targets, such as "
                '[TensorType("float32", (None, 10))]'
            )
        t = first(outputs).type
        if not isinstance(t, TensorType) or t.shape is None or len(t.shape) < 1:
            raise BridgeTypeError(
                f"Training: cross_entropy takes a tensor with classes in dimension 1 as the first "
                f"output, not one of type {t}: give loss= and targets="
            )
        kept = () if len(t.shape) == 1 else (t.shape[0], *t.shape[2:])
        return [TensorType("int64", kept)]


def _type_of(t: Any) -> TensorType:
    shape = getattr(t, "shape", None)
    if shape is None:
        raise BridgeTypeError(f"Training: a target is a TensorType or a tensor, not {t!r}")
    return TensorType(
        str(t.dtype).removeprefix("torch."), (None, *tuple(shape)[1:]) if shape else ()
    )


@dataclass(eq=False)
class StepGraph:
    """The graph of a training step: from `step`, `inputs`, `targets`, `lr` and `weights` with
    `state` to `loss`; `written` is what the tensors named by `changed` become."""

    step: Variable
    inputs: list[Variable]
    targets: list[Variable]
    lr: Variable
    weights: dict[str, Variable]  # parameters and buffers, by name
    names: dict[str, str]  # each of them by all names that PyTorch has for it: a tied one has two
    values: dict[str, Any]  # what they are at first
    state: dict[str, Variable]  # of the optimiser, by name: zeros at first
    loss: Variable
    written: list[Variable]

    @property
    def tensors(self) -> dict[str, Variable]:
        """All that is kept from step to step."""
        both = {**self.weights, **self.state}
        if len(both) != len(self.weights) + len(self.state):
            twice = next(n for n in self.state if n in self.weights)
            raise BridgeValueError(f"the optimiser's {twice!r} has the name of a weight")
        return both

    @property
    def arguments(self) -> list[Variable]:
        return [self.step, *self.inputs, *self.targets, self.lr, *self.tensors.values()]


def weights_as_inputs(model: Model) -> tuple[dict[str, Variable], dict[Variable, Variable]]:
    """An input for each weight of a model, under its first name, and what each constant becomes."""
    inputs: dict[str, Variable] = {}
    replaced: dict[Variable, Variable] = {}
    for name, constant in model.weights.items():
        if constant not in replaced:
            inputs[name] = replaced[constant] = constant.type.make_variable(name)
    return inputs, replaced


def _all_names(model: Model, firsts: Mapping[str, Variable]) -> dict[str, str]:
    """What weights_as_inputs calls the weight of each name."""
    called = {model.weights[n]: n for n in firsts}
    return {n: called[constant] for n, constant in model.weights.items()}


def parameters_of(model: Model, training: Training, known: Mapping[str, Variable]) -> list[str]:
    """The names of the weights to train."""
    if training.parameters is not None:
        for n in training.parameters:
            if n not in known:
                names = ", ".join(known) or "none"
                raise BridgeValueError(f"Training: the model has no weight {n!r}; it has {names}")
        return list(training.parameters)
    if model.parameters is not None:
        # One that has two names is known by the first of them.
        constants = {model.weights[n] for n in model.parameters if n in model.weights}
        return [n for n in known if model.weights.get(n) in constants]
    return [n for n, v in known.items() if _trainable(v)]


def _trainable(v: Variable) -> bool:
    return isinstance(v.type, TensorType) and str(v.type.dtype).startswith(("float", "bfloat"))


def step_graph(model: Model, training: Training | bool = True) -> StepGraph:
    """The graph of a training step. BridgeValueError where the loss does not depend on any
    parameter, or a parameter is lent to the optimiser without a gradient."""
    if training is True:
        training = Training()
    if not isinstance(training, Training):
        raise BridgeTypeError(f"training is True or a pb.Training, not {training!r}")
    model = training.model or model
    if model.mutations:
        raise BridgeValueError(f"{model.name} writes into its arguments, and cannot be trained")
    weights, replaced = weights_as_inputs(model)
    n = len(model.outputs)
    results = substituted([*model.outputs, *model.updates.values()], replaced)
    outs: Any = results[0] if n == 1 else results[:n]
    targets: list[Variable] = [
        t.make_variable("target" if i == 0 else f"target{i}")
        for i, t in enumerate(training.target_types(outs))
    ]
    lr: Any = schema_type("float").make_variable("lr")
    step: Any = schema_type("float").make_variable("step")
    names = parameters_of(model, training, weights)
    loss, *results = as_recorded(
        [training.loss(outs, *targets), *results], [weights[n] for n in names]
    )
    gradients = grad(loss, [weights[n] for n in names], allow_unused=True)
    if all(g is None for g in gradients):
        raise BridgeValueError(f"{model.name}: the loss depends on none of its parameters")
    state: dict[str, Variable] = {}
    written: list[Variable] = []
    rule = training.optimizer
    for name, gradient in zip(names, gradients, strict=True):
        if gradient is None:  # torch.optim leaves such parameters alone
            continue
        weight: Any = weights[name]
        kept: dict[str, Any] = {s: weight.type.make_variable(f"{s}.{name}") for s in rule.state()}
        state |= {f"{s}.{name}": v for s, v in kept.items()}
        found = list(rule.update(weight, gradient, kept, lr, step))
        if len(found) != 1 + len(kept):
            raise BridgeValueError(
                f"{rule!r}: update must return what it wrote into the parameter and the "
                f"{len(kept)} tensors of its state, got {len(found)}"
            )
        written += found
    changed = [
        (model.state[name], new) for name, new in zip(model.updates, results[n:], strict=True)
    ]
    (loss, *written), buffers = written_back([loss, *written], changed)
    written += buffers
    values = {n: c.data for n, c in model.weights.items() if n in weights}
    return StepGraph(
        step=step,
        inputs=list(model.inputs),
        targets=targets,
        lr=lr,
        weights={**weights, **model.state},
        names={**_all_names(model, weights), **{n: n for n in model.state}},
        values={**values, **model.state_values},
        state=state,
        loss=loss,
        written=written,
    )


class TrainingStep:
    """A compiled training step: call it with the model's inputs, the targets and lr=.

    It has its own copies of the weights, which each call changes. Calls do not run at the same
    time as others.
    """

    def __init__(self, model: Model, training: Training | bool = True, mode: str | None = None):
        self.graph = graph = step_graph(model, training)
        self.steps = 0
        self.weights = {n: clone_of(graph.values[n].detach()) for n in graph.weights}
        self.state = {n: _zeros(v) for n, v in graph.state.items()}
        self.function = function(
            graph.arguments,
            [graph.loss, *graph.written],
            mode,
            mutable=list(graph.tensors.values()),
            name=f"a training step of {model.name}",
        )

    def __call__(self, *values: Any, lr: float) -> Any:
        """Makes a step and returns the loss, a tensor of one element."""
        tensors = [*self.weights.values(), *self.state.values()]
        results = self.function(float(self.steps + 1), *values, float(lr), *tensors)
        self.steps += 1
        return results[0]

    def checkpoint(self) -> dict[str, Any]:
        """All that training goes on from, for torch.save: the weights, what the optimiser keeps of
        each, and the number of steps. It shares memory with what the next call changes. A Go
        package of the same model and training reads the file with LoadCheckpoint."""
        return {
            "model_state_dict": self.state_dict(),
            "optimizer_state_dict": {"step": self.steps, "state": dict(self.state)},
        }

    def load_checkpoint(self, checkpoint: Mapping[str, Any]) -> None:
        """Goes on from what checkpoint() returned, here or in Go. BridgeValueError where it is not
        one of this model and training; nothing is changed then."""
        import torch

        try:
            kept = checkpoint["optimizer_state_dict"]
            steps = operator.index(kept["step"])
            if steps < 0:
                raise TypeError(f"step is {steps}")
            dicts = [
                (checkpoint["model_state_dict"], self.state_dict()),
                (kept["state"], self.state),
            ]
            pairs = [_paired(new, old) for new, old in dicts]
        except (KeyError, TypeError, AttributeError) as e:
            raise BridgeValueError(
                "load_checkpoint takes what checkpoint() returned: model_state_dict, and "
                f"optimizer_state_dict with step and state ({type(e).__name__}: {e})"
            ) from e
        with torch.no_grad():
            for new, old in itertools.chain(*pairs):
                old.copy_(new)
        self.steps = steps

    def state_dict(self) -> dict[str, Any]:
        """The weights by their names in PyTorch: the tensors that the next call changes. Tied ones
        are there under each of their names."""
        return {n: self.weights[first] for n, first in self.graph.names.items()}


def _paired(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    """The tensors of the same names. BridgeValueError where they are not alike."""
    for n in [*old, *new]:
        a, b = (
            f"{d[n].dtype}{list(d[n].shape)} ({d[n].layout})" if n in d else "none"
            for d in (new, old)
        )
        if a != b:
            raise BridgeValueError(f"load_checkpoint: {n} is {a}, where this step has {b}")
    return [(new[n], t) for n, t in old.items()]


def _zeros(v: Variable) -> Any:
    import torch

    assert isinstance(v.type, TensorType)
    return torch.zeros([d or 0 for d in v.type.shape or ()], dtype=v.type.torch_dtype)


def training_step(
    model: Model, training: Training | bool = True, mode: str | None = None
) -> TrainingStep:
    """Compiles forward pass, loss, backward pass and the optimiser's step as one function.

        >>> module, x = torch.nn.Linear(2, 3), torch.ones(4, 2)
        >>> model = pb.from_exported(torch.export.export(module, (x,)))
        >>> step = pb.training_step(model, pb.Training(optimizer=pb.SGD(momentum=0.9)))
        >>> losses = [step(x, torch.zeros(4, dtype=torch.int64), lr=0.5) for _ in range(3)]
        >>> bool(losses[2] < losses[0])
        True

    `training` is True for cross entropy of the first output and SGD, or a Training; `mode` is as
    for `function`. Where layers behave differently in training, such as dropout and BatchNorm,
    export the model from model.train().
    """
    return TrainingStep(model, training, mode)


__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "Optimizer",
    "Training",
    "TrainingStep",
    "cross_entropy",
    "step_graph",
    "training_step",
]
