"""The rules of cgotorch/batching.cc compute what Python's decompositions do, to the last bit.

In a process where Go's are registered first, for in one where Python's are, they are left out.
"""

from __future__ import annotations

import subprocess
import sys

from pytorch_bridge import toolchain

PROGRAM = """
import warnings
import torch
from torch.nn import functional as F
from pytorch_bridge.testing.conformance import transforms as t
from pytorch_bridge.testing.conformance.harness import Harness, WrapperError
from pytorch_bridge.testing.conformance.transforms import Transforms

assert not torch._C._dispatch_has_kernel_for_dispatch_key("aten::nll_loss_forward", "FuncTorchBatched")

torch.set_num_threads(1)
transforms = Transforms(Harness())
calls = []


def go_only(self, transform, call):
    xs = call.batched() if transform in t.MAPS else call.xs
    self.harness.seed(t.SEED)
    try:
        got = self._go(transform, call, t.Copier()(xs), [])
    except WrapperError:
        got = None
    calls.append((transform, call, xs, got))
    return "passed"


# What Python computes comes second, with its own rules registered over Go's.
Transforms._compare = go_only
names = [
    "nn.functional.nll_loss", "nn.functional.mse_loss", "nn.functional.smooth_l1_loss",
    "nn.functional.huber_loss", "nn.functional.cross_entropy", "addr",
]
for name in names:
    transforms.run(name, torch.float32, lambda i: i % 2 == 0, lambda name: name in t.MAPS)
assert len(calls) > 40, len(calls)
assert torch._C._dispatch_has_kernel_for_dispatch_key("aten::nll_loss_forward", "FuncTorchBatched")
assert not torch._functorch.predispatch.DECOMPOSITIONS_LOADED

warnings.simplefilter("ignore")
differ = []
for transform, call, xs, got in calls:
    t.seed()
    try:
        wanted = t.TRANSFORMS[transform](call.function, t.Copier()(xs), [])
    except Exception:
        wanted = None
    problem = t._value_difference(wanted, got, False)
    if problem:
        differ.append(f"{transform} of {call.case!r}: {problem}")
assert torch._functorch.predispatch.DECOMPOSITIONS_LOADED
assert sum(got is None for *_, got in calls) < len(calls) / 4
print(len(calls), "compared,", len(differ), "differ")
print("\\n".join(differ[:20]))
"""


def test_rules_are_pythons() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=toolchain.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert " 0 differ" in ran.stdout, ran.stdout
