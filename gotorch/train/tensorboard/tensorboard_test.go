package tensorboard

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"image"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/finalize"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/train"
)

// records returns the events of a file, and fails if it has anything else.
func records(t *testing.T, path string) (events [][]byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	testhelp.Must(t, err)
	for len(b) > 0 {
		event, whole := unframed(b)
		if !whole {
			t.Fatalf("%s: no record at %d from its end", path, len(b))
		}
		events, b = append(events, event), b[len(event)+16:]
	}
	return events
}

func only(t *testing.T, folder string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "events.*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	return files[0]
}

func TestRecordsAreFramedAsTensorFlowDoes(t *testing.T) {
	// 123456789 is what checksums are tried on: Castagnoli's is 0xe3069283.
	if sum := crc32.Checksum([]byte("123456789"), castagnoli); sum != 0xe3069283 {
		t.Errorf("the sum is %x", sum)
	}
	// By TensorBoard's own masked_crc32c.
	if got := masked([]byte("123456789")); got != 0xc78ab0e5 {
		t.Errorf("the masked sum is %x", got)
	}
	record := framed([]byte("abc"))
	if got, whole := unframed(record); !whole || string(got) != "abc" {
		t.Errorf("got %q, %v", got, whole)
	}
	for i := range record {
		broken := bytes.Clone(record)
		broken[i] ^= 4
		if _, whole := unframed(broken); whole {
			t.Errorf("byte %d was changed, and nobody noticed", i)
		}
		if _, whole := unframed(record[:i]); whole {
			t.Errorf("%d bytes are taken for a record", i)
		}
	}
}

func TestEveryUseGivesItsTensorsBack(t *testing.T) {
	model := nn.Sequential(nn.Linear(3, 4), nn.ReLU(nn.ReLUOptions{InPlace: true}), nn.Linear(4, 2))
	use := func() {
		dir := t.TempDir()
		w, err := NewSummaryWriter(dir)
		testhelp.Must(t, err)
		x := gotorch.Rand([]int64{2, 3, 4, 5})
		testhelp.Must(t, errors.Join(
			w.AddHistogram("h", x, 0), w.AddImages("i", x, 0), w.AddTensor("t", x, 0), w.AddAudio("a", x.Flatten(), 0),
			w.AddVideo("v", x.Unsqueeze(0), 0), w.AddGraph(model, AddGraphOptions{InputToModel: []gotorch.Tensor{gotorch.Ones([]int64{1, 3})}}),
			w.AddEmbedding(gotorch.Rand([]int64{2, 3}), 0, AddEmbeddingOptions{LabelImg: x}), w.AddMesh("m", gotorch.Rand([]int64{1, 2, 3}), 0),
			w.AddPRCurve("p", gotorch.Ones([]int64{3}), gotorch.Rand([]int64{3}), 0), w.AddFigure("f", image.NewGray(image.Rect(0, 0, 2, 2)), 0),
			w.AddHParams([]HParam{{Name: "x", Value: 1}}, nil), w.AddScalars("s", []train.Value{{Name: "a", Value: 1}}, 0), w.Flush(), w.Close()))
	}
	live := func() int64 {
		for before := int64(math.MaxInt64); ; {
			finalize.Dead()
			if now := gotorch.MemoryStats().LiveHandles; now >= before {
				return now
			} else {
				before = now
			}
		}
	}
	use()
	handles, files, goroutines := live(), testhelp.Descriptors(t), runtime.NumGoroutine()
	for range 3 {
		use()
	}
	now := live()
	for range 100 {
		if now <= handles {
			break
		}
		now = live()
	}
	if now > handles {
		t.Errorf("%d tensors are left of three times", now-handles)
	}
	if now := testhelp.Descriptors(t); now > files {
		t.Errorf("%d files are open, and %d before", now, files)
	}
	testhelp.NoMoreGoroutines(t, goroutines)
}

func TestAGraphLeavesTheModelAsItWas(t *testing.T) {
	model := nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
	model.Layers[1].Eval()
	w, err := NewSummaryWriter(t.TempDir())
	testhelp.Must(t, err)
	defer w.Close()
	before := fmt.Sprint(model.StateDict()["1.running_mean"], gotorch.ToSlice[uint8](gotorch.DefaultGenerator(gotorch.CPU).State()))
	testhelp.Must(t, w.AddGraph(model, AddGraphOptions{InputToModel: []gotorch.Tensor{gotorch.Ones([]int64{2, 3})}}))
	if err := w.AddGraph(model, AddGraphOptions{InputToModel: []gotorch.Tensor{gotorch.Ones([]int64{2, 5})}}); !errors.Is(err, gotorch.RuntimeError) {
		t.Errorf("got %v", err)
	}
	if err := w.AddGraph(model, AddGraphOptions{InputToModel: make([]gotorch.Tensor, 3)}); !errors.Is(err, gotorch.ValueError) {
		t.Errorf("got %v", err)
	}
	after := fmt.Sprint(model.StateDict()["1.running_mean"], gotorch.ToSlice[uint8](gotorch.DefaultGenerator(gotorch.CPU).State()))
	if before != after || !model.Training() || model.Layers[1].Training() || !model.Layers[2].Training() {
		t.Error("the model has changed")
	}
}

