package gotorch_test

import (
	"errors"
	"testing"

	"gotorch.dev/gotorch"
)

func TestRows(t *testing.T) {
	x := gotorch.Arange(6).Reshape([]int64{3, 2})
	n := 0
	for i, row := range x.Rows() {
		if i != n || !row.Equal(gotorch.FromSlice([]int{2 * i, 2*i + 1})) {
			t.Errorf("row %d is %v", i, row)
		}
		row.MulScalar_(10)
		n++
	}
	if want := gotorch.Arange(6).Reshape([]int64{3, 2}).MulScalar(10); n != 3 || !x.Equal(want) {
		t.Errorf("rows are views: after writing to %d of them x = %v", n, x)
	}
}

func TestAlong(t *testing.T) {
	x := gotorch.Arange(24).Reshape([]int64{2, 3, 4})
	for _, dim := range []int64{0, 1, 2, -1, -2, -3} {
		n := int64(0)
		for i, part := range x.Along(dim) {
			if want := x.Select(dim, int64(i)); !part.Equal(want) {
				t.Errorf("along %d, tensor %d is %v, want %v", dim, i, part, want)
			}
			n++
		}
		if n != x.Size(dim) {
			t.Errorf("%d tensors along %d", n, dim)
		}
	}
	for range gotorch.Zeros([]int64{0, 3}).Rows() {
		t.Error("a row of a tensor without rows")
	}
}

func TestRowsStopWhenToldTo(t *testing.T) {
	x := gotorch.Arange(1000)
	gotorch.Scope0(func(*gotorch.ScopeHandle) {
		before := gotorch.MemoryStats().MadeHandles
		for i := range x.Rows() {
			if i == 2 {
				break
			}
		}
		if made := gotorch.MemoryStats().MadeHandles - before; made != 3 {
			t.Errorf("%d rows were made for 3 turns", made)
		}
	})
}

// In a graph rows come from one node, as in Python.
func TestRowsGradient(t *testing.T) {
	for _, stop := range []int{1, 3} {
		x := gotorch.Arange(6, gotorch.TensorOptions{DType: gotorch.Float32}).Reshape([]int64{3, 2}).RequiresGrad_()
		sum := gotorch.Zeros(nil)
		for i, row := range x.Rows() {
			if i == stop {
				break
			}
			if name := row.GradFnName(); name != "UnbindBackward0" {
				t.Errorf("a row was made by %s", name)
			}
			sum = sum.Add(row.Sum().MulScalar(i + 1))
		}
		sum.Backward()
		want := gotorch.FromSlice([]float32{1, 1, 2, 2, 3, 3}, 3, 2)
		want.IndexPut(0, gotorch.SliceFrom(stop))
		if !x.Grad().Equal(want) {
			t.Errorf("gradient %v, want %v", x.Grad(), want)
		}
		gotorch.NoGrad(func() {
			for _, row := range x.Rows() {
				row.Zero_() // a view of its own, which a row from Unbind is not
			}
		})
		if x.Any().Item() != false {
			t.Errorf("x = %v", x)
		}
	}
}

func TestRowsErrors(t *testing.T) {
	for _, test := range []struct {
		fn   func()
		kind gotorch.ErrorKind
	}{
		{func() { gotorch.Zeros(nil).Rows() }, gotorch.TypeError},
		{func() { gotorch.Zeros([]int64{2}).Along(1) }, gotorch.IndexError},
		{func() { gotorch.Tensor{}.Rows() }, gotorch.TypeError},
		{func() {
			x := gotorch.Zeros([]int64{2})
			for range x.Rows() {
				x.Close()
			}
		}, gotorch.ValueError},
	} {
		if err := gotorch.Try0(test.fn); !errors.Is(err, test.kind) {
			t.Errorf("%v, want a %s", err, test.kind)
		}
	}
}
