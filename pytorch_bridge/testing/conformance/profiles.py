"""Holds package profiler to torch.profiler: both watch the same calls, and what differs is a fault.

Two observers of one run see the same events, so that everything has to be equal but times: names,
overloads, shapes, dtypes, what is within what, FLOPs, bytes, sequence numbers.
"""

from __future__ import annotations

import contextlib
import gc
import json
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.autograd.profiler_util import EventList, FunctionEvent

from .harness import Harness, Request

START, STOP = -160, -161

Event = dict[str, Any]


class Recorded:
    """What Go has recorded: events, averages, and the Chrome trace's text."""

    def __init__(self, harness: Harness, by_shape: bool) -> None:
        (text, self.chrome), _ = harness.send(Request([STOP, 0, 0, int(by_shape)]))
        found = json.loads(text)
        self.events: list[Event] = found["events"] or []
        self.averages: list[dict[str, Any]] = found["averages"] or []


def both_record(
    harness: Harness, run: Callable[[], Any], by_shape: bool = True
) -> tuple[EventList, Recorded]:
    """What torch.profiler and Go say of the same run."""
    config = torch._C._profiler._ExperimentalConfig(capture_overload_names=True)
    # Garbage that is freed while only one of them watches would be an event more.
    harness.collect()
    gc.collect()
    with (
        _without_collector(),
        torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU],
            record_shapes=True,
            profile_memory=True,
            with_flops=True,
            experimental_config=config,
        ) as python,
    ):
        harness.send(Request([START, 0, 0]))
        try:
            run()
        finally:
            go = Recorded(harness, by_shape)
    return python.events(), go


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def go_records(harness: Harness, run: Callable[[], Any], by_shape: bool = True) -> Recorded:
    """What Go says of a run that nobody else watches."""
    harness.send(Request([START, 0, 0]))
    try:
        run()
    finally:
        go = Recorded(harness, by_shape)
    return go


def python_event(e: FunctionEvent, numbers: dict[int, int]) -> Event:
    """An event as harness/profiling.go writes one."""
    kind = "Op"
    if e.name == "[memory]":
        kind = "Memory"
    elif e.is_user_annotation:
        kind = "Range"
    elif e.scope == 1 or e.name.startswith("autograd::engine::evaluate_function: "):
        kind = "Backward"
    shapes = [list(s) for s in e.input_shapes or []]
    return {
        "Name": e.name,
        "Overload": e.overload_name,
        "Kind": kind,
        "Parent": numbers[id(e.cpu_parent)] if e.cpu_parent is not None else -1,
        "Shapes": shapes,
        "Types": list(e.input_dtypes or []),
        "FLOPs": e.flops or 0,
        "Memory": e.cpu_memory_usage,
        "Sequence": e.sequence_nr if e.scope in (0, 1) else -1,
    }


def differences(theirs: EventList, go: Recorded) -> list[str]:
    """What differs between the two."""
    python = [e for e in theirs if e.device_type == DeviceType.CPU]
    numbers = {id(e): i for i, e in enumerate(python)}
    wanted = [python_event(e, numbers) for e in python]
    keys = list(wanted[0]) if wanted else []
    got = [
        {
            k: (e[k] or []) if k in ("Types", "Shapes") else e[k]
            for k in keys
        }
        for e in go.events
    ]  # fmt: skip
    for e in got:
        if e["Kind"] == "Range":
            e["Sequence"] = -1
    problems = []
    if len(wanted) != len(got):
        names = [e["Name"] for e in wanted], [e["Name"] for e in got]
        return [f"{len(got)} events, not {len(wanted)}: {names[1]}, not {names[0]}"]
    for w, g in zip(wanted, got, strict=True):
        problems += [
            f"{w['Name']}: {k} is {g[k]!r}, not {w[k]!r}" for k in keys if w[k] != g[k]
        ]  # fmt: skip
    return problems


def of_averages(theirs: EventList, go: Recorded, by_shape: bool = True) -> list[str]:
    """What differs between the tables."""
    wanted = {}
    for a in theirs.key_averages(group_by_input_shapes=by_shape):
        shapes = str([list(s) for s in a.input_shapes]) if by_shape else ""
        kind = a.is_user_annotation
        wanted[a.key, kind, shapes] = (
            a.count, a.flops, a.cpu_memory_usage, a.self_cpu_memory_usage,
        )  # fmt: skip
    got = {}
    for a in go.averages:
        shapes = str(a["Shapes"]) if by_shape else ""
        got[a["Key"], a["Kind"] == "Range", shapes] = (
            a["Count"], a["FLOPs"], a["Memory"], a["Self"],
        )  # fmt: skip
    return [
        f"{key}: {got.get(key)}, not {wanted.get(key)}"
        for key in sorted({*wanted, *got})
        if got.get(key) != wanted.get(key)
    ]


def check_chrome(text: str) -> list[str]:
    """What is wrong with a Chrome trace, which is JSON: slices nest in their lane, arrows
    have two ends, lanes have names."""
    trace = json.loads(text)
    problems: list[str] = []
    lanes: dict[tuple[Any, Any], list[tuple[float, float, str]]] = {}
    named, used = set(), set()
    arrows: dict[int, list[str]] = {}
    for e in trace["traceEvents"]:
        lane = e["pid"], e["tid"]
        match e["ph"]:
            case "X":
                if e["ts"] < 0 or e["dur"] < 0:
                    problems.append(f"{e['name']} is at {e['ts']} for {e['dur']}")
                lanes.setdefault(lane, []).append((e["ts"], e["dur"], e["name"]))
                used.add(lane)
            case "M":
                if e["name"] == "thread_name":
                    named.add(lane)
            case "s" | "f":
                arrows.setdefault(e["id"], []).append(e["ph"])
            case "i":
                used.add(lane)
            case other:
                problems.append(f"there is a phase {other}")
    problems += [f"the lane {lane} has no name" for lane in used - named]
    problems += [
        f"the arrow {i} has ends {ends}" for i, ends in arrows.items() if ends != ["s", "f"]
    ]
    for slices in lanes.values():
        open_until: list[float] = []
        for ts, dur, name in slices:  # as they are written: outer ones first
            while open_until and ts >= open_until[-1] - 1e-9:
                open_until.pop()
            if open_until and ts + dur > open_until[-1] + 2e-3:
                problems.append(
                    f"{name} ends at {ts + dur}, after what is around it: {open_until[-1]}"
                )
            open_until.append(ts + dur)
    return problems
