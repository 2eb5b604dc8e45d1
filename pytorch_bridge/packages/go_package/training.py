"""A package that trains: Forward and TrainStep, which share the weights."""

from __future__ import annotations

from typing import Any

from ...errors import BridgeTypeError, BridgeValueError
from ...frontend.exported import from_exported, is_program
from ...frontend.model import CompiledModel, Model, substituted
from ...frontend.training_steps import (
    StepGraph,
    Training,
    TrainingStep,
    step_graph,
    weights_as_inputs,
)
from ...graph.basic import Variable
from ...types.tensor import TensorType
from . import golden, weights
from .c_file import PackageFunction
from .go_file import GoFunction, Package
from .outputs import Tree
from .source import Source

STEP = "TrainStep"
LR = 0.01  # of the golden test


def trained_package(
    graph: Any, training: Training | bool, made: Source, package: str, name: str
) -> Package:
    """The package of a model and its training step. BridgeTypeError for what is no model."""
    model = graph.model if isinstance(graph, CompiledModel) else graph
    if is_program(model):
        model = from_exported(model)
    if not isinstance(model, Model):
        raise BridgeTypeError(
            "export_go: training= takes a Model, which has names for its weights; "
            f"got {type(graph).__qualname__}"
        )
    step = step_graph(model, training)
    table: dict[str, weights.Weight] = {
        n: weights.Weight(n, step.values[n].detach()) for n in step.weights
    }
    forward, forward_names = _forward(model, made, package, name, table)
    c = PackageFunction(
        made.prepared(step.arguments, [step.loss, *step.written], list(step.tensors.values())),
        f"{package}_{STEP}",
        n_state=len(step.tensors),
        n_hidden=len(step.written),
    )
    constants = weights.collect(c.constants, {}, list(table))
    table |= {w.name: w for w in constants}
    states = [weights.Weight(n, _like(v), zero=True) for n, v in step.state.items()]
    for weight in [*table.values(), *states]:
        weight.device = weight.device or made.device
    number = {n: i for i, n in enumerate([*table, *step.state])}
    functions = [
        GoFunction(
            forward,
            name,
            made.tree,
            "Output" if name == "Forward" else f"{name}Output",
            "computes the model.",
            [number[n] for n in forward_names],
            changes=bool(made.state),
            names=made.names,
        ),
        GoFunction(
            c,
            STEP,
            Tree(leaf=0),
            f"{STEP}Output",
            "makes a step of training: it computes the model and its loss, and changes the\n"
            "weights by their gradients and the learning rate lr. It returns the loss.",
            [number[w.name] for w in constants] + [number[n] for n in step.tensors],
            changes=True,
            step=True,
        ),
    ]
    weights.alias(list(table.values()), model.weights)
    data = weights.contents({w.name: w.tensor for w in table.values()})

    def train(values: list[Any], results: list[Any]) -> dict[str, Any]:
        found = _golden(model, training, step, functions[1], values, results)
        aliases = [(a, w.name) for w in table.values() for a in w.aliases]
        return found | {f"train.weights.{a}": found[f"train.weights.{n}"] for a, n in aliases}

    return Package(
        package,
        made.title,
        functions,
        list(table.values()),
        states,
        weights.digest(data),
        data=data,
        train=train,
    )


def _forward(
    model: Model, made: Source, package: str, name: str, table: dict[str, weights.Weight]
) -> tuple[PackageFunction, list[str]]:
    """The model's function with its weights as inputs, because they change; and the names of what
    it is given. What is not trained is added to the table."""
    inputs, replaced = weights_as_inputs(model)
    results = substituted([*made.outputs, *made.hidden], replaced)
    state = {**inputs, **made.state}
    for n in state:
        if n not in table:
            value = made.values.get(n)
            table[n] = weights.Weight(n, model.weights[n].data if value is None else value)
    fgraph = made.prepared([*made.inputs, *state.values()], results, made.mutable)
    c = PackageFunction(fgraph, f"{package}_{name}", n_state=len(state), n_hidden=len(made.hidden))
    constants = weights.collect(c.constants, {}, list(table))
    table |= {w.name: w for w in constants}
    return c, [*(w.name for w in constants), *state]


def _like(v: Variable) -> Any:
    import torch

    assert isinstance(v.type, TensorType)
    return torch.empty(
        [d or 0 for d in v.type.shape or ()], dtype=v.type.torch_dtype, device="meta"
    )


def _golden(
    model: Model,
    training: Training | bool,
    step: StepGraph,
    function: GoFunction,
    values: list[Any],
    results: list[Any],
) -> dict[str, Any]:
    """What some steps on the same inputs give."""
    import torch

    given = list(values)
    generator = torch.Generator().manual_seed(1)
    first = results[0]
    for v in step.targets:
        assert isinstance(v.type, TensorType)
        assert v.type.shape is not None
        sizes = [first.shape[0] if d is None and first.dim() else d for d in v.type.shape]
        if training is True or len(sizes) == first.dim() - 1:
            sizes = [*first.shape[:1], *first.shape[2:]][: len(sizes)]
        closed = TensorType(v.type.dtype, [d or 1 for d in sizes])
        given.append(golden.random_value(closed, generator))
    given.append(LR)
    try:
        with golden.one_thread(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            compiled = TrainingStep(model, training)
            losses = [compiled(*given[:-1], lr=LR) for _ in range(golden.STEPS)]
    except (RuntimeError, ValueError, IndexError, TypeError) as e:
        raise BridgeValueError(
            f"export_go: the golden test trains with random targets, which will not do here ({e}): "
            "golden=False leaves it out"
        ) from e
    tensors: dict[str, Any] = {}
    for i, (crossing, value) in enumerate(zip(function.takes, given, strict=True)):
        tensors |= golden.stored(f"train.in.{i}", crossing, value)
    tensors |= {f"train.loss.{i}": loss for i, loss in enumerate(losses)}
    return tensors | {f"train.weights.{n}": t for n, t in compiled.weights.items()}
