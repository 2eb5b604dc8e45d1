package serve_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/serve"
	pb "gotorch.dev/gotorch/serve/internal/inferencepb"
)

func post(t testing.TB, url, body string, header ...string) (int, string) {
	t.Helper()
	return postReader(t, url, strings.NewReader(body), header...)
}

func postReader(t testing.TB, url string, body io.Reader, header ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequest("POST", url, body)
	testhelp.Must(t, err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	testhelp.Must(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	testhelp.Must(t, err)
	return res.StatusCode, string(text)
}

func TestRESTAnswersInJSONAndBinary(t *testing.T) {
	srv := newServer(t)
	testhelp.Must(t, srv.Add("double", serve.FromModel(double)))
	web := httptest.NewServer(srv.HTTP())
	defer web.Close()
	code, text := post(t, web.URL+"/v2/models/double/infer", `{"id":"a","inputs":[{"name":"input","shape":[1,2],"datatype":"FP32","data":[1,2.5]}]}`)
	if want := `{"model_name":"double","model_version":"1","id":"a","outputs":[{"name":"output","datatype":"FP32","shape":[1,2],"data":[2.0,5.0]}]}`; code != 200 || text != want {
		t.Error(code, text)
	}
	head := `{"inputs":[{"name":"input","shape":[40000],"datatype":"FP32","parameters":{"binary_data_size":160000}}],"parameters":{"binary_data_output":true}}`
	data := make([]byte, 160000) // large enough to be read into a tensor
	for i := range 40000 {
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(float32(i)))
	}
	code, text = post(t, web.URL+"/v2/models/double/versions/1/infer", head+string(data), "Inference-Header-Content-Length", fmt.Sprint(len(head)))
	want := `{"model_name":"double","model_version":"1","outputs":[{"name":"output","datatype":"FP32","shape":[40000],"parameters":{"binary_data_size":160000}}]}`
	if code != 200 || !strings.HasPrefix(text, want) || len(text) != len(want)+160000 {
		t.Fatal(code, len(text), text[:200])
	}
	for i := range 40000 {
		if got := math.Float32frombits(binary.LittleEndian.Uint32([]byte(text[len(want)+4*i:]))); got != float32(2*i) {
			t.Fatalf("element %d is %v", i, got)
		}
	}
}

func TestMemoryOfBodiesIsBounded(t *testing.T) {
	registry := prometheus.NewRegistry()
	srv := newServer(t, serve.Options{MaxBytes: 1 << 20, Metrics: registry})
	until := func(ok func(bytes float64) bool) {
		for {
			all, err := registry.Gather()
			testhelp.Must(t, err)
			for _, m := range all {
				if m.GetName() == "gotorch_serve_request_bytes" && ok(m.Metric[0].Gauge.GetValue()) {
					return
				}
			}
			time.Sleep(time.Millisecond)
		}
	}
	testhelp.Must(t, srv.Add("double", serve.FromModel(double)))
	web := httptest.NewServer(srv.HTTP())
	defer web.Close()
	body := strings.Repeat(" ", 900<<10) + `{"inputs":[{"name":"input","shape":[],"datatype":"FP32","data":1}]}`
	held, err := net.Dial("tcp", web.Listener.Addr().String())
	testhelp.Must(t, err)
	defer held.Close()
	fmt.Fprintf(held, "POST /v2/models/double/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body[:800<<10])
	until(func(bytes float64) bool { return bytes >= 800<<10 })
	if code, text := post(t, web.URL+"/v2/models/double/infer", body); code != 429 {
		t.Error(code, text)
	}
	io.WriteString(held, body[800<<10:])
	if line, _ := bufio.NewReader(held).ReadString('\n'); !strings.Contains(line, "200 OK") {
		t.Error(line)
	}
	until(func(bytes float64) bool { return bytes == 0 })
	if code, text := post(t, web.URL+"/v2/models/double/infer", body); code != 200 {
		t.Error(code, text)
	}
}

// gathered returns the values of a metric, by its labels.
func gathered(t testing.TB, registry *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	all, err := registry.Gather()
	testhelp.Must(t, err)
	found := map[string]float64{}
	for _, family := range all {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetValue())
			}
			found[strings.Join(labels, " ")] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return found
}

func TestOneBoundHoldsOverRESTAndGRPC(t *testing.T) {
	registry := prometheus.NewRegistry()
	srv := newServer(t, serve.Options{MaxBytes: 1 << 20, MaxRequestBytes: 900 << 10, Metrics: registry})
	held := func() float64 { return gathered(t, registry, "gotorch_serve_request_bytes")[""] }
	open := func(typ serve.DataType) serve.Signature {
		return serve.Signature{Inputs: []serve.Spec{{Name: "x", Type: typ, Shape: []int64{-1}}}, Outputs: []serve.Spec{{Name: "x", Type: typ, Shape: []int64{-1}}}}
	}
	gate := make(chan struct{})
	first := func(_ context.Context, in *serve.Request) ([]serve.Value, error) {
		<-gate
		if in.Inputs[0].Tensor.Defined() {
			return []serve.Value{{Tensor: in.Inputs[0].Tensor.Narrow(0, 0, 1)}}, nil
		}
		return []serve.Value{{Bytes: in.Inputs[0].Bytes[:1], Shape: []int64{1}}}, nil
	}
	for _, typ := range []serve.DataType{serve.UINT8, serve.INT64, serve.BYTES} {
		testhelp.Must(t, srv.Add(string(typ), serve.NewModel(open(typ), first), serve.Instances(8)))
	}
	client := serveGRPC(t, srv)
	web := httptest.NewServer(srv.HTTP())
	defer web.Close()
	request := func(typ serve.DataType, n int, contents *pb.InferTensorContents, raw []byte) *pb.ModelInferRequest {
		r := &pb.ModelInferRequest{ModelName: string(typ), Inputs: []*pb.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: string(typ), Shape: []int64{int64(n)}, Contents: contents}}}
		if raw != nil {
			r.RawInputContents = [][]byte{raw}
		}
		return r
	}
	large := func(n int) *pb.ModelInferRequest { return request(serve.UINT8, n, nil, make([]byte, n)) }
	// A server that is made without GRPCOptions takes 4 MB.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testhelp.Must(t, err)
	other := grpc.NewServer()
	serve.RegisterGRPC(other, srv)
	go other.Serve(listener)
	defer other.Stop()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	testhelp.Must(t, err)
	defer conn.Close()
	for what, client := range map[string]pb.GRPCInferenceServiceClient{"GRPCOptions": client, "none": pb.NewGRPCInferenceServiceClient(conn)} {
		if _, err := client.ModelInfer(t.Context(), large(900<<10)); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("a message that is too large, with options %s: %v", what, err)
		}
	}
	if code, text := post(t, web.URL+"/v2/models/UINT8/infer", strings.Repeat(" ", 900<<10+1)); code != 413 {
		t.Error(code, text)
	}

	// What runs counts, in what its numbers and texts are in memory: of a byte each on the wire.
	texts := make([][]byte, 10_000)
	for what, c := range map[string]struct {
		r     *pb.ModelInferRequest
		least float64
	}{
		"raw":    {large(800 << 10), 800 << 10},
		"typed":  {request(serve.INT64, 40_000, &pb.InferTensorContents{Int64Contents: make([]int64, 40_000)}, nil), 40_000 * 16},
		"texts":  {request(serve.BYTES, 10_000, &pb.InferTensorContents{BytesContents: texts}, nil), 10_000 * 24},
		"binary": {request(serve.BYTES, 10_000, nil, make([]byte, 40_000)), 10_000 * 28},
	} {
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := client.ModelInfer(t.Context(), c.r); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		})
		soon(t, what+" counts", func() bool { return held() >= c.least })
		if now := held(); now > 1.3*c.least {
			t.Errorf("%s: %v bytes count, where about %v are meant", what, now, c.least)
		}
		if what == "raw" {
			if _, err := client.ModelInfer(t.Context(), large(300<<10)); status.Code(err) != codes.ResourceExhausted {
				t.Errorf("a request for which there is no room: %v", err)
			}
			if code, text := post(t, web.URL+"/v2/models/UINT8/infer", strings.Repeat(" ", 300<<10)); code != 429 {
				t.Error(code, text)
			}
			stream, err := client.ModelStreamInfer(t.Context())
			testhelp.Must(t, err)
			testhelp.Must(t, stream.Send(large(300<<10)))
			if answer, err := stream.Recv(); status.Code(err) != codes.ResourceExhausted { // its message is not read
				t.Errorf("in a stream: %v, %v", answer, err)
			}
		}
		gate <- struct{}{}
		all.Wait()
		soon(t, what+" counts no more", func() bool { return held() == 0 })
	}
	wrong := large(800 << 10)
	wrong.Inputs[0].Shape[0]++
	if _, err := client.ModelInfer(t.Context(), wrong); status.Code(err) != codes.InvalidArgument || held() != 0 {
		t.Errorf("a wrong request: %v, and %v bytes count", err, held())
	}
}

