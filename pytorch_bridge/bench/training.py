"""Training steps of whole models, which bench/models has for Go and bench/models.py for Python."""

from __future__ import annotations

import sys

from ..native.toolchain import ROOT
from . import building
from .functions import special
from .measuring import Family, Target, Way, compile_go

MODELS = {
    "mlp": "MLP 784-128-10",
    "transformer": "char transformer, 2 layers, 128 wide",
    "lstm": "LSTM, 128 wide, 64 steps",
    "encoder": "`nn.TransformerEncoder`, 2 layers, 128 wide",
}
OPTIMIZERS = {"sgd": "SGD, foreach", "foreach": "AdamW, foreach", "fused": "AdamW, fused"}


def _cases() -> dict[str, str]:
    cases = {}
    for model, title in MODELS.items():
        small = model == "mlp"
        for batch in [64] if small else [1, 12]:
            for optimizer in ["sgd", "foreach"] if small else ["foreach", "fused"]:
                for threads in [1] if small else [1, 2]:
                    what = [title, f"batch {batch}", OPTIMIZERS[optimizer], f"{threads} threads"]
                    name = f"{model}_{batch}_{optimizer}_{threads}"
                    cases[name] = ", ".join(what).replace("1 threads", "1 thread")
    return cases


CASES = _cases()


def ways() -> list[Way]:
    """Compiles the worker."""
    go = compile_go("./bench/goworker", "go_worker")
    return [
        Way("python", "Python eager", [sys.executable, str(ROOT / "bench/training_worker.py")]),
        Way("go_gc", "Go, collector", [*go, "train_gc"]),
        Way("go_scope", "Go, in a Scope", [*go, "train_scope"]),
    ]


def family() -> Family:
    """Compiles the worker."""
    return Family(
        title="Training steps",
        text=(
            "Zeroed gradients, forward, loss, backward and optimiser; ratios to Python eager with "
            "the same optimiser (PyTorch's `foreach=True` or `fused=True`). All models but the "
            "MLP have sequences of 64 characters, a batch of one or of twelve; with twelve, "
            "PyTorch's kernels take nearly all the time, in any language. What Go's steps make is "
            "left to the collector, or each step is in a `Scope`. The target of 0.85 is for a "
            "batch of one (the MLP's is of 64), in a `Scope`; the collector's column has none, "
            "nor have the rows of twelve, whose ratios the table gives."
        ),
        base="python",
        cases=CASES,
        ways=ways(),
        targets=[Target(case, "go_scope", 0.85) for case in CASES if "_12_" not in case],
        sittings=2,
    )


STEPS = 10_000


def facts() -> dict[str, str]:
    """What a module costs, how memory goes on in long training, and what programs cost that use
    neither."""
    over = special("module")
    found = {
        f"`nn.{name}` beyond its function, 2×2": f"{over[key]:.0f} ns (target 300)"
        for key, name in {"linear": "Linear", "relu": "ReLU"}.items()
    }
    for model in ("transformer", "lstm", "encoder"):
        memory = special("steps", f"{model}_1_foreach", str(STEPS))
        found[f"{STEPS:,} steps of {MODELS[model]}, nothing freed by hand"] = (
            f"{memory['handles']:.0f} handles and {memory['grown_mb']:.0f} MB more than after the "
            f"first {STEPS // 10:,}, at most {memory['peak_mb']:.0f} MB (targets 32; 20; 150)"
        )
    return found | building.facts()
