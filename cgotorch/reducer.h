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
/* The buckets that gradients are reduced in, once the reducer has laid them out by the order in
 * which the first ones came: of each of the n parameters, in the order of the buckets, its index
 * among those of DistNewReducer and that of its bucket. laid_out is false before, and nothing is
 * written then. After a backward pass it may exchange tensors: all ranks must call it. */
CGOTORCH_API const char *DistReducerBuckets(DistReducer reducer, int64_t *parameters,
                                            int64_t *buckets, int64_t n, bool *laid_out)
    CGOTORCH_SYMBOL(DistReducerBuckets);
/* Lays the buckets out so, for good. All ranks must call it with the same, between passes.
 * ValueError if a parameter is missing or comes twice, or if buckets are not numbered from 0. */
CGOTORCH_API const char *DistReducerSetBuckets(DistReducer reducer, const int64_t *parameters,
                                               const int64_t *buckets, int64_t n)
    CGOTORCH_SYMBOL(DistReducerSetBuckets);
CGOTORCH_API void DistReducerFree(DistReducer reducer) CGOTORCH_SYMBOL(DistReducerFree);

/* Hooks that reduce gradients
 * ------------------------------------------------------------------------- */

/* The gradients of some parameters, one after the other, that are reduced together. It stays valid
 * until it is freed; any thread may use it. */
typedef struct cgotorch_bucket *DistBucket;

/* What takes the place of the all-reduce, on all ranks. All run on the thread of the backward pass,
 * or of DistReducerShadow. */
typedef struct {
  /* Begins to reduce a bucket, of which it becomes the owner. Buckets come in the same order on all
   * ranks. *pending stays NULL where the bucket is reduced when this returns. */
  const char *(*begin)(void *data, DistBucket bucket, void **pending);
  /* Ends it. It is called when all buckets have begun, in their order. What is in the bucket's
   * buffer then are the gradients. */
  const char *(*finish)(void *pending);
  /* Called once for each pending, after finish, or instead where the pass has failed. */
  void (*drop)(void *pending);
  void *data;
  void (*release)(void *data);
} DistCommHook;

/* RuntimeError where there is one already, or compression. A backward pass in which it fails, fails
 * with its error, and so does everything with this reducer after that. */
CGOTORCH_API const char *DistReducerRegisterHook(DistReducer reducer, const DistCommHook *hook)
    CGOTORCH_SYMBOL(DistReducerRegisterHook);
CGOTORCH_API int64_t DistBucketIndex(DistBucket bucket) CGOTORCH_SYMBOL(DistBucketIndex);
/* Whether it is the last of a backward pass. */
CGOTORCH_API bool DistBucketIsLast(DistBucket bucket) CGOTORCH_SYMBOL(DistBucketIsLast);
CGOTORCH_API const char *DistBucketBuffer(DistBucket bucket, Tensor *result)
    CGOTORCH_SYMBOL(DistBucketBuffer);
CGOTORCH_API const char *DistBucketSetBuffer(DistBucket bucket, Tensor buffer)
    CGOTORCH_SYMBOL(DistBucketSetBuffer);
/* Views of the buffer, in the shapes of the parameters. Of a sparse gradient there are none. */
CGOTORCH_API const char *DistBucketGradients(DistBucket bucket, Tensor **result,
                                             int64_t *result_len)
    CGOTORCH_SYMBOL(DistBucketGradients);
CGOTORCH_API const char *DistBucketParameters(DistBucket bucket, Tensor **result,
                                              int64_t *result_len)
    CGOTORCH_SYMBOL(DistBucketParameters);
CGOTORCH_API void DistBucketFree(DistBucket bucket) CGOTORCH_SYMBOL(DistBucketFree);

/* Ranks that have run out of batches
 * ------------------------------------------------------------------ */

/* The all-reduce in which ranks that still train count themselves, for the next backward pass.
 * divide_by_all: gradients are divided by the group's size nevertheless. */
CGOTORCH_API const char *DistReducerSetForwardWork(DistReducer reducer, DistWork work,
                                                   bool divide_by_all)
    CGOTORCH_SYMBOL(DistReducerSetForwardWork);
/* Has this rank take part in a backward pass of others, with gradients of zero. */
CGOTORCH_API const char *DistReducerShadow(DistReducer reducer) CGOTORCH_SYMBOL(DistReducerShadow);

/* Copies the root's tensors into the others', many at a time. Nothing is recorded, and what saved
 * the tensors for a backward pass does not see them change. */
CGOTORCH_API const char *DistBroadcastCoalesced(DistGroup group, const Tensor *tensors, int64_t n,
                                                int64_t buffer_bytes, int64_t root)
    CGOTORCH_SYMBOL(DistBroadcastCoalesced);

#endif
