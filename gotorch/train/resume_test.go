package train_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/optim/lrscheduler"
	"gotorch.dev/gotorch/optim/swautils"
	"gotorch.dev/gotorch/train"
	"gotorch.dev/gotorch/train/tensorboard"
)

// stateless is batches whose random numbers are the default generator's, and that have no state of their own.
type stateless struct{ set *data.TensorDataset }

func (b stateless) Len() int { return (b.set.Len() + 9) / 10 }

func (b stateless) All() iter.Seq2[data.Pair, error] {
	return data.NewLoader(b.set, data.LoaderOptions{BatchSize: 10, Shuffle: true}).All()
}

// trained is what a run has come to.
type trained struct {
	Losses []float64
	Epochs []train.EpochRecord
	State  map[string][]float64
	Next   float64 // the next random number
	Logs   map[string]string
}

// everything is a run with all that has a state: momentum, dropout, batch norm, schedulers, averages, accumulation.
func everything(ctx context.Context, folder string, steps int, o train.CheckpointsOptions, hook func(*train.Step) error, logs bool) (*trained, error) {
	gotorch.ManualSeed(5)
	model := nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2))
	opt := optim.AdamW(model.Parameters(), optim.AdamWOptions{LR: 0.01})
	average := swautils.AveragedModel(model, swautils.AveragedModelOptions{MultiAvgFn: swautils.GetEMAMultiAvgFn()})
	loop := train.NewLoop(model, opt, nn.CrossEntropyLoss())
	loop.Accumulate(3)
	loop.ClipGradNorm(1)
	loop.Schedule(lrscheduler.OneCycleLR(opt, 0.05, lrscheduler.OneCycleLROptions{TotalSteps: 100}), train.PerStep)
	loop.OnEpoch(train.Validate(points(30), train.Accuracy))
	loop.ScheduleBy("val_loss", lrscheduler.ReduceLROnPlateau(opt, lrscheduler.ReduceLROnPlateauOptions{Patience: 1}))
	train.Average(loop, model, average, train.PerStep)
	loop.EarlyStop("val_loss", train.EarlyStopOptions{Patience: 50})
	loop.OnStep(func(s *train.Step) error {
		s.Record("lr", gotorch.FromSlice([]float64{*opt.LRs()[0]}))
		return nil
	})
	if hook != nil {
		loop.OnStep(hook)
	}
	if folder != "" {
		loop.Checkpoints(folder, o)
	}
	if logs {
		loop.Log(train.CSVLog(filepath.Join(folder, "log.csv"), train.FileLogOptions{NoTime: true}))
		loop.Log(train.JSONLog(filepath.Join(folder, "log.jsonl"), train.FileLogOptions{NoTime: true}), train.LogOptions{Every: 3})
		loop.Log(tensorboard.NewLog(filepath.Join(folder, "events")))
		loop.Watch(train.WatchOptions{Every: 5, Histograms: true})
	}
	history, err := loop.Run(ctx, stateless{points(95)}, train.Steps(steps))
	r := &trained{Losses: history.Losses, Epochs: history.Epochs, State: map[string][]float64{"lr": history.Series["lr"]}}
	for i := range r.Epochs {
		r.Epochs[i].Duration = 0
	}
	for _, m := range []nn.Modular{model, average} {
		for name, t := range m.StateDict() {
			r.State[fmt.Sprintf("%T %s", m, name)] = gotorch.ToSlice[float64](t.To(gotorch.Float64))
		}
	}
	r.Next = gotorch.Item[float64](gotorch.Rand(nil))
	if logs {
		r.Logs = logsIn(folder)
	}
	return r, err
}

func (r *trained) differs(from *trained) string {
	if r.Logs == nil {
		without := *from
		without.Logs = nil
		from = &without
	}
	a, err1 := json.Marshal(r)
	b, err2 := json.Marshal(from)
	if err := errors.Join(err1, err2); err != nil {
		return err.Error()
	}
	if string(a) == string(b) {
		return ""
	}
	for i, x := range r.Losses {
		if i < len(from.Losses) && x != from.Losses[i] {
			return fmt.Sprintf("from step %d on the losses differ: %v, %v", i+1, x, from.Losses[i])
		}
	}
	for name, log := range r.Logs {
		if got, want := strings.Split(log, "\n"), strings.Split(from.Logs[name], "\n"); !slices.Equal(got, want) {
			for i := range min(len(got), len(want)) {
				if got[i] != want[i] {
					return fmt.Sprintf("%s, line %d: got %s, want %s", name, i+1, got[i], want[i])
				}
			}
			return fmt.Sprintf("%s has %d lines, want %d", name, len(got), len(want))
		}
	}
	return fmt.Sprintf("%s\n%s", a, b)
}

