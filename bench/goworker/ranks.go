package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gotorch.dev/bench/models"
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/profiler"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// beside starts this program again as rank 1 of two, which meet in a folder: its first argument. What is read from in goes to it,
// too.
func beside(in io.Reader, mode string, args ...string) (dir string, both io.Reader) {
	dir = must(os.MkdirTemp("", "ranks"))
	peer := exec.Command(must(os.Executable()), append([]string{mode, dir}, args...)...)
	peer.Stderr = os.Stderr
	lines := must(peer.StdinPipe())
	if err := peer.Start(); err != nil {
		panic(err)
	}
	return dir, io.TeeReader(in, lines)
}

// ranks runs cases in two processes, of which the first answers: "all_reduce_BYTES", and training steps that are named as for
// [models.Step], with DataParallel.
func ranks(args []string) {
	rank, in := 1, io.Reader(os.Stdin)
	var dir string
	if len(args) == 0 {
		rank = 0
		dir, in = beside(os.Stdin, "ranks")
		defer os.RemoveAll(dir)
	} else {
		dir = args[0]
	}
	runtime.LockOSThread()
	gotorch.SetNumThreads(1)
	world := must(distributed.Init(context.Background(), distributed.Options{
		InitMethod: "file://" + dir + "/meet", Rank: rank, WorldSize: 2,
	}))
	made := map[string]func(n int){}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		name, count, _ := strings.Cut(lines.Text(), " ")
		n := must(strconv.Atoi(count))
		if made[name] == nil {
			made[name] = ofRanks(world, name)
		}
		world.Barrier()
		wall, cpu := time.Now(), cpuTime()
		made[name](n)
		if rank == 0 {
			fmt.Println(time.Since(wall).Nanoseconds(), (cpuTime() - cpu).Nanoseconds())
		}
	}
}

func ofRanks(world *distributed.Group, name string) func(n int) {
	if bytes, is := strings.CutPrefix(name, "all_reduce_"); is {
		t := gotorch.Ones([]int64{int64(must(strconv.Atoi(bytes)) / 4)})
		return func(n int) {
			for range n {
				world.AllReduce(t, distributed.Avg)
			}
		}
	}
	parts := strings.Split(name, "_")
	gotorch.ManualSeed(0)
	of := models.All[parts[0]](int64(must(strconv.Atoi(parts[1]))), gotorch.CPU)
	model := distributed.DataParallel(of.Model, distributed.DataParallelOptions{Group: world})
	opt := models.Optimizers[parts[2]](model.Parameters())
	return func(n int) {
		for range n {
			gotorch.Scope0(func(*gotorch.ScopeHandle) {
				opt.ZeroGrad()
				model.Around(func() []gotorch.Tensor { return []gotorch.Tensor{of.Loss()} })[0].Backward()
				opt.Step()
			})
		}
	}
}

// firstOfRanks ends when the ranks of a job have added up their first tensor. The job's size, and for one rank the folder and
// its number, are arguments.
func firstOfRanks(args []string) {
	size := must(strconv.Atoi(args[0]))
	if len(args) == 1 {
		dir := must(os.MkdirTemp("", "ranks"))
		defer os.RemoveAll(dir)
		var all sync.WaitGroup
		for rank := range size {
			all.Go(func() {
				peer := exec.Command(must(os.Executable()), "first_ranks", args[0], dir, strconv.Itoa(rank))
				peer.Stderr = os.Stderr
				if err := peer.Run(); err != nil {
					panic(err)
				}
			})
		}
		all.Wait()
		return
	}
	world := must(distributed.Init(context.Background(), distributed.Options{
		InitMethod: "file://" + args[1] + "/meet", Rank: must(strconv.Atoi(args[2])), WorldSize: size,
	}))
	t := gotorch.Ones([]int64{1})
	world.AllReduce(t, distributed.Sum)
	if t.Item() != float64(size) {
		panic(t)
	}
}

// two makes a group of two ranks, of which the other is a process that is started here. It has the folder where they meet before
// the arguments of the mode, which are n; so have the arguments that are returned.
func two(mode string, args []string, n int) (world *distributed.Group, all []string, end func()) {
	rank, end := 1, func() {}
	if len(args) == n {
		dir, _ := beside(strings.NewReader(""), mode, args...)
		rank, end = 0, func() { os.RemoveAll(dir) }
		args = append([]string{dir}, args...)
	}
	runtime.LockOSThread()
	gotorch.SetNumThreads(1)
	return must(distributed.Init(context.Background(), distributed.Options{
		InitMethod: "file://" + args[0] + "/meet", Rank: rank, WorldSize: 2,
	})), args, end
}

// sharded is how much memory a rank of two has of a model that they share out, in MB: between steps, and at most, with a unit
// that comes while another computes and without. Arguments are how many layers the model has, each of which is a unit, and how
// wide these are; the other rank, which is a process of its own, has the folder before.
func sharded(args []string) map[string]float64 {
	world, args, end := two("sharded", args, 2)
	defer end()
	const mb = 1 << 20
	units, width := must(strconv.Atoi(args[1])), must(strconv.Atoi(args[2]))
	between, most := shardedSteps(world, units, int64(width), false)
	_, without := shardedSteps(world, units, int64(width), true)
	return map[string]float64{
		"unit_mb": float64(4*width*(width+1)) / mb, "between_mb": float64(between) / mb, "most_mb": float64(most) / mb,
		"no_prefetch_mb": float64(without) / mb,
	}
}

