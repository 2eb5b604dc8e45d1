"""One name for each function in C, Go and Python, derived from its schema.

The rule: CamelCase of the base name, then of the overload name unless names.yaml calls that
overload the default (whose `_out` form is plainly ...Out); an in-place function keeps its trailing
underscore, a private one its leading one. names.yaml also holds the exceptions. Go drops the
leading underscore of the private functions that names.yaml publishes.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from .functions import SchemaFunction
from .tables import read_table

NAMES_FILE = Path(__file__).with_name("names.yaml")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


GO_KEYWORDS = _words(
    "break case chan const continue default defer else fallthrough for func go goto if import "
    "interface map package range return select struct switch type var "
    # and the identifiers that generated wrappers use
    "blk opt opts runtime unsafe call nil len new string bool any float64 int64"
)
C_KEYWORDS = _words(
    "auto break case char const continue default do double else enum extern float for goto if "
    "inline int long register restrict return short signed sizeof static struct switch typedef "
    "union unsigned void volatile while bool true false "
    # C++
    "class delete explicit export friend mutable namespace new operator private protected public "
    "template this throw try typename using virtual and or not xor "
    # and the functions that convert arguments
    "in out opt ints scalar scalars dtype layout device device_index memory_format stream str "
    "storage release guard"
)


class Names:
    """The naming rule with its table."""

    def __init__(self, path: Path = NAMES_FILE) -> None:
        table = read_table(path)
        self.words: dict[str, str] = {w.lower(): w for w in table["words"].split()}
        self.defaults: dict[str, str] = table["defaults"]
        self.exceptions: dict[str, str] = table["names"]
        self.parameters: dict[str, str] = table["parameters"]
        self.published: dict[str, str] = {}  # pattern to its name in Go, or ""
        for entry in table["published"]:
            self.published |= entry if isinstance(entry, dict) else {entry: ""}
        self.hand_written: list[str] = table["hand_written"]
        self.skipped: dict[str, str] = table["skipped"] or {}

    def camel(self, snake: str) -> str:
        """`nll_loss` to `NLLLoss`."""
        return "".join(self.words.get(w.lower(), w[:1].upper() + w[1:]) for w in snake.split("_"))

    def c(self, f: SchemaFunction) -> str:
        """The C symbol, which is the Op's name too."""
        known = self.exceptions.get(f.name)
        if known is not None:
            return known
        base = f.parsed.name.name
        name = ("_" if f.private else "") + self.camel(base.base.lstrip("_"))
        if base.functional_overload:
            name += "Functional"
        default = self.defaults.get(f.base, "")
        if f.overload and f.overload == f"{default}_out":
            name += "Out"
        elif f.overload and f.overload != default:
            name += self.camel(f.overload)
        elif not f.overload and default:
            raise ValueError(
                f"{f.name}: names.yaml makes another overload the default; name this one"
            )
        return name + ("_" if base.inplace else "")

    def go(self, f: SchemaFunction) -> str | None:
        """The exported Go name, or None for a private function that Go does not have."""
        name = self.c(f)
        if not f.private:
            return name
        for pattern, renamed in self.published.items():
            if fnmatchcase(f.base, pattern):
                name = name.removeprefix("_")
                return renamed + name[len(self.camel(f.family.lstrip("_"))) :] if renamed else name
        return None

    @cache  # noqa: B019  (one instance lives as long as the program)
    def field(self, argument: str) -> str:
        """The field of an options struct for an argument: `keepdim` to `KeepDim`."""
        return self.camel(argument)

    @staticmethod
    def c_parameter(argument: str) -> str:
        return argument + "_" if argument in C_KEYWORDS else argument

    def go_parameter(self, argument: str) -> str:
        """`start_dim` to `startDim`, `LU_data` to `luData`; `type_` where Go has the word."""
        first, *rest = [w for w in argument.split("_") if w]
        first = first.lower() if first.isupper() else first[:1].lower() + first[1:]
        name = first + self.camel("_".join(rest))
        return name + "_" if name in GO_KEYWORDS else name
