package gotorch

/*
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
#include <math.h>
*/
import "C"

import "gotorch.dev/gotorch/internal/door"

func init() {
	door.Pow = func(x, y float64) float64 { return float64(C.pow(C.double(x), C.double(y))) }
	door.Cos = func(x float64) float64 { return float64(C.cos(C.double(x))) }
	door.Sin = func(x float64) float64 { return float64(C.sin(C.double(x))) }
	door.Tan = func(x float64) float64 { return float64(C.tan(C.double(x))) }
	door.Log = func(x float64) float64 { return float64(C.log(C.double(x))) }
}
