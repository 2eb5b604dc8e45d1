package parallel_test

import (
	"errors"
	"fmt"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/distributed/parallel"
	"gotorch.dev/gotorch/internal/rankstest"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
	"gotorch.dev/gotorch/optim"
)

var float64s = gotorch.TensorOptions{DType: gotorch.Float64}

// drawn is the same on all ranks, whatever other goroutines draw.
func drawn(seed uint64, shape ...int64) gotorch.Tensor {
	g := gotorch.NewGenerator(gotorch.CPU).ManualSeed(seed)
	return gotorch.Empty(shape, float64s).Normal_(gotorch.Normal_Options{Generator: g})
}

func set(p gotorch.Tensor, seed uint64) gotorch.Tensor {
	gotorch.NoGrad(func() { p.Copy_(drawn(seed, p.Shape()...)) })
	return p
}

func linear(in, out int64, seed uint64, bias bool) *nn.LinearModule {
	l := nn.Linear(in, out, nn.LinearOptions{DType: gotorch.Float64, NoBias: !bias})
	for i, p := range l.Parameters() {
		set(p, seed+uint64(i))
	}
	return l
}

func close_(t *testing.T, what string, got, want gotorch.Tensor) {
	t.Helper()
	if !got.Defined() || !got.AllClose(want, gotorch.AllCloseOptions{ATol: new(1e-12), RTol: new(1e-12)}) {
		t.Errorf("%s: %v, and whole %v", what, got, want)
	}
}

// leaf is a copy that gathers a gradient of its own.
func leaf(x gotorch.Tensor) gotorch.Tensor { return x.Detach().Clone().RequiresGrad_() }

func TestLayersThatAreSharedOutAreTheWholeOnes(t *testing.T) {
	for _, n := range []int{1, 2, 4} {
		rankstest.Run(t, n, distributed.Options{}, func(g *distributed.Group) {
			r := int64(g.Rank())
			for _, shape := range [][]int64{{3, 8}, {2, 5, 8}, {0, 8}, {8}} {
				for _, bias := range []bool{true, false} {
					what := fmt.Sprint(g, shape, bias)
					up, down := linear(8, 12, 1, bias), linear(12, 4, 5, bias)
					x, y := leaf(drawn(9, shape...)), leaf(drawn(9, shape...))
					want := down.Forward(F.GELU(up.Forward(x)))
					col := parallel.ColumnParallelLinear(g, up)
					row := parallel.RowParallelLinear(g, down)
					got := row.Forward(F.GELU(col.Forward(y)))
					close_(t, what, got, want)
					want.Cos().Sum().Backward()
					got.Cos().Sum().Backward()
					close_(t, what+" input", y.Grad(), x.Grad())
					m, k := 12/int64(n), 12/int64(n)
					close_(t, what+" column", col.Weight.Grad(), up.Weight.Grad().Narrow(0, r*m, m))
					close_(t, what+" row", row.Weight.Grad(), down.Weight.Grad().Narrow(1, r*k, k))
					if bias {
						close_(t, what+" column's bias", col.Bias.Grad(), up.Bias.Grad().Narrow(0, r*m, m))
						close_(t, what+" row's bias", row.Bias.Grad(), down.Bias.Grad())
					}

					// Each alone, from whole to whole.
					x, y = leaf(drawn(9, shape...)), leaf(drawn(9, shape...))
					one := parallel.ColumnParallelLinear(g, up, parallel.ColumnParallelLinearOptions{GatherOutput: true})
					want, got = up.Forward(x), one.Forward(y)
					close_(t, what+" gathered", got, want)
					want.Cos().Sum().Backward()
					got.Cos().Sum().Backward()
					close_(t, what+" gathered input", y.Grad(), x.Grad())
					x, y = leaf(drawn(9, shape...)), leaf(drawn(9, shape...))
					whole := linear(8, 4, 3, bias)
					other := parallel.RowParallelLinear(g, whole, parallel.RowParallelLinearOptions{SplitInput: true})
					want, got = whole.Forward(x), other.Forward(y)
					close_(t, what+" split", got, want)
					want.Cos().Sum().Backward()
					got.Cos().Sum().Backward()
					close_(t, what+" split input", y.Grad(), x.Grad())
				}
			}
		})
	}
}

