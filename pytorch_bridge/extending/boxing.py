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
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from ..errors import BridgeTypeError, RegistrationError
from ..registry import Entry, Table
from ..types.base import Sub, Type
from . import types
from .builder import FORMAT_ERROR, STRINGS, CBuilder, Value
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
    is left out, and the exception goes nowhere, as in a __del__. An unboxer that asks another one
    (`c.unbox`) need not pass its cleanup on; it may call it, and then it runs there and only there.
    """

    value: Value
    is_error: Value | bool | None = None
    cleanup: Callable[[], None] | None = None


def box(ty: Spec) -> Callable[[_F], _F]:
    """Decorates what makes a Python object of a C value: `f(typ, val, c)` returns a PyObject *. One
    that the block owns, as calls of `c.pyapi` give it, is handed over; any other one, such as a
    member of the value, is retained, so that it needs no incref."""
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
    return [FORMAT_ERROR, STRINGS, _OBJECT]


class PyAPI:
    """Python's C API as the builder calls it. Objects that a call returns belong to the block,
    which gives them up; a failing call leaves with the exception that it has set."""

    long = "long"
    longlong = "int64_t"
    pyobj = "PyObject *"
    double = "double"

    def __init__(self, builder: CBuilder, boxes: BoxContext) -> None:
        self.builder, self._boxes = builder, boxes
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

    def to_native_value(self, typ: Type, obj: Value) -> NativeValue:
        """What `c.unbox` gives."""
        return self._boxes.unbox(typ, obj)

    def from_native_value(self, typ: Type, value: Value) -> Value:
        """What `c.box` gives."""
        return self._boxes.box(typ, value)

    # Numbers and strings
    def float_as_double(self, obj: Value) -> Value:
        return self._number(f"PyFloat_AsDouble({obj.text})", "double", "-1.0")

    def float_from_double(self, value: Any) -> Value:
        return self._object(f"PyFloat_FromDouble({self.builder.value(value).text})")

    number_float = float_from_double

    def long_as_longlong(self, obj: Value) -> Value:
        return self._number(f"PyLong_AsLongLong({obj.text})", "int64_t")

    long_as_ssize_t = number_as_ssize_t = long_as_longlong

    def long_as_ulonglong(self, obj: Value) -> Value:
        text = f"PyLong_AsUnsignedLongLong({obj.text})"
        return self._number(text, "uint64_t", "(uint64_t)-1")

    def long_from_longlong(self, value: Any) -> Value:
        return self._object(f"PyLong_FromLongLong({self.builder.value(value).text})")

    long_from_signed_int = long_from_ssize_t = long_from_longlong

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
        """A str of a `unicode_type`, or of a C string that ends with NUL."""
        v = self.builder.value(value)
        if v.ctype != "pb_string":
            return self._object(f"PyUnicode_FromString({v.text})")
        return self._object(
            f'PyUnicode_FromStringAndSize({v.text} ? {v.text} : "", pb_string_size({v.text}))'
        )

    def string_as_string(self, obj: Value) -> Value:
        """A str as the value of a `unicode_type`, which serves as a `const char *` of UTF-8 too. It
        is a copy, so that it lives as long as it is needed."""
        b = self.builder
        size, text = b.variable("Py_ssize_t"), b.variable("const char *")
        b.emit(f"{text.text} = PyUnicode_AsUTF8AndSize({obj.text}, &{size.text});")
        self._check(f"{text.text} == NULL")
        made = b.owned("pb_string")
        b.emit(f"{made.text} = pb_string_new({text.text}, {size.text});")
        with b.if_(Value(b, f"{made.text} == NULL", "bool")):
            b.emit("PyErr_NoMemory();")
            b.goto_fail()
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
        self.pyapi = PyAPI(builder, self)
        self.context = Context()
        self.cleanups: list[_Cleanup] = []  # of all that was unboxed, the first one first

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
        b = self.builder
        if not made.owned:  # an expression is evaluated once
            made = b.variable("PyObject *", made)
        wrong = f"{made.text} == NULL"
        with b.if_(Value(b, wrong if entry.own else f"{wrong} || PyErr_Occurred()", "bool")):
            why = f"the boxer {entry} returned NULL for a value of type {typ}, and set no exception"
            with b.if_(Value(b, "!PyErr_Occurred()", "bool")):
                self.pyapi.err_set_string("SystemError", why)
            b.goto_fail()
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
        if c == "pb_string" and isinstance(made.value, Value):
            made.value = self.builder.string(made.value)
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
        elif not entry.own:
            with self.builder.if_(Value(self.builder, "PyErr_Occurred()", "bool")):
                self.builder.goto_fail()
        if made.cleanup is None:
            return made
        if self.builder.in_loop:
            raise RegistrationError(
                f"{entry} has a cleanup, and is asked in a loop of another unboxer: the variables "
                "of one turn are gone in the next, so that nothing could clean up after it"
            )
        emit = made.cleanup.emit if isinstance(made.cleanup, _Cleanup) else made.cleanup
        for known in self.cleanups:  # handed on by the unboxer that asked for it
            if known.emit is emit:
                known.done = True
        made.cleanup = _Cleanup(emit)
        self.cleanups.append(made.cleanup)
        return made

    def unbox_value(self, typ: Type, obj: Value) -> Value:
        """The C value alone."""
        return self.unbox(typ, obj).value


class _Cleanup:
    """A cleanup that is emitted once: where an unboxer calls it, or at the end."""

    def __init__(self, emit: Callable[[], None]) -> None:
        self.emit, self.done = emit, False

    def __call__(self) -> None:
        if not self.done:
            self.done = True
            self.emit()


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

    def _unbox(self) -> tuple[CBuilder, NativeValue, list[_Cleanup]]:
        builder = CBuilder(f"{self.name}_u", self.fail, self.error)
        c = BoxContext(builder)
        given = c.unbox(self.typ, Value(builder, self.object, "PyObject *"))
        return builder, given, [f for f in c.cleanups if not f.done]

    def _cleaned(self) -> tuple[CBuilder, list[_Cleanup]] | None:
        """The unboxing's builder, where what it makes must live until the function ends, and what
        is to run then."""
        if find_unboxer(self.typ) is None:
            return None
        builder, _, cleanups = self._unbox()
        return (builder, cleanups) if cleanups else None

    @property
    def _begun(self) -> str:
        """Says whether the variable was unboxed: one that is computed never is."""
        return f"{self.name}_u_begun"

    def declare(self) -> str:
        c = self.model.c_type
        text = f"{c}{'' if c.endswith('*') else ' '}{self.name};"
        found = self._cleaned()
        if found is None:
            return text
        kept = f"int {self._begun} = 0;\n{found[0].declarations()}"
        return f"{text}\n#ifdef Py_PYTHON_H\n{kept}\n#endif"

    def extract(self) -> str:
        builder, given, cleanups = self._unbox()
        builder.move_to(self.name, given.value, self.model.c_type)
        first = self.model.clear(self.name)
        if cleanups:
            return f"{first}\n{self._begun} = 1;\n{builder.statements(free=False)}"
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
        found = self._cleaned()
        if found is None:
            return text
        builder, cleanups = found

        def each(cleanup: _Cleanup) -> str:
            return builder.apart(cleanup)

        after = "\n".join(each(f) for f in reversed(cleanups))
        ending = "\n".join(part for part in (builder.frees(), f"{self._begun} = 0;") if part)
        freed = f"if ({self._begun}) {{\n{_SAVE}\n{after}\n{_RESTORE}\n{ending}\n}}"
        return f"#ifdef Py_PYTHON_H\n{freed}\n#endif\n{text}"


def used_definitions(typ: Type) -> list[str]:
    """The C definitions of all structs that the type's boxer and unboxer make on the way."""
    models: dict[str, Any] = {}
    for entry, arguments in ((find_unboxer(typ), "PyObject *"), (find_boxer(typ), None)):
        if entry is None:
            continue
        builder = CBuilder("trial")
        c = BoxContext(builder)
        given = Value(builder, "trial", arguments or default_manager.lookup(typ).c_type)
        with suppress(Exception):  # it is said where it is needed
            (c.unbox if arguments else c.box)(typ, given)
        models.update(builder.structs)
    return [text for model in models.values() for text in model.definitions()]


types.above.used_definitions = used_definitions
types.above.support_code = support_code
types.above.boundary = Boundary
