package gotorch_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"gotorch.dev/gotorch"
)

func ExampleFlopCounterMode() {
	a, b := gotorch.Ones([]int64{4, 8}), gotorch.Ones([]int64{8, 3})
	flops := gotorch.FlopCounterMode(func() { a.MatMul(b).ReLU() })
	fmt.Println(flops, flops.Total())
	// Output: map[aten.mm:192] 192
}

func TestSmokeFlopCounterMode(t *testing.T) {
	a := gotorch.Ones([]int64{2, 2}, gotorch.TensorOptions{RequiresGrad: true})
	product := func() gotorch.Tensor { return a.MatMul(a) }
	check := func(name string, got gotorch.FLOPs, want int64) {
		t.Helper()
		if got.Total() != want {
			t.Errorf("%s: %v, not %d", name, got, want)
		}
	}
	var inner gotorch.FLOPs
	outer := gotorch.FlopCounterMode(func() {
		product()
		inner = gotorch.FlopCounterMode(func() { product() })
		product()
	})
	check("inner", inner, 16)
	check("outer", outer, 48)
	check("backward", gotorch.FlopCounterMode(func() { product().Sum().Backward() }), 48)
	check("nothing", gotorch.FlopCounterMode(func() {}), 0)
	check("a call that fails", gotorch.FlopCounterMode(func() {
		if err := gotorch.Try0(func() { a.MM(gotorch.Ones([]int64{3, 3})) }); err == nil {
			t.Error("no error")
		}
	}), 0)
	check("in a hook", gotorch.FlopCounterMode(func() {
		x := a.Add(a)
		x.RegisterHook(func(g gotorch.Tensor) gotorch.Tensor { return g.MatMul(g) })
		x.Sum().Backward()
	}), 16)

	// What ends it in another way leaves nothing behind.
	if err := gotorch.Try0(func() { gotorch.FlopCounterMode(func() { panic(&gotorch.Error{Kind: gotorch.ValueError}) }) }); err == nil {
		t.Error("the panic is lost")
	}
	done := make(chan bool)
	go func() {
		defer close(done)
		gotorch.FlopCounterMode(func() { runtime.Goexit() })
	}()
	<-done
	var group sync.WaitGroup
	for range 40 {
		group.Go(func() { check("a goroutine", gotorch.FlopCounterMode(func() { product() }), 16) })
	}
	group.Wait()
}
