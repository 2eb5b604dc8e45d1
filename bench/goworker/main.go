// The Go worker of `make bench`: reads "CASE ITERATIONS" lines, answers "WALL_NS CPU_NS" (CPU over
// all threads, the collector's included), or "none" for a case that its mode does not have.
//
// The mode says who frees what the loop makes: "gc" the collector, "scope" a Scope of a hundred
// iterations, "close" the program. "train_gc" and "train_scope" train models (training.go), "load" goes through data
// (loading.go), "ranks" has two processes (ranks.go). "first", "first_ranks", "sharded", "exchanged",
// "memory", "parallel", "handles", "module" and "steps" are measurements of their own.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
	"gotorch.dev/gotorch/optim"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: goworker gc|scope|close|train_gc|train_scope|first|memory|parallel|handles|module|steps|losses|load|pictures|loaded|ranks|first_ranks|sharded|exchanged")
		os.Exit(2)
	}
	switch mode := os.Args[1]; mode {
	case "first":
		fmt.Println(gotorch.Item[float64](gotorch.Ones([]int64{1})))
	case "memory":
		report(memory())
	case "parallel":
		report(parallel())
	case "handles":
		report(handles())
	case "module":
		report(module())
	case "steps":
		report(memoryOf(os.Args[2], os.Args[3]))
	case "losses":
		losses(os.Args[2], os.Args[3:])
	case "load":
		serve(loading(os.Args[2]))
	case "pictures":
		if err := drawPictures(os.Args[2]); err != nil {
			panic(err)
		}
	case "loaded":
		loaded(os.Args[2], os.Args[3:])
	case "ranks":
		ranks(os.Args[2:])
	case "first_ranks":
		firstOfRanks(os.Args[2:])
	case "sharded":
		report(sharded(os.Args[2:]))
	case "exchanged":
		report(exchanged(os.Args[2:]))
	case "train_gc", "train_scope":
		serve(training(mode == "train_scope"))
	default:
		serve(functions(mode))
	}
}

func report(figures map[string]float64) {
	if err := json.NewEncoder(os.Stdout).Encode(figures); err != nil {
		panic(err)
	}
}

// repeat runs body n times as the mode wants it: what one iteration made is dead after it.
type repeat func(n int, body func() []gotorch.Tensor)

var modes = map[string]repeat{
	"gc": func(n int, body func() []gotorch.Tensor) {
		for range n {
			body()
		}
	},
	"scope": func(n int, body func() []gotorch.Tensor) {
		for n > 0 {
			some := min(n, 100)
			gotorch.Scope0(func(*gotorch.ScopeHandle) {
				for range some {
					body()
				}
			})
			n -= some
		}
	},
	"close": func(n int, body func() []gotorch.Tensor) {
		for range n {
			for _, t := range body() {
				t.Close()
			}
		}
	},
}

// functions are the loops of a mode by name.
func functions(mode string) func(name string) func(n int) {
	run, ok := modes[mode]
	if !ok {
		fmt.Fprintln(os.Stderr, "no mode", mode)
		os.Exit(2)
	}
	gotorch.SetNumThreads(1)
	cases := tiny(mode)
	if mode != "close" {
		for name, body := range steps() {
			cases[name] = func(n int) { run(n, body) }
		}
		for name, body := range forwards() {
			// As in the other languages, the mode is entered once for the loop.
			cases[name] = func(n int) { gotorch.NoGrad(func() { run(n, body) }) }
		}
	}
	return func(name string) func(n int) { return cases[name] }
}

func serve(find func(name string) func(n int)) {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		name, count, _ := strings.Cut(in.Text(), " ")
		n, err := strconv.Atoi(count)
		if err != nil {
			panic(err)
		}
		body := find(name)
		if body == nil {
			fmt.Println("none")
			continue
		}
		wall, cpu := time.Now(), cpuTime()
		body(n)
		fmt.Println(time.Since(wall).Nanoseconds(), (cpuTime() - cpu).Nanoseconds())
	}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// tiny has the loops written out, as a user would write them, without a call through a function
// value in between.
func tiny(mode string) map[string]func(int) {
	gotorch.ManualSeed(0)
	a := gotorch.Randn([]int64{2, 2})
	b := gotorch.Randn([]int64{2, 2})
	switch mode {
	case "close":
		return map[string]func(int){
			"add": func(n int) {
				for range n {
					a.Add(b).Close()
				}
			},
			"mm": func(n int) {
				for range n {
					a.MM(b).Close()
				}
			},
			"relu": func(n int) {
				for range n {
					a.ReLU().Close()
				}
			},
			"transpose": func(n int) {
				for range n {
					a.Transpose(0, 1).Close()
				}
			},
		}
	}
	plain := map[string]func(int){
		"add": func(n int) {
			for range n {
				a.Add(b)
			}
		},
		"mm": func(n int) {
			for range n {
				a.MM(b)
			}
		},
		"relu": func(n int) {
			for range n {
				a.ReLU()
			}
		},
		"transpose": func(n int) {
			for range n {
				a.Transpose(0, 1)
			}
		},
	}
	if mode == "gc" {
		return plain
	}
	scoped := map[string]func(int){}
	for name, body := range plain {
		scoped[name] = func(n int) {
			for n > 0 {
				some := min(n, 100)
				gotorch.Scope0(func(*gotorch.ScopeHandle) { body(some) })
				n -= some
			}
		}
	}
	return scoped
}

