package train_test

import (
	"archive/zip"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/train"
)

// points are n points of the plane, and whether the sum of their coordinates is positive.
func points(n int64) *data.TensorDataset {
	g := gotorch.NewGenerator(gotorch.CPU).ManualSeed(1)
	x := gotorch.Empty([]int64{n, 2}).Normal_(gotorch.Normal_Options{Generator: g})
	return data.NewTensorDataset(x, x.SumDim([]int64{1}).GtScalar(0).To(gotorch.Int64))
}

func newLoop(lr float64) (*train.Loop, *nn.SequentialModule, *optim.SGDOptimizer) {
	gotorch.ManualSeed(2)
	model := nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 2))
	opt := optim.SGD(model.Parameters(), optim.SGDOptions{LR: lr, Momentum: 0.9})
	return train.NewLoop(model, opt, nn.CrossEntropyLoss()), model, opt
}

func loader(n int64) *data.Loader[data.Pair] {
	return data.NewLoader(points(n), data.LoaderOptions{BatchSize: 10, Shuffle: true, Seed: 3})
}

func TestALoopLearnsAndRecords(t *testing.T) {
	loop, model, _ := newLoop(0.1)
	loop.OnEpoch(train.Validate(points(100), train.Accuracy))
	history, err := loop.Run(t.Context(), loader(95), train.Epochs(5))
	testhelp.Must(t, err)
	if len(history.Losses) != 50 || len(history.Epochs) != 5 || history.Epochs[4].Steps != 50 || history.Epochs[4].Number != 5 {
		t.Errorf("got %d losses, %d epochs", len(history.Losses), len(history.Epochs))
	}
	if accuracy := history.Last("val_accuracy"); accuracy < 0.9 {
		t.Errorf("the accuracy is %v", accuracy)
	}
	if losses := history.Metric("loss"); !(losses[4] < losses[0]) || history.Last("val_loss") > 0.5 {
		t.Errorf("the losses are %v", losses)
	}
	mean := 0.0
	for _, loss := range history.Losses[40:] {
		mean += loss / 10
	}
	if math.Abs(mean-history.Last("loss")) > 1e-9 {
		t.Errorf("the loss of the last epoch is %v, its mean %v", history.Last("loss"), mean)
	}
	if !math.IsNaN(history.Last("nothing")) || !math.IsNaN(new(train.History).Last("loss")) {
		t.Error("what was not recorded must be NaN")
	}
	if !model.Training() {
		t.Error("validation left the model in evaluation mode")
	}
}

func TestALoopIsTheSameAsAPlainOne(t *testing.T) {
	loop, model, _ := newLoop(0.1)
	_, err := loop.Run(t.Context(), loader(95), train.Epochs(2))
	testhelp.Must(t, err)

	_, plain, opt := newLoop(0.1)
	batches := loader(95)
	for range 2 {
		for batch := range batches.All() {
			loss := F.CrossEntropy(plain.Forward(batch.Input), batch.Target)
			loss.Backward()
			opt.Step()
			opt.ZeroGrad()
		}
	}
	for name, p := range plain.StateDict() {
		if !gotorch.Equal(p, model.StateDict()[name]) {
			t.Errorf("%s differs", name)
		}
	}
}

func TestStepsEndInTheMiddleOfAnEpoch(t *testing.T) {
	loop, _, _ := newLoop(0.1)
	epochs := 0
	loop.OnEpoch(func(*train.Epoch) error { epochs++; return nil })
	history, err := loop.Run(t.Context(), loader(95), train.Steps(13))
	testhelp.Must(t, err)
	if len(history.Losses) != 13 || epochs != 2 || history.Epochs[1].Steps != 13 {
		t.Errorf("got %d losses and %d epochs", len(history.Losses), epochs)
	}
}

