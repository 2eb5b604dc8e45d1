"""Emits what follows from nn.yaml: functions of Go's package nn/functional, and modules of nn."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from ..schema import docs_url, page_of
from ..schema.nn import Argument, Based, Function, Layers, Module, layers
from .api import Parameter, Wrapped
from .go import GENERATED, _paragraph
from .go_types import go

FUNCTIONAL = Path("gotorch/nn/functional")
NN = Path("gotorch/nn")

_NUMBERS = {"float": "float64", "int": "int64"}
_GO = {
    **_NUMBERS,
    "bool": "bool",
    "sizes": "[]int64",
    "same_sizes": "[]int64",
    "window": "[]int64",
    "ints": "[]int64",
    "floats": "[]float64",
    "text": "string",
    "tensor": "gotorch.Tensor",
    "dtype": "gotorch.DType",
    "device": "gotorch.Device",
}
_OF_FUNCTIONAL = re.compile(r"[A-Z]\w*")


def go_type(a: Argument, package: str) -> str:
    """The type of a parameter or of a module's field; package is where it is named."""
    if a.nullable and a.kind in _NUMBERS:
        return "gotorch.Scalar"
    return _named(a.kind, package)


def _named(kind: str, package: str) -> str:
    if kind in _GO:
        return _GO[kind]
    return kind if package == "functional" else f"F.{kind}"


def option_type(a: Argument, package: str) -> str:
    """The type of a field of the options."""
    if a.kind in _NUMBERS and (a.nullable or a.default):
        return "gotorch.Scalar"
    return _named(a.kind, package)


def _default_note(a: Argument) -> str:
    if a.kind in ("bool", "dtype", "device"):
        return ""
    if a.default is None:
        return "default: none" if a.kind == "tensor" else ""
    if a.kind in _NUMBERS and not a.default:
        return ""
    if a.kind == "sizes":
        return f"default: {a.default}"
    if a.kind == "text":
        return f'default: "{a.default}"'
    if _OF_FUNCTIONAL.fullmatch(a.kind):
        return ""
    return f"default: {literal(a)}"


def literal(a: Argument) -> str:
    """The default in Go."""
    if isinstance(a.default, float):
        return f"{a.default:g}" if float(f"{a.default:g}") == a.default else repr(a.default)
    if isinstance(a.default, str):
        return f'"{a.default}"'
    return str(a.default)


def _options(name: str, of: str, arguments: list[Argument], package: str) -> Iterator[str]:
    yield f"// {name} are the arguments of [{of}] that have defaults."
    yield f"type {name} struct {{"
    for a in arguments:
        note = a.note
        if a.negated:
            note = f"not: {note}" if note else ""
        notes = "; ".join(n for n in (note, _default_note(a)) if n)
        yield f"\t{a.field} {option_type(a, package)}{' // ' + notes if notes else ''}"
    yield "}\n"


def _says(text: str, arguments: tuple[Argument, ...]) -> str:
    """A text with Go's names for its arguments."""
    names = {a.python: a.go_doc for a in arguments}
    return re.sub(r"\{(\w+)\}", lambda m: names.get(m[1], "x" if m[1] == "input" else m[0]), text)


def _see(full: str) -> Iterator[str]:
    yield "//"
    yield f"// See {docs_url(page_of(full))}."


# Functions ----------------------------------------------------------------------------------------


def _signature(f: Function, options: str = "") -> str:
    parts: list[tuple[list[str], str]] = []
    for a in f.required:
        type_ = go_type(a, "functional")
        if parts and parts[-1][1] == type_:
            parts[-1][0].append(a.go)
        else:
            parts.append(([a.go], type_))
    listed = [f"{', '.join(names)} {type_}" for names, type_ in parts]
    if options or f.options_type:
        listed.append(f"opts ...{options or f.options_type}")
    return ", ".join(listed)


def _resolved(f: Function) -> tuple[list[str], dict[str, str]]:
    """Statements that read the options, and what to use for each argument after them."""
    lines, values = [], {}
    if f.optional:
        lines.append("opt := args.Option(opts)")
    for a in f.arguments:
        value = a.go
        if a.option:
            value = f"opt.{a.field}"
            if a.negated:
                value = f"!{value}"
            elif option_type(a, "functional") == "gotorch.Scalar" and not a.nullable:
                read = "Float" if a.kind == "float" else "Int"
                lines.append(f'{a.go} := args.{read}(op, "{a.field}", {value}, {literal(a)})')
                value = a.go
            elif a.kind == "Reduction":
                value = f"{value}.code(op)"
        values[a.python] = value
    if (
        any("(op," in line for line in lines)
        or any("(op)" in v for v in values.values())
        or any(a.nullable and a.kind in _NUMBERS for a in f.optional)
    ):
        lines.insert(0, f'const op = "functional.{f.go}"')
    return lines, values


