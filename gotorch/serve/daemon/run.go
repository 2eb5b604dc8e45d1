package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"gotorch.dev/gotorch/serve"
	"gotorch.dev/gotorch/serve/internal/connlimit"
	"gotorch.dev/gotorch/serve/middleware"
	"gotorch.dev/gotorch/serve/page"
)

// Options are what a program brings along that no file can say.
type Options struct {
	// Name and Version are what the server says of itself. Default: gotorch-serve, and no version.
	Name, Version string
	// Setup adds models, before those of the repositories. The server is alive and not ready meanwhile. ctx ends when
	// the process is told to end.
	Setup func(ctx context.Context, srv *serve.Server) error
	// HTTP puts more around or beside the server's handler, behind the tokens. Default: nothing.
	HTTP func(next http.Handler) http.Handler
	// GRPC are more options of the grpc.Server, such as interceptors; those of tokens and logs come first.
	GRPC []grpc.ServerOption
	// Log is where logs go instead of what Config.Log says.
	Log *slog.Logger
	// Registry gets the metrics. Default: a new one, with those of Go and the process.
	Registry *prometheus.Registry
	// Tracing makes what spans go to where Config.Tracing has an endpoint, and a function that sends what is left, at the
	// end. Without it an endpoint is an error: this package brings no exporter, so that programs without traces need none.
	Tracing func(ctx context.Context, t Tracing) (trace.TracerProvider, func(context.Context) error, error)
	// Ready is called once, when all models are loaded, with the addresses that are served.
	Ready func(Addresses)
}

// Addresses are those that a server listens at; nil where it does not.
type Addresses struct{ HTTP, GRPC, Metrics net.Addr }

// ErrCutShort is what [Run] returns when not all requests were answered in the time for it: errors.Is.
var ErrCutShort = errors.New("daemon: requests that ran were cut short")

// Run serves until ctx ends, and returns nil when all that was taken has been answered. What is wrong with the
// configuration, an address that is taken, a model that cannot be loaded are errors, and so is [ErrCutShort].
func Run(ctx context.Context, c Config, opts ...Options) error {
	return run(ctx, nil, c, one(opts))
}

func one(opts []Options) Options {
	var o Options
	if len(opts) > 0 {
		o = opts[0]
	}
	if o.Name == "" {
		o.Name = "gotorch-serve"
	}
	return o
}

func newLog(c Log, w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: logLevels[c.Level]}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// server is what runs.
type server struct {
	config   Config
	options  Options
	log      *slog.Logger
	models   *serve.Server
	tokens   *middleware.Tokens // nil: anyone
	web      *http.Server       // nil without an address, as the next two
	rpc      *grpc.Server
	metrics  *http.Server
	health   *health.Server
	draining atomic.Bool
	stopping chan struct{} // closed when streams without a request end
	failed   chan error
	tell     *notifier
}

