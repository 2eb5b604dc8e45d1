"""Cases from PyTorch's own database of operators and their samples.

A sample is run once in Python. Meanwhile two modes note what it calls: every function of torch at
the level of Python's bindings, which is where composite functions are seen, and every operator that
reaches the dispatcher below autograd, where the functions appear that they are made of. The
backward pass is run as well, for the sake of the latter.
"""

from __future__ import annotations

import contextlib
import copy
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import numpy
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map

from . import reasons
from .cases import Case, Copier, Unfit, make, tensors_in
from .harness import absent
from .operators import Operator, operators, overloads

DTYPES = (
    torch.float32,
    torch.float64,
    torch.int64,
    torch.bool,
    torch.bfloat16,
    torch.complex64,
)

# What a sample calls.
OWN = "their own operator, by its schema"
PARTS = "the operators that a function written in Python is made of"
NOTHING = "no function that Go has"

# Attributes of Python's tensors that are functions under another name.
_PROPERTIES = {"T": "numpy_T", "H": "matrix_H", "data": ""}

# Python's functions call arguments by other names than the schemas do.
_RENAMED = {"input": "self", "x": "self", "axis": "dim", "keepdims": "keepdim"}


@cache
def database() -> dict[str, Any]:
    """The entries of PyTorch's database, by name and variant."""
    from torch.testing._internal import common_methods_invocations as known

    entries = list(known.op_db)
    for kind in ("unary", "binary", "pointwise", "reduce", "other"):
        entries += getattr(known, f"foreach_{kind}_op_db", [])
    return {full_name(e): e for e in entries}


def full_name(entry: Any) -> str:
    return entry.name + (f".{entry.variant_test_name}" if entry.variant_test_name else "")


class Recorder:
    """Notes the calls that are made while it is active, as cases."""

    def __init__(self, own: frozenset[str], seen: set[tuple], origin: str, gradient: bool) -> None:
        self.own, self.seen, self.origin, self.gradient = own, seen, origin, gradient
        self.cases: list[Case] = []
        self.unfit: list[str] = []
        self.calls = 0  # also those that were seen before
        self.calls_of_own = 0

    def note(self, how: str, o: Operator, args: tuple, kwargs: dict) -> None:
        with paused():
            try:
                case = make(o, args, kwargs, self.origin)
            except Unfit:
                self.unfit.append(o.name)
                return
            key = signature(case)
            own = o.function.base in self.own and (how == "function" or not self.calls_of_own)
            self.calls += 1
            self.calls_of_own += own
            if key in self.seen and not own:
                return
            self.seen.add(key)
            if not own:
                case.origin += f", {how}"
            case.gradient = self.gradient and (own or how == "function")
            # What a call is given may be changed by it, or by the next.
            try:
                case.values = Copier()(case.values)
            except (RuntimeError, NotImplementedError):
                return  # A tensor that cannot be copied: a functional wrapper, a subclass.
            case.own = own
            self.cases.append(case)


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Nothing is recorded inside."""
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        yield


class _Functions(TorchFunctionMode):
    """Notes the functions of torch that Python calls."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "__get__":
            name = _PROPERTIES.get(func.__self__.__name__, func.__self__.__name__)
        with paused():
            found = resolve(name, args, kwargs)
        if found is not None:
            o, args_, kwargs_ = found
            self.recorder.note("function", o, args_, kwargs_)
        return func(*args, **kwargs)


class _Dispatched(TorchDispatchMode):
    """Notes the operators that reach the dispatcher below autograd."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        overload = func._schema.overload_name
        o = operators().get(name + (f".{overload}" if overload else ""))
        if o is not None:
            self.recorder.note("dispatched", o, args, kwargs)
        return func(*args, **kwargs)


_PYTHON_MODULES = (torch.nn.functional, torch.functional, torch._tensor)


@contextlib.contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Records what is called. Functions written in Python are transparent."""
    hooks = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
    before = [(m, h, getattr(m, h)) for m in _PYTHON_MODULES for h in hooks if hasattr(m, h)]
    try:
        for module, hook, _ in before:
            setattr(module, hook, lambda *args: False)
        with _Functions(recorder), _Dispatched(recorder):
            yield
    finally:
        for module, hook, function in before:
            setattr(module, hook, function)


