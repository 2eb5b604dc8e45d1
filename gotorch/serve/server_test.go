package serve_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/serve"
	pb "gotorch.dev/gotorch/serve/internal/inferencepb"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	os.Exit(m.Run())
}

func newServer(t testing.TB, opts ...serve.Options) *serve.Server {
	t.Helper()
	srv := serve.New(opts...)
	t.Cleanup(func() { srv.Close(context.Background()) })
	return srv
}

func tensor(values ...float32) serve.Value {
	return serve.Value{Name: "input", Tensor: gotorch.FromSlice(values, int64(len(values)), 1)}
}

func numbers(v serve.Value) []float32 { return gotorch.ToSlice[float32](v.Tensor) }

func double(x gotorch.Tensor) gotorch.Tensor { return x.MulScalar(2) }

// echoing is a model whose outputs are its inputs.
func echoing(inputs, outputs []serve.Spec) serve.Model {
	return serve.NewModel(serve.Signature{Inputs: inputs, Outputs: outputs}, func(_ context.Context, in *serve.Request) ([]serve.Value, error) { return in.Inputs, nil })
}

// zeros is a request whose one input is zeros of FP32.
func zeros(model, input string, shape ...int64) *pb.ModelInferRequest {
	n := int64(4)
	for _, size := range shape {
		n *= size
	}
	return &pb.ModelInferRequest{ModelName: model, RawInputContents: [][]byte{make([]byte, n)},
		Inputs: []*pb.ModelInferRequest_InferInputTensor{{Name: input, Datatype: "FP32", Shape: shape}}}
}

// infer sends rows to a model, and returns what comes back as text.
func infer(srv *serve.Server, name string, values ...float32) string {
	out, err := srv.Infer(context.Background(), serve.InferRequest{Model: name, Inputs: []serve.Value{tensor(values...)}})
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(numbers(out[0]))
}

// untilRunning waits until a batch of model m runs: what comes from then on waits.
func untilRunning(t *testing.T, srv *serve.Server) {
	t.Helper()
	until(t, srv, "a batch runs", func(s serve.Statistics) bool { return s.Running == 1 })
}

// untilWaiting waits until n requests for model m do.
func untilWaiting(t *testing.T, srv *serve.Server, n int) {
	t.Helper()
	until(t, srv, fmt.Sprintf("%d requests wait", n), func(s serve.Statistics) bool { return s.Waiting == n })
}

func until(t *testing.T, srv *serve.Server, what string, is func(serve.Statistics) bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Microsecond) {
		stats, err := srv.Statistics("m", "")
		testhelp.Must(t, err)
		if is(stats[0]) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v: it has been a minute, and not that %s", stats[0], what)
		}
	}
}

func TestRequestsAreJoinedAndTheirResultsAreTheirOwn(t *testing.T) {
	srv := newServer(t)
	var runs atomic.Int64
	gate := make(chan struct{})
	testhelp.Must(t, srv.Add("m", serve.FromModel(func(x gotorch.Tensor) gotorch.Tensor {
		<-gate
		runs.Add(1)
		return x.MulScalar(2)
	}), serve.Batching{Max: 100}))
	var all sync.WaitGroup
	for i := range 20 {
		if i == 1 {
			untilRunning(t, srv)
		}
		all.Go(func() {
			f := float32(i)
			if got, want := infer(srv, "m", f, f+0.5), fmt.Sprint([]float32{2 * f, 2*f + 1}); got != want {
				t.Errorf("%s, where %s was expected", got, want)
			}
		})
	}
	untilWaiting(t, srv, 19)
	close(gate)
	all.Wait()
	stats, err := srv.Statistics("m", "1")
	testhelp.Must(t, err)
	s := stats[0]
	if runs.Load() != 2 || s.Executions != 2 || s.Inferences != 40 || s.Success.Count != 20 || s.Queue.Count != 20 ||
		len(s.Batches) != 2 || s.Batches[0].Size != 2 || s.Batches[1].Size != 38 {
		t.Errorf("%d runs, %+v", runs.Load(), s)
	}
}

