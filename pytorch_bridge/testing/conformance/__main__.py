"""Runs the suite from the command line, for instance on one operator while mending it:

    python -m pytorch_bridge.testing.conformance addmm softmax

All dtypes and samples of the entries of PyTorch's database whose names contain one of the words;
`--by-hand` adds the cases written by hand, `--errors` the bad inputs. What differs is printed, one
line each. With --json the names of the functions that failed, and the count of leaked handles, are
printed instead.
"""

from __future__ import annotations

import argparse
import json
import sys
import types
from pathlib import Path

import torch

from . import by_hand
from .harness import Harness
from .suite import Suite, names


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m pytorch_bridge.testing.conformance", description=__doc__.splitlines()[0]
    )
    parser.add_argument("words", nargs="*", help="parts of the names of entries; none is all")
    parser.add_argument("--library", type=Path, help="a harness that is built already")
    parser.add_argument("--slice", action="store_true", help="only what `make test` runs")
    parser.add_argument("--by-hand", action="store_true")
    parser.add_argument("--errors", action="store_true")
    parser.add_argument("--device", default="cpu", help="where the samples are, as cuda")
    parser.add_argument("--load", help="a library of operators, such as that of a device")
    parser.add_argument("--dtype", action="append", help="only this one, as float32; or these")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--exact", action="store_true", help="the words are whole names")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.load:
        torch.ops.load_library(asked.load)
        backend = torch._C._get_privateuse1_backend_name()
        if not hasattr(torch, backend):  # Python asks it for what is made late: nothing here
            module = types.ModuleType(f"torch.{backend}")
            module.__dict__.update(_is_in_bad_fork=lambda: False, manual_seed_all=lambda seed: None)
            torch._register_device_module(backend, module)
    suite = Suite(Harness(asked.library), full=not asked.slice, device=asked.device)
    if asked.dtype:
        suite.dtypes = [getattr(torch, name) for name in asked.dtype]
    before = suite.harness.collect()
    problems = []
    for name in asked.words if asked.exact else names(asked.words):
        problems += suite.entry(name)
        if asked.errors:
            problems += suite.errors(name)
    if asked.by_hand:
        for section in by_hand.SECTIONS:
            problems += suite.by_hand(section)
    leaked = suite.harness.collect() - before
    if asked.json:
        failed = {n: t.failed for n, t in sorted(suite.tallies.items()) if t.failed}
        passed = sum(t.passed for t in suite.tallies.values())
        told = {"failed": failed, "leaked": leaked, "problems": problems, "passed": passed}
        print(json.dumps(told))
        return 0
    print("\n".join(problems))
    passed = sum(t.passed + t.errors for t in suite.tallies.values())
    print(f"{passed} cases passed, {len(problems)} problems, {leaked} handles leaked")
    return 1 if problems or leaked else 0


if __name__ == "__main__":
    sys.exit(main())
