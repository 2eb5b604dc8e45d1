package daemon

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"google.golang.org/grpc/grpclog"

	"gotorch.dev/gotorch"
)

// logLibraries has the libraries that would write to standard error write to the log: what reads it, as JSON, need not know
// other lines. It concerns the process, so only Main does it.
func logLibraries(log *slog.Logger) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.Warn("daemon: spans are lost", "error", err)
	}))
	grpcLogger.Store(log)
	var said sync.Map
	gotorch.SetWarningHandler(func(w gotorch.Warning) {
		if _, before := said.LoadOrStore(w, true); !before {
			log.Warn("daemon: a warning of PyTorch", "kind", w.Kind, "warning", w.Msg)
		}
	})
}

// grpcLogger is the log of the newest server. grpc-go takes a logger only before anything uses it.
var grpcLogger atomic.Pointer[slog.Logger]

func init() { grpclog.SetLoggerV2(grpcLog{}) }

// grpcLog is what grpc-go has to say that it cannot say to a client: errors, as it does without it.
type grpcLog struct{}

func (grpcLog) Info(...any)             {}
func (grpcLog) Infoln(...any)           {}
func (grpcLog) Infof(string, ...any)    {}
func (grpcLog) Warning(...any)          {}
func (grpcLog) Warningln(...any)        {}
func (grpcLog) Warningf(string, ...any) {}

func (g grpcLog) Error(args ...any) { g.error(fmt.Sprint(args...)) }

func (g grpcLog) Errorln(args ...any) { g.error(fmt.Sprintln(args...)) }

func (g grpcLog) Errorf(format string, args ...any) { g.error(fmt.Sprintf(format, args...)) }

func (g grpcLog) Fatal(args ...any) { g.fatal(fmt.Sprint(args...)) }

func (g grpcLog) Fatalln(args ...any) { g.fatal(fmt.Sprintln(args...)) }

func (g grpcLog) Fatalf(format string, args ...any) { g.fatal(fmt.Sprintf(format, args...)) }

func (grpcLog) V(int) bool { return false }

func (g grpcLog) error(text string) {
	log := grpcLogger.Load()
	if log == nil {
		log = slog.Default()
	}
	log.Error("daemon: gRPC failed", "error", text)
}

func (g grpcLog) fatal(text string) {
	g.error(text)
	os.Exit(ExitFailed)
}
