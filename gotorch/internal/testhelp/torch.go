package testhelp

import (
	"strconv"
	"strings"
	"testing"
)

// Since is what tests need of PyTorch and what older versions lack.
type Since struct {
	version string // the first with it
	what    string
}

// All that the tests need and that some PyTorch lacks for which gotorch can be built. A test asks here, so
// that nothing is skipped for another reason, and that what no supported version lacks any more is found in
// one place.
var (
	BComplex32     = Since{"2.14", "the dtype bcomplex32"}
	AOTIAssertions = Since{"2.13", "assertions of all sizes in the source of a compiled package"}
	IndexErrors    = Since{"2.15", "what the recorded errors of indexing say, and of which class one is"}
)

// In reports whether a version of PyTorch, as gotorch.TorchVersion has it, is new enough. Where it is not, the
// test's log says what it lacks, because the test is about to leave something out.
func (s Since) In(tb testing.TB, torch string) bool {
	tb.Helper()
	has, needs := numbers(torch), numbers(s.version)
	if has[0] > needs[0] || has[0] == needs[0] && has[1] >= needs[1] {
		return true
	}
	tb.Logf("left out, because torch %s lacks what came with %s: %s", torch, s.version, s.what)
	return false
}

// numbers returns the first two of a version, "2.15.0a0+cu132".
func numbers(version string) (n [2]int) {
	for i, part := range strings.SplitN(version, ".", 3)[:2] {
		number, err := strconv.Atoi(part)
		if err != nil {
			panic("no version of PyTorch: " + version)
		}
		n[i] = number
	}
	return n
}
