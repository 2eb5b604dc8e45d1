/* checkpoint.h: graphs that keep no tensors for the backward pass, and compute or fetch them in it.
 * Included by cgotorch.h, inside its extern "C".
 *
 * Between EnterCheckpoint and LeaveCheckpoint ops are recorded as always, but what they would save
 * is only counted. When the backward pass asks for it, recompute is called, which must do the same
 * again, with inputs from CheckpointInputs, between EnterRecompute and LeaveRecompute. */
#ifndef CGOTORCH_CHECKPOINT_H
#define CGOTORCH_CHECKPOINT_H

typedef struct cgotorch_checkpoint *Checkpoint;

/* See autograd.h for callbacks. frame is valid while it runs. */
typedef const char *(*RecomputeFunction)(void *data, Checkpoint frame);

/* inputs are kept for recompute, as an op saves its arguments. NotImplementedError where Python is
 * in the process, whose own hooks for saved tensors are in the place of these; RuntimeError inside
 * of a function transform. release is called once, when nothing needs data any more; not on
 * failure. */
CGOTORCH_API const char *EnterCheckpoint(const Tensor *inputs, int64_t n,
                                         RecomputeFunction recompute, void *data,
                                         void (*release)(void *data))
    CGOTORCH_SYMBOL(EnterCheckpoint);
/* Ends what was entered last on this thread. */
CGOTORCH_API void LeaveCheckpoint(void) CGOTORCH_SYMBOL(LeaveCheckpoint);

/* The inputs, each owned by the caller. May run recompute of a checkpoint around this one. */
CGOTORCH_API const char *CheckpointInputs(Checkpoint frame, Tensor *results)
    CGOTORCH_SYMBOL(CheckpointInputs);
CGOTORCH_API void EnterRecompute(Checkpoint frame) CGOTORCH_SYMBOL(EnterRecompute);
/* check: RuntimeError where fewer or more tensors were saved than the first time. */
CGOTORCH_API const char *LeaveRecompute(bool check) CGOTORCH_SYMBOL(LeaveRecompute);

/* Between EnterFetched and LeaveFetched, what ops of this thread would save of whole's storage they
 * do not keep, but have from fetch when the backward pass asks for it: a tensor of whole's dtype
 * and with the same elements from its storage's beginning on, owned by the caller of fetch. What
 * was changed in place, what has another dtype, and all else is kept. Within a checkpoint nothing
 * is kept anyhow, and fetch is not called. Errors, data and release are as with EnterCheckpoint. */
typedef const char *(*FetchFunction)(void *data, Tensor *result);
CGOTORCH_API const char *EnterFetched(Tensor whole, FetchFunction fetch, void *data,
                                      void (*release)(void *data)) CGOTORCH_SYMBOL(EnterFetched);
CGOTORCH_API void LeaveFetched(void) CGOTORCH_SYMBOL(LeaveFetched);

#endif
