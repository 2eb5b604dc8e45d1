package distributed_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/internal/rankstest"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/nn"
)

func TestSmokeAHookReducesGradients(t *testing.T) {
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		net := nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
		model := distributed.DataParallel(net, distributed.DataParallelOptions{Group: g, BucketCapMB: 1e-6})
		defer model.Close()
		var seen []int
		var params int
		model.RegisterCommHook(func(b *distributed.GradBucket) (*distributed.Work, error) {
			seen = append(seen, b.Index())
			grads, of := b.Gradients(), b.Parameters()
			total := int64(0)
			for i, p := range of {
				params++
				total += p.Numel()
				if !slices.Equal(grads[i].Shape(), p.Shape()) {
					t.Errorf("a gradient of shape %v of a parameter of shape %v", grads[i].Shape(), p.Shape())
				}
			}
			if b.Buffer().Dim() != 1 || b.Buffer().Numel() != total {
				t.Errorf("a buffer of shape %v for %d elements", b.Buffer().Shape(), total)
			}
			if b.IsLast() != (params == 4) {
				t.Errorf("bucket %d says that it is the last: %v", b.Index(), b.IsLast())
			}
			grads[0].Zero_() // a view
			if b.Index()%2 == 0 {
				g.AllReduce(b.Buffer(), distributed.Sum)
				return nil, nil
			}
			b.SetBuffer(b.Buffer().To(gotorch.Float64).MulScalar(10))
			return g.AllReduceAsync(b.Buffer(), distributed.Sum), nil
		})
		for pass := range 2 {
			seen, params = nil, 0
			for _, p := range net.Parameters() {
				p.SetGrad(gotorch.Tensor{})
			}
			model.Forward(gotorch.Ones([]int64{1, 3})).Sum().Backward()
			if !slices.IsSorted(seen) || params != 4 || pass > 0 && len(seen) < 3 {
				t.Error(pass, seen, params)
			}
		}
		// Of buckets of one parameter each all is zero, which grads[0] has become.
		for _, p := range net.Parameters() {
			if p.Grad() == (gotorch.Tensor{}) || gotorch.Item[float32](p.Grad().Abs().Sum()) != 0 {
				t.Error(p.Grad())
			}
		}
	})
}

func TestHooksThatCannotBe(t *testing.T) {
	rankstest.Run(t, 1, distributed.Options{}, func(g *distributed.Group) {
		model := distributed.DataParallel(nn.Linear(1, 1), distributed.DataParallelOptions{Group: g})
		if err := gotorch.Try0(func() { model.RegisterCommHook(nil) }); !errors.Is(err, gotorch.TypeError) {
			t.Error(err)
		}
		model.RegisterCommHook(distributed.AllReduceHook(g))
		if err := gotorch.Try0(func() { model.RegisterCommHook(distributed.AllReduceHook(g)) }); !errors.Is(err, gotorch.RuntimeError) {
			t.Error(err)
		}
		model.Forward(gotorch.Ones([]int64{1, 1})).Sum().Backward()
		testhelp.Must(t, model.Close())
		if err := gotorch.Try0(func() { model.RegisterCommHook(distributed.AllReduceHook(g)) }); !errors.Is(err, gotorch.ValueError) {
			t.Error(err)
		}
		small := distributed.DataParallel(nn.Linear(1, 1), distributed.DataParallelOptions{Group: g, Compression: distributed.FP16Compress})
		defer small.Close()
		if err := gotorch.Try0(func() { small.RegisterCommHook(distributed.AllReduceHook(g)) }); !errors.Is(err, gotorch.RuntimeError) {
			t.Error(err)
		}
		for _, opt := range []distributed.PowerSGDOptions{
			{MatrixApproximationRank: 0}, {StartPowerSGDIter: 1}, {StartPowerSGDIter: -1, NoErrorFeedback: true, NoWarmStart: true},
			{MinCompressionRate: -1}, {OrthogonalizationEpsilon: -1}, {RandomSeed: 1 << 32},
		} {
			if err := gotorch.Try0(func() { distributed.PowerSGD(g, opt) }); !errors.Is(err, gotorch.ValueError) {
				t.Error(opt, err)
			}
		}
	})
}

