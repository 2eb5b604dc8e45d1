"""Runs a case in Python and in Go, in every form that Go has, and says what differs."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from . import reasons
from .cases import Case, Copier, show, tensors_in
from .harness import FUNCTION, METHOD, Broken, GoCrash, Harness, WrapperError, absent
from .operators import Operator

SEED = 20260401
# How often Python is asked again where a device's result differs. On an H200 the backward pass of
# grid_sample gave the same twice, and not three times.
_TIMES = 20


def seed() -> None:
    """Begins all random numbers anew, those of devices too."""
    torch.default_generator.manual_seed(SEED)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(SEED)


@dataclass
class Outcome:
    """What became of a case."""

    ended: str  # "passed", "failed", "error" (passed: both raised the same), "unfit"
    forms: tuple[str, ...] = ()  # the forms in which Go was called
    problems: tuple[str, ...] = ()
    results: Any = None  # Python's
    gradient: bool = False  # a backward pass was compared
    error: tuple[str, str] | None = None  # what PyTorch raised


class Checker:
    """Checks cases with one harness."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.passes = 0  # backward passes; Backward and Grad take turns

    def check(self, case: Case, thorough: bool = True) -> Outcome:
        """Calls the case in Python, then in Go in all its forms.

        A case whose arguments torch.ops refuses before it calls anything is "unfit": they are not
        of the schema's types.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self._check(case, thorough)

    def _check(self, case: Case, thorough: bool) -> Outcome:
        try:
            wanted = Run.in_python(case)
        except _Refused as err:
            return Outcome("unfit", problems=(str(err),))
        if case.gradient and wanted.error is None:
            wanted.differentiate(None)
        ran: list[str] = []
        problems: list[str] = []
        for name, form, values, options in _forms(case, thorough):
            ran.append(name)
            try:
                got = Run.in_go(self.harness, case, values, form, options)
                if case.gradient and wanted.grads is not None and form == FUNCTION:
                    self.passes += 1
                    got.differentiate(self.harness, backward=self.passes % 2 == 0)
                problem = difference(case.operator, wanted, got)
                if problem and _on_device(wanted) and _moody(case, wanted):
                    problem = ""
            except (GoCrash, Broken) as err:
                problem = f"{type(err).__name__}: {err}"
            if problem:
                first = problem if "\n" not in problem else problem.splitlines()[0]
                problems.append(f"{case!r} as {name} [{case.origin}]: {first}")
        ended = "failed" if problems else "passed" if wanted.error is None else "error"
        return Outcome(
            ended,
            tuple(ran),
            tuple(problems),
            wanted.results,
            wanted.grads is not None,
            wanted.error,
        )


def _on_device(run: Run) -> bool:
    return any(t.device.type not in ("cpu", "meta") for t in tensors_in([run.values, run.results]))


def _moody(case: Case, wanted: Run) -> bool:
    """Whether Python gives something else another time, as kernels of devices do that add in the
    order in which threads arrive."""
    for _ in range(_TIMES):
        again = Run.in_python(case)
        if case.gradient and again.error is None:
            again.differentiate(None)
        if difference(case.operator, wanted, again):
            return True
    return False


def _forms(case: Case, thorough: bool) -> Iterator[tuple[str, int, list[Any], bool | None]]:
    """The ways to call Go: name, form, values, whether to pass options."""
    o = case.operator
    yield "function", FUNCTION, case.values, None
    if o.method:
        yield "method", METHOD, case.values, None
    if thorough and o.op.options_type:
        explicit = [default_value(o, i) if v is absent else v for i, v in enumerate(case.values)]
        if any(v is absent for v in case.values):
            yield "function with its defaults spelt out", FUNCTION, explicit, True


def default_value(o: Operator, i: int) -> Any:
    """The schema's default of argument i as a value, or `absent` where Go cannot say it."""
    return _defaults(o)[i]


_known_defaults: dict[str, list[Any]] = {}


def _defaults(o: Operator) -> list[Any]:
    found = _known_defaults.get(o.name)
    if found is None:
        found = [absent] * len(o.arguments)
        # torch.ops knows its schema's defaults as Python values; enums are numbers there.
        by_name = {a.name: a for a in o.oracle._schema.arguments}
        for i, a in enumerate(o.arguments):
            theirs = by_name.get(a.name)
            if a.default is None or theirs is None or not theirs.has_default_value():
                continue
            v = theirs.default_value
            kind = a.type.rstrip("?")
            if v is None:
                continue
            if kind == "ScalarType":
                v = _DTYPE_BY_NUMBER[v]
            elif kind == "MemoryFormat":
                v = _FORMATS[v]
            elif (
                kind in ("Layout", "Device")
                or (kind == "bool" and a.name == "pin_memory")
                or (isinstance(v, list) and kind.endswith("]") and not v)
            ):
                continue
            elif kind.endswith("]") and not isinstance(v, list):
                v = [v] * int(kind[kind.index("[") + 1 : -1] or 1)
            elif kind == "float":
                v = float(v)
            found[i] = v
        _known_defaults[o.name] = found
    return found


