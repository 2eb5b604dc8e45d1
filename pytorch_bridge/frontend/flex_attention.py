"""torch.nn.attention.flex_attention, as PyTorch computes it where no kernel is compiled for it: all
scores at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..aliasing.runtime_strides import filled_like
from ..graph.basic import Variable
from ..ops import scalar
from ..ops.from_fx import UnsupportedNode, written_at
from ..ops.native import constant, native

# Turns a recorded graph of torch.fx, given values of its placeholders, into variables.
Take = Callable[[Any, Sequence[Any]], Any]


def flex_attention(node: Any, args: Sequence[Any], take: Take) -> tuple[Any, ...]:
    """The results of a node that calls flex_attention: the attention, the logarithm of the sums of
    the exponentials of scores, and the largest scores, both to the base 2.

    `args` are the node's arguments, variables and graphs of torch.fx."""
    import torch

    q, k, v, score_mod, block_mask, scale, _, score_others, mask_others = args
    fakes = [n.meta["val"] for n in node.args[:3]]
    wide = torch.float64 if fakes[0].dtype == torch.float64 else torch.float32
    if wide == torch.float64 and any(user.users for user in node.users if user.args[1]):
        # torch.export says that they are of float32.
        raise UnsupportedNode(
            f"{node.format_node()}: of float64, torch.export takes the logarithms of the sums and "
            f"the largest scores for others than they are: ask for the attention alone"
            f"{written_at(node)}"
        )
    groups = (
        scalar.floor_divide(q.shape[1], k.shape[1]) if _open(q, k) else q.shape[1] // k.shape[1]
    )
    repeat, expand = native("repeat_interleave.self_int"), native("expand")
    key, value = (
        expand(t, [q.shape[0], *t.shape[1:]]) for t in (repeat(x, groups, 1) for x in (k, v))
    )
    products = native("matmul")(_to(q, wide), native("transpose.int")(_to(key, wide), -2, -1))
    scores = native("mul.Tensor")(products, scale)
    sizes = list(scores.shape)
    places = [native("arange.start")(0, n, device=fakes[0].device) for n in sizes]

    def everywhere(function: Any, name: str, given: Sequence[Any], others: Any, of: Any) -> Any:
        traced = _traced(node, function, name, of)
        return expand(take(traced, [*given, *others]), sizes)

    mask = everywhere(block_mask[-1], "mask_mod", places, mask_others, node.args[8])
    changed = everywhere(score_mod, "score_mod", [scores, *places], score_others, node.args[7])
    nowhere = constant(torch.tensor(-math.inf, dtype=wide))
    scores = native("where.self")(mask, changed, nowhere)
    none = native("all.dim")(native("eq.Scalar")(scores, -math.inf), -1)
    # The logarithm's derivative at rows without anything would be NaN.
    filled = native("masked_fill.Scalar")(scores, native("unsqueeze")(none, -1), 0)
    sums = native("logsumexp")(filled, [-1])
    sums = native("where.self")(none, native("scalar_tensor")(-math.inf, dtype=wide), sums)
    largest = native("detach")(native("max.dim")(scores, -1)[0])  # PyTorch gives them no gradient
    weights = native("_safe_softmax")(scores, -1)
    dtype = q.type.torch_dtype
    out = filled_like(q, native("matmul")(_to(weights, dtype), _to(value, dtype)))
    found = (out, *(native("div.Scalar")(x, math.log(2)) for x in (sums, largest)))
    return found[: len(node.meta["val"])]


def _open(*tensors: Any) -> bool:
    return any(isinstance(t.shape[1], Variable) for t in tensors)


def _to(x: Any, dtype: Any) -> Any:
    return x if x.type.torch_dtype == dtype else native("to.dtype")(x, dtype)


def _traced(node: Any, function: Any, name: str, others: Sequence[Any]) -> Any:
    """The graph of a function of one score, or of one place, applied to all of them. Its
    placeholders are the scores, if it is of these, the places along each dimension, and what else
    it reads."""
    import torch
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
    from torch.fx.experimental.proxy_tensor import make_fx

    q, k = (n.meta["val"] for n in node.args[:2])
    sizes = [*q.shape[:3], k.shape[2]]
    env = q.fake_mode.shape_env
    before = 0 if env is None else len(env.guards)
    with q.fake_mode:
        values = [torch.arange(0, n, device=q.device) for n in sizes]
        if name == "score_mod":
            wide = torch.float64 if q.dtype == torch.float64 else torch.float32
            values.insert(0, torch.empty(sizes, dtype=wide, device=q.device))
    values += [n.meta["val"] if isinstance(n, torch.fx.Node) else n for n in others]
    one = _over(_without_sizes(function), sizes, name == "score_mod")

    def call(*given: Any) -> Any:
        with TransformGetItemToIndex():
            return one(*given)

    try:
        with torch.no_grad():
            made = make_fx(call, _allow_non_fake_inputs=True)(*values)
    except MemoryError:
        raise
    except Exception as e:
        raise UnsupportedNode(f"{node.format_node()}: {name}: {e}{written_at(node)}") from e
    if env is not None and len(env.guards) != before:
        guards = ", ".join(str(g.expr) for g in env.guards[before:])
        raise UnsupportedNode(
            f"{node.format_node()}: {name} is right only where {guards}, which the program leaves "
            f"open: export it with fixed sizes{written_at(node)}"
        )
    for n in made.graph.nodes:
        if n.target is torch.ops.aten._to_copy.default and not n.all_input_nodes:
            n.target = torch.ops.aten.scalar_tensor.default  # of a number
    return made


def _over(function: Any, sizes: Sequence[Any], scored: bool) -> Any:
    """What gives for all batches, heads, rows and columns what a function gives for one, by a vmap
    for each of them.

    Unlike torch.vmap, it leaves a size of 1 where the result is the same along a dimension:
    torch.vmap would repeat it, and take an open size for a number."""
    from torch._functorch.vmap import lazy_load_decompositions, restore_vmap

    def mapped(f: Any, d: int) -> Any:
        def call(*given: Any) -> Any:
            dims = [*[0] * scored, *(0 if i == d else None for i in range(4))]
            dims += [None] * (len(given) - len(dims))
            out, dim = restore_vmap(f, tuple(dims), sizes[d], "error")(*given)
            return out.unsqueeze(0) if dim is None else out.movedim(dim, 0)

        return call

    lazy_load_decompositions()
    for d in reversed(range(4)):
        function = mapped(function, d)
    return function


def _without_sizes(module: Any) -> Any:
    """The graph of a function with `new_ones` and the like replaced by what makes one tensor for
    all, where a vmap makes one for each."""
    import copy

    import torch
    from torch.ops import aten

    made = {
        aten.new_ones.default: aten.ones.default,
        aten.new_zeros.default: aten.zeros.default,
        aten.new_full.default: aten.full.default,
    }
    if not isinstance(module, torch.fx.GraphModule):
        return module
    found = copy.copy(module)
    found.graph = copy.deepcopy(module.graph)
    for node in list(found.graph.nodes):
        if node.target in made:
            value = node.meta["val"]
            node.target = made[node.target]
            node.args = node.args[1:]
            node.kwargs = {"dtype": value.dtype, "device": value.device}
    found.recompile()
    return found
