"""The C functions that carry values of the schema types between Python and C.

`pb_<kind>_from(object, variable, &result)` returns nonzero with a Python exception set, which names
the variable; `pb_<kind>_to(value)` returns a new reference, or NULL with one set. They exist where
Python.h does: a graph for Go has none of them.
"""

from __future__ import annotations

from .enums import DEVICES, DTYPES, LAYOUTS, MEMORY_FORMATS

NUMBERS = r"""
#ifdef Py_PYTHON_H
#include <string.h>

static inline int pb_refuse(PyObject *o, const char *variable, const char *expected) {
  if (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_TypeError))
    PyErr_Format(PyExc_TypeError, "%s: expected %s, got %.80s", variable, expected,
                 Py_TYPE(o)->tp_name);
  return 1;
}
static inline int pb_int_from(PyObject *o, const char *variable, int64_t *result) {
  if (!PyLong_Check(o) || PyBool_Check(o)) return pb_refuse(o, variable, "int");
  long long v = PyLong_AsLongLong(o);
  if (v == -1 && PyErr_Occurred()) return 1;
  *result = v;
  return 0;
}
static inline PyObject *pb_int_to(int64_t v) { return PyLong_FromLongLong(v); }
static inline int pb_float_from(PyObject *o, const char *variable, double *result) {
  if (!PyFloat_Check(o)) return pb_refuse(o, variable, "float");
  *result = PyFloat_AS_DOUBLE(o);
  return 0;
}
static inline PyObject *pb_float_to(double v) { return PyFloat_FromDouble(v); }
static inline int pb_bool_from(PyObject *o, const char *variable, bool *result) {
  if (!PyBool_Check(o)) return pb_refuse(o, variable, "bool");
  *result = o == Py_True;
  return 0;
}
static inline PyObject *pb_bool_to(bool v) { return PyBool_FromLong(v); }
static inline int pb_str_from(PyObject *o, const char *variable, int none, const char **result) {
  if (none && o == Py_None) {
    *result = NULL;
    return 0;
  }
  if (!PyUnicode_Check(o)) return pb_refuse(o, variable, "str");
  *result = PyUnicode_AsUTF8(o);
  return *result == NULL;
}
static inline int pb_scalar_from(PyObject *o, const char *variable, Scalar *result) {
  memset(result, 0, sizeof *result);
  if (PyBool_Check(o)) {
    result->kind = ScalarBool;
    result->v.i = o == Py_True;
  } else if (PyLong_Check(o)) {
    int overflow = 0;
    result->kind = ScalarInt;
    result->v.i = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (overflow > 0) {
      unsigned long long u = PyLong_AsUnsignedLongLong(o);
      result->kind = ScalarUInt;
      result->v.i = (int64_t)u;
    } else if (overflow < 0) {
      PyErr_Format(PyExc_OverflowError, "%s: the number has more than 64 bits", variable);
    }
    if (PyErr_Occurred()) return 1;
  } else if (PyFloat_Check(o)) {
    result->kind = ScalarFloat;
    result->v.f = PyFloat_AS_DOUBLE(o);
  } else if (PyComplex_Check(o)) {
    result->kind = ScalarComplex;
    result->v.c[0] = PyComplex_RealAsDouble(o);
    result->v.c[1] = PyComplex_ImagAsDouble(o);
  } else {
    return pb_refuse(o, variable, "a number");
  }
  return 0;
}
static inline PyObject *pb_scalar_to(Scalar v) {
  switch (v.kind) {
    case ScalarBool: return PyBool_FromLong(v.v.i != 0);
    case ScalarInt: return PyLong_FromLongLong(v.v.i);
    case ScalarUInt: return PyLong_FromUnsignedLongLong((unsigned long long)v.v.i);
    case ScalarFloat: return PyFloat_FromDouble(v.v.f);
    case ScalarComplex: return PyComplex_FromDoubles(v.v.c[0], v.v.c[1]);
    default: return Py_NewRef(Py_None);
  }
}
static inline int pb_stream_from(PyObject *o, const char *variable, Stream *result) {
  const char *names[3] = {"stream_id", "device_index", "device_type"};
  int64_t *fields[3] = {&result->id, &result->device_index, &result->device_type};
  for (int i = 0; i < 3; i++) {
    PyObject *v = PyObject_GetAttrString(o, names[i]);
    int bad = v == NULL || pb_int_from(v, variable, fields[i]);
    Py_XDECREF(v);
    if (bad) return pb_refuse(o, variable, "a torch.Stream");
  }
  return 0;
}
static inline PyObject *pb_stream_to(Stream s) {
  PyObject *torch = PyImport_ImportModule("torch");
  PyObject *type = torch ? PyObject_GetAttrString(torch, "Stream") : NULL;
  PyObject *none = PyTuple_New(0);
  PyObject *values =
      Py_BuildValue("{s:L,s:L,s:L}", "stream_id", (long long)s.id, "device_index",
                    (long long)s.device_index, "device_type", (long long)s.device_type);
  PyObject *result = type && none && values ? PyObject_Call(type, none, values) : NULL;
  Py_XDECREF(torch);
  Py_XDECREF(type);
  Py_XDECREF(none);
  Py_XDECREF(values);
  return result;
}
#endif
"""