func TestControlIsForThoseWhoAllowIt(t *testing.T) {
	srv := newServer(t)
	testhelp.Must(t, srv.Add("m", serve.FromModel(double)))
	web := httptest.NewServer(srv.HTTP())
	defer web.Close()
	client := serveGRPC(t, srv)
	for _, what := range []string{"unload", "load"} {
		for _, name := range []string{"m", "none"} { // who may not does not learn what there is
			if code, text := post(t, web.URL+"/v2/repository/models/"+name+"/"+what, "{"); code != 403 || !strings.Contains(text, "PERMISSION_DENIED") {
				t.Error(what, code, text)
			}
			_, err := client.RepositoryModelLoad(t.Context(), &pb.RepositoryModelLoadRequest{ModelName: name})
			if what == "unload" {
				_, err = client.RepositoryModelUnload(t.Context(), &pb.RepositoryModelUnloadRequest{ModelName: name})
			}
			if status.Code(err) != codes.PermissionDenied {
				t.Error(what, err)
			}
		}
	}
	if !srv.Ready("m", "") {
		t.Error("the model was unloaded")
	}
}

func TestMetricsCountByModelAndCode(t *testing.T) {
	registry := prometheus.NewRegistry()
	srv := serve.New(serve.Options{Metrics: registry})
	testhelp.Must(t, srv.Add("m", serve.FromModel(double), serve.Batching{Max: 4}))
	infer(srv, "m", 1, 2, 3)
	infer(srv, "m", 1, 2, 3, 4, 5)
	infer(srv, "nobody's name is no label", 1)
	want := `
# HELP gotorch_serve_batch_rows How many rows batches had.
# TYPE gotorch_serve_batch_rows histogram
gotorch_serve_batch_rows_bucket{model="m",version="1",le="1"} 0
gotorch_serve_batch_rows_bucket{model="m",version="1",le="2"} 0
gotorch_serve_batch_rows_bucket{model="m",version="1",le="4"} 1
gotorch_serve_batch_rows_bucket{model="m",version="1",le="8"} 1
gotorch_serve_batch_rows_bucket{model="m",version="1",le="16"} 1
gotorch_serve_batch_rows_bucket{model="m",version="1",le="32"} 1
gotorch_serve_batch_rows_bucket{model="m",version="1",le="64"} 1
gotorch_serve_batch_rows_bucket{model="m",version="1",le="128"} 1
gotorch_serve_batch_rows_bucket{model="m",version="1",le="256"} 1
gotorch_serve_batch_rows_bucket{model="m",version="1",le="512"} 1
gotorch_serve_batch_rows_bucket{model="m",version="1",le="1024"} 1
gotorch_serve_batch_rows_bucket{model="m",version="1",le="+Inf"} 1
gotorch_serve_batch_rows_sum{model="m",version="1"} 3
gotorch_serve_batch_rows_count{model="m",version="1"} 1
# HELP gotorch_serve_queue_requests Requests that wait.
# TYPE gotorch_serve_queue_requests gauge
gotorch_serve_queue_requests{model="m",version="1"} 0
# HELP gotorch_serve_requests_total Requests that have ended, by the code of their answer.
# TYPE gotorch_serve_requests_total counter
gotorch_serve_requests_total{code="INVALID_ARGUMENT",model="m",version="1"} 1
gotorch_serve_requests_total{code="NOT_FOUND",model="",version=""} 1
gotorch_serve_requests_total{code="OK",model="m",version="1"} 1
`
	testhelp.Must(t, testutil.GatherAndCompare(registry, strings.NewReader(want), "gotorch_serve_batch_rows", "gotorch_serve_queue_requests", "gotorch_serve_requests_total"))
	testhelp.Must(t, srv.Close(t.Context()))
	serve.New(serve.Options{Metrics: registry}).Close(t.Context()) // the first has unregistered
}

