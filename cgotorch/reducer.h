/* reducer.h: what DistributedDataParallel stands on: gradients that are averaged over the ranks of
 * a group while the backward pass goes on. Included by cgotorch.h, inside its extern "C". */
#ifndef CGOTORCH_REDUCER_H
#define CGOTORCH_REDUCER_H

typedef struct cgotorch_reducer *DistReducer;

/* What crosses the network in place of gradients. */
enum {
  DistNoCompression = 0,
  DistFloat16 = 1,
  DistBFloat16 = 2,
};

typedef struct {
  int64_t bucket_bytes; /* of gradients that are reduced together; 0: 25 MB, of the first 1 MB */
  bool find_unused_parameters;
  bool gradient_as_bucket_view;
  bool static_graph;
  int32_t compression;
  const char *const *names; /* of the parameters, for errors */
  const bool *sparse;       /* whose gradients are sparse; NULL: of none */
} DistReducerOptions;

/* Watches the gradients of parameters, which must be the same on all ranks: RuntimeError where
 * their number or shapes differ. The parameters keep it from being freed as long as they are in
 * use, and it keeps them. */
CGOTORCH_API const char *DistNewReducer(DistGroup group, const Tensor *parameters, int64_t n,
                                        const DistReducerOptions *options, DistReducer *result)
    CGOTORCH_SYMBOL(DistNewReducer);
/* Before a forward pass that is recorded; reduced is whether its gradients are to be. */
CGOTORCH_API const char *DistReducerForward(DistReducer reducer, bool reduced)
    CGOTORCH_SYMBOL(DistReducerForward);
/* After one whose gradients are, with what it returned: gives out what is to be used in its place,
 * n tensors. */
CGOTORCH_API const char *DistReducerBackward(DistReducer reducer, const Tensor *outputs, int64_t n,
                                             Tensor *results) CGOTORCH_SYMBOL(DistReducerBackward);
CGOTORCH_API void DistReducerFree(DistReducer reducer) CGOTORCH_SYMBOL(DistReducerFree);

/* Copies the root's tensors into the others', many at a time. Nothing is recorded, and what saved
 * the tensors for a backward pass does not see them change. */
CGOTORCH_API const char *DistBroadcastCoalesced(DistGroup group, const Tensor *tensors, int64_t n,
                                                int64_t buffer_bytes, int64_t root)
    CGOTORCH_SYMBOL(DistBroadcastCoalesced);

#endif
