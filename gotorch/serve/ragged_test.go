package serve_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/testhelp"
	F "gotorch.dev/gotorch/nn/functional"
	"gotorch.dev/gotorch/serve"
)

// masked embeds ids, and returns for each place the embedding, and for each row the mean where the mask is.
func masked(batches *atomic.Int64) serve.Model {
	table := gotorch.Arange(20).To(gotorch.Float32).Reshape([]int64{10, 2}).Sin()
	open := func(name string, typ serve.DataType, shape ...int64) serve.Spec {
		return serve.Spec{Name: name, Type: typ, Shape: shape}
	}
	return serve.NewModel(serve.Signature{
		Inputs:  []serve.Spec{open("ids", serve.INT64, -1, -1), open("mask", serve.BOOL, -1, -1)},
		Outputs: []serve.Spec{open("each", serve.FP32, -1, -1, 2), open("t", serve.FP32, -1, 2, -1), open("mean", serve.FP32, -1, 2)},
	}, func(_ context.Context, in *serve.Request) ([]serve.Value, error) {
		if len(in.Rows) > 1 {
			batches.Add(1)
		}
		ids, mask := in.Inputs[0].Tensor, in.Inputs[1].Tensor.To(gotorch.Float32).Unsqueeze(-1)
		each := F.Embedding(ids, table)
		mean := each.Mul(mask).SumDim([]int64{1}).Div(mask.SumDim([]int64{1}))
		return []serve.Value{{Tensor: each}, {Tensor: each.Transpose(1, 2).Contiguous()}, {Tensor: mean}}, nil
	})
}

func TestRaggedRequestsComeToWhatTheyDoAlone(t *testing.T) {
	var joined, never atomic.Int64
	srv, alone := serve.New(), serve.New()
	defer srv.Close(t.Context())
	defer alone.Close(t.Context())
	testhelp.Must(t, alone.Add("m", masked(&never)))
	testhelp.Must(t, srv.Add("m", masked(&joined), serve.Batching{Max: 16, Delay: 2 * time.Millisecond},
		serve.Ragged{Input: "ids", Dim: 1, Value: 9, Cut: []serve.Cut{{Output: "each", Dim: 1}, {Output: "t", Dim: 2}}},
		serve.Ragged{Input: "mask", Dim: 1}))
	var clients sync.WaitGroup
	for c := range 8 {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(2, uint64(c)))
			for range 60 {
				gotorch.Scope0(func(*gotorch.ScopeHandle) {
					shape := []int64{1 + random.Int64N(3), random.Int64N(9)}
					ids := make([]int64, shape[0]*shape[1])
					for i := range ids {
						ids[i] = random.Int64N(10)
					}
					r := serve.InferRequest{Model: "m", Inputs: []serve.Value{{Name: "ids", Tensor: gotorch.FromSlice(ids, shape...)},
						{Name: "mask", Tensor: gotorch.Ones(shape, gotorch.TensorOptions{DType: gotorch.Bool})}}}
					got, err := srv.Infer(t.Context(), r)
					want, err2 := alone.Infer(t.Context(), r)
					if err != nil || err2 != nil {
						t.Error(err, err2)
						return
					}
					for i := range want {
						a, b := got[i].Tensor, want[i].Tensor
						if fmt.Sprint(a.Shape()) != fmt.Sprint(b.Shape()) || !gotorch.AllClose(a, b, gotorch.AllCloseOptions{EqualNaN: true}) {
							t.Errorf("%s of %v is %v, and alone %v", got[i].Name, shape, a, b)
						}
					}
				})
			}
		})
	}
	clients.Wait()
	if joined.Load() == 0 {
		t.Error("no requests were joined")
	}
}