_FORMATS = {
    0: torch.contiguous_format,
    1: torch.preserve_format,
    2: torch.channels_last,
    3: torch.channels_last_3d,
}


def _numbered() -> dict[int, torch.dtype]:
    """The dtypes by the numbers that torch.ops gives for them."""
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in dir(torch):
            d = getattr(torch, name)
            if isinstance(d, torch.dtype):
                with contextlib.suppress(RuntimeError, TypeError):
                    t = torch.empty(1, dtype=d)
                    found[torch.ops.aten.result_type.Tensor(t, t)] = d
    return found


_DTYPE_BY_NUMBER = _numbered()


class _Refused(Exception):
    """torch.ops did not take the arguments."""


class Run:
    """A call that has been made: what went in, what came out."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.copier = Copier()
        self.values: list[Any] = []
        self.results: list[Any] = []
        self.error: tuple[str, str] | None = None
        self.generators: list[torch.Tensor] = []
        self.random_state: torch.Tensor | None = None
        self.grads: list[torch.Tensor | None] | None = None
        self.grad_error: tuple[str, str] | None = None

    @classmethod
    def in_python(cls, case: Case) -> Run:
        run, o = cls(case), case.operator
        run.values = run.copier(case.values)
        args, kwargs = [], {}
        positional = True
        for a, v in zip(o.arguments, run.values, strict=True):
            if v is absent:
                positional = False
            elif a.kwarg_only or not positional:
                kwargs[a.name] = v
            else:
                args.append(v)
        seed()
        try:
            result = o.oracle(*args, **kwargs)
        except Exception as err:
            text = str(err)
            if reasons.refused(err, text):
                raise _Refused(text.splitlines()[0] if text else "") from err
            run.error = (type(err).__name__.lstrip("_"), first_line(text))
            return run
        if len(o.returns) == 0:
            run.results = []
        elif len(o.returns) == 1:
            run.results = [result]
        else:
            run.results = list(result)
        for i, kind in enumerate(o.returns):
            if kind == "ScalarType" and isinstance(run.results[i], int):
                run.results[i] = _DTYPE_BY_NUMBER[run.results[i]]
            if kind == "ScalarType":
                run.results[i] = str(run.results[i])
        if case.requires_grad:
            run.results[0].requires_grad_()
        run.random_state = _random_state(o)
        run.generators = [v.get_state() for v in run.values if isinstance(v, torch.Generator)]
        return run

    @classmethod
    def in_go(
        cls, harness: Harness, case: Case, values: list[Any], form: int, options: bool | None
    ) -> Run:
        run = cls(case)
        run.values = run.copier(values)
        if case.operator.random:
            harness.seed(SEED)
        try:
            run.results, run.generators = harness.call(
                case.operator, run.values, form, options, case.requires_grad
            )
            run.random_state = _random_state(case.operator)
        except WrapperError as err:
            run.error = (err.kind, err.message)
            if err.op != case.operator.name:
                run.error = (err.kind, f"(of {err.op!r}) {err.message}")
        return run

    def leaves(self) -> list[torch.Tensor]:
        return [t for t in _unique(tensors_in(self.values)) if t.requires_grad and t.is_leaf]

    def differentiate(self, harness: Harness | None, backward: bool = False) -> None:
        """The gradients of the results, with Go's engine calls if a harness is given."""
        outputs = [t for t in _unique(tensors_in(self.results)) if t.requires_grad]
        outputs = [t for t in outputs if t.layout == torch.strided and not t.is_leaf]
        inputs = self.leaves()
        if not outputs or not inputs:
            return
        grads = [_gradient_for(t) for t in outputs]
        seed()
        try:
            if harness is None:
                self.grads = list(torch.autograd.grad(outputs, inputs, grads, allow_unused=True))
            elif backward:
                harness.backward(outputs, grads)
                self.grads = [t.grad for t in inputs]
            else:
                self.grads = harness.grad(outputs, grads, inputs)
        except WrapperError as err:
            self.grads, self.grad_error = [], (err.kind, err.message)
        except Exception as err:
            self.grads = []
            self.grad_error = (type(err).__name__.lstrip("_"), first_line(str(err)))


def _random_state(o: Operator) -> torch.Tensor | None:
    return torch.default_generator.get_state() if o.random else None


def first_line(text: str) -> str:
    return text.split("\n", 1)[0]


def _unique(tensors: Iterator[torch.Tensor]) -> list[torch.Tensor]:
    return list({id(t): t for t in tensors}.values())