func TestOneWrongRequestOfABatchFailsAlone(t *testing.T) {
	for how, fail := range map[string]func(){
		"a gotorch.Error": func() { gotorch.Ones([]int64{2}).View([]int64{3}) },
		"another panic":   func() { panic("no") },
		"Goexit":          runtime.Goexit,
		"nil":             func() { var p *int; *p = 1 },
	} {
		srv := newServer(t)
		gate := make(chan struct{})
		testhelp.Must(t, srv.Add("m", serve.FromModel(func(x gotorch.Tensor) gotorch.Tensor {
			<-gate
			if gotorch.Item[float32](x.Min()) < 0 {
				fail()
			}
			return x
		}), serve.Batching{Max: 100}))
		var all sync.WaitGroup
		var failed atomic.Int64
		for i := range 12 {
			if i == 1 {
				untilRunning(t, srv)
			}
			all.Go(func() {
				f := float32(i)
				if i%4 == 3 {
					f = -f
				}
				got := infer(srv, "m", f)
				switch want := fmt.Sprint([]float32{f}); {
				case f >= 0 && got != want:
					t.Errorf("%s: %s, where %s was expected", how, got, want)
				case f < 0 && !strings.HasPrefix(got, "serve: model m, version 1: INTERNAL: "):
					t.Errorf("%s: %s, where an error was expected", how, got)
				case f < 0:
					failed.Add(1)
				}
			})
		}
		untilWaiting(t, srv, 11)
		close(gate)
		all.Wait()
		if failed.Load() != 3 {
			t.Errorf("%s: %d have failed", how, failed.Load())
		}
		testhelp.Must(t, srv.Close(t.Context()))
	}
}

// Inputs belong to the model, which may write into them: not into what it is run on again.
func TestABatchThatIsRunAgainHasItsInputsAsTheyCame(t *testing.T) {
	srv := newServer(t)
	runs := 0
	testhelp.Must(t, srv.Add("m", serve.NewModel(serve.Signature{
		Inputs:  []serve.Spec{{Name: "text", Type: serve.BYTES, Shape: []int64{-1}}, {Name: "x", Type: serve.FP32, Shape: []int64{-1}}},
		Outputs: []serve.Spec{{Name: "text", Type: serve.BYTES, Shape: []int64{-1}}, {Name: "x", Type: serve.FP32, Shape: []int64{-1}}},
	}, func(_ context.Context, in *serve.Request) ([]serve.Value, error) {
		for _, text := range in.Inputs[0].Bytes {
			for i := range text {
				text[i]++
			}
			_ = append(text, '!') // which is not the next text
		}
		in.Inputs[1].Tensor.AddScalar_(1)
		if runs++; runs == 1 {
			if got := fmt.Sprint(in.Inputs[0].Texts()); got != "[bcd e bcd e]" {
				t.Errorf("together the texts are %s", got)
			}
			return nil, errors.New("together they fail")
		}
		return in.Inputs, nil
	}), serve.Batching{Max: 4, Delay: time.Minute}))
	var clients sync.WaitGroup
	for i := range 2 {
		clients.Go(func() {
			x := serve.Value{Name: "x", Tensor: gotorch.FromSlice([]float32{float32(i), float32(i)})}
			out, err := srv.Infer(t.Context(), serve.InferRequest{Model: "m", Inputs: []serve.Value{serve.NewTexts("text", []string{"abc", "d"}), x}})
			if err != nil {
				t.Error(err)
				return
			}
			if got := fmt.Sprint(out[0].Texts(), numbers(out[1])); got != fmt.Sprintf("[bcd e] [%d %d]", i+1, i+1) {
				t.Errorf("request %d came to %s", i, got)
			}
		})
	}
	clients.Wait()
	if runs != 3 {
		t.Errorf("%d runs", runs)
	}
}

