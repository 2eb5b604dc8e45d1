package train_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/internal/rankstest"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/optim/lrscheduler"
	"gotorch.dev/gotorch/train"
)

// rankOptions are what a process that is a rank gets.
type rankOptions struct {
	Meet       string // a file
	Rank, Size int
	Folder     string // of checkpoints
	Epochs     int
	Cancel     int // after this step; 0: never
	Zero       bool
	Shard      bool // the model is sharded, and not whole on each rank
	Timeout    time.Duration
	Finite     bool
}

// rankResult is what it comes to.
type rankResult struct {
	trained
	Err      string
	Canceled bool
	Lost     bool // the others
}

// aRank trains as one of several processes, with all that has a state.
func aRank(o rankOptions) (*rankResult, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	world, err := distributed.Init(ctx, distributed.Options{InitMethod: "file://" + o.Meet, Rank: o.Rank, WorldSize: o.Size, Timeout: time.Minute})
	if err != nil {
		return nil, err
	}
	defer world.Close()
	if o.Timeout > 0 {
		if err := world.SetTimeout(o.Timeout); err != nil {
			return nil, err
		}
	}
	gotorch.ManualSeed(uint64(o.Rank)) // dropout differs; the parameters are rank 0's
	first := nn.Linear(2, 8)
	net := nn.Sequential(first, nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2))
	var model nn.Layer
	if o.Shard {
		model = distributed.FullyShard(net, distributed.FullyShardOptions{Group: world, Units: []nn.Modular{first}})
	} else {
		ddp := distributed.DataParallel(net, distributed.DataParallelOptions{Group: world})
		defer ddp.Close()
		model = ddp
	}
	var opt optim.Optimizer = optim.AdamW(model.Parameters(), optim.AdamWOptions{LR: 0.01})
	if o.Zero {
		opt = distributed.ZeroRedundancyOptimizer(world, opt)
	}
	loop := train.NewLoop(model, opt, nn.CrossEntropyLoss())
	loop.Distributed(world)
	loop.Accumulate(2)
	loop.ClipGradNorm(1)
	loop.Schedule(lrscheduler.OneCycleLR(opt, 0.05, lrscheduler.OneCycleLROptions{TotalSteps: 100}), train.PerStep)
	loop.OnEpoch(train.Validate(points(31), train.Accuracy))
	loop.ScheduleBy("val_loss", lrscheduler.ReduceLROnPlateau(opt, lrscheduler.ReduceLROnPlateauOptions{Patience: 1}))
	loop.EarlyStop("val_loss", train.EarlyStopOptions{Patience: 50})
	if o.Finite {
		loop.StopAtNonFinite()
	}
	loop.OnStep(func(s *train.Step) error {
		s.Record("mine", gotorch.FromSlice([]float64{float64(s.Number * (o.Rank + 1))}))
		if s.Number == o.Cancel {
			cancel()
		}
		return nil
	})
	loop.Log(train.CSVLog(filepath.Join(o.Folder, "log.csv"), train.FileLogOptions{NoTime: true}))
	loop.Checkpoints(o.Folder, train.CheckpointsOptions{Resume: true, Steps: 2, Keep: 2, Best: "val_loss"})
	set := points(95)
	order := data.DistributedSampler(set, o.Size, o.Rank)
	history, err := loop.Run(ctx, data.NewLoader(set, data.LoaderOptions{BatchSize: 10, Sampler: order}), train.Epochs(o.Epochs))
	r := &rankResult{
		Canceled: errors.Is(err, context.Canceled),
		Lost:     errors.Is(err, distributed.TimeoutError) || errors.Is(err, distributed.NetworkError),
	}
	r.Losses, r.Epochs, r.State = history.Losses, history.Epochs, map[string][]float64{"mine": history.Series["mine"]}
	for i := range r.Epochs {
		r.Epochs[i].Duration = 0
	}
	state := model.StateDict()
	if sharded, is := model.(*distributed.FullySharded); is && err == nil {
		state = nn.StateDict{}
		_ = gotorch.Try0(func() { // the other may be killed even now
			for name, t := range sharded.FullStateDict() {
				state["module."+name] = t
			}
		})
	}
	for name, t := range state {
		r.State[name] = gotorch.ToSlice[float64](t.To(gotorch.Float64))
	}
	r.Next = gotorch.Item[float64](gotorch.Rand(nil))
	if err != nil {
		r.Err = err.Error()
	}
	return r, nil
}

