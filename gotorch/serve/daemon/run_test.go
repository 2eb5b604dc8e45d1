package daemon

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/serve"
	pb "gotorch.dev/gotorch/serve/internal/inferencepb"
	"gotorch.dev/gotorch/serve/internal/servetest"
)

// TestMain is the server itself where a test has started this program again.
func TestMain(m *testing.M) {
	switch os.Getenv("DAEMON_TEST_CHILD") {
	case "1":
		os.Exit(Main(Options{Name: "child", Setup: setup, Tracing: lostTraces}))
	case "soak":
		os.Exit(Main(Options{Name: "child", Setup: soakSetup}))
	}
	os.Exit(m.Run())
}

var signature = serve.Signature{Inputs: []serve.Spec{{Name: "x", Type: serve.FP32, Shape: []int64{-1, 1}}},
	Outputs: []serve.Spec{{Name: "y", Type: serve.FP32, Shape: []int64{-1, 1}}}}

// setup adds a model that doubles, and one that takes as many seconds as it is told.
func setup(_ context.Context, srv *serve.Server) error {
	return errors.Join(srv.Add("double", serve.FromModel(func(x gotorch.Tensor) gotorch.Tensor { return x.MulScalar(2) }, signature), serve.Batching{Max: 16}),
		srv.Add("slow", serve.NewModel(signature, func(ctx context.Context, in *serve.Request) ([]serve.Value, error) {
			if os.Getenv("DAEMON_TEST_CHILD") != "" {
				fmt.Fprintln(os.Stderr, `{"msg":"slow runs"}`)
			}
			select {
			case <-time.After(time.Duration(gotorch.Item[float32](in.Inputs[0].Tensor) * float32(time.Second))):
				return in.Inputs[:1:1], nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}), serve.Instances(8)))
}

func init() {
	signature.Outputs[0].Name = "x" // slow returns its input
}

// child is a server in a process of its own.
type child struct {
	*exec.Cmd
	at    map[string]string
	lines chan map[string]any // of its log, when it has ended
	done  chan error
	mutex sync.Mutex
	said  map[any]bool // messages of its log so far
}

// waits returns when the log has the message.
func (c *child) waits(t testing.TB, message string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		c.mutex.Lock()
		said := c.said[message]
		c.mutex.Unlock()
		if said {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the log does not say %q after 30 s", message)
		}
	}
}

func startChild(t testing.TB, args ...string) *child {
	t.Helper()
	program, err := os.Executable()
	must(t, err)
	c := &child{Cmd: exec.Command(program, append([]string{"--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--log.format", "json"}, args...)...),
		at: map[string]string{}, lines: make(chan map[string]any, 1<<20), done: make(chan error, 1), said: map[any]bool{}}
	c.Env = append(os.Environ(), "DAEMON_TEST_CHILD="+cmp.Or(os.Getenv("DAEMON_TEST_CHILD"), "1"), "NOTIFY_SOCKET=")
	out, err := c.StderrPipe()
	must(t, err)
	must(t, c.Start())
	t.Cleanup(func() { c.Process.Kill() })
	go func() {
		scanner := bufio.NewScanner(out)
		for scanner.Scan() {
			var line map[string]any
			if json.Unmarshal(scanner.Bytes(), &line) != nil {
				fmt.Fprintln(os.Stderr, scanner.Text())
				line = map[string]any{"no JSON": scanner.Text()}
			}
			if line["msg"] == "daemon: ready" {
				for _, key := range []string{"http", "grpc", "metrics"} {
					c.at[key], _ = line[key].(string)
				}
			}
			c.mutex.Lock()
			c.said[line["msg"]] = true
			c.mutex.Unlock()
			c.lines <- line
		}
		close(c.lines)
		c.done <- c.Wait()
	}()
	c.waits(t, "daemon: ready")
	return c
}