def _lists(kind: str, c: str, converter: str = "") -> str:
    """Lists of one kind of number, malloced; NULL is none."""
    converter = converter or f"pb_{kind}"
    return f"""
static inline int pb_{kind}s_from(PyObject *o, const char *variable, int none, {c} **result,
                                  int64_t *len) {{
  *result = NULL;
  *len = 0;
  if (none && o == Py_None) return 0;
  if (!PyList_Check(o) && !PyTuple_Check(o)) return pb_refuse(o, variable, "a list");
  PyObject *list = PySequence_Fast(o, "a list");
  if (list == NULL) return 1;
  int64_t n = PySequence_Fast_GET_SIZE(list);
  *result = ({c} *)malloc((n ? n : 1) * sizeof **result);
  int bad = *result == NULL;
  if (bad) PyErr_NoMemory();
  for (int64_t i = 0; !bad && i < n; i++)
    bad = {converter}_from(PySequence_Fast_GET_ITEM(list, i), variable, *result + i);
  Py_DECREF(list);
  if (bad) {{
    free(*result);
    *result = NULL;
    return 1;
  }}
  *len = n;
  return 0;
}}
static inline PyObject *pb_{kind}s_to(const {c} *v, int64_t n) {{
  if (v == NULL) return Py_NewRef(Py_None);
  PyObject *list = PyList_New(n);
  for (int64_t i = 0; list && i < n; i++) {{
    PyObject *one = {converter}_to(v[i]);
    if (one == NULL) {{
      Py_DECREF(list);
      return NULL;
    }}
    PyList_SET_ITEM(list, i, one);
  }}
  return list;
}}
"""


LISTS = (
    "\n#ifdef Py_PYTHON_H"
    + _lists("int", "int64_t")
    + _lists("float", "double")
    + _lists("scalar", "Scalar")
    + r"""
static inline int pb_bools_from(PyObject *o, const char *variable, int64_t n, bool *result) {
  if ((!PyList_Check(o) && !PyTuple_Check(o)) || PySequence_Size(o) != n) {
    PyErr_Format(PyExc_TypeError, "%s: expected a list of %lld bools, got %.80s", variable,
                 (long long)n, Py_TYPE(o)->tp_name);
    return 1;
  }
  for (int64_t i = 0; i < n; i++) {
    PyObject *one = PySequence_GetItem(o, i);
    int bad = one == NULL || pb_bool_from(one, variable, result + i);
    Py_XDECREF(one);
    if (bad) return 1;
  }
  return 0;
}
static inline PyObject *pb_bools_to(const bool *v, int64_t n) {
  PyObject *list = PyList_New(n);
  for (int64_t i = 0; list && i < n; i++) PyList_SET_ITEM(list, i, PyBool_FromLong(v[i]));
  return list;
}
#endif
"""
)

