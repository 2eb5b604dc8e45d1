package gotorch_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"gotorch.dev/gotorch"
)

func TestSmokeNoGrad(t *testing.T) {
	x := leaf(1, 2)
	gotorch.NoGrad(func() {
		if gotorch.GradEnabled() || x.Mul(x).RequiresGrad() {
			t.Error("autograd records in NoGrad")
		}
		gotorch.EnableGrad(func() {
			if !gotorch.GradEnabled() || !x.Mul(x).RequiresGrad() {
				t.Error("autograd does not record in EnableGrad")
			}
		})
		if gotorch.GradEnabled() {
			t.Error("EnableGrad was not undone")
		}
		x.SubScalar_(1)
	})
	if !gotorch.GradEnabled() || !x.Mul(x).RequiresGrad() {
		t.Error("NoGrad was not undone")
	}
	expect(t, x.Detach(), "tensor([0., 1.])")
	if y := gotorch.NoGrad1(func() gotorch.Tensor { return x.Mul(x) }); y.RequiresGrad() {
		t.Error("the result of NoGrad1 requires grad")
	}
}

func TestModesAreRestoredAfterAPanic(t *testing.T) {
	bad := func() { gotorch.MM(ones(2, 3), ones(2, 3)) }
	for name, mode := range map[string]func(func()){
		"NoGrad": gotorch.NoGrad, "InferenceMode": gotorch.InferenceMode,
		"Autocast": func(fn func()) { gotorch.Autocast(gotorch.CPU, 0, fn) },
	} {
		mustFail(t, gotorch.RuntimeError, "shapes cannot be multiplied", func() { mode(bad) })
		if !gotorch.GradEnabled() || gotorch.InferenceModeEnabled() || gotorch.AutocastEnabled(gotorch.CPU) {
			t.Error(name, "was not undone")
		}
	}
	// Goexit, as t.FailNow calls it.
	done := make(chan bool)
	go func() {
		defer close(done)
		gotorch.NoGrad(runtime.Goexit)
	}()
	<-done
}

func TestInferenceMode(t *testing.T) {
	w := leaf(1, 1)
	var x gotorch.Tensor
	gotorch.InferenceMode(func() {
		x = ones(2)
		if !gotorch.InferenceModeEnabled() || !x.IsInference() || w.MulScalar(2).RequiresGrad() {
			t.Error("not in inference mode")
		}
		gotorch.EnableGrad(func() {
			if w.MulScalar(2).RequiresGrad() {
				t.Error("EnableGrad undid inference mode")
			}
		})
		gotorch.SetInferenceMode(false, func() {
			if gotorch.InferenceModeEnabled() || !w.MulScalar(2).RequiresGrad() {
				t.Error("SetInferenceMode(false) did not undo inference mode")
			}
		})
		x.AddScalar_(0)
	})
	mustFail(t, gotorch.RuntimeError, "Inference tensors cannot be saved for backward", func() { w.Mul(x) })
	mustFail(t, gotorch.RuntimeError, "Inplace update to inference tensor outside InferenceMode is not allowed", func() { x.AddScalar_(1) })
	mustFail(t, gotorch.RuntimeError, "Setting requires_grad=True on inference tensor", func() { x.RequiresGrad_() })
	if y := gotorch.InferenceMode1(func() gotorch.Tensor { return w.MulScalar(3) }); !y.IsInference() {
		t.Error("the result of InferenceMode1 is", y)
	}
}

func TestAutocast(t *testing.T) {
	a := ones(2, 2)
	product := func() gotorch.DType { return a.MM(a).DType() }
	gotorch.Autocast(gotorch.CPU, 0, func() {
		if product() != gotorch.BFloat16 || !gotorch.AutocastEnabled(gotorch.CPU) || gotorch.AutocastDType(gotorch.CPU) != gotorch.BFloat16 {
			t.Error("a product in autocast is", product())
		}
		gotorch.Autocast(gotorch.CPU, gotorch.Float16, func() {
			if product() != gotorch.Float16 {
				t.Error("a product in the inner autocast is", product())
			}
		}, gotorch.AutocastOptions{NoCache: true})
		gotorch.Autocast(gotorch.CPU, 0, func() {
			if product() != gotorch.Float32 || gotorch.AutocastEnabled(gotorch.CPU) {
				t.Error("a product where autocast is disabled is", product())
			}
		}, gotorch.AutocastOptions{Disabled: true})
		if product() != gotorch.BFloat16 {
			t.Error("the inner ones were not undone")
		}
	})
	if product() != gotorch.Float32 || gotorch.AutocastDType(gotorch.CPU) != gotorch.BFloat16 {
		t.Error("autocast was not undone")
	}
	never := func() { t.Error("ran") }
	mustFail(t, gotorch.ValueError, "autocast computes in float16 or bfloat16, not in Double", func() { gotorch.Autocast(gotorch.CPU, gotorch.Float64, never) })
	mustFail(t, gotorch.TypeError, "'device' is the zero Device", func() { gotorch.Autocast(0, 0, never) })
	mustFail(t, gotorch.RuntimeError, "there is no autocast for device type 'meta'", func() { gotorch.Autocast(gotorch.Meta, 0, never) })
	if !gotorch.CUDAIsAvailable() {
		mustFail(t, gotorch.RuntimeError, "", func() { gotorch.Autocast(gotorch.CUDA(0), 0, never) })
	}
}

func TestAutocastTrainsInFullPrecision(t *testing.T) {
	w, x := onesThatRequireGrad(2, 2), ones(2, 2)
	var loss gotorch.Tensor
	gotorch.Autocast(gotorch.CPU, 0, func() { loss = x.MM(w).Sum() })
	loss.Backward()
	if w.Grad().DType() != gotorch.Float32 {
		t.Error("the gradient is of", w.Grad().DType())
	}
}

