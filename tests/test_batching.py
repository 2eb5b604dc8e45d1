"""The rules of cgotorch/batching.cc and forward.cc compute what Python's decompositions do, to the last
bit.

In a process where Go's are used first, for in one where Python's are registered, they are left out.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytorch_bridge.native import toolchain

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


FORWARD = """
import sys
import warnings
import torch
from pytorch_bridge.testing.conformance import transforms as t
from pytorch_bridge.testing.conformance.harness import Harness, WrapperError
from pytorch_bridge.testing.conformance.transforms import Transforms

torch.set_num_threads(1)
transforms = Transforms(Harness())
calls = []


def go_only(self, transform, call):
    more = [t._gradient_for(x) for x in call.xs] if transform == "jvp" else []
    self.harness.seed(t.SEED)
    try:
        got = self._go(transform, call, t.Copier()(call.xs), more)
    except WrapperError as err:
        got = None
        failed.append(f"{transform} of {call.case!r}: {err}")
    calls.append((transform, call, more, got))
    return "passed"


failed = []
Transforms._compare = go_only
names = [
    "trace", "nn.functional.nll_loss", "nn.functional.cross_entropy", "log_softmax", "softmax",
    "nn.functional.logsigmoid", "nn.functional.layer_norm", "nn.functional.batch_norm",
    "nn.functional.instance_norm", "native_layer_norm", "native_batch_norm",
]
t.MOST.update(jacfwd=48, hessian=48)
for name in names:
    for dtype in (torch.float64, torch.float32):
        transforms.run(name, dtype, lambda i: i < 6, lambda name: name in {"jvp", "jacfwd", "hessian"})
assert "torch._decomp.decompositions_for_jvp" not in sys.modules
warnings.simplefilter("ignore")
differ = []
for transform, call, more, got in calls:
    t.seed()
    try:
        wanted = t.TRANSFORMS[transform](call.function, t.Copier()(call.xs), more)
    except Exception:
        wanted = None
    if wanted is None or got is None:
        problem = "" if wanted is got else f"Go gives {got}, Python {wanted}"
    else:
        problem = t._value_difference(wanted, got, False)
    if problem:
        differ.append(f"{transform} of {call.case!r}: {problem}")
assert "torch._decomp.decompositions_for_jvp" in sys.modules
assert len(calls) > 150 and len(failed) < len(calls) / 3, (len(calls), failed)
print(len(calls), "compared,", sum(got is None for *_, got in calls), "refused,", len(differ), "differ")
print("\\n".join(differ[:20] + failed[:5]))
"""


def compared(program: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=toolchain.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout


@pytest.mark.parametrize("program", [PROGRAM, FORWARD], ids=["vmap", "forward"])
def test_rules_are_pythons(program: str) -> None:
    told = compared(program)
    assert " 0 differ" in told, told


def test_each_rule_of_pythons_for_forward_mode_is_there() -> None:
    module = importlib.util.find_spec("torch._decomp.decompositions_for_jvp")
    assert module is not None
    assert module.origin is not None
    source = Path(module.origin).read_text()
    names = re.findall(r"_for_jvp\(torch\.ops\.aten\.(\w+)\.default", source)
    assert len(names) > 5
    ours = re.findall(
        r'\{"aten::(\w+)", rule\(', (toolchain.ROOT / "cgotorch/forward.cc").read_text()
    )
    assert sorted(ours) == sorted(names)
