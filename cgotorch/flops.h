/* flops.h: how many floating point operations PyTorch's functions take, by the formulas of
 * torch.utils.flop_counter. Included by cgotorch.h, inside its extern "C".
 *
 * What counts is what Python's FlopCounterMode sees: of the functions that a call goes through, the
 * first that is not made of others in ATen's own terms (CompositeImplicitAutograd). What such a
 * function calls inside is a part of it. */
#ifndef CGOTORCH_FLOPS_H
#define CGOTORCH_FLOPS_H

/* A call of a function that has a formula. */
typedef struct {
  const char *op; /* "aten::mm"; static */
  int64_t flops;
  bool backward;    /* whether a node of a backward pass made the call */
  int64_t sequence; /* of that node, or -1: see FlopCounterPlace */
} FlopEvent;

/* From now on the calls of this thread are counted, and those of backward passes that it starts, to
 * the LeaveFlopCounter that gets *place. Counters nest. RuntimeError where 64 threads count. */
CGOTORCH_API const char *EnterFlopCounter(int64_t *place) CGOTORCH_SYMBOL(EnterFlopCounter);
/* How many calls the thread has counted, 0 where it does not count, and the number that the next
 * node of its graphs gets. */
CGOTORCH_API void FlopCounterPlace(int64_t *events, int64_t *sequence)
    CGOTORCH_SYMBOL(FlopCounterPlace);
/* Ends the counter that was entered last, and returns what was counted since, for FreeArray. On an
 * error, which can only be that memory is out, the counter is left all the same. */
CGOTORCH_API const char *LeaveFlopCounter(int64_t place, FlopEvent **events, int64_t *n)
    CGOTORCH_SYMBOL(LeaveFlopCounter);

#endif
