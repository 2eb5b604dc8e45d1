"""Properties of every native op that PyTorch's operator database reaches."""

from __future__ import annotations

import warnings

import operator_database as database
import pytest
import torch
import yaml

from pytorch_bridge import BridgeTypeError, TensorType, ops
from pytorch_bridge.inference import result_types
from pytorch_bridge.link.debug import _copied
from pytorch_bridge.ops.native import find_packet, native, native_op, packet_names
from pytorch_bridge.schema import corrections as module
from pytorch_bridge.schema.functions import load_reference
from pytorch_bridge.types import SchemaType

ANY = TensorType()

# Functions whose samples include dtypes or layouts that only values tell apart.
LAYOUTS = ("sparse", "to_dense", "to_mkldnn", "_sparse", "_to_sparse", "coalesce", "ones_like")


# What is refused where all sizes are open, and why.
_COUNT = "how many tensors it returns is a size"
REFUSED_OPEN = {
    "chunk": _COUNT,
    "unsafe_chunk": _COUNT,
    "split.Tensor": _COUNT,
    "unsafe_split.Tensor": _COUNT,
    "split_copy.Tensor": _COUNT,
    "unbind.int": _COUNT,
    "unbind_copy.int": _COUNT,
    "ctc_loss.IntList": "its kernel has no symbols, and lengths that are given must fit its sizes",
    "col2im": "its kernel has no symbols, and no size that is tried is the number of its windows",
}


def _open(t):
    return t.clone(shape=(None,) * t.ndim) if isinstance(t, TensorType) else t


@pytest.mark.parametrize("part", range(database.PARTS))
def test_b5_b6_types_depend_on_the_op_and_its_input_types_only(part):
    """And they are those of the values that come out; view_map and destroy_map name all memory
    that is shared or changed."""
    problems = []
    checked = 0
    for name, function, values in database.calls(part):
        if any(word in function.name for word in LAYOUTS) or not database._dense(values):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found = list(_problems(function, values))
            except database.Skip:
                continue
        checked += 1
        problems += [f"{name}, {function.name}: {p}" for p in found]
    assert not problems, "\n".join(problems)
    assert checked >= 100


def _problems(function, values):
    template, inputs = function.split(values)
    types = [v.type for v in inputs]
    given = [_copied(v.data) for v in inputs]
    kept = [_copied(v) for v in given]
    try:
        op = native_op(function, template, types)
        node = op.make_node(*[t() for t in types])
    except BridgeTypeError as e:
        raise database.Skip from e
    # B6: an op made again, with nothing remembered, gives the same types for new variables.
    result_types._known.clear()
    again = native_op(function, template, types)
    if again != op or hash(again) != hash(op):
        yield "the op differs when it is made again"
    other = again.make_node(*[t() for t in types])
    mine, theirs = ([v.type for v in n.outputs] for n in (node, other))
    if mine != theirs:
        yield f"the types differ when asked for again: {mine}, {theirs}"
    # B5: inputs that are the outputs of an op.
    computed = [ops.ViewOp()(t()) for t in types]
    if [v.type for v in op.make_node(*computed).outputs] != mine:
        yield "the types differ for inputs that have owners"
    cells = [[None] for _ in node.outputs]
    try:
        with torch.no_grad():
            op.perform(node, given, cells)
    except (RuntimeError, IndexError, NotImplementedError) as e:
        raise database.Skip from e
    results = [c[0] for c in cells]
    yield from _memory(op, node, given, kept, results)
    for o, (v, value) in enumerate(zip(node.outputs, results, strict=True)):
        if not v.type.is_valid_value(value):
            yield f"result {o} is no {v.type}: {_shown(value)}"
    try:
        open_types = [_open(t) for t in types]
        wide = native_op(function, template, open_types).make_node(*[t() for t in open_types])
    except BridgeTypeError as e:
        if function.name not in REFUSED_OPEN:
            yield f"refused where sizes are open: {e}"
        return
    for o, (v, value) in enumerate(zip(wide.outputs, results, strict=True)):
        if not v.type.is_valid_value(value):
            yield f"for open sizes, result {o} is no {v.type}: {_shown(value)}"