// rankProcess is the process of a rank: see TestMain.
func rankProcess(options string) {
	var o rankOptions
	err := json.Unmarshal([]byte(options), &o)
	if err == nil {
		gotorch.SetNumThreads(1)
		var r *rankResult
		if r, err = aRank(o); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(r)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// ranks runs a job, and returns what each rank has come to; nil for those that were killed. watch may kill them.
func ranks(t *testing.T, size int, o rankOptions, folder func(rank int) string, watch func([]*exec.Cmd)) []*rankResult {
	t.Helper()
	o.Meet, o.Size = filepath.Join(t.TempDir(), "meet"), size
	var all []*exec.Cmd
	outs, errs := make([]strings.Builder, size), make([]strings.Builder, size)
	cancel := o.Cancel
	for rank := range size {
		o.Rank, o.Folder, o.Cancel = rank, folder(rank), 0
		if rank == size-1 {
			o.Cancel = cancel
		}
		b, err := json.Marshal(o)
		testhelp.Must(t, err)
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "TRAIN_RANK="+string(b))
		cmd.Stdout, cmd.Stderr = &outs[rank], &errs[rank]
		testhelp.Must(t, cmd.Start())
		all = append(all, cmd)
	}
	if watch != nil {
		go watch(all)
	}
	results := make([]*rankResult, size)
	for rank, cmd := range all {
		err := cmd.Wait()
		if err == nil {
			results[rank] = new(rankResult)
			err = json.Unmarshal([]byte(outs[rank].String()), results[rank])
		}
		if err != nil && watch == nil {
			t.Fatal(rank, err, outs[rank].String(), errs[rank].String())
		}
		if err != nil {
			t.Log(rank, err, errs[rank].String())
		}
	}
	return results
}

func sameModel(t *testing.T, what string, results []*rankResult) {
	t.Helper()
	for rank, r := range results {
		if r == nil {
			t.Fatalf("%s: rank %d did not come to its end", what, rank)
		}
		for name, values := range r.State {
			if !strings.Contains(name, "running") && !slices.Equal(values, results[0].State[name]) { // buffers follow before a forward pass
				t.Errorf("%s: rank %d has another %s", what, rank, name)
			}
		}
		if !slices.Equal(r.Losses, results[0].Losses) {
			t.Errorf("%s: rank %d has another history", what, rank)
		}
	}
}

func differ(t *testing.T, what string, got, want []*rankResult) {
	t.Helper()
	for rank := range want {
		if d := got[rank].differs(&want[rank].trained); d != "" {
			t.Errorf("%s: rank %d: %s", what, rank, d)
		}
	}
}

// TestRanksGoOnToTheSameBits stops and kills jobs of two ranks, which go on to what an undisturbed one comes to. With SOAK
// they are killed a hundred times.
func TestRanksGoOnToTheSameBits(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts processes")
	}
	for _, shard := range []bool{false, true} {
		t.Run(fmt.Sprintf("shard %v", shard), func(t *testing.T) { ranksGoOn(t, shard) })
	}
}

func ranksGoOn(t *testing.T, shard bool) {
	folder := t.TempDir()
	in := func(int) string { return folder }
	o := rankOptions{Epochs: 4, Shard: shard}
	want := ranks(t, 2, o, in, nil)
	sameModel(t, "undisturbed", want)
	if n := len(want[0].Losses); n != 20 || want[0].Err != "" || len(want[0].Epochs) != 4 {
		t.Fatal(n, want[0].Err, want[0].Epochs)
	}
	if got := want[1].State["mine"][3]; got != 4*1.5 {
		t.Errorf("what was recorded is %v, and the mean over the ranks 6", got)
	}
	log, err := os.ReadFile(filepath.Join(folder, "log.csv"))
	if lines := strings.Count(string(log), "\n"); err != nil || lines != 25 {
		t.Errorf("the log has %d lines: %v", lines, err)
	}

	// Rank 1 is cancelled, and both stop; what was checked as finite is the same.
	for cancel, steps := range map[int]int{1: 2, 5: 5, 8: 9} { // all take one more in the epoch
		folder := t.TempDir()
		in := func(rank int) string { // only rank 0 has files
			if shard { // and all have their parts in one folder
				rank = 0
			}
			return filepath.Join(folder, fmt.Sprint(rank))
		}
		o := o
		o.Cancel, o.Finite, o.Zero = cancel, cancel == 5, cancel == 8 && !shard
		for rank, r := range ranks(t, 2, o, in, nil) {
			if !r.Canceled || len(r.Losses) != steps {
				t.Errorf("rank %d, cancelled after step %d: %d steps, %s", rank, cancel, len(r.Losses), r.Err)
			}
		}
		if _, err := os.Stat(in(1)); err == nil && !shard {
			t.Error("rank 1 has written files")
		}
		o.Cancel = 0
		got := ranks(t, 2, o, in, nil)
		differ(t, fmt.Sprintf("cancelled after step %d", cancel), got, want)
	}

	kills := 2
	if os.Getenv("SOAK") != "" {
		kills = 100
	}
	rng := rand.New(rand.NewPCG(7, 8))
	folder = t.TempDir()
	killed := 0
	for killed < kills {
		victim := rng.IntN(2)
		wait := time.Duration(rng.IntN(30_000)) * time.Microsecond
		got := ranks(t, 2, o, in, func(all []*exec.Cmd) {
			before, _ := train.LatestCheckpoint(folder)
			for range 10_000 { // until it has done something
				if now, _ := train.LatestCheckpoint(folder); now != before {
					break
				}
				time.Sleep(time.Millisecond)
			}
			time.Sleep(wait)
			_ = all[victim].Process.Signal(syscall.SIGKILL)
		})
		if got[victim] != nil { // it was done before
			folder = t.TempDir()
			if got[1-victim] == nil {
				t.Fatal("one rank came to its end, and the other not")
			}
			continue
		}
		killed++
		if other := got[1-victim]; other == nil {
			t.Errorf("rank %d ended with the one that was killed", 1-victim)
		} else if other.Err == "" && len(other.Losses) < 20 {
			t.Errorf("rank %d did not notice that the other was killed", 1-victim)
		}
	}
	differ(t, "killed", ranks(t, 2, o, in, nil), want)
}

