// The allocator behind C++'s operator new, for the small objects that libtorch makes around every
// tensor: TensorImpl, StorageImpl, autograd's metadata and nodes.
//
// A Go program frees tensors in batches, when a scope ends or the collector has found them. malloc
// remembers only seven freed blocks of a size per thread and is slow for the rest; here each thread
// keeps thousands. It takes a third off an op in a scope.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Serves operator new from now on, if every library of the process was bound to this one's operator
// new and delete, and returns whether that is so. It is where the program was linked with this
// library; where the library was loaded later, as into Python, new stays malloc. Any thread may
// delete what any other made, before and after.
//
// What is freed is kept for further objects of its size and never returned to the system.
__attribute__((visibility("default"))) int cgotorch_install_objects(void);

// Bytes that the small objects' spans take, in use or free.
__attribute__((visibility("default"))) int64_t cgotorch_object_bytes(void);

#ifdef __cplusplus
}
#endif