def _passed(a: Argument, value: str, to: Parameter) -> str:
    """An argument as the native function takes it."""
    wanted = to.option.type if to.option else go(to.type).type
    if a.nullable and a.kind in _NUMBERS and wanted.startswith("*"):
        read = {"*float64": "FloatPointer", "*int64": "IntPointer"}[wanted]
        return f'args.{read}(op, "{a.field}", {value})'
    if a.kind == "Reduction":
        return value if wanted == "*int64" else f"*{value}"
    if wanted.startswith("*"):
        return f"new({value})" if value.startswith("!") else f"&{value}"
    return value


def _call(f: Function, values: dict[str, str], op: Wrapped) -> str:
    """The call of a native function with the arguments of the same names."""
    arguments = {a.python: a for a in f.arguments}
    arguments.setdefault("self", f.arguments[0])
    positional, options = [], []
    for p in op.parameters:
        a = arguments.get(p.argument.name)
        if a is None:
            if p.option is None:
                raise ValueError(f"{f.python}: nothing is said for {p.argument.name} of {op.go}")
            continue
        value = _passed(a, values[a.python], p)
        if p.option is None:
            positional.append(value)
        else:
            options.append(f"{p.field}: {value}")
    if options:
        positional.append(f"gotorch.{op.options_type}{{{', '.join(options)}}}")
    return f"gotorch.{op.go}({', '.join(positional)})"


def _function(f: Function, ops: dict[str, Wrapped], options: bool) -> Iterator[str]:
    if options:
        yield from _options(f.options_type, f.go, f.optional, "functional")
    yield from _paragraph(f"{f.go} {_says(f.does, f.arguments)}.")
    yield from _see(f"torch.nn.functional.{f.python}")
    yield f"func {f.go}({_signature(f)}) gotorch.Tensor {{"
    lines, values = _resolved(f)
    for a in f.arguments:
        if a.kind == "window":
            lines.append(f'{a.go} = asInput("functional.{f.go}", {a.go}, input, {f.python[-2]})')
    yield from lines
    native = ops[f.native]
    if any(a.python == "inplace" for a in f.arguments):
        yield "if opt.InPlace {"
        yield f"return {_call(f, values, ops[f.native + '_'])}"
        yield "}"
    call = _call(f, values, native)
    if len(native.results) == 2:
        yield f"largest, indices := {call}"
        yield "indices.Close()"
        yield "return largest"
    else:
        yield f"return {call}"
    yield "}\n"
    if any(a.python == "inplace" for a in f.arguments):
        yield from _in_place(f)
    if f.with_indices:
        yield from _with_indices(f, lines, values, ops)


# Functions whose form in place has a page of its own.
_PAGE_IN_PLACE = ("elu", "hardtanh", "leaky_relu", "relu", "rrelu", "threshold")


def _in_place(f: Function) -> Iterator[str]:
    yield f"// {f.go}_ is [{f.go}] that overwrites its input, and returns it."
    page = f"{f.python}_" if f.python in _PAGE_IN_PLACE else f.python
    yield from _see(f"torch.nn.functional.{page}")
    yield f"func {f.go}_({_signature(f)}) gotorch.Tensor {{"
    yield "opt := args.Option(opts)"
    yield "opt.InPlace = true"
    yield f"return {f.go}({', '.join(a.go for a in f.required)}, opt)"
    yield "}\n"


def _with_indices(
    f: Function, lines: list[str], values: dict[str, str], ops: dict[str, Wrapped]
) -> Iterator[str]:
    native = ops[f.native if f.with_indices == "first" else f.with_indices]
    yield from _paragraph(
        f"{f.go}WithIndices is [{f.go}] that also returns where each element was: its place in its "
        "channel, flattened, an int64."
    )
    yield from _see(f"torch.nn.functional.{f.python}")
    yield (f"func {f.go}WithIndices({_signature(f)}) (largest, indices gotorch.Tensor) {{")
    yield from lines
    yield f"return {_call(f, values, native)}"
    yield "}\n"


# Modules ------------------------------------------------------------------------------------------