// TestRanksOfAnyNumberGoOnToTheSameBits stops jobs after their first step and later. From three ranks on a sum depends in its last bits
// on where in a bucket a gradient is.
func TestRanksOfAnyNumberGoOnToTheSameBits(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts processes")
	}
	for _, size := range []int{3, 4, 8} {
		for _, shard := range []bool{false, true} {
			if shard && size > 3 {
				continue
			}
			o := rankOptions{Epochs: 3, Shard: shard}
			folder := t.TempDir()
			want := ranks(t, size, o, func(int) string { return folder }, nil)
			sameModel(t, "undisturbed", want)
			for _, cancel := range []int{1, 4} {
				folder := t.TempDir()
				in := func(int) string { return folder }
				o := o
				o.Cancel = cancel
				ranks(t, size, o, in, nil)
				o.Cancel = 0
				differ(t, fmt.Sprintf("%d ranks, shard %v, cancelled after step %d", size, shard, cancel), ranks(t, size, o, in, nil), want)
			}
		}
	}
}

// TestARankThatStandsStillIsNoticed by the others when their time is over.
func TestARankThatStandsStillIsNoticed(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts processes")
	}
	folder := t.TempDir()
	got := ranks(t, 2, rankOptions{Epochs: 100_000, Timeout: 5 * time.Second}, func(int) string { return folder }, func(all []*exec.Cmd) {
		for range 10_000 {
			if now, _ := train.LatestCheckpoint(folder); now != "" {
				break
			}
			time.Sleep(time.Millisecond)
		}
		_ = all[1].Process.Signal(syscall.SIGSTOP)
		for range 60_000 { // until rank 0 has left, for which ranks waits first
			if syscall.Kill(all[0].Process.Pid, 0) != nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		_ = all[1].Process.Kill()
	})
	if got[0] == nil || !got[0].Lost {
		t.Error(got[0])
	}
}

// TestAJobOfAnotherSizeGoesOn goes on with fewer and with more ranks.
func TestAJobOfAnotherSizeGoesOn(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts processes")
	}
	// Also where the model is sharded, or is no more, or not before.
	for _, shards := range [][3]bool{{}, {true, true, true}, {true, false, true}, {false, true, false}} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			folder := t.TempDir()
			in := func(int) string { return folder }
			first := ranks(t, 2, rankOptions{Epochs: 2, Cancel: 6, Shard: shards[0]}, in, nil)
			if len(first[0].Losses) != 7 { // two of the second epoch
				t.Fatal(len(first[0].Losses))
			}
			one := ranks(t, 1, rankOptions{Epochs: 2, Shard: shards[1]}, in, nil) // has the 55 samples that are left in six batches
			if n := len(one[0].Losses); n != 7+6 || one[0].Err != "" || !slices.Equal(one[0].Losses[:7], first[0].Losses) {
				t.Error(n, one[0].Err)
			}
			three := ranks(t, 3, rankOptions{Epochs: 4, Shard: shards[2]}, in, nil)
			sameModel(t, "three ranks", three)
			if n := len(three[2].Losses); n != 13+2*4 || three[2].Err != "" || len(three[2].Epochs) != 4 {
				t.Error(n, three[2].Err)
			}
		})
	}
}

