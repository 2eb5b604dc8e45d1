"""Conditions on sizes as torch.export writes them, `(L['x'].size()[0] % 2) == 0`: what holds in
Python, and the same in C.

A condition is a tree of tuples, so that it can be compared and hashed: `("size", input, dim)`,
`("number", 2)`, or an operation and its operands. It is true, false, or cannot be computed: a
division by zero, and in C a number that 64 bits do not hold. What cannot be computed does not hold.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import BridgeTypeError

Tree = tuple[Any, ...]

_BINARY = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
}
_COMPARED = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_CALLS = {
    "math.trunc": "trunc",
    "math.floor": "floor",
    "math.ceil": "ceil",
    "round": "round",
    "math.sqrt": "sqrt",
    "torch._sym_sqrt": "sqrt",
    "torch.sym_sqrt": "sqrt",
    "torch.sym_float": "float",
    "float": "float",
    "torch.sym_max": "max",
    "torch.sym_min": "min",
    "max": "max",
    "min": "min",
    "torch.sym_not": "not",
    "abs": "abs",
}
_ARITHMETIC = frozenset(["+", "-", "*", "/", "//", "%", "max", "min"])
_WHOLE = ("trunc", "floor", "ceil", "round")  # whole numbers of others
_EXACT = 1 << 53  # up to here a double has every whole number
_POWERS = 64  # the largest exponent


class Condition(NamedTuple):
    """`text` is for people."""

    text: str
    tree: Tree

    def sizes(self) -> list[tuple[int, int | None]]:
        """The sizes that it is about, each once: numbers of inputs and dimensions, or None for an
        input that is a number itself."""
        found: dict[tuple[int, int | None], None] = {}
        pending = [self.tree]
        while pending:
            tree = pending.pop()
            if tree[0] == "size":
                found[tree[1], tree[2]] = None
            else:
                pending += [t for t in reversed(tree[1:]) if isinstance(t, tuple)]
        return list(found)

    def renumbered(self, places: Mapping[int, int]) -> Condition:
        """The same for inputs that have other numbers now."""

        def of(tree: Any) -> Any:
            if not isinstance(tree, tuple):
                return tree
            if tree[0] == "size":
                return ("size", places[tree[1]], tree[2])
            return tuple(map(of, tree))

        return Condition(self.text, of(self.tree))

    def holds(self, size: Callable[[int, int | None], Any]) -> Any:
        """Whether it holds for these sizes: a bool, or torch's symbol of one."""
        try:
            return _value(self.tree, size)
        except (ArithmeticError, ValueError):
            return False


# From text


def parse(text: str, sources: Mapping[str, tuple[int, str]]) -> Condition:
    """The condition that a Python expression is. `sources` has the number and the name of each
    input, by the expression that stands for it. BridgeTypeError for what has no counterpart."""
    try:
        expression = ast.parse(text.strip(), mode="eval").body
        reader = _Reader(sources)
        tree = reader.tree(expression)
        if _kind(tree) != "bool":
            raise BridgeTypeError("it is no condition")
        shown = ast.unparse(reader.shown(expression))
    except (SyntaxError, RecursionError) as e:
        raise BridgeTypeError(f"it cannot be read: {e}") from e
    return Condition(shown, tree)