func TestAGoroutineSeesItsOwnModes(t *testing.T) {
	x := leaf(1)
	for _, mode := range []func(func()){
		gotorch.NoGrad, gotorch.InferenceMode,
		func(fn func()) { gotorch.Autocast(gotorch.CPU, 0, fn) },
	} {
		mode(func() {
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					if !gotorch.GradEnabled() || gotorch.InferenceModeEnabled() || gotorch.AutocastEnabled(gotorch.CPU) || !x.Mul(x).RequiresGrad() {
						t.Error("a goroutine sees the mode of the one that started it")
					}
				})
			}
			wg.Wait()
		})
	}
}

// TestTrainEvaluateTrain is what crashes where modes are set without locking the thread: goroutines
// that train, evaluate without grad mode, and train again, while Go moves them between threads.
func TestTrainEvaluateTrain(t *testing.T) {
	steps := 300
	if testing.Short() {
		steps = 50
	}
	stop := make(chan bool)
	var movers, trainers sync.WaitGroup
	for range 4 {
		movers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					runtime.Gosched()
				}
			}
		})
	}
	results := make([]string, 6)
	for i := range results {
		trainers.Go(func() {
			w := gotorch.FromSlice([]float64{3, -2}).RequiresGrad_()
			for range steps {
				loss := w.Mul(w).Sum()
				if !loss.RequiresGrad() {
					t.Error("training does not record")
					return
				}
				runtime.Gosched()
				loss.Backward()
				gotorch.NoGrad(func() {
					runtime.Gosched()
					if w.Mul(w).RequiresGrad() {
						t.Error("evaluation records")
					}
					w.Sub_(w.Grad(), gotorch.SubOptions{Alpha: 0.01})
				})
				gotorch.InferenceMode(func() {
					runtime.Gosched()
					w.Mul(w).Sum()
				})
				w.SetGrad(gotorch.Tensor{})
			}
			results[i] = fmt.Sprint(w)
		})
	}
	trainers.Wait()
	close(stop)
	movers.Wait()
	for _, r := range results {
		if r != results[0] {
			t.Errorf("%s and %s", r, results[0])
		}
	}
}

func TestSettings(t *testing.T) {
	for _, s := range []gotorch.Setting{
		gotorch.CuDNN, gotorch.CuDNNBenchmark, gotorch.CuDNNDeterministic, gotorch.CuDNNAllowTF32, gotorch.CUDAAllowTF32,
		gotorch.CUDAAllowFP16Reduction, gotorch.CUDAAllowBF16Reduction, gotorch.OneDNN, gotorch.OneDNNDeterministic,
		gotorch.NNPACK, gotorch.FlashSDP, gotorch.MemEfficientSDP, gotorch.MathSDP, gotorch.CuDNNSDP,
		gotorch.CheckSparseInvariants, gotorch.FillUninitializedMemory, gotorch.WarnAlways,
	} {
		was := s.Enabled()
		s.Set(!was)
		if s.Enabled() == was {
			t.Errorf("setting %d stayed %v", s, was)
		}
		s.Set(was)
	}
	mustFail(t, gotorch.ValueError, "there is no setting 99", func() { gotorch.Setting(99).Set(true) })

	limit := gotorch.CuDNNBenchmarkLimit()
	gotorch.SetCuDNNBenchmarkLimit(3)
	if gotorch.CuDNNBenchmarkLimit() != 3 {
		t.Error("the limit is", gotorch.CuDNNBenchmarkLimit())
	}
	gotorch.SetCuDNNBenchmarkLimit(limit)

	gotorch.SetFloat32MatmulPrecision(gotorch.MediumPrecision)
	if gotorch.Float32MatmulPrecision() != gotorch.MediumPrecision {
		t.Error("the precision is", gotorch.Float32MatmulPrecision())
	}
	gotorch.SetFloat32MatmulPrecision(gotorch.HighestPrecision)
	mustFail(t, gotorch.ValueError, "between 0 and 2", func() { gotorch.SetFloat32MatmulPrecision(7) })
}

func TestDeterministicAlgorithms(t *testing.T) {
	put := func() { ones(4).Put(gotorch.FromSlice([]int64{0, 0}), ones(2)) }
	gotorch.UseDeterministicAlgorithms(gotorch.Deterministic)
	defer gotorch.UseDeterministicAlgorithms(gotorch.NonDeterministic)
	mustFail(t, gotorch.RuntimeError, "put_ does not have a deterministic implementation", put)
	gotorch.UseDeterministicAlgorithms(gotorch.NonDeterministic)
	put()
	if gotorch.DeterministicAlgorithms() != gotorch.NonDeterministic {
		t.Error(gotorch.DeterministicAlgorithms())
	}
}

func ExampleNoGrad() {
	w := gotorch.Ones([]int64{2}, gotorch.TensorOptions{RequiresGrad: true})
	w.Mul(w).Sum().Backward()
	gotorch.NoGrad(func() { w.Sub_(w.Grad(), gotorch.SubOptions{Alpha: 0.1}) })
	fmt.Println(w.Detach())
	// Output: tensor([0.8000, 0.8000])
}

func ExampleAutocast() {
	x := gotorch.Ones([]int64{2, 2})
	gotorch.Autocast(gotorch.CPU, gotorch.BFloat16, func() { fmt.Println(x.MM(x).DType()) })
	fmt.Println(x.MM(x).DType())
	// Output:
	// torch.bfloat16
	// torch.float32
}