func TestMetricsOfWhatIsOutOfServiceAreGone(t *testing.T) {
	registry := prometheus.NewRegistry()
	srv := newServer(t, serve.Options{Metrics: registry})
	names := []string{"requests_total", "queue_seconds", "compute_seconds", "batch_rows", "queue_requests", "running_batches"}
	has := func(labels string) (n int) {
		for _, name := range names {
			for have := range gathered(t, registry, "gotorch_serve_"+name) {
				if have == labels || strings.HasSuffix(have, " "+labels) { // with a code before
					n++
				}
			}
		}
		return n
	}
	gate := make(chan struct{})
	add := func(version serve.Version) {
		testhelp.Must(t, srv.Add("m", serve.FromModel(func(x gotorch.Tensor) gotorch.Tensor {
			if gotorch.Item[float32](x) > 1 {
				<-gate
			}
			return double(x)
		}), version, serve.Batching{Max: 1}))
	}
	add("1")
	add("2")
	for _, version := range []string{"1", "2"} {
		_, err := srv.Infer(t.Context(), serve.InferRequest{Model: "m", Version: version, Inputs: []serve.Value{tensor(1)}})
		testhelp.Must(t, err)
		if n := has("m " + version); n != len(names) {
			t.Errorf("there are %d series of version %s", n, version)
		}
	}
	// One that is out of service and still runs has its series until it does not.
	ran := make(chan error)
	go func() {
		_, err := srv.Infer(t.Context(), serve.InferRequest{Model: "m", Version: "1", Inputs: []serve.Value{tensor(2)}})
		ran <- err
	}()
	soon(t, "a batch runs", func() bool { return gathered(t, registry, "gotorch_serve_running_batches")["m 1"] == 1 })
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := srv.Remove(ended, "m", "1"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if has("m 1") == 0 {
		t.Error("the series are gone before the last request")
	}
	gate <- struct{}{}
	testhelp.Must(t, <-ran)
	soon(t, "version 1 is forgotten", func() bool { return has("m 1") == 0 })

	testhelp.Must(t, srv.Unload(t.Context(), "m", "2"))
	if n := has("m 2"); n != 0 {
		t.Errorf("%d series are left of a model that was unloaded", n)
	}
	testhelp.Must(t, srv.Load(t.Context(), "m", "2"))
	infer(srv, "m", 1)
	if n := gathered(t, registry, "gotorch_serve_requests_total")["OK m 2"]; n != 1 {
		t.Errorf("%v requests are counted since it was loaded again", n)
	}
	add("2") // which replaces it
	infer(srv, "m", 1)
	soon(t, "both have counted", func() bool { return gathered(t, registry, "gotorch_serve_requests_total")["OK m 2"] == 2 })
	if n := has("m 2"); n != len(names) {
		t.Errorf("there are %d series of a version that was replaced", n)
	}
	testhelp.Must(t, srv.Remove(t.Context(), "m", ""))
	if n := has("m 2"); n != 0 {
		t.Errorf("%d series are left of a model that was removed", n)
	}
}

// serveGRPC returns a client of srv.
func serveGRPC(t testing.TB, srv *serve.Server) pb.GRPCInferenceServiceClient {
	t.Helper()
	return pb.NewGRPCInferenceServiceClient(dialGRPC(t, srv))
}

// dialGRPC is serveGRPC for what is no call of the protocol.
func dialGRPC(t testing.TB, srv *serve.Server) *grpc.ClientConn {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testhelp.Must(t, err)
	g := grpc.NewServer(serve.GRPCOptions(srv)...)
	serve.RegisterGRPC(g, srv)
	go g.Serve(listener)
	connection, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	testhelp.Must(t, err)
	t.Cleanup(func() {
		connection.Close()
		g.Stop()
	})
	return connection
}

func TestGRPCTakesTypedContents(t *testing.T) {
	srv := newServer(t)
	specs := func(name string) (all []serve.Spec) {
		for _, typ := range []serve.DataType{serve.BOOL, serve.INT8, serve.UINT16, serve.INT64, serve.UINT64, serve.FP32, serve.FP64, serve.BYTES} {
			all = append(all, serve.Spec{Name: name + string(typ), Type: typ, Shape: []int64{2}})
		}
		return all
	}
	testhelp.Must(t, srv.Add("echo", serve.NewModel(serve.Signature{Inputs: specs("x"), Outputs: specs("y")},
		func(_ context.Context, in *serve.Request) ([]serve.Value, error) {
			for i := range in.Inputs {
				in.Inputs[i].Name = ""
			}
			return in.Inputs, nil
		})))
	client := serveGRPC(t, srv)
	r := &pb.ModelInferRequest{ModelName: "echo"}
	for _, spec := range specs("x") {
		r.Inputs = append(r.Inputs, &pb.ModelInferRequest_InferInputTensor{Name: spec.Name, Datatype: string(spec.Type), Shape: spec.Shape,
			Contents: &pb.InferTensorContents{BoolContents: []bool{true, false}, IntContents: []int32{-128, 127}, UintContents: []uint32{0, 65535},
				Int64Contents: []int64{-1 << 63, 5}, Uint64Contents: []uint64{1<<64 - 1, 5}, Fp32Contents: []float32{1.5, -2},
				Fp64Contents: []float64{1.5, -2}, BytesContents: [][]byte{[]byte("a"), nil}}})
	}
	res, err := client.ModelInfer(t.Context(), r)
	testhelp.Must(t, err)
	want := [][]byte{{1, 0}, {128, 127}, {0, 0, 255, 255}, {0, 0, 0, 0, 0, 0, 0, 128, 5, 0, 0, 0, 0, 0, 0, 0},
		{255, 255, 255, 255, 255, 255, 255, 255, 5, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 0xc0, 0x3f, 0, 0, 0, 0xc0},
		{0, 0, 0, 0, 0, 0, 0xf8, 0x3f, 0, 0, 0, 0, 0, 0, 0, 0xc0}, {1, 0, 0, 0, 'a', 0, 0, 0, 0}}
	for i, raw := range res.RawOutputContents {
		if !bytes.Equal(raw, want[i]) {
			t.Errorf("%s is %v, where %v was expected", r.Inputs[i].Name, raw, want[i])
		}
	}
	r.Inputs[1].Contents.IntContents[0] = -129
	if _, err = client.ModelInfer(t.Context(), r); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "no INT8 holds") {
		t.Error(err)
	}
}