// run is Run that ends at once when abort is closed.
func run(ctx context.Context, abort <-chan struct{}, c Config, o Options) (err error) {
	if err := c.Check(); err != nil {
		return err
	}
	s := &server{config: c, options: o, log: o.Log, stopping: make(chan struct{}), failed: make(chan error, 3)}
	if s.log == nil {
		s.log = newLog(c.Log, os.Stderr)
	}
	if s.tell, err = newNotifier(os.Getenv); err != nil {
		return err
	}
	defer s.tell.close()
	tlsConfig, err := s.security()
	if err != nil {
		return err
	}
	var tracer trace.TracerProvider
	if c.Tracing.Endpoint != "" {
		if o.Tracing == nil {
			return &ConfigError{[]Problem{{Key: "tracing.endpoint", Value: c.Tracing.Endpoint, Want: "this program sends no spans: daemon.Options.Tracing is nil"}}}
		}
		provider, flush, err := o.Tracing(ctx, c.Tracing)
		if err != nil {
			return fmt.Errorf("daemon: traces cannot go to %s: %w", c.Tracing.Endpoint, err)
		}
		tracer = provider
		defer func() { // the collector may be away: that delays the end by little
			ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
			defer cancel()
			if err := flush(ending); err != nil {
				s.log.Warn("daemon: the last spans are lost", "error", err)
			}
		}()
	}
	registry := o.Registry
	if registry == nil {
		registry = prometheus.NewRegistry()
		registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}

	// Addresses first: where one is taken, nothing has been started.
	var listeners [3]net.Listener
	defer func() {
		for _, l := range listeners {
			if l != nil {
				l.Close()
			}
		}
	}()
	var at Addresses
	for i, a := range []struct {
		key, address string
		addr         *net.Addr
	}{{"http", c.HTTP, &at.HTTP}, {"grpc", c.GRPC, &at.GRPC}, {"metrics", c.Metrics, &at.Metrics}} {
		if a.address == "" {
			continue
		}
		if listeners[i], err = net.Listen("tcp", a.address); err != nil {
			return fmt.Errorf("daemon: %s: %w", a.key, err)
		}
		*a.addr = listeners[i].Addr()
	}

	s.models = serve.New(serve.Options{Name: o.Name, Version: o.Version, Metrics: registry, Log: s.log, Tracer: tracer,
		MaxQueue: c.Limits.Queue, MaxRequestBytes: int64(c.Limits.RequestBytes), MaxBytes: int64(c.Limits.AllBytes), RunTimeout: c.Limits.RunTime, Control: c.Control})
	s.models.SetReady(false)
	var requestLog *slog.Logger
	if c.Log.Requests {
		requestLog = s.log
	}
	logged := middleware.Log(requestLog)
	if listeners[0] != nil {
		s.web = s.httpServer(logged.HTTP(s.restHandler()))
		s.web.TLSConfig = tlsConfig.Clone() // which net/http changes
		s.serveHTTP(s.web, listeners[0])
	}
	if listeners[1] != nil {
		s.rpc = grpc.NewServer(append(s.grpcOptions(logged, tlsConfig), o.GRPC...)...)
		serve.RegisterGRPC(s.rpc, s.models)
		s.health = health.NewServer()
		healthpb.RegisterHealthServer(s.rpc, s.health)
		reflection.Register(s.rpc)
		s.setServing(false)
		l := listeners[1]
		go func() { s.failed <- s.rpc.Serve(l) }()
	}
	if listeners[2] != nil {
		s.metrics = s.httpServer(s.metricsHandler(registry))
		if !c.TLS.PlainMetrics {
			s.metrics.TLSConfig = tlsConfig.Clone()
		}
		s.serveHTTP(s.metrics, listeners[2])
	}
	clear(listeners[:]) // they are their servers' now

	s.log.Info("daemon: alive, loading models", append(addressAttrs(at), threadAttrs()...)...)
	s.warn(at)
	err = s.load(ctx)
	if err == nil {
		err = s.serve(ctx, abort, at)
	}
	if ctx.Err() != nil {
		err = nil // what loading says then is only that it was told to end
	}
	return errors.Join(err, s.end(abort, err == nil))
}

func addressAttrs(a Addresses) []any {
	var attrs []any
	for _, one := range []struct {
		name string
		addr net.Addr
	}{{"http", a.HTTP}, {"grpc", a.GRPC}, {"metrics", a.Metrics}} {
		if one.addr != nil {
			attrs = append(attrs, one.name, one.addr.String())
		}
	}
	return attrs
}

// load adds all models.
func (s *server) load(ctx context.Context) error {
	if s.options.Setup != nil {
		if err := s.options.Setup(ctx, s.models); err != nil {
			return fmt.Errorf("daemon: models cannot be set up: %w", err)
		}
	}
	poll := s.config.Poll
	if poll == 0 {
		poll = -1 // never; 0 is AddRepository's default
	}
	for _, dir := range s.config.ModelRepository {
		if err := s.models.AddRepository(ctx, dir, serve.RepositoryOptions{Poll: poll, Only: s.config.Models}); err != nil {
			return fmt.Errorf("daemon: the model repository %s: %w", dir, err)
		}
	}
	return ctx.Err()
}