def _stored(a: Argument, module: Module) -> str:
    """What the constructor puts into the field."""
    if not a.option:
        if a.kind == "window":
            return f"ints({a.go})"
        if a.kind != "sizes":
            return a.go
        if "pads" in module.entry:
            return f"margins(op, ints({a.go}), {2 * module.directions})"
        if module.entry.get("every_direction"):
            return f'times(op, "{a.go}", ints({a.go}), {module.directions})'
        return f"ints({a.go})"
    value = f"opt.{a.field}"
    if a.negated:
        return f"!{value}"
    if a.kind == "sizes":
        if a.default is None and module.entry.get("stride_is_kernel"):
            found = f"orKernel({value}, ints(kernelSize))"
        elif a.nullable:
            found = f"slices.Clone({value})"
        else:
            found = f"orInts({value}, {a.default})"
        if module.entry.get("every_direction"):
            return f'times(op, "{a.field}", {found}, {module.directions})'
        return found
    if a.kind == "floats":
        return f"slices.Clone({value})"
    if option_type(a, "nn") == "gotorch.Scalar" and not a.nullable:
        read = "Float" if a.kind == "float" else "Int"
        return f'args.{read}(op, "{a.field}", {value}, {literal(a)})'
    if a.kind == "text":
        return f"cmp.Or({value}, {literal(a)})"
    return value


def _passed_on(module: Module) -> str:
    """The call of the function in Forward."""
    f = module.function
    own = {module.entry.get("renamed", {}).get(a.python, a.python): a for a in module.arguments}
    taken = {a.python: a.go for a in module.forward}
    pads = module.entry.get("pads")
    positional, options = [], []
    for a in f.arguments:
        if a.python in taken:
            value = taken[a.python]
            if pads == "circular":  # of which PyTorch's module says what F.pad would say otherwise
                value = f'batchedOrNot("nn.{module.name}", {value}, {module.directions + 1})'
        elif pads and a.python == "pad":
            value = "m.Padding"
        elif pads and a.python == "mode":
            value = f"F.Pad{pads.capitalize()}"
        elif a.python == "training":
            value = "m.Training()"
        elif a.python in own and a.python not in module.entry.get("unused", ()):
            value = f"m.{own[a.python].name}"
        else:
            continue
        if not a.option:
            positional.append(value)
        else:
            options.append(f"{a.field}: {'!' if a.negated else ''}{value}")
    if options:
        positional.append(f"F.{f.options_type}{{{', '.join(options)}}}")
    return f"F.{f.go}({', '.join(positional)})"


def _module(module: Module) -> Iterator[str]:
    name, type_ = module.name, f"{module.name}Module"
    yield f"// {type_} is what [{name}] makes."
    yield f"type {type_} struct {{\nModule"
    buffers = module.entry.get("buffers", ())
    for a in module.arguments:
        tag = ' `nn:",buffer"`' if a.python in buffers else ""
        note = f" // {a.note}" if a.note else ""
        yield f"{a.name} {go_type(a, 'nn')}{tag}{note}"
    yield "}\n"
    if module.optional:
        yield from _module_options(module)
    yield from _constructor(module)
    yield from _forward(module)
    if module.repr:
        yield "// ExtraRepr returns what String writes between the parentheses."
        yield f"func (m *{type_}) ExtraRepr() string {{"
        yield f"return {_repr(module)}"
        yield "}\n"


def _module_options(module: Module) -> Iterator[str]:
    """The options of the constructor: the function's own where they are the same."""
    name, f = f"{module.name}Options", module.function

    def known(arguments: list[Argument]) -> list[tuple[str, str, object]]:
        return sorted((a.field, option_type(a, "nn"), a.default) for a in arguments)

    taken = {a.python for a in module.forward}
    same = known(module.optional) == known([a for a in f.optional if a.python not in taken])
    if same and "renamed" not in module.entry:
        of = f"[{module.name}] that have defaults: those of F.{f.go}"
        yield f"// {name} are the arguments of {of}."
        yield f"type {name} = F.{f.options_type}\n"
        return
    yield from _options(name, module.name, module.optional, "nn")


