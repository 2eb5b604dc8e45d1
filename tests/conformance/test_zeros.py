"""An option that is written as zero arrives as zero, in every module and function of torch.nn."""

from __future__ import annotations

import pytest

from pytorch_bridge.codegen.generate import reference_is_installed

if not reference_is_installed():
    pytest.skip("the samples are of the torch that Go was generated for", allow_module_level=True)

from pytorch_bridge.testing.conformance import zeros
from pytorch_bridge.testing.conformance.harness import Harness

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("one_thread")]


@pytest.mark.parametrize(("what", "least"), [(zeros.modules, 80), (zeros.functions, 60)])
def test_a_zero_that_is_written_arrives(harness: Harness, what, least: int) -> None:
    result = what(harness)
    assert not result.problems, "\n".join(result.problems[:20])
    assert result.unseen - zeros.UNSEEN.keys() == set(), "no input shows these"
    assert result.seen & zeros.UNSEEN.keys() == set()
    assert len(result.seen) >= least
