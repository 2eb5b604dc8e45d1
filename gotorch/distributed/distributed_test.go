package distributed_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/internal/rankstest"
	"gotorch.dev/gotorch/internal/testhelp"
)

func TestSmokeRanksReduce(t *testing.T) {
	rankstest.Run(t, 3, distributed.Options{}, func(g *distributed.Group) {
		x := gotorch.Full([]int64{4}, float32(g.Rank()+1))
		g.AllReduce(x, distributed.Sum)
		if got := gotorch.ToSlice[float32](x); !slices.Equal(got, []float32{6, 6, 6, 6}) {
			t.Error(g, got)
		}
	})
}

func TestAGroupOfSome(t *testing.T) {
	rankstest.Run(t, 4, distributed.Options{}, func(world *distributed.Group) {
		odd, err := world.New([]int{3, 1})
		if err != nil {
			t.Error(err)
			return
		}
		if world.Rank()%2 == 0 {
			if odd != nil {
				t.Error("a rank that is not in the group has it")
			}
			if err := gotorch.Try0(func() { odd.Barrier() }); !errors.Is(err, gotorch.ValueError) {
				t.Error(err)
			}
			return
		}
		defer odd.Close()
		if want := fmt.Sprintf("rank %d of 2 (ranks [1 3] of 4)", world.Rank()/2); odd.String() != want {
			t.Error(odd)
		}
		x := gotorch.FromSlice([]int64{int64(world.Rank())})
		odd.AllReduce(x, distributed.Product)
		if gotorch.Item[int64](x) != 3 {
			t.Error(x)
		}
	})
}

// Ranks that make groups in another order get an error soon, and none exchanges tensors with a rank of another group.
func TestGroupsInAnotherOrderAreRefused(t *testing.T) {
	for _, orders := range [][4][][]int{
		{{{0, 1}, {2, 3}}, {{0, 1}, {2, 3}}, {{2, 3}, {0, 1}}, {{2, 3}, {0, 1}}},
		{{{0, 1}}, {{0, 1}}, {{0, 2}}, {{0, 1}}},
		{{{0, 1}, {0, 2}}, {{0, 1}}, {{0, 2}}, {}},
	} {
		var refused atomic.Int64
		rankstest.Run(t, 4, distributed.Options{Timeout: 2 * time.Second}, func(world *distributed.Group) {
			for _, ranks := range orders[world.Rank()] {
				g, err := world.New(ranks)
				switch {
				case err == nil:
				case errors.Is(err, gotorch.ValueError) && strings.Contains(err.Error(), "the same groups in the same order"):
					refused.Add(1)
					return
				case errors.Is(err, distributed.StoreError) || errors.Is(err, distributed.TimeoutError): // it waits for one that was refused
					return
				default:
					t.Errorf("rank %d, %v: %v", world.Rank(), ranks, err)
					return
				}
				if g == nil {
					continue
				}
				defer g.Close()
				x, want := gotorch.FromSlice([]int64{1 << world.Rank()}), int64(0)
				for _, r := range ranks {
					want |= 1 << r
				}
				if err := gotorch.Try0(func() { g.AllReduce(x, distributed.Sum) }); err == nil && gotorch.Item[int64](x) != want {
					t.Errorf("rank %d, %v: got the sum of %b", world.Rank(), ranks, gotorch.Item[int64](x))
				}
			}
		})
		if refused.Load() == 0 {
			t.Errorf("%v: none was refused", orders)
		}
	}
}

func TestAGroupWaitsForItsMembersAsLongAsItSays(t *testing.T) {
	rankstest.Run(t, 2, distributed.Options{}, func(world *distributed.Group) {
		if world.Rank() == 0 {
			g, err := world.New([]int{0, 1}, distributed.GroupOptions{Timeout: 300 * time.Millisecond})
			if g != nil || !errors.Is(err, distributed.TimeoutError) && !errors.Is(err, distributed.StoreError) {
				t.Errorf("got %v, %v", g, err)
			}
		}
		world.Barrier()
	})
}

