"""Programs of one call each, of PyTorch's core ATen functions with the arguments of its operator
database: what from_exported makes of them computes the same.

A sixteenth of the database is looked at, or all of it with CONFORMANCE=full. What it does not call is
called by hand.
"""

from __future__ import annotations

import copy

import operator_database as database
import pytest
import torch
from test_native_sweep import UNDEFINED
from torch import nn
from torch.utils import _pytree

import pytorch_bridge as pb
from pytorch_bridge.ops.native import native

AT_ONCE = 40  # calls in a program
FULL = database.EVERY == 1

X, PICTURE, VOLUME = torch.randn(4, 6), torch.randn(2, 3, 6, 6), torch.randn(1, 2, 4, 4, 4)
N = torch.arange(24).view(4, 6)
ONES = torch.ones(3)
STATISTICS = (torch.randn(3), torch.rand(3) + 0.5)

# Calls of those that the database has no sample of.
BY_HAND = [
    ("_adaptive_avg_pool2d", (PICTURE, [2, 2])),
    ("_adaptive_avg_pool2d_backward", (torch.randn(2, 3, 2, 2), PICTURE)),
    ("_adaptive_avg_pool3d", (VOLUME, [2, 2, 2])),
    ("_cdist_forward", (X, X + 1, 2.0, None)),
    ("_embedding_bag", (X, torch.tensor([0, 2, 3]), torch.tensor([0, 2]))),
    ("_fft_c2r", (torch.randn(4, 4, dtype=torch.complex64), [1], 0, 6)),
    ("_fft_r2c", (X, [1], 0, True)),
    ("_local_scalar_dense", (torch.tensor(3),)),
    ("_log_softmax", (X, 1, False)),
    ("_native_batch_norm_legit", (PICTURE, ONES, ONES, *STATISTICS, True, 0.1, 1e-5)),
    ("_native_batch_norm_legit.no_stats", (PICTURE, ONES, ONES, True, 0.1, 1e-5)),
    ("_native_batch_norm_legit_no_training", (PICTURE, ONES, ONES, *STATISTICS, 0.1, 1e-5)),
    ("_pdist_forward", (X,)),
    ("_softmax", (X, 1, False)),
    ("_to_copy", (X,), {"dtype": torch.float64}),
    ("any.dims", (X, [0, 1])),
    ("atan2.out", (X, X + 1), {"out": torch.zeros(4, 6)}),
    ("bitwise_and.Scalar", (N, 5)),
    ("bitwise_or.Scalar", (N, 5)),
    ("bitwise_xor.Scalar", (N, 5)),
    ("clamp", (X, -0.5, 0.5)),
    ("copy", (X, X + 1)),
    ("div.Scalar_mode", (X, 2.5), {"rounding_mode": "floor"}),
    ("fmod.Scalar", (X, 0.3)),
    ("native_dropout", (X, 0.5, False)),
    ("prod.dim_int", (X, 1)),
    ("reflection_pad2d", (PICTURE, [1, 2, 1, 0])),
    ("reflection_pad3d", (VOLUME, [1, 2, 1, 0, 1, 1])),
    ("replication_pad3d", (VOLUME, [1, 2, 1, 0, 1, 1])),
    ("upsample_bilinear2d.vec", (PICTURE, None, False, [2.0, 2.0])),
    ("upsample_nearest2d.vec", (PICTURE, [9, 9], None)),
    ("var.dim", (X, [0])),
]


class Calls(nn.Module):
    """Several calls, each with its own tensors: forward takes all of them, flat."""

    def __init__(self, calls):
        super().__init__()
        self.calls = calls

    def forward(self, tensors):
        return [self.one(*call, given) for call, given in zip(self.calls, tensors, strict=True)]

    @staticmethod
    def one(function, leaves, spec, tensors):
        given = iter(tensors)
        leaves = [next(given) if isinstance(v, torch.Tensor) else v for v in leaves]
        values = spec.unflatten(leaves)
        arguments = function.function.arguments
        args = [v for a, v in zip(arguments, values, strict=True) if not a.kwarg_only]
        kwargs = {a.name: v for a, v in zip(arguments, values, strict=True) if a.kwarg_only}
        return function.torch_op(*args, **kwargs)