func TestAClientThatLeavesIsAnsweredAtOnce(t *testing.T) {
	srv := newServer(t)
	started, canceled := make(chan struct{}), make(chan struct{})
	testhelp.Must(t, srv.Add("m", serve.NewModel(serve.Signature{Outputs: []serve.Spec{{Name: "o", Type: serve.FP32}}},
		func(ctx context.Context, _ *serve.Request) ([]serve.Value, error) {
			close(started)
			<-ctx.Done()
			close(canceled)
			return nil, ctx.Err()
		})))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-started
		cancel()
	}()
	_, err := srv.Infer(ctx, serve.InferRequest{Model: "m"})
	if !errors.Is(err, serve.Canceled) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-canceled
}

func TestModelsThatNeverReturnHoldTheirOwnClientsOnly(t *testing.T) {
	srv := newServer(t, serve.Options{MaxQueue: 2})
	forever := make(chan struct{})
	testhelp.Must(t, srv.Add("stuck", serve.FromModel(func(x gotorch.Tensor) gotorch.Tensor { <-forever; return x })))
	testhelp.Must(t, srv.Add("m", serve.FromModel(double)))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	var codes sync.Map
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			_, err := srv.Infer(ctx, serve.InferRequest{Model: "stuck", Inputs: []serve.Value{tensor(1)}})
			codes.Store(i, errors.Is(err, serve.DeadlineExceeded) || errors.Is(err, serve.ResourceExhausted))
		})
	}
	all.Wait()
	codes.Range(func(k, ok any) bool {
		if !ok.(bool) {
			t.Error("neither too late nor refused")
		}
		return true
	})
	if got := infer(srv, "m", 2); got != "[4]" {
		t.Error(got)
	}
	short, cancelShort := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancelShort()
	if err := srv.Close(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	close(forever)
	testhelp.Must(t, srv.Close(t.Context()))
}

func TestARequestWaitsNoLongerThanItMay(t *testing.T) {
	srv := newServer(t)
	gate := make(chan struct{})
	testhelp.Must(t, srv.Add("m", serve.FromModel(func(x gotorch.Tensor) gotorch.Tensor { <-gate; return x }),
		serve.Queue{Timeout: 10 * time.Millisecond}))
	runs := make(chan string)
	go func() { runs <- infer(srv, "m", 1) }()
	for {
		if s, _ := srv.Statistics("m", ""); s[0].Running == 1 {
			break
		}
	}
	if got := infer(srv, "m", 2); !strings.Contains(got, "DEADLINE_EXCEEDED: the request has waited for 10ms") {
		t.Error(got)
	}
	close(gate) // the one that runs may take its time
	if got := <-runs; got != "[1]" {
		t.Error(got)
	}
}

type closing struct {
	serve.Model
	closed chan struct{}
}

func (c closing) Close() error { close(c.closed); return nil }

func TestReplacingAModelDropsNoRequestAndClosesTheOldOne(t *testing.T) {
	srv := newServer(t)
	add := func(n float64) closing {
		m := closing{serve.FromModel(func(x gotorch.Tensor) gotorch.Tensor { return x.MulScalar(n) }), make(chan struct{})}
		testhelp.Must(t, srv.Add("m", m, serve.Batching{Max: 8}))
		return m
	}
	models := []closing{add(0)}
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for last := float32(0); ; {
				select {
				case <-stop:
					return
				default:
				}
				out, err := srv.Infer(context.Background(), serve.InferRequest{Model: "m", Inputs: []serve.Value{tensor(1)}})
				if err != nil {
					t.Error(err)
					return
				}
				got := numbers(out[0])[0]
				if got < last {
					t.Errorf("%v came from an older model than %v before it", got, last)
				}
				last = got
			}
		})
	}
	for i := range 50 {
		models = append(models, add(float64(i+1)))
		time.Sleep(time.Millisecond)
	}
	close(stop)
	clients.Wait()
	for _, m := range models[:50] {
		<-m.closed
	}
	select {
	case <-models[50].closed:
		t.Error("the model in service was closed")
	default:
	}
	testhelp.Must(t, srv.Close(t.Context()))
	<-models[50].closed
}

