package serve_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/graph"
	"gotorch.dev/gotorch/internal/modeltest"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/serve"
	pb "gotorch.dev/gotorch/serve/internal/inferencepb"
)

func part(id any, start, end bool) serve.Parameters {
	return serve.Parameters{"sequence_id": id, "sequence_start": start, "sequence_end": end}
}

// running serves the model that returns the largest of x*1 in a sequence so far.
func running(t *testing.T, opts ...serve.ModelOption) *serve.Server {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "m")
	modeltest.Write(t, dir, 1, true)
	m, err := graph.Open(dir)
	testhelp.Must(t, err)
	srv := serve.New()
	testhelp.Must(t, srv.Add("max", serve.FromGraph(m), opts...))
	t.Cleanup(func() { srv.Close(context.Background()) })
	return srv
}

func TestASequenceGoesOnWhereItWas(t *testing.T) {
	srv := running(t, serve.Sequences{})
	step := func(want float32, x float32, params serve.Parameters) {
		t.Helper()
		if got, err := ask(srv, "max", "", params, x); err != nil || got != want {
			t.Errorf("got %v, %v, not %v", got, err, want)
		}
	}
	step(3, 3, part(int64(7), true, false))
	step(0, -5, part("other", true, false)) // zeros begin it
	step(3, 2, part(int64(7), false, false))
	step(5, 5, part("7", true, true)) // a text is no number
	step(4, 4, part(uint64(7), false, false))
	for i := range uint64(3) { // which a double does not tell apart
		step(float32(i+1), float32(i+1), part(1<<63+i, true, false))
	}
	for i := range uint64(3) {
		step(float32(i+1), 0, part(1<<63+i, false, true))
	}
	step(1, 1, part("other", false, true))
	step(4, 1, part(int64(7), false, true))
	step(0, -1, part(int64(7), true, true)) // anew
	for _, params := range []serve.Parameters{nil, part(int64(7), false, false), part(int64(0), true, false), part("", true, false)} {
		if _, err := ask(srv, "max", "", params); !errors.Is(err, serve.InvalidArgument) {
			t.Errorf("%v: %v", params, err)
		}
	}
	for _, params := range []serve.Parameters{{"sequence_id": true}, {"sequence_id": "a", "sequence_start": int64(1)}} {
		if _, err := ask(srv, "max", "", params); !errors.Is(err, serve.InvalidArgument) {
			t.Errorf("%v: %v", params, err)
		}
	}
}

func TestAModelWithStateNeedsSequences(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "m")
	modeltest.Write(t, dir, 1, true)
	m, err := graph.Open(dir)
	testhelp.Must(t, err)
	defer m.Close()
	if err := serve.New().Add("max", serve.FromGraph(m)); !errors.Is(err, serve.InvalidArgument) {
		t.Errorf("got %v", err)
	}
	if got := serve.FromGraph(m).Signature(); len(got.Inputs) != 1 || len(got.Outputs) != 1 || got.Inputs[0].Name != "x" {
		t.Errorf("clients see %v", got)
	}
}

func TestSequencesAreBoundedAndEndWhenTheyAreIdle(t *testing.T) {
	srv := running(t, serve.Sequences{Max: 2, Idle: 50 * time.Millisecond})
	for i := range 2 {
		_, err := ask(srv, "max", "", part(int64(i+1), true, false))
		testhelp.Must(t, err)
	}
	if _, err := ask(srv, "max", "", part("third", true, false)); !errors.Is(err, serve.ResourceExhausted) {
		t.Errorf("the third: %v", err)
	}
	soon(t, "room", func() bool { _, err := ask(srv, "max", "", part("third", true, false)); return err == nil })
	if _, err := ask(srv, "max", "", part(int64(1), false, false)); !errors.Is(err, serve.InvalidArgument) {
		t.Errorf("one that was idle: %v", err)
	}
}

// state is a list that a model in Go keeps.
type state struct {
	seen   []float32
	closed *int
}

func (s *state) Close() error {
	*s.closed++
	return nil
}

func TestRequestsOfASequenceRunInOrderOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mutex sync.Mutex
		inside, closed := map[string]bool{}, 0
		var order []float32
		model := serve.NewModel(serve.Signature{Inputs: []serve.Spec{{Name: "x", Type: serve.FP32, Shape: []int64{-1, 2}}},
			Outputs: []serve.Spec{{Name: "y", Type: serve.FP32}}}, func(_ context.Context, in *serve.Request) ([]serve.Value, error) {
			mutex.Lock()
			for _, s := range in.Sequences {
				if inside[s.ID] {
					t.Errorf("two requests of %s run at once", s.ID)
				}
				inside[s.ID] = true
			}
			mutex.Unlock()
			time.Sleep(time.Millisecond)
			mutex.Lock()
			defer mutex.Unlock()
			for i, s := range in.Sequences {
				inside[s.ID] = false
				if s.State == nil {
					s.State = &state{closed: &closed}
				}
				kept := s.State.(*state)
				kept.seen = append(kept.seen, gotorch.ToSlice[float32](in.Inputs[0].Tensor)[2*i])
				if s.ID == "a" {
					order = kept.seen
				}
			}
			return []serve.Value{{Tensor: in.Inputs[0].Tensor.Clone()}}, nil
		})
		srv := serve.New()
		testhelp.Must(t, srv.Add("m", model, serve.Sequences{}, serve.Batching{Max: 4}, serve.Instances(3)))
		ask(srv, "m", "", part("a", true, false), 0)
		ask(srv, "m", "", part("b", true, false), 0)
		var clients sync.WaitGroup
		for i := range 10 {
			clients.Go(func() { ask(srv, "m", "", part("a", false, false), float32(i+1)) })
			clients.Go(func() { ask(srv, "m", "", part("b", false, false), float32(i+1)) })
			synctest.Wait() // it is in line
		}
		clients.Wait()
		if got := fmt.Sprint(order); got != "[0 1 2 3 4 5 6 7 8 9 10]" {
			t.Errorf("the order was %s", got)
		}
		_, err := ask(srv, "m", "", part("a", false, true), 0)
		testhelp.Must(t, err)
		synctest.Wait()
		if closed != 1 {
			t.Errorf("%d states were closed, where one sequence has ended", closed)
		}
		testhelp.Must(t, srv.Close(t.Context()))
		if closed != 2 {
			t.Errorf("%d states were closed with the server", closed)
		}
	})
}

func TestANewVersionGoesOnWithSequences(t *testing.T) {
	dir := t.TempDir()
	modeltest.Write(t, filepath.Join(dir, "max/1"), 1, true)
	srv, _ := repository(t, dir, serve.Options{})
	step := func(want float32, x float32, params serve.Parameters) {
		t.Helper()
		if got, err := ask(srv, "max", "", params, x); err != nil || got != want {
			t.Errorf("got %v, %v, not %v", got, err, want)
		}
	}
	step(3, 3, part("a", true, false))
	modeltest.Write(t, filepath.Join(dir, "max/1"), 10, true)
	soon(t, "the new content", func() bool { y, err := ask(srv, "max", "", part("b", true, true), 1); return err == nil && y == 10 })
	step(3, 0, part("a", false, false))
	// Another version does not take a sequence away from the one where it is.
	modeltest.Write(t, filepath.Join(dir, "max/2"), 100, true)
	soon(t, "version 2", func() bool { return srv.Ready("max", "2") })
	step(20, 2, part("a", false, false))
	step(200, 2, part("c", true, true))
}

// Whatever becomes of the requests, no tensor and no sequence stays.
func TestNothingStaysOfSequences(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "m")
	modeltest.Write(t, dir, 1, true)
	m, err := graph.Open(dir)
	testhelp.Must(t, err)
	srv := serve.New()
	testhelp.Must(t, srv.Add("max", serve.FromGraph(m), serve.Sequences{Max: 8, Idle: 10 * time.Millisecond}, serve.Batching{Max: 4}, serve.Queue{Max: 16}))
	// What a sequence has is compared with Go's own maximum.
	round := func(n int) {
		var clients sync.WaitGroup
		for c := range 6 {
			clients.Go(func() {
				random := rand.New(rand.NewPCG(1, uint64(c)))
				for i := range n {
					id, largest := fmt.Sprintf("%d-%d", c, i), float32(0)
					for k := range 1 + random.IntN(5) {
						x := float32(random.IntN(200) - 100)
						if random.IntN(10) == 0 { // one that goes away, which may have run or not
							ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(100))*time.Microsecond)
							gotorch.Scope0(func(*gotorch.ScopeHandle) {
								srv.Infer(ctx, serve.InferRequest{Model: "max", Parameters: part(id, k == 0, false),
									Inputs: []serve.Value{{Name: "x", Tensor: gotorch.Full([]int64{1, 2}, x)}}})
							})
							cancel()
							break
						}
						largest = max(largest, x)
						got, err := ask(srv, "max", "", part(id, k == 0, random.IntN(4) == 0), x)
						if err != nil {
							if !errors.Is(err, serve.ResourceExhausted) && !errors.Is(err, serve.InvalidArgument) {
								t.Error(err)
							}
							break
						}
						if got != largest {
							t.Errorf("got %v, not %v", got, largest)
						}
					}
				}
			})
		}
		clients.Wait()
	}
	round(20)
	time.Sleep(50 * time.Millisecond)
	before := gotorch.MemoryStats().LiveHandles
	round(100)
	testhelp.Must(t, srv.Close(t.Context()))
	// Tensors that were closed a moment ago may be owed, 32 for each thread.
	if after := gotorch.MemoryStats().LiveHandles; after > before+64 {
		t.Errorf("%d tensors live, where %d did", after, before)
	}
}

