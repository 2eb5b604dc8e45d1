"""What types the results of a native function have, given the types of its inputs.

PyTorch itself answers: the function runs on meta tensors, which have a shape and no data. Where
sizes are open, or results depend on elements, such runs say how many dimensions there are, and
propose sizes; a size is known only where a rule of its function says so (`_MOVED`, `_SHAPED`, ...)
or `sizes.prove` finds it, and open otherwise. Answers are kept, so asking again costs a look-up.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..errors import BridgeTypeError
from ..types import SchemaType, TensorType, Type, schema_type
from ..types.containers import TensorList, is_number_list
from ..types.enums import device_parts
from ..types.numbers import Number, ScalarArg
from ..types.tensor import Shape, TensorArg
from . import sizes as proofs
from .op import parameter_key
from .quiet import quiet

# Sizes to try, by the number of dimensions: they divide by what sizes are usually divided by, and
# tensors of them have fewer than 2**63 elements.
_SIZES = {3: (5040, 55440), 5: (720, 1680), 6: (360, 840), 64: (60, 120)}
_REAL_HINTS = (4, 6)

# Functions that are computed instead, on as small tensors as the types allow. Their meta kernels
# are written in Python, and the first that runs imports SymPy or torch._dynamo, which takes a
# second.
_COMPUTED = frozenset(
    """mm bmm addmm baddbmm mv addmv matmul linear softmax.int _softmax log_softmax.int _log_softmax
    layer_norm native_layer_norm batch_norm native_batch_norm group_norm native_group_norm cat stack
    sum sum.dim_IntList mean mean.dim var.correction var_mean.correction std.correction
    adaptive_avg_pool2d scaled_dot_product_attention cross_entropy_loss nll_loss_nd mse_loss
    """.split()  # noqa: SIM905
)

# Functions whose results have sizes of these kinds only: a size of an argument, a number given, a
# sum or a product of such. Where arguments meet, by broadcasting or along what is summed, a known
# size decides. So two runs with different numbers for what is open tell whether a size depends on
# it. `tests/graph/test_random_graphs.py` runs them at sizes that are special.
_MOVED = _COMPUTED - {"group_norm", "native_group_norm"} | frozenset(
    """transpose.int permute t numpy_T mT movedim.int movedim.intlist swapaxes swapdims unsqueeze
    select.int flatten.using_ints ravel embedding index_select clone contiguous detach alias
    permute_copy transpose_copy.int t_copy unsqueeze_copy select_copy.int
    amax amin max.dim min.dim argmax argmin prod prod.dim_int any any.dim all all.dim max min
    logsumexp norm.ScalarOpt_dim linalg_vector_norm nansum nanmean var.dim std.dim var std
    zeros_like ones_like full_like empty_like rand_like randn_like mse_loss l1_loss
    argsort sort sort.stable outer dot
    """.split()  # noqa: SIM905
)

# Functions whose first result has the shape of the first tensor, whatever else is given.
_SHAPED = frozenset(
    """group_norm native_group_norm instance_norm rms_norm channel_shuffle cumsum cumprod
    logcumsumexp flip roll tril triu softmax.int _softmax log_softmax.int _log_softmax batch_norm
    native_batch_norm layer_norm native_layer_norm dropout native_dropout feature_dropout
    alpha_dropout renorm index_fill.int_Scalar index_add index_copy scatter.src scatter.value
    scatter_add slice_scatter select_scatter diagonal_scatter index_put
    """.split()  # noqa: SIM905
)
# Functions that are elementwise and broadcast, although no tag says so.
_POINTWISE = frozenset(
    """floor_divide divide.Tensor multiply.Tensor subtract.Tensor rsub.Tensor arctan2 isclose polar
    greater.Tensor greater_equal.Tensor less.Tensor less_equal.Tensor not_equal.Tensor
    where.Scalar where.ScalarOther where.ScalarSelf special_gammainc special_gammaincc
    special_xlogy special_xlogy.other_scalar special_xlogy.self_scalar
    """.split()  # noqa: SIM905
)

_COMPUTED_ELEMENTS = 1 << 22  # of the largest argument

_ATTEMPTS = 200  # ways to give open sizes the value of known ones
_REAL_ELEMENTS = 1 << 24  # beyond that, nothing is computed only to see its type

Ties = dict[tuple[int, int], int]  # (input, dimension) to the size that it must have
Result = tuple[tuple[Type, ...], tuple[int, ...]]

_known: dict[Any, Result] = {}
_pointwise_dtypes: dict[Any, tuple[str, ...]] = {}


def output_types(function: Any, template: tuple[Any, ...], inputs: tuple[Type, ...]) -> Result:
    """The types of the results, lists flattened, and how many tensors each list has.

    BridgeTypeError, which has PyTorch's own message, where the function refuses such inputs.
    """
    key = (function.name, parameter_key(template), inputs)
    found = _known.get(key)
    if found is None:
        found = _infer(function, template, inputs)
        if len(_known) < 100_000:
            _known[key] = found
    return found


def _infer(function: Any, template: tuple[Any, ...], inputs: tuple[Type, ...]) -> Result:
    if not any(isinstance(t, (TensorArg, TensorList)) for t in function.results):
        return tuple(_plain(t) for t in function.results), ()
    if function.returns_written:
        return _written(function, template, inputs)
    if any(getattr(t, "kind", "") == "scalar" for t in inputs):
        return _of_every_kind(function, template, inputs)
    if function.pointwise or function.name in _POINTWISE:
        fast = _pointwise(function, template, inputs)
        if fast is not None:
            return fast, ()
    runs = _Runs(function, template, inputs)
    return runs.types()


def _of_every_kind(function: Any, template: tuple[Any, ...], inputs: tuple[Type, ...]) -> Result:
    """The types where an input is a Scalar: a bool, an integer, a float or complex, which may give
    results of other dtypes. What is refused by all that can be one is refused."""
    found: list[Result] = []
    refusals: list[BridgeTypeError] = []
    for kind in (*map(schema_type, ("int", "bool", "float")), _Complex("Scalar")):
        known = tuple(kind if getattr(t, "kind", "") == "scalar" else t for t in inputs)
        try:
            found.append(_infer(function, template, known))
        except BridgeTypeError as e:
            refusals.append(e)
    if not found:
        raise refusals[0]
    types, lists = _Runs._common(found)
    dtypes = [{getattr(types[i], "dtype", None) for types, _ in found} for i in range(len(types))]
    return tuple(
        t.clone(dtype=None) if isinstance(t, TensorType) and len(of) > 1 else t
        for t, of in zip(types, dtypes, strict=True)
    ), lists


class _Complex(ScalarArg):
    """A Scalar that is complex."""

    kind = "complex"


def _plain(t: SchemaType) -> Type:
    """The type of a result that is no tensor."""
    return schema_type(t.schema.replace("SymInt", "int").replace("SymBool", "bool"))


def _written(function: Any, template: tuple[Any, ...], inputs: tuple[Type, ...]) -> Result:
    """A function without results: its written arguments are."""
    from .native import IN

    types: list[Type] = []
    lists: list[int] = []
    given = iter(inputs)
    for a, v in zip(function.function.arguments, template, strict=True):
        if isinstance(v, tuple):
            mine = [next(given) for x in v if x is IN]
        else:
            mine = [next(given)] if v is IN else []
        if a.written:
            types += mine
            if a.type.endswith("[]"):
                lists.append(len(mine))
    return tuple(types), tuple(lists)


# Elementwise functions: the shape is the broadcast one, and dtypes do not depend on sizes.


def broadcast(shapes: Sequence[Shape]) -> Shape | None:
    """The shape that shapes broadcast to; None where two sizes cannot meet. A size that is known
    and no 1 wins over an open one."""
    result: list[int | None] = []
    for dims in itertools.zip_longest(*(reversed(s) for s in shapes), fillvalue=1):
        known = {d for d in dims if d is not None and d != 1}
        if len(known) > 1:
            return None
        result.append(known.pop() if known else None if None in dims else 1)
    return tuple(reversed(result))


def _pointwise(
    function: Any, template: tuple[Any, ...], inputs: tuple[Type, ...]
) -> tuple[Type, ...] | None:
    tensors = [t for t in inputs if isinstance(t, TensorType)]
    if not tensors or any(t.dtype is None or t.shape is None for t in tensors):
        return None
    if any(isinstance(t, TensorArg) and not isinstance(t, TensorType) for t in inputs):
        return None
    shape = broadcast([t.shape for t in tensors if t.shape is not None])
    if shape is None:
        return None  # PyTorch says why
    reduced = tuple(
        TensorType(t.dtype, () if t.shape == () else (1,), device="cpu")
        if isinstance(t, TensorType)
        else t
        for t in inputs
    )
    key = (function.name, parameter_key(template), reduced)
    dtypes = _pointwise_dtypes.get(key)
    if dtypes is None:
        try:
            types = _Runs(function, template, reduced).of_one_element()
        except BridgeTypeError:
            return None  # perhaps a memory format, which is for four dimensions
        if any(not isinstance(t, TensorType) or t.dtype is None for t in types):
            return None
        dtypes = tuple(t.dtype for t in types)  # type: ignore[attr-defined]
        _pointwise_dtypes[key] = dtypes
    device = _device(function, template, inputs)
    return tuple(TensorType(d, shape, device=device) for d in dtypes)


def _device(function: Any, template: tuple[Any, ...], inputs: tuple[Type, ...]) -> str:
    """Where the results are."""
    for a, v in zip(function.function.arguments, template, strict=True):
        if a.type.startswith("Device") and v is not None and not isinstance(v, tuple):
            try:
                kind, index = device_parts(v)
            except ValueError:
                continue
            return kind if index < 0 else f"{kind}:{index}"
    devices = [
        t for t in inputs if isinstance(t, TensorType) and t.device not in (None, "cpu")
    ] or [t for t in inputs if isinstance(t, TensorType) and t.device is not None]
    return devices[0].device or "cpu" if devices else "cpu"


# Running the function


class _Runs:
    """The function on tensors that have the types of its inputs."""

    def __init__(self, function: Any, template: tuple[Any, ...], inputs: tuple[Type, ...]) -> None:
        self.function, self.template, self.inputs = function, template, inputs
        self.open = [
            (i, d)
            for i, t in enumerate(inputs)
            if isinstance(t, TensorType)
            for d, size in enumerate(t.shape or ())
            if size is None
        ]
        self.device = _device(function, template, inputs)
        self.others: list[list[Any]] = []  # runs with other ties than those chosen
        self.small = False  # whether numbers are small, as an index or a dimension must be

    @property
    def hints(self) -> tuple[int, int]:
        ndim = max((t.ndim or 0 for t in self.inputs if isinstance(t, TensorType)), default=0)
        return next(sizes for most, sizes in _SIZES.items() if ndim <= most)

    def types(self) -> Result:
        types, lists = self._types()
        from .native import corrected

        loose = corrected("loose", self.function.name)
        if loose:
            types = tuple(
                t.clone(shape=[None] * t.ndim)
                if i in loose and isinstance(t, TensorType) and t.ndim is not None
                else t
                for i, t in enumerate(types)
            )
        return types, lists

    def of_one_element(self) -> tuple[Type, ...]:
        """The types for inputs of one element each. They are computed, because meta kernels in
        Python import torch._dynamo, which takes a second, when the first of them runs."""
        import torch

        def tensor(i: int, t: TensorType) -> Any:
            return torch.ones(t.shape or (), dtype=t.torch_dtype)

        if not self.function.random:
            try:
                return self._joined([self._run(tensor, 1, "cpu")])[0]
            except Exception:
                pass
        return self.types()[0]

    def _types(self) -> Result:
        if any(
            not isinstance(t, TensorType) or t.dtype is None or t.shape is None
            for t in self.inputs
            if isinstance(t, (TensorArg, TensorList))
        ):
            return self._unknown()
        if any(map(is_number_list, self.inputs)):
            return self._sized()
        certain = not self.open and not self._numbers()
        try:
            if self.function.name in _COMPUTED:
                found = self._computed()
                if found is not None:
                    return found if certain else self._checked(found)
            if "dynamic_output_shape" not in self.function.function.tags:
                try:
                    found = self._on(self._meta, self.hints)
                    return found if certain else self._checked(found)
                except _NoKernel:
                    pass
            return self._checked(self._on_real())
        except BridgeTypeError:
            if certain:
                raise
            found = self._derived()
            if found is None:
                raise
            return found

    def _numbers(self) -> bool:
        """Whether an input is a number."""
        return any(not isinstance(t, TensorType) for t in self.inputs)

    # What is known of sizes
    def _checked(self, seen: Result) -> Result:
        """The types that were seen, with the sizes that are sure."""
        types, lists = seen
        rules = self._rules(types)
        proposed = [
            t.shape if isinstance(t, TensorType) and i not in rules else None
            for i, t in enumerate(types)
        ]
        known: list[Any] = [None] * len(types)
        if any(shape is not None and any(d is not None for d in shape) for shape in proposed):
            with contextlib.suppress(Exception):  # then nothing is proved
                known = [sizes for _, sizes in self._proved(proposed)]
        made = []
        for i, t in enumerate(types):
            if i in rules:
                t = t.clone(shape=rules[i])
            elif isinstance(t, TensorType) and t.shape is not None:
                t = t.clone(shape=known[i] or (None,) * len(t.shape))
            made.append(t)
        return tuple(made), lists

    def _rules(self, types: Sequence[Type]) -> dict[int, Shape]:
        """The shapes that results have by what their function is."""
        if self.function.name in _MOVED and not self._numbers():
            return {
                i: t.shape
                for i, t in enumerate(types)
                if isinstance(t, TensorType) and t.shape is not None
            }
        rules = self._written_shapes()
        first = next((t for t in self.inputs if isinstance(t, TensorType)), None)
        if first is not None and first.shape is not None and self.function.name in _SHAPED:
            rules[0] = first.shape
        for told in (self._told_shape(), self._kept_shape(), self._windows_shape(types)):
            if told is not None and len(types) == 1:
                rules[0] = told
        return {
            i: shape
            for i, shape in rules.items()
            if isinstance(types[i], TensorType) and types[i].ndim == len(shape)  # type: ignore[attr-defined]
        }

    def _kept_shape(self) -> Shape | None:
        """The result's shape, for functions that leave some dimensions of the first tensor alone,
        and whose kernels cannot run with symbols."""
        name = self.function.name
        first = next((t for t in self.inputs if isinstance(t, TensorType)), None)
        if first is None or first.shape is None:
            return None
        values = dict(
            zip((a.name for a in self.function.function.arguments), self.template, strict=True)
        )
        if name.startswith(("upsample_", "_upsample_")) and "backward" not in name:
            sizes = values.get("output_size")
            rest = first.shape[2:]
            told = sizes if isinstance(sizes, tuple) and len(sizes) == len(rest) else rest
            known = [d if told is sizes and isinstance(d, int) else None for d in told]
            return (*first.shape[:2], *known)
        pad = values.get("pad", values.get("padding"))
        if "pad" in name.partition(".")[0].split("_") or name.startswith(_PADS):
            if not isinstance(pad, tuple) or not all(isinstance(n, int) for n in pad):
                return None
            shape = list(first.shape)
            for i in range(min(len(pad) // 2, len(shape))):
                size = shape[-1 - i]
                shape[-1 - i] = None if size is None else size + pad[2 * i] + pad[2 * i + 1]
            return tuple(shape)
        return None

    def _windows_shape(self, seen: Sequence[Type]) -> Shape | None:
        """The shape of a convolution or a pooling: each size along which windows move depends on
        that size of the input, and on that of the window, alone."""
        tensors = [t for t in self.inputs if isinstance(t, TensorType)]
        n = _WINDOWS.get(self.function.name)
        if n is None or self._numbers() or not isinstance(seen[0], TensorType):
            return None
        first, *others = (t.shape or () for t in tensors)
        shape = seen[0].shape or ()
        window: Shape = others[0] if self.function.name.startswith("conv") else first
        if not len(first) == len(shape) == len(window) == n + 2:
            return None
        channels = first[1]
        if window is not first:
            # Where nothing comes in, what comes out is not what the weights say.
            channels = window[0] if window[1] else None
        moved = [None if None in (first[d], window[d]) else shape[d] for d in range(2, len(shape))]
        return (first[0], channels, *moved)

    def _derived(self) -> Result | None:
        """The types where no run on numbers has succeeded: of what is written into, or from a run
        with symbols; None where there is none."""
        written = self._written_shapes()
        try:
            found = self._proved(None)
        except proofs.NotProved:
            if len(written) != len(self.function.results):
                return None
            return tuple(t for t in self._written_types() if t is not None), ()
        except Exception:
            return None
        types: list[Type] = []
        rest = iter(found)
        for t in self.function.results:
            if isinstance(t, TensorList):
                return None
            result, sizes = next(rest)
            if not isinstance(t, TensorArg):
                types.append(_plain(t))
            elif result is None:
                types.append(schema_type("Tensor?"))
            else:
                types.append(TensorType(result.dtype, sizes, device=self.device))
        rules = self._rules(types)
        return tuple(t.clone(shape=rules[i]) if i in rules else t for i, t in enumerate(types)), ()

    def _proved(self, proposed: Sequence[Any] | None) -> list[Any]:
        import torch

        def call(symbol: Callable[..., Any]) -> list[Any]:
            def tensor(i: int, t: TensorType) -> Any:
                shape = [symbol() if size is None else size for size in t.shape or ()]
                return torch.empty(shape, dtype=t.torch_dtype)

            flat: list[Any] = []
            for r in self._call(tensor, lambda t: _symbol(t, symbol), "cpu"):
                flat += r if isinstance(r, (list, tuple)) else [r]
            return flat

        return proofs.prove(call, proposed)

    def _written_types(self) -> list[Type | None]:
        """The types of results that are arguments which the function writes into, None for others.
        What changes an argument's shape is not among them."""
        from .native import IN

        f = self.function.function
        others: list[Type | None] = [None] * len(f.returns)
        if "inplace_view" in f.tags or "out" in f.tags or f.name.startswith(("resize", "set_")):
            return others
        given = iter(self.inputs)
        places: dict[str, list[Type]] = {}
        for a, v in zip(f.arguments, self.template, strict=True):
            places[a.name] = [next(given) for x in (v if isinstance(v, tuple) else (v,)) if x is IN]
        for k, r in enumerate(f.returns):
            same = f.same_as(r)
            if same is not None and r.type == same.type == "Tensor" and places[same.name]:
                others[k] = places[same.name][0]
        return others

    def _written_shapes(self) -> dict[int, Shape]:
        types = self._written_types()
        if any(isinstance(t, TensorList) for t in self.function.results):
            return {}
        return {
            i: t.shape
            for i, t in enumerate(types)
            if isinstance(t, TensorType) and t.shape is not None
        }

    def _told_shape(self) -> Shape | None:
        """The result's shape, for functions that are told it."""
        from .native import IN

        base = self.function.name.partition(".")[0].strip("_")
        first = next((t for t in self.inputs if isinstance(t, TensorType)), None)
        if first is None or first.shape is None:
            return None
        values = dict(
            zip((a.name for a in self.function.function.arguments), self.template, strict=True)
        )
        if base in ("narrow", "narrow_copy") and isinstance(values["dim"], int):
            length = values["length"]
            shape = list(first.shape)
            shape[values["dim"]] = None if length is IN else length
            return tuple(shape)
        sizes = values.get(_SHAPE_ARGUMENT.get(base, ""))
        if not isinstance(sizes, tuple):
            return None
        kept = (None,) * (len(sizes) - len(first.shape)) + first.shape
        return tuple(
            None if d is IN else d if d >= 0 else kept[i] if base in _EXPANDS else None
            for i, d in enumerate(sizes)
        )

    def _computed(self) -> Result | None:
        """The types from results on the CPU; None where that fails or is too much work."""
        import torch

        def tensors(hint: int, ties: Ties) -> list[Any]:
            def tensor(i: int, t: TensorType) -> Any:
                shape = [
                    ties.get((i, d), hint) if size is None else size
                    for d, size in enumerate(t.shape or ())
                ]
                return torch.zeros(shape, dtype=t.torch_dtype)

            return self._run(tensor, hint, "cpu")

        shapes = [t.shape or () for t in self.inputs if isinstance(t, TensorType)]
        known = {d for shape in shapes for d in shape}
        one, two = [n for n in range(2, len(known) + 4) if n not in known][:2]
        work = max((_elements(shape, two) for shape in shapes), default=0)
        # What draws would draw from the caller's generator.
        if self.device != "cpu" or work > _COMPUTED_ELEMENTS or self.function.draws(self.template):
            return None
        try:
            tensors(one, {})
            return self._on(tensors, (one, two))
        except Exception:
            return None  # the meta kernel says why

    # Meta tensors
    def _meta(self, hint: int, ties: Ties) -> list[Any]:
        import torch

        def tensor(i: int, t: TensorType) -> Any:
            shape = [
                ties.get((i, d), hint) if size is None else size
                for d, size in enumerate(t.shape or ())
            ]
            return torch.empty(shape, dtype=t.torch_dtype, device="meta")

        return self._run(tensor, hint, "meta")

    def _run(self, tensor: Callable[[int, TensorType], Any], hint: int, device: str) -> list[Any]:
        small = {self.hints[0]: 1, self.hints[1]: 2, 1: 0}.get(hint, 1) if self.small else hint
        try:
            with quiet():
                return self._call(tensor, lambda t: _example(t, small), device)
        except NotImplementedError as e:
            raise _NoKernel(str(e)) from None
        except RuntimeError as e:
            if "data-dependent" in str(e) or "meta tensor" in str(e).lower():
                raise _NoKernel(str(e)) from None
            raise
        except (TypeError, AttributeError) as e:
            # Meta kernels in Python do not foresee everything.
            if device == "meta":
                raise _NoKernel(str(e)) from None
            raise

    def _call(
        self, tensor: Callable[[int, TensorType], Any], number: Callable[[Type], Any], device: str
    ) -> list[Any]:
        """The function's results for the tensors and numbers that are made for its inputs."""
        import torch

        from .native import IN

        values = [
            tensor(i, t) if isinstance(t, TensorType) else number(t)
            for i, t in enumerate(self.inputs)
        ]
        given: Iterator[Any] = iter(values)

        def fill(v: Any) -> Any:
            if isinstance(v, tuple):
                return [fill(x) for x in v]
            return next(given) if v is IN else v

        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        f = self.function.function
        tensors = any(isinstance(t, TensorType) for t in self.inputs)
        for a, v in zip(f.arguments, self.template, strict=True):
            value = fill(v)
            if a.type.startswith("Device") and (value is not None or not tensors):
                value = torch.device(device)
            elif a.name == "pin_memory" and device == "meta":
                value = None
            elif a.type.startswith("Generator"):
                # One of its own: the caller's goes on as if nothing had run.
                value = None if device == "meta" else torch.Generator()
            if a.kwarg_only:
                kwargs[a.name] = value
            else:
                args.append(value)
        with torch.no_grad():
            result = self.function.torch_op(*args, **kwargs)
        return [result] if len(f.returns) == 1 else list(result)

    # Unknown sizes
    def _on(self, run: Callable[[int, Ties], list[Any]], hints: tuple[int, int]) -> Result:
        ties: Ties = {}
        try:
            first = run(hints[0], ties)
        except _NoKernel:
            raise
        except Exception as e:
            if not self.small and any(isinstance(t, (Number, ScalarArg)) for t in self.inputs):
                self.small = True
                try:
                    return self._on(run, hints)
                except BridgeTypeError:
                    self.small = False
            found = self._tied(run, hints[0]) if self.open else None
            if found is None:
                told = self._told()
                if told is not None:
                    return told
                raise self._refusal(e) from None
            ties, first = found
        runs = [first, *self.others]
        certain = True
        numbers = any(isinstance(t, (Number, ScalarArg)) for t in self.inputs)
        if self.open or numbers:
            for hint in (hints[1], 1):
                try:
                    runs.append(run(hint, ties))
                except _NoKernel:
                    raise
                except Exception:
                    if hint == 1:
                        continue  # not every size may be 1
                    more, certain = self._nearby(run, hints[0], ties)
                    runs += more
            runs += self._apart(run, hints[0], ties)
        types, lists = self._joined(runs)
        if not certain:
            # Some size could not be moved, so what depends on it is not known.
            types = tuple(
                t.clone(shape=[None] * t.ndim)
                if isinstance(t, TensorType) and t.ndim is not None
                else t
                for t in types
            )
        return types, lists

    def _apart(
        self, run: Callable[[int, Ties], list[Any]], hint: int, ties: Ties
    ) -> list[list[Any]]:
        """Runs with the open sizes of one input moved, since two that move together may hide what
        depends on both, as the size of a picture less that of a kernel does."""
        inputs = sorted({i for i, _ in self.open})
        runs = []
        for i in inputs if len(inputs) > 1 else ():
            places = [(j, d) for j, d in self.open if j == i and (j, d) not in ties]
            for together in ([places], [[p] for p in places]):
                found = []
                for moved in together:
                    try:
                        found.append(run(hint, {**ties, **dict.fromkeys(moved, 2 * hint)}))
                    except _NoKernel:
                        raise
                    except Exception:
                        continue
                runs += found
                if found:
                    break
        return runs

    def _nearby(
        self, run: Callable[[int, Ties], list[Any]], hint: int, ties: Ties
    ) -> tuple[list[list[Any]], bool]:
        """Runs with each open size moved alone, where they cannot all move; and whether each
        could."""
        runs = []
        certain = True
        for place in self.open:
            if place in ties:
                continue
            try:
                runs.append(run(hint, {**ties, place: 2 * hint}))
            except _NoKernel:
                raise
            except Exception:
                certain = False
        return runs, certain

    def _tied(
        self, run: Callable[[int, Ties], list[Any]], hint: int
    ) -> tuple[Ties, list[Any]] | None:
        """Open sizes that must be those of something else: which, and the run."""
        known: dict[int, None] = {}
        for t in self.inputs:
            if isinstance(t, TensorType):
                known.update((d, None) for d in t.shape or () if d is not None)
        lists = []
        for a, v in zip(self.function.function.arguments, self.template, strict=True):
            numbers = [
                x
                for x in (v if isinstance(v, tuple) else (v,))
                if isinstance(x, int) and not isinstance(x, bool) and 0 < x < 1 << 20
            ]
            known.update(dict.fromkeys(numbers))
            if isinstance(v, tuple) and numbers and len(numbers) == len(v):
                known[sum(numbers)] = None
                if a.name == "normalized_shape":
                    lists.append(numbers)
        known.update(dict.fromkeys((3, 2)))
        if 1 in known:  # last: what fits another size by being 1 fits it by being that size, too
            del known[1]
            known[1] = None
        for sizes in lists:
            ties = self._along(sizes)
            if ties:
                try:
                    return ties, run(hint, ties)
                except _NoKernel:
                    raise
                except Exception:
                    continue
        found: tuple[Ties, list[Any]] | None = None
        attempts = 0
        for n in (1, 2, 3):
            for places in itertools.combinations(self.open, n):
                for chosen in itertools.product(known, repeat=n):
                    attempts += 1
                    if attempts > _ATTEMPTS:
                        return found
                    ties = dict(zip(places, chosen, strict=True))
                    try:
                        result = run(hint, ties)
                    except _NoKernel:
                        raise
                    except Exception:
                        continue
                    # Where more than one way is possible, only what they agree on is known.
                    if found is None:
                        found = ties, result
                    else:
                        self.others.append(result)
            if found is not None:
                return found
        return None

    def _along(self, sizes: list[int]) -> Ties:
        """A list of sizes that are those of the last dimensions of every tensor."""
        ties: Ties = {}
        for i, t in enumerate(self.inputs):
            if not isinstance(t, TensorType) or (t.ndim or 0) < len(sizes):
                continue
            assert t.shape is not None
            for d, size in enumerate(sizes, len(t.shape) - len(sizes)):
                if t.shape[d] is None:
                    ties[i, d] = size
        return ties

    def _told(self) -> Result | None:
        """Functions that are told their result's shape, by a list of sizes or by another tensor:
        used where sizes are so open that nothing can be run."""
        from .native import IN

        if not self.open and not any(isinstance(t, (Number, ScalarArg)) for t in self.inputs):
            return None
        f = self.function.function
        base = self.function.name.partition(".")[0].strip("_")
        first = next((t for t in self.inputs if isinstance(t, TensorType)), None)
        if first is not None and base.startswith("native_group_norm"):
            return self._told_group_norm(first)
        if first is not None and base == "native_batch_norm_backward":
            return self._told_batch_norm(first)
        if first is None or len(f.returns) != 1 or f.returns[0].type != "Tensor":
            return None
        shape = self._told_shape()
        if shape is not None and base not in ("narrow", "narrow_copy"):
            return (TensorType(first.dtype, shape, device=self.device),), ()
        given = iter(self.inputs)
        for a, v in zip(f.arguments, self.template, strict=True):
            if isinstance(v, tuple):
                for x in v:
                    if x is IN:
                        next(given)
            elif v is IN:
                t = next(given)
                like = a.name == _LIKE.get(base)
                # A gradient has the shape of what it is the gradient of.
                like = like or ("backward" in base and a.name in ("self", "input"))
                if like and isinstance(t, TensorType):
                    return (TensorType(first.dtype, t.shape, device=self.device),), ()
        return None

    def _told_group_norm(self, x: TensorType) -> Result | None:
        """Those of group_norm, which is told its sizes beside the tensor that has them: no made-up
        numbers are the product of made-up sizes."""
        from .native import IN

        if x.dtype not in ("float32", "float64"):
            return None  # others keep their statistics in a wider dtype, or not
        names = (a.name for a in self.function.function.arguments)
        values = dict(zip(names, self.template, strict=True))

        def made(*sizes: Any) -> TensorType:
            return TensorType(x.dtype, [None if d is IN else d for d in sizes], device=self.device)

        like = self.inputs[1] if "output_mask" in values else x  # a gradient is like the input
        if not isinstance(like, TensorType):
            return None
        whole = TensorType(x.dtype, like.shape, device=self.device)
        if "output_mask" not in values:
            of_groups = made(values["N"], values["group"])
            return (whole, of_groups, of_groups), ()
        each = (whole, made(values["C"]), made(values["C"]))
        mask = values["output_mask"]
        return tuple(
            t if m else schema_type("Tensor?") for t, m in zip(each, mask, strict=True)
        ), ()

    def _told_batch_norm(self, grad: TensorType) -> Result | None:
        """Those of batch_norm's gradient: like its input, and one number for each channel."""
        x = self.inputs[1]
        if grad.dtype not in ("float32", "float64") or not isinstance(x, TensorType) or not x.shape:
            return None
        each = TensorType(grad.dtype, x.shape[1:2], device=self.device)
        whole = TensorType(grad.dtype, x.shape, device=self.device)
        return tuple(
            t if m else schema_type("Tensor?")
            for t, m in zip((whole, each, each), self.template[-1], strict=True)
        ), ()

    def _joined(self, runs: list[list[Any]]) -> Result:
        """What the runs have in common."""
        types: list[Type] = []
        lists: list[int] = []
        for k, t in enumerate(self.function.results):
            values = [run[k] for run in runs]
            if isinstance(t, TensorList):
                count = len(values[0])
                # Where open sizes are 1, in the third run, there may be fewer.
                if any(len(v) != count for v in values[: 2 + len(self.others)]):
                    raise BridgeTypeError(
                        f"{self.function.name}({self._shown()}): how many tensors it returns "
                        "depends on a size that is not known; give the size in the type"
                    )
                values = [v for v in values if len(v) == count]
                lists.append(count)
                types += [self._type([v[i] for v in values]) for i in range(count)]
            elif isinstance(t, TensorArg):
                types.append(self._type(values))
            else:
                types.append(_plain(t))
        return tuple(types), tuple(lists)

    def _type(self, tensors: list[Any]) -> Type:
        if any(t is None for t in tensors):
            return schema_type("Tensor?")
        dtypes = {str(t.dtype) for t in tensors}
        dtype = tensors[0].dtype if len(dtypes) == 1 else None
        if len({t.dim() for t in tensors}) > 1:
            return TensorType(dtype, None, device=self.device)
        shape = [
            sizes[0] if len(set(sizes)) == 1 else None
            for sizes in zip(*(t.shape for t in tensors), strict=True)
        ]
        return TensorType(dtype, shape, device=self.device)

    def _unknown(self) -> Result:
        """The types where those of the inputs are too open: what can be said without a run."""
        types: list[Type] = []
        for t in self.function.results:
            if isinstance(t, TensorList):
                raise BridgeTypeError(
                    f"{self.function.name}({self._shown()}): how many tensors it returns is not "
                    "known for inputs without a dtype or a shape"
                )
            tensor = isinstance(t, TensorArg)
            types.append(TensorType(None, None, device=None) if tensor else _plain(t))
        return self._narrowed(types), ()

    def _sized(self) -> Result:
        """Where a list of sizes is a variable, not even the number of dimensions is known."""
        base = self.function.name.partition(".")[0].strip("_")
        first = next((t for t in self.inputs if isinstance(t, TensorType)), None)
        dtype = first.dtype if first is not None and base in _SHAPE_ARGUMENT else None
        types, lists = self._unknown()
        return tuple(
            TensorType(dtype, None, device=self.device) if isinstance(t, TensorType) else t
            for t in types
        ), lists

    def _narrowed(self, types: list[Type]) -> tuple[Type, ...]:
        """With the dtype, where inputs of a dtype without a shape give it away."""
        shapes = [t.shape for t in self.inputs if isinstance(t, TensorType)]
        if all(isinstance(t, TensorType) and t.dtype for t in self.inputs if _tensor(t)):
            for ndim in (2, 1, 3, 4):
                inputs = tuple(
                    TensorType(t.dtype, (None,) * ndim, device=t.device)
                    if isinstance(t, TensorType) and t.shape is None
                    else t
                    for t in self.inputs
                )
                if shapes and inputs != self.inputs:
                    try:
                        found, _ = _Runs(self.function, self.template, inputs).types()
                    except BridgeTypeError:
                        continue
                    return tuple(
                        t.clone(shape=None) if isinstance(t, TensorType) else t for t in found
                    )
        return tuple(types)

    # Real tensors
    def _on_real(self) -> Result:
        """On small tensors with the elements 0, 1, and 0, 1, 2, ...; sizes that differ are open."""
        total = sum(
            _elements(t.shape, _REAL_HINTS[1]) for t in self.inputs if isinstance(t, TensorType)
        )
        if total > _REAL_ELEMENTS:
            return self._unknown()
        if self.function.draws(self.template) and not any(
            a.type.startswith("Generator") for a in self.function.function.arguments
        ):
            return self._unknown()
        device = "cpu"
        runs = []
        error: Exception | None = None
        if True:
            for fill in (_zeros, _ones, _count, _spread):

                def run(hint: int, ties: Ties, fill: Callable[..., Any] = fill) -> list[Any]:
                    def tensor(i: int, t: TensorType) -> Any:
                        shape = [
                            ties.get((i, d), hint) if size is None else size
                            for d, size in enumerate(t.shape or ())
                        ]
                        return fill(shape, t.torch_dtype)

                    return self._run(tensor, hint, device)

                try:
                    runs.append(self._on(run, _REAL_HINTS))
                except Exception as e:
                    error = error or e
        if not runs:
            assert error is not None
            raise error if isinstance(error, BridgeTypeError) else self._refusal(error)
        return self._common(runs)

    @staticmethod
    def _common(runs: list[Result]) -> Result:
        types, lists = runs[0]
        joined: list[Type] = []
        for i, t in enumerate(types):
            others = [r[0][i] for r in runs if len(r[0]) == len(types)]
            if isinstance(t, TensorType) and all(isinstance(o, TensorType) for o in others):
                shapes = [o.shape for o in others]  # type: ignore[attr-defined]
                if any(s is None or len(s) != len(shapes[0] or ()) for s in shapes):
                    joined.append(t.clone(shape=None))
                    continue
                joined.append(
                    t.clone(
                        shape=[
                            d[0] if len(set(d)) == 1 else None for d in zip(*shapes, strict=True)
                        ]
                    )
                )
            else:
                joined.append(t)
        return tuple(joined), lists

    def _shown(self) -> str:
        return ", ".join(map(str, self.inputs))

    def _refusal(self, e: Exception) -> BridgeTypeError:
        first = str(e).partition("\n")[0]
        return BridgeTypeError(f"{self.function.name}({self._shown()}): {first}")


