"""The C code of a native op: a call of its function in cgotorch.h.

A parameter of the op becomes a local constant with the argument's name. These are declarations, not
compound literals, so that the code is C++ as well as C99.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import MissingMethodError
from ..graph.basic import Apply
from ..inference.result_types import certain
from ..schema.corrections import IN
from ..types import SchemaType, TensorType, literals
from ..types.base import Sub
from ..types.containers import BoolArray, ListArg, Optional, TensorList, element_of
from ..types.enums import DTYPES
from ..types.literals import CLiteral
from ..types.numbers import NumberArg, ScalarArg
from ..types.tensor import TensorArg

if TYPE_CHECKING:
    from .native import NativeOp
    from .op import Names

_SCALAR = {"int": "{{ScalarInt, {{.i = {}}}}}", "bool": "{{ScalarBool, {{.i = {}}}}}"}
_SCALAR["float"] = "{{ScalarFloat, {{.f = {}}}}}"


def _if(condition: str, fail: str) -> str:
    """What leaves on a condition, in lines of its own."""
    inner = fail.strip()
    if inner.startswith("{") and inner.endswith("}"):
        inner = inner[1:-1].strip()
    return f"if ({condition}) {{\n{inner}\n}}"


class _CallCode:
    """The pieces of one call, as they come up."""

    def __init__(self, sub: Sub) -> None:
        self.fail = sub["fail"]
        self.before: list[str] = []
        self.arguments: list[str] = []
        self.after: list[str] = []  # once the call has succeeded
        self.always: list[str] = []  # also where it failed

    def converted(self, out: str, to: str, dtype: int) -> None:
        """A result that comes in another dtype where there are no elements; `to` converts it."""
        self.after += [
            "{\nTensorInfo info;\nTensor converted = NULL;\n"
            + _if(f"(pb_error = GetTensorInfo({out}, &info))", self.fail),
            f"if (info.dtype != {dtype}) {{\n"
            + _if(f"(pb_error = {to}({out}, {dtype}, false, false, NULL, &converted))", self.fail),
            f"FreeTensor({out});\n{out} = converted;\n}}\n}}",
        ]

    def checked(self, out: str, t: TensorType) -> None:
        """A result whose type is not certain."""
        declarations, expected = t.c_expected(out, anywhere=True)
        self.after += [
            declarations,
            _if(f"{out} && (pb_error = cgotorch_check_tensor({out}, {expected}))", self.fail),
        ]

    def bound(self, name: str, literal: CLiteral) -> None:
        """An argument whose value is known."""
        if literal.compound:
            self.before.append(literal.declaration(name))
        self.arguments.append(literal.reference(name) if literal.compound else literal.value)
        if literal.length is not None:
            self.arguments.append(str(literal.length))

    def number_tensor(self, name: str, value: Any) -> str:
        """A tensor that stands for a Python number, as type promotion knows it."""
        self.before.append(f"Tensor {name} = NULL;")
        self.before.append(
            f"const Scalar {name}_number = {literals.scalar(value)};\n"
            + _if(f"(pb_error = cgotorch_number_tensor(&{name}_number, &{name}))", self.fail)
        )
        self.always.append(f"FreeTensor({name});")
        return name


def _scalar_of(t: NumberArg, c: str) -> str:
    """The initialiser of a Scalar with the value of a number's variable."""
    return _SCALAR[t.kind].format(c)


