/* distributed.h: what torch.distributed stands on: stores, process groups and their collectives
 * (c10d). Included by cgotorch.h, inside its extern "C".
 *
 * A function that begins a collective gives out a DistWork, whether the caller waits or not. What
 * it was given is kept until it has ended. All ranks of a group must call the same collectives in
 * the same order.
 *
 * Errors that have their own kinds: DistNetworkError where a connection broke or could not be made,
 * DistTimeoutError where a time limit passed, DistStoreError where a store failed. */
#ifndef CGOTORCH_DISTRIBUTED_H
#define CGOTORCH_DISTRIBUTED_H

typedef struct cgotorch_store *DistStore;
typedef struct cgotorch_group *DistGroup;
typedef struct cgotorch_work *DistWork;

/* Whether this libtorch has c10d with gloo as this library expects it: groups of one rank are made
 * and reduce tensors. RuntimeError where not. The first call is the test, which takes a
 * millisecond; later ones repeat what came out. */
CGOTORCH_API const char *DistSelfTest(void) CGOTORCH_SYMBOL(DistSelfTest);

/* c10d's debug level: 0 off, 1 info, 2 detail: groups that are made from then on compare, before
 * each collective, what the ranks are about to do, and give an error where that differs. All ranks
 * need the same, those of Python too. -1: what the variable TORCH_DISTRIBUTED_DEBUG says. */
CGOTORCH_API const char *DistSetDebugLevel(int64_t level) CGOTORCH_SYMBOL(DistSetDebugLevel);
CGOTORCH_API int64_t DistDebugLevel(void) CGOTORCH_SYMBOL(DistDebugLevel);

/* Stores: keys and values that the ranks share. Any thread may use one.
 * ------------------------------------------------------------- */

typedef struct {
  const char *host;
  int64_t port;       /* of a server 0 takes a free one, see DistStorePort */
  int64_t world_size; /* -1: not known */
  bool server;        /* this process holds the keys */
  bool wait_for_workers;
  bool multi_tenant; /* servers of this process at the same port are one */
  bool no_libuv;
  int64_t timeout_ms;
} DistTCPOptions;

CGOTORCH_API const char *DistTCPStore(const DistTCPOptions *options, DistStore *result)
    CGOTORCH_SYMBOL(DistTCPStore);
/* world_size -1: not known. The last of world_size processes that frees its store removes the file.
 */
CGOTORCH_API const char *DistFileStore(const char *path, int64_t world_size, DistStore *result)
    CGOTORCH_SYMBOL(DistFileStore);
/* Within this process only. */
CGOTORCH_API const char *DistHashStore(DistStore *result) CGOTORCH_SYMBOL(DistHashStore);
/* Puts prefix and a slash in front of keys. */
CGOTORCH_API const char *DistPrefixStore(const char *prefix, DistStore store, DistStore *result)
    CGOTORCH_SYMBOL(DistPrefixStore);
/* Another connection to the same keys: one store takes one call at a time. */
CGOTORCH_API const char *DistStoreClone(DistStore store, DistStore *result)
    CGOTORCH_SYMBOL(DistStoreClone);
CGOTORCH_API void DistStoreFree(DistStore store) CGOTORCH_SYMBOL(DistStoreFree);

/* ValueError for a store that is not TCP's. */
CGOTORCH_API const char *DistStorePort(DistStore store, int64_t *result)
    CGOTORCH_SYMBOL(DistStorePort);
/* How long DistStoreGet and the like wait. */
CGOTORCH_API const char *DistStoreSetTimeout(DistStore store, int64_t timeout_ms)
    CGOTORCH_SYMBOL(DistStoreSetTimeout);
CGOTORCH_API const char *DistStoreGetTimeout(DistStore store, int64_t *result)
    CGOTORCH_SYMBOL(DistStoreGetTimeout);
CGOTORCH_API const char *DistStoreSet(DistStore store, const char *key, const void *value,
                                      int64_t n) CGOTORCH_SYMBOL(DistStoreSet);
/* Waits for the key. value is malloc'ed, for FreeArray. */
CGOTORCH_API const char *DistStoreGet(DistStore store, const char *key, void **value, int64_t *n)
    CGOTORCH_SYMBOL(DistStoreGet);
/* Adds to a number, 0 where there is none, and returns the sum. */
CGOTORCH_API const char *DistStoreAdd(DistStore store, const char *key, int64_t add,
                                      int64_t *result) CGOTORCH_SYMBOL(DistStoreAdd);
