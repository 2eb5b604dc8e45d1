"""What a program makes of the package: it is type-checked with `mypy --strict`, and run."""

from __future__ import annotations

import torch

import pytorch_bridge as pb
from pytorch_bridge import ops


def network(x: pb.Variable, w: pb.Variable) -> pb.Variable:
    hidden = ops.mm(x, w).relu().reshape(-1, 10)
    return ops.softmax(hidden - hidden.sum(0), -1, dtype="float32")


def overloads(x: pb.Variable) -> list[pb.Variable]:
    values, indices = ops.max(x, 0)
    largest = ops.max(x)
    scaled = ops.add.Scalar(ops.mul(2, x), 1)
    parts = ops.split(x, [1, 1], dim=0)
    picked = ops.where(values > 0, values, 0.0)
    return [values, indices, largest, scaled, parts[0], picked]


x = pb.TensorType("float32", (None, 784))("x")
w = pb.TensorType("float32", (784, 10))("w")
f = pb.function([x, w], network(x, w))
f(torch.rand(3, 784), torch.rand(784, 10))
overloads(pb.TensorType(torch.float32, (2, 2))("y"))
y = x.relu() + 1

loss = ops.mm(x, w).logsumexp(1).mean()
step = -0.1 * pb.grad(loss, w)
unused: list[pb.Variable | None] = [*pb.grad(loss, [x, w], allow_unused=True)]
shifted = x - pb.constant(torch.rand(784)).relu()
pb.dprint([loss, step], depth=1, file="str")
