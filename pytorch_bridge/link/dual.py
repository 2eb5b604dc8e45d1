"""The dual linker: every node in C and in Python, and an error where the two differ."""

from __future__ import annotations

import copy
from typing import Any

from ..errors import ContractError
from ..graph.basic import Apply
from .opwise import NodeLinker, NodeThunk, compiled, perform


def _destroyed(node: Apply) -> set[int]:
    return {i for inputs in dict(node.op.destroy_map).values() for i in inputs}


class DualLinker(NodeLinker):
    """Runs `perform` and the C code of each node on the same inputs and compares the outputs with
    `values_eq_approx` of their types. The values that go on are those of C.

    Where a node destroys an input, `perform` gets a copy. Random nodes, and those with only one of
    the two, run once.
    """

    def node_thunk(self, node: Apply) -> NodeThunk:
        in_c, in_python = compiled(node), perform(node)
        if in_c is None:
            return in_python
        has_perform = type(node.op).perform is not _base().perform
        if getattr(node.op, "random", False) or not has_perform:
            return in_c
        destroyed = _destroyed(node)

        def run(values: list[Any]) -> list[Any]:
            copies = [copy.deepcopy(v) if i in destroyed else v for i, v in enumerate(values)]
            expected = in_python(copies)
            # An output of perform may be a view of an input that C now destroys.
            if destroyed:
                expected = [copy.deepcopy(v) for v in expected]
            results = in_c(values)
            for i, (a, b) in enumerate(zip(expected, results, strict=True)):
                if not _equal(node.outputs[i].type, a, b):
                    raise ContractError(
                        f"{node.op}: perform and C differ in output {i}: "
                        f"perform gives {_short(a)}, C gives {_short(b)}"
                    )
            return results

        return run


def _base() -> Any:
    from ..ops.op import Op

    return Op


def _equal(type_: Any, a: Any, b: Any) -> bool:
    # A type's own measure may fail where the values are equal, as a relative one does at zero.
    same = type_.values_eq(a, b) if type(a) is type(b) else False
    return bool(same) or bool(type_.values_eq_approx(a, b))


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 120 else f"{text[:117]}..."