# Runs with sizes and numbers that are made up are caught whole (`except Exception`): kernels in
# Python refuse what does not suit them by assertions, divisions, missing attributes and keys. What
# they have refused is tried otherwise, or becomes the error of `_refusal`.
class _NoKernel(Exception):
    """A function cannot run on meta tensors."""


_SHAPE_ARGUMENT = {
    "view": "size",
    "reshape": "shape",
    "unsafe_view": "size",
    "view_copy": "size",
    "reshape_copy": "size",
    "expand": "size",
    "expand_copy": "size",
    "reshape_alias": "size",
    "sum_to_size": "size",
    "new_zeros": "size",
    "new_ones": "size",
    "new_full": "size",
    "new_empty": "size",
}


# Those whose result has the shape of one argument.
_LIKE = {"view_as": "other", "reshape_as": "other", "expand_as": "other"}

# Those that move windows along the last dimensions of a batch, and along how many.
_WINDOWS = {f"{kind}{n}d": n for kind in ("conv", "max_pool", "avg_pool") for n in (1, 2, 3)}

_PADS = ("reflection_pad", "replication_pad", "constant_pad")

# Those for which -1 leaves a size as it is.
_EXPANDS = frozenset(["expand", "expand_copy"])


def _tensor(t: Type) -> bool:
    return isinstance(t, (TensorArg, TensorList))


