package aoti_test

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/aoti"
	"gotorch.dev/gotorch/gotorchtest"
	"gotorch.dev/gotorch/internal/testhelp"
)

// The tests run in a folder with model.pt2, the package of docs/aoti.md, and expected.safetensors, with what Python gets from
// it in this run: the last bits depend on the processor, and on the variables that tell libtorch which of its kernels to take.
func TestMain(m *testing.M) { os.Exit(inFolder(m.Run)) }

func inFolder(run func() int) int {
	folder, err := os.MkdirTemp("", "aoti")
	if err == nil {
		defer os.RemoveAll(folder)
		err = copyPackage(folder)
	}
	if err == nil {
		err = os.Chdir(folder)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "the package to test with:", err)
		return 1
	}
	return run()
}

func copyPackage(to string) error {
	// The Python to which the torch belongs that is in use.
	python := filepath.Join(gotorch.TorchLib(), "../../../../../bin/python")
	if _, err := os.Stat(python); err != nil {
		python = "python3"
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	cmd := exec.Command(python, "-m", "pytorch_bridge.testing.packages", to)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	return cmd.Run()
}

func open(t *testing.T, opts ...aoti.LoadOptions) *aoti.Model {
	t.Helper()
	m, err := aoti.Load("model.pt2", opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// example returns inputs for a batch of n.
func example(n int64) []gotorch.Tensor {
	return []gotorch.Tensor{gotorch.Randn([]int64{n, 8}), gotorch.Randint(10, []int64{n}), gotorch.Full(nil, 0.5)}
}

func wantError(t *testing.T, err error, kind gotorch.ErrorKind, text string) {
	t.Helper()
	switch {
	case err == nil:
		t.Errorf("no error, want %s: %s", kind, text)
	case !errors.Is(err, kind) || !strings.Contains(err.Error(), text):
		t.Errorf("error %v\nwant %s: ...%s...", err, kind, text)
	}
}

func run(m *aoti.Model, inputs ...gotorch.Tensor) ([]gotorch.Tensor, error) {
	return gotorch.Try(func() []gotorch.Tensor { return m.Run(inputs...) })
}

func TestResultsAreThoseOfPython(t *testing.T) {
	want, _, err := gotorch.LoadSafetensors("expected.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	for _, opts := range []aoti.LoadOptions{{}, {NumRunners: 1}, {SingleThreaded: true}, {Unchecked: true}, {Device: gotorch.CPU}} {
		m := open(t, opts)
		for _, n := range []string{"1", "3", "64"} {
			results := m.Run(want[n+".x"], want[n+".kind"], want[n+".temperature"])
			for i, name := range m.Outputs() {
				if !gotorch.Equal(results[i], want[n+"."+name]) {
					t.Errorf("%+v: %s of a batch of %s is not what the package gives in Python", opts, name, n)
				}
				gotorchtest.AssertClose(t, results[i], want[n+".eager."+name])
			}
		}
	}
}

// Constants that are computed from others follow them, whatever was run and set before.
func TestComputedConstants(t *testing.T) {
	for seed := range uint64(testhelp.Rounds(20)) {
		choose := rand.New(rand.NewPCG(seed, 0))
		m, err := aoti.Load("folding.pt2", aoti.LoadOptions{SingleThreaded: seed%2 == 0})
		if err != nil {
			t.Fatal(err)
		}
		now := m.ConstantValues()
		for range 10 {
			set, some := m.LoadConstants, map[string]gotorch.Tensor{"weight": gotorch.Randn([]int64{16, 8}), "scale": gotorch.Randn([]int64{16, 1})}
			switch choose.IntN(4) {
			case 0:
				delete(some, "weight")
				set = m.UpdateConstants
			case 1:
				delete(some, "scale")
				set = m.UpdateConstants
			case 2:
				some, set = nil, m.UpdateConstants
			}
			if err := set(some); err != nil {
				t.Fatal(err)
			}
			maps.Copy(now, some)
			for range choose.IntN(3) {
				x := gotorch.Randn([]int64{5, 8})
				gotorchtest.AssertClose(t, m.Run(x)[0], x.MM(now["weight"].Tanh().Mul(now["scale"]).Transpose(0, 1)))
			}
		}
		m.Close()
	}
}

func TestDescription(t *testing.T) {
	m := open(t)
	wanted := "[0 float32[1..64, 8] 1 int64[1..64] temperature float32[]]"
	if !testhelp.AOTIAssertions.In(t, gotorch.TorchVersion()) {
		wanted = "[0 float32[?] 1 int64[?] temperature float32[?]]"
	}
	if got := fmt.Sprint(m.Inputs()); got != wanted {
		t.Error(got)
	}
	if in := m.Inputs()[2]; in.Device != gotorch.DeviceTypeCPU {
		t.Errorf("%+v", in)
	}
	if got := m.Outputs(); !slices.Equal(got, []string{"p", "hidden"}) {
		t.Error(got)
	}
	if m.Name() != "model" || m.Device() != gotorch.CPU {
		t.Error(m.Name(), m.Device())
	}
	metadata := m.Metadata()
	if metadata["labels"] != "cat,dog,bird" || metadata["AOTI_DEVICE_KEY"] != "cpu" {
		t.Error(metadata)
	}
	if in, out := m.CallSpec(); !strings.Contains(in, "temperature") || !strings.Contains(out, "hidden") {
		t.Error(in, out)
	}
	got := map[string]string{}
	for _, c := range m.Constants() {
		got[c.Name] = fmt.Sprint(c.DType, c.Shape)
	}
	want := map[string]string{
		"kind.weight": "torch.float32 [10 16]", "hidden.weight": "torch.float32 [16 8]",
		"hidden.bias": "torch.float32 [16]", "out.weight": "torch.float32 [3 16]",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Error(got)
	}
}

func TestDim(t *testing.T) {
	for _, c := range []struct {
		dim  aoti.Dim
		want string
	}{{aoti.Dim{Min: 3, Max: 3}, "3"}, {aoti.Dim{Min: 1, Max: 1<<63 - 1}, "1.."}, {aoti.Dim{Min: 2, Max: 4}, "2..4"}} {
		if got := c.dim.String(); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

func TestBadInputs(t *testing.T) {
	m := open(t)
	in := example(3)
	x, kind, temperature := in[0], in[1], in[2]
	closed := x.Clone()
	closed.Close()
	type bad struct {
		inputs []gotorch.Tensor
		kind   gotorch.ErrorKind
		text   string
	}
	cases := []bad{
		{nil, gotorch.TypeError, "the model takes 3 inputs, but got 0"},
		{append(slices.Clone(in), x), gotorch.TypeError, "takes 3 inputs, but got 4"},
		{[]gotorch.Tensor{x, {}, temperature}, gotorch.TypeError, "zero Tensor"},
		{[]gotorch.Tensor{closed, kind, temperature}, gotorch.ValueError, "used after Close"},
		{[]gotorch.Tensor{x.To(gotorch.Float64), kind, temperature}, gotorch.TypeError, "input 0 must be float32, but is float64"},
		{[]gotorch.Tensor{x, kind.To(gotorch.Int32), temperature}, gotorch.TypeError, "input 1 must be int64, but is int32"},
		{[]gotorch.Tensor{x.Narrow(1, 0, 7), kind, temperature}, gotorch.ValueError, "input 0 has shape [3, 7]: dimension 1 must be 8"},
		{[]gotorch.Tensor{x.View([]int64{24}), kind, temperature}, gotorch.ValueError, "input 0 has shape [24]: it must have 2 dimensions"},
		{example(65), gotorch.ValueError, "dimension 0 must be at most 64"},
		{example(0), gotorch.ValueError, "dimension 0 must be at least 1"},
		{[]gotorch.Tensor{x.ToSparse(), kind, temperature}, gotorch.ValueError, "input 0 is not a dense tensor"},
		{[]gotorch.Tensor{x.To(gotorch.Meta), kind, temperature}, gotorch.ValueError, "input 0 must be on cpu, but is on meta"},
	}
	if testhelp.AOTIAssertions.In(t, gotorch.TorchVersion()) {
		cases = append(cases,
			bad{[]gotorch.Tensor{x.Unsqueeze(0), kind, temperature}, gotorch.ValueError, "it must have 2 dimensions"},
			bad{[]gotorch.Tensor{x, kind.Narrow(0, 0, 2), temperature}, gotorch.ValueError, "input 1 has shape [2]: dimension 0 must be 3 to go with"},
			bad{[]gotorch.Tensor{x, kind, temperature.View([]int64{1})}, gotorch.ValueError, "input 2 has shape [1]: it must have 0 dimensions"})
	}
	for _, c := range cases {
		_, err := run(m, c.inputs...)
		wantError(t, err, c.kind, c.text)
	}
	if _, err := run(m, in...); err != nil {
		t.Error("after the errors:", err)
	}
}

func TestAnyStrides(t *testing.T) {
	m := open(t)
	in := example(5)
	want := m.Run(in...)[0]
	for what, x := range map[string]gotorch.Tensor{
		"transposed": in[0].Transpose(0, 1).Contiguous().Transpose(0, 1),
		"spread":     gotorch.Stack([]gotorch.Tensor{in[0], in[0]}, gotorch.StackOptions{Dim: 2}).Select(2, 0),
		"offset":     gotorch.Cat([]gotorch.Tensor{in[0], in[0]}).Narrow(0, 5, 5),
	} {
		if !gotorch.Equal(m.Run(x, in[1], in[2])[0], want) {
			t.Error(what, "input gives another result")
		}
	}
	// Whose memory holds the negative.
	negative := gotorch.Call("aten::imag", "", gotorch.Complex(in[0], in[0].Neg()).Conj())[0].(gotorch.Tensor)
	if !negative.IsNeg() || !gotorch.Equal(m.Run(negative, in[1], in[2])[0], want) {
		t.Error("an input with the negative bit gives another result")
	}
	row := gotorch.Randn([]int64{1, 8})
	if !gotorch.Equal(m.Run(row.Expand([]int64{5, 8}), in[1], in[2])[0], m.Run(row.Repeat([]int64{5, 1}), in[1], in[2])[0]) {
		t.Error("an expanded input gives another result")
	}
}

func TestNoGradients(t *testing.T) {
	m := open(t)
	in := example(2)
	want := m.Run(in...)[0]
	x := in[0].Clone().RequiresGrad_(true)
	_, err := run(m, x, in[1], in[2])
	wantError(t, err, gotorch.RuntimeError, "input 0 requires a gradient, and compiled code computes none")
	gotorch.NoGrad(func() {
		got := m.Run(x, in[1], in[2])[0]
		if got.RequiresGrad() || !gotorch.Equal(got, want) {
			t.Error("in NoGrad the result is another one")
		}
	})
	if !gotorch.Equal(m.Run(x.Detach(), in[1], in[2])[0], want) {
		t.Error("a detached input gives another result")
	}
	gotorch.Autocast(gotorch.CPU, gotorch.BFloat16, func() {
		if !gotorch.Equal(m.Run(in...)[0], want) {
			t.Error("autocast changes compiled code")
		}
	})
}

func TestGoroutines(t *testing.T) {
	for _, opts := range []aoti.LoadOptions{{}, {NumRunners: 2}, {SingleThreaded: true}} {
		m := open(t, opts)
		var wait sync.WaitGroup
		for n := range int64(8) {
			in := example(n + 1)
			want := m.Run(in...)
			wait.Go(func() {
				for range 50 {
					for i, got := range m.Run(in...) {
						if !gotorch.Equal(got, want[i]) {
							t.Errorf("%+v: output %d of a batch of %d is another one beside other goroutines", opts, i, n+1)
							return
						}
					}
				}
			})
		}
		wait.Wait()
	}
}

func TestScope(t *testing.T) {
	m := open(t)
	in := example(2)
	var kept, freed gotorch.Tensor
	before := gotorch.MemoryStats().LiveHandles
	kept = gotorch.Scope(func(s *gotorch.ScopeHandle) gotorch.Tensor {
		outputs := m.Run(in...)
		freed = outputs[1]
		return outputs[0]
	})
	if after := gotorch.MemoryStats().LiveHandles; after != before+1 {
		t.Errorf("%d handles are left of a run in a scope, want 1", after-before)
	}
	if !kept.Defined() || freed.Defined() {
		t.Error("of two outputs the wrong one is left")
	}
}

func TestMemoryStaysFlat(t *testing.T) {
	if testing.Short() {
		t.Skip("10,000 runs")
	}
	m := open(t, aoti.LoadOptions{NumRunners: 1})
	in := example(64)
	bad := example(65)
	runs := func(n int) {
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			for i := range n {
				gotorch.Scope0(func(*gotorch.ScopeHandle) {
					m.Run(in...)
					m.Run(in[0].Transpose(0, 1).Contiguous().Transpose(0, 1), in[1], in[2])
				})
				if i%100 == 0 {
					run(m, bad...)
					if err := m.UpdateConstants(map[string]gotorch.Tensor{"out.weight": gotorch.Ones([]int64{3, 16})}); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
	runs(10_000) // until what threads keep for reuse is all there
	handles, resident := gotorch.MemoryStats().LiveHandles, residentBytes(t)
	runs(10_000)
	if got := gotorch.MemoryStats().LiveHandles; got > handles {
		t.Errorf("%d handles more after 10,000 runs", got-handles)
	}
	if got := residentBytes(t); got > resident+4<<20 {
		t.Errorf("%d bytes more after 10,000 runs", got-resident)
	}
}

func residentBytes(t *testing.T) int64 {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var total, resident int64
	fmt.Sscan(string(statm), &total, &resident)
	return resident * int64(os.Getpagesize())
}

// Constants -----------------------------------------------------------------------------------------------

func TestConstants(t *testing.T) {
	m := open(t)
	in := example(4)
	first := m.Run(in...)
	values := m.ConstantValues()
	h := in[0].MM(values["hidden.weight"].Transpose(0, 1)).Add(values["hidden.bias"]).Add(gotorch.Embedding(values["kind.weight"], in[1])).ReLU()
	gotorchtest.AssertClose(t, first[1], h)

	// The results of earlier runs and the copies stay what they are.
	kept := first[1].Clone()
	zeros := gotorch.Zeros([]int64{16, 8})
	if err := m.UpdateConstants(map[string]gotorch.Tensor{"hidden.weight": zeros}); err != nil {
		t.Fatal(err)
	}
	zeros.Fill_(7) // was copied
	h = gotorch.Embedding(values["kind.weight"], in[1]).Add(values["hidden.bias"]).ReLU()
	gotorchtest.AssertClose(t, m.Run(in...)[1], h)
	if !gotorch.Equal(first[1], kept) || !gotorch.Equal(m.ConstantValues()["hidden.weight"], gotorch.Zeros([]int64{16, 8})) {
		t.Error("an update changes what it should not")
	}

	// Any strides, and part of a larger storage.
	wide := gotorch.Stack([]gotorch.Tensor{values["hidden.weight"], zeros}).Transpose(1, 2).Contiguous().Transpose(1, 2)
	values["hidden.weight"] = wide.Select(0, 0)
	for range 3 {
		if err := m.LoadConstants(values); err != nil {
			t.Fatal(err)
		}
		for i, got := range m.Run(in...) {
			if !gotorch.Equal(got, first[i]) {
				t.Errorf("output %d is another one with the first constants", i)
			}
		}
	}
}

func TestBadConstants(t *testing.T) {
	m := open(t)
	in := example(2)
	want := m.Run(in...)[0]
	values := m.ConstantValues()
	with := func(name string, value gotorch.Tensor) map[string]gotorch.Tensor {
		return map[string]gotorch.Tensor{"hidden.bias": gotorch.Zeros([]int64{16}), name: value}
	}
	for _, c := range []struct {
		tensors map[string]gotorch.Tensor
		kind    gotorch.ErrorKind
		text    string
	}{
		{with("out.bias", gotorch.Zeros([]int64{3})), gotorch.KeyError, "no constant 'out.bias'; parameters of one dimension and at most 8"},
		{with("nul\x00", gotorch.Zeros([]int64{3})), gotorch.ValueError, "NUL"},
		{with("out.weight", gotorch.Zeros([]int64{16, 3})), gotorch.ValueError, "'out.weight' has shape [3, 16], but the tensor has [16, 3]"},
		{with("out.weight", gotorch.Zeros([]int64{3, 16}).To(gotorch.Float64)), gotorch.TypeError, "'out.weight' is float32, but the tensor is float64"},
		{with("out.weight", gotorch.Zeros([]int64{3, 16}).ToSparse()), gotorch.ValueError, "'out.weight' is not dense"},
		{with("out.weight", gotorch.Zeros([]int64{3, 16}).To(gotorch.Meta)), gotorch.ValueError, "'out.weight' is not dense"},
		{with("out.weight", gotorch.Tensor{}), gotorch.TypeError, "zero Tensor"},
	} {
		err := m.UpdateConstants(c.tensors)
		wantError(t, err, c.kind, c.text)
		if err != nil && !strings.HasPrefix(err.Error(), "aoti.UpdateConstants: ") {
			t.Error(err)
		}
	}
	delete(values, "out.weight")
	wantError(t, m.LoadConstants(values), gotorch.KeyError, "tensors are missing for the constants 'out.weight'")
	if !gotorch.Equal(m.Run(in...)[0], want) {
		t.Error("failed updates changed the model")
	}
	if err := m.UpdateConstants(nil); err != nil {
		t.Error(err)
	}
}

// A run sees all of one set of constants or all of the other.
func TestConstantsChangeAtOnce(t *testing.T) {
	m := open(t, aoti.LoadOptions{NumRunners: 2})
	in := example(8)
	a := m.ConstantValues()
	b := map[string]gotorch.Tensor{}
	for name, value := range a {
		b[name] = value.MulScalar(-3)
	}
	wantA := m.Run(in...)[0]
	if err := m.LoadConstants(b); err != nil {
		t.Fatal(err)
	}
	wantB := m.Run(in...)[0]
	if gotorch.Equal(wantA, wantB) {
		t.Fatal("both sets give the same")
	}
	var done atomic.Bool
	var wait sync.WaitGroup
	for range 3 {
		wait.Go(func() {
			for !done.Load() {
				if got := m.Run(in...)[0]; !gotorch.Equal(got, wantA) && !gotorch.Equal(got, wantB) {
					t.Error("a run saw parts of both sets of constants")
					return
				}
			}
		})
	}
	for i := range 100 {
		if err := m.LoadConstants([]map[string]gotorch.Tensor{a, b}[i%2]); err != nil {
			t.Error(err)
		}
	}
	done.Store(true)
	wait.Wait()
}

// Closing -------------------------------------------------------------------------------------------------

// libraries returns the models' libraries that are in memory.
func libraries(t *testing.T) []string {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`/\S+\.wrapper\.so`).FindAllString(string(maps), -1)
	slices.Sort(found)
	return slices.Compact(found)
}

func TestClose(t *testing.T) {
	before := len(libraries(t))
	m := open(t)
	in := example(2)
	outputs := m.Run(in...)
	want := outputs[0].Clone()
	if n := len(libraries(t)); n != before+1 {
		t.Fatalf("%d libraries are in memory, want %d", n, before+1)
	}
	m.Close()
	m.Close()
	if n := len(libraries(t)); n != before {
		t.Errorf("%d libraries are in memory after Close, want %d", n, before)
	}
	if !gotorch.Equal(outputs[0], want) {
		t.Error("an output changed with Close")
	}
	_, err := run(m, in...)
	wantError(t, err, gotorch.ValueError, "aoti.Run: ValueError: the model was used after Close")
	wantError(t, m.LoadConstants(nil), gotorch.ValueError, "aoti.LoadConstants: ValueError: the model was used after Close")
	_, err = gotorch.Try(m.ConstantValues)
	wantError(t, err, gotorch.ValueError, "the model was used after Close")
	if m.Name() != "model" || len(m.Inputs()) != 3 {
		t.Error("what is known of a model is gone after Close")
	}
}

func TestCloseWaitsForRuns(t *testing.T) {
	m := open(t, aoti.LoadOptions{NumRunners: 4})
	in := example(64)
	var wait sync.WaitGroup
	var ran atomic.Int64
	for range 4 {
		wait.Go(func() {
			for {
				if _, err := run(m, in...); err != nil {
					wantError(t, err, gotorch.ValueError, "after Close")
					return
				}
				ran.Add(1)
			}
		})
	}
	for ran.Load() < 100 {
		time.Sleep(time.Millisecond)
	}
	m.Close()
	wait.Wait()
}

func TestAModelThatGoesAwayIsFreed(t *testing.T) {
	before := len(libraries(t))
	func() {
		m, err := aoti.Load("model.pt2")
		if err != nil {
			t.Fatal(err)
		}
		m.Run(example(1)...)
	}()
	for range 10_000 {
		runtime.GC()
		if len(libraries(t)) == before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("still in memory: %v", libraries(t))
}

// Files ---------------------------------------------------------------------------------------------------

func TestNothingIsLeftBehind(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	m := open(t)
	if left, _ := os.ReadDir(folder); len(left) > 0 {
		t.Errorf("Load left %v", left)
	}
	m.Run(example(1)...)
	// Also where loading fails half way.
	aoti.Load(rewrite(t, func(name string, data []byte) (string, []byte) {
		if strings.HasSuffix(name, ".so") {
			data = data[:1000]
		}
		return name, data
	}))
	if left, _ := os.ReadDir(folder); len(left) > 0 {
		t.Errorf("a Load that failed left %v", left)
	}
	t.Setenv("TMPDIR", filepath.Join(folder, "gone"))
	_, err := aoti.Load("model.pt2")
	wantError(t, err, gotorch.OSError, "create a folder")
}

// The model's library is linked to libtorch.so, which would load CUDA's libraries.
func TestLoadsNoMoreOfTorch(t *testing.T) {
	m := open(t)
	m.Run(example(1)...)
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(maps, []byte("/libtorch_cpu.so")) || bytes.Contains(maps, []byte("/libtorch.so")) {
		t.Error("libtorch.so is in memory")
	}
	if bytes.Contains(maps, []byte("/libtorch_cuda.so")) && !gotorch.CUDAIsAvailable() {
		t.Error("libtorch_cuda.so is in memory")
	}
}

func TestMissingFile(t *testing.T) {
	_, err := aoti.Load("missing.pt2")
	if !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	_, err = aoti.Load(t.TempDir())
	wantError(t, err, gotorch.OSError, "Is a directory")
	before := testhelp.Descriptors(t)
	for what, path := range testhelp.NoFiles(t) {
		if _, err := aoti.Load(path); err == nil {
			t.Errorf("%s is loaded", what)
		}
		if what == "a pipe" {
			_, err := aoti.Load(path)
			wantError(t, err, gotorch.OSError, "not a regular file")
		}
	}
	if n := testhelp.Descriptors(t); n > before+1 { // the socket's
		t.Errorf("%d files are open, %d were before", n, before)
	}
	_, err = aoti.Load("nul\x00")
	if err == nil {
		t.Error("a path with a NUL byte is taken")
	}
}

func TestForeignFiles(t *testing.T) {
	whole, err := os.ReadFile("model.pt2")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "broken.pt2")
	write := func(data []byte) {
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []int{0, 1, 4, 100, len(whole) / 2, len(whole) - 1000, len(whole) - 1} {
		write(whole[:n])
		_, err := aoti.Load(path)
		wantError(t, err, gotorch.ValueError, "broken.pt2 is no AOTInductor package, or a truncated one")
	}
	// A record that is packed in a way that nobody knows.
	damaged := bytes.Clone(whole)
	damaged[bytes.LastIndex(damaged, []byte("PK\x01\x02"))+10] = 99
	write(damaged)
	_, err = aoti.Load(path)
	wantError(t, err, gotorch.NotImplementedError, "model/.data/serialization_id is packed with method 99 of zip")

	// One byte in the middle of the library.
	damaged = bytes.Clone(whole)
	damaged[len(damaged)*3/4] ^= 1
	write(damaged)
	_, err = aoti.Load(path)
	wantError(t, err, gotorch.ValueError, "broken.pt2 is damaged: the checksum of data/aotinductor/model/")

	// One byte where it does no harm.
	damaged = bytes.Clone(whole)
	at := bytes.Index(damaged, []byte("// Compile cmd"))
	if at < 0 {
		t.Fatal("the source of the model has no comment to change")
	}
	damaged[at] = '#'
	write(damaged)
	_, err = aoti.Load(path)
	wantError(t, err, gotorch.ValueError, "broken.pt2 is damaged")
	m, err := aoti.Load(path, aoti.LoadOptions{IgnoreChecksums: true})
	if err != nil {
		t.Fatal(err)
	}
	m.Run(example(1)...)
	m.Close()

	if err := gotorch.Save(path, gotorch.Dict{{Key: "x", Value: gotorch.Ones([]int64{2})}}); err != nil {
		t.Fatal(err)
	}
	_, err = aoti.Load(path)
	wantError(t, err, gotorch.ValueError, "holds no compiled model")
}

// rewrite returns a copy of the package in which change renames and changes files, or, where it returns
// no name, leaves them out.
func rewrite(t *testing.T, change func(name string, data []byte) (string, []byte)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.pt2")
	rewriteTo(t, path, func(name string, data []byte, add func(string, []byte)) {
		if name, data := change(name, data); name != "" {
			add(name, data)
		}
	})
	return path
}

func rewriteTo(t *testing.T, path string, change func(name string, data []byte, add func(string, []byte))) {
	t.Helper()
	from, err := zip.OpenReader("model.pt2")
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	to := zip.NewWriter(file)
	for _, f := range from.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		change(f.Name, data, func(name string, data []byte) {
			// Small files compressed, which the original has not.
			method := zip.Deflate
			if len(data) > 100_000 {
				method = zip.Store
			}
			w, err := to.CreateHeader(&zip.FileHeader{Name: name, Method: method})
			if err == nil {
				_, err = w.Write(data)
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestChangedPackages(t *testing.T) {
	metadata := func(old, new string) func(string, []byte) (string, []byte) {
		return func(name string, data []byte) (string, []byte) {
			if strings.HasSuffix(name, "wrapper_metadata.json") {
				data = bytes.Replace(data, []byte(old), []byte(new), 1)
			}
			return name, data
		}
	}
	without := func(suffix string) func(string, []byte) (string, []byte) {
		return func(name string, data []byte) (string, []byte) {
			if strings.HasSuffix(name, suffix) {
				return "", nil
			}
			return name, data
		}
	}
	cases := []struct {
		change func(string, []byte) (string, []byte)
		kind   gotorch.ErrorKind
		text   string
	}{
		{metadata(`"AOTI_MACHINE": "`, `"AOTI_MACHINE": "pdp`), gotorch.RuntimeError, "was compiled for pdp"},
		{metadata(`"AOTI_PLATFORM": "linux"`, `"AOTI_PLATFORM": "windows"`), gotorch.RuntimeError, "was compiled for windows; this is Linux"},
		{metadata(`"AOTI_DEVICE_KEY": "cpu"`, `"AOTI_DEVICE_KEY": "abacus"`), gotorch.ValueError, "for the device 'abacus'"},
		{metadata(`"AOTI_DEVICE_KEY": "cpu"`, `"AOTI_DEVICE_KEY": "mps"`), gotorch.RuntimeError, "for mps, which this torch cannot run on"},
		{metadata(`"AOTI_DEVICE_KEY": "cpu"`, `"OTHER": "cpu"`), gotorch.ValueError, "does not say what device"},
		{metadata(`{`, `[`), gotorch.ValueError, "metadata that is not an object of strings"},
		{metadata(`"cpu"`, `1`), gotorch.ValueError, "metadata that is not an object of strings"},
		{without("wrapper_metadata.json"), gotorch.ValueError, "has no metadata"},
		{without(".so"), gotorch.ValueError, "holds source only"},
		{without(".wrapper.cpp"), gotorch.ValueError, "does not say what its inputs must be like"},
		{func(name string, data []byte) (string, []byte) {
			return strings.Replace(name, ".kernel.cpp", "/../../../escaped", 1), data
		}, gotorch.ValueError, "has a file with the name"},
		{func(name string, data []byte) (string, []byte) {
			if strings.HasSuffix(name, ".so") {
				data = data[:len(data)/8]
			}
			return name, data
		}, gotorch.ValueError, "has a truncated library of the model 'model'"},
		{func(name string, data []byte) (string, []byte) {
			if strings.HasSuffix(name, ".so") {
				data = bytes.Repeat([]byte("no library"), 100)
			}
			return name, data
		}, gotorch.RuntimeError, "invalid ELF header"},
	}
	if !gotorch.CUDAIsAvailable() {
		cases = append(cases, cases[0])
		c := &cases[len(cases)-1]
		c.change = metadata(`"AOTI_DEVICE_KEY": "cpu"`, `"AOTI_DEVICE_KEY": "cuda"`)
		c.kind, c.text = gotorch.RuntimeError, "CUDA is not available"
	}
	if cpuinfo, err := os.ReadFile("/proc/cpuinfo"); err == nil && runtime.GOARCH == "amd64" && !bytes.Contains(cpuinfo, []byte("amx_tile")) {
		cases = append(cases, cases[0])
		c := &cases[len(cases)-1]
		c.change = metadata(`"AOTI_CPU_ISA": "`, `"AOTI_CPU_ISA": "AMX_TILE `)
		c.kind, c.text = gotorch.RuntimeError, "was compiled for AMX_TILE instructions, which this processor lacks"
	}
	for _, c := range cases {
		m, err := aoti.Load(rewrite(t, c.change))
		wantError(t, err, c.kind, c.text)
		if err == nil {
			m.Close()
		}
	}

	// What does no harm.
	m, err := aoti.Load(rewrite(t, func(name string, data []byte) (string, []byte) { return name, data }))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	unchecked, err := aoti.Load(rewrite(t, without(".wrapper.cpp")), aoti.LoadOptions{Unchecked: true})
	if err != nil {
		t.Fatal(err)
	}
	defer unchecked.Close()
	in := example(2)
	if !gotorch.Equal(m.Run(in...)[0], unchecked.Run(in...)[0]) {
		t.Error("an unchecked model has other results")
	}
	if got := unchecked.Inputs(); len(got) != 3 || got[0].Dims != nil || got[0].DType != 0 {
		t.Error(got)
	}
}

func TestModelNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "two.pt2")
	rename := func(names ...string) {
		rewriteTo(t, path, func(name string, data []byte, add func(string, []byte)) {
			if !strings.Contains(name, "/aotinductor/model/") {
				add(name, data)
				return
			}
			for _, n := range names {
				add(strings.Replace(name, "/aotinductor/model/", "/aotinductor/"+n+"/", 1), data)
			}
		})
	}
	in := example(2)
	load := func(want string, opts ...aoti.LoadOptions) {
		t.Helper()
		m, err := aoti.Load(path, opts...)
		if err != nil {
			t.Error(err)
			return
		}
		defer m.Close()
		if m.Name() != want {
			t.Errorf("loaded %s, want %s", m.Name(), want)
		}
		m.Run(in...)
	}
	rename("big", "small", "model") // two whose names begin alike would be mixed up by libtorch
	load("small", aoti.LoadOptions{ModelName: "small"})
	load("model")
	rename("model2", "model")
	load("model2", aoti.LoadOptions{ModelName: "model2"})
	load("model", aoti.LoadOptions{ModelName: "model"})
	rename("only")
	load("only")
	rename("big", "small")
	_, err := aoti.Load(path)
	wantError(t, err, gotorch.KeyError, "has several models, so one must be named: 'big', 'small'")
	_, err = aoti.Load(path, aoti.LoadOptions{ModelName: "model"})
	wantError(t, err, gotorch.KeyError, "has no model 'model'; it has 'big', 'small'")
	_, err = aoti.Load(path, aoti.LoadOptions{ModelName: "nul\x00"})
	wantError(t, err, gotorch.ValueError, "NUL")
}

func TestBadOptions(t *testing.T) {
	for _, c := range []struct {
		opts aoti.LoadOptions
		text string
	}{
		{aoti.LoadOptions{NumRunners: -1}, "NumRunners is -1"},
		{aoti.LoadOptions{NumRunners: 100_000}, "num_runners must be between 1 and 10,000"},
		{aoti.LoadOptions{NumRunners: 2, SingleThreaded: true}, "SingleThreaded goes with one runner, not 2"},
		{aoti.LoadOptions{Device: gotorch.CUDA(0)}, "was compiled for cpu, not for cuda:0"},
		{aoti.LoadOptions{Device: gotorch.CUDA(1)}, "was compiled for"},
	} {
		_, err := aoti.Load("model.pt2", c.opts)
		wantError(t, err, gotorch.ValueError, c.text)
	}
}
