package gotorch_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gotorch.dev/gotorch"
)

// TestTorture has 64 goroutines do at random what programs do, and what they should not: in a process
// of its own for each number of processors, with a collection as often as can be, under signals. Each
// does something for some seconds; `make soak` lets it take longer:
//
//	SOAK=1h SEED=7 go test ./gotorch -run TestTorture -timeout 0
//
// All results are checked, and in the end everything must have been given back.
func TestTorture(t *testing.T) {
	if duration, err := time.ParseDuration(os.Getenv("GOTORCH_TORTURE")); err == nil {
		torment(t, duration)
		return
	}
	if testing.Short() {
		t.Skip("it takes a while")
	}
	duration := 12 * time.Second
	if s := os.Getenv("SOAK"); s != "" {
		var err error
		if duration, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	seed := rand.Uint64()
	if s := os.Getenv("SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	for _, processors := range []string{"1", "2", "8"} {
		t.Run("GOMAXPROCS="+processors, func(t *testing.T) {
			t.Logf("SEED=%d", seed)
			cmd := exec.Command(os.Args[0], "-test.run=^TestTorture$", "-test.timeout="+(duration+10*time.Minute).String())
			cmd.Env = append(os.Environ(), "GOTORCH_TORTURE="+(duration/3).String(), "SEED="+fmt.Sprint(seed),
				"GOMAXPROCS="+processors, "GOGC=1", "GOTRACEBACK=all")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Logf("%s", out)
		})
	}
}

// torment is what the processes do that TestTorture starts.
func torment(t *testing.T, duration time.Duration) {
	seed, _ := strconv.ParseUint(os.Getenv("SEED"), 10, 64)
	tt := &torture{T: t, shared: leaf(1, 2, 3), constant: gotorch.FromSlice([]float32{1, 2, 3})}
	gotorch.SetWarningHandler(func(gotorch.Warning) {})
	tt.round(rand.New(rand.NewPCG(seed, 0)), nil) // what is made once is there
	tt.shared.SetGrad(gotorch.Tensor{})
	base, goroutines := live(), runtime.NumGoroutine()

	const workers = 64
	stop := make(chan struct{})
	var signals, work sync.WaitGroup
	tt.signals(stop, &signals)
	for i := range workers {
		random := rand.New(rand.NewPCG(seed, uint64(i)+1))
		work.Go(func() {
			for deadline := time.Now().Add(duration); time.Now().Before(deadline); {
				// Of its own, because some end it.
				done := make(chan struct{})
				go func() {
					defer close(done)
					for range 20 {
						tt.round(random, nil)
					}
				}()
				<-done
			}
		})
	}
	finished := make(chan struct{})
	go func() { work.Wait(); close(finished) }()
	most, mostBytes := 0, int64(0)
	for running := true; running; {
		select {
		case <-finished:
			running = false
		case <-time.After(100 * time.Millisecond):
		}
		most = max(most, threadsNow(t))
		mostBytes = max(mostBytes, gotorch.MemoryStats().NativeBytes)
	}
	close(stop)
	signals.Wait()

	tt.shared.SetGrad(gotorch.Tensor{})
	returnsTo(t, base)
	eventually(t, "callbacks to be released", func() bool { return gotorch.Lent() == 0 })
	if n := gotorch.CallsNow() + gotorch.LockedNow(); n != 0 {
		t.Errorf("%d places are taken when nothing runs", n)
	}
	eventually(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= goroutines+2 })
	// Workers, those they start, and libtorch's: some for each processor.
	if budget := 3*workers + 16*max(runtime.NumCPU(), runtime.GOMAXPROCS(0)); most > budget {
		t.Errorf("%d threads, want at most %d", most, budget)
	}
	if mostBytes > 64<<20 {
		t.Errorf("%d MB of tensors, each of some bytes", mostBytes>>20)
	}
	fmt.Printf("SEED=%d: %d rounds, at most %d threads and %d KB\n", seed, tt.rounds.Load(), most, mostBytes>>10)
}