// httpServer has the limits for slow and for many clients.
func (s *server) httpServer(h http.Handler) *http.Server {
	l := s.config.Limits
	web := &http.Server{
		Handler:           s.ending(patient(h, l.RequestTime, l.WriteTime)),
		ReadHeaderTimeout: l.HeaderTime,
		IdleTimeout:       l.IdleTime,
		MaxHeaderBytes:    int(l.HeaderBytes),
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	middleware.LimitConnections(web, l.Connections)
	return web
}

func (s *server) serveHTTP(web *http.Server, l net.Listener) {
	go func() {
		if web.TLSConfig != nil {
			s.failed <- web.ServeTLS(l, "", "")
		} else {
			s.failed <- web.Serve(l)
		}
	}()
}

// ending asks clients to take another connection for their next request, once the process is to end.
func (s *server) ending(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.draining.Load() && r.ProtoMajor == 1 {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// patient bounds how long a client may take to send a request, and to take a piece of its answer. http.Server's
// ReadTimeout and WriteTimeout bound the model's time with it: the first ends the context of a request that is read and runs.
func patient(next http.Handler, toRead, toWrite time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		control.SetWriteDeadline(time.Time{}) // what the last request on the connection has left
		if r.Body != nil && r.Body != http.NoBody {
			control.SetReadDeadline(time.Now().Add(toRead))
			body := &reader{ReadCloser: r.Body, control: control}
			r.Body = body
			defer body.leave(w, r)
			w = &leaver{w, r, body}
		}
		next.ServeHTTP(&writer{w, control, toWrite}, r)
	})
}

// reader is a body that is read, or not, in time.
type reader struct {
	io.ReadCloser
	control *http.ResponseController
	whole   bool // all of it has been read
}

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if err == io.EOF {
		r.whole = true
		r.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// leave gives up what has not been read of the body.
func (r *reader) leave(w http.ResponseWriter, of *http.Request) {
	if !r.whole {
		connlimit.LeaveBody(w, of)
	}
}

// leaver is the answer to a request with a body. It goes out before the body has come whole where the handler does not want it.
type leaver struct {
	http.ResponseWriter
	request *http.Request
	body    *reader
}

func (l *leaver) WriteHeader(code int) {
	if code >= 200 {
		l.body.leave(l.ResponseWriter, l.request)
	}
	l.ResponseWriter.WriteHeader(code)
}

func (l *leaver) Write(p []byte) (int, error) {
	l.body.leave(l.ResponseWriter, l.request)
	return l.ResponseWriter.Write(p)
}

func (l *leaver) Unwrap() http.ResponseWriter { return l.ResponseWriter }

type writer struct {
	http.ResponseWriter
	control *http.ResponseController
	limit   time.Duration
}

func (w *writer) Write(p []byte) (int, error) {
	w.control.SetWriteDeadline(time.Now().Add(w.limit))
	return w.ResponseWriter.Write(p)
}

func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (s *server) restHandler() http.Handler {
	h := s.models.HTTP()
	if s.options.HTTP != nil {
		h = s.options.HTTP(h)
	}
	if s.tokens != nil {
		h = s.tokens.HTTP(h)
	}
	if s.config.Page { // without a token: it has no secrets, and is where one is typed
		mux := http.NewServeMux()
		mux.Handle("/", h)
		mux.Handle("/{$}", page.Handler())
		h = mux
	}
	return middleware.CORS(s.config.CORS, h)
}

func (s *server) metricsHandler(registry *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	var metrics http.Handler = promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn)})
	if s.tokens != nil && !s.config.Auth.OpenMetrics {
		metrics = s.tokens.Require(middleware.Metrics, metrics)
	}
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "alive") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !s.models.IsReady() { // why is in the log: who asks here needs no token
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	return mux
}

func (s *server) grpcOptions(logged *middleware.Requests, tlsConfig *tls.Config) []grpc.ServerOption {
	l := s.config.Limits
	limits := serve.GRPCLimits{Connections: l.Connections, RequestTime: l.RequestTime, WriteTime: l.WriteTime}
	if tlsConfig != nil {
		limits.Credentials = credentials.NewTLS(tlsConfig)
	}
	unary := []grpc.UnaryServerInterceptor{logged.Unary}
	stream := []grpc.StreamServerInterceptor{logged.Stream}
	if s.tokens != nil {
		unary = append(unary, s.tokens.Unary)
		stream = append(stream, s.tokens.Stream)
		limits.Admit = s.tokens.Admit
	}
	return append(serve.GRPCOptions(s.models, limits),
		grpc.MaxHeaderListSize(uint32(l.HeaderBytes)),
		grpc.MaxConcurrentStreams(uint32(l.Streams)),
		grpc.ConnectionTimeout(l.HeaderTime),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: l.PingTime, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: l.IdleTime, Time: max(time.Second, l.IdleTime/2), Timeout: l.WriteTime}),
		grpc.ChainUnaryInterceptor(unary...),
		grpc.ChainStreamInterceptor(append(stream, s.stoppable)...),
	)
}