func TestLimitsWithoutEndAreEndedByOthers(t *testing.T) {
	for _, limit := range []train.Limit{train.Steps(math.MaxInt), train.Epochs(math.MaxInt), train.Epochs(math.MaxInt/10 + 1)} {
		loop, _, _ := newLoop(0.1)
		loop.OnStep(func(s *train.Step) error {
			if done := s.Done(); done < 0 || done > 1e-9 {
				t.Errorf("after %d steps of %d: %v is done", s.Number, s.Total, done)
			}
			if s.Number == 13 {
				return train.ErrStop
			}
			return nil
		})
		history, err := loop.Run(t.Context(), loader(95), limit)
		testhelp.Must(t, err)
		if len(history.Losses) != 13 {
			t.Errorf("%+v: %d steps were taken", limit, len(history.Losses))
		}
	}
}

// longer is batches whose epochs have more of them than Len says.
type longer struct{ *data.Loader[data.Pair] }

func (l longer) Len() int { return l.Loader.Len() - 1 }

func TestARunStopsAtItsLimitOrIsRefused(t *testing.T) {
	loop, model, opt := newLoop(0.1)
	history, err := loop.Run(t.Context(), longer{loader(30)}, train.Steps(5))
	if err != nil || len(history.Losses) != 5 {
		t.Errorf("%d steps, error %v", len(history.Losses), err)
	}
	for kind, fns := range map[gotorch.ErrorKind][]func(){
		gotorch.ValueError: {func() { train.Epochs(-1) }, func() { train.Steps(-1) }},
		gotorch.TypeError: {
			func() { train.NewLoop(nil, opt, nn.MSELoss()) },
			func() { train.NewLoop(model, nil, nn.MSELoss()) },
			func() { train.NewLoop(model, opt, nil) },
			func() { train.NewLoop(model, opt, nn.LossFunc(nil)) },
			func() { train.NewLoop(model, opt, (*nn.MSELossModule)(nil)) },
		},
	} {
		for _, fn := range fns {
			if err := gotorch.Try0(fn); !errors.Is(err, kind) {
				t.Errorf("got %v, want a %s", err, kind)
			}
		}
	}
}

func TestHooksSeeTheRun(t *testing.T) {
	loop, model, opt := newLoop(0.1)
	var calls []string
	loop.OnBackward(func(s *train.Step) error {
		if !model.Parameters()[0].Grad().Defined() {
			t.Error("there are no gradients")
		}
		calls = append(calls, "backward")
		return nil
	})
	before := gotorch.ToSlice[float32](model.Parameters()[0])
	loop.OnStep(func(s *train.Step) error {
		if slices.Equal(before, gotorch.ToSlice[float32](model.Parameters()[0])) {
			t.Error("the parameters have not changed")
		}
		opt.Groups[0].LR = 0.1 * (1 - s.Done())
		calls = append(calls, fmt.Sprintf("step %d.%d of %d, %v, %d", s.Epoch, s.Number, s.Total, s.Loss() > 0, s.Batch.Len()))
		return nil
	})
	loop.OnEpoch(func(e *train.Epoch) error {
		e.Record("calls", float64(len(calls)))
		calls = append(calls, fmt.Sprintf("epoch %d", e.Number))
		return nil
	})
	history, err := loop.Run(t.Context(), loader(15), train.Epochs(2))
	testhelp.Must(t, err)
	want := []string{
		"backward", "step 1.1 of 4, true, 10", "backward", "step 1.2 of 4, true, 5", "epoch 1",
		"backward", "step 2.3 of 4, true, 10", "backward", "step 2.4 of 4, true, 5", "epoch 2",
	}
	if !slices.Equal(calls, want) {
		t.Errorf("got %q", calls)
	}
	if *opt.LRs()[0] != 0 || history.Last("calls") != 9 {
		t.Errorf("got a learning rate of %v and %v calls", *opt.LRs()[0], history.Last("calls"))
	}
}

