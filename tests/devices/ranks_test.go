//go:build devices

package devices

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/distributed/checkpoint"
	"gotorch.dev/gotorch/gotorchtest"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
)

// ranks runs fn on ranks: two that share the device, or with NCCL as many as there are GPUs, at most two. No backend of c10d
// moves the stand-in's tensors.
func ranks(t *testing.T, backend distributed.Backend, fn func(g *distributed.Group)) {
	if under.device.Type() == gotorch.DeviceTypePrivateUse1 {
		return
	}
	n := ranksOf(backend)
	store, err := distributed.NewHashStore()
	must(t, err)
	defer store.Close()
	var all sync.WaitGroup
	for rank := range n {
		all.Go(func() {
			runtime.LockOSThread()
			g, err := distributed.Init(t.Context(), distributed.Options{Backend: backend, Store: store, Rank: rank, WorldSize: n, Timeout: time.Minute})
			if err != nil {
				t.Error(err)
				return
			}
			defer g.Close()
			if err := gotorch.Try0(func() { gotorch.OnDevice(deviceOf(backend, rank), func() { fn(g) }) }); err != nil {
				t.Error(g, err)
			}
		})
	}
	all.Wait()
}

// shares reports whether the ranks of a backend may have one GPU. NCCL has the variable since 2.29.
func shares(backend distributed.Backend) bool {
	return backend == distributed.Gloo || os.Getenv("NCCL_MULTI_RANK_GPU_ENABLE") == "1"
}

func ranksOf(backend distributed.Backend) int {
	if shares(backend) {
		return 2
	}
	return min(2, gotorch.DeviceCount(under.device.Type()))
}

func deviceOf(backend distributed.Backend, rank int) gotorch.Device {
	if shares(backend) {
		return under.device
	}
	return gotorch.NewDevice(under.device.Type(), rank)
}