var errOfHook = errors.New("the disk is full")

// failing are hooks that fail in each way.
func failing(g *distributed.Group) map[string]distributed.CommHook {
	after := func(fn func() error) distributed.CommHook {
		return func(b *distributed.GradBucket) (*distributed.Work, error) {
			work, err := distributed.AllReduceHook(g)(b)
			if err != nil {
				return nil, err
			}
			return work.Then(fn), nil
		}
	}
	at := func(fn func() error) distributed.CommHook {
		return func(*distributed.GradBucket) (*distributed.Work, error) { return nil, fn() }
	}
	failed := func() error { return errOfHook }
	panics := func() error { panic(errOfHook) }
	ends := func() error { runtime.Goexit(); return nil }
	return map[string]distributed.CommHook{
		"error": at(failed), "panic": at(panics), "exit": at(ends),
		"later error": after(failed), "later panic": after(panics), "later exit": after(ends),
	}
}

// backward returns how a backward pass of a model has ended.
func backward(model *distributed.DistributedDataParallel) (err error, ended bool) {
	var all sync.WaitGroup
	ended = true
	all.Go(func() {
		err = gotorch.Try0(func() { model.Forward(gotorch.Ones([]int64{1, 1})).Sum().Backward() })
		ended = false
	})
	all.Wait()
	return err, ended
}

func TestWhatFailsInAHookIsTheErrorOfBackward(t *testing.T) {
	rankstest.Run(t, 1, distributed.Options{}, func(g *distributed.Group) {
		for name, hook := range failing(g) {
			net := nn.Linear(1, 1)
			model := distributed.DataParallel(net, distributed.DataParallelOptions{Group: g})
			model.RegisterCommHook(hook)
			err, ended := backward(model)
			if strings.Contains(name, "exit") != ended || !ended && !errors.Is(err, errOfHook) {
				t.Error(name, err, ended)
			}
			if !ended {
				var of *gotorch.Error
				var p *gotorch.CallbackPanic
				if !errors.As(err, &of) || !errors.As(err, &p) || !strings.Contains(err.Error(), "communication hook") {
					t.Errorf("%s: %T %v", name, err, err)
				}
			}
			if err, ended := backward(model); ended || !errors.Is(err, gotorch.RuntimeError) || !strings.Contains(err.Error(), "has failed before") {
				t.Error(name, err, ended)
			}
			testhelp.Must(t, model.Close())
			again := distributed.DataParallel(net, distributed.DataParallelOptions{Group: g})
			if err, ended := backward(again); ended || err != nil {
				t.Error(name, err, ended)
			}
			testhelp.Must(t, again.Close())
		}
	})
}

func TestWhatAHookLeavesMustFit(t *testing.T) {
	rankstest.Run(t, 1, distributed.Options{}, func(g *distributed.Group) {
		for _, shape := range [][]int64{{1}, {3}, {1, 2}, {0}} {
			model := distributed.DataParallel(nn.Linear(1, 1), distributed.DataParallelOptions{Group: g})
			model.RegisterCommHook(func(b *distributed.GradBucket) (*distributed.Work, error) {
				b.SetBuffer(gotorch.Zeros(shape))
				return nil, nil
			})
			if err, _ := backward(model); !errors.Is(err, gotorch.ValueError) {
				t.Error(shape, err)
			}
			testhelp.Must(t, model.Close())
		}
	})
}

// It may be a view of something larger, which the reducer knows nothing of.
func TestAHookMayLeaveAView(t *testing.T) {
	numbers := gotorch.Arange(8).To(gotorch.Float32)
	for name, x := range map[string]gotorch.Tensor{
		"a part": numbers.Narrow(0, 5, 2), "of another dtype": numbers.To(gotorch.Float64).Narrow(0, 5, 2),
		"with gaps": numbers.AsStrided([]int64{2}, []int64{3}, gotorch.AsStridedOptions{StorageOffset: new(int64(2))}), "expanded": gotorch.Full([]int64{1}, 5).Expand([]int64{2}),
	} {
		rankstest.Run(t, 1, distributed.Options{}, func(g *distributed.Group) {
			net := nn.Linear(1, 1)
			model := distributed.DataParallel(net, distributed.DataParallelOptions{Group: g})
			defer model.Close()
			var want []float32
			model.RegisterCommHook(func(b *distributed.GradBucket) (*distributed.Work, error) {
				b.SetBuffer(x)
				want = gotorch.ToSlice[float32](x)
				if b.Parameters()[0].Dim() == 1 { // the bias
					slices.Reverse(want)
				}
				return nil, nil
			})
			if err, _ := backward(model); err != nil {
				t.Fatal(name, err)
			}
			if got := []float32{gotorch.Item[float32](net.Weight.Grad()), gotorch.Item[float32](net.Bias.Grad())}; !slices.Equal(got, want) {
				t.Error(name, got, want)
			}
		})
	}
}