func TestWhatMakesNoSenseIsRefusedAndWritesNothing(t *testing.T) {
	dir := t.TempDir()
	w, err := NewSummaryWriter(dir)
	testhelp.Must(t, err)
	x, closed := gotorch.Rand([]int64{2, 3}), gotorch.Rand([]int64{1, 2, 3})
	closed.Close()
	for what, err := range map[string]error{
		"a scalar's folder":     w.AddScalars("../x", []train.Value{{Name: "/../../../y"}}, 0),
		"a run's folder":        w.AddHParams(nil, nil, AddHParamsOptions{RunName: "../x"}),
		"a run with a zero":     w.AddHParams(nil, nil, AddHParamsOptions{RunName: "a\x00"}),
		"a hyperparameter":      w.AddHParams([]HParam{{Name: "x", Value: []int{1}}}, nil),
		"no hyperparameter":     w.AddHParams([]HParam{{Name: "x"}}, nil),
		"a domain":              w.AddHParams([]HParam{{Name: "x", Value: 1, Domain: []any{"a"}}}, nil),
		"an embedding's tag":    w.AddEmbedding(x, 0, AddEmbeddingOptions{Tag: ".."}),
		"few texts":             w.AddEmbedding(x, 0, AddEmbeddingOptions{Metadata: [][]string{{"a"}}}),
		"a text with a tab":     w.AddEmbedding(x, 0, AddEmbeddingOptions{Metadata: [][]string{{"a\tb"}, {"c"}}}),
		"points in three":       w.AddEmbedding(x.Unsqueeze(0), 0),
		"pictures of others":    w.AddEmbedding(x, 0, AddEmbeddingOptions{LabelImg: gotorch.Rand([]int64{3, 3, 2, 2})}),
		"an empty histogram":    w.AddHistogram("h", gotorch.Empty([]int64{0}), 0),
		"a histogram of NaN":    w.AddHistogram("h", gotorch.Full([]int64{3}, math.NaN()), 0),
		"bins without order":    w.AddHistogram("h", x, 0, AddHistogramOptions{Bins: []float64{1, 0}}),
		"one bin":               w.AddHistogram("h", x, 0, AddHistogramOptions{Bins: []float64{1}}),
		"a tensor that is none": w.AddHistogram("h", gotorch.Tensor{}, 0),
		"no tensor":             w.AddTensor("t", gotorch.Tensor{}, 0),
		"a closed tensor":       w.AddTensor("t", closed, 0),
		"closed weights":        w.AddPRCurve("p", x, x, 0, AddPRCurveOptions{Weights: closed}),
		"closed pictures":       w.AddEmbedding(x, 0, AddEmbeddingOptions{LabelImg: closed}),
		"closed vertices":       w.AddMesh("m", closed, 0),
		"closed colors":         w.AddMesh("m", x.Unsqueeze(0), 0, AddMeshOptions{Colors: closed}),
		"more than memory":      w.AddHistogram("h", x.Select(0, 0).Select(0, 0).To(gotorch.Float64).Expand([]int64{1 << 50}), 0),
		"no model":              w.AddGraph(nil),
		"a nil model":           w.AddGraph((*nn.LinearModule)(nil)),
		"an empty picture":      w.AddImage("i", gotorch.Zeros([]int64{3, 0, 4}), 0),
		"a picture of two":      w.AddImage("i", gotorch.Zeros([]int64{2, 4, 4}), 0),
		"formats":               w.AddImage("i", gotorch.Zeros([]int64{3, 4, 4}), 0, AddImageOptions{DataFormats: "CHX"}),
		"too many formats":      w.AddImage("i", gotorch.Zeros([]int64{1, 1, 3, 4, 4}), 0, AddImageOptions{DataFormats: "ANCHW"}),
		"no picture":            w.AddFigure("f", nil, 0),
		"a video of four":       w.AddVideo("v", gotorch.Zeros([]int64{1, 3, 4, 4}), 0),
		"a video of no time":    w.AddVideo("v", gotorch.Zeros([]int64{1, 0, 3, 4, 4}), 0),
		"pictures in a second":  w.AddVideo("v", gotorch.Zeros([]int64{1, 1, 3, 4, 4}), 0, AddVideoOptions{FPS: 0}),
		"two channels":          w.AddAudio("a", gotorch.Zeros([]int64{2, 4}), 0),
		"a rate":                w.AddAudio("a", gotorch.Zeros([]int64{4}), 0, AddAudioOptions{SampleRate: 0}),
		"a tensor of complex32": w.AddTensor("t", gotorch.Zeros([]int64{2}, gotorch.TensorOptions{DType: gotorch.Uint64}), 0),
		"labels":                w.AddPRCurve("p", gotorch.Ones([]int64{3}), gotorch.Ones([]int64{4}), 0),
		"one threshold":         w.AddPRCurve("p", x, x, 0, AddPRCurveOptions{NumThresholds: 1}),
		"a raw curve":           w.AddPRCurveRaw("p", PRCurve{}, 0),
		"vertices":              w.AddMesh("m", x, 0),
		"no vertices":           w.AddMesh("m", gotorch.Tensor{}, 0),
		"a margin of two":       w.AddCustomScalarsMarginchart([]string{"a", "b"}),
	} {
		var wrong *gotorch.Error
		if !errors.As(err, &wrong) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := w.Close(); err == nil {
		t.Error("Close has not said that there was an error")
	}
	testhelp.Must(t, w.Close())
	if events := records(t, only(t, dir)); len(events) != 1 {
		t.Errorf("there are %d events", len(events))
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder has %v", entries)
	}
	for what, err := range map[string]error{
		"a number": w.AddScalar("x", 1, 0), "an embedding": w.AddEmbedding(x, 0), "hyperparameters": w.AddHParams(nil, nil),
	} {
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s, after the end: %v", what, err)
		}
	}
	for _, fn := range []func(){
		func() { _, _ = NewSummaryWriter(dir, SummaryWriterOptions{FlushSecs: 0}) },
		func() { _, _ = NewSummaryWriter(dir, SummaryWriterOptions{FilenameSuffix: "/../x"}) },
		func() { NewLog("") }, func() { NewLog(dir, LogOptions{FlushSecs: -1}) },
	} {
		if err := gotorch.Try0(fn); !errors.Is(err, gotorch.ValueError) {
			t.Errorf("got %v", err)
		}
	}
	if _, err := NewSummaryWriter(filepath.Join(only(t, dir), "below")); err == nil {
		t.Error("a folder below a file")
	}
}

