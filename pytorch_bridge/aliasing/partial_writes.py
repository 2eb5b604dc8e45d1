"""Written: a tensor with a part of it written anew, in memory of its own or where it is.

Functions like `slice_scatter` return a copy of a tensor with one view of it replaced, and copy all
that lies around it, too. A program that was made functional has several of them for each of its
`x[:, 1:] += y`: one for each view on the way, and one for what Python assigns back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any

from ..errors import BridgeTypeError
from ..graph.basic import Apply
from ..ops.native import NativeFunction, NativeOp, derivatives, native, native_op
from ..ops.op import CallsTorch, Gradients, Names, Storages, Values, Variables, closed
from ..schema.corrections import IN
from ..types import TensorType
from ..types.base import Sub
from .in_place import writing_form

# Each takes a tensor, what to write and where; and the view that has it there, which takes the
# same.
_VIEWS = {
    "slice_scatter": "slice.Tensor",
    "select_scatter": "select.int",
    "diagonal_scatter": "diagonal",
    "as_strided_scatter": "as_strided",
}
# What gives a tensor other elements, whatever they were.
_ASSIGNING = frozenset(["copy", "fill.Scalar", "fill.Tensor", "zero"])


def scatters(op: Any) -> bool:
    """Whether an op returns a copy of its first input with its second written into a part of it."""
    return isinstance(op, NativeOp) and op.name in _VIEWS and op.arguments[:2] == (IN, IN)


@cache
def view_of(op: NativeOp) -> NativeOp:
    """The view that an op which scatters writes into: of the first input, with those from the third
    on."""
    return native_op(native(_VIEWS[op.name]), (IN, *op.arguments[2:]), (), ())


@cache
def scattering(view: NativeOp) -> NativeOp | None:
    """What writes its second input into a view of the first; None for other views."""
    name = next((name for name, of in _VIEWS.items() if of == view.name), None)
    if name is None or view.arguments[0] is not IN:
        return None
    return native_op(native(name), (IN, IN, *view.arguments[1:]), (), ())


def assigns(function: NativeFunction) -> bool:
    """Whether a function returns a tensor like its first argument, with other elements."""
    return function.name in _ASSIGNING


@cache
def assigning_form(function: NativeFunction) -> NativeFunction | None:
    """The overload that writes into self what `function` returns, wherever self lies; None where
    there is none."""
    if not assigns(function):
        return writing_form(function)
    return function.in_place


@closed
class Written(CallsTorch):
    """Its first input, with a part written: `ops` is one function that scatters inside the other,
    the outermost first, and what is written is the last input, or what `source` makes of the part
    and the inputs from there on. In between are the numbers of `ops`.

    With `in_place` the input is destroyed; it is copied nevertheless where a call finds that
    somebody else has its memory, or that its elements overlap.
    """

    __props__ = ("ops", "source", "in_place")
    only_calls = True

    def __init__(
        self, ops: Sequence[NativeOp], source: NativeOp | None = None, in_place: bool = False
    ) -> None:
        self.ops = tuple(ops)
        self.source = source
        self.in_place = in_place
        if source is None:
            writing, template = native("copy_"), (IN, IN, False)
        else:
            form = assigning_form(source.native)
            if form is None or source.places.get("self") != [0]:
                raise BridgeTypeError(f"{source} has no form that writes into its first input")
            writing, template = form, source.arguments
        self.writing = native_op(writing, template, (), ())
        if in_place:
            self.destroy_map = {0: [0]}

    def __str__(self) -> str:
        inner = "src" if self.source is None else f"{self.source}(·)"
        for op in reversed(self.ops):
            inner = f"{op}(·, {inner})"
        return f"{inner}[in place]" if self.in_place else f"Written{{{inner}}}"

    __repr__ = __str__

    @cached_property
    def counts(self) -> list[int]:
        """How many inputs are numbers of each of `ops`."""
        return [op.n_inputs - 2 for op in self.ops]

    def make_node(self, *inputs: Any) -> Apply:
        return Apply(self, inputs, [inputs[0].type.make_variable()])

    def split(self, inputs: Sequence[Any]) -> tuple[list[list[Any]], list[Any]]:
        """The numbers of each of `ops`, and what is behind them."""
        numbers, at = [], 1
        for n in self.counts:
            numbers.append(list(inputs[at : at + n]))
            at += n
        return numbers, list(inputs[at:])

    def _parts(self, inputs: Sequence[Any], call: Callable[[NativeOp, list[Any]], Any]) -> Any:
        """The views, each of the one before, the first input first."""
        parts = [inputs[0]]
        for op, numbers in zip(self.ops, self.split(inputs)[0], strict=True):
            parts.append(call(view_of(op), [parts[-1], *numbers]))
        return parts

    def expand(self, inputs: Sequence[Any], call: Callable[[NativeOp, list[Any]], Any]) -> Any:
        """The result by the functions that this stands for."""
        parts = self._parts(inputs, call)
        numbers, rest = self.split(inputs)
        found = rest[0] if self.source is None else call(self.source, [parts[-1], *rest])
        for op, part, mine in reversed(list(zip(self.ops, parts, numbers, strict=False))):
            found = call(op, [part, found, *mine])
        return found

    def grad(self, inputs: Variables, output_grads: Variables) -> Gradients:
        result = self.expand(inputs, lambda op, ins: op.make_node(*ins).outputs[0])
        return derivatives().through([result], output_grads, inputs)

    # In Python
    def perform(self, node: Apply, inputs: Values, output_storage: Storages) -> None:
        def call(op: NativeOp, values: list[Any]) -> Any:
            return op.call(values)

        rest = self.split(inputs)[1]
        if self.in_place and can_be_written(inputs[0]):
            part = self._parts(inputs, call)[-1]
            if self.source is not None or part.shape == rest[0].shape:
                self.writing.call([part, *rest])
                output_storage[0][0] = inputs[0]
                return
        output_storage[0][0] = self.expand(inputs, call)

    # In C
    def c_code(self, node: Apply, name: str, inputs: Names, outputs: Names, sub: Sub) -> str:
        parts = [f"{name}_part{k}" for k in range(len(self.ops) + 1)]
        temporary = [*parts, f"{name}_same"]
        leave = f"goto {name}_done;"
        lines = [
            f"Tensor {', '.join(f'{t} = NULL' for t in temporary)};",
            f"if ((pb_error = pb_written({inputs[0]}, {int(self.in_place)}, &{parts[0]}))) {{\n"
            f"{leave}\n}}",
        ]

        def call(op: NativeOp, variables: list[Any], given: list[str], out: str) -> None:
            types = [TensorType(), *(v.type for v in variables)]
            stand_in = Apply(op, [t.make_variable() for t in types], [TensorType()()])
            code = op.c_code(stand_in, name, given, [out], {"fail": f"{{ {leave} }}"})
            lines.append(f"{{\n{code}\n}}")

        variables, behind = self.split(node.inputs)
        numbers, rest = self.split(inputs)
        for k, op in enumerate(self.ops):
            call(view_of(op), variables[k], [parts[k], *numbers[k]], parts[k + 1])
        if self.source is None:
            check = f"pb_same_sizes({parts[-1]}, {rest[0]})"
            lines.append(f"if ((pb_error = {check})) {{\n{leave}\n}}")
        call(self.writing, behind, [parts[-1], *rest], f"{name}_same")
        lines += [f"{outputs[0]} = {parts[0]};", f"{parts[0]} = NULL;", f"{name}_done:;"]
        lines += [f"FreeTensor({t});" for t in temporary]
        lines.append(f"if (pb_error) {{\n{sub['fail']}\n}}")
        return "\n".join(lines)

    def c_support_code(self) -> Sequence[str]:
        return [_SUPPORT]

    def c_headers(self) -> Sequence[str]:
        return ["cgotorch.h", "<stdio.h>"]


def can_be_written(x: Any) -> bool:
    """Whether a tensor looks, once a part of it has been written, as the result in memory of its
    own does: that has the strides and the offset of its argument, unless elements of that overlap
    or are to be computed when they are read."""
    import torch

    if x.layout != torch.strided or x.is_nested or x.is_conj() or x.is_neg():
        return False
    return not any(s == 0 and n > 1 for s, n in zip(x.stride(), x.shape, strict=True))


_SUPPORT = r"""
/* Sets out to the tensor itself, if it may be written where it is, or else to a copy of all its
 * memory, of which out is the same part: pytorch_bridge/aliasing/partial_writes.py,
 * can_be_written. Besides, nobody else may have its memory. */