def _gradient_for(t: torch.Tensor) -> torch.Tensor:
    """Not all the same, so that a transposed gradient shows."""
    with torch.no_grad():
        g = torch.arange(1, t.numel() + 1, dtype=torch.float64).remainder(7).add(0.5)
        return g.reshape(t.shape).to(t.device, t.dtype)


# What differs -----------------------------------------------------------------------------------


def difference(o: Operator, wanted: Run, got: Run) -> str:
    """What differs between two runs, or ""."""
    if wanted.error or got.error:
        return _error_difference(wanted, got)
    if len(wanted.results) != len(got.results):
        return f"{len(got.results)} results, expected {len(wanted.results)}"
    vague = o.name in reasons.UNINITIALISED
    for i, (w, g) in enumerate(zip(wanted.results, got.results, strict=True)):
        problem = _value_difference(w, g, vague or (o.name, i) in reasons.OPAQUE)
        if problem:
            return f"result {i}: {problem}" if len(wanted.results) > 1 else problem
    for a, w, g in zip(o.arguments, wanted.values, got.values, strict=True):
        if w is absent or isinstance(w, torch.Generator):
            continue
        problem = _value_difference(w, g, vague or (o.name, a.name) in reasons.OPAQUE)
        if problem:
            return f"argument {a.name} after the call: {problem}"
    problem = _sharing(wanted, got)
    if problem:
        return problem
    for w, g in zip(wanted.generators, got.generators, strict=True):
        if not torch.equal(w, g):
            return "the generator is in another state after the call"
    if wanted.random_state is not None and got.random_state is not None:
        same = torch.equal(wanted.random_state, got.random_state)
        if not same:
            return "the default generator is in another state after the call"
    if got.grads is not None and wanted.grads is not None:
        return _grad_difference(wanted, got)
    return ""


def _error_difference(wanted: Run, got: Run) -> str:
    if wanted.error is None:
        return f"panics with {': '.join(got.error or ())}; PyTorch gives a result"
    if got.error is None:
        return f"gives a result; PyTorch raises {': '.join(wanted.error)}"
    if wanted.error != got.error and not reasons.same_error(wanted.error, got.error):
        return f"panics with {': '.join(got.error)}; PyTorch raises {': '.join(wanted.error)}"
    return ""


def _grad_difference(wanted: Run, got: Run) -> str:
    assert wanted.grads is not None
    assert got.grads is not None
    if wanted.grad_error or got.grad_error:
        if wanted.grad_error == got.grad_error:
            return ""
        return f"backward ends with {got.grad_error}, expected {wanted.grad_error}"
    for i, (w, g) in enumerate(zip(wanted.grads, got.grads, strict=True)):
        # Backward adds to a gradient, which settles its lazy bits and cuts it from the graph.
        problem = _value_difference(_settled(w), _settled(g), False, strides=False)
        if problem:
            return f"gradient {i}: {problem}"
    return ""


def _settled(t: torch.Tensor | None) -> torch.Tensor | None:
    if t is None or t.layout != torch.strided:
        return t
    return t.detach().resolve_conj().resolve_neg()


def _value_difference(w: Any, g: Any, vague: bool, strides: bool = True) -> str:
    if isinstance(w, torch.Tensor):
        if not isinstance(g, torch.Tensor):
            return f"{show(g)}, expected {show(w)}"
        return tensor_difference(w, g, vague, strides)
    if isinstance(w, (list, tuple)):
        if not isinstance(g, (list, tuple)) or len(w) != len(g):
            return f"{show(g)}, expected {show(w)}"
        for i, (a, b) in enumerate(zip(w, g, strict=True)):
            problem = _value_difference(a, b, vague, strides)
            if problem:
                return f"element {i}: {problem}"
        return ""
    if isinstance(w, torch.UntypedStorage):
        return ""  # seen through the tensors that share it
    if type(w) is not type(g) or (w != g and not (w != w and g != g)):
        return f"{g!r}, expected {w!r}"
    return ""


def tensor_difference(w: torch.Tensor, g: torch.Tensor, vague: bool, strides: bool = True) -> str:
    """What differs between two tensors, or "". vague: their elements are not defined."""
    for what, a, b in _facts(w, g):
        if a != b:
            return f"{what} is {b}, expected {a}"
    if w.is_nested:
        return _value_difference(list(w.unbind()), list(g.unbind()), vague)
    if w.layout == torch.strided:
        if strides:
            for what, a, b in (
                ("strides", w.stride(), g.stride()),
                ("storage offset", w.storage_offset(), g.storage_offset()),
            ):
                if a != b:
                    return f"{what} is {b}, expected {a}"
        if vague or w.device.type == "meta":
            return ""
        return _bits_difference(w.detach(), g.detach())
    if vague:
        return ""
    with torch.no_grad():
        for part, a, b in zip(_PARTS[w.layout], _parts(w), _parts(g), strict=True):
            problem = tensor_difference(a, b, vague)
            if problem:
                return f"its {part}: {problem}"
    return ""


