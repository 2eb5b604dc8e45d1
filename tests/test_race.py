"""The Go tests once more, under Go's race detector."""

from __future__ import annotations

import pytest

from pytorch_bridge.testing.gotests import PackageRun, packages_with_tests

pytestmark = pytest.mark.long

# Programs of one goroutine, whose goroutines are those of packages that are here; each takes seconds to link.
PACKAGES = [p for p in packages_with_tests() if "/examples/" not in p]


@pytest.mark.race
@pytest.mark.parametrize("package", PACKAGES)
def test_package_passes_under_the_race_detector(package):
    # -short leaves out what measures memory or time, which the detector multiplies.
    run = PackageRun(package, [".*"], "-race", "-short")
    failed = run.wait()
    assert not failed, "\n\n".join(failed)
