package train_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/optim/lrscheduler"
	"gotorch.dev/gotorch/train"
	"gotorch.dev/gotorch/train/tensorboard"
)

// logsIn returns the logs of everything as texts without times.
func logsIn(folder string) map[string]string {
	logs := map[string]string{}
	for _, name := range []string{"log.csv", "log.jsonl"} {
		b, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			b = []byte(err.Error())
		}
		logs[name] = string(b)
	}
	logs["events"] = strings.Join(eventsIn(filepath.Join(folder, "events")), "\n")
	return logs
}

// fields calls visit with the fields of a message.
func fields(m []byte, visit func(n protowire.Number, number uint64, data []byte)) {
	for len(m) > 0 {
		n, kind, size := protowire.ConsumeTag(m)
		if size < 0 {
			panic("no message")
		}
		m = m[size:]
		switch kind {
		case protowire.VarintType:
			v, size := protowire.ConsumeVarint(m)
			visit(n, v, nil)
			m = m[size:]
		case protowire.Fixed32Type:
			v, size := protowire.ConsumeFixed32(m)
			visit(n, uint64(v), nil)
			m = m[size:]
		case protowire.Fixed64Type:
			v, size := protowire.ConsumeFixed64(m)
			visit(n, v, nil)
			m = m[size:]
		default:
			v, size := protowire.ConsumeBytes(m)
			visit(n, 0, v)
			m = m[size:]
		}
	}
}

// eventsIn returns what event files have but for times: a line for each value.
func eventsIn(folder string) (lines []string) {
	files, _ := filepath.Glob(filepath.Join(folder, "events.out.tfevents.*"))
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			return []string{err.Error()}
		}
		for len(b) > 0 {
			if len(b) < 16 || uint64(len(b)) < 16+binary.LittleEndian.Uint64(b) {
				return append(lines, "a part of a record")
			}
			n := 12 + binary.LittleEndian.Uint64(b)
			event := b[12:n]
			b = b[n+4:]
			step := uint64(0)
			fields(event, func(n protowire.Number, number uint64, data []byte) {
				if n == 2 {
					step = number
				}
				if n != 5 {
					return
				}
				fields(data, func(n protowire.Number, _ uint64, value []byte) {
					tag := ""
					fields(value, func(n protowire.Number, number uint64, data []byte) {
						switch n {
						case 1:
							tag = string(data)
						case 2:
							lines = append(lines, fmt.Sprint(tag, " ", step, " ", math.Float32frombits(uint32(number))))
						default:
							lines = append(lines, fmt.Sprintf("%s %d %x", tag, step, data))
						}
					})
				})
			})
		}
	}
	return lines
}

func table(t *testing.T, path string) (header []string, rows []map[string]string) {
	t.Helper()
	b, err := os.ReadFile(path)
	testhelp.Must(t, err)
	all, err := csv.NewReader(bytes.NewReader(b)).ReadAll()
	testhelp.Must(t, err)
	for _, fields := range all[1:] {
		row := map[string]string{}
		for i, f := range fields {
			row[all[0][i]] = f
		}
		rows = append(rows, row)
	}
	return all[0], rows
}