// stepOf returns an event's step.
func stepOf(event []byte) (step int64) {
	for len(event) > 0 {
		n, kind, size := protowire.ConsumeTag(event)
		event = event[size:]
		if n == 2 && kind == protowire.VarintType {
			v, _ := protowire.ConsumeVarint(event)
			step = int64(v)
		}
		event = event[protowire.ConsumeFieldValue(n, kind, event):]
	}
	return step
}

func TestWritersOfOneFolderHaveFilesOfTheirOwnInOrder(t *testing.T) {
	dir := t.TempDir()
	const before = 12 // within a second or two, so that what tells them apart has one digit or two
	for range before {
		w, err := NewSummaryWriter(dir, SummaryWriterOptions{FilenameSuffix: ".x"})
		testhelp.Must(t, err)
		testhelp.Must(t, errors.Join(w.AddScalar("bad \xff", 1, 0), w.Close()))
	}
	w, err := NewSummaryWriter(dir, SummaryWriterOptions{PurgeStep: 7})
	testhelp.Must(t, err)
	testhelp.Must(t, w.AddScalars("below", []train.Value{{Name: "a", Value: 1}}, 7))
	testhelp.Must(t, w.Close())
	files, err := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*"))
	testhelp.Must(t, err)
	if len(files) != before+1 || strings.HasSuffix(files[before], ".x") {
		t.Errorf("the files are %v", files)
	}
	if events := records(t, files[before]); len(events) != 3 {
		t.Errorf("there are %d events", len(events))
	} else if status, has := bytesField(events[2], 7); !has || !bytes.Equal(status, []byte{8, 1}) {
		t.Errorf("the last is %x", events[2])
	} else if stepOf(events[0]) != 0 || stepOf(events[1]) != 7 || stepOf(events[2]) != 7 {
		t.Errorf("the steps are %d, %d, %d", stepOf(events[0]), stepOf(events[1]), stepOf(events[2]))
	}
	if below := records(t, only(t, filepath.Join(dir, "below_a"))); len(below) != 2 { // as torch's, which hides nothing there
		t.Errorf("below there are %d events", len(below))
	}
	if events := records(t, files[0]); !bytes.Contains(events[1], []byte("bad \uFFFD")) {
		t.Errorf("got %q", events[1])
	}
}