CGOTORCH_API const char *DistStoreAppend(DistStore store, const char *key, const void *value,
                                         int64_t n) CGOTORCH_SYMBOL(DistStoreAppend);
/* Sets the key to desired where it has the value expected, or where it is not there and expected is
 * empty; gives out what it has now, as DistStoreGet does. */
CGOTORCH_API const char *DistStoreCompareSet(DistStore store, const char *key, const void *expected,
                                             int64_t n_expected, const void *desired,
                                             int64_t n_desired, void **value, int64_t *n)
    CGOTORCH_SYMBOL(DistStoreCompareSet);
CGOTORCH_API const char *DistStoreDelete(DistStore store, const char *key, bool *was_there)
    CGOTORCH_SYMBOL(DistStoreDelete);
CGOTORCH_API const char *DistStoreCheck(DistStore store, const char *const *keys, int64_t n,
                                        bool *all_there) CGOTORCH_SYMBOL(DistStoreCheck);
/* timeout_ms -1: the store's. */
CGOTORCH_API const char *DistStoreWait(DistStore store, const char *const *keys, int64_t n,
                                       int64_t timeout_ms) CGOTORCH_SYMBOL(DistStoreWait);
CGOTORCH_API const char *DistStoreNumKeys(DistStore store, int64_t *result)
    CGOTORCH_SYMBOL(DistStoreNumKeys);

/* Groups
 * ------------------------------------------------------------------------------------------- */

typedef struct {
  const char *backend; /* "gloo", which is NULL too, or "cpu:gloo,cuda:nccl" */
  const char *name;    /* the same on all ranks; keys in the store begin with it */
  const char *description;
  int64_t timeout_ms;
  const int64_t *ranks; /* the ranks that are in the group, as the whole job counts them */
  int64_t n_ranks;      /* 0: all */
} DistGroupOptions;

/* Makes a group of size ranks, in which the caller is rank, as torch.distributed makes it: its
 * ranks may be of Python. Waits for all of them. The network interface is that of the variable
 * GLOO_SOCKET_IFNAME. */
CGOTORCH_API const char *DistNewGroup(DistStore store, int64_t rank, int64_t size,
                                      const DistGroupOptions *options, DistGroup *result)
    CGOTORCH_SYMBOL(DistNewGroup);
/* Waits for collectives that have begun. */
CGOTORCH_API void DistGroupFree(DistGroup group) CGOTORCH_SYMBOL(DistGroupFree);
CGOTORCH_API const char *DistGroupSetTimeout(DistGroup group, int64_t timeout_ms)
    CGOTORCH_SYMBOL(DistGroupSetTimeout);

/* Collectives
 * -------------------------------------------------------------------------------------- */

/* The numbers of c10d::ReduceOp. */
enum {
  DistSum = 0,
  DistAvg = 1,
  DistProduct = 2,
  DistMin = 3,
  DistMax = 4,
  DistBand = 5,
  DistBor = 6,
  DistBxor = 7,
};

/* What a collective does not need stays zero. */
typedef struct {
  int32_t op;         /* DistSum, ... */
  int64_t root;       /* the rank in the group from which or to which tensors go */
  int64_t timeout_ms; /* 0: the group's */
} DistOptions;

CGOTORCH_API const char *DistBroadcast(DistGroup group, Tensor tensor, const DistOptions *options,
                                       DistWork *result) CGOTORCH_SYMBOL(DistBroadcast);
CGOTORCH_API const char *DistAllReduce(DistGroup group, Tensor tensor, const DistOptions *options,
                                       DistWork *result) CGOTORCH_SYMBOL(DistAllReduce);
CGOTORCH_API const char *DistAllReduceCoalesced(DistGroup group, const Tensor *tensors, int64_t n,
                                                const DistOptions *options, DistWork *result)
    CGOTORCH_SYMBOL(DistAllReduceCoalesced);
CGOTORCH_API const char *DistReduce(DistGroup group, Tensor tensor, const DistOptions *options,
                                    DistWork *result) CGOTORCH_SYMBOL(DistReduce);
CGOTORCH_API const char *DistAllGather(DistGroup group, const Tensor *outputs, int64_t n,
                                       Tensor input, const DistOptions *options, DistWork *result)
    CGOTORCH_SYMBOL(DistAllGather);
CGOTORCH_API const char *DistAllGatherSingle(DistGroup group, Tensor output, Tensor input,
                                             const DistOptions *options, DistWork *result)
    CGOTORCH_SYMBOL(DistAllGatherSingle);
