package serve

import (
	"context"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"
)

// Spans of OpenTelemetry, where Options.Tracer is set:
//
//	infer digits            a request, from when it begins to be read until its answer is written
//	├─ queue                it waits
//	└─ compute digits       the batch that it is in runs, with links to all requests of the batch
//
// compute is below the first request of a batch only, as a span has one parent; the others find it by its links.

const tracerName = "gotorch.dev/gotorch/serve"

// w3c reads and writes the header traceparent.
var w3c = propagation.TraceContext{}

// jobTrace is a job's place in its trace.
type jobTrace struct {
	ctx     context.Context // nil: no spans
	arrived time.Time       // zero: the span of its waiting is made
}

// metadataCarrier is gRPC's metadata for w3c.
type metadataCarrier struct{ metadata.MD }

func (c metadataCarrier) Get(key string) string {
	if values := c.MD.Get(key); len(values) > 0 {
		return values[0]
	}
	return ""
}

func (c metadataCarrier) Set(key, value string) { c.MD.Set(key, value) }

func (c metadataCarrier) Keys() []string {
	keys := make([]string, 0, len(c.MD))
	for key := range c.MD {
		keys = append(keys, key)
	}
	return keys
}

func metadataOf(ctx context.Context) propagation.TextMapCarrier {
	md, _ := metadata.FromIncomingContext(ctx)
	return metadataCarrier{md}
}

// receive begins the span of a request. The name of its model is the client's, and no more than an attribute until the
// model is found. One attribute that is no UTF-8 would keep an exporter from sending all spans that it has.
func (s *Server) receive(from propagation.TextMapCarrier, ctx context.Context, protocol, model, version string) (context.Context, trace.Span) {
	if !trace.SpanContextFromContext(ctx).IsValid() { // else a middleware of the user's has begun one
		ctx = w3c.Extract(ctx, from)
	}
	return s.tracer.Start(ctx, "infer", trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("serve.protocol", protocol), attribute.String("serve.model", shorten(model, 256)),
			attribute.String("serve.version", shorten(version, 256))))
}

// endSpan ends a span with what became of it.
func endSpan(span trace.Span, err error) {
	if span == nil {
		return
	}
	if err != nil {
		e := asError(err)
		span.SetAttributes(attribute.String("serve.code", e.Code.String()))
		if e.Code == Internal || e.Code == Unavailable || e.Code == DeadlineExceeded {
			span.SetStatus(codes.Error, shorten(e.Msg, mostTold)) // what is the client's fault is no error of a server's span
		}
	}
	span.End()
}

// restTraced is a handler with the span of its request.
func (s *Server) restTraced(f func(http.ResponseWriter, *http.Request) error) func(http.ResponseWriter, *http.Request) error {
	if s.tracer == nil {
		return f
	}
	return func(w http.ResponseWriter, r *http.Request) (err error) {
		ctx, span := s.receive(propagation.HeaderCarrier(r.Header), r.Context(), "REST", r.PathValue("name"), r.PathValue("version"))
		defer func() { endSpan(span, err) }()
		answer := propagation.MapCarrier{}
		w3c.Inject(ctx, answer)
		if parent := answer["traceparent"]; parent != "" {
			w.Header().Set("Traceresponse", parent) // https://w3c.github.io/trace-context/#traceresponse-header
		}
		return f(w, r.WithContext(ctx))
	}
}

// traceWaiting notes whose job it is.
func (s *Server) traceWaiting(ctx context.Context, v *version, j *job) {
	if s.tracer == nil {
		return
	}
	j.trace = jobTrace{ctx, time.Now()}
	trace.SpanFromContext(ctx).SetName("infer " + v.name)
}

// traceRun ends the time in the queue of the jobs of a batch, and begins the span of its run. Without a tracer, and where
// no request is recorded, the span is nil.
func (v *version) traceRun(ctx context.Context, jobs []*job, rows int, begin time.Time) (context.Context, trace.Span) {
	tracer := v.server.tracer
	if tracer == nil {
		return ctx, nil
	}
	var links []trace.Link
	parent := ctx
	for _, j := range jobs {
		if j.trace.ctx == nil || !trace.SpanContextFromContext(j.trace.ctx).IsSampled() {
			continue
		}
		of := trace.SpanContextFromContext(j.trace.ctx)
		if len(links) == 0 {
			parent = trace.ContextWithSpanContext(ctx, of)
		}
		links = append(links, trace.Link{SpanContext: of})
		if !j.trace.arrived.IsZero() { // it is, where a batch failed and its requests are run alone
			_, waited := tracer.Start(j.trace.ctx, "queue", trace.WithTimestamp(j.trace.arrived))
			waited.End(trace.WithTimestamp(begin))
			j.trace.arrived = time.Time{}
		}
	}
	if len(links) == 0 {
		return ctx, nil
	}
	if len(jobs) == 1 {
		links = nil
	}
	return tracer.Start(parent, "compute "+v.name, trace.WithTimestamp(begin), trace.WithLinks(links...),
		trace.WithAttributes(attribute.String("serve.model", v.name), attribute.String("serve.version", v.id),
			attribute.Int("serve.batch_rows", rows), attribute.Int("serve.batch_requests", len(jobs))))
}