// resized is a job of goroutines that goes on from the checkpoints of others.
type resized struct {
	folder      string
	size, batch int
	cancel      int // after this step; 0: never
	epochs      int
	steps       int // in place of epochs
	dropLast    bool
	shuffled    bool // by a loader that has no DistributedSampler
	shard       bool // the model is sharded
	stream      bool // the set is an Iterable of unknown length, which ranks share
}

// seenSamples counts the samples of each epoch.
type seenSamples struct {
	mutex sync.Mutex
	of    map[int]map[int]int
}

func (j resized) run(t *testing.T, n int64, seen *seenSamples) (steps int, state map[string][]float64) {
	t.Helper()
	rankstest.Run(t, j.size, distributed.Options{}, func(g *distributed.Group) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		net := nn.Sequential(nn.Linear(1, 3), nn.Tanh(), nn.Linear(3, 1))
		w := gotorch.Linspace(-1, 1, 10).Split(3)
		gotorch.NoGrad(func() {
			net.Parameters()[0].Copy_(w[0].View([]int64{3, 1}))
			net.Parameters()[2].Copy_(w[1].View([]int64{1, 3}))
			net.Parameters()[1].Zero_()
			net.Parameters()[3].Zero_()
		})
		model, whole, end := shared(g, net, j.shard)
		defer end()
		loop := train.NewLoop(model, optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.1, Momentum: 0.9}), nn.MSELoss())
		loop.Distributed(g)
		loop.Accumulate(2)
		loop.OnStep(func(s *train.Step) error {
			if seen != nil {
				seen.mutex.Lock()
				for _, x := range gotorch.ToSlice[float32](s.Batch.Input.Flatten()) {
					if seen.of[s.Epoch] == nil {
						seen.of[s.Epoch] = map[int]int{}
					}
					seen.of[s.Epoch][int(math.Round(float64(x)*float64(n)))]++
				}
				seen.mutex.Unlock()
			}
			if s.Number == j.cancel {
				cancel()
			}
			return nil
		})
		loop.Checkpoints(j.folder, train.CheckpointsOptions{Resume: true, Steps: 1})
		x := gotorch.Arange(n).To(gotorch.Float32).DivScalar(n).View([]int64{n, 1})
		set := data.NewTensorDataset(x, x.Pow(2))
		opt := data.LoaderOptions{BatchSize: j.batch, Sampler: data.DistributedSampler(set, j.size, g.Rank(), data.DistributedSamplerOptions{DropLast: j.dropLast})}
		if j.shuffled {
			opt.Sampler, opt.Shuffle = nil, true
		}
		limit := train.Epochs(j.epochs)
		if j.steps > 0 {
			limit = train.Steps(j.steps)
		}
		loader := data.NewLoader(set, opt)
		if j.stream {
			whole := data.Shuffle[data.Pair](stream{set}, 9)
			loader = data.NewIterableLoader(data.TransformIterable(data.DistributedIterable(whole, j.size, g.Rank(), data.DistributedIterableOptions{DropLast: j.dropLast}), noNoise),
				data.LoaderOptions{BatchSize: j.batch})
		}
		history, err := loop.Run(ctx, loader, limit)
		if err != nil && !(j.cancel > 0 && errors.Is(err, context.Canceled)) {
			t.Error(g, err)
		}
		if now := whole(); g.Rank() == 0 {
			steps, state = len(history.Losses), map[string][]float64{"losses": history.Losses}
			for name, p := range now {
				state[name] = gotorch.ToSlice[float64](p.To(gotorch.Float64))
			}
		}
	})
	return steps, state
}

func noNoise(p data.Pair, _ *rand.Rand) (data.Pair, error) { return p, nil }

// shared has ranks train net together, each with a part of it if shard is true. whole returns its state.
func shared(g *distributed.Group, net *nn.SequentialModule, shard bool) (model nn.Layer, whole func() nn.StateDict, end func()) {
	if !shard {
		ddp := distributed.DataParallel(net, distributed.DataParallelOptions{Group: g})
		return ddp, func() nn.StateDict { return net.StateDict() }, func() { ddp.Close() }
	}
	var units []nn.Modular
	for _, m := range net.NamedModules() {
		if linear, is := m.(*nn.LinearModule); is && len(units) == 0 {
			units = append(units, linear)
		}
	}
	sharded := distributed.FullyShard(net, distributed.FullyShardOptions{Group: g, Units: units})
	return sharded, func() nn.StateDict { return sharded.FullStateDict() }, func() {}
}

