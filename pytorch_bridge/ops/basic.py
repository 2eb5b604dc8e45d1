"""Ops that are about any value: copies, views, shapes, and checks of them.

Each has C code for a type once that is registered, for instance

    register_view_op_c_code(MyType, "%(oname)s = %(iname)s; ...", version=(1,))

where `%(iname)s` and `%(oname)s` are the C variables of the input and the output and `%(fail)s` is
what leaves after an error. For a type whose class has no code of its own, that of the nearest base
class is taken.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..errors import BridgeTypeError, MissingMethodError
from ..graph.basic import Apply, Variable
from ..registry import Table
from ..types import SchemaType, TensorType, Type, schema_type
from ..types.base import Sub, form_of, generic
from ..types.containers import ListArg, Optional
from ..types.numbers import NumberArg
from ..types.schema_types import Plain, describe
from ..types.tensor import TensorArg, misfit
from ..types.type_rules import Kinds, kinds_of, nearest
from .native import constant
from .op import Gradients, Names, Op, Storages, Values, Variables, closed

# By the class of a type, or those of a container and its element: C code, perhaps more, a version.
_deep_copy = Table("register_deep_copy_op_c_code", unique=True, resolved=False)
_view = Table("register_view_op_c_code", unique=True, resolved=False)
_shape = Table("register_shape_c_code", unique=True, resolved=False)
_shape_i = Table("register_shape_i_c_code", unique=True, resolved=False)

Kind = type | Kinds


def register_deep_copy_op_c_code(
    kind: Kind, code: str | Callable[[Type, str, str, str], str], version: Sequence[Any] = ()
) -> None:
    """The C code of DeepCopyOp for a class of types: text, or a function of the type, the input's
    name, the output's and the code that fails, which returns it."""
    _add(_deep_copy, kind, code, version)


def register_view_op_c_code(
    kind: Kind, code: str | Callable[[Type, str, str, str], str], version: Sequence[Any] = ()
) -> None:
    """The C code of ViewOp for a class of types."""
    _add(_view, kind, code, version)


def register_shape_c_code(kind: Kind, code: str, version: Sequence[Any] = ()) -> None:
    """The C code of Shape for a class of types. The output is a list of integers: set
    `%(oname)s_len`, and `%(oname)s` to malloced memory."""
    _add(_shape, kind, code, version)


def register_shape_i_c_code(
    kind: Kind, code: str, check_input: str, version: Sequence[Any] = ()
) -> None:
    """The C code of Shape_i for a class of types; `%(i)s` is the dimension, and check_input the
    code that checks that there is such a one. The output is an int64_t."""
    _add(_shape_i, kind, code, check_input, version)


def _add(table: Table, kind: Kind, *entry: Any) -> None:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if not all(isinstance(k, type) for k in kinds):
        raise BridgeTypeError(f"{table.what}: expected a class of types, got {kind!r}")
    table.add(kinds, entry, subject=_shown(kinds))


def _shown(kinds: Kinds) -> str:
    return " of ".join(k.__qualname__ for k in kinds)


def _code_for(table: Table, t: Type) -> tuple[Any, ...] | None:
    """The entry for a type, of the nearest class whose values look the same in C."""
    for kinds in nearest(kinds_of(t)):
        found = table.one(kinds)
        if found is not None:
            return found if form_of(type(t)) is form_of(kinds[0]) else None
    return None


def _filled(code: str, inputs: Names, outputs: Names, sub: Sub, **more: Any) -> str:
    return code % {**sub, "iname": inputs[0], "oname": outputs[0], **more}


class _OnOne(Op):
    """An op on one value of any type."""

    __props__: tuple[str, ...] = ()
    only_calls = True
    table: Table

    def _variable(self, x: Any) -> Variable:
        return x if isinstance(x, Variable) else constant(x)

    def c_code(self, node: Apply, name: str, inputs: Names, outputs: Names, sub: Sub) -> str:
        code, *_ = self.code_for(node.inputs[0].type)
        if callable(code):  # that depends on the type, not only on its class
            return str(code(node.inputs[0].type, inputs[0], outputs[0], sub["fail"]))
        return _filled(code, inputs, outputs, sub)

    def code_for(self, t: Type) -> tuple[Any, ...]:
        entry = _code_for(self.table, t)
        if entry is None:
            raise MissingMethodError(
                f"{self} has no C code for {type(t).__name__}: register it with {self.table.what}"
            )
        return entry

    def c_code_cache_version_apply(self, node: Apply) -> tuple[Any, ...]:
        """The version of the code for this node's type."""
        entry = _code_for(self.table, node.inputs[0].type)
        return () if entry is None or not entry[-1] else (1, *entry[-1])

    def c_needs_gil(self, node: Apply) -> bool:
        return not isinstance(node.inputs[0].type, SchemaType)