// current is the calling rank's device.
func current() gotorch.TensorOptions {
	return gotorch.TensorOptions{Device: gotorch.CurrentDevice(under.device.Type())}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var backends = []distributed.Backend{distributed.Gloo, distributed.NCCL}

func TestRanksExchangeTensorsOfTheDevice(t *testing.T) {
	for _, backend := range backends {
		t.Run(string(backend), func(t *testing.T) {
			ranks(t, backend, func(g *distributed.Group) { exchange(t, g, backend) })
		})
	}
}

func exchange(t *testing.T, g *distributed.Group, backend distributed.Backend) {
	mine, n := float32(g.Rank()+1), float32(g.Size())
	sum := n * (n + 1) / 2
	here := func(v ...float32) gotorch.Tensor { return gotorch.FromSlice(v).To(current().Device) }
	x := here(mine, 2*mine)
	g.AllReduce(x, distributed.Sum)
	same(t, "AllReduce", x, sum, 2*sum)
	g.Broadcast(x.MulScalar_(mine), g.Size()-1)
	same(t, "Broadcast", x, n*sum, 2*n*sum)
	all := gotorch.Zeros([]int64{2 * int64(n)}, current())
	g.AllGatherIntoTensor(all, here(mine, -mine))
	want := []float32{1, -1, 2, -2}[:2*g.Size()]
	same(t, "AllGatherIntoTensor", all, want...)
	part := gotorch.Zeros([]int64{1}, current())
	g.ReduceScatterTensor(part, here([]float32{1, 2}[:g.Size()]...), distributed.Sum)
	same(t, "ReduceScatterTensor", part, n*mine)
	to := gotorch.Zeros([]int64{int64(n)}, current())
	if backend == distributed.NCCL {
		g.AllToAllSingle(to, here([]float32{10 * mine, 10*mine + 1}[:g.Size()]...))
		same(t, "AllToAllSingle", to, []float32{10 + mine - 1, 20 + mine - 1}[:g.Size()]...)
		mean := here(mine)
		g.AllReduce(mean, distributed.Avg)
		same(t, "Avg", mean, sum/n)
		if g.Size() > 1 {
			if g.Rank() == 0 {
				g.Send(here(7), 1)
			} else {
				got := gotorch.Zeros([]int64{1}, current())
				g.Recv(got, 0)
				same(t, "Recv", got, 7)
			}
		}
	}
	g.Barrier()
	work := g.AllReduceAsync(x, distributed.Max)
	if err := work.Wait(t.Context()); err != nil || !work.Done() {
		t.Error(err)
	}
	same(t, "AllReduceAsync", x, n*sum, 2*n*sum)
	// The computer's memory goes by Gloo.
	on := gotorch.FromSlice([]float32{mine})
	g.AllReduce(on, distributed.Sum)
	same(t, "AllReduce on the CPU", on, sum)
	values, err := distributed.AllGatherObject(g, g.Rank())
	if err != nil || !slices.Equal(values, []int{0, 1}[:g.Size()]) {
		t.Error(values, err)
	}
	some, err := g.New([]int{0})
	if err != nil {
		t.Error(err)
		return
	}
	if g.Rank() == 0 {
		x := here(3)
		some.AllReduce(x, distributed.Sum)
		same(t, "AllReduce of a group of one", x, 3)
		some.Close()
	}
}

// A rank that does not come is an error of those that wait, and not the end of the process.
func TestARankThatDoesNotComeToTheDevice(t *testing.T) {
	left := make(chan struct{})
	ranks(t, distributed.NCCL, func(g *distributed.Group) {
		x := gotorch.Ones([]int64{4}, current())
		g.AllReduce(x, distributed.Sum) // makes the communicator
		if g.Size() == 1 {
			return
		}
		if g.Rank() == 1 {
			<-left
			return
		}
		defer close(left)
		must(t, g.SetTimeout(2*time.Second))
		err := gotorch.Try0(func() { g.AllReduce(x, distributed.Sum) })
		if kindOf(err) != distributed.BackendError {
			t.Error(err)
		}
	})
}

func TestNothingIsLeftOfRanksOfTheDevice(t *testing.T) {
	for _, backend := range backends {
		var first int64
		for round := range 3 {
			ranks(t, backend, func(g *distributed.Group) {
				for range 20 {
					g.AllReduce(gotorch.Ones([]int64{100}, current()), distributed.Sum)
				}
			})
			settle()
			now := gotorch.MemoryStats().LiveHandles
			if round == 0 {
				first = now
			}
			if now > first {
				t.Errorf("%s: %d handles are left", backend, now-first)
			}
		}
	}
}

// numbers are as many as a shape has, on the device: others for each from.
func numbers(from int64, shape ...int64) gotorch.Tensor {
	n := int64(1)
	for _, size := range shape {
		n *= size
	}
	return gotorch.Arange(n).AddScalar(from).ToDType(gotorch.Float32).Sin().Reshape(shape).To(current().Device)
}

// A rank that trains is a process of its own: autograd has one thread for a GPU, in which the ranks of one process would wait for
// each other. It is this program again, with a file to meet at, its rank and where to write what comes out.
func TestRanksTrainOnTheDevice(t *testing.T) {
	if under.device.Type() == gotorch.DeviceTypePrivateUse1 {
		return
	}
	var first nn.StateDict
	for _, backend := range backends {
		for _, way := range []string{"DataParallel", "FullyShard"} {
			dir := t.TempDir()
			n := ranksOf(backend)
			var all sync.WaitGroup
			for rank := range n {
				all.Go(func() {
					command := exec.Command(os.Args[0], "-test.run=^TestARankThatTrains$", "-test.v")
					command.Env = append(os.Environ(), "RANK_OF_TEST="+strings.Join([]string{dir, string(backend), way, fmt.Sprint(n), fmt.Sprint(rank)}, "|"))
					if out, err := command.CombinedOutput(); err != nil {
						t.Errorf("%s, %s, rank %d: %v\n%s", backend, way, rank, err, out)
					}
				})
			}
			all.Wait()
			if t.Failed() {
				return
			}
			state, _, err := gotorch.LoadSafetensors(filepath.Join(dir, "state.safetensors"))
			must(t, err)
			if first == nil {
				first = state
			}
			for name, want := range first {
				gotorchtest.AssertClose(t, state[name], want)
			}
		}
	}
}

func TestARankThatTrains(t *testing.T) {
	arguments := strings.Split(os.Getenv("RANK_OF_TEST"), "|")
	if len(arguments) != 5 {
		return // TestRanksTrainOnTheDevice starts it
	}
	dir, backend, way := arguments[0], distributed.Backend(arguments[1]), arguments[2]
	n, _ := strconv.Atoi(arguments[3])
	rank, _ := strconv.Atoi(arguments[4])
	runtime.LockOSThread()
	g, err := distributed.Init(t.Context(), distributed.Options{
		Backend: backend, InitMethod: "file://" + filepath.Join(dir, "store"), Rank: rank, WorldSize: n, Timeout: time.Minute})
	must(t, err)
	defer g.Close()
	gotorch.OnDevice(deviceOf(backend, rank), func() {
		net := nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
		for name, p := range net.NamedParameters() {
			gotorch.NoGrad(func() { p.Copy_(numbers(int64(len(name)), p.Shape()...).To(gotorch.CPU)) })
		}
		net.To(current().Device)
		var model nn.Layer
		var whole func() nn.StateDict
		if way == "FullyShard" {
			sharded := distributed.FullyShard(net, distributed.FullyShardOptions{Group: g, Units: []nn.Modular{net.Layers[0].(nn.Modular)}})
			model, whole = sharded, func() nn.StateDict { return sharded.FullStateDict() }
		} else {
			model, whole = distributed.DataParallel(net, distributed.DataParallelOptions{Group: g}), net.StateDict
		}
		opt := optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.1, Momentum: 0.9})
		for step := range 4 {
			// The same samples for any number of ranks.
			x, y := numbers(int64(10*step), 8, 6), numbers(int64(10*step+5), 8, 3)
			x, y = x.Chunk(int64(n))[rank], y.Chunk(int64(n))[rank]
			opt.ZeroGrad()
			nn.MSELoss().Forward(model.Forward(x), y).Backward()
			opt.Step()
		}
		state := nn.StateDict{}
		for name, p := range whole() {
			state[name] = p.To(gotorch.CPU)
		}
		if rank == 0 {
			must(t, gotorch.SaveSafetensors(filepath.Join(dir, "state.safetensors"), state, nil))
		}
	})
}

func TestShardedCheckpointsOfTheDevice(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "checkpoint")
	net := nn.Linear(4, 3)
	net.To(under.device)
	must(t, checkpoint.Save(dir, checkpoint.State{"net": net}))
	other := nn.Linear(4, 3)
	other.To(under.device)
	must(t, checkpoint.Load(dir, checkpoint.State{"net": other}))
	for name, want := range net.StateDict() {
		gotorchtest.AssertEqual(t, other.StateDict()[name].To(gotorch.CPU), want.To(gotorch.CPU))
	}
}
