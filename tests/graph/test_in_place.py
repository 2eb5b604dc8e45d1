"""Functions whose result is made in the memory of an argument: not one bit differs."""

from __future__ import annotations

import itertools

import pytest
import torch

from pytorch_bridge import BridgeError, TensorType, function, ops
from pytorch_bridge.aliasing.in_place import (
    InPlace,
    makes_no_difference,
    writes_into_a_copy,
    writing_form,
)
from pytorch_bridge.ops.native import native
from pytorch_bridge.schema.corrections import corrected, lines

DTYPES = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64),
    *(torch.complex128, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
)
SIZES = ((67,), (5, 13))  # none is a whole number of vectors
GIVEN = {"Scalar": 3, "int": 1, "float": 0.5, "str": "none", "Scalar?": 1, "float?": 0.1}
GENERATOR = torch.Generator()


def functions():
    for name in lines():
        try:
            found = native(name)
        except BridgeError:
            continue
        # Those that write into a copy take indices.
        if writing_form(found) is not None and not writes_into_a_copy(found):
            yield found


def numbers(shape, dtype):
    if dtype.is_complex or dtype.is_floating_point:
        return torch.randn(
            shape,
            generator=GENERATOR,
            dtype=torch.complex128 if dtype.is_complex else torch.float64,
        ).to(dtype)
    return torch.randint(1, 2 if dtype == torch.bool else 100, shape, generator=GENERATOR).to(dtype)


def bits(t):
    return t.contiguous().view(torch.uint8)


def arguments(f, shape, dtype, layout):
    """Values: the first tensor, and the others, contiguous, with gaps, or broadcast."""
    values = []
    for a in f.function.arguments:
        if a.type == "Tensor":
            own = a.name == "self" or layout != "broadcast"
            t = numbers(shape if own else shape[1:] or (1,), dtype)
            if layout == "transposed":
                t = t.t().contiguous().t()
            elif layout == "gaps" and a.name != "self":
                t = torch.stack([t, t], -1)[..., 0]
            values.append(t)
        elif a.default is not None or a.type == "str?":
            values.append("floor" if a.type == "str?" else f.defaults[len(values)])
        else:
            values.append(GIVEN[a.type])
    return values


def test_in_place_is_the_same_to_the_last_bit():
    """Every function that rewrites let write into its argument, with every dtype."""
    GENERATOR.manual_seed(0)
    compared, differ = 0, []
    for f in functions():
        for dtype, shape in itertools.product(DTYPES, SIZES):
            layouts = ["plain", "gaps", "broadcast", *(["transposed"] if len(shape) > 1 else [])]
            for layout in layouts:
                try:
                    values = arguments(f, shape, dtype, layout)
                    node = f.apply(values)
                    op = InPlace(node.op)
                except (KeyError, BridgeError, RuntimeError):
                    continue  # it takes no such arguments
                tensors = [v.data for v in node.inputs]
                x = tensors[op.place]
                others = [t for i, t in enumerate(tensors) if i != op.place]
                if not op.fits(node) or not makes_no_difference(x, others):
                    continue
                try:
                    expected = node.op.call(tensors)
                except RuntimeError:
                    continue  # no kernel for this dtype
                tensors[op.place] = x.clone()
                compared += 1
                if not torch.equal(bits(op.writing.call(tensors)), bits(expected)):
                    differ.append((f.name, dtype, shape, layout))
    assert not differ
    assert compared > 1000


# What each of them is called with: three of five rows, one of them twice.
ROWS = torch.tensor([3, 1, 3])
EVERYWHERE = ROWS[:, None].expand(3, 13).contiguous()
COPYING = {
    "index_put": lambda x: [x, [ROWS], x[:3] * 2, True],
    "index_fill.int_Scalar": lambda x: [x, 0, ROWS, 1],
    "index_fill.int_Tensor": lambda x: [x, 0, ROWS, x[0, 0].clone()],
    "index_copy": lambda x: [x, 0, ROWS[:2], x[:2] * 2],
    "index_add": lambda x: [x, 0, ROWS, x[:3] * 2],
    "index_reduce": lambda x: [x, 0, ROWS, x[:3] * 2, "prod"],
    "put": lambda x: [x, ROWS, x[0, :3] * 2, True],
    "scatter.src": lambda x: [x, 0, EVERYWHERE[:2], x[:3] * 2],
    "scatter.value": lambda x: [x, 0, EVERYWHERE, 1],
    "scatter.reduce": lambda x: [x, 0, EVERYWHERE, x[:3] * 2, {"reduce": "add"}],
    "scatter.value_reduce": lambda x: [x, 0, EVERYWHERE, 2, {"reduce": "multiply"}],
    "scatter_add": lambda x: [x, 0, EVERYWHERE, x[:3] * 2],
    "scatter_reduce.two": lambda x: [x, 0, EVERYWHERE, x[:3] * 2, "mean"],
}


@pytest.mark.parametrize(
    "name",
    [n for n in lines() if corrected("copying", n) and "out" not in native(n).function.tags],
)
def test_what_writes_into_a_copy_is_the_same_in_place(name):
    function = native(name)
    if "Dimname" in function.function.schema:
        pytest.skip("named tensors have no types")
    GENERATOR.manual_seed(2)
    kept = 0
    for dtype in DTYPES:
        x = numbers((5, 13), dtype)
        try:
            values = COPYING[name](x)
            named = values.pop() if isinstance(values[-1], dict) else {}
            function.torch_op(*values, **named)
        except (RuntimeError, NotImplementedError):
            continue  # no kernel for this dtype
        for mine in (x, x.t().contiguous().t(), torch.stack([x, x], -1)[..., 0]):
            node = function.apply(function.bind([mine, *values[1:]], named))
            op = InPlace(node.op)
            if not op.fits(node):
                continue
            expected = node.op.call([v.data for v in node.inputs])
            own = torch.empty_strided(mine.shape, mine.stride(), dtype=dtype).copy_(mine)
            cell = [[None]]
            op.perform(op.of(node), [own, *(v.data for v in node.inputs[1:])], cell)
            assert cell[0][0].stride() == expected.stride()
            assert torch.equal(bits(cell[0][0]), bits(expected))
            assert (cell[0][0] is own) == (own.stride() == (13, 1))
            kept += cell[0][0] is own
    assert kept > 3


@pytest.mark.parametrize("name", ["div", "mul", "addcmul"])
def test_complex_numbers_are_not_made_in_place(name):
    x, y = TensorType("complex64", (None,))("x"), TensorType("complex64", (None,))("y")
    z = getattr(ops, name)(ops.exp(x), *([y, y] if name == "addcmul" else [y]))
    f = function([x, y], z, "py")
    assert not any("in place" in str(n.op) for n in f.fgraph.toposort())
    GENERATOR.manual_seed(1)
    plain = function([x, y], z, "py", rewrite=False)
    for n in range(1, 40):
        a, b = (numbers((n,), torch.complex64) for _ in range(2))
        assert torch.equal(bits(f(a, b)), bits(plain(a, b)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("mode", ["py", "c_only"])
def test_a_number_is_not_rounded_to_the_dtype_that_it_multiplies(dtype, mode):
    x = TensorType(dtype, (None,))("x")
    v = torch.randn(500, generator=torch.Generator().manual_seed(0)).to(getattr(torch, dtype))
    assert torch.equal(function([x], x * 0.9 * 0.7, mode=mode)(v), v * 0.9 * 0.7)