func (c *child) exit(t testing.TB) int {
	t.Helper()
	select {
	case err := <-c.done:
		if err == nil {
			return 0
		}
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return exit.ExitCode()
	case <-time.After(30 * time.Second):
		c.Process.Signal(syscall.SIGQUIT) // its goroutines are printed
		<-c.done
		t.Fatal("the server has not ended after 30 s")
		return -1
	}
}

const body = `{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [%v]}]}`

func post(client *http.Client, url string, x any) (code int, text string, err error) {
	res, err := client.Post(url+"/infer", "application/json", strings.NewReader(fmt.Sprintf(body, x)))
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	return res.StatusCode, string(all), err
}

func get(t testing.TB, url string) int {
	t.Helper()
	res, err := http.Get(url)
	must(t, err)
	res.Body.Close()
	return res.StatusCode
}

func dial(t testing.TB, address string, creds credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	if creds == nil {
		creds = insecure.NewCredentials()
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(creds))
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func inferRequest(model string, x float32) *pb.ModelInferRequest {
	return &pb.ModelInferRequest{ModelName: model, Inputs: []*pb.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: "FP32", Shape: []int64{1, 1},
		Contents: &pb.InferTensorContents{Fp32Contents: []float32{x}}}}}
}

func TestUnderLoadNoRequestThatWasTakenIsDropped(t *testing.T) {
	c := startChild(t, "--drain", "2s", "--log.requests")
	url := "http://" + c.at["http"]
	var answered, refused [2]atomic.Int64
	var stop atomic.Bool
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for !stop.Load() {
				code, text, err := post(client, url+"/v2/models/double", 21)
				switch {
				case err != nil:
					refused[0].Add(1)
					time.Sleep(time.Millisecond)
				case code != 200 || !strings.Contains(text, "[42.0]"):
					t.Errorf("%d %s", code, text)
					return
				default:
					answered[0].Add(1)
				}
			}
		})
		all.Go(func() {
			client := pb.NewGRPCInferenceServiceClient(dial(t, c.at["grpc"], nil))
			for !stop.Load() {
				_, err := client.ModelInfer(context.Background(), inferRequest("double", 21))
				switch {
				case status.Code(err) == codes.Unavailable && (strings.Contains(err.Error(), "connection refused") || strings.Contains(err.Error(), "error reading server preface")):
					refused[1].Add(1)
					time.Sleep(time.Millisecond)
				case err != nil:
					t.Error(err)
					return
				default:
					answered[1].Add(1)
				}
			}
		})
	}
	stream, err := pb.NewGRPCInferenceServiceClient(dial(t, c.at["grpc"], nil)).ModelStreamInfer(context.Background())
	must(t, err)
	must(t, stream.Send(inferRequest("double", 1)))
	_, err = stream.Recv()
	must(t, err)
	watch, err := healthpb.NewHealthClient(dial(t, c.at["grpc"], nil)).Watch(context.Background(), &healthpb.HealthCheckRequest{})
	must(t, err)
	if state, err := watch.Recv(); err != nil || state.Status != healthpb.HealthCheckResponse_SERVING {
		t.Error(state, err)
	}
	time.Sleep(200 * time.Millisecond)
	slow := make(chan string, 1)
	go func() {
		code, text, err := post(http.DefaultClient, url+"/v2/models/slow", 3) // longer than the drain
		slow <- fmt.Sprint(code, text, err)
	}()
	c.waits(t, "slow runs")
	before := answered[0].Load()
	must(t, c.Process.Signal(syscall.SIGTERM))
	if state, err := watch.Recv(); err != nil || state.Status != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Error(state, err)
	}
	for what, want := range map[string]int{url + "/v2/health/ready": 400, url + "/v2/health/live": 200,
		"http://" + c.at["metrics"] + "/readyz": 503, "http://" + c.at["metrics"] + "/livez": 200} {
		if got := get(t, what); got != want {
			t.Errorf("%s while it drains: %d, expected %d", what, got, want)
		}
	}
	if text := <-slow; !strings.HasPrefix(text, "200") {
		t.Errorf("the request that ran: %s", text)
	}
	if code := c.exit(t); code != ExitDone {
		t.Errorf("exit code %d", code)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("an open stream: %v", err)
	}
	stop.Store(true)
	all.Wait()
	if answered[0].Load() <= before || refused[0].Load() == 0 || refused[1].Load() == 0 {
		t.Errorf("%d were answered before, %d at all, %d and %d refused: the test has not seen the end", before, answered[0].Load(), refused[0].Load(), refused[1].Load())
	}
	var taken [2]int64
	for line := range c.lines {
		if line["msg"] != "request" {
			continue
		}
		switch {
		case line["path"] == "/v2/models/double/infer":
			taken[0]++
			if line["status"] != 200.0 {
				t.Error(line)
			}
		case line["method"] == "/inference.GRPCInferenceService/ModelInfer":
			taken[1]++
			if line["code"] != "OK" {
				t.Error(line)
			}
		}
	}
	for i := range taken {
		if taken[i] != answered[i].Load() {
			t.Errorf("%s: %d requests were taken, and %d answered", []string{"REST", "gRPC"}[i], taken[i], answered[i].Load())
		}
	}
	t.Log(taken, "requests")
}