def resolve(name: str, args: tuple, kwargs: dict) -> tuple[Operator, tuple, dict] | None:
    """The overload of a function that takes these arguments, if Go has it."""
    if name.startswith("__i") and name.endswith("__") and name[3:-2] in ("add", "sub", "mul"):
        name = name[3:-2] + "_"
    if name not in overloads():
        return None
    attempts = [kwargs]
    if kwargs.keys() & _RENAMED.keys():
        attempts.append({_RENAMED.get(k, k): v for k, v in kwargs.items()})
    for strict in (True, False):
        for attempt in attempts:
            for o in overloads()[name]:
                try:
                    make(o, args, attempt, "", strict)
                except Unfit:
                    continue
                return o, args, attempt
    return None


def signature(case: Case) -> tuple:
    """What tells two cases apart that are worth running both."""

    def of(v: Any) -> Any:
        if isinstance(v, torch.Tensor):
            plain = v.layout == torch.strided and not v.is_nested
            return (
                v.dtype,
                v.layout,
                v.dim() if not v.is_nested else -1,
                v.requires_grad,
                plain and v.is_contiguous(),
                plain and v.numel() == 0,
                v.device.type,
            )
        if isinstance(v, list):
            if v and not isinstance(v[0], torch.Tensor):
                return len(v)
            return tuple(map(of, v[:4]))
        if isinstance(v, torch.Generator):
            return "generator"
        if isinstance(v, float):
            return ("float", v > 0, v == int(v) if v == v and abs(v) != float("inf") else v)
        if isinstance(v, (torch.UntypedStorage, torch.Stream)):
            return type(v)
        return (type(v), v)

    return (case.operator.name, *(of(v) if v is not absent else absent for v in case.values))


_SEED = 1234  # the database's own


def sample_inputs(
    entry: Any, dtype: torch.dtype, requires_grad: bool, device: str = "cpu"
) -> Iterator[Any]:
    """The samples of an entry, in the database's order, always with the same numbers."""
    return _seeded(lambda: entry.sample_inputs_func(entry, device, dtype, requires_grad))


def _seeded(make_samples: Callable[[], Iterable[Any]]) -> Iterator[Any]:
    """What is made, with random numbers that begin anew for each, as in `entry.sample_inputs`.

    That one looks for a test among the callers and seeds devices that are not there, with a
    traceback for each, which takes longer than all that we do with a sample.
    """

    def seed() -> None:
        torch.default_generator.manual_seed(_SEED)
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(_SEED)
        random.seed(_SEED)
        numpy.random.seed(_SEED)

    seed()
    samples = iter(make_samples())
    with contextlib.suppress(StopIteration):
        while True:
            seed()
            yield next(samples)


def supports_gradient(entry: Any, dtype: torch.dtype) -> bool:
    return bool(entry.supports_autograd) and (dtype.is_floating_point or dtype.is_complex)


def noncontiguous(v: Any) -> Any:
    """The tensors in v, with gaps between their elements; values stay."""
    from torch.testing._internal.common_utils import noncontiguous_like

    def change(t: Any) -> Any:
        if isinstance(t, torch.Tensor) and t.layout == torch.strided and not t.is_nested:
            return noncontiguous_like(t)
        return t

    return tree_map(change, v)


def no_elements(v: Any) -> Any:
    """The tensors in v with nothing along their first dimension."""

    def change(t: Any) -> Any:
        plain = isinstance(t, torch.Tensor) and t.layout == torch.strided and not t.is_nested
        return t.detach()[:0].requires_grad_(t.requires_grad) if plain and t.dim() else t

    return tree_map(change, v)


def _changed(sample: Any, change: Callable[[Any], Any]) -> Any:
    """The sample with other tensors; None where they cannot be had."""
    other = copy.copy(sample)
    try:
        other.input, other.args = change(sample.input), change(sample.args)
        other.kwargs = change(sample.kwargs)
    except (RuntimeError, NotImplementedError, TypeError):
        return None
    return other


