"""Running a native function on inputs that are made up from their types.

A run says of which dtype its results are, how many dimensions they have and how many there are,
which sizes do not decide; and it refuses what the function refuses. Of sizes it says nothing that
holds elsewhere, unless all sizes of the inputs are known.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..errors import REFUSALS
from ..schema.corrections import IN
from ..types import TensorType, Type
from .quiet import quiet

Sizes = Mapping[tuple[int, int], int]  # (input, dimension) to the size of an open one

ATTENTION = ("scaled_dot_product_attention", "_scaled_dot_product_attention_math")
# Sizes to try, by the number of dimensions: they divide by what sizes are usually divided by, and
# tensors of them have fewer than 2**63 elements.
_META = {3: (5040, 55440), 5: (720, 1680), 6: (360, 840), 64: (60, 120)}
_REAL = (4, 6)
_ATTEMPTS = 200  # ways to give open sizes the value of known ones
_ELEMENTS = 1 << 24  # beyond that, nothing is computed only to see its type


class NoKernel(Exception):
    """A function cannot run so: without data, or on tensors as large."""


class RefusedSamples(Exception):
    """A function takes no inputs that were tried; its cause is PyTorch's own error."""


class Samples:
    """The inputs of one call: their types, which of their sizes are open, and which are numbers."""

    def __init__(self, function: Any, template: tuple[Any, ...], inputs: Sequence[Type]) -> None:
        self.function, self.template, self.inputs = function, template, inputs
        self.open = [
            (i, d)
            for i, t in enumerate(inputs)
            if isinstance(t, TensorType)
            for d, size in enumerate(t.shape or ())
            if size is None
        ]
        self.numbers = [t for t in inputs if not isinstance(t, TensorType)]
        self.fixed = not self.open and not self.numbers

    # Calling
    def call(
        self,
        tensor: Callable[[int, TensorType], Any],
        number: Callable[[Type], Any],
        device: str = "cpu",
    ) -> list[Any]:
        """The function's results for the tensors and numbers that are made for its inputs."""
        import torch

        given: Iterator[Any] = iter(
            [
                tensor(i, t) if isinstance(t, TensorType) else number(t)
                for i, t in enumerate(self.inputs)
            ]
        )

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

    def shape(self, i: int, t: TensorType, hint: int, sizes: Sizes) -> list[int]:
        return [
            sizes.get((i, d), hint) if size is None else size
            for d, size in enumerate(t.shape or ())
        ]

    def on_meta(self, hint: int, sizes: Sizes, number: int = 1) -> list[Any]:
        """The results on tensors without data."""
        import torch

        def tensor(i: int, t: TensorType) -> Any:
            return torch.empty(self.shape(i, t, hint, sizes), dtype=t.torch_dtype, device="meta")

        if "dynamic_output_shape" in self.function.function.tags:
            raise NoKernel("its results depend on elements")
        try:
            with quiet():
                return self.call(tensor, lambda t: example(t, number), "meta")
        except (NotImplementedError, TypeError, AttributeError) as e:
            raise NoKernel(str(e)) from None  # kernels in Python do not foresee everything
        except RuntimeError as e:
            if "data-dependent" in str(e) or "meta tensor" in str(e).lower():
                raise NoKernel(str(e)) from None
            raise

    def computed(self, hint: int, sizes: Sizes, number: int = 1) -> list[Any]:
        """The results on small tensors, of elements that one of the ways to fill them makes fit."""
        shapes = [
            self.shape(i, t, hint, sizes)
            for i, t in enumerate(self.inputs)
            if isinstance(t, TensorType)
        ]
        arguments = self.function.function.arguments
        if sum(map(_elements, shapes)) > _ELEMENTS:
            raise NoKernel("its inputs are large")
        if self.function.draws(self.template) and not any(
            a.type.startswith("Generator") for a in arguments
        ):
            raise NoKernel("it would draw from the generator of the program")
        error: Exception | None = None
        for fill in (_zeros, _ones, _count, _spread):

            def tensor(i: int, t: TensorType, fill: Callable[..., Any] = fill) -> Any:
                return fill(self.shape(i, t, hint, sizes), t.torch_dtype)

            try:
                with quiet():
                    return self.call(tensor, lambda t: example(t, number))
            except REFUSALS as e:
                error = error or e
        assert error is not None
        raise error

    # Finding sizes
    def runs(self) -> list[list[Any]]:
        """The results of some runs, at least one: at sizes that are not alike, as far as the
        function takes them. RefusedSamples where it takes none; NoKernel where it cannot be run."""
        ndim = max((t.ndim or 0 for t in self.inputs if isinstance(t, TensorType)), default=0)
        hints = next(sizes for most, sizes in _META.items() if ndim <= most)
        try:
            return self._runs(self.on_meta, hints)
        except NoKernel:
            return self._runs(self.computed, _REAL)

    def _runs(self, run: Callable[..., list[Any]], hints: tuple[int, int]) -> list[list[Any]]:
        numbers = (1, hints[0], 0, 2) if self.numbers else (1,)
        refusal: Exception | None = None
        # An index is small, a size is not.
        for number in numbers:
            try:
                found = [run(hints[0], {}, number)]
            except REFUSALS as e:
                refusal = refusal or e
                continue
            for hint in (hints[1], 1) if self.open else ():
                with contextlib.suppress(*REFUSALS):  # not every size fits
                    found.append(run(hint, {}, number))
            return found
        for number in numbers if self.open else ():
            for sizes in self.tied():
                with contextlib.suppress(*REFUSALS):
                    return [run(hints[0], sizes, number)]
        raise RefusedSamples from refusal

    def tied(self) -> Iterator[dict[tuple[int, int], int]]:
        """Ways to give open sizes the values of sizes and numbers that are known."""
        if aligned := self._aligned():
            yield aligned
        known: dict[int, None] = {}
        for t in self.inputs:
            if isinstance(t, TensorType):
                known.update((d, None) for d in t.shape or () if d is not None)
        for v in self.template:
            numbers = [
                x
                for x in (v if isinstance(v, tuple) else (v,))
                if isinstance(x, int) and not isinstance(x, bool) and 0 < x < 1 << 20
            ]
            known.update(dict.fromkeys(numbers))
            if isinstance(v, tuple) and numbers and len(numbers) == len(v):
                known.update(dict.fromkeys((sum(numbers), len(numbers))))
                yield self._along(numbers)
        # 1 last: what fits another size by being 1 fits it by being that size, too.
        known.pop(1, None)
        known.update(dict.fromkeys((3, 2, 1)))
        ways = (
            dict(zip(places, chosen, strict=True))
            for n in (1, 2, 3)
            for places in itertools.combinations(self.open, n)
            for chosen in itertools.product(known, repeat=n)
        )
        yield from itertools.islice(ways, _ATTEMPTS)

    def _aligned(self) -> dict[tuple[int, int], int]:
        """The sizes that other tensors have in the place of an open one, counted from the last
        dimension as what broadcasts does, or for einsum those of the same letter."""
        places: dict[Any, list[tuple[int, int, int | None]]] = {}
        terms = self._letters()
        for i, t in enumerate(self.inputs):
            if not isinstance(t, TensorType) or t.shape is None:
                continue
            for d, size in enumerate(t.shape):
                key = terms[i][d] if terms is not None else d - len(t.shape)
                places.setdefault(key, []).append((i, d, size))
        found = {}
        for same in places.values():
            known = {size for _, _, size in same if size is not None and size != 1}
            if len(known) == 1:
                (size,) = known
                found.update({(i, d): size for i, d, old in same if old is None})
        return found

    def _letters(self) -> list[str] | None:
        """The letters of the dimensions of einsum's tensors, and of attention's."""
        if self.function.name in ATTENTION:
            return self._letters_of_attention()
        if self.function.name != "einsum" or not isinstance(self.template[0], str):
            return None
        terms = self.template[0].replace(" ", "").partition("->")[0].split(",")
        fits = len(terms) == len(self.inputs) and all(
            isinstance(t, TensorType) and t.shape is not None and len(t.shape) == len(term)
            for t, term in zip(self.inputs, terms, strict=True)
        )
        return terms if fits else None

    def _letters_of_attention(self) -> list[str] | None:
        """Heads have one letter only where the heads of keys are not repeated."""
        grouped = self.template[-1] is not False
        heads = "hkkh" if grouped else "hhhh"
        terms = []
        for t, h, last in zip(self.inputs, heads, ("le", "se", "sv", "ls"), strict=False):
            if not isinstance(t, TensorType) or t.ndim is None or not 2 <= t.ndim <= 8:
                return None
            terms.append(("ABCDF" + h + last)[-t.ndim :])
        return terms if len(terms) == len(self.inputs) else None

    def _along(self, sizes: list[int]) -> dict[tuple[int, int], int]:
        """A list of sizes that are those of the last dimensions of every tensor."""
        return {
            (i, d): sizes[d - t.ndim]
            for i, t in enumerate(self.inputs)
            if isinstance(t, TensorType) and t.ndim is not None and t.ndim >= len(sizes)
            for d in range(t.ndim - len(sizes), t.ndim)
            if (i, d) in self.open
        }


def example(t: Type, number: int) -> Any:
    """A value for an input that is a number."""
    kind = getattr(t, "kind", "")
    if kind == "float":
        return 1.0
    if kind == "bool":
        return number % 2 == 0
    if kind == "int":
        return number
    if kind == "complex":
        return complex(number, 1)
    raise NoKernel(f"no example of {t}")


def _elements(shape: Sequence[int]) -> int:
    n = 1
    for d in shape:
        n *= d
    return n


def _zeros(shape: list[int], dtype: Any) -> Any:
    import torch

    return torch.zeros(shape, dtype=dtype)


def _ones(shape: list[int], dtype: Any) -> Any:
    import torch

    return torch.ones(shape, dtype=dtype)


def _count(shape: list[int], dtype: Any) -> Any:
    import torch

    return (torch.arange(_elements(shape)) % 100).reshape(shape).to(dtype)


def _spread(shape: list[int], dtype: Any) -> Any:
    """An identity matrix, for what needs one to be regular."""
    import torch

    base = torch.eye(shape[-2], shape[-1]) if len(shape) > 1 else torch.ones(shape[-1:] or [])
    return base.expand(shape).to(dtype).contiguous()