func TestWhoAsksTwiceOrWaitsTooLongEndsItAtOnce(t *testing.T) {
	for _, twice := range []bool{true, false} {
		args := []string{"--drain", "0", "--shutdown", "300ms"}
		if twice {
			args = []string{"--drain", "20s", "--shutdown", "20s"}
		}
		c := startChild(t, args...)
		slow := make(chan string, 1)
		go func() {
			code, text, err := post(http.DefaultClient, "http://"+c.at["http"]+"/v2/models/slow", 60)
			slow <- fmt.Sprint(code, text, err)
		}()
		c.waits(t, "slow runs")
		must(t, c.Process.Signal(syscall.SIGTERM))
		if twice {
			c.waits(t, "daemon: told to end, draining")
			must(t, c.Process.Signal(syscall.SIGTERM))
		}
		if code := c.exit(t); code != ExitCutShort {
			t.Errorf("twice %v: exit code %d", twice, code)
		}
		if text := <-slow; !strings.HasPrefix(text, "503") {
			t.Errorf("the request that was cut short: %s", text)
		}
	}
}

// serving runs a server in this process until the test ends.
func serving(t testing.TB, change func(*Config), opts ...Options) Addresses {
	t.Helper()
	before := runtime.NumGoroutine()
	c := Default()
	c.HTTP, c.GRPC, c.Metrics, c.Drain = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", 0
	if change != nil {
		change(&c)
	}
	o := one(opts)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Setup == nil {
		o.Setup = setup
	}
	at := make(chan Addresses, 1)
	o.Ready = func(a Addresses) { at <- a }
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, c, o) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("at the end: %v", err)
		}
		for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before+2; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				stacks := make([]byte, 1<<20)
				t.Errorf("%d goroutines are left of %d:\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
				return
			}
		}
	})
	select {
	case a := <-at:
		return a
	case err := <-done:
		done <- nil
		t.Fatal(err)
		return Addresses{}
	}
}

