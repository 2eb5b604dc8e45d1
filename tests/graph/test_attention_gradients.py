"""Gradients of attention whose mask requires one: autograd's bits.

Variables: GOTORCH_ATTENTION_CASES, how many random cases (3), GOTORCH_ATTENTION_SEED, which (0)."""

from __future__ import annotations

import os
import random

import torch
from torch import nn

import pytorch_bridge as pb
from pytorch_bridge import TensorType, function, ops
from pytorch_bridge.frontend.training_steps import TrainingStep


def test_attention_is_the_one_that_pytorch_records():
    """PyTorch takes other kernels where the mask requires a gradient, or is computed of a
    parameter: the attention has other bits and strides then, and so have all gradients."""
    attention = torch.nn.functional.scaled_dot_product_attention
    draw = random.Random(int(os.environ.get("GOTORCH_ATTENTION_SEED", "0")))
    torch.manual_seed(draw.randrange(1 << 30))
    masks = [(6, 9), (1, 9), (2, 1, 6, 9), (1, 4, 1, 9), (2, 4, 6, 9), (2, 4, 6, 1), (1, 1, 1, 1)]
    cases = [(m, known) for m in masks for known in (True, False)]
    for case in range(int(os.environ.get("GOTORCH_ATTENTION_CASES", "3"))):
        mask, known = cases[draw.randrange(len(cases))]
        dtype = [torch.float32, torch.bfloat16, torch.float64][case % 3]
        options, heads = draw.choice([({}, 4), ({"enable_gqa": True}, 2), ({"scale": 0.5}, 4)])
        # The gradient of the mask is asked for in the first cases.
        needs = [draw.random() < 0.5 for _ in range(3)] + [case < 3 or draw.random() < 0.5]
        if not any(needs):
            needs[0] = True
        shapes = [(2, 4, 6, 8), (2, heads, 9, 8), (2, heads, 9, 8), mask]
        variables = [
            TensorType(
                dtype,
                [None if d == len(s) - 2 and n > 1 and not known else n for d, n in enumerate(s)],
            )()
            for s in shapes
        ]
        values = [torch.randn(s, dtype=dtype) for s in shapes]
        y = ops.scaled_dot_product_attention(*variables[:3], variables[3] * 1.5, **options)
        found = []

        def eager(q, k, v, m, options=options):
            plain = attention(q, k, v, m * 1.5, **options)
            return plain * plain, plain

        for call in (
            function(variables, [y * y, y], mode="py"),
            eager,
        ):
            leaves = [v.clone().requires_grad_(n) for v, n in zip(values, needs, strict=True)]
            square, plain = call(*leaves)
            wanted = [x for x in leaves if x.requires_grad]
            grads = torch.autograd.grad(square.sum() + plain.sin().sum(), wanted)
            found.append([square.detach(), plain.detach(), *grads])
        for got, want in zip(*found, strict=True):
            assert torch.equal(got, want), (mask, known, dtype, options, needs)
            assert got.stride() == want.stride()


def test_a_training_step_has_attention_as_pytorch_records_it():
    """Where the mask is a parameter, or computed of one; what is drawn after it is drawn once."""

    class Biased(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(torch.randn(4, 13))
            self.project = nn.Linear(8, 24)

        def forward(self, x):
            n = torch.arange(6)
            mask = self.table[:, n[:, None] - n + 6]
            q, k, v = self.project(x).chunk(3, -1)
            y = nn.functional.scaled_dot_product_attention(q, k, v, mask)
            return nn.functional.dropout(y, 0.3, self.training)

    torch.manual_seed(0)
    module = Biased()
    x, target = torch.randn(2, 4, 6, 8), torch.randn(2, 4, 6, 8)
    program = torch.export.export(module, (x,))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    training = pb.Training(lambda y, t: ops.mse_loss(y, t), pb.SGD(), targets=[target])
    step = TrainingStep(pb.from_exported(program), training, mode="py")
    torch.manual_seed(1)
    loss = step(x, target, lr=0.1)
    torch.manual_seed(1)
    want = nn.functional.mse_loss(module(x), target)
    want.backward()
    optimizer.step()
    assert torch.equal(torch.as_tensor(loss), want.detach())
    for name, weight in module.named_parameters():
        assert torch.equal(step.weights[name], weight.detach()), name
