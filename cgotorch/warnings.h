/* warnings.h: what libtorch warns of. Included by cgotorch.h, inside its extern "C".
 *
 * Without a handler libtorch prints a warning to the standard error each time it is given. */
#ifndef CGOTORCH_WARNINGS_H
#define CGOTORCH_WARNINGS_H

/* kind is the class of Python's warning, "UserWarning" or "DeprecationWarning", message its text.
 * Both are borrowed.
 *
 * A handler runs in the middle of the call that warns, on that call's thread; several may do so at
 * once. libtorch may hold locks then, so a handler must not call this library. Warnings of a
 * backward pass come at its end, from the thread that began it. Those of threads that libtorch
 * computes with, which are rare, do not reach the handler but are printed. */
typedef void (*WarningHandler)(void *data, const char *kind, const char *message);

/* Makes handler the one that every warning is given to; NULL lets libtorch print again. Threads on
 * which another handler of libtorch's is in place, as Python's is inside Python's own calls, keep
 * that. release, where not NULL, is called with data once the handler has been replaced and is not
 * running any more, on any thread. MemoryError, in which case data is neither kept nor released. */
CGOTORCH_API const char *SetWarningHandler(WarningHandler handler, void *data,
                                           void (*release)(void *data))
    CGOTORCH_SYMBOL(SetWarningHandler);

/* A handler that prints "DATA MESSAGE" to the standard error, but the same message only once; data
 * is a string, or NULL. */
CGOTORCH_API void PrintWarningOnce(void *data, const char *kind, const char *message)
    CGOTORCH_SYMBOL(PrintWarningOnce);

/* Warnings gathered --------------------------------------------------------------------------- */

/* A caller whose handler is not a C function gathers the warnings of a call instead, and hands them
 * on when the call has returned:
 *
 *     struct cgotorch_warnings *w = cgotorch_gather_warnings();
 *     ... a call ...
 *     w = cgotorch_gathered_warnings(w);
 *     if (w != NULL) { ... cgotorch_warning ...; cgotorch_free_warnings(w, false); }
 */
struct cgotorch_warnings;

/* From now on the calling thread's warnings are gathered and go to no handler. Calls nest, also
 * with a backward pass and its hooks in between. */
CGOTORCH_API struct cgotorch_warnings *cgotorch_gather_warnings(void);
/* Ends what the last cgotorch_gather_warnings on this thread began, which returned w. The result is
 * w if there were warnings; else NULL, and w is gone. */
CGOTORCH_API struct cgotorch_warnings *cgotorch_gathered_warnings(struct cgotorch_warnings *w);
/* Puts aside what the thread gathers, for code that is called back, and takes it up again: makes w
 * what is gathered into and returns what was. NULL is nothing. */
CGOTORCH_API struct cgotorch_warnings *cgotorch_swap_warnings(struct cgotorch_warnings *w);
/* Message and kind of warning i, borrowed; NULL behind the last. */
CGOTORCH_API const char *cgotorch_warning(const struct cgotorch_warnings *w, int64_t i,
                                          const char **kind);
/* With results true also frees all tensors that the thread was given since the first warning, and
 * the arrays of a block that they are in: the caller has refused the results of its call. */
CGOTORCH_API void cgotorch_free_warnings(struct cgotorch_warnings *w, bool results);

#endif