func TestASlowClientIsCutOffAndOthersAreServed(t *testing.T) {
	at := serving(t, func(c *Config) {
		c.Limits.HeaderTime, c.Limits.RequestTime, c.Limits.IdleTime = 300*time.Millisecond, 300*time.Millisecond, 300*time.Millisecond
		c.Limits.HeaderBytes, c.Limits.Connections = 4<<10, 50
	})
	url := "http://" + at.HTTP.String() + "/v2/models/double"
	var all sync.WaitGroup
	slow := func(what, head string) {
		all.Go(func() {
			c, err := net.Dial("tcp", at.HTTP.String())
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			begin := time.Now()
			_, err = c.Write([]byte(head))
			for err == nil && time.Since(begin) < 5*time.Second { // a byte now and then
				time.Sleep(20 * time.Millisecond)
				_, err = c.Write([]byte("1"))
			}
			if err == nil {
				t.Errorf("%s is not cut off", what)
			}
		})
	}
	for range 30 {
		slow("a header that comes slowly", "POST /v2/models/double/infer HTTP/1.1\r\nHost: x\r\nX-A: ")
		slow("a body that comes slowly", "POST /v2/models/double/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{\"id\":\"")
	}
	for range 300 { // and many that say nothing
		all.Go(func() {
			c, err := net.Dial("tcp", at.HTTP.String())
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			c.SetReadDeadline(time.Now().Add(5 * time.Second))
			if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("a connection that says nothing is kept")
			}
		})
	}
	all.Wait()
	for i := range 10 {
		if code, text, err := post(http.DefaultClient, url, i); code != 200 || err != nil {
			t.Fatal(code, text, err)
		}
	}
	r, err := http.NewRequest("GET", url, nil)
	must(t, err)
	r.Header.Set("X-Large", strings.Repeat("x", 1<<20))
	if res, err := http.DefaultClient.Do(r); err == nil {
		if res.Body.Close(); res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("a header of a megabyte: %d", res.StatusCode)
		}
	}
}

func TestAModelMayTakeLongerThanAClient(t *testing.T) {
	at := serving(t, func(c *Config) {
		c.Limits.HeaderTime, c.Limits.RequestTime, c.Limits.WriteTime = 200*time.Millisecond, 200*time.Millisecond, 200*time.Millisecond
	})
	url := "http://" + at.HTTP.String()
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}} // one connection for all
	defer client.CloseIdleConnections()
	if code, text, err := post(client, url+"/v2/models/slow", 1); code != 200 || err != nil {
		t.Fatal(code, text, err)
	}
	time.Sleep(300 * time.Millisecond) // longer than an answer may be written
	for _, path := range []string{"/v2/health/live", "/v2", "/v2/health/ready"} {
		res, err := client.Get(url + path)
		must(t, err)
		if res.Body.Close(); res.StatusCode != 200 {
			t.Errorf("%s: %d", path, res.StatusCode)
		}
	}
	if code, text, err := post(client, url+"/v2/models/slow", 0.5); code != 200 || err != nil {
		t.Fatal(code, text, err)
	}
	// Who reads nothing of a long answer is cut off.
	c, err := net.Dial("tcp", at.HTTP.String())
	must(t, err)
	defer c.Close()
	must(t, c.(*net.TCPConn).SetReadBuffer(4<<10))
	_, err = io.WriteString(c, strings.Repeat("GET / HTTP/1.1\r\nHost: x\r\n\r\n", 1000)) // of 25 kilobytes each
	must(t, err)
	time.Sleep(time.Second)
	must(t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
	if n, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) || n > 20<<20 {
		t.Errorf("a client that reads nothing is sent %d bytes later: %v", n, err)
	}
}

func TestCallsOfGRPCHaveTheirLimits(t *testing.T) {
	at := serving(t, func(c *Config) {
		c.Limits.RequestBytes, c.Limits.Streams, c.Limits.HeaderTime, c.Limits.IdleTime = 1<<20, 4, 300*time.Millisecond, time.Second
		c.Limits.Connections = 3
	})
	// Those that say nothing are closed after HeaderTime, so that others can connect.
	for range 10 {
		c, err := net.Dial("tcp", at.GRPC.String())
		must(t, err)
		defer c.Close()
	}
	conn := dial(t, at.GRPC.String(), nil)
	client := pb.NewGRPCInferenceServiceClient(conn)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := client.ModelInfer(ctx, inferRequest("double", 1), grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	large := inferRequest("double", 1)
	large.RawInputContents = [][]byte{make([]byte, 2<<20)}
	if _, err := client.ModelInfer(ctx, large); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a message of 2 MiB: %v", err)
	}
	if _, err := client.ModelInfer(metadata.AppendToOutgoingContext(ctx, "x-large", strings.Repeat("x", 100<<10)), inferRequest("double", 1)); err == nil {
		t.Error("headers of 100 KiB are taken")
	}
	begin := time.Now() // eight calls of 0.2 s, four at a time
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := client.ModelInfer(ctx, inferRequest("slow", 0.2)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if took := time.Since(begin); took < 390*time.Millisecond {
		t.Errorf("more than four calls ran at a time: %v", took)
	}
	check, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: "inference.GRPCInferenceService"})
	if err != nil || check.Status != healthpb.HealthCheckResponse_SERVING {
		t.Error(check, err)
	}
}