func TestSparseTensorsAreSummed(t *testing.T) {
	rankstest.Run(t, 3, distributed.Options{}, func(g *distributed.Group) {
		dense := gotorch.Zeros([]int64{4, 2})
		dense.Select(0, int64(g.Rank())).Fill_(2)
		x := dense.ToSparse()
		g.AllReduce(x, distributed.Sum)
		if got := gotorch.ToSlice[float32](x.ToDense()); x.Layout() != gotorch.SparseCOO || !slices.Equal(got, []float32{2, 2, 2, 2, 2, 2, 0, 0}) {
			t.Error(g, x)
		}
		for kind, call := range map[gotorch.ErrorKind]func(){
			gotorch.RuntimeError: func() { g.AllReduce(dense.ToSparse(), distributed.Max) },
			gotorch.NotImplementedError: func() {
				g.AllReduce(gotorch.Complex(dense, dense).ToSparse(), distributed.Sum)
			},
		} {
			if err := gotorch.Try0(call); !errors.Is(err, kind) {
				t.Error(g, err)
			}
		}
		if err := gotorch.Try0(func() { g.Broadcast(dense.ToSparse(), 0) }); !errors.Is(err, gotorch.NotImplementedError) {
			t.Error(g, err)
		}
	})
}

func TestWhatBeginsIsWaitedFor(t *testing.T) {
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		var works []*distributed.Work
		var xs []gotorch.Tensor
		for i := range 20 {
			x := gotorch.FromSlice([]float64{float64(i * (g.Rank() + 1))})
			xs = append(xs, x)
			works = append(works, g.AllReduceAsync(x, distributed.Max))
		}
		for i, w := range works {
			testhelp.Must(t, w.Wait(t.Context()))
			testhelp.Must(t, w.Wait(context.Background())) // again
			if !w.Done() || gotorch.Item[float64](xs[i]) != float64(2*i) {
				t.Error(i, xs[i])
			}
		}
	})
}

func TestWhoSentIsSaid(t *testing.T) {
	rankstest.Run(t, 3, distributed.Options{}, func(g *distributed.Group) {
		if g.Rank() > 0 {
			g.Send(gotorch.FromSlice([]int64{int64(g.Rank())}), 0, distributed.P2POptions{Tag: 7})
			return
		}
		for range 2 {
			x := gotorch.FromSlice([]int64{0})
			if from := g.Recv(x, distributed.AnyRank, distributed.P2POptions{Tag: 7}); gotorch.Item[int64](x) != int64(from) {
				t.Error(from, x)
			}
		}
	})
}

func TestARankThatDoesNotComeIsAnError(t *testing.T) {
	failed := make(chan struct{})
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		g.Barrier()
		if g.Rank() == 1 {
			<-failed
			return
		}
		defer close(failed)
		testhelp.Must(t, g.SetTimeout(300*time.Millisecond))
		err := gotorch.Try0(func() { g.AllReduce(gotorch.Zeros([]int64{3}), distributed.Sum) })
		if !errors.Is(err, distributed.TimeoutError) && !errors.Is(err, distributed.NetworkError) {
			t.Error(err)
		}
	})
}

func TestARankThatLeavesIsAnError(t *testing.T) {
	rankstest.Run(t, 2, distributed.Options{Timeout: time.Minute}, func(g *distributed.Group) {
		g.Barrier()
		if g.Rank() == 1 {
			return // and closes
		}
		err := gotorch.Try0(func() { g.AllReduce(gotorch.Zeros([]int64{3}), distributed.Sum) })
		if !errors.Is(err, distributed.NetworkError) {
			t.Error(err)
		}
	})
}

func TestMonitoredBarrierNamesWhoDidNotCome(t *testing.T) {
	failed := make(chan struct{})
	rankstest.Run(t, 3, distributed.Options{}, func(g *distributed.Group) {
		g.Barrier()
		if g.Rank() == 2 {
			<-failed
			return
		}
		if g.Rank() == 0 {
			defer close(failed)
		}
		err := gotorch.Try0(func() {
			g.MonitoredBarrier(distributed.MonitoredBarrierOptions{Timeout: 300 * time.Millisecond, WaitAllRanks: true})
		})
		if g.Rank() == 0 && (err == nil || !strings.Contains(err.Error(), "2")) {
			t.Error(err)
		}
	})
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	given := make(chan struct{})
	rankstest.Run(t, 2, distributed.Options{Timeout: time.Minute}, func(g *distributed.Group) {
		if g.Rank() == 0 {
			defer close(given)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			w := g.RecvAsync(gotorch.Zeros([]int64{1}), 1)
			if err := w.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			if err := w.Wait(context.Background()); err == nil {
				t.Error("a receive that was given up has ended well")
			}
			return
		}
		<-given
	})
}

