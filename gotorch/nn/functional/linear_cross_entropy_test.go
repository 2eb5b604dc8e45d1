package functional_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	F "gotorch.dev/gotorch/nn/functional"
)

func ExampleLinearCrossEntropyChunking() {
	gotorch.ManualSeed(0)
	hidden := gotorch.Randn([]int64{8, 4}, gotorch.TensorOptions{RequiresGrad: true})
	head := gotorch.Randn([]int64{100, 4}, gotorch.TensorOptions{RequiresGrad: true})
	words := gotorch.Randint(100, []int64{8})
	whole := F.LinearCrossEntropy(hidden, head, words)
	parts := F.LinearCrossEntropy(hidden, head, words, F.LinearCrossEntropyOptions{Options: &F.LinearCrossEntropyChunking{BatchChunkSize: 2}})
	parts.Backward()
	fmt.Println(parts.AllClose(whole), head.Grad().Shape())
	// Output: true [100 4]
}

// A head over many classes: its logits are 32 MB, and its gradients as much again.
func TestChunksTakeLessMemory(t *testing.T) {
	const n, features, classes = 512, 16, 16384
	x := gotorch.Randn([]int64{n, features}, gotorch.TensorOptions{RequiresGrad: true})
	w := gotorch.Randn([]int64{classes, features}, gotorch.TensorOptions{RequiresGrad: true})
	target := gotorch.Randint(classes, []int64{n})
	// The greatest of what is allocated, as it is seen from beside the pass.
	peak := func(opt F.LinearCrossEntropyOptions) int64 {
		gotorch.ReleaseCachedMemory()
		before, most := gotorch.MemoryStats().AllocatedBytes, int64(0)
		done, seen := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(seen)
			for {
				most = max(most, gotorch.MemoryStats().AllocatedBytes)
				select {
				case <-done:
					return
				case <-time.After(100 * time.Microsecond):
				}
			}
		}()
		gotorch.Scope0(func(*gotorch.ScopeHandle) { F.LinearCrossEntropy(x, w, target, opt).Backward() })
		close(done)
		<-seen
		return most - before
	}
	for _, r := range []F.Reduction{F.Mean, F.Sum} {
		whole, parts := peak(F.LinearCrossEntropyOptions{Reduction: r}), peak(F.LinearCrossEntropyOptions{Reduction: r, Options: &F.LinearCrossEntropyChunking{}})
		t.Logf("%v: %d MB at once, %d MB in chunks", r, whole>>20, parts>>20)
		if whole < 50<<20 || parts > 8<<20 {
			t.Errorf("%v: %d MB at once, %d MB in chunks", r, whole>>20, parts>>20)
		}
	}
}

func TestChunksRefuse(t *testing.T) {
	x := gotorch.Randn([]int64{4, 3}, gotorch.TensorOptions{RequiresGrad: true})
	w, target := gotorch.Randn([]int64{5, 3}), gotorch.Randint(5, []int64{4})
	loss := func(c F.LinearCrossEntropyChunking) gotorch.Tensor {
		return F.LinearCrossEntropy(x, w, target, F.LinearCrossEntropyOptions{Options: &c})
	}
	for kind, fn := range map[gotorch.ErrorKind][]func(){
		gotorch.ValueError: {
			func() { loss(F.LinearCrossEntropyChunking{AccPolicy: "exact"}) },
			func() { loss(F.LinearCrossEntropyChunking{ChunkingMethod: "aspect_ratio:-1"}) },
			func() { loss(F.LinearCrossEntropyChunking{ChunkingMethod: "auto:2"}) },
			func() { loss(F.LinearCrossEntropyChunking{BatchChunkSize: 0}) },
			func() { loss(F.LinearCrossEntropyChunking{AccDType: gotorch.Int64}) },
			func() {
				F.LinearCrossEntropy(x, w, gotorch.Randint(5, []int64{6}), F.LinearCrossEntropyOptions{Options: &F.LinearCrossEntropyChunking{}})
			},
		},
		gotorch.TypeError:    {func() { loss(F.LinearCrossEntropyChunking{BatchChunkSize: 1.5}) }},
		gotorch.RuntimeError: {func() { loss(F.LinearCrossEntropyChunking{AccDType: gotorch.Float64}) }, func() { loss(F.LinearCrossEntropyChunking{}).Backward(gotorch.BackwardOptions{CreateGraph: true}) }},
		gotorch.IndexError: {func() {
			F.LinearCrossEntropy(x, w, target.AddScalar(5), F.LinearCrossEntropyOptions{Options: &F.LinearCrossEntropyChunking{}})
		}},
	} {
		for i, f := range fn {
			if err := gotorch.Try0(f); !errors.Is(err, kind) && !(kind == gotorch.IndexError && err != nil) {
				t.Errorf("%s %d: got %v", kind, i, err)
			}
		}
	}
	x.SetGrad(gotorch.Tensor{})
	empty := F.LinearCrossEntropy(x.Narrow(1, 0, 0), w.Narrow(1, 0, 0), target, F.LinearCrossEntropyOptions{Options: &F.LinearCrossEntropyChunking{}})
	if !empty.AllClose(F.LinearCrossEntropy(x.Narrow(1, 0, 0), w.Narrow(1, 0, 0), target)) {
		t.Errorf("without features the loss is %v", empty)
	}
}

// Goroutines that run backward over the same loss get the gradient once.
func TestGradientsOfChunksAreUsedOnce(t *testing.T) {
	x := gotorch.Randn([]int64{4, 3}, gotorch.TensorOptions{RequiresGrad: true})
	w, target := gotorch.Randn([]int64{5, 3}), gotorch.Randint(5, []int64{4})
	loss := F.LinearCrossEntropy(x, w, target, F.LinearCrossEntropyOptions{Options: &F.LinearCrossEntropyChunking{}})
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() {
			errs[i] = gotorch.Try0(func() { loss.Backward(gotorch.BackwardOptions{RetainGraph: new(true)}) })
		})
	}
	wg.Wait()
	well := 0
	for _, err := range errs {
		if err == nil {
			well++
		} else if !errors.Is(err, gotorch.RuntimeError) {
			t.Error(err)
		}
	}
	if well != 1 {
		t.Errorf("%d passes of %d ended well, not one", well, len(errs))
	}
}