// stoppable lets streams end between two messages when the server stops. grpc.Server.GracefulStop would wait for clients
// that keep one open.
func (s *server) stoppable(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if info.FullMethod == healthpb.Health_Watch_FullMethodName {
		ctx, cancel := context.WithCancel(stream.Context())
		defer cancel()
		done := make(chan struct{})
		defer close(done)
		go func() {
			select {
			case <-s.stopping:
				cancel()
			case <-done:
			}
		}()
		return next(srv, &stoppableStream{stream, ctx, nil})
	}
	return next(srv, &stoppableStream{stream, stream.Context(), s.stopping})
}

type stoppableStream struct {
	grpc.ServerStream
	ctx      context.Context
	stopping chan struct{} // nil: it looks at ctx
}

func (s *stoppableStream) Context() context.Context { return s.ctx }

func (s *stoppableStream) RecvMsg(m any) error {
	if s.stopping == nil {
		return s.ServerStream.RecvMsg(m)
	}
	got := make(chan error, 1)
	go func() { got <- s.ServerStream.RecvMsg(m) }() // ends with the stream
	select {
	case err := <-got:
		return err
	case <-s.stopping:
	}
	select {
	case err := <-got: // it came before
		return err
	default:
		return status.Error(codes.Unavailable, "the server stops: go on with another one")
	}
}

// setServing is what gRPC's own health service says.
func (s *server) setServing(serving bool) {
	if s.health == nil {
		return
	}
	state := healthpb.HealthCheckResponse_NOT_SERVING
	if serving {
		state = healthpb.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus("", state)
	s.health.SetServingStatus("inference.GRPCInferenceService", state)
}

// end shuts everything down. With drain it goes on serving for a while before.
func (s *server) end(abort <-chan struct{}, drain bool) error {
	s.tell.stopping()
	s.models.SetReady(false)
	s.setServing(false)
	s.draining.Store(true)
	begin := time.Now()
	if drain && s.config.Drain > 0 {
		s.log.Info("daemon: told to end, draining", "drain", s.config.Drain.String())
		select {
		case <-time.After(s.config.Drain):
		case <-abort:
		case err := <-s.failed:
			s.log.Error("daemon: a listener failed", "error", err)
		}
	}
	s.log.Info("daemon: taking nothing new")
	ctx, cancel := context.WithTimeout(context.Background(), s.config.Shutdown)
	defer cancel()
	go func() {
		select {
		case <-abort:
			cancel()
		case <-ctx.Done():
		}
	}()
	close(s.stopping)
	done := make(chan error, 2)
	parts := 0
	if s.web != nil {
		parts++
		go func() { done <- s.web.Shutdown(ctx) }()
	}
	if s.rpc != nil {
		parts++
		go func() {
			stopped := make(chan struct{})
			go func() { s.rpc.GracefulStop(); close(stopped) }()
			select {
			case <-stopped:
				done <- nil
			case <-ctx.Done():
				done <- ctx.Err()
			}
		}()
	}
	cut := false
	for range parts {
		cut = <-done != nil || cut
	}
	// Listeners and their requests are done, or the time is: those that still run are answered that the server closes.
	if err := s.models.Close(ctx); err != nil {
		cut = true
	}
	if cut {
		time.Sleep(50 * time.Millisecond) // for those answers
	}
	if s.web != nil {
		s.web.Close()
	}
	if s.rpc != nil {
		s.rpc.Stop()
	}
	if s.metrics != nil {
		s.metrics.Close()
	}
	if cut {
		s.log.Error("daemon: ended, and requests were cut short", "took", time.Since(begin).String())
		return ErrCutShort
	}
	s.log.Info("daemon: ended", "took", time.Since(begin).String())
	return nil
}