func TestNothingIsLeftOfClientsThatAreCutOff(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	srv := serve.New(serve.Options{MaxQueue: 8})
	testhelp.Must(t, srv.Add("m", serve.FromModel(double), serve.Batching{Max: 4, Delay: time.Millisecond}))
	testhelp.Must(t, srv.Add("panics", serve.FromModel(func(gotorch.Tensor) gotorch.Tensor { panic("no") })))
	testhelp.Must(t, srv.Add("slow", serve.NewModel(serve.FromModel(double).Signature(), func(ctx context.Context, in *serve.Request) ([]serve.Value, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})))
	web := httptest.NewServer(srv.HTTP())
	address := web.Listener.Addr().String()
	head := `{"inputs":[{"name":"input","shape":[20000,1],"datatype":"FP32","parameters":{"binary_data_size":80000}}]}`
	small := `{"inputs":[{"name":"input","shape":[1,1],"datatype":"FP32","parameters":{"binary_data_size":4}}]}`
	request := func(model, head string, size int) string {
		return fmt.Sprintf("POST /v2/models/%s/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n%s%s",
			model, len(head), len(head)+size, head, make([]byte, size))
	}
	large, tiny := request("m", head, 80000), request("m", small, 4)
	round := func(n int) {
		var clients sync.WaitGroup
		for client := range 4 {
			clients.Go(func() {
				for i := range n / 4 {
					c, err := net.Dial("tcp", address)
					if err != nil {
						t.Error(err)
						return
					}
					switch (i + client) % 6 {
					case 0: // in mid-body, where it is read into a tensor
						io.WriteString(c, large[:len(large)-40000-i])
					case 1: // in the JSON
						io.WriteString(c, large[:130+i%100])
					case 2: // while it runs
						io.WriteString(c, request("slow", small, 4))
					case 3:
						io.WriteString(c, request("panics", small, 4))
						bufio.NewReader(c).ReadString('\n')
					case 4: // before the answer
						io.WriteString(c, tiny)
					case 5:
						io.WriteString(c, tiny)
						line, _ := bufio.NewReader(c).ReadString('\n')
						if !strings.Contains(line, "200") && !strings.Contains(line, "429") {
							t.Errorf("answered %q", line)
						}
					}
					c.Close()
				}
			})
		}
		clients.Wait()
	}
	round(60)
	time.Sleep(50 * time.Millisecond)
	files, handles := testhelp.Descriptors(t), gotorch.MemoryStats().LiveHandles
	round(1200)
	web.Close()
	testhelp.Must(t, srv.Close(t.Context()))
	http.DefaultClient.CloseIdleConnections()
	if after := gotorch.MemoryStats().LiveHandles; after > handles {
		t.Errorf("%d tensors live, where %d did", after, handles)
	}
	testhelp.NoMoreGoroutines(t, goroutines)
	if after := testhelp.Descriptors(t); after > files {
		t.Errorf("%d files are open, where %d were", after, files)
	}
}