TENSORS = r"""
#ifdef Py_PYTHON_H
#include <stdio.h>

static inline int pb_refuse_tensor(PyObject *o, const char *variable, const char *expected) {
  PyObject *dtype = PyObject_GetAttrString(o, "dtype");
  PyObject *shape = PyObject_GetAttrString(o, "shape");
  PyObject *tuple = shape ? PySequence_Tuple(shape) : NULL;
  PyObject *device = PyObject_GetAttrString(o, "device");
  if (dtype && tuple && device)
    PyErr_Format(PyExc_TypeError, "%s: expected %s, got a tensor of %S and shape %S on %S",
                 variable, expected, dtype, tuple, device);
  Py_XDECREF(dtype);
  Py_XDECREF(shape);
  Py_XDECREF(tuple);
  Py_XDECREF(device);
  return 1;
}
/* The tensor of a constant, a new reference. */
static inline int pb_constant_from(PyObject *o, Tensor *result) {
  return (*result = pb_python->unwrap_constant(o)) == NULL;
}
/* The tensor in o, a new reference, checked where there is a type. */
static inline int pb_tensor_from(PyObject *o, const char *variable, const char *expected,
                                 const cgotorch_tensor_type *type, Tensor *result) {
  const char *error;
  *result = NULL;
  if (o == Py_None || (*result = pb_python->unwrap(o)) == NULL)
    return pb_refuse(o, variable, expected);
  error = type ? cgotorch_check_tensor(*result, type) : NULL;
  if (error == NULL) return 0;
  FreeString(error);
  return pb_refuse_tensor(o, variable, expected);
}
#endif
"""

TENSOR_LISTS = r"""
#ifdef Py_PYTHON_H
#include <stdlib.h>

static inline int pb_tensors_from(PyObject *o, const char *variable, int none, Tensor **result,
                                  int64_t *len) {
  *result = NULL;
  *len = 0;
  if (!PyList_Check(o) && !PyTuple_Check(o)) return pb_refuse(o, variable, "a list of tensors");
  int64_t n = PySequence_Size(o);
  *result = (Tensor *)calloc(n ? n : 1, sizeof(Tensor));
  if (*result == NULL) {
    PyErr_NoMemory();
    return 1;
  }
  *len = n;
  for (int64_t i = 0; i < n; i++) {
    PyObject *one = PySequence_GetItem(o, i);
    if (one == NULL) return 1;
    if (one == Py_None && none) {
      Py_DECREF(one);
      continue;
    }
    (*result)[i] = pb_python->unwrap(one);
    int bad = (*result)[i] == NULL;
    if (bad) pb_refuse(one, variable, "tensors");
    Py_DECREF(one);
    if (bad) return 1;
  }
  return 0;
}
static inline PyObject *pb_tensors_to(const Tensor *v, int64_t n) {
  PyObject *list = PyList_New(n);
  for (int64_t i = 0; list && i < n; i++) {
    PyObject *one = pb_python->wrap(v[i]);
    if (one == NULL) {
      Py_DECREF(list);
      return NULL;
    }
    PyList_SET_ITEM(list, i, one);
  }
  return list;
}
#endif
"""


def _enum(kind: str, c: str, names: dict[str, int]) -> str:
    """An enum of torch, told by its name."""
    table = ", ".join(f'{{"{name}", {number}}}' for name, number in names.items())
    return f"""
static const struct {{ const char *name; int32_t number; }} pb_{kind}_names[] = {{{table}}};
static inline int pb_{kind}_from(PyObject *o, const char *variable, {c} *result) {{
  PyObject *text = PyObject_Str(o);
  const char *name = text ? PyUnicode_AsUTF8(text) : NULL;
  size_t i, n = sizeof pb_{kind}_names / sizeof *pb_{kind}_names;
  for (i = 0; name && i < n; i++)
    if (strncmp(name, "torch.", 6) == 0 && strcmp(name + 6, pb_{kind}_names[i].name) == 0) break;
  Py_XDECREF(text);
  if (name == NULL) return 1;
  if (i == n) return pb_refuse(o, variable, "a torch.{kind}");
  *result = pb_{kind}_names[i].number;
  return 0;
}}
static inline PyObject *pb_{kind}_to({c} v) {{
  for (size_t i = 0; i < sizeof pb_{kind}_names / sizeof *pb_{kind}_names; i++)
    if (pb_{kind}_names[i].number == v) return pb_torch_attribute(pb_{kind}_names[i].name);
  PyErr_Format(PyExc_ValueError, "torch has no {kind} with the number %d", (int)v);
  return NULL;
}}
"""


