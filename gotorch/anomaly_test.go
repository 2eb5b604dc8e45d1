package gotorch_test

import (
	"fmt"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
)

func logOfZero() gotorch.Tensor {
	x := leaf(0)
	return x.MulScalar(0).Log().MulScalar(0).Sum() // 0 * (1 / 0)
}

func TestDetectAnomaly(t *testing.T) {
	logOfZero().Backward() // a NaN is no error otherwise
	said := fmt.Sprint(warningsOf(func() {
		gotorch.DetectAnomaly(func() {
			if !gotorch.AnomalyDetected() {
				t.Error("not detecting")
			}
			mustFail(t, gotorch.RuntimeError, "Function 'LogBackward0' returned nan values in its 0th output.", func() { logOfZero().Backward() })
		})
	}))
	// The forward call is in logOfZero, which TestDetectAnomaly has called.
	inner, outer := strings.Index(said, "gotorch_test.logOfZero"), strings.Index(said, "gotorch_test.TestDetectAnomaly")
	if !strings.Contains(said, "Error detected in LogBackward0. The forward call that made it:") || outer < 0 || inner < outer || !strings.Contains(said, "anomaly_test.go:") {
		t.Error("the warning says:", said)
	}
	if gotorch.AnomalyDetected() {
		t.Error("still detecting")
	}
	gotorch.DetectAnomaly(func() { logOfZero().Backward() }, gotorch.AnomalyOptions{IgnoreNaN: true})
}

func TestDetectAnomalyOfHigherOrder(t *testing.T) {
	said := fmt.Sprint(warningsOf(func() {
		gotorch.DetectAnomaly(func() {
			x := leaf(0)
			// The gradient of x^1.5 is fine at 0, but not the gradient of that: it is made by the
			// backward pass of the power.
			g := gotorch.Grad(tensors{x.Pow(1.5)}, tensors{x}, gotorch.GradOptions{CreateGraph: true})[0]
			mustFail(t, gotorch.RuntimeError, "returned nan values", func() { g.MulScalar(0).Backward() })
		})
	}))
	if !strings.Contains(said, "It was made by the backward pass of PowBackward0") {
		t.Error("the warning says:", said)
	}
}
