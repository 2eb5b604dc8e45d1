/* runtime.h: one entry point for all functions, the state of a thread, versions, threads and CUDA.
 * Included by cgotorch.h, inside its extern "C". */
#ifndef CGOTORCH_RUNTIME_H
#define CGOTORCH_RUNTIME_H

/* The table of thunks ------------------------------------------------------------------------ */

/* Every generated function can also be reached by number, with its arguments in a block of 8-byte
 * members: a reserved word, the inputs, the outputs (thunks_gen.cc says which number has which
 * block). This is how Go calls them: one entry compiles in no time, and a block costs nothing. */
struct cgotorch_block {
  int64_t
      scope; /* out: this thread's scope, see cgotorch_scope_enter; see cgotorch_run for errors */
};

/* Runs function i. On failure block->scope is the error message's address plus one; otherwise it is
 * even. Go returns from a C function without a result sooner than from one with. */
CGOTORCH_API void cgotorch_run(int64_t i, struct cgotorch_block *block);
/* Returns the error that is in a block, and takes it out. */
CGOTORCH_API const char *cgotorch_block_error(struct cgotorch_block *block);
/* The same, with the error as the result, as everywhere else. */
CGOTORCH_API const char *cgotorch_call(int64_t i, struct cgotorch_block *block);

/* A word of the calling thread for the caller's use; returns the previous value. Go keeps there
 * whether the call that the thread is inside counts against its bound on calls at a time. */
CGOTORCH_API int64_t cgotorch_swap_word(int64_t word);

/* A hash of every block's layout. A caller generated from another list of functions must not use
 * cgotorch_call. Static; not to be freed. */
CGOTORCH_API const char *cgotorch_api_hash(void);

/* Scopes ------------------------------------------------------------------------------------- */

/* A scope is an opaque word of the calling thread, an address or 0; cgotorch_call stores the
 * current one in each block, so that the caller knows where its results belong. */

/* Makes scope the current one and returns the previous one. */
CGOTORCH_API void *cgotorch_scope_enter(int64_t scope);
/* Makes previous the current one again and closes n small tensors, whose words lie in one row: see
 * words.h. */
CGOTORCH_API bool cgotorch_scope_leave(int64_t previous, int64_t *row, int64_t n);
CGOTORCH_API void *cgotorch_scope_get(void);

/* Words -------------------------------------------------------------------------------------- */

/* A word is memory of the caller's with a handle in it, 0 once the tensor is closed; here they are
 * passed by their addresses. Blocks have words for tensors, and addresses of words for lists of
 * them: so a tensor may be closed while calls use it, and before. A call finds the handle in each
 * of its words, and it is freed after the call; or fails with a ValueError. */

/* Takes the handles out of n words and frees them, now or when the calls that use them are done.
 * Small tensors wait for some more, to be freed together; all are taken for such if small is true.
 * Words without a handle are skipped. It returns whether there are handles that wait. */
CGOTORCH_API bool cgotorch_close(const int64_t *words, int64_t n, bool small);
/* Frees what waits, except for what is in use, and returns whether there was some. */
CGOTORCH_API bool cgotorch_free_closed(void);
/* Returns a second handle to the tensor in a word; NULL if it was closed, or memory is out. */
CGOTORCH_API Tensor cgotorch_hold(int64_t word);

/* FreeTensors for handles that are stored as integers: cgo inspects what pointers to pointers point
 * to, which takes longer than to free it. */
CGOTORCH_API void cgotorch_free(const int64_t *handles, int64_t n);

/* What blocks say about a tensor in their outputs: 0, or an odd number when it is big, or part of
 * an autograd graph, so that it must not be kept alive together with others. Of a big one on a
 * device the rest says which device and how big: see thunk.h. */
CGOTORCH_API int64_t cgotorch_meta(Tensor t);

/* Counters ----------------------------------------------------------------------------------- */

/* Tensor handles given out and freed since the start, over all threads, also those that ended. */
CGOTORCH_API void cgotorch_handles(int64_t *made, int64_t *freed);

