"""Compiled functions: a graph as something to call, and the modes of compiling it."""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from ..errors import BridgeTypeError, BridgeValueError, ContractError, GradientError
from ..graph.basic import Variable
from ..graph.function_graph import FunctionGraph
from ..registry import Table, check, load_extensions
from ..types.base import Type, extracts_as_filtered

_C = TypeVar("_C")
_linkers = Table("linker", unique=True, resolved=False)


class Linker(Protocol):
    """What computes a graph that it was made for."""

    def make_thunk(self) -> Callable[[Sequence[Any]], list[Any]]:
        """A callable from the list of input values to the list of output values."""


def register_linker(
    name: str,
    linker: Callable[[FunctionGraph], Linker],
    rewrite: bool | Sequence[str] = True,
) -> None:
    """Makes `function(..., mode=name)` use a linker, with these rewrites unless the caller names
    others.

        >>> from pytorch_bridge.link.python import PythonLinker
        >>> with pb.temporary():
        ...     pb.register_linker("plain", PythonLinker, rewrite=False)
        ...     x = pb.TensorType("float32", ())("x")
        ...     pb.function(x, x * 2, mode="plain")(torch.tensor(1.5))
        tensor(3.)

    A linker is made for a FunctionGraph and has `make_thunk()`, which returns a callable from the
    list of input values to the list of output values. If it has `checks_inputs`, the thunk refuses
    wrong values itself, and its attribute `call`, if any, takes values as arguments.

    DuplicateError where the name is taken.
    """
    check("linker", name, linker)
    _linkers.add(name, (linker, rewrite), linker)


def _built_in(name: str, module: str, kind: str, rewrite: bool | Sequence[str] = True) -> None:
    def linker(fgraph: FunctionGraph) -> Linker:
        found = getattr(importlib.import_module(f".{module}", __package__), kind)
        made: Linker = found(fgraph)
        return made

    register_linker(name, linker, rewrite)


_built_in("c", "c_linker", "CLinker")
_built_in("c_only", "c_linker", "COnlyLinker")
_built_in("py", "python", "PythonLinker")
_built_in("opwise", "opwise", "OpWiseLinker")
_built_in("dual", "dual", "DualLinker")
# What it checks is the graph as it was written.
_built_in("debug", "debug", "DebugLinker", rewrite=False)
# It fuses and reuses memory itself, and each of its constants can be set, so that equal ones are
# not merged.
_built_in("inductor", "inductor", "InductorLinker", rewrite=("canonical", "copies"))


def function(
    inputs: Variable | Sequence[Variable],
    outputs: Variable | Sequence[Variable],
    mode: str | None = None,
    *,
    mutable: Iterable[Variable] = (),
    name: str | None = None,
    rewrite: bool | Iterable[str] | None = None,
) -> CompiledFunction:
    """Returns a callable that computes outputs from inputs.

        >>> x, w = pb.TensorType("float32", (None, 2))("x"), pb.TensorType("float32", (2, 1))("w")
        >>> f = pb.function([x, w], (x @ w).relu())
        >>> f(torch.tensor([[1.0, 2.0], [-3.0, 0.0]]), torch.ones(2, 1))
        tensor([[3.],
                [0.]])

    `mode` is how: "c" (one C function, the default), "c_only" (the same, and an error where a node
    has no C code), "py" (each op in Python), "opwise", "dual",
    "debug" (checks what every op declares), "inductor" (compiled by AOTInductor, which takes a
    minute, and rounds otherwise), or what register_linker has added.

    `rewrite` is False where the graph is to be run as it stands, or names the rewrites to apply, of
    those in `pytorch_bridge.rewrite.names()`; all are applied otherwise, except in mode "debug",
    and in "inductor", which does some of it itself.

    No output shares memory with an input or a constant. Ops that write into an input write into a
    copy of it, unless it is in `mutable`: then the caller's value is changed.

    InconsistencyError where no order of the ops respects what they destroy. BridgeValueError where
    the outputs need a variable that is no input, or there is no such mode or rewrite.
    BridgeTypeError where something else stands for a variable.
    """
    from ..rewrite.prepare import listed, prepared  # late: it brings all rewrites

    ins, outs = listed("inputs", inputs), listed("outputs", outputs)
    mutable = listed("mutable", mutable)
    single = isinstance(outputs, Variable)
    mode = "c" if mode is None else mode
    load_extensions()
    found = _linkers.one(mode)
    if found is None:
        modes = ", ".join(sorted(map(str, _linkers.names())))
        raise BridgeValueError(f"there is no mode {mode!r}: modes are {modes}")
    make_linker, improve = found
    if rewrite is not None:
        improve = rewrite
    if not isinstance(improve, (bool, Iterable)):
        raise BridgeTypeError(f"rewrite is True, False or names of rewrites, not {improve!r}")
    if not isinstance(improve, bool):
        improve = [improve] if isinstance(improve, str) else list(improve)
    fgraph = prepared(ins, outs, mutable, improve)
    linker = make_linker(fgraph)
    return CompiledFunction(ins, outs, single, fgraph, linker, mode, name, mutable, improve)


