"""Training steps on a GPU: `make bench-cuda`, which writes docs/benchmarks-cuda.md."""

from __future__ import annotations

import subprocess

from ..native.toolchain import ROOT
from .functions import special
from .measuring import Family, Target
from .training import MODELS, OPTIMIZERS, ways

DOCUMENT = ROOT / "docs/benchmarks-cuda.md"
STEPS = 3_000

CASES = {
    f"{model}_{batch}_{optimizer}_cuda": f"{title}, batch {batch}, {OPTIMIZERS[optimizer]}"
    for model, title in MODELS.items()
    for batch in (64, 4096 if model == "mlp" else 512)
    for optimizer in ("sgd" if model == "mlp" else "foreach", "fused")
}


def gpu() -> str:
    """The name of the GPU, and its driver."""
    asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    name, driver = subprocess.check_output(asked, text=True).splitlines()[0].split(", ")
    return f"{name}, driver {driver}"


def family() -> Family:
    """Compiles the worker."""
    return Family(
        title="Training steps on a GPU",
        text=(
            f"{gpu()}. Zeroed gradients, forward, loss, backward and optimiser; ratios to Python "
            "eager with the same optimiser. A round ends when the GPU has done its steps. With the "
            "small batches a step takes as long as the calls, with the large ones as the GPU."
        ),
        base="python",
        cases=CASES,
        ways=ways(),
        targets=[Target(case, "go_gc", 1.0) for case in CASES],
        sittings=2,
    )


def facts() -> dict[str, str]:
    """How the memory of the GPU goes on in long training."""
    found = {}
    for case in ("transformer_64_foreach_cuda", "lstm_512_fused_cuda"):
        memory = special("steps", case, str(STEPS))
        found[f"{STEPS:,} steps of {CASES[case]}, nothing freed by hand"] = (
            f"{memory['handles']:.0f} handles and {memory['grown_mb']:.0f} MB of the computer's "
            f"more than after the first {STEPS // 10:,}; of the GPU's "
            f"{memory['device_mb']:.0f} MB at the end and {memory['device_peak_mb']:.0f} at most"
        )
    return found
