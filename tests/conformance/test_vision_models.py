"""The networks of Go's package vision/models are torchvision's.

Where torchvision is installed, to the last bit; it is optional, so elsewhere the state dicts' names, shapes, initial
weights and results are held to what a script has written down from it. `CONFORMANCE=full` tries all networks.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from pytorch_bridge.codegen.generate import reference_is_installed

if not reference_is_installed():
    pytest.skip("the modules are of the torch that Go was generated for", allow_module_level=True)

from pytorch_bridge.testing.conformance import vision_models as under_test
from pytorch_bridge.testing.conformance.harness import Harness, WrapperError
from pytorch_bridge.testing.conformance.modules import Call, GoModule, differ
from pytorch_bridge.testing.conformance.vision_models import CASES, EXPECTED, SEED, Case

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("one_thread")]

FULL = os.environ.get("CONFORMANCE") == "full"
TRIED = [c for c in CASES if c.light or FULL]
OPTIONAL = "torchvision is optional; the tests with expected values run without it"


@pytest.mark.parametrize("case", TRIED, ids=str)
def test_a_network_is_torchvisions_to_the_last_bit(
    case: Case, harness: Harness, tmp_path: Path
) -> None:
    if case.name not in under_test.OWN:
        pytest.importorskip("torchvision", reason=OPTIONAL)
    assert under_test.unlike(case, harness, tmp_path) == ""


@pytest.mark.parametrize("case", TRIED, ids=str)
def test_a_network_is_as_torchvision_was_written_down(
    case: Case, harness: Harness, tmp_path: Path
) -> None:
    wanted = json.loads(EXPECTED.read_text())[str(case)]
    harness.seed(SEED)
    go = case.go(harness)
    under_test.saved(go, tmp_path / "state.pt")
    go.train(False)
    with torch.no_grad():
        logits = go.method("Forward", under_test.images(case))
    got = under_test.measured(case, torch.load(tmp_path / "state.pt"), logits)
    # The order of sums belongs to a processor, here of some dozen layers.
    for what in ("sums", "logits"):
        assert got.pop(what) == pytest.approx(wanted.pop(what), rel=1e-4, abs=1e-5)
    assert got == wanted


def test_every_case_is_written_down() -> None:
    assert list(json.loads(EXPECTED.read_text())) == [str(c) for c in CASES]


def test_a_difference_is_found(harness: Harness, tmp_path: Path) -> None:
    """What is compared fails for a network that differs in one option that has no parameters."""
    pytest.importorskip("torchvision", reason=OPTIONAL)

    class Other(Case):
        def go(self, harness: Harness) -> GoModule:
            return GoModule(harness, "resnet18", Call([], {"NumClasses": 7}))

    other = Other("resnet18", {"num_classes": 7, "zero_init_residual": True})
    assert under_test.unlike(other, harness, tmp_path).startswith("at first: layer1.0.bn2.weight")


def test_other_weights_are_found(harness: Harness, tmp_path: Path) -> None:
    class Other(Case):
        def go(self, harness: Harness) -> GoModule:
            harness.seed(SEED + 1)
            return super().go(harness)

    other = Other("dcgan_discriminator", {"ndf": 8})
    assert under_test.unlike(other, harness, tmp_path).startswith("at first: main.0.weight")


def test_features_are_what_layers_return(harness: Harness) -> None:
    go = GoModule(harness, "resnet18", Call([], {"NumClasses": 7}))
    go.train(False)
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        whole, before, first = under_test.features(go, ["fc", "avgpool", "layer1"], x)
        alone = under_test.features(go, ["avgpool"], x)[0]
    state = go.state_dict()
    assert first.shape == (1, 64, 16, 16)
    assert torch.equal(alone, before)
    assert not differ(
        "fc",
        torch.nn.functional.linear(before.flatten(1), state["fc.weight"], state["fc.bias"]),
        whole,
    )
    with pytest.raises(WrapperError, match=r"AttributeError.*layer9"):
        under_test.features(go, ["layer9"], x)
    go.train(True)  # hooks are gone, also after an error
    assert go.method("Forward", x.expand(2, -1, -1, -1)).shape == (2, 7)


def test_no_handle_is_left(harness: Harness) -> None:
    def run() -> None:
        for name, options in (("resnet18", {"NumClasses": 3}), ("vit_b_32", {"ImageSize": 32})):
            go = GoModule(harness, name, Call([], options))
            x = torch.randn(2, 3, 32, 32)
            go.method("Forward", x).sum().backward()
            go.train(False)
            with torch.no_grad():
                go.method("Forward", x)
            if name == "resnet18":
                under_test.features(go, ["layer2"], x)
            del go

    run()
    before = harness.collect()
    run()
    assert harness.collect() <= before
