package middleware

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// RequestID is the header, and the key of gRPC's metadata, by which a request is known in logs. One that a client sends is
// kept; others get a random one. The answer has it.
const RequestID = "X-Request-Id"

const requestIDKey = "x-request-id" // of gRPC, where keys are small

// Requests logs requests: one line each, when it has ended, with its id, what was asked for, the code of the answer, how long
// it took, from where it came, the name of the token, and the trace it belongs to. No header, body or query is in it.
type Requests struct{ log *slog.Logger }

// Log returns what logs requests. It stands before [Tokens], so that refusals are logged too. With nil it gives requests
// their ids and logs none.
func Log(log *slog.Logger) *Requests { return &Requests{log} }

// noted is what others in the chain tell the log.
type noted struct{ user atomic.Pointer[string] }

type notedKey struct{}

func note(ctx context.Context, user string) {
	if n, ok := ctx.Value(notedKey{}).(*noted); ok && user != "" {
		n.user.Store(&user)
	}
}

// ID returns the id of the request that ctx belongs to; "" outside of [Requests].
func ID(ctx context.Context) string {
	id, _ := ctx.Value(idKey{}).(string)
	return id
}

type idKey struct{}

// idOf returns the client's id if it may stand in logs and headers, and else a new one.
func idOf(given string) string {
	if given == "" || len(given) > 128 {
		return rand.Text()
	}
	for _, c := range []byte(given) {
		if c <= ' ' || c >= 0x7f {
			return rand.Text()
		}
	}
	return given
}

// answer counts what is written.
type answer struct {
	http.ResponseWriter
	code  int
	bytes int64
}

func (a *answer) WriteHeader(code int) {
	if a.code == 0 && code >= 200 {
		a.code = code
	}
	a.ResponseWriter.WriteHeader(code)
}

func (a *answer) Write(p []byte) (int, error) {
	if a.code == 0 {
		a.code = http.StatusOK
	}
	n, err := a.ResponseWriter.Write(p)
	a.bytes += int64(n)
	return n, err
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// short bounds what a client has chosen.
func short(text string) string {
	const longest = 300
	if len(text) > longest {
		return text[:longest] + "..."
	}
	return text
}

// HTTP logs the requests that go through it.
func (l *Requests) HTTP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin := time.Now()
		id := idOf(r.Header.Get(RequestID))
		w.Header().Set(RequestID, id)
		n := &noted{}
		ctx := context.WithValue(context.WithValue(r.Context(), idKey{}, id), notedKey{}, n)
		a := &answer{ResponseWriter: w}
		ended := false
		defer func() {
			if l.log == nil {
				return
			}
			code := a.code
			switch {
			case !ended:
				code = http.StatusInternalServerError // it panics
			case code == 0:
				code = http.StatusOK
			}
			attrs := []slog.Attr{slog.String("id", id), slog.String("method", short(r.Method)), slog.String("path", short(r.URL.Path)),
				slog.Int("status", code), slog.Int64("bytes", a.bytes)}
			l.line(ctx, n, begin, code >= 500, r.RemoteAddr, traceOf(a.Header().Get("Traceresponse")), attrs)
		}()
		next.ServeHTTP(a, r.WithContext(ctx))
		ended = true
	})
}

// traceOf is the trace in a header of the form of W3C's traceparent, as serve writes it into answers; "" for none.
func traceOf(header string) string {
	if parts := strings.Split(header, "-"); len(parts) == 4 && len(parts[1]) == 32 {
		return parts[1]
	}
	return ""
}

func (l *Requests) line(ctx context.Context, n *noted, begin time.Time, failed bool, remote, trace string, attrs []slog.Attr) {
	attrs = append(attrs, slog.Duration("took", time.Since(begin)), slog.String("remote", remote))
	if user := n.user.Load(); user != nil {
		attrs = append(attrs, slog.String("user", *user))
	}
	if trace != "" {
		attrs = append(attrs, slog.String("trace", trace))
	}
	level := slog.LevelInfo
	if failed {
		level = slog.LevelError
	}
	l.log.LogAttrs(ctx, level, "request", attrs...)
}

func (l *Requests) rpc(ctx context.Context) (context.Context, *noted, string) {
	var given string
	if ids := metadata.ValueFromIncomingContext(ctx, requestIDKey); len(ids) > 0 {
		given = ids[0]
	}
	id := idOf(given)
	n := &noted{}
	ctx = context.WithValue(context.WithValue(ctx, idKey{}, id), notedKey{}, n)
	return ctx, n, id
}

func (l *Requests) rpcLine(ctx context.Context, n *noted, id, method string, begin time.Time, err error, ended bool) {
	if l.log == nil {
		return
	}
	code := status.Code(err)
	if !ended {
		code = codes.Internal
	}
	remote := ""
	if p, ok := peer.FromContext(ctx); ok {
		remote = p.Addr.String()
	}
	parent := metadata.ValueFromIncomingContext(ctx, "traceparent")
	traceID := traceOf(strings.Join(parent, ","))
	failed := code == codes.Internal || code == codes.Unknown || code == codes.DataLoss
	l.line(ctx, n, begin, failed, remote, traceID, []slog.Attr{slog.String("id", id), slog.String("method", short(method)), slog.String("code", code.String())})
}

// Unary is HTTP for calls of gRPC: a grpc.UnaryServerInterceptor.
func (l *Requests) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (out any, err error) {
	begin := time.Now()
	ctx, n, id := l.rpc(ctx)
	grpc.SetHeader(ctx, metadata.Pairs(requestIDKey, id))
	ended := false
	defer func() { l.rpcLine(ctx, n, id, info.FullMethod, begin, err, ended) }()
	out, err = next(ctx, req)
	ended = true
	return out, err
}

// Stream is Unary for streams: a grpc.StreamServerInterceptor. A stream is one line.
func (l *Requests) Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	begin := time.Now()
	ctx, n, id := l.rpc(stream.Context())
	stream.SetHeader(metadata.Pairs(requestIDKey, id))
	ended := false
	defer func() { l.rpcLine(ctx, n, id, info.FullMethod, begin, err, ended) }()
	err = next(srv, &loggedStream{stream, ctx})
	ended = true
	return err
}

type loggedStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *loggedStream) Context() context.Context { return s.ctx }