// A request of a million elements among short ones costs what two of them would.
func TestALongRequestDoesNotMakeABatchOfManyItsSize(t *testing.T) {
	const long = 1 << 20
	for _, c := range []struct {
		option  serve.Ragged
		bounded bool
	}{{serve.Ragged{}, true}, {serve.Ragged{Padding: 0.25}, true}, {serve.Ragged{Step: 1024}, true}, {serve.Ragged{Padding: 1}, false}} {
		c.option.Input, c.option.Dim, c.option.Cut = "x", 1, []serve.Cut{{Output: "y", Dim: 1}}
		var largest, joined atomic.Int64
		gate := make(chan struct{})
		srv := newServer(t)
		testhelp.Must(t, srv.Add("m", serve.NewModel(serve.Signature{Inputs: []serve.Spec{{Name: "x", Type: serve.UINT8, Shape: []int64{-1, -1}}},
			Outputs: []serve.Spec{{Name: "y", Type: serve.UINT8, Shape: []int64{-1, -1}}}},
			func(_ context.Context, in *serve.Request) ([]serve.Value, error) {
				<-gate
				x := in.Inputs[0].Tensor
				largest.Store(max(largest.Load(), x.Numel()))
				joined.Store(max(joined.Load(), int64(len(in.Rows))))
				return []serve.Value{{Tensor: x.AddScalar(1)}}, nil
			}), serve.Batching{Max: 16}, c.option))
		var clients sync.WaitGroup
		send := func(n int64) {
			clients.Go(func() {
				gotorch.Scope0(func(*gotorch.ScopeHandle) {
					x := gotorch.Full([]int64{1, n}, n%100, gotorch.TensorOptions{DType: gotorch.Uint8})
					out, err := srv.Infer(t.Context(), serve.InferRequest{Model: "m", Inputs: []serve.Value{{Name: "x", Tensor: x}}})
					if err != nil {
						t.Error(err)
					} else if !gotorch.Equal(out[0].Tensor, x.AddScalar(1)) {
						t.Errorf("a request of %d elements comes to %v", n, out[0].Tensor)
					}
				})
			})
		}
		send(1)
		untilRunning(t, srv)
		send(long)
		for n := range int64(15) {
			send(5 + n)
		}
		untilWaiting(t, srv, 16)
		close(gate)
		clients.Wait()
		if got := largest.Load(); c.bounded != (got <= 2*long) || joined.Load() < 4 {
			t.Errorf("with %+v a batch has %d elements, where requests have %d; %d were joined", c.option, got, long, joined.Load())
		}
	}
}

func TestWrongRaggedIsRefused(t *testing.T) {
	var n atomic.Int64
	srv := serve.New()
	defer srv.Close(t.Context())
	b := serve.Batching{Max: 4}
	for name, opts := range map[string][]serve.ModelOption{
		"no batching": {serve.Ragged{Input: "ids", Dim: 1}}, "no input": {b, serve.Ragged{Input: "id", Dim: 1}},
		"batch": {b, serve.Ragged{Input: "ids"}}, "dim": {b, serve.Ragged{Input: "ids", Dim: 2}}, "negative": {b, serve.Ragged{Input: "ids", Dim: -1}},
		"twice": {b, serve.Ragged{Input: "ids", Dim: 1}, serve.Ragged{Input: "ids", Dim: 1}}, "step": {b, serve.Ragged{Input: "ids", Dim: 1, Step: -1}},
		"padding": {b, serve.Ragged{Input: "ids", Dim: 1, Padding: 1.5}}, "less": {b, serve.Ragged{Input: "ids", Dim: 1, Padding: -1}},
		"share": {b, serve.Ragged{Input: "ids", Dim: 1, Padding: math.NaN()}},
		"value": {b, serve.Ragged{Input: "ids", Dim: 1, Value: "x"}}, "cut": {b, serve.Ragged{Input: "ids", Dim: 1, Cut: []serve.Cut{{Output: "each"}}}},
		"fixed": {b, serve.Ragged{Input: "ids", Dim: 1, Cut: []serve.Cut{{Output: "mean", Dim: 1}}}},
		"none":  {b, serve.Ragged{Input: "ids", Dim: 1, Cut: []serve.Cut{{Output: "no", Dim: 1}}}},
	} {
		if err := srv.Add("m", masked(&n), opts...); !errors.Is(err, serve.InvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
