"""What the functions take and return, in Python's words: annotations, signatures and docstrings.

The stubs, the reference pages and `help` at run time are all printed from here.
"""

from __future__ import annotations

import ast
import keyword
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from inspect import Parameter, Signature

from ..schema import Docs, docs_url
from ..schema.corrections import lines, overloads
from ..schema.functions import Argument, SchemaFunction
from ..types import SchemaType, schema_type
from ..types.containers import BoolArray, ListArg, Optional, TensorList
from ..types.numbers import NumberArg, ScalarArg
from ..types.objects import Enum, Handle, StreamArg, String
from ..types.tensor import TensorArg
from ..types.type_rules import Face

# What an argument may be; the stub spells the short names out.
ALIASES = {
    "TensorLike": "Variable | torch.Tensor | complex",
    "IntLike": "int | Variable",
    "FloatLike": "float | Variable",
    "BoolLike": "bool | Variable",
    "NumberLike": "complex | Variable",
    "StrLike": "str | Variable",
    "DTypeLike": "torch.dtype | str | type | Variable",
    "DeviceLike": "torch.device | str | Variable",
    "LayoutLike": "torch.layout | str | Variable",
    "MemoryFormatLike": "torch.memory_format | str | Variable",
}
_NUMBERS = {"int": "IntLike", "float": "FloatLike", "bool": "BoolLike"}
_ENUMS = {
    "ScalarType": "DTypeLike",
    "Device": "DeviceLike",
    "Layout": "LayoutLike",
    "MemoryFormat": "MemoryFormatLike",
}
_HANDLES = {"Generator": "torch.Generator", "Storage": "torch.UntypedStorage"}

accepted: Face[str] = Face("annotation in Python", __name__)


@accepted.of(TensorArg)
def _tensor(t: TensorArg) -> str:
    return "TensorLike"


@accepted.of(NumberArg)
def _number(t: NumberArg) -> str:
    return _NUMBERS[t.kind]


@accepted.of(ScalarArg)
def _scalar(t: ScalarArg) -> str:
    return "NumberLike"


@accepted.of(String)
def _string(t: String) -> str:
    return "StrLike"


@accepted.of(Enum)
def _enum(t: Enum) -> str:
    return _ENUMS[t.schema]


@accepted.of(Handle)
def _handle(t: Handle) -> str:
    return f"{_HANDLES[t.schema]} | Variable"


@accepted.of(StreamArg)
def _stream(t: StreamArg) -> str:
    return "torch.Stream | Variable"


@accepted.of(Optional)
def _optional(t: Optional) -> str:
    return f"{accepted(t.elem)} | None"


@accepted.of(ListArg)
def _list(t: ListArg) -> str:
    one = accepted(t.elem)
    return f"Sequence[{one}] | {one}" if t.size else f"Sequence[{one}] | Variable"


@accepted.of(BoolArray)
def _bools(t: BoolArray) -> str:
    return f"Sequence[{accepted(t.elem)}] | Variable"


@accepted.of(TensorList)
def _tensors(t: TensorList) -> str:
    none = " | None" if isinstance(t.elem, Optional) else ""
    return f"Sequence[Variable | torch.Tensor{none}] | Variable"


@accepted.of(Optional, TensorArg)
def _optional_tensor(t: Optional) -> str:
    return "TensorLike | None"


def returned(f: SchemaFunction) -> str:
    """The annotation of what a call returns. A function without results returns what it writes."""
    types = [r.type for r in f.returns] or [a.type for a in f.arguments if a.written]
    if len(types) == 1 and not types[0].endswith("[]"):
        return _variable(types[0])
    kinds = sorted({_variable(t.removesuffix("[]")) for t in types}, reverse=True)
    return f"list[{' | '.join(kinds) or 'TensorVariable'}]"


def _variable(schema: str) -> str:
    return "TensorVariable" if isinstance(schema_type(schema), TensorArg) else "ValueVariable"


# What a default of the schema is in Python, where it is no literal of Python.
_NAMED = {"Mean": "1", "long": "torch.int64", "contiguous_format": "torch.contiguous_format"}