const allSteps = 34

func TestARunThatIsStoppedAfterAnyStepGoesOnToTheSameBits(t *testing.T) {
	want, err := everything(t.Context(), t.TempDir(), allSteps, train.CheckpointsOptions{}, nil, true)
	testhelp.Must(t, err)
	broken := errors.New("broken")
	// stopped runs to a step and no further, one way or the other.
	stopped := func(folder string, stop int, how string, o train.CheckpointsOptions, logs bool) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, err := everything(ctx, folder, allSteps, o, func(s *train.Step) error {
			if s.Number == stop {
				if how == "failed" {
					return broken
				}
				cancel()
			}
			return nil
		}, logs)
		if how == "failed" && !errors.Is(err, broken) || how == "cancelled" && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	whole := func(folder, what string, o train.CheckpointsOptions, logs bool) {
		t.Helper()
		got, err := everything(t.Context(), folder, allSteps, o, nil, logs)
		testhelp.Must(t, err)
		if diff := got.differs(want); diff != "" {
			t.Fatalf("%s: %s", what, diff)
		}
	}
	// One run that is stopped after each of its steps: what any of them loses is lost in the end.
	folder, o := t.TempDir(), train.CheckpointsOptions{Resume: true}
	for stop := 1; stop < allSteps; stop++ {
		stopped(folder, stop, "cancelled", o, true)
	}
	whole(folder, "stopped after each step", o, true)
	// Some that have many steps behind and before them; all of those with SOAK.
	for stop := 1; stop < allSteps; stop++ {
		for i, how := range []string{"cancelled", "failed"} {
			if os.Getenv("SOAK") == "" && stop%8 != 3+4*i {
				continue
			}
			folder, o := t.TempDir(), o
			if how == "failed" {
				o.Steps = 4 // steps after a checkpoint are done again, and stand once in the logs
			}
			logs := stop%3 == 0 || how == "failed"
			stopped(folder, stop, how, o, logs)
			whole(folder, fmt.Sprintf("%s after step %d", how, stop), o, logs)
		}
	}
}

// TestMain is also the process that is killed.
func TestMain(m *testing.M) {
	if full := os.Getenv("TRAIN_UNTIL_FULL"); full != "" {
		untilFull(full)
	}
	if options := os.Getenv("TRAIN_RANK"); options != "" {
		rankProcess(options)
	}
	if folder := os.Getenv("TRAIN_UNTIL_KILLED"); folder != "" {
		r, err := everything(context.Background(), folder, 200, train.CheckpointsOptions{Resume: true, Steps: 1, Keep: 2, Best: "val_loss"}, nil, true)
		if err == nil {
			err = json.NewEncoder(os.Stdout).Encode(r)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestARunThatIsKilledGoesOnToTheSameBits kills a process at random moments until one comes to its end. With SOAK it is
// fifty times.
func TestARunThatIsKilledGoesOnToTheSameBits(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts processes")
	}
	want, err := everything(t.Context(), t.TempDir(), 200, train.CheckpointsOptions{}, nil, true)
	testhelp.Must(t, err)
	kills := 3
	if os.Getenv("SOAK") != "" {
		kills = 50
	}
	folder := filepath.Join(t.TempDir(), "run")
	rng := rand.New(rand.NewPCG(1, 2))
	killed := 0
	for {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "TRAIN_UNTIL_KILLED="+folder)
		var out, stderr strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &stderr
		testhelp.Must(t, cmd.Start())
		at := make(chan struct{})
		if killed < kills {
			go func() {
				defer close(at)
				before, _ := train.LatestCheckpoint(folder)
				for { // once it has done something
					if now, _ := train.LatestCheckpoint(folder); now != before || cmd.ProcessState != nil {
						break
					}
					time.Sleep(time.Millisecond)
				}
				time.Sleep(time.Duration(rng.IntN(20_000)) * time.Microsecond)
				_ = cmd.Process.Signal(syscall.SIGKILL)
			}()
		} else {
			close(at)
		}
		err := cmd.Wait()
		<-at
		if err == nil {
			var got trained
			testhelp.Must(t, json.Unmarshal([]byte(out.String()), &got))
			if diff := got.differs(want); diff != "" {
				t.Fatal(diff)
			}
			break
		}
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != -1 {
			t.Fatalf("%v: %s", err, stderr.String())
		}
		killed++
	}
	t.Logf("killed %d times", killed)
	entries, err := os.ReadDir(folder)
	testhelp.Must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"best.pt", "events", "log.csv", "log.jsonl", "step-00000199.pt", "step-00000200.pt"}; !slices.Equal(names, want) {
		t.Errorf("the folder has %v", names)
	}
}

