package rnn_test

import (
	"errors"
	"fmt"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/nn/utils/rnn"
)

func sequences() []gotorch.Tensor {
	var list []gotorch.Tensor
	for _, n := range []int64{2, 5, 3} {
		list = append(list, gotorch.Randn([]int64{n, 4}))
	}
	return list
}

func TestSequencesComeBack(t *testing.T) {
	all := sequences()
	packed := rnn.PackSequence(all, rnn.PackSequenceOptions{NoEnforceSorted: true})
	for i, got := range rnn.UnpackSequence(packed) {
		if !got.Equal(all[i]) {
			t.Errorf("sequence %d differs", i)
		}
	}
	padded := rnn.PadSequence(all, rnn.PadSequenceOptions{BatchFirst: true, PaddingValue: 7})
	if s := fmt.Sprint(padded.Shape()); s != "[3 5 4]" {
		t.Errorf("the shape is %s", s)
	}
	lengths := gotorch.FromSlice([]int64{2, 5, 3})
	for i, got := range rnn.UnpadSequence(padded, lengths, rnn.UnpadSequenceOptions{BatchFirst: true}) {
		if !got.Equal(all[i]) {
			t.Errorf("sequence %d differs", i)
		}
	}
	longer, back := rnn.PadPackedSequence(packed, rnn.PadPackedSequenceOptions{TotalLength: 8})
	if longer.Size(0) != 8 || !back.Equal(lengths) {
		t.Errorf("lengths %v, padded to %d", back, longer.Size(0))
	}
}

func TestLayersRunOverPackedSequences(t *testing.T) {
	all := sequences()
	packed := rnn.PackSequence(all, rnn.PackSequenceOptions{NoEnforceSorted: true})
	lstm := nn.LSTM(4, 3, nn.LSTMOptions{NumLayers: 2, Bidirectional: true})
	gru, plain := nn.GRU(4, 3), nn.RNN(4, 3, nn.RNNOptions{Nonlinearity: nn.RNNReLU})
	outs, h, c := lstm.ForwardPacked(packed)
	ofGRU, hGRU := gru.ForwardPacked(packed)
	ofRNN, hRNN := plain.ForwardPacked(packed)
	lists := [][]gotorch.Tensor{rnn.UnpackSequence(outs), rnn.UnpackSequence(ofGRU), rnn.UnpackSequence(ofRNN)}
	for i, x := range all {
		out, hx, cx := lstm.Forward(x)
		outGRU, hxGRU := gru.Forward(x)
		outRNN, hxRNN := plain.Forward(x)
		at := int64(i)
		for what, pair := range map[string][2]gotorch.Tensor{
			"lstm": {lists[0][i], out}, "lstm h": {h.Select(1, at), hx}, "lstm c": {c.Select(1, at), cx},
			"gru": {lists[1][i], outGRU}, "gru h": {hGRU.Select(1, at), hxGRU},
			"rnn": {lists[2][i], outRNN}, "rnn h": {hRNN.Select(1, at), hxRNN},
		} {
			if !pair[0].AllClose(pair[1], gotorch.AllCloseOptions{ATol: new(1e-6)}) {
				t.Errorf("%s of sequence %d is %v, not %v", what, i, pair[0], pair[1])
			}
		}
	}
	// States are given in the order of the sequences, too.
	again, _, _ := lstm.ForwardPacked(packed, h, c)
	want, _, _ := lstm.Forward(all[1], h.Select(1, 1), c.Select(1, 1))
	if got := rnn.UnpackSequence(again)[1]; !got.AllClose(want, gotorch.AllCloseOptions{ATol: new(1e-6)}) {
		t.Errorf("with a state: %v, not %v", got, want)
	}
}

func TestBadSequencesAreErrors(t *testing.T) {
	all := sequences()
	packed := rnn.PackSequence(all, rnn.PackSequenceOptions{NoEnforceSorted: true})
	for what, fn := range map[string]func(){
		"not sorted":      func() { rnn.PackSequence(all) },
		"too short":       func() { rnn.PadPackedSequence(packed, rnn.PadPackedSequenceOptions{TotalLength: 2}) },
		"another width":   func() { nn.LSTM(9, 3).ForwardPacked(packed) },
		"one state":       func() { h := gotorch.Ones([]int64{1, 3, 3}); nn.LSTM(4, 3).ForwardPacked(packed, h) },
		"another batch":   func() { nn.GRU(4, 3).ForwardPacked(packed, gotorch.Ones([]int64{1, 9, 3})) },
		"no sequence":     func() { rnn.PackSequence(nil) },
		"a negative size": func() { nn.LSTM(4, -1) },
	} {
		var typed *gotorch.Error
		if err := gotorch.Try0(fn); !errors.As(err, &typed) {
			t.Errorf("%s: got %v", what, err)
		}
	}
}

func ExamplePackSequence() {
	long, short := gotorch.Ones([]int64{3, 2}), gotorch.Zeros([]int64{1, 2})
	packed := rnn.PackSequence([]gotorch.Tensor{long, short})
	fmt.Println(packed.Data.Shape(), gotorch.ToSlice[int64](packed.BatchSizes))
	out, h := nn.GRU(2, 5).ForwardPacked(packed)
	fmt.Println(out.Data.Shape(), h.Shape())
	// Output:
	// [4 2] [2 1 1]
	// [4 5] [1 2 5]
}

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
