package jit_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/serve"
)

// Here and not in package serve, because here are scripts to test with.
func TestAServerCallsTheScript(t *testing.T) {
	direct, m := load(t, "net.pt"), load(t, "net.pt")
	m.Train(true)
	srv := serve.New(serve.Options{Log: slog.New(slog.DiscardHandler)})
	spec := serve.Signature{
		Inputs:  []serve.Spec{{Name: "x", Type: serve.FP32, Shape: []int64{-1, 3}}},
		Outputs: []serve.Spec{{Name: "logits", Type: serve.FP32, Shape: []int64{-1, 2}}},
	}
	if err := srv.Add("net", serve.FromTorchScript(m, spec), serve.Batching{Max: 8}); err != nil {
		t.Fatal(err)
	}
	ask := func(model string, in ...serve.Value) ([]serve.Value, error) {
		return srv.Infer(context.Background(), serve.InferRequest{Model: model, Inputs: in})
	}
	for _, n := range []int64{1, 3, 8} {
		x := gotorch.Randn([]int64{n, 3})
		got, err := ask("net", serve.Value{Name: "x", Tensor: x})
		if err != nil {
			t.Fatal(err)
		}
		if got[0].Name != "logits" || !got[0].Tensor.Equal(direct.Forward(x)) {
			t.Errorf("%s: %v, want %v", got[0].Name, got[0].Tensor, direct.Forward(x))
		}
	}
	if _, err := ask("net", serve.Value{Name: "x", Tensor: gotorch.Ones([]int64{1, 4})}); !errors.Is(err, serve.InvalidArgument) {
		t.Error(err)
	}
	// The script says neither type nor shape of what it takes, and of what it returns only that it is a tensor.
	if err := gotorch.Try0(func() { serve.FromTorchScript(load(t, "net.pt")) }); !errors.Is(err, gotorch.TypeError) || !strings.Contains(err.Error(), `"x" of forward is Tensor and has no default: give a Signature`) {
		t.Error(err)
	}
	plain := serve.FromTorchScript(load(t, "net.pt"), serve.Signature{Inputs: []serve.Spec{{Name: "x", Type: serve.FP64}}})
	if outputs := plain.Signature().Outputs; len(outputs) != 1 || outputs[0].String() != "output ?[...]" {
		t.Error(outputs)
	}

	served := serve.Signature{
		Inputs: []serve.Spec{
			{Name: "words", Type: serve.BYTES, Shape: []int64{-1}},
			{Name: "x", Type: serve.FP32, Shape: []int64{-1}}, {Name: "times", Type: serve.INT32, Shape: []int64{1}},
		},
		Outputs: []serve.Spec{{Name: "length", Type: serve.INT64, Shape: []int64{1}}, {Name: "y", Type: serve.FP32, Shape: []int64{-1}}},
	}
	if err := srv.Add("served", serve.FromTorchScript(load(t, "served.pt"), served)); err != nil {
		t.Fatal(err)
	}
	got, err := ask("served", serve.NewTexts("words", []string{"ab", "c"}), serve.Value{Name: "x", Tensor: gotorch.Ones([]int64{2})},
		serve.Value{Name: "times", Tensor: gotorch.FromSlice([]int32{5}, 1)})
	if err != nil {
		t.Fatal(err)
	}
	if gotorch.Item[int64](got[0].Tensor) != 4 || !got[1].Tensor.Equal(gotorch.Full([]int64{2}, 5)) {
		t.Error(got)
	}
	for name, s := range map[string][]serve.Signature{
		"a dict is returned": nil, "two": {served, served},
		"no such input": {{Inputs: []serve.Spec{{Name: "z", Type: serve.FP32}}}},
		"a text":        {{Inputs: []serve.Spec{{Name: "x", Type: serve.BYTES}}}},
		"no text":       {{Inputs: []serve.Spec{{Name: "words", Type: serve.FP32}}}},
		"x is missing":  {{Inputs: []serve.Spec{{Name: "times", Type: serve.INT32}}}},
	} {
		if err := gotorch.Try0(func() { serve.FromTorchScript(load(t, "served.pt"), s...) }); !errors.Is(err, gotorch.TypeError) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := srv.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := gotorch.Try0(func() { m.Forward(gotorch.Ones([]int64{1, 3})) }); !errors.Is(err, gotorch.ValueError) {
		t.Errorf("the module is open: %v", err)
	}
}