func TestCheckpointsKeepTheLatestAndTheBest(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "a", "b")
	values := []float64{3, math.NaN(), 1, 2, 1.5}
	run := func(epochs int, o train.CheckpointsOptions) error {
		loop, _, _ := newLoop(0.1)
		loop.OnEpoch(func(e *train.Epoch) error { e.Record("score", values[e.Number-1]); return nil })
		loop.Checkpoints(folder, o)
		_, err := loop.Run(t.Context(), loader(95), train.Epochs(epochs))
		return err
	}
	testhelp.Must(t, run(3, train.CheckpointsOptions{Keep: 2, Best: "score"}))
	names := func() (names []string) {
		entries, err := os.ReadDir(folder)
		testhelp.Must(t, err)
		for _, e := range entries {
			names = append(names, strings.TrimSuffix(strings.TrimPrefix(e.Name(), "step-000000"), ".pt"))
		}
		return names
	}
	if got := names(); !slices.Equal(got, []string{"best", "20", "30"}) {
		t.Errorf("got %v", got)
	}
	if err := run(3, train.CheckpointsOptions{}); err == nil || !strings.Contains(err.Error(), "Resume") {
		t.Errorf("another run in the folder: %v", err)
	}
	if err := run(5, train.CheckpointsOptions{Best: "nothing", Resume: true}); err == nil || !strings.Contains(err.Error(), "score") {
		t.Errorf("a number that is not there: %v", err)
	}
	testhelp.Must(t, run(5, train.CheckpointsOptions{Keep: -1, Best: "score", Resume: true}))
	if got := names(); !slices.Equal(got, []string{"best", "20", "30", "40", "50"}) {
		t.Errorf("got %v", got)
	}
	value, err := gotorch.Load(filepath.Join(folder, "best.pt"))
	testhelp.Must(t, err)
	if step := value.(gotorch.Dict).Get("train").(gotorch.Dict).Get("step"); step != int64(30) {
		t.Errorf("the best is of step %v", step)
	}
	// Nothing is left to do.
	testhelp.Must(t, run(5, train.CheckpointsOptions{Resume: true}))
}

// What a checkpoint says of the best one, and best.pt, are two files: a process may end between them.
func TestABestCheckpointThatWasNotNamedIsNamedByWhoGoesOn(t *testing.T) {
	folder := t.TempDir()
	best := filepath.Join(folder, "best.pt")
	values := []float64{3, 1, 2, 2}
	run := func(epochs int) {
		t.Helper()
		loop, _, _ := newLoop(0.1)
		loop.OnEpoch(func(e *train.Epoch) error { e.Record("score", values[e.Number-1]); return nil })
		loop.Checkpoints(folder, train.CheckpointsOptions{Best: "score", Resume: true})
		_, err := loop.Run(t.Context(), loader(95), train.Epochs(epochs))
		testhelp.Must(t, err)
	}
	stepOf := func() any {
		t.Helper()
		value, err := gotorch.Load(best)
		testhelp.Must(t, err)
		return value.(gotorch.Dict).Get("train").(gotorch.Dict).Get("step")
	}
	run(1)
	old, err := os.ReadFile(best)
	testhelp.Must(t, err)
	run(2)
	testhelp.Must(t, os.Remove(best)) // it is a link
	testhelp.Must(t, os.WriteFile(best, old, 0o666))
	if step := stepOf(); step != int64(10) {
		t.Fatalf("the best is of step %v", step)
	}
	run(3)
	if step := stepOf(); step != int64(20) {
		t.Errorf("after going on the best is of step %v", step)
	}
	run(4)
	if step := stepOf(); step != int64(20) {
		t.Errorf("after epochs that are worse the best is of step %v", step)
	}
}

