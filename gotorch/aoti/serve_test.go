package aoti_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/aoti"
	"gotorch.dev/gotorch/serve"
)

// Here and not in package serve, because here is a package to test with.
func TestAServerRunsThePackage(t *testing.T) {
	direct := open(t)
	m, err := aoti.Load("model.pt2")
	if err != nil {
		t.Fatal(err)
	}
	srv := serve.New(serve.Options{Log: slog.New(slog.DiscardHandler)})
	served := serve.FromAOTI(m)
	for _, out := range served.Signature().Outputs {
		if out.Type != "" {
			t.Errorf("the type of %v is known, which the package does not say", out)
		}
	}
	if err := srv.Add("net", served); err != nil {
		t.Fatal(err)
	}
	ask := func(in ...gotorch.Tensor) ([]serve.Value, error) {
		r := serve.InferRequest{Model: "net"}
		for i, name := range []string{"0", "1", "temperature"}[:len(in)] {
			r.Inputs = append(r.Inputs, serve.Value{Name: name, Tensor: in[i]})
		}
		return srv.Infer(context.Background(), r)
	}
	for _, n := range []int64{1, 3, 64} {
		in := example(n)
		got, err := ask(in...)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range direct.Run(in...) {
			if name := direct.Outputs()[i]; got[i].Name != name || !got[i].Tensor.Equal(want) {
				t.Errorf("with %d rows: %s is %v, want %s: %v", n, got[i].Name, got[i].Tensor, name, want)
			}
		}
	}
	wide := example(2)
	wide[0] = gotorch.Randn([]int64{2, 9})
	for what, in := range map[string][]gotorch.Tensor{
		"too many rows":       example(65),
		"rows that differ":    {example(2)[0], example(3)[1], example(2)[2]},
		"another width":       wide,
		"a missing input":     example(2)[:2],
		"another dtype":       {example(2)[0].To(gotorch.Float64), example(2)[1], example(2)[2]},
		"another temperature": {example(2)[0], example(2)[1], gotorch.Ones([]int64{1})},
	} {
		if _, err := ask(in...); !errors.Is(err, serve.InvalidArgument) {
			t.Errorf("%s: %v", what, err)
		}
	}
	// Its temperature has no rows that could be joined.
	other, err := aoti.Load("model.pt2")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := srv.Add("joined", serve.FromAOTI(other), serve.Batching{Max: 8}); !errors.Is(err, serve.InvalidArgument) {
		t.Errorf("joined: %v", err)
	}
	if err := gotorch.Try0(func() { serve.FromAOTI(other, serve.Spec{Name: "p"}) }); !errors.Is(err, gotorch.ValueError) {
		t.Errorf("one output of two: %v", err)
	}
	if err := srv.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	wantError(t, gotorch.Try0(func() { m.Run(example(1)...) }), gotorch.ValueError, "used after Close")
}
