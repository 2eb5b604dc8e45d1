// Package ctorch is cgotorch in Go: the functions of the C headers, what a call of them needs, and how tensors meet Go's
// collector. It is the only package that uses cgo, and stands below gotorch as syscall stands below os. So it knows tensors as
// handles and [Word]s only, and a failure as the [Message] that C gives, of which gotorch.ErrorFromC makes an error.
//
// bindings_gen.go has the functions of the headers by hand that Go uses: pytorch_bridge/codegen/ctorch.py writes it. A function
// that is new in Go comes into it with make generate.
package ctorch

// Inside this repository the library is build/lib/libcgotorch.so. A program elsewhere builds with
// -tags pkgconfig and finds it through cgotorch.pc.

// The C functions of operators are called by thunks. The files that name one include ops_gen.h.

/*
#cgo CFLAGS: -DCGOTORCH_WITHOUT_OPS
#cgo !pkgconfig CFLAGS: -I${SRCDIR}/../../../cgotorch
#cgo !pkgconfig LDFLAGS: -L${SRCDIR}/../../../build/lib -lcgotorch -Wl,-rpath,${SRCDIR}/../../../build/lib
#cgo pkgconfig pkg-config: cgotorch
#cgo LDFLAGS: -lm
#cgo noescape pow
#cgo nocallback pow
#cgo noescape cos
#cgo nocallback cos
#cgo noescape sin
#cgo nocallback sin
#cgo noescape tan
#cgo nocallback tan
#cgo noescape log
#cgo nocallback log
#include <cgotorch.h>
#include <math.h>
#include <stdlib.h>
*/
import "C"

import (
	"slices"
	"unsafe"
)

// Char is C's char: *Char is a string of C's.
type Char = C.char

// CString copies a string to C's memory, for [CFree].
func CString(s string) *Char { return C.CString(s) }

// CStrings is [CString] for several, which [FreeStrings] frees.
func CStrings(ss []string) []*Char {
	cs := make([]*Char, len(ss))
	for i, s := range ss {
		cs[i] = CString(s)
	}
	return cs
}

// FreeStrings frees what [CStrings] has made.
func FreeStrings(cs []*Char) {
	for _, c := range cs {
		CFree(unsafe.Pointer(c))
	}
}

// GoString copies a string of C's.
func GoString(s *Char) string { return C.GoString(s) }

// GoStringN copies n bytes of C's as a string.
func GoStringN(s *Char, n int64) string {
	return string(unsafe.Slice((*byte)(unsafe.Pointer(s)), n))
}

// GoBytes copies n bytes of C's.
func GoBytes(p unsafe.Pointer, n int64) []byte { return slices.Clone(unsafe.Slice((*byte)(p), n)) }

// CMalloc is C's malloc, and CFree its free.
func CMalloc(n int) unsafe.Pointer { return C.malloc(C.size_t(n)) }

// CFree frees what [CString] or [CMalloc] has made; nil is nothing.
func CFree(p unsafe.Pointer) { C.free(p) }

// CArray copies a list to where C may keep a pointer to it while it is called: for [CFree]. It is nil for an empty list.
func CArray[T any](values []T) *T {
	if len(values) == 0 {
		return nil
	}
	p := (*T)(CMalloc(len(values) * int(unsafe.Sizeof(values[0]))))
	copy(unsafe.Slice(p, len(values)), values)
	return p
}

// TakeArray copies an array that C has made, and frees it; NULL is nil.
func TakeArray[T any](data unsafe.Pointer, n int64) []T {
	defer FreeArray(data)
	return slices.Clone(unsafe.Slice((*T)(data), n))
}

// Pointer returns an address that C gave as a pointer.
func Pointer(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }

// The mathematics of the C library: see package libm.

func Pow(x, y float64) float64 { return float64(C.pow(C.double(x), C.double(y))) }
func Cos(x float64) float64    { return float64(C.cos(C.double(x))) }
func Sin(x float64) float64    { return float64(C.sin(C.double(x))) }
func Tan(x float64) float64    { return float64(C.tan(C.double(x))) }
func Log(x float64) float64    { return float64(C.log(C.double(x))) }
