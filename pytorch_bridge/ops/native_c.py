"""The C code of a native op: a call of its function in cgotorch.h.

A parameter of the op becomes a local constant with the argument's name. These are declarations, not
compound literals, so that the code is C++ as well as C99.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..graph.basic import Apply
from ..types import SchemaType, schema_type
from ..types.base import Sub
from ..types.schema_types import (
    Enum,
    Number,
    NumberList,
    OptionalNumber,
    OptionalScalar,
    ScalarArg,
    ScalarList,
    TensorArg,
    TensorList,
    scalar_literal,
)

if TYPE_CHECKING:
    from .native import NativeOp

# `&(const double){0x1p+0}`, `(const int64_t[]){INT64_C(1)}, 1`, `(Scalar){ScalarInt, {...}}`
_COMPOUND = re.compile(r"(&?)\((?:const )?([\w ]+?)(\[\])?\)(\{.*\})(, \d+)?$", re.S)

_SCALAR = {"int": "{{ScalarInt, {{.i = {}}}}}", "bool": "{{ScalarBool, {{.i = {}}}}}"}
_SCALAR["float"] = "{{ScalarFloat, {{.f = {}}}}}"


def _if(condition: str, fail: str) -> str:
    """What leaves on a condition, in lines of its own."""
    inner = fail.strip()
    if inner.startswith("{") and inner.endswith("}"):
        inner = inner[1:-1].strip()
    return f"if ({condition}) {{\n{inner}\n}}"


class _Call:
    """The pieces of one call, as they come up."""

    def __init__(self, sub: Sub) -> None:
        self.fail = sub["fail"]
        self.before: list[str] = []
        self.arguments: list[str] = []
        self.after: list[str] = []  # once the call has succeeded
        self.always: list[str] = []  # also where it failed

    def bound(self, name: str, literal: str) -> None:
        """An argument whose value is known, from the C of its type."""
        found = _COMPOUND.match(literal)
        if found is None:
            self.arguments += literal.split(", ") if literal == "NULL, 0" else [literal]
            return
        address, c, array, value, count = found.groups()
        self.before.append(f"const {c} {name}{array or ''} = {value};")
        self.arguments.append(f"{address}{name}")
        if count:
            self.arguments.append(count[2:])

    def array(self, name: str, c: str, elements: Sequence[str]) -> None:
        self.before.append(f"const {c} {name}[] = {{{', '.join(elements) or '0'}}};")
        self.arguments += [name, str(len(elements))]

    def number_tensor(self, name: str, value: Any) -> str:
        """A tensor that stands for a Python number, as type promotion knows it."""
        self.before.append(f"Tensor {name} = NULL;")
        self.before.append(
            f"const Scalar {name}_number = {scalar_literal(value, bare=True)};\n"
            + _if(f"(pb_error = cgotorch_number_tensor(&{name}_number, &{name}))", self.fail)
        )
        self.always.append(f"FreeTensor({name});")
        return name


def _scalar_of(variable_type: Any, c: str) -> str:
    """The initialiser of a Scalar with the value of a number's variable."""
    return _SCALAR[variable_type.kind].format(c)


def _argument(
    call: _Call, t: SchemaType, name: str, value: Any, inputs: Iterator[tuple[str, Any]]
) -> None:
    from .native import IN

    def is_input(v: Any) -> bool:
        return v is IN

    if is_input(value):
        c, variable_type = next(inputs)
        if isinstance(t, (TensorList, NumberList, ScalarList)):
            call.arguments += [c, f"{c}_len"]
        elif isinstance(t, OptionalScalar) and isinstance(variable_type, Number):
            call.before.append(f"const Scalar {name} = {_scalar_of(variable_type, c)};")
            call.arguments.append(f"&{name}")
        elif isinstance(t, ScalarArg) and isinstance(variable_type, Number):
            call.before.append(f"const Scalar {name} = {_scalar_of(variable_type, c)};")
            call.arguments.append(name)
        elif isinstance(t, OptionalScalar) and not isinstance(variable_type, OptionalScalar):
            call.arguments.append(f"&{c}")
        elif isinstance(t, OptionalNumber) and isinstance(variable_type, Number):
            call.before.append(f"const {t.number} {name} = {c};")
            call.arguments.append(f"&{name}")
        elif isinstance(t, Enum) and t.optional and not getattr(variable_type, "optional", True):
            call.arguments.append(f"&{c}")
        else:
            call.arguments.append(c)
    elif isinstance(t, TensorArg):
        if value is None:
            call.arguments.append("NULL")
        else:
            call.arguments.append(call.number_tensor(name, value))
    elif isinstance(t, TensorList):
        elements = []
        for i, v in enumerate(value):
            if is_input(v):
                elements.append(next(inputs)[0])
            else:
                elements.append("NULL" if v is None else call.number_tensor(f"{name}_{i}", v))
        call.array(name, "Tensor", elements)
    elif isinstance(value, tuple) and any(map(is_input, value)):
        one = schema_type(re.sub(r"\[.*", "", t.schema).replace("SymInt", "int"))
        elements = []
        for v in value:
            if not is_input(v):
                elements.append(_element(one, v))
                continue
            c, variable_type = next(inputs)
            scalar = isinstance(one, ScalarArg) and isinstance(variable_type, Number)
            elements.append(_scalar_of(variable_type, c) if scalar else c)
        call.array(name, one.c, elements)
    else:
        literal = t.c_literal(value)
        if literal is None:
            from ..errors import MissingMethodError

            raise MissingMethodError(f"{value!r} has no form in C as a {t}")
        call.bound(name, literal)


def _element(t: SchemaType, value: Any) -> str:
    literal = t.c_literal(value)
    assert literal is not None
    found = _COMPOUND.match(literal)
    return found[4] if found else literal


def call(
    op: NativeOp, node: Apply, name: str, inputs: Sequence[str], outputs: Sequence[str], sub: Sub
) -> str:
    """The C code of `op`: the constants that it needs, the call, and what becomes of the results.

    MissingMethodError where a parameter has no form in C, such as a Generator.
    """
    function = op.native.function
    pieces = _Call(sub)
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
    run = f"{op.c_name}({', '.join(pieces.arguments)})"
    lines = [*pieces.before]
    if pieces.always:
        lines += [f"pb_error = {run};", *pieces.always, _if("pb_error", sub["fail"])]
    else:
        lines.append(_if(f"(pb_error = {run})", sub["fail"]))
    return "\n".join([*lines, *pieces.after])


def _list_result(pieces: _Call, op: NativeOp, name: str, outputs: Sequence[str]) -> None:
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
