"""Operators that are registered with torch.library, as ops. One whose kernel is in a shared library
is called by its name, also where there is no Python; one that is written in Python needs Python."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import MissingMethodError
from ..graph.basic import Apply, Variable
from ..sameness import key
from ..schema.corrections import IN
from ..types import TensorType, Type, literals, schema_type
from ..types.base import Sub
from ..types.numbers import NumberArg
from .op import Names, Op, Storages, Values, closed

# What the kernel of an operator on the CPU is registered for.
_KEYS = ("CPU", "CompositeExplicitAutograd", "CompositeImplicitAutograd")

# What finds the gradients of a node; it is above this module, and registers itself.
_gradients: list[Callable[[Apply, Sequence[Any], Sequence[bool]], Sequence[Any]]] = []


def register_gradients(
    find: Callable[[Apply, Sequence[Any], Sequence[bool]], Sequence[Any]],
) -> None:
    """Says how the gradients of operators of libraries are found."""
    _gradients[:] = [find]


# What to do about operators that are written in Python.
_ADVICE = {
    "transformers::grouped_mm_fallback": (
        "let the model compute its experts with PyTorch's own functions: "
        'model.set_experts_implementation("batched_mm"), and export it again'
    )
}
_GENERAL = (
    "write it with PyTorch's own functions, or give it a kernel in C++ (TORCH_LIBRARY_IMPL) in a "
    "library that torch.ops.load_library loads"
)

_CALL = """\
/* Calls an operator by its name, once its libraries are loaded; its results must be n tensors. */
static const char *pb_call_operator(const char *name, const char *overload,
                                    const char *const *libraries, const Value *values,
                                    int64_t n_values, const char *const *names, int64_t n_args,
                                    Tensor **outputs, int64_t n) {
  Operator op;
  Value *results;
  int64_t n_results, k = 0;
  const char *error = FindOperator(name, overload, &op);
  if (error != NULL && *libraries != NULL) {
    FreeString(error);
    const char *failed = NULL; /* matters only where the operator is in none of the others */
    for (; *libraries != NULL; libraries++) {
      error = LoadOperatorLibrary(*libraries);
      if (failed == NULL)
        failed = error;
      else
        FreeString(error);
    }
    error = FindOperator(name, overload, &op);
    if (error != NULL && failed != NULL) {
      char text[1024];
      snprintf(text, sizeof text,
               "%s is an operator of a library, which is to be loaded before: %.600s", name,
               failed);
      FreeString(error);
      error = cgotorch_make_error("OSError", text);
    }
    FreeString(failed);
  }
  if (error != NULL) return error;
  if ((error = CallOperator(op, values, n_values, names, n_args, &results, &n_results)) != NULL)
    return error;
  for (int64_t i = 0; i < n_results; i++) k += results[i].kind == ValueTensor;
  if (k != n) {
    FreeValues(results, n_results, true);
    return cgotorch_make_error("RuntimeError", "an operator returned another number of tensors");
  }
  k = 0;
  for (int64_t i = 0; i < n_results; i++)
    if (results[i].kind == ValueTensor) *outputs[k++] = results[i].v.tensor;
  FreeValues(results, n_results, false);
  return NULL;
}
"""


@closed
class LibraryOp(Op):
    """An overload, `torch.ops.mylib.f.default`, with its arguments; IN stands for an input of the
    node. `written` is where it is called, for messages."""

    only_calls = True

    def __init__(
        self,
        overload: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        written: str = "",
    ) -> None:
        import torch

        self.overload = overload
        self.written = written
        self.args, self.kwargs = args, dict(kwargs)
        self.name = f"{overload._schema.name}.{overload._overloadname}"
        self.random = torch.Tag.nondeterministic_seeded in overload.tags
        # What the inputs are like, fake tensors and numbers; None where nobody has said so.
        self.example: Sequence[Any] | None = None
        returns = overload._schema.returns
        self.lists = any("[]" in str(r.type) or "List" in str(r.type) for r in returns)
        self._key = (self.name, key(args), key(self.kwargs))
        self.view_map, self.destroy_map = self._memory()

    @classmethod
    def of(
        cls,
        overload: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        written: str = "",
    ) -> LibraryOp:
        """The op for the arguments of a call."""
        return cls(overload, _template(args), _template(dict(kwargs)), written)

    def _parameters(self) -> tuple[Any, ...]:
        return self._key

    def _memory(self) -> tuple[dict[int, list[int]], dict[int | None, list[int]]]:
        """What results are views of, and what is written into, by the marks of the schema."""
        schema = self.overload._schema
        places: dict[int, list[int]] = {}
        n = 0
        for i, argument in enumerate(schema.arguments):
            value = self.args[i] if i < len(self.args) else self.kwargs.get(argument.name)
            count = sum(x is IN for x in flat(value))
            places[i] = list(range(n, n + count))
            n += count
        views: dict[int, list[int]] = {}
        self.written_inputs: list[int] = []
        written = self.written_inputs
        self.returned_inputs: dict[int, int] = {}  # results that are inputs which are written
        for i, argument in enumerate(schema.arguments):
            info = argument.alias_info
            if info is None:
                continue
            if info.is_write:
                written += places[i]
            for o, result in enumerate(schema.returns):
                if result.alias_info is None or not (
                    info.before_set & result.alias_info.before_set
                ):
                    continue
                if info.is_write:
                    self.returned_inputs.update((o, place) for place in places[i])
                else:
                    views.setdefault(o, []).extend(places[i])
        # Written arguments are further outputs, behind the results.
        n = len(schema.returns)
        if self.lists:
            return views, {None: written} if written else {}
        return views, {n + k: [i] for k, i in enumerate(written)}

    def node(
        self, types: Sequence[Type], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Apply:
        """The call as a node whose results have these types."""
        inputs = [v for v in flat((args, dict(kwargs))) if isinstance(v, Variable)]
        written = [] if None in self.destroy_map else self.written_inputs
        outputs = [*types, *(inputs[i].type for i in written)]
        return Apply(self, inputs, [t.make_variable() for t in outputs])

    def perform(self, node: Apply, inputs: Values, output_storage: Storages) -> None:
        results = self.call(inputs)
        if None not in self.destroy_map:
            results += [inputs[i] for i in self.written_inputs]
        for storage, value in zip(output_storage, results, strict=True):
            storage[0] = value

    def call(self, inputs: Values) -> list[Any]:
        """What the operator returns."""
        values = iter(inputs)
        result = self.overload(*_filled(self.args, values), **_filled(self.kwargs, values))
        if not self.overload._schema.returns:
            return []
        return list(result) if isinstance(result, (tuple, list)) else [result]

    def grad_of_node(
        self, node: Apply, output_grads: Sequence[Variable | None], need: Sequence[bool]
    ) -> Sequence[Variable | None]:
        """The gradients that are registered with autograd."""
        if not _gradients:
            raise MissingMethodError(f"{self.name} has no gradient")
        return _gradients[0](node, output_grads, need)

    # In C

    def c_code(self, node: Apply, name: str, inputs: Names, outputs: Names, sub: Sub) -> str:
        schema = self.overload._schema
        if is_python(self.overload):
            advice = _ADVICE.get(schema.name, _GENERAL)
            raise MissingMethodError(f"it is written in Python; {advice}{self.written}")
        written = [] if None in self.destroy_map else self.written_inputs
        outputs, places = (
            outputs[: len(outputs) - len(written)],
            outputs[len(outputs) - len(written) :],
        )
        if not all(isinstance(v.type, TensorType) for v in node.outputs):
            raise MissingMethodError(f"its results are no tensors{self.written}")
        given = iter(list(zip(inputs, (v.type for v in node.inputs), strict=True)))
        values = [v for a in [*self.args, *self.kwargs.values()] for v in self._value(a, given)]
        names = [*(None for _ in self.args), *self.kwargs]
        text = literals.string
        libraries = [text(path) for path in libraries_of(schema.name)]
        lines = [
            f"const char *const libraries[] = {{{', '.join([*libraries, 'NULL'])}}};",
            f"const Value values[] = {{{', '.join(values) or '{ValueNone, 0, {0}}'}}};",
            f"const char *const names[] = {{{', '.join(map(_c_name, names)) or 'NULL'}}};",
            f"Tensor *outputs[] = {{{', '.join('&' + o for o in outputs) or 'NULL'}}};",
            f"pb_error = pb_call_operator({text(schema.name)}, {text(schema.overload_name)}, "
            f"libraries, values, {len(values)}, names, {len(names)}, outputs, {len(outputs)});",
            f"if (pb_error) {sub['fail']}",
            *(f"{o} = RetainTensor({inputs[i]});" for o, i in zip(places, written, strict=True)),
        ]
        return "{\n" + "\n".join(lines) + "\n}"

    def _value(self, value: Any, given: Iterator[tuple[str, Type]]) -> list[str]:
        """The Values that an argument is."""
        if value is IN:
            c, t = next(given)
            if isinstance(t, TensorType):
                return [f"{{ValueTensor, 0, {{.tensor = {c}}}}}"]
            if isinstance(t, NumberArg):
                return [_number(t.kind, c)]
        if isinstance(value, tuple):
            inner = [v for x in value for v in self._value(x, given)]
            return [f"{{ValueList, {len(value)}, {{0}}}}", *inner]
        if value is None:
            return ["{ValueNone, 0, {0}}"]
        for kind in (bool, int, float):
            if type(value) is kind:
                return [_number(kind.__name__, literals.number(kind.__name__, value))]
        if isinstance(value, complex):
            parts = [literals.number("float", x) for x in (value.real, value.imag)]
            return [f"{{ValueComplex, 0, {{.c = {{{', '.join(parts)}}}}}}}"]
        for enum in map(schema_type, ("ScalarType", "Layout", "MemoryFormat")):
            if enum.holds(value):
                return [_number("int", str(enum.literal(value)))]
        device = schema_type("Device")
        if device.holds(value):
            return [f"{{ValueDevice, 0, {{.device = {device.literal(value)}}}}}"]
        if isinstance(value, str):
            text = literals.string(value)
            return [f"{{ValueString, {len(value.encode())}, {{.s = {text}}}}}"]
        raise MissingMethodError(f"its argument {value!r} has no form in C{self.written}")

    def c_support_code(self) -> str:
        return _CALL

    def c_headers(self) -> Sequence[str]:
        return ["cgotorch.h", "<stdio.h>"]

    def c_needs_gil(self, node: Apply) -> bool:
        return False  # a kernel that needs it takes it

    def c_code_cache_version(self) -> tuple[Any, ...]:
        return (3,)


def _number(kind: str, c: str) -> str:
    tag, field = {"int": ("Int", "i"), "bool": ("Bool", "i"), "float": ("Float", "f")}[kind]
    return f"{{Value{tag}, 0, {{.{field} = {c}}}}}"


def _c_name(name: str | None) -> str:
    return "NULL" if name is None else f'"{name}"'


def is_python(overload: Any) -> bool:
    """Whether the kernel of an operator is written in Python."""
    import torch

    schema = overload._schema
    name = schema.name.replace("::", "/")
    full = f"{name}.{schema.overload_name}" if schema.overload_name else name
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    found = [key for key in _KEYS if has(overload.name(), key)]
    return not found or f"{full}/{found[0]}" in torch.library._impls


@functools.cache
def libraries_of(name: str) -> tuple[str, ...]:
    """The shared libraries that an operator may be from, those with a schema of it first. They are
    looked for among those that torch has loaded: those with the names of the namespace and the
    operator, because its kernel may be in another one than its schema."""
    import torch

    namespace, _, own = (re.escape(part.encode()) for part in name.partition("::"))
    schemas, others = [], []
    for path in sorted(torch.ops.loaded_libraries):
        try:
            content = Path(path).read_bytes()
        except OSError:
            continue
        if not re.search(namespace, content):
            continue
        if re.search(rb"\b" + own + rb"(\.\w+)?\(", content):
            schemas.append(str(path))
        # A function of TORCH_LIBRARY_IMPL names it so. A linker may keep "f" as the end of "half".
        elif re.search(own + rb"(\.\w+)?\0", content):
            others.append(str(path))
    return (*schemas, *others)


def _template(value: Any) -> Any:
    if isinstance(value, Variable):
        return IN
    if isinstance(value, (list, tuple)):
        return tuple(map(_template, value))
    if isinstance(value, dict):
        return {k: _template(v) for k, v in value.items()}
    return value


def flat(value: Any) -> list[Any]:
    """The leaves of arguments, in the order of a node's inputs."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [x for v in value for x in flat(v)]
    return [value]


def _filled(value: Any, values: Any) -> Any:
    if value is IN:
        return next(values)
    if isinstance(value, tuple):
        return [_filled(v, values) for v in value]
    if isinstance(value, dict):
        return {k: _filled(v, values) for k, v in value.items()}
    return value
