"""Rules for the types of results are held to PyTorch; `make soak` does so for longer."""

from __future__ import annotations

import os

import pytest
import rule_cases

from pytorch_bridge.ops import shapes

SEED = int(os.environ.get("SEED", "1000"))


def test_what_rules_say_is_what_pytorch_does():
    said, wrong = rule_cases.run(SEED, changes=6)
    assert not wrong, "\n".join(wrong)
    # The database comes in parts; what is in none of them is called by hand.
    assert sum(count > 0 for count in said.values()) > len(said) / 2


@pytest.mark.parametrize("name", ["mm", "softmax.int", "cat", "reshape", "conv2d"])
def test_a_wrong_rule_is_found(name, monkeypatch):
    rule = shapes._RULES[name]

    def wrong(call):
        (found,) = rule(call)
        return [found.clone(shape=[1 if d is None else d + 1 for d in found.shape])]

    monkeypatch.setitem(shapes._RULES, name, wrong)
    calls = [c for c in rule_cases.every_call() if c[0].name == name]
    assert calls
    assert rule_cases.run(SEED, changes=2, calls=calls)[1]
