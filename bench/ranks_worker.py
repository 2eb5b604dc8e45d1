"""Two ranks in Python for `make bench`, of which the first reads "CASE ITERATIONS" lines and
answers "WALL_NS CPU_NS": "all_reduce_BYTES", and training steps that are named as in models.py,
with DistributedDataParallel. With "first SIZE" it ends when SIZE ranks have added up a tensor."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import torch
import torch.distributed as dist


def case(name: str) -> Callable[[int], None]:
    if name.startswith("all_reduce_"):
        t = torch.ones(int(name.removeprefix("all_reduce_")) // 4)

        def reduce(n: int) -> None:
            for _ in range(n):
                dist.all_reduce(t, op=dist.ReduceOp.AVG)

        return reduce
    from models import MODELS, OPTIMIZERS, data
    from torch.nn import functional
    from torch.nn.parallel import DistributedDataParallel

    model, batch, optimizer = name.split("_")
    torch.manual_seed(0)
    net = MODELS[model]()
    x, y = data(model, int(batch))
    ddp = DistributedDataParallel(net)
    opt = OPTIMIZERS[optimizer](list(net.parameters()))

    def steps(n: int) -> None:
        for _ in range(n):
            opt.zero_grad()
            out = ddp(x)
            functional.cross_entropy(out.view(-1, out.size(-1)), y).backward()
            opt.step()

    return steps


def ranks(folder: str, rank: int, peer: subprocess.Popen[str] | None) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    torch.set_num_threads(1)
    made: dict[str, Callable[[int], None]] = {}
    for line in sys.stdin:
        if peer is not None:
            assert peer.stdin is not None
            peer.stdin.write(line)
            peer.stdin.flush()
        name, count = line.split()
        if name not in made:
            made[name] = case(name)
        dist.barrier()
        wall, cpu = time.perf_counter_ns(), time.process_time_ns()
        made[name](int(count))
        if rank == 0:
            print(time.perf_counter_ns() - wall, time.process_time_ns() - cpu, flush=True)


def first(size: int, folder: str, rank: int) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=size)
    t = torch.ones(1)
    dist.all_reduce(t)
    assert t.item() == size


def main() -> None:
    match sys.argv[1:]:
        case [folder]:
            ranks(folder, 1, None)
        case []:
            with tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, __file__, folder]
                with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as peer:
                    ranks(folder, 0, peer)
                    assert peer.stdin is not None
                    peer.stdin.close()
        case ["first", size]:
            with tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, __file__, "first", size, folder]
                started = [subprocess.Popen([*command, str(rank)]) for rank in range(int(size))]
                ended = [process.wait() for process in started]
                sys.exit(any(ended))
        case ["first", size, folder, rank]:
            first(int(size), folder, int(rank))


main()
