"""Which sizes of a function's results are known whatever its open sizes are: proved, not tried.

PyTorch's own kernels for fake tensors run with a symbol for each open size. Where what they do
depends on one, both ways are taken, one run after the other; a way that ends in PyTorch's refusal
does not count, because it ends so at run time, too. A size is known where it is the same number in
all other runs. Zero and one are sizes like all others. What cannot be run with symbols proves
nothing, and neither does what has more ways than are worth the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from ..errors import REFUSALS
from .quiet import quiet

# How many runs a proof may take, and how many where no size is known any more; and how many choices
# a run.
_RUNS = 16
_WAYS = 8
_CHOICES = 24

# The sizes of one tensor, of which some may be open; None where there is no tensor.
Sizes = tuple["int | None", ...]


class _Unknown(BaseException):
    """A kernel needs the value of a size. It is no Exception, so that no kernel catches it."""


class NotProved(Exception):
    """There is no proof, or it would take too long."""


def prove(call: Callable[[Callable[[], Any]], Sequence[Any]], every_way: bool = False) -> list[Any]:
    """The results of `call`, as it returns them in the first run, with their sizes as far as they
    are the same in all runs: pairs of a result and its Sizes, which are None for what is no tensor
    or has another number of dimensions in some run.

    `call` gets a function that makes a symbol for a size, and returns tensors, flat. Where no size
    is left that could be known it goes on for a few runs, because the number of dimensions may
    differ in another way: what some ways leave of it is no proof, and is checked at run time
    (`native_c.py`). NotProved where the function cannot be run with symbols; the error of the first
    run where each refuses.
    """
    joined: list[Sizes | None] | None = None
    first: Sequence[Any] = ()
    refused: Exception | None = None
    choices: list[bool] = []
    for n in range(_RUNS):
        taken, results, error = _run(call, choices)
        if error is not None:
            refused = refused or error
        elif joined is None:
            first = results
            joined = [_sizes(r) for r in results]
        else:
            if len(results) != len(joined):
                raise NotProved("the number of results depends on a size")
            joined = [_common(a, _sizes(b)) for a, b in zip(joined, results, strict=True)]
        open_sizes = joined is not None and not every_way and not any(map(_says, joined))
        if open_sizes and (n + 1 >= _WAYS or all(s is None for s in joined or ())):
            return _ended(first, joined, refused)
        if n + sum(taken) >= _RUNS and not open_sizes:
            break  # each of these choices takes another run at least
        # The next way: the last choice that has not been taken both ways.
        while taken and not taken[-1]:
            taken.pop()
        if not taken:
            return _ended(first, joined, refused)
        choices = [*taken[:-1], False]
    raise NotProved("what it does depends on sizes in too many ways")


def _ended(
    first: Sequence[Any], joined: Sequence[Sizes | None] | None, refused: Exception | None
) -> list[Any]:
    if joined is None:
        assert refused is not None
        raise refused
    return list(zip(first, joined, strict=True))


def _says(sizes: Sizes | None) -> bool:
    return sizes is not None and any(d is not None for d in sizes)


def _common(a: Sizes | None, b: Sizes | None) -> Sizes | None:
    """What two runs agree on."""
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple(x if x == y else None for x, y in zip(a, b, strict=True))


def _sizes(result: Any) -> Sizes | None:
    import torch

    if not isinstance(result, torch.Tensor):
        return None
    return tuple(map(_known, result.shape))


def _known(size: Any) -> int | None:
    """The number that a size is, whatever the symbols are."""
    if isinstance(size, int):
        return size
    found = size.node.shape_env.known(size.node.expr)
    return None if found is None or not found.is_number else int(found)


def _run(
    call: Callable[[Callable[[], Any]], Sequence[Any]], choices: Sequence[bool]
) -> tuple[list[bool], Sequence[Any], Exception | None]:
    """The choices that were made, beginning with those given; and the results, or the refusal."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    env = _environment()(choices)
    with (
        torch.no_grad(),
        quiet(),
        FakeTensorMode(shape_env=env, allow_non_fake_inputs=True) as mode,
    ):
        mode.cache_enabled = False
        try:
            results = call(env.size)
        except _Unknown as e:
            raise NotProved(str(e)) from None
        except (RuntimeError, ValueError, IndexError) as e:
            if not _refuses(e):
                raise NotProved(str(e).partition("\n")[0]) from None
            return env.taken, (), e
        except REFUSALS as e:  # kernels in Python do not foresee everything
            raise NotProved(f"{type(e).__name__}: {e}".partition("\n")[0]) from None
    return env.taken, results, None


def _refuses(e: Exception) -> bool:
    """Whether an error is the function's own, and does not come from there being symbols."""
    from torch._subclasses import fake_tensor as f
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    if isinstance(
        e,
        (
            NotImplementedError,
            GuardOnDataDependentSymNode,
            f.DataDependentOutputException,
            f.DynamicOutputShapeException,
            f.UnsupportedOperatorException,
            f.UnsupportedFakeTensorException,
        ),
    ):
        return False
    text = str(e).lower()
    return not any(
        word in text
        for word in (
            *("symbolic", "symint", "symbool", "unbacked", "data-dependent", "data dependent"),
            *("fake", "meta tensor", "internal assert", "not implemented", "decomposition"),
        )
    )


@cache
def _environment() -> Any:
    """The class of what knows the symbols. It is made late: torch's own takes half a second to
    import."""
    import sympy
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    class Choices(ShapeEnv):
        """Symbols without examples. What cannot be told of them is chosen, and then holds."""

        def __init__(self, given: Sequence[bool]) -> None:
            super().__init__(specialize_zero_one=False, duck_shape=False)
            self.given = given
            self.taken: list[bool] = []

        def size(self, low: int | None = 0) -> Any:
            """A symbol: of 0 and more, or of any integer."""
            made = self.create_unbacked_symint()
            if low is not None:
                self.constrain_symbol_range(
                    made.node.expr, compiler_min=low, compiler_max=(1 << 62) - 1
                )
            return made

        def known(self, expr: Any) -> Any:
            return self._maybe_evaluate_static(expr)

        def evaluate_expr(self, orig_expr: Any, *args: Any, **kwargs: Any) -> Any:
            found = self._maybe_evaluate_static(orig_expr)
            if found is not None:
                return found
            if not (orig_expr.is_Boolean or orig_expr.is_Relational):
                raise _Unknown(f"it needs the value of {orig_expr}")
            n = len(self.taken)
            if n >= _CHOICES:
                raise _Unknown("what it does depends on sizes too often")
            choice = self.given[n] if n < len(self.given) else True
            self.taken.append(choice)
            self.guard_or_defer_runtime_assert(
                orig_expr if choice else sympy.Not(orig_expr), "chosen"
            )
            return sympy.true if choice else sympy.false

    return Choices
