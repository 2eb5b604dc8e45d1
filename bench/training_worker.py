"""Training steps in Python for `make bench`: reads "lstm_12_fused_1 ITERATIONS" lines, of which the
last number of the name is that of threads, and answers "WALL_NS CPU_NS". With "losses STEPS
lstm_12_fused ..." it prints what the steps return."""

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
    name, threads = name.rsplit("_", 1)
    if name not in made:
        made[name] = step(name)
    run = made[name]
    torch.set_num_threads(int(threads))
    wall, cpu = time.perf_counter_ns(), time.process_time_ns()
    for _ in range(int(count)):
        run()
    print(time.perf_counter_ns() - wall, time.process_time_ns() - cpu, flush=True)