ENUMS = (
    r"""
#ifdef Py_PYTHON_H
#include <stdio.h>
#include <stdlib.h>

static inline PyObject *pb_torch_attribute(const char *name) {
  PyObject *torch = PyImport_ImportModule("torch");
  PyObject *result = torch ? PyObject_GetAttrString(torch, name) : NULL;
  Py_XDECREF(torch);
  return result;
}
"""
    + _enum("dtype", "ScalarType", DTYPES)
    + _enum("layout", "Layout", LAYOUTS)
    + _enum("memory_format", "MemoryFormat", MEMORY_FORMATS)
    + f"""
static const int32_t pb_private_number = {DEVICES["privateuseone"]};
static const struct {{ const char *name; int32_t number; }} pb_device_names[] = {{{
        ", ".join(f'{{"{name}", {number}}}' for name, number in DEVICES.items())
    }}};
"""
    + r"""
/* Whether a backend has given itself this name, in the place of privateuseone. */
static inline int pb_private_backend(const char *name) {
  PyObject *c = pb_torch_attribute("_C");
  PyObject *own = c ? PyObject_CallMethod(c, "_get_privateuse1_backend_name", NULL) : NULL;
  const char *text = own ? PyUnicode_AsUTF8(own) : NULL;
  int same = text && strcmp(text, name) == 0;
  Py_XDECREF(c);
  Py_XDECREF(own);
  PyErr_Clear();
  return same;
}
static inline int pb_device_from(PyObject *o, const char *variable, Device *result) {
  /* torch says what a name is a device's. */
  PyObject *type = pb_torch_attribute("device");
  PyObject *device = type && PyUnicode_Check(o) ? PyObject_CallFunction(type, "O", o) : NULL;
  PyObject *kind, *index;
  const char *name;
  int found = 0;
  if (type && device == NULL && PyObject_IsInstance(o, type) == 1) Py_INCREF(device = o);
  PyErr_Clear();
  Py_XDECREF(type);
  if (device == NULL) return pb_refuse(o, variable, "a torch.device");
  kind = PyObject_GetAttrString(device, "type");
  index = PyObject_GetAttrString(device, "index");
  name = kind ? PyUnicode_AsUTF8(kind) : NULL;
  for (size_t i = 0; name && i < sizeof pb_device_names / sizeof *pb_device_names; i++)
    if (strcmp(name, pb_device_names[i].name) == 0) {
      result->type = pb_device_names[i].number;
      found = 1;
    }
  if (name && !found && pb_private_backend(name)) {
    result->type = pb_private_number;
    found = 1;
  }
  result->index = index && index != Py_None ? (int32_t)PyLong_AsLong(index) : -1;
  Py_XDECREF(kind);
  Py_XDECREF(index);
  Py_DECREF(device);
  if (PyErr_Occurred()) return 1;
  return found ? 0 : pb_refuse(o, variable, "a torch.device");
}
static inline PyObject *pb_device_to(Device v) {
  char text[40] = "";
  for (size_t i = 0; i < sizeof pb_device_names / sizeof *pb_device_names; i++)
    if (pb_device_names[i].number == v.type) {
      if (v.index >= 0)
        snprintf(text, sizeof text, "%s:%d", pb_device_names[i].name, (int)v.index);
      else
        snprintf(text, sizeof text, "%s", pb_device_names[i].name);
    }
  PyObject *type = pb_torch_attribute("device");
  PyObject *result = type ? PyObject_CallFunction(type, "s", text) : NULL;
  Py_XDECREF(type);
  return result;
}
#endif
"""
)

HELPERS = [NUMBERS, LISTS]
TENSOR_HELPERS = [NUMBERS, TENSORS, TENSOR_LISTS]
ENUM_HELPERS = [NUMBERS, ENUMS]
