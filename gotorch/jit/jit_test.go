package jit_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/jit"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
	"gotorch.dev/gotorch/optim"
)

func load(t *testing.T, name string) *jit.Module {
	t.Helper()
	m, err := jit.Load(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// forward is what the file's module computes in evaluation mode.
func forward(m *jit.Module, x gotorch.Tensor) gotorch.Tensor {
	p := m.StateDict()
	h := F.Linear(x, p["hidden.weight"], F.LinearOptions{Bias: p["hidden.bias"]})
	h = F.BatchNorm(h, F.BatchNormOptions{
		RunningMean: p["norm.running_mean"], RunningVar: p["norm.running_var"], Weight: p["norm.weight"], Bias: p["norm.bias"],
	})
	return F.Linear(h.ReLU(), p["out.weight"], F.LinearOptions{Bias: p["out.bias"]})
}

func TestForward(t *testing.T) {
	m := load(t, "net.pt")
	if m.Training() {
		t.Error("it was saved in evaluation mode")
	}
	for _, rows := range []int64{1, 5, 2, 64} {
		x := gotorch.Randn([]int64{rows, 3})
		if got, want := m.Forward(x), forward(m, x); !got.Equal(want) {
			t.Fatalf("%v, want %v", got, want)
		}
	}
	m.Train(true)
	x := gotorch.Randn([]int64{8, 3})
	if !m.Training() || m.Forward(x).Equal(m.Forward(x)) {
		t.Error("dropout does nothing in training mode")
	}
	m.Eval()
	if y := m.Forward(x); !y.Equal(m.Forward(x)) {
		t.Error("dropout drops in evaluation mode")
	}
}

// A script is trained as any module is.
func TestTraining(t *testing.T) {
	m := load(t, "net.pt")
	m.Train(true)
	x := gotorch.Randn([]int64{32, 3})
	target := x.Select(1, 0).GtScalar(0).To(gotorch.Int64)
	opt := optim.Adam(m.Parameters(), optim.AdamOptions{LR: 0.05})
	var first, last float32
	for i := range 60 {
		m.ZeroGrad()
		loss := F.CrossEntropy(m.Forward(x), target)
		loss.Backward()
		opt.Step()
		if last = gotorch.Item[float32](loss); i == 0 {
			first = last
		}
	}
	if last > first*0.7 {
		t.Errorf("the loss went from %v to %v", first, last)
	}
	// What it has learned is in the file that it is saved to.
	path := filepath.Join(t.TempDir(), "trained.pt")
	if err := jit.Save(m, path, jit.SaveOptions{ExtraFiles: map[string]string{"a/b.txt": "text\x00"}}); err != nil {
		t.Fatal(err)
	}
	again, err := jit.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	m.Eval()
	again.Eval()
	if !again.Forward(x).Equal(m.Forward(x)) || again.ExtraFiles()["a/b.txt"] != "text\x00" {
		t.Errorf("another module was saved, with %v", again.ExtraFiles())
	}
	var b bytes.Buffer
	if err := jit.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	third, err := jit.Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	defer third.Close()
	if !third.Forward(x).Equal(m.Forward(x)) || len(third.ExtraFiles()) > 0 {
		t.Error("another module was encoded")
	}
	if err := jit.Encode(broken{}, m); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestValues(t *testing.T) {
	m := load(t, "net.pt")
	x := gotorch.Randn([]int64{4, 3})
	names, best := m.Call("classify", x, gotorch.Named("words", true)).(gotorch.Tuple), forward(m, x).ArgMax(gotorch.ArgMaxOptions{Dim: new(int64(1))})
	if !names[1].(gotorch.Tensor).Equal(best) || len(names[0].([]string)) != 4 {
		t.Errorf("%v, want %v", names, best)
	}
	if words := m.Attr("words").([]string); !slices.Equal(words, []string{"cat", "dog"}) {
		t.Error(words)
	}
	m.SetAttr("words", []string{"no", "yes"})
	if !slices.Equal(m.Attr("words").([]string), []string{"no", "yes"}) {
		t.Error(m.Attr("words"))
	}
	echo := m.Call("echo", map[string][]int{"a": {1, 2}, "b": nil}, 2-3i, gotorch.CPU, nil).(gotorch.Tuple)
	table := echo[0].(gotorch.Dict)
	if !slices.Equal(table.Get("a").([]int64), []int64{1, 2}) || len(table.Get("b").([]int64)) != 0 || echo[1] != 2-3i || echo[2] != gotorch.CPU || echo[3] != nil {
		t.Error(echo)
	}
	color := echo[4].(jit.Enum)
	if color.Name != "BLUE" || color.Value != int64(2) || !strings.HasSuffix(color.Type, ".Color") {
		t.Error(color)
	}
	in := gotorch.Tuple{gotorch.Ones([]int64{2}), 6}
	out := m.Call("output", in, color).(jit.NamedTuple)
	if out.Get("label") != int64(7) || !slices.Equal(out.Fields, []string{"logits", "label"}) || !out.Get("logits").(gotorch.Tensor).Equal(gotorch.Full([]int64{2}, 2)) {
		t.Error(out)
	}
	out = m.Call("output", out, jit.Enum{Name: "BLUE"}).(jit.NamedTuple)
	if out.Get("label") != int64(8) || out.Get("none") != nil {
		t.Error(out)
	}
	// An object of a class is the script's own.
	counter := m.Attr("counter").(*jit.Object)
	if n := jit.CallAs[int](counter, "up"); n != 4 || counter.Attr("n") != int64(4) {
		t.Error(n)
	}
	if same := m.Call("count", counter).(*jit.Object); same.Attr("n") != int64(8) || m.Call("counted") != int64(8) {
		t.Error(same.Attr("n"))
	}
	counter.SetAttr("n", 1)
	if n := jit.CallAs[int8](m, "counted"); n != 1 {
		t.Error(n)
	}
	if m.Attr("maybe") != nil {
		t.Error(m.Attr("maybe"))
	}
	if w := m.Attr("hidden.weight").(gotorch.Tensor); w.Dim() != 2 || m.Attr("limit") != int64(9) {
		t.Error(w.Shape())
	}
}

func TestWhatAModuleHas(t *testing.T) {
	m := load(t, "net.pt")
	if m.ExtraFiles()["labels.txt"] != "cat\ndog\n" || len(m.ExtraFiles()) != 1 {
		t.Error(m.ExtraFiles())
	}
	var names []string
	for name := range m.NamedModules() {
		names = append(names, name)
	}
	if !slices.Equal(names, []string{"", "hidden", "norm", "drop", "out"}) || len(m.Modules()) != 5 || len(m.Children()) != 4 {
		t.Error(names)
	}
	names = nil
	for name := range m.NamedBuffers() {
		names = append(names, name)
	}
	if !slices.Equal(names, []string{"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}) || len(m.Buffers()) != 3 {
		t.Error(names)
	}
	if n := m.NumParameters(); n != 3*4+4+4+4+4*2+2 {
		t.Error(n)
	}
	hidden := m.GetSubmodule("hidden")
	if w := hidden.Parameters()[0]; !w.Equal(m.StateDict()["hidden.weight"]) || !strings.HasSuffix(hidden.TypeName(), ".Linear") {
		t.Error(hidden.TypeName())
	}
	methods := m.Methods()
	i := slices.IndexFunc(methods, func(m jit.Method) bool { return m.Name == "classify" })
	c := methods[i]
	if len(c.Args) != 2 || c.Args[0] != (jit.Argument{Name: "x", Type: "Tensor"}) || c.Args[1] != (jit.Argument{"words", "bool", true, false}) {
		t.Error(c.Args)
	}
	if c.Returns != "Tuple[List[str], Tensor]" || len(c.Results) != 2 || c.Results[1] != (jit.Result{Type: "Tensor"}) || !strings.HasPrefix(c.Schema, "classify(") {
		t.Errorf("%+v", c)
	}
	attributes := hidden.Attributes()
	if attributes[0] != (jit.Attribute{Name: "weight", Type: "Tensor", Parameter: true}) {
		t.Error(attributes)
	}
}

func TestStateDict(t *testing.T) {
	m, other := load(t, "net.pt"), load(t, "net.pt")
	gotorch.NoGrad(func() {
		for _, p := range m.Parameters() {
			p.MulScalar_(2)
		}
	})
	x := gotorch.Randn([]int64{2, 3})
	if m.Forward(x).Equal(other.Forward(x)) {
		t.Fatal("they are the same")
	}
	if err := other.LoadStateDict(m.StateDict()); err != nil || !m.Forward(x).Equal(other.Forward(x)) {
		t.Error(err)
	}
	dict := m.StateDict()
	delete(dict, "out.bias")
	dict["more"] = gotorch.Ones(nil)
	var wrong *nn.StateDictError
	if err := other.LoadStateDict(dict); !errors.As(err, &wrong) || !slices.Equal(wrong.Missing, []string{"out.bias"}) || !slices.Equal(wrong.Unexpected, []string{"more"}) {
		t.Error(err)
	}
	if err := other.LoadStateDict(dict, jit.LoadStateDictOptions{Partial: true}); err != nil {
		t.Error(err)
	}
	dict["hidden.weight"] = gotorch.Ones([]int64{2, 2})
	if err := other.LoadStateDict(dict, jit.LoadStateDictOptions{Partial: true}); !errors.As(err, &wrong) || len(wrong.Mismatched) != 1 {
		t.Error(err)
	}
	weight := m.Parameters()[0]
	m.To(gotorch.Float64)
	if weight.DType() != gotorch.Float64 || m.StateDict()["norm.num_batches_tracked"].DType() != gotorch.Int64 {
		t.Error(weight.DType())
	}
	if y := m.Forward(x.To(gotorch.Float64)); y.DType() != gotorch.Float64 {
		t.Error(y)
	}
	m.RequiresGrad_(false)
	if m.Forward(x.To(gotorch.Float64)).RequiresGrad() {
		t.Error("a gradient is recorded")
	}
}

// By an interface a module may contain itself, once a program has put it there.
func TestModuleInItself(t *testing.T) {
	m := load(t, "steps.pt")
	if names := m.StateDict().Names(); !slices.Equal(names, []string{"q", "step.p"}) {
		t.Error(names)
	}
	m.SetAttr("step", m)
	if names := m.StateDict().Names(); !slices.Equal(names, []string{"q"}) || len(m.Parameters()) != 1 || len(m.Modules()) != 1 {
		t.Error(names)
	}
	m.Train(true)
	m.To(gotorch.Float64)
	path := filepath.Join(t.TempDir(), "x.pt")
	if err := jit.Save(m, path); !errors.Is(err, gotorch.ValueError) || !strings.Contains(err.Error(), "contains itself") {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Error("half a file is there")
	}
	m.SetAttr("step", load(t, "steps.pt"))
	if names := m.StateDict().Names(); !slices.Equal(names, []string{"q", "step.q", "step.step.p"}) {
		t.Error(names)
	}
	if err := jit.Save(m, path); err != nil {
		t.Error(err)
	}
}

func TestSetAParameterThenSave(t *testing.T) {
	m := load(t, "net.pt")
	path := filepath.Join(t.TempDir(), "x.pt")
	ones := gotorch.Ones([]int64{4, 3})
	for _, weight := range []gotorch.Tensor{
		ones.To(gotorch.Float64), ones.MulScalar(3), gotorch.Ones([]int64{1}).Expand([]int64{4, 3}), gotorch.Randn([]int64{3, 4}).T_(), ones.ToSparse(),
		gotorch.Randn([]int64{5, 6}).Narrow(0, 1, 4).Narrow(1, 3, 3),
	} {
		m.SetAttr("hidden.weight", weight)
		if err := jit.Save(m, path); err != nil {
			t.Fatal(err)
		}
		again, err := jit.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := again.StateDict()["hidden.weight"]; got.DType() != weight.DType() || got.Layout() != weight.Layout() || !got.ToDense().Equal(weight.ToDense()) {
			t.Errorf("%v, want %v", got, weight)
		}
		again.Close()
	}
	m.SetAttr("hidden.weight", gotorch.Empty([]int64{4, 3}, gotorch.TensorOptions{Device: gotorch.Meta}))
	if err := jit.Save(m, path); !errors.Is(err, gotorch.NotImplementedError) {
		t.Error(err)
	}
}

func TestErrors(t *testing.T) {
	m := load(t, "net.pt")
	x := gotorch.Ones([]int64{2, 3})
	out := gotorch.Tuple{x, 1}
	for name, c := range map[string]struct {
		kind gotorch.ErrorKind
		say  string
		call func()
	}{
		"a method":         {gotorch.AttributeError, "has no method 'none'", func() { m.Call("none") }},
		"NUL":              {gotorch.AttributeError, "NUL", func() { m.Call("a\x00b") }},
		"an attribute":     {gotorch.AttributeError, "none", func() { m.Attr("none") }},
		"deep":             {gotorch.AttributeError, "no attributes", func() { m.Attr("words.x") }},
		"set nothing":      {gotorch.AttributeError, "no attribute 'none'", func() { m.SetAttr("none", 1) }},
		"set another type": {gotorch.TypeError, "'words' must be", func() { m.SetAttr("words", 1) }},
		"set in a list":    {gotorch.TypeError, "must be str", func() { m.SetAttr("words", []any{"a", 2}) }},
		"no argument":      {gotorch.TypeError, "misses the argument 'x'", func() { m.Call("forward") }},
		"too many":         {gotorch.TypeError, "takes 1 arguments, not 2", func() { m.Call("forward", x, x) }},
		"another type":     {gotorch.TypeError, "argument 'x' of forward must be Tensor, not str", func() { m.Call("forward", "x") }},
		"an unknown name":  {gotorch.TypeError, "has no argument 'z'", func() { m.Call("forward", gotorch.Named("z", x)) }},
		"self":             {gotorch.TypeError, "has no argument 'self'", func() { m.Call("forward", gotorch.Named("self", x)) }},
		"a strange type":   {gotorch.TypeError, "chan int", func() { m.Call("forward", make(chan int)) }},
		"no tensor":        {gotorch.TypeError, "argument 'x'", func() { m.Forward(gotorch.Tensor{}) }},
		"an enum's member": {gotorch.ValueError, "has no member 'GREEN'", func() { m.Call("output", out, jit.Enum{Name: "GREEN"}) }},
		"another enum":     {gotorch.TypeError, "is of __torch__.Other", func() { m.Call("output", out, jit.Enum{Type: "__torch__.Other", Name: "RED"}) }},
		"no enum":          {gotorch.TypeError, "argument 'color'", func() { m.Call("output", out, 1) }},
		"other fields": {gotorch.TypeError, "fields", func() {
			m.Call("output", jit.NamedTuple{Fields: []string{"a", "b"}, Values: out}, jit.Enum{Name: "BLUE"})
		}},
		"a shorter tuple": {gotorch.TypeError, "argument 'o'", func() { m.Call("output", gotorch.Tuple{x}, jit.Enum{Name: "BLUE"}) }},
		"another class":   {gotorch.TypeError, "argument 'by'", func() { m.Call("count", 1) }},
		"raised":          {gotorch.ValueError, "red is no color for this", func() { m.Call("output", out, jit.Enum{Name: "RED"}) }},
		"an op":           {gotorch.RuntimeError, "mat1 and mat2 shapes cannot be multiplied (2x4 and 3x4)", func() { m.Forward(gotorch.Ones([]int64{2, 4})) }},
		"a future":        {gotorch.NotImplementedError, "Future[Tensor]", func() { m.Call("later", x) }},
		"no tensor comes": {gotorch.TypeError, "where gotorch.Tensor is expected", func() { jit.CallAs[gotorch.Tensor](m, "counted") }},
		"no module":       {gotorch.AttributeError, "is no module", func() { m.GetSubmodule("words") }},
	} {
		err := gotorch.Try0(c.call)
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: %v", name, err)
		}
	}
	m.Close()
	m.Close()
	for name, call := range map[string]func(){
		"Forward": func() { m.Forward(x) }, "Attr": func() { m.Attr("words") }, "SetAttr": func() { m.SetAttr("words", nil) },
		"Parameters": func() { m.Parameters() }, "Train": func() { m.Train(true) }, "Methods": func() { m.Methods() },
		"Save": func() {
			if err := jit.Save(m, filepath.Join(t.TempDir(), "x.pt")); err != nil {
				panic(err)
			}
		},
	} {
		if err := gotorch.Try0(call); !errors.Is(err, gotorch.ValueError) || !strings.Contains(err.Error(), "Close") {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
	if _, err := jit.Load("testdata/none.pt"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := jit.Load("testdata"); err == nil {
		t.Error("a folder was loaded")
	}
	if _, err := jit.Load("testdata/net.pt", jit.LoadOptions{MapLocation: gotorch.CUDA(77)}); err == nil {
		t.Error("there are 77 GPUs")
	}
	if m, err := jit.Load("testdata/net.pt", jit.LoadOptions{MapLocation: gotorch.CPU}); err != nil {
		t.Error(err)
	} else {
		m.Close()
	}
}

// Goroutines call a module while others change it, close it and let go of what they have of it.
func TestThreads(t *testing.T) {
	m := load(t, "net.pt")
	x := gotorch.Randn([]int64{4, 3})
	want := m.Forward(x)
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			for range 60 {
				if got := m.Forward(x); !got.Equal(want) {
					t.Errorf("%v, want %v", got, want)
				}
				switch i {
				case 0:
					m.SetAttr("words", []string{"a", "b"})
				case 1:
					m.Eval()
				case 2:
					m.Attr("words")
				case 3:
					m.GetSubmodule("hidden").Parameters()[0].Close()
				}
			}
		})
	}
	wait.Wait()
	wait.Go(func() {
		for {
			if err := gotorch.Try0(func() { m.Forward(x) }); err != nil {
				return
			}
		}
	})
	m.Close()
	wait.Wait()
}

func TestMemoryGoesAway(t *testing.T) {
	data, err := os.ReadFile("testdata/net.pt")
	if err != nil {
		t.Fatal(err)
	}
	broken := slices.Clone(data)
	broken[len(broken)/2] ^= 0x40
	x := gotorch.Randn([]int64{2, 3})
	once := func(closed bool) {
		m, err := jit.Decode(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		m.Forward(x).Sum().Backward()
		m.StateDict()
		m.Attr("counter").(*jit.Object).Call("up")
		m.Call("classify", x)
		m.Modules()
		gotorch.Try0(func() { m.Call("output", gotorch.Tuple{x, 1}, jit.Enum{Name: "RED"}) })
		gotorch.Try0(func() { m.Call("later", x) })
		gotorch.Try0(func() { m.Call("forward", []any{x, 1}) })
		if closed {
			m.Close()
		}
		if m, err := jit.Decode(bytes.NewReader(broken)); err == nil {
			m.Close()
		}
		if _, err := jit.Decode(bytes.NewReader(data[:len(data)-100])); err == nil {
			t.Fatal("a shorter file was loaded")
		}
	}
	settle := func() (handles int64) {
		for range 40 {
			runtime.GC()
			time.Sleep(5 * time.Millisecond)
			if n := gotorch.MemoryStats().LiveHandles; n == handles {
				return n
			} else {
				handles = n
			}
		}
		return handles
	}
	once(true)
	before := settle()
	for i := range 30 {
		once(i%2 == 0)
	}
	// What leaked in each round would be 30; threads may owe a few that are closed.
	if after := settle(); after > before+15 {
		t.Errorf("%d handles, and %d before", after, before)
	}
}

func TestProfilingIsOff(t *testing.T) {
	load(t, "net.pt")
	if jit.SetProfilingMode(true) {
		t.Error("scripts are profiled")
	}
	m := load(t, "traced.pt")
	for range 4 {
		m.Forward(gotorch.Ones([]int64{1, 2}))
	}
	if !jit.SetProfilingMode(false) {
		t.Error("loading has switched profiling off again")
	}
}

// FuzzDecode looks for what ends the process. Checksums are ignored, or nothing would come as far as the reader.
func FuzzDecode(f *testing.F) {
	for _, name := range []string{"net.pt", "traced.pt", "served.pt"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := jit.Decode(bytes.NewReader(data), jit.LoadOptions{IgnoreChecksums: true})
		if err != nil {
			return
		}
		m.StateDict()
		m.Close()
	})
}

// A file that is written while it is read is loaded as it is, or an error: never as nobody has written it.
func TestAFileThatIsWrittenMeanwhile(t *testing.T) {
	good, err := os.ReadFile("testdata/net.pt")
	if err != nil {
		t.Fatal(err)
	}
	m := load(t, "net.pt")
	x := gotorch.Randn([]int64{4, 3})
	m.Eval()
	want := m.Forward(x)
	weight := gotorch.RawData(m.Attr("out.weight").(gotorch.Tensor))
	at := bytes.Index(good, weight)
	if at < 0 {
		t.Fatal("the file does not have the weight")
	}
	path := filepath.Join(t.TempDir(), "net.pt")
	if err := os.WriteFile(path, good, 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		defer f.Close()
		for i := byte(0); ; i++ {
			select {
			case <-stop:
				return
			default:
				f.WriteAt([]byte{weight[3] ^ i<<7}, int64(at)+3) // the sign of the first number
				time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
			}
		}
	})
	failed := 0
	for range 120 {
		m, err := jit.Load(path)
		if err != nil {
			if failed++; !errors.Is(err, gotorch.ValueError) || !strings.Contains(err.Error(), "checksum") {
				t.Fatal(err)
			}
			continue
		}
		m.Eval()
		if got := m.Forward(x); !got.Equal(want) {
			t.Fatalf("%v, want %v", got, want)
		}
		m.Close()
	}
	close(stop)
	writer.Wait()
	t.Logf("%d of 120 were read while they were damaged", failed)
}

// A Writer may use the module, and change and close it.
func TestAModuleIsEncodedToAWriterThatChangesIt(t *testing.T) {
	m := load(t, "net.pt")
	big := gotorch.Randn([]int64{3, 1 << 16})
	m.SetAttr("hidden.weight", big)
	m.SetAttr("hidden.bias", gotorch.Zeros([]int64{3}))
	var file bytes.Buffer
	done := make(chan error, 1)
	go func() {
		closed := false
		done <- jit.Encode(writerFunc(func(b []byte) (int, error) {
			if !closed {
				closed = true
				m.Train(true)
				m.SetAttr("hidden.weight", gotorch.Zeros([]int64{1}))
				m.Close()
			}
			return file.Write(b)
		}), m)
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
	again, err := jit.Decode(&file)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if again.Training() || !again.Attr("hidden.weight").(gotorch.Tensor).Equal(big) {
		t.Error("what is written is not what was there")
	}
	full := errors.New("full")
	if err := jit.Encode(writerFunc(func([]byte) (int, error) { return 0, full }), again); !errors.Is(err, full) {
		t.Error(err)
	}
	if err := jit.Encode(writerFunc(func(b []byte) (int, error) { return len(b) / 2, nil }), again); !errors.Is(err, io.ErrShortWrite) {
		t.Error(err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