def _constructor(module: Module) -> Iterator[str]:
    name = module.name
    sized = [a for a in module.required if a.kind in ("sizes", "window")]
    letters = "KLM"
    generic = ", ".join(letters[: len(sized)])
    parameters = []
    for a in module.required:
        if a in sized:
            parameters.append(f"{a.go} {letters[sized.index(a)]}")
        else:
            parameters.append(f"{a.go} {go_type(a, 'nn')}")
    if module.optional:
        parameters.append(f"opts ...{name}Options")
    yield from _paragraph(f"{name} {_says(module.does, module.arguments)}.")
    yield from _see(f"torch.nn.{name}")
    types = f"[{generic} Sizes]" if sized else ""
    yield f"func {name}{types}({', '.join(parameters)}) *{name}Module {{"
    fields = [f"{a.name}: {_stored(a, module)}" for a in module.arguments]
    checks = module.entry.get("checks")
    if checks or any("(op" in f for f in fields):
        yield f'const op = "nn.{name}"'
    if module.optional:
        yield "opt := args.Option(opts)"
    made = f"&{name}Module{{{', '.join(fields)}}}"
    if checks:
        yield f"m := {made}"
        yield "m.check(op)"
        made = "m"
    yield f"return Init({made})"
    yield "}\n"


def _forward(module: Module) -> Iterator[str]:
    type_ = f"{module.name}Module"
    inputs = [a.go for a in module.forward if not a.option]
    one = len(inputs) == 1
    names = ["x"] if one else inputs
    call = _passed_on(module)
    for a, name in zip([a for a in module.forward if not a.option], names, strict=True):
        call = re.sub(rf"\b{a.go}\b(?=[,)])", name, call, count=1)
    options = [a for a in module.forward if a.option]
    parameters = f"{', '.join(names)} gotorch.Tensor"
    for a in options:
        parameters += f", {a.go} ...int64"
        call = call.replace(f"{a.field}: {a.go}", f"{a.field}: {a.go}")
    given = ", ".join(names)
    extra = "".join(f", {a.go}" for a in options)
    yield f"// Forward returns F.{module.function.go} of {' and '.join(names)}."
    yield f"func (m *{type_}) Forward({parameters}) gotorch.Tensor {{"
    yield "if m.hooked(m) {"
    if one and not options:
        yield "return m.around1(m.forward, x)"
        yield "}"
        yield from _rest_of_forward(module, parameters, given, extra, options, call)
        return
    yield "return m.around(func(in []gotorch.Tensor) []gotorch.Tensor {"
    listed = ", ".join(f"in[{i}]" for i in range(len(names)))
    variadic = "..." if options else ""
    yield f"return []gotorch.Tensor{{m.forward({listed}{extra}{variadic})}}"
    yield f"}}, {given})[0]"
    yield "}"
    yield from _rest_of_forward(module, parameters, given, extra, options, call)


def _rest_of_forward(
    module: Module, parameters: str, given: str, extra: str, options: list[Argument], call: str
) -> Iterator[str]:
    type_, variadic = f"{module.name}Module", "..." if options else ""
    yield f"return m.forward({given}{extra}{variadic})"
    yield "}\n"
    yield f"func (m *{type_}) forward({parameters}) gotorch.Tensor {{"
    yield f"return {call}"
    yield "}\n"
    yield "// KeepsNothing says that Forward keeps no tensor: see [KeepsNothing]."
    yield f"func (m *{type_}) KeepsNothing() bool {{ return m.plain(m) }}\n"
    if module.function.with_indices:
        yield from _paragraph(
            "ForwardWithIndices is Forward that also returns where each element was: its place in "
            "its channel, flattened, an int64."
        )
        results = "(largest, indices gotorch.Tensor)"
        yield f"func (m *{type_}) ForwardWithIndices({parameters}) {results} {{"
        yield "if m.hooked(m) {"
        yield "out := m.around(func(in []gotorch.Tensor) []gotorch.Tensor {"
        with_indices = call.replace(
            f"F.{module.function.go}(", f"F.{module.function.go}WithIndices(", 1
        )
        inside = with_indices.replace("(x,", "(in[0],", 1)
        yield f"largest, indices := {inside}"
        yield "return []gotorch.Tensor{largest, indices}"
        yield f"}}, {given})"
        yield "return out[0], out[1]"
        yield "}"
        yield f"return {with_indices}"
        yield "}\n"


