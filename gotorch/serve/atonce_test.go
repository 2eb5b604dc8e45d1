package serve_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/modeltest"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/serve"
)

// Requests are joined where their parameters are the same, by value and by type, in whatever order they are.
func TestOnlyRequestsWithTheSameParametersAreJoined(t *testing.T) {
	srv := newServer(t)
	gate := make(chan struct{})
	seen := make(chan int, 100)
	testhelp.Must(t, srv.Add("m", serve.NewModel(serve.FromModel(double).Signature(), func(_ context.Context, in *serve.Request) ([]serve.Value, error) {
		<-gate
		seen <- len(in.Rows)
		return []serve.Value{{Tensor: in.Inputs[0].Tensor}}, nil
	}), serve.Batching{Max: 100}))
	web := httptest.NewServer(srv.HTTP())
	defer web.Close()
	// together sends requests while another runs, and returns in how many batches they then run.
	together := func(params ...string) int {
		var clients sync.WaitGroup
		send := func(params string) {
			clients.Go(func() {
				code, text := post(t, web.URL+"/v2/models/m/infer", `{"parameters":`+params+`,"inputs":[{"name":"input","shape":[1],"datatype":"FP32","data":[1]}]}`)
				if code != 200 {
					t.Error(code, text)
				}
			})
		}
		send("{}")
		untilRunning(t, srv)
		for i, p := range params {
			send(p)
			untilWaiting(t, srv, i+1)
		}
		before := len(params)
		gate <- struct{}{}
		<-seen
		batches := 0
		for before > 0 {
			gate <- struct{}{}
			before -= <-seen
			batches++
		}
		clients.Wait()
		return batches
	}
	for _, same := range [][]string{
		{`{"a":1,"b":"x"}`, `{"b":"x","a":1}`, `{"a":1,"b":"x","priority":0,"timeout":0}`, `{"a":1,"b":"x","c":null}`},
		{`{}`, `{"timeout":60000000}`, `{"binary_data_output":false}`},
		{`{"a":18446744073709551615}`, `{"a":18446744073709551615}`},
		{`{"a":1.5}`, `{"a":15e-1}`},
		{`{"a":"\u00e9"}`, `{"a":"é"}`},
	} {
		if n := together(same...); n != 1 {
			t.Errorf("%v ran in %d batches", same, n)
		}
	}
	for _, different := range [][]string{
		{`{}`, `{"a":1}`, `{"a":1.0}`, `{"a":true}`, `{"a":"1"}`, `{"a":"true"}`, `{"a":"1.0"}`, `{"a":-1}`, `{"a":0}`, `{"a":-0.0}`, `{"a":0.0}`, `{"a":""}`},
		{`{"a":9007199254740992}`, `{"a":9007199254740993}`, `{"a":9007199254740992.0}`},
		{`{"a":18446744073709551615}`, `{"a":18446744073709551614}`, `{"a":1.8446744073709552e19}`},
		{`{"a":"1;\"b\"=int64:\"2"}`, `{"a":"1","b":2}`, `{"a":"1\";\"b\"=int64:\"2\""}`},
		{`{"a;b":1}`, `{"a":1,"b":1}`, `{"A":1,"b":1}`},
	} {
		if n := together(different...); n != len(different) {
			t.Errorf("%v ran in %d batches", different, n)
		}
	}
}

// What waits when a model is unloaded, replaced or removed runs, and what comes then does not.
func TestWhatWaitsWhenAModelGoesIsRun(t *testing.T) {
	for how, goes := range map[string]func(*serve.Server) error{
		"unload":  func(srv *serve.Server) error { return srv.Unload(context.Background(), "m", "") },
		"remove":  func(srv *serve.Server) error { return srv.Remove(context.Background(), "m", "1") },
		"close":   func(srv *serve.Server) error { return srv.Close(context.Background()) },
		"replace": func(srv *serve.Server) error { return srv.Add("m", serve.FromModel(double)) },
	} {
		srv := newServer(t)
		gate := make(chan struct{})
		testhelp.Must(t, srv.Add("m", serve.FromModel(func(x gotorch.Tensor) gotorch.Tensor { <-gate; return x })))
		var clients sync.WaitGroup
		for i := range 5 {
			clients.Go(func() {
				if got, want := infer(srv, "m", float32(i)), fmt.Sprintf("[%d]", i); got != want {
					t.Errorf("%s: %s, where %s was expected", how, got, want)
				}
			})
			if i == 0 {
				untilRunning(t, srv)
			}
		}
		untilWaiting(t, srv, 4)
		clients.Go(func() {
			if err := goes(srv); err != nil {
				t.Errorf("%s: %v", how, err)
			}
		})
		soon(t, how, func() bool { // a request is not one for the model that goes
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			out, err := srv.Infer(ctx, serve.InferRequest{Model: "m", Inputs: []serve.Value{tensor(3)}})
			return err == nil && numbers(out[0])[0] == 6 || errors.Is(err, serve.Unavailable) || errors.Is(err, serve.NotFound)
		})
		close(gate)
		clients.Wait()
	}
}

