"""One stage of one model, in a process of its own: what it prints last is its result, as JSON.

model   exported, imported, compiled; the same verdicts and bits as program.module()
go      exported as a Go package, whose tests run with the same inputs
torch   compiled by torch.compile, for its speed
"""

from __future__ import annotations

import json
import resource
import shutil
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...native import toolchain
from .catalogue import ZooModel, entries

SIZES = 3  # how many are compared
ROUNDS, SECONDS = 15, 20.0  # of measuring


def prepare(entry: ZooModel) -> tuple[Any, Callable[..., tuple[Any, ...]]]:
    """The model, with weights that tell everything that could be confused."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, inputs = entry.make()
    model = model.eval()
    perturb(model)
    return model, inputs


def perturb(model: Any) -> None:
    """Makes what is the same everywhere in a new model, such as the statistics and scales of norms,
    differ."""
    import torch

    with torch.no_grad():
        for name, t in [*model.named_parameters(), *model.named_buffers()]:
            if not t.is_floating_point() or t.numel() == 0:
                continue
            if name.endswith("running_var"):
                t.copy_(0.5 + torch.rand(t.shape))
            elif name.endswith("running_mean"):
                t.copy_(0.1 * torch.randn(t.shape))
            elif isinstance(t, torch.nn.Parameter) and bool((t == t.flatten()[0]).all()):
                t.add_(0.1 * torch.randn(t.shape).to(t.dtype))


def arguments(inputs: Callable[..., tuple[Any, ...]], sizes: Sequence[int]) -> tuple[Any, ...]:
    """The same every time."""
    import torch

    torch.manual_seed(sum(sizes))
    return inputs(*sizes)


def exported(entry: ZooModel, model: Any, inputs: Callable[..., tuple[Any, ...]]) -> Any:
    import torch

    first = entry.sizes[0]
    args = arguments(inputs, first)
    shapes = tuple(dict.fromkeys(range(len(first)), torch.export.Dim.AUTO) for _ in args)
    with torch.no_grad():
        return torch.export.export(model, args, dynamic_shapes=shapes)


def flat(value: Any) -> list[Any]:
    from torch.utils import _pytree

    return _pytree.tree_leaves(value)


def bits(t: Any) -> Any:
    import torch

    if not isinstance(t, torch.Tensor):
        return t
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    t = torch.view_as_real(t) if t.is_complex() else t
    return t.contiguous().view(whole[t.element_size()])


def difference(ours: Any, theirs: Any) -> str | None:
    """What is not the same about results, None where every bit is."""
    import torch

    mine, expected = flat(ours), flat(theirs)
    if len(mine) != len(expected):
        return f"{len(mine)} results for {len(expected)}"
    for i, (a, b) in enumerate(zip(mine, expected, strict=True)):
        if not isinstance(b, torch.Tensor):
            if a != b:
                return f"result {i} is {a} for {b}"
        elif (a.dtype, a.shape, a.stride()) != (b.dtype, b.shape, b.stride()):
            return (
                f"result {i} is {a.dtype} {tuple(a.shape)} {a.stride()} "
                f"for {b.dtype} {tuple(b.shape)} {b.stride()}"
            )
        elif not torch.equal(bits(a), bits(b)):
            off = (a.double() - b.double()).abs().max().item() if not a.is_complex() else "?"
            return f"result {i} differs by up to {off}"
    return None


def informative(value: Any) -> bool:
    """Whether results are numbers of which most are finite, and not all the same."""
    import torch

    for t in flat(value):
        if isinstance(t, torch.Tensor) and t.is_floating_point() and t.numel() > 1:
            return bool(t.isfinite().float().mean() > 0.5) and bool((t != t.flatten()[0]).any())
    return True


def refusal(call: Callable[..., Any], args: Sequence[Any]) -> tuple[Any, str | None]:
    """What a call returns, or what it raises."""
    try:
        return call(*args), None
    except Exception as e:
        return None, f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}"


def cpu(who: int = resource.RUSAGE_SELF) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def ratio(eager: Callable[..., Any], ours: Callable[..., Any], args: Sequence[Any]) -> list[float]:
    """CPU milliseconds of both, measured in turn, so that what else goes on hits both."""
    times: list[list[float]] = [[], []]
    for call in (eager, ours):
        call(*args)
    start = time.monotonic()
    while len(times[0]) < ROUNDS and (time.monotonic() - start < SECONDS or len(times[0]) < 3):
        for taken, call in zip(times, (eager, ours), strict=True):
            before = time.process_time()
            call(*args)
            taken.append((time.process_time() - before) * 1e3)
    return [round(statistics.median(t), 3) for t in times]


def model_stage(entry: ZooModel) -> dict[str, Any]:
    import torch

    import pytorch_bridge as pb
    from pytorch_bridge.native import extension  # noqa: F401  # may be compiled now, and is no model's

    model, inputs = prepare(entry)
    found: dict[str, Any] = {"stage": "export"}
    try:
        before = cpu()
        program = exported(entry, model, inputs)
        theirs = program.module()
        found |= {"export": round(cpu() - before, 2), "stage": "import"}
        found["nodes"] = sum(n.op == "call_function" for n in program.graph.nodes)
        before = cpu()
        imported = pb.from_exported(program)
        found |= {"import": round(cpu() - before, 2), "stage": "compile"}
        before, children = cpu(), cpu(resource.RUSAGE_CHILDREN)
        compiled = imported.compile()
        found["rewrite"] = round(cpu() - before, 2)
        found["compiler"] = round(cpu(resource.RUSAGE_CHILDREN) - children, 2)
        found["stage"] = "compare"
        with torch.no_grad():
            equal = 0
            for sizes in entry.sizes:
                args = arguments(inputs, sizes)
                expected, refused = refusal(theirs, args)
                mine, error = refusal(compiled, args)
                if (refused is None) != (error is None):
                    raise AssertionError(f"sizes {sizes}: ours {error}, module() {refused}")
                if refused is not None:
                    found.setdefault("refused", []).append([list(sizes), error, refused])
                    continue
                differs = difference(mine, expected)
                if differs is not None:
                    raise AssertionError(f"sizes {sizes}: {differs}")
                found["informative"] = found.get("informative", True) and informative(expected)
                equal += 1
                if equal == SIZES:
                    break
            found |= {"equal": equal, "stage": "measure"}
            args = arguments(inputs, entry.sizes[0])
            found["eager"], found["ours"] = ratio(model, compiled, args)
        found["stage"] = "done"
    except Exception as e:
        found["error"] = "".join(traceback.format_exception_only(e)).strip()
    return found


def go_stage(entry: ZooModel) -> dict[str, Any]:
    import pytorch_bridge as pb
    from pytorch_bridge.testing.gotests import run_go

    model, inputs = prepare(entry)
    found: dict[str, Any] = {"stage": "export", "equal": 0}
    try:
        program = exported(entry, model, inputs)
        imported = pb.from_exported(program)
        where = Path(tempfile.mkdtemp(prefix="zoo-", dir=toolchain.variable("ZOO_FOLDER")))
        try:
            theirs = program.module()
            for sizes in entry.sizes:
                args = arguments(inputs, sizes)
                if refusal(theirs, args)[1] is not None:
                    continue
                target = pb.export_go(
                    imported, where / "net", module="example.org/net", example=flat(args)
                )
                if not found["equal"]:
                    before = cpu(resource.RUSAGE_CHILDREN)
                    built = run_go("test", "-run", "none", ".", cwd=target)
                    if built.returncode:
                        raise AssertionError(built.stdout + built.stderr)
                    found["build"] = round(cpu(resource.RUSAGE_CHILDREN) - before, 2)
                done = run_go("test", "-count=1", "-v", ".", cwd=target)
                if done.returncode or "--- SKIP" in done.stdout:
                    raise AssertionError(f"sizes {sizes}: {done.stdout}{done.stderr}")
                found["equal"] += 1
                if found["equal"] == SIZES:
                    break
        finally:
            shutil.rmtree(where, ignore_errors=True)
        found["stage"] = "done"
    except Exception as e:
        found["error"] = "".join(traceback.format_exception_only(e)).strip()
    return found


def torch_stage(entry: ZooModel) -> dict[str, Any]:
    import torch

    model, inputs = prepare(entry)
    found: dict[str, Any] = {"stage": "compile"}
    try:
        args = arguments(inputs, entry.sizes[0])
        with torch.no_grad():
            faster = torch.compile(model)
            before = time.process_time(), cpu(resource.RUSAGE_CHILDREN)
            faster(*args)
            after = time.process_time(), cpu(resource.RUSAGE_CHILDREN)
            found["compile"] = round(sum(after) - sum(before), 2)
            found["eager"], found["theirs"] = ratio(model, faster, args)
        found["stage"] = "done"
    except Exception as e:
        found["error"] = "".join(traceback.format_exception_only(e)).strip()[:2000]
    return found


STAGES = {"model": model_stage, "go": go_stage, "torch": torch_stage}


def main() -> int:
    key, stage = sys.argv[1:]
    (entry,) = (e for e in entries() if e.key == key)
    print(json.dumps(STAGES[stage](entry)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
