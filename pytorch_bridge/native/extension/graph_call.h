// graph_call.h: compiled graphs as Python callables.
#pragma once

#include "pb_graph.h"

namespace pytorch_bridge {

extern const pb_python tensor_objects;

// Adds Graph and Entry to the module. False with a Python exception set on failure.
bool add_graphs(PyObject *module);

}  // namespace pytorch_bridge
