"""The plugin that runs Go tests under pytest."""

from __future__ import annotations

import re
import subprocess
import sys

from pytorch_bridge.native.toolchain import ROOT


def test_what_belongs_together_runs_in_one_process(tmp_path):
    """Fixtures of a file, and a Go package's one process, would be made by each process else."""
    for name in ("a", "b", "c"):
        tests = "\n".join(f"def test_{i}(): pass" for i in range(8))
        (tmp_path / f"test_{name}.py").write_text(tests)
    (tmp_path / "test_b.py").write_text(
        f"import pytest\npytestmark = pytest.mark.long\n{(tmp_path / 'test_b.py').read_text()}"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = long: begins first\n")
    command = [sys.executable, "-m", "pytest", "-v", "-p", "pytorch_bridge.testing.gotests"]
    command += ["-n", "2", "--no-loadscope-reorder", f"--rootdir={tmp_path}", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    ran = re.findall(r"\[(gw\d)\].* PASSED (?:.*/)?(\w+)\.py::", done.stdout)
    assert len(ran) == 24, done.stdout + done.stderr
    assert sorted({(file, worker) for worker, file in ran}) == [
        (file, next(worker for worker, other in ran if other == file))
        for file in ("test_a", "test_b", "test_c")
    ]
    assert {worker for worker, _ in ran} == {"gw0", "gw1"}
    first = next(file for worker, file in ran if worker == dict(map(reversed, ran))["test_b"])
    assert first == "test_b", "what is marked long begins first"
