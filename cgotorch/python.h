/* python.h: for a process in which a Python interpreter lives. Not included by cgotorch.h. */
#ifndef CGOTORCH_PYTHON_H
#define CGOTORCH_PYTHON_H

#ifdef __cplusplus
extern "C" {
#endif

/* Stops every other thread at its next call into this library, for good; returns when those that
 * were inside have had a moment to get out. The caller must not hold Python's lock.
 *
 * Go's threads go on while the interpreter, and then libtorch, take themselves apart at the end of
 * the process; without this they crash in what is left. Python's own threads stop in the same way.
 */
__attribute__((visibility("default"))) void cgotorch_end_other_threads(void);

#ifdef __cplusplus
}
#endif

#endif /* CGOTORCH_PYTHON_H */