def _facts(w: torch.Tensor, g: torch.Tensor) -> Iterator[tuple[str, Any, Any]]:
    yield "dtype", w.dtype, g.dtype
    yield "layout", w.layout, g.layout
    yield "device", w.device, g.device
    yield "nestedness", w.is_nested, g.is_nested
    if not w.is_nested:
        yield "shape", tuple(w.shape), tuple(g.shape)
    yield "requires_grad", w.requires_grad, g.requires_grad
    yield "being a leaf", w.is_leaf, g.is_leaf
    yield "the conjugate bit", w.is_conj(), g.is_conj()
    yield "the negative bit", w.is_neg(), g.is_neg()
    yield "inference mode", w.is_inference(), g.is_inference()
    if w.requires_grad:
        a, b = w.grad_fn, g.grad_fn
        yield "the node of the graph", a and a.name(), b and b.name()
    if w.is_quantized:
        yield "the quantizer", str(_quantizer(w)), str(_quantizer(g))


def _quantizer(t: torch.Tensor) -> Any:
    if t.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return t.qscheme(), t.q_scale(), t.q_zero_point()
    return (
        t.qscheme(),
        t.q_per_channel_scales().tolist(),
        t.q_per_channel_zero_points().tolist(),
        t.q_per_channel_axis(),
    )


_PARTS = {
    torch.sparse_coo: ("indices", "values", "coalescedness"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
    torch._mkldnn: ("elements",),
}


def _parts(t: torch.Tensor) -> list[torch.Tensor]:
    t = t.detach()
    if t.layout == torch.sparse_coo:
        return [t._indices(), t._values(), torch.tensor(t.is_coalesced())]
    if t.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [t.crow_indices(), t.col_indices(), t.values()]
    if t.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [t.ccol_indices(), t.row_indices(), t.values()]
    return [t.to_dense()]


_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _bits_difference(w: torch.Tensor, g: torch.Tensor) -> str:
    if w.numel() == 0:
        return ""
    if w.device.type != "cpu":
        w, g = w.cpu(), g.cpu()
    if w.is_quantized:
        w, g = w.int_repr(), g.int_repr()
    if w.is_conj() or w.is_neg():
        w, g = w.resolve_conj().resolve_neg(), g.resolve_conj().resolve_neg()
    a, b = w, g
    if w.is_complex():
        a, b = torch.view_as_real(w), torch.view_as_real(g)
    word = _WORDS[a.element_size()]
    if torch.equal(a.view(word), b.view(word)):
        return ""
    if w.is_floating_point() or w.is_complex():
        # Which NaN it is says nothing, and differs with the registers that a loop was given.
        both = torch.isnan(a) & torch.isnan(b)
        different = (a.view(word) != b.view(word)) & ~both
    else:
        different = a.view(word) != b.view(word)
    n = int(different.sum())
    if n == 0:
        return ""
    if w.is_complex():
        different = different.any(-1)
    at = tuple(different.nonzero()[0].tolist())
    first = f"the first at {list(at)}: {g[at].item()!r}, expected {w[at].item()!r}"
    return f"{n} of {w.numel()} elements differ, {first}"


def _storage(t: torch.Tensor) -> int:
    try:
        return t.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):
        return 0


def _sharing(wanted: Run, got: Run) -> str:
    """Compares which tensors are the same, or share a storage."""
    inputs = list(tensors_in(wanted.values)), list(tensors_in(got.values))
    outputs = list(tensors_in(wanted.results)), list(tensors_in(got.results))
    if not outputs[0]:
        return ""
    w = [_shares(t, inputs[0] + outputs[0][:i]) for i, t in enumerate(outputs[0])]
    g = [_shares(t, inputs[1] + outputs[1][:i]) for i, t in enumerate(outputs[1])]
    if w == g:
        return ""
    for i, (a, b) in enumerate(zip(w, g, strict=True)):
        if a != b:
            return f"result {i} {_told(b, len(inputs[0]))}, expected: {_told(a, len(inputs[0]))}"
    return "other results share storage"


def _shares(t: torch.Tensor, others: list[torch.Tensor]) -> list[tuple[int, str]]:
    mine, found = _storage(t), []
    for i, other in enumerate(others):
        if other is t:
            found.append((i, "is"))
        elif mine and _storage(other) == mine:
            found.append((i, "views"))
    return found


def _told(shares: list[tuple[int, str]], inputs: int) -> str:
    if not shares:
        return "shares nothing"
    return " and ".join(
        f"{how} {'tensor argument' if i < inputs else 'result'} {i if i < inputs else i - inputs}"
        for i, how in shares
    )