func TestHooksEndTheRun(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct{ hook, want error }{{train.ErrStop, nil}, {broken, broken}} {
		for _, add := range []func(*train.Loop){
			func(l *train.Loop) { l.OnStep(func(s *train.Step) error { return c.hook }) },
			func(l *train.Loop) { l.OnBackward(func(s *train.Step) error { return c.hook }) },
			func(l *train.Loop) { l.OnEpoch(func(*train.Epoch) error { return c.hook }) },
		} {
			loop, _, _ := newLoop(0.1)
			add(loop)
			history, err := loop.Run(t.Context(), loader(10), train.Epochs(9))
			if !errors.Is(err, c.want) || len(history.Losses) != 1 {
				t.Errorf("got %v after %d steps", err, len(history.Losses))
			}
		}
	}
}

func TestCancellingKeepsTheCheckpoint(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.safetensors")
	ctx, cancel := context.WithCancelCause(t.Context())
	pressed := errors.New("somebody pressed Ctrl-C")
	loop, model, _ := newLoop(0.1)
	loop.Checkpoint(path)
	loop.OnStep(func(s *train.Step) error {
		if s.Number == 7 {
			cancel(pressed)
		}
		return nil
	})
	history, err := loop.Run(ctx, loader(100), train.Epochs(3))
	if !errors.Is(err, context.Canceled) || !errors.Is(err, pressed) || !strings.Contains(err.Error(), "epoch 1, step 7") {
		t.Errorf("got %v", err)
	}
	if len(history.Losses) != 7 {
		t.Errorf("got %d losses", len(history.Losses))
	}
	_, other, _ := newLoop(0.1)
	testhelp.Must(t, nn.Load(other, path))
	if !gotorch.Equal(other.Parameters()[0], model.Parameters()[0]) {
		t.Error("the checkpoint is not what was learnt")
	}
}

func TestCancellingBeforehandDoesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	loop, _, _ := newLoop(0.1)
	history, err := loop.Run(ctx, loader(100), train.Epochs(3))
	if !errors.Is(err, context.Canceled) || len(history.Losses) != 0 {
		t.Errorf("got %v after %d steps", err, len(history.Losses))
	}
	if _, err := train.Evaluate(ctx, nn.Linear(2, 2), points(3), train.Accuracy); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestAPanicIsAnErrorAndLeavesTheCheckpointAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.safetensors")
	testhelp.Must(t, os.WriteFile(path, []byte("the last good one"), 0o644))
	loop := train.NewLoop(nn.Linear(3, 2), optim.SGD(nn.Linear(3, 2).Parameters()), nn.CrossEntropyLoss())
	loop.Checkpoint(path)
	_, err := loop.Run(t.Context(), loader(10), train.Epochs(1))
	if !errors.Is(err, gotorch.RuntimeError) || !strings.Contains(err.Error(), "mat1 and mat2 shapes cannot be multiplied") {
		t.Errorf("got %v", err)
	}
	if content, _ := os.ReadFile(path); string(content) != "the last good one" {
		t.Error("the checkpoint was overwritten")
	}
}

// broken yields a batch and then an error.
type broken struct{}

var errDisk = errors.New("the disk is broken")

func (broken) Len() int { return 5 }
func (broken) All() iter.Seq2[data.Pair, error] {
	return func(yield func(data.Pair, error) bool) {
		for batch, err := range loader(10).All() {
			if !yield(batch, err) {
				return
			}
		}
		yield(data.Pair{}, errDisk)
	}
}

type none struct{ broken }

func (none) Len() int { return 0 }

func TestBatchesThatFailEndTheRun(t *testing.T) {
	loop, _, _ := newLoop(0.1)
	history, err := loop.Run(t.Context(), broken{}, train.Epochs(1))
	if !errors.Is(err, errDisk) || len(history.Losses) != 1 {
		t.Errorf("got %v after %d steps", err, len(history.Losses))
	}
	if _, err := loop.Run(t.Context(), none{}, train.Epochs(1)); err == nil {
		t.Error("a run without batches is no error")
	}
	unwritable, _, _ := newLoop(0.1)
	unwritable.Checkpoint(filepath.Join(t.TempDir(), "missing", "model.safetensors"))
	if _, err := unwritable.Run(t.Context(), loader(10), train.Epochs(1)); err == nil {
		t.Error("a checkpoint that cannot be written is no error")
	}
}