def _elements(shape: Shape | None, hint: int) -> int:
    n = 1
    for d in shape or ():
        n *= hint if d is None else d
    return n


def _example(t: Type, hint: int) -> Any:
    """A value for an input that is a number."""
    kind = getattr(t, "kind", "")
    if kind == "float":
        return 1.0
    if kind == "bool":
        return hint % 2 == 0
    if kind == "int":
        return hint
    if kind == "complex":
        return complex(hint, 1)
    raise _NoKernel(f"no example of {t}")


def _symbol(t: Type, symbol: Callable[..., Any]) -> Any:
    """A symbol for an input that is a number."""
    if getattr(t, "kind", "") != "int":
        raise proofs.NotProved(f"no symbol for {t}")
    return symbol(None)


def _zeros(shape: list[int], dtype: Any) -> Any:
    import torch

    return torch.zeros(shape, dtype=dtype)


def _ones(shape: list[int], dtype: Any) -> Any:
    import torch

    return torch.ones(shape, dtype=dtype)


def _count(shape: list[int], dtype: Any) -> Any:
    import torch

    n = _elements(tuple(shape), 0)
    return (torch.arange(n) % 100).reshape(shape).to(dtype)


def _spread(shape: list[int], dtype: Any) -> Any:
    """An identity matrix, for what needs one to be regular."""
    import torch

    base = torch.eye(shape[-2], shape[-1]) if len(shape) > 1 else torch.ones(shape[-1:] or [])
    return base.expand(shape).to(dtype).contiguous()