def _argument(
    call: _CallCode, t: SchemaType, name: str, value: Any, inputs: Iterator[tuple[str, Any]]
) -> None:
    def is_input(v: Any) -> bool:
        return v is IN

    wanted = t.required
    element = element_of(t)
    if is_input(value):
        c, given_type = next(inputs)
        if isinstance(wanted, ListArg):
            call.arguments += [c, f"{c}_len"]
        elif isinstance(wanted, ScalarArg) and isinstance(given_type, NumberArg):
            call.bound(name, CLiteral("Scalar", _scalar_of(given_type, c), address=t is not wanted))
        elif wanted.nullable or t is wanted or isinstance(given_type, Optional):
            call.arguments.append(c)
        else:
            # A copy: what is known stands in the call as an expression, which has no address.
            call.bound(name, CLiteral(wanted.c, c, address=True))
    elif isinstance(wanted, TensorArg):
        if value is None:
            call.arguments.append("NULL")
        else:
            call.arguments.append(call.number_tensor(name, value))
    elif (
        element is not None
        and value is not None
        and (isinstance(wanted, TensorList) or any(map(is_input, value)))
    ):
        elements = []
        for i, v in enumerate(value):
            if not is_input(v):
                elements.append(_element(call, element, f"{name}_{i}", v))
                continue
            c, given_type = next(inputs)
            scalar = isinstance(element, ScalarArg) and isinstance(given_type, NumberArg)
            elements.append(_scalar_of(given_type, c) if scalar else c)
        values = f"{{{', '.join(elements) or '0'}}}"
        # C knows how many a bool[N] has.
        length = None if isinstance(wanted, BoolArray) else len(elements)
        call.bound(name, CLiteral(element.c, values, array=True, length=length))
    else:
        literal = t.literal(value)
        if literal is None:
            raise MissingMethodError(f"{value!r} has no form in C as a {t}")
        call.bound(name, literal)


def _element(call: _CallCode, t: SchemaType, name: str, value: Any) -> str:
    """An element of a list that is known."""
    if isinstance(t, (TensorArg, Optional)):
        return "NULL" if value is None else call.number_tensor(name, value)
    literal = t.literal(value)
    assert literal is not None
    return literal.value


def call(op: NativeOp, node: Apply, name: str, inputs: Names, outputs: Names, sub: Sub) -> str:
    """The C code of `op`: the constants that it needs, the call, and what becomes of the results.

    MissingMethodError where a parameter has no form in C, such as a Generator.
    """
    function = op.native.function
    pieces = _CallCode(sub)
    given = iter(list(zip(inputs, (v.type for v in node.inputs), strict=True)))
    for argument, t, value in zip(function.arguments, op.native.types, op.arguments, strict=True):
        _argument(pieces, t, f"arg_{argument.name}", value, given)
    if op.native.returns_written:
        for out, places in op.destroy_map.items():
            if out is not None:
                pieces.after.append(f"{outputs[out]} = RetainTensor({inputs[places[0]]});")
    else:
        for k, (t, group) in enumerate(zip(op.native.results, op.groups, strict=True)):
            if isinstance(t, TensorList):
                _list_result(pieces, op, f"list_{k}", [outputs[o] for o in group])
            else:
                pieces.arguments.append(f"&{outputs[group.start]}")
    for k, of in op.converted(node):
        pieces.converted(outputs[k], op.to_name, DTYPES[str(of.dtype)])
    # (Of a composite's nodes the types are those of elements.)
    if "of_elements" not in sub and not certain(
        op.native, op.arguments, tuple(v.type for v in node.inputs)
    ):
        for c, v in zip(outputs, node.outputs, strict=True):
            if isinstance(v.type, TensorType) and (v.type.dtype or v.type.shape is not None):
                pieces.checked(c, v.type)
    run = f"{op.c_name}({', '.join(pieces.arguments)})"
    lines = [*pieces.before]
    if pieces.always:
        lines += [f"pb_error = {run};", *pieces.always, _if("pb_error", sub["fail"])]
    else:
        lines.append(_if(f"(pb_error = {run})", sub["fail"]))
    return "\n".join([*lines, *pieces.after])


def _list_result(pieces: _CallCode, op: NativeOp, name: str, outputs: Sequence[str]) -> None:
    """A result that is a list: its tensors are handed to the outputs."""
    n = len(outputs)
    pieces.before.append(f"Tensor *{name} = NULL;\nint64_t {name}_len = 0;")
    pieces.arguments += [f"&{name}", f"&{name}_len"]
    moves = [f"{out} = {name}[{i}];" for i, out in enumerate(outputs)]
    pieces.after += [
        f"if ({name}_len != {n}) {{",
        f"FreeTensors({name}, {name}_len);\nFreeArray({name});",
        f'pb_error = cgotorch_make_error("RuntimeError", "{op.name} returned another number of '
        f'tensors than {n}");',
        f"{pieces.fail}\n}}",
        *moves,
        f"FreeArray({name});",
    ]