func TestLossesOfYourOwn(t *testing.T) {
	model := nn.Linear(2, 2)
	own := func(output, target gotorch.Tensor) gotorch.Tensor { return F.CrossEntropy(output, target).MulScalar(2) }
	opt := optim.SGD(model.Parameters())
	for _, loop := range []*train.Loop{train.NewLoop(model, opt, nn.LossFunc(own)), train.NewLoop(model, opt, nn.CrossEntropyLoss())} {
		if _, err := loop.Run(t.Context(), loader(10), train.Epochs(1)); err != nil {
			t.Error(err)
		}
	}
	regression := data.NewTensorDataset(gotorch.Ones([]int64{4, 2}), gotorch.Ones([]int64{4, 2}))
	if _, err := train.NewLoop(model, opt, nn.MSELoss()).Run(t.Context(), data.NewLoader(regression), train.Epochs(1)); err != nil {
		t.Error(err)
	}
	logs := nn.Sequential(model)
	if _, err := train.NewLoop(logs, opt, nn.NLLLoss()).Run(t.Context(), loader(10), train.Epochs(1)); err != nil {
		t.Error(err)
	}
}

func TestProgressWithoutATerminalIsLines(t *testing.T) {
	var out bytes.Buffer
	loop, _, _ := newLoop(0.1)
	loop.OnEpoch(train.Validate(points(100), train.Accuracy))
	loop.Progress(&out)
	_, err := loop.Run(t.Context(), loader(95), train.Epochs(10))
	testhelp.Must(t, err)
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	want := regexp.MustCompile(`^epoch ( \d|10)/10  \d+\.\d s  loss \d\.\d{4}  val_loss \d\.\d{4}  val_accuracy [01]\.\d{4}$`)
	for _, line := range lines {
		if !want.MatchString(line) {
			t.Errorf("got %q", line)
		}
	}
	if len(lines) != 10 {
		t.Errorf("got %d lines", len(lines))
	}
}

func TestEvaluateWeighsBatchesByTheirSize(t *testing.T) {
	// 300 samples come as 256 and 44.
	labels := append(slices.Repeat([]int64{0}, 256), slices.Repeat([]int64{1}, 44)...)
	set := data.NewTensorDataset(gotorch.Ones([]int64{300, 1}), gotorch.FromSlice(labels))
	model := nn.Linear(1, 2)
	gotorch.NoGrad(func() { model.Bias.Copy_(gotorch.FromSlice([]float32{9, -9})); model.Weight.Zero_() })
	values, err := train.Evaluate(t.Context(), model, set, train.Accuracy)
	testhelp.Must(t, err)
	if len(values) != 1 || values[0].Name != "accuracy" || math.Abs(values[0].Value-256.0/300) > 1e-12 {
		t.Errorf("got %v", values)
	}
	if !model.Training() || model.Weight.Grad().Defined() {
		t.Error("evaluation left traces")
	}
}

func TestEvaluationLeavesFrozenLayersFrozen(t *testing.T) {
	frozen, inner := nn.BatchNorm1d(2), nn.Sequential(nn.Dropout(0.5))
	model := nn.Sequential(nn.Linear(2, 2), frozen, inner)
	frozen.Eval()
	inner.Eval()
	inner.Layers[0].Train(true)
	_, err := train.Evaluate(t.Context(), model, points(10), train.Accuracy)
	testhelp.Must(t, err)
	if !model.Training() || frozen.Training() || inner.Training() || !inner.Layers[0].Training() {
		t.Error("modes have changed")
	}
}

