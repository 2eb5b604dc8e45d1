package nn_test

import (
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
)

// Without gradients attention is computed by a kernel of its own, which takes masks in another form. The other way is
// held to PyTorch.
func TestAttentionForInferenceTakesTheSameMasks(t *testing.T) {
	gotorch.ManualSeed(3)
	m := nn.MultiheadAttention(8, 2, nn.MultiheadAttentionOptions{BatchFirst: true})
	m.Eval()
	x := gotorch.Randn([]int64{3, 5, 8})
	padding := gotorch.Zeros([]int64{3, 5}, gotorch.TensorOptions{DType: gotorch.Bool})
	padding.Select(0, 1).Narrow(0, 3, 2).Fill_(true)
	causal := nn.SquareSubsequentMask(5).LtScalar(0)
	ofHeads := causal.Unsqueeze(0).Repeat([]int64{6, 1, 1})
	ofHeads.Select(0, 5).Fill_(false)
	for name, opt := range map[string]nn.AttentionOptions{
		"none":             {},
		"padding":          {KeyPaddingMask: padding},
		"mask":             {AttnMask: causal},
		"mask of heads":    {AttnMask: ofHeads},
		"both":             {KeyPaddingMask: padding, AttnMask: causal},
		"both of heads":    {KeyPaddingMask: padding, AttnMask: ofHeads, NoAverageAttnWeights: true},
		"both, no weights": {KeyPaddingMask: padding, AttnMask: causal, NoNeedWeights: true},
	} {
		want, weights := m.Forward(x, x, x, opt)
		if !want.RequiresGrad() {
			t.Fatal("it is not recorded")
		}
		gotorch.NoGrad(func() {
			got, seen := m.Forward(x, x, x, opt)
			if !got.AllClose(want, gotorch.AllCloseOptions{ATol: new(1e-5)}) {
				t.Errorf("%s: got %v, want %v", name, got, want)
			}
			switch {
			case opt.NoNeedWeights:
			case !seen.AllClose(weights, gotorch.AllCloseOptions{ATol: new(1e-5)}):
				t.Errorf("%s: got weights %v, want %v", name, seen, weights)
			}
		})
	}
}
