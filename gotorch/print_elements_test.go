package gotorch

import (
	"testing"

	"gotorch.dev/gotorch/internal/testhelp"
)

// What is on another device is printed from a copy of its corners. The copy of a tensor that is on
// the CPU anyway must give the same text, for each dtype.
func TestPrintCornersOfEveryDType(t *testing.T) {
	raw := make([]byte, 16*20*20)
	for i := range raw {
		raw[i] = byte(i * 37)
	}
	for dtype := range elementReaders {
		if dtype == BComplex32 && !testhelp.BComplex32.In(t, TorchVersion()) {
			continue
		}
		whole := FromRaw(raw[:dtype.Size()*400], dtype, 20, 20)
		tensors := []Tensor{whole, Narrow(whole, 1, 3, 5).Transpose(0, 1), whole.AsStrided(nil, nil)}
		if dtype == Complex64 || dtype == Complex128 {
			tensors = append(tensors, whole.Conj(), Imag(whole.Conj()))
		}
		for _, x := range tensors {
			style := printStyle{precision: 4, threshold: 30, edgeItems: 2, lineWidth: 80}
			p := printer{printStyle: style}
			direct := string(p.appendElements(nil, x, 0))
			e := elements{dtype: x.DType(), shape: x.Shape()}
			p.copyCorners(x, &e)
			if copied := string(e.appendText(nil, 0, &style)); copied != direct {
				t.Errorf("%v of shape %v: got\n%s\nwant\n%s", dtype, x.Shape(), copied, direct)
			}
		}
	}
}