func TestTLSAndTokensHoldOverRESTAndGRPC(t *testing.T) {
	a := servetest.NewAuthority(t, "a")
	cert, key := a.New("server")
	tokens := write(t, "tokens", "web infer infer-token-0123456789\nprobe metrics metrics-token-0123456789\nops infer,control control-token-0123456789\n")
	var log lockedBuffer
	at := serving(t, func(c *Config) {
		c.TLS.Cert, c.TLS.Key, c.Auth.Tokens, c.Control, c.Log.Requests = cert, key, tokens, true, true
	}, Options{Log: slog.New(slog.NewJSONHandler(&log, nil))})
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: a.Pool}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	call := func(method, url, token string) (int, string) {
		r, err := http.NewRequest(method, "https://"+url, strings.NewReader(fmt.Sprintf(body, 4)))
		must(t, err)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		res, err := client.Do(r)
		must(t, err)
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		must(t, err)
		return res.StatusCode, res.Proto + " " + string(text)
	}
	rest := at.HTTP.String()
	for _, c := range []struct {
		method, url, token string
		code               int
	}{
		{"POST", rest + "/v2/models/double/infer", "infer-token-0123456789", 200}, {"POST", rest + "/v2/models/double/infer", "", 401},
		{"POST", rest + "/v2/models/double/infer", "metrics-token-0123456789", 403}, {"GET", rest + "/v2/health/ready", "", 200},
		{"GET", rest + "/", "", 200}, {"GET", rest + "/v2", "", 401}, {"GET", rest + "/nothing", "", 401},
		{"POST", rest + "/v2/repository/models/slow/unload", "infer-token-0123456789", 403},
		{"POST", rest + "/v2/repository/models/slow/unload", "control-token-0123456789", 200},
		{"GET", at.Metrics.String() + "/metrics", "", 401}, {"GET", at.Metrics.String() + "/metrics", "metrics-token-0123456789", 200},
		{"GET", at.Metrics.String() + "/livez", "", 200},
	} {
		if code, text := call(c.method, c.url, c.token); code != c.code || !strings.HasPrefix(text, "HTTP/2.0") {
			t.Errorf("%s with %.8s: %d %.200s, expected %d", c.url, c.token, code, text, c.code)
		}
	}
	if _, err := http.Get("https://" + rest + "/"); err == nil {
		t.Error("a client that does not know the authority trusts the server")
	}
	if res, err := http.Get("http://" + rest + "/v2"); err == nil {
		if res.Body.Close(); res.StatusCode != 400 {
			t.Errorf("without TLS: %d", res.StatusCode)
		}
	}
	rpc := pb.NewGRPCInferenceServiceClient(dial(t, at.GRPC.String(), credentials.NewTLS(&tls.Config{RootCAs: a.Pool})))
	with := func(token string) context.Context {
		return metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+token)
	}
	if _, err := rpc.ModelInfer(with("infer-token-0123456789"), inferRequest("double", 1)); err != nil {
		t.Error(err)
	}
	if _, err := rpc.ModelInfer(with("wrong-token-0123456789"), inferRequest("double", 1)); status.Code(err) != codes.Unauthenticated {
		t.Error(err)
	}
	if _, err := rpc.RepositoryModelLoad(with("infer-token-0123456789"), &pb.RepositoryModelLoadRequest{ModelName: "slow"}); status.Code(err) != codes.PermissionDenied {
		t.Error(err)
	}
	if _, err := rpc.ServerReady(context.Background(), &pb.ServerReadyRequest{}); err != nil {
		t.Error(err)
	}
	stream, err := rpc.ModelStreamInfer(context.Background())
	must(t, err)
	if _, err := stream.Recv(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a stream without a token: %v", err)
	}
	if _, err := pb.NewGRPCInferenceServiceClient(dial(t, at.GRPC.String(), nil)).ServerLive(context.Background(), &pb.ServerLiveRequest{}); err == nil {
		t.Error("gRPC without TLS is taken")
	}
	if text := log.String(); strings.Contains(text, "token-0123456789") || !strings.Contains(text, `"user":"web"`) {
		t.Errorf("the log has a token, or no user: %s", text)
	}
}

