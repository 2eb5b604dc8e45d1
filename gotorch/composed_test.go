package gotorch_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"gotorch.dev/gotorch"
)

func ExampleUnravelIndex() {
	rows := gotorch.UnravelIndex(gotorch.NewTensor([]int64{1, 5}), []int64{2, 3})
	fmt.Println(rows[0], rows[1], gotorch.BroadcastShapes([]int64{2, 1}, []int64{3}))
	// Output: tensor([0, 1]) tensor([1, 2]) [2 3]
}

func TestForkRNGGivesTheStateBack(t *testing.T) {
	gotorch.ManualSeed(5)
	want := gotorch.Rand([]int64{3})
	for name, fn := range map[string]func(){
		"draws":  func() { gotorch.Rand([]int64{100}) },
		"seeds":  func() { gotorch.ManualSeed(9) },
		"panics": func() { gotorch.Rand([]int64{7}); panic("as it is meant to") },
		"nests":  func() { gotorch.ForkRNG(func() { gotorch.Rand([]int64{7}) }) },
		"scoped": func() { gotorch.Scope0(func(*gotorch.ScopeHandle) { gotorch.Rand([]int64{7}) }) },
	} {
		gotorch.ManualSeed(5)
		func() {
			defer func() { _ = recover() }()
			gotorch.ForkRNG(fn)
		}()
		if got := gotorch.Rand([]int64{3}); !got.Equal(want) {
			t.Errorf("%s: the next numbers are %v, not %v", name, got, want)
		}
	}
	gotorch.ManualSeed(5)
	done := make(chan struct{})
	go func() { // as t.Fatal does
		defer close(done)
		gotorch.ForkRNG(func() { gotorch.Rand([]int64{7}); runtime.Goexit() })
	}()
	<-done
	if !gotorch.Rand([]int64{3}).Equal(want) {
		t.Error("the state is not that before a goroutine that has ended")
	}
	gotorch.ManualSeed(5)
	gotorch.ForkRNG(func() { gotorch.Rand([]int64{3}) }, gotorch.ForkRNGOptions{Disabled: true})
	if gotorch.Rand([]int64{3}).Equal(want) {
		t.Error("Disabled gives the state back")
	}
}

func TestComposedRefuse(t *testing.T) {
	a := gotorch.Randn([]int64{4, 3})
	for kind, fns := range map[gotorch.ErrorKind][]func(){
		gotorch.TypeError: {
			func() { gotorch.UnravelIndex(a, []int64{2}) },
			func() { gotorch.UnravelIndex(a.GtScalar(0), []int64{2}) },
			func() { gotorch.ForkRNG(nil) },
		},
		gotorch.ValueError: {
			func() { gotorch.UnravelIndex(gotorch.Arange(2), []int64{0, 2}) },
			func() { gotorch.UnravelIndex(gotorch.Arange(2), []int64{-1}) },
			func() { gotorch.BroadcastShapes([]int64{-1}) },
			func() { gotorch.PCALowRank(a, gotorch.PCALowRankOptions{Q: new(int64(4))}) },
			func() { gotorch.PCALowRank(a, gotorch.PCALowRankOptions{NIter: new(int64(-1))}) },
		},
		gotorch.RuntimeError: {
			func() { gotorch.BroadcastShapes([]int64{2}, []int64{3}) },
			func() { gotorch.SVDLowRank(a.Select(0, 0)) },
			func() { gotorch.SVDLowRank(a, gotorch.SVDLowRankOptions{Q: new(int64(-2))}) },
			func() { gotorch.SVDLowRank(a, gotorch.SVDLowRankOptions{M: gotorch.Ones([]int64{5, 3})}) },
		},
	} {
		for i, fn := range fns {
			if err := gotorch.Try0(fn); !errors.Is(err, kind) {
				t.Errorf("%s %d: got %v", kind, i, err)
			}
		}
	}
	if got := gotorch.BroadcastShapes(); got == nil || !slices.Equal(got, []int64{}) {
		t.Errorf("no shapes broadcast to %#v", got)
	}
}