class _Reader:
    def __init__(self, sources: Mapping[str, tuple[int, str]]) -> None:
        self.sources = {
            ast.unparse(ast.parse(source, mode="eval")): place for source, place in sources.items()
        }

    def shown(self, expression: ast.expr) -> ast.expr:
        """The expression with the names of inputs in the place of what stands for them."""
        reader = self

        class Renamed(ast.NodeTransformer):
            def visit(self, node: ast.AST) -> Any:
                if isinstance(node, (ast.Subscript, ast.Attribute)):
                    found = reader.sources.get(ast.unparse(node))
                    if found is not None:
                        return ast.Name(found[1], ast.Load())
                return self.generic_visit(node)

        return Renamed().visit(expression)

    def tree(self, e: ast.expr) -> Tree:
        found = self._size(e)
        if found is not None:
            return found
        if isinstance(e, ast.Constant) and type(e.value) in (int, float, bool):
            return ("truth" if isinstance(e.value, bool) else "number", e.value)
        if isinstance(e, ast.BinOp) and isinstance(e.op, (ast.LShift, ast.RShift)):
            by = self.tree(e.right)
            if by[0] != "number" or not isinstance(by[1], int) or not 0 <= by[1] < 62:
                raise BridgeTypeError(f"{ast.unparse(e)} has no counterpart")
            name = "*" if isinstance(e.op, ast.LShift) else "//"
            return _checked((name, self.tree(e.left), ("number", 1 << by[1])))
        if isinstance(e, ast.BinOp) and type(e.op) in _BINARY:
            return self._operation(_BINARY[type(e.op)], [e.left, e.right])
        if isinstance(e, ast.UnaryOp) and isinstance(e.op, (ast.USub, ast.UAdd)):
            inner = self.tree(e.operand)
            if isinstance(e.op, ast.UAdd):
                return inner
            # A number keeps its sign: a literal of C has none.
            return ("number", -inner[1]) if inner[0] == "number" else _checked(("neg", inner))
        if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.Not):
            return self._operation("not", [e.operand])
        if isinstance(e, ast.BoolOp):
            return self._operation("and" if isinstance(e.op, ast.And) else "or", e.values)
        if isinstance(e, ast.Compare) and all(type(op) in _COMPARED for op in e.ops):
            sides = [self.tree(side) for side in (e.left, *e.comparators)]
            pairs = [
                _checked((_COMPARED[type(op)], a, b))
                for op, a, b in zip(e.ops, sides, sides[1:], strict=False)
            ]
            return pairs[0] if len(pairs) == 1 else _checked(("and", *pairs))
        if isinstance(e, ast.Call) and not e.keywords:
            form = _CALLS.get(ast.unparse(e.func))
            if form is not None:
                return self._operation(form, e.args)
        raise BridgeTypeError(f"{ast.unparse(e)} has no counterpart")

    def _operation(self, name: str, operands: Sequence[ast.expr]) -> Tree:
        trees = [self.tree(operand) for operand in operands]
        while name in ("max", "min") and len(trees) > 2:
            trees[:2] = [_checked((name, *trees[:2]))]
        return _checked((name, *trees))

    def _size(self, e: ast.expr) -> Tree | None:
        """`x.size()[0]`, or an input that is a number."""
        whole = self.sources.get(ast.unparse(e))
        if whole is not None:
            return ("size", whole[0], None)
        if isinstance(e, ast.Subscript) and isinstance(e.slice, ast.Constant):
            of, dim = e.value, e.slice.value
            called = isinstance(of, ast.Call) and not of.args and not of.keywords
            name = of.func if called else of  # type: ignore[attr-defined]
            if isinstance(name, ast.Attribute) and name.attr == ("size" if called else "shape"):
                source = self.sources.get(ast.unparse(name.value))
                if source is not None and isinstance(dim, int):
                    return ("size", source[0], dim)
        return None


def _kind(tree: Tree) -> str:
    """ "int", "float" or "bool"."""
    name = tree[0]
    if name == "number":
        return type(tree[1]).__name__
    if name == "size" or name in _WHOLE:
        return "int"
    if name in ("/", "float", "sqrt"):
        return "float"
    if name in ("truth", "and", "or", "not", *_COMPARED.values()):
        return "bool"
    return "float" if "float" in map(_kind, tree[1:]) else "int"


