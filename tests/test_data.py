"""Package data draws what torch.utils.data draws: samplers, loaders and splits, with options at random,
two epochs each, and the default generator is where Python's is afterwards.

tests/data is a Go program that gets the cases as lines of JSON. `CONFORMANCE=full` tries more of them.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import warnings
from typing import Any

import pytest
import torch
from torch.utils import data

from pytorch_bridge.native.toolchain import build_dir
from pytorch_bridge.testing.gotests import run_go

TRIED = 4000 if os.environ.get("CONFORMANCE") == "full" else 400


def case(rng: random.Random) -> dict[str, Any]:
    kind = rng.choice(
        ["sequential", "random", "random", "subset", "weighted", "split", "concat", "distributed"]
    )
    n = rng.choice([0, 1, 2, 31, 32, 33, rng.randrange(200)])
    made: dict[str, Any] = {"Kind": kind, "Seed": rng.randrange(2**32), "N": n}
    if rng.random() < 0.5:
        made["Own"] = rng.randrange(2**63)
    if kind == "random":
        made["Replacement"] = rng.random() < 0.5
        if rng.random() < 0.6:
            made["Num"] = rng.choice([-1, 0, 1, 32, 64, n, 2 * n, rng.randrange(1, 400)])
    if kind == "subset":
        made["Indices"] = [rng.randrange(n) for _ in range(rng.randrange(60))] if n else []
    if kind == "weighted":
        made["Weights"] = [rng.choice([0.0, 1.0, rng.random() * 10]) for _ in range(n)]
        made["Replacement"] = rng.random() < 0.6
        made["Num"] = rng.choice([-2, 0, 1, n, max(1, n // 3), rng.randrange(1, 300)])
    if kind == "distributed":
        replicas = rng.choice([1, 2, 3, 8, 300])
        made["Sets"] = [replicas, rng.choice([-1, replicas, *range(replicas)] * 2 + [0] * 9)]
        made |= {"Replacement": rng.random() < 0.6, "Drop": rng.random() < 0.5}
    if kind == "concat":
        made["Sets"] = [rng.choice([0, 1, 5]) for _ in range(rng.randrange(6))]
    if kind == "split":
        if rng.random() < 0.5:
            cuts = sorted(rng.randrange(n + 1) for _ in range(rng.randrange(4)))
            made["Lengths"] = [b - a for a, b in zip([0, *cuts], [*cuts, n], strict=True)]
            if rng.random() < 0.1 and n > 2:  # for Python lengths with the sum 1 are fractions
                made["Lengths"][0] += rng.choice([-1, 1])
        else:
            parts = [rng.randrange(1, 10) for _ in range(rng.randrange(1, 6))]
            made["Fractions"] = [p / sum(parts) for p in parts]
            if rng.random() < 0.1:
                made["Fractions"][0] += rng.choice([-0.2, 0.2, 1.5])
    elif kind not in ("concat", "distributed") and rng.random() < 0.7:
        made |= {"Batch": rng.choice([1, 2, 5, 16, 500]), "Drop": rng.random() < 0.4}
        if rng.random() < 0.8:
            made["As"] = rng.choice(["sampler", "batch_sampler", "shuffle", "sequential"])
            made["Workers"] = rng.choice([0, 0, 1, 3])
            if rng.random() < 0.5:
                made["Loader"] = rng.randrange(2**63)
    return made


def generator(seed: int | None) -> torch.Generator | None:
    return None if seed is None else torch.Generator().manual_seed(seed)


def sampler(c: dict[str, Any]) -> Any:
    own = generator(c.get("Own"))
    n = range(c["N"])
    match c["Kind"]:
        case "sequential":
            return data.SequentialSampler(n)
        case "random":
            return data.RandomSampler(n, c["Replacement"], c.get("Num"), own)
        case "subset":
            return data.SubsetRandomSampler(c["Indices"], own)
        case "weighted":
            return data.WeightedRandomSampler(c["Weights"], c["Num"], c["Replacement"], own)
    raise AssertionError(c)


def loader(c: dict[str, Any]) -> Any:
    options: dict[str, Any] = {"generator": generator(c.get("Loader")), "collate_fn": list}
    batching = {"batch_size": c["Batch"], "drop_last": c["Drop"]}
    match c["As"]:
        case "sampler":
            options |= {"sampler": sampler(c), **batching}
        case "batch_sampler":
            options["batch_sampler"] = data.BatchSampler(sampler(c), c["Batch"], c["Drop"])
        case "shuffle":
            options |= {"shuffle": True, **batching}
        case "sequential":
            options |= batching
    return data.DataLoader(range(c["N"]), **options)  # workers change nothing of the order


def drawn(c: dict[str, Any]) -> tuple[list[Any], int]:
    """The epochs, and the length."""
    if c["Kind"] == "split":
        lengths = c.get("Lengths", c.get("Fractions"))
        own = {} if "Own" not in c else {"generator": generator(c["Own"])}
        return [[list(part)] for part in data.random_split(range(c["N"]), lengths, **own)], 0
    if c["Kind"] == "concat":
        sets, first = [], 0
        for n in c["Sets"]:
            sets.append(range(first, first + n))
            first += n
        joined = data.ConcatDataset(sets)
        return [[[joined[i] for i in range(len(joined))]]], 0
    if c["Kind"] == "distributed":
        s = data.DistributedSampler(
            range(c["N"]), *c["Sets"], c["Replacement"], c["Seed"], c["Drop"]
        )
        epochs = []
        for epoch in range(3):
            s.set_epoch(epoch)
            epochs.append([list(s)])
        return epochs, len(s)
    if "Batch" not in c:
        s = sampler(c)
        return [[list(s)] for _ in range(2)], len(s)
    every = loader(c) if "As" in c else data.BatchSampler(sampler(c), c["Batch"], c["Drop"])
    return [list(every) for _ in range(2)], len(every)


def python(c: dict[str, Any]) -> dict[str, Any]:
    torch.manual_seed(c["Seed"])
    answer: dict[str, Any] = {"Epochs": None, "Len": 0, "Error": ""}
    try:
        answer["Epochs"], answer["Len"] = drawn(c)
    except (ValueError, RuntimeError, AssertionError, ZeroDivisionError, TypeError) as error:
        answer["Error"] = f"{type(error).__name__}: {error}"
    answer["Next"] = int(torch.randint(2**40, (1,)).item())
    return answer


@pytest.fixture(scope="module")
def go(library):
    program = build_dir() / "bin/data"
    built = run_go("build", "-buildvcs=false", "-o", str(program), "./tests/data")
    assert built.returncode == 0, built.stderr

    def answers(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
        text = "".join(json.dumps(c) + "\n" for c in cases)
        done = subprocess.run([program], input=text, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return answers


# An empty set has no order in Python, where RandomSampler refuses it in the one form and divides by zero in the other.
def empty(c: dict[str, Any]) -> bool:
    return c["N"] == 0 and (c["Kind"] == "random" or c.get("As") == "shuffle")


def test_go_draws_what_pytorch_draws(go):
    rng = random.Random(5)
    cases = [case(rng) for _ in range(TRIED)]
    problems, errors = [], 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # parts without samples
        for c, got in zip(cases, go(cases), strict=True):
            want = python(c)
            if want["Error"]:
                errors += 1
                if not got["Error"] and not empty(c):
                    problems.append((c, "Go draws, and Python says", want["Error"]))
            elif got != want:
                problems.append((c, got, want))
    assert not problems, f"{len(problems)} differ:\n" + "\n".join(map(str, problems[:5]))
    assert TRIED // 40 < errors < TRIED // 3


def test_a_fault_is_found(go):
    c = {
        "Kind": "random",
        "Seed": 1,
        "N": 40,
        "Replacement": True,
        "Batch": 4,
        "Drop": False,
        "As": "sampler",
    }
    assert go([c])[0] == python(c)
    for change in ({"Seed": 2}, {"Replacement": False}, {"N": 41}, {"Batch": 5}, {"Own": 3}):
        assert go([c | change])[0] != python(c), change