// direct is the model that the benchmarks call.
func direct() (func(gotorch.Tensor) gotorch.Tensor, serve.Signature) {
	w1, w2 := gotorch.Randn([]int64{784, 128}), gotorch.Randn([]int64{128, 10})
	return func(x gotorch.Tensor) gotorch.Tensor { return x.MM(w1).ReLU().MM(w2) }, serve.Signature{
		Inputs:  []serve.Spec{{Name: "x", Type: serve.FP32, Shape: []int64{-1, 784}}},
		Outputs: []serve.Spec{{Name: "y", Type: serve.FP32, Shape: []int64{-1, 10}}},
	}
}

func BenchmarkDirect(b *testing.B) {
	f, _ := direct()
	data := make([]byte, 4*784)
	for b.Loop() {
		gotorch.Scope0(func(*gotorch.ScopeHandle) { gotorch.RawData(f(gotorch.FromRaw(data, gotorch.Float32, 1, 784))) })
	}
}

func BenchmarkInfer(b *testing.B) {
	srv := newServer(b)
	f, s := direct()
	testhelp.Must(b, srv.Add("m", serve.FromModel(f, s), serve.Batching{Max: 64}))
	in := []serve.Value{{Name: "x", Tensor: gotorch.Zeros([]int64{1, 784})}}
	for b.Loop() {
		out, err := srv.Infer(b.Context(), serve.InferRequest{Model: "m", Inputs: in})
		testhelp.Must(b, err)
		out[0].Tensor.Close()
	}
}

