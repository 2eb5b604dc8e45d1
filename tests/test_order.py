"""Gradients are summed up in Python's order, whatever threads a goroutine has computed on.

Programs are made at random, trained here and in a goroutine that Go moves from thread to thread between
ops (gotorch/internal/programs), and have to end with the same bits, hooks in the same order.
"""

from __future__ import annotations

import json
import random
import subprocess
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from pytorch_bridge.native.toolchain import ROOT
from pytorch_bridge.testing.gotests import run_go

PROGRAMS, RUNS = 25, 4
OPS = [
    *("mm", "add", "mul", "tanh", "softmax", "layer_norm", "cell", "in_place", "halves"),
    *("checkpoint", "function", "hook", "handed"),
]

Step = dict[str, Any]
Program = dict[str, Any]


def random_program(seed: int) -> Program:
    """Many uses of few tensors: gradients with many contributions."""
    choose = random.Random(seed)
    leaves = 3
    steps: list[Step] = []
    for n in range(leaves, leaves + choose.randint(10, 40)):
        # The leaves, and what was computed last.
        among = [*range(leaves), *range(max(leaves, n - 6), n)]
        by = choose.choice([0.25, 0.5, 0.3])
        a, b = choose.choice(among), choose.choice(among)
        steps.append({"op": choose.choice(OPS), "a": a, "b": b, "by": by})
    return {"leaves": leaves, "steps": steps, "twice": seed % 3 == 0}


class Times(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, by):
        ctx.save_for_backward(x)
        ctx.by = by
        return x * by

    @staticmethod
    def backward(ctx, g):
        _ = ctx.saved_tensors
        return g * ctx.by, None


def compute(program: Program, all: list[Tensor], hooked: list[float]) -> list[Tensor]:
    for i, step in enumerate(program["steps"]):
        a, b, by = all[step["a"]], all[step["b"]], step["by"]
        match step["op"]:
            case "mm":
                y = a.mm(b) * by
            case "add":
                y = a.add(b, alpha=by)
            case "mul":
                y = a * b
            case "tanh":
                y = a.tanh()
            case "softmax":
                y = a.softmax(-1)
            case "layer_norm":
                y = torch.layer_norm(a, [8])
            case "cell":
                y = torch.rnn_tanh_cell(a, b, all[0], all[1])
            case "in_place":
                y = a * by
                y.add_(b)
            case "halves":
                first, second = a.chunk(2, 1)
                y = torch.cat([second, first * second], 1)
            case "checkpoint":

                def f(x, w=b):
                    return x.mm(w).tanh().mul(x).add(w)

                y = checkpoint(f, a, use_reentrant=False)
            case "function":
                y = Times.apply(a, by)
            case "handed":
                y = a * by

                def hand(g, i=i, b=b):
                    hooked.append(i)
                    return ((g * b).tanh() + g) * b

                y.register_hook(hand)
            case "hook":
                y = a * 1

                def hook(g, i=i, by=by):
                    hooked.append(i)
                    return g * by

                y.register_hook(hook)
        all.append(y)
    return all[-3:]


def train(program: Program, leaves: list[Tensor]) -> list[Tensor]:
    hooked: list[float] = []
    leaves = [leaf.clone().requires_grad_() for leaf in leaves]
    for i, leaf in enumerate(leaves):
        leaf.register_post_accumulate_grad_hook(lambda _, i=i: hooked.append(-i - 1))
    for _ in range(3):
        loss: Any = 0
        for i, y in enumerate(compute(program, list(leaves), hooked)):
            mean = y.pow(2).mean()
            loss = mean if i == 0 else loss + mean
        if program["twice"]:
            options = {"create_graph": True, "materialize_grads": True}
            for g in torch.autograd.grad(loss, leaves, **options):
                loss = loss + g.pow(2).sum()
        loss.backward()
        with torch.no_grad():
            for leaf in leaves:
                if leaf.grad is not None:
                    leaf.sub_(leaf.grad, alpha=0.05)
                    leaf.grad = None
    return [torch.tensor(hooked, dtype=torch.float64), *(leaf.detach() for leaf in leaves)]


# Where the order depends on what a pass records after a hook that another goroutine has run.
HANDED: Program = {
    "leaves": 3,
    "steps": [
        {"op": op, "a": a, "b": b, "by": by}
        for op, a, b, by in [
            ("add", 0, 2, 0.3), ("add", 2, 3, 0.3), ("add", 2, 1, 0.25), ("add", 5, 2, 0.25),
            ("handed", 1, 0, 0.25), ("add", 1, 5, 0.5), ("add", 0, 7, 0.25), ("add", 6, 4, 0.5),
            ("add", 9, 5, 0.3), ("add", 10, 1, 0.25), ("add", 9, 7, 0.25), ("add", 0, 10, 0.3),
            ("layer_norm", 11, 14, 0.25), ("add", 10, 14, 0.25),
        ]
    ],
    "twice": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def programs() -> list[Program]:
    return [*(random_program(seed) for seed in range(PROGRAMS - 1)), HANDED]


@pytest.fixture(scope="module")
def leaves(programs) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(5)
    return {
        f"{n}.{i}": torch.randn(8, 8, generator=g) / 3
        for n, program in enumerate(programs)
        for i in range(program["leaves"])
    }


@pytest.fixture(scope="module")
def trained_in_go(library, programs, leaves, tmp_path_factory) -> dict[str, Tensor]:
    folder = tmp_path_factory.mktemp("programs")
    (folder / "programs.json").write_text(json.dumps(programs))
    torch.save(leaves, folder / "in.pt")
    files = [str(folder / name) for name in ("programs.json", "in.pt", "out.pt")]
    done = run_go("run", "-buildvcs=false", "./gotorch/internal/programs", *files, str(RUNS))
    assert done.returncode == 0, done.stdout + done.stderr
    return torch.load(folder / "out.pt", weights_only=True)


@pytest.mark.parametrize("n", range(PROGRAMS))
def test_a_goroutine_that_changes_threads_ends_with_pythons_bits(
    trained_in_go, programs, leaves, n
):
    program = programs[n]
    wanted = train(program, [leaves[f"{n}.{i}"] for i in range(program["leaves"])])
    assert all(t.isfinite().all() for t in wanted)
    for run in range(RUNS):
        for i, w in enumerate(wanted):
            got = trained_in_go[f"{n}.{run}.{i}"]
            assert torch.equal(got, w), f"run {run}: tensor {i} differs"


@pytest.mark.smoke
def test_numbers_of_nodes(library, tmp_path):
    """That libtorch's variable is found, for one: cgotorch/test/sequence_test.cc."""
    source, program = ROOT / "cgotorch/test/sequence_test.cc", tmp_path / "sequence_test"
    libraries = library.torch.lib
    link = [f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-ltorch_cpu", "-lc10"]
    command = [*library.compiler.command, *library.compile_flags(), str(source)]
    link += ["-Wl,--allow-shlib-undefined"]
    subprocess.run([*command, "-o", str(program), *link], check=True)
    done = subprocess.run([program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok") == 12
