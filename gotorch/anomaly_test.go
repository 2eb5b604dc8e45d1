package gotorch_test

import (
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"gotorch.dev/gotorch"
)

// stderrOf returns what fn, also in C, writes to the standard error.
func stderrOf(t *testing.T, fn func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	old, err := syscall.Dup(2)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Dup3(int(w.Fd()), 2, 0); err != nil {
		t.Fatal(err)
	}
	text := make(chan string)
	go func() {
		b, _ := io.ReadAll(r)
		text <- string(b)
	}()
	fn()
	if err := syscall.Dup3(old, 2, 0); err != nil {
		t.Fatal(err)
	}
	syscall.Close(old)
	w.Close()
	return <-text
}

func logOfZero() gotorch.Tensor {
	x := leaf(0)
	return x.MulScalar(0).Log().MulScalar(0).Sum() // 0 * (1 / 0)
}

func TestDetectAnomaly(t *testing.T) {
	logOfZero().Backward() // a NaN is no error otherwise
	said := stderrOf(t, func() {
		gotorch.DetectAnomaly(func() {
			if !gotorch.AnomalyDetected() {
				t.Error("not detecting")
			}
			mustFail(t, gotorch.RuntimeError, "Function 'LogBackward0' returned nan values in its 0th output.", func() { logOfZero().Backward() })
		})
	})
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
	said := stderrOf(t, func() {
		gotorch.DetectAnomaly(func() {
			x := leaf(0)
			// The gradient of x^1.5 is fine at 0, but not the gradient of that: it is made by the
			// backward pass of the power.
			g := gotorch.Grad(tensors{x.Pow(1.5)}, tensors{x}, gotorch.GradOptions{CreateGraph: true})[0]
			mustFail(t, gotorch.RuntimeError, "returned nan values", func() { g.MulScalar(0).Backward() })
		})
	})
	if !strings.Contains(said, "It was made by the backward pass of PowBackward0") {
		t.Error("the warning says:", said)
	}
}