func TestLogsHaveWhatTheHistoryHas(t *testing.T) {
	dir := t.TempDir()
	loop, _, opt := newLoop(0.1)
	loop.Schedule(lrscheduler.StepLR(opt, 4, lrscheduler.StepLROptions{Gamma: 0.5}), train.PerStep)
	loop.OnEpoch(train.Validate(points(20)))
	loop.OnEpoch(func(e *train.Epoch) error { return e.LogText("words", "après \"ça\"") })
	loop.OnStep(func(s *train.Step) error {
		if s.Number%2 == 0 {
			s.Record("even, or so", gotorch.FromSlice([]float64{math.Inf(-s.Number)}))
			s.Record("step", gotorch.FromSlice([]float64{math.NaN()}))
		}
		return nil
	})
	var said bytes.Buffer
	loop.Log(train.CSVLog(filepath.Join(dir, "a", "log.csv")))
	loop.Log(train.JSONLog(filepath.Join(dir, "log.jsonl")))
	loop.Log(train.SlogLog(slog.New(slog.NewJSONHandler(&said, nil))), train.LogOptions{Every: 5})
	history, err := loop.Run(t.Context(), loader(95), train.Epochs(2))
	testhelp.Must(t, err)

	header, rows := table(t, filepath.Join(dir, "a", "log.csv"))
	if want := []string{"step", "epoch", "time", "loss", "lr", "even, or so", "_step", "epoch/loss", "epoch/val_loss"}; !slices.Equal(header, want) {
		t.Errorf("the columns are %q", header)
	}
	if len(rows) != 22 {
		t.Fatalf("there are %d rows", len(rows))
	}
	step := 0
	for i, row := range rows {
		if i == 10 || i == 21 {
			e := history.Epochs[i/11]
			if row["step"] != fmt.Sprint(e.Steps) || row["epoch/loss"] != fmt.Sprint(e.Loss) || row["epoch/val_loss"] != fmt.Sprint(e.Metric("val_loss")) || row["loss"] != "" {
				t.Errorf("epoch %d: %v", e.Number, row)
			}
			continue
		}
		step++
		loss, err := strconv.ParseFloat(row["loss"], 64)
		if err != nil || loss != history.Losses[step-1] || row["step"] != fmt.Sprint(step) || row["epoch"] != fmt.Sprint((step-1)/10+1) || row["epoch/loss"] != "" {
			t.Errorf("step %d: %v", step, row)
		}
		if lr, err := strconv.ParseFloat(row["lr"], 64); err != nil || lr != 0.1*math.Pow(0.5, float64((step-1)/4)) {
			t.Errorf("step %d: the learning rate is %v", step, row["lr"])
		}
		want := [2]string{}
		if step%2 == 0 {
			want = [2]string{"-inf", "nan"}
		}
		if got := [2]string{row["even, or so"], row["_step"]}; got != want {
			t.Errorf("step %d: %q", step, got)
		}
	}

	b, err := os.ReadFile(filepath.Join(dir, "log.jsonl"))
	testhelp.Must(t, err)
	texts, steps := 0, 0
	for line := range strings.Lines(string(b)) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		switch v["when"] {
		case "step":
			if steps++; v["loss"] != history.Losses[steps-1] || steps%2 == 0 && (v["even, or so"] != "-Infinity" || v["_step"] != "NaN") {
				t.Errorf("got %s", line)
			}
		case "text":
			if texts++; v["text"].(map[string]any)["words"] != "après \"ça\"" {
				t.Errorf("got %s", line)
			}
		}
	}
	if steps != 20 || texts != 2 {
		t.Errorf("there are %d steps and %d texts", steps, texts)
	}
	if n := strings.Count(said.String(), `"msg":"step"`); n != 4 || strings.Count(said.String(), `"msg":"text"`) != 2 {
		t.Errorf("%d steps were said: %s", n, said.String())
	}
}

func TestALogOfAnotherRunIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	begin := func(overwrite bool, checkpoints bool) error {
		loop, _, _ := newLoop(0.1)
		loop.Log(train.CSVLog(filepath.Join(dir, "log.csv"), train.FileLogOptions{Overwrite: overwrite}))
		loop.Log(train.JSONLog(filepath.Join(dir, "log.jsonl"), train.FileLogOptions{Overwrite: overwrite}))
		loop.Log(tensorboard.NewLog(dir, tensorboard.LogOptions{Overwrite: overwrite}))
		if checkpoints {
			loop.Checkpoints(filepath.Join(dir, "run"), train.CheckpointsOptions{Resume: true})
		}
		_, err := loop.Run(t.Context(), loader(95), train.Steps(3))
		return err
	}
	testhelp.Must(t, begin(false, false))
	before := logsIn(dir)["log.csv"]
	var failure *train.LogError
	if err := begin(false, false); !errors.As(err, &failure) || !strings.Contains(err.Error(), "Overwrite") || logsIn(dir)["log.csv"] != before {
		t.Errorf("got %v", err)
	}
	testhelp.Must(t, begin(true, false))
	for _, name := range []string{"log.csv", "log.jsonl"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if err := begin(false, false); err == nil || !strings.Contains(err.Error(), "Overwrite") {
			t.Errorf("without %s: %v", name, err)
		}
	}
	// With checkpoints, what is there is of a run that was killed before its first.
	testhelp.Must(t, begin(false, true))
	if _, rows := table(t, filepath.Join(dir, "log.csv")); len(rows) != 4 {
		t.Errorf("there are %d rows", len(rows))
	}
	testhelp.Must(t, os.WriteFile(filepath.Join(dir, "log.csv"), []byte("step,epoch,time,loss\n1,1,2,3\n"), 0o666))
	if err := begin(false, true); err == nil || !strings.Contains(err.Error(), "1 whole lines, where 3 were written") {
		t.Errorf("got %v", err)
	}
	testhelp.Must(t, begin(true, true))
	testhelp.Must(t, os.WriteFile(filepath.Join(dir, "events.out.tfevents.1.other"), []byte("of somebody else"), 0o666))
	testhelp.Must(t, begin(true, true))
	if _, err := os.Stat(filepath.Join(dir, "events.out.tfevents.1.other")); err != nil {
		t.Error(err)
	}
}

// fullSink is a log that fails from a step on.
type fullSink struct {
	train.LogSink
	from, ended int
	got         []int
}

func (s *fullSink) Begin(train.LogStart) error { return nil }
func (s *fullSink) End() error                 { s.ended++; return nil }
func (s *fullSink) Mark() (gotorch.Dict, error) {
	return nil, nil
}

func (s *fullSink) Log(e train.LogEntry) error {
	if e.Step >= s.from {
		return syscall.ENOSPC
	}
	s.got = append(s.got, e.Step)
	return nil
}

func TestALogThatFailsEndsTheRunOrIsWarnedOfOnce(t *testing.T) {
	for _, goOn := range []bool{false, true} {
		warnings := 0
		was := gotorch.WarningHandler()
		gotorch.SetWarningHandler(func(w gotorch.Warning) {
			if warnings++; !strings.Contains(w.Msg, "no space left on device") {
				t.Errorf("got %v", w)
			}
		})
		sink := &fullSink{from: 4}
		loop, _, _ := newLoop(0.1)
		loop.Log(sink, train.LogOptions{GoOn: goOn, Name: "mine"})
		history, err := loop.Run(t.Context(), loader(95), train.Epochs(2))
		gotorch.SetWarningHandler(was)
		var failure *train.LogError
		if goOn && (err != nil || warnings != 1 || len(history.Losses) != 20) {
			t.Errorf("%v, %d warnings, %d steps", err, warnings, len(history.Losses))
		}
		if !goOn && (!errors.As(err, &failure) || failure.Log != "mine" || failure.Step != 4 || !errors.Is(err, syscall.ENOSPC) || len(history.Losses) != 4 || warnings != 0) {
			t.Errorf("%v, %d steps", err, len(history.Losses))
		}
		if !slices.Equal(sink.got, []int{1, 2, 3}) || sink.ended != 1 {
			t.Errorf("got steps %v, ended %d times", sink.got, sink.ended)
		}
	}
	loop, _, _ := newLoop(0.1)
	for kind, fn := range map[gotorch.ErrorKind]func(){
		gotorch.TypeError:  func() { loop.Log(nil) },
		gotorch.ValueError: func() { loop.Log(&fullSink{}, train.LogOptions{Every: 0}) },
	} {
		if err := gotorch.Try0(fn); !errors.Is(err, kind) {
			t.Errorf("got %v", err)
		}
	}
}