def _memory(op, node, given, kept, results):
    destroyed = {i for places in op.destroy_map.values() for i in places}
    for i, (value, before) in enumerate(zip(given, kept, strict=True)):
        if not isinstance(value, torch.Tensor):
            continue
        if i not in destroyed and not ANY.values_eq(value, before):
            yield f"input {i} is changed; destroy_map is {dict(op.destroy_map)}"
        for o, result in enumerate(results):
            allowed = {*op.view_map.get(o, ()), *op.destroy_map.get(o, ())}
            if i not in allowed and ANY.may_share_memory(value, result):
                yield f"result {o} shares memory with input {i}; view_map is {dict(op.view_map)}"


def _shown(value):
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} {tuple(value.shape)}"
    return repr(value)


def test_every_native_function_is_an_op():
    for f in load_reference():
        function = native(f.name)
        packet = getattr(ops, f.base) if not f.base.startswith("__") else find_packet(f.base)
        assert getattr(packet, f.overload or "default") is function
        assert function.function.name == f.name
    assert "mm" in set(packet_names())


def test_overloads_are_chosen_as_torch_does():
    x, i = TensorType("float32", (2, 3))(), TensorType("int64", (2,))()
    for node, name in (
        (ops.add(x, x), "add.Tensor"),
        (ops.add(x, 1), "add.Scalar"),
        (ops.add.Tensor(x, 1), "add.Scalar"),
        (ops.sum(x), "sum"),
        (ops.sum(x, 1), "sum.dim_IntList"),
        (ops.sum(x, [0, 1], True), "sum.dim_IntList"),
        (ops.max(x, 1)[0], "max.dim"),
        (ops.max(x, x), "max.other"),
        (ops.softmax(x, -1), "softmax.int"),
        (ops.pow(2, x), "pow.Scalar"),
        (ops.pow(x, 2.5), "pow.Tensor_Scalar"),
        (ops.transpose(x, 0, 1), "transpose.int"),
        (ops.index_select(x, 0, i), "index_select"),
        (ops.where(x > 0, x, x), "where.self"),
        (ops.where(x > 0, x, 0.0), "where.ScalarOther"),
        (ops.div(x, 2, rounding_mode="floor"), "div.Scalar_mode"),
        (ops.std(x, 1), "std.dim"),
        (
            ops.upsample_nearest2d(TensorType("float32", (1, 1, 2, 2))(), [4, 4]),
            "upsample_nearest2d",
        ),
        (ops.to(x, torch.float64), "to.dtype"),
        (ops.to(x, device="cpu"), "to.dtype_layout"),
        (ops.to(x, i), "to.other"),
        (ops.zeros([2, 3], dtype=torch.int64), "zeros"),
        (ops.arange(3), "arange"),
        (ops.arange(1, 7, 2), "arange.start_step"),
    ):
        assert node.owner.op.name == name


def test_corrections_name_functions_and_arguments():
    table = yaml.safe_load(module.CORRECTIONS_FILE.read_text())
    names = {f.name: f for f in load_reference()}

    def functions(key):
        base = key.removesuffix(".*")
        found = [
            f
            for n, f in names.items()
            if (n.partition(".")[0] == base if key.endswith(".*") else n == key)
        ]
        assert found, f"corrections.yaml: there is no function {key}"
        return found

    for key, arguments in table["views"].items():
        for f in functions(key):
            if arguments is not True:
                assert set(arguments) <= {a.name for a in f.arguments}, key
    for key, arguments in table["writes"].items():
        for f in functions(key):
            wanted = set(arguments) | {c for c in arguments.values() if c is not True}
            assert wanted <= {a.name for a in f.arguments}, key
    for key in table["random"]:
        functions(key)
    for key, results in table["loose"].items():
        for f in functions(key):
            assert max(results) < len(f.returns), key


@pytest.mark.parametrize(
    "build",
    [
        lambda x: ops.einsum("ij->ji", [x]),
        lambda x: ops.type_as(x, x),
        lambda x: ops.to_dense(x),
        lambda x: ops.dropout(x, 0.5, False),
        lambda x: ops.atleast_1d(x),
        lambda x: ops.broadcast_tensors([x, x])[0],
        lambda x: ops.meshgrid([x[0], x[1]])[0],
        lambda x: ops.sum_to_size(x, [2, 2]),
        lambda x: ops._unsafe_view(x, [4]),
        lambda x: ops.lift(x),
        lambda x: ops.dequantize(x),
    ],
)
def test_results_that_may_be_an_argument_say_so(build):
    """What the schema's alias marks leave out, as the acceptance table names it."""
    x = TensorType("float32", (2, 2))()
    node = build(x).owner
    assert node.op.view_map.get(0), node.op
    assert isinstance(node.outputs[0].type, SchemaType)