func TestTheBestIsACopyWhereThereAreNoLinks(t *testing.T) {
	defer train.NoHardLinks()()
	folder := t.TempDir()
	values := []float64{3, 1, 2}
	loop, _, _ := newLoop(0.1)
	loop.OnEpoch(func(e *train.Epoch) error { e.Record("score", values[e.Number-1]); return nil })
	loop.Checkpoints(folder, train.CheckpointsOptions{Best: "score", Keep: -1})
	_, err := loop.Run(t.Context(), loader(95), train.Epochs(3))
	testhelp.Must(t, err)
	want, err1 := os.ReadFile(filepath.Join(folder, "step-00000020.pt"))
	got, err2 := os.ReadFile(filepath.Join(folder, "best.pt"))
	if err := errors.Join(err1, err2); err != nil || string(got) != string(want) {
		t.Errorf("%d bytes, want %d: %v", len(got), len(want), err)
	}
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 4 {
		t.Errorf("the folder has %v: %v", entries, err)
	}
}

func TestWhatIsNoNumberIsNotTheBest(t *testing.T) {
	for epochs, want := range []bool{1: false, 2: true} {
		if epochs == 0 {
			continue
		}
		folder := t.TempDir()
		loop, _, _ := newLoop(0.1)
		loop.OnEpoch(func(e *train.Epoch) error { e.Record("score", []float64{math.NaN(), 5}[e.Number-1]); return nil })
		loop.Checkpoints(folder, train.CheckpointsOptions{Best: "score"})
		_, err := loop.Run(t.Context(), loader(20), train.Epochs(epochs))
		testhelp.Must(t, err)
		if _, err := os.Stat(filepath.Join(folder, "best.pt")); (err == nil) != want {
			t.Errorf("after %d epochs: %v", epochs, err)
		}
	}
}

