"""What each function is about, by `subjects.yaml`: a subject is a file of the Go package."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from .tables import read_table

SUBJECTS_FILE = Path(__file__).with_name("subjects.yaml")


@dataclass(frozen=True)
class Subject:
    """A file of generated functions: what it is called, and what its functions are about."""

    name: str
    title: str

    @property
    def file(self) -> str:
        return f"ops_{self.name}_gen.go"


class Subjects:
    """The table, which says for a family which subject it belongs to."""

    def __init__(self, path: Path = SUBJECTS_FILE) -> None:
        self.path = path
        self.all: list[Subject] = []
        self.words: dict[str, list[Subject]] = defaultdict(list)
        for name, row in read_table(path).items():
            subject = Subject(name, row["title"])
            self.all.append(subject)
            for word in row["functions"].split():
                self.words[word].append(subject)

    def of(self, families: Iterable[str]) -> dict[str, Subject]:
        """The subject of each family.

        ValueError, with all that is wrong, where a family has none or several, or a word of the
        table decides for no family.
        """
        found: dict[str, Subject] = {}
        wrong: list[str] = []
        idle = set(self.words)
        for family in sorted(set(families)):
            words = self._deciding(family)
            subjects = {s.name: s for w in words for s in self.words[w]}
            idle -= set(words)
            if len(subjects) == 1:
                (found[family],) = subjects.values()
            elif subjects:
                wrong.append(
                    f"{family} belongs to {' and '.join(sorted(subjects))}, "
                    f"by {' and '.join(words)}: write its name where it belongs"
                )
            else:
                wrong.append(f"{family} has no subject: add its name to the one that it belongs to")
        wrong += [f"{word} decides for no function: drop it" for word in sorted(idle)]
        if wrong:
            raise ValueError(f"{self.path.name}:\n  " + "\n  ".join(wrong))
        return found

    def _deciding(self, family: str) -> list[str]:
        """The family's own name, or else the longest patterns that match it."""
        if family in self.words:
            return [family]
        matching = [w for w in self.words if "*" in w and fnmatchcase(family, w)]
        longest = max(map(len, matching), default=0)
        return [w for w in matching if len(w) == longest]
