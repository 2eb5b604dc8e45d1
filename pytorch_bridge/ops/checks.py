"""Ops that check while a graph runs, and pass on what they check: sizes of inputs, conditions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..errors import BridgeTypeError, BridgeValueError
from ..graph.basic import Apply, Variable
from ..types import TensorType, literals, schema_type
from ..types.base import Sub
from ..types.numbers import NumberArg
from ..types.schema_types import describe
from .basic import after, view_op
from .native import constant
from .op import Gradients, Names, Op, Storages, Values, Variables, closed
from .size_guards import Condition, InC


class SizeRule(NamedTuple):
    """What one size of one input must be: `scale * s + offset` for the number s that `symbol`
    stands for, and between `low` and `high`, where they are given. The first rule of a symbol says
    which number it is. A `dim` of None is an input that is a number itself."""

    input: int
    dim: int | None
    symbol: str
    scale: int = 1
    offset: int = 0
    low: int | None = None
    high: int | None = None


class _Passes(Op):
    """An op whose outputs are its first inputs."""

    # What a graph's caller has to say about a failure is in its message.
    explains_itself = True
    only_calls = True

    def L_op(self, inputs: Variables, outputs: Variables, output_grads: Gradients) -> Gradients:
        others: list[Variable | None] = [None] * (len(inputs) - len(outputs))
        return [*after(output_grads, outputs), *others]

    def _pass_on(self, node: Apply, inputs: Names, outputs: Names, sub: Sub) -> str:
        lines = []
        for v, i, o in zip(node.outputs, inputs, outputs, strict=False):
            code, *_ = view_op.code_for(v.type)
            lines.append(code % {**sub, "iname": i, "oname": o})
        return "\n".join(lines)

    def c_headers(self) -> Sequence[str]:
        return ["cgotorch.h", "<stdio.h>", "<stdlib.h>", "<string.h>"]

    def c_needs_gil(self, node: Apply) -> bool:
        return False

    def c_code_cache_version(self) -> tuple[Any, ...]:
        return (1,)


@closed
class CheckSizes(_Passes):
    """Its inputs, `names` in messages, once their sizes obey the rules, and the conditions hold.

    ValueError otherwise, which names the input, the dimension, and both sizes; or the condition,
    and the sizes that it is about.
    """

    __props__ = ("names", "rules", "conditions")

    def __init__(
        self,
        names: Sequence[str],
        rules: Sequence[SizeRule],
        conditions: Sequence[Condition] = (),
    ) -> None:
        self.names = tuple(names)
        self.rules = tuple(SizeRule(*rule) for rule in rules)
        self.conditions = tuple(conditions)
        self.view_map = {i: [i] for i in range(len(self.names))}
        for rule in self.rules:
            if not 0 <= rule.input < len(self.names) or rule.scale < 1:
                raise BridgeValueError(f"CheckSizes: {rule} fits no size of {self.names}")
        for condition in self.conditions:
            if not all(0 <= i < len(self.names) for i, _ in condition.sizes()):
                raise BridgeValueError(f"CheckSizes: {condition} fits no size of {self.names}")

    def make_node(self, *inputs: Any) -> Apply:
        if len(inputs) != len(self.names):
            raise BridgeTypeError(f"{self} takes {len(self.names)} inputs, got {len(inputs)}")
        places = [(rule.input, rule.dim, rule) for rule in self.rules]
        places += [(i, dim, c) for c in self.conditions for i, dim in c.sizes()]  # type: ignore[misc]
        for i, dim, about in places:
            t = inputs[i].type
            fits = isinstance(t, NumberArg) if dim is None else dim < (getattr(t, "ndim", 0) or 0)
            if not fits:
                raise BridgeTypeError(f"{self}: {about} fits no size of {t}")
        return Apply(self, list(inputs), [v.type.make_variable() for v in inputs])

    def _what(self, rule: SizeRule) -> str:
        name = self.names[rule.input].replace("%", "%%")  # it becomes part of a format
        return name if rule.dim is None else f"{name}: dimension {rule.dim}"

    def _steps(self) -> list[tuple[SizeRule, SizeRule | None]]:
        """The rules, each with the first one of its symbol, if it is another."""
        first: dict[str, SizeRule] = {}
        steps = []
        for rule in self.rules:
            known = first.setdefault(rule.symbol, rule)
            steps.append((rule, None if known is rule else known))
        return steps

    def perform(self, node: Apply, inputs: Values, output_storage: Storages) -> None:
        symbols: dict[str, int] = {}
        for rule, first in self._steps():
            value = inputs[rule.input]
            size = int(value if rule.dim is None else value.shape[rule.dim])
            error = self._refusal(rule, first, symbols, size)
            if error is not None:
                raise BridgeValueError(error)
            symbols.setdefault(rule.symbol, (size - rule.offset) // rule.scale)

        def size_of(i: int, dim: int | None) -> int:
            return int(inputs[i] if dim is None else inputs[i].shape[dim])

        for condition in self.conditions:
            if not condition.holds(size_of):
                sizes = tuple(size_of(*place) for place in condition.sizes())
                raise BridgeValueError(self._demanded(condition) % sizes)
        for storage, value in zip(output_storage, inputs, strict=True):
            storage[0] = value

    def trace(self, node: Apply, inputs: Sequence[Any]) -> list[Any]:
        import torch

        symbols: dict[str, Any] = {}
        for rule, first in self._steps():
            value = inputs[rule.input]
            size = value if rule.dim is None else value.shape[rule.dim]
            if first is not None:
                torch._check(size == symbols[rule.symbol] * rule.scale + rule.offset)
                continue
            if rule.low is not None:
                torch._check(size >= rule.low)
            if rule.high is not None:
                torch._check(size <= rule.high)
            if rule.scale != 1:
                torch._check((size - rule.offset) % rule.scale == 0)
            symbols[rule.symbol] = (size - rule.offset) // rule.scale
        for condition in self.conditions:
            torch._check(
                condition.holds(lambda i, dim: inputs[i] if dim is None else inputs[i].shape[dim])
            )
        return list(inputs)

    def _demanded(self, condition: Condition) -> str:
        """The message where a condition does not hold, as a format of its sizes."""
        sizes = [
            self.names[i] if dim is None else f"{self.names[i]}.size()[{dim}]"
            for i, dim in condition.sizes()
        ]
        text = condition.text.replace("%", "%%")
        got = ", ".join(f"{s.replace('%', '%%')} = %ld" for s in sizes)
        return f"the program asks for {text}, got {got}" if got else f"{text} does not hold"

    def _refusal(
        self, rule: SizeRule, first: SizeRule | None, symbols: dict[str, int], size: int
    ) -> str | None:
        for holds, message in self._conditions(rule, first):
            if not holds(size, symbols):
                expected = symbols.get(rule.symbol, 0) * rule.scale + rule.offset
                return message % ((expected, size) if first is not None else size)
        return None

    def _conditions(self, rule: SizeRule, first: SizeRule | None) -> list[tuple[Any, str]]:
        """What must hold of a size, as a function of Python, and the message where it does not."""
        what = self._what(rule)
        if first is not None:
            other = self._what(first).replace(":", "'s")
            how = "" if rule[3:5] == first[3:5] else f"{_times(rule)}, where {_times(first)} is "
            return [
                (
                    lambda n, s: n == s[rule.symbol] * rule.scale + rule.offset,
                    f"{what} must be %ld, {how or 'as '}{other}{'' if how else ' is'}, got %ld",
                )
            ]
        conditions: list[tuple[Any, str]] = []
        low, high = rule.low, rule.high
        if low is not None or high is not None:
            if low is None:
                bound = f"at most {high}"
            elif high is None:
                bound = f"at least {low}"
            else:
                bound = f"between {low} and {high}"
            conditions.append(
                (
                    lambda n, s: (low is None or n >= low) and (high is None or n <= high),
                    f"{what} must be {bound}, got %ld",
                )
            )
        if rule.scale != 1:
            conditions.append(
                (
                    lambda n, s: (n - rule.offset) % rule.scale == 0,
                    f"{what} must be {_times(rule)} for a whole n, got %ld",
                )
            )
        return conditions

    def c_code(self, node: Apply, name: str, inputs: Names, outputs: Names, sub: Sub) -> str:
        conditions = [self._demanded(c) for c in self.conditions]
        # A %ld is at most 20 characters long.
        room = max([512, *(len(m.encode()) + 20 * m.count("%ld") + 1 for m in conditions)])
        lines = [f"char text[{room}];"]
        symbols = {rule.symbol: f"symbol_{i}" for i, rule in enumerate(self.rules)}
        lines += [f"int64_t {c} = 0;" for c in dict.fromkeys(symbols.values())]
        sizes, read = self._sizes(inputs, sub)
        lines += read

        def refuse(message: str, arguments: str) -> str:
            given = f"{literals.string(message)}, {arguments}".removesuffix(", ")
            return (
                f"snprintf(text, sizeof text, {given});\n"
                f'pb_error = cgotorch_make_error("ValueError", text);\n{sub["fail"]}'
            )

        for rule, first in self._steps():
            symbol, size = symbols[rule.symbol], sizes[rule.input, rule.dim]
            for test, arguments, (_, message) in zip(
                *self._in_c(rule, first, symbol, size), self._conditions(rule, first), strict=True
            ):
                lines.append(f"if (!({test})) {{\n{refuse(message, arguments)}\n}}")
            if first is None:
                lines.append(f"{symbol} = ({size} - {rule.offset}) / {rule.scale};")
        for condition, message in zip(self.conditions, conditions, strict=True):
            about = ", ".join(f"(long){sizes[place]}" for place in condition.sizes())
            in_c = InC(condition, lambda i, dim: sizes[i, dim])
            lines.append(in_c.code(refuse(message, about)))
        lines += ["(void)text;", *(f"(void){c};" for c in dict.fromkeys(symbols.values()))]
        return "{\n" + "\n".join(lines) + "\n" + self._pass_on(node, inputs, outputs, sub) + "\n}"

    def _sizes(
        self, inputs: Sequence[str], sub: Sub
    ) -> tuple[dict[tuple[int, int | None], str], list[str]]:
        """The C variables of all sizes that are looked at, and what reads them."""
        places = {(rule.input, rule.dim): "" for rule in self.rules}
        places |= {place: "" for c in self.conditions for place in c.sizes()}
        lines: list[str] = []
        for i in dict.fromkeys(i for i, _ in places):
            dims = [dim for j, dim in places if j == i]
            for dim in dims:
                places[i, dim] = f"size_{i}" if dim is None else f"size_{i}_{dim}"
            names = ", ".join(places[i, dim] for dim in dims)
            if dims == [None]:
                lines.append(f"const int64_t {names} = {inputs[i]};")
                continue
            lines += [
                f"int64_t {names};",
                "{",
                "TensorInfo info;",
                f"if ((pb_error = GetTensorInfo({inputs[i]}, &info))) {{{sub['fail']}}}",
                *(f"{places[i, dim]} = info.sizes[{dim}];" for dim in dims),
                "}",
            ]
        return places, lines

    def _needs_libm(self) -> bool:
        return any(InC(c, lambda i, dim: "0").needs_libm for c in self.conditions)

    def c_headers(self) -> Sequence[str]:
        return [*super().c_headers(), *(["<math.h>"] if self._needs_libm() else [])]

    def c_libraries(self) -> Sequence[str]:
        return ["m"] if self._needs_libm() else []

    def c_code_cache_version(self) -> tuple[Any, ...]:
        return (2,)

    def _in_c(
        self, rule: SizeRule, first: SizeRule | None, symbol: str, size: str
    ) -> tuple[list[str], list[str]]:
        """The tests of `_conditions` in C, and the arguments of their messages."""
        got = f"(long){size}"
        if first is not None:
            expected = f"{symbol} * {rule.scale} + {rule.offset}"
            return [f"{size} == {expected}"], [f"(long)({expected}), {got}"]
        tests = []
        bounds = [f"{size} >= INT64_C({rule.low})"] if rule.low is not None else []
        bounds += [f"{size} <= INT64_C({rule.high})"] if rule.high is not None else []
        if bounds:
            tests.append(" && ".join(bounds))
        if rule.scale != 1:
            tests.append(f"({size} - {rule.offset}) % {rule.scale} == 0")
        return tests, [got] * len(tests)


def _times(rule: SizeRule) -> str:
    """`2*n + 1`"""
    text = "n" if rule.scale == 1 else f"{rule.scale}*n"
    if rule.offset:
        text += f" {'-' if rule.offset < 0 else '+'} {abs(rule.offset)}"
    return text


@closed
class Require(_Passes):
    """Its first input, once the second, a truth value, has been seen to hold; else RuntimeError
    with `message`."""

    __props__ = ("message",)
    view_map = {0: [0]}  # noqa: RUF012

    def __init__(self, message: str) -> None:
        self.message = message

    def make_node(self, x: Any, condition: Any) -> Apply:
        x, condition = constant(x), constant(condition)
        if getattr(condition.type, "kind", "") not in ("bool", "int"):
            raise BridgeTypeError(
                f"{self} needs a truth value, got {describe(condition)} of type {condition.type}"
            )
        if isinstance(x.type, TensorType):
            out = x.type.clone(name=None).make_variable()
        else:
            out = x.type.make_variable()
        return Apply(self, [x, condition], [out])

    def perform(self, node: Apply, inputs: Values, output_storage: Storages) -> None:
        if not inputs[1]:
            raise RuntimeError(self.message)
        output_storage[0][0] = inputs[0]

    def trace(self, node: Apply, inputs: Sequence[Any]) -> list[Any]:
        import torch

        condition = inputs[1]
        symbolic = isinstance(condition, (bool, torch.SymBool))
        torch._check(condition if symbolic else condition != 0, lambda: self.message)
        return [inputs[0]]

    def c_code(self, node: Apply, name: str, inputs: Names, outputs: Names, sub: Sub) -> str:
        message = literals.string(self.message)
        return (
            f'if (!({inputs[1]})) {{\npb_error = cgotorch_make_error("RuntimeError", {message});\n'
            f"{sub['fail']}\n}}\n{self._pass_on(node, inputs, outputs, sub)}"
        )


@closed
class Drawn(Op):
    """A number that is there once its input is, whatever that is: what InOrder waits for."""

    __props__ = ()
    only_calls = True

    def make_node(self, x: Any) -> Apply:
        return Apply(self, [x], [schema_type("int").make_variable()])

    def grad(self, inputs: Variables, output_grads: Variables) -> Gradients:
        return [None]

    def perform(self, node: Apply, inputs: Values, output_storage: Storages) -> None:
        output_storage[0][0] = 0

    def trace(self, node: Apply, inputs: Sequence[Any]) -> list[Any]:
        return [0]

    def c_code(self, node: Apply, name: str, inputs: Names, outputs: Names, sub: Sub) -> str:
        return f"(void){inputs[0]};\n{outputs[0]} = 0;"

    def c_needs_gil(self, node: Apply) -> bool:
        return False

    def c_code_cache_version(self) -> tuple[Any, ...]:
        return (1,)


@closed
class InOrder(_Passes):
    """Its first input, once the second has been computed: random numbers are drawn in the order in
    which a program draws them."""

    __props__ = ()
    view_map = {0: [0]}  # noqa: RUF012

    def make_node(self, x: Any, drawn: Variable) -> Apply:
        x = constant(x)
        if isinstance(x.type, TensorType):
            out = x.type.clone(name=None).make_variable()
        else:
            out = x.type.make_variable()
        return Apply(self, [x, drawn], [out])

    def perform(self, node: Apply, inputs: Values, output_storage: Storages) -> None:
        output_storage[0][0] = inputs[0]

    def trace(self, node: Apply, inputs: Sequence[Any]) -> list[Any]:
        return [inputs[0]]

    def c_code(self, node: Apply, name: str, inputs: Names, outputs: Names, sub: Sub) -> str:
        return f"(void){inputs[1]};\n{self._pass_on(node, inputs, outputs, sub)}"


drawn, in_order = Drawn(), InOrder()
