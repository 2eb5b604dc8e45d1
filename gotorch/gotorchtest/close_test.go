package gotorchtest_test

import (
	"fmt"
	"math"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/gotorchtest"
)

var nan, inf = math.NaN(), math.Inf(1)

func f(values ...float64) gotorch.Tensor { return gotorch.FromSlice(values).To(gotorch.Float32) }

func as(dtype gotorch.DType, values ...float64) gotorch.Tensor {
	return gotorch.FromSlice(values).To(dtype)
}

// Which pairs are close, how many elements differ, and where they differ most, is what
// torch.testing.assert_close of PyTorch 2.15 says of the same pairs.
func TestDiff(t *testing.T) {
	tolerances := func(rtol, atol float64) gotorchtest.Options {
		return gotorchtest.Options{RTol: &rtol, ATol: &atol}
	}
	for _, test := range []struct {
		got, want gotorch.Tensor
		opts      gotorchtest.Options
		diff      string
	}{
		{got: f(1, 2.00001), want: f(1, 2)},
		{got: f(1, 2.00002), want: f(1, 2), diff: "the tensors are not close: 1 of 2 elements differ (50.0 %)\n" +
			"\tgreatest absolute difference: 2.00272e-05 at [1], allowed 1e-05: got 2.00002, want 2\n" +
			"\tgreatest relative difference: 1.00136e-05 at [1], allowed 1.3e-06: got 2.00002, want 2"},
		{got: f(1, 2, 3, 4, 5.5, 6).Reshape([]int64{2, 3}), want: f(1, 2, 3, 4, 5, 6).Reshape([]int64{2, 3}), diff: "the tensors are not close: 1 of 6 elements differ (16.7 %)\n" +
			"\tgreatest absolute difference: 0.5 at [1 1], allowed 1e-05: got 5.5, want 5\n" +
			"\tgreatest relative difference: 0.1 at [1 1], allowed 1.3e-06: got 5.5, want 5"},
		{got: as(gotorch.Float64, 1, 2.00001), want: as(gotorch.Float64, 1, 2), diff: "the tensors are not close: 1 of 2 elements differ (50.0 %)\n" +
			"\tgreatest absolute difference: 1e-05 at [1], allowed 1e-07: got 2.00001, want 2\n" +
			"\tgreatest relative difference: 5e-06 at [1], allowed 1e-07: got 2.00001, want 2"},
		{got: as(gotorch.Float16, 1, 2.002), want: as(gotorch.Float16, 1, 2)},
		{got: as(gotorch.Float16, 1, 2.01), want: as(gotorch.Float16, 1, 2), diff: "the tensors are not close: 1 of 2 elements differ (50.0 %)\n" +
			"\tgreatest absolute difference: 0.00976562 at [1], allowed 1e-05: got 2.0097656, want 2\n" +
			"\tgreatest relative difference: 0.00488281 at [1], allowed 0.001: got 2.0097656, want 2"},
		{got: as(gotorch.BFloat16, 1, 2.02), want: as(gotorch.BFloat16, 1, 2)},
		{got: as(gotorch.BFloat16, 1, 2.05), want: as(gotorch.BFloat16, 1, 2), diff: "the tensors are not close: 1 of 2 elements differ (50.0 %)\n" +
			"\tgreatest absolute difference: 0.046875 at [1], allowed 1e-05: got 2.046875, want 2\n" +
			"\tgreatest relative difference: 0.0234375 at [1], allowed 0.016: got 2.046875, want 2"},
		{got: f(0.1, 0), want: f(0, 0), diff: "the tensors are not close: 1 of 2 elements differ (50.0 %)\n" +
			"\tgreatest absolute difference: 0.1 at [0], allowed 1e-05: got 0.1, want 0\n" +
			"\tgreatest relative difference: +Inf at [0], allowed 1.3e-06: got 0.1, want 0"},
		{got: f(nan), want: f(nan), opts: gotorchtest.Options{EqualNaN: true}},
		{got: f(1, nan, 3.5), want: f(1, 2, 3), opts: tolerances(0, 1), diff: "the tensors are not close: 1 of 3 elements differ (33.3 %)\n" +
			"\tgreatest absolute difference: NaN at [1], allowed 1: got NaN, want 2\n" +
			"\tgreatest relative difference: NaN at [1], allowed 0: got NaN, want 2"},
		{got: f(inf, -inf), want: f(inf, -inf)},
		{got: f(inf, 1), want: f(-inf, 1), diff: "the tensors are not close: 1 of 2 elements differ (50.0 %)\n" +
			"\tgreatest absolute difference: +Inf at [0], allowed 1e-05: got +Inf, want -Inf\n" +
			"\tgreatest relative difference: NaN at [0], allowed 1.3e-06: got +Inf, want -Inf"},
		{got: f(1e30), want: f(inf), opts: tolerances(1, 1), diff: "the tensors are not close: 1 of 1 elements differ (100.0 %)\n" +
			"\tgreatest absolute difference: +Inf at [0], allowed 1: got 1e+30, want +Inf\n" +
			"\tgreatest relative difference: NaN at [0], allowed 1: got 1e+30, want +Inf"},
		{got: f(3, 1.5), want: f(1, 1), opts: tolerances(0.4, 0), diff: "the tensors are not close: 2 of 2 elements differ (100.0 %)\n" +
			"\tgreatest absolute difference: 2 at [0], allowed 0: got 3, want 1\n" +
			"\tgreatest relative difference: 2 at [0], allowed 0.4: got 3, want 1"},
		{got: gotorch.FromSlice([]int{1, 2, 5}), want: gotorch.FromSlice([]int{1, 2, 3}), opts: tolerances(0, 2)},
		{got: gotorch.FromSlice([]int{1, 2, 5}), want: gotorch.FromSlice([]int{1, 2, 3}), diff: "the tensors are not close: 1 of 3 elements differ (33.3 %)\n" +
			"\tgreatest absolute difference: 2 at [2], allowed 0: got 5, want 3\n" +
			"\tgreatest relative difference: 0.666667 at [2], allowed 0: got 5, want 3"},
		{got: gotorch.FromSlice([]int{1<<60 + 1}), want: gotorch.FromSlice([]int{1 << 60}), diff: "the tensors are not close: 1 of 1 elements differ (100.0 %)\n" +
			"\tgreatest absolute difference: 1 at [0], allowed 0: got 1152921504606846977, want 1152921504606846976\n" +
			"\tgreatest relative difference: 8.67362e-19 at [0], allowed 0: got 1152921504606846977, want 1152921504606846976"},
		// PyTorch's difference of these overflows, to 1.
		{got: gotorch.FromSlice([]int{math.MaxInt64}), want: gotorch.FromSlice([]int{math.MinInt64}), diff: "the tensors are not close: 1 of 1 elements differ (100.0 %)\n" +
			"\tgreatest absolute difference: 1.84467e+19 at [0], allowed 0: got 9223372036854775807, want -9223372036854775808\n" +
			"\tgreatest relative difference: 2 at [0], allowed 0: got 9223372036854775807, want -9223372036854775808"},
		{got: gotorch.FromSlice([]bool{true, false}), want: gotorch.FromSlice([]bool{true, true}), diff: "the tensors are not close: 1 of 2 elements differ (50.0 %)\n" +
			"\tgreatest absolute difference: 1 at [1], allowed 0: got false, want true\n" +
			"\tgreatest relative difference: 1 at [1], allowed 0: got false, want true"},
		{got: gotorch.FromSlice([]complex64{1.5 + 1i, 2}), want: gotorch.FromSlice([]complex64{1.5 + 2i, 2}), diff: "the tensors are not close: 1 of 2 elements differ (50.0 %)\n" +
			"\tgreatest absolute difference: 1 at [0], allowed 1e-05: got (1.5+1i), want (1.5+2i)\n" +
			"\tgreatest relative difference: 0.4 at [0], allowed 1.3e-06: got (1.5+1i), want (1.5+2i)"},
		{got: gotorch.FromScalar(float32(1.5)), want: gotorch.FromScalar(float32(1)), diff: "the numbers are not close\n" +
			"\tgreatest absolute difference: 0.5, allowed 1e-05: got 1.5, want 1\n" +
			"\tgreatest relative difference: 0.5, allowed 1.3e-06: got 1.5, want 1"},
		{got: f(), want: f()},
		{},
		{got: f(1, 2).ToSparse(), want: f(1, 2).ToSparse()},
		{got: f(1, 2).ToSparse(), want: f(1, 2), opts: gotorchtest.Options{AnyLayout: true}},
		{got: f(1, 2).RequiresGrad_(), want: f(1, 2)},
		{got: f(1, 2), want: as(gotorch.Float64, 1, 2), opts: gotorchtest.Options{AnyDType: true}},
		{got: f(1, 2), want: gotorch.FromSlice([]int{1, 2}), opts: gotorchtest.Options{AnyDType: true}},

		{got: f(1, 2), want: gotorch.Tensor{}, diff: "got a tensor of shape [2], want no tensor"},
		{got: f(1, 2), want: f(1, 2, 3), diff: "got shape [2], want [3]"},
		{got: f(1, 2), want: as(gotorch.Float64, 1, 2), diff: "got dtype torch.float32, want torch.float64"},
		{got: f(1, 2).ToSparse(), want: f(1, 2), diff: "got layout torch.sparse_coo, want torch.strided"},
		{got: f(1, 2).RequiresGrad_(), want: f(1, 2), opts: gotorchtest.Options{RequiresGrad: true}, diff: "got RequiresGrad true, want false"},
		{got: f(1, 2, 3, 4).Reshape([]int64{2, 2}).MT(), want: f(1, 3, 2, 4).Reshape([]int64{2, 2}), opts: gotorchtest.Options{SameStrides: true},
			diff: "got strides [1 2], want [2 1]"},
		{got: f(1), want: f(1), opts: gotorchtest.Options{RTol: new(float64)}, diff: "Options must have both RTol and ATol, or neither"},
	} {
		if diff := gotorchtest.Diff(test.got, test.want, test.opts); diff != test.diff {
			t.Errorf("Diff(%v, %v) says\n%s\nwant\n%s", test.got, test.want, diff, test.diff)
		}
	}
}