// threadsNow returns how many threads this process has.
func threadsNow(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

type torture struct {
	*testing.T
	shared, constant gotorch.Tensor
	rounds           atomic.Int64
}

// signals sends what a Go program gets, as fast as it can stand them.
func (tt *torture) signals(stop chan struct{}, done *sync.WaitGroup) {
	var profile bytes.Buffer
	if err := pprof.StartCPUProfile(&profile); err != nil {
		tt.Error(err)
	}
	notified := make(chan os.Signal, 16)
	signal.Notify(notified, syscall.SIGUSR1, syscall.SIGCHLD)
	done.Go(func() {
		defer pprof.StopCPUProfile()
		defer signal.Stop(notified)
		for {
			for _, s := range []syscall.Signal{syscall.SIGURG, syscall.SIGUSR1, syscall.SIGPROF, syscall.SIGCHLD} {
				if err := syscall.Kill(os.Getpid(), s); err != nil {
					tt.Error(err)
				}
				// And to one of the threads, which may be in C.
				if tasks, err := os.ReadDir("/proc/self/task"); err == nil {
					id, _ := strconv.Atoi(tasks[rand.IntN(len(tasks))].Name())
					syscall.Tgkill(os.Getpid(), id, s) // it may have ended
				}
				select {
				case <-stop:
					return
				case <-notified:
				case <-time.After(time.Millisecond):
				}
			}
			gotorch.ReleaseCachedMemory()
		}
	})
}

type tortured struct{ error }

// round does one thing. within says what it is done in, for the checks.
func (tt *torture) round(random *rand.Rand, within []string) {
	tt.rounds.Add(1)
	inner := func(name string) func() {
		return func() {
			if len(within) < 4 {
				tt.round(random, append(within, name))
			}
		}
	}
	// quiet runs what may panic on purpose.
	quiet := func(fn func()) {
		defer func() {
			switch v := recover().(type) {
			case nil, tortured:
			case *gotorch.Error:
				var p *gotorch.CallbackPanic
				if !errors.As(v, &p) && !strings.Contains(v.Msg, "used after Close") {
					tt.Errorf("%v: %v\n%s", within, v, debug.Stack())
				}
			default:
				panic(v)
			}
		}()
		fn()
	}
	grad := gotorch.GradEnabled() && !gotorch.InferenceModeEnabled()
	tt.compute()
	switch random.IntN(19) {
	case 0:
		before := gotorch.GradEnabled()
		gotorch.NoGrad(func() {
			inner("NoGrad")()
			if gotorch.GradEnabled() {
				tt.Errorf("%v: NoGrad is left", within)
			}
		})
		if gotorch.GradEnabled() != before {
			tt.Errorf("%v: NoGrad has not ended", within)
		}
	case 1:
		gotorch.EnableGrad(inner("EnableGrad"))
	case 2:
		gotorch.InferenceMode(inner("InferenceMode"))
	case 3:
		gotorch.Autocast(gotorch.CPU, gotorch.BFloat16, inner("Autocast"))
	case 4:
		kept := gotorch.Scope(func(s *gotorch.ScopeHandle) gotorch.Tensor {
			x := tt.constant.Add(tt.constant)
			for range random.IntN(40) {
				tt.constant.AddScalar(1)
			}
			inner("Scope")()
			return x
		})
		tt.check(within, kept, "tensor([2., 4., 6.])")
	case 5:
		gotorch.Unscoped(inner("Unscoped"))
	case 6:
		quiet(func() {
			gotorch.Scope0(func(*gotorch.ScopeHandle) { gotorch.NoGrad(func() { panic(tortured{}) }) })
		})
	case 7:
		done := make(chan struct{})
		go func() { // ends in the middle, and waits
			defer close(done)
			defer runtime.Gosched()
			gotorch.NoGrad(func() {
				gotorch.Scope0(func(*gotorch.ScopeHandle) {
					tt.compute()
					time.Sleep(time.Duration(random.IntN(100)) * time.Microsecond)
					runtime.Goexit()
				})
			})
		}()
		<-done
	case 8:
		done := make(chan struct{})
		go func() { // its thread ends
			defer close(done)
			runtime.LockOSThread()
			tt.compute()
		}()
		<-done
	case 9:
		x := tt.constant.MulScalar(3)
		y := x
		x.Close()
		quiet(func() { y.AddScalar(1); tt.Error("a closed tensor was added to") })
	case 10, 11, 12:
		if !grad {
			break
		}
		what := random.IntN(6)
		w := leaf(1, 2, 3)
		y := gotorch.Apply(tortureFunction{what}, w)[0]
		hook := y.RegisterHook(func(g gotorch.Tensor) gotorch.Tensor {
			tt.compute()
			switch what {
			case 0:
				panic(tortured{})
			case 1:
				runtime.Goexit()
			case 2:
				gotorch.EnableGrad(inner("hook"))
			case 3:
				time.Sleep(time.Duration(random.IntN(100)) * time.Microsecond)
			}
			return g.MulScalar(2)
		})
		ended := true
		done := make(chan struct{})
		go func() {
			defer close(done)
			quiet(func() {
				gotorch.Scope0(func(*gotorch.ScopeHandle) {
					y.Sum().Backward()
					if what != 2 { // what is inside may end the goroutine, or panic
						tt.check(within, w.Grad().Detach(), "tensor([4., 4., 4.])")
					}
				})
			})
			ended = false
		}()
		<-done
		if (what == 1 || what == 5) && !ended {
			tt.Errorf("%v: the goroutine went on", within)
		}
		if random.IntN(2) == 0 {
			hook.Remove()
		}
	case 13:
		if !grad {
			break
		}
		// All goroutines meet in one leaf, whose hook waits for another goroutine.
		hook := tt.shared.RegisterPostAccumulateGradHook(func(gotorch.Tensor) {
			done := make(chan struct{})
			go func() { defer close(done); tt.compute() }()
			<-done
		})
		tt.shared.Sum().Backward()
		hook.Remove()
	case 14:
		x := gotorch.Ones([]int64{2})
		x.Index(gotorch.FromSlice([]uint8{1, 0})) // warns
	case 15:
		if gotorch.Try0(func() { tt.constant.MM(tt.constant.AddScalar(1)) }) == nil {
			tt.Error("vectors were multiplied as matrices")
		}
	case 17, 18: // closed while others use it, by Close or by the end of a scope
		var others sync.WaitGroup
		share := func() gotorch.Tensor {
			x := tt.constant.MulScalar(3)
			for range 2 {
				others.Go(func() {
					for x.Defined() {
						quiet(func() {
							tt.check(within, gotorch.Cat([]gotorch.Tensor{x, x.Add(x)}), "tensor([ 3.,  6.,  9.,  6., 12., 18.])")
						})
					}
				})
			}
			time.Sleep(time.Duration(random.IntN(100)) * time.Microsecond)
			return x
		}
		if random.IntN(2) == 0 {
			share().Close()
		} else {
			gotorch.Scope0(func(*gotorch.ScopeHandle) { share() })
		}
		tt.constant.AddScalar(1) // into the memory that may be free
		others.Wait()
	case 16:
		gotorch.MemoryStats()
		runtime.GC()
	}
	tt.compute()
}

func (tt *torture) compute() {
	got := gotorch.NoGrad1(func() string { return tt.constant.Mul(tt.constant).Sum().String() })
	if got != "tensor(14.)" {
		tt.Errorf("got %s, want 14", got)
	}
}

func (tt *torture) check(within []string, got gotorch.Tensor, want string) {
	if s := gotorch.NoGrad1(func() string { return got.String() }); s != want {
		tt.Errorf("%v: got %s, want %s", within, s, want)
	}
}

type tortureFunction struct{ what int }

func (f tortureFunction) Forward(ctx *gotorch.FunctionContext, in []gotorch.Tensor) []gotorch.Tensor {
	y := in[0].MulScalar(2)
	ctx.SaveForBackward(in[0], y)
	return []gotorch.Tensor{y}
}

func (f tortureFunction) Backward(ctx *gotorch.FunctionContext, grads []gotorch.Tensor) []gotorch.Tensor {
	switch f.what {
	case 4:
		panic(tortured{})
	case 5:
		runtime.Goexit()
	}
	x := ctx.SavedTensors()[0]
	return []gotorch.Tensor{grads[0].Add(x.Sub(x)).MulScalar(2)}
}