/* Of tensors in the computer's memory: NotImplementedError for others. */
CGOTORCH_API const char *DistAllGatherSingleCoalesced(DistGroup group, const Tensor *outputs,
                                                      const Tensor *inputs, int64_t n,
                                                      const DistOptions *options, DistWork *result)
    CGOTORCH_SYMBOL(DistAllGatherSingleCoalesced);
/* outputs on the root only. */
CGOTORCH_API const char *DistGather(DistGroup group, const Tensor *outputs, int64_t n, Tensor input,
                                    const DistOptions *options, DistWork *result)
    CGOTORCH_SYMBOL(DistGather);
/* inputs on the root only. */
CGOTORCH_API const char *DistScatter(DistGroup group, Tensor output, const Tensor *inputs,
                                     int64_t n, const DistOptions *options, DistWork *result)
    CGOTORCH_SYMBOL(DistScatter);
CGOTORCH_API const char *DistReduceScatter(DistGroup group, Tensor output, const Tensor *inputs,
                                           int64_t n, const DistOptions *options, DistWork *result)
    CGOTORCH_SYMBOL(DistReduceScatter);
CGOTORCH_API const char *DistReduceScatterSingle(DistGroup group, Tensor output, Tensor input,
                                                 const DistOptions *options, DistWork *result)
    CGOTORCH_SYMBOL(DistReduceScatterSingle);
CGOTORCH_API const char *DistReduceScatterSingleCoalesced(DistGroup group, const Tensor *outputs,
                                                          const Tensor *inputs, int64_t n,
                                                          const DistOptions *options,
                                                          DistWork *result)
    CGOTORCH_SYMBOL(DistReduceScatterSingleCoalesced);
CGOTORCH_API const char *DistAllToAll(DistGroup group, const Tensor *outputs, int64_t n_outputs,
                                      const Tensor *inputs, int64_t n_inputs,
                                      const DistOptions *options, DistWork *result)
    CGOTORCH_SYMBOL(DistAllToAll);
/* The counts are rows for each rank; without any, all ranks get as many. */
CGOTORCH_API const char *DistAllToAllSingle(DistGroup group, Tensor output, Tensor input,
                                            const int64_t *output_counts, int64_t n_output_counts,
                                            const int64_t *input_counts, int64_t n_input_counts,
                                            const DistOptions *options, DistWork *result)
    CGOTORCH_SYMBOL(DistAllToAllSingle);
/* options->root is the rank that gets it. */
CGOTORCH_API const char *DistSend(DistGroup group, Tensor tensor, int64_t tag,
                                  const DistOptions *options, DistWork *result)
    CGOTORCH_SYMBOL(DistSend);
/* options->root is the rank that sends it, or -1 for any: see DistWorkSource. */
CGOTORCH_API const char *DistRecv(DistGroup group, Tensor tensor, int64_t tag,
                                  const DistOptions *options, DistWork *result)
    CGOTORCH_SYMBOL(DistRecv);
CGOTORCH_API const char *DistBarrier(DistGroup group, const DistOptions *options, DistWork *result)
    CGOTORCH_SYMBOL(DistBarrier);
/* Rank 0 says which ranks did not come; with all, all of them. */
CGOTORCH_API const char *DistMonitoredBarrier(DistGroup group, const DistOptions *options, bool all)
    CGOTORCH_SYMBOL(DistMonitoredBarrier);

/* Waits until it has ended, for timeout_ms at most, or as long as the group does where it is 0.
 * Once this has failed nothing more comes of it. */
CGOTORCH_API const char *DistWorkWait(DistWork work, int64_t timeout_ms)
    CGOTORCH_SYMBOL(DistWorkWait);
CGOTORCH_API const char *DistWorkDone(DistWork work, bool *result) CGOTORCH_SYMBOL(DistWorkDone);
/* The rank in the group that sent what was received. */
CGOTORCH_API const char *DistWorkSource(DistWork work, int64_t *result)
    CGOTORCH_SYMBOL(DistWorkSource);
/* Ends what DistSend and DistRecv began. NotImplementedError for others. */
CGOTORCH_API const char *DistWorkAbort(DistWork work) CGOTORCH_SYMBOL(DistWorkAbort);
CGOTORCH_API void DistWorkFree(DistWork work) CGOTORCH_SYMBOL(DistWorkFree);

#endif