class _Same(_OnOne):
    """An op whose output has the type and the value of its input."""

    def make_node(self, x: Any) -> Apply:
        x = self._variable(x)
        return Apply(self, [x], [x.type.make_variable()])

    def grad(self, inputs: Variables, output_grads: Variables) -> Gradients:
        return list(output_grads)


@closed
class DeepCopyOp(_Same):
    """A copy that shares no memory with its input."""

    table = _deep_copy

    def perform(self, node: Apply, inputs: Values, output_storage: Storages) -> None:
        output_storage[0][0] = _copied(inputs[0])


def _copied(value: Any) -> Any:
    if hasattr(value, "detach") and hasattr(value, "clone"):  # a torch.Tensor
        return value.detach().clone()
    if made_of_items(value):
        return remade(value, map(_copied, value))
    return copy.deepcopy(value)


def made_of_items(value: Any) -> bool:
    """Whether a value is a list or a tuple, perhaps with names, and nothing more."""
    return type(value) in (list, tuple) or (isinstance(value, tuple) and hasattr(value, "_fields"))


def remade(value: Any, items: Iterable[Any]) -> Any:
    """A list or a tuple of the same class, of other items."""
    make = getattr(type(value), "_make", type(value))
    return make(items)


@closed
class ViewOp(_Same):
    """Its input, as another variable in the same memory."""

    table = _view
    view_map = {0: [0]}  # noqa: RUF012

    def perform(self, node: Apply, inputs: Values, output_storage: Storages) -> None:
        output_storage[0][0] = inputs[0]


@closed
class AsObject(Op):
    """Its input as a Python object, for what takes any. It runs in Python, where values of all
    types are objects."""

    __props__ = ()
    view_map = {0: [0]}  # noqa: RUF012

    def make_node(self, x: Any) -> Apply:
        return Apply(self, [x], [generic.make_variable()])

    def perform(self, node: Apply, inputs: Values, output_storage: Storages) -> None:
        output_storage[0][0] = inputs[0]


@closed
class Shape(_OnOne):
    """The sizes of what has a `shape`, as a list of integers."""

    table = _shape

    def make_node(self, x: Any) -> Apply:
        return Apply(self, [self._variable(x)], [schema_type("int[]").make_variable()])

    def perform(self, node: Apply, inputs: Values, output_storage: Storages) -> None:
        output_storage[0][0] = [int(d) for d in _shape_of(self, inputs[0])]

    def trace(self, node: Apply, inputs: Sequence[Any]) -> list[Any]:
        return [list(_shape_of(self, inputs[0]))]


@closed
class Shape_i(_OnOne):
    """One size of what has a `shape`: an integer."""

    __props__ = ("i",)
    table = _shape_i

    def __init__(self, i: int) -> None:
        if isinstance(i, bool) or not isinstance(i, int) or i < 0:
            raise BridgeTypeError(f"Shape_i needs a dimension of 0 or more, got {i!r}")
        self.i = i

    def make_node(self, x: Any) -> Apply:
        x = self._variable(x)
        ndim = getattr(x.type, "ndim", None)
        if isinstance(ndim, int) and self.i >= ndim:
            raise BridgeTypeError(f"{self} of {x}: {x.type} has {ndim} dimensions")
        return Apply(self, [x], [schema_type("int").make_variable()])

    def perform(self, node: Apply, inputs: Values, output_storage: Storages) -> None:
        shape = _shape_of(self, inputs[0])
        if self.i >= len(shape):
            raise BridgeTypeError(f"{self}: {describe(inputs[0])} has {len(shape)} dimensions")
        output_storage[0][0] = int(shape[self.i])

    def trace(self, node: Apply, inputs: Sequence[Any]) -> list[Any]:
        return [_shape_of(self, inputs[0])[self.i]]

    def c_code(self, node: Apply, name: str, inputs: Names, outputs: Names, sub: Sub) -> str:
        code, check_input, _ = self.code_for(node.inputs[0].type)
        return _filled(check_input + "\n" + code, inputs, outputs, sub, i=self.i)


def _shape_of(op: Op, value: Any) -> Sequence[int]:
    shape = getattr(value, "shape", None)
    if shape is None:
        raise BridgeTypeError(f"{op}: {describe(value)} has no shape")
    return shape