func TestNothingIsLeftOfCollectives(t *testing.T) {
	count := func() int64 {
		runtime.GC()
		runtime.GC()
		return gotorch.MemoryStats().LiveHandles
	}
	goroutines := runtime.NumGoroutine()
	before := count()
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		for i := range 200 {
			gotorch.Scope0(func(*gotorch.ScopeHandle) {
				x := gotorch.Complex(gotorch.Ones([]int64{8}), gotorch.Ones([]int64{8}))
				g.AllReduce(x, distributed.Sum)
				w := g.AllReduceAsync(x, distributed.Sum)
				if i%3 > 0 {
					testhelp.Must(t, w.Wait(t.Context()))
				}
				outs := []gotorch.Tensor{gotorch.EmptyLike(x), gotorch.EmptyLike(x)}
				g.AllGather(outs, x)
			})
		}
	})
	testhelp.NoMoreGoroutines(t, goroutines)
	for end := time.Now().Add(time.Minute); count() > before; {
		if time.Now().After(end) {
			t.Fatalf("%d tensors live, where %d did", count(), before)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestValuesOfGo(t *testing.T) {
	type report struct {
		Rank int
		Loss []float64
	}
	for _, codec := range []distributed.Codec{nil, distributed.JSON} {
		opt := distributed.ObjectOptions{Codec: codec}
		rankstest.Run(t, 3, distributed.Options{}, func(g *distributed.Group) {
			all, err := distributed.AllGatherObject(g, report{g.Rank(), make([]float64, 3*g.Rank())}, opt)
			testhelp.Must(t, err)
			for rank, r := range all {
				if r.Rank != rank || len(r.Loss) != 3*rank {
					t.Error(rank, r)
				}
			}
			name, err := distributed.BroadcastObject(g, "run "+strconv.Itoa(g.Rank()), 2, opt)
			if err != nil || name != "run 2" {
				t.Error(name, err)
			}
		})
	}
}

func TestAValueThatCannotBeSentFailsOnAllRanks(t *testing.T) {
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		var value any = 1
		if g.Rank() == 1 {
			value = make(chan int)
		}
		_, err := distributed.AllGatherObject(g, value, distributed.ObjectOptions{Codec: distributed.JSON})
		if !errors.Is(err, gotorch.ValueError) || g.Rank() == 0 && !strings.Contains(err.Error(), "rank 1") {
			t.Error(err)
		}
		_, err = distributed.BroadcastObject(g, value, 1, distributed.ObjectOptions{Codec: distributed.JSON})
		if !errors.Is(err, gotorch.ValueError) {
			t.Error(err)
		}
		g.Barrier() // and the group goes on
	})
}

func TestWhatCannotBeIsRefused(t *testing.T) {
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		x, i := gotorch.Zeros([]int64{2}), gotorch.FromSlice([]int64{1, 2})
		z := gotorch.Complex(x, x)
		for what, fn := range map[string]func(){
			"a root that is not there":      func() { g.Broadcast(x, 2) },
			"a negative root":               func() { g.Reduce(x, -1, distributed.Sum) },
			"too few outputs":               func() { g.AllGather([]gotorch.Tensor{x}, x) },
			"outputs elsewhere":             func() { g.Gather(x, []gotorch.Tensor{x, x}, 1-g.Rank()) },
			"no inputs":                     func() { g.Scatter(x, nil, g.Rank()) },
			"two dtypes":                    func() { g.AllGather([]gotorch.Tensor{x, i}, x) },
			"a maximum of complex numbers":  func() { g.AllReduce(z, distributed.Max) },
			"no tensors":                    func() { g.AllReduceCoalesced(nil, distributed.Sum) },
			"to itself":                     func() { g.Send(x, g.Rank()) },
			"a reduction that is not there": func() { g.AllReduce(x, distributed.ReduceOp(99)) },
		} {
			if err := gotorch.Try0(fn); !errors.Is(err, gotorch.ValueError) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := gotorch.Try0(func() { g.AllReduce(gotorch.Tensor{}, distributed.Sum) }); !errors.Is(err, gotorch.TypeError) {
			t.Error(err)
		}
		for _, ranks := range [][]int{nil, {0, 0}, {2}, {-1}} {
			if _, err := g.New(ranks); !errors.Is(err, gotorch.ValueError) {
				t.Error(ranks, err)
			}
		}
		if err := g.SetTimeout(-1); !errors.Is(err, gotorch.ValueError) {
			t.Error(err)
		}
		g.Barrier()
		g.Close()
		g.Close()
		if err := gotorch.Try0(func() { g.Barrier() }); !errors.Is(err, gotorch.ValueError) {
			t.Error(err)
		}
	})
}

