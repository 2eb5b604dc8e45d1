"""Finds what can be broken in a source file: Python, Go and C++ by one set of rules.

The grammars are tree-sitter's, which name the parts of the three languages much alike; what
differs is in the tables here. A mutant replaces one piece of the text by another.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LANGUAGES = {".py": "python", ".go": "go", ".cc": "cpp", ".h": "cpp"}

_BOUNDARIES = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_EQUALITIES = {
    "==": "!=",
    "!=": "==",
    "is": "is not",
    "is not": "is",
    "in": "not in",
    "not in": "in",
}
_CONNECTIVES = {"and": "or", "or": "and", "&&": "||", "||": "&&"}
_CONSTANTS = {"True": "False", "False": "True", "true": "false", "false": "true"}

_COMPARISONS = ("comparison_operator", "binary_expression")
_NUMBERS = ("integer", "int_literal", "number_literal")
_DELETED = ("inc_statement", "dec_statement", "defer_statement", "go_statement", "delete_statement")
# What is not code, or code that no test can tell from its like.
_LEFT_OUT = (
    *("comment", "type", "decorator", "assert_statement", "static_assert_declaration"),
    *("import_declaration", "import_statement", "import_from_statement"),
    *("preproc_def", "preproc_function_def"),
)


@dataclass(frozen=True)
class Mutant:
    """One piece of a file and what it becomes."""

    file: str
    line: int
    text: str
    """The line in which the piece begins, without the space around it."""
    kind: str
    old: str
    new: str
    nth: int
    """Which it is of those in its file that are the same in all of the above but the line."""
    start: int
    end: int
    switched: tuple[int, int, str] | None = None
    """How it may be in a program and not in effect: what to replace, from where to where, by what
    with @ for the question whether it is in effect. None where that cannot be."""

    @property
    def key(self) -> tuple[str | int, ...]:
        """What it is, wherever in the file the line has moved to."""
        return (self.file, self.text, self.kind, self.old, self.new, self.nth)

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.new.encode() + source[self.end :]


def all_applied(source: bytes, given: list[tuple[int, Mutant]]) -> bytes:
    """The source with mutants that are in effect where `mutant(n)` is true. What they replace does
    not overlap."""
    for n, mutant in sorted(given, key=lambda pair: pair[1].start, reverse=True):
        assert mutant.switched is not None
        start, end, text = mutant.switched
        source = source[:start] + text.replace("@", f"mutant({n})").encode() + source[end:]
    return source


@functools.cache
def _parser(language: str) -> Any:
    tree_sitter = importlib.import_module("tree_sitter")
    grammar = importlib.import_module(f"tree_sitter_{language}")
    return tree_sitter.Parser(tree_sitter.Language(grammar.language()))


def mutants(root: Path, file: str) -> list[Mutant]:
    """All mutants of a file, as they come in it."""
    source = (root / file).read_bytes()
    language = LANGUAGES[Path(file).suffix]
    lines = source.decode().split("\n")
    same: Counter[tuple[str, ...]] = Counter()
    found = []
    for kind, node, new in _changes(_parser(language).parse(source).root_node, language):
        row, old = node.start_point[0], node.text.decode()
        what = (lines[row].strip(), kind, old, new)
        start, end = node.start_byte, node.end_byte
        switched = None if language == "python" else _switched(source, node, kind, new, language)
        found.append(Mutant(file, row + 1, *what, same[what], start, end, switched))
        same[what] += 1
    return found


def _changes(node: Any, language: str) -> Iterator[tuple[str, Any, str]]:
    """The kind of each change, the node that is replaced, and by what text."""
    if node.type in _LEFT_OUT:
        return
    yield from _of_condition(node, language)
    yield from _of_operator(node)
    yield from _of_statement(node, language)
    yield from _of_value(node)
    for child in node.children:
        yield from _changes(child, language)


def _text(node: Any) -> str:
    return node.text.decode()


# In compiled languages many mutants are compiled at once, with a switch each.

_STATEMENTS = ("expression_statement", "assignment_statement", "return_statement", "inc_statement",
    "dec_statement", "defer_statement", "go_statement", "throw_statement", "continue_statement",
    "delete_statement")  # fmt: skip
_BLOCKS = ("statement_list", "block", "compound_statement")
_BOOLEAN = ("condition", "boundary", "equality", "connective", "not")
# Where C++ wants a constant, so that there is nothing to switch.
_CONSTANT_PLACES = ("template_argument_list", "array_declarator", "enumerator", "case_statement",
    "bitfield_clause", "field_declaration")  # fmt: skip


def _switched(
    source: bytes, node: Any, kind: str, new: str, language: str
) -> tuple[int, int, str] | None:
    whole = _whole(node, kind, language)
    if whole is None or b"@" in whole.text:
        return None
    old = _text(whole)
    begin, end = node.start_byte - whole.start_byte, node.end_byte - whole.start_byte
    text = whole.text[:begin].decode() + new + whole.text[end:].decode()
    if whole.type in _STATEMENTS:
        made = f"if @ {{ {text} }} else {{ {old} }}"
        if language == "cpp":
            made = f"{{ if (@) {{ {text} }} else {{ {old} }} }}"
    elif language == "go":
        made = f"(@ && ({text}) || !@ && ({old}))"
    elif kind in _BOOLEAN:
        made = f"(@ ? bool({text}) : bool({old}))"
    else:
        made = f"(@ ? ({text}) : ({old}))"
    return whole.start_byte, whole.end_byte, made


def _whole(node: Any, kind: str, language: str) -> Any:
    """The expression or statement around a piece that has a value, or an effect, of its own."""
    if kind in ("boundary", "equality", "connective"):
        node = node.parent
    if language == "cpp":
        above, inside = node, False
        while above is not None:
            head = _text(above).partition("{")[0]
            constant = "constexpr" in head or (not inside and re.match("(static )?const ", head))
            if above.type in ("declaration", "function_definition") and constant:
                return None
            if above.type in _CONSTANT_PLACES and not inside:
                return None
            inside |= above.type in ("function_definition", "lambda_expression")
            above = above.parent
        return node if inside else None
    if kind in _BOOLEAN or _text(node) in _CONSTANTS:
        return node if _in_function(node) else None
    while node is not None and node.parent is not None and node.type not in _BLOCKS:
        if node.parent.type in _BLOCKS:
            return node if node.type in _STATEMENTS else None
        above = node.parent
        if above.type in ("if_statement", "for_clause"):
            return node if above.child_by_field_name("condition") == node else None
        node = above
    return None


def _in_function(node: Any) -> bool:
    while node is not None and not node.type.startswith(("function_decl", "method_decl")):
        node = node.parent
    return node is not None


def _of_condition(node: Any, language: str) -> Iterator[tuple[str, Any, str]]:
    if node.type not in ("if_statement", "elif_clause", "if_clause", "conditional_expression"):
        return
    condition = node.child_by_field_name("condition")
    if node.type == "if_clause":  # of a comprehension
        condition = node.named_children[0]
    elif condition is None and node.type == "conditional_expression":  # Python's: a if b else c
        condition = node.named_children[1]
    elif condition is not None and condition.type == "condition_clause":
        condition = condition.child_by_field_name("value")
    if condition is None or condition.type == "declaration":
        return
    if language == "python":
        yield "condition", condition, f"(not ({_text(condition)}))"
    else:
        yield "condition", condition, f"!({_text(condition)})"


def _is_condition(node: Any) -> bool:
    """Whether the whole of a condition is this, so that negating it is a mutant already."""
    parent = node.parent
    return parent.type in ("if_clause", "condition_clause") or (
        parent.type in ("if_statement", "elif_clause")
        and parent.child_by_field_name("condition") == node
    )


def _of_operator(node: Any) -> Iterator[tuple[str, Any, str]]:
    if node.type in (*_COMPARISONS, "boolean_operator"):
        for child in node.children:
            if child.type in _BOUNDARIES and not child.is_named:
                yield "boundary", child, _BOUNDARIES[child.type]
            elif child.type in _CONNECTIVES:
                yield "connective", child, _CONNECTIVES[child.type]
            elif child.type in _EQUALITIES and not _is_condition(node):
                yield "equality", child, _EQUALITIES[child.type]
    elif node.type == "not_operator" and not _is_condition(node):
        yield "not", node, _text(node.child_by_field_name("argument"))
    elif (
        node.type == "unary_expression" and _text(node).startswith("!") and not _is_condition(node)
    ):
        yield "not", node, _text(node.named_children[-1])


def _of_statement(node: Any, language: str) -> Iterator[tuple[str, Any, str]]:
    nothing = {"python": "pass", "go": "", "cpp": ";"}[language]
    if node.type in ("raise_statement", "throw_statement"):
        yield "raise", node, nothing
    elif node.type in _DELETED:
        yield "statement", node, nothing
    elif node.type == "continue_statement":
        yield "loop", node, _text(node).replace("continue", "break")
    elif node.type == "assignment_statement":
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        # The value is still made, because Go refuses what is not used.
        if right.named_child_count == left.named_child_count and _text(left) != "_":
            unused = ", ".join("_" for _ in left.named_children)
            yield "statement", node, f"{unused} = {_text(right)}"
    elif node.type == "expression_statement" and node.named_children:
        inner = node.named_children[0]
        if inner.type in ("call", "call_expression", "delete_expression", "update_expression"):
            name = re.split(r"[(<]", _text(inner))[0]
            yield "raise" if name in ("panic", "TORCH_CHECK") else "statement", node, nothing
        elif inner.type in ("augmented_assignment", "assignment_expression"):
            yield "statement", node, nothing
        elif inner.type == "assignment" and not re.match(r"\w+( *:|, *\w+| *=)", _text(inner)):
            yield "statement", node, nothing  # of a name, it would be one that is not known


def _of_value(node: Any) -> Iterator[tuple[str, Any, str]]:
    if node.type in _NUMBERS:
        if re.fullmatch(r"\d+", _text(node)):
            number = int(_text(node))
            yield "number", node, str(number + 1)
            if number > 0:
                yield "number", node, str(number - 1)
    elif node.type == "return_statement":
        values = node.named_children
        if values and values[0].type == "expression_list":
            values = values[0].named_children
        for value in values:
            if _text(value) in _CONSTANTS:
                yield "constant", value, _CONSTANTS[_text(value)]
            elif _text(value) == "err":
                yield "constant", value, "nil"
    elif node.type in ("true", "false") and node.parent.type in (
        "keyword_argument",
        "default_parameter",
    ):
        yield "constant", node, _CONSTANTS[_text(node)]
