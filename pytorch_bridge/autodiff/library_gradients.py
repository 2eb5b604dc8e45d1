"""Gradients of operators of libraries: what they have registered with autograd, recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import MissingMethodError
from ..graph.basic import Apply, Variable
from ..inference.quiet import quiet
from ..ops.from_fx import outputs_of, placeholders
from ..ops.library_operators import LibraryOp
from .derivatives import differentiable

# Computes the nodes of a recorded graph, beginning with values of some, and returns its results.
Take = Callable[[Any, dict[Any, Any]], Any]


def library_grad(
    node: Apply, output_grads: Sequence[Variable | None], need: Sequence[bool], take: Take
) -> list[Variable | None]:
    """The gradients of the inputs of a node that applies an operator of a library. What the
    operator has computed is taken from the node.

    MissingMethodError where it has registered none."""
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    op = node.op
    assert isinstance(op, LibraryOp)
    if op.destroy_map:
        raise MissingMethodError(f"{op.name} has no gradient: it writes into its arguments")
    wanted = [i for i, v in enumerate(node.inputs) if need[i] and differentiable(v.type)]
    given = [k for k, g in enumerate(output_grads) if g is not None]
    n = len(node.inputs)
    if op.example is None or len(op.example) != n:
        raise MissingMethodError(f"{op.name}: nothing is known of the sizes of its inputs")
    values = [
        v.detach().requires_grad_(i in wanted) if isinstance(v, torch.Tensor) else v
        for i, v in enumerate(op.example)
    ]
    fake = next(v.fake_mode for v in values if isinstance(v, torch.Tensor))
    assumed = fake.shape_env.guards if fake.shape_env is not None else []
    before = len(assumed)

    def backward(*values: Any) -> Any:
        outs = op.call(values[:n])
        pairs = [(outs[k], g) for k, g in zip(given, values[n:], strict=True)]
        used = [(o, g) for o, g in pairs if o.requires_grad]
        if not used:
            return [None] * len(wanted)
        return torch.autograd.grad(
            [o for o, _ in used],
            [values[i] for i in wanted],
            [g for _, g in used],
            allow_unused=True,
        )

    try:
        with quiet(), torch.no_grad(), fake:
            outs = op.call([v.detach() if isinstance(v, torch.Tensor) else v for v in values])
            grads = [torch.empty_like(outs[k]) for k in given]
        with quiet(), torch.enable_grad():
            made = make_fx(backward, _allow_non_fake_inputs=True)(*values, *grads)
    except MemoryError:
        raise
    except Exception as e:
        first = str(e).partition("\n")[0]
        raise MissingMethodError(f"{op.name} has no gradient: {first}{op.written}") from e
    if len(assumed) != before:
        what = ", ".join(str(guard.expr) for guard in assumed[before:])
        raise MissingMethodError(
            f"{op.name} has no gradient here: what is called is right only where {what}; export "
            f"the model with fixed sizes{op.written}"
        )
    results = outputs_of(made.graph)
    if all(r is None for r in results):
        raise MissingMethodError(
            f"{op.name} has no gradient: register one with torch.library.register_autograd"
            f"{op.written}"
        )
    known = dict(
        zip(
            placeholders(made.graph),
            [*node.inputs, *map(output_grads.__getitem__, given)],
            strict=True,
        )
    )
    call = next(n for n in made.graph.nodes if n.target is op.overload)
    several = len(op.overload._schema.returns) != 1 or op.lists
    known[call] = list(node.outputs) if several else node.outputs[0]
    found = dict(zip(wanted, take(made, known), strict=True))
    return [found.get(i) for i in range(n)]
