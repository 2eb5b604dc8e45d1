package gotorch_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
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

func TestDiagonalsGoWhereTheyBelong(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		k, width, m, n := rng.Int64N(4), rng.Int64N(7), rng.Int64N(6), rng.Int64N(6)
		offsets := make([]int64, k)
		for i, at := range rng.Perm(15)[:k] {
			offsets[i] = int64(at) - 7 // some lie outside
		}
		diagonals := gotorch.Arange(1+k*width).Narrow(0, 1, k*width).View([]int64{k, width}) // 1, 2, 3, ...
		want := make([]int64, m*n)
		for i, offset := range offsets {
			for j := range min(width, n) {
				if row := j - offset; 0 <= row && row < m {
					want[row*n+j] = 1 + int64(i)*width + j
				}
			}
		}
		for _, layout := range []gotorch.Layout{0, gotorch.SparseCOO, gotorch.SparseCSR, gotorch.SparseCSC} {
			s := gotorch.SparseSpdiags(diagonals, gotorch.FromSlice(offsets, k), []int64{m, n}, gotorch.SparseSpdiagsOptions{Layout: layout})
			got := s.ToDense()
			if l := s.Layout(); l != max(layout, gotorch.SparseCOO) || !slices.Equal(got.Shape(), []int64{m, n}) || !slices.Equal(gotorch.ToSlice[int64](got), want) {
				t.Fatalf("%v at %v in %d by %d, %v: got %v, %v", diagonals, offsets, m, n, layout, l, got)
			}
		}
	}
	d := gotorch.Ones([]int64{2, 3}, gotorch.TensorOptions{RequiresGrad: true})
	gotorch.SparseSpdiags(d, gotorch.FromSlice([]int64{-1, 9}), []int64{3, 3}).ToDense().Sum().Backward()
	if grad := gotorch.ToSlice[int64](d.Grad()); !slices.Equal(grad, []int64{1, 1, 0, 0, 0, 0}) {
		t.Errorf("the gradient is %v", grad)
	}
	one := gotorch.SparseSpdiags(gotorch.Arange(3), gotorch.FromSlice([]int64{1}).Squeeze(), []int64{2, 3}).ToDense()
	if !slices.Equal(gotorch.ToSlice[int64](one), []int64{0, 1, 0, 0, 0, 2}) {
		t.Errorf("got %v", one)
	}
	// What PyTorch's documentation shows.
	got := gotorch.SparseSpdiags(gotorch.Arange(9).View([]int64{3, 3}), gotorch.FromSlice([]int64{0, -1, -2}), []int64{3, 3}).ToDense()
	if !slices.Equal(gotorch.ToSlice[int64](got), []int64{0, 0, 0, 3, 1, 0, 6, 4, 2}) {
		t.Errorf("got %v", got)
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
			func() { gotorch.SparseSpdiags(a, gotorch.Arange(3), []int64{4, 4}) },
			func() { gotorch.SparseSpdiags(a, gotorch.Arange(4), []int64{4, 4, 4}) },
			func() { gotorch.SparseSpdiags(a, gotorch.Arange(4), []int64{4, -4}) },
			func() { gotorch.SparseSpdiags(a, gotorch.Arange(4).To(gotorch.Int32), []int64{4, 4}) },
			func() { gotorch.SparseSpdiags(a, gotorch.Zeros([]int64{4}).To(gotorch.Int64), []int64{4, 4}) },
			func() { gotorch.SparseSpdiags(a.View([]int64{12}), gotorch.Arange(4), []int64{4, 4}) },
			func() {
				gotorch.SparseSpdiags(a, gotorch.Arange(4), []int64{4, 4}, gotorch.SparseSpdiagsOptions{Layout: gotorch.Strided})
			},
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
