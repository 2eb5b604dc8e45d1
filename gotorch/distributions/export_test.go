package distributions

import (
	"slices"
	"testing"
)

// KeepDivergences has what a test registers forgotten at its end, so that it can run again.
func KeepDivergences(tb testing.TB) {
	divergences.RLock()
	defer divergences.RUnlock()
	before := slices.Clone(divergences.known)
	tb.Cleanup(func() {
		divergences.Lock()
		defer divergences.Unlock()
		divergences.known = before
	})
}
