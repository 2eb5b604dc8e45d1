"""Training steps in Python for `make bench`: reads "lstm_12_fused_1 ITERATIONS" lines, of which the
last part of the name is a number of threads or "cuda", and answers "WALL_NS CPU_NS". With "losses
STEPS lstm_12_fused ..." it prints what the steps return."""

import sys
import time
from collections.abc import Callable

import torch
from models import step

if sys.argv[1:2] == ["losses"]:
    torch.set_num_threads(1)
    for name in sys.argv[3:]:
        run = step(name)
        for _ in range(int(sys.argv[2])):
            print(run().item().hex())
    sys.exit()

made: dict[str, Callable[[], torch.Tensor]] = {}
for line in sys.stdin:
    name, count = line.split()
    name, last = name.rsplit("_", 1)
    device = "cpu" if last.isdecimal() else last
    if (key := f"{name} {device}") not in made:
        made[key] = step(name, device)
    run = made[key]
    torch.set_num_threads(int(last) if device == "cpu" else 1)
    wall, cpu = time.perf_counter_ns(), time.process_time_ns()
    for _ in range(int(count)):
        run()
    if device == "cuda":
        torch.cuda.synchronize()
    print(time.perf_counter_ns() - wall, time.process_time_ns() - cpu, flush=True)
