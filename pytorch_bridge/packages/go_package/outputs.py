"""What a generated function returns: one value, several, or a struct.

A tuple or list of values is several results. Where results nest, or a dict names them, they are the
fields of structs, and lists of tensors are slices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import BridgeValueError
from . import go_names


@dataclass
class Tree:
    """Output number `leaf`; or the nested results `children`, by their names in Python."""

    leaf: int | None = None
    names: list[str] = field(default_factory=list)
    children: list[Tree] = field(default_factory=list)
    is_list: bool = False
    named: bool = False  # a dict or another class with names, rather than a tuple
    none: bool = False  # nothing: None in Python


def tree(spec: Any, n: int) -> Tree:
    """The tree of a TreeSpec of torch.utils._pytree; without one, n flat results."""
    if spec is None:
        leaves = [Tree(leaf=i) for i in range(n)]
        return leaves[0] if n == 1 else Tree(None, [str(i) for i in range(n)], leaves)
    count = iter(range(spec.num_leaves))
    made = _tree(spec, count)
    if spec.num_leaves != n:
        raise BridgeValueError(
            f"export_go: the model has {n} outputs, and its out_spec describes {spec.num_leaves}"
        )
    return made


def _tree(spec: Any, count: Iterator[int]) -> Tree:
    if spec.is_leaf():
        return Tree(leaf=next(count))
    kind, context = spec.type, spec.context
    children = [_tree(s, count) for s in spec.children()]
    names = [str(i) for i in range(len(children))]
    named = False
    if isinstance(context, list) and len(context) == len(children):  # of a dict: its keys
        names, named = [str(k) for k in context], True
    elif isinstance(getattr(context, "_fields", None), tuple):  # of a namedtuple: its class
        names, named = list(context._fields), True
    elif isinstance(context, list) and context and isinstance(context[0], list):
        names, named = [str(k) for k in context[0]], True  # of other classes, such as transformers'
    if len(names) != len(children):
        names = [str(i) for i in range(len(children))]
    return Tree(None, names, children, is_list=kind is list, named=named)


@dataclass
class Results:
    """The results of a Go function: their types in order, the structs that are declared for them,
    and the expressions."""

    types: list[str]
    structs: list[str]
    names: list[str]  # in Python, for the documentation
    values: list[str]  # what is returned, from what the leaves are
    leaves: list[str]  # each leaf, from variables out0, out1 ... that the results are put into


def results(
    made: Tree, types: Sequence[str], values: Sequence[str], docs: Sequence[str], name: str
) -> Results:
    """`types` and `values` are the Go types and expressions of the leaves; `name` is what the
    struct is called."""
    if made.leaf is not None:
        return Results([types[made.leaf]], [], [""], [values[made.leaf]], ["out0"])
    flat = not made.named and all(c.leaf is not None for c in made.children)
    leaves = [""] * len(types)
    if flat:
        order = [c.leaf for c in made.children if c.leaf is not None]
        for i, leaf in enumerate(order):
            leaves[leaf] = f"out{i}"
        return Results(
            [types[i] for i in order], [], list(made.names), [values[i] for i in order], leaves
        )
    structs: list[str] = []
    declared: list[str] = []  # their names

    def struct(node: Tree, type_name: str, at: str) -> tuple[str, str]:
        """The type and the value of a node; `at` is where the caller finds it."""
        if node.leaf is not None:
            leaves[node.leaf] = at
            return types[node.leaf], values[node.leaf]
        inner = node.children
        if node.is_list and inner and all(c.leaf is not None for c in inner):
            kinds = {types[c.leaf] for c in inner if c.leaf is not None}
            if len(kinds) == 1:
                parts = []
                for i, c in enumerate(inner):
                    assert c.leaf is not None
                    leaves[c.leaf] = f"{at}[{i}]"
                    parts.append(values[c.leaf])
                kind = "[]" + kinds.pop()
                return kind, f"{kind}{{{', '.join(parts)}}}"
        while type_name in declared:
            type_name += "_"
        declared.append(type_name)
        number = len(structs)
        structs.append("")
        lines, parts = [], []
        for field_, python, child in zip(
            go_names.fields(node.names), node.names, inner, strict=True
        ):
            t, v = struct(child, type_name + field_, f"{at}.{field_}")
            doc = docs[child.leaf] if child.leaf is not None else ""
            lines.append(
                f"\t{field_} {t} // {go_names.remark(f'{python}: {doc}' if doc else python)}"
            )
            parts.append(f"{field_}: {v}")
        comment = f"// {type_name} is what the model returns" + (
            "." if number == 0 else f" as {at.partition('.')[2]}."
        )
        structs[number] = "\n".join([comment, f"type {type_name} struct {{", *lines, "}"])
        return type_name, f"{type_name}{{{', '.join(parts)}}}"

    t, v = struct(made, name, "out0")
    return Results([t], structs, [""], [v], leaves)


def of_model(model: Any) -> Tree:
    """The results of a model. Those that are always the same value are left out."""
    n = len(model.outputs)
    leaves = model.out_leaves
    if model.out_spec is None or leaves is None:
        return tree(model.out_spec, n)
    made = _tree(model.out_spec, iter(range(model.out_spec.num_leaves)))
    numbers = {i: leaf for i, leaf in enumerate(leaves) if isinstance(leaf, int)}

    def renumbered(node: Tree) -> Tree | None:
        if node.leaf is not None:
            return Tree(leaf=numbers[node.leaf]) if node.leaf in numbers else None
        pairs = [
            (name, child)
            for name, old in zip(node.names, node.children, strict=True)
            if (child := renumbered(old)) is not None
        ]
        names, children = [p[0] for p in pairs], [p[1] for p in pairs]
        return Tree(None, names, children, node.is_list, node.named)

    return renumbered(made) or Tree()
