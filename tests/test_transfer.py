"""examples/transfer, as a user runs it: Python trains, Go goes on from its weights, and Python reads those."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from safetensors.torch import load_file

from pytorch_bridge.native.toolchain import ROOT
from pytorch_bridge.testing.gotests import run_go

EXAMPLE = ROOT / "examples/transfer"


def test_weights_from_python_help(library, tmp_path: Path) -> None:
    pretrain = [sys.executable, EXAMPLE / "pretrain.py", tmp_path / "digits-0-4"]
    subprocess.run(pretrain, check=True, cwd=ROOT)
    arguments = ("-from", str(tmp_path / "digits-0-4"), "-out", str(tmp_path), "-seeds", "3")
    done = run_go("run", "-buildvcs=false", "./examples/transfer", *arguments)
    assert done.returncode == 0, done.stderr
    report, _, *rows = done.stdout.splitlines()
    assert report.startswith("Net from ")
    assert ": 6 tensors fit, " in report
    tried = [tuple(float(n) for n in re.findall(r"-?[\d.]+", row)) for row in rows]
    assert [shown for shown, *_ in tried] == [10, 20, 40, 80, 160]
    _, few, alone, _, _ = tried[0]
    assert few > alone  # of the same digits, and where they are few it is much
    assert tried[-1][1] >= 88
    assert (tmp_path / "accuracy.png").read_bytes()[:4] == b"\x89PNG"

    before = load_file(tmp_path / "digits-0-4/model.safetensors")
    after = load_file(tmp_path / "digits-5-9/model.safetensors")
    assert before.keys() == after.keys()
    for name, tensor in before.items():  # the layers that were frozen are as they were
        assert tensor.equal(after[name]) == name.startswith("features."), name
    assert json.loads((tmp_path / "digits-5-9/config.json").read_text())["channels"] == 16


def test_what_is_missing_is_said(library, tmp_path: Path) -> None:
    done = run_go("run", "-buildvcs=false", "./examples/transfer", "-from", str(tmp_path))
    assert done.returncode == 1
    assert "neither model.safetensors" in done.stderr
    assert "pretrain.py writes the folder" in done.stderr
