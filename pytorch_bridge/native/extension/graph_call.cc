// graph_call.cc: loads compiled graphs and makes Python callables of them.
//
// Between a call's arguments and its results no Python runs: the callable has the vectorcall
// protocol, and hands the array of arguments on to the graph's C function as it is.
#include "graph_call.h"

#include <dlfcn.h>
#include <structmember.h>

#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <string>

#include "cgotorch.h"

namespace pytorch_bridge {
namespace {

using Run = int (*)(pb_call *);
using Load = int (*)(const pb_python *);
using End = void (*)(void *);

// The functions of a library. `begin` and `end` are null where its nodes have no state.
struct Functions {
  Run run = nullptr;
  Run begin = nullptr;
  End end = nullptr;
};

// Libraries stay loaded: their code may be in use, and their c_init_code must run only once.
std::map<std::string, Functions> *loaded;

// The functions of the library at a path; nullptr with an exception set on failure. Guarded by the
// GIL: c_init_code runs at most once.
const Functions *load(const char *path) {
  if (loaded == nullptr) loaded = new std::map<std::string, Functions>;
  const auto known = loaded->find(path);
  if (known != loaded->end()) return &known->second;
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    PyErr_Format(PyExc_ImportError, "the compiled graph cannot be loaded: %s", dlerror());
    return nullptr;
  }
  const auto init = reinterpret_cast<Load>(dlsym(library, "pb_graph_load"));
  const auto run = reinterpret_cast<Run>(dlsym(library, "pb_graph"));
  if (init == nullptr || run == nullptr) {
    PyErr_Format(PyExc_ImportError, "%s is no compiled graph", path);
    dlclose(library);
    return nullptr;
  }
  if (init(&tensor_objects) != 0) {
    if (PyErr_Occurred() == nullptr) {
      PyErr_Format(PyExc_RuntimeError, "the c_init_code in %s failed without saying why", path);
    }
    return nullptr;
  }
  const Functions found = {run, reinterpret_cast<Run>(dlsym(library, "pb_graph_begin")),
                           reinterpret_cast<End>(dlsym(library, "pb_graph_end"))};
  Functions *const kept = &(*loaded)[path];
  *kept = found;
  return kept;
}

struct Graph {
  PyObject_HEAD;
  vectorcallfunc vectorcall;
  Run run;
  End end;
  void *state;              // of the graph's nodes, or null
  PyThread_type_lock turn;  // where there is state: calls take turns
  unsigned long turn_of;    // the thread that is in a call, 0 for none
  Py_ssize_t n_inputs;
  Py_ssize_t n_outputs;
  PyObject *constants;  // a tuple
  PyObject *explain;    // (place, message or None, exception or None) -> exception
  PyObject *weakrefs;
};

PyTypeObject *graph_type;

// The exception in flight, or None.
PyObject *take_exception() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (type == nullptr) Py_RETURN_NONE;
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback != nullptr) PyException_SetTraceback(value, traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return value;
}

// Raises what `explain` makes of a failure. It knows the graph; C knows the number of the place.
void raise(Graph *self, int place, const char *error) {
  PyObject *message = Py_NewRef(Py_None), *exception = take_exception();
  if (error != nullptr) {
    Py_SETREF(message, PyUnicode_DecodeUTF8(error, static_cast<Py_ssize_t>(strlen(error)),
                                            "backslashreplace"));
    FreeString(error);
  }
  PyObject *raised = nullptr;
  if (message != nullptr) {
    raised = PyObject_CallFunction(self->explain, "iOO", place, message, exception);
  }
  if (raised != nullptr) {
    PyErr_SetObject(reinterpret_cast<PyObject *>(Py_TYPE(raised)), raised);
    Py_DECREF(raised);
  }
  Py_XDECREF(message);
  Py_DECREF(exception);
}

// Has other threads' calls of a graph with state end first. False with an exception set where the
// call that has the turn is this thread's own.
bool take_turn(Graph *self) {
  const unsigned long me = PyThread_get_thread_ident();
  if (self->turn_of == me) {
    PyErr_SetString(PyExc_RuntimeError,
                    "a graph whose nodes have state (c_support_code_struct) was called from within "
                    "itself");
    return false;
  }
  if (PyThread_acquire_lock(self->turn, NOWAIT_LOCK) == 0) {
    Py_BEGIN_ALLOW_THREADS;
    PyThread_acquire_lock(self->turn, WAIT_LOCK);
    Py_END_ALLOW_THREADS;
  }
  self->turn_of = me;
  return true;
}

void end_turn(Graph *self) {
  self->turn_of = 0;
  PyThread_release_lock(self->turn);
}

// Makes the state of a graph's nodes. False with an exception set on failure.
bool begin(Graph *self, Run make) {
  self->turn = PyThread_allocate_lock();
  if (self->turn == nullptr) {
    PyErr_NoMemory();
    return false;
  }
  pb_call c = {nullptr, &PyTuple_GET_ITEM(self->constants, 0), nullptr, nullptr, nullptr};
  const int place = make(&c);
  self->state = c.state;
  if (place != 0) raise(self, place, c.error);
  return place == 0;
}

