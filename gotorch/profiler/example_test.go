package profiler_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/profiler"
)

func Example() {
	x, w := gotorch.Ones([]int64{32, 8}), gotorch.Ones([]int64{8, 4})
	trace := profiler.Profile(func(*profiler.Profiler) {
		for range 3 {
			profiler.RecordFunction("layer", func() { x.MM(w).ReLU() })
		}
	}, profiler.Options{RecordShapes: true, WithFLOPs: true})

	for _, row := range trace.KeyAverages(profiler.KeyAveragesOptions{GroupByInputShape: true}).Rows {
		if row.Key == "aten::mm" || row.Kind == profiler.Range {
			fmt.Println(row.Key, row.Go, row.Count, row.Shapes, row.FLOPs)
		}
	}

	dir, _ := os.MkdirTemp("", "")
	defer os.RemoveAll(dir)
	fmt.Println(trace.ExportChromeTrace(filepath.Join(dir, "trace.json.gz")))
	// Output:
	// layer  3 [] 0
	// aten::mm MM 3 [[32 8] [8 4]] 6144
	// <nil>
}

func ExampleSchedule() {
	p := profiler.New(profiler.Options{
		Schedule: profiler.Schedule(profiler.ScheduleOptions{Wait: 2, Warmup: 1, Active: 2, Repeat: 1}),
		OnTraceReady: func(t *profiler.Trace) error {
			for _, e := range t.Events() {
				if e.Kind == profiler.Step {
					fmt.Println(e.Name)
				}
			}
			return nil
		},
	})
	if err := p.Start(); err != nil {
		panic(err)
	}
	for range 10 {
		gotorch.Ones([]int64{2}).Neg()
		if err := p.Step(); err != nil {
			panic(err)
		}
	}
	if err := p.Stop(); err != nil {
		panic(err)
	}
	// Output:
	// ProfilerStep#3
	// ProfilerStep#4
}

func ExampleTrace_Events() {
	w := gotorch.Ones([]int64{2, 2}, gotorch.TensorOptions{RequiresGrad: true})
	trace := profiler.Profile(func(*profiler.Profiler) { w.Exp().Sum().Backward() })
	for _, e := range trace.Events() {
		if e.Forward != nil && !strings.HasPrefix(e.Name, "autograd::engine") {
			fmt.Println(e.Name, "belongs to", e.Forward.Name, "by", e.Forward.Go)
		}
	}
	// Output:
	// SumBackward0 belongs to aten::sum by Sum
	// ExpBackward0 belongs to aten::exp by Exp
}
