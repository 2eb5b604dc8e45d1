"""The comparison itself: everything that it compares, it can tell apart."""

from __future__ import annotations

import pytest
import torch

from pytorch_bridge.testing.conformance.check import tensor_difference

X = torch.arange(6.0).reshape(2, 3)
NAN = torch.tensor([float("nan")])

DIFFERENT = {
    "dtype": (X, X.double()),
    "shape": (X, X.reshape(3, 2)),
    "strides": (X, X.t().contiguous().t()),
    "storage offset": (X[1], X[1].clone()),
    "requires_grad": (X, X.clone().requires_grad_()),
    "being a leaf": (X.clone().requires_grad_(), X.clone().requires_grad_() * 1),
    "the node of the graph": (X.clone().requires_grad_() * 1, X.clone().requires_grad_() + 1),
    "the conjugate bit": (
        torch.ones(2, dtype=torch.complex64),
        torch.ones(2, dtype=torch.complex64).conj(),
    ),
    "layout": (X, X.to_sparse()),
    "element": (X, X + torch.eye(2, 3) * 1e-6),
    "a zero's sign": (torch.zeros(2), -torch.zeros(2)),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_a_difference_is_told(what: str) -> None:
    expected, actual = DIFFERENT[what]
    told = tensor_difference(expected, actual, vague=False)
    assert told
    if what not in ("element", "a zero's sign"):
        assert told.startswith(what)


def test_equal_tensors_are_equal() -> None:
    for t in (X, NAN, X.t(), X.to_sparse(), X[1], torch.ones(0, 3)):
        assert tensor_difference(t, t.clone() if t is NAN else t, vague=False) == ""
    assert tensor_difference(NAN, -NAN, vague=False) == ""  # a NaN is like any other


def test_elements_that_are_not_defined_are_not_compared() -> None:
    assert tensor_difference(X, X + 1, vague=True) == ""
    assert tensor_difference(X, X.t(), vague=True).startswith("shape")