// Ends the state of a graph's nodes. What their cleanup raises is printed.
void finish(Graph *self) {
  if (self->state != nullptr) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    self->end(self->state);
    self->state = nullptr;
    if (PyErr_Occurred() != nullptr) PyErr_WriteUnraisable(self->explain);
    PyErr_Restore(type, value, traceback);
  }
  if (self->turn != nullptr) PyThread_free_lock(self->turn);
  self->turn = nullptr;
}

PyObject *call(PyObject *object, PyObject *const *arguments, size_t flags, PyObject *names) {
  auto *self = reinterpret_cast<Graph *>(object);
  const Py_ssize_t n = PyVectorcall_NARGS(flags);
  if (names != nullptr && PyTuple_GET_SIZE(names) > 0) {
    PyErr_SetString(PyExc_TypeError, "a compiled graph takes its inputs by position");
    return nullptr;
  }
  if (n != self->n_inputs) {
    PyErr_Format(PyExc_TypeError, "the graph has %zd input%s, the call gives %zd", self->n_inputs,
                 self->n_inputs == 1 ? "" : "s", n);
    return nullptr;
  }
  constexpr Py_ssize_t kFew = 8;
  PyObject *few[kFew], **outputs = few;
  std::unique_ptr<PyObject *[]> many;
  if (self->n_outputs > kFew) {
    many.reset(new (std::nothrow) PyObject *[self->n_outputs]);
    if (!many) return PyErr_NoMemory();
    outputs = many.get();
  }
  pb_call c = {arguments, &PyTuple_GET_ITEM(self->constants, 0), outputs, nullptr, self->state};
  if (self->state != nullptr && !take_turn(self)) return nullptr;
  const int place = self->run(&c);
  if (self->state != nullptr) end_turn(self);
  if (place != 0) {
    raise(self, place, c.error);
    return nullptr;
  }
  if (PyErr_Occurred() != nullptr) {  // a c_sync that could not make its object
    for (Py_ssize_t i = 0; i < self->n_outputs; i++) Py_XDECREF(outputs[i]);
    raise(self, 0, nullptr);
    return nullptr;
  }
  if (self->n_outputs == 1) return outputs[0];
  PyObject *list = PyList_New(self->n_outputs);
  for (Py_ssize_t i = 0; i < self->n_outputs; i++) {
    if (list == nullptr) {
      Py_XDECREF(outputs[i]);
    } else {
      PyList_SET_ITEM(list, i, outputs[i]);
    }
  }
  return list;
}

PyObject *graph_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  static const char *names[] = {"path", "n_inputs", "n_outputs", "constants", "explain", nullptr};
  const char *path;
  Py_ssize_t n_inputs, n_outputs;
  PyObject *constants, *explain;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "snnO!O:Graph", const_cast<char **>(names),
                                   &path, &n_inputs, &n_outputs, &PyTuple_Type, &constants,
                                   &explain)) {
    return nullptr;
  }
  if (n_inputs < 0 || n_outputs < 0) {
    PyErr_SetString(PyExc_ValueError, "Graph(): a negative number of inputs or outputs");
    return nullptr;
  }
  const Functions *const functions = load(path);
  if (functions == nullptr) return nullptr;
  auto *self = reinterpret_cast<Graph *>(type->tp_alloc(type, 0));
  if (self == nullptr) return nullptr;
  self->vectorcall = call;
  self->run = functions->run;
  self->end = functions->end;
  self->n_inputs = n_inputs;
  self->n_outputs = n_outputs;
  self->constants = Py_NewRef(constants);
  self->explain = Py_NewRef(explain);
  if (functions->begin != nullptr && !begin(self, functions->begin)) {
    Py_DECREF(self);
    return nullptr;
  }
  return reinterpret_cast<PyObject *>(self);
}

int graph_traverse(PyObject *object, visitproc visit, void *arg) {
  auto *self = reinterpret_cast<Graph *>(object);
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->constants);
  Py_VISIT(self->explain);
  return 0;
}

int graph_clear(PyObject *object) {
  auto *self = reinterpret_cast<Graph *>(object);
  Py_CLEAR(self->constants);
  Py_CLEAR(self->explain);
  return 0;
}

