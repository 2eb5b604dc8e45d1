// Package libm has the functions of the C library's mathematics whose last bit Go's package math rounds
// otherwise. Python computes with the C library, and so does PyTorch.
package libm

import "gotorch.dev/gotorch/internal/ctorch"

// Pow returns x to the power y.
func Pow(x, y float64) float64 { return ctorch.Pow(x, y) }

// Cos returns the cosine of x.
func Cos(x float64) float64 { return ctorch.Cos(x) }

// Sin returns the sine of x.
func Sin(x float64) float64 { return ctorch.Sin(x) }

// Tan returns the tangent of x.
func Tan(x float64) float64 { return ctorch.Tan(x) }

// Log returns the natural logarithm of x.
func Log(x float64) float64 { return ctorch.Log(x) }