def _checked(tree: Tree) -> Tree:
    """The tree, if it is one that can be compiled."""
    name, *operands = tree
    kinds = [_kind(t) for t in operands]
    logical = name in ("and", "or", "not")
    fits = bool(operands) and all((kind == "bool") == logical for kind in kinds)
    if name in _ARITHMETIC or name in _COMPARED.values():
        fits = fits and len(operands) == 2
    elif name not in ("and", "or", "**"):
        fits = fits and len(operands) == 1
    if name in ("//", "%", "abs"):
        fits = fits and "float" not in kinds
    if name == "**":
        exponent = operands[1]
        fits = fits and exponent[0] == "number" and kinds == ["int", "int"]
        fits = fits and 0 <= exponent[1] <= _POWERS
    if not fits:
        raise BridgeTypeError(f"{name!r} of {', '.join(kinds)} has no counterpart")
    return tree


# In Python


def _value(tree: Tree, size: Callable[[int, int | None], Any]) -> Any:
    name, *operands = tree
    if name in ("number", "truth"):
        return operands[0]
    if name == "size":
        return size(*operands)
    if name in ("and", "or"):
        found: Any = None
        for operand in operands:
            value = _value(operand, size)
            if isinstance(value, bool):
                if value is (name == "or"):
                    return value  # what comes after it is not looked at
            else:
                both = operator.and_ if name == "and" else operator.or_
                found = value if found is None else both(found, value)
        return name == "and" if found is None else found
    return _functions()[name](*(_value(operand, size) for operand in operands))


def _functions() -> dict[str, Callable[..., Any]]:
    import torch

    return {
        "+": operator.add,
        "-": operator.sub,
        "*": operator.mul,
        "/": operator.truediv,
        "//": operator.floordiv,
        "%": operator.mod,
        "**": operator.pow,
        "==": operator.eq,
        "!=": operator.ne,
        "<": operator.lt,
        "<=": operator.le,
        ">": operator.gt,
        ">=": operator.ge,
        "neg": operator.neg,
        "abs": abs,
        "not": torch.sym_not,
        "max": torch.sym_max,
        "min": torch.sym_min,
        "float": torch.sym_float,
        "sqrt": torch._sym_sqrt,
        "trunc": math.trunc,
        "floor": math.floor,
        "ceil": math.ceil,
        "round": round,
    }


# In C


