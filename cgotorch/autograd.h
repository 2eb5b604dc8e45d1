/* autograd.h: gradients, hooks and autograd functions of the caller's own. Included by cgotorch.h,
 * inside its extern "C".
 *
 * Callbacks return NULL on success or an error as this library's functions do: a malloc'ed
 * "KindError: message", which the library frees and which comes out of the call that ran the graph,
 * word for word. Their Tensor arguments are borrowed; a Tensor that they give back is taken over.
 * They run on the thread that called Backward or Grad, or, for work on an accelerator and for
 * deeply nested calls, on a thread of libtorch's engine. Grad mode is on in them only under
 * create_graph.
 *
 * Every callback has a context `data` and may have a `release`, which is called exactly once, when
 * the library needs the callback no more: when it is removed, or with the last reference to what
 * holds it. That may happen on any thread, inside any call, so release must not call back into this
 * library; cgotorch_queue_token is a suitable one. When a registering function fails, it has
 * neither kept nor released data. */
#ifndef CGOTORCH_AUTOGRAD_H
#define CGOTORCH_AUTOGRAD_H

/* Gradients ---------------------------------------------------------------------------------- */

/* Adds the gradients of tensors to the grad of the leaves they were computed from. grad_tensors has
 * n entries, where NULL stands for a one (allowed for tensors of one element), or is NULL.
 * retain_graph NULL means create_graph's value. inputs, where not NULL, are the only tensors that
 * receive a gradient. */
CGOTORCH_API const char *Backward(const Tensor *tensors, int64_t n, const Tensor *grad_tensors,
                                  const bool *retain_graph, bool create_graph, const Tensor *inputs,
                                  int64_t n_inputs) CGOTORCH_SYMBOL(Backward);

/* The gradients of outputs with respect to inputs, written to results[0..n_inputs), each owned by
 * the caller. grad_outputs as grad_tensors above. An input that no output depends on is an error,
 * unless allow_unused, which gives NULL for it, or materialize_grads, which gives zeros. */
CGOTORCH_API const char *Grad(const Tensor *outputs, int64_t n_outputs, const Tensor *inputs,
                              int64_t n_inputs, const Tensor *grad_outputs,
                              const bool *retain_graph, bool create_graph, bool allow_unused,
                              bool materialize_grads, Tensor *results) CGOTORCH_SYMBOL(Grad);

/* t's gradient, NULL where there is none: a new handle to the one tensor, not a copy. */
CGOTORCH_API const char *TensorGrad(Tensor t, Tensor *result) CGOTORCH_SYMBOL(TensorGrad);
/* Makes grad t's gradient; NULL clears it. RuntimeError where shape, dtype, layout or device do not
 * fit t. */
CGOTORCH_API const char *TensorSetGrad(Tensor t, Tensor grad) CGOTORCH_SYMBOL(TensorSetGrad);
/* Only leaves can stop, and only floating point and complex tensors can start, requiring a
 * gradient: else RuntimeError. */
CGOTORCH_API const char *TensorSetRequiresGrad(Tensor t, bool requires_grad)
    CGOTORCH_SYMBOL(TensorSetRequiresGrad);

/* Hooks -------------------------------------------------------------------------------------- */

typedef struct cgotorch_hook *Hook;

/* Leaves *result as it is (NULL) to keep grad, or sets it to a tensor of grad's shape, dtype and
 * device that takes its place. grad is NULL where the tensor's node runs and no gradient arrives
 * for this tensor, as for the other results of an op of which one is used; then so must *result be.
 */
typedef const char *(*GradHook)(void *data, Tensor grad, Tensor *result);
/* Runs after a gradient was added to the grad of leaf. */
typedef const char *(*PostAccumulateGradHook)(void *data, Tensor leaf);

/* Calls fn with the gradient of t each time it is computed. RuntimeError unless t requires grad.
 * A hook stays when its handle is freed; hooks run in the order of their registration. handle may
 * be NULL. */
CGOTORCH_API const char *RegisterHook(Tensor t, GradHook fn, void *data,
                                      void (*release)(void *data), Hook *handle)
    CGOTORCH_SYMBOL(RegisterHook);
/* RuntimeError unless t is a leaf that requires grad. */
CGOTORCH_API const char *RegisterPostAccumulateGradHook(Tensor t, PostAccumulateGradHook fn,
                                                        void *data, void (*release)(void *data),
                                                        Hook *handle)
    CGOTORCH_SYMBOL(RegisterPostAccumulateGradHook);