// TensorBoard reads files in the order of their names.
func TestANewFileComesAfterThoseThatAreThere(t *testing.T) {
	dir := t.TempDir()
	other := fmt.Sprintf("events.out.tfevents.%010d.~", time.Now().Unix()+1000) // by a clock that is ahead
	testhelp.Must(t, os.WriteFile(filepath.Join(dir, other), nil, 0o666))
	w, err := NewSummaryWriter(dir)
	testhelp.Must(t, err)
	testhelp.Must(t, w.Close())
	files, err := os.ReadDir(dir)
	testhelp.Must(t, err)
	if len(files) != 2 || files[0].Name() != other {
		t.Errorf("the files are %v", files)
	}
}

func TestARunGoesOnInANewFile(t *testing.T) {
	dir := t.TempDir()
	log := func(l *Log, start train.LogStart, steps ...int) (mark gotorch.Dict, err error) {
		if err := l.Begin(start); err != nil {
			return nil, err
		}
		for i, step := range steps {
			testhelp.Must(t, l.Log(train.LogEntry{Step: step, Values: []train.Value{{Name: "loss", Value: 1}}}))
			if i == 0 {
				mark, err = l.Mark()
				testhelp.Must(t, err)
			}
		}
		return mark, l.End()
	}
	files := func() (steps [][]int64, names []string) {
		entries, err := os.ReadDir(dir)
		testhelp.Must(t, err)
		for _, e := range entries {
			var of []int64
			for _, event := range records(t, filepath.Join(dir, e.Name())) {
				of = append(of, stepOf(event))
			}
			steps, names = append(steps, of), append(names, e.Name())
		}
		return steps, names
	}
	expect := func(what string, want ...[]int64) {
		t.Helper()
		if got, _ := files(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: the steps are %v, not %v", what, got, want)
		}
	}
	mark, err := log(NewLog(dir), train.LogStart{}, 5, 6, 7)
	testhelp.Must(t, err)
	expect("at first", []int64{0, 5, 6, 7})
	for _, start := range []train.LogStart{{}, {Step: 5}, {Resumes: true, Step: 5}} {
		if _, err := log(NewLog(dir), start); err == nil {
			t.Errorf("%+v: another run's log goes on", start)
		}
	}
	expect("after what was refused", []int64{0, 5, 6, 7})
	second, err := log(NewLog(dir), train.LogStart{Step: 5, Mark: mark, Resumes: true}, 6)
	testhelp.Must(t, err)
	expect("gone on with", []int64{0, 5}, []int64{0, 6, 6, 6}) // of which two say that 6 and what follows is no more
	_, names := files()
	testhelp.Must(t, os.Remove(filepath.Join(dir, names[0])))
	again := train.LogStart{Step: 6, Mark: second, Resumes: true}
	if _, err := log(NewLog(dir), again); err == nil || !strings.Contains(err.Error(), names[0]) {
		t.Errorf("a file is gone: %v", err)
	}
	third, err := log(NewLog(dir, LogOptions{Overwrite: true}), again, 7)
	testhelp.Must(t, err)
	if sizes := third.Get("files").(gotorch.Dict); len(sizes) != 2 || sizes.Get(names[0]) != nil {
		t.Errorf("the next checkpoint has %v", sizes)
	}
	_, err = log(NewLog(dir), train.LogStart{Resumes: true}, 1) // before its first checkpoint, so all of it was this run's
	testhelp.Must(t, err)
	expect("begun again", []int64{0, 1, 1, 1})
}

// Counts are numpy.histogram's: the last bucket has its upper limit, too.
func TestHistogramsAreNumPys(t *testing.T) {
	for _, c := range []struct {
		values         []float64
		o              HistogramOfOptions
		counts, limits []float64
	}{
		{[]float64{0, 1, 1.5, 2, 3, 3.5, -1}, HistogramOfOptions{Bins: []float64{0, 1, 2, 3}}, []float64{0, 1, 2, 2}, []float64{0, 1, 2, 3}},
		{[]float64{0.5, 1.5, 2.5, 2.6, 3.5}, HistogramOfOptions{Bins: []float64{0, 1, 2, 3, 4}, MaxBins: 2}, []float64{0, 2, 3}, []float64{0, 2, 4}},
		{[]float64{1.5, 1.6}, HistogramOfOptions{Bins: []float64{0, 1, 2, 3}}, []float64{0, 2}, []float64{1, 2}},
	} {
		h, err := HistogramOf(c.values, c.o)
		if err != nil || !slices.Equal(h.BucketCounts, c.counts) || !slices.Equal(h.BucketLimits, c.limits) || h.Num != float64(len(c.values)) {
			t.Errorf("%v: got %+v, %v", c.values, h, err)
		}
	}
}