// Others than the rank whose hook has failed wait for it, as long as their group does.
func TestAHookThatFailsOnOneRankIsAnErrorOnAll(t *testing.T) {
	for _, name := range []string{"error", "panic", "exit", "later panic"} {
		waited := make(chan struct{})
		rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
			model := distributed.DataParallel(nn.Linear(1, 1), distributed.DataParallelOptions{Group: g})
			defer model.Close()
			g.Barrier()
			if g.Rank() == 1 {
				model.RegisterCommHook(failing(g)[name])
				if err, ended := backward(model); !ended && !errors.Is(err, errOfHook) {
					t.Error(name, err)
				}
				<-waited
				return
			}
			defer close(waited)
			testhelp.Must(t, g.SetTimeout(300*time.Millisecond))
			model.RegisterCommHook(func(b *distributed.GradBucket) (*distributed.Work, error) {
				work, err := distributed.AllReduceHook(g)(b)
				if err != nil {
					return nil, err
				}
				return work.Then(func() error {
					g.Barrier() // to which the other comes in no case
					return nil
				}), nil
			})
			err, ended := backward(model)
			if ended || !errors.Is(err, distributed.TimeoutError) && !errors.Is(err, distributed.NetworkError) {
				t.Error(name, err, ended)
			}
		})
	}
}

func TestAHookCannotCallOrCloseItsModel(t *testing.T) {
	rankstest.Run(t, 1, distributed.Options{}, func(g *distributed.Group) {
		calls := distributed.DataParallel(nn.Linear(1, 1), distributed.DataParallelOptions{Group: g})
		defer calls.Close()
		calls.RegisterCommHook(func(*distributed.GradBucket) (*distributed.Work, error) {
			calls.Forward(gotorch.Ones([]int64{1, 1}))
			return nil, nil
		})
		if err, _ := backward(calls); !errors.Is(err, gotorch.RuntimeError) || !strings.Contains(err.Error(), "hook runs") {
			t.Error(err)
		}
		model := distributed.DataParallel(nn.Linear(1, 1), distributed.DataParallelOptions{Group: g})
		var kept *distributed.GradBucket
		model.RegisterCommHook(func(b *distributed.GradBucket) (*distributed.Work, error) {
			kept = b
			return nil, model.Close()
		})
		if err, _ := backward(model); !errors.Is(err, gotorch.RuntimeError) || !strings.Contains(err.Error(), "DataParallel.Close") {
			t.Error(err)
		}
		testhelp.Must(t, model.Close())
		testhelp.Must(t, model.Close())
		if kept.Buffer().Numel() != 2 || len(kept.Gradients()) != 2 || len(kept.Parameters()) != 2 { // whoever keeps it has it
			t.Error(kept.Buffer(), kept.Gradients())
		}
	})
}