@closed
class After(_OnOne):
    """Its first input, once the second, which may be a check, has been computed."""

    table = _view
    view_map = {0: [0]}  # noqa: RUF012

    def make_node(self, x: Any, other: Any) -> Apply:
        return Apply(self, [x, other], [x.type.make_variable()])

    def perform(self, node: Apply, inputs: Values, output_storage: Storages) -> None:
        output_storage[0][0] = inputs[0]

    def grad(self, inputs: Variables, output_grads: Variables) -> Gradients:
        return [output_grads[0], None]


def after(grads: Gradients, checked: Variables) -> Gradients:
    """Gradients through a check: one that is computed alone is checked, too."""
    op = After()
    pairs = zip(grads, checked, strict=True)
    return [None if g is None else op.make_node(g, v).outputs[0] for g, v in pairs]


@closed
class SpecifyShape(Op):
    """A tensor that has been checked at run time to have these sizes; None is any."""

    __props__ = ("sizes",)
    only_calls = True
    view_map = {0: [0]}  # noqa: RUF012

    def __init__(self, sizes: Sequence[int | None]) -> None:
        self.sizes = tuple(sizes)

    def make_node(self, x: Any) -> Apply:
        x = x if isinstance(x, Variable) else constant(x)
        if not isinstance(x.type, TensorType):
            raise BridgeTypeError(f"{self} needs a tensor, got {x} of type {x.type}")
        known = x.type.shape or (None,) * len(self.sizes)
        if len(known) != len(self.sizes) or any(
            None not in (a, b) and a != b for a, b in zip(known, self.sizes, strict=True)
        ):
            raise BridgeTypeError(f"{self}: {x} of type {x.type} cannot have these sizes")
        shape = [b if a is None else a for a, b in zip(known, self.sizes, strict=True)]
        return Apply(self, [x], [x.type.clone(shape=shape, name=None).make_variable()])

    def perform(self, node: Apply, inputs: Values, output_storage: Storages) -> None:
        (x,) = inputs
        fits = x.dim() == len(self.sizes) and all(
            a is None or a == b for a, b in zip(self.sizes, x.shape, strict=True)
        )
        if not fits:
            raise BridgeTypeError(
                f"SpecifyShape: {node.inputs[0]} has the shape {tuple(x.shape)}, "
                f"expected {self.sizes}{misfit(self.sizes, x.shape)}"
            )
        output_storage[0][0] = x

    def L_op(self, inputs: Variables, outputs: Variables, output_grads: Gradients) -> Gradients:
        return after(output_grads, outputs)

    def c_code(self, node: Apply, name: str, inputs: Names, outputs: Names, sub: Sub) -> str:
        if form_of(type(node.inputs[0].type)) is not form_of(TensorType):
            raise MissingMethodError(
                f"{self} has no C code for {type(node.inputs[0].type).__name__}, whose values are "
                "no tensors in C"
            )
        (x,), (z,) = inputs, outputs
        sizes = ", ".join("-1" if d is None else f"INT64_C({d})" for d in self.sizes) or "0"
        return f"""{{
  static const int64_t sizes[] = {{{sizes}}};
  TensorInfo info;
  int fits;
  int64_t i = 0;
  if ((pb_error = GetTensorInfo({x}, &info))) {{
    {sub["fail"]}
  }}
  fits = info.ndim == {len(self.sizes)};
  while (fits && i < info.ndim && (sizes[i] < 0 || info.sizes[i] == sizes[i])) i++;
  if (!fits || i < info.ndim) {{
    pb_error = pb_wrong_shape(&info, "{self.sizes}", fits ? i : -1, sizes);
    {sub["fail"]}
  }}
  FreeTensor({z});
  {z} = RetainTensor({x});
}}"""

    def c_support_code(self) -> Sequence[str]:
        return [_WRONG_SHAPE]

    def c_headers(self) -> Sequence[str]:
        return ["cgotorch.h", "<stdio.h>", "<stdlib.h>", "<string.h>"]

    def c_needs_gil(self, node: Apply) -> bool:
        return False

    def c_code_cache_version(self) -> tuple[Any, ...]:
        return (2,)


_WRONG_SHAPE = r"""
/* The message for a tensor of another shape, to be freed with FreeString. */
static const char *pb_wrong_shape(const TensorInfo *info, const char *expected, int64_t dim,
                                  const int64_t *sizes) {
  char text[640];
  int n = snprintf(text, sizeof text, "SpecifyShape: got the shape (");
  for (int64_t i = 0; i < info->ndim && n < 300; i++)
    n += snprintf(text + n, sizeof text - n, i ? ", %lld" : "%lld", (long long)info->sizes[i]);
  n += snprintf(text + n, sizeof text - n, "), expected %.200s", expected);
  if (dim >= 0)
    snprintf(text + n, sizeof text - n, ": dimension %d must be %lld, got %lld", (int)dim,
             (long long)sizes[dim], (long long)info->sizes[dim]);
  return cgotorch_make_error("TypeError", text);
}
"""

