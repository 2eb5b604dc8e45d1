"""What types the results of a native function have, given the types of its inputs.

A dtype and a number of dimensions are what the function says when it runs on made-up inputs
(`samples.py`). A size is known where it is proved: by a rule of the function (`shapes.py`); by
PyTorch's kernels that run with a symbol for each open size (`sizes.py`); or because all sizes of
the inputs are known, and the kernel for tensors without data has told it. Otherwise it is open.
Answers are kept, so asking again costs a look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import sameness
from ..errors import REFUSALS, BridgeTypeError
from ..schema.corrections import IN, corrected
from ..types import SchemaType, TensorType, Type, schema_type
from ..types.containers import TensorList, is_number_list
from ..types.enums import device_parts
from ..types.numbers import ScalarArg
from ..types.tensor import TensorArg
from .quiet import default_dtype, default_modes
from .samples import NoKernel, RefusedSamples, Samples
from .shape_rules import KEEPS_SHAPE, Result, broadcast, by_rule
from .symbolic_sizes import NotProved, prove

# Functions that are elementwise and broadcast, although no tag says so.
_POINTWISE = frozenset(
    """floor_divide divide.Tensor multiply.Tensor subtract.Tensor rsub.Tensor arctan2 isclose polar
    greater.Tensor greater_equal.Tensor less.Tensor less_equal.Tensor not_equal.Tensor
    where.Scalar where.ScalarOther where.ScalarSelf special_gammainc special_gammaincc
    special_xlogy special_xlogy.other_scalar special_xlogy.self_scalar
    """.split()  # noqa: SIM905
)

# What makes one number of all elements, however many dimensions there are.
_ONE_NUMBER = frozenset(["sum", "mean", "prod", "max", "min", "all", "any", "median", "nanmedian"])

_known: dict[Any, Result] = {}
_pointwise_dtypes: dict[Any, tuple[str, ...]] = {}


def output_types(function: Any, template: tuple[Any, ...], inputs: tuple[Type, ...]) -> Result:
    """The types of the results, lists flattened, and how many tensors each list has.

    BridgeTypeError, which has PyTorch's own message, where the function refuses such inputs.
    """
    key = (function.name, sameness.key(template), inputs, default_dtype())
    found = _known.get(key)
    if found is None:
        with default_modes():
            found = _infer(function, template, inputs)
        if len(_known) < 100_000:
            _known[key] = found
    return found


def certain(function: Any, template: tuple[Any, ...], inputs: tuple[Type, ...]) -> bool:
    """Whether the types of the results follow from what is written here, and not from kernels for
    tensors without data: these differ from those that run, where there are no elements or odd
    sizes. Such results are looked at when they have come (`native_c.py`)."""
    if function.returns_written or {"inplace", "pointwise"} & set(function.function.tags):
        return True
    if function.name in _POINTWISE or function.name in KEEPS_SHAPE:
        return True
    if any(isinstance(t, TensorArg) and not isinstance(t, TensorType) for t in inputs):
        return False
    try:
        return by_rule(function, template, inputs, "cpu") is not None
    except BridgeTypeError:
        return False


def _infer(function: Any, template: tuple[Any, ...], inputs: tuple[Type, ...]) -> Result:
    if not any(isinstance(t, (TensorArg, TensorList)) for t in function.results):
        return tuple(_plain(t) for t in function.results), ()
    if function.returns_written:
        return _written(function, template, inputs)
    if any(getattr(t, "kind", "") == "scalar" for t in inputs):
        return _of_every_kind(function, template, inputs)
    if function.elementwise or function.name in _POINTWISE:
        fast = _pointwise(function, template, inputs)
        if fast is not None:
            return fast, ()
    found = by_rule(function, template, inputs, _device(function, template, inputs))
    return found or _Asked(function, template, inputs).types()


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
    return _common(found)


def _common(found: Sequence[Result]) -> Result:
    """What several answers agree on."""
    types, lists = found[0]
    if any(len(t) != len(types) for t, _ in found):
        raise BridgeTypeError("how many tensors it returns depends on a number that is not known")
    return tuple(_wider(of) for of in zip(*(t for t, _ in found), strict=True)), lists


def _wider(types: Sequence[Type]) -> Type:
    """The type that has the values of all."""
    first = types[0]
    if not isinstance(first, TensorType) or not all(isinstance(t, TensorType) for t in types):
        return first
    dtypes = {t.dtype for t in types}  # type: ignore[attr-defined]
    shapes = [t.shape for t in types]  # type: ignore[attr-defined]
    shape = None
    if first.shape is not None and all(s is not None and len(s) == first.ndim for s in shapes):
        shape = [d[0] if len(set(d)) == 1 else None for d in zip(*shapes, strict=True)]
    return first.clone(dtype=first.dtype if len(dtypes) == 1 else None, shape=shape)


class _Complex(ScalarArg):
    """A Scalar that is complex."""

    kind = "complex"


def _plain(t: SchemaType) -> Type:
    """The type of a result that is no tensor."""
    return schema_type(t.schema.replace("SymInt", "int").replace("SymBool", "bool"))


def _written(function: Any, template: tuple[Any, ...], inputs: tuple[Type, ...]) -> Result:
    """A function without results: its written arguments are."""
    places = _places(function, template, inputs)
    written = [(a, places[a.name]) for a in function.function.arguments if a.written]
    types = tuple(t for _, mine in written for t in mine)
    return types, tuple(len(mine) for a, mine in written if a.type.endswith("[]"))


def _places(
    function: Any, template: tuple[Any, ...], inputs: Sequence[Type]
) -> dict[str, list[Type]]:
    """The types of the inputs that each argument has."""
    given = iter(inputs)
    return {
        a.name: [next(given) for x in (v if isinstance(v, tuple) else (v,)) if x is IN]
        for a, v in zip(function.function.arguments, template, strict=True)
    }


def _pointwise(
    function: Any, template: tuple[Any, ...], inputs: tuple[Type, ...]
) -> tuple[Type, ...] | None:
    """Of an elementwise function: the shape is the broadcast one, that of what is written into
    where it is in place, and dtypes do not depend on sizes. None leaves it to PyTorch."""
    tensors = [t for t in inputs if isinstance(t, TensorType)]
    if not tensors or any(t.dtype is None or t.shape is None for t in tensors):
        return None
    if any(isinstance(t, TensorArg) and not isinstance(t, TensorType) for t in inputs):
        return None
    shape = broadcast([t.shape for t in tensors if t.shape is not None])
    if shape is None:
        return None  # PyTorch says why
    if "inplace" in function.function.tags:
        first = tensors[0].shape or ()
        if len(shape) != len(first) or any(
            None not in (a, b) and a != b for a, b in zip(first, shape, strict=True)
        ):
            return None
        shape = first
    reduced = tuple(
        TensorType(t.dtype, () if t.shape == () else (1,), device="cpu")
        if isinstance(t, TensorType)
        else t
        for t in inputs
    )
    key = (function.name, sameness.key(template), reduced, default_dtype())
    dtypes = _pointwise_dtypes.get(key)
    if dtypes is None:
        try:
            types = _Asked(function, template, reduced).of_one_element()
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


class _Asked:
    """The types of a call's results, as PyTorch tells them."""

    def __init__(self, function: Any, template: tuple[Any, ...], inputs: tuple[Type, ...]) -> None:
        self.function, self.template, self.inputs = function, template, inputs
        self.device = _device(function, template, inputs)
        self.samples = Samples(function, template, inputs)

    def types(self) -> Result:
        if any(
            not isinstance(t, TensorType) or t.dtype is None or t.shape is None
            for t in self.inputs
            if isinstance(t, (TensorArg, TensorList))
        ):
            return self._narrowed(), ()
        if any(map(is_number_list, self.inputs)):
            return self._unknown(), ()  # not even the number of dimensions is known
        types, lists = self._found()
        return self._corrected(types), lists

    def of_one_element(self) -> tuple[Type, ...]:
        """The types for inputs of one element each. They are computed, because meta kernels in
        Python import torch._dynamo, which takes a second, when the first of them runs."""
        try:
            return self._joined([self.samples.computed(1, {})])[0]
        except (NoKernel, *REFUSALS):
            return self.types()[0]

    def _found(self) -> Result:
        # Of what changes its argument's shape, symbols know as little as the argument did.
        changes = "inplace_view" in self.function.function.tags
        if self.samples.fixed:
            try:
                return self._joined([self.samples.on_meta(0, {})], exact=True)
            except NoKernel:
                pass
            except REFUSALS as e:
                raise self._refusal(e) from None
        elif changes:
            function = self.function.functional
            if function is not None:
                return output_types(function, self.template, self.inputs)
        elif self.function.name not in KEEPS_SHAPE:
            try:
                return self._proved()
            except NotProved:
                pass
            except REFUSALS as e:
                raise self._refusal(e) from None
        try:
            types, lists = self._joined(self.samples.runs())
        except NoKernel:
            return self._unknown(), ()
        except RefusedSamples as e:
            raise self._refusal(e.__cause__ or e) from None
        if changes:
            return tuple(_shapeless(t) for t in types), lists
        return types, lists

    def _proved(self) -> Result:
        import torch

        counts: list[list[int]] = []
        dtypes: list[list[Any]] = []

        def call(symbol: Callable[..., Any]) -> list[Any]:
            def tensor(i: int, t: TensorType) -> Any:
                shape = [symbol() if size is None else size for size in t.shape or ()]
                return torch.empty(shape, dtype=t.torch_dtype)

            def number(t: Type) -> Any:
                if getattr(t, "kind", "") != "int":
                    raise NotProved(f"no symbol for {t}")
                return symbol(None)

            results = self.samples.call(tensor, number)
            lists = [len(r) for r in results if isinstance(r, (list, tuple))]
            flat = [x for r in results for x in (r if isinstance(r, (list, tuple)) else [r])]
            counts.append(lists)
            dtypes.append([getattr(x, "dtype", None) for x in flat])
            return flat

        # Where sizes are 1, a sum of truth values may become their product, which is one.
        every_way = any(isinstance(t, TensorList) for t in self.function.results) or any(
            getattr(t, "dtype", None) == "bool" for t in self.inputs
        )
        found = iter(prove(call, every_way=every_way))
        if any(c != counts[0] for c in counts):
            raise NotProved("the number of results depends on a size")
        kinds = iter(of[0] if len(set(of)) == 1 else None for of in zip(*dtypes, strict=True))
        types: list[Type] = []
        rest = iter(counts[0])
        for t in self.function.results:
            for _ in range(next(rest) if isinstance(t, TensorList) else 1):
                (result, sizes), dtype = next(found), next(kinds)
                if not isinstance(t, (TensorArg, TensorList)):
                    types.append(_plain(t))
                elif result is None:
                    types.append(schema_type("Tensor?"))
                else:
                    types.append(TensorType(dtype, sizes, device=self.device))
        return tuple(types), tuple(counts[0])

    def _joined(self, runs: list[list[Any]], exact: bool = False) -> Result:
        """What the runs have in common; sizes are open, unless the runs are `exact`."""
        types: list[Type] = []
        lists: list[int] = []
        for k, t in enumerate(self.function.results):
            values = [run[k] for run in runs]
            if isinstance(t, TensorList):
                count = len(values[0])
                if any(len(v) != count for v in values):
                    raise BridgeTypeError(
                        f"{self.function.name}({self._shown()}): how many tensors it returns "
                        "depends on a size that is not known; give the size in the type"
                    )
                lists.append(count)
                types += [self._type([v[i] for v in values], exact) for i in range(count)]
            elif isinstance(t, TensorArg):
                types.append(self._type(values, exact))
            else:
                types.append(_plain(t))
        return tuple(types), tuple(lists)

    def _type(self, tensors: list[Any], exact: bool) -> Type:
        if any(t is None for t in tensors):
            return schema_type("Tensor?")
        dtypes = {t.dtype for t in tensors}
        dtype = tensors[0].dtype if len(dtypes) == 1 else None
        if len({t.dim() for t in tensors}) > 1:
            return TensorType(dtype, None, device=self.device)
        shape = tensors[0].shape if exact else [None] * tensors[0].dim()
        return TensorType(dtype, shape, device=self.device)

    def _corrected(self, types: Sequence[Type]) -> tuple[Type, ...]:
        """With what is known of the function: whose shape a result has; and without what its meta
        kernel does not tell as it is."""
        found = list(types)
        for i, t in self._argument_types().items():
            if isinstance(t, TensorType) and isinstance(found[i], TensorType):
                found[i] = found[i].clone(shape=t.shape)
        loose = corrected("loose", self.function.name) or ()
        for i in corrected("shapeless_in_batches", self.function.name) or ():
            if any((getattr(t, "ndim", 0) or 0) > 2 for t in self.inputs):
                found[i] = _shapeless(found[i])
        return tuple(
            t.clone(shape=[None] * t.ndim)
            if i in loose and isinstance(t, TensorType) and t.ndim is not None
            else t
            for i, t in enumerate(found)
        )

    def _argument_types(self) -> dict[int, Type]:
        """The arguments whose shapes results have: those that are written into (but for functions
        that change an argument's shape), and the first tensor of what keeps its shape."""
        f = self.function.function
        if any(isinstance(t, TensorList) for t in self.function.results):
            return {}
        if self.function.name in KEEPS_SHAPE:
            return {0: next(t for t in self.inputs if isinstance(t, TensorType))}
        if "inplace_view" in f.tags or "out" in f.tags or f.name.startswith(("resize", "set_")):
            return {}
        places = _places(self.function, self.template, self.inputs)
        found = {}
        for k, r in enumerate(f.returns):
            same = f.same_as(r)
            if same is not None and r.type == same.type == "Tensor" and places[same.name]:
                found[k] = places[same.name][0]
        return found

    def _unknown(self) -> tuple[Type, ...]:
        """What can be said without a run."""
        types: list[Type] = []
        for t in self.function.results:
            if isinstance(t, TensorList):
                raise BridgeTypeError(
                    f"{self.function.name}({self._shown()}): how many tensors it returns is not "
                    "known for inputs without a dtype or a shape"
                )
            tensor = isinstance(t, TensorArg)
            types.append(TensorType(None, None, device=None) if tensor else _plain(t))
        return tuple(types)

    def _narrowed(self) -> tuple[Type, ...]:
        """The types where those of the inputs are too open. The dtype is known where inputs of any
        number of dimensions give the same."""
        found: list[Result] = []
        if all(isinstance(t, TensorType) and t.dtype for t in self.inputs if _tensor(t)):
            for ndim in range(5):
                inputs = tuple(
                    TensorType(t.dtype, (None,) * ndim, device=t.device)
                    if isinstance(t, TensorType) and t.shape is None
                    else t
                    for t in self.inputs
                )
                try:
                    found.append(output_types(self.function, self.template, inputs))
                except BridgeTypeError:
                    continue
        if not found or any(isinstance(t, TensorList) for t in self.function.results):
            return self._unknown()
        types = _common(found)[0]
        if self._makes_one_number():
            return tuple(t.clone(shape=()) for t in types)
        return tuple(_shapeless(t) for t in types)

    def _makes_one_number(self) -> bool:
        """Whether the result has no dimensions: of a reduction of all, or of a loss that is one."""
        f = self.function.function
        values = {a.name: v for a, v in zip(f.arguments, self.template, strict=True)}
        reduced = values.get("reduction") in (1, 2) and "backward" not in f.name
        return self.function.name in _ONE_NUMBER or (reduced and len(f.returns) == 1)

    def _shown(self) -> str:
        return ", ".join(map(str, self.inputs))

    def _refusal(self, e: BaseException) -> BridgeTypeError:
        first = str(e).partition("\n")[0]
        return BridgeTypeError(f"{self.function.name}({self._shown()}): {first}")


def _tensor(t: Type) -> bool:
    return isinstance(t, (TensorArg, TensorList))


def _shapeless(t: Type) -> Type:
    return t.clone(shape=None) if isinstance(t, TensorType) else t