// TestTheRestOfAnEpochIsDealtOut among ranks that are fewer or more than before, several times in one epoch: each sample is seen
// once.
func TestTheRestOfAnEpochIsDealtOut(t *testing.T) {
	for _, shard := range []bool{false, true} {
		t.Run(fmt.Sprintf("shard %v", shard), func(t *testing.T) { restIsDealtOut(t, shard) })
	}
}

func restIsDealtOut(t *testing.T, shard bool) {
	for _, c := range [][2]bool{{false, false}, {true, false}, {false, true}, {true, true}} {
		dropLast, stream := c[0], c[1]
		seen := &seenSamples{of: map[int]map[int]int{}}
		folder := t.TempDir()
		const n = 120
		steps := 0
		for _, j := range []resized{
			{size: 2, batch: 5, cancel: 2}, // three steps: 30 samples
			{size: 3, batch: 4, cancel: 4}, // two: 54
			{size: 3, batch: 4, cancel: 6}, // two, of the same size: 78
			{size: 1, batch: 7, cancel: 9}, // three: 99
			{size: 3, batch: 7, cancel: 0}, // one: 120; and an epoch of six
			{size: 2, batch: 30, epochs: 4, cancel: 0},
		} {
			j.folder, j.dropLast, j.shard, j.stream = folder, dropLast, shard, stream
			if j.epochs == 0 {
				j.epochs = 2
			}
			steps, _ = j.run(t, n, seen)
		}
		if steps != 3+2+2+3+1+6+2*2 {
			t.Error(steps)
		}
		for epoch := 1; epoch <= 4; epoch++ {
			of := seen.of[epoch]
			for i := range n {
				if of[i] != 1 {
					t.Fatalf("drop last %v, a stream %v, epoch %d: sample %d was seen %d times: %v", dropLast, stream, epoch, i, of[i], of)
				}
			}
		}
	}
	// What does not divide evenly is filled up, or left out.
	for _, dropLast := range []bool{false, true} {
		seen := &seenSamples{of: map[int]map[int]int{}}
		folder := t.TempDir()
		resized{folder: folder, shard: shard, size: 2, batch: 5, cancel: 1, epochs: 1, dropLast: dropLast}.run(t, 41, seen)
		resized{folder: folder, shard: shard, size: 3, batch: 5, epochs: 1, dropLast: dropLast}.run(t, 41, seen) // 21 are left
		for i, count := range seen.of[1] {
			if count != 1 {
				t.Error(dropLast, i, count)
			}
		}
		if len(seen.of[1]) != 41 {
			t.Error(dropLast, len(seen.of[1]))
		}
	}
	// An epoch that was stopped after its last batch has no rest.
	for _, stream := range []bool{false, true} {
		seen := &seenSamples{of: map[int]map[int]int{}}
		folder := t.TempDir()
		first, _ := resized{folder: folder, shard: shard, size: 3, batch: 2, cancel: 1, epochs: 2, stream: stream}.run(t, 12, seen)
		second, _ := resized{folder: folder, shard: shard, size: 2, batch: 2, cancel: 4, epochs: 2, stream: stream}.run(t, 12, seen)
		third, _ := resized{folder: folder, shard: shard, size: 3, batch: 4, epochs: 3, stream: stream}.run(t, 12, seen)
		if first != 2 || second != 2+3 || third != 2+3+1 {
			t.Error(stream, first, second, third)
		}
		for epoch := 1; epoch <= 3; epoch++ {
			for i := range 12 {
				if seen.of[epoch][i] != 1 {
					t.Fatalf("a stream %v, epoch %d: sample %d was seen %d times: %v", stream, epoch, i, seen.of[epoch][i], seen.of)
				}
			}
		}
	}
	// What has no DistributedSampler begins again.
	seen := &seenSamples{of: map[int]map[int]int{}}
	folder := t.TempDir()
	resized{folder: folder, shard: shard, size: 2, batch: 5, cancel: 1, epochs: 1, shuffled: true}.run(t, 20, seen)
	steps, _ := resized{folder: folder, shard: shard, size: 1, batch: 5, epochs: 1, shuffled: true}.run(t, 20, seen)
	if steps != 2+4 {
		t.Error(steps)
	}
}