func TestVersionsLoadAndUnload(t *testing.T) {
	srv := newServer(t)
	for id, n := range map[string]float64{"2": 2, "10": 10, "beta": 7} {
		testhelp.Must(t, srv.Add("m", serve.FromModel(func(x gotorch.Tensor) gotorch.Tensor { return x.MulScalar(n) }), serve.Version(id)))
	}
	ctx := t.Context()
	check := func(want string) {
		t.Helper()
		if got := infer(srv, "m", 1); !strings.Contains(got, want) {
			t.Errorf("%s, where %s was expected", got, want)
		}
	}
	check("[10]") // the highest, as a number
	testhelp.Must(t, srv.Unload(ctx, "m", "10"))
	check("[2]")
	testhelp.Must(t, srv.Unload(ctx, "m", "2"))
	check("[7]")
	testhelp.Must(t, srv.Unload(ctx, "m", ""))
	check("UNAVAILABLE: no version of the model is loaded")
	testhelp.Must(t, srv.Load(t.Context(), "m", ""))
	check("[10]")
	testhelp.Must(t, srv.Remove(ctx, "m", "10"))
	check("[2]")
	if err := srv.Load(t.Context(), "m", "10"); !errors.Is(err, serve.NotFound) {
		t.Error(err)
	}
	testhelp.Must(t, srv.Remove(ctx, "m", ""))
	check(`NOT_FOUND: there is no model "m"`)
	for _, err := range []error{srv.Load(t.Context(), "m", ""), srv.Unload(ctx, "m", ""), srv.Remove(ctx, "m", "")} {
		if !errors.Is(err, serve.NotFound) {
			t.Error(err)
		}
	}
}

func TestUnloadWaitsForWhatRuns(t *testing.T) {
	srv := newServer(t)
	gate, started := make(chan struct{}), make(chan struct{}, 1)
	testhelp.Must(t, srv.Add("m", serve.FromModel(func(x gotorch.Tensor) gotorch.Tensor { started <- struct{}{}; <-gate; return x })))
	got := make(chan string)
	go func() { got <- infer(srv, "m", 5) }()
	<-started
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := srv.Unload(short, "m", ""); !errors.Is(err, serve.DeadlineExceeded) {
		t.Error(err)
	}
	if text := infer(srv, "m", 1); !strings.Contains(text, "UNAVAILABLE") {
		t.Error(text)
	}
	go func() { time.Sleep(5 * time.Millisecond); close(gate) }()
	testhelp.Must(t, srv.Unload(t.Context(), "m", ""))
	if text := <-got; text != "[5]" {
		t.Error(text)
	}
}

// A version that was replaced or removed is the server's until what runs on it has ended.
func TestCloseWaitsForVersionsThatAreNoLongerServed(t *testing.T) {
	for how, goes := range map[string]func(*serve.Server) error{
		"replaced": func(srv *serve.Server) error { return srv.Add("m", serve.FromModel(double)) },
		"removed": func(srv *serve.Server) error {
			ended, cancel := context.WithCancel(context.Background())
			cancel()
			srv.Remove(ended, "m", "")
			return nil
		},
	} {
		srv := serve.New()
		started := make(chan struct{})
		m := closing{serve.NewModel(serve.FromModel(double).Signature(), func(ctx context.Context, _ *serve.Request) ([]serve.Value, error) {
			close(started)
			<-ctx.Done()
			return nil, ctx.Err()
		}), make(chan struct{})}
		testhelp.Must(t, srv.Add("m", m))
		answer := make(chan string)
		go func() { answer <- infer(srv, "m", 1) }()
		<-started
		testhelp.Must(t, goes(srv))
		short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if err := srv.Close(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%s: Close says %v, where a request runs", how, err)
		}
		cancel()
		if text := <-answer; !strings.Contains(text, "UNAVAILABLE: the server is closing") {
			t.Errorf("%s: the request is answered with %s", how, text)
		}
		testhelp.Must(t, srv.Close(t.Context())) // waits for the model, whose context has ended
		select {
		case <-m.closed:
		default:
			t.Errorf("%s: the model is not closed", how)
		}
	}
}

