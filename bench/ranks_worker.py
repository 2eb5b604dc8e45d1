"""Two ranks in Python for `make bench`, of which the first reads "CASE ITERATIONS" lines and
answers "WALL_NS CPU_NS": "all_reduce_BYTES", and training steps that are named as in models.py,
with DistributedDataParallel. With "first SIZE" it ends when SIZE ranks have added up a tensor. With
"sharded LIBRARY UNITS WIDTH" it says how much memory a rank of fully_shard has, as libcgotorch
counts it."""

from __future__ import annotations

import ctypes
import gc
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
    dist.destroy_process_group()  # else Python sometimes aborts where it ends


class Options(ctypes.Structure):
    """ProfileOptions of cgotorch/profiler.h."""

    _fields_ = [(name, ctypes.c_bool) for name in ("shapes", "memory", "flops", "device")] + [
        (name, ctypes.c_int64) for name in ("max_events", "goroutine")
    ]


class Allocation(ctypes.Structure):
    """ProfileMemory."""

    _fields_ = [
        (name, ctypes.c_int64)
        for name in (
            *("time", "address", "bytes", "total"),
            *("parent", "thread", "system_thread", "goroutine"),
        )
    ]


class Data(ctypes.Structure):
    """The beginning of ProfileData."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("start", "stop", "clock")),
        ("events", ctypes.c_void_p),
        ("events_len", ctypes.c_int64),
        ("memory", ctypes.POINTER(Allocation)),
        ("memory_len", ctypes.c_int64),
    ]


@contextmanager
def counted(library: str) -> Iterator[list[tuple[int, int]]]:
    """Puts what allocations on any thread come to into a list, with their times."""
    lib = ctypes.CDLL(library)
    start, stop, free = (
        getattr(lib, f"cgotorch_{name}") for name in ("StartProfile", "StopProfile", "FreeProfile")
    )
    start.restype = stop.restype = ctypes.c_char_p
    totals: list[tuple[int, int]] = []
    profile = ctypes.c_int64()
    error = start(ctypes.byref(Options(memory=True, max_events=1_000_000)), ctypes.byref(profile))
    assert error is None, error
    yield totals
    data = ctypes.POINTER(Data)()
    error = stop(profile, ctypes.byref(data))
    assert error is None, error
    for i in range(data.contents.memory_len):
        totals.append((data.contents.memory[i].time, data.contents.memory[i].total))
    totals.sort()
    free(data)


def sharded(library: str, units: int, width: int, folder: str, rank: int) -> None:
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    torch.set_num_threads(1)
    with counted(library) as totals:
        layers = [torch.nn.Linear(width, width) for _ in range(units)]
        net = torch.nn.Sequential(*layers)
        for module in (*layers, net):
            fully_shard(module)
        opt = torch.optim.AdamW(net.parameters(), fused=True)
        x = torch.randn(1, width)
        starts = []
        for _ in range(11):  # of which two are to warm up
            gc.collect()
            dist.barrier()
            starts.append(time.time_ns())
            net(x).pow(2).mean().backward()
            opt.step()
            opt.zero_grad()
        dist.barrier()
    if rank == 0:
        between = [total for at, total in totals if at < starts[2]][-1]
        ends = [*starts[3:], totals[-1][0] + 1]
        peaks = [
            max(total for at, total in totals if start <= at < end)
            for start, end in zip(starts[2:], ends, strict=True)
        ]
        most = statistics.median(peaks)
        print(json.dumps({"between_mb": between / 2**20, "most_mb": most / 2**20}))


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
        case ["sharded", library, units, width]:
            with tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, __file__, *sys.argv[1:], folder, "1"]
                with subprocess.Popen(command):
                    sharded(library, int(units), int(width), folder, 0)
        case ["sharded", library, units, width, folder, rank]:
            sharded(library, int(units), int(width), folder, int(rank))


main()