func TestWhatComesAfterAWork(t *testing.T) {
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		x, calls := gotorch.Ones([]int64{2}), 0
		work := g.AllReduceAsync(x, distributed.Sum).Then(func() error {
			calls++
			x.MulScalar_(10)
			return nil
		}).Then(func() error {
			g.AllReduce(x, distributed.Sum)
			return errOfHook
		})
		if work.Done() {
			t.Error("it has ended, and nobody has waited")
		}
		for range 2 {
			if err := work.Wait(context.Background()); !errors.Is(err, errOfHook) || !work.Done() {
				t.Error(err)
			}
		}
		if got := gotorch.ToSlice[float32](x); calls != 1 || !slices.Equal(got, []float32{40, 40}) {
			t.Error(calls, got)
		}
		// In the goroutine of a wait that may be given up, nobody is there whom a panic could end.
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for _, fn := range []func() error{func() error { panic(errOfHook) }, func() error { runtime.Goexit(); return nil }} {
			work := g.AllReduceAsync(x, distributed.Sum).Then(fn).Then(func() error {
				t.Error("it goes on after a failure")
				return nil
			})
			if err := work.Wait(ctx); err == nil {
				t.Error("no error")
			}
		}
		if err := gotorch.Try0(func() { work.Then(nil) }); !errors.Is(err, gotorch.TypeError) {
			t.Error(err)
		}
	})
}

func TestNothingIsLeftOfHooks(t *testing.T) {
	count := func() int64 {
		runtime.GC()
		runtime.GC()
		return gotorch.MemoryStats().LiveHandles
	}
	goroutines, before := runtime.NumGoroutine(), count()
	for _, closed := range []bool{true, false} {
		rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
			power := distributed.PowerSGDOptions{StartPowerSGDIter: 2}
			for _, hook := range []distributed.CommHook{
				distributed.AllReduceHook(g), distributed.BF16CompressWrapper(distributed.AllReduceHook(g)), distributed.PowerSGD(g, power).Hook,
			} {
				model := distributed.DataParallel(nn.Linear(16, 16), distributed.DataParallelOptions{Group: g})
				model.RegisterCommHook(hook)
				if closed {
					defer model.Close()
				}
				for range 5 {
					gotorch.Scope0(func(*gotorch.ScopeHandle) { model.Forward(gotorch.Randn([]int64{3, 16})).Sum().Backward() })
				}
			}
		})
		rankstest.Run(t, 1, distributed.Options{}, func(g *distributed.Group) {
			for _, hook := range failing(g) {
				model := distributed.DataParallel(nn.Linear(1, 1), distributed.DataParallelOptions{Group: g})
				model.RegisterCommHook(hook)
				backward(model)
				if closed {
					defer model.Close()
				}
			}
		})
	}
	testhelp.NoMoreGoroutines(t, goroutines)
	for end := time.Now().Add(time.Minute); count() > before; {
		if time.Now().After(end) {
			t.Fatalf("%d tensors live, where %d did", count(), before)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// The approximation is of one rank per column, and what is lost comes with the next pass.
func TestPowerSGDCompresses(t *testing.T) {
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		net := nn.Linear(16, 16)
		model := distributed.DataParallel(net, distributed.DataParallelOptions{Group: g})
		defer model.Close()
		state := distributed.PowerSGD(g, distributed.PowerSGDOptions{StartPowerSGDIter: 2})
		model.RegisterCommHook(state.Hook)
		x := gotorch.Randn([]int64{8, 16})
		var grad gotorch.Tensor
		for range 4 {
			net.Weight.SetGrad(gotorch.Tensor{})
			model.Forward(x).Pow(2).Sum().Backward()
			grad = net.Weight.Grad()
		}
		if rank := gotorch.Item[int64](gotorch.LinalgMatrixRank(grad, 1e-3)); rank != 1 {
			t.Errorf("a gradient of rank %d", rank)
		}
		if rate, before, after := state.CompressionStats(); before != 2*(256+16) || after != 2*(32+16) || rate != float64(before)/float64(after) {
			t.Error(rate, before, after)
		}
	})
	rankstest.Run(t, 1, distributed.Options{}, func(g *distributed.Group) {
		net := nn.Embedding(4, 4, nn.EmbeddingOptions{Sparse: true})
		model := distributed.DataParallel(net, distributed.DataParallelOptions{Group: g})
		defer model.Close()
		model.RegisterCommHook(distributed.PowerSGD(g, distributed.PowerSGDOptions{StartPowerSGDIter: 2}).Hook)
		pass := func() { model.Forward(gotorch.FromSlice([]int64{1, 2})).Sum().Backward() }
		pass()
		pass()
		if err := gotorch.Try0(pass); !errors.Is(err, gotorch.NotImplementedError) {
			t.Error(err)
		}
	})
}
