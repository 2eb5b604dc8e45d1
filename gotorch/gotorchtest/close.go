// Package gotorchtest helps to test code that computes with tensors.
//
//	func TestDouble(t *testing.T) {
//		got := Double(gotorch.FromSlice([]float32{1, 2}))
//		gotorchtest.AssertClose(t, got, gotorch.FromSlice([]float32{2, 4}))
//	}
//
// Where the tensors differ, the test fails and says how many elements do, and where they do most:
//
//	the tensors are not close: 1 of 2 elements differ (50.0 %)
//		greatest absolute difference: 0.5 at [1], allowed 1e-05: got 4.5, want 4
//		greatest relative difference: 0.125 at [1], allowed 1.3e-06: got 4.5, want 4
package gotorchtest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// Options say what counts as close. Without them, it is what counts in Python's
// torch.testing.assert_close: the same device, dtype, layout and shape, and |got - want| <= ATol + RTol·|want|
// in each element, with tolerances that follow the dtype.
type Options struct {
	// RTol and ATol are the tolerances; give both or none. By default they are those of the less
	// precise of the two dtypes: 1.3e-6 and 1e-5 for Float32, 1e-7 and 1e-7 for Float64, 1e-3 and
	// 1e-5 for Float16, 1.6e-2 and 1e-5 for BFloat16, 0 and 0 for integers and bools.
	RTol, ATol gotorch.Scalar

	EqualNaN     bool // a NaN is close to a NaN
	AnyDevice    bool // compare tensors on different devices
	AnyDType     bool // compare tensors of different dtypes
	AnyLayout    bool // compare dense and sparse tensors
	SameStrides  bool // strides must be the same as well
	RequiresGrad bool // both or neither must require gradients
}

// AssertClose fails the test, which goes on, unless got is close to want; it reports whether it is.
func AssertClose(tb testing.TB, got, want gotorch.Tensor, opts ...Options) bool {
	tb.Helper()
	if diff := Diff(got, want, opts...); diff != "" {
		tb.Error(diff)
		return false
	}
	return true
}

// AssertEqual is [AssertClose] without tolerances, where NaNs are equal.
func AssertEqual(tb testing.TB, got, want gotorch.Tensor, opts ...Options) bool {
	tb.Helper()
	o := args.Option(opts)
	o.EqualNaN, o.RTol, o.ATol = true, 0, 0
	return AssertClose(tb, got, want, o)
}

// AssertAllClose is [AssertClose] for each pair of two slices, which must be equally long.
func AssertAllClose(tb testing.TB, got, want []gotorch.Tensor, opts ...Options) bool {
	tb.Helper()
	if len(got) != len(want) {
		tb.Errorf("got %d tensors, want %d", len(got), len(want))
		return false
	}
	same := true
	for i := range got {
		if diff := Diff(got[i], want[i], opts...); diff != "" {
			tb.Errorf("tensor %d: %s", i, diff)
			same = false
		}
	}
	return same
}

// Diff says how got differs from want, in one or more lines; "" if they are close. A tensor that is
// none is close to another none only. What it makes meanwhile it frees.
func Diff(got, want gotorch.Tensor, opts ...Options) string {
	o := args.Option(opts)
	if rtol, atol := o.given(); math.IsNaN(rtol) != math.IsNaN(atol) {
		return "Options must have both RTol and ATol, or neither"
	}
	if !got.Defined() || !want.Defined() {
		if got.Defined() == want.Defined() {
			return ""
		}
		return fmt.Sprintf("got %s, want %s", noneOr(got), noneOr(want))
	}
	diff := ""
	gotorch.NoGrad(func() {
		diff = gotorch.Scope(func(*gotorch.ScopeHandle) string {
			if d := o.diffKind(got, want); d != "" {
				return d
			}
			return o.diffValues(got, want)
		})
	})
	return diff
}

func noneOr(t gotorch.Tensor) string {
	if !t.Defined() {
		return "no tensor"
	}
	return fmt.Sprintf("a tensor of shape %v", t.Shape())
}

// diffKind compares what can be told without looking at the elements.
func (o Options) diffKind(got, want gotorch.Tensor) string {
	if g, w := got.Shape(), want.Shape(); !slices.Equal(g, w) {
		return fmt.Sprintf("got shape %v, want %v", g, w)
	}
	if g, w := got.DType(), want.DType(); g != w && !o.AnyDType {
		return fmt.Sprintf("got dtype %v, want %v", g, w)
	}
	if g, w := got.Device(), want.Device(); g != w && !o.AnyDevice {
		return fmt.Sprintf("got device %v, want %v", g, w)
	}
	if g, w := got.Layout(), want.Layout(); g != w && !o.AnyLayout {
		return fmt.Sprintf("got layout %v, want %v", g, w)
	}
	if g, w := got.RequiresGrad(), want.RequiresGrad(); g != w && o.RequiresGrad {
		return fmt.Sprintf("got RequiresGrad %v, want %v", g, w)
	}
	if o.SameStrides {
		if g, w := got.Strides(), want.Strides(); !slices.Equal(g, w) {
			return fmt.Sprintf("got strides %v, want %v", g, w)
		}
	}
	return ""
}