func TestWhatDoesNotFitTheSignatureIsRefused(t *testing.T) {
	srv := newServer(t)
	model := func(v ...serve.Value) serve.Model {
		return serve.NewModel(serve.Signature{
			Inputs:  []serve.Spec{{"a", serve.FP32, []int64{-1, 2}}, {"b", serve.INT64, []int64{-1}}},
			Outputs: []serve.Spec{{"o", serve.FP32, []int64{-1}}},
		}, func(context.Context, *serve.Request) ([]serve.Value, error) { return v, nil })
	}
	testhelp.Must(t, srv.Add("m", model(serve.Value{Tensor: gotorch.Zeros([]int64{1})}), serve.Batching{Max: 4}))
	named := func(name string, t gotorch.Tensor) serve.Value { return serve.Value{Name: name, Tensor: t} }
	a, b := named("a", gotorch.Zeros([]int64{1, 2})), named("b", gotorch.FromSlice([]int64{1}))
	for want, in := range map[string][]serve.Value{
		"":                                 {b, a},
		`input b INT64[-1] is missing`:     {a},
		`has no input "c"`:                 {a, b, named("c", b.Tensor)},
		`input "a" is there twice`:         {a, a, b},
		`expected to be FP32, and is FP64`: {named("a", gotorch.Zeros([]int64{1, 2}).To(gotorch.Float64)), b},
		`expected to have shape [-1 2], where -1 is any size, and has shape [1 3]`: {named("a", gotorch.Zeros([]int64{1, 3})), b},
		`"a" and "b" have 2 and 1 rows`:                                            {named("a", gotorch.Zeros([]int64{2, 2})), b},
		`has 5 rows, and the model takes at most 4`:                                {named("a", gotorch.Zeros([]int64{5, 2})), named("b", gotorch.Zeros([]int64{5}).To(gotorch.Int64))},
		`expected to be FP32, and is BYTES`:                                        {serve.NewTexts("a", []string{"x", "y"}, 1, 2), b},
		`none of shape [3 2]`:                                                      {serve.NewTexts("a", []string{"x", "y"}, 3, 2), b},
		`is expected to be FP32, and is `:                                          {named("a", gotorch.Zeros([]int64{1, 2}).To(gotorch.Complex64)), b},
	} {
		_, err := srv.Infer(t.Context(), serve.InferRequest{Model: "m", Inputs: in})
		if want == "" {
			testhelp.Must(t, err)
		} else if !errors.Is(err, serve.InvalidArgument) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, where %q was expected", err, want)
		}
	}
	for want, out := range map[string][]serve.Value{
		"returned 0 outputs":                          {},
		"has shape [2] for a batch of 1 rows":         {{Tensor: gotorch.Zeros([]int64{2})}},
		"has shape [1 1], where the model's":          {{Tensor: gotorch.Zeros([]int64{1, 1})}},
		"is INT64, where the model's signature says":  {{Tensor: gotorch.Zeros([]int64{1}).To(gotorch.Int64)}},
		"is torch.complex64, where the model's":       {{Tensor: gotorch.Zeros([]int64{1}).To(gotorch.Complex64)}},
		`is named "x", where its signature says "o"`:  {{Name: "x", Tensor: gotorch.Zeros([]int64{1})}},
		"has 2 elements, which are none of shape [1]": {{Bytes: [][]byte{nil, nil}, Shape: []int64{1}}},
		"is BYTES, where the model's signature says":  {serve.NewTexts("o", []string{""})},
		"is the zero Tensor, or was closed":           {{}},
	} {
		testhelp.Must(t, srv.Add("m", model(out...), serve.Batching{Max: 4}))
		_, err := srv.Infer(t.Context(), serve.InferRequest{Model: "m", Inputs: []serve.Value{a, b}})
		if !errors.Is(err, serve.Internal) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, where %q was expected", err, want)
		}
	}
}

