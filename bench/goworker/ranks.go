package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"gotorch.dev/bench/models"
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// beside starts this program again as rank 1 of two, which meet in a folder. What is read from in goes to it, too.
func beside(in io.Reader, mode string) (dir string, both io.Reader) {
	dir = must(os.MkdirTemp("", "ranks"))
	peer := exec.Command(must(os.Executable()), mode, dir)
	peer.Stderr = os.Stderr
	lines := must(peer.StdinPipe())
	if err := peer.Start(); err != nil {
		panic(err)
	}
	return dir, io.TeeReader(in, lines)
}

// ranks runs cases in two processes, of which the first answers: "all_reduce_BYTES", and training steps that are named as for
// [models.Step], with DataParallel.
func ranks(args []string) {
	rank, in := 1, io.Reader(os.Stdin)
	var dir string
	if len(args) == 0 {
		rank = 0
		dir, in = beside(os.Stdin, "ranks")
		defer os.RemoveAll(dir)
	} else {
		dir = args[0]
	}
	runtime.LockOSThread()
	gotorch.SetNumThreads(1)
	world := must(distributed.Init(context.Background(), distributed.Options{
		InitMethod: "file://" + dir + "/meet", Rank: rank, WorldSize: 2,
	}))
	made := map[string]func(n int){}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		name, count, _ := strings.Cut(lines.Text(), " ")
		n := must(strconv.Atoi(count))
		if made[name] == nil {
			made[name] = ofRanks(world, name)
		}
		world.Barrier()
		wall, cpu := time.Now(), cpuTime()
		made[name](n)
		if rank == 0 {
			fmt.Println(time.Since(wall).Nanoseconds(), (cpuTime() - cpu).Nanoseconds())
		}
	}
}

func ofRanks(world *distributed.Group, name string) func(n int) {
	if bytes, is := strings.CutPrefix(name, "all_reduce_"); is {
		t := gotorch.Ones([]int64{int64(must(strconv.Atoi(bytes)) / 4)})
		return func(n int) {
			for range n {
				world.AllReduce(t, distributed.Avg)
			}
		}
	}
	parts := strings.Split(name, "_")
	gotorch.ManualSeed(0)
	of := models.All[parts[0]](int64(must(strconv.Atoi(parts[1]))), gotorch.CPU)
	model := distributed.DataParallel(of.Model, distributed.DataParallelOptions{Group: world})
	opt := models.Optimizers[parts[2]](model.Parameters())
	return func(n int) {
		for range n {
			gotorch.Scope0(func(*gotorch.ScopeHandle) {
				opt.ZeroGrad()
				model.Around(func() []gotorch.Tensor { return []gotorch.Tensor{of.Loss()} })[0].Backward()
				opt.Step()
			})
		}
	}
}

// firstOfRanks ends when the ranks of a job have added up their first tensor. The job's size, and for one rank the folder and
// its number, are arguments.
func firstOfRanks(args []string) {
	size := must(strconv.Atoi(args[0]))
	if len(args) == 1 {
		dir := must(os.MkdirTemp("", "ranks"))
		defer os.RemoveAll(dir)
		var all sync.WaitGroup
		for rank := range size {
			all.Go(func() {
				peer := exec.Command(must(os.Executable()), "first_ranks", args[0], dir, strconv.Itoa(rank))
				peer.Stderr = os.Stderr
				if err := peer.Run(); err != nil {
					panic(err)
				}
			})
		}
		all.Wait()
		return
	}
	world := must(distributed.Init(context.Background(), distributed.Options{
		InitMethod: "file://" + args[1] + "/meet", Rank: must(strconv.Atoi(args[2])), WorldSize: size,
	}))
	t := gotorch.Ones([]int64{1})
	world.AllReduce(t, distributed.Sum)
	if t.Item() != float64(size) {
		panic(t)
	}
}

// sharded is how much memory a rank of two has of a model of eight layers that they share out: between steps, and at most, in
// MB, and what the whole model would take.
func sharded() map[string]float64 {
	store := must(distributed.NewHashStore())
	figures := make([]map[string]float64, 2)
	var all sync.WaitGroup
	const mb = 1 << 20
	before := gotorch.MemoryStats().NativeBytes
	stop, most := make(chan struct{}), int64(0)
	for rank := range 2 {
		all.Go(func() {
			runtime.LockOSThread()
			world := must(distributed.Init(context.Background(), distributed.Options{Store: store, Rank: rank, WorldSize: 2}))
			var units []nn.Modular
			var layers []nn.Layer
			for range 8 {
				l := nn.Linear(1024, 1024)
				units, layers = append(units, l), append(layers, l)
			}
			model := distributed.FullyShard(nn.Sequential(layers...), distributed.FullyShardOptions{Group: world, Units: units})
			opt := optim.AdamW(model.Parameters())
			x := gotorch.Randn([]int64{1, 1024})
			for range 5 {
				gotorch.Scope0(func(*gotorch.ScopeHandle) {
					model.Forward(x).Pow(2).Mean().Backward()
					opt.Step()
					opt.ZeroGrad()
				})
			}
			world.Barrier()
			runtime.GC()
			between := gotorch.MemoryStats().NativeBytes - before
			world.Barrier()
			if rank == 0 {
				go func() {
					for {
						select {
						case <-stop:
							return
						default:
							most = max(most, gotorch.MemoryStats().NativeBytes-before)
							time.Sleep(50 * time.Microsecond)
						}
					}
				}()
			}
			for range 20 {
				gotorch.Scope0(func(*gotorch.ScopeHandle) {
					model.Forward(x).Pow(2).Mean().Backward()
					opt.Step()
					opt.ZeroGrad()
				})
			}
			world.Barrier()
			whole := 0.0
			for _, p := range model.FullStateDict() {
				whole += float64(p.Numel() * 4)
			}
			figures[rank] = map[string]float64{"between_mb": float64(between) / 2 / mb, "whole_mb": whole / mb, "unit_mb": whole / 8 / mb}
		})
	}
	all.Wait()
	close(stop)
	figures[0]["most_mb"] = float64(most) / 2 / mb
	return figures[0]
}
