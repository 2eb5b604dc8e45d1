// Package libm has the functions of the C library's mathematics whose last bit Go's package math rounds
// otherwise. Python computes with the C library, and so does PyTorch.
package libm

/*
#cgo LDFLAGS: -lm
#cgo noescape pow
#cgo nocallback pow
#cgo noescape cos
#cgo nocallback cos
#cgo noescape log
#cgo nocallback log
#include <math.h>
*/
import "C"

// Pow returns x to the power y.
func Pow(x, y float64) float64 { return float64(C.pow(C.double(x), C.double(y))) }

// Cos returns the cosine of x.
func Cos(x float64) float64 { return float64(C.cos(C.double(x))) }

// Log returns the natural logarithm of x.
func Log(x float64) float64 { return float64(C.log(C.double(x))) }
