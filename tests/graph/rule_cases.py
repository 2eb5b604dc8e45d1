"""Calls of the functions that have rules for their types (`inference/shape_rules.py`), changed at random, and
held to PyTorch: what a rule says of types without open sizes is what comes out, and what it says
of types with open ones is true of it.

    .venv/bin/python tests/graph/rule_cases.py 17 200     # a seed, and how many changes of each call
"""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import operator_database as database
import torch
from torch.utils import _pytree

from pytorch_bridge.errors import BridgeTypeError
from pytorch_bridge.inference.result_types import _device
from pytorch_bridge.inference.shape_rules import _RULES, by_rule
from pytorch_bridge.ops.native import NativeFunction, constant, native
from pytorch_bridge.types import TensorType, Type

SIZES = (0, 1, 1, 2, 3, 4, 5, 6, 8)
DTYPES = (torch.float32, torch.float64, torch.int64, torch.bool, torch.float16)


def _f(*shape: int) -> torch.Tensor:
    return torch.ones(shape)


def _whole(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int64)


# Calls of what the operator database does not call so.
BY_HAND: list[tuple[str, tuple[Any, ...]]] = [
    ("mm", (_f(2, 3), _f(3, 4))),
    ("reshape", (_f(2, 6, 4), [3, -1])),
    ("softmax.int", (_f(2, 3), 1)),
    ("conv2d", (_f(2, 4, 8, 8), _f(6, 2, 3, 3), _f(6), [2], [1], [1], 2)),
    ("linear", (_f(2, 3), _f(4, 3), _f(4))),
    ("linear", (_f(2, 5, 3), _f(4, 3))),
    ("linear", (_f(3), _f(4, 3), _f(4))),
    ("addmv", (_f(2), _f(2, 3), _f(3))),
    ("addmm", (_f(4), _f(2, 3), _f(3, 4))),
    ("baddbmm", (_f(1, 4), _f(2, 2, 3), _f(2, 3, 4))),
    ("matmul", (_f(2, 1, 3, 4), _f(5, 4, 2))),
    ("matmul", (_f(4), _f(5, 4, 2))),
    ("matmul", (_f(5, 3, 4), _f(4))),
    ("lift_fresh_copy", (_f(2, 3),)),
    ("detach_copy", (_f(2, 3),)),
    ("type_as", (_f(2, 3), _whole(4))),
    ("to.dtype_layout", (_f(2, 3),)),
    ("_to_copy", (_f(2, 3),)),
    ("_softmax", (_f(2, 3), 1, False)),
    ("log_softmax.int", (_f(2, 3), 1)),
    ("_log_softmax", (_f(2, 3), 1, False)),
    ("native_dropout", (_f(2, 3), 0.5, True)),
    ("swapdims", (_f(2, 3, 4), 0, 1)),
    ("swapaxes", (_f(2, 3, 4), 0, 1)),
    ("masked_scatter", (_f(2, 1), _f(2, 3).bool(), _f(6))),
    ("unique_consecutive", (_f(2, 3), True, True, -1)),
    ("unique_consecutive", (_f(2, 3), False, False, 1)),
    ("unique_consecutive", (_f(3), False, True, -1)),
    ("unique_consecutive", (_f(2, 3), True, False)),
    ("movedim.int", (_f(2, 3, 4), 0, 2)),
    ("movedim.intlist", (_f(2, 3, 4, 5), [0, 3], [2, 1])),
    ("squeeze_copy.dims", (_f(2, 1, 4, 1), [1, 3])),
    ("select_copy.int", (_f(2, 3, 4), 1, 2)),
    ("slice_copy.Tensor", (_f(2, 8, 4), 1, 2, 7, 2)),
    ("_unsafe_view", (_f(2, 8, 4), [4, -1])),
    ("_reshape_copy", (_f(2, 8, 4), [4, -1])),
    ("unflatten.int", (_f(2, 8, 4), 1, [2, -1])),
    ("flatten.using_ints", (_f(2, 8, 4, 3), 1, 2)),
    ("concat", ([_f(2, 3), _f(4, 3)], 0)),
    ("concatenate", ([_f(2, 3), _f(2, 4)], 1)),
    ("cat", ([_f(2), _f(4), _f(0)], 0)),
    ("split.sizes", (_f(2, 8), [3, 5], 1)),
    ("split_copy.Tensor", (_f(2, 8), 3, 1)),
    ("max_pool1d", (_f(2, 3, 8), [2], [2])),
    ("max_pool2d", (_f(2, 3, 8, 8), [2, 3], [2])),
    ("max_pool3d", (_f(2, 3, 8, 8, 8), [2], [2, 1, 2], [1])),
    ("max_pool2d_with_indices", (_f(2, 3, 8, 8), [2, 3], [2])),
    ("avg_pool2d", (_f(2, 3, 8, 8), [2, 3], [2], [1])),
    ("_adaptive_avg_pool2d", (_f(2, 3, 8, 8), [2, 3])),
    ("replication_pad2d", (_f(2, 3, 8, 8), [1, 2, 3, 4])),
    ("replication_pad3d", (_f(2, 3, 8, 8, 8), [1, 2, 3, 4, 1, 1])),
    ("reflection_pad2d", (_f(2, 3, 8, 8), [1, 2, 3, 4])),
    ("reflection_pad3d", (_f(2, 3, 8, 8, 8), [1, 2, 3, 4, 1, 1])),
    ("pad", (_f(2, 3, 8), [1, 2])),
    ("pad", (_f(2, 3, 8), [1, 2], "reflect")),
    ("upsample_nearest3d", (_f(2, 3, 8, 8, 8), [4, 5, 6])),
    ("upsample_nearest2d.vec", (_f(2, 3, 8, 8), None, [2.0, 1.5])),
    ("upsample_bilinear2d.vec", (_f(2, 3, 8, 8), None, False, [2.3, 1.0])),
    ("upsample_bicubic2d.vec", (_f(2, 3, 8, 8), [4, 5], False, None)),
    ("_upsample_nearest_exact1d", (_f(2, 3, 8), [4])),
    ("_upsample_nearest_exact2d", (_f(2, 3, 8, 8), [4, 5])),
    ("_upsample_nearest_exact3d", (_f(2, 3, 8, 8, 8), [4, 5, 6])),
    ("_upsample_bilinear2d_aa", (_f(2, 3, 8, 8), [4, 5], False)),
    ("_upsample_bicubic2d_aa", (_f(2, 3, 8, 8), [4, 5], False)),
    (
        "scaled_dot_product_attention",
        (_f(2, 3, 4, 5), _f(2, 3, 6, 5), _f(2, 3, 6, 7), _f(1, 3, 4, 6)),
    ),
    ("scaled_dot_product_attention", (_f(1, 4, 5), _f(2, 6, 5), _f(2, 6, 5))),
    ("scaled_dot_product_attention", (_f(1, 0, 5), _f(2, 6, 5), _f(2, 6, 7))),
    ("scaled_dot_product_attention", (_f(4, 3, 5), _f(2, 4, 6, 5), _f(2, 4, 6, 5))),
    ("multilabel_margin_loss", (_f(2, 3), _whole(2, 3), 0)),
    ("multilabel_margin_loss", (_f(3), _whole(3), 0)),
    ("multilabel_margin_loss", (_f(1), _whole(), 0)),
    ("multilabel_margin_loss", (_f(), _whole(), 0)),
    ("multilabel_margin_loss_forward", (_f(2, 3), _whole(2, 3), 0)),
    ("multilabel_margin_loss_forward", (_f(1), _whole(), 0)),
    ("multi_margin_loss", (_f(2, 3), _whole(2), 1, 1, None, 0)),
    ("multi_margin_loss", (_f(1, 3), _whole(), 1, 1, None, 0)),
    ("multi_margin_loss", (_f(3), _whole(1), 1, 1, None, 0)),
    ("multi_margin_loss", (_f(), _whole(), 1, 1, None, 0)),
    ("linalg_solve", (torch.eye(3).expand(2, 3, 3), _f(3, 4))),
    ("linalg_solve", (torch.eye(3).expand(2, 3, 3), _f(2, 3))),
    ("linalg_solve_ex", (torch.eye(3).expand(2, 3, 3), _f(3, 4))),
    ("_linalg_solve_ex", (torch.eye(3).expand(2, 3, 3), _f(3, 4))),
]