// counted says how often it was closed.
type counted struct {
	serve.Model
	closed atomic.Int64
}

func (c *counted) Close() error { c.closed.Add(1); return nil }

// Everything at once: whoever asks gets an answer of a model, or the error that there is none.
func TestModelsComeAndGoAtOnce(t *testing.T) {
	goroutines, handles := runtime.NumGoroutine(), gotorch.MemoryStats().LiveHandles
	srv := serve.New()
	var mutex sync.Mutex
	var models []*counted
	add := func(id string) {
		m := &counted{Model: serve.FromModel(double)}
		if err := srv.Add("m", m, serve.Version(id), serve.Batching{Max: 4}); err != nil {
			t.Error(err)
			return
		}
		mutex.Lock()
		models = append(models, m)
		mutex.Unlock()
	}
	expected := func(err error) {
		if err != nil && !errors.Is(err, serve.NotFound) && !errors.Is(err, serve.Unavailable) {
			t.Error(err)
		}
	}
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := range 150 {
				id := fmt.Sprint((i + worker) % 3)
				switch worker {
				case 0:
					add(id)
				case 1:
					expected(srv.Unload(context.Background(), "m", id))
				case 2, 3:
					expected(srv.Load(context.Background(), "m", ""))
				case 4:
					expected(srv.Remove(context.Background(), "m", id))
				default:
					if worker == 5 {
						id = ""
					}
					gotorch.Scope0(func(*gotorch.ScopeHandle) {
						out, err := srv.Infer(context.Background(), serve.InferRequest{Model: "m", Version: id, Inputs: []serve.Value{tensor(2)}})
						if expected(err); err == nil && numbers(out[0])[0] != 4 {
							t.Error(numbers(out[0]))
						}
					})
				}
			}
		})
	}
	all.Wait()
	testhelp.Must(t, srv.Close(t.Context()))
	for i, m := range models {
		if n := m.closed.Load(); n != 1 {
			t.Errorf("model %d of %d was closed %d times", i, len(models), n)
		}
	}
	testhelp.NoMoreGoroutines(t, goroutines)
	if after := gotorch.MemoryStats().LiveHandles; after > handles {
		t.Errorf("%d tensors live, where %d did", after, handles)
	}
}

// Clients that load a model of a folder at once get one.
func TestAModelThatIsLoadedByManyAtOnceIsLoadedOnce(t *testing.T) {
	dir := t.TempDir()
	srv, log := repository(t, dir, serve.Options{Control: true}, serve.RepositoryOptions{Poll: -1})
	modeltest.Write(t, filepath.Join(dir, "a/1"), 3, false)
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			if err := srv.Load(context.Background(), "a", ""); err != nil {
				t.Error(err)
			}
		})
	}
	clients.Wait()
	says(t, srv, "a", "", 6)
	if n := log.count("model added"); n != 1 {
		t.Errorf("it was added %d times", n)
	}
}

// A request whose client has gone, or whose time is over, when it comes never runs, and leaves its place in the queue.
func TestARequestThatIsLateWhenItComesNeverRuns(t *testing.T) {
	srv := newServer(t, serve.Options{MaxQueue: 1})
	var runs atomic.Int64
	testhelp.Must(t, srv.Add("m", serve.FromModel(func(x gotorch.Tensor) gotorch.Tensor { runs.Add(1); return x })))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	past, cancelPast := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancelPast()
	client := serveGRPC(t, srv)
	for range 5 {
		for ctx, want := range map[context.Context]serve.Code{gone: serve.Canceled, past: serve.DeadlineExceeded} {
			if _, err := srv.Infer(ctx, serve.InferRequest{Model: "m", Inputs: []serve.Value{tensor(1)}}); !errors.Is(err, want) {
				t.Errorf("%v, where %v was expected", err, want)
			}
		}
		if _, err := client.ModelInfer(past, zeros("m", "input", 1)); status.Code(err) != codes.DeadlineExceeded {
			t.Error(err)
		}
	}
	if n := runs.Load(); n != 0 {
		t.Errorf("%d of them ran", n)
	}
	if got := infer(srv, "m", 1); got != "[1]" {
		t.Error(got)
	}
}

