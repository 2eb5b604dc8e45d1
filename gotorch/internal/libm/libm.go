// Package libm has the functions of the C library's mathematics whose last bit Go's package math rounds
// otherwise. Python computes with the C library, and so does PyTorch.
package libm

import "gotorch.dev/gotorch/internal/door"

// Pow returns x to the power y.
func Pow(x, y float64) float64 { return door.Pow(x, y) }

// Cos returns the cosine of x.
func Cos(x float64) float64 { return door.Cos(x) }

// Sin returns the sine of x.
func Sin(x float64) float64 { return door.Sin(x) }

// Tan returns the tangent of x.
func Tan(x float64) float64 { return door.Tan(x) }

// Log returns the natural logarithm of x.
func Log(x float64) float64 { return door.Log(x) }
