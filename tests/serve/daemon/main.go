// Daemon is a program with models of its own on package daemon, for tests/serve/test_daemon.py: digits, which it learns when
// it starts, and some others for what a page shows.
package main

import (
	"context"
	"os"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/mnist"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/serve"
	"gotorch.dev/gotorch/serve/daemon"
	"gotorch.dev/gotorch/train"
)

func main() { os.Exit(daemon.Main(daemon.Options{Name: "tested", Version: "7", Setup: setup})) }

func spec(name string, t serve.DataType, shape ...int64) serve.Spec {
	return serve.Spec{Name: name, Type: t, Shape: shape}
}

func setup(ctx context.Context, srv *serve.Server) error {
	gotorch.ManualSeed(1)
	digits, err := mnist.OpenSample(os.Getenv("DIGITS"))
	if err != nil {
		return err
	}
	net := nn.Sequential(nn.Flatten(), nn.Linear(28*28, 96), nn.ReLU(), nn.Linear(96, 10))
	loader := data.NewLoader(digits.Shift(2), data.LoaderOptions{BatchSize: 64, Shuffle: true})
	loop := train.NewLoop(net, optim.AdamW(net.Parameters(), optim.AdamWOptions{LR: 3e-3}), nn.CrossEntropyLoss())
	if _, err := loop.Run(ctx, loader, train.Epochs(4)); err != nil {
		return err
	}
	net.Eval()
	read := serve.FromModel(func(x gotorch.Tensor) gotorch.Tensor { return net.Forward(x).Softmax(1) }, serve.Signature{
		Inputs: []serve.Spec{spec("image", serve.FP32, -1, 1, 28, 28)}, Outputs: []serve.Spec{spec("digit", serve.FP32, -1, 10)}})
	for _, version := range []serve.Version{"1", "2"} {
		if err := srv.Add("digits", read, version, serve.Batching{Max: 64}); err != nil {
			return err
		}
	}
	colour := serve.FromModel(func(x gotorch.Tensor) gotorch.Tensor {
		return x.To(gotorch.Float32).MeanDim([]int64{2, 3})
	}, serve.Signature{Inputs: []serve.Spec{spec("picture", serve.UINT8, -1, 3, 8, 8)}, Outputs: []serve.Spec{spec("mean", serve.FP32, -1, 3)}})
	if err := srv.Add("colour", colour); err != nil {
		return err
	}
	shout := serve.NewModel(serve.Signature{Inputs: []serve.Spec{spec("texts", serve.BYTES, -1), spec("times", serve.INT64, 1), spec("loud", serve.BOOL, 1)},
		Outputs: []serve.Spec{spec("texts", serve.BYTES, -1), spec("nothing", serve.FP32, 2)}},
		func(_ context.Context, in *serve.Request) ([]serve.Value, error) {
			texts := in.Input("texts")
			for i := range texts.Bytes {
				if gotorch.Item[bool](in.Input("loud").Tensor) {
					texts.Bytes[i] = append(texts.Bytes[i : i+1 : i+1][0], '!')
				}
			}
			return []serve.Value{texts, {Tensor: gotorch.Zeros([]int64{2}).Div(gotorch.Zeros([]int64{2}))}}, nil
		})
	if err := srv.Add("<img src=x onerror=alert(1)>", shout); err != nil { // a name is only ever text
		return err
	}
	if err := srv.Add("idle", read); err != nil {
		return err
	}
	return srv.Unload(ctx, "idle", "")
}
