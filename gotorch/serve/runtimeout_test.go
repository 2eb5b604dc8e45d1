package serve_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/serve"
)

func TestARunThatTakesTooLongIsAnswered(t *testing.T) {
	for _, instances := range []int{1, 2} {
		srv := serve.New(serve.Options{RunTimeout: time.Hour})
		release := make(chan struct{})
		ended := make(chan error, 10)
		model := serve.NewModel(serve.Signature{Inputs: []serve.Spec{{Name: "x", Type: serve.FP32}}, Outputs: []serve.Spec{{Name: "y", Type: serve.FP32}}},
			func(ctx context.Context, in *serve.Request) ([]serve.Value, error) {
				if gotorch.Item[float32](in.Inputs[0].Tensor) == 1 {
					<-ctx.Done()
					ended <- ctx.Err()
					<-release // it does not care
				}
				return []serve.Value{{Tensor: in.Inputs[0].Tensor.MulScalar(2)}}, nil
			})
		testhelp.Must(t, srv.Add("m", model, serve.Instances(instances), serve.RunTimeout(300*time.Millisecond)))
		ask := func(x float32) error {
			input := gotorch.FromSlice([]float32{x}, 1)
			defer input.Close()
			out, err := srv.Infer(context.Background(), serve.InferRequest{Model: "m", Inputs: []serve.Value{{Name: "x", Tensor: input}}})
			for _, o := range out {
				o.Tensor.Close()
			}
			return err
		}
		testhelp.Must(t, ask(3))
		for i := range instances {
			if !srv.Ready("m", "") {
				t.Errorf("%d of %d instances hang, and the model is not ready", i, instances)
			}
			var all sync.WaitGroup
			all.Go(func() {
				if err := ask(1); !errors.Is(err, serve.DeadlineExceeded) {
					t.Errorf("a run that hangs: %v", err)
				}
			})
			if i == instances-1 { // what waits does not wait for ever
				time.Sleep(100 * time.Millisecond)
				if err := ask(2); !errors.Is(err, serve.Unavailable) {
					t.Errorf("a request that waits for an instance: %v", err)
				}
			}
			all.Wait()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("the context of the run: %v", err)
			}
		}
		soon(t, "not ready", func() bool { return !srv.Ready("m", "") && !srv.IsReady() })
		if err := ask(2); !errors.Is(err, serve.Unavailable) {
			t.Errorf("a request to a model that hangs: %v", err)
		}
		close(release)
		soon(t, "ready again", func() bool { return srv.Ready("m", "") && srv.IsReady() })
		testhelp.Must(t, ask(4))
		testhelp.Must(t, srv.Close(context.Background()))
	}
	srv := newServer(t)
	if err := srv.Add("m", serve.FromModel(double), serve.RunTimeout(0)); !errors.Is(err, serve.InvalidArgument) {
		t.Errorf("no time to run: %v", err)
	}
}

// A run that hangs keeps its sequence: what waits for it there, and what comes, is refused until it returns; other sequences
// go on with other instances.
func TestASequenceWhoseRunTakesTooLongRefuses(t *testing.T) {
	srv := newServer(t)
	runs, release := make(chan struct{}, 10), make(chan struct{})
	model := serve.NewModel(serve.FromModel(double).Signature(), func(_ context.Context, in *serve.Request) ([]serve.Value, error) {
		if gotorch.Item[float32](in.Inputs[0].Tensor) == 1 {
			runs <- struct{}{}
			<-release
		}
		in.Sequences[0].State = struct{}{}
		return []serve.Value{{Tensor: in.Inputs[0].Tensor}}, nil
	})
	testhelp.Must(t, srv.Add("m", model, serve.Instances(2), serve.Sequences{}, serve.RunTimeout(500*time.Millisecond)))
	ask := func(id string, x float32, start bool) error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		input := gotorch.FromSlice([]float32{x}, 1)
		defer input.Close()
		out, err := srv.Infer(ctx, serve.InferRequest{Model: "m", Inputs: []serve.Value{{Name: "input", Tensor: input}},
			Parameters: serve.Parameters{"sequence_id": id, "sequence_start": start}})
		for _, o := range out {
			o.Tensor.Close()
		}
		return err
	}
	testhelp.Must(t, errors.Join(ask("a", 2, true), ask("b", 2, true)))
	var all sync.WaitGroup
	all.Go(func() {
		if err := ask("a", 1, false); !errors.Is(err, serve.DeadlineExceeded) {
			t.Errorf("a run that hangs: %v", err)
		}
	})
	<-runs
	for range 5 {
		all.Go(func() {
			if err := ask("a", 2, false); !errors.Is(err, serve.Unavailable) {
				t.Errorf("a request that waits for the run: %v", err)
			}
		})
	}
	all.Wait()
	if err := ask("a", 2, false); !errors.Is(err, serve.Unavailable) {
		t.Errorf("a request that comes: %v", err)
	}
	testhelp.Must(t, ask("b", 2, false))
	close(release)
	soon(t, "the sequence goes on", func() bool { return ask("a", 2, false) == nil })
	// A run that ends in the moment when it is overdue does not stop its sequence for ever.
	testhelp.Must(t, errors.Join(ask("a", 2, false), ask("b", 2, false)))
}
