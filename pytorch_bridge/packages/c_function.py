"""A graph as a C function without Python: what C and Go call.

    const char *Name(inputs..., outputs...)

has the forms of arguments and the convention of errors of cgotorch.h; a number or an enum that may
be none is two results, `int64_t *out, bool *out_given`. It is the same code as for Python between
the boundaries; there, `c_take` and `c_give` of the types stand for `c_extract` and `c_sync`. Every
op must have C code. Constants that are tensors come first, as an array.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from ..codegen.c import GENERATED_C
from ..errors import BridgeTypeError, BridgeValueError, MissingMethodError
from ..frontend.branches import Branching
from ..graph.basic import Apply, Constant, Variable
from ..link.blocks import Block, indented, remark, shown
from ..link.c_linker import CLinker
from ..link.emit import Emitter, check_argument, literal_of
from ..link.explain import GraphPlace
from ..ops.op import has_state
from ..types import literals
from ..types.base import Sub, Type
from ..types.schema_types import Plain, SchemaType
from ..types.tensor import TensorArg

_KEYWORDS = (
    "auto break case char const continue default do double else enum extern float for goto if "
    "inline int long register restrict return short signed sizeof static struct switch typedef "
    "union unsigned void volatile while bool true false "
    # of C++, where an op is written in it
    "alignas alignof and asm catch class compl constexpr decltype delete explicit export friend "
    "mutable namespace new noexcept not nullptr operator or private protected public requires "
    "template this throw try typeid typename using virtual xor "
    # and what the body names: an array, a counter, functions of C, macros of some compilers
    "constants i malloc free memcpy memset memcmp strlen abort isnan isinf isfinite signbit abs "
    "errno linux unix"
)
# Functions of <math.h>, which ops call, and their forms for float and long double.
_MATH = (
    "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 "
    "fabs floor fmax fmin fmod frexp hypot ldexp lgamma log log10 log1p log2 lrint modf nearbyint "
    "pow rint round sin sinh sqrt tan tanh tgamma trunc"
)
_TAKEN = {*_KEYWORDS.split(), *(f"{f}{end}" for f in _MATH.split() for end in ("", "f", "l"))}


def parameter_names(
    variables: Sequence[Variable], letter: str, face: str, taken: Iterable[str] = ()
) -> list[str]:
    """A C name for each variable: its own as far as C allows, else a letter and a number. `face` is
    the method of types that declares the parameters, some of which are several: x and x_len."""
    names: list[str] = []
    used = set(taken)
    for i, v in enumerate(variables):
        name = re.sub(r"\W", "_", v.name or "", flags=re.A)
        if not name or name[0].isdigit():
            name = f"{letter}{i}"
        # What begins with a capital may be the name of a function; V1 and pb_... are the linker's.
        if name in _TAKEN or re.match(r"[A-Z]|pb_|cgotorch_|__", name) or name.endswith("_t"):
            name = f"{letter}_{name}"
        while not used.isdisjoint(declared := _declared(v.type, face, name)):
            name += "_"
        used |= declared
        names.append(name)
    return names


def _declared(type_: Type, face: str, name: str) -> set[str]:
    """What the parameters for a value are called. A type that has none is refused later."""
    made = getattr(type_, face, None)
    return {name, *(p.split()[-1].lstrip("*") for p in made(name))} if made else {name}


def _without_python(code: str) -> str:
    """Support code without the parts that are there only where Python.h is."""
    return re.sub(r"^#ifdef Py_PYTHON_H\n.*?^#endif\n?", "", code, flags=re.S | re.M).strip()


def _face(type_: Type, method: str) -> Any:
    found = getattr(type_, method, None)
    if found is None:
        raise MissingMethodError(
            f"the type {type_} cannot be a parameter of a C function: {type(type_).__name__} "
            f"lacks {method}"
        )
    return found


class CEmitter(Emitter):
    """The body of a C function."""

    linker: CFunction

    def __init__(self, linker: CFunction) -> None:
        self.tensors: list[Constant] = []
        super().__init__(linker)

    def _constant(self, value: Any) -> str:
        raise AssertionError("a C function has no Python objects")

    def _extract(self, v: Variable, sub: Sub, check: bool) -> str:
        type_, name = self._type(v), self.names[v]
        take = _face(type_, "c_take")
        checks = check_argument(type_, "c_take", check)
        if v in self.input_numbers:
            return take(name, self.linker.input_names[self.input_numbers[v]], sub, **checks)
        assert isinstance(v, Constant)
        literal = literal_of(type_, v.data)
        if literal is None:
            self.tensors.append(v)
            if not isinstance(type_, TensorArg):
                raise MissingMethodError(f"the constant {v} of type {v.type} has no form in C")
            return f"{name} = RetainTensor(constants[{len(self.tensors) - 1}]);"
        if not isinstance(type_, SchemaType):
            # The variable is all that there is of a registered type, members and all.
            return f"{name} = {literal.value};"
        known = f"{name}_known"
        if literal.value == "NULL":
            if literal.length is not None:
                return type_.c_init(name, sub)  # no list
            # As an expression it has no type that could be followed where it is not NULL.
            return f"{literal.c} {known} = NULL;\n{take(name, known, sub, **checks)}"
        if literal.inline:
            return take(name, f"({literal.value})", sub, **checks)
        # What may be none is a pointer, which is compared with NULL.
        pointer = literal.address or literal.length is not None
        lines = [literal.declaration(f"{known}_value" if pointer else known)]
        if pointer:
            lines.append(f"const {literal.c} *{known} = {literal.reference(f'{known}_value')};")
        if literal.length is not None:
            lines.append(f"const int64_t {known}_len = {literal.length};")
        return "\n".join([*lines, take(name, known, sub, **checks)])

    def _sync(self, v: Variable, sub: Sub) -> str:
        return "\n".join(
            _face(self._type(v), "c_give")(self.names[v], n, sub)
            for out, n in zip(self.linker.outputs, self.linker.output_names, strict=True)
            if out is v
        )

    def _c_code(
        self, node: Apply, name: str, inputs: Sequence[str], outputs: Sequence[str], sub: Sub
    ) -> str:
        op = node.op
        if not isinstance(op, Branching):
            return super()._c_code(node, name, inputs, outputs, sub)
        functions = []
        for k, branch in enumerate(op.branches):
            inner = CFunction(branch.fgraph, f"{self.linker.name}_{name}_{k}")
            self.support += inner.static()
            for owner in inner._code.owners:
                self._own(owner)
            functions.append(inner.name)
        return op.c_around(node, functions, inputs, outputs, sub)

    def _state(self, node: Apply, name: str) -> None:
        if has_state(node.op):
            raise MissingMethodError(
                f"{node.op} keeps state between calls (c_support_code_struct), which a C function "
                "does not: keep it in an input that the op destroys"
            )

    def _perform(self, i: int, node: Apply, label: str) -> str:
        raise AssertionError("a C function demands C code")

    def _without_gil(self, head: list[str], blocks: list[Block]) -> None:
        pass

    def _framed(self, head: list[str], body: str) -> str:
        # Only what can fail has a place in the table.
        used = sorted({int(n) for n in re.findall(r"\bpb_failed = (\d+);", body)})
        number = {old: new for new, old in enumerate(used, 1)}
        body = re.sub(r"\bpb_failed = (\d+);", lambda m: f"pb_failed = {number[int(m[1])]};", body)
        self.places = [self.places[old - 1] for old in used]
        end = "return NULL;"
        if self.places:
            end = "return pb_failed ? cgotorch_error_at(pb_error, pb_places[pb_failed - 1]) : NULL;"
        else:
            head = [h for h in head if not h.startswith("int pb_failed")]
            body = body.replace("if (!pb_failed) {", "{")
        return "\n".join([*head, "(void)pb_error;", body, end])


class CFunction(CLinker):
    """The graph between `fgraph.inputs` and `fgraph.outputs` as the C function `name`.

    `constants` are the tensors that a caller passes in the first parameter, in this order; without
    any, there is no such parameter. MissingMethodError where an op has no C code, or a type no C
    parameters.
    """

    emitter = CEmitter
    mark = GENERATED_C  # the first line of the file

    def __init__(self, fgraph: Any, name: str) -> None:
        super().__init__(fgraph, demand_c=True)
        if not re.fullmatch(r"[A-Za-z]\w*", name):
            raise BridgeValueError(f"{name!r} is no name for a C function")
        self.name = name
        self.input_names = parameter_names(self.inputs, "in", "c_parameters")
        inputs = set(self.inputs)
        made = [Variable(v.type) if v in inputs else v for v in self.outputs]
        taken = {
            n
            for v, name in zip(self.inputs, self.input_names, strict=True)
            for n in _declared(v.type, "c_parameters", name)
        }
        self.output_names = parameter_names(made, "out", "c_results", taken)
        repeated = [v for v, times in Counter(self.outputs).items() if times > 1]
        for v in repeated:
            if not isinstance(v.type, (TensorArg, Plain)):
                raise BridgeValueError(f"{v} of type {v.type} can be an output once only")

    @property
    def constants(self) -> list[Constant]:
        code = self._code
        assert isinstance(code, CEmitter)
        return code.tensors

    def parameters(self) -> list[str]:
        """The C parameters: constants, inputs, outputs."""
        found = ["const Tensor *constants"] if self.constants else []
        for v, n in zip(self.inputs, self.input_names, strict=True):
            found += _face(v.type, "c_parameters")(n)
        for v, n in zip(self.outputs, self.output_names, strict=True):
            found += _face(v.type, "c_results")(n)
        return found

    def prototype(self) -> str:
        """`const char *Name(Tensor x, Tensor *out0)`"""
        return f"const char *{self.name}({', '.join(self.parameters()) or 'void'})"

    def _source(self) -> str:
        code = self._code
        parts = [
            self.mark.strip(),
            remark("; ".join(map(code.explain.names.line, self.order[:9]))),
            "\n".join(f"#include {h}" for h in self.headers()),
            *code.macros(),
            *(t for t in map(_without_python, self.support_code()) if t),
        ]
        if self.init_code():
            raise BridgeTypeError(
                f"{self.name}: c_init_code needs a module of Python, which a C function is not in"
            )
        if code.places:
            places = ",\n".join(literals.string(self._where(p), "replace") for p in code.places)
            parts.append(f"static const char *const pb_places[] = {{\n{places},\n}};")
        parts.append(f"{code.attributes}{self.prototype()} {{\n{code.body}\n}}")
        return indented("\n\n".join(parts))

    def static(self) -> list[str]:
        """The function without what its file has around it, for a file of others: what it needs,
        of which the file may have some already, and then it itself."""
        code = self._code
        if self.constants:
            raise MissingMethodError(f"{self.name}: a branch has no tensors of its own")
        mine = f"{self.name}_places"
        parts = [*code.support]
        if code.places:
            places = ",\n".join(literals.string(self._where(p), "replace") for p in code.places)
            parts.append(f"static const char *const {mine}[] = {{\n{places},\n}};")
        body = code.body.replace("pb_places", mine)
        parts.append(f"static {self.prototype()} {{\n{body}\n}}")
        # Nodes have numbers, in each function its own.
        return [re.sub(r"\bnode_(\d+)", rf"{self.name}_node_\1", part) for part in parts]

    def source(self) -> str:
        """The C file. It needs cgotorch.h and nothing else that its ops do not bring."""
        return shown(self._source())

    def headers(self) -> list[str]:
        found = super().headers()
        return found if "<cgotorch.h>" in found else [*found, "<cgotorch.h>"]

    def _where(self, place: GraphPlace) -> str:
        names = self._code.explain.names
        if place.node is not None:
            at = self.order.index(place.node)
            return f"node {at} of {len(self.order)}: {names.line(place.node)}"
        assert place.variable is not None
        if place.input is not None:
            return f"input {place.input}, {self.input_names[place.input]}"
        return f"variable {names[place.variable]}"


__all__ = ["CEmitter", "CFunction"]
