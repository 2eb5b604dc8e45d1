"""The native functions that PyTorch's operator database reaches give the same in C as in Python."""

from __future__ import annotations

import operator_database as database
import pytest
import torch
from doubles import graph
from torch.utils import _pytree

from pytorch_bridge.errors import BridgeTypeError
from pytorch_bridge.graph.basic import Constant
from pytorch_bridge.link.c_linker import CLinker
from pytorch_bridge.ops.native import constant

# Part of their results is memory that they do not write.
UNDEFINED = ("_ctc_loss", "empty", "new_empty", "resize", "ctc_loss")
AT_ONCE = 100  # nodes in a graph


def node_of(function, bound):
    """The node of a call, with a variable for each tensor, and the tensors."""
    values = []

    def variable(t):
        values.append(t)
        return constant(t).type.make_variable()

    return function.apply(_pytree.tree_map_only(torch.Tensor, variable, bound)), values


def same(a, b):
    if not isinstance(a, torch.Tensor) or a.layout != torch.strided or a.is_nested:
        return str(a) == str(b)
    facts = [(t.dtype, t.shape, t.stride()) for t in (a, b)]
    return facts[0] == facts[1] and torch.equal(bits(a), bits(b))


def bits(t):
    return t.resolve_conj().resolve_neg().contiguous().flatten().view(torch.uint8)


def parts():
    """Nodes that only read, with what to call them with, some at a time."""
    found, part = {}, []
    # Half of them, which is a sixth of the database where CONFORMANCE is not full.
    for i in range(0, database.PARTS, 2):
        for _, function, bound in database.calls(i):
            known = function.name in found or function.name.startswith(UNDEFINED)
            if known or function.random:
                continue
            try:
                node, values = node_of(function, bound)
            except BridgeTypeError:
                continue  # not for these values: the tests of typing look into that
            if node.op.destroy_map:
                continue
            found[function.name] = node
            part.append((function.name, node, values))
            if len(part) == AT_ONCE:
                yield part
                part = []
    assert len(found) > 80
    yield part


@pytest.mark.filterwarnings("ignore")
def test_native_functions_in_c_and_in_python():
    different = []
    for part in parts():
        at = {}
        for _, node, values in part:
            inputs = [v for v in node.inputs if not isinstance(v, Constant)]
            at.update(zip(inputs, values, strict=True))
        outputs = [v for _, node, _ in part for v in node.outputs]
        thunk = CLinker(graph(list(at), outputs), demand_c=True).make_thunk()
        results = dict(zip(outputs, thunk(list(at.values())), strict=True))
        for name, node, values in part:
            expected = [[None] for _ in node.outputs]
            node.op.perform(node, values, expected)
            for v, (e,) in zip(node.outputs, expected, strict=True):
                if not same(results[v], e):
                    different.append(name)
    assert different == []