// TestAResizedJobComesToTheSame as one process that has the batches of all ranks as one, also where ranks had added up gradients
// that had changed nothing yet; and it goes on to the same bits where it is stopped once more.
func TestAResizedJobComesToTheSame(t *testing.T) {
	oneThread(t)
	const n = 96 // 12 in a batch of all ranks
	_, whole := resized{folder: t.TempDir(), size: 1, batch: 12, epochs: 2}.run(t, n, nil)
	near := func(what string, got map[string][]float64) {
		for name, want := range whole {
			for i, v := range want {
				if math.Abs(got[name][i]-v) > 1e-5 {
					t.Errorf("%s: %s is %v, and want %v", what, name, got[name], want)
					break
				}
			}
		}
	}
	for _, shards := range [][2]bool{{}, {true, true}, {true, false}, {false, true}} { // before, and afterwards
		// After three or four steps, of which two at a time change parameters.
		for _, c := range [][3]int{{2, 1, 2}, {2, 1, 3}, {2, 3, 2}, {3, 1, 2}, {2, 2, 2}} {
			sizes, stop := c[:2], c[2]
			what := fmt.Sprintf("%v ranks, sharded %v, stopped after step %d", sizes, shards, stop)
			folder, again := t.TempDir(), t.TempDir()
			before := resized{size: sizes[0], batch: 12 / sizes[0], cancel: stop, epochs: 2, shard: shards[0]}
			after := resized{size: sizes[1], batch: 12 / sizes[1], epochs: 2, shard: shards[1]}
			for _, f := range []string{folder, again} {
				before.folder = f
				before.run(t, n, nil)
			}
			after.folder = folder
			steps, got := after.run(t, n, nil)
			if steps != 16 {
				t.Error(what, steps)
			}
			near(what, got)
			after.folder, after.cancel = again, stop+2
			after.run(t, n, nil)
			after.cancel = 0
			_, twice := after.run(t, n, nil)
			for name, want := range got {
				if !slices.Equal(twice[name], want) {
					t.Errorf("%s and once more: %s is %v, and want %v", what, name, twice[name], want)
				}
			}
		}
	}
}

func oneThread(t *testing.T) {
	before := gotorch.NumThreads()
	gotorch.SetNumThreads(1)
	t.Cleanup(func() { gotorch.SetNumThreads(before) })
}

// TestAJobThatGrewEndsWithItsEpochs also where it is stopped after that: it has made more steps than it would have from the begin.
func TestAJobThatGrewEndsWithItsEpochs(t *testing.T) {
	folder := t.TempDir()
	const n = 80
	resized{folder: folder, size: 1, batch: 5, cancel: 9, epochs: 4}.run(t, n, nil)  // 10 of 16 steps
	resized{folder: folder, size: 2, batch: 5, cancel: 29, epochs: 4}.run(t, n, nil) // 3, 8, 8, and one
	steps, _ := resized{folder: folder, size: 2, batch: 5, epochs: 4}.run(t, n, nil) // 7
	if steps != 10+3+8+8+8 {
		t.Error(steps)
	}
	steps, _ = resized{folder: folder, size: 1, batch: 5, epochs: 5}.run(t, n, nil)
	if steps != 10+3+8+8+8+16 {
		t.Error(steps)
	}
}

// TestAResizedJobEndsWithItsSteps however long epochs are with so many ranks.
func TestAResizedJobEndsWithItsSteps(t *testing.T) {
	for i := range testhelp.Rounds(12) {
		rng := rand.New(rand.NewPCG(uint64(i), 3))
		folder, stops, sizes := t.TempDir(), []int{}, []int{}
		const total = 20
		done := 0
		for done < total {
			j := resized{folder: folder, size: 1 + rng.IntN(3), batch: 5, cancel: done + 1 + rng.IntN(8), steps: total, shard: i%4 == 3, dropLast: i%2 == 0, stream: i%3 == 2}
			if j.cancel >= total-1 {
				j.cancel = 0
			}
			stops, sizes = append(stops, j.cancel), append(sizes, j.size)
			var at int
			if at, _ = j.run(t, 43, nil); at <= done {
				t.Fatalf("%v ranks, stopped after %v: %d steps, and %d before", sizes, stops, at, done)
			}
			if done = at; j.cancel == 0 {
				break
			}
		}
		if done != total {
			t.Errorf("%v ranks, stopped after %v: %d steps", sizes, stops, done)
		}
	}
}

