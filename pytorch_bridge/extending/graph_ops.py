"""Registered C as an op of graphs.

Typing and graphs have their own words for numbers and tensors: typing says int64, float64, bool and
Array; in graphs these are the schema's int, float, bool and TensorType, which PyTorch's functions
take. Narrower numbers exist as members of structs only: they are widened when they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from ..errors import BridgeTypeError, RegistrationError
from ..graph.basic import Apply, Variable
from ..link.compiled_function import function
from ..ops.op import Names, Op, Storages, Values
from ..types import TensorType, schema_type
from ..types.base import Sub, Type
from ..types.numbers import NumberArg
from . import types
from .boxing import support_code
from .builder import CBuilder, Value, is_number
from .context import Context
from .models import StructModel, default_manager
from .signatures import Signature, signature

Emit = Callable[[Context, CBuilder, Signature, list[Value]], Any]


@lru_cache(maxsize=4096)
def graph_type(t: Type) -> Type:
    """The type that a variable has in a graph where typing says t."""
    t = types.unliteral(t)
    if isinstance(t, types.Array):
        return t.plain()
    if type(t) is types.Boolean:
        return schema_type("bool")
    if type(t) is types.Integer and t != types.uint64:
        return schema_type("int")
    if type(t) is types.Float:
        return schema_type("float")
    return t


_KINDS: dict[str, Type] = {"int": types.int64, "float": types.float64, "bool": types.boolean}


def typing_type(v: Variable) -> Type:
    """What typing says of a graph's variable."""
    t = v.type
    if isinstance(t, NumberArg):
        return _KINDS[t.kind]
    if isinstance(t, TensorType) and not isinstance(t, types.Array):
        return types.Array.of(t)
    return t


def widened(t: Type) -> Type:
    """The type of a value of type t once it is in a graph."""
    t = types.unliteral(t)
    if type(t) is types.Integer and t != types.uint64:
        return types.int64
    return types.float64 if type(t) is types.Float else t


class LoweredOp(Op):
    """What is registered with lower_builtin, lower_getattr, lower_setattr or lower_cast, or an
    intrinsic's C, with the signature for which it is used."""

    def __init__(self, name: str, sig: Signature, emit: Emit, key: Any) -> None:
        self.name, self.sig, self.emit = name, sig, emit
        self._key = (name, sig, key)
        self.itypes = [graph_type(t) for t in sig.args]
        self.otypes = [graph_type(sig.return_type)]
        trial = self._write("node", [f"V{i}" for i in range(len(sig.args))], "VR", "goto fail;")
        self._calls_torch, self._calls_python = trial.calls_torch, trial.calls_python
        self._structs = list(trial.structs.values())
        known = map(default_manager.lookup, (*sig.args, sig.return_type))
        self._calls_python |= any(m.in_python for m in (*known, *self._structs))
        # What has references to tensors may be, or contain, what it was made of.
        holders = [i for i, t in enumerate(sig.args) if default_manager.lookup(t).shares]
        fresh = self._fresh or not default_manager.lookup(sig.return_type).shares
        self.view_map = {0: holders} if holders and not fresh else {}
        self._alone: Any = None

    def _parameters(self) -> tuple[Any, ...]:
        return self._key

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__

    def make_node(self, *inputs: Any) -> Apply:
        """The node for variables of the signature's types."""
        assert self.itypes is not None
        assert self.otypes is not None
        if len(inputs) != len(self.itypes):
            raise BridgeTypeError(f"{self} takes {len(self.itypes)} inputs, got {len(inputs)}")
        variables = []
        for i, (t, v) in enumerate(zip(self.itypes, inputs, strict=True)):
            if isinstance(v, Variable) and not (t == v.type or t.is_super(v.type)):
                raise BridgeTypeError(f"{self}: input {i} is to be {t}, got {v} of type {v.type}")
            variables.append(v if isinstance(v, Variable) else t.make_constant(v))
        return Apply(self, variables, [t.make_variable() for t in self.otypes])

    def perform(self, node: Apply, inputs: Values, output_storage: Storages) -> None:
        """Runs the C, as a graph of this op alone."""
        if self._alone is None:
            variables = [t.make_variable() for t in self.itypes or ()]
            self._alone = function(variables, self.make_node(*variables).outputs[0], mode="c")
        output_storage[0][0] = self._alone(*inputs)

    def _write(self, name: str, inputs: Sequence[str], output: str, fail: str) -> CBuilder:
        b = CBuilder(name, fail)
        args = []
        for t, text in zip(self.sig.args, inputs, strict=True):
            have, wanted = _ctype(graph_type(t)), _ctype(t)
            v = Value(b, text, have)
            narrow = have != wanted and is_number(wanted)  # which the conversion checks
            args.append(Context().cast(b, v, widened(t), types.unliteral(t)) if narrow else v)
        made = self.emit(Context(), b, self.sig, args)
        if not isinstance(made, Value):
            raise RegistrationError(f"{self} must return a value of the builder, not {made!r}")
        have, wanted = _ctype(self.sig.return_type), _ctype(graph_type(self.sig.return_type))
        if have == "pb_string":
            made = b.string(made)
        if made.ctype != have and not (is_number(made.ctype) and is_number(have)):
            raise RegistrationError(
                f"{self} must return a {have}, which is what {self.sig.return_type} is in C, "
                f"not {made!r}"
            )
        if is_number(wanted):
            made = b.cast(b.cast(made, have), wanted)
        self._fresh = made.fresh
        b.move_to(output, made)
        return b

    def c_code(self, node: Apply, name: str, inputs: Names, outputs: Names, sub: Sub) -> str:
        texts = [t if _plain(t) else f"({t})" for t in inputs]
        return self._write(name, texts, outputs[0], sub["fail"]).block()

    def c_needs_gil(self, node: Apply) -> bool:
        return self._calls_python

    def c_headers(self) -> Sequence[str]:
        return ['"cgotorch.h"', "<math.h>"] if self._calls_torch else ["<math.h>"]

    def c_support_code(self) -> Sequence[str]:
        found = support_code()
        for t in (*self.sig.args, self.sig.return_type):
            found += default_manager.lookup(t).definitions()
        for model in self._structs:
            found += model.definitions()
        return found

    def c_code_cache_version(self) -> tuple[Any, ...]:
        return (1,)  # the C is in the source, which is hashed


def _plain(text: str) -> bool:
    return text.replace("_", "").isalnum()


def _ctype(t: Type) -> str:
    if isinstance(t, NumberArg):
        return t.c
    return default_manager.lookup(t).c_type


def lowered(name: str, sig: Signature, emit: Emit, key: Any, inputs: Sequence[Any]) -> Variable:
    """A node of registered C; returns its output."""
    return LoweredOp(name, sig, emit, key).make_node(*inputs).outputs[0]


def holds_tensors(t: Type) -> bool:
    """Whether a value that is no tensor may have one inside."""
    if isinstance(t, (NumberArg, TensorType)):
        return False
    model = default_manager.lookup(t)
    return isinstance(model, StructModel) and any(
        isinstance(member, TensorType) or holds_tensors(member) for _, member in model.members
    )


def present(v: Variable) -> Variable:
    """A node that takes a value, and is True."""

    def emit(context: Context, b: CBuilder, sig: Signature, args: list[Value]) -> Value:
        return b.value(True)

    return lowered("present", signature(types.boolean, typing_type(v)), emit, "present", [v])