class InC:
    """Statements that compute conditions. They stand in a loop that runs once, which `break` leaves
    where something cannot be computed."""

    def __init__(self, condition: Condition, size: Callable[[int, int | None], str]) -> None:
        self.size = size
        self.lines: list[str] = []
        self.count = 0
        self.needs_libm = any(f"'{name}'" in repr(condition.tree) for name in ("sqrt", "round"))
        self.result = self._of(condition.tree)

    def code(self, otherwise: str) -> str:
        """The test, and what to do where the condition does not hold."""
        return "\n".join(
            [
                "{",
                "int pb_holds = 0;",
                "do {",
                *self.lines,
                f"pb_holds = {self.result};",
                "} while (0);",
                f"if (!pb_holds) {{\n{otherwise}\n}}",
                "}",
            ]
        )

    def _new(self, c_type: str, value: str | None = None) -> str:
        self.count += 1
        name = f"pb_n{self.count}"
        self.lines.append(f"{c_type} {name}{'' if value is None else f' = {value}'};")
        return name

    def _of(self, tree: Tree) -> str:
        name, *operands = tree
        if name == "number":
            return _literal(operands[0])
        if name == "truth":
            return str(int(operands[0]))
        if name == "size":
            return self.size(*operands)
        if name in ("and", "or"):
            return self._sequence(operands, name == "and")
        kinds = [_kind(t) for t in operands]
        values = [self._of(t) for t in operands]
        if name == "not":
            return self._new("int", f"!{values[0]}")
        if name == "float":
            return values[0] if kinds == ["float"] else self._new("volatile double", values[0])
        if name == "sqrt":
            self.lines.append(f"if ({values[0]} < 0) break;")
            return self._new("volatile double", f"sqrt({values[0]})")
        if name in _WHOLE:
            return values[0] if kinds == ["int"] else self._whole(name, values[0])
        if name == "**":
            return self._power(values[0], operands[1][1])
        if name == "/" or "float" in kinds:
            values = [
                v if kind == "float" else self._exact(v)
                for v, kind in zip(values, kinds, strict=True)
            ]
            return self._floating(name, values)
        return self._integer(name, values)

    def _sequence(self, operands: Sequence[Tree], until: bool) -> str:
        """One after the other, `until` one is not."""
        result = self._new("int", str(int(until)))
        for operand in operands:
            self.lines.append(f"if ({result if until else '!' + result}) {{")
            self.lines.append(f"{result} = {self._of(operand)};")
        self.lines += "}" * len(operands)
        return result

    def _exact(self, value: str) -> str:
        self.lines.append(
            f"if ({value} > INT64_C({_EXACT}) || {value} < -INT64_C({_EXACT})) break;"
        )
        return self._new("volatile double", f"(double){value}")

    def _whole(self, name: str, value: str) -> str:
        """A whole number of a double; conversions of C cut off."""
        self.lines.append(f"if (!({value} > -0x1p62 && {value} < 0x1p62)) break;")
        if name == "round":  # to the even one of two that are as near
            return self._new("int64_t", f"(int64_t)nearbyint({value})")
        found = self._new("int64_t", f"(int64_t){value}")
        if name == "floor":
            self.lines.append(f"{found} -= (double){found} > {value};")
        if name == "ceil":
            self.lines.append(f"{found} += (double){found} < {value};")
        return found

    def _power(self, value: str, exponent: int) -> str:
        found = self._new("int64_t", "1")
        for _ in range(exponent):
            self.lines.append(f"if (__builtin_mul_overflow({found}, {value}, &{found})) break;")
        return found

    def _floating(self, name: str, values: Sequence[str]) -> str:
        if name in _COMPARED.values():
            return self._new("int", f" {name} ".join(values))
        if name in ("max", "min"):
            a, b = values
            return self._new(
                "volatile double", f"{a} {'>' if name == 'max' else '<'} {b} ? {a} : {b}"
            )
        if name == "neg":
            return self._new("volatile double", f"-{values[0]}")
        if name == "/":
            self.lines.append(f"if ({values[1]} == 0) break;")
        return self._new("volatile double", f" {name} ".join(values))

    def _integer(self, name: str, values: Sequence[str]) -> str:
        if name in _COMPARED.values():
            return self._new("int", f" {name} ".join(values))
        if name in ("max", "min"):
            a, b = values
            return self._new("int64_t", f"{a} {'>' if name == 'max' else '<'} {b} ? {a} : {b}")
        if name in ("neg", "abs"):
            (a,) = values
            found = self._new("int64_t")
            self.lines.append(f"if (__builtin_sub_overflow(INT64_C(0), {a}, &{found})) break;")
            if name == "abs":
                self.lines.append(f"if ({a} > 0) {found} = {a};")
            return found
        a, b = values
        if name in ("//", "%"):
            # The least number over -1 is one that does not fit.
            self.lines.append(f"if ({b} == 0 || ({b} == -1 && {a} == INT64_MIN)) break;")
            rest = self._new("int64_t", f"{a} % {b}")
            uneven = f"{rest} != 0 && ({rest} < 0) != ({b} < 0)"
            if name == "%":
                return self._new("int64_t", f"{uneven} ? {rest} + {b} : {rest}")
            return self._new("int64_t", f"{a} / {b} - ({uneven})")
        how = {"+": "add", "-": "sub", "*": "mul"}[name]
        found = self._new("int64_t")
        self.lines.append(f"if (__builtin_{how}_overflow({a}, {b}, &{found})) break;")
        return found


def _literal(value: float) -> str:
    if isinstance(value, int):
        if not -(1 << 63) < value < 1 << 63:
            raise BridgeTypeError(f"{value} does not fit into 64 bits")
        return f"INT64_C({value})" if value >= 0 else f"(-INT64_C({-value}))"
    if math.isinf(value) or math.isnan(value):
        raise BridgeTypeError(f"{value} has no counterpart")
    return f"({value.hex()})"