def _based(b: Based) -> Iterator[str]:
    type_ = f"{b.lazy or b.name}Module"
    if not b.lazy:
        yield f"// {type_} is what [{b.name}] makes."
        yield f"type {type_} struct{{ {b.base} }}\n"
        yield "// Forward returns what the module makes of x."
        yield f"func (m *{type_}) Forward(x gotorch.Tensor) gotorch.Tensor {{"
        yield "if m.hooked(m) {"
        yield "return m.around1(m.forward, x)"
        yield "}"
        yield "return m.forward(x)"
        yield "}\n"
        yield "// KeepsNothing says that Forward keeps no tensor: see [KeepsNothing]."
        yield f"func (m *{type_}) KeepsNothing() bool {{ return m.plain(m) }}\n"
    if f"{b.name}Options" != b.options:
        yield f"// {b.name}Options are the arguments of [{b.name}] that have defaults."
        yield f"type {b.name}Options = {b.options}\n"
    sized = any(a.kind == "sizes" for a in b.required)
    parameters = [f"{a.go} {'K' if a.kind == 'sizes' else 'int64'}" for a in b.required]
    yield from _paragraph(f"{b.name} {b.does}.")
    yield from _see(f"torch.nn.{b.name}")
    types = "[K Sizes]" if sized else ""
    parameters.append(f"opts ...{b.name}Options")
    yield f"func {b.name}{types}({', '.join(parameters)}) *{type_} {{"
    given = [f"ints({a.go})" if a.kind == "sizes" else a.go for a in b.required]
    if b.lazy:
        given.insert(0, "lazily")
    yield f"m := &{type_}{{}}"
    yield f'm.setUp("nn.{b.name}", {b.directions}, {", ".join(given)}, args.Option(opts).full())'
    yield "return Init(m)"
    yield "}\n"


_PARTS = re.compile(r"\[(?P<text>[^\]?]*)\?(?P<when>\w+)\]|\{(?P<name>\w+)(?P<quoted>!r)?\}")

# A value as Python writes it.
_WRITTEN: dict[str, str] = {
    "float": "pyFloat({})",
    "int": "pyInt({})",
    "bool": "pyBool({})",
    "sizes": "pyInts({})",
    "window": "pyWindow({})",
    "text": "{}",
}


def _repr(module: Module) -> str:
    fields = {a.python: a for a in module.arguments}
    parts: list[str] = []
    at = 0
    for m in _PARTS.finditer(module.repr):
        if m.start() > at:
            parts.append(f'"{module.repr[at : m.start()]}"')
        at = m.end()
        if m["when"]:
            parts.append(f'when(m.{fields[m["when"]].name}, "{m["text"]}")')
            continue
        a = fields[m["name"]]
        written = "pyOptionalInts({})" if a.nullable and a.kind == "sizes" else _WRITTEN[a.kind]
        if m["quoted"]:
            written = "pyQuoted({})"
        if module.entry.get("every_direction") or "pads" in module.entry:
            written = written.replace("pyInts(", "pyTuple(")
        parts.append(written.format(f"m.{a.name}"))
    if at < len(module.repr):
        parts.append(f'"{module.repr[at:]}"')
    return " + ".join(parts)


# Files --------------------------------------------------------------------------------------------


def files(ops: list[Wrapped]) -> dict[Path, str]:
    """The generated files of both packages."""
    known = layers()
    by_name = {op.function.name: op for op in ops if op.go}
    out = {}
    for section, text in _sections(known, by_name).items():
        out[FUNCTIONAL / f"{section}_gen.go"] = _file("functional", text)
    modules: dict[str, list[str]] = defaultdict(list)
    for module in known.modules.values():
        modules[module.section] += _module(module)
    for b in known.based.values():
        modules[b.section] += _based(b)
    for section, lines in modules.items():
        out[NN / f"{section}_gen.go"] = _file("nn", lines)
    return out


def _sections(known: Layers, ops: dict[str, Wrapped]) -> dict[str, list[str]]:
    text: dict[str, list[str]] = defaultdict(list)
    for f in known.functions.values():
        if not f.by_hand:
            own = bool(f.optional) and f.options_type == f"{f.go}Options"
            text[f.section] += _function(f, ops, own)
    return text


_IMPORTS = {
    "cmp": "cmp.",
    "slices": "slices.",
    "gotorch.dev/gotorch": "gotorch.",
    "gotorch.dev/gotorch/internal/args": "args.",
}


def _file(package: str, lines: list[str]) -> str:
    body = "\n".join(lines)
    code = "\n".join(line for line in lines if not line.startswith("//"))
    imports = [
        f'"{path}"' for path, use in _IMPORTS.items() if re.search(rf"\b{re.escape(use)}", code)
    ]
    if package == "nn" and re.search(r"\bF\.", code):
        imports.append('F "gotorch.dev/gotorch/nn/functional"')
    standard = [i for i in imports if "." not in i]
    others = [i for i in imports if "." in i]
    listed = "\n".join([*standard, *([""] if standard and others else []), *others])
    return f"{GENERATED}\npackage {package}\n\nimport (\n{listed}\n)\n\n{body}"
