"""Emits the Go functions of gotorch/internal/ctorch: one for each function of the headers by hand
that Go uses, and the structs that they take."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .go import GENERATED

PACKAGE = Path("gotorch/internal/ctorch")
_HEADERS = (
    "cgotorch.h",
    "tensor.h",
    "runtime.h",
    "autograd.h",
    "autograd_graph.h",
    "modes.h",
    "flops.h",
    "profiler.h",
    "generator.h",
    "io.h",
    "files.h",
    "dispatch.h",
    "checkpoint.h",
    "functorch.h",
    "index.h",
    "warnings.h",
    "aoti.h",
    "jit.h",
    "device.h",
    "distributed.h",
    "reducer.h",
    "allocator.h",
    "cgroup.h",
    "objects.h",
    "os_thread.h",
)

# cgo checks what a pointer argument points to, and would call these with heap memory in case C kept
# or called something. They do neither.
_QUICK = set(
    """
EnterAutocast EnterInferenceMode FlopCounterPlace FreeArray GradModeEnabled InferenceModeEnabled
LeaveAutocast LeaveInferenceMode SetGradMode StorageNbytes TensorFromData TensorGrad TensorStorage
cgotorch_block_error cgotorch_close cgotorch_copy_out cgotorch_free cgotorch_get_item cgotorch_hold
cgotorch_in_callback cgotorch_info cgotorch_item cgotorch_profile_enter cgotorch_profile_leave
cgotorch_run cgotorch_run_traced cgotorch_scope_enter cgotorch_scope_get cgotorch_scope_leave
cgotorch_set_item cgotorch_this_thread
""".split()  # noqa: SIM905
)

_NUMBERS = {
    "int": "int32",
    "int32_t": "int32",
    "int64_t": "int64",
    "uint64_t": "uint64",
    "uint32_t": "uint32",
    "size_t": "uint64",
    "double": "float64",
    "bool": "bool",
}


@dataclass
class Declared:
    """What the headers declare, by name."""

    numbers: dict[str, str] = field(default_factory=lambda: dict(_NUMBERS))
    handles: set[str] = field(default_factory=set)
    structs: dict[str, str] = field(default_factory=dict)  # the fields
    tags: set[str] = field(default_factory=set)  # those without a typedef
    constants: list[str] = field(default_factory=list)
    functions: dict[str, tuple[str, str, str]] = field(default_factory=dict)


def go_name(name: str) -> str:
    """cgotorch_free_closed is FreeClosed; names that are Go's already stay."""
    if not name.startswith("cgotorch_"):
        return name
    return "".join(part.capitalize() for part in name.split("_")[1:])


