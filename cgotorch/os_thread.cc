// os_thread.cc: see os_thread.h.
#include "os_thread.h"

static __thread cgotorch_thread thread __attribute__((tls_model("initial-exec")));

struct cgotorch_thread *cgotorch_this_thread(void) { return &thread; }

bool cgotorch_in_callback(void) { return thread.callbacks != 0; }
