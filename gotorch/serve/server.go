package serve

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/trace"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// Server runs models for clients. Its methods may be called from several goroutines at once.
type Server struct {
	options  Options
	log      *slog.Logger
	maxQueue int
	maxBody  int64
	bytes    budget
	metrics  *metrics
	tracer   trace.Tracer // nil: no spans
	notReady atomic.Bool

	mutex   sync.RWMutex
	models  map[string]map[string]*version // by name and version
	latest  map[string]*version            // of those that are loaded
	leaving map[*version]bool              // those in no table any more on which something may still run
	closing bool

	repositories []*repository

	killed  chan struct{} // closed when Close no longer waits
	killing sync.Once
}

// New returns a server without models. It panics with a *gotorch.Error if an option is wrong, and as
// prometheus.MustRegister does if another server has registered with Options.Metrics and is not closed.
func New(opts ...Options) *Server {
	const op = "serve.New"
	o := args.Option(opts)
	s := &Server{options: o, log: o.Log, models: map[string]map[string]*version{}, latest: map[string]*version{},
		leaving: map[*version]bool{}, killed: make(chan struct{})}
	positive := func(name string, field gotorch.Scalar, value int64) int64 {
		n := args.Int(op, name, field, value)
		if n < 1 {
			panic(args.ValueError(op, "%s is %d, and must be positive", name, n))
		}
		return n
	}
	s.maxQueue = int(positive("MaxQueue", o.MaxQueue, 256))
	s.maxBody = positive("MaxRequestBytes", o.MaxRequestBytes, 64<<20)
	s.bytes.limit = positive("MaxBytes", o.MaxBytes, 1<<30)
	if o.RunTimeout < 0 {
		panic(args.ValueError(op, "RunTimeout is %v, and must not be negative", o.RunTimeout))
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	if s.options.Name == "" {
		s.options.Name = "gotorch"
	}
	if o.Tracer != nil {
		s.tracer = o.Tracer.Tracer(tracerName)
	}
	if o.Metrics != nil {
		s.metrics = newMetrics(s)
		o.Metrics.MustRegister(s.metrics)
	}
	return s
}

// version is a version of a model.
type version struct {
	name, id  string
	model     Model
	signature Signature
	options   modelOptions
	queueOf   queueOptions
	server    *Server
	stats     *statistics
	sequences *sequences // nil where it keeps no state
	ragged    []ragged
	cuts      []cut
	series    atomic.Pointer[series] // nil without metrics

	// Guarded by the server's mutex.
	queue   *queue   // nil while it is not loaded
	reason  string   // why it is not
	queues  []*queue // those on which something may still run
	retired bool     // it is in no table any more, or never will be again
	done    bool     // its model is closed, or is being closed
}

// Add adds a model, or a version of one. A version that is there already is replaced: requests that come from now on run
// on the new one, those that wait run on the old one, and none is refused. It returns an [*Error] of code
// InvalidArgument if the signature or an option is wrong, and Unavailable if the server is closed.
//
// If the model is an [io.Closer], the server closes it when it is done with it: when the version has been replaced or
// removed or the server closed, and nothing runs on it any more. Where Add returns an error the model is still yours.
func (s *Server) Add(name string, model Model, opts ...ModelOption) error {
	o, q, err := s.modelOptions(opts)
	if err := checkName("name", name); err != nil {
		return err
	}
	if err := checkName("version", o.version); err != nil {
		return of(name, "", err)
	}
	if model == nil {
		return of(name, o.version, newError(InvalidArgument, "there is no model: it is nil"))
	}
	if err != nil {
		return of(name, o.version, err)
	}
	v := &version{name: name, id: o.version, model: model, options: o, queueOf: q, server: s, stats: newStatistics(q.max)}
	v.signature = model.Signature().clone()
	if err := v.signature.check(); err != nil {
		return of(name, o.version, err)
	}
	if err := v.checkBatching(); err != nil {
		return of(name, o.version, err)
	}
	if err := v.findRagged(); err != nil {
		return of(name, o.version, err)
	}
	if v.sequences, err = newSequences(o.sequences, v.closeState); err != nil {
		return of(name, o.version, err)
	}
	if g, ok := model.(*graphModel); ok && len(g.state) > 0 && v.sequences == nil {
		return of(name, o.version, newError(InvalidArgument, "the model keeps state from call to call: add it with serve.Sequences"))
	}

	s.mutex.Lock()
	if s.closing {
		s.mutex.Unlock()
		return of(name, o.version, errClosed())
	}
	versions := s.models[name]
	if versions == nil {
		versions = map[string]*version{}
		s.models[name] = versions
	}
	old := versions[v.id]
	if old != nil && old.sequences != nil && v.sequences != nil {
		v.sequences = old.sequences.share(v.sequences)
	}
	versions[v.id] = v
	s.open(v)
	last := func() {}
	if old != nil {
		last = old.retire(errRetired)
	}
	s.mutex.Unlock()
	last()
	s.log.Info("serve: model added", "model", name, "version", v.id, "replaced", old != nil)
	return nil
}

// modelOptions checks what of options can be checked without the model.
func (s *Server) modelOptions(opts []ModelOption) (o modelOptions, q queueOptions, err error) {
	o = modelOptions{version: "1", instances: 1}
	for _, opt := range opts {
		if opt != nil {
			opt.set(&o)
		}
	}
	if q, err = s.queueOptions(&o); err == nil {
		err = o.checkThreads()
	}
	if err == nil {
		err = s.checkRunTimeout(&o)
	}
	return o, q, err
}

// open puts v into service. The mutex is held.
func (s *Server) open(v *version) {
	q := newQueue(v.queueOf, v.run)
	q.emptied = func() { v.emptied(q) }
	v.queue, v.reason = q, ""
	v.queues = append(v.queues, q)
	if s.metrics != nil {
		v.series.Store(s.metrics.open(v.name, v.id))
	}
	s.findLatest(v.name)
}

// findLatest sets which version is the highest of those in service.
func (s *Server) findLatest(name string) {
	var best *version
	for _, v := range s.models[name] {
		if v.queue != nil && (best == nil || compareVersions(v.id, best.id) > 0) {
			best = v
		}
	}
	if best == nil {
		delete(s.latest, name)
	} else {
		s.latest[name] = best
	}
}

// compareVersions orders versions: numbers of any length by what they are, after all other names, which are text. "01" and
// "+1" are text, so that no two names are the same number.
func compareVersions(a, b string) int {
	numberA, numberB := isNumber(a), isNumber(b)
	switch {
	case numberA && !numberB:
		return 1
	case numberB && !numberA:
		return -1
	case numberA && len(a) != len(b):
		return cmp.Compare(len(a), len(b))
	}
	return strings.Compare(a, b)
}

func isNumber(version string) bool {
	if version == "" || version[0] == '0' && len(version) > 1 {
		return false
	}
	return !strings.ContainsFunc(version, func(r rune) bool { return r < '0' || r > '9' })
}

// retire ends a version that is in no table any more. Its model is closed when nothing runs on it: by the function
// that is returned, if that is now. The mutex is held, and must not be when that is called.
func (v *version) retire(why error) func() {
	v.retired = true
	if v.queue != nil {
		v.queue.close(why)
		v.queue = nil
	}
	if len(v.queues) > 0 {
		v.server.leaving[v] = true
	}
	return v.ifLast()
}

// emptied is called when nothing runs on q any more.
func (v *version) emptied(q *queue) {
	v.server.mutex.Lock()
	v.queues = slices.DeleteFunc(v.queues, func(other *queue) bool { return other == q })
	last := v.ifLast()
	v.dropSeries()
	v.server.mutex.Unlock()
	last()
}

func (v *version) ifLast() func() {
	if !v.retired || v.done || len(v.queues) > 0 {
		return func() {}
	}
	v.done = true
	delete(v.server.leaving, v)
	v.dropSeries()
	return v.closeModel
}

// dropSeries forgets the metrics of v if nothing of its name and version is in service or still runs. The mutex is held.
func (v *version) dropSeries() {
	s := v.server
	if s.metrics == nil {
		return
	}
	if now := s.models[v.name][v.id]; now != nil && len(now.queues) > 0 {
		return
	}
	for other := range s.leaving {
		if other.name == v.name && other.id == v.id {
			return
		}
	}
	s.metrics.drop(v.name, v.id)
}

// waits are closed when nothing runs on v.
func (v *version) waits() []<-chan struct{} {
	waits := make([]<-chan struct{}, len(v.queues))
	for i, q := range v.queues {
		waits[i] = q.idle
	}
	return waits
}

func (v *version) closeModel() {
	if v.sequences != nil {
		v.sequences.unshare()
	}
	v.close("a model", v.model)
}

// close closes a model, or the state of a sequence, if it can be closed. That must not end the program: it runs on a
// timer's goroutine, or a client's.
func (v *version) close(what string, of any) {
	closer, ok := of.(io.Closer)
	if !ok {
		return
	}
	failed := func(attrs ...any) {
		attrs = append([]any{"model", v.name, "version", v.id}, attrs...)
		v.server.log.Error("serve: closing "+what+" failed", attrs...)
		if m := v.server.metrics; m != nil {
			m.failures.Inc()
		}
	}
	defer func() {
		if r := recover(); r != nil {
			failed("panic", fmt.Sprint(r), "stack", string(debug.Stack()))
		}
	}()
	if err := closer.Close(); err != nil {
		failed("error", err)
	}
}

var errRetired = newError(Unavailable, "the model is no longer served")

func errClosed() *Error { return newError(Unavailable, "the server is closing") }

func checkName(what, name string) error {
	if name == "" || len(name) > 256 || name == "." || name == ".." {
		return newError(InvalidArgument, "a model's %s is not empty, %q, or longer than 256 bytes, but is %.300q", what, "..", name)
	}
	for _, r := range name {
		if r < ' ' || r == 0x7f || r == 0xfffd || r == '/' {
			return newError(InvalidArgument, "a model's %s has neither slashes nor control characters, but is %q", what, name)
		}
	}
	return nil
}

// checkBatching says why a model cannot have its requests joined.
func (v *version) checkBatching() error {
	if v.options.batching.Max == 0 {
		return nil
	}
	if len(v.signature.Inputs) == 0 {
		return newError(InvalidArgument, "a model without inputs has nothing to join: leave Batching out")
	}
	for _, spec := range slices.Concat(v.signature.Inputs, v.signature.Outputs) {
		if spec.Shape != nil && (len(spec.Shape) == 0 || spec.Shape[0] != -1) {
			return newError(InvalidArgument, "%v is not open in its first dimension: with Batching it must be, as that is the batch", spec)
		}
	}
	return nil
}

// find returns a version in service.
func (s *Server) find(name, id string) (*version, *queue, error) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	if s.closing {
		return nil, nil, errClosed()
	}
	var v *version
	if id == "" {
		v = s.latest[name]
	} else {
		v = s.models[name][id]
	}
	switch {
	case v != nil && v.queue != nil && v.queue.hangs():
		return nil, nil, of(name, v.id, newError(Unavailable, "the model hangs: its instances have run for longer than %v", v.options.runTimeout))
	case v != nil && v.queue != nil:
		return v, v.queue, nil
	case v != nil:
		return nil, nil, of(name, id, newError(Unavailable, "the model is not loaded: %s", v.reason))
	case s.models[name] == nil:
		return nil, nil, newError(NotFound, "there is no model %q", name)
	case id == "":
		return nil, nil, of(name, "", newError(Unavailable, "no version of the model is loaded"))
	}
	return nil, nil, of(name, "", newError(NotFound, "the model has no version %q; there are %s", id,
		strings.Join(slices.SortedFunc(maps.Keys(s.models[name]), compareVersions), ", ")))
}