def every_call() -> Iterator[tuple[NativeFunction, list[Any]]]:
    """The calls that are changed: three of each function that the operator database has."""
    seen: dict[str, int] = {}
    for part in range(database.PARTS):
        for _, function, values in database.calls(part, samples=6):
            if function.name in _RULES and seen.get(function.name, 0) < 3:
                if not database._dense(values):
                    continue
                seen[function.name] = seen.get(function.name, 0) + 1
                yield function, values
    for name, args in BY_HAND:
        function = native(name)
        yield function, function.bind(args, {})


def changed(rng: random.Random, values: list[Any]) -> list[Any]:
    """Arguments with one or two of them changed: a size, a dtype, a number."""
    leaves, spec = _pytree.tree_flatten(values)
    places = [i for i, v in enumerate(leaves) if isinstance(v, (torch.Tensor, bool, int))]
    for i in rng.sample(places, min(len(places), rng.choice((0, 1, 1, 2)))):
        v = leaves[i]
        if isinstance(v, bool):
            leaves[i] = not v
        elif isinstance(v, int):
            leaves[i] = v + rng.choice((-2, -1, 1, 1, 2))
        elif rng.random() < 0.1:
            leaves[i] = v.to(rng.choice(DTYPES))
        else:
            shape = list(v.shape)
            how = rng.random()
            if shape and how < 0.75:
                shape[rng.randrange(len(shape))] = rng.choice(SIZES)
            elif shape and how < 0.85:
                shape.pop(rng.randrange(len(shape)))
            else:
                shape.insert(rng.randint(0, len(shape)), rng.choice(SIZES))
            leaves[i] = torch.zeros(shape, dtype=v.dtype)
    return _pytree.tree_unflatten(leaves, spec)


