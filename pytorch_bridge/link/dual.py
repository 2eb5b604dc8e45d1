"""The dual linker: every node in C and in Python, and an error where the two differ."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from ..aliasing.destroy import destroyed_inputs
from ..errors import REFUSALS, ContractError
from ..graph.basic import Apply
from ..ops.op import Storage, has_perform
from ..sameness import same
from ..types import Type
from .explain import short
from .opwise import in_c
from .python import NodeRunner, PythonLinker


class DualLinker(PythonLinker):
    """Runs `perform` and the C code of each node on the same inputs and compares the outputs with
    `values_eq_approx` of their types. The values that go on are those of C.

    Where a node destroys an input, `perform` gets a copy. Random nodes, and those with only one of
    the two, run once.
    """

    def runner(self, node: Apply) -> NodeRunner:
        in_python, compiled = super().runner(node), in_c(node)
        if compiled is None:
            return in_python
        if node.op.random or not has_perform(node.op):
            return compiled
        destroyed = destroyed_inputs(node)

        def run(values: Sequence[Any], outputs: Sequence[Storage]) -> None:
            expected: list[Storage] = [[None] for _ in outputs]
            in_python(
                [copy.deepcopy(v) if i in destroyed else v for i, v in enumerate(values)], expected
            )
            # An output of perform may be a view of an input that C now destroys.
            if destroyed:
                expected = copy.deepcopy(expected)
            compiled(values, outputs)
            for i, ((a,), (b,)) in enumerate(zip(expected, outputs, strict=True)):
                if not equal(node.outputs[i].type, a, b):
                    raise ContractError(
                        f"{node.op}: perform and C differ in output {i}: "
                        f"perform gives {short(a)}, C gives {short(b)}"
                    )

        return run


def measured(a: Any, b: Any, *measures: Callable[[Any, Any], Any]) -> Iterator[bool]:
    """Whether two values are equal by each of these measures of their type. One that fails says
    nothing, as a relative one does at zero."""
    for measure in measures:
        with suppress(*REFUSALS):
            yield bool(measure(a, b))


def equal(type_: Type, a: Any, b: Any) -> bool:
    """Whether two values are equal by one of the type's measures, or the same."""
    exact = [type_.values_eq] if type(a) is type(b) else []
    return any(measured(a, b, *exact, type_.values_eq_approx)) or same(a, b)
