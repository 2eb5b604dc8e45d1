// Package graphtest is what the golden tests of generated packages stand on: it compares what Go computes
// with what Python computed when the package was written.
//
//	golden := graphtest.Load(t, "testdata/golden.safetensors")
//	y := net.Forward(golden.Tensor("x"))
//	golden.Check("result", y)
package graphtest

import (
	"crypto/sha256"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/gotorchtest"
)

// Golden are values of a file, by their names.
type Golden struct {
	t       *testing.T
	tensors map[string]gotorch.Tensor
	device  gotorch.Device
	exact   bool
}

// Load reads a file. Until the test ends, ops use one thread, as they did in Python, and random numbers
// begin as Python's did.
//
// Values are compared bit for bit where this machine, this PyTorch and the variables that choose its kernels
// (ATEN_CPU_CAPABILITY and its like) are such as the file was made with. On others libtorch computes in another
// order, and values are compared as by [gotorchtest.AssertClose].
func Load(t *testing.T, path string) *Golden { return load(t, path, gotorch.CPU) }

// LoadOn is Load for a package that computes on a device: tensors are given there. It skips the test
// where there is no such device. The values of the file are the CPU's, and compared as by
// [gotorchtest.AssertClose].
func LoadOn(t *testing.T, path string, device gotorch.Device) *Golden {
	t.Helper()
	if n := gotorch.DeviceCount(device.Type()); n == 0 || device.Index() >= n {
		t.Skipf("there is no device %v", device)
	}
	return load(t, path, device)
}

func load(t *testing.T, path string, device gotorch.Device) *Golden {
	t.Helper()
	tensors, metadata, err := gotorch.LoadSafetensors(path)
	if err != nil {
		t.Fatal(err)
	}
	threads := gotorch.NumThreads()
	gotorch.SetNumThreads(1)
	gotorch.ManualSeed(0)
	t.Cleanup(func() {
		gotorch.SetNumThreads(threads)
		for _, tensor := range tensors {
			tensor.Close()
		}
	})
	g := &Golden{t, tensors, device, device == gotorch.CPU && metadata["machine"] == machine()}
	if !g.exact {
		t.Log("the file was made on another machine or device: small differences are allowed")
	}
	return g
}

var cpuLines = regexp.MustCompile(`(?m)^(?:model name|cpu family|model|cache size|flags|Features|CPU implementer|CPU part)\s*:.*`)

// choosing are the variables of the environment by which the kernels of libtorch, oneDNN and MKL are chosen.
var choosing = []string{"ATEN_CPU_CAPABILITY", "DNNL_DEFAULT_FPMATH_MODE", "DNNL_MAX_CPU_ISA", "MKL_CBWR",
	"MKL_ENABLE_INSTRUCTIONS", "ONEDNN_DEFAULT_FPMATH_MODE", "ONEDNN_MAX_CPU_ISA"}

// machine is what results depend on in their last bits, as pytorch_bridge says it.
func machine() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		text = []byte("model: " + runtime.GOARCH)
	}
	lines := cpuLines.FindAllString(string(text), -1)
	slices.Sort(lines)
	lines = slices.Compact(lines)
	for _, name := range choosing {
		if value := os.Getenv(name); value != "" {
			lines = append(lines, name+"="+value)
		}
	}
	return gotorch.TorchVersion() + "\n" + fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(lines, "\n"))))
}

// Tensor returns a tensor; none, if the file has none of the name.
func (g *Golden) Tensor(name string) gotorch.Tensor {
	t := g.tensors[name]
	if g.device == gotorch.CPU || !t.Defined() {
		return t
	}
	return t.To(g.device)
}

// Tensors returns a list of tensors.
func (g *Golden) Tensors(name string) []gotorch.Tensor {
	ts := make([]gotorch.Tensor, g.Int(name+"[]"))
	for i := range ts {
		ts[i] = g.Tensor(fmt.Sprintf("%s[%d]", name, i))
	}
	return ts
}

// Int returns an integer.
func (g *Golden) Int(name string) int64 { return gotorch.Item[int64](g.tensors[name]) }