// A message is bounded as it is when it is unpacked.
func TestPackedMessagesOfGRPCAreBounded(t *testing.T) {
	srv := newServer(t)
	testhelp.Must(t, srv.Add("double", serve.FromModel(double)))
	client := serveGRPC(t, srv)
	send := func(n int64) ([]byte, error) {
		res, err := client.ModelInfer(t.Context(), zeros("double", "input", n), grpc.UseCompressor("gzip"), grpc.MaxCallRecvMsgSize(1<<30))
		if err != nil {
			return nil, err
		}
		return res.RawOutputContents[0], nil
	}
	got, err := send(1 << 20)
	testhelp.Must(t, err)
	if !bytes.Equal(got, make([]byte, 4<<20)) {
		t.Errorf("%d bytes came back, or not zeros", len(got))
	}
	if _, err := send(20 << 20); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "larger than max") { // 80 MB, which pack to 80 KB
		t.Error(err)
	}
}

// Of requests that wait, those of a smaller number run first; without one, or with 0, they have the model's own.
func TestPrioritiesOfRequestsAreThoseOfTheProtocol(t *testing.T) {
	for _, c := range []struct {
		queue serve.Queue
		want  string
	}{
		{serve.Queue{Levels: 3}, "[1 2 3 9 8 0]"},
		{serve.Queue{Levels: 3, DefaultLevel: 1}, "[9 8 1 0 2 3]"},
		{serve.Queue{}, "[3 9 2 8 1 0]"},
	} {
		srv := newServer(t)
		gate := make(chan struct{})
		var order []int
		testhelp.Must(t, srv.Add("m", serve.FromModel(func(x gotorch.Tensor) gotorch.Tensor {
			<-gate
			order = append(order, int(gotorch.Item[float32](x)))
			return x
		}), c.queue))
		web := httptest.NewServer(srv.HTTP())
		var clients sync.WaitGroup
		for i, r := range []struct{ x, params string }{{"7", ""}, {"3", `"priority":3`}, {"9", ""}, {"2", `"priority":2`}, {"8", `"priority":0`}, {"1", `"priority":1`}, {"0", `"priority":0`}} {
			clients.Go(func() {
				code, text := post(t, web.URL+"/v2/models/m/infer", `{"parameters":{`+r.params+`},"inputs":[{"name":"input","shape":[1],"datatype":"FP32","data":[`+r.x+`]}]}`)
				if code != 200 {
					t.Error(code, text)
				}
			})
			if i == 0 {
				untilRunning(t, srv)
			} else {
				untilWaiting(t, srv, i)
			}
		}
		close(gate)
		clients.Wait()
		web.Close()
		if got := fmt.Sprint(order[1:]); got != c.want {
			t.Errorf("with %+v the order is %s, and not %s", c.queue, got, c.want)
		}
	}
}

// A request may ask to wait less than others of its model, and not for more.
func TestARequestMayOnlyAskToWaitLess(t *testing.T) {
	srv := newServer(t)
	gate := make(chan struct{})
	defer close(gate)
	wait := func(x gotorch.Tensor) gotorch.Tensor { <-gate; return x }
	testhelp.Must(t, srv.Add("m", serve.FromModel(wait), serve.Queue{Timeout: 20 * time.Millisecond}))
	testhelp.Must(t, srv.Add("long", serve.FromModel(wait), serve.Queue{Timeout: time.Hour}))
	for _, model := range []string{"m", "long"} {
		go infer(srv, model, 1)
		soon(t, "it runs", func() bool { s, err := srv.Statistics(model, ""); return err == nil && s[0].Running == 1 })
	}
	for _, c := range []struct {
		model   string
		timeout time.Duration
		want    string
	}{{"m", 0, "20ms"}, {"m", time.Hour, "20ms"}, {"m", time.Millisecond, "1ms"}, {"long", 30 * time.Millisecond, "30ms"}} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // else it would wait for the gate
		_, err := srv.Infer(ctx, serve.InferRequest{Model: c.model, Timeout: c.timeout, Inputs: []serve.Value{tensor(1)}})
		cancel()
		if !errors.Is(err, serve.DeadlineExceeded) || !strings.Contains(err.Error(), "has waited for "+c.want+",") {
			t.Errorf("%s with %v: %v", c.model, c.timeout, err)
		}
	}
}
