// Command faults is a rank of the jobs of tests/test_distributed_faults.py, where something goes wrong: it trains until it
// has done its steps, or has an error. What it does it says on its standard output, a line each: "joined", "step 1" and so
// on, and at last what it came to, as JSON. With -store it is no rank, but holds the keys of a job.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
)

// end is what a rank came to.
type end struct {
	Kind    string // of the error; "" where there was none
	Message string
	Steps   int
	Later   map[string]string // kinds of the errors of what was tried after all that
}

var (
	meet    = flag.String("meet", "", "where the ranks meet; \"\": as the environment says")
	rank    = flag.Int("rank", 0, "of this process")
	size    = flag.Int("size", 2, "ranks of the job")
	timeout = flag.Duration("timeout", time.Minute, "how long ranks wait for each other")
	then    = flag.Duration("then", 0, "the same, once they have met; 0: timeout")
	kind    = flag.String("kind", "ddp", "ddp or shard")
	steps   = flag.Int("steps", 1<<30, "how many steps to train")
	stays   = flag.Bool("stays", false, "wait for the end of the standard input before leaving, also after an error")
	after   = flag.Bool("after", false, "try the store, and a new group, after the training")
	store   = flag.Bool("store", false, "hold the keys of a job until the end of the standard input")
)

func main() {
	flag.Parse()
	gotorch.SetNumThreads(1)
	runtime.LockOSThread()
	if *store {
		s, err := distributed.NewTCPStore("127.0.0.1", 0, distributed.TCPStoreOptions{Server: true, NoWaitForWorkers: true})
		if err != nil {
			panic(err)
		}
		port, err := s.Port()
		if err != nil {
			panic(err)
		}
		fmt.Println(port)
		untilTheEnd()
		return
	}
	var e end
	var world *distributed.Group
	err := gotorch.Try0(func() {
		var err error
		if world, err = join(); err != nil {
			panic(err)
		}
		if *then > 0 {
			if err := errors.Join(world.SetTimeout(*then), world.Store().SetTimeout(*then)); err != nil {
				panic(err)
			}
		}
		fmt.Println("joined")
		train(world, &e)
	})
	e.Kind, e.Message = kindOf(err)
	if *after && world != nil {
		e.Later = later(world)
	}
	if err := json.NewEncoder(os.Stdout).Encode(e); err != nil {
		panic(err)
	}
	if *stays {
		untilTheEnd()
	}
	if world != nil {
		world.Close()
	}
	fmt.Println("left")
}

func untilTheEnd() {
	var b [1]byte
	for {
		if n, err := os.Stdin.Read(b[:]); n == 0 || err != nil {
			return
		}
	}
}

func kindOf(err error) (kind, message string) {
	var e *gotorch.Error
	switch {
	case err == nil:
		return "", ""
	case errors.As(err, &e):
		return string(e.Kind), err.Error()
	}
	return fmt.Sprintf("%T", err), err.Error()
}

func join() (*distributed.Group, error) {
	opt := distributed.Options{InitMethod: *meet, Timeout: *timeout}
	if *meet != "" {
		opt.Rank, opt.WorldSize = *rank, *size
	}
	return distributed.Init(context.Background(), opt)
}

func train(world *distributed.Group, e *end) {
	first := nn.Linear(4, 8)
	m := nn.Sequential(first, nn.Tanh(), nn.Linear(8, 5))
	var layer nn.Layer
	var opt optim.Optimizer
	switch *kind {
	case "ddp":
		d := distributed.DataParallel(m, distributed.DataParallelOptions{Group: world})
		defer d.Close()
		layer, opt = d, optim.AdamW(d.Parameters(), optim.AdamWOptions{LR: 1e-3})
	case "shard":
		d := distributed.FullyShard(m, distributed.FullyShardOptions{Group: world, Units: []nn.Modular{first}})
		layer, opt = d, optim.AdamW(d.Parameters(), optim.AdamWOptions{LR: 1e-3})
	}
	for e.Steps < *steps {
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			opt.ZeroGrad()
			layer.Forward(gotorch.Randn([]int64{3, 4})).Pow(2).Mean().Backward()
			opt.Step()
		})
		e.Steps++
		fmt.Println("step", e.Steps)
	}
}

// later says how the store and a new group go. What is set is not answered, so that comes last.
func later(world *distributed.Group) map[string]string {
	kinds := map[string]string{}
	s := world.Store()
	for _, try := range []struct {
		name string
		do   func() error
	}{
		{"check", func() error { _, err := s.Check("a"); return err }},
		{"add", func() error { _, err := s.Add("n", 1); return err }},
		{"get", func() error { _, err := s.Get(context.Background(), "nobody sets it"); return err }},
		{"new", func() error { _, err := world.New(world.Ranks(), distributed.GroupOptions{Timeout: *then}); return err }},
		{"set", func() error { return s.Set("a", []byte("b")) }},
	} {
		kinds[try.name], _ = kindOf(try.do())
	}
	return kinds
}
