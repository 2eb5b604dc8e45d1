package daemon

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/modeltest"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/serve"
	pb "gotorch.dev/gotorch/serve/internal/inferencepb"
)

// soakSetup adds the models of TestARunningServerStaysSmall.
func soakSetup(ctx context.Context, srv *serve.Server) error {
	wait := func(ctx context.Context, in *serve.Request) ([]serve.Value, error) {
		select {
		case <-time.After(2 * time.Millisecond):
			return in.Inputs[:1:1], nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	open := serve.Signature{Inputs: []serve.Spec{{Name: "x", Type: serve.FP32, Shape: []int64{-1, -1}}},
		Outputs: []serve.Spec{{Name: "x", Type: serve.FP32, Shape: []int64{-1, -1}}}}
	texts := serve.Signature{Inputs: []serve.Spec{{Name: "t", Type: serve.BYTES, Shape: []int64{-1}}},
		Outputs: []serve.Spec{{Name: "t", Type: serve.BYTES, Shape: []int64{-1}}}}
	return errors.Join(setup(ctx, srv),
		srv.Add("wide", serve.FromModel(func(x gotorch.Tensor) gotorch.Tensor { return x.AddScalar(1) }, open), serve.Batching{Max: 16},
			serve.Ragged{Input: "x", Dim: 1, Cut: []serve.Cut{{Output: "x", Dim: 1}}}),
		srv.Add("narrow", serve.NewModel(signature, wait), serve.Queue{Max: 1}),
		srv.Add("late", serve.NewModel(signature, wait), serve.Instances(4)),
		srv.Add("comes", serve.FromModel(func(x gotorch.Tensor) gotorch.Tensor { return x.AddScalar(1) }, signature), serve.Batching{Max: 4}),
		srv.Add("texts", serve.NewModel(texts, func(_ context.Context, in *serve.Request) ([]serve.Value, error) { return in.Inputs, nil })),
		srv.Add("wrong", serve.NewModel(signature, func(_ context.Context, in *serve.Request) ([]serve.Value, error) {
			switch x := in.Inputs[0].Tensor; gotorch.Item[float32](x) {
			case 1:
				panic("at the disco")
			case 2:
				runtime.Goexit()
			case 3:
				x.Reshape([]int64{7})
			}
			return nil, errors.New("no")
		}), serve.Batching{Max: 4}),
		srv.Add("sum", serve.NewModel(signature, func(_ context.Context, in *serve.Request) ([]serve.Value, error) {
			s := in.Sequences[0]
			kept, _ := s.State.(*keptTensor)
			total := in.Inputs[0].Tensor
			if kept != nil {
				total = total.Add(kept.Tensor)
				kept.Close()
			}
			gotorch.Unscoped(func() { s.State = &keptTensor{total.Clone()} })
			return []serve.Value{{Tensor: total}}, nil
		}), serve.Sequences{Max: 10_000, Idle: time.Second}),
		// What is free and what the collector has not looked at yet is not what a leak is.
		srv.Add("rest", serve.FromModel(func(x gotorch.Tensor) gotorch.Tensor { debug.FreeOSMemory(); return x.Add(x) }, signature)))
}

type keptTensor struct{ gotorch.Tensor }

func (k *keptTensor) Close() error { k.Tensor.Close(); return nil }

// soaker is a client of every kind.
type soaker struct {
	url, address string
	web          *http.Client
	conn         *grpc.ClientConn
	rpc          pb.GRPCInferenceServiceClient
	stream       pb.GRPCInferenceService_ModelStreamInferClient
	end          context.CancelFunc // of the stream
	random       *rand.Rand
	sequences    [2]int // requests of them
}

// part is what a request says of its sequence, of four requests. Every other sequence is left to its fate.
func (s *soaker) part(of int) string {
	n := s.sequences[of]
	s.sequences[of]++
	return fmt.Sprintf(`"sequence_id":"%p %d","sequence_start":%v,"sequence_end":%v`, s, n/4, n%4 == 0, n%8 == 7)
}

func (s *soaker) send(model, body string, head int, encoding string) (string, error) {
	r, err := http.NewRequest("POST", s.url+"/v2/models/"+model+"/infer", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	if head > 0 {
		r.Header.Set("Inference-Header-Content-Length", strconv.Itoa(head))
	}
	if encoding != "" {
		r.Header.Set("Content-Encoding", encoding)
	}
	res, err := s.web.Do(r)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return strconv.Itoa(res.StatusCode), err
}

func (s *soaker) json(model string, x any, parameters string) (string, error) {
	return s.send(model, fmt.Sprintf(`{"parameters":{%s},`, parameters)+fmt.Sprintf(body, x)[1:], 0, "")
}

func (s *soaker) binary(model string, columns int) (string, error) {
	head := fmt.Sprintf(`{"inputs":[{"name":"x","shape":[1,%d],"datatype":"FP32","parameters":{"binary_data_size":%d}}],"parameters":{"binary_data_output":true}}`, columns, 4*columns)
	return s.send(model, head+string(make([]byte, 4*columns)), len(head), "")
}

func (s *soaker) call(ctx context.Context, r *pb.ModelInferRequest) (string, error) {
	_, err := s.rpc.ModelInfer(ctx, r)
	return status.Code(err).String(), nil
}

// cut sends a part of a request, and goes away.
func (s *soaker) cut(model string, part float64) (string, error) {
	c, err := net.Dial("tcp", s.address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	text := fmt.Sprintf(body, 1)
	text = fmt.Sprintf("POST /v2/models/%s/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", model, len(text), text)
	_, err = io.WriteString(c, text[:int(part*float64(len(text)))])
	return "gone", err
}

// soakKinds are the kinds of requests: how many of a hundred, what they may be answered with, and how they are sent.
var soakKinds = []struct {
	name, answers string
	share         int
	do            func(s *soaker) (string, error)
}{
	{"REST JSON", "200", 16, func(s *soaker) (string, error) { return s.json("double", 1, "") }},
	{"REST binary", "200", 14, func(s *soaker) (string, error) { return s.binary("double", 1) }},
	{"REST binary, ragged, to 100 KB", "200", 3, func(s *soaker) (string, error) { return s.binary("wide", 1+s.random.IntN(25_000)) }},
	{"REST texts", "200", 2, func(s *soaker) (string, error) {
		return s.send("texts", `{"inputs":[{"name":"t","shape":[2],"datatype":"BYTES","data":["one","two"]}]}`, 0, "")
	}},
	{"REST packed", "200", 2, func(s *soaker) (string, error) {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		fmt.Fprintf(w, body, 1)
		w.Close()
		return s.send("double", packed.String(), 0, "gzip")
	}},
	{"REST sequence", "200 400 429", 3, func(s *soaker) (string, error) { return s.json("sum", 1, s.part(0)) }},
	{"REST sequence of an exported model", "200 400 429", 3, func(s *soaker) (string, error) {
		return s.send("largest", fmt.Sprintf(`{"parameters":{%s},"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"data":[1,2]}]}`, s.part(1)), 0, "")
	}},
	{"REST binary, exported model", "200", 4, func(s *soaker) (string, error) { return s.binary("scale", 2) }},
	{"gRPC", "OK", 18, func(s *soaker) (string, error) { return s.call(context.Background(), inferRequest("double", 1)) }},
	{"gRPC stream", "OK", 6, func(s *soaker) (string, error) {
		if s.stream == nil {
			ctx, cancel := context.WithCancel(context.Background())
			stream, err := s.rpc.ModelStreamInfer(ctx)
			if err != nil {
				cancel()
				return "", err
			}
			s.stream, s.end = stream, cancel
		}
		if err := s.stream.Send(inferRequest("double", 1)); err != nil {
			return "", err
		}
		answer, err := s.stream.Recv()
		if err == nil && answer.ErrorMessage != "" {
			err = errors.New(answer.ErrorMessage)
		}
		if s.random.IntN(10) == 0 {
			s.end() // and goes away
			s.stream = nil
		}
		return "OK", err
	}},
	{"metadata", "200", 1, func(s *soaker) (string, error) {
		res, err := s.web.Get(s.url + []string{"/v2/models/double", "/v2/models/stats", "/", "/v2/health/ready"}[s.random.IntN(4)])
		if err != nil {
			return "", err
		}
		defer res.Body.Close()
		_, err = io.Copy(io.Discard, res.Body)
		return strconv.Itoa(res.StatusCode), err
	}},
	{"loaded and unloaded", "200 503", 2, func(s *soaker) (string, error) {
		if s.random.IntN(4) > 0 {
			return s.json("comes", 1, "")
		}
		res, err := s.web.Post(s.url+"/v2/repository/models/comes/"+[]string{"load", "unload"}[s.random.IntN(2)], "", nil)
		if err != nil {
			return "", err
		}
		return strconv.Itoa(res.StatusCode), res.Body.Close()
	}},

	{"refused: wrong shape, REST", "400", 2, func(s *soaker) (string, error) { return s.binary("double", 2) }},
	{"refused: no JSON", "400", 2, func(s *soaker) (string, error) { return s.send("double", `{"inputs":[{"name":`, 0, "") }},
	{"refused: no such model", "404", 2, func(s *soaker) (string, error) { return s.json("none"+strconv.Itoa(s.random.IntN(1e6)), 1, "") }},
	{"refused: too large, REST", "413", 1, func(s *soaker) (string, error) { return s.send("double", strings.Repeat(" ", 1<<20+1), 0, "") }},
	{"refused: too large, gRPC", "ResourceExhausted", 1, func(s *soaker) (string, error) {
		r := inferRequest("double", 1)
		r.RawInputContents = [][]byte{make([]byte, 1<<20)}
		return s.call(context.Background(), r)
	}},
	{"refused: wrong, gRPC", "InvalidArgument NotFound", 2, func(s *soaker) (string, error) {
		r := inferRequest([]string{"double", "none"}[s.random.IntN(2)], 1)
		r.Inputs[0].Shape[0] = 2
		return s.call(context.Background(), r)
	}},
	{"refused: queue full, REST", "200 429", 2, func(s *soaker) (string, error) { return s.json("narrow", 1, "") }},
	{"refused: queue full, gRPC", "OK ResourceExhausted", 2, func(s *soaker) (string, error) { return s.call(context.Background(), inferRequest("narrow", 1)) }},
	{"the model fails, panics, ends its goroutine", "500 400", 2, func(s *soaker) (string, error) { return s.json("wrong", s.random.IntN(4), "") }},

	{"cut off: in the request", "gone", 1, func(s *soaker) (string, error) { return s.cut("double", s.random.Float64()) }},
	{"cut off: before the answer", "gone", 1, func(s *soaker) (string, error) { return s.cut("late", 1) }},
	{"cut off: gRPC", "Canceled OK", 2, func(s *soaker) (string, error) {
		ctx, cancel := context.WithCancel(context.Background())
		defer time.AfterFunc(time.Duration(s.random.IntN(3000))*time.Microsecond, cancel).Stop()
		defer cancel()
		return s.call(ctx, inferRequest("late", 1))
	}},
	{"timed out: REST", "504 200 429", 3, func(s *soaker) (string, error) { return s.json("narrow", 1, `"timeout":500`) }},
	{"timed out: gRPC", "DeadlineExceeded OK", 3, func(s *soaker) (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		return s.call(ctx, inferRequest("late", 1))
	}},
}

// held is what a server holds, as its metrics have it.
type held struct{ resident, heap, tensors, goroutines, threads, files, waiting float64 }

func holds(t *testing.T, address string) (h held) {
	t.Helper()
	res, err := http.Get("http://" + address + "/metrics")
	must(t, err)
	defer res.Body.Close()
	found := 0
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		name, _, _ = strings.Cut(name, "{")
		to := map[string]*float64{"process_resident_memory_bytes": &h.resident, "gotorch_serve_live_tensors": &h.tensors,
			"go_goroutines": &h.goroutines, "go_threads": &h.threads, "go_memstats_heap_inuse_bytes": &h.heap,
			"process_open_fds": &h.files, "gotorch_serve_request_bytes": &h.waiting,
			"gotorch_serve_queue_requests": &h.waiting, "gotorch_serve_running_batches": &h.waiting}[name]
		if to != nil {
			f, err := strconv.ParseFloat(value, 64)
			must(t, err)
			*to += f
			found++
		}
	}
	if found < 7 {
		t.Fatal("the metrics do not say what the server holds")
	}
	http.DefaultClient.CloseIdleConnections()
	return h
}

// atRest returns what a server holds when all clients are gone: as soon as that is no more than most. Without most it is the
// most of what twenty looks say, from when there are no more tensors than the models have; who looks has a connection, too.
func atRest(t *testing.T, c *child, tensors float64, most *held) held {
	t.Helper()
	s := &soaker{url: "http://" + c.at["http"], web: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	var all held
	looks := 0
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if code, err := s.json("rest", 1, ""); code != "200" || err != nil {
			t.Fatal(code, err)
		}
		now := holds(t, c.at["metrics"])
		if most != nil {
			if now.waiting == 0 && now.tensors <= most.tensors && now.goroutines <= most.goroutines && now.files <= most.files {
				return now
			}
		} else if looks > 0 || now.waiting == 0 && now.tensors <= tensors {
			looks++
			now.tensors, now.goroutines, now.files = max(all.tensors, now.tensors), max(all.goroutines, now.goroutines), max(all.files, now.files)
			all = now
			if looks == 20 {
				return all
			}
		}
		if time.Now().After(end) {
			t.Fatalf("two minutes after the last request the server holds %+v, where the models have %v tensors, and after the first tenth it held %+v",
				now, tensors, most)
		}
	}
}

// TestARunningServerStaysSmall sends requests of every kind to a server in a process of its own: a few thousand, and with
// SOAK a million. When all clients are gone it must hold no more tensors, goroutines and files than after the first tenth,
// and no more memory than after the first half, but for 16 MB, to which heaps come that have holes: 32 bytes for each of half
// a million requests. Until then threads begin, each with an arena of the allocator's.
func TestARunningServerStaysSmall(t *testing.T) {
	total, clients := testhelp.Rounds(4000), 16
	if os.Getenv("SOAK") != "" {
		total = 1_000_000
	}
	if text := os.Getenv("SOAK_REQUESTS"); text != "" {
		var err error
		total, err = strconv.Atoi(text)
		must(t, err)
	}
	t.Setenv("DAEMON_TEST_CHILD", "soak")
	dir := t.TempDir() // of exported models, one that keeps state among them
	modeltest.Write(t, filepath.Join(dir, "scale"), 3, false)
	modeltest.Write(t, filepath.Join(dir, "largest"), 1, true)
	must(t, os.WriteFile(filepath.Join(dir, "scale/config.json"), []byte(`{"batching": {"max": 8}}`), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "largest/config.json"), []byte(`{"batching": {"max": 8}, "sequences": {"max": 10000, "idle": "1s"}}`), 0o600))
	c := startChild(t, "--model-repository", dir, "--poll", "1s", "--control", "--drain", "0", "--limits.request-bytes", "1MiB")
	go func() { // of models that panic, among others
		for range c.lines {
		}
	}()
	var shares []int
	for i, kind := range soakKinds {
		shares = append(shares, slices.Repeat([]int{i}, kind.share)...)
	}
	if len(shares) != 100 {
		t.Fatalf("the shares are %d", len(shares))
	}
	if kinds := os.Getenv("SOAK_KINDS"); kinds != "" { // a regular expression: only these
		shares = slices.DeleteFunc(shares, func(i int) bool { return !regexp.MustCompile(kinds).MatchString(soakKinds[i].name) })
	}
	counts := make([]map[string]int, len(soakKinds))
	for i := range counts {
		counts[i] = map[string]int{}
	}
	var mutex sync.Mutex
	seed := uint64(0)
	round := func(n int) {
		seed++
		var left atomic.Int64
		left.Store(int64(n))
		var all sync.WaitGroup
		for k := range clients {
			all.Go(func() {
				conn := dial(t, c.at["grpc"], nil)
				s := &soaker{url: "http://" + c.at["http"], address: c.at["http"], web: &http.Client{Transport: &http.Transport{}}, conn: conn,
					rpc: pb.NewGRPCInferenceServiceClient(conn), random: rand.New(rand.NewPCG(seed, uint64(k)))}
				defer conn.Close()
				defer s.web.CloseIdleConnections()
				defer func() {
					if s.stream != nil {
						s.end()
					}
				}()
				for left.Add(-1) >= 0 {
					i := shares[s.random.IntN(len(shares))]
					answer, err := soakKinds[i].do(s)
					mutex.Lock()
					counts[i][answer]++
					mutex.Unlock()
					if err != nil || !slices.Contains(strings.Fields(soakKinds[i].answers), answer) {
						t.Errorf("%s: answered with %q: %v", soakKinds[i].name, answer, err)
						return
					}
				}
			})
		}
		all.Wait()
		if t.Failed() {
			t.FailNow()
		}
	}
	report := func(n int, h held) {
		t.Logf("%7d requests: %.1f MB, of which %.1f of Go's heap, %.0f tensors, %.0f goroutines, %.0f threads, %.0f files",
			n, h.resident/1e6, h.heap/1e6, h.tensors, h.goroutines, h.threads, h.files)
	}
	models := holds(t, c.at["metrics"]).tensors
	begin := time.Now()
	round(total / 10)
	first := atRest(t, c, models, nil)
	report(total/10, first)
	var half, last held
	for i := 2; i <= 10; i++ {
		round(total / 10)
		if last = atRest(t, c, models, &first); i == 5 {
			half = last
		}
		report(total/10*i, last)
	}
	for i, kind := range soakKinds {
		t.Logf("%s: %v", kind.name, counts[i])
	}
	t.Logf("%d requests in %v", total, time.Since(begin).Round(time.Second))
	if !raceEnabled && last.resident > half.resident+16e6 { // the race detector has memory of its own, which grows
		t.Errorf("the server holds %.1f MB, where it held %.1f after half of the requests", last.resident/1e6, half.resident/1e6)
	}
}
