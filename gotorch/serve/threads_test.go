package serve_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/serve"
)

// threadsAsked is how many were last asked for: they stay with the system's thread that ran the op.
var threadsAsked = 0

// An op of 4M elements has work for many threads. How many run it is seen in the process, where OpenMP keeps them.
func TestAnOpOfAModelUsesAsManyThreadsAsItMay(t *testing.T) {
	tasks := func() int {
		found, err := os.ReadDir("/proc/self/task")
		testhelp.Must(t, err)
		return len(found)
	}
	run := func(threads int) (made int, says, after int) {
		srv := serve.New()
		defer srv.Close(context.Background())
		before := tasks()
		model := serve.FromModel(func(x gotorch.Tensor) gotorch.Tensor {
			y := gotorch.Ones([]int64{1 << 22}).Sin()
			made, says = tasks()-before, gotorch.NumThreads()
			return y.Sum().Add(x)
		})
		testhelp.Must(t, srv.Add("m", model, serve.Threads(threads)))
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			_, err := srv.Infer(t.Context(), serve.InferRequest{Model: "m", Inputs: []serve.Value{{Name: "input", Tensor: gotorch.Ones([]int64{1})}}})
			testhelp.Must(t, err)
		})
		return made, says, gotorch.NumThreads()
	}
	threads := gotorch.NumThreads()
	one, says, after := run(1)
	if says != 1 || after != threads {
		t.Errorf("with one thread NumThreads says %d, and then %d, where %d is for all", says, after, threads)
	}
	threadsAsked += 16
	asked := threadsAsked
	sixteen, says, after := run(asked)
	// Go itself may start some threads meanwhile.
	if one > 8 || sixteen < one+8 || says != asked || after != threads {
		t.Errorf("one thread made %d, and %d made %d, with %d said; then there are %d for each op, and were %d", one, asked, sixteen,
			says, after, threads)
	}
	for _, wrong := range []serve.Threads{0, -1, 1025} {
		err := serve.New().Add("m", serve.FromModel(gotorch.Tensor.Sin), wrong)
		if !errors.Is(err, serve.InvalidArgument) {
			t.Errorf("Threads(%d): %v", wrong, err)
		}
	}
}