func mlp() *nn.SequentialModule {
	return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
}

func forwards() map[string]func() []gotorch.Tensor {
	model := mlp()
	infer := func(x gotorch.Tensor) func() []gotorch.Tensor {
		return func() []gotorch.Tensor {
			model.Forward(x)
			return nil
		}
	}
	return map[string]func() []gotorch.Tensor{
		"mlp_forward_1":  infer(gotorch.Randn([]int64{1, 784})),
		"mlp_forward_64": infer(gotorch.Randn([]int64{64, 784})),
	}
}

func steps() map[string]func() []gotorch.Tensor {
	x, images := gotorch.Randn([]int64{64, 784}), gotorch.Randn([]int64{64, 1, 28, 28})
	y := gotorch.Randint(10, []int64{64})
	step := func(model *nn.SequentialModule, opt optim.Optimizer, x gotorch.Tensor) func() []gotorch.Tensor {
		return func() []gotorch.Tensor {
			opt.ZeroGrad()
			F.CrossEntropy(model.Forward(x), y).Backward()
			opt.Step()
			return nil
		}
	}
	bySGD := func(model *nn.SequentialModule, x gotorch.Tensor) func() []gotorch.Tensor {
		return step(model, optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.01}), x)
	}
	cnn := nn.Sequential(
		nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
		nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
		nn.Linear(1600, 128), nn.ReLU(), nn.Linear(128, 10),
	)
	adam := mlp()
	return map[string]func() []gotorch.Tensor{
		"mlp_step_64": bySGD(mlp(), x),
		"mlp_adam_64": step(adam, optim.Adam(adam.Parameters()), x),
		"cnn_step_64": bySGD(cnn, images),
	}
}

// residentMB reads the process's resident memory.
func residentMB() float64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		panic(err)
	}
	pages, err := strconv.ParseFloat(strings.Fields(string(text))[1], 64)
	if err != nil {
		panic(err)
	}
	return pages * float64(os.Getpagesize()) / (1 << 20)
}

// memory makes 20,000 tensors of 1 MB without freeing one, in turn with the same loop that closes
// each, and reports how far resident memory grew and how fast it went beside the closing loop: with
// the threads that an op has by default, and with one. The loop that closes always writes to the
// same memory, which stays in the nearest cache; "late", which closes each 32 tensors later, shows
// what is lost by that alone.
func memory() map[string]float64 {
	const rounds, each = 10, 2000
	size := []int64{1 << 18}
	timed := func(body func(i int)) float64 {
		start := time.Now()
		for i := range each {
			body(i)
		}
		return time.Since(start).Seconds()
	}
	var ring [32]gotorch.Tensor
	closing := func(int) { gotorch.Ones(size).Close() }
	collecting := func(int) { gotorch.Ones(size) }
	late := func(i int) {
		ring[i%len(ring)].Close()
		ring[i%len(ring)] = gotorch.Ones(size)
	}
	timed(closing)
	base, peak := residentMB(), 0.0
	var speeds, speedsOne, lates []float64
	for range rounds {
		one := timed(closing)
		speeds = append(speeds, one/timed(collecting))
		peak = max(peak, residentMB())
	}
	gotorch.SetNumThreads(1)
	for range rounds {
		one := timed(closing)
		speedsOne = append(speedsOne, one/timed(collecting))
		lates = append(lates, one/timed(late))
	}
	return map[string]float64{
		"grown_mb": peak - base, "speed": median(speeds), "speed_one": median(speedsOne), "late": median(lates),
	}
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// parallel compares 32 goroutines of large matmuls with the same work one after the other.
func parallel() map[string]float64 {
	const goroutines, each = 32, 4
	a := gotorch.Randn([]int64{512, 512})
	work := func() {
		for range each {
			a.MM(a).Close()
		}
	}
	work()
	var ratios []float64
	for range 5 {
		start := time.Now()
		for range goroutines {
			work()
		}
		one := time.Since(start)
		start = time.Now()
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(work)
		}
		wg.Wait()
		ratios = append(ratios, one.Seconds()/time.Since(start).Seconds())
	}
	return map[string]float64{"speedup": median(ratios)}
}

// handles times a collection while a million handles live.
func handles() map[string]float64 {
	a := gotorch.Ones([]int64{1})
	keep := make([]gotorch.Tensor, 1_000_000)
	for i := range keep {
		keep[i] = a.View([]int64{1})
	}
	runtime.GC()
	var took []float64
	for range 5 {
		start := time.Now()
		runtime.GC()
		took = append(took, float64(time.Since(start).Microseconds())/1000)
	}
	runtime.KeepAlive(keep)
	return map[string]float64{"gc_ms": median(took)}
}