def field_name(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def declared(folder: Path) -> Declared:
    """Reads the headers."""
    found = Declared()
    for header in _HEADERS:
        text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", (folder / header).read_text(), flags=re.S)
        text = re.sub(r"^\s*#.*?(?<!\\)$", "", text, flags=re.M)
        text = " ".join(text.split())
        for name in re.findall(r"typedef struct \w+ \*(\w+);", text):
            found.handles.add(name)
        for kind, name in re.findall(r"typedef (\w+) (\w+);", text):
            if kind in found.numbers:
                found.numbers[name] = found.numbers[kind]
        for fields, name in re.findall(r"typedef struct \{([^{}]*)\} (\w+);", text):
            found.structs[name] = fields
        # Those with a union are written by hand.
        for name in re.findall(r"typedef struct \{[^{}]*union \{[^{}]*\}[^{}]*\} (\w+);", text):
            found.structs[name] = ""
        for name, fields in re.findall(r"(?<!typedef )struct (\w+) \{([^{}]*)\};", text):
            found.structs[name] = fields
            found.tags.add(name)
        for body in re.findall(r"enum \{([^{}]*)\};", text):
            found.constants += [
                part.split("=")[0].strip() for part in body.split(",") if part.strip()
            ]
        for result, name, parameters in re.findall(
            r"((?:const )?(?:struct )?\w+ \**)(\w+)\(([^()]*)\)(?: CGOTORCH_SYMBOL\(\w+\))?;", text
        ):
            found.functions[name] = (result.strip(), parameters.strip(), header)
    return found


@dataclass
class _Go:
    """A C type in Go: its name there, and how a value gets to C and back."""

    type: str
    to_c: str
    from_c: str


def _of(c: str, known: Declared) -> _Go | None:
    """The type in Go, None where there is none."""
    words = c.replace("*", " * ").split()
    stars = words.count("*")
    base = " ".join(w for w in words if w not in ("*", "const"))
    tag = base.removeprefix("struct ")
    if base == "char" and stars:
        go = "*" * stars + "Char"
        return _Go(go, "{}", "{}")
    if base == "void" and stars:
        go = "*" * (stars - 1) + "unsafe.Pointer"
        return _Go(go, "{}", "{}")
    if base in known.handles:
        return _Go("*" * stars + base, "{}", "{}")
    if base in known.numbers:
        go = known.numbers[base]
        if not stars:
            return _Go(go, f"C.{base}({{}})", f"{go}({{}})")
        if stars == 1:
            return _Go(f"*{go}", f"(*C.{base})({{}})", f"(*{go})({{}})")
        return _Go(
            "*" * stars + go,
            f"({'*' * stars}C.{base})(unsafe.Pointer({{}}))",
            f"({'*' * stars}{go})(unsafe.Pointer({{}}))",
        )
    if tag in known.structs and (base != tag) == (tag in known.tags):
        name = go_name(tag)
        c_name = f"struct_{tag}" if tag in known.tags else tag
        if not stars:
            return _Go(
                name,
                f"*(*C.{c_name})(unsafe.Pointer(&{{}}))",
                f"*(*{name})(unsafe.Pointer(&{{}}))",
            )
        return _Go(
            "*" * stars + name,
            f"({'*' * stars}C.{c_name})(unsafe.Pointer({{}}))",
            f"({'*' * stars}{name})(unsafe.Pointer({{}}))",
        )
    return None


def _split(declaration: str) -> tuple[str, str]:
    """`const char *name` is `const char *` and `name`."""
    match = re.fullmatch(r"(.*?)(\w+)", declaration.strip())
    assert match, declaration
    return match[1].strip(), match[2]


_KEYWORDS = {"type", "range", "func", "map", "interface", "select", "default", "string", "len"}


def _parameter(name: str) -> str:
    first, *rest = name.split("_")
    camel = first + "".join(part.capitalize() for part in rest)
    return camel + "_" if camel in _KEYWORDS else camel


def _function(name: str, known: Declared) -> tuple[str, set[str]]:
    result, parameters, header = known.functions[name]
    takes, gives, used = [], [], set()
    for part in [] if parameters in ("", "void") else parameters.split(","):
        c_type, parameter = _split(part)
        go = _of(c_type, known)
        if go is None:
            raise ValueError(
                f"{name} of {header}: Go has no type for {part.strip()!r}; call it by hand"
            )
        parameter = _parameter(parameter)
        takes.append(f"{parameter} {go.type}")
        gives.append(go.to_c.format(parameter))
        used.add(go.type.lstrip("*"))
    call = f"C.{name}({', '.join(gives)})"
    head = f"func {go_name(name)}({', '.join(takes)})"
    if result == "void":
        return f"{head} {{ {call} }}", used
    go = _of(result, known)
    if go is None:
        raise ValueError(f"{name} of {header}: Go has no type for its result; call it by hand")
    used.add(go.type.lstrip("*"))
    if "(&{}" in go.from_c:  # a struct
        return f"{head} {go.type} {{\n\tr := {call}\n\treturn {go.from_c.format('r')}\n}}", used
    return f"{head} {go.type} {{ return {go.from_c.format(call)} }}", used


def _fields(name: str, known: Declared) -> Iterator[tuple[str, str]]:
    for part in known.structs[name].split(";"):
        if not part.strip():
            continue
        first, *more = part.split(",")
        c_type, field_ = _split(first)
        go = _of(c_type, known)
        if go is None:
            raise ValueError(f"field {part.strip()!r} of {name} has no type in Go")
        for one in [field_, *(m.strip() for m in more)]:
            yield field_name(one), go.type


def _wanted(root: Path) -> set[str]:
    """The names of this package that Go uses, and that are not written by hand."""
    found: set[str] = set()
    by_hand: set[str] = set()
    for path in root.glob("gotorch/**/*.go"):
        if path.relative_to(root).parent != PACKAGE:
            found.update(re.findall(r"\bctorch\.(\w+)", path.read_text()))
        elif not path.name.endswith("_gen.go"):
            text = path.read_text()
            found.update(
                re.findall(r"(?<![.\w])(\w+)", re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S))
            )
            by_hand.update(re.findall(r"^(?:func|type) (\w+)", text, flags=re.M))
    return found - by_hand


def bindings(root: Path) -> str:
    """bindings_gen.go: what Go uses of the headers."""
    known = declared(root / "cgotorch")
    wanted = _wanted(root)
    functions, types = [], set()
    for_go = {go_name(name) for name in known.functions if name != go_name(name)}
    for name, (_, _, header) in known.functions.items():
        # Of GetItem and cgotorch_get_item the latter is made for Go.
        if go_name(name) in wanted and not (name == go_name(name) and name in for_go):
            text, used = _function(name, known)
            functions.append((header, name, text))
            types |= used
    types |= wanted & ({go_name(s) for s in known.structs} | known.handles)
    by_go = {go_name(name): name for name in known.structs}
    structs: dict[str, list[tuple[str, str]]] = {}
    todo = [t for t in types if t in by_go]
    while todo:
        name = todo.pop()
        if name in structs or not known.structs[by_go[name]]:
            continue
        structs[name] = list(_fields(by_go[name], known))
        for _, of in structs[name]:
            bare = of.lstrip("*")
            types.add(bare)
            if bare in by_go:
                todo.append(bare)
    out = [GENERATED, "package ctorch\n\n/*"]
    out += [
        f"#include <{header}>"
        for header in (
            "cgotorch.h",
            "files.h",
            "allocator.h",
            "cgroup.h",
            "objects.h",
            "os_thread.h",
        )
    ]
    for _, name, _ in functions:
        if name in _QUICK:
            out += [f"#cgo noescape {name}", f"#cgo nocallback {name}"]
    out.append('*/\nimport "C"\n\nimport "unsafe"\n')
    out.append("// Handles of C.\ntype (")
    out += [f"\t{name} = C.{name}" for name in sorted(known.handles & types)]
    out.append(")\n")
    constants = [name for name in known.constants if name in wanted]
    out.append("const (")
    out += [f"\t{name} = C.{name}" for name in constants]
    out.append(")\n")
    for name, fields in sorted(structs.items()):
        c = by_go[name]
        c_name = f"struct_{c}" if c in known.tags else c
        out.append(f"// {name} is {c} of C.\ntype {name} struct {{")
        out += [f"\t{field_} {of}" for field_, of in fields]
        out.append("}\n")
        out.append(f"var _ = [1]struct{{}}{{}}[unsafe.Sizeof({name}{{}})-C.sizeof_{c_name}]\n")
    last = ""
    for header, _, text in functions:
        if header != last:
            out.append(f"// {header}\n")
        last = header
        out.append(text + "\n")
    return "\n".join(out)