def default_text(a: Argument) -> str:
    assert a.default is not None
    text = _NAMED.get(a.default, a.default)
    if text.startswith("torch."):
        return text
    value = ast.literal_eval(text)
    return repr(tuple(value) if isinstance(value, list) else value)


class _Shown:
    """A default that shows as its text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def type_of(a: Argument) -> SchemaType:
    return schema_type(a.type)


def parameters(f: SchemaFunction) -> list[Parameter]:
    """The parameters as Python has them; one whose name is a keyword of Python, and those before
    it, are positional only."""
    hidden = max((i for i, a in enumerate(f.arguments) if keyword.iskeyword(a.name)), default=-1)
    found = []
    for i, a in enumerate(f.arguments):
        positional = Parameter.POSITIONAL_ONLY if i <= hidden else Parameter.POSITIONAL_OR_KEYWORD
        kind = Parameter.KEYWORD_ONLY if a.kwarg_only else positional
        name = a.name + "_" * keyword.iskeyword(a.name)
        default = Parameter.empty if a.default is None else _Shown(default_text(a))
        found.append(
            Parameter(name, kind, default=default, annotation=_Shown(accepted(type_of(a))))
        )
    return found


def signature(f: SchemaFunction) -> Signature:
    return Signature(parameters(f), return_annotation=_Shown(returned(f)))


def is_out(f: SchemaFunction) -> bool:
    """Whether the function writes its results into `out=`."""
    return bool(f.parsed.arguments.out)


def shown(functions: Iterable[SchemaFunction]) -> list[SchemaFunction]:
    """The overloads without those that take `out=`, unless there are no others."""
    every = list(functions)
    return [f for f in every if not is_out(f)] or every


def common_signature(functions: Sequence[SchemaFunction]) -> Signature:
    """That of the one overload. Of several, the parameters that all begin with, and then what else
    there may be."""
    every = shown(functions)
    if len(every) == 1:
        return signature(every[0])
    found = []
    for same in zip(*map(parameters, every), strict=False):
        first = same[0]
        kinds = {p.kind for p in same}
        if Parameter.KEYWORD_ONLY in kinds or len({p.name for p in same}) > 1:
            break
        notes = list(dict.fromkeys(str(p.annotation) for p in same))
        optional = [p.default for p in same if p.default is not Parameter.empty]
        if optional and len({str(p.default) for p in same}) > 1:
            break
        annotation = _Shown(" | ".join(notes))
        found.append(first.replace(kind=min(kinds), annotation=annotation))
    found.append(Parameter("args", Parameter.VAR_POSITIONAL))
    found.append(Parameter("kwargs", Parameter.VAR_KEYWORD))
    results = list(dict.fromkeys(map(returned, every)))
    return Signature(found, return_annotation=_Shown(" | ".join(results)))


# What they do


@cache
def _docs() -> Docs:
    return Docs()


@dataclass(frozen=True)
class Described:
    """A function, and what it does in a sentence or some."""

    function: SchemaFunction
    does: str


def _seen(name: str) -> str:
    return f"ops.{name}"


@cache
def function(name: str) -> SchemaFunction:
    """The function of a full schema name."""
    variants, tags, page, schema = lines()[name]
    return SchemaFunction(
        schema, tuple(variants.split(",")), tuple(t for t in tags.split(",") if t), page
    )


def describe(
    functions: Sequence[SchemaFunction], other: Callable[[str], str] = _seen
) -> list[Described]:
    """What each of the overloads of one name does, by docs.yaml."""
    family = functions[0].family
    bases = {family, f"{family}_", *(f.base for f in functions)}
    names = [n for b in sorted(bases) for n in overloads().get(b, ())]
    known = _docs().of([function(n) for n in names])
    found = []
    for f in functions:
        closing = ""
        if f.parsed.name.name.inplace and not f.parsed.name.name.dunder_method:
            closing = ", in place"
        elif is_out(f):
            closing = f", into {' and '.join(a.name for a in f.parsed.arguments.out)}"
        names_of = {a.name: f"`{a.name}`" for a in f.arguments}
        does = known[f.name].read(names_of, other, closing)
        found.append(Described(f, f"{does[:1].upper()}{does[1:]}"))
    return found


def summary(functions: Sequence[SchemaFunction]) -> str:
    """What the first overload does, in its first sentence."""
    first = describe(shown(functions)[:1])[0]
    return first.does.partition(". ")[0].removesuffix(".") + "."


def docstring(functions: Sequence[SchemaFunction], name: str = "") -> str:
    """What the function does, then each overload with its signature and what it does differently.

    Those that write into `out` are named only."""
    every = shown(functions)
    described = describe(every)
    texts = list(dict.fromkeys(d.does for d in described if d.does))
    called = name or f"ops.{every[0].base}"
    parts = [texts[0] if len(texts) == 1 else f"{len(every)} overloads of one function."]
    if not texts:
        parts = [f"Calls {every[0].base} of PyTorch."]
    for d in described:
        line = f"{called}{call_text(d.function)}"
        if len(texts) > 1:
            line += f"\n    {d.does}"
        facts = _facts(d.function)
        parts.append(line + "".join(f"\n    {fact}" for fact in facts))
    outs = [f for f in functions if is_out(f) and f not in every]
    if outs:
        into = dict.fromkeys(a.name for f in outs for a in f.parsed.arguments.out)
        parts.append(f"With {', '.join(f'{n}=' for n in into)} it writes into such tensors.")
    types = _types_line(every)
    parts.append(types)
    page = next((f.page for f in every if f.page), "")
    if page:
        parts.append(f"See {docs_url(page)}.")
    return "\n\n".join(parts)


def _types_line(functions: Sequence[SchemaFunction]) -> str:
    """Of which types results are, and what is refused."""
    random = any("nondeterministic_seeded" in f.tags for f in functions)
    found = (
        "Shapes and dtypes of the results are those that PyTorch gives for the types of the "
        "arguments;\nwhat it refuses is a BridgeTypeError."
    )
    return found + ("\nIt draws random numbers." if random else "")


def _facts(f: SchemaFunction) -> list[str]:
    found = []
    same = [a.name for a in f.arguments if a.written]
    if same and not is_out(f):
        found.append(f"It writes into {' and '.join(same)}.")
    for r in f.returns:
        views = [a.name for a in f.views(r)]
        if views:
            what = "The result" if len(f.returns) == 1 else f"Result {r.name}"
            found.append(f"{what} shares storage with {' and '.join(views)}, or may.")
    return found


def call_text(f: SchemaFunction) -> str:
    """`(self: TensorLike, dim: IntLike, *, dtype: DTypeLike | None = None) -> TensorVariable`"""
    return parameters_text(parameters(f)) + f" -> {returned(f)}"


def parameters_text(found: Sequence[Parameter], first: str = "") -> str:
    """The parameters in parentheses, after `first`, the name of what the function belongs to."""
    out = []
    if first:
        out.append(first)
        if not found or found[0].kind is not Parameter.POSITIONAL_ONLY:
            out.append("/")
    starred = False
    for i, p in enumerate(found):
        if p.kind is Parameter.KEYWORD_ONLY and not starred:
            out.append("*")
            starred = True
        default = "" if p.default is Parameter.empty else f" = {p.default!r}"
        star = "*" if p.kind is Parameter.VAR_POSITIONAL else ""
        out.append(f"{star}{p.name}: {p.annotation!r}{default}")
        last = i + 1 == len(found) or found[i + 1].kind is not Parameter.POSITIONAL_ONLY
        if p.kind is Parameter.POSITIONAL_ONLY and last:
            out.append("/")
    return f"({', '.join(out)})"


# Methods of variables


@cache
def method_names() -> tuple[str, ...]:
    """The functions that torch.Tensor has as methods."""
    found = []
    for base, names in overloads().items():
        if not base.startswith("__") and any("method" in lines()[n][0] for n in names):
            found.append(base)
    return tuple(found)


def supported(base: str) -> list[SchemaFunction]:
    """The overloads of a name whose types there are."""
    found = []
    for name in overloads()[base]:
        try:
            f = function(name)
            for a in f.arguments:
                type_of(a)
        except LookupError:
            continue
        found.append(f)
    return found