void graph_dealloc(PyObject *object) {
  auto *self = reinterpret_cast<Graph *>(object);
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  if (self->weakrefs != nullptr) PyObject_ClearWeakRefs(object);
  finish(self);
  graph_clear(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyMemberDef graph_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Graph, vectorcall), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Graph, weakrefs), READONLY, nullptr},
    {"n_inputs", T_PYSSIZET, offsetof(Graph, n_inputs), READONLY, nullptr},
    {"n_outputs", T_PYSSIZET, offsetof(Graph, n_outputs), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot graph_slots[] = {
    {Py_tp_doc,
     const_cast<char *>("Graph(path, n_inputs, n_outputs, constants, explain)\n--\n\n"
                        "A compiled graph: takes its inputs by position, and returns its output, "
                        "or a list where there are several or none.")},
    {Py_tp_new, reinterpret_cast<void *>(graph_new)},
    {Py_tp_call, reinterpret_cast<void *>(PyVectorcall_Call)},
    {Py_tp_traverse, reinterpret_cast<void *>(graph_traverse)},
    {Py_tp_clear, reinterpret_cast<void *>(graph_clear)},
    {Py_tp_dealloc, reinterpret_cast<void *>(graph_dealloc)},
    {Py_tp_members, graph_members},
    {0, nullptr},
};

PyType_Spec graph_spec = {"pytorch_bridge.native.extension.Graph", sizeof(Graph), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
                          graph_slots};

// A graph, and what to call where it cannot be: with arguments by name, or of another number, or
// that are not as the graph has them.
struct Entry {
  PyObject_HEAD;
  vectorcallfunc vectorcall;
  PyObject *graph;
  PyObject *otherwise;
};

// Whether the exception in flight is about an argument, so that nothing has run.
bool argument_refused() {
  PyObject *exception = take_exception();
  PyObject *place = PyObject_GetAttrString(exception, "graph_place");
  PyObject *phase = place == nullptr ? nullptr : PyObject_GetAttrString(place, "phase");
  const bool refused = phase != nullptr && PyUnicode_Check(phase) != 0 &&
                       PyUnicode_CompareWithASCIIString(phase, "extract") == 0;
  Py_XDECREF(place);
  Py_XDECREF(phase);
  PyErr_Clear();
  if (!refused) PyErr_SetObject(reinterpret_cast<PyObject *>(Py_TYPE(exception)), exception);
  Py_DECREF(exception);
  return refused;
}

PyObject *enter(PyObject *object, PyObject *const *arguments, size_t flags, PyObject *names) {
  auto *self = reinterpret_cast<Entry *>(object);
  const bool by_position = names == nullptr || PyTuple_GET_SIZE(names) == 0;
  if (by_position &&
      PyVectorcall_NARGS(flags) == reinterpret_cast<Graph *>(self->graph)->n_inputs) {
    PyObject *result = call(self->graph, arguments, flags, nullptr);
    if (result != nullptr || !argument_refused()) return result;
  }
  return PyObject_Vectorcall(self->otherwise, arguments, flags, names);
}

PyObject *entry_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  static const char *names[] = {"graph", "otherwise", nullptr};
  PyObject *graph, *otherwise;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!O:Entry", const_cast<char **>(names),
                                   graph_type, &graph, &otherwise)) {
    return nullptr;
  }
  auto *self = reinterpret_cast<Entry *>(type->tp_alloc(type, 0));
  if (self == nullptr) return nullptr;
  self->vectorcall = enter;
  self->graph = Py_NewRef(graph);
  self->otherwise = Py_NewRef(otherwise);
  return reinterpret_cast<PyObject *>(self);
}

int entry_traverse(PyObject *object, visitproc visit, void *arg) {
  auto *self = reinterpret_cast<Entry *>(object);
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->graph);
  Py_VISIT(self->otherwise);
  return 0;
}

// The graph stays: it has no reference back.
int entry_clear(PyObject *object) {
  auto *self = reinterpret_cast<Entry *>(object);
  Py_SETREF(self->otherwise, Py_NewRef(Py_None));
  return 0;
}

void entry_dealloc(PyObject *object) {
  auto *self = reinterpret_cast<Entry *>(object);
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  Py_DECREF(self->graph);
  Py_DECREF(self->otherwise);
  type->tp_free(object);
  Py_DECREF(type);
}

PyMemberDef entry_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Entry, vectorcall), READONLY, nullptr},
    {"graph", T_OBJECT, offsetof(Entry, graph), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot entry_slots[] = {
    {Py_tp_doc, const_cast<char *>("Entry(graph, otherwise)\n--\n\n"
                                   "Calls the graph, and otherwise(...) with the same arguments "
                                   "where they are not its own.")},
    {Py_tp_new, reinterpret_cast<void *>(entry_new)},
    {Py_tp_call, reinterpret_cast<void *>(PyVectorcall_Call)},
    {Py_tp_traverse, reinterpret_cast<void *>(entry_traverse)},
    {Py_tp_clear, reinterpret_cast<void *>(entry_clear)},
    {Py_tp_dealloc, reinterpret_cast<void *>(entry_dealloc)},
    {Py_tp_members, entry_members},
    {0, nullptr},
};

PyType_Spec entry_spec = {"pytorch_bridge.native.extension.Entry", sizeof(Entry), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
                          entry_slots};

// The type of a spec in the module, or nullptr with an exception set.
PyTypeObject *add_type(PyObject *module, const char *name, PyType_Spec *spec) {
  PyObject *type = PyType_FromSpec(spec);
  if (type == nullptr || PyModule_AddObjectRef(module, name, type) != 0) {
    Py_XDECREF(type);
    return nullptr;
  }
  return reinterpret_cast<PyTypeObject *>(type);
}

}  // namespace

bool add_graphs(PyObject *module) {
  graph_type = add_type(module, "Graph", &graph_spec);  // for good, as the module
  PyTypeObject *entry = graph_type == nullptr ? nullptr : add_type(module, "Entry", &entry_spec);
  Py_XDECREF(entry);
  return entry != nullptr;
}

}  // namespace pytorch_bridge