func TestWhatEndsOneRankEndsAll(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name string
		set  func(g *distributed.Group, l *train.Loop)
		n    func(g *distributed.Group) int64 // samples
		msg  string
		mine func(error) bool // the error of rank 1
	}{
		{"a hook of a step", func(g *distributed.Group, l *train.Loop) {
			l.OnStep(func(s *train.Step) error {
				if g.Rank() == 1 && s.Number == 3 {
					return broken
				}
				return nil
			})
		}, nil, "rank 1 has failed", func(err error) bool { return errors.Is(err, broken) }},
		{"a hook of the last step", func(g *distributed.Group, l *train.Loop) {
			l.OnStep(func(s *train.Step) error {
				if g.Rank() == 1 && s.Number == s.Total {
					return broken
				}
				return nil
			})
		}, nil, "rank 1 has failed", func(err error) bool { return errors.Is(err, broken) }},
		{"a hook of an epoch", func(g *distributed.Group, l *train.Loop) {
			l.OnEpoch(func(e *train.Epoch) error {
				if g.Rank() == 1 && e.Number == 2 {
					return broken
				}
				return nil
			})
		}, nil, "rank 1 has failed", func(err error) bool { return errors.Is(err, broken) }},
		{"fewer batches", func(*distributed.Group, *train.Loop) {}, func(g *distributed.Group) int64 { return 40 - 20*int64(g.Rank()) },
			"rank 1 has 2 batches in an epoch", func(err error) bool { var r *train.RankError; return errors.As(err, &r) && r.Rank == 0 }},
		{"a loss that is not finite", func(g *distributed.Group, l *train.Loop) {
			l.StopAtNonFinite()
			l.OnStep(func(s *train.Step) error {
				if g.Rank() == 1 && s.Number == 2 {
					gotorch.NoGrad(func() { s.Model.Parameters()[0].Fill_(math.NaN()) })
				}
				return nil
			})
		}, nil, "rank 1 has failed", func(err error) bool { var n *train.NonFiniteError; return errors.As(err, &n) }},
		{"a folder that has a run", func(g *distributed.Group, l *train.Loop) {
			folder := t.TempDir()
			testhelp.Must(t, os.WriteFile(filepath.Join(folder, "step-00000007.pt"), []byte("no checkpoint"), 0o666))
			l.Checkpoints(folder, train.CheckpointsOptions{Resume: true})
		}, nil, "", func(err error) bool { return err != nil }},
	} {
		for _, shard := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, shard %v", c.name, shard), func(t *testing.T) {
				errs := make([]error, 2)
				rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
					model, _, end := shared(g, nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 2)), shard)
					defer end()
					loop := train.NewLoop(model, optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.1}), nn.CrossEntropyLoss())
					loop.Distributed(g)
					c.set(g, loop)
					n := int64(40)
					if c.n != nil {
						n = c.n(g)
					}
					_, errs[g.Rank()] = loop.Run(t.Context(), data.NewLoader(points(n), data.LoaderOptions{BatchSize: 10}), train.Epochs(3))
				})
				if !c.mine(errs[1]) {
					t.Error("rank 1:", errs[1])
				}
				msg := c.msg
				if c.name == "a loss that is not finite" && shard { // rank 0 has not the number, and uses it
					msg = "not finite"
				}
				if err := errs[0]; err == nil || !strings.Contains(err.Error(), msg) {
					t.Error("rank 0:", err)
				}
			})
		}
	}
}

// TestErrStopOfOneRankEndsAll, and the steps of a loop of one's own.
func TestErrStopOfOneRankEndsAll(t *testing.T) {
	rankstest.Run(t, 3, distributed.Options{}, func(g *distributed.Group) {
		loop := train.NewStepLoop(func(s *train.StepOf[data.Pair]) error {
			x := gotorch.FromSlice([]float64{float64(g.Rank())})
			g.AllReduce(x, distributed.Sum)
			s.Record("loss", x.AddScalar(float64(g.Rank())))
			return nil
		})
		loop.Distributed(g)
		loop.OnEpoch(func(e *train.Epoch) error {
			e.Record("rank", float64(g.Rank()))
			if g.Rank() == 2 && e.Number == 2 {
				return train.ErrStop
			}
			return nil
		})
		history, err := loop.Run(t.Context(), data.NewLoader(points(20), data.LoaderOptions{BatchSize: 10}), train.Epochs(9))
		if err != nil || len(history.Epochs) != 2 || !slices.Equal(history.Losses, []float64{4, 4, 4, 4}) || history.Last("rank") != 0 {
			t.Error(g, err, history)
		}
	})
}

func TestLoopsThatRanksCannotShare(t *testing.T) {
	loop, _, _ := newLoop(0.1)
	if err := gotorch.Try0(func() { loop.Distributed(nil) }); !errors.Is(err, gotorch.TypeError) {
		t.Error(err)
	}
	rankstest.Run(t, 1, distributed.Options{}, func(g *distributed.Group) {
		if err := gotorch.Try0(func() { loop.Distributed(g) }); !errors.Is(err, gotorch.TypeError) {
			t.Error(err)
		}
	})
}

