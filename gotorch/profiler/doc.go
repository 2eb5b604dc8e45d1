// Package profiler records what PyTorch's functions take: which are called, by which goroutine and from which line, for
// how long, with which shapes, how much memory they allocate, and which of a backward pass belong to which of the
// forward pass. It is torch.profiler.
//
//	trace := profiler.Profile(func(*profiler.Profiler) {
//		loss := nn.Call(model, x).Sum()
//		loss.Backward()
//	}, profiler.Options{RecordShapes: true, ProfileMemory: true})
//	fmt.Println(trace.KeyAverages())              // a table of the most expensive functions
//	err := trace.ExportChromeTrace("trace.json.gz") // for https://ui.perfetto.dev or chrome://tracing
//
// The names are PyTorch's, "aten::mm", and beside them stand those of Go, "MM". A profile records all goroutines, each
// in a lane of its own; [Do] gives a lane a name. [RecordFunction] marks a part of the program, and costs a nanosecond
// where nobody records. Options.Modules has the modules of a model as such parts.
//
// A long run is looked at for some steps only. [Schedule] says which, and Step where one ends:
//
//	p := profiler.New(profiler.Options{
//		Schedule: profiler.Schedule(profiler.ScheduleOptions{Wait: 10, Warmup: 1, Active: 3, Repeat: 1}),
//		OnTraceReady: func(t *profiler.Trace) error { return t.ExportChromeTrace("step.json") },
//	})
//	loop.Profile(p) // a train.Loop starts it, calls Step, and stops it
//
// Functions fail as torch.profiler's do: what cannot be started twice returns a RuntimeError.
package profiler
