"""The C linker: a whole graph as one C function.

For each variable its type writes how it is declared, initialised or extracted, given back (synced)
and cleaned up; for each node its op writes the code. The function is, for mul(add(x, y), z):

    declare x, y, z, a, b
    extract x   extract y   extract z     from the Python objects py_x, py_y, py_z
    init a      init b
    code of add
    code of mul
    b: sync to py_b, clean up b
    a: clean up a
    z: clean up z ...

`sub["fail"]` is a goto to the end of the block it is in, so what was entered is cleaned up in
reverse, the failing variable first, and nothing else is touched. Nothing is synced after a failure.

The names of variables in C are V1, V2, ... in the order of the inputs, then of the nodes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import BridgeValueError
from ..graph.basic import Apply, Variable, toposort
from ..native import prebuilt_library, toolchain
from . import cache
from .blocks import braced, indented, remark, shown, without_remarks
from .compile import GraphCompiler, Recipe, default_compiler, without
from .emit import Emitter, about, owner_name, texts, written
from .explain import Explainer

_OLDEST = 2  # changes when the code that this module writes changes its meaning


class CacheVersionWarning(UserWarning):
    """An op or a type without a c_code_cache_version is compiled again by every process."""


_warned: set[type] = set()


@dataclass
class Library:
    """A compiled graph: where it is, what it is called with, and who explains its failures."""

    path: str
    n_inputs: int
    n_outputs: int
    constants: tuple[Any, ...]
    explain: Explainer

    def callable(self) -> Callable[..., Any]:
        """The C callable: takes values by position, returns the output, or a list where there are
        several."""
        from ..native.extension import Graph

        return Graph(self.path, self.n_inputs, self.n_outputs, self.constants, self.explain)


class CThunk:
    """Calls a compiled graph with a list of values, and returns the list of its outputs.

    `call` is the C callable itself, for calls without any Python in between.
    """

    def __init__(self, library: Library) -> None:
        self.library = library
        self.call = library.callable()
        self._single = library.n_outputs == 1

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        result = self.call(*values)
        return [result] if self._single else result


class CLinker:
    """Compiles the graph between `fgraph.inputs` and `fgraph.outputs`.

    A node whose op has no C code, or one of whose variables has a type without C, runs `perform`
    in the middle of the C function. With `demand_c` that is a MissingMethodError instead.
    """

    checks_inputs = True  # c_extract checks what strict `filter` does
    emitter: type[Emitter] = Emitter

    def __init__(self, fgraph: Any, demand_c: bool = False) -> None:
        self.inputs: list[Variable] = list(fgraph.inputs)
        self.outputs: list[Variable] = list(fgraph.outputs)
        self.demand_c = demand_c
        if len(set(self.inputs)) != len(self.inputs):
            raise BridgeValueError("a variable is among the inputs of the graph twice")
        ordered = getattr(fgraph, "toposort", None)
        self.order: list[Apply] = list(
            ordered() if ordered else toposort(self.outputs, self.inputs)
        )
        self._emitted: Emitter | None = None

    # What is asked of types and ops -----------------------------------------------------------

    @property
    def _code(self) -> Emitter:
        if self._emitted is None:
            self._emitted = self.emitter(self)
        return self._emitted

    def _all(self, method: str) -> list[str]:
        """What all types and ops return for a method, each text once."""
        found: dict[str, None] = {}
        compiler = self.compiler()
        for owner in self._code.owners:
            given = about(owner, method, compiler)
            listed = isinstance(given, (str, list, tuple, type(None)))
            for text in texts(given) if listed else [given]:
                found.setdefault(written(owner, method, text), None)
        return list(found)

    def compiler(self) -> GraphCompiler:
        """The compiler that a type or an op forces, else the default one. Two that force different
        ones are a BridgeValueError."""
        forced: tuple[str, Any] | None = None
        for owner in self._code.owners:
            wanted = getattr(owner, "c_compiler", lambda: None)()
            if wanted is None:
                continue
            if forced is not None and forced[0] != str(wanted):
                raise BridgeValueError(
                    f"{owner_name(forced[1])} needs the compiler {forced[0]!r}, and "
                    f"{owner_name(owner)} needs {str(wanted)!r}: they cannot be in one graph"
                )
            forced = forced or (str(wanted), owner)
        return default_compiler() if forced is None else GraphCompiler(forced[0])

    def headers(self) -> list[str]:
        """The headers to include, as they are written after #include."""
        found: dict[str, None] = {}
        for header in self._all("c_headers"):
            found.setdefault(header if header[0] in '<"' else f"<{header}>", None)
        return list(found)

    def header_dirs(self) -> list[str]:
        return self._all("c_header_dirs")

    def libraries(self) -> list[str]:
        return self._all("c_libraries")

    def lib_dirs(self) -> list[str]:
        return self._all("c_lib_dirs")

    def compile_args(self) -> list[str]:
        """The compiler's arguments: the usual ones and those that are asked for, without those that
        a type or an op excludes."""
        flags = self.compiler().flags()
        return without([*flags, *self._all("c_compile_args")], self._all("c_no_compile_args"))

    def support_code(self) -> list[str]:
        """The helper functions; what is written twice is defined once."""
        found: dict[str, str] = {}
        for text in self._all("c_support_code"):
            found.setdefault(text.strip(), text)
        for text in self._code.support:
            found.setdefault(text.strip(), text)
        return [text for bare, text in found.items() if bare]

    def init_code(self) -> list[str]:
        return self._all("c_init_code")

    def versions(self) -> tuple[Any, ...] | None:
        """The versions of all types and ops, or None where one gives none: then the code is for
        this process only, and a warning says whose fault it is."""
        versions = []
        missing = []
        for owner in self._code.owners:
            # An op whose code depends on the node says so by another method.
            found: list[Any] = self._code.apply_versions.get(id(owner), [])
            if not found:
                found = [getattr(owner, "c_code_cache_version", tuple)()]
            if () in found:
                missing.append(owner)
            versions.append((type(owner).__qualname__, *found))
        new = [owner for owner in missing if type(owner) not in _warned]
        if new:
            _warned.update(type(owner) for owner in new)
            names = ", ".join(dict.fromkeys(owner_name(owner) for owner in new))
            warnings.warn(
                f"{names}: no c_code_cache_version, or (): each process compiles the graphs with "
                "it again",
                CacheVersionWarning,
                stacklevel=4,
            )
        return None if missing else tuple(versions)

    # The code ---------------------------------------------------------------------------------

    def source(self) -> str:
        """The C file, formatted, with comments that name variables and nodes as Python does."""
        return shown(self._source())

    def _source(self) -> str:
        code = self._code
        parts = [remark("A graph: " + "; ".join(map(code.explain.names.line, self.order[:9])))]
        parts.append("#define PY_SSIZE_T_CLEAN\n#include <Python.h>\n#include <stdio.h>")
        includes = [f"#include {h}" for h in self.headers() if h not in ("<Python.h>", "<stdio.h>")]
        parts.append("\n".join([*includes, '#include "pb_graph.h"']))
        parts.append("static const struct pb_python *pb_python;")
        state, functions = code.state
        parts += [*code.macros(), *self.support_code(), *([state] if state else [])]
        init = self.init_code()
        parts.append(
            "\n".join(
                [
                    "int pb_graph_load(const struct pb_python *python) {",
                    "pb_python = python;",
                    *map(braced, init),
                    "return PyErr_Occurred() ? -1 : 0;" if init else "return 0;",
                    "}",
                ]
            )
        )
        parts += [code.body, *([functions] if functions else [])]
        return indented("\n\n".join(parts))

    def build(self) -> Recipe:
        # Types and ops name libcgotorch and its headers; only the linker knows where they are.
        headers, libraries = self.header_dirs(), self.lib_dirs()
        if "cgotorch" in self.libraries():
            headers.insert(0, str(toolchain.ROOT / "cgotorch"))
            libraries.insert(0, str(prebuilt_library.ensure().parent))
        return Recipe(
            self.compiler(),
            tuple(self.compile_args()),
            tuple(headers),
            tuple(self.libraries()),
            tuple(libraries),
        )

    def library(self) -> Library:
        """Compiles the graph, or finds it in the cache."""
        source, build, versions = self._source(), self.build(), self.versions()
        identity = [str(_OLDEST), without_remarks(source), *build.identity(), repr(versions)]
        where = cache.cache() if versions is not None else cache.own_cache()
        path = where.library(shown(source), identity, build)
        code = self._code
        return Library(
            str(path), len(self.inputs), len(self.outputs), tuple(code.constants), code.explain
        )

    def make_thunk(self) -> CThunk:
        """A callable that takes the list of input values and returns the list of outputs."""
        return CThunk(self.library())


class COnlyLinker(CLinker):
    """The same, but for graphs that must be C from end to end: what has none is refused."""

    def __init__(self, fgraph: Any) -> None:
        super().__init__(fgraph, demand_c=True)