func TestATrainingGoesOnFromACheckpoint(t *testing.T) {
	path := filepath.Join(t.TempDir(), "training.pt")
	loop, model, opt := newLoop(0.1)
	batches := data.NewLoader(points(40), data.LoaderOptions{BatchSize: 10})
	model.Layers[2] = nn.ReLU() // nothing random
	_, err := loop.Run(t.Context(), batches, train.Epochs(2))
	testhelp.Must(t, err)
	testhelp.Must(t, train.SaveCheckpoint(path, model, opt))
	_, err = loop.Run(t.Context(), batches, train.Epochs(2))
	testhelp.Must(t, err)

	resumed, other, otherOpt := newLoop(0.3)
	other.Layers[2] = nn.ReLU()
	testhelp.Must(t, train.LoadCheckpoint(path, other, otherOpt))
	_, err = resumed.Run(t.Context(), batches, train.Epochs(2))
	testhelp.Must(t, err)
	for name, p := range model.StateDict() {
		if !gotorch.Equal(p, other.StateDict()[name]) {
			t.Errorf("%s differs", name)
		}
	}
	var wrong *nn.StateDictError
	if err := train.LoadCheckpoint(path, nn.Linear(1, 1), opt); !errors.As(err, &wrong) {
		t.Errorf("got %v", err)
	}
	*otherOpt.LRs()[0] = 7
	wider := nn.Sequential(nn.Linear(2, 9), nn.ReLU(), nn.ReLU(), nn.Linear(9, 1))
	if err := train.LoadCheckpoint(path, wider, otherOpt); !errors.As(err, &wrong) {
		t.Errorf("got %v", err)
	}
	if *otherOpt.LRs()[0] != 7 {
		t.Error("a checkpoint that did not fit the model changed the optimiser")
	}
	testhelp.Must(t, nn.Save(model, path))
	if err := train.LoadCheckpoint(path, model, opt); err == nil || !strings.Contains(err.Error(), "model_state_dict") {
		t.Errorf("got %v", err)
	}
}