// untilFull trains in a process that can write no files above a size.
func untilFull(folder string) {
	run := func(name string, goOn bool) error {
		model := nn.Linear(2, 2)
		loop := train.NewLoop(model, optim.SGD(model.Parameters()), nn.CrossEntropyLoss())
		loop.Log(train.CSVLog(filepath.Join(folder, name+".csv")), train.LogOptions{GoOn: goOn})
		loop.Log(train.JSONLog(filepath.Join(folder, name+".jsonl")), train.LogOptions{GoOn: goOn})
		loop.Log(tensorboard.NewLog(filepath.Join(folder, name)), train.LogOptions{GoOn: goOn})
		loop.OnStep(func(s *train.Step) error {
			if s.Number == 100 {
				s.Record("another", gotorch.FromSlice([]float64{1}))
			}
			return nil
		})
		_, err := loop.Run(context.Background(), loader(40), train.Steps(8000))
		return err
	}
	err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 100_000, Max: 100_000})
	if err == nil {
		err = run("goes-on", true)
	}
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	var failure *train.LogError
	err = run("ends", false)
	fmt.Println(errors.As(err, &failure), errors.Is(err, syscall.EFBIG), err)
	os.Exit(0)
}

func TestAFullDiskLeavesWholeEntries(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a process")
	}
	folder := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "TRAIN_UNTIL_FULL="+folder)
	out, err := cmd.CombinedOutput()
	if err != nil || !regexp.MustCompile(`true true train: (after )?epoch`).Match(out) || strings.Count(string(out), "The run goes on") != 3 {
		t.Errorf("%v: %s", err, out)
	}
	for _, name := range []string{"goes-on", "ends"} {
		_, rows := table(t, filepath.Join(folder, name+".csv"))
		if len(rows) < 500 || rows[len(rows)-1]["loss"]+rows[len(rows)-1]["epoch/loss"] == "" {
			t.Errorf("%s: %d rows", name, len(rows))
		}
		b, err := os.ReadFile(filepath.Join(folder, name+".jsonl"))
		testhelp.Must(t, err)
		if !bytes.HasSuffix(b, []byte("}\n")) || len(b) < 30_000 {
			t.Errorf("%s: a part of a line at %d", name, len(b))
		}
		if events := eventsIn(filepath.Join(folder, name)); len(events) < 500 || slices.Contains(events, "a part of a record") {
			t.Errorf("%s: %d events", name, len(events))
		}
	}
	if left, _ := filepath.Glob(filepath.Join(folder, "*.part")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestALogThatIsNotBegunIsNotEnded(t *testing.T) {
	dir := t.TempDir()
	testhelp.Must(t, os.WriteFile(filepath.Join(dir, "log.csv"), []byte("of another\n"), 0o666))
	first, last := &fullSink{from: 100}, &fullSink{from: 100}
	loop, _, _ := newLoop(0.1)
	loop.Log(first)
	loop.Log(train.CSVLog(filepath.Join(dir, "log.csv")))
	loop.Log(last)
	if _, err := loop.Run(t.Context(), loader(20), train.Epochs(1)); err == nil || first.ended != 1 || last.ended != 0 {
		t.Errorf("%v, ended %d and %d times", err, first.ended, last.ended)
	}
}

func TestAHistogramBeyondAllBucketsIsLeftOut(t *testing.T) {
	model := nn.Linear(2, 2)
	gotorch.NoGrad(func() { model.Weight.Fill_(1e30) })
	loop := train.NewLoop(model, optim.SGD(model.Parameters()), nn.CrossEntropyLoss())
	dir := t.TempDir()
	loop.Log(tensorboard.NewLog(dir))
	loop.Watch(train.WatchOptions{Every: 1, Histograms: true})
	_, err := loop.Run(t.Context(), loader(20), train.Epochs(1))
	testhelp.Must(t, err)
	if lines := strings.Join(eventsIn(dir), "\n"); !strings.Contains(lines, "weight/bias 1 ") || strings.Contains(lines, "weight/weight 1 ") {
		t.Errorf("the events are %.2000s", lines)
	}
}

func TestWatchMeasuresParameters(t *testing.T) {
	gotorch.ManualSeed(1)
	model := nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
	model.Layers[1].Parameters()[1].RequiresGrad_(false)
	loop := train.NewLoop(model, optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.5}), nn.CrossEntropyLoss())
	loop.ClipGradNorm(1e-6) // afterwards
	entries := &recorded{}
	loop.Log(entries, train.LogOptions{Every: 1000})
	loop.Watch(train.WatchOptions{Every: 2, Histograms: true})
	norm := func(t gotorch.Tensor) float64 { return gotorch.Item[float64](t.To(gotorch.Float64).Norm()) }
	var gradients, weights []float64
	loop.OnBackward(func(s *train.Step) error {
		if s.Number == 2 {
			for _, p := range model.Parameters()[:3] {
				gradients, weights = append(gradients, norm(p.Grad())), append(weights, norm(p))
			}
		}
		return nil
	})
	_, err := loop.Run(t.Context(), loader(30), train.Steps(3))
	testhelp.Must(t, err)
	got := map[string]float64{}
	for _, e := range entries.all {
		if e.When == train.PerStep {
			if e.Step != 2 {
				t.Errorf("step %d was logged", e.Step)
			}
			for _, v := range e.Values {
				got[v.Name] = v.Value
			}
		}
	}
	names := []string{"0.weight", "0.bias", "1.weight"}
	clipped := 0.0
	for i, name := range names {
		if got["gradient/"+name+"/norm"] != gradients[i] || math.IsNaN(got["weight/"+name+"/max"]) {
			t.Errorf("%s: got %v, want %v", name, got["gradient/"+name+"/norm"], gradients[i])
		}
		clipped += gradients[i] * gradients[i]
	}
	if all := math.Sqrt(clipped); math.Abs(got["gradient/norm"]-all) > 1e-12 {
		t.Errorf("the norm of all is %v, want %v", got["gradient/norm"], all)
	}
	for i, name := range names {
		want := 0.5 * 1e-6 * gradients[i] / math.Sqrt(clipped) / weights[i]
		if ratio := got["update/"+name+"/ratio"]; math.Abs(ratio-want) > 0.2*want { // the change is near the last bit
			t.Errorf("%s: the update is %v, want %v", name, ratio, want)
		}
	}
	if len(got) != 3*3*2+2+3+1 {
		t.Errorf("there are %d numbers: %v", len(got), got)
	}
	if want := []string{"gradient/0.weight 6", "gradient/0.bias 3", "gradient/1.weight 6", "weight/0.weight 6", "weight/0.bias 3", "weight/1.weight 6"}; !slices.Equal(entries.histograms, want) {
		t.Errorf("histograms of %q", entries.histograms)
	}
	if err := gotorch.Try0(func() { loop.Watch(train.WatchOptions{Every: 0}) }); !errors.Is(err, gotorch.ValueError) {
		t.Errorf("got %v", err)
	}
}

// recorded is a log that remembers.
type recorded struct {
	all        []train.LogEntry
	histograms []string
}

func (r *recorded) Begin(train.LogStart) error  { return nil }
func (r *recorded) End() error                  { return nil }
func (r *recorded) Mark() (gotorch.Dict, error) { return nil, nil }
func (r *recorded) Log(e train.LogEntry) error {
	e.Values = slices.Clone(e.Values)
	r.all = append(r.all, e)
	return nil
}

func (r *recorded) LogHistogram(_ int, name string, values gotorch.Tensor) error {
	r.histograms = append(r.histograms, fmt.Sprint(name, " ", values.Numel()))
	return nil
}
