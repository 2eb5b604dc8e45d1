"""Runs the models, one process at a time, and writes docs/models.md:

    python -m pytorch_bridge.testing.zoo              all that has no result yet
    python -m pytorch_bridge.testing.zoo swin gpt2    those with these words in their names, again
    python -m pytorch_bridge.testing.zoo --report     only the page

Results are in build/zoo, one file for each model, so that it may be stopped and started.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ...native.toolchain import ROOT, build_dir
from . import report
from .catalogue import GO, ZooModel, entries

# What one stage of one model may take, with all processes that it starts.
CPU_SECONDS = {"model": 600, "go": 900, "torch": 900}
SECONDS = 3600  # on the clock, for one that hangs
GIGABYTES = 7


def used(group: int) -> tuple[float, int]:
    """CPU seconds and bytes in memory of all processes of a group."""
    seconds, size = 0.0, 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group:
            seconds += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
            size += int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    return seconds, size


def limited(command: list[str], seconds: float) -> tuple[str, str | None]:
    """What a command prints, and why it was ended or failed."""
    with tempfile.TemporaryDirectory(prefix="zoo-") as folder, tempfile.TemporaryFile("w+") as out:
        # Compiled graphs go there, so that compile times are those of compiling.
        env = {**os.environ, "GOTORCH_CACHE": folder, "ZOO_FOLDER": folder}
        env |= {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "TOKENIZERS_PARALLELISM": "false"}
        env |= {
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_VERBOSITY": "error",
            "PYTHONWARNINGS": "ignore",
        }
        process = subprocess.Popen(
            command, cwd=ROOT, env=env, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
        reason = None
        start = time.monotonic()
        try:
            while process.poll() is None:
                time.sleep(0.5)
                taken, size = used(process.pid)
                if taken > seconds or time.monotonic() - start > SECONDS:
                    reason = f"ended after {taken:.0f} seconds of CPU"
                elif size > GIGABYTES << 30:
                    reason = f"ended with more than {GIGABYTES} GB in use"
                if reason is not None:
                    break
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if reason is None and process.returncode:
            reason = f"ended with status {process.returncode}"
        out.seek(0)
        return out.read(), reason


def run(entry: ZooModel, stage: str, under: str) -> dict[str, Any]:
    module = f"{__package__}.one"
    command = [*shlex.split(under), sys.executable, "-m", module, entry.key, stage]
    text, reason = limited(command, CPU_SECONDS[stage])
    if reason is None:
        return dict(json.loads(text.strip().splitlines()[-1]))
    return {"stage": "killed", "error": "\n".join([reason, *text.strip().splitlines()[-5:]])}


def main() -> int:
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}", description=__doc__)
    parser.add_argument("words", nargs="*", help="parts of names; these run again")
    parser.add_argument("--report", action="store_true", help="only write docs/models.md")
    parser.add_argument("--stage", action="append", choices=list(CPU_SECONDS), help="only this")
    parser.add_argument("--limit", type=int, default=1 << 30, help="stop after so many stages")
    parser.add_argument("--under", default="", help="a command to put in front, such as nice")
    asked = parser.parse_args()
    folder = build_dir() / "zoo"
    folder.mkdir(parents=True, exist_ok=True)
    bad = 0
    for entry in () if asked.report else entries():
        again = any(w in entry.key for w in asked.words)
        if asked.words and not again:
            continue
        path = folder / f"{entry.key}.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        for stage in CPU_SECONDS if entry.key in GO else ["model"]:
            if (stage in known and not again) or (asked.stage and stage not in asked.stage):
                continue
            if not asked.limit:
                return 0
            asked.limit -= 1
            known[stage] = found = run(entry, stage, asked.under)
            known["versions"] = report.versions()
            part = path.with_suffix(".part")
            part.write_text(json.dumps(known, indent=1) + "\n")
            part.replace(path)
            bad += "error" in found
            told = found.get("error", "the same bits").splitlines()[0]
            print(f"{entry.key} {stage}: {told}", flush=True)
    report.write(folder, ROOT / "docs/models.md")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
