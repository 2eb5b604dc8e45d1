// Package lean frees what modules make on their way, where nothing keeps it.
package lean

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
)

// Run returns what compute returns. Where all layers that it calls forget what they are given, the rest of what
// it makes is freed at once.
func Run(forgets bool, compute func() gotorch.Tensor) gotorch.Tensor {
	if !forgets {
		return compute()
	}
	return gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor { return compute() })
}

// Forget reports whether all layers forget what they are given; those that are nil do.
func Forget(layers ...nn.Layer) bool {
	for _, layer := range layers {
		if layer != nil && !nn.Forgets(layer) {
			return false
		}
	}
	return true
}