/* OS threads that have used this library and still live. Never changes place; read it atomically.
 */
CGOTORCH_API const int64_t *cgotorch_threads(void);

/* Contexts handed back: cgotorch_queue_token puts tokens into a queue, because a free must not
 * call into the caller's language. Takes up to n of them; returns how many. */
CGOTORCH_API int64_t cgotorch_take_tokens(int64_t *tokens, int64_t n);
/* How many tokens were queued since the start. Never changes place; read it atomically. */
CGOTORCH_API const int64_t *cgotorch_tokens_queued(void);
/* Puts token into the queue: a deleter for FromBlob and others, with the token as the context. */
CGOTORCH_API void cgotorch_queue_token(void *token);

/* Versions ----------------------------------------------------------------------------------- */

/* "2.15.0": the torch whose headers this library was compiled with. */
CGOTORCH_API const char *cgotorch_torch_built(void);
/* "2.15.0+cu132": the torch that is loaded, by the version.py beside it; "" where there is none.
 * Static; not to be freed. */
CGOTORCH_API const char *cgotorch_torch_loaded(void);
/* The folder of the libtorch_cpu.so that is loaded. Static; not to be freed. */
CGOTORCH_API const char *cgotorch_torch_lib(void);
/* NULL when library and torch belong together; else one line that says what to do. Free it. */
CGOTORCH_API const char *cgotorch_check(void);
/* Whether a Python interpreter lives in this process. */
CGOTORCH_API bool cgotorch_in_python(void);

/* CUDA --------------------------------------------------------------------------------------- */

/* libtorch_cuda.so costs 0.2 s and 250 MB, so it is loaded when CUDA is first asked about: by these
 * functions, or by naming a CUDA device in any call. */

/* NULL when CUDA tensors can be made; else a RuntimeError that says what is missing. */
CGOTORCH_API const char *CUDALoad(void) CGOTORCH_SYMBOL(CUDALoad);
CGOTORCH_API bool CUDAIsAvailable(void) CGOTORCH_SYMBOL(CUDAIsAvailable);
/* 0 where CUDA is not available. */
CGOTORCH_API int64_t CUDADeviceCount(void) CGOTORCH_SYMBOL(CUDADeviceCount);
/* Whether libtorch_cuda.so is in the process already; loads nothing. */
CGOTORCH_API bool CUDAIsLoaded(void) CGOTORCH_SYMBOL(CUDAIsLoaded);
/* Waits for all work on a device; index -1 is the current one. */
CGOTORCH_API const char *CUDASynchronize(int64_t index) CGOTORCH_SYMBOL(CUDASynchronize);

/* Threads ------------------------------------------------------------------------------------ */

/* Threads that one op may use. Setting it holds for every thread that calls in from then on, also
 * for those that ran an op before (at::set_num_threads alone does not reach them). */
CGOTORCH_API int64_t GetNumThreads(void) CGOTORCH_SYMBOL(GetNumThreads);
CGOTORCH_API const char *SetNumThreads(int64_t n) CGOTORCH_SYMBOL(SetNumThreads);
/* Says that so many threads call in at a time: they divide libtorch's default number of threads
 * among themselves, on each from its next call on, so that there are not more in all than
 * processors. It has no effect after SetNumThreads, nor while deterministic algorithms are asked
 * for, because sums depend on the number of threads in their last bits. */
CGOTORCH_API void cgotorch_share_threads(int64_t callers);
/* Sets the threads per op of the calling thread alone, whatever holds for the others then or later,
 * and returns what it was; 0: as many as for the others. GetNumThreads tells it there. It does
 * nothing where libtorch has no OpenMP. */
CGOTORCH_API int64_t cgotorch_own_threads(int64_t n);
CGOTORCH_API int64_t GetNumInteropThreads(void) CGOTORCH_SYMBOL(GetNumInteropThreads);
/* Only before the first inter-op work of the process; RuntimeError after. */
CGOTORCH_API const char *SetNumInteropThreads(int64_t n) CGOTORCH_SYMBOL(SetNumInteropThreads);

#endif
