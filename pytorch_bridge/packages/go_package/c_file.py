"""The C file of a function in a generated package, and its header.

Beside the function itself, which C programs may call, it has one with a single argument for Go: a
block of arguments and results, which the function reads and fills.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

from ...graph.basic import Variable
from ...link.blocks import shown
from ...types.base import Sub
from ..c_function import CEmitter, CFunction
from .crossing import Crossing
from .folder import GENERATED_C


class _Emitter(CEmitter):
    linker: PackageFunction

    def _sync(self, v: Variable, sub: Sub) -> str:
        # What is written into the caller's memory is not given back as well.
        n = len(self.linker.outputs) - self.linker.n_hidden
        given = zip(self.linker.outputs[:n], self.linker.output_names[:n], strict=True)
        return "\n".join(v.type.c_give(self.names[v], name, sub) for out, name in given if out is v)  # type: ignore[attr-defined]


class PackageFunction(CFunction):
    """The C function of a graph in a package.

    The last `n_state` inputs are tensors of the package, which a caller does not see. The last
    `n_hidden` outputs are there for what they write, and given to nobody.
    """

    emitter = _Emitter

    mark = GENERATED_C

    def __init__(self, fgraph: Any, name: str, n_state: int = 0, n_hidden: int = 0) -> None:
        super().__init__(fgraph, name)
        self.n_state, self.n_hidden = n_state, n_hidden
        n = len(self.inputs) - n_state
        self.takes = [Crossing(v.type, "in", i) for i, v in enumerate(self.inputs[:n])]
        given = self.outputs[: len(self.outputs) - n_hidden]
        self.gives = [Crossing(v.type, "out", i) for i, v in enumerate(given)]
        # Errors come now, and not when files are written.
        for taken in self.takes:
            taken.fill("x", '""')
        for out in self.gives:
            out.results()

    def parameters(self) -> list[str]:
        n = len(self.outputs)
        outputs, names = self.outputs, self.output_names
        self.outputs, self.output_names = outputs[: n - self.n_hidden], names[: n - self.n_hidden]
        try:
            return super().parameters()
        finally:
            self.outputs, self.output_names = outputs, names

    def headers(self) -> list[str]:
        ours = ("<cgotorch.h>", '"cgotorch.h"')
        return [f'"{self.file}.h"', *(h for h in super().headers() if h not in ours)]

    @property
    def file(self) -> str:
        """The name of the C file, without its ending."""
        name = self.name.partition("_")[2] or self.name
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower() + "_gen"

    @property
    def suffix(self) -> str:
        return self.compiler().suffix

    @property
    def block(self) -> str:
        return f"{self.name}_block"

    @property
    def entry(self) -> str:
        """The function that Go calls."""
        return f"{self.name}_go"

    def _pragmas(self) -> str:
        # Products and sums are rounded one by one, as in Python. For C, GCC does so by -std=c99;
        # Go allows no other flag for it.
        gcc = '#pragma GCC optimize("fp-contract=off")'
        return (
            "#if defined(__clang__)\n#pragma STDC FP_CONTRACT OFF\n"
            f"#elif defined(__GNUC__) && defined(__cplusplus)\n{gcc}\n#endif"
        )

    def source(self) -> str:
        text = shown(self._source())
        text = text.replace("#include", f"{self._pragmas()}\n\n#include", 1)
        return f"{text}\n{self._thunk()}"

    def block_fields(self) -> list[tuple[str, str]]:
        """The members of the block in C: type and name."""
        found = [("void *", "scope"), ("const char *", "error")]
        if self.constants:
            found.append(("const Tensor *", "constants"))
        if self.n_state:
            found.append(("const Tensor *", "state"))
        for taken in self.takes:
            found += [(f.c, f.c_name(n)) for n, f in taken.input_fields()]
        for out in self.gives:
            for n, r in zip(out.names, out.results(), strict=True):
                found += [(f.c, f.c_name(n)) for f in r.fields]
        # A bool takes eight bytes, as everything.
        return found

    def go_fields(self) -> list[tuple[str, str]]:
        """The members of the block in Go, after those that every block has: name and type."""
        found = []
        if self.constants:
            found.append(("constants", "unsafe.Pointer"))
        if self.n_state:
            found.append(("state", "unsafe.Pointer"))
        for taken in self.takes:
            found += [(f.go_name(n), f.go) for n, f in taken.input_fields()]
        for out in self.gives:
            for n, r in zip(out.names, out.results(), strict=True):
                found += [(f.go_name(n), f.go) for f in r.fields]
        return found

    def _thunk(self) -> str:
        members = "\n".join(
            f"  {c}{'' if c.endswith('*') else ' '}{n};" for c, n in self.block_fields()
        )
        arguments = ["b->constants"] if self.constants else []
        for taken in self.takes:
            arguments += taken.c_arguments()
        arguments += [f"b->state[{i}]" for i in range(self.n_state)]
        before: list[str] = []
        after: list[str] = []
        for out in self.gives:
            for r in out.results():
                before += r.before
                arguments += r.arguments
                after += r.after
        call = _wrapped(f"b->error = {self.name}(", arguments)
        lines = [*before, call]
        # Go gives words, from which others may take the tensors meanwhile.
        held = [h for taken in self.takes for h in taken.held()]
        if held:
            lines = [
                *before,
                _wrapped("const cgotorch_held held[] = {", held, end="};"),
                f"b->error = cgotorch_hold_words(held, {len(held)});",
                "if (b->error) return;",
                call,
                f"cgotorch_drop_held(held, {len(held)});",
            ]
        lines += ["if (b->error) return;", "b->scope = cgotorch_scope_get();", *after]
        body = "\n".join(f"  {line}" for line in lines)
        return (
            "/* What Go calls: each member takes eight bytes, or as many as a Scalar. */\n"
            f"struct {self.block} {{\n{members}\n}};\n\n"
            f"void {self.entry}(struct {self.block} *b) {{\n{body}\n}}\n"
        )

    def header(self) -> str:
        """The text of the header."""
        guard = f"{self.name}_H"
        constants = ""
        if self.constants:
            constants = "\n * constants are the package's weights, in the order of the Go file."
        prototype = _wrapped(f"const char *{self.name}(", self.parameters() or ["void"])
        # A program may have two packages of one name, such as two versions of a model: functions
        # that differ have symbols that differ, and of equal ones the linker takes one.
        mark = hashlib.sha256(self.source().encode()).hexdigest()[:16]

        def labelled(declaration: str, name: str) -> str:
            return f'{declaration[:-1]}\n    __asm__("{name}_{mark}") __attribute__((weak));'

        return (
            f"{GENERATED_C.strip()}\n#ifndef {guard}\n#define {guard}\n\n"
            '#include "cgotorch.h"\n\n#ifdef __cplusplus\nextern "C" {\n#endif\n\n'
            f"/* The graph as a C function, with the conventions of cgotorch.h.{constants} */\n"
            f"{labelled(prototype, self.name)}\n\n/* The same for Go. */\nstruct {self.block};\n"
            + labelled(f"void {self.entry}(struct {self.block} *b);", self.entry)
            + "\n\n"
            "#ifdef __cplusplus\n}\n#endif\n\n#endif\n"
        )

    def cgo_flags(self) -> dict[str, list[str]]:
        """The arguments on the #cgo lines, quoted: what the ops and types of the graph need beyond
        a C compiler."""
        cplusplus = self.compiler().cplusplus
        known = self.compiler().flags()
        asked = self.compile_args()
        flags = [f for f in asked if f.startswith(("-std=", "-O", "-W"))]
        flags += [f for f in asked if f not in known and f not in flags]
        flags += [f"-I{d}" for d in self.header_dirs()]
        link = [f"-L{d}" for d in self.lib_dirs()]
        link += [
            lib if lib.startswith("-") else f"-l{lib}"
            for lib in self.libraries()
            if lib != "cgotorch"
        ]
        if "-fopenmp" in flags:
            link.append("-fopenmp")
        link.append("-lm")
        return {
            "CXXFLAGS" if cplusplus else "CFLAGS": [_cgo(f) for f in flags],
            "LDFLAGS": [_cgo(f) for f in dict.fromkeys(link)],
        }


def _cgo(word: str) -> str:
    """An argument as #cgo lines quote it."""
    return "'" + word.replace("'", r"\'") + "'" if re.search(r"[\s'\"\\]", word) else word


def _wrapped(start: str, arguments: Sequence[str], width: int = 96, end: str = ");") -> str:
    """A call or prototype, in several lines where it is long."""
    lines, line = [], start
    arguments = arguments or [""]
    for i, a in enumerate(arguments):
        piece = a + (end if i == len(arguments) - 1 else ",")
        if len(line) + len(piece) > width and line != start:
            lines.append(line.rstrip())
            line = "      "
        line += piece + ("" if i == len(arguments) - 1 else " ")
    return "\n".join([*lines, line])
