/* pb_graph.h: how Python calls a compiled graph. Included by the graph's generated code and by the
 * extension. C99. */
#ifndef PB_GRAPH_H
#define PB_GRAPH_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Each library has pb_graph_load and pb_graph; one whose nodes have state has pb_graph_begin and
 * pb_graph_end as well. */
#define PB_EXPORT __attribute__((visibility("default")))

struct cgotorch_tensor;

/* What a graph needs from the extension, which alone knows torch's Python objects. */
struct pb_python {
  /* A new handle to the tensor in object; NULL with a TypeError set where it is no tensor, with a
   * RuntimeError where it requires a gradient that would not be recorded. */
  struct cgotorch_tensor *(*unwrap)(PyObject *object);
  /* A new reference to the Python tensor of a handle, which stays the caller's; None for NULL. NULL
   * with an exception set where there is no memory. */
  PyObject *(*wrap)(struct cgotorch_tensor *t);
  /* As unwrap, for the graph's own constants, which may require a gradient: nobody sees that in the
   * results, but PyTorch chooses kernels by it. */
  struct cgotorch_tensor *(*unwrap_constant)(PyObject *object);
};

/* One call of a graph. */
struct pb_call {
  PyObject *const *inputs;    /* borrowed */
  PyObject *const *constants; /* borrowed: constants, and the functions of nodes without C code */
  PyObject **outputs;         /* filled on success, each a new reference */
  const char *error; /* after a failure: a message of the C ABI, to be freed, or NULL where a Python
                        exception is set */
  void *state;       /* of the callable: what pb_graph_begin has made, NULL in other libraries */
};

/* Runs once, when the library is loaded: the c_init_code of types and ops. -1 with an exception set
 * on failure. */
PB_EXPORT int pb_graph_load(const struct pb_python *python);

/* Runs the graph; needs the GIL. 0, or the number of the place in the graph that failed; then no
 * output is filled. */
PB_EXPORT int pb_graph(struct pb_call *call);

/* Makes the state of one callable, call->state: the c_support_code_struct of ops, initialised by
 * their c_init_code_struct. Needs the GIL; of the call it reads nothing. 0, or the number of the
 * place that failed; then there is no state. */
PB_EXPORT int pb_graph_begin(struct pb_call *call);

/* Runs the c_cleanup_code_struct of ops, and frees the state. Needs the GIL. */
PB_EXPORT void pb_graph_end(void *state);

#ifdef __cplusplus
}
#endif

#endif
