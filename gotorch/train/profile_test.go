package train_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/internal/ctorch"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/profiler"
	"gotorch.dev/gotorch/train"
)

func TestALoopTellsAProfilerOfItsSteps(t *testing.T) {
	x := gotorch.Ones([]int64{8, 2})
	batches := data.NewLoader(data.NewTensorDataset(x, x), data.LoaderOptions{BatchSize: 1})
	model := nn.Linear(2, 2)
	loop := func(p train.Profiler) *train.Loop {
		l := train.NewLoop(model, optim.SGD(model.Parameters()), nn.MSELoss())
		l.Profile(p)
		return l
	}
	steps := profiler.Schedule(profiler.ScheduleOptions{Wait: 1, Warmup: 1, Active: 2, Repeat: 1})
	p := profiler.New(profiler.Options{Schedule: steps})
	l := loop(p)
	for range 2 { // each run is one profile
		_, err := l.Run(context.Background(), batches, train.Epochs(1))
		testhelp.Must(t, err)
		var names []string
		for _, e := range p.Trace().Events() {
			if e.Kind == profiler.Step {
				names = append(names, e.Name)
			}
		}
		if !slices.Equal(names, []string{"ProfilerStep#2", "ProfilerStep#3"}) {
			t.Errorf("%q", names)
		}
		nodes := 0
		for _, e := range p.Trace().Events() {
			if e.Name == "AddmmBackward0" && e.Forward != nil && e.Parent.Parent.Kind == profiler.Step {
				nodes++
			}
		}
		if nodes != 2 {
			t.Errorf("%d nodes of the layer", nodes)
		}
	}

	full := errors.New("the disk is full")
	failing := profiler.New(profiler.Options{Schedule: steps, OnTraceReady: func(*profiler.Trace) error { return full }})
	if history, err := loop(failing).Run(context.Background(), batches, train.Epochs(1)); !errors.Is(err, full) || len(history.Losses) != 4 {
		t.Errorf("%v after %d steps", err, len(history.Losses))
	}
	started := profiler.New()
	testhelp.Must(t, started.Start())
	if history, err := loop(started).Run(context.Background(), batches, train.Epochs(1)); !errors.Is(err, gotorch.RuntimeError) || len(history.Losses) != 0 {
		t.Errorf("%v after %d steps", err, len(history.Losses))
	}
	testhelp.Must(t, started.Stop())

	// The run may end by a panic.
	func() {
		defer func() { recover() }()
		l := loop(profiler.New())
		l.OnStep(func(*train.Step) error { panic("so") })
		l.Run(context.Background(), batches, train.Epochs(1))
	}()
	if ctorch.Profiling() {
		t.Error("a profile is still there")
	}
	if err := gotorch.Try0(func() { loop(nil) }); !errors.Is(err, gotorch.TypeError) {
		t.Error(err)
	}
}