class Sampler:
    """Makes the cases of an entry's samples."""

    def __init__(self, device: str = "cpu") -> None:
        self.device = device
        self.seen: set[tuple] = set()
        self.unfit: dict[str, int] = {}
        self.samples: Counter[str] = Counter()  # by what they call

    def cases(
        self,
        entry: Any,
        dtype: torch.dtype,
        wanted: Callable[[int], bool] = lambda i: True,
    ) -> Iterator[Case]:
        """For each sample: the calls that it makes. Those of its own operator come every time,
        others once for each signature."""
        gradient = supports_gradient(entry, dtype)
        name = full_name(entry)
        for i, sample in enumerate(sample_inputs(entry, dtype, gradient, self.device)):
            if not wanted(i):
                continue
            origin = f"{name} {str(dtype).removeprefix('torch.')} #{i}"
            yield from self.of_sample(entry, sample, origin, gradient)
            if i == 0 and dtype == torch.float32:
                for what, change in (
                    ("noncontiguous", noncontiguous),
                    ("without elements", no_elements),
                ):
                    other = _changed(sample, change)
                    crashes = change is no_elements and name in reasons.NEVER_EMPTY
                    if other is not None and not crashes:
                        yield from self.of_sample(entry, other, f"{origin} {what}", gradient)

    def of_sample(self, entry: Any, sample: Any, origin: str, gradient: bool) -> list[Case]:
        recorder = Recorder(own_names(entry), self.seen, origin, gradient)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run(entry, sample, recorder, gradient)
        for name in recorder.unfit:
            self.unfit[name] = self.unfit.get(name, 0) + 1
        what = OWN if recorder.calls_of_own else PARTS if recorder.calls else NOTHING
        self.samples[what] += 1
        return recorder.cases


@cache
def _own(name: str, aten_name: str, aliases: tuple[str, ...]) -> frozenset[str]:
    names = {name, aten_name, name.replace(".", "_"), name.rsplit(".", 1)[-1], *aliases}
    return frozenset(names | {n + "_" for n in names})


def own_names(entry: Any) -> frozenset[str]:
    """The names in the schema that an entry's operator may have."""
    aliases = tuple(a.name.replace(".", "_") for a in getattr(entry, "aliases", ()) or ())
    return _own(entry.name, getattr(entry, "aten_name", None) or entry.name, aliases)


def error_inputs(entry: Any) -> Iterator[tuple[str, type[BaseException], list[Case]]]:
    """The bad inputs of an entry: where from, the error that PyTorch's database expects, and the
    calls that were made up to the error."""
    if entry.error_inputs_func is None:
        return
    for i, bad in enumerate(_seeded(lambda: entry.error_inputs_func(entry, "cpu"))):
        origin = f"{full_name(entry)} error #{i}"
        recorder = Recorder(frozenset(), set(), origin, False)
        run(entry, bad.sample_input, recorder, False)
        yield origin, bad.error_type, recorder.cases


def run(entry: Any, sample: Any, recorder: Recorder, gradient: bool) -> None:
    """Runs a sample, and its backward pass, under the recorder."""
    try:
        with recording(recorder):
            if "foreach" in type(entry).__name__.lower():
                kwargs = {k: v for k, v in sample.kwargs.items() if k not in _FOREACH_ONLY}
                result = entry.method_variant(sample.input, *sample.args, **kwargs)
            else:
                result = entry.op(sample.input, *sample.args, **sample.kwargs)
            if gradient:
                _backward(result)
    except Exception:
        return  # What was called before is recorded, and Python and Go are compared on it.


_FOREACH_ONLY = ("values", "is_fastpath", "disable_fastpath", "zero_size")


def _backward(result: Any) -> None:
    flat = [t for t in tensors_in(_as_list(result)) if t.requires_grad]
    if not flat:
        return
    leaves_grad = [torch.ones_like(t) for t in flat]
    torch.autograd.backward(flat, leaves_grad)


def _as_list(v: Any) -> list[Any]:
    if isinstance(v, torch.Tensor):
        return [v]
    if isinstance(v, (list, tuple)):
        return [x for e in v for x in _as_list(e)]
    return []
