/* graph.h: what compiled graphs need beside PyTorch's functions. Included by cgotorch.h, inside its
 * extern "C". */
#ifndef CGOTORCH_GRAPH_H
#define CGOTORCH_GRAPH_H

/* The calling thread's state that cgotorch_graph_enter changes. */
typedef struct {
  uint64_t included;
  uint64_t excluded;
  uint64_t grad_mode;
} cgotorch_graph_state;

/* From here to cgotorch_graph_leave(state) on the same thread, functions neither record a graph nor
 * cast automatically, and run the kernels that they run under no_grad: a compiled graph has its
 * dtypes, and its gradient is another graph. Changes in place still count in a tensor's version. */
CGOTORCH_API void cgotorch_graph_enter(cgotorch_graph_state *state);
CGOTORCH_API void cgotorch_graph_leave(const cgotorch_graph_state *state);

/* A malloc'ed "kind: message", as the functions of this library return. */
CGOTORCH_API const char *cgotorch_make_error(const char *kind, const char *message);

/* The error, which it takes over, with the place where it happened behind it: "kind: message
 * [place]". An error of NULL becomes a RuntimeError that says that none was set. */
CGOTORCH_API const char *cgotorch_error_at(const char *error, const char *place);

/* n words (runtime.h) of a caller whose tensors others may close meanwhile. */
typedef struct {
  Tensor *at;
  int64_t n;
} cgotorch_held;

/* Puts a handle into the place of each word, of its own; zeros stay. ValueError where a tensor was
 * closed. On failure no handle is held, and what is in the places then is of no use. */
CGOTORCH_API const char *cgotorch_hold_words(const cgotorch_held *held, int64_t n);
/* Frees these handles. */
CGOTORCH_API void cgotorch_drop_held(const cgotorch_held *held, int64_t n);

/* A tensor without dimensions that stands for a number: type promotion takes it for one, as PyTorch
 * does where Python gives a number in the place of a tensor. */
CGOTORCH_API const char *cgotorch_number_tensor(const Scalar *number, Tensor *result);

/* What a graph expects of a tensor. */
typedef struct {
  ScalarType dtype;     /* -1: any */
  int32_t device_type;  /* -1: any */
  int32_t device_index; /* -1: any of that type */
  int32_t ndim;         /* -1: any, and sizes is not read */
  const int64_t *sizes; /* ndim of them; -1: any */
} cgotorch_tensor_type;

/* NULL where t is such a tensor; a TypeError with what was expected and what came where it is not,
 * or is none; a RuntimeError where it requires a gradient while gradients are recorded, for a
 * compiled graph does not record any. */
CGOTORCH_API const char *cgotorch_check_tensor(Tensor t, const cgotorch_tensor_type *type);

#endif