func TestTheLatestCheckpointIsThatOfMostSteps(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"step-99999999.pt", "step-100000000.pt", "step-00000007.pt", "step-8.pt", "step-200000000.pt.new"} {
		testhelp.Must(t, os.WriteFile(filepath.Join(folder, name), nil, 0o644))
	}
	if got, err := train.LatestCheckpoint(folder); err != nil || filepath.Base(got) != "step-100000000.pt" {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestACheckpointThatDoesNotFitChangesNothing(t *testing.T) {
	folder := t.TempDir()
	loop, _, _ := newLoop(0.1)
	loop.Checkpoints(folder)
	_, err := loop.Run(t.Context(), loader(95), train.Epochs(1))
	testhelp.Must(t, err)
	path, err := train.LatestCheckpoint(folder)
	testhelp.Must(t, err)
	good, err := gotorch.Load(path)
	testhelp.Must(t, err)

	without := func(dict gotorch.Dict, key string) gotorch.Dict {
		return slices.DeleteFunc(slices.Clone(dict), func(i gotorch.DictItem) bool { return i.Key == key })
	}
	with := func(dict gotorch.Dict, key string, value any) gotorch.Dict {
		return append(without(dict, key), gotorch.DictItem{Key: key, Value: value})
	}
	whole := good.(gotorch.Dict)
	mine := whole.Get("train").(gotorch.Dict)
	cases := map[string]any{"a list": []any{1, 2}, "empty": gotorch.Dict{}}
	for _, item := range whole {
		cases["without "+fmt.Sprint(item.Key)] = without(whole, item.Key.(string))
		cases["a number for "+fmt.Sprint(item.Key)] = with(whole, item.Key.(string), 7)
	}
	for _, item := range mine {
		key := item.Key.(string)
		if key == "ended" {
			continue
		}
		cases["train without "+key] = with(whole, "train", without(mine, key))
		cases["train with a text for "+key] = with(whole, "train", with(mine, key, "x"))
	}
	cases["version 2"] = with(whole, "train", with(mine, "version", 2))
	cases["other steps"] = with(whole, "train", with(mine, "step", 9))
	cases["negative"] = with(whole, "train", with(mine, "taken", -1))
	cases["a random state too short"] = with(whole, "train", with(mine, "random", gotorch.Dict{{Key: "cpu", Value: gotorch.Zeros([]int64{3}, gotorch.TensorOptions{DType: gotorch.Uint8})}}))
	cases["another device"] = with(whole, "train", with(mine, "random", gotorch.Dict{{Key: "cuda:0", Value: 1}}))
	for name, value := range cases {
		testhelp.Must(t, gotorch.Save(path, value))
		loop, model, opt := newLoop(0.25)
		loop.Checkpoints(folder, train.CheckpointsOptions{Resume: true})
		before := gotorch.ToSlice[float32](model.Parameters()[0].Flatten())
		random := gotorch.ToSlice[uint8](gotorch.DefaultGenerator(gotorch.CPU).State())
		history, err := loop.Run(t.Context(), loader(95), train.Epochs(2))
		if err == nil || !strings.Contains(err.Error(), filepath.Base(path)) || len(history.Losses) > 0 {
			t.Errorf("%s: %v", name, err)
		}
		if !slices.Equal(before, gotorch.ToSlice[float32](model.Parameters()[0].Flatten())) || *opt.LRs()[0] != 0.25 ||
			!slices.Equal(random, gotorch.ToSlice[uint8](gotorch.DefaultGenerator(gotorch.CPU).State())) {
			t.Errorf("%s: something has changed", name)
		}
	}
	testhelp.Must(t, os.WriteFile(path, []byte("nothing of the kind"), 0o666))
	loop, _, _ = newLoop(0.25)
	loop.Checkpoints(folder, train.CheckpointsOptions{Resume: true})
	if _, err := loop.Run(t.Context(), loader(95), train.Epochs(2)); err == nil {
		t.Error("a broken file")
	}
}

// gan is two models that learn from each other.
func gan(folder string, epochs int, stop context.Context) (*train.History, []gotorch.Tensor, error) {
	gotorch.ManualSeed(7)
	g := nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
	d := nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
	optG, optD := optim.Adam(g.Parameters()), optim.Adam(d.Parameters())
	loop := train.NewStepLoop(func(s *train.StepOf[gotorch.Tensor]) error {
		n := s.Batch.Size(0)
		fake := g.Forward(gotorch.Randn([]int64{n, 3}))
		optD.ZeroGrad()
		lossD := F.Softplus(d.Forward(fake.Detach())).Mean().Add(F.Softplus(d.Forward(s.Batch).Neg()).Mean())
		lossD.Backward()
		optD.Step()
		optG.ZeroGrad()
		lossG := F.Softplus(d.Forward(fake).Neg()).Mean()
		lossG.Backward()
		optG.Step()
		s.Record("loss_d", lossD)
		if s.Number%2 == 0 {
			s.Record("loss_g", lossG)
		}
		return nil
	})
	loop.Add("generator", g)
	loop.Add("discriminator", d)
	loop.Add("optimizer_g", optG)
	loop.Add("optimizer_d", optD)
	if folder != "" {
		loop.Checkpoints(folder, train.CheckpointsOptions{Resume: true})
	}
	loader := data.NewLoader[gotorch.Tensor](rows{gotorch.Randn([]int64{60, 2}, gotorch.TensorOptions{})}, data.LoaderOptions{BatchSize: 20})
	history, err := loop.Run(stop, loader, train.Epochs(epochs))
	return history, append(g.Parameters(), d.Parameters()...), err
}

type rows struct{ t gotorch.Tensor }

func (r rows) Len() int                         { return int(r.t.Size(0)) }
func (r rows) At(i int) (gotorch.Tensor, error) { return r.t.Select(0, int64(i)), nil }

func TestTwoModelsLearnInOneLoop(t *testing.T) {
	want, parameters, err := gan("", 4, t.Context())
	testhelp.Must(t, err)
	d, g := want.Series["loss_d"], want.Series["loss_g"]
	if len(d) != 12 || len(g) != 12 || !math.IsNaN(g[0]) || math.IsNaN(g[11]) || d[11] == d[0] || !math.IsNaN(want.Losses[0]) {
		t.Errorf("got %v, %v, %v", d, g, want.Losses)
	}
	folder := t.TempDir()
	_, _, err = gan(folder, 2, t.Context())
	testhelp.Must(t, err)
	got, others, err := gan(folder, 4, t.Context())
	testhelp.Must(t, err)
	if !slices.Equal(got.Series["loss_d"], d) {
		t.Errorf("resumed: %v, %v", got.Series["loss_d"], d)
	}
	for i, p := range parameters {
		if !gotorch.Equal(p, others[i]) {
			t.Errorf("resumed: parameter %d differs", i)
		}
	}
}

func TestAccumulatedStepsAreOneOfAllBatches(t *testing.T) {
	run := func(accumulate, batch int) (*nn.SequentialModule, int) {
		gotorch.ManualSeed(3)
		model := nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))
		model.To(gotorch.Float64)
		opt := optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.5})
		loop := train.NewLoop(model, opt, nn.LossFunc(func(o, y gotorch.Tensor) gotorch.Tensor { return F.CrossEntropy(o, y) }))
		loop.Accumulate(accumulate)
		loop.ClipGradValue(0.02) // of what was accumulated, not of each batch
		average := swautils.AveragedModel(model)
		train.Average(loop, model, average, train.PerStep)
		updated := 0
		loop.OnStep(func(s *train.Step) error {
			if s.Updated {
				updated++
			}
			return nil
		})
		g := gotorch.NewGenerator(gotorch.CPU).ManualSeed(1)
		x := gotorch.Empty([]int64{60, 2}, gotorch.TensorOptions{DType: gotorch.Float64}).Normal_(gotorch.Normal_Options{Generator: g})
		set := data.NewTensorDataset(x, x.SumDim([]int64{1}).GtScalar(0).To(gotorch.Int64))
		_, err := loop.Run(t.Context(), data.NewLoader(set, data.LoaderOptions{BatchSize: batch}), train.Epochs(2))
		testhelp.Must(t, err)
		if n := gotorch.Item[int](average.NAveraged); n != updated {
			t.Errorf("%d models were averaged, of %d", n, updated)
		}
		return model, updated
	}
	whole, n := run(1, 30)
	parts, m := run(3, 10)
	if n != 4 || m != 4 {
		t.Errorf("the optimiser has changed parameters %d and %d times", n, m)
	}
	for i, p := range whole.Parameters() {
		if !gotorch.AllClose(p, parts.Parameters()[i], gotorch.AllCloseOptions{RTol: new(1e-12), ATol: new(1e-12)}) {
			t.Errorf("parameter %d differs", i)
		}
	}
	// Four batches are one more than three: the last is a step of its own, divided all the same.
	if _, m := run(3, 15); m != 4 {
		t.Errorf("the optimiser has changed parameters %d times", m)
	}
}