def is_core(function):
    return torch.Tag.core in function.torch_op.tags


def calls():
    """One call of each core function that the database has: the function, its arguments' leaves
    and how they nest."""
    seen = set()
    for part in range(database.PARTS if FULL else 1):
        for _, function, bound in database.calls(part):
            if function.name in seen or not is_core(function):
                continue
            if function.random or function.name.startswith(UNDEFINED):
                continue
            seen.add(function.name)
            leaves, spec = _pytree.tree_flatten(bound)
            yield function, leaves, spec


def by_hand():
    for name, args, *kwargs in BY_HAND:
        function = native(name)
        leaves, spec = _pytree.tree_flatten(function.bind(args, *kwargs or [{}]))
        yield function, leaves, spec


def same(a, b):
    """Equal in all but strides: a result that shares memory with an argument is a copy."""
    if not isinstance(a, torch.Tensor):
        return a == b or (a != a and b != b)
    try:
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
    except AssertionError:
        return False
    return True


def compared(group):
    """The names of the calls whose results differ; the whole group is one program."""
    tensors = [[v for v in leaves if isinstance(v, torch.Tensor)] for _, leaves, _ in group]
    module = Calls(group)
    exported = torch.export.export(module, (copy.deepcopy(tensors),))
    model = pb.from_exported(exported).compile("py")
    with torch.no_grad():
        ours, theirs = model(copy.deepcopy(tensors)), module(copy.deepcopy(tensors))
    different = []
    for (function, _, _), a, b in zip(group, ours, theirs, strict=True):
        (mine, spec), (other, expected) = _pytree.tree_flatten(a), _pytree.tree_flatten(b)
        facts = [
            [getattr(v, f, None) for v in r for f in ("dtype", "shape")] for r in (mine, other)
        ]
        if spec != expected or facts[0] != facts[1] or not all(map(same, mine, other)):
            different.append(function.name)
    return different


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("source", [calls, by_hand], ids=["database", "by hand"])
def test_core_aten(source):
    every = list(source())
    assert len(every) > (120 if FULL else 12)
    different, refused = [], {}
    pending = [every[i : i + AT_ONCE] for i in range(0, len(every), AT_ONCE)]
    while pending:
        group = pending.pop()
        try:
            different += compared(group)
        except Exception as e:
            if len(group) > 1:  # find out which one it is
                half = len(group) // 2
                pending += [group[:half], group[half:]]
                continue
            refused[group[0][0].name] = f"{type(e).__name__}: {str(e)[:500]}"
    assert (different, refused) == ([], {})


RANDOM = {
    "rand": lambda x: torch.rand(3, 4) + x,
    "randn": lambda x: torch.randn(3, 4) + x,
    "randint": lambda x: torch.randint(5, (3, 4)) + x,
    "randperm": lambda x: torch.randperm(12).view(3, 4) + x,
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.5),
    "bernoulli": lambda x: torch.bernoulli(x),
    "multinomial": lambda x: torch.multinomial(x, 2),
}


@pytest.mark.parametrize("name", RANDOM)
def test_random_functions_draw_what_pytorch_draws(name):
    module = type("Draws", (nn.Module,), {"forward": staticmethod(RANDOM[name])})()
    x = torch.full((3, 4), 0.5)
    model = pb.from_exported(torch.export.export(module, (x,))).compile("py")
    torch.manual_seed(7)
    expected = module(x)
    torch.manual_seed(7)
    assert torch.equal(model(x), expected)
    assert not torch.equal(model(x), expected) or name == "dropout"
