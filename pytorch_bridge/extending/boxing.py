"""The way of values from Python to C and back.

    @unbox(IntervalType)
    def unbox_interval(typ, obj, c):
        interval = c.struct(typ)
        interval.lo = c.pyapi.float_as_double(c.pyapi.object_getattr_string(obj, "lo"))
        interval.hi = c.pyapi.float_as_double(c.pyapi.object_getattr_string(obj, "hi"))
        return NativeValue(interval._getvalue())

    @box(IntervalType)
    def box_interval(typ, val, c):
        interval = c.struct(typ, val)
        cls = c.pyapi.unserialize(c.pyapi.serialize_object(Interval))
        lo = c.pyapi.float_from_double(interval.lo)
        hi = c.pyapi.float_from_double(interval.hi)
        return c.pyapi.call_function_objargs(cls, (lo, hi))

A registration for a class of types holds for its subclasses; the nearest class wins, an instance
before its class. Every call of `c.pyapi` that fails leaves at once, with the exception that Python
has set, and everything that the block owns is given up: nothing has to be checked or freed by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..errors import BridgeTypeError, RegistrationError
from ..registry import Entry, Table
from ..types.base import Sub, Type
from . import types
from .builder import FORMAT_ERROR, CBuilder, Value
from .context import Context, StructProxy
from .models import default_manager
from .selecting import Spec, check, select, show

_F = TypeVar("_F", bound=Callable[..., Any])
_boxers = Table("boxer", unique=True)
_unboxers = Table("unboxer", unique=True)


class BoxingError(BridgeTypeError):
    """A type has no way to Python, or from there."""


@dataclass
class NativeValue:
    """What unboxing gives.

    value is the C value. is_error, if given, is a bool of C: where it holds, the exception that
    Python has set is raised, and value is not used. cleanup, if given, is called to emit what runs
    when the function has ended, whether it succeeded or not; it sees the variables that unboxing
    made, which are zero where unboxing did not get as far. Where a call in it fails, the rest of it
    is left out, and the exception goes nowhere, as in a __del__.
    """

    value: Value
    is_error: Value | bool | None = None
    cleanup: Callable[[], None] | None = None


def box(ty: Spec) -> Callable[[_F], _F]:
    """Decorates what makes a Python object of a C value: `f(typ, val, c)` returns a PyObject * of
    its own."""
    return _register(_boxers, ty)


def unbox(ty: Spec) -> Callable[[_F], _F]:
    """Decorates what makes a C value of a Python object: `f(typ, obj, c)` returns a NativeValue."""
    return _register(_unboxers, ty)


def _register(table: Table, ty: Spec) -> Callable[[_F], _F]:
    specs = check((ty,), table.what)

    def decorate(f: _F) -> _F:
        if not callable(f):
            raise RegistrationError(f"a {table.what} is a function, not {f!r}")
        table.add("py", f, f, show(ty), specs)
        return f

    return decorate


def find_boxer(t: Type) -> Entry | None:
    return select(_boxers.get("py"), (t,), "boxing")


def find_unboxer(t: Type) -> Entry | None:
    return select(_unboxers.get("py"), (t,), "unboxing")


# Objects of Python that C refers to, by a token that is the same in each process that writes the
# same C.
_objects: dict[str, Any] = {}


def _token(thing: Any) -> str:
    if type(thing) in (str, int, bool, float, bytes, tuple):
        # Equal values need not be one object; repr tells apart what == does not.
        token = f"{type(thing).__name__}:{thing!r}"
        if type(thing) is not tuple or _plain(thing):
            _objects.setdefault(token, thing)
            return token
    module = getattr(thing, "__module__", None) or type(thing).__module__
    name = getattr(thing, "__qualname__", None) or type(thing).__qualname__
    stem, i = f"{module}:{name}", 0
    while True:
        token = f"{stem}#{i}" if i else stem
        if _objects.setdefault(token, thing) is thing:
            return token
        i += 1


def _plain(values: tuple[Any, ...]) -> bool:
    """Whether repr says all of a tuple."""
    return all(
        type(v) in (str, int, bool, float, bytes) or (type(v) is tuple and _plain(v))
        for v in values
    )


def object_of_token(token: str) -> Any:
    """The object that compiled code asks for."""
    return _objects[token]


_OBJECT = """\
#ifdef Py_PYTHON_H
/* The Python object that the token stands for, kept in *slot; a borrowed reference. */
static PyObject *pb_object(const char *token, PyObject **slot) {
  PyObject *module;
  if (*slot) return *slot;
  module = PyImport_ImportModule("pytorch_bridge.extending.boxing");
  if (module == NULL) return NULL;
  *slot = PyObject_CallMethod(module, "object_of_token", "s", token);
  Py_DECREF(module);
  return *slot;
}
#endif
"""


def support_code() -> list[str]:
    """What the C of all types with boxes and unboxes needs."""
    return [FORMAT_ERROR, _OBJECT]


class PyAPI:
    """Python's C API as the builder calls it. Objects that a call returns belong to the block,
    which gives them up; a failing call leaves with the exception that it has set."""

    long = "long"
    longlong = "int64_t"
    pyobj = "PyObject *"
    double = "double"

    def __init__(self, builder: CBuilder) -> None:
        self.builder = builder
        builder.calls_python = True

    def _object(self, text: str) -> Value:
        b = self.builder
        made = b.owned("PyObject *")
        b.emit(f"{made.text} = {text};")
        self._check(f"{made.text} == NULL")
        return made

    def _check(self, failed: str) -> None:
        with self.builder.if_(Value(self.builder, failed, "bool")):
            self.builder.goto_fail()

    def _number(self, text: str, ctype: str, error: str = "-1") -> Value:
        made = self.builder.variable(ctype)
        self.builder.emit(f"{made.text} = {text};")
        self._check(f"{made.text} == {error} && PyErr_Occurred()")
        return made

    # Objects
    def object_getattr_string(self, obj: Value, name: str) -> Value:
        """obj.name"""
        return self._object(f"PyObject_GetAttrString({obj.text}, {self.builder.value(name).text})")

    def object_setattr_string(self, obj: Value, name: str, value: Value) -> None:
        """obj.name = value"""
        text = self.builder.value(name).text
        self._check(f"PyObject_SetAttrString({obj.text}, {text}, {value.text}) < 0")

    def object_getitem(self, obj: Value, key: Value) -> Value:
        """obj[key]"""
        return self._object(f"PyObject_GetItem({obj.text}, {key.text})")

    def call_function_objargs(self, function: Value, args: Sequence[Value]) -> Value:
        """function(*args)"""
        values = "".join(f"{a.text}, " for a in args)
        return self._object(f"PyObject_CallFunctionObjArgs({function.text}, {values}NULL)")

    def call_method(self, obj: Value, name: str, args: Sequence[Value] = ()) -> Value:
        """obj.name(*args)"""
        return self.call_function_objargs(self.object_getattr_string(obj, name), args)

    def object_istrue(self, obj: Value) -> Value:
        """bool(obj)"""
        made = self.builder.variable("int")
        self.builder.emit(f"{made.text} = PyObject_IsTrue({obj.text});")
        self._check(f"{made.text} < 0")
        return self.builder.cast(made, "bool")

    def object_type_is(self, obj: Value, cls: Value) -> Value:
        """type(obj) is cls"""
        text = f"((PyObject *)Py_TYPE({obj.text}) == {cls.text})"
        return Value(self.builder, text, "bool")

    def object_isinstance(self, obj: Value, cls: Value) -> Value:
        """isinstance(obj, cls)"""
        made = self.builder.variable("int")
        self.builder.emit(f"{made.text} = PyObject_IsInstance({obj.text}, {cls.text});")
        self._check(f"{made.text} < 0")
        return self.builder.cast(made, "bool")

    def serialize_object(self, thing: Any) -> str:
        """A name by which C can ask for any Python object: give it to unserialize."""
        return _token(thing)

    def unserialize(self, token: str) -> Value:
        """The object that serialize_object was given."""
        b = self.builder
        slot = b.static("PyObject *")
        return self._object(f"Py_XNewRef(pb_object({b.value(token).text}, &{slot.text}))")

    def make_none(self) -> Value:
        """None"""
        return self._object("Py_NewRef(Py_None)")

    # Numbers and strings
    def float_as_double(self, obj: Value) -> Value:
        return self._number(f"PyFloat_AsDouble({obj.text})", "double", "-1.0")

    def float_from_double(self, value: Any) -> Value:
        return self._object(f"PyFloat_FromDouble({self.builder.value(value).text})")

    number_float = float_from_double

    def long_as_longlong(self, obj: Value) -> Value:
        return self._number(f"PyLong_AsLongLong({obj.text})", "int64_t")

    def long_as_ulonglong(self, obj: Value) -> Value:
        text = f"PyLong_AsUnsignedLongLong({obj.text})"
        return self._number(text, "uint64_t", "(uint64_t)-1")

    def long_from_longlong(self, value: Any) -> Value:
        return self._object(f"PyLong_FromLongLong({self.builder.value(value).text})")

    long_from_signed_int = long_from_longlong

    def long_from_ulonglong(self, value: Any) -> Value:
        return self._object(f"PyLong_FromUnsignedLongLong({self.builder.value(value).text})")

    long_from_unsigned_int = long_from_ulonglong

    def bool_from_long(self, value: Any) -> Value:
        return self._object(f"PyBool_FromLong({self.builder.value(value).text})")

    bool_from_bool = bool_from_long

    def complex_from_doubles(self, real: Any, imag: Any) -> Value:
        b = self.builder
        text = f"PyComplex_FromDoubles({b.value(real).text}, {b.value(imag).text})"
        return self._object(text)

    def string_from_string(self, value: Any) -> Value:
        return self._object(f"PyUnicode_FromString({self.builder.value(value).text})")

    def string_as_string(self, obj: Value) -> Value:
        """The UTF-8 of a str; it is valid while the object lives."""
        made = self.builder.variable("const char *")
        self.builder.emit(f"{made.text} = PyUnicode_AsUTF8({obj.text});")
        self._check(f"{made.text} == NULL")
        return made

    # Tuples
    def tuple_pack(self, items: Sequence[Value]) -> Value:
        values = "".join(f", {i.text}" for i in items)
        return self._object(f"PyTuple_Pack({len(items)}{values})")

    def tuple_size(self, obj: Value) -> Value:
        return self._number(f"PyTuple_Size({obj.text})", "int64_t")

    def tuple_getitem(self, obj: Value, i: int) -> Value:
        """obj[i]; a borrowed reference."""
        made = self.builder.variable("PyObject *")
        self.builder.emit(f"{made.text} = PyTuple_GetItem({obj.text}, {i});")
        self._check(f"{made.text} == NULL")
        return made

    # References and errors
    def incref(self, obj: Value) -> None:
        self.builder.emit(f"Py_XINCREF({obj.text});")

    def decref(self, obj: Value) -> None:
        """Gives an object up before the block ends."""
        self.builder.emit(f"Py_CLEAR({obj.text});")

    def err_occurred(self) -> Value:
        """The exception that is set, or NULL."""
        return Value(self.builder, "PyErr_Occurred()", "PyObject *")

    def err_clear(self) -> None:
        self.builder.emit("PyErr_Clear();")

    def err_set_string(self, kind: str, message: str) -> None:
        """Raises a built-in exception: `c.pyapi.err_set_string("PyExc_TypeError", "...")`."""
        kind = kind if kind.startswith("PyExc_") else f"PyExc_{kind}"
        self.builder.emit(f"PyErr_SetString({kind}, {self.builder.value(message).text});")


class BoxContext:
    """The `c` of box and unbox: `builder`, `pyapi`, `context`, and the boxes of other types."""

    def __init__(self, builder: CBuilder) -> None:
        self.builder = builder
        self.pyapi = PyAPI(builder)
        self.context = Context()

    def struct(self, typ: Type, value: Value | None = None) -> StructProxy:
        """A struct whose members are attributes: a new one, or a copy of value."""
        return StructProxy(self.context, self.builder, typ, value)

    def box(self, typ: Type, value: Value) -> Value:
        """A Python object for a value of any type that has a boxer."""
        entry = find_boxer(typ)
        if entry is None:
            raise BoxingError(
                f"a value of type {typ} cannot be returned to Python: no @box is registered for "
                f"{type(typ).__name__}"
            )
        made = entry.value(typ, value, self)
        if not isinstance(made, Value) or made.ctype != "PyObject *":
            raise RegistrationError(f"{entry} must return a PyObject *, not {made!r}")
        return made

    def unbox(self, typ: Type, obj: Value) -> NativeValue:
        """The C value of a Python object of any type that has an unboxer."""
        entry = find_unboxer(typ)
        if entry is None:
            raise BoxingError(
                f"a value of type {typ} cannot be passed from Python: no @unbox is registered for "
                f"{type(typ).__name__}"
            )
        made = entry.value(typ, obj, self)
        if not isinstance(made, NativeValue):
            raise RegistrationError(f"{entry} must return a NativeValue, not {made!r}")
        c = default_manager.lookup(typ).c_type
        if not isinstance(made.value, Value) or made.value.ctype != c:
            raise RegistrationError(
                f"{entry} must give a {c}, which is what {typ} is in C, not {made.value!r}"
            )
        if isinstance(made.is_error, Value):
            error = made.is_error
            text = f"{error.text} != NULL" if error.ctype.endswith("*") else error.text
            with self.builder.if_(Value(self.builder, text, "bool")):
                self.builder.goto_fail()
        elif made.is_error:
            self.builder.goto_fail()
        return made

    def unbox_value(self, typ: Type, obj: Value) -> Value:
        """The C value alone."""
        return self.unbox(typ, obj).value


# What runs while an exception is set must not see it.
_SAVE = "{\nPyObject *pb_type, *pb_value, *pb_trace;\nPyErr_Fetch(&pb_type, &pb_value, &pb_trace);"
_RESTORE = "if (PyErr_Occurred()) PyErr_Clear();\nPyErr_Restore(pb_type, pb_value, pb_trace);\n}"


class Boundary:
    """The C fragments for one variable, which the linker asks its type for."""

    def __init__(self, typ: Type, name: str, sub: Sub) -> None:
        self.typ, self.name = typ, name
        self.model = default_manager.lookup(typ)
        self.fail = sub.get("fail", "goto fail;")
        self.error = sub.get("error", "pb_error")
        self.object = f"py_{name}"

    def _unbox(self) -> tuple[CBuilder, NativeValue]:
        builder = CBuilder(f"{self.name}_u", self.fail, self.error)
        given = BoxContext(builder).unbox(self.typ, Value(builder, self.object, "PyObject *"))
        return builder, given

    def _needs_cleanup(self) -> CBuilder | None:
        """The unboxing's builder, where what it makes must live until the function ends."""
        if find_unboxer(self.typ) is None:
            return None
        builder, given = self._unbox()
        return builder if given.cleanup is not None else None

    def declare(self) -> str:
        c = self.model.c_type
        text = f"{c}{'' if c.endswith('*') else ' '}{self.name};"
        builder = self._needs_cleanup()
        if builder is None:
            return text
        return f"{text}\n#ifdef Py_PYTHON_H\n{builder.declarations()}\n#endif"

    def extract(self) -> str:
        builder, given = self._unbox()
        kept = given.cleanup is not None
        builder.move_to(self.name, given.value, self.model.c_type)
        first = self.model.clear(self.name)
        if kept:
            return f"{first}\n{builder.statements(free=False)}"
        return f"{first}\n{builder.block()}"

    def sync(self) -> str:
        builder = CBuilder(f"{self.name}_b", self.fail, self.error)
        c = BoxContext(builder)
        made = c.box(self.typ, Value(builder, self.name, self.model.c_type))
        old = builder.variable("PyObject *", Value(builder, self.object, "PyObject *"))
        builder.move_to(self.object, made)
        builder.emit(f"Py_XDECREF({old.text});")
        return builder.block()

    def cleanup(self) -> str:
        text = self.model.release(self.name)
        if find_unboxer(self.typ) is None:
            return text
        builder, given = self._unbox()
        if given.cleanup is None:
            return text
        after = f"{_SAVE}\n{builder.apart(given.cleanup)}\n{_RESTORE}"
        freed = "\n".join(part for part in (after, builder.frees()) if part)
        return f"#ifdef Py_PYTHON_H\n{freed}\n#endif\n{text}"


types.above.support_code = support_code
types.above.boundary = Boundary