// Ready reports whether a version of a model takes requests; with "" for the version, whether any does.
func (s *Server) Ready(name, version string) bool {
	_, _, err := s.find(name, version)
	return err == nil
}

// SetReady(false) makes the server answer to who asks that it is not ready, and changes nothing else; [Server.CheckReady] says
// when it is by itself. A server that will be closed soon should not be: what balances load then sends its requests elsewhere.
func (s *Server) SetReady(ready bool) { s.notReady.Store(!ready) }

// some returns versions of a model: one, or with "" all of them.
func (s *Server) some(name, id string) ([]*version, error) {
	versions := s.models[name]
	if versions == nil {
		return nil, newError(NotFound, "there is no model %q", name)
	}
	if id == "" {
		return slices.SortedFunc(maps.Values(versions), func(a, b *version) int { return compareVersions(a.id, b.id) }), nil
	}
	if versions[id] == nil {
		return nil, of(name, "", newError(NotFound, "the model has no version %q", id))
	}
	return []*version{versions[id]}, nil
}

// Unload puts a version of a model out of service, or with "" all of them, and waits for the requests that are there.
// If ctx ends before that its error is returned; the model is out of service all the same. [Server.Load] puts it into
// service again. A model that is not there is an [*Error] of code NotFound.
func (s *Server) Unload(ctx context.Context, name, version string) error {
	waits, err := s.unload(name, version)
	if err != nil {
		return err
	}
	return waitAll(ctx, waits, name)
}

