"""Elemwise: a scalar op on every element of tensors that broadcast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..aliasing.in_place import rounds_alike
from ..errors import BridgeTypeError
from ..graph.basic import Apply, Variable
from ..types import TensorType
from ..types.base import Sub
from .composite import Composite
from .fused_elements import ElementOp
from .fused_loops import HEADERS, functions, is_single, support
from .native import NativeOp, constant, derivatives, native
from .op import CallsTorch, Gradients, Names, Storages, Values, Variables, closed
from .scalar import ScalarOp, native_form


@closed
class Elemwise(CallsTorch):
    """A scalar op, applied to every element. `inplace` is {output: input}: the output is made in
    the memory of that input, which is destroyed. A Composite's has memory of its own after all
    where the input has another shape or other strides than the output.

    The scalar op may be a Composite: a whole graph of scalar ops, computed in one go.
    """

    __props__ = ("scalar_op", "inplace")
    only_calls = True

    def __init__(self, scalar_op: Any, inplace: dict[int, int] | None = None) -> None:
        if not isinstance(scalar_op, (ScalarOp, Composite)):
            raise BridgeTypeError(f"Elemwise needs a scalar op, got {scalar_op!r}")
        self.scalar_op: Any = scalar_op
        self.inplace = dict(inplace or {})
        for o, i in self.inplace.items():
            if not 0 <= i < scalar_op.arity:
                raise BridgeTypeError(f"Elemwise{{{scalar_op}}} has no input {i} for output {o}")
            if isinstance(scalar_op, ScalarOp) and (i != 0 or scalar_op.entry.inplace is None):
                raise BridgeTypeError(f"{scalar_op} cannot write into its input {i}")
        if self.inplace:
            self.destroy_map = {o: [i] for o, i in self.inplace.items()}

    def __str__(self) -> str:
        inplace = f", inplace={self.inplace}" if self.inplace else ""
        return f"Elemwise{{{self.scalar_op}{inplace}}}"

    __repr__ = __str__

    @property
    def composite(self) -> bool:
        return isinstance(self.scalar_op, Composite)

    def make_node(self, *inputs: Any) -> Apply:
        if len(inputs) != self.scalar_op.arity:
            raise BridgeTypeError(f"{self} takes {self.scalar_op.arity} inputs, got {len(inputs)}")
        variables = [constant(v) for v in inputs]
        for i, v in enumerate(variables):
            if not isinstance(v.type, TensorType):
                raise BridgeTypeError(f"{self}: input {i} is no tensor: {v} of type {v.type}")
        if self.composite:
            types = self.scalar_op.tensor_types([v.type for v in variables])
        else:
            types = [
                v.type for v in native_form(self.scalar_op, variables, bool(self.inplace)).outputs
            ]
        for o, i in self.inplace.items():
            if types[o] != variables[i].type:
                raise BridgeTypeError(
                    f"{self}: output {o} is of type {types[o]} and cannot be made in input {i}, "
                    f"{variables[i]} of type {variables[i].type}"
                )
        return Apply(self, variables, [t.make_variable() for t in types])

    def perform(self, node: Apply, inputs: Values, output_storage: Storages) -> None:
        if self.composite:
            results = self.scalar_op.compute(inputs)
        else:
            name = self.scalar_op.entry.inplace if self.inplace else self.scalar_op.entry.native
            results = [native(name).torch_op(*inputs)]
        for o, value in enumerate(results):
            if self.composite and o in self.inplace:
                target = inputs[self.inplace[o]]
                if (target.shape, target.stride()) == (value.shape, value.stride()):
                    value = target.copy_(value)
            elif any(value is x for x in inputs) and o not in self.inplace:
                value = value.clone()
            output_storage[o][0] = value

    def grad(self, inputs: Variables, output_grads: Variables) -> Gradients:
        if not self.composite:
            node = native_form(self.scalar_op, inputs)
            return node.op.grad(node.inputs, output_grads)
        outputs = expanded(self.scalar_op, inputs)
        return derivatives().through(outputs, output_grads, inputs)

    def in_place(self, node: Apply, output: int, input: int) -> Elemwise | None:
        """The op that makes an output in the memory of an input, as this one already does for
        others; None where it cannot."""
        taken = input in self.inplace.values() or output in self.inplace
        made = node.outputs[output].type
        same = made == node.inputs[input].type and rounds_alike(getattr(made, "dtype", None))
        uses = sum(v is node.inputs[input] for v in node.inputs)
        if not self.composite or taken or not same or uses > 1:
            return None
        return Elemwise(self.scalar_op, {**self.inplace, output: input})

    # In C
    def _native(self, node: Apply) -> tuple[NativeOp, Apply]:
        inner = native_form(self.scalar_op, node.inputs, bool(self.inplace))
        assert isinstance(inner.op, NativeOp)
        return inner.op, inner

    def c_code(self, node: Apply, name: str, inputs: Names, outputs: Names, sub: Sub) -> str:
        if not self.composite:
            op, inner = self._native(node)
            return op.c_code(inner, name, inputs, outputs, sub)
        _, functions, looped = self._functions(node)
        given = ", ".join(inputs)
        lines = [
            f"const Tensor {name}_in[] = {{{given}}};",
            f"Tensor {name}_out[{len(outputs)}] = {{NULL}};",
        ]
        calls = f"(pb_error = {functions}_calls({name}_in, {name}_out))"
        if looped:
            run = f"cgotorch_run_loop(&{functions}_loop, {name}_in, {name}_out, &{name}_done)"
            lines += [
                f"bool {name}_done = false;",
                f"pb_error = {run};",
                f"if (!pb_error && !{name}_done)\n"
                f"pb_error = {functions}_calls({name}_in, {name}_out);",
            ]
            calls = "pb_error"
        lines.append(f"if ({calls}) {{\n{sub['fail']}\n}}")
        lines += [f"{out} = {name}_out[{o}];" for o, out in enumerate(outputs)]
        return "\n".join(lines)

    def _functions(self, node: Apply) -> tuple[str, str, bool]:
        single = [is_single(v.type) for v in node.inputs]  # type: ignore[arg-type]
        return functions(self.scalar_op, single, self.inplace)

    def c_support_code(self) -> Sequence[str]:
        return support(self.scalar_op) if self.composite else []

    def c_support_code_apply(self, node: Apply, name: str) -> str:
        return self._functions(node)[0] if self.composite else ""

    def c_headers(self) -> Sequence[str]:
        return HEADERS if self.composite else super().c_headers()

    def c_code_cache_version(self) -> tuple[Any, ...]:
        return (2,)


def expanded(composite: Composite, inputs: Sequence[Variable]) -> list[Variable]:
    """A composite on tensors, in nodes of single ops."""
    became: dict[Variable, Variable] = dict(zip(composite.inputs, inputs, strict=True))
    for node in composite.order:
        args = [became.get(v, v) for v in node.inputs]
        op = node.op.op if isinstance(node.op, ElementOp) else Elemwise(node.op)
        became[node.outputs[0]] = op(*args)
    return [became.get(v, v) for v in composite.outputs]
