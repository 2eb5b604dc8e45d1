"""Whole models, exported with an open batch size: compiled, they are the module to the last bit."""

from __future__ import annotations

import models
import pytest
import torch
from torch.utils import _pytree

import pytorch_bridge as pb
from pytorch_bridge.native.extension import live_handles


@pytest.mark.parametrize("name", models.MODELS)
def test_a_compiled_model_is_the_module(name):
    module, program = models.make(name)
    model = pb.from_exported(program, name=name)
    assert next(d for v in model.inputs for d in v.type.shape) is None
    assert not model.state
    assert not model.mutations
    assert set(model.state_dict()) == set(module.state_dict())
    compiled = model.compile()
    plain = pb.function(model.inputs, model.outputs, "py", rewrite=False)
    for batch in (1, 2, 5):
        x = models.MODELS[name][1](batch)
        with torch.no_grad():
            expected = module(*x)
        live = live_handles()
        results = compiled(*x)
        assert live_handles() == live
        flat, spec = _pytree.tree_flatten(results)
        theirs, expected_spec = _pytree.tree_flatten(expected)
        assert spec == expected_spec
        assert all(map(torch.equal, flat, theirs))
        assert all(map(torch.equal, plain(*x), theirs))
        del flat, results


def test_an_input_that_does_not_fit_is_refused_before_anything_runs():
    _, program = models.make("mlp")
    compiled = pb.from_exported(program, name="mlp").compile()
    with pytest.raises(pb.BridgeValueError, match="x: dimension 0 must be at most 1024, got 1025"):
        compiled(torch.zeros(1025, 784))
    with pytest.raises(pb.BridgeTypeError, match=r"mlp: input 0 \(x\).*\(None, 784\).*\(2, 783\)"):
        compiled(torch.zeros(2, 783))


def test_an_lstm_takes_and_returns_its_state():
    torch.manual_seed(0)
    module = models.LSTM().eval()
    batch = torch.export.Dim("batch")
    states = [torch.randn(4, 3, 16) for _ in range(2)]
    program = torch.export.export(
        module,
        (torch.randn(3, 6, 8), tuple(states)),
        dynamic_shapes=({0: batch}, ({1: batch}, {1: batch})),
    )
    compiled = pb.from_exported(program).compile()
    x = torch.randn(2, 6, 8)
    state = mine = tuple(torch.randn(4, 2, 16) for _ in range(2))
    for _ in range(3):
        with torch.no_grad():
            y, state = module(x, state)
        ours, mine = compiled(x, mine)
        assert torch.equal(ours, y)
        assert all(map(torch.equal, mine, state))
    with pytest.raises(pb.BridgeValueError, match="dimension 1 must be 2, as x's dimension 0 is"):
        compiled(x, tuple(states))


def test_a_model_by_hand_takes_and_returns_what_is_flat():
    x, w = pb.TensorType("float32", (None, 3))("x"), pb.TensorType("float32", (3, 2))("w")
    model = pb.Model([x, w], [x @ w, x + 1], name="by_hand")
    assert repr(model).startswith("Model by_hand(x: TensorType(float32, (None, 3)), w:")
    a, b = torch.randn(4, 3), torch.randn(3, 2)
    product, more = model(a, b)
    assert torch.equal(product, a @ b)
    assert torch.equal(more, a + 1)
    with pytest.raises(pb.BridgeTypeError, match="takes 2 inputs, got 1"):
        model(a)
    one = pb.Model([x], [x.relu()]).compile()
    assert torch.equal(one(x=a), a.relu())
    assert repr(one).startswith("compiled Model model(x:")
