package serve

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestVersionsAreOrderedAsNumbersOfAnyLengthAfterText(t *testing.T) {
	want := []string{"", "+1", "-1", "00", "01", "0x1", "1.0", "1_0", "1e3", "beta", "v2", "\u0661",
		"0", "1", "2", "9", "10", "18446744073709551615", "18446744073709551616", "99999999999999999999",
		"999999999999999999999", "1000000000000000000000"}
	for range 20 {
		got := slices.Clone(want)
		rand.Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
		slices.SortFunc(got, compareVersions)
		if !slices.Equal(got, want) {
			t.Fatalf("got %q", got)
		}
	}
	for i, a := range want {
		for j, b := range want {
			if got := compareVersions(a, b); (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("%q and %q are compared as %d", a, b, got)
			}
		}
	}
}