deep_copy_op = DeepCopyOp()
view_op = ViewOp()
shape = Shape()


def shape_i(x: Variable, i: int) -> Any:
    """One size of a variable: a number where its type knows it, else a variable."""
    known = getattr(x.type, "shape", None)
    if known is not None and i < len(known) and known[i] is not None:
        return known[i]
    return Shape_i(i)(x)


def specify_shape(x: Variable, sizes: Sequence[int | None]) -> Any:
    """x with a check of its sizes at run time; x itself where its type says it all."""
    node = SpecifyShape(sizes).make_node(x)
    return x if node.outputs[0].type == x.type else node.outputs[0]


_RETAIN = "FreeTensor(%(oname)s);\n%(oname)s = RetainTensor(%(iname)s);"
_INFO = "TensorInfo info;\nif ((pb_error = GetTensorInfo(%(iname)s, &info))) {\n%(fail)s\n}\n"

register_deep_copy_op_c_code(
    TensorType,
    """{
  Tensor copy = NULL;
  if ((pb_error = Clone(%(iname)s, NULL, &copy))) {
    %(fail)s
  }
  FreeTensor(%(oname)s);
  %(oname)s = copy;
}""",
    version=(1,),
)
register_view_op_c_code(TensorType, _RETAIN, version=(1,))
register_shape_i_c_code(
    TensorType,
    "{\n" + _INFO + "%(oname)s = info.sizes[%(i)s];\n}",
    """{
  TensorInfo info;
  if ((pb_error = GetTensorInfo(%(iname)s, &info))) {
    %(fail)s
  }
  if (info.ndim <= %(i)s) {
    pb_error = cgotorch_make_error("TypeError", "Shape_i: the tensor has no dimension %(i)s");
    %(fail)s
  }
}""",
    version=(1,),
)
register_shape_c_code(
    TensorType,
    "{\n"
    + _INFO
    + """int64_t *sizes = (int64_t *)malloc((info.ndim + 1) * sizeof *sizes);
  if (sizes == NULL) {
    pb_error = cgotorch_make_error("MemoryError", "Shape");
    %(fail)s
  }
  for (int64_t i = 0; i < info.ndim; i++) sizes[i] = info.sizes[i];
  free(%(oname)s);
  %(oname)s = sizes;
  %(oname)s_len = info.ndim;
}""",
    version=(1,),
)
for _plain in (_deep_copy, _view):
    _add(_plain, Plain, "%(oname)s = %(iname)s;", (1,))
    _add(_plain, (Optional, Plain), "%(oname)s = %(iname)s;", (1,))
_copy_list = """{
  size_t size = (%(iname)s_len + 1) * sizeof *%(iname)s;
  int64_t *copy = (int64_t *)malloc(size);
  if (copy == NULL) {
    pb_error = cgotorch_make_error("MemoryError", "a list");
    %(fail)s
  }
  if (%(iname)s_len) memcpy(copy, %(iname)s, %(iname)s_len * sizeof *%(iname)s);
  free(%(oname)s);
  %(oname)s = copy;
  %(oname)s_len = %(iname)s_len;
}"""
for _plain in (_deep_copy, _view):
    _add(_plain, (ListArg, NumberArg), _copy_list, (1,))
    _add(_plain, (Optional, ListArg, NumberArg), _copy_list, (1,))
_copy_tensors = """{
  Tensor *copy = (Tensor *)calloc(%(iname)s_len + 1, sizeof *copy);
  if (copy == NULL) {
    pb_error = cgotorch_make_error("MemoryError", "a list");
    %(fail)s
  }
  for (int64_t i = 0; i < %(iname)s_len; i++) {
    if (%(iname)s[i] && (pb_error = Clone(%(iname)s[i], NULL, &copy[i]))) {
      FreeTensors(copy, i);
      free(copy);
      %(fail)s
    }
  }
  FreeTensors(%(oname)s, %(oname)s_len);
  FreeArray(%(oname)s);
  %(oname)s = copy;
  %(oname)s_len = %(iname)s_len;
}"""
_add(_deep_copy, (ListArg, TensorArg), _copy_tensors, (1,))
_add(_deep_copy, (ListArg, Optional), _copy_tensors, (1,))