// FuzzLoadCheckpoint looks for a checkpoint that changes an optimiser or a model in a way that the next
// step does not stand.
func FuzzLoadCheckpoint(f *testing.F) {
	loop, model, opt := newLoop(0.1)
	path := filepath.Join(f.TempDir(), "training.pt")
	if _, err := loop.Run(f.Context(), loader(20), train.Epochs(1)); err != nil {
		f.Fatal(err)
	}
	if err := train.SaveCheckpoint(path, model, opt); err != nil {
		f.Fatal(err)
	}
	archive, err := zip.OpenReader(path)
	if err != nil {
		f.Fatal(err)
	}
	defer archive.Close()
	records := map[string][]byte{}
	for _, file := range archive.File {
		r, err := file.Open()
		if err != nil {
			f.Fatal(err)
		}
		if records[file.Name], err = io.ReadAll(r); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(records["training/data.pkl"])
	f.Fuzz(func(t *testing.T, pkl []byte) {
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		for name, data := range records {
			if name == "training/data.pkl" {
				data = pkl
			}
			w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
			testhelp.Must(t, err)
			_, err = w.Write(data)
			testhelp.Must(t, err)
		}
		testhelp.Must(t, z.Close())
		testhelp.Must(t, os.WriteFile(path, b.Bytes(), 0o666))
		_, model, opt := newLoop(0.1)
		if err := train.LoadCheckpoint(path, model, opt); err != nil {
			return
		}
		for _, p := range model.Parameters() {
			p.SetGrad(gotorch.OnesLike(p))
		}
		opt.Step()
	})
}

// Where this is set, the test saves checkpoints to the folder that it names, for ever.
const saving = "GOTORCH_TEST_SAVER"

func saveForEver(dir string) {
	_, model, opt := newLoop(0.1)
	for version := 1; ; version++ {
		gotorch.NoGrad(func() {
			for _, p := range model.Parameters() {
				p.Fill_(version)
			}
		})
		opt.Groups[0].LR = float64(version)
		err := errors.Join(train.SaveCheckpoint(filepath.Join(dir, "training.pt"), model, opt), nn.Save(model, filepath.Join(dir, "model.safetensors")))
		fmt.Println("saved", err)
	}
}

func TestAKilledTrainingLeavesAWholeCheckpoint(t *testing.T) {
	if dir := os.Getenv(saving); dir != "" {
		saveForEver(dir)
	}
	dir := t.TempDir()
	_, model, opt := newLoop(0.1)
	version := func() float64 {
		first := gotorch.Item[float64](model.Parameters()[0].Max())
		for name, p := range model.StateDict() {
			if gotorch.Item[float64](p.Min()) != first || gotorch.Item[float64](p.Max()) != first {
				t.Errorf("%s is not of version %v: %v", name, first, p)
			}
		}
		return first
	}
	for range 4 {
		child := exec.Command(os.Args[0], "-test.run=^TestAKilledTrainingLeavesAWholeCheckpoint$")
		child.Env = append(os.Environ(), saving+"="+dir)
		output, err := child.StdoutPipe()
		testhelp.Must(t, err)
		testhelp.Must(t, child.Start())
		lines := bufio.NewReader(output)
		for range 1 + rand.IntN(20) {
			if line, err := lines.ReadString('\n'); err != nil || line != "saved <nil>\n" {
				t.Fatalf("got %q, %v", line, err)
			}
		}
		time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
		testhelp.Must(t, child.Process.Kill())
		_ = child.Wait()
		testhelp.Must(t, train.LoadCheckpoint(filepath.Join(dir, "training.pt"), model, opt))
		if lr := opt.Groups[0].LR; version() != lr {
			t.Errorf("the model is of version %v, the optimiser of %v", version(), lr)
		}
		testhelp.Must(t, nn.Load(model, filepath.Join(dir, "model.safetensors")))
		version()
	}
	testhelp.Must(t, nn.Save(model, filepath.Join(dir, "model.safetensors")))
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 2 {
		t.Error("left behind:", left)
	}
}

func TestTenThousandStepsLeaveNothingBehind(t *testing.T) {
	if testing.Short() {
		t.Skip("measures memory")
	}
	loop, model, opt := newLoop(0.01)
	batches := data.NewLoader(points(1000), data.LoaderOptions{BatchSize: 10, Shuffle: true, Workers: 1})
	live := func() int64 {
		opt.ZeroGrad()
		for range 100 {
			runtime.GC()
			gotorch.ReleaseCachedMemory()
			time.Sleep(time.Millisecond)
		}
		return gotorch.MemoryStats().LiveHandles
	}
	_, err := loop.Run(t.Context(), batches, train.Steps(100))
	testhelp.Must(t, err)
	before, bytes := live(), gotorch.MemoryStats().NativeBytes
	peak := int64(0)
	loop.OnStep(func(s *train.Step) error {
		if s.Number%100 == 0 {
			peak = max(peak, gotorch.MemoryStats().LiveHandles)
		}
		return nil
	})
	_, err = loop.Run(t.Context(), batches, train.Steps(10000))
	testhelp.Must(t, err)
	if after := live(); after > before {
		t.Errorf("%d handles are left", after-before)
	}
	if after := gotorch.MemoryStats().NativeBytes; after > bytes {
		t.Errorf("%d bytes are left", after-bytes)
	}
	if model.Parameters()[0].Grad().Defined() {
		t.Error("there are gradients left")
	}
	t.Logf("at most %d handles lived at a time", peak)
}

type ownModel struct {
	nn.Module
	L *nn.LinearModule
}

func (m *ownModel) Forward(x gotorch.Tensor) gotorch.Tensor { return m.L.Forward(x) }

func TestEvaluateCallsHooks(t *testing.T) {
	m := nn.Init(&ownModel{L: nn.Linear(2, 1)})
	calls := 0
	m.RegisterForwardHook(func(nn.Modular, []gotorch.Tensor, []gotorch.Tensor) []gotorch.Tensor { calls++; return nil })
	set := data.NewTensorDataset(gotorch.Ones([]int64{3, 2}), gotorch.Ones([]int64{3, 1}))
	if _, err := train.Evaluate(context.Background(), m, set); err != nil || calls != 1 {
		t.Errorf("error %v, and the hook was called %d times", err, calls)
	}
}

// endless is a data set whose samples take until somebody hears that they are not wanted.
type endless struct{}

func (endless) Len() int { return 1 }

func (e endless) At(i int) (data.Pair, error) { return e.AtContext(context.Background(), i) }

func (endless) AtContext(ctx context.Context, _ int) (data.Pair, error) {
	<-ctx.Done()
	return data.Pair{}, context.Cause(ctx)
}

func TestEvaluationThatIsCancelledWaitsForNoSample(t *testing.T) {
	_, model, _ := newLoop(0.1)
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	time.AfterFunc(10*time.Millisecond, func() { cancel(enough) })
	if _, err := train.Evaluate(ctx, model, endless{}, train.Accuracy); !errors.Is(err, context.Canceled) || !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
}

func TestANumberThatIsRecordedTwiceIsTheLast(t *testing.T) {
	loop, _, _ := newLoop(0.1)
	loop.OnEpoch(func(e *train.Epoch) error {
		for i, name := range []string{"a", "b", "a", "loss"} {
			e.Record(name, float64(i))
		}
		return nil
	})
	path := filepath.Join(t.TempDir(), "log.jsonl")
	loop.Log(train.JSONLog(path, train.FileLogOptions{NoTime: true}), train.LogOptions{Every: 100})
	history, err := loop.Run(t.Context(), loader(20), train.Epochs(1))
	testhelp.Must(t, err)
	if a, loss := history.Last("a"), history.Last("loss"); a != 2 || loss != 3 || len(history.Epochs[0].Metrics) != 3 {
		t.Errorf("a is %v, the loss %v, of %v", a, loss, history.Epochs[0].Metrics)
	}
	got, err := os.ReadFile(path)
	if want := `{"when":"epoch","step":2,"epoch":1,"epoch/loss":3,"epoch/a":2,"epoch/b":1}` + "\n"; string(got) != want || err != nil {
		t.Errorf("got %s, want %s: %v", got, want, err)
	}
}

func TestWhatIsNoNumberIsNotRecorded(t *testing.T) {
	loop, _, _ := newLoop(0.1)
	loop.OnStep(func(s *train.Step) error {
		return gotorch.Try0(func() { s.Record("three", gotorch.Ones([]int64{3})) })
	})
	_, err := loop.Run(t.Context(), loader(20), train.Epochs(1))
	if e, is := errors.AsType[*gotorch.Error](err); !is || e.Kind != gotorch.ValueError || !strings.Contains(e.Error(), `"three" must have one element, but has 3`) {
		t.Errorf("got %v", err)
	}
}

func TestARunWithoutBatchesIsRefused(t *testing.T) {
	loop, _, _ := newLoop(0.1)
	for _, batches := range []train.Batches{nil, (*data.Loader[data.Pair])(nil)} {
		history, err := loop.Run(t.Context(), batches, train.Epochs(1))
		if e, is := errors.AsType[*gotorch.Error](err); !is || e.Kind != gotorch.TypeError || history == nil {
			t.Errorf("got %v", err)
		}
	}
}

func TestTheMetricsOfNoSamplesAreNaN(t *testing.T) {
	_, model, _ := newLoop(0.1)
	values, err := train.Evaluate(t.Context(), model, points(0), train.Accuracy)
	if err != nil || len(values) != 1 || !math.IsNaN(values[0].Value) {
		t.Errorf("got %v: %v", values, err)
	}
}