// diffValues compares the elements, and describes the worst of those that differ.
func (o Options) diffValues(got, want gotorch.Tensor) string {
	rtol, atol := o.tolerances(got.DType(), want.DType())
	shape, total := want.Shape(), want.Numel()
	got, want = plain(got), plain(want)
	dtype := widest(got.DType()).Promote(widest(want.DType()))
	g, w := got.To(dtype), want.To(dtype)
	// Where the tensors are equal their difference is 0, also between infinities.
	same := g.Eq(w)
	if o.EqualNaN {
		same = same.LogicalOr(g.IsNaN().LogicalAnd(w.IsNaN()))
	}
	absolute := distance(g, w).MaskedFill(same, 0)
	size := magnitude(w)
	relative := absolute.Div(size).MaskedFill(same, 0)
	near := same
	if rtol != 0 || atol != 0 {
		// Nothing finite is near an infinity, however large what RTol allows there.
		near = same.LogicalOr(absolute.Le(size.MulScalar(rtol).AddScalar(atol)).LogicalAnd(absolute.IsFinite()))
	}
	n := gotorch.Item[int64](near.LogicalNot().Sum())
	if n == 0 {
		return ""
	}
	var b strings.Builder
	if len(shape) == 0 {
		b.WriteString("the numbers are not close")
	} else {
		fmt.Fprintf(&b, "the tensors are not close: %d of %d elements differ (%.1f %%)", n, total, 100*float64(n)/float64(total))
	}
	worst := func(name string, by gotorch.Tensor, allowed float64) {
		by = by.MaskedFill(near, 0).Ravel()
		at := gotorch.Item[int64](by.ArgMax())
		fmt.Fprintf(&b, "\n\tgreatest %s difference: %.6g", name, gotorch.Item[float64](by.Index(gotorch.At(at))))
		if len(shape) > 0 {
			fmt.Fprintf(&b, " at %v", position(at, shape))
		}
		fmt.Fprintf(&b, ", allowed %g: got %s, want %s", allowed, number(got, at), number(want, at))
	}
	worst("absolute", absolute, atol)
	worst("relative", relative, rtol)
	return b.String()
}

// number is the element at a flat position, in as few digits as tell it apart.
func number(t gotorch.Tensor, at int64) string {
	v := t.Ravel().Index(gotorch.At(at)).Item()
	if f, ok := v.(float64); ok && t.DType() != gotorch.Float64 {
		return fmt.Sprint(float32(f))
	}
	return fmt.Sprint(v)
}

// position is where the element at the flat position at lies.
func position(at int64, shape []int64) []int64 {
	where := make([]int64, len(shape))
	for d := len(shape) - 1; d >= 0; d-- {
		where[d], at = at%shape[d], at/shape[d]
	}
	return where
}

// plain returns t dense, on the CPU and outside of any graph.
func plain(t gotorch.Tensor) gotorch.Tensor {
	t = t.Detach()
	if t.DType().IsQuantized() {
		t = t.Dequantize()
	}
	if t.Layout() != gotorch.Strided {
		t = t.ToDense()
	}
	return t.To(gotorch.CPU)
}

// widest is the dtype that holds what d does (but for the largest of Uint64, which wrap around), and
// that all operations know.
func widest(d gotorch.DType) gotorch.DType {
	switch {
	case d.IsComplex():
		return gotorch.Complex128
	case d.IsFloatingPoint():
		return gotorch.Float64
	}
	return gotorch.Int64
}

// distance is |a - b| as Float64.
func distance(a, b gotorch.Tensor) gotorch.Tensor {
	exact := magnitude(a.Sub(b))
	if a.DType() != gotorch.Int64 {
		return exact
	}
	// The difference of two int64 may be too large for one.
	rough := a.To(gotorch.Float64).Sub(b.To(gotorch.Float64)).Abs()
	return gotorch.Where(rough.LtScalar(1<<62), exact, rough)
}

// magnitude is |a| as Float64: of the lowest int64 too, which has no absolute value of its own kind.
func magnitude(a gotorch.Tensor) gotorch.Tensor {
	if a.DType() == gotorch.Int64 {
		a = a.To(gotorch.Float64)
	}
	return a.Abs()
}

type tolerance struct{ rtol, atol float64 }

// given returns the tolerances, each NaN where it was left out.
func (o Options) given() (rtol, atol float64) {
	return args.Float("gotorchtest.Diff", "RTol", o.RTol, math.NaN()), args.Float("gotorchtest.Diff", "ATol", o.ATol, math.NaN())
}

func (o Options) tolerances(a, b gotorch.DType) (rtol, atol float64) {
	if rtol, atol := o.given(); !math.IsNaN(rtol) {
		return rtol, atol
	}
	x, y := defaultTolerance(a), defaultTolerance(b)
	return max(x.rtol, y.rtol), max(x.atol, y.atol)
}

func defaultTolerance(d gotorch.DType) tolerance {
	switch d {
	case gotorch.Float16, gotorch.Complex32:
		return tolerance{1e-3, 1e-5}
	case gotorch.BFloat16:
		return tolerance{1.6e-2, 1e-5}
	case gotorch.Float64, gotorch.Complex128:
		return tolerance{1e-7, 1e-7}
	case gotorch.Float32, gotorch.Complex64:
		return tolerance{1.3e-6, 1e-5}
	}
	if d.IsQuantized() {
		return tolerance{1.3e-6, 1e-5}
	}
	return tolerance{}
}