def check(rng: random.Random, function: NativeFunction, values: list[Any]) -> bool:
    """Whether a rule had something to say; AssertionError where it is wrong."""

    def variable(t: torch.Tensor) -> Any:
        return constant(t).type.make_variable()

    try:
        bound = _pytree.tree_map_only(torch.Tensor, variable, values)
        template, inputs = function.split(bound)
    except BridgeTypeError:
        return False
    types = tuple(v.type for v in inputs)
    said = _said(function, template, types)
    opened = tuple(
        t.clone(shape=[None if rng.random() < 0.5 else d for d in t.shape])
        if isinstance(t, TensorType)
        else t
        for t in types
    )
    wide = _said(function, template, opened)
    if said is None and wide is None:
        return False
    shown = f"{function.name}{template} of {', '.join(map(str, types))}"
    backward = "backward" in function.name
    found: list[Any] = []
    refusal: Exception | None = None
    try:
        keywords = {
            a.name: v
            for a, v in zip(function.function.arguments, values, strict=True)
            if a.kwarg_only
        }
        args = values[: len(values) - len(keywords)]
        if backward or function.name.startswith("native_"):
            # Such kernels end the process where sizes do not fit each other.
            args, keywords = _pytree.tree_map_only(torch.Tensor, _meta, (args, keywords))
        found = database.flat(function.torch_op(*args, **keywords))
    except (RuntimeError, IndexError, ValueError, NotImplementedError) as e:
        refusal = e
    if said is not None:
        if refusal is not None:
            # Of elements a type says nothing, nor of what this device lacks.
            known = (
                "out of range",
                "out of DATA bounds",
                "out of bounds",
                "Number of elements of source < number of ones in mask",
                "not implemented for 'Half'",
            )
            assert backward or any(text in str(refusal) for text in known), (
                f"{shown}: typed {said[0]}, refused: {refusal}"
            )
            return True
        _hold(shown, said[0], found, exact=function.name not in LOOSE)
    if wide is not None and refusal is None:
        _hold(f"{shown}, opened {', '.join(map(str, opened))}", wide[0], found)
    return True


def _meta(t: torch.Tensor) -> torch.Tensor:
    return t.to("meta")


# Whose results have sizes that their rules leave open.
LOOSE = ("native_batch_norm", "squeeze", "unique_consecutive")


def _said(function: NativeFunction, template: Any, types: tuple[Type, ...]) -> Any:
    try:
        return by_rule(function, template, types, _device(function, template, types))
    except BridgeTypeError:
        return None  # test_typing.py looks into what rules refuse


def _hold(shown: str, types: Any, values: list[Any], exact: bool = False) -> None:
    assert len(types) == len(values), f"{shown}: {len(types)} results, {len(values)} came"
    for t, v in zip(types, values, strict=True):
        if v is None:
            assert not isinstance(t, TensorType), f"{shown}: {t}, came None"
            continue
        facts = f"{shown}: {t}, came {v.dtype} {tuple(v.shape)}"
        assert isinstance(t, TensorType), facts
        assert t.clone(device=v.device).is_valid_value(v), facts
        assert not exact or (t.dtype and t.shape is not None and None not in t.shape), facts


def run(
    seed: int, changes: int, calls: Iterable[tuple[NativeFunction, list[Any]]] | None = None
) -> tuple[dict[str, int], list[str]]:
    """How often each function's rule said something; and what was wrong."""
    rng = random.Random(seed)
    said = dict.fromkeys(_RULES, 0)
    wrong = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for function, values in calls or every_call():
            for _ in range(changes):
                try:
                    # What makes no sense as a gradient's arguments, no kernel looks for.
                    given = values if "backward" in function.name else changed(rng, values)
                    said[function.name] += check(rng, function, given)
                except Exception as e:
                    wrong.append(
                        str(e)
                        if isinstance(e, AssertionError)
                        else f"{function.name} {type(e)} {e}"
                    )
    return said, wrong


if __name__ == "__main__":
    counts, faults = run(int(sys.argv[1]), int(sys.argv[2]))
    print(*dict.fromkeys(faults), sep="\n")
    print("hardly any:", *(n for n, c in counts.items() if c < 10))
    print(sum(counts.values()), "answers,", len(faults), "wrong")
    sys.exit(1 if faults else 0)
