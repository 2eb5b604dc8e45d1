// Distributed trains the network of examples/digits with several processes, which torchrun starts, and starts again
// where one dies:
//
//	go build -o build/ddp ./examples/distributed
//	.venv/bin/torchrun --no-python --standalone --nproc-per-node=2 --max-restarts=3 build/ddp
//
// With -shard each process keeps a part of the network, and none the whole.
//
// SIGTERM to torchrun, or Ctrl-C, saves and leaves; the same command goes on. Without torchrun it is a job of one process:
//
//	go run ./examples/distributed
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/mnist"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/train"
	"gotorch.dev/gotorch/train/plot"
)

func main() {
	sample := flag.String("sample", ".venv/share/digits/mnist_5k.csv.gz", "`file` with 5,000 digits, which make fetches")
	out := flag.String("out", "build/ddp-run", "`folder` for checkpoints and the log")
	epochs := flag.Int("epochs", 6, "how often to go through the digits")
	shard := flag.Bool("shard", false, "keep a part of the network in each process, and the whole in none")
	flag.Parse()
	if err := run(*sample, *out, *epochs, *shard); err != nil {
		fmt.Fprintln(os.Stderr, "distributed:", err)
		os.Exit(1)
	}
}

func run(sample, out string, epochs int, shard bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var job distributed.Options // what torchrun says
	if os.Getenv("RANK") == "" {
		job = distributed.Options{InitMethod: "tcp://127.0.0.1:0", Rank: 0, WorldSize: 1}
	}
	world, err := distributed.Init(ctx, job)
	if err != nil {
		return err
	}
	defer world.Close()

	all, err := mnist.OpenSample(sample)
	if err != nil {
		return err
	}
	trainSet, testSet := all.Split(5)

	// Dropout differs between the ranks. The parameters are rank 0's, which all get.
	gotorch.ManualSeed(uint64(world.Rank()))
	net := nn.Sequential(
		nn.Conv2d(1, 16, 5), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
		nn.Conv2d(16, 32, 5), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
		nn.Flatten(), nn.Dropout(0.3), nn.Linear(32*4*4, 10),
	)
	var model nn.Layer
	if shard {
		model = distributed.FullyShard(net, distributed.FullyShardOptions{Group: world})
	} else {
		parallel := distributed.DataParallel(net, distributed.DataParallelOptions{Group: world})
		defer parallel.Close()
		model = parallel
	}

	// Each rank has its part of each epoch's digits, 64 in a batch of all ranks.
	loader := data.NewLoader(trainSet, data.LoaderOptions{
		BatchSize: max(1, 64/world.Size()), Sampler: data.DistributedSampler(trainSet, world.Size(), world.Rank()),
	})
	loop := train.NewLoop(model, optim.AdamW(model.Parameters(), optim.AdamWOptions{LR: 2e-3}), nn.CrossEntropyLoss())
	loop.Distributed(world)
	loop.OnEpoch(train.Validate(testSet, train.Accuracy))
	loop.Checkpoints(out, train.CheckpointsOptions{Steps: 10, Resume: true})
	loop.Log(train.CSVLog(filepath.Join(out, "log.csv")))
	loop.Progress(os.Stderr)

	history, err := loop.Run(ctx, loader, train.Epochs(epochs))
	if errors.Is(err, context.Canceled) {
		if world.Rank() == 0 {
			fmt.Printf("stopped after %d steps; the same command goes on\n", len(history.Losses))
		}
		return nil
	}
	if err != nil || world.Rank() > 0 {
		return err
	}
	fmt.Printf("test accuracy %.1f %% after %d steps of %d ranks\n", 100*history.Last("val_accuracy"), len(history.Losses), world.Size())
	return plot.Losses(filepath.Join(out, "loss.png"), history)
}
