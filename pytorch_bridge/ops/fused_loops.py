"""The C of Elemwise(Composite): one loop, and PyTorch's functions where it does not fit.

The loop's code works on a block of elements. Expressions are C loops over the block; between them
stand the kernels that need them (element.py). The result of an expression that a kernel or a later
loop needs is kept in scratch memory of the size of a block, and so stays in the cache.

    x, y -> [loop 0: s = (x + y) * 0.5] -> [kernel: t = tanh(s)] -> [loop 1: out = t * x]

cgotorch_run_loop (cgotorch/loops.h) splits the tensors into blocks and threads. It refuses what
would not give the very bits and strides that the calls give; then the calls are made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from ..errors import MissingMethodError
from ..graph.basic import Apply, Constant, Variable
from ..types import TensorType
from ..types.enums import DTYPES
from .fused_dtypes import FusedDType, fused_dtype, known
from .fused_elements import Expression, Form, Kernel, form, native_node

if TYPE_CHECKING:
    from .composite import Composite

# Each loop is compiled for several processors, and the one at hand is chosen when the library is
# loaded. Products and sums are rounded one by one, as ATen rounds them.
SUPPORT = r"""
#if defined(__clang__)
#define PB_EACH _Pragma("clang loop vectorize(assume_safety)")
#define PB_ROUNDED _Pragma("clang fp contract(off)")
#define PB_OPTIMIZED
#else
#define PB_EACH _Pragma("GCC ivdep")
#define PB_ROUNDED
#define PB_OPTIMIZED \
  __attribute__((optimize("O3", "fp-contract=off", "no-math-errno", "no-trapping-math")))