func TestDiffLeavesNothing(t *testing.T) {
	got, want := f(1, 2, 3), f(1, 2, 4)
	gotorch.Scope0(func(*gotorch.ScopeHandle) {
		before := gotorch.MemoryStats()
		for range 10 {
			gotorchtest.Diff(got, want)
		}
		after := gotorch.MemoryStats()
		if after.LiveHandles != before.LiveHandles || after.NativeBytes != before.NativeBytes {
			t.Errorf("%d tensors and %d bytes were left over", after.LiveHandles-before.LiveHandles, after.NativeBytes-before.NativeBytes)
		}
	})
}

// recorder is a test that fails, and says what it was told.
type recorder struct {
	testing.TB
	said []string
}

func (r *recorder) Helper() {}

func (r *recorder) Error(args ...any) { r.said = append(r.said, fmt.Sprint(args...)) }

func (r *recorder) Errorf(format string, args ...any) {
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

func TestAssert(t *testing.T) {
	for _, test := range []struct {
		name   string
		assert func(tb testing.TB) bool
		fails  int
	}{
		{"close", func(tb testing.TB) bool { return gotorchtest.AssertClose(tb, f(2.00001), f(2)) }, 0},
		{"not close", func(tb testing.TB) bool { return gotorchtest.AssertClose(tb, f(2.1), f(2)) }, 1},
		{"equal", func(tb testing.TB) bool { return gotorchtest.AssertEqual(tb, f(2, nan), f(2, nan)) }, 0},
		{"close is not equal", func(tb testing.TB) bool { return gotorchtest.AssertEqual(tb, f(2.00001), f(2)) }, 1},
		{"all close", func(tb testing.TB) bool {
			return gotorchtest.AssertAllClose(tb, []gotorch.Tensor{f(1), f(2)}, []gotorch.Tensor{f(1), f(2)})
		}, 0},
		{"two are not close", func(tb testing.TB) bool {
			return gotorchtest.AssertAllClose(tb, []gotorch.Tensor{f(1), f(2), f(3)}, []gotorch.Tensor{f(0), f(2), f(4)})
		}, 2},
		{"one is missing", func(tb testing.TB) bool {
			return gotorchtest.AssertAllClose(tb, []gotorch.Tensor{f(1)}, []gotorch.Tensor{f(1), f(2)})
		}, 1},
	} {
		r := &recorder{TB: t}
		if ok := test.assert(r); ok != (test.fails == 0) || len(r.said) != test.fails {
			t.Errorf("%s: returned %v and said %q", test.name, ok, r.said)
		}
	}
}

func ExampleDiff() {
	got := gotorch.FromSlice([]float32{1, 2, 3, 4.5}, 2, 2)
	want := gotorch.FromSlice([]float32{1, 2, 3, 4}, 2, 2)
	fmt.Println(gotorchtest.Diff(got, want))
	// Output:
	// the tensors are not close: 1 of 4 elements differ (25.0 %)
	// 	greatest absolute difference: 0.5 at [1 1], allowed 1e-05: got 4.5, want 4
	// 	greatest relative difference: 0.125 at [1 1], allowed 1.3e-06: got 4.5, want 4
}
