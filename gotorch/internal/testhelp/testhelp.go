// Package testhelp is what tests of several packages share, those too that gotorch itself is built on.
package testhelp

import "testing"

// Must ends the test if there is an error.
func Must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