// unload is Unload that returns what it waits for.
func (s *Server) unload(name, version string) (waits []<-chan struct{}, err error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	versions, err := s.some(name, version)
	if err != nil {
		return nil, err
	}
	for _, v := range versions {
		waits = append(waits, v.waits()...)
		if v.queue != nil {
			v.queue.close(errUnloaded)
			v.queue, v.reason = nil, "it was unloaded"
			s.log.Info("serve: model unloaded", "model", name, "version", v.id)
		}
	}
	s.findLatest(name)
	return waits, nil
}

var errUnloaded = newError(Unavailable, "the model is not loaded: it was unloaded")

func waitAll(ctx context.Context, waits []<-chan struct{}, name string) error {
	for _, idle := range waits {
		select {
		case <-idle:
			continue
		default:
		}
		select {
		case <-idle:
		case <-ctx.Done():
			e := asError(ctx.Err())
			return of(name, "", &Error{Code: e.Code, Msg: "requests still run", cause: ctx.Err()})
		}
	}
	return nil
}

// Load puts a version of a model that was unloaded into service again, or with "" all of them. One that is in service
// stays as it is. One of a folder ([Server.AddRepository]) is as the folder is now; where that cannot be loaded, what was
// there before goes into service, and an [*Error] of code Unavailable says why. Loading goes on where ctx ends before it is
// done, and the error is ctx's.
func (s *Server) Load(ctx context.Context, name, version string) error {
	failed, left := s.reload(ctx, name, version)
	if left {
		return failed
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.closing {
		return errClosed()
	}
	versions, err := s.some(name, version)
	if err != nil && failed != nil {
		return failed
	}
	if err != nil {
		return err
	}
	for _, v := range versions {
		if v.queue == nil {
			s.open(v)
			s.log.Info("serve: model loaded", "model", name, "version", v.id)
		}
	}
	return failed
}

// Remove is [Server.Unload] for good: the server forgets the model, or the version, and closes it.
func (s *Server) Remove(ctx context.Context, name, version string) error {
	s.mutex.Lock()
	versions, err := s.some(name, version)
	if err != nil {
		s.mutex.Unlock()
		return err
	}
	var waits []<-chan struct{}
	var last []func()
	for _, v := range versions {
		delete(s.models[name], v.id)
		waits = append(waits, v.waits()...)
		last = append(last, v.retire(errRetired))
	}
	if len(s.models[name]) == 0 {
		delete(s.models, name)
	}
	s.findLatest(name)
	s.mutex.Unlock()
	for i, v := range versions {
		last[i]()
		s.log.Info("serve: model removed", "model", name, "version", v.id)
	}
	return waitAll(ctx, waits, name)
}

// Close refuses what comes from now on with UNAVAILABLE, or 503, and waits for the requests that are there. If ctx ends
// before that, those that wait are refused, the contexts of those that run are canceled, their clients are answered, and
// Close returns an error that wraps ctx's; a model that does not return keeps its goroutine. Closing twice is fine.
//
// Close the listeners first, or at the same time: http.Server.Shutdown and grpc.Server.GracefulStop wait for the
// handlers, which wait for the requests.
func (s *Server) Close(ctx context.Context) error {
	s.mutex.Lock()
	first := !s.closing
	s.closing = true
	var queues []*queue
	waits := s.stopRepositories()
	var last []func()
	for _, versions := range s.models {
		for _, v := range versions {
			last = append(last, v.retire(errClosed()))
		}
	}
	for v := range s.leaving { // those too that were replaced or removed before
		queues = append(queues, v.queues...)
		waits = append(waits, v.waits()...)
	}
	s.mutex.Unlock()
	for _, end := range last {
		end()
	}
	if first && s.metrics != nil {
		s.options.Metrics.Unregister(s.metrics)
	}
	err := waitAll(ctx, waits, "")
	if err != nil {
		s.killing.Do(func() { close(s.killed) })
		for _, q := range queues {
			q.kill(errClosed())
		}
		e := asError(err)
		e.Msg = "Close did not wait any longer for requests that run"
	}
	return err
}