func BenchmarkREST(b *testing.B) {
	srv := newServer(b)
	f, s := direct()
	testhelp.Must(b, srv.Add("m", serve.FromModel(f, s), serve.Batching{Max: 64}))
	web := httptest.NewServer(srv.HTTP())
	defer web.Close()
	head := `{"inputs":[{"name":"x","shape":[1,784],"datatype":"FP32","parameters":{"binary_data_size":3136}}],"parameters":{"binary_data_output":true}}`
	texts := map[string]string{"Binary": head + string(make([]byte, 3136))}
	numbers := make([]float32, 784)
	for i := range numbers {
		numbers[i] = float32(i) / 3
	}
	data, err := json.Marshal(numbers)
	testhelp.Must(b, err)
	texts["JSON"] = fmt.Sprintf(`{"inputs":[{"name":"x","shape":[1,784],"datatype":"FP32","data":%s}]}`, data)
	for name, text := range texts {
		extra := ""
		if name == "Binary" {
			extra = fmt.Sprintf("Inference-Header-Content-Length: %d\r\n", len(head))
		}
		request := []byte(fmt.Sprintf("POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n%s", extra, len(text), text))
		b.Run(name, func(b *testing.B) {
			c, err := net.Dial("tcp", web.Listener.Addr().String())
			testhelp.Must(b, err)
			defer c.Close()
			answers := bufio.NewReader(c)
			for b.Loop() {
				c.Write(request)
				res, err := http.ReadResponse(answers, nil)
				testhelp.Must(b, err)
				if n, _ := io.Copy(io.Discard, res.Body); n == 0 || res.StatusCode != 200 {
					b.Fatal(res.Status)
				}
			}
		})
	}
}