func TestAVocabularyThatIsSharedOut(t *testing.T) {
	for _, n := range []int{1, 2, 3} {
		rankstest.Run(t, n, distributed.Options{}, func(g *distributed.Group) {
			words := gotorch.FromSlice([]int64{0, 5, 11, 6, 5, 7}).Reshape([]int64{2, 3})
			embedding := nn.Embedding(12, 6, nn.EmbeddingOptions{DType: gotorch.Float64})
			set(embedding.Weight, 2)
			head := linear(6, 12, 4, false)
			targets := gotorch.FromSlice([]int64{11, 0, 3, 4, 8, 7}).Reshape([]int64{2, 3})

			want := F.CrossEntropy(head.Forward(embedding.Forward(words)).Flatten(gotorch.FlattenOptions{EndDim: new(int64(1))}),
				targets.Flatten(), F.CrossEntropyOptions{Reduction: F.None}).Reshape([]int64{2, 3})
			shared := parallel.VocabParallelEmbedding(g, embedding)
			tail := parallel.ColumnParallelLinear(g, head)
			got := parallel.VocabParallelCrossEntropy(g, tail.Forward(shared.Forward(words)), targets)
			close_(t, g.String(), got, want)
			weights := drawn(8, 2, 3)
			want.Mul(weights).Sum().Backward()
			got.Mul(weights).Sum().Backward()
			m := 12 / int64(n)
			close_(t, "words", shared.Weight.Grad(), embedding.Weight.Grad().Narrow(0, int64(g.Rank())*m, m))
			close_(t, "head", tail.Weight.Grad(), head.Weight.Grad().Narrow(0, int64(g.Rank())*m, m))

			far := drawn(3, 2, m).MulScalar(1000) // exp of which would be infinite
			if loss := parallel.VocabParallelCrossEntropy(g, far, gotorch.FromSlice([]int64{0, 11})); !gotorch.Item[bool](loss.IsFinite().All()) {
				t.Error(loss)
			}
			none := parallel.VocabParallelCrossEntropy(g, drawn(3, 0, m), gotorch.Empty([]int64{0}, gotorch.TensorOptions{DType: gotorch.Int64}))
			if none.Numel() != 0 {
				t.Error(none)
			}
			for _, bad := range []int64{-1, 12} {
				if err := gotorch.Try0(func() { shared.Forward(gotorch.FromSlice([]int64{bad})) }); !errors.Is(err, gotorch.IndexError) {
					t.Error(err)
				}
				if err := gotorch.Try0(func() {
					parallel.VocabParallelCrossEntropy(g, drawn(3, 1, m), gotorch.FromSlice([]int64{bad}))
				}); !errors.Is(err, gotorch.IndexError) {
					t.Error(err)
				}
			}
		})
	}
}

func TestTheyLearnWhatTheWholeOnesLearn(t *testing.T) {
	whole := nn.Sequential(linear(4, 8, 1, true), nn.Tanh(), linear(8, 2, 3, true))
	learn := func(model nn.Layer) gotorch.Tensor {
		opt := optim.Adam(model.Parameters(), optim.AdamOptions{LR: 0.01})
		var loss gotorch.Tensor
		for i := range 5 {
			opt.ZeroGrad()
			loss = model.Forward(drawn(uint64(20+i), 6, 4)).Sub(drawn(uint64(30+i), 6, 2)).Pow(2).Mean()
			loss.Backward()
			opt.Step()
		}
		return loss.Detach()
	}
	want := learn(whole)
	rankstest.Run(t, 4, distributed.Options{}, func(g *distributed.Group) {
		got := learn(nn.Sequential(parallel.ColumnParallelLinear(g, linear(4, 8, 1, true)), nn.Tanh(), parallel.RowParallelLinear(g, linear(8, 2, 3, true))))
		if !got.AllClose(want) {
			t.Error(g, got, want)
		}
	})
}

func TestLayersThatCannotBeSharedOut(t *testing.T) {
	rankstest.Run(t, 3, distributed.Options{}, func(g *distributed.Group) {
		g.Barrier() // a rank that leaves before the others have come has them fail
		for _, fn := range []func(){
			func() { parallel.ColumnParallelLinear(g, nn.Linear(3, 4)) },
			func() { parallel.RowParallelLinear(g, nn.Linear(4, 3)) },
			func() { parallel.VocabParallelEmbedding(g, nn.Embedding(4, 3)) },
			func() { parallel.ScatterToRegion(g, drawn(1, 2, 4)) },
		} {
			if err := gotorch.Try0(fn); !errors.Is(err, gotorch.ValueError) {
				t.Error(err)
			}
		}
		for _, of := range []nn.EmbeddingOptions{{PaddingIdx: 0}, {MaxNorm: 1}, {ScaleGradByFreq: true}, {Sparse: true}} {
			if err := gotorch.Try0(func() { parallel.VocabParallelEmbedding(g, nn.Embedding(3, 2, of)) }); !errors.Is(err, gotorch.NotImplementedError) {
				t.Error(err)
			}
		}
		if err := gotorch.Try0(func() { parallel.RowParallelLinear(nil, nn.Linear(3, 3)) }); !errors.Is(err, gotorch.TypeError) {
			t.Error(err)
		}
	})
}
