package rnn_test

import (
	"errors"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn/utils/rnn"
)

func TestUnpadSequenceTakesOneLengthForEach(t *testing.T) {
	padded := gotorch.Ones([]int64{3, 2, 4})
	for _, lengths := range [][]int64{{1}, {1, 2, 3}} {
		if err := gotorch.Try0(func() { rnn.UnpadSequence(padded, gotorch.FromSlice(lengths)) }); !errors.Is(err, gotorch.ValueError) {
			t.Errorf("lengths %v: %v", lengths, err)
		}
	}
	// PyTorch takes what comes before the length.
	got := rnn.UnpadSequence(padded, gotorch.FromSlice([]int64{-1, 9}))
	if got[0].Size(0) != 0 || got[1].Size(0) != 3 {
		t.Errorf("got %v", got)
	}
}