func BenchmarkGRPC(b *testing.B) {
	srv := newServer(b)
	f, s := direct()
	testhelp.Must(b, srv.Add("m", serve.FromModel(f, s), serve.Batching{Max: 64}))
	client := serveGRPC(b, srv)
	r := zeros("m", "x", 1, 784)
	for b.Loop() {
		_, err := client.ModelInfer(b.Context(), r)
		testhelp.Must(b, err)
	}
}

// Errors name what the client has sent, and no types of Go.
func TestRequestsToTheRepositoryThatAreNoneSayWhy(t *testing.T) {
	srv := serve.New(serve.Options{Control: true})
	defer srv.Close(t.Context())
	web := httptest.NewServer(srv.HTTP())
	defer web.Close()
	for path, bodies := range map[string][]string{
		"/v2/repository/index":         {`[]`, `3`, `"x"`, `true`, `{"ready":"x"}`, `{"ready":1}`, `{"ready":[]}`, `{"ready":{}}`, `{`, `nul`},
		"/v2/repository/models/m/load": {`[]`, `3`, `"x"`, `true`, `{"parameters":"x"}`, `{"parameters":1}`, `{"parameters":[]}`, `{`, `nul`},
	} {
		for _, body := range bodies {
			code, text := post(t, web.URL+path, body)
			if code != 400 || strings.Contains(text, "Go ") || strings.Contains(text, "interface") || strings.Contains(text, "struct") {
				t.Errorf("%s %s: %d %s", path, body, code, text)
			}
		}
	}
}
