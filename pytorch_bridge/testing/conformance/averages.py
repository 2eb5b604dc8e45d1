"""Runs package optim/swautils: averages of weights, statistics of batch normalizations."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import swa_utils

from .check import SEED
from .harness import Harness, Request, WrapperError
from .modules import Call, GoModule, differ

AVERAGE, UPDATE, UPDATE_BN = -44, -45, -46

# What AveragedModel is given in Python, by names that Go has too.
FUNCTIONS: dict[str, Callable[[float], dict[str, Any]]] = {
    "default": lambda decay: {},
    "swa": lambda decay: {"avg_fn": swa_utils.get_swa_avg_fn()},
    "swa_multi": lambda decay: {"multi_avg_fn": swa_utils.get_swa_multi_avg_fn()},
    "ema": lambda decay: {"avg_fn": swa_utils.get_ema_avg_fn(decay)},
    "ema_multi": lambda decay: {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(decay)},
    "own": lambda decay: {"avg_fn": lambda averaged, current, n: averaged * 2 + current * n},
}


class GoAverage(GoModule):
    """An AveragedModel that Go has made."""

    def __init__(self, model: GoModule, function: str, decay: float, buffers: bool) -> None:
        self.harness, self.number = model.harness, 0
        request = Request([AVERAGE, 0, 0, model.number])
        request.text_only(function)
        request.words += (*struct.unpack("q", struct.pack("d", decay)), int(buffers))
        self.number = self.harness.send(request)[0][0]

    def update(self, model: GoModule) -> None:
        self.harness.send(Request([UPDATE, 0, 0, self.number, model.number]))

    def update_bn(self, batches: list[torch.Tensor]) -> None:
        request = Request([UPDATE_BN, 0, 0, self.number])
        request.value("Tensor[]", batches)
        self.harness.send(request)


def run(harness: Harness, function: str, decay: float, buffers: bool, dtype: torch.dtype) -> str:
    """Averages a small model in Python and in Go; returns what differs."""
    generator = torch.Generator().manual_seed(SEED)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).to(dtype)
    parts = [
        GoModule(harness, "Linear", Call([3, 4], {})),
        GoModule(harness, "BatchNorm1d", Call([4], {})),
    ]
    go_model = GoModule(harness, "Sequential", Call(parts, {}))
    go_model.to(dtype)
    go_model.load_state_dict(dict(model.state_dict()))
    average = swa_utils.AveragedModel(model, use_buffers=buffers, **FUNCTIONS[function](decay))
    go = GoAverage(go_model, function, decay, buffers)

    def compare(what: str) -> str:
        wanted, got = average.state_dict(), go.state_dict()
        if wanted.keys() != got.keys():
            return f"{what}: the names are {sorted(got)}, not {sorted(wanted)}"
        return differ(what, [wanted[k] for k in sorted(wanted)], [got[k] for k in sorted(wanted)])

    problem = compare("at first")
    for step in range(6):
        with torch.no_grad():
            for t in [*model.parameters(), *model.buffers()]:
                noise = torch.randn(t.shape, generator=generator, dtype=torch.float64)
                t.add_(noise.to(t.dtype) if t.is_floating_point() else 3)
        go_model.load_state_dict(dict(model.state_dict()))
        try:
            average.update_parameters(model)
        except RuntimeError as err:
            try:
                go.update(go_model)
            except WrapperError as got:
                return "" if got.kind == "RuntimeError" else f"{got}, where Python says {err}"
            return f"no error, where Python says {err}"
        go.update(go_model)
        problem = problem or compare(f"update {step + 1}")
        if step == 3 and not problem:  # each goes on from the other's state
            states = dict(average.state_dict()), go.state_dict()
            average = swa_utils.AveragedModel(
                model, use_buffers=buffers, **FUNCTIONS[function](decay)
            )
            average.load_state_dict(states[1])
            go = GoAverage(go_model, function, decay, buffers)
            go.load_state_dict(states[0])
        if problem:
            return problem
    batches = [torch.randn(n, 3, generator=generator, dtype=torch.float64) for n in (5, 2, 7)]
    batches = [b.to(dtype) for b in batches]
    average.eval()
    go.train(False)
    swa_utils.update_bn(batches, average)
    go.update_bn([b.clone() for b in batches])
    problem = compare("update_bn")
    x = torch.randn(4, 3, generator=generator, dtype=torch.float64).to(dtype)
    return problem or differ("the result", average(x), go.method("Forward", x.clone()))
