"""Hooks of state dicts run in PyTorch's order and change what they change there; partial loads report the same."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import nn

from pytorch_bridge.codegen.generate import reference_is_installed

if not reference_is_installed():
    pytest.skip("what Go follows is the torch that it was generated for", allow_module_level=True)

from pytorch_bridge.testing.conformance.harness import Harness, Request

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("one_thread")]

STATE_HOOKS = -51
RUNS = 60


class Remembering(nn.Module):
    """A module with more state than its tensors, as statehooks.go has it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2))
        self.inner = nn.Linear(1, 2, bias=False)
        self.extra = torch.zeros(1)

    def get_extra_state(self) -> torch.Tensor:
        return self.extra

    def set_extra_state(self, state: torch.Tensor) -> None:
        if state.numel() > 2:
            raise ValueError("too much")
        self.extra = state.clone()


class Model(nn.Module):
    """The model of statehooks.go."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(2, 3)
        self.norm = nn.BatchNorm1d(3)
        blocks = [nn.Linear(3, 3, bias=False), nn.Sequential(nn.Linear(3, 1), nn.ReLU())]
        self.blocks = nn.ModuleList(blocks)
        self.special = Remembering()
        for p in self.parameters():
            nn.init.zeros_(p)


def run_python(
    actions: list[str], given: dict[str, torch.Tensor], partial: bool
) -> tuple[list[str], list[str], list[str], list[str], bool, dict[str, torch.Tensor]]:
    model, log = Model(), []

    def say(kind: str, prefix: str, names: Any) -> None:
        if prefix != "blocks.":  # a list is no module in Go
            log.append(f"{kind} {prefix}: {' '.join(names)}")

    def each(kind: str, prefix: str) -> list[list[str]]:
        parts = [a.split("|") for a in actions]
        return [p[2:] for p in parts if p[:2] == [kind, f"{prefix}."]]

    def change(kind: str, state: dict[str, Any], prefix: str) -> None:
        say(kind, prefix, sorted(state))
        for what, name in each(kind, prefix):
            if what == "drop":
                state.pop(name, None)
            elif what == "add":
                state[name] = torch.zeros(1)
            elif name in state:
                state[name] = torch.ones_like(state[name])

    for name, m in model.named_modules():

        def post(module: nn.Module, keys: Any, prefix: str = name and f"{name}.") -> None:
            total = sum(p.detach().sum().item() for p in model.parameters())
            say("load_post", prefix, [f"{total:.0f}", *keys.missing_keys, *keys.unexpected_keys])
            for what, key in each("load_post", prefix):
                if what == "drop":
                    keys.missing_keys.clear()
                    keys.unexpected_keys.clear()
                else:
                    keys.unexpected_keys.append(key)

        m.register_state_dict_pre_hook(lambda m, prefix, keep: say("save_pre", prefix, []))
        m.register_state_dict_post_hook(lambda m, d, prefix, meta: change("save_post", d, prefix))
        m.register_load_state_dict_pre_hook(lambda m, d, prefix, *a: change("load_pre", d, prefix))
        m.register_load_state_dict_post_hook(post)
    saved = sorted(model.state_dict())
    missing: list[str] = []
    unexpected: list[str] = []

    def last(module: nn.Module, keys: Any) -> None:
        missing.extend(keys.missing_keys)
        unexpected.extend(keys.unexpected_keys)

    model.register_load_state_dict_post_hook(last)
    try:
        model.load_state_dict(given, strict=not partial)
        failed = False
    except (RuntimeError, ValueError):
        failed = True
    after = {n: t.detach() for n, t in [*model.named_parameters(), *model.named_buffers()]}
    return log, saved, missing, unexpected, failed, {**after, "extra": model.special.extra}


def case(seed: int) -> tuple[list[str], dict[str, torch.Tensor], bool]:
    """What hooks do, and what is loaded: names are missing, more than enough, or of another shape."""
    draw = random.Random(seed)
    names = list(Model().state_dict())
    given = {n: torch.randint(1, 9, t.shape).to(t.dtype) for n, t in Model().state_dict().items()}
    for name in draw.sample(names, draw.choice((0, 0, 1, 2))):
        if "num_batches_tracked" not in name:
            del given[name]
    for name in draw.sample(
        ["more", "stem.more", "blocks.1.7.weight", "special.inner.x.y", "norm._extra_state"],
        draw.choice((0, 0, 1, 2)),
    ):
        given[name] = torch.ones(1)
    if draw.random() < 0.15:
        given["stem.weight"] = torch.ones(5)
    if draw.random() < 0.15:
        given["special._extra_state"] = torch.ones(3)
    prefixes = [
        "",
        "stem.",
        "norm.",
        "blocks.0.",
        "blocks.1.",
        "blocks.1.0.",
        "special.",
        "special.inner.",
    ]
    actions = []
    for _ in range(draw.choice((0, 1, 2, 3))):
        kind = draw.choice(("save_post", "load_pre", "load_post"))
        what = draw.choice(("drop", "add", "ones"))
        name = draw.choice([*names, "more", "stem.more"])
        if kind == "load_post":
            what = "drop" if what == "ones" else what
        if "num_batches_tracked" in name or ("_extra_state" in name and what != "drop"):
            continue
        actions.append("|".join((kind, f"{draw.choice(prefixes)}.", what, name)))
    return actions, dict(sorted(given.items())), draw.random() < 0.5


def differs(harness: Harness, seed: int) -> str:
    actions, given, partial = case(seed)
    log, saved, missing, unexpected, failed, state = run_python(actions, given, partial)
    request = Request([STATE_HOOKS, 0, 0])
    request.value("str[]", actions)
    request.value("str[]", list(given))
    request.value("Tensor[]", list(given.values()))
    request.words.append(int(partial))
    results, _ = harness.send(request)
    ours_log, ours_saved, ours_missing, ours_unexpected, text, names, values = results
    if "too much" not in text:  # Python's hooks stop there
        pairs = [
            (ours_log[:-1], log),
            (ours_missing or [], missing),
            (sorted(ours_unexpected or []), sorted(unexpected)),
        ]
        for ours, theirs in pairs:
            if ours != theirs:
                return f"{seed} {actions}: " + str(
                    [p for p in zip(ours, theirs, strict=False) if p[0] != p[1]][:3]
                )
    if saved != ours_saved:
        return f"{seed} {actions}: saved {ours_saved}, not {saved}"
    if bool(text) != failed:
        return f"{seed} {actions}: the error is {text!r}, Python's is {failed}"
    wanted = {**Model().state_dict(), "extra": torch.zeros(1)} if failed else state
    for name, value in zip(names, values, strict=True):
        if not torch.equal(wanted[name], value):  # after an error everything is as before
            return f"{seed} {actions}: {name} is {value}, not {wanted[name]}"
    return ""


def test_hooks_at_random(harness: Harness) -> None:
    problems = [p for seed in range(RUNS) if (p := differs(harness, seed))]
    assert not problems, "\n".join(problems[:10])


def test_the_cases_reach_everything() -> None:
    ends = [run_python(*case(seed)) for seed in range(RUNS)]
    assert {e[4] for e in ends} == {True, False}
    assert any(e[2] for e in ends)
    assert any(e[3] for e in ends)
    kinds = {a.split("|")[0] for seed in range(RUNS) for a in case(seed)[0]}
    assert kinds == {"save_post", "load_pre", "load_post"}


def test_a_fault_is_found(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a hook in Python that does not do what Go's does, the comparison says so."""
    right = case

    def wrong(seed: int) -> Any:
        actions, given, partial = right(seed)
        return ["load_pre|stem..|ones|stem.weight", *actions], given, partial

    ours = iter(range(10))
    monkeypatch.setitem(globals(), "case", lambda seed: (wrong if next(ours) else right)(seed))
    monkeypatch.setitem(globals(), "run_python", lambda a, g, p, run=run_python: run([], g, p))
    assert any(differs(harness, seed) for seed in range(5))


def test_no_handle_is_left(harness: Harness) -> None:
    left = []
    for _ in range(3):
        for seed in range(10):
            differs(harness, seed)
        left.append(harness.collect())
    assert left[1] == left[2] == left[0], left