func TestAnEarlyStopEndsARunAndStaysEnded(t *testing.T) {
	folder := t.TempDir()
	run := func(o train.EarlyStopOptions, values ...float64) *train.History {
		loop, _, _ := newLoop(0.1)
		loop.OnEpoch(func(e *train.Epoch) error { e.Record("score", values[e.Number-1]); return nil })
		loop.EarlyStop("score", o)
		loop.Checkpoints(folder, train.CheckpointsOptions{Resume: true})
		history, err := loop.Run(t.Context(), loader(20), train.Epochs(len(values)))
		testhelp.Must(t, err)
		return history
	}
	cases := []struct {
		o      train.EarlyStopOptions
		values []float64
		epochs int
	}{
		{train.EarlyStopOptions{}, []float64{5, 4, 4, 4, 4, 3}, 5},
		{train.EarlyStopOptions{Patience: 1}, []float64{5, 4, 3, 3, 2}, 4},
		{train.EarlyStopOptions{Patience: 2, Mode: train.Max}, []float64{5, 4, 6, 5, 6, 7}, 5},
		{train.EarlyStopOptions{Patience: 2, MinDelta: 1}, []float64{5, 4.5, 4.1, 3}, 3},
		{train.EarlyStopOptions{Patience: 2, Mode: train.Max, MinDelta: 1}, []float64{5, 5.5, 5.9, 8}, 3},
		{train.EarlyStopOptions{Target: 3}, []float64{5, 4, 3, 2}, 3},
		{train.EarlyStopOptions{Limit: 6}, []float64{5, 6, 7, 2}, 3},
		{train.EarlyStopOptions{}, []float64{5, math.NaN(), 3}, 2},
		{train.EarlyStopOptions{AllowNaN: true, Patience: 2}, []float64{5, math.NaN(), math.Inf(-1), 3}, 3},
		{train.EarlyStopOptions{Patience: 2, Mode: train.Max, Target: 9, Limit: 1}, []float64{5, 6, 7, 8}, 4},
	}
	for i, c := range cases {
		folder = filepath.Join(t.TempDir(), strconv.Itoa(i))
		if h := run(c.o, c.values...); len(h.Epochs) != c.epochs {
			t.Errorf("case %d: %d epochs", i, len(h.Epochs))
		}
		if h := run(c.o, c.values...); len(h.Epochs) != c.epochs {
			t.Errorf("case %d, resumed: %d epochs", i, len(h.Epochs))
		}
	}
	// How long it has waited goes on, too.
	folder = t.TempDir()
	run(train.EarlyStopOptions{}, 5, 4, 4, 4)
	if h := run(train.EarlyStopOptions{}, 5, 4, 4, 4, 4, 3); len(h.Epochs) != 5 {
		t.Errorf("resumed while it waited: %d epochs", len(h.Epochs))
	}
}