func TestASparseTensorHasItsZeros(t *testing.T) {
	for _, dtype := range []gotorch.DType{gotorch.Float32, gotorch.Float64, gotorch.BFloat16, gotorch.Int64, gotorch.Bool, gotorch.Complex64, gotorch.Complex128} {
		dense := gotorch.NewTensor([][]float64{{0, 1, 0}, {2, 0, 0}}).To(dtype)
		want, err := tensorProto(dense)
		testhelp.Must(t, err)
		for layout, sparse := range map[string]gotorch.Tensor{"COO": dense.ToSparse(), "CSR": dense.ToSparseCSR()} {
			if got, err := tensorProto(sparse); err != nil || !slices.Equal(got, want) {
				t.Errorf("%v, %s: %x, want %x: %v", dtype, layout, got, want, err)
			}
		}
	}
	w, err := NewSummaryWriter(t.TempDir())
	testhelp.Must(t, err)
	// A histogram is of what it holds, though there were not the memory for all.
	indices := gotorch.NewTensor([][]int64{{5, 1 << 40}})
	large := gotorch.SparseCOOTensor(indices, gotorch.FromSlice([]float32{1, 2}), []int64{1 << 50})
	testhelp.Must(t, errors.Join(w.AddHistogram("h", large, 0), w.Close()))
}

func TestAWriterIsForSeveralGoroutines(t *testing.T) {
	dir := t.TempDir()
	w, err := NewSummaryWriter(dir)
	testhelp.Must(t, err)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for k := range 200 {
				if err := w.AddScalar(fmt.Sprint("x", i), float64(k), k); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	testhelp.Must(t, w.Close())
	if events := records(t, only(t, dir)); len(events) != 1601 {
		t.Errorf("there are %d events", len(events))
	}
}

// Where this is set, the test writes to the folder that it names, where files are bounded.
const limited = "GOTORCH_TEST_LIMITED"

func TestAFullDiskIsAnErrorAndLeavesWholeRecords(t *testing.T) {
	if dir := os.Getenv(limited); dir != "" {
		testhelp.Must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 100_001, Max: 100_001}))
		w, err := NewSummaryWriter(dir)
		testhelp.Must(t, err)
		for i := range 10_000 {
			if err = w.AddScalar("loss", 1, i); err != nil {
				break
			}
		}
		if !errors.Is(err, syscall.EFBIG) {
			t.Errorf("got %v", err)
		}
		if err := w.AddEmbedding(gotorch.Rand([]int64{5000, 3}), 0); !errors.Is(err, syscall.EFBIG) {
			t.Errorf("got %v", err)
		}
		if err := w.Close(); !errors.Is(err, syscall.EFBIG) {
			t.Errorf("got %v", err)
		}
		return
	}
	dir := t.TempDir()
	child := exec.Command(os.Args[0], "-test.run=^TestAFullDiskIsAnErrorAndLeavesWholeRecords$")
	child.Env = append(os.Environ(), limited+"="+dir)
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if events := records(t, only(t, dir)); len(events) < 1000 {
		t.Errorf("there are %d events", len(events))
	}
	testhelp.Must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if strings.HasSuffix(path, ".part") || strings.HasSuffix(path, ".tsv") || strings.HasSuffix(path, ".pbtxt") {
			t.Errorf("%s is left", path)
		}
		return err
	}))
}

// FuzzMark looks for the begin of a file that the search for who wrote it does not stand.
func FuzzMark(f *testing.F) {
	f.Add(framed(event(0, time.Unix(1, 0)).text(3, "brain.Event:2").bytes(10, message{}.text(1, logMark))))
	f.Add(framed(nil))
	f.Add([]byte("no record"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1024 {
			b = b[:1024]
		}
		markIn(b)
		markIn(framed(b)) // with sums that are right
	})
}

func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	w, err := NewSummaryWriter(filepath.Join(dir, "runs"))
	if err != nil {
		fmt.Println(err)
		return
	}
	model := nn.Linear(3, 2)
	for step := range 10 {
		if err := w.AddScalar("loss", 1/float64(step+1), step); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(w.AddHistogram("weights", model.Weight, 10), w.AddText("notes", "A *small* model", 0), w.AddGraph(model))
	fmt.Println(w.Close())
	// Output:
	// <nil> <nil> <nil>
	// <nil>
}