def strictly(t: Any, value: Any) -> Any:
    """A value that is written into, as a type has it, in its own memory. TypeError where it would
    have to be converted: the caller's would stay as it is."""
    import torch

    found = getattr(value, "__array_interface__", None)
    if found is not None:
        _, read_only = found.get("data") or (0, False)
        if read_only:
            raise BridgeTypeError(
                f"expected {t}, got an array that is read-only: it is written into"
            )
        value = torch.as_tensor(value)  # NumPy's, in its memory
    try:
        return t.filter(value, strict=True)
    except TypeError as e:
        t.filter(value)  # raises where it could not be converted either
        raise BridgeTypeError(f"{e}; it is written into, so it is not converted") from None


def _filtered_in_c(t: Type) -> bool:
    """Whether the compiled code does with a value what the type's `filter` does: its c_extract
    does, or calls it where the type has no C."""
    from .emit import has_c

    return extracts_as_filtered(t) or not (has_c(t) or hasattr(t, "filter_inplace"))


class CopiedAsItself:
    """What copies have as it is, as every function of Python: a call changes nothing of it."""

    def __copy__(self: _C) -> _C:
        return self

    def __deepcopy__(self: _C, memo: object) -> _C:
        return self


class CompiledFunction(CopiedAsItself):
    """A graph that can be called: with the inputs by position, or by name.

    Values go through the inputs' types, which convert what loses nothing. Tensors that require a
    gradient work: the gradient is a compiled graph of its own, made at the first backward pass.
    """

    def __init__(
        self,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],
        single: bool,
        fgraph: FunctionGraph,
        linker: Any,
        mode: str,
        name: str | None,
        mutable: Iterable[Variable] = (),
        rewrite: bool | Iterable[str] | None = None,
    ) -> None:
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.fgraph = fgraph
        self.linker = linker
        self.mode = mode
        self.name = name
        self.mutable = frozenset(mutable)
        self.rewrite = rewrite
        self.thunk = linker.make_thunk()
        if not callable(self.thunk):
            raise ContractError(
                f"mode {mode!r}: make_thunk of {type(linker).__name__} must return a callable from "
                f"the list of input values to the list of output values, not {self.thunk!r}"
            )
        self._single = single
        from ..rewrite.prepare import written_inputs

        self._written = written_inputs(inputs, outputs, self.mutable)
        # By input: the values of calls that are over, whose memory the next may take.
        self._previous: list[list[Any]] = [[] for _ in inputs]
        checked = bool(getattr(linker, "checks_inputs", False))
        checked = checked and all(_filtered_in_c(v.type) for v in inputs)
        direct = getattr(self.thunk, "call", None) if checked else None
        # A list of one output comes from `call` as the output itself.
        self.direct = direct if single or len(outputs) > 1 else None
        self._tracking: Any = None
        self._enter = self.entry(self._convert)

    def entry(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """What calls the graph without Python in between, and the method of an object where
        arguments have to be converted, or require a gradient. It does not keep the object: that
        would be a cycle, and the weights would wait for the collector."""
        bound = weakref.WeakMethod(method)

        def otherwise(*args: Any, **kwargs: Any) -> Any:
            called = bound()
            assert called is not None
            return called(*args, **kwargs)

        if self.direct is None:
            return otherwise
        from ..native.extension import Entry

        return Entry(self.direct, otherwise)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._enter(*args, **kwargs)

    def __reduce__(self) -> Any:
        raise BridgeTypeError(
            f"{self} is compiled for this process and cannot be pickled: build and compile the "
            "graph where it is needed, which the cache makes cheap"
        )

    def _convert(self, /, *args: Any, **kwargs: Any) -> Any:
        values = self._bind(args, kwargs)
        filtered = [self._filter(i, v) for i, v in enumerate(values)]
        self._check_recorded(filtered)
        if self._is_tracked(filtered):  # the backward pass will read them
            results = self._tracked(filtered)
        else:
            results = self.run(filtered)
            for i, v in enumerate(self.inputs):
                mine = filtered[i] is not values[i]  # what the caller gave stays the caller's
                if mine and not self._previous[i] and hasattr(v.type, "filter_inplace"):
                    self._previous[i].append(filtered[i])
        return results[0] if self._single else results

    def _check_recorded(self, values: Sequence[Any]) -> None:
        """GradientError for derivatives that a compiled function would drop: those that go along
        with the values."""
        import torch
        from torch.autograd import forward_ad

        if forward_ad._current_level < 0:
            return
        for i, (v, value) in enumerate(zip(self.inputs, values, strict=True)):
            listed = value if isinstance(value, (list, tuple)) else [value]
            for t in listed:
                if isinstance(t, torch.Tensor) and forward_ad.unpack_dual(t).tangent is not None:
                    raise GradientError(
                        f"{self}: input {i} ({v}) has a tangent, and a compiled function computes "
                        "no derivatives in forward mode (torch.autograd.forward_ad, "
                        "torch.func.jvp): use backward(), or give it unpack_dual(...).primal"
                    )

    def _is_tracked(self, values: Sequence[Any]) -> bool:
        """Whether a gradient is to be recorded. GradientError where it cannot be."""
        import torch

        if not torch.is_grad_enabled():
            return False
        for v, value in zip(self.inputs, values, strict=True):
            if isinstance(value, (list, tuple)) and any(
                isinstance(t, torch.Tensor) and t.requires_grad for t in value
            ):
                raise GradientError(
                    f"{self}: the list {v} has a tensor that requires a gradient, and lists have "
                    "none: give tensors apart, detach them, or call under torch.no_grad()"
                )
        return any(isinstance(v, torch.Tensor) and v.requires_grad for v in values)

    def _tracked(self, values: Sequence[Any]) -> list[Any]:
        """The results as part of autograd's graph."""
        import torch

        if torch._C._functorch.maybe_current_level() is not None:
            raise GradientError(
                f"{self}: the transforms of torch.func (grad, vjp, jacrev) do not go through "
                "compiled functions: use backward() or torch.autograd.grad"
            )
        if self._tracking is None:
            from ..autodiff.compiled_autograd import Tracking

            self._tracking = Tracking(self, function)
        results: list[Any] = self._tracking.call(self, values)
        return results

    def run(self, values: Sequence[Any]) -> list[Any]:
        """The outputs for values that the types have taken in, without a gradient."""
        import torch

        results: list[Any] = self.thunk(
            [v.detach() if isinstance(v, torch.Tensor) and v.requires_grad else v for v in values]
        )
        return results

    def _bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        if len(args) > len(self.inputs):
            raise BridgeTypeError(f"{self} takes {len(self.inputs)} inputs, got {len(args)}")
        missing = object()
        values = [*args, *[missing] * (len(self.inputs) - len(args))]
        for name, value in kwargs.items():
            places = [i for i, v in enumerate(self.inputs) if v.name == name]
            if len(places) != 1:
                count = "no input" if not places else f"{len(places)} inputs"
                raise BridgeTypeError(f"{self} has {count} named {name!r}")
            if values[places[0]] is not missing:
                raise BridgeTypeError(f"{self} was given the input {name!r} twice")
            values[places[0]] = value
        for i, value in enumerate(values):
            if value is missing:
                raise BridgeTypeError(f"{self} needs input {i}, {self.inputs[i]}")
        return values

    def _filter(self, i: int, value: Any) -> Any:
        """The value as the input's type has it, in the memory of the one before where the type
        can do that."""
        v = self.inputs[i]
        inplace = getattr(v.type, "filter_inplace", None)
        try:
            if i in self._written:
                return strictly(v.type, value)
            if inplace is not None:
                try:
                    storage = self._previous[i].pop()  # so that no other call takes it
                except IndexError:
                    storage = None
                return inplace(value, storage)
            return v.type.filter(value)
        except (TypeError, ValueError) as e:
            kind = BridgeTypeError if isinstance(e, TypeError) else BridgeValueError
            raise kind(f"{self}: input {i} ({v}): {e}") from e

    def __str__(self) -> str:
        if self.name is not None:
            return self.name
        return f"function([{', '.join(map(str, self.inputs))}])"

    __repr__ = __str__