/* Takes the hook off its tensor. Removing twice, or after the tensor is gone, does nothing. A call
 * that is under way on another thread finishes; its data is released after that. */
CGOTORCH_API void RemoveHook(Hook handle) CGOTORCH_SYMBOL(RemoveHook);
CGOTORCH_API void FreeHook(Hook handle) CGOTORCH_SYMBOL(FreeHook);

/* Functions ---------------------------------------------------------------------------------- */

/* What a backward callback asks about its call; valid while the callback runs. */
typedef struct cgotorch_function *FunctionContext;

/* Given the gradients of a function's outputs, sets results[i] to the gradient of input i; NULL
 * stands for zeros. Both arrays have as many entries as ApplyFunction was given inputs and outputs;
 * those of inputs that were NULL or need no gradient are ignored. */
typedef const char *(*BackwardFunction)(void *data, FunctionContext context, const Tensor *grads,
                                        int64_t n_grads, Tensor *results, int64_t n_results);

typedef struct {
  /* The node's name in error messages and in GradFnName, usually ending in "Backward". */
  const char *name;
  BackwardFunction backward;
  void *data;
  void (*release)(void *data);
  /* Whether backward sees zeros (true) or NULL where an output received no gradient. */
  bool materialize_grads;
} Function;

/* Makes outputs, which the caller computed from inputs while grad mode was off, a node of the graph
 * with a backward of its own. results[0..n_outputs) receives the tensors to go on with; where no
 * input requires grad or grad mode is off they are plain, and data is released at once.
 *
 * saved are what backward will ask for: inputs, outputs or anything between. They are kept without
 * reference cycles, dropped after a backward pass that does not retain the graph, and changing one
 * in place before it is used is an error. Entries may be NULL. dirty are the inputs that were
 * changed in place; each must be among the outputs too. non_differentiable are the outputs that
 * require no grad. Outputs that are inputs, or views of them, are treated as PyTorch's own
 * autograd.Function treats them. */
CGOTORCH_API const char *ApplyFunction(const Function *function, const Tensor *inputs,
                                       int64_t n_inputs, const Tensor *outputs, int64_t n_outputs,
                                       const Tensor *saved, int64_t n_saved, const Tensor *dirty,
                                       int64_t n_dirty, const Tensor *non_differentiable,
                                       int64_t n_non_differentiable, Tensor *results)
    CGOTORCH_SYMBOL(ApplyFunction);

/* The number of tensors that were saved, whether or not they have been freed since. */
CGOTORCH_API int64_t FunctionSavedCount(FunctionContext context)
    CGOTORCH_SYMBOL(FunctionSavedCount);
/* The saved tensors, each owned by the caller. RuntimeError where one was changed in place since,
 * or where an earlier backward pass has freed them. */
CGOTORCH_API const char *FunctionSavedTensors(FunctionContext context, Tensor *results)
    CGOTORCH_SYMBOL(FunctionSavedTensors);
/* Whether this backward pass uses the gradient of input i. */
CGOTORCH_API bool FunctionNeedsInputGrad(FunctionContext context, int64_t i)
    CGOTORCH_SYMBOL(FunctionNeedsInputGrad);

/* The name of the node that made t, "AddBackward0"; an empty string for leaves. Free with
 * FreeString. */
CGOTORCH_API const char *GradFnName(Tensor t, const char **result) CGOTORCH_SYMBOL(GradFnName);

/* Anomaly detection -------------------------------------------------------------------------- */

/* While it is on, the forward call of every node is recorded, an error in a backward pass warns
 * with the record of the node that failed, and, with check_nan, a backward that makes a NaN is an
 * error. Global to the process; slow. */
CGOTORCH_API void SetAnomalyMode(bool enabled, bool check_nan) CGOTORCH_SYMBOL(SetAnomalyMode);
CGOTORCH_API void GetAnomalyMode(bool *enabled, bool *check_nan) CGOTORCH_SYMBOL(GetAnomalyMode);

/* cgotorch_run, with a text that says where in the caller's program the call stands: the nodes that
 * the call makes keep a copy while anomaly detection is on. */
CGOTORCH_API void cgotorch_run_traced(int64_t i, struct cgotorch_block *block, const char *trace);

#endif