func TestInitSaysWhatIsMissing(t *testing.T) {
	for _, name := range []string{"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} {
		t.Setenv(name, "")
	}
	for says, opt := range map[string]distributed.Options{
		"RANK is not set":          {},
		"WORLD_SIZE is not set":    {Rank: 0},
		"MASTER_ADDR is not set":   {Rank: 0, WorldSize: 1},
		"must be tcp://host:port":  {InitMethod: "tcp://somewhere", Rank: 0, WorldSize: 1},
		"must be file:///path":     {InitMethod: "file://", Rank: 0, WorldSize: 1},
		"must begin with":          {InitMethod: "http://a:1", Rank: 0, WorldSize: 1},
		"rank 2 of 2":              {InitMethod: "tcp://127.0.0.1:1", Rank: 2, WorldSize: 2},
		"rank -1 of 2":             {InitMethod: "tcp://127.0.0.1:1", WorldSize: 2},
		"leave out one":            {InitMethod: "tcp://127.0.0.1:1?rank=0", Rank: 0, WorldSize: 2},
		"must be a number":         {InitMethod: "tcp://127.0.0.1:1?rank=x", WorldSize: 2},
		"there is no backend":      {Backend: "mpi"},
		"there is no backend \"nc": {Backend: "nccl"},
		"must be positive":         {Timeout: -1},
		"must be an integer":       {Rank: 0.5},
		"InitMethod and Store are": {InitMethod: "env://", Store: &distributed.Store{}, Rank: 0, WorldSize: 1},
	} {
		var err error
		if e := gotorch.Try0(func() { _, err = distributed.Init(t.Context(), opt) }); e != nil {
			err = e
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

func TestNCCLNeedsAGPU(t *testing.T) {
	if gotorch.CUDAIsAvailable() {
		t.Skip("there is one: make test-cuda")
	}
	store, err := distributed.NewHashStore()
	testhelp.Must(t, err)
	defer store.Close()
	_, err = distributed.Init(t.Context(), distributed.Options{Backend: distributed.NCCL, Store: store, Rank: 0, WorldSize: 1})
	if !errors.Is(err, gotorch.RuntimeError) || !strings.Contains(err.Error(), "CUDA is not available") {
		t.Error(err)
	}
}

func TestInitEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := distributed.Init(ctx, distributed.Options{
		InitMethod: fmt.Sprintf("tcp://127.0.0.1:%d", port(t)), Rank: 0, WorldSize: 2, Timeout: 3 * time.Second,
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// A server that accepts and says nothing would hold libtorch for 40 seconds.
func TestInitEndsWithItsTimeout(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	testhelp.Must(t, err)
	defer silent.Close()
	for name, method := range map[string]string{
		"a silent server": "tcp://" + silent.Addr().String(),
		"nobody else":     "file://" + filepath.Join(t.TempDir(), "meet"),
	} {
		started := time.Now()
		_, err := distributed.Init(t.Context(), distributed.Options{InitMethod: method, Rank: 1, WorldSize: 2, Timeout: 2 * time.Second})
		if !errors.Is(err, distributed.TimeoutError) && !errors.Is(err, distributed.StoreError) {
			t.Errorf("%s: %v", name, err)
		}
		if waited := time.Since(started); waited > 30*time.Second { // of 40, on a busy machine
			t.Errorf("%s: Init returned after %v", name, waited)
		}
	}
}

// Ranks that contradict each other are told at once, all of them.
func TestRanksThatContradictEachOther(t *testing.T) {
	for name, c := range map[string]struct {
		rank, size [2]int
		says       string
	}{
		"sizes":         {[2]int{0, 1}, [2]int{2, 3}, "says that the job has"},
		"greater first": {[2]int{0, 1}, [2]int{3, 2}, "says that the job has"},
		"one rank":      {[2]int{1, 1}, [2]int{3, 3}, "two processes say that they are rank 1"},
	} {
		for _, method := range []string{fmt.Sprintf("tcp://127.0.0.1:%d", port(t)), "file://" + filepath.Join(t.TempDir(), "meet"), ""} {
			var store *distributed.Store
			switch {
			case method == "":
				var err error
				store, err = distributed.NewHashStore()
				testhelp.Must(t, err)
				defer store.Close()
			case c.rank[0] > 0 && strings.HasPrefix(method, "tcp"): // rank 0 serves
				go func() {
					if g, err := distributed.Init(t.Context(), distributed.Options{InitMethod: method, Rank: 0, WorldSize: 3, Timeout: time.Minute}); err == nil {
						g.Close()
					}
				}()
			}
			started := time.Now()
			var all sync.WaitGroup
			for i := range 2 {
				all.Go(func() {
					_, err := distributed.Init(t.Context(), distributed.Options{InitMethod: method, Store: store, Rank: c.rank[i], WorldSize: c.size[i], Timeout: time.Minute})
					if errors.Is(err, distributed.NetworkError) && strings.HasPrefix(method, "tcp") && i > 0 {
						return // the store of rank 0 has ended with it, on a busy machine
					}
					if !errors.Is(err, gotorch.ValueError) || !strings.Contains(err.Error(), c.says) {
						t.Errorf("%s, %q: %v", name, method, err)
					}
				})
			}
			all.Wait()
			if waited := time.Since(started); waited > 40*time.Second {
				t.Errorf("%s, %q: after %v", name, method, waited)
			}
		}
	}
}

func TestInitNamesWhatIsNotThere(t *testing.T) {
	_, err := distributed.Init(t.Context(), distributed.Options{InitMethod: "tcp://nowhere.invalid:1", Rank: 0, WorldSize: 1})
	if !errors.Is(err, distributed.NetworkError) || !strings.Contains(err.Error(), "nowhere.invalid") {
		t.Error(err)
	}
	t.Setenv("GLOO_SOCKET_IFNAME", "lo,nonet7")
	_, err = distributed.Init(t.Context(), distributed.Options{InitMethod: "tcp://127.0.0.1:1", Rank: 0, WorldSize: 1})
	if !errors.Is(err, gotorch.ValueError) || !strings.Contains(err.Error(), `"nonet7"`) {
		t.Error(err)
	}
}

func port(tb testing.TB) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testhelp.Must(tb, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// The ways to meet, of ranks that are goroutines.
func TestInitMethods(t *testing.T) {
	for _, method := range []string{
		fmt.Sprintf("tcp://127.0.0.1:%d", port(t)),
		"file://" + filepath.Join(t.TempDir(), "meet"),
		"env://",
	} {
		if method == "env://" {
			t.Setenv("MASTER_ADDR", "127.0.0.1")
			t.Setenv("MASTER_PORT", strconv.Itoa(port(t)))
		}
		var all sync.WaitGroup
		for rank := range 2 {
			all.Go(func() {
				g, err := distributed.Init(t.Context(), distributed.Options{InitMethod: method, Rank: rank, WorldSize: 2, Timeout: time.Minute})
				if err != nil {
					t.Error(method, err)
					return
				}
				x := gotorch.FromSlice([]int32{int32(rank)})
				g.AllReduce(x, distributed.Sum)
				if gotorch.Item[int32](x) != 1 {
					t.Error(method, x)
				}
				g.Close()
			})
		}
		all.Wait()
	}
}

// As the world is closed where a rank has given up on a group that others did not make.
func TestAStoreThatIsClosedWaitsForNobody(t *testing.T) {
	s, err := distributed.NewHashStore()
	testhelp.Must(t, err)
	const limit = 3 * time.Second
	testhelp.Must(t, s.SetTimeout(limit))
	waits := make(chan error)
	go func() { waits <- s.Wait(context.Background(), "never") }()
	time.Sleep(100 * time.Millisecond)
	testhelp.Must(t, s.Close())
	select {
	case err := <-waits:
		t.Errorf("Close has waited for a call that ended with %v", err)
	default:
	}
	testhelp.Must(t, s.Close())
	if err := s.Set("key", nil); !errors.Is(err, gotorch.ValueError) {
		t.Error(err)
	}
	if err := <-waits; !errors.Is(err, distributed.StoreError) {
		t.Error(err)
	}
}

func TestStores(t *testing.T) {
	server, err := distributed.NewTCPStore("127.0.0.1", 0, distributed.TCPStoreOptions{Server: true, NoWaitForWorkers: true})
	testhelp.Must(t, err)
	at, err := server.Port()
	testhelp.Must(t, err)
	client, err := distributed.NewTCPStore("127.0.0.1", at)
	testhelp.Must(t, err)
	file, err := distributed.NewFileStore(filepath.Join(t.TempDir(), "store"), 1)
	testhelp.Must(t, err)
	hash, err := distributed.NewHashStore()
	testhelp.Must(t, err)
	prefixed, err := server.Prefix("a")
	testhelp.Must(t, err)
	for name, s := range map[string]*distributed.Store{"server": server, "client": client, "file": file, "hash": hash, "prefix": prefixed} {
		t.Run(name, func(t *testing.T) {
			key := name + "/key"
			value := []byte{0, 1, 255}
			testhelp.Must(t, s.Set(key, value))
			if got, err := s.Get(t.Context(), key); err != nil || !slices.Equal(got, value) {
				t.Error(got, err)
			}
			if n, err := s.Add(name+"/n", 3); err != nil || n != 3 {
				t.Error(n, err)
			}
			if n, err := s.Add(name+"/n", -1); err != nil || n != 2 {
				t.Error(n, err)
			}
			if there, err := s.Check(key, name+"/none"); err != nil || there {
				t.Error(there, err)
			}
			if there, err := s.Check(key); err != nil || !there {
				t.Error(there, err)
			}
			if got, err := s.CompareSet(key, value, []byte("b")); err != nil || string(got) != "b" {
				t.Error(got, err)
			}
			if got, err := s.CompareSet(key, value, []byte("c")); err != nil || string(got) != "b" {
				t.Error(got, err)
			}
			if n, err := s.NumKeys(); err != nil || n < 2 {
				t.Error(n, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if _, err := s.Get(ctx, name+"/none"); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			testhelp.Must(t, s.SetTimeout(50*time.Millisecond))
			for _, ctx := range []context.Context{t.Context(), context.Background()} {
				if err := s.Wait(ctx, name+"/none"); !errors.Is(err, distributed.StoreError) {
					t.Error(err)
				}
			}
			testhelp.Must(t, s.SetTimeout(time.Minute))
			if _, err := s.Port(); (err == nil) != (name == "server" || name == "client") {
				t.Error(err)
			}
			if err := s.Set("a\x00b", nil); !errors.Is(err, gotorch.ValueError) {
				t.Error(err)
			}
			if there, err := s.Delete(key); err != nil && name != "file" || !there && err == nil {
				t.Error(there, err)
			}
		})
	}
	for _, s := range []*distributed.Store{prefixed, client, file, hash, server} {
		testhelp.Must(t, s.Close())
		testhelp.Must(t, s.Close())
	}
	if err := server.Set("a", nil); !errors.Is(err, gotorch.ValueError) {
		t.Error(err)
	}
	if _, err := distributed.NewTCPStore("127.0.0.1", 70000); !errors.Is(err, gotorch.ValueError) {
		t.Error(err)
	}
	_, err = distributed.NewTCPStore("127.0.0.1", port(t), distributed.TCPStoreOptions{Timeout: 200 * time.Millisecond})
	if !errors.Is(err, distributed.NetworkError) && !errors.Is(err, distributed.TimeoutError) && !errors.Is(err, distributed.StoreError) {
		t.Error(err)
	}
}

// silenced is a way to a port that can stop to pass on what comes from there.
type silenced struct {
	net.Listener
	mutex sync.Mutex // held while nothing is passed on
}

func newSilenced(t *testing.T, port int) *silenced {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testhelp.Must(t, err)
	s := &silenced{Listener: l}
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err != nil {
				t.Error(err)
				return
			}
			go func() {
				_, _ = io.Copy(to, from)
				to.Close()
			}()
			go func() {
				defer from.Close()
				b := make([]byte, 1<<16)
				for {
					n, err := to.Read(b)
					if err != nil {
						return
					}
					s.mutex.Lock()
					_, err = from.Write(b[:n])
					s.mutex.Unlock()
					if err != nil {
						return
					}
				}
			}()
		}
	}()
	return s
}

// TestAServerThatDoesNotAnswerIsAnError of what was asked, and what it answers later is not taken for an answer to the next
// question.
func TestAServerThatDoesNotAnswerIsAnError(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere the system gives the connection up, after minutes")
	}
	server, err := distributed.NewTCPStore("127.0.0.1", 0, distributed.TCPStoreOptions{Server: true, NoWaitForWorkers: true})
	testhelp.Must(t, err)
	defer server.Close()
	at, err := server.Port()
	testhelp.Must(t, err)
	testhelp.Must(t, server.Set("a", []byte("1")))
	for name, ask := range map[string]func(s *distributed.Store) error{
		"add":     func(s *distributed.Store) error { _, err := s.Add("n", 1); return err },
		"check":   func(s *distributed.Store) error { _, err := s.Check("a"); return err },
		"compare": func(s *distributed.Store) error { _, err := s.CompareSet("b", nil, []byte("c")); return err },
		"delete":  func(s *distributed.Store) error { _, err := s.Delete("b"); return err },
		"number":  func(s *distributed.Store) error { _, err := s.NumKeys(); return err },
		"get":     func(s *distributed.Store) error { _, err := s.Get(t.Context(), "a"); return err },
		"init": func(s *distributed.Store) error {
			_, err := distributed.Init(t.Context(), distributed.Options{Store: s, Rank: 0, WorldSize: 2, Timeout: time.Second})
			return err
		},
	} {
		for _, child := range []string{"", "prefix", "clone"} {
			way := newSilenced(t, at)
			s, err := distributed.NewTCPStore("127.0.0.1", way.Addr().(*net.TCPAddr).Port)
			testhelp.Must(t, err)
			of := s
			switch child {
			case "prefix":
				of, err = s.Prefix("p")
			case "clone":
				of, err = s.Clone()
			}
			testhelp.Must(t, err)
			testhelp.Must(t, of.SetTimeout(200*time.Millisecond))
			way.mutex.Lock()
			if err := ask(of); !errors.Is(err, distributed.NetworkError) && !errors.Is(err, distributed.StoreError) {
				t.Errorf("%s %s: %v", name, child, err)
			}
			way.mutex.Unlock()
			if n, err := of.Add("other", 5); !errors.Is(err, distributed.NetworkError) {
				t.Errorf("%s %s, later: %d %v", name, child, n, err)
			}
			testhelp.Must(t, of.Close())
			testhelp.Must(t, s.Close())
			way.Close()
		}
	}
	if got, err := server.Get(t.Context(), "a"); err != nil || string(got) != "1" { // others are as they were
		t.Error(got, err)
	}
}

// TestThreadsDoNotEndTheProcess where they write to a peer that has died: those of Gloo and of a store's server get no SIGPIPE, by
// which Go would have the process die.
func TestThreadsDoNotEndTheProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("it reads /proc")
	}
	server, err := distributed.NewTCPStore("127.0.0.1", 0, distributed.TCPStoreOptions{Server: true, NoWaitForWorkers: true})
	testhelp.Must(t, err)
	defer server.Close()
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		g.Barrier()
		defer g.Barrier()
		if g.Rank() > 0 {
			return
		}
		tasks, err := filepath.Glob("/proc/self/task/*")
		testhelp.Must(t, err)
		seen := map[string]int{}
		for _, task := range tasks {
			comm, _ := os.ReadFile(filepath.Join(task, "comm"))
			status, err := os.ReadFile(filepath.Join(task, "status"))
			name := strings.TrimSpace(string(comm))
			if err != nil || !strings.HasPrefix(name, "pt_gloo") && !strings.HasPrefix(name, "pt_tcpstore") {
				continue
			}
			_, rest, _ := strings.Cut(string(status), "SigBlk:")
			blocked, err := strconv.ParseUint(strings.Fields(rest)[0], 16, 64)
			testhelp.Must(t, err)
			if blocked&(1<<(syscall.SIGPIPE-1)) == 0 {
				t.Errorf("SIGPIPE is not blocked in %s", name)
			}
			seen[name]++
		}
		if len(seen) < 2 {
			t.Errorf("the threads are %v, and those of Gloo and of the store's server were expected", seen)
		}
	})
}
