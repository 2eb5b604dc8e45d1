// What Go keeps about an OS thread.
//
// Modes and scopes are the state of a thread, and so is what the thread is inside of. Go has no
// state of a goroutine; one that is locked to its thread finds its own here.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

// All zeros at first. Only Go writes here.
struct cgotorch_thread {
  int64_t within;     // which kind of call the thread is inside of
  int64_t callbacks;  // how many functions it is inside of that this library has called
  int64_t locks;      // for how many reasons gotorch has locked a goroutine to it
  void *scope;        // the innermost scope, also where gotorch.Unscoped has put it aside
};

// That of the calling thread: only this thread may look at it.
struct cgotorch_thread *cgotorch_this_thread(void);
// Whether its callbacks are not 0; for who may be on another thread by the next call.
bool cgotorch_in_callback(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