func TestAddSaysWhatIsWrong(t *testing.T) {
	srv := newServer(t)
	ok := serve.FromModel(double)
	in := func(specs ...serve.Spec) serve.Model {
		return serve.NewModel(serve.Signature{Inputs: specs, Outputs: []serve.Spec{{Name: "o", Type: serve.FP32}}}, nil)
	}
	for want, err := range map[string]error{
		"name is not empty":           srv.Add("", ok),
		"neither slashes nor":         srv.Add("a/b", ok),
		"version is not empty":        srv.Add("m", ok, serve.Version("..")),
		"it is nil":                   srv.Add("m", nil),
		"Instances is 0":              srv.Add("m", ok, serve.Instances(0)),
		"no Max":                      srv.Add("m", ok, serve.Batching{Delay: 1}),
		"from 1 to Max, 4":            srv.Add("m", ok, serve.Batching{Max: 4, Preferred: []int{5}}),
		"Batching.Max is -1":          srv.Add("m", ok, serve.Batching{Max: -1}),
		"Queue.Max is 0":              srv.Add("m", ok, serve.Queue{Max: 0}),
		"Queue.Max must be":           srv.Add("m", ok, serve.Queue{Max: "x"}),
		"where there are 2 levels":    srv.Add("m", ok, serve.Queue{Levels: 2, DefaultLevel: 3}),
		"from 0 to 64":                srv.Add("m", ok, serve.Queue{Levels: 65}),
		"input 0 of the model's":      srv.Add("m", in(serve.Spec{Type: serve.FP32})),
		`have the name "x"`:           srv.Add("m", in(serve.Spec{Name: "x", Type: serve.FP32}, serve.Spec{Name: "x", Type: serve.FP32})),
		`type "F", which is none`:     srv.Add("m", in(serve.Spec{Name: "x", Type: "F"})),
		"and else not negative":       srv.Add("m", in(serve.Spec{Name: "x", Type: serve.FP32, Shape: []int64{-2}})),
		"not open in its first":       srv.Add("m", in(serve.Spec{Name: "x", Type: serve.FP32, Shape: []int64{1}}), serve.Batching{Max: 2}),
		"without inputs has nothing":  srv.Add("m", in(), serve.Batching{Max: 2}),
		"signature has no outputs":    srv.Add("m", serve.NewModel(serve.Signature{}, nil)),
		"Queue.Timeout is -1ns, and ": srv.Add("m", ok, serve.Queue{Timeout: -1}),
	} {
		if !errors.Is(err, serve.InvalidArgument) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, where %q was expected", err, want)
		}
	}
	testhelp.Must(t, srv.Close(t.Context()))
	if err := srv.Add("m", ok); !errors.Is(err, serve.Unavailable) {
		t.Error(err)
	}
}