// together runs requests of sequences a and b of model m in one batch, on x and y, and returns their errors.
func together(t *testing.T, srv *serve.Server, start bool, x, y float32) (errA, errB error) {
	t.Helper()
	var clients sync.WaitGroup
	clients.Go(func() { _, errA = ask(srv, "m", "", part("a", start, false), x) })
	clients.Go(func() { _, errB = ask(srv, "m", "", part("b", start, false), y) })
	clients.Wait()
	return errA, errB
}

// A batch that fails is run again. What its first run left in a state must not be there then.
// badState is a state whose Close does what it should not.
type badState struct{ how string }

func (b *badState) Close() error {
	if b.how == "panics" {
		panic("this state cannot be closed")
	}
	return errors.New("this state cannot be closed")
}

func TestAStateWhoseCloseFailsHarmsNothing(t *testing.T) {
	var log lockedBuffer
	registry := prometheus.NewRegistry()
	srv := serve.New(serve.Options{Metrics: registry, Log: slog.New(slog.NewTextHandler(&log, nil))})
	testhelp.Must(t, srv.Add("m", serve.NewModel(serve.Signature{Outputs: []serve.Spec{{Name: "y", Type: serve.FP32, Shape: []int64{1}}}},
		func(_ context.Context, in *serve.Request) ([]serve.Value, error) {
			how, _ := in.Parameters["how"].(string)
			in.Sequences[0].State = &badState{how}
			return []serve.Value{{Tensor: gotorch.Zeros([]int64{1})}}, nil
		}), serve.Sequences{Max: 2, Idle: 50 * time.Millisecond}))
	step := func(id, how string, start, end bool) {
		t.Helper()
		p := part(id, start, end)
		p["how"] = how
		if _, err := srv.Infer(t.Context(), serve.InferRequest{Model: "m", Parameters: p}); err != nil {
			t.Error(err)
		}
	}
	failed := func(n float64) {
		t.Helper()
		soon(t, fmt.Sprint(n, " have failed"), func() bool { return gathered(t, registry, "gotorch_serve_close_failures_total")[""] >= n })
	}
	step("a", "panics", true, true) // it ends
	failed(1)
	step("b", "panics", true, false)
	step("b", "fails", true, false) // is begun anew
	failed(2)
	failed(3)                       // and idle too long, on a timer's goroutine
	step("c", "panics", true, true) // there is room for others
	step("d", "panics", true, true)
	failed(5)
	step("e", "panics", true, false)
	testhelp.Must(t, srv.Close(t.Context()))
	for what, n := range map[string]int{"closing the state of a sequence failed": 6,
		"model=m version=1 panic=\"this state cannot be closed\" stack=": 5, "model=m version=1 error=\"this state cannot be closed\"": 1} {
		if log.count(what) != n {
			t.Errorf("the log has %q %d times, and not %d:\n%s", what, log.count(what), n, log.text.String())
		}
	}
}