static const char *pb_written(Tensor x, int in_place, Tensor *out) {
  static const int64_t one = 1, zero = 0;
  TensorInfo info;
  Tensor all = NULL, copied = NULL;
  int plain;
  int64_t n;
  const char *error = GetTensorInfo(x, &info);
  if (error) return error;
  plain = (info.strides || !info.ndim) && !(info.flags & (TensorConj | TensorNeg | TensorNested));
  if (!(info.flags & TensorNonOverlapping))
    for (int64_t d = 0; plain && d < info.ndim; d++)
      plain = info.strides[d] != 0 || info.sizes[d] <= 1;
  if (in_place && plain && info.uses == 1 && info.storage_uses == 1) {
    *out = RetainTensor(x);
    return NULL;
  }
  n = info.itemsize ? info.storage_nbytes / info.itemsize : 0;
  if (!plain || ((info.flags & TensorNonOverlapping) && info.numel == n))
    return Clone(x, NULL, out);
  error = AsStrided(x, &n, 1, &one, 1, &zero, &all);
  if (!error) error = Clone(all, NULL, &copied);
  if (!error)
    error = AsStrided(copied, info.sizes, info.ndim, info.strides, info.ndim,
                      &info.storage_offset, out);
  FreeTensor(all);
  FreeTensor(copied);
  return error;
}

static int pb_list(char *text, size_t room, const TensorInfo *info) {
  int n = snprintf(text, room, "[");
  for (int64_t d = 0; d < info->ndim && n < (int)room - 24; d++)
    n += snprintf(text + n, room - n, "%s%lld", d ? ", " : "", (long long)info->sizes[d]);
  return n + snprintf(text + n, room - n, "]");
}

/* An error where what is written has not the sizes of the part that it is written into. */
static const char *pb_same_sizes(Tensor part, Tensor source) {
  TensorInfo a, b;
  char mine[200], theirs[200], text[600];
  int same;
  const char *error = GetTensorInfo(part, &a);
  if (!error) error = GetTensorInfo(source, &b);
  if (error) return error;
  same = a.ndim == b.ndim;
  for (int64_t d = 0; same && d < a.ndim; d++) same = a.sizes[d] == b.sizes[d];
  if (same) return NULL;
  pb_list(mine, sizeof mine, &a);
  pb_list(theirs, sizeof theirs, &b);
  snprintf(text, sizeof text, "what is written must have the sizes %s of the part that it is "
           "written into, got %s", mine, theirs);
  return cgotorch_make_error("RuntimeError", text);
}
"""