// Float returns a floating point number.
func (g *Golden) Float(name string) float64 { return gotorch.Item[float64](g.tensors[name]) }

// Bool returns a bool.
func (g *Golden) Bool(name string) bool { return gotorch.Item[bool](g.tensors[name]) }

// OptInt returns an integer, nil for none.
func (g *Golden) OptInt(name string) *int64 { return optional(g, name, g.Int) }

// OptFloat returns a floating point number, nil for none.
func (g *Golden) OptFloat(name string) *float64 { return optional(g, name, g.Float) }

// OptBool returns a bool, nil for none.
func (g *Golden) OptBool(name string) *bool { return optional(g, name, g.Bool) }

func optional[T any](g *Golden, name string, value func(string) T) *T {
	if _, ok := g.tensors[name]; !ok {
		return nil
	}
	v := value(name)
	return &v
}

// Scalar returns a number of any kind.
func (g *Golden) Scalar(name string) gotorch.Scalar { return g.tensors[name].Item() }

// Ints returns a list of integers.
func (g *Golden) Ints(name string) []int64 { return gotorch.ToSlice[int64](g.tensors[name]) }

// Floats returns a list of floating point numbers.
func (g *Golden) Floats(name string) []float64 { return gotorch.ToSlice[float64](g.tensors[name]) }

// String returns a string.
func (g *Golden) String(name string) string { return string(gotorch.ToSlice[uint8](g.tensors[name])) }

// Refuses fails the test, which goes on, unless call panics with a [*gotorch.Error], as Python refused the same
// inputs.
func (g *Golden) Refuses(call func()) {
	g.t.Helper()
	if err := gotorch.Try0(call); err == nil {
		g.t.Error("inputs that Python refuses are accepted")
	}
}

// Check fails the test, which goes on, unless got is the value of the file.
func (g *Golden) Check(name string, got any) {
	g.t.Helper()
	switch got := got.(type) {
	case gotorch.Tensor:
		g.checkTensor(name, got)
		return
	case []gotorch.Tensor:
		if want := g.Int(name + "[]"); len(got) != int(want) {
			g.t.Errorf("%s: got %d tensors, want %d", name, len(got), want)
			return
		}
		for i := range got {
			g.checkTensor(fmt.Sprintf("%s[%d]", name, i), got[i])
		}
		return
	case float64: // as near as tensors have to be
		g.checkCPU(name, gotorch.Full(nil, got, gotorch.TensorOptions{DType: gotorch.Float64}))
		return
	case []float64:
		g.checkCPU(name, gotorch.FromSlice(got))
		return
	}
	var want any
	switch got.(type) {
	case []int64:
		want = g.Ints(name)
	case string:
		want = g.String(name)
	default:
		want = g.Scalar(name)
	}
	if !reflect.DeepEqual(got, want) {
		g.t.Errorf("%s: got %v, want %v", name, got, want)
	}
}

// checkTensor checks a tensor of the package, which is on its device.
func (g *Golden) checkTensor(name string, got gotorch.Tensor) {
	g.t.Helper()
	if g.device != gotorch.CPU && got.Defined() {
		if d := got.Device(); d.Type() != g.device.Type() {
			g.t.Errorf("%s is on %v, not on %v", name, d, g.device)
		}
		got = got.To(gotorch.CPU)
	}
	g.checkCPU(name, got)
}

func (g *Golden) checkCPU(name string, got gotorch.Tensor) {
	g.t.Helper()
	want, ok := g.tensors[name]
	if !ok || !got.Defined() {
		if ok || got.Defined() {
			g.t.Errorf("%s: got %v, want %v", name, got, want)
		}
		return
	}
	diff := gotorchtest.Diff(got, want, gotorchtest.Options{EqualNaN: true})
	if g.exact {
		diff = gotorchtest.Diff(got, want, gotorchtest.Options{RTol: new(float64), ATol: new(float64), EqualNaN: true})
	}
	if diff != "" {
		g.t.Errorf("%s: %s", name, diff)
	}
}