func TestFunctionsOfManyForms(t *testing.T) {
	type state struct{ Hidden, Cell gotorch.Tensor }
	type result struct {
		Logits gotorch.Tensor
		State  state
	}
	two := serve.Signature{
		Inputs:  []serve.Spec{{Name: "a", Type: serve.FP32}, {Name: "b", Type: serve.FP32}},
		Outputs: []serve.Spec{{Name: "c", Type: serve.FP32}, {Name: "d", Type: serve.FP32}},
	}
	for want, m := range map[string]serve.Model{
		"[output] [2]":              serve.FromModel(double),
		"[output] [3]":              serve.FromModel(func(x, y gotorch.Tensor) gotorch.Tensor { return x.Add(y) }),
		"[output_0 output_1] [1 2]": serve.FromModel(func(x, y gotorch.Tensor) (a, b gotorch.Tensor) { return x, y }),
		"[output] [4]":              serve.FromModel(func(ctx context.Context, x gotorch.Tensor) (gotorch.Tensor, error) { return x.MulScalar(4), ctx.Err() }),
		"[c d] [1 2]":               serve.FromModel(func(x ...gotorch.Tensor) []gotorch.Tensor { return x }, two),
		"[c d] [2 1]":               serve.FromModel(func(x []gotorch.Tensor) (a, b gotorch.Tensor) { return x[1], x[0] }, two),
		"[Logits State.Hidden State.Cell] [1 2 3]":            serve.FromModel(func(x, y gotorch.Tensor) result { return result{x, state{y, x.Add(y)}} }),
		"[Logits State.Hidden State.Cell output_1] [1 2 3 1]": serve.FromModel(func(x, y gotorch.Tensor) (result, gotorch.Tensor) { return result{x, state{y, x.Add(y)}}, x }),
	} {
		srv := newServer(t)
		testhelp.Must(t, srv.Add("m", m))
		r := serve.InferRequest{Model: "m"}
		for i, spec := range m.Signature().Inputs {
			r.Inputs = append(r.Inputs, serve.Value{Name: spec.Name, Tensor: gotorch.FromScalar(float32(i + 1))})
		}
		out, err := srv.Infer(t.Context(), r)
		testhelp.Must(t, err)
		var names []string
		var values []float32
		for _, v := range out {
			names, values = append(names, v.Name), append(values, numbers(v)...)
		}
		if got := fmt.Sprint(names, values); got != strings.ReplaceAll(want, "] [", "] [") {
			t.Errorf("%s, where %s was expected", got, want)
		}
	}
	for want, f := range map[string]any{
		"expected a function":            3,
		"got <nil>":                      nil,
		"argument 1 of":                  func(gotorch.Tensor, int) gotorch.Tensor { return gotorch.Tensor{} },
		"result 0 of":                    func(gotorch.Tensor) string { return "" },
		"returns no tensor":              func(gotorch.Tensor) error { return nil },
		"takes or returns any number of": func([]gotorch.Tensor) gotorch.Tensor { return gotorch.Tensor{} },
	} {
		if _, err := gotorch.Try(func() serve.Model { return serve.FromModel(f) }); !errors.Is(err, gotorch.TypeError) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, where %q was expected", err, want)
		}
	}
}

func TestNothingIsLeftOfRequestsOfAnyKind(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	srv := serve.New()
	kinds := []func(x gotorch.Tensor) gotorch.Tensor{
		double,
		func(x gotorch.Tensor) gotorch.Tensor { x.Add(x); panic("no") },
		func(x gotorch.Tensor) gotorch.Tensor { x.Add(x); runtime.Goexit(); return x },
		func(x gotorch.Tensor) gotorch.Tensor { return x.Add(x).View([]int64{17, 3}) },
		func(x gotorch.Tensor) gotorch.Tensor { x.Close(); return gotorch.Ones([]int64{1, 1}) },
		func(x gotorch.Tensor) gotorch.Tensor { time.Sleep(time.Millisecond); return x },
	}
	for i, f := range kinds {
		testhelp.Must(t, srv.Add(fmt.Sprint(i), serve.FromModel(f), serve.Batching{Max: 4}))
	}
	inputs := []serve.Value{tensor(1)}
	round := func(n int) {
		var clients sync.WaitGroup
		for client := range 8 {
			clients.Go(func() {
				for i := range n / 8 {
					ctx, cancel := context.WithCancel(context.Background())
					if (i+client)%5 == 0 {
						ctx, cancel = context.WithTimeout(ctx, 100*time.Microsecond)
					}
					gotorch.Scope0(func(*gotorch.ScopeHandle) {})
					out, err := srv.Infer(ctx, serve.InferRequest{Model: fmt.Sprint((i + client) % len(kinds)), Inputs: inputs})
					if err == nil {
						out[0].Tensor.Close()
					}
					cancel()
				}
			})
		}
		clients.Wait()
	}
	round(200)
	before := gotorch.MemoryStats().LiveHandles
	round(2000)
	testhelp.Must(t, srv.Close(t.Context()))
	// No collection here: what is left then was left to it.
	if after := gotorch.MemoryStats().LiveHandles; after > before {
		t.Errorf("%d tensors live, where %d did", after, before)
	}
	testhelp.NoMoreGoroutines(t, goroutines)
}
