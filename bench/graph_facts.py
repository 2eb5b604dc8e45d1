"""Figures of compiled graphs that are no times of a call, for `make bench`: one JSON object.

python bench/graph_facts.py mlp|resnet50|memory|jit
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from graph_models import make

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "graph"))  # before bench/models.py
from models import resnet50

torch.set_num_threads(1)


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def compiling(name: str, module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], targets: str):
    """Seconds to compile and link, into an empty cache and from it."""
    import pytorch_bridge as pb

    with tempfile.TemporaryDirectory() as folder:
        os.environ["GOTORCH_CACHE"] = folder
        model = pb.from_exported(torch.export.export(module, inputs))
        first = seconds(lambda: model.compile("c_only"))
        again = statistics.median(seconds(lambda: model.compile("c_only")) for _ in range(5))
    return {
        f"{name}: compiled and linked; from the cache": f"{first:.2f} s; {again:.3f} s {targets}"
    }


def mlp() -> dict[str, str]:
    return compiling("MLP 784-128-10", *make("mlp_1"), targets="(targets 1; 0.1)")


def resnet() -> dict[str, str]:
    torch.manual_seed(0)
    inputs = (torch.randn(1, 3, 224, 224),)
    return compiling("ResNet-50", resnet50().eval(), inputs, targets="(targets 10; 0.5)")


def peak(call: Callable[[], object]) -> float:
    """How many MB the resident memory of this process grows above what it was during a call."""

    def status(key: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(key)).split()[1])

    call()
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak until now
    before = status("VmRSS")
    call()
    return (status("VmHWM") - before) / 1024


def memory() -> dict[str, str]:
    """Each in a process of its own, which starts this file again. What is freed goes back to the
    system at once there, so that the peak is what lives at a time."""
    found = {}
    returning = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    for way in ("eager", "bridge"):
        done = subprocess.run(
            [sys.executable, __file__, f"memory_{way}"],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, **returning},
        )
        found[way] = float(done.stdout)
    return {
        "ResNet-50, 8 images of 224×224: memory above the start in one forward": (
            f"{found['bridge']:.0f} MB, eager in inference mode {found['eager']:.0f} MB (target: "
            "not more)"
        )
    }


def memory_of(way: str) -> None:
    torch.manual_seed(0)
    module, x = resnet50().eval(), torch.randn(8, 3, 224, 224)
    call: Callable[[torch.Tensor], object] = module
    if way == "bridge":
        import pytorch_bridge as pb

        call = pb.from_exported(torch.export.export(module, (x,))).compile("c_only")
    with torch.inference_mode():
        print(peak(lambda: call(x)))


def jit() -> dict[str, str]:
    """What a jitted call costs above its ops, and what the first one costs."""
    from extension_calls import first_call, overhead, tracing

    return {
        "a jitted call with three tensors and a struct, above its ops": (
            f"{overhead():.1f} µs (target 3)"
        ),
        "typing and tracing a function of 100 ops": f"{tracing() * 1000:.0f} ms (target 50)",
        "the first call in a process of what is in the cache": (
            f"{first_call() * 1000:.0f} ms (target 100)"
        ),
    }


PARTS = {"mlp": mlp, "resnet50": resnet, "memory": memory, "jit": jit}
if sys.argv[1].startswith("memory_"):
    memory_of(sys.argv[1].removeprefix("memory_"))
else:
    print(json.dumps(PARTS[sys.argv[1]]()))
