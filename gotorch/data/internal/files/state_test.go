package files

import (
	"errors"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/testhelp"
)

func TestAStateIsOfAFileThatTheStreamHas(t *testing.T) {
	for file, fits := range map[int]bool{0: true, 2: true, 3: true, 4: false, -1: false} { // 3: behind the last one
		state := (&Position{Kind: "a.Stream", Files: 3, File: file, Offset: 5, Sample: 7}).StateDict()
		at := Position{Kind: "a.Stream", Files: 3}
		before := at
		err := at.LoadStateDict(state)
		switch {
		case fits:
			testhelp.Must(t, err)
			if at != (Position{Kind: "a.Stream", Files: 3, File: file, Offset: 5, Sample: 7}) {
				t.Errorf("file %d: got %v", file, at)
			}
		case !errors.Is(err, gotorch.ValueError) || at != before:
			t.Errorf("file %d: got %v, and %v", file, err, at)
		}
	}
}
