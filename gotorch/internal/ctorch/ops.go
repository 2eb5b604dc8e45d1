package ctorch

/*
#include <cgotorch.h>
#include <ops_gen.h>
*/
import "C"

// Functions of ops_gen.h by their names.

// RetainGradOf has backward passes keep the gradient of a tensor that is no leaf.
func RetainGradOf(t Tensor) Message { return C.RetainGradOf(t) }

// UncoalescedIndices is _Indices of ops_gen.h, and UncoalescedValues _Values: they take any sparse tensor.
func UncoalescedIndices(t Tensor, result *Tensor) Message { return C._Indices(t, result) }

// UncoalescedValues is _Values of ops_gen.h.
func UncoalescedValues(t Tensor, result *Tensor) Message { return C._Values(t, result) }
