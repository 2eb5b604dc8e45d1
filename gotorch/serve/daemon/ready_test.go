package daemon

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectpb "google.golang.org/grpc/reflection/grpc_reflection_v1"

	"gotorch.dev/gotorch/internal/modeltest"
	pb "gotorch.dev/gotorch/serve/internal/inferencepb"
)

// freeAddress is one where nothing listens.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().String()
}

// until waits for what other goroutines do.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

func TestAServerIsReadyWhenAllThatTheConfigurationNamesIsLoaded(t *testing.T) {
	for what, c := range map[string]struct {
		prepare, mend func(dir string)
		models        []string
		why           string
	}{
		"no model": {func(string) {}, func(dir string) { modeltest.Write(t, filepath.Join(dir, "a/1"), 3, false) }, nil, "no model"},
		"a damaged model": {func(dir string) {
			modeltest.Write(t, filepath.Join(dir, "a/1"), 3, false)
			modeltest.Write(t, filepath.Join(dir, "b/1"), 3, false)
			must(t, os.WriteFile(filepath.Join(dir, "b/1/weights.safetensors"), []byte("no weights"), 0o666))
		}, func(dir string) { modeltest.Write(t, filepath.Join(dir, "b/1"), 3, false) }, nil, "model b"},
		"a missing name": {func(dir string) { modeltest.Write(t, filepath.Join(dir, "a/1"), 3, false) },
			func(dir string) { modeltest.Write(t, filepath.Join(dir, "z"), 3, false) }, []string{"z"}, "model z"},
	} {
		dir := t.TempDir()
		c.prepare(dir)
		config := Default()
		config.HTTP, config.GRPC, config.Metrics, config.Drain = freeAddress(t), freeAddress(t), freeAddress(t), 0
		config.ModelRepository, config.Models, config.Poll = []string{dir}, c.models, 20*time.Millisecond
		var log lockedBuffer
		ready := make(chan Addresses, 1)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- Run(ctx, config, Options{Log: slog.New(slog.NewTextHandler(&log, nil)), Ready: func(a Addresses) { ready <- a }})
		}()
		until(t, what+" is told", func() bool { return strings.Contains(log.String(), "daemon: not ready") })
		health := healthpb.NewHealthClient(dial(t, config.GRPC, nil))
		inference := pb.NewGRPCInferenceServiceClient(dial(t, config.GRPC, nil))
		states := func() string {
			check, err := health.Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
			must(t, err)
			all, err := inference.ServerReady(ctx, &pb.ServerReadyRequest{})
			must(t, err)
			return fmt.Sprint(get(t, "http://"+config.Metrics+"/livez"), get(t, "http://"+config.Metrics+"/readyz"),
				get(t, "http://"+config.HTTP+"/v2/health/live"), get(t, "http://"+config.HTTP+"/v2/health/ready"), check.Status, all.Ready)
		}
		if got := states(); got != "200 503 200 400 NOT_SERVING false" {
			t.Errorf("%s: %s", what, got)
		}
		if !strings.Contains(log.String(), c.why) || strings.Contains(log.String(), `"daemon: ready"`) || len(ready) != 0 {
			t.Errorf("%s: the log is %s", what, log.String())
		}
		c.mend(dir)
		until(t, what+" is mended", func() bool { return states() == "200 200 200 200 SERVING true" })
		<-ready
		cancel()
		must(t, <-done)
		if n := strings.Count(log.String(), `"daemon: not ready"`); n > 3 {
			t.Errorf("%s: the log says %d times that it is not ready", what, n)
		}
	}

	// Where nobody will look again that is the end.
	dir := t.TempDir()
	config := Default()
	config.HTTP, config.GRPC, config.Metrics, config.Drain, config.Poll = "127.0.0.1:0", "", "", 0, 0
	config.ModelRepository = []string{dir}
	if err := Run(t.Context(), config, Options{Log: slog.New(slog.DiscardHandler)}); err == nil || !strings.Contains(err.Error(), "no model in the folder") {
		t.Errorf("an empty folder, with poll 0: %v", err)
	}
	code := start([]string{"--http=127.0.0.1:0", "--grpc=", "--metrics=", "--poll=0", "--model-repository=" + dir}, nil, io.Discard, io.Discard, one([]Options{{Log: slog.New(slog.DiscardHandler)}}))
	if code != ExitFailed {
		t.Errorf("exit code %d", code)
	}
}

