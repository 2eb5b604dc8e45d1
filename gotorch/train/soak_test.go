package train_test

import (
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/internal/finalize"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/train"
	"gotorch.dev/gotorch/train/tensorboard"
)

// fixed is batches that are there.
type fixed []data.Pair

func (f fixed) Len() int { return len(f) }
func (f fixed) All() iter.Seq2[data.Pair, error] {
	return func(yield func(data.Pair, error) bool) {
		for _, pair := range f {
			if !yield(pair, nil) {
				return
			}
		}
	}
}

// usage is what a process holds.
type usage struct {
	handles, native, heap int64
	goroutines, files     int
	resident              int64 // of memory that is not a file's, without what is kept for the next tensors
}

func now(t *testing.T) usage {
	for before := int64(math.MaxInt64); ; { // what is dead is freed in batches
		finalize.Dead()
		live := gotorch.MemoryStats().LiveHandles
		if live >= before {
			break
		}
		before = live
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	stats := gotorch.MemoryStats()
	b, err := os.ReadFile("/proc/self/status")
	testhelp.Must(t, err)
	_, line, found := strings.Cut(string(b), "RssAnon:")
	if !found {
		t.Fatalf("no RssAnon in %s", b)
	}
	var kib int64
	_, err = fmt.Sscan(line, &kib)
	testhelp.Must(t, err)
	goroutines := runtime.NumGoroutine()
	for range 100 { // one that ends, or runs a cleanup, is still counted
		time.Sleep(time.Millisecond)
		goroutines = min(goroutines, runtime.NumGoroutine())
	}
	return usage{stats.LiveHandles, stats.NativeBytes, int64(m.HeapAlloc), goroutines, testhelp.Descriptors(t), kib<<10 - stats.CachedBytes}
}

// TestALongRunStaysSmall trains a tiny model with logs and checkpoints: for a million steps with SOAK.
func TestALongRunStaysSmall(t *testing.T) {
	steps := 4000
	if os.Getenv("SOAK") != "" {
		steps = 1_000_000
	}
	dir := t.TempDir()
	// A second thread has nothing to do here, and waits awake.
	defer gotorch.SetNumThreads(gotorch.NumThreads())
	gotorch.SetNumThreads(1)
	gotorch.ManualSeed(1)
	model := nn.Linear(2, 2)
	loop := train.NewLoop(model, optim.AdamW(model.Parameters()), nn.CrossEntropyLoss())
	loop.Checkpoints(filepath.Join(dir, "run"), train.CheckpointsOptions{Steps: steps / 16, Epochs: 1 << 30, Keep: 2})
	loop.Log(train.CSVLog(filepath.Join(dir, "log.csv")))
	loop.Log(train.JSONLog(filepath.Join(dir, "log.jsonl")), train.LogOptions{Every: 10})
	loop.Log(tensorboard.NewLog(filepath.Join(dir, "events")))
	loop.Watch(train.WatchOptions{Every: steps / 200, Histograms: true})
	loop.Progress(io.Discard)
	var batches fixed
	for range steps / 20 {
		if len(batches) < 1000 {
			x := gotorch.Randn([]int64{4, 2})
			sum := x.SumDim([]int64{1})
			above := sum.GtScalar(0)
			batches = append(batches, data.Pair{Input: x, Target: above.To(gotorch.Int64)})
			sum.Close()
			above.Close()
		}
	}
	var first, last usage
	begun := time.Now()
	loop.OnStep(func(s *train.Step) error {
		switch s.Number {
		case steps / 5:
			first = now(t)
		case steps:
			last = now(t)
		}
		return nil
	})
	before := now(t)
	history, err := loop.Run(t.Context(), batches, train.Steps(steps))
	testhelp.Must(t, err)
	t.Logf("%d steps in %v: after a fifth %+v, at the end %+v", steps, time.Since(begun).Round(time.Second), first, last)
	after := now(t)
	runtime.KeepAlive(loop) // with model and optimiser
	runtime.KeepAlive(batches)
	// The history has 8 bytes for a step, and room for as many again.
	if grown := last.heap - first.heap; grown > 20*int64(steps)+2<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	// Small tensors share slabs of 32 (gotorch/memory.go): each processor has one that is being filled, and a small tensor
	// that lives keeps what is dead in its own. Of a leak of one for each step there would be thousands.
	// Two parameters have gradients, and AdamW has three tensors for each.
	const slab, living = 32, 2 + 2*3
	dead := int64(slab * (living + runtime.GOMAXPROCS(0) + 1))
	if last.handles > first.handles+dead || last.native > first.native+1<<16 || last.goroutines > first.goroutines || last.files > first.files {
		t.Errorf("after a fifth %+v, at the end %+v", first, last)
	}
	// The collector lets the heap be twice as large. The bound on the rest is far above what was seen, and far below
	// what a leak of 100 bytes for each step of SOAK would make.
	if grown := last.resident - first.resident; grown > 40*int64(steps)+32<<20 {
		t.Errorf("%d bytes more are resident", grown)
	}
	if after.files > before.files || after.goroutines > before.goroutines || after.handles > before.handles+living+dead {
		t.Errorf("before %+v, after %+v", before, after)
	}
	_, rows := table(t, filepath.Join(dir, "log.csv"))
	if want := steps + len(history.Epochs); len(rows) != want {
		t.Errorf("there are %d rows, want %d", len(rows), want)
	}
	var names []string
	testhelp.Must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, strings.Split(d.Name(), "tfevents.")[0])
		}
		return err
	}))
	each := steps / 16
	want := []string{"events.out.", "log.csv", "log.jsonl", fmt.Sprintf("step-%08d.pt", steps/each*each-each), fmt.Sprintf("step-%08d.pt", steps)}
	if steps%each != 0 {
		want[3] = fmt.Sprintf("step-%08d.pt", steps/each*each)
	}
	if !slices.Equal(names, want) {
		t.Errorf("the files are %v, want %v", names, want)
	}
}
