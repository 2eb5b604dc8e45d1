package serve_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/serve"
	pb "gotorch.dev/gotorch/serve/internal/inferencepb"
)

const traceID = "0af7651916cd43dd8448eb211c80319c"

func traced(t *testing.T, sampler sdk.Sampler) (*serve.Server, *tracetest.SpanRecorder) {
	spans := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans), sdk.WithSampler(sampler))
	return newServer(t, serve.Options{Tracer: provider}), spans
}

// byName returns the spans that have ended.
func byName(spans *tracetest.SpanRecorder) map[string][]sdk.ReadOnlySpan {
	all := map[string][]sdk.ReadOnlySpan{}
	for _, s := range spans.Ended() {
		all[s.Name()] = append(all[s.Name()], s)
	}
	return all
}

func TestATraceGoesOnFromTheClientsOverBothProtocols(t *testing.T) {
	srv, spans := traced(t, sdk.ParentBased(sdk.NeverSample()))
	testhelp.Must(t, srv.Add("m", serve.FromModel(double, serve.Signature{Inputs: []serve.Spec{{Name: "x", Type: serve.FP32}}, Outputs: []serve.Spec{{Name: "y", Type: serve.FP32}}})))
	web := httptest.NewServer(srv.HTTP())
	defer web.Close()
	rest := func(parent, model string) *http.Response {
		r, err := http.NewRequest("POST", web.URL+"/v2/models/"+model+"/infer", strings.NewReader(`{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}`))
		testhelp.Must(t, err)
		if parent != "" {
			r.Header.Set("traceparent", parent)
		}
		res, err := http.DefaultClient.Do(r)
		testhelp.Must(t, err)
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
		return res
	}
	check := func(protocol string) {
		t.Helper()
		all := byName(spans)
		if len(all) != 3 || len(all["infer m"]) != 1 || len(all["queue"]) != 1 || len(all["compute m"]) != 1 {
			t.Fatalf("%s: spans are %v", protocol, all)
		}
		root := all["infer m"][0]
		if root.SpanContext().TraceID().String() != traceID || root.Parent().SpanID().String() != "b7ad6b7169203331" || root.SpanKind() != trace.SpanKindServer {
			t.Errorf("%s: the request's span is %v below %v", protocol, root.SpanContext(), root.Parent())
		}
		for _, name := range []string{"queue", "compute m"} {
			s := all[name][0]
			if s.Parent().SpanID() != root.SpanContext().SpanID() || s.SpanContext().TraceID() != root.SpanContext().TraceID() ||
				s.StartTime().Before(root.StartTime()) || s.EndTime().After(root.EndTime()) || s.EndTime().Before(s.StartTime()) {
				t.Errorf("%s: %s is not within the request's span", protocol, name)
			}
		}
		for _, a := range root.Attributes() {
			if a.Key == "serve.protocol" && a.Value.AsString() != protocol {
				t.Errorf("%v", a)
			}
		}
	}
	res := rest("00-"+traceID+"-b7ad6b7169203331-01", "m")
	check("REST")
	if h := res.Header.Get("Traceresponse"); !strings.HasPrefix(h, "00-"+traceID+"-") {
		t.Errorf("Traceresponse is %q", h)
	}

	spans.Reset()
	for _, parent := range []string{"", "00-" + traceID + "-b7ad6b7169203331-00", "nonsense"} { // not sampled: no spans, and an answer
		if res := rest(parent, "m"); res.StatusCode != 200 {
			t.Error(res.StatusCode)
		}
	}
	if all := byName(spans); len(all) > 0 {
		t.Errorf("spans of what is not sampled: %v", all)
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	testhelp.Must(t, err)
	g := grpc.NewServer()
	serve.RegisterGRPC(g, srv)
	go g.Serve(l)
	defer g.Stop()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	testhelp.Must(t, err)
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(context.Background(), "traceparent", "00-"+traceID+"-b7ad6b7169203331-01")
	_, err = pb.NewGRPCInferenceServiceClient(conn).ModelInfer(ctx, &pb.ModelInferRequest{ModelName: "m", Inputs: []*pb.ModelInferRequest_InferInputTensor{
		{Name: "x", Datatype: "FP32", Shape: []int64{1}, Contents: &pb.InferTensorContents{Fp32Contents: []float32{1}}}}})
	testhelp.Must(t, err)
	check("gRPC")

	spans.Reset()
	rest("00-"+traceID+"-b7ad6b7169203331-01", "none")
	all := byName(spans)
	if len(all["infer"]) != 1 || len(all) != 1 {
		t.Errorf("a model that is not there: %v", all)
	}
}

func TestABatchHasLinksToAllItsRequests(t *testing.T) {
	srv, spans := traced(t, sdk.AlwaysSample())
	var gate chan struct{}
	fail := false
	testhelp.Must(t, srv.Add("m", serve.FromModel(func(x gotorch.Tensor) gotorch.Tensor {
		<-gate
		if fail {
			panic("no")
		}
		return double(x)
	}), serve.Batching{Max: 100}))
	h := srv.HTTP()
	const body = `{"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 1], "data": [1]}]}`
	some := func(n int) {
		gate = make(chan struct{})
		open := sync.OnceFunc(func() { close(gate) })
		defer open() // also where something is wrong: the server's end waits for its models
		var all sync.WaitGroup
		for i := range n {
			if i == 1 {
				untilRunning(t, srv)
			}
			all.Go(func() {
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/v2/models/m/infer", strings.NewReader(body)))
			})
		}
		untilWaiting(t, srv, n-1)
		open()
		all.Wait()
	}
	some(5) // one runs, and the four that have come meanwhile together
	found := false
	for _, s := range byName(spans)["compute m"] {
		if len(s.Links()) == 0 {
			continue
		}
		found = true
		traces := map[trace.TraceID]bool{}
		for _, l := range s.Links() {
			traces[l.SpanContext.TraceID()] = true
		}
		if len(traces) != 4 || !traces[s.Parent().TraceID()] {
			t.Errorf("the batch has links to %d traces", len(traces))
		}
		for _, a := range s.Attributes() {
			if strings.HasPrefix(string(a.Key), "serve.batch_") && a.Value.AsInt64() != 4 {
				t.Errorf("%v", a)
			}
		}
	}
	if n := len(byName(spans)["queue"]); !found || n != 5 {
		t.Errorf("a batch with links: %v; %d times in the queue", found, n)
	}
	spans.Reset()
	fail = true
	some(3) // two fail together, and then alone
	all := byName(spans)
	if len(all["queue"]) != 3 || len(all["infer m"]) != 3 || len(all["compute m"]) != 4 {
		t.Errorf("failing: %d in the queue, %d requests, %d runs", len(all["queue"]), len(all["infer m"]), len(all["compute m"]))
	}
	for _, s := range all["infer m"] {
		if s.Status().Code != codes.Error {
			t.Errorf("a request that failed has the status %v", s.Status())
		}
	}
	for _, s := range spans.Started() {
		if s.EndTime().IsZero() {
			t.Errorf("%s has no end", s.Name())
		}
	}
}

func TestWhatACloseCutsShortIsUnavailable(t *testing.T) {
	srv := newServer(t)
	running := make(chan bool)
	testhelp.Must(t, srv.Add("m", serve.NewModel(serve.Signature{Outputs: []serve.Spec{{Name: "y", Type: serve.FP32}}}, func(ctx context.Context, _ *serve.Request) ([]serve.Value, error) {
		running <- true
		<-ctx.Done()
		return nil, ctx.Err()
	})))
	got := make(chan error)
	go func() {
		_, err := srv.Infer(context.Background(), serve.InferRequest{Model: "m"})
		got <- err
	}()
	<-running
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	srv.Close(ctx)
	if err := <-got; !errors.Is(err, serve.Unavailable) {
		t.Error(err)
	}
}