func TestTheStateIsPutBackBeforeABatchIsRunAgain(t *testing.T) {
	closed := 0
	var closers []string
	model := serve.NewModel(serve.Signature{Inputs: []serve.Spec{{Name: "x", Type: serve.FP32, Shape: []int64{-1, 2}}},
		Outputs: []serve.Spec{{Name: "y", Type: serve.FP32}}}, func(_ context.Context, in *serve.Request) ([]serve.Value, error) {
		out := make([]float32, len(in.Sequences))
		failed := false
		for i, s := range in.Sequences {
			x := gotorch.ToSlice[float32](in.Inputs[0].Tensor)[2*i]
			switch before := s.State.(type) {
			case nil:
				if x == 7 {
					s.State = &state{closed: &closed}
				} else {
					s.State = x
				}
			case float32:
				s.State = before + x
			case *state:
				closers = append(closers, s.ID)
			}
			out[i], _ = s.State.(float32)
			failed = failed || x < 0
		}
		if failed {
			return nil, errors.New("one is negative")
		}
		return []serve.Value{{Tensor: gotorch.FromSlice(out)}}, nil
	})
	srv := newServer(t)
	testhelp.Must(t, srv.Add("m", model, serve.Sequences{}, serve.Batching{Max: 2, Delay: time.Minute}))
	if errA, errB := together(t, srv, true, 1, 2); errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	if errA, errB := together(t, srv, false, 10, -1); errA != nil || errB == nil {
		t.Fatal(errA, errB)
	}
	var clients sync.WaitGroup
	for id, want := range map[string]float32{"a": 11, "b": 1} {
		clients.Go(func() {
			if got, err := ask(srv, "m", "", part(id, false, true), 0); err != nil || got != want {
				t.Errorf("%s is %v, %v, not %v", id, got, err, want)
			}
		})
	}
	clients.Wait()
	// One that is a Closer is closed, where nothing was before.
	if errA, errB := together(t, srv, true, 7, -1); errA != nil || errB == nil {
		t.Fatal(errA, errB)
	}
	if closed != 1 || len(closers) > 0 {
		t.Errorf("%d states of the first run were closed, and %v were met again", closed, closers)
	}
}

// The state of an exported model is that of the runs that came to results.
func TestAnExportedModelsStateGoesOnWhenItsResultsAreThere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "m")
	modeltest.Write(t, dir, 1, true)
	m, err := graph.Open(dir)
	testhelp.Must(t, err)
	defer m.Close()
	srv := newServer(t)
	fails := true
	testhelp.Must(t, srv.Add("m", serve.NewModel(serve.FromGraph(m).Signature(), func(ctx context.Context, in *serve.Request) ([]serve.Value, error) {
		out, err := serve.FromGraph(m).Run(ctx, in)
		if err == nil && fails {
			return nil, errors.New("later")
		}
		return out, err
	}), serve.Sequences{}))
	handles := gotorch.MemoryStats().LiveHandles
	for range 3 {
		if _, err := ask(srv, "m", "", part("a", true, false), 9); !errors.Is(err, serve.Internal) {
			t.Error(err)
		}
	}
	fails = false
	if got, err := ask(srv, "m", "", part("a", true, false), 2); err != nil || got != 2 {
		t.Error(got, err)
	}
	fails = true
	if _, err := ask(srv, "m", "", part("a", false, false), 9); !errors.Is(err, serve.Internal) {
		t.Error(err)
	}
	fails = false
	if got, err := ask(srv, "m", "", part("a", false, true), 1); err != nil || got != 2 {
		t.Errorf("got %v, %v: a run that failed has changed the state", got, err)
	}
	if after := gotorch.MemoryStats().LiveHandles; after > handles+8 { // tensors that were closed a moment ago may be owed
		t.Errorf("%d tensors live, where %d did", after, handles)
	}
}

// timed is a model with sequences each of whose runs takes so long in the clock of synctest.
func timed(takes time.Duration) serve.Model {
	return serve.NewModel(serve.Signature{Inputs: []serve.Spec{{Name: "x", Type: serve.FP32, Shape: []int64{-1, 2}}},
		Outputs: []serve.Spec{{Name: "y", Type: serve.FP32}}}, func(_ context.Context, in *serve.Request) ([]serve.Value, error) {
		time.Sleep(takes)
		n, _ := in.Sequences[0].State.(int)
		in.Sequences[0].State = n + 1
		return []serve.Value{{Tensor: gotorch.FromSlice([]float32{float32(n + 1)})}}, nil
	})
}

// A request waits for its sequence and then in the queue: for both together no longer than it may.
func TestWaitingForASequenceCountsAsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := serve.New()
		testhelp.Must(t, srv.Add("m", timed(8*time.Second), serve.Sequences{}, serve.Queue{Timeout: 10 * time.Second}))
		var clients sync.WaitGroup
		for i, id := range []string{"a", "b", "a"} {
			clients.Go(func() {
				_, err := ask(srv, "m", "", part(id, i < 2, false))
				if i == 2 && !errors.Is(err, serve.DeadlineExceeded) || i < 2 && err != nil {
					t.Errorf("request %d: %v", i, err)
				}
			})
			time.Sleep(time.Second)
		}
		clients.Wait()
		testhelp.Must(t, srv.Close(t.Context()))
	})
}