func TestLBFGSLearnsInALoop(t *testing.T) {
	gotorch.ManualSeed(1)
	model := nn.Linear(2, 1)
	opt := optim.LBFGS(model.Parameters(), optim.LBFGSOptions{LineSearchFn: "strong_wolfe"})
	x := gotorch.Randn([]int64{50, 2})
	y := x.MM(gotorch.FromSlice([]float32{2, -3}, 2, 1)).AddScalar(1)
	loop := train.NewLoop(model, opt, nn.MSELoss())
	history, err := loop.Run(t.Context(), data.NewLoader(data.NewTensorDataset(x, y), data.LoaderOptions{BatchSize: 50}), train.Steps(3))
	testhelp.Must(t, err)
	if len(history.Losses) != 3 || !(history.Losses[2] < 1e-8) {
		t.Errorf("the losses are %v", history.Losses)
	}
}

func TestMixedPrecision(t *testing.T) {
	loop, model, opt := newLoop(0.1)
	scaler := optim.NewGradScaler(optim.GradScalerOptions{InitScale: 1 << 20, GrowthInterval: 3})
	loop.Autocast(gotorch.BFloat16)
	loop.Scale(scaler)
	var seen gotorch.DType
	model.RegisterForwardHook(func(_ nn.Modular, _, out []gotorch.Tensor) []gotorch.Tensor { seen = out[0].DType(); return nil })
	history, err := loop.Run(t.Context(), loader(95), train.Epochs(3))
	testhelp.Must(t, err)
	if seen != gotorch.BFloat16 || scaler.GetScale() <= 1<<20 || !(history.Last("loss") < history.Metric("loss")[0]) {
		t.Errorf("dtype %v, scale %v, losses %v", seen, scaler.GetScale(), history.Metric("loss"))
	}
	_ = opt
}

func TestACheckpointThatCannotBeWrittenEndsTheRun(t *testing.T) {
	for _, o := range []train.CheckpointsOptions{{}, {Steps: 4}, {Best: "loss"}} {
		folder := filepath.Join(t.TempDir(), "run")
		o.Keep = -1
		loop, _, _ := newLoop(0.1)
		loop.Checkpoints(folder, o)
		loop.OnStep(func(s *train.Step) error {
			if s.Number != 12 {
				return nil
			}
			// What is to be written has no place: a folder that holds something has its name.
			for _, step := range []int{12, 20} {
				if err := os.MkdirAll(filepath.Join(folder, fmt.Sprintf("step-%08d.pt", step), "in the way"), 0o777); err != nil {
					return err
				}
			}
			return nil
		})
		history, err := loop.Run(t.Context(), loader(95), train.Epochs(3))
		var path *fs.PathError
		if want := 20 - 8*min(o.Steps, 1); !errors.As(err, &path) || len(history.Losses) != want {
			t.Errorf("%+v: after %d steps, want %d: %v", o, len(history.Losses), want, err)
		}
		if left, _ := filepath.Glob(filepath.Join(folder, "*.part")); len(left) > 0 {
			t.Errorf("%+v: left behind: %v", o, left)
		}
		if _, err := gotorch.Load(filepath.Join(folder, "step-00000010.pt")); err != nil {
			t.Errorf("%+v: the one before: %v", o, err)
		}
	}
}

func TestAStepThatPanicsOrExitsLeavesNoCheckpoint(t *testing.T) {
	for how, end := range map[string]func(){"a panic": func() { panic("mine") }, "an exit": runtime.Goexit} {
		folder := t.TempDir()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			defer func() { _ = recover() }()
			loop, _, _ := newLoop(0.1)
			loop.OnBackward(func(s *train.Step) error {
				if s.Number == 13 {
					end()
				}
				return nil
			})
			loop.Checkpoints(folder)
			_, _ = loop.Run(t.Context(), loader(95), train.Epochs(3))
		}()
		<-ended
		if latest, err := train.LatestCheckpoint(folder); err != nil || filepath.Base(latest) != "step-00000010.pt" {
			t.Errorf("after %s the latest is %q: %v", how, latest, err)
		}
	}
}