// What grpcurl and its like ask needs a token where there are some.
func TestServicesAreReflected(t *testing.T) {
	at := serving(t, nil)
	stream, err := reflectpb.NewServerReflectionClient(dial(t, at.GRPC.String(), nil)).ServerReflectionInfo(t.Context())
	must(t, err)
	must(t, stream.Send(&reflectpb.ServerReflectionRequest{MessageRequest: &reflectpb.ServerReflectionRequest_ListServices{}}))
	answer, err := stream.Recv()
	must(t, err)
	if text := fmt.Sprint(answer); !strings.Contains(text, "inference.GRPCInferenceService") || !strings.Contains(text, "grpc.health.v1.Health") {
		t.Error(text)
	}
	must(t, stream.Send(&reflectpb.ServerReflectionRequest{MessageRequest: &reflectpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "inference.ModelInferRequest"}}))
	if answer, err = stream.Recv(); err != nil || len(answer.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
		t.Error(answer, err)
	}
	must(t, stream.CloseSend())

	tokens := write(t, "tokens", "web infer infer-token-0123456789\n")
	at = serving(t, func(c *Config) { c.Auth.Tokens = tokens })
	stream, err = reflectpb.NewServerReflectionClient(dial(t, at.GRPC.String(), nil)).ServerReflectionInfo(t.Context())
	must(t, err)
	if _, err = stream.Recv(); err == nil || !strings.Contains(err.Error(), "Unauthenticated") {
		t.Errorf("without a token: %v", err)
	}
}

// A page of an origin that the configuration names sends requests, with a token; its preflight has none.
func TestPagesOfNamedOriginsSendRequests(t *testing.T) {
	tokens := write(t, "tokens", "web infer infer-token-0123456789\n")
	at := serving(t, func(c *Config) { c.CORS, c.Auth.Tokens = []string{"https://app.example.org"}, tokens })
	send := func(method, path, origin, token string) *http.Response {
		r, err := http.NewRequest(method, "http://"+at.HTTP.String()+path, strings.NewReader("{}"))
		must(t, err)
		r.Header.Set("Origin", origin)
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		if method == http.MethodOptions {
			r.Header.Set("Access-Control-Request-Method", "POST")
			r.Header.Set("Access-Control-Request-Headers", "authorization,content-type,inference-header-content-length")
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		res, err := http.DefaultClient.Do(r)
		must(t, err)
		res.Body.Close()
		return res
	}
	for _, c := range []struct {
		method, origin, token string
		code                  int
		allowed               bool
	}{
		{"OPTIONS", "https://app.example.org", "", 204, true},
		{"OPTIONS", "https://evil.example", "", 403, false},
		{"POST", "https://app.example.org", "infer-token-0123456789", 200, true},
		{"POST", "https://app.example.org", "", 401, true}, // which the page may see
		{"POST", "https://evil.example", "infer-token-0123456789", 403, false},
	} {
		res := send(c.method, "/v2/repository/index", c.origin, c.token)
		if res.StatusCode != c.code || (res.Header.Get("Access-Control-Allow-Origin") == c.origin) != c.allowed {
			t.Errorf("%s of %s: %d %v", c.method, c.origin, res.StatusCode, res.Header)
		}
	}
	if res := send("POST", "/", "https://app.example.org", ""); res.StatusCode != 405 || res.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("the page, sent to: %d %v", res.StatusCode, res.Header)
	}
}

// A body that comes too slowly is told so.
func TestASlowBodyIsTold(t *testing.T) {
	at := serving(t, func(c *Config) { c.Limits.RequestTime = 200 * time.Millisecond })
	conn, err := net.Dial("tcp", at.HTTP.String())
	must(t, err)
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v2/models/double/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
	must(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
	answer, err := io.ReadAll(conn)
	if text := string(answer); err != nil || !strings.HasPrefix(text, "HTTP/1.1 408 ") || strings.Contains(text, "127.0.0.1") {
		t.Errorf("%q, %v", text, err)
	}
}