// A last request that was refused may be sent again: the sequence is still there.
func TestALastRequestThatNeverRanEndsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := serve.New()
		testhelp.Must(t, srv.Add("m", timed(time.Second), serve.Sequences{}, serve.Queue{Max: 1}))
		_, err := ask(srv, "m", "", part("a", true, false))
		testhelp.Must(t, err)
		var clients sync.WaitGroup
		for i := range 2 { // one runs, and one waits
			clients.Go(func() { ask(srv, "m", "", part(int64(i+1), true, false)) })
			synctest.Wait()
		}
		if _, err := ask(srv, "m", "", part("a", false, true)); !errors.Is(err, serve.ResourceExhausted) {
			t.Error(err)
		}
		clients.Wait()
		if got, err := ask(srv, "m", "", part("a", false, true)); err != nil || got != 2 {
			t.Errorf("sent again it comes to %v, %v", got, err)
		}
		if _, err := ask(srv, "m", "", part("a", false, true)); !errors.Is(err, serve.InvalidArgument) {
			t.Errorf("once more, where it has ended: %v", err)
		}
		testhelp.Must(t, srv.Close(t.Context()))
	})
}

// Where two versions have a sequence of one name, a request that names no version goes to the higher one each time.
func TestOfSeveralVersionsWithASequenceTheHighestGoesOn(t *testing.T) {
	srv := newServer(t)
	for _, id := range []serve.Version{"1", "2", "3"} {
		testhelp.Must(t, srv.Add("m", timed(0), serve.Sequences{}, id))
	}
	for _, id := range []string{"1", "2"} {
		_, err := ask(srv, "m", id, part("a", true, false))
		testhelp.Must(t, err)
	}
	for i := range 30 {
		if got, err := ask(srv, "m", "", part("a", false, false)); err != nil || got != float32(i+2) {
			t.Fatalf("request %d comes to %v, %v", i, got, err)
		}
	}
}

// Those that wait for their sequences are bounded as those in the queue are, all together.
func TestNoMoreWaitForTheirSequencesThanMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := serve.New()
		testhelp.Must(t, srv.Add("m", timed(time.Second), serve.Sequences{}, serve.Queue{Max: 4}, serve.Instances(3)))
		for round := range 3 { // nothing is lost of the count
			var clients sync.WaitGroup
			refused := 0
			for i := range 3 {
				clients.Go(func() {
					if _, err := ask(srv, "m", "", part(int64(i+1), true, false)); err != nil {
						t.Error(err)
					}
				})
			}
			synctest.Wait()
			for i := range 9 {
				clients.Go(func() {
					if i == 1 { // it goes away before its turn
						ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
						defer cancel()
						if _, err := srv.Infer(ctx, serve.InferRequest{Model: "m", Parameters: part(int64(2), false, false),
							Inputs: []serve.Value{{Name: "x", Tensor: gotorch.Full([]int64{1, 2}, float32(1))}}}); !errors.Is(err, serve.DeadlineExceeded) {
							t.Error(err)
						}
						return
					}
					_, err := ask(srv, "m", "", part(int64(i%3+1), false, false))
					if errors.Is(err, serve.ResourceExhausted) {
						refused++
					} else if err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
			}
			clients.Wait()
			if refused != 5 {
				t.Errorf("round %d: %d were refused", round, refused)
			}
		}
		testhelp.Must(t, srv.Close(t.Context()))
	})
}

// Clients look there whether a server has sequences, and whether texts may name them.
func TestTheServerSaysThatItHasSequences(t *testing.T) {
	srv := newServer(t)
	body, _, _ := request(t, srv, "GET", "/v2")
	res, err := serveGRPC(t, srv).ServerMetadata(t.Context(), &pb.ServerMetadataRequest{})
	testhelp.Must(t, err)
	for _, name := range []string{"sequence", "sequence(string_id)"} {
		if !strings.Contains(body, `"`+name+`"`) || !slices.Contains(res.Extensions, name) {
			t.Errorf("%s is not among the extensions of %s, or of %v", name, body, res.Extensions)
		}
	}
}
