// Gotorch-serve serves models: folders that export_model has written, over the Open Inference Protocol, as REST and gRPC.
//
//	gotorch-serve --model-repository models/ --http :8000 --grpc :8001 --metrics :8002
//
// gotorch-serve --help lists what can be set, and docs/serving.md says more. A program that has models of its own, in Go, is
// the same few lines with daemon.Options.Setup.
package main

import (
	"context"
	"os"
	"runtime/debug"
	"strings"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"go.opentelemetry.io/otel/trace"

	"gotorch.dev/gotorch/serve/daemon"
)

// Version is set by who builds a release: -ldflags "-X main.Version=1.0". Else it is the module's.
var Version string

func main() {
	if info, ok := debug.ReadBuildInfo(); ok && Version == "" {
		Version = info.Main.Version
	}
	os.Exit(daemon.Main(daemon.Options{Name: "gotorch-serve", Version: Version, Tracing: tracing}))
}

// tracing sends spans to a collector, in batches. Variables such as OTEL_EXPORTER_OTLP_HEADERS hold, too.
func tracing(ctx context.Context, t daemon.Tracing) (trace.TracerProvider, func(context.Context) error, error) {
	endpoint := strings.TrimRight(t.Endpoint, "/") + "/v1/traces" // as with OTEL_EXPORTER_OTLP_ENDPOINT
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(endpoint))
	if err != nil {
		return nil, nil, err
	}
	about, err := resource.New(ctx, resource.WithAttributes(semconv.ServiceName("gotorch-serve"), semconv.ServiceVersion(Version)),
		resource.WithFromEnv())
	if err != nil {
		return nil, nil, err
	}
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about),
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(t.Sample))))
	return provider, provider.Shutdown, nil
}
