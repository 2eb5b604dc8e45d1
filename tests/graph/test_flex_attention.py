"""flex_attention in a model computes what it does in Python where no kernel is compiled for it."""

from __future__ import annotations

import math
import random
import warnings

import pytest
import torch
from package_form import PackageForm
from torch import nn
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention
from torch.utils import _pytree

import pytorch_bridge as pb
from pytorch_bridge.frontend.model import substituted
from pytorch_bridge.frontend.training_steps import weights_as_inputs

AUTO = torch.export.Dim.AUTO


class Attention(nn.Module):
    """One with what score_mod and mask_mod read."""

    def __init__(self, score=None, mask=None, block_mask=None, **options):
        super().__init__()
        self.score, self.mask, self.block_mask, self.options = score, mask, block_mask, options
        self.slope = nn.Parameter(torch.randn(4))
        self.register_buffer("bias", torch.randn(4, 64, 64))
        self.register_buffer("documents", torch.randint(3, (64,)))
        self.register_buffer("wide", torch.tensor(0.3, dtype=torch.float64))

    def forward(self, q, k, v):
        def score(x, b, h, i, j):
            return self.score(self, x, b, h, i, j)

        block_mask = self.block_mask
        if self.mask is not None:
            block_mask = create_block_mask(
                lambda b, h, i, j: self.mask(self, b, h, i, j),
                None,
                None,
                q.shape[2],
                k.shape[2],
                device="cpu",
            )
        found = flex_attention(
            q, k, v, None if self.score is None else score, block_mask, **self.options
        )
        leaves = [t for t in _pytree.tree_leaves(found) if t is not None]
        return [nn.functional.dropout(leaves[0], 0.5, self.training), *leaves[1:]]


SCORES = [
    None,
    lambda m, x, b, h, i, j: x + m.slope[h] * (i - j),
    lambda m, x, b, h, i, j: x + m.bias[h, i, j],
    lambda m, x, b, h, i, j: torch.tanh(x / 2) * 2,
    lambda m, x, b, h, i, j: torch.where(m.documents[i] == m.documents[j], x, -float("inf")),
    lambda m, x, b, h, i, j: x * torch.exp(-(i - j).abs() * m.slope[h].abs()) + b,
    lambda m, x, b, h, i, j: x - m.bias[0, 0, 0] + m.bias[h].sum() / 64 + j,
    # Rows without anything.
    lambda m, x, b, h, i, j: x + m.slope[h] * j + torch.where(i < 3, -math.inf, 0.0),
]
MASKS = [
    None,
    lambda m, b, h, i, j: i >= j,
    lambda m, b, h, i, j: (i >= j) & (m.documents[i] == m.documents[j]),
    lambda m, b, h, i, j: (i - j).abs() < 3,
    lambda m, b, h, i, j: (h % 2 == 0) & (i > j),  # rows without anything
]


def strided(draw, *sizes, dtype):
    """A random tensor in one of several layouts."""
    way = draw.randrange(4)
    if way == 0:
        return torch.randn(sizes, dtype=dtype)
    if way == 1:
        b, h, n, e = sizes
        return torch.randn((b, n, h, e), dtype=dtype).transpose(1, 2)
    if way == 2:
        return torch.randn((*sizes[:3], 2 * sizes[3]), dtype=dtype)[..., ::2]
    return torch.randn((*sizes[:2], sizes[3], sizes[2]), dtype=dtype).transpose(2, 3)


def inputs(draw, batch, heads, n, m, e, ev, dtype):
    return (
        strided(draw, batch, heads[0], n, e, dtype=dtype),
        strided(draw, batch, heads[1], m, e, dtype=dtype),
        strided(draw, batch, heads[1], m, ev, dtype=dtype),
    )


# Of score_mod, mask_mod, dtype, heads, open sizes, and options of flex_attention.
CASES = [
    (1, 2, torch.float32, (4, 4), True, {}),
    (5, 4, torch.bfloat16, (4, 2), False, {"enable_gqa": True, "scale": 0.7}),
    (6, 0, torch.float32, (4, 1), True, {"enable_gqa": True, "return_aux": AuxRequest(lse=True)}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def test_all_bits_are_those_of_the_module(case):
    score, mask, dtype, heads, dynamic, options = case
    draw = random.Random(score)
    torch.manual_seed(score)
    warnings.simplefilter("ignore")
    module = Attention(SCORES[score], MASKS[mask], **options).eval()
    example = inputs(draw, 2, heads, 12, 20, 8, 4, dtype)
    program = torch.export.export(
        module, example, dynamic_shapes=({0: AUTO, 2: AUTO},) * 3 if dynamic else None
    )
    model = pb.from_exported(program)
    sizes = [(2, 12, 20), (2, 12, 20)]
    sizes += [(3, 5, 5), (1, 1, 1)] if dynamic else []
    sizes += [(2, 0, 3)] if dynamic and mask == 0 else []  # a block mask has blocks
    for form in (model.compile("py"), model.compile(), PackageForm(program)):
        for batch, n, m in sizes:
            given = inputs(draw, batch, heads, n, m, 8, 4, dtype)
            for got, want in zip(form(*given), program.module()(*given), strict=True):
                assert got.dtype == want.dtype
                assert got.stride() == want.stride()
                assert torch.equal(got.nan_to_num(7), want.nan_to_num(7))


def test_the_sums_of_float64_are_refused():
    """torch.export says that they are of float32."""
    warnings.simplefilter("ignore")
    q = torch.randn(2, 4, 6, 8, dtype=torch.float64)
    module = Attention(return_aux=AuxRequest(lse=True))
    with pytest.raises(pb.BridgeTypeError, match="ask for the attention alone"):
        pb.from_exported(torch.export.export(module, (q, q, q)))


def test_gradients_are_those_of_autograd_but_for_rounding():
    """Of the attention and of the sums, also where rows have nothing, and of a parameter that
    score_mod reads."""
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    module = Attention(SCORES[7], MASKS[3], return_aux=AuxRequest(lse=True)).eval()
    draw = random.Random(0)
    example = [x.contiguous() for x in inputs(draw, 2, (4, 4), 12, 20, 8, 4, torch.float32)]
    program = torch.export.export(module, tuple(example))
    model = pb.from_exported(program)
    weights, replaced = weights_as_inputs(model)
    arguments = [*model.inputs, *weights.values()]
    compiled = pb.function(arguments, substituted(model.outputs, replaced), mode="py")
    slope = module.slope
    state = {name: x.detach() for name, x in module.state_dict().items()} | {"slope": slope}
    eager = program.module()
    found = []
    for call, parameter in (
        (lambda *leaves: compiled(*leaves, *(state[n] for n in weights)), slope),
        (eager, eager.get_parameter("slope")),
    ):
        leaves = [x.clone().requires_grad_() for x in example]
        out, sums = call(*leaves)
        cost = out.sin().sum() + sums[:, :, 3:].cos().sum()
        found.append([out, sums, *torch.autograd.grad(cost, [*leaves, parameter])])
    (*values, dq, dk, dv, ds), (*wanted, eq, ek, ev, es) = found
    assert all(map(torch.equal, values, wanted))
    for got, want in ((dq, eq), (dk, ek), (dv, ev), (ds, es)):
        assert want.isfinite().all()
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
