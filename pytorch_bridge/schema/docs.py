"""What each function does, by `docs.yaml`: a text for all overloads of a function.

A text is the phrase that follows the function's name. It is true for each overload because it says
what depends on the parameters as a condition on them:

    {dim}                  the parameter, by the name that C or Go has for it
    {dim: along {dim}}     only where there is such a parameter
    {no dim: of all}       only where there is none
    {other=Tensor: ...}    only where it has this type: `int[]` for lists, `int` for `SymInt?` too
    {no other=Tensor: ...}
    @max, @max.dim         another function, by the name that C or Go has for it
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .functions import Argument, SchemaFunction
from .tables import read_table

DOCS_FILE = Path(__file__).with_name("docs.yaml")

# What an argument of a type is in words; a tensor needs none.
_IN_WORDS = {
    "Scalar": "a number",
    "float": "a number",
    "int": "an integer",
    "str": "a string",
    "Storage": "a storage",
    "Tensor[]": "a list of tensors",
    "Scalar[]": "a list of numbers",
    "int[]": "a list of integers",
}

_TOKEN = re.compile(
    r"\{(?P<parameter>\w+)\}"
    r"|\{(?P<no>no )?(?P<name>\w+)(?:=(?P<kind>[\w\[\]]+))?:"
    r"|(?P<end>\})"
    r"|@(?P<function>\w+(?:\.\w+)?)"
)
_TYPED = re.compile(r"\{(no )?\w+=")


def kind(argument: Argument) -> str:
    """The type without what does not change its meaning: `int[]` for `SymInt[2]?`."""
    plain = re.sub(r"\[\d+\]", "[]", argument.type.removesuffix("?").replace("SymInt", "int"))
    return plain.replace("?[]", "[]")


@dataclass(frozen=True)
class Description:
    """A text and the function that it is to be read for."""

    function: SchemaFunction
    text: str
    distinguishing: tuple[Argument, ...] = ()  # arguments whose kind overloads differ in
    sentences: tuple[str, ...] = ()  # what holds for parameters wherever they are

    def __bool__(self) -> bool:
        return bool(self.text)

    def read(
        self, parameters: Mapping[str, str], other: Callable[[str], str], closing: str = ""
    ) -> str:
        """The sentences for this function, from after its name; the first ends with `closing`.

        `parameters` has a name for each argument, `other` gives the name of another function.
        Where the text itself does not tell types apart, a sentence does. ValueError where it
        promises what is not there.
        """
        if not self.text:
            return ""
        said = [self._read(self.text, parameters, other) + closing]
        said += [
            f"{parameters[a.name]} is {_IN_WORDS[kind(a)]}"
            for a in self.distinguishing
            if kind(a) in _IN_WORDS and not _TYPED.search(self.text)
        ]
        said += [self._read(sentence, parameters, other) for sentence in self.sentences]
        return ". ".join(said) + "."

    def _read(self, text: str, parameters: Mapping[str, str], other: Callable[[str], str]) -> str:
        kinds = {a.name: kind(a) for a in self.function.arguments}
        out: list[str] = []
        left_out: list[bool] = []  # for each condition that is open, whether it does not hold
        at = 0
        for token in _TOKEN.finditer(text):
            if not any(left_out):
                out.append(text[at : token.start()])
            at = token.end()
            if name := token["name"]:
                holds = name in kinds and token["kind"] in (None, kinds[name])
                left_out.append(holds == bool(token["no"]))
            elif token["end"]:
                if not left_out:
                    raise self._wrong("a } closes nothing", text)
                left_out.pop()
            elif any(left_out):
                continue
            elif name := token["parameter"]:
                if name not in parameters:
                    raise self._wrong(f"there is no parameter {name}", text)
                out.append(parameters[name])
            else:
                out.append(other(token["function"]))
        if left_out:
            raise self._wrong("a condition is not closed", text)
        out.append(text[at:])
        return " ".join("".join(out).split())

    def _wrong(self, what: str, text: str) -> ValueError:
        return ValueError(f"docs.yaml, read for {self.function.schema}: {what} in {text!r}")


class Docs:
    """The table."""

    def __init__(self, path: Path = DOCS_FILE) -> None:
        table: dict[str, str] = read_table(path)
        self.texts = {key: text for key, text in table.items() if not key.startswith("{")}
        self.sentences = {key[1:-1]: text for key, text in table.items() if key.startswith("{")}

    def of(self, functions: list[SchemaFunction]) -> dict[str, Description]:
        """The description of each function, by its schema name."""
        families: dict[str, list[SchemaFunction]] = defaultdict(list)
        for f in functions:
            families[f.family].append(f)
        found = {}
        for family in families.values():
            kinds: dict[str, set[str]] = defaultdict(set)
            functional = {}
            for f in family:
                for a in _read(f):
                    kinds[a.name].add(kind(a))
                if not f.parsed.name.name.inplace and not f.parsed.arguments.out:
                    functional[tuple((a.name, a.type) for a in _read(f))] = f.name
            for f in family:
                own = functional.get(tuple((a.name, a.type) for a in _read(f)), "")
                keys = (f.name, own, f.base, f.family)
                text = next((self.texts[k] for k in keys if k in self.texts), "")
                apart = tuple(a for a in _read(f) if len(kinds[a.name]) > 1)
                known = [a.name for a in f.arguments if a.name in self.sentences]
                found[f.name] = Description(
                    f, text, apart, tuple(self.sentences[name] for name in known)
                )
        return found


def _read(f: SchemaFunction) -> list[Argument]:
    """The arguments that the functional form has, too."""
    outs = {a.name for a in f.parsed.arguments.out}
    return [a for a in f.arguments if a.name not in outs]
