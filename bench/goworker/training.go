package main

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"time"

	"gotorch.dev/bench/models"
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
)

// training has cases named as for [models.Step], with a number of threads or a device: "lstm_12_fused_2", "lstm_12_fused_cuda".
// Each step is in a Scope, or left to the collector.
func training(scoped bool) func(name string) func(n int) {
	// A loop that computes stays on its thread, as train.Loop does: OpenMP has a team for each.
	runtime.LockOSThread()
	made := map[string]func() gotorch.Tensor{}
	return func(name string) func(n int) {
		at := strings.LastIndexByte(name, '_')
		threads, device := 1, gotorch.CPU
		key := name[:at]
		if n, err := strconv.Atoi(name[at+1:]); err == nil {
			threads = n
		} else if device, err = gotorch.ParseDevice(name[at+1:]); err != nil {
			panic(err)
		} else {
			key = name
		}
		step := made[key]
		if step == nil {
			step = models.Step(name[:at], device)
			made[key] = step
		}
		gotorch.SetNumThreads(threads)
		return func(n int) {
			defer gotorch.Synchronize(device)
			for range n {
				if scoped {
					gotorch.Scope0(func(*gotorch.ScopeHandle) { step() })
				} else {
					step()
				}
			}
		}
	}
}

// losses prints what the steps of models return, so that it can be seen that others do the same.
func losses(count string, names []string) {
	n, err := strconv.Atoi(count)
	if err != nil {
		panic(err)
	}
	gotorch.SetNumThreads(1)
	for _, name := range names {
		step := models.Step(name)
		for range n {
			fmt.Println(strconv.FormatFloat(gotorch.Item[float64](step()), 'x', -1, 64))
		}
	}
}

// memoryOf trains a model without freeing anything, and reports how memory went on.
func memoryOf(name, count string) map[string]float64 {
	n, err := strconv.Atoi(count)
	if err != nil {
		panic(err)
	}
	runtime.LockOSThread()
	gotorch.SetNumThreads(1)
	device := gotorch.CPU
	if rest, on := strings.CutSuffix(name, "_cuda"); on {
		name, device = rest, gotorch.CUDA(0)
	}
	growth := models.Train(models.Step(name, device), n, residentMB)
	if device != gotorch.CPU {
		stats := gotorch.DeviceMemoryStats(device)
		return map[string]float64{"handles": float64(growth.Handles), "grown_mb": growth.Resident,
			"device_peak_mb": float64(stats.Allocated.Peak) / 1e6, "device_mb": float64(stats.Allocated.Current) / 1e6}
	}
	return map[string]float64{"grown_mb": growth.Resident, "peak_mb": growth.Peak, "handles": float64(growth.Handles)}
}

// module is what a layer takes beyond the function that it calls, in nanoseconds, without a graph and in one.
func module() map[string]float64 {
	gotorch.SetNumThreads(1)
	x := gotorch.Randn([]int64{2, 2})
	linear, relu := nn.Linear(2, 2), nn.ReLU()
	each := map[string][2]func(){
		"linear": {
			func() { linear.Forward(x) },
			func() { gotorch.Linear(x, linear.Weight, gotorch.LinearOptions{Bias: linear.Bias}) },
		},
		"relu": {func() { relu.Forward(x) }, func() { F.ReLU(x) }},
	}
	const rounds, some, iterations = 40, 200, 100
	timed := func(body func()) float64 {
		start := time.Now()
		for range some {
			gotorch.Scope0(func(*gotorch.ScopeHandle) {
				for range iterations {
					body()
				}
			})
		}
		return float64(time.Since(start).Nanoseconds()) / (some * iterations)
	}
	figures := map[string]float64{}
	for name, both := range each {
		var more []float64
		timed(both[0])
		for range rounds {
			more = append(more, timed(both[0])-timed(both[1]))
		}
		figures[name] = median(more)
	}
	return figures
}