// shardedSteps trains, and returns what tensors have allocated before a step, and at most in it: of several steps the median, as
// a thread of Gloo may have been late to let go of what it had received.
func shardedSteps(world *distributed.Group, layers int, width int64, noPrefetch bool) (between, most int64) {
	var starts []time.Time
	trace := profiler.Profile(func(*profiler.Profiler) {
		var units []nn.Modular
		var stack []nn.Layer
		for range layers {
			l := nn.Linear(width, width)
			units, stack = append(units, l), append(stack, l)
		}
		model := distributed.FullyShard(nn.Sequential(stack...), distributed.FullyShardOptions{Group: world, Units: units, NoPrefetch: noPrefetch})
		opt := optim.AdamW(model.Parameters(), optim.AdamWOptions{Fused: true})
		x := gotorch.Randn([]int64{1, width})
		for range shardedWarm + shardedCount {
			runtime.GC()
			world.Barrier()
			starts = append(starts, time.Now())
			gotorch.Scope0(func(*gotorch.ScopeHandle) {
				model.Forward(x).Pow(2).Mean().Backward()
				opt.Step()
				opt.ZeroGrad()
			})
		}
		world.Barrier()
	}, profiler.Options{ProfileMemory: true})
	allocations := trace.Allocations()
	var peaks []int64
	for i, a := 0, 0; i < len(starts); i++ {
		peak := int64(0)
		for ; a < len(allocations) && (i+1 == len(starts) || trace.Start.Add(allocations[a].At).Before(starts[i+1])); a++ {
			peak = max(peak, allocations[a].Total)
		}
		peaks = append(peaks, peak)
		if i == shardedWarm-1 {
			between = allocations[a-1].Total
		}
	}
	peaks = peaks[shardedWarm:]
	slices.Sort(peaks)
	return between, peaks[len(peaks)/2]
}

const shardedWarm, shardedCount = 2, 9 // steps

// exchanged is what two ranks exchange in a training step, and how long it takes. The argument is a case of [models.Step], with
// DataParallel, or "sharded", a model of eight layers with FullyShard; the other rank has the folder before. The figures are the
// first rank's: milliseconds of a step of one process that exchanges nothing and of one of two, bytes sent, all-reduces and
// all-gathers, and microseconds until a message has come.
func exchanged(args []string) map[string]float64 {
	world, args, end := two("exchanged", args, 1)
	defer end()
	step := func(loss func() gotorch.Tensor, opt optim.Optimizer) func() {
		return func() {
			gotorch.Scope0(func(*gotorch.ScopeHandle) {
				opt.ZeroGrad()
				loss().Backward()
				opt.Step()
			})
		}
	}
	gotorch.ManualSeed(0)
	var alone, both func()
	if args[1] == "sharded" {
		const layers, width, batch = 8, 1024, 64
		x := gotorch.Randn([]int64{batch, width})
		made := func() (net *nn.SequentialModule, units []nn.Modular) {
			var stack []nn.Layer
			for range layers {
				l := nn.Linear(width, width)
				units, stack = append(units, l), append(stack, l)
			}
			return nn.Sequential(stack...), units
		}
		net, _ := made()
		alone = step(func() gotorch.Tensor { return net.Forward(x).Pow(2).Mean() }, optim.AdamW(net.Parameters()))
		shared, units := made()
		model := distributed.FullyShard(shared, distributed.FullyShardOptions{Group: world, Units: units})
		both = step(func() gotorch.Tensor { return model.Forward(x).Pow(2).Mean() }, optim.AdamW(model.Parameters()))
	} else {
		parts := strings.Split(args[1], "_")
		made := func() models.Trained { return models.All[parts[0]](int64(must(strconv.Atoi(parts[1]))), gotorch.CPU) }
		of := made()
		alone = step(of.Loss, models.Optimizers[parts[2]](of.Model.Parameters()))
		shared := made()
		model := distributed.DataParallel(shared.Model, distributed.DataParallelOptions{Group: world})
		loss := func() gotorch.Tensor {
			return model.Around(func() []gotorch.Tensor { return []gotorch.Tensor{shared.Loss()} })[0]
		}
		both = step(loss, models.Optimizers[parts[2]](model.Parameters()))
	}
	t := gotorch.Ones([]int64{256})
	figures := map[string]float64{"hop_us": milliseconds(200, func() { world.AllReduce(t, distributed.Sum) }) * 1000 / 2}
	if world.Rank() == 0 { // the other waits, and takes no time from it
		figures["alone_ms"] = milliseconds(exchangedSteps, alone)
	}
	world.Barrier()
	both()
	both() // after which DataParallel has its buckets
	world.Barrier()
	before := sentBytes()
	trace := profiler.Profile(func(*profiler.Profiler) { both() })
	figures["sent"] = float64(sentBytes() - before)
	for _, e := range trace.Events() {
		switch e.Name {
		case "c10d::allreduce_":
			figures["reduces"]++
		case "c10d::allgather_", "c10d::allgather_coalesced_":
			figures["gathers"]++
		}
	}
	figures["both_ms"] = milliseconds(exchangedSteps, both)
	world.Barrier()
	return figures
}

const exchangedSteps = 40

// milliseconds is how long a call of fn takes: the least of n, after three. What else the machine does is not in it.
func milliseconds(n int, fn func()) float64 {
	for range 3 {
		fn()
	}
	least := math.Inf(1)
	for range n {
		start := time.Now()
		fn()
		least = min(least, time.Since(start).Seconds()*1000)
	}
	return least
}

// sentBytes is how much this process has written, which is what it has sent where it writes no files.
func sentBytes() (n int64) {
	for line := range strings.Lines(string(must(os.ReadFile("/proc/self/io")))) {
		if text, is := strings.CutPrefix(line, "wchar: "); is {
			n = must(strconv.ParseInt(strings.TrimSpace(text), 10, 64))
		}
	}
	return n
}