// TestAValidationThatARankLeavesIsNotRecorded: what is left of it would be no number of anything.
func TestAValidationThatARankLeavesIsNotRecorded(t *testing.T) {
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		net := nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 2))
		model := distributed.DataParallel(net, distributed.DataParallelOptions{Group: g})
		defer model.Close()
		loop := train.NewLoop(model, optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.1}), nn.CrossEntropyLoss())
		loop.Distributed(g)
		loop.OnEpoch(train.Validate(points(20), train.Metric{Name: "leaves", Sum: func(output, _ gotorch.Tensor) (float64, int) {
			if g.Rank() == 1 {
				g.Close()
			}
			return 1, 1
		}}))
		history, err := loop.Run(t.Context(), data.NewLoader(points(20), data.LoaderOptions{BatchSize: 10}), train.Epochs(1))
		if err == nil || len(history.Epochs) != 1 || len(history.Epochs[0].Metrics) != 0 {
			t.Error(g, err, history.Epochs)
		}
	})
}

func TestAFolderIsOfOneRun(t *testing.T) {
	folder := t.TempDir()
	run := func(during func()) error {
		net := nn.Linear(2, 2)
		loop := train.NewLoop(net, optim.SGD(net.Parameters(), optim.SGDOptions{LR: 0.1}), nn.CrossEntropyLoss())
		loop.Checkpoints(folder, train.CheckpointsOptions{Resume: true})
		loop.OnStep(func(*train.Step) error { during(); return nil })
		_, err := loop.Run(t.Context(), data.NewLoader(points(4), data.LoaderOptions{BatchSize: 4}), train.Epochs(1))
		return err
	}
	second := errors.New("the second run did not run")
	testhelp.Must(t, run(func() {
		second = run(func() { t.Error("two runs save into one folder") })
	}))
	if !errors.Is(second, gotorch.RuntimeError) || !strings.Contains(second.Error(), folder) {
		t.Error(second)
	}
	testhelp.Must(t, run(func() {})) // the first has ended
}

// TestARankSaysWhyItFailed to the others.
func TestARankSaysWhyItFailed(t *testing.T) {
	rankstest.Run(t, 3, distributed.Options{}, func(g *distributed.Group) {
		model := distributed.DataParallel(nn.Linear(2, 2), distributed.DataParallelOptions{Group: g})
		defer model.Close()
		loop := train.NewLoop(model, optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.1}), nn.CrossEntropyLoss())
		loop.Distributed(g)
		full := fmt.Errorf("the disk is full")
		loop.OnStep(func(*train.Step) error {
			if g.Rank() == 1 {
				return full
			}
			return nil
		})
		_, err := loop.Run(t.Context(), data.NewLoader(points(4), data.LoaderOptions{BatchSize: 4}), train.Epochs(3))
		var of *train.RankError
		switch {
		case g.Rank() == 1 && !errors.Is(err, full):
			t.Error(err)
		case g.Rank() != 1 && (!errors.As(err, &of) || of.Rank != 1 || !strings.Contains(err.Error(), "the disk is full")):
			t.Error(err)
		}
	})
}

// TestARankWhoseCheckpointDoesNotFitEndsAll though the others' fits, with what of it they load together.
func TestARankWhoseCheckpointDoesNotFitEndsAll(t *testing.T) {
	for _, shard := range []bool{false, true} {
		folder := t.TempDir()
		run := func(g *distributed.Group, batch, steps int) error {
			model, _, end := shared(g, nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2)), shard)
			defer end()
			loop := train.NewLoop(model, optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.1}), nn.CrossEntropyLoss())
			loop.Distributed(g)
			loop.Checkpoints(folder, train.CheckpointsOptions{Resume: true})
			_, err := loop.Run(t.Context(), data.NewLoader(points(24), data.LoaderOptions{BatchSize: batch}), train.Steps(steps))
			return err
		}
		rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) { testhelp.Must(t, run(g, 4, 3)) })
		for wrong := range 2 {
			rankstest.Run(t, 2, distributed.Options{Timeout: 20 * time.Second}, func(g *distributed.Group) {
				batch := 4
				if g.Rank() == wrong {
					batch = 5
				}
				err := run(g, batch, 5)
				var of *train.RankError
				if g.Rank() == wrong && !errors.Is(err, gotorch.ValueError) || g.Rank() != wrong && (!errors.As(err, &of) || of.Rank != wrong) {
					t.Errorf("shard %v, rank %d, of rank %d: %v", shard, g.Rank(), wrong, err)
				}
			})
		}
	}
}
