"""What may be exported, as one form: a graph with names, weights and structured results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...aliasing.runtime_strides import clone_of
from ...errors import BridgeTypeError, BridgeValueError
from ...extending.jitted import Jit
from ...frontend.exported import from_exported, is_program
from ...frontend.model import CompiledModel, Model, written_back
from ...graph.basic import Constant, Variable
from ...graph.function_graph import FunctionGraph
from ...link.compiled_function import CompiledFunction, function
from ...rewrite import names
from ...rewrite.devices import located
from ...rewrite.prepare import prepared
from . import outputs as results
from .outputs import Tree


@dataclass(eq=False)
class Source:
    """The graph from `inputs` and `state` to `outputs` and `hidden`."""

    title: str
    inputs: list[Variable]
    outputs: list[Variable]
    tree: Tree
    names: list[str | None]  # of the inputs
    weights: Mapping[str, Constant] = field(default_factory=dict)
    state: dict[str, Variable] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)  # of the state
    hidden: list[Variable] = field(default_factory=list)  # what `written` becomes
    written: list[str | int] = field(default_factory=list)  # names of state, numbers of inputs
    apart: bool = False  # what it writes into may share memory with nothing that it reads
    example: Sequence[Any] | None = None
    changed: list[Variable] | None = None  # the inputs that may be, where `written` does not say
    made: FunctionGraph | None = None  # where it has been compiled already
    call: Callable[..., list[Any]] | None = None
    device: str | None = None  # where the package computes; None: where the graph does

    @property
    def mutable(self) -> list[Variable]:
        if self.changed is not None:
            return self.changed
        return [self.state[w] if isinstance(w, str) else self.inputs[w] for w in self.written]

    def fgraph(self) -> FunctionGraph:
        """The graph as it is compiled."""
        if self.made is not None:
            return self.made
        ins = [*self.inputs, *self.state.values()]
        outs = [*self.outputs, *self.hidden]
        # What is made of weights is not made in advance: each weight can be set.
        passes = [p for p in names() if p != "fold"] if self.weights else True
        return self.prepared(ins, outs, self.mutable, passes)

    def prepared(
        self,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],
        mutable: Sequence[Variable],
        passes: bool | list[str] = True,
    ) -> FunctionGraph:
        """A graph as it is compiled, on the device."""
        if self.device is None:
            return prepared(inputs, outputs, mutable, passes, self.apart)
        if passes is True:
            # A constant is folded on the processor, which is not what the device computes.
            passes = [p for p in names() if p != "fold"]
        ins, outs = located(inputs, outputs, self.device)
        became = dict(zip(inputs, ins, strict=True))
        return prepared(ins, outs, [became[v] for v in mutable], passes, self.apart)

    def calls(self) -> Callable[..., list[Any]]:
        """A function that computes the outputs in Python, and the values that are written. Its
        calls share the state, which starts as it is now."""
        if self.call is not None:
            return self.call
        compiled = function(
            [*self.inputs, *self.state.values()],
            [*self.outputs, *self.hidden],
            mutable=self.mutable,
            name=self.title,
        )
        state = [clone_of(self.values[n]) for n in self.state]
        return lambda *values: list(compiled(*values, *state))


def source(graph: Any, example: Sequence[Any] | None, device: str | None = None) -> Source:
    """The form of what export_go was given. BridgeTypeError for what it does not take."""
    made = _source(graph, example)
    if device is not None:
        made.device = device
        if made.made is not None:  # what it was compiled for is the processor
            made = replace(made, made=None)
    return made


def _source(graph: Any, example: Sequence[Any] | None) -> Source:
    if isinstance(graph, CompiledModel):
        graph = graph.model
    if is_program(graph):
        graph = from_exported(graph)
    if isinstance(graph, Model):
        return _model(graph)
    if isinstance(graph, Jit):
        return _jitted(graph, example)
    if isinstance(graph, CompiledFunction):
        return _compiled(graph)
    if isinstance(graph, FunctionGraph):
        return _plain(graph.inputs, graph.outputs, len(graph.outputs) == 1)
    if isinstance(graph, tuple) and len(graph) == 2:
        ins, outs = graph
        single = isinstance(outs, Variable)
        ins = [ins] if isinstance(ins, Variable) else list(ins)
        return _plain(ins, [outs] if isinstance(outs, Variable) else list(outs), single)
    raise BridgeTypeError(
        "export_go takes a Model (from_exported makes one), a compiled or jitted function, a "
        f"FunctionGraph, or (inputs, outputs); got {type(graph).__qualname__}"
    )


def _names(inputs: Sequence[Variable]) -> list[str | None]:
    return [v.name for v in inputs]


def _flat(n: int, single: bool) -> Tree:
    made = results.tree(None, n)
    return made if single or n != 1 else Tree(None, ["0"], [made])


def _plain(ins: Sequence[Variable], outs: Sequence[Variable], single: bool) -> Source:
    tree = _flat(len(outs), single)
    return Source("is a graph of PyTorch's functions.", list(ins), list(outs), tree, _names(ins))


def _compiled(f: CompiledFunction) -> Source:
    title = f"is the compiled function {f.name}." if f.name else "is a compiled function."
    tree = _flat(len(f.outputs), f._single)

    def call(*values: Any) -> list[Any]:
        found = f(*values)
        return [found] if f._single else list(found)

    # The graph that it was compiled from: rewritten, with what it may change.
    return Source(
        title,
        list(f.inputs),
        list(f.outputs),
        tree,
        _names(f.inputs),
        changed=[v for v in f.inputs if v in f.mutable],
        made=f.fgraph,
        call=call,
    )


def _jitted(f: Any, example: Sequence[Any] | None) -> Source:
    if example is not None:
        args = f._bind(tuple(example), {}) if len(example) != f._n else tuple(example)
        f(*example)
        made = f.specializations.get(f.key(args))
    else:
        found = list(f.specializations.values())
        made = found[0] if len(found) == 1 else None
    if made is None:
        raise BridgeValueError(
            f"export_go: {f!r} is compiled for the types of its arguments, of which it has seen "
            f"{len(f.specializations)}: give example=, its arguments"
        )
    if not made.flat:
        raise BridgeValueError(
            f"export_go: {f!r} has arguments that are no inputs of its graph; export a function "
            "that fixes them"
        )
    if not made.captured:
        return _compiled(made.compiled)
    inputs, outputs = made.graph()
    outs = outputs[0] if made.rebuild is None else outputs
    return _compiled(function(inputs, outs, name=f.__name__))


def _model(model: Any) -> Source:
    inputs = list(model.inputs)
    names = _names(inputs)
    state = dict(model.state)
    changed = [(state[n], new) for n, new in model.updates.items()]
    changed += [(inputs[i], new) for i, new in model.mutations.items()]
    given, hidden = written_back(model.outputs, changed)
    return Source(
        f"is the model {model.name}.",
        inputs,
        given,
        results.of_model(model),
        names,
        weights=model.weights,
        state=state,
        values=dict(model.state_values),
        hidden=hidden,
        written=[*model.updates, *model.mutations],
        apart=True,
        example=model.example,
    )
