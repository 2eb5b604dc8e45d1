package gotorch

// Inside this repository the library is build/lib/libcgotorch.so. A program elsewhere builds with
// -tags pkgconfig and finds it through cgotorch.pc.

// The C functions of operators are called by thunks. The two files that name one include ops_gen.h.

/*
#cgo CFLAGS: -DCGOTORCH_WITHOUT_OPS
#cgo !pkgconfig CFLAGS: -I${SRCDIR}/../cgotorch
#cgo !pkgconfig LDFLAGS: -L${SRCDIR}/../build/lib -lcgotorch -Wl,-rpath,${SRCDIR}/../build/lib
#cgo pkgconfig pkg-config: cgotorch
#include <cgotorch.h>
*/
import "C"
