"""A type of Python floats and ops on it, as an author outside the package writes them."""

# ruff: noqa: C408, UP031  # the first type stands here as the documentation has it

from __future__ import annotations

import sys
import threading
import types
from types import SimpleNamespace

from pytorch_bridge.graph.basic import Apply
from pytorch_bridge.link.c_linker import CLinker
from pytorch_bridge.ops.op import Op
from pytorch_bridge.types.base import Type


class Double(Type):
    """The type of the documentation on C support for types, as it stands there."""

    def filter(self, x, strict=False, allow_downcast=None):
        if strict and not isinstance(x, float):
            raise TypeError("Expected a float!")
        return float(x)

    def values_eq_approx(self, x, y, tolerance=1e-4):
        return abs(x - y) / (x + y) < tolerance

    def __str__(self):
        return "double"

    def c_declare(self, name, sub):
        return """
        double %(name)s;
        """ % dict(name=name)

    def c_init(self, name, sub):
        return """
        %(name)s = 0.0;
        """ % dict(name=name)

    def c_extract(self, name, sub, **kwargs):
        return """
        if (!PyFloat_Check(py_%(name)s)) {
            PyErr_SetString(PyExc_TypeError, "expected a float");
            %(fail)s
        }
        %(name)s = PyFloat_AsDouble(py_%(name)s);
        """ % dict(sub, name=name)

    def c_sync(self, name, sub):
        return """
        Py_XDECREF(py_%(name)s);
        py_%(name)s = PyFloat_FromDouble(%(name)s);
        if (!py_%(name)s) {
            printf("PyFloat_FromDouble failed on: %%f\\n", %(name)s);
            Py_XINCREF(Py_None);
            py_%(name)s = Py_None;
        }
        """ % dict(name=name)

    def c_cleanup(self, name, sub):
        return ""


class VersionedDouble(Double):
    """The same with a version, so that what is compiled is kept."""

    def __eq__(self, other):
        return type(self) is type(other)

    def __hash__(self):
        return hash(type(self))

    def c_code_cache_version(self):
        return (1,)


double = VersionedDouble()


class Binary(Op):
    """`sign` between two values of a type."""

    __props__ = ("name", "sign", "type")

    def __init__(self, name, sign, type=double):
        self.name, self.sign, self.type = name, sign, type

    def __str__(self):
        return self.name

    def make_node(self, x, y):
        return Apply(self, [self.type.filter_variable(v) for v in (x, y)], [self.type()])

    def perform(self, node, inputs, output_storage):
        x, y = inputs
        output_storage[0][0] = {"+": x + y, "*": x * y, "-": x - y}[self.sign]

    def c_code(self, node, name, inputs, outputs, sub):
        return f"{outputs[0]} = {inputs[0]} {self.sign} {inputs[1]};"

    def c_code_cache_version(self):
        return (1,)


class PythonBinary(Binary):
    """The same without C code."""

    def c_code(self, node, name, inputs, outputs, sub):
        raise NotImplementedError


add, mul, sub = Binary("add", "+"), Binary("mul", "*"), Binary("sub", "-")
python_add, python_sub = PythonBinary("python_add", "+"), PythonBinary("python_sub", "-")


# What the C code of the types and ops below has done, in order.
events = types.ModuleType("graph_events")
events.log = []
sys.modules["graph_events"] = events

SUPPORT = """
static PyObject *graph_events;
static void event(const char *what) {
  PyObject *text = PyUnicode_FromString(what);
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyList_Append(graph_events, text);
  PyErr_Restore(type, value, traceback);
  Py_DECREF(text);
}
"""
INIT = """
PyObject *module = PyImport_ImportModule("graph_events");
graph_events = module ? PyObject_GetAttrString(module, "log") : NULL;
Py_XDECREF(module);
"""


class Logged(VersionedDouble):
    """A double whose C code says what it does. Its value -1 fails in c_extract, -2 in c_sync."""

    def _event(self, what, name):
        return f'event("{what} {name}");\n'

    def c_support_code(self):
        return SUPPORT

    def c_init_code(self):
        return [INIT]

    def c_init(self, name, sub):
        return self._event("init", name) + super().c_init(name, sub)

    def c_extract(self, name, sub, check_input=True, **kwargs):
        fail = f'if ({name} == -1) {{ PyErr_SetString(PyExc_ValueError, "-1"); {sub["fail"]} }}'
        return self._event("extract", name) + super().c_extract(name, sub) + fail

    def c_sync(self, name, sub):
        fail = f'if ({name} == -2) {{ PyErr_SetString(PyExc_ValueError, "-2"); {sub["fail"]} }}'
        return self._event("sync", name) + fail + super().c_sync(name, sub)

    def c_cleanup(self, name, sub):
        return self._event("cleanup", name)


logged = Logged()


class LoggedBinary(Binary):
    """Fails where its result is -3."""

    def c_code(self, node, name, inputs, outputs, sub):
        return (
            f'event("{self.name}");\n{super().c_code(node, name, inputs, outputs, sub)}\n'
            f'if ({outputs[0]} == -3) {{ PyErr_SetString(PyExc_ValueError, "-3"); {sub["fail"]} }}'
        )

    def c_code_cleanup(self, node, name, inputs, outputs, sub):
        return f'event("cleanup {self.name}");'


logged_add, logged_mul = LoggedBinary("add", "+", logged), LoggedBinary("mul", "*", logged)


def graph(inputs, outputs):
    """What a linker needs of a FunctionGraph."""
    return SimpleNamespace(inputs=inputs, outputs=outputs)


def compiled(inputs, outputs, linker=CLinker, **options):
    """The graph as a callable; a call with a float is not converted."""
    thunk = linker(graph(inputs, outputs), **options).make_thunk()
    if hasattr(thunk, "call"):
        return thunk.call

    def call(*values):
        results = thunk(list(values))
        return results[0] if len(results) == 1 else results

    return call


def logs(function, *values):
    """What the C code did in a call, and the exception if it failed."""
    events.log.clear()
    try:
        function(*values)
    except Exception as err:
        return list(events.log), err
    return list(events.log), None


def in_threads(work, n=4):
    """Runs work(0) to work(n - 1), each in a thread of its own."""
    threads = [threading.Thread(target=work, args=(k,)) for k in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
