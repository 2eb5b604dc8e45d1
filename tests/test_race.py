"""The Go tests once more, under Go's race detector."""

from __future__ import annotations

import pytest

from pytorch_bridge.testing.gotests import run_go


@pytest.mark.race
def test_go_tests_pass_under_the_race_detector(library):
    # -short leaves out what measures memory or time, which the detector multiplies.
    done = run_go("test", "-race", "-short", "-vet=off", "-count=1", "./...")
    assert done.returncode == 0, done.stdout + done.stderr
