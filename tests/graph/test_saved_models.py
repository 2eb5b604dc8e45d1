"""Ten small models of timm and transformers, as saved programs: every bit is module()'s."""

from __future__ import annotations

import pytest
import torch
from torch.utils import _pytree

import pytorch_bridge as pb
from pytorch_bridge.native.extension import live_handles
from pytorch_bridge.testing.zoo import saved
from pytorch_bridge.testing.zoo.one import difference, informative

NAMES = sorted(path.name.removesuffix(".pt2.xz") for path in saved.FOLDER.glob("*.xz"))


def test_there_are_ten():
    assert len(NAMES) == 10


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_model_has_the_bits_of_its_module(name):
    program = saved.load(name)
    theirs, model = program.module(), pb.from_exported(program, name="saved")
    compiled = model.compile()
    example = program.example_inputs[0]
    torch.manual_seed(0)
    taken = 0
    for batch in (2, 3, 5):
        args = [saved.argument(x, batch) for x in example]
        with torch.no_grad():
            try:
                expected = theirs(*args)
            except AssertionError:
                with pytest.raises((pb.BridgeTypeError, pb.BridgeValueError)):
                    compiled(*args)
                continue
            live = live_handles()
            results = compiled(*args)
        assert difference(results, expected) is None
        assert informative(expected)
        assert live_handles() == live
        assert all(t.grad_fn is None for t in _pytree.tree_leaves(results))
        del results
        taken += 1
    assert taken >= 1
