package gotorch_test

import (
	"fmt"
	"sync"
	"testing"

	"gotorch.dev/gotorch"
)

func TestSmokeManualSeed(t *testing.T) {
	// >>> torch.manual_seed(7); torch.rand(3); torch.randperm(5)
	gotorch.ManualSeed(7)
	expect(t, gotorch.Rand([]int64{3}), "tensor([0.5349, 0.1988, 0.6592])")
	gotorch.ManualSeed(7)
	gotorch.Rand([]int64{3})
	gotorch.Randint(100, []int64{4})
	expect(t, gotorch.Randperm(5), "tensor([4, 1, 0, 3, 2])")
	if gotorch.InitialSeed() != 7 {
		t.Error("the seed is", gotorch.InitialSeed())
	}
	if seed := gotorch.Seed(); seed == 7 || gotorch.InitialSeed() != seed {
		t.Error("the seed is", gotorch.InitialSeed(), "and not", seed)
	}
}

func TestGenerator(t *testing.T) {
	g := gotorch.NewGenerator(gotorch.CPU)
	if g.InitialSeed() != 67280421310721 || g.Device() != gotorch.CPU && g.Device().Type() != gotorch.DeviceTypeCPU {
		t.Error("a new generator has seed", g.InitialSeed(), "and device", g.Device())
	}
	// >>> g.manual_seed(2**63 + 5); torch.rand(2, generator=g)
	if g.ManualSeed(1<<63+5).InitialSeed() != 1<<63+5 {
		t.Error("the seed is", g.InitialSeed())
	}
	draw := func(g *gotorch.Generator, n int64) gotorch.Tensor { return gotorch.RandGenerator([]int64{n}, g) }
	expect(t, draw(g, 2), "tensor([0.8303, 0.1261])")
	state, twin := g.State(), g.Clone()
	expect(t, draw(g, 1), "tensor([0.9075])")
	expect(t, draw(twin, 1), "tensor([0.9075])")
	g.SetState(state)
	expect(t, draw(g, 1), "tensor([0.9075])")
	if state.Numel() != 5056 || state.DType() != gotorch.Uint8 {
		t.Error("the state is", state)
	}

	mustFail(t, gotorch.RuntimeError, "Expected a CPUGeneratorImplState of size 5056 but found the input RNG state size to be 3", func() {
		g.SetState(gotorch.Zeros([]int64{3}, gotorch.TensorOptions{DType: gotorch.Uint8}))
	})
	mustFail(t, gotorch.RuntimeError, "CPU Generator does not use offset", func() { g.Offset() })
	mustFail(t, gotorch.TypeError, "'device' is the zero Device", func() { gotorch.NewGenerator(0) })
	mustFail(t, gotorch.TypeError, "the generator is nil", func() { (*gotorch.Generator)(nil).Seed() })
	if !gotorch.CUDAIsAvailable() {
		mustFail(t, gotorch.RuntimeError, "", func() { gotorch.NewGenerator(gotorch.CUDA(0)) })
	}
}

func TestDefaultGeneratorIsTheOneThatOpsUse(t *testing.T) {
	gotorch.DefaultGenerator(gotorch.CPU).ManualSeed(7)
	expect(t, gotorch.Rand([]int64{3}), "tensor([0.5349, 0.1988, 0.6592])")
}

func TestGeneratorInManyGoroutines(t *testing.T) {
	// Whatever the order, together they draw the numbers that one would.
	g := gotorch.NewGenerator(gotorch.CPU).ManualSeed(1)
	var mutex sync.Mutex
	sum := gotorch.Zeros(nil, gotorch.TensorOptions{DType: gotorch.Float64})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				x := gotorch.RandGenerator([]int64{1}, g, gotorch.TensorOptions{DType: gotorch.Float64}).Sum()
				mutex.Lock()
				sum.Add_(x)
				mutex.Unlock()
			}
		})
	}
	wg.Wait()
	want := gotorch.Zeros(nil, gotorch.TensorOptions{DType: gotorch.Float64})
	g.ManualSeed(1)
	for range 800 {
		want.Add_(gotorch.RandGenerator([]int64{1}, g, gotorch.TensorOptions{DType: gotorch.Float64}).Sum())
	}
	if !sum.AllClose(want) {
		t.Errorf("%v and %v", sum, want)
	}
}

func ExampleGenerator() {
	g := gotorch.NewGenerator(gotorch.CPU).ManualSeed(42)
	fmt.Println(gotorch.RandnGenerator([]int64{3}, g))
	// Output: tensor([0.3367, 0.1288, 0.2345])
}

// TestManualSeedOnTwoThreads seeds on two goroutines, while a third draws: afterwards the stream is that of one
// seed, and no mixture.
func TestManualSeedOnTwoThreads(t *testing.T) {
	seeded := func(seed uint64) string {
		gotorch.ManualSeed(seed)
		return gotorch.Rand([]int64{700}).String()
	}
	first, second := seeded(1), seeded(2)
	for range 300 {
		var both sync.WaitGroup
		both.Go(func() { gotorch.ManualSeed(1) })
		both.Go(func() { gotorch.ManualSeed(2) })
		both.Wait()
		if got := gotorch.Rand([]int64{700}).String(); got != first && got != second {
			t.Fatal("the numbers are those of neither seed")
		}
		both.Go(func() { gotorch.ManualSeed(3) })
		both.Go(func() { gotorch.Rand([]int64{700}) })
		both.Wait()
	}
}
