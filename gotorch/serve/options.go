package serve

import (
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// Options are the arguments of [New] that have defaults.
type Options struct {
	// Name and Version are what the server says of itself. Default: gotorch, and no version.
	Name, Version string
	// Metrics is where the server registers its metrics for Prometheus, which all begin with gotorch_serve_. Default:
	// nowhere.
	Metrics prometheus.Registerer
	// Log gets what an operator should know: models that come and go, and failures of models with the stack of a
	// panic, which clients do not see. Default: slog.Default().
	Log *slog.Logger
	// Tracer makes the server's spans of OpenTelemetry: one for each request, of kind server, that goes on with the trace in
	// the client's header traceparent, with one for its time in the queue below it; and one for each batch that runs, below
	// the first of its requests and with links to all. Default: no spans.
	Tracer trace.TracerProvider
	// MaxQueue is how many requests may wait for a model, unless its [Queue] says so. default: 256
	MaxQueue gotorch.Scalar
	// MaxRequestBytes bounds a request: its body over REST, as it is and unpacked, and its message over gRPC. A larger one
	// is refused, with 413 or RESOURCE_EXHAUSTED, before it is read; over gRPC for that the grpc.Server has to be made with
	// [GRPCOptions]. default: 64 << 20
	MaxRequestBytes gotorch.Scalar
	// MaxBytes bounds what all requests for inference take together while they are read and run, what their texts become
	// included; over gRPC for that the grpc.Server has to be made with [GRPCOptions], and else a message counts from when it
	// has come. Beyond it requests whose clients have stopped sending are ended, and others are refused with 429, or
	// RESOURCE_EXHAUSTED. default: 1 << 30
	MaxBytes gotorch.Scalar
	// RunTimeout is how long a run of a model may take, unless the model's [RunTimeout] says so. Default: as long as it takes.
	RunTimeout time.Duration
	// Control lets clients load and unload models. Who can reach the server can then put it out of service.
	Control bool
}

// ModelOption is an argument of [Server.Add]: [Batching], [Queue], [Instances], [Version], [Threads], [Sequences],
// [Ragged], [RunTimeout].
type ModelOption interface {
	set(*modelOptions)
}

type modelOptions struct {
	version   string
	batching  Batching
	queue     Queue
	instances int
	sequences *Sequences // nil: the model keeps no state
	ragged    []Ragged
	threads   int // 0: as many as others

	threadsGiven bool
	unasked      bool // nobody has asked for batching, so that no request is refused for it

	runTimeout      time.Duration // 0: any
	runTimeoutGiven bool
}

// Version is the version of a model; by default it is "1". A request that names no version gets the highest one:
// numbers are compared as such, whatever their length, and come after other names. Those are compared as text; "01" and
// "+1" are among them.
type Version string

func (v Version) set(o *modelOptions) { o.version = string(v) }

// Instances is how many batches of a model run at a time; by default 1. They share the model, and divide the
// processors: more than one is for models that leave processors idle.
type Instances int

func (n Instances) set(o *modelOptions) { o.instances = int(n) }

// Batching makes a server join requests along their first dimension. The model's inputs and outputs must all have the
// batch there. Only requests are joined whose shapes agree but for it, and whose parameters are the same.
//
// The zero Batching joins none: each request runs alone, and its first dimension means nothing.
type Batching struct {
	// Max is how many rows a batch may have. A request with more is refused.
	Max int
	// Delay is how long a request may wait for others while an instance is free. Without it a batch is what has come
	// while the instances were busy, which is best for many clients, and costs a single one nothing.
	Delay time.Duration
	// Preferred are sizes at which a batch does not wait for Delay, besides Max.
	Preferred []int
	// FailTogether fails all requests of a batch that failed. Without it each of them is run again alone, so that one
	// wrong request does no harm to others; leave it so unless a run has effects that must not happen twice.
	FailTogether bool
}

func (b Batching) set(o *modelOptions) { o.batching = b }

// Queue is how requests for a model wait.
type Queue struct {
	// Max is how many may wait, and where the model has [Sequences] how many more for others of theirs. Default:
	// Options.MaxQueue.
	Max gotorch.Scalar
	// Timeout is how long a request may wait until it runs: DEADLINE_EXCEEDED, or 504, then. A request may ask for
	// less with the parameter timeout, in microseconds. Default: as long as its client does.
	Timeout time.Duration
	// Levels is how many priorities there are. A request has one of 1 to Levels in its parameter priority, 1 being
	// the most urgent; a lower one runs only when no higher one waits. Default: none, and the parameter is ignored.
	Levels int
	// DefaultLevel is the priority of requests that have none, or 0. Default: Levels, the least urgent.
	DefaultLevel int
}

func (q Queue) set(o *modelOptions) { o.queue = q }

const maxLevels = 64

// queueOptions checks what Add was given.
func (s *Server) queueOptions(o *modelOptions) (queueOptions, error) {
	b, q := o.batching, o.queue
	var limit int64
	err := gotorch.Try0(func() { limit = args.Int("serve.Add", "Queue.Max", q.Max, int64(s.maxQueue)) })
	wrong := func(format string, values ...any) (queueOptions, error) {
		return queueOptions{}, newError(InvalidArgument, format, values...)
	}
	switch {
	case err != nil:
		return wrong("%v", err)
	case limit < 1 || limit > 1<<24:
		return wrong("Queue.Max is %d, and must be positive, and at most %d", limit, 1<<24)
	case o.instances < 1 || o.instances > 1024:
		return wrong("Instances is %d, and must be from 1 to 1024", o.instances)
	case b.Max < 0 || b.Delay < 0:
		return wrong("Batching.Max is %d and Batching.Delay %v: neither may be negative", b.Max, b.Delay)
	case b.Max == 0 && (b.Delay > 0 || len(b.Preferred) > 0):
		return wrong("Batching has a Delay or Preferred sizes, but no Max: how many rows may a batch have?")
	case q.Timeout < 0:
		return wrong("Queue.Timeout is %v, and must not be negative", q.Timeout)
	case q.Levels < 0 || q.Levels > maxLevels:
		return wrong("Queue.Levels is %d, and must be from 0 to %d", q.Levels, maxLevels)
	case q.DefaultLevel < 0 || q.DefaultLevel > q.Levels:
		return wrong("Queue.DefaultLevel is %d, where there are %d levels", q.DefaultLevel, q.Levels)
	}
	preferred := slices.Clone(b.Preferred)
	slices.Sort(preferred)
	if len(preferred) > 0 && (preferred[0] < 1 || preferred[len(preferred)-1] > b.Max) {
		return wrong("Batching.Preferred is %v, and must be from 1 to Max, %d", b.Preferred, b.Max)
	}
	return queueOptions{max: b.Max, delay: b.Delay, preferred: preferred, instances: o.instances, limit: int(limit),
		levels: max(1, q.Levels)}, nil
}