type lockedBuffer struct {
	mutex sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.Buffer.String()
}

func TestItIsAliveAndNotReadyWhileModelsAreLoaded(t *testing.T) {
	c := Default()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	l.Close()
	c.HTTP, c.GRPC, c.Metrics, c.Drain = l.Addr().String(), "", "", 0
	ctx, cancel := context.WithCancel(context.Background())
	loading := make(chan bool)
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, c, Options{Log: slog.New(slog.DiscardHandler), Setup: func(ctx context.Context, _ *serve.Server) error {
			loading <- true
			<-ctx.Done()
			return ctx.Err()
		}})
	}()
	<-loading
	if live, ready := get(t, "http://"+c.HTTP+"/v2/health/live"), get(t, "http://"+c.HTTP+"/v2/health/ready"); live != 200 || ready != 400 {
		t.Errorf("live %d, ready %d", live, ready)
	}
	c.HTTP, c.GRPC = "127.0.0.1:0", c.HTTP
	if err := Run(ctx, c, Options{Log: slog.New(slog.DiscardHandler)}); err == nil || !strings.Contains(err.Error(), "daemon: grpc: listen") {
		t.Errorf("an address that is taken: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("told to end while it loads: %v", err)
	}
	err = Run(context.Background(), Config{}, Options{})
	var wrong *ConfigError
	if !errors.As(err, &wrong) {
		t.Errorf("an empty configuration: %v", err)
	}
	c = Default()
	c.HTTP, c.GRPC, c.Metrics = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	err = Run(context.Background(), c, Options{Log: slog.New(slog.DiscardHandler), Setup: func(context.Context, *serve.Server) error { return errors.New("no weights") }})
	if err == nil || !strings.Contains(err.Error(), "no weights") {
		t.Errorf("models that cannot be set up: %v", err)
	}
}

func TestAnotherSitesPageCannotSendRequests(t *testing.T) {
	at := serving(t, func(c *Config) { c.Control = true })
	url := "http://" + at.HTTP.String() + "/v2/repository/models/slow/unload"
	r, err := http.NewRequest("POST", url, nil)
	must(t, err)
	r.Header.Set("Origin", "https://evil.example")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	res, err := http.DefaultClient.Do(r)
	must(t, err)
	if res.Body.Close(); res.StatusCode != http.StatusForbidden {
		t.Error(res.StatusCode)
	}
}

func TestSystemdIsTold(t *testing.T) {
	path := t.TempDir() + "/notify"
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	must(t, err)
	defer conn.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "100000")
	said := make(chan string, 1000)
	go func() {
		buffer := make([]byte, 1000)
		for {
			n, err := conn.Read(buffer)
			if err != nil {
				close(said)
				return
			}
			said <- string(buffer[:n])
			if strings.HasPrefix(string(buffer[:n]), "STOPPING") {
				close(said)
				return
			}
		}
	}()
	t.Run("server", func(t *testing.T) {
		serving(t, nil)
		time.Sleep(200 * time.Millisecond)
	})
	must(t, conn.SetReadDeadline(time.Now().Add(5*time.Second)))
	var all []string
	for text := range said {
		all = append(all, text)
	}
	text := strings.Join(all, "\n")
	ready, dog, stopping := strings.Index(text, "READY=1"), strings.Index(text, "WATCHDOG=1"), strings.Index(text, "STOPPING=1")
	if ready < 0 || dog < 0 || stopping < ready {
		t.Errorf("systemd is told %q", all)
	}
}