#endif
#if defined(__x86_64__) && defined(__GLIBC__)
#define PB_PROCESSORS __attribute__((target_clones("default", "avx2")))
#else
#define PB_PROCESSORS
#endif
/* Rounding is where wider vectors, and masks, count. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && __GNUC__ >= 12
#define PB_PROCESSORS_SHORT __attribute__((target_clones("default", "avx2", "arch=x86-64-v4")))
#else
#define PB_PROCESSORS_SHORT PB_PROCESSORS
#endif
#define PB_LOOP PB_OPTIMIZED PB_PROCESSORS static
#define PB_LOOP_SHORT PB_OPTIMIZED PB_PROCESSORS_SHORT static
#define PB_INLINE PB_OPTIMIZED static inline
#ifndef PB_BITS
#define PB_BITS
typedef union {
  float f;
  uint32_t u;
} pb_bits;
#endif
"""

HEADERS = ("<math.h>", "<stdbool.h>", "<stdint.h>", "<string.h>", "cgotorch.h")

MAX_INPUTS = 63


def _dtype(v: Variable) -> str:
    assert isinstance(v.type, TensorType)
    assert v.type.dtype is not None
    return v.type.dtype


def _how(v: Variable) -> FusedDType:
    return known(_dtype(v))


def is_single(t: TensorType) -> bool:
    """Whether a tensor of the type has one element, so that its value is the same for all."""
    return t.shape is not None and all(size == 1 for size in t.shape)


class Program:
    """A Composite, taken apart: what runs in which loop."""

    def __init__(self, composite: Composite) -> None:
        self.composite = composite
        self.inputs = composite.inputs
        self.outputs = composite.outputs
        self.natives = [native_node(n) for n in composite.order]
        self.results = [n.outputs[0] for n in composite.order]
        made = set(self.results)
        known = made.union(self.inputs)
        for v in [*(x for n in self.natives for x in n.inputs), *self.outputs]:
            if isinstance(v, Constant) or v not in known:
                raise MissingMethodError(f"{composite} has no C code: it has the constant {v}")
        if len(set(self.outputs)) != len(self.outputs) or not made.issuperset(self.outputs):
            raise MissingMethodError(f"{composite} has no C code: it returns a variable twice")

    @cached_property
    def forms(self) -> list[Form] | None:
        """How each op is computed in a loop; None where there is no loop."""
        if len(self.inputs) > MAX_INPUTS or len(self.outputs) > MAX_INPUTS:
            return None
        found = []
        for node, result in zip(self.natives, self.results, strict=True):
            one = form(node.op, [_dtype(v) for v in node.inputs], _dtype(result))  # type: ignore[arg-type]
            if one is None:
                return None
            found.append(one)
        return found

    @cached_property
    def leaves(self) -> dict[Variable, int]:
        """The inputs that each value depends on, as bits."""
        found = {v: 1 << i for i, v in enumerate(self.inputs)}
        for node, result in zip(self.natives, self.results, strict=True):
            bits = 0
            for v in node.inputs:
                bits |= found[v]
            found[result] = bits
        return found

    # The calls ---------------------------------------------------------------------------------

    def calls(self, name: str, in_place: dict[int, int]) -> str:
        """A function that makes the calls one by one."""
        c: dict[Variable, str] = {v: f"in[{i}]" for i, v in enumerate(self.inputs)}
        c.update((v, f"t{k}") for k, v in enumerate(self.results))
        last: dict[Variable, int] = {}
        for k, node in enumerate(self.natives):
            last.update(dict.fromkeys([*node.inputs, self.results[k]], k))
        kept = {*self.inputs, *self.outputs}
        ending: dict[int, list[Variable]] = {}
        for v, k in last.items():
            if v not in kept:
                ending.setdefault(k, []).append(v)
        lines = [
            f"static const char *{name}_calls(const Tensor *in, Tensor *out) {{",
            "const char *pb_error = NULL;",
            f"Tensor {', '.join(f'{c[v]} = NULL' for v in self.results)};",
        ]
        for k, (node, result) in enumerate(zip(self.natives, self.results, strict=True)):
            inputs = [c[v] for v in node.inputs]
            sub = {"fail": "{ goto end; }", "of_elements": ""}
            code = node.op.c_code(node, f"{name}_{k}", inputs, [c[result]], sub)
            lines.append(f"{{\n{code}\n}}")
            for v in ending.get(k, ()):
                lines.append(f"FreeTensor({c[v]});\n{c[v]} = NULL;")
        for o, i in in_place.items():
            call = f"cgotorch_write_back(in[{i}], &{c[self.outputs[o]]})"
            lines.append(f"if ((pb_error = {call})) {{\ngoto end;\n}}")
        lines += [f"out[{o}] = {c[v]};\n{c[v]} = NULL;" for o, v in enumerate(self.outputs)]
        lines.append("end:;")
        lines += [f"FreeTensor({c[v]});" for v in self.results]
        return "\n".join([*lines, "return pb_error;", "}"])

    # The loop ----------------------------------------------------------------------------------

    def loop(self, name: str, single: Sequence[bool], in_place: dict[int, int]) -> str:
        """The functions of the loop, and its description, `name`_loop."""
        assert self.forms is not None
        return _Loop(self, name, single, in_place).code()


class _Loop:
    """Writes the loops of a program, each of what the kernels before it make possible."""

    def __init__(
        self, program: Program, name: str, single: Sequence[bool], in_place: dict[int, int]
    ) -> None:
        self.program, self.name, self.single, self.in_place = program, name, single, in_place
        assert program.forms is not None
        self.forms = program.forms
        self.place = {v: i for i, v in enumerate(program.inputs)}
        self.number = {v: k for k, v in enumerate(program.results)}
        self.stage = dict.fromkeys(program.inputs, 0)  # the first loop that can use a value
        for node, result, f in zip(program.natives, program.results, self.forms, strict=True):
            ready = max((self.stage[v] for v in node.inputs), default=0)
            self.stage[result] = ready + isinstance(f, Kernel)
        self.last = max(self.stage.values())
        self.scratch: dict[Variable, int] = {}
        self.stores: dict[int, list[tuple[Variable, str]]] = {}  # by loop: a value, and where
        self._place_values()

    def _is_kernel(self, v: Variable) -> bool:
        return v in self.number and isinstance(self.forms[self.number[v]], Kernel)

    def _keep(self, v: Variable) -> int:
        if v not in self.scratch:
            self.scratch[v] = len(self.scratch)
            if not self._is_kernel(v):
                self._store(self.stage[v], v, f"scratch[{self.scratch[v]}]")
        return self.scratch[v]

    def _store(self, loop: int, v: Variable, where: str) -> None:
        self.stores.setdefault(loop, []).append((v, where))

    def _place_values(self) -> None:
        program = self.program
        for node, result, f in zip(program.natives, program.results, self.forms, strict=True):
            if isinstance(f, Kernel):
                for v in [*node.inputs, result]:
                    self._keep(v)
                continue
            for v in node.inputs:
                # What an earlier loop computes is kept for this one; inputs are read again.
                if v not in self.place and self.stage[v] < self.stage[result]:
                    self._keep(v)
        for o, v in enumerate(program.outputs):
            # An input whose memory is taken may be read by every loop: it is written by the last.
            loop = self.last if o in self.in_place else self.stage[v]
            if loop > self.stage[v]:
                self._keep(v)
            self._store(loop, v, f"outputs[{o}]")

    def _block(self, loop: int) -> str:
        """The C function of one loop."""
        head: list[str] = []
        body: list[str] = []
        values: dict[Variable, str] = {}

        def fetched(v: Variable) -> str:
            how = _how(v)
            t = how.stored
            if v in self.place:
                i = self.place[v]
                if self.single[i]:
                    value = how.load.format(f"*(const {t} *)block->inputs[{i}]")
                    head.append(f"const {how.computed} s{i} = {value};")
                    return f"s{i}"
                head.append(f"const {t} *const a{i} = (const {t} *)block->inputs[{i}];")
                name, element = f"x{i}", f"a{i}[i]"
            else:
                k = self.scratch[v]
                head.append(f"const {t} *const k{k} = (const {t} *)block->scratch[{k}];")
                name, element = f"y{k}", f"k{k}[i]"
            if not how.short:
                return element
            body.append(f"const {how.computed} {name} = {how.load.format(element)};")
            return name

        # What this loop computes, from its stores back.
        wanted = [v for v, _ in self.stores[loop]]
        needed: set[Variable] = set()
        while wanted:
            v = wanted.pop()
            if v in needed:
                continue
            needed.add(v)
            if v in self.number and self.stage[v] == loop and not self._is_kernel(v):
                wanted += self.program.natives[self.number[v]].inputs
        # What is only stored is rounded there.
        read = {
            x
            for v in needed
            if v in self.number and self.stage[v] == loop and not self._is_kernel(v)
            for x in self.program.natives[self.number[v]].inputs
        }
        for v in [*self.program.inputs, *self.program.results]:
            if v not in needed:
                continue
            if v in self.place or self.stage[v] < loop or self._is_kernel(v):
                values[v] = fetched(v)
                continue
            k = self.number[v]
            f = self.forms[k]
            assert isinstance(f, Expression)
            arguments = []
            for x, cast in zip(self.program.natives[k].inputs, f.casts, strict=True):
                c = values[x]
                if _dtype(x) != cast:
                    c = f"({c} != 0)" if cast == "bool" else f"({known(cast).computed}){c}"
                    c = f"({c})"
                arguments.append(c)
            value = f.text.format(*arguments)
            if not f.representable and v in read:
                value = _how(v).round.format(value)
            body.append(f"const {_how(v).computed} v{k} = {value};")
            values[v] = f"v{k}"
        for v, where in self.stores[loop]:
            t = _how(v).stored
            pointer = where.replace("scratch[", "w").replace("outputs[", "o").rstrip("]")
            head.append(f"{t} *const {pointer} = ({t} *)block->{where};")
            body.append(f"{pointer}[i] = {_how(v).store.format(values[v])};")
        kind = "PB_LOOP_SHORT" if any(_how(v).short for v in values) else "PB_LOOP"
        return "\n".join(
            [
                f"{kind} void {self.name}_loop{loop}(const cgotorch_loop_block *block) {{",
                "PB_ROUNDED const int64_t n = block->n;",
                *dict.fromkeys(head),
                "PB_EACH for (int64_t i = 0; i < n; i++) {",
                *body,
                "}",
                "}",
            ]
        )

    def _kernel(self, node: Apply, result: Variable, f: Kernel) -> str:
        inputs = [f"block->tensors[{self.scratch[v]}]" for v in [*node.inputs, result]]
        types = [v.type for v in [*node.inputs, result]]
        call = Apply(f.op, [t.make_variable() for t in types], [types[-1].make_variable()])
        sub = {"fail": "return pb_error;", "of_elements": ""}
        code = f.op.c_code(call, self.name, inputs, ["same"], sub)
        return f"{{\nTensor same = NULL;\n{code}\nFreeTensor(same);\n}}"

    def code(self) -> str:
        program, name = self.program, self.name
        functions = []
        steps = []
        for loop in range(self.last + 1):
            if loop in self.stores:
                functions.append(self._block(loop))
                steps.append(f"{name}_loop{loop}(block);")
            for node, result, f in zip(program.natives, program.results, self.forms, strict=True):
                if isinstance(f, Kernel) and self.stage[result] == loop + 1:
                    steps.append(self._kernel(node, result, f))
        kernels = any(isinstance(f, Kernel) for f in self.forms)
        functions.append(
            "\n".join(
                [
                    f"static const char *{name}_block(const cgotorch_loop_block *block) {{",
                    *(["const char *pb_error = NULL;"] if kernels else []),
                    *steps,
                    f"return {'pb_error' if kernels else 'NULL'};",
                    "}",
                ]
            )
        )
        return "\n\n".join([*functions, self._description()])

    def _description(self) -> str:
        program, name = self.program, self.name
        values = [*program.inputs, *program.outputs, *self.scratch]
        types = ", ".join(str(DTYPES[_dtype(v)]) for v in values)
        every = (1 << len(program.inputs)) - 1
        shaped = list(program.outputs)
        direct = 0
        for node, f in zip(program.natives, self.forms, strict=True):
            if isinstance(f, Kernel):
                shaped += node.inputs
                for v in node.inputs:
                    direct |= 1 << self.place[v] if v in self.place else 0
        sets = dict.fromkeys(b for v in shaped if (b := program.leaves[v]) != every)
        lines = [f"static const ScalarType {name}_types[] = {{{types}}};"]
        if sets:
            numbers = ", ".join(f"UINT64_C({b})" for b in sets)
            lines.append(f"static const uint64_t {name}_shapes[] = {{{numbers}}};")
        if self.in_place:
            places = [str(self.in_place.get(o, -1)) for o in range(len(program.outputs))]
            lines.append(f"static const int32_t {name}_places[] = {{{', '.join(places)}}};")
        single = sum(1 << i for i, one in enumerate(self.single) if one)
        counts = [len(program.inputs), len(program.outputs), len(self.scratch), len(sets)]
        contiguous = any(f.contiguous for f in self.forms)
        fields = [
            *map(str, counts),
            f"{name}_types",
            f"{name}_shapes" if sets else "NULL",
            f"{name}_places" if self.in_place else "NULL",
            "true" if contiguous else "false",
            f"UINT64_C({single})",
            f"UINT64_C({direct})",
            f"{name}_block",
        ]
        lines.append(f"static const cgotorch_loop {name}_loop = {{{', '.join(fields)}}};")
        return "\n".join(lines)


def support(composite: Composite) -> list[str]:
    """What the functions of an Elemwise stand on: macros, and the C of its dtypes."""
    values = [*composite.inputs, *(n.outputs[0] for n in composite.order)]
    found = [fused_dtype(_dtype(v)) for v in values if isinstance(v.type, TensorType)]
    return [SUPPORT, *dict.fromkeys(how.support for how in found if how and how.support)]


def functions(
    composite: Composite, single: Sequence[bool], in_place: dict[int, int]
) -> tuple[str, str, bool]:
    """The functions of an Elemwise, the name that theirs begin with, and whether there is a loop
    among them. Equal ones have equal names, so that a graph has them once."""
    program = Program(composite)
    stand_in = "pb_fused"
    parts = [program.calls(stand_in, in_place)]
    if program.forms is not None:
        parts.append(program.loop(stand_in, single, in_place))
    text = "\n\n".join(parts)
    name = f"{stand_in}_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    return text.replace(stand_in, name), name, program.forms is not None
