package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc/grpclog"

	"gotorch.dev/gotorch"
)

// lostTraces are spans for a collector that is away, and what else libraries write when they are not told where to.
func lostTraces(context.Context, Tracing) (trace.TracerProvider, func(context.Context) error, error) {
	otel.Handle(errors.New("the collector is away"))
	grpclog.Error("gRPC is unhappy")
	for range 2 {
		gotorch.Warn(gotorch.Warning{Kind: "UserWarning", Msg: "PyTorch is unhappy"})
	}
	return noop.NewTracerProvider(), func(context.Context) error { return errors.New("the collector is still away") }, nil
}

func TestAllOfTheLogIsJSON(t *testing.T) {
	c := startChild(t, "--tracing.endpoint", "http://127.0.0.1:1", "--drain", "0s")
	must(t, c.Process.Signal(syscall.SIGTERM))
	if code := c.exit(t); code != ExitDone {
		t.Errorf("exit code %d", code)
	}
	var text strings.Builder
	for line := range c.lines {
		fmt.Fprintln(&text, line)
		if line["no JSON"] != nil {
			t.Errorf("a line of the log: %s", line["no JSON"])
		}
	}
	for _, said := range []string{"the collector is away", "gRPC is unhappy", "PyTorch is unhappy", "the collector is still away"} {
		if strings.Count(text.String(), said) != 1 {
			t.Errorf("the log does not say once that %s:\n%s", said, &text)
		}
	}
}

func TestEverySignalThatEndsItDrains(t *testing.T) {
	// The tests may run under nohup, whose ignored SIGHUP the child would inherit. A signal that is handled here is the child's default.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	for _, kind := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		c := startChild(t, "--drain", "100ms")
		answered := make(chan error, 1)
		go func() {
			code, text, err := post(&http.Client{Transport: &http.Transport{}}, "http://"+c.at["http"]+"/v2/models/slow", 1)
			if code != 200 && err == nil {
				err = errors.New(text)
			}
			answered <- err
		}()
		c.waits(t, "slow runs")
		must(t, c.Process.Signal(kind))
		if err := <-answered; err != nil {
			t.Errorf("%v: a request that ran: %v", kind, err)
		}
		if code := c.exit(t); code != ExitDone {
			t.Errorf("%v: exit code %d", kind, code)
		}
	}
}
