"""Compiled graphs in Python for `make bench`: reads "CASE ITERATIONS", answers "WALL_NS CPU_NS".

    python bench/graph_worker.py eager|script|compile|aoti|bridge FOLDER

FOLDER has the packages of AOTInductor, CASE.pt2.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from graph_models import MODELS, make

mode, folder = sys.argv[1], Path(sys.argv[2])
torch.set_num_threads(1)


@functools.cache
def callee(case: str) -> tuple[Callable[..., object], tuple[torch.Tensor, ...]]:
    module, inputs = make(case)
    if mode == "script":
        return torch.jit.freeze(torch.jit.script(module)), inputs
    if mode == "compile":
        return torch.compile(module), inputs
    if mode == "aoti":
        return torch._inductor.aoti_load_package(str(folder / f"{case}.pt2")), inputs
    if mode == "bridge":
        import pytorch_bridge as pb

        return pb.from_exported(torch.export.export(module, inputs)).compile("c_only"), inputs
    return module, inputs


with torch.inference_mode():
    for line in sys.stdin:
        name, count = line.split()
        if name not in MODELS:
            print("none", flush=True)
            continue
        call, inputs = callee(name)
        wall, cpu = time.perf_counter_ns(), time.process_time_ns()
        for _ in range(int(count)):
            call(*inputs)
        print(time.perf_counter_ns() - wall, time.process_time_ns() - cpu, flush=True)
